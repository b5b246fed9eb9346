"""Bandit rules, for whom a base is an arm: UCB1 and EXP3.P. What they prove is about arms, not about learners."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.errors import ParameterError, require_integers, require_number, require_numbers
from occamrl.protocols import Field, Floats, Played, Rule

MOST = 2**53  # episodes


def drawn(probability: Floats, draw: np.random.Generator) -> int:
    """Return an index drawn with these probabilities."""
    sums = probability.cumsum()
    return min(int(sums.searchsorted(draw.random() * sums[-1], side="right")), probability.size - 1)


class ArrayRule(Rule):
    """A rule whose memory is a dict of arrays of fixed sizes."""

    @abstractmethod
    def fields(self, bases: int) -> Sequence[Field]:
        """Return what each array of the memory holds."""

    def start(self, bases: int) -> dict[str, Any]:
        """Return the memory before any data."""
        return {each.name: each.make() for each in self.fields(bases)}

    def resume(self, bases: int, memory: dict[str, Any]) -> None:
        """Refuse a memory from a file that this rule cannot have."""
        for each in self.fields(bases):
            each.require(memory.get(each.name), "memory")
            if each.name == "active" and not memory["active"].any():
                raise ParameterError("memory.active", got="no base", expected="at least one")

    @classmethod
    def examples(cls, bases: int) -> Sequence[Rule]:
        """Return small instances, for the contract checks."""
        return [cls()]


def statistics(bases: int) -> list[Field]:
    """Return the plays and total returns of bases."""
    return [Field("plays", (bases,), 0, MOST), Field("totals", (bases,), 0.0, float(MOST))]


def enter(memory: dict[str, Any], base: int, value: float) -> None:
    """Add a return to the statistics of a base."""
    memory["plays"][base] += 1
    memory["totals"][base] += value


@dataclass(frozen=True, kw_only=True)
class UCB1(ArrayRule):
    r"""Play the base with the largest :math:`m_i + c\sqrt{2\ln t/n_i}`, after each has played once.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> bases = [orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2)), orl.UniformRandom()]
    >>> result = orl.run(orl.Arena(bases=bases, rule=orl.UCB1(scale=0.1)), problem, episodes=50)

    Auer, Cesa-Bianchi and Fischer, Machine Learning 2002, figure 1, on returns in [0, 1]. Proved for arms whose returns
    are independent with one mean. Bases learn, so that their means change: there is no guarantee here, and a base that
    begins badly may be left for good. The rule is given nothing.

    Parameters
    ----------
    scale : float
        c; 1 in the paper.
    """

    guarantee = "none"
    given = ()

    scale: float = 1.0

    def __post_init__(self) -> None:
        require_numbers(self, 0.0, 1e6, "scale")

    def fields(self, bases: int) -> Sequence[Field]:
        """Return what the memory holds: plays and total returns."""
        return statistics(bases)

    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int:
        """Return the base with the largest index."""
        plays = memory["plays"]
        if (plays == 0).any():
            return int(plays.argmin())
        index = memory["totals"] / plays + self.scale * np.sqrt(2.0 * math.log(plays.sum()) / plays)
        return int(index.argmax())

    def update(self, memory: dict[str, Any], base: int, played: Played) -> None:
        """Enter the return."""
        enter(memory, base, played.value)


@dataclass(frozen=True, kw_only=True)
class EXP3P(ArrayRule):
    r"""Exponential weights of estimated gains, whose bias keeps them above the true ones with high probability.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> bases = [orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2)), orl.UniformRandom()]
    >>> result = orl.run(orl.Arena(bases=bases, rule=orl.EXP3P(episodes=50)), problem, episodes=50)

    Bubeck and Cesa-Bianchi, "Regret analysis of stochastic and nonstochastic multi-armed bandit problems", 2012,
    section 3.2 (after Auer et al. 2002), with the constants of its theorem for one delta. With x the return in [0, 1],

    .. math:: p_i = (1 - \gamma)\frac{e^{\eta G_i}}{\sum_j e^{\eta G_j}} + \frac{\gamma}{M}, \qquad
        G_i \leftarrow G_i + \frac{x\,1[i\ played] + \beta}{p_i},

    :math:`\gamma = 1.05\sqrt{M\ln M/K}`, :math:`\eta = 0.95\sqrt{\ln M/(KM)}`,
    :math:`\beta = \sqrt{\ln(M/\delta)/(KM)}`.

    Proved, for arms: with probability 1 - delta the regret against the best sequence of returns is at most
    :math:`5.15\sqrt{KM\ln(M/\delta)}`. A base that had played more would have learned more, which these sequences leave
    out, so that nothing is proved about learners. The rule is given K.

    Parameters
    ----------
    episodes : int
        K.
    delta : float
    scale : float
        Factor of eta; 1 in the theorem.
    """

    guarantee = "none"
    given = ("K",)

    episodes: int
    delta: float = 0.05
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_integers(self, episodes=1)
        require_number("delta", self.delta, 0.0, 1.0, open_low=True)
        require_numbers(self, 0.0, 1e6, "scale")

    def fields(self, bases: int) -> Sequence[Field]:
        """Return what the memory holds: the estimated gains G."""
        return [Field("gains", (bases,), 0.0, 1e300)]

    def probabilities(self, memory: dict[str, Any]) -> Floats:
        """Return p [M]."""
        gains = memory["gains"]
        bases, episodes = gains.size, self.episodes
        gamma = min(1.0, 1.05 * math.sqrt(bases * math.log(bases) / episodes))
        eta = self.scale * 0.95 * math.sqrt(math.log(bases) / (episodes * bases))
        weights = np.exp(eta * (gains - gains.max()))
        return np.asarray((1.0 - gamma) * weights / weights.sum() + gamma / bases)

    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int:
        """Draw a base."""
        return drawn(self.probabilities(memory), draw)

    def update(self, memory: dict[str, Any], base: int, played: Played) -> None:
        """Add the estimated gains of all bases."""
        p, gains = self.probabilities(memory), memory["gains"]
        beta = math.sqrt(math.log(gains.size / self.delta) / (self.episodes * gains.size))
        gains += beta / p
        gains[base] += played.value / p[base]

    @classmethod
    def examples(cls, bases: int) -> Sequence[Rule]:
        """Return small instances, for the contract checks."""
        return [cls(episodes=200)]
