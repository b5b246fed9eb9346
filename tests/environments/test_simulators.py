from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import scipy.sparse as sp

from occamrl.errors import InvalidInput, ProbabilityError
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.simulators import Simulators
from occamrl.problems.lakes import FrozenLake
from occamrl.problems.mdp import FiniteMDP
from tests import cases


def kernels(count: int = 3, states: int = 4) -> Any:
    return np.random.default_rng(2).dirichlet(np.ones(states), size=(count, states, 2))


def test_a_kernel_is_the_same_however_it_is_given() -> None:
    first, second, third = kernels()
    problem = FiniteMDP(transition=third, reward=np.full((4, 2), 0.5), horizon=3)
    sims = Simulators([first, sp.csr_array(second.reshape(8, 4)), problem], names=["a", "b", "c"])
    assert (sims.states, sims.actions, len(sims)) == (4, 2, 3)
    for j, kernel in enumerate((first, second, third)):
        assert sims.features.kernel(np.eye(3)[j]) == pytest.approx(kernel, abs=1e-15)
    assert sims.error(0.05) == 0.0
    assert sims.widen_mixture(episodes=10, horizon=3, delta=0.1)["delta"] == 0.1


def test_environments_with_tables_are_read_with_their_rewards() -> None:
    slippery, dry = (gym.make("FrozenLake-v1", is_slippery=flag) for flag in (True, False))
    sims = Simulators([dry, slippery])
    problem = FrozenLake(slip=(10, 10))
    layout = sims.features.attach(problem.mdp.known)  # every outcome of the table has a reward that is known
    assert layout.outcomes.bonus.max() == 1.0
    assert sims.features.kernel([0.0, 1.0]) == pytest.approx(problem.mdp.kernel(), abs=1e-9)


def test_a_function_is_estimated_and_its_error_shrinks_with_draws() -> None:
    exact = kernels(1)[0]

    def simulate(s: int, a: int, rng: np.random.Generator) -> int:
        return int(rng.choice(4, p=exact[s, a]))

    few, many = (Simulators([exact, simulate], draws=draws, seed=3) for draws in (100, 1_600))
    assert few.estimated == (1,)
    distances = [0.5 * np.abs(sims.features.kernel([0.0, 1.0]) - exact).sum(axis=2).max() for sims in (few, many)]
    errors = [sims.error(0.01) for sims in (few, many)]
    assert all(distance <= error for distance, error in zip(distances, errors, strict=True))
    assert errors[1] == pytest.approx(errors[0] / 4.0, rel=0.2)  # like 1/sqrt(draws)


def test_the_widened_radius_is_the_formula() -> None:
    problem = cases.mixture(0, dimension=2)
    kernel = problem.transition

    def simulate(s: int, a: int, rng: np.random.Generator) -> int:
        return int(rng.choice(4, p=kernel[s, a]))

    sims = Simulators([kernel, simulate], draws=200)
    episodes, horizon, delta = 50, problem.mdp.horizon, 0.1
    learner = UCRLVTRLin(features=sims.features, **sims.widen_mixture(episodes=episodes, horizon=horizon, delta=delta))
    assert learner.event is not None
    c, bias = learner.scale**-2, episodes * horizon * sims.error(delta / 2.0) ** 2
    assert 0.0 < c < 1.0
    for logdet in (0.0, 7.0):  # beta = (1/c)((logdet + 2 log(2/delta))/4 + lambda b^2) + n e^2/(1 - c)
        noise = 0.25 * (logdet + 2.0 * math.log(2.0 / delta)) + 1.0
        model = learner.model(problem.mdp.known)
        beta = model.scale**2 * (0.25 * (logdet + model.slack + 2.0 * math.log(1.0 / model.delta)) + 1.0)
        assert beta == pytest.approx(noise / c + bias / (1.0 - c), rel=1e-9)


def test_the_ladder_holds_mixtures_of_one_then_two_simulators() -> None:
    sims = Simulators(kernels())
    ladder = sims.ladder(most=3, grid=4)
    assert ladder.sizes == [3, 3 + 3 * 3, 3 + 9 + 3]  # pairs in quarters; 2 + 1 + 1 quarters in three orders
    assert {tuple(sorted(column)) for column in ladder.family.theta.T[12:]} == {(0.25, 0.25, 0.5)}
    assert ladder.family.theta.sum(axis=0) == pytest.approx(np.ones(15))


@pytest.mark.parametrize(
    ("candidates", "options"),
    [
        ([], {}),
        ([kernels(1)[0], kernels(1, 3)[0]], {}),
        ([lambda s, a, rng: 0], {}),
        ([kernels(1)[0], "rain"], {}),
        ([kernels(1)[0]], {"names": ["a", "b"]}),
        (list(kernels(2)), {"names": ["a", "a"]}),
        ([kernels(1)[0]], {"draws": 0}),
        ([gym.make("CartPole-v1")], {}),
        (None, {}),
        ([lambda s, a, rng: 0], {"states": 0, "actions": 1}),
        ([lambda s, a, rng: 0], {"states": "x", "actions": 1}),
        ([lambda s, a: 0], {"states": 2, "actions": 1, "draws": 2}),
        ([lambda s, a, rng: 1 // 0], {"states": 2, "actions": 1, "draws": 2}),
        ([sp.csr_array(np.eye(3)[:2])], {}),
        ([np.full((2, 2, 2), np.nan)], {}),
        ([lambda s, a, rng: 0], {"states": 2, "actions": 1, "draws": 2, "support": np.ones((2, 2))}),
        ([lambda s, a, rng: 0], {"states": 5_000, "actions": 1, "draws": 2}),  # 25 million transitions
    ],
)
def test_bad_candidates_are_refused(candidates: list[Any], options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Simulators(candidates, **options)


@pytest.mark.parametrize(
    "options", [{"most": 4}, {"most": 0}, {"most": 3, "grid": 2}, {"most": 3, "grid": 2_000}, {"reach": -0.1}]
)
def test_ladders_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Simulators(kernels()).ladder(**options)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("row", [[1.5, -0.5], [0.5, 0.6]])
def test_what_is_no_kernel_is_refused_with_its_place(row: list[float], sparse: bool) -> None:
    kernel = np.full((2, 3, 2), 0.5)
    kernel[1, 2] = row
    given: Any = sp.csr_array(kernel.reshape(6, 2)) if sparse else kernel
    with pytest.raises(ProbabilityError) as caught:
        Simulators([np.full((2, 3, 2), 0.5), given])
    assert caught.value.index == (1, 1, 2)


@pytest.mark.parametrize("episodes", [0, -5, "x"])
def test_a_run_that_cannot_be_is_not_widened_for(episodes: Any) -> None:
    sims = Simulators([lambda s, a, rng: 0], states=2, actions=1, draws=5)
    with pytest.raises(InvalidInput, match="episodes"):
        sims.widen_mixture(episodes=episodes, horizon=3)
