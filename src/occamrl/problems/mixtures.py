"""Linear mixtures of which few coordinates matter, sparse hypotheses over them, and walks with a memory.

:class:`SparseLadder` lists the sparse parameters of a :class:`SparseMixture` as nested finite classes;
:class:`ReferenceMixture` and :class:`ReferenceLadder` are an instance of each as stored arrays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np

from occamrl.addresses import stream
from occamrl.errors import ParameterError, require_integer, require_integers, require_number
from occamrl.problems.mdp import FiniteMDP, Small, read_only
from occamrl.problems.operations import NestedClasses
from occamrl.protocols import Floats, Ints


@dataclass(frozen=True, kw_only=True)
class SparseMixture:
    """Signed features that move probability between good and bad states.

    The first half of the states is good (rewards uniform in [0.6, 1]), the second bad (in [0,
    0.4]). With a base law p_0 and a direction u with u(s') > 0 on good states, u(s') < 0 on bad
    ones, sum u = 0 and max |u| = 1 (so u = +-1 if the halves are equal)::

        phi_0(s, a, s') = p_0(s' | s) = (1 - persistence) / S + persistence * uniform on the half of s
        phi_j(s, a, s') = sign_j(s, a) * amplitude * u(s')     j = 1, ..., d-1, signs drawn at random
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
    norm: float | None = (
        None  # ||theta||, reached by enlarging all magnitudes but the first; by default all are gamma
    )
    seed: int = 0  # draws rewards, support and signs
    persistence: float = 0.0
    contrast: float = 0.9  # how much of the base probability the features may move at most

    small: ClassVar[Small] = (
        {},
        {"states": 5, "dimension": 6, "nonzero": 4, "norm": 1.5, "persistence": 0.5},
    )

    def __post_init__(self) -> None:
        require_integers(self, states=2, actions=1, dimension=1)
        require_integer("nonzero", self.nonzero, 1, maximum=self.dimension)
        require_number("gamma", self.gamma, 0.0, math.inf, open_low=True)
        require_number("contrast", self.contrast, 0.0, 1.0, open_low=True)
        require_number("persistence", self.persistence, 0.0, 0.999)
        least = math.sqrt(1.0 + (self.nonzero - 1) * self.gamma**2)
        norm = least if self.norm is None else self.norm
        if norm < least * (1.0 - 1e-12) or (self.nonzero <= 2 and norm > least * (1.0 + 1e-12)):
            more = (
                "" if self.nonzero <= 2 else "at least "
            )  # gamma alone fixes it where there is one magnitude
            raise ParameterError(
                "norm", got=norm, expected=f"{more}sqrt(1 + (nonzero - 1) gamma^2) = {least!r}"
            )

    @property
    def good(self) -> int:
        """The number of good states; they come first."""
        return (self.states + 1) // 2

    @cached_property
    def support(self) -> Ints:
        """The coordinates that are not zero, increasing."""
        draw = stream(self.seed, "sparse_mixture", "support")
        chosen = draw.choice(np.arange(1, self.dimension), self.nonzero - 1, replace=False)
        return read_only(np.sort(np.concatenate([np.zeros(1, np.int64), chosen])))

    @cached_property
    def theta(self) -> Floats:
        """theta* [d]."""
        draw, free = stream(self.seed, "sparse_mixture", "theta"), self.nonzero - 1
        magnitude = np.full(free, self.gamma)
        if self.norm is not None and free > 1:
            rest = (self.norm**2 - 1.0 - self.gamma**2) / (free - 1)
            magnitude[1:] = max(math.sqrt(rest), self.gamma)
        theta = np.zeros(self.dimension)
        theta[0] = 1.0
        theta[self.support[1:]] = draw.permutation(magnitude) * draw.choice((-1.0, 1.0), free)
        return read_only(theta)

    @cached_property
    def phi(self) -> Floats:
        """The features [S, A, S, d]."""
        states, good, bad = self.states, self.good, self.states - self.good
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
        reward = 0.4 * stream(self.seed, "sparse_mixture", "reward").random(
            (self.states, self.actions)
        )
        reward[: self.good] += 0.6
        transition = np.maximum(
            self.phi @ self.theta, 0.0
        )  # with contrast 1, a zero may round to -1e-18
        return FiniteMDP(transition=transition, reward=reward, horizon=self.horizon)


