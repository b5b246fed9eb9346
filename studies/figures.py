"""The measured tables of the documentation: one command prints those of a page as it shows them.

    python -m studies.figures                             the pages and their parts
    python -m studies.figures logged-data                 prints the tables of docs/logged-data.md
    python -m studies.figures logged-data --write         also puts them into the page
    python -m studies.figures --part linear:norm          one part, on a page or not

A part is a function of a study in this folder that returns Markdown. Its place in a page, if it has
one, lies between ``<!-- answers:logs -->`` and ``<!-- end -->``. ``--seeds`` plays fewer runs,
``--tiny`` a few episodes, to see that a study runs. Parts are measured side by side in the
package's pool of processes. Regret is exact and does not depend on the machine.
"""

from __future__ import annotations

import argparse
import math
import pkgutil
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from scipy.stats import bootstrap

import occamrl as orl
from occamrl.errors import Stopped
from occamrl.experiments.pool import Listener, Pool, processors
from occamrl.protocols import Floats, Ints, Problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

T = TypeVar("T")
DOCS = Path(__file__).parent.parent / "docs"

PAGES: dict[str, tuple[str, ...]] = {
    "baselines": ("rivals:ladder", "selection:evidence", "selection:linear"),
    "columns": ("columns:validity", "columns:false", "columns:policies"),
    "continuous-states": tuple(
        f"control:{name}" for name in ("validity", "power", "views", "sensitivity", "returns")
    ),
    "logged-data": ("answers:logs",),
    "occam": ("defaults:lists", "defaults:real"),
    "problems/lost-sales": ("practical:lost_sales",),
    "problems/machine-replacement": ("practical:machine_replacement",),
    "problems/patchy-ice": ("ladders:ice",),
    "problems/pricing": ("ladders:pricing",),
    "problems/queue-admission": ("practical:queue_admission",),
    "problems/weekday-inventory": ("practical:weekday_inventory",),
    "selection-ladders": (
        *("ladders:classes", "letter:epochs", "letter:coverage", "letter:regret"),
    ),
    "selection-linear": ("linear:dimension",),
}
OTHERS = (  # parts that are not written into a page: baselines and real_log need packages of others
    *(f"control:{name}" for name in ("controls", "baselines", "real_log", "cost")),
    *(f"columns:{name}" for name in ("rows", "cost")),
    *(f"comparing:{name}" for name in ("errors", "power")),
    *(f"defaults:{name}" for name in ("large", "week")),
    *(f"ladders:{name}" for name in ("paper", "false_rejection", "linear")),
    *(
        f"linear:{name}"
        for name in ("instances", "control", "norm", "scale", "containment", "paper")
    ),
    *(
        f"linear:{name}"
        for name in ("lazy", "rewards", "steps", "changing", "selectors", "families")
    ),
    *(f"occam:{name}" for name in ("held", "outside", "blind", "coverage", "mixtures")),
    *(f"rivals:{name}" for name in ("ice", "mixture", "pricing", "misspecified", "riverswim")),
    *(f"rivals:{name}" for name in ("river_swim", "linear_river_swim")),
    *(f"simulators:{name}" for name in ("gymnasium", "logs")),
    "steps:kept",
    *(f"truth:{name}" for name in ("kept", "widths")),
)


@dataclass(frozen=True)
class Size:
    """How much a study plays, where its pictures go (nowhere by default), and who hears of it."""

    tiny: bool = False
    most_seeds: int = 10**9
    pictures: Path | None = None
    say: Listener = lambda news: None
    stop: Callable[[], bool] = lambda: False

    def seeds(self, full: int) -> int:
        """Return how many seeds to play."""
        return 1 if self.tiny else min(full, self.most_seeds)

    def episodes(self, full: int) -> int:
        """Return how many episodes to play."""
        return min(full, 30) if self.tiny else full

    def some(self, cases: Iterable[Any]) -> list[Any]:
        """Return the cases to play: a tiny study plays the first."""
        every = list(cases)
        return every[:1] if self.tiny else every


# Playing ------------------------------------------------------------------------------------------


def each(size: Size, count: int, job: Callable[[int], T], label: str) -> list[T]:
    """Return ``job(0)``, ..., ``job(count - 1)``; tells how far it is, and stops when it is to."""
    results = []
    for i in range(count):
        if size.stop():
            raise Stopped(f"{label}: stopped after {i} of {count} runs")
        results.append(job(i))
        size.say({"event": "progress", "text": f"{label}, {i + 1} of {count} runs"})
    return results


class Played(NamedTuple):
    """What the tables need of a run; a learner's state can be large."""

    regret: float
    curve: Floats  # cumulative regret at ``points``
    phases: list[dict[str, Any]]
    plans: int
    pessimistic: int
    tail: float  # regret of an episode in the last tenth


