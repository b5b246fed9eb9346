"""Several agents on one problem, over the same seeds: :func:`compare`, what it returns, and league tables.

Every seed is one observation; differences are taken seed by seed, since two agents with the same
seed share the same random numbers.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

import numpy as np

from occamrl.errors import (
    CheckpointError,
    Interrupted,
    OccamRLError,
    ParameterError,
    UnknownName,
    as_path,
    require_integer,
)
from occamrl.experiments.pool import (
    CHECKPOINT_SECONDS,
    Event,
    Listener,
    Pool,
    earlier,
    follow,
    play,
    processors,
)
from occamrl.experiments.records import Records, locked
from occamrl.experiments.tables import Runs, Tables, ends_of, interval
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Learner, Problem
from occamrl.running.result import Result
from occamrl.running.run import require_learner
from occamrl.running.storage import make_folder, read_objects, save, sha256, write_objects

_OPTIONS = ("episodes", "seeds", "workers", "folder", "progress")
_MEANT = dict.fromkeys(("n_jobs", "processes", "jobs", "n_workers"), "workers")
_MEANT |= dict.fromkeys(("out", "path", "directory", "out_dir"), "folder") | {
    "n_seeds": "seeds",
    "verbose": "progress",
}


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Tables):
    """The results of :func:`compare`: print it, ``plot()`` it, take its ``rows``, ``to_latex()`` or ``to_pandas()``.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> found = orl.compare({"uniform": orl.UniformRandom()}, problem, episodes=20, seeds=3)
    >>> found.rows[0]["agent"], len(found.results["uniform"])
    ('uniform', 3)
    """

    problem: str  # its name
    results: Mapping[str, Sequence[Result]]  # of every agent one per seed, in the same order

    @property
    def runs(self) -> Runs:
        """The results, by problem and agent."""
        return {self.problem: self.results}

    def regret_at(self, episode: int) -> dict[str, Any]:
        """Return the exact cumulative regret after so many episodes, by agent: one number per seed."""
        return dict(super().regret_at(episode)[self.problem])

    def differences(self, baseline: str | None = None) -> list[dict[str, Any]]:
        """Return regret minus that of the baseline (the first agent by default), paired by seed, with intervals."""
        name = next(iter(self.results)) if baseline is None else baseline
        if name not in self.results:
            raise ParameterError(
                "baseline", got=repr(baseline), expected=f"one of {list(self.results)}"
            )
        base, found = [result.total_regret for result in self.results[name]], []
        for agent, results in self.results.items():
            if agent != name:
                gaps = [
                    result.total_regret - other for result, other in zip(results, base, strict=True)
                ]
                low, high = interval(gaps) or (None, None)
                row = {
                    "agent": agent,
                    "baseline": name,
                    "seeds": len(gaps),
                    "mean": float(np.mean(gaps)),
                }
                found.append(row | {"low": low, "high": high})
        return found

    def __str__(self) -> str:
        first = next(iter(self.results.values()))
        return f"{self.problem}: {first[0].total_episodes:,} episodes, {len(first)} seeds\n{self._text()}"

    __repr__ = __str__


def play_run(
    who: Any, path: str, seed: int, episodes: int, say: Listener, stop: Callable[[], bool]
) -> None:
    """Play an agent on a problem (``who``, in another process the file that holds both); the result goes to a file."""
    agent, mdp = read_objects(Path(who)) if isinstance(who, str) else who
    save(play(agent, mdp, seed, episodes, Path(path), CHECKPOINT_SECONDS, say, stop), path)


def compare(
    agents: Mapping[str, Learner],
    problem: FiniteMDP | Problem,
    *,
    episodes: int,
    seeds: int | Iterable[int] = 10,
    workers: int | None = None,
    folder: str | Path | None = None,
    progress: bool | None = None,
    **others: Never,
) -> Comparison:
    """Play several agents on one problem with the same seeds, and compare their exact regret.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> agents = {"uniform": orl.UniformRandom(), "optimal": orl.Optimal(mdp=problem.mdp)}
    >>> found = orl.compare(agents, problem, episodes=20, seeds=3, workers=1)
    >>> found.rows[1]["regret"]
    0.0

    On Ctrl-C the ``result`` of :class:`Interrupted` is the comparison of the seeds that every agent
    has finished.

    Parameters
    ----------
    agents : dict of str to Learner
        In the order in which they are shown; differences are taken to the first.
    problem : FiniteMDP, or a problem that has one
    episodes : int
    seeds : int or iterable of int
        How many (0, 1, ...), or which.
    workers : int, optional
        Processes; as many as there are processors by default. Agents that another process cannot be
        told of (classes of a script or notebook, parameters that no file can hold) are played here,
        one after the other.
    folder : path, optional
        Keep the results there: a comparison that was stopped goes on where it was, and a longer one
        goes on from a shorter one. Results of an agent with other parameters or code are refused.
    progress : bool, optional
        Show progress on standard error; by default only when it takes longer than a second.
    """
    for name in others:  # those of other packages, and of earlier versions
        meant = _MEANT.get(name)
        raise UnknownName(
            "compare", got=name, known=[meant] if meant else (*_OPTIONS, "agents", "problem")
        )
    mdp, episodes = as_mdp(problem), require_integer("episodes", episodes, 1)
    if (
        not isinstance(agents, Mapping)
        or not agents
        or not all(isinstance(name, str) for name in agents)
    ):
        raise ParameterError(
            "agents", got=f"{agents!r:.80}", expected='a dict such as {"name": agent}'
        )
    for agent in agents.values():
        require_learner(agent)
    numbers = seeds if isinstance(seeds, Iterable) else range(require_integer("seeds", seeds, 1))
    every = [require_integer("seeds", seed, 0) for seed in numbers]
    if not every or len(set(every)) < len(every):
        raise ParameterError(
            "seeds", got=f"{every!r:.80}", expected="different seeds, at least one"
        )
    team = require_integer("workers", processors() if workers is None else workers, 1)
    with tempfile.TemporaryDirectory(prefix="occamrl-") as scratch:
        place = as_path("folder", scratch if folder is None else folder)
        make_folder(place)

        def path_of(name: str, seed: int) -> Path:
            return (
                place
                / f"{re.sub(r'[^A-Za-z0-9.]+', '-', name)}-{sha256(name.encode())[:6]}-{seed}.npz"
            )

        def finished(name: str, seed: int) -> Result | None:
            found = earlier(path_of(name, seed), agents[name], mdp, seed, episodes)
            return found if found is not None and found.total_episodes == episodes else None

        def take(i: int, event: Event) -> None:
            if event["event"] == "failed":
                raise OccamRLError(
                    f"compare: a run failed: {event['text']}\n{event.get('trace', '')}".rstrip()
                )

        with locked(place) if folder is not None else nullcontext(None) as handle:
            jobs = [
                (name, seed) for seed in every for name in agents if finished(name, seed) is None
            ]
            who: dict[str, Any] = {name: (agent, mdp) for name, agent in agents.items()}
            files = {name: str(Path(scratch) / f"agent-{i}.npz") for i, name in enumerate(agents)}
            modules, team = set[str](), min(team, max(1, len(jobs)))
            if team > 1:
                try:
                    modules = {
                        module
                        for name in agents
                        for module in write_objects(Path(files[name]), *who[name])
                    }
                    who = files
                except CheckpointError:  # another process cannot be told of it
                    team = 1
            tasks = [
                [who[name], str(path_of(name, seed).resolve()), seed, episodes]
                for name, seed in jobs
            ]
            pool = Pool(
                f"{__name__}:play_run", team, sorted(modules), [] if handle is None else [handle]
            )
            stopped = follow("compare", "runs", pool, tasks, progress, take)
            results = {seed: {name: finished(name, seed) for name in agents} for seed in every}
    done = [seed for seed in every if None not in results[seed].values()]
    found = None
    if done:
        title = "problem" if isinstance(problem, FiniteMDP) else type(problem).__name__
        found = Comparison(
            title,
            {name: [each for seed in done if (each := results[seed][name])] for name in agents},
        )
    if found is None or stopped:
        keeps = f"; call again with folder={str(folder)!r} to go on" if folder is not None else ""
        raise Interrupted(f"stopped with {len(done)} of {len(every)} seeds{keeps}", found)
    return found


def right_class(record: dict[str, Any]) -> float | None:
    """Return the share of a run's episodes with the right class, features or base; None where there is none."""
    resolved, rows = record["resolved"], record["phases"]
    if resolved.get("scope") == "all" or not rows:
        return None
    if (base := resolved.get("true_base")) is not None and "plays" in rows[-1]:
        return float(rows[-1]["plays"][base] / max(1, sum(rows[-1]["plays"])))
    truth = resolved.get("true_class", resolved.get("true_support"))
    rows = [row for row in rows if row.get("label") != "estimation" and "chosen" in row]
    if truth is None or not rows:
        return None
    return float(
        sum(row["episodes"] for row in rows if row["chosen"] == truth)
        / sum(row["episodes"] for row in rows)
    )


