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
from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from occamrl import bellman
from occamrl.arrays import distinct_rows
from occamrl.errors import (
    ParameterError,
    ProbabilityError,
    RewardError,
    ShapeError,
    as_array,
    as_floats,
    require_choice,
    require_integer,
    require_range,
    sum_to_one,
)
from occamrl.protocols import Floats, Ints, Known, Outcomes
from occamrl.protocols import RewardMap as RewardMap

TOLERANCE = 1e-9  # how far a row of probabilities may be from summing to one

Array = TypeVar("Array", bound=NDArray[np.generic])
SparseMatrix = sp.sparray | sp.spmatrix
Table = (
    Mapping[int, Any] | Sequence[Any]
)  # table[s][a] = [(probability, next_state, reward[, terminated]), ...]
Small = Sequence[Mapping[str, Any]]  # parameters of small instances of a problem


def reward_map(reward_range: Sequence[float] | None) -> RewardMap:
    """Return the map of a stated range (low, high); by default rewards are in [0, 1] as they are."""
    return (
        RewardMap()
        if reward_range is None
        else RewardMap(*require_range("reward_range", reward_range))
    )


def read_only(array: Array) -> Array:
    """Return a view of ``array``, contiguous, that cannot be written to."""
    contiguous = cast(Array, np.ascontiguousarray(array)[...])
    contiguous.flags.writeable = False
    return contiguous


class Listing(NamedTuple):
    """The N outcomes that a problem's statement mentions; of those with probability zero the reward alone is known."""

    states: int
    actions: int
    pair: Ints  # [N] s*A + a
    next_state: Ints  # [N]
    probability: Floats  # [T, N]
    reward: Floats  # [N]
    field: str = "transition"  # the argument that holds the probabilities
    reward_axes: int = 3  # of the argument that holds the rewards: 2 if they are of pairs

    def sort(self) -> Listing:
        """Put outcomes in order, and add up the probabilities of those with the same pair, next state and reward."""
        order, first = distinct_rows(self.pair, self.next_state, self.reward)
        probability, kept = np.add.reduceat(self.probability[:, order], first, axis=1), order[first]
        columns = {name: getattr(self, name)[kept] for name in ("pair", "next_state", "reward")}
        return self._replace(probability=probability, **columns)

    def validate(self, rewards: RewardMap) -> None:
        """Refuse probabilities that are negative, not finite or do not sum to one, and rewards outside their range."""

        def where(o: int) -> tuple[int, ...]:
            return (*divmod(int(self.pair[o]), self.actions), int(self.next_state[o]))

        for t, row in enumerate(self.probability):
            step = () if len(self.probability) == 1 else (t,)
            for o in np.flatnonzero(~((row >= 0.0) & (row < math.inf)))[:1]:
                got, expected = float(row[o]), "a finite number >= 0"
                raise ProbabilityError(
                    self.field, got=got, expected=expected, index=(*step, *where(o))
                )
            total = np.bincount(self.pair, row, minlength=self.states * self.actions)
            for sa in np.flatnonzero(np.abs(total - 1.0) > TOLERANCE)[:1]:
                told, index = (
                    f"a row that sums to {total[sa]:.12g}",
                    (*step, *divmod(int(sa), self.actions)),
                )
                raise ProbabilityError(
                    self.field, got=told, expected=sum_to_one(total[sa]), index=index
                )
        for o in np.flatnonzero(~((self.reward >= rewards.low) & (self.reward <= rewards.high)))[
            :1
        ]:  # NaN is bad too
            earned, index = float(self.reward[o]), where(o)[: self.reward_axes]
            expected = f"a reward in [{rewards.low:g}, {rewards.high:g}]"
            expected += "; reward_range=(low, high) maps others onto [0, 1]" * math.isfinite(earned)
            field = "outcomes" if self.field == "outcomes" else "reward"
            raise RewardError(field, got=earned, expected=expected, index=index)


