"""Problems on boxes, on grids: which candidate models remain, what learning costs, how wrong a grid is.

For docs/continuous-states.md (:mod:`studies.figures`): ten candidate models, two mixed in truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import occamrl as orl
from occamrl.problems.grids import ContinuousInventory, ContinuousProblem, Pendulum
from occamrl.protocols import Floats
from studies.figures import Panel, Size, each, number, picture, points, table
from studies.linear import Case

ORACLE, SELECTED, FULL = "oracle", "ARL-LIN(dim)", "all ten"


class Played(NamedTuple):
    """One run: cumulative regret at some episodes, and the minimal compatible sets on the way."""

    regret: Floats
    sets: list[list[set[str]]]


class Grid(NamedTuple):
    """A problem at one resolution, and the runs of every agent on it."""

    name: str
    problem: ContinuousProblem
    marks: list[int]
    runs: dict[str, list[Played]]


def play(
    agent: Any, problem: ContinuousProblem, sims: Any, marks: Sequence[int], seed: int, asked: bool
) -> Played:
    """Run one agent; ask for the compatible sets on the way."""
    result: Any = None
    sets = []
    for k in marks if asked else marks[-1:]:
        more = k - (0 if result is None else result.total_episodes)
        result = orl.run(
            agent, problem.mdp, episodes=more, seed=seed, progress=False, continue_from=result
        )
        if asked:
            sets.append(
                [set(one.members) for one in orl.supports(result, sims, evidence="value").sets]
            )
    return Played(result.regret_at(points(marks[-1])), sets)


def on_grid(name: str, problem: ContinuousProblem, size: Size, seeds: int) -> Grid:
    """Play the oracle, ARL-LIN(dim) and the learner on all ten for 2,000 episodes."""
    episodes, count = size.episodes(2_000), size.seeds(seeds)
    marks = [2**i for i in range(3, 30) if 2**i < episodes] + [episodes]
    sims, case = orl.Simulators(problem.phi, names=problem.names), Case(problem)
    features = sims.features
    cast = {
        ORACLE: orl.UCRLVTRLin(features=features.restrict(case.support), norm_bound=1.0),
        SELECTED: orl.ARLLinDim(features=features, norm_bound=1.0),
        FULL: orl.UCRLVTRLin(features=features, norm_bound=1.0),
    }
    kinds = list(cast.items())

    def job(i: int) -> Played:
        label, agent = kinds[i // count]
        return play(agent, problem, sims, marks, i % count, label != ORACLE)

    found = each(size, len(cast) * count, job, name)
    runs = {label: found[n * count : (n + 1) * count] for n, label in enumerate(cast)}
    return Grid(name, problem, marks, runs)


def row(grid: Grid, finest: int) -> tuple[str, ...]:
    """Return the row of a table: the errors of the grid, regret, and what ARL-LIN(dim) finds."""
    problem, chosen = grid.problem, grid.runs[SELECTED]
    fine, estimated = replace(problem, resolution=finest), problem.discretisation_error()
    there = np.concatenate([[problem.start], problem.grid.vertices])
    coarse, true = (
        each.grid.interpolate(each.mdp.optimal_values[0], there) for each in (problem, fine)
    )
    gap = coarse - true
    errors = (
        f"{estimated.at_start[0]:+.3g}, {gap[0]:+.3g}",
        f"{estimated.errors[0]:.3g}, {np.abs(gap).max():.3g}",
    )
    regret = []
    for runs in grid.runs.values():
        found = np.array([run.regret[-1] for run in runs])
        mean = float(found.mean())
        regret.append(
            f"{number(mean)} ({number(found.min(), mean)} to {number(found.max(), mean)})"
        )
    pair = {problem.names[j - 1] for j, _ in problem.mixture}
    alone, count = [], 0  # in how many runs the pair is the only minimal set, as that grows
    for i, mark in enumerate(grid.marks):
        if count < len(chosen) and (count := sum(run.sets[i] == [pair] for run in chosen)):
            alone.append(f"{count} of {len(chosen)} after {mark:,}")
    left = [len(run.sets[-1]) for run in chosen]
    reports = [sets for runs in grid.runs.values() for run in runs for sets in run.sets]
    compatible = sum(any(one <= pair for one in sets) for sets in reports)
    about = (f"{grid.name}; {len(chosen)} seeds", f"{problem.mdp.optimal_value:.3f}", *errors)
    told = (
        ", ".join(alone) or "never",
        f"{min(left)} to {max(left)}",
        f"{compatible} of {len(reports)}",
    )
    return *about, f"{problem.quadrature_error():.3f}", *regret, *told


HEADER = (
    "2,000 episodes",
    "optimum",
    "error at the start: estimated, true",
    "largest error at a vertex: estimated, true",
    "rule against twice the nodes, total variation",
    "regret, oracle (the pair alone)",
    "regret, ARL-LIN(dim)",
    "regret, all ten",
    "the pair is the only minimal set, ARL-LIN(dim)",
    "minimal sets at the end, ARL-LIN(dim)",
    "pair compatible, reports",
)


def pendulum(size: Size) -> str:
    """Measure the pendulum at three resolutions."""
    grids = []
    for resolution, count in size.some(((12, 10), (24, 10), (48, 5))):
        problem = Pendulum(resolution=resolution, mixture=((6, 0.6), (9, 0.4)))
        name = f"{resolution} x {resolution + 1} vertices, S = {problem.mdp.states:,}"
        grids.append(on_grid(name, problem, size, count))
    above, below = [], []
    for grid in grids:
        lines, sets = {}, {}
        for name, runs in grid.runs.items():
            lines[name] = points(grid.marks[-1]), np.array([run.regret for run in runs])
            counts = np.array([[len(found) for found in run.sets] for run in runs])
            sets[name] = grid.marks[: counts.shape[1]], counts
        above.append(Panel(grid.name, lines))
        below.append(Panel("", sets, ylabel="minimal compatible sets", logarithmic=True))
    picture(size, "continuous.png", above + below)
    return table(HEADER, [row(grid, 24 if size.tiny else 192) for grid in grids])


def inventory(size: Size) -> str:
    """Measure an inventory."""
    stock = ContinuousInventory(resolution=20, mixture=((3, 0.6), (4, 0.4)))
    return table(
        HEADER, [row(on_grid("inventory, S = 21", stock, size, 5), 40 if size.tiny else 640)]
    )
