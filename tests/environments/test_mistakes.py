"""What people get wrong, in a first hour with their own environment: each mistake is told by name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from typer.testing import CliRunner

import occamrl as orl
from occamrl.cli import app
from occamrl.envs.ladder_file import LadderSpecError, read_ladder, shipped_ladders
from occamrl.errors import ParameterError, TableError
from tests.cases import corridor
from tests.environments.misbehaving import MDP, Plant, learner


class Ending(Plant):
    """Stays where it is, earns nothing, and terminates after its first step."""

    def step(self, action: Any) -> Any:
        return self.s, 0.0, True, False, {}


def quiet(states: int) -> tuple[Any, Any]:
    """A learner, and what it knows, of a problem of which only state 3 pays."""
    kernel = np.full((states, 2, states), 1.0 / states)
    reward = np.zeros((states, 2))
    reward[3] = 1.0
    return orl.UCRLVTR(family=orl.FiniteFamily([kernel])), orl.FiniteMDP(transition=kernel, reward=reward, horizon=6)


def test_an_end_in_a_state_from_which_others_went_on_is_no_end() -> None:
    agent, mdp = quiet(4)
    with pytest.raises(TableError, match="one state more") as caught:
        orl.learn(agent, Ending(), episodes=50, known=mdp.known)
    assert "an episode ended and another one went on" in str(caught.value)
    agent, mdp = quiet(5)  # the last state is the end
    result = orl.learn(agent, Ending(), episodes=50, known=mdp.known)
    assert (result.total_episodes, result.steps) == (50, 50)


@pytest.mark.parametrize(
    ("options", "field"),
    [({"known": MDP}, "known"), ({"known": MDP.known, "seed": "a"}, "seed"), ({"known": np.zeros((4, 2))}, "known")],
)
def test_a_wrong_argument_is_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ParameterError) as caught:
        orl.learn(learner(), Plant(), episodes=2, **options)
    assert caught.value.field == field


@pytest.mark.parametrize("state", ["x", 3, (1, 2, 3), (None, 0), (-1, 0), (6, 0)])
def test_a_state_that_predict_did_not_return_is_refused(state: Any) -> None:
    with pytest.raises(ParameterError, match="what predict returned"):
        orl.Agent(learner(), Plant(), known=MDP.known).predict(0, state)


class Slide(Plant):
    """Plant, seen as a number in [0, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        s, info = super().reset(seed=seed)
        return np.array([(s + 0.5) / 4]), info

    def step(self, action: Any) -> Any:
        s, *rest = super().step(action)
        return np.array([(s + 0.5) / 4]), *rest


def test_a_loaded_agent_brings_its_cells_along(tmp_path: Path) -> None:
    cells = orl.Discretiser.uniform(Slide().observation_space, 4)
    once = orl.Agent(learner(), Slide(), known=MDP.known, discretiser=cells).learn(20)
    orl.Agent(learner(), Slide(), known=MDP.known, discretiser=cells).learn(8).save(tmp_path / "a.npz")
    again = orl.Agent.load(tmp_path / "a.npz").learn(12, env=Slide())
    assert once.result is not None
    assert again.result is not None
    assert (once.result.returns == again.result.returns).all()


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(each) for each in arguments])


