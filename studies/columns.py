"""Which columns matter, on logs whose truth is known: ``python -m studies.figures columns``.

``validity`` counts how often a true set is excluded, ``false`` what is called needed on logs
without a need, ``rows`` after how many rows the right set is said, beside AIC, BIC and G-tests with
Bonferroni's correction, ``policies`` plans from logs and compares with the truth, ``size`` prints
seconds and memory of a million rows. ``python -m studies.columns`` writes the log of the page.
Seeds from 3,900 on and laws of this file: the rules were repaired on others.
"""

from __future__ import annotations

import csv
import itertools
import math
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest, chi2

import occamrl as orl
from occamrl.arrays import Floats, Ints
from occamrl.evidence.columns import Coded, ColumnSearch, Weighed, weigh_columns
from studies.figures import Size, each, table

FIRST_SEED = 3_900
DATA = Path(__file__).parents[1] / "docs" / "data"

# Cases: columns, what comes next, and what it depends on ------------------------------------------


class Case(NamedTuple):
    """Columns, what is drawn next, and the columns that it depends on."""

    target: Coded
    columns: list[Coded]
    truth: tuple[int, ...]

    def first(self, rows: int) -> Case:
        """Return the first rows."""
        some = slice(0, rows)
        columns = [column.take(some) for column in self.columns]
        return Case(self.target.take(some), columns, self.truth)


def coded(values: Ints, size: int = 0) -> Coded:
    """Return values as a column."""
    return Coded(np.asarray(values, np.int64), max(size, int(np.max(values)) + 1))


def part_of_log(rows: int) -> Coded:
    """Return the candidate that answers offer: parts end at rows 256, 512, 1,024, ..."""
    return coded(np.ceil(np.log2((np.arange(rows) + 1) / 256)).clip(0).astype(np.int64))


LAWS = ("mixed", "nearly sure", "rare event", "endless values")


def adaptive_case(law: str, rows: int, seed: int) -> Case:
    """Return rows of a target that is a column of the next row; actions look at what came.

    What the truth is made of is the state and the action; a third column looks back, too. An
    endless target has values without end, most of which come once or never.
    """
    draw = np.random.default_rng([FIRST_SEED, seed, LAWS.index(law)])
    states = {"mixed": 5, "nearly sure": 6, "rare event": 3, "endless values": 3}[law]
    chances = draw.dirichlet(np.full(states, 0.8), size=(states, 2))
    if law == "nearly sure":
        chances = 0.03 / states + 0.97 * np.eye(states)[draw.integers(states, size=(states, 2))]
    elif law == "rare event":
        chances = 0.03 * chances + 0.97 * np.eye(states)[0]
    now = np.zeros(rows, np.int64)
    action = np.zeros(rows, np.int64)
    back = np.zeros(rows, np.int64)
    after = np.zeros(rows, np.int64)
    state = 0
    wins = np.ones((states, 2))
    for t in range(rows):
        now[t] = state
        greedy = int(wins[state].argmax())
        action[t] = greedy if draw.random() < 0.7 else int(draw.integers(2))
        back[t] = after[t - 1] % 4 if draw.random() < 0.9 else int(draw.integers(4))
        state = int(draw.choice(states, p=chances[now[t], action[t]]))
        after[t] = state
        if law == "endless values":
            after[t] += states * (draw.zipf(1.4 + 0.3 * now[t]) % 10**6)
        wins[now[t], action[t]] += float(state == 0) - 0.4
    after = np.unique(after, return_inverse=True)[1]
    return Case(coded(after), [coded(now, states), coded(action, 2), coded(back, 4)], (0, 1))


