"""Gymnasium's tables as problems, with their traps, and every problem as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy import stats

import occamrl as orl
from occamrl.envs.registered import ProblemEnv, register_problems
from occamrl.envs.wrapper import FiniteEnvironment
from occamrl.errors import OccamRLError, TableError
from occamrl.problems.tables import table_of
from occamrl.registry import problems

ENVIRONMENTS: list[tuple[str, dict[str, Any], int]] = [
    ("FrozenLake-v1", {}, 12),
    ("FrozenLake-v1", {"is_slippery": False}, 12),
    ("CliffWalking-v1", {"is_slippery": True}, 9),
    ("CliffWalking-v1", {}, 20),
    ("Taxi-v4", {"is_rainy": True}, 6),
]


def value_by_hand(table: Any, horizon: int, start: Any) -> float:
    """Backward induction on the table as Gymnasium steps it: rewards in its own unit, nothing after the end."""
    values = np.zeros(len(table))
    for _ in range(horizon):
        values = np.array(
            [
                max(sum(p * (r + (0.0 if done else values[s2])) for p, s2, r, done in row[a]) for a in row)
                for row in table.values()
            ]
        )
    return float(start @ values)


@pytest.mark.parametrize(("name", "options", "horizon"), ENVIRONMENTS)
def test_the_optimum_in_the_environments_own_unit(name: str, options: Any, horizon: int) -> None:
    env = gym.make(name, **options)
    inner: Any = env.unwrapped
    table = table_of(env, horizon=horizon)
    expected = value_by_hand(inner.P, horizon, inner.initial_state_distrib)
    assert table.rewards.total(table.mdp.optimal_value, horizon) == pytest.approx(expected, abs=1e-9)


def test_a_reward_that_the_next_state_does_not_fix() -> None:
    """At the start of the slippery cliff, moving right: the cliff (-100, back to the start), up, or staying (-1)."""
    table = table_of(gym.make("CliffWalking-v1", is_slippery=True), horizon=5)
    outcomes, base = table.mdp.truth.outcomes, table.mdp.truth.base_reward
    at = slice(*outcomes.start[36 * 4 + 1 : 36 * 4 + 3])
    found = {
        (int(s2), round(table.rewards.total(base[36 * 4 + 1] + bonus, 1), 9))
        for s2, bonus in zip(outcomes.next_state[at], outcomes.bonus[at], strict=True)
    }
    assert found == {(36, -100.0), (36, -1.0), (24, -1.0)}
    with pytest.raises(orl.errors.FeatureError, match="several rewards"):
        orl.FeatureMap.tabular(states=49, actions=4, support=table.mdp.kernel() > 0.0).attach(table.mdp.known)


def test_the_end_of_an_episode_in_the_environment_is_the_added_state() -> None:
    environment = FiniteEnvironment(gym.make("CliffWalking-v1"), horizon=20)
    environment.reset(0)
    assert environment.translate(35, 2, 47, -1.0, True)[:2] == (48, 0.0)  # down, into the goal
    lake = FiniteEnvironment(gym.make("FrozenLake-v1"), horizon=20)
    assert lake.translate(14, 2, 15, 1.0, True) == (15, 1.0, 1.0)  # the goal is an end already


def test_returns_and_regret_are_in_the_environments_own_unit() -> None:
    """Dry cliff, told all: the way along the edge takes 13 steps; nothing is random, so nothing is lost."""
    env = gym.make("CliffWalking-v1")
    table = table_of(env, horizon=20)
    assert table.rewards.total(table.mdp.optimal_value, 20) == pytest.approx(-13.0)
    result = orl.learn(orl.Optimal(mdp=table.mdp), env, episodes=4, horizon=20)
    np.testing.assert_array_equal(result.returns, -13.0)
    assert result.total_regret == pytest.approx(0.0, abs=1e-9)
    random = orl.learn(orl.UniformRandom(), env, episodes=4, horizon=20)
    values = np.zeros(48)
    inner: Any = env.unwrapped
    for _ in range(20):
        rows = inner.P.values()
        values = np.array(
            [np.mean([row[a][0][2] + (0.0 if row[a][0][3] else values[row[a][0][1]]) for a in row]) for row in rows]
        )
    np.testing.assert_allclose(random.regret, -13.0 - values[36], rtol=1e-9)
    assert random.phases["realised_return"].to_pylist() == [random.returns.sum()]


def test_a_passenger_who_changes_his_mind_is_not_in_the_table() -> None:
    env = gym.make("Taxi-v4", fickle_passenger=True)
    with pytest.raises(TableError, match="fickle_passenger"):
        table_of(env, horizon=30)
    known = table_of(gym.make("Taxi-v4"), horizon=30).mdp.known
    environment = FiniteEnvironment(env, known=known, reward_range=(-10, 20))
    assert environment.mdp is None
    assert "fickle" in environment.why_not


def test_a_taxi_that_no_longer_runs_is_an_error_with_a_hint(tmp_path: Any) -> None:
    path = tmp_path / "old.toml"
    path.write_text('horizon = 30\n[[rungs]]\nenvironments = ["Taxi-v3"]\n')
    with pytest.warns(DeprecationWarning, match="out of date"), pytest.raises(orl.InvalidInput, match="Taxi-v4"):
        orl.read_ladder(path)


def test_a_wrapper_that_changes_rewards_makes_the_table_untrue() -> None:
    env = gym.wrappers.TransformReward(gym.make("FrozenLake-v1"), lambda reward: 2.0 * float(reward))
    with pytest.raises(TableError, match="TransformReward"):
        table_of(env, horizon=10)
    with pytest.raises(TableError, match="no table"):
        table_of(gym.make("Blackjack-v1"), horizon=10)


def test_what_contradicts_the_table_is_found_while_learning() -> None:
    env = gym.make("FrozenLake-v1", is_slippery=False)
    inner: Any = env.unwrapped
    environment = FiniteEnvironment(env, horizon=10, known=orl.make_problem("frozen-lake", horizon=10).mdp.known)
    inner.P[0] = {a: [(1.0, 1, 0, False)] for a in range(4)}  # the lake is changed behind our back
    with pytest.raises(TableError, match=r"state 1 with reward 0 after \(0, ") as caught:
        orl.learn(orl.UniformRandom(), environment, episodes=50)
    assert caught.value.result.total_episodes >= 1


@pytest.mark.parametrize("map_name", ["4x4", "8x8"])
@pytest.mark.parametrize(("options", "slip"), [({}, 10), ({"is_slippery": False}, 0), ({"success_rate": 0.8}, 3)])
def test_the_lake_of_this_package_is_gymnasiums(map_name: str, options: Any, slip: int) -> None:
    theirs = table_of(gym.make("FrozenLake-v1", map_name=map_name, **options), horizon=5).mdp
    ours = orl.make_problem("frozen-lake", map_name=map_name, slip=(slip, slip), horizon=5).mdp
    np.testing.assert_allclose(ours.kernel(), theirs.kernel(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours.optimal_values, theirs.optimal_values, rtol=0, atol=1e-12)


def test_left_and_right_are_the_walkers_own() -> None:
    """From the middle of the upper row (state 1), facing right (2): to the left lies the edge, to the right a hole."""
    kernel = orl.make_problem("frozen-lake", slip=(6, 3)).mdp.kernel()
    np.testing.assert_allclose(kernel[1, 2, [2, 1, 5]], [0.7, 0.2, 0.1], rtol=0, atol=1e-12)


def test_a_problem_with_a_unit_pays_in_it() -> None:
    env: Any = gym.make("occamrl/LostSales-v0")
    unit, mdp = env.unwrapped.problem.unit, env.unwrapped.mdp
    result = orl.learn(orl.Optimal(mdp=mdp), env, episodes=3)
    assert result.environment is not None
    assert result.environment.rewards == (unit.low, unit.high)
    assert result.total_regret == pytest.approx(0.0, abs=1e-9)
    mapped = sum(row["realised_return"] for row in result.walk.rows)  # the learner's own account, in [0, H]
    assert result.total_return == pytest.approx(unit.scale * mapped + 3 * mdp.horizon * unit.low)


NAMES = register_problems()


def test_every_problem_is_registered_once() -> None:
    assert [f"occamrl/{name}-v0" for name in problems()] == NAMES == register_problems()


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_finds_nothing_wrong(name: str) -> None:
    env = gym.make(name)
    check_env(env.unwrapped)
    kind = problems()[name.removeprefix("occamrl/").removesuffix("-v0")]
    example = kind.examples()[0]
    text, picture = (ProblemEnv(example, render_mode=mode) for mode in ("ansi", "rgb_array"))
    for drawn in (text, picture):
        drawn.reset(seed=0)
        drawn.step(0)
    assert "step 1" in text.render()
    assert "after action 0" in text.render()
    assert (picture.render().dtype, picture.render().shape[2]) == (np.uint8, 3)
    red = (picture.render() == (214, 69, 48)).all(axis=2)
    assert 0 < red.sum() == 16 * 16  # the tile of the state that one is in


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
