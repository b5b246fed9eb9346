"""Laws of the demand of one day as a shelf of limited size sees them: beyond what it holds, more is not noticed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from occamrl.contracts import Floats


def seen(law: Callable[[Floats], Floats], shelf: int) -> Floats:
    """Return P(D = 0), ..., P(D = shelf - 1), P(D >= shelf) from a distribution function."""
    below = law(np.arange(shelf, dtype=np.float64))
    return np.diff(np.concatenate([[0.0], below, [1.0]]))


def poisson(mean: float, shelf: int) -> Floats:
    """Return the Poisson law."""
    return seen(stats.poisson(mean).cdf, shelf)


def negative_binomial(mean: float, size: float, shelf: int) -> Floats:
    """Return the negative binomial law with variance mean + mean^2/size; size = infinity would be Poisson."""
    return seen(stats.nbinom(size, size / (size + mean)).cdf, shelf)


def two_kinds_of_day(quiet: float, busy: float, share: float, shelf: int) -> Floats:
    """Return a mixture of two Poisson laws; ``share`` of the days are busy."""
    return (1.0 - share) * poisson(quiet, shelf) + share * poisson(busy, shelf)


def on_a_grid(levels: Sequence[int], parts: int, shelf: int) -> Floats:
    """Return every law on ``levels`` whose probabilities are multiples of 1/parts, [n, shelf + 1]."""
    bars = itertools.combinations(range(parts + len(levels) - 1), len(levels) - 1)
    cuts = np.array([(-1, *bar, parts + len(levels) - 1) for bar in bars])
    laws = np.zeros((len(cuts), shelf + 1))
    laws[:, list(levels)] = (np.diff(cuts, axis=1) - 1) / parts
    return laws
