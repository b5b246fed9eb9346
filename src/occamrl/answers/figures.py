"""All drawing: results, policies, classes in play, and curves with bands.

Colours are those of Okabe and Ito. Curves are read off the blocks of a run, at some hundred
episodes, so that a run of 10^15 episodes is drawn like one of a thousand. Logarithmic axes of
regret are linear below the smallest number that has to be told from zero, so that an agent without
regret has a curve too. Files carry no date: equal data, equal files.
"""

from __future__ import annotations

import contextlib
import math
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from occamrl.answers.wording import format_number
from occamrl.errors import (
    ParameterError,
    UnknownName,
    require_choice,
    require_kind,
    require_number,
)
from occamrl.intervals import FEWEST, interval
from occamrl.naming import printable
from occamrl.protocols import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from occamrl.answers.tolerance import Outlook
    from occamrl.experiments.tables import Runs
    from occamrl.running.result import Result

Style: TypeAlias = dict[str, Any]  # options of Matplotlib, which are of all kinds

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)), (0, (1, 1)))
MARKS = ("o", "s", "^", "D", "v", "P", "h")
UNDATED: dict[str, Style] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
LOGARITHMIC = {  # whether the axes of episodes and of regret are
    "linear": (False, False),
    "semilogx": (True, False),
    "semilogy": (False, True),
    "loglog": (True, True),
}
BANDS = ("bootstrap", "quantiles", "seeds")
QUANTILES = (0.1, 0.9)  # of the seeds, of a band
WIDTHS = {"column": 3.3, "page": 6.9}  # inches
POINTS = 200  # of a curve
EVERY = 4  # intervals are computed at every fourth point of a curve, and linear between
DECADES = 6  # that a logarithmic axis of regret shows at most
MOST_NAMES = 24  # states, classes or coordinates that an axis names
LONGEST_NAME = 28  # characters
ROW = 0.17  # inches that a name of small print takes
COLUMN: Any = {  # newer types of Matplotlib list all keys, older ones have strings
    "font.size": 8,
    "axes.titlesize": "medium",
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,
    "svg.hashsalt": "occamrl",
    "savefig.dpi": 300,
}


class Curve(NamedTuple):
    """Means over seeds at some episodes, with the ends of a band around them, or every seed."""

    episode: Ints  # [n]
    mean: Floats  # [n]
    low: Floats | None = None  # [n]
    high: Floats | None = None  # [n]
    seeds: Floats | None = None  # [seeds, n]


# Axes ---------------------------------------------------------------------------------------------


