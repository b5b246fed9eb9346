"""Statistics over seeds: the seed is the unit, and nothing inside a run counts as a repetition.

Intervals are bootstrap intervals of SciPy: BCa, or the percentile method where BCa is degenerate (for instance when all
seeds agree). Below :data:`FEWEST` seeds there is no interval: two numbers do not tell how a third would fall. With ten
seeds a nominal 95 % interval of a mean covers about 90 %; that is a property of the bootstrap, not of this code.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from occamrl.contracts import Floats, Ints
from occamrl.seeding import Step, stream

FEWEST = 3  # seeds for an interval
CONFIDENCE = 0.95
_RESAMPLES = 999
_AT_ONCE = 4_000_000  # numbers held while resampling

Statistic = Callable[..., Any]


class Interval(NamedTuple):
    """Ends of a confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """One number per seed, summarised. Intervals are None below :data:`FEWEST` seeds."""

    seeds: int
    mean: float
    mean_interval: Interval | None
    median: float
    iqm: float  # mean of the middle half
    iqm_interval: Interval | None


@dataclass(frozen=True)
class Difference:
    """Agent minus baseline, seed by seed under common random numbers; negative regret differences favour the agent."""

    pairs: int
    mean: float
    interval: Interval | None
    median: float
    less: int  # seeds in which the agent's number is smaller
    more: int
    unpaired: tuple[int, ...]  # seeds that only one of the two has; left out


def interquartile_mean(values: Floats, axis: int = -1) -> Any:
    """Return the mean of the middle half of the values."""
    return stats.trim_mean(values, 0.25, axis=axis)


def bands(values: Floats, statistic: Statistic, *address: Step, confidence: float = CONFIDENCE) -> Floats | None:
    """Return the bootstrap interval of a statistic, pointwise over the rows of ``values``.

    Parameters
    ----------
    values : array, shape (points, seeds)
        The same seeds are drawn for every point.
    statistic : callable
        Takes an ``axis``, as ``numpy.mean`` does.
    *address : int or str
        Where the random numbers of the bootstrap are found (:func:`occamrl.seeding.stream`).

    Returns
    -------
    array, shape (2, points), or None with too few seeds.
    """
    points, seeds = values.shape
    if seeds < FEWEST or points == 0:
        return None
    batch = max(1, min(_RESAMPLES, _AT_ONCE // (points * seeds)))

    def resampled(method: Any, rows: Floats) -> Floats:
        with warnings.catch_warnings():  # degenerate rows are found below, by their nan
            warnings.simplefilter("ignore", stats.DegenerateDataWarning)
            warnings.simplefilter("ignore", RuntimeWarning)
            found = stats.bootstrap(
                (rows,),
                statistic,
                axis=-1,
                confidence_level=confidence,
                n_resamples=_RESAMPLES,
                batch=batch,
                vectorized=True,
                method=method,
                rng=stream(0, "bootstrap", *address),
            )
        return np.stack([found.confidence_interval.low, found.confidence_interval.high])

    ends = resampled("BCa", values)
    degenerate = ~np.isfinite(ends).all(axis=0)
    if degenerate.any():
        ends[:, degenerate] = resampled("percentile", values[degenerate])
    return ends


def intervals(rows: Sequence[Floats], statistic: Statistic, *address: Step) -> list[Interval | None]:
    """Return the bootstrap interval of each row, one number per seed; None for rows with too few seeds.

    Rows of one length are resampled together, which is much faster than one by one; each interval is valid by itself.
    """
    found: list[Interval | None] = [None] * len(rows)
    for size in sorted({row.size for row in rows}):
        at = [i for i, row in enumerate(rows) if row.size == size]
        ends = bands(np.stack([rows[i] for i in at]), statistic, *address, size)
        if ends is not None:
            for i, low, high in zip(at, *ends, strict=True):
                found[i] = Interval(float(low), float(high))
    return found


def summarise(rows: Sequence[Floats], *address: Step) -> list[Summary]:
    """Return mean, median and IQM of each row, one number per seed, with bootstrap intervals."""
    means = intervals(rows, np.mean, *address, "mean")
    iqms = intervals(rows, interquartile_mean, *address, "iqm")
    return [
        Summary(
            seeds=values.size,
            mean=float(values.mean()),
            mean_interval=mean,
            median=float(np.median(values)),
            iqm=float(interquartile_mean(values)),
            iqm_interval=iqm,
        )
        for values, mean, iqm in zip(rows, means, iqms, strict=True)
    ]


def paired(pairs: Sequence[tuple[Mapping[int, float], Mapping[int, float]]], *address: Step) -> list[Difference | None]:
    """Return, for each (agent, baseline) by seed, the differences over the seeds that both have; None without any."""
    common = [sorted(agent.keys() & baseline.keys()) for agent, baseline in pairs]
    rows = [
        np.array([agent[seed] - baseline[seed] for seed in seeds])
        for (agent, baseline), seeds in zip(pairs, common, strict=True)
    ]
    return [
        Difference(
            pairs=row.size,
            mean=float(row.mean()),
            interval=ends,
            median=float(np.median(row)),
            less=int((row < 0).sum()),
            more=int((row > 0).sum()),
            unpaired=tuple(sorted(agent.keys() ^ baseline.keys())),
        )
        if row.size
        else None
        for (agent, baseline), row, ends in zip(pairs, rows, intervals(rows, np.mean, *address, "paired"), strict=True)
    ]


def reverse(difference: Difference) -> Difference:
    """Return baseline - agent."""
    ends = difference.interval
    return Difference(
        pairs=difference.pairs,
        mean=-difference.mean,
        interval=None if ends is None else Interval(-ends.high, -ends.low),
        median=-difference.median,
        less=difference.more,
        more=difference.less,
        unpaired=difference.unpaired,
    )


def slope(episodes: Ints, cumulative_regret: Floats, decades: float = 1.0, points: int = 33) -> float:
    """Return the slope of log regret against log episode over the last ``decades`` of a run; nan if it has none.

    Least squares on log-spaced points, read off the curve by interpolation in logarithms, so that the way a curve was
    thinned does not weigh. A curve that is zero somewhere in that part has no slope: it is ``nan``.
    """
    positive = (episodes > 0) & (cumulative_regret > 0)
    if positive.sum() < 2:
        return math.nan
    end = float(episodes[-1])
    begin = max(end / 10**decades, 1.0)
    inside = episodes >= begin
    if not positive[inside].all() or inside.sum() < 2:
        return math.nan
    x = np.linspace(math.log(max(begin, float(episodes[positive][0]))), math.log(end), points)
    if x[-1] - x[0] < math.log(2.0):
        return math.nan
    y = np.interp(x, np.log(episodes[positive]), np.log(cumulative_regret[positive]))
    return round(float(np.polyfit(x, y, 1)[0]), 9) + 0.0  # a flat curve has slope 0, not a rounding error
