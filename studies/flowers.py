"""The flower shop of the README: its logs and its picture.

python -m studies.flowers     writes docs/data/flowers.csv, docs/data/flowers-odd.csv
                              and docs/figures/flowers.png
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import minimize_scalar

import occamrl as orl
from occamrl.answers.figures import COLOURS, Style, draw_worth, dress
from occamrl.demo import DAYS, ODD, SHELF, answer_of_the_shop, shop, shop_log
from occamrl.protocols import Floats, Interval

DOCS = Path(__file__).parent.parent / "docs"


def write_logs() -> None:
    """Write the log of the README, and one in which a day in a hundred is odd."""
    data = DOCS / "data"
    (data / "flowers.csv").write_text(shop_log(), "utf-8")
    (data / "flowers-odd.csv").write_text(shop_log(ODD), "utf-8")


def sold_by_shelf(path: Path) -> dict[int, list[int]]:
    """Return what was sold on each day of a log, by what was on the shelf in the morning."""
    sold: dict[int, list[int]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            full = min(int(row["stock"]) + int(row["ordered"]), SHELF)
            sold.setdefault(full, []).append(full - int(row["stock_after"]))
    return sold


def expected_sales(**parameters: float) -> Floats:
    """Return what a model expects to be sold on a day, by what is on the shelf, from 1."""
    expected = []
    for full in range(1, SHELF + 1):
        outcomes = shop(full, 0, **parameters)
        expected.append(sum(chance * (full - after) for chance, after, _, _ in outcomes))
    return np.array(expected)


def steady_fit(sold: dict[int, list[int]]) -> float:
    """Return the mean demand that explains the log best if nothing changes it."""

    def against(mean: float) -> float:
        nats = 0.0
        for full, days in sold.items():
            chances = np.zeros(SHELF + 1)
            for chance, after, _, _ in shop(full, 0, mean=mean):
                chances[full - after] += chance
            nats -= float(np.log(chances[days]).sum())
        return nats

    return float(minimize_scalar(against, bounds=(0.1, 6.0), method="bounded").x)


def draw_sales(answer: orl.Answer, axes: Axes) -> None:
    """Draw what was sold on a day against what was on the shelf, and what two classes say."""
    sold = sold_by_shelf(DOCS / "data" / "flowers.csv")
    shelves = np.arange(1, SHELF + 1)
    fits = {
        "steady": {"mean": steady_fit(sold)},
        "full shelves sell": {name: found.value for name, found in answer.parameters.items()},
    }
    for m, (name, fit) in enumerate(fits.items()):
        style: Style = {"color": COLOURS[1 - m], "linestyle": ("--", "-")[m], "linewidth": 2.0}
        axes.plot(shelves, expected_sales(**fit), label=f"'{name}', best fit", **style)
    days = [full for full in sorted(sold) if full and len(sold[full]) >= DAYS]
    means = [float(np.mean(sold[full])) for full in days]
    errors = [2.0 * float(np.std(sold[full])) / len(sold[full]) ** 0.5 for full in days]
    axes.errorbar(days, means, errors, fmt="o", color="black", label="the log, ± 2 standard errors")
    dress(axes, "sold on a day", "bunches on the shelf in the morning")
    axes.set(xlim=(0, SHELF + 0.5), ylim=(0, None), xticks=range(0, SHELF + 1, 3))
    axes.legend(frameon=False, fontsize="small", loc="upper left")
    axes.set_title("Full shelves sell more", loc="left", fontsize="medium")


def draw() -> None:
    """Draw what the log shows, and what each policy earns."""
    answer = answer_of_the_shop(DOCS / "data" / "flowers.csv")
    worth: dict[str, Interval] = {"recommended": answer.worth}
    for name, policy in answer.simple_policies.items():
        worth[f"best of '{name}'"] = answer.worth_of(policy)
    if answer.today_worth is not None:
        worth["today's"] = answer.today_worth
    figure = Figure(figsize=(9.0, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.0))
    draw_sales(answer, left)
    draw_worth(worth, "EUR", right, "month")
    right.set_xlabel("EUR per month (bars: in every model that is left)")
    right.set_xlim(left=0.0)
    right.set_title("What each policy earns", loc="left", fontsize="medium")
    figure.savefig(DOCS / "figures" / "flowers.png", dpi=150)


if __name__ == "__main__":
    write_logs()
    draw()
