r"""Rules over base learners: D3RB, ED2RB, regret balancing with elimination, ECE, Stochastic CORRAL and UCB1.

M bases; n_i plays of base i with returns of mean m_i on the scale [0, 1];

.. math:: w(n) = c \sqrt{\ln(M \max(1, \ln n)/\delta)/n}, \qquad LCB_i = m_i - w(n_i), \quad UCB_i = m_i + w(n_i).

Regret is balanced: whoever has the smallest bound on its total regret plays, so that all bounds grow together. A bound
is refuted when the base's optimistic mean plus what the bound allows it to have lost *per play* is below what another
base has earned for certain: both sides are means, and a total is divided by n_i once. Stochastic CORRAL descends over
bases that are smoothed by playing twice; for UCB1 a base is an arm of a bandit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from occamrl.errors import ParameterError, require_delta, require_integer, require_number
from occamrl.protocols import Floats, Played, Replay, Rule


def statistics(bases: int) -> dict[str, Any]:
    """Return the plays and total returns of bases before any data."""
    return {"plays": np.zeros(bases, np.int64), "totals": np.zeros(bases)}


def enter(memory: dict[str, Any], base: int, value: float) -> None:
    """Add a return to the statistics of a base."""
    memory["plays"][base] += 1
    memory["totals"][base] += value


def intervals(memory: dict[str, Any], scale: float, delta: float) -> tuple[Floats, Floats]:
    """Return LCB and UCB [M]; infinite for a base that has not played."""
    plays, totals = memory["plays"], memory["totals"]
    n = np.maximum(plays, 1)
    width = scale * np.sqrt(np.log(plays.size * np.maximum(1.0, np.log(n)) / delta) / n)
    width[plays == 0] = np.inf
    return totals / n - width, totals / n + width


@dataclass(frozen=True, kw_only=True)
class D3RB(Rule):
    r"""Doubling data-driven regret balancing: double a base's regret coefficient whenever it is refuted.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> bases = [orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2)), orl.UniformRandom()]
    >>> result = orl.run(orl.Arena(bases=bases, rule=orl.D3RB()), problem, episodes=50)

    Pacchiano, Dann and Gentile, "Data-driven online model selection with regret guarantees",
    AISTATS 2024 (arXiv 2306.02869v3), first algorithm. The base with the smallest potential
    :math:`\phi_i = d_i\sqrt{n_i}` plays; then

    .. math:: UCB_i + d_i/\sqrt{n_i} < \max_j LCB_j \;\Rightarrow\; d_i \leftarrow 2 d_i.

    Proved: with probability 1 - delta, regret at most of order :math:`d M\sqrt{K} + d^2\sqrt{MK}` up to logarithms,
    where d is the largest realised coefficient :math:`\max_n Regret_i(n)/\sqrt n` of the best base, if c is as large as
    the concentration bound needs. The rule is given nothing: no order, number of episodes or bound. (The authors' code,
    pacchiano/modelselection, divides totals by the square root of n before they are compared, and its widths have
    ln((n + 1)/delta).)

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

    def start(self, bases: int) -> dict[str, Any]:
        """Return the memory: plays, total returns, d_i and phi_i."""
        first = np.full(bases, self.coefficient)
        return {**statistics(bases), "coefficients": first, "potentials": first.copy()}

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

    The second algorithm of the paper of :class:`D3RB`, with the same parameters and the same kind
    of guarantee:

    .. math:: d_i = \max\{d_{min}, \sqrt{n_i}(\max_j LCB_j - UCB_i)\}, \quad
        \phi_i \leftarrow \min\{\max\{d_i\sqrt{n_i}, \phi_i\}, 2\phi_i\}.
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
class _Promised(Rule):
    r"""A rule that may be given bounds :math:`R_i(n) = d_i\sqrt n` on the regret of its bases."""

    guarantee = "valid, c left open, if the bounds hold"
    given: ClassVar[Any]  # not empty: the bounds must be promised

    promised: tuple[float, ...] | None
    delta: float = 0.05
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_delta(self.delta)
        require_number("scale", self.scale, 0.0, 1e6)
        if not isinstance(self.promised, (tuple, list)) and (
            self.promised is not None or self.given
        ):
            raise ParameterError(
                "promised",
                got=f"{self.promised!r:.80}",
                expected="a tuple of numbers, one per base",
            )
        for number in self.promised or ():
            require_number("promised", number, 0.0, math.inf, open_low=True)

    def start(self, bases: int) -> dict[str, Any]:
        """Return the memory: plays, total returns, and which bases are active."""
        if self.promised is not None and len(self.promised) != bases:
            got = f"{len(self.promised)} numbers"
            raise ParameterError("promised", got=got, expected=f"one for each of {bases} bases")
        return {**statistics(bases), "active": np.ones(bases, np.int64)}

    def bounds(self, memory: dict[str, Any]) -> Floats:
        """Return R_i(n_i) [M]."""
        return np.asarray(np.asarray(self.promised) * np.sqrt(memory["plays"]))


