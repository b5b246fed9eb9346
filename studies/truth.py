"""Real parameters: whether the truth is kept where likelihoods have steps, modes and edges.

    python -m studies.figures --part truth:widths
    python -m studies.figures --part truth:kept --seeds 20

Every row is a model, a truth that is in it, and logs of random actions. Three promises are counted:
the true class is not ruled out, each range of a parameter holds its value, the range of what a
policy earns holds what it earns. The control is a region of .02 nats, and a search of three points.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest, chi2

import occamrl as orl
from occamrl.evidence.cloud import Fit
from occamrl.evidence.parametric import ParametricEvidence, ParametricState
from occamrl.evidence.region import Region
from occamrl.evidence.worlds import FiniteWorld
from occamrl.models.model import Model
from occamrl.problems.operations import erratic
from occamrl.protocols import Floats
from occamrl.running.flow import simulate
from studies.figures import Size, each, table

Rows = Iterator[tuple[Any, ...]]
DELTAS = (0.05, 0.5)


class Case(NamedTuple):
    """A model, a truth in it, and how long logs are."""

    model: Callable[[], orl.Model]
    point: dict[str, float]
    classes: dict[str, list[str]]
    episodes: int
    never: int = -1  # an action that the log never tries


def wear(age: int, action: str, *, tau: float = 10.0) -> Rows:
    """Yield how wear begins at an age."""
    fails = 0.1 if age < tau else 0.4
    if action == "replace":
        fails = 0.0
    yield fails, 0, -5.0
    yield (
        1.0 - fails,
        0 if action == "replace" else min(age + 1, 30),
        1.0 - 2.0 * (action == "replace"),
    )


def slow_queue(length: int, servers: int, *, above: float, slow: float = 0.3) -> Rows:
    """Yield a queue whose service slows above a length that is not known."""
    served = 0.45 * servers - slow * (length > above) * servers
    arrives = 0.5
    yield arrives * (1.0 - served), min(length + 1, 15), -0.1 * length - 0.3 * servers
    yield served * (1.0 - arrives), max(length - 1, 0), -0.1 * length - 0.3 * servers
    same = 1.0 - arrives * (1.0 - served) - served * (1.0 - arrives)
    yield same, length, -0.1 * length - 0.3 * servers


def season(day: int, action: int, *, level: float, period: float) -> Rows:
    """Yield a season of unknown length."""
    chance = level + 0.25 * math.sin(2.0 * math.pi * day / period) + 0.05 * action
    yield chance, (day + 1) % 60, 1.0 - 0.1 * action
    yield 1.0 - chance, (day + 2) % 60, -0.1 * action


def saturating(state: int, dose: int, *, rate: float) -> Rows:
    """Yield a chance of 1 - exp(-rate dose), for boxes far wider than what matters."""
    chance = 1.0 - math.exp(-rate * dose / 4.0)
    yield chance, 1 - state, 1.0 - 0.1 * dose
    yield 1.0 - chance, state, -0.1 * dose


def mirrored(state: int, action: int, *, x: float) -> Rows:
    """Yield a law of the distance of x from 1/2."""
    chance = 0.2 + abs(x - 0.5) - 0.1 * action
    yield chance, 1 - state, 1.0
    yield 1.0 - chance, state, 0.2 * action


def busy(length: int, action: int, *, arrives: float, served: float) -> Rows:
    """Yield a queue seen while it is busy: (l, m) is as likely as (1 - m, 1 - l)."""
    up = arrives * (1.0 - served)
    down = served * (1.0 - arrives)
    if length == 0:
        yield 1.0, 5, 0.0
        return
    yield up, min(length + 1, 10), -0.1 * length
    yield down, length - 1, 1.0 - 0.1 * length
    yield 1.0 - up - down, length, -0.1 * length


def bump(state: int, action: int, *, p: float) -> Rows:
    """Yield a worth of p (1 - p)."""
    chance = p * (1.0 - p) * (1.0 - 0.2 * action)
    yield chance, 1, 1.0
    yield 1.0 - chance, 0, 0.0


def hill(state: int, action: int, *, x: float, y: float) -> Rows:
    """Yield a worth that is largest inside a box of two parameters."""
    chance = 0.1 + 0.8 * math.exp(-20.0 * (x - 0.5) ** 2 - 20.0 * (y - 0.4) ** 2)
    yield chance, (state + 1) % 3, 1.0
    yield (1.0 - chance) * x, state, 0.0
    yield (1.0 - chance) * (1.0 - x), (state + 2) % 3, 0.0


def chances(state: int, action: int, **p: float) -> Rows:
    """Yield a chance for each of some states, that decides how it goes on."""
    chance = list(p.values())[state]
    yield chance, (state + 1) % len(p), 1.0 - 0.5 * action
    yield 1.0 - chance, (state + 2) % len(p), 0.0


def four(state: int, action: int, *, a: float, b: float, c: float, d: float) -> Rows:
    """Yield four chances."""
    yield from chances(state, action, a=a, b=b, c=c, d=d)


def six(
    state: int, action: int, *, a: float, b: float, c: float, d: float, e: float, f: float
) -> Rows:
    """Yield six chances."""
    yield from chances(state, action, a=a, b=b, c=c, d=d, e=e, f=f)


def shop(stock: int, order: int, *, mean: float, empty: float = 0.0) -> Rows:
    """Yield a shop like that of the README."""
    filled = min(stock + order, 12)
    for demand, probability in enumerate(erratic(mean, empty, 0.0, 12)):
        sold = min(filled, demand)
        yield probability, filled - sold, 4.0 * sold - 0.5 * (filled - sold) - 6.0 * (order > 0)


def made(
    function: Callable[..., Rows],
    box: Mapping[str, tuple[float, float]],
    actions: Sequence[Any],
    horizon: int,
    start: Any = 0,
) -> Callable[[], orl.Model]:
    """Return what makes a model."""

    def model() -> orl.Model:
        return orl.Model(
            function, start=start, actions=list(actions), horizon=horizon, parameters=dict(box)
        )

    return model


UNIT = (0.0, 1.0)
SHOP = made(shop, {"mean": (0.5, 8.0), "empty": (0.0, 0.6)}, [0, 2, 4, 6], 28, 4)
NESTED = {"steady": ["mean"], "with empty days": ["mean", "empty"]}
FOUR = dict.fromkeys("abcd", (0.05, 0.95))
SIX = dict.fromkeys("abcdef", (0.05, 0.95))
CASES = {
    "wear from an age on": Case(
        made(wear, {"tau": (1.0, 29.0)}, ["run", "replace"], 40), {"tau": 8.6}, {"": ["tau"]}, 12
    ),
    "queue slows above a length": Case(
        made(slow_queue, {"above": (0.0, 14.0), "slow": (0.0, 0.4)}, [1, 2], 40),
        {"above": 6.2, "slow": 0.3},
        {"where": ["above"], "and how much": ["above", "slow"]},
        12,
    ),
    "unknown period": Case(
        made(season, {"level": (0.26, 0.68), "period": (3.0, 30.0)}, [0, 1], 40),
        {"level": 0.4, "period": 11.3},
        {"": ["level", "period"]},
        20,
    ),
    "wide box": Case(
        made(saturating, {"rate": (0.0, 80.0)}, [0, 1, 2], 20), {"rate": 0.3}, {"": ["rate"]}, 20
    ),
    "box of 8,000": Case(
        made(saturating, {"rate": (0.0, 8_000.0)}, [0, 1, 2], 20), {"rate": 2.0}, {"": ["rate"]}, 20
    ),
    "mirrored modes": Case(made(mirrored, {"x": UNIT}, [0, 1], 20), {"x": 0.8}, {"": ["x"]}, 20),
    "queue seen while busy": Case(
        made(busy, {"arrives": (0.02, 0.98), "served": (0.02, 0.98)}, [0], 30, 5),
        {"arrives": 0.3, "served": 0.4},
        {"": ["arrives", "served"]},
        20,
    ),
    "worth p (1 - p)": Case(made(bump, {"p": UNIT}, [0, 1], 20), {"p": 0.5}, {"": ["p"]}, 5),
    "worth with a hill inside": Case(
        made(hill, {"x": UNIT, "y": UNIT}, [0], 20), {"x": 0.5, "y": 0.4}, {"": ["x", "y"]}, 3
    ),
    "truth at two edges": Case(
        made(four, dict.fromkeys("abcd", UNIT), [0, 1], 20),
        {"a": 0.0, "b": 1.0, "c": 0.5, "d": 0.2},
        {"": list("abcd")},
        10,
    ),
    "four parameters": Case(
        made(four, FOUR, [0, 1], 20),
        {"a": 0.3, "b": 0.7, "c": 0.5, "d": 0.9},
        {"": list("abcd")},
        20,
    ),
    "six parameters": Case(
        made(six, SIX, [0, 1], 20),
        {"a": 0.3, "b": 0.7, "c": 0.5, "d": 0.9, "e": 0.1, "f": 0.4},
        {"": list("abcdef")},
        20,
    ),
    "five rows": Case(
        made(four, FOUR, [0, 1], 5),
        {"a": 0.3, "b": 0.7, "c": 0.5, "d": 0.9},
        {"": list("abcd")},
        1,
    ),
    "shop, 2,000 rows": Case(SHOP, {"mean": 2.1, "empty": 0.28}, NESTED, 72),
    "shop, an action never tried": Case(SHOP, {"mean": 2.1, "empty": 0.28}, NESTED, 10, never=3),
}


class Narrow(ParametricEvidence):
    """The control of ranges: a region that is far too small."""

    def least(self, state: ParametricState, level: float | None = None) -> float:
        """Return a likelihood just below the best."""
        return float(self.weigh(state).likelihoods.max()) - 0.02


class FewPoints(ParametricEvidence):
    """The control of the search: three points, and none after them."""

    def begin(self) -> ParametricState:
        """Return the state before any data, with three points of each class."""
        state = super().begin()
        kept = np.zeros(len(state["level"]), bool)
        for m in range(self.classes):
            kept[np.flatnonzero(state["level"] == m)[:3]] = True
        state["points"] = state["points"][kept]
        state["level"] = state["level"][kept]
        state["log_mass"] = state["log_mass"][kept]
        return state

    def _search_class(self, state: ParametricState, m: int) -> Fit:
        return Fit(state["points"][0], -math.inf, 0, 0)

    def _renew(self, state: ParametricState) -> None:
        """Make no points."""


class Weighed(NamedTuple):
    """The evidence of a log."""

    evidence: ParametricEvidence
    state: ParametricState
    truth: orl.FiniteMDP


def weighed(case: Case, model: orl.Model, kind: Any, delta: float, seed: int) -> Weighed:
    """Return the evidence of a log of random actions, a tenth of the episodes before at a time."""
    truth = model.mdp(**case.point)
    draw = np.random.default_rng([35, seed])
    allowed = truth.known.allowed.astype(float)
    if case.never >= 0:
        allowed[:, case.never] = 0.0
    policy = allowed / allowed.sum(axis=1, keepdims=True)
    policy = np.broadcast_to(policy, (truth.horizon, *policy.shape))
    evidence = kind(model.ladder(case.classes), truth.known, delta)
    state = evidence.begin()
    played = 0
    while played < case.episodes:
        size = min(max(1, played // 10), case.episodes - played)
        evidence.add(state, simulate(truth, policy, size, draw))
        played += size
    return Weighed(evidence, state, truth)


class Missed(NamedTuple):
    """What a log has missed, and what it cost."""

    ruled_out: int
    parameters: int
    worth: int
    calls: float
    seconds: float


def missed(case: Case, model: orl.Model, kind: Any, delta: float, seed: int) -> Missed:
    """Weigh a log, and compare what is said with the truth."""
    began = time.process_time()
    counter = Counter(model)
    evidence, state, truth = weighed(case, model, kind, delta, seed)
    m = evidence.classes - 1
    calls = counter.stop()
    if state["rejected"][m]:
        return Missed(1, 1, 1, calls, time.process_time() - began)
    lost = 0
    for name, parameter in evidence.parameters(state, m).items():
        value = case.point[name]
        lost |= not any(low - 1e-9 <= value <= high + 1e-9 for low, high in parameter.pieces)
    worlds = evidence.worlds(state)
    policy = worlds.recommend(None)
    true = float(worlds.returns(policy, FiniteWorld(truth.kernels, m, math.nan)).mean())
    low, high = worlds.extremes(lambda world: worlds.returns(policy, world))
    slack = 1e-6 * max(1.0, abs(true))
    outside = not low - slack <= true <= high + slack
    return Missed(0, int(lost), int(outside), calls, time.process_time() - began)


class Counter:
    """Counts how often a model's function is called for a pair."""

    def __init__(self, model: Model) -> None:
        self.calls = 0
        self.model = model
        self.evaluate = model.probability
        model.probability = self.counted  # type: ignore[method-assign]  # undone by stop()

    def counted(self, point: Any, rows: Sequence[int] | None = None) -> Floats:
        """Evaluate, and count."""
        self.calls += len(self.model.pairs) if rows is None else len(rows)
        return self.evaluate(point, rows)

    def stop(self) -> float:
        """Return how often, and stop counting."""
        self.model.probability = self.evaluate  # type: ignore[method-assign]  # as it was
        return float(self.calls)


