r"""The largest norm on an ellipsoid, exactly (M19).

.. math:: b^2 = \max \{ \|\theta\|^2 : (\theta - \hat\theta)^\top \Sigma (\theta - \hat\theta) \le \beta \}

is a maximum of a convex function, yet as easy as an eigenvalue problem: strong duality holds for one quadratic
constraint. With :math:`\Sigma = U\,\mathrm{diag}(s)\,U^\top` and :math:`g = U^\top\hat\theta`,

.. math:: b^2 = \min_{\mu \ge 1/s_{\min}} \mu\beta + \sum_j \frac{\mu s_j g_j^2}{\mu s_j - 1},

a convex function of one variable whose every value is a valid bound. Its derivative is zero where the point
:math:`\theta_j = \mu s_j g_j/(\mu s_j - 1)` reaches the boundary (the secular equation). In the
*degenerate case* g vanishes on the eigenspace of :math:`s_{\min}` and the boundary is not reached for any
:math:`\mu > 1/s_{\min}`: the minimum lies at the end of the interval, and the maximiser moves along that eigenspace, in
either direction, until it meets the boundary.

The paper writes :math:`\|\hat\theta\| + \sqrt{\beta/s_{\min}}`, an upper bound that is attained only when the
estimate lies in that eigenspace.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from occamrl.contracts import Floats
from occamrl.errors import ParameterError


class LargestNorm(NamedTuple):
    """The answer with its proof: a point that attains it and a multiplier that certifies it."""

    norm: float  # max ||theta||
    point: Floats  # [d] a maximiser
    multiplier: float  # mu: the dual value at mu is norm^2 up to rounding
    degenerate: bool  # the maximiser is not unique: it and its mirror image along the longest axis


def largest_norm(center: Floats, sigma: Floats, beta: float) -> LargestNorm:
    """Return the largest ||theta|| over the ellipsoid around ``center`` with matrix ``sigma`` and radius sqrt(beta).

    Examples
    --------
    >>> import numpy as np
    >>> round(largest_norm(np.array([1.0, 0.0]), np.diag([1.0, 4.0]), 4.0).norm, 12)  # the far end of the long axis
    3.0
    """
    if not (beta >= 0.0 and np.isfinite(beta)):
        raise ParameterError("beta", got=beta, expected="a finite number >= 0")
    s, axes = scipy.linalg.eigh(sigma)
    if not s[0] > 0.0:
        raise ParameterError("sigma", got=f"smallest eigenvalue {s[0]:.3g}", expected="a positive definite matrix")
    g = axes.T @ center
    v, multiplier, degenerate = farthest(s, g, beta)
    return LargestNorm(float(np.linalg.norm(g + v)), axes @ (g + v), multiplier, degenerate)


def farthest(s: Floats, g: Floats, beta: float) -> tuple[Floats, float, bool]:
    """Return the step from the centre to the farthest point, along the axes; its multiplier; whether degenerate.

    ``s`` are the eigenvalues, increasing, and ``g`` the centre along their axes.
    """
    if beta == 0.0:
        return np.zeros_like(g), np.inf, False
    offset, degenerate = _offset(s, g, beta)
    t = (s - s[0] + offset * s) / s[0]  # mu s_j - 1, with mu = (1 + offset) / s_min: nothing cancels at small offsets
    v = np.divide(g, t, out=np.zeros_like(g), where=t > 0.0)
    if degenerate:
        left = max(0.0, beta - float(s @ v**2))
        v[0] += np.copysign(np.sqrt(left / s[0]), g[0])
    v *= np.sqrt(beta / float(s @ v**2))  # onto the boundary: rounding aside, it is there
    return v, float((1.0 + offset) / s[0]), degenerate


def dual_bound(center: Floats, sigma: Floats, beta: float, multiplier: float) -> float:
    """Return a bound on max ||theta||, valid for every ``multiplier`` >= 1/s_min: what certifies ``largest_norm``."""
    s, axes = scipy.linalg.eigh(sigma)
    g = axes.T @ center
    t = multiplier * s - 1.0
    terms = np.divide(multiplier * s * g**2, t, out=np.where(g == 0.0, 0.0, np.inf), where=t > 0.0)
    return float(np.sqrt(multiplier * beta + terms.sum()))


def _offset(s: Floats, g: Floats, beta: float) -> tuple[float, bool]:
    """Return mu s_min - 1 at the optimum, and whether it is the degenerate zero.

    The boundary is reached where f(o) = sum_j s_j g_j^2 / (mu s_j - 1)^2 = beta, mu = (1 + o) / s_min; f decreases.
    Every mu s_j - 1 is at least o, which bounds the root from above; bisection on a logarithmic scale is exact to
    rounding.
    """
    gap, slope = (s - s[0]) / s[0], s / s[0]
    weight = s * g**2

    def reached(offset: float) -> float:
        with np.errstate(divide="ignore", over="ignore"):
            return float(
                np.divide(weight, (gap + slope * offset) ** 2, out=np.zeros_like(weight), where=weight > 0.0).sum()
            )

    high = float(np.sqrt(weight.sum() / beta))
    tiny = float(np.finfo(float).eps ** 2) * max(1.0, high)
    if high <= tiny or reached(tiny) <= beta:
        return 0.0, True  # even next to the end of the interval the boundary is out of reach
    low = tiny
    for _ in range(200):
        middle = float(np.sqrt(low * high))
        if middle <= low or middle >= high:
            break
        low, high = (middle, high) if reached(middle) > beta else (low, middle)
    return high, False
