"""From what a scenario shows - results, answers, tables, plots, pages, commands - to plain text.

Texts of two versions are compared line by line, so what differs from run to run is left out: times,
paths, dates, versions and digests. Numbers have six significant digits.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes

import occamrl as orl

ROOT = Path(__file__).parents[1]
SOURCE = Path(str(orl.__file__)).parents[1]
LONGEST_LIST = 16
LONGEST_TABLE = 12
LEFT_OUT = (".seconds", ".wall_time", ".versions")

Things = Mapping[str, object]  # what a scenario shows, by title


class Play(NamedTuple):
    """A run to be shown."""

    agent: Any
    problem: Any
    episodes: int


class Command(NamedTuple):
    """Words for ``python``, whose output is to be shown."""

    words: tuple[str, ...]


def lines_of(path: str, thing: object) -> Iterator[str]:
    """Yield ``path: text`` for every part of a thing."""
    thing = parts_of(thing)
    if path.endswith(LEFT_OUT):
        yield f"{path}: LEFT OUT"
    elif isinstance(thing, Mapping):
        for name, part in thing.items():
            yield from lines_of(f"{path}.{name}", part)
    elif not isinstance(thing, list | tuple):
        yield from (f"{path}: {line}" for line in str(thing).splitlines())
    elif all(isinstance(part, float | int | str | None) for part in thing):
        yield f"{path}: [{line_of(thing)}]"
    else:
        for index, part in enumerate(thing[:LONGEST_TABLE]):
            yield from lines_of(f"{path}[{index}]", part)
        if len(thing) > LONGEST_TABLE:
            yield from lines_of(f"{path}[{len(thing) - 1}]", thing[-1])


def line_of(values: Sequence[object]) -> str:
    """Return scalars on one line; of many, both ends and the sum."""
    if len(values) <= LONGEST_LIST:
        return ", ".join(map(str, values))
    total = np.sum([value for value in values if isinstance(value, float | int)])
    ends = [*values[:6], "...", *values[-3:]]
    return f"{line_of(ends)} ({len(values)} in all, sum {total})"


def parts_of(thing: object) -> object:
    """Return a thing as nested dicts and lists of scalars and texts; play runs, call commands."""
    match thing:
        case np.ndarray() | np.generic():
            return thing.ravel().tolist()
        case pa.Table():
            return thing.to_pylist() if thing.num_rows <= LONGEST_TABLE else thing.to_pydict()
        case Play(agent, problem, episodes):
            return result(orl.run(agent, problem, episodes=episodes, seed=3, progress=False))
        case orl.Result():
            return result(thing)
        case Command(words):
            return output_of(words)
        case Path():
            return page_lines(thing) if thing.suffix == ".html" else thing.read_text("utf-8")
        case Axes():
            return drawn(thing)
        case types.FunctionType():
            return fault_of(thing)
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
    return thing


def result(outcome: orl.Result) -> Things:
    """Return all that a result tells."""
    return {
        "repr": repr(outcome),
        "text": str(outcome.verdict),
        "verdict": dict(outcome.verdict),
        "regret": outcome.cumulative_regret,
        "returns": outcome.returns,
        "pessimistic": outcome.pessimistic_episodes,
        "policy": outcome.policy(),
        "phases": outcome.phases,
    }


def answer(outcome: Any) -> Things:
    """Return all that an answer tells, of whatever kind the models are."""
    return {"text": str(outcome), "data": outcome.as_data()}


def drawn(axes: Axes) -> Things:
    """Return the labels, lines and coloured cells of a plot, and close it."""
    parts: dict[str, object] = {
        "labels": [axes.get_title(), axes.get_xlabel(), axes.get_ylabel()],
        "texts": [text.get_text() for text in axes.texts],
    }
    for index, line in enumerate(axes.get_lines()):
        parts[f"line{index}.label"] = line.get_label()
        parts[f"line{index}.x"] = np.asarray(line.get_xdata())
        parts[f"line{index}.y"] = np.asarray(line.get_ydata())
    for index, cells in enumerate([*axes.images, *axes.collections]):
        shades: Any = cells.get_array()
        parts[f"cells{index}"] = np.ma.getdata(shades)
    # The next plot would be drawn into the same axes.
    plt.close("all")
    return parts


class PageText(HTMLParser):
    """The visible text of a page, a line for each piece, and its JSON data."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.tag = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tag = tag
        if ("type", "application/json") in attributes:
            self.tag = "json"
        self.lines += [f"picture: {text}" for name, text in attributes if name == "alt"]

    def handle_endtag(self, tag: str) -> None:
        self.tag = ""

    def handle_data(self, data: str) -> None:
        if self.tag == "json":
            self.lines += lines_of("data", json.loads(data))
        elif self.tag not in ("style", "script") and data.strip():
            self.lines.append(" ".join(data.split()))


def page_lines(path: Path) -> str:
    page = PageText()
    page.feed(path.read_text("utf-8"))
    return "\n".join(page.lines)


def output_of(words: Sequence[str]) -> str:
    """Return the command and all that it says."""
    paths = os.pathsep.join([str(SOURCE), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, env=environment
    )
    return f"$ {' '.join(words)}\n{done.stdout}{done.stderr}exit {done.returncode}"


def fault_of(attempt: Callable[[], object]) -> str:
    try:
        return f"nothing was raised: {attempt()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def normal(text: str, folder: str) -> str:
    """Return a text without times, paths, dates, versions and digests; numbers with six digits."""
    for path, name in ((folder, "FOLDER"), (str(SOURCE), "SOURCE"), (str(ROOT), "ROOT")):
        text = text.replace(path, name)
    text = re.sub(
        r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?)?", "DATE", text
    )
    text = re.sub(r"\b\d[\d,.]* (s|ms|us|seconds?|minutes?)\b", "TIME", text)
    text = text.replace(orl.__version__, "VERSION")
    text = re.sub(r"(?<![\w.])-?\d+(\.\d+)?(e[+-]?\d+)?(?!\w|\.\d)", six_digits, text)
    text = re.sub(r"\b(?=\d*[a-f])[0-9a-f]{12,}\b", "DIGEST", text)
    return "\n".join(without_seconds(text.splitlines())) + "\n"


def six_digits(number: re.Match[str]) -> str:
    if number[1] is None and number[2] is None:
        return number[0]
    # Sums that cancel leave rounding behind, which another order of terms would change.
    return f"{round(float(number[0]), 9) + 0.0:.6g}"


def without_seconds(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines without the last column of comparisons, which is the time of a run."""
    width = 0
    for line in lines:
        if line.endswith("seconds per run"):
            width = len(line)
        # Columns are aligned: the first line of another length is no row of the table.
        if width != len(line):
            width = 0
        yield re.sub(r"\s+(seconds per run|\S+)$", "", line) if width else line.rstrip()
