"""The report of an experiment: what came out, in words, tables and figures, as one HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import tomli_w

from occamrl.errors import as_path
from occamrl.experiments.records import Records, load
from occamrl.experiments.tables import FEWEST
from occamrl.files import make_folder, write_whole
from occamrl.report.data import ProblemResults, Report, Summary, build
from occamrl.report.html import (
    Markup,
    csv_link,
    element,
    image,
    join,
    paragraphs,
    render_page,
    table,
)
from occamrl.report.plates import Plate, problem_plates, sweep_plates, write_figures

Row: TypeAlias = Mapping[str, object]

DOTS_PER_INCH = 200  # of a column's width: sharp, and small enough for a hundred figures


def write_report(
    source: str | Path | Records, out: Path | None = None, figures: Path | None = None
) -> Path:
    """Write the report of an experiment, whole or not at all; return its path.

    ``source`` is its folder, or what was loaded from it. ``out`` is ``report.html`` in the folder
    by default; ``figures``, a folder for every figure as PDF, SVG and PNG.
    """
    records = source if isinstance(source, Records) else load(as_path("folder", source))
    report = build(records)
    page = out or records.folder / "report.html"
    make_folder(page.parent)
    write_whole(page, render_report(report).encode())
    if figures is not None:
        write_figures(report, figures)
    return page


def render_report(report: Report) -> str:
    """Return the page of an experiment: a league, every problem, parameters, and the spec."""
    sections = {}
    if report.league:
        sections["League"] = league_section(report.league)
    for index, problem in enumerate(report.problems):
        panels = show_plates(problem_plates(report, index))
        sections[f"Regret: {problem.name}"] = join([totals_table(problem, report.baseline), panels])
    if report.sweeps:
        remark = note("Mean total regret over seeds for every value, with its interval.")
        sections["Parameters"] = join([remark, show_plates(sweep_plates(report))])
    if report.problems:
        sections["How to read it"] = explanation(report)
    sections["Reproduce"] = reproduction(report)
    return render_page(report.records.name, sections, overview(report))


def overview(report: Report) -> Markup:
    """Return how far the experiment has come, and what came out on each problem."""
    records = report.records
    status = f"{len(records.cells)} of {records.total} cells done"
    for name, ids in (("begun", records.begun), ("waiting", records.missing)):
        if ids:
            status += f", {len(ids)} {name}"
    parts = [paragraphs(str(records.spec.get("description", "")), f"{status}.")]
    if records.failures:
        parts.append(element("p", f"{len(records.failed)} failed.", class_="warn"))
        caption = "Left out of every figure and number below"
        parts.append(table(records.failures, caption, texts=("who", "reason")))
    rows = []
    for problem in report.problems:
        rows.append(element("dt", element("bdi", problem.name)))
        rows.append(element("dd", paragraphs(*problem.headline)))
    if not rows:
        return join([*parts, paragraphs("No cell has finished yet.")])
    return join([*parts, element("div", element("dl", *rows), class_="headline")])


def note(text: str) -> Markup:
    """Return a remark."""
    return element("p", text, class_="note")


def show_plates(plates: Iterable[Plate]) -> Markup:
    """Return figures side by side, as far as there is room."""
    figures = []
    for plate in plates:
        label = f"{plate.title}: {plate.name.rpartition('-')[2]}"
        # Of what browsers read, this takes the least room: less than half of PNG.
        drawn = plate.as_bytes("webp", dpi=DOTS_PER_INCH, pil_kwargs={"lossless": True})
        figures.append(element("figure", image("webp", drawn, label)))
    return element("div", *figures, class_="panels")


def league_section(rows: Sequence[Row]) -> Markup:
    """Return a league table for each problem; columns that are empty everywhere are left out."""
    names = [name for name in rows[0] if any(row[name] not in (None, "") for row in rows)]
    problems: dict[object, list[Row]] = {}
    for row in rows:
        listed = {name: row[name] for name in names if name != "problem"}
        problems.setdefault(row["problem"], []).append(listed)
    remark = note(
        "A guarantee is that of the published constants. Tuned: the constants with the least mean "
        "regret on the tuning seeds, which are not shown."
    )
    texts = ("guarantee", "given beforehand", "tuned")
    tables = [table(listed, str(problem), texts) for problem, listed in problems.items()]
    return join([remark, *tables])


def totals_table(problem: ProblemResults, baseline: str) -> Markup:
    """Return the total regret of every agent on a problem, and what it is above the baseline's."""
    digits = decimals(one.regret.mean for one in problem.agents)
    rows: list[Row] = []
    for one in problem.agents:
        values = one.group.values
        episodes = values("episodes").sum()
        row = {
            "Agent": one.group.agent,
            "Seeds": len(one.group.seeds),
            "Mean regret": with_interval(one.regret, digits),
            "Median": rounded(one.regret.median, digits),
            "IQM": rounded(one.regret.middle_half, digits),
            f"Minus {baseline}": Markup(""),
            "Less / more": Markup(""),
            "Log-log slope": with_interval(one.slope, 2),
            "Plans": float(values("plans").mean()),
            "Pessimistic": rounded(values("pessimistic_episodes").sum() / max(episodes, 1.0), 4),
            "Seconds": float(values("wall_time").mean()),
            "Lock-in": Markup(""),
        }
        if one.difference is not None:
            row[f"Minus {baseline}"] = with_interval(one.difference.size, digits)
            row["Less / more"] = Markup(f"{one.difference.less} / {one.difference.more}")
        if one.decisions is not None and one.decisions.settled is not None:
            settled = one.decisions.settled
            words = element("span", settled.words, class_="ends")
            row["Lock-in"] = join([Markup(f"{settled.episode:,.6g}"), words])
        rows.append(row)
    return table(rows, "Total regret")


