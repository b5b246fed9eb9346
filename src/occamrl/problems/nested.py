"""Nested classes of parameters, listed once each: what the ladder of a problem is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from occamrl.contracts import Floats
from occamrl.problems.listing import read_only

_DIGITS = 12  # parameters that agree to this many digits are one hypothesis


class NestedClasses(ABC):
    """A problem that says what each class adds to those before it; ``Ladder.of_problem`` makes the ladder."""

    @abstractmethod
    def classes(self) -> Sequence[Floats]:
        """Return the parameters [n, d] that each class adds to those before it; repetitions are dropped."""

    @cached_property
    def _ordered(self) -> tuple[Floats, list[int]]:
        added = self.classes()
        stacked = np.concatenate(added)
        _, first = np.unique(np.round(stacked, _DIGITS), axis=0, return_index=True)
        kept, ends = np.sort(first), np.cumsum([len(part) for part in added])
        return read_only(stacked[kept]), [int(size) for size in np.searchsorted(kept, ends)]

    @property
    def hypotheses(self) -> Floats:
        """All parameters [n, d], each once, by the first class that holds them."""
        return self._ordered[0]

    @property
    def sizes(self) -> list[int]:
        """|F_1|, ..., |F_M|."""
        return self._ordered[1]
