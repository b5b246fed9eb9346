"""Feature maps: P_theta(o | s, a) = <phi(s, a, o), theta> (linear kernel MDPs, section 3 of the mathematics).

Three layouts behind one class: dense vectors, sparse simulators, one-hot tables. Lists of sparse kernels are read into
entries over the union of their outcomes and stay sparse; the one-hot map never stores its d = S^2 A columns.
"""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from occamrl._core.features import DenseFeatures, SparseFeatures, TabularFeatures
from occamrl._core.regression import Blocks
from occamrl.errors import (
    FeatureError,
    ShapeError,
    as_array,
    as_flags,
    as_floats,
    as_indices,
    as_integers,
    require_integer,
    require_kind,
    require_memory,
)
from occamrl.problems.mdp import FiniteMDP, cells_of, slices, sound_sparse
from occamrl.protocols import Floats, Ints, Known, Outcomes

Layout = DenseFeatures | SparseFeatures | TabularFeatures

_TOLERANCE = 1e-8  # for sums that should be one, as in FiniteMDP but for d-term sums
LARGEST_FEATURE = 1e100  # its square is a number
_INFEASIBLE = 2  # linprog's status
_ENTRY = 3  # numbers that an entry of a sparse map takes, in memory and in time


class PerProblem(weakref.WeakKeyDictionary[Known, Any]):
    """What was computed for a problem, as long as that lives; a pickled copy is empty."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


def running(sizes: Ints) -> Ints:
    """Return where each of consecutive pieces begins, and where the last ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def any_sparse(kernels: Any) -> bool:
    """Whether this is a list with a scipy.sparse kernel in it."""
    return isinstance(kernels, Sequence) and any(sp.issparse(kernel) for kernel in kernels)