def points(episodes: int) -> Ints:
    """Return the episodes at which curves are drawn."""
    return np.unique(np.geomspace(1, episodes, 300).astype(int))


def kept(result: orl.Result) -> Played:
    """Return what the tables need of a result."""
    K = result.total_episodes
    last = max(1, K // 10)
    return Played(
        regret=result.total_regret,
        curve=result.regret_at(points(K)),
        phases=result.phase_rows,
        plans=result.plans,
        pessimistic=result.pessimistic_episodes,
        tail=float((result.total_regret - result.regret_at(K - last)) / last),
    )


Runs = dict[str, list[Played]]


def play(
    size: Size,
    cast: Mapping[str, orl.Learner],
    problem: orl.FiniteMDP | Problem,
    episodes: int,
    seeds: int,
    first_seed: int = 0,
    label: str = "",
) -> Runs:
    """Run every agent with every seed; all agents meet the same seeds."""
    names = list(cast)
    count = size.seeds(seeds)
    length = size.episodes(episodes)

    def job(i: int) -> Played:
        agent = cast[names[i // count]]
        seed = first_seed + i % count
        return kept(orl.run(agent, problem, episodes=length, seed=seed, progress=False))

    played = each(size, len(names) * count, job, label or type(problem).__name__)
    return {name: played[n * count : (n + 1) * count] for n, name in enumerate(names)}


def regrets(played: Sequence[Played]) -> Floats:
    """Return the regret of each run."""
    return np.array([one.regret for one in played])


# Telling ------------------------------------------------------------------------------------------


def number(value: float, like: float | None = None) -> str:
    """Return a figure with one decimal if it, or what it stands beside, is below 20."""
    size = value if like is None else like
    return f"{value:,.1f}" if abs(size) < 20.0 else f"{value:,.0f}"


def interval(values: Sequence[float] | Floats) -> str:
    """Return a mean with its 95% bootstrap interval."""
    data = np.asarray(values, dtype=np.float64)
    mean = float(data.mean())
    if len(data) < 2 or np.ptp(data) <= 1e-12 * abs(mean):
        return number(mean)
    draw = np.random.default_rng(0)
    ends = bootstrap((data,), np.mean, method="percentile", rng=draw).confidence_interval
    return f"{number(mean)} [{number(ends.low, mean)}, {number(ends.high, mean)}]"


def ratio(values: Floats, of: Floats) -> str:
    """Return a ratio of means with its 95% bootstrap interval, seeds drawn in pairs."""

    def of_means(some: Floats, others: Floats, axis: int = -1) -> Floats:
        return np.asarray(some.mean(axis=axis) / others.mean(axis=axis))

    # of one seed, as in a tiny study, there is nothing to draw from
    if len(values) < 2:
        return f"{of_means(values, of):.2f}"
    draw = np.random.default_rng(0)
    ends = bootstrap(
        (values, of), of_means, paired=True, vectorized=True, method="percentile", rng=draw
    ).confidence_interval
    return f"{values.mean() / of.mean():.2f} [{ends.low:.2f}, {ends.high:.2f}]"


def table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


# By name: where, and the values there of every seed, [seeds, places].
Lines = Mapping[str, tuple[Sequence[int] | Ints, Floats]]


@dataclass(frozen=True)
class Panel:
    """A part of a picture: for every name a mean over seeds, in a band that holds all of them.

    ``beyond`` names a line that may leave the panel, where it would make the others flat.
    """

    title: str
    lines: Lines
    ylabel: str = "cumulative regret"
    logarithmic: bool = False
    beyond: str = ""

    def draw(self, axes: Axes, colours: Sequence[str], styles: Sequence[Any]) -> None:
        """Draw the panel."""
        axes.set(xscale="log", xlabel="episode", ylabel=self.ylabel)
        axes.set_title(self.title, fontsize="medium")
        axes.spines[["top", "right"]].set_visible(False)
        for i, (name, (where, values)) in enumerate(self.lines.items()):
            colour = colours[i % len(colours)]
            style = styles[i % len(styles)]
            axes.plot(where, values.mean(axis=0), color=colour, linestyle=style, label=name)
            low = values.min(axis=0)
            high = values.max(axis=0)
            axes.fill_between(where, low, high, color=colour, alpha=0.1, linewidth=0.0)
        if self.logarithmic:
            axes.set_yscale("log")
        else:
            tops = [values.max() for name, (_, values) in self.lines.items() if name != self.beyond]
            axes.set_ylim(0.0, 1.05 * max(*tops, 1e-9))


def curves(played: Runs, episodes: int, scale: float = 1.0) -> Lines:
    """Return cumulative regret as the lines of a panel, times ``scale``."""
    lines: dict[str, tuple[Ints, Floats]] = {}
    for name, results in played.items():
        lines[name] = points(episodes), scale * np.array([one.curve for one in results])
    return lines


def picture(size: Size, name: str, panels: Sequence[Panel]) -> None:
    """Draw panels side by side, below them what the lines are, as on every page."""
    if size.pictures is None:
        return
    from matplotlib.figure import Figure

    from occamrl.answers.figures import COLOURS, DASHES

    columns = min(2, len(panels))
    if len(panels) % 3 == 0:
        columns = 3
    rows = math.ceil(len(panels) / columns)
    width = 10.0 if columns > 1 else 7.0
    figure = Figure(figsize=(width, 0.8 + 3.0 * rows), layout="constrained")
    every_axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(every_axes, panels, strict=False):
        panel.draw(axes, COLOURS, DASHES)
    for axes in every_axes[len(panels) :]:
        axes.set_visible(False)
    handles, labels = every_axes[0].get_legend_handles_labels()
    across = len(labels) if sum(map(len, labels)) < 50 else 2  # short names fit into one row
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=across,
        frameon=False,
        handlelength=3.4,
        title="mean of the seeds; bands reach from the smallest to the largest",
    )
    figure.savefig(size.pictures / name, dpi=110)


def measure(
    part: str,
    tiny: bool = False,
    seeds: int = 10**9,
    pictures: str = "",
    *,
    say: Listener = lambda news: None,
    stop: Callable[[], bool] = lambda: False,
) -> str:
    """Return what a part prints; a task of the package's pool of processes."""
    folder = Path(pictures) if pictures else None
    size = Size(tiny, seeds, folder, say, stop)
    text: str = pkgutil.resolve_name(f"studies.{part}")(size)
    return text.strip("\n")


def write(page: Path, part: str, text: str) -> None:
    """Put what a part printed into its page."""
    table = re.compile(rf"(?<=<!-- {re.escape(part)} -->\n)(.*?)(?=\n<!-- end -->)", re.DOTALL)
    changed, count = table.subn(lambda _: text, page.read_text())
    if count != 1:
        raise SystemExit(
            f"{page}: {count} places for {part}, expected one, <!-- {part} --> to <!-- end -->"
        )
    page.write_text(changed)


def chosen_parts(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """Return the parts that the command line asks for."""
    everything = options.pages == ["all"]
    only_parts = options.part and not options.pages
    parts: list[str] = []
    for page, parts_of_page in PAGES.items():
        if everything or only_parts or page in options.pages:
            parts += [part for part in parts_of_page if part not in parts]
    if everything or only_parts:
        parts += OTHERS
    for part in options.part or ():
        if part not in parts:
            parser.error(f"--part: got {part!r}, expected one of {', '.join(parts)}")
    return options.part or parts


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of pages, or the list of pages; return how many parts failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", metavar="page", help=f"of {', '.join(PAGES)}; all")
    parser.add_argument("--part", action="append", help="only this part; may be repeated")
    parser.add_argument("--seeds", type=int, default=10**9, help="at most so many seeds")
    parser.add_argument("--tiny", action="store_true", help="a few episodes, to see that it runs")
    parser.add_argument("--workers", type=int, default=processors(), help="parts at a time")
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    options = parser.parse_args(arguments)
    for page in options.pages:
        if page not in (*PAGES, "all"):
            parser.error(f"page: got {page!r}, expected one of {', '.join(PAGES)}")
    if options.write and (options.tiny or options.seeds < 10**9):
        parser.error("--tiny and --seeds print only: their figures are not those of the page")
    if not options.pages and not options.part:
        for page, parts_of_page in [*PAGES.items(), ("no page", OTHERS)]:
            print(f"{page:<30}{' '.join(parts_of_page)}")
        return 0
    parts = chosen_parts(parser, options)
    pictures = ""
    if options.write:
        pictures = str(DOCS / "figures")
    tasks = [[part, options.tiny, options.seeds, pictures] for part in parts]
    pool = Pool("studies.figures:measure", min(options.workers, max(1, len(parts))))
    began: dict[str, float] = {}
    due = 0.0
    failed = 0
    for number, event in pool.play(tasks):
        part = parts[number]
        now = time.monotonic()
        spent = now - began.setdefault(part, now)
        if event["event"] == "progress" and now > due:
            due = now + 10.0
            sys.stderr.write(f"{part}: {event['text']}, {spent:.0f} s\n")
        elif event["event"] == "done":
            print(f"{part}\n\n{event['result']}\n", flush=True)
            sys.stderr.write(f"{part}: done in {spent:.0f} s\n")
            for page, parts_of_page in PAGES.items():
                named = options.pages == ["all"] or page in options.pages
                if options.write and named and part in parts_of_page:
                    write(DOCS / f"{page}.md", part, event["result"])
        elif event["event"] == "retry":
            sys.stderr.write(f"{part}: retry: {event['text']}\n")
        elif event["event"] not in ("begin", "progress"):
            failed += 1
            reason = event.get("trace", event["text"])
            sys.stderr.write(f"{part}: {event['event']}: {reason}\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
