"""The directory of an experiment: its layout, its lock, its tables, and how all of it is read and verified.

::

    DIR/experiment.json            name, spec, ids of the cells in order
    DIR/spec.toml                  the spec as given
    DIR/lock                       while a process works here
    DIR/cells/<id>/manifest.json   written last: a cell is finished when it is there
    DIR/cells/<id>/curve.parquet, phases.parquet
    DIR/cells/<id>/checkpoint.npz, progress.json     while it runs
    DIR/quarantine/                what `verify` took out

A directory may come from anywhere. The id of a cell is the hash of its content and directories are real directories, so
no path leads out of DIR; sizes are checked before memory is taken; manifests hold a digest of themselves and of their
tables, and tables must agree with their manifest, so a changed byte is an error that names its file.
"""

from __future__ import annotations

import contextlib
import errno
import html
import json
import os
import shutil
import socket
import stat
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occamrl.errors import CheckpointError, FolderInUse, OccamRLError, RecordError, StorageError, as_path
from occamrl.running.files import (
    LARGEST_JSON,
    LARGEST_NUMBER,
    canonical,
    make_folder,
    read_arrays,
    read_json,
    read_plain,
    read_sealed,
    real_folder,
    seal,
    sha256,
    sweep,
    there,
    write_whole,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from occamrl.protocols import Agent

FORMAT = 1
MOST_EPISODES = 10**12
MOST_POINTS = 10**9  # of a curve
MOST_SEEDS = 2**63
CONTENT = ("format", "problem", "agent", "seed", "episodes", "thinning")  # what the id of a cell is the hash of
_RANGES = {"seed": (0, MOST_SEEDS - 1), "episodes": (1, MOST_EPISODES), "thinning": (0, MOST_POINTS)}
_VARIANT = {"name": str, "label": str, "parameters": dict}
LARGEST_MANIFEST = 2**20
TABLES = ("curve.parquet", "phases.parquet")
_FILES = set(TABLES)
PASSING = ("checkpoint.npz", "progress.json")  # files of a cell that is not finished
RETRIES = 3  # of a cell whose worker was lost, without a new checkpoint

_SMALL = 10_000  # bytes of a lock's note or of a progress
_LATEST = 1e11  # the year 5138: a time beyond it is none
_LARGEST_PROGRESS = 1e18  # no run has more of anything
_MOST_PICTURES = 4  # in a notebook
_LIVE_SECONDS = 60.0  # progress older than this is of a process that is gone, on whatever machine it was
_WORKERS_SECONDS = 20.0  # given to the workers of a dead process to notice and to end


@dataclass(frozen=True)
class Variant:
    """A problem or an agent of a cell, by its name."""

    name: str
    label: str
    parameters: dict[str, Any]


def id_of(content: dict[str, Any]) -> str:
    """Return the id of a cell with this content: sixteen hexadecimal digits."""
    return sha256(canonical(content).encode())[:16]


def content_fault(data: Any) -> str | None:
    """Return what is wrong with plain data that should be the content of a cell; None if nothing is."""
    if not isinstance(data, dict) or data.keys() != set(CONTENT) or data["format"] != FORMAT:
        return f"{data!r:.100}"
    for key in ("problem", "agent"):
        part = data[key]
        whole = isinstance(part, dict) and part.keys() == _VARIANT.keys()
        if not whole or not all(isinstance(part[name], kind) for name, kind in _VARIANT.items()):
            return f"{key}: {part!r:.100}"
    for key, (least, most) in _RANGES.items():
        if type(data[key]) is not int or not least <= data[key] <= most:
            return f"{key}: {data[key]!r:.100}"
    return None


@dataclass(frozen=True)
class Cell:
    """What is run, in plain data."""

    problem: Variant
    agent: Variant
    seed: int
    episodes: int
    thinning: int

    @classmethod
    def of(cls, content: dict[str, Any]) -> Cell:
        """Return the cell with this content, which has been checked."""
        rest = {key: content[key] for key in _RANGES}
        return cls(Variant(**content["problem"]), Variant(**content["agent"]), **rest)

    @property
    def content(self) -> dict[str, Any]:
        """Everything that makes the cell what it is."""
        rest = {key: getattr(self, key) for key in _RANGES}
        return {"format": FORMAT, "problem": vars(self.problem), "agent": vars(self.agent), **rest}

    @cached_property
    def id(self) -> str:
        """Sixteen hexadecimal digits."""
        return id_of(self.content)

    @property
    def names(self) -> dict[str, Any]:
        """What a person calls the cell: the columns of its tables, beside its id."""
        return {"problem": self.problem.label, "agent": self.agent.label, "seed": self.seed}

    def make(self) -> tuple[Any, Agent, dict[str, Any]]:
        """Return (problem, agent, the agent's parameters as resolved, in plain words), ready to run."""
        from occamrl.experiments.resolution import make_cell

        return make_cell(self)


class FolderLock:
    """Exclusive lock on an experiment directory, as a context.

    The lock is the system's (``flock``, by way of :mod:`filelock`) and belongs to an open file. Worker processes
    inherit :attr:`handle`, so the lock is held until the last of them is gone, however it went; a lock file left by a
    dead process is no lock, only a note. Where the note's process is dead and the lock is still held, its workers are
    about to notice and to end: they are waited for.
    """

    def __init__(self, path: Path, wait: float = _WORKERS_SECONDS) -> None:
        self.path = path
        self.wait = wait
        self.handle = -1  # the descriptor that workers must inherit
        self.token = uuid.uuid4().hex  # of Dask tasks, which stop when the note in the lock file has another one
        self.recovered: dict[str, Any] | None = None  # what a dead process had written into the lock

    def __enter__(self) -> FolderLock:
        import filelock

        if not filelock.has_fcntl:
            raise OccamRLError("this system has no file locks that processes inherit: run cells on Linux or macOS")
        self._lock = filelock.UnixFileLock(self.path, fallback_to_soft=False, on_acquired=self._take)
        deadline = time.monotonic() + self.wait
        while True:
            try:
                self._lock.acquire(blocking=False)
            except filelock.Timeout:
                holder = holder_of(self.path)
                if holder is None or not is_gone(holder):
                    raise FolderInUse(f"{self.path.parent}: in use by {describe_holder(holder)}") from None
                if time.monotonic() > deadline:
                    workers = ", ".join(map(str, _with_open(self.path))) or "of unknown number"
                    text = f"in use by worker process {workers}, left by {describe_holder(holder)}, which is gone"
                    raise FolderInUse(f"{self.path.parent}: {text}") from None
                time.sleep(0.05)
            except OSError as error:
                if error.errno in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
                    text = f"its file system has no locks ({error.strerror}); use a folder on another one"
                    raise OccamRLError(f"{self.path.parent}: {text}") from error
                raise StorageError(self.path, error) from error
            else:
                return self

    def _take(self, handle: int) -> None:
        """Write our note; if this raises, the lock is given back."""
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:  # it is going to be written over
            raise RecordError(self.path, got="no file of its own", expected="a regular file with one name, or none")
        self.handle = handle
        self.recovered = holder_of(self.path)
        self._write(self.token)

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        self._lock.release()

    def revoke(self) -> None:
        """Tell those who work elsewhere under this lock's token to stop."""
        with contextlib.suppress(OSError):
            self._write("")

    def _write(self, token: str) -> None:
        note = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time(), "token": token}
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, json.dumps(note).encode(), 0)


