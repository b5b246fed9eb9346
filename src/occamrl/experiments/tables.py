"""The tables of a cell: what is in them, how they are written, and how they are read with suspicion.

A table must agree with the digest and with the totals that its manifest states.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from occamrl.errors import RecordError
from occamrl.running.files import LARGEST_NUMBER, jsonable, read_plain, sha256

if TYPE_CHECKING:
    from occamrl.experiments.records import Cell
    from occamrl.running.result import Result

LARGEST_TABLE = 8 * 2**30
MOST_ROWS = {"curve.parquet": 2 * 10**6, "phases.parquet": 10**7}  # a curve keeps a million episodes, then a few
MOST_BYTES = 4 * 2**30  # of a table, once decompressed

_ABOUT = [("cell", pa.string()), ("problem", pa.string()), ("agent", pa.string()), ("seed", pa.int64())]
_CURVE = [
    ("episode", pa.int64()),
    ("regret", pa.float64()),
    ("cumulative_regret", pa.float64()),
    ("realised_return", pa.float64()),
]
_PHASE = [
    ("epoch", pa.int64()),
    ("label", pa.string()),
    ("episodes", pa.int64()),
    ("regret", pa.float64()),
    ("plans", pa.int64()),
    ("realised_return", pa.float64()),
]
SCHEMAS = {
    "curve.parquet": pa.schema([*_ABOUT, *_CURVE]),
    "phases.parquet": pa.schema([*_ABOUT, ("phase", pa.int64()), *_PHASE, ("facts", pa.string())]),
}


def tables_of(cell: Cell, result: Result) -> dict[str, bytes]:
    """Return the tables of a finished cell as the contents of its files.

    The curve is thinned. There is one row per phase; what else a phase says is its facts, as JSON.
    """
    from occamrl.running.result import thin

    at = thin(result.episodes, cell.thinning)
    curve = {
        "episode": result.episodes[at],
        "regret": result.regret[at],
        "cumulative_regret": result.cumulative_regret[at],
        "realised_return": result.returns[at],
    }
    rows = [row for row in result.walk.rows if row["episodes"]]
    own = [name for name, _ in _PHASE]
    facts = [{key: jsonable(value) for key, value in row.items() if key not in own} for row in rows]
    phases = {
        "phase": list(range(len(rows))),
        **{name: [row[name] for row in rows] for name in own},
        "facts": [json.dumps(each, sort_keys=True) for each in facts],
    }
    found = {}
    for name, size, columns in (("curve.parquet", at.size, curve), ("phases.parquet", len(rows), phases)):
        about = {key: [value] * size for key, value in {"cell": cell.id, **cell.names}.items()}
        found[name] = to_parquet(pa.table({**about, **columns}, schema=SCHEMAS[name]))
    return found


def to_parquet(table: pa.Table) -> bytes:
    """Return a table as the content of a Parquet file, the same bytes for the same rows: no time, one row group.

    Most tables are small, and many are read at once: numbers are not indexed, and the compression is a quick one.
    """
    buffer = io.BytesIO()
    texts = [each.name for each in table.schema if each.type == pa.string()]
    size = max(table.num_rows, 1)
    pq.write_table(table, buffer, compression="snappy", use_dictionary=texts, row_group_size=size, store_schema=False)
    return buffer.getvalue()


def _read(path: str, manifest: Mapping[str, Any], name: str) -> pa.Table:
    """Return the columns of a finished cell's table, if the file is as it was written; ``path`` is that of the file.

    Whose rows these are is the manifest's to say (:func:`read_tables`): those columns are for other readers and are not
    read, only compared with it by their smallest and largest entry. A text that is repeated is held once.
    """
    content = read_plain(path, LARGEST_TABLE)
    found, expected = sha256(content), str(manifest["files"][name])
    if found != expected:
        says = f"{expected[:12]}..., as its manifest says"
        raise RecordError(path, got=f"SHA-256 {found[:12]}...", expected=says)
    own, texts, stored = _STORED[name]
    try:
        file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts)
        about = file.metadata
        if about.num_rows > MOST_ROWS[name] or about.num_row_groups != 1 or not file.schema_arrow.equals(stored):
            got = f"{about.num_rows:,} rows of {', '.join(file.schema_arrow.names)[:200]}"
            expected = f"at most {MOST_ROWS[name]:,} of {', '.join(stored.names)}, in one group"
            raise RecordError(path, got=got, expected=expected)
        group = about.row_group(0)
        size = group.total_byte_size
        if size <= MOST_BYTES:
            # Without threads: for many small files, a pool costs more than it gives.
            packed = file.read(columns=own, use_threads=False)
            size = packed.get_total_buffer_size()
            if size * (1 + packed.num_rows) > MOST_BYTES:  # so much, if every row had all texts; now how much it is
                size = packed.nbytes + sum(_expanded(chunk) for text in texts for chunk in packed.column(text).chunks)
        if size > MOST_BYTES:
            raise RecordError(path, got=f"{size:,} bytes when decompressed", expected=f"at most {MOST_BYTES:,}")
        for i, value in enumerate(_who(manifest)):
            ends = group.column(i).statistics
            if ends is not None and ends.has_min_max and not ends.min == ends.max == value:
                got = f"rows of another cell, by their {stored.names[i]}"
                raise RecordError(path, got=got, expected=f"rows of {manifest['cell']}")
    except RecordError:
        raise
    except Exception as error:  # pyarrow raises errors of many kinds on damaged files
        raise RecordError(path, got=f"{type(error).__name__}: {error}", expected="a Parquet file") from error
    return packed


def _who(manifest: Mapping[str, Any]) -> tuple[str, str, str, int]:
    return manifest["cell"], manifest["problem"]["label"], manifest["agent"]["label"], manifest["seed"]


def read_each(path: Path | str, manifests: Sequence[Mapping[str, Any]], name: str) -> list[pa.Table]:
    """Return the tables of some finished cells, checked; ``path`` is the folder of all cells."""
    tables = [_read(f"{path}/{manifest['cell']}/{name}", manifest, name) for manifest in manifests]
    if tables:
        _require_rows(path, tables, manifests, name)
    return tables


def read_tables(path: Path | str, manifests: Sequence[Mapping[str, Any]], name: str) -> pa.Table:
    """Return the tables of some finished cells, one after the other, with the names of their cells."""
    schema, tables = SCHEMAS[name], read_each(path, manifests, name)
    if not tables:
        return schema.empty_table()
    rows = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    named = pa.table(list(zip(*map(_who, manifests), strict=True)), schema=pa.schema(_ABOUT))
    columns = [*named.take(rows).columns, *pa.concat_tables(tables).columns]
    return pa.table(columns, names=schema.names).cast(schema)


def _stored(schema: pa.Schema) -> tuple[list[str], list[str], pa.Schema]:
    """Return which columns of a table are read, those of them that are texts, and the schema as it is read."""
    own = schema.names[len(_ABOUT) :]
    texts = [name for name in own if schema.field(name).type == pa.string()]
    packed = [(each.name, pa.dictionary(pa.int32(), each.type) if each.name in texts else each.type) for each in schema]
    return own, texts, pa.schema(packed)


_STORED = {name: _stored(schema) for name, schema in SCHEMAS.items()}


def _expanded(texts: pa.DictionaryArray) -> int:
    """Return how many bytes texts have, each as often as it is repeated."""
    often = np.bincount(texts.indices.to_numpy(zero_copy_only=False), minlength=len(texts.dictionary))
    return int(often @ np.array([len(text) for text in texts.dictionary.to_pylist()], dtype=np.int64))


def _require_rows(
    path: Path | str, tables: Sequence[pa.Table], manifests: Sequence[Mapping[str, Any]], name: str
) -> None:
    """Refuse rows that are not those of their cells: gaps, infinite numbers, episodes out of order or count.

    All tables are looked at together, which takes a few operations for thousands of cells.
    """
    packed, sizes = pa.concat_tables(tables), np.array([table.num_rows for table in tables])
    cells, texts = len(tables), _STORED[name][1]
    owner = np.repeat(np.arange(cells), sizes)  # of each row
    begin = np.cumsum(sizes) - sizes
    gaps = np.zeros(owner.size, dtype=bool)
    columns: dict[str, Any] = {}
    for column in packed.column_names:
        values = packed.column(column)
        if values.null_count:
            gaps |= values.is_null().to_numpy()
        elif column not in texts:
            columns[column] = values.to_numpy()
            if columns[column].dtype == np.float64:
                gaps |= ~(np.abs(columns[column]) <= LARGEST_NUMBER)
    if gaps.any():
        cell = manifests[owner[gaps.argmax()]]["cell"]
        raise RecordError(f"{path}/{cell}/{name}", got="a row with a gap, or no finite number", expected="none")
    episodes = np.array([manifest["episodes"] for manifest in manifests])
    if name == "curve.parquet":
        wrong = sizes == 0
        at, last = columns["episode"], (begin + sizes - 1)[~wrong]
        odd = at < 1
        odd[1:] |= (np.diff(at) <= 0) & (np.diff(owner) == 0)
        regret = np.array([manifest["total_regret"] for manifest in manifests])
        wrong[~wrong] = (at[last] != episodes[~wrong]) | (columns["cumulative_regret"][last] != regret[~wrong])
    else:
        odd = (columns["episodes"] < 1) | (columns["phase"] != np.arange(owner.size) - begin[owner])
        wrong = np.bincount(owner, columns["episodes"], minlength=cells) != episodes  # exact below 2^53, as these are
    wrong |= np.bincount(owner[odd], minlength=cells) > 0
    if wrong.any():
        file = f"{path}/{manifests[wrong.argmax()]['cell']}/{name}"
        raise RecordError(file, got="episodes or totals that do not add up", expected="those that its manifest says")
