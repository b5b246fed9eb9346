"""The practical problems: which class is found, after how long, and what that is worth in the field's own unit.

For docs/problems (:mod:`studies.figures`): a truth for each class, means over 10 seeds; every seed
is met by all agents alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import occamrl as orl
from occamrl.problems.operations import (
    LostSales,
    MachineReplacement,
    QueueAdmission,
    WeekdayInventory,
)
from studies.figures import Panel, Size, curves, picture, play, table
from studies.ladders import agents, header, line


def named(kind: Any) -> dict[str, Any]:
    """Return a problem for each class, by its name."""
    return {
        name.lstrip("+ "): problem
        for name, problem in zip(kind.class_names, kind.truths(), strict=True)
    }


def study(truths: Mapping[str, Any], episodes: int, size: Size, drawn: str) -> str:
    """Return what was lost in all episodes together."""
    rows, panels = [], []
    for name, problem in size.some(truths.items()):
        ladder = orl.Ladder.of_problem(problem)
        m = ladder.class_of(problem.mdp) or 0
        runs = play(size, agents(ladder, m), problem, episodes, 10, label=name)
        rows.append([name, m, f"{problem.mdp.optimal_value:,.1f}", *line(runs, m)])
        lines = curves(runs, size.episodes(episodes))
        panels.append(
            Panel(name, lines, ylabel=f"{problem.unit_name} lost", beyond="smallest class")
        )
    picture(size, drawn, panels)
    head = [
        f"truth; {problem.unit_name} lost in {episodes:,} episodes, 10 seeds",
        "class needed",
        "optimal value of one",
    ]
    return table([*head, *header(runs)], rows)


def lost_sales(size: Size) -> str:
    """Measure an inventory with lost sales, whose orders cost something."""
    return study(named(LostSales), 2**12 - 2, size, "practical-lost-sales.png")


def weekday_inventory(size: Size) -> str:
    """Measure an inventory through the week."""
    return study(named(WeekdayInventory), 2**10 - 2, size, "practical-weekday-inventory.png")


def queue_admission(size: Size) -> str:
    """Measure admission to a queue."""
    return study(named(QueueAdmission), 2**11 - 2, size, "practical-queue-admission.png")


def machine_replacement(size: Size) -> str:
    """Measure replacing a machine; slow wear is a second truth in the largest class."""
    slow = MachineReplacement(hazard=(0.05,) * 4 + (0.1,) * 2 + (0.2,) * 9)
    truths = {**named(MachineReplacement), "slow wear": slow}
    return study(truths, 2**10 - 2, size, "practical-machine-replacement.png")
