"""Problems on a box: candidate models of one system, a mixture of them being the truth.

On a grid each candidate is a sparse kernel, their mixture is the true one, and regret is exact for the grid's problem;
how far that is from the problem on the box is what :meth:`ContinuousProblem.discretisation_error` estimates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaincinv, ndtri

from occamrl.errors import ParameterError, as_floats, require_integer, require_integers
from occamrl.problems import grids
from occamrl.problems.mdp import FiniteMDP, HasExamples, RewardMap, Small
from occamrl.protocols import Floats

Mixture = tuple[tuple[int, float], ...]


@dataclass(frozen=True, kw_only=True)
class ContinuousProblem(HasExamples, ABC):
    """A problem on a box; at every step one of the candidates of the mixture is drawn."""

    resolution: int  # how fine the grid is: cells per dimension
    horizon: int
    mixture: Mixture  # the candidates that the truth mixes, counted from 1, and their shares
    nodes: int = 5  # of the rule for the noise

    candidates: ClassVar[Mapping[str, Any]]  # by name, what tells one model from the others: a law, an engine
    low: ClassVar[Sequence[float]]  # the box
    high: ClassVar[Sequence[float]]
    periodic: ClassVar[Sequence[bool]]
    start: ClassVar[Sequence[float]]  # where episodes begin
    action_grid: ClassVar[Sequence[float]]  # the actions, a finite grid of a Box

    def __post_init__(self) -> None:
        require_integers(self, resolution=2, horizon=1, nodes=1)
        pairs = as_floats("mixture", self.mixture)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ParameterError("mixture", got=f"{self.mixture!r:.100}", expected="pairs of a candidate and its share")
        for j, _ in self.mixture:
            require_integer("mixture", j, 1, most=len(self.candidates))
        shares = pairs[:, 1]
        if len(set(pairs[:, 0])) < len(pairs) or not (shares >= 0.0).all() or abs(shares.sum() - 1.0) > 1e-9:
            expected = "different candidates, with shares that sum to 1"
            raise ParameterError("mixture", got=self.mixture, expected=expected)

    @abstractmethod
    def model(self, candidate: Any) -> grids.Transition:
        """Return the model with this one of the candidates' values."""

    @abstractmethod
    def reward(self, states: Floats, action: Floats) -> Floats:
        """Return r(s, a) [N] in [0, 1] of states [N, n] under one action [m], or [N, S] by next vertex."""

    @property
    def names(self) -> tuple[str, ...]:
        """The candidates' names."""
        return tuple(self.candidates)

    @property
    def theta(self) -> Floats:
        """The true shares [d]."""
        shares = dict(self.mixture)
        return np.array([shares.get(j, 0.0) for j in range(1, len(self.candidates) + 1)])

    @cached_property
    def grid(self) -> grids.Grid:
        """The grid at this resolution."""
        points = [self.resolution + (not circle) for circle in self.periodic]
        return grids.Grid(low=self.low, high=self.high, points=points, periodic=self.periodic)

    def kernel_of(self, name: str) -> Any:
        """Return the sparse kernel (S*A, S) of a candidate."""
        return grids.discretise(self.model(self.candidates[name]), self.grid, self.action_grid, start=[self.start])

    @cached_property
    def phi(self) -> list[Any]:
        """One sparse kernel (S*A, S) per candidate."""
        return [self.kernel_of(name) for name in self.names]

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The grid's problem; an episode that starts between vertices starts at one of the corners."""
        vertices, acts = self.grid.vertices, grids.as_actions(self.action_grid)
        reward = np.stack([self.reward(vertices, action) for action in acts], axis=1)  # [S, A] or [S, A, S]
        corner, weight = self.grid.corners([self.start])
        initial = np.bincount(corner[0], weights=weight[0], minlength=self.grid.size)
        kernel = sum(share * self.kernel_of(self.names[j - 1]) for j, share in self.mixture)
        return FiniteMDP(transition=kernel, reward=reward, horizon=self.horizon, initial_state=initial)

    def discretisation_error(self) -> grids.Refinement:
        """Solve this grid and those two and four times as fine, and estimate how far V*_1 is from that on the box."""
        solved = [replace(self, resolution=self.resolution * times) for times in (1, 2, 4)]
        states = np.concatenate([[self.start], self.grid.vertices])
        return grids.refinement([(each.grid, each.mdp.optimal_values[0]) for each in solved], states)

    def quadrature_error(self) -> float:
        """Return the largest total variation error of a candidate's rows, against twice the nodes."""
        models = map(self.model, self.candidates.values())
        return max(grids.quadrature_error(model, self.grid, self.action_grid) for model in models)


