"""What is shown while cells run: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

import pytest

from occamrl.experiments.display import FewLines, JsonLines, LiveTable, PlainLines, choose, duration, quiet

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
    stream, now = io.StringIO(), iter([0.0, 11.0])
    display = PlainLines(stream, clock=lambda: next(now))
    for event in [*EVENTS[:3], EVENTS[2], *EVENTS[3:]]:
        display(event)
    text = stream.getvalue()
    assert "[red]P / A\\x1b[2J / seed 3: 400 of 1,000 episodes, regret 12.5, 200 episodes/s, 3 s left" in text
    assert "3 cells, 1 finished before, 2 to run" in text
    assert "again" in text
    assert "2 of 3 cells" in text
    assert "FAILED" in text


def test_the_live_table_shows_running_cells_and_obeys_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    stream = Terminal()
    with LiveTable(stream) as display:
        for event in EVENTS[:3]:
            display(event)
        display.live.refresh()
        for event in EVENTS[3:]:
            display(event)
    text = stream.getvalue()
    for word in ("[red]P", "400 of 1,000", "12.5", "3 s", "episodes/s", "worker 1 was killed", "given up"):
        assert word in text
    assert "A\x1b[2J" not in text


def test_a_narrow_terminal_shows_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    with LiveTable(stream) as display:
        for event in EVENTS[:3]:
            display(event)
        display.live.refresh()
    lines = stream.getvalue().splitlines()
    line = next(line for line in lines if "regret" in line)
    assert "40%  3 s  regret 12.5  200/s  A\\x1b[" in line
    assert all(len(line) < 80 for line in lines)  # with what steers the terminal


def test_a_call_from_python_says_little() -> None:
    stream, now = io.StringIO(), iter([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    display = FewLines(stream, clock=lambda: next(now))
    for event in [*EVENTS[:3], EVENTS[3], *EVENTS[4:]]:
        display(event)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert "worker 1 was killed" in lines[0]
    assert "FAILED" in lines[1]
    later, stream = iter([0.0, 1.0, 12.0]), io.StringIO()
    display = FewLines(stream, clock=lambda: next(later))
    display(EVENTS[0])
    display(EVENTS[2])
    assert stream.getvalue() == "1 of 3 cells; running: 40 %\n"
    assert isinstance(quiet(stream), FewLines)


def test_the_display_fits_the_stream() -> None:
    assert isinstance(choose(True), JsonLines)
    assert isinstance(choose(False, io.StringIO()), PlainLines)
    assert isinstance(choose(False, Terminal()), LiveTable)


def test_durations() -> None:
    assert [duration(each) for each in (5.4, 65.0, 7_260.0)] == ["5 s", "1 min 5 s", "2 h 1 min"]
