"""Ridge statistics Sigma = lambda I + sum x x^T (M8), one block after another in flat arrays.

A block of n coordinates has its matrix at ``matrix_start[b]`` (row-major, n*n numbers) and its vectors at
``vector_start[b]``. One dense block serves a shared parameter; one per (s, a) serves one-hot features, so that
d = S^2 A never becomes a d-by-d matrix.

Sigma itself is the state: rows are added to it and it is factorised afresh when a plan is due, so rounding errors do
not travel from one factorisation to the next. Only where few rows meet a large block do they update its factor, and no
more than n of them before it is made afresh. Sums run in a fixed order over independent lanes (no reassociation),
which keeps them vectorised and equal to the bit wherever the function is inlined.

With few coordinates the loops over them are too short for vector instructions. Where every (s, a) has the same
outcomes, the index (s, a) itself can run innermost: :func:`predict_shared` and :func:`predict_tabular` compute the
estimates and norms of all pairs at once from transposed arrays, [.., P] with P = S*A.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from occamrl._core.arena import part, square
from occamrl._core.compile import hot, hot_inline
from occamrl.protocols import Floats, Ints

_ROUNDING = 2.0**-53
NOTHING = 2.0**-10  # the part of Sigma that rounding may be, in any direction, before anything is done
ROUNDED = 2.0**-6  # of what lambda is raised by, then
CARE = 1.0 + 2.0**-3  # more than that does to a width, once lambda was raised
MOST_COORDINATES = 512  # of a batch, whose transposed arrays are as large as phi itself
LARGE_BLOCK = 32  # coordinates of a block whose factor may be updated,
FEW_ROWS = 8  # namely where there are at least that many coordinates to a row


class Blocks(NamedTuple):
    """Where the coordinates of each (s, a) live."""

    of: Ints  # [S*A] the block of (s, a), among those of one step
    size: Ints  # [B] coordinates of a block; [T*B] with one kernel per step, a step's blocks together
    vector_start: Ints  # [B + 1]
    matrix_start: Ints  # [B + 1]


def stacked(blocks: Blocks, steps: int) -> Blocks:
    """Return the blocks of ``steps`` regressions of the same kind, one after the other."""
    if steps == 1:
        return blocks
    size = np.tile(blocks.size, steps)
    starts = (np.concatenate([[0], np.cumsum(n)]).astype(np.int64) for n in (size, size * size))
    return Blocks(blocks.of, size, *starts)


@hot_inline
def dot(a: Floats, b: Floats, n: int) -> float:
    """Return the sum of a[i] b[i] for i < n, in four interleaved partial sums."""
    s0 = s1 = s2 = s3 = 0.0
    for q in range(n // 4):
        i = 4 * q
        s0 += a[i] * b[i]
        s1 += a[i + 1] * b[i + 1]
        s2 += a[i + 2] * b[i + 2]
        s3 += a[i + 3] * b[i + 3]
    for i in range(n - n % 4, n):
        s0 += a[i] * b[i]
    return (s0 + s1) + (s2 + s3)


@hot
def add_row(matrix: Floats, weight: float, x: Floats) -> None:
    """Add weight * x x^T to a block."""
    n = matrix.shape[0]
    for i in range(n):
        wx = weight * x[i]
        for j in range(n):
            matrix[i, j] += wx * x[j]


@hot
def invert_factor(matrix: Floats, raised: float, out: Floats, work: Floats) -> float:
    """Write W = U^{-1} (upper triangular), where Sigma + raised diag(Sigma) = U^T U, to ``out``; return its logdet.

    Then W W^T is the inverse. ``work`` has the shape of the block. Pivots are at least the rounding of their own
    diagonal entry, so that the factor exists where rounding has taken all that was left.
    """
    n = matrix.shape[0]
    for i in range(n):
        for j in range(n):
            work[i, j] = matrix[i, j]
        work[i, i] += raised * matrix[i, i]
    logdet = 0.0
    for k in range(n):  # right-looking Cholesky: row k of U, then its outer product leaves the rest
        if math.isnan(work[k, k]):
            raise ValueError("the regression matrix holds a value that is not a number")
        pivot = max(work[k, k], _ROUNDING * matrix[k, k])
        work[k, k] = pivot
        logdet += math.log(pivot)
        root = 1.0 / math.sqrt(pivot)
        for j in range(k, n):
            work[k, j] *= root
        for i in range(k + 1, n):
            u = work[k, i]
            for j in range(i, n):
                work[i, j] -= u * work[k, j]
    for i in range(n):  # W U = I, row by row: W[i, :] starts as e_i and loses its part along the rows of U
        for j in range(n):
            out[i, j] = 0.0
        out[i, i] = 1.0
        for k in range(i, n):
            w = out[i, k] / work[k, k]
            out[i, k] = w
            for j in range(k + 1, n):
                out[i, j] -= w * work[k, j]
    return logdet


@hot
def update_factor(factor: Floats, weight: float, x: Floats, work: Floats) -> float:
    """Turn W of Sigma into that of Sigma + weight x x^T; return by how much logdet grows.

    It takes O(n^2) operations instead of O(n^3). With z = W^T x, Sigma + c x x^T = U^T (I + c z z^T) U, and I + c z z^T
    has a Cholesky factor in closed form: with s_j = 1 + c (z_0^2 + ... + z_j^2) and s_{-1} = 1, the new W is

        W'_ij = ( W_ij - c z_j (sum over k < j of W_ik z_k) / s_{j-1} ) sqrt(s_{j-1} / s_j).
    """
    n = factor.shape[0]
    transform(factor, x, work)
    z, shrink, share = part(work, 0, n), part(work, n, n), part(work, 2 * n, n)
    before = 1.0
    for j in range(n):
        after = before + weight * z[j] * z[j]
        shrink[j] = math.sqrt(before / after)
        share[j] = weight * z[j] / before
        before = after
    for i in range(n):
        total = 0.0
        for j in range(i, n):
            w = factor[i, j]
            factor[i, j] = (w - share[j] * total) * shrink[j]
            total += w * z[j]
    return math.log(before)


@hot
def solve(factor: Floats, rhs: Floats, out: Floats, work: Floats) -> None:
    """Write theta = W W^T rhs to ``out``."""
    n = factor.shape[0]
    transform(factor, rhs, work)
    for j in range(n):
        total = 0.0
        for i in range(j, n):
            total += factor[j, i] * work[i]
        out[j] = total


@hot_inline
def transform(factor: Floats, x: Floats, out: Floats) -> None:
    """Write W^T x to ``out``."""
    n = factor.shape[0]
    for i in range(n):
        out[i] = 0.0
    for j in range(n):
        xj = x[j]
        for i in range(j, n):
            out[i] += factor[j, i] * xj


@hot_inline
def squared_norm(factor: Floats, x: Floats, work: Floats) -> float:
    """Return ||x||^2 in Sigma^{-1}, that is |W^T x|^2."""
    transform(factor, x, work)
    return dot(work, work, factor.shape[0])


@hot
def refactor(
    sigma: Floats, xy: Floats, factor: Floats, theta: Floats, work: Floats, regularization: float, additions: int
) -> tuple[float, float]:
    """Factorise Sigma afresh; its inverse factor and the estimate follow (M8).

    Return logdet(Sigma / lambda), and by how much lambda was raised, at most: a width sqrt(beta) then becomes
    ``CARE`` sqrt(beta + raised b^2).

    After N additions the matrix in use is Sigma + E with |v^T E v| <= e v^T D v, D = diag(Sigma), e = n (N + 2n) 2^-53:
    at most the part e tr(D Sigma^-1) of it in any direction, while the estimate moves by the root of that times
    e theta^T D theta. Where the part is not below 2^-10, or the estimate may move by 2^-10, lambda is lost beside the
    features, and a direction of which nothing is known may look known. The diagonal is then raised by 2^6 e of itself:
    E is at most 2^-6 of that. Proof: M11.
    """
    n, raised, known, moved, largest = sigma.shape[0], 0.0, 0.0, 0.0, 0.0
    error = n * (additions + 2.0 * n) * _ROUNDING
    logdet = invert_factor(sigma, 0.0, factor, square(work, 0, n))
    solve(factor, xy, theta, work)
    for i in range(n):
        known += error * sigma[i, i] * dot(factor[i], factor[i], n)
        moved += error * sigma[i, i] * theta[i] * theta[i]
        largest = max(largest, sigma[i, i])
    if not known * (1.0 + moved / NOTHING) < NOTHING:
        raised = error / ROUNDED
        logdet = invert_factor(sigma, raised, factor, square(work, 0, n))
        solve(factor, xy, theta, work)
    return logdet - n * math.log(regularization), raised * largest


@hot
def turn_blocks(factor: Floats, theta: Floats, turned: Floats, turned_theta: Floats) -> None:
    """Copy the packed blocks of a tabular map, n coordinates each, into transposed arrays [n*n, P] and [n, P]."""
    n, pairs = turned_theta.shape
    for sa in range(pairs):
        for j in range(n):
            turned_theta[j, sa] = theta[sa * n + j]
            for i in range(j, n):
                turned[j * n + i, sa] = factor[(sa * n + j) * n + i]


@hot
def predict_shared(
    phi: Floats, x: Floats, total: Floats, factor: Floats, theta: Floats, target: Floats, mean: Floats, norm: Floats
) -> None:
    """Write <x, theta> and ||x||^2 = |W^T x|^2 for all (s, a), x = sum_o phi(o) target(o); ``phi`` is [n*d, P]."""
    d, pairs = x.shape
    count = phi.shape[0] // d
    for j in range(d):
        row = x[j]
        for sa in range(pairs):
            row[sa] = phi[j, sa] * target[0]
        for o in range(1, count - 3, 4):
            k = o * d + j
            add_four(row, phi[k], phi[k + d], phi[k + 2 * d], phi[k + 3 * d], target, o)
        for o in range(count - (count - 1) % 4, count):
            w = target[o]
            for sa in range(pairs):
                row[sa] += phi[o * d + j, sa] * w
    predict_rows(x, total, factor, theta, mean, norm)


@hot_inline
def add_four(out: Floats, a: Floats, b: Floats, c: Floats, d: Floats, weights: Floats, i: int) -> None:
    """Add four rows times their weights, one after the other: the same bits as one by one, in a third of the time."""
    p, q, r, s = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
    for k in range(out.size):
        out[k] = (((out[k] + a[k] * p) + b[k] * q) + c[k] * r) + d[k] * s


@hot
def predict_rows(x: Floats, total: Floats, factor: Floats, theta: Floats, mean: Floats, norm: Floats) -> None:
    """Write <x, theta> and ||x||^2 = |W^T x|^2 of as many columns of ``x`` as ``mean`` has room for."""
    pairs = mean.size
    mean[:] = 0.0
    norm[:] = 0.0
    for i in range(x.shape[0]):
        t = theta[i]
        w = factor[0, i]
        for sa in range(pairs):
            mean[sa] += x[i, sa] * t
            total[sa] = x[0, sa] * w
        for j in range(1, i - 2, 4):  # four at a time, added one after the other
            f, g, h, k = factor[j, i], factor[j + 1, i], factor[j + 2, i], factor[j + 3, i]
            a, b, c, d = x[j], x[j + 1], x[j + 2], x[j + 3]
            for sa in range(pairs):
                total[sa] = (((total[sa] + a[sa] * f) + b[sa] * g) + c[sa] * h) + d[sa] * k
        for j in range(i + 1 - i % 4, i + 1):
            f = factor[j, i]
            for sa in range(pairs):
                total[sa] += x[j, sa] * f
        for sa in range(pairs):
            norm[sa] += total[sa] * total[sa]


@hot
def predict_tabular(factor: Floats, theta: Floats, total: Floats, target: Floats, mean: Floats, norm: Floats) -> None:
    """Write <x, theta_sa> and |W_sa^T x|^2 for all (s, a), x being the target function; ``factor`` is [n*n, P]."""
    n, pairs = theta.shape
    mean[:] = 0.0
    norm[:] = 0.0
    for i in range(n):
        w, first = target[i], target[0]
        for sa in range(pairs):
            mean[sa] += theta[i, sa] * w
            total[sa] = factor[i, sa] * first
        for j in range(1, i - 2, 4):
            k = j * n + i
            add_four(total, factor[k], factor[k + n], factor[k + 2 * n], factor[k + 3 * n], target, j)
        for j in range(i + 1 - i % 4, i + 1):
            w = target[j]
            for sa in range(pairs):
                total[sa] += factor[j * n + i, sa] * w
        for sa in range(pairs):
            norm[sa] += total[sa] * total[sa]
