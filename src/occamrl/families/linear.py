"""Linear classes of kernels {P_theta : theta = A eta, |theta| <= b} over one feature map, and ladders of them.

A restricts theta: to some coordinates, to equal values in parts that share them (one current per zone), or any other
subspace. One least-squares problem serves all classes: with G = sum x x^T and g = sum y x over the rows in the full
dimension, class m has A^T G A and A^T g.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from occamrl.contracts import Floats
from occamrl.errors import FamilyError, NestingError, ParameterError, ShapeError
from occamrl.families.features import FeatureMap
from occamrl.families.nesting import same_features
from occamrl.kernels.features import DenseFeatures

_TOLERANCE = 1e-9


class LinearFamily:
    """Kernels P_theta with theta in a subspace and a ball.

    Parameters
    ----------
    features : FeatureMap
        Dense, of dimension d; the same for all classes of a ladder.
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
        if not isinstance(features.layout, DenseFeatures):
            raise FamilyError("features", got=repr(features), expected="a dense feature map")
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
        layout = self.features.layout
        if self.dimension == self.features.dimension and (self.basis == np.eye(self.dimension)).all():
            return self.features
        assert isinstance(layout, DenseFeatures)  # noqa: S101  (checked when the class was made)
        own = layout._replace(phi=np.ascontiguousarray(layout.phi @ self.basis))
        return FeatureMap._make(own, self.features.states, self.features.actions, self.dimension, self.features.rewards)

    def smallest_loss(self, gram: Floats, xy: Floats) -> float:
        """Return min over the class of L(theta) less sum y^2, without regularisation (M15)."""
        own, right = self.basis.T @ gram @ self.basis, self.basis.T @ xy
        eigen, vectors = np.linalg.eigh(own)
        eigen, coefficients = np.maximum(eigen, 0.0), vectors.T @ right

        def solution(shift: float) -> Floats:
            scale = eigen + shift
            fine = scale > 1e-12 * max(1.0, float(eigen[-1]))
            return np.where(fine, coefficients / np.where(fine, scale, 1.0), 0.0)

        eta = solution(0.0)
        if np.linalg.norm(eta) > self.norm_bound:  # on the sphere: |eta(shift)| falls in shift
            low, high = 0.0, float(np.linalg.norm(coefficients)) / self.norm_bound
            for _ in range(100):
                middle = 0.5 * (low + high)
                low, high = (middle, high) if np.linalg.norm(solution(middle)) > self.norm_bound else (low, middle)
            eta = solution(high)
        return float(eta @ (eigen * eta) - 2.0 * coefficients @ eta)

    def __repr__(self) -> str:
        return f"LinearFamily({self.dimension} of {self.features.dimension} dimensions, norm <= {self.norm_bound:g})"


class LinearLadder:
    """Nested linear classes, checked by subspace and by norm.

    Parameters
    ----------
    rungs : sequence of LinearFamily
        Over the same features, from the smallest to the largest.
    """

    def __init__(self, rungs: Sequence[LinearFamily]) -> None:
        self.rungs = list(rungs)
        if not self.rungs:
            raise FamilyError("rungs", got="an empty ladder", expected="at least one class")
        for m, (one, other) in enumerate(zip(self.rungs[:-1], self.rungs[1:], strict=True), start=1):
            if not same_features(one.features, other.features):
                raise ShapeError("rungs", index=(m + 1,), got=repr(other.features), expected=repr(one.features))
            projected = other.basis @ np.linalg.lstsq(other.basis, one.basis, rcond=None)[0]
            outside = np.abs(projected - one.basis).max(axis=0) > _TOLERANCE
            if outside.any():
                direction = int(np.argmax(outside))
                raise NestingError(
                    rungs=(m, m + 1),
                    member=direction,
                    got=f"direction {direction} of class {m} is not in class {m + 1}",
                    expected="every class to hold the one before it",
                )
            if one.norm_bound > other.norm_bound:
                raise NestingError(
                    rungs=(m, m + 1),
                    member=None,
                    got=f"norm bounds {one.norm_bound:g} and {other.norm_bound:g}",
                    expected="bounds that do not fall",
                )

    @property
    def classes(self) -> int:
        """The number M of classes."""
        return len(self.rungs)

    @property
    def features(self) -> FeatureMap:
        """The features in the full dimension."""
        return self.rungs[-1].features

    def __repr__(self) -> str:
        return f"LinearLadder({' < '.join(str(rung.dimension) for rung in self.rungs)} dimensions, {self.features!r})"
