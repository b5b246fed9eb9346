"""The contract of every family of kernels: what selection and optimism ask of it, whatever it is made of.

A *member* is a name for one kernel of the family: a number for a finite list, a vector theta for a linear class. Every
member has parameters theta over the family's features, so the loss (M1) and the distance (M2) are written once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from occamrl.contracts import Floats, Known
from occamrl.errors import FamilyError
from occamrl.families.features import FeatureMap
from occamrl.families.regression import Rows, design

TOLERANCE = 1e-8  # how far the entries of a kernel may be from those of a member that it equals


class Family(ABC):
    """A set of kernels over one feature map.

    Checked by :func:`occamrl.check_family`.
    """

    features: FeatureMap

    @abstractmethod
    def parameters_of(self, member: Any) -> Floats:
        """Return theta of a member [d]."""

    @abstractmethod
    def members(self, draw: np.random.Generator, count: int) -> Sequence[Any]:
        """Return some members, drawn at random; they show that the family holds kernels at all."""

    @abstractmethod
    def find(self, kernel: Floats) -> Any | None:
        """Return the member that equals a kernel [S, A, S] of finite numbers, up to rounding; None if none does."""

    @abstractmethod
    def estimate(self, known: Known, rows: Rows) -> Any:
        """Return the member with the smallest loss on range-weighted rows (M3)."""

    @abstractmethod
    def optimistic_values(self, known: Known, rows: Rows, *, delta: float, start: int = 0) -> Floats:
        """Return the values [H + 1, S] of an optimistic plan: at ``start`` no kernel left has more (M5, M9)."""

    @abstractmethod
    def log_covering_number(self, alpha: float) -> float:
        """Return a bound on log N(F, alpha) in sup over (s, a) of sum over s' |P - P'|."""

    def kernel(self, member: Any) -> Floats:
        """Return one member as a dense array [S, A, S]."""
        return self.features.kernel(self.parameters_of(member))

    def loss(self, known: Known, member: Any, rows: Rows) -> float:
        """Return L(P) = sum (y - (P V)(s, a))^2 over range-weighted rows (M1, M23)."""
        x, y = design(self.features, known, rows)
        return float(((y - x @ self.parameters_of(member)) ** 2).sum())

    def distance(self, known: Known, one: Any, other: Any, rows: Rows) -> float:
        """Return L(P, P') = sum ((P V - P' V)(s, a))^2 over range-weighted rows (M2, M23)."""
        x, _ = design(self.features, known, rows)
        return float(((x @ (self.parameters_of(one) - self.parameters_of(other))) ** 2).sum())

    def check(self, draw: np.random.Generator, count: int = 8) -> None:
        """Refuse a family some members of which are not kernels, or that has none."""
        drawn = self.members(draw, count)
        if not len(drawn):
            raise FamilyError("members", got="no kernel", expected="at least one")
        for i, member in enumerate(drawn):
            kernel = self.kernel(member)
            wrong = ~(np.abs(kernel.sum(axis=2) - 1.0) <= TOLERANCE) | ~(kernel.min(axis=2) >= -TOLERANCE)
            if wrong.any():
                at = tuple(int(j) for j in np.argwhere(wrong)[0])
                raise FamilyError("members", index=(i, *at), got=kernel[at], expected="probabilities that sum to 1")

    def member_of(self, kernel: Floats) -> Any | None:
        """Return the member that equals a kernel [S, A, S], up to rounding; None if none does."""
        given = np.asarray(kernel, dtype=np.float64)
        shape = (self.features.states, self.features.actions, self.features.states)
        if given.shape != shape:
            raise FamilyError("kernel", got=given.shape, expected=shape)
        return self.find(given) if np.isfinite(given).all() else None

    def contains(self, kernel: Floats) -> bool:
        """Say whether a kernel [S, A, S] is one of the family's."""
        return self.member_of(kernel) is not None
