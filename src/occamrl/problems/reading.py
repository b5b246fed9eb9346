"""Kernels and rewards as people write them - dense, sparse, one or one per step - turned into a listing.

Sparse input is never made dense: an entry (s, a, s') is known by its *cell* (s*A + a)*S + s', and matching two sparse
patterns is a search in sorted cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from occamrl.contracts import Floats, Ints
from occamrl.errors import ShapeError
from occamrl.problems.checks import as_floats
from occamrl.problems.listing import Listing


@runtime_checkable
class Sparse(Protocol):
    """What a scipy.sparse matrix or array offers and is used here; recognised without importing SciPy."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the sizes."""

    def tocsr(self, copy: bool = False) -> Any:
        """Return the matrix in compressed rows."""


class Kernel(NamedTuple):
    """The non-zero entries of P_h(s' | s, a)."""

    states: int
    actions: int
    cell: Ints  # [N] increasing; those of all steps together
    probability: Floats  # [T, N]


def is_sparse(value: object) -> TypeGuard[Sparse]:
    """Say whether ``value`` is a sparse matrix."""
    return isinstance(value, Sparse)


def _entries(field: str, matrix: Sparse, states: int, *, keep_zeros: bool) -> tuple[Ints, Floats]:
    """Return the cells and values of a sparse matrix (S*A, S), duplicates added up."""
    csr = matrix.tocsr(copy=True)
    if csr.dtype.kind not in "biuf":
        raise ShapeError(field, got=f"dtype {csr.dtype}", expected="a sparse matrix of real numbers")
    csr.sum_duplicates()
    if not keep_zeros:
        csr.eliminate_zeros()
    row = np.repeat(np.arange(csr.shape[0], dtype=np.int64), np.diff(csr.indptr))
    return row * states + csr.indices.astype(np.int64), csr.data.astype(np.float64)


def _spread(cell: Ints, value: Floats, cells: Ints) -> Floats:
    """Return the values at ``cells``, a sorted list that holds every ``cell``; 0 where there is none."""
    spread = np.zeros(cells.size)
    spread[np.searchsorted(cells, cell)] = value
    return spread


def read_kernel(transition: ArrayLike | Sparse | Sequence[Sparse], horizon: int) -> Kernel:
    """Read P[s, a, s'], P[h, s, a, s'], a sparse matrix (S*A, S), or a sequence of H of these."""
    if is_sparse(transition):
        return _sparse_kernel([transition], horizon)
    if isinstance(transition, Sequence) and any(is_sparse(matrix) for matrix in transition):
        return _sparse_kernel(transition, horizon)
    dense = as_floats("transition", transition)
    if dense.ndim == 3:
        dense = dense[np.newaxis]
    elif dense.ndim != 4 or dense.shape[0] != horizon:
        raise ShapeError(
            "transition", got=f"shape {dense.shape}", expected=f"[S, A, S] or [H, S, A, S] with H = {horizon}"
        )
    steps, states, actions, targets = dense.shape
    if states != targets or states == 0 or actions == 0:
        raise ShapeError("transition", got=f"shape {dense.shape[-3:]}", expected="[S, A, S] with S, A >= 1")
    cell = np.flatnonzero((dense != 0.0).any(axis=0))
    return Kernel(states, actions, cell, dense.reshape(steps, -1)[:, cell])


def _sparse_kernel(matrices: Sequence[Any], horizon: int) -> Kernel:
    if len(matrices) not in (1, horizon):
        raise ShapeError("transition", got=f"{len(matrices)} sparse matrices", expected=f"one, or H = {horizon}")
    shape = matrices[0].shape
    for matrix in matrices:
        if not is_sparse(matrix):
            raise ShapeError("transition", got=f"a {type(matrix).__name__} among them", expected="sparse matrices only")
        if matrix.shape != shape:
            raise ShapeError("transition", got=f"shapes {shape} and {matrix.shape}", expected="one shape")
    if len(shape) != 2 or 0 in shape or shape[0] % shape[1]:
        raise ShapeError("transition", got=f"a sparse matrix of shape {shape}", expected="(S*A, S), row s*A + a")
    states, actions = int(shape[1]), int(shape[0] // shape[1])
    entries = [_entries("transition", matrix, states, keep_zeros=False) for matrix in matrices]
    cells = np.unique(np.concatenate([cell for cell, _ in entries]))
    return Kernel(states, actions, cells, np.stack([_spread(cell, value, cells) for cell, value in entries]))


def with_rewards(kernel: Kernel, reward: ArrayLike | Sparse) -> tuple[Listing, bool]:
    """Put rewards r[s, a], r[s, a, s'] or a sparse matrix (S*A, S) beside a kernel; say whether they are r[s, a].

    The listing holds what the reward table defines: the whole of a dense r[s, a, s'], the stored entries of a sparse
    one together with all that the kernel can do (unstored entries are 0), and the latter alone for r[s, a].
    """
    states, actions, cell, probability = kernel
    of_pair = False
    if is_sparse(reward):
        if tuple(reward.shape) != (states * actions, states):
            expected = f"(S*A, S) = {(states * actions, states)}"
            raise ShapeError("reward", got=f"a sparse matrix of shape {tuple(reward.shape)}", expected=expected)
        reward_cell, value = _entries("reward", reward, states, keep_zeros=True)
        cells = np.union1d(cell, reward_cell)
        rewards = _spread(reward_cell, value, cells)
    else:
        dense = as_floats("reward", reward)
        if dense.shape == (states, actions):
            cells, rewards, of_pair = cell, dense.ravel()[cell // states], True
        elif dense.shape == (states, actions, states):
            cells, rewards = np.arange(dense.size), dense.ravel()
        else:
            expected = f"[S, A] = {(states, actions)} or [S, A, S] = {(states, actions, states)}"
            raise ShapeError("reward", got=f"shape {dense.shape}", expected=expected)
    spread = np.stack([_spread(cell, p, cells) for p in probability])
    return Listing(cells // states, cells % states, spread, rewards), of_pair
