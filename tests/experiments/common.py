"""What the tests of experiments share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from occamrl.runs.experiment import Experiment
from occamrl.runs.folder import Folder
from occamrl.runs.player import Settings, Stop, play_cell

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


def command(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call the command line in a new process."""
    words = [*COMMAND, *(str(each) for each in arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def slow(episodes: int) -> str:
    """Return a spec whose cells take a while: about 3 us an episode."""
    return SMALL.replace("episodes = 500", f"episodes = {episodes}")


Event = dict[str, Any]
