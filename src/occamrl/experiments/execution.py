"""An experiment from its spec to its records: the cells that are not finished are played, in any order.

The folder keeps digests of parameters and code. What was computed by other code or with other
parameters is refused, with what has changed, and never mixed with new results.
"""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, is_dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from occamrl.errors import ParameterError, RecordError, require_integer
from occamrl.experiments import pool, records
from occamrl.experiments.pool import Event, Listener, Pool, follow, play, processors
from occamrl.experiments.records import CURVE, TOTALS, Cell, Folder, Records, locked
from occamrl.experiments.spec import Resolver, as_data, check, make_problem, read_spec
from occamrl.models.ladder import Ladder
from occamrl.models.model import ParametricLadder
from occamrl.problems.mdp import as_mdp
from occamrl.running.identity import changes, identity
from occamrl.running.result import Result
from occamrl.running.storage import make_folder, write_sealed


def play_cell(
    folder: str,
    content: Event,
    seconds: float,
    say: Listener = lambda news: None,
    stop: Callable[[], bool] = lambda: False,
) -> Event:
    """Play a cell of an experiment and write its record; return a few facts."""
    place, cell = Folder(folder), Cell(**content)
    record = place.record_of(cell)  # perhaps of a worker that was killed before it could say so
    checkpoint = place.cells / f"{cell.id}.npz"
    if record is None or record["status"] != "done":
        problem = make_problem(cell.problem["name"], json.dumps(cell.problem["parameters"]))
        resolver = Resolver(problem, cell.episodes)
        agent = resolver.agent(cell.agent["name"], cell.agent["parameters"])
        for fault in resolver.faults:
            raise ParameterError(fault.key, got=fault.got, expected=fault.expected)
        result = play(
            agent, as_mdp(problem), cell.seed, cell.episodes, checkpoint, seconds, say, stop
        )
        record = {
            "status": "done",
            "resolved": about(agent, problem),
            "reason": None,
            **described(cell, result),
        }
        write_record(place, cell, record)
    checkpoint.unlink(missing_ok=True)
    return {key: record[key] for key in ("total_regret", "wall_time") if key in record}


def described(cell: Cell, result: Result) -> Event:
    """Return the totals, the thinned curve, the exact one in pieces and the phases of a result, in plain data."""
    at = result.episodes
    if cell.thinning and at.size > cell.thinning:
        spaced = np.geomspace(1, at.size, cell.thinning).astype(np.int64) - 1
        at = np.union1d(at[spaced], at[-1:])
    regret, before = result.regret_at(at), result.regret_at(at - 1)
    piece = np.searchsorted(np.cumsum(result.blocks.episodes), at)
    returns = np.array(result.blocks.returns)[piece] / np.array(result.blocks.episodes)[piece]
    curve = [column.tolist() for column in (at, regret - before, regret, returns)]
    totals = {name: getattr(result, name) for name in TOTALS}
    kept = {
        "curve": dict(zip(CURVE, curve, strict=True)),
        "pieces": pieces(result),
        "phases": result.phase_rows,
    }
    found: Event = to_json({**totals, **kept})
    return found


def pieces(result: Result) -> Event:
    """Return the exact curve of regret: stretches of episodes with the same regret, and their sums."""
    episodes, regret = (
        np.array(column) for column in (result.blocks.episodes, result.blocks.regret)
    )
    first = np.flatnonzero(np.diff(regret / np.maximum(episodes, 1), prepend=np.nan) != 0.0)
    return {"episodes": np.add.reduceat(episodes, first), "regret": np.add.reduceat(regret, first)}


def about(agent: Any, problem: Any) -> dict[str, Any]:
    """Return an agent's parameters in plain data, what is proved of it, and what is true of the problem."""
    own = fields(agent) if is_dataclass(agent) else ()
    found: dict[str, Any] = to_json({each.name: getattr(agent, each.name) for each in own})
    parts = (
        [agent.rule, *agent.bases]
        if hasattr(agent, "rule") and hasattr(agent, "bases")
        else [agent]
    )
    stated = str(getattr(parts[0], "guarantee", "not stated"))
    if stated not in ("none", "not stated") and any(
        getattr(each, "scale", 1.0) != 1.0 for each in parts
    ):
        stated = "constants scaled"  # what was proved for the published constants is not claimed
    found |= {"guarantee": stated, "given": list(getattr(parts[0], "given", ()))}
    ladder, theta = getattr(agent, "ladder", None), getattr(problem, "theta", None)
    if isinstance(ladder, (Ladder, ParametricLadder)):
        found |= {"classes": list(ladder.names), "true_class": ladder.class_of(as_mdp(problem))}
    families = [getattr(base, "family", None) for base in getattr(agent, "bases", ())]
    held = [
        family is not None and Ladder([family]).class_of(as_mdp(problem)) for family in families
    ]
    if any(held):
        found["true_base"] = next(i for i, each in enumerate(held) if each)
    if theta is not None and getattr(getattr(agent, "features", None), "dimension", 0) == np.size(
        theta
    ):
        found["true_support"] = np.flatnonzero(theta).tolist()
    return found


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
    return (
        value
        if value is None or isinstance(value, (bool, int, float, str))
        else repr(value)[:1_000]
    )


def versions() -> dict[str, str]:
    """Return the versions of what computes."""
    found = {name: metadata.version(name) for name in ("numpy", "scipy")}
    return {
        "occamrl": str(sys.modules["occamrl"].__version__),
        "python": platform.python_version(),
        **found,
    }


