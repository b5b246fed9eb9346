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
from occamrl.errors import FamilyError, ParameterError, require_number
from occamrl.families.finite import FiniteFamily

_MOST_MEMBERS = 1_000_000
_ENDS = "multiples of the step: beyond the last grid point nothing would be covered"


class CoverFamily(FiniteFamily):
    """The kernels of a parametric class at the points of a grid.

    Parameters
    ----------
    kernel : callable
        From a vector of parameters to a kernel [S, A, S], dense or scipy.sparse (S*A, S).
    low, high : sequences of numbers
        The box; multiples of the step, so that its ends are on the grid.
    step : number or sequence of numbers
        The distance of grid points in each parameter.
    reach : float, optional
        How far, in the sense of ``alpha``, a kernel of the box may be from its nearest grid point. By default the
        sum over the parameters of half the largest distance of neighbours along each, which is right for kernels that
        are affine in each parameter between neighbours (others need a bound of their own). 0: the truth is a grid
        point, and the family a list like any other.

    Attributes
    ----------
    parameters : array [n, k]
        The grid points.
    alpha : float
        Half the largest distance, in sup over (s, a) of sum over s' |P - P'|, of neighbours on the grid.
    reach : float
        As given; or the sum of such halves over the parameters, at most k alpha.

    Notes
    -----
    Learners and tests add the term of :mod:`occamrl.families.off_grid` to their radius, so that a truth between two
    points keeps its class. The price: kernels nearer to each other than about the reach are never told apart. The
    preflight says whether that matters for a run.
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
        reach: float | None = None,
    ) -> None:
        bottom, top = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        width = np.broadcast_to(np.asarray(step, dtype=np.float64), bottom.shape)
        if bottom.ndim != 1 or bottom.shape != top.shape or not bottom.size:
            raise ParameterError("low, high", got=(low, high), expected="two vectors of the same length")
        if not (np.isfinite(bottom).all() and np.isfinite(top).all() and (bottom <= top).all()):
            raise ParameterError("low, high", got=(low, high), expected="finite numbers with low <= high")
        if not (np.isfinite(width).all() and (width > 0.0).all()):
            raise ParameterError("step", got=step, expected="finite numbers > 0")
        if reach is not None:
            require_number("reach", reach, 0.0, 2.0)
        first, last = np.round(bottom / width), np.round(top / width)
        off = np.maximum(np.abs(bottom / width - first), np.abs(top / width - last)) > 1e-6
        if off.any():
            raise ParameterError("low, high", index=(int(np.argmax(off)),), got=(low, high), expected=_ENDS)
        counts = last - first + 1
        if counts.prod() > _MOST_MEMBERS:
            raise FamilyError("step", got=f"a grid of {counts.tolist()}", expected=f"at most {_MOST_MEMBERS:,} points")
        axes = [np.arange(a, b + 1) * w for a, b, w in zip(first, last, width, strict=True)]
        self.parameters = np.array(list(itertools.product(*axes)))
        super().__init__([kernel(point) for point in self.parameters])
        half = self._half_gaps(counts.astype(np.int64))
        self.alpha = max(half)
        self.reach = float(sum(half) if reach is None else reach)

    def _half_gaps(self, counts: ArrayLike) -> list[float]:
        """Return, per parameter, half the largest distance of neighbours on the grid."""
        members, start = self.probabilities(), self.features.layout.outcomes.start
        place = np.arange(self.size).reshape(np.asarray(counts))
        half = []
        for axis in range(place.ndim):
            one, other = np.delete(place, -1, axis).ravel(), np.delete(place, 0, axis).ravel()
            gaps = np.add.reduceat(np.abs(members[:, one] - members[:, other]), start[:-1])
            half.append(0.5 * float(gaps.max(initial=0.0)))
        return half

    @classmethod
    def examples(cls) -> list[FiniteFamily]:
        """Small instances, for the contract checks."""

        def kernel(p: Floats) -> Floats:
            return np.array([[[1.0 - p[0], p[0]]], [[p[0], 1.0 - p[0]]]])

        return [cls(kernel, low=[0.2], high=[0.6], step=0.1)]
