"""Logs in Parquet files: the columns of :data:`occamrl.logs.episodes.COLUMNS`, without nulls.

====================================  ==================================================
episode, step, state, action,         any integer type; rows sorted by episode and step,
next_state                            steps counted from 0
reward                                any integer or floating-point type
terminated, truncated                 bool
====================================  ==================================================

Other columns are left alone.
"""

from __future__ import annotations

from pathlib import Path

from occamrl.logs.episodes import COLUMNS, MOST_ROWS, Log, LogError


def read_parquet(path: str | Path) -> Log:
    """Return the log in a Parquet file.

    Raises
    ------
    LogError
        The file cannot be read, or a row is wrong; with the column and the row.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    try:
        with path.open("rb") as stream:
            file = pq.ParquetFile(stream)
            if file.metadata.num_rows > MOST_ROWS:
                raise LogError(str(path), got=f"{file.metadata.num_rows:,} rows", expected=f"at most {MOST_ROWS:,}")
            for name in COLUMNS:
                count = file.schema_arrow.names.count(name)
                if count != 1:
                    got = f"{count} columns of that name" if count else "no such column"
                    raise LogError(name, got=got, expected=f"the columns {', '.join(COLUMNS)}")
            table = file.read(columns=list(COLUMNS))
    except OSError as error:
        raise LogError(str(path), got=error.strerror or error, expected="a Parquet file") from error
    except (pa.ArrowException, MemoryError) as error:
        raise LogError(str(path), got=error, expected="a Parquet file") from error
    columns = {}
    for name in COLUMNS:
        column = table[name]
        if column.null_count:
            row = next(i for i, value in enumerate(column.to_pylist()) if value is None)
            raise LogError(name, index=(row,), got="null", expected="a value in every row")
        columns[name] = column.to_numpy()
    return Log.of_columns(columns, source=str(path))


def write_parquet(log: Log, path: str | Path) -> None:
    """Write a log to a Parquet file; a file of that name is replaced only once the new one is whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        pq.write_table(pa.table(log.columns()), partial, compression="zstd")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
