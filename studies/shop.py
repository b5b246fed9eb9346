"""The shop of the README: what can happen on a day, and the log of a shop whose truth is drawn at random.

python -m studies.shop        writes docs/data/shop.csv and docs/figures/readme.png
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import occamrl as orl
from occamrl.running.flow import simulate

DOCS = Path(__file__).parent.parent / "docs"
SHELF, MONTHS = 12, 60


def demand_law(mean: float, empty: float) -> list[float]:
    """Return the probabilities of a demand of 0, 1, ..., 12 or more: Poisson, and nobody comes on empty days."""
    law = [(1 - empty) * math.exp(-mean) * mean**n / math.factorial(n) for n in range(SHELF)]
    law[0] += empty
    return [*law, 1 - sum(law)]


def shop(
    stock: int, order: int, *, mean: float, empty: float = 0.0
) -> Iterator[tuple[float, int, float, bool]]:
    """Yield what can happen on a day: probability, stock in the evening, profit, whether the month is over."""
    full = min(stock + order, SHELF)
    for demand, chance in enumerate(demand_law(mean, empty)):
        sold = min(full, demand)
        yield chance, full - sold, 4.0 * sold - 0.5 * (full - sold) - 6.0 * (order > 0), False


def write_log() -> None:
    """Write 60 months of a shop that orders by habit; the truth and the chances come from one seed."""
    draw = np.random.default_rng(2026)
    bounds = {"mean": (0.5, 8.0), "empty": (0.0, 0.6)}
    model = orl.Model(
        shop, start=4, actions=[0, 2, 4, 6], horizon=28, parameters=bounds, unit="EUR"
    )
    truth = {"mean": float(draw.uniform(1.5, 4.0)), "empty": float(draw.uniform(0.1, 0.4))}
    mdp = model.mdp(**truth)
    habit = np.zeros((28, mdp.states, 4))
    for s, stock in enumerate(mdp.known.names.states if mdp.known.names else ()):
        habit[:, s] = (
            [0.1, 0.1, 0.6, 0.2] if isinstance(stock, int) and stock <= 5 else [0.9, 0.1, 0.0, 0.0]
        )
    with (DOCS / "data" / "shop.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["month", "day", "stock", "ordered", "profit", "stock_after"])
        for month in range(MONTHS):
            flow, known = simulate(mdp, habit, 1, draw), mdp.known
            for step, s, a, after, reward, _ in zip(*flow.columns, strict=True):
                profit = f"{known.unit.low + known.unit.scale * reward:.2f}"
                rows.writerow(
                    [
                        month + 1,
                        step + 1,
                        known.state_name(s),
                        known.action_name(a),
                        profit,
                        known.state_name(after),
                    ]
                )
    print(
        f"truth: {truth}; best policy {mdp.optimal_value:.2f} EUR a month, habit {mdp.value(habit):.2f}"
    )


if __name__ == "__main__":
    write_log()
