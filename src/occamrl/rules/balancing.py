r"""Rules that compare confidence intervals of mean returns: D3RB, ED2RB, regret balancing with elimination, ECE.

M bases; n_i plays of base i with returns of mean m_i on the scale [0, 1];

.. math:: w(n) = c \sqrt{\ln(M \max(1, \ln n)/\delta)/n}, \qquad LCB_i = m_i - w(n_i), \quad UCB_i = m_i + w(n_i).

Regret is balanced: whoever has the smallest bound on its total regret plays, so that all bounds grow together. A bound
is refuted when the base's optimistic mean plus what the bound allows it to have lost *per play* is below what another
base has earned for certain: both sides are means, and a total is divided by n_i once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.errors import ParameterError, require_number, require_numbers, require_sequences
from occamrl.protocols import Field, Floats, Played, Rule
from occamrl.rules.bandits import MOST, ArrayRule, enter, statistics


def require_confidence(rule: Any) -> None:
    """Refuse a level or a scale that is none."""
    require_number("delta", rule.delta, 0.0, 1.0, open_low=True)
    require_numbers(rule, 0.0, 1e6, "scale")


def require_promises(rule: Any) -> None:
    """Refuse promised bounds that are none."""
    require_confidence(rule)
    require_number("power", rule.power, 0.0, 1.0)
    if rule.promised is not None:
        require_sequences(rule, 0.0, math.inf, "promised", open_low=True)


def require_one_each(promised: Sequence[float], bases: int) -> None:
    """Refuse another number of promises than of bases."""
    if len(promised) != bases:
        raise ParameterError("promised", got=f"{len(promised)} numbers", expected=f"one for each of {bases} bases")


def intervals(memory: dict[str, Any], scale: float, delta: float) -> tuple[Floats, Floats]:
    """Return LCB and UCB [M]; infinite for a base that has not played."""
    plays, totals = memory["plays"], memory["totals"]
    n = np.maximum(plays, 1)
    width = scale * np.sqrt(np.log(plays.size * np.maximum(1.0, np.log(n)) / delta) / n)
    width[plays == 0] = np.inf
    return totals / n - width, totals / n + width


@dataclass(frozen=True, kw_only=True)
class D3RB(ArrayRule):
    r"""Doubling data-driven regret balancing: double a base's regret coefficient whenever it is refuted.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> bases = [orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2)), orl.UniformRandom()]
    >>> result = orl.run(orl.Arena(bases=bases, rule=orl.D3RB()), problem, episodes=50)

    Pacchiano, Dann and Gentile, "Data-driven online model selection with regret guarantees", AISTATS 2024 (arXiv
    2306.02869v3), first algorithm. The base with the smallest potential :math:`\phi_i = d_i\sqrt{n_i}` plays; then

    .. math:: UCB_i + d_i/\sqrt{n_i} < \max_j LCB_j \;\Rightarrow\; d_i \leftarrow 2 d_i.

    Compared with the authors' code (pacchiano/modelselection): the same potentials, doubling and start. There totals
    are divided by the square root of n before they are compared, and widths have ln((n + 1)/delta) in place of
    ln(M ln n/delta).

    Proved: with probability 1 - delta, regret at most of order :math:`d M\sqrt{K} + d^2\sqrt{MK}` up to logarithms,
    where d is the largest realised coefficient :math:`\max_n Regret_i(n)/\sqrt n` of the best base; episodes are
    independent, and c is as large as the concentration bound needs. The rule is given nothing: no order, number of
    episodes or bound.

    Parameters
    ----------
    delta : float
    scale : float
        c. The authors' experiments use 1.
    coefficient : float
        d_min, where doubling begins; 1 in the authors' experiments, on returns in [0, 1].
    """

    guarantee = "valid, c left open"
    given = ()

    delta: float = 0.05
    scale: float = 1.0
    coefficient: float = 1.0

    def __post_init__(self) -> None:
        require_confidence(self)
        require_numbers(self, 0.0, 1e6, "coefficient", open_low=True)

    def fields(self, bases: int) -> Sequence[Field]:
        """Return what the memory holds: plays, total returns, d_i and phi_i."""
        names = ("coefficients", "potentials")
        return [*statistics(bases), *(Field(name, (bases,), 0.0, 1e300, self.coefficient) for name in names)]

    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int:
        """Return the base with the smallest potential."""
        return int(memory["potentials"].argmin())

    def update(self, memory: dict[str, Any], base: int, played: Played) -> None:
        """Enter the return, and double the coefficient if it is refuted."""
        enter(memory, base, played.value)
        low, high = intervals(memory, self.scale, self.delta)
        d, root = memory["coefficients"], math.sqrt(memory["plays"][base])
        if high[base] + d[base] / root < low.max():
            d[base] *= 2.0
        memory["potentials"][base] = d[base] * root


@dataclass(frozen=True, kw_only=True)
class ED2RB(D3RB):
    r"""Estimating data-driven regret balancing: a base's coefficient is what the returns so far say it is.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> bases = [orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2)), orl.UniformRandom()]
    >>> result = orl.run(orl.Arena(bases=bases, rule=orl.ED2RB(scale=0.1)), problem, episodes=50)

    The second algorithm of the paper of :class:`D3RB`, with the same parameters and the same kind of guarantee:

    .. math:: d_i = \max\{d_{min}, \sqrt{n_i}(\max_j LCB_j - UCB_i)\}, \quad
        \phi_i \leftarrow \min\{\max\{d_i\sqrt{n_i}, \phi_i\}, 2\phi_i\}.

    The authors' code limits the estimate alone by :math:`2\phi_i`, which is the same:
    :math:`d_{min}\sqrt{n_i} \le 2\phi_i`.
    """

    def update(self, memory: dict[str, Any], base: int, played: Played) -> None:
        """Enter the return, estimate the coefficient, and move the potential by a factor of two at most."""
        enter(memory, base, played.value)
        low, high = intervals(memory, self.scale, self.delta)
        root = math.sqrt(memory["plays"][base])
        d = max(self.coefficient, root * float(low.max() - high[base]))
        before = memory["potentials"][base]
        memory["coefficients"][base] = d
        memory["potentials"][base] = min(max(d * root, before), 2.0 * before)


@dataclass(frozen=True, kw_only=True)
class RegretBalancing(ArrayRule):
    r"""Regret bound balancing and elimination: balance regret bounds R_i, and drop a base whose bound is refuted.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> bases = [orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2)), orl.UniformRandom()]
    >>> result = orl.run(orl.Arena(bases=bases, rule=orl.RegretBalancing()), problem, episodes=50)

    Pacchiano, Dann, Gentile and Bartlett 2020 (arXiv 2012.13045). The base with the smallest R_i plays, among those
    active; i is dropped for good when

    .. math:: UCB_i + R_i/n_i < \max_{j\ active} LCB_j.

    (Dynamic balancing, Cutkosky et al. 2021, forms the set of active bases anew each time, and is not offered.)

    Proved: with probability 1 - delta, regret of the order of M times the bound of the best base whose bound holds, if
    one does, plus terms of lower order for small differences between bounds; c has to be as large as the concentration
    bound needs.

    Parameters
    ----------
    promised : tuple of float, optional
        d_i of the promised bounds :math:`R_i(n) = d_i n^{power}`, one for each base, for returns in [0, 1]. By default
        bounds are data-dependent: R_i is the sum of planned value less return over the episodes of base i, so that
        UCB_i + R_i/n_i is the mean planned value plus w(n_i). It bounds the regret of optimistic bases up to noise.
        Where a base plans no value, 1 takes its place, the largest possible.
    power : float
    delta : float
    scale : float
        c.
    """

    guarantee = "valid, c left open, if the bounds hold"

    promised: tuple[float, ...] | None = None
    power: float = 0.5
    delta: float = 0.05
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_promises(self)

    @property
    def given(self) -> tuple[str, ...]:
        """What it must be given beforehand."""
        return () if self.promised is None else ("promised bounds",)

    def fields(self, bases: int) -> Sequence[Field]:
        """Return what the memory holds: plays, total returns, total planned values, and who is active."""
        if self.promised is not None:
            require_one_each(self.promised, bases)
        most = float(MOST)
        return [*statistics(bases), Field("planned", (bases,), -most, most), Field("active", (bases,), 0, 1, 1)]

    def bounds(self, memory: dict[str, Any]) -> Floats:
        """Return R_i [M]."""
        if self.promised is None:
            return np.asarray(memory["planned"] - memory["totals"])
        return np.asarray(np.asarray(self.promised) * memory["plays"] ** self.power)

    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int:
        """Return the active base with the smallest bound; one that has not played comes first."""
        bounds = np.where(memory["plays"] == 0, -np.inf, self.bounds(memory))
        return int(np.where(memory["active"] == 1, bounds, np.inf).argmin())

    def update(self, memory: dict[str, Any], base: int, played: Played) -> None:
        """Enter the episode, and drop the bases whose bounds are refuted."""
        enter(memory, base, played.value)
        memory["planned"][base] += 1.0 if math.isnan(played.planned) else played.planned
        active = memory["active"] == 1
        low, high = intervals(memory, self.scale, self.delta)
        kept = active & (high + self.bounds(memory) / np.maximum(memory["plays"], 1) >= low[active].max())
        if kept.any():  # of data-dependent bounds, all may be refuted
            memory["active"][:] = kept

    @classmethod
    def examples(cls, bases: int) -> Sequence[Rule]:
        """Return small instances, for the contract checks."""
        return [cls(), cls(promised=tuple(1.0 + i for i in range(bases)))]


@dataclass(frozen=True, kw_only=True)
class ECE(ArrayRule):
    r"""Explore, commit, eliminate: play the simplest base that is left, and test it on a few episodes of all.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> bases = [orl.UniformRandom(), orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2))]
    >>> arena = orl.Arena(bases=bases, rule=orl.ECE(promised=[1.0, 2.0]))  # the simplest base first
    >>> result = orl.run(arena, problem, episodes=50)

    Lee, Pacchiano, Muthukumar, Kong and Brunskill, "Online model selection for reinforcement learning with function
    approximation", AISTATS 2021 (arXiv 2011.09750). Of K episodes about :math:`\sum_k k^{-1/3}` explore: a base is
    drawn uniformly among those left. In all others the simplest one left plays. Statistics are those of explored
    episodes; base i is dropped when some j > i has :math:`LCB_j > UCB_i + R_i(n_i)/n_i`.

    Proved, for the paper's constants: with high probability regret of order :math:`M^{5/6}K^{2/3}` above that of the
    smallest base whose bound holds. Here the widths are those of the other rules of this file, and the paper's coin is
    replaced by a schedule: episode k explores when the integer part of :math:`\sum_{j\le k} j^{-1/3}` grows.

    Parameters
    ----------
    promised : tuple of float
        d_i of the promised bounds :math:`R_i(n) = d_i n^{power}`, for returns in [0, 1]; bases are in the order of
        complexity.
    power : float
    delta : float
    scale : float
        c.
    """

    guarantee = "valid, c left open, if the bounds hold"
    given = ("order", "promised bounds")

    promised: tuple[float, ...]
    power: float = 0.5
    delta: float = 0.05
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_sequences(self, 0.0, math.inf, "promised", open_low=True)
        require_promises(self)

    def fields(self, bases: int) -> Sequence[Field]:
        """Return what the memory holds: explored plays, their total returns, episodes, sum of k^(-1/3), who is left."""
        require_one_each(self.promised, bases)
        counted = Field("episodes", (1,), 0, MOST), Field("explored", (1,), 0.0, float(MOST))
        return [*statistics(bases), *counted, Field("active", (bases,), 0, 1, 1)]

    def explores(self, memory: dict[str, Any]) -> float:
        """Return the sum of k^(-1/3) with the next episode if that is to explore, otherwise 0."""
        before = float(memory["explored"][0])
        after = before + (int(memory["episodes"][0]) + 1) ** (-1.0 / 3.0)
        return after if math.floor(after) > math.floor(before) else 0.0

    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int:
        """Return the simplest base that is left, or, to explore, any of them."""
        left = np.flatnonzero(memory["active"])
        return int(left[draw.integers(left.size)] if self.explores(memory) else left[0])

    def update(self, memory: dict[str, Any], base: int, played: Played) -> None:
        """Enter an explored return, and drop the bases that a more complex one has refuted."""
        explored = self.explores(memory)
        memory["episodes"] += 1
        memory["explored"][0] = explored or memory["explored"][0] + int(memory["episodes"][0]) ** (-1.0 / 3.0)
        if not explored:
            return
        enter(memory, base, played.value)
        low, high = intervals(memory, self.scale, self.delta)
        plays, active = memory["plays"], memory["active"] == 1
        allowed = high + np.asarray(self.promised) * plays**self.power / np.maximum(plays, 1)
        for i in np.flatnonzero(active)[:-1]:
            active[i] = low[i + 1 :][active[i + 1 :]].max() <= allowed[i]
        memory["active"][:] = active

    @classmethod
    def examples(cls, bases: int) -> Sequence[Rule]:
        """Return small instances, for the contract checks."""
        return [cls(promised=tuple(1.0 + i for i in range(bases)))]
