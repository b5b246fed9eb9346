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
import itertools
import math
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from scipy.stats import binomtest, chi2

import occamrl as orl
from occamrl.arrays import Floats, Ints
from occamrl.evidence.columns import Coded, ColumnSearch, Weighed, weigh_columns

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


# Laws whose parents are known ---------------------------------------------------------------------


class Case(NamedTuple):
    """Columns, what is drawn next, and the columns that it depends on."""

    target: Coded
    columns: list[Coded]
    truth: tuple[int, ...]


def adaptive_case(law: str, rows: int, seed: int) -> Case:
    """Return rows of a target that is a column of the next row; actions look at what came."""
    draw = np.random.default_rng([7, rows, seed, LAWS.index(law)])
    values = {"even": 4, "sharp": 4, "rare": 3, "wide": 10}[law]
    strength = {"even": 2.0, "sharp": 0.1, "rare": 0.3, "wide": 0.3}[law]
    table = draw.dirichlet(np.full(values, strength), size=(values, 2))
    if law == "rare":
        table = 0.05 * table
        table[..., 0] += 0.95
    state = 0
    now = np.zeros(rows, np.int64)
    action = np.zeros(rows, np.int64)
    after = np.zeros(rows, np.int64)
    other = draw.integers(3, size=rows)
    wins = np.ones((values, 2))
    for t in range(rows):
        now[t] = state
        greedy = int(wins[state].argmax())
        action[t] = greedy if draw.random() < 0.8 else int(draw.integers(2))
        state = int(draw.choice(values, p=table[now[t], action[t]]))
        after[t] = state
        wins[now[t], action[t]] += float(state == 0) - 0.4
    columns = [Coded(now, values), Coded(action, 2), Coded(other, 3)]
    return Case(Coded(after, values), columns, (0, 1))


LAWS = ("even", "sharp", "rare", "wide")


def show_validity() -> None:
    """Count how often a true set is excluded at one of four times, and the control."""
    runs = 100
    print("law    delta  excluded  of  p    control")
    for law in LAWS:
        excluded = {0.05: 0, 0.5: 0}
        control = 0
        for seed in range(runs):
            gone: set[float] = set()
            cheated = False
            for rows in (50, 150, 300, 600):
                case = adaptive_case(law, 600, seed)
                case = Case(*_first(case, rows), case.truth)
                search = ColumnSearch(case.target, case.columns, 2)
                search.run()
                least = search.likelihood(case.truth)
                for delta in excluded:
                    if least < search.mixture() - math.log(1.0 / delta):
                        gone.add(delta)
                # a "mixture" that has seen the data
                cheated |= least < search.likelihood((0, 1, 2)) - math.log(20.0)
            for delta in gone:
                excluded[delta] += 1
            control += cheated
        for delta, count in excluded.items():
            p = binomtest(count, runs, delta, alternative="greater").pvalue
            print(f"{law:6} {delta:4g} {count:5} of {runs}  p = {p:.2g}, control {control}")


def _first(case: Case, rows: int) -> tuple[Coded, list[Coded]]:
    columns = [Coded(column.codes[:rows], column.size) for column in case.columns]
    return Coded(case.target.codes[:rows], case.target.size), columns


def needless_case(seed: int) -> Case:
    """Return rows of a target that nothing explains; columns may be slow or skewed.

    In a third of the cases its law changes at some time, and the last column is the part of the
    log.
    """
    draw = np.random.default_rng([8, 2_000 + seed])
    rows = int(draw.choice([200, 1_000, 5_000, 20_000], p=[0.4, 0.3, 0.2, 0.1]))
    values = int(draw.choice([2, 4, 12, 40]))
    law = draw.dirichlet(np.full(values, float(draw.choice([0.3, 1.0, 10.0]))))
    codes = draw.choice(values, size=rows, p=law)
    drifts = draw.random() < 1.0 / 3.0
    if drifts:
        later = draw.dirichlet(np.full(values, 1.0))
        cut = int(draw.integers(rows))
        codes[cut:] = draw.choice(values, size=rows - cut, p=later)
    target = Coded(codes, values)
    columns: list[Coded] = []
    for _ in range(6):
        size = int(draw.choice([2, 5, 12, 40]))
        kind = draw.choice(["even", "slow", "skewed", "trend"])
        codes = draw.integers(size, size=rows)
        if kind == "slow":
            codes = codes[np.cumsum(draw.random(rows) < 0.02)]
        elif kind == "skewed":
            codes = draw.choice(size, size=rows, p=draw.dirichlet(np.full(size, 0.2)))
        elif kind == "trend":
            codes = np.arange(rows) * size // rows
        columns.append(Coded(codes, size))
    part = np.ceil(np.log2((np.arange(rows) + 1) / 256)).clip(0).astype(np.int64)
    columns.append(Coded(part, int(part.max()) + 1))
    return Case(target, columns, (6,) if drifts else ())


