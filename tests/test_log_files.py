"""Logs in files of others: folders of Parquet files, damaged pages, sizes that are declared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import occamrl as orl
from occamrl.logs.log import simulate_log
from occamrl.logs.table import LogError

PROBLEM = orl.make_problem("patchy-ice")
LADDER = orl.Ladder.of_problem(PROBLEM)


def table(episodes: int = 30) -> pa.Table:
    return pa.table(dict(simulate_log(PROBLEM.mdp, episodes=episodes).columns()))


def write_folder(folder: Path, whole: pa.Table, cuts: Sequence[int]) -> None:
    """Write the rows of a table as files, cut at some rows."""
    folder.mkdir()
    for i, (first, end) in enumerate(zip([0, *cuts], [*cuts, whole.num_rows], strict=True)):
        pq.write_table(whole.slice(first, end - first), folder / f"part-{i:03d}.parquet")


@pytest.mark.parametrize("cuts", [(), (16, 160), (7, 7, 100, 233)], ids=str)
def test_a_folder_of_files_is_one_log(cuts: Sequence[int], tmp_path: Path) -> None:
    whole = table()
    write_folder(tmp_path / "log", whole, cuts)
    (tmp_path / "log" / "_SUCCESS").touch()
    (tmp_path / "log" / ".crc").touch()
    parts = orl.read_log(tmp_path / "log")
    one = orl.read_log(whole)
    assert (parts.rows, parts.episodes, parts.longest) == (one.rows, one.episodes, one.longest)
    for name, column in one.columns().items():
        np.testing.assert_array_equal(parts.columns()[name], column)
    known = PROBLEM.mdp.known
    ours = orl.select(tmp_path / "log", LADDER, known, progress=False)
    theirs = orl.select(whole, LADDER, known, progress=False)
    assert ours.history == theirs.history
    assert ours.as_data() == theirs.as_data()


def test_files_of_a_folder_that_would_be_left_out_are_refused(tmp_path: Path) -> None:
    write_folder(tmp_path / "log", table(4), [16])
    (tmp_path / "log" / "part-2.csv").write_text("episode,state,action\n")
    with pytest.raises(LogError, match=r"part-2\.csv"):
        orl.read_log(tmp_path / "log")
    (tmp_path / "log" / "part-2.csv").unlink()
    (tmp_path / "log" / "year=2026").mkdir()
    with pytest.raises(LogError, match="year=2026"):
        orl.read_log(tmp_path / "log")
    (tmp_path / "none").mkdir()
    with pytest.raises(LogError, match="an empty folder"):
        orl.read_log(tmp_path / "none")


def test_a_file_that_lacks_a_column_is_named(tmp_path: Path) -> None:
    whole = table(4)
    write_folder(tmp_path / "log", whole, [16])
    path = tmp_path / "log" / "part-001.parquet"
    pq.write_table(whole.slice(16).select(["episode", "state", "action"]), path)
    with pytest.raises(LogError, match="part-001") as refused:
        orl.read_log(tmp_path / "log")
    assert "next_state" in str(refused.value)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_damaged_files_are_refused_by_name_or_read(compression: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    pq.write_table(table(40), path, compression=compression)
    whole = path.read_bytes()
    draw = np.random.default_rng(1)
    refused = 0
    for _ in range(40):
        content = bytearray(whole)
        if draw.random() < 0.2:
            del content[draw.integers(len(content)) :]
        else:
            for _ in range(draw.integers(1, 9)):
                content[draw.integers(len(content))] = draw.integers(256)
        path.write_bytes(content)
        try:
            orl.read_log(path)
        except orl.OccamRLError:
            refused += 1
    assert refused  # no check sums are written, so that a damaged number is a number


def test_a_column_that_grows_out_of_proportion_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    cells = pa.array(["a" * 280_000_000, "b"])
    columns = {"episode": [0, 0], "state": cells, "action": [0, 1]}
    pq.write_table(pa.table(columns), path, compression="zstd")
    assert path.stat().st_size < 10**5
    with pytest.raises(LogError, match=r"bomb\.parquet.*row groups"):
        orl.read_log(path)


def test_a_csv_file_without_lines_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "endless.csv"
    path.write_bytes(b"a," * 10**6)
    with pytest.raises(orl.OccamRLError):
        orl.read_log(path)
    path.write_text('episode,state,action\n0,"1' + ",2\n0,1,1" * 10**6)
    with pytest.raises(LogError, match="CSV"):
        orl.read_log(path)
