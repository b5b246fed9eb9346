"""The demonstration: which model a slippery lake needs, and which of sixteen features matter."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from occamrl.models.features import FeatureMap
from occamrl.models.ladder import Ladder
from occamrl.problems.lakes import FrozenLake
from occamrl.problems.mixtures import SparseMixture
from occamrl.protocols import Agent, Problem
from occamrl.report.compare import Comparison, compare
from occamrl.selectors.arl_gen import ARLGen
from occamrl.selectors.arl_lin import ARLLinDim
from occamrl.selectors.occam import Occam
from occamrl.selectors.references import largest, oracle

SEEDS = 3
EPISODES = {"lake": 2_000, "mixture": 100_000}


def lake() -> tuple[FrozenLake, dict[str, Agent], int]:
    """Return FrozenLake, who plays there, and for how many episodes."""
    problem = FrozenLake(slip=(6, 6))
    ladder = Ladder.of_problem(problem)
    agents: dict[str, Agent] = {
        "Occam": Occam(ladder=ladder),
        "ARL-GEN": ARLGen(ladder=ladder),
        "largest class": largest(ladder),
        "oracle (knows the class)": oracle(ladder, 2),
    }
    return problem, agents, EPISODES["lake"]


def mixture() -> tuple[SparseMixture, dict[str, Agent], int]:
    """Return a sparse mixture, who plays there, and for how many episodes."""
    problem = SparseMixture(states=12, actions=4, horizon=6, dimension=16, nonzero=3, gamma=0.5, seed=0)
    selector = ARLLinDim(features=FeatureMap(problem.phi), norm_bound=float(np.linalg.norm(problem.theta)))
    agents: dict[str, Agent] = {
        "ARL-LIN(dim)": selector,
        "all 16 features": largest(selector),
        "oracle (knows the features)": oracle(selector, problem.theta),
    }
    return problem, agents, EPISODES["mixture"]


def demonstrate(folder: Path, say: Callable[[str], None] = print) -> Path:
    """Run the demonstration, print its tables, write its figure; return the path of the figure."""
    from matplotlib.figure import Figure

    began = time.perf_counter()
    figure = Figure(figsize=(11.2, 4.2), layout="constrained")
    problems: list[tuple[str, tuple[Problem, dict[str, Agent], int]]] = [
        ("FrozenLake 4x4: how slippery is the ice? 1, 11 or 231 candidate models.", lake()),
        ("A sparse mixture: which of 16 candidate features matter?", mixture()),
    ]
    for axes, (question, (problem, agents, episodes)) in zip(figure.subplots(1, 2), problems, strict=True):
        say(question)
        found: Comparison = compare(agents, problem, episodes=episodes, seeds=SEEDS)
        say(str(found))
        name = next(iter(agents))
        say(f"{name}, seed 0:")
        say("".join(f"  {sentence}\n" for sentence in found.results[name][0].verdict.sentences))
        found.plot(axes, logarithmic=True)
        axes.set_title(question, loc="left", fontsize="medium")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "demo.png"
    figure.savefig(path, dpi=150)
    say(f"{time.perf_counter() - began:.1f} s in all, compilation included where it was needed. Figure: {path}")
    return path
