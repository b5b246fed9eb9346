"""A directory from somebody who means harm is refused; kills, damage and storage that fails, on a small scale."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import study_robustness as study
from occamrl.errors import CheckpointError, RecordError, StorageError
from occamrl.experiments.display import lines
from occamrl.experiments.execution import Experiment
from occamrl.experiments.records import (
    Cell,
    Folder,
    FolderLock,
    holder_of,
    load,
    status,
    verify,
)
from occamrl.experiments.tables import MOST_ROWS, SCHEMAS, to_parquet
from occamrl.report.page import write_report
from occamrl.running.files import _with_digest, read_arrays, seal, sha256
from tests.experiments.common import command, play, write


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    return play(Experiment.from_toml(write(folder)), folder / "out").path


@pytest.fixture
def folder(tmp_path: Path, played: Path) -> Folder:
    write(tmp_path)
    return Folder(shutil.copytree(played, tmp_path / "out"))


def rewrite(path: Path, **changes: object) -> None:
    document = json.loads(path.read_text())
    document.pop("digest")
    path.write_bytes(seal({**document, **changes}))


def manifest(folder: Folder) -> Path:
    return folder.cell(folder.experiment().cells[0]) / "manifest.json"


def replace(path: Path, name: str, content: bytes) -> None:
    """Replace a table, and its digest in the manifest."""
    (path.parent / name).write_bytes(content)
    rewrite(path, files={**json.loads(path.read_text())["files"], name: sha256(content)})


def replace_columns(path: Path, name: str, change: Callable[[dict[str, list[Any]]], dict[str, list[Any]]]) -> None:
    """Replace columns of a table."""
    columns = pq.read_table(path.parent / name).to_pydict()
    replace(path, name, to_parquet(pa.table({**columns, **change(columns)}, schema=SCHEMAS[name])))


def experiments(ids: list[str], contents: list[dict[str, Any]]) -> dict[str, dict[str, object]]:
    """Return documents that are no experiment, by what is wrong with them."""
    first = contents[0]
    other = Cell.of({**first, "thinning": 7})
    names: list[object] = ["../../../etc", "/etc/passwd", "0123456789ABCDEF", "", 7, None]
    return {
        **{f"the id {name!r}": {"cells": [name], "contents": [first]} for name in names},
        "a cell twice": {"cells": ids[:1] * 2, "contents": contents[:1] * 2},
        "another seed": {"cells": ids[:1], "contents": [{**first, "seed": 5}]},
        "no content": {"cells": ids[:1], "contents": [{}]},
        "a list": {"cells": ids[:1], "contents": [[]]},
        "fewer contents": {"cells": ids[:1], "contents": []},
        "no text": {"cells": ids[:1], "contents": [{**first, "agent": {**first["agent"], "label": "\ud800"}}]},
        "another format": {"format": "\x1b[2J"},
        "two thinnings": {"cells": [*ids, other.id], "contents": [*contents, other.content]},
    }


def test_experiments_that_are_none(folder: Folder) -> None:
    whole = folder.experiment_file.read_bytes()
    document = json.loads(whole)
    for name, changes in experiments(document["cells"], document["contents"]).items():
        folder.experiment_file.write_bytes(whole)
        rewrite(folder.experiment_file, **changes)
        for read in (load, status, verify):
            with pytest.raises(RecordError, match=r"experiment\.json"):
                pytest.fail(f"{name}: read as {read(folder.path)}")


@pytest.mark.parametrize(
    "changes",
    [
        {"cell": "0" * 16},
        {"format": 2},
        {"files": {"../../curve.parquet": "0" * 64, "phases.parquet": "0" * 64}},
        {"total_regret": 10**400},
        {"wall_time": True},
        {"plans": "many"},
        {"pessimistic_episodes": None},
        {"versions": "abc"},
        {"machine": [1]},
        {"seed": 77},
        {"seed": -1},
        {"episodes": 10**400},
        {"thinning": None},
        {"problem": {"name": "RiverSwim"}},
        {"agent": [1]},
    ],
)
def test_manifests_that_are_not_of_their_cell(folder: Folder, changes: dict[str, object]) -> None:
    rewrite(manifest(folder), **changes)
    with pytest.raises(RecordError, match=r"manifest\.json.* see `occamrl verify`"):
        load(folder.path)
    (damage,) = verify(folder.path)
    assert "manifest.json" in damage.problem


GAPS: dict[str, dict[str, list[object]]] = {
    "curve.parquet": {
        "episode": [None, 0, 2**62],
        "cumulative_regret": [float("nan"), 1e308],
        "regret": [None],
        "agent": ["another"],
        "seed": [7],
    },
    "phases.parquet": {
        "phase": [None, 3],
        "episodes": [-(2**62)],
        "epoch": [None],
        "regret": [float("inf")],
        "facts": [None],
    },
}


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [(name, column, value) for name in GAPS for column, values in GAPS[name].items() for value in values],
)
def test_rows_that_do_not_add_up(folder: Folder, name: str, column: str, value: object) -> None:
    path = manifest(folder)
    replace_columns(path, name, lambda columns: {column: [value] * len(columns[column])})
    with pytest.raises(RecordError, match=name):
        load(folder.path)
    (damage,) = verify(folder.path)
    assert damage.cell == path.parent.name


def test_tables_that_are_not_of_their_cell(folder: Folder) -> None:
    path, other = (folder.cell(cell) / "manifest.json" for cell in folder.experiment().cells[:2])
    before, schema = path.read_bytes(), SCHEMAS["curve.parquet"]
    curve = pq.read_table(path.with_name("curve.parquet")).to_pydict()
    texts = {"cell": path.parent.name, "problem": "p", "agent": "a"}
    columns = {name: [texts.get(name, 0)] * (MOST_ROWS["curve.parquet"] + 1) for name in schema.names}
    pq.write_table(pa.table(columns, schema=schema), swollen := io.BytesIO(), compression="zstd", store_schema=False)
    backwards = {name: values[::-1] for name, values in curve.items()}
    for content, message in (
        (swollen.getvalue(), r"curve\.parquet: got 2,000,001 rows"),
        (other.with_name("curve.parquet").read_bytes(), "rows of another cell"),
        (to_parquet(pa.table({"x": [1]})), r"curve\.parquet"),
        (to_parquet(pa.table(backwards, schema=schema)), "do not add up"),
    ):
        assert len(content) < 100_000
        path.write_bytes(before)
        replace(path, "curve.parquet", content)
        with pytest.raises(RecordError, match=message):
            load(folder.path)


def replace_facts(path: Path, facts: str) -> None:
    replace_columns(path, "phases.parquet", lambda columns: {"facts": [facts] * len(columns["facts"])})


@pytest.mark.parametrize("facts", ["[" * 100_000, "{"], ids=["deep", "open"])
def test_facts_that_are_no_json_are_refused(folder: Folder, facts: str) -> None:
    replace_facts(manifest(folder), facts)
    assert command("report", folder.path).exit_code == 1


def test_facts_from_strangers(folder: Folder, tmp_path: Path) -> None:
    """Numbers beyond all bounds, and what is no decision, in one cell each: all are drawn that can be."""
    strange = [
        '{"active": [0], "estimate": [1' + "0" * 400 + '], "threshold": 1}',
        '{"chosen": 1e999}',
        '{"chosen": true, "active": "all"}',
    ]
    for cell, facts in zip(folder.experiment().cells, strange, strict=False):
        replace_facts(folder.cell(cell) / "manifest.json", facts)
    figures = tmp_path / "figures"
    assert command("report", folder.path, "--figures", figures).exit_code == 0
    assert {path.name for path in figures.glob("*decisions.svg")} == {"01-riverswim-01-uniformrandom-decisions.svg"}


@pytest.mark.parametrize("name", ["experiment.json", "manifest.json", "curve.parquet", "cells", "cell"])
def test_symbolic_links_are_not_followed(folder: Folder, tmp_path: Path, name: str) -> None:
    cell = manifest(folder).parent
    places = {"experiment.json": folder.experiment_file, "cells": folder.cells, "cell": cell}
    path = places.get(name, cell / name)
    outside = tmp_path / "outside"
    path.rename(outside)
    path.symlink_to(outside)
    with pytest.raises(RecordError):
        load(folder.path)
    if name == "cells":
        with pytest.raises(RecordError, match="symbolic link"):
            folder.put_aside(next(outside.iterdir()).name)
        assert len(list(outside.iterdir())) == 4  # nothing is moved from where it lies
    if name != "curve.parquet":  # a finished cell is not read again when others are run
        experiment = Experiment.from_toml(tmp_path / "spec.toml")
        with pytest.raises(RecordError):
            play(experiment, folder.path)


def test_links_are_neither_read_nor_written_nor_moved(folder: Folder, tmp_path: Path) -> None:
    secret, outside = tmp_path / "secret", tmp_path / "outside"
    secret.write_text("precious")
    link = manifest(folder).parent / "checkpoint.npz"
    link.symlink_to(secret)
    (damage,) = verify(folder.path, quarantine=False)
    assert "symbolic link" in damage.problem
    for name in ("report.html", "report.html.partial"):
        (folder.path / name).symlink_to(secret)
    link.unlink()
    page = write_report(folder.path)
    assert not page.is_symlink()
    assert page.read_text().startswith("<!doctype html>")
    os.link(secret, folder.lock_file)  # a second name
    with pytest.raises(RecordError, match="lock"), FolderLock(folder.lock_file):
        pass
    folder.lock_file.unlink()
    folder.lock_file.symlink_to(secret)
    with pytest.raises(StorageError, match="lock"), FolderLock(folder.lock_file):
        pass
    folder.lock_file.unlink()
    outside.mkdir()
    folder.quarantine.symlink_to(outside)
    manifest(folder).write_text("{}")
    with pytest.raises(RecordError, match="quarantine"):
        verify(folder.path)
    assert not list(outside.iterdir())
    assert secret.read_text() == "precious"


@pytest.mark.parametrize("name", ["spec.toml", "lock"])
def test_files_of_somebody_else_stay_as_they_are(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("mine")
    (out / ".notes.partial").write_text("mine, too")
    answer = command("run", write(tmp_path), "--out", out)
    assert answer.exit_code == 1
    assert f"{name}: got a file" in answer.stderr
    assert (out / name).read_text() == "mine"
    assert sorted(path.name for path in out.iterdir()) == [".notes.partial", name]


def test_what_is_no_file_is_not_replaced_by_a_report(folder: Folder, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(StorageError, match="not a regular file"):
        write_report(folder.path, pipe)
    assert pipe.is_fifo()


class Bomb:
    """Unpickled, it would leave a trace."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("unpickled",))


