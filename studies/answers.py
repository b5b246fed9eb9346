"""From a CSV file to a page: is the class right, do ranges hold, what is the policy worth.

    python -m studies.answers            five truths, ten logs of 2,000 episodes each
    python -m studies.answers --quick    two truths, two logs of 300 episodes each
    python -m studies.figures logged-data --part answers:logs --write

A kiosk, whose class and real parameters are drawn at random; columns have names of their own;
today's policy is mediocre and partly random. The control is a region of parameters that is far too
small: its ranges must fail the test.
"""

from __future__ import annotations

import argparse
import csv
import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest

import occamrl as orl
from occamrl.evidence.parametric import ParametricEvidence
from occamrl.models.model import ParametricLadder
from occamrl.protocols import Floats, Interval
from occamrl.running.flow import simulate
from studies.figures import Size, each, table

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
CRATES, DELIVERIES, HORIZON, DELTA = 8, (0, 3, 6), 14, 0.05
CLASSES = {
    "steady": ("mean",),
    "weekends": ("mean", "weekend"),
    "quiet days too": ("mean", "weekend", "quiet"),
}
BOUNDS = {"mean": (0.3, 4.0), "weekend": (0.0, 3.0), "quiet": (0.0, 0.6)}
DRAWN = {"mean": (0.8, 2.5), "weekend": (0.3, 2.0), "quiet": (0.1, 0.4)}
COLUMNS = {
    "episode": "fortnight",
    "state": ["crates", "weekday"],
    "action": "delivery",
    "reward": "takings",
}


def kiosk(
    state: tuple[int, str], delivery: int, *, mean: float, weekend: float = 0.0, quiet: float = 0.0
) -> Iterator[Any]:
    """Sell crates at 3; one costs 1.4, keeping it .15 a day, a delivery .5; quiet days."""
    crates, day = state
    rate, after = mean + weekend * (day in DAYS[5:]), DAYS[(DAYS.index(day) + 1) % 7]
    have = min(crates + delivery, CRATES)
    chances = [(1 - quiet) * math.exp(-rate) * rate**n / math.factorial(n) for n in range(CRATES)]
    chances[0] += quiet
    spent = 1.4 * (have - crates) + 0.15 * have + 0.5 * (delivery > 0)
    for demand, chance in enumerate([*chances, max(0.0, 1.0 - sum(chances))]):
        sold = min(demand, have)
        yield chance, (have - sold, after), 3.0 * sold - spent, False


@cache
def ladder() -> ParametricLadder:
    """Return the three classes."""
    model = orl.Model(
        kiosk, start=(4, "Mon"), actions=DELIVERIES, horizon=HORIZON, unit="EUR", parameters=BOUNDS
    )
    return model.ladder(CLASSES)


class Truth(NamedTuple):
    """What a log comes from."""

    level: int  # its class, from 1
    point: dict[str, float]
    mdp: orl.FiniteMDP
    today: Floats  # [H, S, A]


def truth_of(number: int) -> Truth:
    """Draw a class, its parameters, and a mediocre policy, 30 % of it at random."""
    draw = np.random.default_rng([number, 27])
    level = int(draw.integers(1, len(CLASSES) + 1))
    point = {name: float(draw.uniform(*DRAWN[name])) for name in list(CLASSES.values())[level - 1]}
    mdp, order = ladder().model.mdp(**point), int(draw.integers(2, 5))
    allowed = mdp.known.allowed / mdp.known.allowed.sum(axis=1, keepdims=True)
    today = np.tile(0.3 * allowed, (HORIZON, 1, 1))
    for s, name in enumerate(ladder().model.states):
        chosen = 1 if isinstance(name, tuple) and name[0] < order else 0
        today[:, s, chosen] += 0.7
    return Truth(level, point, mdp, today)


def write_log(truth: Truth, episodes: int, seed: int, path: Path) -> None:
    """Write a log in the kiosk's own words: no step, no next state, cents, days in any order."""
    draw, known, rows = np.random.default_rng([seed, 28]), truth.mdp.known, []
    for k in range(episodes):
        flow = simulate(truth.mdp, truth.today, 1, draw)
        for h in range(HORIZON + 1):
            s = flow.state[h] if h < HORIZON else flow.next_state[-1]
            (crates, day), last = known.state_name(int(s)), h == HORIZON
            euro = 0.0 if last else known.unit.low + known.unit.scale * float(flow.reward[h])
            what = DELIVERIES[0] if last else known.action_name(int(flow.action[h]))
            rows.append((f"week {2 * k}", 15 * k + h, day, crates, what, f"{euro:.2f}"))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("fortnight", "day", "weekday", "crates", "delivery", "takings"))
        writer.writerows(rows[i] for i in draw.permutation(len(rows)))


class Narrow(ParametricEvidence):
    """The control: a region that is far too small."""

    def least(self, state: Any, level: float | None = None) -> float:
        """Return a likelihood just below the best."""
        return float(self.weigh(state).likelihoods.max()) - 0.02


