"""What a test of a ladder's classes found, as facts of a phase."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from occamrl._core.rows import RowTable
from occamrl.learners.finite_report import losses_of, unexplained
from occamrl.learners.finite_rows import FiniteModel
from occamrl.models.finite import level, off_grid
from occamrl.protocols import Floats


@dataclass(frozen=True)
class Test:
    """Losses are less the sum of y^2 over all rows, which ``squares`` is."""

    losses: Floats  # [M] smallest loss of each class
    threshold: float
    chosen: int  # from 1
    best: int  # the kernel with the smallest loss of all
    squares: float
    steps: int  # tau * H, what the paper's averages divide by; 0: no data yet
    impossible: bool = False  # a target was seen that no kernel of the ladder can produce


def facts(test: Test, model: FiniteModel, table: RowTable, sizes: list[int], delta: float) -> dict[str, object]:
    """Return every T_m (M13), the threshold and what follows from them.

    ``margin`` is by how much the loss of the class chosen is below the threshold. ``separation`` is the mean squared
    distance, over all rows and steps, between the best kernel and the nearest one of the largest class rejected.
    ``outside`` says that no kernel of F_M explains the data, with confidence 1 - delta (``misfit`` > 0), or that
    something happened that none of them allows.
    """
    if not test.steps:
        return {
            "chosen": test.chosen,
            "statistics": [0.0] * len(sizes),
            "threshold": None,
            "margin": None,
            "separation": None,
            "misfit": None,
            "outside": False,
        }
    scale = 1.0 / test.steps
    separation = None
    if test.chosen > 1:
        separation = float(scale * losses_of(model, table, sizes[test.chosen - 2], test.best)[1].min())
    unit = model.unit**2 if model.unit > 0.0 else 1.0  # without any range there are no rows
    scaled = table._replace(target_sum=table.target_sum / model.unit) if model.unit > 0.0 else table
    rows = float(table.visits.sum())
    misfit = unexplained(scaled, float(test.losses[-1]) / unit, level(model.reach, delta))
    misfit -= off_grid(model.reach, rows, delta)
    return {
        "chosen": test.chosen,
        "statistics": [float(scale * (loss + test.squares)) for loss in test.losses],
        "threshold": plain(scale * (test.threshold + test.squares)),
        "margin": plain(test.threshold - test.losses[test.chosen - 1]),
        "separation": separation,
        "misfit": misfit,
        "outside": bool(misfit > 0.0) or test.impossible,
    }


def plain(value: float) -> float | None:
    """Return a number as it is written down; None for what is not finite."""
    return float(value) if np.isfinite(value) else None
