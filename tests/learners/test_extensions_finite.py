"""UCRL-VTR with unknown rewards and one kernel per step: against plain NumPy, and against the plain learner."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl.analysis.certificates import Player
from occamrl.errors import ParameterError
from occamrl.learners.rewards import RewardsPerPair
from occamrl.learners.ucrl_vtr import UCRLVTR, NestedUCRLVTR
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.problems.mdp import BernoulliRewards, FiniteMDP
from occamrl.protocols import Floats
from occamrl.selectors.arl_gen import ARLGen
from tests.cases import stack
from tests.learners import extended_reference as reference
from tests.states import bits

CASE = stack(3, members=6)
DELTA = 0.2


def plan(steps: list[reference.Step], reward: Floats, kernels: Floats, *, delta: float, per_step: bool) -> Floats:
    """Return the optimistic values [H + 1, S] from all rows, by definition (range weights, uniform prior)."""
    n, states = kernels.shape[:2]
    horizon = reward.shape[0]
    inside = np.ones((horizon, n), dtype=bool)
    for h in range(horizon):
        losses = np.zeros(n)
        for step in steps:
            spread = np.ptp(step.values)
            if step.h < horizon - 1 and (step.h == h or not per_step) and spread > 0.0:
                target = (step.values - 0.5 * (step.values.max() + step.values.min())) / spread
                losses += (target[step.s2] - kernels[:, step.s, step.a] @ target) ** 2
        level = delta / (horizon - 1) if per_step else delta
        inside[h] = losses <= 0.5 * (math.log(1 / level) - math.log(np.exp(-2 * losses).mean()))

    def backwards(choose: Any) -> Floats:
        values = np.zeros((horizon + 1, states))
        for h in reversed(range(horizon)):
            values[h] = (reward[h] + choose(h, kernels @ values[h + 1])).max(axis=1)
        return values

    if per_step:
        return backwards(lambda h, expected: expected[inside[h]].max(axis=0))
    solved = [backwards(lambda h, expected, i=i: expected[i]) for i in range(n) if inside[0, i]]
    return max(solved, key=lambda values: float(values[0, 0]))


@pytest.mark.parametrize("kernel", ["stationary", "per_step"])
@pytest.mark.parametrize("known", [True, False])
def test_every_plan_is_that_of_the_oracle(kernel: str, known: bool) -> None:
    per_step = kernel == "per_step"
    if known and not per_step:
        pytest.skip("the plain learner")
    transition = CASE.kernels[[0, 2, 1, 0]] if per_step else CASE.kernels[0]
    mdp = FiniteMDP(transition=transition, reward=CASE.reward, horizon=4, reward_noise=BernoulliRewards())
    rewards: Any = "known" if known else RewardsPerPair(scale=0.2)
    learner = UCRLVTR(family=CASE.family, delta=DELTA, rewards=rewards, kernel=kernel)
    player, steps, dropped = Player(learner, mdp, seed=3), list[reference.Step](), 0
    for episode in range(60):
        reward, level = np.broadcast_to(CASE.reward, (4, *CASE.reward.shape)), DELTA
        if not isinstance(rewards, str):
            reward = reference.optimistic_rewards(rewards, steps, CASE.reward.shape, 4, DELTA)
            level = DELTA * (1.0 - rewards.share)
        expected = plan(steps, reward, CASE.kernels, delta=level, per_step=per_step)
        player.play()
        np.testing.assert_allclose(player.state.values, expected, rtol=0, atol=1e-9)
        dropped += int((player.state.inside == 0).any())
        policy, values = player.state.policy, player.state.values
        steps += reference.walk(policy, values, transition, CASE.reward, seed=3, episode=episode, coin=True)
    assert dropped > 0  # the data have excluded somebody


def ladder() -> Ladder:
    """Return three classes; members 0 and 2 are first held together by the second."""
    return Ladder([FiniteFamily(CASE.kernels[members]) for members in ([4], [4, 0, 2], [4, 0, 2, 1, 3, 5])])


@pytest.mark.parametrize("rewards", ["known", RewardsPerPair()])
def test_the_class_of_all_steps_together_is_found(rewards: Any) -> None:
    """Steps take turns between two kernels that only class 2 holds both of."""
    transition = CASE.kernels[[0, 2, 0, 2]]
    mdp = FiniteMDP(transition=transition, reward=CASE.reward, horizon=4, reward_noise=BernoulliRewards())
    agent = ARLGen(ladder=ladder(), rewards=rewards, kernel="per_step", replan=0.1)
    result = orl.run(agent, mdp, episodes=8190, progress=False)
    assert result.phases["chosen"].to_pylist()[-1] == 2
    assert result.phases["chosen"].to_pylist()[0] == 1
    assert max(result.phases["chosen"].to_pylist()) == 2
    wrong = ARLGen(ladder=ladder(), rewards=rewards, replan=0.1)  # one kernel: no member fits
    if rewards != "known":
        assert orl.run(wrong, mdp, episodes=8190, progress=False).total_regret > result.total_regret


def test_what_does_not_go_together() -> None:
    for radius in ("paper", "unweighted"):
        with pytest.raises(ParameterError, match="radius"):
            UCRLVTR(family=CASE.family, kernel="per_step", radius=radius)
    for kind in (NestedUCRLVTR, ARLGen):
        with pytest.raises(ParameterError, match="start_class"):
            kind(ladder=ladder(), start_class=3, kernel="per_step")


def near_members() -> tuple[FiniteMDP, Floats]:
    """Return a problem with coins as rewards and four initial states, and kernels that hardly differ."""
    rng = np.random.default_rng(0)
    kernels = 0.93 * rng.dirichlet(np.ones(4), size=(4, 3)) + 0.07 * rng.dirichlet(np.full(4, 0.3), size=(5, 4, 3))
    options: Any = {"initial_state": np.full(4, 0.25), "reward_noise": BernoulliRewards()}
    return FiniteMDP(transition=kernels[2], reward=rng.random((4, 3)), horizon=5, **options), kernels


def test_a_plan_for_another_start_counts_on_the_rewards_it_was_solved_for() -> None:
    """A lazy plan outlives the arrays that it was made in: the next phase, and a resumed run, have new ones."""
    mdp, kernels = near_members()
    learner = UCRLVTR(family=FiniteFamily(kernels), rewards=RewardsPerPair(), replan=0.5)
    whole, pieces = orl.run(learner, mdp, episodes=400, progress=False), None
    for size in (18, 26, 39, 26, 13, 26, 26, 130, 96):
        pieces = orl.run(learner, mdp, episodes=size, progress=False, continue_from=pieces)
    assert pieces is not None
    np.testing.assert_array_equal(pieces.regret, whole.regret)
    assert bits(pieces.walk.state) == bits(whole.walk.state)
    assert len(np.unique(whole.regret[-100:])) > 4  # who is in play depends on where the episode begins
    ladder = Ladder([FiniteFamily(kernels[:2]), FiniteFamily(kernels)])
    options: Any = {"ladder": ladder, "delta": DELTA, "replan": 0.5, "rewards": RewardsPerPair()}
    phases = orl.run(ARLGen(**options), mdp, episodes=400, progress=False)
    alone = orl.run(NestedUCRLVTR(**options), mdp, episodes=400, progress=False)
    assert phases.phases.num_rows > 4
    np.testing.assert_array_equal(phases.regret, alone.regret)
