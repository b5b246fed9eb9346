r"""What simulators leave possible: worlds in which a planner plans and policies are run.

With probability $1-\delta$ the true simulator, if it is listed, is among those that are alive. So
the least and the largest mean return of a policy over them bound what the policy earns in truth, up
to errors of simulation. Two policies are compared world by world, with common random numbers. Where
every member is rejected, the one world is the heaviest member: a guess without guarantee.

**Errors of simulation.** If returns lie between bounds that are known, let $x_1, \dots, x_n \in
[0, 1]$ be those of n episodes as shares of the way. Where their mean is at most $\mu$,

.. math:: K(\mu) = \frac1{|C|}\sum_{c \in C}\prod_i\big(1 - c + c\,x_i/\mu\big),
          \qquad E[K(\mu)] \le 1, \qquad C = \{1, \tfrac12, \tfrac14, \dots, 2^{-9}\},

since every factor has a mean of at most one. By Markov's inequality all $\mu$ with $K(\mu) \ge
2/.05$ are too small, and the same of $1 - x_i$ gives the other end: an interval that holds with
probability .95 for every law of returns. Without a crash among many episodes it allows for 1.6
times as many as Clopper and Pearson's does, which knows that there are only two returns. Without
bounds no interval holds for every law; then it is Student's, right for returns that are nearly
normal, and beside it is said what is sure: at most :func:`unseen` of all episodes earn less than
the worst of n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, stdtrit

from occamrl.addresses import generator
from occamrl.errors import ParameterError, require_integer
from occamrl.evidence.simulator_contract import call_checked
from occamrl.protocols import DoubtfulPair, Floats, Planner, Simulator, System, Worth

_LEVEL = 0.05  # of the interval of a Monte Carlo mean, and of what may be unseen
_SHARES = 0.5 ** np.arange(10)  # of the capital that are bet on a mean
_ROUNDING = 1e-9  # of the distance of bounds, by which a return may lie outside
_HALVINGS = 50  # of an interval that holds the end of another
Act = Callable[[Floats, int], Floats]  # policy(states [N, n], step) -> actions [N, m]


class SimulatedWorld(NamedTuple):
    """A simulator that may be the truth."""

    label: str
    weight: float  # among the worlds that are possible
    step: Simulator


def plan_in(
    planner: Planner,
    simulate: Simulator,
    system: System,
    state: Floats,
    step: int,
    rng: np.random.Generator,
    warm: Any,
) -> tuple[Floats, Any]:
    """Return an action in a state at a step of the episode, and what the planner begins with next.

    ``warm`` is what it returned a step before; planners may be a user's, so what comes is checked.
    """
    left = system.horizon - step
    plan = planner.plan(simulate, system.reward, state, left, system.actions, rng, warm)
    if not isinstance(plan, tuple) or len(plan) != 2:
        expected = "plan(...) -> (action, warm)"
        raise ParameterError("planner", got=f"{plan!r:.80}", expected=expected)
    return plan


@dataclass(eq=False)
class PlannedPolicy:
    """A planner in a world, as a policy: ``policy(states [N, n], step) -> actions [N, m]``.

    Calls are made in the order of steps; step 0 begins an episode in each row.
    """

    planner: Planner
    world: SimulatedWorld
    system: System
    _rng: np.random.Generator = field(init=False, repr=False)
    _warm: list[Any] = field(default_factory=list, init=False, repr=False)

    def __call__(self, states: Floats, step: int) -> Floats:
        """Return a planned action for each state."""
        if step == 0 or len(self._warm) != len(states):
            self._rng = generator(0, "worth", 1)
            self._warm = [None] * len(states)
        actions = np.empty((len(states), self.system.actions.dimension))
        for row, state in enumerate(states):
            actions[row], self._warm[row] = plan_in(
                self.planner, self.world.step, self.system, state, step, self._rng, self._warm[row]
            )
        return actions


@dataclass(eq=False)
class CheckedPolicy:
    """A user's policy, whose actions are checked."""

    policy: Callable[[Floats, int], Any]
    dimension: int  # of actions

    def __call__(self, states: Floats, step: int) -> Floats:
        """Return an action for each state."""
        shape = len(states), self.dimension
        return call_checked("policy", self.policy, (states, step), shape)


