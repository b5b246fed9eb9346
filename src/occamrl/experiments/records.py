"""Reading an experiment's folder: what is finished, what is under way, what is damaged."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import shutil
import socket
import stat
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from occamrl.errors import (
    CheckpointError,
    FolderInUse,
    OccamRLError,
    RecordError,
    StorageError,
)
from occamrl.experiments.spec import Cell, require_id
from occamrl.protocols import Ints
from occamrl.running.result import Result
from occamrl.running.storage import (
    LARGEST_JSON,
    LARGEST_NUMBER,
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

# ----------------------------------------------------------------------------------------------------
# One process works on a folder; another is told who.
#
# The lock belongs to an open file, and worker processes inherit it: it is held until the last of them is gone, and the
# system gives it back when they die, however they die. So a lock file left by a dead process is no lock, only a note.


try:
    import fcntl
except ImportError:  # Windows: folders can be read there (list, status, report, watch), not worked on
    fcntl = None  # type: ignore[assignment]  # asked for where a lock is taken

_WAIT = 20.0  # seconds given to the workers of a dead process to notice and to end
_LARGEST = 10_000
_LATEST = 1e11  # the year 5138: a time beyond it is none


class FolderLock:
    """A context in which this process, and those it starts with :attr:`handle`, have the folder to themselves.

    ``recovered`` is what a dead process had written into the lock, if there was one.
    """

    def __init__(self, path: Path, wait: float = _WAIT) -> None:
        self.path = path
        self.wait = wait
        self.handle = -1
        self.token = uuid.uuid4().hex
        self.recovered: dict[str, Any] | None = None

    def __enter__(self) -> FolderLock:
        if fcntl is None:
            raise OccamRLError("this system has no file locks that processes inherit: run cells on Linux or macOS")
        deadline = time.monotonic() + self.wait
        while True:
            handle = self._open()
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = holder_of(self.path)
                os.close(handle)
                if holder is None or not is_gone(holder) or time.monotonic() > deadline:
                    raise FolderInUse(f"{self.path.parent}: in use by {describe_holder(holder)}") from None
                time.sleep(0.05)
                continue
            if self._is_current(handle):
                self.handle = handle
                self.recovered = holder_of(self.path)
                try:
                    self._write(self.token)
                except OSError as error:
                    self.__exit__(None, None, None)
                    raise StorageError(self.path, error) from error
                return self
            os.close(handle)  # the holder removed the file between our opening and our locking it

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        os.close(self.handle)

    def revoke(self) -> None:
        """Tell those who work elsewhere under this lock's token to stop."""
        with contextlib.suppress(OSError):
            self._write("")

    def _open(self) -> int:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            handle = os.open(self.path, flags, 0o644)
        except OSError as error:
            raise StorageError(self.path, error) from error
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:  # it is going to be written over
            os.close(handle)
            raise RecordError(self.path, got="no file of its own", expected="a regular file with one name, or none")
        return handle

    def _is_current(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), self.path.stat())
        except FileNotFoundError:
            return False

    def _write(self, token: str) -> None:
        note = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time(), "token": token}
        text = json.dumps(note).encode()
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, text, 0)


def holder_of(path: Path) -> dict[str, Any] | None:
    """Return what the lock file says about its holder; None when it says nothing that can be read."""
    try:
        note = read_json(path, _LARGEST)
    except RecordError:
        return None
    return note if isinstance(note, dict) else None


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
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


# ----------------------------------------------------------------------------------------------------
# The folder of an experiment: where everything lies, and nothing outside it.
#
# ::
#
#     DIR/experiment.json            name, spec, ids of the cells in order
#     DIR/spec.toml                  the spec as given
#     DIR/lock                       while a process works here
#     DIR/cells/<id>/manifest.json   written last: a cell is finished when it is there
#     DIR/cells/<id>/curve.parquet, phases.parquet
#     DIR/cells/<id>/checkpoint.npz, progress.json     while it runs
#     DIR/quarantine/                what `verify` took out
#
# Ids are sixteen hexadecimal digits and folders are real folders, so no path leads out of DIR.


