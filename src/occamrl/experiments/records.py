"""The folder of an experiment: its lock, and how all of it is read and verified. `docs/experiments.md` has its layout.

A cell is one problem, one agent, one seed. Its id is the hash of its content, so other cells never
disturb it. JSON files contain a digest of the rest, checkpoints end with one. What is damaged or
foreign is named, never deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from occamrl.errors import CheckpointError, FolderInUse, RecordError, as_path
from occamrl.experiments.tables import Kept, Runs, Tables
from occamrl.experiments.tables import shown as shown
from occamrl.running.storage import (
    canonical,
    make_folder,
    read_document,
    read_sealed,
    sha256,
    write_sealed,
)

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 4
TOTALS = ("total_regret", "total_return", "wall_time", "plans", "pessimistic_episodes")
CURVE = ("episode", "regret", "cumulative_regret", "realised_return")
_WORKERS_SECONDS = 3.0  # given to the workers of a process that was killed to notice and to end


@dataclass(frozen=True)
class Cell:
    """What is run, in plain data: a problem and an agent by name, label and parameters."""

    problem: dict[str, Any]
    agent: dict[str, Any]
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


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold the exclusive lock of a folder; yields the descriptor that workers inherit.

    The lock is the system's and belongs to an open file: it is held until the last process that
    inherited it is gone, however it went. What the file says is for people, and for tasks elsewhere
    to see that they are still wanted.
    """
    import fcntl  # Linux and macOS

    path, deadline = folder / "lock", time.monotonic() + _WORKERS_SECONDS
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    text = f"{folder}: in use by {path.read_text() or 'another process'}; wait for it, or end it"
                    raise FolderInUse(text) from None
                time.sleep(0.05)
        path.write_text(f"process {os.getpid()} on {socket.gethostname()} since {time.time():.0f}")
        try:
            yield file.fileno()
        finally:
            path.write_text("")


class Folder:
    """An experiment's folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = as_path("folder", path)
        self.experiment_file, self.cells = self.path / "experiment.json", self.path / "cells"

    def create(
        self, name: str, spec: dict[str, Any], cells: Sequence[Cell], code: dict[str, Any]
    ) -> None:
        """Write the experiment, or add the cells of a larger spec to it."""
        make_folder(self.cells)
        document = {
            "format": FORMAT,
            "name": name,
            "spec": json.dumps(spec),
            "code": code,
        }  # in the order of its keys
        write_sealed(self.experiment_file, {**document, "cells": [asdict(cell) for cell in cells]})

    def experiment(self) -> dict[str, Any]:
        """Return experiment.json."""
        if not self.experiment_file.exists():
            raise RecordError(
                self.path, got="no experiment.json", expected="a folder written by `occamrl run`"
            )
        document = read_sealed(self.experiment_file)
        if document.get("format") != FORMAT:
            got = f"format {document.get('format')}"
            raise RecordError(
                self.experiment_file,
                got=got,
                expected=f"format {FORMAT}, of this version of occamrl",
            )
        return {**document, "spec": json.loads(document["spec"])}

    def planned(self) -> list[Cell]:
        """Return the cells of the experiment."""
        return [Cell(**content) for content in self.experiment()["cells"]]

    def record_of(self, cell: Cell) -> dict[str, Any] | None:
        """Return the record of a finished or failed cell; None: there is none yet."""
        path = self.cells / f"{cell.id}.json"
        if not path.exists():
            return None
        record = read_sealed(path)
        if any(record.get(key) != value for key, value in asdict(cell).items()):
            raise RecordError(
                path, got="the record of another cell", expected=f"that of {cell.names}"
            )
        return record

    def unfinished(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells to play: those without a record, and those that failed. For the holder of the lock only.

        Temporary files of writers that were killed are removed.
        """
        for partial in [*self.path.glob(".*.partial"), *self.cells.glob(".*.partial")]:
            partial.unlink(missing_ok=True)
        return [
            cell
            for cell in cells
            if (record := self.record_of(cell)) is None or record["status"] != "done"
        ]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Records(Tables):
    """An experiment as far as it has come: print it, ``plot()`` it, or take ``to_latex()`` or ``to_pandas()``.

    ``cells`` are the records of the finished cells, ``failed`` those of the failed ones, in the
    spec's order. ``begun`` lists the ids of cells with a checkpoint, ``missing`` those of all
    others, ``damaged`` what is wrong with files.
    """

    folder: Path
    name: str
    spec: dict[str, Any]
    cells: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    damaged: dict[str, RecordError] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of cells."""
        return sum(
            len(getattr(self, name)) for name in ("cells", "failed", "begun", "missing", "damaged")
        )

    @property
    def failures(self) -> list[dict[str, str]]:
        """Of each failed cell its id, what it is called, and the last line of the reason."""
        found = []
        for record in self.failed:
            who = f"{record['problem']['label']}, {record['agent']['label']}, seed {record['seed']}"
            last = (str(record.get("reason") or "").strip() or "not stated").splitlines()[-1]
            found.append({"cell": record["cell"], "who": who, "reason": last})
        return found

    @cached_property
    def curves(self) -> pa.Table:
        """A table of all curves: cell, problem, agent, seed, episode, regret, cumulative_regret, realised_return."""
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
            for number, row in enumerate(record["phases"], start=1):
                totals = {
                    name: row.get(name)
                    for name in ("first", "episodes", "plans", "regret", "realised_return")
                }
                facts = {name: value for name, value in row.items() if name not in totals}
                rows.append(
                    {**labels_of(record), "phase": number, **totals, "facts": json.dumps(facts)}
                )
        return pa.Table.from_pylist(rows)

    @cached_property
    def runs(self) -> Runs:
        """What is kept of the finished runs, by problem and agent."""
        found: dict[str, dict[str, list[Kept]]] = {}
        for record in self.cells:
            agents = found.setdefault(record["problem"]["label"], {})
            agents.setdefault(record["agent"]["label"], []).append(kept_of(record))
        return found

    def __str__(self) -> str:
        left = {
            name: len(getattr(self, name)) for name in ("failed", "begun", "missing", "damaged")
        }
        head = f"{self.name}: {len(self.cells):,} of {self.total:,} cells are finished"
        head += "".join(f", {count:,} {name}" for name, count in left.items() if count)
        return "\n".join([head, *([self._text()] if self.cells else [])])

    __repr__ = __str__


def kept_of(record: Mapping[str, Any]) -> Kept:
    """Return what a record keeps of its run."""
    totals = [record[name] for name in ("total_regret", "total_return", "plans", "wall_time")]
    return Kept(record["seed"], record["episodes"], *totals, **record["pieces"])


def labels_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return what a row of a table says about its cell."""
    names = {"problem": record["problem"]["label"], "agent": record["agent"]["label"]}
    return {"cell": record["cell"], **names, "seed": record["seed"]}


