"""Ladders: nested classes of kernels F_1 < F_2 < ... < F_M, checked (section 4 of the mathematics)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from occamrl.errors import FamilyError, NestingError, ParameterError, ShapeError
from occamrl.models.family import TOLERANCE, Family, kernel_matrix, member_losses, packed, unpacked
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.models.linear import AggregationFamily, LinearFamily
from occamrl.models.simulators import pair_of_outcome
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats, Ints

# ----------------------------------------------------------------------------------------------------
# Which members of one finite family are members of another, within rounding.
#
# Two members agree when their kernels differ by at most TOLERANCE everywhere. Candidates are found by sorting a random
# projection, so that 100,000 members take a fraction of a second, and then compared entry by entry.


_SAME = 1e-9


def nest(rungs: Sequence[FiniteFamily]) -> tuple[FiniteFamily, Ints]:
    """Return the largest family, sorted by the first rung that holds a member, and that rung (from 0) per member.

    Raises
    ------
    ShapeError
        Rungs over different states or actions.
    NestingError
        A member of a rung that the next one lacks, or a rung that adds no member.
    """
    first = rungs[0].features
    for m, rung in enumerate(rungs):
        if (rung.features.states, rung.features.actions) != (first.states, first.actions):
            raise ShapeError(
                "rungs",
                index=(m + 1,),
                got=f"S={rung.features.states}, A={rung.features.actions}",
                expected=f"S={first.states}, A={first.actions}, as in the first",
            )
    columns = comparable(rungs)
    level = np.full(rungs[-1].size, len(rungs) - 1, dtype=np.int64)
    place = np.arange(rungs[-1].size)  # where a member of rung m stands in the largest family
    for m in range(len(rungs) - 2, -1, -1):
        found = match(columns[m], columns[m + 1])
        if (found < 0).any():
            member = int(np.argmax(found < 0))
            raise NestingError(
                rungs=(m + 1, m + 2),
                member=member,
                got=f"member {member} of class {m + 1} is not in class {m + 2}",
                expected="every class to hold the one before it",
            )
        place = place[found]
        level[place] = m
        if not (level == m + 1).any():
            raise NestingError(
                rungs=(m + 1, m + 2), member=None, got="two equal classes", expected="each class to add a member"
            )
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


def _outcome_keys(features: FeatureMap) -> Any:
    """Return (s*A + a, s', reward) of every outcome, [O, 3]; the reward is 0 where the problem fixes it."""
    outcomes = features.layout.outcomes
    rewards = np.zeros(outcomes.next_state.size) if features.rewards is None else np.round(features.rewards, 12)
    return np.stack([pair_of_outcome(outcomes), outcomes.next_state, rewards], axis=1)


def same_features(one: FeatureMap, other: FeatureMap) -> bool:
    """Say whether two maps are the same, entry by entry."""
    if one is other:
        return True
    if type(one.layout) is not type(other.layout) or one.dimension != other.dimension:
        return False
    left, right = _arrays(one), _arrays(other)
    return all(a.shape == b.shape and np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def _arrays(features: FeatureMap) -> list[Any]:
    layout = features.layout
    rewards = np.zeros(0) if features.rewards is None else features.rewards
    return [*layout.outcomes[:2], *layout[1:], rewards, features.blocks.of]


def comparable(rungs: Sequence[FiniteFamily]) -> list[Floats]:
    """Return each family as columns that can be compared: parameters over one feature map, or probabilities."""
    if all(same_features(rung.features, rungs[0].features) for rung in rungs):
        return [rung.theta for rung in rungs]
    fixed = {rung.features.rewards is None for rung in rungs}
    if len(fixed) > 1:
        raise FamilyError("rungs", got="rewards fixed by some classes only", expected="by all of them, or by none")
    keys = [_outcome_keys(rung.features) for rung in rungs]
    union, place = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    columns, begin = [], 0
    for rung, own in zip(rungs, keys, strict=True):
        column = np.zeros((len(union), rung.size))
        np.add.at(column, place.ravel()[begin : begin + len(own)], rung.probabilities())
        begin += len(own)
        columns.append(column)
    return columns


# ----------------------------------------------------------------------------------------------------
# Whether one class of kernels lies in another, and how: the matrix that takes the parameters of one to the other's.
#
# For classes F and G with features phi_F and phi_G, an embedding E has P_theta in F equal to P_(E theta) in G. Rows of
# a run give x = phi_G,V(s, a) once, in the largest class; x_F = E^T x follows, and so do the statistics of every class.
# What cannot be verified is refused.


_NESTED = "every class to hold the one before it"


def own_parameters(family: Any) -> Any:
    """Return the matrix that takes a class's own parameters (eta, or a member) to theta over its features."""
    if isinstance(family, LinearFamily):
        return family.basis
    return family.theta if isinstance(family, FiniteFamily) else sp.identity(family.features.dimension, format="csr")


def embed(small: Family, large: Family, rungs: tuple[int, int]) -> Any:
    """Return E [d of ``large``, own parameters of ``small``]; of a finite class, one column per member.

    Parameters
    ----------
    small, large : Family
        Two finite classes are compared, and the smaller one's own parameters returned.
    rungs : pair of int
        Their places in the ladder, for the error.

    Raises
    ------
    ShapeError
        Classes over different states or actions.
    NestingError
        A kernel of the smaller class that the larger one lacks; or nesting that cannot be verified.
    """
    one, other = small.features, large.features
    if (one.states, one.actions) != (other.states, other.actions):
        got, expected = (f"S={features.states}, A={features.actions}" for features in (one, other))
        raise ShapeError("rungs", index=rungs[:1], got=got, expected=f"{expected}, as in class {rungs[1]}")
    if isinstance(small, FiniteFamily) and isinstance(large, FiniteFamily):
        nest([small, large])
        return small.theta
    if isinstance(small, FiniteFamily) and isinstance(large, (LinearFamily, AggregationFamily)):
        return _members(small, large, rungs)
    if isinstance(small, LinearFamily) and isinstance(large, LinearFamily):
        return _linear(small, large, rungs)
    if isinstance(small, AggregationFamily) and isinstance(large, AggregationFamily):
        return _aggregation(small, large, rungs)
    if isinstance(large, AggregationFamily) and isinstance(small, LinearFamily) and large.blocks == other.states:
        return _into_tabular(small, large, rungs)
    if isinstance(large, LinearFamily) and isinstance(small, AggregationFamily):
        return _aggregation_in_linear(small, large, rungs)
    raise _unknown(small, large, rungs)


def _unknown(small: Family, large: Family, rungs: tuple[int, int]) -> NestingError:
    got = f"{small!r} and {large!r}, of which it cannot be verified that one holds the other"
    return NestingError(rungs=rungs, member=None, got=got, expected=_NESTED)


def _members(small: FiniteFamily, large: LinearFamily | AggregationFamily, rungs: tuple[int, int]) -> Floats:
    columns = []
    for member in range(small.size):
        theta = _short_enough(large, small.theta[:, member]) if same_features(small.features, large.features) else None
        theta = large.member_of(small.kernel(member)) if theta is None else theta
        if theta is None:
            got = f"member {member} of class {rungs[0]} is not in class {rungs[1]}"
            raise NestingError(rungs=rungs, member=member, got=got, expected=_NESTED)
        columns.append(theta)
    return np.array(columns).T


def _short_enough(large: LinearFamily | AggregationFamily, theta: Floats) -> Floats | None:
    """Return theta over the features of ``large`` if it belongs to it as it stands."""
    if not isinstance(large, LinearFamily):
        return None
    inside = large.basis @ np.linalg.lstsq(large.basis, theta, rcond=None)[0]
    fits = np.abs(inside - theta).max() <= TOLERANCE and np.linalg.norm(theta) <= large.norm_bound * (1.0 + 1e-9)
    return theta if fits else None


def _written_in(matrix: Floats, target: Floats) -> tuple[Floats, Any]:
    """Return the columns of ``target`` as combinations of those of ``matrix``, and which of them are none."""
    own = np.asarray(np.linalg.lstsq(matrix, target, rcond=None)[0], dtype=np.float64)
    return own, np.abs(matrix @ own - target).max(axis=0) > TOLERANCE


def _linear(small: LinearFamily, large: LinearFamily, rungs: tuple[int, int]) -> Floats:
    if same_features(small.features, large.features):
        target, matrix = small.basis, large.basis
    else:
        target = np.asarray(kernel_matrix(small.features) @ small.basis)
        matrix = np.asarray(kernel_matrix(large.features) @ large.basis)
    own, outside = _written_in(matrix, target)
    if outside.any():
        direction = int(np.argmax(outside))
        got = f"direction {direction} of class {rungs[0]} is not in class {rungs[1]}"
        raise NestingError(rungs=rungs, member=direction, got=got, expected=_NESTED)
    stretch = float(np.linalg.norm(own, 2))
    if small.norm_bound * stretch > large.norm_bound * (1.0 + 1e-9):
        factor = "" if abs(stretch - 1.0) < 1e-9 else f" (times {stretch:g} in its parameters)"
        got = f"norm bounds {small.norm_bound:g}{factor} and {large.norm_bound:g}"
        raise NestingError(rungs=rungs, member=None, got=got, expected="bounds that do not fall")
    return np.asarray(large.basis @ own)


def _aggregation(small: AggregationFamily, large: AggregationFamily, rungs: tuple[int, int]) -> Any:
    """Match moves: in every block of the finer partition, each move of the coarser class is one of its own."""
    if not large.refines(small):
        s, t = _split(small, large)
        got = f"states {s} and {t} may differ in class {rungs[0]}, but share a block of class {rungs[1]}"
        raise NestingError(rungs=rungs, member=s, got=got, expected="a finer partition in every class")
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
                    raise NestingError(rungs=rungs, member=int(states[0]), got=got, expected=_NESTED)
                row.append(int(theirs.vector_start[theirs.of[pair]]) + int(np.argmax(same)))
                column.append(int(ours.vector_start[ours.of[pair]]) + move)
    shape = (large.features.dimension, small.features.dimension)
    return sp.csr_array((np.ones(len(row)), (row, column)), shape=shape)


def _split(small: AggregationFamily, large: AggregationFamily) -> tuple[int, int]:
    """Return two states of one block of ``large`` that lie in two blocks of ``small``."""
    for block in range(large.blocks):
        states = np.flatnonzero(large.partition == block)
        differs = small.partition[states] != small.partition[states[0]]
        if differs.any():
            return int(states[0]), int(states[np.argmax(differs)])
    raise AssertionError("a refinement")


def _into_tabular(small: LinearFamily, large: AggregationFamily, rungs: tuple[int, int]) -> Any:
    """Write the features of a linear class as the probabilities of the moves of single states."""
    matrix: Any = kernel_matrix(large.features)
    target: Any = sp.csr_array(kernel_matrix(small.features) @ small.basis)
    reach = np.asarray(matrix.sum(axis=1)).ravel() > 0
    lost = np.flatnonzero(~reach & (np.abs(target).max(axis=1).toarray().ravel() > TOLERANCE))
    if lost.size:
        pair, s2 = divmod(int(lost[0]), small.features.states)
        s, a = divmod(pair, small.features.actions)
        got = f"class {rungs[0]} can go from state {s} by action {a} to {s2}, class {rungs[1]} cannot"
        raise NestingError(rungs=rungs, member=s, got=got, expected=_NESTED)
    first = sp.csr_array(matrix)  # of moves that lead to the same state, the first takes all
    keep = first.indptr[:-1][np.diff(first.indptr) > 0]
    cells = np.flatnonzero(np.diff(first.indptr) > 0)
    pick = sp.csr_array((np.ones(cells.size), (first.indices[keep], cells)), shape=matrix.shape[::-1])
    return pick @ target


def _aggregation_in_linear(small: AggregationFamily, large: LinearFamily, rungs: tuple[int, int]) -> Floats:
    target = np.asarray(kernel_matrix(small.features).todense())
    matrix = np.asarray(kernel_matrix(large.features) @ large.basis)
    own, outside = _written_in(matrix, target)
    if outside.any():
        raise _unknown(small, large, rungs)
    # Longest image of a member: at most the sum over blocks of the longest image of one of their moves.
    longest = sum(float(np.linalg.norm(own[:, part], axis=0).max()) for part in small.parts())
    if longest > large.norm_bound * (1.0 + 1e-9):
        got = f"parameters as long as {longest:.6g} may be needed, the norm bound being {large.norm_bound:g}"
        raise NestingError(rungs=rungs, member=None, got=got, expected=_NESTED)
    return np.asarray(large.basis @ own)


class Ladder:
    """Nested classes of kernels F_1 < F_2 < ... < F_M, from the smallest to the largest; they count from 1.

    A ladder that is not nested, or of which that cannot be verified, is refused with the pair of classes and what shows
    it: members of a list are compared one by one, linear classes by subspace and norm, partitions by refinement.

    Parameters
    ----------
    rungs : sequence of families
        Lists of kernels, linear classes and aggregations; above a class that is not a list there is no list.

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

    def __init__(self, rungs: Sequence[Family]) -> None:
        if not isinstance(rungs, Sequence) or isinstance(rungs, str):
            raise FamilyError("rungs", got=type(rungs).__name__, expected="a list of families")
        given: list[Any] = list(rungs)
        if not given:
            raise FamilyError("rungs", got="an empty ladder", expected="at least one class")
        for m, rung in enumerate(given, start=1):
            if not isinstance(rung, Family):
                raise FamilyError("rungs", index=(m,), got=type(rung).__name__, expected="a family of kernels")
            if given[-1].finite and not rung.finite:
                raise FamilyError("rungs", index=(m,), got=type(rung).__name__, expected="a FiniteFamily")
        most = np.maximum.accumulate([rung.reach if rung.finite else 0.0 for rung in given])
        if given[-1].finite:
            self._of_members(*nest(given), most.tolist())
            return
        for m, (one, other) in enumerate(itertools.pairwise(given), start=1):
            embed(one, other, (m, m + 1))
            if _equal(one, other):
                got = "two equal classes"
                raise NestingError(rungs=(m, m + 1), member=None, got=got, expected="each class to add a kernel")
        top = given[-1]
        self.finite, self._rungs = False, dict(enumerate(given, start=1))
        self.embeddings = [embed(rung, top, (m, len(given))) for m, rung in enumerate(given[:-1], start=1)]
        self.embeddings.append(own_parameters(top))
        self.reach = [float(reach) if rung.finite else 0.0 for reach, rung in zip(most, given, strict=True)]
        self.classes = len(given)

    def _of_members(self, family: FiniteFamily, level: Ints, reach: list[float] | None = None) -> Ladder:
        """Make this the ladder of the first members of a list."""
        self.finite, self.family, self.level = True, family, level
        self.classes = int(level[-1]) + 1
        self.reach = [0.0] * self.classes if reach is None else reach
        self.family.reach = float(self.reach[-1])
        self._rungs = {}
        return self

    @classmethod
    def of_levels(cls, family: FiniteFamily, level: Ints, reach: list[float] | None = None) -> Ladder:
        """Return the ladder in which ``level`` [n], from 0 and increasing, is the first class that holds a member."""
        return cls.__new__(cls)._of_members(family, level, reach)

    @classmethod
    def of_prefixes(cls, parameters: ArrayLike, features: FeatureMap, sizes: Sequence[int]) -> Ladder:
        """Return the ladder whose class m is the first ``sizes[m - 1]`` of a list of parameters; nested as it stands.

        For long lists: members are neither compared nor stored twice.
        """
        family = FiniteFamily(parameters=parameters, features=features)
        ends = [0, *(int(size) for size in sizes)]
        if len(ends) < 2 or min(np.diff(ends)) < 1 or ends[-1] != family.size:
            raise ParameterError("sizes", got=list(sizes), expected=f"increasing numbers that end at {family.size}")
        return cls.of_levels(family, np.repeat(np.arange(len(ends) - 1), np.diff(ends)))

    @classmethod
    def of_problem(cls, problem: Any) -> Ladder:
        """Return the ladder that a problem brings along: its features ``phi``, ``hypotheses`` and their ``sizes``."""
        for name in ("hypotheses", "phi", "sizes"):
            if not hasattr(problem, name):
                expected = "a problem with a ladder of its own (phi, hypotheses and sizes)"
                raise ParameterError("problem", got=f"{type(problem).__name__}, without {name}", expected=expected)
        return cls.of_prefixes(problem.hypotheses, FeatureMap(problem.phi), problem.sizes)

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


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, AggregationFamily) and isinstance(other, AggregationFamily):
        return one.blocks == other.blocks and one.features.dimension == other.features.dimension
    linear = isinstance(one, LinearFamily) and isinstance(other, LinearFamily)
    return linear and one.dimension == other.dimension and one.norm_bound == other.norm_bound
