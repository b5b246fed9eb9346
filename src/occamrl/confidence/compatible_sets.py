r"""Which sets of simulators can still explain the data: a confidence set over mixtures, read off support by support.

The truth is a mixture :math:`P^* = \sum_j \theta^*_j P_j` of d known kernels, so on range-weighted rows (M23)
:math:`E[y_t] = \langle x_t, \theta^*\rangle` with :math:`\sum_j \theta^*_j = 1`. As features the kernels are nearly
collinear (M18), so single coordinates mean little. Supports do: a set D is *compatible* when some theta on D lies in

.. math:: \{\theta : L(\theta) \le t\}, \qquad
    t = -\tfrac12 \log \sum_D w(D) e^{-2 A_D} + \tfrac12 \log\tfrac1\delta, \qquad
    A_D = \min_\eta \{ L(\theta_D + B_D\eta) + \lambda |\eta|^2 \} + \tfrac14 \log\det(I + B_D^\top G B_D/\lambda).

This is M22 with a prior that first draws the size m of D evenly, then D among the sets of that size, then theta from a
Gaussian around the barycentre theta_D of D inside the plane of weights that sum to one (B_D: an orthonormal basis of
its directions; differences of simulators, never the simulators themselves). The truth's own D has m - 1 directions, so
the price of a pair is one logarithm, not d of them. With probability 1 - delta, at all times together, L(theta*) <= t,
so the true set is compatible, and contains one of the *minimal* compatible sets.

Estimated simulators. Let the features be wrong by a bias, :math:`|\langle x_t, \theta^*\rangle - E[y_t]| \le e_t`,
e_t known before y_t. Write n_t = y_t - E[y_t] (range 1), d for the gap between a prediction and the true mean, d* for
that of theta*. For c in (0, 1), Hoeffding's lemma gives

.. math:: E\, e^{2c (L_t(\theta^*) - L_t(\theta))} = E\, e^{2c(2 n_t (d - d^*) - d^2 + d^{*2})}
          \le e^{2c^2 (d - d^*)^2 - 2c d^2 + 2c d^{*2}} \le e^{2c\, d^{*2}/(1-c)},

the last step at the worst d. So exp(2c (L(theta*) - L(theta)) - 2c sum e_t^2 / (1 - c)) is a supermartingale, and

.. math:: t_c = -\tfrac1{2c} \log\sum_D w(D) e^{-2c A_D^{(c)}} + \tfrac1{2c}\log\tfrac1\delta + \frac{\sum_t e_t^2}{1-c}

holds, A^(c) with 1/(4c) before its log-determinant. The bias costs n e^2, not n e. Without bias c = 1; with it the
least t_c over a few c is taken, each at its share of delta.

Exactness. The least loss over mixtures of D is attained on a subset E of D whose simulators are affinely independent
(Caratheodory), inside its simplex, where it is the least loss over the plane of E. So solving every E once, in closed
form, and passing the least one up from sets to supersets solves every D.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from occamrl.contracts import Floats, Ints
from occamrl.errors import ParameterError, ShapeError, require_choice, require_number

MOST_CANDIDATES = 20
MOST_SETS = 70_000  # solved at most: every set of 16 candidates, those of up to 6 out of 20
REGULARIZATION = 1.0  # lambda: the prior's standard deviation is 1/2, weights on a simplex lie within 1 of its middle
TEMPERATURES = (0.5, 0.75, 0.9)  # c of t_c, where there is bias
_FLAT = 1e-13  # of the largest eigenvalue: directions that are none
_NEGATIVE = 1e-9  # a weight that is zero up to rounding


class Evidence(NamedTuple):
    """Range-weighted rows over d simulators, summed up."""

    gram: Floats  # [d, d] sum x x^T
    xy: Floats  # [d] sum y x
    bias: float = 0.0  # at least sum e_t^2, for estimated simulators


class Fits(NamedTuple):
    """Least losses (less sum y^2) by set, a set being the number whose bits are its members."""

    least: Floats  # [2^d] over the mixtures of a set; infinite for sets that are too large to be solved
    ridge: Floats  # [N] min {L + lambda |eta|^2}, of the sets solved
    logdet: Floats  # [N] log det (I + B^T G B / lambda)
    size: Ints  # [N]
    largest: int  # the size up to which sets are solved


@dataclass(frozen=True)
class CompatibleSets:
    """The answer: which sets, how firmly, and how far the search went."""

    minimal: list[tuple[int, ...]]  # compatible, and no subset of theirs is; by size, then loss
    excess: list[float]  # by how much the least loss of each exceeds the least loss of all
    allowance: float  # the excess from which on a set is not compatible: t less the least loss of all
    necessary: tuple[int, ...]  # in every compatible set
    complete: bool  # every set was looked at; else: none with more than `largest` members
    largest: int

    @property
    def smallest(self) -> list[tuple[int, ...]]:
        """Those with the fewest members."""
        return [members for members in self.minimal if len(members) == len(self.minimal[0])]


def compatible_sets(evidence: Evidence, *, delta: float = 0.05, weights: str = "simplex") -> CompatibleSets:
    """Return every minimal set of simulators that the data do not contradict, exactly.

    Parameters
    ----------
    evidence : Evidence
    delta : float
        The true set is compatible, at all times together, with probability 1 - delta.
    weights : "simplex" | "free"
        Mixtures proper, or any weights that sum to one.
    """
    require_number("delta", delta, 1e-300, 1.0)
    require_choice("weights", weights, ("simplex", "free"))
    d = evidence.xy.size
    if not 1 <= d <= MOST_CANDIDATES:
        raise ParameterError("simulators", got=d, expected=f"1 to {MOST_CANDIDATES}: the sets of more are too many")
    if evidence.gram.shape != (d, d):
        raise ShapeError("gram", got=evidence.gram.shape, expected=(d, d))
    fits = solve_sets(evidence, positive=weights == "simplex")
    bound = threshold(fits, d, delta, evidence.bias)
    best = float(fits.least.min())
    inside = fits.least <= bound
    found = sorted(_minimal(inside, d), key=lambda mask: (mask.bit_count(), fits.least[mask]))
    return CompatibleSets(
        minimal=[members_of(mask) for mask in found],
        excess=[float(fits.least[mask]) - best for mask in found],
        allowance=bound - best,
        necessary=tuple(j for j in range(d) if found and all(mask >> j & 1 for mask in found)),
        complete=fits.largest == d,
        largest=fits.largest,
    )


def solve_sets(evidence: Evidence, *, positive: bool) -> Fits:
    """Solve every set, by size, as long as there are not too many."""
    d = evidence.xy.size
    least = np.full(2**d, np.inf)
    ridge, logdet, sizes = [], [], []
    solved, largest = 0, 0
    for m in range(1, d + 1):
        if solved + math.comb(d, m) > MOST_SETS:
            break
        sets = np.array(list(combinations(range(d), m)), dtype=np.int64)
        loss, kept, log, _ = fit_sets(evidence, sets, positive=positive)
        mask = (1 << sets).sum(axis=1)
        for j in range(m):  # a set does at least as well as its subsets
            loss = np.minimum(loss, least[mask - (1 << sets[:, j])])
        least[mask] = loss
        ridge.append(kept)
        logdet.append(log)
        sizes.append(np.full(len(sets), m))
        solved, largest = solved + len(sets), m
    return Fits(least, np.concatenate(ridge), np.concatenate(logdet), np.concatenate(sizes), largest)


def fit_sets(evidence: Evidence, sets: Ints, *, positive: bool) -> tuple[Floats, Floats, Floats, Floats]:
    """Return, for sets [N, m] of one size: the least loss, the ridge loss, the log-determinant, and the weights [N, m].

    The least loss is that of the plane of weights that sum to one; where ``positive``, infinite if it lies outside
    the simplex.
    """
    m = sets.shape[1]
    gram, xy = evidence.gram[sets[:, :, None], sets[:, None, :]], evidence.xy[sets]
    middle, basis = np.full(m, 1.0 / m), plane(m)
    own = basis.T @ gram @ basis  # [N, m - 1, m - 1]
    right = (xy - gram @ middle) @ basis
    start = gram @ middle @ middle - 2.0 * xy @ middle
    eigen, axes = np.linalg.eigh(own)
    eigen = np.maximum(eigen, 0.0)
    along = np.einsum("nij,ni->nj", axes, right)
    ridge = start - (along**2 / (eigen + REGULARIZATION)).sum(axis=1)
    logdet = np.log1p(eigen / REGULARIZATION).sum(axis=1)
    steep = eigen > _FLAT * np.trace(gram, axis1=1, axis2=2)[:, None]
    eta = np.einsum("nij,nj->ni", axes, np.where(steep, along / np.where(steep, eigen, 1.0), 0.0))
    theta = middle + eta @ basis.T
    outside = theta.min(axis=1) < -_NEGATIVE
    if positive:
        theta = np.maximum(theta, 0.0)
        theta /= theta.sum(axis=1, keepdims=True)
    # the loss at these very weights: whatever rounding did to them, some mixture has it
    loss = np.einsum("ni,nij,nj->n", theta, gram, theta) - 2.0 * (xy * theta).sum(axis=1)
    if positive:
        loss = np.where(outside, np.inf, loss)
    return loss, ridge, logdet, theta


def threshold(fits: Fits, d: int, delta: float, bias: float = 0.0) -> float:
    """Return t, or the least t_c where there is bias."""
    count = np.array([math.comb(d, m) for m in range(d + 1)], dtype=np.float64)
    log_prior = -np.log(fits.largest * count[fits.size])
    if bias == 0.0:
        return _threshold_at(1.0, fits, log_prior, delta)
    share = delta / len(TEMPERATURES)
    return min(_threshold_at(c, fits, log_prior, share) + bias / (1.0 - c) for c in TEMPERATURES)


def _threshold_at(c: float, fits: Fits, log_prior: Floats, delta: float) -> float:
    exponent = log_prior - 2.0 * c * (fits.ridge + fits.logdet / (4.0 * c))
    top = float(exponent.max())
    return (-(top + math.log(float(np.exp(exponent - top).sum()))) + math.log(1.0 / delta)) / (2.0 * c)


def plane(m: int) -> Floats:
    """Return an orthonormal basis [m, m - 1] of the vectors that sum to zero."""
    basis = np.zeros((m, m - 1))
    for k in range(1, m):
        basis[:k, k - 1] = 1.0 / math.sqrt(k * (k + 1))
        basis[k, k - 1] = -k / math.sqrt(k * (k + 1))
    return basis


def members_of(mask: int) -> tuple[int, ...]:
    """Return the members of a set given by its bits."""
    return tuple(j for j in range(int(mask).bit_length()) if int(mask) >> j & 1)


def _minimal(inside: Any, d: int) -> list[int]:
    """Return the compatible sets without compatible subsets; compatibility passes from sets to supersets."""
    compatible = np.flatnonzero(inside).tolist()
    return [mask for mask in compatible if not any(mask >> j & 1 and inside[mask ^ (1 << j)] for j in range(d))]


def set_weights(evidence: Evidence, members: Sequence[int], *, positive: bool) -> Floats:
    """Return the weights [m] with the least loss on the plane of a set; of a minimal set: inside its simplex."""
    _, _, _, theta = fit_sets(evidence, np.array([members], dtype=np.int64), positive=positive)
    return theta.ravel()