def needless_case(seed: int) -> Case:
    """Return rows of a target that no column explains; the last one is the part of the log.

    In a third of the cases its law changes, at once or slowly. Columns are even, slow, skewed,
    rising, seasons, or look back at the target where nothing changes in it.
    """
    draw = np.random.default_rng([FIRST_SEED, 1, seed])
    rows = int(draw.choice([200, 1_000, 5_000, 20_000], p=[0.4, 0.35, 0.2, 0.05]))
    values = int(draw.choice([2, 3, 8, 20, 40]))
    law = draw.dirichlet(np.full(values, float(draw.choice([0.3, 1.0, 30.0]))))
    changes = draw.random() < 1.0 / 3.0
    share = np.zeros(rows)  # of the later law
    if changes and draw.random() < 0.5:
        share[int(draw.integers(rows)) :] = 1.0
    elif changes:
        share = np.linspace(0.0, 1.0, rows)
    early = draw.choice(values, size=rows, p=law)
    late = draw.choice(values, size=rows, p=draw.dirichlet(np.full(values, 1.0)))
    target = np.where(draw.random(rows) < share, late, early)
    columns: list[Coded] = []
    for _ in range(6):
        size = int(draw.choice([2, 5, 12, 40]))
        kind = draw.choice(["even", "slow", "skewed", "rising", "season", "back"])
        codes = draw.integers(size, size=rows)
        if kind == "slow":
            codes = codes[np.cumsum(draw.random(rows) < 0.03)]
        elif kind == "skewed":
            codes = draw.choice(size, size=rows, p=draw.dirichlet(np.full(size, 0.2)))
        elif kind == "rising":
            codes = np.arange(rows) * size // rows
        elif kind == "season":
            codes = np.arange(rows) // 7 % size
        elif kind == "back" and not changes:
            codes = np.append(0, target[:-1]) % size
        columns.append(coded(codes, size))
    return Case(coded(target, values), [*columns, part_of_log(rows)], (6,) if changes else ())


TRUTHS = {
    "wear and load break a machine": (0, 1),
    "a heater warms a bath": (2, 3),
    "a gate opens if two keys agree": (4, 5),
    "two of three sensors": (1, 3, 6),
    "milder in half of the months": (7,),
    "weather stays": (5,),
}


def truth_case(truth: str, rows: int, seed: int) -> Case:
    """Return rows of one of six truths, among eight columns and the part of the log."""
    draw = np.random.default_rng([FIRST_SEED, 2, rows, seed])
    sizes = (10, 3, 12, 2, 6, 6, 2, 12)
    columns = [coded(draw.integers(size, size=rows), size) for size in sizes]
    wear, load, bath, heater, key, lock, sensor, month = (column.codes for column in columns)
    chance = draw.random(rows)
    if truth == "wear and load break a machine":
        target = (chance < 0.004 * wear * (1 + load)).astype(np.int64)
    elif truth == "a heater warms a bath":
        target = np.clip(bath + 2 * heater - 1 + draw.integers(-1, 2, size=rows), 0, 11)
    elif truth == "a gate opens if two keys agree":
        target = ((key == lock) ^ (chance < 0.1)).astype(np.int64)
    elif truth == "two of three sensors":
        votes = (load > 0).astype(np.int64) + heater + sensor
        target = ((votes >= 2) ^ (chance < 0.2)).astype(np.int64)
    elif truth == "milder in half of the months":
        target = draw.poisson(np.where(month < 6, 2.0, 2.5)).clip(max=8)
    else:
        target = np.where(chance < 0.85, lock, draw.integers(6, size=rows))
    return Case(coded(target), [*columns, part_of_log(rows)], TRUTHS[truth])


def weigh(case: Case, checked: int = 3, clocks: Sequence[int] = ()) -> Weighed:
    """Weigh a case at level 0.05, as one target; clocks are the parts of the log."""
    draw = np.random.default_rng(0)
    return weigh_columns(
        case.target,
        case.columns,
        checked=checked,
        delta=0.05,
        targets=1,
        draw=draw,
        clocks=clocks,
    )


# The level ----------------------------------------------------------------------------------------


def validity(size: Size) -> str:
    """Count how often a true set is excluded at one of four times, and the control."""
    runs = 200
    rows = []
    for law in LAWS:

        def job(seed: int, law: str = law) -> list[bool]:
            case = adaptive_case(law, size.episodes(600), seed)
            excluded = [False, False, False]
            for rows in (50, 150, 300, 600):
                some = case.first(rows)
                search = ColumnSearch(some.target, some.columns, 3)
                search.run()
                likelihood = search.likelihood(case.truth)
                excluded[0] |= likelihood < search.mixture() - math.log(20.0)
                excluded[1] |= likelihood < search.mixture() - math.log(2.0)
                # a "mixture" that has seen the data
                excluded[2] |= likelihood < search.likelihood((0, 1, 2)) - math.log(20.0)
            return excluded

        counts = np.array(each(size, size.seeds(runs), job, law)).sum(axis=0)
        runs = size.seeds(runs)
        cells = []
        for count, delta in ((counts[0], 0.05), (counts[1], 0.5)):
            p = binomtest(int(count), runs, delta, alternative="greater").pvalue
            cells.append(f"{count} of {runs} (p = {p:.2g})")
        rows.append((law, *cells, f"{counts[2]} of {runs}"))
    return table(("law", "at 0.05", "at 0.5", "control at 0.05"), rows)


# False needs --------------------------------------------------------------------------------------


