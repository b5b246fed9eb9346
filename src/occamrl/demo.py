"""The demonstration: a shop whose full shelves sell more, then what selection costs.

First an answer from a log: the shop orders little because little sells, and little sells because
it orders little. The simple model cannot see that, and its best policy leaves half of the profit.
Then regret while learning, like for like: the class told, selected, and the largest, each with the
evidence of likelihood and with that of the paper.
"""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from occamrl.answers.answer import Answer
from occamrl.experiments.comparison import Comparison, compare
from occamrl.files import make_folder, write_whole
from occamrl.learners.occam import Occam
from occamrl.logs.log import read_log
from occamrl.logs.select import select
from occamrl.models.ladder import Ladder
from occamrl.models.model import Model, ParametricLadder
from occamrl.problems.lakes import FrozenLake
from occamrl.protocols import Learner
from occamrl.selectors.arl_gen import ARLGen
from occamrl.selectors.references import largest, oracle

SHELF = 12
DAYS = 28
MONTHS = 60
BEGIN = 4  # bunches on the shelf when a month begins
ORDERS = (0, 3, 6)
HABIT = (0.85, 0.08, 0.07)  # how often each is ordered
HABIT_LOW = (0.1, 0.65, 0.25)  # when three bunches or fewer are left
ODD = 0.01  # the share of days on which a delivery goes wrong, in another log
TOLERANCE = 0.02
EPISODES = 300
SEEDS = 3
COLUMNS = {
    "episode": "month",
    "state": "stock",
    "action": "ordered",
    "reward": "profit",
    "next_state": "stock_after",
}


# The shop -----------------------------------------------------------------------------------------


def shop(
    stock: int, order: int, *, mean: float, display: float = 0.0, empty: float = 0.0
) -> Iterator[tuple[float, int, float, bool]]:
    """Yield what can happen on a day: probability, stock in the evening, profit, month over."""
    full = min(stock + order, SHELF)
    rate = mean + display * full / SHELF
    law = [(1 - empty) * math.exp(-rate) * rate**n / math.factorial(n) for n in range(SHELF)]
    law[0] += empty
    # the last stands for a demand of the whole shelf or more
    for demand, chance in enumerate([*law, 1 - sum(law)]):
        after = max(full - demand, 0)
        profit = 4.0 * (full - after) - 0.5 * after - 6.0 * (order > 0)
        yield chance, after, profit, False


def shop_model() -> Model:
    """Return the model of the shop: a month of 28 days, orders of nothing, 3 or 6 bunches."""
    bounds = {"mean": (0.1, 6.0), "display": (0.0, 6.0), "empty": (0.0, 0.5)}
    return Model(shop, start=BEGIN, actions=ORDERS, horizon=DAYS, parameters=bounds, unit="EUR")


def shop_ladder() -> ParametricLadder:
    """Return the classes: a demand that nothing changes, full shelves sell more, empty days."""
    classes = {
        "steady": ["mean"],
        "full shelves sell": ["mean", "display"],
        "and empty days": ["mean", "display", "empty"],
    }
    return shop_model().ladder(classes)


def shop_log(odd: float = 0.0) -> str:
    """Return 60 months of the shop as CSV; truth and chances come from one seed.

    On odd days, this share of all, six bunches come though none were ordered, or none that were.
    """
    draw = np.random.default_rng(2026)
    mistakes = np.random.default_rng(2027)
    mean = float(draw.uniform(0.3, 1.0))
    display = float(draw.uniform(3.0, 5.0))
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["month", "day", "stock", "ordered", "profit", "stock_after"])
    for month in range(1, MONTHS + 1):
        stock = BEGIN
        for day in range(1, DAYS + 1):
            order = int(draw.choice(ORDERS, p=HABIT_LOW if stock <= 3 else HABIT))
            delivered = order
            if mistakes.random() < odd:
                delivered = 0 if order else 6
            outcomes = list(shop(stock, delivered, mean=mean, display=display))
            chances = np.array([outcome[0] for outcome in outcomes])
            number = int(draw.choice(len(outcomes), p=chances / chances.sum()))
            _, after, profit, _ = outcomes[number]
            rows.writerow([month, day, stock, order, f"{profit:.2f}", after])
            stock = after
    return text.getvalue()


def answer_of_the_shop(path: Path, tolerance: float = 0.0) -> Answer:
    """Return the answer to a log of the shop."""
    log = read_log(path, COLUMNS, order_by="day")
    answer: Answer = select(log, shop_ladder(), tolerance=tolerance, progress=False)
    return answer


# What selection costs -----------------------------------------------------------------------------


def compare_selection() -> dict[str, Comparison]:
    """Compare regret with the class told, selected and the largest, by each kind of evidence."""
    problem = FrozenLake(slip=(6, 6))
    ladder = Ladder.of_problem(problem)
    # the smallest class left is played, as in the paper
    selectors = {
        "likelihood (Occam)": Occam(ladder=ladder, scope="smallest"),
        "the paper's value rows (ARL-GEN)": ARLGen(ladder=ladder, scope="smallest"),
    }
    comparisons = {}
    for evidence, selector in selectors.items():
        agents: dict[str, Learner] = {
            "class told": oracle(selector, problem),
            "class selected": selector,
            "largest class": largest(selector),
        }
        comparisons[evidence] = compare(
            agents, problem, episodes=EPISODES, seeds=SEEDS, progress=False
        )
    return comparisons


def draw_selection(comparisons: dict[str, Comparison]) -> bytes:
    """Return the figure of regret, as PNG: a panel for each kind of evidence."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    panels = figure.subplots(1, len(comparisons))
    for axes, (evidence, comparison) in zip(panels, comparisons.items(), strict=True):
        comparison.plot(axes, scale="semilogx")
        axes.set_title(f"evidence: {evidence}", loc="left", fontsize="medium")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=150)
    return drawn.getvalue()


def demonstrate(folder: Path, say: Callable[[str], None] = print) -> Path:
    """Print the answers, write the log, the page and the figure; return the path of the figure."""
    began = time.perf_counter()
    make_folder(folder)
    log = folder / "flowers.csv"
    write_whole(log, shop_log().encode())
    say(
        f"A flower shop has kept a log of {MONTHS} months. Little sells, so it orders little. "
        "Or does little sell because it orders little?\n"
    )
    answer = answer_of_the_shop(log)
    say(str(answer))
    page = answer.page(folder / "answer.html")
    say(f"\nThe log: {log}\nThe answer as a page for a colleague: {page}\n")

    odd = folder / "flowers-odd.csv"
    write_whole(odd, shop_log(ODD).encode())
    forgiving = answer_of_the_shop(odd, TOLERANCE)
    say(
        f"If one delivery in a hundred goes wrong, no model is exactly right ({odd}). With "
        f"tolerance={TOLERANCE:g}, two days in a hundred may go as they like:\n\n"
        f"{forgiving.headline}\n"
    )

    say(
        "And while you learn? A frozen lake, three classes of models (1 < 11 < 231); the second is "
        f"needed. What {EPISODES:,} episodes lose with the class told, with the class selected, "
        "and with the largest class, which selects nothing:"
    )
    comparisons = compare_selection()
    for evidence, comparison in comparisons.items():
        say(f"\nBy {evidence}:\n{comparison}")
    picture = folder / "regret.png"
    write_whole(picture, draw_selection(comparisons))
    seconds = time.perf_counter() - began
    say(f"\nThe figure: {picture} (each panel has its own scale)\n{seconds:.1f} s in all.")
    return picture
