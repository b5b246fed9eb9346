r"""Looking for the set of coordinates with the smallest penalised loss (M18 c).

All 2^d sets are out of reach, so the search is not exact: it begins from a few sets and steps from each by the best
addition, removal or exchange until none helps, which may be short of the minimum. One start is the best set of a
*forward path*, which adds the best coordinate until all are in; it ends with the whole set, so what is returned is
never worse than that. Another is the best set of a *beam*, which goes on from many sets of each size instead of one:
where d is larger than the number of pairs (s, a), columns depend on each other, and sets of false coordinates that
explain the rows together are local minima that single steps do not leave.

Sweeping the matrix of the normal equations on a coordinate moves that coordinate into the regression (or out again),
after which the gain of every addition, removal and exchange is read off its entries.

``sigma`` and ``xy`` are those of one regression, [d, d] and [d], or of one for each of T steps, [T, d, d] and [T, d]:
then the same coordinates are inside at all steps, and gains are summed over them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from occamrl.contracts import Floats, Ints

_PROGRESS = 1e-9  # an improvement smaller than this is rounding
_WIDTH = 16  # sets of each size that a beam goes on from
_PATIENCE = 3  # sizes without a better set after which a beam ends


def log_price(d: int, m: int) -> float:
    """Return the price of a set of m out of d coordinates that was chosen by the data (M17): log((d + 1) C(d, m)).

    The whole set costs log 2, as it needs no choice; selectors.arl_lin_dim proves that these prices are enough.
    """
    if m == d:
        return math.log(2.0)
    return math.log(d + 1) + math.lgamma(d + 1) - math.lgamma(m + 1) - math.lgamma(d - m + 1)


def forward_path(sigma: Floats, xy: Floats, regularization: float, unit: float) -> list[int]:
    """Add the best coordinate until all are in; return the best set met on the way."""
    regression = _Swept(sigma, xy, regularization, unit, ())
    order: list[int] = []
    value, best, length = 0.0, math.inf, 1
    for m in range(xy.shape[-1]):
        outside = np.flatnonzero(~regression.inside)
        gains = regression.additions(outside)
        at = int(np.argmin(gains))
        value += float(gains[at])
        regression.toggle(int(outside[at]))
        order.append(int(outside[at]))
        if value < best:
            best, length = value, m + 1
    return sorted(order[:length])


def beam(sigma: Floats, xy: Floats, regularization: float, unit: float, width: int = _WIDTH) -> list[int]:
    """Add every coordinate to each of the ``width`` best sets of a size, and keep the best; return the best met."""
    d, quarter = xy.shape[-1], 0.25 * unit**2
    price = _prices(d)
    tables, inside, values = _table(sigma, xy)[None], np.zeros((1, d), dtype=bool), np.zeros(1)
    best, chosen, waiting = math.inf, np.zeros(d, dtype=bool), 0
    for m in range(d):
        left = np.maximum(np.diagonal(tables, axis1=2, axis2=3)[..., :d], regularization)  # [sets, T, d]
        rest, grown = tables[..., :d, d], np.log(left / regularization).sum(axis=1)
        gain = (rest**2 / left).sum(axis=1) - quarter * (grown + price[m + 1] - price[m])
        after = values[:, None] - gain
        after[inside] = math.inf
        parent, coordinate = _distinct(after, inside, width)
        values, tables = after[parent, coordinate], _swept(tables[parent], coordinate)
        inside = inside[parent]
        inside[np.arange(parent.size), coordinate] = True
        waiting += 1
        if values[0] < best:
            best, chosen, waiting = float(values[0]), inside[0], 0
        if waiting == _PATIENCE:
            break
    return np.flatnonzero(chosen).tolist()


def _distinct(after: Floats, inside: NDArray[np.bool_], width: int) -> tuple[Ints, Ints]:
    """Return the best steps (set, coordinate) that lead to different sets, best first."""
    d = after.shape[1]
    flat = after.ravel()
    met: dict[bytes, int] = {}
    most = min(flat.size, width * (1 + int(inside[0].sum())))  # a set of m is reached from at most m others
    for step in sorted(np.argpartition(flat, most - 1)[:most].tolist(), key=flat.__getitem__):
        if len(met) < width and flat[step] < math.inf:
            grown = inside[step // d].copy()
            grown[step % d] = True
            met.setdefault(grown.tobytes(), step)
    steps = np.array(list(met.values()), dtype=np.int64)
    return steps // d, steps % d


def _swept(tables: Floats, coordinate: Ints) -> Floats:
    """Move one coordinate into each of several regressions (:meth:`_Swept.toggle`)."""
    each = np.arange(coordinate.size)
    pivot, column = tables[each, :, coordinate, coordinate][..., None], tables[each, :, :, coordinate]
    scaled = column / pivot  # [sets, T, d + 1]
    tables -= scaled[..., :, None] * column[..., None, :]
    tables[each, :, :, coordinate], tables[each, :, coordinate, :] = scaled, scaled
    tables[each, :, coordinate, coordinate] = -1.0 / pivot[..., 0]
    return tables


def descend(sigma: Floats, xy: Floats, regularization: float, unit: float, start: Iterable[int]) -> list[int]:
    """Take the best addition, removal or exchange until none helps; return the set."""
    return _Swept(sigma, xy, regularization, unit, start).descend()


def _table(sigma: Floats, xy: Floats) -> Floats:
    d = xy.shape[-1]
    table = np.zeros((xy.size // d, d + 1, d + 1))
    table[:, :d, :d], table[:, :d, d], table[:, d, :d] = sigma, xy, xy
    return table


def _prices(d: int) -> Floats:
    return 2.0 * np.array([log_price(d, m) for m in range(d + 1)])


class _Swept:
    """The normal equations swept on the coordinates inside; scratch of one search.

    With A = [[Sigma, xy], [xy', 0]] of each step swept on D: outside, A[j, j] is what is left of Sigma_jj given D and
    A[j, y] what is left of xy_j; inside, -A[k, k] is the entry of Sigma_DD^{-1} and A[k, y] the estimate theta_k. What
    is left is at least lambda and an entry of the inverse at most 1/lambda, whatever rounding makes of them.
    """

    def __init__(self, sigma: Floats, xy: Floats, regularization: float, unit: float, start: Iterable[int]) -> None:
        d = xy.shape[-1]
        self.d, self.lam, self.quarter = d, regularization, 0.25 * unit**2
        self.table = _table(sigma, xy)
        self.inside = np.zeros(d, dtype=bool)
        self.price = _prices(d)
        for j in start:
            self.toggle(j)

    def toggle(self, k: int) -> None:
        """Move coordinate ``k`` in or out."""
        table, sign = self.table, -1.0 if self.inside[k] else 1.0
        pivot, column, row = table[:, k, k, None].copy(), table[:, :, k].copy(), table[:, k, :].copy()
        table -= (column / pivot)[:, :, None] * row[:, None, :]
        table[:, :, k], table[:, k, :], table[:, k, k] = sign * column / pivot, sign * row / pivot, -1.0 / pivot[:, 0]
        self.inside[k] = not self.inside[k]

    def _spread(self, inside: Ints) -> Floats:
        spread: Floats = np.clip(-self.table[:, inside, inside], np.finfo(float).tiny, 1.0 / self.lam)
        return spread

    def _step(self, by: int) -> float:
        m = int(self.inside.sum())
        return self.quarter * float(self.price[m + by] - self.price[m])

    def additions(self, outside: Ints) -> Floats:
        """Return the change of J for each coordinate that could come in."""
        left, rest = np.maximum(self.table[:, outside, outside], self.lam), self.table[:, outside, self.d]
        changes: Floats = -(rest**2) / left + self.quarter * np.log(left / self.lam)
        return np.asarray(changes.sum(axis=0) + self._step(1))

    def removals(self, inside: Ints) -> Floats:
        """Return the change of J for each coordinate that could go."""
        spread, theta = self._spread(inside), self.table[:, inside, self.d]
        changes: Floats = theta**2 / spread + self.quarter * np.log(spread * self.lam)
        return np.asarray(changes.sum(axis=0) + self._step(-1))

    def exchanges(self, outside: Ints, inside: Ints) -> Floats:
        """Return the change of J for each pair, one coming in and one going."""
        spread, theta = self._spread(inside)[:, None], self.table[:, inside, self.d][:, None]
        cross = self.table[:, outside[:, None], inside]  # [T, outside, inside]
        left = np.maximum(self.table[:, outside, outside][:, :, None] + cross**2 / spread, self.lam)
        rest = self.table[:, outside, self.d][:, :, None] + cross * (theta / spread)
        going = theta**2 / spread + self.quarter * np.log(spread * self.lam)
        changes: Floats = going - rest**2 / left + self.quarter * np.log(left / self.lam)
        return np.asarray(changes.sum(axis=0))

    def descend(self) -> list[int]:
        """Take the best step until none helps; return the set."""
        for _ in range(4 * self.d):  # each step lowers J, so this only stops what rounding could keep going
            outside, inside = np.flatnonzero(~self.inside), np.flatnonzero(self.inside)
            best, step = -_PROGRESS, tuple[int, ...]()
            if outside.size:
                best, step = _better(best, step, self.additions(outside), outside)
            if inside.size > 1:
                best, step = _better(best, step, self.removals(inside), inside)
            if outside.size and inside.size:
                pairs = np.stack(np.broadcast_arrays(outside[:, None], inside), axis=-1).reshape(-1, 2)
                best, step = _better(best, step, self.exchanges(outside, inside).ravel(), pairs)
            if not step:
                break
            for k in reversed(step):
                self.toggle(k)
        return np.flatnonzero(self.inside).tolist()


def _better(best: float, step: tuple[int, ...], changes: Floats, moves: Ints) -> tuple[float, tuple[int, ...]]:
    at = int(np.argmin(changes))
    if changes[at] < best:
        return float(changes[at]), tuple(np.atleast_1d(moves[at]).tolist())
    return best, step