def _with_open(path: Path) -> list[int]:
    """Return the processes of this user that have a file open, where the system says so (Linux)."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if link.samefile(path):
                found.add(int(link.parts[2]))
    return sorted(found - {os.getpid()})


def holder_of(path: Path) -> dict[str, Any] | None:
    """Return what the lock file says about its holder; None when it says nothing that can be read."""
    with contextlib.suppress(RecordError):
        note = read_json(path, _SMALL)
        return note if isinstance(note, dict) else None
    return None


def describe_holder(holder: dict[str, Any] | None) -> str:
    """Return the holder in words."""
    if holder is None or type(holder.get("pid")) is not int:
        return "another process"
    since = holder.get("since")
    known = isinstance(since, (int, float)) and 0 <= since < _LATEST
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since)) if known else "?"
    return f"process {holder['pid']} on {str(holder.get('host'))[:100]!r}, since {began}"


def is_gone(holder: dict[str, Any]) -> bool:
    """Say whether the process of this ``pid`` on this ``host`` is known to have ended."""
    pid = holder.get("pid")
    if holder.get("host") != socket.gethostname() or not isinstance(pid, int) or not 0 < pid < 2**31:
        return False
    if os.name != "posix":  # there, the question itself would end the process
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


@dataclass(frozen=True)
class ExperimentFile:
    """What experiment.json says; ``contents`` are those of the cells, in the order of their ids."""

    name: str
    spec: dict[str, Any]
    cells: list[str]
    contents: list[dict[str, Any]]
    files: dict[str, str]

    @property
    def planned(self) -> list[Cell]:
        """The cells themselves."""
        return [Cell.of(content) for content in self.contents]


_KINDS: dict[str, Callable[[Any], bool]] = {
    "a text": lambda value: isinstance(value, str),
    "done or failed": lambda value: value in ("done", "failed"),
    "a list": lambda value: isinstance(value, list),
    "a table": lambda value: isinstance(value, dict),
    "a table of texts": lambda value: isinstance(value, dict) and {str}.issuperset(map(type, value.values())),
    "a finite number": lambda value: type(value) in (int, float) and abs(value) <= LARGEST_NUMBER,
}
# What readers rely on: the fields of each file and their kinds.
_EXPERIMENT = {
    "name": "a text",
    "spec": "a table",
    "cells": "a list",
    "contents": "a list",
    "files": "a table of texts",
}
_MANIFEST = {"cell": "a text", "status": "done or failed"}
_MANIFEST |= dict.fromkeys(("files", "versions", "machine"), "a table of texts")
TOTALS = ("total_regret", "total_return", "wall_time", "plans", "pessimistic_episodes")
_FINISHED = _MANIFEST | dict.fromkeys(TOTALS, "a finite number")


def _require_fields(document: dict[str, Any], fields: dict[str, str], path: Path | str) -> None:
    """Refuse a file of another format, or without what readers rely on."""
    if document.get("format") != FORMAT:
        got = f"format {str(document.get('format'))[:20]}"
        raise RecordError(path, got=got, expected=f"format {FORMAT}; a newer version of occamrl may read it")
    for name, kind in fields.items():
        if name not in document or not _KINDS[kind](document[name]):
            raise RecordError(path, got=f"{name}: {document.get(name)!r:.100}", expected=kind)


class Folder:
    """An experiment's directory."""

    def __init__(self, path: str | Path) -> None:
        self.path = as_path("folder", path)
        self.experiment_file = self.path / "experiment.json"
        self.spec_file = self.path / "spec.toml"
        self.lock_file = self.path / "lock"
        self.cells = self.path / "cells"
        self.quarantine = self.path / "quarantine"

    def exists(self) -> bool:
        """Say whether there is an experiment."""
        return there(self.experiment_file)

    def require_unclaimed(self, source: bytes) -> None:
        """Refuse a directory of no experiment in which our files would take the place of somebody else's."""
        if self.exists() or there(self.cells):  # the first thing that is created
            return
        for path, ours in ((self.spec_file, source), (self.lock_file, b"")):
            note = path == self.lock_file and holder_of(path)
            if there(path) and not _holds(path, ours) and not note:
                raise RecordError(path, got="a file of no experiment", expected="a folder without one")

    def create(self, name: str, spec: dict[str, Any], source: bytes, cells: list[Cell]) -> None:
        """Create the directory, or add the cells of a larger spec to it."""
        document = {
            "format": FORMAT,
            "name": name,
            "spec": spec,
            "cells": [cell.id for cell in cells],
            "contents": [cell.content for cell in cells],
            "files": {"spec.toml": sha256(source)},
        }
        sealed = seal(document)
        if len(sealed) > LARGEST_JSON:
            got = f"cells that take {len(sealed):,} bytes to describe"
            expected = f"at most {LARGEST_JSON:,}: fewer cells in one spec"
            raise RecordError(self.experiment_file, got=got, expected=expected)
        make_folder(self.cells)
        for path, content in ((self.spec_file, source), (self.experiment_file, sealed)):
            if not _holds(path, content):
                write_whole(path, content)

    def experiment(self) -> ExperimentFile:
        """Return experiment.json, checked: every id is that of its content, and none occurs twice."""
        path = self.experiment_file
        if not self.exists():
            raise RecordError(self.path, got="no experiment.json", expected="a folder written by `occamrl run`")
        try:
            document = read_sealed(path)
        except RecordError as error:
            fix = f"{error.expected}; remove it and run the spec again: finished cells stay"
            raise RecordError(path, got=error.got, expected=fix) from error
        _require_fields(document, _EXPERIMENT, path)
        found = ExperimentFile(**{name: document[name] for name in _EXPERIMENT})
        meanings: dict[tuple[str, str], Any] = {}
        names = set()
        for content in found.contents:
            fault = content_fault(content)
            if fault is not None:
                raise RecordError(path, got=fault, expected="the content of a cell")
            problem, agent = (content[kind]["label"] for kind in ("problem", "agent"))
            names.add((problem, agent, content["seed"]))
            for label, meaning in (
                (("problem", problem), (content["problem"], content["episodes"])),
                (("agent", agent), content["agent"]),
            ):
                if meanings.setdefault(label, meaning) != meaning:
                    raise RecordError(path, got="cells of one label that differ", expected="one meaning of each label")
        if found.cells != [id_of(content) for content in found.contents]:  # so no id is a path to elsewhere
            raise RecordError(path, got="ids that are not of the contents", expected="the id of each cell's content")
        if len(names) < len(found.contents):
            got = "two cells of one problem, agent and seed"
            raise RecordError(path, got=got, expected="one, so that it counts once")
        _require_folder(self.cells)
        return found

    def cell(self, cell: str) -> Path:
        """Return the directory of a cell, which may not exist yet; symbolic links are refused."""
        path = self.cells / cell
        for each in (self.cells, path):
            _require_folder(each)
        return path

    def open_cell(self, cell: str) -> Path:
        """Return the directory of a cell, created if missing."""
        path = self.cell(cell)
        make_folder(path)
        return path

    def manifest(self, cell: str, content: dict[str, Any]) -> dict[str, Any] | None:
        """Return the manifest of a cell, with every field that readers rely on; None: there is none yet."""
        _require_folder(f"{self.cells}/{cell}")
        path = f"{self.cells}/{cell}/manifest.json"
        try:
            document = read_sealed(path, LARGEST_MANIFEST)
        except RecordError:
            if not there(path):
                return None
            document = read_sealed(path, LARGEST_MANIFEST)  # a worker may have written it in between
        done = document.get("status") == "done"
        _require_fields(document, _FINISHED if done else _MANIFEST, path)
        if document["cell"] != cell or {key: document.get(key) for key in CONTENT} != content:
            got = f"the manifest of {document['cell'][:40]!r}, or another content"
            raise RecordError(path, got=got, expected=cell)
        if document["files"].keys() != (_FILES if done else set()):
            got = f"files {sorted(name[:40] for name in document['files'])}"
            raise RecordError(path, got=got, expected=f"{sorted(TABLES) if done else 'none'}")
        document.update(content)  # equal, and shared; where a manifest says true for 1, it is 1
        return document

    def unfinished(self, cells: list[Cell]) -> list[Cell]:
        """Return the cells to play, and remove what killed processes left behind. Only for the holder of the lock.

        The record of a failure is removed: its cell is tried again.
        """
        found = []
        try:
            sweep(self.path)
            for cell in cells:
                manifest = self.manifest(cell.id, cell.content)
                if manifest is not None and manifest["status"] == "done":
                    tidy(self.cell(cell.id))
                else:
                    (self.cell(cell.id) / "manifest.json").unlink(missing_ok=True)
                    found.append(cell)
        except RecordError as error:
            raise error.with_advice() from error
        except OSError as error:
            raise StorageError(self.path, error) from error
        return found

    def put_aside(self, cell: str) -> Path:
        """Move a cell's directory into quarantine; return where it is now."""
        source = self.cells / cell
        for each in (self.cells, self.quarantine):
            _require_folder(each)
        try:
            self.quarantine.mkdir(exist_ok=True)
            number = 1
            while (target := self.quarantine / f"{cell}.{number}").exists() or target.is_symlink():
                number += 1
            shutil.move(source, target)
        except OSError as error:
            raise StorageError(source, error) from error
        return target


