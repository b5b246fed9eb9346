"""Models with real parameters: what is found, when, how surely, at what price, how large.

    python -m studies.models recover     # five truths off every grid: class, rejection, regret
    python -m studies.models coverage    # intervals and false rejections, with a control
    python -m studies.models outside     # a truth that no class holds
    python -m studies.models sizes       # seconds to build and to fit, by pairs and episodes
    python -m studies.models all --quick

The shop of docs/your-own-model.md: a shelf of 12, orders of 0, 2, 4 or 6, demand with empty days
and a spread. Truths are drawn by a seed that nothing was tuned on.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import binomtest

import occamrl as orl
from occamrl.evidence.counts import count_outcomes
from occamrl.evidence.parametric import ParametricEvidence, ParametricState
from occamrl.models.model import ParametricLadder
from occamrl.problems.mdp import FiniteMDP
from occamrl.problems.operations import erratic
from occamrl.protocols import Floats, Flow
from occamrl.running.flow import simulate

SHELF = 12  # units
LARGEST = 16  # the largest demand that is told apart
ORDERS = [0, 2, 4, 6]
BOX = {"mean": (0.5, 8.0), "empty": (0.0, 0.6), "spread": (0.0, 2.0)}
CLASSES = {
    "steady": ["mean"],
    "with empty days": ["mean", "empty"],
    "erratic": ["mean", "empty", "spread"],
}
Outcome = tuple[float, int, float, bool]
Point = dict[str, float]


def shop(
    stock: int, order: int, *, mean: float, empty: float = 0.0, spread: float = 0.0
) -> Iterator[Outcome]:
    """Yield what a day can do: a sale earns 3, a lost customer costs 1, a unit .2, an order 2."""
    filled = min(stock + order, SHELF)
    for demand, probability in enumerate(erratic(mean, empty, spread, LARGEST)):
        unsold = max(filled - demand, 0)
        lost = max(demand - filled, 0)
        profit = 3.0 * (filled - unsold) - lost - 0.2 * unsold - 2.0 * (order > 0)
        yield probability, unsold, profit, False


def chances(
    pairs: Sequence[object], *, mean: float, empty: float = 0.0, spread: float = 0.0
) -> Floats:
    """Return the same probabilities at once."""
    return np.tile(erratic(mean, empty, spread, LARGEST), len(pairs))


@cache
def ladder() -> ParametricLadder:
    """Return the classes of the shop."""
    model = orl.Model(
        shop,
        start=4,
        actions=ORDERS,
        horizon=28,
        parameters=BOX,
        unit="EUR",
        probabilities=chances,
    )
    return model.ladder(CLASSES)


def truths(seed: int = 2026) -> list[tuple[int, Point]]:
    """Draw a truth of the first class and two of each other, in the inner part of the box."""
    draw = np.random.default_rng(seed)
    points = []
    for m in (1, 2, 2, 3, 3):
        point = {}
        # Three shares for every class, so that a truth does not depend on those before it.
        for name, share in zip(BOX, draw.uniform(0.15, 0.85, 3), strict=True):
            low, high = BOX[name]
            if name in list(CLASSES.values())[m - 1]:
                point[name] = low + share * (high - low)
        points.append((m, point))
    return points


@cache
def listed(values: int) -> orl.Ladder:
    """Return lists with so many values of the mean and of empty days, and five spreads."""
    grid = {}
    for name, count in zip(BOX, (values, values, 5), strict=True):
        grid[name] = np.linspace(*BOX[name], count).tolist()
    families = []
    for free in CLASSES.values():
        families.append(ladder().model.family({name: grid[name] for name in free}))
    return orl.Ladder(families, list(CLASSES))


# What is found ------------------------------------------------------------------------------------


def recover(quick: bool) -> Iterator[str]:
    """Find the classes of five truths."""
    seeds = 2 if quick else 10
    episodes = 40 if quick else 200
    yield f"{episodes} episodes of 28 days, {seeds} seeds; regret in EUR, mean (largest)"
    yield "| truth | acting | class found | rejected after (median, latest) | regret | s a run |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for m, point in truths()[:: 2 if quick else 1]:
        truth = ladder().model.mdp(**point)
        named = ", ".join(f"{name} {value:.3f}" for name, value in point.items())
        for name, agent in cast(m, quick).items():
            began = time.process_time()
            runs = play(agent, truth, episodes, seeds)
            seconds = (time.process_time() - began) / seeds
            # The oracle has no class to find, and lists are rejected member by member.
            cells = [named, name, "", ""]
            if not name.startswith("oracle"):
                cells[2] = class_found(runs, m)
            if agent.ladder is ladder():
                cells[3] = rejections(runs, m)
            lost = [float(run.total_regret) for run in runs]
            cells += [f"{np.mean(lost):,.0f} ({max(lost):,.0f})", f"{seconds:.1f}"]
            yield f"| {' | '.join(cells)} |"


def cast(m: int, quick: bool) -> dict[str, orl.Occam]:
    """Return the agents that are compared where class m is needed."""
    agents = {
        "optimism": orl.Occam(ladder=ladder(), acting="optimism"),
        "sampling": orl.Occam(ladder=ladder(), acting="sampling"),
        "fit": orl.Occam(ladder=ladder(), acting="fit"),
        "oracle: its class alone, fit": orl.Occam(ladder=ladder().only(m), acting="fit"),
        "list of 5 values": orl.Occam(ladder=listed(5)),
    }
    if not quick:
        agents["list of 25 values"] = orl.Occam(ladder=listed(25))
    return agents


def play(agent: orl.Occam, truth: FiniteMDP, episodes: int, seeds: int) -> list[orl.Result]:
    """Return a run for each seed."""
    return [
        orl.run(agent, truth, episodes=episodes, seed=seed, progress=False) for seed in range(seeds)
    ]


def class_found(runs: Sequence[orl.Result], m: int) -> str:
    """Return in how many runs class m was found, and how many found none that fits."""
    misspecified = sum(run.verdict["misspecified"] for run in runs)
    right = 0
    for run in runs:
        right += run.verdict["chosen"] == m and not run.verdict["misspecified"]
    text = f"{right}/{len(runs)}"
    if misspecified:
        text += f", outside {misspecified}"
    return text


def rejections(runs: Sequence[orl.Result], m: int) -> str:
    """Return when the classes below m were rejected (median, latest)."""
    texts = []
    for k in range(m - 1):
        rejected = np.array([run.state["evidence"]["rejected"][k] for run in runs])
        text = f"{ladder().names[k]}: {np.count_nonzero(rejected)}/{len(runs)}"
        if rejected.any():
            text += f", {np.median(rejected[rejected > 0]):.0f}, {rejected.max()}"
        texts.append(text)
    return "; ".join(texts)


# How surely ---------------------------------------------------------------------------------------


class Cheat(ParametricEvidence):
    """The control: the best fit to a block enters the mixture as if it had predicted the block."""

    def add(self, state: ParametricState, flow: Flow) -> None:
        """Add a block, and a point that was made after it."""
        before = self.weigh(state)
        super().add(state, flow)
        fit = state["points"][self.weigh(state).likelihoods.argmax()]
        mass = before.mixture - self.log_likelihood(before.data, fit)
        state["points"] = np.concatenate([state["points"], fit[None]])
        state["level"] = np.append(state["level"], 0)
        state["log_mass"] = np.append(state["log_mass"], mass)


def observed(
    evidence: ParametricEvidence, truth: FiniteMDP, seed: int, blocks: int
) -> Iterator[ParametricState]:
    """Yield the state after every block of a random policy, a tenth of the days before long."""
    draw = np.random.default_rng([26, seed])
    allowed = truth.known.allowed
    policy = np.where(allowed, 1.0, 0.0) / allowed.sum(axis=1, keepdims=True)
    policy = np.broadcast_to(policy, (truth.horizon, *policy.shape))
    state = evidence.begin()
    played = 0
    for _ in range(blocks):
        size = max(1, played // 10)
        evidence.add(state, simulate(truth, policy, size, draw))
        played += size
        yield state


def misses(evidence: ParametricEvidence, m: int, point: Point, seed: int, blocks: int) -> list[int]:
    """Return whether the true class was rejected, Z was too large, or an interval misses."""
    truth = ladder().model.mdp(**point)
    whole = ladder().model.point(**point)
    values = np.array([whole[name] for name in evidence.names])
    theta = (values - evidence.low) / evidence.width
    exceeded = False
    for state in observed(evidence, truth, seed, blocks):
        likelihood = evidence.log_likelihood(evidence.counts_of(state), theta)
        exceeded |= evidence.least(state) > likelihood
    rejected = bool(state["rejected"][m - 1])
    missed = rejected
    if not rejected:
        for name, interval in evidence.parameters(state, m - 1).items():
            missed |= not interval.low <= point[name] <= interval.high
    return [rejected, exceeded, missed]


def coverage(quick: bool) -> Iterator[str]:
    """Count false rejections and intervals that miss, at any time."""
    runs = 20 if quick else 400
    blocks = 6 if quick else 20
    m, point = truths()[1]
    known = ladder().model.mdp(**point).known
    named = {name: round(float(value), 3) for name, value in point.items()}
    yield f"truth {named}, {runs} runs of {blocks} blocks; intervals after the last one"
    yield (
        "| predictor | delta | true class rejected | p, exact and one-sided "
        "| Z > l(truth) + log(1/delta) | p | an interval misses | p |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    kinds = {"honest": (ParametricEvidence, runs), "control": (Cheat, runs // 4)}
    for name, (kind, total) in kinds.items():
        for delta in (0.05, 0.5):
            counts = np.zeros(3, int)
            for seed in range(total):
                counts += misses(kind(ladder(), known, delta), m, point, seed, blocks)
            cells = [name, f"{delta}"]
            for count in counts.tolist():
                test = binomtest(count, total, delta, alternative="greater")
                cells += [f"{count}/{total}", f"{test.pvalue:.2g}"]
            yield f"| {' | '.join(cells)} |"


def dozens(
    stock: int, order: int, *, mean: float = 1.5, share: float = 0.1
) -> Iterator[tuple[Any, ...]]:
    """Yield what a day of the shop can do if on a share of the days six customers come."""
    for demand, (probability, *outcome) in enumerate(shop(stock, order, mean=mean)):
        yield (1.0 - share) * probability + share * (demand == 6), *outcome


def outside(quick: bool) -> Iterator[str]:
    """Notice a truth that no class holds."""
    seeds = 2 if quick else 10
    episodes = 100 if quick else 400
    bounds = {"share": (0.0, 0.5)}
    model = orl.Model(dozens, start=4, actions=ORDERS, horizon=28, parameters=bounds, unit="EUR")
    agent = orl.Occam(ladder=ladder(), acting="fit")
    yield "| truth | noticed | episodes (median, latest) |"
    yield "| --- | --- | --- |"
    for share in (0.3, 0.1, 0.05):
        rejected = []
        for run in play(agent, model.mdp(share=share), episodes, seeds):
            if run.verdict["misspecified"]:
                rejected.append(int(run.state["evidence"]["rejected"].max()))
        when = "-"
        if rejected:
            when = f"{np.median(rejected):.0f}, {max(rejected)}"
        noticed = f"{len(rejected)}/{seeds}"
        yield f"| mean 1.5, but on {share:.0%} of the days 6 | {noticed} | {when} |"


# How large ----------------------------------------------------------------------------------------


def large_model(shelf: int, vectorised: bool) -> orl.Model:
    """Return a shop with a large shelf, any stock at the start, and demand up to six."""

    def large(stock: int, order: int, *, mean: float, empty: float = 0.0) -> Iterator[Outcome]:
        filled = min(stock + order, shelf)
        for demand, probability in enumerate(erratic(mean, empty, 0.0, 6)):
            earned = 1.0 * min(filled, demand) - 0.001 * stock
            yield probability, max(filled - demand, 0), earned, False

    def at_once(pairs: Sequence[object], *, mean: float, empty: float = 0.0) -> Floats:
        return np.tile(erratic(mean, empty, 0.0, 6), len(pairs))

    return orl.Model(
        large,
        start=dict.fromkeys(range(shelf + 1), 1.0 / (shelf + 1)),
        actions=ORDERS,
        horizon=20,
        parameters={"mean": (0.5, 4.0), "empty": (0.0, 0.6)},
        probabilities=at_once if vectorised else None,
    )


def fit_once(model: orl.Model) -> float:
    """Return the seconds of a fit to what a policy that orders nothing has shown."""
    evidence = ParametricEvidence(
        model.ladder({"a": ["mean"], "b": ["mean", "empty"]}), model.known, 0.05
    )
    truth = model.mdp(mean=2.1, empty=0.13)
    policy = np.zeros((20, truth.states), int)
    flow = simulate(truth, policy, 12 * len(model.pairs), np.random.default_rng(0))
    state = evidence.begin()
    count(evidence, state, flow)
    began = time.process_time()
    evidence.search(evidence.counts_of(state), evidence.free[1])
    return time.process_time() - began


def count(evidence: ParametricEvidence, state: ParametricState, flow: Flow) -> None:
    """Add the counts of a flow to a state, without weighing them."""
    rows = evidence.model.row_of(flow.step, flow.state, flow.action)
    listed_rows = rows >= 0
    part = flow.take(listed_rows)
    count_outcomes(state, evidence.outcomes, rows[listed_rows], part, part.reward, evidence.known)


def sizes(quick: bool) -> Iterator[str]:
    """Time models of many pairs, and long runs, in seconds of one processor."""
    yield (
        "| pairs | outcomes | build (s) | fit (s) | fit, probabilities= (s) "
        "| run, K = 10^3 (s) | K = 10^6 (s) |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for exponent in range(2, 4 if quick else 6):
        shelf = 10**exponent // 4 - 1
        began = time.process_time()
        plain = large_model(shelf, vectorised=False)
        seconds = [time.process_time() - began, fit_once(plain)]
        model = large_model(shelf, vectorised=True)
        seconds.append(fit_once(model))
        agent = orl.Occam(ladder=model.ladder({"a": ["mean"], "b": ["mean", "empty"]}))
        for episodes in (10**3, 10**6):
            if exponent == 5:
                seconds.append(math.nan)  # hours
                continue
            began = time.process_time()
            length = 10 if quick else episodes
            orl.run(agent, model.mdp(mean=2.1, empty=0.13), episodes=length, progress=False)
            seconds.append(time.process_time() - began)
        cells = [f"{len(model.pairs):,}", f"{model.reward.size:,}"]
        cells += [f"{value:.2g}" for value in seconds]
        yield f"| {' | '.join(cells)} |"


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
