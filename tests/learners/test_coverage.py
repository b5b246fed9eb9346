"""Confidence sets hold what they promise: the truth is inside at all episodes with probability 1 - delta.

Each case plays 400 short runs and counts those in which the truth was outside before some episode. If the promise
holds, the count is at most binomial(400, delta), and the exact test at level 0.001 rejects with a probability of at
most 0.1 %. A radius of one twentieth must be rejected. ``OCCAMRL_TEST_SEEDS`` repeats everything with other seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import binom

from benchmarks import oracle
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats, Learner
from tests.cases import Player, Stack, mixture, stack
from tests.states import losses_inside

RUNS, EPISODES, LEVEL = 400, 40, 1e-3
DELTA = 0.3  # of ellipsoids: large, so that the promise is a tight one
FINITE_DELTA = 0.05  # of families: a small family loses its truth seldom even when it may


class Tally(NamedTuple):
    """What 400 runs came to."""

    left: int  # runs in which the truth was outside at some episode
    pessimistic_when_covered: int  # episodes
    pessimistic: int


def play(learner: Learner, mdp: FiniteMDP, covered: Callable[[Player], bool], seed: int) -> Tally:
    """Play the runs; ``covered`` looks at the player whose state an episode was planned with."""
    left, broken, pessimistic = 0, 0, 0
    for number in range(RUNS):
        player = Player(learner, mdp, seed=RUNS * seed + number)
        always = True
        for _ in range(EPISODES):
            short = player.play().pessimistic
            inside = covered(player)
            always &= inside
            pessimistic += short
            broken += short if inside else 0
        left += not always
    return Tally(left, broken, pessimistic)


def p_value(left: int, delta: float) -> float:
    """Return the probability of so many failures, or more, if each run fails with probability delta."""
    return float(binom.sf(left - 1, RUNS, delta))


def ellipsoid(learner: UCRLVTRLin, mdp: FiniteMDP, theta: Floats) -> Callable[[Player], bool]:
    """Return the test whether theta* lies in the ellipsoid of a state, with the radius of the plain formulas."""
    blocks = learner.features.blocks
    radius: Any = learner.radius
    weights: Any = learner.weights
    # With rewards on transitions plain targets have range H instead of H - 1 (M20).
    horizon = mdp.horizon if mdp.known.transition_rewards is None else mdp.horizon + 1

    def covered(player: Player) -> bool:
        state: Any = player.state
        error, distance, logdet = state.theta - theta, 0.0, 0.0
        for b, n in enumerate(blocks.size):
            sigma = state.sigma[blocks.matrix_start[b] : blocks.matrix_start[b + 1]].reshape(n, n)
            part = error[blocks.vector_start[b] : blocks.vector_start[b + 1]]
            distance += float(part @ sigma @ part)
            logdet += float(np.linalg.slogdet(sigma)[1])
        width = oracle.linear_radius(
            radius,
            weights,
            horizon=horizon,
            dimension=theta.size,
            norm_bound=learner.norm_bound,
            delta=learner.delta,
            lam=learner.lam,
            logdet=logdet,
            episodes=0,
            paper_constant=1.0,
        )[0]
        return distance <= float(learner.scale * width) ** 2

    return covered


def linear(name: str, **options: Any) -> tuple[UCRLVTRLin, FiniteMDP, Floats]:
    """Return a learner that replans before every episode, its problem, and theta*."""
    case = mixture(1, full_support=True, initial_state=[0.5, 0.0, 0.0, 0.5])
    features, theta, mdp = case.features, case.theta, case.mdp
    if name == "one-hot":
        features = FeatureMap.tabular(states=4, actions=2)
        theta = mdp.kernel().ravel()
    elif name == "transition rewards":
        reward = np.random.default_rng(3).random((4, 2, 4))
        mdp = FiniteMDP(transition=case.transition, reward=reward, horizon=4)
    bound = float(np.linalg.norm(theta))
    return UCRLVTRLin(features=features, norm_bound=bound, delta=DELTA, replan=0.0, **options), mdp, theta


LINEAR: dict[str, tuple[str, dict[str, Any]]] = {
    "sharp, range weights": ("dense", {}),
    "sharp, no weights": ("dense", {"weights": "none"}),
    "sharp, little regularization": ("dense", {"regularization": 0.01}),
    "unweighted": ("dense", {"radius": "unweighted", "weights": "none"}),
    "sharp, one-hot": ("one-hot", {}),
    "sharp, rewards on transitions, no weights": ("transition rewards", {"weights": "none"}),
}


@pytest.mark.parametrize("name", LINEAR)
def test_the_ellipsoid_covers_theta_and_optimism_follows(name: str, test_seed: int) -> None:
    kind, options = LINEAR[name]
    learner, mdp, theta = linear(kind, **options)
    tally = play(learner, mdp, ellipsoid(learner, mdp, theta), test_seed)
    assert p_value(tally.left, DELTA) >= LEVEL
    assert tally.pessimistic_when_covered == 0


@pytest.mark.parametrize("weights", ["range", "none"])
def test_a_twentieth_of_the_radius_does_not_cover(weights: str, test_seed: int) -> None:
    """Negative control: the same test rejects, and there is pessimism to be seen."""
    learner, mdp, theta = linear("dense", scale=0.05, weights=weights)
    tally = play(learner, mdp, ellipsoid(learner, mdp, theta), test_seed)
    assert p_value(tally.left, DELTA) < LEVEL
    assert tally.pessimistic > 0
    assert tally.pessimistic_when_covered == 0  # optimism follows from coverage, whatever the radius


def near_truth() -> Stack:
    """Return a family in which the data speak against the truth now and then."""
    case = stack(2, members=8, horizon=6)
    return Stack(0.7 * case.kernels[0] + 0.3 * case.kernels, case.reward, case.mdp)


def truth_is_in(player: Player) -> bool:
    """Whether member 0 is in the confidence set."""
    return 0 in losses_inside(player.state)


FINITE: dict[str, dict[str, Any]] = {
    "sharp, range weights": {},
    "sharp, no weights": {"weights": "none"},
    "sharp, a prior against the truth": {"prior": np.array([0.01, *[0.99 / 7] * 7])},
    "unweighted ball": {"radius": "unweighted", "weights": "none"},
    "paper's ball": {"radius": "paper", "weights": "none"},
}


@pytest.mark.parametrize("name", FINITE)
def test_the_true_kernel_stays_in_the_set_and_optimism_follows(name: str, test_seed: int) -> None:
    case = near_truth()
    learner = UCRLVTR(family=case.family, delta=FINITE_DELTA, **FINITE[name])
    tally = play(learner, case.mdp, truth_is_in, test_seed)
    assert p_value(tally.left, FINITE_DELTA) >= LEVEL
    assert tally.pessimistic_when_covered == 0


@pytest.mark.parametrize("options", [{}, {"weights": "none"}, {"radius": "unweighted", "weights": "none"}])
def test_a_twentieth_of_the_slack_loses_the_true_kernel(options: dict[str, Any], test_seed: int) -> None:
    """Negative control."""
    case = near_truth()
    learner = UCRLVTR(family=case.family, delta=FINITE_DELTA, scale=0.05, **options)
    tally = play(learner, case.mdp, truth_is_in, test_seed)
    assert p_value(tally.left, FINITE_DELTA) < LEVEL
    assert tally.pessimistic_when_covered == 0
