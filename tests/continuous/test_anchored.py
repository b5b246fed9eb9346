"""Learning on a circle with values at anchors: the confidence set holds theta* although integrals are approximate.

Each case plays short runs and counts those in which theta* was outside the ellipsoid after some episode; the exact
binomial test at level 0.001 then rejects a true promise with a probability of at most 0.1 %. The negative controls take
the same approximate integrals for exact, and must be rejected.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from occamrl.continuous.discretise import discretise, quadrature_error
from occamrl.continuous.grid import Grid, StateError
from occamrl.continuous.transitions import Driven, Sampled, Transition, normal_rule
from occamrl.contracts import Floats
from occamrl.errors import OccamRLError, ParameterError, RewardError, ShapeError
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.runs.anchored import Anchored

TURNS, SIGMA, THETA = (0.3, 1.5, -1.2), 1.2, np.array([0.9, 0.1, 0.0])
DELTA, LEVEL, HORIZON = 0.3, 1e-3, 3


def grid(points: int = 8) -> Grid:
    return Grid(low=[-math.pi], high=[math.pi], points=[points], periodic=[True])


def reward(states: Floats, action: Floats) -> Floats:
    return np.asarray(0.5 * (1.0 + np.cos(states[:, 0])))


def sampled(turn: float, draws: int) -> Sampled:
    def sample(states: Floats, action: Floats, rng: np.random.Generator) -> Floats:
        return np.asarray(states + turn * action[0] + SIGMA * rng.normal(size=states.shape))

    return Sampled(sample=sample, draws=draws)


def driven(turn: float, nodes: int) -> Driven:
    return Driven(step=lambda s, a, w: s + turn * a[0] + w, rule=lambda n: normal_rule([SIGMA], n), nodes=nodes)


def learner(models: list[Transition], seed: int = 0, **changes: Any) -> Anchored:
    options: dict[str, Any] = {"actions": [1.0], "horizon": HORIZON, "episodes": 60, "delta": DELTA, "seed": seed}
    return Anchored(models=models, grid=grid(), reward=reward, **{**options, **changes})


def play(agent: Anchored, episodes: int, seed: int) -> bool:
    """Step the true system on the circle; return whether theta* was outside after some episode."""
    rng, left = np.random.default_rng(seed), False
    for _ in range(episodes):
        state = rng.uniform(-math.pi, math.pi, size=1)
        agent.begin(state)
        for _ in range(HORIZON):
            action = agent.actions[agent.act()]
            state = state + TURNS[rng.choice(3, p=THETA)] * action + SIGMA * rng.normal(size=1)
            agent.record(state)
        gap = agent.theta - THETA
        left |= bool(gap @ agent.sigma @ gap > agent.squared_radius)
    return left


class Careless(Anchored):
    """Takes every integral for exact."""

    def row_error(self, t: int) -> float:
        return 0.0


def p_value(left: int, runs: int) -> float:
    return float(binom.sf(left - 1, runs, DELTA))


CASES: dict[str, tuple[Any, int]] = {
    "400 draws": (sampled, 400),
    "one draw": (sampled, 1),
    "20 nodes": (driven, 20),
    "one node": (driven, 1),
}


@cache
def rule_error(nodes: int) -> float:
    """Return the total variation error of the candidates' laws, against 100 nodes."""
    worst = 0.0
    for turn in TURNS:
        gap: Any = discretise(driven(turn, 100), grid(), [1.0]) - discretise(driven(turn, nodes), grid(), [1.0])
        worst = max(worst, 0.5 * float(abs(gap).sum(axis=1).max()))
    return min(1.0, worst)


def build(name: str, seed: int, kind: type[Anchored] = Anchored) -> Anchored:
    make, size = CASES[name]
    models: list[Transition] = [make(turn, size) for turn in TURNS]
    error = rule_error(size) if make is driven and kind is Anchored else 0.0
    return kind(
        models=models,
        grid=grid(),
        actions=[1.0],
        reward=reward,
        horizon=HORIZON,
        episodes=12,
        delta=DELTA,
        error=error,
        seed=seed,
    )


@pytest.mark.parametrize("name", CASES)
def test_the_ellipsoid_holds_theta(name: str, test_seed: int) -> None:
    runs = 50
    left = sum(play(build(name, seed), 12, seed) for seed in range(runs * test_seed, runs * (test_seed + 1)))
    assert p_value(left, runs) > LEVEL


@pytest.mark.parametrize("name", ["one draw", "one node"])
def test_errors_that_are_not_carried_void_the_promise(name: str, test_seed: int) -> None:
    runs = 12
    left = sum(play(build(name, seed, Careless), 150, seed) for seed in range(runs * test_seed, runs * (test_seed + 1)))
    assert p_value(left, runs) < LEVEL


