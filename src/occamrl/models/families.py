r"""Families of kernels: lists, parametric classes on a grid, linear classes and state aggregations.

A *member* is a name for one kernel: a number for a list, parameters theta [G, n] over the family's
features for the other classes. A list has m given vectors theta; the features of plain kernels are
one-hot. The loss of a kernel over rows (x, y) of value-targeted regression is
:math:`L(\theta) = \sum (y - \langle x, \theta\rangle)^2`; the sums of :math:`x x^T` (gram) and of
y x (xy), kept by group, say all about it but the constant sum of y^2.

**A truth between the points of a cover.** Let P0 be the point of the grid nearest to the truth P*,
with :math:`\|P_0 - P^*\|_1 \le \epsilon` at every (s, a), epsilon being the *cover radius*. Over n
range-weighted rows, with probability 1 - delta/2, for all n at once ("Covers" in
docs/mathematics.md),

.. math:: L(P_0) - L(P^*) \le \min(\epsilon n, \tfrac12 \epsilon^2 n + \tfrac12 \log\tfrac2\delta).

The sharp set at delta/2, with this added, never rejects P0 with probability 1 - delta.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from occamrl import bellman
from occamrl.arrays import Bools
from occamrl.errors import (
    FamilyError,
    FeatureError,
    ParameterError,
    ShapeError,
    as_floats,
    as_indices,
    as_integers,
    require_integer,
    require_kind,
    require_number,
    sum_to_one,
)
from occamrl.models.features import FeatureMap, PerProblem, as_dense, read_kernels
from occamrl.problems.mdp import FiniteMDP, KernelLike
from occamrl.protocols import Floats, Ints, Known, Outcomes

Member = Any  # a number of a list; parameters theta of the other classes
Chosen = Ints | Bools | slice | Sequence[int]  # of some members

TOLERANCE = 1e-8  # how far the entries of a kernel may be from those of a member that it equals
_SIGN_TOLERANCE = 1e-10
_MOST_MEMBERS = 1_000_000  # of a cover
_MOST_COMPARED = 2_000  # members of a list that are compared pair by pair
_TOGETHER = 2**22  # probabilities of members that are written out at a time
_SHORT = 1.0 + 1e-9  # rounding of norms
_MULTIPLE = 1e-6  # how far an end of a box may be from a multiple of the step, in steps
_SAME_SIZE = 1.0 - 1e-12  # a share that rounding does not take beyond one
_HALVINGS = 100  # of an interval: more than a float has digits


# Losses, and where they are smallest --------------------------------------------------------------


def off_grid(reach: float, rows: float, delta: float) -> float:
    """Return a bound on L(P0) - L(P*) after ``rows`` rows of range 1; 0 where there is no cover."""
    if reach <= 0.0:
        return 0.0
    return min(reach * rows, 0.5 * reach * reach * rows + 0.5 * math.log(2.0 / delta))


def level(reach: float, delta: float) -> float:
    """Return the delta left for the sharp set: half of it if the truth may be off the grid."""
    return 0.5 * delta if reach > 0.0 else delta


def losses(theta: Floats, gram: Floats, xy: Floats) -> Floats:
    """Return L of each member theta [m, G, n], minus sum y^2, for gram [G, n, n] and xy [G, n]."""
    total = np.zeros(len(theta))
    for g in np.flatnonzero(gram.any(axis=(1, 2))):  # groups that have rows
        total += np.einsum("mi,mi->m", theta[:, g] @ gram[g] - 2.0 * xy[g], theta[:, g])
    return total


def simplex_least_squares(x: Floats, y: Floats) -> Floats:
    """Return the distribution p that minimises |x p - y|^2, exactly.

    Lawson and Hanson (1974), chapter 23. Over distributions x p - y = Z p with Z = x - y 1^T. For
    p = t q with q a distribution, min over t of |Z p|^2 + (sum p - 1)^2 is |Z q|^2/(|Z q|^2 + 1),
    which grows with |Z q|: non-negative least squares finds the same q.
    """
    from scipy.optimize import nnls  # slow to import, and seldom needed

    largest = max(np.abs(x).max(initial=0.0), np.abs(y).max(initial=0.0), 1e-300)
    scale = float(largest) * math.sqrt(len(x) + 1.0)  # so that no row outweighs the sum of p
    stacked = np.vstack([(x - y[:, None]) / scale, np.ones((1, x.shape[1]))])
    target = np.append(np.zeros(len(x)), 1.0)
    p = nnls(stacked, target)[0]
    return np.asarray(p / p.sum(), dtype=np.float64)


def simplex_minimum(gram: Floats, xy: Floats) -> Floats:
    """Return the distribution p that minimises p^T gram p - 2 xy^T p.

    gram = X^T X and xy = X^T y for some X and y; the eigenvectors of gram give an X and a y of as
    few rows.
    """
    eigen, vectors = np.linalg.eigh(gram)
    # Directions that no row has seen do not change the loss.
    kept = eigen > 1e-12 * eigen[-1]
    root = np.sqrt(eigen[kept])
    axes = vectors[:, kept].T
    return simplex_least_squares(root[:, None] * axes, axes @ xy / root)


def ball_least_squares(gram: Floats, xy: Floats, radius: float) -> Floats:
    """Return eta, |eta| <= radius, that minimises eta^T gram eta - 2 xy^T eta; the shortest one."""
    eigen, vectors = np.linalg.eigh(gram)
    eigen = np.maximum(eigen, 0.0)
    coefficients = vectors.T @ xy

    def solution(shift: float) -> Floats:
        """Return eta along the axes, for the multiplier ``shift`` of the constraint."""
        curved = eigen + shift > 1e-12 * max(1.0, float(eigen[-1]))
        eta: Floats = np.zeros_like(eigen)
        np.divide(coefficients, eigen + shift, out=eta, where=curved)
        return eta

    eta = solution(0.0)
    if np.linalg.norm(eta) > radius:
        # On the sphere: |eta(shift)| falls in shift, so that bisection finds the multiplier.
        low = 0.0
        high = float(np.linalg.norm(coefficients)) / radius
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            if np.linalg.norm(solution(middle)) > radius:
                low = middle
            else:
                high = middle
        eta = solution(high)
    return np.asarray(vectors @ eta, dtype=np.float64)


# Families -----------------------------------------------------------------------------------------


class Family(ABC):
    """A set of kernels over one feature map: what ladders ask of the four kinds of classes below.

    Ladders take these kinds alone, because nesting has to be verified. For a class of your own
    write a function: :class:`occamrl.CoverFamily` from parameters to kernels, or
    :class:`occamrl.Model` from states to outcomes.
    """

    features: FeatureMap
    size: int  # the number of kernels of a list, or of parameters
    finite = False  # whether it is a list of kernels
    reach = 0.0  # how far the truth may be from the nearest member; 0 but for covers

    @abstractmethod
    def members(self, draw: np.random.Generator, count: int) -> Sequence[Member]:
        """Return some members, drawn at random; none if none was found."""

    @abstractmethod
    def find(self, kernel: KernelLike) -> Member | None:
        """Return the member that equals a kernel up to rounding; None if none does.

        Kernels are [S, A, S] or sparse (S*A, S).
        """

    @abstractmethod
    def smallest_loss(self, gram: Floats, xy: Floats) -> float:
        """Return min over the family of L, minus sum y^2, from the sums over ``own_features``."""

    @property
    def own_features(self) -> FeatureMap:
        """The features of the parameters that the family is regressed on."""
        return self.features

    def kernel(self, member: Member) -> Floats:
        """Return one member as a dense array [S, A, S]."""
        return self.features.kernel(member)

    def contains(self, kernel: KernelLike) -> bool:
        """Return whether a kernel belongs to the family."""
        return self.find(kernel) is not None


class FiniteFamily(Family):
    """A list of candidate kernels. Members are numbers, from 0.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 3, 2))  # four P[s, a, s']
    >>> family = orl.FiniteFamily(kernels)
    >>> family.size, family.find(kernels[2])
    (4, 2)

    Parameters
    ----------
    kernels : array [m, S, A, S], or a sequence of kernels or of problems
        Dense [S, A, S] or scipy.sparse (S*A, S); or FiniteMDPs with the same unit and the same
        allowed actions. Where their rewards are on outcomes, members are laws of outcomes (s',
        reward).
    parameters, features : array [m, d] or [m, G, n], and FeatureMap
        Instead of ``kernels``: member i is <phi, parameters[i]>. 100,000 members fit easily.
    """

    theta: Floats  # [m, G, n] the parameters of all members
    finite = True

    def __init__(
        self,
        kernels: ArrayLike | Sequence[Any] | None = None,
        *,
        parameters: ArrayLike | None = None,
        features: FeatureMap | None = None,
    ) -> None:
        if (kernels is None) == (parameters is None) or (parameters is None) != (features is None):
            raise FamilyError(
                "kernels", got="both or neither", expected="kernels, or parameters with features"
            )
        if features is None:
            field = "kernels"
            self.features, self.theta = _one_hot(kernels)
        else:
            field = "parameters"
            require_kind("features", features, FeatureMap)
            theta = as_floats("parameters", parameters)
            shape = (features.groups, features.width)
            flat = features.groups == 1 and theta.shape[1:] == (features.dimension,)
            if len(theta) == 0 or (theta.shape[1:] != shape and not flat):
                raise ShapeError(
                    "parameters", got=theta.shape, expected=f"[m, {features.dimension}], m >= 1"
                )
            self.features = features
            self.theta = theta.reshape(-1, *shape)
        self.size = len(self.theta)
        require_kernels(field, self.features, self.theta)

    def take(self, members: Chosen) -> FiniteFamily:
        """Return the family of some members, in the order given."""
        # Members were checked when they were read, and a part of a cover is a plain list.
        family = FiniteFamily.__new__(FiniteFamily)
        family.features = self.features
        family.theta = self.theta[members]
        family.size = len(family.theta)
        return family

    def kernel(self, member: Member) -> Floats:
        """Return one member as a dense array [S, A, S]."""
        number = require_integer("member", member, 0, maximum=self.size - 1)
        return self.features.kernel(self.theta[number])

    def probability(self, members: Chosen = slice(None)) -> Floats:
        """Return the probabilities [m, O] of some members on the outcomes of the features."""
        return self.features.laws(self.theta[members])

    def kernels_of(self, member: int, known: Known) -> bellman.Kernels:
        """Return a member as dynamic programming needs it, with the rewards of a problem."""
        outcomes = self.features.attach(known)
        probability = self.features.probabilities(self.theta[member])
        return bellman.kernels_of(outcomes, probability, known)

    def repeated(self, layers: int) -> FiniteFamily:
        """Return the same kernels at each of some steps."""
        family = self.take(slice(None))
        family.features = self.features.repeated(layers)
        family.reach = self.reach
        return family

    @cached_property
    def _solved(self) -> PerProblem:
        """By problem, V*_1 of the members that were solved [m, S]; NaN for the others."""
        return PerProblem()

    def first_values(self, known: Known, members: Ints) -> Floats:
        """Return V*_1 of some members [., S].

        Each is solved when it is first asked for: small classes need few.
        """
        if known not in self._solved:
            self._solved[known] = np.full((self.size, known.states), np.nan)
        table: Floats = self._solved[known]
        new = members[np.isnan(table[members, 0])]
        outcomes = self.features.attach(known)
        # Several at a time: fewer calls for small problems, bounded memory for large ones.
        together = max(1, _TOGETHER // outcomes.next_state.size)
        for first in range(0, new.size, together):
            some = new[first : first + together]
            table[some] = bellman.first_values(outcomes, self.probability(some), known)
        return table[members]

    def members(self, draw: np.random.Generator, count: int) -> Sequence[int]:
        """Return the numbers of some members."""
        return list(map(int, draw.permutation(self.size)[:count]))

    def find(self, kernel: KernelLike) -> int | None:
        """Return the number of the first member that equals a kernel, None if none does."""
        target = self.features.on_cells(kernel)
        if target is None:
            return None
        matrix = self.features.cells[1]
        theta = self.theta.reshape(self.size, -1)
        # Members that differ have other projections on numbers in general position.
        weights = np.random.default_rng(0).uniform(0.5, 1.0, target.size)
        gap = np.abs(theta @ (matrix.T @ weights) - weights @ target)
        for member in np.flatnonzero(gap <= TOLERANCE * weights.sum()).tolist():
            if np.abs(matrix @ theta[member] - target).max() <= TOLERANCE:
                return int(member)
        return None

    def smallest_loss(self, gram: Floats, xy: Floats) -> float:
        """Return the smallest loss of a member, minus sum y^2."""
        return float(losses(self.theta, gram, xy).min())

    def log_covering_number(self, alpha: float) -> float:
        """Return log of the number of members of which every other one is within alpha.

        Distances are sup over (s, a) of sum over s' |P - P'|. They are chosen greedily, so that
        this is a bound on log N(F, alpha); beyond 2,000 members it is that of their number.
        """
        require_number("alpha", alpha, 0.0, math.inf, open_low=True)
        if self.size > _MOST_COMPARED:
            return math.log(self.size)
        laws = self.probability()
        start = self.features.outcomes.start[:-1]
        covered = np.zeros(self.size, dtype=bool)
        count = 0
        for member in range(self.size):
            if covered[member]:
                continue
            count += 1
            apart = np.add.reduceat(np.abs(laws - laws[member]), start, axis=1).max(axis=1)
            covered |= apart <= alpha
        return math.log(count)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the members: equal for equal families, in any process."""
        digest = hashlib.sha256(f"{self.features.fingerprint} {self.reach!r}".encode())
        digest.update(np.ascontiguousarray(self.theta).tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size} kernels, {self.features!r})"


