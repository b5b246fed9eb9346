"""Reading lists of kernels, dense or sparse, into one layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from occamrl.errors import FeatureError, ParameterError, ProbabilityError, ShapeError, require_integer
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats, Ints, Outcomes
from occamrl.seeding import Step, stream

# ----------------------------------------------------------------------------------------------------
# A kernel estimated from a simulator that can only be called, and how wrong the estimate can be.
#
# With N draws at (s, a) and the frequencies :math:`\hat p`, the total variation distance to the true law is, with
# probability 1 - delta,
#
# .. math:: \sup_B |\hat p(B) - p(B)| \le \sum_{s'} \sqrt{\hat p(s')/N} + 3\sqrt{\log(2/\delta)/(2N)}
#
# (Cohen, Kontorovich and Wolfer, "Learning discrete distributions with infinite support", NeurIPS 2020): the first term
# is twice the empirical Rademacher complexity of all events, :math:`\frac1{N}\sum_{s'} E|\sum_{i: s_i = s'} \sigma_i|`,
# at most its standard deviation form; the second is McDiarmid's inequality, twice. It holds for all events at once,
# which is what is needed: value functions are planned with the estimate, so they are not independent of it. It does not
# need to know how many states can follow, and is small where few do.
#
# A range-weighted target (W - c)/R lies in [-1/2, 1/2], so its mean under the estimate is wrong by at most that distance.


Simulate = Callable[[int, int, np.random.Generator], int]  # simulate(s, a, rng) -> s'

_MOST_DRAWS = 10**9


def estimate_kernel(
    simulate: Simulate, *, states: int, actions: int, draws: int, seed: int, path: tuple[Step, ...] = ()
) -> Any:
    """Return the frequencies of ``draws`` calls at every (s, a), as a sparse matrix (S*A, S).

    Each (s, a) has a generator of its own, found by its address: the estimate does not depend on any order.
    """
    pairs = states * actions
    if draws * pairs > _MOST_DRAWS:
        raise ParameterError("draws", got=draws, expected=f"at most {_MOST_DRAWS // pairs:,} for {pairs:,} pairs")
    counts = sp.lil_array((pairs, states))
    for pair in range(pairs):
        s, a = divmod(pair, actions)
        rng = stream(seed, "simulator", *path, s, a)
        try:
            drawn = [simulate(s, a, rng) for _ in range(draws)]
        except Exception as error:  # of the user's function, which may raise anything
            got = f"{type(error).__name__}: {error}"
            raise ProbabilityError("simulate", index=(s, a), got=got, expected="a next state") from error
        found = np.bincount([_next(each, s, a, states) for each in drawn], minlength=states)
        for s2 in np.flatnonzero(found):
            counts[pair, s2] = found[s2] / draws
    return sp.csr_array(counts)


def _next(value: Any, s: int, a: int, states: int) -> int:
    try:
        s2 = require_integer("next state", value, 0)
    except ParameterError:
        s2 = states
    if s2 >= states:
        expected = f"a next state in 0..{states - 1}"
        raise ProbabilityError("simulate", index=(s, a), got=repr(value), expected=expected)
    return s2


def variation_errors(estimate: Any, draws: int, delta: float) -> Floats:
    """Return a bound on the total variation error of every row of an estimate; each holds with probability 1 - delta.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> round(float(variation_errors(sp.csr_array([[0.5, 0.5]]), 10_000, 0.1)[0]), 4)  # sqrt(2/N) + 3 sqrt(log 20/2N)
    0.0509
    """
    roots = np.asarray(np.sqrt(estimate).sum(axis=1), dtype=np.float64).ravel()
    bound: Floats = roots / math.sqrt(draws) + 3.0 * math.sqrt(math.log(2.0 / delta) / (2.0 * draws))
    return np.minimum(bound, 1.0)


# ----------------------------------------------------------------------------------------------------
# Reading lists of kernels, dense or sparse, into one layout.


class Entries(NamedTuple):
    """The non-zero entries of several kernels over the union of their outcomes."""

    outcomes: Outcomes  # the union, O in all; bonus is zero
    outcome: Ints  # [E] index of the entry's outcome, in 0..O-1
    kernel: Ints  # [E] which kernel the entry belongs to
    value: Floats  # [E]
    states: int
    actions: int


def running(sizes: Ints) -> Ints:
    """Return where each of consecutive pieces begins, and where the last ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def any_sparse(kernels: Any) -> bool:
    """Whether this is a list with a scipy.sparse kernel in it."""
    return isinstance(kernels, Sequence) and any(sp.issparse(kernel) for kernel in kernels)


