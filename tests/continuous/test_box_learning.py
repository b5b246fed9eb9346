"""Agents on a box in Gymnasium environments: the same as by hand, resumed to the bit, and nothing lost to a fault."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from occamrl.continuous.grid import Grid
from occamrl.continuous.transitions import Driven, normal_rule
from occamrl.environments.misbehaviour import (
    EnvironmentFailure,
    EnvironmentFault,
    EnvironmentReward,
    EpisodeCutShort,
    SpaceError,
)
from occamrl.errors import Interrupted, ParameterError
from occamrl.runs.anchored import Anchored
from occamrl.runs.box_learning import learn_on_box
from occamrl.selectors.arl_lin_dim import ARLLinDim
from tests.continuous.circle import SIGMA, THETA, TURNS, driven, learner
from tests.continuous.test_anchored_files import everything

STEP, RESET = "step", "reset"


class Circle(gym.Env[Any, Any]):
    """The circle as an environment; rewards of 10 to 30; ``trouble`` may change what a step returns."""

    def __init__(self, trouble: Callable[..., Any] | None = None) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space: Any = spaces.Discrete(2, start=3)
        self.trouble, self.episodes = trouble, -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episodes, self.steps = self.episodes + 1, 0
        self.state = self.np_random.uniform(-math.pi, math.pi, size=1)
        return self._troubled(RESET, (self.state, {}))

    def step(self, action: Any) -> Any:
        reward = 20.0 + 10.0 * math.cos(self.state[0])
        turn = TURNS[self.np_random.choice(3, p=THETA)] * (1.0, -1.0)[action - 3]
        self.state = self.state + turn + SIGMA * self.np_random.normal(size=1)
        self.steps += 1
        return self._troubled(STEP, (self.state, reward, False, False, {}))

    def _troubled(self, where: str, answer: tuple[Any, ...]) -> Any:
        return answer if self.trouble is None else self.trouble(self, where, answer)


def make() -> Anchored:
    return learner([driven(turn, 5) for turn in TURNS], agent=ARLLinDim, actions=[1.0, -1.0], error=0.05)


def play(agent: Anchored, env: gym.Env[Any, Any], episodes: int, **options: Any) -> Anchored:
    return learn_on_box(agent, env, episodes=episodes, reward_range=(10.0, 30.0), progress=False, **options)


def at(episode: int, step: int, change: Callable[[tuple[Any, ...]], Any]) -> Callable[..., Any]:
    """Return a trouble at one step (from 1) of one episode (from 0)."""

    def trouble(env: Circle, where: str, answer: tuple[Any, ...]) -> Any:
        return change(answer) if (env.episodes, env.steps) == (episode, step) else answer

    return trouble


def test_it_is_what_one_would_do_by_hand() -> None:
    one, two, env = make(), make(), Circle()
    seeds = []

    def note(env: Circle, where: str, answer: tuple[Any, ...]) -> Any:
        if where == RESET:
            seeds.append(env.np_random_seed)
        return answer

    play(one, Circle(note), 12)
    for seed in seeds:
        two.begin(env.reset(seed=seed)[0])
        for _ in range(3):
            two.record(env.step(3 + two.act())[0])
    assert everything(one) == everything(two)
    assert len(set(seeds)) == 12
    assert one.returns.shape == (12,)
    assert 0.0 < one.returns.mean() < 3.0


def test_ctrl_c_and_the_same_command_again_lose_nothing(tmp_path: Path) -> None:
    def press(answer: tuple[Any, ...]) -> Any:
        signal.raise_signal(signal.SIGINT)
        return answer

    path, agent = tmp_path / "agent.npz", make()
    with pytest.raises(Interrupted, match="after episode 8 of 20") as caught:
        play(agent, Circle(at(7, 2, press)), 20, checkpoint=path)
    assert caught.value.result is agent
    again = play(make(), Circle(), 20, checkpoint=path)
    assert everything(again) == everything(play(make(), Circle(), 20))
    content = path.read_bytes()
    play(make(), Circle(), 20, checkpoint=path)  # nothing left to do
    assert path.read_bytes() == content


def test_progress_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    agent = learn_on_box(make(), Circle(), episodes=4, reward_range=(10.0, 30.0), progress=True)
    told = capsys.readouterr().err
    assert "ARLLinDim: 2 of 4 episodes (50%), realised return" in told
    mean = float(told.split("realised return ")[1].split(",")[0]) / 2
    assert mean == pytest.approx(30.0 + 20.0 * agent.returns[:2].mean(), abs=0.1)  # three steps of 10 to 30


def test_a_second_ctrl_c_does_not_wait() -> None:
    def press(answer: tuple[Any, ...]) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return answer

    agent = make()
    with pytest.raises(Interrupted, match="in episode"):
        play(agent, Circle(at(3, 2, press)), 20)
    assert agent.episode == 4
    play(agent, Circle(), 1)


def fail(answer: tuple[Any, ...]) -> Any:
    raise RuntimeError("the belt came off")


@pytest.mark.parametrize(
    ("change", "kind", "told"),
    [
        (lambda a: (a[0], 31.0, *a[2:]), EnvironmentReward, r"reward\[99, 1\].*31.0.*\[10, 30\]"),
        (lambda a: (a[0], math.nan, *a[2:]), EnvironmentReward, r"reward\[99, 1\].*nan.*\[10, 30\]"),
        (lambda a: (a[0], "x", *a[2:]), EnvironmentReward, r"reward\[99, 1\]"),
        (lambda a: (a[0], a[1] - 1.0, *a[2:]), EnvironmentReward, r"reward\[99, 1\].*that the agent knows"),
        (lambda a: (np.array([np.nan]), *a[1:]), SpaceError, r"observation\[99, 1\].*nan.*any angle"),
        (lambda a: (np.zeros(2), *a[1:]), SpaceError, r"observation\[99, 1\]"),
        (lambda a: ("left", *a[1:]), SpaceError, r"observation\[99, 1\].*left"),
        (fail, EnvironmentFailure, r"Circle\[99, 1\].*belt"),
        (lambda a: (*a[:2], True, *a[3:]), EpisodeCutShort, r"Circle\[99, 2\].*2 steps.*3 steps"),
    ],
)
def test_a_fault_on_the_hundredth_episode_leaves_what_was_learned(
    change: Any, kind: type[EnvironmentFault], told: str, hundred: tuple[bytes, Path], tmp_path: Path
) -> None:
    content, path = hundred[0], tmp_path / "agent.npz"
    path.write_bytes(content)
    agent = make()
    agent.load(path)
    env = Circle(at(0, 2, change))
    with pytest.raises(kind, match=told) as caught:
        play(agent, env, 120, checkpoint=path)
    assert caught.value.result is agent
    by_hand, same = make(), Circle()
    by_hand.load(hundred[1])
    by_hand.begin(same.reset(seed=env.np_random_seed)[0])
    for _ in range(2 if kind is EpisodeCutShort else 1):  # the steps before the fault count
        by_hand.record(same.step(3 + by_hand.act())[0])
    by_hand.end()
    assert everything(agent) == everything(by_hand)
    saved = make()
    saved.load(path)
    assert everything(saved) == everything(agent)
    play(saved, Circle(), 101, checkpoint=path)  # and it goes on
    assert saved.episode == 101


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Path]:
    """Return what was learned in 99 episodes."""
    path = tmp_path_factory.mktemp("hundred") / "agent.npz"
    play(make(), Circle(), 99, checkpoint=path)
    return path.read_bytes(), path


def test_a_fault_in_reset_changes_nothing() -> None:
    agent = play(make(), Circle(), 3)
    before = everything(agent)
    with pytest.raises(EnvironmentFailure, match=r"Circle\[3, 0\]"):
        play(agent, Circle(at(0, 0, fail)), 3)
    assert everything(agent) == before


def test_episodes_that_end_early_can_be_learned_from() -> None:
    agent = play(make(), Circle(at(1, 1, lambda a: (*a[:2], False, True, {}))), 3, allow_truncation=True)
    assert agent.episode == 3
    assert agent.rows == 2 + 1 + 2  # the last of three steps gives no row


def test_boxes_of_actions_and_other_observations() -> None:
    class Turned(Circle):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float64)
            self.action_space = spaces.Box(-1.0, 1.0, (1, 1), np.float64)
            self.trouble = lambda env, where, answer: (
                np.concatenate([np.cos(answer[0]), np.sin(answer[0])]),
                *answer[1:],
            )

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action)
            return super().step(3 if action[0, 0] == 1.0 else 4)

    agent = play(make(), Turned(), 8, state_of=lambda o: [math.atan2(o[1], o[0])])
    other = play(make(), Circle(), 8)  # angles are found again up to whole turns and rounding
    np.testing.assert_allclose(agent.seen.gram, other.seen.gram, atol=1e-9)


def test_environments_that_do_not_fit_are_refused() -> None:
    env = Circle()
    with pytest.raises(ParameterError, match="env"):
        play(make(), "Pendulum-v1", 1)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ParameterError, match="agent"):
        play(ARLLinDim, env, 1)  # type: ignore[arg-type]  # wrong on purpose
    for space in (
        spaces.Discrete(3),
        spaces.Box(-1.0, 1.0, (2,)),
        spaces.Box(-0.5, 0.5, (1,)),
        spaces.MultiBinary(1),
    ):
        env.action_space = space
        with pytest.raises(SpaceError, match="action"):
            play(make(), env, 1)
    env = Circle()
    env.observation_space = spaces.Discrete(3)
    with pytest.raises(SpaceError, match="observation_space"):
        play(make(), env, 1)


class Wall(gym.Env[Any, Any]):
    """A point that is pushed between two walls, in numbers of 32 bits: -1.2 is then a little less than -1.2."""

    def __init__(self, action_space: Any) -> None:
        self.observation_space = spaces.Box(-1.2, 0.6, (1,), np.float32)
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state = np.zeros(1, np.float32)
        return self.state, {}

    def step(self, action: Any) -> Any:
        reward = float(between_walls(self.state[None], np.zeros(1))[0])
        pushed = self.state + np.float32(2.0 * self.np_random.normal())
        self.state = np.clip(pushed, np.float32(-1.2), np.float32(0.6))
        return self.state, reward, False, False, {}


def between_walls(states: Any, action: Any) -> Any:
    return (np.asarray(states[:, 0], dtype=float) + 1.2) / 1.8001 + 1e-5


def pushed(**changes: Any) -> Anchored:
    push = Driven(step=lambda s, a, w: np.clip(s + w, -1.2, 0.6), rule=lambda n: normal_rule([2.0], n), nodes=5)
    walls = Grid(low=[-1.2], high=[0.6], points=[5])
    options: dict[str, Any] = {"models": [push], "grid": walls, "actions": [0.0], "reward": between_walls}
    return Anchored(**{**options, "horizon": 3, "episodes": 10, **changes})


def test_a_state_on_the_edge_in_coarser_numbers_is_in_the_box() -> None:
    agent = learn_on_box(pushed(), Wall(spaces.Discrete(1)), episodes=10, progress=False)
    assert agent.rows == 20
    assert float(np.float32(-1.2)) < -1.2 - 1e-9 * 1.8  # what the grid itself takes for rounding


def test_a_state_beyond_the_edge_is_not() -> None:
    class Beyond(Wall):
        def step(self, action: Any) -> Any:
            return np.array([-1.200001], np.float32), *super().step(action)[1:]

    with pytest.raises(SpaceError, match=r"observation\[0, 0\]"):
        learn_on_box(pushed(), Beyond(spaces.Discrete(1)), episodes=10, progress=False)


def test_actions_that_integers_would_change_are_refused() -> None:
    whole = spaces.Box(-1, 1, (1,), np.int64)
    learn_on_box(pushed(actions=[-1.0, 1.0]), Wall(whole), episodes=1, progress=False)
    with pytest.raises(SpaceError, match=r"actions\[1\]: got \[0.5\]"):
        learn_on_box(pushed(actions=[-1.0, 0.5]), Wall(whole), episodes=1, progress=False)


def test_what_turns_observations_into_states_is_a_function() -> None:
    with pytest.raises(ParameterError, match="state_of"):
        learn_on_box(pushed(), Wall(spaces.Discrete(1)), episodes=1, state_of=3)  # type: ignore[arg-type]
