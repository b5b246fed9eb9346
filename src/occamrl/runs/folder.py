"""The folder of an experiment: where everything lies, and nothing outside it.

::

    DIR/experiment.json            name, spec, ids of the cells in order
    DIR/spec.toml                  the spec as given
    DIR/lock                       while a process works here
    DIR/cells/<id>/manifest.json   written last: a cell is finished when it is there
    DIR/cells/<id>/curve.parquet, phases.parquet
    DIR/cells/<id>/checkpoint.npz, progress.json     while it runs
    DIR/quarantine/                what `verify` took out

Ids are sixteen hexadecimal digits and folders are real folders, so no path leads out of DIR.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from occamrl.runs.cells import Cell, require_id
from occamrl.runs.failures import RecordError, StorageError
from occamrl.runs.files import (
    LARGEST_JSON,
    LARGEST_NUMBER,
    make_folder,
    read_plain,
    read_sealed,
    real_folder,
    seal,
    sha256,
    sweep,
    there,
    write_whole,
)
from occamrl.runs.locks import holder_of

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
