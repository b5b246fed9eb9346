"""Four continuous systems for :mod:`studies.control`: simulators, ladders of them, and tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

import occamrl as orl
from occamrl.protocols import Floats, RewardFunction, Simulator

Rng = np.random.Generator
Keywords = dict[str, float]  # that a partial of a simulator fixes


def pendulum(
    states: Floats,
    actions: Floats,
    rng: Rng,
    *,
    wind: float = 0,
    drag: float = 0,
    sd: float = 1,
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
    """Run a pole on a cart (place, speed, angle, turn) with friction, 0.02 s a step.

    There is friction on the track and in the joint.
    """
    place, speed, angle, turn = states.T
    sine = np.sin(angle)
    cosine = np.cos(angle)
    total = 1.0 + mass
    force = 10 * actions[:, 0] - track * np.tanh(10 * speed)
    push = (force + 0.5 * mass * turn**2 * sine) / total
    bend: Floats = 9.8 * sine - cosine * push - joint * turn / (0.5 * mass)
    bend = bend / (0.5 * (4 / 3 - mass * cosine**2 / total))
    pull = push - 0.5 * mass * bend * cosine / total
    speed = speed + 0.02 * pull + 0.01 * sd * rng.normal(size=len(states))
    turn = turn + 0.02 * bend + 0.02 * sd * rng.normal(size=len(states))
    following = np.stack([place + 0.02 * speed, speed, angle + 0.02 * turn, turn], axis=1)
    return np.asarray(np.clip(following, -50, 50))


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
    """Run a machine (wear, temperature) under a load, 0 for maintenance.

    Wear jumps at times, and grows with heat.
    """
    wear = states[:, 0]
    warm = states[:, 1]
    load = actions[:, 0]
    warm = warm + 0.3 * (load - warm) + 0.03 * sd * rng.normal(size=len(states))
    wear = np.where(load > 0, wear + 0.1 * load * (1 + heat * warm), 0.5 * wear)
    wear = wear + 0.02 * sd * rng.normal(size=len(wear))
    jumps = rng.random(len(states)) < rate
    return np.stack([wear + jumps * jump * rng.exponential(size=len(states)), warm], axis=1)


def gym_pendulum(
    states: Floats, actions: Floats, rng: Rng, *, mass: float = 1, length: float = 1
) -> Floats:
    """Run Gymnasium's Pendulum-v1 (cosine, sine, speed), which has no noise."""
    angle = np.arctan2(states[:, 1], states[:, 0])
    push = 15 / length * np.sin(angle) + 3 / (mass * length**2) * actions[:, 0]
    speed = np.clip(states[:, 2] + 0.05 * push, -8, 8)
    angle = angle + 0.05 * speed
    return np.stack([np.cos(angle), np.sin(angle), speed], axis=1)


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
    left, right = actions.T * 9.8
    _, _, tilt, speed_x, speed_z, _ = states.T
    lift = (left + right) / mass
    push_x = -lift * np.sin(tilt) + wind - drag * speed_x
    push_z = lift * np.cos(tilt) - 9.8 - drag * speed_z
    push = np.stack([push_x, push_z, 4 * (right - left)], axis=1)
    speeds = states[:, 3:] + 0.05 * push + 0.03 * sd * rng.normal(size=(len(states), 3))
    following = np.concatenate([states[:, :3] + 0.05 * speeds, speeds], axis=1)
    return np.asarray(np.clip(following, -100, 100))


def creek(
    states: Floats,
    actions: Floats,
    rng: Rng,
    *,
    keep: float,
    gain: float,
    sd: float,
    dry: float = 0.0,
    wet: float = 0.0,
    quiet: float = 0.0,
    tail: float = 1e6,
) -> Floats:
    """Run a creek (log discharge) with rain and evaporation, a day a step.

    Noise is Student's, wider in rain.
    """
    level = states[:, 0]
    rain, evaporation = actions.T
    flow = keep * np.exp(level - dry * evaporation) + gain * np.exp(wet * level) * rain
    scale = sd * np.exp(-quiet * level) * (1 + 2 * rain / (1 + rain))
    following = np.log(flow + 0.01) + scale * rng.standard_t(tail, len(flow))
    return np.asarray(np.clip(following, -9, 9)[:, None])