CAPACITY = 10.0  # of the tank, in litres
MARGIN, HOLDING, FIXED = 4.0, 0.5, 3.0  # euro per litre sold, per litre and night, per order
DEMANDS: dict[str, Callable[[Floats], Any]] = {  # quantiles, litres a day
    "uniform 0-4": lambda u: 4.0 * u,
    "uniform 2-6": lambda u: 2.0 + 4.0 * u,
    "uniform 4-8": lambda u: 4.0 + 4.0 * u,
    "exponential 2": lambda u: -2.0 * np.log1p(-u),
    "exponential 4": lambda u: -4.0 * np.log1p(-u),
    "gamma 3, 1": lambda u: gammaincinv(3.0, u),
    "gamma 8, .5": lambda u: 0.5 * gammaincinv(8.0, u),
    "lognormal 2, .8": lambda u: 2.0 * np.exp(0.8 * ndtri(u)),
    "lognormal 4, .3": lambda u: 4.0 * np.exp(0.3 * ndtri(u)),
    "Pareto 1.5": lambda u: (1.0 - u) ** (-1.0 / 1.5),
}


def sell(states: Floats, action: Floats, demand: Floats) -> Floats:
    """Return the stock in the evening: what is not sold of what was there in the morning, the order included."""
    return np.asarray(np.maximum(np.minimum(states + action[0], CAPACITY) - demand, 0.0))


@dataclass(frozen=True, kw_only=True)
class ContinuousInventory(ContinuousProblem):
    """A tank that is refilled once a day: real stock, real orders, and a law of the demand that mixes ten candidates.

    Order in the evening, delivered in the morning; demand that meets an empty tank is lost, and unseen. The account of
    a day is margin times sales, less holding for what is left, less the fixed cost if something was ordered: linear in
    the next state, so that interpolation keeps it exactly. The mixture is of :data:`DEMANDS`.
    """

    resolution: int = 20
    horizon: int = 14
    mixture: Mixture = ((3, 0.6), (4, 0.4))
    nodes: int = 100

    candidates: ClassVar[Mapping[str, Any]] = DEMANDS
    low, high, periodic = (0.0,), (CAPACITY,), (False,)
    start: ClassVar[Sequence[float]] = (0.0,)  # an empty tank
    action_grid: ClassVar[Sequence[float]] = (0.0, 2.0, 4.0, 6.0, 8.0)  # litres ordered
    unit: ClassVar[RewardMap] = RewardMap(low=-HOLDING * CAPACITY - FIXED, high=MARGIN * CAPACITY)  # a day's account
    small: ClassVar[Small] = (
        {"resolution": 4, "horizon": 4, "nodes": 20},
        {"resolution": 5, "horizon": 3, "mixture": ((10, 1.0),), "nodes": 9},
    )

    def model(self, candidate: Any) -> grids.Transition:
        """Return the model with one law of the demand."""
        return grids.Driven(step=sell, rule=partial(grids.quantile_rule, candidate), nodes=self.nodes)

    def reward(self, states: Floats, action: Floats) -> Floats:
        """Return the account of a day by the stock left; moves that cannot be are cut to [0, 1]."""
        left, filled = self.grid.vertices[:, 0], np.minimum(states + action[0], CAPACITY)
        account = MARGIN * (filled - left) - HOLDING * left - FIXED * (action[0] > 0.0)
        return np.asarray(np.clip(self.unit.to_unit(account), 0.0, 1.0))