def sound_sparse(field: str, matrix: Any, *, keep_zeros: bool = False) -> Any:
    """Return a copy by rows, whose indices are in range (SciPy's compiled code trusts them), sorted, and each once."""
    csr = matrix.copy()
    try:
        if hasattr(csr, "check_format"):
            csr.check_format(full_check=True)
        csr = sp.csr_array(csr)
    except (TypeError, ValueError) as error:
        raise ShapeError(
            field, got=f"a sparse matrix: {error}", expected="indices in range"
        ) from error
    if csr.dtype.kind not in "biuf":
        raise ShapeError(
            field, got=f"dtype {csr.dtype}", expected="a sparse matrix of real numbers"
        )
    csr.sum_duplicates()
    if not keep_zeros:
        csr.eliminate_zeros()
    return csr


def _join(matrices: Sequence[Any]) -> tuple[Ints, Ints, Floats]:
    """Return the entries that any of some sparse matrices (S*A, S) has: pairs [N], s' [N], all values [n, N]."""
    pairs, states = matrices[0].shape
    if len(matrices) == 1:  # without another copy: it may be large
        pair = np.repeat(np.arange(pairs), np.diff(matrices[0].indptr))
        return (
            pair,
            matrices[0].indices.astype(np.int64),
            matrices[0].data.astype(np.float64)[np.newaxis],
        )
    entries = [matrix.tocoo() for matrix in matrices]
    cells = [entry.row.astype(np.int64) * states + entry.col for entry in entries]
    union = np.unique(np.concatenate(cells))
    values = np.zeros((len(matrices), union.size))
    for row, own, entry in zip(values, cells, entries, strict=True):
        row[np.searchsorted(union, own)] = entry.data
    return union // states, union % states, values


def _matrices(transition: Any, horizon: int) -> list[Any]:
    """Return P[s, a, s'], P[h, s, a, s'], a sparse matrix (S*A, S) or a sequence of H of these as sparse matrices."""
    matrices = [transition] if sp.issparse(transition) else transition
    if isinstance(matrices, Sequence) and any(sp.issparse(matrix) for matrix in matrices):
        shapes: list[Any] = [getattr(matrix, "shape", ()) for matrix in matrices]
        shape = shapes[0]
        whole = len(shape) == 2 and 0 not in shape and shape[0] % shape[1] == 0
        if not whole or set(shapes) != {shape} or len(shapes) not in (1, horizon):
            expected = f"sparse matrices (S*A, S), row s*A + a: one, or H = {horizon}"
            raise ShapeError(
                "transition", got=f"{len(shapes)} of shapes {shapes[:3]}", expected=expected
            )
        return [sound_sparse("transition", matrix) for matrix in matrices]
    dense = as_floats("transition", transition)
    if dense.ndim == 3:
        dense = dense[np.newaxis]
    elif dense.ndim != 4 or dense.shape[0] != horizon:
        raise ShapeError(
            "transition", got=dense.shape, expected=f"[S, A, S] or [H, S, A, S] with H = {horizon}"
        )
    if dense.shape[1] != dense.shape[3] or 0 in dense.shape:
        hint = (
            "; of P[a, s, s'], give np.moveaxis(P, 0, 1)"
            if dense.shape[2] == dense.shape[3]
            else ""
        )
        raise ShapeError(
            "transition", got=dense.shape[-3:], expected="[S, A, S] with S, A >= 1" + hint
        )
    return [sp.csr_array(kernel.reshape(-1, dense.shape[3])) for kernel in dense]


def read_arrays(transition: Any, reward: Any, horizon: int) -> Listing:
    """List what the reward table defines.

    That is the whole of a dense r[s, a, s'], the stored entries of a sparse one (S*A, S) together
    with all that the kernel can do, and the latter alone for r[s, a].
    """
    matrices = _matrices(transition, horizon)
    pairs, states = (int(size) for size in matrices[0].shape)
    actions = pairs // states
    if not sp.issparse(reward):
        dense = as_floats("reward", reward)
        if dense.shape == (states, actions):
            pair, after, probability = _join(matrices)
            return Listing(
                states, actions, pair, after, probability, dense.ravel()[pair], reward_axes=2
            )
        if dense.shape != (states, actions, states):
            expected = f"[S, A] = {(states, actions)} or [S, A, S] = {(states, actions, states)}"
            expected += "; of r[a, s], give r.T" * (dense.shape == (actions, states))
            raise ShapeError("reward", got=dense.shape, expected=expected)
        every = (
            np.tile(np.arange(states), pairs),
            np.arange(pairs + 1) * states,
        )  # zeros are stored, too
        reward = sp.csr_array((dense.ravel(), *every), shape=(pairs, states))
    elif (shape := getattr(reward, "shape", ())) != (pairs, states):
        raise ShapeError("reward", got=f"sparse {shape}", expected=f"(S*A, S) = {(pairs, states)}")
    pair, after, values = _join([*matrices, sound_sparse("reward", reward, keep_zeros=True)])
    return Listing(states, actions, pair, after, values[:-1], values[-1])


