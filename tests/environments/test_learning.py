"""Learning in an environment is learning in the fused loop, and stays so when it is cut, saved and resumed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import occamrl as orl
from occamrl.envs.wrapper import FiniteEnvironment
from occamrl.errors import CheckpointError, HorizonError, Interrupted, ParameterError, ShapeError
from occamrl.running.run import Callback, EpisodeReport
from tests.cases import bits as state_bits
from tests.environments.misbehaving import CASE, MDP, Plant, Scripted, learner


def bits(walk: Any) -> dict[str, bytes]:
    return state_bits(walk.to_tree())


def frozen_lake(**options: Any) -> FiniteEnvironment:
    known = orl.make_problem("frozen-lake", horizon=12).mdp.known
    return FiniteEnvironment(gym.make("FrozenLake-v1", **options), known=known)


LADDER = orl.Ladder.of_problem(orl.make_problem("frozen-lake"))


@pytest.mark.parametrize("kind", ["learner", "selector"])
def test_an_environment_with_the_numbers_of_the_fused_loop_gives_its_state_to_the_bit(kind: str) -> None:
    ladder = orl.Ladder([orl.FiniteFamily(CASE.kernels[1:2]), orl.FiniteFamily(CASE.kernels)])
    agent: Any = learner() if kind == "learner" else orl.ARLGen(ladder=ladder)
    fused = orl.run(agent, MDP, episodes=90, seed=5, progress=False)
    stepped = orl.learn(agent, Scripted(5, 90), episodes=90, seed=5, replay=False)
    regret = stepped.regret
    assert regret is not None
    np.testing.assert_array_equal(regret, fused.regret)
    np.testing.assert_allclose(stepped.returns, fused.returns, rtol=0, atol=1e-12)  # the environment's own sum
    assert stepped.plans == fused.plans
    np.testing.assert_array_equal(stepped.state.floats, fused.state.floats)
    np.testing.assert_array_equal(stepped.state.ints, fused.state.ints)
    assert stepped.phases["episodes"].to_pylist() == fused.phases["episodes"].to_pylist()


def test_episodes_that_end_are_played_out_in_the_absorbing_state_as_the_fused_loop_does() -> None:
    """FrozenLake's holes and goal: termination in the environment, absorbing states in the model."""
    lake = orl.make_problem("frozen-lake", horizon=12)

    class Ending(Scripted):
        def step(self, action: Any) -> Any:
            observation, reward, _, truncated, info = super().step(action)
            return observation, reward, bool("".join(lake.lake)[observation] in "HG"), truncated, info

    agent = orl.ARLGen(ladder=LADDER)
    fused = orl.run(agent, lake, episodes=60, seed=2, progress=False)
    env = Ending(2, 60, lake.mdp)
    stepped = orl.learn(agent, env, episodes=60, seed=2, replay=False)
    assert stepped.steps < 60 * 12  # some ended early
    assert stepped.cut_short == ()
    np.testing.assert_array_equal(stepped.regret, fused.regret)
    np.testing.assert_array_equal(stepped.returns, fused.returns)
    np.testing.assert_array_equal(stepped.state.floats, fused.state.floats)
    np.testing.assert_array_equal(stepped.state.ints, fused.state.ints)


def test_twice_x_is_once_2x_and_so_is_a_file_between(tmp_path: Path) -> None:
    agent = orl.ARLGen(ladder=LADDER)
    whole = orl.learn(agent, frozen_lake(), episodes=60, seed=4)
    half = orl.learn(agent, frozen_lake(), episodes=23, seed=4)
    both = orl.learn(agent, frozen_lake(), episodes=37, continue_from=half)
    path = tmp_path / "half.npz"
    for episodes in (23, 60, 60):  # the last finds everything done
        resumed = orl.learn(agent, frozen_lake(), episodes=episodes, seed=4, checkpoint=path)
    for other in (both, resumed):
        assert bits(other.walk) == bits(whole.walk)
        np.testing.assert_array_equal(other.returns, whole.returns)
        np.testing.assert_array_equal(other.regret, whole.regret)
        assert other.steps == whole.steps
    assert half.total_episodes == 23  # what was continued is as it was


def test_the_agents_own_verbs(tmp_path: Path) -> None:
    env = frozen_lake()
    agent = orl.Agent(orl.ARLGen(ladder=LADDER), env, seed=4)
    assert agent.learn(23) is agent
    agent.learn(37)
    whole = orl.learn(orl.ARLGen(ladder=LADDER), env, episodes=60, seed=4)
    assert agent.result is not None
    assert bits(agent.result.walk) == bits(whole.walk)
    before = bits(agent.result.walk)
    action, state = agent.predict(0)
    assert action == agent.policy(0)[0, 0]
    action, state = agent.predict(4, state)
    assert action == agent.policy(0)[1, 4]
    assert state.tolist() == [2, 0]
    assert agent.predict(4, state, episode_start=True)[0] == agent.policy(4)[0, 4]
    with pytest.raises(ParameterError, match="12 steps"):
        agent.predict(0, np.array([12, 0]))
    assert bits(agent.result.walk) == before  # predicting learns nothing


SCRIPT = """
import sys, gymnasium as gym, occamrl as orl
from tests.environments.test_learning import frozen_lake
orl.Agent.load(sys.argv[1]).learn(37, env=frozen_lake()).save(sys.argv[2])
"""


