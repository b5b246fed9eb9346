"""A grid over a box, and multilinear interpolation between its vertices.

A function known at the vertices is continued to (I f)(x) = sum_v lambda_v(x) f(v), the weights being products of hats,
one per dimension. They are at least zero and sum to one, so they are also a *distribution* over the corners of the cell
of x: jumping to a vertex with these probabilities turns a law on the box into a law on the vertices that gives every
interpolated function the same mean. ``docs/continuous-states.md`` says how far I f is from f.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from occamrl.errors import InvalidInput, ParameterError, ShapeError, as_floats, require_integer
from occamrl.protocols import Floats, Ints

Flags = NDArray[np.bool_]

MOST_DIMENSIONS = 6  # a cell has 2^n corners
MOST_VERTICES = 10_000_000
_NARROWEST = 2.0**-44  # distance of neighbours, of the largest coordinate
_ROUNDING = 1e-9  # of the width of the box: this far outside is rounding


class StateError(InvalidInput):
    """A state is not a finite point, or lies outside the box that the grid covers."""


class Corners(NamedTuple):
    """For each of N points the 2^n corners of its cell and their weights."""

    vertex: Ints  # [N, 2^n]
    weight: Floats  # [N, 2^n], at least 0, rows sum to 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """Evenly spaced vertices over a box, numbered with the last dimension running fastest.

    Parameters
    ----------
    low, high : sequences of n numbers
        The box.
    points : sequence of n integers
        Vertices per dimension, both ends included; at least 2. In a periodic dimension ``high`` is ``low`` again and is
        not counted.
    periodic : sequence of n bool
        Dimensions that close to a circle (angles). None by default.

    Examples
    --------
    >>> grid = Grid(low=[0.0], high=[1.0], points=[3])
    >>> grid.interpolate(np.array([0.0, 1.0, 4.0]), [[0.25], [0.75]]).tolist()
    [0.5, 2.5]
    """

    low: Sequence[float]
    high: Sequence[float]
    points: Sequence[int]
    periodic: Sequence[bool] = ()

    def __post_init__(self) -> None:
        low, high = as_floats("low", self.low, "n numbers"), as_floats("high", self.high, "n numbers")
        n = low.size
        if low.ndim != 1 or not n:
            raise ShapeError("low", got=low.shape, expected="n numbers")
        if high.shape != low.shape:
            raise ShapeError("high", got=high.shape, expected=f"{n} numbers, as many as low")
        half = 0.5 * high - 0.5 * low  # the width itself may be too large for a number
        for bad in np.flatnonzero(~(np.isfinite(low) & (low < high) & (half < 0.5 * np.finfo(float).max))):
            ends = (float(low[bad]), float(high[bad]))
            raise ParameterError("low, high", index=(int(bad),), got=ends, expected="finite numbers, low < high")
        if n > MOST_DIMENSIONS:
            raise ParameterError("low", got=f"{n} dimensions", expected=f"1 to {MOST_DIMENSIONS}")
        for name, least in (("points", n), ("periodic", 0)):
            count = np.shape(getattr(self, name))
            if count not in ((n,), (least,)):
                raise ShapeError(name, got=count, expected=f"{n} of them, as many as low")
        for i, count in enumerate(self.points):
            require_integer("points", count, 2, index=(i,))
        if math.prod(map(int, self.points)) > MOST_VERTICES:
            raise ParameterError("points", got=f"{math.prod(self.points):,}", expected=f"at most {MOST_VERTICES:,}")
        for narrow in np.flatnonzero(~(self.spacing > _NARROWEST * np.maximum(np.abs(low), np.abs(high)))):
            got = f"neighbours {self.spacing[narrow]:g} apart at {high[narrow]:g}"
            expected = "vertices that differ: a wider box"
            raise ParameterError("low, high", index=(int(narrow),), got=got, expected=expected)

    @cached_property
    def _circle(self) -> tuple[bool, ...]:
        return tuple(bool(p) for p in self.periodic) or (False,) * len(self.low)

    @property
    def dimensions(self) -> int:
        """The dimension n of the box."""
        return len(self.low)

    @property
    def size(self) -> int:
        """S, the number of vertices."""
        return math.prod(self.points)

    @cached_property
    def spacing(self) -> Floats:
        """The distance D_i of neighbouring vertices [n]."""
        gaps = [count - (not circle) for count, circle in zip(self.points, self._circle, strict=True)]
        widths = np.asarray(self.high, np.float64) - np.asarray(self.low, np.float64)
        return np.asarray(widths / np.array(gaps))

    @cached_property
    def vertices(self) -> Floats:
        """Every vertex [S, n]."""
        axes = [low + step * np.arange(m) for low, step, m in zip(self.low, self.spacing, self.points, strict=True)]
        return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)

    def as_points(self, states: ArrayLike, field: str = "states") -> Floats:
        """Return states as an array [N, n], or refuse what has another shape."""
        found = as_floats(field, states, f"[N, {self.dimensions}]")
        if found.ndim != 2 or found.shape[1] != self.dimensions:
            raise ShapeError(field, got=found.shape, expected=f"[N, {self.dimensions}]")
        return found

    def outside(self, states: Floats) -> Flags:
        """Say which states are not finite or lie outside the box, up to rounding; circles have no outside [N]."""
        low, high = np.asarray(self.low), np.asarray(self.high)
        margin = _ROUNDING * (high - low)
        inside = np.isfinite(states) & (self._circle | ((states >= low - margin) & (states <= high + margin)))
        return np.asarray(~inside.all(axis=1))

    def clip(self, states: Floats) -> Floats:
        """Return the nearest states of the box; angles stay as they are."""
        return np.where(self._circle, states, np.clip(states, self.low, self.high))

    def corners(self, states: ArrayLike) -> Corners:
        """Return the corners of each state's cell and the weights lambda of interpolation; the box has to hold them."""
        points = self.as_points(states)
        bad = self.outside(points)
        if bad.any():
            i = int(bad.argmax())
            raise StateError("states", index=(i,), got=points[i].tolist(), expected=self.described)
        lowers, shares = [], []
        for i, circle in enumerate(self._circle):
            position = (points[:, i] - self.low[i]) / self.spacing[i]
            if circle:
                position = np.mod(position, self.points[i])
                cell = np.minimum(np.floor(position), self.points[i] - 1)
            else:
                position = np.clip(position, 0.0, self.points[i] - 1)
                cell = np.minimum(np.floor(position), self.points[i] - 2)
            lowers.append(cell.astype(np.int64))
            shares.append(position - cell)
        vertex = np.zeros((len(points), 2**self.dimensions), dtype=np.int64)
        weight = np.ones((len(points), 2**self.dimensions))
        for k, corner in enumerate(itertools.product((0, 1), repeat=self.dimensions)):
            for i, up in enumerate(corner):
                vertex[:, k] = vertex[:, k] * self.points[i] + (lowers[i] + up) % self.points[i]
                weight[:, k] *= shares[i] if up else 1.0 - shares[i]
        return Corners(vertex, weight)

    def interpolate(self, values: ArrayLike, states: ArrayLike) -> Floats:
        """Return (I f)(x) for values f(v) [S] at the vertices and states x [N, n]."""
        known = as_floats("values", values, (self.size,))
        vertex, weight = self.corners(states)
        return np.asarray((known[vertex] * weight).sum(axis=1))

    @property
    def described(self) -> str:
        """The box in words."""
        sides = [
            f"any angle (period {high - low:g})" if circle else f"[{low:g}, {high:g}]"
            for low, high, circle in zip(self.low, self.high, self._circle, strict=True)
        ]
        return "a state in " + " x ".join(sides)
