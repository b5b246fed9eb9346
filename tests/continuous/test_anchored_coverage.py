"""The promises of agents on a box, counted over 400 runs: confidence sets hold although integrals are approximate.

Short runs, counted when the promise was broken after some episode; the exact binomial test at level 0.0001 rejects a
true promise with at most that probability. The negative controls take the same integrals for exact and must be
rejected by the same test. The case is small (five anchors on a circle, two steps) so that 400 runs take seconds.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from occamrl.continuous.discretise import anchored
from occamrl.runs.anchored import Anchored
from occamrl.selectors.arl_lin import ARLLin
from tests.continuous.circle import DELTA, THETA, TURNS, Careless, driven, episode, grid, holds, learner, sampled

LEVEL, RUNS, EPISODES = 1e-4, 400, 10
CASES: dict[str, tuple[Any, int]] = {
    "400 draws": (sampled, 400),
    "one draw": (sampled, 1),
    "20 nodes": (driven, 20),
    "one node": (driven, 1),
}


@cache
def rule_error(nodes: int) -> float:
    """Return the largest total variation error of a candidate's law over the anchors, against 100 nodes."""
    states, action, worst = np.linspace(-np.pi, np.pi, 101)[:, None], np.ones(1), 0.0
    for turn in TURNS:
        fine, coarse = (anchored(driven(turn, n), grid(5), states, action)[0] for n in (100, nodes))
        worst = max(worst, 0.5 * float(abs(fine - coarse).sum(axis=1).max()))
    return min(1.0, worst)


def build(name: str, kind: type[Anchored] = Anchored, **changes: Any) -> Anchored:
    make, size = CASES[name]
    error = rule_error(size) if make is driven and kind is Anchored else 0.0
    options: dict[str, Any] = {"grid": grid(5), "horizon": 2, "episodes": EPISODES, "error": error, **changes}
    return learner([make(turn, size) for turn in TURNS], kind=kind, **options)


def broken(agent: Anchored, keeps: Any, test_seed: int, runs: int, episodes: int) -> int:
    """Return in how many runs a promise was broken after some episode."""
    count = 0
    for seed in range(runs * test_seed, runs * (test_seed + 1)):
        mine, rng = agent.fresh(seed), np.random.default_rng(seed)
        for _ in range(episodes):
            episode(mine, rng)
            if not keeps(mine):
                count += 1
                break
    return count


def p_value(count: int, runs: int) -> float:
    return float(binom.sf(count - 1, runs, DELTA))


@pytest.mark.parametrize(
    ("name", "runs"), [("400 draws", RUNS), ("20 nodes", RUNS), ("one draw", 50), ("one node", 50)]
)
def test_the_ellipsoid_holds_theta(name: str, runs: int, test_seed: int) -> None:
    assert p_value(broken(build(name), holds, test_seed, runs, EPISODES), runs) > LEVEL


@pytest.mark.parametrize("name", ["one draw", "one node"])
def test_errors_that_are_not_carried_void_the_promise(name: str, test_seed: int) -> None:
    assert p_value(broken(build(name, kind=Careless), holds, test_seed, 15, 200), 15) < LEVEL


def selection_holds(agent: Anchored) -> bool:
    """Say whether the set that plans holds the truth, or lacks a true candidate; and the norm bound is none too small.

    The norm bound of an exploitation phase is read from the active candidates: it is promised where they hold the
    truth. The bound that is carried over is promised always.
    """
    phase, state = agent.walk.phase, agent.walk.state.planning
    active = list(phase.facts["active"])  # type: ignore[call-overload]  # a fact is any plain data
    carried, norm = agent.walk.memory["inner"]["norm_bound"], float(np.linalg.norm(THETA))
    if carried < norm * (1.0 - 1e-9):
        return False
    if np.delete(THETA, active).any():
        return True
    learner = phase.learner.planning  # type: ignore[attr-defined]  # an InexactLearner
    if learner.norm_bound < norm * (1.0 - 1e-9):
        return False
    gap, d = state.theta - THETA[active], len(active)
    inverse = state.factor.reshape(d, d) @ state.factor.reshape(d, d).T
    return bool(gap @ np.linalg.solve(inverse, gap) <= agent._width**2 * (1.0 + 1e-9))


def test_selection_by_dimension_and_norm_keeps_its_promise(test_seed: int) -> None:
    agent = build("20 nodes", agent=ARLLin, norm_bound=4.0)
    assert p_value(broken(agent, selection_holds, test_seed, 200, EPISODES), 200) > LEVEL


def test_selection_that_takes_a_draw_for_exact_breaks_it(test_seed: int) -> None:
    agent = build("one draw", kind=Careless, agent=ARLLin, norm_bound=4.0)
    assert p_value(broken(agent, selection_holds, test_seed, 15, 200), 15) < LEVEL
