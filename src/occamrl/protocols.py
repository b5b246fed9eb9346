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
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from occamrl.errors import require_integer, require_memory

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Outcomes(NamedTuple):
    """What can happen at each (s, a); O outcomes in all."""

    start: Ints  # [S*A + 1] where the outcomes of (s, a) begin
    next_state: Ints  # [O]
    bonus: Floats  # [O] the part of the reward that depends on the outcome; reward = base_reward[s, a] + bonus


class NoNoise(NamedTuple):
    """Rewards are their means; other kinds of noise are in ``occamrl._core.rng``."""


class Truth(NamedTuple):
    """A problem as the simulator needs it: arrays only, with the exact optimum beside it."""

    outcomes: Outcomes
    probability: Floats  # [T, O], T = 1 (stationary) or H (one kernel per step)
    cumulative: Floats  # [T, O] running sums of probability inside each (s, a); the last entry of a row is 1
    base_reward: Floats  # [S*A]
    initial_cumulative: Floats  # [1, S] running sums of the initial distribution; 1 from the last possible state on
    optimal_values: Floats  # [H + 1, S] V*_h, row H is V*_{H+1} = 0
    noise: Any = NoNoise()  # how a reward is drawn around its mean


@dataclass(frozen=True, eq=False)  # compared by identity, so that solved families can be remembered by it
class Known:
    """What an agent may know of a problem: its size and its rewards, never its kernel.

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


@runtime_checkable
class Learner(Protocol):
    """An algorithm = frozen parameters (this object) + a state of arrays + compiled functions.

    The functions ``plan``, ``write_policy``, ``learn`` and ``planned_value`` of ``occamrl._core.loop`` are overloaded
    on the type of the state, in the learner's own file; ``evaluate`` too, where the policy is random.
    """

    def model(self, known: Known) -> Any:
        """Return the constants the compiled functions read: a NamedTuple of arrays and numbers, never written."""

    def begin(self, known: Known) -> Any:
        """Return a fresh state: a NamedTuple of arrays."""

    def reserve(self, state: Any, episodes: int) -> Any:
        """Return a state with room for ``episodes`` more episodes; the same object when there is nothing to grow."""


class Episode(NamedTuple):
    """An episode as an :class:`EpisodeLearner` sees it; H steps, fewer where an environment cut it short."""

    states: Ints  # [H + 1] where each step began, and where the last one led
    actions: Ints  # [H]
    rewards: Floats  # [H] as they came, in [0, 1]


@runtime_checkable
class EpisodeLearner(Protocol):
    """A learner in plain NumPy, which plans before an episode and learns from it afterwards.

    Subclasses are frozen, keyword-only dataclasses of parameters. Everything that changes is in the state: a dict or a
    NamedTuple of arrays and plain data, which ``plan`` and ``learn`` may write to. A run hands the state from call to
    call, copies it and saves it, so it must hold all that the next call needs.
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


@dataclass(frozen=True)
class Phase:
    """Who plays the next episodes, for how long, and why."""

    learner: Any  # a Learner or an EpisodeLearner
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


Agent = Learner | EpisodeLearner | Selector


@runtime_checkable
class Problem(Protocol):
    """A ground truth with a known optimum: frozen parameters that build a FiniteMDP."""

    @property
    def mdp(self) -> Any:
        """The problem as a FiniteMDP."""

    @classmethod
    def examples(cls) -> Sequence[Problem]:
        """Small instances, for the contract checks."""
