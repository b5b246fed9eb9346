r"""Radii of confidence sets, with every constant of the theory.

U is the range of a regression target: 1 for range-weighted rows (M23), H - 1 for plain ones unless another bound is
given (the paper uses H).

Linear classes, an ellipsoid :math:`\|\theta - \theta_k\|_{\Sigma_k} \le \sqrt{\beta}` with
:math:`L = \log\det(\Sigma_k/\lambda)` and :math:`\ell = \log(1/\delta)`:

============  =======================================================================================  ==============
sharp         :math:`\sqrt{\tfrac{U^2}{4}(L + 2\ell) + \lambda b^2}`                                   M11
unweighted    :math:`\tfrac{U}{2}\sqrt{L + 2\ell} + \sqrt\lambda b`                                    M11, 2nd form
paper         :math:`\sqrt{c\,(b^2 + U^2 d \log(kH) \log^2(k^2H/\delta))}`, U = H on plain rows        M10
ayoub         :math:`\tfrac{U_h}{2}\sqrt{2\ell + \log\det\Sigma_k} + \sqrt\lambda b`, U_h = H - h + 1  Ayoub 2020
============  =======================================================================================  ==============

The published code behind ``ayoub`` counts steps from 0 and writes H - h; with steps from 1 that is H - h + 1. It also
cuts values at H at every step, which the learner does with this radius unless told otherwise.

Sharp follows from a Gaussian mixture of the supermartingales :math:`\exp(\tfrac{2}{U^2}(L_t(\theta^*) - L_t(\theta)))`:
with probability :math:`1-\delta`, for all t, :math:`L_t(\theta^*) \le \min_\theta\{L_t(\theta) + \lambda\|\theta\|^2\}
+ \tfrac{U^2}{4}(L + 2\ell)`; adding :math:`\lambda\|\theta^*\|^2` on both sides leaves the ellipsoid. The
unweighted form is the usual self-normalised bound, larger by the cross term.

Finite classes: ``sharp`` keeps P while its loss is at most the mixture's (M24); ``unweighted`` (M7) and ``paper`` (M6)
keep P within a squared distance of the least-squares estimate (M4).

Mean rewards in [0, 1] from n draws, for all n at once, with :math:`\ell = \log(1/\delta)`:

============  ============================================================================  ==========================
hoeffding     :math:`\tfrac1n\sqrt{\tfrac{n+1}{4}(\log(n+1) + 2\ell)}`                      the sharp form, d = 1
bernstein     :math:`\sqrt{2 v \ell_n/n} + \tfrac{7\ell_n}{3(n-1)}`, v the sample variance    Maurer and Pontil 2009
============  ============================================================================  ==========================

with :math:`\ell_n = \log(2n(n-1)/\delta)`: their theorem 4 for every n >= 2 at level :math:`\delta/(n(n-1))`, which
sums to delta. Hoeffding's is the Gaussian mixture above for one coordinate, lambda = 1 and no bias.
"""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

import numpy as np
import scipy.linalg

from occamrl._core.compile import hot
from occamrl.errors import ParameterError, require_number
from occamrl.protocols import Floats

# ----------------------------------------------------------------------------------------------------
# The largest norm on an ellipsoid, exactly (M19).
#
# .. math:: b^2 = \max \{ \|\theta\|^2 : (\theta - \hat\theta)^\top \Sigma (\theta - \hat\theta) \le \beta \}
#
# is a maximum of a convex function, yet as easy as an eigenvalue problem: strong duality holds for one quadratic
# constraint. With :math:`\Sigma = U\,\mathrm{diag}(s)\,U^\top` and :math:`g = U^\top\hat\theta`,
#
# .. math:: b^2 = \min_{\mu \ge 1/s_{\min}} \mu\beta + \sum_j \frac{\mu s_j g_j^2}{\mu s_j - 1},
#
# a convex function of one variable whose every value is a valid bound. Its derivative is zero where the point
# :math:`\theta_j = \mu s_j g_j/(\mu s_j - 1)` reaches the boundary (the secular equation). In the
# *degenerate case* g vanishes on the eigenspace of :math:`s_{\min}` and the boundary is not reached for any
# :math:`\mu > 1/s_{\min}`: the minimum lies at the end of the interval, and the maximiser moves along that
# eigenspace, in either direction, until it meets the boundary.
#
# The paper writes :math:`\|\hat\theta\| + \sqrt{\beta/(1 + \rho_{\min}kH/2)}`, with a lower bound in place of
# :math:`s_{\min}`; even with that itself it is attained only when the estimate lies in that eigenspace.


class LargestNorm(NamedTuple):
    """The answer, and a point that attains it."""

    norm: float  # max ||theta||
    point: Floats  # [d]


def largest_norm(center: Floats, sigma: Floats, beta: float) -> LargestNorm:
    """Return the largest ||theta|| over the ellipsoid around ``center`` with matrix ``sigma`` and radius sqrt(beta).

    Examples
    --------
    >>> import numpy as np
    >>> round(largest_norm(np.array([1.0, 0.0]), np.diag([1.0, 4.0]), 4.0).norm, 12)  # the far end of the long axis
    3.0
    """
    require_number("beta", beta, 0.0, math.inf)
    s, axes = scipy.linalg.eigh(sigma)
    if not s[0] > 0.0:
        raise ParameterError("sigma", got=f"smallest eigenvalue {s[0]:.3g}", expected="a positive definite matrix")
    g = axes.T @ center
    farthest = g + farthest_step(s, g, beta)
    return LargestNorm(float(np.linalg.norm(farthest)), axes @ farthest)