def false(size: Size) -> str:
    """Count what is called needed on logs without a need."""
    runs = size.seeds(1_000)

    def job(seed: int) -> tuple[bool, dict[str, bool]]:
        case = needless_case(seed)
        weighed = weigh(case, 2, clocks=(6,))
        chosen = {"proved": weighed.needed, "likely": weighed.likely, "helps": weighed.best}
        for name, select in CLASSICAL.items():
            chosen[name] = select(case)
        return bool(case.truth), {name: any(i < 6 for i in named) for name, named in chosen.items()}

    logs = each(size, runs, job, "logs")
    changing = sum(changes for changes, _ in logs)
    rows = []
    for name in logs[0][1]:
        false = [sum(named[name] for changes, named in logs if changes == c) for c in (False, True)]
        rows.append((name, *false))
    head = (f"{runs - changing} logs without a change", f"{changing} logs with one")
    return table(("named", *head), rows)


# Classical tests ----------------------------------------------------------------------------------


def parameters(case: Case, chosen: Sequence[int]) -> int:
    """Return the free parameters of a table of frequencies."""
    contexts = math.prod(case.columns[i].size for i in chosen)
    return contexts * (case.target.size - 1)


def likelihood(case: Case, chosen: Sequence[int]) -> float:
    """Return the likelihood of a table of frequencies."""
    context = np.zeros_like(case.target.codes)
    for i in chosen:
        context = context * case.columns[i].size + case.columns[i].codes
    agreeing = np.unique(context, return_counts=True)[1]
    same = np.unique(context * case.target.size + case.target.codes, return_counts=True)[1]
    return float((same * np.log(same)).sum() - (agreeing * np.log(agreeing)).sum())


def by_criterion(case: Case, price: float) -> tuple[int, ...]:
    """Return the set with the best likelihood, minus a price for each parameter."""
    scores: dict[tuple[int, ...], float] = {}
    for length in range(4):
        for chosen in itertools.combinations(range(len(case.columns)), length):
            scores[chosen] = likelihood(case, chosen) - price * parameters(case, chosen)
    return max(scores, key=lambda chosen: scores[chosen])


def by_aic(case: Case) -> tuple[int, ...]:
    """Return the choice of AIC."""
    return by_criterion(case, 1.0)


def by_bic(case: Case) -> tuple[int, ...]:
    """Return the choice of BIC."""
    return by_criterion(case, 0.5 * math.log(case.target.codes.size))


def by_tests(case: Case) -> tuple[int, ...]:
    """Add columns while a G-test is significant, with Bonferroni's correction."""
    chosen: tuple[int, ...] = ()
    while len(chosen) < 3:
        tests: dict[int, float] = {}
        for i in range(len(case.columns)):
            if i not in chosen:
                longer = (*chosen, i)
                g = 2.0 * (likelihood(case, longer) - likelihood(case, chosen))
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
    "G-tests": by_tests,
}


# Rows until the right set -------------------------------------------------------------------------


def named_sets(case: Case) -> dict[str, tuple[int, ...]]:
    """Return which columns are named, by whom."""
    weighed = weigh(case, clocks=(len(case.columns) - 1,))
    chosen = {"likely": tuple(sorted(weighed.likely)), "proved": weighed.needed}
    for name, select in CLASSICAL.items():
        chosen[name] = select(case)
    return chosen


def rows(size: Size) -> str:
    """Count how often the right set is named, and how many false needs there are."""
    runs = size.seeds(10)
    lines = []
    for truth in size.some(TRUTHS):
        for length in size.some((300, 1_000, 3_000, 10_000, 30_000)):
            right: dict[str, int] = {}
            false: dict[str, int] = {}

            def job(
                seed: int, truth: str = truth, length: int = length
            ) -> dict[str, tuple[int, ...]]:
                return named_sets(truth_case(truth, length, seed))

            for chosen in each(size, runs, job, f"{truth}, {length:,}"):
                for name, named in chosen.items():
                    right[name] = right.get(name, 0) + (named == TRUTHS[truth])
                    wrong = len(set(named) - set(TRUTHS[truth]))
                    false[name] = false.get(name, 0) + wrong
            cells = [f"{right[name]} ({false[name]})".replace(" (0)", "") for name in right]
            lines.append((truth, f"{length:,}", *cells))
    return table(("truth", "rows", "likely", "proved", *CLASSICAL), lines)


# Policies from logs -------------------------------------------------------------------------------


