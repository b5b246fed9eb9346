r"""Feature maps, the known part of a linear kernel: :math:`P_\theta(o | s, a) = \langle\phi(s, a, o), \theta\rangle`.

One representation serves dense vectors, sparse simulators and one-hot tables. Coordinates come in G
groups of n, and every pair (s, a) uses the coordinates of one group. An ordinary map has one group
with all d coordinates. The tabular map has one group per pair, an aggregation one per block and
action; these two are one-hot: each outcome has a coordinate of its own. Parameters theta are arrays
[G, n]; where a group has fewer than n coordinates, the rest are 0.

The regressors of value-targeted regression are :math:`\phi_V(s, a) = \sum_o \phi(s, a, o) V(s'_o)`:
one product with ``operator``.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from occamrl.errors import (
    FeatureError,
    ShapeError,
    as_array,
    as_flags,
    as_floats,
    as_indices,
    require_integer,
    require_kind,
)
from occamrl.problems.mdp import FiniteMDP, sound_sparse
from occamrl.protocols import Floats, Ints, Known, Outcomes

_TOLERANCE = 1e-8  # of sums that should be one, and of entries that should be equal
_DENSE = 2**16  # entries of a matrix below which a dense product is the faster one


class PerProblem(weakref.WeakKeyDictionary[Known, Any]):
    """What was computed for a problem, as long as that lives; a pickled copy is empty."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


def as_kernel(field: str, kernel: Any, index: tuple[int, ...] | None = None) -> Any:
    """Return a kernel, dense [S, A, S] or scipy.sparse (S*A, S), as a csr matrix (S*A, S) without stored zeros."""
    if not sp.issparse(kernel):
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


def read_kernels(field: str, kernels: Any, support: Any = None) -> tuple[Outcomes, Any, int]:
    """Return the union of the outcomes of m kernels, their probabilities as a matrix [O, m] (dense or csr), and S.

    What is true in ``support`` (S*A, S) is an outcome even if it has probability 0 in all kernels.
    """
    dense = support is None and not any(sp.issparse(kernel) for kernel in kernels)
    if dense:
        stack = as_floats(field, kernels)
        if stack.ndim != 4 or stack.shape[1] != stack.shape[3] or 0 in stack.shape:
            hint = "; for a single kernel, a list of it" if stack.ndim == 3 else ""
            raise ShapeError(field, got=stack.shape, expected=f"kernels [S, A, S]{hint}")
        members, pairs, states = len(stack), stack.shape[1] * stack.shape[2], stack.shape[3]
        entries: Any = sp.coo_array(stack.reshape(-1, states))
    else:
        matrices = [as_kernel(field, kernel, (j,)) for j, kernel in enumerate(kernels)]
        for j, each in enumerate(matrices):
            if each.shape != matrices[0].shape:
                raise ShapeError(field, index=(j,), got=each.shape, expected=matrices[0].shape)
        members, (pairs, states) = len(matrices), matrices[0].shape
        entries = sp.coo_array(sp.vstack(matrices))
    member, pair = np.divmod(entries.row.astype(np.int64), pairs)
    listed = () if support is None else np.flatnonzero(support)
    cell, place = np.unique(
        np.append(pair * states + entries.col, listed).astype(np.int64), return_inverse=True
    )
    matrix: Any = sp.csr_array(
        (entries.data, (place[: member.size], member)), shape=(cell.size, members)
    )
    return (
        outcomes_of(field, cell, pairs, states),
        matrix.toarray() if dense else dense_if_small(matrix),
        states,
    )


