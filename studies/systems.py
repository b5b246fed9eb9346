"""Four continuous systems for :mod:`studies.control`: simulators that can only be run, ladders of them, and tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

import occamrl as orl
from occamrl.control.ladder import Simulator
from occamrl.protocols import Floats

Rng = np.random.Generator


def pendulum(
    states: Floats, actions: Floats, rng: Rng, *, wind: float = 0, drag: float = 0, sd: float = 1
) -> Floats:
    """Run a pendulum (angle from the top, speed) in the wind, 0.05 s a step."""
    angle, speed = states.T
    push = 15 * np.sin(angle) + 3 * actions[:, 0] + wind - drag * speed
    speed = np.clip(speed + 0.05 * push + 0.05 * sd * rng.normal(size=len(states)), -8, 8)
    return np.stack([angle + 0.05 * speed, speed], axis=1)


def cart_pole(
    states: Floats,
    actions: Floats,
    rng: Rng,
    *,
    track: float = 0,
    joint: float = 0,
    mass: float = 0.1,
    sd: float = 1,
) -> Floats:
    """Run a pole on a cart (place, speed, angle, turn) with friction on the track and in the joint, 0.02 s a step."""
    place, speed, angle, turn = states.T
    sine, cosine, total = np.sin(angle), np.cos(angle), 1.0 + mass
    force = 10 * actions[:, 0] - track * np.tanh(10 * speed)
    push = (force + 0.5 * mass * turn**2 * sine) / total
    bend: Floats = 9.8 * sine - cosine * push - joint * turn / (0.5 * mass)
    bend = bend / (0.5 * (4 / 3 - mass * cosine**2 / total))
    speed = (
        speed
        + 0.02 * (push - 0.5 * mass * bend * cosine / total)
        + 0.01 * sd * rng.normal(size=len(states))
    )
    turn = turn + 0.02 * bend + 0.02 * sd * rng.normal(size=len(states))
    return np.asarray(
        np.clip(np.stack([place + 0.02 * speed, speed, angle + 0.02 * turn, turn], axis=1), -50, 50)
    )


def machine(
    states: Floats,
    actions: Floats,
    rng: Rng,
    *,
    rate: float = 0,
    jump: float = 1,
    heat: float = 0,
    sd: float = 1,
) -> Floats:
    """Run a machine (wear, temperature) under a load, 0 for maintenance. Wear jumps at times, and grows with heat."""
    wear, warm, load = states[:, 0], states[:, 1], actions[:, 0]
    warm = warm + 0.3 * (load - warm) + 0.03 * sd * rng.normal(size=len(states))
    wear = np.where(
        load > 0, wear + 0.1 * load * (1 + heat * warm), 0.5 * wear
    ) + 0.02 * sd * rng.normal(size=len(wear))
    jumps = rng.random(len(states)) < rate
    return np.stack([wear + jumps * jump * rng.exponential(size=len(states)), warm], axis=1)


def gym_pendulum(
    states: Floats, actions: Floats, rng: Rng, *, mass: float = 1, length: float = 1
) -> Floats:
    """Run Gymnasium's Pendulum-v1 (cosine, sine, speed), which has no noise."""
    angle, speed = np.arctan2(states[:, 1], states[:, 0]), states[:, 2]
    push = 15 / length * np.sin(angle) + 3 / (mass * length**2) * actions[:, 0]
    speed = np.clip(speed + 0.05 * push, -8, 8)
    return np.stack([np.cos(angle + 0.05 * speed), np.sin(angle + 0.05 * speed), speed], axis=1)


def quadrotor(
    states: Floats,
    actions: Floats,
    rng: Rng,
    *,
    mass: float = 1,
    wind: float = 0,
    drag: float = 0,
    sd: float = 1,
) -> Floats:
    """Run a quadrotor in a plane (x, z, tilt and their speeds), two rotors, 0.05 s a step."""
    (left, right), tilt, vx, vz = actions.T * 9.8, states[:, 2], states[:, 3], states[:, 4]
    lift = (left + right) / mass
    push = [
        -lift * np.sin(tilt) + wind - drag * vx,
        lift * np.cos(tilt) - 9.8 - drag * vz,
        4 * (right - left),
    ]
    speeds = (
        states[:, 3:]
        + 0.05 * np.stack(push, axis=1)
        + 0.03 * sd * rng.normal(size=(len(states), 3))
    )
    return np.asarray(
        np.clip(np.concatenate([states[:, :3] + 0.05 * speeds, speeds], axis=1), -100, 100)
    )


