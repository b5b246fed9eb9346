"""Complexity measures and promises as code (section 7 of the mathematics), every constant written out."""

from __future__ import annotations

import math

import numpy as np

from occamrl.errors import ParameterError
from occamrl.models.family import Family
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.models.linear import AggregationFamily, LinearFamily
from occamrl.protocols import Floats, Known, Outcomes

_MOST_POINTS = 20  # for the exact search


def predictions(family: FiniteFamily, known: Known) -> Floats:
    """Return f(s, a, V) = (P V)(s, a) for every member, over all (s, a) and distinct V in {V*_{P,h}}: [n, points]."""
    outcomes = family.features.attach(known).outcomes
    values = family.optimal_values(known)[:, 1:].reshape(-1, known.states)
    distinct = np.unique(np.round(values, 12), axis=0)
    return np.ascontiguousarray(np.concatenate(_means(outcomes, family.probabilities(), distinct)).T)


def _means(outcomes: Outcomes, kernels: Floats, values: Floats) -> list[Floats]:
    """Return, for each V of ``values`` [k, S], (P V)(s, a) of every kernel, a column of [O, n]: k arrays [S*A, n]."""
    targets = ((outcomes.bonus + v[outcomes.next_state])[:, None] for v in values)
    return [np.add.reduceat(kernels * target, outcomes.start[:-1]) for target in targets]


def eluder_dimension(functions: Floats, scale: float) -> int:
    """Return the eluder dimension at ``scale`` by exhaustive search, for at most 20 distinct points.

    ``functions`` [n, points]. The longest sequence x_1, x_2, ... such that for some e >= scale each x_i has two members
    f, g with (f - g)(x_i) > e and sum over j < i of (f - g)^2(x_j) <= e^2. The sum does not depend on the order of
    earlier points, so sets are searched, and only the values of |f - g| matter as e.
    """
    gaps = _gaps(functions)
    if gaps.shape[1] > _MOST_POINTS:
        raise ParameterError("functions", got=f"{gaps.shape[1]} points", expected=f"at most {_MOST_POINTS}")
    return max((_longest(gaps, e) for e in np.unique(gaps[gaps > scale])), default=0)


def linear_eluder_bound(dimension: int, scale: float, norm_bound: float, feature_bound: float) -> float:
    """Return 3 d e/(e-1) log(3 + 3 (2 b g/scale)^2) + 1 (Russo and Van Roy 2013), |x| <= g and |theta| <= b."""
    ratio = 2.0 * norm_bound * feature_bound / scale
    return 3.0 * dimension * math.e / (math.e - 1.0) * math.log(3.0 + 3.0 * ratio**2) + 1.0


def family_eluder_bound(family: Family, scale: float) -> float:
    """Return a bound on the eluder dimension of (P W)(s, a) over range-weighted target functions (M23).

    Linear classes and aggregations: :func:`linear_eluder_bound`, rows being no longer than max over (s, a) of
    sum_o |phi_o|/2. Finite families: n (n - 1)/2, for a pair can show only once that a point is independent of those
    before it; of small ones :func:`eluder_dimension` of their :func:`predictions` is exact.
    """
    if isinstance(family, FiniteFamily):
        return 0.5 * family.size * (family.size - 1)
    if isinstance(family, AggregationFamily):
        longest = 0.5 * math.sqrt(float(family.features.blocks.size.max()))
        return linear_eluder_bound(family.features.dimension, scale, family.norm_bound, longest)
    if isinstance(family, LinearFamily):
        return linear_eluder_bound(family.size, scale, family.norm_bound, 0.5 * family.lipschitz)
    raise ParameterError("family", got=type(family).__name__, expected="a finite, linear or aggregation family")


def separation(ladder: Ladder, known: Known, truth: int) -> tuple[float, float]:
    """Return the smallest and the mean of ((P - P*) V)^2(s, a), P the nearest of the largest class without the truth.

    Over all (s, a) and the value functions of the truth. The smallest is the paper's Delta, nearly always 0; the mean
    is what a test on many rows can use. Infinite when the truth is in the smallest class.
    """
    m = int(ladder.level[truth])
    if m == 0:
        return math.inf, math.inf
    outcomes, values = ladder.family.features.attach(known).outcomes, ladder.family.optimal_values(known)[truth, 1:]
    kernels = ladder.family.probabilities()
    gaps = kernels[:, : ladder.sizes[m - 1]] - kernels[:, truth : truth + 1]
    squares = np.stack(_means(outcomes, gaps, values)) ** 2
    return float(squares.min()), float(squares.mean(axis=(0, 1)).min())


def selection_epoch(
    *, horizon: int, episodes: int, delta: float, separation: float, size: int, constant: float = 1.0
) -> int:
    """Return i* of the paper's lemma 1: 2^i >= C max(2 H^3 log K log(2/delta)/Delta^2, 4 H log(|F_M|/delta))."""
    noise = 2.0 * horizon**3 * math.log(episodes) * math.log(2.0 / delta) / separation**2
    needed = constant * max(noise, 4.0 * horizon * math.log(size / delta))
    return max(1, math.ceil(math.log2(needed)))


def regret_bound(
    *, horizon: int, episodes: int, delta: float, size: int, eluder: float, first_epoch: int
) -> dict[str, float]:
    """Return the right side of the paper's theorem 1 for a finite class, term by term, before the O(.).

    tau_{i*-1} H + sum over epochs i >= i* of 1 + H^2 d + 4 sqrt(beta_i d k_i H) + H sqrt(2 k_i H log(1/delta_i)), with
    k_i = 2^i, delta_i = delta/2^i, beta_i = 8 H^2 log(|F_m*|/delta_i) and d the eluder dimension at 1/(k_i H).
    """
    last = max(1, math.ceil(math.log2(episodes + 2)) - 1)
    terms = {"selection": min(episodes, 2**first_epoch - 2) * float(horizon), "eluder": 0.0, "width": 0.0, "noise": 0.0}
    for i in range(first_epoch, last + 1):
        k, level = 2**i, math.log(2**i / delta)
        beta = 8.0 * horizon**2 * (math.log(size) + level)
        terms["eluder"] += 1.0 + horizon**2 * eluder
        terms["width"] += 4.0 * math.sqrt(beta * eluder * k * horizon)
        terms["noise"] += horizon * math.sqrt(2.0 * k * horizon * level)
    terms["total"] = sum(terms.values())
    return terms


def _gaps(functions: Floats) -> Floats:
    """Return |f - g| for every pair of members, at the points where some differ, each point once."""
    first, second = np.triu_indices(len(functions), 1)
    gaps = np.unique(np.round(np.abs(functions[first] - functions[second]), 12), axis=0)
    gaps = np.unique(gaps, axis=1)
    return np.asarray(gaps[:, gaps.any(axis=0)])


def _longest(gaps: Floats, e: float) -> int:
    """Return the longest sequence for e just below the given number: gaps >= e after sums < e^2."""
    points = gaps.shape[1]
    layer, length = {0}, 0
    while layer:
        after: set[int] = set()
        for used in layer:
            chosen = [j for j in range(points) if used >> j & 1]
            free = (gaps[:, chosen] ** 2).sum(axis=1) < e * e
            able = (gaps[free] >= e).any(axis=0)
            after.update(used | 1 << j for j in range(points) if able[j] and not used >> j & 1)
        layer, length = after, length + 1
    return length - 1
