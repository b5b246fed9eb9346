"""The paper's selectors as phases of the compiled learners, which share no code with ``occamrl.paper``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import occamrl as orl
from occamrl._core.arena import field
from occamrl._core.rows import COUNTERS
from occamrl.learners.radii import largest_norm
from occamrl.learners.ucrl_vtr import SUM_OF_SQUARES, USED, enter_rows
from occamrl.protocols import Floats, Known, Phase, PhaseOutcome, Selector

FINITE: dict[str, Any] = {"radius": "paper", "weights": "none", "replan": 0}
LINEAR: dict[str, Any] = {**FINITE, "clip": "horizon", "regularization": 1.0}


def estimate(learner: orl.UCRLVTRLin, known: Known, state: Any) -> tuple[Floats, Floats]:
    """Return theta and Sigma."""
    rows = learner.statistics(known, state)
    sigma = np.eye(rows.xy.size) + rows.gram.reshape(rows.xy.size, -1)
    theta: Floats = np.linalg.solve(sigma, rows.xy).astype(np.float64)
    return theta, sigma


@dataclass(frozen=True, kw_only=True, eq=False)
class Generic(Selector):
    """Algorithm 1; ``losses`` of all members of F_M, from the counts of (member in play, h, s) of every epoch."""

    ladder: orl.Ladder
    delta: float

    def start(self, known: Known) -> dict[str, Any]:
        return {"epoch": 1, "losses": np.zeros(self.ladder.family.size)}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        i, losses = memory["epoch"], memory["losses"]
        least = np.array([losses[:size].min() for size in self.ladder.sizes]) / max(1, (2**i - 2) * known.horizon)
        chosen = 1 + int(np.argmax(least <= least[-1] + math.sqrt(i) / 2 ** (i / 2)))
        learner = orl.UCRLVTR(family=self.ladder.rung(chosen), delta=self.delta / 2**i, **FINITE)
        return Phase(learner, learner.begin(known), episodes=2**i, epoch=i, facts={"chosen": chosen})

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        state, family = outcome.state, self.ladder.family
        enter_rows(phase.learner.model(known), state)
        values, kernels = family.optimal_values(known), [family.kernel(i) for i in range(family.size)]
        used = field(state, COUNTERS)[USED]
        for key, visits, total in zip(state.table_key, state.table_visits, state.table_sum[:used], strict=False):
            rest, s = divmod(int(key), known.states)
            member, h = divmod(rest, known.horizon)
            following = values[member, h + 1]
            a = int((known.base_reward[s] + kernels[member][s] @ following).argmax())
            z = np.array([kernel[s, a] @ following for kernel in kernels])
            memory["losses"] += z * (visits * z - 2.0 * total)
        memory["losses"] += field(state, SUM_OF_SQUARES).sum()
        memory["epoch"] += 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Dimension(Selector):
    """Algorithm 2 with M16."""

    features: orl.FeatureMap
    options: dict[str, Any]  # of the learners
    first: int
    growth: int
    estimation_growth: int
    threshold: float
    shift: int  # 0: the text's rule, 1: the box's

    def learner(self, active: list[int], epoch: int) -> orl.UCRLVTRLin:
        delta, features = self.options["delta"] / 2**epoch, self.features.restrict(active)
        return orl.UCRLVTRLin(**{**self.options, "features": features, "delta": delta}, **LINEAR)

    def start(self, known: Known) -> dict[str, Any]:
        d = self.features.dimension
        return {"epoch": 0, "phase": 0, "theta": np.ones(d), "full": self.learner(list(range(d)), 0).begin(known)}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        i, everything = memory["epoch"], list(range(self.features.dimension))
        if memory["phase"]:
            length = self.estimation_growth**i * math.ceil(math.sqrt(self.first))
            return Phase(self.learner(everything, 0), memory["full"], episodes=length, epoch=i)
        active = [j for j in everything if abs(memory["theta"][j]) >= self.threshold ** (i + self.shift)]
        learner = self.learner(active or everything, i)
        return Phase(learner, learner.begin(known), episodes=self.growth**i * self.first, epoch=i)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        if memory["phase"]:
            memory["full"], memory["epoch"] = outcome.state, memory["epoch"] + 1
            memory["theta"] = estimate(phase.learner, known, outcome.state)[0]
        memory["phase"] = 1 - memory["phase"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Norm(Selector):
    """Algorithm 3 with M19."""

    features: orl.FeatureMap
    norm_bound: float
    delta: float
    paper_constant: float
    first: int

    def start(self, known: Known) -> dict[str, Any]:
        return {"epoch": 1, "bound": self.norm_bound}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        i, bound = memory["epoch"], memory["bound"]
        learner = orl.UCRLVTRLin(
            features=self.features, norm_bound=bound, delta=self.delta / 2 ** (i - 1),
            paper_constant=self.paper_constant, **LINEAR,
        )  # fmt: skip
        facts = {"norm_bound": bound}
        return Phase(learner, learner.begin(known), episodes=2 ** (i - 1) * self.first, epoch=i, facts=facts)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        k, H, d, learner = outcome.episodes, known.horizon, self.features.dimension, phase.learner
        theta, sigma = estimate(learner, known, outcome.state)
        noise = H**2 * d * math.log(k * H) * math.log(k**2 * H / learner.delta) ** 2
        beta = self.paper_constant * (learner.norm_bound**2 + noise)
        memory["bound"], memory["epoch"] = largest_norm(theta, sigma, beta).norm, memory["epoch"] + 1
