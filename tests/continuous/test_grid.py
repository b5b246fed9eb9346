"""Grids and interpolation: exact where it must be, within the proved bounds elsewhere."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occamrl.continuous.grid import Grid, StateError
from occamrl.errors import InvalidInput, ParameterError, ShapeError


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    n = draw(st.integers(1, 3))
    low = [draw(st.floats(-5.0, 5.0)) for _ in range(n)]
    high = [x + draw(st.floats(0.1, 10.0)) for x in low]
    circles = [draw(st.booleans()) for _ in range(n)]
    return Grid(low=low, high=high, points=[draw(st.integers(2, 5)) for _ in range(n)], periodic=circles)


@given(grids(), st.integers(0, 2**32 - 1))
def test_weights_are_a_distribution_whose_mean_is_the_point(grid: Grid, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.uniform(grid.low, grid.high, size=(20, grid.dimensions))
    vertex, weight = grid.corners(points)
    assert weight.min() >= 0.0
    np.testing.assert_allclose(weight.sum(axis=1), 1.0, atol=1e-12)
    for i, circle in enumerate(grid._circle):
        if not circle:
            mean = (grid.vertices[vertex, i] * weight).sum(axis=1)
            np.testing.assert_allclose(mean, points[:, i], atol=1e-9)
    np.testing.assert_allclose(grid.interpolate(np.arange(grid.size), grid.vertices), np.arange(grid.size), atol=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_multilinear_functions_are_reproduced(seed: int) -> None:
    rng = np.random.default_rng(seed)
    grid = Grid(low=[-1.0, 0.0, 2.0], high=[1.0, 3.0, 5.0], points=[3, 4, 2])
    terms = list(itertools.product((0, 1), repeat=3))  # 1, z, y, yz, x, ...
    factors = rng.normal(size=len(terms))

    def f(x: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> list[float]:
        return [
            sum(c * math.prod(p**e for p, e in zip(q, t, strict=True)) for c, t in zip(factors, terms, strict=True))
            for q in x
        ]

    points = rng.uniform(grid.low, grid.high, size=(10, 3))
    np.testing.assert_allclose(grid.interpolate(f(grid.vertices), points), f(points), rtol=1e-9, atol=1e-9)


def test_the_bound_for_smooth_functions_holds_and_is_sharp() -> None:
    grid = Grid(low=[0.0, 0.0], high=[1.0, 2.0], points=[5, 5])
    points = np.random.default_rng(0).uniform([0, 0], [1, 2], size=(4_000, 2))
    middle = 0.5 * grid.spacing[None]  # of the first cell: the worst place for squares
    both = np.concatenate([points, middle])

    def f(x: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return 3.0 * x[:, 0] ** 2 + x[:, 1] ** 2

    gap = np.abs(grid.interpolate(f(grid.vertices), both) - f(both))
    bound = (grid.spacing**2 * [6.0, 2.0]).sum() / 8.0
    assert gap.max() <= bound + 1e-12
    assert gap[-1] == pytest.approx(bound)


def test_angles_wrap_around() -> None:
    grid = Grid(low=[-math.pi], high=[math.pi], points=[8], periodic=[True])
    values = np.cos(grid.vertices[:, 0])
    turned = grid.interpolate(values, [[3.0 + 2.0 * math.pi], [3.0], [3.0 - 4.0 * math.pi]])
    np.testing.assert_allclose(turned, turned[0])
    assert grid.corners([[math.pi - 1e-12]]).vertex[0].tolist() == [7, 0]


def test_refining_keeps_the_vertices() -> None:
    grid = Grid(low=[0.0, 0.0], high=[1.0, 1.0], points=[3, 4], periodic=[True, False])
    finer = {tuple(np.round(v, 9)) for v in grid.refine(2).vertices}
    assert {tuple(np.round(v, 9)) for v in grid.vertices} <= finer
    np.testing.assert_allclose(grid.refine(3).spacing * 3, grid.spacing)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"points": [1]}, r"points\[0\]"),
        ({"points": [3, 3]}, "points"),
        ({"points": [20_000_000]}, "at most"),
        ({"low": []}, "low"),
        ({"low": [None]}, "low"),
        ({"low": [[0.0]], "high": [[1.0]]}, "low"),
        ({"high": [0.0]}, r"low, high\[0\]"),
        ({"high": [math.nan]}, r"low, high\[0\]"),
        ({"low": [-1.7e308], "high": [1.7e308]}, r"low, high\[0\]"),
        ({"high": [5e-324]}, "vertices that differ"),
        ({"low": [1e16], "high": [1e16 + 4.0], "points": [50]}, "vertices that differ"),
        ({"periodic": np.array([True, False])}, "periodic"),
    ],
)
def test_boxes_without_a_grid_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Grid(**{"low": [0.0], "high": [1.0], "points": [3], **changes})


def test_bad_states_and_values_are_refused_by_name() -> None:
    grid = Grid(low=[0.0], high=[1.0], points=[3])
    for outside in (1.1, -0.1, math.nan, math.inf):
        with pytest.raises(StateError, match=r"states\[1\].*a state in \[0, 1\]"):
            grid.interpolate([0.0, 0.0, 0.0], [[0.5], [outside]])
    for bad in ([0.5], [["x"]]):
        with pytest.raises(ShapeError, match="states"):
            grid.corners(bad)
    with pytest.raises(ShapeError, match="values"):
        grid.interpolate([0.0], [[0.5]])
    with pytest.raises(ParameterError, match="times"):
        grid.refine(0)
