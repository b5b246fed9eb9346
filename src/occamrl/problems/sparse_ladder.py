"""Sparse hypotheses over the features of a sparse mixture: a ladder of classes with known sizes and a known truth."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from occamrl.contracts import Floats
from occamrl.errors import ParameterError
from occamrl.problems.checks import require_integer
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.problems.listing import read_only
from occamrl.problems.sparse_mixture import SparseMixture
from occamrl.seeding import stream


@dataclass(frozen=True, kw_only=True)
class SparseLadder:
    """theta = (1, eta) with eta in {0, +-gamma}^(d-1); class m has at most m - 1 non-zero entries of eta.

    Parameters
    ----------
    states, actions, horizon, dimension, gamma, persistence, contrast, seed
        Of the :class:`SparseMixture` whose features are used.
    most : int
        Non-zero entries in the largest class, so that M = most + 1. With d = 9 and most = 3 the classes have 1, 17,
        129 and 577 members.
    nonzero : int
        Non-zero entries of the truth, so that m* = nonzero + 1; drawn by ``seed``.
    """

    states: int = 12
    actions: int = 3
    horizon: int = 10
    dimension: int = 9
    most: int = 3
    nonzero: int = 2
    gamma: float = 0.5
    persistence: float = 0.5
    contrast: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        require_integer("most", self.most, 0)
        if require_integer("nonzero", self.nonzero, 0) > self.most:
            raise ParameterError("nonzero", got=self.nonzero, expected=f"at most most = {self.most}")
        if self.most >= self.dimension:
            raise ParameterError("most", got=self.most, expected=f"below dimension = {self.dimension}")
        _ = self.mixture  # checks the other parameters

    @cached_property
    def mixture(self) -> SparseMixture:
        """The mixture with as many non-zero entries as the largest class allows."""
        return SparseMixture(
            states=self.states,
            actions=self.actions,
            horizon=self.horizon,
            dimension=self.dimension,
            nonzero=self.most + 1,
            gamma=self.gamma,
            persistence=self.persistence,
            contrast=self.contrast,
            seed=self.seed,
        )

    @property
    def phi(self) -> Floats:
        """The features [S, A, S, d]."""
        return self.mixture.phi

    @cached_property
    def hypotheses(self) -> Floats:
        """All parameters [n, d], by the number of non-zero entries."""
        rows = []
        for count in range(self.most + 1):
            for support in itertools.combinations(range(1, self.dimension), count):
                block = np.zeros((2**count, self.dimension))
                block[:, 0] = 1.0
                block[:, support] = list(itertools.product((-self.gamma, self.gamma), repeat=count))
                rows.append(block)
        return read_only(np.concatenate(rows))

    @cached_property
    def sizes(self) -> list[int]:
        """|F_1|, ..., |F_M|."""
        entries = (self.hypotheses[:, 1:] != 0.0).sum(axis=1)
        return [int(size) for size in np.searchsorted(entries, np.arange(self.most + 1), side="right")]

    @cached_property
    def theta(self) -> Floats:
        """theta* [d]."""
        draw = stream(self.seed, "sparse_ladder", "theta", self.nonzero)
        theta = np.zeros(self.dimension)
        theta[0] = 1.0
        support = draw.choice(np.arange(1, self.dimension), self.nonzero, replace=False)
        theta[support] = draw.choice((-self.gamma, self.gamma), self.nonzero)
        return read_only(theta)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem; episodes start in state 0."""
        transition = np.maximum(self.phi @ self.theta, 0.0)
        return FiniteMDP(transition=transition, reward=self.mixture.mdp.known.base_reward, horizon=self.horizon)

    @classmethod
    def examples(cls) -> Sequence[SparseLadder]:
        """Small instances, for the contract checks."""
        return [cls(states=4, actions=2, horizon=3, dimension=4, most=2, nonzero=1), cls(nonzero=0)]
