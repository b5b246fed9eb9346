"""Grids, interpolation and kernels on them: exact, or within the proved bounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import norm

import occamrl as orl
from occamrl.control.vertices import Grid, Rule, Step, discretise, normal_rule, quantile_rule
from occamrl.errors import InvalidInput, ParameterError
from occamrl.protocols import Floats

TURN = 0.7
SIGMA = 0.5
HORIZON = 5
System = tuple[Step, Rule]


@pytest.mark.parametrize(("n", "seed"), [(1, 0), (2, 1), (3, 2), (2, 3), (3, 4)])
def test_weights_are_a_distribution_whose_mean_is_the_point(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = rng.uniform(-5.0, 5.0, n)
    circle = rng.random(n) < 0.5
    points = rng.integers(2, 6, n).tolist()
    high = low + rng.uniform(0.1, 9.0, n)
    grid = Grid(low=low.tolist(), high=high.tolist(), points=points, periodic=circle.tolist())
    states = rng.uniform(grid.low, grid.high, size=(20, n))
    vertex, weight = grid.corners(states)
    assert weight.min() >= 0.0
    np.testing.assert_allclose(weight.sum(axis=1), 1.0, atol=1e-12)
    mean = (grid.vertices[vertex] * weight[:, :, None]).sum(axis=1)
    np.testing.assert_allclose(mean[:, ~circle], states[:, ~circle], atol=1e-9)
    np.testing.assert_allclose(
        grid.interpolate(np.arange(grid.size), grid.vertices), np.arange(grid.size), atol=1e-6
    )
    turned = states + circle * 3.0 * (np.array(grid.high) - grid.low)  # angles wrap around
    values = rng.random(grid.size)
    np.testing.assert_allclose(
        grid.interpolate(values, turned), grid.interpolate(values, states), atol=1e-9
    )


def test_multilinear_functions_are_reproduced() -> None:
    rng = np.random.default_rng(0)
    grid = Grid(low=[-1.0, 0.0, 2.0], high=[1.0, 3.0, 5.0], points=[3, 4, 2])
    c = rng.normal(size=8)

    def f(p: Floats) -> Floats:
        x, y, z = p.T
        return np.asarray(np.stack([x**0, x, y, z, x * y, x * z, y * z, x * y * z], axis=1) @ c)

    states = rng.uniform(grid.low, grid.high, size=(50, 3))
    np.testing.assert_allclose(
        grid.interpolate(f(grid.vertices), states), f(states), rtol=1e-9, atol=1e-9
    )


def circle(points: int) -> Grid:
    return Grid(low=[-math.pi], high=[math.pi], points=[points], periodic=[True])


def rotation(nodes: int = 2_000, *, hermite: bool = False) -> System:
    """A rotation with normal noise, whose values are known in closed form."""
    rule = quantile_rule(lambda u: SIGMA * norm.ppf(u), nodes)
    if hermite:
        rule = normal_rule([SIGMA], nodes)
    return lambda s, a, noise: s + a[0] * TURN + noise, rule


def exact(x: Floats) -> Floats:
    k = np.arange(HORIZON)[:, None]
    return np.asarray(
        0.5 * (HORIZON + (np.exp(-0.5 * k * SIGMA**2) * np.cos(x + k * TURN)).sum(axis=0))
    )


def solved(points: int) -> tuple[Grid, Floats]:
    grid = circle(points)
    reward = 0.5 * (1.0 + np.cos(grid.vertices))
    kernel = discretise(*rotation(), grid, [1.0])
    mdp = orl.FiniteMDP(transition=kernel, reward=reward, horizon=HORIZON)
    return grid, mdp.optimal_values[0]


def test_values_are_within_the_bound_and_converge_with_the_square_of_the_spacing() -> None:
    # |V_h''| <= 1/2 sum_k exp(-k sigma^2/2): D^2/8 times that, once for every step
    bends = 0.0
    for steps in range(1, HORIZON + 1):
        bends += 0.5 * sum(math.exp(-0.5 * k * SIGMA**2) for k in range(steps))
    states = circle(12).vertices
    gaps = []
    for points in (12, 24, 48):
        grid, values = solved(points)
        error = np.abs(values - exact(grid.vertices[:, 0])).max()
        assert error <= bends * grid.spacing[0] ** 2 / 8.0
        gaps.append(np.abs(grid.interpolate(values, states) - exact(states[:, 0])).max())
    np.testing.assert_allclose(np.log2(np.array(gaps[:-1]) / gaps[1:]), 2.0, atol=0.1)


def test_rules_integrate_and_more_nodes_help() -> None:
    fine = discretise(*rotation(), circle(12), [1.0]).toarray()
    gaps = [
        np.abs(discretise(*rotation(n, hermite=True), circle(12), [1.0]).toarray() - fine).max()
        for n in (3, 90)
    ]
    assert gaps[1] < 0.1 * gaps[0]


def line() -> Grid:
    return Grid(low=[0.0], high=[1.0], points=[5])


def moved(step: Step) -> System:
    return step, normal_rule([0.0], 1)


def test_only_reachable_states_have_to_be_covered() -> None:
    half = moved(lambda s, a, w: np.where(s <= 0.5, 0.5 * s, 2.0))
    assert discretise(*half, line(), [0.0], start=[[0.25]]).shape == (5, 5)
    with pytest.raises(ParameterError, match="covers the reachable states"):
        discretise(*half, line(), [0.0], start=[[0.8]])
    with pytest.raises(
        ParameterError, match=r"got \[1.25\] from state \[0.75\] under action \[2.0\].*\[0, 1\]"
    ):
        discretise(*moved(lambda s, a, w: s + 0.25 * a[0]), line(), [0.0, 2.0])


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (
            lambda: discretise(*moved(lambda s, a, w: np.where(s > 0.9, np.nan, s)), line(), [0.0]),
            ParameterError,
        ),
        (lambda: discretise(*moved(lambda s, a, w: s[:1]), line(), [0.0]), InvalidInput),
        (lambda: discretise(*rotation(3), circle(4), [[math.nan]]), InvalidInput),
        (lambda: discretise(*rotation(3), line(), [0.0], start=[[3.0]]), InvalidInput),
        (lambda: Grid(low=[0.0], high=[math.nan], points=[3]), ParameterError),
        (lambda: Grid(low=[0.0], high=[1.0], points=[1]), ParameterError),
        (lambda: Grid(low=[0.0], high=[1.0], points=[3, 3]), InvalidInput),
        (lambda: line().interpolate(np.zeros(5), [[1.1]]), ParameterError),
        (lambda: line().interpolate(np.zeros(5), [[math.nan]]), ParameterError),
        (lambda: line().interpolate(np.zeros(4), [[0.5]]), InvalidInput),
    ],
)
def test_what_is_no_grid_and_no_model_is_refused(
    make: Callable[[], object], kind: type[InvalidInput]
) -> None:
    with pytest.raises(kind):
        make()
