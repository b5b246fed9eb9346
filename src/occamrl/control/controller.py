"""OccamControl: act in a continuous system while finding out which simulator it needs.

The evidence (:mod:`occamrl.evidence.simulated`) never depends on how one acts. Acting is
model-predictive control, in

- ``"plausible"``: the heaviest member that is not rejected, at every step;
- ``"sampling"``: a member drawn by weight at the beginning of an episode;
- ``"average"``: the heaviest few at once, each with its share of the planner's particles;
- ``"optimism"``: of the heaviest few, the one that promises most at the beginning of an episode.

When every member is rejected (misspecified), it is the heaviest one.

Of fitted :class:`~occamrl.Dynamics` it is the best fit of the smallest class that is left at the
level delta/sqrt(k) after k episodes ("plausible"), or a draw of its parameters around the fit for
every episode ("sampling"). Until scales are known, in the first steps, actions are drawn evenly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np

from occamrl.addresses import Address
from occamrl.control.dynamics import Dynamics
from occamrl.control.ladder import SimulatorLadder
from occamrl.control.planners import CEM
from occamrl.errors import ParameterError, require_choice, require_delta, require_kind
from occamrl.evidence.regression import RegressionEvidence
from occamrl.evidence.simulated import SimulatedEvidence
from occamrl.evidence.simulator_contract import call_checked
from occamrl.evidence.simulator_worlds import plan_in
from occamrl.protocols import Floats, Ints, Planner, Simulator, System, Transition

FEW = 4  # members that average and optimism look at
LIGHTER = math.log(20.0)  # how much lighter than the heaviest these may be
PARTICLES = 4  # of a planner of others, in which members take turns
WAYS = ("plausible", "sampling", "average", "optimism")
NONE = -1  # no member


class ControlState(TypedDict):
    """What OccamControl has learned, and what the next action of the episode begins with."""

    evidence: Any  # the state of the evidence of the ladder
    warm: Any  # what the planner returned a step before
    member: int  # that sampling or optimism chose for this episode; NONE before
    episodes: int  # that are over


@dataclass(frozen=True, kw_only=True, eq=False)
class OccamControl:
    """A controller for continuous systems with a ladder of simulators.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> def walk(states, actions, rng):
    ...     return states + 0.1 * actions + 0.05 * rng.normal(size=states.shape)
    >>> ladder = orl.SimulatorLadder(
    ...     {"walk": [walk]}, reward=lambda s, a, after: -after[:, 0] ** 2,
    ...     horizon=10, actions=orl.Box(-1, 1), start=[0.5])
    >>> agent = orl.Agent(orl.OccamControl(ladder=ladder))
    >>> action = agent.act([0.5])
    >>> agent.observe([0.5], action, reward=-0.2, next_state=[0.45])
    >>> agent.answer.chosen
    1

    In a Gymnasium environment, :func:`occamrl.learn` plays it.

    Parameters
    ----------
    ladder : SimulatorLadder or Dynamics with a task (``dynamics.system(...)``)
    delta : float
        The smallest class that holds the true simulator is ever rejected with probability at most
        delta.
    acting : "plausible" | "sampling" | "average" | "optimism"
    planner : Planner
        CEM, MPPI, or an object of yours with one method (:mod:`occamrl.control.planners`).
    """

    ladder: SimulatorLadder | Dynamics
    delta: float = 0.05
    acting: str = "plausible"
    planner: Planner = field(default_factory=CEM)

    def __post_init__(self) -> None:
        require_kind("ladder", self.ladder, (SimulatorLadder, Dynamics))
        require_delta(self.delta)
        require_choice("acting", self.acting, WAYS)
        if isinstance(self.ladder, Dynamics):
            require_choice("acting", self.acting, WAYS[:2])
            if self.ladder.task is None:
                expected = (
                    "a task: dynamics.system(reward=..., horizon=..., actions=..., start=...)"
                )
                raise ParameterError("ladder", got=repr(self.ladder), expected=expected)
        if isinstance(self.planner, type) or not isinstance(self.planner, Planner):
            expected = "CEM(), MPPI() or an object with a method plan"
            raise ParameterError("planner", got=repr(self.planner), expected=expected)

    def evidence(self, known: System | None = None) -> SimulatedEvidence | RegressionEvidence:
        """Return what weighs the classes; its state is part of the controller's."""
        return self.ladder.evidence(known, self.delta, self.planner)

    def begin(self, system: System) -> ControlState:
        """Return the state before any data."""
        evidence = self.evidence(system).begin()
        return {"evidence": evidence, "warm": None, "member": NONE, "episodes": 0}

    def act(
        self, system: System, state: ControlState, observation: Floats, step: int, address: Address
    ) -> Floats:
        """Return an action [m] for a state [n], planned in the simulator ``acting`` chooses."""
        if step == 0:
            state["warm"] = None
            state["member"] = NONE
        if isinstance(self.ladder, Dynamics) and not state["evidence"]["burned"]:
            drawn: Floats = system.actions.draw(1, address.generator("explore"))[0]
            return drawn
        simulate = self._simulator(system, state, observation, step, address)
        rng = address.generator("plan")
        action, state["warm"] = plan_in(
            self.planner, simulate, system, observation, step, rng, state["warm"]
        )
        return action

    def learn(self, system: System, state: ControlState, transition: Transition) -> None:
        """Weigh the simulators on a real step; now and then, add some."""
        if isinstance(self.ladder, SimulatorLadder):
            both = np.stack([transition.state, transition.next_state])
            # A view is a user's function: what it may not do leaves no trace of the step.
            call_checked("view", self.ladder.view, (both,), (2, None))
        self.evidence(system).add(state["evidence"], transition)
        state["episodes"] += transition.ended

    def _simulator(
        self, system: System, state: ControlState, observation: Floats, step: int, address: Address
    ) -> Simulator:
        """Return the simulator to plan with."""
        if isinstance(self.ladder, Dynamics):
            return self._fitted(self.ladder, system, state, address)
        simulators = self.ladder.members
        members = state["evidence"]["members"]
        order = members.ranking
        heaviest = int(order[0])
        weight = members.log_weight
        few = order[:FEW]
        few = few[weight[few] > weight[heaviest] - LIGHTER]
        if self.acting == "average" and few.size > 1:
            chosen = [simulators[member] for member in few]
            # A planner of others need not say how many runs of a candidate it makes.
            particles = getattr(self.planner, "particles", PARTICLES)
            return averaged(chosen, np.exp(weight[few]), particles)
        if self.acting in ("plausible", "average"):
            return simulators[heaviest]
        # A member chosen for this episode stays until it is rejected.
        if state["member"] not in order:
            if self.acting == "sampling":
                share = np.exp(weight[order] - weight[heaviest])
                rng = address.generator("member")
                state["member"] = int(rng.choice(order, p=share / share.sum()))
            else:
                state["member"] = self._most_promising(
                    system, simulators, few, observation, step, address
                )
        return simulators[state["member"]]

    def _fitted(
        self, ladder: Dynamics, system: System, state: ControlState, address: Address
    ) -> Simulator:
        """Return the smallest class that is left at the level of acting: its fit, or a draw."""
        evidence = ladder.evidence(system, self.delta, self.planner)
        threshold = math.log(math.sqrt(1.0 + state["episodes"]) / self.delta)
        m = evidence.smallest_class(state["evidence"], threshold)
        if self.acting == "plausible":
            return evidence.simulator(state["evidence"], m)
        if state["member"] == NONE:
            state["member"] = int(address.generator("member").integers(2**31))
        # The numbers of an episode's draw stay while its fit follows the data.
        draw = Address(state["member"], m).generator("draw")
        return evidence.simulator(state["evidence"], m, draw)

    def _most_promising(
        self,
        system: System,
        simulators: list[Simulator],
        few: Ints,
        observation: Floats,
        step: int,
        address: Address,
    ) -> int:
        """Return the member in which the planner counts on the largest return."""
        promises = []
        for member in few:
            rng = address.generator("promise")
            _, warm = plan_in(
                self.planner, simulators[member], system, observation, step, rng, None
            )
            # A planner of others need not say what it counts on.
            promises.append(getattr(warm, "value", 0.0))
        return int(few[np.argmax(promises)])


def averaged(members: list[Simulator], weights: Floats, particles: int) -> Simulator:
    """Return a simulator that runs row i in the member of particle i mod ``particles``.

    Every member runs all rows, so that candidates have the same noise.
    """
    shares = np.cumsum(weights) / weights.sum()
    pattern = np.searchsorted(shares, (np.arange(particles) + 0.5) / particles)

    def simulate(states: Floats, actions: Floats, rng: np.random.Generator) -> Floats:
        next_states = np.empty_like(states)
        turn = pattern[np.arange(len(states)) % particles]
        for member in np.unique(pattern):
            rows = turn == member
            next_states[rows] = members[member](states, actions, rng)[rows]
        return next_states

    return simulate
