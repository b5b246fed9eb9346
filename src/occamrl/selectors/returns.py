r"""What rules over learners share: the returns of bases, confidence intervals, and promised bounds.

M bases; n_i plays of base i with returns of mean m_i on the scale [0, 1];

.. math:: w(n) = c \sqrt{\ln(M \max(1, \ln n)/\delta)/n}, \qquad
    LCB_i = m_i - w(n_i), \quad UCB_i = m_i + w(n_i).

**Balancing.** Whoever has the smallest bound on its total regret plays, so that all bounds grow
together. A bound is refuted when the base's optimistic mean plus what the bound allows it to have
lost *per play* is below what another base has earned for certain: both sides are means, and a total
is divided by n_i once.

**Promised bounds** are :math:`R_i(n) = d_i\sqrt n`, with d_i given for each base.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from occamrl.arrays import Floats, Ints
from occamrl.errors import ParameterError, require_number


class Returns(TypedDict):
    """What a rule remembers of every base [M]."""

    plays: Ints
    totals: Floats  # of returns


class ActiveReturns(Returns):
    """The same for a rule that drops bases."""

    active: Ints  # 1 or 0


def begin_returns(bases: int) -> Returns:
    """Return the plays and total returns of bases before any data."""
    return {"plays": np.zeros(bases, np.int64), "totals": np.zeros(bases)}


def add_return(memory: Returns, base: int, value: float) -> None:
    """Add the return of an episode to the statistics of a base."""
    memory["plays"][base] += 1
    memory["totals"][base] += value


def intervals(memory: Returns, scale: float, delta: float) -> tuple[Floats, Floats]:
    """Return LCB and UCB [M]; infinite for a base that has not played."""
    plays = memory["plays"]
    n = np.maximum(plays, 1)
    mean = memory["totals"] / n
    width = scale * np.sqrt(np.log(plays.size * np.maximum(1.0, np.log(n)) / delta) / n)
    # nothing is known of a base that has not played: it can neither refute nor be refuted
    width[plays == 0] = np.inf
    return mean - width, mean + width


def require_promised(promised: object) -> None:
    """Refuse coefficients d_i that are not positive numbers."""
    if not isinstance(promised, (tuple, list)):
        expected = "a tuple of numbers, one per base"
        raise ParameterError("promised", got=f"{promised!r:.80}", expected=expected)
    for number in promised:
        require_number("promised", number, 0.0, math.inf, open_low=True)


def require_one_per_base(promised: Sequence[float], bases: int) -> None:
    """Refuse more or fewer promises than bases."""
    if len(promised) != bases:
        expected = f"one for each of {bases} bases"
        raise ParameterError("promised", got=f"{len(promised)} numbers", expected=expected)


def promised_bounds(promised: Sequence[float], plays: Ints) -> Floats:
    """Return R_i(n_i) [M]."""
    return np.asarray(np.asarray(promised) * np.sqrt(plays))
