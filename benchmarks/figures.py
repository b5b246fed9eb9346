"""The measured figures of the documentation: one command prints every figure of a page, as the page shows it.

    python -m benchmarks.figures                             the pages and their parts
    python -m benchmarks.figures selection-linear            prints the figures of docs/selection-linear.md
    python -m benchmarks.figures selection-linear --part study_linear:norm
    python -m benchmarks.figures selection-linear --write    also puts them into the page, and draws its pictures

A part is a function of a study in this folder that returns Markdown. Its place in a page lies between
``<!-- study_linear:norm -->`` and ``<!-- end -->``; nothing else is written there. ``--tiny`` plays a few episodes, to
see that a study runs. Regret is exact and does not depend on the machine.
"""

from __future__ import annotations

import argparse
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import bootstrap

from occamrl.protocols import Agent, Floats
from occamrl.report.figures import COLOURS, STYLES
from occamrl.running.result import Result, dress
from occamrl.running.run import run

DOCS = Path(__file__).parent.parent / "docs"

PAGES: dict[str, tuple[str, ...]] = {
    "arena": (
        "study_league:ice",
        "study_league:ladder",
        "study_league:mixture",
        "study_league:pricing",
        "study_league:misspecified",
        "study_league:riverswim",
    ),
    "continuous-states": ("study_continuous:pendulum", "study_continuous:alike", "study_continuous:others"),
    "environments": ("study_gymnasium:ladders",),
    "extensions": (
        "study_extensions:rewards",
        "study_extensions:steps",
        "study_extensions:changing",
        "study_extensions:selectors",
        "study_extensions:families",
    ),
    "learners": ("study_linear:lazy",),
    "logged-data": ("study_logs:evidence",),
    "occam": (
        "study_occam:held",
        "study_occam:cliff",
        "study_occam:blind",
        "study_occam:outside",
        "study_occam:coverage",
        "study_occam:speed",
        "study_occam_linear:mixtures",
        "study_occam_linear:signed",
        "study_occam_linear:many",
    ),
    "problems/lost-sales": ("study_practical:lost_sales", "study_practical:free_orders"),
    "problems/machine-replacement": ("study_practical:machine_replacement",),
    "problems/patchy-ice": ("study_ladders:ice",),
    "problems/pricing": ("study_ladders:pricing",),
    "problems/queue-admission": ("study_practical:queue_admission",),
    "problems/weekday-inventory": ("study_practical:weekday_inventory",),
    "rivals": ("study_rivals:river_swim", "study_rivals:linear_river_swim", "study_rivals:simplified_bonus"),
    "selection-ladders": (
        "study_ladders:classes",
        "study_paper:ladder",
        "study_ladders:false_rejection",
        "study_ladders:ice",
        "study_ladders:pays",
        "study_ladders:linear",
        "study_ladders:pricing",
    ),
    "selection-linear": (
        "study_linear:dimension",
        "study_linear:instances",
        "study_linear:control",
        "study_linear:norm",
        "study_linear:rate",
        "study_linear:scale",
        "study_linear:containment",
        "study_paper:dimension",
        "study_paper:norm",
    ),
    "simulators": ("study_simulators:evidence", "study_simulators:between"),
    "your-own-algorithm": ("study_arena:speed",),
}


@dataclass(frozen=True)
class Size:
    """How much a study plays, and where its pictures go (nowhere by default)."""

    tiny: bool = False
    pictures: Path | None = None

    def seeds(self, full: int) -> int:
        """Return how many seeds to play."""
        return min(full, 2) if self.tiny else full

    def episodes(self, full: int) -> int:
        """Return how many episodes to play."""
        return min(full, 62) if self.tiny else full


def number(value: float, like: float | None = None) -> str:
    """Return a figure with one decimal if it, or what it stands beside, is below 20; without from there on."""
    return f"{value:,.1f}" if abs(value if like is None else like) < 20.0 else f"{value:,.0f}"


def interval(values: Sequence[float] | Floats) -> str:
    """Return a mean with its 95% bootstrap interval."""
    data = np.asarray(values, dtype=np.float64)
    if len(data) < 2 or np.ptp(data) == 0.0:
        return number(data.mean())
    found = bootstrap((data,), np.mean, method="percentile", rng=np.random.default_rng(0)).confidence_interval
    mean = float(data.mean())
    return f"{number(mean)} [{number(found.low, mean)}, {number(found.high, mean)}]"


def ratio(values: Floats, of: Floats) -> str:
    """Return a ratio of means with its 95% bootstrap interval, seeds drawn in pairs."""

    def means(x: Floats, y: Floats, axis: int) -> Any:
        return x.mean(axis) / y.mean(axis)

    drawn: Any = {"paired": True, "vectorized": True, "method": "percentile", "rng": np.random.default_rng(0)}
    found = bootstrap((values, of), means, **drawn).confidence_interval
    return f"{values.mean() / of.mean():.2f} [{found.low:.2f}, {found.high:.2f}]"