def share(count: int, runs: int, delta: float) -> str:
    """Return a count, and in brackets the p-value that it is no more than promised, if small."""
    p = binomtest(count, runs, delta, alternative="greater").pvalue
    return f"{count} (p = {p:.1g})" if p < 0.05 else f"{count}"


def kept(size: Size) -> str:
    """Count what is missed, with controls."""
    rows = []
    for name, case in size.some(CASES.items()):
        model = case.model()
        runs = size.seeds(40)
        cells: list[str] = [f"{name} ({len(case.point)})"]
        calls = 0.0
        for delta in DELTAS:

            def job(seed: int, delta: float = delta, case: Case = case, m: Any = model) -> Missed:
                return missed(case, m, ParametricEvidence, delta, seed)

            results = np.array(each(size, runs, job, f"{name}, delta {delta:g}"))
            calls = max(calls, float(results[:, 3].mean()))
            for column in range(3):
                cells.append(share(int(results[:, column].sum()), runs, delta))
        controls = max(1, runs // 5)
        ruled_out = 0
        narrow = np.zeros(2, int)
        for seed in range(controls):
            few = weighed(case, model, FewPoints, 0.05, seed)
            ruled_out += bool(few.state["rejected"][-1])
            one = missed(case, model, Narrow, 0.05, seed)
            narrow += one.parameters, one.worth
        cells.append(" / ".join(f"{count}" for count in (ruled_out, *narrow)) + f" of {controls}")
        cells.append(f"{calls / 1_000:,.0f}")
        rows.append(cells)
    runs = size.seeds(40)
    header = [
        f"model (parameters), {runs} logs",
        "class out, .05",
        "parameter",
        "worth",
        "class out, .5",
        "parameter",
        "worth",
        "controls",
        "thousand calls",
    ]
    return table(header, rows)


WIDTHS = ("shop, 2,000 rows", "wide box", "queue seen while busy", "four parameters")


def widths(size: Size) -> str:
    """Compare ranges with those that hold at one sample size only."""
    rows = []
    for name in size.some(WIDTHS):
        case = CASES[name]
        model = case.model()
        runs = size.seeds(20)
        ratios = []
        allowances = []
        for seed in range(runs):
            evidence, state, _ = weighed(case, model, ParametricEvidence, 0.05, seed)
            m = evidence.classes - 1
            region = evidence.region(state, m)
            top = float(region.likelihoods[0])
            allowances.append(top - region.least)
            fixed = top - 0.5 * float(chi2.ppf(0.95, 1))
            inside = region.likelihoods >= fixed
            narrow = Region(
                region.points[inside],
                region.likelihoods[inside],
                fixed,
                region.free,
                region.likelihood,
            )
            for j in region.free:
                wide = sum(high - low for low, high in region.pieces(j))
                ratios.append(wide / max(sum(b - a for a, b in narrow.pieces(j)), 1e-12))
        rows.append([name, f"{np.mean(allowances):.1f}", f"{np.median(ratios):.1f}"])
    header = ["model", "allowance (nats)", "width, times that of one fixed sample size"]
    return table(header, rows)
