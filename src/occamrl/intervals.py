"""The bootstrap interval of a mean over seeds, of which each is one observation."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from occamrl.addresses import generator

FEWEST = 3  # seeds for an interval: two numbers do not tell how a third would fall
_RESAMPLES = 4_000


def interval(values: ArrayLike) -> tuple[float, float] | None:
    """Return the 95 % percentile bootstrap interval of a mean, the same for the same numbers.

    None for fewer than three. By hand: scipy.stats takes longer to import than most comparisons
    take to print, for these three lines.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.size < FEWEST:
        return None
    resampled = generator(0, "bootstrap").integers(numbers.size, size=(_RESAMPLES, numbers.size))
    low, high = np.quantile(numbers[resampled].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)
