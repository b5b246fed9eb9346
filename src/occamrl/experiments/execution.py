"""An experiment from its spec to its records: the cells that are not finished are played.

The folder keeps digests of parameters and code. What was computed by other code or with other
parameters is refused, with what has changed, and never mixed with new results.
"""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import numpy as np
from threadpoolctl import threadpool_info

from occamrl.errors import ParameterError, RecordError
from occamrl.experiments import checkpoints, records
from occamrl.experiments.checkpoints import play_from_checkpoint
from occamrl.experiments.pool import Event, Listener, Pool, TaskPool, follow, require_workers
from occamrl.experiments.records import CURVE, Cell, Folder, Record, Records, locked
from occamrl.experiments.resolver import Resolver, make_problem
from occamrl.experiments.spec import as_data, check, read_spec
from occamrl.files import make_folder
from occamrl.models.features import FeatureMap
from occamrl.models.ladder import Ladder
from occamrl.models.model import ParametricLadder
from occamrl.problems.mdp import as_mdp
from occamrl.protocols import Learner, Problem, Rule
from occamrl.running.identity import changes, identity
from occamrl.running.result import Result
from occamrl.running.storage import write_sealed
from occamrl.selectors.arena import Arena
from occamrl.selectors.references import right_base

_LONGEST_REASON = 4_000  # characters that are kept of why a cell failed
_ADVICE = (
    "the spec, the parameters and the code that wrote these results. Take a new folder; or, to add "
    "others here, keep the entry and add a second [[agent]] or [[problem]] with a label of its "
    "own. For changed code, restore the file and make the change in a class with another name"
)


def play_cell(
    path: str,
    content: Mapping[str, Any],
    seconds: float,
    say: Listener = lambda news: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, float]:
    """Play a cell of the experiment in a folder and write its record; return a few facts."""
    folder = Folder(path)
    cell = Cell(**content)
    # A worker may have been killed after it wrote the record, before it could say so.
    record = folder.record_of(cell)
    checkpoint = folder.checkpoint_file(cell)
    if record is None or record["status"] != "done":
        problem = make_problem(cell.problem["name"], json.dumps(cell.problem["parameters"]))
        resolver = Resolver(problem, cell.episodes)
        agent = resolver.agent(cell.agent["name"], cell.agent["parameters"])
        for fault in resolver.faults:
            raise ParameterError(fault.key, got=fault.got, expected=fault.expected)
        mdp = as_mdp(problem)
        result = play_from_checkpoint(
            agent, mdp, cell.seed, cell.episodes, checkpoint, seconds=seconds, say=say, stop=stop
        )
        resolved = describe_agent(agent, problem)
        done = {"status": "done", "resolved": resolved, "reason": None}
        record = write_record(folder, cell, {**done, **summarise(result, cell.thinning)})
    checkpoint.remove()
    return {"total_regret": record["total_regret"], "wall_time": record["wall_time"]}


def summarise(result: Result, thinning: int) -> dict[str, Any]:
    """Return totals, the curve at some episodes, the exact one in pieces, phases: plain data."""
    episode = result.episodes
    if thinning and episode.size > thinning:
        spaced = np.geomspace(1, episode.size, thinning).astype(np.int64) - 1
        episode = np.union1d(episode[spaced], episode[-1:])
    # At these episodes only: the curves of a run may have a million points.
    sizes = np.array(result.blocks.episodes)
    block = np.searchsorted(np.cumsum(sizes), episode)
    cumulative = result.regret_at(episode)
    regret = cumulative - result.regret_at(episode - 1)
    returns = np.array(result.blocks.returns)[block] / sizes[block]
    summary = {
        "total_regret": result.total_regret,
        "total_return": result.total_return,
        "wall_time": result.wall_time,
        "plans": result.plans,
        "pessimistic_episodes": result.pessimistic_episodes,
        "curve": dict(zip(CURVE, (episode, regret, cumulative, returns), strict=True)),
        "pieces": pieces(result),
        "phases": result.phase_rows,
    }
    return {name: to_json(value) for name, value in summary.items()}


def pieces(result: Result) -> dict[str, Any]:
    """Return the exact curve of regret: stretches of equal regret per episode, and their sums."""
    episodes = np.array(result.blocks.episodes)
    regret = np.array(result.blocks.regret)
    per_episode = regret / np.maximum(episodes, 1)
    first = np.flatnonzero(np.diff(per_episode, prepend=np.nan) != 0.0)
    return {"episodes": np.add.reduceat(episodes, first), "regret": np.add.reduceat(regret, first)}


