"""Finite families of kernels: a stack, or parameters over a feature map.

Both are the same thing: n vectors theta over features, the features of a stack being one-hot. Value functions depend on
the kernel alone and are solved once per problem.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from occamrl.contracts import Floats, Ints, Known, Outcomes
from occamrl.errors import FamilyError, ParameterError, ShapeError
from occamrl.families.family import TOLERANCE, Family
from occamrl.families.features import FeatureMap
from occamrl.families.regression import Rows, design, kernel_matrix
from occamrl.families.simulators import any_sparse, outcomes_of, read_kernels
from occamrl.kernels.bellman import optimal_values
from occamrl.kernels.compile import compiled
from occamrl.kernels.features import TabularFeatures

_SUM_TOLERANCE = 1e-8
_SIGN_TOLERANCE = 1e-10
_CHUNK = 4096  # members written out as kernels at a time


class FiniteFamily(Family):
    """A list of candidate kernels. Members are numbers, from 0.

    Parameters
    ----------
    kernels : array [n, S, A, S], or a sequence of kernels
        Dense [S, A, S] or scipy.sparse of shape (S*A, S); sparse ones stay so.
    parameters, features : array [n, d] and FeatureMap
        Instead of ``kernels``: member i is <phi, parameters[i]>. 100,000 members fit easily.
    """

    def __init__(
        self,
        kernels: ArrayLike | Sequence[Any] | None = None,
        *,
        parameters: ArrayLike | None = None,
        features: FeatureMap | None = None,
    ) -> None:
        if (kernels is None) == (parameters is None) or (parameters is None) != (features is None):
            raise FamilyError("kernels", got="both or neither", expected="kernels, or parameters with features")
        if features is None:
            features, theta = _one_hot(kernels)
        elif not isinstance(features, FeatureMap):
            raise FamilyError("features", got=type(features).__name__, expected="a FeatureMap")
        else:
            theta = np.array(np.asarray(parameters, dtype=np.float64).T, order="C")  # a copy, whatever was given
            if theta.ndim != 2 or theta.shape[0] != features.dimension:
                raise ShapeError("parameters", got=theta.T.shape, expected=f"[n, {features.dimension}]")
        if theta.shape[1] == 0:
            raise FamilyError(
                "kernels" if parameters is None else "parameters", got="no member", expected="at least one"
            )
        self._set(features, theta)
        _check_members(self, "kernels" if parameters is None else "parameters")

    def _set(self, features: FeatureMap, theta: Floats, whole: FiniteFamily | None = None) -> None:
        self.features = features
        self.theta = theta  # [d, n]: one column per member
        self._whole = whole  # the family of which this one is the beginning, if any
        self._values: weakref.WeakKeyDictionary[Known, Floats] = weakref.WeakKeyDictionary()

    @classmethod
    def _make(cls, features: FeatureMap, theta: Floats, whole: FiniteFamily | None = None) -> FiniteFamily:
        """Return a family of members that are known to be kernels."""
        made = cls.__new__(cls)
        made._set(features, np.ascontiguousarray(theta), whole)
        return made

    def take(self, members: Ints) -> FiniteFamily:
        """Return the family of some members, in the order given."""
        return FiniteFamily._make(self.features, self.theta[:, members])

    def prefix(self, size: int) -> FiniteFamily:
        """Return the family of the first members; value functions are solved once for both."""
        if not 1 <= size <= self.size:
            raise FamilyError("size", got=size, expected=f"an integer in [1, {self.size}]")
        return FiniteFamily._make(self.features, self.theta[:, :size], self)

    @property
    def size(self) -> int:
        """The number n of members."""
        return int(self.theta.shape[1])

    def parameters_of(self, member: int) -> Floats:
        """Return theta of a member [d]."""
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
        if known not in self._values and self._whole is not None:
            self._values[known] = self._whole.optimal_values(known)[: self.size]
        elif known not in self._values:
            outcomes, base = self.features.attach(known).outcomes, known.base_reward.flatten()
            solved = np.empty((self.size, known.horizon + 1, known.states))
            for first in range(0, self.size, _CHUNK):
                part = slice(first, first + _CHUNK)
                kernels = np.ascontiguousarray(self.probabilities(part).T)
                _solve_members(outcomes, kernels, base, solved[part])
            self._values[known] = solved
        return self._values[known]

    def members(self, draw: np.random.Generator, count: int) -> Sequence[int]:
        """Return the numbers of some members."""
        return [int(i) for i in draw.permutation(self.size)[:count]]

    def find(self, kernel: Floats) -> int | None:
        """Return the number of the first member that equals a kernel, None if none does."""
        target, matrix = kernel.ravel(), kernel_matrix(self.features)
        for first in range(0, self.size, _CHUNK):
            gap = np.abs(matrix @ self.theta[:, first : first + _CHUNK] - target[:, None]).max(axis=0)
            if (gap <= TOLERANCE).any():
                return first + int(np.argmax(gap <= TOLERANCE))
        return None

    def losses(self, known: Known, rows: Rows) -> Floats:
        """Return L(P) of all members on range-weighted rows [n] (M1)."""
        x, y = design(self.features, known, rows)
        return np.asarray(((y[:, None] - x @ self.theta) ** 2).sum(axis=0))

    def estimate(self, known: Known, rows: Rows) -> int:
        """Return the member with the smallest loss, the first of them (M3)."""
        return int(np.argmin(self.losses(known, rows)))

    def confidence_set(self, known: Known, rows: Rows, *, delta: float) -> Ints:
        """Return the members whose loss is at most the mixture's, with a uniform prior (M22, M24)."""
        losses = self.losses(known, rows)
        least = float(losses.min())
        bound = least - 0.5 * np.log(np.exp(-2.0 * (losses - least)).mean()) + 0.5 * np.log(1.0 / delta)
        return np.flatnonzero(losses <= bound)

    def optimistic_values(self, known: Known, rows: Rows, *, delta: float, start: int = 0) -> Floats:
        """Return V* of the member of the confidence set that promises most at ``start`` (M5)."""
        left, values = self.confidence_set(known, rows, delta=delta), self.optimal_values(known)
        return np.asarray(values[left[np.argmax(values[left, 0, start])]])

    def covering_number(self, alpha: float) -> int:
        """Return the size of an alpha-cover found greedily: an upper bound on N(F, alpha)."""
        if not alpha >= 0.0:
            raise ParameterError("alpha", got=alpha, expected="a number >= 0")
        members, start = self.probabilities(), self.features.layout.outcomes.start
        open_ones, count = np.arange(self.size), 0
        while open_ones.size:
            gap = np.abs(members[:, open_ones] - members[:, open_ones[:1]])
            open_ones = open_ones[np.add.reduceat(gap, start[:-1]).max(axis=0) > alpha]
            count += 1
        return count

    def log_covering_number(self, alpha: float) -> float:
        """Return log of :meth:`covering_number`."""
        return float(np.log(self.covering_number(alpha)))

    @classmethod
    def examples(cls) -> list[FiniteFamily]:
        """Small instances, for the contract checks."""
        generator = np.random.default_rng(0)
        stack = generator.dirichlet(np.ones(3), size=(4, 3, 2))
        mixture = FeatureMap([stack[0], stack[1]])
        weights = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
        return [cls(stack), cls(parameters=weights, features=mixture)]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the members: equal for equal families, in any process."""
        return hashlib.sha256(self.features.fingerprint.encode() + self.theta.tobytes()).hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_values"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._values = weakref.WeakKeyDictionary()

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"FiniteFamily(n={self.size}, {self.features!r})"


def _one_hot(kernels: Any) -> tuple[FeatureMap, Floats]:
    """Return the one-hot features over the united support, and the members' probabilities as columns."""
    if any_sparse(kernels):
        entries = read_kernels("kernels", kernels)
        outcomes, states = entries.outcomes, entries.states
        theta = np.zeros((outcomes.next_state.size, len(kernels)))
        theta[entries.outcome, entries.kernel] = entries.value
    else:
        shapes = [np.shape(kernel) for kernel in kernels] if isinstance(kernels, Sequence) else []
        for i, shape in enumerate(shapes):
            if shape != shapes[0]:
                raise ShapeError("kernels", index=(i,), got=shape, expected=shapes[0])
        stack = np.asarray(kernels, dtype=np.float64)
        if stack.size == 0:
            raise FamilyError("kernels", got=f"shape {stack.shape}", expected="at least one member")
        if stack.ndim != 4 or stack.shape[1] != stack.shape[3]:
            raise ShapeError("kernels", got=stack.shape, expected="[n, S, A, S]")
        states, pairs = stack.shape[1], stack.shape[1] * stack.shape[2]
        flat = stack.reshape(len(stack), -1)
        possible = np.flatnonzero((flat != 0.0).any(axis=0))
        outcomes = outcomes_of("kernels", possible // states, possible % states, pairs)
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
        raise FamilyError(field, index=at, got=got, expected="probabilities >= 0 that sum to 1")


@compiled
def _solve_members(outcomes: Outcomes, kernels: Floats, base_reward: Floats, out: Floats) -> None:
    """Write V* of every kernel [n, O] into ``out`` [n, H + 1, S], one value iteration each."""
    for i in range(kernels.shape[0]):
        out[i] = optimal_values(outcomes, kernels[i : i + 1], base_reward, out.shape[2], out.shape[1] - 1)
