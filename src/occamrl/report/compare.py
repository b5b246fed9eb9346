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
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occamrl.errors import CheckpointError, Interrupted, OccamRLError, ParameterError, as_path, require_integer, shown
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Agent, Problem
from occamrl.report.data import Cell, Group, describe
from occamrl.running.files import make_folder
from occamrl.running.phases import as_selector
from occamrl.running.result import Result, data_frame, html_table, text_table
from occamrl.running.run import Progress, Run, Simulator, run
from occamrl.running.storage import fingerprint, load, save

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes


_MOST_SEEDS = 100_000


@dataclass(frozen=True, eq=False)
class Comparison:
    """The results of :func:`compare`: print it, ``plot()`` it, or take its ``table``.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> found = orl.compare({"uniform": orl.UniformRandom()}, problem, episodes=20, seeds=3)
    >>> found.rows[0]["agent"], len(found.results["uniform"])
    ('uniform', 3)

    Attributes
    ----------
    problem : str
        Its name.
    results : dict of str to list of Result
        One result per agent and seed, seeds in order.
    """

    problem: str
    results: Mapping[str, Sequence[Result]]

    def __post_init__(self) -> None:
        if not isinstance(self.results, Mapping) or not self.results or not all(self.results.values()):
            raise ParameterError("results", got=shown(self.results), expected="one result or more of every agent")

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


@dataclass(frozen=True)
class _Job:
    """One agent, one seed, and the file that the result goes to."""

    agent: Agent
    mdp: FiniteMDP
    episodes: int
    seed: int
    path: Path

    def play(self) -> bool:
        """Play what the file does not hold yet, or until Ctrl-C; say whether all was played.

        An error of the agent leaves the file as it was: a state in the middle of an episode is none to go on from.
        """
        earlier = self.earlier()
        played = 0 if earlier is None else earlier.total_episodes
        if played == self.episodes:
            return True
        under_way = Run(self.agent, Simulator(self.mdp), self.seed, earlier=earlier)
        stopped = False
        try:
            under_way.play(self.episodes - played, progress=False, after=lambda *_: not _stop.is_set())
        except Interrupted:  # even during the last episodes
            stopped = True
        save(under_way.result(), self.path)
        return not stopped and under_way.episodes == self.episodes

    def earlier(self) -> Result | None:
        """Return what the file holds."""
        if not self.path.exists():
            return None
        found = load(self.path, self.agent, self.mdp)
        if found.seed != self.seed or found.total_episodes > self.episodes:
            got = f"seed {found.seed}, {found.total_episodes:,} episodes"
            raise CheckpointError(str(self.path), got=got, expected=f"seed {self.seed}, up to {self.episodes:,}")
        return found

    @property
    def finished(self) -> bool:
        """Whether the file holds all episodes."""
        found = self.earlier()
        return found is not None and found.total_episodes == self.episodes


# Of the comparison under way: its processes are forks of this one and find them here.
_jobs: list[_Job] = []
_stop: Any = threading.Event()


def _deaf() -> None:
    """Leave Ctrl-C to the process that was called; between two runs there is nothing to save."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _play(i: int) -> bool:
    return _jobs[i].play()


def compare(
    agents: Mapping[str, Agent],
    problem: FiniteMDP | Problem,
    *,
    episodes: int,
    seeds: int | Iterable[int] = 10,
    processes: int | None = None,
    folder: str | Path | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Play several agents on one problem with the same seeds, and compare their exact regret.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> agents = {"uniform": orl.UniformRandom(), "optimal": orl.Optimal(mdp=problem.mdp)}
    >>> found = orl.compare(agents, problem, episodes=20, seeds=3)
    >>> found.rows[1]["regret"]
    0

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
    folder : path, optional
        Keep the results there: a comparison that was stopped, by Ctrl-C or otherwise, goes on where it was.
    progress : bool, optional
        Show progress on standard error; by default only when it takes longer than a second.

    Raises
    ------
    Interrupted
        On Ctrl-C; its ``result`` is the comparison of the seeds that every agent has finished, None without any.
    """
    mdp, episodes = as_mdp(problem), require_integer("episodes", episodes, 1)
    if not isinstance(agents, Mapping) or not agents:
        raise ParameterError("agents", got=f"{agents!r:.80}", expected='a dict such as {"name": agent}')
    for name, agent in agents.items():
        if not isinstance(name, str):
            raise ParameterError("agents", got=f"the key {name!r:.80}", expected="a name, as text")
        as_selector(agent)
    numbers = (
        list(seeds) if isinstance(seeds, Iterable) else range(require_integer("seeds", seeds, 1, most=_MOST_SEEDS))
    )
    every = [require_integer("seeds", seed, 0) for seed in numbers]
    if not every or len(set(every)) < len(every):
        raise ParameterError("seeds", got=f"{every!r:.80}", expected="different seeds, at least one")
    workers = require_integer("processes", (os.cpu_count() or 1) if processes is None else processes, 1)
    name = type(problem).__name__ if not isinstance(problem, FiniteMDP) else "problem"
    with tempfile.TemporaryDirectory(prefix="occamrl-") if folder is None else nullcontext(folder) as given:
        place = as_path("folder", given)
        make_folder(place)
        marks = [fingerprint((agent, mdp.fingerprint))[:12] for agent in agents.values()]
        jobs = {
            seed: [
                _Job(agent, mdp, episodes, seed, place / f"{mark}-{seed}.npz")
                for agent, mark in zip(agents.values(), marks, strict=True)
            ]
            for seed in every
        }
        try:
            _play_all([job for row in jobs.values() for job in row], workers, progress)
        except KeyboardInterrupt:
            done = [row for row in jobs.values() if all(job.finished for job in row)]
            message = f"stopped with {len(done)} of {len(every)} seeds"
            raise Interrupted(
                message + (f"; {folder} keeps the rest" if folder else ""),
                _gather(name, agents, done) if done else None,
            ) from None
        return _gather(name, agents, list(jobs.values()))


def _gather(problem: str, agents: Mapping[str, Agent], rows: Sequence[Sequence[_Job]]) -> Comparison:
    columns = zip(*rows, strict=True)
    return Comparison(problem, {
        name: [load(job.path, job.agent, job.mdp) for job in column]
        for name, column in zip(agents, columns, strict=True)
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
                if not _play(done):
                    raise KeyboardInterrupt
                bar.update(done + 1)
            return
        context = multiprocessing.get_context("fork")
        _stop = context.Event()
        with ProcessPoolExecutor(min(workers, len(jobs)), context, _deaf) as pool:
            waiting = [pool.submit(_play, i) for i in range(len(jobs))]
            try:
                for done, future in enumerate(as_completed(waiting), start=1):
                    if not future.result():
                        raise KeyboardInterrupt
                    bar.update(done)
            except BaseException as error:  # Ctrl-C, or an error of one run: the others save what they have, and end
                _stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                if isinstance(error, BrokenProcessPool):
                    advice = "perhaps for want of memory, of which fewer at a time (processes=1) need less"
                    raise OccamRLError(f"compare: a process was killed, {advice}") from error
                raise
    finally:
        _jobs.clear()
        bar.close()
