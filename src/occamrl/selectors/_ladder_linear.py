"""ARL-GEN on a ladder of linear classes: epochs, with the linear form of M15 on range-weighted rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.contracts import Floats, Known, Phase, PhaseOutcome
from occamrl.families.linear import LinearLadder
from occamrl.learners._recorded import Recorded, record_now
from occamrl.learners.reward_rows import RewardRows
from occamrl.learners.rewards import Rewards
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin


@dataclass(frozen=True, kw_only=True, eq=False)
class LadderLinear:
    """Epochs i = 1, 2, ... of 2^i episodes of UCRL-VTR-LIN on the smallest class accepted at their beginning."""

    ladder: LinearLadder
    delta: float
    data: str
    start_class: int
    replan: float
    scale: float
    slack: float
    regularization: float = 1.0
    rewards: Rewards = "known"
    kernel: str = "stationary"

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data: the rows of all epochs in the full dimension, step by step."""
        d, steps = self.ladder.features.dimension, self._recorded(1, self.delta).full.steps(known)
        rows = {"gram": np.zeros((steps, d, d)), "xy": np.zeros((steps, d)), "squares": 0.0, "rewards": None}
        return {"epoch": 1, "episodes": 0, "chosen": 0, "since": 1, **rows}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Test the classes on all rows so far, and play the smallest that is accepted."""
        i, tau = memory["epoch"], memory["episodes"]
        chosen = self.start_class
        facts: dict[str, object] = {"statistics": [0.0] * self.ladder.classes, "threshold": None, "margin": None}
        if tau:
            losses, bounds = self.losses(memory), self.bounds(known, memory)
            accepted = (losses <= bounds).all(axis=1)  # at every step
            chosen = 1 + int(np.argmax(accepted)) if accepted.any() else self.ladder.classes
            scale = 1.0 / (tau * known.horizon)
            facts = {
                "statistics": [float(scale * (loss + memory["squares"])) for loss in losses.sum(axis=1)],
                "threshold": float(scale * (bounds.sum() + memory["squares"])),
                "margin": float((bounds - losses[chosen - 1]).min()),
            }
        if chosen != memory["chosen"]:
            memory["chosen"], memory["since"] = chosen, tau + 1
        learner = self._recorded(chosen, self.delta / 2**i if self.data == "fresh" else self.delta)
        statistics = None
        if self.data == "pooled" and tau:
            basis = self.ladder.rungs[chosen - 1].basis
            rows = [(basis.T @ gram @ basis, basis.T @ xy) for gram, xy in zip(*self._rows(memory), strict=True)]
            gram, xy = (np.concatenate([np.ravel(part) for part in parts]) for parts in zip(*rows, strict=True))
            statistics = LinearStatistics(gram, xy, tau, len(rows), memory["rewards"])
        state = learner.begin(known, statistics)
        found = {"chosen": chosen, **facts, "since": memory["since"]}
        return Phase(learner, state, 2**i, epoch=i, label=f"F_{chosen}", facts=found)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Keep the rows of the epoch."""
        state = outcome.state
        record_now(phase.learner.model(known), state)
        memory["gram"] = memory["gram"] + state.gram
        memory["xy"] = memory["xy"] + state.xy
        memory["squares"] += float(state.squares[0])
        memory["rewards"] = state.inner.rewards if isinstance(state.inner.rewards, RewardRows) else None
        memory["episodes"] += outcome.episodes
        memory["epoch"] += 1

    @staticmethod
    def _rows(memory: dict[str, Any]) -> tuple[list[Floats], list[Floats]]:
        return list(memory["gram"]), list(memory["xy"])

    def losses(self, memory: dict[str, Any]) -> Floats:
        """Return min over F_m of L, less sum y^2, for every m and step [M, T]."""
        rows = list(zip(*self._rows(memory), strict=True))
        return np.array([[rung.smallest_loss(gram, xy) for gram, xy in rows] for rung in self.ladder.rungs])

    def bounds(self, known: Known, memory: dict[str, Any]) -> Floats:
        """Return L_lambda(theta_M) + (1/4)(logdet(Sigma_M/lambda) + 2 log(1/delta)), less sum y^2, by step (M15)."""
        basis, lam = self.ladder.rungs[-1].basis, self.regularization
        level = math.log(1.0 / self._recorded(1, self.delta).full.level(known))
        found = []
        for gram, xy in zip(*self._rows(memory), strict=True):
            own, right = basis.T @ gram @ basis, basis.T @ xy
            sigma = own / lam + np.eye(len(right))
            fit = -float(right @ np.linalg.solve(sigma, right)) / lam
            found.append(fit + self.slack * 0.25 * (float(np.linalg.slogdet(sigma)[1]) + 2.0 * level))
        return np.array(found)

    def _recorded(self, m: int, delta: float) -> Recorded:
        common: dict[str, Any] = {
            "delta": delta,
            "replan": self.replan,
            "scale": self.scale,
            "rewards": self.rewards,
            "kernel": self.kernel,
        }
        rung, full = self.ladder.rungs[m - 1], self.ladder.rungs[-1]
        return Recorded(
            learner=UCRLVTRLin(features=rung.own_features, norm_bound=rung.norm_bound, **common),
            full=UCRLVTRLin(features=full.features, norm_bound=full.norm_bound, **common),
        )