def require_kernels(field: str, features: FeatureMap, theta: Floats) -> None:
    """Refuse parameters [m, G, n] that do not make kernels."""
    start = features.outcomes.start[:-1]
    together = max(1, _TOGETHER // features.outcomes.next_state.size)
    for first in range(0, len(theta), together):
        p = features.laws(theta[first : first + together])
        total = np.add.reduceat(p, start, axis=1)
        least = np.minimum.reduceat(p, start, axis=1)
        sums_to_one = np.abs(total - 1.0) <= TOLERANCE  # false where not a number
        fine = sums_to_one & (least >= -_SIGN_TOLERANCE)
        if fine.all():
            continue
        member, pair = np.argwhere(~fine)[0].tolist()
        here = float(total[member, pair])
        lowest = float(least[member, pair])
        got = f"probabilities that sum to {here:.12g}"
        if sums_to_one[member, pair]:
            got = f"a probability of {lowest:.6g}"
        raise FamilyError(
            field,
            index=(first + member, *divmod(pair, features.actions)),
            got=got,
            expected=sum_to_one(here, lowest),
        )


def _one_hot(kernels: Any) -> tuple[FeatureMap, Floats]:
    """Return one-hot features over the united outcomes, and the members in their coordinates."""
    if not isinstance(kernels, (list, tuple)):
        kernels = as_floats("kernels", kernels)
    if any(isinstance(member, FiniteMDP) for member in kernels):
        _require_one_unit(kernels)
        united = FeatureMap.of_simulators(kernels)
    else:
        united = FeatureMap.of_matrix(*read_kernels("kernels", kernels))
    features = FeatureMap.of_outcomes(
        united.outcomes, united.states, united.rewards, layers=united.layers
    )
    theta = np.zeros((united.width, features.groups * features.width))
    theta[:, features.flat_index] = as_dense(united.matrix).T
    return features, theta.reshape(-1, features.groups, features.width)


def _require_one_unit(problems: Sequence[FiniteMDP]) -> None:
    """Refuse problems with different units or allowed actions: their rewards are not the same."""
    for i, problem in enumerate(problems):
        require_kind(f"kernels[{i}]", problem, FiniteMDP)
        known = problem.known
        first = problems[0].known
        if known.unit != first.unit or not np.array_equal(known.allowed, first.allowed):
            raise FamilyError(
                "kernels",
                index=(i,),
                got="another unit or other allowed actions",
                expected="those of the first: one reward_range, one set of allowed actions",
            )


class CoverFamily(FiniteFamily):
    """The kernels of a parametric class, kernel(parameters), at the points of a grid over a box.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> calm, storm = np.random.default_rng(0).dirichlet(np.ones(3), size=(2, 3, 2))  # P[s, a, s']
    >>> family = orl.CoverFamily(
    ...     lambda p: (1 - p[0]) * calm + p[0] * storm, low=[0.0], high=[1.0], step=0.1
    ... )
    >>> family.size
    11

    Grid points are multiples of the step, so that covers of boxes form ladders. A truth between two
    points keeps its class (``off_grid``). The price: kernels nearer to each other than about the
    cover radius are never told apart.

    Parameters
    ----------
    kernel : callable
        From a vector of parameters to a kernel [S, A, S], dense or scipy.sparse (S*A, S).
    low, high, step : sequences of numbers
        The box, and the distance of grid points in each parameter, or one for all. Ends are
        multiples of the step.
    reach : float, optional
        The cover radius: how far, in sup over (s, a) of sum over s' |P - P'|, a kernel of the box
        may be from its nearest grid point. By default computed from neighbours, which is right for
        kernels that are affine in each parameter between them. 0: the truth is a grid point, and
        the family a list like any other.
    """

    def __init__(
        self,
        kernel: Callable[[Floats], KernelLike],
        *,
        low: Sequence[float],
        high: Sequence[float],
        step: float | Sequence[float],
        reach: float | None = None,
    ) -> None:
        axes = _axes(low, high, step)
        self.counts = tuple(axis.size for axis in axes)
        self.parameters: Floats = np.array(list(itertools.product(*axes)))
        points = list(self.parameters)
        if reach:
            # What can happen in the middle of a cell can happen. By default kernels are affine in
            # between, and no other outcome appears there.
            points += _middles(axes)
        self.features, theta = _one_hot([kernel(point) for point in points])
        self.size = len(self.parameters)
        self.theta = theta[: self.size]
        require_kernels("kernels", self.features, self.theta)
        if reach is None:
            self.reach = self._reach([axis.size for axis in axes])
        else:
            self.reach = require_number("reach", reach, 0.0, 2.0)

    def log_covering_number(self, alpha: float) -> float:
        """Return a bound on log N(F, alpha) of the whole box, the truth being near a grid point.

        Grid points that cover the others at alpha - reach cover the box at alpha. Below the reach
        the cells are divided: right for kernels that are affine in each parameter within a cell.
        """
        if alpha > self.reach:
            return super().log_covering_number(alpha - self.reach)
        parts = math.ceil(self.reach / alpha)
        return sum(math.log((count - 1) * parts + 1) for count in self.counts)

    def _reach(self, counts: Sequence[int]) -> float:
        """Return half the largest distance of neighbours on the grid, summed over parameters."""
        laws = self.probability().reshape(*counts, -1)
        start = self.features.outcomes.start[:-1]
        reach = 0.0
        for axis in range(len(counts)):
            gaps = np.add.reduceat(np.abs(np.diff(laws, axis=axis)), start, axis=-1)
            reach += 0.5 * float(gaps.max(initial=0.0))
        return reach


def _axes(
    low: Sequence[float], high: Sequence[float], step: float | Sequence[float]
) -> list[Floats]:
    """Return the multiples of the steps in a box, for each parameter."""
    bottom = as_floats("low", low)
    top = as_floats("high", high)
    width = as_floats("step", step)
    ends = (low, high)
    if bottom.ndim != 1 or bottom.shape != top.shape or not bottom.size or (bottom > top).any():
        raise ParameterError(
            "low, high", got=ends, expected="two vectors of numbers with low <= high"
        )
    if width.shape not in ((), (1,), bottom.shape) or not (width > 0.0).all():
        raise ParameterError("step", got=step, expected=f"one number > 0, or {bottom.size}")
    width = np.broadcast_to(width, bottom.shape)
    first = np.round(bottom / width)
    last = np.round(top / width)
    off = np.abs([bottom / width - first, top / width - last])
    if not (off <= _MULTIPLE).all():  # false where not a number
        raise ParameterError(
            "low, high",
            got=ends,
            expected="multiples of the step: beyond the last grid point nothing would be covered",
        )
    counts = last - first + 1
    if counts.prod() > _MOST_MEMBERS:
        raise FamilyError(
            "step", got=f"a grid of {counts.tolist()}", expected=f"at most {_MOST_MEMBERS:,} points"
        )
    return [np.arange(a, b + 1) * w for a, b, w in zip(first, last, width, strict=True)]


def _middles(axes: Sequence[Floats]) -> list[Floats]:
    """Return the middles of the cells of a grid; along an axis of one point, that point."""
    halfway = []
    for axis in axes:
        halfway.append(axis if axis.size == 1 else 0.5 * (axis[1:] + axis[:-1]))
    return [np.array(point) for point in itertools.product(*halfway)]


class LinearFamily(Family):
    """Kernels P_theta with theta on some coordinates and |theta| <= b. Members are vectors [d].

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
    coordinates : sequence of int, optional
        theta is zero elsewhere. By default all.
    """

    def __init__(
        self, *, features: FeatureMap, norm_bound: float, coordinates: Sequence[int] | None = None
    ) -> None:
        require_kind("features", features, FeatureMap)
        if features.groups > 1:
            raise FamilyError(
                "features",
                got=repr(features),
                expected="a dense or sparse feature map (for one-hot ones: AggregationFamily)",
            )
        if coordinates is None:
            coordinates = range(features.dimension)
        self.features = features
        self.coordinates = as_indices("coordinates", coordinates, features.dimension)
        self.norm_bound = require_number("norm_bound", norm_bound, 0.0, math.inf, open_low=True)
        self.size = self.coordinates.size

    @cached_property
    def own_features(self) -> FeatureMap:
        """The features of the coordinates, over the outcomes of the whole map."""
        if np.array_equal(self.coordinates, np.arange(self.features.dimension)):
            return self.features
        return self.features.restrict(self.coordinates)

    def _whole(self, eta: Floats) -> Floats:
        """Return theta [d], given its coordinates [r]."""
        theta = np.zeros(self.features.dimension)
        theta[self.coordinates] = eta
        return theta

    def members(self, draw: np.random.Generator, count: int) -> Sequence[Floats]:
        """Return kernels of the class, as mixtures of vertices within the ball.

        Vertices are those of {theta : P_theta is a kernel}. Empty where none of those found can be
        mixed into one that is short enough.
        """
        # Inside the polytope of kernels the ball may be missed by every vertex: mix them.
        corners = self._corners(draw, max(4, min(count, 2 * self.size)))
        if not len(corners):
            return []
        shortest = simplex_least_squares(corners.T, np.zeros(self.size)) @ corners
        room = self.norm_bound**2 - float(shortest @ shortest)
        if room < 0.0:
            return []
        mixed = []
        for way in draw.dirichlet(np.full(len(corners), 0.5), size=count) @ corners - shortest:
            # |shortest + share way| = norm_bound, a quadratic equation for the share
            half = float(shortest @ way)
            square = max(float(way @ way), 1e-300)
            share = (math.sqrt(half**2 + square * room) - half) / square
            mixed.append(self._whole(shortest + min(1.0, _SAME_SIZE * share) * way))
        return mixed

    def _corners(self, draw: np.random.Generator, count: int) -> Floats:
        """Return vertices of the set of kernels, the best ones for objectives drawn at random."""
        from scipy.optimize import linprog  # slow to import, and seldom needed

        sums = np.unique(np.round(self.own_features.sums, 12), axis=0)
        negative: Any = -self.own_features.matrix  # dense or sparse: linprog takes both
        corners = []
        for cost in draw.normal(size=(count, self.size)):
            solved = linprog(
                cost,
                A_ub=negative,
                b_ub=np.zeros(negative.shape[0]),
                A_eq=sums,
                b_eq=np.ones(len(sums)),
                bounds=(-self.norm_bound, self.norm_bound),
            )
            if solved.status == 0:
                corners.append(solved.x)
        return np.array(corners)

    def find(self, kernel: KernelLike) -> Floats | None:
        """Return the shortest theta [d] of a kernel of the class, None for any other."""
        target = self.features.on_cells(kernel)
        if target is None:
            return None
        matrix = self.features.cells[1][:, self.coordinates].toarray()
        # Of several parameters for one kernel lstsq returns the shortest, which fits the ball best.
        eta = np.linalg.lstsq(matrix, target, rcond=None)[0]
        fits = (np.abs(matrix @ eta - target) <= TOLERANCE).all()
        if not fits or np.linalg.norm(eta) > self.norm_bound * _SHORT:
            return None
        return self._whole(eta)

    def smallest_loss(self, gram: Floats, xy: Floats) -> float:
        """Return min over the class of L minus sum y^2, without regularisation."""
        eta = ball_least_squares(gram[0], xy[0], self.norm_bound)
        return float(eta @ gram[0] @ eta - 2.0 * xy[0] @ eta)

    def log_covering_number(self, alpha: float) -> float:
        """Return r log(1 + 2 b L/alpha), a bound on log N(F, alpha).

        Distances are sup over (s, a) of sum over s' |P - P'|: P_theta moves by at most L = max over
        (s, a) of sum |phi| per |theta|.
        """
        lengths = np.sqrt(sp.csr_array(self.own_features.matrix).power(2).sum(axis=1))
        steepest = np.add.reduceat(lengths, self.features.outcomes.start[:-1]).max()
        radius = self.norm_bound * float(steepest)
        if radius <= alpha:
            return 0.0
        return self.size * math.log1p(2.0 * radius / alpha)

    def __repr__(self) -> str:
        coordinates = f"{self.size} of {self.features.dimension} dimensions"
        return f"LinearFamily({coordinates}, norm <= {self.norm_bound:g})"


class AggregationFamily(Family):
    """Kernels in which all states of a block of a partition share the law of their moves.

    >>> import occamrl as orl
    >>> family = orl.AggregationFamily(partition=[0, 0, 1, 1], actions=2)  # 0 and 1 share a law
    >>> family.blocks
    2

    What can happen at (s, a) is a list of labelled moves, and a member theta [G, n] has one
    distribution over them per block and action. With absolute moves (move l leads to state l) the
    states of a block share their successors; with relative ones ("one up"), the law of their moves:
    the current is the same along a stretch of the river.

    Parameters
    ----------
    partition : array [S] of integers
        The block of each state.
    moves : array [S, A, L] of integers, optional
        Where move l leads from (s, a); -1 where there is no such move, the same ones for all states
        of a block. By default every state can be reached, moves being states.
    actions : int, optional
        A, where ``moves`` does not tell.
    """

    def __init__(
        self, *, partition: ArrayLike, moves: ArrayLike | None = None, actions: int | None = None
    ) -> None:
        labels = as_integers("partition", partition, "integers [S]")
        if moves is None:
            width = require_integer("actions", actions, 1, FamilyError)
            shape = (labels.size, width, labels.size)
            moves = np.broadcast_to(np.arange(labels.size), shape)
        table = as_integers("moves", moves)
        if labels.ndim != 1 or table.ndim != 3 or len(table) != labels.size or 0 in table.shape:
            raise ShapeError(
                "partition, moves",
                got=f"shapes {labels.shape} and {table.shape}",
                expected="integers [S] and [S, A, L]",
            )
        if actions is not None and table.shape[1] != actions:
            raise ShapeError("moves", got=f"{table.shape[1]} actions", expected=f"A = {actions}")
        _, first, block = np.unique(labels, return_index=True, return_inverse=True)
        _require_moves(table, first[block])
        possible = table >= 0
        start = np.append(0, np.cumsum(possible.sum(axis=2)))
        outcomes = Outcomes(start, table[possible], np.zeros(int(start[-1])))
        group = block[:, None] * table.shape[1] + np.arange(table.shape[1])
        self.features = FeatureMap.of_outcomes(outcomes, labels.size, group=group.ravel())
        self.partition: Ints = block
        self.moves = table
        self.blocks = first.size
        self.size = self.features.dimension
        # Of the part of theta that rows can see: where there is one move, targets are constant.
        self.norm_bound = math.sqrt(max(1, int((self.features.sizes > 1).sum())))

    @classmethod
    def tabular(cls, *, states: int, actions: int) -> AggregationFamily:
        """Return the class of all kernels: every state a block."""
        return cls(partition=np.arange(require_integer("states", states, 1)), actions=actions)

    def members(self, draw: np.random.Generator, count: int) -> Sequence[Floats]:
        """Return members with uniformly drawn distributions."""
        possible = np.arange(self.features.width) < self.features.sizes[:, None]
        drawn = draw.exponential(size=(count, *possible.shape)) * possible
        return list(drawn / drawn.sum(axis=2, keepdims=True))

    def find(self, kernel: KernelLike) -> Floats | None:
        """Return theta of a kernel with one law per block, None for any other."""
        from scipy.optimize import nnls  # slow to import, and seldom needed

        target = self.features.on_cells(kernel)
        if target is None:
            return None
        matrix = self.features.cells[1].tocsc()
        theta = np.zeros((self.features.groups, self.features.width))
        # Groups share no parameter, so that each is a small problem of its own.
        for g, size in enumerate(self.features.sizes):
            first = g * self.features.width
            columns = matrix[:, first : first + size]
            used = np.unique(columns.indices)
            theta[g, :size] = nnls(columns[used].toarray(), target[used])[0]
        fits = (np.abs(matrix @ theta.ravel() - target) <= TOLERANCE).all()
        return theta if fits else None

    def smallest_loss(self, gram: Floats, xy: Floats) -> float:
        """Return min over the class of L minus sum y^2: a distribution per block and action."""
        total = 0.0
        for g in np.flatnonzero(gram.any(axis=(1, 2))):
            part = slice(self.features.sizes[g])
            square = gram[g, part, part]
            linear = xy[g, part]
            p = simplex_minimum(square, linear)
            total += float(p @ square @ p - 2.0 * linear @ p)
        return total

    def log_covering_number(self, alpha: float) -> float:
        """Return the sum of (n - 1) log(1 + 2 r/alpha) over distributions of n moves.

        The distributions lie in a ball of radius r = 2 (1 - 1/n) around the uniform one, in n - 1
        dimensions; one point is enough where alpha >= r. Two moves are an interval, for which
        log ceil(1/alpha) is exact.
        """
        radius = 2.0 * (1.0 - 1.0 / self.features.sizes)
        ball = (self.features.sizes - 1.0) * np.log1p(2.0 * radius / alpha)
        ball[self.features.sizes == 2] = math.log(math.ceil(1.0 / alpha))
        return float(ball[alpha < radius].sum())

    def __repr__(self) -> str:
        return f"AggregationFamily({self.blocks} blocks, {self.features!r})"


def _require_moves(table: Ints, first: Ints) -> None:
    """Refuse moves [S, A, L] that lead nowhere, or are not those of the first state of a block."""
    states = len(table)
    outside = np.argwhere((table < -1) | (table >= states))
    if len(outside):
        index = tuple(outside[0].tolist())
        raise FeatureError(
            "moves",
            index=index,
            got=int(table[index]),
            expected=f"a state in 0..{states - 1}, or -1",
        )
    possible = table >= 0
    other = (possible != possible[first]).any(axis=2)
    wrong = np.argwhere(other | ~possible.any(axis=2))
    if len(wrong):
        s, a = wrong[0].tolist()
        example = int(first[s])
        got = f"the moves {np.flatnonzero(possible[s, a]).tolist()}"
        theirs = np.flatnonzero(possible[example, a]).tolist()
        raise FeatureError(
            "moves",
            index=(s, a),
            got=got,
            expected=f"at least one, those of state {example} of the same block: {theirs}",
        )
