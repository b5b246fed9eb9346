"""Stochastic CORRAL: mirror descent over bases that are smoothed by playing twice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.errors import require_integers, require_number
from occamrl.protocols import Field, Floats, Played, Replay, Rule
from occamrl.rules.bandits import ArrayRule, drawn


@dataclass(frozen=True, kw_only=True)
class StochasticCORRAL(ArrayRule):
    r"""CORRAL over smoothed bases: a base plays and learns, then one of its past policies is played again.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> bases = [orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2)), orl.UniformRandom()]
    >>> result = orl.run(orl.Arena(bases=bases, rule=orl.StochasticCORRAL(episodes=50)), problem, episodes=50)

    Pacchiano, Phan, Abbasi-Yadkori, Rao, Zimmert, Lattimore and Szepesvari, "Model selection in contextual stochastic
    bandit problems", NeurIPS 2020 (arXiv 2003.01704), with the master of Agarwal, Luo, Neyshabur and Schapire, COLT
    2017. T = K/2 rounds of two episodes: base i, drawn from q, plays and learns; then a policy drawn uniformly from
    those that it has played is replayed without learning, with return x. Replayed policies lose what the base loses on
    average, so that its regret does not depend on when it plays. The master's loss is (1 - x)/q_i of base i and 0 of
    the others, its descent that of the log-barrier, on p:

    .. math:: 1/p_j \leftarrow 1/p_j + \eta_j(loss_j - \nu), \quad \sum_j p_j = 1, \qquad q = (1 - 1/T)p + 1/(TM),

    and wherever :math:`1/q_j > \rho_j`, at first 2M: :math:`\rho_j \leftarrow 2/q_j`,
    :math:`\eta_j \leftarrow e^{1/\ln T}\eta_j`. The step is Log-Barrier-OMD of Agarwal et al.; gamma = 1/T, rho and the
    growth of eta are those of the authors' code (pacchiano/modelselection), which lets the descent go on from q and
    keeps rho as integers.

    Proved: expected regret of the order :math:`M/\eta + T\eta + \eta U^2`, up to logarithms, where U bounds the regret
    that the best base would have alone, with high probability. Here :math:`\eta = \sqrt{M/T}` at first, which needs no
    U and gives :math:`\sqrt{MT} + U^2\sqrt{M/T}`. The rule is given K.

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
        require_integers(self, episodes=1)
        require_number("scale", self.scale, 0.0, 1e6, open_low=True)

    @property
    def rounds(self) -> float:
        """T, at least 2, of which the logarithm is a divisor."""
        return max(2.0, self.episodes / 2.0)

    def fields(self, bases: int) -> Sequence[Field]:
        """Return what the memory holds: p, rho and eta of each base, and the base whose replay is due, or -1."""
        eta = self.scale * math.sqrt(bases / self.rounds)
        return [
            Field("p", (bases,), 1e-100, 1.0, 1.0 / bases),
            Field("rho", (bases,), 2.0 * bases, 1e300, 2.0 * bases),
            Field("eta", (bases,), eta, 1e12 * eta, eta),
            Field("due", (1,), -1, bases - 1, -1),
        ]

    def mixed(self, p: Floats) -> Floats:
        """Return q [M]: what is played, and what losses are divided by."""
        share = 1.0 / self.rounds
        return (1.0 - share) * p + share / p.size

    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int | Replay:
        """Draw a base, or replay the one that has just learned."""
        due = int(memory["due"][0])
        return Replay(due) if due >= 0 else drawn(self.mixed(memory["p"]), draw)

    def update(self, memory: dict[str, Any], base: int, played: Played) -> None:
        """Ask for the replay or, after it, descend."""
        memory["due"][0] = -1 if played.replay else base
        if played.replay:
            p, rho, eta = memory["p"], memory["rho"], memory["eta"]
            p[:] = log_barrier_step(p, eta, base, (1.0 - played.value) / float(self.mixed(p)[base]))
            q = self.mixed(p)
            late = 1.0 / q > rho
            if late.any():
                rho[late] = 2.0 / q[late]
                eta[late] *= math.exp(1.0 / math.log(self.rounds))

    @classmethod
    def examples(cls, bases: int) -> Sequence[Rule]:
        """Return small instances, for the contract checks."""
        return [cls(episodes=200), cls(episodes=200, scale=40.0)]


def log_barrier_step(p: Floats, eta: Floats, base: int, loss: float) -> Floats:
    """Return p' with 1/p'_j = 1/p_j + eta_j (loss [j = base] - nu), where nu makes it sum to one.

    The sum grows with nu and is convex. It is at most one at nu = 0 and not below one at ``loss``, or infinite before
    that: Newton's method, halving the interval where a step leaves it.
    """
    if loss <= 0.0:
        return p
    inverse = 1.0 / p
    inverse[base] += eta[base] * loss
    terms = list(zip(inverse.tolist(), eta.tolist(), strict=True))
    nu, low, high = 0.0, 0.0, min(loss, *(a / rate for a, rate in terms))
    for _ in range(100):
        excess, slope = -1.0, 0.0
        for a, rate in terms:
            part = 1.0 / (a - rate * nu)
            excess += part
            slope += rate * part * part
        low, high = (nu, high) if excess < 0.0 else (low, nu)
        step = nu - excess / slope
        after = step if low < step < high else 0.5 * (low + high)
        if abs(excess) < 1e-15 or after == nu:
            break
        nu = after
    found = 1.0 / (inverse - eta * nu)
    return np.asarray(found / found.sum())
