"""Ladders: nested classes of kernels F_1 < F_2 < ... < F_M, checked (section 4 of the mathematics)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from occamrl.contracts import Floats, Ints
from occamrl.errors import FamilyError, ParameterError
from occamrl.families.family import Family
from occamrl.families.features import FeatureMap
from occamrl.families.finite import FiniteFamily
from occamrl.families.linear_ladder import LinearLadder, require_list
from occamrl.families.nesting import comparable, match, nest
from occamrl.families.simulators import pair_of_outcome
from occamrl.problems.finite_mdp import FiniteMDP


class Ladder:
    """Nested finite families, from the smallest to the largest.

    Members are compared kernel by kernel; a ladder that is not nested is refused with the pair of rungs and the member
    that shows it. Classes count from 1, as in the paper. Where the largest class is not finite, ``Ladder(rungs)`` is a
    :class:`LinearLadder`.

    Parameters
    ----------
    rungs : sequence of families
        Finite ones, or ones below a linear class or an aggregation.

    Attributes
    ----------
    family : FiniteFamily
        F_M, its members sorted by the first class that holds them, so that F_m is its first ``sizes[m - 1]`` members.
    level : array [n]
        The first class that holds a member, from 0.
    reach : list of M numbers
        How far the truth may be from the nearest member of each class, see :mod:`occamrl.families.off_grid`; 0 without
        covers.
    """

    def __new__(cls, rungs: Sequence[Family] = ()) -> Any:
        """Return a ladder of the kind that the largest class asks for."""
        last = next(reversed(require_list(rungs)), None)
        if isinstance(last, Family) and not isinstance(last, FiniteFamily):
            return LinearLadder(rungs)
        return super().__new__(cls)

    def __init__(self, rungs: Sequence[Family]) -> None:
        given = list(rungs)
        if not given:
            raise FamilyError("rungs", got="an empty ladder", expected="at least one class")
        for m, rung in enumerate(given):
            if not isinstance(rung, FiniteFamily):
                raise FamilyError("rungs", index=(m + 1,), got=type(rung).__name__, expected="a FiniteFamily")
        finite = [rung for rung in given if isinstance(rung, FiniteFamily)]
        self._set(*nest(finite))
        self.reach = np.maximum.accumulate([rung.reach for rung in finite]).tolist()
        self.family.reach = self.grid

    def _set(self, family: FiniteFamily, level: Ints) -> None:
        self.family = family
        self.level = level
        self.reach = [0.0] * self.classes
        self._rungs: dict[int, FiniteFamily] = {}

    @classmethod
    def of_prefixes(cls, parameters: ArrayLike, features: FeatureMap, sizes: Sequence[int]) -> Ladder:
        """Return the ladder whose class m is the first ``sizes[m - 1]`` of a list of parameters; nested as it stands.

        For long lists: members are neither compared nor stored twice.
        """
        family = FiniteFamily(parameters=parameters, features=features)
        ends = [0, *(int(size) for size in sizes)]
        if len(ends) < 2 or min(np.diff(ends)) < 1 or ends[-1] != family.size:
            raise ParameterError("sizes", got=list(sizes), expected=f"increasing numbers that end at {family.size}")
        made: Ladder = cls.__new__(cls)
        made._set(family, np.repeat(np.arange(len(ends) - 1), np.diff(ends)))
        return made

    @classmethod
    def of_problem(cls, problem: Any) -> Ladder:
        """Return the ladder that a problem brings along: its features ``phi``, ``hypotheses`` and their ``sizes``."""
        return cls.of_prefixes(problem.hypotheses, FeatureMap(problem.phi), problem.sizes)

    @property
    def classes(self) -> int:
        """The number M of classes."""
        return int(self.level[-1]) + 1

    @property
    def sizes(self) -> list[int]:
        """|F_1|, ..., |F_M|."""
        return [int(size) for size in np.searchsorted(self.level, np.arange(self.classes), side="right")]

    @property
    def prior(self) -> Floats:
        """w(P) = 1/(M |F_l less F_{l-1}|) for P first appearing in F_l (M25)."""
        added = np.bincount(self.level)
        return np.asarray(1.0 / (self.classes * added[self.level]), dtype=np.float64)

    @property
    def grid(self) -> float:
        """How far a kernel of any cover's box may be from its nearest point; 0 without covers."""
        return float(self.reach[-1])

    def rung(self, m: int) -> FiniteFamily:
        """Return F_m, m = 1 ... M."""
        if not 1 <= m <= self.classes:
            raise ParameterError("m", got=m, expected=f"a class in 1 ... {self.classes}")
        if m not in self._rungs:
            self._rungs[m] = self.family if m == self.classes else self.family.prefix(self.sizes[m - 1])
            self._rungs[m].reach = self.reach[m - 1]
        return self._rungs[m]

    def class_of(self, mdp: FiniteMDP) -> int | None:
        """Return m*, the first class that holds a problem's kernel; None if none does. For studies: an agent cannot."""
        if not mdp.stationary:
            return None
        truth, rewards = mdp.truth, None
        if self.family.features.rewards is not None:
            rewards = truth.base_reward[pair_of_outcome(truth.outcomes)] + truth.outcomes.bonus
        features = FeatureMap.of_outcomes(truth.outcomes, mdp.states, rewards)
        members, kernel = comparable([self.family, FiniteFamily(parameters=truth.probability, features=features)])
        found = int(match(kernel, members)[0])
        return None if found < 0 else int(self.level[found]) + 1

    def __len__(self) -> int:
        return self.classes

    def __repr__(self) -> str:
        return f"Ladder({' < '.join(str(size) for size in self.sizes)} kernels, {self.family.features!r})"
