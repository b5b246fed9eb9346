"""What a person or a program sees while an experiment runs, and what `status` and `verify` print.

Lines or JSON. Names come from specs and are shown, never obeyed: control characters are made visible.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from occamrl.experiments.records import RETRIES, Damage, Status, describe_holder, is_gone
from occamrl.running.files import jsonable

PLAIN_EVERY, TERMINAL_EVERY = 10.0, 0.5  # seconds between two lines about what runs
_PACES = 8  # running cells that such a line tells of
_MOST = 20  # failed or damaged cells that are listed

Event = dict[str, Any]


def printable(text: object) -> str:
    """Return text with everything that could steer a terminal made visible."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in str(text))


class Display(contextlib.AbstractContextManager["Display"]):
    """Shows events as lines, as a context: one when something happens, now and then one about all cells.

    On a terminal the latter renews itself, and stands for cells that end as they should. ``brief``: so does it
    elsewhere.
    """

    def __init__(self, stream: TextIO, brief: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.brief, self.clock = stream, brief, clock
        self.total = self.through = self.earlier = self.failed = 0  # cells
        self.running: dict[str, Event] = {}  # the latest of each cell
        self.began = self.shown_at = clock()
        self.terminal = stream.isatty()
        self.passing = False  # whether the line that stands last on the terminal is to be written over

    def __exit__(self, *error: object) -> None:
        """Wipe the line about all cells."""
        if self.passing:
            self._write("", passing=True)

    def __call__(self, event: Event) -> None:
        """Take note of an event, and show it if it deserves that."""
        match event["event"]:
            case "plan":
                self.total, self.through = event["cells"], event["finished"]
                self.earlier = self.through
            case "begin" | "progress":
                self.running[event["cell"]] = event
            case "done" | "failed":
                self.through += 1
                self.failed += event["event"] == "failed"
        if event["event"] not in ("begin", "progress"):
            self.running.pop(event.get("cell", ""), None)
        self.show(event)

    def show(self, event: Event) -> None:
        """Write a line, if there is one to write."""
        quiet = ("plan", "done") if self.brief else ("done",) if self.terminal else ()
        line = "" if event["event"] in quiet else self.describe(event)
        now, passing = self.clock(), not line and self.terminal
        if not line and now - self.shown_at >= (TERMINAL_EVERY if self.terminal else PLAIN_EVERY):
            paces = "; ".join(pace(each) for each in list(self.running.values())[:_PACES])
            line = self.count() + (f"; running: {paces}" if paces else "")
        if line:
            self.shown_at = now
            self._write(printable(line), passing)

    def _write(self, line: str, passing: bool) -> None:
        """Write a line over the one that is passing, if there is one."""
        wiped = "\r\x1b[K" if self.passing else ""
        shown = line[: shutil.get_terminal_size().columns - 1] if passing else line + "\n"
        self.passing = passing
        with contextlib.suppress(OSError):  # that nobody can read it, on a full disk, is no reason to end a run
            self.stream.write(wiped + shown)
            self.stream.flush()

    def count(self) -> str:
        """Return how many cells are through, in words."""
        new, spent = self.through - self.earlier, self.shown_at - self.began
        left = f", about {duration(spent / new * (self.total - self.through))} left" if new else ""
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.through} of {self.total} cells{failed}{left}"

    def describe(self, event: Event) -> str:
        """Return an event as a line of text; empty when it is not worth one."""
        who = f"{event.get('problem', '')} / {event.get('agent', '')} / seed {event.get('seed', '')}"
        match event["event"]:
            case "plan":
                return f"{event['cells']} cells, {event['finished']} finished before, {event['todo']} to run"
            case "done":
                return f"done {who}: regret {event['total_regret']:,.1f}, {event['wall_time']:.1f} s; {self.count()}"
            case "failed":
                return f"FAILED {who}: {event['text']}"
            case "retry":
                return f"retry {event['try']} of {RETRIES}, {who}: {event['text']}"
            case "warning":
                return f"warning: {event['text']}"
        return ""


