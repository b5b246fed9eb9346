"""OccamControl: act in a continuous system while finding out which simulator it needs.

The evidence (:mod:`occamrl.control.evidence`) never depends on how one acts. Acting is
model-predictive control, in

- ``"plausible"``: the heaviest member that is not rejected, at every step;
- ``"sampling"``: a member drawn by weight at the beginning of an episode;
- ``"average"``: the heaviest few at once, each with its share of the planner's particles;
- ``"optimism"``: of the heaviest few, the one that promises most at the beginning of an episode.

When every member is rejected (misspecified), it is the best one corrected by what was learned of
its errors. Random numbers have an address, (seed, purpose, step of all): a run that goes on from a
file equals an uninterrupted one, and draws are fresh at every step.
"""

from __future__ import annotations

import copy
import math
import numbers
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from occamrl.addresses import generator
from occamrl.answers.verdict import Verdict
from occamrl.control import errors, evidence
from occamrl.control.ladder import Simulator, SimulatorLadder, checked
from occamrl.control.planners import CEM, Planner
from occamrl.errors import (
    CheckpointError,
    ParameterError,
    ShapeError,
    as_floats,
    as_path,
    require_choice,
    require_integer,
    require_kind,
    require_number,
)
from occamrl.protocols import Floats
from occamrl.running.identity import changes, identity
from occamrl.running.storage import Reader, Writer, read_document, write_document

if TYPE_CHECKING:
    from occamrl.control.answer import Answer

FEW, RANGE = (
    4,
    math.log(20.0),
)  # members that average and optimism look at, and how much lighter they may be
REFINE_EVERY, MOST_ADDED, FINEST = 25, 64, 1e-3  # steps; members; share of a parameter's range


