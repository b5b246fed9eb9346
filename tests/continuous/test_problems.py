"""The problems on a box: their physics against Gymnasium's, their values against closed forms, their grids' errors."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import occamrl as orl
from occamrl.problems.boxes import (
    CAPACITY,
    ENGINES,
    FLAG,
    FRICTIONS,
    ContinuousInventory,
    ContinuousProblem,
    MountainCar,
    Pendulum,
    drive,
    swing,
)

NOTHING = np.zeros((1, 1))
SMALL: list[ContinuousProblem] = [
    Pendulum(resolution=6, horizon=5),
    MountainCar(resolution=6, horizon=5),
    ContinuousInventory(resolution=6, horizon=5, nodes=20),
]


def test_without_friction_the_pendulum_is_that_of_gymnasium() -> None:
    env: Any = gym.make("Pendulum-v1").unwrapped
    rng = np.random.default_rng(0)
    for _ in range(50):
        angle, speed, torque = rng.uniform([-np.pi, -8.0, -2.0], [np.pi, 8.0, 2.0])
        env.reset(seed=0)
        env.state = np.array([angle, speed])
        _, cost, _, _, _ = env.step([torque])
        ours = swing(FRICTIONS["none"], 1, np.array([[angle, speed]]), np.array([torque]), NOTHING)[0]
        assert math.remainder(ours[0] - env.state[0], 2.0 * np.pi) == pytest.approx(0.0, abs=1e-9)
        assert ours[1] == pytest.approx(env.state[1], abs=1e-9)
        reward = Pendulum().reward(np.array([[angle, speed]]), np.array([torque]))[0]
        assert reward == pytest.approx(1.0 + cost / (np.pi**2 + 6.4 + 0.004), abs=1e-6)


def test_with_the_engine_as_built_the_car_is_that_of_gymnasium() -> None:
    env: Any = gym.make("MountainCar-v0").unwrapped
    rng = np.random.default_rng(0)
    for _ in range(50):
        position, speed = rng.uniform([-1.2, -0.07], [FLAG - 0.1, 0.07])
        action = int(rng.integers(3))
        env.reset(seed=0)
        env.state = np.array([position, speed])
        env.step(action)
        ours = drive(ENGINES["as built"], 1, np.array([[position, speed]]), np.array([action - 1.0]), NOTHING)[0]
        if env.state[0] > -1.2:  # Gymnasium stops the car in the step that meets the wall, we do in the next
            np.testing.assert_allclose(ours, env.state, atol=1e-12)


def test_a_car_at_the_flag_stays() -> None:
    there = np.array([[FLAG, 0.03], [0.58, -0.07]])
    np.testing.assert_array_equal(drive(ENGINES["weak"], 8, there, np.array([-1.0]), NOTHING), there)


def test_one_day_of_the_inventory_in_closed_form() -> None:
    problem = ContinuousInventory(
        mixture=((3, 1.0),), horizon=1, resolution=40, nodes=2_000
    )  # demand uniform on [4, 8]
    unit = problem.unit

    def euros(filled: float, order: float) -> float:
        sold = filled if filled <= 4.0 else 6.0 if filled >= 8.0 else filled - (filled - 4.0) ** 2 / 8.0
        return 4.0 * sold - 0.5 * (filled - sold) - 3.0 * (order > 0.0)

    for stock in (0.0, 3.0, 7.5, 10.0):
        best = max(euros(min(stock + order, CAPACITY), order) for order in (0.0, 2.0, 4.0, 6.0, 8.0))
        found = problem.mdp.optimal_values[0, round(4 * stock)]
        assert found * unit.scale + unit.low == pytest.approx(best, abs=2e-3)


@pytest.mark.parametrize("problem", SMALL, ids=lambda p: type(p).__name__)
def test_the_truth_is_the_mixture_of_its_candidates(problem: ContinuousProblem) -> None:
    features = orl.FeatureMap(problem.phi)
    assert features.dimension == len(problem.names) == 10
    np.testing.assert_allclose(features.kernel(problem.theta), problem.mdp.kernel(), atol=1e-12)
    features.attach(problem.mdp.known)  # every outcome of a candidate has a known reward
    assert np.count_nonzero(problem.theta) == 2


def test_the_error_estimate_of_the_inventory_is_near_the_true_one() -> None:
    problem = ContinuousInventory()
    report, fine = problem.discretisation_error(), problem.refined(32)
    there = np.concatenate([[problem.start], problem.grid.vertices])
    gap = problem.grid.interpolate(problem.mdp.optimal_values[0], there)
    gap = gap - fine.grid.interpolate(fine.mdp.optimal_values[0], there)
    assert 0.5 <= report.errors[0] / np.abs(gap).max() <= 2.0  # orders change where values have kinks
