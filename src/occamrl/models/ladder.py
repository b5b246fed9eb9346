"""Ladders: nested classes of kernels F_1 < F_2 < ... < F_M, checked (section 4 of the mathematics).

**Lists.** Two members agree when their kernels differ by at most 1e-9 everywhere. Candidates are found by sorting a
random projection, so that 100,000 members take a fraction of a second, and then compared entry by entry.

**Linear classes and aggregations.** For classes F and G with features phi_F and phi_G, an embedding E has P_theta in F
equal to P_(E theta) in G. Rows of a run give x = phi_G,V(s, a) once, in the largest class; x_F = E^T x follows, and so
do the statistics of every class. What cannot be verified is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from occamrl.errors import (
    FamilyError,
    NestingError,
    ParameterError,
    ShapeError,
    as_floats,
    as_integers,
    require_integer,
    require_kind,
)
from occamrl.models.family import TOLERANCE, Family, kernel_matrix, member_losses, packed, unpacked
from occamrl.models.features import FeatureMap, pair_of_outcome
from occamrl.models.finite import FiniteFamily
from occamrl.models.linear import AggregationFamily, LinearFamily, first_of
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats, Ints

_SAME = 1e-9


_NESTED = "every class to hold the one before it; list its members, or coordinates, in the larger one too"


def _refusal(rungs: tuple[int, int], got: str, member: int | None = None, expected: str = _NESTED) -> NestingError:
    return NestingError(rungs=rungs, member=member, got=got, expected=expected)


def nest(rungs: Sequence[FiniteFamily]) -> tuple[FiniteFamily, Ints]:
    """Return the largest family, sorted by the first rung that holds a member, and that rung (from 0) per member."""
    columns = comparable(rungs)
    level = np.full(rungs[-1].size, len(rungs) - 1, dtype=np.int64)
    place = np.arange(rungs[-1].size)  # where a member of rung m stands in the largest family
    for m in range(len(rungs) - 2, -1, -1):
        found = match(columns[m], columns[m + 1])
        if (found < 0).any():
            member = int(np.argmax(found < 0))
            got = f"member {member} of class {m + 1} is not in class {m + 2}"
            raise _refusal((m + 1, m + 2), got, member)
        place = place[found]
        level[place] = m
        if not (level == m + 1).any():
            raise _refusal((m + 1, m + 2), "two equal classes", expected="each class to add a member")
    order = np.argsort(level, kind="stable")
    return rungs[-1].take(order), level[order]


def match(members: Floats, among: Floats) -> Ints:
    """Return, for each column of ``members`` [d, n], the first column of ``among`` that equals it; -1 if none."""
    weights = np.random.default_rng(0).uniform(0.5, 1.0, size=members.shape[0])  # any numbers in general position
    left, right = weights @ members, weights @ among
    order = np.argsort(right, kind="stable")
    window = _SAME * float(np.sum(weights))
    low = np.searchsorted(right[order], left - window)
    high = np.searchsorted(right[order], left + window, side="right")
    found = np.full(members.shape[1], -1, dtype=np.int64)
    for offset in range(int((high - low).max(initial=0))):
        open_ones = np.flatnonzero(low + offset < high)
        candidates = order[low[open_ones] + offset]
        near = np.abs(members[:, open_ones] - among[:, candidates]).max(axis=0) <= _SAME
        hits, values = open_ones[near], candidates[near]
        unset = (found[hits] < 0) | (values < found[hits])
        found[hits[unset]] = values[unset]
    return found


def comparable(rungs: Sequence[FiniteFamily]) -> list[Floats]:
    """Return each family as columns that can be compared: parameters over one feature map, or probabilities."""
    if len({rung.features.fingerprint for rung in rungs}) == 1:
        return [rung.theta for rung in rungs]
    fixed = {rung.features.rewards is None for rung in rungs}
    if len(fixed) > 1:
        raise FamilyError("rungs", got="rewards fixed by some classes only", expected="by all of them, or by none")
    keys = []
    for features in (rung.features for rung in rungs):
        outcomes = features.layout.outcomes
        rewards = np.zeros(outcomes.next_state.size) if features.rewards is None else np.round(features.rewards, 12)
        keys.append(np.stack([pair_of_outcome(outcomes), outcomes.next_state, rewards], axis=1))
    union, place = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    columns, begin = [], 0
    for rung, own in zip(rungs, keys, strict=True):
        column = np.zeros((len(union), rung.size))
        np.add.at(column, place.ravel()[begin : begin + len(own)], rung.probabilities())
        begin += len(own)
        columns.append(column)
    return columns


def embed(small: Family, large: Family, rungs: tuple[int, int]) -> Any:
    """Return E [d of ``large``, own parameters of ``small``]; of a finite class, one column per member.

    ``rungs`` are their places in the ladder, for the error: a kernel of the smaller class that the larger one lacks, or
    nesting that cannot be verified. Two finite classes are compared, and the smaller one's own parameters returned.
    """
    if isinstance(small, FiniteFamily) and isinstance(large, FiniteFamily):
        nest([small, large])
        return small.theta
    if isinstance(small, FiniteFamily) and isinstance(large, (LinearFamily, AggregationFamily)):
        return _members(small, large, rungs)
    if isinstance(small, (LinearFamily, AggregationFamily)) and isinstance(large, LinearFamily):
        return _into_linear(small, large, rungs)
    if isinstance(small, AggregationFamily) and isinstance(large, AggregationFamily):
        return _aggregation(small, large, rungs)
    if isinstance(small, LinearFamily) and isinstance(large, AggregationFamily):
        return _into_tabular(small, large, rungs)
    raise _unknown(small, large, rungs)


def _unknown(small: Family, large: Family, rungs: tuple[int, int]) -> NestingError:
    return _refusal(rungs, f"{small!r} and {large!r}, of which it cannot be verified that one holds the other")


def _members(small: FiniteFamily, large: LinearFamily | AggregationFamily, rungs: tuple[int, int]) -> Floats:
    same = isinstance(large, LinearFamily) and small.features.fingerprint == large.features.fingerprint
    columns = []
    for member in range(small.size):
        theta: Any = small.theta[:, member]
        if not (same and _holds(large, theta)):
            theta = large.member_of(small.kernel(member))
        if theta is None:
            got = f"member {member} of class {rungs[0]} is not in class {rungs[1]}"
            raise _refusal(rungs, got, member)
        columns.append(theta)
    return np.array(columns).T


def _holds(large: Any, theta: Floats) -> bool:
    """Say whether theta belongs to a linear class over the same features as it stands."""
    inside = large.basis @ np.linalg.lstsq(large.basis, theta, rcond=None)[0]
    return bool(np.abs(inside - theta).max() <= TOLERANCE and np.linalg.norm(theta) <= large.norm_bound * (1.0 + 1e-9))


def _into_linear(small: LinearFamily | AggregationFamily, large: LinearFamily, rungs: tuple[int, int]) -> Floats:
    """Write the directions of a class as combinations of those of a linear one, and compare lengths."""
    basis = small.basis if isinstance(small, LinearFamily) else sp.identity(small.size, format="csr")
    if small.features.fingerprint == large.features.fingerprint:
        target, matrix = dense(basis), large.basis
    else:
        target = dense(kernel_matrix(small.features) @ basis)
        matrix = dense(kernel_matrix(large.features) @ large.basis)
    own = np.asarray(np.linalg.lstsq(matrix, target, rcond=None)[0], dtype=np.float64)
    outside = np.abs(matrix @ own - target).max(axis=0) > TOLERANCE
    if outside.any():
        if isinstance(small, AggregationFamily):
            raise _unknown(small, large, rungs)
        direction = int(np.argmax(outside))
        raise _refusal(rungs, f"direction {direction} of class {rungs[0]} is not in class {rungs[1]}", direction)
    if isinstance(small, LinearFamily):
        longest = small.norm_bound * float(np.linalg.norm(own, 2))
    else:  # the longest image of a member: at most the sum over blocks of the longest image of one of their moves
        longest = sum(float(np.linalg.norm(own[:, part], axis=0).max()) for part in small.parts())
    if longest > large.norm_bound * (1.0 + 1e-9):
        got = f"parameters as long as {longest:.6g} may be needed, the norm bound being {large.norm_bound:g}"
        raise _refusal(rungs, got)
    return np.asarray(large.basis @ own)


def _aggregation(small: AggregationFamily, large: AggregationFamily, rungs: tuple[int, int]) -> Any:
    """Match moves: in every block of the finer partition, each move of the coarser class is one of its own."""
    first = first_of(large.partition)
    split = small.partition != small.partition[first]
    if split.any():
        block = large.partition[split].min()
        t = int(np.flatnonzero(split & (large.partition == block))[0])
        s = int(first[t])
        got = f"states {s} and {t} may differ in class {rungs[0]}, but share a block of class {rungs[1]}"
        raise _refusal(rungs, got, s, "a finer partition in every class")
    ours, theirs = small.features.blocks, large.features.blocks
    row, column = [], []
    for block in range(large.blocks):
        states = np.flatnonzero(large.partition == block)
        for a in range(large.features.actions):
            pair = states[0] * large.features.actions + a
            moves = [table[states, a][:, table[states[0], a] >= 0] for table in (small.moves, large.moves)]
            for move in range(moves[0].shape[1]):
                same = (moves[1] == moves[0][:, move : move + 1]).all(axis=0)
                if not same.any():
                    got = f"move {move} of action {a} in the states {states.tolist()} is not one of class {rungs[1]}"
                    raise _refusal(rungs, got, int(states[0]))
                row.append(int(theirs.vector_start[theirs.of[pair]]) + int(np.argmax(same)))
                column.append(int(ours.vector_start[ours.of[pair]]) + move)
    shape = (large.features.dimension, small.features.dimension)
    return sp.csr_array((np.ones(len(row)), (row, column)), shape=shape)


def _into_tabular(small: LinearFamily, large: AggregationFamily, rungs: tuple[int, int]) -> Any:
    """Write the features of a linear class as the probabilities of the moves of single states."""
    if large.blocks < large.features.states:
        raise _unknown(small, large, rungs)
    matrix: Any = sp.csr_array(kernel_matrix(large.features))
    target: Any = sp.csr_array(kernel_matrix(small.features) @ small.basis)
    reach = np.asarray(matrix.sum(axis=1)).ravel() > 0
    lost = np.flatnonzero(~reach & (np.abs(target).max(axis=1).toarray().ravel() > TOLERANCE))
    if lost.size:
        pair, s2 = divmod(int(lost[0]), small.features.states)
        s, a = divmod(pair, small.features.actions)
        got = f"class {rungs[0]} can go from state {s} by action {a} to {s2}, class {rungs[1]} cannot"
        raise _refusal(rungs, got, s)
    cells = np.flatnonzero(reach)  # of moves that lead to the same state, the first takes all
    pick = (np.ones(cells.size), (matrix.indices[matrix.indptr[cells]], cells))
    return sp.csr_array(pick, shape=matrix.shape[::-1]) @ target


def _checked_names(names: Sequence[str] | None, classes: int) -> tuple[str, ...]:
    """Return the names of the classes, none or one for each."""
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in names or ()):
        raise FamilyError("names", got=f"{names!r:.80}", expected=f"{classes} texts, one for each class")
    found = tuple(names or ())
    if found and (len(found) != classes or len(set(found)) != classes):
        raise FamilyError("names", got=f"{list(found)!r:.80}", expected=f"{classes} different names")
    return found


class Ladder:
    """Nested classes of kernels F_1 < F_2 < ... < F_M, from the smallest to the largest; they count from 1.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 3, 2))  # four kernels P[s, a, s']
    >>> ladder = orl.Ladder([orl.FiniteFamily(kernels[:2]), orl.FiniteFamily(kernels)], names=["two", "four"])
    >>> ladder.sizes
    [2, 4]

    A ladder that is not nested, or of which that cannot be verified, is refused with the pair of classes and what shows
    it: members of a list are compared one by one, linear classes by subspace and norm, partitions by refinement.

    Parameters
    ----------
    rungs : sequence of families
        Lists of kernels, linear classes and aggregations; above a class that is not a list there is no list.
    names : sequence of str, optional
        What the classes are called in every answer; F_1, ..., F_M by default.

    Attributes
    ----------
    finite : bool
        Whether F_M, and so every class, is a list of kernels.
    reach : list of M numbers
        How far the truth may be from the nearest member of each class, see :mod:`occamrl.models.finite`; 0 but for
        covers.
    family : FiniteFamily
        Of a finite ladder: F_M, its members sorted by the first class that holds them, so that F_m is its first
        ``sizes[m - 1]`` members.
    level : array [n]
        Of a finite ladder: the first class that holds a member, from 0.
    embeddings : list
        Of the other ladders: every class in the coordinates of the largest (:func:`embed`). One regression then serves
        all classes: rows are kept in these coordinates, and E gives class m its statistics E^T G E and E^T g.
    """

    family: FiniteFamily
    level: Ints
    embeddings: list[Any]
    _rungs: dict[int, Any]
    _given_names: tuple[str, ...]

    def __init__(self, rungs: Sequence[Family], names: Sequence[str] | None = None) -> None:
        if not isinstance(rungs, Sequence) or isinstance(rungs, str):
            raise FamilyError("rungs", got=type(rungs).__name__, expected="a list of families, [F_1, F_2, ...]")
        given: list[Any] = list(rungs)
        if not given:
            raise FamilyError("rungs", got="an empty ladder", expected="at least one class")
        for m, rung in enumerate(given, start=1):
            if not isinstance(rung, Family):
                expected = "a family of kernels, such as FiniteFamily(kernels)"
                raise FamilyError("rungs", index=(m,), got=type(rung).__name__, expected=expected)
            sizes = [f"S={each.features.states}, A={each.features.actions}" for each in (rung, given[0])]
            if sizes[0] != sizes[1]:
                raise ShapeError("rungs", index=(m,), got=sizes[0], expected=f"{sizes[1]}, as in the first")
            if given[-1].finite and not rung.finite:
                raise FamilyError("rungs", index=(m,), got=type(rung).__name__, expected="a FiniteFamily")
        most = np.maximum.accumulate([rung.reach if rung.finite else 0.0 for rung in given])
        self._given_names = _checked_names(names, len(given))
        if given[-1].finite:
            self._of_members(*nest(given), most.tolist(), names=self._given_names)
            return
        for m, (one, other) in enumerate(itertools.pairwise(given), start=1):
            embed(one, other, (m, m + 1))
            about = [(type(each), each.size, each.extent, getattr(each, "norm_bound", None)) for each in (one, other)]
            if about[0] == about[1]:
                raise _refusal((m, m + 1), "two equal classes", expected="each class to add a kernel")
        top = given[-1]
        self.finite, self._rungs = False, dict(enumerate(given, start=1))
        self.embeddings = [embed(rung, top, (m, len(given))) for m, rung in enumerate(given[:-1], start=1)]
        self.embeddings.append(top.basis if isinstance(top, LinearFamily) else sp.identity(top.size, format="csr"))
        self.reach = [float(reach) if rung.finite else 0.0 for reach, rung in zip(most, given, strict=True)]
        self.classes = len(given)

    def _of_members(
        self, family: FiniteFamily, level: Ints, reach: list[float] | None = None, names: Sequence[str] | None = None
    ) -> Ladder:
        """Make this the ladder of the first members of a list."""
        self.finite, self.family, self.level = True, family, level
        self.classes = int(level[-1]) + 1
        self._given_names = _checked_names(names, self.classes)
        self.reach = [0.0] * self.classes if reach is None else reach
        self.family.reach = float(self.reach[-1])
        self._rungs = {}
        return self

    @classmethod
    def of_levels(
        cls, family: FiniteFamily, level: Ints, reach: list[float] | None = None, names: Sequence[str] | None = None
    ) -> Ladder:
        """Return the ladder in which ``level`` [n], from 0 and increasing, is the first class that holds a member."""
        require_kind("family", family, FiniteFamily)
        levels = as_integers("level", level)
        steps = np.diff(levels, prepend=0) if levels.shape == (family.size,) else np.full(1, -1)
        if steps[0] != 0 or ((steps != 0) & (steps != 1)).any():
            expected = f"{family.size} numbers from 0, each the last one or one more"
            raise ParameterError("level", got=f"{level!r:.100}", expected=expected)
        if reach is not None and as_floats("reach", reach).shape != (levels[-1] + 1,):
            raise ParameterError("reach", got=f"{reach!r:.100}", expected="a number for each class")
        return cls.__new__(cls)._of_members(family, levels, reach, names)

    @classmethod
    def of_prefixes(
        cls,
        parameters: ArrayLike,
        features: FeatureMap,
        sizes: Sequence[int],
        reach: list[float] | None = None,
        names: Sequence[str] | None = None,
    ) -> Ladder:
        """Return the ladder whose class m is the first ``sizes[m - 1]`` of a list of parameters; nested as it stands.

        For long lists: members are neither compared nor stored twice.
        """
        family = FiniteFamily(parameters=parameters, features=features)
        ends = [0, *as_integers("sizes", sizes, "increasing integers").ravel().tolist()]
        if len(ends) < 2 or min(np.diff(ends)) < 1 or ends[-1] != family.size:
            expected = f"increasing numbers that end at {family.size}"
            raise ParameterError("sizes", got=f"{sizes!r:.100}", expected=expected)
        return cls.of_levels(family, np.repeat(np.arange(len(ends) - 1), np.diff(ends)), reach, names)

    @classmethod
    def of_problem(cls, problem: Any) -> Ladder:
        """Return the ladder that a problem brings along: its features ``phi``, ``hypotheses`` and their ``sizes``."""
        for name in ("hypotheses", "phi", "sizes"):
            if not hasattr(problem, name):
                expected = "one that brings a ladder along (phi, hypotheses, sizes), or your own Ladder([F_1, ...])"
                raise ParameterError("problem", got=f"{type(problem).__name__}, without {name}", expected=expected)
        names = getattr(problem, "rung_names", None) or None
        return cls.of_prefixes(problem.hypotheses, FeatureMap(problem.phi), problem.sizes, names=names)

    @property
    def names(self) -> tuple[str, ...]:
        """What the classes are called."""
        return self._given_names or tuple(f"F_{m}" for m in range(1, self.classes + 1))

    @property
    def features(self) -> FeatureMap:
        """The features of the largest class."""
        features: FeatureMap = self.family.features if self.finite else self._rungs[self.classes].features
        return features

    @property
    def rungs(self) -> list[Any]:
        """F_1, ..., F_M."""
        return [self.rung(m) for m in range(1, self.classes + 1)]

    @property
    def sizes(self) -> list[int]:
        """|F_1|, ..., |F_M| of a finite ladder."""
        return [int(size) for size in np.searchsorted(self.level, np.arange(self.classes), side="right")]

    @property
    def prior(self) -> Floats:
        """w(P) = 1/(M |F_l less F_{l-1}|) for P first appearing in F_l (M25), of a finite ladder."""
        added = np.bincount(self.level)
        return np.asarray(1.0 / (self.classes * added[self.level]), dtype=np.float64)

    def rung(self, m: int) -> Any:
        """Return F_m, m = 1 ... M."""
        require_integer("m", m, 1, most=self.classes)
        if m not in self._rungs:
            self._rungs[m] = self.family if m == self.classes else self.family.prefix(self.sizes[m - 1])
            self._rungs[m].reach = self.reach[m - 1]
        return self._rungs[m]

    def class_of(self, mdp: FiniteMDP) -> int | None:
        """Return m*, the first class that holds a problem's kernel; None if none does. Agents cannot know it."""
        require_kind("mdp", mdp, FiniteMDP)
        if not mdp.stationary:
            return None
        if not self.finite:
            kernel = mdp.kernel()
            return next((m for m, rung in enumerate(self.rungs, start=1) if rung.contains(kernel)), None)
        truth, rewards = mdp.truth, None
        if self.family.features.rewards is not None:
            rewards = truth.base_reward[pair_of_outcome(truth.outcomes)] + truth.outcomes.bonus
        features = FeatureMap.of_outcomes(truth.outcomes, mdp.states, rewards)
        members, own = comparable([self.family, FiniteFamily(parameters=truth.probability, features=features)])
        found = int(match(own, members)[0])
        return None if found < 0 else int(self.level[found]) + 1

    def statistics(self, m: int, gram: Floats, xy: Floats) -> tuple[Floats, Floats]:
        """Return the packed sum x x^T and sum y x in the own parameters of a linear class or aggregation."""
        matrix = self.embeddings[m - 1]
        own = dense(matrix.T @ (unpacked(self.features.blocks, gram) @ matrix))
        return packed(self.rung(m).own_features.blocks, own), np.asarray(matrix.T @ xy).ravel()

    def member_losses(self, m: int, gram: Floats, xy: Floats) -> Floats:
        """Return L, less sum y^2, of every kernel of a finite class."""
        return member_losses(self.embeddings[m - 1], unpacked(self.features.blocks, gram), xy)

    def smallest_loss(self, m: int, gram: Floats, xy: Floats) -> float:
        """Return min over F_m of L, less sum y^2, from the packed statistics of all rows (M15)."""
        rung = self.rung(m)
        if rung.finite:
            return float(self.member_losses(m, gram, xy).min())
        return float(rung.smallest_loss(*self.statistics(m, gram, xy)))

    def __len__(self) -> int:
        return self.classes

    def __repr__(self) -> str:
        sizes = " < ".join(rung.extent for rung in self.rungs) if not self.finite else None
        kernels = sizes or f"{' < '.join(str(size) for size in self.sizes)} kernels"
        return f"Ladder({kernels}, {self.features!r})"


def dense(matrix: Any) -> Floats:
    """Return a matrix, sparse or not, as an array."""
    return np.asarray(matrix.todense() if hasattr(matrix, "todense") else matrix)
