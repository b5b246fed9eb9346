"""A car in a valley with too weak an engine, which is an unknown mixture of ten models.

Valley, gravity, force, walls and speed limit are those of Gymnasium's ``MountainCar-v0`` (Moore, 1990); a push is held
for several steps, a disturbance is added, and the reward is how near the flag the car is rather than -1 a step, so that
it is in [0, 1] and continuous.
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

LEFT, RIGHT, SPEED, FORCE, GRAVITY, FLAG = -1.2, 0.6, 0.07, 0.001, 0.0025, 0.5  # MountainCar-v0
_NEAR = 0.3  # from the flag: rewards begin here

Engine = Callable[[float, Floats], Floats]  # (push in [-1, 1], speed) -> acceleration, in units of FORCE


def plain(power: float, friction: float, push: float, speed: Floats) -> Floats:
    """Proportional to the push, against a friction that is proportional to the speed."""
    return power * push - friction * speed / SPEED


def at_speed(still: float, fast: float, push: float, speed: Floats) -> Floats:
    """Have a power that changes from standstill to the highest speed."""
    return (still + (fast - still) * np.abs(speed) / SPEED) * push


def lopsided(back: float, ahead: float, push: float, speed: Floats) -> Floats:
    """Have a power for each direction."""
    return (ahead if push > 0.0 else back) * push + 0.0 * speed


def airy(drag: float, push: float, speed: Floats) -> Floats:
    """Slowed by the air."""
    return push - drag * speed * np.abs(speed) / SPEED**2


ENGINES: dict[str, Engine] = {
    "as built": partial(plain, 1.0, 0.0),
    "weak": partial(plain, 0.7, 0.0),
    "strong": partial(plain, 1.3, 0.0),
    "rubbing": partial(plain, 1.0, 0.3),
    "rubbing hard": partial(plain, 1.3, 0.8),
    "cold": partial(at_speed, 0.5, 1.3),
    "short of breath": partial(at_speed, 1.3, 0.5),
    "weak ahead": partial(lopsided, 1.0, 0.5),
    "weak back": partial(lopsided, 0.5, 1.0),
    "airy": partial(airy, 0.6),
}


def drive(engine: Engine, hold: int, states: Floats, action: Floats, noise: Floats) -> Floats:
    """Return the states after ``hold`` steps; the left wall stops the car, and so does the flag, for good."""
    position, speed = states[:, 0], states[:, 1]
    there = position >= FLAG
    for _ in range(hold):
        push = FORCE * (engine(float(action[0]), speed) + noise[:, 0])
        speed = np.clip(speed + push - GRAVITY * np.cos(3.0 * position), -SPEED, SPEED)
        speed = np.where((position <= LEFT) & (speed < 0.0), 0.0, speed)
        position, speed = np.where(there, states[:, 0], position + speed), np.where(there, states[:, 1], speed)
        position = np.clip(position, LEFT, RIGHT)
        there |= position >= FLAG
    return np.stack([position, speed], axis=1)


@dataclass(frozen=True, kw_only=True)
class MountainCar(ContinuousProblem):
    """Reach the flag at 0.5, and early; states are (position, speed).

    Parameters
    ----------
    resolution : int
        Cells of each dimension.
    horizon, mixture, nodes
        As in :class:`ContinuousProblem`. The mixture is of :data:`ENGINES`, in their order.
    hold : int
        Steps for which a push of -1, 0 or 1 is held.
    disturbance : number
        Standard deviation of the push's disturbance.
    """

    resolution: int = 24
    horizon: int = 30
    mixture: tuple[tuple[int, float], ...] = ((6, 0.6), (8, 0.4))
    nodes: int = 15
    hold: int = 8
    disturbance: float = 0.3

    names: ClassVar[tuple[str, ...]] = tuple(ENGINES)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integer("hold", self.hold, 1)
        require_number("disturbance", self.disturbance, 0.0, np.inf)

    @property
    def grid(self) -> Grid:
        """The grid: the valley, and speeds up to 0.07 a step."""
        return Grid(low=(LEFT, -SPEED), high=(RIGHT, SPEED), points=(self.resolution + 1,) * 2)

    @property
    def action_grid(self) -> Sequence[float]:
        """Back, nothing, ahead."""
        return (-1.0, 0.0, 1.0)

    @property
    def start(self) -> Sequence[float]:
        """At rest in the valley."""
        return (-0.5, 0.0)

    def models(self) -> Sequence[Transition]:
        """Return one model for each engine."""
        rule = partial(normal_rule, (self.disturbance,))
        return [Driven(step=partial(drive, e, self.hold), rule=rule, nodes=self.nodes) for e in ENGINES.values()]

    def reward(self, states: Floats, action: Floats) -> Floats:
        """Return 1 at the flag, falling to 0 at a distance of 0.3."""
        return np.clip(1.0 - (FLAG - states[:, 0]) / _NEAR, 0.0, 1.0)

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small instances, for the contract checks."""
        return [cls(resolution=4, horizon=4), cls(resolution=3, horizon=3, mixture=((1, 1.0),))]
