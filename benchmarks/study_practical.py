"""The practical problems: which class is found, after how long, and what that is worth in the field's unit.

For the pages of docs/problems (:mod:`benchmarks.figures`): what the preflight says of the first truth, and what
was lost in all episodes together against the best policy, in expectation and in the mean over seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

import occamrl as orl
from benchmarks.figures import Size, number, table
from benchmarks.study_ladders import SINCE, Runs, agents, found, play, preflight
from occamrl.problems.operations import LostSales, MachineReplacement, QueueAdmission, WeekdayInventory
from occamrl.report.figures import COLOURS, STYLES
from occamrl.running.result import dress


def study(
    size: Size, problems: Sequence[Any], titles: Sequence[str], episodes: int, matters: float, picture: str
) -> str:
    """Measure one problem with several truths; a loss of ``matters`` an episode is much to the preflight."""
    rows, panels, unit, report = [], dict[str, Runs](), problems[0].unit, ""
    unit_name = problems[0].unit_name
    for title, problem in list(zip(titles, problems, strict=True))[: 1 if size.tiny else None]:
        ladder, mdp = orl.Ladder.of_problem(problem), problem.mdp
        m = ladder.class_of(mdp) or 0
        report = report or preflight(ladder, problem, episodes, least_loss=matters / unit.scale)
        runs = play(agents(ladder, m, *NAMES), problem, size.episodes(episodes), size.seeds(5))
        lost = [number(np.mean([run.total_regret * unit.scale for run in each])) for each in runs.values()]
        optimum = f"{unit.total(mdp.optimal_value, mdp.horizon):,.1f}"
        rows.append((title, m, optimum, lost[0], found(runs["ARL-GEN"], m), *lost[1:]))
        panels[title] = runs
    if size.pictures is not None:
        draw(panels, unit.scale, unit_name, size.pictures / f"practical-{picture}.png")
    header = (
        f"truth; K = {episodes:,}, 5 seeds",
        "m*",
        f"optimum of an episode, {unit_name}",
        "lost by ARL-GEN",
        SINCE,
    )
    return report + "\n\n" + table((*header, *NAMES[1:]), rows)


NAMES = ("ARL-GEN", "safe", "oracle", "F_M", "F_1")


def lost_sales(size: Size) -> str:
    """Measure an inventory with lost sales."""
    return study(size, LostSales.truths(), LostSales.rung_names, 2**12 - 2, 5.0, "lost-sales")


def free_orders(size: Size) -> str:
    """Measure the same where orders cost nothing."""
    laws = ("poisson", "negative-binomial")
    problems = [LostSales(demand=law, fixed=0.0, holding=1.0, order_step=1) for law in laws]
    return study(size, problems, laws, 2**11 - 2, 5.0, "free-orders")


def weekdays(size: Size) -> str:
    """Measure an inventory through the week."""
    names = WeekdayInventory.rung_names
    return study(size, WeekdayInventory.truths(), names, 2**10 - 2, 5.0, "weekday-inventory")


def queue(size: Size) -> str:
    """Measure the admission to a queue."""
    return study(size, QueueAdmission.truths(), QueueAdmission.rung_names, 2**11 - 2, 3.0, "queue-admission")


def machine(size: Size) -> str:
    """Measure the replacement of a machine."""
    slow = MachineReplacement(hazard=(0.05,) * 4 + (0.1,) * 2 + (0.2,) * 9)
    problems, names = [*MachineReplacement.truths(), slow], [*MachineReplacement.rung_names, "slow wear"]
    return study(size, problems, names, 2**10 - 2, 300.0, "machine-replacement")


def draw(panels: dict[str, Runs], scale: float, unit_name: str, path: Path) -> None:
    """Draw what was lost over episodes, one panel per truth; mean and range of the seeds.

    The axis ends a little above the dearest agent other than the smallest class, which may leave the picture.
    """
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5.6 * columns, 3.8 * rows), layout="constrained")
    plates = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in plates[len(panels) :]:
        axes.set_visible(False)
    for axes, (title, runs) in zip(plates, panels.items(), strict=False):
        dress(axes, f"truth: {title.lstrip('+ ')}")
        top = 0.0
        for i, (name, results) in enumerate(runs.items()):
            episodes = len(results[0].cumulative_regret)
            at = np.unique(np.round(np.geomspace(1, episodes, 200)).astype(int))
            lost = scale * np.array([result.cumulative_regret[at - 1] for result in results])
            axes.plot(at, lost.mean(axis=0), label=name, color=COLOURS[i], linestyle=STYLES[i])
            axes.fill_between(at, lost.min(axis=0), lost.max(axis=0), color=COLOURS[i], alpha=0.12, linewidth=0)
            if name != "F_1":
                top = max(top, float(lost[:, -1].max()))
        axes.set_xscale("log")
        axes.set_ylim(0.0, 1.15 * top)
        axes.set_ylabel(f"lost so far, {unit_name}")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}" if top > 10.0 else "{x:.3g}"))
        axes.legend(frameon=False, fontsize="small", loc="upper left")
    figure.savefig(path, dpi=100)
