"""A machine that wears out: replace it in time, or wait until it fails."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from occamrl.contracts import Floats
from occamrl.errors import HorizonError, ParameterError, require_number
from occamrl.problems.checks import require_integer
from occamrl.problems.practical import Entry, PracticalProblem

KEEP, REPLACE = 0, 1
_FIRST = (0.02, 0.05, 0.1, 0.2, 0.3)  # hazards of a new machine
_SLOPES = (0.005, 0.01, 0.02, 0.03, 0.04)  # by which they grow per month, in the linear class
_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.4)  # of the monotone class
_LONGEST = 0.95


@dataclass(frozen=True, kw_only=True)
class MachineReplacement(PracticalProblem):
    """Every month the machine is kept or replaced; a kept one of age i fails with the hazard p_i.

    A replacement takes no time: the month is run by a new machine, which may fail as well. After a failure the next
    month begins with a new one. From the age ``oldest`` on the hazard stays what it is. The account is what is paid:
    ``planned`` for a replacement, ``failure`` for a failure.

    Parameters
    ----------
    oldest : int
        The highest age that is told apart, in months; S = oldest + 1.
    stretch : int
        In the monotone class the hazard may rise every so many months; divides oldest.
    horizon
        Months of an episode.
    planned, failure : numbers
        Euro.
    hazard : tuple of S numbers
        The true hazards by age.
    """

    oldest: int = 14
    stretch: int = 2
    horizon: int = 36
    planned: float = 2000.0
    failure: float = 10000.0
    hazard: tuple[float, ...] = (0.1,) * 15

    rung_names: ClassVar[tuple[str, ...]] = ("constant", "linear", "monotone")

    def __post_init__(self) -> None:
        require_integer("oldest", self.oldest, 1)
        if require_integer("stretch", self.stretch, 1) and self.oldest % self.stretch:
            raise ParameterError("stretch", got=self.stretch, expected=f"a divisor of oldest = {self.oldest}")
        require_integer("horizon", self.horizon, 1, HorizonError)
        for name in ("planned", "failure"):
            require_number(name, getattr(self, name), 0.0, np.inf, open_low=True)
        if len(self.hazard) != self.states:
            raise ParameterError("hazard", got=f"{len(self.hazard)} numbers", expected=self.states)
        for p in self.hazard:
            require_number("hazard", p, 0.0, 1.0)

    @property
    def states(self) -> int:
        """Ages 0 ... oldest."""
        return self.oldest + 1

    @property
    def actions(self) -> int:
        """Keep and replace."""
        return 2

    def entries(self) -> Iterable[Entry]:
        """Return what can happen; theta = (1, hazards by age)."""
        for age, action in itertools.product(range(self.states), (KEEP, REPLACE)):
            runs, paid = (age, 0.0) if action == KEEP else (0, self.planned)
            older = min(runs + 1, self.oldest)
            yield Entry(age, action, older, 0, 1.0, -paid)
            yield Entry(age, action, older, 1 + runs, -1.0, -paid)
            yield Entry(age, action, 0, 1 + runs, 1.0, -paid - self.failure)

    def classes(self) -> Sequence[Floats]:
        """Return the hazards that each class adds."""
        age = np.arange(self.states)
        constant = [np.full(self.states, p) for p in _FIRST]
        linear = [np.minimum(p + slope * age, _LONGEST) for p in _FIRST for slope in _SLOPES]
        pieces = self.oldest // self.stretch
        rising = itertools.combinations_with_replacement(_LEVELS, pieces)
        steps = [np.array(levels)[np.minimum(age // self.stretch, pieces - 1)] for levels in rising]
        return [np.array([[1.0, *hazard] for hazard in each]) for each in (constant, linear, steps)]

    @property
    def theta(self) -> Floats:
        """theta* [1 + S]."""
        return np.array([1.0, *self.hazard])

    @classmethod
    def truths(cls) -> Sequence[Self]:
        """Return one problem per class."""
        age = np.arange(15)
        wears_out = np.where(age < 8, 0.02, 0.4)
        return [cls(), cls(hazard=tuple(0.02 + 0.03 * age)), cls(hazard=tuple(wears_out))]

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small instances, for the contract checks."""
        return [cls(oldest=2, stretch=1, horizon=6, hazard=(0.1, 0.2, 0.4))]
