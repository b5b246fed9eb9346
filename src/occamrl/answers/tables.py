"""Rows of facts as tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def table_of_rows(rows: list[dict[str, Any]]) -> pa.Table:
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