@dataclass(frozen=True, kw_only=True)
class RegretBalancing(_Promised):
    r"""Regret bound balancing and elimination: balance regret bounds R_i, and drop a base whose bound is refuted.

    Pacchiano, Dann, Gentile and Bartlett 2020 (arXiv 2012.13045). The base with the smallest R_i
    plays, among those active; i is dropped for good when :math:`UCB_i + R_i/n_i < \max_{j\ active}
    LCB_j`.

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

    promised: tuple[float, ...] | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """What it must be given beforehand."""
        return () if self.promised is None else ("promised bounds",)

    def start(self, bases: int) -> dict[str, Any]:
        """Return the memory, with total planned values."""
        return {**super().start(bases), "planned": np.zeros(bases)}

    def bounds(self, memory: dict[str, Any]) -> Floats:
        """Return R_i [M]."""
        return (
            np.asarray(memory["planned"] - memory["totals"])
            if self.promised is None
            else super().bounds(memory)
        )

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
        kept = active & (
            high + self.bounds(memory) / np.maximum(memory["plays"], 1) >= low[active].max()
        )
        if kept.any():  # of data-dependent bounds, all may be refuted
            memory["active"][:] = kept


@dataclass(frozen=True, kw_only=True)
class ECE(_Promised):
    r"""Explore, commit, eliminate: play the simplest base that is left, and test it on a few episodes of all.

    Lee, Pacchiano, Muthukumar, Kong and Brunskill, "Online model selection for reinforcement
    learning with function approximation", AISTATS 2021 (arXiv 2011.09750). Of K episodes about
    :math:`\sum_k k^{-1/3}` explore: a base is drawn uniformly among those left. In all others the
    simplest one left plays. Statistics are those of explored episodes; base i is dropped when some
    j > i has :math:`LCB_j > UCB_i + R_i(n_i)/n_i`.

    Proved, for the paper's constants: with high probability regret of order :math:`M^{5/6}K^{2/3}`
    above that of the smallest base whose bound holds. Here the widths are those of the other rules,
    and a schedule replaces the paper's coin: episode k explores when the integer part of
    :math:`\sum_{j\le k} j^{-1/3}` grows.

    Parameters
    ----------
    promised : tuple of float
        d_i of the promised bounds :math:`R_i(n) = d_i\sqrt n`; bases are in the order of
        complexity.
    delta, scale : float
        Of w; ``scale`` is c.
    """

    given = ("order", "promised bounds")

    def start(self, bases: int) -> dict[str, Any]:
        """Return the memory, with the number of episodes and the sum of k^(-1/3)."""
        return {**super().start(bases), "episodes": np.zeros(1, np.int64), "explored": np.zeros(1)}

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
        memory["explored"][0] = explored or memory["explored"][0] + int(memory["episodes"][0]) ** (
            -1.0 / 3.0
        )
        if not explored:
            return
        enter(memory, base, played.value)
        low, high = intervals(memory, self.scale, self.delta)
        active, allowed = (
            memory["active"] == 1,
            high + self.bounds(memory) / np.maximum(memory["plays"], 1),
        )
        for i in np.flatnonzero(active)[:-1]:
            active[i] = low[i + 1 :][active[i + 1 :]].max() <= allowed[i]
        memory["active"][:] = active


@dataclass(frozen=True, kw_only=True)
class UCB1(Rule):
    r"""Play the base with the largest :math:`m_i + c\sqrt{2\ln t/n_i}`, after each has played once.

    Auer, Cesa-Bianchi and Fischer, Machine Learning 2002, figure 1. Proved for arms whose returns
    are independent with one mean. Bases learn, so that their means change: there is no guarantee
    here, and a base that begins badly may be left for good. The rule is given nothing; ``scale`` is
    c.
    """

    guarantee = "none"
    given = ()

    scale: float = 1.0

    def __post_init__(self) -> None:
        require_number("scale", self.scale, 0.0, 1e6)

    def start(self, bases: int) -> dict[str, Any]:
        """Return the memory: plays and total returns."""
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
class StochasticCORRAL(Rule):
    r"""CORRAL over smoothed bases: a base plays and learns, then one of its past policies is played again.

    Pacchiano, Phan, Abbasi-Yadkori, Rao, Zimmert, Lattimore and Szepesvari, "Model selection in contextual stochastic
    bandit problems", NeurIPS 2020 (arXiv 2003.01704), with the master of Agarwal, Luo, Neyshabur and Schapire, COLT
    2017. T = K/2 rounds of two episodes: base i, drawn from q, plays and learns; then a policy drawn uniformly from
    those that it has played, which loses what the base loses on average, is replayed without learning, with return x.
    The master's loss is (1 - x)/q_i of base i and 0 of the others, its descent that of the log-barrier, on p:

    .. math:: 1/p_j \leftarrow 1/p_j + \eta_j(loss_j - \nu), \quad \sum_j p_j = 1, \qquad q = (1 - 1/T)p + 1/(TM),

    and wherever :math:`1/q_j > \rho_j`, at first 2M: :math:`\rho_j \leftarrow 2/q_j`,
    :math:`\eta_j \leftarrow e^{1/\ln T}\eta_j`. (The authors' code, pacchiano/modelselection, lets the descent go on
    from q and keeps rho as integers.)

    Proved: expected regret of the order :math:`M/\eta + T\eta + \eta U^2`, up to logarithms, where
    U bounds the regret that the best base would have alone, with high probability. Here :math:`\eta
    = \sqrt{M/T}` at first, which needs no U and gives :math:`\sqrt{MT} + U^2\sqrt{M/T}`. The rule
    is given K.

    Parameters
    ----------
    episodes : int
        K.
    scale : float
        Factor of eta.
    """

    replays = True  # past policies are kept

    guarantee = "valid"
    given = ("K",)

    episodes: int
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_integer("episodes", self.episodes, 1)
        require_number("scale", self.scale, 0.0, 1e6, open_low=True)

    @property
    def rounds(self) -> float:
        """T, at least 2, as its logarithm is a divisor."""
        return max(2.0, self.episodes / 2.0)

    def start(self, bases: int) -> dict[str, Any]:
        """Return the memory: p, rho and eta of each base, and the base whose replay is due, or -1."""
        eta = np.full(bases, self.scale * math.sqrt(bases / self.rounds))
        first = {"p": np.full(bases, 1.0 / bases), "rho": np.full(bases, 2.0 * bases)}
        return {**first, "eta": eta, "due": np.array([-1])}

    def mixed(self, p: Floats) -> Floats:
        """Return q [M]: what is played, and what losses are divided by."""
        share = 1.0 / self.rounds
        return (1.0 - share) * p + share / p.size

    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int | Replay:
        """Draw a base, or replay the one that has just learned."""
        if memory["due"][0] >= 0:
            return Replay(int(memory["due"][0]))
        sums = self.mixed(memory["p"]).cumsum()
        return min(int(sums.searchsorted(draw.random() * sums[-1], side="right")), sums.size - 1)

    def update(self, memory: dict[str, Any], base: int, played: Played) -> None:
        """Ask for the replay or, after it, descend."""
        memory["due"][0] = -1 if played.replay else base
        if played.replay:
            p, rho, eta = memory["p"], memory["rho"], memory["eta"]
            p[:] = log_barrier_step(p, eta, base, (1.0 - played.value) / float(self.mixed(p)[base]))
            q = self.mixed(p)
            late = 1.0 / q > rho
            rho[late] = 2.0 / q[late]
            eta[late] *= math.exp(1.0 / math.log(self.rounds))


def log_barrier_step(p: Floats, eta: Floats, base: int, loss: float) -> Floats:
    """Return p' with 1/p'_j = 1/p_j + eta_j (loss [j = base] - nu), where nu makes it sum to one.

    The sum is convex in nu, at most one at 0 and at least one at ``loss``, or infinite before that:
    Newton's method, halving the interval where a step leaves it.
    """
    if loss <= 0.0:
        return p
    inverse = 1.0 / p
    inverse[base] += eta[base] * loss
    nu, low, high = 0.0, 0.0, min(loss, float((inverse / eta).min()))
    for _ in range(100):
        part = 1.0 / (inverse - eta * nu)
        excess = float(part.sum()) - 1.0
        low, high = (nu, high) if excess < 0.0 else (low, nu)
        step = nu - excess / float(eta @ part**2)
        after = step if low < step < high else 0.5 * (low + high)
        if abs(excess) < 1e-15 or after == nu:
            break
        nu = after
    found = 1.0 / (inverse - eta * nu)
    return np.asarray(found / found.sum())