class Task(NamedTuple):
    """Something to decide daily, many times side by side; one column of its state does nothing."""

    name: str
    columns: tuple[str, ...]  # of the state; the last one does nothing
    sizes: tuple[int, ...]
    actions: tuple[int, ...]
    start: tuple[int, ...]
    # step(state [n, columns], action [n], draw) -> next state, reward
    step: Callable[[Ints, Ints, np.random.Generator], tuple[Ints, Floats]]
    today: Callable[[Ints], Ints]  # what is done, unless somebody is careless
    careless: float  # how often actions are drawn at random


DAYS = 30


def shop_task(name: str, quiet: float, busy: float, price: float, careless: float) -> Task:
    """Return a shop: more customers at weekends; promotions do nothing."""

    def step(state: Ints, action: Ints, draw: np.random.Generator) -> tuple[Ints, Floats]:
        stock, weekday = state[:, 0], state[:, 1]
        full = np.minimum(stock + action, 8)
        sold = np.minimum(full, draw.poisson(np.where(weekday >= 5, busy, quiet)))
        cost = 0.3 * (full - sold) + 2.0 * (full - stock) + 2.0 * (action > 0)
        return np.stack([full - sold, (weekday + 1) % 7], axis=1), price * sold - cost

    def today(state: Ints) -> Ints:
        return np.where(state[:, 0] <= 3, 2, 0)

    columns = ("stock", "weekday", "promotion")
    return Task(name, columns, (9, 7, 2), (0, 2, 4), (4, 0), step, today, careless)


def machine_task() -> Task:
    """Return a machine that breaks with age; service makes it young; the light does nothing."""

    def step(state: Ints, action: Ints, draw: np.random.Generator) -> tuple[Ints, Floats]:
        age = np.where(action == 1, 0, state[:, 0])
        breaks = draw.random(age.size) < 0.02 + 0.05 * age
        after = np.where(breaks, 0, np.minimum(age + 1, 9))
        return after[:, None], 5.0 - 2.0 * (action == 1) - 12.0 * breaks

    def today(state: Ints) -> Ints:
        return (state[:, 0] >= 8).astype(np.int64)

    return Task("machine", ("age", "light"), (10, 4), (0, 1), (0,), step, today, 0.3)


def queue_task() -> Task:
    """Return a queue with a rush in the afternoon and a second till; the colour does nothing."""

    def step(state: Ints, action: Ints, draw: np.random.Generator) -> tuple[Ints, Floats]:
        length, hour = state[:, 0], state[:, 1]
        comes = draw.random(length.size) < np.where(hour >= 2, 0.8, 0.3)
        served = draw.random(length.size) < np.where(action == 1, 0.9, 0.5)
        after = np.clip(length + comes - (served & (length > 0)), 0, 7)
        return np.stack([after, (hour + 1) % 4], axis=1), -1.0 * after - 1.5 * (action == 1)

    def today(state: Ints) -> Ints:
        return (state[:, 0] >= 5).astype(np.int64)

    columns = ("length", "hour", "colour")
    return Task("queue", columns, (8, 4, 3), (0, 1), (0, 0), step, today, 0.4)


def walk_task() -> Task:
    """Return a walk with a prize at its end, hardly ever reached; the wind does nothing."""

    def step(state: Ints, action: Ints, draw: np.random.Generator) -> tuple[Ints, Floats]:
        place = state[:, 0]
        forward = (action == 1) & (draw.random(place.size) < 0.6)
        after = np.where(forward, np.minimum(place + 1, 9), np.maximum(place - 1, 0))
        return after[:, None], 10.0 * (place == 9) + 0.1 * (place == 0)

    def today(state: Ints) -> Ints:
        return np.zeros(len(state), np.int64)

    return Task("walk", ("place", "wind"), (10, 3), (0, 1), (0,), step, today, 0.6)


TASKS = (
    shop_task("corner shop", 1.5, 5.0, 4.0, 0.5),
    shop_task("careless shop", 1.0, 3.5, 4.5, 0.9),
    shop_task("shop without weekends", 2.2, 2.2, 3.2, 0.6),
    machine_task(),
    queue_task(),
    walk_task(),
)


