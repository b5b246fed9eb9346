r"""Which coordinates matter: the set of them with the smallest penalised loss (M18 c).

The rule looks for the set D with the smallest

.. math:: J(D) = L_\lambda(\theta_D) + \mathrm{pen}(D), \qquad \mathrm{pen}(D) =
   \tfrac{U^2}{4}\Big(\log\det(\Sigma_{DD}/\lambda) + 2\log\big((d+1)\tbinom{d}{|D|}\big)\Big)

(with log 2 in place of the last logarithm if D is the whole), the loss of the best ridge estimate on D plus what the
confidence set of D would cost with every set of that size held possible at once. The constant :math:`\sum y^2` is left
out: the regression matrix and its right-hand side are enough.

Why a missed coordinate is small, for the set D that the search returns, be it the minimiser or not: the search has met
the set of all coordinates on its way, so :math:`J(D) \le J([d])`. Leaving out everything outside D has thus raised the
loss by at most :math:`\mathrm{pen}([d]) - \mathrm{pen}(D)`, which grows with logarithms only; leaving out j alone
raises it by :math:`\hat\theta_j^2/(\Sigma^{-1})_{jj}`, which is no more. So for every j outside D

.. math:: |\hat\theta_j| \le \sqrt{(\mathrm{pen}([d]) - \mathrm{pen}(D))\,(\Sigma^{-1})_{jj}}, \qquad
   |\theta^*_j| \le |\hat\theta_j| + \sqrt{\beta\,(\Sigma^{-1})_{jj}},

the second with probability :math:`1-\delta`, on the ellipsoid of all coordinates. For the minimiser itself the same
holds with :math:`D \cup T` in place of :math:`[d]`, T being the true support. No eigenvalue is assumed to grow: where
a direction was not excited, :math:`(\Sigma^{-1})_{jj}` is large and the statement is empty, which is why estimation
phases exist. That a coordinate too many is never kept is not proved.

All 2^d sets are out of reach, so the search is not exact: it begins from a few sets and steps from each by the best
addition, removal or exchange until none helps, which may be short of the minimum. One start is the best set of a
*forward path*, which adds the best coordinate until all are in; it ends with the whole set, so what is returned is
never worse than that. Another is the best set of a *beam*, which goes on from many sets of each size instead of one:
where d is larger than the number of pairs (s, a), columns depend on each other, and sets of false coordinates that
explain the rows together are local minima that single steps do not leave.

Sweeping the matrix of the normal equations on a coordinate moves that coordinate into the regression (or out again),
after which the gain of every addition, removal and exchange is read off its entries.

``sigma`` and ``xy`` are those of one regression, [d, d] and [d], or of one for each of T steps, [T, d, d] and [T, d]:
then one set D is found, of the coordinates that matter at some step. Losses and log-determinants are summed over the
steps, and the statement above holds at each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from occamrl.protocols import Floats, Ints

_PROGRESS = 1e-9  # an improvement smaller than this is rounding
_WIDTH = 16  # sets of each size that a beam goes on from
_PATIENCE = 3  # sizes without a better set after which it ends


def sharp_support(
    sigma: Floats, xy: Floats, *, regularization: float, unit: float = 1.0, last: Iterable[int] = ()
) -> list[int]:
    """Return the set of coordinates with the smallest penalised loss that the search finds (M18 c).

    Its loss is never above that of the set of all coordinates, with which every forward path ends.

    Parameters
    ----------
    sigma, xy
        The regression matrix, lambda I included, and its right-hand side; of one regression or of T.
    regularization
        lambda.
    unit
        The range U of a target: 1 for range-weighted rows (M23).
    last
        A further set to begin from, beside the best sets of a forward path and of a beam.

    Returns
    -------
    list of int
        Increasing; never empty, since theta* = 0 is no kernel.
    """
    problem = (sigma, xy, regularization, unit)
    starts = [beam(*problem, width=1, patience=xy.shape[-1]), beam(*problem), sorted(set(last))]
    ends = [descend(*problem, start) for start in dict.fromkeys(map(tuple, starts)) if start]
    return min(ends, key=lambda end: penalised_loss(sigma, xy, end, regularization=regularization, unit=unit))


def log_price(d: int, m: int) -> float:
    """Return the price of a set of m out of d coordinates that was chosen by the data (M17): log((d + 1) C(d, m)).

    The whole set costs log 2, as it needs no choice; :mod:`occamrl.selectors.arl_lin` proves that these prices suffice.
    """
    if m == d:
        return math.log(2.0)
    return math.log(d + 1) + math.lgamma(d + 1) - math.lgamma(m + 1) - math.lgamma(d - m + 1)


def penalised_loss(
    sigma: Floats, xy: Floats, coordinates: Iterable[int], *, regularization: float, unit: float
) -> float:
    """Return J(D) up to the constant sum of y^2, computed afresh."""
    d, chosen = xy.shape[-1], np.asarray(list(coordinates), dtype=np.int64)
    loss = logdet = 0.0
    if chosen.size:
        for matrix, right in zip(sigma.reshape(-1, d, d), xy.reshape(-1, d), strict=True):
            block, rhs = matrix[np.ix_(chosen, chosen)], right[chosen]
            loss -= float(rhs @ np.linalg.solve(block, rhs))
            logdet += float(np.linalg.slogdet(block / regularization)[1])
    return loss + 0.25 * unit**2 * (logdet + 2.0 * log_price(d, chosen.size))


def detection_limits(sigma: Floats, coordinates: Iterable[int], *, regularization: float, unit: float) -> Floats:
    """Return, for every coordinate outside D, the magnitude from which on the rule would take it in [d].

    What is left of Sigma_jj given D times theta_j^2 has to pay for the larger penalty; with several steps the magnitude
    is that of a coordinate which is equal at all of them. Zero for coordinates inside D.
    """
    d = sigma.shape[-1]
    inside = np.zeros(d, dtype=bool)
    inside[list(coordinates)] = True
    m, limits = int(inside.sum()), np.zeros(d)
    if m == d:
        return limits
    left = np.zeros((sigma.size // d**2, d - m))
    for each, matrix in zip(left, sigma.reshape(-1, d, d), strict=True):
        cross = matrix[np.ix_(inside, ~inside)]
        fitted = np.sum(cross * np.linalg.solve(matrix[np.ix_(inside, inside)], cross), axis=0)
        each[:] = np.maximum(np.diag(matrix)[~inside] - fitted, regularization)  # as it is, rounding aside
    price = np.log(left / regularization).sum(axis=0) + 2.0 * (log_price(d, m + 1) - log_price(d, m))
    limits[~inside] = np.sqrt(0.25 * unit**2 * np.maximum(price, 0.0) / left.sum(axis=0))
    return limits


def beam(
    sigma: Floats, xy: Floats, regularization: float, unit: float, *, width: int = _WIDTH, patience: int = _PATIENCE
) -> list[int]:
    """Add every coordinate to each of the ``width`` best sets of a size, and keep the best; return the best met.

    It ends when ``patience`` sizes had no better set. With ``width`` 1 and all sizes it is the forward path.
    """
    d, price = xy.shape[-1], _prices(xy.shape[-1], unit)
    tables, inside, values = _table(sigma, xy)[None], np.zeros((1, d), dtype=bool), np.zeros(1)
    sets = [0]  # those inside as numbers: bit j says that j is in it
    best, chosen, waiting = math.inf, np.zeros(d, dtype=bool), 0
    for m in range(d):
        after = values[:, None] + _additions(tables, regularization, unit) + price[m + 1] - price[m]
        after[inside] = math.inf
        most = min(after.size, width * (m + 1))  # a set of m + 1 is reached from at most so many others
        sets, parent, coordinate = _distinct(after, sets, width, most)
        values, tables = after[parent, coordinate], _swept(tables[parent], coordinate)
        inside = inside[parent]
        inside[np.arange(parent.size), coordinate] = True
        waiting += 1
        if values[0] < best:
            best, chosen, waiting = float(values[0]), inside[0], 0
        if waiting == patience:
            break
    return np.flatnonzero(chosen).tolist()


def _distinct(after: Floats, sets: list[int], width: int, most: int) -> tuple[list[int], Ints, Ints]:
    """Return the best sets that one of the ``most`` best steps leads to, best first, and their (set, coordinate)."""
    d, flat, met = after.shape[1], after.ravel(), dict[int, int]()
    nearest = np.argpartition(flat, most - 1)[:most]
    for value, step in sorted(zip(flat[nearest].tolist(), nearest.tolist(), strict=True)):
        if len(met) == width or value == math.inf:
            break
        met.setdefault(sets[step // d] | 1 << step % d, step)
    steps = np.array(list(met.values()), dtype=np.int64)
    return list(met), steps // d, steps % d


def _swept(tables: Floats, coordinate: Ints, sign: float = 1.0) -> Floats:
    """Move one coordinate into each of several regressions [sets, T, d + 1, d + 1]; out of it with ``sign`` -1."""
    each = np.arange(coordinate.size)
    pivot, column = tables[each, :, coordinate, coordinate][..., None], tables[each, :, :, coordinate]
    scaled = column / pivot  # [sets, T, d + 1]
    tables = tables - scaled[..., :, None] * column[..., None, :]
    tables[each, :, :, coordinate], tables[each, :, coordinate, :] = sign * scaled, sign * scaled
    tables[each, :, coordinate, coordinate] = -1.0 / pivot[..., 0]
    return tables


def _additions(tables: Floats, regularization: float, unit: float) -> Floats:
    """Return the change of J, prices aside, for each coordinate that could come in [sets, d]."""
    left = np.maximum(np.diagonal(tables, axis1=2, axis2=3)[..., :-1], regularization)  # [sets, T, d]
    changes = -(tables[..., :-1, -1] ** 2) / left + 0.25 * unit**2 * np.log(left / regularization)
    return np.asarray(changes.sum(axis=1))


def descend(sigma: Floats, xy: Floats, regularization: float, unit: float, start: Iterable[int]) -> list[int]:
    """Take the best addition, removal or exchange until none helps; return the set.

    With A = [[Sigma, xy], [xy', 0]] of each step swept on D: outside, A[j, j] is what is left of Sigma_jj given D and
    A[j, y] what is left of xy_j; inside, -A[k, k] is the entry of Sigma_DD^{-1} and A[k, y] the estimate theta_k. What
    is left is at least lambda and an entry of the inverse at most 1/lambda, whatever rounding makes of them.
    """
    d, lam, noise, price = xy.shape[-1], regularization, 0.25 * unit**2, _prices(xy.shape[-1], unit)
    table, inside = _table(sigma, xy), np.zeros(d, dtype=bool)
    toggle = list(start)
    for _ in range(4 * d + 1):  # each step lowers J, so this only stops what rounding could keep going
        for k in toggle:
            table = _swept(table[None], np.array([k]), -1.0 if inside[k] else 1.0)[0]
            inside[k] = not inside[k]
        coming, going = np.flatnonzero(~inside), np.flatnonzero(inside)
        m, moves = going.size, []
        spread, theta = np.clip(-table[:, going, going], np.finfo(float).tiny, 1.0 / lam), table[:, going, d]
        loss = theta**2 / spread + noise * np.log(spread * lam)  # that goes up, and the log-determinant down [T, m]
        if coming.size:
            changes = _additions(table[None], lam, unit)[0, coming] + float(price[m + 1] - price[m])
            moves.append((changes, coming[:, None]))
        if m > 1:
            moves.append((loss.sum(axis=0) + float(price[m - 1] - price[m]), going[:, None]))
        if coming.size and m:
            cross = table[:, coming[:, None], going]  # [T, coming, going]
            left = np.maximum(table[:, coming, coming][:, :, None] + cross**2 / spread[:, None], lam)
            rest = table[:, coming, d][:, :, None] + cross * (theta / spread)[:, None]
            changes = (loss[:, None] - rest**2 / left + noise * np.log(left / lam)).sum(axis=0)
            pairs = np.stack(np.broadcast_arrays(going, coming[:, None]), axis=-1)  # the one that goes is first
            moves.append((changes.ravel(), pairs.reshape(-1, 2)))
        best, toggle = -_PROGRESS, []
        for changes, coordinates in moves:
            at = int(np.argmin(changes))
            if changes[at] < best:
                best, toggle = float(changes[at]), coordinates[at].tolist()
        if not toggle:
            break
    return np.flatnonzero(inside).tolist()


def _table(sigma: Floats, xy: Floats) -> Floats:
    """Return [[Sigma, xy], [xy', 0]] of each step [T, d + 1, d + 1]."""
    d = xy.shape[-1]
    table = np.zeros((xy.size // d, d + 1, d + 1))
    table[:, :d, :d], table[:, :d, d], table[:, d, :d] = sigma, xy, xy
    return table


@lru_cache
def _prices(d: int, unit: float) -> Floats:
    return 0.5 * unit**2 * np.array([log_price(d, m) for m in range(d + 1)])