FORMAT = 1
LARGEST_MANIFEST = 2**20
TABLES = ("curve.parquet", "phases.parquet")
PASSING = ("checkpoint.npz", "progress.json")  # files of a cell that is not finished
_EXPERIMENT = {"name": str, "spec": dict, "cells": list, "contents": list, "files": dict}


class Folder:
    """An experiment's folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.experiment_file = self.path / "experiment.json"
        self.spec_file = self.path / "spec.toml"
        self.lock_file = self.path / "lock"
        self.cells = self.path / "cells"
        self.quarantine = self.path / "quarantine"

    def exists(self) -> bool:
        """Say whether there is an experiment."""
        return there(self.experiment_file)

    def require_unclaimed(self, source: bytes) -> None:
        """Refuse a folder of no experiment in which our files would take the place of somebody else's."""
        if self.exists() or there(self.cells):  # the first thing that is made
            return
        foreign = {
            self.spec_file: there(self.spec_file) and not _holds(self.spec_file, source),
            self.lock_file: not _holds(self.lock_file, b"") and there(self.lock_file) and not holder_of(self.lock_file),
        }
        for path in (path for path, found in foreign.items() if found):
            raise RecordError(path, got="a file of no experiment", expected="a folder without one")

    def create(self, name: str, spec: dict[str, Any], source: bytes, cells: list[Cell]) -> None:
        """Make the folder, or add the cells of a larger spec to it."""
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
            raise RecordError(
                self.experiment_file, got=got, expected=f"at most {LARGEST_JSON:,}: fewer cells in one spec"
            )
        make_folder(self.cells)
        for path, content in ((self.spec_file, source), (self.experiment_file, sealed)):
            if not _holds(path, content):
                write_whole(path, content)

    def experiment(self) -> dict[str, Any]:
        """Return experiment.json, checked: every id is that of its content, and none occurs twice."""
        path = self.experiment_file
        if not self.exists():
            raise RecordError(self.path, got="no experiment.json", expected="a folder written by `occamrl run`")
        try:
            document = read_sealed(path)
        except RecordError as error:
            mend = f"{error.expected}; remove it and run the spec again: finished cells stay"
            raise RecordError(path, got=error.got, expected=mend) from error
        require_format(document, path)
        for key, kind in _EXPERIMENT.items():
            if not isinstance(document.get(key), kind):
                raise RecordError(path, got=f"{key}: {type(document.get(key)).__name__}", expected=kind.__name__)
        ids, contents = document["cells"], document["contents"]
        if len(contents) != len(ids) or len(set(map(str, ids))) != len(ids):
            raise RecordError(path, got="cells twice, or not as many as contents", expected="one content per cell")
        for cell, content in zip(ids, contents, strict=True):
            require_content(require_id(cell, path), content, path)
        places = {(content["problem"]["label"], content["agent"]["label"], content["seed"]) for content in contents}
        if len(places) < len(contents):
            raise RecordError(
                path, got="two cells of one problem, agent and seed", expected="one, so that it counts once"
            )
        require_folder(self.cells)
        return document

    def planned(self) -> list[Cell]:
        """Return the cells of the experiment, in order."""
        return [Cell.of(content) for content in self.experiment()["contents"]]

    def cell(self, cell: str) -> Path:
        """Return the folder of a cell, which may not exist yet; symbolic links are refused."""
        path = self.cells / require_id(cell, self.cells)
        for each in (self.cells, path):
            require_folder(each)
        return path

    def open_cell(self, cell: str) -> Path:
        """Return the folder of a cell, made if needed."""
        path = self.cell(cell)
        make_folder(path)
        return path

    def manifest(self, cell: str) -> dict[str, Any] | None:
        """Return the manifest of a cell, checked; None: there is none yet."""
        path = self.cell(cell) / "manifest.json"
        if not there(path):
            return None
        document = read_sealed(path, LARGEST_MANIFEST)
        require_format(document, path)
        if document.get("cell") != cell:
            raise RecordError(path, got=f"the manifest of {str(document.get('cell'))[:40]!r}", expected=cell)
        require_content(cell, document, path)
        require_manifest(document, path)
        return document

    def clean(self) -> None:
        """Remove what killed processes left behind. Only for the holder of the lock."""
        try:
            sweep(self.path)
            if not real_folder(self.cells):
                return
            for entry in sorted(self.cells.iterdir()):
                if real_folder(entry):
                    sweep(entry)
                    self._finish(entry)
        except OSError as error:
            raise StorageError(self.path, error) from error

    def _finish(self, entry: Path) -> None:
        """Remove the passing files of a cell whose manifest says that it is done."""
        if (entry / "manifest.json").exists() and any((entry / name).exists() for name in PASSING):
            try:
                manifest = self.manifest(entry.name)
            except RecordError:  # `verify` will say so
                return
            if manifest is not None and manifest["status"] == "done":
                finish(entry)

    def put_aside(self, cell: str) -> Path:
        """Move a cell's folder into quarantine; return where it is now."""
        source = self.cells / require_id(cell, self.cells)
        for each in (self.cells, self.quarantine):
            require_folder(each)
        try:
            self.quarantine.mkdir(exist_ok=True)
            number = 1
            while (target := self.quarantine / f"{cell}.{number}").exists() or target.is_symlink():
                number += 1
            shutil.move(source, target)
        except OSError as error:
            raise StorageError(source, error) from error
        return target


