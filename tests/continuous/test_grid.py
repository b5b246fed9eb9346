"""Grids, interpolation and kernels on them: exact where it must be, within the proved bounds elsewhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from occamrl.continuous.discretise import discretise, quadrature_error, reachable, refinement
from occamrl.continuous.grid import Grid, StateError
from occamrl.continuous.transitions import Atom, Driven, Rule, Transition, normal_rule, quantile_rule
from occamrl.errors import InvalidInput, ParameterError, ProbabilityError, ShapeError
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats


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


def test_angles_wrap_around() -> None:
    grid = Grid(low=[-math.pi], high=[math.pi], points=[8], periodic=[True])
    values = np.cos(grid.vertices[:, 0])
    turned = grid.interpolate(values, [[3.0 + 2.0 * math.pi], [3.0], [3.0 - 4.0 * math.pi]])
    np.testing.assert_allclose(turned, turned[0])
    assert grid.corners([[math.pi - 1e-12]]).vertex[0].tolist() == [7, 0]


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


TURN, SIGMA, HORIZON = 0.7, 0.5, 5


def circle(points: int) -> Grid:
    return Grid(low=[-math.pi], high=[math.pi], points=[points], periodic=[True])


def rotate(states: Floats, action: Floats, noise: Floats) -> Floats:
    return np.asarray(states + action[0] * TURN + noise)


def density(states: Floats, action: Floats, y: Floats) -> Floats:
    gaps = y[0] - states[:, 0] - action[0] * TURN + 2.0 * math.pi * np.arange(-4, 5)[:, None]
    return np.asarray(np.exp(-0.5 * (gaps / SIGMA) ** 2).sum(axis=0) / (SIGMA * math.sqrt(2.0 * math.pi)))


def driven(nodes: int = 9) -> Driven:
    return Driven(step=rotate, rule=lambda n: normal_rule([SIGMA], n), nodes=nodes)


def finely() -> Driven:
    return Driven(step=rotate, rule=lambda n: quantile_rule(lambda u: SIGMA * norm.ppf(u), n), nodes=4_000)


def exact(x: Floats, first: int = 0) -> Floats:
    k = np.arange(HORIZON - first)[:, None]
    return np.asarray(0.5 * (HORIZON - first + (np.exp(-0.5 * k * SIGMA**2) * np.cos(x + k * TURN)).sum(axis=0)))


@cache
def solved(points: int) -> tuple[Grid, Floats]:
    grid = circle(points)
    reward, kernel = 0.5 * (1.0 + np.cos(grid.vertices)), discretise(finely(), grid, [1.0])
    return grid, np.asarray(FiniteMDP(transition=kernel, reward=reward, horizon=HORIZON).optimal_values[0])


@pytest.mark.parametrize("make", [driven, finely])
def test_rows_are_the_integrals_of_hats(make: Any) -> None:
    grid = circle(7)
    kernel: Any = discretise(make(100) if make is driven else make(), grid, [0.0, 1.0]).toarray()
    y = np.linspace(-math.pi, math.pi, 2_001)[:-1]
    for s, a in ((0, 0), (3, 1), (6, 1)):
        p = np.array([density(grid.vertices[[s]], np.array([float(a)]), np.array([each]))[0] for each in y])
        vertex, weight = grid.corners(y[:, None])
        row = np.zeros(7)
        np.add.at(row, vertex, weight * (p / p.sum())[:, None])
        np.testing.assert_allclose(kernel[s * 2 + a], row, atol=2e-3 if make is driven else 1e-4)


def test_values_are_within_the_bound_and_converge_at_order_two() -> None:
    errors = []
    for points in (16, 32, 64):
        grid, found = solved(points)
        gap = float(np.abs(found - exact(grid.vertices[:, 0])).max())
        # |V_h''| <= 1/2 sum_k exp(-k sigma^2/2): the smooth bound, once for every step
        bends = [0.5 * sum(math.exp(-0.5 * k * SIGMA**2) for k in range(HORIZON - h)) for h in range(HORIZON)]
        assert gap <= sum(bends) * grid.spacing[0] ** 2 / 8.0
        errors.append(gap)
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    np.testing.assert_allclose(orders, 2.0, atol=0.1)


def test_the_estimated_error_is_the_true_one() -> None:
    solutions, states = [solved(points) for points in (16, 32, 64)], circle(16).vertices
    report = refinement(solutions, states=states)
    assert report.order == pytest.approx(2.0, abs=0.1)
    for (grid, found), estimate, start in zip(solutions, report.errors, report.at_start, strict=True):
        gap = grid.interpolate(found, states) - exact(states[:, 0])
        assert estimate == pytest.approx(np.abs(gap).max(), rel=0.1)
        assert start == pytest.approx(gap[0], rel=0.1)
    assert "16 vertices: error about" in str(report)


def test_no_estimate_without_convergence() -> None:
    grids = [circle(points) for points in (4, 8, 16)]
    values = [np.zeros(4), np.ones(8), np.zeros(16)]
    report = refinement(list(zip(grids, values, strict=True)), grids[0].vertices)
    assert math.isnan(report.errors[0])
    assert "not converging" in str(report)
    with pytest.raises(ParameterError, match="solutions"):
        refinement([(circle(n), np.zeros(n)) for n in (4, 8)], grids[0].vertices)
    with pytest.raises(ParameterError, match="twice as fine"):
        refinement([(circle(n), np.zeros(n)) for n in (4, 8, 12)], grids[0].vertices)


def test_more_nodes_lower_the_quadrature_error() -> None:
    few, many = (quadrature_error(driven(nodes), circle(12), [1.0]) for nodes in (3, 24))
    assert many < 0.3 * few


def line(points: int = 5) -> Grid:
    return Grid(low=[0.0], high=[1.0], points=[points])


def drift(by: float) -> Driven:
    return Driven(step=lambda s, a, w: s + by * a[0], rule=lambda n: normal_rule([0.0], n), nodes=1)


def test_a_grid_that_does_not_cover_the_reachable_states_is_refused() -> None:
    with pytest.raises(
        StateError, match=r"next state\[3\]: got \[1.25\] from state \[0.75\] under action \[2.0\].*\[0, 1\]"
    ):
        discretise(drift(0.25), line(), [0.0, 2.0])


def test_only_reachable_states_have_to_be_covered() -> None:
    half = Driven(step=lambda s, a, w: np.where(s <= 0.5, 0.5 * s, 2.0), rule=lambda n: normal_rule([0.0], n), nodes=1)
    kernel: Any = discretise(half, line(), [0.0], start=[[0.25]])
    assert reachable(kernel, line(), [[0.25]]).tolist() == [True, True, False, False, False]
    with pytest.raises(StateError, match="covers the reachable states"):
        discretise(half, line(), [0.0], start=[[0.8]])


def test_models_that_break_are_refused_by_state_and_action() -> None:
    def nan_at_the_end(s: Floats, a: Floats, w: Floats) -> Floats:
        return np.where((s > 0.9) & (a[0] > 0.0), np.nan, s)

    rule = drift(0.0).rule
    with pytest.raises(StateError, match=r"nan.*from state \[1.0\] under action \[1.0\].*finite"):
        discretise(Driven(step=nan_at_the_end, rule=rule), line(), [0.0, 1.0], start=[[0.0]])
    with pytest.raises(ShapeError, match="next states"):
        discretise(Driven(step=lambda s, a, w: s[:1], rule=rule), line(), [0.0])
    heavy = Driven(step=rotate, rule=lambda n: normal_rule([0.1], n)._replace(weights=np.full(n, 1.0)), nodes=3)
    with pytest.raises(ProbabilityError, match="sum to"):
        discretise(heavy, circle(4), [0.0])
    with pytest.raises(ShapeError, match="actions"):
        discretise(driven(), circle(4), [[math.nan]])
    outside: list[Any] = [[[3.0]], [[math.nan]], [0.5], np.zeros((0, 1))]  # though no state leaves the box
    for start in outside:
        with pytest.raises(InvalidInput, match=r"start|states\[0\]"):
            discretise(drift(0.0), line(), [0.0], start=start)


def ruled(rule: Any, nodes: Any = 2) -> Driven:
    return Driven(step=lambda s, a, w: s, rule=lambda n: rule, nodes=nodes)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: ruled(Rule(np.zeros((2, 1)), np.array([1.5, -0.5]))), "rule.*-0.5"),
        (lambda: ruled(Rule(np.zeros((3, 1)), np.array([0.5, 0.5]))), r"rule.*\(3, 1\) and weights \(2,\)"),
        (lambda: ruled(Rule(np.zeros((2, 1)), np.array([math.nan, 1.0]))), "rule.*nan"),
        (lambda: ruled(Rule(np.full((1, 1), math.nan), np.ones(1))), "rule.*not finite"),
        (lambda: ruled(3), "rule"),
        (lambda: ruled(None, nodes=0), "nodes"),
    ],
)
def test_models_that_are_none_are_refused_by_name(make: Callable[[], Transition], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        discretise(make(), line(), [0.0])


def test_a_model_of_ones_own_with_negative_weights_is_no_kernel() -> None:
    class Odd:
        def atoms(self, states: Floats, action: Floats) -> Iterator[Atom]:
            yield Atom(states, np.full(len(states), 1.5))
            yield Atom(np.zeros_like(states), np.full(len(states), -0.5))

        def finer(self) -> Odd:
            return self

    with pytest.raises(ProbabilityError, match=r"weight -0\.5"):
        discretise(Odd(), line(), [0.0])
