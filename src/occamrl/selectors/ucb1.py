r"""UCB1: a base is an arm of a bandit (Auer, Cesa-Bianchi and Fischer, Machine Learning 2002).

After each base has played once, the one with the largest :math:`m_i + c\sqrt{2\ln t/n_i}` plays,
with m_i the mean of its n_i returns (figure 1 of the paper, c = 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from occamrl.errors import require_number
from occamrl.protocols import Played, Rule
from occamrl.selectors.returns import Returns, add_return, begin_returns


@dataclass(frozen=True, kw_only=True)
class UCB1(Rule):
    r"""Play the base with the largest :math:`m_i + c\sqrt{2\ln t/n_i}`, after each has played once.

    >>> import occamrl as orl
    >>> greedy = orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2))
    >>> bases = [greedy, orl.UniformRandom()]
    >>> arena = orl.Arena(bases=bases, rule=orl.UCB1())
    >>> result = orl.run(arena, orl.make_problem("river-swim", states=3), episodes=50)

    Proved for arms whose returns are independent with one mean. Bases learn, so that their means
    change: there is no guarantee here, and a base that begins badly may be left for good. The rule
    is given nothing; ``scale`` is c.
    """

    guarantee = "none"
    given = ()

    scale: float = 1.0

    def __post_init__(self) -> None:
        require_number("scale", self.scale, 0.0, 1e6)

    def start(self, bases: int) -> Returns:
        """Return the memory: plays and total returns."""
        return begin_returns(bases)

    def choose(self, memory: Returns, draw: np.random.Generator) -> int:
        """Return the base with the largest index."""
        plays = memory["plays"]
        if (plays == 0).any():
            return int(plays.argmin())
        mean = memory["totals"] / plays
        index = mean + self.scale * np.sqrt(2.0 * math.log(plays.sum()) / plays)
        return int(index.argmax())

    def update(self, memory: Returns, base: int, played: Played) -> None:
        """Add the return."""
        add_return(memory, base, played.value)
