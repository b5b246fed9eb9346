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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import bootstrap

from occamrl.protocols import Floats

DOCS = Path(__file__).parent.parent / "docs"

PAGES: dict[str, tuple[str, ...]] = {
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
    "selection-ladders": (
        "study_ladders:classes",
        "study_paper:ladder",
        "study_ladders:false_rejection",
        "study_ladders:ice",
        "study_ladders:pays",
        "study_ladders:linear",
        "study_ladders:pricing",
    ),
    "learners": ("study_linear:lazy",),
    "simulators": ("study_simulators:evidence",),
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
    ),
    "rivals": ("study_rivals:river_swim", "study_rivals:linear_river_swim"),
    "problems/pricing": ("study_ladders:pricing",),
    "problems/patchy-ice": ("study_ladders:ice",),
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