def describe_agent(agent: Learner, problem: Problem) -> dict[str, Any]:
    """Return an agent's parameters in plain data, what is proved of it, and what is true."""
    described: dict[str, Any] = {}
    if is_dataclass(agent):
        described = {field.name: to_json(getattr(agent, field.name)) for field in fields(agent)}
    proved: Learner | Rule = agent
    bases: Sequence[Learner] = ()
    if isinstance(agent, Arena):  # of which the rule is what something is proved of
        proved = agent.rule
        bases = agent.bases
    guarantee = str(getattr(proved, "guarantee", "not stated"))
    scaled = any(getattr(part, "scale", 1.0) != 1.0 for part in (proved, *bases))
    if scaled and guarantee not in ("none", "not stated"):
        # What was proved for the published constants is not claimed for others.
        guarantee = "constants scaled"
    described["guarantee"] = guarantee
    described["given"] = list(getattr(proved, "given", ()))

    mdp = as_mdp(problem)
    ladder = getattr(agent, "ladder", None)
    if isinstance(ladder, (Ladder, ParametricLadder)):
        described["classes"] = list(ladder.names)
        # on one class there is nothing to get right
        if ladder.classes > 1:
            described["true_class"] = ladder.class_of(mdp)
    if isinstance(agent, Arena):
        right = right_base(agent, mdp)
        if right is not None:
            described["true_base"] = right - 1
    theta = getattr(problem, "theta", None)
    features = getattr(agent, "features", None)
    if (
        theta is not None
        and isinstance(features, FeatureMap)
        and features.dimension == np.size(theta)
    ):
        described["true_support"] = np.flatnonzero(theta).tolist()
    return described


