r"""Ladders: nested classes of kernels F_1 < F_2 < ... < F_M, verified.

**Lists.** Two members agree when their kernels differ by at most 1e-9 everywhere. Candidates are
found by sorting a random projection, so that 100,000 members take a fraction of a second, and then
compared entry by entry.

**Linear classes and aggregations.** An embedding E takes the parameters of a class to those of a larger one:
:math:`P_\eta = P_{E\eta}`. Rows of a run give x once, in the coordinates of F_M; in those of F_m they are
:math:`E^T x`, so that its statistics are :math:`E^T G E` and :math:`E^T g`. What cannot be verified is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamrl.errors import (
    FamilyError,
    NestingError,
    ParameterError,
    ShapeError,
    require_integer,
    require_kind,
)
from occamrl.models.families import AggregationFamily, Family, FiniteFamily, LinearFamily
from occamrl.models.features import FeatureMap
from occamrl.models.model import ParametricLadder
from occamrl.problems.mdp import as_mdp
from occamrl.protocols import Evidence, Floats, Ints, Known

if TYPE_CHECKING:
    from occamrl.evidence.value_evidence import ValueEvidence

Reach = list[float] | None
Names = Sequence[str] | None

_SAME = 1e-9
_NESTED = "every class to contain the one before it; list its members, or coordinates, in the larger class too"


class Embedding(NamedTuple):
    """How the parameters of a class are part of those of a larger one, G groups of n."""

    matrix: Floats  # [G, n, k] from the k own parameters that a group depends on
    group: Ints  # [G] the own group of these


def _refusal(
    classes: tuple[int, int], got: str, member: int | None = None, expected: str = _NESTED
) -> NestingError:
    return NestingError(
        "classes",
        index=classes if member is None else (*classes, member),
        got=got,
        expected=expected,
    )


def match(members: Floats, among: Floats) -> Ints:
    """Return, for each row of ``members`` [m, d], the first row of ``among`` that equals it; -1 if none."""
    weights = np.random.default_rng(0).uniform(
        0.5, 1.0, members.shape[1:]
    )  # any numbers in general position
    left, right = members @ weights, among @ weights
    order = np.argsort(right, kind="stable")
    window = _SAME * float(weights.sum())
    low = np.searchsorted(right[order], left - window)
    high = np.searchsorted(right[order], left + window, side="right")
    found = np.full(len(members), len(among))
    for offset in range(int((high - low).max(initial=0))):
        tried = np.flatnonzero(low + offset < high)
        candidates = order[low[tried] + offset]
        near = np.abs(members[tried] - among[candidates]).max(axis=1) <= _SAME
        found[tried[near]] = np.minimum(found[tried[near]], candidates[near])
    return np.where(found < len(among), found, -1)


def comparable(families: Sequence[FiniteFamily]) -> list[Floats]:
    """Return each list as rows that can be compared: parameters over one map, or probabilities of outcomes."""
    if len({family.features.fingerprint for family in families}) == 1:
        return [family.theta.reshape(family.size, -1) for family in families]
    if len({family.features.rewards is None for family in families}) > 1:
        raise FamilyError(
            "families",
            got="rewards fixed by some classes only",
            expected="by all classes, or by none",
        )
    keys = []
    for features in (family.features for family in families):
        rewards = (
            np.zeros(features.outcomes.bonus.size)
            if features.rewards is None
            else np.round(features.rewards, 12)
        )
        keys.append(
            np.stack([features.outcomes.pair, features.outcomes.next_state, rewards], axis=1)
        )
    union, place = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    ends, rows = np.cumsum([len(own) for own in keys])[:-1], list[Floats]()
    for family, at in zip(families, np.split(place.ravel(), ends), strict=True):
        move: Any = sp.csr_array(
            (np.ones(at.size), (at, np.arange(at.size))), shape=(len(union), at.size)
        )
        rows.append(np.ascontiguousarray((move @ family.probability().T).T))
    return rows


def nest(families: Sequence[FiniteFamily]) -> tuple[FiniteFamily, Ints]:
    """Return the largest list, sorted by the first class that contains a member, and that class (from 0) per member."""
    rows, top = comparable(families), len(families) - 1
    level, place = (
        np.full(families[-1].size, top),
        np.arange(families[-1].size),
    )  # place: of class m in the largest
    for m in reversed(range(top)):
        found = match(rows[m], rows[m + 1])
        if (found < 0).any():
            member = int(np.argmin(found))
            raise _refusal(
                (m + 1, m + 2),
                f"member {member} of class {m + 1} is missing from class {m + 2}",
                member,
            )
        place = place[found]
        level[place] = m
        if not (level == m + 1).any():
            raise _refusal(
                (m + 1, m + 2), "two equal classes", expected="each class to add a member"
            )
    order = np.argsort(level, kind="stable")
    return families[-1].take(order), level[order]


def embed(small: Any, large: Any, classes: tuple[int, int]) -> Embedding:
    """Return the embedding of a linear class or aggregation into a larger one; refuse classes that are not nested."""
    if type(small) is type(large) and isinstance(small, (LinearFamily, AggregationFamily)):
        return (_linear if isinstance(small, LinearFamily) else _refinement)(small, large, classes)
    raise _refusal(classes, f"{small!r} and {large!r}, for which nesting cannot be verified")


def _linear(small: Any, large: Any, classes: tuple[int, int]) -> Embedding:
    """Compare coordinates and norms."""
    if small.features.fingerprint != large.features.fingerprint:
        raise _refusal(classes, "two feature maps", expected="one feature map, with coordinates")
    outside = ~np.isin(small.coordinates, large.coordinates)
    if outside.any():
        place = int(np.argmax(outside))
        got = f"coordinate {small.coordinates[place]} of class {classes[0]} is missing from class {classes[1]}"
        raise _refusal(classes, got, place)
    if small.norm_bound > large.norm_bound * (1.0 + _SAME):
        raise _refusal(classes, f"the norm bound {small.norm_bound:g} above {large.norm_bound:g}")
    matrix = np.eye(small.features.dimension)[None, :, small.coordinates]
    return Embedding(matrix, np.zeros(1, dtype=np.int64))


def _refinement(small: Any, large: Any, classes: tuple[int, int]) -> Embedding:
    """Match moves: in every block of the finer partition, each move of the coarser class is one of its own."""
    fine, coarse, actions = large.features, small.features, large.features.actions
    made = Embedding(
        np.zeros((fine.groups, fine.width, coarse.width)), np.zeros(fine.groups, dtype=np.int64)
    )
    for block in range(large.blocks):
        states = np.flatnonzero(large.partition == block)
        for t in states[small.partition[states] != small.partition[states[0]]].tolist():
            s = int(states[0])
            got = f"states {s} and {t} may differ in class {classes[0]}, but share a block of class {classes[1]}"
            raise _refusal(classes, got, s, "a finer partition in every class")
        for a in range(actions):
            ours, theirs = (
                table[states, a][:, table[states[0], a] >= 0]
                for table in (small.moves, large.moves)
            )
            same = (theirs[:, :, None] == ours[:, None, :]).all(axis=0)
            for move in np.flatnonzero(~same.any(axis=0)).tolist():
                got = f"move {move} of action {a} in the states {states.tolist()} is not one of class {classes[1]}"
                raise _refusal(classes, got, int(states[0]))
            g = fine.group[states[0] * actions + a]
            made.matrix[g, same.argmax(axis=0), np.arange(same.shape[1])] = 1.0
            made.group[g] = coarse.group[states[0] * actions + a]
    return made


class Ladder:
    """Nested classes of kernels F_1 < F_2 < ... < F_M, from the smallest to the largest; counted from 1.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 3, 2))  # four kernels P[s, a, s']
    >>> ladder = orl.Ladder([orl.FiniteFamily(kernels[:2]), orl.FiniteFamily(kernels)], names=["two", "four"])
    >>> ladder.sizes
    [2, 4]

    Nesting is verified; a ladder that is not nested is refused with the pair of classes and what
    shows it.

    Parameters
    ----------
    families : sequence of families
        All lists of kernels (FiniteFamily, CoverFamily); or all linear classes; or all
        aggregations.
    names : sequence of str, optional
        What the classes are called in every answer; F_1, ..., F_M by default.
    """

    classes: int  # M
    names: tuple[str, ...]
    finite: bool  # whether the classes are lists of kernels
    families: list[Any]  # F_1, ..., F_M
    sizes: list[int]  # |F_1|, ..., |F_M| of lists; numbers of parameters of the other classes
    features: FeatureMap  # of the largest class
    reach: list[float]  # how far the truth may be from the nearest member of each, 0 but for covers
    family: FiniteFamily  # of lists: F_M, its members sorted by the first class that contains them
    level: Ints  # of lists [m]: that class, from 0
    draws: int = 0  # from which each row of the kernels was estimated; 0: they are exact
    embeddings: list[
        Embedding
    ]  # of the other ladders: every class in the coordinates of the largest

    def __init__(self, families: Sequence[Family], names: Names = None) -> None:
        if not isinstance(families, Sequence) or isinstance(families, str) or not families:
            raise FamilyError(
                "families", got=f"{families!r:.80}", expected="a list of families, [F_1, F_2, ...]"
            )
        given: list[Any] = list(families)
        for m, family in enumerate(given, start=1):
            require_kind(f"families[{m}]", family, Family)
            sizes = [
                f"S={each.features.states}, A={each.features.actions}"
                for each in (family, given[0])
            ]
            if sizes[0] != sizes[1]:
                raise ShapeError(
                    "families", index=(m,), got=sizes[0], expected=f"{sizes[1]}, as in the first"
                )
            if family.finite != given[0].finite:
                got = f"a {type(family).__name__} above a {type(given[0]).__name__}"
                expected = "lists only, or linear classes only; cover the linear class by a list (CoverFamily)"
                raise FamilyError("families", index=(m,), got=got, expected=expected)
        if given[0].finite:
            self._of_members(
                *nest(given), np.maximum.accumulate([each.reach for each in given]).tolist(), names
            )
            return
        for m, (one, other) in enumerate(itertools.pairwise(given), start=1):
            embed(one, other, (m, m + 1))
            if (type(one), one.size, one.norm_bound) == (type(other), other.size, other.norm_bound):
                raise _refusal(
                    (m, m + 1), "two equal classes", expected="each class to add a kernel"
                )
        self.finite, self.families, self.reach = False, given, [0.0] * len(given)
        self.embeddings = [
            embed(each, given[-1], (m, len(given))) for m, each in enumerate(given, start=1)
        ]
        self._name(names)

    def _of_members(self, family: FiniteFamily, level: Ints, reach: Reach, names: Names) -> Ladder:
        sizes = np.cumsum(np.bincount(level)).tolist()
        self.finite, self.level, self.reach = (
            True,
            level,
            [0.0] * len(sizes) if reach is None else reach,
        )
        self.family = family.take(slice(None))  # the reach of a class is its own
        self.families = [*(self.family.take(slice(size)) for size in sizes[:-1]), self.family]
        for each, own in zip(self.families, self.reach, strict=True):
            each.reach = float(own)
        self._name(names)
        return self

    def _name(self, names: Names) -> None:
        self.classes, self.features = len(self.families), self.families[-1].features
        self.sizes = [family.size for family in self.families]
        found = (
            tuple(f"F_{m}" for m in range(1, self.classes + 1)) if names is None else tuple(names)
        )
        texts = all(isinstance(name, str) and name for name in found) and not isinstance(names, str)
        if not texts or not len(set(found)) == len(found) == self.classes:
            raise FamilyError(
                "names", got=f"{names!r:.80}", expected=f"{self.classes} different names"
            )
        self.names = found

    @classmethod
    def of_levels(
        cls,
        family: FiniteFamily,
        level: Ints,
        reach: Reach = None,
        names: Names = None,
        draws: int = 0,
    ) -> Ladder:
        """Return the ladder in which ``level`` [m], from 0 and increasing, is the first class that has a member."""
        made = cls.__new__(cls)._of_members(family, level, reach, names)
        made.draws = draws
        return made

    @classmethod
    def of_problem(cls, problem: Any) -> Any:
        """Return the ladder that a problem has: ``ladder``, or ``phi``, ``hypotheses`` and ``sizes``."""
        found = getattr(problem, "ladder", None)
        if isinstance(found, (Ladder, ParametricLadder)):
            return found
        if not hasattr(problem, "hypotheses"):
            expected = "a problem that has a ladder, or your own Ladder([F_1, ...])"
            raise ParameterError(
                "problem", got=f"{type(problem).__name__}, which has no ladder", expected=expected
            )
        names = getattr(problem, "class_names", None) or None
        family = FiniteFamily(parameters=problem.hypotheses, features=FeatureMap(problem.phi))
        level = np.repeat(np.arange(len(problem.sizes)), np.diff(problem.sizes, prepend=0))
        return cls.of_levels(family, level, names=names)

    @property
    def prior(self) -> Floats:
        """w(P) = 1/(M |F_l minus F_{l-1}|) for P first appearing in F_l, of lists [m]."""
        return np.asarray(
            1.0 / (self.classes * np.bincount(self.level)[self.level]), dtype=np.float64
        )

    def largest(self, scores: Floats) -> Floats:
        """Return the largest score of a member in each class [M], given those of all members of lists [m]."""
        best = np.full(self.classes, -np.inf)
        np.maximum.at(best, self.level, scores)
        return np.maximum.accumulate(best)

    def count(self, inside: NDArray[np.bool_]) -> list[int]:
        """Return how many members in each class are inside a set, given which members of lists are [m]."""
        return [int(n) for n in np.bincount(self.level[inside], minlength=self.classes).cumsum()]

    box: Mapping[str, tuple[float, float]] = MappingProxyType({})  # no real parameters

    @property
    def kind(self) -> str:
        """What the members are: "list" or "linear"."""
        return "list" if self.finite else "linear"

    def evidence(self, known: Known, delta: float) -> Evidence:
        """Return what weighs the classes on a problem.

        By likelihood where they are lists; by value rows where they are linear, or covers, which
        the truth may lie between.
        """
        if self.finite and self.reach[-1] == 0.0:
            return _list_evidence(self, known, delta)
        return self.value_evidence(known, delta)

    def value_evidence(self, known: Known, delta: float) -> ValueEvidence:
        """Return what weighs the classes by value rows."""
        return _value_evidence(self, known, delta)

    def family_of(self, m: int) -> Any:
        """Return F_m, m = 1 ... M."""
        return self.families[require_integer("m", m, 1, maximum=self.classes) - 1]

    def class_of(self, mdp: Any) -> int | None:
        """Return m*, the first class that contains a problem's kernel, or all of its kernels; None if none does."""
        truth = as_mdp(mdp)
        if (
            self.finite and self.features.rewards is not None
        ):  # outcomes are compared with their rewards
            rewards = truth.base_reward.ravel()[truth.outcomes.pair] + truth.outcomes.bonus
            features = FeatureMap.of_matrix(
                truth.outcomes, truth.probability.T, truth.states, rewards
            )
            own = FiniteFamily(parameters=np.eye(len(truth.probability)), features=features)
            found = match(*reversed(comparable([self.family, own])))
            return None if (found < 0).any() else int(self.level[found].max()) + 1
        needed: list[int | None] = []
        for matrix in (sp.csr_array(kernel.matrix) for kernel in truth.kernels):
            if self.finite:
                member = self.family.find(matrix)
                needed.append(None if member is None else int(self.level[member]) + 1)
            else:
                needed.append(
                    next(
                        (
                            m
                            for m, each in enumerate(self.families, start=1)
                            if each.contains(matrix)
                        ),
                        None,
                    )
                )
        return None if None in needed else max(each for each in needed if each)

    def statistics(self, m: int, gram: Floats, xy: Floats) -> tuple[Floats, Floats]:
        """Return sum x x^T and sum y x in the own parameters of class m, from those over ``features``."""
        if self.finite:
            return gram, xy
        (matrix, group), own = self.embeddings[m - 1], self.families[m - 1].own_features
        own_gram, own_xy = (
            np.zeros((own.groups, own.width, own.width)),
            np.zeros((own.groups, own.width)),
        )
        np.add.at(own_gram, group, matrix.transpose(0, 2, 1) @ gram @ matrix)
        np.add.at(own_xy, group, np.einsum("gnk,gn->gk", matrix, xy))
        return own_gram, own_xy

    def smallest_loss(self, m: int, gram: Floats, xy: Floats) -> float:
        """Return min over F_m of L, minus sum y^2, from the statistics of all rows over ``features``."""
        return float(self.family_of(m).smallest_loss(*self.statistics(m, gram, xy)))

    def __repr__(self) -> str:
        what = "kernels" if self.finite else "parameters"
        return f"Ladder({' < '.join(map(str, self.sizes))} {what}, {self.features!r})"


# Evidence remembers what it computed last, so that it is made once for a problem. It knows ladders,
# and so is imported when it is needed.


@lru_cache(maxsize=32)
def _list_evidence(ladder: Ladder, known: Known, delta: float) -> Evidence:
    from occamrl.evidence.lists import ListEvidence

    return ListEvidence(ladder, known, delta)


@lru_cache(maxsize=32)
def _value_evidence(ladder: Ladder, known: Known, delta: float) -> ValueEvidence:
    from occamrl.evidence.value_evidence import LinearEvidence, ListValueEvidence

    if ladder.finite:
        return ListValueEvidence(ladder, known, delta)
    return LinearEvidence(ladder, known, delta)