def status(folder: str | Path) -> Records:
    """Return where an experiment stands; damaged records are listed, not raised."""
    place = Folder(folder)
    document = place.experiment()
    now = Records(folder=place.path, name=document["name"], spec=document["spec"])
    for content in document["cells"]:
        cell = Cell(**content)
        try:
            record = place.record_of(cell)
        except RecordError as error:
            now.damaged[cell.id] = error
            continue
        if record is not None:
            (now.cells if record["status"] == "done" else now.failed).append(record)
        else:
            (now.begun if (place.cells / f"{cell.id}.npz").exists() else now.missing).append(
                cell.id
            )
    return now


def load(folder: str | Path) -> Records:
    """Return the records of an experiment; every byte read is compared with its digest.

    >>> import occamrl as orl
    >>> experiment = orl.Experiment(name="tiny", episodes=20, seeds=1, problem=["RiverSwim"], agent=["UniformRandom"])
    >>> records = experiment.run("tiny", workers=1, progress=False)
    >>> orl.load("tiny").curves.num_rows
    20

    Raises
    ------
    RecordError
        Naming the file that is damaged; ``occamrl verify`` takes it out.
    """
    now = status(folder)
    for error in now.damaged.values():
        raise error
    return now


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
    place = Folder(folder)
    found: list[Damage] = []
    by_id = {cell.id: cell for cell in place.planned()}
    with locked(place.path) if quarantine else contextlib.nullcontext():
        for path in sorted(place.cells.iterdir()):
            cell, moved = by_id.get(path.name.partition(".")[0]), None
            try:
                if cell is None or path.suffix not in (".json", ".npz"):
                    raise RecordError(
                        path, got="a file of no cell", expected="none; it is left in place"
                    )
                if path.suffix == ".json":
                    place.record_of(cell)
                elif path.suffix == ".npz":
                    read_document(path)
            except (RecordError, CheckpointError) as error:
                if quarantine and cell is not None:
                    make_folder(place.path / "quarantine")
                    moved = str(
                        path.rename(place.path / "quarantine" / f"{path.name}.{time.time_ns()}")
                    )
                found.append(Damage(str(path), str(error), moved))
    return found
