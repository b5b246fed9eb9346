r"""A kernel on a box turned into a kernel on the vertices of a grid, and how wrong that is.

Values at the vertices are continued to (I f)(x) = sum_v lambda_v(x) f(v), the weights being products of hats: at least
zero, with sum one. A model is a rule, points y_i with weights w_i, such that
:math:`\int f(y)\, P(dy \mid s, a) \approx \sum_i w_i f(y_i)`. From vertex s the grid's problem goes to y_i with weight
w_i, and from there to the corners of the cell of y_i with the weights of interpolation. Three grids, each twice as fine
as the one before, give an estimate of the error (Richardson). ``docs/continuous-states.md`` has the proofs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from occamrl.errors import InvalidInput, ParameterError, ShapeError, as_floats, require_integer
from occamrl.protocols import Floats

SLOWEST, FASTEST = 0.2, 2.0  # orders of convergence: below is none; multilinear interpolation has no higher one
_ROUNDING = 1e-9  # of the width of the box


class StateError(InvalidInput):
    """A state is not a finite point, or lies outside the box that the grid covers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """Evenly spaced vertices over a box, numbered with the last dimension running fastest.

    >>> grid = Grid(low=[0.0], high=[1.0], points=[3])
    >>> grid.interpolate(np.array([0.0, 1.0, 4.0]), [[0.25], [0.75]]).tolist()
    [0.5, 2.5]
    """

    low: Sequence[float]  # the box
    high: Sequence[float]
    points: Sequence[int]  # vertices per dimension, both ends included; on a circle, high is low again: not counted
    periodic: Sequence[bool] = ()  # dimensions that close to a circle (angles); none by default

    def __post_init__(self) -> None:
        low, high = as_floats("low", self.low), as_floats("high", self.high)
        if low.shape != (len(self.points),) or high.shape != low.shape or len(self.periodic) not in (0, low.size):
            raise ShapeError("low, high", got=(low.shape, high.shape), expected="as many numbers as points")
        if not (np.isfinite(high - low) & (low < high)).all():
            raise ParameterError("low, high", got=(self.low, self.high), expected="finite numbers, low < high")
        for i, m in enumerate(self.points):
            require_integer("points", m, 2, index=(i,))

    @property
    def circle(self) -> NDArray[np.bool_]:
        """Which dimensions close to a circle [n]."""
        return np.array(self.periodic, bool) if len(self.periodic) else np.zeros(len(self.low), bool)

    @property
    def size(self) -> int:
        """S, the number of vertices."""
        return math.prod(self.points)

    @cached_property
    def spacing(self) -> Floats:
        """The distance D_i of neighbouring vertices [n]."""
        return np.asarray((np.asarray(self.high, float) - self.low) / (np.asarray(self.points) - ~self.circle))

    @cached_property
    def vertices(self) -> Floats:
        """Every vertex [S, n]."""
        axes = [low + step * np.arange(m) for low, step, m in zip(self.low, self.spacing, self.points, strict=True)]
        return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)

    def outside(self, states: Floats) -> NDArray[np.bool_]:
        """Say which states are not finite or lie outside the box, up to rounding; circles have no outside [N]."""
        low, high = np.asarray(self.low), np.asarray(self.high)
        margin = _ROUNDING * (high - low)
        inside = np.isfinite(states) & (self.circle | ((states >= low - margin) & (states <= high + margin)))
        return np.asarray(~inside.all(axis=1))

    def corners(self, states: ArrayLike, field: str = "states") -> tuple[NDArray[np.int64], Floats]:
        """Return the 2^n corners of the cell of each state [N, n] and their weights lambda, both [N, 2^n]."""
        found, n = as_floats(field, states), len(self.low)
        if found.ndim != 2 or found.shape[1] != n:
            raise ShapeError(field, got=found.shape, expected=f"[N, {n}]")
        for i in np.flatnonzero(self.outside(found))[:1].tolist():
            raise StateError(field, index=(i,), got=found[i].tolist(), expected=self.described)
        points = np.asarray(self.points)
        position = (found - self.low) / self.spacing
        position = np.where(self.circle, np.mod(position, points), np.clip(position, 0.0, points - 1))
        cell = np.minimum(np.floor(position), points - 1 - ~self.circle).astype(np.int64)
        share, vertex, weight = position - cell, [], []
        for up in itertools.product((0, 1), repeat=n):
            vertex.append(np.ravel_multi_index(tuple(((cell + up) % points).T), tuple(self.points)))
            weight.append(np.where(up, share, 1.0 - share).prod(axis=1))
        return np.stack(vertex, axis=1), np.stack(weight, axis=1)

    def interpolate(self, values: ArrayLike, states: ArrayLike) -> Floats:
        """Return (I f)(x) for values f(v) [S] at the vertices and states x [N, n]."""
        known = as_floats("values", values, (self.size,))
        vertex, weight = self.corners(states)
        return np.asarray((known[vertex] * weight).sum(axis=1))

    @property
    def described(self) -> str:
        """The box in words."""
        ends = zip(self.low, self.high, self.circle, strict=True)
        return "a state in " + " x ".join("any angle" if turns else f"[{low:g}, {high:g}]" for low, high, turns in ends)