LAKE = ("learn", "FrozenLake-v1", "--ladder", "frozen-lake-4x4", "--episodes", 3, "--horizon", 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--with", "map_name=9x9"), "KeyError: '9x9'"),
        (("--with", "desc=[]"), "options that the environment takes"),
        (("--import", ""), "--import"),
        (("--import", "..x"), "--import"),
        (("--import", "no_grammar"), "SyntaxError"),
        (("--import", "divides_by_zero"), "ZeroDivisionError"),
        (("--import", "leaves"), "SystemExit"),
    ],
)
def test_code_of_others_that_fails_is_told_in_a_line(
    options: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {"no_grammar": "def (", "divides_by_zero": "1 / 0", "leaves": "raise SystemExit(0)"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found = call(*LAKE, *options)
    assert found.exit_code == 2, found.output
    assert message in found.stderr
    assert "Traceback" not in found.output


def test_a_module_beside_the_user_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lakes_here.py").write_text(
        "import gymnasium\n"
        'gymnasium.register("LakeHere-v0", entry_point="gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv")\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])  # as the installed command has it
    assert call("learn", "LakeHere-v0", *LAKE[2:], "--import", "lakes_here").exit_code == 0


@pytest.mark.parametrize(
    ("rungs", "expected"),
    [
        (["5"], "the name of an NPZ file"),
        (['"two.npz"', '"three.npz"'], "[S, A, S]"),
        (['["two.npz", "three.npz"]'], "[S, A, S]"),
        (['"flat.npz"'], "[S, A, S]"),
    ],
)
def test_kernels_that_do_not_fit_are_refused(rungs: list[str], expected: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", np.full((2, 2, 2), 0.5))
    np.savez(tmp_path / "three.npz", np.full((3, 2, 3), 1.0 / 3.0))
    np.savez(tmp_path / "flat.npz", np.full((2, 2), 0.5))
    np.savez(tmp_path / "reward.npz", np.zeros((2, 2)))
    text = 'horizon = 3\nreward = "reward.npz"\n' + "".join(f"[[rungs]]\nkernels = {rung}\n" for rung in rungs)
    (tmp_path / "ladder.toml").write_text(text)
    with pytest.raises(LadderSpecError) as caught:
        read_ladder(tmp_path / "ladder.toml")
    assert expected in str(caught.value)


def test_the_list_names_the_ladders_that_can_be_called_by_name() -> None:
    out = call("list").stdout
    assert all(name in out for name in shipped_ladders())


CORRIDOR = """
import gymnasium
from gymnasium import spaces


class Corridor(gymnasium.Env):
    observation_space, action_space = spaces.Discrete(8), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action):
        reward, slip = 100.0 * (self.place == 7), 0.5 if self.place < 4 else 0.1
        lucky = self.np_random.random() < (1 - slip if action else 0.6)
        self.place = min(self.place + 1, 7) if lucky else max(self.place - 2 * action, 0)
        return self.place, reward, False, False, {}


gymnasium.register("Corridor-v0", entry_point=Corridor)
"""


def test_the_command_warns_of_a_ladder_that_can_be_fooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tutorial's corridor, paid in hundreds: the preflight speaks before the run, in that unit."""
    slips = [0.0, 0.1, 0.3, 0.5]
    (tmp_path / "corridor_here.py").write_text(CORRIDOR)
    np.savez(tmp_path / "one.npz", np.stack([corridor(q, q) for q in slips]))
    np.savez(tmp_path / "two.npz", np.stack([corridor(p, q) for p in slips for q in slips if p != q]))
    reward = np.zeros((8, 2))
    reward[7] = 100.0
    np.savez(tmp_path / "reward.npz", reward)
    (tmp_path / "c.toml").write_text(
        'horizon = 25\nreward = "reward.npz"\nreward_range = [0, 100]\n'
        '[[rungs]]\nname = "everywhere"\nkernels = "one.npz"\n[[rungs]]\nname = "by halves"\nkernels = "two.npz"\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    order = ("learn", "Corridor-v0", "--import", "corridor_here", "--ladder", tmp_path / "c.toml", "--episodes", 20)
    plain, safe = call(*order), call(*order, "--safe")
    assert plain.exit_code == safe.exit_code == 0, plain.output
    assert "preflight" not in plain.stdout
    assert "blind pairs" in plain.stderr
    assert "--safe avoids it" in plain.stderr
    assert "--safe was chosen" in safe.stderr
    spec = read_ladder(tmp_path / "c.toml")
    worst = orl.preflight(spec.ladder, spec.known, episodes=20, truths=12, members=12).worst_loss
    assert f"lose {100.0 * worst:.3g} in each" in plain.stderr
    lake = call(*LAKE, "--with", "is_slippery=false")
    assert "preflight:" in lake.stderr


def test_a_vector_environment_is_refused() -> None:
    with pytest.raises(ParameterError, match="SyncVectorEnv"):
        orl.learn(learner(), gym.make_vec("FrozenLake-v1", 2), episodes=2)  # type: ignore[arg-type]  # wrong on purpose
