"""LinearStatistics: what was learned apart from any plan, to go on from, to pool, and to restrict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import oracle
from occamrl.analysis.certificates import Player
from occamrl.errors import ShapeError
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.protocols import Floats
from occamrl.running.result import Result
from tests.cases import Mixture, bits, environment_uniforms, mixture, one_by_one

EPISODES = 25


def rows_of(case: Mixture, results: list[Result], weights: Any, seed: int) -> tuple[Floats, Floats]:
    """Return the rows x [T, d] and y [T] of a run played one by one, from the plans that it reports."""
    uniforms = environment_uniforms(seed, len(results), case.mdp.horizon)
    possible = (case.phi != 0.0).any(axis=-1)
    cumulative = oracle.cumulative_kernel(case.transition)
    x, y = [], []
    for k, result in enumerate(results):
        s = 0
        for h in range(case.mdp.horizon - 1):
            a = int(result.state.policy[h, s])
            after = int(np.searchsorted(cumulative[s, a], uniforms[k, 1 + h], side="right"))
            target, _, _ = oracle.normalised_target(result.state.values[h + 1], possible, weights)
            x.append(target[s, a] @ case.phi[s, a])
            y.append(float(target[s, a, after]))
            s = after
    return np.array(x), np.array(y)


def ridge(x: Floats, y: Floats, lam: float) -> Floats:
    return oracle.estimate(lam * np.eye(x.shape[1]) + x.T @ x, x.T @ y)


@pytest.mark.parametrize("weights", ["range", "none"])
@pytest.mark.parametrize("replan", [0.0, 0.5])
def test_statistics_are_the_sums_over_all_rows_seen(weights: Any, replan: float) -> None:
    case = mixture(0)
    learner = UCRLVTRLin(features=case.features, norm_bound=1.0, weights=weights, replan=replan, scale=0.2)
    results = one_by_one(learner, case.mdp, EPISODES, 3)
    x, y = rows_of(case, results, weights, 3)
    before = bits(results[-1].state)
    statistics = learner.statistics(case.mdp.known, results[-1].state)
    np.testing.assert_allclose(statistics.gram.reshape(3, 3), x.T @ x, rtol=0, atol=1e-11)
    np.testing.assert_allclose(statistics.xy, x.T @ y, rtol=0, atol=1e-11)
    assert bits(results[-1].state) == before  # asking changes nothing


def test_going_on_from_statistics_is_having_seen_the_rows() -> None:
    """The first plan of a learner that was given statistics is the next plan of the one that gathered them."""
    case = mixture(1)
    learner = UCRLVTRLin(features=case.features, norm_bound=1.0, replan=0.0, radius="paper", paper_constant=1e-4)
    gathered = Player(learner, case.mdp, seed=3)
    gathered.play(EPISODES)
    statistics = learner.statistics(case.mdp.known, gathered.state)
    given = Player(learner, case.mdp, seed=3, state=learner.begin(case.mdp.known, statistics))
    fresh = Player(learner, case.mdp, seed=3)
    for player in (gathered, given, fresh):
        player.play()
    np.testing.assert_allclose(given.state.values, gathered.state.values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(given.state.theta, gathered.state.theta, rtol=0, atol=1e-12)
    assert given.state.counters[0] == gathered.state.counters[0]  # episodes enter the paper's radius
    assert not np.allclose(fresh.state.values, gathered.state.values)


@pytest.mark.parametrize("coordinates", [[0, 2], [2, 0], [1]])
def test_a_restricted_block_is_the_regression_on_restricted_features(coordinates: list[int]) -> None:
    case = mixture(3)
    learner = UCRLVTRLin(features=case.features, norm_bound=1.0)
    results = one_by_one(learner, case.mdp, EPISODES, 4)
    x, y = rows_of(case, results, "range", 4)
    restricted = learner.statistics(case.mdp.known, results[-1].state).restrict(coordinates)
    small = UCRLVTRLin(features=case.features.restrict(coordinates), norm_bound=1.0)
    state = small.begin(case.mdp.known, restricted)
    np.testing.assert_allclose(state.theta, ridge(x[:, coordinates], y, 1.0), rtol=0, atol=1e-10)
    # Restricted features give the restricted rows: the small learner's own statistics follow the same formula.
    of_small = one_by_one(small, case.mdp, EPISODES, 4)
    cut = case._replace(phi=np.ascontiguousarray(case.phi[..., coordinates]))
    x_small, y_small = rows_of(cut, of_small, "range", 4)
    statistics = small.statistics(case.mdp.known, of_small[-1].state)
    np.testing.assert_allclose(statistics.xy, x_small.T @ y_small, rtol=0, atol=1e-10)


def test_statistics_of_another_shape_are_refused() -> None:
    case = mixture(3)
    learner = UCRLVTRLin(features=case.features, norm_bound=1.0)
    statistics = learner.statistics(case.mdp.known, learner.begin(case.mdp.known))
    with pytest.raises(ShapeError) as caught:
        UCRLVTRLin(features=case.features.restrict([0]), norm_bound=1.0).begin(case.mdp.known, statistics)
    assert caught.value.field == "statistics.gram"
    tabular = UCRLVTRLin(features=FeatureMap.tabular(states=4, actions=2), norm_bound=1.0)
    of_blocks = tabular.statistics(case.mdp.known, tabular.begin(case.mdp.known))
    with pytest.raises(ShapeError, match="one dense block"):
        of_blocks.restrict([0])
