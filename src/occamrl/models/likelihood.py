r"""Evidence by likelihood: what the outcomes themselves say of kernels, their mixtures and sets of them (L1 to L8).

Counts :math:`c_o` of the outcomes (s, a, s', reward) seen are all that is needed, with :math:`N = \sum_o c_o` and
:math:`\ell(P) = \sum_o c_o \log P(o)`. Any predictor q_t that is fixed before o_t obeys, by Ville's inequality,
:math:`\sum_t \log q_t(o_t) \le \ell(P^*) + \log 1/\delta` at all times with probability 1 - delta (L1). A mixture of
members and *competitors* is such a predictor; with Z its logarithm, a kernel is *alive* while
:math:`\ell(P) \ge Z - \log 1/\delta` (L2). Competitors notice a truth that is no member: Krichevsky and Trofimov's
counts (L4), and mixtures of the members of a class (its *hull*), with weights learned from the past by EM (L5). A whole
hull is refused when an upper bound on its best likelihood is too small (L6).

Shapes: counts [O] as numbers; ``start`` [S*A + 1], where the outcomes of each (s, a) begin; kernels [O, n], one column
a member, of which those of the first ``weights.size`` columns are mixed. The compiled functions allocate nothing.
"""

from __future__ import annotations

import math

import numpy as np

from occamrl._core.compile import entry, hot
from occamrl.models.family import simplex_least_squares
from occamrl.protocols import Floats, Ints

_MOST_STEPS = 100  # of Newton's method, which needs about ten
_ALMOST_ONE = 0.999999  # of the way to weights that may make something seen impossible
_SHORTEST, _ROUNDING = 1e-9, 1e-12


LARGEST_HULL = 200  # members of a class whose mixtures compete (L5)


@hot
def mixed_at(weights: Floats, kernels: Floats, o: int) -> float:
    r"""Return :math:`\langle w, P(o)\rangle`."""
    total = 0.0
    for i in range(weights.size):
        total += weights[i] * kernels[o, i]
    return total


@entry
def kt_evidence(counts: Floats, start: Ints) -> float:
    r"""Return log of the probability that Krichevsky and Trofimov's predictor gave to all outcomes (L4).

    It predicts :math:`(c_o + 1/2)/(N_{sa} + k_{sa}/2)` among the k outcomes of (s, a). The product is the same for
    every order of the outcomes: :math:`\prod_o \Gamma(c_o + 1/2)/\Gamma(1/2)` over
    :math:`\Gamma(N_{sa} + k/2)/\Gamma(k/2)`.
    """
    half, evidence = math.lgamma(0.5), 0.0
    for pair in range(start.size - 1):
        total, k = 0.0, 0.5 * (start[pair + 1] - start[pair])
        for o in range(start[pair], start[pair + 1]):
            if counts[o] > 0.0:
                total += counts[o]
                evidence += math.lgamma(counts[o] + 0.5) - half
        if total > 0.0:
            evidence += math.lgamma(k) - math.lgamma(total + k)
    return evidence


@entry
def hull_likelihood(counts: Floats, kernels: Floats, weights: Floats, gradient: Floats) -> float:
    r"""Return :math:`\ell(w) = \sum_o c_o \log\langle w, P(o)\rangle`; write :math:`g_i = \partial\ell/\partial w_i`.

    :math:`g_i = \sum_o c_o P_i(o)/\langle w, P(o)\rangle`, so that <g, w> = N. Outcomes that w makes impossible are
    left out of g; the likelihood is then 0, its logarithm minus infinity.
    """
    n, likelihood = weights.size, 0.0
    for i in range(n):
        gradient[i] = 0.0
    for o in range(counts.size):
        if counts[o] > 0.0:
            mixed = mixed_at(weights, kernels, o)
            if mixed > 0.0:
                likelihood += counts[o] * math.log(mixed)
                share = counts[o] / mixed
                for i in range(n):
                    gradient[i] += share * kernels[o, i]
            else:
                likelihood = -math.inf
    return likelihood


@entry
def hull_fit(counts: Floats, kernels: Floats, weights: Floats, steps: int, pseudo: float, gradient: Floats) -> None:
    r"""Take steps of EM towards the best weights, in place: :math:`w_i \leftarrow (w_i g_i + a)/\sum` (L5).

    ``pseudo`` is a: 1/n for the hull of a class, so that no weight is ever 0; with 0 no step lowers the likelihood.
    """
    n = weights.size
    for _ in range(steps):
        hull_likelihood(counts, kernels, weights, gradient)
        total = 0.0
        for i in range(n):
            weights[i] = weights[i] * gradient[i] + pseudo
            total += weights[i]
        for i in range(n):
            weights[i] = weights[i] / total if total > 0.0 else 1.0 / n


