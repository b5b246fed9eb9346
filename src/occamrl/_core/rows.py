"""Rows counted by a key: a hash table whose entries lie in the order in which their keys first came.

A finite family's rows are (member in play, h, s) with the action that follows, so they are counted, not stored one by
one (section 2 of the mathematics). The arrays are sized beforehand; a learner reserves room before it plays. How much
room there is depends on how a run is cut into pieces, so sums over entries follow their order, which does not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from occamrl._core.compile import compiled, hot
from occamrl.errors import CheckpointError
from occamrl.protocols import Floats, Ints

EMPTY = -1
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)


class RowTable(NamedTuple):
    """Counts and target sums by key; entries are in use up to ``used``."""

    slot: Ints  # [capacity] the entry of a hashed key, EMPTY where free; a power of two, at most half used
    key: Ints  # [capacity / 2]
    visits: Ints  # [capacity / 2]
    target_sum: Floats  # [capacity / 2]
    used: Ints  # [1]


def row_table(capacity: int) -> RowTable:
    """Return an empty table with room for ``capacity`` / 2 keys."""
    return RowTable(
        np.full(capacity, EMPTY, dtype=np.int64),
        np.zeros(capacity // 2, dtype=np.int64),
        np.zeros(capacity // 2, dtype=np.int64),
        np.zeros(capacity // 2),
        np.zeros(1, dtype=np.int64),
    )


@hot
def add_rows(table: RowTable, key: int, count: int, target_sum: float) -> None:
    """Add ``count`` rows with the given sum of targets under ``key``."""
    mask = table.slot.size - 1
    at = np.int64((np.uint64(key) * _MIX) >> _SHIFT) & mask
    while table.slot[at] != EMPTY and table.key[table.slot[at]] != key:
        at = (at + 1) & mask
    entry = table.slot[at]
    if entry == EMPTY:
        entry = table.used[0]
        if entry == table.key.size:
            raise MemoryError("the table of rows is full; reserve room before playing")
        table.slot[at] = entry
        table.key[entry] = key
        table.used[0] += 1
    table.visits[entry] += count
    table.target_sum[entry] += target_sum


@compiled
def copy_rows(source: RowTable, into: RowTable) -> None:
    """Add all rows of one table to another, in order."""
    for i in range(source.used[0]):
        add_rows(into, source.key[i], source.visits[i], source.target_sum[i])


def with_room(table: RowTable, keys: int) -> RowTable:
    """Return the table, or a larger copy of it, with room for ``keys`` more keys."""
    capacity = table.slot.size
    while 2 * (int(table.used[0]) + keys) > capacity:
        capacity *= 2
    if capacity == table.slot.size:
        return table
    larger = row_table(capacity)
    copy_rows(table, larger)
    return larger


def require_sound(table: RowTable, path: str) -> None:
    """Refuse a table from outside whose arrays do not fit together: compiled code would follow its slots anywhere."""
    capacity = table.slot.size
    kinds = (table.slot, np.int64), (table.key, np.int64), (table.visits, np.int64), (table.target_sum, np.float64)
    whole = all(array.ndim == 1 and array.dtype == kind for array, kind in kinds) and table.used.shape == (1,)
    sizes = capacity >= 2 and capacity & (capacity - 1) == 0
    sizes = sizes and all(array.size == capacity // 2 for array, _ in kinds[1:])
    if not (whole and sizes and 0 <= table.used[0] <= capacity // 2):
        raise CheckpointError(path, got="arrays that do not fit together", expected="a table of rows")
    if table.slot.min() < EMPTY or table.slot.max() >= max(1, int(table.used[0])):
        raise CheckpointError(path, got="slots out of range", expected="a table of rows")