def creek(states: Floats, actions: Floats, rng: Rng, **law: float) -> Floats:
    """Run a creek (log discharge) with rain and evaporation, a day a step; noise is Student's, wider in rain."""
    level, (rain, evaporation) = states[:, 0], actions.T
    law = {"dry": 0.0, "wet": 0.0, "quiet": 0.0, "tail": 1e6} | law
    flow = (
        law["keep"] * np.exp(level - law["dry"] * evaporation)
        + law["gain"] * np.exp(law["wet"] * level) * rain
    )
    scale = law["sd"] * np.exp(-law["quiet"] * level) * (1 + 2 * rain / (1 + rain))
    after = np.log(flow + 0.01) + scale * rng.standard_t(law["tail"], len(flow))
    return np.asarray(np.clip(after, -9, 9)[:, None])


@dataclass(frozen=True)
class System:
    """A simulator, the classes of a ladder by the keywords of their members, truths, and a task."""

    step: Any
    classes: dict[str, list[dict[str, float]]]
    truths: dict[str, dict[str, float]]  # by the class that they need
    outside: dict[str, float]  # a truth that no class holds
    reward: Callable[[Floats, Floats, Floats], Floats]
    start: Callable[[Rng], Floats]
    actions: Any
    horizon: int = 60

    def ladder(self, **options: Any) -> orl.SimulatorLadder:
        """Return the ladder; ``options`` as ``draws`` replace its own, ``sd`` scales the noise of all members."""
        noise = {"sd": options.pop("sd")} if "sd" in options else {}
        wrap = options.pop("wrap", lambda step: step)
        classes = {
            name: [wrap(partial(self.step, **k, **noise)) for k in each]
            for name, each in self.classes.items()
        }
        about = {
            "reward": self.reward,
            "start": self.start,
            "actions": self.actions,
            "horizon": self.horizon,
        }
        return orl.SimulatorLadder(classes, **(about | options))

    def truth(self, name: str) -> dict[str, float]:
        """Return the keywords of a truth; "outside" is one that no class holds."""
        return self.outside if name == "outside" else self.truths[name]

    def member(self, name: str) -> int:
        """Return the number of the true member."""
        listed = [k for each in self.classes.values() for k in each]
        return listed.index(self.truths[name])


def grid(**values: Any) -> list[dict[str, Any]]:
    """Return all combinations of values, as keywords."""
    found: list[dict[str, Any]] = [{}]
    for name, several in values.items():
        found = [{**each, name: value} for each in found for value in several]
    return found


SYSTEMS = {
    "pendulum, 2-d": System(
        pendulum,
        {
            "calm": [{}],
            "wind": grid(wind=(-2, -1, 1, 2)),
            "wind and drag": grid(wind=(-2, -1, 1, 2), drag=(0.2, 0.5)),
        },
        {"calm": {}, "wind": {"wind": 1}, "wind and drag": {"wind": 1, "drag": 0.5}},
        {"wind": 1.5, "drag": -0.5},
        lambda s, a, after: (
            -((np.cos(after[:, 0]) - 1) ** 2) - 0.01 * after[:, 1] ** 2 - 0.001 * a[:, 0] ** 2
        ),
        lambda rng: np.array([0.5, 0.0]) + 0.1 * rng.normal(size=2),
        orl.Box(-4, 4),
    ),
    "cart-pole, 4-d": System(
        cart_pole,
        {
            "smooth": [{}],
            "track": grid(track=(1.0, 3.0)),
            "track and joint": grid(track=(1.0, 3.0), joint=(0.02, 0.1)),
        },
        {"smooth": {}, "track": {"track": 3.0}, "track and joint": {"track": 3.0, "joint": 0.1}},
        {"track": 2.0, "mass": 0.4},
        lambda s, a, after: -(after[:, 2] ** 2) - 0.05 * after[:, 0] ** 2 - 0.01 * after[:, 3] ** 2,
        lambda rng: np.array([0.3, 0.0, 0.15, 0.0]) + 0.05 * rng.normal(size=4),
        orl.Box(-1, 1),
    ),
    "machine with jumps, 2-d": System(
        machine,
        {
            "steady": [{}],
            "jumps": grid(rate=(0.03, 0.1), jump=(0.5, 1.5)),
            "jumps and heat": grid(rate=(0.03, 0.1), jump=(0.5, 1.5), heat=(0.3, 0.8)),
        },
        {
            "steady": {},
            "jumps": {"rate": 0.1, "jump": 0.5},
            "jumps and heat": {"rate": 0.1, "jump": 0.5, "heat": 0.8},
        },
        {"rate": 0.05, "heat": -0.5},
        lambda s, a, after: a[:, 0] - 0.5 * after[:, 0] ** 2,
        lambda rng: np.abs(0.1 * rng.normal(size=2)),
        [[0.0], [0.5], [1.0]],
    ),
    "quadrotor, 6-d": System(
        quadrotor,
        {
            "nominal": [{}],
            "mass": grid(mass=(0.8, 1.25)),
            "mass and wind": grid(mass=(0.8, 1.0, 1.25), wind=(-1, 1), drag=(0, 0.4)),
        },
        {
            "nominal": {},
            "mass": {"mass": 1.25},
            "mass and wind": {"mass": 1.25, "wind": 1, "drag": 0.4},
        },
        {"mass": 1.1, "wind": 0.5, "drag": 1.0},
        lambda s, a, after: (
            1 - 0.3 * (after[:, :2] ** 2).sum(axis=1) - 0.05 * (after[:, 2:] ** 2).sum(axis=1)
        ),
        lambda rng: np.array([1.0, -1.0, 0, 0, 0, 0]) + 0.1 * rng.normal(size=6),
        orl.Box([0, 0], [1, 1]),
    ),
}


