"""Vector environments: episodes that are played side by side are those played one by one."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import occamrl as orl
from occamrl import errors
from occamrl.addresses import generator
from occamrl.envs.wrapper import FiniteEnvironment
from occamrl.running.learn import EpisodeReport
from tests.test_environments import KERNELS, LAKE, MDP, REWARD, Counting, alike

MODES = list(AutoresetMode)


def lakes(count: int, mode: AutoresetMode, kind: str = "sync") -> Any:
    options = {"autoreset_mode": mode}
    return gym.make_vec(
        "FrozenLake-v1", num_envs=count, vectorization_mode=kind, vector_kwargs=options
    )


def seed_of(episode: int) -> int:
    """The seed with which an episode of a run with seed 0 is reset."""
    return int(generator(0, "reset", episode).integers(2**31))


class Pump(gym.Env[Any, Any]):
    """A known problem seen as pairs; what goes wrong depends on the seed of an episode alone."""

    def __init__(self, fault: str = "", episode: int = 11) -> None:
        self.observation_space = spaces.MultiDiscrete([2, 2])
        self.action_space = spaces.Dict({"valve": spaces.Discrete(2, start=5)})
        self.fault = fault
        self.bad_seed = seed_of(episode)
        self.bad = False
        self.state = 0
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.bad = seed == self.bad_seed
        self.state = 0
        self.steps = 0
        if self.bad and self.fault == "reset":
            raise RuntimeError("the pump is stuck")
        return np.array(divmod(self.state, 2)), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        chosen = int(action["valve"]) - 5
        reward = float(REWARD[self.state, chosen])
        self.state = int(self.np_random.choice(4, p=KERNELS[0, self.state, chosen]))
        self.steps += 1
        truncated = False
        if self.bad and self.steps == 3:
            match self.fault:
                case "exception":
                    raise RuntimeError("the pump is stuck")
                case "Ctrl-C":
                    signal.raise_signal(signal.SIGINT)
                case "nan":
                    reward = float("nan")
                case "truncation":
                    truncated = True
        return np.array(divmod(self.state, 2)), reward, False, truncated, {}


def pumps(count: int, fault: str = "") -> SyncVectorEnv:
    return SyncVectorEnv([lambda: Pump(fault)] * count)


@pytest.mark.parametrize("mode", MODES, ids=[mode.name for mode in MODES])
@pytest.mark.parametrize("count", [1, 3, 16])
def test_side_by_side_is_one_by_one_to_the_bit(count: int, mode: AutoresetMode) -> None:
    seen: dict[str, list[EpisodeReport]] = {"one": [], "side": []}
    options: dict[str, Any] = {"episodes": 40, "known": LAKE.known, "seed": 3}
    one = orl.learn(Counting(), gym.make("FrozenLake-v1"), callbacks=seen["one"].append, **options)
    side = orl.learn(Counting(), lakes(count, mode), callbacks=seen["side"].append, **options)
    assert alike(one, side)
    assert seen["one"] == seen["side"]


def test_processes_of_their_own_play_the_same_and_the_verdict_is_the_same() -> None:
    options: dict[str, Any] = {"episodes": 30, "known": LAKE.known}
    agent = orl.Occam(ladder=LAKE.ladder)
    one = orl.learn(agent, gym.make("FrozenLake-v1"), **options)
    side = orl.learn(agent, lakes(2, AutoresetMode.NEXT_STEP, "async"), **options)
    assert alike(one, side)
    assert one.verdict["chosen"] == side.verdict["chosen"]
    np.testing.assert_array_equal(one.next_plan.policy, side.next_plan.policy)


def test_spaces_of_parts_go_through_a_batch_and_back() -> None:
    one = orl.learn(Counting(), Pump(), episodes=30, known=MDP.known)
    assert alike(one, orl.learn(Counting(), pumps(4), episodes=30, known=MDP.known))


def test_a_run_goes_on_with_any_number_of_lanes() -> None:
    whole = orl.learn(Counting(), Pump(), episodes=23, known=MDP.known)
    result = orl.learn(Counting(), pumps(5), episodes=4, known=MDP.known)
    for episodes, env in ((9, Pump()), (3, pumps(2)), (7, pumps(16))):
        result = orl.learn(
            Counting(), env, episodes=episodes, known=MDP.known, continue_from=result
        )
    assert alike(whole, result)
    agent = orl.Agent(Counting(), pumps(3), known=MDP.known)
    assert alike(agent.learn(23).result, whole)


@pytest.mark.parametrize("fault", ["nan", "truncation", "exception", "reset"])
def test_a_fault_leaves_what_came_before_it_and_the_run_goes_on(fault: str) -> None:
    options: dict[str, Any] = {"known": MDP.known, "replay": False}
    caught = []
    for env in (Pump(fault), pumps(4, fault)):
        with pytest.raises(errors.EnvironmentFault) as raised:
            orl.learn(Counting(), env, episodes=30, **options)
        caught.append(raised.value)
    one, side = (cast(orl.Result, fault.result) for fault in caught)
    if fault in ("nan", "truncation"):  # told of its episode, and of that alone
        assert caught[0].index == caught[1].index
        assert alike(one, side)
        return
    # of several environments nobody can tell which one failed: all that are under way end
    assert side.total_episodes <= one.total_episodes
    assert "the pump is stuck" in str(caught[1])
    before = orl.learn(Counting(), Pump(), episodes=side.total_episodes - 1, **options)
    assert before.blocks.returns == side.blocks.returns[:-1]


def test_a_callback_stops_after_the_same_episode() -> None:
    def until(last: int) -> Callable[[EpisodeReport], bool]:
        return lambda report: report.episode < last

    for last in (1, 6, 17):
        results = []
        for env in (Pump(), pumps(4)):
            options: dict[str, Any] = {"known": MDP.known, "callbacks": until(last)}
            results.append(orl.learn(Counting(), env, episodes=30, **options))
        assert results[0].total_episodes == last
        assert alike(*results)


def test_ctrl_c_ends_with_whole_episodes_and_nothing_is_lost() -> None:
    options: dict[str, Any] = {"known": MDP.known, "replay": False}
    with pytest.raises(errors.Interrupted) as caught:
        orl.learn(Counting(), pumps(4, "Ctrl-C"), episodes=30, **options)
    result = caught.value.result
    assert isinstance(result, orl.Result)
    assert result.total_episodes < 30
    left = 30 - result.total_episodes
    continued = orl.learn(Counting(), pumps(4), episodes=left, continue_from=result, **options)
    assert alike(continued, orl.learn(Counting(), Pump(), episodes=30, **options))


def test_an_environment_that_ignores_its_seed_is_found_among_several() -> None:
    class Deaf(Pump):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(seed=None if seed is None else seed + next(counter))

    counter = iter(range(1_000))
    with pytest.raises(errors.EnvironmentFault, match="same episode"):
        orl.learn(Counting(), SyncVectorEnv([Deaf] * 3), episodes=30, known=MDP.known)


def test_what_cannot_be_played_side_by_side_is_refused() -> None:
    native = gym.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    around = RecordEpisodeStatistics(pumps(2))
    for envs in (native, around):
        with pytest.raises(errors.ParameterError, match="make_vec") as caught:
            FiniteEnvironment(envs, known=MDP.known)
        assert caught.value.field == "env"
