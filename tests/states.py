"""States of learners, compared bit by bit."""

from __future__ import annotations

from typing import Any

from occamrl.running.storage import take_apart


def bits(state: Any) -> dict[str, bytes]:
    """Return every array of a state, the nested ones too, as bytes, and how they hang together."""
    arrays: dict[str, Any] = {}
    skeleton = take_apart(state, arrays)
    return {"skeleton": repr(skeleton).encode(), **{name: array.tobytes() for name, array in arrays.items()}}
