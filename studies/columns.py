"""Which columns matter, on logs whose truth is known: ``python -m studies.columns --part PART``.

``shop`` writes the log of the page. ``validity`` counts how often a true set is excluded, ``false``
what is called needed on logs without a need, ``rows`` after how many rows the right set is said,
beside AIC, BIC and chi-square tests with Bonferroni's correction, ``gymnasium`` reads logs of Taxi
and Blackjack, ``policies`` plans from logs and compares with the truth, ``size`` prints seconds and
memory of a million rows.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parents[1] / "docs" / "data"
DAYS = 30
MONTHS = 70
MOST = 8  # pieces on the shelf
ORDERS = (0, 2, 4)
ROLES: dict[str, str | Sequence[str] | None] = {
    "episode": "month",
    "state": ["stock", "weekday", "weather", "promotion"],
    "action": "ordered",
    "reward": "profit",
}

# The shop of the page -----------------------------------------------------------------------------


def shop_rows(months: int, seed: int) -> dict[str, list[Any]]:
    """Return the days of a shop: more customers at weekends; promotions and weather do nothing."""
    draw = np.random.default_rng([2026, seed])
    names = ("month", "day", "stock", "weekday", "weather", "promotion", "ordered", "profit")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    weekday = 0
    weather = "sun"
    for month in range(months):
        stock = 4
        for day in range(DAYS):
            promotion = int(draw.random() < 0.3)
            chances = [0.2, 0.5, 0.3] if stock <= 3 else [0.7, 0.2, 0.1]
            ordered = int(draw.choice(ORDERS, p=chances))
            full = min(stock + ordered, MOST)
            demand = int(draw.poisson(4.0 if weekday >= 5 else 1.2))
            sold = min(full, demand)
            profit = 4.0 * sold - 0.3 * (full - sold) - 2.0 * (full - stock) - 2.0 * (ordered > 0)
            row = (month, day, stock, weekday, weather, promotion, ordered, round(profit, 2))
            for name, value in zip(names, row, strict=True):
                columns[name].append(value)
            stock = full - sold
            weekday = (weekday + 1) % 7
            if draw.random() < 0.3:
                weather = "rain" if weather == "sun" else "sun"
    return columns


def write_shop() -> None:
    """Write the log of the page."""
    columns = shop_rows(MONTHS, 0)
    with (DATA / "shop_columns.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))


PARTS: dict[str, Callable[[], None]] = {"shop": write_shop}


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, required=True)
    PARTS[parser.parse_args().part]()


if __name__ == "__main__":
    main()
