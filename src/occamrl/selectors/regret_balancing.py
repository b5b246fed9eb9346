r"""Regret bound balancing and elimination (Pacchiano, Dann, Gentile and Bartlett, 2012.13045).

    before every episode   the active base with the smallest bound R_i on its regret plays
    after it               drop, for good, every base whose bound is refuted

.. math:: UCB_i + R_i/n_i < \max_{j\ active} LCB_j .

Intervals are those of :mod:`occamrl.selectors.returns`. R_i is promised, :math:`d_i\sqrt{n_i}`, or
the sum of planned value minus return over the episodes of base i.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from occamrl.arrays import Floats
from occamrl.errors import require_delta, require_number
from occamrl.protocols import Played, Rule
from occamrl.selectors.returns import (
    ActiveReturns,
    add_return,
    begin_returns,
    intervals,
    promised_bounds,
    require_one_per_base,
    require_promised,
)


class PlannedReturns(ActiveReturns):
    """Returns, who is active, and what was planned [M]."""

    planned: Floats  # totals of planned values


@dataclass(frozen=True, kw_only=True)
class RegretBalancing(Rule):
    r"""Balance bounds R_i on the regret of bases, and drop a base whose bound is refuted.

    >>> import occamrl as orl
    >>> greedy = orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2))
    >>> bases = [greedy, orl.UniformRandom()]
    >>> arena = orl.Arena(bases=bases, rule=orl.RegretBalancing())
    >>> result = orl.run(arena, orl.make_problem("river-swim", states=3), episodes=50)

    Proved: with probability 1 - delta, regret of the order of M times the bound of the best base
    whose bound holds, if one does and c is as large as the concentration bound needs, plus terms of
    lower order.

    Parameters
    ----------
    promised : tuple of float, optional
        d_i of the promised bounds :math:`R_i(n) = d_i\sqrt n`, one for each base, for returns in
        [0, 1]. By default R_i is the sum of planned value minus return over the episodes of base i,
        which bounds the regret of optimistic bases up to noise. Where a base plans no value, 1
        takes its place, the largest possible.
    delta, scale : float
        Of w; ``scale`` is c.
    """

    guarantee = "valid, c left open, if the bounds hold"

    promised: tuple[float, ...] | None = None
    delta: float = 0.05
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_delta(self.delta)
        require_number("scale", self.scale, 0.0, 1e6)
        if self.promised is not None:
            require_promised(self.promised)

    @property
    def given(self) -> tuple[str, ...]:
        """What it must be given beforehand."""
        return () if self.promised is None else ("promised bounds",)

    def start(self, bases: int) -> PlannedReturns:
        """Return the memory: plays, total returns and planned values, and who is active."""
        if self.promised is not None:
            require_one_per_base(self.promised, bases)
        return {
            **begin_returns(bases),
            "active": np.ones(bases, np.int64),
            "planned": np.zeros(bases),
        }

    def choose(self, memory: PlannedReturns, draw: np.random.Generator) -> int:
        """Return the active base with the smallest bound; one that has not played comes first."""
        bounds = np.where(memory["plays"] == 0, -np.inf, self.bounds(memory))
        return int(np.where(memory["active"] == 1, bounds, np.inf).argmin())

    def update(self, memory: PlannedReturns, base: int, played: Played) -> None:
        """Add the episode, and drop the bases whose bounds are refuted."""
        add_return(memory, base, played.value)
        # a base that plans no value is given the largest, so that its bound is not too small
        if math.isnan(played.planned):
            memory["planned"][base] += 1.0
        else:
            memory["planned"][base] += played.planned
        active = memory["active"] == 1
        low, high = intervals(memory, self.scale, self.delta)
        optimistic = high + self.bounds(memory) / np.maximum(memory["plays"], 1)
        kept = active & (optimistic >= low[active].max())
        # bounds that depend on the data may all be refuted at once
        if kept.any():
            memory["active"][:] = kept

    def bounds(self, memory: PlannedReturns) -> Floats:
        """Return R_i [M]."""
        if self.promised is None:
            return np.asarray(memory["planned"] - memory["totals"])
        return promised_bounds(self.promised, memory["plays"])
