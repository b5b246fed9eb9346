"""Lazy replanning (M12): how many plans there can be, and what waiting costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.problems.classic import RiverSwim
from occamrl.problems.mixtures import SparseMixture
from occamrl.running.run import run
from tests.cases import mixture, stack


@pytest.mark.parametrize("replan", [0.05, 0.2, 1.0, 10.0])
@pytest.mark.parametrize("weights", ["range", "none"])
def test_plans_are_bounded_by_the_growth_of_the_determinant(replan: float, weights: Any) -> None:
    """plans <= 1 + logdet(Sigma/lambda) / log(1 + c): every plan but the first took that much growth."""
    cases: list[tuple[Any, Any]] = [
        (mixture(0).features, mixture(0).mdp),
        (FeatureMap.tabular(states=3, actions=2), RiverSwim(states=3).mdp),
    ]
    for features, mdp in cases:
        learner = UCRLVTRLin(features=features, norm_bound=2.0, replan=replan, weights=weights, regularization=0.5)
        result = run(learner, mdp, episodes=5_000, progress=False)
        statistics = learner.statistics(mdp.known, result.state)
        blocks, growth = features.blocks, 0.0
        for b, n in enumerate(blocks.size):
            gram = statistics.gram[blocks.matrix_start[b] : blocks.matrix_start[b + 1]].reshape(n, n)
            growth += float(np.linalg.slogdet(np.eye(n) + gram / 0.5)[1])
        bound = 1 + growth / math.log1p(replan)
        assert 1 < result.plans <= bound
        assert result.plans >= bound / 4  # the bound is not an empty one


def test_waiting_costs_little_regret(test_seed: int) -> None:
    """The bonus part of the bound grows by sqrt(1 + c); mean regret over 20 seeds grows by less than that and 30 %.

    Means have a standard error of 4 %, so that their ratio, near 1 for c = 0.2, is more than five of its own below 1.4.
    """
    problem = SparseMixture(states=8, actions=3, horizon=5, dimension=6, nonzero=3)
    bound = float(np.linalg.norm(problem.theta))
    means, plans = {}, {}
    for replan in (0.0, 0.2, 1.0):
        learner = UCRLVTRLin(features=FeatureMap(problem.phi), norm_bound=bound, replan=replan)
        results = [run(learner, problem, episodes=3_000, seed=20 * test_seed + i, progress=False) for i in range(20)]
        means[replan] = float(np.mean([result.total_regret for result in results]))
        plans[replan] = float(np.mean([result.plans for result in results]))
    assert means[0.0] > 0.0
    for replan in (0.2, 1.0):
        assert means[replan] <= 1.3 * math.sqrt(1 + replan) * means[0.0]
        assert plans[replan] <= plans[0.0] / 10


@pytest.mark.parametrize("replan", [0.2, 1.0])
def test_a_finite_learner_updates_when_its_data_have_grown_by_the_factor(replan: float) -> None:
    case, episodes = stack(0), 2_000
    expected, last = [0], 0
    for k in range(1, episodes):
        if k >= (1 + replan) * last:
            expected.append(k)
            last = k
    result = run(UCRLVTR(family=case.family, replan=replan), case.mdp, episodes=episodes, progress=False)
    assert result.plans == len(expected)
    assert len(expected) <= 2 + math.log(episodes) / math.log1p(replan) + 1 / replan
