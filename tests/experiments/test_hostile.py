"""A folder from somebody who means harm: refused, nothing executed, nothing written outside."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from occamrl.errors import CheckpointError, InvalidInput, RecordError, StorageError
from occamrl.experiments.display import PlainLines, lines, printable
from occamrl.experiments.execution import Experiment
from occamrl.experiments.records import (
    MOST_ROWS,
    SCHEMAS,
    Folder,
    FolderLock,
    holder_of,
    load,
    status,
    to_parquet,
    verify,
)
from occamrl.experiments.spec import Cell
from occamrl.report.page import write_report
from occamrl.running.storage import _with_digest, parse_json, read_arrays, seal, sha256
from tests.experiments.common import command, play, write


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return play(Experiment.from_toml(write(tmp_path)), tmp_path / "out")


def rewrite(path: Path, **changes: object) -> None:
    document = json.loads(path.read_text())
    document.pop("digest")
    path.write_bytes(seal({**document, **changes}))


def manifest(folder: Folder) -> Path:
    return folder.cell(folder.experiment()["cells"][0]) / "manifest.json"


def replace(path: Path, name: str, content: bytes) -> None:
    """Replace a table, and its digest in the manifest."""
    (path.parent / name).write_bytes(content)
    rewrite(path, files={**json.loads(path.read_text())["files"], name: sha256(content)})


@pytest.mark.parametrize("cell", ["../../../etc", "..", "/etc/passwd", "0123456789ABCDEF", "0" * 17, "", 7, None])
def test_ids_that_are_paths(folder: Folder, cell: object) -> None:
    rewrite(folder.experiment_file, cells=[cell], contents=[{}])
    for read in (load, status, verify):
        with pytest.raises(RecordError, match=r"experiment\.json"):
            read(folder.path)


@pytest.mark.parametrize("name", ["../../curve.parquet", "/etc/passwd", "curve.parquet\0"])
def test_files_of_other_names(folder: Folder, name: str) -> None:
    rewrite(manifest(folder), files={name: "0" * 64, "phases.parquet": "0" * 64})
    with pytest.raises(RecordError, match=r"manifest\.json"):
        load(folder.path)


def test_a_manifest_of_another_cell(folder: Folder) -> None:
    rewrite(manifest(folder), cell="0" * 16)
    with pytest.raises(RecordError, match=r"manifest\.json"):
        load(folder.path)


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
    if name != "curve.parquet":  # a finished cell is not read again when others are run
        experiment = Experiment.from_toml(tmp_path / "spec.toml")
        with pytest.raises(RecordError):
            play(experiment, folder.path)


def test_a_checkpoint_that_is_a_link_is_not_read(folder: Folder, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"x")
    link = manifest(folder).parent / "checkpoint.npz"
    link.symlink_to(secret)
    (damage,) = verify(folder.path)
    assert "symbolic link" in damage.problem
    assert secret.read_bytes() == b"x"


def test_quarantine_that_leads_out(folder: Folder, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder.quarantine.symlink_to(outside)
    manifest(folder).write_text("{}")
    with pytest.raises(RecordError, match="quarantine"):
        verify(folder.path)
    assert not list(outside.iterdir())


def test_cells_that_are_a_link_are_not_moved_from_where_they_lie(folder: Folder, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    folder.cells.rename(outside)
    folder.cells.symlink_to(outside)
    for path in outside.rglob("manifest.json"):
        path.write_text("{}")  # damaged, so that `verify` would put the cells aside
    answer = command("verify", folder.path)
    assert answer.returncode == 1
    assert "cells: got a symbolic link" in answer.stderr
    assert len(list(outside.iterdir())) == 4
    with pytest.raises(RecordError, match="symbolic link"):
        folder.put_aside(next(outside.iterdir()).name)


def test_a_lock_with_a_second_name_is_not_written(folder: Folder, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("precious")
    os.link(secret, folder.lock_file)
    with pytest.raises(RecordError, match="lock"), FolderLock(folder.lock_file):
        pass
    assert secret.read_text() == "precious"
    folder.lock_file.unlink()
    folder.lock_file.mkdir()
    assert command("status", folder.path).returncode == 0


def test_a_report_is_not_written_through_a_link(folder: Folder, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("precious")
    for name in ("report.html", "report.html.partial"):
        (folder.path / name).symlink_to(secret)
    page = write_report(folder.path)
    assert secret.read_text() == "precious"
    assert not page.is_symlink()
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    "changes",
    [
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
    with pytest.raises(RecordError, match=r"manifest\.json"):
        load(folder.path)
    (damage,) = verify(folder.path)
    assert "manifest.json" in damage.problem


def test_cells_that_would_count_twice_or_are_none(folder: Folder) -> None:
    document = folder.experiment()
    first, content = document["cells"][0], document["contents"][0]
    for cells, contents in (
        ([first, first], [content, content]),
        ([first], [{**content, "seed": 5}]),
        ([first], [{}]),
        ([first], [[]]),
        ([first], []),
    ):
        rewrite(folder.experiment_file, cells=cells, contents=contents)
        for read in (load, status, verify):
            with pytest.raises(RecordError, match=r"experiment\.json"):
                read(folder.path)


FACTS = ["[" * 100_000, "{", '{"active": [0], "estimate": [1' + "0" * 400 + '], "threshold": 1}', '{"chosen": 1e999}']


@pytest.mark.parametrize("facts", FACTS, ids=["deep", "open", "huge", "infinite"])
def test_facts_from_strangers(folder: Folder, facts: str) -> None:
    path = manifest(folder)
    table = pq.read_table(path.parent / "phases.parquet")
    columns = {**table.to_pydict(), "facts": [facts] * table.num_rows}
    replace(path, "phases.parquet", to_parquet(pa.table(columns, schema=SCHEMAS["phases.parquet"])))
    answer = command("report", folder.path)
    assert "Traceback" not in answer.stderr
    assert answer.returncode == (1 if facts in FACTS[:2] else 0)


def test_a_table_that_swells(folder: Folder) -> None:
    rows = MOST_ROWS["curve.parquet"] + 1
    cell = manifest(folder).parent.name
    texts = {"cell": cell, "problem": "p", "agent": "a"}
    columns = {name: [texts.get(name, 0)] * rows for name in SCHEMAS["curve.parquet"].names}
    content = to_parquet(pa.table(columns, schema=SCHEMAS["curve.parquet"]))
    assert len(content) < 100_000
    replace(manifest(folder), "curve.parquet", content)
    with pytest.raises(RecordError, match=r"curve\.parquet: got 2,000,001 rows"):
        load(folder.path)


def test_rows_of_another_cell(folder: Folder) -> None:
    one, other = (folder.cell(cell) / "curve.parquet" for cell in folder.experiment()["cells"][:2])
    replace(one.with_name("manifest.json"), "curve.parquet", other.read_bytes())
    with pytest.raises(RecordError, match="rows of another cell"):
        load(folder.path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 1_000 + "1" + "}" * 1_000, "\xff", "", "nul", '"' * 3])
def test_json_that_is_deep_or_none(text: str) -> None:
    with pytest.raises(RecordError, match=r"some\.json"):
        parse_json(text.encode("latin-1"), "some.json")


def test_brackets_in_strings_are_not_depth() -> None:
    assert parse_json(json.dumps(["[" * 1_000, '\\"[[']).encode(), "x") == ["[" * 1_000, '\\"[[']


class Bomb:
    """Unpickled, it would leave a trace."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("unpickled",))


