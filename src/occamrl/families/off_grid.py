r"""What a truth between the points of a cover costs: the discretisation term of the radius (M15, M22).

Let the truth P* be a kernel of the box and P0 the point of the grid nearest to it, with
:math:`\|P_0 - P^*\|_1 \le \epsilon` at every (s, a). Rows are range-weighted (M23), n of them; for plain rows all that
follows is times U^2. Write e_t for the noise of y_t (range 1) and :math:`d_t = ((P_0 - P^*) V_t)(s_t, a_t)`, which is
known before y_t. Targets lie within 1/2 of their mid-range, so :math:`|d_t| \le \epsilon/2`. Then

.. math:: L(P_0) - L(P^*) = \sum_t d_t^2 - 2 \sum_t e_t d_t .

A row adds at most :math:`|d_t| (|y_t - (P_0 V_t)| + |y_t - (P^* V_t)|) \le \epsilon`, whatever happens: the term
:math:`\epsilon n` of M15. Noise pays for most of it. :math:`-2 e_t d_t` has mean 0 and range :math:`2 |d_t|`, so by
Hoeffding's lemma :math:`E e^{-4 e_t d_t} \le e^{2 d_t^2}`, and :math:`\exp(2 \sum (-2 e_t d_t - d_t^2))` is a
supermartingale: by Ville's inequality, with probability 1 - delta/2, for all n at once,

.. math:: L(P_0) - L(P^*) \le 2 \sum_t d_t^2 + \tfrac12 \log\tfrac2\delta
          \le \tfrac12 \epsilon^2 n + \tfrac12 \log\tfrac2\delta .

M21 and M22 bound L(P*) for any true kernel, whether or not the family holds it. Taken at delta/2, with the smaller of
both terms added, they bound L(P0): with probability 1 - delta the point nearest to the truth is never rejected.
"""

from __future__ import annotations

import math

from occamrl.kernels.compile import hot


@hot
def off_grid(reach: float, rows: float, delta: float) -> float:
    """Return a bound on L(P0) - L(P*) after ``rows`` rows of range 1; 0 for a family that is no cover.

    ``reach`` is epsilon: how far a kernel of the box may be from its nearest point.
    """
    if reach <= 0.0:
        return 0.0
    return min(reach * rows, 0.5 * reach * reach * rows + 0.5 * math.log(2.0 / delta))


def level(reach: float, delta: float) -> float:
    """Return the delta that is left for M21 and M22: half of it where the truth may be off the grid."""
    return 0.5 * delta if reach > 0.0 else delta
