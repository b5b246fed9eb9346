"""Rows counted by a key: an open-addressing hash table in three arrays.

A finite family's rows are (member in play, h, s) with the action that follows, so they are counted, not stored one by
one (section 2 of the mathematics). The arrays are sized beforehand; a learner reserves room before it plays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from occamrl.contracts import Floats, Ints
from occamrl.kernels.compile import compiled, hot

EMPTY = -1
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)


class RowTable(NamedTuple):
    """Counts and target sums by key; the capacity is a power of two, at most half used."""

    key: Ints  # [capacity] EMPTY where free
    visits: Ints  # [capacity]
    target_sum: Floats  # [capacity]
    used: Ints  # [1]


def row_table(capacity: int) -> RowTable:
    """Return an empty table with room for ``capacity`` / 2 keys."""
    return RowTable(
        np.full(capacity, EMPTY, dtype=np.int64),
        np.zeros(capacity, dtype=np.int64),
        np.zeros(capacity),
        np.zeros(1, dtype=np.int64),
    )


@hot
def add_rows(table: RowTable, key: int, count: int, target_sum: float) -> None:
    """Add ``count`` rows with the given sum of targets under ``key``."""
    mask = table.key.size - 1
    at = np.int64((np.uint64(key) * _MIX) >> _SHIFT) & mask
    while table.key[at] != key:
        if table.key[at] == EMPTY:
            if 2 * (table.used[0] + 1) > table.key.size:
                raise MemoryError("the table of rows is full; reserve room before playing")
            table.key[at] = key
            table.used[0] += 1
            break
        at = (at + 1) & mask
    table.visits[at] += count
    table.target_sum[at] += target_sum


@compiled
def copy_rows(source: RowTable, into: RowTable) -> None:
    """Add all rows of one table to another."""
    for i in range(source.key.size):
        if source.key[i] != EMPTY:
            add_rows(into, source.key[i], source.visits[i], source.target_sum[i])


def with_room(table: RowTable, keys: int) -> RowTable:
    """Return the table, or a larger copy of it, with room for ``keys`` more keys."""
    capacity = table.key.size
    while 2 * (int(table.used[0]) + keys) > capacity:
        capacity *= 2
    if capacity == table.key.size:
        return table
    larger = row_table(capacity)
    copy_rows(table, larger)
    return larger
