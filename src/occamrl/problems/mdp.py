"""A finite episodic MDP that is known exactly: validated, solved and evaluated without sampling.

There are S states, A actions and H steps; values lie in [0, H - h + 1], and V_{H+1} = 0. Arrays count steps from 0, so
``optimal_values[0]`` is V*_1 and ``optimal_values[H]`` is V*_{H+1}.

**How input is read.** A dense kernel, a sparse one and a Gymnasium table all become a :class:`Listing`: outcomes with
their probabilities and rewards. Validation, the map of rewards onto [0, 1] and the outcome layout of
:mod:`occamrl.protocols` are then written once. Sparse input is never made dense.

**Reward noise.** Rewards may scatter around their means, for agents that have to estimate them. Exact values and regret
are those of the means; only what an agent sees, and the realised returns, are random.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from occamrl import bellman
from occamrl.errors import (
    HorizonError,
    ParameterError,
    ProbabilityError,
    RewardError,
    ShapeError,
    as_array,
    as_floats,
    as_integers,
    require_choice,
    require_integer,
    require_memory,
    require_range,
    sum_to_one,
)
from occamrl.protocols import Floats, Ints, Known, Outcomes

TOLERANCE = 1e-9  # how far a row of probabilities may be from summing to one
LARGEST_DENSE = 2**28  # entries of a kernel that will be written out: 2 GiB
_ROWS = 2**14  # (s, a) that several sparse matrices are joined at once

Array = TypeVar("Array", bound=NDArray[np.generic])
Reward = TypeVar("Reward", float, Floats)
SparseMatrix = sp.sparray | sp.spmatrix
Table = Mapping[int, Any] | Sequence[Any]  # table[s][a] = [(probability, next_state, reward[, terminated]), ...]
Small = Sequence[Mapping[str, Any]]  # parameters of small instances of a problem


class RewardMap(NamedTuple):
    """The affine map (r - low) / (high - low) of rewards in a unit of their own (money, minutes) onto [0, 1].

    >>> euro = RewardMap(low=-50.0, high=150.0)
    >>> euro.to_unit(50.0), 0.25 * euro.scale, euro.total(6.0, steps=10)
    (0.5, 50.0, 700.0)
    """

    low: float = 0.0
    high: float = 1.0

    @property
    def scale(self) -> float:
        """What a difference of 1 in the learner's unit is in the environment's own: regret times this is an amount."""
        return self.high - self.low

    def to_unit(self, reward: Reward) -> Reward:
        """Return a reward as the learner sees it."""
        return (reward - self.low) / (self.high - self.low)

    def total(self, mapped: float, steps: int) -> float:
        """Return the sum of the rewards of ``steps`` steps in the environment's unit from that in the learner's."""
        return mapped * self.scale + steps * self.low


def reward_map(reward_range: Sequence[float] | None) -> RewardMap:
    """Return the map of a stated range (low, high); by default rewards are in [0, 1] as they are."""
    return RewardMap() if reward_range is None else RewardMap(*require_range("reward_range", reward_range))


def read_only(array: Array) -> Array:
    """Return a view of ``array``, contiguous, that cannot be written to."""
    contiguous = cast(Array, np.ascontiguousarray(array)[...])
    contiguous.flags.writeable = False
    return contiguous


class Listing(NamedTuple):
    """The N outcomes that the statement of a problem mentions, sorted by pair s*A + a, next state and reward.

    An outcome of probability zero is one whose reward is known although it never happens.
    """

    states: int
    actions: int
    start: Ints  # [S*A + 1] where the outcomes of a pair begin
    next_state: Ints  # [N]
    probability: Floats  # [T, N]
    reward: Floats  # [N]; or [S*A] where rewards are those of pairs
    of_pairs: bool
    listed: int  # states before one was added for the end of episodes
    fields: tuple[str, str]  # the arguments that hold the probabilities and the rewards

    @property
    def pair(self) -> Ints:
        """The pair of each outcome [N]."""
        return np.repeat(np.arange(self.start.size - 1), np.diff(self.start))

    def put(self, pair: Ints, next_state: Ints, probability: Floats, reward: Floats) -> Listing:
        """Return a listing of other outcomes, which may come in any order."""
        order = np.lexsort((next_state, pair) if self.of_pairs else (reward, next_state, pair))
        start = np.searchsorted(pair[order], np.arange(self.states * self.actions + 1)).astype(np.int64)
        reward = reward if self.of_pairs else reward[order]
        return self._replace(
            start=start, next_state=next_state[order], probability=probability[:, order], reward=reward
        )

    def absorb(self, absorbing: Ints) -> Listing:
        """Make states absorbing: under every action they stay where they are, with reward 0."""
        pair, rests = self.pair, np.repeat(np.isin(np.arange(self.states), absorbing), self.actions)
        stay = np.flatnonzero(rests)
        probability = np.where(rests[pair], 0.0, self.probability)
        reward = np.where(rests if self.of_pairs else rests[pair], 0.0, self.reward)
        return self.put(
            np.append(pair, stay),
            np.append(self.next_state, stay // self.actions),
            np.append(probability, np.ones((len(probability), stay.size)), axis=1),
            reward if self.of_pairs else np.append(reward, np.zeros(stay.size)),
        )

    def merge(self) -> Listing:
        """Add up the probabilities of outcomes that have the same pair, next state and reward."""
        new = np.ones(self.next_state.size, bool)
        new[1:] = np.diff(self.next_state) != 0
        if not self.of_pairs:
            new[1:] |= np.diff(self.reward) != 0.0
        new[self.start[:-1]] = True  # no pair is without an outcome
        first = np.flatnonzero(new)
        return self._replace(
            start=np.append(0, np.cumsum(new))[self.start],
            next_state=self.next_state[first],
            probability=np.add.reduceat(self.probability, first, axis=1),
            reward=self.reward if self.of_pairs else self.reward[first],
        )

    def validate(self, rewards: RewardMap) -> None:
        """Refuse probabilities that are negative, not finite or do not sum to one, and rewards outside their range."""

        def where(outcome: int) -> tuple[int, ...]:
            pair = int(np.searchsorted(self.start, outcome, side="right")) - 1
            return (*divmod(pair, self.actions), int(self.next_state[outcome]))

        some = np.flatnonzero(np.diff(self.start))
        for t, row in enumerate(self.probability):
            step = () if len(self.probability) == 1 else (t,)
            for o in np.flatnonzero(~((row >= 0.0) & (row < math.inf)))[:1]:
                index, expected = (*step, *where(o)), "a finite number >= 0"
                raise ProbabilityError(self.fields[0], got=float(row[o]), expected=expected, index=index)
            total = np.zeros(self.start.size - 1)
            total[some] = np.add.reduceat(row, self.start[some])
            for sa in np.flatnonzero(np.abs(total - 1.0) > TOLERANCE)[:1]:
                got, index = f"a row that sums to {total[sa]:.12g}", (*step, *divmod(int(sa), self.actions))
                raise ProbabilityError(self.fields[0], got=got, expected=sum_to_one(total[sa]), index=index)
        for o in np.flatnonzero(~((self.reward >= rewards.low) & (self.reward <= rewards.high)))[:1]:  # NaN is bad too
            earned, index = float(self.reward[o]), divmod(int(o), self.actions) if self.of_pairs else where(o)
            expected = f"a reward in [{rewards.low:g}, {rewards.high:g}]"
            expected += "; reward_range=(low, high) maps others onto [0, 1]" * math.isfinite(earned)
            raise RewardError(self.fields[1], got=earned, expected=expected, index=index)


def _is_sparse(value: object) -> bool:
    return bool(sp.issparse(value))  # a plain bool: its type guard knows no shapes


def sound_sparse(field: str, matrix: Any, *, keep_zeros: bool = False) -> Any:
    """Return a copy by rows, whose indices are in range (SciPy's compiled code trusts them), sorted, and each once."""
    try:
        if matrix.format in ("csr", "csc"):  # a look at all indices may cut the arrays of the matrix looked at
            kind = sp.csr_array if matrix.format == "csr" else sp.csc_array
            matrix = kind((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
            matrix.check_format(full_check=True)
        csr: Any = sp.csr_array(matrix, copy=True)
    except (TypeError, ValueError) as error:
        raise ShapeError(field, got=f"a sparse matrix: {error}", expected="indices in range") from error
    if csr.dtype.kind not in "biuf" or csr.dtype == np.float16:  # with which SciPy does not compute
        raise ShapeError(field, got=f"dtype {csr.dtype}", expected="a sparse matrix of real numbers, as float64")
    csr.sum_duplicates()
    if not keep_zeros:
        csr.eliminate_zeros()
    return csr


def _join(matrices: Sequence[Any]) -> tuple[Ints, Ints, Floats]:
    """Return the entries that any of some sparse matrices (S*A, S) has: starts [S*A + 1], s' [N], all values [n, N]."""
    if len(matrices) == 1:  # without another copy: it may be large
        start, after = (part.astype(np.int64, copy=False) for part in (matrices[0].indptr, matrices[0].indices))
        return start, after, matrices[0].data.astype(np.float64, copy=False)[np.newaxis]
    pairs, states = matrices[0].shape
    counts, after, values = [np.zeros(1, np.int64)], [], []
    for first in range(0, pairs, _ROWS):  # a few rows at a time, so that no array of all entries is sorted
        parts = [matrix[first : first + _ROWS].tocoo() for matrix in matrices]
        cells = [part.row.astype(np.int64) * states + part.col for part in parts]
        union = np.unique(np.concatenate(cells))
        value = np.zeros((len(matrices), union.size))
        for row, own, part in zip(value, cells, parts, strict=True):
            row[np.searchsorted(union, own)] = part.data
        counts.append(np.bincount(union // states, minlength=parts[0].shape[0]))
        after.append(union % states)
        values.append(value)
    return np.cumsum(np.concatenate(counts)), np.concatenate(after), np.concatenate(values, axis=1)


def _matrices(transition: Any, horizon: int) -> list[Any]:
    """Return P[s, a, s'], P[h, s, a, s'], a sparse matrix (S*A, S) or a sequence of H of these as sparse matrices."""
    if _is_sparse(transition):
        matrices = [transition]
    elif isinstance(transition, Sequence) and any(_is_sparse(matrix) for matrix in transition):
        matrices = list(transition)
    else:
        dense = as_floats("transition", transition)
        if dense.ndim == 3:
            dense = dense[np.newaxis]
        elif dense.ndim != 4 or dense.shape[0] != horizon:
            expected = f"[S, A, S] or [H, S, A, S] with H = {horizon}"
            raise ShapeError("transition", got=f"shape {dense.shape}", expected=expected)
        if dense.shape[1] != dense.shape[3] or 0 in dense.shape:
            hint = "; of P[a, s, s'], give np.moveaxis(P, 0, 1)" if dense.shape[2] == dense.shape[3] else ""
            raise ShapeError("transition", got=f"shape {dense.shape[-3:]}", expected="[S, A, S] with S, A >= 1" + hint)
        return [sp.csr_array(kernel.reshape(-1, dense.shape[3])) for kernel in dense]
    if len(matrices) not in (1, horizon):
        raise ShapeError("transition", got=f"{len(matrices)} sparse matrices", expected=f"one, or H = {horizon}")
    shape = next(matrix.shape for matrix in matrices if _is_sparse(matrix))
    for matrix in matrices:
        if getattr(matrix, "shape", None) != shape or not _is_sparse(matrix):
            got = f"{type(matrix).__name__} {getattr(matrix, 'shape', '')} among them"
            raise ShapeError("transition", got=got, expected=f"sparse matrices {shape} only")
    if len(shape) != 2 or 0 in shape or shape[0] % shape[1]:
        raise ShapeError("transition", got=f"a sparse matrix of shape {shape}", expected="(S*A, S), row s*A + a")
    return matrices


def read_arrays(transition: Any, reward: Any, horizon: int) -> Listing:
    """Put rewards r[s, a], r[s, a, s'] or a sparse matrix (S*A, S) beside a kernel.

    The listing holds what the reward table defines: the whole of a dense r[s, a, s'], the stored entries of a sparse
    one together with all that the kernel can do (unstored entries are 0), and the latter alone for r[s, a].
    """
    matrices = [sound_sparse("transition", matrix) for matrix in _matrices(transition, horizon)]
    pairs, states = (int(size) for size in matrices[0].shape)
    actions, of_pairs = pairs // states, False
    if _is_sparse(reward):
        if tuple(reward.shape) != (pairs, states):
            expected = f"(S*A, S) = {(pairs, states)}"
            raise ShapeError("reward", got=f"a sparse matrix of shape {tuple(reward.shape)}", expected=expected)
        start, after, values = _join([*matrices, sound_sparse("reward", reward, keep_zeros=True)])
        probability, rewards = values[:-1], values[-1]
    else:
        dense = as_floats("reward", reward)
        rewards, of_pairs = dense.ravel(), dense.shape == (states, actions)
        if of_pairs:
            start, after, probability = _join(matrices)
        elif dense.shape == (states, actions, states):
            start, after = np.arange(0, dense.size + 1, states), np.tile(np.arange(states), pairs)
            probability = np.stack([matrix.toarray().ravel() for matrix in matrices]).astype(np.float64)
        else:
            expected = f"[S, A] = {(states, actions)} or [S, A, S] = {(states, actions, states)}"
            expected += "; of r[a, s], give r.T" * (dense.shape == (actions, states))
            raise ShapeError("reward", got=f"shape {dense.shape}", expected=expected)
    return Listing(states, actions, start, after, probability, rewards, of_pairs, states, ("transition", "reward"))


def _rows(table: Any, index: tuple[int, ...]) -> list[Any]:
    """Return the entries of a mapping with keys 0, 1, ... or of a sequence."""
    what, at = "entries for 0, 1, ..., as a mapping or a sequence", index or None
    if isinstance(table, Mapping):
        if set(table) != set(range(len(table))):
            raise ShapeError("outcomes", got=f"keys {sorted(map(str, table))[:5]}", expected=what, index=at)
        table = [table[key] for key in range(len(table))]
    if not isinstance(table, Sequence) or isinstance(table, str) or not table:
        raise ShapeError("outcomes", got=f"a {type(table).__name__}", expected=what, index=at)
    return list(table)


def _entry(entry: Any, index: tuple[int, ...], states: int) -> tuple[float, int, float, bool]:
    """Return the probability, the next state, the reward and the flag of one outcome of a table."""
    try:
        probability, after, reward, *flag = entry
        numbers, ended = (float(probability), float(reward)), bool(flag and flag[0])
    except (TypeError, ValueError, OverflowError):
        expected = "(probability, next_state, reward[, terminated])"
        raise ShapeError("outcomes", got=repr(entry), expected=expected, index=index) from None
    return numbers[0], require_integer("outcomes", after, 0, ShapeError, index, most=states - 1), numbers[1], ended


def read_table(table: Table, rewards: RewardMap) -> Listing:
    """Read a table of outcomes, as :class:`FiniteMDP` takes it.

    An outcome flagged ``terminated`` leads to a state where nothing more is earned. Where its own target is not of that
    kind (under every action it stays, with reward 0), a state S is added and led to. Every policy earns H steps' worth
    of rewards, so mapping them onto [0, 1] keeps the order of policies and divides regret by high - low.
    """
    rows = [_rows(row, (s,)) for s, row in enumerate(_rows(table, ()))]
    states, actions = len(rows), len(rows[0])
    for s, row in enumerate(rows):
        if len(row) != actions:
            raise ShapeError("outcomes", got=f"{len(row)} actions", expected=f"{actions}, as in state 0", index=(s,))
    entries = [
        (s * actions + a, *_entry(entry, (s, a, i), states))
        for s, row in enumerate(rows)
        for a, outcomes in enumerate(row)
        for i, entry in enumerate(_rows(outcomes, (s, a)))
    ]
    pair, probability, after, reward, terminated = (np.array(column) for column in zip(*entries, strict=True))
    goes_on = np.zeros(states, bool)  # states in which something can still happen
    goes_on[(pair // actions)[(probability > 0.0) & ((after != pair // actions) | (reward != 0.0))]] = True
    ends, size = terminated & goes_on[after], states
    if ends.any():
        if not rewards.low <= 0.0 <= rewards.high:
            raise ParameterError("reward_range", got=tuple(rewards), expected="0 in it, earned after the end")
        size = states + 1
        pair = np.append(pair, states * actions + np.arange(actions))
        after = np.append(np.where(ends, states, after), np.full(actions, states))
        probability, reward = np.append(probability, np.ones(actions)), np.append(reward, np.zeros(actions))
    empty = Listing(size, actions, pair, after, probability, reward, False, states, ("outcomes", "outcomes"))
    return empty.put(pair, after, probability[np.newaxis], reward)


def require_distributions(field: str, rows: Floats) -> None:
    """Refuse rows [..., n] that are not distributions."""
    for at in map(tuple, np.argwhere(~(np.isfinite(rows) & (rows >= 0.0)))[:1].tolist()):
        raise ProbabilityError(field, got=float(rows[at]), expected="a probability >= 0", index=at)
    total = rows.sum(axis=-1)
    for at in map(tuple, np.argwhere(np.abs(total - 1.0) > TOLERANCE)[:1].tolist()):
        got = f"a sum of {total[at]:.12g}"
        raise ProbabilityError(field, got=got, expected="probabilities that sum to 1", index=at or None)


def as_policy(policy: Any, horizon: int, states: int, actions: int) -> NDArray[Any]:
    """Return actions [H, S] or probabilities of actions [H, S, A] as an array, or refuse what is neither."""
    raw = as_array("policy", policy)
    if raw.shape == (horizon, states) and raw.dtype.kind in "iu":
        for h, s in np.argwhere((raw < 0) | (raw >= actions))[:1].tolist():
            raise ParameterError("policy", got=int(raw[h, s]), expected=f"an action in 0..{actions - 1}", index=(h, s))
        return raw
    if raw.shape != (horizon, states, actions):
        got = f"shape {raw.shape} of dtype {raw.dtype}"
        expected = f"integers {(horizon, states)} or probabilities {(horizon, states, actions)}"
        raise ShapeError("policy", got=got, expected=expected)
    mixed = as_floats("policy", raw)
    require_distributions("policy", mixed)
    return mixed


_KEPT = ("states", "actions", "horizon", "outcomes", "probability", "base_reward", "known", "reward_noise")


class FiniteMDP:
    """A finite-horizon MDP with known kernel and rewards in [0, 1]. Immutable; input arrays are copied.

    >>> import occamrl as orl
    >>> P = [[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.0, 1.0]]]  # P[s, a, s']
    >>> mdp = orl.FiniteMDP(transition=P, reward=[[0.1, 0.0], [1.0, 1.0]], horizon=3)
    >>> round(mdp.optimal_value, 6)
    1.275

    State it by ``transition`` and ``reward``, or by ``outcomes``.

    Parameters
    ----------
    transition
        P[s, a, s'] or, one per step, P[h, s, a, s']; or a scipy.sparse matrix of shape (S*A, S), row s*A + a, or a
        sequence of H such matrices. Sparse kernels stay sparse.
    reward
        r[s, a]; or, on transitions, r[s, a, s'], dense or as a scipy.sparse matrix (S*A, S) whose unstored entries
        are 0.
    outcomes
        A table as Gymnasium's ``env.unwrapped.P``: ``outcomes[s][a]`` lists tuples (probability, next_state, reward)
        or (probability, next_state, reward, terminated). A flagged outcome leads to a state where every action stays
        and earns 0; one such state, the last, is added if the table's own target is not of that kind.
    reward_range
        (low, high) if the rewards are not in [0, 1]: each r, and the 0 earned after the end of an episode, becomes
        (r - low) / (high - low). CliffWalking needs (-100, 0).
    horizon
        H, the number of steps of an episode.
    initial_state
        A state, or a distribution over states [S].
    absorbing
        States to be made absorbing: under every action they stay, with reward 0, whatever the arrays say there.
    reward_noise
        ``"bernoulli"``: a reward is 1 with its mean as probability, else 0. Values and regret are those of the means,
        and an agent that knows the rewards knows the means.
    """

    states: int
    actions: int
    horizon: int
    outcomes: Outcomes  # those that can happen at some step
    probability: Floats  # [T, O], T = 1 or H
    base_reward: Floats  # [S*A] the part of the reward of each pair that no outcome changes: the least one
    known: Known  # what an agent may know: sizes, rewards and where episodes start
    reward_noise: str | None

    def __init__(
        self,
        *,
        transition: ArrayLike | SparseMatrix | Sequence[SparseMatrix] | None = None,
        reward: ArrayLike | SparseMatrix | None = None,
        horizon: int,
        initial_state: int | ArrayLike = 0,
        absorbing: Sequence[int] | Ints = (),
        outcomes: Table | None = None,
        reward_range: Sequence[float] | None = None,
        reward_noise: str | None = None,
    ) -> None:
        if reward_noise is not None:
            require_choice("reward_noise", reward_noise, ("bernoulli",))
        horizon, rewards = require_integer("horizon", horizon, 1, HorizonError), reward_map(reward_range)
        if outcomes is not None:
            if transition is not None or reward is not None:
                raise ParameterError("outcomes", got="transition or reward as well", expected="outcomes alone")
            listing = read_table(outcomes, rewards)
        else:
            if transition is None or reward is None:
                name = "transition" if transition is None else "reward"
                raise ParameterError(name, got=None, expected="transition and reward, or outcomes")
            listing = read_arrays(transition, reward, horizon)
        states, actions, listed = listing.states, listing.actions, listing.listed
        require_memory("horizon", horizon, horizon, states)
        ends = as_integers("absorbing", absorbing).ravel()
        for s in ends[(ends < 0) | (ends >= listed)].tolist():
            raise ParameterError("absorbing", got=s, expected=f"states in 0..{listed - 1}")
        if ends.size:
            listing = listing.absorb(ends)
        listing.validate(rewards)
        if ends.size or outcomes is not None:
            listing = listing.merge()

        initial = np.zeros(states)
        if as_array("initial_state", initial_state).ndim == 0:
            initial[require_integer("initial_state", initial_state, 0, most=listed - 1)] = 1.0
        else:
            initial[:listed] = as_floats("initial_state", initial_state, (listed,))
            require_distributions("initial_state", initial[:listed])

        start, next_state, probability = listing.start, listing.next_state, listing.probability
        base, bonus = rewards.to_unit(listing.reward), np.zeros(next_state.size)  # zeros take no memory
        if not listing.of_pairs:
            earned, base = base, np.minimum.reduceat(base, start[:-1])
            bonus = earned - base[listing.pair]
        every = Outcomes(read_only(start), read_only(next_state), read_only(bonus))
        possible, happens = every, probability.any(axis=0)
        if not happens.all():
            start = np.append(0, np.cumsum(happens))[start]
            possible = Outcomes(read_only(start), read_only(next_state[happens]), read_only(bonus[happens]))
            probability = probability[:, happens]
        base = read_only(base)
        known = Known(
            states,
            actions,
            horizon,
            base.reshape(states, actions),
            transition_rewards=every if bonus.any() else None,  # rewards that no outcome changes count as r[s, a]
            initial=read_only(initial),
        )
        kept = (states, actions, horizon, possible, read_only(probability), base, known, reward_noise)
        vars(self).update(zip(_KEPT, kept, strict=True))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"FiniteMDP cannot be changed (attribute {name!r})")

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _KEPT}  # nothing that can be derived

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def __repr__(self) -> str:
        kernels = "one kernel" if self.stationary else "a kernel per step"
        rewards = "r[s, a]" if self.known.transition_rewards is None else "on transitions"
        noise = "" if self.reward_noise is None else f" with {self.reward_noise} noise"
        return (
            f"FiniteMDP(states={self.states}, actions={self.actions}, horizon={self.horizon}, {kernels} with "
            f"{self.outcomes.next_state.size} outcomes, rewards {rewards}{noise})"
        )

    def with_reward_noise(self, reward_noise: str | None) -> FiniteMDP:
        """Return the same problem with rewards that scatter around their means; without noise for None."""
        if reward_noise is not None:
            require_choice("reward_noise", reward_noise, ("bernoulli",))
        mdp = FiniteMDP.__new__(FiniteMDP)
        mdp.__setstate__(self.__getstate__() | {"reward_noise": reward_noise})
        return mdp

    @property
    def initial_distribution(self) -> Floats:
        """The law of the first state [S]."""
        return cast(Floats, self.known.initial)

    @property
    def stationary(self) -> bool:
        """Whether one kernel serves all steps."""
        return len(self.probability) == 1

    @cached_property
    def kernels(self) -> list[bellman.Kernel]:
        """The kernel, or one for each step, as dynamic programming needs it."""
        return [bellman.kernel_of(self.outcomes, row, self.base_reward, self.states) for row in self.probability]

    @cached_property
    def _solved(self) -> tuple[Floats, Ints]:
        values, policy = bellman.solve(self.kernels, self.states, self.horizon)
        return read_only(values), read_only(policy)

    @property
    def optimal_values(self) -> Floats:
        """V* [H + 1, S]."""
        return self._solved[0]

    @property
    def optimal_value(self) -> float:
        """The expectation of V*_1 under the initial distribution."""
        return float(self.initial_distribution @ self.optimal_values[0])

    @property
    def optimal_policy(self) -> Ints:
        """An optimal policy [H, S]; ties go to the smallest action."""
        return self._solved[1]

    def evaluate(self, policy: ArrayLike) -> Floats:
        """Return V^pi [H + 1, S], exactly, of actions [H, S] (integers) or of probabilities of actions [H, S, A]."""
        return bellman.evaluate(self.kernels, as_policy(policy, self.horizon, self.states, self.actions))

    def kernel(self) -> Floats:
        """Return the dense kernel P[s, a, s'], or P[h, s, a, s'] if there is one per step; for small problems."""
        sizes = (self.states, self.actions, self.states)
        if len(self.probability) * math.prod(sizes) > LARGEST_DENSE:
            raise ParameterError("states", got=self.states, expected="a problem small enough for a dense kernel")
        cell = self.outcomes.pair * self.states + self.outcomes.next_state
        dense = np.array([np.bincount(cell, row, math.prod(sizes)) for row in self.probability], dtype=np.float64)
        return dense.reshape(sizes if self.stationary else (-1, *sizes))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the problem's arrays: equal for equal problems, in any process."""
        digest = hashlib.sha256(f"{self.states} {self.actions} {self.horizon} {self.reward_noise}".encode())
        for array in (*self.outcomes, self.probability, self.base_reward, self.initial_distribution):
            digest.update(np.ascontiguousarray(array).reshape(-1).data)
        return digest.hexdigest()


def as_mdp(problem: object) -> FiniteMDP:
    """Return a FiniteMDP, or that of a problem which has one."""
    found = problem if isinstance(problem, FiniteMDP) else getattr(problem, "mdp", None)
    if not isinstance(found, FiniteMDP):
        expected = "a FiniteMDP, or a problem that has one"
        if hasattr(problem, "step") and hasattr(problem, "reset"):
            expected += "; for a Gymnasium environment, call occamrl.learn(agent, env, episodes=...)"
        elif hasattr(problem, "begin"):
            expected += "; the agent comes first"
        raise ParameterError("mdp", got=type(problem).__name__, expected=expected)
    return found


def stream(seed: int, *path: int | str) -> np.random.Generator:
    """Return the generator at the address ``seed / path[0] / ...``: the same in any process and any order of calls."""
    texts = [f"{'str' if isinstance(step, str) else 'int'}:{step}".encode() for step in path]
    words = [int.from_bytes(hashlib.sha256(text).digest()[:8], "little") for text in texts]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int(seed), spawn_key=words)))


class HasExamples:
    """A problem whose small instances are listed by their parameters."""

    small: ClassVar[Small]

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small instances, for the contract checks."""
        return [cls(**parameters) for parameters in cls.small]


class NoisyProblem:
    """A problem with Bernoulli rewards (see :class:`FiniteMDP`); whatever else is asked of it is the problem's own."""

    def __init__(self, problem: Any, reward_noise: str) -> None:
        self.problem, self.reward_noise = problem, reward_noise
        self.mdp = as_mdp(problem).with_reward_noise(reward_noise)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "problem" not in vars(self):  # a copy in the making has nothing yet
            raise AttributeError(name)
        return getattr(self.problem, name)

    def __repr__(self) -> str:
        return f"NoisyProblem({self.problem!r}, reward_noise={self.reward_noise!r})"
