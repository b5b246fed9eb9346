"""The demonstration: ARL-LIN(dim) finds three coordinates out of sixteen while it plays."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from occamrl.analysis.diagnosis import diagnose
from occamrl.learners.baselines import Greedy
from occamrl.models.features import FeatureMap
from occamrl.problems.mixtures import SparseMixture
from occamrl.protocols import Agent
from occamrl.report.figures import COLOURS, STYLES, mean_curve
from occamrl.running.result import Result, dress
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
    draw(problem, played).savefig(path, dpi=150)
    say(f"\n{time.perf_counter() - began:.1f} s in all. Figure: {path}")
    return path


def exploitation(result: Result) -> list[tuple[int, dict[str, Any]]]:
    """Return the exploitation phases of a run, each with the episode at which it begins."""
    begin, found = 1, []
    for row in result.phases.to_pylist():
        if row["label"] == EXPLOITATION:
            found.append((begin, row))
        begin += row["episodes"]
    return found


def support_table(result: Result) -> list[str]:
    """Return the support found epoch by epoch, one line each."""
    lines = [f"  {'epoch':>5}{'from episode':>14}{'episodes':>10}{'threshold':>11}{'regret':>9}  active coordinates"]
    for begin, row in exploitation(result):
        active = row["active"] if len(row["active"]) < 12 else f"all but {len(row['estimate']) - len(row['active'])}"
        active = "all" if active == "all but 0" else active
        facts = f"{row['threshold']:>11.3f}{row['regret']:>9.1f}"
        lines.append(f"  {row['epoch']:>5}{begin:>14,}{row['episodes']:>10,}{facts}  {active}")
    return lines


def draw(problem: SparseMixture, played: dict[str, Sequence[Result]] | dict[str, list[Result]]) -> Any:
    """Draw the regret curves, and which coordinates were active when."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 4.6), layout="constrained")
    curves, map_ = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
    dress(curves, f"Regret on the sparse mixture, {SEEDS} seeds")
    for i, (label, results) in enumerate(played.items()):
        episodes, mean, low, high = mean_curve(results)
        curves.plot(episodes, mean, color=COLOURS[i], linestyle=STYLES[i], label=label)
        curves.fill_between(episodes, low, high, color=COLOURS[i], alpha=0.15, linewidth=0)
    curves.set_xscale("log")
    curves.set_yscale("symlog", linthresh=1.0)
    curves.set_ylim(bottom=0.0)
    curves.legend(frameon=False, fontsize="small", loc="upper left")
    one = played["ARL-LIN(dim)"][0]
    true = set(map(int, problem.support))
    for begin, row in exploitation(one):
        for j in row["active"]:
            colour = COLOURS[2] if j in true else COLOURS[1]
            map_.plot([begin, begin + row["episodes"]], [j, j], color=colour, linewidth=5, solid_capstyle="butt")
    map_.set_title("Coordinates that plan (seed 0)", fontsize="medium")
    map_.set_xscale("log")
    map_.set_xlabel("episode")
    map_.set_ylabel("coordinate")
    map_.set_yticks(range(problem.dimension))
    for label, colour in (("not zero", COLOURS[2]), ("zero", COLOURS[1])):
        map_.plot([], [], color=colour, linewidth=5, label=label)
    map_.set_ylim(-0.7, problem.dimension + 1.2)  # room for the legend
    map_.legend(frameon=False, fontsize="small", loc="upper right", ncols=2)
    for side in ("top", "right"):
        map_.spines[side].set_visible(False)
    return figure


def open_file(path: Path) -> bool:
    """Open a file with the desktop's viewer; return whether there was a desktop to ask."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    return webbrowser.open(path.resolve().as_uri())
