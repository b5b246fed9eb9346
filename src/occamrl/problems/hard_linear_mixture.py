"""The instance behind the lower bound for linear mixture MDPs.

Zhou, Gu and Szepesvari, "Nearly Minimax Optimal Reinforcement Learning for Linear Mixture Markov Decision Processes",
COLT 2021 (arXiv 2012.08507): no algorithm has regret below a constant times d H sqrt(T) on all instances of this kind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from occamrl.contracts import Floats
from occamrl.errors import HorizonError, ParameterError, require_number
from occamrl.problems.checks import require_integer
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.problems.listing import read_only
from occamrl.seeding import stream

LARGEST_DIMENSION = 12


@dataclass(frozen=True, kw_only=True)
class HardLinearMixture:
    """A ladder x_1, ..., x_{H+1} with a chance, at each rung, to fall onto x_{H+2}, the only state that pays.

    Actions are the 2^(d-1) vectors a in {-1, 1}^(d-1). From x_h (h <= H) an episode goes to x_{H+2} with probability
    delta + <mu_h, a> and to x_{h+1} otherwise, delta = 1/H; x_{H+1} and x_{H+2} absorb; r = 1 in x_{H+2}, else 0. The
    entries of mu_h are +gap or -gap, so the best action is their sign and each wrong sign costs 2 gap of probability.

    As a linear mixture, with alpha = 1/sqrt(1 + (d-1) gap) and beta = sqrt(gap) alpha::

        phi(x_h, a, x_{h+1})     = (alpha (1 - delta), -beta a)
        phi(x_h, a, x_{H+2})     = (alpha delta,        beta a)
        phi(x, a, x)             = (alpha, 0)                      for the two absorbing states
        theta                    = (1/alpha, mu / beta)

    so that ||phi_V(s, a)|| <= 1 for every V with values in [0, 1] and ||theta|| = 1 + (d-1) gap.

    The paper's kernel changes with the step, theta_h = (1/alpha, mu_h/beta). Here the kernel is stationary, which loses
    nothing since x_h tells the step: either one mu serves all rungs (d coordinates), or each rung has its own and its
    own coordinates (1 + H (d-1) of them, a in the h-th block; ||theta||^2 = (1 + (d-1) gap) (1 + H (d-1) gap)).

    Parameters
    ----------
    dimension
        d >= 2 of the paper; there are 2^(d-1) actions.
    horizon
        H >= 2.
    episodes
        K, the number of episodes for which the instance is hardest: gap = sqrt(delta/K) / (4 sqrt 2).
    gap
        Delta of the paper, instead of the value that follows from ``episodes``; at most delta/(d-1).
    shared
        Whether one mu serves all rungs.
    seed
        Draws the signs of mu.
    """

    dimension: int = 4
    horizon: int = 5
    episodes: int = 10_000
    gap: float | None = None
    shared: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if require_integer("dimension", self.dimension, 2) > LARGEST_DIMENSION:
            expected = f"at most {LARGEST_DIMENSION}: there are 2^(d-1) actions"
            raise ParameterError("dimension", got=self.dimension, expected=expected)
        require_integer("horizon", self.horizon, 2, HorizonError)
        require_integer("episodes", self.episodes, 1)
        require_integer("seed", self.seed, 0)
        largest = 1.0 / self.horizon / (self.dimension - 1)
        if self.gap is not None:
            require_number("gap", self.gap, 0.0, largest, open_low=True)
        elif self._gap > largest:
            expected = f"enough for sqrt(delta/K) / (4 sqrt 2) to be at most delta/(d-1) = {largest:.6g}"
            raise ParameterError("episodes", got=self.episodes, expected=expected)

    @property
    def _gap(self) -> float:
        return math.sqrt(1.0 / self.horizon / self.episodes) / (4.0 * math.sqrt(2.0)) if self.gap is None else self.gap

    @cached_property
    def action_vectors(self) -> Floats:
        """The vectors a, by action [2^(d-1), d-1]."""
        return read_only(np.array(list(itertools.product((-1.0, 1.0), repeat=self.dimension - 1))))

    @cached_property
    def mu(self) -> Floats:
        """The vectors mu_h [H, d-1]; all rows alike if ``shared``."""
        rungs = 1 if self.shared else self.horizon
        signs = stream(self.seed, "hard_linear_mixture").choice((-1.0, 1.0), (rungs, self.dimension - 1))
        return read_only(np.broadcast_to(self._gap * signs, (self.horizon, self.dimension - 1)).copy())

    @property
    def _scales(self) -> tuple[float, float]:
        """Alpha and beta."""
        alpha = 1.0 / math.sqrt(1.0 + (self.dimension - 1) * self._gap)
        return alpha, math.sqrt(self._gap) * alpha

    @cached_property
    def phi(self) -> Floats:
        """The features [S, A, S, d], or [S, A, S, 1 + H (d-1)] if each rung has its own coordinates."""
        (alpha, beta), delta, width = self._scales, 1.0 / self.horizon, self.dimension - 1
        vectors, paying = self.action_vectors, self.horizon + 1
        blocks = 1 if self.shared else self.horizon
        phi = np.zeros((self.horizon + 2, len(vectors), self.horizon + 2, 1 + blocks * width))
        for h in range(self.horizon):
            block = slice(1, None) if self.shared else slice(1 + h * width, 1 + (h + 1) * width)
            phi[h, :, h + 1, 0] = alpha * (1.0 - delta)
            phi[h, :, h + 1, block] = -beta * vectors
            phi[h, :, paying, 0] = alpha * delta
            phi[h, :, paying, block] = beta * vectors
        for s in (self.horizon, paying):
            phi[s, :, s, 0] = alpha
        return read_only(phi)

    @cached_property
    def theta(self) -> Floats:
        """The parameter: (1/alpha, mu/beta), with the mu of all rungs one after the other unless ``shared``."""
        alpha, beta = self._scales
        mu = self.mu[:1] if self.shared else self.mu
        return read_only(np.concatenate([[1.0 / alpha], mu.ravel() / beta]))

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem: state h is x_{h+1}, the last one x_{H+2}; episodes start in x_1."""
        reward = np.zeros(self.phi.shape[:2])
        reward[-1] = 1.0
        transition = np.maximum(self.phi @ self.theta, 0.0)  # with the largest gap, a zero may round to -1e-18
        return FiniteMDP(transition=transition, reward=reward, horizon=self.horizon)

    @classmethod
    def examples(cls) -> Sequence[HardLinearMixture]:
        """Small instances, for the contract checks."""
        return [cls(), cls(dimension=3, horizon=4, gap=0.1, shared=False, seed=1)]
