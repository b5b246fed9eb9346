"""Numbers as a page holds them: six significant digits, and None for what is not a number."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

LARGEST = 1e300


def is_number(value: Any) -> bool:
    """Say whether a fact from a record is a number that can be drawn: finite, and no integer beyond all floats."""
    return type(value) in (int, float) and abs(value) <= LARGEST


def plain(value: Any) -> float | int | None:
    """Return a number with six significant digits, a whole one as an int; None for nan, infinities and None."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{float(value):.6g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def plains(values: Iterable[Any]) -> list[float | int | None]:
    """Return numbers with six significant digits."""
    return [plain(value) for value in values]