def league(records: Records) -> list[dict[str, Any]]:
    """Return the league tables of an experiment: per problem, who has how much regret with which guarantee.

    An agent that is swept is one row with two figures: those of its first values (the published
    ones), and those of the values that had the least mean regret on the spec's ``tuning_seeds``.
    Both are of the other seeds: nothing is shown on seeds that a value was chosen on. ``right
    class`` is the share of episodes in which the right class was played, or the right features: of
    selectors that play what they choose, where the truth is in the ladder.
    """
    tuning = set(records.spec.get("tuning_seeds", []))
    swept = {
        record["agent"]["label"] for record in records.cells if record["seed"] in tuning
    }  # no others play them
    about: dict[
        tuple[str, str], dict[str, Any]
    ] = {}  # by problem and agent: the labels, with what is proved
    rights: dict[tuple[str, str], list[float | None]] = {}
    totals: dict[
        tuple[str, str, bool], list[float]
    ] = {}  # by problem, label, and whether the seeds are for tuning
    for record in records.cells:
        problem, agent, label = (
            record["problem"]["label"],
            record["agent"],
            record["agent"]["label"],
        )
        rule = agent["parameters"].get("rule") or agent["name"]
        name = (rule if isinstance(rule, str) else rule["name"]) if label in swept else label
        about.setdefault((problem, name), {})[label] = record["resolved"]
        if label not in swept or record["seed"] not in tuning:
            rights.setdefault((problem, label), []).append(right_class(record))
        totals.setdefault((problem, label, record["seed"] in tuning), []).append(
            record["total_regret"]
        )
    rows: list[dict[str, Any]] = []
    for (problem, name), labels in about.items():
        first, several = next(iter(labels)), len(labels) > 1
        best = min(
            labels, key=lambda label: float(np.mean(totals.get((problem, label, True), [np.inf])))
        )
        own, tuned = totals.get((problem, first, False), []), totals.get((problem, best, False), [])
        low, high = interval(own) or (None, None)
        row: dict[str, Any] = {
            "problem": problem,
            "agent": name,
            "guarantee": labels[first].get("guarantee", ""),
        }
        row["given beforehand"] = ", ".join(map(str, labels[first].get("given", []))) or "nothing"
        row["regret"] = float(np.mean(own)) if own else None
        row["tuned regret"] = float(np.mean(tuned)) if tuned and several else None
        row["95% interval"] = ends_of({"low": low, "high": high})
        shares = [share for share in rights.get((problem, first), []) if share is not None]
        row["right class"] = f"{100.0 * float(np.mean(shares)):.0f} %" if shares else ""
        rows.append(row | {"worst": max(own, default=None), "tuned": best if several else ""})
    return sorted(
        rows, key=lambda row: (row["problem"], np.inf if row["regret"] is None else row["regret"])
    )