class JsonLines(Display):
    """One JSON object per line."""

    def show(self, event: Event) -> None:
        """Write an event; that it cannot be written is an error, since a program relies on it."""
        self.stream.write(json.dumps(jsonable(event)) + "\n")
        self.stream.flush()


def duration(seconds: float) -> str:
    """Return a span of time in two units at most."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def pace(event: Event) -> str:
    """Return how far a running cell is."""
    if event.get("rate", 0.0) <= 0.0:  # no episode is through
        return "compiling or starting"
    left = (event["total"] - event["episodes"]) / event["rate"]
    share = event["episodes"] / max(event["total"], 1)
    return f"{share:.0%}, {duration(left)} left, regret {event['regret']:,.1f}, {event['rate']:,.0f} episodes/s"


def lines(now: Status, holder: dict[str, Any] | None) -> list[str]:
    """Return where an experiment stands, in words."""
    counts = (("finished", now.cells), ("running", now.running), ("failed", now.failed), ("to run", now.missing))
    text = [f"{now.name}: {now.total} cells; " + ", ".join(f"{len(each)} {name}" for name, each in counts)]
    if holder is not None:
        gone = ", which is gone; the next run recovers it" if is_gone(holder) else ""
        text.append(f"lock: {describe_holder(holder)}{gone}")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for manifest in now.cells:
        groups[manifest["problem"]["label"], manifest["agent"]["label"]].append(manifest)
    for (problem, agent), cells in groups.items():
        mean = sum(cell["total_regret"] for cell in cells) / len(cells)
        spent = sum(cell["wall_time"] for cell in cells) / len(cells)
        text.append(f"  {problem} / {agent}: {len(cells)} seeds, mean regret {mean:,.1f}, {spent:.2f} s a cell")
    for cell, progress in now.running.items():
        text.append(f"  running {cell}: {pace(progress)}")
    for manifest in now.failed[:_MOST]:
        who = f"{manifest['problem']['label']} / {manifest['agent']['label']} / seed {manifest['seed']}"
        reason = str(manifest.get("reason") or "").strip().splitlines()
        text.append(f"  failed {manifest['cell']} {who}: {reason[-1] if reason else '?'}")
    text += [f"  damaged: {wrong}" for wrong in list(now.damaged.values())[:_MOST]]
    return text


def as_data(now: Status, holder: dict[str, Any] | None) -> dict[str, Any]:
    """Return where an experiment stands, as plain data."""
    data: dict[str, Any] = jsonable(
        {
            "name": now.name,
            "cells": now.total,
            "lock": None if holder is None else {key: holder.get(key) for key in ("pid", "host", "since")},
            "finished": [manifest["cell"] for manifest in now.cells],
            "failed": {manifest["cell"]: manifest.get("reason") for manifest in now.failed},
            "running": now.running,
            "missing": now.missing,
            "damaged": {cell: str(wrong) for cell, wrong in now.damaged.items()},
        }
    )
    return data


def damage_lines(found: list[Damage], folder: Path) -> list[str]:
    """Return what `verify` found, and what to do about it."""
    if not found:
        return [f"{folder}: no damage; every record and checkpoint matches its digest"]
    text = []
    for damage in found:
        text.append(f"damaged: {damage.problem}")
        if damage.moved_to is not None:
            text.append(f"  cell {damage.cell} was moved to {damage.moved_to}")
    name = shlex.quote(str(folder))  # to be pasted into a shell
    if any(damage.moved_to for damage in found):
        text.append(f"To run these cells again: occamrl resume {name}")
    elif any(damage.cell for damage in found):
        text.append(f"To move these cells aside, so that they can be run again: occamrl verify {name}")
    if any(damage.cell is None for damage in found):
        text.append("The copy of the spec is damaged. Results do not depend on it, and `occamrl run` renews it.")
    return text