CREEK: dict[str, list[dict[str, Any]]] = {  # around what fits the first two years of the record
    "reservoir": grid(keep=(0.87, 0.9, 0.93), gain=(0.08, 0.12, 0.2), sd=(0.2, 0.3, 0.4)),
    "soil": grid(
        keep=(0.93, 0.96), gain=(0.12, 0.16), sd=(0.2, 0.3, 0.4), dry=(0.02, 0.04), wet=(0.5,)
    ),
    "bursts": grid(
        keep=(0.92, 0.94),
        gain=(0.07, 0.1),
        sd=(0.07, 0.1),
        dry=(0.01, 0.03),
        wet=(0.4, 0.6),
        tail=(1.3, 1.6),
    ),
}
CREEK["low flow"] = [{**each, "quiet": 0.3} for each in CREEK["bursts"]]


PENDULUM_V1 = System(
    gym_pendulum,
    {
        "data sheet": [{}],
        "mass": grid(mass=(0.8, 1.2, 1.4)),
        "mass and length": grid(mass=(0.8, 1.2, 1.4), length=(0.9, 1.1)),
    },
    {"data sheet": {}, "mass": {"mass": 1.4}, "mass and length": {"mass": 1.4, "length": 1.1}},
    {"mass": 1.6},
    lambda s, a, after: (
        -(np.arctan2(s[:, 1], s[:, 0]) ** 2 + 0.1 * s[:, 2] ** 2 + 0.001 * a[:, 0] ** 2)
    ),
    lambda rng: (lambda angle: np.array([np.cos(angle), np.sin(angle), rng.uniform(-1, 1)]))(
        rng.uniform(-np.pi, np.pi)
    ),
    orl.Box(-2, 2),
    200,
)


class World(gym.Env[Floats, Any]):
    """A simulator as an environment, and what happened in it; the k-th action of a list is k."""

    def __init__(self, system: System, step: Simulator) -> None:
        self.system, self.run, self.listed = system, step, not isinstance(system.actions, orl.Box)
        self.now, self.log = (
            system.start(np.random.default_rng(0)),
            list[tuple[Floats, Floats, Floats]](),
        )
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, self.now.shape, np.float64)
        self.action_space: Any = gym.spaces.Discrete(len(system.actions)) if self.listed else None
        if not self.listed:
            self.action_space = gym.spaces.Box(
                system.actions.low, system.actions.high, dtype=np.float64
            )

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.now = self.system.start(self.np_random)
        return self.now, {}

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        chosen = np.atleast_2d(self.system.actions[action] if self.listed else action)
        after = self.run(self.now[None], chosen, self.np_random)
        self.log.append((self.now, chosen[0], after[0]))
        reward = float(self.system.reward(self.now[None], chosen, after)[0])
        self.now = after[0]
        return self.now, reward, False, False, {}
