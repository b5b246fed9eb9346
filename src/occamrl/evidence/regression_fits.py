r"""Regression of changes on features: what predicts the next change, and the largest likelihood.

**Prediction.** With prior :math:`w_j \mid \sigma_j \sim N(0, \sigma_j^2/\lambda)` for the weights
of coordinate j, the next change is Student's around :math:`\phi^\top\hat w_j`, with scale
:math:`\hat\sigma_j\sqrt{1 + \phi^\top P\phi}`; :math:`P = (\lambda I + \sum\phi\phi^\top)^{-1}`
is kept by updates of a root, and :math:`\hat\sigma_j^2` from squared errors of predictions over
:math:`1 + \phi^\top P\phi`. An offset, what a grey box or a rival predicts, is subtracted first.

**Largest likelihood** of T changes over weights and constant scales: :math:`-\frac T2\sum_j(\log
(2\pi\,RSS_j/T) + 1)`, :math:`RSS_j` the least sum of squares. For terms that is one least-squares
problem; for a grey box the sum over j of :math:`\frac T2\log RSS_j` is made smaller by Gauss and
Newton's steps with Levenberg and Marquardt's damping, in the box.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from occamrl.protocols import Floats, Ints

RIDGES = np.array([1e-2, 1e-5, 1e-8])  # lambda, in standard units
_FIRST_SCALE = 1e-2  # of the noise, in standard units; one observation's worth
_LEAST = 1e-280  # below which a sum of squares is no number
_CUT = 1e-13  # of the largest eigenvalue, below which a direction is not fitted
_FAR = 1e60  # errors of functions that overflow
_DIFFERENCE = 1e-6  # of a side of the box, by which parameters are moved for a derivative
_ENOUGH = 1e-3  # nats that a step gains at least, or it is the last


class Predictor(NamedTuple):
    """Regressions of n changes on k features with L ridges; arrays are replaced, not written to."""

    root: Floats  # [L, k, k] S, of P = S S'
    mean: Floats  # [L, k, n]
    squares: Floats  # [L, n]
    freedom: float  # degrees of freedom of the squares

    @classmethod
    def begin(cls, k: int, n: int, ridges: Floats) -> Predictor:
        """Return a predictor before any data."""
        return cls(
            root=np.eye(k) / np.sqrt(ridges)[:, None, None],
            mean=np.zeros((ridges.size, k, n)),
            squares=np.full((ridges.size, n), _FIRST_SCALE**2),
            freedom=1.0,
        )

    def step(self, phi: Floats, offset: Floats, y: Floats) -> tuple[Floats, Floats, Predictor]:
        """Return log densities [L, n] of changes y [n], the predictions, and what is next."""
        inner = phi @ self.root  # [L, k] S' phi
        gain = (self.root @ inner[:, :, None])[:, :, 0]  # [L, k] P phi
        spread = 1.0 + (inner * inner).sum(axis=1)  # [L]
        location = offset + phi @ self.mean  # [L, n]
        error = y - location
        square = error * error / spread[:, None]
        scale = self.squares / self.freedom
        dof = self.freedom
        constant = gammaln((dof + 1) / 2) - gammaln(dof / 2) - 0.5 * math.log(dof * math.pi)
        density = constant - 0.5 * np.log(scale * spread[:, None])
        density -= (dof + 1) / 2 * np.log1p(square / (scale * dof))
        shrink = 1.0 / (spread + np.sqrt(spread))
        following = Predictor(
            # Potter's update keeps P positive, however small a ridge is.
            self.root - shrink[:, None, None] * gain[:, :, None] * inner[:, None],
            self.mean + gain[:, :, None] * error[:, None] / spread[:, None, None],
            self.squares + np.minimum(square, _FAR),
            self.freedom + 1.0,
        )
        return density, location, following

    def rescaled(self, squares: Floats, freedom: float) -> Predictor:
        """Return the predictor with another scale of the noise: sums of squares [n]."""
        return self._replace(squares=np.maximum(squares, _LEAST)[None], freedom=freedom)


def log_likelihood(squares: Floats, counts: Ints) -> Floats:
    """Return the largest log-likelihoods, over scales, of sums of squares [..., R, n]."""
    size = np.maximum(counts, 1)[:, None]
    mean = np.maximum(squares / size, _LEAST)
    best: Floats = -0.5 * size * (np.log(2 * math.pi * mean) + 1.0)
    return best


def sums_from(values: Floats, starts: Ints) -> Floats:
    """Return the sums of rows of values [..., T, n] from each start to the end [..., R, n]."""
    parts = np.add.reduceat(values, starts, axis=-2)
    return np.flip(np.cumsum(np.flip(parts, axis=-2), axis=-2), axis=-2)


class Fit(NamedTuple):
    """Least squares of n changes on k features, T rows."""

    weights: Floats  # [k, n]
    inverse: Floats  # [k, k] of the sum of phi phi'
    squares: Floats  # [n] what remains


def least_squares(phi: Floats, y: Floats) -> Fit:
    """Return the fit of changes y [T, n] to features phi [T, k]."""
    return _solve(phi.T @ phi, phi.T @ y, phi, y)


def _solve(gram: Floats, cross: Floats, phi: Floats, y: Floats) -> Fit:
    size = np.sqrt(np.maximum(np.diag(gram), _LEAST))
    values, vectors = np.linalg.eigh(gram / np.outer(size, size))
    kept = values > _CUT * values[-1]
    basis = vectors[:, kept] / size[:, None]
    inverse = basis / values[kept] @ basis.T
    weights = inverse @ cross
    # One step of refinement: directions that hardly vary are solved for with few digits.
    weights = weights + inverse @ (phi.T @ (y - phi @ weights))
    errors = y - phi @ weights
    return Fit(weights, inverse, (errors * errors).sum(axis=0))


def least_squares_from(phi: Floats, y: Floats, starts: Ints) -> Floats:
    """Return the least sums of squares of the rows from each start to the end [R, n].

    It is zero where there are no more rows than features.
    """
    ends = [*starts[1:].tolist(), len(y)]
    gram = np.zeros((phi.shape[1], phi.shape[1]))
    cross = np.zeros((phi.shape[1], y.shape[1]))
    least = np.zeros((starts.size, y.shape[1]))
    for r in range(starts.size - 1, -1, -1):
        first = starts[r]
        part = phi[first : ends[r]]
        gram = gram + part.T @ part
        cross = cross + part.T @ y[first : ends[r]]
        if len(y) - first > phi.shape[1]:
            least[r] = _solve(gram, cross, phi[first:], y[first:]).squares
    return least


# Grey boxes ---------------------------------------------------------------------------------------

Residuals = Callable[[Floats], Floats]  # of shares of the box [p], what is not explained [T, n]


def finite(residuals: Floats) -> Floats:
    """Return residuals without what is no number: those are far."""
    return np.clip(np.nan_to_num(residuals, nan=_FAR, posinf=_FAR, neginf=-_FAR), -_FAR, _FAR)


class Climb(NamedTuple):
    """Where a climb came to."""

    share: Floats  # [p] of the box
    loss: float  # half of the sum over coordinates of T log RSS
    curvature: Floats  # [p, p] the second derivative of the loss there, by Gauss and Newton


def loss_of(errors: Floats) -> float:
    """Return half of the sum over coordinates of T log RSS, of residuals [T, n]."""
    squares = np.maximum((errors * errors).sum(axis=0), _LEAST)
    return 0.5 * len(errors) * float(np.log(squares).sum())


def climb(residuals: Residuals, share: Floats, steps: int, fixed: int = -1) -> Climb:
    """Return where Gauss and Newton's damped steps come to, from shares of the box [p].

    The parameter ``fixed`` stays where it is.
    """
    share = share.copy()
    errors = residuals(share)
    loss = loss_of(errors)
    damping = 1e-3
    curvature = np.zeros((share.size, share.size))
    for _ in range(steps):
        slopes = slopes_of(residuals, share, errors)
        precision = len(errors) / np.maximum((errors * errors).sum(axis=0), _LEAST)
        gradient = np.einsum("ptn,tn,n->p", slopes, errors, precision)
        curvature = np.einsum("ptn,qtn,n->pq", slopes, slopes, precision)
        outward = ((share <= 0.0) & (gradient > 0.0)) | ((share >= 1.0) & (gradient < 0.0))
        free = np.flatnonzero(~outward & (np.arange(share.size) != fixed))
        if not free.size:
            break
        gained = 0.0
        for _ in range(6):
            inner = curvature[np.ix_(free, free)]
            damped = inner + damping * np.diag(np.diag(inner)) + 1e-12 * np.eye(free.size)
            trial = share.copy()
            moved = np.linalg.lstsq(damped, -gradient[free], rcond=None)[0]
            trial[free] = np.clip(share[free] + moved, 0.0, 1.0)
            trial_errors = residuals(trial)
            trial_loss = loss_of(trial_errors)
            if trial_loss < loss:
                gained = loss - trial_loss
                share = trial
                errors = trial_errors
                loss = trial_loss
                damping = max(damping / 10.0, 1e-9)
                break
            damping *= 10.0
        if gained < _ENOUGH:
            break
    return Climb(share, loss, curvature)


def slopes_of(residuals: Residuals, share: Floats, errors: Floats) -> Floats:
    """Return the derivatives of residuals by shares of the box [p, T, n]."""
    slopes = np.zeros((share.size, *errors.shape))
    for p in range(share.size):
        moved = share.copy()
        moved[p] += _DIFFERENCE if share[p] < 0.5 else -_DIFFERENCE
        slopes[p] = np.clip((residuals(moved) - errors) / (moved[p] - share[p]), -_FAR, _FAR)
    return slopes
