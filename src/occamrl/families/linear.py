"""Linear classes of kernels {P_theta : theta = A eta, |theta| <= b} over one feature map.

A restricts theta: to some coordinates, to equal values in parts that share them (one current per zone), or any other
subspace. One least-squares problem serves all classes: with G = sum x x^T and g = sum y x over the rows in the full
dimension, a class has A^T G A and A^T g.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from occamrl.contracts import Floats, Known
from occamrl.errors import FamilyError, ParameterError, ShapeError
from occamrl.families.family import TOLERANCE, Family
from occamrl.families.features import FeatureMap
from occamrl.families.regression import (
    Rows,
    ball_least_squares,
    design,
    ellipsoid_values,
    kernel_matrix,
    simplex_least_squares,
)
from occamrl.kernels.features import DenseFeatures


class LinearFamily(Family):
    """Kernels P_theta with theta in a subspace and a ball. Members are vectors theta [d].

    Parameters
    ----------
    features : FeatureMap
        Dense or sparse, of dimension d; the same for all linear classes of a ladder.
    norm_bound : float
        |theta| <= norm_bound.
    coordinates : sequence of int, optional
        theta is zero elsewhere.
    basis : array [d, r], optional
        Instead: theta = basis @ eta. By default all of R^d.
    """

    def __init__(
        self,
        *,
        features: FeatureMap,
        norm_bound: float,
        coordinates: Sequence[int] | None = None,
        basis: ArrayLike | None = None,
    ) -> None:
        if features.is_tabular:
            expected = "a dense or sparse feature map (for one-hot ones: AggregationFamily.tabular)"
            raise FamilyError("features", got=repr(features), expected=expected)
        if not (norm_bound > 0.0 and np.isfinite(norm_bound)):
            raise ParameterError("norm_bound", got=norm_bound, expected="a finite number > 0")
        if coordinates is not None and basis is not None:
            raise FamilyError("basis", got="coordinates as well", expected="one of the two")
        d = features.dimension
        matrix = np.eye(d) if basis is None else np.asarray(basis, dtype=np.float64)
        if coordinates is not None:
            features.restrict(coordinates)  # checks them
            matrix = np.eye(d)[:, list(coordinates)]
        if matrix.ndim != 2 or matrix.shape[0] != d or matrix.shape[1] < 1:
            raise ShapeError("basis", got=matrix.shape, expected=f"[{d}, r]")
        if not np.isfinite(matrix).all() or np.linalg.matrix_rank(matrix) < matrix.shape[1]:
            raise FamilyError("basis", got="columns that depend on each other", expected="independent columns")
        self.features = features
        self.norm_bound = float(norm_bound)
        self.basis = np.linalg.qr(matrix)[0] if coordinates is None and basis is not None else matrix  # orthonormal

    @property
    def dimension(self) -> int:
        """The dimension r of the class."""
        return int(self.basis.shape[1])

    @property
    def own_features(self) -> FeatureMap:
        """The features phi A of eta, over the outcomes of the whole map (M23 takes the range over those)."""
        if self.dimension == self.features.dimension and (self.basis == np.eye(self.dimension)).all():
            return self.features
        phi = np.ascontiguousarray(self.features.matrix @ self.basis)
        own = DenseFeatures(self.features.layout.outcomes, phi)
        return FeatureMap._make(own, self.features.states, self.features.actions, self.dimension, self.features.rewards)

    def parts(self) -> list[slice]:
        """Where the parameters of a regression of its own stand in eta: there is one."""
        return [slice(0, self.dimension)]

    def smallest_loss(self, gram: Floats, xy: Floats) -> float:
        """Return min over the class of L less sum y^2, without regularisation (M15), from the statistics of eta."""
        own = gram.reshape(xy.size, xy.size)
        eta = ball_least_squares(own, xy, self.norm_bound)
        return float(eta @ own @ eta - 2.0 * xy @ eta)

    def parameters_of(self, member: Floats) -> Floats:
        """Return theta [d]."""
        return np.asarray(member, dtype=np.float64)

    def estimate(self, known: Known, rows: Rows) -> Floats:
        """Return theta of the class with the smallest loss, the shortest if there are several (M3)."""
        x, y = design(self.features, known, rows)
        own = x @ self.basis
        return np.asarray(self.basis @ ball_least_squares(own.T @ own, own.T @ y, self.norm_bound))

    def optimistic_values(self, known: Known, rows: Rows, *, delta: float, start: int = 0) -> Floats:
        """Return values planned over the ellipsoid of eta (M11)."""
        return ellipsoid_values(self.own_features, known, rows, norm_bound=self.norm_bound, delta=delta)

    def find(self, kernel: Floats) -> Floats | None:
        """Return the shortest theta of a kernel of the class, None for any other."""
        target, matrix = kernel.ravel(), np.asarray(kernel_matrix(self.features) @ self.basis)
        eta = np.linalg.lstsq(matrix, target, rcond=None)[0]
        fits = bool((np.abs(matrix @ eta - target) <= TOLERANCE).all())
        return self.basis @ eta if fits and np.linalg.norm(eta) <= self.norm_bound * (1.0 + 1e-9) else None

    def log_covering_number(self, alpha: float) -> float:
        """Return r log(1 + 2 b L/alpha), ||P - P'|| <= L |theta - theta'| with L = max over (s, a) of sum_o |phi_o|."""
        if self.norm_bound * self.lipschitz <= alpha:
            return 0.0
        return self.dimension * math.log1p(2.0 * self.norm_bound * self.lipschitz / alpha)

    @property
    def lipschitz(self) -> float:
        """A bound on sup over (s, a) of sum over s' |P_theta - P_theta'| per |theta - theta'|."""
        lengths = np.linalg.norm(np.asarray(self.features.matrix @ self.basis), axis=1)
        return float(np.add.reduceat(lengths, self.features.layout.outcomes.start[:-1]).max())

    def members(self, draw: np.random.Generator, count: int) -> Sequence[Floats]:
        """Return kernels of the class: mixtures of vertices of {theta : P_theta is a kernel} within the ball.

        Empty where none of the vertices found can be mixed into one that is short enough.
        """
        from scipy.optimize import linprog  # slow to import, and seldom needed

        phi = np.asarray(self.features.matrix @ self.basis)
        sums = np.add.reduceat(phi, self.features.layout.outcomes.start[:-1], axis=0)
        sums = np.unique(np.round(sums, 12), axis=0)
        vertices = []
        for _ in range(max(4, min(count, 2 * self.dimension))):
            found: Any = linprog(
                draw.normal(size=self.dimension),
                A_ub=-phi,
                b_ub=np.zeros(len(phi)),
                A_eq=sums,
                b_eq=np.ones(len(sums)),
                bounds=(-self.norm_bound, self.norm_bound),
            )
            if found.status == 0:
                vertices.append(found.x)
        if not vertices:
            return []
        corners = np.array(vertices)
        shortest = simplex_least_squares(corners.T, np.zeros(self.dimension)) @ corners
        if np.linalg.norm(shortest) > self.norm_bound:
            return []
        mixed = draw.dirichlet(np.full(len(corners), 0.5), size=count) @ corners
        return [self.basis @ _within(shortest, eta, self.norm_bound) for eta in mixed]

    @classmethod
    def examples(cls) -> list[LinearFamily]:
        """Small instances, for the contract checks."""
        kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(3, 3, 2))
        features = FeatureMap([kernels[0], kernels[1], kernels[2] - kernels[1]])
        return [
            cls(features=features, norm_bound=1.5),
            cls(features=features, norm_bound=1.0, coordinates=[0, 1]),
            cls(features=features, norm_bound=2.0, basis=[[1.0, 0.0], [0.0, 1.0], [0.0, 0.5]]),
        ]

    def __repr__(self) -> str:
        return f"LinearFamily({self.dimension} of {self.features.dimension} dimensions, norm <= {self.norm_bound:g})"


def _within(inside: Floats, towards: Floats, radius: float) -> Floats:
    """Return the point nearest to ``towards`` on the way there from ``inside``, no longer than ``radius``."""
    if np.linalg.norm(towards) <= radius:
        return towards
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        short = np.linalg.norm(inside + middle * (towards - inside)) <= radius
        low, high = (middle, high) if short else (low, middle)
    return inside + low * (towards - inside)
