"""Random rewards: their means are those stated, exactly where they can be, and by count where they are drawn."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import beta, binom

import occamrl as orl
from occamrl._core.rng import draw_reward
from occamrl.errors import ParameterError, UnknownName
from occamrl.learners.baselines import UniformRandom
from occamrl.problems.mdp import BernoulliRewards, BetaRewards, FiniteMDP
from tests.cases import mixture

CASE = mixture(0)


@given(st.floats(0.0, 1.0), st.floats(0.1, 100.0))
@example(5e-324, 0.5)
@example(1.0 - 2.0**-53, 0.5)
def test_beta_atoms_have_the_mean_that_was_stated(mean: float, concentration: float) -> None:
    values = BetaRewards(concentration=concentration).compiled(np.array([mean])).values[0]
    assert values.mean() == pytest.approx(mean, abs=1e-9)
    assert (values >= 0.0).all()
    assert (values <= 1.0).all()
    assert (np.diff(values) >= -1e-9).all()


def test_beta_atoms_have_the_variance_of_the_distribution() -> None:
    values = BetaRewards(concentration=5.0).compiled(np.array([0.3])).values[0]
    assert values.var() == pytest.approx(beta.var(1.5, 3.5), rel=1e-2)


def test_coins_fall_as_often_as_their_mean_says(test_seed: int) -> None:
    """At level 1e-6, and the draws of two steps or episodes have nothing to do with each other."""
    noise, key = BernoulliRewards().compiled(np.zeros(1)), np.uint64(test_seed + 1)
    drawn = np.array([[draw_reward(noise, 0, 0.3, key, k, h) for h in range(5)] for k in range(4000)])
    assert likely(drawn.sum(), drawn.size, 0.3)
    assert likely((drawn[:, 0] * drawn[:, 1]).sum(), 4000, 0.09)
    assert not likely(drawn.sum(), drawn.size, 0.35)


def likely(count: float, n: int, p: float) -> bool:
    return bool(binom.ppf(5e-7, n, p) <= count <= binom.ppf(1 - 5e-7, n, p))


def test_returns_are_random_and_regret_is_not(test_seed: int) -> None:
    given: dict[str, Any] = {"transition": CASE.transition, "reward": CASE.reward, "horizon": 4}
    plain, noisy = FiniteMDP(**given), FiniteMDP(**given, reward_noise=BetaRewards(concentration=2.0))
    results = [orl.run(UniformRandom(), mdp, episodes=4000, seed=test_seed, progress=False) for mdp in (plain, noisy)]
    assert results[0].regret.tobytes() == results[1].regret.tobytes()
    gap = results[1].returns - results[0].returns
    assert np.abs(gap).max() > 0.1
    assert abs(gap.mean()) < 5.0 * gap.std() / np.sqrt(gap.size)  # mean zero, wrong once in 10^6
    assert plain.fingerprint != noisy.fingerprint
    assert pickle.loads(pickle.dumps(noisy)).fingerprint == noisy.fingerprint  # noqa: S301  (our own bytes)
    assert "BetaRewards" in repr(noisy)


def test_noise_that_is_none_is_refused() -> None:
    for bad in ("bernouli", 0.5):
        with pytest.raises(UnknownName, match="reward_noise"):
            FiniteMDP(transition=CASE.transition, reward=CASE.reward, horizon=4, reward_noise=bad)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ParameterError, match="concentration"):
        BetaRewards(concentration=0.0)
