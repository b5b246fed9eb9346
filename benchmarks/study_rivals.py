"""Rival learners alone, for docs/rivals.md (:mod:`benchmarks.figures`)."""

from __future__ import annotations

import math
from typing import Any

import occamrl as orl
from benchmarks.figures import Size, interval, table
from occamrl.protocols import Agent


def compare(agents: dict[str, tuple[str, Agent]], episodes: int, size: Size) -> str:
    """Return the regret of agents on RiverSwim with five states."""
    problem, rows = orl.make_problem("river-swim", states=5), []
    played, seeds = size.episodes(episodes), range(size.seeds(3))
    for name, (guarantee, agent) in agents.items():
        results = [orl.run(agent, problem, episodes=played, seed=seed, progress=False) for seed in seeds]
        late = sum(result.pessimistic_episodes for result in results) / (played * len(results))
        rows.append((name, guarantee, interval([result.total_regret for result in results]), f"{100.0 * late:.0f} %"))
    return table((f"K = {episodes:,}, 3 seeds", "guarantee", "regret", "pessimistic plans"), rows)


def river_swim(size: Size) -> str:
    """Measure tabular learners: published constants, and round factors of them."""
    K, features = 10_000, orl.FeatureMap.tabular(states=5, actions=2)
    linear: dict[str, Any] = {"features": features, "norm_bound": math.sqrt(10.0)}
    agents: dict[str, tuple[str, Agent]] = {
        "UniformRandom": ("none", orl.UniformRandom()),
        "UCBVI, Hoeffding": ("valid", orl.UCBVI(episodes=K, bonus="hoeffding")),
        "UCBVI, Hoeffding, scale 0.01": ("scaled", orl.UCBVI(episodes=K, bonus="hoeffding", scale=0.01)),
        "UCBVI, Bernstein": ("valid", orl.UCBVI(episodes=K)),
        "UCBVI, Bernstein, scale 0.1": ("scaled", orl.UCBVI(episodes=K, scale=0.1)),
        "QLearningUCB": ("valid, c left open", orl.QLearningUCB(episodes=K)),
        "QLearningUCB, scale 0.01": ("scaled", orl.QLearningUCB(episodes=K, scale=0.01)),
        "RLSVI": ("of its form per step", orl.RLSVI()),
        "RLSVI, scale 0.01": ("scaled", orl.RLSVI(scale=0.01)),
        "UCRLVTRLin": ("valid", orl.UCRLVTRLin(**linear)),
        "UCRLVTRLin, scale 0.1": ("scaled", orl.UCRLVTRLin(**linear, scale=0.1)),
        "PSRL": ("on average over its prior", orl.PSRL()),
        "Greedy": ("none", orl.Greedy(features=features)),
    }
    return compare(agents, K, size)


def linear_river_swim(size: Size) -> str:
    """Measure learners of linear kernels in plain NumPy, on one-hot features."""
    features = orl.FeatureMap.tabular(states=5, actions=2)
    agents: dict[str, tuple[str, Agent]] = {
        "UniformRandom": ("none", orl.UniformRandom()),
        "UCRLVTRPlus": ("of its form per step", orl.UCRLVTRPlus(features=features, norm_bound=math.sqrt(10.0))),
        "UCRLVTRLin": ("valid", orl.UCRLVTRLin(features=features, norm_bound=math.sqrt(10.0))),
        "LinPSRL": ("none", orl.LinPSRL(features=features)),
    }
    return compare(agents, 1_000, size)