@entry
def hull_bound(counts: Floats, kernels: Floats, weights: Floats, gradient: Floats) -> float:
    r"""Return :math:`\ell(w) + \max_i g_i - N`, which no mixture of the members exceeds (L6)."""
    n, total, impossible, hidden, most = weights.size, 0.0, False, False, 0.0
    likelihood = hull_likelihood(counts, kernels, weights, gradient)
    for o in range(counts.size):
        total += counts[o]
        if likelihood == -math.inf and counts[o] > 0.0:
            most = 0.0
            for i in range(n):
                most = max(most, kernels[o, i])
            impossible = impossible or most <= 0.0  # no member allows what was seen
            hidden = hidden or mixed_at(weights, kernels, o) <= 0.0
    if impossible:
        return -math.inf
    if hidden:  # a member with weight 0 allows it
        return math.inf
    most = 0.0
    for i in range(n):
        most = max(most, gradient[i])
    return likelihood + most - total


@entry
def hull_evidence(counts: Floats, kernels: Floats, weights: Floats, gradient: Floats) -> float:
    r"""Return a lower bound on :math:`\log\int e^{\ell(\theta)} d\theta`, theta uniform on the simplex (L8).

    For any w and :math:`\epsilon` it is
    :math:`(n - 1)\log\epsilon + \frac1n\sum_i \ell((1 - \epsilon) w + \epsilon e_i)`, here with the
    :math:`\epsilon` that is best up to second order; about :math:`\frac{n-1}2 \log N` below l(w) at the best w.
    """
    n, linear, square = weights.size, 0.0, 0.0
    likelihood = hull_likelihood(counts, kernels, weights, gradient)
    if n == 1 or likelihood == -math.inf:
        return likelihood
    for o in range(counts.size):
        if counts[o] > 0.0:
            mixed = mixed_at(weights, kernels, o)
            for i in range(n):
                ratio = kernels[o, i] / mixed - 1.0
                linear -= counts[o] * ratio / n
                square += counts[o] * ratio * ratio / n
    # (n - 1) log eps - linear eps - square eps^2/2 is largest where (n - 1)/eps = linear + square eps
    linear, square = max(linear, 0.0), max(square, 1e-300)
    away = min(2.0 * (n - 1) / (linear + math.sqrt(linear * linear + 4.0 * square * (n - 1))), 0.5)
    evidence = (n - 1) * math.log(away)
    for o in range(counts.size):
        if counts[o] > 0.0:
            mixed = mixed_at(weights, kernels, o)
            for i in range(n):
                evidence += counts[o] / n * math.log((1.0 - away) * mixed + away * kernels[o, i])
    return evidence


def log_mixture(log_weights: Floats, evidence: Floats) -> float:
    """Return log sum w e^evidence, however large or small the evidence is."""
    return float(np.logaddexp.reduce(log_weights + evidence))


def ladder_log_weights(prior: Floats, classes: int, competitors: int) -> Floats:
    """Return the logarithms of the weights of members, then competitors (L2): w0 = 1/(M + 1) goes to the latter."""
    share = 1.0 / (classes + 1.0) if competitors else 0.0
    found: Floats = np.log(np.concatenate([(1.0 - share) * prior, np.full(competitors, share / max(1, competitors))]))
    return found


def member_likelihoods(counts: Floats, kernels: Floats) -> Floats:
    """Return l(P) of every column; minus infinity for members that make something seen impossible."""
    seen = np.flatnonzero(counts)
    with np.errstate(divide="ignore"):
        found: Floats = counts[seen] @ np.log(np.maximum(kernels[seen], 0.0))  # rounding may be below 0
    return found


def hull_maximum(
    counts: Floats, kernels: Floats, weights: Floats, *, tolerance: float = 1e-3, enough: float = math.nan
) -> tuple[float, float]:
    r"""Improve the weights in place by Newton's method; return l(w) and the upper bound of L6 on all mixtures.

    It ends when these two are within ``tolerance``, or on one side of ``enough``, if that is a number. Each step
    maximises the second-order expansion of l over the simplex,
    :math:`-\frac12\sum_o c_o (\langle q, P(o)\rangle/\langle w, P(o)\rangle - 2)^2`: least squares over
    distributions. EM alone is slow where some weights are to become 0.
    """
    seen = np.flatnonzero(counts)
    counts, kernels, scratch = counts[seen], np.ascontiguousarray(kernels[seen, : weights.size]), np.zeros(weights.size)
    bound = hull_bound(counts, kernels, weights, scratch)
    likelihood = hull_likelihood(counts, kernels, weights, scratch)
    for _ in range(_MOST_STEPS):
        if bound - likelihood <= tolerance or likelihood >= enough or bound < enough or not np.isfinite(likelihood):
            break
        mixed = kernels @ weights
        best = simplex_least_squares(np.sqrt(counts)[:, None] * kernels / mixed[:, None], 2.0 * np.sqrt(counts))
        step, before = _ALMOST_ONE, weights.copy()
        while step > _SHORTEST:  # l is concave: some part of the way leads up, unless only rounding is left
            weights[:] = before + step * (best - before)
            after = hull_likelihood(counts, kernels, weights, scratch)
            if after > likelihood:
                break
            # near the maximum its rise is of second order, and lost to rounding; the bound's fall is of first order
            if (
                after >= likelihood - _ROUNDING * abs(likelihood)
                and hull_bound(counts, kernels, weights, scratch) < bound
            ):
                break
            step *= 0.5
        else:
            weights[:] = before
            break
        likelihood, bound = after, min(bound, hull_bound(counts, kernels, weights, scratch))
    return likelihood, bound
