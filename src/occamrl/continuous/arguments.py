"""Checks of what is given to grids and models, and of what their functions return."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamrl.contracts import Floats
from occamrl.errors import ParameterError, ShapeError


def require_count(field: str, value: object, least: int, index: tuple[int, ...] | None = None) -> int:
    """Return an integer of at least ``least``; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ParameterError(field, index=index, got=repr(value), expected=f"an integer >= {least}")
    return int(value)


def numbers_of(field: str, value: Any, expected: object) -> Floats:
    """Return an array of floats, or refuse what is ragged or no real numbers."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ShapeError(field, got=repr(value)[:60], expected=expected) from None


def require_box(low: Any, high: Any) -> tuple[Floats, Floats]:
    """Return the ends of a box as arrays [n], or refuse what is none."""
    ends = numbers_of("low", low, "n numbers"), numbers_of("high", high, "n numbers")
    if ends[0].ndim != 1 or not ends[0].size:
        raise ShapeError("low", got=ends[0].shape, expected="n numbers")
    if ends[1].shape != ends[0].shape:
        raise ShapeError("high", got=ends[1].shape, expected=f"{ends[0].size} numbers, as many as low")
    for i, (a, b) in enumerate(zip(*ends, strict=True)):
        if not (a < b and np.isfinite([a, b]).all() and 0.5 * b - 0.5 * a < 0.5 * np.finfo(float).max):
            expected = "finite numbers, low < high"
            raise ParameterError("low, high", index=(i,), got=(float(a), float(b)), expected=expected)
    return ends
