r"""Stochastic CORRAL: a descent over bases that are smoothed by playing twice.

Pacchiano, Phan, Abbasi-Yadkori, Rao, Zimmert, Lattimore and Szepesvari, "Model selection in
contextual stochastic bandit problems", NeurIPS 2020 (arXiv 2003.01704), with the master of Agarwal,
Luo, Neyshabur and Schapire, COLT 2017. T = K/2 rounds of two episodes: base i, drawn from q, plays
and learns; then a policy drawn uniformly from those that it has played, which loses what the base
loses on average, is replayed without learning, with return x. The master's loss is (1 - x)/q_i of
base i and 0 of the others, its descent that of the log-barrier, on p:

.. math:: 1/p_j \leftarrow 1/p_j + \eta_j(loss_j - \nu), \quad \sum_j p_j = 1, \qquad
    q = (1 - 1/T)p + 1/(TM),

and wherever :math:`1/q_j > \rho_j`, at first 2M: :math:`\rho_j \leftarrow 2/q_j`,
:math:`\eta_j \leftarrow e^{1/\ln T}\eta_j`. (The authors' code, pacchiano/modelselection, lets the
descent go on from q and keeps rho as integers.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from occamrl.arrays import Floats, Ints
from occamrl.errors import require_integer, require_number
from occamrl.protocols import Played, Replay, Rule

_MOST_ROUNDS = 100  # of the search for nu
_CLOSE = 1e-15  # to a sum of one


class CorralMemory(TypedDict):
    """What the master remembers of every base [M], and the round."""

    p: Floats
    rho: Floats
    eta: Floats
    due: Ints  # [1] the base whose replay is due, or -1


@dataclass(frozen=True, kw_only=True)
class StochasticCORRAL(Rule):
    r"""CORRAL over smoothed bases: a base plays and learns, then one of its past policies does.

    >>> import occamrl as orl
    >>> greedy = orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2))
    >>> bases = [greedy, orl.UniformRandom()]
    >>> arena = orl.Arena(bases=bases, rule=orl.StochasticCORRAL(episodes=50))
    >>> result = orl.run(arena, orl.make_problem("river-swim", states=3), episodes=50)

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

    def start(self, bases: int) -> CorralMemory:
        """Return the memory: all bases are alike, and no replay is due."""
        return {
            "p": np.full(bases, 1.0 / bases),
            "rho": np.full(bases, 2.0 * bases),
            "eta": np.full(bases, self.scale * math.sqrt(bases / self.rounds)),
            "due": np.array([-1]),
        }

    def choose(self, memory: CorralMemory, draw: np.random.Generator) -> int | Replay:
        """Draw a base, or replay the one that has just learned."""
        due = int(memory["due"][0])
        if due >= 0:
            return Replay(due)
        sums = self.mixed(memory["p"]).cumsum()
        base = int(sums.searchsorted(draw.random() * sums[-1], side="right"))
        # rounding may put the draw beyond the last sum
        return min(base, sums.size - 1)

    def update(self, memory: CorralMemory, base: int, played: Played) -> None:
        """Ask for the replay or, after it, descend."""
        if not played.replay:
            memory["due"][0] = base
            return
        memory["due"][0] = -1
        p = memory["p"]
        loss = (1.0 - played.value) / float(self.mixed(p)[base])
        p[:] = log_barrier_step(p, memory["eta"], base, loss)
        q = self.mixed(p)
        late = 1.0 / q > memory["rho"]
        memory["rho"][late] = 2.0 / q[late]
        memory["eta"][late] *= math.exp(1.0 / math.log(self.rounds))

    def mixed(self, p: Floats) -> Floats:
        """Return q [M]: what is played, and what losses are divided by."""
        share = 1.0 / self.rounds
        return (1.0 - share) * p + share / p.size


def log_barrier_step(p: Floats, eta: Floats, base: int, loss: float) -> Floats:
    """Return p' with 1/p'_j = 1/p_j + eta_j (loss [j = base] - nu), where nu makes it sum to one.

    The sum is convex in nu, at most one at 0 and at least one at ``loss``, or infinite before that:
    Newton's method, halving the interval where a step leaves it.
    """
    if loss <= 0.0:
        return p
    inverse = 1.0 / p
    inverse[base] += eta[base] * loss
    nu = 0.0
    low = 0.0
    # at the upper end some 1/p' is 0, or the sum is at least one
    high = min(loss, float((inverse / eta).min()))
    for _ in range(_MOST_ROUNDS):
        law = 1.0 / (inverse - eta * nu)
        excess = float(law.sum()) - 1.0
        if excess < 0.0:
            low = nu
        else:
            high = nu
        candidate = nu - excess / float(eta @ law**2)
        if not low < candidate < high:
            candidate = 0.5 * (low + high)
        if abs(excess) < _CLOSE or candidate == nu:
            break
        nu = candidate
    law = 1.0 / (inverse - eta * nu)
    return np.asarray(law / law.sum())