def archive(content: bytes, kind: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as file:
        file.writestr("a.npy", content)
    return _with_digest(buffer.getvalue())


def npy(header: str, body: bytes) -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


def array(kind: str, shape: str, body: bytes) -> bytes:
    return archive(npy(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}", body))


HOSTILE = {
    "objects": array("|O", "(1,)", pickle.dumps(Bomb())),
    "a pickle": archive(pickle.dumps(Bomb())),
    "a gigabyte": array("<f8", "(134217728,)", b"\0" * 8),
    "overflow": array("<f8", f"({2**40}, {2**40})", b""),
    "compressed": archive(b"\0" * 10**6, zipfile.ZIP_DEFLATED),
    "code": archive(npy("__import__('os').system('true')", b"")),
    "no archive": _with_digest(b"x" * 100),
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_checkpoints(tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "checkpoint.npz"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(CheckpointError, match=r"checkpoint\.npz"):
        read_arrays(path)
    assert "unpickled" not in capfd.readouterr().out


def test_a_lock_or_a_progress_of_no_sense(folder: Folder) -> None:
    for since in ("1e300", "NaN", "Infinity", "-1e18", "9" * 30, '"yesterday"'):
        folder.lock_file.write_text(f'{{"pid": 999999999, "host": "elsewhere", "since": {since}}}')
        assert "since ?" in "".join(lines(status(folder.path), holder_of(folder.lock_file)))
    folder.lock_file.unlink()
    folder.lock_file.mkdir()
    path = manifest(folder)
    path.unlink()
    for numbers in (
        '"total": 9e299, "regret": 0, "rate": 0',
        '"total": -9e299, "regret": 0, "rate": -1',
        '"total": 1, "regret": NaN, "rate": 1',
    ):
        path.with_name("progress.json").write_text(f'{{"episodes": 0, {numbers}, "time": 1}}')
        assert "0 running" in command("status", folder.path).stdout


def test_an_experiment_too_large_to_be_read_again_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("occamrl.experiments.records.LARGEST_JSON", 500)
    with pytest.raises(RecordError, match="fewer cells"):
        Experiment.from_toml(write(tmp_path)).write(Folder(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_what_to_do_about_damage_is_said(folder: Folder) -> None:
    manifest(folder).write_text("{")
    answer = command("resume", folder.path)
    assert answer.exit_code == 1
    assert "see `occamrl verify`" in answer.stderr
    folder.experiment_file.write_text("{}")
    with pytest.raises(RecordError, match="run the spec again: finished cells stay"):
        status(folder.path)


def test_killed_runs_end_in_the_same_bytes(tmp_path: Path) -> None:
    """A worker while it writes, then its parent; both at once; a worker, and the run goes on to the end."""
    kills = study.few_kills(tmp_path)
    assert set(kills) == {"fault", "parent", "all", "worker"}


def test_every_damaged_byte_is_noticed_by_the_name_of_its_file(tmp_path: Path) -> None:
    assert study.damage_study(tmp_path, 180)["noticed"] == 180


def test_storage_that_fails_is_reported_and_fixed(tmp_path: Path) -> None:
    assert study.storage_study(tmp_path, points=("write", "rename"))["cases"] == 36
