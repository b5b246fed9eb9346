"""Every contract on one page: who knows what, who plans, who weighs, who acts.

**Learners.** The simulator knows no learner, and a learner no loop. A driver asks for a plan, plays
it for as many episodes as the plan says, and hands back what was counted::

    state = learner.begin(known)
    while episodes are left:
        plan = learner.plan(known, state, draw)
        flow = ...                                  # plan.episodes episodes under plan.policy
        learner.learn(known, state, plan, flow)     # once for each part of a plan that has parts

**Ladders and evidence.** A ladder has named classes of models, from simple to rich, and brings the
evidence that weighs them. Whoever has data adds them; whoever wants to know asks::

    evidence = ladder.evidence(known, delta)
    state = evidence.begin()
    evidence.add(state, data)                       # a Flow, or a Transition of a continuous system
    judgement = evidence.judge(state)               # what is ruled out, at all times at level delta
    worlds = evidence.worlds(state)                 # what the data leave possible

Selectors, logs, answers and preflight speak to these and to nothing else, so that a new kind of
model is one file with a ladder and its evidence.

**Controllers** act step by step in a continuous system; they are driven as learners are.

**Flow.** Under a fixed policy episodes are independent chains. Given that N visitors are in s at
step h, their outcomes are Multinomial(N, P(.|s, pi_h(s))), independently over s. The counts are
therefore all that a learner can use of a block, and a block costs the same for ten episodes and for
a billion.

**Outcome layout.** Everything that can happen at (s, a) is a list of *outcomes*, each a next state
and a reward. The lists of all pairs s*A + a are concatenated; that of a pair occupies
``start[pair] : start[pair + 1]``. A dense kernel lists every state, a sparse one its successors, a
Gymnasium table its rows. A kernel is then one probability per outcome, a feature map one vector per
outcome, and each formula is written once for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from occamrl.addresses import Address
from occamrl.arrays import Bools, distinct_rows
from occamrl.arrays import Floats as Floats
from occamrl.arrays import Ints as Ints
from occamrl.errors import require_integer, require_room
from occamrl.naming import Names, number_of, numbers_of

# What changes while an algorithm runs: a dict or NamedTuple of arrays, numbers and others of its
# kind. Those of this package are TypedDicts; a user's may be any.
State = Any

SAME_REWARD = 1e-3  # by how much rewards in [0, 1] may differ that count as one
MOST_EPISODES = 10**15  # beyond which sums of likelihoods lose digits

# What is known, and what was counted --------------------------------------------------------------


class RewardMap(NamedTuple):
    """The affine map (r - low) / (high - low) of rewards in a unit of their own onto [0, 1].

    >>> from occamrl.protocols import RewardMap
    >>> euro = RewardMap(low=-50.0, high=150.0)
    >>> euro.to_unit(50.0), 0.25 * euro.scale, euro.total(6.0, steps=10)
    (0.5, 50.0, 700.0)
    """

    low: float = 0.0
    high: float = 1.0

    @property
    def scale(self) -> float:
        """What a difference of 1 in the learner's unit is in the user's."""
        return self.high - self.low

    def to_unit(self, reward: Any) -> Any:
        """Return a reward, or an array of them, as the learner sees it."""
        return (reward - self.low) / (self.high - self.low)

    def total(self, mapped: Any, steps: Any) -> Any:
        """Return the sum of ``steps`` rewards in the user's unit from that in the learner's."""
        return mapped * self.scale + steps * self.low


UNIT = RewardMap()


class Outcomes(NamedTuple):
    """What can happen at each (s, a); O outcomes in all."""

    start: Ints  # [S*A + 1] where the outcomes of a pair s*A + a begin
    next_state: Ints  # [O]
    bonus: Floats  # [O] the part of the reward that depends on the outcome, above base_reward[s, a]

    @property
    def pair(self) -> Ints:
        """The pair s*A + a of each outcome [O]."""
        return np.repeat(np.arange(self.start.size - 1), np.diff(self.start))

    def index_of(
        self, pair: Ints, next_state: Ints, bonus: Floats, states: int, within: float = SAME_REWARD
    ) -> Ints:
        """Return the index of each outcome [n], -1 where it is not listed.

        Of several outcomes with one next state it is the one with the nearest bonus, which counts
        only ``within`` that distance: another reward is another outcome.
        """
        keys = self.pair * states + self.next_state
        wanted = pair * states + next_state
        order = np.lexsort((self.bonus, keys))
        first = np.searchsorted(keys[order], wanted, side="left")
        last = np.searchsorted(keys[order], wanted, side="right")
        index = np.full(wanted.size, -1)
        # the least number above it: what lies at the distance itself counts
        gap = np.full(wanted.size, np.nextafter(within, np.inf))
        for offset in range(int((last - first).max(initial=0))):
            candidate = order[np.minimum(first + offset, order.size - 1)]
            distance = np.abs(self.bonus[candidate] - bonus)
            nearer = (first + offset < last) & (distance < gap)
            index[nearer] = candidate[nearer]
            gap[nearer] = distance[nearer]
        return index


@dataclass(frozen=True, eq=False)  # compared by identity: what is solved for it is remembered
class Known:
    """What an agent may know of a problem: sizes, rewards, where episodes start; never its kernel.

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
    random_rewards: bool = False  # those that come scatter, and these are their means

    @property
    def reward_tolerance(self) -> float:
        """How far a reward may be from a listed one: at any distance, if rewards scatter."""
        return math.inf if self.random_rewards else SAME_REWARD

    @property
    def allowed(self) -> Bools:
        """Which actions may be chosen [S, A]; the others have the reward minus infinity."""
        return np.isfinite(self.base_reward)

    @cached_property
    def absorbing(self) -> Bools:
        """In which states [S] of a model nothing more happens, and nothing is earned."""
        if self.names is None or not self.names.absorbing:
            return np.zeros(self.states, bool)
        return np.array(self.names.absorbing, bool)

    def state_name(self, s: int) -> Any:
        """Return what the user calls a state."""
        return s if self.names is None else self.names.states[s]

    def action_name(self, a: int) -> Any:
        """Return what the user calls an action."""
        return a if self.names is None else self.names.actions[a]

    def state_number(self, name: object) -> int:
        """Return the number of a state that the user names."""
        return number_of("state", name, self._state_numbers, self.states)

    def action_number(self, name: object) -> int:
        """Return the number of an action that the user names."""
        return number_of("action", name, self._action_numbers, self.actions)

    @cached_property
    def _state_numbers(self) -> dict[Hashable, int] | None:
        return None if self.names is None else numbers_of(self.names.states)

    @cached_property
    def _action_numbers(self) -> dict[Hashable, int] | None:
        return None if self.names is None else numbers_of(self.names.actions)

    @property
    def may_start(self) -> Bools:
        """In which states an episode may begin, as far as is known [S]."""
        if self.initial is None or self.continuing:
            return np.ones(self.states, bool)
        return self.initial > 0.0

    def pair_in(self, outcomes: Outcomes, step: Any, state: Any, action: Any) -> Any:
        """Return the pair of a step, from 0, in outcomes of one layer or of one for each step.

        Outcomes of layers list the pairs s*A + a of the first step, then those of the second.
        """
        pairs = self.states * self.actions
        layers = (outcomes.start.size - 1) // pairs
        return (step % layers) * pairs + state * self.actions + action

    def origin(self, outcomes: Outcomes) -> Ints:
        """Return the state in which each outcome happens [O]."""
        return np.asarray(outcomes.pair % (self.states * self.actions) // self.actions)

    def amount(self, values: Any, steps: Any = None) -> Any:
        """Return the value of the last ``steps`` steps, all by default, in the user's unit."""
        count = self.horizon if steps is None else steps
        if self.discount != 1.0:
            count = (1.0 - self.discount**count) / (1.0 - self.discount)
        return self.unit.scale * values + self.unit.low * count

    @classmethod
    def of_sizes(cls, *, states: int, actions: int, horizon: int) -> Known:
        """Return what is known of a problem whose rewards are not."""
        for name, size in (("states", states), ("actions", actions), ("horizon", horizon)):
            require_integer(name, size, 1)
        require_room("states", states, actions)
        return cls(states, actions, horizon, np.zeros((states, actions)), rewards_known=False)

    @cached_property
    def without_rewards(self) -> Known:
        """The same, seen by an agent that has to estimate the rewards."""
        base = np.where(self.allowed, 0.0, -np.inf)
        return replace(self, base_reward=base, transition_rewards=None, rewards_known=False)

    def with_rewards(self, reward: Floats) -> Known:
        """Return a copy whose rewards are r[s, a]."""
        base = np.where(self.allowed, reward, -np.inf)
        return replace(self, base_reward=base, transition_rewards=None, rewards_known=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What a learner wants to have played, fixed before the block begins.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> plan = orl.Plan(policy=np.zeros((5, 3), dtype=int), episodes=10, facts={"playing": "left"})
    >>> plan.episodes
    10
    """

    policy: NDArray[Any]  # actions [H, S], or probabilities of actions [H, S, A]
    episodes: int = 1  # how long it lasts
    values: Floats | None = None  # [H + 1, S] that the plan counts on: targets, optimism
    facts: Mapping[str, Any] = field(default_factory=dict)  # decisions: equal facts are one phase
    diagnostics: Mapping[str, Any] = field(default_factory=dict)  # statistics behind the decisions
    carry: Any = None  # handed back by ``learn``; nobody but the learner reads it
    starts: Mapping[int, Plan] = field(default_factory=dict)  # what to play from some first states

    def part(self, start: int | None) -> Plan:
        """Return what is played from a first state, or if the first state is not known."""
        if start is None:
            return self
        return self.starts.get(start, self)


class Note(NamedTuple):
    """What was done to data before they were weighed.

    ``guarantee`` says what that does to the level of the tests. "kept": nothing. "conditional": it
    holds under a condition that the data cannot show. "void": it is lost.
    """

    kind: str  # in a word, such as "unlisted"; answers/assumed.py makes a sentence of it
    affected: int  # how many rows, or episodes
    of: int  # of how many; 0 where nobody counts them
    unit: str = "row"  # what is counted: "row", "episode", "piece" of one, "step"
    example: str = ""  # the first of them, in words
    guarantee: Literal["kept", "conditional", "void"] = "kept"


@dataclass(frozen=True, eq=False)
class Flow:
    """What was counted in a block of episodes, as parallel arrays: a row per kind of transition.

    >>> import occamrl as orl
    >>> flow = orl.Flow.of_episode(states=[0, 1, 1], actions=[1, 0], rewards=[0.0, 1.0])
    >>> flow.next_state.tolist(), flow.count.tolist()
    ([1, 1], [1, 1])

    A tabular model is
    ``np.add.at(counts, (flow.state, flow.action, flow.next_state), flow.count)``.
    After the end of an episode its rows stay in an absorbing state; a truncated episode has no rows
    after its end.
    """

    step: Ints  # from 0
    state: Ints
    action: Ints
    next_state: Ints
    reward: Floats
    count: Ints
    episodes: int
    values: Floats | None = (
        None  # [H + 1, S] that were fixed before the block: targets of value rows
    )

    @classmethod
    def of_episode(cls, states: Any, actions: Any, rewards: Any) -> Flow:
        """Return the flow of one episode: states [n + 1], actions [n], rewards [n]."""
        visited = np.asarray(states, dtype=np.int64)
        steps = len(actions)
        return cls(
            step=np.arange(steps),
            state=visited[:-1],
            action=np.asarray(actions, dtype=np.int64),
            next_state=visited[1:],
            reward=np.asarray(rewards, dtype=np.float64),
            count=np.ones(steps, np.int64),
            episodes=1,
        )

    @property
    def columns(self) -> tuple[Ints, Ints, Ints, Ints, Floats, Ints]:
        """The parallel arrays, in order."""
        return self.step, self.state, self.action, self.next_state, self.reward, self.count

    def take(self, rows: Any) -> Flow:
        """Return some of the rows."""
        step, state, action, next_state, reward, count = self.columns
        return replace(
            self,
            step=step[rows],
            state=state[rows],
            action=action[rows],
            next_state=next_state[rows],
            reward=reward[rows],
            count=count[rows],
        )

    @classmethod
    def joined(cls, flows: Sequence[Flow]) -> Flow:
        """Return several flows as one; equal rows are added up."""
        step = np.concatenate([flow.step for flow in flows])
        state = np.concatenate([flow.state for flow in flows])
        action = np.concatenate([flow.action for flow in flows])
        next_state = np.concatenate([flow.next_state for flow in flows])
        reward = np.concatenate([flow.reward for flow in flows])
        count = np.concatenate([flow.count for flow in flows])
        # missing rewards are equal to each other
        comparable = np.nan_to_num(reward, nan=np.inf)
        order, first = distinct_rows(step, state, action, next_state, comparable)
        kept = order[first]
        total = count
        if first.size:
            total = np.add.reduceat(count[order], first)
        episodes = sum(flow.episodes for flow in flows)
        return cls(
            step[kept], state[kept], action[kept], next_state[kept], reward[kept], total, episodes
        )

    def bonus(self, known: Known, outcomes: Outcomes) -> Floats:
        """Return the part of each reward that depends on the outcome; zeros where none has one."""
        if not outcomes.bonus.any():
            return np.zeros(self.reward.size)
        return self.reward - known.base_reward[self.state, self.action]


# Learners -----------------------------------------------------------------------------------------


@runtime_checkable
class Learner(Protocol):
    """Anything that learns to act: learners, selectors and baselines of this package, and yours.

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
    planned: float  # the value that the base planned for; NaN where it has none, as in a replay
    start: int  # the first state
    flow: Flow
    replay: bool


class Replay(NamedTuple):
    """A rule's choice: play again a policy that a base has played, without learning from it.

    It is drawn uniformly from those. A rule that makes such choices has the class attribute
    ``replays = True``, so that past policies are kept.
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
        """Return the number of the base that plays next, from 0, or a :class:`Replay`."""

    def update(self, memory: State, base: int, played: Played) -> None:
        """Record in ``memory`` an episode that ``base`` played."""


@runtime_checkable
class Problem(Protocol):
    """A ground truth with a known optimum: frozen parameters that build a FiniteMDP."""

    @property
    def mdp(self) -> Any:
        """The problem as a FiniteMDP."""


# Ladders, evidence and what the data leave possible -----------------------------------------------


class Interval(NamedTuple):
    """A best guess, and a range that holds the truth with probability 1 - delta, at all times."""

    value: float
    low: float
    high: float


class ParameterRange(NamedTuple):
    """A real parameter: a best guess, and the pieces of its range, which cover all modes."""

    value: float
    pieces: tuple[tuple[float, float], ...]  # disjoint, rising; one where the modes are not apart

    @property
    def low(self) -> float:
        """The lower end of the lowest piece."""
        return self.pieces[0][0]

    @property
    def high(self) -> float:
        """The upper end of the highest piece."""
        return self.pieces[-1][1]

    @property
    def interval(self) -> Interval:
        """The best guess and the hull of the pieces."""
        return Interval(self.value, self.low, self.high)


class Search(NamedTuple):
    """Where the best parameters of classes were looked for: a search is not a proof."""

    points: int  # parameters at which the likelihood was evaluated
    generations: int
    local_searches: int


class Judgement(NamedTuple):
    """What the evidence says of the M classes of a ladder, now."""

    against: Floats  # [M] Z minus the largest log-likelihood in each class: nats against it
    alive: tuple[int, ...]  # [M] how many members are not ruled out; of real parameters 1 or 0
    rejected_after: tuple[int | None, ...]  # [M] episodes, or steps, since which it is ruled out
    log_mixture: float  # Z: how well the mixture of everything explains the data
    blends: tuple[int, ...] = ()  # classes, from 1, mixtures of whose members still fit
    novel: int = 0  # outcomes that are impossible under every member
    outside: bool = False  # whether the truth is no member although members are alive
    search: Search | None = None  # behind what is ruled out, where a maximum had to be searched for

    @property
    def misspecified(self) -> bool:
        """Whether no class explains the data."""
        return self.outside or not any(self.alive)

    @property
    def chosen(self) -> int:
        """The smallest class that is alive, from 1; where none is, the largest."""
        for m, members in enumerate(self.alive, start=1):
            if members:
                return m
        return len(self.alive)


class OffBy(NamedTuple):
    """By how much every model is off, in total variation of what follows a state and an action."""

    more_than: float  # proved at the level delta: somewhere, at some step; 0: nothing is proved
    estimate: float  # of the best model, averaged over what was visited; not a bound
    where: tuple[tuple[Hashable, Hashable], ...]  # states and actions that show it most


class OutcomeMisfit(NamedTuple):
    """An outcome of a finite model that came more often, or less, than its best fit predicts."""

    state: Hashable
    action: Hashable
    next_state: Hashable
    seen: int
    of: int  # how often the action was taken in the state
    predicted: float  # how often the outcome was expected
    nats: float  # what all outcomes of the pair add to the evidence; infinite: it is not listed
    step: int | None = None  # from 1, at which it is seen; None: at any


class ErrorMisfit(NamedTuple):
    """Errors of a simulator that depend on a feature of state and action, or their width."""

    coordinates: tuple[str, ...]  # of the state, which err together; of the view, if noise misfits
    feature: str  # on which the errors depend most; "" for none
    at_high: tuple[float, ...]  # mean errors where the feature is high; everywhere, without one
    at_low: tuple[float, ...]
    deviations: float  # the size of the effect in standard deviations of the noise
    unbounded: bool = False  # high and low are a typical spread from the middle, not ends of a box
    wider: float | None = None  # how many times as wide as it says the noise is, if that misfits


Misfit = OutcomeMisfit | ErrorMisfit


class Transition(NamedTuple):
    """One real step of a continuous system."""

    state: Floats  # [n]
    action: Floats  # [m]
    reward: float | None  # None: that of the system
    next_state: Floats  # [n]
    ended: bool  # whether the episode is over
    address: Address  # of random numbers that weighing it takes
    step: int = 0  # of its episode, from 0


class DoubtfulPair(NamedTuple):
    """A pair that a policy does not take, and that may be better in some world."""

    state: Hashable
    action: Hashable
    share: float  # of what all such pairs may gain


# A model that the data leave possible: a finite kernel, or a simulator. Whoever made it knows what
# it is; everybody else hands it back.
World = Any
# What to do: actions [H, S] or probabilities [H, S, A] in a finite world; in others a function
# ``policy(states [N, n], step) -> actions [N, m]``.
PolicyRule = Any
Worth = Callable[[World], Floats]  # what episodes earn in a world, see Worlds.returns


class Worlds(Protocol):
    """What the data leave possible: with probability 1 - delta the truth is one, at all times."""

    exact: bool  # whether returns are exact means, and so quick to ask for

    def sized(self, runs: int, maximum: int | None) -> Worlds:
        """Return the same with so many simulated episodes, in at most ``maximum`` worlds.

        Those are the most plausible; the range is then no bound. Exact worlds stay as they are.
        """

    def rule(self, policy: object) -> PolicyRule:
        """Return a policy in any form that a user may give; None: the one that is recommended."""

    def best(self, m: int) -> World:
        """Return the most plausible world of class m, from 0, alive or not."""

    def some(self, count: int) -> list[World]:
        """Return some of the worlds, spread by plausibility, the most plausible first."""

    def policy(self, world: World) -> PolicyRule:
        """Return the best policy of a world: optimal in it, or a planner in it."""

    def recommend(self, today: PolicyRule | None) -> PolicyRule:
        """Return the policy with the largest guaranteed worth among some, and today's if given."""

    def returns(self, policy: PolicyRule, world: World) -> Floats:
        """Return what episodes earn, in the user's unit [n]: one exact mean, or n simulated ones.

        Simulated episodes of two policies in one world have common random numbers, so that returns
        may be subtracted one from the other.
        """

    def extremes(self, worth: Worth, *, differences: bool = False) -> tuple[float, float]:
        """Return the least and the largest mean over all worlds, errors of simulation included.

        ``differences`` says that it is what one policy earns more than another.
        """

    def doubtful(self, policy: PolicyRule) -> list[DoubtfulPair]:
        """Return pairs that a policy does not take and that may be better; none without pairs."""


class Evidence(Protocol):
    """What weighs the classes of a ladder; everything that changes is in its state.

    A state is a TypedDict of arrays and plain data, so that runs copy, save and restore it.
    """

    kind: str  # by what classes are judged: "likelihood", "value" or "exchangeability"
    delta: (
        float  # the smallest class with the truth is ever ruled out with at most this probability
    )

    def begin(self) -> State:
        """Return the state before any data."""

    def add(self, state: State, data: Any, /) -> None:
        """Weigh the classes on new data, by predictions that were fixed before them.

        Data are a Flow of a finite problem, or a Transition of a continuous system.
        """

    def judge(self, state: State) -> Judgement:
        """Return what is ruled out now; writes nothing.

        A class may be alive again when later data speak for it: what is promised is that the
        smallest one with the truth is alive at all times at once with probability 1 - delta.
        """

    def parameters(self, state: State, m: int) -> dict[str, ParameterRange]:
        """Return the real parameters of class m, from 0, if it is right; empty if it has none."""

    def describe(self, state: State, m: int) -> str:
        """Return the best member of class m, from 0, in words; empty if members have no names."""

    def misfits(self, state: State, m: int) -> list[Misfit]:
        """Return where the best member of class m, from 0, misfits, the clearest first."""

    def worlds(self, state: State) -> Worlds:
        """Return what the data leave possible.

        Raises :class:`occamrl.errors.NotAvailable`, with the reason, where that cannot be told.
        """


@runtime_checkable
class Selector(Protocol):
    """A learner or controller over a ladder; its state keeps that of its evidence as "evidence"."""

    @property
    def ladder(self) -> Ladder:
        """The classes that it selects among."""

    @property
    def delta(self) -> float:
        """The level of its tests."""

    def evidence(self, known: Any) -> Evidence:
        """Return what weighs the classes on a problem (Known) or a System."""


@runtime_checkable
class Ladder(Protocol):
    """Named classes of models, from simple to rich, and the evidence that weighs them."""

    @property
    def names(self) -> tuple[str, ...]:
        """What the classes are called [M]."""

    @property
    def sizes(self) -> Sequence[int | None]:
        """How many members each class has, those of smaller ones included [M]; or parameters."""

    @property
    def kind(self) -> str:
        """What the members are, in a word: "list", "real parameters", "linear", "simulators"."""

    @property
    def nested(self) -> bool:
        """Whether every class contains the one before it."""

    @property
    def by_step(self) -> bool:
        """Whether the chances of its models depend on the step of an episode."""

    @property
    def box(self) -> Mapping[str, tuple[float, float]]:
        """The bounds of real parameters, by name; empty without any."""

    @property
    def draws(self) -> int:
        """From how many draws a row of a kernel was estimated; a step of simulators is ranked."""

    def evidence(self, known: Any, delta: float) -> Evidence:
        """Return what weighs the classes of this ladder on a problem (Known) or a System."""


# Controllers of continuous systems ----------------------------------------------------------------


class ActionSpace(Protocol):
    """Where actions of a continuous system lie."""

    low: Floats  # [m]
    high: Floats  # [m]
    dimension: int  # m

    def draw(self, rows: int, rng: np.random.Generator) -> Floats:
        """Return actions drawn uniformly [rows, m]."""


# step(states [N, n], actions [N, m], rng) -> next_states [N, n]: row i is a draw of what follows
# row i, independent of the other rows
Simulator = Callable[[Floats, Floats, np.random.Generator], Floats]
# reward(states [N, n], actions [N, m], next_states [N, n]) -> [N]
RewardFunction = Callable[[Floats, Floats, Floats], Floats]


@dataclass(frozen=True, eq=False)
class System:
    """What a controller may know of a continuous system: its task, never its dynamics."""

    dimension: int  # n numbers of a state
    horizon: int  # steps of an episode
    actions: ActionSpace
    reward: RewardFunction
    first_state: Callable[[np.random.Generator], Floats]  # -> [n]
    coordinates: tuple[str, ...]  # names of the numbers of a state [n]
    unit: RewardMap = UNIT
    unit_name: str = ""  # of the reward
    returns: tuple[float, float] | None = None  # between which an episode earns, if that is known


@runtime_checkable
class Controller(Protocol):
    """Anything that acts step by step in a continuous system; frozen parameters like a Learner."""

    def begin(self, system: System) -> State:
        """Return a fresh state."""

    def act(
        self, system: System, state: State, observation: Floats, step: int, address: Address
    ) -> Floats:
        """Return the action [m] in a state [n] at a step of the episode, from 0.

        May write to the state what the next action of the episode begins with; nothing that
        learning depends on. Random numbers are those of ``address.generator(purpose)``.
        """

    def learn(self, system: System, state: State, transition: Transition) -> None:
        """Take note, in the state, of a real step, whoever chose its action."""


@runtime_checkable
class Planner(Protocol):
    """What plans in a simulator: CEM, MPPI, or an object of yours with this one method."""

    def plan(
        self,
        simulate: Simulator,
        reward: RewardFunction,
        state: Floats,
        horizon_left: int,
        actions: Any,
        rng: np.random.Generator,
        warm: Any,
        /,
    ) -> tuple[Floats, Any]:
        """Return an action [m] in a state [n], and what to begin with at the next step.

        ``warm`` is what the last call of this episode returned, None at its beginning: arrays,
        plain data and NamedTuples, so that a file can hold it. ``actions`` is a
        :class:`~occamrl.Box` or a list ``.values``.
        """


@runtime_checkable
class Logged(Protocol):
    """A log, as agents learn from it: what :func:`occamrl.read_log` returns."""

    @property
    def notes(self) -> tuple[Note, ...]:
        """What was done to its rows so far."""

    def flows(self, known: Known, outcomes: Outcomes | None = None) -> Iterator[Flow]:
        """Return its episodes as a learner takes them."""

    def transitions(self, system: System) -> Iterator[Transition]:
        """Return its steps as a controller takes them."""
