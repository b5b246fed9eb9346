r"""Finite families of kernels: a stack, parameters over a feature map, or a parametric class on a grid.

All are the same thing: n vectors theta over features, the features of a stack being one-hot. Value functions depend on
the kernel alone and are solved once per problem.

**What a truth between the points of a cover costs: the discretisation term of the radius (M15, M22).** Let the truth P*
be a kernel of the box and P0 the point of the grid nearest to it, with :math:`\|P_0 - P^*\|_1 \le \epsilon` at every
(s, a). Rows are range-weighted (M23), n of them, the range being over every outcome of P*; for plain rows all that
follows is times U^2. Write e_t for the noise of y_t (range 1) and :math:`d_t = ((P_0 - P^*) V_t)(s_t, a_t)`, which is
known before y_t. Targets lie within 1/2 of their mid-range, so :math:`|d_t| \le \epsilon/2`. Then

.. math:: L(P_0) - L(P^*) = \sum_t d_t^2 - 2 \sum_t e_t d_t .

A row adds at most :math:`|d_t| (|y_t - (P_0 V_t)| + |y_t - (P^* V_t)|) \le \epsilon`, whatever happens: the term
:math:`\epsilon n` of M15. Noise pays for most of it. :math:`-2 e_t d_t` has mean 0 and range :math:`2 |d_t|`, so by
Hoeffding's lemma :math:`E e^{-4 e_t d_t} \le e^{2 d_t^2}`, and :math:`\exp(2 \sum (-2 e_t d_t - d_t^2))` is a
supermartingale: by Ville's inequality, with probability 1 - delta/2, for all n at once,

.. math:: L(P_0) - L(P^*) \le 2 \sum_t d_t^2 + \tfrac12 \log\tfrac2\delta
          \le \tfrac12 \epsilon^2 n + \tfrac12 \log\tfrac2\delta .

M21 and M22 bound L(P*) for any such kernel, whether or not the family holds it. Taken at delta/2, with the smaller of
both terms added, they bound L(P0): with probability 1 - delta the point nearest to the truth is never rejected.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from occamrl._core.bellman import solve_optimal
from occamrl._core.compile import hot, threads_for
from occamrl._core.features import TabularFeatures
from occamrl.errors import (
    FamilyError,
    ParameterError,
    ShapeError,
    as_floats,
    as_integers,
    require_integer,
    require_kind,
    require_number,
    sum_to_one,
)
from occamrl.models.family import TOLERANCE, Family, kernel_matrix, member_losses, unpacked
from occamrl.models.features import FeatureMap, PerProblem, any_sparse, outcomes_of, read_kernels, stacked
from occamrl.protocols import Floats, Ints, Known

_SUM_TOLERANCE = 1e-8
_MOST_EXACT = 12  # members of which the smallest cover is searched for
_SIGN_TOLERANCE = 1e-10
_FEW, _EXACT = 32, 1e-13  # coordinates of which all others are made, and how exactly
_CHUNK = 4096  # members written out as kernels at a time
_MOST_MEMBERS = 1_000_000  # of a cover
_ENDS = "multiples of the step: beyond the last grid point nothing would be covered"


@hot
def off_grid(reach: float, rows: float, delta: float) -> float:
    """Return a bound on L(P0) - L(P*) after ``rows`` rows of range 1; 0 for a family that is no cover.

    ``reach`` is epsilon: how far a kernel of the box may be from its nearest point.
    """
    if reach <= 0.0:
        return 0.0
    return min(reach * rows, 0.5 * reach * reach * rows + 0.5 * math.log(2.0 / delta))


def level(reach: float, delta: float) -> float:
    """Return the delta that is left for M21 and M22: half of it where the truth may be off the grid."""
    return 0.5 * delta if reach > 0.0 else delta


class FiniteFamily(Family):
    """A list of candidate kernels. Members are numbers, from 0.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 3, 2))  # four kernels P[s, a, s']
    >>> family = orl.FiniteFamily(kernels)
    >>> family.size, family.find(kernels[2])
    (4, 2)

    Parameters
    ----------
    kernels : array [n, S, A, S], or a sequence of kernels
        Dense [S, A, S] or scipy.sparse of shape (S*A, S); sparse ones stay so.
    parameters, features : array [n, d] and FeatureMap
        Instead of ``kernels``: member i is <phi, parameters[i]>. 100,000 members fit easily.

    Attributes
    ----------
    reach : float
        How far the truth may be from the nearest member, in sup over (s, a) of sum over s' |P - P'|; 0 but for covers.
    """

    reach: float = 0.0

    finite = True

    @property
    def extent(self) -> str:
        """How many kernels there are."""
        return f"{self.size} kernels"

    def __init__(
        self,
        kernels: ArrayLike | Sequence[Any] | None = None,
        *,
        parameters: ArrayLike | None = None,
        features: FeatureMap | None = None,
    ) -> None:
        if (kernels is None) == (parameters is None) or (parameters is None) != (features is None):
            raise FamilyError("kernels", got="both or neither", expected="kernels, or parameters with features")
        field = "kernels" if parameters is None else "parameters"
        if features is None:
            features, theta = _one_hot(kernels)
        elif not isinstance(features, FeatureMap):
            raise FamilyError("features", got=type(features).__name__, expected="a FeatureMap")
        else:
            theta = np.array(as_floats("parameters", parameters).T, order="C")
            if theta.ndim != 2 or theta.shape[0] != features.dimension:
                raise ShapeError("parameters", got=theta.T.shape, expected=f"[n, {features.dimension}]")
        if theta.shape[1] == 0:
            raise FamilyError(field, got="no member", expected="at least one")
        self._set(features, theta)
        _check_members(self, field)

    def _set(self, features: FeatureMap, theta: Floats, whole: FiniteFamily | None = None) -> None:
        self.features = features
        self.theta = theta  # [d, n]: one column per member
        self._whole = whole  # the family of which this one is the beginning, if any
        self._values = PerProblem()

    @classmethod
    def _make(cls, features: FeatureMap, theta: Floats, whole: FiniteFamily | None = None) -> FiniteFamily:
        """Return a family of members that are known to be kernels."""
        made = cls.__new__(cls)
        made._set(features, np.ascontiguousarray(theta), whole)
        return made

    def take(self, members: Ints) -> FiniteFamily:
        """Return the family of some members, in the order given."""
        chosen = as_integers("members", members)
        if chosen.ndim != 1 or chosen.size == 0 or chosen.min() < 0 or chosen.max() >= self.size:
            raise FamilyError("members", got=f"{members!r:.100}", expected=f"integers in [0, {self.size})")
        return FiniteFamily._make(self.features, self.theta[:, chosen])

    def prefix(self, size: int) -> FiniteFamily:
        """Return the family of the first members; value functions are solved once for both."""
        require_integer("size", size, 1, FamilyError, most=self.size)
        return FiniteFamily._make(self.features, self.theta[:, :size], self)

    @property
    def size(self) -> int:
        """The number n of members."""
        return int(self.theta.shape[1])

    def parameters_of(self, member: int) -> Floats:
        """Return theta of a member [d]."""
        require_integer("member", member, 0, most=self.size - 1)
        return self.theta[:, member]

    def probabilities(self, members: slice = slice(None)) -> Floats:
        """Return the members' probabilities on the outcomes of the features, one column per member."""
        theta = self.theta[:, members]
        if isinstance(self.features.layout, TabularFeatures):
            coordinate = self.features.coordinate
            return theta if np.array_equal(coordinate, np.arange(len(theta))) else theta[coordinate]
        return np.asarray(self.features.matrix @ theta)

    def optimal_values(self, known: Known) -> Floats:
        """Return V*_{P,h} for every member P, [n, H + 1, S]; solved once per problem."""
        require_kind("known", known, Known)
        if known not in self._values and self._whole is not None:
            self._values[known] = self._whole.optimal_values(known)[: self.size]
        elif known not in self._values:
            outcomes, base = self.features.attach(known).outcomes, known.base_reward.flatten()
            solved, threads = (
                np.zeros((self.size, known.horizon + 1, known.states)),
                threads_for(outcomes.next_state.size),
            )
            for first in range(0, self.size, _CHUNK):
                part = slice(first, first + _CHUNK)
                kernels = np.ascontiguousarray(self.probabilities(part).T)
                solve_optimal(threads, outcomes, kernels, base, solved[part])
            self._values[known] = solved
        values: Floats = self._values[known]
        return values

    def members(self, draw: np.random.Generator, count: int) -> Sequence[int]:
        """Return the numbers of some members."""
        return [int(i) for i in draw.permutation(self.size)[:count]]

    def find(self, kernel: Floats) -> int | None:
        """Return the number of the first member that equals a kernel, None if none does."""
        target, matrix = as_floats("kernel", kernel, self.features.shape).ravel(), kernel_matrix(self.features)
        for first in range(0, self.size, _CHUNK):
            gap = np.abs(matrix @ self.theta[:, first : first + _CHUNK] - target[:, None]).max(axis=0)
            if (gap <= TOLERANCE).any():
                return first + int(np.argmax(gap <= TOLERANCE))
        return None

    def smallest_loss(self, gram: Floats, xy: Floats) -> float:
        """Return the smallest loss of a member, less sum y^2."""
        return float(member_losses(self.theta, unpacked(self.features.blocks, gram), xy).min())

    def log_covering_number(self, alpha: float) -> float:
        """Return log of the size of an alpha-cover by members: the smallest of at most 12, else one found greedily.

        What is within the ``reach`` of a member is covered too; at scales below the reach the members are no cover, and
        the answer is infinite.
        """
        require_number("alpha", alpha, 0.0, math.inf)
        if alpha < self.reach:
            return math.inf
        alpha -= self.reach
        members, start = self.probabilities(), self.features.layout.outcomes.start
        left, count = np.arange(self.size), 0
        if self.size <= _MOST_EXACT:
            gaps = np.abs(members[:, :, None] - members[:, None])
            near = np.add.reduceat(gaps, start[:-1]).max(axis=0) <= alpha
            sets = (list(c) for n in left for c in itertools.combinations(left, int(n) + 1))
            return math.log(next(len(c) for c in sets if near[c].any(axis=0).all()))
        while left.size:
            gap = np.abs(members[:, left] - members[:, left[:1]])
            left = left[np.add.reduceat(gap, start[:-1]).max(axis=0) > alpha]
            count += 1
        return math.log(count)

    @classmethod
    def examples(cls) -> list[FiniteFamily]:
        """Small instances, for the contract checks."""
        generator = np.random.default_rng(0)
        stack = generator.dirichlet(np.ones(3), size=(4, 3, 2))
        mixture = FeatureMap([stack[0], stack[1]])
        weights = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
        return [cls(stack), cls(parameters=weights, features=mixture)]

    @cached_property
    def few_coordinates(self) -> tuple[Ints, Floats] | None:
        """At most 32 rows of theta, and a matrix [d, rows] that makes all rows of them; None if there are none.

        A kernel that a few parameters move has them. They are looked for among some members, a row that is the same for
        all of these first, and tried on all. A row counts times its largest feature: as what it adds to probabilities.
        """
        feature = np.asarray(abs(self.features.matrix).max(axis=0).todense()).ravel()
        drawn = np.random.default_rng(0).choice(self.size, min(self.size, 8 * _FEW), replace=False)
        some = (feature[:, None] * self.theta[:, drawn]).T
        fixed = np.flatnonzero((some == some[0]).all(axis=0) & (some[0] != 0.0))[:1]
        triangle, order = scipy.linalg.qr(some - some.mean(axis=0) if fixed.size else some, mode="r", pivoting=True)
        left = np.abs(np.diag(triangle))
        rows = np.concatenate([fixed, order[: left.size][left > _SUM_TOLERANCE * left[0]]])
        if rows.size > _FEW:
            return None
        others = np.linalg.lstsq(some[:, rows], some, rcond=None)[0].T
        for first in range(0, self.size, _CHUNK):
            part = feature[:, None] * self.theta[:, first : first + _CHUNK]
            if np.abs(others @ part[rows] - part).max() > _EXACT:
                return None
        return rows, np.ascontiguousarray(others * feature[rows] / np.where(feature > 0.0, feature, 1.0)[:, None])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the members: equal for equal families, in any process."""
        reach = f"reach {self.reach!r}" if self.reach else ""
        return hashlib.sha256((self.features.fingerprint + reach).encode() + self.theta.tobytes()).hexdigest()

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"FiniteFamily(n={self.size}, {self.features!r})"


def _one_hot(kernels: Any) -> tuple[FeatureMap, Floats]:
    """Return the one-hot features over the united support, and the members' probabilities as columns."""
    if any_sparse(kernels):
        outcomes, matrix, states = read_kernels("kernels", kernels)
        theta = np.ascontiguousarray(matrix if isinstance(matrix, np.ndarray) else matrix.toarray())
    else:
        stack = stacked("kernels", kernels)
        if stack.size == 0:
            raise FamilyError("kernels", got=f"shape {stack.shape}", expected="at least one member")
        if stack.ndim != 4 or stack.shape[1] != stack.shape[3]:
            hint = "; for a single kernel, FiniteFamily([kernel])" * (stack.ndim == 3)
            raise ShapeError("kernels", got=stack.shape, expected=f"[n, S, A, S]{hint}")
        states, pairs = stack.shape[1], stack.shape[1] * stack.shape[2]
        flat = stack.reshape(len(stack), -1)
        possible = np.flatnonzero((flat != 0.0).any(axis=0))
        outcomes = outcomes_of("kernels", np.bincount(possible // states, minlength=pairs), possible % states)
        theta = np.ascontiguousarray(flat[:, possible].T)
    return FeatureMap.of_outcomes(outcomes, states), theta


def _check_members(family: FiniteFamily, field: str) -> None:
    start = family.features.layout.outcomes.start
    for first in range(0, family.size, _CHUNK):
        p = family.probabilities(slice(first, first + _CHUNK))
        total, least = np.add.reduceat(p, start[:-1]), np.minimum.reduceat(p, start[:-1])
        fine = (np.abs(total - 1.0) <= _SUM_TOLERANCE) & (least >= -_SIGN_TOLERANCE)  # false where not a number
        if fine.all():
            continue
        member = int(np.argmin(fine.all(axis=0)))
        pair = int(np.argmin(fine[:, member]))
        sum_there, least_there = float(total[pair, member]), float(least[pair, member])
        if not np.isfinite(sum_there):
            got = "a value that is not a finite number"
        elif abs(sum_there - 1.0) > _SUM_TOLERANCE:
            got = f"probabilities that sum to {sum_there:.12g}"
        else:
            got = f"a probability of {least_there:.6g}"
        at = (first + member, *divmod(pair, family.features.actions))
        raise FamilyError(field, index=at, got=got, expected=sum_to_one(sum_there))


class CoverFamily(FiniteFamily):
    """The kernels of a parametric class, kernel(parameters), at the points of a grid over a box.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> calm, storm = np.random.default_rng(0).dirichlet(np.ones(3), size=(2, 3, 2))  # kernels P[s, a, s']
    >>> family = orl.CoverFamily(lambda p: (1 - p[0]) * calm + p[0] * storm, low=[0.0], high=[1.0], step=0.1)
    >>> family.size
    11

    Grid points are multiples of the step in each parameter, so that the cover of a smaller box is part of that of a
    larger one with the same step, and covers form ladders.

    Parameters
    ----------
    kernel : callable
        From a vector of parameters to a kernel [S, A, S], dense or scipy.sparse (S*A, S).
    low, high : sequences of numbers
        The box; multiples of the step, so that its ends are on the grid.
    step : number or sequence of numbers
        The distance of grid points in each parameter.
    reach : float, optional
        How far, in sup over (s, a) of sum over s' |P - P'|, a kernel of the box may be from its nearest grid point. By
        default the sum over the parameters of half the largest distance of neighbours along each: right for kernels
        that are affine in each parameter between neighbours. Others need a bound of their own; outcomes that they allow
        in the middle of a cell of the grid then belong to the range of a target (M23), even if no grid point allows
        them. 0: the truth is a grid point, and the family a list like any other.

    Attributes
    ----------
    parameters : array [n, k]
        The grid points.
    reach : float
        As given; or the sum of half distances over the parameters.

    Notes
    -----
    Learners and tests add the term of :mod:`occamrl.models.finite` to their radius, so that a truth between two
    points keeps its class. The price: kernels nearer to each other than about the reach are never told apart. The
    preflight says whether that matters for a run.
    """

    parameters: Floats

    def __init__(
        self,
        kernel: Callable[[Floats], Any],
        *,
        low: Sequence[float],
        high: Sequence[float],
        step: float | Sequence[float],
        reach: float | None = None,
    ) -> None:
        bottom, top, width = as_floats("low", low), as_floats("high", high), as_floats("step", step)
        if bottom.ndim != 1 or bottom.shape != top.shape or not bottom.size:
            raise ParameterError("low, high", got=(low, high), expected="two vectors of the same length")
        if width.shape not in ((), (1,), bottom.shape):
            raise ParameterError("step", got=step, expected=f"one number, or {bottom.size}")
        if not callable(kernel):
            raise ParameterError("kernel", got=f"{kernel!r:.100}", expected="a function from parameters to a kernel")
        width = np.broadcast_to(width, bottom.shape)
        if not (np.isfinite(bottom).all() and np.isfinite(top).all() and (bottom <= top).all()):
            raise ParameterError("low, high", got=(low, high), expected="finite numbers with low <= high")
        if not (np.isfinite(width).all() and (width > 0.0).all()):
            raise ParameterError("step", got=step, expected="finite numbers > 0")
        if reach is not None:
            require_number("reach", reach, 0.0, 2.0)
        first, last = np.round(bottom / width), np.round(top / width)
        off = np.maximum(np.abs(bottom / width - first), np.abs(top / width - last)) > 1e-6
        if off.any():
            raise ParameterError("low, high", index=(int(np.argmax(off)),), got=(low, high), expected=_ENDS)
        counts = last - first + 1
        if counts.prod() > _MOST_MEMBERS:
            raise FamilyError("step", got=f"a grid of {counts.tolist()}", expected=f"at most {_MOST_MEMBERS:,} points")
        axes = [np.arange(a, b + 1) * w for a, b, w in zip(first, last, width, strict=True)]
        self.parameters = np.array(list(itertools.product(*axes)))
        kernels = [kernel(point) for point in self.parameters]
        super().__init__(kernels)
        if reach:
            middles = itertools.product(*(a if a.size == 1 else 0.5 * (a[1:] + a[:-1]) for a in axes))
            features, theta = _one_hot([*kernels, *(kernel(np.array(point)) for point in middles)])
            self._set(features, np.ascontiguousarray(theta[:, : len(kernels)]))
        self.reach = self._half_gaps(counts.astype(np.int64)) if reach is None else float(reach)
        self._cells = counts - 1 if reach is None else None  # of a grid that may be refined

    def log_covering_number(self, alpha: float) -> float:
        """Return log of the size of an alpha-cover of the box; below the reach, of the grid with smaller steps.

        With kernels that are affine between neighbours, steps smaller by a factor m divide the reach by m.
        """
        if not 0.0 < alpha < self.reach or self._cells is None:
            return super().log_covering_number(alpha)
        return float(np.log(self._cells * math.ceil(self.reach / alpha) + 1).sum())

    def _half_gaps(self, counts: Ints) -> float:
        """Return the sum over the parameters of half the largest distance of neighbours on the grid."""
        members, start = self.probabilities(), self.features.layout.outcomes.start
        place, total = np.arange(self.size).reshape(counts), 0.0
        for axis in range(place.ndim):
            one, other = np.delete(place, -1, axis).ravel(), np.delete(place, 0, axis).ravel()
            gaps = np.add.reduceat(np.abs(members[:, one] - members[:, other]), start[:-1])
            total += 0.5 * float(gaps.max(initial=0.0))
        return total

    @classmethod
    def examples(cls) -> list[FiniteFamily]:
        """Small instances, for the contract checks."""

        def kernel(p: Floats) -> Floats:
            return np.array([[[1.0 - p[0], p[0]]], [[p[0], 1.0 - p[0]]]])

        return [cls(kernel, low=[0.2], high=[0.6], step=0.1)]
