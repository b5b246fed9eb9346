"""The measured tables of the documentation: one command prints every table of a page, as the page shows it.

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
import pkgutil
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import bootstrap

import occamrl as orl
from occamrl.errors import Stopped
from occamrl.experiments.pool import Pool, processors
from occamrl.protocols import Floats

DOCS = Path(__file__).parent.parent / "docs"

PAGES: dict[str, tuple[str, ...]] = {
    "baselines": ("rivals:ladder",),
    "continuous-states": tuple(
        f"control:{name}" for name in ("validity", "power", "views", "sensitivity", "returns")
    ),
    "logged-data": ("answers:logs",),
    "problems/lost-sales": ("practical:lost_sales",),
    "problems/machine-replacement": ("practical:machine_replacement",),
    "problems/patchy-ice": ("ladders:ice",),
    "problems/pricing": ("ladders:pricing",),
    "problems/queue-admission": ("practical:queue_admission",),
    "problems/weekday-inventory": ("practical:weekday_inventory",),
    "selection-ladders": ("ladders:classes",),
    "selection-linear": ("linear:dimension",),
}
OTHERS = (  # parts that are not written into a page: baselines and real_log need packages of others
    *(f"control:{name}" for name in ("controls", "baselines", "real_log", "cost")),
    *(f"ladders:{name}" for name in ("paper", "false_rejection", "linear")),
    *(
        f"linear:{name}"
        for name in ("instances", "control", "norm", "scale", "containment", "paper")
    ),
    *(
        f"linear:{name}"
        for name in ("lazy", "rewards", "steps", "changing", "selectors", "families")
    ),
    *(f"occam:{name}" for name in ("held", "outside", "blind", "coverage", "mixtures", "signed")),
    *(f"rivals:{name}" for name in ("ice", "mixture", "pricing", "misspecified", "riverswim")),
    *(f"rivals:{name}" for name in ("river_swim", "linear_river_swim")),
    *(f"simulators:{name}" for name in ("gymnasium", "logs")),
)


@dataclass(frozen=True)
class Size:
    """How much a study plays, where its pictures go (nowhere by default), and who is told how far it is."""

    tiny: bool = False
    most_seeds: int = 10**9
    pictures: Path | None = None
    say: Callable[[dict[str, Any]], None] = lambda news: None
    stop: Callable[[], bool] = lambda: False

    def seeds(self, full: int) -> int:
        """Return how many seeds to play."""
        return min(full, 1 if self.tiny else self.most_seeds)

    def episodes(self, full: int) -> int:
        """Return how many episodes to play."""
        return min(full, 30) if self.tiny else full

    def some(self, cases: Iterable[Any]) -> list[Any]:
        """Return the cases to play: a tiny study plays the first."""
        return list(cases)[: 1 if self.tiny else None]


# Playing ------------------------------------------------------------------------------------------


def each(size: Size, count: int, job: Callable[[int], Any], label: str) -> list[Any]:
    """Return ``job(0)``, ..., ``job(count - 1)``; tells how far it is, and stops when it is to."""
    found = []
    for i in range(count):
        if size.stop():
            raise Stopped(f"{label}: stopped after {i} of {count} runs")
        found.append(job(i))
        size.say({"event": "progress", "text": f"{label}, {i + 1} of {count} runs"})
    return found


class Played(NamedTuple):
    """What the tables need of a run; a learner's state can be large."""

    regret: float
    curve: Floats  # cumulative regret at ``points``
    phases: list[dict[str, Any]]
    plans: int
    pessimistic: int
    tail: float  # regret of an episode in the last tenth


def points(episodes: int) -> Any:
    """Return the episodes at which curves are drawn."""
    return np.unique(np.geomspace(1, episodes, 300).astype(int))


