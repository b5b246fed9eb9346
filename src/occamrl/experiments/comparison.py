"""Several agents on one problem, over the same seeds: :func:`compare`, and what it returns.

Every seed is one observation; differences are taken seed by seed, since two agents with the same
seed share the same random numbers.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, Never, cast

from occamrl.answers.wording import count_of
from occamrl.errors import (
    CheckpointError,
    Interrupted,
    OccamRLError,
    ParameterError,
    UnknownName,
    as_path,
    require_integer,
    require_kind,
)
from occamrl.experiments.checkpoints import (
    CHECKPOINT_SECONDS,
    earlier_result,
    play_from_checkpoint,
)
from occamrl.experiments.pair_tests import Method, PairTests
from occamrl.experiments.pool import Event, Listener, Pool, follow, require_workers
from occamrl.experiments.records import locked
from occamrl.experiments.tables import Differences, Runs, Tables, differences_of, tests_of
from occamrl.files import Entry, make_folder
from occamrl.naming import printable_name
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Learner, Problem
from occamrl.running.result import Result
from occamrl.running.run import require_learner
from occamrl.running.storage import read_objects, save_to, sha256, write_objects

_OPTIONS = ("episodes", "seeds", "workers", "folder", "progress", "agents", "problem")
_MEANT = {  # by options of other packages, and of earlier versions
    **dict.fromkeys(("n_jobs", "processes", "jobs", "n_workers"), "workers"),
    **dict.fromkeys(("out", "path", "directory", "out_dir"), "folder"),
    "n_seeds": "seeds",
    "verbose": "progress",
}


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Tables):
    """The results of :func:`compare`.

    Print it, ``plot()`` it, take its ``rows``, ``to_latex()`` or ``to_pandas()``.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> found = orl.compare({"uniform": orl.UniformRandom()}, problem, episodes=20, seeds=3)
    >>> found.rows[0]["agent"], len(found.results["uniform"])
    ('uniform', 3)
    """

    problem: str  # its name
    results: Mapping[str, Sequence[Result]]  # of every agent one per seed, in the same order

    def __post_init__(self) -> None:
        require_kind("problem", self.problem, str)
        require_kind("results", self.results, Mapping)
        if not self.results:
            raise ParameterError("results", got="none", expected="those of one agent at least")
        for name, runs in self.results.items():
            require_kind(f"results[{name!r:.80}]", runs, Sequence)
            for result in runs:
                require_kind(f"results[{name!r:.80}]", result, Result)

    @property
    def runs(self) -> Runs:
        """The results, by problem and agent."""
        return {self.problem: self.results}

    def regret_at(self, episode: int) -> dict[str, Any]:
        """Return the exact cumulative regret after so many episodes, by agent: one per seed."""
        return dict(super().regret_at(episode)[self.problem])

    def differences(self, baseline: str | None = None) -> Differences:
        """Return regret minus that of the baseline, paired by seed, with intervals.

        The baseline is the first agent by default. Each interval is for its pair alone; ``tests()``
        are for all pairs together.
        """
        return Differences(differences_of(self.results, baseline))

    def tests(self, *, level: float = 0.05, method: Method = "fixed") -> PairTests:
        """Return which agents differ, by tests that hold together at one level.

        >>> import occamrl as orl
        >>> problem = orl.make_problem("river-swim", states=3)
        >>> agents = {"uniform": orl.UniformRandom(), "optimal": orl.Optimal(mdp=problem.mdp)}
        >>> found = orl.compare(agents, problem, episodes=20, seeds=8, workers=1)
        >>> print(found.tests().sentences[1])
        optimal has less regret than uniform (p = 0.0078).

        Parameters
        ----------
        level : float
            With probability 1 - level nothing is claimed of agents that are equal.
        method : "fixed" | "sequential"
            For a number of seeds that was fixed beforehand; or for seeds that were added as long as
            one liked, which takes more of them.
        """
        return tests_of(self.results, level, method)

    def __str__(self) -> str:
        first = next(iter(self.results.values()))
        episodes = count_of(first[0].total_episodes, "episode")
        sizes = f"{episodes}, {count_of(len(first), 'seed')}"
        head = f"{printable_name(self.problem)}: {sizes}"
        return f"{head}\n{self._text()}"

    __repr__ = __str__


_LONGEST_NAME = 60  # letters of an agent's name in the name of its file


def play_run(
    who: str | tuple[Learner, FiniteMDP],
    path: str,
    seed: int,
    episodes: int,
    say: Listener,
    stop: Callable[[], bool],
) -> None:
    """Play an agent on a problem; the result goes to a file.

    ``who`` is both, or in another process the file that holds them.
    """
    if isinstance(who, str):
        agent, mdp = read_objects(Entry.of(Path(who)))
    else:
        agent, mdp = who
    file = Entry.inside(Path(path))
    seconds = CHECKPOINT_SECONDS
    result = play_from_checkpoint(
        agent, mdp, seed, episodes, file, seconds=seconds, say=say, stop=stop
    )
    save_to(file, result)


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
    for name in others:
        known = [_MEANT[name]] if name in _MEANT else _OPTIONS
        raise UnknownName("compare", got=name, known=known)
    mdp = as_mdp(problem)
    episodes = require_integer("episodes", episodes, 1)
    named = isinstance(agents, Mapping) and all(isinstance(name, str) for name in agents)
    if not named or not agents:
        raise ParameterError(
            "agents", got=f"{agents!r:.80}", expected='a dict such as {"name": agent}'
        )
    for agent in agents.values():
        require_learner(agent)
    if not isinstance(seeds, Iterable):
        seeds = range(require_integer("seeds", seeds, 1))
    every_seed = [require_integer("seeds", seed, 0) for seed in seeds]
    if not every_seed or len(set(every_seed)) < len(every_seed):
        raise ParameterError(
            "seeds", got=f"{every_seed!r:.80}", expected="different seeds, at least one"
        )
    count = require_workers(workers)

    with tempfile.TemporaryDirectory(prefix="occamrl-") as scratch:
        kept = as_path("folder", scratch if folder is None else folder)
        make_folder(kept)
        with locked(kept) as lock:
            files = RunFiles(kept.resolve(), agents, mdp, episodes)
            jobs = []
            for seed in every_seed:
                jobs += [(name, seed) for name in agents if files.finished(name, seed) is None]
            count = min(count, max(1, len(jobs)))
            # In this process agents are handed over as they are, to others in files.
            who: Mapping[str, Any] = {name: (agent, mdp) for name, agent in agents.items()}
            modules: list[str] = []
            if count > 1:
                try:
                    who, modules = hand_over(agents, mdp, Path(scratch))
                except CheckpointError:
                    # A class of a script, or a parameter that no file can hold.
                    count = 1
            tasks = [
                [who[name], str(files.file(name, seed)), seed, episodes] for name, seed in jobs
            ]
            pool = Pool(f"{__name__}:play_run", count, modules, [lock])
            stopped = follow("compare", "runs", pool, tasks, progress, raise_failure)
            results = {name: [files.finished(name, seed) for seed in every_seed] for name in agents}
    # On Ctrl-C some seeds are finished by some agents only: these are left out.
    complete = [None not in row for row in zip(*results.values(), strict=True)]
    comparison = None
    if any(complete):
        title = type(problem).__name__
        if isinstance(problem, FiniteMDP):
            title = problem.name or "problem"
        compared = {name: list(compress(row, complete)) for name, row in results.items()}
        comparison = Comparison(title, cast(dict[str, list[Result]], compared))
    if comparison is None or stopped:
        text = f"stopped with {sum(complete)} of {len(every_seed)} seeds"
        if folder is not None:
            text += f"; call again with folder={str(folder)!r} to go on"
        raise Interrupted(text, comparison)
    return comparison


@dataclass(frozen=True, eq=False)
class RunFiles:
    """The files of a comparison: one for each agent and seed."""

    folder: Path
    agents: Mapping[str, Learner]
    mdp: FiniteMDP
    episodes: int

    def file(self, name: str, seed: int) -> Entry:
        """Return where a run is kept: under a name that a file may have, and nobody else has."""
        readable = re.sub(r"[^A-Za-z0-9.]+", "-", name)[:_LONGEST_NAME]
        unique = f"{readable}-{sha256(name.encode())[:6]}-{seed}.npz"
        return Entry.inside(self.folder / unique)

    def finished(self, name: str, seed: int) -> Result | None:
        """Return the result of a run that has come to its end."""
        file = self.file(name, seed)
        result = earlier_result(file, self.agents[name], self.mdp, seed, self.episodes)
        if result is None or result.total_episodes < self.episodes:
            return None
        return result


def hand_over(
    agents: Mapping[str, Learner], mdp: FiniteMDP, folder: Path
) -> tuple[dict[str, str], list[str]]:
    """Write agents for other processes; return their files, and the modules of users' classes."""
    paths: dict[str, str] = {}
    modules: set[str] = set()
    for number, (name, agent) in enumerate(agents.items()):
        path = folder / f"agent-{number}.npz"
        paths[name] = str(path)
        modules.update(write_objects(Entry.of(path), agent, mdp))
    return paths, sorted(modules)


def raise_failure(number: int, event: Event) -> None:
    """Raise what made a run fail."""
    if event["event"] == "failed":
        trace = event.get("trace", "")
        raise OccamRLError(f"compare: a run failed: {event['text']}\n{trace}".rstrip())