def read_kernels(field: str, kernels: Sequence[Any]) -> Entries:
    """Return the entries of a list of kernels, each dense [S, A, S] or scipy.sparse of shape (S*A, S)."""
    pairs: list[Ints] = []
    successors: list[Ints] = []
    owners: list[Ints] = []
    values: list[Floats] = []
    shape: tuple[int, int] | None = None
    for j, kernel in enumerate(kernels):
        flat: Any = kernel if sp.issparse(kernel) else np.reshape(kernel, (-1, np.shape(kernel)[-1]))
        matrix: Any = sp.coo_array(flat)
        if (
            matrix.ndim != 2
            or 0 in matrix.shape
            or matrix.shape[0] % matrix.shape[1]
            or shape not in (None, matrix.shape)
        ):
            raise ShapeError(field, index=(j,), got=matrix.shape, expected=shape or "(S*A, S)")
        shape = matrix.shape
        matrix.sum_duplicates()
        kept = matrix.data != 0.0
        if not np.isfinite(matrix.data).all():
            raise FeatureError(field, index=(j,), got="a value that is not finite", expected="finite numbers")
        pairs.append(matrix.coords[0][kept].astype(np.int64))
        successors.append(matrix.coords[1][kept].astype(np.int64))
        owners.append(np.full(int(kept.sum()), j, dtype=np.int64))
        values.append(matrix.data[kept].astype(np.float64))
    if shape is None:
        raise FeatureError(field, got="an empty list", expected="at least one kernel")
    states = shape[1]
    distinct, outcome = np.unique(np.concatenate(pairs) * states + np.concatenate(successors), return_inverse=True)
    outcomes = outcomes_of(field, distinct // states, distinct % states, shape[0])
    return Entries(
        outcomes,
        outcome.astype(np.int64),
        np.concatenate(owners),
        np.concatenate(values),
        states,
        shape[0] // states,
    )


def read_problems(simulators: Sequence[FiniteMDP]) -> tuple[Entries, Floats]:
    """Return the entries of the kernels of several problems over the union of their (s', reward), and those rewards."""
    if not simulators:
        raise FeatureError("simulators", got="an empty list", expected="at least one problem")
    states, actions = simulators[0].states, simulators[0].actions
    rows: list[Floats] = []
    for j, mdp in enumerate(simulators):
        if (mdp.states, mdp.actions) != (states, actions) or not mdp.stationary:
            got = f"S={mdp.states}, A={mdp.actions}" + ("" if mdp.stationary else ", a kernel per step")
            raise ShapeError("simulators", index=(j,), got=got, expected=f"S={states}, A={actions}, one kernel")
        truth = mdp.truth
        pair = pair_of_outcome(truth.outcomes)
        reward = truth.base_reward[pair] + truth.outcomes.bonus
        columns = (pair, truth.outcomes.next_state, reward, np.full(pair.size, j), truth.probability[0])
        rows.append(np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1))
    table = np.concatenate(rows)
    # Rewards that are equal up to rounding are one outcome, with the first of them as its reward.
    rounded = np.round(table[:, :3], 12)
    distinct, first, outcome = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    pair, next_state = distinct[:, 0].astype(np.int64), distinct[:, 1].astype(np.int64)
    outcomes = outcomes_of("simulators", pair, next_state, states * actions)
    entries = Entries(outcomes, outcome.ravel(), table[:, 3].astype(np.int64), table[:, 4].copy(), states, actions)
    return entries, np.ascontiguousarray(table[first, 2])


def outcomes_of(field: str, pair: Ints, next_state: Ints, pairs: int) -> Outcomes:
    """Return the outcomes listed by (s, a) index and next state, sorted by the first; every (s, a) needs one."""
    counts = np.bincount(pair, minlength=pairs)
    if not counts.all():
        raise FeatureError(
            field, index=(int(np.argmin(counts)),), got="no next state", expected="at least one for every s*A + a"
        )
    return Outcomes(running(counts), np.ascontiguousarray(next_state), np.zeros(next_state.size))


def pair_of_outcome(outcomes: Outcomes) -> Ints:
    """Return the index s*A + a that each outcome belongs to."""
    return np.repeat(np.arange(outcomes.start.size - 1), np.diff(outcomes.start))
