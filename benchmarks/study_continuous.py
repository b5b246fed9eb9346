"""Problems on boxes, on grids: which candidate models remain, what learning costs, how wrong a grid is.

For docs/continuous-states.md (:mod:`benchmarks.figures`): ten candidate models, two of them mixed in truth. Regret is a
mean with the smallest and the largest seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import occamrl as orl
from benchmarks.figures import Size, number, table
from occamrl.problems.boxes import ContinuousInventory, ContinuousProblem, MountainCar, Pendulum
from occamrl.protocols import Floats
from occamrl.selectors.references import largest, oracle

EPISODES = 2_000


def looks(episodes: int) -> list[int]:
    """Return when the compatible sets are asked for."""
    return [2**i for i in range(3, 30) if 2**i < episodes] + [episodes]


def play(agent: Any, problem: ContinuousProblem, sims: Any, episodes: int, seed: int) -> tuple[float, list[Any]]:
    """Run one agent; return its regret and the compatible sets on the way, if simulators are given."""
    result: Any = None
    reports = []
    for k in looks(episodes) if sims is not None else [episodes]:
        start: dict[str, Any] = {"seed": seed} if result is None else {"continue_from": result}
        more = k if result is None else k - result.total_episodes
        result = orl.run(agent, problem.mdp, episodes=more, progress=False, **start)
        if sims is not None:
            reports.append([set(each.members) for each in orl.supports(result, sims).sets])
    return result.total_regret, reports


def spread(values: list[float]) -> str:
    """Return a mean with the smallest and the largest."""
    mean = float(np.mean(values))
    return f"{number(mean)} ({number(min(values), mean)} to {number(max(values), mean)})"


def column(problem: ContinuousProblem, finest: int, size: Size, seeds: int) -> dict[str, str]:
    """Return the rows of one problem at one resolution."""
    features, sims = orl.FeatureMap(problem.phi), orl.Simulators(problem.phi, names=problem.names)
    selector = orl.ARLLinDim(features=features, norm_bound=1.0)
    pair = {problem.names[j] for j in np.flatnonzero(problem.theta)}
    episodes, count = size.episodes(EPISODES), size.seeds(seeds)
    error = problem.discretisation_error()
    true = true_error(problem, problem.resolution * 2 if size.tiny else finest)
    found = {
        "seeds": str(seeds),
        "S": f"{problem.mdp.states:,}",
        "optimum of the grid's problem": f"{problem.mdp.optimal_value:.3f}",
        "its error at the start: estimated, true": f"{error.at_start[0]:+.3g}, {true[1]:+.3g}",
        "largest error at a vertex: estimated, true": f"{error.errors[0]:.3g}, {true[0]:.3g}",
        "rule against twice the nodes, total variation": f"{problem.quadrature_error():.3f}",
    }
    agents: dict[str, Any] = {"oracle": oracle(selector, problem.theta), "ARL-LIN(dim)": selector}
    covered, reports, sets = 0, 0, []
    for name, agent in {**agents, "all ten": largest(selector)}.items():
        runs = [play(agent, problem, None if name == "oracle" else sims, episodes, seed) for seed in range(count)]
        found[f"regret, {name}"] = spread([regret for regret, _ in runs])
        asked = [[report[k] for _, report in runs] for k in range(len(runs[0][1]))]
        covered += sum(any(each <= pair for each in report) for at in asked for report in at)
        reports += sum(map(len, asked))
        sets = asked if name == "ARL-LIN(dim)" else sets
    found["reports with the true pair compatible, both agents"] = f"{covered} of {reports}"
    alone = [sum(report == [pair] for report in at) for at in sets]
    first = [f"{n} of {count} after {k:,}" for n, k in zip(alone, looks(episodes), strict=True) if n]
    found["ARL-LIN(dim): the pair alone is compatible"] = ", ".join(first) or "never"
    left = sorted(len(report) for report in sets[-1])
    found["ARL-LIN(dim): minimal sets at the end"] = f"{left[0]} to {left[-1]}"
    return found


def true_error(problem: ContinuousProblem, finest: int) -> tuple[float, float]:
    """Return the largest error at this grid's vertices and that at the start, against the finest grid."""
    fine = problem.refined(finest // problem.resolution)
    there = np.concatenate([[problem.start], problem.grid.vertices])
    gap: Floats = problem.grid.interpolate(problem.mdp.optimal_values[0], there)
    gap = gap - fine.grid.interpolate(fine.mdp.optimal_values[0], there)
    return float(np.abs(gap).max()), float(gap[0])


def columns(found: dict[str, dict[str, str]]) -> str:
    """Return a table with a column for each problem."""
    names = next(iter(found.values()))
    return table(("K = 2,000", *found), [(name, *(each[name] for each in found.values())) for name in names])


def pendulum(size: Size) -> str:
    """Measure the pendulum at two resolutions, for two frictions that can be told apart."""
    grids = ((12, 5), (24, 5))[: 1 if size.tiny else None]
    return columns({f"{n} x {n + 1} vertices": _pendulum(n, ((6, 0.6), (9, 0.4)), size, seeds) for n, seeds in grids})


def similar(size: Size) -> str:
    """Measure the pendulum for two frictions that cannot be told from those between them."""
    return columns({"12 x 13 vertices": _pendulum(12, ((2, 0.6), (4, 0.4)), size, 5)})


def _pendulum(resolution: int, mixture: tuple[tuple[int, float], ...], size: Size, seeds: int) -> dict[str, str]:
    return column(Pendulum(resolution=resolution, mixture=mixture), 192, size, seeds)


def others(size: Size) -> str:
    """Measure the mountain car and the inventory."""
    tank = column(ContinuousInventory(resolution=20, mixture=((3, 0.6), (4, 0.4))), 640, size, 5)
    if size.tiny:
        return columns({"mountain car": tank, "inventory": tank})
    return columns(
        {
            "mountain car": column(MountainCar(resolution=24, mixture=((6, 0.6), (8, 0.4))), 192, size, 3),
            "inventory": tank,
        }
    )
