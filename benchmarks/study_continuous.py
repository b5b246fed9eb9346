"""Problems on boxes, on grids: which candidate models remain, what learning costs, how wrong a grid is.

    PYTHONPATH=. python benchmarks/study_continuous.py [pendulum car inventory] [--seeds 10 10 5] [--episodes 2000]
        [--resolutions 12 24 48] [--out DIR] [--figure FILE]

Ten candidate models, two mixed in truth; the pendulum at three resolutions, the others at one. What is finished is kept
in DIR, one file per problem and resolution; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import occamrl as orl
from occamrl.problems.boxes import ContinuousInventory, ContinuousProblem, MountainCar, Pendulum
from occamrl.selectors.references import largest, oracle


class Case(NamedTuple):
    """A problem, the resolutions it is played at, that which stands for the box, and the truths to find."""

    problem: Callable[..., ContinuousProblem]
    resolutions: tuple[int, ...]
    finest: int
    truths: tuple[tuple[tuple[int, float], ...], ...]


CASES = {
    "pendulum": Case(Pendulum, (12, 24, 48), 192, (((6, 0.6), (9, 0.4)), ((2, 0.6), (4, 0.4)))),
    "car": Case(MountainCar, (24,), 192, (((6, 0.6), (8, 0.4)),)),
    "inventory": Case(ContinuousInventory, (20,), 640, (((3, 0.6), (4, 0.4)),)),
}
ORACLE, SELECTED, FULL = "oracle", "ARL-LIN(dim)", "all ten"


def megabytes(arrays: Any) -> float:
    """Return the size of nested tuples of arrays."""
    if isinstance(arrays, np.ndarray):
        return arrays.nbytes / 2**20
    return sum(megabytes(each) for each in arrays) if isinstance(arrays, tuple) else 0.0


def looks(episodes: int) -> list[int]:
    """Return when the compatible sets are asked for."""
    return [2**i for i in range(3, 30) if 2**i < episodes] + [episodes]


def play(agent: Any, problem: ContinuousProblem, sims: Any, episodes: int, seed: int, asked: bool) -> dict[str, Any]:
    """Run one agent; ask for the compatible sets on the way."""
    result = orl.run(agent, problem.mdp, episodes=2, seed=seed, progress=False)  # compiles
    reports, spent = [], 0.0
    for k in looks(episodes) if asked else [episodes]:
        before, begun = result.total_episodes, time.perf_counter()
        result = orl.run(agent, problem.mdp, episodes=k - before, seed=seed, progress=False, continue_from=result)
        spent += time.perf_counter() - begun
        if asked:
            report = orl.supports(result, sims)
            reports.append({"episodes": k, "sets": [s.members for s in report.sets], "text": str(report)})
    at = np.unique(np.round(np.geomspace(1, episodes, 120)).astype(int))
    return {
        "at": at.tolist(),
        "regret": np.asarray(result.cumulative_regret)[at - 1].tolist(),
        "microseconds": 1e6 * spent / episodes,
        "plans": result.plans,
        "state_megabytes": megabytes(tuple(result.state)),
        "reports": reports,
    }


def measure(problem: ContinuousProblem, finest: int, episodes: int, seeds: int) -> dict[str, Any]:
    """Return what one truth gave at one resolution."""
    features, sims = orl.FeatureMap(problem.phi), orl.Simulators(problem.phi, names=problem.names)
    selector = orl.ARLLinDim(features=features, norm_bound=1.0)
    agents = {ORACLE: oracle(selector, problem.theta), SELECTED: selector, FULL: largest(selector)}
    runs: dict[str, list[Any]] = {name: [] for name in agents}
    for seed in range(seeds):
        for name, agent in agents.items():
            sys.stderr.write(f"resolution {problem.resolution}, seed {seed}: {name}\n")
            runs[name].append(play(agent, problem, sims, episodes, seed, name != ORACLE))
    error = problem.discretisation_error()
    return {
        "states": problem.mdp.states,
        "optimum": problem.mdp.optimal_value,
        "features_megabytes": megabytes(tuple(features.layout)),
        "error": str(error),
        "estimated": [error.errors[0], error.at_start[0]],
        "true": true_error(problem, finest),
        "quadrature": problem.quadrature_error(),
        "runs": runs,
    }


def true_error(problem: ContinuousProblem, finest: int) -> list[float]:
    """Return the largest error at this grid's vertices and that at the start, against the finest grid."""
    fine = problem.refined(finest // problem.resolution)
    there = np.concatenate([[problem.start], problem.grid.vertices])
    gap = problem.grid.interpolate(problem.mdp.optimal_values[0], there)
    gap = gap - fine.grid.interpolate(fine.mdp.optimal_values[0], there)
    return [float(np.abs(gap).max()), float(gap[0])]


def show(found: dict[str, Any], pair: set[str]) -> None:
    """Print one resolution."""
    print(f"  S = {found['states']:,}, optimum {found['optimum']:.3f}; features {found['features_megabytes']:.1f} MB")
    print("  error of the grid: estimated {:.3g} at most, {:+.3g} at the start;".format(*found["estimated"]), end=" ")
    print("true {:.3g}, {:+.3g};".format(*found["true"]), end=" ")
    print(f"quadrature {found['quadrature']:.3g} (total variation)")
    for name, runs in found["runs"].items():
        regret = [run["regret"][-1] for run in runs]
        text = f"    {name:<14} regret {np.mean(regret):7.1f} ({min(regret):.1f} to {max(regret):.1f})"
        text += f", {np.median([run['microseconds'] for run in runs]):,.0f} us an episode"
        print(
            text + f", {np.median([run['plans'] for run in runs]):.0f} plans, state {runs[0]['state_megabytes']:.1f} MB"
        )
        for i, first in enumerate(runs[0]["reports"]):
            sets = [run["reports"][i]["sets"] for run in runs]
            covered = sum(any(set(each) <= pair for each in found) for found in sets)
            alone = sum([set(each) for each in found] == [pair] for found in sets)
            counts = sorted(len(found) for found in sets)
            line = f"      after {first['episodes']:>5,}: {counts[0]} to {counts[-1]} minimal sets;"
            print(line + f" pair compatible in {covered}, alone in {alone} of {len(sets)}")


def draw(found: dict[int, dict[str, Any]], path: Path) -> None:
    """Draw regret and the number of compatible sets of the pendulum, one panel per resolution."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.6), layout="constrained")
    panels = figure.subplots(2, len(found), sharex=True, sharey="row")
    for column, (resolution, each) in enumerate(found.items()):
        above, below = panels[0, column], panels[1, column]
        for name, runs in each["runs"].items():
            curves = np.array([run["regret"] for run in runs])
            line = above.plot(runs[0]["at"], curves.mean(axis=0), label=name)[0]
            above.fill_between(runs[0]["at"], curves.min(axis=0), curves.max(axis=0), alpha=0.2, color=line.get_color())
            if runs[0]["reports"]:
                left = np.array([[len(report["sets"]) for report in run["reports"]] for run in runs])
                below.plot(looks_of(runs), left.mean(axis=0), "o-", ms=3, color=line.get_color())
        above.set_title(f"{resolution} x {resolution + 1} vertices, S = {each['states']:,}", fontsize=10)
        above.set_xscale("log")
        below.set_yscale("log")
        below.set_xlabel("episodes")
    panels[0, 0].set_ylabel("regret")
    panels[1, 0].set_ylabel("minimal compatible sets")
    panels[0, 0].legend(frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def looks_of(runs: list[Any]) -> list[int]:
    """Return when reports were made."""
    return [report["episodes"] for report in runs[0]["reports"]]


def found_in(folder: Path, problem: ContinuousProblem, finest: int, episodes: int, seeds: int) -> dict[str, Any]:
    """Return what a problem gave, measured now if it is not in the folder."""
    path = folder / f"{problem.mdp.fingerprint[:12]}-{episodes}-{seeds}.json"
    if not path.exists():
        measured = measure(problem, finest, episodes, seeds)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(measured))
        part.replace(path)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["pendulum"], help=f"of {', '.join(CASES)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[5], help="one number, or one for each resolution")
    parser.add_argument("--episodes", type=int, default=2_000)
    parser.add_argument("--resolutions", type=int, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("study-continuous"))
    parser.add_argument("--figure", type=Path, help="of the pendulum")
    options = parser.parse_args()
    for part in options.parts:
        case = CASES[part]
        resolutions = options.resolutions or case.resolutions
        seeds = options.seeds * len(resolutions) if len(options.seeds) == 1 else options.seeds
        for number, mixture in enumerate(case.truths):
            found = {}
            for resolution, count in zip(resolutions, seeds, strict=True):
                problem = case.problem(resolution=resolution, mixture=mixture)
                found[resolution] = found_in(options.out, problem, case.finest, options.episodes, count)
                pair = {problem.names[j - 1] for j, _ in mixture}
                print(f"\n{part}, resolution {resolution}, {count} seeds; truth {' and '.join(sorted(pair))}")
                show(found[resolution], pair)
                print(found[resolution]["runs"][SELECTED][0]["reports"][-1]["text"], flush=True)
            if options.figure and part == "pendulum" and number == 0:
                draw(found, options.figure)


if __name__ == "__main__":
    main()