def farthest_step(s: Floats, g: Floats, beta: float) -> Floats:
    """Return the step from the centre to the farthest point, along the axes.

    ``s`` are the eigenvalues, increasing, and ``g`` the centre along their axes. With mu = (1 + o)/s_min the boundary
    is reached where f(o) = sum_j s_j g_j^2/(mu s_j - 1)^2 = beta; f decreases, and every mu s_j - 1 is at least o,
    which bounds the root from above. Bisection on a logarithmic scale is exact to rounding.
    """
    if beta == 0.0:
        return np.zeros_like(g)
    weight = s * g**2

    def away(offset: float) -> Floats:
        """Return mu s_j - 1; nothing cancels at small offsets."""
        return np.asarray((s - s[0] + offset * s) / s[0])

    def reached(offset: float) -> float:
        with np.errstate(over="ignore"):  # a square that is too large stands for nothing reached
            away_squared = away(offset) ** 2
        return float(np.divide(weight, away_squared, out=np.zeros_like(weight), where=weight > 0.0).sum())

    offset, high = 0.0, math.sqrt(weight.sum() / beta)
    low = sys.float_info.epsilon**2 * max(1.0, high)
    degenerate = high <= low or reached(low) <= beta  # even next to the end of the interval it is out of reach
    if not degenerate:
        while low < (middle := math.sqrt(low * high)) < high:
            low, high = (middle, high) if reached(middle) > beta else (low, middle)
        offset = high
    t = away(offset)
    v = np.divide(g, t, out=np.zeros_like(g), where=t > 0.0)
    if degenerate:
        left = max(0.0, beta - float(s @ v**2))
        v[0] += np.copysign(np.sqrt(left / s[0]), g[0])
    return np.asarray(v * np.sqrt(beta / float(s @ v**2)))  # onto the boundary: rounding aside, it is there


# ----------------------------------------------------------------------------------------------------
# Radii of confidence sets, with every constant of the theory.


SHARP, UNWEIGHTED, PAPER, AYOUB = range(4)
ELLIPSOIDS = {"sharp": SHARP, "unweighted": UNWEIGHTED, "paper": PAPER, "ayoub": AYOUB}
FINITE_SETS = ("sharp", "unweighted", "paper")


@hot
def ellipsoid_width(
    kind: int,
    weighted: bool,
    unit: float,
    horizon: int,
    h: int,
    episodes: int,
    dimension: int,
    logdet: float,
    delta: float,
    regularization: float,
    norm_bound: float,
    paper_constant: float,
) -> float:
    """Return sqrt(beta) for step ``h`` (from 0) after ``episodes`` episodes; ``logdet`` is logdet(Sigma / lambda)."""
    level = math.log(1.0 / delta)
    if kind == SHARP:
        return math.sqrt(0.25 * unit * unit * (logdet + 2.0 * level) + regularization * norm_bound**2)
    if kind == UNWEIGHTED:
        return 0.5 * unit * math.sqrt(logdet + 2.0 * level) + math.sqrt(regularization) * norm_bound
    if kind == AYOUB:
        unit = 1.0 if weighted else float(horizon - h)
        plain = max(0.0, 2.0 * level + logdet + dimension * math.log(regularization))  # below 0 only for lambda < 1
        return 0.5 * unit * math.sqrt(plain) + math.sqrt(regularization) * norm_bound
    unit = 1.0 if weighted else float(horizon)
    k = max(1.0, float(episodes))
    noise = unit * unit * dimension * math.log(k * horizon) * math.log(k * k * horizon / delta) ** 2
    return math.sqrt(paper_constant * (norm_bound**2 + noise))


def squared_distance_radius(kind: str, *, size: int, delta: float, horizon: int, unit: float, weighted: bool) -> float:
    """Return beta of M4 for a finite class of ``size`` kernels: ``paper`` (M6) or ``unweighted`` (M7)."""
    level = math.log(size / delta)
    if kind == "paper":
        return 8.0 * (1.0 if weighted else float(horizon)) ** 2 * level
    return 2.0 * unit**2 * level


@hot
def hoeffding_width(n: int, level: float) -> float:
    """Return how far the mean of ``n`` >= 1 rewards can be from what it estimates; ``level`` is log(1/delta)."""
    return math.sqrt(0.25 * (n + 1.0) * (math.log(n + 1.0) + 2.0 * level)) / n


@hot
def bernstein_width(n: int, variance: float, level: float) -> float:
    """Return the same by the sample variance of ``n`` >= 2 rewards, as a bound from above; infinite for fewer."""
    if n < 2:
        return math.inf
    level += math.log(2.0 * n * (n - 1.0))
    return math.sqrt(2.0 * variance * level / n) + 7.0 * level / (3.0 * (n - 1.0))