def runs(agent: Agent, problem: Any, episodes: int, seeds: int) -> Iterator[Result]:
    """Play an agent with every seed, one after the other: a learner's state can be large."""
    return (run(agent, problem, episodes=episodes, seed=seed, progress=False) for seed in range(seeds))


def regrets(agent: Agent, problem: Any, episodes: int, seeds: int) -> Floats:
    """Return the regret of each seed."""
    return np.array([result.total_regret for result in runs(agent, problem, episodes, seeds)])


Line = tuple[Any, Floats]  # where, and the values there of every seed, [seeds, places]


@dataclass(frozen=True)
class Panel:
    """A part of a picture: for every name a mean over seeds, within a band from the smallest to the largest.

    ``beyond`` names a line that may leave the panel, where it would make the others flat.
    """

    title: str
    lines: Mapping[str, Line]
    ylabel: str = "cumulative regret"
    logarithmic: bool = False
    beyond: str = ""

    def draw(self, axes: Any) -> None:
        """Draw the panel."""
        axes.set(xscale="log", yscale="log" if self.logarithmic else "linear")
        dress(axes, self.title)
        axes.set_ylabel(self.ylabel)
        for i, (name, (where, values)) in enumerate(self.lines.items()):
            axes.plot(where, values.mean(axis=0), color=COLOURS[i], linestyle=STYLES[i], label=name)
            axes.fill_between(where, values.min(axis=0), values.max(axis=0), color=COLOURS[i], alpha=0.1, linewidth=0.0)
        if not self.logarithmic:
            top = max(values.max() for name, (_, values) in self.lines.items() if name != self.beyond)
            axes.set_ylim(0.0, 1.05 * top)


def picture(size: Size, name: str, panels: Sequence[Panel]) -> None:
    """Draw panels side by side, below them what the lines are; all pictures of the pages look like this."""
    if size.pictures is None:
        return
    columns = 3 if len(panels) % 3 == 0 else min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(10.0 if columns > 1 else 7.0, 0.8 + 3.0 * rows), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(places, panels, strict=False):
        panel.draw(axes)
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    handles, labels = places[0].get_legend_handles_labels()
    across = len(labels) if sum(map(len, labels)) < 50 else 2
    look: Any = {"loc": "outside lower center", "ncols": across, "frameon": False, "handlelength": 3.4}
    figure.legend(handles, labels, **look, title="mean of the seeds; bands reach from the smallest to the largest")
    figure.savefig(size.pictures / name, dpi=110)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def measure(part: str, size: Size) -> str:
    """Return what a part prints."""
    text: str = pkgutil.resolve_name(f"benchmarks.{part}")(size)
    return text.strip("\n")


def place(part: str) -> re.Pattern[str]:
    """Return what finds a part in a page; its group is what was printed."""
    return re.compile(rf"(?<=<!-- {re.escape(part)} -->\n)(.*?)(?=\n<!-- end -->)", re.DOTALL)


def write(page: Path, part: str, text: str) -> None:
    """Put what a part printed into its page."""
    changed, count = place(part).subn(lambda _: text, page.read_text())
    if count != 1:
        raise SystemExit(f"{page}: {count} places for {part}, expected one, <!-- {part} --> to <!-- end -->")
    page.write_text(changed)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of the pages that are named, or the list of pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="page", help=f"of {', '.join(PAGES)}")
    parser.add_argument("--part", action="append", help="only this part; may be given several times")
    parser.add_argument("--tiny", action="store_true", help="a few episodes, to see that it runs")
    parser.add_argument("--write", action="store_true", help="put the figures into the page")
    given = parser.parse_args(arguments)
    if given.tiny and given.write:
        parser.error("--tiny prints only: its figures are none")
    for page in given.pages:
        if page not in PAGES:
            parser.error(f"page: got {page!r}, expected one of {', '.join(PAGES)}")
        for part in given.part or PAGES[page]:
            if part not in PAGES[page]:
                parser.error(f"--part: got {part!r}, expected one of {', '.join(PAGES[page])}")
            text = measure(part, Size(tiny=given.tiny, pictures=DOCS / "figures" if given.write else None))
            print(f"{part}\n\n{text}\n", flush=True)
            if given.write:
                write(DOCS / f"{page}.md", part, text)
    if not given.pages:
        print("\n".join(f"{page:<28}{' '.join(parts)}" for page, parts in PAGES.items()))


if __name__ == "__main__":
    main()
