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

from occamrl.kernels.compile import hot

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
