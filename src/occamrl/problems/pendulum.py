"""A noisy pendulum to be swung up, whose friction is an unknown mixture of ten models.

Mass, length, gravity, torque, speed limit, time step and cost are those of Gymnasium's ``Pendulum-v1``; an action is
held for several time steps, a disturbance of the torque is added, and there is friction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Self

import numpy as np

from occamrl.continuous.grid import Grid
from occamrl.continuous.transitions import Driven, Transition, normal_rule
from occamrl.contracts import Floats
from occamrl.errors import require_number
from occamrl.problems.checks import require_integer
from occamrl.problems.continuous import ContinuousProblem

GRAVITY, MASS, LENGTH, TIME_STEP, TORQUE, SPEED = 10.0, 1.0, 1.0, 0.05, 2.0, 8.0  # Pendulum-v1
_WORST = np.pi**2 + 0.1 * SPEED**2 + 0.001 * TORQUE**2  # Pendulum-v1's largest cost
_STICK = 0.2  # rad/s: dry friction turns over about this speed, smoothly

Friction = Callable[[Floats, Floats], Floats]  # (angle, speed) -> deceleration, rad/s^2


def viscous(c: float, angle: Floats, speed: Floats) -> Floats:
    """Proportional to the speed."""
    return c * speed


def dry(c: float, angle: Floats, speed: Floats) -> Floats:
    """Coulomb: of one size, against the motion."""
    return c * np.tanh(speed / _STICK)


def drag(c: float, angle: Floats, speed: Floats) -> Floats:
    """Of the air: proportional to the speed squared."""
    return c * speed * np.abs(speed)


def stribeck(c: float, angle: Floats, speed: Floats) -> Floats:
    """Dry, and larger at low speed."""
    return c * (1.0 + 1.5 * np.exp(-(speed**2))) * np.tanh(speed / _STICK)


def below(c: float, angle: Floats, speed: Floats) -> Floats:
    """Viscous, where the pendulum hangs."""
    return c * 0.5 * (1.0 - np.cos(angle)) * speed


def one_way(c: float, angle: Floats, speed: Floats) -> Floats:
    """Viscous in one direction of turning only."""
    return c * np.maximum(speed, 0.0)


FRICTIONS: dict[str, Friction] = {
    "none": partial(viscous, 0.0),
    "viscous .3": partial(viscous, 0.3),
    "viscous .6": partial(viscous, 0.6),
    "viscous 1.2": partial(viscous, 1.2),
    "dry .8": partial(dry, 0.8),
    "dry 2.4": partial(dry, 2.4),
    "drag .15": partial(drag, 0.15),
    "Stribeck .8": partial(stribeck, 0.8),
    "below 1.5": partial(below, 1.5),
    "one way 1.2": partial(one_way, 1.2),
}


def swing(friction: Friction, hold: int, states: Floats, action: Floats, noise: Floats) -> Floats:
    """Return the states after ``hold`` time steps under one torque and one disturbance of it."""
    angle, speed = states[:, 0], states[:, 1]
    for _ in range(hold):
        push = 1.5 * GRAVITY / LENGTH * np.sin(angle) + 3.0 / (MASS * LENGTH**2) * (action[0] + noise[:, 0])
        speed = np.clip(speed + TIME_STEP * (push - friction(angle, speed)), -SPEED, SPEED)
        angle = angle + TIME_STEP * speed
    return np.stack([np.mod(angle + np.pi, 2.0 * np.pi) - np.pi, speed], axis=1)


@dataclass(frozen=True, kw_only=True)
class Pendulum(ContinuousProblem):
    """Swing up from rest below, and stay; states are (angle, speed), the angle 0 being upright.

    Parameters
    ----------
    resolution : int
        Vertices of the angle; the speed has one more.
    horizon, mixture, nodes
        As in :class:`ContinuousProblem`. The mixture is of :data:`FRICTIONS`, in their order.
    torques : int
        Actions: so many torques between -2 and 2, evenly spaced.
    hold : int
        Time steps of 0.05 s for which an action is held.
    disturbance : number
        Standard deviation of the torque's disturbance, one per action.
    """

    resolution: int = 24
    horizon: int = 24
    mixture: tuple[tuple[int, float], ...] = ((6, 0.6), (9, 0.4))
    torques: int = 3
    hold: int = 4
    disturbance: float = 0.5

    names: ClassVar[tuple[str, ...]] = tuple(FRICTIONS)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integer("torques", self.torques, 2)
        require_integer("hold", self.hold, 1)
        require_number("disturbance", self.disturbance, 0.0, np.inf)

    @property
    def grid(self) -> Grid:
        """The grid: angles on a circle, speeds up to 8 rad/s either way."""
        points = (self.resolution, self.resolution + 1)
        return Grid(low=(-np.pi, -SPEED), high=(np.pi, SPEED), points=points, periodic=(True, False))

    @property
    def action_grid(self) -> Sequence[float]:
        """The torques."""
        return tuple(np.linspace(-TORQUE, TORQUE, self.torques).tolist())

    @property
    def start(self) -> Sequence[float]:
        """Hanging, at rest."""
        return (-np.pi, 0.0)

    def models(self) -> Sequence[Transition]:
        """Return one model for each friction."""
        rule = partial(normal_rule, (self.disturbance,))
        return [Driven(step=partial(swing, f, self.hold), rule=rule, nodes=self.nodes) for f in FRICTIONS.values()]

    def reward(self, states: Floats, action: Floats) -> Floats:
        """Return 1 less the cost of Pendulum-v1 over its largest value."""
        cost = states[:, 0] ** 2 + 0.1 * states[:, 1] ** 2 + 0.001 * action[0] ** 2
        return np.asarray(1.0 - cost / _WORST)

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small instances, for the contract checks."""
        return [cls(resolution=4, horizon=4), cls(resolution=5, horizon=3, torques=2, mixture=((1, 1.0),))]
