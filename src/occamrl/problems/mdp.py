"""A finite episodic MDP that is known exactly: validated, solved and evaluated without sampling.

Notation (M20 and section "Setting"): S states, A actions, H steps; values lie in [0, H - h + 1] and V_{H+1} = 0. Arrays
count steps from 0, so ``optimal_values[0]`` is V*_1 and ``optimal_values[H]`` is V*_{H+1}.

**How input is read.** A dense kernel, a sparse one and a Gymnasium table all become a :class:`Listing`: outcomes with
their probabilities and rewards. Validation, the map of rewards onto [0, 1] and the outcome layout of
:mod:`occamrl.protocols` are then written once (M20). Sparse input is never made dense, and is read a few rows at a
time: an entry (s, a, s') is known by its *cell* (s*A + a)*S + s', and matching sparse patterns is a search in sorted
cells.

**Reward noise.** Rewards may scatter around their means, for agents that have to estimate them. Exact values and regret
are those of the means; only what an agent sees, and the realised returns, are random. Every reward stays in [0, 1].
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv

from occamrl._core import bellman
from occamrl._core.compile import OneThread, may_use_threads, threads_for
from occamrl._core.rng import COINS, VALUES
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
    require_number,
    require_range,
    sum_to_one,
)
from occamrl.protocols import Floats, Ints, Known, Noise, Outcomes, Truth

TOLERANCE = 1e-9  # how far a row of probabilities may be from summing to one

LARGEST_DENSE = 2**28  # entries of a kernel that will be written out: 2 GiB
_TOGETHER = 2**20  # outcomes whose running sums are made at once
_ROWS = 2**14  # (s, a) that are read at once
_LEAST_MEAN = 1e-200  # of a Beta distribution whose quantiles are numbers
_ATOMS = 64  # values of a Beta reward
_CONCENTRATIONS = (1e-2, 1e6)

Array = TypeVar("Array", bound=NDArray[np.generic])
Reward = TypeVar("Reward", float, Floats)
SparseMatrix = sp.sparray | sp.spmatrix
Table = Mapping[int, Any] | Sequence[Any]  # table[s][a] = [(probability, next_state, reward[, terminated]), ...]


class RewardMap(NamedTuple):
    """The affine map (r - low) / (high - low) of rewards in a unit of their own (money, minutes) onto [0, 1].

    Examples
    --------
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


class Listing(NamedTuple):
    """The N outcomes that the statement of a problem mentions, sorted by pair s*A + a, next state and reward.

    An outcome of probability zero is one whose reward is known although it never happens.
    """

    start: Ints  # [S*A + 1] where the outcomes of a pair begin
    next_state: Ints  # [N]
    probability: Floats  # [T, N]
    reward: Floats  # [N]; or [S*A], where rewards are those of pairs

    @property
    def of_pairs(self) -> bool:
        """Whether rewards are those of pairs; where every pair has one outcome, it is the same."""
        return self.reward.size == self.start.size - 1

    @property
    def pair(self) -> Ints:
        """The pair of each outcome [N]."""
        return np.repeat(np.arange(self.start.size - 1), np.diff(self.start))


class Statement(NamedTuple):
    """What the user's arrays or table say; ``listed`` counts the states before one was added for an episode's end."""

    states: int
    actions: int
    listed: int
    listing: Listing
    fields: tuple[str, str] = ("outcomes", "outcomes")  # the arguments that hold the probabilities and the rewards
    reward_of_pair: bool = False  # whether rewards are indexed by (s, a) rather than (s, a, s')


def read_only(array: Array) -> Array:
    """Return a view of ``array``, contiguous, that cannot be written to."""
    contiguous = cast(Array, np.ascontiguousarray(array)[...])
    contiguous.flags.writeable = False
    return contiguous


def fixed(outcomes: Outcomes) -> Outcomes:
    """Return outcomes that cannot be changed."""
    start, next_state, bonus = outcomes
    return Outcomes(read_only(start), read_only(next_state), read_only(bonus))


def starts(pair: Ints, pairs: int) -> Ints:
    """Return where the outcomes of each pair begin in a sorted list, and where the last ends."""
    return np.searchsorted(pair, np.arange(pairs + 1)).astype(np.int64)


