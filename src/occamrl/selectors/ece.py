r"""ECE: explore, commit, eliminate.

Lee, Pacchiano, Muthukumar, Kong and Brunskill, "Online model selection for reinforcement learning
with function approximation", AISTATS 2021 (arXiv 2011.09750).

    explore     of K episodes about sum_k k^(-1/3): a base is drawn uniformly among those left
    commit      in all others the simplest one left plays
    eliminate   base i is dropped when some j > i has LCB_j > UCB_i + R_i(n_i)/n_i

Statistics are those of explored episodes, intervals and promised bounds those of
:mod:`occamrl.selectors.returns`. A schedule replaces the paper's coin: episode k explores when the
integer part of :math:`\sum_{j\le k} j^{-1/3}` grows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from occamrl.arrays import Floats, Ints
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


class ExploredReturns(ActiveReturns):
    """Returns of explored episodes, who is active, and where in the schedule the rule is."""

    episodes: Ints  # [1] played
    explored: Floats  # [1] the sum of k^(-1/3)


@dataclass(frozen=True, kw_only=True)
class ECE(Rule):
    r"""Explore, commit, eliminate: play the simplest base left, and test it on a few episodes.

    >>> import occamrl as orl
    >>> greedy = orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2))
    >>> bases = [greedy, orl.UniformRandom()]
    >>> arena = orl.Arena(bases=bases, rule=orl.ECE(promised=(1.0, 2.0)))
    >>> result = orl.run(arena, orl.make_problem("river-swim", states=3), episodes=50)

    Proved, for the paper's constants: with high probability regret of order :math:`M^{5/6}K^{2/3}`
    above that of the smallest base whose bound holds. Here the widths are those of the other rules.

    Parameters
    ----------
    promised : tuple of float
        d_i of the promised bounds :math:`R_i(n) = d_i\sqrt n`; bases are in the order of
        complexity.
    delta, scale : float
        Of w; ``scale`` is c.
    """

    guarantee = "valid, c left open, if the bounds hold"
    given = ("order", "promised bounds")

    promised: tuple[float, ...]
    delta: float = 0.05
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_delta(self.delta)
        require_number("scale", self.scale, 0.0, 1e6)
        require_promised(self.promised)

    def start(self, bases: int) -> ExploredReturns:
        """Return the memory before any data."""
        require_one_per_base(self.promised, bases)
        return {
            **begin_returns(bases),
            "active": np.ones(bases, np.int64),
            "episodes": np.zeros(1, np.int64),
            "explored": np.zeros(1),
        }

    def choose(self, memory: ExploredReturns, draw: np.random.Generator) -> int:
        """Return the simplest base that is left, or, to explore, any of them."""
        active = np.flatnonzero(memory["active"])
        if explores(memory):
            return int(active[draw.integers(active.size)])
        return int(active[0])

    def update(self, memory: ExploredReturns, base: int, played: Played) -> None:
        """Add an explored return, and drop the bases that a more complex one has refuted."""
        explored = explores(memory)
        memory["explored"][0] = next_sum(memory)
        memory["episodes"] += 1
        # the test is one of explored episodes, which all bases had the same chance to play
        if not explored:
            return
        add_return(memory, base, played.value)
        low, high = intervals(memory, self.scale, self.delta)
        bounds = promised_bounds(self.promised, memory["plays"])
        allowed = high + bounds / np.maximum(memory["plays"], 1)
        active = memory["active"] == 1
        # from simple to complex; nobody is left to refute the most complex base
        for i in np.flatnonzero(active)[:-1]:
            active[i] = low[i + 1 :][active[i + 1 :]].max() <= allowed[i]
        memory["active"][:] = active


def next_sum(memory: ExploredReturns) -> float:
    """Return the sum of k^(-1/3) up to the next episode."""
    k = int(memory["episodes"][0]) + 1
    return float(memory["explored"][0]) + math.pow(k, -1.0 / 3.0)


def explores(memory: ExploredReturns) -> bool:
    """Return whether the next episode explores."""
    return math.floor(next_sum(memory)) > math.floor(float(memory["explored"][0]))