def archive(entries: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return _with_digest(buffer.getvalue())


def npy(header: str, body: bytes) -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


HOSTILE = {
    "objects": archive(
        {"a.npy": npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", pickle.dumps(Bomb()))}
    ),
    "a pickle": archive({"a.npy": pickle.dumps(Bomb())}),
    "a gigabyte": archive(
        {"a.npy": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (134217728,), }", b"\0" * 8)}
    ),
    "overflow": archive(
        {"a.npy": npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**40}, {2**40}), }}", b"")}
    ),
    "compressed": archive({"a.npy": b"\0" * 10**6}, zipfile.ZIP_DEFLATED),
    "code": archive({"a.npy": npy("__import__('os').system('true')", b"")}),
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


def test_an_honest_archive_is_read(tmp_path: Path) -> None:
    path, buffer = tmp_path / "checkpoint.npz", io.BytesIO()
    np.savez(buffer, a=np.arange(3.0))
    path.write_bytes(_with_digest(buffer.getvalue()))
    assert read_arrays(path)["a"].tolist() == [0.0, 1.0, 2.0]
    assert np.load(path)["a"].tolist() == [0.0, 1.0, 2.0]


def test_a_table_with_other_columns(folder: Folder) -> None:
    replace(manifest(folder), "curve.parquet", to_parquet(pa.table({"x": [1]})))
    with pytest.raises(RecordError, match=r"curve\.parquet"):
        load(folder.path)


def test_other_formats_are_refused_clearly(folder: Folder) -> None:
    rewrite(manifest(folder), format=2)
    with pytest.raises(RecordError, match="format 2, expected format 1"):
        load(folder.path)
    rewrite(folder.experiment_file, format="\x1b[2J")
    with pytest.raises(InvalidInput, match="format"):
        status(folder.path)