def explanation(report: Report) -> Markup:
    """Return what the numbers and figures mean, and the total regret of every seed as a file."""
    seeds: list[Row] = []
    for problem in report.problems:
        for one in problem.agents:
            about = {"problem": problem.name, "agent": one.group.agent}
            for seed, total in one.group.by_seed("total_regret").items():
                seeds.append({**about, "seed": seed, "total_regret": total})
    return join(
        [
            paragraphs(
                "Lines are means over seeds. Bands, and numbers in brackets, are 95 % bootstrap "
                f"intervals of the mean over seeds, from {FEWEST} seeds on; bands are pointwise. "
                "IQM is the mean of the middle half of the seeds.",
                "Differences are taken seed by seed, where both agents met the same random "
                "numbers: below zero, the agent had less regret than the baseline, in the first "
                "number of seeds. Seeds that only one of them has are left out.",
                "The slope is that of log regret against log episode over the last tenfold of "
                "episodes. Lock-in is the episode from which the decision no longer changes, its "
                "median over seeds. Pessimistic: the share of episodes in which a plan promised "
                "less than the optimum.",
                "Maps show the share of seeds in which something was in play; a star marks what is "
                "true.",
            ),
            csv_link("total regret of each seed", seeds),
        ]
    )


def reproduction(report: Report) -> Markup:
    """Return the spec, and what the cells ran with."""
    spec = element("pre", tomli_w.dumps(report.records.spec), tabindex="0")
    parts = [element("details", element("summary", "Spec"), spec)]
    if any(len(versions) > 1 for versions in report.versions.values()):
        warning = "The cells did not all run in the same environment."
        parts.insert(0, element("p", warning, class_="warn"))
    rows: list[Row] = []
    for name, versions in report.versions.items():
        texts = [f"{text} ({count} cells)" for text, count in versions.items()]
        rows.append({"name": name, "version": "; ".join(texts)})
    if rows:
        parts.append(
            element(
                "details",
                element("summary", "Environment"),
                table(rows, "Versions", texts=("version",)),
            )
        )
    return join(parts)


# Numbers ------------------------------------------------------------------------------------------


def decimals(numbers: Iterable[float]) -> int:
    """Return how many decimals a column has: three digits of its median, one of its smallest."""
    sizes = sorted(abs(number) for number in numbers if number)
    if not sizes:
        return 0
    median = math.floor(math.log10(sizes[len(sizes) // 2]))
    return max(0, 2 - median, -math.floor(math.log10(sizes[0])))


def rounded(number: float, digits: int) -> Markup:
    """Return a number with as many decimals as its column has."""
    return Markup(f"{number:,.{digits}f}")


def with_interval(summary: Summary | None, digits: int) -> Markup:
    """Return a mean with its interval below it; nothing where there is none."""
    if summary is None:
        return Markup("")
    mean = rounded(summary.mean, digits)
    if summary.interval is None:
        return mean
    low, high = summary.interval
    ends = f"[{rounded(low, digits)}, {rounded(high, digits)}]"
    return join([mean, element("span", ends, class_="ends")])
