"""Every protocol and shared type, on one screen.

Data flows one way: problem -> features or family -> statistics -> radius -> plan -> learner -> selector -> run.

The outcome layout. Everything that can happen at (s, a) is a list of *outcomes*, each a next state and a reward;
lists of all (s, a) are concatenated, the one of (s, a) occupying ``start[s*A + a] : start[s*A + a + 1]``. A dense
kernel lists every state, a sparse one its successors, a Gymnasium table its rows (M20). A kernel is then one
probability per outcome, a feature map one vector per outcome, and each formula is written once for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from occamrl.errors import ParameterError, ShapeError, require_integer, require_memory

Floats = NDArray[np.float64]
Kernel = Literal["stationary", "per_step"]  # one for all steps, or one for each
Weights = Literal["range", "none"]  # of regression rows
Radius = Literal["sharp", "unweighted", "paper", "ayoub"]
Acting = Literal["optimism", "sampling"]
Scope = Literal["smallest", "all"]
Evidence = Literal["likelihood", "value"]
Ints = NDArray[np.int64]


class Outcomes(NamedTuple):
    """What can happen at each (s, a); O outcomes in all."""

    start: Ints  # [S*A + 1] where the outcomes of (s, a) begin
    next_state: Ints  # [O]
    bonus: Floats  # [O] the part of the reward that depends on the outcome; reward = base_reward[s, a] + bonus


_NO_VALUES = np.zeros((0, 0))
_NO_VALUES.flags.writeable = False  # an array of the type that others have


class Noise(NamedTuple):
    """How a reward is drawn around its mean; of one type, so that the episode loop is compiled once for all kinds."""

    kind: int = 0  # MEANS, COINS or VALUES of ``occamrl._core.rng``
    values: Floats = _NO_VALUES  # [O, Q] by outcome; the mean of a row is the outcome's mean reward


class Truth(NamedTuple):
    """A problem as the simulator needs it: arrays only, with the exact optimum beside it."""

    outcomes: Outcomes
    probability: Floats  # [T, O], T = 1 (stationary) or H (one kernel per step)
    cumulative: Floats  # [T, O] running sums of probability inside each (s, a); the last entry of a row is 1
    base_reward: Floats  # [S*A]
    initial_cumulative: Floats  # [1, S] running sums of the initial distribution; 1 from the last possible state on
    optimal_values: Floats  # [H + 1, S] V*_h, row H is V*_{H+1} = 0
    threads: Any  # OneThread | Threads of ``occamrl._core.compile``: by whom policies are evaluated
    noise: Noise = Noise()


def require_outcomes(field: str, outcomes: Any, states: int, actions: int) -> None:
    """Refuse outcomes that compiled code would read beyond their ends."""
    sound = isinstance(outcomes, Outcomes) and all(isinstance(part, np.ndarray) and part.ndim == 1 for part in outcomes)
    sound = sound and [str(part.dtype) for part in outcomes] == ["int64", "int64", "float64"]
    if not sound or outcomes.start.size != states * actions + 1 or outcomes.bonus.size != outcomes.next_state.size:
        raise ShapeError(field, got="arrays that do not fit together", expected=f"outcomes of {states}x{actions} pairs")
    start, after = outcomes.start, outcomes.next_state
    if start[0] != 0 or start[-1] != after.size or (np.diff(start) < 0).any():
        raise ParameterError(f"{field}.start", got="other numbers", expected=f"increasing ones from 0 to {after.size}")
    if after.size and not 0 <= after.min() <= after.max() < states:
        raise ParameterError(f"{field}.next_state", got="other numbers", expected=f"states in [0, {states})")
    if not (np.abs(outcomes.bonus) <= 1.0 + 1e-6).all():
        raise ParameterError(f"{field}.bonus", got="other numbers", expected="rewards in [-1, 1]")


@dataclass(frozen=True, eq=False)  # compared by identity, so that solved families can be remembered by it
class Known:
    """What an agent may know of a problem: its size and its rewards, never its kernel.

    >>> import occamrl as orl
    >>> known = orl.make_problem("river-swim", states=3).mdp.known
    >>> known.states, known.actions, known.horizon
    (3, 2, 12)
    >>> sizes = orl.Known.of_sizes(states=3, actions=2, horizon=5)  # where rewards are not known

    ``transition_rewards`` is None when the reward is a function of (s, a) alone; otherwise it lists, by (s, a), the
    next states and bonuses that the reward table defines (for a table of outcomes: those of the table). Where
    ``rewards_known`` is False the arrays say nothing, and the agent has to estimate the rewards.
    """

    states: int
    actions: int
    horizon: int
    base_reward: Floats  # [S, A]
    transition_rewards: Outcomes | None = None
    rewards_known: bool = True

    def __post_init__(self) -> None:
        for name in ("states", "actions", "horizon"):
            require_integer(name, getattr(self, name), 1)
        base, sizes = self.base_reward, (self.states, self.actions)
        if not isinstance(base, np.ndarray) or base.dtype != np.float64 or base.shape != sizes:
            got = f"{getattr(base, 'dtype', type(base).__name__)}{list(np.shape(base))}"
            raise ShapeError("base_reward", got=got, expected=f"float64{list(sizes)}")
        if not (np.abs(base - 0.5) <= 0.5 + 1e-6).all():
            raise ParameterError("base_reward", got="other numbers", expected="rewards in [0, 1]")
        if self.transition_rewards is not None:
            require_outcomes("transition_rewards", self.transition_rewards, *sizes)
        if not isinstance(self.rewards_known, bool):
            raise ParameterError("rewards_known", got=repr(self.rewards_known), expected="True or False")

    @classmethod
    def of_sizes(cls, *, states: int, actions: int, horizon: int) -> Known:
        """Return what is known of a problem whose rewards are not."""
        for name, size in (("states", states), ("actions", actions), ("horizon", horizon)):
            require_integer(name, size, 1)
        require_memory("actions", actions, states, actions)
        return cls(states, actions, horizon, np.zeros((states, actions)), rewards_known=False)

    @cached_property
    def without_rewards(self) -> Known:
        """The same, seen by an agent that estimates the rewards."""
        if not self.rewards_known:
            return self
        return Known.of_sizes(states=self.states, actions=self.actions, horizon=self.horizon)


class Field(NamedTuple):
    """An array of a state: its size and the numbers that it may hold, so that a state from a file can be checked."""

    name: str
    shape: tuple[int, ...]
    low: Any  # integers, or arrays of them, where the field holds integers
    high: Any
    fill: Any = 0  # before any data
    entries: tuple[str, ...] = ()  # names of its entries, where each has a meaning of its own

    @property
    def whole(self) -> bool:
        """Whether the field holds integers."""
        return isinstance(self.low, int) or np.asarray(self.low).dtype.kind == "i"

    def make(self) -> Any:
        """Return the array before any data."""
        return np.full(self.shape, self.fill, dtype=np.int64 if self.whole else np.float64)

    def require_kind(self, array: Any, state: str = "state") -> None:
        """Refuse an array of another kind or size."""
        kind = np.dtype(np.int64 if self.whole else np.float64)
        sound = isinstance(array, np.ndarray) and array.dtype == kind and array.shape == self.shape
        if not sound or not array.flags.c_contiguous or not array.flags.aligned:
            got = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            raise ShapeError(f"{state}.{self.name}", got=got, expected=f"{kind}{list(self.shape)}")

    def require(self, array: Any, state: str = "state") -> None:
        """Refuse an array of another kind or size, or with a number that is out of range; NaN always is."""
        self.require_kind(array, state)
        self.require_values(array, state)

    def require_values(self, array: Any, state: str = "state") -> None:
        """Refuse a number that is out of range; NaN always is."""
        plain = isinstance(self.low, (int, float)) and isinstance(self.high, (int, float))
        if array.size and plain and self.low <= array.min() and array.max() <= self.high:
            return  # the usual case, in fewer passes
        bad = ~((array >= self.low) & (array <= self.high))
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            low, high = (np.broadcast_to(end, self.shape)[at] for end in (self.low, self.high))
            name = f"{state}.{self.name}" + (f".{self.entries[at[0]]}" if self.entries else "")
            raise ParameterError(name, got=array[at], expected=f"a number from {low} to {high}", index=at)


MOST_EPISODES = 2**53  # which numbers count one by one


def require_parts(owner: str, found: Any, parts: Mapping[str, Any]) -> None:
    """Refuse a memory, or a state that is a dict, of other parts, or with a number that is out of range.

    A part is a number in (low, high), both integers where it is one, one of a set, an array (a Field), or of a class.
    """
    if not isinstance(found, dict) or set(found) != set(parts):
        got = f"{sorted(found)!s:.200}" if isinstance(found, dict) else type(found).__name__
        raise ParameterError(owner, got=got, expected=sorted(parts))
    for name, part in parts.items():
        value = found[name]
        match part:
            case Field():
                part.require(value, owner)
                continue
            case (low, high):
                sound, expected = type(value) is type(low) and low <= value <= high, f"a number from {low} to {high}"
            case set():
                sound, expected = any(type(value) is type(each) and value == each for each in part), f"one of {part}"
            case _:
                sound, expected = isinstance(value, part), getattr(part, "__name__", str(part))
        if not sound:
            raise ParameterError(f"{owner}.{name}", got=f"{value!s:.80}", expected=expected)


@runtime_checkable
class Learner(Protocol):
    """An algorithm = frozen parameters (this object) + a state of arrays + compiled functions.

    The functions ``plan``, ``write_policy``, ``learn`` and ``planned_value`` of ``occamrl._core.loop`` are overloaded
    on the type of the state, in the learner's own file; ``evaluate`` too, where the policy is random.
    """

    def model(self, known: Known) -> Any:
        """Return the constants the compiled functions read: a NamedTuple of arrays and numbers, never written."""

    def fields(self, known: Known, state: Any = None) -> Sequence[Field]:
        """Return what the arrays of a state hold; of one as large as ``state``, where states grow.

        No state that comes from elsewhere reaches compiled code unless it agrees. Where its fields can contradict each
        other, a method ``resume(model, fresh, state)`` refuses that, and computes anew what follows from others.
        """

    def begin(self, known: Known) -> Any:
        """Return a fresh state: a NamedTuple of arrays."""

    def reserve(self, state: Any, episodes: int) -> Any:
        """Return a state with room for ``episodes`` more episodes; the same object when there is nothing to grow."""
        return state


class Episode(NamedTuple):
    """An episode as an :class:`EpisodeLearner` sees it; H steps, fewer where an environment cut it short."""

    states: Ints  # [H + 1] where each step began, and where the last one led
    actions: Ints  # [H]
    rewards: Floats  # [H] as they came, in [0, 1]


@runtime_checkable
class EpisodeLearner(Protocol):
    """A learner in plain NumPy, which plans before an episode and learns from it afterwards.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> class Constant(orl.EpisodeLearner):
    ...     def begin(self, known):
    ...         return {"episodes": np.zeros(1)}
    ...     def plan(self, known, state, start, draw):
    ...         return np.ones((known.horizon, known.states), dtype=int)  # action 1 everywhere
    ...     def learn(self, known, state, episode):
    ...         state["episodes"] += 1
    >>> result = orl.run(Constant(), orl.make_problem("river-swim", states=3), episodes=20)

    Subclasses are frozen, keyword-only dataclasses of parameters. Everything that changes is in the state: a dict or a
    NamedTuple of arrays and plain data, which ``plan`` and ``learn`` may write to. A run hands the state from call to
    call, copies it and saves it, so it must hold all that the next call needs. A method ``resume(known, state)``, if
    there is one, refuses a state from a file that cannot be one of this learner.
    """

    def begin(self, known: Known) -> Any:
        """Return a fresh state."""

    def plan(self, known: Known, state: Any, start: int, draw: np.random.Generator) -> Any:
        """Return the policy of an episode that begins in ``start``, or the pair (policy, planned value of ``start``).

        A policy is an array of actions [H, S] or of action probabilities [H, S, A]. ``draw`` is a generator at the
        address (seed, episode): what it draws does not depend on earlier calls. It is not to be kept.
        """

    def learn(self, known: Known, state: Any, episode: Episode) -> Any:
        """Learn from the episode; return the new state, or None when ``state`` was written to."""


class Replay(NamedTuple):
    """A rule's choice: play a policy drawn uniformly from those that a base has played, without learning from it.

    A rule that makes such choices has the class attribute ``replays = True``, so that past policies are kept.
    """

    base: int


class Played(NamedTuple):
    """An episode as a :class:`Rule` is told of it: what the base could see, never the regret."""

    value: float  # the sum of rewards over the largest possible one, in [0, 1]
    planned: float  # the value that the base planned for, on the same scale; NaN where it has none, as in a replay
    start: int  # the first state
    episode: Episode
    replay: bool


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

    Rules are frozen, keyword-only dataclasses of parameters. Everything that changes is in the memory: a dict of plain
    data and NumPy arrays, which a run copies, saves and restores. A method ``resume(bases, memory)``, if there is one,
    refuses a memory from a file that cannot be one of this rule.
    """

    def start(self, bases: int) -> dict[str, Any]:
        """Return the memory of a rule over that many bases, before any data."""

    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int | Replay:
        """Return the number of the base that plays next, from 0, or a :class:`Replay`.

        Writes nothing: the choice follows from ``memory`` and ``draw``, a generator at the address (seed, episode).
        """

    def update(self, memory: dict[str, Any], base: int, played: Played) -> None:
        """Take note, in ``memory``, of an episode that ``base`` played."""


