"""A pendulum on its box, not on a grid: agents with values at anchors, told the pair, selecting, with all ten models.

    PYTHONPATH=. python benchmarks/study_box.py [--seeds 1] [--episodes 120] [--resolution 12] [--out DIR]

The system itself is stepped, so what is measured are realised returns; the optimum to compare with is that of a fine
grid. What is finished is kept in DIR, one file per agent and seed, and runs under way are saved there now and then: the
same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import occamrl as orl
from benchmarks.study_continuous import FULL, SELECTED, TOLD, looks
from occamrl.problems.pendulum import FRICTIONS, Pendulum, swing

FINE, SAVED_EVERY = 96, 20.0
CARRIED = "ARL-LIN(dim), error carried"


def agents(problem: Pendulum, episodes: int) -> dict[str, orl.Anchored]:
    """Return the agents by name."""
    pair = [j - 1 for j, _ in problem.mixture]
    common: dict[str, Any] = {
        "grid": problem.grid,
        "actions": problem.action_grid,
        "reward": problem.reward,
        "horizon": problem.horizon,
        "episodes": episodes,
    }
    models, names = problem.models(), problem.names
    ten: dict[str, Any] = {"models": models, "names": names, **common}
    return {
        TOLD: orl.Anchored(models=[models[j] for j in pair], names=[names[j] for j in pair], **common),
        SELECTED: orl.Anchored(agent=orl.ARLLinDim, **ten),
        FULL: orl.Anchored(**ten),
        CARRIED: orl.Anchored(agent=orl.ARLLinDim, error=problem.quadrature_error(), **ten),
    }


def episode(agent: orl.Anchored, problem: Pendulum, seed: int) -> None:
    """Play the next episode of a seed."""
    rng = orl.stream(seed, "box", agent.episode)
    members, shares = zip(*problem.mixture, strict=True)
    state = np.array([problem.start], dtype=np.float64)
    agent.begin(state[0])
    for _ in range(problem.horizon):
        torque = np.array([problem.action_grid[agent.act()]])
        friction = FRICTIONS[problem.names[int(rng.choice(members, p=shares)) - 1]]
        state = swing(friction, problem.hold, state, torque, rng.normal(0.0, problem.disturbance, size=(1, 1)))
        agent.record(state[0])


def play(agent: orl.Anchored, problem: Pendulum, episodes: int, seed: int, kept: Path) -> dict[str, Any]:
    """Run one agent, from where a file left it."""
    reports, begun, saved = {}, time.perf_counter(), time.monotonic()
    notes = kept.with_suffix(".notes.json")
    if kept.exists() and notes.exists():
        agent.load(kept)
        reports = json.loads(notes.read_text())
    first = agent.episode
    while agent.episode < episodes:
        episode(agent, problem, seed)
        if agent.episode in looks(episodes):
            report = orl.supports(agent)
            sets = [each.members for each in report.sets]
            reports[str(agent.episode)] = {"sets": sets, "allowance": report.allowance, "text": str(report)}
        if time.monotonic() - saved > SAVED_EVERY:
            notes.write_text(json.dumps(reports))
            agent.save(kept)
            saved = time.monotonic()
            sys.stderr.write(f"  {agent.episode} of {episodes} episodes, mean return {agent.returns.mean():.2f}\n")
    seconds = (time.perf_counter() - begun) / max(1, episodes - first)
    phases = [{"active": row.get("active"), "episodes": row["episodes"]} for row in agent.walk.rows]
    found = {"returns": agent.returns.tolist(), "reports": reports, "seconds": seconds, "plans": agent.plans}
    return {**found, "phases": phases, "squared_radius": agent.squared_radius, "squared_errors": agent.squared_errors}


def show(name: str, runs: list[dict[str, Any]], optimum: float, pair: set[str]) -> None:
    """Print what an agent earned and what remained compatible."""
    returns = np.array([run["returns"] for run in runs])
    lost = optimum * returns.shape[1] - returns.sum(axis=1)
    k = returns.shape[1]
    parts = [(a, b) for a, b in ((0, 20), (20, 100), (100, k)) if a < b <= k]
    means = ", ".join(f"{returns[:, a:b].mean():.2f} in {a + 1}-{b}" for a, b in parts)
    print(f"\n{name}: lost {lost.mean():.0f} ({lost.min():.0f} to {lost.max():.0f}) against the optimum {optimum:.2f}")
    print(f"  mean return {means}; standard deviation of a return in the second half {returns[:, k // 2 :].std():.2f}")
    print(
        f"  {np.median([run['seconds'] for run in runs]):.2f} s an episode under load, {runs[0]['plans']} plans", end=""
    )
    print(f", squared radius {runs[0]['squared_radius']:.2f}, sum of squared errors {runs[0]['squared_errors']:.1f}")
    for at, first in runs[0]["reports"].items():
        sets = [[set(each) for each in run["reports"][at]["sets"]] for run in runs]
        covered = sum(any(each <= pair for each in found) for found in sets)
        alone = sum(found == [pair] for found in sets)
        counts = sorted(len(found) for found in sets)
        text = f"  after {int(at):>4,}: {counts[0]} to {counts[-1]} minimal sets, pair compatible in {covered}"
        print(f"{text}, alone in {alone} of {len(runs)}; {first['allowance']:.1f} allowed")
    print(list(runs[0]["reports"].values())[-1]["text"], flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=120)
    parser.add_argument("--resolution", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("study-box"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    problem = Pendulum(resolution=options.resolution)
    optimum = Pendulum(resolution=FINE).mdp.optimal_value
    pair = {problem.names[j - 1] for j, _ in problem.mixture}
    for number, (name, agent) in enumerate(agents(problem, options.episodes).items()):
        runs = []
        for seed in range(options.seeds):
            path = options.out / f"{number}-{options.resolution}-{options.episodes}-{seed}.json"
            if not path.exists():
                sys.stderr.write(f"{name}, seed {seed}\n")
                found = play(agent.fresh(seed), problem, options.episodes, seed, path.with_suffix(".npz"))
                part = path.with_suffix(".part")
                part.write_text(json.dumps(found))
                part.replace(path)
            runs.append(json.loads(path.read_text()))
        show(name, runs, optimum, pair)


if __name__ == "__main__":
    main()
