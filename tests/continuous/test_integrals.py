"""Integrals of V over the next state, at any state: closed forms, kernels over vertices, and models of all kinds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from occamrl.continuous.discretise import anchored
from occamrl.continuous.grid import Grid, StateError
from occamrl.continuous.transitions import Density, Driven, Sampled, Transition, integrals, normal_rule
from occamrl.errors import ShapeError
from occamrl.protocols import Floats

BOX = Grid(low=[-10.0], high=[10.0], points=[21])


def shifted(by: float, nodes: int = 7) -> Driven:
    return Driven(step=lambda s, a, w: s + by * a[0] + w, rule=lambda n: normal_rule([0.5], n), nodes=nodes)


def bell(states: Floats, action: Floats, y: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * ((y[0] - states[:, 0]) / 0.5) ** 2) / (0.5 * math.sqrt(2.0 * math.pi)))


def drawn(draws: int) -> Sampled:
    return Sampled(sample=lambda s, a, rng: s + 0.5 * rng.normal(size=s.shape), draws=draws)


def test_a_linear_value_gives_the_mean_of_the_next_state() -> None:
    density = Density(density=bell, low=[-10.0], high=[10.0], cells=[80])
    models: list[Transition] = [shifted(1.0), shifted(-2.0, nodes=1), density]
    found = integrals(models, BOX, 3.0 * BOX.vertices[:, 0] + 1.0, np.array([[0.37]]), np.array([2.0]))
    np.testing.assert_allclose(found, [3.0 * 2.37 + 1.0, 3.0 * (0.37 - 4.0) + 1.0, 3.0 * 0.37 + 1.0], atol=1e-6)


def test_any_value_gives_what_the_kernel_over_the_vertices_gives() -> None:
    values, state, action = np.random.default_rng(0).normal(size=21), np.array([[1.234]]), np.array([1.0])
    models = [shifted(by, nodes) for by, nodes in ((0.3, 4), (-1.0, 9))]
    rows = np.stack([anchored(model, BOX, state, action)[0].toarray()[0] for model in models])
    np.testing.assert_allclose(integrals(models, BOX, values, state, action), rows @ values, atol=1e-12)


def test_fresh_draws_are_those_of_the_generator_and_have_their_spread() -> None:
    values, state, action, rng = np.abs(BOX.vertices[:, 0]), np.array([[2.0]]), np.ones(1), np.random.default_rng
    one, same, other = (integrals([drawn(400)], BOX, values, state, action, rng(seed))[0] for seed in (1, 1, 2))
    assert one == same
    assert one != other
    assert abs(one - 2.0) <= 6.0 * 0.5 / math.sqrt(400)  # six standard deviations
    fixed = [integrals([drawn(50)], BOX, values, state, action)[0] for _ in range(2)]
    assert fixed[0] == fixed[1]


def test_a_next_state_outside_is_named() -> None:
    with pytest.raises(StateError, match=r"from state \[9.9\] under action \[1.0\].*\[-10, 10\]") as caught:
        integrals([shifted(0.0), shifted(5.0)], BOX, np.zeros(21), np.array([[9.9]]), np.ones(1))
    assert caught.value.state == [9.9]


def test_a_simulator_that_gives_fewer_draws_than_it_was_asked_for_is_refused() -> None:
    """One next state for fifty would be taken for fifty draws that agree."""
    lazy = Sampled(sample=lambda s, a, rng: s[:1], draws=50)
    with pytest.raises(ShapeError, match=r"next states: got \(1, 1\), expected \(50, 1\)"):
        integrals([lazy], BOX, np.zeros(21), np.zeros((1, 1)), np.zeros(1), np.random.default_rng(0))