def in_order(pair: Ints, next_state: Ints, probability: Floats, reward: Floats, pairs: int) -> Listing:
    """Return outcomes as a listing."""
    order = np.lexsort((reward, next_state, pair))
    return Listing(starts(pair[order], pairs), next_state[order], probability[:, order], reward[order])


def merge(listing: Listing) -> Listing:
    """Add up the probabilities of outcomes that have the same pair, next state and reward."""
    pair, next_state, reward = listing.pair, listing.next_state, listing.reward
    new = np.ones(pair.size, bool)
    new[1:] = (np.diff(pair) != 0) | (np.diff(next_state) != 0) | (reward[1:] != reward[:-1])
    first = np.flatnonzero(new)
    probability = np.add.reduceat(listing.probability, first, axis=1)
    return Listing(starts(pair[first], listing.start.size - 1), next_state[first], probability, reward[first])


def absorb(stated: Statement, absorbing: Ints) -> Statement:
    """Make states absorbing: under every action they stay where they are, with reward 0."""
    listing, states, actions = stated.listing, stated.states, stated.actions
    pair, rests = listing.pair, np.isin(np.arange(states), absorbing)
    here, stay = rests[pair // actions], np.flatnonzero(np.repeat(rests, actions))
    probability = np.where(here, 0.0, listing.probability)
    reward = listing.reward[pair] if stated.reward_of_pair else listing.reward
    changed = in_order(
        np.append(pair, stay),
        np.append(listing.next_state, stay // actions),
        np.append(probability, np.ones((len(probability), stay.size)), axis=1),
        np.append(np.where(here, 0.0, reward), np.zeros(stay.size)),
        states * actions,
    )
    return stated._replace(listing=changed)


def validate(stated: Statement, rewards: RewardMap) -> None:
    """Refuse probabilities that are negative, not finite or do not sum to one, and rewards outside their range."""
    (start, next_state, probability, reward), actions = stated.listing, stated.actions

    def where(outcome: int) -> tuple[int, ...]:
        pair = int(np.searchsorted(start, outcome, side="right")) - 1
        return (*divmod(pair, actions), int(next_state[outcome]))

    def at_step(step: int, at: tuple[int, ...]) -> tuple[int, ...]:
        return at if len(probability) == 1 else (step, *at)

    for t, row in enumerate(probability):
        for o in np.flatnonzero(~((row >= 0.0) & (row < math.inf)))[:1]:
            index, expected = at_step(t, where(o)), "a finite number >= 0"
            raise ProbabilityError(stated.fields[0], got=float(row[o]), expected=expected, index=index)
    for t, row in enumerate(probability):
        total = np.zeros(start.size - 1)
        some = np.flatnonzero(np.diff(start))
        total[some] = np.add.reduceat(row, start[some])
        for sa in np.flatnonzero(np.abs(total - 1.0) > TOLERANCE)[:1]:
            got, index = f"a row that sums to {total[sa]:.12g}", at_step(t, divmod(int(sa), actions))
            raise ProbabilityError(stated.fields[0], got=got, expected=sum_to_one(total[sa]), index=index)
    for o in np.flatnonzero(~((reward >= rewards.low) & (reward <= rewards.high)))[:1]:  # NaN is bad too
        of_pair = divmod(int(o), actions) if stated.listing.of_pairs else where(o)[:2]
        index = of_pair if stated.reward_of_pair else where(o)
        expected = f"a reward in [{rewards.low:g}, {rewards.high:g}]"
        expected += "; reward_range=(low, high) maps others onto [0, 1]" * bool(np.isfinite(reward[o]))
        raise RewardError(stated.fields[1], got=float(reward[o]), expected=expected, index=index)


def running_sums(start: Ints, probability: Floats) -> Floats:
    """Return the running sums of each row's probabilities, for drawing by inversion.

    The outcome drawn by a uniform number u in [0, 1) is the first with u < its running sum. The sums are 1 from the
    last outcome of positive probability on, whatever rounding did, so that one is found and it can happen.
    """
    cumulative = np.empty_like(probability)
    sizes = np.diff(start)
    for size in np.unique(sizes):  # rows of one length at once, added up from left to right
        rows, together = start[:-1][sizes == size], max(1, _TOGETHER // size)
        for first in range(0, rows.size, together):
            at = rows[first : first + together, np.newaxis] + np.arange(size)
            part = probability[:, at]
            later = np.zeros(part.shape, dtype=bool)  # whether some outcome after this one can happen
            later[..., :-1] = np.logical_or.accumulate(part[..., :0:-1] > 0.0, axis=-1)[..., ::-1]
            cumulative[:, at] = np.where(later, np.minimum(np.cumsum(part, axis=-1), 1.0), 1.0)
    return cumulative


def _is_sparse(value: object) -> bool:
    return bool(sp.issparse(value))  # a plain bool: its type guard knows no shapes


def sound_sparse(field: str, matrix: Any, *, keep_zeros: bool = False) -> Any:
    """Return a sparse matrix by rows, whose indices are in range (SciPy's compiled code trusts them), each once.

    Nothing that is sound already is copied, and nothing of it is changed.
    """
    try:
        if matrix.format in ("csr", "csc"):  # a look at all indices may cut the arrays of the matrix looked at
            parts = matrix.data, matrix.indices, matrix.indptr
            matrix = (sp.csr_array if matrix.format == "csr" else sp.csc_array)(parts, shape=matrix.shape)
            matrix.check_format(full_check=True)
        else:
            matrix = matrix.copy()  # which checks coordinates
        if matrix.format == "lil" and list(map(len, matrix.rows)) != list(map(len, matrix.data)):
            raise ValueError("rows and data should have the same sizes")  # which SciPy takes for granted
        csr: Any = sp.csr_array(matrix)
        csr.check_format(full_check=True)
    except (TypeError, ValueError) as error:
        raise ShapeError(field, got=f"a sparse matrix: {error}", expected="indices in range") from error
    if csr.dtype.kind not in "biuf" or csr.dtype == np.float16:  # with which SciPy does not compute
        raise ShapeError(field, got=f"dtype {csr.dtype}", expected="a sparse matrix of real numbers, as float64")
    if not csr.has_canonical_format or not (keep_zeros or csr.data.all()):
        csr = csr.copy()
        csr.sum_duplicates()
        if not keep_zeros:
            csr.eliminate_zeros()
    return csr


def slices(rows: int) -> Iterator[slice]:
    """Yield pieces of many rows: of a few at a time, what matrices have in common fits into the processor's cache."""
    for first in range(0, rows, _ROWS):
        yield slice(first, min(first + _ROWS, rows))


def cells_of(matrix: Any) -> Ints:
    """Return the cells row * S + s' of the entries of a sparse matrix, in order."""
    row = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    return np.asarray(row * matrix.shape[1] + matrix.indices)


def union(parts: Sequence[Ints]) -> Ints:
    """Return all cells, sorted, each once; ``numpy.unique`` hashes them first, which takes many times as long."""
    if len(parts) == 1:
        return parts[0]
    cells = np.sort(np.concatenate(parts), kind="stable")  # made of sorted runs, which are merged
    first: Ints = cells[np.append(True, np.diff(cells) > 0)[: cells.size]]
    return first


def _together(matrices: Sequence[Any]) -> tuple[Ints, Ints, Floats]:
    """Return the union of the cells of sparse matrices (S*A, S): starts [S*A + 1], s' [N], all values [n, N].

    It is made twice, so that memory is taken for what is found and for nothing else.
    """
    (pairs, states), start = matrices[0].shape, np.zeros(matrices[0].shape[0] + 1, dtype=np.int64)
    for rows in slices(pairs):
        cells = union([cells_of(matrix[rows]) for matrix in matrices])
        start[rows.start + 1 : rows.stop + 1] = np.bincount(cells // states, minlength=rows.stop - rows.start)
    np.cumsum(start, out=start)
    next_state, values = np.empty(start[-1], dtype=np.int64), np.zeros((len(matrices), start[-1]))
    for rows in slices(pairs):
        pieces = [matrix[rows] for matrix in matrices]
        found, here = [cells_of(piece) for piece in pieces], slice(start[rows.start], start[rows.stop])
        cells = union(found)
        next_state[here] = cells % states
        for row, own, piece in zip(values, found, pieces, strict=True):
            row[here][np.searchsorted(cells, own)] = piece.data
    return start, next_state, values


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


def read_arrays(transition: Any, reward: Any, horizon: int) -> Statement:
    """Put rewards r[s, a], r[s, a, s'] or a sparse matrix (S*A, S) beside a kernel.

    The listing holds what the reward table defines: the whole of a dense r[s, a, s'], the stored entries of a sparse
    one together with all that the kernel can do (unstored entries are 0), and the latter alone for r[s, a].
    """
    matrices = [sound_sparse("transition", matrix) for matrix in _matrices(transition, horizon)]
    pairs, states = (int(size) for size in matrices[0].shape)
    actions, fields = pairs // states, ("transition", "reward")
    if _is_sparse(reward):
        if tuple(reward.shape) != (pairs, states):
            expected = f"(S*A, S) = {(pairs, states)}"
            raise ShapeError("reward", got=f"a sparse matrix of shape {tuple(reward.shape)}", expected=expected)
        start, after, values = _together([*matrices, sound_sparse("reward", reward, keep_zeros=True)])
        return Statement(states, actions, states, Listing(start, after, values[:-1], values[-1]), fields)
    dense = as_floats("reward", reward)
    if dense.shape == (states, actions):
        listing = Listing(*_together(matrices), dense.flatten())
        return Statement(states, actions, states, listing, fields, reward_of_pair=True)
    if dense.shape != (states, actions, states):
        expected = f"[S, A] = {(states, actions)} or [S, A, S] = {(states, actions, states)}"
        expected += "; of r[a, s], give r.T" * (dense.shape == (actions, states))
        raise ShapeError("reward", got=f"shape {dense.shape}", expected=expected)
    probability = np.stack([matrix.toarray().ravel() for matrix in matrices])
    every = np.arange(0, dense.size + 1, states), np.tile(np.arange(states), pairs)
    return Statement(states, actions, states, Listing(*every, probability, dense.flatten()), fields)


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
    after = require_integer("outcomes", after, 0, ShapeError, index, most=states - 1)
    return numbers[0], after, numbers[1], ended


def read_table(table: Table, rewards: RewardMap) -> Statement:
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
    ends = terminated & goes_on[after]
    if not ends.any():
        listing = in_order(pair, after, probability[np.newaxis], reward, states * actions)
        return Statement(states, actions, states, listing)
    if not rewards.low <= 0.0 <= rewards.high:
        raise ParameterError("reward_range", got=tuple(rewards), expected="0 in it, earned after the end")
    pair = np.append(pair, states * actions + np.arange(actions))
    after = np.append(np.where(ends, states, after), np.full(actions, states))
    probability, reward = np.append(probability, np.ones(actions)), np.append(reward, np.zeros(actions))
    listing = in_order(pair, after, probability[np.newaxis], reward, (states + 1) * actions)
    return Statement(states + 1, actions, states, listing)


def require_distributions(field: str, rows: Floats) -> None:
    """Refuse rows [..., n] that are not distributions."""
    for at in map(tuple, np.argwhere(~(np.isfinite(rows) & (rows >= 0.0)))[:1].tolist()):
        raise ProbabilityError(field, got=float(rows[at]), expected="a probability >= 0", index=at)
    total = rows.sum(axis=-1)
    for at in map(tuple, np.argwhere(np.abs(total - 1.0) > TOLERANCE)[:1].tolist()):
        got = f"a sum of {total[at]:.12g}"
        raise ProbabilityError(field, got=got, expected="probabilities that sum to 1", index=at or None)


def initial_distribution(initial_state: Any, listed: int, states: int) -> Floats:
    """Return the distribution of s_1 over all states, given a state or a distribution over the first ``listed``."""
    distribution = np.zeros(states)
    if as_array("initial_state", initial_state).ndim == 0:
        distribution[require_integer("initial_state", initial_state, 0, most=listed - 1)] = 1.0
    else:
        distribution[:listed] = as_floats("initial_state", initial_state, (listed,))
        require_distributions("initial_state", distribution[:listed])
    return distribution


def mixed_policy(policy: Any, horizon: int, states: int, actions: int) -> Floats:
    """Return probabilities of actions [H, S, A], given those or the actions themselves [H, S]."""
    raw = as_array("policy", policy)
    if raw.shape == (horizon, states) and raw.dtype.kind in "iu":
        for h, s in np.argwhere((raw < 0) | (raw >= actions))[:1].tolist():
            raise ParameterError("policy", got=int(raw[h, s]), expected=f"an action in 0..{actions - 1}", index=(h, s))
        return np.eye(actions)[raw.astype(np.int64)]
    if raw.shape != (horizon, states, actions):
        got = f"shape {raw.shape} of dtype {raw.dtype}"
        expected = f"integers {(horizon, states)} or probabilities {(horizon, states, actions)}"
        raise ShapeError("policy", got=got, expected=expected)
    mixed = as_floats("policy", raw)
    require_distributions("policy", mixed)
    return mixed


@dataclass(frozen=True, kw_only=True)
class BernoulliRewards:
    """A reward is 1 with its mean as probability, else 0: as much noise as rewards in [0, 1] can have."""

    def compiled(self, means: Floats) -> Noise:
        """Return what the simulator draws with, for outcomes with these mean rewards."""
        return Noise(COINS)


@dataclass(frozen=True, kw_only=True)
class BetaRewards:
    """A reward follows a Beta distribution around its mean, Beta(c m, c (1 - m)), of variance m (1 - m)/(1 + c).

    It is drawn from 64 equally likely values, the means of the distribution over slices of equal probability, so that
    its mean is the one stated.

    Parameters
    ----------
    concentration : float
        c: the larger, the less noise.
    """

    concentration: float = 10.0

    def __post_init__(self) -> None:
        require_number("concentration", self.concentration, *_CONCENTRATIONS)

    def compiled(self, means: Floats) -> Noise:
        """Return what the simulator draws with, for outcomes with these mean rewards."""
        values = np.repeat(means[:, np.newaxis], _ATOMS, axis=1)
        inside = (means > _LEAST_MEAN) & (means < 1.0)  # elsewhere the mean itself
        one, other = self.concentration * means[inside], self.concentration * (1.0 - means[inside])
        cuts = betaincinv(one[:, np.newaxis], other[:, np.newaxis], np.linspace(0.0, 1.0, _ATOMS + 1))
        # The mean over a slice is m times the share of Beta(c m + 1, c (1 - m)) in it, over that of Beta(c m, ...).
        slices = np.diff(betainc(one[:, np.newaxis] + 1.0, other[:, np.newaxis], cuts), axis=1)
        values[inside] = _with_mean(np.clip(means[inside, np.newaxis] * slices * _ATOMS, 0.0, 1.0), means[inside])
        return Noise(VALUES, read_only(values))


def _with_mean(values: Floats, means: Floats) -> Floats:
    """Return the rows, sorted, in [0, 1], with these means: quantiles near an end of [0, 1] have lost digits."""
    values = np.sort(values, axis=1)
    now, then = values.mean(axis=1, keepdims=True), means[:, np.newaxis]
    up = values + (then - now) * (1.0 - values) / np.maximum(1.0 - now, 1e-300)
    down = values * (then / np.maximum(now, 1e-300))
    return np.asarray(np.clip(np.where(then >= now, up, down), 0.0, 1.0))


RewardNoise = BernoulliRewards | BetaRewards


def noise_of(value: Any) -> RewardNoise | None:
    """Return the noise that ``"bernoulli"``, ``"beta"`` or ``{"beta": concentration}`` stands for."""
    if value is None or isinstance(value, (BernoulliRewards, BetaRewards)):
        return value
    if isinstance(value, dict):
        for key in value:
            require_choice(f"reward_noise.{key}", key, ("beta",))
        return BetaRewards(concentration=require_number("reward_noise.beta", value.get("beta"), *_CONCENTRATIONS))
    require_choice("reward_noise", value if isinstance(value, str) else repr(value), ("bernoulli", "beta"))
    return BernoulliRewards() if value == "bernoulli" else BetaRewards()


_KEPT = (
    *("states", "actions", "horizon", "initial_distribution"),
    *("_outcomes", "_probability", "_base_reward", "reward_noise"),
)


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
        How rewards scatter around the means that ``reward`` states: ``BernoulliRewards()`` or ``BetaRewards()``; or, as
        in a TOML file, ``"bernoulli"``, ``"beta"``, ``{"beta": 50.0}`` with the concentration. Values and regret are
        those of the means, and an agent that knows the rewards knows the means.
    """

    states: int
    actions: int
    horizon: int
    initial_distribution: Floats
    reward_noise: RewardNoise | None
    _outcomes: Outcomes  # that are listed, whether they can happen or not
    _probability: Floats  # [T, N] of these
    _base_reward: Floats  # [S*A] the part of the reward of each pair that no outcome changes: the least one (M20)

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
        reward_noise: RewardNoise | str | dict[str, float] | None = None,
    ) -> None:
        noise = noise_of(reward_noise)
        horizon = require_integer("horizon", horizon, 1, HorizonError)
        rewards = reward_map(reward_range)
        if outcomes is not None:
            if transition is not None or reward is not None:
                raise ParameterError("outcomes", got="transition or reward as well", expected="outcomes alone")
            stated = read_table(outcomes, rewards)
        else:
            if transition is None or reward is None:
                name = "transition" if transition is None else "reward"
                raise ParameterError(name, got=None, expected="transition and reward, or outcomes")
            stated = read_arrays(transition, reward, horizon)
        require_memory("horizon", horizon, horizon, stated.states)
        ends = as_integers("absorbing", absorbing).ravel()
        for s in ends[(ends < 0) | (ends >= stated.listed)].tolist():
            raise ParameterError("absorbing", got=s, expected=f"states in 0..{stated.listed - 1}")
        stated = absorb(stated, ends) if ends.size else stated
        validate(stated, rewards)
        listing = merge(stated.listing) if ends.size or outcomes is not None else stated.listing
        base, bonus = rewards.to_unit(listing.reward), np.zeros(listing.next_state.size)  # zeros take no memory
        if not listing.of_pairs:
            reward, base = base, np.minimum.reduceat(base, listing.start[:-1])
            bonus = reward - base[listing.pair]
        every = Outcomes(listing.start, listing.next_state, bonus)
        initial = initial_distribution(initial_state, stated.listed, stated.states)
        self.__setstate__((stated.states, stated.actions, horizon, initial, every, listing.probability, base, noise))

    def with_reward_noise(self, reward_noise: RewardNoise | str | dict[str, float] | None) -> FiniteMDP:
        """Return the same problem with rewards that scatter around their means; without noise for None."""
        mdp = FiniteMDP.__new__(FiniteMDP)
        mdp.__setstate__((*self.__getstate__()[:-1], noise_of(reward_noise)))
        return mdp

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"FiniteMDP cannot be changed (attribute {name!r})")

    def __getstate__(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in _KEPT)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        vars(self).update(zip(_KEPT, state, strict=True), initial_distribution=read_only(state[3]))

    def __repr__(self) -> str:
        count = int((self._probability > 0.0).any(axis=0).sum())
        start = np.flatnonzero(self.initial_distribution)
        return (
            f"FiniteMDP(states={self.states}, actions={self.actions}, horizon={self.horizon}, "
            f"{'one kernel' if self.stationary else 'a kernel per step'} with {count} outcomes, "
            f"rewards {'r[s, a]' if self.known.transition_rewards is None else 'on transitions'}"
            f"{'' if self.reward_noise is None else f' with {self.reward_noise!r}'}, "
            f"initial_state={start[0] if start.size == 1 else f'a distribution over {start.size} states'})"
        )

    @property
    def stationary(self) -> bool:
        """Whether one kernel serves all steps."""
        return len(self._probability) == 1

    @property
    def truth(self) -> Truth:
        """The problem as the simulator needs it, solved."""
        return self._solved if may_use_threads() else self._solved._replace(threads=OneThread())

    @cached_property
    def _solved(self) -> Truth:
        """The truth of the process that solved it."""
        (start, next_state, bonus), probability, base_reward = self._outcomes, self._probability, self._base_reward
        happens = (probability > 0.0).any(axis=0)
        if not happens.all():
            start = np.append(0, np.cumsum(happens))[start]
            next_state, bonus, probability = next_state[happens], bonus[happens], probability[:, happens]
        kernel = Outcomes(start, next_state, bonus), np.ascontiguousarray(probability), base_reward
        values = bellman.optimal_values(*kernel, self.states, self.horizon)
        one_row = np.array([0, self.states], np.int64)
        initial = running_sums(one_row, self.initial_distribution[np.newaxis])
        noise = Noise()
        if self.reward_noise is not None:
            noise = self.reward_noise.compiled(np.minimum(np.repeat(base_reward, np.diff(start)) + bonus, 1.0))
        return Truth(
            outcomes=fixed(kernel[0]),
            probability=read_only(kernel[1]),
            cumulative=read_only(running_sums(start, kernel[1])),
            base_reward=read_only(base_reward),
            initial_cumulative=read_only(initial),
            optimal_values=read_only(values),
            threads=threads_for(next_state.size),
            noise=noise,
        )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the problem's arrays: equal for equal problems, in any process."""
        digest = hashlib.sha256(f"{self.states} {self.actions} {self.horizon}".encode())
        truth = self.truth
        for array in (*truth.outcomes, truth.probability, truth.base_reward, truth.initial_cumulative):
            digest.update(np.ascontiguousarray(array).reshape(-1).data)
        if self.reward_noise is not None:
            digest.update(repr(self.reward_noise).encode())
        return digest.hexdigest()

    @cached_property
    def known(self) -> Known:
        """What an agent may know: sizes and rewards. Rewards that no outcome changes count as r[s, a]."""
        rewards = fixed(self._outcomes)
        return Known(
            states=self.states,
            actions=self.actions,
            horizon=self.horizon,
            base_reward=read_only(self._base_reward.reshape(self.states, self.actions)),
            transition_rewards=rewards if rewards.bonus.any() else None,
        )

    @property
    def optimal_values(self) -> Floats:
        """V* [H + 1, S]."""
        return self.truth.optimal_values

    @property
    def optimal_value(self) -> float:
        """The expectation of V*_1 under the initial distribution."""
        return float(self.initial_distribution @ self.optimal_values[0])

    @cached_property
    def optimal_policy(self) -> Ints:
        """An optimal policy [H, S]; ties go to the smallest action."""
        truth = self.truth
        return read_only(
            bellman.optimal_policy(truth.outcomes, truth.probability, truth.base_reward, truth.optimal_values)
        )

    def evaluate(self, policy: ArrayLike) -> Floats:
        """Return V^pi [H + 1, S], exactly.

        Parameters
        ----------
        policy
            Actions [H, S] (integers), or probabilities of actions [H, S, A].
        """
        mixed = mixed_policy(policy, self.horizon, self.states, self.actions)
        truth = self.truth
        return bellman.all_policy_values(truth.outcomes, truth.probability, truth.base_reward, mixed)

    def kernel(self) -> Floats:
        """Return the dense kernel P[s, a, s'], or P[h, s, a, s'] if there is one per step; for small problems."""
        outcomes, sizes = self._outcomes, (self.states, self.actions, self.states)
        if len(self._probability) * math.prod(sizes) > LARGEST_DENSE:
            raise ParameterError("states", got=self.states, expected="a problem small enough for a dense kernel")
        cell = np.repeat(np.arange(0, math.prod(sizes), self.states), np.diff(outcomes.start)) + outcomes.next_state
        dense = np.array([np.bincount(cell, row, math.prod(sizes)) for row in self._probability], dtype=np.float64)
        return dense.reshape(sizes if self.stationary else (-1, *sizes))


def as_mdp(problem: object) -> FiniteMDP:
    """Return a FiniteMDP, or that of a problem which has one."""
    found = problem if isinstance(problem, FiniteMDP) else getattr(problem, "mdp", None)
    if not isinstance(found, FiniteMDP):
        expected = "a FiniteMDP, or a problem that has one"
        if hasattr(problem, "step") and hasattr(problem, "reset"):
            expected += "; for a Gymnasium environment, call occamrl.learn(agent, env, episodes=...)"
        elif hasattr(problem, "begin") or hasattr(problem, "next_phase"):
            expected += "; the agent comes first"
        raise ParameterError("mdp", got=type(problem).__name__, expected=expected)
    return found


Small = Sequence[Mapping[str, Any]]


class HasExamples:
    """A problem whose small instances are listed by their parameters."""

    small: ClassVar[Small]

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small instances, for the contract checks."""
        return [cls(**parameters) for parameters in cls.small]


class NoisyProblem:
    """A problem with reward noise (see :class:`FiniteMDP`); whatever else is asked of it is the problem's own."""

    def __init__(self, problem: Any, reward_noise: RewardNoise | str | dict[str, float]) -> None:
        self.problem = problem
        self.reward_noise = noise_of(reward_noise)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem as a FiniteMDP, with its noise."""
        return as_mdp(self.problem).with_reward_noise(self.reward_noise)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "problem" not in vars(self):  # a copy in the making has nothing yet
            raise AttributeError(name)
        return getattr(self.problem, name)

    def __repr__(self) -> str:
        return f"NoisyProblem({self.problem!r}, reward_noise={self.reward_noise!r})"