def finish(cell: Path) -> None:
    """Remove the passing files of a finished cell, and what a worker that was killed on the way left behind."""
    for name in PASSING:
        (cell / name).unlink(missing_ok=True)
    sweep(cell)


def _holds(path: Path, content: bytes) -> bool:
    """Say whether a file is there, whole and with this content."""
    try:
        return read_plain(path, len(content)) == content
    except RecordError:
        return False


def require_format(document: dict[str, Any], path: Path) -> None:
    """Refuse files of a format this version does not know."""
    if document.get("format") != FORMAT:
        got = f"format {str(document.get('format'))[:20]}"
        raise RecordError(path, got=got, expected=f"format {FORMAT}; a newer version of occamrl may read it")


def require_folder(path: Path) -> None:
    """Refuse what has a folder's name and is none; that there is nothing yet is fine."""
    if there(path) and not real_folder(path):
        raise RecordError(path, got="a symbolic link or a file", expected="a folder")


def require_content(cell: str, content: Any, path: Path) -> None:
    """Refuse content that is not that of the cell with this id: the id is its hash."""
    try:
        found = Cell.of(content).id
    except (TypeError, ValueError, AttributeError) as error:
        raise RecordError(path, got=f"for {cell}, {error}", expected="the content of a cell") from error
    if found != cell:
        raise RecordError(path, got=f"another content for {cell}", expected="its own")


_NUMBERS = ("total_regret", "total_return", "wall_time", "plans", "pessimistic_episodes")


def require_manifest(document: dict[str, Any], path: Path) -> None:
    """Refuse a manifest without the fields that readers rely on, or with files of other names."""
    if document.get("status") not in ("done", "failed"):
        raise RecordError(path, got=f"status {str(document.get('status'))[:20]!r}", expected="'done' or 'failed'")
    for key in _NUMBERS if document["status"] == "done" else ():
        value: Any = document.get(key)
        if type(value) not in (int, float) or not abs(value) <= LARGEST_NUMBER:
            raise RecordError(path, got=f"{key}: {str(value)[:60]!r}", expected="a finite number")
    for key in ("files", "versions", "machine"):
        if not isinstance(document.get(key), dict) or not all(isinstance(v, str) for v in document[key].values()):
            raise RecordError(path, got=f"{key}: {str(document.get(key))[:60]!r}", expected="names and strings")
    expected = set(TABLES) if document["status"] == "done" else set()
    if set(document["files"]) != expected:
        got = f"files {sorted(str(name)[:40] for name in document['files'])}"
        raise RecordError(path, got=got, expected=f"{sorted(expected)}")


# ----------------------------------------------------------------------------------------------------
# The tables of a cell: its curve and its phases, tidy, long, the same bytes for the same result.