def weigh(case: Case, maximum: int = 3, *, clocked: bool = False) -> Weighed:
    """Weigh a case at level 0.05, as one target; the last column may be the part of the log."""
    return weigh_columns(
        case.target,
        case.columns,
        maximum=maximum,
        delta=0.05,
        targets=1,
        draw=np.random.default_rng(0),
        clocks=(6,) if clocked else (),
    )


def show_false() -> None:
    """Count what is called needed on logs without a need."""
    runs = 300
    logs = [0, 0]  # without and with a change
    counts = {name: [0, 0] for name in ("proved", "likely", *CLASSICAL)}
    for seed in range(runs):
        case = needless_case(seed)
        drifts = bool(case.truth)
        logs[drifts] += 1
        weighed = weigh(case, 2, clocked=True)
        chosen = {"proved": weighed.needed, "likely": weighed.likely}
        for name, select in CLASSICAL.items():
            chosen[name] = select(case)
        for name, named in chosen.items():
            counts[name][drifts] += any(i < 6 for i in named)
    for name, (steady, drifting) in counts.items():
        print(
            f"{name}: false needs in {steady} of {logs[0]} logs without a change, in {drifting} "
            f"of {logs[1]} with one"
        )


# Classical tests ----------------------------------------------------------------------------------


def parameters(case: Case, chosen: Sequence[int]) -> int:
    """Return the free parameters of a table of frequencies."""
    contexts = math.prod(case.columns[i].size for i in chosen)
    return contexts * (case.target.size - 1)


def by_criterion(case: Case, price: float) -> tuple[int, ...]:
    """Return the set with the best likelihood, minus a price for each parameter."""
    search = ColumnSearch(case.target, case.columns, 3)
    scores: dict[tuple[int, ...], float] = {}
    for length in range(4):
        for chosen in itertools.combinations(range(len(case.columns)), length):
            scores[chosen] = search.likelihood(chosen) - price * parameters(case, chosen)
    return max(scores, key=lambda chosen: scores[chosen])


def by_aic(case: Case) -> tuple[int, ...]:
    """Return the choice of AIC."""
    return by_criterion(case, 1.0)


def by_bic(case: Case) -> tuple[int, ...]:
    """Return the choice of BIC."""
    return by_criterion(case, 0.5 * math.log(case.target.codes.size))


def by_chi_square(case: Case) -> tuple[int, ...]:
    """Add columns while a G-test is significant, with Bonferroni's correction."""
    search = ColumnSearch(case.target, case.columns, 3)
    chosen: tuple[int, ...] = ()
    while len(chosen) < 3:
        tests: dict[int, float] = {}
        for i in range(len(case.columns)):
            if i not in chosen:
                longer = (*chosen, i)
                g = 2.0 * (search.likelihood(longer) - search.likelihood(chosen))
                freedom = parameters(case, longer) - parameters(case, chosen)
                tests[i] = float(chi2.sf(g, max(1, freedom)))
        best = min(tests, key=lambda i: tests[i])
        if tests[best] * len(case.columns) > 0.05:
            break
        chosen = tuple(sorted((*chosen, best)))
    return chosen


CLASSICAL: dict[str, Callable[[Case], tuple[int, ...]]] = {
    "AIC": by_aic,
    "BIC": by_bic,
    "G-test": by_chi_square,
}


# Rows until the right set -------------------------------------------------------------------------


def truth_case(truth: str, rows: int, seed: int) -> Case:
    """Return rows of one of six truths, among seven columns."""
    draw = np.random.default_rng([9, rows, seed])
    sizes = (9, 7, 2, 3, 4, 2, 12)
    columns = [Coded(draw.integers(size, size=rows), size) for size in sizes]
    stock, weekday, promotion, order, weather, switch, month = (c.codes for c in columns)
    noise = draw.random(rows)
    demand = draw.poisson(np.where(weekday >= 5, 4.0, 1.2))
    if truth == "shop":
        after = np.maximum(np.minimum(stock + 2 * order, 8) - demand, 0)
        return Case(Coded(after, 9), columns, (0, 1, 3))
    if truth == "queue":
        after = np.clip(stock + (noise < 0.4) - order * (noise > 0.6), 0, 8)
        return Case(Coded(after.astype(np.int64), 9), columns, (0, 3))
    if truth == "xor":
        after = (promotion ^ switch) ^ (noise < 0.1)
        return Case(Coded(after.astype(np.int64), 2), columns, (2, 5))
    if truth == "faint":
        after = (noise < 0.5 + 0.08 * promotion).astype(np.int64)
        return Case(Coded(after, 2), columns, (2,))
    if truth == "season":
        after = draw.poisson(np.where(month < 6, 1.0, 1.6)).clip(max=6)
        return Case(Coded(after, 7), columns, (6,))
    after = np.where(noise < 0.9, weather, draw.integers(4, size=rows))
    return Case(Coded(after, 4), columns, (4,))