def outcomes_of(field: str, cell: Ints, pairs: int, states: int) -> Outcomes:
    """Return the outcomes (s*A + a, s') listed as sorted cells (s*A + a) * S + s'; every pair needs one."""
    counts = np.bincount(cell // states, minlength=pairs)
    if not counts.all():
        expected = "at least one for every s*A + a"
        raise FeatureError(
            field, index=(int(np.argmin(counts)),), got="no next state", expected=expected
        )
    return Outcomes(np.append(0, np.cumsum(counts)), cell % states, np.zeros(cell.size))


def as_dense(matrix: Any) -> Floats:
    """Return a matrix, dense or csr, as an array."""
    return matrix if isinstance(matrix, np.ndarray) else np.asarray(matrix.toarray())


def dense_if_small(matrix: Any) -> Any:
    """Return a csr matrix as an array if products are faster with that."""
    size = matrix.shape[0] * matrix.shape[1]
    return matrix.toarray() if size <= _DENSE or 3 * matrix.nnz >= size else matrix


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
    outcomes: Outcomes  # what can happen at each (s, a)
    matrix: (
        Any  # [O, n], dense or csr: phi of each outcome in the coordinates of the group of its pair
    )
    group: Ints  # [S*A] the group of each pair
    rewards: Floats | None  # [O] of each outcome, where the features fix them

    def __init__(self, phi: ArrayLike | Sequence[Any]) -> None:
        given: Any = phi
        listed = isinstance(phi, (list, tuple)) and len(phi) > 0
        if not (listed and (sp.issparse(given[0]) or as_array("phi", given[0]).ndim == 3)):
            array = as_floats("phi", phi)
            if array.ndim != 4:
                raise ShapeError(
                    "phi", got=array.shape, expected="[S, A, S, d], or a list of kernels [S, A, S]"
                )
            given = np.moveaxis(array, 3, 0)
        outcomes, matrix, states = read_kernels("phi", given)
        entries = sp.coo_array(matrix)
        self._set(outcomes, matrix, states)
        for wrong in np.flatnonzero(~np.isfinite(entries.data))[:1]:
            o, j = (int(place[wrong]) for place in entries.coords)
            at = (*divmod(int(outcomes.pair[o]), self.actions), int(outcomes.next_state[o]), j)
            raise FeatureError("phi", index=at, got=entries.data[wrong], expected="a finite number")
        distinct = np.unique(np.round(self.sums, 12), axis=0)
        theta = np.linalg.lstsq(distinct, np.ones(len(distinct)), rcond=None)[0]
        for pair in np.flatnonzero(np.abs(self.sums @ theta - 1.0) > _TOLERANCE)[:1].tolist():
            got = "features for which no theta gives probabilities that sum to 1"
            expected = "features that make a kernel for some theta"
            raise FeatureError("phi", index=divmod(pair, self.actions), got=got, expected=expected)

    def _set(
        self, outcomes: Outcomes, matrix: Any, states: int, rewards: Any = None, group: Any = None
    ) -> None:
        pairs = outcomes.start.size - 1
        self.states, self.actions = states, pairs // states
        self.outcomes, self.matrix, self.rewards = outcomes, matrix, rewards
        self.width = int(matrix.shape[1])
        self.group = np.zeros(pairs, dtype=np.int64) if group is None else group
        self.groups = int(self.group.max()) + 1
        self.sizes = np.full(self.groups, self.width)
        if group is not None:
            self.sizes[group] = np.diff(outcomes.start)
        self.dimension = int(self.sizes.sum())
        self._attached = PerProblem()

    @classmethod
    def of_matrix(
        cls, outcomes: Outcomes, matrix: Any, states: int, rewards: Any = None, group: Any = None
    ) -> FeatureMap:
        """Return the map with one vector for each outcome, the rows of a matrix [O, d] (dense or csr)."""
        made = cls.__new__(cls)
        made._set(outcomes, matrix, states, rewards, group)
        return made

    @classmethod
    def of_outcomes(
        cls, outcomes: Outcomes, states: int, rewards: Any = None, group: Any = None
    ) -> FeatureMap:
        """Return the one-hot map over the given outcomes of each (s, a): theta is the kernel itself.

        Pairs of one ``group`` [S*A] have as many outcomes, and share their probabilities in this
        order.
        """
        counts = np.diff(outcomes.start)
        position = np.arange(outcomes.next_state.size) - np.repeat(outcomes.start[:-1], counts)
        one_hot = (np.ones(position.size), position, np.arange(position.size + 1))
        matrix = sp.csr_array(one_hot, shape=(position.size, int(counts.max())))
        return cls.of_matrix(
            outcomes, matrix, states, rewards, np.arange(counts.size) if group is None else group
        )

    @classmethod
    def tabular(cls, *, states: int, actions: int, support: ArrayLike | None = None) -> FeatureMap:
        """Return the one-hot map over all next states, or over those that ``support`` [S, A, S] (bool) allows."""
        shape = (
            require_integer("states", states, 1),
            require_integer("actions", actions, 1),
            states,
        )
        possible = (
            np.ones(shape, dtype=bool) if support is None else as_flags("support", support, shape)
        )
        return cls.of_outcomes(
            outcomes_of("support", np.flatnonzero(possible), states * actions, states), states
        )

    @classmethod
    def of_simulators(cls, simulators: Sequence[FiniteMDP]) -> FeatureMap:
        """Return the map whose coordinates are the kernels of given problems.

        Where some have rewards on transitions, over outcomes (s', reward): needed where (s, a, s')
        does not fix the reward. Rewards that are equal up to rounding are one outcome, with the
        first of them as its reward.
        """
        first = simulators[0]
        for j, mdp in enumerate(simulators):
            if (mdp.states, mdp.actions) != (first.states, first.actions) or not mdp.stationary:
                got = f"S={mdp.states}, A={mdp.actions}" + (
                    "" if mdp.stationary else ", one kernel per step"
                )
                expected = f"S={first.states}, A={first.actions}, one kernel for all steps"
                raise ShapeError("simulators", index=(j,), got=got, expected=expected)
        if all(mdp.known.transition_rewards is None for mdp in simulators):
            shape = (first.states * first.actions, first.states)
            parts = [
                (mdp.probability[0], mdp.outcomes.next_state, mdp.outcomes.start)
                for mdp in simulators
            ]
            kernels = [sp.csr_array(each, shape=shape) for each in parts]
            return cls.of_matrix(*read_kernels("simulators", kernels))
        listed = [mdp.outcomes for mdp in simulators]
        member = np.repeat(np.arange(len(listed)), [each.next_state.size for each in listed])
        pair, next_state, bonus = (
            np.concatenate([getattr(each, name) for each in listed])
            for name in ("pair", "next_state", "bonus")
        )
        base = np.array([mdp.base_reward.ravel() for mdp in simulators])
        cell, reward = pair * first.states + next_state, bonus + base[member, pair]
        _, chosen, place = np.unique(
            [cell, np.round(reward, 12)], axis=1, return_index=True, return_inverse=True
        )
        values = np.concatenate([mdp.probability[0] for mdp in simulators])
        matrix: Any = sp.csr_array(
            (values, (place.ravel(), member)), shape=(chosen.size, len(listed))
        )
        outcomes = outcomes_of(
            "simulators", cell[chosen], first.states * first.actions, first.states
        )
        return cls.of_matrix(outcomes, dense_if_small(matrix), first.states, reward[chosen])

    def restrict(self, coordinates: ArrayLike) -> FeatureMap:
        """Return the map phi[..., D] on the coordinates D, in the order given, over the same outcomes."""
        if self.groups > 1:
            raise FeatureError(
                "coordinates", got="a map with groups of coordinates", expected="one without"
            )
        chosen = as_indices("coordinates", coordinates, self.dimension)
        return FeatureMap.of_matrix(
            self.outcomes, self.matrix[:, chosen], self.states, self.rewards
        )

    @cached_property
    def operator(self) -> Any:
        """The matrix [S*A*n, S], dense or csr, with (operator @ V).reshape(S*A, n) = phi_V."""
        entries: Any = sp.coo_array(self.matrix)
        outcome, coordinate = entries.coords
        row = self.outcomes.pair[outcome] * self.width + coordinate
        shape = (self.group.size * self.width, self.states)
        return dense_if_small(
            sp.csr_array((entries.data, (row, self.outcomes.next_state[outcome])), shape=shape)
        )

    @cached_property
    def sums(self) -> Floats:
        """phi_1(s, a) [S*A, n], the sum over the outcomes of (s, a): <phi_1, theta> = 1 for kernels."""
        return np.asarray(self.operator @ np.ones(self.states)).reshape(-1, self.width)

    @cached_property
    def place(self) -> Ints:
        """Where the coordinate of each outcome [O] of a map with several groups, which is one-hot, stands in [G*n]."""
        return np.asarray(self.group[self.outcomes.pair] * self.width + self.matrix.indices)

    @cached_property
    def cells(self) -> tuple[Ints, Any]:
        """The cells (s*A + a) * S + s' that can be reached, and the csr matrix [C, G*n] from theta to their entries."""
        cell, row = np.unique(
            self.outcomes.pair * self.states + self.outcomes.next_state, return_inverse=True
        )
        shape, phi = (cell.size, row.size), self.matrix
        if self.groups > 1:
            one_hot = (np.ones(row.size), (np.arange(row.size), self.place))
            phi = sp.csr_array(one_hot, shape=(row.size, self.groups * self.width))
        add: Any = sp.csr_array((np.ones(row.size), (row, np.arange(row.size))), shape=shape)
        return cell, add @ sp.csr_array(phi)

    def on_cells(self, kernel: Any) -> Floats | None:
        """Return the entries of a kernel on ``cells``; None if it leads elsewhere or is not a kernel."""
        flat = as_kernel("kernel", kernel)
        if flat.shape != (self.group.size, self.states):
            raise ShapeError(
                "kernel", got=flat.shape, expected=f"S={self.states}, A={self.actions}"
            )
        pair, state = np.divmod(self.cells[0], self.states)
        entries = np.asarray(flat[pair, state], dtype=np.float64).ravel()
        whole, inside = np.abs(flat).sum(axis=1), np.bincount(pair, entries, self.group.size)
        fits = (np.abs(whole - 1.0) <= _TOLERANCE) & (
            np.abs(inside - 1.0) <= _TOLERANCE
        )  # false where not a number
        return entries if fits.all() else None

    def as_theta(self, theta: ArrayLike) -> Floats:
        """Return parameters as an array [G, n]; a flat [d] is accepted where there is one group."""
        given = as_floats("theta", theta)
        if given.shape not in (
            (self.groups, self.width),
            (self.dimension,) if self.groups == 1 else (),
        ):
            raise ShapeError("theta", got=given.shape, expected=(self.groups, self.width))
        return given.reshape(self.groups, self.width)

    def probabilities(self, theta: ArrayLike) -> Floats:
        """Return P_theta on the outcomes of the map [O]."""
        weight = self.as_theta(theta)
        return np.asarray(
            self.matrix @ weight[0] if self.groups == 1 else weight.ravel()[self.place]
        )

    def laws(self, theta: Floats) -> Floats:
        """Return P_theta on the outcomes for each of the parameters [m, G, n]."""
        if self.groups > 1:
            return theta.reshape(len(theta), -1)[:, self.place]
        return np.ascontiguousarray((self.matrix @ theta[:, 0].T).T)

    def kernel(self, theta: ArrayLike) -> Floats:
        """Return P_theta as a dense array [S, A, S]."""
        cell, shape = (
            self.outcomes.pair * self.states + self.outcomes.next_state,
            (self.states, self.actions, -1),
        )
        entries = np.bincount(cell, self.probabilities(theta), self.group.size * self.states)
        return np.asarray(entries, dtype=np.float64).reshape(shape)

    def attach(self, known: Known) -> Outcomes:
        """Return the outcomes with the bonus of each from the known rewards of a problem."""
        require_kind("known", known, Known)
        if known not in self._attached:
            if (known.states, known.actions) != (self.states, self.actions):
                expected = f"the problem's S={known.states}, A={known.actions}"
                raise ShapeError(
                    "features", got=f"S={self.states}, A={self.actions}", expected=expected
                )
            bonus = self.outcomes.bonus
            if self.rewards is not None and known.rewards_known:
                base = np.where(known.allowed, known.base_reward, 0.0).ravel()[self.outcomes.pair]
                bonus = (
                    np.where(np.isfinite(self.rewards), self.rewards, base) - base
                )  # 0 where it is not allowed
            elif known.transition_rewards is not None:
                bonus = self._looked_up(known.transition_rewards)
            self._attached[known] = self.outcomes._replace(bonus=bonus)
        attached: Outcomes = self._attached[known]
        return attached

    def moments(self, targets: Floats) -> Floats:
        """Return the sum of phi times the targets [O] over the outcomes of each pair [S*A, n]."""
        start = self.outcomes.start
        weights = sp.csr_array(
            (targets, np.arange(targets.size), start), (start.size - 1, targets.size)
        )
        return as_dense(weights @ self.matrix)

    @cached_property
    def _bonus_rows(self) -> PerProblem:
        return PerProblem()

    def bonus_rows(self, known: Known) -> Any:
        """Return phi of the bonus [S*A, n]; 0.0 where rewards depend on (s, a) alone."""
        if known not in self._bonus_rows:
            bonus = self.attach(known).bonus
            self._bonus_rows[known] = self.moments(bonus) if bonus.any() else 0.0
        return self._bonus_rows[known]

    def _looked_up(self, table: Outcomes) -> Floats:
        """Return the bonus of every outcome in a table of rewards; refuse outcomes with none, or with several."""
        pair, after, far = (
            self.outcomes.pair,
            self.outcomes.next_state,
            np.full(self.outcomes.bonus.size, 1e9),
        )
        low, high = (table.index_of(pair, after, bonus, self.states) for bonus in (-far, far))
        for o in np.flatnonzero((low < 0) | (low != high))[:1].tolist():
            got = "no known reward" if low[o] < 0 else "several rewards for a next state"
            at, expected = (
                divmod(int(pair[o]), self.actions),
                "a reward fixed by (s, a, s') for each outcome",
            )
            raise FeatureError("features", index=(*at, int(after[o])), got=got, expected=expected)
        return table.bonus[low]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the map: equal for equal maps, dense or sparse, in any process."""
        digest, matrix = hashlib.sha256(repr(self).encode()), sp.csr_array(self.matrix)
        integers = (*self.outcomes[:2], matrix.indptr, matrix.indices, self.group)
        arrays = [*(np.asarray(array, dtype=np.int64) for array in integers), matrix.data]
        for array in arrays if self.rewards is None else [*arrays, self.rewards]:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"FeatureMap(S={self.states}, A={self.actions}, d={self.dimension})"
