"""Every problem is a Gymnasium environment: it passes Gymnasium's own check, follows its seed and can be drawn."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy import stats

import occamrl as orl
from occamrl.envs.registered import ProblemEnv, register_problems
from occamrl.errors import OccamRLError
from occamrl.registry import problems

NAMES = register_problems()


def test_every_problem_is_registered_once() -> None:
    assert [f"occamrl/{name}-v0" for name in problems()] == NAMES == register_problems()


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_finds_nothing_wrong(name: str) -> None:
    env = gym.make(name)
    check_env(env.unwrapped)
    kind = problems()[name.removeprefix("occamrl/").removesuffix("-v0")]
    example = kind.examples()[0]
    for mode in ("ansi", "rgb_array"):
        drawn = ProblemEnv(example, render_mode=mode)
        drawn.reset(seed=0)
        before = drawn.render()
        drawn.step(0)
        after = drawn.render()
        if mode == "ansi":
            assert "step 0" in before
            assert "step 1" in after
            assert "after action 0" in after
        else:
            assert after.dtype == np.uint8
            assert after.ndim == 3
            assert after.shape[2] == 3
            assert after.std() > 1.0  # something is on it


def test_the_text_shows_where_one_is() -> None:
    env = ProblemEnv("frozen-lake", slip=(0, 0), render_mode="ansi")
    env.reset(seed=0)
    env.step(2)
    lines = env.render().splitlines()
    assert lines[:2] == [" S [F] F  F ", " F  H  F  H "]
    assert lines[-1] == "FrozenLake  step 1 of 30  state 1  after action 2, reward 0"


def test_a_full_episode_has_h_steps_and_is_then_truncated() -> None:
    env = gym.make("occamrl/RiverSwim-v0", states=4)
    env.reset(seed=0)
    ends = [env.step(1)[2:4] for _ in range(16)]
    assert ends == [(False, False)] * 15 + [(False, True)]
    with pytest.raises(OccamRLError, match="reset"):
        env.unwrapped.step(0)
    env.reset()
    with pytest.raises(OccamRLError, match="action"):
        env.unwrapped.step(2)


def test_outcomes_come_as_often_as_the_kernel_says(test_seed: int) -> None:
    """Chi-square against P(. | s, a) of a random problem; error rate 1e-5."""
    env = ProblemEnv("random-mdp", states=4, actions=2, horizon=2, seed=1)
    counts = np.zeros(4)
    env.reset(seed=test_seed)
    for _ in range(4000):
        start = int(env.reset()[0])
        counts[int(env.step(1)[0])] += 1
    assert start == 0
    expected = 4000 * env.mdp.kernel()[0, 1]
    assert stats.chisquare(counts, expected).pvalue > 1e-5
    assert stats.chisquare(counts, expected[::-1]).pvalue < 1e-5  # and another kernel would be told apart


def test_learning_in_a_registered_problem_has_exact_regret() -> None:
    env: Any = gym.make("occamrl/RiverSwim-v0", states=4)
    result = orl.learn(orl.UniformRandom(), env, episodes=3)
    expected = orl.run(orl.UniformRandom(), env.unwrapped.mdp, episodes=1).regret[0]
    np.testing.assert_allclose(result.regret, expected, rtol=0, atol=1e-12)