LEFT, RIGHT, SPEED, FORCE, GRAVITY, FLAG = -1.2, 0.6, 0.07, 0.001, 0.0025, 0.5  # MountainCar-v0
ENGINES: dict[str, Callable[[float, Floats], Floats]] = {  # (push, speed) -> acceleration, in units of FORCE
    "as built": lambda push, speed: push + 0.0 * speed,
    "weak": lambda push, speed: 0.7 * push + 0.0 * speed,
    "strong": lambda push, speed: 1.3 * push + 0.0 * speed,
    "rubbing": lambda push, speed: push - 0.3 * speed / SPEED,
    "rubbing hard": lambda push, speed: 1.3 * push - 0.8 * speed / SPEED,
    "cold": lambda push, speed: (0.5 + 0.8 * np.abs(speed) / SPEED) * push,
    "short of breath": lambda push, speed: (1.3 - 0.8 * np.abs(speed) / SPEED) * push,
    "weak ahead": lambda push, speed: (0.5 if push > 0.0 else 1.0) * push + 0.0 * speed,
    "weak back": lambda push, speed: (1.0 if push > 0.0 else 0.5) * push + 0.0 * speed,
    "airy": lambda push, speed: push - 0.6 * speed * np.abs(speed) / SPEED**2,
}


def drive(engine: Any, states: Floats, action: Floats, noise: Floats) -> Floats:
    """Return the states after 8 steps; the left wall stops the car, and so does the flag, for good."""
    position, speed = states[:, 0], states[:, 1]
    there = position >= FLAG
    for _ in range(8):
        push = FORCE * (engine(float(action[0]), speed) + noise[:, 0])
        speed = np.clip(speed + push - GRAVITY * np.cos(3.0 * position), -SPEED, SPEED)
        speed = np.where((position <= LEFT) & (speed < 0.0), 0.0, speed)
        position, speed = np.where(there, states[:, 0], position + speed), np.where(there, states[:, 1], speed)
        position = np.clip(position, LEFT, RIGHT)
        there |= position >= FLAG
    return np.stack([position, speed], axis=1)


@dataclass(frozen=True, kw_only=True)
class MountainCar(ContinuousProblem):
    """A car in a valley with too weak an engine, which is an unknown mixture of ten models.

    Reach the flag at 0.5, and early; states are (position, speed). Valley, gravity, force, walls and speed limit are
    those of Gymnasium's ``MountainCar-v0`` (Moore, 1990); a push is held for 8 steps and disturbed by 0.3, and the
    reward is how near the flag the car is, 1 there and 0 from a distance of 0.3. The mixture is of :data:`ENGINES`.
    """

    resolution: int = 24
    horizon: int = 30
    mixture: Mixture = ((6, 0.6), (8, 0.4))
    nodes: int = 15

    candidates: ClassVar[Mapping[str, Any]] = ENGINES
    low, high, periodic = (LEFT, -SPEED), (RIGHT, SPEED), (False, False)
    start: ClassVar[Sequence[float]] = (-0.5, 0.0)  # at rest in the valley
    action_grid: ClassVar[Sequence[float]] = (-1.0, 0.0, 1.0)  # back, nothing, ahead
    small: ClassVar[Small] = ({"resolution": 4, "horizon": 4}, {"resolution": 3, "horizon": 3, "mixture": ((1, 1.0),)})

    def model(self, candidate: Any) -> grids.Transition:
        """Return the model with one engine."""
        return grids.Driven(step=partial(drive, candidate), rule=partial(grids.normal_rule, (0.3,)), nodes=self.nodes)

    def reward(self, states: Floats, action: Floats) -> Floats:
        """Return 1 at the flag, falling to 0 at a distance of 0.3."""
        return np.clip(1.0 - (FLAG - states[:, 0]) / 0.3, 0.0, 1.0)


