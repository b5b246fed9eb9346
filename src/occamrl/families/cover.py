"""Parametric classes through a cover: kernel(parameters) on a grid over a box.

Grid points are multiples of the step in each parameter, so that the cover of a smaller box is part of that of a larger
one with the same step, and covers form ladders.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from occamrl.contracts import Floats
from occamrl.errors import FamilyError, ParameterError
from occamrl.families.finite import FiniteFamily

_MOST_MEMBERS = 1_000_000


class CoverFamily(FiniteFamily):
    """The kernels of a parametric class at the points of a grid.

    Parameters
    ----------
    kernel : callable
        From a vector of parameters to a kernel [S, A, S], dense or scipy.sparse (S*A, S).
    low, high : sequences of numbers
        The box; both ends are kept when they are multiples of the step.
    step : number or sequence of numbers
        The distance of grid points in each parameter.

    Attributes
    ----------
    parameters : array [n, k]
        The grid points.
    alpha : float
        Half the largest distance, in sup over (s, a) of sum over s' |P - P'|, of neighbours on the grid: for a class
        that is monotone between grid points no kernel of the box is farther than k times this from the cover. The
        losses of such a kernel and its nearest grid point differ by at most alpha n on n weighted rows (M15), and their
        squared distance is at most n alpha^2/4: a truth between two points is not rejected before about
        12 log(n_kernels/delta)/alpha^2 rows. The preflight says whether that is soon.
    """

    parameters: Floats
    alpha: float

    def __init__(
        self,
        kernel: Callable[[Floats], Any],
        *,
        low: Sequence[float],
        high: Sequence[float],
        step: float | Sequence[float],
    ) -> None:
        bottom, top = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        width = np.broadcast_to(np.asarray(step, dtype=np.float64), bottom.shape)
        if bottom.ndim != 1 or bottom.shape != top.shape or not bottom.size:
            raise ParameterError("low, high", got=(low, high), expected="two vectors of the same length")
        if not (np.isfinite(bottom).all() and np.isfinite(top).all() and (bottom <= top).all()):
            raise ParameterError("low, high", got=(low, high), expected="finite numbers with low <= high")
        if not (np.isfinite(width).all() and (width > 0.0).all()):
            raise ParameterError("step", got=step, expected="finite numbers > 0")
        first, last = np.ceil(bottom / width - 1e-9), np.floor(top / width + 1e-9)
        counts = (last - first + 1).astype(np.int64)
        if (counts < 1).any() or counts.prod() > _MOST_MEMBERS:
            raise FamilyError("step", got=f"a grid of {counts.tolist()}", expected=f"1 to {_MOST_MEMBERS:,} points")
        axes = [np.arange(a, b + 1) * w for a, b, w in zip(first, last, width, strict=True)]
        self.parameters = np.array(list(itertools.product(*axes)))
        super().__init__([kernel(point) for point in self.parameters])
        self.alpha = self._fineness(counts)

    def _fineness(self, counts: ArrayLike) -> float:
        members, start = self.probabilities(), self.features.layout.outcomes.start
        place = np.arange(self.size).reshape(np.asarray(counts))
        largest = 0.0
        for axis in range(place.ndim):
            one, other = np.delete(place, -1, axis).ravel(), np.delete(place, 0, axis).ravel()
            if one.size:
                gaps = np.add.reduceat(np.abs(members[:, one] - members[:, other]), start[:-1])
                largest = max(largest, float(gaps.max()))
        return 0.5 * largest

    @property
    def reach(self) -> float:
        """How far a kernel of the box may be from the nearest grid point, for a class monotone between them."""
        return float(self.alpha * self.parameters.shape[1])

    @classmethod
    def examples(cls) -> list[FiniteFamily]:
        """Small instances, for the contract checks."""

        def kernel(p: Floats) -> Floats:
            return np.array([[[1.0 - p[0], p[0]]], [[p[0], 1.0 - p[0]]]])

        return [cls(kernel, low=[0.2], high=[0.6], step=0.1)]
