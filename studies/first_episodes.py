"""Returns of the first ten episodes on five systems: fitted dynamics, lists, least squares, a net.

    python -m studies.first_episodes             prints a table of docs/dynamics.md
    python -m studies.first_episodes cart        one system of it

Starts and noise are the same for all who play; all but those who know the truth act at random for
their first 16 steps. The net needs scikit-learn: without it, its rows are left out.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

import occamrl as orl
from occamrl.addresses import Address
from occamrl.evidence.simulator_worlds import plan_in
from occamrl.protocols import Floats, Planner, RewardFunction, Simulator, System, Transition
from studies.dynamics import cart, comfort, pendulum, swing_reward, swing_start
from studies.figures import Size, each, table
from studies.systems import Task, World

Rng = np.random.Generator
Mean = Callable[..., Floats]  # states [N, n], actions [N, m], parameters -> means [N, n]
PLANNER = orl.CEM(candidates=48, elites=8, iterations=3, horizon=15, particles=1)
RANDOM = 16  # steps at the beginning
NETS = 5


class Plant(NamedTuple):
    """A system, its truth, and what one may think of it."""

    mean: Mean
    truth: dict[str, float]
    state: list[str]
    sd: Any  # of the noise
    classes: dict[str, Any]
    listed: list[dict[str, float]]  # members of a list, the truth not among them
    reward: RewardFunction
    start: Callable[[Rng], Floats]
    actions: orl.Box
    horizon: int = 60

    @property
    def task(self) -> dict[str, Any]:
        """What a ladder needs to know."""
        return {
            "reward": self.reward,
            "horizon": self.horizon,
            "actions": self.actions,
            "start": self.start,
        }

    def step(self, states: Floats, actions: Floats, rng: Rng, **parameters: float) -> Floats:
        """Take a step with noise."""
        noise: Floats = self.sd * rng.normal(size=states.shape)
        return self.mean(states, actions, **parameters) + noise

    def simulator(self, parameters: dict[str, float]) -> Simulator:
        """Return the system with some parameters."""
        step: Any = self.step
        return partial(step, **parameters)

    def env(self) -> Any:
        """Return the true system as an environment."""
        if self.mean is pendulum:
            return gym.make("Pendulum-v1", max_episode_steps=self.horizon)
        truth = self.simulator(self.truth)
        task = Task(
            step=truth, classes={}, truths={}, outside={}, reward=self.reward, start=self.start,
            actions=self.actions, horizon=self.horizon,
        )  # fmt: skip
        return World(task, truth)

    def ladder(self, classes: dict[str, Any]) -> orl.Dynamics:
        """Return classes of dynamics with the task."""
        return orl.Dynamics(classes, state=self.state, action=["u"]).system(**self.task)

    def simulators(self, members: list[dict[str, float]]) -> orl.SimulatorLadder:
        """Return simulators with the task."""
        listed = [self.simulator(member) for member in members]
        return orl.SimulatorLadder({"listed": listed}, **self.task)


def swing(
    states: Floats, actions: Floats, *, gravity: float = 1.0, push: float = 1.0, drag: float = 0.0
) -> Floats:
    """Swing a pendulum (angle from the top, speed) up, 0.05 s a step."""
    angle, speed = states.T
    turn = 15.0 * gravity * np.sin(angle) + 3.0 * push * actions[:, 0] - drag * speed
    speed = speed + 0.05 * turn
    return np.stack([angle + 0.05 * speed, speed], axis=1)


def upright(states: Floats, actions: Floats, next_states: Floats) -> Floats:
    """Pay for not standing upright."""
    angle, speed = next_states.T
    paid: Floats = (1.0 - np.cos(angle)) ** 2 + 0.01 * speed**2 + 0.001 * actions[:, 0] ** 2
    return -paid


def centred(states: Floats, actions: Floats, next_states: Floats) -> Floats:
    """Pay for being away from the middle, and for pushing."""
    paid: Floats = next_states[:, 0] ** 2 + 0.1 * next_states[:, 1] ** 2
    return -paid - 0.01 * actions[:, 0] ** 2


def house(
    states: Floats, actions: Floats, *, gain: float = 1.0, leak: float = 0.1, wall: float = 0.0
) -> Floats:
    """Heat a room (air, wall) for an hour; it is 5 degrees outside."""
    air, stored = states.T
    after = air + wall * (stored - air) + gain * actions[:, 0] + leak * (5.0 - air)
    return np.stack([after, stored + 0.05 * (air - stored)], axis=1)


def tanks(
    states: Floats, actions: Floats, *, pump: float = 1.0, upper: float = 0.3, lower: float = 0.3
) -> Floats:
    """Fill the upper of two tanks, which runs into the lower one."""
    levels = np.sqrt(np.maximum(states, 0.0))
    through = upper * levels[:, 0]
    high = states[:, 0] + 0.5 * (pump * actions[:, 0] - through)
    low = states[:, 1] + 0.5 * (through - lower * levels[:, 1])
    return np.stack([high, low], axis=1)


def level(states: Floats, actions: Floats, next_states: Floats) -> Floats:
    """Pay for a lower tank that is not at 1."""
    paid: Floats = (next_states[:, 1] - 1.0) ** 2
    return -paid


def around(*middle: float) -> Callable[[Rng], Floats]:
    """Return first states near one."""
    return lambda rng: np.array(middle) + 0.1 * rng.normal(size=len(middle))


def corners(**values: tuple[float, ...]) -> list[dict[str, float]]:
    """Return all combinations of values."""
    combinations: list[dict[str, float]] = [{}]
    for name, several in values.items():
        combinations = [{**known, name: value} for known in combinations for value in several]
    return combinations


LINE = orl.Polynomial(1)
PLANTS = {
    "pendulum": Plant(
        swing,
        {"gravity": 0.9, "push": 1.2, "drag": 0.4},
        ["angle", "speed"],
        np.array([0.002, 0.05]),
        {
            "linear": LINE,
            "no drag": orl.GreyBox(swing, gravity=(0.5, 2), push=(0.5, 2)),
            "drag": orl.GreyBox(swing, gravity=(0.5, 2), push=(0.5, 2), drag=(0, 2)),
        },
        corners(gravity=(0.8, 1.1), push=(1.0, 1.4), drag=(0.0, 0.8)),
        upright,
        around(np.pi, 0.0),
        orl.Box(-4, 4),
    ),
    "cart": Plant(
        cart,
        {"mass": 1.37, "viscous": 0.3, "dry": 0.6},
        ["x", "v"],
        np.array([0.001, 0.01]),
        {
            "linear": LINE,
            "friction": orl.GreyBox(cart, mass=(0.5, 3), viscous=(0, 2)),
            "and dry": orl.GreyBox(cart, mass=(0.5, 3), viscous=(0, 2), dry=(0, 2)),
        },
        corners(mass=(1.0, 1.8), viscous=(0.1, 0.6), dry=(0.3, 0.9)),
        centred,
        around(1.0, 0.0),
        orl.Box(-3, 3),
    ),
    "HVAC": Plant(
        house,
        {"gain": 1.5, "leak": 0.05, "wall": 0.15},
        ["air", "wall"],
        np.array([0.5, 0.1]),
        {
            "no wall": orl.GreyBox(house, gain=(0.5, 3), leak=(0, 0.3)),
            "wall": orl.GreyBox(house, gain=(0.5, 3), leak=(0, 0.3), wall=(0, 0.5)),
            "quadratic": orl.Polynomial(2),
        },
        corners(gain=(1.2, 1.8), leak=(0.03, 0.08), wall=(0.1, 0.2)),
        comfort,
        around(16.0, 15.0),
        orl.Box(0, 1),
        48,
    ),
    "double tank": Plant(
        tanks,
        {"pump": 0.8, "upper": 0.4, "lower": 0.25},
        ["upper", "lower"],
        np.array([0.01, 0.01]),
        {
            "linear": LINE,
            "one hole": orl.GreyBox(tanks, pump=(0.3, 2), upper=(0.1, 1)),
            "two holes": orl.GreyBox(tanks, pump=(0.3, 2), upper=(0.1, 1), lower=(0.1, 1)),
        },
        corners(pump=(0.6, 1.0), upper=(0.3, 0.5), lower=(0.2, 0.35)),
        level,
        around(0.5, 0.3),
        orl.Box(0, 1),
    ),
    "Pendulum-v1": Plant(
        pendulum,
        {"mass": 1.0, "length": 1.0},
        ["cos", "sin", "speed"],
        np.zeros(3),
        {
            "linear": LINE,
            "quadratic": orl.Polynomial(2),
            "grey box": orl.GreyBox(pendulum, mass=(0.5, 2), length=(0.5, 2)),
        },
        corners(mass=(0.8, 1.2), length=(0.8, 1.2)),
        swing_reward,
        swing_start,
        orl.Box(-2, 2),
        100,
    ),
}


# Who plays ----------------------------------------------------------------------------------------

Predict = Callable[[Floats], Floats]  # inputs [K, N, d], one set a member -> changes [K, N, n]


def fit_lines(inputs: Floats, changes: Floats, rng: Rng) -> Predict:
    """Fit one line by least squares."""
    weights = np.linalg.lstsq(np.column_stack([inputs, np.ones(len(inputs))]), changes)[0]
    return lambda rows: rows @ weights[:-1] + weights[-1]


def fit_nets(inputs: Floats, changes: Floats, rng: Rng) -> Predict:
    """Fit nets of scikit-learn to bootstrapped rows."""
    regressor = importlib.import_module("sklearn.neural_network").MLPRegressor
    layers: list[list[Floats]] = []
    for net in range(NETS):
        rows = rng.integers(len(inputs), size=len(inputs))
        fitted = regressor(
            hidden_layer_sizes=(32,),
            activation="tanh",
            solver="lbfgs",
            alpha=1e-3,
            random_state=net,
        )
        fitted.set_params(max_iter=200).fit(inputs[rows], changes[rows])
        layers.append([*fitted.coefs_, *fitted.intercepts_])
    first, last, bias, constant = [np.stack(part) for part in zip(*layers, strict=True)]
    return lambda rows: np.tanh(rows @ first + bias[:, None]) @ last + constant[:, None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Refitted:
    """Model-predictive control in what is fitted again whenever the data have doubled.

    Candidates take turns in the members of an ensemble, and noise of the size of residuals is
    added.
    """

    fit: Callable[[Floats, Floats, Rng], Predict]
    members: int
    planner: Planner = PLANNER
    fitted: dict[int, Any] = field(default_factory=dict)

    def begin(self, system: System) -> dict[str, Any]:
        """Return the state before any data."""
        return {"rows": [], "warm": None, "due": RANDOM, "predict": None}

    def act(
        self,
        system: System,
        state: dict[str, Any],
        observation: Floats,
        step: int,
        address: Address,
    ) -> Floats:
        """Draw an action at first, then plan."""
        if step == 0:
            state["warm"] = None
        if state["predict"] is None:
            drawn: Floats = system.actions.draw(1, address.generator("explore"))[0]
            return drawn
        rng = address.generator("plan")
        action, state["warm"] = plan_in(
            self.planner, state["predict"], system, observation, step, rng, state["warm"]
        )
        return action

    def learn(self, system: System, state: dict[str, Any], transition: Transition) -> None:
        """Keep a step, and fit when as many again have come."""
        change = transition.next_state - transition.state
        state["rows"].append((transition.state, transition.action, change))
        if len(state["rows"]) < state["due"]:
            return
        state["due"] = 2 * len(state["rows"])
        states, actions, changes = (np.array(part) for part in zip(*state["rows"], strict=True))
        inputs = np.concatenate([states, actions], axis=1)
        center = inputs.mean(axis=0)
        spread = inputs.std(axis=0) + 1e-9
        scale = changes.std(axis=0) + 1e-9
        predict = self.fit((inputs - center) / spread, changes / scale, np.random.default_rng(0))
        fitted = predict(np.repeat(((inputs - center) / spread)[None], self.members, axis=0))
        sd = (fitted - changes / scale).std(axis=(0, 1)) * scale
        largest = 3.0 * np.abs(changes).max(axis=0)

        def simulate(states: Floats, actions: Floats, rng: Rng) -> Floats:
            rows = (np.concatenate([states, actions], axis=1) - center) / spread
            turn = np.arange(len(states)) % self.members
            every = predict(np.repeat(rows[None], self.members, axis=0))
            moved = np.clip(every[turn, np.arange(len(states))] * scale, -largest, largest)
            following: Floats = states + moved + sd * rng.normal(size=states.shape)
            return following

        state["predict"] = simulate


class Thermostat:
    """Heat below 20 degrees."""

    def begin(self, system: System) -> dict[str, Any]:
        """Return nothing to remember."""
        return {}

    def act(
        self,
        system: System,
        state: dict[str, Any],
        observation: Floats,
        step: int,
        address: Address,
    ) -> Floats:
        """Heat or not."""
        return np.array([1.0 if observation[0] < 20.0 else 0.0])

    def learn(self, system: System, state: dict[str, Any], transition: Transition) -> None:
        """Learn nothing."""


def players(plant: Plant) -> dict[str, Any]:
    """Return who plays."""
    simplest = next(iter(plant.classes))

    def control(ladder: Any) -> orl.OccamControl:
        return orl.OccamControl(ladder=ladder, planner=PLANNER)

    who: dict[str, Any] = {
        "true simulator": control(plant.simulators([plant.truth])),
        "fitted classes": control(plant.ladder(plant.classes)),
        f"'{simplest}' alone": control(plant.ladder({simplest: plant.classes[simplest]})),
        "list without the truth": control(plant.simulators(plant.listed)),
        "least squares": Refitted(fit=fit_lines, members=1),
    }
    if importlib.util.find_spec("sklearn") is not None:
        who["bootstrapped nets"] = Refitted(fit=fit_nets, members=NETS)
    if plant.mean is house:
        who["thermostat"] = Thermostat()
    return who


def returns(size: Size, systems: Sequence[str] = tuple(PLANTS)) -> str:
    """Compare the returns of ten episodes."""
    rows = []
    for name in size.some(systems):
        plant = PLANTS[name]
        known = plant.simulators([plant.truth]).known
        truth: Floats | None = None
        for label, controller in size.some(players(plant).items()):

            def one(
                seed: int, plant: Plant = plant, controller: Any = controller, known: System = known
            ) -> Floats:
                result = orl.learn(
                    controller,
                    plant.env(),
                    episodes=2 if size.tiny else 10,
                    seed=seed,
                    known=known,
                    progress=False,
                )
                return np.asarray(result.returns)

            earned = np.array(each(size, size.seeds(10), one, f"{name}, {label}"))
            truth = earned if truth is None else truth
            short = (earned - truth).mean(axis=1)
            error = short.std(ddof=1) / np.sqrt(short.size) if short.size > 1 else np.nan
            means = [f"{earned[:, 0].mean():.1f}", f"{earned[:, 1:].mean():.1f}"]
            rows.append((name, label, *means, f"{short.mean():.1f} ± {error:.1f}"))
    header = ("system", "planner in", "first", "second to tenth", "all ten, less the true one's")
    return table(header, rows)


def main() -> None:
    """Print the table, of all systems or of some."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=[[], *PLANTS], nargs="*")
    parser.add_argument("--seeds", type=int, default=10**9)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    size = Size(tiny=options.tiny, most_seeds=options.seeds)
    print(returns(size, options.system or tuple(PLANTS)))


if __name__ == "__main__":
    main()