TRUTHS = ("shop", "queue", "xor", "faint", "season", "copy")


def show_rows() -> None:
    """Count how often the right set is named, and how many false needs there are."""
    runs = 10
    print("truth  rows   likely  proved  AIC  BIC  G-test: right of", runs, "(false needs)")
    for truth in TRUTHS:
        for rows in (300, 1_000, 3_000, 10_000, 30_000):
            right: dict[str, int] = {}
            false: dict[str, int] = {}
            for seed in range(runs):
                case = truth_case(truth, rows, seed)
                weighed = weigh(case)
                chosen = {"likely": tuple(sorted({*weighed.likely, *weighed.needed}))}
                chosen["proved"] = weighed.needed
                for name, select in CLASSICAL.items():
                    chosen[name] = select(case)
                for name, named in chosen.items():
                    right[name] = right.get(name, 0) + (named == case.truth)
                    false[name] = false.get(name, 0) + len(set(named) - set(case.truth))
            cells = [f"{name} {right[name]} ({false[name]})" for name in right]
            print(f"{truth:7} {rows:6,}  " + "  ".join(cells), flush=True)


# Environments of others ---------------------------------------------------------------------------


def show_gymnasium() -> None:
    """Say what Taxi and Blackjack need, of random play."""
    draw = np.random.default_rng(0)
    taxi = gym.make("Taxi-v4")
    rows: list[dict[str, Any]] = []
    for episode in range(150):
        state, _ = taxi.reset(seed=episode)
        for _ in range(200):
            action = int(draw.integers(6))
            row, column, passenger, goal = taxi.unwrapped.decode(state)  # type: ignore[attr-defined]
            state, reward, ended, _, _ = taxi.step(action)
            cells = {"row": row, "column": column, "passenger": passenger, "goal": goal}
            rest = {"reward": float(reward), "terminated": bool(ended), "action": action}
            rows.append({"episode": episode, **cells, **rest})
            if ended:
                break
    state_columns = ["row", "column", "passenger", "goal"]
    targets = ["reward", "row", "column", "passenger", "goal"]
    log = orl.read_log(rows, {"state": state_columns})
    answer = orl.relevant(log, targets=targets, maximum=4)
    print("Taxi:", log)
    _print_sets(answer)
    game = gym.make("Blackjack-v1")
    rows = []
    for episode in range(10_000):
        seen, _ = game.reset(seed=episode)
        ended = False
        while not ended:
            action = int(draw.integers(2))
            row = dict(zip(("sum", "dealer", "ace"), map(int, seen), strict=True))
            seen, reward, ended, _, _ = game.step(action)
            rest = {"reward": float(reward), "terminated": bool(ended), "action": action}
            rows.append({"episode": episode, **row, **rest})
    log = orl.read_log(rows, {"state": ["sum", "dealer", "ace"]})
    print("Blackjack:", log)
    _print_sets(orl.relevant(log))


def _print_sets(answer: Any) -> None:
    for name in answer.weighed:
        print(f"  {name}: proved {answer.needed[name]}, likely {answer.likely[name]}", end="; ")
        print(f"best {answer.plausible[name]}")


# Policies from logs -------------------------------------------------------------------------------


class Shop(NamedTuple):
    """A shop with its chances; ``habit`` is how careless today's policy is."""

    weekend: float
    week: float
    price: float
    habit: float


SHOPS = (
    Shop(4.0, 1.2, 4.0, 0.5),
    Shop(4.0, 1.2, 4.0, 0.9),
    Shop(2.0, 2.0, 3.0, 0.7),
    Shop(6.0, 0.5, 4.0, 0.7),
    Shop(1.0, 1.0, 2.5, 0.9),
    Shop(3.0, 3.0, 5.0, 0.3),
)