class Transition(Protocol):
    """A model of what follows a state and an action."""

    def atoms(self, states: Floats, action: Floats) -> Iterator[tuple[Floats, Floats]]:
        """Return the rule at states [N, n] under one action [m]: points [N, n] and weights [N], which sum to one."""

    def finer(self) -> Self:
        """Return the same model with twice the points per dimension."""


class Rule(NamedTuple):
    """Nodes and weights for a law of noise."""

    nodes: Floats  # [Q, q]
    weights: Floats  # [Q], sum 1


def normal_rule(scale: ArrayLike, nodes: int) -> Rule:
    """Return Gauss-Hermite's rule for independent normal noise: exact for polynomials of degree 2 nodes - 1.

    >>> rule = normal_rule([2.0], 3)
    >>> round(float(rule.weights @ rule.nodes[:, 0] ** 4), 9)  # 3 sigma^4
    48.0
    """
    scales = np.atleast_1d(as_floats("scale", scale))
    if not (scales >= 0.0).all():
        raise ParameterError("scale", got=scales.tolist(), expected="numbers >= 0")
    x, w = np.polynomial.hermite_e.hermegauss(require_integer("nodes", nodes, 1))
    kept = [(sigma * x, w / w.sum()) if sigma > 0.0 else (np.zeros(1), np.ones(1)) for sigma in scales]
    points = np.array(list(itertools.product(*(axis for axis, _ in kept))))
    return Rule(points, np.array([np.prod(each) for each in itertools.product(*(part for _, part in kept))]))


def quantile_rule(quantile: Callable[[Floats], ArrayLike], nodes: int) -> Rule:
    """Return the quantiles at the middles of equal shares, for noise of one dimension and any law.

    Whatever is integrated errs by at most its total variation along the noise over 2 nodes (Koksma's inequality).

    >>> quantile_rule(lambda u: 10.0 * u, 2).nodes.ravel().tolist()
    [2.5, 7.5]
    """
    middles = (np.arange(require_integer("nodes", nodes, 1)) + 0.5) / nodes
    return Rule(as_floats("quantile", quantile(middles), (nodes,))[:, None], np.full(nodes, 1.0 / nodes))


@dataclass(frozen=True, kw_only=True, eq=False)
class Driven:
    """s' = step(s, a, noise)."""

    step: Callable[[Floats, Floats, Floats], ArrayLike]  # of states [N, n], action [m] and noise [N, q], to [N, n]
    rule: Callable[[int], Rule]  # of the number of nodes, such as lambda n: normal_rule([0.5], n)
    nodes: int = 5

    def atoms(self, states: Floats, action: Floats) -> Iterator[tuple[Floats, Floats]]:
        """Move all states with each noise of the rule."""
        for node, weight in zip(*self.rule(self.nodes), strict=True):
            noise = np.tile(node, (len(states), 1))
            points = as_floats("next states", self.step(states.copy(), action, noise), states.shape)
            yield points, np.full(len(states), weight)

    def finer(self) -> Self:
        """Return the model with twice the nodes."""
        return replace(self, nodes=2 * self.nodes)


