"""The tables of a cell: its curve and its phases, tidy, long, the same bytes for the same result."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from occamrl.contracts import Ints
from occamrl.runs.cells import Cell
from occamrl.runs.failures import RecordError
from occamrl.runs.files import LARGEST_NUMBER
from occamrl.runs.result import Result

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
