"""The folder of an experiment: its lock, and how all of it is read and verified.

A cell is one problem, one agent, one seed. Its id is the hash of its content, so other cells never
disturb it. JSON files contain a digest of the rest, checkpoints end with one. What is damaged or
foreign is named, never deleted. `docs/experiments.md` has the layout.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, cast

from filelock import lock_descriptor

from occamrl.errors import CheckpointError, FolderInUse, RecordError, as_path
from occamrl.experiments.tables import Kept, Runs, Tables
from occamrl.experiments.tables import shown as shown
from occamrl.files import make_folder
from occamrl.running.storage import canonical, read_document, read_sealed, sha256, write_sealed

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 4
CURVE = ("episode", "regret", "cumulative_regret", "realised_return")
PHASE = ("first", "episodes", "plans", "regret", "realised_return")  # what every phase has
_WORKERS_SECONDS = 3.0  # given to the workers of a process that was killed to notice and to end


class Part(TypedDict):
    """The problem or the agent of a cell."""

    name: str  # of its class
    label: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """What is run, in plain data."""

    problem: Part
    agent: Part
    seed: int
    episodes: int
    thinning: int
    format: int = FORMAT

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits."""
        return sha256(canonical(asdict(self)))[:16]

    @property
    def names(self) -> dict[str, Any]:
        """What a person calls the cell."""
        return {"problem": self.problem["label"], "agent": self.agent["label"], "seed": self.seed}


