"""What a selector is read against: the learner that was told the answer, and the one that takes everything.

Both are learners with the selector's own parameters; with the same seed they meet the same random numbers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from occamrl.protocols import Floats, Known, Learner


class WithCounterparts(Protocol):
    """A selector that knows its counterparts."""

    def told(self, theta: Sequence[float] | Floats) -> Learner:
        """Return the learner that was told what the selector looks for."""

    def everything(self) -> Learner:
        """Return the learner that takes all that the selector could leave out."""


class _Stands(Learner):
    """A learner that stands in for a selector."""

    @property
    @abstractmethod
    def learner(self) -> Learner:
        """The learner that plays."""

    def model(self, known: Known) -> Any:
        """Return the constants of the compiled functions."""
        return self.learner.model(known)

    def begin(self, known: Known) -> Any:
        """Return a fresh state."""
        return self.learner.begin(known)

    def reserve(self, state: Any, episodes: int) -> Any:
        """Return a state with room for that many more episodes."""
        return self.learner.reserve(state, episodes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Oracle(_Stands):
    """The learner that was told what a selector has to find out: the support of theta*, its norm, or both.

    Examples
    --------
    ``Oracle(selector=ARLLinDim(features=features, norm_bound=b), theta=theta)`` knows which coordinates matter.
    """

    selector: WithCounterparts
    theta: Sequence[float] | Floats

    @cached_property
    def learner(self) -> Learner:
        """The learner that plays."""
        return self.selector.told(self.theta)


@dataclass(frozen=True, kw_only=True, eq=False)
class NonAdaptive(_Stands):
    """The learner that takes everything a selector could leave out: all coordinates, the norm bound as given."""

    selector: WithCounterparts

    @cached_property
    def learner(self) -> Learner:
        """The learner that plays."""
        return self.selector.everything()
