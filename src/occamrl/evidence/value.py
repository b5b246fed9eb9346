r"""Value-targeted regression: rows of range one, their sums, losses, sharp sets and ellipsoids.

**Rows.** A plan counts on values V that were fixed before its episodes. At step h in (s, a) an
outcome o brings W(o) = bonus(o) + V_{h+1}(next state of o). With c the middle and R the length of
the range of W over the outcomes that are possible at (s, a), the *range-weighted row* is

.. math:: x = \phi_{W - c}(s, a)/R, \qquad y = (W(o) - c)/R \in [-\tfrac12, \tfrac12], \qquad
    \mathbb{E}[y \mid past] = \langle x, \theta^* \rangle,
    \qquad \phi_W(s, a) = \sum_o \phi(s, a, o) W(o).

Rows with R = 0 carry nothing. The part of the reward that depends on (s, a) alone is not in W.

**Sums.** A row depends on (h, s, a) alone, so the counts of a flow are enough: ``gram`` is the sum
of x x', ``xy`` that of y x and ``yy`` that of y^2. The loss of any theta is then :math:`L(\theta) =
\theta^\top gram\,\theta - 2\langle\theta, xy\rangle + yy`.

**Sharp set.** By Hoeffding's lemma :math:`\exp(2 L(\theta^*) - 2 L(\theta))` is a supermartingale
for each theta, so is a mixture of them over a prior w. By Ville's inequality, with probability 1 -
delta, at all times,

.. math:: 2 L(P^*) \le -\log \sum_P w(P) e^{-2 L(P)} + \log\tfrac1\delta .

Likelihoods obey the same inequality with the score :math:`-\sum \log P(o)` in place of 2 L.

**Ellipsoid.** With w = N(0, I/(4 lambda)) over theta, and ||theta*|| <= b, it reads

.. math:: \|\theta^* - \hat\theta\|^2_\Sigma \le \beta
    = \tfrac14\big(\log\det(\Sigma/\lambda) + 2\log\tfrac1\delta\big)
    + \lambda b^2, \qquad \Sigma = \lambda I + gram, \quad \hat\theta = \Sigma^{-1} xy .

Arrays have one axis for the G groups of coordinates of a
:class:`~occamrl.models.features.FeatureMap` (G = 1 for an ordinary map), and where a kernel belongs
to each step, a leading one for steps, T = H instead of 1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypedDict

import numpy as np
from scipy.special import logsumexp

from occamrl import bellman
from occamrl.models.families import level, off_grid
from occamrl.models.families import losses as losses  # of members, given the sums
from occamrl.models.features import FeatureMap
from occamrl.protocols import Floats, Flow, Ints, Known

_FLAT = 1e-12  # a range below this share of the values themselves is rounding
_ROUNDING = 1e-15  # the share of the largest eigenvalue that rounding may have added to any of them


class Rows(NamedTuple):
    """The row of each (s, a) at one step."""

    x: Floats  # [S*A, n]
    middle: Floats  # [S*A] c
    spread: Floats  # [S*A] R


class Counted(NamedTuple):
    """The distinct (step, pair) of a flow."""

    step: Ints
    pair: Ints
    count: Floats  # type: ignore[assignment]  # visits; the method of tuples is not needed
    total: Floats  # sum of y
    square: Floats  # sum of y^2
    x: Floats  # [., n] the row


class Ellipsoid(NamedTuple):
    """Ridge estimates and shapes of their confidence ellipsoids; leading axes as in the sums."""

    theta: Floats  # [..., n]
    root: Floats  # [..., n, n] with root root' = Sigma^-1
    logdet: Floats  # [...] logdet(Sigma / lambda)


class Spectrum(NamedTuple):
    """The sums along the axes of ``gram``, those of Sigma for any lambda; axes as in the sums."""

    eigenvalues: Floats  # [..., n] increasing
    axes: Floats  # [..., n, n] in columns
    xy: Floats  # [..., n] along the axes

    @classmethod
    def of(cls, gram: Floats, xy: Floats) -> Spectrum:
        """Decompose the sums; what rounding can have added to an eigenvalue is taken off."""
        eigenvalues, axes = np.linalg.eigh(gram)
        sure = np.maximum(eigenvalues - _ROUNDING * eigenvalues[..., -1:], 0.0)
        return cls(sure, axes, (axes.swapaxes(-1, -2) @ xy[..., None])[..., 0])

    def center(self, regularization: float | Floats) -> Floats:
        """Return the ridge estimate along the axes."""
        return self.xy / (self.eigenvalues + regularization)

    def logdet(self, regularization: float | Floats) -> Any:
        """Return logdet(Sigma / lambda)."""
        return np.log1p(self.eigenvalues / regularization).sum(axis=-1)

    def ellipsoid(self, regularization: float) -> Ellipsoid:
        """Return the ridge estimates with their shapes."""
        theta = (self.axes @ self.center(regularization)[..., None])[..., 0]
        root = self.axes / np.sqrt(self.eigenvalues + regularization)[..., None, :]
        return Ellipsoid(theta, root, self.logdet(regularization))


def rows(features: FeatureMap, known: Known, values: Floats) -> Rows:
    """Return the range-weighted row of each (s, a), given the values [S] of the next step."""
    low, high = bellman.ranges(features.attach(known), values)
    middle = 0.5 * (low + high)
    spread = high - low
    spread[spread <= _FLAT * np.maximum(np.abs(low), np.abs(high))] = 0.0
    x = features.phi_v(values) + features.bonus_rows(known)
    x -= middle[:, None] * features.sums
    scale = spread[:, None]
    return Rows(np.divide(x, scale, out=np.zeros_like(x), where=scale > 0.0), middle, spread)


def counted(features: FeatureMap, known: Known, values: Floats, flow: Flow) -> Counted:
    """Return the rows of a flow, played under a plan that counted on ``values`` [H + 1, S]."""
    pair = flow.state * known.actions + flow.action
    bonus = flow.bonus(known, features.attach(known))
    parts = []
    for h in np.unique(flow.step):
        of_step = flow.step == h
        parts.append(
            _counted_step(
                h,
                rows(features, known, values[h + 1]),
                pair[of_step],
                values[h + 1][flow.next_state[of_step]] + bonus[of_step],
                flow.count[of_step],
            )
        )
    if not parts:
        nothing = np.zeros(0)
        no_rows = np.zeros((0, features.width))
        return Counted(flow.step[:0], pair[:0], nothing, nothing, nothing, no_rows)
    return Counted(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _counted_step(h: int, table: Rows, pair: Ints, target: Floats, count: Ints) -> Counted:
    """Return the rows of one step: pairs [n] that were visited, and the targets that came."""
    spread = table.spread[pair]
    y = np.divide(target - table.middle[pair], spread, out=np.zeros(pair.size), where=spread > 0.0)
    distinct, index = np.unique(pair, return_inverse=True)
    visits = count.astype(np.float64)
    return Counted(
        step=np.full(distinct.size, h),
        pair=distinct,
        count=_sums(index, visits, distinct.size),
        total=_sums(index, visits * y, distinct.size),
        square=_sums(index, visits * (y * y), distinct.size),
        x=table.x[distinct],
    )


def _sums(index: Ints, weights: Floats, size: int) -> Floats:
    """Return the sum of the weights at each index."""
    return np.bincount(index, weights, size).astype(np.float64)


class SumState(TypedDict):
    """Sums over rows; T is 1, or H with one kernel per step."""

    gram: Floats  # [T, G, n, n] of x x'
    xy: Floats  # [T, G, n] of y x
    yy: Floats  # [T] of y^2


def begin(features: FeatureMap, steps: int = 1) -> SumState:
    """Return the sums before any data; ``steps`` is 1, or H with one kernel per step."""
    shape = (steps, features.groups, features.width)
    return {
        "gram": np.zeros((*shape, features.width)),
        "xy": np.zeros(shape),
        "yy": np.zeros(steps),
    }


def add(sums: Any, features: FeatureMap, known: Known, values: Any, flow: Flow) -> Counted:
    """Add the rows of a flow to the sums, and return them."""
    new = counted(features, known, values, flow)
    n = features.width
    step = np.zeros_like(new.step)
    if len(sums["yy"]) > 1:
        step = new.step
    # one block of the sums for each step and group
    block = step * features.groups + features.group[new.pair]
    gram = sums["gram"].reshape(-1, n, n)
    xy = sums["xy"].reshape(-1, n)
    order = np.argsort(block, kind="stable")
    borders = np.flatnonzero(np.diff(block[order])) + 1
    for members in np.split(order, borders):
        if members.size:
            x = new.x[members]
            gram[block[members[0]]] += (x * new.count[members, None]).T @ x
            xy[block[members[0]]] += new.total[members] @ x
    np.add.at(sums["yy"], step, new.square)
    return new


def sharp_threshold(
    losses: Floats, log_prior: Floats, reach: float, rows: float, delta: float
) -> float:
    """Return the largest loss of a member in the sharp set, minus the sum of y^2.

    ``reach`` is how far the truth may be from the nearest member of a cover, ``rows`` how many rows
    that error may have entered.
    """
    sharp = 0.5 * threshold(2.0 * losses, log_prior, level(reach, delta))
    return sharp + off_grid(reach, rows, delta)


def threshold(score: Floats, log_prior: Floats, delta: float) -> float:
    """Return the largest score in the sharp set: 2 L of a member, or minus its log-likelihood."""
    return -float(logsumexp(log_prior - score)) + math.log(1.0 / delta)


def ridge(gram: Floats, xy: Floats, regularization: float) -> Ellipsoid:
    """Return the ridge estimates, and Sigma^-1 and logdet(Sigma / lambda) with them."""
    return Spectrum.of(gram, xy).ellipsoid(regularization)


def squared_radius(logdet: Any, delta: float, regularization: float, norm_bound: float) -> Any:
    """Return beta of the sharp ellipsoid: a number, or one per step."""
    return 0.25 * (logdet + 2.0 * math.log(1.0 / delta)) + regularization * norm_bound**2


def turned(x: Floats, matrices: Floats, group: Ints) -> Floats:
    """Return each row times the matrix of its group; x is [S*A, n], ``matrices`` [G, n, n]."""
    if 2 * len(matrices) > len(x):
        return np.asarray((x[:, None] @ matrices[group])[:, 0])
    if len(matrices) == 1:
        return np.asarray(x @ matrices[0])
    product = np.empty_like(x)
    for g, matrix in enumerate(matrices):
        rows_of_group = group == g
        product[rows_of_group] = x[rows_of_group] @ matrix
    return product


def largest_norm(s: Floats, g: Floats, beta: float) -> float:
    r"""Return the largest norm in the ellipsoid of squared radius ``beta``.

    Its matrix has the eigenvalues s, which increase; with g the centre along their axes, the square
    is

    .. math:: \min_{\mu \ge 1/s_1} \mu\beta + \sum_j \frac{\mu s_j g_j^2}{\mu s_j - 1}

    by strong duality, and each mu gives a valid bound. The derivative vanishes where the farthest
    point meets the boundary (the secular equation), or nowhere, if g has no part along the longest
    axis: then mu = 1/s_1.
    """
    weight = s * g**2
    kept = weight > 0.0
    if beta <= 0.0 or not kept.any():
        return math.sqrt(g @ g if beta <= 0.0 else beta / s[0])
    s_kept = s[kept]
    weight = weight[kept]

    def beyond(offset: float) -> Floats:
        """Return mu s_j - 1 at mu = (1 + offset)/s_1, without cancellation."""
        return np.asarray((s_kept - s[0] + offset * s_kept) / s[0])

    high = math.sqrt(
        weight.sum() / beta
    )  # mu s_j - 1 is at least the offset: the derivative is not negative here
    low = 1e-32 * max(1.0, high)
    while low < (middle := math.sqrt(low * high)) < high:
        low, high = (middle, high) if (weight / beyond(middle) ** 2).sum() > beta else (low, middle)
    mu = (1.0 + high) / s[0]
    return math.sqrt(mu * beta + float((mu * weight / beyond(high)).sum()))
