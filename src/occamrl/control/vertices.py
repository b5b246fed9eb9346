r"""A kernel on a box as a kernel on the vertices of a grid, where the law of the noise is known.

Values at the vertices are continued to (I f)(x) = sum_v lambda_v(x) f(v), the weights being
products of hats: at least zero, with sum one. A rule for the noise has nodes, which move s to y_i,
and weights w_i, such that :math:`\int f(y)\, P(dy \mid s, a) \approx \sum_i w_i f(y_i)`. From
vertex s the grid's problem goes to y_i with weight w_i, and from there to the corners of the cell
of y_i with the weights of interpolation. ``docs/continuous-states.md`` has the proofs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from occamrl.errors import ParameterError, ShapeError, as_floats, require_integer
from occamrl.protocols import Floats

_ROUNDING = 1e-9  # of the width of the box


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """Evenly spaced vertices over a box, numbered with the last dimension running fastest.

    >>> grid = Grid(low=[0.0], high=[1.0], points=[3])
    >>> grid.interpolate(np.array([0.0, 1.0, 4.0]), [[0.25], [0.75]]).tolist()
    [0.5, 2.5]

    Parameters
    ----------
    low, high : sequences of float
        The box.
    points : sequence of int
        Vertices per dimension, both ends included. On a circle ``high`` is ``low`` again, and is
        not counted.
    periodic : sequence of bool
        Dimensions that close to a circle (angles); none by default.
    """

    low: Sequence[float]
    high: Sequence[float]
    points: Sequence[int]
    periodic: Sequence[bool] = ()

    def __post_init__(self) -> None:
        low = as_floats("low", self.low)
        high = as_floats("high", self.high)
        ends_agree = low.shape == high.shape == (len(self.points),)
        if not ends_agree or len(self.periodic) not in (0, low.size):
            raise ShapeError(
                "low, high", got=(low.shape, high.shape), expected="as many numbers as points"
            )
        if not (np.isfinite(high - low) & (low < high)).all():
            raise ParameterError(
                "low, high", got=(self.low, self.high), expected="finite numbers, low < high"
            )
        for dimension, count in enumerate(self.points):
            require_integer("points", count, 2, index=(dimension,))

    @cached_property
    def circle(self) -> NDArray[np.bool_]:
        """Which dimensions close to a circle [n]."""
        if len(self.periodic) == 0:
            return np.zeros(len(self.low), bool)
        return np.array(self.periodic, bool)

    @property
    def size(self) -> int:
        """S, the number of vertices."""
        return math.prod(self.points)

    @cached_property
    def spacing(self) -> Floats:
        """The distance D_i of neighbouring vertices [n]."""
        cells = np.asarray(self.points) - ~self.circle
        return np.asarray((np.asarray(self.high, float) - self.low) / cells)

    @cached_property
    def vertices(self) -> Floats:
        """Every vertex [S, n]."""
        axes = []
        for low, distance, count in zip(self.low, self.spacing, self.points, strict=True):
            axes.append(low + distance * np.arange(count))
        return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)

    def outside(self, states: Floats) -> NDArray[np.bool_]:
        """Return which states [N] are not finite or outside the box; circles have no outside."""
        low = np.asarray(self.low)
        high = np.asarray(self.high)
        margin = _ROUNDING * (high - low)
        within = (states >= low - margin) & (states <= high + margin)
        inside = np.isfinite(states) & (self.circle | within)
        return np.asarray(~inside.all(axis=1))

    def corners(self, states: ArrayLike) -> tuple[NDArray[np.int64], Floats]:
        """Return the 2^n corners of the cell of each state [N, n], and their weights lambda."""
        points = as_floats("states", states)
        n = len(self.low)
        if points.ndim != 2 or points.shape[1] != n:
            raise ShapeError("states", got=points.shape, expected=f"[N, {n}]")
        for i in np.flatnonzero(self.outside(points))[:1].tolist():
            raise ParameterError(
                "states", index=(i,), got=points[i].tolist(), expected=self.described
            )
        counts = np.asarray(self.points)
        position = (points - self.low) / self.spacing
        around = np.mod(position, counts)
        position = np.where(self.circle, around, np.clip(position, 0.0, counts - 1))
        # The last vertex of an interval begins no cell; on a circle its cell ends at the first.
        cell = np.minimum(np.floor(position), counts - 1 - ~self.circle).astype(np.int64)
        share = position - cell
        vertices = []
        weights = []
        for up in itertools.product((0, 1), repeat=n):
            corner = tuple(((cell + up) % counts).T)
            vertices.append(np.ravel_multi_index(corner, tuple(self.points)))
            weights.append(np.where(up, share, 1.0 - share).prod(axis=1))
        return np.stack(vertices, axis=1), np.stack(weights, axis=1)

    def interpolate(self, values: ArrayLike, states: ArrayLike) -> Floats:
        """Return (I f)(x) for values f(v) [S] at the vertices and states x [N, n]."""
        at_vertices = as_floats("values", values, (self.size,))
        vertex, weight = self.corners(states)
        return np.asarray((at_vertices[vertex] * weight).sum(axis=1))

    @property
    def described(self) -> str:
        """The box in words."""
        sides = []
        for low, high, turns in zip(self.low, self.high, self.circle, strict=True):
            sides.append("any angle" if turns else f"[{low:g}, {high:g}]")
        return "a state in " + " x ".join(sides)


Rule = tuple[Floats, Floats]  # nodes [Q, q] and weights [Q], which sum to one, for a law of noise
Step = Callable[[Floats, Floats, Floats], ArrayLike]  # of states [N, n], action [m], noise [N, q]


def normal_rule(scale: Sequence[float], nodes: int) -> Rule:
    """Return Gauss-Hermite's rule for independent normal noise.

    It is exact for polynomials of degree 2 nodes - 1.

    >>> nodes, weights = normal_rule([2.0], 3)
    >>> round(float(weights @ nodes[:, 0] ** 4), 9)  # 3 sigma^4
    48.0
    """
    x, w = np.polynomial.hermite_e.hermegauss(require_integer("nodes", nodes, 1))
    axes = [sigma * x for sigma in scale]
    shares = itertools.product(w / w.sum(), repeat=len(scale))
    return np.array(list(itertools.product(*axes))), np.array([np.prod(row) for row in shares])


def quantile_rule(quantile: Callable[[Floats], ArrayLike], nodes: int) -> Rule:
    """Return the quantiles at the middles of equal shares, for noise of one dimension and any law.

    Whatever is integrated errs by at most its total variation along the noise over 2 nodes
    (Koksma's inequality).

    >>> quantile_rule(lambda u: 10.0 * u, 2)[0].ravel().tolist()
    [2.5, 7.5]
    """
    middles = (np.arange(require_integer("nodes", nodes, 1)) + 0.5) / nodes
    points = as_floats("quantile", quantile(middles), (nodes,))
    return points[:, None], np.full(nodes, 1.0 / nodes)


def discretise(
    step: Step, rule: Rule, grid: Grid, actions: ArrayLike, *, start: ArrayLike | None = None
) -> sp.csr_array[np.float64]:
    """Return the kernel of s' = step(s, a, noise) over the vertices: sparse, (S*A, S), row s*A + a.

    Actions are [A, m] or [A]. Episodes begin in one of the states ``start`` [N, n], by default at
    any vertex. A vertex in reach of these with a next state outside the box is refused; the next
    states of others are put on its edge.
    """
    states = grid.vertices
    acts = as_floats("actions", actions)
    if acts.ndim == 1:
        acts = acts[:, None]
    rows = []
    vertices = []
    weights = []
    leaving: dict[int, tuple[int, Floats]] = {}  # by vertex: an action, a next state outside
    for a, action in enumerate(acts):
        for node, weight in zip(*rule, strict=True):
            noise = np.tile(node, (grid.size, 1))
            points = as_floats("next states", step(states.copy(), action, noise), states.shape)
            for s in np.flatnonzero(grid.outside(points)).tolist():
                leaving.setdefault(s, (a, points[s]))
            # Unreachable vertices may lead outside: their values are never asked for.
            inside = np.where(grid.circle, points, np.clip(points, grid.low, grid.high))
            vertex, share = grid.corners(np.where(np.isfinite(inside), inside, grid.low))
            rows.append(np.repeat(np.arange(grid.size) * len(acts) + a, vertex.shape[1]))
            vertices.append(vertex.ravel())
            weights.append((share * weight).ravel())
    cells = (np.concatenate(rows), np.concatenate(vertices))
    shape = (grid.size * len(acts), grid.size)
    kernel = sp.csr_array((np.concatenate(weights), cells), shape=shape)
    kernel.eliminate_zeros()
    # Only now, since what can be reached is seen on the whole kernel.
    reached = _reached(kernel, grid, start)
    for s, (a, point) in sorted(leaving.items()):
        if reached[s] or not np.isfinite(point).all():
            origin = f"from state {states[s].tolist()} under action {acts[a].tolist()}"
            raise ParameterError(
                "next state",
                index=(s,),
                got=f"{point.tolist()} {origin}",
                expected=f"{grid.described}: a grid that covers the reachable states",
            )
    return kernel


def _reached(kernel: sp.csr_array, grid: Grid, start: ArrayLike | None) -> NDArray[np.bool_]:
    """Return which vertices [S] can be reached from the corners of the first states."""
    if start is None:
        return np.ones(grid.size, bool)
    reached = np.zeros(grid.size, bool)
    vertex, share = grid.corners(start)
    reached[vertex[share > 0.0]] = True
    actions = kernel.shape[0] // grid.size
    while True:
        wider = reached | (kernel.T @ np.repeat(reached, actions) > 0.0)
        if wider.sum() == reached.sum():
            return reached
        reached = wider
