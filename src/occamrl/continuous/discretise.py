"""A kernel on a box turned into a kernel on the vertices of a grid, and how wrong that is.

From vertex s the model goes to y_i with weight w_i, and from there to the corners of the cell of y_i with the weights
of interpolation. Backward induction with this kernel is backward induction with values replaced by their interpolation:
errors of interpolation add up over the steps, none is amplified. The error of a grid is estimated from three, each
twice as fine as the one before (Richardson). ``docs/continuous-states.md`` has the formulas and the proofs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from occamrl.continuous.grid import Flags, Grid
from occamrl.continuous.transitions import Transition, require_inside
from occamrl.errors import ParameterError, ProbabilityError, ShapeError, as_floats
from occamrl.protocols import Floats

SLOWEST = 0.2  # an order below is no convergence, and no estimate is given
FASTEST = 2.0  # of multilinear interpolation; a faster fall is chance, and is not extrapolated
_SUM = 1e-9  # how far the weights from a state may be from summing to one


@dataclass(frozen=True, kw_only=True)
class Refinement:
    """What refining showed; ``print`` it. Entries go from the coarsest grid to the finest."""

    points: tuple[tuple[int, ...], ...]
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


def refinement(solutions: Sequence[tuple[Grid, Floats]], states: ArrayLike) -> Refinement:
    """Estimate the error of each of three solutions, each on a grid twice as fine as the one before.

    Parameters
    ----------
    solutions : three of (grid, values [S])
        From coarse to fine.
    states : array [N, n]
        Where values are compared; the first may be that in which episodes begin.
    """
    grids = [grid for grid, _ in solutions]
    ratios = [(one.spacing / two.spacing).tolist() for one, two in pairwise(grids)]
    if len(grids) != 3 or not np.allclose(ratios, 2.0):
        raise ParameterError("solutions", got=f"ratios of spacings {ratios}", expected="3 grids, each twice as fine")
    found = np.stack([grid.interpolate(values, states) for grid, values in solutions])
    steps = np.diff(found, axis=0)
    gaps, first = np.abs(steps).max(axis=1), steps[:, 0]
    order, factor = _order(gaps)
    left = factor * gaps[1]  # beyond the finest grid
    own = _order(np.abs(first))[1] if np.sign(first[0]) == np.sign(first[1]) else factor
    limit = found[2, 0] + (factor if np.isnan(own) else own) * first[1]
    return Refinement(
        points=tuple(tuple(int(m) for m in grid.points) for grid in grids),
        order=order,
        errors=(float(left + gaps.sum()), float(left + gaps[1]), float(left)),
        at_start=tuple((found[:, 0] - limit).tolist()),
        states=found.shape[1],
    )


def _order(gaps: Floats) -> tuple[float, float]:
    """Return p and 1/(2^p - 1), from two differences."""
    if gaps[1] == 0.0:
        return FASTEST, 0.0
    order = float(np.log2(gaps[0] / gaps[1])) if gaps[0] > 0.0 else 0.0
    used = min(order, FASTEST)
    return order, 1.0 / (2.0**used - 1.0) if used >= SLOWEST else float("nan")


def as_actions(actions: ArrayLike) -> Floats:
    """Return a finite grid of actions [A, m]; plain numbers are actions of one dimension."""
    found = as_floats("actions", actions, "[A, m], finite numbers")
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or 0 in found.shape or not np.isfinite(found).all():
        raise ShapeError("actions", got=found.shape, expected="[A, m], finite numbers")
    return found


def vertex_law(transition: Transition, grid: Grid, states: Floats, action: Floats) -> tuple[Any, Flags, Floats]:
    """Return the law of the next vertex from any states [N, n], as a sparse matrix (N, S).

    Next states outside the box are put on its edge; which states had some is returned beside, with one such next state
    each. Next states that are not finite are refused.
    """
    count, corners = len(states), 2**grid.dimensions
    vertices, weights = [], []
    left, example = np.zeros(count, dtype=bool), np.zeros_like(states)
    for points, weight in transition.atoms(states, action):
        require_inside(points, ~np.isfinite(points).all(axis=1), states, action, "finite numbers")
        if not (weight >= 0.0).all():
            raise ProbabilityError("transition", got=f"the weight {weight.min()}", expected="weights >= 0")
        out = grid.outside(points) & (weight > 0.0)
        example[out & ~left] = points[out & ~left]
        left |= out
        vertex, share = grid.corners(grid.clip(points) if out.any() else points)
        vertices.append(vertex.ravel())
        weights.append((share * weight[:, None]).ravel())
    rows = np.tile(np.repeat(np.arange(count), corners), len(vertices))
    total: Any = sp.csr_array((np.ravel(weights), (rows, np.ravel(vertices))), shape=(count, grid.size))
    total.eliminate_zeros()
    mass = np.asarray(total.sum(axis=1)).ravel()
    bad = ~(np.abs(mass - 1.0) <= _SUM)
    if bad.any():
        s = int(bad.argmax())
        got = f"weights that sum to {mass[s]} from state {states[s].tolist()} under action {action.tolist()}"
        raise ProbabilityError("transition", index=(s,), got=got, expected="1")
    return total, left, example


def discretise(
    transition: Transition, grid: Grid, actions: ArrayLike, *, start: ArrayLike | None = None
) -> sp.csr_array[np.float64]:
    """Return the kernel over the vertices, a sparse matrix (S*A, S) with row ``s*A + a``.

    Parameters
    ----------
    transition : Transition
    grid : Grid
    actions : array [A, m] or [A]
    start : states [N, n], optional
        Where episodes begin; by default at any vertex. A vertex in reach of these with a next state outside the box is
        refused; the next states of others are put on its edge.
    """
    if start is not None and not len(grid.corners(grid.as_points(start, "start")).vertex):  # outside: refused by these
        raise ShapeError("start", got="no states", expected="at least one")
    acts = as_actions(actions)
    found = [vertex_law(transition, grid, grid.vertices, action) for action in acts]
    every: Any = sp.vstack([kernel for kernel, _, _ in found]).tocsr()  # row a*S + s
    order = np.arange(grid.size * len(acts)).reshape(len(acts), grid.size).T.ravel()
    kernel = sp.csr_array(every[order])
    if any(out.any() for _, out, _ in found):
        reach = np.ones(grid.size, bool) if start is None else reachable(kernel, grid, start)
        expected = f"{grid.described}: a grid that covers the reachable states"
        for action, (_, out, example) in zip(acts, found, strict=True):
            require_inside(example, out & reach, grid.vertices, action, expected)
    return kernel


def reachable(kernel: Any, grid: Grid, start: ArrayLike) -> Flags:
    """Say which vertices can be reached from the corners of some states, under any actions [S]."""
    vertex, weight = grid.corners(grid.as_points(start, "start"))
    seen = np.zeros(grid.size, dtype=bool)
    seen[vertex[weight > 0.0]] = True
    while True:
        wider = seen | (kernel.T @ np.repeat(seen, kernel.shape[0] // grid.size) > 0.0)
        if (wider == seen).all():
            return seen
        seen = wider


def quadrature_error(transition: Transition, grid: Grid, actions: ArrayLike) -> float:
    """Return the largest total variation distance, over vertices and actions, to the kernel of twice the points.

    A value function of range R is integrated to within R times this, as far as the finer rule can be trusted.
    """
    gap: Any = discretise(transition, grid, actions) - discretise(transition.finer(), grid, actions)
    return 0.5 * float(abs(gap).sum(axis=1).max())
