"""Estimates and norms of all (s, a) at once, where all of them share one target function.

With few coordinates the loops over them are too short for vector instructions. When every (s, a) has the same outcomes,
the index (s, a) itself can run innermost: arrays are kept transposed, [.., P] with P = S*A, and each line below is one
long loop.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from occamrl.contracts import Floats
from occamrl.kernels.compile import hot

NONE, SHARED_BLOCK, BLOCK_PER_PAIR = range(3)
MOST_COORDINATES = 32  # beyond this the loops over coordinates are long enough


class Batch(NamedTuple):
    """Transposed copies; all but ``phi`` are scratch that is filled at every plan."""

    kind: int
    phi: Floats  # [n, d, P] of a dense map
    factor: Floats  # [n, n, P] of a tabular map
    theta: Floats  # [n, P] of a tabular map
    x: Floats  # [d, P] of a dense map
    sum: Floats  # [P]


def empty_batch() -> Batch:
    """Return a batch that is not used."""
    return Batch(NONE, np.zeros((1, 1, 1)), np.zeros((1, 1, 1)), np.zeros((1, 1)), np.zeros((1, 1)), np.zeros(1))


def dense_batch(phi: Floats, pairs: int) -> Batch:
    """Return the batch of a dense map phi [P*n, d] in which every (s, a) has the same n outcomes."""
    d = phi.shape[1]
    turned = np.ascontiguousarray(phi.reshape(pairs, -1, d).transpose(1, 2, 0))
    return empty_batch()._replace(kind=SHARED_BLOCK, phi=turned, x=np.zeros((d, pairs)), sum=np.zeros(pairs))


def tabular_batch(outcomes: int, pairs: int) -> Batch:
    """Return the batch of a tabular map with the same n outcomes for every (s, a)."""
    return empty_batch()._replace(
        kind=BLOCK_PER_PAIR,
        factor=np.zeros((outcomes, outcomes, pairs)),
        theta=np.zeros((outcomes, pairs)),
        sum=np.zeros(pairs),
    )


@hot
def turn_blocks(batch: Batch, factor: Floats, theta: Floats) -> None:
    """Copy the packed blocks of a tabular map into the transposed arrays."""
    n, pairs = batch.theta.shape
    blocks = factor.reshape((pairs, n, n))
    vectors = theta.reshape((pairs, n))
    for j in range(n):
        for sa in range(pairs):
            batch.theta[j, sa] = vectors[sa, j]
        for i in range(j, n):
            for sa in range(pairs):
                batch.factor[j, i, sa] = blocks[sa, j, i]


@hot
def predict_shared(batch: Batch, factor: Floats, theta: Floats, target: Floats, mean: Floats, norm: Floats) -> None:
    """Write <x, theta> and ||x||^2 = |W^T x|^2 for all (s, a), x = sum_o phi(o) target(o)."""
    n, d, pairs = batch.phi.shape
    x, total = batch.x, batch.sum
    mean[:] = 0.0
    norm[:] = 0.0
    for j in range(d):
        for sa in range(pairs):
            x[j, sa] = batch.phi[0, j, sa] * target[0]
    for o in range(1, n):
        w = target[o]
        for j in range(d):
            for sa in range(pairs):
                x[j, sa] += batch.phi[o, j, sa] * w
    for i in range(d):
        t = theta[i]
        for sa in range(pairs):
            mean[sa] += x[i, sa] * t
        total[:] = 0.0
        for j in range(i + 1):
            f = factor[j, i]
            for sa in range(pairs):
                total[sa] += x[j, sa] * f
        for sa in range(pairs):
            norm[sa] += total[sa] * total[sa]


@hot
def predict_tabular(batch: Batch, target: Floats, mean: Floats, norm: Floats) -> None:
    """Write <x, theta_sa> and |W_sa^T x|^2 for all (s, a), x being the target function itself."""
    n, pairs = batch.theta.shape
    total = batch.sum
    mean[:] = 0.0
    norm[:] = 0.0
    for i in range(n):
        w = target[i]
        for sa in range(pairs):
            mean[sa] += batch.theta[i, sa] * w
        total[:] = 0.0
        for j in range(i + 1):
            w = target[j]
            for sa in range(pairs):
                total[sa] += batch.factor[j, i, sa] * w
        for sa in range(pairs):
            norm[sa] += total[sa] * total[sa]
