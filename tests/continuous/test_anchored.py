"""Learning on a circle with values at anchors: formulas, plans, the true state, and bad use."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from occamrl.continuous.discretise import discretise, quadrature_error
from occamrl.continuous.grid import Grid, StateError
from occamrl.continuous.transitions import Driven, Sampled, normal_rule
from occamrl.contracts import Floats
from occamrl.errors import InvalidInput, OccamRLError, ParameterError, RewardError, ShapeError
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.runs.anchored import Anchored
from tests.continuous.circle import DELTA, HORIZON, SIGMA, TURNS, driven, episode, grid, learner, sampled


def test_the_radius_is_the_formula_and_plans_use_it() -> None:
    agent = learner([sampled(turn, 50) for turn in TURNS], replan=0.0)
    rng = np.random.default_rng(0)
    for _ in range(5):
        episode(agent, rng)
    assert agent.rows == 5 * (HORIZON - 1)  # the last step has V = 0
    squares = [math.log(2 * 3 * math.pi**2 * t**2 / 6 / (DELTA / 2)) / 100 for t in range(1, agent.rows + 1)]
    c, logdet = agent.temperature, float(np.linalg.slogdet(agent.sigma)[1])
    assert 0.0 < c < 1.0
    beta = 0.25 * (logdet + 2 * math.log(2 / DELTA)) + c * sum(squares) / (1 - c) + 1.0
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
    kept = agent.seen.gram.copy(), agent.seen.xy.copy(), agent.rows
    for bad in (1.5, math.nan):
        with pytest.raises(StateError, match=r"next_state.*a state in \[0, 1\]"):
            agent.record([bad])
    with pytest.raises(ShapeError, match="next_state"):
        agent.record([0.1, 0.2])
    assert (agent.seen.gram == kept[0]).all()
    assert (agent.seen.xy == kept[1]).all()
    assert agent.rows == kept[2]
    agent.record([0.7])
    with pytest.raises(ParameterError, match="models"):
        Anchored(models=[], grid=box, actions=[0.0], reward=lambda s, a: s[:, 0], horizon=2, episodes=3)
    with pytest.raises(ParameterError, match="error"):
        learner([sampled(turn, 5) for turn in TURNS], error=0.1)
    with pytest.raises(RewardError, match=r"reward\[3\].*state \[0.75\]"):
        Anchored(models=[stay], grid=box, actions=[0.0], reward=lambda s, a: 2 * s[:, 0], horizon=2, episodes=3)


@pytest.mark.parametrize(
    "changes",
    [
        {"models": [1, 2]},
        {"models": driven(0.3, 5)},
        {"grid": None},
        {"reward": 3},
        {"reward": lambda s, a: "much"},
        {"reward": lambda s, a: 1.0},
        {"actions": "left"},
        {"agent": None},
        {"agent": UCRLVTR},
    ],
)
def test_what_is_no_system_is_refused_by_name(changes: dict[str, Any]) -> None:
    (name,) = changes
    with pytest.raises(InvalidInput, match=name):
        learner(**{"models": [driven(0.3, 5)], **changes})


def test_what_is_no_state_is_refused_and_changes_nothing() -> None:
    agent = learner([driven(turn, 5) for turn in TURNS])
    agent.begin([0.0])
    none: list[Any] = ["here", ["x"], [1j], {}, None]
    for bad in none:
        with pytest.raises(ShapeError, match="next_state"):
            agent.record(bad)
        with pytest.raises(ShapeError, match="state"):
            agent.begin(bad)
    assert agent.episode == agent.rows == 0
    agent.record([0.1])
