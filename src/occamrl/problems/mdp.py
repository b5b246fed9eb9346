"""A finite episodic MDP that is known exactly: validated, solved and evaluated without sampling.

Notation (M20 and section "Setting"): S states, A actions, H steps; values lie in [0, H - h + 1] and V_{H+1} = 0. Arrays
count steps from 0, so ``optimal_values[0]`` is V*_1 and ``optimal_values[H]`` is V*_{H+1}.

**How input is read.** A dense kernel, a sparse one and a Gymnasium table all become a :class:`Listing`: outcomes with
their probabilities and rewards. Validation, the map of rewards onto [0, 1] and the outcome layout of
:mod:`occamrl.protocols` are then written once (M20). Sparse input is never made dense: an entry (s, a, s') is known by
its *cell* (s*A + a)*S + s', and matching two sparse patterns is a search in sorted cells.

**Reward noise.** Rewards may scatter around their means, for agents that have to estimate them. Exact values and regret
are those of the means; only what an agent sees, and the realised returns, are random. Every reward stays in [0, 1].
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv

from occamrl._core import bellman
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
    """The N outcomes that the statement of a problem mentions, sorted by pair, next state and reward.

    An outcome of probability zero is one whose reward is known although it never happens.
    """

    pair: Ints  # [N] s*A + a
    next_state: Ints  # [N]
    probability: Floats  # [T, N]
    reward: Floats  # [N]


class Statement(NamedTuple):
    """What the user's arrays or table say; ``listed`` counts the states before one was added for an episode's end."""

    states: int
    actions: int
    listed: int
    listing: Listing
    fields: tuple[str, str] = ("outcomes", "outcomes")  # the arguments that hold the probabilities and the rewards
    reward_of_pair: bool = False  # whether rewards are indexed by (s, a) rather than (s, a, s')


def read_only(array: Array) -> Array:
    """Return ``array``, contiguous, after taking away the right to write to it."""
    contiguous = cast(Array, np.ascontiguousarray(array))
    contiguous.flags.writeable = False
    return contiguous


def merge(listing: Listing) -> Listing:
    """Sort the outcomes and add up the probabilities of those that have the same pair, next state and reward."""
    order = np.lexsort((listing.reward, listing.next_state, listing.pair))
    pair, next_state, reward = listing.pair[order], listing.next_state[order], listing.reward[order]
    new = np.ones(order.size, bool)
    new[1:] = (np.diff(pair) != 0) | (np.diff(next_state) != 0) | (reward[1:] != reward[:-1])
    first = np.flatnonzero(new)
    probability = np.add.reduceat(listing.probability[:, order], first, axis=1)
    return Listing(pair[first], next_state[first], probability, reward[first])


def absorb(listing: Listing, absorbing: Ints, states: int, actions: int) -> Listing:
    """Make states absorbing: under every action they stay where they are, with reward 0."""
    rests = np.isin(np.arange(states), absorbing)
    here, stay = rests[listing.pair // actions], np.flatnonzero(np.repeat(rests, actions))
    probability = np.where(here, 0.0, listing.probability)
    return Listing(
        np.append(listing.pair, stay),
        np.append(listing.next_state, stay // actions),
        np.append(probability, np.ones((len(probability), stay.size)), axis=1),
        np.append(np.where(here, 0.0, listing.reward), np.zeros(stay.size)),
    )


def validate(stated: Statement, rewards: RewardMap) -> None:
    """Refuse probabilities that are negative, not finite or do not sum to one, and rewards outside their range."""
    (pair, next_state, probability, reward), actions = stated.listing, stated.actions

    def where(step: int, pair: int, *after: int) -> tuple[int, ...]:
        at = (*divmod(int(pair), actions), *map(int, after))
        return at if len(probability) == 1 else (step, *at)

    for t, o in np.argwhere(~((probability >= 0.0) & np.isfinite(probability)))[:1].tolist():
        found, index = float(probability[t, o]), where(t, pair[o], next_state[o])
        raise ProbabilityError(stated.fields[0], got=found, expected="a finite number >= 0", index=index)
    for t, row in enumerate(probability):
        total = np.bincount(pair, weights=row, minlength=stated.states * actions)
        for sa in np.flatnonzero(np.abs(total - 1.0) > TOLERANCE)[:1]:
            got = f"a row that sums to {total[sa]:.12g}"
            raise ProbabilityError(stated.fields[0], got=got, expected=sum_to_one(total[sa]), index=where(t, sa))
    for o in np.flatnonzero(~((reward >= rewards.low) & (reward <= rewards.high)))[:1]:  # NaN is bad too
        s, a = divmod(int(pair[o]), actions)
        index = (s, a) if stated.reward_of_pair else (s, a, int(next_state[o]))
        expected = f"a reward in [{rewards.low:g}, {rewards.high:g}]"
        expected += "; reward_range=(low, high) maps others onto [0, 1]" * bool(np.isfinite(reward[o]))
        raise RewardError(stated.fields[1], got=float(reward[o]), expected=expected, index=index)


def starts(pair: Ints, pairs: int) -> Ints:
    """Return where the outcomes of each pair begin in a sorted list, and where the last ends."""
    return np.searchsorted(pair, np.arange(pairs + 1)).astype(np.int64)


def layout(listing: Listing, base_reward: Floats) -> Outcomes:
    """Return the outcomes of a listing in the layout of the compiled core; ``base_reward`` [S*A] is taken out."""
    return Outcomes(
        start=read_only(starts(listing.pair, base_reward.size)),
        next_state=read_only(listing.next_state),
        bonus=read_only(listing.reward - base_reward[listing.pair]),
    )


def possible(listing: Listing) -> Listing:
    """Return the outcomes that happen with positive probability at some step."""
    keep = (listing.probability > 0.0).any(axis=0)
    if keep.all():
        return listing
    return Listing(listing.pair[keep], listing.next_state[keep], listing.probability[:, keep], listing.reward[keep])


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


def sound_sparse(field: str, matrix: Any) -> Any:
    """Return a copy of a sparse matrix whose indices are in range: SciPy's compiled code trusts them."""
    try:
        checked: Any = matrix.copy()  # which checks coordinates
        if hasattr(checked, "check_format"):
            checked.check_format(full_check=True)
    except ValueError as error:
        raise ShapeError(field, got=f"a sparse matrix: {error}", expected="indices in range") from error
    return checked


