"""Logs in files of others: folders of Parquet files, damaged pages, sizes that are declared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import occamrl as orl
from occamrl.logs.log import simulate_log
from occamrl.logs.table import LogError

PROBLEM = orl.make_problem("patchy-ice")


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


def test_a_page_that_declares_more_than_its_chunk_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    cells = pa.array(["a" * 20_000_000, "b"])
    columns = {"episode": [0, 0], "state": cells, "action": [0, 1]}
    pq.write_table(pa.table(columns), path, compression="zstd", use_dictionary=False)
    content = path.read_bytes()
    size = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - size : -8]
    group = pq.ParquetFile(path).metadata.row_group(0)
    for declared in (group.total_byte_size, group.column(1).total_uncompressed_size):
        # in as many bytes, so that nothing moves
        footer = footer.replace(zigzag(declared), zigzag(1_000, len(zigzag(declared))))
    path.write_bytes(content[: -8 - size] + footer + content[-8:])
    assert pq.ParquetFile(path).metadata.row_group(0).total_byte_size == 1_000
    with pytest.raises(LogError, match=r"bomb\.parquet.*a page that declares 20,000"):
        orl.read_log(path)


def zigzag(number: int, length: int = 0) -> bytes:
    """Return a whole number as Thrift writes it, with zeros up to a length."""
    rest = 2 * number
    content = bytearray()
    while rest >= 128 or len(content) + 1 < length:
        content.append(rest % 128 | 128)
        rest //= 128
    return bytes([*content, rest])


@pytest.mark.parametrize("field", ["a dictionary of", "a page of"])
def test_headers_of_pages_that_lie_of_their_values_are_refused(field: str, tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    columns = {"episode": np.arange(300) // 10, "state": np.arange(300) % 7}
    pq.write_table(pa.table({**columns, "action": np.zeros(300, int)}), path, compression="none")
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    place = column.dictionary_page_offset
    true = 7
    if field == "a page of":
        place = column.data_page_offset
        true = 300
    content = bytearray(path.read_bytes())
    # the structure of a dictionary or page begins with its number of values
    start = content.index(b"\x15" + zigzag(true), place + 6) + 1
    content[start : start + len(zigzag(true))] = zigzag(true + 50, len(zigzag(true)))
    path.write_bytes(content)
    with pytest.raises(LogError, match=field):
        orl.read_log(path)


def test_a_long_text_that_many_rows_have_takes_memory_once(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    rows = 20_000
    text = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(rows, np.int32)), pa.array(["a" * 10**5])
    )
    columns = {"episode": np.arange(rows) // 10, "state": text, "action": np.arange(rows) % 2}
    pq.write_table(pa.table(columns), path, store_schema=False)  # 2 GB, as texts
    before = pa.default_memory_pool().max_memory()
    assert orl.read_log(path).episodes == rows // 10
    # of all tests before in this process
    assert pa.default_memory_pool().max_memory() <= max(before, 10**8)


def test_texts_come_in_the_order_of_rows_whatever_their_dictionary_says(tmp_path: Path) -> None:
    names = pa.DictionaryArray.from_arrays(
        pa.array(np.repeat([2, 0, 3], 4).astype(np.int32)), pa.array(["a", "b", "c", "d"])
    )
    whole = pa.table({"episode": names, "state": [0, 1] * 6, "action": [0] * 12})
    pq.write_table(whole, tmp_path / "log.parquet")
    for source in (whole, tmp_path / "log.parquet"):
        log = orl.read_log(source)
        assert (log.episodes, list(log.met.labels.codes)) == (3, ["c", "a", "d"])


def test_a_csv_file_without_lines_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "endless.csv"
    path.write_bytes(b"a," * 10**6)
    with pytest.raises(orl.OccamRLError):
        orl.read_log(path)
    path.write_text('episode,state,action\n0,"1' + ",2\n0,1,1" * 10**6)
    with pytest.raises(LogError, match="CSV"):
        orl.read_log(path)


def test_a_day_that_no_calendar_has_is_named_by_its_row() -> None:
    rows = []
    for day in range(1, 20):
        rows.append({"day": f"2021-01-{day:02d}", "state": day % 2, "action": 0, "reward": 1})
    for wrong in ("2021-13-05", "2021-02-30"):
        rows[10]["day"] = wrong
        with pytest.raises(orl.InvalidInput) as caught:
            orl.read_log(rows, {"episode": None}, order_by="day")
        assert caught.value.index == (10,)


@pytest.mark.parametrize("columns", [["state"], {"state": 3}, {"state": {"a": 1}}])
def test_what_names_no_columns_is_refused_by_name(columns: Any) -> None:
    with pytest.raises(orl.InvalidInput, match="columns"):
        orl.read_log([{"state": 0, "action": 0, "reward": 0.0}], columns)
