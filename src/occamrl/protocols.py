"""Every contract on one page: what an agent knows, what it plans, what it is told, and the three methods of a learner.

The simulator knows no learner, and a learner no loop. A driver asks for a plan, plays it for as
many episodes as the plan says, and hands back what was counted::

    state = learner.begin(known)
    while episodes are left:
        plan = learner.plan(known, state, draw) flow = ...                                  #
        plan.episodes episodes under plan.policy learner.learn(known, state, plan, flow)     # or
        once for each part of a plan that depends on the start

**Flow.** Under a fixed policy episodes are independent chains. Given that N visitors are in s at
step h, their outcomes are Multinomial(N, P(.|s, pi_h(s))), independently over s. The counts are
therefore all that a learner can use of a block, and a block costs the same for ten episodes and for
a billion.

**Outcome layout.** Everything that can happen at (s, a) is a list of *outcomes*, each a next state
and a reward. The lists of all pairs s*A + a are concatenated; that of a pair occupies ``start[pair]
: start[pair + 1]``. A dense kernel lists every state, a sparse one its successors, a Gymnasium
table its rows. A kernel is then one probability per outcome, a feature map one vector per outcome,
and each formula is written once for all of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from occamrl.errors import ParameterError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
State = (
    Any  # a dict or NamedTuple of named arrays and plain numbers; it may contain others of its kind
)

MOST_EPISODES = 10**15  # beyond which sums of likelihoods lose digits


class RewardMap(NamedTuple):
    """The affine map (r - low) / (high - low) of rewards in a unit of their own (money, minutes) onto [0, 1].

    >>> from occamrl.protocols import RewardMap
    >>> euro = RewardMap(low=-50.0, high=150.0)
    >>> euro.to_unit(50.0), 0.25 * euro.scale, euro.total(6.0, steps=10)
    (0.5, 50.0, 700.0)
    """

    low: float = 0.0
    high: float = 1.0

    @property
    def scale(self) -> float:
        """What a difference of 1 in the learner's unit is in the user's: regret times this is an amount."""
        return self.high - self.low

    def to_unit(self, reward: Any) -> Any:
        """Return a reward as the learner sees it."""
        return (reward - self.low) / (self.high - self.low)

    def total(self, mapped: Any, steps: Any) -> Any:
        """Return the sum of the rewards of ``steps`` steps in the user's unit from that in the learner's."""
        return mapped * self.scale + steps * self.low


UNIT = RewardMap()


class Names(NamedTuple):
    """What the user calls the states and actions."""

    states: tuple[Any, ...]
    actions: tuple[Any, ...]
    absorbing: tuple[bool, ...] = ()  # in which states nothing more happens


def _number(field: str, name: Any, numbers: dict[Any, int] | None, size: int) -> int:
    """Return the number of a name, or refuse it with those that are near."""
    try:
        known = (
            name in numbers
            if numbers is not None
            else isinstance(name, (int, np.integer)) and 0 <= name < size
        )
    except TypeError:  # a list, say
        known = False
    if not known:
        some = list(range(size) if numbers is None else numbers)
        near = difflib.get_close_matches(str(name), [str(each) for each in some], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        listed = ", ".join(repr(each) for each in some[:12]) + ", ..." * (len(some) > 12)
        raise ParameterError(field, got=repr(name), expected=f"one of {listed}{hint}")
    return int(name) if numbers is None else numbers[name]


def _runs(names: Sequence[Any]) -> str:
    """Return names as text; whole numbers are sorted, and runs of them joined."""
    if any(type(name) is not int for name in names):
        return ", ".join(map(str, names))
    found: list[list[int]] = []
    for number in sorted(names):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in found)


def distinct_rows(*columns: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the order that sorts rows, by the first column first, and where in it each different row begins."""
    order, new = np.lexsort(columns[::-1]), np.ones(columns[0].size, bool)
    new[1:] = np.any([column[order[1:]] != column[order[:-1]] for column in columns], axis=0)
    return order, np.flatnonzero(new)


