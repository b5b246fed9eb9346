"""Selection on a box: where the box is a finite problem, every selector decides and acts as it does on that problem."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from occamrl.contracts import Floats
from occamrl.errors import OccamRLError, ParameterError
from occamrl.families.features import FeatureMap
from occamrl.families.linear import LinearFamily
from occamrl.families.linear_ladder import LinearLadder
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.learners.uniform_random import UniformRandom
from occamrl.runs.anchored import Anchored
from occamrl.runs.interaction import Interaction
from occamrl.selectors.arl_gen import ARLGen
from occamrl.selectors.arl_lin import ARLLin
from occamrl.selectors.arl_lin_dim import ARLLinDim, union_level
from occamrl.selectors.arl_lin_norm import ARLLinNorm
from tests.continuous.circle import (
    SHARES,
    SHIFTS,
    TURNS,
    WEIGHTS,
    driven,
    episode,
    jumping,
    learner,
    sampled,
    start,
)

HORIZON = 4


def pay(states: Floats, action: Floats) -> Floats:
    return np.asarray(0.5 + 0.4 * np.cos(states[:, 0] - 0.4) + 0.05 * (action[0] > 0.0))


def ladder(features: FeatureMap, norm_bound: float, sizes: tuple[int, ...] = (2, 3, 4), **options: Any) -> ARLGen:
    """Return ARL-GEN on mixtures of the first two candidates, of three, of all."""
    rungs = [LinearFamily(features=features, norm_bound=norm_bound, coordinates=range(n)) for n in sizes]
    return ARLGen(ladder=LinearLadder(rungs), **options)


AGENTS: dict[str, Any] = {
    "base": UCRLVTRLin,
    "dim": ARLLinDim,
    "dim, paper": partial(ARLLinDim, rule="paper", data="fresh", initial_episodes=4, growth=4.0),
    "norm": partial(ARLLinNorm, initial_episodes=4),
    "norm, fresh": partial(ARLLinNorm, initial_episodes=4, data="fresh"),
    "both": ARLLin,
    "ladder": ladder,
}


def jumper(agent: Any, **changes: Any) -> Anchored:
    options: dict[str, Any] = {"actions": [1.0, -1.0], "reward": pay, "horizon": HORIZON, "replan": 0.0, **changes}
    return learner([jumping(j) for j in range(4)], agent=agent, norm_bound=2.0, **options)


def jump(rng: np.random.Generator) -> int:
    """Return by how many cells the system jumps: a mixture of the second and the fourth candidate."""
    j = rng.choice(4, p=WEIGHTS)
    return int(rng.choice(SHIFTS[j], p=SHARES[j]))


@pytest.mark.parametrize("name", AGENTS)
def test_where_the_box_is_a_finite_problem_agents_do_the_same(name: str) -> None:
    box = jumper(AGENTS[name])
    table = Interaction(box.agent, box.known, seed=0)
    rng, states = np.random.default_rng(3), box.grid.vertices
    for _ in range(30):
        s = int(rng.integers(8))
        box.begin(states[s])
        table.begin(s)
        assert box.planned_value(states[s]) == pytest.approx(table.planned_value(s), abs=1e-9)
        for _ in range(HORIZON):
            a = box.act()
            assert a == table.act()
            after = (s + (1, -1)[a] * jump(rng)) % 8
            reward = float(box.known.base_reward[s, a])
            box.record(states[after], reward)
            table.record(reward, after)
            s = after
    mine, theirs = box.walk.rows, table.walk.rows
    assert len(mine) == len(theirs)
    assert (len(mine) > 1) == (name != "base")
    for one, other in zip(mine, theirs, strict=True):
        # no pairs (s, a) to fit one by one on a box; with few rows the weakest direction is one of several
        for fact in set(one) - {"regret", "misfit", "outside", "weakest"}:
            assert (one[fact] is None) == (other[fact] is None)
            if one[fact] is not None:
                assert one[fact] == pytest.approx(other[fact], abs=1e-7), fact


def test_selection_finds_the_candidate_that_is_true() -> None:
    models: Any = [driven(turn, 10, 0.3) for turn in TURNS]
    agent, rng = learner(models, agent=ARLLinDim, actions=[1.0, -1.0]), np.random.default_rng(0)
    for _ in range(150):
        state = start(agent, rng)
        for _ in range(agent.horizon):
            state = state + TURNS[1] * agent.actions[agent.act()] + 0.3 * rng.normal(size=1)
            agent.record(state)
    decided = agent.phases.to_pylist()
    assert [row["active"] for row in decided if row["label"] == "exploitation"][-1] == [1]
    assert sum(row["episodes"] for row in decided) == 150


def test_a_selector_decides_at_a_level_that_pays_for_the_errors() -> None:
    agent, rng = learner([sampled(turn, 50) for turn in TURNS], agent=ARLLinDim), np.random.default_rng(0)
    levels = []
    for _ in range(30):
        before, errors = len(agent.walk.rows), agent.squared_errors
        episode(agent, rng)
        if len(agent.walk.rows) > before:
            levels.append((agent.walk.rows[-1], agent.squared_errors))
    assert len(levels) > 3
    assert errors > 0.0
    c = agent.temperature
    for row, squared in levels:
        level = 0.15 * np.exp(-2.0 * c * squared / (1.0 - c))  # half of 0.3, the other half is for the draws
        assert row["level"] == pytest.approx(union_level(level, 3, len(row["active"])))
    agent.begin([0.0])
    seen, m = agent.seen, len(agent.walk.phase.facts["active"])  # type: ignore[arg-type]  # a fact is any plain data
    assert m == 3  # all candidates play: the radius in play is that of the formula, with the errors of this moment
    sigma = np.eye(3) + c * seen.gram
    spent = c * agent.squared_errors / (1.0 - c)
    beta = 0.25 * (np.linalg.slogdet(sigma)[1] + 2.0 * np.log(1.0 / union_level(0.15, 3, 3))) + spent + 1.0
    assert agent._width**2 == pytest.approx(beta)
    state = agent.walk.state.planning
    np.testing.assert_allclose(state.theta, np.linalg.solve(sigma, c * seen.xy))


def test_agents_without_a_promise_on_a_box_are_refused() -> None:
    models: Any = [jumping(j) for j in range(4)]
    for agent, told in (
        (partial(UCRLVTRLin, radius="paper"), "radius"),
        (partial(ARLLinDim, kernel="per_step"), "kernel"),
        (partial(ARLLinNorm, weights="none"), "weights"),
        (lambda **_: UniformRandom(), "agent"),
        (lambda **_: 3, "agent"),
    ):
        with pytest.raises(ParameterError, match=told):
            learner(models, agent=agent, norm_bound=2.0)
    with pytest.raises(ParameterError, match="names"):
        learner(models, names=["one"])


def test_errors_too_large_to_decide_anything_are_named(tmp_path: Path) -> None:
    agent, rng = learner([sampled(turn, 1) for turn in TURNS], agent=ARLLinDim, episodes=1), np.random.default_rng(0)
    agent.temperature = agent.walk.selector.temperature = 0.999  # type: ignore[attr-defined]  # far from a good choice
    for _ in range(3):
        episode(agent, rng)
    with pytest.raises(OccamRLError, match="finer rules, more draws"):
        episode(agent, rng)  # the fourth ends the first phase
    known = agent.theta, agent.rows, agent.episode
    for _ in range(2):  # it stays where it was, and says so again
        with pytest.raises(OccamRLError, match="finer rules, more draws"):
            episode(agent, rng)
    assert (agent.theta == known[0]).all()
    assert (agent.rows, agent.episode, agent.walk.remaining) == (*known[1:], 0)
    agent.save(tmp_path / "a.npz")
    again = agent.fresh(agent.seed)
    again.load(tmp_path / "a.npz")
    assert (again.theta == known[0]).all()
    with pytest.raises(OccamRLError, match="finer rules, more draws"):
        again.begin([0.0])
