"""A Box cut into cells, and how much that costs.

Inside a cell all points are treated alike. That is exact if what follows depends on the cell alone; where it also
depends on the place in the cell, no kernel on cells describes the environment. :func:`inconsistency` measures it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from occamrl import seeding
from occamrl.contracts import Floats, Ints
from occamrl.environments.misbehaviour import SpaceError
from occamrl.errors import ParameterError
from occamrl.problems.checks import require_integer


@dataclass(frozen=True, eq=False)
class Discretiser:
    """Cells between edges, in every dimension of a Box; the last dimension runs fastest.

    Parameters
    ----------
    edges : sequence of sequences of numbers
        For each dimension the m + 1 increasing edges of m cells. A point on an edge belongs to the cell above it, one
        on the last edge to the last cell. The first and last may be infinite.
    shape : tuple of int, optional
        Of the Box; by default one-dimensional.
    """

    edges: Sequence[Sequence[float]]
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.edges) == 0 or (self.shape is not None and int(np.prod(self.shape)) != len(self.edges)):
            raise ParameterError("edges", got=f"{len(self.edges)} dimensions", expected=f"those of shape {self.shape}")
        for i, row in enumerate(self.edges):
            try:
                array = np.asarray(row, dtype=np.float64)
            except (TypeError, ValueError):
                array = np.zeros(0)
            if array.ndim != 1 or array.size < 2 or not (np.diff(array) > 0.0).all():  # false where not a number
                raise ParameterError("edges", index=(i,), got=row, expected="two or more increasing numbers")

    @classmethod
    def uniform(cls, space: spaces.Space[Any], cells: int | Sequence[int]) -> Discretiser:
        """Return equal cells over a bounded Box, ``cells`` in each dimension."""
        if not isinstance(space, spaces.Box):
            raise SpaceError("space", got=f"{space}", expected="a Box")
        low, high = (np.asarray(end, dtype=np.float64).ravel() for end in (space.low, space.high))
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            i = int(np.argmax(~(np.isfinite(low) & np.isfinite(high))))
            got = f"a Box without bounds: [{low[i]}, {high[i]}]"
            raise SpaceError(
                "space", index=(i,), got=got, expected="finite bounds, or a Discretiser with your own edges"
            )
        counts = [cells] * low.size if isinstance(cells, int) else list(cells)
        if len(counts) != low.size:
            raise ParameterError("cells", got=f"{len(counts)} numbers", expected=f"{low.size}, one per dimension")
        edges = [
            np.linspace(a, b, require_integer("cells", n, 1) + 1).tolist()
            for a, b, n in zip(low, high, counts, strict=True)
        ]
        return cls(edges, shape=tuple(space.shape))

    @cached_property
    def _inner(self) -> list[Floats]:
        return [np.asarray(row, dtype=np.float64)[1:-1] for row in self.edges]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The number of cells in each dimension."""
        return tuple(len(row) - 1 for row in self.edges)

    @cached_property
    def size(self) -> int:
        """The number of cells."""
        return int(np.prod([float(count) for count in self.counts]))

    @property
    def widths(self) -> tuple[float, ...]:
        """The width of the widest cell in each dimension: no point is farther than half of it from a cell's middle."""
        return tuple(float(np.diff(np.asarray(row, dtype=np.float64)).max()) for row in self.edges)

    def require_fits(self, space: spaces.Box) -> None:
        """Refuse a Box of another shape."""
        expected = self.shape if self.shape is not None else (len(self.edges),)
        if tuple(space.shape) != expected:
            raise SpaceError("discretiser", got=f"a Box of shape {space.shape}", expected=f"shape {expected}")

    def encode(self, value: Any) -> int:
        """Return the cell of a point."""
        point = np.asarray(value, dtype=np.float64).ravel()
        if point.size != len(self.edges):
            raise SpaceError("observation", got=repr(value)[:80], expected=f"{len(self.edges)} numbers")
        index = 0
        for x, row, inner, count in zip(point.tolist(), self.edges, self._inner, self.counts, strict=True):
            if not row[0] <= x <= row[-1]:
                raise SpaceError("observation", got=x, expected=f"a number in [{row[0]}, {row[-1]}]")
            index = index * count + int(np.searchsorted(inner, x, side="right"))
        return index

    def decode(self, index: int) -> Any:
        """Return the middle of a cell (its finite edge, where the other is infinite)."""
        middle = []
        for row, count in zip(reversed(self.edges), reversed(self.counts), strict=True):
            index, cell = divmod(index, count)
            low, high = float(row[cell]), float(row[cell + 1])
            middle.append(0.5 * (low + high) if np.isfinite(low + high) else high if np.isfinite(high) else low)
        return np.array(middle[::-1], dtype=np.float32).reshape(self.shape or (len(self.edges),))

    def to_plain(self) -> dict[str, Any]:
        """Return plain data."""
        edges = [[float(edge) for edge in row] for row in self.edges]
        return {"kind": "cells", "edges": edges, "shape": list(self.shape or (len(self.edges),))}