def play_task(
    task: Task, months: int, seed: int, policy: Callable[[Ints, int], Ints] | None = None
) -> dict[str, Ints | Floats]:
    """Play months side by side; without a policy what is done today, sometimes carelessly."""
    draw = np.random.default_rng([FIRST_SEED, 3, seed])
    state = np.tile(task.start, (months, 1))
    kept: dict[str, list[Any]] = {}
    for day in range(DAYS):
        idle = draw.integers(task.sizes[-1], size=months)
        seen = np.column_stack([state, idle])
        action = task.today(seen)
        careless = draw.random(months) < task.careless
        action = np.where(careless, draw.choice(task.actions, months), action)
        if policy is not None:
            action = policy(seen, day)
        state, reward = task.step(state, action, draw)
        row = dict(zip(task.columns, seen.T, strict=True))
        row |= {"month": np.arange(months), "day": np.full(months, day)}
        row |= {"action": action, "reward": np.round(reward, 2)}
        for name, values in row.items():
            kept.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in kept.items()}


def true_worth(task: Task, answer: Any) -> float:
    """Return what the policy of an answer earns in the truth; a state that is new has action 0."""
    shape = (DAYS, *task.sizes)
    actions = np.zeros(shape, np.int64)
    known = set(answer.known.names.states)
    for place in np.ndindex(shape):
        parts = dict(zip(task.columns, place[1:], strict=True))
        name = tuple(parts[column] for column in answer.state)
        label = name[0] if len(name) == 1 else name
        if label in known:
            actions[place] = answer.policy(label, min(place[0], answer.plans.horizon - 1))

    def act(seen: Ints, day: int) -> Ints:
        return np.asarray(actions[(day, *seen.T)])

    return float(play_task(task, 2_000, 10**6, act)["reward"].sum()) / 2_000


def policies(size: Size) -> str:
    """Plan from logs of six tasks, and compare with the truth."""
    lines = []
    for task in size.some(TASKS):
        today = float(play_task(task, 2_000, 10**6)["reward"].sum()) / 2_000
        for length in size.some((300, 1_000, 5_000)):

            def job(seed: int, task: Task = task, length: int = length) -> tuple[bool, float]:
                log = orl.read_log(play_task(task, length // DAYS, 200 + seed), roles_of(task))
                answer = orl.relevant(log)
                return answer.recommended, true_worth(task, answer)

            played = each(size, size.seeds(5), job, f"{task.name}, {length:,}")
            gains = np.array([worth - today for _, worth in played])
            taken = np.array([recommended for recommended, _ in played])
            worse = gains[taken & (gains < 0.0)]
            lines.append(
                (
                    f"{task.name} ({today:.1f})",
                    f"{length:,}",
                    f"{taken.sum()} of {taken.size}",
                    int((gains[taken] > 0.0).sum()),
                    f"{worse.size}" + (f", by {-worse.mean():.1f}" if worse.size else ""),
                    mean_of(gains[taken]),
                    mean_of(gains[~taken]),
                )
            )
    head = ("recommended", "better", "worse", "gain of these", "of the others")
    return table(("log (today's)", "rows", *head), lines)


def mean_of(gains: Floats) -> str:
    """Return a mean, if there is one."""
    return f"{gains.mean():.1f}" if gains.size else "-"


def roles_of(task: Task) -> dict[str, str | Sequence[str] | None]:
    """Return the columns of a task by their roles."""
    return {"episode": "month", "state": list(task.columns), "step": "day"}


# Size ---------------------------------------------------------------------------------------------


def cost(size: Size) -> str:
    """Measure seconds and memory of a million rows with ten columns."""
    rows = 10_000 if size.tiny else 10**6
    draw = np.random.default_rng(FIRST_SEED)
    table_of_rows: dict[str, Any] = {"episode": np.arange(rows) // 100}
    names: list[str] = []
    for i, values in enumerate((9, 7, 2, 5, 4, 3, 8, 6, 10)):
        names.append(f"c{i}")
        table_of_rows[names[-1]] = draw.integers(values, size=rows)
    action = draw.integers(3, size=rows)
    table_of_rows["action"] = action
    table_of_rows["reward"] = (table_of_rows["c0"] > 4) * action + (draw.random(rows) < 0.1)
    begin = time.process_time()
    log = orl.read_log(table_of_rows, {"state": names})
    read = time.process_time() - begin
    answer = orl.relevant(log)
    said = len(str(answer))
    seconds = time.process_time() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    line = (f"{rows:,}", f"{read:.0f} s", f"{seconds:.0f} s", f"{memory:.1f} GB", said > 0)
    return table(("rows", "read", "read and answered", "memory", "printed"), [line])


# The log of the page ------------------------------------------------------------------------------


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
            ordered = int(draw.choice((0, 2, 4), p=chances))
            full = min(stock + ordered, 8)
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


def main() -> None:
    """Write the log of the page."""
    columns = shop_rows(70, 0)
    with (DATA / "shop_columns.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))


if __name__ == "__main__":
    main()