def as_actions(actions: ArrayLike) -> Floats:
    """Return a finite grid of actions [A, m]; plain numbers are actions of one dimension."""
    found = as_floats("actions", actions)
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or not np.isfinite(found).all():
        raise ShapeError("actions", got=found.shape, expected="[A, m], finite numbers")
    return found


def discretise(
    transition: Transition, grid: Grid, actions: ArrayLike, *, start: ArrayLike | None = None
) -> sp.csr_array[np.float64]:
    """Return the kernel over the vertices, a sparse matrix (S*A, S) with row ``s*A + a``; actions are [A, m] or [A].

    Episodes begin in one of the states ``start`` [N, n], by default at any vertex. A vertex in reach of these with a
    next state outside the box is refused; the next states of others are put on its edge.
    """
    states, acts = grid.vertices, as_actions(actions)
    rows, vertices, weights = [], [], []
    left: dict[int, tuple[int, Floats]] = {}  # by vertex, an action and a next state outside the box
    for a, action in enumerate(acts):
        for points, weight in transition.atoms(states, action):
            for s in np.flatnonzero(grid.outside(points) & (weight != 0.0)).tolist():
                left.setdefault(s, (a, points[s]))
            inside = np.where(grid.circle, points, np.clip(points, grid.low, grid.high))
            vertex, share = grid.corners(np.where(np.isfinite(inside), inside, grid.low))
            rows.append(np.repeat(np.arange(grid.size) * len(acts) + a, vertex.shape[1]))
            vertices.append(vertex.ravel())
            weights.append((share * weight[:, None]).ravel())
    entries = np.concatenate(weights), (np.concatenate(rows), np.concatenate(vertices))
    kernel: Any = sp.csr_array(entries, shape=(grid.size * len(acts), grid.size))
    kernel.eliminate_zeros()
    reach = np.ones(grid.size, bool) if start is None else reachable(kernel, grid, start)
    for s, (a, point) in sorted(left.items()):
        if reach[s] or not np.isfinite(point).all():
            got = f"{point.tolist()} from state {states[s].tolist()} under action {acts[a].tolist()}"
            expected = f"{grid.described}: a grid that covers the reachable states"
            raise StateError("next state", index=(s,), got=got, expected=expected)
    return sp.csr_array(kernel)


def reachable(kernel: Any, grid: Grid, start: ArrayLike) -> NDArray[np.bool_]:
    """Say which vertices can be reached from the corners of some states, under any actions [S]."""
    vertex, weight = grid.corners(start, "start")
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


@dataclass(frozen=True, kw_only=True)
class Refinement:
    """What refining showed, from the coarsest grid to the finest; ``print`` it."""

    points: tuple[tuple[int, ...], ...]
    order: float  # p, seen on the last three
    errors: tuple[float, ...]  # estimated, the largest over the states compared; NaN: no convergence seen
    at_start: tuple[float, ...]  # estimated at the first of the states compared, with its sign: grid less limit
    states: int

    def __str__(self) -> str:
        lines = [f"values compared at {self.states:,} states; order of convergence seen: {self.order:.2f}"]
        for points, error, start in zip(self.points, self.errors, self.at_start, strict=True):
            told = f"error about {error:.3g} at most, {start:+.3g} at the first state"
            told = "not converging yet, no estimate" if np.isnan(error) else told
            lines.append(f"  {' x '.join(str(m) for m in points):>12} vertices: {told}")
        return "\n".join(lines)


def refinement(solutions: Sequence[tuple[Grid, Floats]], states: ArrayLike) -> Refinement:
    """Estimate the error of each of three solutions (grid, values [S]), each on a grid twice as fine as the one before.

    Values are compared at ``states`` [N, n]; the first may be that in which episodes begin.
    """
    grids = [grid for grid, _ in solutions]
    ratios = [(one.spacing / two.spacing).tolist() for one, two in itertools.pairwise(grids)]
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