@dataclass(eq=False)
class SimulatorWorlds:
    """The simulators that are alive, heaviest first; or the heaviest one."""

    system: System
    planner: Planner
    worlds: list[SimulatedWorld]
    heaviest: dict[str, SimulatedWorld]  # of each class, alive or not
    runs: int = 8  # episodes in each world
    exact: bool = False

    # What was played, by policy, world and runs; both are kept, so that their ids stay theirs.
    _played: dict[tuple[int, int, int], tuple[Act, SimulatedWorld, Floats]] = field(
        default_factory=dict
    )
    _policies: dict[int, PlannedPolicy] = field(default_factory=dict)

    def best(self, m: int) -> SimulatedWorld:
        """Return the heaviest simulator of class m, from 0, alive or not."""
        return list(self.heaviest.values())[m]

    def sized(self, runs: int, maximum: int | None) -> SimulatorWorlds:
        """Return the heaviest ``maximum`` of the worlds, with so many episodes in each."""
        if maximum is not None:
            require_integer("maximum", maximum, 1)
        return replace(self, runs=runs, worlds=self.worlds[:maximum])

    def rule(self, policy: object) -> Act:
        """Return a function of states and step; or the planner in the heaviest of a class."""
        if isinstance(policy, str) and policy in self.heaviest:
            return self.policy(self.heaviest[policy])
        if isinstance(policy, (PlannedPolicy, CheckedPolicy)):
            return policy
        if not callable(policy):
            classes = ", ".join(self.heaviest)
            expected = f"a function policy(states, step), or a class of {classes}"
            raise ParameterError("policy", got=repr(policy), expected=expected)
        return CheckedPolicy(policy, self.system.actions.dimension)

    def some(self, count: int) -> list[SimulatedWorld]:
        """Return the heaviest of the worlds."""
        return self.worlds[:count]

    def policy(self, world: SimulatedWorld) -> PlannedPolicy:
        """Return the planner in a world."""
        if id(world) not in self._policies:
            self._policies[id(world)] = PlannedPolicy(self.planner, world, self.system)
        return self._policies[id(world)]

    def recommend(self, today: Act | None) -> Act:
        """Return the planner in the heaviest world, unless today's policy is guaranteed more."""
        planned = self.policy(self.worlds[0])
        if today is None:
            return planned
        floor, _ = self.extremes(lambda world: self.returns(planned, world))
        floor_today, _ = self.extremes(lambda world: self.returns(today, world))
        if floor_today > floor:
            return today
        return planned

    def returns(self, policy: Act, world: SimulatedWorld) -> Floats:
        """Return what simulated episodes earn [runs]; their noise is common to all policies."""
        key = id(policy), id(world), self.runs
        if key not in self._played:
            self._played[key] = policy, world, self._play(policy, world)
        return self._played[key][2]

    def _play(self, policy: Act, world: SimulatedWorld) -> Floats:
        system = self.system
        noise = generator(0, "worth")
        runs = require_integer("runs", self.runs, 2)  # a standard error needs two
        states = np.stack([system.first_state(noise) for _ in range(runs)])
        total = np.zeros(self.runs)
        for step in range(system.horizon):
            actions = policy(states, step)
            next_states = world.step(states, actions, noise)
            total += system.reward(states, actions, next_states)
            states = next_states
        if system.returns is not None:
            low, high = system.returns
            slack = _ROUNDING * (high - low)
            outside = total[(total < low - slack) | (total > high + slack)]
            if outside.size:
                got = f"a simulated episode that earns {outside[0]:.6g} in {world.label}"
                expected = f"{low:g} to {high:g}: wider bounds of what an episode earns, or none"
                raise ParameterError("returns", got=got, expected=expected)
            total = np.clip(total, low, high)
        return total

    def extremes(self, worth: Worth, *, differences: bool = False) -> tuple[float, float]:
        """Return the least and the largest end of 95 % intervals over the worlds."""
        bounds = self.system.returns
        if bounds is not None and differences:
            # Common random numbers make both returns those of one episode.
            bounds = bounds[0] - bounds[1], bounds[1] - bounds[0]
        ends = [mean_interval(worth(world), bounds) for world in self.worlds]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def worst(self, policy: Act) -> float:
        """Return the least that a simulated episode earns in any of the worlds."""
        return min(float(self.returns(policy, world).min()) for world in self.worlds)

    def doubtful(self, policy: Act) -> list[DoubtfulPair]:
        """Return nothing: there are no pairs of states and actions."""
        return []


def unseen(runs: int) -> float:
    """Return the share of episodes below which an event has a chance of 1 in 20 to be missed.

    >>> round(unseen(8), 2), round(unseen(300), 2)
    (0.31, 0.01)
    """
    return 1.0 - float(_LEVEL ** (1.0 / runs))


def mean_interval(returns: Floats, bounds: tuple[float, float] | None) -> tuple[float, float]:
    """Return a 95 % interval of the mean of the law that returns [runs] were drawn from.

    It holds for every law between the bounds; without bounds it is Student's.

    >>> import numpy as np
    >>> low, high = mean_interval(np.zeros(300), (-1.0, 0.0))
    >>> round(low, 3), round(high, 3)
    (-0.019, 0.0)
    """
    if bounds is None:
        mean, error = mean_and_error(returns)
        half = float(stdtrit(returns.size - 1, 1 - _LEVEL / 2)) * error
        return mean - half, mean + half
    least, most = bounds
    share = (returns - least) / (most - least)
    low = _least_mean(share)
    high = 1.0 - _least_mean(1.0 - share)
    return least + low * (most - least), least + high * (most - least)


def _least_mean(share: Floats) -> float:
    """Return the largest mean of a law in [0, 1] that draws [runs] from it show to be too small."""
    too_small = 0.0
    possible = 1.0
    # K falls as the mean grows.
    for _ in range(_HALVINGS):
        mean = 0.5 * (too_small + possible)
        with np.errstate(divide="ignore"):
            factors = np.log(1.0 - _SHARES[:, None] + _SHARES[:, None] * share / mean)
        capital = logsumexp(factors.sum(axis=1)) - math.log(_SHARES.size)
        if capital >= math.log(2.0 / _LEVEL):
            too_small = mean
        else:
            possible = mean
    return too_small


def mean_and_error(returns: Floats) -> tuple[float, float]:
    """Return the mean of simulated returns [runs], and its standard error."""
    return float(returns.mean()), float(returns.std(ddof=1) / math.sqrt(returns.size))
