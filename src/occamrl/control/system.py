"""Where actions of a continuous system lie: between bounds, or on a list."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamrl.errors import ParameterError, as_floats
from occamrl.protocols import Floats


class Box:
    """Actions between two bounds, which are numbers or arrays.

    >>> import occamrl as orl
    >>> orl.Box(-2, 2).dimension
    1
    """

    def __init__(self, low: Any, high: Any) -> None:
        bounds = f"({low!r}, {high!r})"
        lowest = np.atleast_1d(as_floats("low", low))
        highest = np.atleast_1d(as_floats("high", high))
        try:
            self.low, self.high = np.broadcast_arrays(lowest, highest)
        except ValueError as error:
            raise ParameterError("Box", got=bounds, expected="bounds of one shape") from error
        bounded = np.isfinite(self.high - self.low) & (self.low < self.high)
        if self.low.ndim != 1 or not bounded.all():
            raise ParameterError("Box", got=bounds, expected="finite bounds, low < high")
        self.dimension = self.low.size  # how many numbers an action has

    def draw(self, rows: int, rng: np.random.Generator) -> Floats:
        """Return actions drawn uniformly [rows, m]."""
        return rng.uniform(self.low, self.high, (rows, self.low.size))

    def __repr__(self) -> str:
        return f"Box({self.low.tolist()}, {self.high.tolist()})"


class Choices:
    """A list of actions [K, m]; the k-th is the k-th action of a Discrete space."""

    def __init__(self, values: Any) -> None:
        if isinstance(values, tuple) and len(values) == 2:
            low, high = values
            expected = f"orl.Box({low!r}, {high!r}) for all between, [{low!r}, {high!r}] for two"
            raise ParameterError("actions", got=repr(values), expected=expected)
        self.values = np.atleast_2d(as_floats("actions", values).T).T
        if not self.values.size:
            expected = "a Box, or a list of at least one action"
            raise ParameterError("actions", got=values, expected=expected)
        self.low = self.values.min(axis=0)
        self.high = self.values.max(axis=0)
        self.dimension = self.low.size

    def draw(self, rows: int, rng: np.random.Generator) -> Floats:
        """Return actions drawn uniformly [rows, m]."""
        return self.values[rng.integers(len(self.values), size=rows)]

    def __repr__(self) -> str:
        return repr(self.values.tolist())


Actions = Box | Choices