def _entries(field: str, matrix: Any, states: int, *, keep_zeros: bool) -> tuple[Ints, Floats]:
    """Return the cells and values of a sparse matrix (S*A, S), duplicates added up."""
    csr = sound_sparse(field, matrix).tocsr()
    if csr.dtype.kind not in "biuf":
        raise ShapeError(field, got=f"dtype {csr.dtype}", expected="a sparse matrix of real numbers")
    csr.sum_duplicates()
    if not keep_zeros:
        csr.eliminate_zeros()
    row = np.repeat(np.arange(csr.shape[0], dtype=np.int64), np.diff(csr.indptr))
    return row * states + csr.indices.astype(np.int64), csr.data.astype(np.float64)


def union(parts: Sequence[Ints]) -> Ints:
    """Return all cells, sorted, each once; ``numpy.unique`` hashes them first, which takes many times as long."""
    cells = np.sort(np.concatenate(parts))
    first: Ints = cells[np.append(True, np.diff(cells) > 0)[: cells.size]]
    return first


def _spread(cell: Ints, value: Floats, cells: Ints) -> Floats:
    """Return the values at ``cells``, a sorted list that holds every ``cell``; 0 where there is none."""
    spread = np.zeros(cells.size)
    spread[np.searchsorted(cells, cell)] = value
    return spread


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
    matrices = _matrices(transition, horizon)
    pairs, states = (int(size) for size in matrices[0].shape)
    actions, of_pair = pairs // states, False
    entries = [_entries("transition", matrix, states, keep_zeros=False) for matrix in matrices]
    cells = union([cell for cell, _ in entries])
    if _is_sparse(reward):
        if tuple(reward.shape) != (pairs, states):
            expected = f"(S*A, S) = {(pairs, states)}"
            raise ShapeError("reward", got=f"a sparse matrix of shape {tuple(reward.shape)}", expected=expected)
        reward_cell, value = _entries("reward", reward, states, keep_zeros=True)
        cells = np.union1d(cells, reward_cell)
        rewards = _spread(reward_cell, value, cells)
    else:
        dense = as_floats("reward", reward)
        if dense.shape == (states, actions):
            rewards, of_pair = dense.ravel()[cells // states], True
        elif dense.shape == (states, actions, states):
            cells, rewards = np.arange(dense.size), dense.ravel()
        else:
            expected = f"[S, A] = {(states, actions)} or [S, A, S] = {(states, actions, states)}"
            expected += "; of r[a, s], give r.T" * (dense.shape == (actions, states))
            raise ShapeError("reward", got=f"shape {dense.shape}", expected=expected)
    probability = np.stack([_spread(cell, value, cells) for cell, value in entries])
    listing = Listing(cells // states, cells % states, probability, rewards)
    return Statement(states, actions, states, listing, ("transition", "reward"), of_pair)


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
        return Statement(states, actions, states, Listing(pair, after, probability[np.newaxis], reward))
    if not rewards.low <= 0.0 <= rewards.high:
        raise ParameterError("reward_range", got=tuple(rewards), expected="0 in it, earned after the end")
    pair = np.append(pair, states * actions + np.arange(actions))
    after = np.append(np.where(ends, states, after), np.full(actions, states))
    probability, reward = np.append(probability, np.ones(actions)), np.append(reward, np.zeros(actions))
    return Statement(states + 1, actions, states, Listing(pair, after, probability[np.newaxis], reward))


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
    _listing: Listing

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
        if ends.size:
            stated = stated._replace(listing=absorb(stated.listing, ends, stated.states, stated.actions))
        validate(stated, rewards)
        listing = merge(stated.listing) if ends.size or outcomes is not None else stated.listing
        listing = listing._replace(reward=rewards.to_unit(listing.reward))
        initial = initial_distribution(initial_state, stated.listed, stated.states)
        self.__setstate__((stated.states, stated.actions, horizon, initial, listing, noise))

    def with_reward_noise(self, reward_noise: RewardNoise | str | dict[str, float] | None) -> FiniteMDP:
        """Return the same problem with rewards that scatter around their means; without noise for None."""
        mdp = FiniteMDP.__new__(FiniteMDP)
        mdp.__setstate__((*self.__getstate__()[:-1], noise_of(reward_noise)))
        return mdp

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"FiniteMDP cannot be changed (attribute {name!r})")

    def __getstate__(self) -> tuple[int, int, int, Floats, Listing, RewardNoise | None]:
        return self.states, self.actions, self.horizon, self.initial_distribution, self._listing, self.reward_noise

    def __setstate__(self, state: tuple[int, int, int, Floats, Listing, RewardNoise | None]) -> None:
        states, actions, horizon, initial, (pair, next_state, probability, reward), noise = state
        # Arrays come back writeable from a pickle; compiled code tells the two apart.
        listing = Listing(read_only(pair), read_only(next_state), read_only(probability), read_only(reward))
        sizes = {"states": states, "actions": actions, "horizon": horizon}
        vars(self).update(sizes, initial_distribution=read_only(initial), _listing=listing, reward_noise=noise)

    def __repr__(self) -> str:
        count = possible(self._listing).reward.size
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
        return bool(self._listing.probability.shape[0] == 1)

    @cached_property
    def _base_reward(self) -> Floats:
        """The part of the reward of each pair that no outcome changes: the least one (M20)."""
        listing, pairs = self._listing, self.states * self.actions
        return read_only(np.minimum.reduceat(listing.reward, starts(listing.pair, pairs)[:-1]))

    @cached_property
    def truth(self) -> Truth:
        """The problem as the simulator needs it, solved."""
        happens, base_reward = possible(self._listing), self._base_reward
        outcomes = layout(happens, base_reward)
        probability = read_only(happens.probability)
        one_row = np.array([0, self.states], np.int64)
        initial = running_sums(one_row, self.initial_distribution[np.newaxis])
        values = bellman.optimal_values(outcomes, probability, base_reward, self.states, self.horizon)
        return Truth(
            outcomes=outcomes,
            probability=probability,
            cumulative=read_only(running_sums(outcomes.start, probability)),
            base_reward=base_reward,
            initial_cumulative=read_only(initial),
            optimal_values=read_only(values),
            noise=Noise() if self.reward_noise is None else self.reward_noise.compiled(happens.reward),
        )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the problem's arrays: equal for equal problems, in any process."""
        digest = hashlib.sha256(f"{self.states} {self.actions} {self.horizon}".encode())
        truth = self.truth
        for array in (*truth.outcomes, truth.probability, truth.base_reward, truth.initial_cumulative):
            digest.update(np.ascontiguousarray(array).tobytes())
        if self.reward_noise is not None:
            digest.update(repr(self.reward_noise).encode())
        return digest.hexdigest()

    @cached_property
    def known(self) -> Known:
        """What an agent may know: sizes and rewards. Rewards that no outcome changes count as r[s, a]."""
        rewards = layout(self._listing, self._base_reward)
        return Known(
            states=self.states,
            actions=self.actions,
            horizon=self.horizon,
            base_reward=self._base_reward.reshape(self.states, self.actions),
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
        listing, sizes = self._listing, (self.states, self.actions, self.states)
        if len(listing.probability) * math.prod(sizes) > LARGEST_DENSE:
            raise ParameterError("states", got=self.states, expected="a problem small enough for a dense kernel")
        cell = listing.pair * self.states + listing.next_state
        dense = np.array([np.bincount(cell, row, math.prod(sizes)) for row in listing.probability], dtype=np.float64)
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
