"""Problems on boxes, on grids: which candidate models remain, what learning costs, how wrong a grid is.

For docs/continuous-states.md (:mod:`benchmarks.figures`): ten candidate models, two mixed in truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import occamrl as orl
from benchmarks.figures import Line, Panel, Size, number, picture, table
from occamrl.problems.boxes import ContinuousInventory, ContinuousProblem, MountainCar, Pendulum
from occamrl.protocols import Floats
from occamrl.selectors.references import largest, oracle

ORACLE, SELECTED, FULL = "oracle", "ARL-LIN(dim)", "all ten"


@dataclass(frozen=True)
class Played:
    """One run: cumulative regret at some episodes, and the minimal compatible sets on the way."""

    at: Any
    regret: Floats
    sets: list[list[set[str]]]
    report: str


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
        found = [
            any(each <= self.pair for each in sets) for runs in self.runs.values() for run in runs for sets in run.sets
        ]
        return f"{sum(found)} of {len(found)}"

    def errors(self, finest: int) -> tuple[str, str]:
        """Return the error at the start and the largest at a vertex: estimated, and against the finest grid."""
        estimated, fine = self.problem.discretisation_error(), self.problem.refined(finest // self.problem.resolution)
        there = np.concatenate([[self.problem.start], self.problem.grid.vertices])
        gap = self.problem.grid.interpolate(self.problem.mdp.optimal_values[0], there)
        gap = gap - fine.grid.interpolate(fine.mdp.optimal_values[0], there)
        at_start = f"{estimated.at_start[0]:+.3g}, {gap[0]:+.3g}"
        return at_start, f"{estimated.errors[0]:.3g}, {np.abs(gap).max():.3g}"


def play(agent: Any, problem: ContinuousProblem, sims: Any, marks: Sequence[int], seed: int, asked: bool) -> Played:
    """Run one agent; ask for the compatible sets on the way."""
    result: Any = None
    sets, report = [], ""
    for k in marks if asked else marks[-1:]:
        more = k - (0 if result is None else result.total_episodes)
        result = orl.run(agent, problem.mdp, episodes=more, seed=seed, progress=False, continue_from=result)
        if asked:
            found = orl.supports(result, sims, evidence="value")
            sets.append([set(each.members) for each in found.sets])
            report = str(found)
    at = np.unique(np.geomspace(1, marks[-1], 120).astype(int))
    return Played(at, np.asarray(result.cumulative_regret)[at - 1], sets, report)


def on_grid(
    name: str, problem: ContinuousProblem, mixture: Sequence[tuple[int, float]], size: Size, seeds: int
) -> Grid:
    """Play the oracle, ARL-LIN(dim) and the learner on all ten for 2,000 episodes."""
    episodes = size.episodes(2_000)
    marks = [2**i for i in range(3, 30) if 2**i < episodes] + [episodes]
    sims = orl.Simulators(problem.phi, names=problem.names)
    selector = orl.ARLLinDim(features=orl.FeatureMap(problem.phi), norm_bound=1.0)
    agents = {ORACLE: oracle(selector, problem.theta), SELECTED: selector, FULL: largest(selector)}
    runs = {
        label: [play(agent, problem, sims, marks, seed, label != ORACLE) for seed in range(size.seeds(seeds))]
        for label, agent in agents.items()
    }
    return Grid(name, problem, {problem.names[j - 1] for j, _ in mixture}, marks, runs)


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


def pendulums(mixture: Sequence[tuple[int, float]], seeds: dict[int, int], size: Size) -> list[Grid]:
    """Return the pendulum at several resolutions."""
    found = []
    for resolution, count in list(seeds.items())[: 1 if size.tiny else None]:
        problem = Pendulum(resolution=resolution, mixture=tuple(mixture))
        name = f"{resolution} x {resolution + 1} vertices, S = {problem.mdp.states:,}"
        found.append(on_grid(name, problem, mixture, size, count))
    return found


def pendulum(size: Size) -> str:
    """Measure the pendulum at three resolutions."""
    grids = pendulums(((6, 0.6), (9, 0.4)), {12: 10, 24: 10, 48: 5}, size)
    above = [
        Panel(
            grid.name, {name: (runs[0].at, np.array([run.regret for run in runs])) for name, runs in grid.runs.items()}
        )
        for grid in grids
    ]
    below = [Panel("", _counts(grid), ylabel="minimal compatible sets", logarithmic=True) for grid in grids]
    picture(size, "continuous.png", above + below)
    return table(HEADER, rows(grids, 192))


def _counts(grid: Grid) -> dict[str, Line]:
    return {
        name: (grid.marks[: len(runs[0].sets)], np.array([[len(sets) for sets in run.sets] for run in runs]))
        for name, runs in grid.runs.items()
    }


def alike(size: Size) -> str:
    """Measure models that cannot be told apart, and show a report."""
    grids = pendulums(((2, 0.6), (4, 0.4)), {12: 10, 24: 10}, size)
    shown = [(grid.name, *map(grid.regret, grid.runs), grid.left(), grid.compatible()) for grid in grids]
    report = "\n".join(f"    {line}" for line in grids[0].runs[SELECTED][0].report.splitlines())
    return table((f"{HEADER[0]}, 10 seeds", *HEADER[5:8], *HEADER[9:]), shown) + f"\n\n{report}"


def others(size: Size) -> str:
    """Measure a mountain car and an inventory."""
    car, stock = ((6, 0.6), (8, 0.4)), ((3, 0.6), (4, 0.4))
    inventory = on_grid("inventory, S = 21", ContinuousInventory(resolution=20, mixture=stock), stock, size, 5)
    shown = rows([inventory], 640)
    if not size.tiny:
        problem = MountainCar(resolution=24, mixture=car)
        shown = [*rows([on_grid("mountain car, 25 x 25 vertices, S = 625", problem, car, size, 5)], 192), *shown]
    return table(HEADER, shown)