class Run(NamedTuple):
    """What one log has shown."""

    right: bool
    parameters: tuple[int, int]  # ranges that missed, of how many
    worths: tuple[int, int]
    control: tuple[int, int, int, int]  # the same two of the control
    kept: (
        bool  # whether the recommended policy is worse than today's by no more than its range says
    )
    worth: tuple[float, float, float]  # true, in the unit: today's, recommended, the best there is
    seconds: float


def missed(answer: Any, truth: Truth) -> tuple[int, int, int, int]:
    """Return how many ranges miss: of parameters; of two policies and their difference."""

    def true(policy: Any) -> float:
        value = truth.mdp.known.amount(truth.mdp.evaluate(policy)[0] @ answer.worlds.law)
        return float(value)

    own, today = true(answer.policy.actions), true(truth.today)
    pairs = [(own, answer.worth), (today, answer.worth_of(truth.today))]
    pairs.append((own - today, answer.compared_with(truth.today)))
    left = not answer.state["rejected"][truth.level - 1]
    found = answer.weigher.parameters(answer.state, truth.level - 1) if left else {}
    nothing = Interval(math.nan, math.nan, math.nan)  # of a true class that was ruled out: a miss
    ranges = [
        (value, found[name].interval if left else nothing) for name, value in truth.point.items()
    ]
    count = [
        sum(not each.low - 1e-9 <= value <= each.high + 1e-9 for value, each in part)
        for part in (ranges, pairs)
    ]
    return count[0], len(ranges), count[1], len(pairs)


def one(truth: Truth, episodes: int, seed: int) -> Run:
    """Answer from one CSV file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kiosk.csv"
        write_log(truth, episodes, seed, path)
        began = time.perf_counter()
        log = orl.read_log(path, COLUMNS, order_by="day")
        answer = orl.select(log, ladder(), delta=DELTA, progress=False)
        answer.page(Path(folder) / "kiosk.html")
        seconds = time.perf_counter() - began
    control = replace(answer, weigher=Narrow(ladder(), answer.known, DELTA))
    amount, law = truth.mdp.known.amount, answer.worlds.law
    policies = (truth.today, answer.policy.actions, truth.mdp.optimal_policy)
    today, own, best = (float(amount(truth.mdp.evaluate(policy)[0] @ law)) for policy in policies)
    kept = own - today >= answer.compared_with(truth.today).low - 1e-9
    found = missed(answer, truth)
    return Run(
        answer.chosen == truth.level,
        found[:2],
        found[2:],
        missed(control, truth),
        kept,
        (today, own, best),
        seconds,
    )


def p_value(missed: int, of: int) -> str:
    """Return the p-value of the exact test that ranges miss as rarely as delta allows."""
    p = binomtest(missed, of, DELTA, alternative="greater").pvalue
    return f"{p:.2g}" if p > 1e-6 else "below 1e-6"


def logs(size: Size, truths: int = 5, episodes: int = 2_000) -> str:
    """Return a row for each truth, and the tests over all runs."""
    rows, every = [], list[Run]()
    for number in size.some(range(truths)):
        truth = truth_of(number)
        name = ", ".join(f"{key} {value:.3g}" for key, value in truth.point.items())

        def job(seed: int, truth: Truth = truth, number: int = number) -> Run:
            return one(truth, size.episodes(episodes), 1000 * number + seed)

        runs = each(size, size.seeds(10), job, name)
        every += runs
        shares = [f"{sum(run.right for run in runs)} of {len(runs)}"]
        for part in ("parameters", "worths"):
            missed, of = np.sum([getattr(run, part) for run in runs], axis=0)
            shares.append(f"{of - missed} of {of}")
        shares.append(f"{sum(run.kept for run in runs)} of {len(runs)}")
        worth = [f"{value:.2f}" for value in np.mean([run.worth for run in runs], axis=0)]
        rows.append((name, *shares, *worth, f"{np.median([run.seconds for run in runs]):.1f}"))
    header = ("truth", "right class", "parameters in range", "worths in range", "gain as promised")
    told = table((*header, "today's", "recommended", "best there is", "seconds"), rows)
    misses = (
        np.array([(*run.parameters, *run.worths, *run.control) for run in every])[:, ::2] > 0
    )  # by log
    tests = [p_value(int(column.sum()), len(every)) for column in misses.T]
    return (
        f"{told}\n\nExact tests that some range misses in at most {DELTA:g} of the logs: "
        f"p = {tests[0]} for parameters, {tests[1]} for worths; for the control, which has to "
        f"fail, {tests[2]} and {tests[3]}."
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="two truths, two logs of 300 episodes each"
    )
    quick = parser.parse_args().quick
    print(logs(Size(most_seeds=2), 2, 300) if quick else logs(Size()))


if __name__ == "__main__":
    main()
