"""Types of arrays, and how equal rows are found."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def distinct_rows(*columns: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the order that sorts rows, by the first column first, and where a new row begins.

    Parameters
    ----------
    *columns : array [n]
        Parallel columns of any type that can be sorted.

    Returns
    -------
    order : array [n]
    first : array [r]
        The positions in ``order`` at which the r different rows begin.
    """
    order = np.lexsort(columns[::-1])
    begins = np.zeros(order.size, bool)
    begins[:1] = True
    for column in columns:
        ordered = column[order]
        begins[1:] |= ordered[1:] != ordered[:-1]
    return order, np.flatnonzero(begins)
