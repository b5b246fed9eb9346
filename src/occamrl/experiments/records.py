"""The folder of an experiment: its lock, and how all of it is read and verified.

A cell is one problem, one agent, one seed. Its id is the hash of its content, so other cells never
disturb it. JSON files contain a digest of the rest, checkpoints end with one. What is damaged or
foreign is named, never deleted. `docs/experiments.md` has the layout.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, cast

from filelock import lock_descriptor

from occamrl.errors import CheckpointError, FolderInUse, RecordError, StorageError, as_path
from occamrl.experiments.pair_tests import Method, PairTests
from occamrl.experiments.tables import Differences, Kept, Runs, Tables, differences_of, tests_of
from occamrl.files import PARTIAL, Entry, make_folder, names_in
from occamrl.naming import printable_name
from occamrl.running.storage import canonical, read_document, read_sealed, sha256, write_sealed

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 5
CURVE = ("episode", "regret", "cumulative_regret", "realised_return")
PHASE = ("first", "episodes", "plans", "regret", "realised_return")  # what every phase has
_NETWORK = ("9p", "afs", "ceph", "cifs", "fuse.sshfs", "lustre", "nfs", "nfs4", "smb3", "smbfs")
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
    holder = holder_file(folder)
    deadline = time.monotonic() + _WORKERS_SECONDS
    kind = network_file_system(folder)
    if kind:
        text = f"{folder} lies on a network file system ({kind}), where a lock may not hold"
        warnings.warn(f"{text}: let one process at a time use it", RuntimeWarning, stacklevel=3)
    # Another file than the one that people read: on Windows nobody can read what is locked.
    with Entry.inside(folder.resolve() / ".lock").locked_file() as handle:
        while not _lock(handle, folder):
            if time.monotonic() > deadline:
                who = holder.read().decode() or "another process"
                raise FolderInUse(f"{folder}: in use by {who}; wait for it, or end it")
            time.sleep(0.05)
        host = socket.gethostname()
        holder.write(f"process {os.getpid()} on {host} since {time.time():.0f}".encode())
        try:
            yield handle
        finally:
            holder.write(b"")


def holder_file(folder: Path) -> Entry:
    """Return the file that says who works on a folder."""
    return Entry.inside(folder.resolve() / "lock")


def _lock(handle: int, folder: Path) -> bool:
    """Try to lock an open file; say where the file system has no locks."""
    try:
        return lock_descriptor(handle, blocking=False)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        raise StorageError(folder, error) from error


def network_file_system(folder: Path) -> str:
    """Return what kind of network file system a folder lies on; empty if on none that is known."""
    mounts = Path("/proc/self/mounts")  # of Linux; elsewhere nothing is said
    if not mounts.exists():
        return ""
    resolved = str(folder.resolve())
    kind = ""
    longest = -1
    for line in mounts.read_text(errors="replace").splitlines():
        mounted, name = line.split(" ")[1:3]
        # Of mounts at one place the last is the one that is seen.
        inside = mounted == "/" or resolved == mounted or resolved.startswith(f"{mounted}/")
        if inside and len(mounted) >= longest:
            longest = len(mounted)
            kind = name
    return kind if kind in _NETWORK else ""


class Folder:
    """An experiment's folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = as_path("folder", path)
        # The folder itself may be a link; nothing in it may.
        self._real = self.path.resolve()
        self.cells = self._real / "cells"
        self.experiment_file = Entry.inside(self._real / "experiment.json")

    def cell_file(self, name: str) -> Entry:
        """Return a file among the cells."""
        return Entry.inside(self.cells / name)

    def record_file(self, cell: Cell) -> Entry:
        """Return the file of a cell's record."""
        return self.cell_file(f"{cell.id}.json")

    def checkpoint_file(self, cell: Cell) -> Entry:
        """Return the file of a cell's checkpoint."""
        return self.cell_file(f"{cell.id}.npz")

    def create(
        self,
        name: str,
        spec: dict[str, Any],
        cells: Sequence[Cell],
        code: dict[str, Any],
        machine: dict[str, str],
    ) -> None:
        """Write the experiment, or add the cells of a larger spec to it."""
        make_folder(self.cells)
        document = {
            "format": FORMAT,
            "name": name,
            # As a text, which keeps the order of its keys: labels of sweeps depend on it.
            "spec": json.dumps(spec),
            "code": code,
            "machine": machine,  # that began it
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
                self.experiment_file.path,
                got=f"format {document.get('format')}",
                expected=f"format {FORMAT}, of this version of occamrl",
            )
        if not document.keys() >= {"name", "spec", "code", "machine", "cells"}:
            raise RecordError(
                self.experiment_file.path,
                got="another sealed file",
                expected="the experiment.json of an experiment",
            )
        return {**document, "spec": json.loads(document["spec"])}

    def planned(self) -> list[Cell]:
        """Return the cells of the experiment."""
        return [Cell(**content) for content in self.experiment()["cells"]]

    def record_of(self, cell: Cell) -> Record | None:
        """Return the record of a finished or failed cell; None: there is none yet."""
        # The id is a hash of the content, but a file can be given another name.
        file = self.record_file(cell)
        if not file.exists():
            return None
        record = read_sealed(file)
        if any(record.get(key) != value for key, value in asdict(cell).items()):
            raise RecordError(
                file.path, got="the record of another cell", expected=f"that of {cell.names}"
            )
        return cast(Record, record)

    def put_away(self, file: Entry) -> str:
        """Move a file to the quarantine, and return where it is."""
        away = self._real / "quarantine"
        make_folder(away)
        target = Entry.inside(away / f"{file.name}.{time.time_ns()}")
        file.move(target)
        return str(target)

    def unfinished(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells to play: those without a record, and those that failed.

        For the holder of the lock only: what writers left behind that were killed is removed,
        temporary files and checkpoints of cells that are finished.
        """
        for folder in (self._real, self.cells):
            for name in names_in(folder, links=False):
                if is_partial(name):
                    Entry.inside(folder / name).remove()
        unfinished = []
        for cell in cells:
            record = self.record_of(cell)
            if record is None or record["status"] != "done":
                unfinished.append(cell)
            else:
                self.checkpoint_file(cell).remove()
        return unfinished


def is_partial(name: str) -> bool:
    """Say whether a file is one that is being written, or was when its writer was killed."""
    return name.startswith(".") and name.endswith(PARTIAL)


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

    def differences(self, baseline: str | None = None) -> Differences:
        """Return regret minus that of the baseline, paired by seed, by problem.

        The baseline is the one of the spec, or the first agent of a problem.
        """
        rows = Differences()
        for problem, runs in self.runs.items():
            name = baseline or self.spec.get("baseline")
            chosen = name if name in runs or baseline else None
            rows += [{"problem": problem, **row} for row in differences_of(runs, chosen)]
        return rows

    def tests(self, *, level: float = 0.05, method: Method = "fixed") -> dict[str, PairTests]:
        """Return which agents differ on each problem, by tests that are right together on it."""
        return {problem: tests_of(runs, level, method) for problem, runs in self.runs.items()}

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
        done = f"{len(self.cells):,} of {self.total:,} cells are finished"
        text = f"{printable_name(self.name)}: {done}"
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
        elif stored.checkpoint_file(cell).exists():
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
        for name in names_in(stored.cells, links=False):
            if is_partial(name):  # the next run removes it
                continue
            file = stored.cell_file(name)
            cell = by_id.get(name.partition(".")[0])
            try:
                verify_file(stored, file, cell)
            except (RecordError, CheckpointError) as error:
                moved = None
                if quarantine and cell is not None:
                    moved = stored.put_away(file)
                damages.append(Damage(str(stored.path / "cells" / name), str(error), moved))
    return damages


def verify_file(folder: Folder, file: Entry, cell: Cell | None) -> None:
    """Raise what is wrong with a file among the cells."""
    suffix = Path(file.name).suffix
    if cell is None or suffix not in (".json", ".npz"):
        raise RecordError(file.path, got="a file of no cell", expected="none; it is left in place")
    if suffix == ".json":
        folder.record_of(cell)
    else:
        read_document(file)
