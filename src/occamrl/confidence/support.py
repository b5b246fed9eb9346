r"""Which coordinates matter: the paper's threshold (M16) and the penalised loss (M18).

The sharp rule takes the set D that minimises

.. math:: J(D) = L_\lambda(\theta_D)
   + \tfrac{U^2}{4}\Big(\log\det(\Sigma_{DD}/\lambda) + 2\log\big((d+1)\tbinom{d}{|D|}\big)\Big),

the loss of the best ridge estimate on D plus what the confidence set of D would cost with every set of that size held
possible at once. The constant :math:`\sum y^2` is left out: the regression matrix and its right-hand side are enough.

Why a missed coordinate is small: let T be the true support. The set :math:`D \cup T` was a candidate, so leaving out
:math:`T \setminus D` raised the loss by no more than the difference of two penalties, which grow with logarithms only.
The rise is at least :math:`\theta_j^2 / (\Sigma^{-1})_{jj}` for each missed j, with :math:`\theta_j` its estimate on
:math:`D \cup T`. No eigenvalue is assumed to grow: where a direction was not excited,
:math:`(\Sigma^{-1})_{jj}` is large and the statement is empty, which is why estimation phases exist. That a
coordinate too many is never kept is not proved.

The search is stepwise. Sweeping the matrix of the normal equations on a coordinate moves that coordinate into the
regression (or out again), after which the gain of every addition, removal and exchange is read off its entries.

With one kernel per step there is a regression for each and one set D for all: the coordinates that matter at some step.
Losses and log-determinants are summed over the steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from occamrl.contracts import Floats, Ints

_PROGRESS = 1e-9  # an improvement smaller than this is rounding


def log_choices(d: int, m: int) -> float:
    """Return log((d + 1) C(d, m)): the price of a set of m out of d coordinates that was chosen by the data (M17)."""
    return math.log(d + 1) + math.lgamma(d + 1) - math.lgamma(m + 1) - math.lgamma(d - m + 1)


def thresholded(theta: Floats, level: float) -> list[int]:
    """Return { j : |theta_j| >= level } (M16)."""
    return np.flatnonzero(np.abs(theta) >= level).tolist()


def _by_step(sigma: Floats, xy: Floats) -> tuple[Floats, Floats]:
    """Return the regressions with the number T of steps in front; without it they are one."""
    d = xy.shape[-1]
    return sigma.reshape(-1, d, d), xy.reshape(-1, d)


def penalised_loss(
    sigma: Floats, xy: Floats, coordinates: Iterable[int], *, regularization: float, unit: float
) -> float:
    """Return J(D) up to the constant sum of y^2, computed afresh."""
    chosen = np.asarray(list(coordinates), dtype=np.int64)
    loss = logdet = 0.0
    if chosen.size:
        for matrix, right in zip(*_by_step(sigma, xy), strict=True):
            block, rhs = matrix[np.ix_(chosen, chosen)], right[chosen]
            loss -= float(rhs @ np.linalg.solve(block, rhs))
            logdet += float(np.linalg.slogdet(block / regularization)[1])
    return loss + 0.25 * unit**2 * (logdet + 2.0 * log_choices(xy.shape[-1], chosen.size))


def detection_limits(sigma: Floats, coordinates: Iterable[int], *, regularization: float, unit: float) -> Floats:
    """Return, for every coordinate outside D, the magnitude from which on the sharp rule would take it in [d].

    What is left of Sigma_jj given D times theta_j^2 has to pay for the larger penalty; with several steps the magnitude
    is that of a coordinate which is equal at all of them. Zero for coordinates inside D.
    """
    d = sigma.shape[-1]
    inside = np.zeros(d, dtype=bool)
    inside[list(coordinates)] = True
    m, limits = int(inside.sum()), np.zeros(d)
    if m == d:
        return limits
    left = np.stack([_left(matrix, inside) for matrix in sigma.reshape(-1, d, d)])
    price = np.log(left / regularization).sum(axis=0) + 2.0 * (log_choices(d, m + 1) - log_choices(d, m))
    limits[~inside] = np.sqrt(0.25 * unit**2 * np.maximum(price, 0.0) / left.sum(axis=0))
    return limits


def _left(sigma: Floats, inside: NDArray[np.bool_]) -> Floats:
    """Return what is left of Sigma_jj given D, for every j outside D."""
    cross = sigma[np.ix_(inside, ~inside)]
    fitted = np.sum(cross * np.linalg.solve(sigma[np.ix_(inside, inside)], cross), axis=0)
    return np.asarray(np.diag(sigma)[~inside] - fitted)


def sharp_support(
    sigma: Floats, xy: Floats, *, regularization: float, unit: float = 1.0, last: Iterable[int] = ()
) -> list[int]:
    """Return the set of coordinates with the smallest penalised loss that the search finds (M18 c).

    Parameters
    ----------
    sigma, xy
        The regression matrix [d, d], lambda I included, and its right-hand side [d]; or those of T steps, [T, d, d]
        and [T, d], for which one set is found: losses and log-determinants are then sums over the steps.
    regularization
        lambda.
    unit
        The range U of a target: 1 for range-weighted rows (M23).
    last
        Where to begin: the search also begins from the best set of a forward path, and the better end is taken.

    Returns
    -------
    list of int
        Increasing; never empty, since theta* = 0 is no kernel.
    """
    starts = [forward_path(sigma, xy, regularization, unit)]
    if begin := sorted(set(last)):
        starts.append(begin)
    ends = [_Regression(sigma, xy, regularization, unit, start).descend() for start in starts]
    return min(ends, key=lambda end: penalised_loss(sigma, xy, end, regularization=regularization, unit=unit))


def forward_path(sigma: Floats, xy: Floats, regularization: float, unit: float) -> list[int]:
    """Add the best coordinate until all are in; return the best set met on the way."""
    regression = _Regression(sigma, xy, regularization, unit, ())
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


class _Regression:
    """The normal equations swept on the coordinates inside; scratch of one search.

    With A = [[Sigma, xy], [xy', 0]] swept on D: outside, A[j, j] is what is left of Sigma_jj given D and A[j, y] what
    is left of xy_j; inside, -A[k, k] is the entry of Sigma_DD^{-1} and A[k, y] the estimate theta_k.
    """

    def __init__(self, sigma: Floats, xy: Floats, regularization: float, unit: float, start: Iterable[int]) -> None:
        sigma, xy = _by_step(sigma, xy)
        steps, d = xy.shape
        self.d, self.lam, self.quarter = d, regularization, 0.25 * unit**2
        self.table = np.zeros((steps, d + 1, d + 1))
        self.table[:, :d, :d], self.table[:, :d, d], self.table[:, d, :d] = sigma, xy, xy
        self.inside = np.zeros(d, dtype=bool)
        self.price = 2.0 * np.array([log_choices(d, m) for m in range(d + 1)])
        for j in start:
            self.toggle(j)

    def toggle(self, k: int) -> None:
        """Move coordinate ``k`` in or out."""
        table, sign = self.table, -1.0 if self.inside[k] else 1.0
        pivot, column, row = table[:, k, k, None].copy(), table[:, :, k].copy(), table[:, k, :].copy()
        table -= (column / pivot)[:, :, None] * row[:, None, :]
        table[:, :, k], table[:, k, :], table[:, k, k] = sign * column / pivot, sign * row / pivot, -1.0 / pivot[:, 0]
        self.inside[k] = not self.inside[k]

    def _step(self, by: int) -> float:
        m = int(self.inside.sum())
        return self.quarter * float(self.price[m + by] - self.price[m])

    def additions(self, outside: Ints) -> Floats:
        """Return the change of J for each coordinate that could come in."""
        left, rest = self.table[:, outside, outside], self.table[:, outside, self.d]
        changes: Floats = -(rest**2) / left + self.quarter * np.log(left / self.lam)
        return np.asarray(changes.sum(axis=0) + self._step(1))

    def removals(self, inside: Ints) -> Floats:
        """Return the change of J for each coordinate that could go."""
        spread, theta = -self.table[:, inside, inside], self.table[:, inside, self.d]
        changes: Floats = theta**2 / spread + self.quarter * np.log(spread * self.lam)
        return np.asarray(changes.sum(axis=0) + self._step(-1))

    def exchanges(self, outside: Ints, inside: Ints) -> Floats:
        """Return the change of J for each pair, one coming in and one going."""
        spread, theta = -self.table[:, None, inside, inside], self.table[:, None, inside, self.d]
        cross = self.table[:, outside[:, None], inside]
        left = self.table[:, outside, outside][:, :, None] + cross**2 / spread
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
