r"""Which coordinates matter: the paper's threshold (M16) and the penalised loss (M18).

The sharp rule looks for the set D with the smallest

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

The search itself is in :mod:`occamrl.confidence.subset_search`.

With one kernel per step there is a regression for each and one set D for all: the coordinates that matter at some step.
Losses and log-determinants are summed over the steps, and the statement above holds at each of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from occamrl.confidence.subset_search import beam, descend, forward_path, log_price
from occamrl.contracts import Floats


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
    return loss + 0.25 * unit**2 * (logdet + 2.0 * log_price(xy.shape[-1], chosen.size))


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
    left = np.stack([_left(matrix, inside, regularization) for matrix in sigma.reshape(-1, d, d)])
    price = np.log(left / regularization).sum(axis=0) + 2.0 * (log_price(d, m + 1) - log_price(d, m))
    limits[~inside] = np.sqrt(0.25 * unit**2 * np.maximum(price, 0.0) / left.sum(axis=0))
    return limits


def _left(sigma: Floats, inside: NDArray[np.bool_], regularization: float) -> Floats:
    """Return what is left of Sigma_jj given D, for every j outside D."""
    cross = sigma[np.ix_(inside, ~inside)]
    fitted = np.sum(cross * np.linalg.solve(sigma[np.ix_(inside, inside)], cross), axis=0)
    return np.asarray(np.maximum(np.diag(sigma)[~inside] - fitted, regularization))  # as it is, rounding aside


def missed_limits(sigma: Floats, coordinates: Iterable[int], *, regularization: float, unit: float) -> Floats:
    """Return, for every coordinate outside D, what its estimate in all coordinates is at most if J(D) <= J([d]) [d].

    That is so for the D of :func:`sharp_support`; with several steps, for the estimate of any of them. Zero for
    coordinates inside D.
    """
    d, chosen = sigma.shape[-1], list(coordinates)
    nothing = np.zeros(sigma.shape[:-1])
    whole, part = (
        penalised_loss(sigma, nothing, some, regularization=regularization, unit=unit) for some in (range(d), chosen)
    )
    spread = np.diagonal(np.linalg.inv(sigma.reshape(-1, d, d)), axis1=1, axis2=2).max(axis=0)
    limits: Floats = np.sqrt(max(0.0, whole - part) * spread)
    limits[chosen] = 0.0
    return limits


def sharp_support(
    sigma: Floats, xy: Floats, *, regularization: float, unit: float = 1.0, last: Iterable[int] = ()
) -> list[int]:
    """Return the set of coordinates with the smallest penalised loss that the search finds (M18 c).

    Its loss is never above that of the set of all coordinates, with which every forward path ends.

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
        Where to begin: the search also begins from the best sets of a forward path and of a beam, and the best end is
        taken.

    Returns
    -------
    list of int
        Increasing; never empty, since theta* = 0 is no kernel.
    """
    problem = (sigma, xy, regularization, unit)
    starts = [forward_path(*problem), beam(*problem)]
    if begin := sorted(set(last)):
        starts.append(begin)
    ends = [descend(*problem, start) for start in starts]
    return min(ends, key=lambda end: penalised_loss(sigma, xy, end, regularization=regularization, unit=unit))
