"""How features are laid out for the compiled functions: dense vectors, sparse simulators, one-hot tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from occamrl.contracts import Floats, Ints, Known, Outcomes
from occamrl.errors import FeatureError, ShapeError
from occamrl.families.simulators import Entries, outcomes_of, pair_of_outcome, read_kernels, running
from occamrl.kernels.features import DenseFeatures, SparseFeatures, TabularFeatures
from occamrl.kernels.ridge import Blocks

Layout = DenseFeatures | SparseFeatures | TabularFeatures

_TOLERANCE = 1e-8  # for sums that should be one, as in FiniteMDP but for d-term sums
_INFEASIBLE = 2  # linprog's status


def stacked_kernels(kernels: Sequence[Any]) -> Floats:
    """Return dense kernels of one shape as phi [S, A, S, d]."""
    arrays = [np.asarray(kernel, dtype=np.float64) for kernel in kernels]
    for j, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ShapeError("phi", index=(j,), got=array.shape, expected=arrays[0].shape)
    return np.stack(arrays, axis=-1)


def shared_blocks(of: Ints, sizes: Ints | int) -> Blocks:
    """Return the blocks of coordinates where (s, a) uses block ``of[s*A + a]``, which has ``sizes[s*A + a]``."""
    size = np.zeros(int(of.max()) + 1, dtype=np.int64)
    size[of] = sizes
    return Blocks(of, size, running(size), running(size * size))


def dense_layout(phi: Floats) -> tuple[Layout, int, int, int]:
    """Return the layout of phi [S, A, S, d], and S, A, d; what is zero in all coordinates is no outcome."""
    if phi.ndim != 4 or phi.shape[0] != phi.shape[2] or 0 in phi.shape:
        raise ShapeError("phi", got=phi.shape, expected="[S, A, S, d], or a list of kernels [S, A, S]")
    bad = np.argwhere(~np.isfinite(phi))
    if bad.size:
        at = tuple(int(i) for i in bad[0])
        raise FeatureError("phi", index=at, got=phi[at], expected="a finite number")
    states, actions, _, dimension = phi.shape
    rows = phi.reshape(states * actions, states, dimension)
    possible = (rows != 0.0).any(axis=2)
    pair, next_state = np.nonzero(possible)
    outcomes = outcomes_of("phi", pair, next_state, states * actions)
    return DenseFeatures(outcomes, np.ascontiguousarray(rows[possible])), states, actions, dimension


def layout_of_sparse(kernels: Sequence[Any]) -> tuple[Layout, int, int, int]:
    """List the non-zero entries of each (s, a), coordinate by coordinate."""
    return sparse_layout(read_kernels("phi", kernels), len(kernels))


def sparse_layout(entries: Entries, dimension: int) -> tuple[Layout, int, int, int]:
    """Return the layout of entries that were read from kernels or problems, and S, A, d."""
    outcomes = entries.outcomes
    pair = pair_of_outcome(outcomes)[entries.outcome]
    order = np.argsort(pair, kind="stable")
    layout = SparseFeatures(
        outcomes,
        running(np.bincount(pair, minlength=entries.states * entries.actions)),
        (entries.outcome - outcomes.start[pair])[order],
        entries.kernel[order],
        entries.value[order],
    )
    return layout, entries.states, entries.actions, dimension


def require_some_kernel(layout: Layout, actions: int, entries: Any) -> None:
    """Refuse features for which no theta makes a kernel: <phi_1(s, a), theta> = 1 and <phi, theta> >= 0.

    ``entries`` is phi as a matrix [O, d], sparse or not.
    """
    pairs, dimension = layout.outcomes.start.size - 1, entries.shape[1]
    if isinstance(layout, DenseFeatures):
        sums = np.add.reduceat(layout.phi, layout.outcomes.start[:-1], axis=0)
    elif isinstance(layout, SparseFeatures):
        pair = np.repeat(np.arange(pairs), np.diff(layout.start))
        sums = sp.coo_array((layout.entry, (pair, layout.coordinate)), shape=(pairs, dimension)).toarray()
    else:
        return
    distinct = np.unique(np.round(sums, 12), axis=0)
    theta = np.linalg.lstsq(distinct, np.ones(len(distinct)), rcond=None)[0]
    gaps = np.abs(sums @ theta - 1.0)
    worst = int(np.argmax(gaps))
    if gaps[worst] > _TOLERANCE:
        raise FeatureError(
            "phi",
            index=divmod(worst, actions),
            got="features for which no theta makes the probabilities of every (s, a) sum to one",
            expected="some theta with sum over s' of <phi(s, a, s'), theta> = 1 for all (s, a)",
        )
    if (entries @ theta).min() >= -_TOLERANCE:  # the smallest theta that sums to one: nearly always a kernel
        return
    from scipy.optimize import linprog  # slow to import, and seldom needed

    found: Any = linprog(
        np.zeros(dimension),
        A_ub=-entries,
        b_ub=np.full(entries.shape[0], _TOLERANCE),
        A_eq=distinct,
        b_eq=np.ones(len(distinct)),
        bounds=(None, None),
    )
    if found.status == _INFEASIBLE:
        raise FeatureError(
            "phi",
            got="features for which no theta makes all probabilities >= 0",
            expected="some theta for which <phi(s, a, .), theta> is a distribution for all (s, a)",
        )


def with_bonus(outcomes: Outcomes, known: Known) -> Outcomes:
    """Look up the bonus of every outcome in the reward table of the problem."""
    table = known.transition_rewards
    if table is None:
        return outcomes._replace(bonus=np.zeros(outcomes.next_state.size))
    ours = pair_of_outcome(outcomes) * known.states + outcomes.next_state
    theirs = pair_of_outcome(table) * known.states + table.next_state
    order = np.argsort(theirs, kind="stable")
    keys = theirs[order]
    at = np.searchsorted(keys, ours)
    found = at < keys.size
    found[found] = keys[at[found]] == ours[found]
    twice = found & (np.searchsorted(keys, ours, side="right") - at > 1)
    for problem, what in ((~found, "no known reward"), (twice, "several rewards for one next state")):
        if problem.any():
            o = int(np.argmax(problem))
            pair, s2 = divmod(int(ours[o]), known.states)
            raise FeatureError(
                "features",
                index=(*divmod(pair, known.actions), s2),
                got=what,
                expected="a reward fixed by (s, a, s') for every outcome of the features",
            )
    return outcomes._replace(bonus=table.bonus[order][at])
