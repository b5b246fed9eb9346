"""Problems of the literature: trees, seas, rivers, random MDPs, and the instance behind a lower bound.

Each states its source, and its optimum where that is known in closed form. Episodes start in state 0.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from occamrl.errors import ParameterError, require_choice, require_integers, require_number
from occamrl.problems.mdp import FiniteMDP, HasExamples, Small, read_only, stream
from occamrl.protocols import Floats, Ints

LEFT, RIGHT = 0, 1  # the actions of rivers
_MOVE_COST = 0.01  # of DeepSea


@dataclass(frozen=True, kw_only=True)
class WideTree(HasExamples):
    """Two steps, and only the first choice counts (Ayoub, Jia, Szepesvari, Wang and Yang, ICML 2020).

    State 0 leads to state 1 (action 0) or 2 (action 1). There, each of the two actions leads to one of the leaves of
    its own quarter, drawn uniformly. Leaves absorb. Being in state 2 pays 1; nothing else pays. So V*_1(0) = 1.
    """

    leaves: int = 4  # a multiple of 4; states 3, 4, ...

    small: ClassVar[Small] = ({}, {"leaves": 12})

    def __post_init__(self) -> None:
        require_integers(self, leaves=4)
        if self.leaves % 4:
            raise ParameterError("leaves", got=self.leaves, expected="a multiple of 4")

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        states, quarter = 3 + self.leaves, self.leaves // 4
        transition, reward = np.zeros((states, 2, states)), np.zeros((states, 2))
        for action in range(2):
            transition[0, action, 1 + action] = 1.0
            for parent in (1, 2):
                first = 3 + (2 * (parent - 1) + action) * quarter
                transition[parent, action, first : first + quarter] = 1.0 / quarter
        reward[2] = 1.0
        return FiniteMDP(transition=transition, reward=reward, horizon=2, absorbing=range(3, states))


@dataclass(frozen=True, kw_only=True)
class DeepSea(HasExamples):
    """The deterministic DeepSea of bsuite (Osband et al., "Behaviour Suite for Reinforcement Learning", ICLR 2020).

    A diver starts at the top left of an N x N grid and sinks by one row a step, moving left (action 0) or right (1) as
    well. Moving right costs 0.01/N; moving right from the bottom-right corner pays 1. Only the policy that always moves
    right earns it. To have rewards in [0, 1], 0.01/N is added to all of them: V*_1 = 1, 0.99 in bsuite.
    """

    size: int = 10  # N, the number of rows, of columns and of steps

    small: ClassVar[Small] = ({"size": 4},)

    def __post_init__(self) -> None:
        require_integers(self, size=1)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem: state N*row + column, and N*N for the end of the episode."""
        size, last = self.size, self.size - 1
        table = []
        for row, column in itertools.product(range(size), repeat=2):
            below = size * (row + 1)
            left, right = below + max(column - 1, 0), below + min(column + 1, last)
            go_left = (1.0, size * size if row == last else left, _MOVE_COST / size)
            go_right = (1.0, size * size if row == last else right, 1.0 if column == last else 0.0)
            table.append([[go_left], [go_right]])
        table.append([[(1.0, size * size, 0.0)]] * 2)
        return FiniteMDP(outcomes=table, horizon=size)


@dataclass(frozen=True, kw_only=True)
class RandomMDP(HasExamples):
    """Rows of the kernel drawn from a symmetric Dirichlet distribution, rewards r(s, a) uniform in [0, 1]."""

    states: int = 6
    actions: int = 3
    horizon: int = 8
    concentration: float = 1.0  # small for nearly deterministic rows, large for nearly uniform ones
    seed: int = 0

    small: ClassVar[Small] = ({}, {"states": 9, "actions": 2, "horizon": 4, "concentration": 0.2, "seed": 1})

    def __post_init__(self) -> None:
        require_integers(self, states=1, actions=1, horizon=1, seed=0)
        require_number("concentration", self.concentration, 0.0, np.inf, open_low=True)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        sizes = (self.states, self.actions)
        reward = stream(self.seed, "random_mdp", "reward").random(sizes)
        law = np.full(self.states, self.concentration)
        transition = stream(self.seed, "random_mdp", "transition").dirichlet(law, sizes)
        return FiniteMDP(transition=transition, reward=reward, horizon=self.horizon)