_ABOUT = [("cell", pa.string()), ("problem", pa.string()), ("agent", pa.string()), ("seed", pa.int64())]
CURVE = pa.schema(
    [
        *_ABOUT,
        ("episode", pa.int64()),
        ("regret", pa.float64()),
        ("cumulative_regret", pa.float64()),
        ("realised_return", pa.float64()),
    ]
)
PHASES = pa.schema(
    [
        *_ABOUT,
        ("phase", pa.int64()),
        ("epoch", pa.int64()),
        ("label", pa.string()),
        ("episodes", pa.int64()),
        ("regret", pa.float64()),
        ("plans", pa.int64()),
        ("realised_return", pa.float64()),
        ("facts", pa.string()),
    ]
)
SCHEMAS = {"curve.parquet": CURVE, "phases.parquet": PHASES}
MOST_ROWS = {"curve.parquet": 2 * 10**6, "phases.parquet": 10**7}  # a curve keeps a million episodes, then a few
MOST_BYTES = 4 * 2**30  # once decompressed
_OWN = ("epoch", "label", "episodes", "regret", "plans", "realised_return")


def thin(episodes: Ints, points: int) -> Ints:
    """Return the positions of about ``points`` episodes, half spread evenly, half in the logarithm; 0: all."""
    size = episodes.size
    if points == 0 or size <= points:
        return np.arange(size)
    even = np.linspace(0, size - 1, max(points // 2, 2))
    early = np.geomspace(1, size, max(points // 2, 2)) - 1
    return np.unique(np.round(np.concatenate([even, early])).astype(np.int64))


def curve_table(cell: Cell, result: Result) -> pa.Table:
    """Return the thinned curve of a finished cell."""
    at = thin(result.episodes, cell.thinning)
    columns = {
        "episode": result.episodes[at],
        "regret": result.regret[at],
        "cumulative_regret": result.cumulative_regret[at],
        "realised_return": result.returns[at],
    }
    return pa.table({**_about(cell, at.size), **columns}, schema=CURVE)


def phases_table(cell: Cell, result: Result) -> pa.Table:
    """Return one row per phase of a finished cell."""
    rows = [row for row in result.walk.rows if row["episodes"]]
    columns = {
        "phase": list(range(len(rows))),
        "epoch": [row["epoch"] for row in rows],
        "label": [row["label"] for row in rows],
        "episodes": [row["episodes"] for row in rows],
        "regret": [row["regret"] for row in rows],
        "plans": [row["plans"] for row in rows],
        "realised_return": [row["realised_return"] for row in rows],
        "facts": [_facts(row) for row in rows],
    }
    return pa.table({**_about(cell, len(rows)), **columns}, schema=PHASES)


def _about(cell: Cell, rows: int) -> dict[str, list[Any]]:
    values = {"cell": cell.id, "problem": cell.problem["label"], "agent": cell.agent["label"], "seed": cell.seed}
    return {name: [value] * rows for name, value in values.items()}


def _facts(row: dict[str, Any]) -> str:
    return json.dumps({key: jsonable(value) for key, value in row.items() if key not in _OWN}, sort_keys=True)


def jsonable(value: Any) -> Any:
    """Return plain data that every JSON reader takes: NaN becomes null, infinities strings, the unknown its repr."""
    if isinstance(value, dict):
        return {str(key): jsonable(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return jsonable(value.tolist())
    return repr(value)


def to_parquet(table: pa.Table) -> bytes:
    """Return a table as the content of a Parquet file: no time, no name, one row group."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", row_group_size=max(table.num_rows, 1), store_schema=False)
    return buffer.getvalue()


def require_rows(table: pa.Table, name: str, manifest: Mapping[str, Any], path: Path) -> None:
    """Refuse rows that are not those of the manifest's cell: gaps, infinite numbers, episodes out of order or count."""
    about = (manifest["cell"], manifest["problem"]["label"], manifest["agent"]["label"], manifest["seed"])
    for (column, _), value in zip(_ABOUT, about, strict=True):
        if table.column(column).unique().to_pylist() != [value]:
            raise RecordError(path, got=f"rows of another cell, by their {column}", expected=f"rows of {about[0]}")
    for column in table.column_names:
        values = table.column(column)
        infinite = values.type == pa.float64() and not (np.abs(values.to_numpy()) <= LARGEST_NUMBER).all()
        if values.null_count or infinite:
            raise RecordError(path, got=f"{column}: a row without a finite number", expected="one in each")
    episodes = table.column("episode" if name == "curve.parquet" else "episodes").to_numpy()
    if name == "curve.parquet":
        sound = episodes[0] >= 1 and (np.diff(episodes) > 0).all() and episodes[-1] == manifest["episodes"]
        sound = sound and table.column("cumulative_regret")[-1].as_py() == manifest["total_regret"]
    else:
        sound = (episodes >= 1).all() and int(episodes.astype(object).sum()) == manifest["episodes"]
        sound = sound and table.column("phase").to_pylist() == list(range(table.num_rows))
    if not sound:
        raise RecordError(path, got="episodes or totals that do not add up", expected="those that its manifest says")


def from_parquet(content: bytes, name: str, path: Path) -> pa.Table:
    """Return the table of a Parquet file, if it has the columns it should have."""
    schema = SCHEMAS[name]
    try:
        file = pq.ParquetFile(io.BytesIO(content))
        about = file.metadata
        if about.num_rows > MOST_ROWS[name] or not file.schema_arrow.equals(schema):
            got = f"{about.num_rows:,} rows of {', '.join(file.schema_arrow.names)[:200]}"
            raise RecordError(path, got=got, expected=f"at most {MOST_ROWS[name]:,} of {', '.join(schema.names)}")
        size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
        if size > MOST_BYTES:
            raise RecordError(path, got=f"{size:,} bytes when decompressed", expected=f"at most {MOST_BYTES:,}")
        return file.read(use_threads=False)  # many small files: a thread pool costs more than it gives
    except RecordError:
        raise
    except Exception as error:  # pyarrow raises errors of many kinds on damaged files
        raise RecordError(path, got=f"{type(error).__name__}: {error}", expected="a Parquet file") from error


# ----------------------------------------------------------------------------------------------------
# Reading an experiment's folder: what is finished, what is under way, what is damaged.


LARGEST_TABLE = 8 * 2**30
_LARGEST_NUMBER = 1e18  # of a progress: no run has more of anything
_LIVE_SECONDS = 60.0  # progress older than this is of a process that is gone, on whatever machine it was


@dataclass(frozen=True, eq=False)
class Records:
    """An experiment as far as it has come.

    ``cells`` are the manifests of the finished cells, ``failed`` those of the failed ones, in the spec's order.
    ``running`` maps ids to the latest progress, ``missing`` lists the ids of all others. ``curves`` and ``phases`` are
    the tables of all finished cells, one after the other.
    """

    folder: Path
    name: str
    spec: dict[str, Any]
    cells: list[dict[str, Any]]
    failed: list[dict[str, Any]]
    running: dict[str, dict[str, Any]]
    missing: list[str]
    curves: pa.Table = field(repr=False)
    phases: pa.Table = field(repr=False)


@dataclass(frozen=True)
class Status:
    """Where an experiment stands, without its tables."""

    name: str
    spec: dict[str, Any]
    order: list[str]
    done: list[dict[str, Any]]
    failed: list[dict[str, Any]]
    running: dict[str, dict[str, Any]]
    missing: list[str]
    damaged: dict[str, RecordError]  # by the id of the cell: what is wrong with its manifest


def status(folder: str | Path) -> Status:
    """Return where an experiment stands. Damaged manifests are listed, not raised."""
    place = Folder(folder)
    document = place.experiment()
    done: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    missing: list[str] = []
    running: dict[str, dict[str, Any]] = {}
    damaged: dict[str, RecordError] = {}
    for cell in document["cells"]:
        try:
            manifest = place.manifest(cell)
        except RecordError as error:
            damaged[cell] = error
            continue
        if manifest is None:
            progress = read_progress(place.cell(cell))
            if progress is None:
                missing.append(cell)
            else:
                running[cell] = progress
        else:
            (done if manifest["status"] == "done" else failed).append(manifest)
    spec, order = document["spec"], document["cells"]
    return Status(document["name"], spec, order, done, failed, running, missing, damaged)


def read_progress(cell: Path) -> dict[str, Any] | None:
    """Return the progress of a cell under way; None when it is not, or cannot be read."""
    path = cell / "progress.json"
    try:
        if time.time() - path.lstat().st_mtime > _LIVE_SECONDS:
            return None
        progress = read_json(path, 10_000)
    except (OSError, RecordError):
        return None
    keys = ("episodes", "total", "regret", "rate", "time")
    good = isinstance(progress, dict) and all(_is_number(progress.get(key)) for key in keys)
    return progress if good and not is_gone(progress) else None


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _LARGEST_NUMBER


def load(folder: str | Path) -> Records:
    """Return the records of an experiment; every byte read is compared with its digest.

    Raises
    ------
    RecordError
        Naming the file that is damaged; ``occamrl verify`` takes it out.
    """
    now = status(folder)
    for wrong in now.damaged.values():
        raise wrong.with_advice()
    place = Folder(folder)
    tables: dict[str, list[pa.Table]] = {name: [SCHEMAS[name].empty_table()] for name in TABLES}
    for manifest in now.done:
        for name in TABLES:
            tables[name].append(read_table(place, manifest, name))
    return Records(
        folder=place.path,
        name=now.name,
        spec=now.spec,
        cells=now.done,
        failed=now.failed,
        running=now.running,
        missing=now.missing,
        curves=pa.concat_tables(tables["curve.parquet"]),
        phases=pa.concat_tables(tables["phases.parquet"]),
    )


def read_table(place: Folder, manifest: dict[str, Any], name: str) -> pa.Table:
    """Return a table of a finished cell, if it is as it was written."""
    path = place.cell(manifest["cell"]) / name
    content = read_plain(path, LARGEST_TABLE)
    found, expected = sha256(content), manifest["files"][name]
    if found != expected:
        raise RecordError(
            path, got=f"SHA-256 {found[:12]}...", expected=f"{str(expected)[:12]}..., as its manifest says"
        )
    table = from_parquet(content, name, path)
    require_rows(table, name, manifest, path)
    return table


@dataclass(frozen=True)
class Damage:
    """A file that is not as it was written, and where its cell was put."""

    path: str
    problem: str
    cell: str | None  # None: the experiment itself
    moved_to: str | None


def verify(folder: str | Path, *, quarantine: bool = True) -> list[Damage]:
    """Read every byte of every record and checkpoint; take damaged cells out of the way; return what was found.

    The caller holds the folder's lock if ``quarantine`` is on.
    """
    place = Folder(folder)
    document = place.experiment()
    found: list[Damage] = []
    try:
        source = read_plain(place.spec_file, LARGEST_TABLE)
        if sha256(source) != document["files"].get("spec.toml"):
            raise RecordError(place.spec_file, got="another SHA-256", expected="the spec as it was given")
    except RecordError as error:
        found.append(Damage(str(place.spec_file), str(error), None, None))
    for cell in document["cells"]:
        wrong = check_cell(place, cell)
        if wrong is None:
            continue
        moved = str(place.put_aside(cell)) if quarantine else None
        found.append(Damage(wrong.field, str(wrong), cell, moved))
    return found


def check_cell(place: Folder, cell: str) -> RecordError | CheckpointError | None:
    """Read everything of a cell; return the first thing wrong with it."""
    try:
        path = place.cell(cell)
        if not real_folder(path):
            return None
        manifest = place.manifest(cell)
        if manifest is not None and manifest["status"] == "done":
            for name in TABLES:
                read_table(place, manifest, name)
        checkpoint = path / "checkpoint.npz"
        if there(checkpoint):
            read_arrays(checkpoint)
    except (RecordError, CheckpointError) as error:
        return error
    return None
