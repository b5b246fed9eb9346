"""ARL-LIN(dim): its schedule, pooled rows, and what happens when the support is wrong."""

from __future__ import annotations

import dataclasses
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.problems.mixtures import SparseMixture
from occamrl.protocols import PhaseOutcome
from occamrl.running.result import Result
from occamrl.running.run import run
from occamrl.selectors.arl_lin import ARLLinDim, union_level
from occamrl.selectors.references import largest, oracle
from tests.cases import drawn, environment_uniforms

PROBLEM = SparseMixture(states=8, actions=3, horizon=5, dimension=8, nonzero=3, gamma=0.5, seed=0)
FEATURES, BOUND = FeatureMap(PROBLEM.phi), float(np.linalg.norm(PROBLEM.theta))


@pytest.mark.parametrize(
    ("changes", "exploitation", "estimation", "why"),
    [
        ({}, [4, 8, 16], [2, 3, 3], "doubling, and 2 * 1.05^i rounded up"),
        ({"growth": 4.0, "estimation_growth": 3.0}, [4, 16, 64], [2, 6, 18], "both are free"),
        ({"initial_episodes": 17, "growth": 36, "estimation_growth": 6}, [17, 612, 22_032], [5, 30, 180], "the paper"),
    ],
)
def test_lengths(changes: dict[str, Any], exploitation: list[int], estimation: list[int], why: str) -> None:
    selector = ARLLinDim(features=FEATURES, norm_bound=BOUND, **changes)
    assert [selector.exploitation_length(i) for i in range(3)] == exploitation, why
    assert [selector.estimation_length(i) for i in range(3)] == estimation, why


def test_estimation_stretches_while_the_support_moves_and_never_beyond_the_root_of_the_epoch() -> None:
    selector = ARLLinDim(features=FEATURES, norm_bound=BOUND, estimation_growth=1.0)
    assert [selector.estimation_length(10, stretched) for stretched in (1, 2, 8, 1000)] == [2, 4, 16, 64]


def rows_from_scratch(selector: ARLLinDim, episodes: int, seed: int) -> tuple[Result, LinearStatistics]:
    """Play episode by episode; return the last result and a regression that takes in one row at a time."""
    ended: list[Any] = []

    class Watched(ARLLinDim):
        def finish_phase(self, known: Any, memory: dict[str, Any], phase: Any, outcome: PhaseOutcome) -> None:
            ended.append(outcome.state)
            super().finish_phase(known, memory, phase, outcome)

    watched = Watched(**vars(selector))
    mdp, d = PROBLEM.mdp, FEATURES.dimension
    gram, xy = np.zeros((d, d)), np.zeros(d)
    uniforms = environment_uniforms(seed, episodes, mdp.horizon)
    result: Result | None = None
    for episode in range(episodes):
        phases = len(ended)
        result = run(watched, mdp, episodes=1, seed=seed, continue_from=result, progress=False)
        played = ended[-1] if len(ended) > phases else result.state  # with the plan of this episode
        s = int(np.searchsorted(mdp.truth.initial_cumulative[0], uniforms[episode, 0], side="right"))
        for h in range(mdp.horizon - 1):
            a, v = int(played.policy[h, s]), played.values[h + 1]
            s2, _ = drawn(mdp, s, a, uniforms[episode, h + 1])
            if np.ptp(v) > 0.0:
                scaled = (v - 0.5 * (v.min() + v.max())) / np.ptp(v)
                x = scaled @ PROBLEM.phi[s, a]
                gram += np.outer(x, x)
                xy += scaled[s2] * x
            s = s2
    assert result is not None
    return result, LinearStatistics(gram.ravel(), xy, episodes)


def test_pooled_statistics_are_the_regression_on_all_rows() -> None:
    result, expected = rows_from_scratch(ARLLinDim(features=FEATURES, norm_bound=BOUND), 150, seed=2)
    learner = result.walk.phase.learner
    assert isinstance(learner, UCRLVTRLin)
    assert len({tuple(row["active"]) for row in result.phases.to_pylist()}) > 1  # a part and the whole have played
    pooled = learner.statistics(PROBLEM.mdp.known, result.state)
    assert pooled.episodes == 150
    np.testing.assert_allclose(pooled.gram, expected.gram, atol=1e-9)
    np.testing.assert_allclose(pooled.xy, expected.xy, atol=1e-9)


