"""Rival learners alone, for docs/rivals.md (:mod:`benchmarks.figures`)."""

from __future__ import annotations

import math
from typing import Any

import occamrl as orl
from benchmarks.figures import Size, interval, table
from occamrl.protocols import Agent


def river_swim(size: Size) -> str:
    """Measure base learners on RiverSwim with five states: published constants, and round factors of them."""
    problem, full = orl.make_problem("river-swim", states=5), 10_000
    episodes, features = size.episodes(full), orl.FeatureMap.tabular(states=5, actions=2)
    linear: dict[str, Any] = {"features": features, "norm_bound": math.sqrt(10.0)}
    agents: dict[str, tuple[str, Agent]] = {
        "UniformRandom": ("none", orl.UniformRandom()),
        "UCBVI, Hoeffding": ("valid", orl.UCBVI(episodes=full, bonus="hoeffding")),
        "UCBVI, Hoeffding, scale 0.01": ("scaled", orl.UCBVI(episodes=full, bonus="hoeffding", scale=0.01)),
        "UCBVI, Bernstein": ("valid", orl.UCBVI(episodes=full)),
        "UCBVI, Bernstein, scale 0.1": ("scaled", orl.UCBVI(episodes=full, scale=0.1)),
        "QLearningUCB": ("valid, c left open", orl.QLearningUCB(episodes=full)),
        "QLearningUCB, scale 0.01": ("scaled", orl.QLearningUCB(episodes=full, scale=0.01)),
        "RLSVI": ("of its form per step", orl.RLSVI()),
        "RLSVI, scale 0.01": ("scaled", orl.RLSVI(scale=0.01)),
        "UCRLVTRPlus": ("of its form per step", orl.UCRLVTRPlus(**linear)),
        "UCRLVTRLin": ("valid", orl.UCRLVTRLin(**linear)),
        "UCRLVTRLin, scale 0.1": ("scaled", orl.UCRLVTRLin(**linear, scale=0.1)),
        "PSRL": ("on average over its prior", orl.PSRL()),
        "LinPSRL": ("none", orl.LinPSRL(features=features)),
        "Greedy": ("none", orl.Greedy(features=features)),
    }
    rows = []
    for name, (guarantee, agent) in agents.items():
        results = [
            orl.run(agent, problem, episodes=episodes, seed=seed, progress=False) for seed in range(size.seeds(3))
        ]
        late = sum(result.pessimistic_episodes for result in results) / (episodes * len(results))
        rows.append((name, guarantee, interval([result.total_regret for result in results]), f"{100.0 * late:.0f} %"))
    return table(("K = 10,000, 3 seeds", "guarantee", "regret", "pessimistic plans"), rows)
