"""What is shown while cells run: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

import pytest

from occamrl.experiments.display import Display, LiveLines, display_for, duration, printable

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
        "again [red]P / A\\x1b[2J / seed 3 (retry 1): worker 1 was killed",
        "done [red]P / A\\x1b[2J / seed 3: regret 20.0, 2.0 s; 2 of 3 cells, about 15 s left",
        "FAILED [red]P / A\\x1b[2J / seed 3: given up",
    ]


@pytest.mark.parametrize("columns", [40, 140])
def test_live_lines_show_running_cells_and_obey_no_name(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    with LiveLines(stream) as display:
        for event in EVENTS[:3]:
            display(event)
        display.live.refresh()
        for event in EVENTS[3:]:
            display(event)
    text = stream.getvalue()
    assert "40%, 3 s left, regret 12.5, 200" in text
    assert "A\x1b[2J" not in text
    assert all(len(line) < columns + 40 for line in text.splitlines())  # with what steers the terminal
    if columns == 140:
        for word in ("[red]P", "episodes/s", "worker 1 was killed", "given up"):
            assert word in text


def test_a_call_from_python_says_little() -> None:
    stream = io.StringIO()
    display = Display(stream, brief=True, clock=lambda: 0.0)
    for event in EVENTS:
        display(event)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert "worker 1 was killed" in lines[0]
    assert "FAILED" in lines[1]


def test_the_display_fits_the_stream() -> None:
    assert type(display_for(io.StringIO())) is Display
    assert isinstance(display_for(Terminal()), LiveLines)


def test_words() -> None:
    assert printable("a\x1b[31m\r\n\u202e[red]é") == "a\\x1b[31m\\x0d\\x0a\\x202e[red]é"
    assert [duration(each) for each in (5.4, 65.0, 7_260.0)] == ["5 s", "1 min 5 s", "2 h 1 min"]
