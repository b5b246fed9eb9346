"""What the tests of experiments share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from occamrl.cli import app
from occamrl.errors import Stopped
from occamrl.experiments.execution import Experiment, play_cell
from occamrl.experiments.records import Folder

COMMAND = [sys.executable, "-c", "from occamrl.cli import main; main()"]
QUICK = 0.02  # seconds between checkpoints

SMALL = """
name = "small"
episodes = 500
seeds = 2
thinning = 20
[[problem]]
name = "RiverSwim"
parameters = { states = 3 }
[[agent]]
name = "UniformRandom"
[[agent]]
name = "Optimal"
"""


LAB = """
from dataclasses import dataclass
from typing import Any
import numpy as np
import occamrl as orl

@dataclass(frozen=True, kw_only=True)
class Counting(orl.EpisodeLearner):
    action: int = 1
    def begin(self, known):
        return {"seen": np.zeros(known.states)}
    def plan(self, known, state, start, draw):
        return np.full((known.horizon, known.states), self.action)
    def learn(self, known, state, episode):
        np.add.at(state["seen"], episode.states, 1.0)

@dataclass(frozen=True, kw_only=True)
class Choosing(orl.EpisodeLearner):  # the smallest of agents that choose among others
    bases: Any
    rule: Any
    def begin(self, known):
        return {"memory": self.rule.start(len(self.bases)), "states": [base.begin(known) for base in self.bases]}
    def plan(self, known, state, start, draw):
        base = self.rule.choose(state["memory"], draw)
        return self.bases[base].plan(known, state["states"][base], start, draw)
    def learn(self, known, state, episode):
        self.rule.update(state["memory"], 0, episode)

@dataclass(frozen=True, kw_only=True)
class Turning:
    period: int = 2
    def start(self, bases):
        return {"bases": bases, "played": 0}
    def choose(self, memory, draw):
        return memory["played"] // self.period % memory["bases"]
    def update(self, memory, base, played):
        memory["played"] += 1

@dataclass(frozen=True, kw_only=True)
class Chain:
    states: int = 3
    @property
    def mdp(self):
        kernel = np.zeros((self.states, 2, self.states))
        kernel[:, 0, 0] = 1.0
        kernel[np.arange(self.states), 1, np.minimum(np.arange(self.states) + 1, self.states - 1)] = 1.0
        reward = np.zeros((self.states, 2))
        reward[-1, 1] = 1.0
        return orl.FiniteMDP(transition=kernel, reward=reward, horizon=4)
    @classmethod
    def examples(cls):
        return [cls()]

def Broken():
    return None
"""
POINTS = """
[occamrl.learners]
Counting = my_lab.parts:Counting
Choosing = my_lab.parts:Choosing
[occamrl.rules]
Turning = my_lab.parts:Turning
[occamrl.problems]
Chain = my_lab.parts:Chain
Missing = my_lab.missing:Chain
Misfit = my_lab.parts:Turning
"""
LAB_SPEC = """
import = ["bench_agents"]
name = "lab"
episodes = 12
seeds = 2
[[problem]]
name = "chain"
[[agent]]
name = "Counting"
sweep = { action = [0, 1] }
[[agent]]
name = "bench_agents:Counting"
[[agent]]
name = "Choosing"
rule = { name = "Turning", parameters = { period = 3 } }
bases = [{ name = "Counting", sweep = { action = [0, 1] } }, { name = "bench_agents:Counting" }]
"""


def write_lab(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with entry points into a folder of its own, and leave a module that nobody can import beside.

    The package is found by every process; the module only by one that looks into ``folder / "bench"``.
    """
    installed, bench = folder / "installed", folder / "bench"
    (installed / "my_lab").mkdir(parents=True)
    (installed / "my_lab" / "__init__.py").write_text("")
    (installed / "my_lab" / "parts.py").write_text(LAB)
    about = installed / "my_lab-0.3.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-lab\nVersion: 0.3\n")
    (about / "entry_points.txt").write_text(POINTS)
    bench.mkdir()
    (bench / "bench_agents.py").write_text(LAB)
    for name in ("my_lab", "my_lab.parts", "bench_agents"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(installed)


def write(folder: Path, text: str = SMALL, name: str = "spec.toml") -> Path:
    """Write a spec."""
    path = folder / name
    path.write_text(text)
    return path


def play(experiment: Experiment, out: Path) -> Folder:
    """Play every cell in this process, without any worker."""
    folder = Folder(out)
    out.mkdir(parents=True, exist_ok=True)
    experiment.write(folder)
    for cell in experiment.cells:
        play_cell(folder, cell, QUICK)
    return folder


def command(*arguments: object, **environment: str) -> Result:
    """Call the command line in this process; an error that it does not report is raised."""
    answer = CliRunner().invoke(app, [str(each) for each in arguments], env=environment)
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return answer


def slow(episodes: int) -> str:
    """Return a spec whose cells take a while: about 3 us an episode."""
    return SMALL.replace("episodes = 500", f"episodes = {episodes}")


Event = dict[str, Any]


def after(pieces: int) -> Callable[[], bool]:
    """Return a request to stop after so many pieces."""
    answers = iter([False] * pieces + [True])
    return lambda: next(answers)


def play_in_pieces(experiment: Experiment, out: Path, pieces: tuple[int, ...]) -> Folder:
    """Play every cell, stopped after each of so many pieces; the last time it must not begin anew."""
    folder = Folder(out)
    out.mkdir()
    experiment.write(folder)
    for cell in experiment.cells:
        for count in pieces:
            with pytest.raises(Stopped, match="stopped"):
                play_cell(folder, cell, QUICK, stop=after(count))
        heard: list[Event] = []
        play_cell(folder, cell, QUICK, heard.append)
        assert heard[0]["episodes"] > 1
    return folder


class Killer:
    """Kills the first worker that is past so many episodes."""

    def __init__(self, episodes: int, by: signal.Signals = signal.SIGKILL) -> None:
        self.episodes, self.by = episodes, by
        self.killed: list[int] = []

    def __call__(self, event: Event) -> None:
        if event["event"] == "progress" and event["episodes"] > self.episodes and not self.killed:
            os.kill(event["pid"], self.by)
            self.killed.append(event["pid"])