@dataclass(frozen=True)
class Task:
    """A simulator, the classes of a ladder by keywords of their members, truths, and a reward."""

    step: Callable[..., Floats]
    classes: dict[str, list[Keywords]]
    truths: dict[str, Keywords]  # by the class that they need
    outside: Keywords  # a truth that no class holds
    reward: RewardFunction
    start: Callable[[Rng], Floats]
    actions: Any  # as of a SimulatorLadder
    horizon: int = 60

    def ladder(
        self,
        *,
        sd: float | None = None,
        wrap: Callable[[Simulator], Simulator] = lambda step: step,
        **options: Any,
    ) -> orl.SimulatorLadder:
        """Return the ladder, with ``options`` such as ``draws``.

        ``sd`` scales the noise of all members, ``wrap`` replaces each.
        """
        noise = {} if sd is None else {"sd": sd}
        classes = {}
        for name, members in self.classes.items():
            classes[name] = [wrap(partial(self.step, **member, **noise)) for member in members]
        return orl.SimulatorLadder(
            classes,
            reward=self.reward,
            start=self.start,
            actions=self.actions,
            horizon=self.horizon,
            **options,
        )

    def truth(self, name: str) -> Keywords:
        """Return the keywords of a truth; "outside" is one that no class holds."""
        if name == "outside":
            return self.outside
        return self.truths[name]

    def member(self, name: str) -> int:
        """Return the number of the true member."""
        members: list[Keywords] = []
        for listed in self.classes.values():
            members += listed
        return members.index(self.truths[name])


def grid(**values: tuple[float, ...]) -> list[Keywords]:
    """Return all combinations of values, as keywords."""
    combinations: list[Keywords] = [{}]
    for name, several in values.items():
        longer = []
        for keywords in combinations:
            longer += [{**keywords, name: value} for value in several]
        combinations = longer
    return combinations


def upright(states: Floats, actions: Floats, next_states: Floats) -> Floats:
    """Reward a pendulum that stands still, upright."""
    height = np.cos(next_states[:, 0]) - 1
    cost: Floats = height**2 + 0.01 * next_states[:, 1] ** 2 + 0.001 * actions[:, 0] ** 2
    return -cost


def balanced(states: Floats, actions: Floats, next_states: Floats) -> Floats:
    """Reward a pole that stands still on a cart in the middle."""
    place, _, angle, turn = next_states.T
    cost: Floats = angle**2 + 0.05 * place**2 + 0.01 * turn**2
    return -cost


def produced(states: Floats, actions: Floats, next_states: Floats) -> Floats:
    """Reward the load of a machine, less the cost of its wear."""
    gain: Floats = actions[:, 0] - 0.5 * next_states[:, 0] ** 2
    return gain


def hovering(states: Floats, actions: Floats, next_states: Floats) -> Floats:
    """Reward a quadrotor that hovers at the origin."""
    place = (next_states[:, :2] ** 2).sum(axis=1)
    motion = (next_states[:, 2:] ** 2).sum(axis=1)
    gain: Floats = 1 - 0.3 * place - 0.05 * motion
    return gain


def gym_upright(states: Floats, actions: Floats, next_states: Floats) -> Floats:
    """Reward as Gymnasium's Pendulum-v1 does, by the state before the step."""
    angle = np.arctan2(states[:, 1], states[:, 0])
    cost: Floats = angle**2 + 0.1 * states[:, 2] ** 2 + 0.001 * actions[:, 0] ** 2
    return -cost


def gym_start(rng: Rng) -> Floats:
    """Return a first state of Gymnasium's Pendulum-v1."""
    angle = rng.uniform(-np.pi, np.pi)
    return np.array([np.cos(angle), np.sin(angle), rng.uniform(-1, 1)])