@runtime_checkable
class RuledBases(Protocol):
    """Several bases and the rule that says which of them plays the next episode; the run keeps a player per base."""

    bases: Sequence[Any]  # learners, compiled or in plain NumPy, and others of this kind
    rule: Rule
    share: bool  # whether every base learns from every episode

    def begin(self, known: Known) -> dict[str, Any]:
        """Return a fresh state: the rule's memory, a state per base, past policies, and how often each base played."""

    def largest(self, known: Known) -> float:
        """Return the largest possible sum of rewards of an episode."""


ESTIMATION = "estimation"  # the label of a phase in which all coordinates play, whatever was decided


@dataclass(frozen=True)
class Phase:
    """Who plays the next episodes, for how long, and why."""

    learner: Any  # a Learner, an EpisodeLearner or RuledBases
    state: Any  # the learner's arrays; when the phase is over, go on from PhaseOutcome.state
    episodes: int | None = None  # None: as long as the run lasts
    epoch: int = 0
    label: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)  # what was decided, and on what grounds


@dataclass(frozen=True)
class PhaseOutcome:
    """What a selector is told when a phase ends: what the learner could see, never the regret."""

    episodes: int
    plans: int
    total_return: float  # realised
    state: Any  # the learner's state as the phase left it: not always Phase.state, which may have been given more room


@runtime_checkable
class Selector(Protocol):
    """Hands out phases and is told how each went. Its memory is JSON-like data and NamedTuples of arrays.

    A phase may last one episode (a selector that chooses a base anew each time and is told its return) or millions.
    """

    def start(self, known: Known) -> dict[str, Any]:
        """Return the selector's memory before any data."""

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Decide who plays next. The decision and what it writes to ``memory`` follow from ``memory`` alone.

        That is how a run is resumed: the memory from before a decision is kept, and the decision is made once more.
        """

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Take note of a phase that has ended."""


Agent = Learner | EpisodeLearner | RuledBases | Selector


@runtime_checkable
class Problem(Protocol):
    """A ground truth with a known optimum: frozen parameters that build a FiniteMDP."""

    @property
    def mdp(self) -> Any:
        """The problem as a FiniteMDP."""

    @classmethod
    def examples(cls) -> Sequence[Problem]:
        """Small instances, for the contract checks."""