def test_the_radius_is_the_formula_and_plans_use_it() -> None:
    agent = learner([sampled(turn, 50) for turn in TURNS], replan=0.0)
    play(agent, 5, 0)
    assert agent.rows == 5 * (HORIZON - 1)  # the last step has V = 0
    squares = [math.log(2 * 3 * math.pi**2 * t**2 / 6 / (DELTA / 2)) / 100 for t in range(1, agent.rows + 1)]
    c, logdet = agent.temperature, float(np.linalg.slogdet(agent.sigma)[1])
    assert 0.0 < c < 1.0
    beta = (logdet + 2 * math.log(2 / DELTA)) / (4 * c) + sum(squares) / (1 - c) + 1.0
    assert agent.squared_radius == pytest.approx(beta)
    agent.begin([0.0])
    top = agent.values[1].max()  # at a radius that large every clip is met: the plan promises the best next value
    np.testing.assert_allclose(agent.values[0], np.minimum(agent.known.base_reward[:, 0] + top, HORIZON), atol=0.2)


def test_with_one_exact_model_the_plan_is_that_of_the_grid() -> None:
    agent = learner([driven(0.7, 40)], actions=[1.0, -1.0], delta=1.0, regularization=1e-6)
    mdp = FiniteMDP(
        transition=discretise(driven(0.7, 40), grid(), [1.0, -1.0]), reward=agent.known.base_reward, horizon=HORIZON
    )
    rng = np.random.default_rng(0)
    for _ in range(60):
        state = rng.uniform(-math.pi, math.pi, size=1)
        agent.begin(state)
        for _ in range(HORIZON):
            action = agent.actions[agent.act()]
            state = state + 0.7 * action + SIGMA * rng.normal(size=1)
            agent.record(state)
    agent.begin([0.0])
    assert agent.planned_value([0.0]) >= mdp.optimal_values[0, 4] - 1e-9  # vertex 4 is the angle 0
    np.testing.assert_allclose(agent.values[HORIZON - 1], mdp.optimal_values[HORIZON - 1], atol=1e-12)


def test_the_action_is_chosen_at_the_true_state() -> None:
    agent = learner([driven(0.7, 20)], actions=[1.0, -1.0])
    chosen = []
    for state in (-1.0, 1.0):
        agent.begin([state])
        agent.record([state])  # to the second of three steps
        chosen.append(agent.act())
    assert chosen == [0, 1]  # towards the angle 0, where the reward is


def test_the_error_of_a_rule_is_what_the_estimate_says() -> None:
    coarse = driven(0.3, 2)
    true: Any = discretise(driven(0.3, 100), grid(), [1.0]) - discretise(coarse, grid(), [1.0])
    assert quadrature_error(coarse, grid(), [1.0]) == pytest.approx(0.5 * abs(true).sum(axis=1).max(), rel=0.5)


def test_a_simulator_that_leaves_the_box_while_learning_is_named() -> None:
    calls = []

    def leaves(states: Floats, action: Floats, rng: np.random.Generator) -> Floats:
        calls.append(len(states))
        return np.full_like(states, np.nan) if len(calls) > 20 else states

    box = Grid(low=[0.0], high=[1.0], points=[5])
    agent = Anchored(
        models=[Sampled(sample=leaves, draws=20)],
        grid=box,
        actions=[7.0],
        reward=lambda s, a: s[:, 0],
        horizon=2,
        episodes=3,
    )
    agent.begin([0.3])
    with pytest.raises(StateError, match=r"nan.*from state \[0.3\] under action \[7.0\].*\[0, 1\]") as caught:
        agent.act()
    assert caught.value.state == [0.3]
    assert agent.rows == 0


def test_bad_use_is_refused_and_nothing_is_lost() -> None:
    box = Grid(low=[0.0], high=[1.0], points=[5])
    stay = Driven(step=lambda s, a, w: s, rule=lambda n: normal_rule([0.0], n), nodes=1)
    agent = Anchored(models=[stay], grid=box, actions=[0.0], reward=lambda s, a: s[:, 0], horizon=2, episodes=3)
    with pytest.raises(OccamRLError, match="begin"):
        agent.act()
    agent.begin([0.5])
    agent.record([0.6])
    kept = agent.gram.copy(), agent.xy.copy(), agent.rows
    for bad in (1.5, math.nan):
        with pytest.raises(StateError, match=r"next_state.*a state in \[0, 1\]"):
            agent.record([bad])
    with pytest.raises(ShapeError, match="next_state"):
        agent.record([0.1, 0.2])
    assert (agent.gram == kept[0]).all()
    assert (agent.xy == kept[1]).all()
    assert agent.rows == kept[2]
    agent.record([0.7])
    with pytest.raises(ParameterError, match="models"):
        Anchored(models=[], grid=box, actions=[0.0], reward=lambda s, a: s[:, 0], horizon=2, episodes=3)
    with pytest.raises(ParameterError, match="error"):
        learner([sampled(turn, 5) for turn in TURNS], error=0.1)
    broken = Anchored(models=[stay], grid=box, actions=[0.0], reward=lambda s, a: 2 * s[:, 0], horizon=2, episodes=3)
    with pytest.raises(RewardError, match=r"reward\[3\].*state \[0.75\]"):
        broken.begin([0.5])
