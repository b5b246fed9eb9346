r"""Feature maps, the known part of a linear kernel.

.. math:: P_\theta(o | s, a) = \langle\phi(s, a, o), \theta\rangle

One representation serves dense vectors, sparse simulators and one-hot tables. Coordinates come in G
groups of n, and every pair (s, a) uses the coordinates of one group. An ordinary map has one group
with all d coordinates. The tabular map has one group per pair, an aggregation one per block and
action; these two are one-hot: each outcome has a coordinate of its own. Parameters theta are arrays
[G, n]; where a group has fewer than n coordinates, the rest are 0.

The regressors of value-targeted regression are :math:`\phi_V(s, a) = \sum_o \phi(s, a, o) V(s'_o)`.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from occamrl.arrays import Bools
from occamrl.bellman import Matrix, dense_if_faster, dense_pays
from occamrl.errors import (
    FeatureError,
    ShapeError,
    as_array,
    as_flags,
    as_floats,
    as_indices,
    require_integer,
    require_kind,
    require_room,
)
from occamrl.problems.mdp import FiniteMDP, KernelLike, first_true, is_sparse, sound_sparse
from occamrl.protocols import Floats, Ints, Known, Outcomes

_TOLERANCE = 1e-8  # of sums that should be one, and of entries that should be equal
_FAR = 1e9  # a bonus beyond all others


class PerProblem(weakref.WeakKeyDictionary[Known, Any]):
    """What was computed for a problem, as long as that lives; a pickled copy is empty."""

    def __reduce__(self) -> tuple[type[PerProblem], tuple[()]]:
        return type(self), ()


# Kernels, and the outcomes that they have ---------------------------------------------------------


class Kernels(NamedTuple):
    """Several kernels over the outcomes that any of them has."""

    outcomes: Outcomes
    matrix: Matrix  # [O, m] the probabilities
    states: int


def as_kernel(field: str, kernel: KernelLike, index: tuple[int, ...] | None = None) -> sp.csr_array:
    """Return a kernel, dense [S, A, S] or sparse (S*A, S), as csr (S*A, S) without stored zeros."""
    if not is_sparse(kernel):
        dense = as_floats(field, kernel)
        if dense.ndim != 3 or dense.shape[0] != dense.shape[2] or 0 in dense.shape:
            raise ShapeError(
                field,
                index=index,
                got=dense.shape,
                expected="[S, A, S], or a sparse matrix (S*A, S)",
            )
        return sp.csr_array(dense.reshape(-1, dense.shape[2]))
    flat = sound_sparse(field, kernel)
    if flat.ndim != 2 or 0 in flat.shape or flat.shape[0] % flat.shape[1]:
        raise ShapeError(field, index=index, got=flat.shape, expected="(S*A, S)")
    return flat


def read_kernels(field: str, kernels: Any, support: Bools | None = None) -> Kernels:
    """Return m kernels over the union of their outcomes.

    What is true in ``support`` [S, A, S] is an outcome even if it has probability 0 in all kernels.
    """
    # Dense kernels are small enough to be compared all at once.
    if support is None and not any(is_sparse(kernel) for kernel in kernels):
        return _read_dense(field, kernels)
    matrices: list[sp.csr_array] = []
    for j, kernel in enumerate(kernels):
        matrix = as_kernel(field, kernel, (j,))
        if j and matrix.shape != matrices[0].shape:
            raise ShapeError(field, index=(j,), got=matrix.shape, expected=matrices[0].shape)
        matrices.append(matrix)
    pairs, states = matrices[0].shape
    cell = np.zeros(0, np.int64) if support is None else np.flatnonzero(support)
    for j, matrix in enumerate(matrices):
        # Candidates of one system often have one pattern; a sort of all cells takes much memory.
        if j == 0 or not _same_pattern(matrix, matrices[j - 1]):
            cell = np.union1d(cell, _cells(matrix))
    outcomes = outcomes_of(field, cell, pairs, states)
    return Kernels(outcomes, _on_cells(matrices, cell), states)


def _read_dense(field: str, kernels: Any) -> Kernels:
    """Return dense kernels [m, S, A, S] over the union of their outcomes."""
    stack = as_floats(field, kernels)
    if stack.ndim != 4 or stack.shape[1] != stack.shape[3] or 0 in stack.shape:
        expected = "kernels [S, A, S]"
        if stack.ndim == 3:
            expected += "; for a single kernel, a list of it"
        raise ShapeError(field, got=stack.shape, expected=expected)
    states = stack.shape[3]
    flat = stack.reshape(len(stack), -1)
    cell = np.flatnonzero((flat != 0.0).any(axis=0))
    outcomes = outcomes_of(field, cell, flat.shape[1] // states, states)
    return Kernels(outcomes, np.ascontiguousarray(flat[:, cell].T), states)


def _same_pattern(one: sp.csr_array, other: sp.csr_array) -> bool:
    """Return whether two csr matrices store the same cells."""
    return np.array_equal(one.indptr, other.indptr) and np.array_equal(one.indices, other.indices)


def _cells(matrix: sp.csr_array) -> Ints:
    """Return the cells (s*A + a) * S + s' that a csr matrix stores, increasing."""
    pairs, states = matrix.shape
    cell = np.repeat(np.arange(pairs) * states, np.diff(matrix.indptr))
    cell += matrix.indices
    return cell