WINDS = (-2, -1, 1, 2)
SYSTEMS = {
    "pendulum, 2-d": Task(
        step=pendulum,
        classes={
            "calm": [{}],
            "wind": grid(wind=WINDS),
            "wind and drag": grid(wind=WINDS, drag=(0.2, 0.5)),
        },
        truths={"calm": {}, "wind": {"wind": 1}, "wind and drag": {"wind": 1, "drag": 0.5}},
        outside={"wind": 1.5, "drag": -0.5},
        reward=upright,
        start=lambda rng: np.array([0.5, 0.0]) + 0.1 * rng.normal(size=2),
        actions=orl.Box(-4, 4),
    ),
    "cart-pole, 4-d": Task(
        step=cart_pole,
        classes={
            "smooth": [{}],
            "track": grid(track=(1.0, 3.0)),
            "track and joint": grid(track=(1.0, 3.0), joint=(0.02, 0.1)),
        },
        truths={
            "smooth": {},
            "track": {"track": 3.0},
            "track and joint": {"track": 3.0, "joint": 0.1},
        },
        outside={"track": 2.0, "mass": 0.4},
        reward=balanced,
        start=lambda rng: np.array([0.3, 0.0, 0.15, 0.0]) + 0.05 * rng.normal(size=4),
        actions=orl.Box(-1, 1),
    ),
    "machine with jumps, 2-d": Task(
        step=machine,
        classes={
            "steady": [{}],
            "jumps": grid(rate=(0.03, 0.1), jump=(0.5, 1.5)),
            "jumps and heat": grid(rate=(0.03, 0.1), jump=(0.5, 1.5), heat=(0.3, 0.8)),
        },
        truths={
            "steady": {},
            "jumps": {"rate": 0.1, "jump": 0.5},
            "jumps and heat": {"rate": 0.1, "jump": 0.5, "heat": 0.8},
        },
        outside={"rate": 0.05, "heat": -0.5},
        reward=produced,
        start=lambda rng: np.abs(0.1 * rng.normal(size=2)),
        actions=[[0.0], [0.5], [1.0]],
    ),
    "quadrotor, 6-d": Task(
        step=quadrotor,
        classes={
            "nominal": [{}],
            "mass": grid(mass=(0.8, 1.25)),
            "mass and wind": grid(mass=(0.8, 1.0, 1.25), wind=(-1, 1), drag=(0, 0.4)),
        },
        truths={
            "nominal": {},
            "mass": {"mass": 1.25},
            "mass and wind": {"mass": 1.25, "wind": 1, "drag": 0.4},
        },
        outside={"mass": 1.1, "wind": 0.5, "drag": 1.0},
        reward=hovering,
        start=lambda rng: np.array([1.0, -1.0, 0, 0, 0, 0]) + 0.1 * rng.normal(size=6),
        actions=orl.Box([0, 0], [1, 1]),
    ),
}


CREEK = {  # around what fits the first two years of the record
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
CREEK["low flow"] = [{**keywords, "quiet": 0.3} for keywords in CREEK["bursts"]]


PENDULUM_V1 = Task(
    step=gym_pendulum,
    classes={
        "data sheet": [{}],
        "mass": grid(mass=(0.8, 1.2, 1.4)),
        "mass and length": grid(mass=(0.8, 1.2, 1.4), length=(0.9, 1.1)),
    },
    truths={
        "data sheet": {},
        "mass": {"mass": 1.4},
        "mass and length": {"mass": 1.4, "length": 1.1},
    },
    outside={"mass": 1.6},
    reward=gym_upright,
    start=gym_start,
    actions=orl.Box(-2, 2),
    horizon=200,
)


class World(gym.Env[Floats, Any]):
    """A simulator as an environment, and what happened in it; the k-th action of a list is k."""

    def __init__(self, task: Task, step: Simulator) -> None:
        self.task = task
        self.simulate = step
        self.now = task.start(np.random.default_rng(0))
        self.log: list[tuple[Floats, Floats, Floats]] = []
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, self.now.shape, np.float64)
        self.action_space: gym.Space[Any]
        if isinstance(task.actions, orl.Box):
            low = task.actions.low
            self.action_space = gym.spaces.Box(low, task.actions.high, dtype=np.float64)
        else:
            self.action_space = gym.spaces.Discrete(len(task.actions))

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.now = self.task.start(self.np_random)
        return self.now, {}

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        if isinstance(self.action_space, gym.spaces.Discrete):
            action = self.task.actions[action]
        chosen = np.atleast_2d(action)
        following = self.simulate(self.now[None], chosen, self.np_random)
        self.log.append((self.now, chosen[0], following[0]))
        reward = float(self.task.reward(self.now[None], chosen, following)[0])
        self.now = following[0]
        return self.now, reward, False, False, {}

    @property
    def columns(self) -> tuple[Floats, Floats, Floats]:
        """The states, actions and next states of all steps, each [T, ...]."""
        states, actions, following = zip(*self.log, strict=True)
        return np.array(states), np.array(actions), np.array(following)