def look(i: int) -> Style:
    """Return colour, dashes and marks of line i; after seven, dashes and marks move on."""
    turn = (i + i // len(COLOURS)) % len(DASHES)
    return {
        "color": COLOURS[i % len(COLOURS)],
        "linestyle": DASHES[turn],
        "marker": MARKS[turn],
        "markevery": (0.03 * (1 + i % 6), 0.2),  # apart from the marks of the neighbours
    }


def text_of(name: object) -> str:
    """Return a name as a figure shows it: shortened, with dollar signs that begin no formula.

    A label that begins with an underscore would be left out of a legend.
    """
    text = printable(name, LONGEST_NAME).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


@contextlib.contextmanager
def quiet_glyphs() -> Iterator[None]:
    """Draw a name with characters that Matplotlib's font lacks, as boxes, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def require_axes(axes: object) -> None:
    """Refuse what nothing can be drawn on."""
    from matplotlib.axes import Axes

    require_kind("axes", axes, Axes)


def axes_or_new(axes: Axes | None) -> Axes:
    """Return axes; new ones, on a figure of their own, unless some are given."""
    import matplotlib.pyplot as plt

    if axes is not None:
        require_axes(axes)
        return axes
    return plt.figure(layout="constrained").add_subplot()


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


def name_rows(axes: Axes, names: Sequence[object], maximum: int = MOST_NAMES) -> None:
    """Name the rows of a picture; of very many, some."""
    every = math.ceil(len(names) / maximum)
    shown = [text_of(name) for name in names[::every]]
    axes.set_yticks(range(0, len(names), every), shown, fontsize="small")


def set_scale(axes: Axes, scale: str) -> None:
    """Make axes linear or logarithmic; regret is linear below what has to be told from zero."""
    log_x, log_y = LOGARITHMIC[scale]
    lines = [np.asarray(line.get_ydata(), float) for line in axes.get_lines()]
    drawn = np.concatenate([np.zeros(1), *lines])
    positive = drawn[np.isfinite(drawn) & (drawn > 0.0)]
    if log_x:
        axes.set_xscale("log")
    if not log_y:
        axes.set_ylim(bottom=0.0)
    elif positive.size:
        smallest = max(positive.min(), positive.max() * 10.0**-DECADES)
        threshold = 10.0 ** np.floor(np.log10(smallest))
        axes.set_yscale("symlog", linthresh=threshold, linscale=0.4)
        axes.set_ylim(bottom=-0.15 * threshold)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(number)


def new_axes(width: str | float) -> Axes:
    """Return axes on a new figure of a journal's width; its files embed fonts and have no date."""
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
        inches = WIDTHS[width]
    else:
        inches = require_number("width", width, 1.0, 100.0)
    size = (inches, max(2.4, 0.5 * inches))
    axes = plt.figure(figsize=size, layout="constrained", FigureClass=Journal).subplots()
    axes.tick_params(labelsize=COLUMN["xtick.labelsize"])
    return axes


# Curves -------------------------------------------------------------------------------------------


def episodes_of(last: int) -> Ints:
    """Return episodes from 1 to ``last``, half of them spread evenly, half in the logarithm."""
    evenly = np.linspace(1, last, POINTS // 2)
    logarithmically = np.geomspace(1, last, POINTS // 2)
    spread = np.concatenate([evenly, logarithmically]).round()
    return np.unique(np.clip(spread, 1, last).astype(np.int64))


def curve_of(episode: Ints, values: Floats, band: str | None = "bootstrap") -> Curve:
    """Return the mean over seeds of values [seeds, episodes], and a band or every seed.

    No end falls where all seeds rise: of bootstrap intervals all points have the same draws.
    """
    curve = Curve(episode, values.mean(axis=0))
    if band == "seeds":
        return curve._replace(seeds=values)
    if band is None or len(values) < FEWEST:
        return curve
    some = np.unique(np.append(np.arange(0, episode.size, EVERY), episode.size - 1))
    ends = np.quantile(values.T[some], QUANTILES, axis=1)
    if band == "bootstrap":
        ends = np.array([interval(column) for column in values.T[some]], dtype=np.float64).T
    if (np.diff(values) >= 0.0).all():
        ends = np.maximum.accumulate(ends, axis=1)  # but for rounding they rise already
    low, high = (np.interp(episode, episode[some], side) for side in ends)
    return curve._replace(low=low, high=high)


def draw_curves(
    axes: Axes,
    curves: Mapping[str, Curve],
    *,
    scale: str = "linear",
    looks: Sequence[int] | None = None,
    **style: Any,
) -> None:
    """Draw curves by name, in the looks of some numbers; by default those that come next."""
    if looks is None:
        drawn = len(axes.get_legend_handles_labels()[0])
        looks = range(drawn, drawn + len(curves))
    for i, (name, curve) in zip(looks, curves.items(), strict=True):
        options = look(i)
        if curve.episode.size == 1:
            options["markevery"] = None  # the mark of a point is all there is to see
        options["label"] = text_of(name)
        if LOGARITHMIC[scale][1] and not curve.mean.any():
            options["label"] += " (0)"
        x = curve.episode.astype(float)
        (line,) = axes.plot(x, curve.mean, **{**options, **style})
        colour = line.get_color()
        if curve.seeds is not None:
            axes.plot(x, curve.seeds.T, color=colour, alpha=0.4, linewidth=0.5)
        if curve.low is not None and curve.high is not None:
            axes.fill_between(x, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
    dress(axes)
    set_scale(axes, scale)


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
    """Draw the cumulative regret of the agents on a problem, over the seeds of each."""
    import matplotlib as mpl

    require_choice("scale", scale, LOGARITHMIC)
    if axes is not None:
        require_axes(axes)
    _require_style(style)
    if band is not None:
        require_choice("band", band, BANDS)
    if problem is not None:
        require_choice("problem", problem, runs)
    elif len(runs) > 1:
        raise ParameterError("problem", got="none", expected=f"one of {list(runs)}")
    else:
        (problem,) = runs
    with mpl.rc_context(COLUMN if axes is None else None):
        if axes is None:
            axes = new_axes(width)
        curves = {}
        for name, results in runs[problem].items():
            last = min(result.total_episodes for result in results)
            episode = episodes_of(last) if last else np.zeros(1, np.int64)
            values = np.array([result.regret_at(episode) for result in results])
            curves[name] = curve_of(episode, values, band)
        draw_curves(axes, curves, scale=scale, **style)
        axes.set_title(text_of(problem), loc="left", fontsize="medium")
        if len(axes.get_legend_handles_labels()[0]) > 1:
            axes.legend(frameon=False, fontsize="small", handlelength=3.4)
    return axes


# Results ------------------------------------------------------------------------------------------


def _require_style(style: Mapping[str, object]) -> None:
    """Refuse what is no option of a line, by its name."""
    from matplotlib.lines import Line2D

    line = Line2D([], [])
    for name in style:
        if not hasattr(line, f"set_{name}"):  # Matplotlib itself asks so, aliases included
            raise UnknownName("style", got=name, known=["label", "color", "linestyle", "linewidth"])


def draw_result(
    result: Result, axes: Axes | None = None, *, width: str | float = "column", **options: Any
) -> Axes:
    """Draw the cumulative regret; where the truth is not known, returns and the class in play."""
    if result.exact:
        return plot({"": {result.label: [result]}}, axes, width=width, **options)
    # these are of curves of regret, and there is none where the truth is not known
    for name in ("scale", "band"):
        options.pop(name, None)
    if axes is None:
        axes = new_axes(width)
    episode, mean, error = smoothed(result)
    (line,) = axes.plot(episode, mean, **{"label": text_of(result.label), **options})
    band: Style = {"color": line.get_color(), "alpha": 0.2, "linewidth": 0}
    axes.fill_between(episode, mean - 2.0 * error, mean + 2.0 * error, **band)
    dress(axes, "return of an episode")
    if rows := class_rows(result):
        from mpl_toolkits.axes_grid1 import make_axes_locatable

        divider = make_axes_locatable(axes)
        below = divider.append_axes("bottom", size=0.15 + ROW * len(rows), pad=0.12, sharex=axes)
        draw_classes(result, below)
        axes.set_xlabel("")
        axes.tick_params(labelbottom=False)
    return axes


def smoothed(result: Result) -> tuple[Ints, Floats, Floats]:
    """Return episodes, and of a window before each the mean return and its standard error.

    The window is a twentieth of what is kept.
    """
    returns = result.returns
    width = min(returns.size, max(10, returns.size // 20))
    ends = np.unique(np.linspace(width, returns.size, POINTS).astype(np.int64))
    ends = ends[ends > 0]
    windows = [returns[end - width : end] for end in ends]
    mean = np.array([window.mean() for window in windows])
    spread = np.array([window.std() for window in windows])
    return result.episodes[ends - 1], mean, spread / math.sqrt(max(1, width - 1))


def class_rows(result: Result) -> dict[int, str]:
    """Return the classes that a picture shows, by number; of very many, those that were in play."""
    rows = [row for row in result.phase_rows if isinstance(row.get("chosen"), int)]
    if not rows:
        return {}
    played = {row["chosen"] for row in rows}
    names = rows[-1].get("names") or [f"class {m}" for m in range(1, max(played) + 1)]
    every = dict(enumerate(names, start=1))
    if len(every) <= MOST_NAMES:
        return every
    return {m: name for m, name in every.items() if m in played}


def draw_classes(result: Result, axes: Axes) -> Axes:
    """Draw which class was in play in which episodes: a bar beside its name."""
    shown = class_rows(result)
    heights = {m: i for i, m in enumerate(shown)}
    for row in result.phase_rows:
        if row.get("chosen") in heights:
            i = heights[row["chosen"]]
            bar = [(row["first"] - 0.5, row["episodes"])]
            axes.broken_barh(bar, (i - 0.36, 0.72), color=COLOURS[i % len(COLOURS)])
    name_rows(axes, list(shown.values()))
    ends = (0.5, result.total_episodes + 0.5)
    axes.set(xlabel="episode", xlim=ends, ylim=(-0.6, len(shown) - 0.4))
    axes.xaxis.set_major_formatter(number)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def draw_policy(
    result: Result,
    axes: Axes | None = None,
    *,
    states: Sequence[str] | None = None,
    actions: Sequence[str] | None = None,
) -> Axes:
    """Draw the policy: a row per state, a column per step, a colour per action."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    axes = axes_or_new(axes)
    policy, state_names, action_names = result.named_policy(states, actions)
    count = len(action_names)
    colours: list[Any] = list(COLOURS[:-1])
    if count > len(colours):
        colours = [plt.get_cmap("turbo")(i / (count - 1)) for i in range(count)]
    axes.imshow(
        policy.T,
        aspect="auto",
        cmap=ListedColormap(colours[:count]),
        interpolation="nearest",
        vmin=-0.5,
        vmax=count - 0.5,
    )
    name_rows(axes, state_names)
    axes.locator_params(axis="x", integer=True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value + 1:.0f}")
    axes.set(xlabel="step", ylabel="state", xlim=(-0.5, len(policy) - 0.5))
    used = np.unique(policy)
    if used.size <= MOST_NAMES:
        keys = [Patch(color=colours[a], label=text_of(action_names[a])) for a in used]
        axes.legend(
            handles=keys,
            frameon=False,
            fontsize="small",
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            title="action",
        )
    return axes


# Answers ------------------------------------------------------------------------------------------


def draw_evidence(answer: Any, axes: Axes | None = None) -> Axes:
    """Draw how many times worse than the best explanation each class is, as data grew."""
    from matplotlib.ticker import NullFormatter

    axes = axes_or_new(axes)
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
    # below the line at the right end, where curves rarely are: they end at 1 or above the line
    place: Style = {"textcoords": "offset points", "xytext": (-2, -3), "ha": "right", "va": "top"}
    place |= {"color": "dimgrey", "fontsize": "small", "zorder": 1.0}
    axes.annotate("ruled out above the line", (rows[-1, 0], answer.threshold), **place)
    shown = {
        1.0: "1",
        1e3: "1,000",
        1e6: "a million",
        1e9: "a billion",
        1.0 / answer.delta: format_number(1.0 / answer.delta),
    }
    axes.set_yticks([math.log(each) for each in shown], list(shown.values()), fontsize="small")
    what = "evidence against it"
    if answer.evidence == "likelihood":
        what = "times worse than the best explanation"
    time = "real steps" if answer.counted_in == "step" else f"{answer.counted_in}s"
    axes.set(xscale="log", xlabel=time, ylim=(-0.04 * top, 1.04 * top))
    axes.set_ylabel(what, fontsize="small")
    axes.xaxis.set_major_formatter(number)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.spines[["top", "right"]].set_visible(False)
    beside: Style = {"frameon": False, "loc": "upper left", "bbox_to_anchor": (0.0, -0.16)}
    axes.legend(fontsize="small", ncols=min(3, len(answer.ladder.names)), **beside)
    return axes


def draw_outlook(outlook: Outlook, unit: str, axes: Axes, episode: str = "episode") -> Axes:
    """Draw what a policy earns against the tolerance, beside what today's earned."""
    points = [100.0 * tolerance for tolerance in outlook.tolerances]
    low = [worth.low for worth in outlook.worths]
    high = [worth.high for worth in outlook.worths]
    label = "the policy, if no step is off by more"
    axes.fill_between(points, low, high, color=COLOURS[0], alpha=0.3, linewidth=0, label=label)
    if outlook.today is not None:
        today = outlook.today
        axes.axhspan(today.low, today.high, color=COLOURS[1], alpha=0.2, linewidth=0)
        axes.axhline(today.value, color=COLOURS[1], linewidth=1.2, label="what the log earned")
    if outlook.more_than:
        proved: Style = {"color": COLOURS[6], "alpha": 0.12, "linewidth": 0}
        axes.axvspan(0.0, 100.0 * outlook.more_than, label="ruled out", **proved)
    if outlook.break_even is not None:
        x = 100.0 * outlook.break_even
        axes.axvline(x, color=COLOURS[2], linewidth=1.5, label="break-even")
    dotted: Style = {"color": COLOURS[6], "linewidth": 1.2, "linestyle": ":"}
    axes.axvline(100.0 * outlook.estimate, label="an estimate of how far off", **dotted)
    axes.set_xlim(0.0, points[-1])
    axes.yaxis.set_major_formatter(number)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("points by which every step may be off")
    axes.set_ylabel(f"{text_of(unit)} per {episode}" if unit else f"per {episode}")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, frameon=False)
    return axes


def draw_worth(
    amounts: Mapping[str, tuple[float, float, float]],
    unit: str,
    axes: Axes,
    episode: str = "episode",
) -> Axes:
    """Draw what policies are worth: a point for the best guess, a bar for the range."""
    for i, (value, low, high) in enumerate(amounts.values()):
        if math.isfinite(low):
            bar: Style = {"linewidth": 6, "alpha": 0.35, "solid_capstyle": "butt"}
            axes.plot([low, high], [i, i], color=COLOURS[0], **bar)
        axes.plot([value], [i], "o", color=COLOURS[0])
        above: Style = {"textcoords": "offset points", "xytext": (0, 8), "ha": "center"}
        axes.annotate(format_number(value), (value, i), **above)
    names = [textwrap.fill(text_of(name), 20) for name in amounts]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.7)
    axes.margins(x=0.12)
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(number)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="x", alpha=0.3, linewidth=0.6)
    axes.set_xlabel(f"{text_of(unit)} per {episode}" if unit else f"per {episode}")
    return axes
