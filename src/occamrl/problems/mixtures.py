"""Linear mixtures of which few coordinates matter, and sparse hypotheses over them.

:class:`SparseLadder` lists the sparse parameters of a :class:`SparseMixture` as nested finite
classes; :class:`ReferenceMixture` and :class:`ReferenceLadder` are an instance of each as stored
arrays.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from occamrl.addresses import stream
from occamrl.errors import (
    ParameterError,
    require_integer,
    require_integers,
    require_number,
    require_room,
)
from occamrl.problems.mdp import FiniteMDP, Small, read_only
from occamrl.protocols import Floats, Ints


class NestedClasses(ABC):
    """A problem whose kernel is linear in theta, with nested classes that are lists of theta.

    ``Ladder.of_problem`` makes the ladder, from ``phi`` and what each class adds.
    """

    small: ClassVar[Small]  # the parameters of small instances

    @property
    @abstractmethod
    def theta(self) -> Floats:
        """theta* [d]."""

    @abstractmethod
    def classes(self) -> Sequence[Floats]:
        """Return the parameters [n, d] that each class adds to those before it; some may repeat."""

    @cached_property
    def _ordered(self) -> tuple[Floats, list[int]]:
        added = self.classes()
        stacked = np.concatenate(added)
        # Parameters that agree to 12 digits are one, of the first class that has it.
        _, first = np.unique(np.round(stacked, 12), axis=0, return_index=True)
        kept = np.sort(first)
        ends = np.cumsum([len(part) for part in added])
        return read_only(stacked[kept]), np.searchsorted(kept, ends).tolist()

    @property
    def hypotheses(self) -> Floats:
        """All parameters [n, d], each once, by the first class that contains them."""
        return self._ordered[0]

    @property
    def sizes(self) -> list[int]:
        """|F_1|, ..., |F_M|."""
        return self._ordered[1]


@dataclass(frozen=True, kw_only=True)
class SparseMixture:
    """Signed features that move probability between good and bad states.

    The first half of the states is good (rewards uniform in [0.6, 1]), the second bad (in [0,
    0.4]). With a base law p_0 and a direction u with u(s') > 0 on good states, u(s') < 0 on bad
    ones, sum u = 0 and max |u| = 1 (so u = +-1 if the halves are equal)::

        phi_0(s, a, s') = p_0(s' | s)
                        = (1 - persistence) / S + persistence * uniform on the half of s
        phi_j(s, a, s') = sign_j(s, a) * amplitude * u(s')     j = 1, ..., d-1, signs drawn
        theta           = (1, theta_1, ..., theta_{d-1})
        amplitude       = contrast * min p_0 / sum_{j >= 1} |theta_j|

    Every theta with theta_0 = 1 and at most this sum of magnitudes gives a kernel, whatever its
    signs and support.
    """

    states: int = 12  # S >= 2
    actions: int = 4
    horizon: int = 6
    dimension: int = 16  # d, the number of features, phi_0 among them
    nonzero: int = 3  # coordinates of theta that are not zero, theta_0 among them
    gamma: float = 0.5  # the smallest magnitude among the non-zero theta_j, j >= 1
    norm: float | None = None  # ||theta||: all magnitudes but one grow; by default all are gamma
    seed: int = 0  # draws rewards, support and signs
    persistence: float = 0.0
    contrast: float = 0.9  # how much of the base probability the features may move at most

    small: ClassVar[Small] = (
        {},
        {"states": 5, "dimension": 6, "nonzero": 4, "norm": 1.5, "persistence": 0.5},
    )

    def __post_init__(self) -> None:
        require_integers(self, states=2, actions=1, dimension=1)
        require_room("states", self.states, self.actions, self.states, self.dimension)
        require_integer("nonzero", self.nonzero, 1, maximum=self.dimension)
        require_number("gamma", self.gamma, 0.0, math.inf, open_low=True)
        require_number("contrast", self.contrast, 0.0, 1.0, open_low=True)
        require_number("persistence", self.persistence, 0.0, 0.999)
        if self.norm is None:
            return
        least = math.sqrt(1.0 + (self.nonzero - 1) * self.gamma**2)
        fixed = self.nonzero <= 2  # gamma alone fixes the norm where it is the only magnitude
        expected = f"sqrt(1 + (nonzero - 1) gamma^2) = {least!r}"
        if not fixed:
            expected = f"at least {expected}"
        too_large = fixed and self.norm > least * (1.0 + 1e-12)
        if too_large or self.norm < least * (1.0 - 1e-12):
            raise ParameterError("norm", got=self.norm, expected=expected)

    @property
    def good(self) -> int:
        """The number of good states; they come first."""
        return (self.states + 1) // 2

    @cached_property
    def support(self) -> Ints:
        """The coordinates that are not zero, increasing."""
        draw = stream(self.seed, "sparse_mixture", "support")
        # phi_0 alone has probabilities that sum to one, so it is always in.
        chosen = draw.choice(np.arange(1, self.dimension), self.nonzero - 1, replace=False)
        return read_only(np.sort(np.concatenate([np.zeros(1, np.int64), chosen])))

    @cached_property
    def theta(self) -> Floats:
        """theta* [d]."""
        draw = stream(self.seed, "sparse_mixture", "theta")
        free = self.nonzero - 1
        # One magnitude stays gamma, the smallest; the others share what the norm needs.
        magnitude = np.full(free, self.gamma)
        if self.norm is not None and free > 1:
            square = (self.norm**2 - 1.0 - self.gamma**2) / (free - 1)
            magnitude[1:] = max(math.sqrt(square), self.gamma)
        theta = np.zeros(self.dimension)
        theta[0] = 1.0
        theta[self.support[1:]] = draw.permutation(magnitude) * draw.choice((-1.0, 1.0), free)
        return read_only(theta)

    @cached_property
    def phi(self) -> Floats:
        """The features [S, A, S, d]."""
        states = self.states
        good = self.good
        bad = states - good
        half = np.arange(states) < good
        within = (half[:, np.newaxis] == half) / np.where(half, good, bad)
        base = (1.0 - self.persistence) / states + self.persistence * within
        direction = np.where(half, bad / good, -1.0)  # bad <= good; sums to zero
        # With theta = (1, 0, ..., 0) there is nothing to scale by but gamma.
        amplitude = self.contrast * base.min() / max(np.abs(self.theta[1:]).sum(), self.gamma)
        draw = stream(self.seed, "sparse_mixture", "signs")
        signs = draw.choice((-1.0, 1.0), (states, self.actions, self.dimension - 1))
        phi = np.empty((states, self.actions, states, self.dimension))
        phi[..., 0] = base[:, np.newaxis, :]
        phi[..., 1:] = amplitude * direction[:, np.newaxis] * signs[:, :, np.newaxis, :]
        return read_only(phi)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        draw = stream(self.seed, "sparse_mixture", "reward")
        reward = 0.4 * draw.random((self.states, self.actions))
        reward[: self.good] += 0.6
        # With contrast 1, a probability of zero may round to -1e-18.
        transition = np.maximum(self.phi @ self.theta, 0.0)
        return FiniteMDP(transition=transition, reward=reward, horizon=self.horizon)


@dataclass(frozen=True, kw_only=True)
class SparseLadder(NestedClasses):
    """theta = (1, eta), eta in {0, +-gamma}^(d-1); class m has at most m - 1 non-zero entries.

    The features are those of a :class:`SparseMixture`. With d = 9 and most = 3 the classes have 1,
    17, 129 and 577 members.
    """

    states: int = 12
    actions: int = 3
    horizon: int = 10
    dimension: int = 9
    most: int = 3  # non-zero entries of eta in the largest class, so that M = most + 1
    nonzero: int = 2  # those of the truth, so that m* = nonzero + 1
    gamma: float = 0.5
    persistence: float = 0.5
    contrast: float = 0.95
    seed: int = 0

    small: ClassVar[Small] = (
        {"states": 4, "horizon": 3, "dimension": 4, "most": 2, "nonzero": 1},
        {"nonzero": 0},
    )

    def __post_init__(self) -> None:
        require_integer("most", self.most, 0, maximum=self.dimension - 1)
        require_integer("nonzero", self.nonzero, 0, maximum=self.most)

    @cached_property
    def mixture(self) -> SparseMixture:
        """The mixture with as many non-zero entries as the largest class allows."""
        # With the most entries of any class, so that every hypothesis is a kernel.
        return SparseMixture(
            states=self.states,
            actions=self.actions,
            horizon=self.horizon,
            dimension=self.dimension,
            nonzero=self.most + 1,
            gamma=self.gamma,
            persistence=self.persistence,
            contrast=self.contrast,
            seed=self.seed,
        )

    @property
    def phi(self) -> Floats:
        """The features [S, A, S, d]."""
        return self.mixture.phi

    def classes(self) -> Sequence[Floats]:
        """Return the parameters with 0, 1, ..., ``most`` non-zero entries."""
        return [self._with_nonzero(count) for count in range(self.most + 1)]

    def _with_nonzero(self, count: int) -> Floats:
        """Return all parameters [n, d] with so many non-zero entries of eta."""
        signs = list(itertools.product((-self.gamma, self.gamma), repeat=count))
        blocks = []
        for support in itertools.combinations(range(1, self.dimension), count):
            block = np.zeros((len(signs), self.dimension))
            block[:, 0] = 1.0
            block[:, support] = signs
            blocks.append(block)
        return np.concatenate(blocks)

    @cached_property
    def theta(self) -> Floats:
        """theta* [d]."""
        draw = stream(self.seed, "sparse_ladder", "theta", self.nonzero)
        theta = np.zeros(self.dimension)
        theta[0] = 1.0
        support = draw.choice(np.arange(1, self.dimension), self.nonzero, replace=False)
        theta[support] = draw.choice((-self.gamma, self.gamma), self.nonzero)
        return read_only(theta)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        transition = np.maximum(self.phi @ self.theta, 0.0)
        reward = self.mixture.mdp.known.base_reward
        return FiniteMDP(transition=transition, reward=reward, horizon=self.horizon)


class _Stored:
    """A problem whose arrays are in a file beside this module."""

    file: ClassVar[str]

    @cached_property
    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of the file, by name."""
        path = files("occamrl.problems") / self.file
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {key: read_only(stored[key]) for key in stored}

    def floats(self, key: str) -> Floats:
        """Return one of the arrays, of floats."""
        return np.asarray(self.arrays[key], dtype=np.float64)

    @property
    def phi(self) -> Floats:
        """The features [S, A, S, d]."""
        return self.floats("phi")


