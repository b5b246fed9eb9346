"""``occamrl learn`` from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from typer.testing import CliRunner

import occamrl as orl
from occamrl.cli import app
from occamrl.envs.ladder_file import read_ladder
from occamrl.problems.mdp import RewardMap
from occamrl.registry import make_problem
from occamrl.running.agent import Agent
from tests.cases import corridor

LAKE = ["learn", "FrozenLake-v1", "--ladder", "frozen-lake-4x4", "--horizon", "12"]


def call(*arguments: str) -> tuple[int, str, str]:
    answer = CliRunner().invoke(app, list(arguments))
    return answer.exit_code, answer.stdout, answer.stderr


def test_a_verdict_for_a_person_and_for_a_machine() -> None:
    code, out, _ = call(*LAKE, "--episodes", "60")
    assert code == 0
    assert "'the same to both sides' is in play, class 2 of 3, since episode" in out
    assert "exact regret" in out
    code, out, _ = call(*LAKE, "--episodes", "60", "--compare", "--json")
    answers = [json.loads(line) for line in out.splitlines()]
    names = ["ARL-GEN", "oracle (the same to both sides)", "largest class", "smallest class"]
    assert [each["agent"] for each in answers] == names
    assert (answers[0]["chosen"], answers[0]["sizes"]) == (2, [1, 11, 231])
    assert answers[0]["regret"] < answers[3]["regret"]


def test_options_of_the_environment_and_a_checkpoint(tmp_path: Path) -> None:
    dry = [*LAKE, "--with", "is_slippery=false", "--with", "map_name=4x4", "--json"]
    dry += ["--checkpoint", str(tmp_path / "a.npz")]
    first, second = (json.loads(call(*dry, "--episodes", str(episodes))[1]) for episodes in (20, 50))
    assert first["rung"] == second["rung"] == "no slip"
    assert (first["episodes"], second["episodes"]) == (20, 50)
    assert second["regret"] == pytest.approx(0.0, abs=1e-9)


def test_a_module_beside_the_user_is_imported_only_when_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_lakes.py").write_text(
        "import gymnasium\n"
        'gymnasium.register("MyLake-v0", entry_point="gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv")\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])  # as the installed command has it
    mine = ["learn", "MyLake-v0", *LAKE[2:], "--episodes", "5"]
    for words in (mine, ["learn", "my_lakes:MyLake-v0", *mine[2:]]):
        code, _, error = call(*words)
        assert code == 2
        assert "--import" in error
        assert "my_lakes" not in sys.modules
    assert call(*mine, "--import", "my_lakes")[0] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--with", "nonsense"], "key=value"),
        (["--with", "slippery=true"], "slippery"),
        (["--with", "map_name=9x9"], "KeyError: '9x9'"),
        (["--with", "desc=[]"], "options that the environment takes"),
        (["--ladder", "frozen-lake"], "frozen-lake"),
        (["--ladder", "taxi"], "known"),
        (["--horizon", "500"], "max_episode_steps=500"),
        (["--rewards", "bernoulli"], "--rewards"),
        (["--kernel", "step"], "did you mean 'per_step'"),
        (["--import", "..x"], "--import"),
        (["--import", "no_such_module"], "no_such_module"),
        (["--import", "leaves"], "SystemExit"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    change: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    code, _, error = call(*LAKE, "--episodes", "5", *change)
    assert code == 2
    assert message in error
    assert "Traceback" not in error


def test_unknown_rewards_and_one_kernel_per_step(tmp_path: Path) -> None:
    """Coins for rewards: who counts on known ones knows their means, who estimates learns them."""
    problem = make_problem("RandomMDP", states=3, actions=2, horizon=4)
    others = np.random.default_rng(0).dirichlet(np.ones(3), size=(2, 3, 2))
    np.savez(tmp_path / "one.npz", others[:1])
    np.savez(tmp_path / "more.npz", np.concatenate([problem.mdp.kernel()[None], others[1:]]))
    (tmp_path / "ladder.toml").write_text(
        'horizon = 4\nrewards = { per_pair = "hoeffding" }\n'
        '[[rungs]]\nname = "one"\nkernels = "one.npz"\n[[rungs]]\nname = "more"\nkernels = "more.npz"\n'
    )
    sizes = [word for each in ("states=3", "actions=2", "horizon=4") for word in ("--with", each)]
    words = ["learn", "occamrl/RandomMDP-v0", *sizes, "--with", "reward_noise=bernoulli", "--episodes", "3000"]
    words += ["--ladder", str(tmp_path / "ladder.toml"), "--json", "--checkpoint", str(tmp_path / "a.npz")]
    code, out, _ = call(*words, "--rewards", "bernstein", "--kernel", "per_step")
    answer = json.loads(out)
    assert (code, answer["rung"], answer["outside"]) == (0, "more", False)
    assert answer["regret"] > 0.0  # exact: the environment shows its truth
    kept = Agent.load(tmp_path / "a.npz").algorithm
    assert (vars(kept)["kernel"], vars(kept)["rewards"].bound) == ("per_step", "bernstein")


def test_the_command_warns_of_a_ladder_that_can_be_fooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tutorial's corridor, paid in hundreds: the preflight speaks before the run, in that unit."""
    slips = [0.0, 0.1, 0.3, 0.5]
    np.savez(tmp_path / "one.npz", np.stack([corridor(q, q) for q in slips]))
    np.savez(tmp_path / "two.npz", np.stack([corridor(p, q) for p in slips for q in slips if p != q]))
    reward = np.zeros((8, 2))
    reward[7] = 100.0
    np.savez(tmp_path / "reward.npz", reward)
    truth = orl.FiniteMDP(transition=corridor(0.5, 0.1), reward=reward, horizon=25, reward_range=(0, 100))
    problem = SimpleNamespace(mdp=truth, unit=RewardMap(0.0, 100.0))
    spec = EnvSpec("Corridor-v0", "occamrl.envs.registered:ProblemEnv", kwargs={"problem": problem})
    monkeypatch.setitem(gym.registry, "Corridor-v0", spec)
    (tmp_path / "c.toml").write_text(
        'horizon = 25\nreward = "reward.npz"\nreward_range = [0, 100]\n'
        '[[rungs]]\nname = "everywhere"\nkernels = "one.npz"\n[[rungs]]\nname = "by halves"\nkernels = "two.npz"\n'
    )
    order = ["learn", "Corridor-v0", "--ladder", str(tmp_path / "c.toml")]
    code, out, warned = call(*order, "--episodes", "20")
    assert code == 0
    assert "preflight" not in out
    assert "blind pairs" in warned
    assert "--safe avoids it" in warned
    assert "--safe was chosen" in call(*order, "--episodes", "20", "--safe")[2]
    ladder = read_ladder(tmp_path / "c.toml")
    worst = orl.preflight(ladder.ladder, ladder.known, episodes=20, truths=12, members=12).worst_loss
    assert f"lose {100.0 * worst:.3g} in each" in warned
    assert "preflight:" in call(*LAKE, "--episodes", "3", "--with", "is_slippery=false")[2]
