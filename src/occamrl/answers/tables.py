"""Rows of facts as tables: of pyarrow, of pandas, and as text."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from occamrl.errors import ParameterError
from occamrl.naming import printable

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]  # plain values by their columns

_MOST_ROWS = 20  # of a printed table: it fits a screen
_WIDEST = 40  # characters of a printed cell


def table_of_rows(rows: list[Row]) -> pa.Table:
    """Return rows of facts as a table; a fact that a row lacks is null.

    Facts of one name and different types become JSON texts.
    """
    import pyarrow as pa

    columns: dict[str, pa.Array] = {}
    names = dict.fromkeys(name for row in rows for name in row)
    for name in names:
        facts = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(facts)
        # what pyarrow's own errors derive from, and large integers
        except (ValueError, TypeError, OverflowError):
            texts = [None if fact is None else json.dumps(fact, default=str) for fact in facts]
            columns[name] = pa.array(texts)
    return pa.table(columns)


def frame_of(table: pa.Table) -> Any:
    """Return a table as a data frame of pandas, which this package does not need otherwise."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        expected = "pandas: `pip install pandas`; without it, .table is the same as a pyarrow table"
        raise ParameterError("to_pandas", got="no pandas", expected=expected) from None
    return pandas.DataFrame(table.to_pydict())


def shown(value: object) -> str:
    """Return a value of a table as text."""
    if isinstance(value, float) and math.isinf(value):
        return "impossible"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.4g}"
    if type(value) is int:
        return f"{value:,}"
    return "" if value is None else printable(value)


def text_table(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as text in columns that fit a screen; of many rows the first."""
    columns = []
    for name, example in rows[0].items():
        cells = [shown(row[name])[:_WIDEST] for row in rows[:_MOST_ROWS]]
        column = [printable(name, _WIDEST), *cells]
        width = max(map(len, column))
        align = str.rjust if isinstance(example, (int, float)) else str.ljust
        columns.append([align(text, width) for text in column])
    lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
    if len(rows) > _MOST_ROWS:
        lines.append(f"... and {len(rows) - _MOST_ROWS:,} more rows")
    return "\n".join(lines)
