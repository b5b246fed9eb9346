"""ARL-GEN with a test at the beginning of each epoch (M13-M15)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl._core.rows import RowTable, copy_rows, row_table, with_room
from occamrl.learners.finite_report import enter_rows, losses_of, start_from_rows
from occamrl.learners.finite_rows import IMPOSSIBLE, ROWS, FiniteModel
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.models.finite import level, off_grid
from occamrl.models.ladder import Ladder
from occamrl.protocols import Floats, Known, Phase, PhaseOutcome
from occamrl.selectors._ladder_facts import Test, facts


@dataclass(frozen=True, kw_only=True, eq=False)
class LadderEpochs:
    """Epochs i = 1, 2, ... of 2^i episodes on the smallest class accepted at their beginning."""

    ladder: Ladder
    delta: float
    rule: str
    data: str
    start_class: int
    radius: str
    weights: str
    replan: float
    scale: float
    slack: float

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data: all rows of earlier epochs, by (member, h, s)."""
        return {
            "epoch": 1,
            "episodes": 0,
            "table": row_table(256),
            "squares": 0.0,
            "chosen": 0,
            "since": 1,
            "impossible": 0,
        }

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Test the classes on all rows so far, and play the smallest that is accepted."""
        i, table = memory["epoch"], memory["table"]
        model = self._learner(self.ladder.classes, self.delta).model(known)
        test = self._test(model, memory, known.horizon)
        delta = self.delta / 2**i if self.data == "fresh" else self.delta
        learner = self._learner(test.chosen, delta)
        state = memory.pop("state", None)
        if state is None or test.chosen != memory["chosen"]:
            state = learner.begin(known)
            if self.data == "pooled" and memory["episodes"]:
                state = learner.reserve(state, 0)._replace(table=table)
                start_from_rows(learner.model(known), state, table, memory["squares"], memory["episodes"])
        if test.chosen != memory["chosen"]:
            memory["chosen"], memory["since"] = test.chosen, memory["episodes"] + 1
        mine = learner.model(known)
        beta = mine.slack + mine.stretch * off_grid(mine.reach, float(state.counters[ROWS]), delta)
        found = facts(test, model, table, self.ladder.sizes, self.delta) | {"beta": beta, "since": memory["since"]}
        return Phase(learner, state, 2**i, epoch=i, label=f"F_{test.chosen}", facts=found)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Keep the rows of the epoch."""
        state = outcome.state
        enter_rows(phase.learner.model(known), state)
        memory["epoch"] += 1
        memory["episodes"] += outcome.episodes
        memory["impossible"] = max(memory["impossible"], int(state.counters[IMPOSSIBLE]))
        if self.data == "pooled":
            memory["table"], memory["squares"], memory["state"] = state.table, float(state.squares[0]), state
            return
        memory["table"] = with_room(memory["table"], int(state.table.used[0]))
        copy_rows(state.table, memory["table"])
        memory["squares"] += float(state.squares[0])

    def _learner(self, m: int, delta: float) -> UCRLVTR:
        return UCRLVTR(
            family=self.ladder.rung(m),
            delta=delta,
            radius=self.radius,
            weights=self.weights,
            replan=self.replan,
            scale=self.scale,
        )

    def _test(self, model: FiniteModel, memory: dict[str, Any], horizon: int) -> Test:
        if not memory["episodes"]:
            return Test(np.zeros(self.ladder.classes), math.nan, self.start_class, best=0, squares=0.0, steps=0)
        losses, best = self.smallest_losses(model, memory["table"])
        steps = memory["episodes"] * horizon
        rows = float(memory["table"].visits.sum())
        bound = losses[-1] + self.slack * self.allowance(model, memory["epoch"], steps, rows)
        chosen = 1 + int(np.argmax(losses <= bound))
        return Test(losses, float(bound), chosen, best, memory["squares"], steps, memory["impossible"] > 0)

    def smallest_losses(self, model: FiniteModel, table: RowTable) -> tuple[Floats, int]:
        """Return min over F_m of L(P) (less sum y^2) for every m, and the best kernel of all (M13)."""
        losses = losses_of(model, table, self.ladder.family.size, 0)[0]
        least = np.full(self.ladder.classes, np.inf)
        np.minimum.at(least, self.ladder.level, losses)
        return np.minimum.accumulate(least), int(np.argmin(losses))

    def allowance(self, model: FiniteModel, epoch: int, steps: int, rows: float) -> float:
        """Return how far L(Phat_m) may lie above L(Phat_M): M14 (times tau H), or M15 with the term of a cover."""
        if self.rule == "paper":
            return steps * math.sqrt(epoch) / 2 ** (epoch / 2)
        size, reach = self.ladder.family.size, self.ladder.grid
        noise = 0.5 * math.log(size / level(reach, self.delta))
        return float(model.unit) ** 2 * (noise + off_grid(reach, rows, self.delta))