def read_kernels(field: str, kernels: Sequence[Any], support: ArrayLike = ()) -> tuple[Outcomes, Any, int]:
    """Return the union of the outcomes of some kernels, their probabilities as a matrix [O, n] (sparse or not), and S.

    Each kernel is dense [S, A, S] or scipy.sparse of shape (S*A, S). What is true in ``support`` (S*A, S) is an outcome
    as well, even if it has probability 0 in all of them.
    """
    matrices: list[Any] = []
    for j, kernel in enumerate(kernels):
        flat: Any = kernel
        if not sp.issparse(kernel):
            dense = as_floats(field, kernel)
            flat = sp.csr_array(dense.reshape(-1, max(dense.shape[-1:], default=1) or 1))
        matrix = sound_sparse(field, flat)
        shape = matrices[0].shape if matrices else None
        two_axes = matrix.ndim == 2 and 0 not in matrix.shape and matrix.shape[0] % matrix.shape[1] == 0
        if not two_axes or shape not in (None, matrix.shape):
            raise ShapeError(field, index=(j,), got=matrix.shape, expected=shape or "(S*A, S)")
        if not (np.abs(matrix.data) <= LARGEST_FEATURE).all():
            expected = f"numbers of at most {LARGEST_FEATURE:g}"
            raise FeatureError(field, index=(j,), got="a value that is not finite", expected=expected)
        matrices.append(matrix)
    if not matrices:
        raise FeatureError(field, got="an empty list", expected="at least one kernel")
    pairs, states = matrices[0].shape
    every = [*matrices, sp.csr_array(np.asarray(support))] if np.size(support) else matrices
    most = sum(matrix.nnz for matrix in every)
    next_state, ends = np.empty(most, dtype=np.int64), np.zeros(most + 1, dtype=np.int64)
    column, value, counts = np.empty(most, dtype=np.int32), np.empty(most), np.zeros(pairs, dtype=np.int64)
    outcomes = entries = 0
    for rows in slices(pairs):
        cell, sizes, columns, values = _united([matrix[rows] for matrix in every], len(matrices))
        o, e = slice(outcomes, outcomes + cell.size), slice(entries, entries + values.size)
        next_state[o], column[e], value[e] = cell % states, columns, values
        ends[o.start + 1 : o.stop + 1] = entries + np.cumsum(sizes)
        counts[rows] = np.bincount(cell // states, minlength=rows.stop - rows.start)
        outcomes, entries = o.stop, e.stop
    matrix = sp.csr_array((value[:entries], column[:entries], ends[: outcomes + 1]), shape=(outcomes, len(matrices)))
    small = _ENTRY * entries >= math.prod(matrix.shape)
    return outcomes_of(field, counts, next_state[:outcomes]), matrix.toarray() if small else matrix, states


def _united(matrices: list[Any], count: int) -> tuple[Any, ...]:
    """Return the cells of a few rows, how many entries each has in ``count`` matrices, their columns and values."""
    cell = np.concatenate([cells_of(each) for each in matrices])
    column = np.repeat(np.arange(len(matrices)), [each.nnz for each in matrices])
    order = np.argsort(cell, kind="stable")  # made of sorted runs, which are merged
    cell, column, value = cell[order], column[order], np.concatenate([each.data for each in matrices])[order]
    first, entries = np.flatnonzero(np.append(True, np.diff(cell) > 0)[: cell.size]), column < count
    sizes = np.diff(np.append(0, np.cumsum(entries))[np.append(first, cell.size)])
    return cell[first], sizes, column[entries], value[entries]


def read_problems(simulators: Sequence[FiniteMDP]) -> tuple[Outcomes, Any, Floats]:
    """Return the union of the outcomes (s', reward) of some problems, their probabilities [O, n], and the rewards."""
    if not isinstance(simulators, (list, tuple)) or not simulators:
        raise FeatureError("simulators", got=f"{simulators!r:.100}", expected="a list of at least one problem")
    for mdp in simulators:
        require_kind("simulators", mdp, FiniteMDP)
    states, actions = simulators[0].states, simulators[0].actions
    rows: list[Floats] = []
    for j, mdp in enumerate(simulators):
        if (mdp.states, mdp.actions) != (states, actions) or not mdp.stationary:
            got = f"S={mdp.states}, A={mdp.actions}" + ("" if mdp.stationary else ", a kernel per step")
            raise ShapeError("simulators", index=(j,), got=got, expected=f"S={states}, A={actions}, one kernel")
        truth = mdp.truth
        pair = pair_of_outcome(truth.outcomes)
        reward = truth.base_reward[pair] + truth.outcomes.bonus
        rows.append(np.stack([pair, truth.outcomes.next_state, reward, np.full(pair.size, j), truth.probability[0]]))
    table = np.concatenate(rows, axis=1)
    # Rewards that are equal up to rounding are one outcome, with the first of them as its reward.
    rounded = np.round(table[:3], 12)
    distinct, first, outcome = np.unique(rounded, axis=1, return_index=True, return_inverse=True)
    pair, next_state = distinct[:2].astype(np.int64)
    outcomes = outcomes_of("simulators", np.bincount(pair, minlength=states * actions), next_state)
    places = (outcome.ravel(), table[3].astype(np.int64))
    probability = sp.csr_array((table[4], places), shape=(first.size, len(simulators)))
    return outcomes, probability, np.ascontiguousarray(table[2, first])


def outcomes_of(field: str, counts: Ints, next_state: Ints) -> Outcomes:
    """Return the outcomes with these next states, sorted by (s, a), which has ``counts[s*A + a]``; each needs one."""
    if not counts.all():
        index, expected = (int(np.argmin(counts)),), "at least one for every s*A + a"
        raise FeatureError(field, index=index, got="no next state", expected=expected)
    return Outcomes(running(counts), np.ascontiguousarray(next_state), np.zeros(next_state.size))


def pair_of_outcome(outcomes: Outcomes) -> Ints:
    """Return the index s*A + a that each outcome belongs to."""
    return np.repeat(np.arange(outcomes.start.size - 1), np.diff(outcomes.start))


def stacked(field: str, kernels: Any, axis: int = 0) -> Floats:
    """Return dense kernels of one shape as one array; an array is taken as it is."""
    if isinstance(kernels, np.ndarray) and kernels.dtype == np.float64:
        return kernels
    if isinstance(kernels, np.ndarray) or not isinstance(kernels, Sequence):
        return as_floats(field, kernels)
    arrays = [as_floats(field, kernel) for kernel in kernels]
    for j, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ShapeError(field, index=(j,), got=array.shape, expected=arrays[0].shape)
    return np.stack(arrays, axis) if arrays else np.zeros(0)


def shared_blocks(of: Ints, sizes: Ints | int) -> Blocks:
    """Return the blocks of coordinates where (s, a) uses block ``of[s*A + a]``, which has ``sizes[s*A + a]``."""
    size = np.zeros(int(of.max()) + 1, dtype=np.int64)
    size[of] = sizes
    return Blocks(of, size, running(size), running(size * size))


def dense_layout(phi: Floats) -> tuple[Layout, int, int]:
    """Return the layout of phi [S, A, S, d], and S and d; what is zero in all coordinates is no outcome."""
    if phi.ndim != 4 or phi.shape[0] != phi.shape[2] or 0 in phi.shape:
        raise ShapeError("phi", got=phi.shape, expected="[S, A, S, d], or a list of kernels [S, A, S]")
    bad = np.argwhere(~(np.abs(phi) <= LARGEST_FEATURE))
    if bad.size:
        at = tuple(int(i) for i in bad[0])
        raise FeatureError("phi", index=at, got=phi[at], expected=f"a finite number of at most {LARGEST_FEATURE:g}")
    states, actions, _, dimension = phi.shape
    rows = phi.reshape(states * actions, states, dimension)
    possible = (rows != 0.0).any(axis=2)
    outcomes = outcomes_of("phi", possible.sum(axis=1), np.nonzero(possible)[1])
    return DenseFeatures(outcomes, np.ascontiguousarray(rows[possible])), states, dimension


def layout_of(outcomes: Outcomes, matrix: Any) -> Layout:
    """Return the layout of phi, a matrix [O, d] that is sparse or not."""
    if isinstance(matrix, np.ndarray):
        return DenseFeatures(outcomes, matrix)
    pairs, ends = outcomes.start.size - 1, matrix.indptr
    index = np.empty(pairs + 1 + matrix.nnz, dtype=np.int64)
    index[: pairs + 1] = ends[outcomes.start]
    for rows in slices(pairs):
        start = outcomes.start[rows.start : rows.stop + 1]
        place = np.arange(start[0], start[-1]) - np.repeat(start[:-1], np.diff(start))
        e = slice(ends[start[0]], ends[start[-1]])
        outcome = np.repeat(place, np.diff(ends[start[0] : start[-1] + 1]))
        index[pairs + 1 :][e] = outcome << 32 | matrix.indices[e]
    return SparseFeatures(outcomes, index, matrix.data)


def _layout_of_kernels(kernels: Sequence[Any]) -> tuple[Layout, int]:
    """Return the layout of kernels of which some are sparse, and S."""
    outcomes, matrix, states = read_kernels("phi", kernels)
    return layout_of(outcomes, matrix), states


def require_some_kernel(features: FeatureMap) -> None:
    """Refuse features for which no theta makes a kernel: <phi_1(s, a), theta> = 1 and <phi, theta> >= 0."""
    sums = features.sums
    rounded = np.round(sums, 12)
    others = rounded[(rounded != rounded[0]).any(axis=1)]  # few, and often none: sorting rows is slow
    distinct = np.unique(np.concatenate([rounded[:1], others]), axis=0)
    theta = np.linalg.lstsq(distinct, np.ones(len(distinct)), rcond=None)[0]
    gaps = np.abs(sums @ theta - 1.0)
    worst = int(np.argmax(gaps))
    if gaps[worst] > _TOLERANCE:
        got = "features for which no theta makes the probabilities of every (s, a) sum to one"
        expected = "some theta with sum over s' of <phi(s, a, s'), theta> = 1 for all (s, a)"
        raise FeatureError("phi", index=divmod(worst, features.actions), got=got, expected=expected)
    if features.probabilities(theta).min() >= -_TOLERANCE:  # theta is the smallest that sums to one
        return
    if best_kernel(np.zeros(features.dimension), features.matrix, distinct, _TOLERANCE).status == _INFEASIBLE:
        expected = "some theta for which <phi(s, a, .), theta> is a distribution for all (s, a)"
        raise FeatureError("phi", got="features for which no theta makes all probabilities >= 0", expected=expected)


def best_kernel(costs: Floats, phi: Any, sums: Floats, slack: float = 0.0, bound: float | None = None) -> Any:
    """Minimise <costs, theta> over phi theta >= -slack, sums theta = 1 and |theta_j| <= bound (a linear program)."""
    from scipy.optimize import linprog  # slow to import, and seldom needed

    bounds = (None, None) if bound is None else (-bound, bound)
    least, one = np.full(phi.shape[0], slack), np.ones(len(sums))
    return linprog(costs, A_ub=-phi, b_ub=least, A_eq=sums, b_eq=one, bounds=bounds)


def with_bonus(outcomes: Outcomes, known: Known) -> Outcomes:
    """Look up the bonus of every outcome in the reward table of the problem."""
    table = known.transition_rewards
    if table is None:
        return outcomes._replace(bonus=np.zeros(outcomes.next_state.size))
    ours = pair_of_outcome(outcomes) * known.states + outcomes.next_state
    theirs = pair_of_outcome(table) * known.states + table.next_state
    order = np.argsort(theirs, kind="stable")
    keys = theirs[order]
    first, last = np.searchsorted(keys, ours), np.searchsorted(keys, ours, side="right")
    for problem, what in ((last == first, "no known reward"), (last > first + 1, "several rewards for one next state")):
        if problem.any():
            o = int(np.argmax(problem))
            pair, s2 = divmod(int(ours[o]), known.states)
            at = (*divmod(pair, known.actions), s2)
            expected = "a reward fixed by (s, a, s') for every outcome of the features"
            raise FeatureError("features", index=at, got=what, expected=expected)
    return outcomes._replace(bonus=table.bonus[order][first])


class FeatureMap:
    """phi(s, a, s', j), the known part of a linear kernel.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> features = orl.FeatureMap(problem.phi)  # phi[s, a, s', j]
    >>> features.dimension, orl.FeatureMap.tabular(states=3, actions=2).dimension
    (16, 18)

    Parameters
    ----------
    phi : array [S, A, S, d], or a sequence of d kernels
        Kernels may be dense [S, A, S] or scipy.sparse of shape (S*A, S), row ``s*A + a``. If any is sparse, only what
        can happen under some kernel is kept. Signed features are allowed; only P_theta* has to be a kernel.

    See Also
    --------
    FeatureMap.tabular : one-hot features, d = S^2 A, kept as one S-by-S block per (s, a).
    FeatureMap.aggregated : one-hot features of labelled moves, one block per action and block of a partition.
    FeatureMap.restrict : the same map on some of its coordinates.
    """

    def __init__(self, phi: ArrayLike | Sequence[Any]) -> None:
        if isinstance(phi, Sequence) and any_sparse(phi):
            self._set(*_layout_of_kernels(phi), len(phi))
        elif isinstance(phi, Sequence) and len(phi) and as_array("phi", phi[0]).ndim == 3:
            self._set(*dense_layout(stacked("phi", phi, axis=-1)))
        else:
            self._set(*dense_layout(as_floats("phi", phi, "[S, A, S, d], or a list of kernels [S, A, S]")))
        require_some_kernel(self)

    def _set(
        self, layout: Layout, states: int, dimension: int, rewards: Floats | None = None, shared: Blocks | None = None
    ) -> None:
        self.states, self.actions = states, (layout.outcomes.start.size - 1) // states
        self.shape, self.pairs = (states, self.actions, states), states * self.actions
        self.dimension = dimension
        self.layout = layout
        self.rewards = rewards  # [O] of each outcome, where the features fix them; None: the problem does
        self.shared = shared  # the blocks of a one-hot map in which several (s, a) have the same coordinates
        self._attached = PerProblem()

    @classmethod
    def _make(cls, *parts: Any) -> FeatureMap:
        """Return the map with parts as in ``_set``, which are known to be sound."""
        made = cls.__new__(cls)
        made._set(*parts)
        return made

    @classmethod
    def tabular(cls, *, states: int, actions: int, support: ArrayLike | None = None) -> FeatureMap:
        """Return the one-hot map: theta is the kernel itself.

        ``support`` [S, A, S] (bool) limits it to transitions known to be possible; by default every one is.
        """
        for name, size in (("states", states), ("actions", actions)):
            require_integer(name, size, 1, ShapeError)
        shape = (states, actions, states)
        require_memory("states", states, *shape)
        possible = np.ones(shape, dtype=bool) if support is None else as_flags("support", support, shape)
        possible = possible.reshape(states * actions, states)
        return cls.of_outcomes(outcomes_of("support", possible.sum(axis=1), np.nonzero(possible)[1]), states)

    @classmethod
    def of_outcomes(cls, outcomes: Outcomes, states: int, rewards: Floats | None = None) -> FeatureMap:
        """Return the one-hot map over given outcomes of each (s, a)."""
        return cls._make(TabularFeatures(outcomes), states, int(outcomes.start[-1]), rewards)

    @classmethod
    def aggregated(cls, *, partition: ArrayLike, moves: ArrayLike) -> FeatureMap:
        """Return the one-hot map of labelled moves whose law depends on the state only through a partition.

        Move l at (s, a) leads to ``moves[s, a, l]``; -1 where there is no such move. theta has one distribution over
        the moves per block of the partition and action: P(s'|s, a) = sum of theta[block(s), a, l] over the moves l that
        lead to s'. See :class:`occamrl.models.linear.AggregationFamily`, which checks its arguments.
        """
        block, table = as_integers("partition", partition), as_integers("moves", moves)
        if table.ndim != 3 or 0 in table.shape or block.shape != table.shape[:1] or block.min() < 0:
            got = f"partition {block.shape}, moves {table.shape}"
            raise ShapeError("partition, moves", got=got, expected="numbers >= 0 [S], and integers [S, A, L]")
        if block.max() >= block.size or table.max() >= block.size or table.min() < -1:
            raise ShapeError("partition, moves", got="numbers out of range", expected=f"below S = {block.size}")
        states, actions, _ = table.shape
        possible = table.reshape(states * actions, -1) >= 0
        outcomes = outcomes_of("moves", possible.sum(axis=1), table.reshape(states * actions, -1)[possible])
        of = (block[:, None] * actions + np.arange(actions)).ravel()
        shared = shared_blocks(of, possible.sum(axis=1))
        return cls._make(TabularFeatures(outcomes), states, int(shared.size.sum()), None, shared)

    @classmethod
    def of_simulators(cls, simulators: Sequence[FiniteMDP]) -> FeatureMap:
        """Return the map whose coordinates are the kernels of given problems, over outcomes (s', reward) (M20).

        Needed where (s, a, s') does not fix the reward; P_theta is then a mixture of the problems' outcome tables.
        """
        outcomes, matrix, rewards = read_problems(simulators)
        return cls._make(layout_of(outcomes, matrix), simulators[0].states, len(simulators), rewards)

    @property
    def is_tabular(self) -> bool:
        """Whether the map is one-hot (blocks of coordinates, one per (s, a) or shared by several)."""
        return isinstance(self.layout, TabularFeatures)

    @cached_property
    def of_kernels(self) -> bool:
        """Whether every coordinate is a kernel itself, as in a mixture of simulators."""
        return not self.is_tabular and bool(self.matrix.min() >= 0.0) and bool(np.allclose(self.sums, 1.0))

    @cached_property
    def blocks(self) -> Blocks:
        """Where the coordinates of each (s, a) live."""
        if self.shared is not None:
            return self.shared
        pairs = self.states * self.actions
        if self.is_tabular:
            return shared_blocks(np.arange(pairs), np.diff(self.layout.outcomes.start))
        return shared_blocks(np.zeros(pairs, dtype=np.int64), self.dimension)

    @property
    def coordinate(self) -> Ints:
        """The coordinate of each outcome of a one-hot map [O]."""
        start, blocks = self.layout.outcomes.start, self.blocks
        pair = pair_of_outcome(self.layout.outcomes)
        return blocks.vector_start[blocks.of[pair]] + np.arange(pair.size) - start[pair]

    @property
    def matrix(self) -> Any:
        """Phi as a sparse matrix [O, d]: the probabilities of all outcomes are ``matrix @ theta``."""
        layout = self.layout
        if isinstance(layout, DenseFeatures):
            return sp.csr_array(layout.phi)
        shape = (layout.outcomes.next_state.size, self.dimension)
        if isinstance(layout, TabularFeatures):
            return sp.csr_array((np.ones(shape[0]), (np.arange(shape[0]), self.coordinate)), shape=shape)
        row = np.repeat(layout.outcomes.start[:-1], np.diff(layout.start)) + layout.outcome
        return sp.csr_array((layout.entry, (row, layout.coordinate)), shape=shape)

    @property
    def sums(self) -> Floats:
        """phi_1(s, a), the sum over the outcomes of (s, a) [S*A, d]: <phi_1, theta> = 1 for kernels."""
        if isinstance(self.layout, DenseFeatures):
            return np.add.reduceat(self.layout.phi, self.layout.outcomes.start[:-1])
        if isinstance(self.layout, SparseFeatures):
            each = (self._by_entry(rows, np.ones(self.dimension), of_outcomes=False) for rows in slices(self.pairs))
            return np.concatenate(list(each)).reshape(-1, self.dimension)
        pair = pair_of_outcome(self.layout.outcomes)
        add: Any = sp.csr_array((np.ones(pair.size), (pair, np.arange(pair.size))))
        return np.asarray((add @ self.matrix).toarray())

    def _by_entry(self, rows: slice, weight: Floats, *, of_outcomes: bool) -> Floats:
        """Return sums of weighted entries of a sparse map at some (s, a): by outcome, or by (s, a) and coordinate."""
        outcomes, index, entry = cast(SparseFeatures, self.layout)
        start, first = outcomes.start[rows.start : rows.stop + 1], outcomes.start.size
        begins = index[rows.start : rows.stop + 1]
        place = index[first + begins[0] : first + begins[-1]]
        pair, coordinate = np.repeat(np.arange(begins.size - 1), np.diff(begins)), place & 2**32 - 1
        if of_outcomes:
            at, size = (start - start[0])[pair] + (place >> 32), start[-1] - start[0]
        else:
            at, size = pair * self.dimension + coordinate, (begins.size - 1) * self.dimension
        return np.asarray(np.bincount(at, entry[begins[0] : begins[-1]] * weight[coordinate], size), dtype=np.float64)

    def restrict(self, coordinates: Sequence[int]) -> FeatureMap:
        """Return the map phi[..., D] on the coordinates D, in the order given (section 3)."""
        chosen = as_indices("coordinates", coordinates, self.dimension)
        if self.is_tabular:
            raise FeatureError("coordinates", got="a tabular map", expected="a dense or sparse one to restrict")
        if isinstance(self.layout, DenseFeatures):
            kept: Layout = self.layout._replace(phi=np.ascontiguousarray(self.layout.phi[:, chosen]))
        else:
            kept = layout_of(self.layout.outcomes, self.matrix[:, chosen])
        return FeatureMap._make(kept, self.states, int(chosen.size), self.rewards)

    def probabilities(self, theta: ArrayLike) -> Floats:
        """Return P_theta on the outcomes of the map, one number per outcome."""
        weight = as_floats("theta", theta, (self.dimension,))
        if not isinstance(self.layout, SparseFeatures):
            return np.asarray((self.layout.phi if isinstance(self.layout, DenseFeatures) else self.matrix) @ weight)
        made, start = np.empty(self.layout.outcomes.next_state.size), self.layout.outcomes.start
        for rows in slices(self.pairs):
            made[start[rows.start] : start[rows.stop]] = self._by_entry(rows, weight, of_outcomes=True)
        return made

    def kernel(self, theta: ArrayLike) -> Floats:
        """Return P_theta as a dense array [S, A, S]."""
        outcomes = self.layout.outcomes
        dense = np.zeros((self.states * self.actions, self.states))
        np.add.at(dense, (pair_of_outcome(outcomes), outcomes.next_state), self.probabilities(theta))
        return dense.reshape(self.shape)

    def attach(self, known: Known) -> Layout:
        """Return the layout with the bonus of each outcome filled in from the problem's known rewards (M20)."""
        require_kind("known", known, Known)
        if known not in self._attached:
            if (known.states, known.actions) != (self.states, self.actions):
                expected = f"the problem's S={known.states}, A={known.actions}"
                raise ShapeError("features", got=f"S={self.states}, A={self.actions}", expected=expected)
            outcomes = self.layout.outcomes
            if self.rewards is None or not known.rewards_known:
                outcomes = with_bonus(outcomes, known)
            else:
                outcomes = outcomes._replace(bonus=self.rewards - known.base_reward.ravel()[pair_of_outcome(outcomes)])
            self._attached[known] = self.layout._replace(outcomes=outcomes)
        attached: Layout = self._attached[known]
        return attached

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the map's arrays: equal for equal maps, in any process."""
        digest = hashlib.sha256(repr(self).encode())
        entries: tuple[Any, ...] = tuple(self.layout)[1:]
        shared = None if self.shared is None else self.shared.of
        for array in (*self.layout.outcomes[:2], *entries, self.rewards, shared):
            digest.update(b"-" if array is None else np.ascontiguousarray(array).reshape(-1).data)
        return digest.hexdigest()

    def __repr__(self) -> str:
        kind = type(self.layout).__name__.removesuffix("Features").lower()
        kind = kind if self.shared is None else "aggregated"
        return f"FeatureMap({kind}, S={self.states}, A={self.actions}, d={self.dimension})"
