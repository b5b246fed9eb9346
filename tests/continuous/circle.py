"""A state on a circle that is turned by an unknown mixture of three models: the tests of agents on a box play it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from occamrl.continuous.grid import Grid
from occamrl.continuous.transitions import Driven, Rule, Sampled, Transition, normal_rule
from occamrl.contracts import Floats
from occamrl.runs.anchored import Anchored

TURNS, SIGMA, THETA = (0.3, 1.5, -1.2), 1.2, np.array([0.9, 0.1, 0.0])
DELTA, HORIZON = 0.3, 3


def grid(points: int = 8) -> Grid:
    return Grid(low=[-math.pi], high=[math.pi], points=[points], periodic=[True])


def reward(states: Floats, action: Floats) -> Floats:
    return np.asarray(0.5 * (1.0 + np.cos(states[:, 0])))


def sampled(turn: float, draws: int) -> Sampled:
    def sample(states: Floats, action: Floats, rng: np.random.Generator) -> Floats:
        return np.asarray(states + turn * action[0] + SIGMA * rng.normal(size=states.shape))

    return Sampled(sample=sample, draws=draws)


def driven(turn: float, nodes: int, sigma: float = SIGMA) -> Driven:
    return Driven(step=lambda s, a, w: s + turn * a[0] + w, rule=lambda n: normal_rule([sigma], n), nodes=nodes)


class Careless(Anchored):
    """Takes every integral for exact."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.temperature = 1.0
        self._start()

    def row_error(self, t: int) -> float:
        return 0.0


def learner(models: list[Transition], seed: int = 0, kind: type[Anchored] = Anchored, **changes: Any) -> Anchored:
    options: dict[str, Any] = {"actions": [1.0], "horizon": HORIZON, "episodes": 60, "delta": DELTA, "seed": seed}
    return kind(**{**options, "models": models, "grid": grid(), "reward": reward, **changes})


def start(agent: Anchored, rng: np.random.Generator) -> Floats:
    state = rng.uniform(-math.pi, math.pi, size=1)
    agent.begin(state)
    return state


def advance(agent: Anchored, state: Floats, rng: np.random.Generator) -> Floats:
    """Take one step of the true system."""
    action = agent.actions[agent.act()]
    state = np.asarray(state + TURNS[rng.choice(3, p=THETA)] * action + SIGMA * rng.normal(size=1))
    agent.record(state)
    return state


def episode(agent: Anchored, rng: np.random.Generator) -> None:
    """Play one episode."""
    state = start(agent, rng)
    for _ in range(agent.horizon):
        state = advance(agent, state, rng)


def holds(agent: Anchored) -> bool:
    """Say whether the ellipsoid of all candidates holds the truth."""
    gap = agent.theta - THETA
    return bool(gap @ agent.sigma @ gap <= agent.squared_radius)


# A chain that jumps between the vertices alone, so that the box and the finite problem are one and the same. Together
# the candidates reach every one of the eight vertices, so that the range of V is over all of them in both.

SHIFTS = (
    (0.0, 1.0, 2.0),
    (-1.0, 0.0, 3.0),
    (-2.0, 1.0, 1.0),
    (2.0, 4.0, -3.0),
)
SHARES = ((0.5, 0.3, 0.2), (0.6, 0.3, 0.1), (0.2, 0.5, 0.3), (0.4, 0.3, 0.3))
WEIGHTS = (0.0, 0.5, 0.0, 0.5)


def jumping(j: int) -> Driven:
    """Return candidate j: steps of whole cells, under action a to one side or the other."""
    cell = float(grid().spacing[0])
    rule = Rule(np.array(SHIFTS[j])[:, None], np.array(SHARES[j]))
    return Driven(step=lambda s, a, w: s + a[0] * cell * w, rule=lambda n: rule, nodes=3)
