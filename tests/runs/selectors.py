"""Two selectors as people will write them: one hands out phases, one picks a base learner anew every episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.protocols import EpisodeLearner, Known, Learner, Phase, PhaseOutcome, Selector


@dataclass(frozen=True, kw_only=True, eq=False)
class Widening(Selector):
    """Phases that double; each learner goes on from what all earlier ones have seen, with a smaller delta."""

    features: FeatureMap
    first: int = 8

    def _learner(self, epoch: int) -> UCRLVTRLin:
        return UCRLVTRLin(features=self.features, norm_bound=2.0, delta=0.1 / 2**epoch, scale=0.3)

    def start(self, known: Known) -> dict[str, Any]:
        return {"epoch": 0, "pooled": None, "state": None, "estimate": None, "told": []}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        epoch = memory["epoch"]
        learner = self._learner(epoch)
        if memory["state"] is None:
            state = learner.begin(known, memory["pooled"])
            memory["state"], memory["estimate"] = state, state.theta[:2].copy()
        facts = {"delta": learner.delta, "estimate": memory["estimate"]}
        return Phase(learner, memory["state"], episodes=self.first * 2**epoch, epoch=epoch, label="widen", facts=facts)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        memory["pooled"] = self._learner(memory["epoch"]).statistics(known, outcome.state)
        memory["told"].append([outcome.episodes, outcome.plans, outcome.total_return])
        memory["state"] = None
        memory["epoch"] += 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Leader(Selector):
    """Follow the base with the best mean return, after a few episodes of each; bases keep their states."""

    bases: tuple[Learner | EpisodeLearner, ...]
    trial: int = 3

    def start(self, known: Known) -> dict[str, Any]:
        states = [base.begin(known) for base in self.bases]
        return {"states": states, "played": [0] * len(states), "returned": [0.0] * len(states), "chosen": []}

    def _choose(self, memory: dict[str, Any]) -> int:
        for i, played in enumerate(memory["played"]):
            if played < self.trial:
                return i
        means = np.array(memory["returned"]) / np.array(memory["played"])
        return int(means.argmax())

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        i = self._choose(memory)
        return Phase(self.bases[i], memory["states"][i], episodes=1, label=f"base {i}", facts={"chosen": i + 1})

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        i = self._choose(memory)
        memory["states"][i] = outcome.state
        memory["played"][i] += outcome.episodes
        memory["returned"][i] += outcome.total_return
        memory["chosen"].append(i)
