"""Models with real parameters: what is found, when, how surely, at what price, and how large they may be.

    python -m studies.models recover     # five truths off every grid: class, rejection, regret of
    the actings and lists python -m studies.models coverage    # intervals and false rejections over
    400 runs, with a control that must fail python -m studies.models outside     # a truth that no
    class holds python -m studies.models sizes       # seconds to build and to fit, by the number of
    pairs and of episodes python -m studies.models all --quick

The shop of docs/your-own-model.md: a shelf of 12, orders of 0, 2, 4 or 6, demand with empty days
and a spread. Truths are drawn by a seed that nothing was tuned on.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import binomtest

import occamrl as orl
from occamrl.evidence.parametric import ParametricEvidence
from occamrl.models.model import ParametricLadder
from occamrl.problems.mdp import FiniteMDP
from occamrl.problems.operations import erratic
from occamrl.protocols import Floats
from occamrl.running.flow import simulate

SHELF, MOST = 12, 16  # units; the largest demand that is told apart
BOX = {"mean": (0.5, 8.0), "empty": (0.0, 0.6), "spread": (0.0, 2.0)}
CLASSES = {
    "steady": ["mean"],
    "with empty days": ["mean", "empty"],
    "erratic": ["mean", "empty", "spread"],
}


def shop(
    stock: int, order: int, *, mean: float, empty: float = 0.0, spread: float = 0.0
) -> Iterator[tuple[Any, ...]]:
    """Yield what a day can do: a sale earns 3 EUR, a lost customer costs 1, a unit kept .2, an order 2."""
    filled = min(stock + order, SHELF)
    for demand, probability in enumerate(erratic(mean, empty, spread, MOST)):
        left, lost = max(filled - demand, 0), max(demand - filled, 0)
        yield (
            probability,
            left,
            3.0 * (filled - left) - lost - 0.2 * left - 2.0 * (order > 0),
            False,
        )


def chances(pairs: list[Any], *, mean: float, empty: float = 0.0, spread: float = 0.0) -> Floats:
    """Return the same probabilities at once."""
    return np.tile(erratic(mean, empty, spread, MOST), len(pairs))


@cache
def ladder() -> ParametricLadder:
    """Return the classes of the shop."""
    about: Any = {
        "start": 4,
        "actions": [0, 2, 4, 6],
        "horizon": 28,
        "unit": "EUR",
        "probabilities": chances,
    }
    return orl.Model(shop, parameters=BOX, **about).ladder(CLASSES)


def truths(seed: int = 2026) -> list[tuple[int, dict[str, float]]]:
    """Draw a truth of the first class and two of each other, in the inner part of the box."""
    draw, found = np.random.default_rng(seed), []
    for m in (1, 2, 2, 3, 3):
        shares = draw.uniform(0.15, 0.85, 3)
        names = list(CLASSES.values())[m - 1]
        found.append(
            (
                m,
                {
                    n: BOX[n][0] + s * (BOX[n][1] - BOX[n][0])
                    for n, s in zip(BOX, shares, strict=True)
                    if n in names
                },
            )
        )
    return found


@cache
def listed(values: int) -> orl.Ladder:
    """Return the ladder of lists with so many values of the mean and the share of empty days, and five spreads."""
    grids = [
        np.linspace(*BOX[name], count) for name, count in zip(BOX, (values, values, 5), strict=True)
    ]
    kept = [
        {"mean": grids[0]},
        {"mean": grids[0], "empty": grids[1]},
        dict(zip(BOX, grids, strict=True)),
    ]
    return orl.Ladder(
        [ladder().model.family({n: v.tolist() for n, v in each.items()}) for each in kept],
        list(CLASSES),
    )


def recover(quick: bool) -> Iterator[str]:
    """Find the classes of five truths."""
    seeds, episodes = (2, 40) if quick else (10, 200)
    model = ladder().model
    yield f"{episodes} episodes of 28 days, {seeds} seeds; regret in EUR, mean (largest)"
    yield "| truth | acting | class found | rejected after (median, latest) | regret | seconds a run |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for m, point in truths()[:: 2 if quick else 1]:
        truth, named = model.mdp(**point), ", ".join(f"{n} {v:.3f}" for n, v in point.items())
        agents: dict[str, Any] = {
            each: orl.Occam(ladder=ladder(), acting=each)
            for each in ("optimism", "sampling", "fit")
        }
        agents["oracle: its class alone, fit"] = orl.Occam(ladder=ladder().only(m), acting="fit")
        agents["list of 5 values"] = orl.Occam(ladder=listed(5))
        if not quick:
            agents["list of 25 values"] = orl.Occam(ladder=listed(25))
        for name, agent in agents.items():
            began = time.process_time()
            runs = [
                orl.run(agent, truth, episodes=episodes, seed=seed, progress=False)
                for seed in range(seeds)
            ]
            seconds = (time.process_time() - began) / seeds
            lost = [float(run.total_regret) for run in runs]
            outside = sum(run.verdict["misspecified"] for run in runs)
            right = sum(
                run.verdict["chosen"] == m and not run.verdict["misspecified"] for run in runs
            )
            when = (
                "; ".join(_when(runs, k, len(ladder().names)) for k in range(m - 1))
                if "rejected" in runs[0].state
                else ""
            )
            when = "" if "oracle" in name else when
            found = (
                ""
                if "oracle" in name
                else f"{right}/{seeds}" + f", outside {outside}" * bool(outside)
            )
            yield f"| {named} | {name} | {found} | {when} | {np.mean(lost):,.0f} ({max(lost):,.0f}) | {seconds:.1f} |"


def _when(runs: list[Any], k: int, classes: int) -> str:
    """Say when class k was rejected."""
    after = [int(run.state["rejected"][k]) for run in runs if run.state["rejected"].size == classes]
    done = [each for each in after if each]
    if not after:
        return ""
    return f"{ladder().names[k]}: {len(done)}/{len(after)}" + (
        f", {np.median(done):.0f}, {max(done)}" if done else ""
    )


class Cheat(ParametricEvidence):
    """The control: what predicts a block was fitted to it as well."""

    def _score(self, state: Any, before: Any, block: Any, novel: Any) -> None:
        for m, theta in enumerate(state["theta"]):
            state["theta"][m] = self.fit(self.counts_of(state), self.free[m], [theta]).theta
        super()._score(state, before, block, novel)


def observed(
    kind: Any, truth: FiniteMDP, delta: float, seed: int, blocks: int
) -> Iterator[tuple[ParametricEvidence, Any]]:
    """Yield the evidence after every block of a random policy: each has a tenth of the days before, at least one."""
    by, draw = kind(ladder(), truth.known, delta), np.random.default_rng([26, seed])
    policy = np.where(truth.known.allowed, 1.0, 0.0) / truth.known.allowed.sum(
        axis=1, keepdims=True
    )
    state, played = by.begin(), 0
    for _ in range(blocks):
        size = max(1, played // 10)
        by.add(
            state,
            simulate(truth, np.broadcast_to(policy, (truth.horizon, *policy.shape)), size, draw),
        )
        played += size
        yield by, state


def coverage(quick: bool) -> Iterator[str]:
    """Count false rejections and intervals that miss, at any time."""
    runs, blocks = (20, 6) if quick else (400, 20)
    m, point = truths()[1]
    truth = ladder().model.mdp(**point)
    named = {name: round(float(value), 3) for name, value in point.items()}
    yield f"truth {named}, {runs} runs of {blocks} blocks; intervals looked at after the last one; p: exact, one-sided"
    yield "| predictor | delta | true class rejected | p | Z > l(truth) + log(1/delta) | p | an interval misses | p |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for kind, delta in (
        (ParametricEvidence, 0.05),
        (ParametricEvidence, 0.5),
        (Cheat, 0.05),
        (Cheat, 0.5),
    ):
        counts = np.zeros(3, int)
        for seed in range(runs if kind is ParametricEvidence else runs // 4):
            above = False
            for by, state in observed(kind, truth, delta, seed, blocks):
                data = by.counts_of(state)
                theta = (
                    np.array([by.model.point(**point)[name] for name in by.names]) - by.low
                ) / by.width
                above |= by.least(state) > by.log_likelihood(data, theta)
            rejected = bool(state["rejected"][m - 1])
            ends = {} if rejected else by.parameters(state, m - 1)
            missed = rejected or any(
                not low <= point[name] <= high for name, (_, low, high) in ends.items()
            )
            counts += [rejected, above, missed]
        total = seed + 1
        shown = [
            f"{n}/{total} | {binomtest(int(n), total, delta, alternative='greater').pvalue:.2g}"
            for n in counts
        ]
        yield f"| {'honest' if kind is ParametricEvidence else 'control'} | {delta} | {' | '.join(shown)} |"


def outside(quick: bool) -> Iterator[str]:
    """Notice a truth that no class holds."""
    seeds, episodes = (2, 100) if quick else (10, 400)
    yield "| truth | noticed | episodes (median, latest) |"
    yield "| --- | --- | --- |"
    for share in (0.3, 0.1, 0.05):

        def dozens(
            stock: int, order: int, *, mean: float, share: float = share
        ) -> Iterator[tuple[Any, ...]]:
            for demand, (probability, *others) in enumerate(shop(stock, order, mean=mean)):
                yield (1.0 - share) * probability + share * (demand == 6), *others

        about: Any = {
            "start": 4,
            "actions": [0, 2, 4, 6],
            "horizon": 28,
            "unit": "EUR",
            "parameters": {"mean": BOX["mean"]},
        }
        truth, agent = (
            orl.Model(dozens, **about).mdp(mean=1.5),
            orl.Occam(ladder=ladder(), acting="fit"),
        )
        runs = [
            orl.run(agent, truth, episodes=episodes, seed=seed, progress=False)
            for seed in range(seeds)
        ]
        after = [int(each.state["rejected"].max()) for each in runs if each.verdict["misspecified"]]
        told = f"{np.median(after):.0f}, {max(after)}" if after else "-"
        yield f"| mean 1.5, but on {share:.0%} of the days 6 | {len(after)}/{seeds} | {told} |"


def sizes(quick: bool) -> Iterator[str]:
    """Time models of many pairs, and long runs, in seconds of one processor."""
    yield "| pairs | outcomes | build (s) | fit (s) | fit, probabilities= (s) | run, K = 10^3 (s) | K = 10^6 (s) |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for exponent in range(2, 4 if quick else 6):
        shelf = 10**exponent // 4 - 1
        row = []

        def large(
            stock: int, order: int, *, mean: float, empty: float = 0.0, shelf: int = shelf
        ) -> Any:
            filled = min(stock + order, shelf)
            for demand, probability in enumerate(erratic(mean, empty, 0.0, 6)):
                yield (
                    probability,
                    max(filled - demand, 0),
                    1.0 * min(filled, demand) - 0.001 * stock,
                    False,
                )

        def at_once(pairs: list[Any], *, mean: float, empty: float = 0.0, **_: float) -> Floats:
            return np.tile(erratic(mean, empty, 0.0, 6), len(pairs))

        about: Any = {"start": shelf // 2, "actions": [0, 2, 4, 6], "horizon": 20}
        about["parameters"] = {"mean": (0.5, 4.0), "empty": (0.0, 0.6)}
        about["start"] = dict.fromkeys(range(shelf + 1), 1.0 / (shelf + 1))
        for probabilities in (None, at_once):
            began = time.process_time()
            model = orl.Model(large, probabilities=probabilities, **about)
            row += [time.process_time() - began]
            by = ParametricEvidence(
                model.ladder({"a": ["mean"], "b": ["mean", "empty"]}), model.known, 0.05
            )
            truth, state = model.mdp(mean=2.1, empty=0.13), by.begin()
            began = time.process_time()
            policy = np.zeros((20, truth.states), int)
            state["count"] = likely(
                by, simulate(truth, policy, 50 * (shelf + 1), np.random.default_rng(0))
            )
            began = time.process_time()
            by.fit(by.counts_of(state), by.free[1], by.starts(state["theta"][1], True))
            row += [time.process_time() - began]
        for episodes in (10**3, 10**6):
            began = time.process_time()
            if exponent < 5:
                orl.run(
                    orl.Occam(ladder=by.ladder),
                    truth,
                    episodes=episodes if not quick else 10,
                    progress=False,
                )
            row += [time.process_time() - began if exponent < 5 else math.nan]
        build, fit, _, fast, *played = row
        yield (
            f"| {len(model.pairs):,} | {model.reward.size:,} | {build:.2g} | {fit:.2g} | {fast:.2g} | "
            + " | ".join(f"{s:.2g}" for s in played)
            + " |"
        )


def likely(by: ParametricEvidence, flow: Any) -> Any:
    """Return the counts of a flow."""
    state = by.begin()
    from occamrl.evidence import likelihood

    rows = by.model.row_of(flow.state, flow.action)
    return likelihood.count_outcomes(
        state,
        by.outcomes,
        rows[rows >= 0],
        flow.take(rows >= 0),
        flow.reward[rows >= 0],
        by.known.states,
    )


COMMANDS: dict[str, Callable[[bool], Iterator[str]]] = {
    "recover": recover,
    "coverage": coverage,
    "outside": outside,
    "sizes": sizes,
}


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=[*COMMANDS, "all"])
    parser.add_argument("--quick", action="store_true", help="few seeds and short runs")
    chosen = parser.parse_args()
    for name, command in COMMANDS.items():
        if chosen.command in (name, "all"):
            print(f"\n{name}\n", flush=True)
            for line in command(chosen.quick):
                print(line, flush=True)


if __name__ == "__main__":
    main()