def to_json(value: Any) -> Any:
    """Return data that every JSON reader takes: NaN is null, infinities are texts."""
    if isinstance(value, dict):
        return {str(key): to_json(part) for key, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [to_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return repr(value)[:1_000]


def versions() -> dict[str, str]:
    """Return the versions of what computes."""
    return {
        "occamrl": str(sys.modules["occamrl"].__version__),
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        "scipy": metadata.version("scipy"),
    }


def machine() -> dict[str, str]:
    """Return the kinds of processor and of linear algebra: with others last digits may differ."""
    libraries = set()
    for library in threadpool_info():
        if library["user_api"] == "blas":
            kernels = library.get("architecture", "")
            name = f"{library['internal_api']} {library['version']} {kernels}"
            libraries.add(name.strip())
    return {"processor": platform.machine(), "linear algebra": ", ".join(sorted(libraries))}


def write_record(folder: Folder, cell: Cell, outcome: dict[str, Any]) -> Record:
    """Write the record of a cell, which makes it finished or failed; return it."""
    versions_used = {**versions(), **machine()}
    origin = {"cell": cell.id, "versions": versions_used, "platform": platform.platform()}
    record = {**asdict(cell), **origin, **outcome}
    write_sealed(folder.record_file(cell), record)
    return cast(Record, record)


class Experiment:
    """Agents, problems and seeds, checked, and their cells: every combination of the three.

    >>> import occamrl as orl
    >>> problems = [orl.make_problem("river-swim", states=3)]
    >>> linear = {"name": "UCRLVTRLin", "parameters": {"norm_bound": "sqrt(SA)"}}
    >>> agents = [orl.PSRL(), orl.Optimal, linear]
    >>> experiment = orl.Experiment(
    ...     name="river", episodes=100, seeds=2, problem=problems, agent=agents
    ... )
    >>> len(experiment.cells)
    6

    Parameters
    ----------
    imports : sequence of str
        The modules that the spec lists under ``import``: a file alone is never a reason to run
        code.
    **spec
        The keys of a spec, as in TOML; problems, agents and rules may be classes, or objects with
        plain parameters. :class:`SpecError` says what is wrong with it.
    """

    def __init__(self, *, imports: Sequence[str] = (), **spec: Any) -> None:
        data, modules = as_data(spec)
        self._set("spec", data, [*imports, *modules])

    def _set(self, path: str | Path, data: dict[str, Any], imports: Sequence[str]) -> None:
        """Check the data of a spec, and become its experiment."""
        self.cells, identities = check(data, path, imports)
        self.data = data
        self.name: str = data["name"]
        self.imports = list(imports)
        # Other versions may draw or round differently: their results are not mixed.
        numbers = {f"{name} version": versions()[name] for name in ("occamrl", "numpy")}
        self.code = {key: {**numbers, **parts} for key, parts in identities.items()}

    @classmethod
    def from_toml(cls, spec: str | Path, *, imports: Sequence[str] = ()) -> Experiment:
        """Return the experiment of a TOML file, or of a shipped spec called by its name."""
        experiment = cls.__new__(cls)
        experiment._set(spec, read_spec(spec), imports)
        return experiment

    @classmethod
    def resume(cls, folder: str | Path, *, imports: Sequence[str] = (), **options: Any) -> Records:
        """Go on with the experiment in a folder; ``options`` are those of :meth:`run`."""
        stored = Folder(folder)
        experiment = cls.__new__(cls)
        experiment._set(stored.experiment_file.path, stored.experiment()["spec"], imports)
        return experiment.run(folder, **options)

    status = staticmethod(records.status)
    verify = staticmethod(records.verify)

    def run(
        self,
        folder: str | Path,
        *,
        workers: int | None = None,
        scheduler: str | None = None,
        progress: bool | None = None,
        listen: Callable[[dict[str, Any]], None] = lambda event: None,
        other_machine: bool = False,
    ) -> Records:
        """Play the cells that are not finished in ``folder``, and return all records.

        Ctrl-C stops cells at a block boundary and raises KeyboardInterrupt, which says how to go
        on.

        Parameters
        ----------
        folder : path
            Made if missing, continued if it holds this experiment. Results of other code or
            parameters are refused.
        workers : int, optional
            Processes; as many as there are processors by default.
        scheduler : str, optional
            The address of a Dask scheduler, whose workers see the same folder, instead of
            ``workers``.
        progress : bool, optional
            Show progress on standard error; by default only when it takes longer than a second.
        listen : callable, optional
            Told of every event, a dict with ``event`` (begin, progress, done, failed, retry,
            stopped), ``cell``, ...
        other_machine : bool
            Go on although the folder was begun on another kind of processor, or with other linear
            algebra, where the last digits of results may differ. Every record says its own.
        """
        if workers is not None and scheduler is not None:
            raise ParameterError(
                "workers", got=workers, expected="none: the Dask scheduler has its own"
            )
        count = require_workers(workers)
        stored = Folder(folder)
        make_folder(stored.path)
        with locked(stored.path) as lock:
            self._claim(stored, other_machine)
            todo = stored.unfinished(self.cells)
            tasks = [
                [str(stored.path.resolve()), asdict(cell), checkpoints.CHECKPOINT_SECONDS]
                for cell in todo
            ]

            def take(number: int, event: Event) -> None:
                cell = todo[number]
                if event["event"] == "failed":
                    reason = event.get("trace") or event["text"]
                    failure = {"status": "failed", "reason": reason[-_LONGEST_REASON:]}
                    write_record(stored, cell, failure)
                listen({**event, "cell": cell.id, **cell.names})

            function = f"{__name__}:play_cell"
            pool: TaskPool = Pool(function, min(count, max(len(todo), 1)), self.imports, [lock])
            if scheduler is not None:
                # An extra: most installations do not have Dask.
                from occamrl.experiments.dask import DaskPool

                pool = DaskPool(function, scheduler, stored.path.resolve(), self.imports)
            stopped = follow(self.name, "cells", pool, tasks, progress, take)
        if stopped:
            done = len(self.cells) - len(stored.unfinished(self.cells))
            command = " ".join(
                [f"occamrl resume {folder}", *(f"--import {name}" for name in self.imports)]
            )
            finished = f"{done} of {len(self.cells)} cells are finished"
            raise KeyboardInterrupt(f"stopped; {finished}; continue with: {command}")
        return records.load(folder)

    def _claim(self, folder: Folder, other_machine: bool) -> None:
        """Write the experiment into a folder, unless that holds results of something else."""
        here = machine()
        if folder.experiment_file.exists():
            document = folder.experiment()
            if changed := changes(document["machine"], here):
                if not other_machine:
                    raise RecordError(
                        folder.experiment_file.path,
                        got=f"results of another kind of machine ({changed})",
                        expected="the same kind, for the same bits; or other_machine=True "
                        "(--other-machine), where the last digits need not agree",
                    )
                here = document["machine"]
            for key, before in document["code"].items():
                if key in self.code and (changed := changes(before, self.code[key])):
                    raise RecordError(
                        folder.experiment_file.path, got=f"{key}: {changed}", expected=_ADVICE
                    )
            ours = {cell.id for cell in self.cells}
            others = [cell for cell in folder.planned() if cell.id not in ours]
            if others:
                got = (
                    f"{len(others)} cell(s) that the spec does not have, such as {others[0].names}"
                )
                got += self._difference(others[0])
                raise RecordError(folder.experiment_file.path, got=got, expected=_ADVICE)
        folder.create(self.name, self.data, self.cells, self.code, here)

    def _difference(self, other: Cell) -> str:
        """Return how a cell differs from that of this experiment with the same names."""
        for cell in self.cells:
            if cell.names == other.names:
                before = identity(asdict(other), "cell")
                return f": {changes(before, identity(asdict(cell), 'cell'))}"
        return ""
