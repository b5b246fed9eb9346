"""Real parameters: whether the truth is kept where likelihoods have steps, modes and edges.

    python -m studies.figures --part truth:widths
    python -m studies.figures --part truth:kept --seeds 20

Every row is a model and a truth that is in it; logs are of random actions, of one action in the
first half of an episode and another after it, or of one action in each state. Three promises are
counted: the true class is not ruled out, each range of a parameter holds its value, the range of
what a policy earns holds what it earns. Controls are a search of three points, and a region of .02
nats. What version 0.3 missed on the same models is counted by :mod:`studies.before`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest, chi2

import occamrl as orl
from occamrl.evidence.cloud import Fit
from occamrl.evidence.parametric import ParametricEvidence, ParametricState
from occamrl.evidence.region import Region
from occamrl.evidence.worlds import FiniteWorld
from occamrl.models.model import Model
from occamrl.protocols import Floats
from occamrl.running.flow import simulate
from studies.figures import Size, each, table
from studies.truth_models import CASES, Case, behaviour

SETTINGS = (("random", 0.05), ("random", 0.5), ("by step", 0.5), ("one each", 0.5))
CONTROLLED = ("random", "by step")
RUNS = 40


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


class Setting(NamedTuple):
    """What a log is of, and how it is weighed."""

    case: Case
    model: orl.Model
    behaviour: str
    delta: float
    kind: type[ParametricEvidence] = ParametricEvidence


def weighed(setting: Setting, seed: int) -> Weighed:
    """Return the evidence of a log, a tenth of the episodes before at a time."""
    case, model, behaves, delta, kind = setting
    truth = model.mdp(**case.point)
    draw = np.random.default_rng([35, seed])
    allowed = truth.known.allowed.astype(float)
    policy = behaviour(behaves, allowed, truth.horizon, case.never)
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


def missed(setting: Setting, seed: int) -> Missed:
    """Weigh a log, and compare what is said with the truth."""
    began = time.process_time()
    case = setting.case
    counter = Counter(setting.model)
    evidence, state, truth = weighed(setting, seed)
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


def counted(size: Size, setting: Setting, label: str) -> tuple[str, float]:
    """Return what is missed in some logs, in words, and how often the model was asked."""
    runs = size.seeds(RUNS)

    def job(seed: int) -> Missed:
        return missed(setting, seed)

    results = np.array(each(size, runs, job, label))
    cells = [share(int(results[:, column].sum()), runs, setting.delta) for column in range(3)]
    return " / ".join(cells), float(results[:, 3].mean())


def controls(size: Size, case: Case, model: orl.Model, behaves: str) -> str:
    """Return how often a search of three points, and a narrow region, miss."""
    runs = max(1, size.seeds(RUNS) // 5)
    few = Setting(case, model, behaves, 0.05, FewPoints)
    narrow = Setting(case, model, behaves, 0.05, Narrow)
    counts = np.zeros(3, int)
    for seed in range(runs):
        one = missed(narrow, seed)
        ruled_out = bool(weighed(few, seed).state["rejected"][-1])
        counts += [ruled_out, one.parameters, one.worth]
    return f"{' / '.join(map(str, counts.tolist()))} of {runs}"


def kept(size: Size) -> str:
    """Count what is missed - class, parameter, worth - with controls."""
    rows = []
    for name, case in size.some(CASES.items()):
        model = case.model()
        cells = [f"{name} ({len(case.point)})"]
        most = 0.0
        for behaves, delta in SETTINGS:
            setting = Setting(case, model, behaves, delta)
            cell, calls = counted(size, setting, f"{name}, {behaves}, delta {delta:g}")
            cells.append(cell)
            most = max(most, calls)
        cells += [controls(size, case, model, behaves) for behaves in CONTROLLED]
        rows.append([*cells, f"{most / 1_000:,.0f}"])
    header = [f"class / parameter / worth missed in {size.seeds(RUNS)} logs"]
    header += [f"{behaves}, {delta:g}" for behaves, delta in SETTINGS]
    header += [f"controls, {behaves}" for behaves in CONTROLLED]
    return table([*header, "thousand calls"], rows)


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
            evidence, state, _ = weighed(Setting(case, model, "random", 0.05), seed)
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
