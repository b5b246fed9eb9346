"""What a person or a program sees while an experiment runs, and what `status` and `verify` print.

Live lines on a terminal, plain lines or JSON elsewhere. Names come from specs and are shown, never obeyed: control
characters are made visible and markup is escaped.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from occamrl.experiments.records import Damage, Status, describe_holder, is_gone, jsonable

PLAIN_EVERY = 10.0  # seconds between two lines about what runs
_LIVE_ROWS = 40
_NARROW = 80  # columns of a terminal: in fewer, a table would be cut everywhere
_MOST = 20  # failed or damaged cells that are listed

Event = dict[str, Any]


def printable(text: object) -> str:
    """Return text with everything that could steer a terminal made visible."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in str(text))


class Display:
    """Shows events, as a context."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = stream
        self.clock = clock
        self.count = Count()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to tidy."""

    def __call__(self, event: Event) -> None:
        """Show an event."""
        raise NotImplementedError

    def write(self, line: str) -> None:
        """Write a line, unless it is empty; that nobody can read it, on a full disk, is no reason to end a run."""
        if line:
            with contextlib.suppress(OSError):
                self.stream.write(printable(line) + "\n")
                self.stream.flush()


def choose(json_lines: bool, stream: TextIO | None = None) -> Display:
    """Return the display that fits: JSON on standard output, else a live table or plain lines on standard error."""
    if json_lines:
        return JsonLines(sys.stdout)
    stream = stream if stream is not None else sys.stderr
    return LiveTable(stream) if stream.isatty() else PlainLines(stream)


def quiet(stream: TextIO | None = None) -> Display:
    """Return the display of a call from Python: a live table on a terminal, elsewhere a few lines if it takes long."""
    stream = stream if stream is not None else sys.stderr
    return LiveTable(stream) if stream.isatty() else FewLines(stream)


class JsonLines(Display):
    """One JSON object per line."""

    def __call__(self, event: Event) -> None:
        """Write an event; that it cannot be written is an error, since a program relies on it."""
        self.stream.write(json.dumps(jsonable(event)) + "\n")
        self.stream.flush()


class PlainLines(Display):
    """A line when something happens to a cell, and now and then one about those that run."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream, clock)
        self.told: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        """Write a line, if the event deserves one."""
        self.count.take(event)
        if event["event"] == "progress":
            now = self.clock()
            if now - self.told.setdefault(event["cell"], now) < PLAIN_EVERY:
                return
            self.told[event["cell"]] = now
        self.write(describe(event, self.count))


class FewLines(Display):
    """A line about all cells now and then, and one about whatever goes wrong."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream, clock)
        self.running: dict[str, float] = {}  # share of a cell that is played
        self.told = clock()

    def __call__(self, event: Event) -> None:
        """Write a line, if the event deserves one or it is time to."""
        self.count.take(event)
        if event["event"] == "progress":
            self.running[event["cell"]] = event["episodes"] / max(event["total"], 1)
        elif event["event"] in ("done", "failed", "stopped"):
            self.running.pop(event.get("cell", ""), None)
        line = describe(event, self.count) if event["event"] in ("failed", "retry", "warning") else ""
        now = self.clock()
        if not line and now - self.told >= PLAIN_EVERY:
            under_way = ", ".join(f"{100 * share:.0f} %" for share in list(self.running.values())[:8])
            line = self.count.line() + (f"; running: {under_way}" if under_way else "")
        if line:
            self.told = now
        self.write(line)


