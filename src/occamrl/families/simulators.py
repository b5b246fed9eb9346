"""Reading lists of kernels, dense or sparse, into one layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from occamrl.contracts import Floats, Ints, Outcomes
from occamrl.errors import FeatureError, ShapeError
from occamrl.problems.finite_mdp import FiniteMDP


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