def test_names_do_not_steer_the_terminal() -> None:
    assert printable("a\x1b[31m\r\n\u202e[red]é") == "a\\x1b[31m\\x0d\\x0a\\x202e[red]é"
    stream = io.StringIO()
    event = {"event": "failed", "cell": "x", "problem": "\x1b]0;title\x07", "agent": "b", "seed": 0, "text": "t\x1b[2J"}
    PlainLines(stream)(event)
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("name", ["spec.toml", "lock"])
def test_files_of_somebody_else_stay_as_they_are(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("mine")
    (out / ".notes.partial").write_text("mine, too")
    answer = command("run", write(tmp_path), "--out", out)
    assert answer.returncode == 1
    assert f"{name}: got a file" in answer.stderr
    assert (out / name).read_text() == "mine"
    assert sorted(path.name for path in out.iterdir()) == [".notes.partial", name]


def test_what_is_no_file_is_not_replaced_by_a_report(folder: Folder, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(StorageError, match="no file has this name"):
        write_report(folder.path, pipe)
    assert pipe.is_fifo()


@pytest.mark.parametrize("since", ["1e300", "NaN", "Infinity", "-1e18", "9" * 30, '"yesterday"'])
def test_a_lock_of_no_time(folder: Folder, since: str) -> None:
    folder.lock_file.write_text(f'{{"pid": 999999999, "host": "elsewhere", "since": {since}}}')
    assert "since ?" in "".join(lines(status(folder.path), holder_of(folder.lock_file)))


@pytest.mark.parametrize("change", [{"thinning": 7}, {"episodes": 7}])
def test_a_seed_counts_once_for_a_problem_and_an_agent(folder: Folder, change: dict[str, int]) -> None:
    document = folder.experiment()
    other = Cell.of({**document["contents"][0], **change})
    cells, contents = [*document["cells"], other.id], [*document["contents"], other.content]
    rewrite(folder.experiment_file, cells=cells, contents=contents)
    with pytest.raises(RecordError, match="two cells of one problem, agent and seed"):
        status(folder.path)


def test_a_label_that_is_no_text(folder: Folder) -> None:
    content = folder.experiment()["contents"][0]
    content["agent"]["label"] = "\ud800"
    with pytest.raises(ValueError, match="surrogates"):
        Cell.of(content)
    rewrite(folder.experiment_file, contents=[content], cells=["0" * 16])
    with pytest.raises(RecordError, match=r"experiment\.json"):
        status(folder.path)


def test_an_experiment_too_large_to_be_read_again_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("occamrl.experiments.records.LARGEST_JSON", 500)
    with pytest.raises(RecordError, match="fewer cells"):
        Experiment.from_toml(write(tmp_path)).settle(Folder(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


GAPS: list[tuple[str, str, object]] = [
    ("curve.parquet", "episode", None),
    ("curve.parquet", "episode", 0),
    ("curve.parquet", "episode", 2**62),
    ("curve.parquet", "cumulative_regret", float("nan")),
    ("curve.parquet", "cumulative_regret", 1e308),
    ("curve.parquet", "regret", None),
    ("curve.parquet", "agent", "another"),
    ("curve.parquet", "seed", 7),
    ("phases.parquet", "phase", None),
    ("phases.parquet", "phase", 3),
    ("phases.parquet", "episodes", -(2**62)),
    ("phases.parquet", "epoch", None),
    ("phases.parquet", "regret", float("inf")),
    ("phases.parquet", "facts", None),
]


@pytest.mark.parametrize(("name", "column", "value"), GAPS)
def test_rows_that_do_not_add_up(folder: Folder, name: str, column: str, value: object) -> None:
    path = manifest(folder)
    table = pq.read_table(path.parent / name)
    columns = {**table.to_pydict(), column: [value] * table.num_rows}
    replace(path, name, to_parquet(pa.table(columns, schema=SCHEMAS[name])))
    with pytest.raises(RecordError, match=name):
        load(folder.path)
    (damage,) = verify(folder.path)
    assert damage.cell == path.parent.name


def test_episodes_in_disorder(folder: Folder) -> None:
    path = manifest(folder)
    table = pq.read_table(path.parent / "curve.parquet")
    columns = {name: values[::-1] for name, values in table.to_pydict().items()}
    replace(path, "curve.parquet", to_parquet(pa.table(columns, schema=SCHEMAS["curve.parquet"])))
    with pytest.raises(RecordError, match="do not add up"):
        load(folder.path)


@pytest.mark.parametrize(
    "progress",
    [
        '{"episodes": 0, "total": 9e299, "regret": 0, "rate": 0, "time": 1}',
        '{"episodes": 0, "total": -9e299, "regret": 0, "rate": -1, "time": 1}',
        '{"episodes": 0, "total": 1, "regret": NaN, "rate": 1, "time": 1}',
    ],
)
def test_a_progress_beyond_all_bounds_is_none(folder: Folder, progress: str) -> None:
    path = manifest(folder)
    path.unlink()
    path.with_name("progress.json").write_text(progress)
    assert "0 running" in lines(status(folder.path), None)[0]


def test_what_to_do_about_damage_is_said(folder: Folder) -> None:
    manifest(folder).write_text("{")
    answer = command("resume", folder.path)
    assert answer.returncode == 1
    assert "see `occamrl verify`" in answer.stderr
    folder.experiment_file.write_text("{}")
    with pytest.raises(RecordError, match="run the spec again: finished cells stay"):
        status(folder.path)


def test_a_decision_that_is_none_is_not_drawn(folder: Folder, tmp_path: Path) -> None:
    path = manifest(folder)
    table = pq.read_table(path.parent / "phases.parquet")
    columns = {**table.to_pydict(), "facts": ['{"chosen": true, "active": "all"}'] * table.num_rows}
    replace(path, "phases.parquet", to_parquet(pa.table(columns, schema=SCHEMAS["phases.parquet"])))
    write_report(folder.path, tmp_path / "page.html", tmp_path / "figures")
    assert not list((tmp_path / "figures").glob("*decisions*"))