@dataclass(frozen=True, kw_only=True)
class SparseLadder(NestedClasses):
    """theta = (1, eta) with eta in {0, +-gamma}^(d-1); class m has at most m - 1 non-zero entries of eta.

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
        shared = (
            "states",
            "actions",
            "horizon",
            "dimension",
            "gamma",
            "persistence",
            "contrast",
            "seed",
        )
        return SparseMixture(
            nonzero=self.most + 1, **{name: getattr(self, name) for name in shared}
        )

    @property
    def phi(self) -> Floats:
        """The features [S, A, S, d]."""
        return self.mixture.phi

    def classes(self) -> Sequence[Floats]:
        """Return the parameters with 0, 1, ..., ``most`` non-zero entries."""
        made: list[list[Floats]] = [[] for _ in range(self.most + 1)]
        for count, rows in enumerate(made):
            for support in itertools.combinations(range(1, self.dimension), count):
                block = np.zeros((2**count, self.dimension))
                block[:, 0] = 1.0
                block[:, support] = list(itertools.product((-self.gamma, self.gamma), repeat=count))
                rows.append(block)
        return [np.concatenate(rows) for rows in made]

    @cached_property
    def theta(self) -> Floats:
        """theta* [d]."""
        draw, theta = (
            stream(self.seed, "sparse_ladder", "theta", self.nonzero),
            np.zeros(self.dimension),
        )
        theta[0] = 1.0
        support = draw.choice(np.arange(1, self.dimension), self.nonzero, replace=False)
        theta[support] = draw.choice((-self.gamma, self.gamma), self.nonzero)
        return read_only(theta)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        transition = np.maximum(self.phi @ self.theta, 0.0)
        return FiniteMDP(
            transition=transition, reward=self.mixture.mdp.known.base_reward, horizon=self.horizon
        )


class _Stored:
    """A problem whose arrays are in a file beside this module."""

    file: ClassVar[str]

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """The arrays of the file, by name."""
        with (
            (files("occamrl.problems") / self.file).open("rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            return {key: read_only(arrays[key]) for key in arrays}

    @property
    def phi(self) -> Floats:
        """The features [S, A, S, d]."""
        return np.asarray(self.arrays["phi"])


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
        return np.asarray(self.arrays["theta"])

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        return FiniteMDP(
            transition=self.arrays["transition"], reward=self.arrays["reward"], horizon=6
        )


@dataclass(frozen=True, kw_only=True)
class ReferenceLadder(_Stored):
    """Sparse hypotheses whose arrays are part of the package.

    S = 12, A = 3, H = 10, d = 9 and classes of 1, 17, 129 and 577 parameters as in
    :class:`SparseLadder`. The features are without persistence and at contrast 0.96; good states
    pay 0.8 to 1, bad ones 0 to 0.2.
    """

    nonzero: int = (
        2  # non-zero entries of the truth besides the first, 0 ... 3, so that m* = nonzero + 1
    )

    small: ClassVar[Small] = ({"nonzero": 0}, {"nonzero": 3})
    file: ClassVar[str] = "reference_ladder.npz"
    sizes: ClassVar[list[int]] = [1, 17, 129, 577]  # |F_1|, ..., |F_M|

    def __post_init__(self) -> None:
        require_integer("nonzero", self.nonzero, 0, maximum=3)

    @property
    def hypotheses(self) -> Floats:
        """All parameters [n, d], by the number of non-zero entries."""
        return np.asarray(self.arrays["thetas"])

    @property
    def theta(self) -> Floats:
        """theta* [d]."""
        return np.asarray(self.hypotheses[self.arrays["truths"][self.nonzero]])

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        return FiniteMDP(transition=self.phi @ self.theta, reward=self.arrays["reward"], horizon=10)


@dataclass(frozen=True, kw_only=True)
class MemoryWalk:
    """Go from place to place; an action changes the odds of the next one, and being in a place pays.

    The law of the next place depends on none, one or two of the places before. States are pairs
    (place before, place now), so the kernel is an aggregation of these states: by nothing (order
    0), by the place now (order 1: the place before is ignored) or by both (order 2).
    """

    places: int = 4  # S = places^2
    actions: int = 3
    horizon: int = 12
    order: int = 1  # how many of the last places the law of the next one depends on
    seed: int = 0

    small: ClassVar[Small] = tuple(
        {"places": 2, "actions": 2, "horizon": 3, "order": order} for order in (0, 1, 2)
    )

    def __post_init__(self) -> None:
        require_integers(self, places=2, actions=1)
        require_integer("order", self.order, 0, maximum=2)

    @cached_property
    def moves(self) -> Ints:
        """Where a move leads [S, A, places]: move l from (before, now) to (now, l)."""
        now = np.arange(self.places**2) % self.places
        after = now[:, None] * self.places + np.arange(self.places)
        return read_only(np.repeat(after[:, None], self.actions, axis=1))

    def partition(self, order: int) -> Ints:
        """Return the block of each state [S] if the last ``order`` places matter."""
        return np.asarray(np.arange(self.places**2) % self.places**order, dtype=np.int64)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        draw, sizes = (
            stream(self.seed, "memory_walk", self.order),
            (self.places**self.order, self.actions),
        )
        laws = draw.dirichlet(np.full(self.places, 0.5), size=sizes)[self.partition(self.order)]
        states = self.places**2
        transition = np.zeros((states, self.actions, states))
        np.put_along_axis(transition, self.moves, laws, axis=2)
        pay = stream(self.seed, "memory_walk", "reward").uniform(size=self.places)
        reward = np.repeat(pay[np.arange(states) % self.places][:, None], self.actions, axis=1)
        return FiniteMDP(transition=transition, reward=reward, horizon=self.horizon)
