"""States of learners, compared bit by bit, and the member in play."""

from __future__ import annotations

from typing import Any

from occamrl.learners.ucrl_vtr import MEMBER, FiniteState
from occamrl.running.storage import take_apart


def bits(state: Any) -> dict[str, bytes]:
    """Return every array of a state, the nested ones too, as bytes, and how they hang together.

    Of a table of rows only the entries in use: how much room it has depends on how a run was cut into pieces.
    """
    arrays: dict[str, Any] = {}
    skeleton = take_apart(state.arrays() if isinstance(state, FiniteState) else state, arrays)
    return {"skeleton": repr(skeleton).encode(), **{name: array.tobytes() for name, array in arrays.items()}}


def member_in_play(state: Any) -> int:
    """Return the member that the plan in play is the optimum of."""
    return int(state.counters[MEMBER])