def _rows(table: Any, *index: int) -> list[Any]:
    """Return the entries of a mapping with keys 0, 1, ... or of a sequence."""
    if isinstance(table, Mapping) and set(table) == set(range(len(table))):
        table = [table[key] for key in range(len(table))]
    if not isinstance(table, (list, tuple)) or not table:
        expected = "entries for 0, 1, ..., as a mapping or a sequence"
        raise ShapeError("outcomes", got=f"{table!r:.100}", expected=expected, index=index or None)
    return list(table)


def read_table(table: Table, rewards: RewardMap) -> Listing:
    """Read a table of outcomes, as :class:`FiniteMDP` takes it.

    An outcome flagged ``terminated`` leads to a state where nothing more is earned. Where its own
    target is not of that kind (under every action it stays, with reward 0), a state S is added and
    led to.
    """
    rows = [_rows(row, s) for s, row in enumerate(_rows(table))]
    states, actions = len(rows), len(rows[0])
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
                try:
                    probability, after, reward, *flag = entry
                    entries.append(
                        (
                            s * actions + a,
                            float(probability),
                            after,
                            float(reward),
                            bool(flag and flag[0]),
                        )
                    )
                except (TypeError, ValueError):
                    expected = "(probability, next_state, reward[, terminated])"
                    raise ShapeError(
                        "outcomes", got=repr(entry), expected=expected, index=(s, a, i)
                    ) from None
                require_integer("outcomes", after, 0, ShapeError, (s, a, i), maximum=states - 1)
    pair, probability, after, reward, terminated = (
        np.array(column) for column in zip(*entries, strict=True)
    )
    goes_on = np.zeros(states, bool)  # states in which something can still happen
    goes_on[
        (pair // actions)[(probability > 0.0) & ((after != pair // actions) | (reward != 0.0))]
    ] = True
    ends = terminated & goes_on[after]
    if ends.any():
        if not rewards.low <= 0.0 <= rewards.high:
            raise ParameterError(
                "reward_range", got=tuple(rewards), expected="0 in it, earned after the end"
            )
        pair = np.append(pair, states * actions + np.arange(actions))
        after = np.append(np.where(ends, states, after), np.full(actions, states))
        probability, reward = (
            np.append(probability, np.ones(actions)),
            np.append(reward, np.zeros(actions)),
        )
        states += 1
    found = Listing(states, actions, pair, after, probability[np.newaxis], reward, "outcomes")
    found.validate(rewards)
    return found.sort()


def as_distributions(field: str, given: Any, expected: object = "probabilities") -> Floats:
    """Return rows [..., n] of probabilities as an array; refuse rows that are not distributions."""
    rows = as_floats(field, given, expected)
    for at in map(tuple, np.argwhere(~(np.isfinite(rows) & (rows >= 0.0)))[:1].tolist()):
        raise ProbabilityError(field, got=float(rows[at]), expected="a probability >= 0", index=at)
    total = rows.sum(axis=-1)
    for at in map(tuple, np.argwhere(np.abs(total - 1.0) > TOLERANCE)[:1].tolist()):
        got = f"a sum of {total[at]:.12g}"
        raise ProbabilityError(
            field, got=got, expected="probabilities that sum to 1", index=at or None
        )
    return rows


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
    """

    states: int
    actions: int
    horizon: int
    outcomes: Outcomes  # those that can happen at some step
    probability: Floats  # [T, O], T = 1 or H
    base_reward: (
        Floats  # [S*A] the part of the reward of each pair that no outcome changes: the least one
    )
    known: Known  # what an agent may know: sizes, rewards and where episodes start
    reward_noise: str | None

    def __init__(
        self,
        *,
        transition: ArrayLike | SparseMatrix | Sequence[SparseMatrix] | None = None,
        reward: ArrayLike | SparseMatrix | None = None,
        horizon: int,
        initial_state: int | ArrayLike = 0,
        outcomes: Table | None = None,
        reward_range: Sequence[float] | None = None,
        reward_noise: str | None = None,
    ) -> None:
        require_choice("reward_noise", reward_noise or "bernoulli", ("bernoulli",))
        horizon, rewards = require_integer("horizon", horizon, 1), reward_map(reward_range)
        if outcomes is not None:
            if transition is not None or reward is not None:
                raise ParameterError(
                    "outcomes", got="transition or reward as well", expected="outcomes alone"
                )
            listing = read_table(outcomes, rewards)
        elif transition is None or reward is None:
            name = "transition" if transition is None else "reward"
            raise ParameterError(name, got=None, expected="transition and reward, or outcomes")
        else:
            listing = read_arrays(transition, reward, horizon)
            listing.validate(rewards)
        states = listing.states
        stated = states if outcomes is None else len(outcomes)  # without an end that was added
        initial = np.zeros(states)
        if as_array("initial_state", initial_state).ndim == 0:
            initial[require_integer("initial_state", initial_state, 0, maximum=stated - 1)] = 1.0
        else:
            initial[:stated] = as_distributions("initial_state", initial_state, (stated,))
        self._set(listing, horizon, initial, rewards, reward_noise)

    @classmethod
    def of_listing(
        cls, listing: Listing, *, horizon: int, initial: Floats, unit: RewardMap, **more: Any
    ) -> FiniteMDP:
        """Return the problem of a listing that is known to be sound; a pair without outcomes is not allowed."""
        made = cls.__new__(cls)
        made._set(listing.sort(), horizon, initial, unit, None, **more)
        return made

    def _set(
        self,
        listing: Listing,
        horizon: int,
        initial: Floats,
        rewards: RewardMap,
        noise: str | None,
        **about: Any,
    ) -> None:
        """Fill in what was read; ``about`` is what else is known: names, unit_name, discount, continuing."""
        states, actions = listing.states, listing.actions
        absent = np.flatnonzero(np.bincount(listing.pair, minlength=states * actions) == 0)
        if absent.size:  # nobody may choose these; they stay where they are
            sure = np.ones((len(listing.probability), absent.size))
            listing = listing._replace(
                pair=np.append(listing.pair, absent),
                next_state=np.append(listing.next_state, absent // actions),
                probability=np.append(listing.probability, sure, axis=1),
                reward=np.append(listing.reward, np.full(absent.size, rewards.low)),
            ).sort()
        start = np.searchsorted(listing.pair, np.arange(states * actions + 1)).astype(np.int64)
        probability, earned = listing.probability, rewards.to_unit(listing.reward)
        base = np.minimum.reduceat(earned, start[:-1])
        every = Outcomes(
            read_only(start), read_only(listing.next_state), read_only(earned - base[listing.pair])
        )
        base[absent] = -np.inf
        base = read_only(base)
        possible, happens = every, probability.any(axis=0)
        if not happens.all():
            start, probability = np.append(0, np.cumsum(happens))[start], probability[:, happens]
            after, bonus = every.next_state[happens], every.bonus[happens]
            possible = Outcomes(read_only(start), read_only(after), read_only(bonus))
        table = (
            every if every.bonus.any() else None
        )  # rewards that no outcome changes count as r[s, a]
        about |= {"initial": read_only(initial), "unit": rewards}
        known = Known(states, actions, horizon, base.reshape(states, actions), table, **about)
        vars(self).update(
            states=states, actions=actions, horizon=horizon, outcomes=possible, base_reward=base
        )
        vars(self).update(probability=read_only(probability), known=known, reward_noise=noise)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"FiniteMDP cannot be changed (attribute {name!r})")

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: vars(self)[name] for name in FiniteMDP.__annotations__
        }  # nothing that can be derived

    def __repr__(self) -> str:
        kernels = "one kernel" if self.stationary else "a kernel per step"
        rewards = "r[s, a]" if self.known.transition_rewards is None else "rewards on transitions"
        rewards += f" with {self.reward_noise} noise" if self.reward_noise else ""
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
        """The expectation of V*_1 under the initial distribution, in the unit of the rewards as they were given."""
        return float(self.known.amount(self.initial_distribution @ self.optimal_values[0]))

    def value(self, policy: ArrayLike) -> float:
        """Return what a policy earns on average in an episode, exactly, in the unit of the rewards as given."""
        return float(self.known.amount(self.initial_distribution @ self.evaluate(policy)[0]))

    @property
    def optimal_policy(self) -> Ints:
        """An optimal policy [H, S]; ties go to the smallest action."""
        return self._solved[1]

    def evaluate(self, policy: ArrayLike) -> Floats:
        """Return V^pi [H + 1, S] of rewards in [0, 1], exactly, for actions [H, S] or their probabilities [H, S, A]."""
        chosen, shape = as_array("policy", policy), (self.horizon, self.states)
        if chosen.shape == (*shape, self.actions):
            chosen = as_distributions("policy", chosen)
        elif chosen.shape != shape or chosen.dtype.kind not in "iu":
            expected = f"integers {shape} or probabilities {(*shape, self.actions)}"
            raise ShapeError("policy", got=f"{chosen.dtype} {chosen.shape}", expected=expected)
        elif (wrong := np.argwhere((chosen < 0) | (chosen >= self.actions))).size:
            at, expected = tuple(wrong[0].tolist()), f"an action in 0..{self.actions - 1}"
            raise ParameterError("policy", got=int(chosen[at]), expected=expected, index=at)
        return bellman.evaluate(self.kernels, chosen)

    def kernel(self) -> Floats:
        """Return the dense kernel P[s, a, s'], or P[h, s, a, s'] if there is one per step; for small problems."""
        sizes = (self.states, self.actions, self.states)
        cell = self.outcomes.pair * self.states + self.outcomes.next_state
        dense = np.array(
            [np.bincount(cell, row, math.prod(sizes)) for row in self.probability], dtype=np.float64
        )
        return dense.reshape(sizes if self.stationary else (-1, *sizes))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the problem's arrays: equal for equal problems, in any process."""
        about = (
            self.states,
            self.actions,
            self.horizon,
            self.reward_noise,
            self.known.discount,
            self.known.continuing,
        )
        digest = hashlib.sha256(f"{about} {tuple(self.known.unit)} {self.known.names}".encode())
        for array in (
            *self.outcomes,
            self.probability,
            self.base_reward,
            self.initial_distribution,
        ):
            digest.update(np.ascontiguousarray(array).reshape(-1).data)
        return digest.hexdigest()


def as_mdp(problem: object) -> FiniteMDP:
    """Return a FiniteMDP, or the one that a problem has."""
    found = problem if isinstance(problem, FiniteMDP) else getattr(problem, "mdp", None)
    if not isinstance(found, FiniteMDP):
        expected = "a FiniteMDP, or a problem that has one"
        if hasattr(problem, "reset"):
            expected += (
                "; for a Gymnasium environment, call occamrl.learn(agent, env, episodes=...)"
            )
        elif hasattr(problem, "begin"):
            expected += "; the agent comes first"
        raise ParameterError("mdp", got=type(problem).__name__, expected=expected)
    return found


class NoisyProblem:
    """A problem with Bernoulli rewards (see :class:`FiniteMDP`); everything else is the problem's own."""

    def __init__(self, problem: Any, reward_noise: str) -> None:
        require_choice("reward_noise", reward_noise, ("bernoulli",))
        self.problem, self.reward_noise, self.mdp = (
            problem,
            reward_noise,
            copy.copy(as_mdp(problem)),
        )
        vars(self.mdp)["reward_noise"] = reward_noise

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "problem" not in vars(
            self
        ):  # a copy in the making has nothing yet
            raise AttributeError(name)
        return getattr(self.problem, name)

    def __repr__(self) -> str:
        return f"NoisyProblem({self.problem!r}, reward_noise={self.reward_noise!r})"
