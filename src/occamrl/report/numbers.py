"""Numbers as a page holds them: six significant digits, and None for what is not a number."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


def plain(value: Any) -> float | int | None:
    """Return a number with six significant digits, a whole one as an int; None for nan, infinities and None."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{float(value):.6g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def plains(values: Iterable[Any]) -> list[float | int | None]:
    """Return numbers with six significant digits."""
    return [plain(value) for value in values]
