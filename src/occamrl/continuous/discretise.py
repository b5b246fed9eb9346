r"""A kernel on a box turned into a kernel on the vertices of a grid.

From vertex s the model goes to y_i with weight w_i, and from there to the corners of the cell of y_i with the weights
of interpolation:

.. math:: \hat P(v \mid s, a) = \sum_i w_i\, \lambda_v(y_i), \qquad
          (\hat P V)(s,a) = \sum_i w_i\, (I V)(y_i).

This is a kernel proper, with few entries per row. Backward induction with it is backward induction with V replaced by
its interpolation, so with exact integrals

.. math:: \|V_1 - \hat V_1\|_\infty \le \sum_{h=1}^{H} \|(1 - I) V_h\|_\infty :

errors of interpolation add up over the steps, none is amplified (averagers: Gordon, "Stable function approximation in
dynamic programming", 1995; Chow and Tsitsiklis, "An optimal one-way multigrid algorithm for discrete-time stochastic
control", 1991). Interpolating adds a variance of up to D_i^2/4 to every step, which is what a coarse grid does to the
physics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from occamrl.continuous.arguments import numbers_of
from occamrl.continuous.grid import Flags, Grid
from occamrl.continuous.transitions import Transition, require_inside
from occamrl.contracts import Floats
from occamrl.errors import ProbabilityError, ShapeError

_TOGETHER = 64  # atoms gathered before they are added up
_SUM = 1e-9


def as_actions(actions: ArrayLike) -> Floats:
    """Return a finite grid of actions [A, m]; plain numbers are actions of one dimension."""
    found = numbers_of("actions", actions, "[A, m], finite numbers")
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or 0 in found.shape or not np.isfinite(found).all():
        raise ShapeError("actions", got=found.shape, expected="[A, m], finite numbers")
    return found


def anchored(transition: Transition, grid: Grid, states: Floats, action: Floats) -> tuple[Any, Flags, Floats]:
    """Return the law of the next vertex from any states [N, n], as a sparse matrix (N, S).

    Next states outside the box are put on its edge; which states had some is returned beside, with one such next state
    each. Next states that are not finite are refused.
    """
    count = len(states)
    rows = np.repeat(np.arange(count), 2**grid.dimensions)
    total: Any = sp.csr_array((count, grid.size))
    left, example = np.zeros(count, dtype=bool), np.zeros_like(states)
    kept: list[Any] = []
    for points, weight in transition.atoms(states, action):
        require_inside(points, ~np.isfinite(points).all(axis=1), states, action, "finite numbers")
        if not (weight >= 0.0).all():
            raise ProbabilityError("transition", got=f"the weight {weight.min()}", expected="weights >= 0")
        out = grid.outside(points) & (weight > 0.0)
        example[out & ~left] = points[out & ~left]
        left |= out
        vertex, share = grid.corners(grid.clip(points) if out.any() else points)
        kept.append((vertex.ravel(), (share * weight[:, None]).ravel()))
        if len(kept) == _TOGETHER:
            total, kept = total + _added(kept, rows, total.shape), []
    if kept:
        total = total + _added(kept, rows, total.shape)
    mass = np.asarray(total.sum(axis=1)).ravel()
    bad = ~(np.abs(mass - 1.0) <= _SUM)
    if bad.any():
        s = int(bad.argmax())
        got = f"weights that sum to {mass[s]} from state {states[s].tolist()} under action {action.tolist()}"
        raise ProbabilityError("transition", index=(s,), got=got, expected="1")
    return sp.csr_array(total), left, example


def _added(kept: Iterable[tuple[Any, Any]], rows: Any, shape: tuple[int, int]) -> Any:
    vertices, weights = zip(*kept, strict=True)
    index = np.tile(rows, len(vertices))
    made: Any = sp.coo_array((np.concatenate(weights), (index, np.concatenate(vertices))), shape=shape).tocsr()
    made.eliminate_zeros()
    return made


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
        Where episodes begin. The grid has to cover what can be reached from there: a vertex in reach with a next state
        outside the box is refused, others are put on its edge. By default every vertex counts as in reach.
    """
    if start is not None and not len(grid.corners(grid.as_points(start, "start")).vertex):  # outside: refused by these
        raise ShapeError("start", got="no states", expected="at least one")
    acts = as_actions(actions)
    found = [anchored(transition, grid, grid.vertices, action) for action in acts]
    every: Any = sp.vstack([kernel for kernel, _, _ in found]).tocsr()  # row a*S + s
    order = np.arange(grid.size * len(acts)).reshape(len(acts), grid.size).T.ravel()
    kernel = sp.csr_array(every[order])
    left = np.stack([out for _, out, _ in found], axis=1)
    if left.any():
        reach = np.ones(grid.size, bool) if start is None else reachable(kernel, grid, start)
        for a, (_, out, example) in enumerate(found):
            expected = f"{grid.described}: a grid that covers the reachable states"
            require_inside(example, out & reach, grid.vertices, acts[a], expected)
    return kernel


def reachable(kernel: Any, grid: Grid, start: ArrayLike) -> Flags:
    """Say which vertices can be reached from the corners of some states, under any actions [S]."""
    vertex, weight = grid.corners(grid.as_points(start, "start"))
    seen = np.zeros(grid.size, dtype=bool)
    seen[vertex[weight > 0.0]] = True
    actions = kernel.shape[0] // grid.size
    frontier = np.flatnonzero(seen)
    while frontier.size:
        rows = (frontier[:, None] * actions + np.arange(actions)).ravel()
        found = np.unique(kernel[rows].indices)
        frontier = found[~seen[found]]
        seen[frontier] = True
    return seen


def quadrature_error(transition: Transition, grid: Grid, actions: ArrayLike) -> float:
    """Return the largest total variation distance, over vertices and actions, to the kernel of twice the points.

    A value function of range R is integrated to within R times this, as far as the finer rule can be trusted.
    """
    gap: Any = discretise(transition, grid, actions) - discretise(transition.finer(), grid, actions)
    return 0.5 * float(abs(gap).sum(axis=1).max())
