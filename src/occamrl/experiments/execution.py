"""An experiment from its spec to its records: the cells that are not finished are played, in any order.

The folder keeps digests of parameters and code. What was computed by other code or with other parameters is refused,
with what has changed, and never mixed with new results.
"""

from __future__ import annotations

import json
import math
import platform
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from occamrl.errors import ParameterError, RecordError, require_integer, require_number
from occamrl.experiments import records
from occamrl.experiments.pool import (
    CHECKPOINT_SECONDS,
    SILENCE_SECONDS,
    Event,
    Listener,
    Pool,
    follow,
    play,
    processors,
)
from occamrl.experiments.records import CURVE, TOTALS, Cell, Folder, Records, locked, note
from occamrl.experiments.resolution import Resolver, about, make_problem, plain
from occamrl.experiments.spec import check, parse_toml, read_source
from occamrl.problems.mdp import as_mdp
from occamrl.running.identity import changes
from occamrl.running.result import Result
from occamrl.running.storage import make_folder, sha256, write_sealed


def play_cell(
    folder: str,
    content: Event,
    seconds: float,
    say: Listener = lambda news: None,
    stop: Callable[[], bool] = lambda: False,
) -> Event:
    """Play a cell of an experiment and write its record; return a few facts."""
    place, cell = Folder(folder), Cell.of(content)
    record = place.record_of(cell)  # perhaps of a worker that was killed before it could say so
    checkpoint, progress = (place.cells / f"{cell.id}.{suffix}" for suffix in ("npz", "progress"))
    if record is None or record["status"] != "done":
        problem = make_problem(cell.problem.name, json.dumps(cell.problem.parameters))
        resolver = Resolver(problem, cell.episodes)
        agent = resolver.agent(cell.agent.name, cell.agent.parameters)
        for fault in resolver.faults:
            raise ParameterError(fault.key, got=fault.got, expected=fault.expected)
        told = 0.0

        def tell(news: Event) -> None:
            nonlocal told
            say(news)
            if time.monotonic() - told > 1.0:  # for those who look at the folder
                progress.write_text(json.dumps({**news, **note()}))
                told = time.monotonic()

        try:
            result = play(agent, as_mdp(problem), cell.seed, cell.episodes, checkpoint, seconds, tell, stop)
        finally:
            progress.unlink(missing_ok=True)
        record = {"status": "done", "resolved": about(agent, problem), "reason": None, **described(cell, result)}
        write_record(place, cell, record)
    checkpoint.unlink(missing_ok=True)
    return {key: record[key] for key in ("total_regret", "wall_time") if key in record}


def described(cell: Cell, result: Result) -> Event:
    """Return the totals, the thinned curve and the phases of a result, in plain data."""
    at = result.episodes
    if cell.thinning and at.size > cell.thinning:
        spaced = np.geomspace(1, at.size, cell.thinning).astype(np.int64) - 1
        at = np.union1d(at[spaced], at[-1:])
    regret, before = result.regret_at(at), result.regret_at(at - 1)
    piece = np.searchsorted(np.cumsum(result.blocks.episodes), at)
    returns = np.array(result.blocks.returns)[piece] / np.array(result.blocks.episodes)[piece]
    curve = [column.tolist() for column in (at, regret - before, regret, returns)]
    totals = {name: getattr(result, name) for name in TOTALS}
    found: Event = plain({**totals, "curve": dict(zip(CURVE, curve, strict=True)), "phases": result.phase_rows})
    return found


def versions() -> dict[str, str]:
    """Return the versions of what computes."""
    found = {name: metadata.version(name) for name in ("numpy", "scipy")}
    return {"occamrl": str(sys.modules["occamrl"].__version__), "python": platform.python_version(), **found}


def write_record(folder: Folder, cell: Cell, outcome: Event) -> None:
    """Write the record of a cell, which makes it finished or failed."""
    record = {**cell.content, "cell": cell.id, "versions": versions(), "platform": platform.platform(), **outcome}
    write_sealed(folder.cells / f"{cell.id}.json", record)