class Record(TypedDict, total=False):
    """What is kept of a cell that was played: its fields, and what follows; all of it if done."""

    cell: str  # the id
    versions: dict[str, str]  # of what computed it
    platform: str
    problem: Part
    agent: Part
    seed: int
    episodes: int
    status: Literal["done", "failed"]
    reason: str | None  # why it failed
    resolved: dict[str, Any]  # the agent's parameters, what is proved of it, what is true
    total_regret: float
    total_return: float
    wall_time: float
    plans: int
    pessimistic_episodes: int
    curve: dict[str, list[float]]  # at some episodes
    pieces: dict[str, list[Any]]  # the exact curve, as stretches of equal regret per episode
    phases: list[dict[str, Any]]


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold the exclusive lock of a folder; yields the descriptor that workers inherit.

    The lock is the system's and belongs to an open file: it is held until the last process that
    inherited it is gone, however it went. Who holds it stands in the file ``lock``, for people, and
    for tasks elsewhere to see that they are still wanted.
    """
    holder = folder / "lock"
    deadline = time.monotonic() + _WORKERS_SECONDS
    # Another file than the one that people read: on Windows nobody can read what is locked.
    with (folder / ".lock").open("a") as file:
        while not lock_descriptor(file.fileno(), blocking=False):
            if time.monotonic() > deadline:
                who = holder.read_text() or "another process"
                raise FolderInUse(f"{folder}: in use by {who}; wait for it, or end it")
            time.sleep(0.05)
        host = socket.gethostname()
        holder.write_text(f"process {os.getpid()} on {host} since {time.time():.0f}")
        try:
            yield file.fileno()
        finally:
            holder.write_text("")


class Folder:
    """An experiment's folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = as_path("folder", path)
        self.experiment_file = self.path / "experiment.json"
        self.cells = self.path / "cells"

    def create(
        self, name: str, spec: dict[str, Any], cells: Sequence[Cell], code: dict[str, Any]
    ) -> None:
        """Write the experiment, or add the cells of a larger spec to it."""
        make_folder(self.cells)
        document = {
            "format": FORMAT,
            "name": name,
            # As a text, which keeps the order of its keys: labels of sweeps depend on it.
            "spec": json.dumps(spec),
            "code": code,
            "cells": [asdict(cell) for cell in cells],
        }
        write_sealed(self.experiment_file, document)

    def experiment(self) -> dict[str, Any]:
        """Return experiment.json."""
        if not self.experiment_file.exists():
            raise RecordError(
                self.path, got="no experiment.json", expected="a folder written by `occamrl run`"
            )
        document = read_sealed(self.experiment_file)
        if document.get("format") != FORMAT:
            raise RecordError(
                self.experiment_file,
                got=f"format {document.get('format')}",
                expected=f"format {FORMAT}, of this version of occamrl",
            )
        return {**document, "spec": json.loads(document["spec"])}

    def planned(self) -> list[Cell]:
        """Return the cells of the experiment."""
        return [Cell(**content) for content in self.experiment()["cells"]]

    def record_of(self, cell: Cell) -> Record | None:
        """Return the record of a finished or failed cell; None: there is none yet."""
        # The id is a hash of the content, but a file can be given another name.
        path = self.cells / f"{cell.id}.json"
        if not path.exists():
            return None
        record = read_sealed(path)
        if any(record.get(key) != value for key, value in asdict(cell).items()):
            raise RecordError(
                path, got="the record of another cell", expected=f"that of {cell.names}"
            )
        return cast(Record, record)

    def unfinished(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells to play: those without a record, and those that failed.

        For the holder of the lock only: temporary files of writers that were killed are removed.
        """
        for partial in [*self.path.glob(".*.partial"), *self.cells.glob(".*.partial")]:
            partial.unlink(missing_ok=True)
        unfinished = []
        for cell in cells:
            record = self.record_of(cell)
            if record is None or record["status"] != "done":
                unfinished.append(cell)
        return unfinished


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Records(Tables):
    """An experiment as far as it has come.

    Print it, ``plot()`` it, or take ``to_latex()`` or ``to_pandas()``. ``cells`` are the records of
    the finished cells, ``failed`` those of the failed ones, in the spec's order. ``begun`` lists
    the ids of cells with a checkpoint, ``missing`` those of all others, ``damaged`` what is wrong
    with files.
    """

    folder: Path
    name: str
    spec: dict[str, Any]
    cells: list[Record] = field(default_factory=list)
    failed: list[Record] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    damaged: dict[str, RecordError] = field(default_factory=dict)

    @property
    def _others(self) -> dict[str, int]:
        """How many cells are not finished, by what they are."""
        return {
            "failed": len(self.failed),
            "begun": len(self.begun),
            "missing": len(self.missing),
            "damaged": len(self.damaged),
        }

    @property
    def total(self) -> int:
        """The number of cells."""
        return len(self.cells) + sum(self._others.values())

    @property
    def failures(self) -> list[dict[str, str]]:
        """Of each failed cell its id, what it is called, and the last line of the reason."""
        failures = []
        for record in self.failed:
            who = f"{record['problem']['label']}, {record['agent']['label']}, seed {record['seed']}"
            reason = (record["reason"] or "").strip() or "not stated"
            last_line = reason.splitlines()[-1]
            failures.append({"cell": record["cell"], "who": who, "reason": last_line})
        return failures

    @cached_property
    def curves(self) -> pa.Table:
        """A table of all curves: cell, problem, agent, seed, and the columns of ``CURVE``."""
        import pyarrow as pa

        columns: dict[str, list[Any]] = {
            name: [] for name in ("cell", "problem", "agent", "seed", *CURVE)
        }
        for record in self.cells:
            for name, value in labels_of(record).items():
                columns[name] += [value] * len(record["curve"]["episode"])
            for name in CURVE:
                columns[name] += record["curve"][name]
        return pa.table(columns)

    @cached_property
    def phases(self) -> pa.Table:
        """A table with a row for each phase of each cell; ``facts`` is JSON."""
        import pyarrow as pa

        rows = []
        for record in self.cells:
            for number, phase in enumerate(record["phases"], start=1):
                totals = {name: phase.get(name) for name in PHASE}
                facts = {name: value for name, value in phase.items() if name not in PHASE}
                row = {**labels_of(record), "phase": number, **totals, "facts": json.dumps(facts)}
                rows.append(row)
        return pa.Table.from_pylist(rows)

    @cached_property
    def runs(self) -> Runs:
        """What is kept of the finished runs, by problem and agent."""
        runs: dict[str, dict[str, list[Kept]]] = {}
        for record in self.cells:
            agents = runs.setdefault(record["problem"]["label"], {})
            agents.setdefault(record["agent"]["label"], []).append(kept_of(record))
        return runs

    def __str__(self) -> str:
        text = f"{self.name}: {len(self.cells):,} of {self.total:,} cells are finished"
        for name, count in self._others.items():
            if count:
                text += f", {count:,} {name}"
        if self.cells:
            text += f"\n{self._text()}"
        return text

    __repr__ = __str__


def kept_of(record: Mapping[str, Any]) -> Kept:
    """Return what a record keeps of its run."""
    return Kept(
        seed=record["seed"],
        total_episodes=record["episodes"],
        total_regret=record["total_regret"],
        total_return=record["total_return"],
        plans=record["plans"],
        wall_time=record["wall_time"],
        **record["pieces"],
    )


def labels_of(record: Record) -> dict[str, Any]:
    """Return what a row of a table says about its cell."""
    return {
        "cell": record["cell"],
        "problem": record["problem"]["label"],
        "agent": record["agent"]["label"],
        "seed": record["seed"],
    }


def status(folder: str | Path) -> Records:
    """Return where an experiment stands; damaged records are listed, not raised."""
    stored = Folder(folder)
    document = stored.experiment()
    standing = Records(folder=stored.path, name=document["name"], spec=document["spec"])
    for content in document["cells"]:
        cell = Cell(**content)
        try:
            record = stored.record_of(cell)
        except RecordError as error:
            standing.damaged[cell.id] = error
            continue
        if record is not None and record["status"] == "done":
            standing.cells.append(record)
        elif record is not None:
            standing.failed.append(record)
        elif (stored.cells / f"{cell.id}.npz").exists():
            standing.begun.append(cell.id)
        else:
            standing.missing.append(cell.id)
    return standing


def load(folder: str | Path) -> Records:
    """Return the records of an experiment; every byte read is compared with its digest.

    >>> import occamrl as orl
    >>> experiment = orl.Experiment(
    ...     name="tiny", episodes=20, seeds=1, problem=["RiverSwim"], agent=["UniformRandom"]
    ... )
    >>> records = experiment.run("tiny", workers=1, progress=False)
    >>> orl.load("tiny").curves.num_rows
    20

    Raises
    ------
    RecordError
        Naming the file that is damaged; ``occamrl verify`` takes it out.
    """
    standing = status(folder)
    # One is enough: `occamrl verify` lists all.
    for error in standing.damaged.values():
        raise error
    return standing


class Damage(NamedTuple):
    """A file that is not as it was written or does not belong there, and where it was put."""

    path: str
    problem: str
    moved_to: str | None = None


def verify(folder: str | Path, *, quarantine: bool = False) -> list[Damage]:
    """Read every byte of every record and checkpoint, and return what is damaged or foreign.

    With ``quarantine`` damaged files of cells are moved to ``quarantine/``; `resume` then plays
    these cells anew. Nothing is ever deleted.
    """
    stored = Folder(folder)
    by_id = {cell.id: cell for cell in stored.planned()}
    damages = []
    with locked(stored.path) if quarantine else nullcontext():
        for path in sorted(stored.cells.iterdir()):
            cell = by_id.get(path.name.partition(".")[0])
            try:
                verify_file(stored, path, cell)
            except (RecordError, CheckpointError) as error:
                moved = None
                if quarantine and cell is not None:
                    away = stored.path / "quarantine"
                    make_folder(away)
                    moved = str(path.rename(away / f"{path.name}.{time.time_ns()}"))
                damages.append(Damage(str(path), str(error), moved))
    return damages


def verify_file(folder: Folder, path: Path, cell: Cell | None) -> None:
    """Raise what is wrong with a file among the cells."""
    if cell is None or path.suffix not in (".json", ".npz"):
        raise RecordError(path, got="a file of no cell", expected="none; it is left in place")
    if path.suffix == ".json":
        folder.record_of(cell)
    else:
        read_document(path)
