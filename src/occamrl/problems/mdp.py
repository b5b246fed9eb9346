"""A finite episodic MDP that is known exactly: validated, solved and evaluated without sampling.

There are S states, A actions and H steps; values lie in [0, H - h + 1], and V_{H+1} = 0. Arrays
count steps from 0, so ``optimal_values[0]`` is V*_1 and ``optimal_values[H]`` is V*_{H+1}.

A dense kernel, a sparse one and a Gymnasium table all become a :class:`Listing`: outcomes with
their probabilities and rewards. Validation, the map of rewards onto [0, 1] and the outcome layout
of :mod:`occamrl.protocols` are then written once. Sparse input is never made dense.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import FrozenInstanceError
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, TypedDict, TypeVar, Unpack, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from occamrl import bellman
from occamrl.arrays import Bools, distinct_rows
from occamrl.errors import (
    ParameterError,
    ProbabilityError,
    RewardError,
    ShapeError,
    as_array,
    as_floats,
    require_choice,
    require_integer,
    require_kind,
    require_number,
    require_range,
    require_room,
    sum_to_one,
)
from occamrl.naming import Names
from occamrl.policies import Policy
from occamrl.protocols import Controller, Floats, Ints, Known, Learner, Outcomes, Problem
from occamrl.protocols import RewardMap as RewardMap

TOLERANCE = 1e-9  # how far a row of probabilities may be from summing to one

Array = TypeVar("Array", bound=NDArray[np.generic])
SparseMatrix = sp.sparray | sp.spmatrix
KernelLike = ArrayLike | SparseMatrix  # [S, A, S], or sparse (S*A, S)
# table[s][a] = [(probability, next_state, reward[, terminated]), ...]
Table = Mapping[int, Any] | Sequence[Any]
Small = Sequence[Mapping[str, Any]]  # parameters of small instances of a problem


def reward_map(reward_range: Sequence[float] | None) -> RewardMap:
    """Return the map of a stated range (low, high); by default rewards are in [0, 1] already."""
    if reward_range is None:
        return RewardMap()
    low, high = require_range("reward_range", reward_range)
    return RewardMap(low, high)


def read_only(array: Array) -> Array:
    """Return a view of ``array``, contiguous, that cannot be written to."""
    # A view, so that the flag of the caller's own array stays as it is.
    contiguous = cast(Array, np.ascontiguousarray(array)[...])
    contiguous.flags.writeable = False
    return contiguous


def first_true(mask: Bools) -> int | None:
    """Return where a mask [n] is true for the first time; None if nowhere."""
    if not mask.any():
        # argmax would say 0
        return None
    return int(mask.argmax())


# What a problem's statement mentions --------------------------------------------------------------


class Listing(NamedTuple):
    """The N outcomes that a statement mentions; of those with probability 0, only the reward."""

    states: int
    actions: int
    pair: Ints  # [N] s*A + a
    next_state: Ints  # [N]
    probability: Floats  # [T, N]
    reward: Floats  # [N]
    field: str = "transition"  # the argument that holds the probabilities
    reward_axes: int = 3  # of the argument that holds the rewards: 2 if they are of pairs

    def take(self, kept: Ints | Bools) -> Listing:
        """Return some of the outcomes, in the order given."""
        return self._replace(
            pair=self.pair[kept],
            next_state=self.next_state[kept],
            probability=self.probability[:, kept],
            reward=self.reward[kept],
        )

    def sort(self) -> Listing:
        """Put outcomes in order; those with one pair, next state and reward become one."""
        # A table may state one outcome in several rows; as one it has one place in a likelihood.
        order, first = distinct_rows(self.pair, self.next_state, self.reward)
        probability = np.add.reduceat(self.probability[:, order], first, axis=1)
        return self.take(order[first])._replace(probability=probability)

    def validate(self, rewards: RewardMap) -> None:
        """Refuse probabilities that are no distributions, and rewards outside their range."""
        for t, row in enumerate(self.probability):
            step = () if len(self.probability) == 1 else (t,)
            self._require_distributions(row, step)
        # Written so that NaN is outside.
        wrong = first_true(~((self.reward >= rewards.low) & (self.reward <= rewards.high)))
        if wrong is not None:
            earned = float(self.reward[wrong])
            expected = f"a reward in [{rewards.low:g}, {rewards.high:g}]"
            if math.isfinite(earned):
                expected += "; reward_range=(low, high) maps others onto [0, 1]"
            field = "outcomes" if self.field == "outcomes" else "reward"
            raise RewardError(
                field, got=earned, expected=expected, index=self._index(wrong)[: self.reward_axes]
            )

    def _require_distributions(self, row: Floats, step: tuple[int, ...]) -> None:
        """Refuse the probabilities [N] of a step that are negative or do not sum to one."""
        wrong = first_true(~((row >= 0.0) & (row < math.inf)))
        if wrong is not None:
            raise ProbabilityError(
                self.field,
                got=float(row[wrong]),
                expected="a finite number >= 0",
                index=(*step, *self._index(wrong)),
            )
        total = np.bincount(self.pair, row, minlength=self.states * self.actions)
        pair = first_true(np.abs(total - 1.0) > TOLERANCE)
        if pair is not None:
            raise ProbabilityError(
                self.field,
                got=f"a row that sums to {total[pair]:.12g}",
                expected=sum_to_one(total[pair]),
                index=(*step, *divmod(pair, self.actions)),
            )

    def _index(self, outcome: int) -> tuple[int, ...]:
        """Return (s, a, s') of an outcome."""
        state, action = divmod(int(self.pair[outcome]), self.actions)
        return (state, action, int(self.next_state[outcome]))


def is_sparse(matrix: object) -> bool:
    """Return whether a matrix is one of SciPy's sparse ones, whatever its format."""
    return isinstance(matrix, SparseMatrix)


def sound_sparse(field: str, matrix: Any, *, keep_zeros: bool = False) -> sp.csr_array:
    """Return a matrix by rows, with indices in range, sorted, and each once.

    SciPy's compiled code trusts indices. The arrays are the user's own where these are sound: they
    may be large, and whoever keeps them makes a copy.
    """
    candidate = copy.copy(matrix)  # attributes of its own: the check may set them
    try:
        if candidate.format in ("csr", "csc", "bsr"):
            candidate.check_format(full_check=True)
        csr = sp.csr_array(candidate)
    except (TypeError, ValueError) as error:
        raise ShapeError(
            field, got=f"a sparse matrix: {error}", expected="indices in range"
        ) from error
    if csr.dtype.kind not in "biuf":
        raise ShapeError(
            field, got=f"dtype {csr.dtype}", expected="a sparse matrix of real numbers"
        )
    zeros = csr.nnz - np.count_nonzero(csr.data)
    if not csr.has_canonical_format or (zeros and not keep_zeros):
        csr = csr.copy()
        csr.sum_duplicates()
        if not keep_zeros:
            csr.eliminate_zeros()
    return csr


class Entries(NamedTuple):
    """The entries that any of n sparse matrices (S*A, S) has."""

    pair: Ints  # [N]
    next_state: Ints  # [N]
    values: Floats  # [n, N] of each matrix


def _entries(matrices: Sequence[sp.csr_array]) -> Entries:
    """Return the entries of some sparse matrices of one shape, in copies."""
    pairs, states = matrices[0].shape
    if len(matrices) == 1:
        # A csr matrix is in order; sorting a large one would take more than all the rest.
        only = matrices[0]
        pair = np.repeat(np.arange(pairs), np.diff(only.indptr))
        return Entries(pair, only.indices.astype(np.int64), only.data.astype(np.float64)[None])
    coordinates = [matrix.tocoo() for matrix in matrices]
    cells = [entry.row.astype(np.int64) * states + entry.col for entry in coordinates]
    union = np.unique(np.concatenate(cells))
    values = np.zeros((len(matrices), union.size))
    for row, cell, entry in zip(values, cells, coordinates, strict=True):
        row[np.searchsorted(union, cell)] = entry.data
    return Entries(union // states, union % states, values)


def _matrices(transition: Any, horizon: int) -> list[sp.csr_array]:
    """Return one kernel, or H of them, dense or sparse, as sparse matrices (S*A, S)."""
    given = transition if isinstance(transition, Sequence) else [transition]
    sparse = [matrix for matrix in given if is_sparse(matrix)]
    if sparse:
        shape = sparse[0].shape
        whole = len(shape) == 2 and 0 not in shape and shape[0] % shape[1] == 0
        alike = len(sparse) == len(given) and all(matrix.shape == shape for matrix in sparse)
        if not (whole and alike) or len(given) not in (1, horizon):
            raise ShapeError(
                "transition",
                got=f"{len(given)} of shapes {[matrix.shape for matrix in sparse[:3]]}",
                expected=f"sparse matrices (S*A, S), row s*A + a: one, or H = {horizon}",
            )
        return [sound_sparse("transition", matrix) for matrix in sparse]
    dense = as_floats("transition", transition)
    # From here on there is always an axis of steps.
    if dense.ndim == 3:
        dense = dense[np.newaxis]
    elif dense.ndim != 4 or dense.shape[0] != horizon:
        raise ShapeError(
            "transition", got=dense.shape, expected=f"[S, A, S] or [H, S, A, S] with H = {horizon}"
        )
    if dense.shape[1] != dense.shape[3] or 0 in dense.shape:
        expected = "[S, A, S] with S, A >= 1"
        if dense.shape[2] == dense.shape[3]:
            expected += "; of P[a, s, s'], give np.moveaxis(P, 0, 1)"
        raise ShapeError("transition", got=dense.shape[-3:], expected=expected)
    return [sp.csr_array(kernel.reshape(-1, dense.shape[3])) for kernel in dense]


def read_arrays(transition: Any, reward: Any, horizon: int) -> Listing:
    """List what the reward table defines.

    That is the whole of a dense r[s, a, s'], the stored entries of a sparse one (S*A, S) together
    with all that the kernel can do, and the latter alone for r[s, a].
    """
    matrices = _matrices(transition, horizon)
    pairs, states = matrices[0].shape
    actions = pairs // states
    if is_sparse(reward):
        if reward.shape != (pairs, states):
            raise ShapeError(
                "reward", got=f"sparse {reward.shape}", expected=f"(S*A, S) = {(pairs, states)}"
            )
        rewards = sound_sparse("reward", reward, keep_zeros=True)
    else:
        dense = as_floats("reward", reward)
        if dense.shape == (states, actions):
            entries = _entries(matrices)
            earned = dense.ravel()[entries.pair]
            return Listing(states, actions, *entries, earned, reward_axes=2)
        if dense.shape != (states, actions, states):
            expected = f"[S, A] = {(states, actions)} or [S, A, S] = {(states, actions, states)}"
            if dense.shape == (actions, states):
                expected += "; of r[a, s], give r.T"
            raise ShapeError("reward", got=dense.shape, expected=expected)
        # Zeros are stored too: they are known.
        columns = np.tile(np.arange(states), pairs)
        starts = np.arange(pairs + 1) * states
        rewards = sp.csr_array((dense.ravel(), columns, starts), shape=(pairs, states))
    entries = _entries([*matrices, rewards])
    probability = entries.values[:-1]
    earned = entries.values[-1]
    return Listing(states, actions, entries.pair, entries.next_state, probability, earned)


def _rows(table: Any, *index: int) -> list[Any]:
    """Return the entries of a mapping with keys 0, 1, ... or of a sequence."""
    if isinstance(table, Mapping) and set(table) == set(range(len(table))):
        table = [table[i] for i in range(len(table))]
    if not isinstance(table, (list, tuple)) or not table:
        raise ShapeError(
            "outcomes",
            got=f"{table!r:.100}",
            expected="entries for 0, 1, ..., as a mapping or a sequence",
            index=index or None,
        )
    return list(table)


class TableEntry(NamedTuple):
    """An outcome of a table."""

    pair: int
    probability: float
    next_state: int
    reward: float
    terminated: bool


def _table_entry(entry: Any, pair: int, states: int, index: tuple[int, ...]) -> TableEntry:
    """Read (probability, next_state, reward[, terminated]), found at ``index`` of a table."""
    try:
        probability, next_state, reward, *flag = entry
        terminated = bool(flag and flag[0])
        outcome = TableEntry(pair, float(probability), next_state, float(reward), terminated)
    except (TypeError, ValueError):
        raise ShapeError(
            "outcomes",
            got=repr(entry),
            expected="(probability, next_state, reward[, terminated])",
            index=index,
        ) from None
    require_integer("outcomes", next_state, 0, ShapeError, index, maximum=states - 1)
    return outcome


def read_table(table: Table, rewards: RewardMap) -> Listing:
    """Read a table of outcomes, as :class:`FiniteMDP` takes it.

    An outcome flagged ``terminated`` leads to a state where nothing more is earned. Where its own
    target is not of that kind (under every action it stays, with reward 0), a state S is added and
    led to.
    """
    rows = [_rows(row, s) for s, row in enumerate(_rows(table))]
    states = len(rows)
    actions = len(rows[0])
    entries = []
    for s, row in enumerate(rows):
        if len(row) != actions:
            raise ShapeError(
                "outcomes",
                got=f"{len(row)} actions",
                expected=f"{actions}, as in state 0",
                index=(s,),
            )
        for a, outcomes in enumerate(row):
            for i, entry in enumerate(_rows(outcomes, s, a)):
                entries.append(_table_entry(entry, s * actions + a, states, (s, a, i)))
    pair, probability, next_state, reward, terminated = map(np.array, zip(*entries, strict=True))
    # Gymnasium flags outcomes as terminal and says nothing of what their target would do.
    stirs = (probability > 0.0) & ((next_state != pair // actions) | (reward != 0.0))
    goes_on = np.zeros(states, bool)  # states in which something can still happen
    goes_on[(pair // actions)[stirs]] = True
    ends = terminated & goes_on[next_state]
    if ends.any():
        if not rewards.low <= 0.0 <= rewards.high:
            raise ParameterError(
                "reward_range", got=tuple(rewards), expected="a range with 0, earned after the end"
            )
        pair = np.append(pair, states * actions + np.arange(actions))
        next_state = np.append(np.where(ends, states, next_state), np.full(actions, states))
        probability = np.append(probability, np.ones(actions))
        reward = np.append(reward, np.zeros(actions))
        states += 1
    listing = Listing(
        states, actions, pair, next_state, probability[np.newaxis], reward, field="outcomes"
    )
    listing.validate(rewards)
    return listing.sort()


def as_distributions(field: str, given: Any, expected: object = "probabilities") -> Floats:
    """Return rows [..., n] of probabilities as an array; refuse rows that are not distributions."""
    rows = as_floats(field, given, expected)
    wrong = np.argwhere(~(np.isfinite(rows) & (rows >= 0.0)))
    if len(wrong):
        index = tuple(wrong[0].tolist())
        raise ProbabilityError(
            field, got=float(rows[index]), expected="a probability >= 0", index=index
        )
    total = rows.sum(axis=-1)
    wrong = np.argwhere(np.abs(total - 1.0) > TOLERANCE)
    if len(wrong):
        index = tuple(wrong[0].tolist())
        raise ProbabilityError(
            field,
            got=f"a sum of {total[index]:.12g}",
            expected="probabilities that sum to 1",
            index=index or None,
        )
    return rows


# The problem --------------------------------------------------------------------------------------


class Circumstances(TypedDict, total=False):
    """What models say beside a kernel and its rewards; see :class:`occamrl.protocols.Known`."""

    unit_name: str
    names: Names | None
    discount: float
    continuing: bool


class FiniteMDP:
    """A finite-horizon MDP with known kernel and rewards in [0, 1]. Immutable; input is copied.

    >>> import occamrl as orl
    >>> P = [[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.0, 1.0]]]  # P[s, a, s']
    >>> mdp = orl.FiniteMDP(transition=P, reward=[[0.1, 0.0], [1.0, 1.0]], horizon=3)
    >>> round(mdp.optimal_value, 6)
    1.275

    State it by ``transition`` and ``reward``, or by ``outcomes``.

    Parameters
    ----------
    transition
        P[s, a, s'] or, one per step, P[h, s, a, s']; or a scipy.sparse matrix of shape (S*A, S),
        row s*A + a, or a sequence of H such matrices. Sparse kernels stay sparse.
    reward
        r[s, a]; or, on transitions, r[s, a, s'], dense or sparse (S*A, S) with 0 for what is not
        stored.
    outcomes
        A table as Gymnasium's ``env.unwrapped.P``: ``outcomes[s][a]`` lists tuples (probability,
        next_state, reward) or (probability, next_state, reward, terminated). A flagged outcome
        leads to a state where every action stays and earns 0; one such state, the last, is added if
        the table's own target is not of that kind.
    reward_range
        (low, high) if the rewards are not in [0, 1]: each r, and the 0 earned after the end of an
        episode, becomes (r - low) / (high - low). CliffWalking needs (-100, 0).
    horizon
        H, the number of steps of an episode.
    initial_state
        A state, or a distribution over states [S].
    reward_noise
        ``"bernoulli"``: a reward is 1 with its mean as probability, else 0. Values and regret are
        those of the means.
    name
        What comparisons call it; "problem" by default.
    state_names, action_names
        What answers call states and actions, instead of their numbers.
    unit
        What rewards are counted in, such as EUR.
    discount
        Of the rewards of an episode, in (0, 1].
    continuing
        Whether the next episode begins where the last one ended.
    """

    states: int
    actions: int
    horizon: int
    outcomes: Outcomes  # those that can happen at some step
    probability: Floats  # [T, O], T = 1 or H
    base_reward: Floats  # [S*A] the least reward of each pair, which no outcome changes
    known: Known  # what an agent may know: sizes, rewards and where episodes start
    reward_noise: str | None
    name: str

    def __init__(
        self,
        *,
        transition: KernelLike | Sequence[SparseMatrix] | None = None,
        reward: ArrayLike | SparseMatrix | None = None,
        horizon: int,
        initial_state: int | ArrayLike = 0,
        outcomes: Table | None = None,
        reward_range: Sequence[float] | None = None,
        reward_noise: str | None = None,
        name: str = "",
        state_names: Sequence[Hashable] | None = None,
        action_names: Sequence[Hashable] | None = None,
        unit: str = "",
        discount: float = 1.0,
        continuing: bool = False,
    ) -> None:
        require_kind("name", name, str)
        require_kind("unit", unit, str)
        require_kind("continuing", continuing, bool)
        require_number("discount", discount, 0.0, 1.0, open_low=True)
        if reward_noise is not None:
            require_choice("reward_noise", reward_noise, ("bernoulli",))
        horizon = require_integer("horizon", horizon, 1)
        rewards = reward_map(reward_range)
        if outcomes is not None:
            if transition is not None or reward is not None:
                raise ParameterError(
                    "outcomes", got="transition or reward as well", expected="outcomes alone"
                )
            listing = read_table(outcomes, rewards)
            stated = len(outcomes)  # without an end that was added
        else:
            for field, value in (("transition", transition), ("reward", reward)):
                if value is None:
                    raise ParameterError(
                        field, got=None, expected="transition and reward, or outcomes"
                    )
            listing = read_arrays(transition, reward, horizon)
            listing.validate(rewards)
            stated = listing.states
        initial = np.zeros(listing.states)
        if as_array("initial_state", initial_state).ndim == 0:
            initial[require_integer("initial_state", initial_state, 0, maximum=stated - 1)] = 1.0
        else:
            initial[:stated] = as_distributions("initial_state", initial_state, (stated,))
        circumstances = Circumstances(unit_name=unit, discount=discount, continuing=continuing)
        if state_names is not None or action_names is not None:
            circumstances["names"] = _names_of(listing, stated, state_names, action_names)
        self._set(listing, horizon, initial, rewards, reward_noise, **circumstances)
        vars(self)["name"] = name

    @classmethod
    def of_listing(
        cls,
        listing: Listing,
        *,
        horizon: int,
        initial: Floats,
        unit: RewardMap,
        **circumstances: Unpack[Circumstances],
    ) -> FiniteMDP:
        """Return the problem of a sound listing; a pair without outcomes is not allowed."""
        mdp = cls.__new__(cls)
        mdp._set(listing.sort(), horizon, initial, unit, None, **circumstances)
        return mdp

    def _set(
        self,
        listing: Listing,
        horizon: int,
        initial: Floats,
        rewards: RewardMap,
        noise: str | None,
        **circumstances: Unpack[Circumstances],
    ) -> None:
        """Fill in what was read."""
        states = listing.states
        actions = listing.actions
        require_room("horizon", horizon + 1, states)
        # Pairs that a model does not list are not allowed, and need an outcome all the same.
        outcomes_of_pair = np.bincount(listing.pair, minlength=states * actions)
        absent = np.flatnonzero(outcomes_of_pair == 0)
        if absent.size:
            listing = _with_absent(listing, absent, rewards.low)
        start = np.searchsorted(listing.pair, np.arange(states * actions + 1)).astype(np.int64)
        earned = rewards.to_unit(listing.reward)
        # The least reward of a pair is its base, so that bonuses are at least 0.
        base = np.minimum.reduceat(earned, start[:-1])
        bonus = earned - base[listing.pair]
        by_outcome = bool(bonus.any())
        if not by_outcome:
            bonus = np.zeros(bonus.size)  # pages of zeros that nobody writes take no memory
        base[absent] = -np.inf
        every = Outcomes(read_only(start), read_only(listing.next_state), read_only(bonus))
        probability, possible = _that_can_happen(listing.probability, every)
        known = Known(
            states,
            actions,
            horizon,
            base_reward=read_only(base).reshape(states, actions),
            # rewards that no outcome changes count as r[s, a]
            transition_rewards=every if by_outcome else None,
            initial=read_only(initial),
            unit=rewards,
            random_rewards=noise is not None,
            **circumstances,
        )
        # Not by assignment, which is refused.
        vars(self).update(
            states=states,
            actions=actions,
            horizon=horizon,
            outcomes=possible,
            probability=read_only(probability),
            base_reward=known.base_reward.reshape(-1),
            known=known,
            reward_noise=noise,
            name="",
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"FiniteMDP cannot be changed (attribute {name!r})")

    def __getstate__(self) -> dict[str, Any]:
        # nothing that can be derived
        return {name: vars(self)[name] for name in FiniteMDP.__annotations__}

    def __repr__(self) -> str:
        kernels = "one kernel" if self.stationary else "a kernel per step"
        rewards = "r[s, a]" if self.known.transition_rewards is None else "rewards on transitions"
        if self.reward_noise:
            rewards += f" with {self.reward_noise} noise"
        sizes = f"states={self.states}, actions={self.actions}, horizon={self.horizon}"
        return f"FiniteMDP({sizes}, {kernels}, {self.outcomes.next_state.size} outcomes, {rewards})"

    @property
    def initial_distribution(self) -> Floats:
        """The law of the first state [S]."""
        return cast(Floats, self.known.initial)

    @property
    def stationary(self) -> bool:
        """Whether one kernel serves all steps."""
        return len(self.probability) == 1

    def law(self, h: int) -> Floats:
        """Return the probabilities of the outcomes [O] at a step, from 0."""
        return cast(Floats, self.probability[h % len(self.probability)])

    @cached_property
    def kernels(self) -> list[bellman.Kernel]:
        """The kernel, or one for each step, as dynamic programming needs it."""
        return [bellman.kernel_of(self.outcomes, row, self.known) for row in self.probability]

    @cached_property
    def _solved(self) -> tuple[Floats, Ints]:
        values, policy = bellman.solve(self.kernels, self.states, self.horizon)
        return read_only(values), read_only(policy)

    @property
    def optimal_values(self) -> Floats:
        """V* [H + 1, S], of rewards in [0, 1]."""
        return self._solved[0]

    @property
    def optimal_value(self) -> float:
        """The mean of V*_1 over first states, in the unit of the rewards as they were given."""
        return float(self.known.amount(self.initial_distribution @ self.optimal_values[0]))

    def value(self, policy: ArrayLike | Policy) -> float:
        """Return what a policy earns in an episode on average, exactly, in the unit of rewards."""
        return float(self.known.amount(self.initial_distribution @ self.evaluate(policy)[0]))

    @property
    def optimal_policy(self) -> Ints:
        """An optimal policy [H, S]; ties go to the smallest action."""
        return self._solved[1]

    def evaluate(self, policy: ArrayLike | Policy) -> Floats:
        """Return V^pi [H + 1, S] of rewards in [0, 1], exactly.

        A policy is actions [H, S], their probabilities [H, S, A], or the Policy of an answer.
        """
        chosen = policy.actions if isinstance(policy, Policy) else as_array("policy", policy)
        shape = (self.horizon, self.states)
        if chosen.shape == (*shape, self.actions):
            return bellman.evaluate(self.kernels, as_distributions("policy", chosen))
        if chosen.shape != shape or chosen.dtype.kind not in "iu":
            raise ShapeError(
                "policy",
                got=f"{chosen.dtype} {chosen.shape}",
                expected=f"integers {shape} or probabilities {(*shape, self.actions)}",
            )
        wrong = np.argwhere((chosen < 0) | (chosen >= self.actions))
        if len(wrong):
            index = tuple(wrong[0].tolist())
            raise ParameterError(
                "policy",
                got=int(chosen[index]),
                expected=f"an action in 0..{self.actions - 1}",
                index=index,
            )
        return bellman.evaluate(self.kernels, chosen)

    def kernel(self) -> Floats:
        """Return the dense kernel P[s, a, s'], or P[h, s, a, s'] if there is one per step."""
        sizes = (self.states, self.actions, self.states)
        cell = self.outcomes.pair * self.states + self.outcomes.next_state
        dense = np.array([np.bincount(cell, row, math.prod(sizes)) for row in self.probability])
        return dense.reshape(sizes if self.stationary else (-1, *sizes))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the problem's arrays: equal for equal problems, in any process."""
        known = self.known
        sizes = (self.states, self.actions, self.horizon)
        kind = (*sizes, self.reward_noise, known.discount, known.continuing)
        digest = hashlib.sha256(f"{kind} {tuple(known.unit)} {known.names}".encode())
        rest = (self.probability, self.base_reward, self.initial_distribution)
        for array in (*self.outcomes, *rest):
            digest.update(np.ascontiguousarray(array).reshape(-1).data)
        return digest.hexdigest()


def _names_of(
    listing: Listing,
    stated: int,
    states: Sequence[Hashable] | None,
    actions: Sequence[Hashable] | None,
) -> Names:
    """Return the names of states and actions, by default numbers; an added end is "end"."""
    named = []
    for field, names, size in (
        ("state_names", states, stated),
        ("action_names", actions, listing.actions),
    ):
        names = range(size) if names is None else names
        if isinstance(names, str) or len(names) != size or len(set(names)) < size:
            expected = f"{size} different names"
            raise ParameterError(field, got=f"{names!r:.80}", expected=expected)
        named.append(tuple(names))
    ends = ("end",) * (listing.states - stated)
    if ends and "end" in named[0]:
        raise ParameterError("state_names", got="'end'", expected="another name: it is taken")
    absorbing = (False,) * stated + (True,) * len(ends)
    return Names((*named[0], *ends), named[1], absorbing if ends else ())


def _with_absent(listing: Listing, absent: Ints, low: float) -> Listing:
    """Add an outcome to pairs that nobody may choose: they stay where they are."""
    sure = np.ones((len(listing.probability), absent.size))
    return listing._replace(
        pair=np.append(listing.pair, absent),
        next_state=np.append(listing.next_state, absent // listing.actions),
        probability=np.append(listing.probability, sure, axis=1),
        reward=np.append(listing.reward, np.full(absent.size, low)),
    ).sort()


def _that_can_happen(probability: Floats, outcomes: Outcomes) -> tuple[Floats, Outcomes]:
    """Return the outcomes that are possible at some step, with their probabilities [T, O]."""
    happens = probability.any(axis=0)
    if happens.all():
        return probability, outcomes
    before = np.append(0, np.cumsum(happens))  # how many there are before each outcome
    start = read_only(before[outcomes.start])
    next_state = read_only(outcomes.next_state[happens])
    bonus = read_only(outcomes.bonus[happens])
    return probability[:, happens], Outcomes(start, next_state, bonus)


def as_mdp(problem: object) -> FiniteMDP:
    """Return a FiniteMDP, or the one that a problem has."""
    if isinstance(problem, FiniteMDP):
        return problem
    if isinstance(problem, Problem) and isinstance(problem.mdp, FiniteMDP):
        return problem.mdp
    expected = "a FiniteMDP, or a problem that has one"
    if isinstance(problem, (Learner, Controller)):
        expected += "; the agent comes first"
    elif hasattr(problem, "reset"):
        expected += "; for a Gymnasium environment, call occamrl.learn(agent, env, episodes=...)"
    raise ParameterError("mdp", got=type(problem).__name__, expected=expected)


class NoisyProblem:
    """A problem with Bernoulli rewards (see :class:`FiniteMDP`); the rest is the problem's own."""

    def __init__(self, problem: Any, reward_noise: str) -> None:
        require_choice("reward_noise", reward_noise, ("bernoulli",))
        self.problem = problem
        self.reward_noise = reward_noise
        self.mdp = copy.copy(as_mdp(problem))
        vars(self.mdp)["reward_noise"] = reward_noise

    def __getattr__(self, name: str) -> Any:
        # A copy in the making has no attributes yet, and would ask for this one for ever.
        if name.startswith("__") or "problem" not in vars(self):
            raise AttributeError(name)
        return getattr(self.problem, name)

    def __repr__(self) -> str:
        return f"NoisyProblem({self.problem!r}, reward_noise={self.reward_noise!r})"