@dataclass(frozen=True, kw_only=True)
class HardLinearMixture(HasExamples):
    """A chain x_1, ..., x_{H+1} with a chance, at each step, to fall onto x_{H+2}, the only state that pays.

    Zhou, Gu and Szepesvari, COLT 2021 (arXiv 2012.08507): no algorithm has regret below a constant times d H sqrt(T)
    on all instances of this kind.

    Actions are the 2^(d-1) vectors a in {-1, 1}^(d-1). From x_h (h <= H) an episode goes to x_{H+2} with probability
    delta + <mu, a> and to x_{h+1} otherwise, delta = 1/H; x_{H+1} and x_{H+2} absorb; r = 1 in x_{H+2}, else 0. The
    entries of mu are +gap or -gap, so the best action is their sign and each wrong sign costs 2 gap of probability.

    As a linear mixture, with alpha = 1/sqrt(1 + (d-1) gap) and beta = sqrt(gap) alpha::

        phi(x_h, a, x_{h+1})     = (alpha (1 - delta), -beta a)
        phi(x_h, a, x_{H+2})     = (alpha delta,        beta a)
        phi(x, a, x)             = (alpha, 0)                      for the two absorbing states
        theta                    = (1/alpha, mu / beta)

    so that ||phi_V(s, a)|| <= 1 for every V with values in [0, 1] and ||theta|| = 1 + (d-1) gap. The paper's kernel
    changes with the step; here one mu serves all steps.
    """

    dimension: int = 4  # d >= 2
    horizon: int = 5  # H >= 2
    episodes: int = 10_000  # K for which the instance is hardest: gap = sqrt(delta/K) / (4 sqrt 2)
    seed: int = 0  # draws the signs of mu

    small: ClassVar[Small] = ({}, {"dimension": 3, "horizon": 4, "episodes": 1, "seed": 1})

    def __post_init__(self) -> None:
        require_integers(self, dimension=2, horizon=2, episodes=1, seed=0)
        largest = 1.0 / self.horizon / (self.dimension - 1)
        if self.gap > largest:
            expected = f"enough for sqrt(delta/K) / (4 sqrt 2) to be at most delta/(d-1) = {largest:.6g}"
            raise ParameterError("episodes", got=self.episodes, expected=expected)

    @property
    def gap(self) -> float:
        """Delta of the paper."""
        return math.sqrt(1.0 / self.horizon / self.episodes) / (4.0 * math.sqrt(2.0))

    @property
    def _scales(self) -> tuple[float, float]:  # alpha and beta
        alpha = 1.0 / math.sqrt(1.0 + (self.dimension - 1) * self.gap)
        return alpha, math.sqrt(self.gap) * alpha

    @cached_property
    def phi(self) -> Floats:
        """The features [S, A, S, d]; state h is x_{h+1}, the last one x_{H+2}."""
        (alpha, beta), delta, paying = self._scales, 1.0 / self.horizon, self.horizon + 1
        vectors = np.array(list(itertools.product((-1.0, 1.0), repeat=self.dimension - 1)))
        phi = np.zeros((self.horizon + 2, len(vectors), self.horizon + 2, self.dimension))
        for h in range(self.horizon):
            phi[h, :, h + 1, 0] = alpha * (1.0 - delta)
            phi[h, :, h + 1, 1:] = -beta * vectors
            phi[h, :, paying, 0] = alpha * delta
            phi[h, :, paying, 1:] = beta * vectors
        for s in (self.horizon, paying):
            phi[s, :, s, 0] = alpha
        return read_only(phi)

    @cached_property
    def theta(self) -> Floats:
        """The parameter (1/alpha, mu/beta)."""
        alpha, beta = self._scales
        mu = self.gap * stream(self.seed, "hard_linear_mixture").choice((-1.0, 1.0), self.dimension - 1)
        return read_only(np.concatenate([[1.0 / alpha], mu / beta]))

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        reward = np.zeros(self.phi.shape[:2])
        reward[-1] = 1.0
        transition = np.maximum(self.phi @ self.theta, 0.0)  # with the largest gap, a zero may round to -1e-18
        return FiniteMDP(transition=transition, reward=reward, horizon=self.horizon)


# Swimming right: (down, stay, up) at the first, the middle and the last state; and the reward for staying home.
_CURRENTS = {
    "ayoub": ((0.0, 0.3, 0.7), (0.1, 0.6, 0.3), (0.1, 0.9, 0.0), 0.005),
    "osband": ((0.0, 0.4, 0.6), (0.05, 0.6, 0.35), (0.4, 0.6, 0.0), 0.005),
    "statistical": ((0.0, 0.4, 0.6), (0.05, 0.35, 0.6), (0.05, 0.95, 0.0), 0.1),
}


