"""Rewards in the field's own unit: money, minutes, customers. Learners see [0, 1], people see the unit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from occamrl.contracts import Floats
from occamrl.errors import ParameterError


@dataclass(frozen=True, kw_only=True)
class Unit:
    """The affine map between amounts of a unit and rewards: ``low`` is the reward 0 and ``high`` the reward 1.

    Examples
    --------
    >>> euro = Unit(name="EUR", low=-50.0, high=150.0)
    >>> float(euro.reward(50.0)), euro.lost(0.25), euro.earned(6.0, steps=10)
    (0.5, 50.0, 700.0)
    """

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ParameterError("low, high", got=(self.low, self.high), expected="finite numbers with low < high")

    @classmethod
    def spanning(cls, name: str, amounts: ArrayLike) -> Unit:
        """Return the unit whose rewards 0 and 1 are the smallest and the largest of some amounts."""
        return cls(name=name, low=float(np.min(amounts)), high=float(np.max(amounts)))

    @property
    def scale(self) -> float:
        """What a reward of 1 is worth more than one of 0: regret times this is an amount."""
        return self.high - self.low

    def reward(self, amounts: ArrayLike) -> Floats:
        """Return amounts of one step as rewards in [0, 1]."""
        return np.asarray((np.asarray(amounts, dtype=np.float64) - self.low) / self.scale)

    def lost(self, regret: float) -> float:
        """Return regret, a difference of two values, as an amount."""
        return regret * self.scale

    def earned(self, value: float, steps: int) -> float:
        """Return the value of an episode of ``steps`` steps as an amount."""
        return value * self.scale + self.low * steps
