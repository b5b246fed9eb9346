"""The shop of the README: what can happen on a day, and the log of one with a random truth.

python -m studies.shop        writes docs/data/shop.csv
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import occamrl as orl
from occamrl.protocols import Floats
from occamrl.running.flow import simulate

DOCS = Path(__file__).parent.parent / "docs"
SHELF = 12
MONTHS = 60
DAYS = 28


def demand_law(mean: float, empty: float) -> list[float]:
    """Return the probabilities of a demand of 0, 1, ..., 12 or more: Poisson, with empty days."""
    law = [(1 - empty) * math.exp(-mean) * mean**n / math.factorial(n) for n in range(SHELF)]
    law[0] += empty
    # The last stands for a demand of the whole shelf or more.
    return [*law, 1 - sum(law)]


def shop(
    stock: int, order: int, *, mean: float, empty: float = 0.0
) -> Iterator[tuple[float, int, float, bool]]:
    """Yield what can happen on a day: probability, stock in the evening, profit, month over."""
    full = min(stock + order, SHELF)
    for demand, chance in enumerate(demand_law(mean, empty)):
        sold = min(full, demand)
        profit = 4.0 * sold - 0.5 * (full - sold) - 6.0 * (order > 0)
        yield chance, full - sold, profit, False


def habit_of(mdp: orl.FiniteMDP) -> Floats:
    """Return what the shop does by habit [day, stock, order]: it orders when stock is low."""
    habit = np.zeros((DAYS, mdp.states, mdp.actions))
    for s in range(mdp.states):
        stock = mdp.known.state_name(s)
        habit[:, s] = [0.9, 0.1, 0.0, 0.0]
        # states of a model have names of their own, such as "(not listed)"
        if isinstance(stock, int) and stock <= 5:
            habit[:, s] = [0.1, 0.1, 0.6, 0.2]
    return habit


def write_log() -> None:
    """Write 60 months of a shop that orders by habit; truth and chances come from one seed."""
    draw = np.random.default_rng(2026)
    bounds = {"mean": (0.5, 8.0), "empty": (0.0, 0.6)}
    model = orl.Model(
        shop, start=4, actions=[0, 2, 4, 6], horizon=DAYS, parameters=bounds, unit="EUR"
    )
    truth = {"mean": float(draw.uniform(1.5, 4.0)), "empty": float(draw.uniform(0.1, 0.4))}
    mdp = model.mdp(**truth)
    known = mdp.known
    habit = habit_of(mdp)
    with (DOCS / "data" / "shop.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["month", "day", "stock", "ordered", "profit", "stock_after"])
        for month in range(MONTHS):
            flow = simulate(mdp, habit, 1, draw)
            for step, s, a, s2, reward, _ in zip(*flow.columns, strict=True):
                profit = f"{known.unit.low + known.unit.scale * reward:.2f}"
                names = [known.state_name(s), known.action_name(a), profit, known.state_name(s2)]
                rows.writerow([month + 1, step + 1, *names])
    earned = f"best policy {mdp.optimal_value:.2f} EUR a month, habit {mdp.value(habit):.2f}"
    print(f"truth: {truth}; {earned}")


if __name__ == "__main__":
    write_log()