@dataclass(frozen=True, kw_only=True)
class RiverSwim(HasExamples):
    """A chain of states; swimming left (action 0) is sure, swimming right (action 1) is not.

    The first state pays a little for swimming left, the last state 1 for swimming right, and nothing else pays. The
    variant ``"ayoub"`` is of Ayoub, Jia, Szepesvari, Wang and Yang (ICML 2020), of their experiments with UCRL-VTR;
    ``"osband"`` of Osband, Russo and Van Roy (NeurIPS 2013), with six states and 20 steps; ``"statistical"`` of the
    collection StatisticalRL, where it has no horizon.
    """

    states: int = 6  # S >= 2
    horizon: int | None = None  # H; by default 20 for "osband" and 4S for the others
    variant: str = "ayoub"

    small: ClassVar[Small] = (
        {"states": 3},
        {"variant": "osband"},
        {"states": 4, "horizon": 5, "variant": "statistical"},
    )

    def __post_init__(self) -> None:
        require_choice("variant", self.variant, _CURRENTS)
        require_integers(self, states=2)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        (first, middle, final, left_reward), last = _CURRENTS[self.variant], self.states - 1
        transition, reward = np.zeros((self.states, 2, self.states)), np.zeros((self.states, 2))
        for s in range(self.states):
            transition[s, LEFT, max(s - 1, 0)] = 1.0
            for step, probability in zip((-1, 0, 1), first if s == 0 else final if s == last else middle, strict=True):
                if probability > 0.0:
                    transition[s, RIGHT, s + step] = probability
        reward[0, LEFT], reward[last, RIGHT] = left_reward, 1.0
        default = 20 if self.variant == "osband" else 4 * self.states
        horizon = default if self.horizon is None else self.horizon
        return FiniteMDP(transition=transition, reward=reward, horizon=horizon)


@dataclass(frozen=True, kw_only=True)
class RiverZones(HasExamples):
    """A chain; swimming left is sure, swimming right goes up or down with probabilities that depend on the zone alone.

    The first state pays a little for swimming left, the last one 1 for swimming right. With a ``left_reward`` of 0.005
    swimming up is nearly optimal whatever the currents are; with 0.03 it is not.
    """

    states: int = 24
    horizon: int = 48
    zones: int = 8  # of equal length, with a current of their own; divides S
    left_reward: float = 0.005  # for swimming left in the first state
    seed: int = 0  # draws the currents

    small: ClassVar[Small] = ({"states": 4, "horizon": 6, "zones": 2},)

    def __post_init__(self) -> None:
        require_integers(self, states=2, horizon=1, zones=1, seed=0)
        if self.states % self.zones:
            raise ParameterError("zones", got=self.zones, expected=f"a divisor of states = {self.states}")
        require_number("left_reward", self.left_reward, 0.0, 1.0)

    @cached_property
    def phi(self) -> Floats:
        """Features [S, 2, S, 1 + 2S]: staying put (or swimming left), and what going up and down in a state changes."""
        phi = np.zeros((self.states, 2, self.states, 1 + 2 * self.states))
        for s in range(self.states):
            phi[s, LEFT, max(s - 1, 0), 0] = phi[s, RIGHT, s, 0] = 1.0
            for j, s2 in ((1 + s, min(s + 1, self.states - 1)), (1 + self.states + s, max(s - 1, 0))):
                phi[s, RIGHT, s2, j] += 1.0
                phi[s, RIGHT, s, j] -= 1.0
        return read_only(phi)

    @cached_property
    def moves(self) -> Ints:
        """Where a move leads [S, 2, 3]: down, stay, up; swimming left has one move, down. At the ends one stays."""
        s = np.arange(self.states)
        down, up, none = np.maximum(s - 1, 0), np.minimum(s + 1, self.states - 1), np.full(self.states, -1)
        return read_only(np.stack([np.stack([down, none, none], axis=1), np.stack([down, s, up], axis=1)], axis=1))

    def partition(self, zones: int) -> Ints:
        """Return the zone of each state [S], for zones of equal length."""
        return np.arange(self.states) // (self.states // zones)

    @cached_property
    def theta(self) -> Floats:
        """theta* [1 + 2S]."""
        draw, length = stream(self.seed, "river_zones"), self.states // self.zones
        up, down = draw.uniform(0.3, 0.75, self.zones), draw.uniform(0.02, 0.2, self.zones)
        return read_only(np.concatenate([[1.0], np.repeat(up, length), np.repeat(down, length)]))

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        reward = np.zeros((self.states, 2))
        reward[0, LEFT], reward[-1, RIGHT] = self.left_reward, 1.0
        return FiniteMDP(transition=self.phi @ self.theta, reward=reward, horizon=self.horizon)