def _on_cells(matrices: Sequence[sp.csr_array], cell: Ints) -> Matrix:
    """Return the entries of csr matrices on some cells that contain theirs, [O, m]."""
    indices: list[Ints] = []
    # Where each stores its entries among all cells; once for a run of matrices of one pattern.
    for j, matrix in enumerate(matrices):
        if j and _same_pattern(matrix, matrices[j - 1]):
            indices.append(indices[-1])
        else:
            indices.append(np.searchsorted(cell, _cells(matrix)))
    shape = (cell.size, len(matrices))
    if dense_pays(sum(matrix.nnz for matrix in matrices), shape):
        dense = np.zeros(shape)
        for j, (index, matrix) in enumerate(zip(indices, matrices, strict=True)):
            dense[index, j] = matrix.data
        return dense
    start = np.cumsum([0, *(matrix.nnz for matrix in matrices)])
    data = np.concatenate([matrix.data for matrix in matrices])
    return sp.csr_array(sp.csc_array((data, np.concatenate(indices), start), shape=shape))


def outcomes_of(field: str, cell: Ints, pairs: int, states: int) -> Outcomes:
    """Return the outcomes listed as sorted cells (s*A + a) * S + s'; every pair needs one."""
    counts = np.bincount(cell // states, minlength=pairs)
    if not counts.all():
        raise FeatureError(
            field,
            index=(int(np.argmin(counts)),),
            got="no next state",
            expected="at least one for every s*A + a",
        )
    return Outcomes(np.append(0, np.cumsum(counts)), cell % states, np.zeros(cell.size))


def as_dense(matrix: Any) -> Floats:
    """Return a matrix, dense or sparse, as an array."""
    return matrix if isinstance(matrix, np.ndarray) else np.asarray(matrix.toarray())


# Feature maps -------------------------------------------------------------------------------------


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
        Kernels may be dense [S, A, S] or scipy.sparse of shape (S*A, S), row ``s*A + a``. Only what
        can happen under some kernel is kept. Signed features are allowed; only P_theta* has to be a
        kernel.
    """

    states: int
    actions: int
    dimension: int  # the number d of coordinates
    groups: int  # G
    width: int  # n, the most coordinates of a group
    sizes: Ints  # [G] how many each has
    layers: int  # 1, or the steps of an episode: kernels that depend on the step
    outcomes: Outcomes  # what can happen at each (s, a), layer by layer
    matrix: Matrix  # [O, n] phi of each outcome, in the coordinates of the group of its pair
    group: Ints  # [layers*S*A] the group of each pair
    rewards: Floats | None  # [O] of each outcome, where the features fix them

    def __init__(self, phi: ArrayLike | Sequence[KernelLike]) -> None:
        outcomes, matrix, states = read_kernels("phi", _listed(phi))
        self._set(outcomes, matrix, states)
        self._require_finite()
        self._require_some_kernel()

    def _set(
        self,
        outcomes: Outcomes,
        matrix: Matrix,
        states: int,
        rewards: Floats | None = None,
        group: Ints | None = None,
        layers: int = 1,
    ) -> None:
        pairs = outcomes.start.size - 1
        self.states = states
        self.layers = layers
        self.actions = pairs // states // layers
        self.outcomes = outcomes
        self.matrix = matrix
        self.rewards = rewards
        self.width = int(matrix.shape[1])
        if group is None:
            # one group that has all coordinates
            self.group = np.zeros(pairs, dtype=np.int64)
            self.sizes = np.array([self.width])
        else:
            self.group = group
            self.sizes = np.zeros(int(group.max()) + 1, dtype=np.int64)
            self.sizes[group] = np.diff(outcomes.start)
        self.groups = self.sizes.size
        self.dimension = int(self.sizes.sum())
        self._attached = PerProblem()
        self._bonus_rows = PerProblem()

    def _require_finite(self) -> None:
        """Refuse features that are no numbers."""
        stored = self.matrix if isinstance(self.matrix, np.ndarray) else self.matrix.data
        if np.isfinite(stored).all():
            return
        entries = sp.coo_array(self.matrix)
        wrong = int(np.flatnonzero(~np.isfinite(entries.data))[0])
        outcome = int(entries.row[wrong])
        raise FeatureError(
            "phi",
            index=(*self._index(outcome), int(entries.col[wrong])),
            got=entries.data[wrong],
            expected="a finite number",
        )

    def _require_some_kernel(self) -> None:
        """Refuse features for which no theta gives probabilities that sum to 1."""
        sums = self.sums
        if sums.min() > 1.0 - 1e-12 and sums.max() < 1.0 + 1e-12:  # every coordinate is a kernel
            return
        # Many pairs have the same sums: the equations <sums, theta> = 1 are few.
        distinct = np.unique(np.round(sums, 12), axis=0)
        theta = np.linalg.lstsq(distinct, np.ones(len(distinct)), rcond=None)[0]
        pair = first_true(np.abs(sums @ theta - 1.0) > _TOLERANCE)
        if pair is not None:
            raise FeatureError(
                "phi",
                index=divmod(pair, self.actions),
                got="features for which no theta gives probabilities that sum to 1",
                expected="features that make a kernel for some theta",
            )

    def _index(self, outcome: int) -> tuple[int, int, int]:
        """Return (s, a, s') of an outcome."""
        pair = int(np.searchsorted(self.outcomes.start, outcome, side="right")) - 1
        state, action = divmod(pair % (self.states * self.actions), self.actions)
        return (state, action, int(self.outcomes.next_state[outcome]))

    @classmethod
    def of_matrix(
        cls,
        outcomes: Outcomes,
        matrix: Matrix,
        states: int,
        rewards: Floats | None = None,
        group: Ints | None = None,
        layers: int = 1,
    ) -> FeatureMap:
        """Return the map with one vector for each outcome, the rows of a matrix [O, d]."""
        features = cls.__new__(cls)
        features._set(outcomes, matrix, states, rewards, group, layers)
        return features

    def repeated(self, layers: int) -> FeatureMap:
        """Return the same map at each of some steps: the parameters of kernels stay what they are.

        A map that has a layer for each of them is returned as it is.
        """
        if layers == self.layers:
            return self
        if self.layers > 1:
            raise FeatureError(
                "features",
                got=f"{self.layers} steps",
                expected=f"as many as other kernels have, {layers}",
            )
        count = self.outcomes.next_state.size
        starts = self.outcomes.start[:-1] + count * np.arange(layers)[:, None]
        outcomes = Outcomes(
            np.append(starts.ravel(), layers * count),
            np.tile(self.outcomes.next_state, layers),
            np.tile(self.outcomes.bonus, layers),
        )
        matrix: Matrix
        if isinstance(self.matrix, np.ndarray):
            matrix = np.tile(self.matrix, (layers, 1))
        else:
            matrix = sp.csr_array(sp.vstack([self.matrix] * layers))
        rewards = None if self.rewards is None else np.tile(self.rewards, layers)
        group = np.tile(self.group, layers) if self.groups > 1 else None
        return FeatureMap.of_matrix(outcomes, matrix, self.states, rewards, group, layers)

    def require_one_layer(self) -> None:
        """Refuse kernels that depend on the step, which value rows do not tell apart."""
        if self.layers > 1:
            raise FeatureError(
                "features",
                got="kernels that depend on the step",
                expected="one kernel for all steps; of others, lists are taken by likelihood: "
                "Occam, or orl.select",
            )

    @classmethod
    def of_outcomes(
        cls,
        outcomes: Outcomes,
        states: int,
        rewards: Floats | None = None,
        group: Ints | None = None,
        layers: int = 1,
    ) -> FeatureMap:
        """Return the one-hot map over given outcomes: theta is the kernel itself.

        Pairs of one ``group`` [S*A] have as many outcomes, and share their probabilities in this
        order.
        """
        counts = np.diff(outcomes.start)
        number = np.arange(outcomes.next_state.size)
        position = number - np.repeat(outcomes.start[:-1], counts)
        one_hot = (np.ones(number.size), position, np.arange(number.size + 1))
        matrix = sp.csr_array(one_hot, shape=(number.size, int(counts.max())))
        if group is None:
            group = np.arange(counts.size)
        return cls.of_matrix(outcomes, matrix, states, rewards, group, layers)

    @classmethod
    def tabular(cls, *, states: int, actions: int, support: ArrayLike | None = None) -> FeatureMap:
        """Return the one-hot map over all next states, or those that ``support`` [S, A, S] has."""
        require_integer("states", states, 1)
        require_integer("actions", actions, 1)
        shape = (states, actions, states)
        require_room("states", *shape)
        possible = np.ones(shape) if support is None else as_flags("support", support, shape)
        cell = np.flatnonzero(possible)
        return cls.of_outcomes(outcomes_of("support", cell, states * actions, states), states)

    @classmethod
    def of_simulators(cls, simulators: Sequence[FiniteMDP]) -> FeatureMap:
        """Return the map whose coordinates are the kernels of given problems.

        Where some have rewards on transitions, over outcomes (s', reward): needed where (s, a, s')
        does not fix the reward. Rewards that are equal up to rounding are one outcome, with the
        first of them as its reward. Where kernels depend on the step there is a layer for each.
        """
        first = simulators[0]
        layers = max(len(mdp.probability) for mdp in simulators)
        for j, mdp in enumerate(simulators):
            alike = layers == 1 or mdp.horizon == layers
            if (mdp.states, mdp.actions) != (first.states, first.actions) or not alike:
                expected = f"S={first.states}, A={first.actions}"
                if layers > 1:
                    expected += f", H={layers}, as kernels depend on the step"
                raise ShapeError(
                    "simulators",
                    index=(j,),
                    got=f"S={mdp.states}, A={mdp.actions}, H={mdp.horizon}",
                    expected=expected,
                )
        if any(mdp.known.transition_rewards is not None for mdp in simulators):
            return cls._of_rewarding(simulators, layers)
        shape = (layers * first.states * first.actions, first.states)
        kernels = []
        for mdp in simulators:
            entries = _layered(mdp, layers)
            places = (entries.pair, entries.next_state)
            kernels.append(sp.csr_array((entries.probability, places), shape=shape))
        outcomes, matrix, states = read_kernels("simulators", kernels)
        return cls.of_matrix(outcomes, matrix, states, layers=layers)

    @classmethod
    def _of_rewarding(cls, simulators: Sequence[FiniteMDP], layers: int) -> FeatureMap:
        """Return the map of problems over outcomes (s', reward)."""
        states = simulators[0].states
        pairs = layers * states * simulators[0].actions
        members = []
        cells = []
        rewards = []
        chances = []
        for j, mdp in enumerate(simulators):
            entries = _layered(mdp, layers)
            members.append(np.full(entries.pair.size, j))
            cells.append(entries.pair * states + entries.next_state)
            rewards.append(entries.reward)
            chances.append(entries.probability)
        cell = np.concatenate(cells)
        reward = np.concatenate(rewards)
        # Simulators may compute one reward in different ways: to 12 digits it is one outcome.
        key = np.array([cell, np.round(reward, 12)])
        _, chosen, row = np.unique(key, axis=1, return_index=True, return_inverse=True)
        places = (row.ravel(), np.concatenate(members))
        shape = (chosen.size, len(simulators))
        matrix = dense_if_faster(sp.csr_array((np.concatenate(chances), places), shape=shape))
        outcomes = outcomes_of("simulators", cell[chosen], pairs, states)
        return cls.of_matrix(outcomes, matrix, states, reward[chosen], layers=layers)

    def restrict(self, coordinates: ArrayLike) -> FeatureMap:
        """Return the map phi[..., D] on coordinates D, in this order, over the same outcomes."""
        if self.groups > 1:
            raise FeatureError(
                "coordinates", got="a map with groups of coordinates", expected="one without"
            )
        chosen = as_indices("coordinates", coordinates, self.dimension)
        part = self.matrix[:, chosen]
        return FeatureMap.of_matrix(self.outcomes, part, self.states, self.rewards)

    # Sums over outcomes ---------------------------------------------------------------------------

    def phi_v(self, values: Floats) -> Floats:
        """Return phi_V [S*A, n] for values [S] of the next step."""
        self.require_one_layer()
        if self._operator is None:
            return self.moments(values[self.outcomes.next_state])
        return np.asarray(self._operator @ values).reshape(-1, self.width)

    @cached_property
    def _operator(self) -> Matrix | None:
        """The matrix [S*A*n, S] from V to phi_V; None where that would hold a large map twice."""
        shape = (self.group.size * self.width, self.states)
        if isinstance(self.matrix, np.ndarray):
            stored = int(np.count_nonzero(self.matrix))
            # As csr it would store each entry with its column, while the map itself is a plain
            # array: sums over its outcomes are as fast.
            if not dense_pays(stored, shape):
                return None
        entries = sp.coo_array(self.matrix)
        row = self.outcomes.pair[entries.row] * self.width + entries.col
        column = self.outcomes.next_state[entries.row]
        return dense_if_faster(sp.csr_array((entries.data, (row, column)), shape=shape))

    def moments(self, targets: Floats) -> Floats:
        """Return the sum of phi times the targets [O] over the outcomes of each pair [S*A, n]."""
        # A product with a sparse matrix of targets adds them up by pairs, without a copy of phi.
        columns, start = self._by_pair
        weights = sp.csr_array((targets, columns, start), shape=(start.size - 1, targets.size))
        return as_dense(weights @ self.matrix)

    @cached_property
    def _by_pair(self) -> tuple[Ints, Ints]:
        """The pattern of a csr matrix [S*A, O] that adds up the outcomes of each pair."""
        count = self.outcomes.next_state.size
        kind = np.int32 if count < 2**31 else np.int64  # half the memory where that is enough
        return np.arange(count, dtype=kind), self.outcomes.start.astype(kind)

    @cached_property
    def sums(self) -> Floats:
        """phi_1(s, a) [S*A, n], the sum over outcomes: <phi_1, theta> = 1 for kernels."""
        return self.phi_v(np.ones(self.states))

    # Parameters and kernels -----------------------------------------------------------------------

    @cached_property
    def flat_index(self) -> Ints:
        """Where the coordinate of each outcome [O] of a one-hot map stands in [G*n]."""
        coordinate = sp.csr_array(self.matrix).indices
        return np.asarray(self.group[self.outcomes.pair] * self.width + coordinate)

    @cached_property
    def cells(self) -> tuple[Ints, sp.csr_array]:
        """The cells (s*A + a) * S + s' in reach, and the matrix [C, G*n] from theta to them."""
        cell_of_outcome = self.outcomes.pair * self.states + self.outcomes.next_state
        cell, row = np.unique(cell_of_outcome, return_inverse=True)
        number = np.arange(row.size)
        phi = self.matrix
        if self.groups > 1:
            one_hot = (np.ones(row.size), (number, self.flat_index))
            phi = sp.csr_array(one_hot, shape=(row.size, self.groups * self.width))
        add = sp.csr_array((np.ones(row.size), (row, number)), shape=(cell.size, row.size))
        return cell, add @ sp.csr_array(phi)

    def on_cells(self, kernel: KernelLike) -> Floats | None:
        """Return the entries of a kernel on ``cells``; None if it leads elsewhere or is none."""
        flat = as_kernel("kernel", kernel)
        if flat.shape != (self.group.size, self.states):
            raise ShapeError(
                "kernel", got=flat.shape, expected=f"S={self.states}, A={self.actions}"
            )
        pair, state = np.divmod(self.cells[0], self.states)
        entries = np.asarray(flat[pair, state], dtype=np.float64).ravel()
        whole = np.asarray(abs(flat).sum(axis=1))
        inside = np.bincount(pair, entries, self.group.size)
        # Written so that NaN does not fit.
        fits = (np.abs(whole - 1.0) <= _TOLERANCE) & (np.abs(inside - 1.0) <= _TOLERANCE)
        return entries if fits.all() else None

    def as_theta(self, theta: ArrayLike) -> Floats:
        """Return parameters as an array [G, n]; a flat [d] is accepted where there is one group."""
        given = as_floats("theta", theta)
        shape = (self.groups, self.width)
        flat = self.groups == 1 and given.shape == (self.dimension,)
        if given.shape != shape and not flat:
            raise ShapeError("theta", got=given.shape, expected=shape)
        return given.reshape(shape)

    def probabilities(self, theta: ArrayLike) -> Floats:
        """Return P_theta on the outcomes of the map [O]."""
        weight = self.as_theta(theta)
        if self.groups > 1:
            return np.asarray(weight.ravel()[self.flat_index])
        return np.asarray(self.matrix @ weight[0])

    def laws(self, theta: Floats) -> Floats:
        """Return P_theta on the outcomes for each of the parameters [m, G, n]."""
        if self.groups > 1:
            return np.asarray(theta.reshape(len(theta), -1)[:, self.flat_index])
        return np.ascontiguousarray((self.matrix @ theta[:, 0].T).T)

    def kernel(self, theta: ArrayLike) -> Floats:
        """Return P_theta as a dense array [S, A, S], or [H, S, A, S] if it depends on the step."""
        cell = self.outcomes.pair * self.states + self.outcomes.next_state
        entries = np.bincount(cell, self.probabilities(theta), self.group.size * self.states)
        sizes = (self.states, self.actions, self.states)
        layers = () if self.layers == 1 else (self.layers,)
        return np.asarray(entries, dtype=np.float64).reshape(*layers, *sizes)

    # Rewards of a problem -------------------------------------------------------------------------

    def attach(self, known: Known) -> Outcomes:
        """Return the outcomes with the bonus of each from the known rewards of a problem."""
        require_kind("known", known, Known)
        if known not in self._attached:
            if (known.states, known.actions) != (self.states, self.actions):
                raise ShapeError(
                    "features",
                    got=f"S={self.states}, A={self.actions}",
                    expected=f"the problem's S={known.states}, A={known.actions}",
                )
            self._attached[known] = self.outcomes._replace(bonus=self._bonus(known))
        outcomes: Outcomes = self._attached[known]
        return outcomes

    def _bonus(self, known: Known) -> Floats:
        """Return the part of the reward of each outcome that no other of its pair has [O]."""
        if self.rewards is not None and known.rewards_known:
            pair = self.outcomes.pair % known.base_reward.size
            base = np.where(known.allowed, known.base_reward, 0.0).ravel()[pair]
            # 0 for pairs that are not allowed, whose reward is not finite
            return np.where(np.isfinite(self.rewards), self.rewards, base) - base
        if known.transition_rewards is not None:
            return self._looked_up(known.transition_rewards)
        return self.outcomes.bonus

    def _looked_up(self, table: Outcomes) -> Floats:
        """Return the bonus of every outcome in a table; refuse outcomes with none or several."""
        pair = self.outcomes.pair % (self.states * self.actions)
        next_state = self.outcomes.next_state
        far = np.full(pair.size, _FAR)
        # The nearest to a bonus below and to one above all others: the same, if there is but one.
        low = table.index_of(pair, next_state, -far, self.states, np.inf)
        high = table.index_of(pair, next_state, far, self.states, np.inf)
        wrong = first_true((low < 0) | (low != high))
        if wrong is not None:
            got = "several rewards for a next state"
            if low[wrong] < 0:
                got = "no known reward"
            raise FeatureError(
                "features",
                index=self._index(wrong),
                got=got,
                expected="a reward fixed by (s, a, s') for each outcome",
            )
        return np.asarray(table.bonus[low])

    def bonus_rows(self, known: Known) -> Floats | float:
        """Return phi of the bonus [S*A, n]; 0.0 where rewards depend on (s, a) alone."""
        bonus = self.attach(known).bonus
        if not bonus.any():
            return 0.0
        if known not in self._bonus_rows:
            self._bonus_rows[known] = self.moments(bonus)
        rows: Floats = self._bonus_rows[known]
        return rows

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the map: equal for equal maps, dense or sparse, in any process."""
        matrix = sp.csr_array(self.matrix)
        digest = hashlib.sha256(repr(self).encode())
        integers = (*self.outcomes[:2], matrix.indptr, matrix.indices, self.group)
        for array in integers:
            digest.update(np.ascontiguousarray(array, dtype=np.int64).data)
        digest.update(np.ascontiguousarray(matrix.data).data)
        if self.rewards is not None:
            digest.update(np.ascontiguousarray(self.rewards).data)
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"FeatureMap(S={self.states}, A={self.actions}, d={self.dimension})"


class LayeredOutcomes(NamedTuple):
    """The outcomes of a problem at each of its steps."""

    pair: Ints  # [N] (layer*S + s)*A + a
    next_state: Ints  # [N]
    reward: Floats  # [N]
    probability: Floats  # [N]


def _layered(mdp: FiniteMDP, layers: int) -> LayeredOutcomes:
    """Return the outcomes of a problem in some layers, those that are possible there."""
    pair = mdp.outcomes.pair
    offset = mdp.states * mdp.actions * np.arange(layers)[:, None]
    laws = np.stack([mdp.law(layer) for layer in range(layers)]).ravel()
    kept = np.flatnonzero(laws)
    reward = mdp.outcomes.bonus + mdp.base_reward[pair]
    return LayeredOutcomes(
        (pair + offset).ravel()[kept],
        np.tile(mdp.outcomes.next_state, layers)[kept],
        np.tile(reward, layers)[kept],
        laws[kept],
    )


def _listed(phi: Any) -> Any:
    """Return features [S, A, S, d], or a list of kernels, as d kernels."""
    listed = isinstance(phi, (list, tuple)) and len(phi) > 0
    if listed and (is_sparse(phi[0]) or as_array("phi", phi[0]).ndim == 3):
        return phi
    array = as_floats("phi", phi)
    if array.ndim != 4:
        raise ShapeError(
            "phi", got=array.shape, expected="[S, A, S, d], or a list of kernels [S, A, S]"
        )
    return np.moveaxis(array, 3, 0)
