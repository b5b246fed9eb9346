"""Ridge statistics Sigma = lambda I + sum x x^T (M8), one block after another in flat arrays.

A block of n coordinates has its matrix at ``matrix_start[b]`` (row-major, n*n numbers) and its vectors at
``vector_start[b]``. One dense block serves a shared parameter; one per (s, a) serves one-hot features, so that
d = S^2 A never becomes a d-by-d matrix.

Sigma itself is the state: rows are added to it and it is factorised afresh when a plan is due, so rounding errors do
not travel from one factorisation to the next. Sums run in a fixed order over independent lanes (no reassociation),
which keeps them vectorised and equal to the bit wherever the function is inlined.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from occamrl.contracts import Floats, Ints
from occamrl.kernels.compile import hot


class Blocks(NamedTuple):
    """Where the coordinates of each (s, a) live."""

    of: Ints  # [S*A] the block of (s, a)
    size: Ints  # [B] coordinates of a block
    vector_start: Ints  # [B + 1]
    matrix_start: Ints  # [B + 1]


@hot
def dot(a: Floats, a0: int, b: Floats, b0: int, n: int) -> float:
    """Return sum_i a[a0 + i] b[b0 + i], in four interleaved partial sums."""
    s0 = s1 = s2 = s3 = 0.0
    whole = n - n % 4
    for i in range(0, whole, 4):
        s0 += a[a0 + i] * b[b0 + i]
        s1 += a[a0 + i + 1] * b[b0 + i + 1]
        s2 += a[a0 + i + 2] * b[b0 + i + 2]
        s3 += a[a0 + i + 3] * b[b0 + i + 3]
    for i in range(whole, n):
        s0 += a[a0 + i] * b[b0 + i]
    return (s0 + s1) + (s2 + s3)


@hot
def add_row(matrix: Floats, m0: int, n: int, weight: float, x: Floats) -> None:
    """Add weight * x x^T to the block at ``m0``."""
    for i in range(n):
        wx = weight * x[i]
        row = m0 + i * n
        for j in range(n):
            matrix[row + j] += wx * x[j]


@hot
def invert_factor(matrix: Floats, m0: int, n: int, out: Floats, work: Floats) -> float:
    """Write W = U^{-1} (upper triangular), where Sigma = U^T U, to ``out`` at ``m0``; return logdet Sigma.

    Then Sigma^{-1} = W W^T. ``work`` holds n*n numbers.
    """
    for i in range(n * n):
        work[i] = matrix[m0 + i]
    logdet = 0.0
    for k in range(n):  # right-looking Cholesky: row k of U, then its outer product leaves the rest
        pivot = work[k * n + k]
        if not pivot > 0.0:
            raise ValueError("the regression matrix is not positive definite; raise the regularisation")
        logdet += np.log(pivot)
        root = 1.0 / np.sqrt(pivot)
        for j in range(k, n):
            work[k * n + j] *= root
        for i in range(k + 1, n):
            u = work[k * n + i]
            for j in range(i, n):
                work[i * n + j] -= u * work[k * n + j]
    for i in range(n):  # W U = I, row by row: W[i, :] starts as e_i and loses its part along the rows of U
        row = m0 + i * n
        for j in range(n):
            out[row + j] = 0.0
        out[row + i] = 1.0
        for k in range(i, n):
            w = out[row + k] / work[k * n + k]
            out[row + k] = w
            for j in range(k + 1, n):
                out[row + j] -= w * work[k * n + j]
    return logdet


@hot
def solve(factor: Floats, m0: int, n: int, rhs: Floats, v0: int, out: Floats, work: Floats) -> None:
    """Write theta = W W^T rhs to ``out`` at ``v0``."""
    for i in range(n):
        work[i] = 0.0
    for j in range(n):
        r = rhs[v0 + j]
        for i in range(j, n):
            work[i] += factor[m0 + j * n + i] * r
    for j in range(n):
        out[v0 + j] = dot(factor, m0 + j * n, work, 0, n)


@hot
def squared_norm(factor: Floats, m0: int, n: int, x: Floats, work: Floats) -> float:
    """Return ||x||^2 in Sigma^{-1}, that is |W^T x|^2."""
    for i in range(n):
        work[i] = 0.0
    for j in range(n):
        xj = x[j]
        row = m0 + j * n
        for i in range(j, n):
            work[i] += factor[row + i] * xj
    return dot(work, 0, work, 0, n)
