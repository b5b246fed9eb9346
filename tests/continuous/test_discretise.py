"""Kernels on a grid against closed forms: a noisy rotation of a circle, whose values are known for every step.

The state x turns by c and a normal noise; the reward is (1 + cos x)/2. So E cos(x + kc + noise) = exp(-k sigma^2/2)
cos(x + kc), and V_1(x) = (H + sum_k exp(-k sigma^2/2) cos(x + kc))/2, k = 0 ... H - 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from occamrl.continuous.discretise import discretise, quadrature_error, reachable, refinement, vertex_law
from occamrl.continuous.grid import Grid, StateError
from occamrl.continuous.transitions import Atom, Driven, Rule, Transition, normal_rule, quantile_rule
from occamrl.errors import InvalidInput, ParameterError, ProbabilityError, ShapeError
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats

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


def solve(grid: Grid, transition: Transition) -> Floats:
    reward = 0.5 * (1.0 + np.cos(grid.vertices))
    kernel = discretise(transition, grid, [1.0])
    return np.asarray(FiniteMDP(transition=kernel, reward=reward, horizon=HORIZON).optimal_values[0])


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
        grid = circle(points)
        found = solve(grid, finely())
        gap = float(np.abs(found - exact(grid.vertices[:, 0])).max())
        # |V_h''| <= 1/2 sum_k exp(-k sigma^2/2): the smooth bound, once for every step
        bends = [0.5 * sum(math.exp(-0.5 * k * SIGMA**2) for k in range(HORIZON - h)) for h in range(HORIZON)]
        assert gap <= sum(bends) * grid.spacing[0] ** 2 / 8.0
        errors.append(gap)
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    np.testing.assert_allclose(orders, 2.0, atol=0.1)


def test_the_estimated_error_is_the_true_one() -> None:
    grids = [circle(points) for points in (16, 32, 64)]
    report = refinement([(grid, solve(grid, finely())) for grid in grids], states=grids[0].vertices)
    assert report.order == pytest.approx(2.0, abs=0.1)
    for grid, estimate, start in zip(grids, report.errors, report.at_start, strict=True):
        gap = grid.interpolate(solve(grid, finely()), grids[0].vertices) - exact(grids[0].vertices[:, 0])
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
    with pytest.raises(ParameterError, match="ratio"):
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
    ) as caught:
        discretise(drift(0.25), line(), [0.0, 2.0])
    assert caught.value.state == [0.75]
    assert caught.value.action == [2.0]


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


def test_a_state_between_vertices_has_a_law_of_its_own() -> None:
    kernel, left, _ = vertex_law(drift(0.0), line(), np.array([[0.3]]), np.array([1.0]))
    np.testing.assert_allclose(kernel.toarray(), [[0.0, 0.8, 0.2, 0.0, 0.0]], atol=1e-12)
    assert not left.any()


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


@pytest.mark.parametrize("start", [[[3.0]], [[math.nan]], [0.5], np.zeros((0, 1))])
def test_a_start_outside_is_refused_though_no_state_leaves_the_box(start: Any) -> None:
    with pytest.raises(InvalidInput, match=r"start|states\[0\]"):
        discretise(drift(0.0), line(), [0.0], start=start)
