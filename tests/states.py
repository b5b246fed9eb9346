"""States of learners: compared bit by bit, and what a state of UCRL-VTR says of its confidence set."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamrl.learners.ucrl_vtr import ALIVE, MEMBER, FiniteState
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


def losses_inside(state: Any) -> dict[int, float]:
    """Return the loss of every member in the confidence set of the plan in play, up to a common constant."""
    left = int(state.counters[ALIVE])
    inside = state.inside[0, :left] == 1 if state.inside.size else np.isfinite(state.loss[0, :left])
    pairs = zip(state.members[:left], state.loss[0, :left], inside, strict=True)
    return {int(member): float(loss) for member, loss, holds in pairs if holds}
