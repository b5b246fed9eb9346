"""Problems on boxes, on grids: which candidate models remain, what learning costs, how wrong a grid is.

For docs/continuous-states.md (:mod:`studies.figures`): ten candidate models, two mixed in truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class Grid:
    """A problem at one resolution, and the runs of every agent on it."""

    name: str
    problem: ContinuousProblem
    pair: set[str]
    marks: list[int]
    runs: dict[str, list[Played]]

    def regret(self, name: str) -> str:
        """Return the mean regret with the smallest and the largest."""
        found = np.array([run.regret[-1] for run in self.runs[name]])
        mean = float(found.mean())
        return f"{number(mean)} ({number(found.min(), mean)} to {number(found.max(), mean)})"

    def alone(self) -> str:
        """Return in how many runs of ARL-LIN(dim) the true pair is the only minimal set, as it grows."""
        runs, said = self.runs[SELECTED], []
        for i, mark in enumerate(self.marks):
            count = sum(run.sets[i] == [self.pair] for run in runs)
            if count:
                said.append(f"{count} of {len(runs)} after {mark:,}")
            if count == len(runs):
                break
        return ", ".join(said) or "never"

    def left(self) -> str:
        """Return how many minimal sets ARL-LIN(dim) leaves in the end."""
        counts = [len(run.sets[-1]) for run in self.runs[SELECTED]]
        return f"{min(counts)} to {max(counts)}"

    def compatible(self) -> str:
        """Return in how many reports the true pair is compatible."""
        reports = [sets for runs in self.runs.values() for run in runs for sets in run.sets]
        return f"{sum(any(one <= self.pair for one in sets) for sets in reports)} of {len(reports)}"

    def errors(self, finest: int) -> tuple[str, str]:
        """Return the error at the start and the largest at a vertex: estimated, and against the finest grid."""
        problem, fine = self.problem, replace(self.problem, resolution=finest)
        estimated = problem.discretisation_error()
        there = np.concatenate([[problem.start], problem.grid.vertices])
        gap = problem.grid.interpolate(problem.mdp.optimal_values[0], there)
        gap = gap - fine.grid.interpolate(fine.mdp.optimal_values[0], there)
        at_start = f"{estimated.at_start[0]:+.3g}, {gap[0]:+.3g}"
        return at_start, f"{estimated.errors[0]:.3g}, {np.abs(gap).max():.3g}"


def play(agent: Any, problem: ContinuousProblem, sims: Any, marks: Sequence[int], seed: int, asked: bool) -> Played:
    """Run one agent; ask for the compatible sets on the way."""
    result: Any = None
    sets = []
    for k in marks if asked else marks[-1:]:
        more = k - (0 if result is None else result.total_episodes)
        result = orl.run(agent, problem.mdp, episodes=more, seed=seed, progress=False, continue_from=result)
        if asked:
            sets.append([set(one.members) for one in orl.supports(result, sims, evidence="value").sets])
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
    return Grid(name, problem, {problem.names[j - 1] for j, _ in problem.mixture}, marks, runs)


def rows(grids: Sequence[Grid], finest: int) -> list[tuple[str, ...]]:
    """Return a row of a table for each grid."""
    found = []
    for grid in grids:
        problem = grid.problem
        about = (f"{problem.mdp.optimal_value:.3f}", *grid.errors(finest), f"{problem.quadrature_error():.3f}")
        regret = (grid.regret(name) for name in grid.runs)
        name = f"{grid.name}; {len(grid.runs[ORACLE])} seeds"
        found.append((name, *about, *regret, grid.alone(), grid.left(), grid.compatible()))
    return found


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
        lines = {
            name: (points(grid.marks[-1]), np.array([run.regret for run in runs])) for name, runs in grid.runs.items()
        }
        sets = {
            name: (grid.marks[: len(runs[0].sets)], np.array([[len(each) for each in run.sets] for run in runs]))
            for name, runs in grid.runs.items()
        }
        above.append(Panel(grid.name, lines))
        below.append(Panel("", sets, ylabel="minimal compatible sets", logarithmic=True))
    picture(size, "continuous.png", above + below)
    return table(HEADER, rows(grids, 24 if size.tiny else 192))


def inventory(size: Size) -> str:
    """Measure an inventory."""
    stock = ContinuousInventory(resolution=20, mixture=((3, 0.6), (4, 0.4)))
    return table(HEADER, rows([on_grid("inventory, S = 21", stock, size, 5)], 40 if size.tiny else 640))
