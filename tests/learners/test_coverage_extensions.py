"""Coverage and optimism with unknown rewards and with one kernel per step; 400 runs, as in ``test_coverage``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks import oracle
from occamrl._core.arena import field
from occamrl._core.rows import REWARD
from occamrl.learners.rewards import RewardsLinear, RewardsPerPair
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.problems.mdp import BernoulliRewards, FiniteMDP
from occamrl.protocols import Floats
from tests.cases import Player, mixture
from tests.learners.test_coverage import DELTA, FINITE_DELTA, LEVEL, Tally, near_truth, p_value, play

CASE = mixture(1, full_support=True)
PSI = np.concatenate([CASE.reward[..., None], np.random.default_rng(0).normal(size=(4, 2, 2))], axis=-1)
THETAS = np.random.default_rng(2).dirichlet(np.ones(3), size=4)  # [H, d]


def problem(per_step: bool) -> tuple[FiniteMDP, Floats]:
    """Return a problem with Bernoulli rewards, and theta*_h of every step that has one of its own."""
    thetas = THETAS if per_step else CASE.theta[None]
    transition = np.stack([CASE.phi @ theta for theta in thetas])
    noise = BernoulliRewards()
    given: Any = transition if per_step else transition[0]
    return FiniteMDP(transition=given, reward=CASE.reward, horizon=4, reward_noise=noise), thetas


def everything(learner: UCRLVTRLin, mdp: FiniteMDP, thetas: Floats) -> Callable[[Player], bool]:
    """Return the test whether every theta*_h is in its ellipsoid and no mean reward above the one counted on."""
    steps, d = thetas.shape
    level = learner.level(mdp.known)

    def covered(player: Player) -> bool:
        state, reward = player.state, field(player.model, REWARD)
        if not isinstance(learner.rewards, str) and (reward < mdp.truth.base_reward - 1e-12).any():
            return False
        for t in range(steps):
            sigma, error = state.sigma.reshape(steps, d, d)[t], state.theta.reshape(steps, d)[t] - thetas[t]
            width = oracle.linear_radius(
                "sharp",
                "range",
                horizon=mdp.horizon,
                dimension=d,
                norm_bound=learner.norm_bound,
                delta=level,
                lam=1.0,
                logdet=float(np.linalg.slogdet(sigma)[1]),
                episodes=0,
                paper_constant=1.0,
            )[0]
            if error @ sigma @ error > (learner.scale * width) ** 2:
                return False
        return True

    return covered


def tally(per_step: bool, seed: int, **options: Any) -> Tally:
    mdp, thetas = problem(per_step)
    learner = UCRLVTRLin(
        features=CASE.features,
        norm_bound=float(np.linalg.norm(thetas, axis=1).max()),
        delta=DELTA,
        replan=0.0,
        kernel="per_step" if per_step else "stationary",
        **options,
    )
    return play(learner, mdp, everything(learner, mdp, thetas), seed)


CASES: dict[str, tuple[bool, dict[str, Any]]] = {
    "rewards by Hoeffding": (False, {"rewards": RewardsPerPair(bound="hoeffding", share=0.9)}),
    "rewards by Bernstein": (False, {"rewards": RewardsPerPair(share=0.9)}),
    "linear rewards": (False, {"rewards": RewardsLinear(features=PSI, norm_bound=1.0, share=0.9)}),
    "one kernel per step": (True, {}),
    "both": (True, {"rewards": RewardsPerPair()}),
}


@pytest.mark.parametrize("name", CASES)
def test_all_is_covered_at_level_delta_and_optimism_follows(name: str, test_seed: int) -> None:
    per_step, options = CASES[name]
    seen = tally(per_step, test_seed, **options)
    assert p_value(seen.left, DELTA) >= LEVEL
    assert seen.pessimistic_when_covered == 0


BROKEN: dict[str, tuple[bool, dict[str, Any]]] = {
    "rewards by Hoeffding": (False, {"rewards": RewardsPerPair(bound="hoeffding", scale=0.05)}),
    "rewards by Bernstein": (False, {"rewards": RewardsPerPair(scale=0.05)}),
    "linear rewards": (False, {"rewards": RewardsLinear(features=PSI, norm_bound=1.0, scale=0.05)}),
    "one kernel per step": (True, {"scale": 0.05}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_twentieth_of_the_width_does_not_cover(name: str, test_seed: int) -> None:
    """Negative control: the same test rejects, there is pessimism, and never when all is covered."""
    per_step, options = BROKEN[name]
    seen = tally(per_step, test_seed, **options)
    assert p_value(seen.left, DELTA) < LEVEL
    assert seen.pessimistic > 0
    assert seen.pessimistic_when_covered == 0


def finite_tally(per_step: bool, seed: int, **options: Any) -> Tally:
    """Return what the runs of UCRL-VTR on kernels that are hard to tell apart come to."""
    case = near_truth()
    members = [0, 3, 5, 2, 6, 1] if per_step else [0]
    given: Any = case.kernels[members] if per_step else case.kernels[0]
    mdp = FiniteMDP(transition=given, reward=case.reward, horizon=6, reward_noise=BernoulliRewards())
    kernel = "per_step" if per_step else "stationary"
    learner = UCRLVTR(family=case.family, delta=FINITE_DELTA, kernel=kernel, **options)

    def covered(player: Player) -> bool:
        reward = field(player.model, REWARD)
        if not isinstance(learner.rewards, str) and (reward < mdp.truth.base_reward - 1e-12).any():
            return False
        return all(player.state.inside[t, member] == 1 for t, member in enumerate(members))

    return play(learner, mdp, covered, seed)


FINITE: dict[str, tuple[bool, dict[str, Any]]] = {
    "unknown rewards": (False, {"rewards": RewardsPerPair()}),
    "one kernel per step": (True, {}),
    "both": (True, {"rewards": RewardsPerPair()}),
}


@pytest.mark.parametrize("name", FINITE)
def test_the_true_kernels_stay_in_their_sets_and_optimism_follows(name: str, test_seed: int) -> None:
    per_step, options = FINITE[name]
    seen = finite_tally(per_step, test_seed, **options)
    assert p_value(seen.left, FINITE_DELTA) >= LEVEL
    assert seen.pessimistic_when_covered == 0


@pytest.mark.parametrize("name", FINITE)
def test_a_twentieth_of_the_slack_loses_a_true_kernel(name: str, test_seed: int) -> None:
    """Negative control."""
    per_step, options = FINITE[name]
    seen = finite_tally(per_step, test_seed, scale=0.05, **options)
    assert p_value(seen.left, FINITE_DELTA) < LEVEL
    assert seen.pessimistic_when_covered == 0
