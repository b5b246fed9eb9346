"""Figures of regret, readable in print and by colour-blind people (colours of Okabe and Ito, plus line styles).

:func:`write_figures` writes every plot of a report's page for a paper: PDF, SVG and PNG at the width of a column, from
the same data as the page. Fonts are embedded as outlines a printer accepts (Type 42), files carry no date, and equal
data give equal files.
"""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from occamrl.protocols import Floats
from occamrl.running.files import make_folder, write_whole
from occamrl.running.result import dress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)), (0, (1, 1)))
FORMATS = ("pdf", "svg", "png")
MARKERS = ("o", "s", "^", "D", "v", "P", "h")
_STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "pdf.fonttype": 42,
    "svg.hashsalt": "occamrl",
    "savefig.dpi": 300,
}
_SIZE = (3.4, 2.5)  # inches: one column
_TITLE_WIDTH, _TITLE_LINES = 48, 3
_ROWS = {"chosen": "class", "active": "coordinate"}


def _look(i: int) -> dict[str, Any]:
    """Return colour, dashes and mark of line i; after seven, dashes and marks move on."""
    turn = (i + i // len(COLOURS)) % len(STYLES)
    places = (0.03 * (1 + i % 6), 0.2)  # apart from those of the neighbours
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": STYLES[turn], "marker": MARKERS[turn], "markevery": places}


def _floats(values: Sequence[float | None]) -> Floats:
    return np.array(values, float)  # None is nan


def _axes(title: str, size: tuple[float, float] = _SIZE) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    lines = textwrap.wrap(title, _TITLE_WIDTH, max_lines=_TITLE_LINES, placeholder="…")
    axes.set_title("\n".join(lines), loc="left").set_parse_math(False)  # a name may hold a dollar sign
    return figure, axes


def label_lines(legend: Callable[..., Any], drawn: Sequence[tuple[Any, str]], **style: Any) -> None:
    """Call ``legend`` for lines and their labels, which are taken as they are: with dollar signs, whatever is first."""
    handles, labels = zip(*drawn, strict=True)
    names = [f"line {i}" for i in range(len(handles))]
    for text, label in zip(legend(handles, names, frameon=False, **style).get_texts(), labels, strict=True):
        text.set_parse_math(False)
        text.set_text(_short(label, 52))


def _legend(figure: Figure, drawn: Sequence[tuple[Any, str]]) -> None:
    """Draw a legend below the plot, where it hides nothing."""
    columns = 2 if max(len(label) for _, label in drawn) <= 26 else 1
    figure.set_figheight(_SIZE[1] + 0.16 * -(-len(drawn) // columns))
    label_lines(figure.legend, drawn, loc="outside lower center", ncols=columns, handlelength=3.4)


def _short(label: str, most: int) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"


def draw_regret(
    axes: Axes, model: Mapping[str, Any], problem: Mapping[str, Any], *, logarithmic: bool
) -> list[tuple[Any, str]]:
    """Draw the mean regret of every agent with its interval; return each line with the name of its agent."""
    dress(axes)
    drawn: list[tuple[Any, str]] = []
    for one in problem["agents"]:
        curve = one["curve"]
        if curve is None:
            continue
        look = _look(one["agent"])
        x, mean = _floats(curve["episode"]), _floats(curve["mean"])
        if np.isfinite(mean).sum() < 2:  # a point: its mark is all there is to see
            look["markevery"] = None
        if logarithmic and not (mean > 0).any():
            continue
        drawn.append((axes.plot(x, mean, **look)[0], model["agents"][one["agent"]]))
        if curve["low"] is not None:
            low, high = _floats(curve["low"]), _floats(curve["high"])
            axes.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)
    if logarithmic and drawn:
        axes.set_xscale("log")
        axes.set_yscale("log", nonpositive="clip")
    elif axes.get_xscale() == axes.get_yscale() == "linear":  # axes of the user may be others
        axes.locator_params(nbins=5)
        axes.locator_params(axis="x", integer=True)
    return drawn


def _regret(model: Mapping[str, Any], problem: Mapping[str, Any], logarithmic: bool) -> Figure:
    figure, axes = _axes(problem["name"])
    drawn = draw_regret(axes, model, problem, logarithmic=logarithmic)
    if drawn:
        _legend(figure, drawn)
    return figure


def _differences(model: Mapping[str, Any], problem: Mapping[str, Any]) -> Figure | None:
    rows = [row for row in problem["differences"] if row["baseline"] == model["baseline"]]
    if not rows:
        return None
    figure, axes = _axes(problem["name"], (_SIZE[0], 0.9 + 0.22 * len(rows)))
    for i, row in enumerate(rows):
        low, high = row["interval"] or (row["mean"], row["mean"])
        axes.plot([low, high], [i, i], color=COLOURS[0])
        axes.plot([row["mean"]], [i], "o", color=COLOURS[0])
    axes.axvline(0.0, color="0.4", linewidth=0.8)
    names = [_short(model["agents"][row["agent"]], 30).replace("$", r"\$") for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.margins(y=0.15)
    axes.invert_yaxis()
    sizes = [abs(row["mean"]) for row in rows if row["mean"]] or [1.0]
    if max(sizes) > 30 * min(sizes):  # one agent would push the others onto zero
        axes.set_xscale("symlog", linthresh=min(sizes))
    else:
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    baseline = _short(model["agents"][model["baseline"]], 30)
    axes.set_xlabel(f"total regret minus that of {baseline}").set_parse_math(False)
    return figure


def _shares(found: Mapping[str, Any], title: str) -> Figure:
    rows, begins = found["rows"], found["episode"]
    figure, axes = _axes(title, (_SIZE[0], 0.9 + min(0.2 * len(rows), 5.0)))
    share = np.array([_floats(line) for line in found["share"]])
    axes.grid(visible=False)
    places = np.arange(len(begins) + 1) - 0.5, np.arange(len(rows) + 1) - 0.5
    image = axes.pcolormesh(*places, share, cmap="Blues", vmin=0.0, vmax=1.0, edgecolors="white", linewidth=0.4)
    axes.invert_yaxis()
    every = max(1, len(rows) // 24 + (len(rows) > 24))
    labels = [label.replace("$", r"\$") for label in found["labels"]]
    axes.set_yticks(range(0, len(rows), every), labels[::every])
    step = max(1, -(-len(begins) // 6))
    axes.set_xticks(range(0, len(begins), step), [f"{begin:,.0f}" for begin in begins[::step]])
    axes.set_xlabel("from episode")
    axes.set_ylabel(_ROWS[found["kind"]])
    figure.colorbar(image, ax=axes, label="share of seeds")
    return figure


def _bounds(found: Mapping[str, Any], title: str) -> Figure:
    figure, axes = _axes(title)
    begins = _floats(found["episode"])
    for line in found["choices"]:
        axes.plot(begins, _floats(line), color=COLOURS[0], alpha=0.35, linewidth=0.5)
    axes.plot(begins, _floats(found["median"]), color=COLOURS[0], marker="o")
    axes.set_xscale("log")
    axes.set_xlabel("from episode")
    axes.set_ylabel("norm bound")
    return figure


def _evidence(found: Mapping[str, Any], title: str) -> Figure:
    evidence, begins = found["evidence"], _floats(found["episode"])
    figure, axes = _axes(title)
    few = len(evidence["names"]) <= len(COLOURS)
    threshold = _floats(evidence["threshold"]["median"])
    handles, labels, values = [], [], [threshold]
    for m, (name, line) in enumerate(zip(evidence["names"], evidence["lines"], strict=True)):
        median = _floats(line["median"])
        values.append(median)
        look = _look(m) if few else {"color": "0.5", "linewidth": 0.6}
        if np.isfinite(median).sum() < 2:  # of an impossible class, say: no length to put marks along
            look["markevery"] = None
        drawn = axes.plot(begins, median, **look)
        if few:
            low, high = _floats(line["low"]), _floats(line["high"])
            axes.fill_between(begins, low, high, color=look["color"], alpha=0.15, lw=0)
            handles += drawn
            labels.append(f"{_ROWS[found['kind']]} {name}")
    handles += axes.plot(begins, threshold, color="black", linewidth=1.8, linestyle=(0, (6, 2)))
    known = np.concatenate(values)
    known = known[np.isfinite(known)]
    usual = float(np.nanmax(threshold, initial=1e-12))
    if known.size and known.min() > 0 and known.max() > 30 * known.min():
        axes.set_yscale("log")
    elif known.size and known.min() <= 0 and known.max() > 30 * usual:
        axes.set_yscale("symlog", linthresh=usual)
    axes.set_xscale("log")
    axes.set_xlabel("from episode")
    axes.set_ylabel("statistic" if found["kind"] == "chosen" else "size of estimate")
    _legend(figure, list(zip(handles, [*labels, "threshold"], strict=True)))
    return figure


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40]


def plates(model: Mapping[str, Any]) -> Iterator[tuple[str, Figure]]:
    """Yield (file name without ending, figure) for every plot."""
    for p, problem in enumerate(model["problems"], 1):
        place = f"{p:02d}-{_slug(problem['name'])}"
        yield f"{place}-regret-linear", _regret(model, problem, logarithmic=False)
        yield f"{place}-regret-loglog", _regret(model, problem, logarithmic=True)
        differences = _differences(model, problem)
        if differences is not None:
            yield f"{place}-differences", differences
        for one in problem["agents"]:
            found = one["decisions"]
            if found is None:
                continue
            agent = model["agents"][one["agent"]]
            title = f"{agent}, {problem['name']}"
            name = f"{place}-{one['agent'] + 1:02d}-{_slug(agent)}"
            yield f"{name}-decisions", (_bounds if found["kind"] == "norm_bound" else _shares)(found, title)
            if found["evidence"] is not None:
                yield f"{name}-evidence", _evidence(found, title)


def write_figures(model: Mapping[str, Any], folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write every plot into a folder in every format; return the paths."""
    import matplotlib as mpl

    make_folder(folder)
    undated: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    written = []
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        for name, figure in plates(model):
            figure.draw_without_rendering()  # lays out once instead of once per format
            figure.set_layout_engine("none")
            for ending in formats:
                drawn = io.BytesIO()
                figure.savefig(drawn, format=ending, metadata=undated.get(ending))
                written.append(folder / f"{name}.{ending}")
                write_whole(written[-1], drawn.getvalue(), durable=False)
    return written
