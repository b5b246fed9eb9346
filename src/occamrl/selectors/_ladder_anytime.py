"""ARL-GEN with a test at any time (M25): phases of doubling length report what the learner decides by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.learners.finite_report import losses_of, smallest_losses, test_now
from occamrl.learners.finite_rows import CLASS, CLASS_SINCE, EPISODES, IMPOSSIBLE
from occamrl.learners.ucrl_vtr_nested import UCRLVTRNested
from occamrl.models.ladder import Ladder
from occamrl.protocols import Known, Phase, PhaseOutcome
from occamrl.selectors._ladder_facts import Test, facts, plain


@dataclass(frozen=True, kw_only=True, eq=False)
class LadderAnytime:
    """One learner for the whole run; at the beginning of each phase the classes are tested and the facts written."""

    ladder: Ladder
    learner: UCRLVTRNested

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data."""
        return {"epoch": 1, "state": self.learner.begin(known)}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Go on, for twice as many episodes as before."""
        i, state = memory["epoch"], memory.pop("state")
        model = self.learner.model(known)
        episodes = int(state.counters[EPISODES])
        least, best, bound, slack = np.zeros(self.ladder.classes), 0, float("nan"), float(model.slack)
        if episodes:
            bound = float(test_now(model, state))
            least, best = smallest_losses(state, self.ladder.level, self.ladder.classes)
            slack = bound - float(least[-1])
        chosen = int(state.counters[CLASS]) + 1
        if episodes and chosen > 1:  # the classes rejected have no kernel left that could tell
            size = self.ladder.sizes[chosen - 2]
            rejected = np.full(chosen - 1, np.inf)
            np.minimum.at(rejected, self.ladder.level[:size], losses_of(model, state.table, size, best)[0])
            least[: chosen - 1] = np.minimum.accumulate(rejected)
        test = Test(
            losses=least,
            threshold=bound,
            chosen=chosen,
            best=best,
            squares=float(state.squares[0]),
            steps=episodes * known.horizon,
            impossible=bool(state.counters[IMPOSSIBLE] > 0),
        )
        found = facts(test, model, state.table, self.ladder.sizes, self.learner.delta)
        found |= {"beta": plain(slack), "since": max(1, int(state.counters[CLASS_SINCE]))}
        return Phase(self.learner, state, 2**i, epoch=i, label=f"F_{chosen}", facts=found)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Keep the learner's state."""
        memory["epoch"] += 1
        memory["state"] = outcome.state
