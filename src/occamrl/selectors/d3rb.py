r"""D3RB and ED2RB: data-driven regret balancing.

Pacchiano, Dann and Gentile, "Data-driven online model selection with regret guarantees", AISTATS
2024 (arXiv 2306.02869v3). The base with the smallest potential phi_i plays. Its regret coefficient
d_i, from d_min on, is then doubled if it is refuted (D3RB), or estimated (ED2RB):

.. math:: UCB_i + d_i/\sqrt{n_i} < \max_j LCB_j \;\Rightarrow\; d_i \leftarrow 2 d_i, \qquad
    \phi_i = d_i\sqrt{n_i},

.. math:: d_i = \max\{d_{min}, \sqrt{n_i}(\max_j LCB_j - UCB_i)\}, \qquad
    \phi_i \leftarrow \min\{\max\{d_i\sqrt{n_i}, \phi_i\}, 2\phi_i\}.

Intervals are those of :mod:`occamrl.selectors.returns`. The two are the algorithms of one paper
and differ in one step, so they share a file. (The authors' code, pacchiano/modelselection, divides
totals by the square root of n before they are compared, and its widths have ln((n + 1)/delta).)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from occamrl.arrays import Floats
from occamrl.errors import require_delta, require_number
from occamrl.protocols import Played, Rule
from occamrl.selectors.returns import Returns, add_return, begin_returns, intervals


class BalancedReturns(Returns):
    """Returns, and what is balanced [M]."""

    coefficients: Floats  # d_i
    potentials: Floats  # phi_i


@dataclass(frozen=True, kw_only=True)
class D3RB(Rule):
    r"""Doubling data-driven regret balancing: double a base's coefficient whenever it is refuted.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> greedy = orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2))
    >>> arena = orl.Arena(bases=[greedy, orl.UniformRandom()], rule=orl.D3RB())
    >>> result = orl.run(arena, problem, episodes=50)

    Proved: with probability 1 - delta, regret at most of order :math:`d M\sqrt{K} + d^2\sqrt{MK}`
    up to logarithms, where d is the largest realised coefficient :math:`\max_n Regret_i(n)/\sqrt n`
    of the best base, if c is as large as the concentration bound needs. The rule is given nothing:
    no order, number of episodes or bound.

    Parameters
    ----------
    delta, scale : float
        Of w; ``scale`` is c. The authors' experiments use 1.
    coefficient : float
        d_min, where doubling begins; 1 in the authors' experiments.
    """

    guarantee = "valid, c left open"
    given = ()

    delta: float = 0.05
    scale: float = 1.0
    coefficient: float = 1.0

    def __post_init__(self) -> None:
        require_delta(self.delta)
        require_number("scale", self.scale, 0.0, 1e6)
        require_number("coefficient", self.coefficient, 0.0, 1e6, open_low=True)

    def start(self, bases: int) -> BalancedReturns:
        """Return the memory: plays, total returns, d_i and phi_i."""
        first = np.full(bases, self.coefficient)
        return {**begin_returns(bases), "coefficients": first, "potentials": first.copy()}

    def choose(self, memory: BalancedReturns, draw: np.random.Generator) -> int:
        """Return the base with the smallest potential."""
        return int(memory["potentials"].argmin())

    def update(self, memory: BalancedReturns, base: int, played: Played) -> None:
        """Add the return, and double the coefficient if it is refuted."""
        add_return(memory, base, played.value)
        low, high = intervals(memory, self.scale, self.delta)
        d = memory["coefficients"]
        root = math.sqrt(memory["plays"][base])
        # d sqrt(n) is a total: per play it is d / sqrt(n)
        if high[base] + d[base] / root < low.max():
            d[base] *= 2.0
        memory["potentials"][base] = d[base] * root


@dataclass(frozen=True, kw_only=True)
class ED2RB(D3RB):
    """Estimating data-driven regret balancing: a base's coefficient is what the returns say it is.

    >>> import occamrl as orl
    >>> greedy = orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2))
    >>> arena = orl.Arena(bases=[greedy, orl.UniformRandom()], rule=orl.ED2RB())
    >>> result = orl.run(arena, orl.make_problem("river-swim", states=3), episodes=50)

    The second algorithm of the paper of :class:`D3RB`, with the same parameters and the same kind
    of guarantee.
    """

    def update(self, memory: BalancedReturns, base: int, played: Played) -> None:
        """Add the return, estimate the coefficient, and at most double the potential."""
        add_return(memory, base, played.value)
        low, high = intervals(memory, self.scale, self.delta)
        root = math.sqrt(memory["plays"][base])
        d = max(self.coefficient, root * float(low.max() - high[base]))
        before = memory["potentials"][base]
        memory["coefficients"][base] = d
        memory["potentials"][base] = min(max(d * root, before), 2.0 * before)
