"""Players to compare with, whose regret is known exactly, and figures from the literature."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from occamrl.learners.baselines import Greedy, UniformRandom
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.problems.classic import RiverSwim, WideTree
from occamrl.problems.mdp import FiniteMDP
from occamrl.running.run import run
from tests.cases import environment_uniforms, mixture


@pytest.mark.parametrize("actions", [1, 2, 3, 7])
def test_the_random_player_draws_every_action_alike(actions: int, test_seed: int) -> None:
    """One step, one state, rewards a / (A - 1): returns tell the action."""
    reward = np.linspace(0.0, 1.0, actions)[None] if actions > 1 else np.zeros((1, 1))
    mdp = FiniteMDP(transition=np.ones((1, actions, 1)), reward=reward, horizon=1)
    returns = run(UniformRandom(), mdp, episodes=5_000, seed=test_seed, progress=False).returns
    shares = np.bincount(np.rint(returns * max(1, actions - 1)).astype(int), minlength=actions) / 5_000
    # Hoeffding: a share is further off than 0.05 with probability 2 exp(-25).
    np.testing.assert_allclose(shares, 1.0 / actions, rtol=0, atol=0.05)


def test_the_random_players_actions_are_not_the_environments_numbers() -> None:
    """Were they drawn from one stream, a high number would mean action 1 and a late next state at once."""
    law = np.array([0.5, 0.5])
    mdp = FiniteMDP(transition=np.tile(law, (2, 2, 1)), reward=np.array([[0.0, 1.0]] * 2), horizon=2)
    result = run(UniformRandom(), mdp, episodes=4_000, seed=0, progress=False)
    first = environment_uniforms(0, 4_000, 2)[:, 1] >= 0.5
    took_one = result.returns >= 1.0
    # If independent, the share of `first` among some 3,000 is within 0.06 of one half (Hoeffding, 2 exp(-21)).
    assert first[took_one].mean() == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("weights", ["range", "none"])
def test_greedy_is_the_learner_without_a_bonus(weights: Any) -> None:
    case = mixture(2)
    greedy = run(
        Greedy(features=case.features, weights=weights, replan=0.0), case.mdp, episodes=60, seed=1, progress=False
    )
    bare = UCRLVTRLin(features=case.features, norm_bound=7.0, scale=0.0, weights=weights, replan=0.0)
    without = run(bare, case.mdp, episodes=60, seed=1, progress=False)
    assert greedy.regret.tobytes() == without.regret.tobytes()
    expected = case.oracle(60, 1, norm_bound=7.0, delta=0.05, weights=weights, scale=0.0)
    np.testing.assert_allclose(greedy.regret, expected["regret"], rtol=0, atol=1e-9)
    assert greedy.pessimistic_episodes > 0  # no guarantee


EPISODES, SEEDS = 10_000, 10


def mean_regret(problem: Any, **options: Any) -> float:
    """Return the mean exact regret of UCRL-VTR-LIN with the published radius on one-hot features."""
    states, actions = problem.mdp.states, problem.mdp.actions
    learner = UCRLVTRLin(
        features=FeatureMap.tabular(states=states, actions=actions),
        norm_bound=float(np.sqrt(states * actions)),
        delta=1.0 / EPISODES,
        **{"radius": "ayoub", "weights": "none", "replan": 0.0, **options},
    )
    results = [run(learner, problem, episodes=EPISODES, seed=seed, progress=False) for seed in range(SEEDS)]
    assert all(result.plans == EPISODES for result in results)
    return float(np.mean([result.total_regret for result in results]))


@pytest.mark.parametrize(("states", "low", "high"), [(3, 9_000.0, 11_000.0), (5, 43_000.0, 45_000.0)])
def test_river_swim(states: int, low: float, high: float) -> None:
    assert low <= mean_regret(RiverSwim(states=states, variant="ayoub")) <= high


def test_wide_tree() -> None:
    assert mean_regret(WideTree(leaves=4)) == pytest.approx(74.0, abs=4.0)


def test_the_figures_tell_forms_of_the_algorithm_apart() -> None:
    """Negative control: with the clip at H - h + 1 the same learner is outside the band of the published figure."""
    assert not 9_000.0 <= mean_regret(RiverSwim(states=3, variant="ayoub"), clip="step") <= 11_000.0
