"""Selling a stock before it spoils: nested classes of demand curves, and a truth that a small class cannot see."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from occamrl.contracts import Floats
from occamrl.errors import HorizonError, ParameterError
from occamrl.problems.checks import require_integer
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.problems.listing import read_only
from occamrl.problems.nested import NestedClasses

LEVELS = (0.05, 0.3, 0.6, 0.9)  # the probabilities of a sale that curves are made of


@dataclass(frozen=True, kw_only=True)
class Pricing(NestedClasses):
    """Each step a price is asked, and one unit is sold at it with a probability that depends on the price alone.

    Classes of demand curves over the prices, all with values in LEVELS: exponential < logit < falling < any. The first
    two are rounded to LEVELS; the second holds the first.

    Parameters
    ----------
    stock, prices, horizon
        S = stock + 1, A, H. Prices are 1/A, 2/A, ..., 1; a sale earns the price.
    demand : tuple of A numbers
        The true curve, values in LEVELS. The default is falling but not logit: an exponential curve agrees with it at
        the prices that curve recommends, and earns 0.77 less per episode for ever.
    """

    stock: int = 8
    prices: int = 8
    horizon: int = 20
    demand: tuple[float, ...] = (0.9, 0.9, 0.9, 0.9, 0.3, 0.3, 0.05, 0.05)

    def __post_init__(self) -> None:
        require_integer("stock", self.stock, 1)
        require_integer("prices", self.prices, 1)
        require_integer("horizon", self.horizon, 1, HorizonError)
        if len(self.demand) != self.prices or not set(self.demand) <= set(LEVELS):
            raise ParameterError("demand", got=self.demand, expected=f"{self.prices} numbers out of {LEVELS}")

    @property
    def price(self) -> Floats:
        """The prices [A]."""
        return np.arange(1, self.prices + 1) / self.prices

    @cached_property
    def phi(self) -> Floats:
        """The features [S, A, S, 1 + A]: nothing is sold; what a sale at each price changes."""
        states = self.stock + 1
        phi = np.zeros((states, self.prices, states, 1 + self.prices))
        for s, a in itertools.product(range(states), range(self.prices)):
            phi[s, a, s, 0] = 1.0
            if s > 0:
                phi[s, a, s - 1, 1 + a] = 1.0
                phi[s, a, s, 1 + a] = -1.0
        return read_only(phi)

    def classes(self) -> Sequence[Floats]:
        """Return the curves of each class, theta = (1, probability of a sale at each price)."""
        price = self.price
        grid = np.linspace(0.1, 12.0, 240)
        exponential = np.exp(-grid[:, None] * price)
        middle = np.linspace(-0.2, 1.4, 81)
        logit = 1.0 / (1.0 + np.exp(np.clip(grid[:, None, None] * (price - middle[:, None]), -50.0, 50.0)))
        falling = list(itertools.combinations_with_replacement(sorted(LEVELS, reverse=True), self.prices))
        every = list(itertools.product(LEVELS, repeat=self.prices))
        rounded = [_rounded(exponential), _rounded(logit.reshape(-1, self.prices))]
        return [np.insert(curves, 0, 1.0, axis=1) for curves in (*rounded, np.array(falling), np.array(every))]

    @property
    def theta(self) -> Floats:
        """theta* [1 + A]."""
        return np.concatenate([[1.0], self.demand])

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem; episodes start with the full stock, and a sale earns its price."""
        states = self.stock + 1
        reward = np.zeros((states, self.prices, states))
        for s in range(1, states):
            reward[s, :, s - 1] = self.price
        return FiniteMDP(
            transition=self.phi @ self.theta, reward=reward, horizon=self.horizon, initial_state=self.stock
        )

    @classmethod
    def examples(cls) -> Sequence[Pricing]:
        """Small instances, for the contract checks."""
        return [cls(stock=2, prices=3, horizon=4, demand=(0.9, 0.3, 0.3))]


def _rounded(curves: Floats) -> Floats:
    """Return the curves with every value replaced by the nearest of LEVELS, each curve once."""
    levels = np.array(LEVELS)
    nearest = levels[np.abs(curves[..., None] - levels).argmin(axis=-1)]
    return np.unique(nearest, axis=0)