class Outcomes(NamedTuple):
    """What can happen at each (s, a); O outcomes in all."""

    start: Ints  # [S*A + 1] where the outcomes of a pair s*A + a begin
    next_state: Ints  # [O]
    bonus: Floats  # [O] the part of the reward that depends on the outcome; reward = base_reward[s, a] + bonus

    @property
    def pair(self) -> Ints:
        """The pair s*A + a of each outcome [O]."""
        return np.repeat(np.arange(self.start.size - 1), np.diff(self.start))

    def index_of(self, pair: Ints, next_state: Ints, bonus: Floats, states: int) -> Ints:
        """Return the index of each given outcome, -1 where it is not listed; of equal next states the nearest bonus."""
        keys, wanted = self.pair * states + self.next_state, pair * states + next_state
        order = np.lexsort((self.bonus, keys))
        first, last = (
            np.searchsorted(keys[order], wanted, side=side) for side in ("left", "right")
        )
        found, gap = np.full(wanted.size, -1), np.full(wanted.size, np.inf)
        for k in range(int((last - first).max(initial=0))):
            at = order[np.minimum(first + k, order.size - 1)]
            nearer = (first + k < last) & (np.abs(self.bonus[at] - bonus) < gap)
            found, gap = (
                np.where(nearer, at, found),
                np.where(nearer, np.abs(self.bonus[at] - bonus), gap),
            )
        return found


