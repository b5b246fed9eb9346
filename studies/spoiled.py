"""Logs that are spoiled in different ways: what is said of each.

``python -m studies.spoiled`` prints a table; some seconds. A log is refused with a row and a
remedy, or answered; an answer whose class or ranges miss the truth has to say under which
condition it holds, or that nothing is guaranteed. The last line counts those that do not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import occamrl as orl
from occamrl.answers.assumed import data_sentences
from occamrl.errors import OccamRLError

Row = dict[str, Any]
Rows = list[Row]
TRUTH = {"rate": 0.23, "rush": 0.31}
MONTHS = 200
DAYS = 10
ROLES = {"episode": "month", "state": "stock", "action": "order", "reward": "euro"}
TOLD = {**ROLES, "next_state": "after"}


def shop(
    stock: int, order: int, *, rate: float, rush: float = 0.0
) -> Iterator[tuple[float, int, float, bool]]:
    """Yield what may happen on a day."""
    filled = min(stock + order, 4)
    chance = rate + rush * (filled == 4)
    cost = 2.0 * (filled - stock) + 0.1 * filled
    yield 1 - chance, filled, -cost, False
    yield chance, max(filled - 1, 0), 5.0 * (filled > 0) - cost, False


def model_of(horizon: int) -> orl.Model:
    """Return the models, with so many days in an episode."""
    bounds = {"rate": (0.1, 0.6), "rush": (0.0, 0.4)}
    return orl.Model(shop, start=2, actions=[0, 1, 2], horizon=horizon, parameters=bounds)


def clean_rows(months: int = MONTHS, days: int = DAYS) -> Rows:
    """Return a log to which nothing has happened."""
    draw = np.random.default_rng(1)
    rows: Rows = []
    for month in range(months):
        stock = 2
        for day in range(days):
            order = int(draw.choice([0, 0, 1, 2]))
            outcomes = list(shop(stock, order, **TRUTH))
            _, after, euro, _ = outcomes[int(draw.random() >= outcomes[0][0])]
            date = f"{2000 + month // 12}-{1 + month % 12:02d}-{1 + day % 28:02d}"
            row = {"month": month, "day": day, "date": date, "stock": stock, "order": order}
            rows.append({**row, "euro": euro, "after": after})
            stock = after
    return rows


def lose(rows: Rows, share: float = 0.1) -> Rows:
    """Lose rows at random, but for first days."""
    draw = np.random.default_rng(2)
    return [row for row in rows if row["day"] == 0 or draw.random() > share]


def lose_sales(rows: Rows) -> Rows:
    """Lose two of three days on which something was sold: the clerk was busy."""
    draw = np.random.default_rng(2)
    return [row for row in rows if row["euro"] < 0 or draw.random() > 2 / 3]


def twice(rows: Rows) -> Rows:
    """Enter some rows twice."""
    copied: Rows = []
    for i, row in enumerate(rows):
        copied += [row, row] if i % 40 == 17 else [row]
    return copied


def shuffled(rows: Rows) -> Rows:
    """Put rows in any order."""
    order = np.random.default_rng(3).permutation(len(rows))
    return [rows[i] for i in order.tolist()]


def changed(column: str, change: Callable[[Any], Any], every: int = 1) -> Callable[[Rows], Rows]:
    """Return what changes some cells of a column."""

    def spoil(rows: Rows) -> Rows:
        spoiled = []
        for i, row in enumerate(rows):
            cell = change(row[column]) if i % every == every // 2 else row[column]
            spoiled.append({**row, column: cell})
        return spoiled

    return spoil


def late(column: str) -> Callable[[Rows], Rows]:
    """Return what moves a column down by one row."""

    def spoil(rows: Rows) -> Rows:
        cells = [row[column] for row in rows]
        return [{**row, column: cell} for row, cell in zip(rows, [cells[0], *cells], strict=False)]

    return spoil


def impossible(rows: Rows) -> Rows:
    """Mistype one next state as another that is listed, but cannot follow."""
    spoiled = [dict(row) for row in rows]
    last = next(row for row in reversed(spoiled) if row["day"] == DAYS - 1 and row["stock"] == 4)
    last["after"] = 0
    return spoiled


def one_unit(rows: Rows) -> Rows:
    """Forget which of two shops a row is of: two months at the same dates in one."""
    return [
        {**row, "month": row["month"] // 2, "date": f"2026-01-{1 + row['day']:02d}"} for row in rows
    ]


def long(rows: Rows) -> Rows:
    """Take a system that never stopped for one month."""
    return clean_rows(1, len(rows))


class Case(NamedTuple):
    """A way to spoil a log, and how it is read."""

    name: str
    spoil: Callable[[Rows], Rows]
    columns: dict[str, Any]
    options: dict[str, Any] = {}  # noqa: RUF012  # which nobody writes to
    horizon: int = DAYS


def same(rows: Rows) -> Rows:
    """Spoil nothing."""
    return rows


STEP = {**ROLES, "step": "day"}
CASES = (
    Case("nothing", same, {**TOLD, "step": "day"}),
    Case("10 % of the rows lost; a step column", lose, STEP),
    Case("the same; dates in order_by", lose, ROLES, {"order_by": "date"}),
    Case("the same; joined as asked", lose, STEP, {"gaps": "join", "rewards": "model"}),
    Case("the same; no clock, rewards in the log", lose, ROLES),
    Case("the same; no clock, no rewards", lose, {**ROLES, "reward": None}),
    Case("the same; next states, no clock", lose, TOLD),
    Case("days with a sale lost more often", lose_sales, STEP),
    Case("rows entered twice; ordered by day", twice, TOLD, {"order_by": "day"}),
    Case("rows entered twice; no clock", twice, TOLD),
    Case("rewards with flipped signs", changed("euro", lambda euro: -euro), TOLD),
    Case(
        "the same, taken from the models",
        changed("euro", lambda euro: -euro),
        TOLD,
        {"rewards": "model"},
    ),
    Case("rewards in cents", changed("euro", lambda euro: 100.0 * euro), TOLD),
    Case("rewards less a fixed cost", changed("euro", lambda euro: euro - 0.7), TOLD),
    Case("rewards one row late", late("euro"), TOLD),
    Case("3 rewards mistyped", changed("euro", lambda euro: euro + 9.0, 667), TOLD),
    Case("rewards missing", changed("euro", lambda _: None, 3), TOLD),
    Case("a stock mistyped as 11", changed("stock", lambda _: 11, 1500), ROLES),
    Case("the same, left out", changed("stock", lambda _: 11, 1500), ROLES, {"unlisted": "drop"}),
    Case("a next stock that cannot follow", impossible, TOLD),
    Case("the same, left out", impossible, TOLD, {"unlisted": "drop"}),
    Case("empty cells of the stock", changed("stock", lambda _: None, 50), TOLD),
    Case("empty cells of the next stock", changed("after", lambda _: None, 20), TOLD),
    Case('orders as "2 pcs"', changed("order", lambda order: f"{order} pcs"), TOLD),
    Case("orders one row late", late("order"), {**TOLD, "reward": None}),
    Case("rows shuffled; no order", shuffled, TOLD),
    Case("rows shuffled; ordered by day", shuffled, TOLD, {"order_by": "day"}),
    Case("two shops in one episode", one_unit, TOLD, {"order_by": "date"}),
    Case("a system that never stopped in one episode", long, TOLD),
    Case("the same, split", long, TOLD, {"split": True}),
    Case("a horizon of 30 days", same, TOLD, {}, 30),
)


def said_of(case: Case, rows: Rows) -> tuple[str, str, bool]:
    """Return what comes of a log, what is said of it, and whether that is false without a word."""
    model = model_of(case.horizon)
    ladder = model.ladder({"steady": ["rate"], "rushes": ["rate", "rush"]})
    try:
        log = orl.read_log(case.spoil(rows), case.columns, **case.options)
        answer = orl.select(log, ladder, progress=False)
    except OccamRLError as error:
        return "refused", str(error), False
    said = " ".join(str(sentence) for sentence in data_sentences(answer))
    if answer.misspecified:
        return "no class fits", said or "nothing was done", False
    ranges = answer.parameters
    right = True
    for name, value in TRUTH.items():
        if answer.model == "rushes":  # of a smaller class they hold if that is right
            right = right and ranges[name].low <= value <= ranges[name].high
    limited = any(note.guarantee != "kept" for note in answer.notes)
    outcome = "the truth" if right else "not the truth"
    return outcome, said or "nothing was done", not right and not limited


def table() -> Iterator[str]:
    """Yield the lines of the table."""
    rows = clean_rows()
    yield "| what happened to the log | what comes out | what is said |"
    yield "| --- | --- | --- |"
    silent = 0
    for case in CASES:
        outcome, said, false = said_of(case, rows)
        silent += false
        yield f"| {case.name} | {outcome} | {said.replace('|', '/')} |"
    yield ""
    yield f"Answers that miss the truth without a word, of {len(CASES)} logs: {silent}."


def main() -> int:
    """Print the table."""
    for line in table():
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
