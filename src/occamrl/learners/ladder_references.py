"""Reference points for selection on a ladder: told the class, always the largest, always the smallest."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from occamrl.errors import ParameterError
from occamrl.learners.rewards import Rewards
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_nested import example_ladder
from occamrl.models.ladder import Ladder
from occamrl.protocols import Known, Learner


@dataclass(frozen=True, kw_only=True, eq=False)
class _OnRung(Learner):
    """UCRL-VTR on one class of a ladder; parameters as in :class:`UCRLVTR`."""

    ladder: Ladder
    delta: float = 0.05
    radius: str = "sharp"
    weights: str = "range"
    replan: float = 0.0
    scale: float = 1.0
    rewards: Rewards = "known"
    kernel: str = "stationary"

    def __post_init__(self) -> None:
        if not isinstance(self.ladder, Ladder):
            raise ParameterError("ladder", got=type(self.ladder).__name__, expected="a Ladder")
        _ = self._base  # checks the other parameters

    @property
    @abstractmethod
    def _rung(self) -> int:
        """The class that is played, from 1."""

    @property
    def _base(self) -> UCRLVTR:
        return UCRLVTR(
            family=self.ladder.rung(self._rung),
            delta=self.delta,
            radius=self.radius,
            weights=self.weights,
            replan=self.replan,
            scale=self.scale,
            rewards=self.rewards,
            kernel=self.kernel,
        )

    def model(self, known: Known) -> Any:
        """Return the constants of the compiled functions."""
        return self._base.model(known)

    def begin(self, known: Known) -> Any:
        """Return a fresh state."""
        return self._base.begin(known)

    def reserve(self, state: Any, episodes: int) -> Any:
        """Return a state whose table of rows has room for ``episodes`` more episodes."""
        return self._base.reserve(state, episodes)


@dataclass(frozen=True, kw_only=True, eq=False)
class LadderOracle(_OnRung):
    """UCRL-VTR on the class ``m`` it was told, from 1; with m* nothing is left to select."""

    m: int

    @property
    def _rung(self) -> int:
        return self.m

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Small instances on a problem, for the contract checks."""
        return [cls(ladder=example_ladder(mdp), m=2)]


@dataclass(frozen=True, kw_only=True, eq=False)
class LadderNonAdaptive(_OnRung):
    """UCRL-VTR on the largest class: safe, and as dear as that class."""

    @property
    def _rung(self) -> int:
        return self.ladder.classes

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Small instances on a problem, for the contract checks."""
        return [cls(ladder=example_ladder(mdp))]


@dataclass(frozen=True, kw_only=True, eq=False)
class LadderSmallest(_OnRung):
    """UCRL-VTR on the smallest class, right or wrong."""

    @property
    def _rung(self) -> int:
        return 1

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Small instances on a problem, for the contract checks."""
        return [cls(ladder=example_ladder(mdp))]
