"""Several agents on one problem, over the same seeds: :func:`compare`, what it returns, and league tables.

Every seed is one observation. Intervals are percentile bootstrap intervals of the mean over seeds, at 95 %; differences
are taken seed by seed, since two agents with the same seed meet the same random numbers.
"""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from occamrl.errors import (
    CheckpointError,
    Interrupted,
    OccamRLError,
    ParameterError,
    StorageError,
    as_path,
    require_integer,
    shown,
)
from occamrl.experiments.pool import CHECKPOINT_SECONDS, Pool, play, processors
from occamrl.experiments.records import Records, data_frame, locked, text_table
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Floats, Learner, Problem
from occamrl.running.result import Result, table_of_rows
from occamrl.running.run import Progress, generator, require_learner
from occamrl.running.storage import load, make_folder, read_objects, save, sha256, write_objects

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

_MOST_SEEDS = 100_000
_RESAMPLES = 4_000
_POINTS = 400  # of a drawn curve


def interval(values: Any) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of a mean, the same for the same numbers; None for fewer than two."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.size < 2:
        return None
    drawn = generator(0, "bootstrap").integers(numbers.size, size=(_RESAMPLES, numbers.size))
    low, high = np.quantile(numbers[drawn].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


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
    def rows(self) -> list[dict[str, Any]]:
        """One row per agent: mean regret, its interval, median, worst seed, regret an episode in the last tenth."""
        found = []
        for name, results in self.results.items():
            totals = [result.total_regret for result in results]
            low, high = interval(totals) or (None, None)
            last = results[0].total_episodes
            tail = [(r.total_regret - r.regret_at(last - max(1, last // 10))) / max(1, last // 10) for r in results]
            row = {"agent": name, "seeds": len(results), "regret": float(np.mean(totals)), "low": low, "high": high}
            row |= {"median": float(np.median(totals)), "worst": float(max(totals)), "tail": float(np.mean(tail))}
            row |= {"plans": float(np.mean([r.plans for r in results])), "seconds": sum(r.wall_time for r in results)}
            found.append(row)
        return found

    @property
    def table(self) -> pa.Table:
        """The rows as a table."""
        return table_of_rows(self.rows)

    def to_pandas(self) -> Any:
        """Return the rows as a data frame of pandas."""
        return data_frame(self.table)

    def differences(self, baseline: str | None = None) -> list[dict[str, Any]]:
        """Return regret minus that of the baseline (the first agent by default), paired by seed, with intervals."""
        name = next(iter(self.results)) if baseline is None else baseline
        if name not in self.results:
            raise ParameterError("baseline", got=repr(baseline), expected=f"one of {list(self.results)}")
        base = {result.seed: result.total_regret for result in self.results[name]}
        found = []
        for agent, results in self.results.items():
            gaps = [result.total_regret - base[result.seed] for result in results if result.seed in base]
            if agent != name and gaps:
                low, high = interval(gaps) or (None, None)
                row = {"agent": agent, "baseline": name, "seeds": len(gaps), "mean": float(np.mean(gaps))}
                found.append(row | {"low": low, "high": high})
        return found

    def plot(self, axes: Axes | None = None, *, logarithmic: bool = False) -> Axes:
        """Draw mean cumulative regret with the interval of the mean, on the current axes unless some are given."""
        import matplotlib.pyplot as plt

        drawn: Axes = plt.gca() if axes is None else axes
        for name, results in self.results.items():
            last = min(result.total_episodes for result in results)
            at = np.unique(np.geomspace(1, last, _POINTS) if logarithmic else np.linspace(1, last, _POINTS)).astype(int)
            curves: Floats = np.array([result.regret_at(np.unique(at)) for result in results])
            line = drawn.plot(np.unique(at), curves.mean(axis=0), label=name)[0]
            ends = [interval(column) for column in curves.T[:: max(1, curves.shape[1] // 50)]]
            if all(each is not None for each in ends):
                low, high = np.array(ends, dtype=np.float64).T
                places = np.unique(at)[:: max(1, curves.shape[1] // 50)]
                drawn.fill_between(places, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        if logarithmic:
            drawn.set_xscale("log")
            drawn.set_yscale("symlog", linthresh=1.0)
        drawn.set(xlabel="episodes", ylabel="cumulative regret", title=self.problem)
        drawn.legend(fontsize="small")
        return drawn

    def to_latex(self) -> str:
        """Return the table for LaTeX (booktabs)."""
        escape = {ord(sign): f"\\{sign}" for sign in "&%$#_{}"}
        lines = [
            r"\begin{tabular}{lrrr}",
            r"\toprule",
            r"agent & regret & 95\,\% interval & worst seed \\",
            r"\midrule",
        ]
        for row in self.rows:
            ends = "" if row["low"] is None else f"[{row['low']:,.4g}, {row['high']:,.4g}]"
            lines.append(f"{row['agent'].translate(escape)} & {row['regret']:,.4g} & {ends} & {row['worst']:,.4g} \\\\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])

    def __str__(self) -> str:
        first = next(iter(self.results.values()))
        shown_rows = []
        for row in self.rows:
            ends = "" if row["low"] is None else f"[{row['low']:,.4g}, {row['high']:,.4g}]"
            named = {"agent": row["agent"], "regret": row["regret"], "95% interval": ends, "worst seed": row["worst"]}
            shown_rows.append(named | {"last tenth, an episode": row["tail"], "seconds": row["seconds"]})
        head = f"{self.problem}: {first[0].total_episodes:,} episodes, {len(first)} seeds"
        return f"{head}\n{text_table(shown_rows)}"

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(str(self))}</pre>"


def play_job(objects: str, path: str, seed: int, episodes: int, say: Any, stop: Any) -> None:
    """Play one agent with one seed in a worker; the result goes to ``path``."""
    agent, mdp = read_objects(Path(objects))
    finish(agent, mdp, seed, episodes, Path(path), say, stop)


def finish(agent: Learner, mdp: FiniteMDP, seed: int, episodes: int, path: Path, say: Any, stop: Any) -> None:
    """Play what the file does not hold yet, and save it."""
    before = load(path, agent, mdp) if path.exists() else None
    if before is None or before.total_episodes != episodes:
        save(play(agent, mdp, seed, episodes, path, CHECKPOINT_SECONDS, say, stop), path)


def _sendable(agents: Iterable[Learner], mdp: FiniteMDP, folder: Path) -> tuple[list[str], list[str]] | None:
    """Write agents for other processes; return the files and the modules to import, None where that cannot be done."""
    files, modules = [], set()
    for i, agent in enumerate(agents):
        files.append(str(folder / f"agent-{i}.npz"))
        try:
            modules |= set(write_objects(Path(files[-1]), agent, mdp))
        except CheckpointError:
            return None
        if "<locals>" in type(agent).__qualname__:
            return None
    try:
        there = all(name != "__main__" and importlib.util.find_spec(name) is not None for name in modules)
    except (ImportError, ValueError):
        there = False
    return (files, sorted(modules)) if there else None


def compare(
    agents: Mapping[str, Learner],
    problem: FiniteMDP | Problem,
    *,
    episodes: int,
    seeds: int | Iterable[int] = 10,
    workers: int | None = None,
    folder: str | Path | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Play several agents on one problem with the same seeds, and compare their exact regret.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> agents = {"uniform": orl.UniformRandom(), "optimal": orl.Optimal(mdp=problem.mdp)}
    >>> found = orl.compare(agents, problem, episodes=20, seeds=3, workers=1)
    >>> found.rows[1]["regret"]
    0.0

    Parameters
    ----------
    agents : dict of str to Learner
        In the order in which they are shown; differences are taken to the first.
    problem : FiniteMDP, or a problem that has one
    episodes : int
    seeds : int or iterable of int
        How many (0, 1, ...), or which.
    workers : int, optional
        Processes; as many as there are processors by default. Agents that another process cannot be told of (classes of
        a script or notebook, parameters that no file can hold) are played here, one after the other.
    folder : path, optional
        Keep the results there: a comparison that was stopped goes on where it was, and a longer one goes on from a
        shorter one. Results of an agent with other parameters or code are refused.
    progress : bool, optional
        Show progress on standard error; by default only when it takes longer than a second.

    Raises
    ------
    Interrupted
        On Ctrl-C; its ``result`` is the comparison of the seeds that every agent has finished, None without any.
    """
    mdp, episodes = as_mdp(problem), require_integer("episodes", episodes, 1)
    if not isinstance(agents, Mapping) or not agents or not all(isinstance(name, str) for name in agents):
        raise ParameterError("agents", got=f"{agents!r:.80}", expected='a dict such as {"name": agent}')
    for agent in agents.values():
        require_learner(agent)
    listed = isinstance(seeds, Iterable)
    numbers: Any = seeds if listed else range(require_integer("seeds", seeds, 1, most=_MOST_SEEDS))
    every = [require_integer("seeds", seed, 0) for seed in numbers]
    if not every or len(set(every)) < len(every):
        raise ParameterError("seeds", got=f"{every!r:.80}", expected="different seeds, at least one")
    team = require_integer("workers", processors() if workers is None else workers, 1)
    title = "problem" if isinstance(problem, FiniteMDP) else type(problem).__name__
    with tempfile.TemporaryDirectory(prefix="occamrl-") as scratch:
        place = as_path("folder", scratch if folder is None else folder)
        make_folder(place)
        with locked(place) if folder is not None else nullcontext(-1) as handle:
            paths = {
                (name, seed): place / f"{re.sub(r'[^A-Za-z0-9.]+', '-', name)}-{sha256(name.encode())[:6]}-{seed}.npz"
                for seed in every
                for name in agents
            }
            jobs = [key for key in paths if not _finished(paths[key], agents[key[0]], mdp, key[1], episodes)]
            sent = _sendable(agents.values(), mdp, Path(scratch)) if min(team, len(jobs)) > 1 else None
            if sent is None:
                _here.clear()
                _here.extend((agents[name], mdp, seed, episodes, paths[name, seed]) for name, seed in jobs)
                pool, tasks = Pool(f"{__name__}:play_here", 1), list[Any]([i] for i in range(len(jobs)))
            else:
                files = dict(zip(agents, sent[0], strict=True))
                inherit = [handle] if handle >= 0 else []
                pool = Pool(f"{__name__}:play_job", min(team, len(jobs)), sent[1], inherit=inherit)
                tasks = [[files[name], str(paths[name, seed].resolve()), seed, episodes] for name, seed in jobs]
            stopped = _follow(pool, tasks, progress)
            done = [s for s in every if all(_finished(paths[n, s], agents[n], mdp, s, episodes) for n in agents)]
            found = None
            if done:
                found = Comparison(title, {n: [load(paths[n, s], agents[n], mdp) for s in done] for n in agents})
    if stopped:
        keeps = f"; call again with folder={str(folder)!r} to go on" if folder is not None else ""
        raise Interrupted(f"stopped with {len(done)} of {len(every)} seeds{keeps}", found)
    if found is None:
        raise OccamRLError("compare: no run was finished")
    return found


_here: list[Any] = []  # jobs of the comparison under way that is played in this process


def play_here(i: int, say: Any, stop: Any) -> None:
    """Play a job in this process."""
    agent, mdp, seed, episodes, path = _here[i]
    finish(agent, mdp, seed, episodes, path, say, stop)


def _finished(path: Path, agent: Learner, mdp: FiniteMDP, seed: int, episodes: int) -> bool:
    """Say whether a file holds all episodes; one of something else is refused by its name and left in place."""
    if not path.exists():
        return False
    try:
        found = load(path, agent, mdp)
    except CheckpointError as error:
        expected = f"{error.expected}; use another folder, or another name of the agent"
        raise CheckpointError(error.field, got=error.got, expected=expected) from error
    if found.seed != seed or found.total_episodes > episodes:
        got = f"seed {found.seed}, {found.total_episodes:,} episodes"
        raise CheckpointError(str(path), got=got, expected=f"seed {seed}, up to {episodes:,}; use another folder")
    return found.total_episodes == episodes


def _follow(pool: Pool, tasks: list[Any], progress: bool | None) -> bool:
    """Play all tasks; say whether they were stopped. An error of one ends the others."""
    bar, ended, stopped = Progress("compare", max(len(tasks), 1), progress, unit="runs"), 0, False
    try:
        for _, event in pool.play(tasks):
            kind = event["event"]
            if kind == "storage":
                raise StorageError(event["path"], OSError(event["errno"], os.strerror(event["errno"] or 0)))
            if kind == "failed":
                raise OccamRLError(f"compare: a run failed: {event['text']}\n{event.get('trace', '')}".rstrip())
            ended, stopped = ended + (kind == "done"), stopped or kind == "stopped"
            bar.update(ended)
    finally:
        bar.close()
    return stopped


def league(records: Records) -> list[dict[str, Any]]:
    """Return the league tables of an experiment: per problem, who has how much regret with which guarantee.

    An agent that is swept is one row with two figures: those of its first values (the published ones), and those of the
    values that had the least mean regret on the spec's ``tuning_seeds``. Both are of the other seeds: nothing is shown
    on seeds that a value was chosen on.
    """
    tuning, swept = set(records.spec.get("tuning_seeds", [])), {}
    for entry in records.spec["agent"] if tuning else []:
        if isinstance(entry, dict) and entry.get("sweep"):
            from occamrl.experiments.spec import AgentEntry

            for label, parameters in AgentEntry.model_validate(entry).variants():
                rule = parameters.get("rule")
                swept[label] = str(rule["name"] if isinstance(rule, dict) else rule or entry["name"])
    rows: list[dict[str, Any]] = []
    for problem in dict.fromkeys(record["problem"]["label"] for record in records.cells):
        cells = [record for record in records.cells if record["problem"]["label"] == problem]
        rivals: dict[str, list[str]] = {}
        for label in dict.fromkeys(record["agent"]["label"] for record in cells):
            rivals.setdefault(swept.get(label, label), []).append(label)

        def totals(label: str, tuned: bool, cells: list[Any] = cells) -> list[float]:
            own = [each for each in cells if each["agent"]["label"] == label]
            return [each["total_regret"] for each in own if (each["seed"] in tuning) == tuned]

        for name, labels in rivals.items():
            best = min(labels, key=lambda label: float(np.mean(totals(label, True) or [np.inf])))
            about = next(each["resolved"] for each in cells if each["agent"]["label"] == labels[0])
            row: dict[str, Any] = {"problem": problem, "agent": name, "guarantee": about.get("guarantee", "not stated")}
            row |= {"given": ", ".join(map(str, about.get("given", []))) or "nothing"}
            for prefix, label in (("", labels[0]), ("tuned ", best)):
                shown_on = totals(label, False)
                tuned = prefix == "" or len(labels) > 1
                row[f"{prefix}regret"] = float(np.mean(shown_on)) if shown_on and tuned else None
            ends = interval(totals(labels[0], False))
            row |= {"95% interval": "" if ends is None else f"[{ends[0]:,.4g}, {ends[1]:,.4g}]"}
            row |= {"worst": max(totals(labels[0], False), default=None), "tuned": best if len(labels) > 1 else ""}
            rows.append(row)
    rows.sort(key=lambda row: (row["problem"], np.inf if row["regret"] is None else row["regret"]))
    return rows
