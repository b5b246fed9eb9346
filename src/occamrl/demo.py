"""The demonstration: UCRL-VTR-LIN against reference points on two problems, with a table and a figure."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path

import numpy as np

from occamrl.contracts import Learner
from occamrl.families.features import FeatureMap
from occamrl.learners.greedy import Greedy
from occamrl.learners.optimal import Optimal
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.learners.uniform_random import UniformRandom
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.problems.river_swim import RiverSwim
from occamrl.problems.sparse_mixture import SparseMixture
from occamrl.report.figures import compare
from occamrl.runs.loop import run
from occamrl.runs.result import Result

SEEDS = 3


def sparse_mixture_case() -> tuple[str, FiniteMDP, dict[str, Learner], int]:
    """Return the sparse linear mixture: sixteen candidate directions, three of them at work."""
    problem = SparseMixture(states=12, actions=4, horizon=6, dimension=16, nonzero=3, gamma=0.5, seed=0)
    features, bound = FeatureMap(problem.phi), float(np.linalg.norm(problem.theta))
    agents: dict[str, Learner] = {
        "UCRL-VTR-LIN": UCRLVTRLin(features=features, norm_bound=bound),
        "UCRL-VTR-LIN, no weights": UCRLVTRLin(features=features, norm_bound=bound, weights="none"),
        "Greedy": Greedy(features=features),
        "UniformRandom": UniformRandom(),
        "Optimal": Optimal(mdp=problem.mdp),
    }
    return "Sparse mixture (S=12, A=4, H=6, d=16)", problem.mdp, agents, 100_000


def river_swim_case() -> tuple[str, FiniteMDP, dict[str, Learner], int]:
    """Return RiverSwim with one-hot features: d = S^2 A coordinates, and exploration that has to be deep."""
    problem = RiverSwim(states=5, variant="ayoub")
    features = FeatureMap.tabular(states=problem.mdp.states, actions=problem.mdp.actions)
    bound = float(np.sqrt(problem.mdp.states * problem.mdp.actions))
    agents: dict[str, Learner] = {
        "UCRL-VTR-LIN": UCRLVTRLin(features=features, norm_bound=bound),
        "UCRL-VTR-LIN, Ayoub's radius": UCRLVTRLin(
            features=features, norm_bound=bound, radius="ayoub", weights="none", delta=1.0 / 20_000
        ),
        "Greedy": Greedy(features=features),
        "UniformRandom": UniformRandom(),
        "Optimal": Optimal(mdp=problem.mdp),
    }
    return "RiverSwim (S=5, H=20, one-hot)", problem.mdp, agents, 20_000


def demonstrate(folder: Path, say: Callable[[str], None] = print) -> Path:
    """Run the demonstration, print its table, write its figure; return the path of the figure."""
    began = time.perf_counter()
    panels: dict[str, dict[str, list[Result]]] = {}
    for title, mdp, agents, episodes in (sparse_mixture_case(), river_swim_case()):
        say(f"\n{title}: {episodes:,} episodes, {SEEDS} seeds, V* = {mdp.optimal_value:.4f}")
        say(f"  {'agent':<30}{'regret (mean)':>14}{'plans':>9}{'us/episode':>12}")
        panels[title] = {}
        for label, agent in agents.items():
            results = [run(agent, mdp, episodes=episodes, seed=seed) for seed in range(SEEDS)]
            panels[title][label] = results
            regret = np.mean([result.total_regret for result in results])
            plans = np.mean([result.plans for result in results])
            pace = 1e6 * min(result.wall_time for result in results) / episodes
            say(f"  {label:<30}{regret:>14,.1f}{plans:>9,.0f}{pace:>12.2f}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "demo.png"
    compare(panels, logarithmic=True).savefig(path, dpi=150)
    say(f"\n{time.perf_counter() - began:.1f} s in all. Figure: {path}")
    return path


def open_file(path: Path) -> bool:
    """Open a file with the desktop's viewer; return whether there was a desktop to ask."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    return webbrowser.open(path.resolve().as_uri())
