"""The demonstration: ARL-LIN(dim) finds three coordinates out of sixteen while it plays."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from occamrl.analysis.diagnosis import diagnose
from occamrl.learners.baselines import Greedy
from occamrl.models.features import FeatureMap
from occamrl.problems.mixtures import SparseMixture
from occamrl.protocols import Agent
from occamrl.report.figures import compare
from occamrl.running.result import Result
from occamrl.running.run import run
from occamrl.selectors.arl_lin import EXPLOITATION, ARLLinDim
from occamrl.selectors.references import largest, oracle

SEEDS = 3
EPISODES = 100_000


def cast(problem: SparseMixture) -> dict[str, Agent]:
    """Return who plays: the selector and what it is compared with."""
    features, bound = FeatureMap(problem.phi), float(np.linalg.norm(problem.theta))
    selector = ARLLinDim(features=features, norm_bound=bound)
    return {
        "ARL-LIN(dim)": selector,
        "oracle (knows the support)": oracle(selector, problem.theta),
        "all 16 coordinates": largest(selector),
        "Greedy": Greedy(features=features),
    }


def demonstrate(folder: Path, say: Callable[[str], None] = print) -> Path:
    """Run the demonstration, print its tables, write its figure; return the path of the figure."""
    began = time.perf_counter()
    problem = SparseMixture(states=12, actions=4, horizon=6, dimension=16, nonzero=3, gamma=0.5, seed=0)
    say(f"Sparse mixture (S=12, A=4, H=6): 16 candidate coordinates, {list(map(int, problem.support))} are not zero.")
    say(f"{EPISODES:,} episodes, {SEEDS} seeds, V* = {problem.mdp.optimal_value:.4f}\n")
    say(f"  {'agent':<32}{'regret (mean)':>14}{'plans':>9}{'us/episode':>12}")
    played: dict[str, list[Result]] = {}
    for label, agent in cast(problem).items():
        results = [run(agent, problem.mdp, episodes=EPISODES, seed=seed) for seed in range(SEEDS)]
        played[label] = results
        regret, plans = np.mean([result.total_regret for result in results]), np.mean([r.plans for r in results])
        pace = 1e6 * min(result.wall_time for result in results) / EPISODES
        say(f"  {label:<32}{regret:>14,.1f}{plans:>9,.0f}{pace:>12.2f}")
    one = played["ARL-LIN(dim)"][0]
    say("\nARL-LIN(dim), seed 0, epoch by epoch:")
    for line in support_table(one):
        say(line)
    say(f"\n{diagnose(one)}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "demo.png"
    title = f"Regret on the sparse mixture, {SEEDS} seeds"
    compare({title: played}, logarithmic=True).savefig(path, dpi=150)
    say(f"\n{time.perf_counter() - began:.1f} s in all. Figure: {path}")
    return path


def support_table(result: Result) -> list[str]:
    """Return the support found epoch by epoch, one line each."""
    lines = [f"  {'epoch':>5}{'from episode':>14}{'episodes':>10}{'threshold':>11}{'regret':>9}  active coordinates"]
    begin = 1
    for row in result.phases.to_pylist():
        if row["label"] == EXPLOITATION:
            left_out = len(row["estimate"]) - len(row["active"])
            active = row["active"] if len(row["active"]) < 12 else f"all but {left_out}" if left_out else "all"
            facts = f"{row['threshold']:>11.3f}{row['regret']:>9.1f}"
            lines.append(f"  {row['epoch']:>5}{begin:>14,}{row['episodes']:>10,}{facts}  {active}")
        begin += row["episodes"]
    return lines