def test_saved_and_loaded_in_another_process_to_the_bit(tmp_path: Path) -> None:
    whole = orl.Agent(orl.ARLGen(ladder=LADDER), frozen_lake(), seed=4).learn(60)
    orl.Agent(orl.ARLGen(ladder=LADDER), frozen_lake(), seed=4).learn(23).save(tmp_path / "half.npz")
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", SCRIPT, tmp_path / "half.npz", tmp_path / "whole.npz"], check=True, cwd=root)
    loaded = orl.Agent.load(tmp_path / "whole.npz")
    assert loaded.result is not None
    assert whole.result is not None
    assert bits(loaded.result.walk) == bits(whole.result.walk)
    np.testing.assert_array_equal(loaded.result.returns, whole.result.returns)
    assert loaded.result.verdict == whole.result.verdict


def test_another_agent_seed_or_environment_cannot_continue(tmp_path: Path) -> None:
    result = orl.learn(learner(), Plant(), episodes=5, known=MDP.known, checkpoint=tmp_path / "a.npz")
    other = orl.UCRLVTR(family=orl.FiniteFamily(CASE.kernels), delta=0.1)
    again: dict[str, Any] = {"episodes": 5, "known": MDP.known, "continue_from": result}
    for change, field in (({"seed": 1}, "seed"), ({"agent": other}, "continue_from"), ({"env": Scripted(0, 9)}, "env")):
        options = {"agent": learner(), "env": Plant(), **again, **change}
        with pytest.raises(ParameterError) as caught:
            orl.learn(options.pop("agent"), options.pop("env"), **options)
        assert caught.value.field == field
    with pytest.raises(CheckpointError, match="another UCRLVTR"):
        orl.learn(other, Plant(), episodes=9, known=MDP.known, checkpoint=tmp_path / "a.npz")


def test_callbacks_are_told_every_episode_and_can_stop() -> None:
    class Watch(Callback):
        reports: list[EpisodeReport] = []  # noqa: RUF012  # made once
        about: Any = None
        ended: Any = None

        def on_start(self, about: Any) -> None:
            self.about = dict(about)

        def on_episode(self, report: EpisodeReport) -> bool:
            self.reports.append(report)
            return report.episode < 7

        def on_end(self, result: Any) -> None:
            self.ended = result

    watch, seen = Watch(), []
    result = orl.learn(
        orl.ARLGen(ladder=LADDER), frozen_lake(), episodes=50, callbacks=[watch, lambda report: seen.append(report)]
    )
    assert [report.episode for report in watch.reports] == list(range(1, 8)) == [report.episode for report in seen]
    np.testing.assert_array_equal([report.realised_return for report in watch.reports], result.returns)
    np.testing.assert_array_equal([report.regret for report in watch.reports], result.regret)
    assert watch.reports[0].facts["chosen"] == 1
    assert watch.about["environment"] == "FrozenLake-v1"
    assert watch.ended.total_episodes == result.total_episodes == 7


def test_ctrl_c_is_taken_at_an_episode_boundary_and_the_run_goes_on() -> None:
    class Pressed(Plant):
        def step(self, action: Any) -> Any:
            if self.episode == 4 and self.h == 1:
                signal.raise_signal(signal.SIGINT)
            return super().step(action)

    with pytest.raises(Interrupted) as caught:
        orl.learn(learner(), Pressed(), episodes=20, known=MDP.known, replay=False)
    result: Any = caught.value.result
    assert result.total_episodes == 5
    assert result.cut_short == ()
    whole = orl.learn(learner(), Plant(), episodes=20, known=MDP.known)
    rest = orl.learn(learner(), Plant(), episodes=15, known=MDP.known, continue_from=result)
    assert bits(rest.walk) == bits(whole.walk)


def test_a_second_ctrl_c_does_not_wait_for_the_environment() -> None:
    class Hanging(Plant):
        def step(self, action: Any) -> Any:
            if self.episode == 4 and self.h == 2:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)
                raise AssertionError("still here")
            return super().step(action)

    with pytest.raises(Interrupted) as caught:
        orl.learn(learner(), Hanging(), episodes=20, known=MDP.known, replay=False)
    result: Any = caught.value.result
    assert result.cut_short == (5,)
    assert result.steps == 4 * MDP.horizon + 2
    assert orl.learn(learner(), Plant(), episodes=1, known=MDP.known, continue_from=result).total_episodes == 6


def test_the_horizon_is_stated_somewhere_and_within_the_time_limit() -> None:
    with pytest.raises(HorizonError, match="no time limit"):
        FiniteEnvironment(gym.make("CliffWalking-v1"))
    with pytest.raises(HorizonError, match="max_episode_steps=101"):
        FiniteEnvironment(gym.make("FrozenLake-v1"), horizon=101)
    assert FiniteEnvironment(gym.make("FrozenLake-v1")).known.horizon == 100
    with pytest.raises(HorizonError, match="that of `known`"):
        FiniteEnvironment(Plant(), known=MDP.known, horizon=3)
    with pytest.raises(ShapeError, match="known"):
        FiniteEnvironment(gym.make("FrozenLake-v1"), known=MDP.known)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"callbacks": 3}, r"callbacks\[0\]"),
        ({"callbacks": [Callback(), "abc"]}, r"callbacks\[1\]: got 'abc'"),
        ({"checkpoint_every": "a", "checkpoint": "none.npz"}, "checkpoint_every"),
        ({"checkpoint": 3}, "checkpoint"),
        ({"checkpoint": "x" * 5000}, "too long"),
    ],
)
def test_what_learning_is_given_is_checked_before_it_begins(change: dict[str, Any], name: str) -> None:
    with pytest.raises(orl.InvalidInput, match=name):
        orl.learn(learner(), Scripted(5, 90), episodes=5, **change)
