"""What a person or a program sees while an experiment runs, and what `status` and `verify` print.

Live lines on a terminal, plain lines or JSON elsewhere. Names come from specs and are shown, never obeyed: control
characters are made visible and markup is escaped.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from occamrl.experiments.records import RETRIES, Damage, Status, describe_holder, is_gone
from occamrl.running.files import jsonable

if TYPE_CHECKING:
    from rich.console import Group

PLAIN_EVERY = 10.0  # seconds between two lines about what runs
_LIVE_ROWS = 40
_PACES = 8  # running cells that a plain line tells of
_MOST = 20  # failed or damaged cells that are listed

Event = dict[str, Any]


def printable(text: object) -> str:
    """Return text with everything that could steer a terminal made visible."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in str(text))


class Display(contextlib.AbstractContextManager["Display"]):
    """Shows events as plain lines, as a context: one when something happens, now and then one about all cells.

    ``brief``: cells that begin and end as they should are not worth a line.
    """

    def __init__(self, stream: TextIO, brief: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.brief, self.clock = stream, brief, clock
        self.total = self.through = self.earlier = self.failed = 0  # cells
        self.running: dict[str, Event] = {}  # the latest of each cell
        self.began = self.shown_at = clock()

    def __exit__(self, *error: object) -> None:
        """Nothing to tidy."""

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
        line = "" if self.brief and event["event"] in ("plan", "done") else self.describe(event)
        now = self.clock()
        if not line and now - self.shown_at >= PLAIN_EVERY:
            paces = "; ".join(pace(each) for each in list(self.running.values())[:_PACES])
            line = self.count() + (f"; running: {paces}" if paces else "")
        if line:
            self.shown_at = now
            with contextlib.suppress(OSError):  # that nobody can read it, on a full disk, is no reason to end a run
                self.stream.write(printable(line) + "\n")
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


class LiveLines(Display):
    """A line for each running cell, which renews itself, below the lines that stay."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(stream)
        self.console = Console(file=stream, highlight=False)
        self.live = Live(console=self.console, refresh_per_second=5, transient=True, get_renderable=self._running)

    def __enter__(self) -> Self:
        self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self.live.stop()

    def show(self, event: Event) -> None:
        """Print what stays."""
        self.shown_at = self.clock()
        line = "" if event["event"] == "done" else self.describe(event)
        if line:
            from rich.text import Text

            with contextlib.suppress(OSError):
                self.console.print(Text(printable(line)))

    def _running(self) -> Group:
        """Return the numbers first, then the names, which a narrow terminal cuts."""
        from rich.console import Group
        from rich.text import Text

        cells = list(self.running.values())[:_LIVE_ROWS]
        text = [self.count()]
        text += [f"{pace(each)}  {each.get('agent')}, seed {each.get('seed')}, {each.get('problem')}" for each in cells]
        return Group(*(Text(printable(line), no_wrap=True, overflow="ellipsis") for line in text))


def display_for(stream: TextIO | None = None, *, brief: bool = False) -> Display:
    """Return the display of standard error, or of a stream: live on a terminal, plain lines elsewhere."""
    stream = stream if stream is not None else sys.stderr
    return LiveLines(stream) if stream.isatty() else Display(stream, brief)


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