@dataclass(frozen=True, kw_only=True)
class ReferenceMixture(_Stored):
    """A sparse linear mixture whose arrays are part of the package.

    S = 12, A = 4, H = 6, d = 16. Three coordinates of theta* are not zero: 1, -0.5, -0.5 (0, 8 and
    13 from zero). Built like :class:`SparseMixture` without persistence, at contrast 0.9, from
    other draws.
    """

    small: ClassVar[Small] = ({},)
    file: ClassVar[str] = "reference_mixture.npz"

    @property
    def theta(self) -> Floats:
        """theta* [d]."""
        return self.floats("theta")

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        transition = self.floats("transition")
        return FiniteMDP(transition=transition, reward=self.floats("reward"), horizon=6)


@dataclass(frozen=True, kw_only=True)
class ReferenceLadder(_Stored):
    """Sparse hypotheses whose arrays are part of the package.

    S = 12, A = 3, H = 10, d = 9 and classes of 1, 17, 129 and 577 parameters as in
    :class:`SparseLadder`. The features are without persistence and at contrast 0.96; good states
    pay 0.8 to 1, bad ones 0 to 0.2. The truth has ``nonzero`` non-zero entries besides the first,
    0 to 3, so that m* = nonzero + 1.
    """

    nonzero: int = 2

    small: ClassVar[Small] = ({"nonzero": 0}, {"nonzero": 3})
    file: ClassVar[str] = "reference_ladder.npz"
    sizes: ClassVar[list[int]] = [1, 17, 129, 577]  # |F_1|, ..., |F_M|

    def __post_init__(self) -> None:
        require_integer("nonzero", self.nonzero, 0, maximum=3)

    @property
    def hypotheses(self) -> Floats:
        """All parameters [n, d], by the number of non-zero entries."""
        return self.floats("thetas")

    @property
    def theta(self) -> Floats:
        """theta* [d]."""
        number = int(np.asarray(self.arrays["truths"])[self.nonzero])
        return np.asarray(self.hypotheses[number])

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        transition = self.phi @ self.theta
        return FiniteMDP(transition=transition, reward=self.floats("reward"), horizon=10)
