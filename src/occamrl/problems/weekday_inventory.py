"""A shelf whose demand follows the week: which days differ from which, and how much to order on each."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from occamrl.contracts import Floats
from occamrl.errors import ParameterError
from occamrl.problems.demand import poisson
from occamrl.problems.practical import Entry
from occamrl.problems.shelf import ShelfProblem

DAYS = 7  # Monday is 0
_PATTERNS = (  # by class: which of its means each day has
    (0, 0, 0, 0, 0, 0, 0),
    (0, 0, 0, 0, 0, 1, 1),
    (0, 0, 0, 0, 0, 1, 2),
    (3, 0, 0, 0, 4, 1, 2),
)


@dataclass(frozen=True, kw_only=True)
class WeekdayInventory(ShelfProblem):
    """Order in the evening for the next morning; demand is Poisson with the mean of the day; what is not there is lost.

    The state is (weekday, stock in the morning before the delivery); the account of a day is that of
    :class:`LostSales`.

    Parameters
    ----------
    means : tuple of 7 numbers
        The true means, Monday first, out of ``levels``.
    levels : tuple of numbers
        The means that hypotheses may have.
    shelf, order_step, horizon, margin, holding, fixed
        As in :class:`LostSales`.
    """

    means: tuple[float, ...] = (6.0,) * DAYS
    levels: tuple[float, ...] = (2.0, 4.0, 6.0, 9.0, 12.0)
    shelf: int = 15
    order_step: int = 3
    horizon: int = 28
    margin: float = 4.0
    holding: float = 1.0
    fixed: float = 3.0

    rung_names: ClassVar[tuple[str, ...]] = ("one mean", "weekend", "Saturday, Sunday", "Monday, Friday too")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.levels or len(set(self.levels)) != len(self.levels) or min(self.levels) <= 0.0:
            raise ParameterError("levels", got=self.levels, expected="different numbers > 0")
        if len(self.means) != DAYS or not set(self.means) <= set(self.levels):
            raise ParameterError("means", got=self.means, expected=f"{DAYS} numbers out of {self.levels}")

    @property
    def states(self) -> int:
        """Weekday times stock: state = weekday * (shelf + 1) + stock."""
        return DAYS * (self.shelf + 1)

    def entries(self) -> Iterable[Entry]:
        """Return what each demand does; coordinate day * L + i of theta says that the day has the mean levels[i]."""
        size, laws = self.shelf + 1, [poisson(mean, self.shelf) for mean in self.levels]
        for day, stock, order in itertools.product(range(DAYS), range(size), range(self.actions)):
            filled = self.filled(stock, order)
            for left in range(filled + 1):
                amount = self.earned(filled, left, order)
                after = (day + 1) % DAYS * size + left
                for i, law in enumerate(laws):
                    chance = law[filled - left] if left else law[filled:].sum()
                    yield Entry(day * size + stock, order, after, day * len(laws) + i, chance, amount)

    def parameters(self, means: Iterable[float]) -> Floats:
        """Return theta of seven means."""
        return np.concatenate([np.equal(self.levels, mean).astype(np.float64) for mean in means])

    def classes(self) -> Sequence[Floats]:
        """Return the weeks that each class adds."""
        made = []
        for pattern in _PATTERNS:
            free = itertools.product(self.levels, repeat=max(pattern) + 1)
            made.append(np.array([self.parameters(choice[i] for i in pattern) for choice in free]))
        return made

    @property
    def theta(self) -> Floats:
        """theta* [7 L]: ones at the true means."""
        return self.parameters(self.means)

    @classmethod
    def truths(cls) -> Sequence[Self]:
        """Return one problem per class."""
        weeks = (
            (6.0,) * 7,
            (4.0, 4.0, 4.0, 4.0, 4.0, 9.0, 9.0),
            (4.0, 4.0, 4.0, 4.0, 4.0, 12.0, 2.0),
            (2.0, 4.0, 4.0, 4.0, 9.0, 12.0, 2.0),
        )
        return [cls(means=week) for week in weeks]

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small instances, for the contract checks."""
        return [cls(means=(1.0,) * 7, levels=(1.0, 2.0), shelf=2, order_step=1, horizon=4)]