class LiveTable(Display):
    """A table of the running cells that renews itself below the lines that stay."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.console = Console(file=stream, highlight=False)
        self.running: dict[str, Event] = {}
        self.live = Live(console=self.console, refresh_per_second=5, transient=True, get_renderable=self._table)

    def __enter__(self) -> Self:
        self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self.live.stop()

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        self.count.take(event)
        if event["event"] in ("begin", "progress"):
            self.running[event["cell"]] = event
            return
        self.running.pop(event.get("cell", ""), None)
        line = describe(event, self.count)
        if line and event["event"] != "done":
            with contextlib.suppress(OSError):
                self.console.print(Text(printable(line)))

    def _table(self) -> Table:
        """Return the table; on a narrow terminal lines that can be cut, the numbers first, then the names."""
        table = Table(title=Text(self.count.line()), title_justify="left", box=None, padding=(0, 2, 0, 0))
        narrow = self.console.width < _NARROW
        if narrow:
            table.show_header = False
            table.add_column(no_wrap=True, overflow="ellipsis")
        else:
            for name in ("problem", "agent", "seed", "episodes", "regret", "episodes/s", "left"):
                table.add_column(name, justify="left" if name in ("problem", "agent") else "right", no_wrap=True)
        for event in list(self.running.values())[:_LIVE_ROWS]:
            problem, agent, seed = (str(event.get(key, "")) for key in ("problem", "agent", "seed"))
            done, regret, rate, left = _pace(event)
            cells = [problem, agent, seed, done, regret, rate, left]
            if narrow:
                pace = "starting"
                if left:
                    pace = f"{event['episodes'] / event['total']:.0%}  {left}  regret {regret}  {rate}/s"
                cells = [f"{pace}  {agent}, seed {seed}, {problem}"]
            table.add_row(*(Text(printable(cell)) for cell in cells))
        return table


class Count:
    """How many cells are through."""

    def __init__(self) -> None:
        self.total = self.through = self.failed = 0
        self.began = time.monotonic()
        self.earlier = 0

    def take(self, event: Event) -> None:
        """Take note of an event."""
        if event["event"] == "plan":
            self.total, self.through = event["cells"], event["finished"]
            self.earlier = self.through
        elif event["event"] in ("done", "failed"):
            self.through += 1
            self.failed += event["event"] == "failed"

    def line(self) -> str:
        """Return the count in words."""
        new, spent = self.through - self.earlier, time.monotonic() - self.began
        left = f", about {duration(spent / new * (self.total - self.through))} left" if new else ""
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.through} of {self.total} cells{failed}{left}"


def duration(seconds: float) -> str:
    """Return a span of time in two units at most."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _pace(event: Event) -> tuple[str, str, str, str]:
    """Return (episodes, regret, rate, time left) of a running cell."""
    if "rate" not in event:
        return "compiling or starting", "", "", ""
    left = (event["total"] - event["episodes"]) / max(event["rate"], 1e-9)
    done = f"{event['episodes']:,} of {event['total']:,}"
    return done, f"{event['regret']:,.1f}", f"{event['rate']:,.0f}", duration(left)


def _progress(event: Event) -> str:
    done, regret, rate, left = _pace(event)
    return f"{done} episodes, regret {regret}, {rate} episodes/s, {left} left"


def describe(event: Event, count: Count) -> str:
    """Return an event as a line of text; empty when it is not worth one."""
    who = f"{event.get('problem', '')} / {event.get('agent', '')} / seed {event.get('seed', '')}"
    match event["event"]:
        case "plan":
            return f"{event['cells']} cells, {event['finished']} finished before, {event['todo']} to run"
        case "progress":
            return f"  {who}: {_progress(event)}"
        case "done":
            return f"done {who}: regret {event['total_regret']:,.1f}, {event['wall_time']:.1f} s; {count.line()}"
        case "failed":
            return f"FAILED {who}: {event['text']}"
        case "retry":
            return f"again {who} (retry {event['try']}): {event['text']}"
        case "warning":
            return f"note: {event['text']}"
    return ""


def lines(now: Status, holder: dict[str, Any] | None) -> list[str]:
    """Return where an experiment stands, in words."""
    counts = (("finished", now.done), ("running", now.running), ("failed", now.failed), ("to run", now.missing))
    text = [f"{now.name}: {len(now.order)} cells; " + ", ".join(f"{len(each)} {name}" for name, each in counts)]
    if holder is not None:
        gone = ", which is gone; the next run recovers it" if is_gone(holder) else ""
        text.append(f"lock: {describe_holder(holder)}{gone}")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for manifest in now.done:
        groups[manifest["problem"]["label"], manifest["agent"]["label"]].append(manifest)
    for (problem, agent), cells in groups.items():
        mean = sum(cell["total_regret"] for cell in cells) / len(cells)
        spent = sum(cell["wall_time"] for cell in cells) / len(cells)
        text.append(f"  {problem} / {agent}: {len(cells)} seeds, mean regret {mean:,.1f}, {spent:.2f} s a cell")
    for cell, progress in now.running.items():
        text.append(f"  running {cell}: {_progress(progress)}")
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
            "cells": len(now.order),
            "lock": None if holder is None else {key: holder.get(key) for key in ("pid", "host", "since")},
            "finished": [manifest["cell"] for manifest in now.done],
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
        return [f"{folder}: every record and checkpoint is as it was written"]
    text = []
    for damage in found:
        text.append(f"damaged: {damage.problem}")
        if damage.moved_to is not None:
            text.append(f"  cell {damage.cell} put aside: {damage.moved_to}")
    if any(damage.cell for damage in found):
        text.append(f"Run the cells that were put aside again with: occamrl resume {folder}")
    if any(damage.cell is None for damage in found):
        text.append("The copy of the spec is damaged; results do not depend on it, and `occamrl run` renews it.")
    return text
