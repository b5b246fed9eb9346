"""Reading an experiment's folder: what is finished, what is under way, what is damaged."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from occamrl.errors import CheckpointError
from occamrl.runs.checkpoint import read_arrays
from occamrl.runs.failures import RecordError
from occamrl.runs.files import read_json, read_plain, real_folder, sha256, there
from occamrl.runs.folder import TABLES, Folder
from occamrl.runs.locks import is_gone
from occamrl.runs.tables import SCHEMAS, from_parquet, require_rows

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
