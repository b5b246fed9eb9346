"""Several agents on one problem, over the same seeds: :func:`compare` and what it returns.

The statistics are those of the report's page: every seed is one observation, intervals are bootstrap intervals over
seeds, and differences are taken seed by seed, since two agents with the same seed meet the same random numbers.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from occamrl.errors import ParameterError, require_integer
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Agent, Problem
from occamrl.report.data import Cell, Group, describe
from occamrl.running.phases import as_selector
from occamrl.running.result import Result, data_frame, html_table, text_table
from occamrl.running.run import Progress, Run, Simulator, run
from occamrl.running.storage import load, save

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Comparison:
    """The results of :func:`compare`: print it, ``plot()`` it, or take its ``table``.

    Attributes
    ----------
    problem : str
        Its name.
    results : dict of str to list of Result
        One result per agent and seed, seeds in order.
    """

    problem: str
    results: Mapping[str, Sequence[Result]]

    @cached_property
    def _model(self) -> dict[str, Any]:
        return describe([Group(self.problem, name, _cells(results)) for name, results in self.results.items()])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per agent: mean regret, its interval, median, worst seed, tail per episode, best speed."""
        found = []
        for one, results in zip(self._model["problems"][0]["agents"], self.results.values(), strict=True):
            low, high = one["regret"]["interval"] or (None, None)
            tails = [result.regret[-max(1, result.regret.size // 10) :].mean() for result in results]
            found.append(
                {
                    "agent": self._model["agents"][one["agent"]],
                    "seeds": len(results),
                    "regret": one["regret"]["mean"],
                    "low": low,
                    "high": high,
                    "median": one["regret"]["median"],
                    "worst": max(one["totals"]),
                    "tail": sum(tails) / len(tails),  # mean regret of the last tenth of the episodes
                    "us": 1e6 * min(result.wall_time / result.total_episodes for result in results),
                }
            )
        return found

    @property
    def table(self) -> pa.Table:
        """The rows as a table."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.rows)

    def to_pandas(self) -> Any:
        """Return the rows as a data frame of pandas."""
        return data_frame(self.table)

    def differences(self, baseline: str | None = None) -> list[dict[str, Any]]:
        """Return regret minus that of the baseline (the first agent by default), paired by seed, with intervals."""
        names = self._model["agents"]
        if baseline is not None and baseline not in names:
            raise ParameterError("baseline", got=repr(baseline), expected=f"one of {names}")
        against = 0 if baseline is None else names.index(baseline)
        rows = self._model["problems"][0]["differences"]
        return [{**row, "agent": names[row["agent"]], "baseline": names[against]}
                for row in rows if row["baseline"] == against]  # fmt: skip

    def plot(self, axes: Axes | None = None, *, logarithmic: bool = False) -> Axes:
        """Draw mean cumulative regret with the interval of the mean, on the current axes unless some are given."""
        from occamrl.report.figures import draw_regret, label_lines
        from occamrl.running.result import current_axes

        axes = current_axes(axes)
        drawn = draw_regret(axes, self._model, self._model["problems"][0], logarithmic=logarithmic)
        if drawn:
            label_lines(axes.legend, drawn, fontsize="small")
        return axes

    def __str__(self) -> str:
        first = next(iter(self.results.values()))
        return f"{self.problem}: {first[0].total_episodes:,} episodes, {len(first)} seeds\n" + text_table(self._shown)

    def _repr_html_(self) -> str:
        return html_table(self._shown)

    @property
    def _shown(self) -> list[dict[str, str]]:
        found = []
        for row in self.rows:
            interval = "" if row["low"] is None else f"[{row['low']:,.4g}, {row['high']:,.4g}]"
            found.append(
                {
                    "agent": row["agent"],
                    "regret": f"{row['regret']:,.4g}",
                    "95% interval": interval,
                    "worst seed": f"{row['worst']:,.4g}",
                    "last tenth, an episode": f"{row['tail']:.3g}",
                    "us an episode": f"{row['us']:,.3g}",
                }
            )
        return found


def _cells(results: Sequence[Result]) -> list[Cell]:
    """Return results as the report sees the cells of an experiment."""
    measured = ("total_regret", "plans", "pessimistic_episodes", "wall_time")
    return [
        Cell(
            result.seed,
            {"episodes": result.total_episodes, **{name: getattr(result, name) for name in measured}},
            result.episodes,
            result.cumulative_regret,
            [{**row, "facts": row} for row in result.phases.to_pylist()],
        )
        for result in results
    ]


class _Job(NamedTuple):
    """One agent, one seed, and the file that the result goes to."""

    agent: Agent
    mdp: FiniteMDP
    episodes: int
    seed: int
    path: Path


# Of the comparison under way: its processes are forks of this one and find them here.
_jobs: list[_Job] = []
_stop: Any = threading.Event()


def _play(i: int) -> None:
    job = _jobs[i]
    run = Run(job.agent, Simulator(job.mdp), job.seed)
    run.play(job.episodes, progress=False, after=lambda *_: not _stop.is_set())
    save(run.result(), job.path)


def compare(
    agents: Mapping[str, Agent],
    problem: FiniteMDP | Problem,
    *,
    episodes: int,
    seeds: int | Iterable[int] = 10,
    processes: int | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Play several agents on one problem with the same seeds, and compare their exact regret.

    Parameters
    ----------
    agents : dict of str to learner or selector
        In the order in which they are shown; differences are taken to the first.
    problem : FiniteMDP, or a problem that has one
    episodes : int
    seeds : int or iterable of int
        How many (0, 1, ...), or which.
    processes : int, optional
        Runs at the same time; as many as there are processors by default. Where processes cannot be forked (Windows),
        runs follow one another.
    progress : bool, optional
        Show progress on standard error; by default only when it takes longer than a second.

    Examples
    --------
    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> found = orl.compare({"uniform": orl.UniformRandom(), "optimal": orl.Optimal(mdp=problem.mdp)}, problem,
    ...                     episodes=20, seeds=3)
    >>> [row["agent"] for row in found.rows], found.rows[1]["regret"]
    (['uniform', 'optimal'], 0)
    """
    mdp, episodes = as_mdp(problem), require_integer("episodes", episodes, 1)
    if not isinstance(agents, Mapping) or not agents:
        raise ParameterError("agents", got=f"{agents!r:.80}", expected='a dict such as {"name": agent}')
    for name, agent in agents.items():
        if not isinstance(name, str):
            raise ParameterError("agents", got=f"the key {name!r:.80}", expected="a name, as text")
        as_selector(agent)
    numbers = list(seeds) if isinstance(seeds, Iterable) else range(require_integer("seeds", seeds, 1))
    every = [require_integer("seeds", seed, 0) for seed in numbers]
    if not every or len(set(every)) < len(every):
        raise ParameterError("seeds", got=f"{every!r:.80}", expected="different seeds, at least one")
    workers = require_integer("processes", (os.cpu_count() or 1) if processes is None else processes, 1)
    name = type(problem).__name__ if not isinstance(problem, FiniteMDP) else "problem"
    with tempfile.TemporaryDirectory(prefix="occamrl-") as folder:
        jobs = {
            label: [_Job(agent, mdp, episodes, seed, Path(folder, f"{i}-{seed}.npz")) for seed in every]
            for i, (label, agent) in enumerate(agents.items())
        }
        _play_all([job for row in zip(*jobs.values(), strict=True) for job in row], workers, progress)
        return Comparison(name, {
            label: [load(job.path, job.agent, mdp) for job in row] for label, row in jobs.items()
        })  # fmt: skip


def _play_all(jobs: Sequence[_Job], workers: int, progress: bool | None) -> None:
    """Play all jobs, in processes where they can be forked."""
    global _stop
    bar = Progress("compare", len(jobs), progress, unit="runs")
    try:
        for job in jobs:
            if job.seed == jobs[0].seed:  # an agent is compiled once, here, instead of once in every process
                run(job.agent, job.mdp, episodes=1, progress=False)
        bar.update(0)
        _jobs[:], _stop = jobs, threading.Event()
        if workers == 1 or "fork" not in multiprocessing.get_all_start_methods():
            for done in range(len(jobs)):
                _play(done)
                bar.update(done + 1)
            return
        context = multiprocessing.get_context("fork")
        _stop = context.Event()
        deaf = (signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that was called
        with ProcessPoolExecutor(min(workers, len(jobs)), context, signal.signal, deaf) as pool:
            waiting = [pool.submit(_play, i) for i in range(len(jobs))]
            try:
                for done, future in enumerate(as_completed(waiting), start=1):
                    future.result()
                    bar.update(done)
            except BaseException:  # Ctrl-C, or an error of one run: the others end
                _stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    finally:
        _jobs.clear()
        bar.close()
