"""The contract of every family of kernels: what selection and optimism ask of it, whatever it is made of.

A *member* is a name for one kernel of the family: a number for a finite list, a vector theta for a linear class. Every
member has parameters theta over the family's features, so the loss (M1) and the distance (M2) are written once.

Value-targeted regression is written out here as sections 1 to 3 of the mathematics have it - rows, their design matrix,
least squares and optimism over an ellipsoid - for any family and small numbers of rows. Learners keep the same
quantities in compiled code, updated row by row.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from occamrl.errors import FamilyError
from occamrl.models.features import FeatureMap, pair_of_outcome
from occamrl.protocols import Floats, Ints, Known

TOLERANCE = 1e-8  # how far the entries of a kernel may be from those of a member that it equals


class Rows(NamedTuple):
    """Regression rows (s, a, V, y): V was fixed before y = bonus + V(s') was seen."""

    pair: Ints  # [n] s*A + a
    values: Floats  # [n, S] V
    target: Floats  # [n] y


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
    begins = np.concatenate([[0], np.cumsum(count)[:-1]]).astype(np.int64)
    at = np.repeat(first - begins, count) + np.arange(row.size)
    tables = np.broadcast_to(values, (pair.size, np.shape(values)[-1]))
    w = outcomes.bonus[at] + tables[row, outcomes.next_state[at]]
    low, high = np.minimum.reduceat(w, begins), np.maximum.reduceat(w, begins)
    middle, spread = 0.5 * (low + high), high - low
    scaled = np.where(spread[row] > 0.0, (w - middle[row]) / np.where(spread > 0.0, spread, 1.0)[row], 0.0)
    shape = (pair.size, outcomes.next_state.size)
    return Weighted(sp.csr_array((scaled, (row, at)), shape=shape) @ features.matrix, middle, spread)


def design(features: FeatureMap, known: Known, rows: Rows) -> tuple[Floats, Floats]:
    """Return x_t = phi_(W - c)(s_t, a_t)/R [n, d] and y [n] on range-weighted rows (M8, M23)."""
    x, middle, spread = weighted(features, known, rows.pair, rows.values)
    safe = np.where(spread > 0.0, spread, 1.0)
    return x, np.where(spread > 0.0, (rows.target - middle) / safe, 0.0)


def sample_rows(
    features: FeatureMap, known: Known, theta: Floats, draw: np.random.Generator, count: int
) -> tuple[Rows, Ints]:
    """Return rows at random (s, a) and V with outcomes drawn from P_theta, and those outcomes; for checks."""
    outcomes = features.attach(known).outcomes
    pair = draw.integers(known.states * known.actions, size=count)
    values = draw.uniform(0.0, 1.0, size=(count, known.states)) * draw.integers(1, known.horizon + 1, size=(count, 1))
    probability = np.clip(features.probabilities(theta), 0.0, None)
    chosen = np.empty(count, dtype=np.int64)
    for t, sa in enumerate(pair):
        p = probability[outcomes.start[sa] : outcomes.start[sa + 1]]
        chosen[t] = outcomes.start[sa] + draw.choice(p.size, p=p / p.sum())
    target = outcomes.bonus[chosen] + values[np.arange(count), outcomes.next_state[chosen]]
    return Rows(pair, values, target), chosen


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


def ellipsoid_values(
    features: FeatureMap, known: Known, rows: Rows, *, norm_bound: float, delta: float, regularization: float = 1.0
) -> Floats:
    """Return V_h [H + 1, S] planned optimistically over the ellipsoid of theta* (M11)."""
    x, y = design(features, known, rows)
    sigma = regularization * np.eye(features.dimension) + x.T @ x
    inverse = np.linalg.inv(sigma)
    theta = inverse @ (x.T @ y)
    logdet = float(np.linalg.slogdet(sigma / regularization)[1])
    width = math.sqrt(0.25 * (logdet + 2.0 * math.log(1.0 / delta)) + regularization * norm_bound**2)
    pairs = np.arange(known.states * known.actions)
    values = np.zeros((known.horizon + 1, known.states))
    for h in range(known.horizon - 1, -1, -1):
        phi, middle, spread = weighted(features, known, pairs, values[h + 1])
        norm = np.sqrt(np.maximum(((phi @ inverse) * phi).sum(axis=1), 0.0))
        estimate = np.clip(phi @ theta + width * norm, -0.5, 0.5)
        q = known.base_reward.ravel() + middle + spread * estimate
        values[h] = np.clip(q.reshape(known.states, known.actions).max(axis=1), 0.0, known.horizon - h)
    return values


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
    def parameters_of(self, member: Any) -> Floats:
        """Return theta of a member [d]."""

    @abstractmethod
    def members(self, draw: np.random.Generator, count: int) -> Sequence[Any]:
        """Return some members, drawn at random; they show that the family holds kernels at all."""

    @abstractmethod
    def find(self, kernel: Floats) -> Any | None:
        """Return the member that equals a kernel [S, A, S] of finite numbers, up to rounding; None if none does."""

    @abstractmethod
    def estimate(self, known: Known, rows: Rows) -> Any:
        """Return the member with the smallest loss on range-weighted rows (M3)."""

    @abstractmethod
    def optimistic_values(self, known: Known, rows: Rows, *, delta: float, start: int = 0) -> Floats:
        """Return the values [H + 1, S] of an optimistic plan: at ``start`` no kernel left has more (M5, M9)."""

    @abstractmethod
    def log_covering_number(self, alpha: float) -> float:
        """Return a bound on log N(F, alpha) in sup over (s, a) of sum over s' |P - P'|."""

    def kernel(self, member: Any) -> Floats:
        """Return one member as a dense array [S, A, S]."""
        return self.features.kernel(self.parameters_of(member))

    def loss(self, known: Known, member: Any, rows: Rows) -> float:
        """Return L(P) = sum (y - (P V)(s, a))^2 over range-weighted rows (M1, M23)."""
        x, y = design(self.features, known, rows)
        return float(((y - x @ self.parameters_of(member)) ** 2).sum())

    def distance(self, known: Known, one: Any, other: Any, rows: Rows) -> float:
        """Return L(P, P') = sum ((P V - P' V)(s, a))^2 over range-weighted rows (M2, M23)."""
        x, _ = design(self.features, known, rows)
        return float(((x @ (self.parameters_of(one) - self.parameters_of(other))) ** 2).sum())

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
        given = np.asarray(kernel, dtype=np.float64)
        shape = (self.features.states, self.features.actions, self.features.states)
        if given.shape != shape:
            raise FamilyError("kernel", got=given.shape, expected=shape)
        return self.find(given) if np.isfinite(given).all() else None

    def contains(self, kernel: Floats) -> bool:
        """Say whether a kernel [S, A, S] is one of the family's."""
        return self.member_of(kernel) is not None
