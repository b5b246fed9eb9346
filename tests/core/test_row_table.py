"""The table of counted rows of UCRL-VTR: a dictionary in arrays, in an order that does not depend on its room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occamrl._core.arena import field
from occamrl._core.rows import COUNTERS
from occamrl.learners.ucrl_vtr import TABLE_KEY, TABLE_SLOT, TABLE_SUM, TABLE_VISITS, UCRLVTR, USED, add_key
from tests.cases import from_python, stack

CASE = stack(0)
LEARNER = UCRLVTR(family=CASE.family)
add_key_now = from_python(add_key)


def add_rows(state: Any, key: int, count: int, total: float) -> None:
    """Count rows under a key."""
    table = (COUNTERS, TABLE_SLOT, TABLE_KEY, TABLE_VISITS, TABLE_SUM)
    add_key_now(*(field(state, number) for number in table), key, count, total)


Rows = list[tuple[int, int, float]]
rows = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9), st.floats(-5, 5)), max_size=60)


def contents(state: Any) -> Rows:
    """Return (key, rows, sum of targets) in order of arrival."""
    used, columns = int(state.counters[USED]), (state.table_key, state.table_visits, state.table_sum)
    return list(zip(*(column[:used].tolist() for column in columns), strict=True))


@given(rows=rows, room=st.lists(st.integers(1, 200), min_size=60, max_size=60))
def test_a_table_is_a_dictionary_in_order_of_arrival_however_it_grew(rows: Rows, room: list[int]) -> None:
    """Bit for bit: sums over rows run in the order of this list."""
    fixed, grown = LEARNER.begin(CASE.mdp.known), LEARNER.begin(CASE.mdp.known)
    expected: dict[int, tuple[int, float]] = {}
    for (key, count, total), episodes in zip(rows, room, strict=False):
        add_rows(fixed, key * 10**12, count, total)
        grown = LEARNER.reserve(grown, episodes)
        add_rows(grown, key * 10**12, count, total)
        visits, target_sum = expected.get(key, (0, 0.0))
        expected[key] = (visits + count, target_sum + total)
    assert contents(fixed) == contents(grown) == [(key * 10**12, *value) for key, value in expected.items()]


def test_room_is_made_beforehand_or_there_is_none() -> None:
    state = LEARNER.begin(CASE.mdp.known)
    slots = field(state, TABLE_SLOT).size
    for key in range(slots // 2):
        add_rows(state, key, 1, 0.5)
    with pytest.raises(MemoryError, match="reserve room"):
        add_rows(state, 999, 1, 0.5)
    add_rows(state, 3, 2, 0.25)  # a key that is there needs no room
    larger = LEARNER.reserve(state, 1)
    assert LEARNER.reserve(larger, 1) is larger
    assert field(larger, TABLE_SLOT).size in {slots * 2**doublings for doublings in range(1, 8)}
    add_rows(larger, 999, 1, 0.5)
    assert contents(larger) == [*contents(state), (999, 1, 0.5)]
    assert contents(larger)[3] == (3, 3, 0.75)
    assert np.count_nonzero(field(larger, TABLE_SLOT) >= 0) == slots // 2 + 1
