"""UCRL-VTR-LIN, compiled, against the plain NumPy implementation: the same numbers drawn, the same algorithm played."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.running.run import run
from tests.cases import Mixture, mixture, one_by_one

EPISODES, SEED = 40, 5
RADII = ("sharp", "paper", "unweighted", "ayoub")


def compare(case: Mixture, *, plain: dict[str, Any], **options: Any) -> None:
    """Play episode by episode; compare regret, planned values, plans, and the regression after the last episode."""
    horizon, norm_bound, delta = case.mdp.horizon, 1.3, 0.07
    learner = UCRLVTRLin(features=case.features, norm_bound=norm_bound, delta=delta, **options)
    expected = case.oracle(EPISODES, SEED, norm_bound=norm_bound, delta=delta, **plain)
    results = one_by_one(learner, case.mdp, EPISODES, SEED)
    np.testing.assert_allclose(results[-1].regret, expected["regret"], rtol=0, atol=1e-9)
    assert [result.plans for result in results] == list(np.cumsum(expected["planned"]))
    planned = [result.state.values[0, 0] for result in results]
    np.testing.assert_allclose(planned, expected["planned_value"], rtol=0, atol=1e-9)
    best = case.mdp.optimal_values[0, 0]
    assert results[-1].pessimistic_episodes == (expected["planned_value"] < best - 1e-9 * horizon).sum()
    np.testing.assert_allclose(results[-1].state.values, expected["values"], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(results[-1].state.policy, expected["policy"])
    statistics = learner.statistics(case.mdp.known, results[-1].state)
    sigma = statistics.gram.reshape(case.theta.size, -1) + learner.lam * np.eye(case.theta.size)
    np.testing.assert_allclose(sigma, expected["sigma"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(np.linalg.solve(sigma, statistics.xy), expected["theta"], rtol=0, atol=1e-9)
    assert statistics.episodes == EPISODES


@pytest.mark.parametrize("replan", [0.0, 0.2])
@pytest.mark.parametrize("clip", ["step", "horizon"])
@pytest.mark.parametrize("weights", ["range", "none"])
@pytest.mark.parametrize("radius", RADII)
def test_every_form_agrees_with_the_oracle(radius: str, weights: str, clip: Any, replan: float) -> None:
    case = mixture(RADII.index(radius))
    shared: dict[str, Any] = {"radius": radius, "weights": weights, "replan": replan, "scale": 0.3}
    plain = {**shared, "paper_clip": clip == "horizon"}
    compare(case, plain=plain, clip=clip, **shared)


@pytest.mark.parametrize("weights", ["range", "none"])
def test_full_support_takes_the_batched_path_to_the_same_plans(weights: str) -> None:
    case = mixture(11, full_support=True, states=5, dimension=4)
    shared: dict[str, Any] = {"weights": weights, "replan": 0.2, "scale": 0.3}
    compare(case, plain=shared, **shared)


@pytest.mark.parametrize("seed", range(3))
def test_regularization_scale_and_the_paper_constant(seed: int) -> None:
    case = mixture(20 + seed)
    shared: dict[str, Any] = {"radius": "paper", "weights": "none", "replan": 0.0, "paper_constant": 0.02, "scale": 0.5}
    compare(case, plain={**shared, "lam": 0.4}, regularization=0.4, **shared)
    shared = {"radius": "ayoub", "weights": "none", "replan": 0.2}
    plain = {**shared, "lam": 3 / (4 * 1.3**2), "paper_clip": True}
    compare(case, plain=plain, regularization="scaled", **shared)


def test_the_radius_of_ayoub_cuts_values_at_the_horizon_unless_told_otherwise() -> None:
    case = mixture(3)
    options: dict[str, Any] = {"radius": "ayoub", "weights": "none", "norm_bound": 50.0}
    clips: tuple[tuple[dict[str, Any], list[float]], ...]
    clips = ({}, [4.0, 4.0, 4.0]), ({"clip": "step"}, [4.0, 3.0, 2.0])
    for clip, ceiling in clips:
        result = run(UCRLVTRLin(features=case.features, **clip, **options), case.mdp, episodes=1)
        assert result.state.values[:3].max(axis=1) == pytest.approx(ceiling)


def test_the_comparison_can_fail() -> None:
    """Negative control: each option that the grid varies changes what is compared."""
    case = mixture(0)
    base: dict[str, Any] = {"radius": "sharp", "weights": "range", "replan": 0.0, "scale": 0.3}
    compare(case, plain=base, **base)
    for change in ({"radius": "unweighted"}, {"weights": "none"}, {"replan": 0.2}, {"scale": 0.31}, {"lam": 1.01}):
        with pytest.raises(AssertionError):
            compare(case, plain=base | change, **base)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("replan", [0.05, 0.2, 1.0, 5.0])
def test_the_trace_filter_replans_exactly_when_the_determinant_asks_for_it(replan: float, seed: int) -> None:
    """The reference computes logdet Sigma before every episode; the package only when the trace says it may be due."""
    case = mixture(30 + seed, horizon=5)
    expected = case.oracle(400, seed, norm_bound=1.0, delta=0.05, replan=replan)
    learner = UCRLVTRLin(features=case.features, norm_bound=1.0, replan=replan)
    result = run(learner, case.mdp, episodes=int(np.flatnonzero(expected["planned"])[-1]), seed=seed, progress=False)
    assert result.plans == expected["plans"] - 1
    result = run(learner, case.mdp, episodes=1, progress=False, continue_from=result)
    assert result.plans == expected["plans"]
    assert 1 < expected["plans"] < 400
    rest = 400 - result.total_episodes
    if rest:
        result = run(learner, case.mdp, episodes=rest, progress=False, continue_from=result)
    assert result.plans == expected["plans"]
    np.testing.assert_allclose(result.regret, expected["regret"], rtol=0, atol=1e-9)
