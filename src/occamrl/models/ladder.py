r"""Ladders: nested classes of kernels F_1 < F_2 < ... < F_M, verified.

**Lists.** Two members agree when their kernels differ by at most 1e-9 everywhere. Candidates are
found by sorting a random projection, so that 100,000 members take a fraction of a second, and then
compared entry by entry.

**Linear classes and aggregations.** An embedding E takes the parameters of a class to those of a
larger one: :math:`P_\eta = P_{E\eta}`. Rows of a run give x once, in the coordinates of F_M; in
those of F_m they are :math:`E^T x`, so that its statistics are :math:`E^T G E` and :math:`E^T g`.
What cannot be verified is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from occamrl.arrays import Bools
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
from occamrl.problems.mdp import FiniteMDP, as_mdp, first_true
from occamrl.protocols import Evidence, Floats, Ints, Known

if TYPE_CHECKING:
    from occamrl.evidence.value_evidence import ValueEvidence

_SAME = 1e-9
_NESTED = (
    "every class to contain the one before it; "
    "list its members, or coordinates, in the larger class too"
)


class Embedding(NamedTuple):
    """How the parameters of a class are part of those of a larger one, G groups of n."""

    matrix: Floats  # [G, n, k] from the k own parameters that a group depends on
    group: Ints  # [G] the own group of these


def _refusal(
    classes: tuple[int, int], got: str, member: int | None = None, expected: str = _NESTED
) -> NestingError:
    """Return the error about two classes that are not nested, and what shows it."""
    index = classes if member is None else (*classes, member)
    return NestingError("classes", index=index, got=got, expected=expected)


# Lists --------------------------------------------------------------------------------------------


def match(members: Floats, among: Floats) -> Ints:
    """Return, for each row of ``members`` [m, d], the first equal row of ``among``; -1 if none."""
    # Projections on numbers in general position are equal for equal rows, and for few others.
    weights = np.random.default_rng(0).uniform(0.5, 1.0, members.shape[1:])
    projected = members @ weights
    targets = among @ weights
    order = np.argsort(targets, kind="stable")
    window = _SAME * float(weights.sum())
    low = np.searchsorted(targets[order], projected - window)
    high = np.searchsorted(targets[order], projected + window, side="right")
    first = np.full(len(members), len(among))
    # the windows of all members are walked through side by side, one candidate of each at a time
    for offset in range(int((high - low).max(initial=0))):
        tried = np.flatnonzero(low + offset < high)
        candidate = order[low[tried] + offset]
        equal = np.abs(members[tried] - among[candidate]).max(axis=1) <= _SAME
        first[tried[equal]] = np.minimum(first[tried[equal]], candidate[equal])
    return np.where(first < len(among), first, -1)


def comparable(families: Sequence[FiniteFamily]) -> list[Floats]:
    """Return each list as rows that can be compared [m, d].

    They are parameters if there is one map for all, and else probabilities of outcomes.
    """
    if len({family.features.fingerprint for family in families}) == 1:
        return [family.theta.reshape(family.size, -1) for family in families]
    if len({family.features.rewards is None for family in families}) > 1:
        raise FamilyError(
            "families",
            got="rewards fixed by some classes only",
            expected="by all classes, or by none",
        )
    keys = [_outcome_keys(family.features) for family in families]
    union, inverse = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    ends = np.cumsum([len(key) for key in keys])[:-1]
    rows = []
    for family, column in zip(families, np.split(inverse.ravel(), ends), strict=True):
        entries = (np.ones(column.size), (column, np.arange(column.size)))
        move = sp.csr_array(entries, shape=(len(union), column.size))
        rows.append(np.ascontiguousarray((move @ family.probability().T).T))
    return rows


def _outcome_keys(features: FeatureMap) -> Floats:
    """Return (s*A + a, s', reward) of each outcome [O, 3]; 0 where no reward is fixed."""
    rewards = np.zeros(features.outcomes.bonus.size)
    if features.rewards is not None:
        rewards = np.round(features.rewards, 12)
    return np.stack([features.outcomes.pair, features.outcomes.next_state, rewards], axis=1)


def nest(families: Sequence[FiniteFamily]) -> tuple[FiniteFamily, Ints]:
    """Return the largest list, sorted by the first class of a member, and that class, from 0."""
    rows = comparable(families)
    top = len(families) - 1
    level = np.full(families[-1].size, top)
    position = np.arange(families[-1].size)  # of the members of class m + 1 in the largest list
    for m in reversed(range(top)):
        classes = (m + 1, m + 2)
        equal = match(rows[m], rows[m + 1])
        member = first_true(equal < 0)
        if member is not None:
            raise _refusal(
                classes, f"member {member} of class {m + 1} is missing from class {m + 2}", member
            )
        position = position[equal]
        level[position] = m
        if not (level == m + 1).any():
            raise _refusal(classes, "two equal classes", expected="each class to add a member")
    # So that a class is the beginning of the list.
    order = np.argsort(level, kind="stable")
    return families[-1].take(order), level[order]


# Linear classes and aggregations ------------------------------------------------------------------


def embed(small: Family, large: Family, classes: tuple[int, int]) -> Embedding:
    """Return the embedding of a class into a larger one; refuse classes that are not nested."""
    if isinstance(small, LinearFamily) and isinstance(large, LinearFamily):
        return _embed_linear(small, large, classes)
    if isinstance(small, AggregationFamily) and isinstance(large, AggregationFamily):
        return _embed_partition(small, large, classes)
    raise _refusal(classes, f"{small!r} and {large!r}, for which nesting cannot be verified")


def _embed_linear(small: LinearFamily, large: LinearFamily, classes: tuple[int, int]) -> Embedding:
    """Compare coordinates and norms."""
    if small.features.fingerprint != large.features.fingerprint:
        raise _refusal(classes, "two feature maps", expected="one feature map, with coordinates")
    missing = first_true(~np.isin(small.coordinates, large.coordinates))
    if missing is not None:
        coordinate = f"coordinate {small.coordinates[missing]} of class {classes[0]}"
        raise _refusal(classes, f"{coordinate} is missing from class {classes[1]}", missing)
    if small.norm_bound > large.norm_bound * (1.0 + _SAME):
        raise _refusal(classes, f"the norm bound {small.norm_bound:g} above {large.norm_bound:g}")
    matrix = np.eye(small.features.dimension)[None, :, small.coordinates]
    return Embedding(matrix, np.zeros(1, dtype=np.int64))


def _embed_partition(
    small: AggregationFamily, large: AggregationFamily, classes: tuple[int, int]
) -> Embedding:
    """Match moves: in every finer block, each move of the coarser class is one of its own."""
    fine = large.features
    coarse = small.features
    matrix = np.zeros((fine.groups, fine.width, coarse.width))
    group = np.zeros(fine.groups, dtype=np.int64)
    for block in range(large.blocks):
        states = np.flatnonzero(large.partition == block)
        s = int(states[0])
        other = first_true(small.partition[states] != small.partition[s])
        if other is not None:
            pair = f"states {s} and {states[other]} may differ in class {classes[0]}"
            raise _refusal(
                classes,
                f"{pair}, but share a block of class {classes[1]}",
                s,
                "a finer partition in every class",
            )
        for a in range(fine.actions):
            ours = small.moves[states, a][:, small.moves[s, a] >= 0]
            theirs = large.moves[states, a][:, large.moves[s, a] >= 0]
            same = (theirs[:, :, None] == ours[:, None, :]).all(axis=0)
            lost = first_true(~same.any(axis=0))
            if lost is not None:
                move = f"move {lost} of action {a} in the states {states.tolist()}"
                raise _refusal(classes, f"{move} is not one of class {classes[1]}", s)
            g = fine.group[s * fine.actions + a]
            matrix[g, same.argmax(axis=0), np.arange(same.shape[1])] = 1.0
            group[g] = coarse.group[s * fine.actions + a]
    return Embedding(matrix, group)


# Ladders ------------------------------------------------------------------------------------------


class Ladder:
    """Nested classes of kernels F_1 < F_2 < ... < F_M, smallest first, counted from 1.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 3, 2))  # four P[s, a, s']
    >>> families = [orl.FiniteFamily(kernels[:2]), orl.FiniteFamily(kernels)]
    >>> ladder = orl.Ladder(families, names=["two", "four"])
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

    nested = True
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
    embeddings: list[Embedding]  # of the other ladders: each class in coordinates of the largest
    box: Mapping[str, tuple[float, float]] = MappingProxyType({})  # no real parameters

    def __init__(self, families: Sequence[Family], names: Sequence[str] | None = None) -> None:
        if not isinstance(families, Sequence) or isinstance(families, str) or not families:
            raise FamilyError(
                "families", got=f"{families!r:.80}", expected="a list of families, [F_1, F_2, ...]"
            )
        given: list[Any] = list(families)
        _require_one_kind(given)
        layers = max(family.features.layers for family in given)
        if layers > 1:
            given = [family.repeated(layers) for family in given]
        if given[0].finite:
            # A larger class contains the smaller ones, and the radius that these need.
            reach = np.maximum.accumulate([family.reach for family in given])
            self._set_members(*nest(given), reach.tolist())
        else:
            for m, (one, other) in enumerate(itertools.pairwise(given), start=1):
                embed(one, other, (m, m + 1))
                if (one.size, one.norm_bound) == (other.size, other.norm_bound):
                    raise _refusal(
                        (m, m + 1), "two equal classes", expected="each class to add a kernel"
                    )
            self.finite = False
            self.families = given
            self.reach = [0.0] * len(given)
            self.embeddings = [
                embed(family, given[-1], (m, len(given))) for m, family in enumerate(given, start=1)
            ]
        self._set_names(names)

    def _set_members(self, family: FiniteFamily, level: Ints, reach: Sequence[float]) -> None:
        """Fill in a list, whose members are sorted by ``level``."""
        self.finite = True
        self.level = level
        self.reach = list(reach)
        self.family = family.take(slice(None))  # a copy: the reach of a class is its own
        sizes = np.cumsum(np.bincount(level)).tolist()
        self.families = [self.family.take(slice(size)) for size in sizes[:-1]]
        self.families.append(self.family)
        for part, radius in zip(self.families, self.reach, strict=True):
            part.reach = float(radius)

    def _set_names(self, names: Sequence[str] | None) -> None:
        self.classes = len(self.families)
        self.features = self.families[-1].features
        self.sizes = [family.size for family in self.families]
        if names is None:
            names = [f"F_{m}" for m in range(1, self.classes + 1)]
        self.names = tuple(names)
        texts = all(isinstance(name, str) and name for name in self.names)
        different = len(set(self.names)) == len(self.names) == self.classes
        if isinstance(names, str) or not texts or not different:
            raise FamilyError(
                "names", got=f"{names!r:.80}", expected=f"{self.classes} different names"
            )

    @classmethod
    def of_levels(
        cls,
        family: FiniteFamily,
        level: Ints,
        reach: Sequence[float] | None = None,
        names: Sequence[str] | None = None,
        draws: int = 0,
    ) -> Ladder:
        """Return the ladder of a list; ``level`` [m] is the first class of a member, from 0.

        Members are sorted by it.
        """
        ladder = cls.__new__(cls)
        ladder._set_members(family, level, reach or [0.0] * (int(level[-1]) + 1))
        ladder._set_names(names)
        ladder.draws = draws
        return ladder

    @classmethod
    def of_problem(cls, problem: Any) -> Any:
        """Return the ladder of a problem: ``ladder``, or ``phi``, ``hypotheses`` and ``sizes``."""
        ladder = getattr(problem, "ladder", None)
        if isinstance(ladder, (Ladder, ParametricLadder)):
            return ladder
        hypotheses = getattr(problem, "hypotheses", None)
        if hypotheses is None:
            raise ParameterError(
                "problem",
                got=f"{type(problem).__name__}, which has no ladder",
                expected="a problem that has a ladder, or your own Ladder([F_1, ...])",
            )
        family = FiniteFamily(parameters=hypotheses, features=FeatureMap(problem.phi))
        level = np.repeat(np.arange(len(problem.sizes)), np.diff(problem.sizes, prepend=0))
        return cls.of_levels(family, level, names=getattr(problem, "class_names", None))

    @property
    def by_step(self) -> bool:
        """Whether kernels depend on the step."""
        return self.features.layers > 1

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

    def list_evidence(self, known: Known, delta: float) -> Any:
        """Return what weighs the members of lists by likelihood, those of covers too."""
        return _list_evidence(self, known, delta)

    def value_evidence(self, known: Known, delta: float) -> ValueEvidence:
        """Return what weighs the classes by value rows."""
        self.features.require_one_layer()
        return _value_evidence(self, known, delta)

    # Members of lists -----------------------------------------------------------------------------

    @property
    def prior(self) -> Floats:
        """w(P) = 1/(M |F_l minus F_{l-1}|) for P first appearing in F_l, of lists [m]."""
        return np.asarray(1.0 / (self.classes * np.bincount(self.level)[self.level]))

    def largest(self, scores: Floats) -> Floats:
        """Return the largest score of a member in each class [M], given all of them [m]."""
        best = np.full(self.classes, -np.inf)
        np.maximum.at(best, self.level, scores)
        return np.maximum.accumulate(best)

    def count(self, inside: Bools) -> list[int]:
        """Return how many members of each class are inside a set, given which members are [m]."""
        counts = np.bincount(self.level[inside], minlength=self.classes)
        return list(map(int, counts.cumsum()))

    # Classes --------------------------------------------------------------------------------------

    def family_of(self, m: int) -> Any:
        """Return F_m, m = 1 ... M."""
        return self.families[require_integer("m", m, 1, maximum=self.classes) - 1]

    def only(self, m: int) -> Ladder:
        """Return the ladder of class m alone, under its name."""
        family = self.family_of(m)
        names = [self.names[m - 1]]
        if not self.finite:
            return Ladder([family], names=names)
        level = np.zeros(family.size, dtype=np.int64)
        return Ladder.of_levels(family, level, [self.reach[m - 1]], names, self.draws)

    def class_of(self, mdp: object) -> int | None:
        """Return m*, the first class that contains all kernels of a problem; None if none does."""
        truth = as_mdp(mdp)
        if self.finite and (self.by_step or self.features.rewards is not None):
            return self._class_with_rewards(truth)
        needed = 1
        shape = (truth.states * truth.actions, truth.states)
        for probability in truth.probability:
            rows = (probability, truth.outcomes.next_state, truth.outcomes.start)
            m = self._class_of_kernel(sp.csr_array(rows, shape=shape))
            if m is None:
                return None
            needed = max(needed, m)
        return needed

    def _class_of_kernel(self, kernel: sp.csr_array) -> int | None:
        """Return the first class that contains a kernel (S*A, S)."""
        if self.finite:
            member = self.family.find(kernel)
            return None if member is None else int(self.level[member]) + 1
        for m, family in enumerate(self.families, start=1):
            if family.contains(kernel):
                return m
        return None

    def _class_with_rewards(self, truth: FiniteMDP) -> int | None:
        """Return the first class of a list that has a problem's outcomes with their rewards."""
        if self.by_step:
            if truth.horizon != self.features.layers:
                return None
            kernels = FiniteFamily([truth]).repeated(self.features.layers)
            if self.features.rewards is None:
                kernels.features.rewards = None
            return self._class_of_members(kernels)
        rewards = truth.base_reward[truth.outcomes.pair] + truth.outcomes.bonus
        features = FeatureMap.of_matrix(truth.outcomes, truth.probability.T, truth.states, rewards)
        kernels = FiniteFamily(parameters=np.eye(len(truth.probability)), features=features)
        return self._class_of_members(kernels)

    def _class_of_members(self, kernels: FiniteFamily) -> int | None:
        """Return the first class that contains all kernels of a list."""
        # Outcomes of one next state may differ in their rewards, so kernels alone say too little.
        members, targets = comparable([self.family, kernels])
        equal = match(targets, members)
        if (equal < 0).any():
            return None
        return int(self.level[equal].max()) + 1

    def statistics(self, m: int, gram: Floats, xy: Floats) -> tuple[Floats, Floats]:
        """Return the sums of x x^T and y x in the parameters of class m, from those of F_M."""
        if self.finite:
            return gram, xy
        matrix, group = self.embeddings[m - 1]
        features = self.families[m - 1].own_features
        own_gram = np.zeros((features.groups, features.width, features.width))
        own_xy = np.zeros((features.groups, features.width))
        np.add.at(own_gram, group, matrix.transpose(0, 2, 1) @ gram @ matrix)
        np.add.at(own_xy, group, np.einsum("gnk,gn->gk", matrix, xy))
        return own_gram, own_xy

    def smallest_loss(self, m: int, gram: Floats, xy: Floats) -> float:
        """Return min over F_m of L, minus sum y^2, from the sums in the coordinates of F_M."""
        return float(self.family_of(m).smallest_loss(*self.statistics(m, gram, xy)))

    def __repr__(self) -> str:
        members = "kernels" if self.finite else "parameters"
        return f"Ladder({' < '.join(map(str, self.sizes))} {members}, {self.features!r})"


def _require_one_kind(families: Sequence[Any]) -> None:
    """Refuse families of different sizes, and lists beside linear classes."""
    first = families[0]
    for m, family in enumerate(families, start=1):
        require_kind(f"families[{m}]", family, Family)
        got = f"S={family.features.states}, A={family.features.actions}"
        expected = f"S={first.features.states}, A={first.features.actions}"
        if got != expected:
            expected += ", as in the first"
            raise ShapeError("families", index=(m,), got=got, expected=expected)
        if family.finite != first.finite:
            raise FamilyError(
                "families",
                index=(m,),
                got=f"a {type(family).__name__} above a {type(first).__name__}",
                expected="lists only, or linear classes only; "
                "cover the linear class by a list (CoverFamily)",
            )


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
