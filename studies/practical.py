"""The practical problems: which class is found, after how long, and what that is worth.

For docs/problems (:mod:`studies.figures`): a truth for each class, means over 10 seeds, in the
field's own unit; every seed is met by all agents alike.
"""

from __future__ import annotations

import numpy as np

import occamrl as orl
from occamrl.problems.operations import (
    LostSales,
    MachineReplacement,
    PracticalProblem,
    QueueAdmission,
    WeekdayInventory,
)
from studies.figures import Panel, Size, curves, picture, play, table
from studies.ladders import header, line

EPISODES = 2**10 - 2
SEEDS = 10
VALUES = 12  # of each parameter of the smallest class, where that is played as a list


def smallest_class(problem: PracticalProblem) -> orl.UCRLVTR:
    """Return the learner that never leaves the smallest class: a list of it, without selection."""
    # Occam on the smallest class alone would notice that it is wrong, and play something else.
    model = problem.ladder.model
    values = {}
    for name in problem.ladder.free[0]:
        low, high = model.box[name]
        values[name] = np.linspace(low, high, VALUES).tolist()
    return orl.UCRLVTR(family=model.family(values))


def cast(problem: PracticalProblem) -> dict[str, orl.Learner]:
    """Return Occam and its reference points."""
    selector = orl.Occam(ladder=problem.ladder)
    return {
        "Occam": selector,
        'scope="smallest"': orl.Occam(ladder=problem.ladder, scope="smallest"),
        'acting="fit"': orl.Occam(ladder=problem.ladder, acting="fit"),
        "oracle": orl.oracle(selector, problem),
        "largest class": orl.largest(selector),
        "smallest class": smallest_class(problem),
    }


def study(kind: type[PracticalProblem], size: Size, drawn: str) -> str:
    """Return what was lost in all episodes together, for a truth in each class."""
    rows = []
    panels = []
    # The truth of each class needs it and none below.
    truths = list(enumerate(kind.truths(), start=1))
    for m, problem in size.some(truths):
        name = problem.ladder.names[m - 1]
        runs = play(size, cast(problem), problem, EPISODES, SEEDS, label=name)
        rows.append([name, f"{problem.mdp.optimal_value:,.1f}", *line(runs, m)])
        lines = curves(runs, size.episodes(EPISODES))
        panel = Panel(name, lines, ylabel=f"{kind.unit_name} lost", beyond="smallest class")
        panels.append(panel)
    picture(size, drawn, panels)
    lost = f"class needed; {kind.unit_name} lost in {EPISODES:,} episodes, {SEEDS} seeds"
    return table([lost, "optimal value of one", *header(runs)], rows)


def lost_sales(size: Size) -> str:
    """Measure an inventory with lost sales, whose orders cost something."""
    return study(LostSales, size, "practical-lost-sales.png")


def weekday_inventory(size: Size) -> str:
    """Measure an inventory through the week."""
    return study(WeekdayInventory, size, "practical-weekday-inventory.png")


def queue_admission(size: Size) -> str:
    """Measure admission to a queue."""
    return study(QueueAdmission, size, "practical-queue-admission.png")


def machine_replacement(size: Size) -> str:
    """Measure replacing a machine."""
    return study(MachineReplacement, size, "practical-machine-replacement.png")
