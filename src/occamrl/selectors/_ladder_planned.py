"""ARL-GEN on a ladder of finite families with unknown rewards or one kernel per step: tests at epochs or at any time.

The losses of all members are kept step by step, so every test is read off them. A class is accepted when it is at every
step: with one kernel per step the true class is the smallest that holds all of them. Rewards take no part in a test:
the targets of its rows are values alone, which were fixed before the outcome (M13-M15 ask for no more).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.learners._planned import PlannedRung
from occamrl.learners.finite_planned import CLASS, CLASS_SINCE, EPISODES, PlannedModel, enter_rows, thresholds
from occamrl.learners.rewards import RewardRows, Rewards, copy_rewards
from occamrl.learners.ucrl_vtr_nested import UCRLVTRNested
from occamrl.models.finite import level, off_grid
from occamrl.models.ladder import Ladder
from occamrl.protocols import Floats, Known, Phase, PhaseOutcome


@dataclass(frozen=True, kw_only=True, eq=False)
class LadderPlanned:
    """Epochs i = 1, 2, ... of 2^i episodes, on the smallest class accepted at their beginning or at every plan."""

    ladder: Ladder
    delta: float
    rule: str
    data: str
    test: str
    start_class: int
    weights: str
    replan: float
    scale: float
    slack: float
    safe: bool
    guard: bool
    rewards: Rewards
    kernel: str

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data."""
        state = self._rung(1, self.delta).begin(known)
        rows = {"losses": state.loss, "rows": state.rows, "squares": 0.0, "rewards": None}
        anytime = {"state": self._nested().begin(known)} if self.test == "anytime" else {}
        return {"epoch": 1, "episodes": 0, "chosen": 0, "since": 1, **rows, **anytime}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Test the classes on all rows so far, and play the smallest that is accepted."""
        i, tau = memory["epoch"], memory["episodes"]
        model = self._rung(self.ladder.classes, self.delta).model(known)
        least = self.smallest_losses(memory["losses"])
        bounds = self._bounds(known, model, memory, least)
        accepted = (least <= bounds).all(axis=1) if self.rule == "sharp" else least.sum(axis=1) <= bounds.sum()
        chosen = 1 + int(np.argmax(accepted)) if tau else self.start_class
        if self.test == "anytime":
            learner: Any = self._nested()
            state = memory.pop("state")
            chosen = int(state.counters[CLASS]) + 1
            memory["since"] = max(1, int(state.counters[CLASS_SINCE]))
        else:
            if chosen != memory["chosen"]:
                memory["since"] = tau + 1
            learner = self._rung(chosen, self.delta / 2**i if self.data == "fresh" else self.delta)
            state = learner.begin(known)
            if self.data == "pooled" and tau:
                state.loss[:], state.rows[:] = memory["losses"], memory["rows"]
                state.counters[EPISODES] = tau
                if isinstance(state.rewards, RewardRows):
                    copy_rewards(memory["rewards"], state.rewards)
        memory["chosen"] = chosen
        scale, squares = 1.0 / max(1, tau * known.horizon), memory["squares"]
        facts = {
            "chosen": chosen,
            "statistics": [float(scale * (loss + squares)) if tau else 0.0 for loss in least.sum(axis=1)],
            "threshold": float(scale * (bounds.sum() + squares)) if tau else None,
            "margin": float((bounds - least[chosen - 1]).min()) if tau else None,
            "beta": float(model.slack),
            "since": memory["since"],
        }
        return Phase(learner, state, 2**i, epoch=i, label=f"F_{chosen}", facts=facts)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Keep what the epoch taught."""
        state = outcome.state
        enter_rows(phase.learner.model(known), state)
        fresh = self.data == "fresh"
        memory["losses"] = memory["losses"] + state.loss if fresh else np.array(state.loss)
        memory["rows"] = memory["rows"] + state.rows if fresh else np.array(state.rows)
        memory["squares"] = float(state.squares.sum()) + (0.0 if self.test == "anytime" else memory["squares"])
        memory["rewards"] = state.rewards if isinstance(state.rewards, RewardRows) else None
        memory["episodes"] += outcome.episodes
        memory["epoch"] += 1
        if self.test == "anytime":
            memory["state"] = state

    def smallest_losses(self, losses: Floats) -> Floats:
        """Return min over F_m of L_t(P), less sum y^2, for every class and step [M, T] (M13)."""
        least = np.full((self.ladder.classes, losses.shape[0]), np.inf)
        np.minimum.at(least, self.ladder.level, losses.T)
        return np.asarray(np.minimum.accumulate(least))

    def _bounds(self, known: Known, model: PlannedModel, memory: dict[str, Any], least: Floats) -> Floats:
        """Return what a class may lose at each step: M14, M15, or M22 of the set at any time."""
        if self.test == "anytime":
            return thresholds(self._nested().model(known), memory["losses"], memory["rows"])
        if self.rule == "paper":
            epoch, steps = memory["epoch"], memory["episodes"] * known.horizon
            return np.asarray(least[-1] + self.slack * steps * math.sqrt(epoch) / 2 ** (epoch / 2) / least.shape[1])
        # (U^2/2) log(|F_M| T/delta), and the term of a cover for the rows of each step
        noise = 0.5 * math.log(self.ladder.family.size / level(model.reach, model.delta))
        between = np.array([off_grid(model.reach, float(rows), model.delta) for rows in memory["rows"]])
        return np.asarray(least[-1] + self.slack * model.unit**2 * (noise + between))

    def _rung(self, m: int, delta: float) -> PlannedRung:
        return PlannedRung(
            ladder=self.ladder,
            m=m,
            delta=delta,
            weights=self.weights,
            replan=self.replan,
            scale=self.scale,
            rewards=self.rewards,
            kernel=self.kernel,
        )

    def _nested(self) -> UCRLVTRNested:
        return UCRLVTRNested(
            ladder=self.ladder,
            delta=self.delta,
            weights=self.weights,
            replan=self.replan,
            scale=self.scale,
            safe=self.safe,
            guard=self.guard,
            rewards=self.rewards,
            kernel=self.kernel,
        )
