"""A shelf with lost sales: how much to order every evening when only sales are seen, never the demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from occamrl.contracts import Floats
from occamrl.errors import ParameterError, require_choice
from occamrl.problems.demand import negative_binomial, on_a_grid, poisson, two_kinds_of_day
from occamrl.problems.practical import Entry
from occamrl.problems.shelf import ShelfProblem

DEMANDS = ("poisson", "negative-binomial", "bimodal", "other")
_MEANS = np.arange(2, 21) / 2.0  # 1, 1.5, ..., 10 units a day
_SIZES = (0.5, 1.0, 2.0, 4.0, 8.0)  # of the negative binomial: variance mean + mean^2/size
_QUIET, _BUSY, _SHARES = (0.5, 1.0, 2.0), (8.0, 10.0, 12.0), (0.25, 0.5, 0.75)
_PARTS = 8  # the laws of the last class have probabilities k/8


@dataclass(frozen=True, kw_only=True)
class LostSales(ShelfProblem):
    """Order in the evening, delivered in the morning; a customer who finds the shelf empty is lost, and unseen.

    The state is the stock in the evening. The account of a day is margin times sales, less holding for what is left in
    the evening, less the fixed cost if something was ordered; goods left at the end are taken back at cost, so that the
    purchase price cancels out. A lost sale costs its margin.

    Parameters
    ----------
    shelf : int
        The largest stock; S = shelf + 1. A multiple of 5.
    order_step : int
        Orders are multiples of this many units; what does not fit is not delivered.
    horizon
        Days of an episode.
    margin, holding, fixed : numbers
        Euro per unit sold, per unit and night, per order.
    demand : "poisson" | "negative-binomial" | "bimodal" | "other"
        The true law, one for each class.
    """

    shelf: int = 15
    order_step: int = 5
    horizon: int = 28
    margin: float = 4.0
    holding: float = 0.5
    fixed: float = 6.0
    demand: str = "poisson"

    rung_names: ClassVar[tuple[str, ...]] = ("Poisson", "+ negative binomial", "+ two kinds of day", "+ any on a grid")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("demand", self.demand, DEMANDS)
        if self.shelf % 5:
            raise ParameterError("shelf", got=self.shelf, expected="a multiple of 5")

    @property
    def states(self) -> int:
        """Stocks 0 ... shelf."""
        return self.shelf + 1

    def entries(self) -> Iterable[Entry]:
        """Return what a demand of d units does; coordinate d of theta is its probability."""
        for stock in range(self.states):
            for order in range(self.actions):
                filled = self.filled(stock, order)
                for demand in range(self.shelf + 1):
                    left = max(filled - demand, 0)
                    yield Entry(stock, order, left, demand, 1.0, self.earned(filled, left, order))

    def classes(self) -> Sequence[Floats]:
        """Return the laws of the demand that each class adds."""
        shelf = self.shelf
        levels = range(0, shelf + 1, shelf // 5)
        return [
            np.array([poisson(mean, shelf) for mean in _MEANS]),
            np.array([negative_binomial(mean, size, shelf) for mean in _MEANS for size in _SIZES]),
            np.array([two_kinds_of_day(q, b, w, shelf) for q in _QUIET for b in _BUSY for w in _SHARES]),
            on_a_grid(levels, _PARTS, shelf),
        ]

    @property
    def theta(self) -> Floats:
        """The true law of the demand [shelf + 1]."""
        if self.demand == "poisson":
            return poisson(6.0, self.shelf)
        if self.demand == "negative-binomial":
            return negative_binomial(6.0, 1.0, self.shelf)
        if self.demand == "bimodal":
            return two_kinds_of_day(0.5, 8.0, 0.5, self.shelf)
        law = np.zeros(self.shelf + 1)
        law[[0, self.shelf // 5, 4 * self.shelf // 5]] = 0.25, 0.375, 0.375
        return law

    @classmethod
    def truths(cls) -> Sequence[Self]:
        """Return one problem per class."""
        return [cls(demand=demand) for demand in DEMANDS]

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small instances, for the contract checks."""
        return [cls(shelf=5, horizon=4), cls(shelf=5, horizon=3, order_step=2, fixed=0.5, demand="other")]
