r"""Mixtures of kernels: their likelihood, the best of them, bounds on all of them, and draws.

A *hull* is the set of mixtures :math:`\langle w, P(o)\rangle` of n kernels. With counts c of what
was seen, N in all,
:math:`g_i = \partial\ell/\partial w_i = \sum_o c_o P_i(o)/\langle w, P(o)\rangle`.

**Fitting.** EM: :math:`w_i \leftarrow (w_i g_i + 1/n)/(N + 1)`.

**A bound.** :math:`\ell` is concave in w and :math:`\langle g, w\rangle = N`, so no mixture exceeds
:math:`\ell(w) + \max_i g_i - N`.

**A draw.** EM on counts that are replaced by Gamma(c_o, 1), from .9 w + .1/n: a Bayesian bootstrap,
which is measured and not proved. On the tabular class, with Gamma(c_o + 1/2, 1), the draw is the
Dirichlet posterior's.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from occamrl.arrays import Bools, Floats, Ints
from occamrl.evidence.counts import (
    JEFFREYS,
    NOVEL_BONUS,
    NOVEL_COUNT,
    NOVEL_NEXT,
    NOVEL_PAIR,
    CountState,
    log_frequencies,
)
from occamrl.models.families import simplex_least_squares
from occamrl.protocols import Outcomes

TINY = 1e-300  # a prediction is never smaller, so that evidence stays finite
_GROWTH = 1.02  # EM takes _FIT_STEPS for every 2 % that the data have grown, _MAXIMAL_STEPS at most
_FIT_STEPS = 3
_MAXIMAL_STEPS = 15
_DRAW_STEPS = 20
_NEWTON_STEPS = 100


class Seen(NamedTuple):
    """What was seen, and how probable some kernels make it."""

    count: Floats  # type: ignore[assignment]  # [o]; the method of tuples is not needed
    frequency: Floats  # [o] logarithms
    kernels: Floats  # [n, o]

    def of(self, members: list[int] | slice) -> Seen:
        """Return the same for some of the kernels."""
        return self._replace(kernels=self.kernels[members])


def seen_by(count: Ints, outcomes: Outcomes, kernels: Floats) -> Seen:
    """Return the outcomes seen, of kernels [n, O]."""
    seen = np.flatnonzero(count)
    frequency = log_frequencies(count, outcomes)[seen]
    return Seen(count[seen].astype(np.float64), frequency, kernels[:, seen])


def hull_likelihood(data: Seen, weights: Floats) -> tuple[float, Floats]:
    """Return the likelihood of a mixture, minus that of the frequencies, and g - N [n].

    Outcomes that the mixture makes impossible are left out of g; the likelihood is then minus
    infinity.
    """
    mixed = weights @ data.kernels
    possible = mixed > 0.0
    ratio = data.kernels[:, possible] / mixed[possible] - 1.0
    if not possible.all():
        return -math.inf, ratio @ data.count[possible]
    return float(data.count @ (np.log(mixed) - data.frequency)), ratio @ data.count


def hull_fit(data: Seen, weights: Floats, steps: int, pseudo: float) -> Floats:
    """Return the weights after some steps of EM.

    No step lowers the likelihood where ``pseudo``, what is added to every g_i w_i, is 0.
    """
    total = data.count.sum()
    for _ in range(steps):
        _, rise = hull_likelihood(data, weights)
        weights = np.maximum(weights * (rise + total) + pseudo, 0.0)
        norm = weights.sum()
        if norm > 0.0:
            weights = weights / norm
        else:
            weights = np.full(weights.size, 1.0 / weights.size)
    return weights


def hull_bound(data: Seen, weights: Floats) -> float:
    """Return what no mixture of the kernels exceeds, minus the likelihood of the frequencies."""
    likelihood, rise = hull_likelihood(data, weights)
    if likelihood > -math.inf:
        return likelihood + float(rise.max())
    impossible_for_all = (data.kernels.max(axis=0) <= 0.0).any()
    # else only kernels with weight 0 allow what was seen
    return -math.inf if impossible_for_all else math.inf


class HullMaximum(NamedTuple):
    """The best mixture that was found."""

    likelihood: float  # minus that of the frequencies
    bound: float  # on all mixtures
    weights: Floats  # [n]


def hull_maximum(
    data: Seen, weights: Floats, enough: float = math.nan, tolerance: float = 1e-3
) -> HullMaximum:
    r"""Return the best mixture that a search from ``weights`` finds.

    The search ends when likelihood and bound are within ``tolerance``, or on one side of
    ``enough``. Each step maximises the expansion
    :math:`-\frac12 \sum_o c_o (\langle q, P(o)\rangle/\langle w, P(o)\rangle - 2)^2` of second
    order over the simplex: least squares over distributions. EM alone is slow where some weights
    are to become 0.
    """
    likelihood, _ = hull_likelihood(data, weights)
    bound = hull_bound(data, weights)
    root = np.sqrt(data.count)
    for _ in range(_NEWTON_STEPS):
        decided = likelihood >= enough or bound < enough
        if bound - likelihood <= tolerance or decided or not math.isfinite(likelihood):
            break
        rows = (root * data.kernels / (weights @ data.kernels)).T
        best = simplex_least_squares(rows, 2.0 * root)
        step = 0.999999
        improved = False
        # concave: some part of the way leads up, unless only rounding is left
        while step > 1e-9 and not improved:
            candidate = weights + step * (best - weights)
            candidate_likelihood, _ = hull_likelihood(data, candidate)
            limit = hull_bound(data, candidate)
            tighter = candidate_likelihood >= likelihood - 1e-9 and limit < bound
            improved = candidate_likelihood > likelihood or tighter
            step *= 0.5
        if not improved:
            break
        weights = candidate
        likelihood = candidate_likelihood
        bound = min(bound, limit)
    return HullMaximum(likelihood, bound, weights)


def hull_evidence(data: Seen, weights: Floats) -> float:
    r"""Return a lower bound on :math:`\log\int e^{\ell(\theta)} d\theta`, theta uniform.

    For any w and e it is :math:`(n - 1)\log e + \frac1n \sum_i \ell((1 - e) w + e\, e_i)`, here
    with the e that is best up to second order; about :math:`\frac{n-1}2 \log N` below the best
    likelihood.
    """
    likelihood, rise = hull_likelihood(data, weights)
    n = weights.size
    if n == 1 or likelihood == -math.inf:
        return likelihood
    mixed = weights @ data.kernels
    linear = max(0.0, -float(rise.mean()))
    square = max(TINY, float((((data.kernels / mixed - 1.0) ** 2) @ data.count).mean()))
    # (n - 1) log e - linear e - square e^2/2 is largest where (n - 1)/e = linear + square e
    root = math.sqrt(linear**2 + 4.0 * square * (n - 1))
    share = min(0.5, 2.0 * (n - 1) / (linear + root))
    moved = np.log((1.0 - share) * mixed + share * data.kernels) - data.frequency
    return (n - 1) * math.log(share) + float((moved @ data.count).mean())


# Hulls that compete as predictors -----------------------------------------------------------------


class HullState(CountState):
    """Counts, and of every hull its fit and how well it has predicted."""

    weights: list[Floats]  # [n] of each hull
    score: Floats  # [hulls] log predictions, minus the likelihood of the frequencies
    fitted: Ints  # [hulls] how many outcomes each is fitted to


def begin_hulls(sizes: list[int]) -> tuple[list[Floats], Floats, Ints]:
    """Return weights, scores and numbers of outcomes of hulls before any data."""
    weights = [np.full(n, 1.0 / n) for n in sizes]
    return weights, np.zeros(len(sizes)), np.zeros(len(sizes), np.int64)


def score_hulls(
    state: HullState, outcomes: Outcomes, kernels: Floats, before: Ints, block: Ints
) -> None:
    """Score every hull on a block with the weights from before it; then fit when it is time.

    ``kernels`` [n, O] are those of the largest hull, ``before`` [O] the counts before the block.
    """
    count = state["count"]
    old_frequency = log_frequencies(before, outcomes)
    frequency = log_frequencies(count, outcomes)
    came = block > 0
    total = int(count.sum())
    for hull, weights in enumerate(state["weights"]):
        members = kernels[: weights.size]
        predicted = np.log(np.maximum(weights @ members[:, came], TINY))
        # log q(block), minus the rise of the likelihood of the frequencies
        gain = block[came] @ (predicted - frequency[came])
        state["score"][hull] += gain + before @ (old_frequency - frequency)
        growth = total / max(1, int(state["fitted"][hull]))
        if growth >= _GROWTH:
            steps = math.ceil(_FIT_STEPS * math.log(growth) / math.log(_GROWTH))
            data = seen_by(count, outcomes, members)
            state["weights"][hull] = hull_fit(
                data, weights, min(_MAXIMAL_STEPS, steps), 1.0 / weights.size
            )
            state["fitted"][hull] = total


def open_hulls(state: HullState, outcomes: Outcomes, kernels: Floats, least: float) -> Bools:
    """Return which hulls are not ruled out: some mixture may have a likelihood of ``least``."""
    if len(state["novel"]):
        return np.zeros(len(state["weights"]), bool)
    data = seen_by(state["count"], outcomes, kernels)
    bounds = [hull_bound(data.of(slice(w.size)), w) for w in state["weights"]]
    return np.array(bounds, dtype=np.float64) >= least


def draw_hull(
    state: HullState, outcomes: Outcomes, kernels: Floats, hull: int, draw: np.random.Generator
) -> Floats:
    """Return the probabilities of the outcomes [O] under a mixture drawn from a hull."""
    weights = state["weights"][hull]
    members = kernels[: weights.size]
    data = seen_by(state["count"], outcomes, members)
    drawn = data._replace(count=draw.standard_gamma(data.count))
    start = 0.9 * weights + 0.1 / weights.size
    return hull_fit(drawn, start, _DRAW_STEPS, 0.0) @ members


class DrawnTable(NamedTuple):
    """A draw from the tabular class."""

    outcomes: Outcomes  # listed and novel ones
    probability: Floats  # [O']


def draw_table(
    state: CountState,
    outcomes: Outcomes,
    draw: np.random.Generator,
    concentration: float = JEFFREYS,
    prior: Floats | float = 0.0,
) -> DrawnTable:
    """Return Dirichlet rows over the outcomes listed and the novel ones.

    ``prior`` counts [O] of the outcomes listed are added to those that were seen.
    """
    count = state["count"] + prior
    novel = state["novel"]
    if len(novel):
        pair = np.append(outcomes.pair, novel[:, NOVEL_PAIR].astype(np.int64))
        order = np.argsort(pair, kind="stable")
        next_state = np.append(outcomes.next_state, novel[:, NOVEL_NEXT].astype(np.int64))
        bonus = np.append(outcomes.bonus, novel[:, NOVEL_BONUS])
        start = np.searchsorted(pair[order], np.arange(outcomes.start.size))
        outcomes = Outcomes(start, next_state[order], bonus[order])
        count = np.append(count, novel[:, NOVEL_COUNT])[order]
    drawn = draw.standard_gamma(count + concentration)
    total = np.add.reduceat(drawn, outcomes.start[:-1])
    return DrawnTable(outcomes, drawn / total[outcomes.pair])