class Experiment:
    """A checked spec and its cells.

    >>> import occamrl as orl
    >>> agents = ["UniformRandom", {"name": "Optimal"}]
    >>> experiment = orl.Experiment(name="river", episodes=100, seeds=2, problem=["RiverSwim"], agent=agents)
    >>> len(experiment.cells)
    4

    Parameters
    ----------
    imports : sequence of str
        The modules that the spec lists under ``import``. They are imported because they are named here: a file alone is
        never a reason to run code.
    **spec
        The keys of a spec, as in TOML: ``name``, ``episodes``, ``seeds``, ``problem`` and ``agent`` (lists of names or
        of tables), ``thinning``, ``baseline``, ...

    Raises
    ------
    SpecError
        With everything that is wrong with it.
    """

    def __init__(self, *, imports: Sequence[str] = (), **spec: Any) -> None:
        try:
            source = tomli_w.dumps(spec).encode()
        except (TypeError, ValueError) as error:
            raise ParameterError("spec", got=f"{error}", expected="names, numbers, texts, lists and tables") from error
        self._set("spec", source, imports)

    def _set(self, path: str | Path, source: bytes, imports: Sequence[str]) -> None:
        self.source, self.data, self.imports = source, parse_toml(source, path), list(imports)
        self.spec, self.cells, code, self.modules = check(self.data, path, imports)
        mine = {f"{name} version": versions()[name] for name in ("occamrl", "numpy")}
        self.code = {key: {**mine, **each} for key, each in code.items()}

    @classmethod
    def from_toml(cls, spec: str | Path, *, imports: Sequence[str] = ()) -> Experiment:
        """Return the experiment of a TOML file, or of a shipped spec called by its name."""
        made = cls.__new__(cls)
        made._set(*read_source(spec), imports)
        return made

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.spec.name

    def run(
        self,
        folder: str | Path,
        *,
        workers: int | None = None,
        scheduler: str | None = None,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        progress: bool | None = None,
        listen: Listener = lambda event: None,
    ) -> Records:
        """Play the cells that are not finished in ``folder``, and return all records.

        Parameters
        ----------
        folder : path
            Made if missing, continued if it holds this experiment.
        workers : int, optional
            Processes; as many as there are processors by default.
        scheduler : str, optional
            The address of a Dask scheduler, whose workers see the same folder, instead of ``workers``.
        checkpoint_seconds, silence_seconds : float
            How often a running cell is saved; after how much silence a worker is taken to hang.
        progress : bool, optional
            Show progress on standard error; by default only when it takes longer than a second.
        listen : callable, optional
            Told of every event, a dict with ``event`` (begin, progress, done, failed, retry, stopped), ``cell``, ...

        Raises
        ------
        KeyboardInterrupt
            On Ctrl-C; cells have stopped at a block boundary, and the message says how to go on.
        RecordError
            Where the folder holds results of other code or parameters, or a damaged file.
        """
        if workers is not None and scheduler is not None:
            raise ParameterError("workers", got=workers, expected="none: the Dask scheduler has its own")
        team = require_integer("workers", processors() if workers is None else workers, 1)
        require_number("checkpoint_seconds", checkpoint_seconds, 0.0, math.inf, open_low=True)
        require_number("silence_seconds", silence_seconds, 0.0, math.inf, open_low=True)
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

            function, pool = f"{__name__}:play_cell", None
            if scheduler is not None:
                from occamrl.experiments.dask import DaskPool

                pool = DaskPool(function, scheduler, place, self.modules, silence_seconds)
            tasks = [[str(place.path.resolve()), cell.content, checkpoint_seconds] for cell in todo]
            local = Pool(function, min(team, max(len(todo), 1)), (), self.modules, [handle], silence_seconds)
            stopped = follow(self.name, "cells", pool or local, tasks, progress, take)
        if stopped:
            done = len(self.cells) - len(place.unfinished(self.cells))
            command = f"occamrl resume {folder}{''.join(f' --import {name}' for name in self.imports)}"
            text = f"stopped; {done} of {len(self.cells)} cells are finished; continue with: {command}"
            raise KeyboardInterrupt(text)
        return records.load(folder)

    def _claim(self, place: Folder) -> None:
        """Write the experiment into a folder, unless that holds something else or results of other code."""
        if place.experiment_file.exists():
            advice = "a new folder for other results; or the spec, the parameters and the code that wrote this one"
            for key, old in place.experiment()["code"].items():
                if key in self.code and (changed := changes(old, self.code[key])):
                    raise RecordError(place.experiment_file, got=f"{key}: {changed}", expected=advice)
            ours = {cell.id for cell in self.cells}
            if others := [cell for cell in place.planned() if cell.id not in ours]:
                got = f"{len(others)} cell(s) that the spec does not have, such as {others[0].names}"
                raise RecordError(place.experiment_file, got=got, expected=advice)
        elif place.spec_file.exists() and place.spec_file.read_bytes() != self.source:
            expected = "a folder without it; it is left in place"
            raise RecordError(place.spec_file, got="a file of no experiment", expected=expected)
        place.create(self.name, self.data, self.source, self.cells, self.code)

    @classmethod
    def resume(cls, folder: str | Path, *, imports: Sequence[str] = (), **options: Any) -> Records:
        """Go on with the experiment in a folder; ``options`` are those of :meth:`run`."""
        place = Folder(folder)
        before = place.experiment()
        source = place.spec_file.read_bytes() if place.spec_file.exists() else b""
        if sha256(source) != before["source"]:
            expected = "the spec as it was given, from which the experiment was made"
            raise RecordError(place.spec_file, got="another content", expected=expected)
        made = cls.__new__(cls)
        made._set(place.spec_file, source, imports)
        return made.run(folder, **options)

    status = staticmethod(records.status)
    verify = staticmethod(records.verify)