def tidy(cell: Path, passing: Sequence[str] = PASSING) -> None:
    """Remove the passing files of a cell, and what a worker that was killed on the way left behind."""
    for name in passing:
        (cell / name).unlink(missing_ok=True)
    sweep(cell)


def _holds(path: Path, content: bytes) -> bool:
    """Say whether a file is there, whole and with this content."""
    try:
        return read_plain(path, len(content)) == content
    except RecordError:
        return False


def _require_folder(path: Path | str) -> None:
    """Refuse what has a directory's name and is none; that there is nothing yet is fine."""
    try:
        real = stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise RecordError(path, got=str(error.strerror), expected="a folder that can be read") from error
    if not real:
        raise RecordError(path, got="a symbolic link or a file", expected="a folder")


@dataclass(frozen=True, eq=False, kw_only=True)
class Status:
    """How far an experiment has come.

    ``cells`` are the manifests of the finished cells, ``failed`` those of the failed ones, in the spec's order.
    ``running`` maps ids to the latest progress, ``missing`` lists the ids of all others.
    """

    folder: Path
    name: str
    spec: dict[str, Any]
    cells: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    running: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    damaged: dict[str, RecordError] = field(default_factory=dict)  # by cell: what is wrong with its manifest

    @property
    def total(self) -> int:
        """The number of cells."""
        return sum(map(len, (self.cells, self.failed, self.running, self.missing, self.damaged)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Records(Status):
    """An experiment as far as it has come, with the tables of all finished cells, one after the other."""

    curves: pa.Table = field(repr=False)
    phases: pa.Table = field(repr=False)

    def _repr_html_(self) -> str:
        """Return a table of means over seeds, and a small picture of each of the first problems."""
        import numpy as np

        from occamrl.running.result import html_curves, html_table

        curves: Any = self.curves  # the types of pyarrow lack what follows
        means = curves.group_by(["problem", "agent", "episode"]).aggregate(
            [("cumulative_regret", "mean"), ("seed", "count_distinct")]
        )
        points: dict[str, dict[str, list[tuple[int, float]]]] = {}
        last: dict[tuple[str, str], dict[str, str]] = {}
        for row in means.sort_by("episode").to_pylist():
            problem, agent, mean = row["problem"], row["agent"], row["cumulative_regret_mean"]
            points.setdefault(problem, {}).setdefault(agent, []).append((row["episode"], mean))
            counts = {"seeds": f"{row['seed_count_distinct']:,}", "episodes": f"{row['episode']:,}"}
            last[problem, agent] = {"problem": problem, "agent": agent, **counts, "mean regret": f"{mean:,.4g}"}
        text = f"<p>{html.escape(self.name)}: {len(self.cells):,} of {self.total:,} cells are finished</p>"
        text += html_table(list(last.values())) if last else ""
        for problem in list(points)[:_MOST_PICTURES]:
            lines = {agent: np.array(each, dtype=np.float64).T for agent, each in points[problem].items()}
            text += html_curves(lines, f"{problem}: mean cumulative regret")
        return text


def status(path: str | Path) -> Status:
    """Return where an experiment stands. Damaged manifests are listed, not raised."""
    folder = Folder(path)
    document = folder.experiment()
    now = Status(folder=folder.path, name=document.name, spec=document.spec)
    for cell, content in zip(document.cells, document.contents, strict=True):
        try:
            manifest = folder.manifest(cell, content)
        except RecordError as error:
            now.damaged[cell] = error
            continue
        if manifest is not None:
            (now.cells if manifest["status"] == "done" else now.failed).append(manifest)
        elif (progress := read_progress(folder.cell(cell))) is not None:
            now.running[cell] = progress
        else:
            now.missing.append(cell)
    return now


def read_progress(cell: Path) -> dict[str, Any] | None:
    """Return the progress of a cell under way; None when it is not, or cannot be read."""
    path = cell / "progress.json"
    try:
        if time.time() - path.lstat().st_mtime > _LIVE_SECONDS:
            return None
        progress = read_json(path, _SMALL)
    except (OSError, RecordError):
        return None
    if not isinstance(progress, dict) or is_gone(progress):
        return None
    numbers: list[Any] = [progress.get(key) for key in ("episodes", "total", "regret", "rate", "time")]
    good = all(type(number) in (int, float) and abs(number) < _LARGEST_PROGRESS for number in numbers)
    return progress if good else None


def load(folder: str | Path) -> Records:
    """Return the records of an experiment; every byte read is compared with its digest.

    >>> from pathlib import Path
    >>> import occamrl as orl
    >>> _ = Path("tiny.toml").write_text('''
    ... name = "tiny"
    ... episodes = 20
    ... seeds = 1
    ... problem = [{ name = "RiverSwim" }]
    ... agent = [{ name = "PSRL" }]
    ... ''')
    >>> records = orl.Experiment.from_toml("tiny.toml").run("tiny", workers=1, progress=False)
    >>> orl.load("tiny").curves.num_rows
    20

    Raises
    ------
    RecordError
        Naming the file that is damaged; ``occamrl verify`` takes it out.
    """
    from occamrl.experiments.tables import read_tables

    now = status(folder)
    for wrong in now.damaged.values():
        raise wrong.with_advice()
    curves, phases = (read_tables(now.folder / "cells", now.cells, name) for name in TABLES)
    return Records(**vars(now), curves=curves, phases=phases)


@dataclass(frozen=True)
class Damage:
    """A file that is not as it was written, and where its cell was put."""

    path: str
    problem: str
    cell: str | None  # None: the experiment itself
    moved_to: str | None


def verify(path: str | Path, *, quarantine: bool = True) -> list[Damage]:
    """Read every byte of every record and checkpoint; take damaged cells out of the way; return what was found.

    The caller holds the directory's lock if ``quarantine`` is on.
    """
    folder = Folder(path)
    document = folder.experiment()
    found: list[Damage] = []
    try:
        source = read_plain(folder.spec_file, LARGEST_JSON)
        if sha256(source) != document.files.get("spec.toml"):
            raise RecordError(folder.spec_file, got="another SHA-256", expected="the spec as it was given")
    except RecordError as error:
        found.append(Damage(str(folder.spec_file), str(error), None, None))
    for cell, content in zip(document.cells, document.contents, strict=True):
        wrong = check_cell(folder, cell, content)
        if wrong is not None:
            moved = str(folder.put_aside(cell)) if quarantine else None
            found.append(Damage(wrong.field, str(wrong), cell, moved))
    return found


def check_cell(folder: Folder, cell: str, content: dict[str, Any]) -> RecordError | CheckpointError | None:
    """Read everything of a cell; return the first error."""
    from occamrl.experiments.tables import read_each

    try:
        path = folder.cell(cell)
        if not real_folder(path):
            return None
        manifest = folder.manifest(cell, content)
        if manifest is not None and manifest["status"] == "done":
            for name in TABLES:
                read_each(folder.cells, [manifest], name)
        if there(path / "checkpoint.npz"):
            read_arrays(path / "checkpoint.npz")
    except (RecordError, CheckpointError) as error:
        return error
    return None