@dataclass(
    frozen=True, eq=False
)  # compared by identity, so that what was solved for it can be remembered
class Known:
    """What an agent may know of a problem: its sizes, its rewards and where episodes start, never its kernel.

    >>> import occamrl as orl
    >>> known = orl.make_problem("river-swim", states=3).mdp.known
    >>> known.states, known.actions, known.horizon
    (3, 2, 12)
    >>> sizes = orl.Known.of_sizes(states=3, actions=2, horizon=5)  # where rewards are not known

    ``transition_rewards`` is None when the reward is a function of (s, a) alone; otherwise it
    lists, by (s, a), the next states and bonuses that the reward table defines. Where
    ``rewards_known`` is False the rewards say nothing, and the agent has to estimate them.
    ``initial`` is the law of the first state; None where that is not known.
    """

    states: int
    actions: int
    horizon: int
    base_reward: Floats  # [S, A]
    transition_rewards: Outcomes | None = None
    rewards_known: bool = True
    initial: Floats | None = None  # [S]
    unit: RewardMap = UNIT  # what rewards of 0 and 1 are in the user's unit
    unit_name: str = ""  # such as EUR
    names: Names | None = None
    discount: float = 1.0
    continuing: bool = False  # the next episode begins where the last one ended

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Which actions may be chosen [S, A]; the others have the reward minus infinity."""
        return np.isfinite(self.base_reward)

    @cached_property
    def absorbing(self) -> NDArray[np.bool_]:
        """In which states [S] an episode of a model rests: nothing happens, and nothing is earned."""
        marks = () if self.names is None else self.names.absorbing
        return np.array(marks, bool) if marks else np.zeros(self.states, bool)

    def state_name(self, s: int) -> Any:
        """Return what the user calls a state."""
        return s if self.names is None else self.names.states[s]

    def action_name(self, a: int) -> Any:
        """Return what the user calls an action."""
        return a if self.names is None else self.names.actions[a]

    def state_number(self, name: Any) -> int:
        """Return the number of a state that the user names."""
        return _number("state", name, self._numbers[0], self.states)

    def action_number(self, name: Any) -> int:
        """Return the number of an action that the user names."""
        return _number("action", name, self._numbers[1], self.actions)

    @cached_property
    def _numbers(self) -> tuple[dict[Any, int] | None, dict[Any, int] | None]:
        if self.names is None:
            return None, None
        numbers: dict[Any, int] = {}
        for s, name in enumerate(self.names.states):
            numbers.setdefault(name, s)  # of equal names the first
        return numbers, {name: a for a, name in enumerate(self.names.actions)}

    def describe_states(self, states: Sequence[int]) -> str:
        """Return some states in words, runs of whole numbers joined: "0 to 4, 7", or "Mon, Thu: 0 to 4; Tue: 2"."""
        names = [self.state_name(s) for s in states]
        sizes = {len(name) if isinstance(name, tuple) else 0 for name in names}
        axes = range(sizes.pop()) if len(sizes) == 1 else range(0)
        counted = [axis for axis in axes if all(type(name[axis]) is int for name in names)]
        axis = (counted or list(axes) or [-1])[-1]  # which of several parts runs on
        groups: dict[Any, list[Any]] = {}
        for name in names:
            front, last = (
                ((*name[:axis], *name[axis + 1 :]), name[axis]) if axis >= 0 else ((), name)
            )
            groups.setdefault(front, []).append(last)
        alike: dict[str, list[Any]] = {}
        for front, lasts in groups.items():
            named = front[0] if len(front) == 1 else f"({', '.join(map(str, front))})"
            alike.setdefault(_runs(lasts), []).append(named)
        return "; ".join(
            f"{_runs(fronts)}: {text}" if axis >= 0 else text for text, fronts in alike.items()
        )

    @property
    def may_start(self) -> NDArray[np.bool_]:
        """In which states an episode may begin, as far as is known [S]."""
        anywhere = self.initial is None or self.continuing
        return np.ones(self.states, bool) if anywhere else np.asarray(self.initial) > 0.0

    def amount(self, values: Any, steps: Any = None) -> Any:
        """Return the value of the last ``steps`` steps, all of them by default, in the user's unit."""
        left = self.horizon if steps is None else steps
        count = (
            left if self.discount == 1.0 else (1.0 - self.discount**left) / (1.0 - self.discount)
        )
        return self.unit.scale * values + self.unit.low * count

    @classmethod
    def of_sizes(cls, *, states: int, actions: int, horizon: int) -> Known:
        """Return what is known of a problem whose rewards are not."""
        return cls(states, actions, horizon, np.zeros((states, actions)), rewards_known=False)

    @cached_property
    def without_rewards(self) -> Known:
        """The same, seen by an agent that has to estimate the rewards."""
        rewards = {"base_reward": np.where(self.allowed, 0.0, -np.inf), "transition_rewards": None}
        return replace(self, **rewards, rewards_known=False)  # type: ignore[arg-type]  # of several types

    def with_rewards(self, reward: Floats) -> Known:
        """Return a copy whose rewards are r[s, a]."""
        base = np.where(self.allowed, reward, -np.inf)
        return replace(self, base_reward=base, transition_rewards=None, rewards_known=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What a learner wants played: data, fixed before the block begins."""

    policy: NDArray[Any]  # actions [H, S], or probabilities of actions [H, S, A]
    episodes: int = 1  # how long it lasts
    values: Floats | None = (
        None  # [H + 1, S] that the plan counts on: targets of regressions, optimism
    )
    facts: Mapping[str, Any] = field(
        default_factory=dict
    )  # what was decided: equal facts are one phase of a run
    diagnostics: Mapping[str, Any] = field(
        default_factory=dict
    )  # on what grounds: statistics, thresholds, diagnostics
    carry: Any = (
        None  # whatever the learner wants to be handed back by ``learn``; nobody else reads it
    )
    starts: Mapping[int, Plan] = field(
        default_factory=dict
    )  # what to play instead from some first states

    def part(self, start: int | None) -> Plan:
        """Return what is played from a first state, or from one that is not known."""
        return self.starts.get(start, self)  # type: ignore[arg-type]  # None is not among them


@dataclass(frozen=True, eq=False)
class Flow:
    """What was counted in a block of episodes, in long form: parallel arrays, a row for each kind of transition.

    A tabular model is ``np.add.at(counts, (flow.state, flow.action, flow.next_state),
    flow.count)``. After the end of an episode its rows stay in a resting state; a truncated episode
    has no rows after its end.
    """

    step: Ints  # from 0
    state: Ints
    action: Ints
    next_state: Ints
    reward: Floats
    count: Ints
    episodes: int

    @classmethod
    def of_episode(cls, states: Any, actions: Any, rewards: Any) -> Flow:
        """Return the flow of one episode: states [n + 1], actions [n], rewards [n]."""
        visited, steps = np.asarray(states, dtype=np.int64), len(actions)
        chosen, earned = np.asarray(actions, dtype=np.int64), np.asarray(rewards, dtype=np.float64)
        return cls(
            np.arange(steps), visited[:-1], chosen, visited[1:], earned, np.ones(steps, np.int64), 1
        )

    def take(self, rows: Any) -> Flow:
        """Return some of the rows."""
        return Flow(*(column[rows] for column in self.columns), self.episodes)  # type: ignore[call-arg]  # six columns

    @property
    def columns(self) -> tuple[Any, ...]:
        """The parallel arrays, in order."""
        return self.step, self.state, self.action, self.next_state, self.reward, self.count

    @classmethod
    def joined(cls, flows: Sequence[Flow]) -> Flow:
        """Return several flows as one; equal rows are added up."""
        columns = [
            np.concatenate(parts) for parts in zip(*(flow.columns for flow in flows), strict=True)
        ]
        order, first = distinct_rows(
            *columns[:4], np.nan_to_num(columns[4], nan=np.inf)
        )  # missing rewards are equal
        total = np.add.reduceat(columns[5][order], first) if first.size else columns[5]
        step, state, action, next_state, reward = (column[order[first]] for column in columns[:5])
        return cls(
            step, state, action, next_state, reward, total, sum(flow.episodes for flow in flows)
        )

    def bonus(self, known: Known, outcomes: Outcomes) -> Floats:
        """Return the part of each reward that depends on the outcome; zeros where no outcome has one."""
        if not outcomes.bonus.any():
            return np.zeros(self.reward.size)
        return self.reward - known.base_reward[self.state, self.action]


@runtime_checkable
class Learner(Protocol):
    """Anything that learns to act: the learners, selectors and baselines of this package, and yours.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> class AlwaysFirst(orl.Learner):
    ...     def begin(self, known):
    ...         return {"visits": np.zeros((known.states, known.actions))}
    ...     def plan(self, known, state, draw):
    ...         return orl.Plan(policy=np.zeros((known.horizon, known.states), int), episodes=100)
    ...     def learn(self, known, state, plan, flow):
    ...         np.add.at(state["visits"], (flow.state, flow.action), flow.count)
    >>> result = orl.run(AlwaysFirst(), orl.make_problem("river-swim", states=3), episodes=1_000)
    >>> int(result.state["visits"].sum())
    12000

    A learner is an immutable set of parameters, best a frozen, keyword-only dataclass. Everything
    that changes is in the state: a dict or a NamedTuple of arrays and plain data that holds all
    that the next call needs and nothing that can be derived. A run copies, saves and restores it.
    """

    def begin(self, known: Known) -> State:
        """Return a fresh state."""

    def plan(self, known: Known, state: State, draw: np.random.Generator) -> Plan:
        """Return what to play next; writes nothing to the state.

        ``draw`` is a generator at the address (seed, first episode of the block): what it draws
        does not depend on earlier calls. It is not to be kept.
        """

    def learn(self, known: Known, state: State, plan: Plan, flow: Flow) -> None:
        """Write what was counted in the block to the state.

        ``flow.episodes`` may be smaller than ``plan.episodes`` (the run ended), and ``flow.action``
        need not be what the plan said (somebody else may have acted). Of a plan with ``starts``
        each different part is handed back with the episodes that were played under it.
        """


class Played(NamedTuple):
    """An episode as a :class:`Rule` is told of it: what the base could see, never the regret."""

    value: float  # the sum of rewards over the largest possible one, in [0, 1]
    planned: float  # the value that the base planned for, on the same scale; NaN where it has none, as in a replay
    start: int  # the first state
    flow: Flow
    replay: bool


class Replay(NamedTuple):
    """A rule's choice: play a policy drawn uniformly from those that a base has played, without learning from it.

    A rule that makes such choices has the class attribute ``replays = True``, so that past policies
    are kept.
    """

    base: int


@runtime_checkable
class Rule(Protocol):
    """A rule that chooses, before every episode, which of several bases plays it.

    >>> import occamrl as orl
    >>> class Alternate(orl.Rule):
    ...     def start(self, bases):
    ...         return {"bases": bases, "played": 0}
    ...     def choose(self, memory, draw):
    ...         return memory["played"] % memory["bases"]
    ...     def update(self, memory, base, played):
    ...         memory["played"] += 1
    >>> arena = orl.Arena(bases=[orl.UniformRandom(), orl.PSRL()], rule=Alternate())
    >>> orl.run(arena, orl.make_problem("river-swim", states=3), episodes=20).state["plays"]
    [10, 10]

    Rules are frozen, keyword-only dataclasses of parameters. Everything that changes is in the
    memory: a dict of plain data and NumPy arrays, which a run copies, saves and restores.
    """

    def start(self, bases: int) -> State:
        """Return the memory of a rule over that many bases, before any data."""

    def choose(self, memory: State, draw: np.random.Generator) -> int | Replay:
        """Return the number of the base that plays next, from 0, or a :class:`Replay`; writes nothing."""

    def update(self, memory: State, base: int, played: Played) -> None:
        """Take note, in ``memory``, of an episode that ``base`` played."""


@runtime_checkable
class Problem(Protocol):
    """A ground truth with a known optimum: frozen parameters that build a FiniteMDP."""

    @property
    def mdp(self) -> Any:
        """The problem as a FiniteMDP."""
