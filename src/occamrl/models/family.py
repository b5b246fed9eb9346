"""The contract of every family of kernels: what selection asks of it, whatever it is made of.

A *member* is a name for one kernel of the family: a number for a finite list, a vector theta for a linear class. Every
member has parameters theta over the family's features. With the rows x = phi_(W - c)(s, a)/R of value-targeted
regression (M8, M23) the loss of a member (M1) is sum (y - <x, theta>)^2: the sums G = sum x x^T and g = sum y x say all
about it but the constant sum y^2. G is kept in blocks, one for the coordinates of each (s, a) or of all together.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from occamrl._core.regression import Blocks
from occamrl.errors import FamilyError, as_floats
from occamrl.models.features import FeatureMap, pair_of_outcome
from occamrl.protocols import Floats, Ints, Known

TOLERANCE = 1e-8  # how far the entries of a kernel may be from those of a member that it equals


class Weighted(NamedTuple):
    """What rows are regressed on (M8, M23), the target function W = bonus + V over the outcomes having range R."""

    x: Any  # [n, d] phi_(W - c)(s, a)/R
    middle: Floats  # [n] c
    spread: Floats  # [n] R; 0: W is constant and the row carries nothing


def weighted(features: FeatureMap, known: Known, pair: Ints, values: Floats) -> Weighted:
    """Return the range-weighted regressors of some (s, a); ``values`` is [n, S] or [S]."""
    sparse = sparse_rows(features, known, pair, values)
    return sparse._replace(x=np.asarray(sparse.x.todense()))


def sparse_rows(features: FeatureMap, known: Known, pair: Ints, values: Floats) -> Weighted:
    """Return :func:`weighted` with a sparse x: few numbers in a row where every (s, a) has coordinates of its own."""
    outcomes = features.attach(known).outcomes
    first, count = outcomes.start[pair], np.diff(outcomes.start)[pair]
    row = np.repeat(np.arange(pair.size), count)
    begins = np.cumsum(count) - count
    at = np.repeat(first - begins, count) + np.arange(row.size)
    tables = np.broadcast_to(values, (pair.size, np.shape(values)[-1]))
    w = outcomes.bonus[at] + tables[row, outcomes.next_state[at]]
    low, high = np.minimum.reduceat(w, begins), np.maximum.reduceat(w, begins)
    middle, spread = 0.5 * (low + high), high - low
    scaled = np.where(spread[row] > 0.0, (w - middle[row]) / np.where(spread > 0.0, spread, 1.0)[row], 0.0)
    shape = (pair.size, outcomes.next_state.size)
    return Weighted(sp.csr_array((scaled, (row, at)), shape=shape) @ features.matrix, middle, spread)


def kernel_matrix(features: FeatureMap) -> Any:
    """Return the sparse matrix [S*A*S, d] that takes theta to the entries of its kernel."""
    outcomes = features.layout.outcomes
    cell = pair_of_outcome(outcomes) * features.states + outcomes.next_state
    shape = (features.states**2 * features.actions, cell.size)
    return sp.csr_array((np.ones(cell.size), (cell, np.arange(cell.size))), shape=shape) @ features.matrix


def simplex_least_squares(x: Floats, y: Floats) -> Floats:
    """Return the distribution p that minimises |x p - y|^2, exactly.

    Over distributions x p - y = Z p with Z = x - y 1^T. For p = t q with q a distribution, min over t of |Z p|^2 +
    (sum p - 1)^2 is |Z q|^2/(|Z q|^2 + 1), which grows with |Z q|: non-negative least squares finds the same q
    (Lawson and Hanson 1974, chapter 23).
    """
    from scipy.optimize import nnls  # slow to import, and seldom needed

    scale = max(float(np.abs(x).max(initial=0.0)), float(np.abs(y).max(initial=0.0)), 1e-300) * math.sqrt(len(x) + 1.0)
    stacked = np.vstack([(x - y[:, None]) / scale, np.ones((1, x.shape[1]))])
    found = nnls(stacked, np.concatenate([np.zeros(len(x)), [1.0]]))[0]
    return np.asarray(found / found.sum(), dtype=np.float64)


def ball_least_squares(gram: Floats, xy: Floats, radius: float) -> Floats:
    """Return eta with |eta| <= radius that minimises eta^T gram eta - 2 xy^T eta; the shortest if there are several."""
    eigen, vectors = np.linalg.eigh(gram)
    eigen, coefficients = np.maximum(eigen, 0.0), vectors.T @ xy

    def solution(shift: float) -> Floats:
        scale = eigen + shift
        fine = scale > 1e-12 * max(1.0, float(eigen[-1]))
        return np.where(fine, coefficients / np.where(fine, scale, 1.0), 0.0)

    eta = solution(0.0)
    if np.linalg.norm(eta) > radius:  # on the sphere: |eta(shift)| falls in shift
        low, high = 0.0, float(np.linalg.norm(coefficients)) / radius
        for _ in range(100):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if np.linalg.norm(solution(middle)) > radius else (low, middle)
        eta = solution(high)
    return np.asarray(vectors @ eta, dtype=np.float64)


def packed(blocks: Blocks, matrix: Any) -> Floats:
    """Return the blocks of a matrix [d, d], one after the other."""
    ends = itertools.pairwise(blocks.vector_start.tolist())
    return np.concatenate([matrix[first:last, first:last].ravel() for first, last in ends])


def unpacked(blocks: Blocks, matrix: Floats) -> Any:
    """Return the matrix [d, d] of some blocks; sparse where there are several."""
    ends = itertools.pairwise(blocks.matrix_start.tolist())
    parts = [matrix[first:last].reshape(n, n) for (first, last), n in zip(ends, blocks.size, strict=True)]
    return parts[0] if len(parts) == 1 else sp.csr_array(sp.block_diag(parts))


def member_losses(theta: Floats, gram: Any, xy: Floats) -> Floats:
    """Return theta^T G theta - 2 g^T theta for every column of theta [d, n]: its loss, less sum y^2."""
    return np.asarray((theta * (gram @ theta) - 2.0 * xy[:, None] * theta).sum(axis=0))


class Family(ABC):
    """A set of kernels over one feature map.

    Checked by :func:`occamrl.check_family`.
    """

    features: FeatureMap
    finite = False  # whether it is a list of kernels

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of kernels of a list, or of parameters."""

    @property
    @abstractmethod
    def extent(self) -> str:
        """How large the family is, as a short text."""

    @abstractmethod
    def members(self, draw: np.random.Generator, count: int) -> Sequence[Any]:
        """Return some members, drawn at random; they show that the family holds kernels at all."""

    @abstractmethod
    def find(self, kernel: Floats) -> Any | None:
        """Return the member that equals a kernel [S, A, S] of finite numbers, up to rounding; None if none does."""

    @abstractmethod
    def smallest_loss(self, gram: Floats, xy: Floats) -> float:
        """Return min over the family of L, less sum y^2, from packed G and g over ``own_features`` (M3, M15)."""

    @abstractmethod
    def log_covering_number(self, alpha: float) -> float:
        """Return a bound on log N(F, alpha) in sup over (s, a) of sum over s' |P - P'|."""

    @property
    def own_features(self) -> FeatureMap:
        """The features of the parameters that the family is regressed on."""
        return self.features

    def parts(self) -> list[slice]:
        """Where the parameters of each regression of its own stand."""
        return [slice(*ends) for ends in itertools.pairwise(self.own_features.blocks.vector_start.tolist())]

    def parameters_of(self, member: Any) -> Floats:
        """Return theta of a member [d]: the member itself, unless the family says otherwise."""
        return np.asarray(member, dtype=np.float64)

    def kernel(self, member: Any) -> Floats:
        """Return one member as a dense array [S, A, S]."""
        return self.features.kernel(self.parameters_of(member))

    def check(self, draw: np.random.Generator, count: int = 8) -> None:
        """Refuse a family some members of which are not kernels, or that has none."""
        drawn = self.members(draw, count)
        if not len(drawn):
            raise FamilyError("members", got="no kernel", expected="at least one")
        for i, member in enumerate(drawn):
            kernel = self.kernel(member)
            wrong = ~(np.abs(kernel.sum(axis=2) - 1.0) <= TOLERANCE) | ~(kernel.min(axis=2) >= -TOLERANCE)
            if wrong.any():
                at = tuple(int(j) for j in np.argwhere(wrong)[0])
                raise FamilyError("members", index=(i, *at), got=kernel[at], expected="probabilities that sum to 1")

    def member_of(self, kernel: Floats) -> Any | None:
        """Return the member that equals a kernel [S, A, S], up to rounding; None if none does."""
        given = as_floats("kernel", kernel, self.features.shape)
        return self.find(given) if np.isfinite(given).all() else None

    def contains(self, kernel: Floats) -> bool:
        """Say whether a kernel [S, A, S] is one of the family's."""
        return self.member_of(kernel) is not None
