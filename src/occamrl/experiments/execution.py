"""An experiment from its spec to its records: the cells that are not finished are played, in any order.

The folder keeps digests of parameters and code. What was computed by other code or with other parameters is refused,
with what has changed, and never mixed with new results.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import numpy as np
import tomli_w

from occamrl.errors import ParameterError, RecordError, StorageError, require_integer, require_number
from occamrl.experiments import records
from occamrl.experiments.pool import CHECKPOINT_SECONDS, SILENCE_SECONDS, Event, Listener, Pool, play, processors
from occamrl.experiments.records import TOTALS, Cell, Damage, Folder, Records, locked
from occamrl.experiments.spec import Checked, check, parse_toml, read_source
from occamrl.problems.mdp import as_mdp
from occamrl.running.identity import changes
from occamrl.running.result import Result
from occamrl.running.run import Progress
from occamrl.running.storage import make_folder, sha256, write_sealed


def play_cell(
    folder: str, content: Event, seconds: float, say: Listener = lambda news: None, stop: Any = lambda: False
) -> Event:
    """Play a cell of an experiment and write its record; return a few facts."""
    from occamrl.experiments.resolution import Resolver, about, make_problem

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
                note = {**news, "pid": os.getpid(), "host": socket.gethostname(), "time": time.time()}
                progress.write_text(json.dumps(note))
                told = time.monotonic()

        try:
            result = play(agent, as_mdp(problem), cell.seed, cell.episodes, checkpoint, seconds, tell, stop)
        finally:
            progress.unlink(missing_ok=True)
        record = {"status": "done", "resolved": about(agent, problem), "reason": None, **described(cell, result)}
        write_record(place, cell, record)
    checkpoint.unlink(missing_ok=True)
    return {key: record[key] for key in ("total_regret", "wall_time", "episodes") if key in record}


def described(cell: Cell, result: Result) -> Event:
    """Return the totals, the thinned curve and the phases of a result, in plain data."""
    at = result.episodes
    if cell.thinning and at.size > cell.thinning:
        spaced = np.geomspace(1, at.size, cell.thinning).astype(np.int64) - 1
        at = np.union1d(at[spaced], at[-1:])
    regret, before = result.regret_at(at), result.regret_at(at - 1)
    ends = np.cumsum(result.blocks.episodes)
    piece = np.searchsorted(ends, at)
    returns = np.array(result.blocks.returns)[piece] / np.array(result.blocks.episodes)[piece]
    curve = {"episode": at, "regret": regret - before, "cumulative_regret": regret, "realised_return": returns}
    found = {name: getattr(result, name) for name in TOTALS} | {"curve": curve, "phases": result.phase_rows}
    plain: Event = jsonable(found)
    return plain


def jsonable(value: Any) -> Any:
    """Return plain data that every JSON reader takes: NaN becomes null, infinities texts, the unknown its repr."""
    if isinstance(value, dict):
        return {str(key): jsonable(part) for key, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [jsonable(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


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
        self.path, self.source, self.data = str(path), source, parse_toml(source, path)
        checked: Checked = check(self.data, path, imports)
        self.spec, self.cells, self.modules, self.imports = checked.spec, checked.cells, checked.modules, list(imports)
        mine = {f"{name} version": versions()[name] for name in ("occamrl", "numpy")}
        self.code = {key: {**mine, **each} for key, each in checked.code.items()}

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
        listen: Listener | None = None,
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
        for name, value in (("checkpoint_seconds", checkpoint_seconds), ("silence_seconds", silence_seconds)):
            require_number(name, value, 0.0, math.inf, open_low=True)
        place = Folder(folder)
        make_folder(place.path)
        with locked(place.path) as handle:
            self._claim(place)
            todo = place.unfinished(self.cells)
            function, where = f"{__name__}:play_cell", str(place.path.resolve())
            if scheduler is not None:
                from occamrl.experiments.dask import DaskPool

                pool: Any = DaskPool(function, scheduler, place, self.modules, silence_seconds)
            else:
                pool = Pool(function, min(team, max(len(todo), 1)), (), self.modules, [handle], silence_seconds)
            tasks = [[where, cell.content, checkpoint_seconds] for cell in todo]
            stopped = self._follow(place, pool.play(tasks), todo, progress, listen or (lambda event: None))
        if stopped:
            done = len(self.cells) - len(place.unfinished(self.cells))
            names = "".join(f" --import {name}" for name in self.imports)
            command = f"occamrl resume {folder}{names}"
            raise KeyboardInterrupt(
                f"stopped; {done} of {len(self.cells)} cells are finished; continue with: {command}"
            )
        return records.load(folder)

    def _claim(self, place: Folder) -> None:
        """Write the experiment into a folder, unless that holds something else or results of other code."""
        if place.experiment_file.exists():
            before = place.experiment()
            ours, theirs = {cell.id for cell in self.cells}, {cell.id: cell for cell in place.planned()}
            advice = "a new folder for other results; or the spec, the parameters and the code that wrote this one"
            for key, old in before["code"].items():
                if key in self.code and (changed := changes(old, self.code[key])):
                    raise RecordError(place.experiment_file, got=f"{key}: {changed}", expected=advice)
            if others := [cell for name, cell in theirs.items() if name not in ours]:
                got = f"{len(others)} cell(s) that the spec does not have, such as {others[0].names}"
                raise RecordError(place.experiment_file, got=got, expected=advice)
        elif place.spec_file.exists() and place.spec_file.read_bytes() != self.source:
            expected = "a folder without it; it is left in place"
            raise RecordError(place.spec_file, got="a file of no experiment", expected=expected)
        place.create(self.name, self.data, self.source, self.cells, self.code)

    def _follow(
        self,
        place: Folder,
        events: Iterator[tuple[int, Event]],
        todo: list[Cell],
        progress: bool | None,
        listen: Listener,
    ) -> bool:
        """Hand on what happens, and write down failures; say whether something was stopped."""
        bar, ended, stopped, trouble = Progress(self.name, max(len(todo), 1), progress, unit="cells"), 0, False, None
        try:
            with contextlib.closing(cast(Any, events)):
                for i, event in events:
                    kind = event["event"]
                    if kind == "failed":
                        reason = str(event.get("trace") or event["text"])[-4_000:]
                        write_record(place, todo[i], {"status": "failed", "reason": reason})
                    ended += kind in ("done", "failed")
                    stopped |= kind == "stopped"
                    listen({**event, "cell": todo[i].id, **todo[i].names})
                    bar.update(ended)
                    if kind == "storage":
                        trouble = StorageError(event["path"], OSError(event["errno"], os.strerror(event["errno"] or 0)))
                        break  # nothing can be written: the others stop as well
        finally:
            bar.close()
        if trouble is not None:
            raise trouble
        return stopped

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

    @staticmethod
    def status(folder: str | Path) -> Records:
        """Return where an experiment stands; damaged records are listed, not raised."""
        return records.status(folder)

    @staticmethod
    def verify(folder: str | Path, *, quarantine: bool = False) -> list[Damage]:
        """Read every byte of a folder, and return what is damaged or foreign; see :func:`records.verify`."""
        with locked(Folder(folder).path) if quarantine else contextlib.nullcontext():
            return records.verify(folder, quarantine=quarantine)
