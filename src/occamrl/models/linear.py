"""Infinite classes of kernels: state aggregations, and linear classes over one feature map.

**Aggregations** depend on the state only through a partition. What can happen at (s, a) is a list of labelled *moves*,
and move l leads to ``moves[s, a, l]``. An aggregated kernel has one distribution over the moves per block of the
partition and action,

    P(s' | s, a) = sum of theta[block(s), a, l] over the moves l with moves[s, a, l] = s'.

With absolute moves (move l leads to state l) this is P(s' | s, a) = P(s' | block(s), a). With relative ones ("one up")
it is what people mean by "the current is the same along this stretch of the river": the states of a block share the law
of their moves, not their successors. Two moves may lead to the same state, as "down" and "stay" do at the source. A
finer partition holds every kernel of a coarser one with the same moves, so partitions make ladders by refinement, and
the finest one with absolute moves is the tabular class. Least squares decouple: one problem per block and action.

**Linear classes** are {P_theta : theta = A eta, |theta| <= b}. A restricts theta: to some coordinates, to equal values
in parts that share them (one current per zone), or any other subspace. One least-squares problem serves all classes:
with G = sum x x^T and g = sum y x over the rows in the full dimension, a class has A^T G A and A^T g.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from occamrl._core.features import DenseFeatures
from occamrl.errors import (
    FamilyError,
    ShapeError,
    as_flags,
    as_floats,
    as_integers,
    require_integer,
    require_kind,
    require_memory,
    require_number,
)
from occamrl.models.family import (
    TOLERANCE,
    Family,
    ball_least_squares,
    kernel_matrix,
    simplex_least_squares,
)
from occamrl.models.features import FeatureMap, best_kernel
from occamrl.protocols import Floats, Ints


class AggregationFamily(Family):
    """Kernels whose moves have the same law in all states of a block.

    >>> import occamrl as orl
    >>> family = orl.AggregationFamily(partition=[0, 0, 1, 1], actions=2)  # states 0 and 1 share a law, and 2 and 3
    >>> family.blocks
    2

    Members are vectors theta: one distribution after another, by block and action, in the order of ``moves``.

    Parameters
    ----------
    partition : array [S] of integers
        The block of each state; any labels, equal for states of one block.
    moves : array [S, A, L] of integers, optional
        Where move l leads from (s, a); -1 where there is no such move, the same ones for all states of a block. By
        default every state can be reached, moves being states.
    actions : int, optional
        A, where ``moves`` does not tell.

    Attributes
    ----------
    features : FeatureMap
        What :class:`occamrl.UCRLVTRLin` runs on; one small ellipsoid per block and action.
    norm_bound : float
        sqrt(number of distributions over two moves or more): a bound on the part of theta that rows can see. Where
        there is one move, W is constant and no row carries anything.
    """

    def __init__(self, *, partition: ArrayLike, moves: ArrayLike | None = None, actions: int | None = None) -> None:
        labels = as_integers("partition", partition, "integers [S]")
        if labels.ndim != 1 or labels.size == 0:
            raise ShapeError("partition", got=f"{labels.dtype} {labels.shape}", expected="integers [S]")
        if actions is not None:
            require_integer("actions", actions, 1, FamilyError)
        if moves is None:
            shape = labels.size, require_integer("actions", actions, 1, FamilyError), labels.size
            require_memory("actions", actions, *shape)
            moves = np.broadcast_to(np.arange(labels.size), shape)
        self.partition: Ints = np.unique(labels, return_inverse=True)[1].ravel().astype(np.int64)
        self.moves: Ints = _read_moves(moves, labels.size, actions)
        self._check_blocks()
        self.features = FeatureMap.aggregated(partition=self.partition, moves=self.moves)
        self.norm_bound = float(np.sqrt(max(1, int((self.features.blocks.size > 1).sum()))))

    def _check_blocks(self) -> None:
        """Refuse blocks whose states do not have the same moves."""
        there = self.moves >= 0
        first = first_of(self.partition)
        differs = (there != there[first]).any(axis=2)
        if differs.any():
            s, a = (int(i) for i in np.argwhere(differs)[0])
            ours, theirs = (np.flatnonzero(there[state, a]).tolist() for state in (s, first[s]))
            expected = f"those of state {int(first[s])} of the same block, {theirs}"
            raise FamilyError("moves", index=(s, a), got=f"the moves {ours}", expected=expected)

    @classmethod
    def tabular(cls, *, states: int, actions: int, support: ArrayLike | None = None) -> AggregationFamily:
        """Return the class of all kernels, or of those with a given support [S, A, S]: every state a block."""
        shape = require_integer("states", states, 1), require_integer("actions", actions, 1), states
        require_memory("states", states, *shape)
        moves = np.broadcast_to(np.arange(states), shape)
        if support is not None:
            moves = np.where(as_flags("support", support, shape), moves, -1)
        return cls(partition=np.arange(states), moves=moves)

    @property
    def size(self) -> int:
        """The number of parameters."""
        return int(self.features.dimension)

    @property
    def extent(self) -> str:
        """How many blocks the partition has."""
        return f"{self.blocks} blocks"

    @property
    def blocks(self) -> int:
        """The number of blocks of the partition."""
        return int(self.partition.max()) + 1

    def members(self, draw: np.random.Generator, count: int) -> Sequence[Floats]:
        """Return members with uniformly drawn distributions."""
        sizes = self.features.blocks.size
        return [np.concatenate([draw.dirichlet(np.ones(size)) for size in sizes]) for _ in range(count)]

    def find(self, kernel: Floats) -> Floats | None:
        """Return theta of a kernel with one law per block, None for any other."""
        from scipy.optimize import nnls  # slow to import, and seldom needed

        target, matrix = as_floats("kernel", kernel, self.features.shape).ravel(), kernel_matrix(self.features)
        theta = np.zeros(self.features.dimension)
        for part in self.parts():
            columns = matrix[:, part]
            used = np.flatnonzero(columns.sum(axis=1))
            theta[part] = nnls(np.asarray(columns[used].todense()), target[used])[0]
        return theta if bool((np.abs(matrix @ theta - target) <= TOLERANCE).all()) else None

    def smallest_loss(self, gram: Floats, xy: Floats) -> float:
        """Return min over the class of L(theta) less sum y^2, from packed statistics: one problem per block."""
        blocks, total = self.features.blocks, 0.0
        for b, part in enumerate(self.parts()):
            own = gram[blocks.matrix_start[b] : blocks.matrix_start[b + 1]].reshape(part.stop - part.start, -1)
            total += _simplex_minimum(own, xy[part])
        return total

    def log_covering_number(self, alpha: float) -> float:
        """Return the sum of (n - 1) log(1 + 2 r/alpha) over distributions of n moves, r = 2 (1 - 1/n) their radius.

        Around the uniform distribution, the distributions lie in a ball of radius r of the norm sum |.| in n - 1
        dimensions. Covers of the blocks are combined; one point is enough where alpha >= r. Two moves are an interval,
        for which log ceil(1/alpha) is exact.
        """
        sizes = self.features.blocks.size.astype(np.float64)
        radius = 2.0 * (1.0 - 1.0 / sizes)
        ball = (sizes - 1.0) * np.log1p(2.0 * radius / alpha)
        interval = math.log(math.ceil(1.0 / alpha))
        return float(np.where(alpha >= radius, 0.0, np.where(sizes == 2.0, interval, ball)).sum())

    @classmethod
    def examples(cls) -> list[AggregationFamily]:
        """Small instances, for the contract checks."""
        s = np.arange(4)
        walk = np.stack([np.maximum(s - 1, 0), s, np.minimum(s + 1, 3)], axis=1)
        sure = np.stack([np.maximum(s - 1, 0), np.full(4, -1), np.full(4, -1)], axis=1)
        return [
            cls(partition=[0, 0, 1, 1], moves=np.stack([sure, walk], axis=1)),
            cls(partition=[0, 1, 1], actions=2),
            cls.tabular(states=3, actions=2),
        ]

    def __repr__(self) -> str:
        return f"AggregationFamily({self.blocks} blocks, {self.features!r})"


def first_of(partition: Ints) -> Ints:
    """Return, for every state, the first state of its block."""
    return np.asarray(np.unique(partition, return_index=True)[1][partition], dtype=np.int64)


def _read_moves(moves: ArrayLike, states: int, actions: int | None) -> Ints:
    table = as_integers("moves", moves, f"integers [{states}, A, L]")
    if table.ndim != 3 or table.shape[0] != states or 0 in table.shape:
        raise ShapeError("moves", got=f"{table.dtype} {table.shape}", expected=f"integers [{states}, A, L]")
    if actions is not None and table.shape[1] != actions:
        raise ShapeError("moves", got=table.shape, expected=f"A = {actions} actions")
    wrong = (table < -1) | (table >= states)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise FamilyError("moves", index=at, got=int(table[at]), expected=f"a state in 0..{states - 1}, or -1")
    none = (table < 0).all(axis=2)
    if none.any():
        at = tuple(int(i) for i in np.argwhere(none)[0])
        raise FamilyError("moves", index=at, got="no move", expected="at least one")
    return np.array(table, dtype=np.int64)


def _simplex_minimum(gram: Floats, xy: Floats) -> float:
    """Return min over distributions p of p^T gram p - 2 xy^T p.

    gram = X^T X and xy = X^T y for some X and y; the eigenvectors of gram give an X and a y of as few rows.
    """
    eigen, vectors = np.linalg.eigh(gram)
    kept = eigen > 1e-12 * max(float(eigen[-1]), 1e-300)
    if not kept.any():
        return 0.0
    x = np.sqrt(eigen[kept])[:, None] * vectors[:, kept].T
    y = (vectors[:, kept].T @ xy) / np.sqrt(eigen[kept])
    p = simplex_least_squares(x, y)
    return float(p @ gram @ p - 2.0 * xy @ p)


class LinearFamily(Family):
    """Kernels P_theta with theta in a subspace and a ball. Members are vectors theta [d].

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> features = orl.FeatureMap(problem.phi)
    >>> first = orl.LinearFamily(features=features, norm_bound=1.3, coordinates=range(4))
    >>> ladder = orl.Ladder([first, orl.LinearFamily(features=features, norm_bound=1.3)])

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
        require_kind("features", features, FeatureMap)
        if features.is_tabular:
            expected = "a dense or sparse feature map (for one-hot ones: AggregationFamily.tabular)"
            raise FamilyError("features", got=repr(features), expected=expected)
        require_number("norm_bound", norm_bound, 0.0, math.inf, open_low=True)
        if coordinates is not None and basis is not None:
            raise FamilyError("basis", got="coordinates as well", expected="one of the two")
        d = features.dimension
        matrix = np.eye(d) if basis is None else as_floats("basis", basis)
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
    def size(self) -> int:
        """The dimension r of the class."""
        return int(self.basis.shape[1])

    @property
    def extent(self) -> str:
        """How many dimensions the subspace has."""
        return f"{self.size} dimensions"

    @cached_property
    def own_features(self) -> FeatureMap:
        """The features phi A of eta, over the outcomes of the whole map (M23 takes the range over those)."""
        if self.size == self.features.dimension and (self.basis == np.eye(self.size)).all():
            return self.features
        phi = np.ascontiguousarray(self.features.matrix @ self.basis)
        own = DenseFeatures(self.features.layout.outcomes, phi)
        return FeatureMap._make(own, self.features.states, self.size, self.features.rewards)

    def smallest_loss(self, gram: Floats, xy: Floats) -> float:
        """Return min over the class of L less sum y^2, without regularisation (M15), from the statistics of eta."""
        own = gram.reshape(xy.size, xy.size)
        eta = ball_least_squares(own, xy, self.norm_bound)
        return float(eta @ own @ eta - 2.0 * xy @ eta)

    def find(self, kernel: Floats) -> Floats | None:
        """Return the shortest theta of a kernel of the class, None for any other."""
        target = as_floats("kernel", kernel, self.features.shape).ravel()
        matrix = np.asarray(kernel_matrix(self.features) @ self.basis)
        eta = np.linalg.lstsq(matrix, target, rcond=None)[0]
        fits = bool((np.abs(matrix @ eta - target) <= TOLERANCE).all())
        return self.basis @ eta if fits and np.linalg.norm(eta) <= self.norm_bound * (1.0 + 1e-9) else None

    def log_covering_number(self, alpha: float) -> float:
        """Return r log(1 + 2 b L/alpha), ||P - P'|| <= L |theta - theta'| with L = max over (s, a) of sum_o |phi_o|."""
        require_number("alpha", alpha, 0.0, math.inf, open_low=True)
        if self.norm_bound * self.lipschitz <= alpha:
            return 0.0
        return self.size * math.log1p(2.0 * self.norm_bound * self.lipschitz / alpha)

    @property
    def lipschitz(self) -> float:
        """A bound on sup over (s, a) of sum over s' |P_theta - P_theta'| per |theta - theta'|."""
        lengths = np.linalg.norm(np.asarray(self.features.matrix @ self.basis), axis=1)
        return float(np.add.reduceat(lengths, self.features.layout.outcomes.start[:-1]).max())

    def members(self, draw: np.random.Generator, count: int) -> Sequence[Floats]:
        """Return kernels of the class: mixtures of vertices of {theta : P_theta is a kernel} within the ball.

        Empty where none of the vertices found can be mixed into one that is short enough.
        """
        phi = np.asarray(self.features.matrix @ self.basis)
        sums = np.unique(np.round(self.features.sums @ self.basis, 12), axis=0)
        vertices = []
        for _ in range(max(4, min(count, 2 * self.size))):
            found = best_kernel(draw.normal(size=self.size), phi, sums, bound=self.norm_bound)
            if found.status == 0:
                vertices.append(found.x)
        if not vertices:
            return []
        corners = np.array(vertices)
        shortest = simplex_least_squares(corners.T, np.zeros(self.size)) @ corners
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
        return f"LinearFamily({self.size} of {self.features.dimension} dimensions, norm <= {self.norm_bound:g})"


def _within(inside: Floats, towards: Floats, radius: float) -> Floats:
    """Return the point nearest to ``towards`` on the way there from ``inside``, no longer than ``radius``."""
    if np.linalg.norm(towards) <= radius:
        return towards
    way = towards - inside  # |inside + t way| = radius has one root t in [0, 1]
    half, left = float(inside @ way), radius**2 - float(inside @ inside)
    square = float(way @ way)
    t = (math.sqrt(half**2 + square * left) - half) / square
    return inside + (1.0 - 1e-12) * t * way
