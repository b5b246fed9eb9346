"""What problems about a shelf have in common: orders in steps up to its size, and what a day earns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from occamrl.errors import HorizonError, ParameterError, require_number
from occamrl.problems.checks import require_integer
from occamrl.problems.practical import PracticalProblem


@dataclass(frozen=True, kw_only=True)
class ShelfProblem(PracticalProblem):
    """Order in steps of ``order_step`` units; what does not fit is not delivered, what is not there is not sold.

    The account of a day is margin times sales, less holding for what is left in the evening, less the fixed cost if
    something was ordered.
    """

    shelf: int
    order_step: int
    margin: float
    holding: float
    fixed: float

    def __post_init__(self) -> None:
        require_integer("shelf", self.shelf, 1)
        if require_integer("order_step", self.order_step, 1) > self.shelf:
            raise ParameterError("order_step", got=self.order_step, expected=f"at most the shelf, {self.shelf}")
        require_integer("horizon", self.horizon, 1, HorizonError)
        for name in ("margin", "holding", "fixed"):
            require_number(name, getattr(self, name), 0.0, np.inf)

    @property
    def actions(self) -> int:
        """Orders of 0, 1, ... steps up to the shelf."""
        return self.shelf // self.order_step + 1

    def filled(self, stock: int, order: int) -> int:
        """Return the stock after the delivery of an order."""
        return min(stock + order * self.order_step, self.shelf)

    def earned(self, filled: int, left: int, order: int) -> float:
        """Return the account of a day that begins with ``filled`` units and ends with ``left``."""
        return self.margin * (filled - left) - self.holding * left - self.fixed * (order > 0)
