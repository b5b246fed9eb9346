r"""How wrong is a grid? Solve finer ones, compare on common states, and extrapolate.

If the value on a grid of spacing D errs by about C D^p, then three grids, each r times as fine as the one before, show

.. math:: d_1 = \|V_D - V_{D/r}\|, \quad d_2 = \|V_{D/r} - V_{D/r^2}\|, \qquad p = \log_r (d_1/d_2),

and what is left beyond the finest is :math:`d_2/(r^p - 1)` (Richardson). It is an estimate, not a bound: it is as good
as the power law, which the orders seen on the way tell. Smooth values have p = 2; a kink that the noise does not smooth
gives p = 1. At one state its own order is taken if the last two differences have one sign. An order below
:data:`SLOWEST` is no convergence, and no estimate is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from occamrl.continuous.grid import Grid
from occamrl.contracts import Floats
from occamrl.errors import ParameterError

SLOWEST = 0.2
FASTEST = 2.0  # of multilinear interpolation; a faster fall is chance, and is not extrapolated


class Solution(NamedTuple):
    """A value function on a grid."""

    grid: Grid
    values: Floats  # [S]


@dataclass(frozen=True, kw_only=True)
class Refinement:
    """What refining showed; ``print`` it. Entries go from the coarsest grid to the finest."""

    points: tuple[tuple[int, ...], ...]
    differences: tuple[float, ...]  # the largest, between one grid and the next
    order: float  # p, seen on the last three
    errors: tuple[float, ...]  # estimated, the largest over the states compared; NaN: no convergence seen
    at_start: tuple[float, ...]  # estimated at the first of the states compared, with its sign: grid less limit
    states: int

    def __str__(self) -> str:
        lines = [f"values compared at {self.states:,} states; order of convergence seen: {self.order:.2f}"]
        for points, error, start in zip(self.points, self.errors, self.at_start, strict=True):
            name = " x ".join(str(m) for m in points)
            if np.isnan(error):
                lines.append(f"  {name:>12} vertices: not converging yet, no estimate")
            else:
                lines.append(f"  {name:>12} vertices: error about {error:.3g} at most, {start:+.3g} at the first state")
        return "\n".join(lines)


def refinement(solutions: Sequence[Solution], states: ArrayLike | None = None) -> Refinement:
    """Estimate the error of each of three or more solutions, each on a grid r times as fine as the one before.

    Parameters
    ----------
    solutions : sequence of Solution
        From coarse to fine.
    states : array [N, n], optional
        Where values are compared; the first may be that in which episodes begin. By default the coarsest vertices.
    """
    if len(solutions) < 3:
        raise ParameterError("solutions", got=len(solutions), expected="at least 3 grids")
    ratios = [one.grid.spacing / two.grid.spacing for one, two in pairwise(solutions)]
    if np.ptp(ratios) > 1e-6 or ratios[0][0] <= 1.0 + 1e-6:
        raise ParameterError("solutions", got=np.round(ratios, 3).tolist(), expected="one ratio > 1 of all spacings")
    ratio = float(ratios[0][0])
    where = solutions[0].grid.vertices if states is None else solutions[0].grid.as_points(states)
    found = np.stack([each.grid.interpolate(each.values, where) for each in solutions])
    steps = np.diff(found, axis=0)
    gaps = np.abs(steps).max(axis=1)
    order, factor = _order(gaps, ratio)
    left = factor * gaps[-1]  # beyond the finest grid
    tail = [left + gaps[i:].sum() for i in range(len(gaps))]
    first = steps[:, 0]
    own = _order(np.abs(first), ratio)[1] if (np.sign(first[-2:]) == np.sign(first[-1])).all() else factor
    limit = found[-1, 0] + (factor if np.isnan(own) else own) * first[-1]
    return Refinement(
        points=tuple(tuple(int(m) for m in each.grid.points) for each in solutions),
        differences=tuple(gaps.tolist()),
        order=order,
        errors=(*map(float, tail), float(left)),
        at_start=tuple((found[:, 0] - limit).tolist()),
        states=len(where),
    )


def _order(gaps: Floats, ratio: float) -> tuple[float, float]:
    """Return p and 1/(r^p - 1), from the last two differences."""
    if gaps[-1] == 0.0:
        return FASTEST, 0.0
    if gaps[-2] == 0.0:
        return 0.0, float("nan")
    order = float(np.log(gaps[-2] / gaps[-1]) / np.log(ratio))
    used = min(order, FASTEST)
    return order, 1.0 / (ratio**used - 1.0) if used >= SLOWEST else float("nan")
