"""A linear mixture of which few coordinates matter, in which every direction is explored.

Selection by dimension and by norm is shown on this problem: the number of non-zero coordinates, the smallest of them
and the norm of theta* are parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from occamrl.contracts import Floats, Ints
from occamrl.errors import HorizonError, ParameterError, require_number
from occamrl.problems.checks import require_integer
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.problems.listing import read_only
from occamrl.seeding import stream


@dataclass(frozen=True, kw_only=True)
class SparseMixture:
    """Signed features that move probability between good and bad states.

    The first half of the states is good (rewards uniform in [0.6, 1]), the second bad (in [0, 0.4]). With a base law
    p_0 and a direction u with u(s') > 0 on good states, u(s') < 0 on bad ones, sum u = 0 and max |u| = 1 (so u = +-1 if
    the halves are equal)::

        phi_0(s, a, s') = p_0(s' | s)
        phi_j(s, a, s') = sign_j(s, a) * amplitude * u(s')     j = 1, ..., d-1, signs drawn at random
        theta           = (1, theta_1, ..., theta_{d-1})
        amplitude       = contrast * min p_0 / sum_{j >= 1} |theta_j|

    Every theta with theta_0 = 1 and at most this sum of magnitudes gives a kernel, whatever its signs and support.
    Each pair (s, a) has signs of its own, so that any policy sees all directions in time.

    Parameters
    ----------
    states, actions, horizon
        S >= 2, A, H.
    dimension
        d, the number of features, phi_0 among them.
    nonzero
        How many coordinates of theta are not zero, theta_0 among them.
    gamma
        The smallest magnitude among the non-zero theta_j, j >= 1.
    norm
        ||theta||, reached by enlarging all magnitudes but the first by the same amount; by default all are gamma.
    persistence
        The base law is (1 - persistence) * uniform on all states + persistence * uniform on the half of s. With 0,
        values differ little between states, since the next one does not remember this one.
    contrast
        How much of the base probability the features may move at most.
    seed
        Draws rewards, support and signs.
    """

    states: int = 12
    actions: int = 4
    horizon: int = 6
    dimension: int = 16
    nonzero: int = 3
    gamma: float = 0.5
    norm: float | None = None
    seed: int = 0
    persistence: float = 0.0
    contrast: float = 0.9

    def __post_init__(self) -> None:
        require_integer("states", self.states, 2)
        require_integer("actions", self.actions, 1)
        require_integer("horizon", self.horizon, 1, HorizonError)
        require_integer("dimension", self.dimension, 1)
        if require_integer("nonzero", self.nonzero, 1) > self.dimension:
            raise ParameterError("nonzero", got=self.nonzero, expected=f"at most dimension = {self.dimension}")
        require_number("gamma", self.gamma, 0.0, math.inf, open_low=True)
        require_number("contrast", self.contrast, 0.0, 1.0, open_low=True)
        if require_number("persistence", self.persistence, 0.0, 1.0) == 1.0:
            raise ParameterError("persistence", got=self.persistence, expected="below 1, or no state could change half")
        require_integer("seed", self.seed, 0)
        self._check_norm()

    def _check_norm(self) -> None:
        if self.norm is None:
            return
        norm, free = require_number("norm", self.norm, 0.0, math.inf, open_low=True), self.nonzero - 1
        least = math.sqrt(1.0 + free * self.gamma**2)
        if free <= 1 and not math.isclose(norm, least, rel_tol=1e-12):
            raise ParameterError("norm", got=norm, expected=f"{least!r}: with nonzero = {self.nonzero}, gamma fixes it")
        if norm < least * (1.0 - 1e-12):
            raise ParameterError("norm", got=norm, expected=f"at least sqrt(1 + (nonzero - 1) gamma^2) = {least!r}")

    @property
    def good(self) -> int:
        """The number of good states; they come first."""
        return (self.states + 1) // 2

    @cached_property
    def support(self) -> Ints:
        """The coordinates that are not zero, increasing."""
        draw = stream(self.seed, "sparse_mixture", "support")
        chosen = draw.choice(np.arange(1, self.dimension), self.nonzero - 1, replace=False)
        return read_only(np.sort(np.concatenate([np.zeros(1, np.int64), chosen])))

    @cached_property
    def theta(self) -> Floats:
        """theta* [d]."""
        draw, free = stream(self.seed, "sparse_mixture", "theta"), self.nonzero - 1
        magnitude = np.full(free, self.gamma)
        if self.norm is not None and free > 1:
            rest = (self.norm**2 - 1.0 - self.gamma**2) / (free - 1)
            magnitude[1:] = max(math.sqrt(rest), self.gamma)
        theta = np.zeros(self.dimension)
        theta[0] = 1.0
        theta[self.support[1:]] = draw.permutation(magnitude) * draw.choice((-1.0, 1.0), free)
        return read_only(theta)

    @cached_property
    def phi(self) -> Floats:
        """The features [S, A, S, d]."""
        states, good, bad = self.states, self.good, self.states - self.good
        half = np.arange(states) < good
        within = (half[:, np.newaxis] == half) / np.where(half, good, bad)
        base = (1.0 - self.persistence) / states + self.persistence * within
        direction = np.where(half, bad / good, -1.0)  # bad <= good; sums to zero
        # With theta = (1, 0, ..., 0) there is nothing to scale by but gamma.
        amplitude = self.contrast * base.min() / max(np.abs(self.theta[1:]).sum(), self.gamma)
        draw = stream(self.seed, "sparse_mixture", "signs")
        signs = draw.choice((-1.0, 1.0), (states, self.actions, self.dimension - 1))
        phi = np.empty((states, self.actions, states, self.dimension))
        phi[..., 0] = base[:, np.newaxis, :]
        phi[..., 1:] = amplitude * direction[:, np.newaxis] * signs[:, :, np.newaxis, :]
        return read_only(phi)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem; episodes start in state 0."""
        reward = 0.4 * stream(self.seed, "sparse_mixture", "reward").random((self.states, self.actions))
        reward[: self.good] += 0.6
        transition = np.maximum(self.phi @ self.theta, 0.0)  # with contrast 1, a zero may round to -1e-18
        return FiniteMDP(transition=transition, reward=reward, horizon=self.horizon)

    @classmethod
    def examples(cls) -> Sequence[SparseMixture]:
        """Small instances, for the contract checks."""
        small = cls(
            states=5, actions=2, horizon=4, dimension=6, nonzero=4, gamma=0.4, norm=1.5, persistence=0.5, seed=1
        )
        return [cls(), small]
