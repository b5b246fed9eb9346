r"""Points of classes with real parameters: a cloud over the box, generations, a search.

Points are shares of the box, [p] in [0, 1]; those coordinates that are not free in a class have
their defaults.

**The cloud** of a class is fixed before any data: points of a sequence that spreads evenly, each
coordinate by a law that is uniform with probability 1/2 and log-uniform towards either edge, over
four decades, with probability 1/4 each. So thresholds, wide boxes and truths at an edge have
points near them.

**A generation** is made of points that are there, for what comes next. They are resampled by their
weights for :math:`e^{\tau\ell}`, :math:`\tau` rising to 1/2 so fast as enough of them keep weight,
and moved: a point tries a step along the difference of two others, and takes it with probability
:math:`\min(1, e^{\tau(\ell' - \ell)})`, which leaves that law as it is (ter Braak 2006). Half of
the evidence makes a generation wider than what is likely now; the weights
:math:`e^{(1 - \tau)\ell}` with which it enters make it a sample of what is likely.

**The search** for points likely enough looks at the cloud, climbs by Nelder and Mead's simplex from
three of the best points that are apart, and if that is not enough does both again with 512 fresh
points. It can miss a narrow peak, and whatever rests on it says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import minimize

from occamrl.arrays import Floats, Ints
from occamrl.models.model import spread_points
from occamrl.problems.mdp import TOLERANCE

CLOUD = 256  # points of a class that are fixed beforehand
_GENERATION = 24  # points of a generation for each free parameter, and once more
_LARGEST = 128  # points that a generation has at most
_FRESH = 512  # points that a search looks at beside those
_EDGES = 4.0  # decades by which points of the cloud come close to an edge
_TEMPER = 0.5  # the share of the evidence that a generation follows
_ENOUGH = 0.2  # share of the points that have to keep their weight when it rises
_MOVES = 1  # turns in which all points move when it has risen
_TURNS = 20  # turns at most
_JITTER = 0.05  # of a move, in spreads of the points, so that equal points part
_LEAPS = 0.1  # share of moves that go from mode to mode
_CLIMBED = 3  # points from which a search climbs
_APART = 0.05  # shares of the box by which these differ in some coordinate
_SIMPLEX = 80  # evaluations of a climb for each free parameter, and once more
WITNESS = 1e-3  # nats to which it climbs
_IMPOSSIBLE = -1e12  # the logarithm of 0: below all others, and still a number
_KEPT = 2**26  # logarithms of probabilities that are kept


class Counts(NamedTuple):
    """What was seen, reduced to the pairs that were visited."""

    rows: list[int]  # pairs of the model that were visited
    seen: Ints  # symbols
    count: Floats  # type: ignore[assignment]  # the method of tuples is not needed
    frequency: Floats  # logarithms
    novel: Floats  # [pairs] how often something happened there that is not listed


class Fit(NamedTuple):
    """The most likely point that a search has come upon."""

    theta: Floats  # [p]
    likelihood: float  # minus that of the frequencies
    points: int  # that were looked at
    climbs: int


# The cloud ----------------------------------------------------------------------------------------


def edged(share: Floats) -> Floats:
    """Return the quantiles of the law of a coordinate, half of it uniform, the rest at the edges.

    >>> import numpy as np
    >>> from occamrl.evidence.cloud import edged
    >>> edged(np.array([0.0, 0.5, 1.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    near = 10.0 ** np.linspace(-_EDGES, math.log10(0.5), 400)
    place = np.concatenate([[0.0], near, 1.0 - near[-2::-1], [1.0]])
    low = 1.0 + np.log10(np.maximum(place, 10.0**-_EDGES)) / _EDGES
    high = 1.0 + np.log10(np.maximum(1.0 - place, 10.0**-_EDGES)) / _EDGES
    quantiles: Floats = np.interp(share, 0.5 * place + 0.25 * low + 0.25 * (1.0 - high), place)
    return quantiles


@lru_cache(maxsize=64)
def _spread(dimensions: int, first: int, last: int) -> Floats:
    points = np.array(spread_points(dimensions, last)).reshape(last, dimensions)
    return edged(points[first:])


def cloud(default: Floats, free: Sequence[int], first: int = 0, last: int = CLOUD) -> Floats:
    """Return points of the cloud of a class [n, p]; only one where nothing is free."""
    if not len(free):
        return default[None].copy()
    points = np.tile(default, (last - first, 1))
    points[:, list(free)] = _spread(len(free), first, last)
    return points


# Likelihoods --------------------------------------------------------------------------------------


class PointTable:
    """Likelihoods of points, whose probabilities are evaluated for visited pairs only, and kept.

    Parameters
    ----------
    evaluate : callable
        ``evaluate(theta, rows)``: the probabilities of the symbols [O], of some pairs at least.
    start : array [pairs + 1]
        Where the symbols of a pair begin.
    """

    def __init__(self, evaluate: Callable[[Floats, list[int]], Floats], start: Ints) -> None:
        self._evaluate = evaluate
        self._start = start
        self._forget()

    def _forget(self) -> None:
        self._number: dict[bytes, int] = {}
        self._logs = np.zeros((0, int(self._start[-1])))
        self._done = np.zeros((0, self._start.size - 1), bool)

    def likelihoods(self, points: Floats, data: Counts) -> Floats:
        """Return the likelihoods of some points [n], minus that of the frequencies."""
        numbers = self._numbers(points)
        self._complete(numbers, points, data.rows)
        logs = self._logs[np.ix_(numbers, data.seen)]
        # differences are taken before sums, so that no digits are lost at large counts
        likelihoods = (logs - data.frequency) @ data.count
        for row in np.flatnonzero(data.novel):
            listed = np.exp(self._logs[numbers, self._start[row] : self._start[row + 1]])
            likelihoods += data.novel[row] * _log_remainder(listed.sum(axis=1))
        return np.asarray(likelihoods)

    def laws(self, points: Floats, symbols: Ints) -> Floats:
        """Return probabilities of outcomes [n, R, K], some outcomes [R, K] of R rows, -1: none."""
        rows = np.searchsorted(self._start, symbols[:, 0], side="right") - 1
        numbers = self._numbers(points)
        self._complete(numbers, points, np.unique(rows).tolist())
        logs = self._logs[np.ix_(numbers, np.maximum(symbols, 0).ravel())]
        logs = logs.reshape(len(points), *symbols.shape)
        return np.exp(np.where(symbols >= 0, logs, -np.inf))

    def likelihood(self, theta: Floats, data: Counts) -> float:
        """Return the likelihood of one point, of which nothing is kept."""
        P = self._evaluate(theta, data.rows)
        likelihood = float((_logarithms(P[data.seen]) - data.frequency) @ data.count)
        for row in np.flatnonzero(data.novel):
            listed = P[self._start[row] : self._start[row + 1]].sum(keepdims=True)
            likelihood += float(data.novel[row] * _log_remainder(listed)[0])
        return likelihood

    def keep(self, points: Floats) -> None:
        """Forget all other points."""
        keys = dict.fromkeys(theta.tobytes() for theta in points)
        known = [key for key in keys if key in self._number]
        numbers = np.array([self._number[key] for key in known], dtype=np.int64)
        self._logs = self._logs[numbers]
        self._done = self._done[numbers]
        self._number = {key: number for number, key in enumerate(known)}

    def _numbers(self, points: Floats) -> Ints:
        """Return the rows of the table of some points; new points get new rows."""
        keys = [theta.tobytes() for theta in points]
        new = [key for key in dict.fromkeys(keys) if key not in self._number]
        if (len(self._number) + len(new)) * self._logs.shape[1] > _KEPT:
            self._forget()
            new = list(dict.fromkeys(keys))
        if len(self._number) + len(new) > len(self._logs):
            rows = max(len(self._number) + len(new), 2 * len(self._logs)) - len(self._logs)
            self._logs = np.concatenate([self._logs, np.empty((rows, self._logs.shape[1]))])
            self._done = np.concatenate([self._done, np.zeros((rows, self._done.shape[1]), bool)])
        for key in new:
            self._number[key] = len(self._number)
        return np.array([self._number[key] for key in keys], dtype=np.int64)

    def _complete(self, numbers: Ints, points: Floats, rows: list[int]) -> None:
        """Evaluate what is missing of some pairs."""
        visited = np.array(rows, dtype=np.int64)
        missing = ~self._done[np.ix_(numbers, visited)]
        for point in np.flatnonzero(missing.any(axis=1)):
            pairs = visited[missing[point]]
            columns = [np.arange(self._start[row], self._start[row + 1]) for row in pairs]
            symbols = np.concatenate(columns)
            P = self._evaluate(points[point], pairs.tolist())
            self._logs[numbers[point], symbols] = _logarithms(P[symbols])
            self._done[numbers[point], pairs] = True


def _logarithms(P: Floats) -> Floats:
    logs = np.full(P.shape, _IMPOSSIBLE)
    return np.log(P, out=logs, where=P > 0.0)


def _log_remainder(listed: Floats) -> Floats:
    """Return the logarithm of what is left to outcomes that are not listed, unless it is rounding.

    ``listed`` [n] is the probability of those that are.
    """
    remainder = 1.0 - listed
    return _logarithms(np.where(remainder > TOLERANCE, remainder, 0.0))


def possible(likelihoods: Floats) -> Floats:
    """Return likelihoods with minus infinity for points that make impossible what was seen."""
    return np.where(likelihoods < 0.5 * _IMPOSSIBLE, -np.inf, likelihoods)


# A generation -------------------------------------------------------------------------------------


class Generation(NamedTuple):
    """Points near what is likely."""

    points: Floats  # [n, p]
    log_weights: Floats  # [n] of a sample of what is likely; they add up to one
    likelihoods: Floats  # [n]
    evaluated: int  # points that were looked at


def next_generation(
    points: Floats,
    log_masses: Floats,
    likelihoods: Floats,
    free: Sequence[int],
    likelihoods_of: Callable[[Floats], Floats],
    draw: np.random.Generator,
) -> Generation:
    """Return a generation made of points of a class.

    Parameters
    ----------
    points : array [n, p]
    log_masses : array [n]
        Of the mixture: a point has the weight e^(log_mass + likelihood) among what is likely.
    likelihoods : array [n]
    free : sequence of int
        Coordinates that move.
    likelihoods_of : callable
        Likelihoods of further points [m, p].
    """
    size = min(_GENERATION * (len(free) + 1), _LARGEST)
    share = _largest_share(log_masses, likelihoods, 0.0, size)
    chosen = _resampled(log_masses + share * likelihoods, draw, size)
    chains = points[chosen]
    heights = likelihoods[chosen]
    moves = 0
    evaluated = 0
    for _ in range(_TURNS):
        if not len(free) or moves == _MOVES:
            break
        steps = chains.copy()
        steps[:, list(free)] = _proposals(chains[:, list(free)], draw)
        reached = likelihoods_of(steps)
        evaluated += len(steps)
        taken = np.log(draw.random(len(steps))) < share * (reached - heights)
        chains[taken] = steps[taken]
        heights[taken] = reached[taken]
        if share == _TEMPER:
            moves += 1
            continue
        further = _largest_share(np.zeros(size), heights, share, size)
        chosen = _resampled((further - share) * heights, draw, size)
        share = further
        chains = chains[chosen]
        heights = heights[chosen]
    kept, first, count = np.unique(chains, axis=0, return_index=True, return_counts=True)
    log_weights = np.log(count) + (1.0 - share) * heights[first]
    log_weights -= log_sum(log_weights)
    return Generation(kept, log_weights, heights[first], evaluated)


def log_sum(logs: Floats) -> float:
    """Return the logarithm of a sum, given logarithms."""
    top = float(logs.max(initial=-np.inf))
    if top == -np.inf:
        return top
    return top + math.log(float(np.exp(logs - top).sum()))


def _largest_share(log_masses: Floats, likelihoods: Floats, share: float, size: int) -> float:
    """Return to which share of the evidence to go on: enough points have to keep their weight."""
    further = _TEMPER
    enough = _ENOUGH * min(size, likelihoods.size)
    while further - share > 1e-9:
        weights = log_masses + (further - share) * likelihoods
        weights = np.exp(weights - weights.max())
        if weights.sum() ** 2 >= enough * np.square(weights).sum():
            return further
        further = share + 0.5 * (further - share)
    return further


def _resampled(log_weights: Floats, draw: np.random.Generator, size: int) -> Ints:
    """Return the numbers of points drawn by weight, evenly."""
    weights = np.cumsum(np.exp(log_weights - log_weights.max()))
    places = (np.arange(size) + draw.random()) / size * weights[-1]
    chosen: Ints = np.searchsorted(weights, places, side="right")
    return np.minimum(chosen, log_weights.size - 1)


def _proposals(chains: Floats, draw: np.random.Generator) -> Floats:
    """Return where points try to go [n, k]: along the differences of others, inside the box."""
    n, k = chains.shape
    one = draw.integers(n, size=n)
    two = draw.integers(n, size=n)
    length = np.array(draw.uniform(0.3, 1.0, n)) * 2.38 / math.sqrt(2.0 * k)
    length[draw.random(n) < _LEAPS] = 1.0
    noise = _JITTER * np.maximum(chains.std(axis=0), 1e-6) * draw.standard_normal((n, k))
    steps = chains + length[:, None] * (chains[one] - chains[two]) + noise
    # reflected at the edges: as likely there as back
    folded: Floats = np.mod(steps, 2.0)
    return np.minimum(folded, 2.0 - folded)


# The search ---------------------------------------------------------------------------------------


def climb(
    objective: Callable[[Floats], float],
    start: Floats,
    free: Sequence[int],
    evaluations: int | None = None,
    tolerance: float = 1e-8,
) -> Floats:
    """Return where Nelder and Mead's simplex sees an objective largest, some coordinates fixed."""
    if not len(free):
        return start
    indices = list(free)
    if evaluations is None:
        evaluations = _SIMPLEX * (len(indices) + 1)

    def whole(share: Floats) -> Floats:
        theta = start.copy()
        theta[indices] = np.clip(share, 0.0, 1.0)
        return theta

    def depth(share: Floats) -> float:
        return -objective(whole(share))

    highest = minimize(
        depth,
        start[indices],
        method="Nelder-Mead",
        bounds=[(0.0, 1.0)] * len(indices),
        options={"maxfev": evaluations, "xatol": 1e-5, "fatol": tolerance},
    )
    return whole(highest.x)


class Likelihood(Protocol):
    """A likelihood over the box, in which points are looked for."""

    def likelihoods(self, points: Floats) -> Floats:
        """Return the likelihoods of points [n, p]."""

    def climb(self, start: Floats, free: Sequence[int]) -> tuple[Floats, float]:
        """Return where a climb from a point [p] comes to, and its likelihood."""


@dataclass(frozen=True, eq=False)
class CountedLikelihood:
    """The likelihood of what was counted, by a table of points."""

    table: PointTable
    data: Counts

    def likelihoods(self, points: Floats) -> Floats:
        """Return the likelihoods of points [n, p], which the table keeps."""
        return self.table.likelihoods(points, self.data)

    def climb(self, start: Floats, free: Sequence[int]) -> tuple[Floats, float]:
        """Return where the simplex comes to."""

        def likelihood(theta: Floats) -> float:
            return self.table.likelihood(theta, self.data)

        theta = climb(likelihood, start, free, tolerance=WITNESS)
        return theta, likelihood(theta)


def search(
    likelihood: Likelihood,
    points: Floats,
    default: Floats,
    free: Sequence[int],
    target: float,
) -> Fit:
    """Look for the most likely point: from some points, and from fresh ones if that is not enough.

    Parameters
    ----------
    likelihood : Likelihood
    points : array [n, p]
        Of the cloud, and others.
    default : array [p]
        The coordinates that are not free.
    free : sequence of int
    target : float
        The likelihood that is enough.
    """
    best = _climbed(likelihood, points, free)
    if best.likelihood >= target or not len(free):
        return best
    fresh = cloud(default, free, CLOUD, CLOUD + _FRESH)
    other = _climbed(likelihood, fresh, free)
    looked = best.points + other.points
    climbs = best.climbs + other.climbs
    higher = max(best, other, key=lambda fit: fit.likelihood)
    return higher._replace(points=looked, climbs=climbs)


def _climbed(likelihood: Likelihood, points: Floats, free: Sequence[int]) -> Fit:
    """Return the best of some points and of climbs from the best of them that are apart."""
    heights = likelihood.likelihoods(points)
    highest = int(heights.argmax())
    best = Fit(points[highest], float(heights[highest]), len(points), 0)
    if not len(free):
        return best
    starts = best_apart(points, heights, _CLIMBED)
    for start in starts:
        theta, height = likelihood.climb(start, free)
        if height > best.likelihood:
            best = best._replace(theta=theta, likelihood=height)
    return best._replace(climbs=len(starts))


def best_apart(points: Floats, heights: Floats, count: int) -> list[Floats]:
    """Return the best of some points [n, p] that are apart from each other."""
    chosen: list[Floats] = []
    for number in np.argsort(-heights, kind="stable"):
        near = [np.abs(points[number] - other).max() < _APART for other in chosen]
        if not any(near):
            chosen.append(points[number])
        if len(chosen) == count:
            break
    return chosen
