"""The figures of an experiment: regret, differences from a baseline, decisions, sweeps.

A report shows them, and ``occamrl report --figures FOLDER`` writes them as files.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from occamrl.answers.figures import (
    COLOURS,
    COLUMN,
    ROW,
    UNDATED,
    WIDTHS,
    Style,
    draw_curves,
    dress,
    look,
    name_rows,
    number,
    quiet_glyphs,
    text_of,
)
from occamrl.files import make_folder, write_whole
from occamrl.naming import printable
from occamrl.report.data import Decisions, Report, Summary, Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("pdf", "svg", "png")
ROWS = {"class": "class", "features": "coordinate", "base": "base"}  # of decisions


@contextlib.contextmanager
def journal_style() -> Iterator[None]:
    """Draw or save in the style of a journal."""
    import matplotlib as mpl

    with mpl.rc_context(COLUMN), quiet_glyphs():
        yield


class Plate(NamedTuple):
    """A figure, its title, and the name of its file without an ending."""

    name: str
    title: str
    figure: Figure

    def as_bytes(self, ending: str, **options: Any) -> bytes:
        """Return the file, with TrueType fonts and without a date."""
        file = io.BytesIO()
        with journal_style():
            self.figure.savefig(file, format=ending, metadata=UNDATED.get(ending), **options)
        return file.getvalue()


def new_plate(name: str, title: str, height: float, draw: Callable[[Axes], object]) -> Plate:
    """Return a figure of a column's width."""
    from matplotlib.figure import Figure

    with journal_style():
        figure = Figure(figsize=(WIDTHS["column"], height), layout="constrained")
        axes = figure.subplots()
        lines = textwrap.wrap(printable(title), 48, max_lines=3, placeholder="…")
        heading = axes.set_title("\n".join(lines), loc="left")
        heading.set_parse_math(False)  # a name may hold a dollar sign
        draw(axes)
        labels = axes.get_legend_handles_labels()[1]
        if labels:
            columns = 1 if max(map(len, labels)) > 20 else 2  # as many as have room
            legend: Style = {"ncols": columns, "frameon": False, "handlelength": 3.4}
            figure.legend(loc="outside lower center", **legend)
            figure.set_figheight(height + ROW * math.ceil(len(labels) / columns))
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # it is laid out once, not once per format
    return Plate(name, title, figure)


def draw_differences(axes: Axes, rows: Mapping[str, Summary], baseline: str) -> None:
    """Draw paired differences of total regret from a baseline, with intervals."""
    for i, size in enumerate(rows.values()):
        axes.plot(size.interval or [size.mean] * 2, [i, i], color=COLOURS[0])
        axes.plot([size.mean], [i], "o", color=COLOURS[0])
    axes.axvline(0.0, color="0.4", linewidth=0.8)
    dress(axes, "", f"total regret minus\nthat of {text_of(baseline)}")
    sizes = [abs(size.mean) for size in rows.values() if size.mean] or [1.0]
    if max(sizes) > 30.0 * min(sizes):  # one agent would push the others onto zero
        axes.set_xscale("symlog", linthresh=min(sizes))
    name_rows(axes, list(rows), len(rows))
    axes.margins(y=0.15)
    axes.invert_yaxis()


def draw_decisions(axes: Axes, found: Decisions) -> None:
    """Draw what was in play from which episode on: shares of seeds, or norm bounds."""
    axes.set_xscale("log")
    if found.bounds.size:
        median, low, high = found.bounds
        axes.plot(found.episode, median, color=COLOURS[0])
        axes.fill_between(found.episode, low, high, color=COLOURS[0], alpha=0.2, linewidth=0)
        dress(axes, "norm bound")
        return
    columns = np.append(found.episode, found.episode[-1] * 1.05 + 1.0)
    rows = np.arange(len(found.labels) + 1) - 0.5
    image = axes.pcolormesh(columns, rows, found.share, cmap="Blues", vmin=0.0, vmax=1.0)
    name_rows(axes, found.labels)
    axes.invert_yaxis()
    named = ROWS[found.kind]
    if found.hidden:
        named += f" ({found.hidden} are not drawn)"
    axes.set(xlabel="episode", ylabel=named)
    axes.xaxis.set_major_formatter(number)
    axes.figure.colorbar(image, ax=axes, label="share of seeds")


def draw_sweep(axes: Axes, sweep: Sweep) -> None:
    """Draw the regret against a parameter, with intervals, on axes on which it can be seen."""
    drawn: list[tuple[float, float]] = []
    for i, (name, regret) in enumerate(sweep.lines):
        x = list(regret)
        mean = [summary.mean for summary in regret.values()]
        ends = [summary.interval for summary in regret.values() if summary.interval]
        drawn += zip(x, mean, strict=True)
        (line,) = axes.plot(x, mean, **{**look(i), "markevery": 1, "label": text_of(name)})
        if len(ends) == len(x):
            low, high = np.transpose(ends)
            axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    smallest = np.min(drawn, axis=0)
    wide = (smallest > 0.0) & (np.max(drawn, axis=0) > 20.0 * smallest)
    dress(axes, "total regret", text_of(sweep.parameter))
    axes.set(xscale="log" if wide[0] else "linear", yscale="log" if wide[1] else "linear")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(number)


def problem_plates(report: Report, index: int) -> Iterator[Plate]:
    """Yield the figures of a problem: regret, differences from the baseline, decisions."""
    problem = report.problems[index]
    stem = f"{index + 1:02d}-{slug(problem.name)}"
    curves = {one.group.agent: one.curve for one in problem.agents}
    looks = [report.agents.index(agent) for agent in curves]  # the same on every problem
    for scale in ("linear", "loglog"):
        draw = partial(draw_curves, curves=curves, scale=scale, looks=looks)
        yield new_plate(f"{stem}-regret-{scale}", problem.name, 2.4, draw)
    rows = {one.group.agent: one.difference.size for one in problem.agents if one.difference}
    if rows:
        draw = partial(draw_differences, rows=rows, baseline=report.baseline)
        yield new_plate(f"{stem}-differences", problem.name, 0.9 + 0.22 * len(rows), draw)
    for i, one in zip(looks, problem.agents, strict=True):
        if one.decisions is not None:
            agent = one.group.agent
            name = f"{stem}-{i + 1:02d}-{slug(agent)}-decisions"
            height = 1.2 + min(ROW * len(one.decisions.labels), 4.0)
            draw = partial(draw_decisions, found=one.decisions)
            yield new_plate(name, f"{agent}, {problem.name}", height, draw)


def sweep_plates(report: Report) -> Iterator[Plate]:
    """Yield a figure for each parameter that was swept."""
    for i, sweep in enumerate(report.sweeps, start=1):
        draw = partial(draw_sweep, sweep=sweep)
        yield new_plate(f"sweep-{i:02d}-{slug(sweep.parameter)}", sweep.where, 2.4, draw)


def slug(text: str) -> str:
    """Return a name as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40]


def write_figures(report: Report, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write every figure of a report into a folder, in every format; return the paths."""
    make_folder(folder)
    written = []
    problems = [problem_plates(report, index) for index in range(len(report.problems))]
    for plate in chain(*problems, sweep_plates(report)):
        for ending in formats:
            written.append(folder / f"{plate.name}.{ending}")
            write_whole(written[-1], plate.as_bytes(ending))
    return written
