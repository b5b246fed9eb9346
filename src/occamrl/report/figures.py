"""All drawing: results, policies, classes in play, and curves with bands for comparisons and reports.

Colours are those of Okabe and Ito. Curves are read off the blocks of a run, at some hundred
episodes, so that a run of 10^15 episodes is drawn like one of a thousand. Logarithmic axes of
regret are linear below the smallest number that has to be told from zero, so that an agent without
regret has a curve too. Files carry no date: equal data, equal files.
"""

from __future__ import annotations

import importlib
import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from occamrl.answers.wording import format_number
from occamrl.errors import ParameterError, require_choice, require_number
from occamrl.experiments.tables import FEWEST, Runs, interval
from occamrl.files import make_folder, write_whole
from occamrl.protocols import Floats, Ints
from occamrl.running.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)), (0, (1, 1)))
MARKS = ("o", "s", "^", "D", "v", "P", "h")
FORMATS = ("pdf", "svg", "png")
UNDATED: Any = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
SCALES = {
    "linear": (False, False),
    "semilogx": (True, False),
    "semilogy": (False, True),
    "loglog": (True, True),
}
BANDS = ("bootstrap", "quantiles", "seeds")
QUANTILES = (0.1, 0.9)  # of the seeds, of a band
WIDTHS = {"column": 3.3, "page": 6.9}  # inches
POINTS, EVERY = (
    200,
    4,
)  # of a curve; intervals are computed at some of its points and linear between
DECADES = 6  # that a logarithmic axis of regret shows at most
MOST_NAMES = 24  # states, classes or coordinates that an axis names
LONGEST_NAME = 28  # characters
ROW = 0.17  # inches that a name of small print takes
COLUMN: Any = {
    "font.size": 8,
    "axes.titlesize": "medium",
    **dict.fromkeys(("legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 7),
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,
    "svg.hashsalt": "occamrl",
    "savefig.dpi": 300,
}


def look(i: int) -> dict[str, Any]:
    """Return colour, dashes and marks of line i; after seven, dashes and marks move on."""
    turn = (i + i // len(COLOURS)) % len(DASHES)
    places = (0.03 * (1 + i % 6), 0.2)  # apart from those of the neighbours
    return {
        "color": COLOURS[i % len(COLOURS)],
        "linestyle": DASHES[turn],
        "marker": MARKS[turn],
        "markevery": places,
    }


def text_of(name: object) -> str:
    """Return a name as a figure shows it: shortened, with dollar signs that begin no formula."""
    text = str(name)
    return (text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…").replace(
        "$", r"\$"
    )


def number(value: float, _: object = None) -> str:
    """Return a number as an axis shows it: 10,000 but 1e9."""
    if value and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    return f"{value:,.6g}"


def dress(axes: Axes, y: str = "cumulative regret", x: str = "episode") -> None:
    """Label axes, and give them a grid and numbers that can be read."""
    axes.set(xlabel=x, ylabel=y)
    axes.grid(visible=True, alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(number)
    if axes.get_xscale() == axes.get_yscale() == "linear":
        axes.locator_params(nbins=6)


def name_rows(axes: Axes, names: Sequence[object]) -> None:
    """Name the rows of a picture; of very many, some."""
    every = -(-len(names) // MOST_NAMES)
    axes.set_yticks(
        range(0, len(names), every), [text_of(name) for name in names[::every]], fontsize="small"
    )


def set_scale(axes: Axes, scale: str) -> None:
    """Make axes linear or logarithmic; regret is linear below what has to be told from zero."""
    log_x, log_y = SCALES[scale]
    drawn = np.concatenate(
        [np.zeros(1), *(np.asarray(line.get_ydata(), float) for line in axes.get_lines())]
    )
    positive = drawn[np.isfinite(drawn) & (drawn > 0.0)]
    if log_x:
        axes.set_xscale("log")
    if not log_y:
        axes.set_ylim(bottom=0.0)
    elif positive.size:
        least = 10.0 ** np.floor(np.log10(max(positive.min(), positive.max() * 10.0**-DECADES)))
        axes.set_yscale("symlog", linthresh=least, linscale=0.4)
        axes.set_ylim(bottom=-0.15 * least)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(number)


def episodes_of(last: int) -> Ints:
    """Return episodes from 1 to ``last``, half of them spread evenly, half in the logarithm."""
    spread = [ends(1, last, POINTS // 2) for ends in (np.linspace, np.geomspace)]
    return np.unique(np.clip(np.concatenate(spread).round(), 1, last).astype(np.int64))


def curve_of(at: Ints, values: Floats, band: str | None = "bootstrap") -> dict[str, Any]:
    """Return the mean over seeds of values [seeds, episodes] at some episodes, and the ends of a band, or every seed.

    No end falls where all seeds rise: of bootstrap intervals all points have the same draws.
    """
    found: dict[str, Any] = {"episode": at, "mean": values.mean(axis=0), "low": None, "high": None}
    if band == "seeds":
        return found | {"each": values}
    if band is None or len(values) < FEWEST:
        return found
    some = np.unique(np.append(np.arange(0, at.size, EVERY), at.size - 1))
    ends = np.quantile(values.T[some], QUANTILES, axis=1)
    if band == "bootstrap":
        ends = np.array([interval(column) for column in values.T[some]], dtype=np.float64).T
    if (np.diff(values) >= 0.0).all():
        ends = np.maximum.accumulate(ends, axis=1)  # but for rounding they rise already
    found["low"], found["high"] = (np.interp(at, at[some], side) for side in ends)
    return found


def draw_curves(
    axes: Axes, curves: Sequence[Mapping[str, Any]], *, scale: str = "linear", **style: Any
) -> None:
    """Draw means over seeds with bands; a curve has name, episode, mean, low, high and perhaps each and look."""
    drawn = len(axes.get_legend_handles_labels()[0])
    for i, curve in enumerate(curves, start=drawn):
        own = look(curve.get("look", i))
        x, mean = np.array(curve["episode"], float), np.array(curve["mean"], float)
        own["markevery"] = (
            own["markevery"] if x.size > 1 else None
        )  # the mark of a point is all there is to see
        zero = " (0)" if SCALES[scale][1] and not mean.any() else ""
        (line,) = axes.plot(x, mean, **{**own, "label": text_of(curve["name"]) + zero, **style})
        for values in curve.get("each", ()):
            axes.plot(x, values, color=line.get_color(), alpha=0.4, linewidth=0.5)
        if curve.get("low") is not None:
            low, high = (np.array(curve[side], float) for side in ("low", "high"))
            axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    dress(axes)
    set_scale(axes, scale)


def new_axes(width: str | float) -> Axes:
    """Return axes on a new figure of a journal's width, whose files have embedded fonts and no date."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    class Journal(Figure):
        """A figure that is saved as journals want it."""

        def savefig(self, fname: Any, **options: Any) -> None:
            """Save the figure, in PDF with TrueType fonts."""
            ending = options.get("format") or Path(str(fname)).suffix[1:]
            with mpl.rc_context(COLUMN):
                super().savefig(fname, **{"metadata": UNDATED.get(ending), **options})

    if isinstance(width, str):
        require_choice("width", width, WIDTHS)
    inches = WIDTHS[width] if isinstance(width, str) else require_number("width", width, 1.0, 100.0)
    figure = plt.figure(
        figsize=(inches, max(2.4, 0.5 * inches)), layout="constrained", FigureClass=Journal
    )
    axes = figure.subplots()
    axes.tick_params(labelsize=COLUMN["xtick.labelsize"])
    return axes


def plot(
    runs: Runs,
    axes: Axes | None = None,
    *,
    scale: str = "linear",
    band: str | None = "bootstrap",
    width: str | float = "column",
    problem: str | None = None,
    **style: Any,
) -> Axes:
    """Draw the cumulative regret of the agents on a problem: of results, comparisons and records of experiments."""
    import matplotlib as mpl

    require_choice("scale", scale, SCALES)
    if band is not None:
        require_choice("band", band, BANDS)
    if problem is None and len(runs) > 1:
        raise ParameterError("problem", got="none", expected=f"one of {list(runs)}")
    if problem is not None:
        require_choice("problem", problem, runs)
    title = next(iter(runs)) if problem is None else problem
    with mpl.rc_context(COLUMN if axes is None else {}):
        axes, curves = new_axes(width) if axes is None else axes, list[dict[str, Any]]()
        for name, results in runs[title].items():
            last = min(result.total_episodes for result in results)
            at = episodes_of(last) if last else np.zeros(1, np.int64)
            values = np.array([result.regret_at(at) for result in results])
            curves.append({"name": name, **curve_of(at, values, band)})
        draw_curves(axes, curves, scale=scale, **style)
        axes.set_title(text_of(title), loc="left", fontsize="medium")
        if len(axes.get_legend_handles_labels()[0]) > 1:
            axes.legend(frameon=False, fontsize="small", handlelength=3.4)
    return axes


def draw_result(
    result: Result, axes: Axes | None = None, *, width: str | float = "column", **options: Any
) -> Axes:
    """Draw the cumulative regret; where the truth is not known, smoothed returns with the class in play beneath."""
    if result.exact:
        return plot({"": {result.label: [result]}}, axes, width=width, **options)
    for name in ("scale", "band"):  # of regret
        options.pop(name, None)
    axes = new_axes(width) if axes is None else axes
    at, mean, error = smoothed(result)
    (line,) = axes.plot(at, mean, **{"label": text_of(result.label), **options})
    axes.fill_between(
        at, mean - 2.0 * error, mean + 2.0 * error, color=line.get_color(), alpha=0.2, linewidth=0
    )
    dress(axes, "return of an episode")
    if rows := class_rows(result):
        divider: Any = importlib.import_module("mpl_toolkits.axes_grid1").make_axes_locatable(
            axes
        )  # it has no types
        below = divider.append_axes("bottom", size=0.15 + ROW * len(rows), pad=0.12, sharex=axes)
        draw_classes(result, below)
        axes.set_xlabel("")
        axes.tick_params(labelbottom=False)
    return axes


def smoothed(result: Result) -> tuple[Ints, Floats, Floats]:
    """Return episodes, mean returns and standard errors of a window that moves over a twentieth of what is kept."""
    returns = result.returns
    width = min(returns.size, max(10, returns.size // 20))
    ends = np.unique(np.linspace(width, returns.size, POINTS).astype(np.int64))
    windows = [returns[end - width : end] for end in ends if end]
    mean, spread = np.array([[window.mean(), window.std()] for window in windows]).reshape(-1, 2).T
    return result.episodes[ends[ends > 0] - 1], mean, spread / math.sqrt(max(1, width - 1))


def class_rows(result: Result) -> dict[int, str]:
    """Return the classes that a picture shows, with their names: all; of very many, those that were in play."""
    rows = [row for row in result.phase_rows if isinstance(row.get("chosen"), int)]
    if not rows:
        return {}
    names = list(
        rows[-1].get("names")
        or [f"class {m}" for m in range(1, max(row["chosen"] for row in rows) + 1)]
    )
    played = {row["chosen"] for row in rows}
    return {
        m: names[m - 1] for m in range(1, len(names) + 1) if len(names) <= MOST_NAMES or m in played
    }


def draw_classes(result: Result, axes: Axes) -> Axes:
    """Draw which class was in play in which episodes: a bar beside its name."""
    shown = class_rows(result)
    places = {m: i for i, m in enumerate(shown)}
    for row in result.phase_rows:
        if row.get("chosen") in places:
            i = places[row["chosen"]]
            axes.broken_barh(
                [(row["first"] - 0.5, row["episodes"])],
                (i - 0.36, 0.72),
                color=COLOURS[i % len(COLOURS)],
            )
    name_rows(axes, list(shown.values()))
    axes.set(
        xlabel="episode", xlim=(0.5, result.total_episodes + 0.5), ylim=(-0.6, len(shown) - 0.4)
    )
    axes.xaxis.set_major_formatter(number)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def draw_policy(
    result: Result, axes: Axes | None = None, *, states: Any = None, actions: Any = None
) -> Axes:
    """Draw the policy: a row per state, a column per step, a colour per action; ``states`` and ``actions`` name."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    axes = plt.gca() if axes is None else axes
    policy, state_names, action_names = result.named_policy(states, actions)
    colours: list[Any] = list(COLOURS[:-1])
    if len(action_names) > len(colours):
        colours = [
            plt.get_cmap("turbo")(i / (len(action_names) - 1)) for i in range(len(action_names))
        ]
    ends: Any = {"vmin": -0.5, "vmax": len(action_names) - 0.5}
    cmap = ListedColormap(colours[: len(action_names)])
    axes.imshow(policy.T, aspect="auto", cmap=cmap, interpolation="nearest", **ends)
    name_rows(axes, state_names)
    axes.locator_params(axis="x", integer=True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value + 1:.0f}")
    axes.set(xlabel="step", ylabel="state", xlim=(-0.5, len(policy) - 0.5))
    used = np.unique(policy)
    if used.size <= MOST_NAMES:
        keys = [Patch(color=colours[a], label=text_of(action_names[a])) for a in used]
        beside: Any = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "title": "action"}
        axes.legend(handles=keys, frameon=False, fontsize="small", **beside)
    return axes


def draw_differences(
    axes: Axes, model: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Draw paired differences of total regret from a baseline, with intervals."""
    for i, row in enumerate(rows):
        low, high = row["interval"] or (row["mean"], row["mean"])
        axes.plot([low, high], [i, i], color=COLOURS[0])
        axes.plot([row["mean"]], [i], "o", color=COLOURS[0])
    axes.axvline(0.0, color="0.4", linewidth=0.8)
    sizes = [abs(row["mean"]) for row in rows if row["mean"]] or [1.0]
    dress(axes, "", f"total regret minus that of {text_of(model['agents'][rows[0]['baseline']])}")
    if max(sizes) > 30 * min(sizes):  # one agent would push the others onto zero
        axes.set_xscale("symlog", linthresh=min(sizes))
    name_rows(axes, [model["agents"][row["agent"]] for row in rows])
    axes.margins(y=0.15)
    axes.invert_yaxis()


def draw_decisions(axes: Axes, found: Mapping[str, Any]) -> None:
    """Draw what was in play from which episode on: shares of seeds, or norm bounds."""
    at = np.array(found["episode"], float)
    if found["kind"] == "norm":
        low, high = (np.array(found[side], float) for side in ("low", "high"))
        axes.plot(at, np.array(found["median"], float), color=COLOURS[0])
        axes.fill_between(at, low, high, color=COLOURS[0], alpha=0.2, linewidth=0)
        axes.set_xscale("log")
        dress(axes, "norm bound")
        return
    rows = found["labels"]
    edges = np.append(at, at[-1] * 1.05 + 1.0)
    places = np.arange(len(rows) + 1) - 0.5
    image = axes.pcolormesh(
        edges, places, np.array(found["share"], float), cmap="Blues", vmin=0.0, vmax=1.0
    )
    axes.set_xscale("log")
    name_rows(axes, rows)
    axes.invert_yaxis()
    axes.set(
        xlabel="episode", ylabel={"class": "class", "base": "base"}.get(found["kind"], "coordinate")
    )
    axes.xaxis.set_major_formatter(number)
    axes.get_figure().colorbar(image, ax=axes, label="share of seeds")  # type: ignore[union-attr]  # it has one


def plates(model: Mapping[str, Any]) -> Iterator[tuple[str, Figure]]:
    """Yield (file name without ending, figure) for every plot of a report."""
    from matplotlib.figure import Figure

    def slug(text: str) -> str:
        return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40]

    def made(title: str, height: float = 2.5) -> tuple[Figure, Axes]:
        figure = Figure(figsize=(WIDTHS["column"], height), layout="constrained")
        axes = figure.subplots()
        lines = textwrap.wrap(title, 48, max_lines=3, placeholder="…")
        axes.set_title("\n".join(lines), loc="left").set_parse_math(
            False
        )  # a name may hold a dollar sign
        return figure, axes

    for p, problem in enumerate(model["problems"], 1):
        place = f"{p:02d}-{slug(problem['name'])}"
        agents = [(one["agent"], model["agents"][one["agent"]], one) for one in problem["agents"]]
        curves = [{**one["curve"], "name": agent, "look": i} for i, agent, one in agents]
        for name in ("linear", "loglog"):
            figure, axes = made(problem["name"], 2.5 + 0.08 * len(curves))
            draw_curves(axes, curves, scale=name)
            figure.legend(loc="outside lower center", ncols=2, frameon=False, handlelength=3.4)
            yield f"{place}-regret-{name}", figure
        if rows := [row for row in problem["differences"] if row["baseline"] == model["baseline"]]:
            figure, axes = made(problem["name"], 0.9 + 0.22 * len(rows))
            draw_differences(axes, model, rows)
            yield f"{place}-differences", figure
        for i, agent, one in agents:
            if (found := one["decisions"]) is not None:
                figure, axes = made(
                    f"{agent}, {problem['name']}", 1.2 + min(ROW * len(found.get("rows", [])), 4.0)
                )
                draw_decisions(axes, found)
                yield f"{place}-{i + 1:02d}-{slug(agent)}-decisions", figure


def write_figures(
    model: Mapping[str, Any], folder: Path, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write every plot of a report into a folder, in every format; return the paths."""
    import matplotlib as mpl

    make_folder(folder)
    written = []
    with mpl.rc_context(COLUMN), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        for name, figure in plates(model):
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # it is laid out once, not once per format
            for ending in formats:
                drawn = io.BytesIO()
                figure.savefig(drawn, format=ending, metadata=UNDATED.get(ending))
                written.append(folder / f"{name}.{ending}")
                write_whole(written[-1], drawn.getvalue())
    return written


def draw_evidence(answer: Any, axes: Axes | None = None) -> Axes:
    """Draw how many times worse than the best explanation each class explains the data, as these grew."""
    import matplotlib.pyplot as plt

    axes = plt.gca() if axes is None else axes
    rows = np.array(
        answer.history
        if len(answer.history)
        else [[max(answer.episodes, 1), *answer.judgement.against]]
    )
    top = max(math.log(1e9), 1.5 * answer.threshold)
    for m, name in enumerate(answer.ladder.names, start=1):
        style = {
            **look(m - 1),
            "marker": "o" if len(rows) < 9 else "",
            "label": text_of(name),
            "linewidth": 2.0,
        }
        axes.plot(rows[:, 0], np.clip(rows[:, m], 0.0, top), **style)
    axes.axhline(answer.threshold, color="grey", linewidth=1.0)
    place: Any = {"textcoords": "offset points", "xytext": (-2, 3), "ha": "right", "va": "bottom"}
    place |= {
        "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.0},
        "zorder": 3,
    }  # above the curves
    axes.annotate("ruled out above", (rows[-1, 0], answer.threshold), **place)
    shown = {
        1.0: "1",
        1e3: "1,000",
        1e6: "a million",
        1e9: "a billion",
        1.0 / answer.delta: format_number(1.0 / answer.delta),
    }
    axes.set_yticks([math.log(each) for each in shown], list(shown.values()), fontsize="small")
    what = "times worse" if answer.evidence == "likelihood" else "evidence against it"
    time = "real steps" if answer.counted_in == "step" else "episodes"
    axes.set(xscale="log", xlabel=time, ylim=(-0.04 * top, 1.04 * top))
    axes.set_ylabel(what, labelpad=0.0)  # beside long numbers, within the margin of a figure
    axes.legend(fontsize="small")
    return axes


def draw_worth(amounts: Mapping[str, Any], unit: str, axes: Axes) -> Axes:
    """Draw what policies are worth: a point for the best guess, a bar for the range."""
    names = list(amounts)
    for i, name in enumerate(names):
        value, low, high = amounts[name]
        if math.isfinite(low):
            axes.plot(
                [low, high],
                [i, i],
                color="tab:blue",
                linewidth=6,
                alpha=0.35,
                solid_capstyle="butt",
            )
        axes.plot([value], [i], "o", color="tab:blue")
        axes.annotate(
            format_number(value), (value, i), textcoords="offset points", xytext=(0, 8), ha="center"
        )
    axes.set_yticks(range(len(names)), [textwrap.fill(text_of(name), 16) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.7)
    axes.margins(x=0.12)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(f"per episode, {unit}" if unit else "per episode")
    return axes