def write_record(folder: Folder, cell: Cell, outcome: Event) -> None:
    """Write the record of a cell, which makes it finished or failed."""
    by = {"cell": cell.id, "versions": versions(), "platform": platform.platform()}
    write_sealed(folder.cells / f"{cell.id}.json", {**asdict(cell), **by, **outcome})


class Experiment:
    """A checked spec and its cells.

    >>> import occamrl as orl
    >>> problems = [orl.make_problem("river-swim", states=3)]
    >>> agents = [orl.PSRL(), orl.Optimal, {"name": "UCRLVTRLin", "parameters": {"norm_bound": "sqrt(SA)"}}]
    >>> experiment = orl.Experiment(name="river", episodes=100, seeds=2, problem=problems, agent=agents)
    >>> len(experiment.cells)
    6

    Parameters
    ----------
    imports : sequence of str
        The modules that the spec lists under ``import``: a file alone is never a reason to run
        code.
    **spec
        The keys of a spec, as in TOML; problems, agents and rules may be classes, or objects with plain parameters.
        :class:`SpecError` says what is wrong with it.
    """

    def __init__(self, *, imports: Sequence[str] = (), **spec: Any) -> None:
        data, modules = as_data(spec)
        self._set("spec", data, [*imports, *modules])

    def _set(self, path: str | Path, data: dict[str, Any], imports: Sequence[str]) -> None:
        self.cells, code = check(data, path, imports)
        self.data, self.name, self.imports = data, data["name"], list(imports)
        mine = {f"{name} version": versions()[name] for name in ("occamrl", "numpy")}
        self.code = {key: {**mine, **each} for key, each in code.items()}

    @classmethod
    def from_toml(cls, spec: str | Path, *, imports: Sequence[str] = ()) -> Experiment:
        """Return the experiment of a TOML file, or of a shipped spec called by its name."""
        made = cls.__new__(cls)
        made._set(spec, read_spec(spec), imports)
        return made

    def run(
        self,
        folder: str | Path,
        *,
        workers: int | None = None,
        scheduler: str | None = None,
        progress: bool | None = None,
        listen: Listener = lambda event: None,
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
        """
        if workers is not None and scheduler is not None:
            raise ParameterError(
                "workers", got=workers, expected="none: the Dask scheduler has its own"
            )
        count = require_integer("workers", processors() if workers is None else workers, 1)
        place = Folder(folder)
        make_folder(place.path)
        with locked(place.path) as handle:
            self._claim(place)
            todo = place.unfinished(self.cells)

            def take(i: int, event: Event) -> None:
                if event["event"] == "failed":
                    reason = str(event.get("trace") or event["text"])[-4_000:]
                    write_record(place, todo[i], {"status": "failed", "reason": reason})
                listen({**event, "cell": todo[i].id, **todo[i].names})

            function, seconds = f"{__name__}:play_cell", pool.CHECKPOINT_SECONDS
            tasks = [[str(place.path.resolve()), asdict(cell), seconds] for cell in todo]
            team: Any = Pool(function, min(count, max(len(todo), 1)), self.imports, [handle])
            if scheduler is not None:
                from occamrl.experiments.dask import DaskPool

                team = DaskPool(function, scheduler, place, self.imports)
            stopped = follow(self.name, "cells", team, tasks, progress, take)
        if stopped:
            done = len(self.cells) - len(place.unfinished(self.cells))
            command = (
                f"occamrl resume {folder}{''.join(f' --import {name}' for name in self.imports)}"
            )
            text = (
                f"stopped; {done} of {len(self.cells)} cells are finished; continue with: {command}"
            )
            raise KeyboardInterrupt(text)
        return records.load(folder)

    def _claim(self, place: Folder) -> None:
        """Write the experiment into a folder, unless that holds something else or results of other code."""
        if place.experiment_file.exists():
            advice = (
                "the spec, the parameters and the code that wrote these results. Take a new folder; or, to add others "
                "here, keep the entry and add a second [[agent]] or [[problem]] with a label of its own. For changed "
                "code, restore the file and make the change in a class with another name"
            )
            for key, old in place.experiment()["code"].items():
                if key in self.code and (changed := changes(old, self.code[key])):
                    raise RecordError(
                        place.experiment_file, got=f"{key}: {changed}", expected=advice
                    )
            ours = {cell.id for cell in self.cells}
            if others := [cell for cell in place.planned() if cell.id not in ours]:
                first = others[0]
                named = next((cell for cell in self.cells if cell.names == first.names), None)
                why = (
                    changes(*(identity(asdict(cell), "cell") for cell in (first, named)))
                    if named
                    else ""
                )
                got = f"{len(others)} cell(s) that the spec does not have, such as {first.names}"
                raise RecordError(
                    place.experiment_file, got=got + (f": {why}" if why else ""), expected=advice
                )
        place.create(self.name, self.data, self.cells, self.code)

    @classmethod
    def resume(cls, folder: str | Path, *, imports: Sequence[str] = (), **options: Any) -> Records:
        """Go on with the experiment in a folder; ``options`` are those of :meth:`run`."""
        made, place = cls.__new__(cls), Folder(folder)
        made._set(place.experiment_file, place.experiment()["spec"], imports)
        return made.run(folder, **options)

    status = staticmethod(records.status)
    verify = staticmethod(records.verify)
