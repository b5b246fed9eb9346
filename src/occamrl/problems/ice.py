"""Walking on ice: FrozenLake's maps, and the step that was meant to go one way and goes another."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from occamrl.contracts import Floats

MAPS = {  # Gymnasium's
    "4x4": ("SFFF", "FHFH", "FFFH", "HFFG"),
    "8x8": ("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"),
}
STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))  # left, down, right, up, as Gymnasium has them; each to the left of the last


def walk(lake: Sequence[str], turn: int) -> Floats:
    """Return the kernel [S, A, S] of steps that are all turned by ``turn`` quarters; holes and the goal are not left.

    Quarters count to the left, as the walker sees it.
    """
    rows, columns = len(lake), len(lake[0])
    kernel = np.zeros((rows * columns, len(STEPS), rows * columns))
    for s, a in itertools.product(range(rows * columns), range(len(STEPS))):
        row, column = divmod(s, columns)
        down, right = (0, 0) if lake[row][column] in "HG" else STEPS[(a + turn) % len(STEPS)]
        ahead = min(max(row + down, 0), rows - 1) * columns + min(max(column + right, 0), columns - 1)
        kernel[s, a, ahead] = 1.0
    return kernel