@dataclass(frozen=True, kw_only=True)
class Inconsistency:
    """What cutting a Box into cells lost, measured by random play.

    ``lost[i]`` compares, for each cell and action, what followed in the lower and in the upper half of the cell in
    dimension i: the total variation distance of the two distributions of the next cell, less what halves drawn at
    random show. 0: the cell says all there is; 1: the halves never lead to the same cell. ``reward_spread`` is the
    largest range of rewards inside one cell and action; ``widths`` are those of the widest cells, ``visited`` is the
    share of cells seen.
    """

    lost: tuple[float, ...]
    reward_spread: float
    widths: tuple[float, ...]
    visited: float
    transitions: int

    def __str__(self) -> str:
        parts = ", ".join(
            f"{lost:.3f} (cells up to {width:.3g} wide)" for lost, width in zip(self.lost, self.widths, strict=True)
        )
        return (
            f"of the next cell's distribution, the place inside a cell decides, by dimension: {parts}; "
            f"rewards differ by up to {self.reward_spread:.3g} inside a cell; "
            f"{100 * self.visited:.0f}% of the cells seen in {self.transitions:,} steps"
        )


def inconsistency(
    env: gym.Env[Any, Any], discretiser: Discretiser, *, steps: int = 20_000, seed: int = 0, fewest: int = 16
) -> Inconsistency:
    """Play at random and measure what the cells hide; cells and actions with ``fewest`` visits or more count."""
    from occamrl.environments.spaces import codec_of

    codec_of(env.observation_space, discretiser)
    seen: dict[tuple[int, str], list[tuple[Floats, int, float]]] = defaultdict(list)
    cells: set[int] = set()
    observation, _ = env.reset(seed=int(seeding.stream(seed, "inconsistency").integers(2**31)))
    env.action_space.seed(seed)
    for _ in range(require_integer("steps", steps, 1)):
        action = env.action_space.sample()
        after, reward, terminated, truncated, _ = env.step(action)
        cell, next_cell = discretiser.encode(observation), discretiser.encode(after)
        cells.add(cell)
        seen[cell, repr(action)].append((np.asarray(observation, np.float64).ravel(), next_cell, float(reward)))
        observation = env.reset()[0] if terminated or truncated else after
    dimensions, generator = len(discretiser.edges), seeding.stream(seed, "inconsistency", "halves")
    lost, weight, spread = np.zeros(dimensions), 0.0, 0.0
    for visits in seen.values():
        spread = max(spread, float(np.ptp([reward for _, _, reward in visits])))
        if len(visits) < fewest:
            continue
        points, following = np.array([point for point, _, _ in visits]), np.array([cell for _, cell, _ in visits])
        weight += len(visits)
        for i in range(dimensions):
            upper = points[:, i].argsort(kind="stable").argsort(kind="stable") >= len(visits) // 2
            chance = np.mean([_distance(following, generator.permutation(upper)) for _ in range(4)])
            lost[i] += len(visits) * (_distance(following, upper) - chance)
    return Inconsistency(
        lost=tuple((lost / weight).tolist()) if weight else (float("nan"),) * dimensions,
        reward_spread=spread,
        widths=discretiser.widths,
        visited=len(cells) / discretiser.size,
        transitions=steps,
    )


def _distance(following: Ints, upper: ArrayLike) -> float:
    """Return the total variation distance of the next cells in two halves."""
    values, index = np.unique(following, return_inverse=True)
    mask = np.asarray(upper, dtype=bool)
    shares = [np.bincount(index[part], minlength=values.size) / max(1, part.sum()) for part in (mask, ~mask)]
    return 0.5 * float(np.abs(shares[0] - shares[1]).sum())