def play_shop(
    shop: Shop, months: int, seed: int, policy: Callable[[Ints, Ints, int], Ints] | None = None
) -> dict[str, Ints | Floats]:
    """Play months side by side; without a policy the habit, which orders at random at times."""
    draw = np.random.default_rng([10, seed])
    stock = np.full(months, 4)
    weekday = draw.integers(7, size=months)
    kept: dict[str, list[Any]] = {}
    for day in range(DAYS):
        ordered = np.where(stock <= 3, 2, 0)
        careless = draw.random(months) < shop.habit
        ordered = np.where(careless, draw.choice(ORDERS, months), ordered)
        if policy is not None:
            ordered = policy(stock, weekday, day)
        full = np.minimum(stock + ordered, MOST)
        demand = draw.poisson(np.where(weekday >= 5, shop.weekend, shop.week))
        sold = np.minimum(full, demand)
        profit = (
            shop.price * sold - 0.3 * (full - sold) - 2.0 * (full - stock) - 2.0 * (ordered > 0)
        )
        row = {"month": np.arange(months), "day": np.full(months, day), "stock": stock}
        row |= {"weekday": weekday, "promotion": draw.integers(2, size=months)}
        row |= {"ordered": ordered, "profit": profit}
        for name, values in row.items():
            kept.setdefault(name, []).append(values)
        stock = full - sold
        weekday = (weekday + 1) % 7
    return {name: np.concatenate(values) for name, values in kept.items()}


def true_worth(shop: Shop, answer: Any) -> float:
    """Return what the policy of an answer earns in the truth, in months of 29 days."""
    actions: dict[tuple[int, int, int], int] = {}

    def act(stock: Ints, weekday: Ints, day: int) -> Ints:
        chosen = np.zeros(stock.size, np.int64)
        for i, (s, w) in enumerate(zip(stock.tolist(), weekday.tolist(), strict=True)):
            if (s, w, day) not in actions:
                parts = {"stock": s, "weekday": w}
                name = tuple(parts.get(column, 0) for column in answer.state)
                known = answer.known.names.states
                label = name[0] if len(name) == 1 else name
                step = min(day, answer.horizon - 1)
                actions[s, w, day] = answer.policy(label, step) if label in known else 0
            chosen[i] = actions[s, w, day]
        return chosen

    return float(play_shop(shop, 2_000, 99, act)["profit"].sum()) / 2_000


def show_policies() -> None:
    """Plan from logs of six shops, and compare with the truth."""
    seeds = 5
    print("shop  rows  recommended  better  worse  mean gain of those  best worth seen, today's")
    for k, shop in enumerate(SHOPS):
        today = float(play_shop(shop, 2_000, 99)["profit"].sum()) / 2_000
        for rows in (300, 1_000, 5_000):
            gains: list[float] = []
            others: list[float] = []
            for seed in range(seeds):
                table = play_shop(shop, rows // DAYS, seed)
                roles = {**ROLES, "state": ["stock", "weekday", "promotion"]}
                answer = orl.relevant(orl.read_log(table, roles, order_by="day"))
                gain = true_worth(shop, answer) - today
                (gains if answer.recommended else others).append(gain)
            better = sum(gain > 0.0 for gain in gains)
            mean = np.mean(gains) if gains else math.nan
            kept = np.mean(others) if others else math.nan
            print(
                f"{k}  {rows:5,}  recommended {len(gains)} of {seeds}: {better} better, "
                f"{len(gains) - better} worse, mean {mean:.1f}; "
                f"not recommended: mean {kept:.1f}; today's earns {today:.1f}",
                flush=True,
            )


def show_size() -> None:
    """Print seconds and memory of a million rows with ten columns."""
    rows = 10**6
    draw = np.random.default_rng(0)
    table: dict[str, Any] = {"episode": np.arange(rows) // 100}
    names: list[str] = []
    for i, size in enumerate((9, 7, 2, 5, 4, 3, 8, 6, 10)):
        names.append(f"c{i}")
        table[names[-1]] = draw.integers(size, size=rows)
    table["action"] = draw.integers(3, size=rows)
    table["reward"] = (table["c0"] > 4) * table["action"] + 1.0 * (draw.random(rows) < 0.1)
    begin = time.perf_counter()
    log = orl.read_log(table, {"state": names})
    read = time.perf_counter() - begin
    answer = orl.relevant(log)
    seconds = time.perf_counter() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{rows:,} rows: read in {read:.0f} s, answered after {seconds:.0f} s, {memory:.1f} GB")
    _print_sets(answer)


PARTS: dict[str, Callable[[], None]] = {
    "shop": write_shop,
    "validity": show_validity,
    "false": show_false,
    "rows": show_rows,
    "gymnasium": show_gymnasium,
    "policies": show_policies,
    "size": show_size,
}


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, required=True)
    PARTS[parser.parse_args().part]()


if __name__ == "__main__":
    main()
