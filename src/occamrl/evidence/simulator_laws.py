r"""Laws of simulators, fitted to their draws: a core, and a broad part for what lies far from it.

The core is found as by a reweighted minimum covariance determinant: mean and covariance of the
draws nearest to the median, then of all draws that are not far from these, as a Student law with
$N - d$ degrees of freedom. Draws far from the core (jumps) are rare, so that share, mean and width
of theirs, in units of the core, are those of all steps so far.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import chdtr, gammaincinv, gammaln

from occamrl.arrays import Bools, Floats
from occamrl.evidence.simulator_errors import student

_NEAREST = 0.6  # the share of draws that the core is first fitted to
_INSIDE = 0.975  # of a normal core that lies within half of the distance that is far
_FAR_DOF = 3.0  # degrees of freedom of the broad part
_FAR_SQUARES = 9.0  # of the one far draw that the prior is worth
LARGEST_ERROR = 1e6  # in units of the core


class Laws(NamedTuple):
    """Laws of m members at a step."""

    mean: Floats  # [m, d] of the core
    whiten: Floats  # [m, d, d] the inverse of L, LL' the covariance of the core
    log_det: Floats  # [m] of L
    far: Floats  # [m] the share that lies far away
    middle: Floats  # [m, d] of that share, as errors
    width: Floats  # [m, d]
    dof: float

    def first(self, count: int) -> Laws:
        """Return the laws of the first members."""
        return Laws(
            mean=self.mean[:count],
            whiten=self.whiten[:count],
            log_det=self.log_det[:count],
            far=self.far[:count],
            middle=self.middle[:count],
            width=self.width[:count],
            dof=self.dof,
        )

    def errors(self, points: Floats) -> Floats:
        """Return z = L^{-1}(x - mean) of points x [..., m, p, d]."""
        return (points - self.mean[:, None]) @ self.whiten.transpose(0, 2, 1)

    def log_density(self, z: Floats) -> Floats:
        """Return the log density of the points with errors z [..., m, p, d]."""
        d = z.shape[-1]
        dof = self.dof
        constant = gammaln((dof + d) / 2) - gammaln(dof / 2) - 0.5 * d * math.log(dof * math.pi)
        squared = np.einsum("...d,...d->...", z, z)
        core: Floats = constant - 0.5 * (dof + d) * np.log1p(squared / dof)
        return self.with_broad_part(core - self.log_det[:, None], z)

    def with_broad_part(self, core: Floats, z: Floats) -> Floats:
        """Return the log density of a core [..., m, p] and the broad part, at errors z."""
        broad = student((z - self.middle[:, None]) / self.width[:, None], _FAR_DOF).sum(axis=-1)
        broad -= (np.log(self.width).sum(axis=1) + self.log_det)[:, None]
        density: Floats = np.logaddexp(
            core + np.log1p(-self.far)[:, None], broad + np.log(self.far)[:, None]
        )
        return density


def fit_laws(
    draws: Floats, resolution: Floats, far_before: Floats, runs_before: Floats
) -> tuple[list[Laws], Floats]:
    """Return the laws of m members at each of T steps, and what is known of far draws after them.

    Parameters
    ----------
    draws : array [T, m, N, d]
    resolution : array [d]
        The noise that is part of the draws.
    far_before : array [m, 1 + 2 d]
        The number, sum and squares of draws far from the core at earlier steps.
    runs_before : array [m]
        The number of these steps.
    """
    steps, members, count, d = draws.shape
    draws = draws.reshape(-1, count, d)
    nearest = _nearest(draws, resolution)
    limit, narrowed = _core_of(d)
    _, _, errors = _moments(draws, nearest, 1 / narrowed, resolution)
    kept = nearest | (np.einsum("mnd,mnd->mn", errors, errors) < limit)
    mean, whiten, errors = _moments(draws, kept, 1 + 1 / count, resolution)
    log_det = -np.log(np.einsum("mii->mi", whiten)).sum(axis=1)

    outside = np.clip(errors, -LARGEST_ERROR, LARGEST_ERROR) * ~kept[..., None]
    number = (~kept).sum(axis=1, keepdims=True)
    sums = np.concatenate([number, outside.sum(axis=1), (outside * outside).sum(axis=1)], axis=1)
    far = far_before + np.cumsum(sums.reshape(steps, members, -1), axis=0)
    number, total, squares = np.split(far, [1, 1 + d], axis=2)
    middle = total / (number + 1)
    runs = 1 + runs_before + np.arange(steps)[:, None]
    share = (number[..., 0] + 0.5) / (count * runs + 1)
    width = np.sqrt((squares + _FAR_SQUARES) / (number + 1) - middle**2)
    laws = []
    for step in range(steps):
        rows = slice(step * members, (step + 1) * members)
        core = mean[rows], whiten[rows], log_det[rows]
        dof = float(max(count - d, 4))
        laws.append(Laws(*core, share[step], middle[step], width[step], dof))
    return laws, far[-1]


def _nearest(draws: Floats, resolution: Floats) -> Bools:
    """Return which draws [m, N] are nearest to the median, in units of the median distance."""
    distance = np.abs(draws - np.median(draws, axis=1, keepdims=True))
    scaled = distance / (np.median(distance, axis=1, keepdims=True) + 0.1 * resolution)
    squared = np.einsum("mnd,mnd->mn", scaled, scaled)
    rank = np.argsort(squared, axis=1, kind="stable").argsort(axis=1)
    return np.asarray(rank < _NEAREST * draws.shape[1])


def _moments(
    draws: Floats, kept: Bools, factor: float, resolution: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the mean of the draws that are kept, L^{-1} of their covariance, and all errors."""
    weight = kept.astype(float)
    total = weight.sum(axis=1)
    mean = np.einsum("mn,mnd->md", weight, draws) / total[:, None]
    around = draws - mean[:, None]
    products = (around * weight[..., None]).transpose(0, 2, 1) @ around
    covariance = products * (factor / (total - 1))[:, None, None]
    # Where draws are few, correlations are shrunk, so that the matrix has an inverse.
    d = draws.shape[2]
    diagonal = np.einsum("mii->mi", covariance)[:, None] * np.eye(d)
    shrink = np.maximum(0.0, 1 - (total - 1) / (2 * d))[:, None, None]
    floor = np.diag((0.1 * resolution) ** 2)
    root = np.linalg.cholesky((1 - shrink) * covariance + (shrink + 1e-9) * diagonal + floor)
    whiten = np.linalg.inv(root)
    return mean, whiten, around @ whiten.transpose(0, 2, 1)


@cache
def _core_of(d: int) -> tuple[float, float]:
    """Return which squared distance is far in d dimensions, and how the nearest draws narrow.

    The second is the covariance of the nearest 0.6 of normal draws over that of all.
    """
    inside = 2 * gammaincinv(d / 2, _INSIDE)
    nearest = 2 * gammaincinv(d / 2, _NEAREST)
    return float(4 * inside), float(chdtr(d + 2, nearest) / _NEAREST)