TORQUE, FASTEST = 2.0, 8.0  # Pendulum-v1; mass and length are 1, gravity is 10, a time step .05
STICK = 0.2  # rad/s: dry friction turns over about this speed, smoothly
FRICTIONS: dict[str, Callable[[Floats, Floats], Floats]] = {  # (angle, speed) -> deceleration, in rad/s^2
    "none": lambda angle, speed: 0.0 * speed,
    "viscous .3": lambda angle, speed: 0.3 * speed,
    "viscous .6": lambda angle, speed: 0.6 * speed,
    "viscous 1.2": lambda angle, speed: 1.2 * speed,
    "dry .8": lambda angle, speed: 0.8 * np.tanh(speed / STICK),  # Coulomb: of one size, against the motion
    "dry 2.4": lambda angle, speed: 2.4 * np.tanh(speed / STICK),
    "drag .15": lambda angle, speed: 0.15 * speed * np.abs(speed),
    "Stribeck .8": lambda angle, speed: (0.8 + 1.2 * np.exp(-(speed**2))) * np.tanh(speed / STICK),
    "below 1.5": lambda angle, speed: 0.75 * (1.0 - np.cos(angle)) * speed,  # viscous, where the pendulum hangs
    "one way 1.2": lambda angle, speed: 1.2 * np.maximum(speed, 0.0),
}


def swing(friction: Any, states: Floats, action: Floats, noise: Floats) -> Floats:
    """Return the states after 4 time steps under one torque and one disturbance of it."""
    angle, speed = states[:, 0], states[:, 1]
    for _ in range(4):
        push = 15.0 * np.sin(angle) + 3.0 * (action[0] + noise[:, 0])
        speed = np.clip(speed + 0.05 * (push - friction(angle, speed)), -FASTEST, FASTEST)
        angle = angle + 0.05 * speed
    return np.stack([np.mod(angle + np.pi, 2.0 * np.pi) - np.pi, speed], axis=1)


@dataclass(frozen=True, kw_only=True)
class Pendulum(ContinuousProblem):
    """A noisy pendulum to be swung up, whose friction is an unknown mixture of ten models.

    Swing up from rest below, and stay; states are (angle, speed), the angle 0 being upright. Mass, length, gravity,
    torque, speed limit, time step and cost are those of Gymnasium's ``Pendulum-v1``; a torque is held for 4 time steps
    (0.2 s) and disturbed by 0.5, and there is friction. The mixture is of :data:`FRICTIONS`.
    """

    resolution: int = 24
    horizon: int = 24
    mixture: Mixture = ((6, 0.6), (9, 0.4))

    candidates: ClassVar[Mapping[str, Any]] = FRICTIONS
    low, high, periodic = (-np.pi, -FASTEST), (np.pi, FASTEST), (True, False)
    start: ClassVar[Sequence[float]] = (-np.pi, 0.0)  # hanging, at rest
    action_grid: ClassVar[Sequence[float]] = (-TORQUE, 0.0, TORQUE)
    small: ClassVar[Small] = ({"resolution": 4, "horizon": 4}, {"resolution": 5, "horizon": 3, "mixture": ((1, 1.0),)})

    def model(self, candidate: Any) -> grids.Transition:
        """Return the model with one friction."""
        return grids.Driven(step=partial(swing, candidate), rule=partial(grids.normal_rule, (0.5,)), nodes=self.nodes)

    def reward(self, states: Floats, action: Floats) -> Floats:
        """Return 1 less the cost of Pendulum-v1 over its largest value."""
        cost = states[:, 0] ** 2 + 0.1 * states[:, 1] ** 2 + 0.001 * action[0] ** 2
        return np.asarray(1.0 - cost / (np.pi**2 + 0.1 * FASTEST**2 + 0.001 * TORQUE**2))