def kept(result: orl.Result) -> Played:
    """Return what the tables need of a result."""
    K = result.total_episodes
    tail = (result.total_regret - result.regret_at(K - max(1, K // 10))) / max(1, K // 10)
    curve, last = result.regret_at(points(K)), result.phase_rows
    return Played(
        result.total_regret, curve, last, result.plans, result.pessimistic_episodes, float(tail)
    )


Runs = dict[str, list[Played]]


def play(
    size: Size,
    cast: Mapping[str, Any],
    problem: Any,
    episodes: int,
    seeds: int,
    first_seed: int = 0,
    label: str = "",
) -> Runs:
    """Run every agent with every seed; all agents meet the same seeds."""
    names, count = list(cast), size.seeds(seeds)
    length = size.episodes(episodes)

    def job(i: int) -> Played:
        agent, seed = cast[names[i // count]], first_seed + i % count
        return kept(orl.run(agent, problem, episodes=length, seed=seed, progress=False))

    found = each(size, len(names) * count, job, label or type(problem).__name__)
    return {name: found[n * count : (n + 1) * count] for n, name in enumerate(names)}


def regrets(played: Sequence[Played]) -> Floats:
    """Return the regret of each run."""
    return np.array([one.regret for one in played])


# Telling ------------------------------------------------------------------------------------------


def number(value: float, like: float | None = None) -> str:
    """Return a figure with one decimal if it, or what it stands beside, is below 20; without from there on."""
    return f"{value:,.1f}" if abs(value if like is None else like) < 20.0 else f"{value:,.0f}"


def interval(values: Sequence[float] | Floats) -> str:
    """Return a mean with its 95% bootstrap interval."""
    data = np.asarray(values, dtype=np.float64)
    mean = float(data.mean())
    if len(data) < 2 or np.ptp(data) <= 1e-12 * abs(mean):
        return number(mean)
    found = bootstrap(
        (data,), np.mean, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return f"{number(mean)} [{number(found.low, mean)}, {number(found.high, mean)}]"


def ratio(values: Floats, of: Floats) -> str:
    """Return a ratio of means with its 95% bootstrap interval, seeds drawn in pairs."""
    at = np.random.default_rng(0).integers(len(values), size=(9_999, len(values)))
    low, high = np.quantile(values[at].mean(axis=1) / of[at].mean(axis=1), (0.025, 0.975))
    return f"{values.mean() / of.mean():.2f} [{low:.2f}, {high:.2f}]"


def table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


@dataclass(frozen=True)
class Panel:
    """A part of a picture: for every name a mean over seeds, within a band from the smallest to the largest.

    ``beyond`` names a line that may leave the panel, where it would make the others flat.
    """

    title: str
    lines: Mapping[
        str, tuple[Any, Floats]
    ]  # where, and the values there of every seed, [seeds, places]
    ylabel: str = "cumulative regret"
    logarithmic: bool = False
    beyond: str = ""

    def draw(self, axes: Any, colours: Sequence[str], styles: Sequence[Any]) -> None:
        """Draw the panel."""
        axes.set(
            xscale="log",
            yscale="log" if self.logarithmic else "linear",
            xlabel="episode",
            ylabel=self.ylabel,
        )
        axes.set_title(self.title, fontsize="medium")
        axes.spines[["top", "right"]].set_visible(False)
        for i, (name, (where, values)) in enumerate(self.lines.items()):
            colour, style = colours[i % len(colours)], styles[i % len(styles)]
            axes.plot(where, values.mean(axis=0), color=colour, linestyle=style, label=name)
            axes.fill_between(
                where,
                values.min(axis=0),
                values.max(axis=0),
                color=colour,
                alpha=0.1,
                linewidth=0.0,
            )
        if not self.logarithmic:
            top = max(
                values.max() for name, (_, values) in self.lines.items() if name != self.beyond
            )
            axes.set_ylim(0.0, 1.05 * max(top, 1e-9))


def curves(played: Runs, episodes: int, scale: float = 1.0) -> dict[str, tuple[Any, Floats]]:
    """Return cumulative regret as the lines of a panel, times ``scale``."""
    return {
        name: (points(episodes), scale * np.array([one.curve for one in results]))
        for name, results in played.items()
    }


def picture(size: Size, name: str, panels: Sequence[Panel]) -> None:
    """Draw panels side by side, below them what the lines are; all pictures of the pages look like this."""
    if size.pictures is None:
        return
    from matplotlib.figure import Figure

    from occamrl.report.figures import COLOURS, DASHES

    columns = 3 if len(panels) % 3 == 0 else min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(10.0 if columns > 1 else 7.0, 0.8 + 3.0 * rows), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(places, panels, strict=False):
        panel.draw(axes, COLOURS, DASHES)
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    handles, labels = places[0].get_legend_handles_labels()
    across = len(labels) if sum(map(len, labels)) < 50 else 2
    look: Any = {
        "loc": "outside lower center",
        "ncols": across,
        "frameon": False,
        "handlelength": 3.4,
    }
    figure.legend(
        handles,
        labels,
        **look,
        title="mean of the seeds; bands reach from the smallest to the largest",
    )
    figure.savefig(size.pictures / name, dpi=110)


def measure(
    part: str,
    tiny: bool = False,
    seeds: int = 10**9,
    pictures: str = "",
    *,
    say: Callable[[dict[str, Any]], None] = lambda news: None,
    stop: Callable[[], bool] = lambda: False,
) -> str:
    """Return what a part prints; a task of the package's pool of processes."""
    size = Size(tiny, seeds, Path(pictures) if pictures else None, say, stop)
    text: str = pkgutil.resolve_name(f"studies.{part}")(size)
    return text.strip("\n")


def write(page: Path, part: str, text: str) -> None:
    """Put what a part printed into its page."""
    place = re.compile(rf"(?<=<!-- {re.escape(part)} -->\n)(.*?)(?=\n<!-- end -->)", re.DOTALL)
    changed, count = place.subn(lambda _: text, page.read_text())
    if count != 1:
        raise SystemExit(
            f"{page}: {count} places for {part}, expected one, <!-- {part} --> to <!-- end -->"
        )
    page.write_text(changed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of the pages that are named, or the list of pages; return how many parts failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", metavar="page", help=f"of {', '.join(PAGES)}; all")
    parser.add_argument(
        "--part", action="append", help="only this part; may be given several times"
    )
    parser.add_argument("--seeds", type=int, default=10**9, help="at most so many seeds")
    parser.add_argument("--tiny", action="store_true", help="a few episodes, to see that it runs")
    parser.add_argument(
        "--workers", type=int, default=processors(), help="parts that are measured at a time"
    )
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    given = parser.parse_args(arguments)
    pages = list(PAGES) if given.pages == ["all"] else given.pages
    if unknown := [page for page in pages if page not in PAGES]:
        parser.error(f"page: got {unknown[0]!r}, expected one of {', '.join(PAGES)}")
    if given.write and (given.tiny or given.seeds < 10**9):
        parser.error("--tiny and --seeds print only: their figures are not those of the page")
    parts = list(
        dict.fromkeys(
            part for page in pages or (PAGES if given.part else ()) for part in PAGES[page]
        )
    )
    parts += OTHERS if given.pages == ["all"] or (given.part and not pages) else ()
    if unknown := [part for part in given.part or () if part not in parts]:
        parser.error(f"--part: got {unknown[0]!r}, expected one of {', '.join(parts)}")
    parts = given.part or parts
    if not pages and not parts:
        print(
            "\n".join(
                f"{page:<30}{' '.join(parts)}"
                for page, parts in [*PAGES.items(), ("no page", OTHERS)]
            )
        )
    pictures = str(DOCS / "figures") if given.write else ""
    began, failed, due = dict.fromkeys(parts, time.monotonic()), 0, 0.0
    tasks = [[part, given.tiny, given.seeds, pictures] for part in parts]
    for i, event in Pool("studies.figures:measure", min(given.workers, max(1, len(parts)))).play(
        tasks
    ):
        now, part = time.monotonic(), parts[i]
        if event["event"] == "begin":
            began[part] = now
        elif event["event"] == "progress" and now > due:
            due = now + 10.0
            sys.stderr.write(f"{part}: {event['text']}, {now - began[part]:.0f} s\n")
        elif event["event"] == "done":
            print(f"{part}\n\n{event['result']}\n", flush=True)
            sys.stderr.write(f"{part}: done in {now - began[part]:.0f} s\n")
            for page in pages if given.write else ():
                if part in PAGES[page]:
                    write(DOCS / f"{page}.md", part, event["result"])
        elif event["event"] != "progress":
            failed += event["event"] != "retry"
            sys.stderr.write(f"{part}: {event['event']}: {event.get('trace', event['text'])}\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
