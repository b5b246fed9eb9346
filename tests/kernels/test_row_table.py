"""The table of counted rows: a dictionary in arrays, whose order does not depend on how much room it has."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occamrl._core.rows import RowTable, add_rows, row_table, with_room

Rows = list[tuple[int, int, float]]
rows = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9), st.floats(-5, 5)), max_size=60)


def contents(table: RowTable) -> list[tuple[int, int, float]]:
    used = int(table.used[0])
    columns = (table.key, table.visits, table.target_sum)
    return list(zip(*(column[:used].tolist() for column in columns), strict=True))


@given(rows=rows)
def test_a_table_is_a_dictionary_in_order_of_arrival(rows: Rows) -> None:
    table = row_table(128)
    expected: dict[int, tuple[int, float]] = {}
    for key, count, total in rows:
        add_rows(table, key * 10**12, count, total)
        visits, target_sum = expected.get(key, (0, 0.0))
        expected[key] = (visits + count, target_sum + total)
    assert contents(table) == [(key * 10**12, *value) for key, value in expected.items()]


@given(rows=rows, room=st.lists(st.integers(1, 50), min_size=60, max_size=60), first=st.sampled_from([2, 16, 128]))
def test_how_a_table_grew_leaves_no_trace_in_its_rows(rows: Rows, room: list[int], first: int) -> None:
    """Bit for bit: sums over rows run in the order of this list."""
    fixed, grown = row_table(256), row_table(first)
    for (key, count, total), ahead in zip(rows, room, strict=False):
        add_rows(fixed, key, count, total)
        grown = with_room(grown, ahead)
        add_rows(grown, key, count, total)
    assert contents(fixed) == contents(grown)


def test_room_is_made_beforehand_or_there_is_none() -> None:
    table = row_table(8)
    for key in range(4):
        add_rows(table, key, 1, 0.5)
    assert with_room(table, 0) is table
    with pytest.raises(MemoryError, match="reserve room"):
        add_rows(table, 99, 1, 0.5)
    add_rows(table, 3, 2, 0.25)  # a key that is there needs no room
    larger = with_room(table, 1)
    assert larger.slot.size == 16
    add_rows(larger, 99, 1, 0.5)
    assert contents(larger) == [(0, 1, 0.5), (1, 1, 0.5), (2, 1, 0.5), (3, 3, 0.75), (99, 1, 0.5)]
    assert np.count_nonzero(larger.slot >= 0) == 5
