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
from occamrl.runs.files import read_sealed, real_folder, seal, sha256, sweep, write_whole

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
        return self.experiment_file.exists() or self.experiment_file.is_symlink()

    def create(self, name: str, spec: dict[str, Any], source: bytes, cells: list[Cell]) -> None:
        """Make the folder, or add the cells of a larger spec to it."""
        try:
            self.cells.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(self.cells, error) from error
        document = {
            "format": FORMAT,
            "name": name,
            "spec": spec,
            "cells": [cell.id for cell in cells],
            "contents": [cell.content for cell in cells],
            "files": {"spec.toml": sha256(source)},
        }
        content = seal(document)
        if self.experiment_file.exists() and self.experiment_file.read_bytes() == content and self.spec_file.exists():
            return
        write_whole(self.spec_file, source)
        write_whole(self.experiment_file, content)

    def experiment(self) -> dict[str, Any]:
        """Return experiment.json, checked."""
        path = self.experiment_file
        if not self.exists():
            raise RecordError(self.path, got="no experiment.json", expected="a folder written by `occamrl run`")
        document = read_sealed(path)
        require_format(document, path)
        for key, kind in _EXPERIMENT.items():
            if not isinstance(document.get(key), kind):
                raise RecordError(path, got=f"{key}: {type(document.get(key)).__name__}", expected=kind.__name__)
        for cell in document["cells"]:
            require_id(cell, path)
        if len(document["contents"]) != len(document["cells"]):
            raise RecordError(path, got="cells and contents of different lengths", expected="one content per cell")
        return document

    def planned(self) -> list[Cell]:
        """Return the cells of the experiment, in order."""
        document = self.experiment()
        cells = []
        for cell_id, content in zip(document["cells"], document["contents"], strict=True):
            try:
                cell = Cell.of(content)
                same = cell.id == cell_id
            except (TypeError, ValueError, KeyError, AttributeError):
                same = False
            if not same:
                raise RecordError(self.experiment_file, got=f"another content for {cell_id}", expected="its own")
            cells.append(cell)
        return cells

    def cell(self, cell: str) -> Path:
        """Return the folder of a cell, which may not exist yet; symbolic links are refused."""
        path = self.cells / require_id(cell, self.cells)
        for each in (self.cells, path):
            if each.is_symlink() or (each.exists() and not real_folder(each)):
                raise RecordError(each, got="a symbolic link or a file", expected="a folder")
        return path

    def open_cell(self, cell: str) -> Path:
        """Return the folder of a cell, made if needed."""
        path = self.cell(cell)
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise StorageError(path, error) from error
        return path

    def manifest(self, cell: str) -> dict[str, Any] | None:
        """Return the manifest of a cell, checked; None: there is none yet."""
        path = self.cell(cell) / "manifest.json"
        if not path.exists() and not path.is_symlink():
            return None
        document = read_sealed(path, LARGEST_MANIFEST)
        require_format(document, path)
        if document.get("cell") != cell:
            raise RecordError(path, got=f"the manifest of {str(document.get('cell'))[:40]!r}", expected=cell)
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
        if self.quarantine.is_symlink():
            raise RecordError(self.quarantine, got="a symbolic link", expected="a folder")
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


def require_format(document: dict[str, Any], path: Path) -> None:
    """Refuse files of a format this version does not know."""
    if document.get("format") != FORMAT:
        got = f"format {str(document.get('format'))[:20]}"
        raise RecordError(path, got=got, expected=f"format {FORMAT}; a newer version of occamrl may read it")


_NAMED = {"name": str, "label": str, "parameters": dict}


def require_manifest(document: dict[str, Any], path: Path) -> None:
    """Refuse a manifest without the fields that readers rely on, or with files of other names."""
    kinds: dict[str, Any] = {"seed": int, "episodes": int, "files": dict}
    if document.get("status") not in ("done", "failed"):
        raise RecordError(path, got=f"status {str(document.get('status'))[:20]!r}", expected="'done' or 'failed'")
    if document["status"] == "done":
        kinds |= {"total_regret": (int, float), "total_return": (int, float), "wall_time": (int, float)}
    for key, kind in kinds.items():
        if not isinstance(document.get(key), kind):
            raise RecordError(path, got=f"{key}: {str(document.get(key))[:60]!r}", expected=f"{kind}")
    for part in ("problem", "agent"):
        value = document.get(part)
        if not isinstance(value, dict) or not all(isinstance(value.get(key), kind) for key, kind in _NAMED.items()):
            raise RecordError(path, got=f"{part}: {str(value)[:60]}", expected=f"an object with {', '.join(_NAMED)}")
    expected = set(TABLES) if document["status"] == "done" else set()
    if set(document["files"]) != expected:
        got = f"files {sorted(str(name)[:40] for name in document['files'])}"
        raise RecordError(path, got=got, expected=f"{sorted(expected)}")
