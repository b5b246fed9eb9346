r"""The set of coordinates with the smallest penalised loss, as far as a search finds it (M18).

With Sigma = lambda I + gram over all d coordinates, a set D has the penalised loss

.. math:: J(D) = L_\lambda(\theta_D) + \tfrac14\big(\log\det(\Sigma_{DD}/\lambda)
    + 2\,price(|D|)\big), \qquad price(m) = \log\big((d + 1)\tbinom dm\big), \quad
    price(d) = \log 2,

the loss of its ridge estimate plus what its ellipsoid costs with every set of that size held
possible at once. All 2^d sets are out of reach: the search starts from the last set and from the
best sets of a forward path and of a beam, and steps by additions, removals and exchanges until none
helps. The forward path ends with the set of all coordinates, so the result is never worse than it.

**Sweeping.** Let A = [[Sigma, xy], [xy', 0]] be swept on D. Outside of D, A[j, j] is what is left
of Sigma_jj given D, and A[j, y] what is left of xy_j. Inside, -A[k, k] is the entry of
Sigma_DD^-1, and A[k, y] the estimate theta_k. What every single change would do to J can be read
off, and to make it costs d^2 operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from occamrl.arrays import Bools, Floats, Ints

_WIDTH = 16  # sets of each size that a beam goes on from
_PATIENCE = 3  # sizes without a better set after which it ends
_PROGRESS = 1e-9  # an improvement smaller than this is rounding


def sharp_support(sigma: Floats, xy: Floats, lam: float, last: Iterable[int] = ()) -> list[int]:
    """Return the set with the smallest penalised loss that the search finds; never an empty one.

    ``sigma`` [d, d] has lambda I in it. The result is increasing, and never worse than the set of
    all coordinates.
    """
    path = beam(sigma, xy, lam, width=1, patience=xy.size)
    starts = dict.fromkeys([tuple(path), tuple(beam(sigma, xy, lam)), tuple(sorted(set(last)))])
    ends = [descend(sigma, xy, lam, start) for start in starts if start]
    return min(ends, key=lambda end: penalised_loss(sigma, xy, lam, end))


def penalised_loss(sigma: Floats, xy: Floats, lam: float, chosen: Iterable[int]) -> float:
    """Return J(D) minus the sum of y^2."""
    coordinates = list(chosen)
    inside = sigma[np.ix_(coordinates, coordinates)]
    right = xy[coordinates]
    logdet = float(np.linalg.slogdet(inside / lam)[1])
    price = log_price(xy.size, len(coordinates))
    return 0.25 * (logdet + 2.0 * price) - float(right @ np.linalg.solve(inside, right))


@lru_cache
def log_price(d: int, m: int) -> float:
    """Return the price of a set of m out of d coordinates that the data chose (M17)."""
    if m == d:
        return math.log(2.0)
    return math.log(d + 1) + math.lgamma(d + 1) - math.lgamma(m + 1) - math.lgamma(d - m + 1)


def beam(
    sigma: Floats, xy: Floats, lam: float, *, width: int = _WIDTH, patience: int = _PATIENCE
) -> list[int]:
    """Grow the ``width`` best sets of each size by one coordinate; return the best set met.

    It ends when ``patience`` sizes had no better set. With ``width`` 1 and all sizes it is the
    forward path.
    """
    d = xy.size
    price = _prices(d)
    tables = _table(sigma, xy)[None]
    inside = np.zeros((1, d), dtype=bool)
    values = np.zeros(1)
    best = math.inf
    chosen = inside[0]
    waiting = 0
    for m in range(d):
        grown = values[:, None] + _additions(tables, lam) + price[m + 1] - price[m]
        # who is in cannot come in once more
        grown[inside] = math.inf
        parent, coordinate = _best_steps(grown, inside, width)
        values = grown[parent, coordinate]
        tables = _swept(tables[parent], coordinate)
        inside = inside[parent]
        inside[np.arange(parent.size), coordinate] = True
        waiting += 1
        if values[0] < best:
            best = float(values[0])
            chosen = inside[0].copy()
            waiting = 0
        if waiting == patience:
            break
    return np.flatnonzero(chosen).tolist()


def descend(sigma: Floats, xy: Floats, lam: float, start: Iterable[int]) -> list[int]:
    """Take the best addition, removal or exchange until none helps; return the set."""
    d = xy.size
    table = _table(sigma, xy)
    inside = np.zeros(d, dtype=bool)
    moves = list(start)
    # each round lowers J, so the limit only stops what rounding could keep going
    for _ in range(4 * d + 1):
        for k in moves:
            sign = -1.0 if inside[k] else 1.0
            table = _swept(table[None], np.array([k]), sign)[0]
            inside[k] = not inside[k]
        changes = _changes(table, inside, lam)
        if changes.min() >= -_PROGRESS:
            break
        # the one that goes first: the table is then that of the smaller set
        coming, going = divmod(int(changes.argmin()), d + 1)
        moves = [k for k in (going, coming) if k < d]
    return np.flatnonzero(inside).tolist()


def _best_steps(grown: Floats, inside: Bools, width: int) -> tuple[Ints, Ints]:
    """Return the parents and coordinates of the best distinct sets that one addition reaches.

    ``grown`` [sets, d] is the penalised loss after each addition, ``inside`` [sets, d] who is in.
    """
    d = inside.shape[1]
    size = int(inside[0].sum()) + 1
    # a set of this size is reached from as many parents at most
    nearest = np.argsort(grown, axis=None)[: width * size]
    possible = nearest[np.isfinite(grown.ravel()[nearest])]
    steps: dict[bytes, int] = {}
    for step in possible.tolist():
        members = inside[step // d].copy()
        members[step % d] = True
        steps.setdefault(members.tobytes(), step)
    return np.divmod(np.array(list(steps.values())[:width]), d)


def _changes(table: Floats, inside: Bools, lam: float) -> Floats:
    """Return by how much each exchange changes J [in, out]; the last index stands for nobody."""
    d = inside.size
    price = _prices(d)
    coming = np.flatnonzero(~inside)
    going = np.flatnonzero(inside)
    m = going.size
    changes = np.full((d + 1, d + 1), math.inf)
    # rounding may leave an entry of Sigma_DD^-1 that is not positive, or above 1/lambda
    spread = np.clip(-table[going, going], np.finfo(float).tiny, 1.0 / lam)
    theta = table[going, d]
    removal = theta**2 / spread + 0.25 * np.log(spread * lam)
    if m < d:
        changes[coming, d] = _additions(table[None], lam)[0, coming] + price[m + 1] - price[m]
        # what is left of Sigma_jj and xy_j given D without the one that goes
        cross = table[np.ix_(coming, going)]
        sigma = np.maximum(table[coming, coming][:, None] + cross**2 / spread, lam)
        xy = table[coming, d][:, None] + cross * (theta / spread)
        changes[np.ix_(coming, going)] = removal - xy**2 / sigma + 0.25 * np.log(sigma / lam)
    if m > 1:
        changes[d, going] = removal + price[m - 1] - price[m]
    return changes


def _additions(tables: Floats, lam: float) -> Floats:
    """Return the change of J, prices aside, for each coordinate that could come in [sets, d]."""
    # no coordinate is explained beyond its own lambda; less is rounding
    sigma = np.maximum(np.diagonal(tables, axis1=1, axis2=2)[:, :-1], lam)
    return np.asarray(0.25 * np.log(sigma / lam) - tables[:, :-1, -1] ** 2 / sigma)


def _swept(tables: Floats, coordinate: Ints, sign: float = 1.0) -> Floats:
    """Sweep one coordinate into each of several regressions [sets, d + 1, d + 1]; -1: out of it."""
    index = np.arange(coordinate.size)
    pivot = tables[index, coordinate, coordinate][:, None]
    column = tables[index, :, coordinate]
    scaled = column / pivot
    tables = tables - scaled[:, :, None] * column[:, None, :]
    tables[index, :, coordinate] = sign * scaled
    tables[index, coordinate, :] = sign * scaled
    tables[index, coordinate, coordinate] = -1.0 / pivot[:, 0]
    return tables


def _table(sigma: Floats, xy: Floats) -> Floats:
    """Return [[Sigma, xy], [xy', 0]], swept on nothing."""
    return np.block([[sigma, xy[:, None]], [xy[None], np.zeros((1, 1))]])


@lru_cache
def _prices(d: int) -> Floats:
    """Return half the price of sets of 0, ..., d coordinates: their part of J."""
    return 0.5 * np.array([log_price(d, m) for m in range(d + 1)])