@dataclass(kw_only=True, eq=False)
class OccamControl:
    """An agent for continuous systems with a ladder of simulators: act, observe, ask for the verdict.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> def walk(states, actions, rng):
    ...     return states + 0.1 * actions + 0.05 * rng.normal(size=states.shape)
    >>> ladder = orl.SimulatorLadder({"walk": [walk]}, reward=lambda s, a, after: -after[:, 0] ** 2,
    ...                              horizon=10, actions=orl.Box(-1, 1), start=[0.5])
    >>> agent = orl.OccamControl(ladder=ladder)
    >>> action = agent.act([0.5])
    >>> agent.observe([0.5], action, reward=-0.2, next_state=[0.45])
    >>> agent.verdict["chosen"]
    1

    Parameters
    ----------
    ladder : SimulatorLadder
    delta : float
        The smallest class that holds the true simulator is ever rejected with probability at most
        delta.
    acting : "plausible" | "sampling" | "average" | "optimism"
    planner : Planner
        CEM, MPPI, or an object of yours with one method (:mod:`occamrl.control.planners`).
    refine : bool
        Add members between the best one and its neighbours while learning, where they are
        ``functools.partial`` with numeric keywords. A member begins with capital 1 when it is
        added: the guarantee is for listed members, and for an added one from then on; a truth that
        is never listed may be rejected.
    seed : int
    """

    ladder: SimulatorLadder
    delta: float = 0.05
    acting: str = "plausible"
    planner: Planner = field(default_factory=CEM)
    refine: bool = False
    seed: int = 0
    state: dict[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_kind("ladder", self.ladder, SimulatorLadder)
        require_number("delta", self.delta, 1e-300, 1.0)
        require_choice("acting", self.acting, ("plausible", "sampling", "average", "optimism"))
        require_integer("seed", self.seed, 0)
        if isinstance(self.planner, type) or not callable(getattr(self.planner, "plan", None)):
            expected = "CEM(), MPPI() or an object with a method plan"
            raise ParameterError("planner", got=repr(self.planner), expected=expected)
        self.dimension = self.ladder.first_state(generator(0, "dimension")).size
        self.state = {"step": 0, "earned": 0.0, "warm": None, "member": -1}  # of this episode
        self.state |= {"returns": [], "added": [], "history": [], "path": [], "off": 0.0}
        self.state["evidence"] = evidence.begin(self.ladder, self.dimension)

    @property
    def members(self) -> list[Simulator]:
        """The simulators of the ladder, and those that were added."""
        made = list(self.ladder.members)
        for parent, keywords in self.state["added"]:
            made.append(partial(made[parent], **keywords))
        return made

    # acting ---------------------------------------------------------------------------------------

    def begin_episode(self) -> None:
        """Begin an episode; the one before counts as over."""
        now = self.state
        if now["step"]:
            now["returns"].append(now["earned"])
            now |= {"step": 0, "earned": 0.0, "warm": None, "member": -1}

    def act(self, state: Any) -> Floats:
        """Return an action [m] for a state [n]."""
        now, at = self.state, self._vector("state", state, self.dimension)
        left = self.ladder.horizon - now["step"]
        action, now["warm"] = self.plan(
            self._model(at, left), at, left, self._address("plan"), now["warm"]
        )
        return self._vector("action of the planner", action, self.ladder.actions.dimension)

    def _model(self, at: Floats, left: int) -> Simulator:
        """Return the simulator to plan with."""
        now, members, order = self.state, self.members, evidence.ranking(self.state["evidence"])
        if not evidence.alive(now["evidence"]).size:
            return self.corrected(int(order[0]))
        weight = now["evidence"]["log_weight"]
        few = order[:FEW][weight[order[:FEW]] > weight[order[0]] - RANGE]
        if self.acting == "average" and few.size > 1:
            return averaged(
                [members[i] for i in few],
                np.exp(weight[few]),
                getattr(self.planner, "particles", 4),
            )
        if self.acting in ("plausible", "average"):
            return members[int(order[0])]
        if now["member"] not in order and self.acting == "sampling":  # none yet, or rejected
            share = np.exp(weight[order] - weight[order[0]])
            now["member"] = int(self._address("member").choice(order, p=share / share.sum()))
        elif now["member"] not in order:
            warm = [self.plan(members[i], at, left, self._address("promise"), None)[1] for i in few]
            now["member"] = int(few[np.argmax([getattr(each, "value", 0.0) for each in warm])])
        return members[int(now["member"])]

    def plan(
        self, model: Simulator, at: Floats, left: int, rng: np.random.Generator, warm: Any
    ) -> tuple[Floats, Any]:
        """Return an action in a model, and what the planner begins with next."""
        found = self.planner.plan(
            model, self.ladder.reward, at, left, self.ladder.actions, rng, warm
        )
        if not isinstance(found, tuple) or len(found) != 2:
            raise ParameterError(
                "planner", got=f"{found!r:.80}", expected="plan(...) -> (action, warm)"
            )
        return found

    def corrected(self, member: int) -> Simulator:
        """Return a member shifted by the mean of its errors, linear in the view and the action."""
        beta, _, _ = errors.coefficients(self.state["evidence"], member)
        ladder, simulate = self.ladder, self.members[member]

        def corrected(states: Floats, actions: Floats, rng: np.random.Generator) -> Floats:
            phi = np.clip(errors.features(ladder, ladder.view(states), actions), -3.0, 3.0)
            return simulate(states, actions, rng) + phi @ beta

        return corrected

    # learning -------------------------------------------------------------------------------------

    def observe(
        self, state: Any, action: Any, reward: float | None, next_state: Any, ended: bool = False
    ) -> None:
        """Take note of a real step, whoever chose the action; ``ended`` where the episode is over.

        A reward of None is that of the ladder.
        """
        s, y = (
            self._vector("state", state, self.dimension),
            self._vector("next_state", next_state, self.dimension),
        )
        now, a = self.state, self._vector("action", action, self.ladder.actions.dimension)
        checked("view", self.ladder.view, (np.stack([s, y]),), (2, None))
        due = float(self.ladder.reward(s[None], a[None], y[None])[0])
        paid = due if reward is None else float(self._vector("reward", reward, 1)[0])
        record = evidence.observe(
            now["evidence"], self.ladder, self.members, (s, a, y), self._address, self.delta
        )
        now["path"] = now["path"] if now["step"] else []
        now["path"].append(record)
        now["step"] += 1
        now["earned"] += paid
        now["off"] += abs(paid - due)
        steps = now["evidence"]["steps"]
        if self.refine and (steps % REFINE_EVERY == 0 or not evidence.alive(now["evidence"]).size):
            self._refine()
        facts = self.facts()
        if steps <= 100 or steps % (steps // 50) == 0 or steps in facts["rejected_after"]:
            now["history"].append([float(steps), *facts["statistics"]])
        if ended or now["step"] >= self.ladder.horizon:
            self.begin_episode()

    def _refine(self) -> None:
        """Add members half-way between the heaviest one and its neighbours, parameter by parameter."""
        now, best = self.state["evidence"], int(np.argmax(self.state["evidence"]["log_weight"]))
        members, chosen = self.members, self.members[best]
        for name, value in parameters(chosen).items():
            near = {
                parameters(each)[name]: i
                for i, each in enumerate(members)
                if _differ_in(each, chosen, name)
            }
            span = max(near) - min(near)  # its own is one of them
            above, below = [v for v in near if v > value], [v for v in near if v < value]
            for other in (min(above, default=value), max(below, default=value)):
                middle, room = (
                    float(f"{(other + value) / 2:.6g}"),
                    len(self.state["added"]) < MOST_ADDED,
                )
                if room and abs(other - value) > FINEST * span and middle not in (value, other):
                    level = max(
                        int(now["level"][best]), int(now["level"][near[other]])
                    )  # of the richer neighbour
                    self.state["added"].append((best, {name: middle}))
                    evidence.enlarge(now, level, float(now["log_weight"][best]) - math.log(4.0))

    def _vector(self, name: str, value: Any, size: int) -> Floats:
        found = np.ravel(as_floats(name, value))
        if found.size != size or not np.isfinite(found).all():
            raise ShapeError(name, got=f"{value!r:.100}", expected=f"{size} finite numbers")
        return found

    def _address(self, purpose: str) -> np.random.Generator:
        return generator(
            self.seed, purpose, self.state["evidence"]["steps"]
        )  # no two steps share one

    # answers and files ----------------------------------------------------------------------------

    @property
    def total_episodes(self) -> int:
        """How many episodes are over."""
        return len(self.state["returns"])

    @property
    def returns(self) -> Floats:
        """The return of every episode."""
        return np.array(self.state["returns"])

    def facts(self) -> dict[str, Any]:
        """Return what was decided so far, by name."""
        return evidence.classes(self.state["evidence"], self.ladder.names)

    @property
    def answer(self) -> Answer:
        """What the data say so far."""
        from occamrl.control.answer import Answer

        return Answer(self.fresh(state=self.state))  # which does not change when the agent goes on

    @property
    def verdict(self) -> Verdict:
        """The class that is needed: facts by name, and sentences."""
        return self.answer.verdict

    def fresh(self, seed: int | None = None, state: dict[str, Any] | None = None) -> OccamControl:
        """Return the same agent before any data, or with what a state has learned."""
        made = replace(self, seed=self.seed if seed is None else seed)
        made.state = made.state if state is None else copy.deepcopy(state)
        return made

    def save(self, path: str | Path) -> None:
        """Write all that was learned to one file: data, never code."""
        writer = Writer()
        document = {
            "identity": identity(self),
            "state": writer.put(self.state),
            "objects": writer.objects,
        }
        write_document(as_path("path", path), document, writer.arrays)

    def load(self, path: str | Path) -> OccamControl:
        """Return this agent with what a file holds; it must be of the same simulators and parameters."""
        document, arrays = read_document(as_path("path", path))
        try:
            if changed := changes(document["identity"], identity(self)):
                raise ValueError(f"another agent: {changed}")
            state = Reader(arrays, document["objects"]).get(document["state"])
            if sorted(state) != sorted(self.state):
                raise ValueError("another kind of state")
        except Exception as error:  # whatever a foreign file leads to
            expected = "what save of the same agent wrote"
            raise CheckpointError(
                path, got=f"{type(error).__name__}: {error}", expected=expected
            ) from error
        return self.fresh(state=state)

    def learn_in(self, env: Any, **options: Any) -> OccamControl:
        """Return an agent that has learned in an environment; :func:`occamrl.learn` calls it."""
        from occamrl.control.learning import learn_in

        return learn_in(self, env, **options)


def averaged(members: list[Simulator], weights: Floats, particles: int) -> Simulator:
    """Return a simulator that runs row i in the member of particle i mod ``particles``, by weight."""
    shares = np.cumsum(weights) / weights.sum()
    pattern = np.searchsorted(shares, (np.arange(particles) + 0.5) / particles)

    def simulate(states: Floats, actions: Floats, rng: np.random.Generator) -> Floats:
        after, turn = np.empty_like(states), pattern[np.arange(len(states)) % particles]
        for k in np.unique(pattern):
            after[turn == k] = members[k](states[turn == k], actions[turn == k], rng)
        return after

    return simulate


def parameters(member: Any) -> dict[str, float]:
    """Return the numeric keywords that a partial fixes."""
    found = member.keywords if isinstance(member, partial) else {}
    return {
        k: float(v)
        for k, v in found.items()
        if isinstance(v, numbers.Real) and not isinstance(v, bool)
    }


def _differ_in(one: Any, other: Any, name: str) -> bool:
    """Say whether two partials are of one function and differ in one parameter at most."""
    if not (isinstance(one, partial) and isinstance(other, partial)) or one.func is not other.func:
        return False
    rest = [{k: v for k, v in each.keywords.items() if k != name} for each in (one, other)]
    return name in parameters(one) and one.args == other.args and repr(rest[0]) == repr(rest[1])
