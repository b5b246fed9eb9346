"""What is shown while cells run, and standard streams that are full, closed or left by their reader."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
from pathlib import Path

import pytest

from occamrl.experiments.display import Display, duration, pace, printable
from occamrl.experiments.execution import Experiment
from occamrl.experiments.records import status
from tests.experiments.common import COMMAND, command, play, write

ABOUT = {"problem": "[red]P", "agent": "A\x1b[2J", "seed": 3, "total": 1_000}
EVENTS = [
    {"event": "plan", "cells": 3, "todo": 2, "finished": 1},
    {"event": "begin", "cell": "x", "pid": 1, **ABOUT},
    {"event": "progress", "cell": "x", "episodes": 400, "regret": 12.5, "rate": 200.0, **ABOUT},
    {"event": "retry", "cell": "x", "try": 1, "text": "worker 1 was killed", **ABOUT},
    {"event": "done", "cell": "x", "total_regret": 20.0, "wall_time": 2.0, **ABOUT},
    {"event": "failed", "cell": "y", "text": "given up", **ABOUT},
]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_plain_lines_tell_pace_and_time_left() -> None:
    stream, now = io.StringIO(), iter([0.0, 1.0, 2.0, 3.0, 14.0, 15.0, 16.0, 17.0])
    display = Display(stream, clock=lambda: next(now))
    for event in [*EVENTS[:3], EVENTS[2], *EVENTS[3:]]:
        display(event)
    assert stream.getvalue().splitlines() == [
        "3 cells, 1 finished before, 2 to run",
        "1 of 3 cells; running: 40%, 3 s left, regret 12.5, 200 episodes/s",
        "retry 1 of 3, [red]P / A\\x1b[2J / seed 3: worker 1 was killed",
        "done [red]P / A\\x1b[2J / seed 3: regret 20.0, 2.0 s; 2 of 3 cells, about 15 s left",
        "FAILED [red]P / A\\x1b[2J / seed 3: given up",
    ]


def test_no_time_left_is_told_before_there_is_a_rate() -> None:
    assert pace({**EVENTS[2], "rate": 0.0}) == pace(EVENTS[1]) == "compiling or starting"


@pytest.mark.parametrize("columns", [40, 140])
def test_a_terminal_has_one_line_that_renews_itself_and_obeys_no_name(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream, now = Terminal(), itertools.count()
    with Display(stream, clock=lambda: float(next(now))) as display:
        for event in EVENTS:
            display(event)
    plan, retry, failed, rest = stream.getvalue().split("\n")
    assert plan == "3 cells, 1 finished before, 2 to run"
    assert failed.endswith("\r\x1b[KFAILED [red]P / A\\x1b[2J / seed 3: given up")
    assert not rest
    begun, progress, lost = retry.split("\r\x1b[K")
    assert (begun, progress) == tuple(f"1 of 3 cells; running: {pace(event)}"[: columns - 1] for event in EVENTS[1:3])
    assert lost == "retry 1 of 3, [red]P / A\\x1b[2J / seed 3: worker 1 was killed"


def test_a_call_from_python_says_little() -> None:
    stream = io.StringIO()
    display = Display(stream, brief=True, clock=lambda: 0.0)
    for event in EVENTS:
        display(event)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert "worker 1 was killed" in lines[0]
    assert "FAILED" in lines[1]


def test_words() -> None:
    assert printable("a\x1b[31m\r\n\u202e[red]é") == "a\\x1b[31m\\x0d\\x0a\\x202e[red]é"
    assert [duration(each) for each in (5.4, 65.0, 7_260.0)] == ["5 s", "1 min 5 s", "2 h 1 min"]


FULL = Path("/dev/full")


def shell(line: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in which "$@" is the command."""
    arguments = ["sh", "-c", line, "sh", *COMMAND, *map(str, words)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    return play(Experiment.from_toml(write(folder)), folder / "out").path


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full, /dev/full")
@pytest.mark.parametrize("words", [["status"], ["resume", "--json"]])
def test_output_that_is_full_is_one_message_and_a_code(out: Path, words: list[str]) -> None:
    answer = shell('"$@" >/dev/full', *words, out)
    message = "cannot write to standard output: [Errno 28] No space left on device\n"
    assert (answer.returncode, answer.stderr) == (1, message)


def test_a_reader_that_leaves_is_no_error_to_talk_about(out: Path) -> None:
    answer = shell('("$@"; echo code $? >&2) | true', "status", out)
    assert answer.stderr in ("code 1\n", "code 0\n")  # the little there is may have been taken before it left


def test_a_run_without_any_streams(out: Path) -> None:
    copy = out.with_name("closed")
    answer = shell('"$@" <&- >&- 2>&-', "run", out / "spec.toml", "--out", copy, "--workers", 1)
    assert answer.returncode == 0
    assert len(status(copy).cells) == 4


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_progress_that_cannot_be_written_ends_nothing() -> None:
    Display(Full())({"event": "failed", "cell": "x", "problem": "p", "agent": "a", "seed": 0, "text": "why"})


def test_errors_are_objects_for_programs(out: Path) -> None:
    answer = command("status", out / "nowhere", "--json")
    assert answer.exit_code == 1
    told = json.loads(answer.stdout)
    assert (told["event"], told["kind"]) == ("error", "RecordError")
    spec = out.with_name("bad.toml")
    spec.write_text("nam = 1")
    answer = command("run", spec, "--out", out, "--json")
    assert answer.exit_code == 2
    told = json.loads(answer.stdout)
    assert {fault["key"] for fault in told["faults"]} == {"nam", "name", "episodes", "seeds", "problem", "agent"}
    assert set(told["faults"][0]) == {"key", "got", "expected"}


@pytest.mark.parametrize(
    ("module", "heavy"), [("experiments.display", {"numpy", "pydantic", "pyarrow"}), ("report.league", {"numba"})]
)
def test_what_reads_a_folder_loads_nothing_that_computes(module: str, heavy: set[str]) -> None:
    code = f"import sys, occamrl.{module}; print(*sys.modules)"
    answer = subprocess.run([COMMAND[0], "-c", code], capture_output=True, text=True, check=True)
    assert heavy.isdisjoint(answer.stdout.split())