def test_a_restricted_plan_reads_its_blocks() -> None:
    """Planning with D on pooled rows equals planning with features restricted to D on the blocks of those rows."""
    known = PROBLEM.mdp.known
    full = UCRLVTRLin(features=FEATURES, norm_bound=BOUND)
    rows = full.statistics(known, run(full, PROBLEM.mdp, episodes=200, seed=1).state)
    active = (0, 3, 5)
    wide = dataclasses.replace(full, active=active)
    narrow = dataclasses.replace(full, features=FEATURES.restrict(active))
    one, other = wide.begin(known, rows), narrow.begin(known, rows.restrict(active))
    for name in ("theta", "factor", "growth"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.xy.size == 8
    assert other.xy.size == 3


def with_rows(theta: Any, weight: float) -> LinearStatistics:
    """Return rows that show ``theta``, every coordinate alike."""
    d = FEATURES.dimension
    return LinearStatistics((weight * np.eye(d)).ravel(), weight * np.asarray(theta, dtype=np.float64), 10)


def test_a_dropped_coordinate_comes_back() -> None:
    """Rows that deny the truth are put in first; the run must act all the same, and unlearn them."""

    class Misled(ARLLinDim):
        def start(self, known: Any) -> dict[str, Any]:
            wrong = np.zeros(8)
            wrong[0] = 1.0
            return {**super().start(known), "epoch": 1, "statistics": with_rows(wrong, 15.0)}

    result = run(Misled(features=FEATURES, norm_bound=BOUND), PROBLEM.mdp, episodes=6_000, seed=0)
    sets = [row["active"] for row in result.phases.to_pylist() if row["label"] == "exploitation"]
    assert sets[0] == [0]  # the true support was dropped
    assert set(PROBLEM.support) <= set(sets[-1])  # and is back
    assert result.regret[-1] < 0.01


def test_it_finds_the_support_and_beats_the_full_learner(test_seed: int) -> None:
    """Error rate: none in 200 seeds of this problem when the test was written."""
    selector = ARLLinDim(features=FEATURES, norm_bound=BOUND)
    found = run(selector, PROBLEM.mdp, episodes=20_000, seed=test_seed)
    full = run(largest(selector), PROBLEM.mdp, episodes=20_000, seed=test_seed)
    best = run(oracle(selector, PROBLEM.theta), PROBLEM.mdp, episodes=20_000, seed=test_seed)
    assert found.phases["active"].to_pylist()[-2:][0 if len(found.phases) % 2 == 0 else 1] == PROBLEM.support.tolist()
    assert best.total_regret < found.total_regret < best.total_regret + 0.6 * (full.total_regret - best.total_regret)


def test_nothing_is_dropped_where_everything_matters() -> None:
    """Negative control. The price is log(2)/2 in the squared radius, and a plan at the start of each phase."""
    problem = SparseMixture(states=8, actions=3, horizon=5, dimension=6, nonzero=6, gamma=0.5, seed=3)
    selector = ARLLinDim(features=FeatureMap(problem.phi), norm_bound=float(np.linalg.norm(problem.theta)))
    results = [run(selector, problem.mdp, episodes=20_000, seed=seed) for seed in range(5)]
    assert all(len(active) == 6 for result in results for active in result.phases["active"].to_pylist())
    full = sum(run(largest(selector), problem.mdp, episodes=20_000, seed=seed).total_regret for seed in range(5))
    assert sum(result.total_regret for result in results) < 1.25 * full


def test_levels_of_all_sets_that_can_fail_add_up_to_delta() -> None:
    """A set that misses a part of the support promises nothing; the others are counted one by one."""
    for d, s in ((1, 1), (2, 1), (5, 1), (5, 2), (5, 5), (8, 3)):
        sets = (size for size in range(s, d + 1) for _ in combinations(range(s, d), size - s))
        failing = sum(union_level(0.05, d, size) for size in sets)
        assert failing == pytest.approx(0.05 * (0.5 + 1.0 / (s + 1) - 1.0 / (d + 1)))
        assert failing <= 0.05
    assert union_level(0.05, 5000, 2500) > 0.0


def test_pooled_phases_play_at_those_levels() -> None:
    d = FEATURES.dimension
    result = run(ARLLinDim(features=FEATURES, norm_bound=BOUND, delta=0.02), PROBLEM.mdp, episodes=3_000, seed=0)
    rows = result.phases.to_pylist()
    assert {len(row["active"]) for row in rows} >= {3, d}
    for row in rows:
        assert row["level"] == pytest.approx(union_level(0.02, d, len(row["active"])))
    assert union_level(0.02, d, d) == pytest.approx(0.01)  # the whole set is one event in either kind of phase
