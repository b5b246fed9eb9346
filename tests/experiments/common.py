"""What the tests of experiments share."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from occamrl.cli import app
from occamrl.errors import Stopped
from occamrl.experiments.execution import Experiment, Settings, Stop, play_cell
from occamrl.experiments.records import Folder

COMMAND = [sys.executable, "-c", "from occamrl.cli import main; main()"]
QUICK = Settings(checkpoint_seconds=0.02)

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


def write(folder: Path, text: str = SMALL, name: str = "spec.toml") -> Path:
    """Write a spec."""
    path = folder / name
    path.write_text(text)
    return path


def play(experiment: Experiment, out: Path) -> Folder:
    """Play every cell in this process, without any worker."""
    folder = Folder(out)
    out.mkdir(parents=True, exist_ok=True)
    experiment.settle(folder)
    for cell in experiment.cells:
        play_cell(folder, cell, lambda news: None, Stop(), QUICK)
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


def after(pieces: int) -> Stop:
    """Return a request to stop after so many pieces."""
    answers = iter([False] * pieces + [True])
    return Stop(lambda: next(answers))


def play_in_pieces(experiment: Experiment, out: Path, pieces: tuple[int, ...]) -> Folder:
    """Play every cell, stopped after each of so many pieces; the last time it must not begin anew."""
    folder = Folder(out)
    out.mkdir()
    experiment.settle(folder)
    for cell in experiment.cells:
        for count in pieces:
            with pytest.raises(Stopped, match="stopped"):
                play_cell(folder, cell, lambda news: None, after(count), QUICK)
        heard: list[Event] = []
        play_cell(folder, cell, heard.append, Stop(), QUICK)
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
