"""ARL-GEN where the largest class is linear or an aggregation: the right rung, the test's level, a truth outside."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import occamrl as orl
from occamrl.checks import check_selector
from occamrl.models.linear import AggregationFamily
from occamrl.problems.classic import RiverZones
from occamrl.problems.mixtures import MemoryWalk

RIVER = RiverZones(states=6, horizon=12, zones=3, partitions=(1, 3, 6), left_reward=0.03, seed=4)
WALK = MemoryWalk(places=3, actions=2, horizon=6, order=1, seed=1)


@cache
def river_ladder(*zones: int) -> Any:
    """The classes of 1, 3 and 6 zones; 0 stands for two kernels of one zone."""
    rungs: list[Any] = []
    one = AggregationFamily(partition=RIVER.partition(1), moves=RIVER.moves)
    for number in zones:
        if number:
            rungs.append(AggregationFamily(partition=RIVER.partition(number), moves=RIVER.moves))
        else:
            rungs.append(
                orl.FiniteFamily([one.kernel(np.array([1.0, *law])) for law in ((0.1, 0.4, 0.5), (0.0, 0.5, 0.5))])
            )
    return orl.Ladder(rungs)


@cache
def memory_ladder() -> Any:
    return orl.Ladder([AggregationFamily(partition=WALK.partition(order), moves=WALK.moves) for order in range(3)])


def test_the_right_rung_of_an_aggregation_ladder_is_found() -> None:
    assert river_ladder(1, 3, 6).class_of(RIVER.mdp) == 2
    for options in ({}, {"test": "epoch"}, {"guard": True}):
        agent = orl.ARLGen(ladder=river_ladder(1, 3, 6), **options)
        phases = orl.run(agent, RIVER, episodes=3000, seed=1, progress=False).phases.to_pylist()
        assert phases[0]["chosen"] == 1
        assert phases[-1]["chosen"] == 2
        assert not any(row["outside"] for row in phases)
        audits = sum(row["episodes"] for row in phases if "audit" in row["label"])
        if "guard" in options:
            assert 0 < audits <= np.sqrt(3000)
        else:
            assert audits == 0


def test_the_order_of_memory_is_found() -> None:
    phases = orl.run(orl.ARLGen(ladder=memory_ladder()), WALK, episodes=3000, progress=False).phases.to_pylist()
    assert [row["chosen"] for row in phases][-1] == 2


def test_a_finite_class_below_an_aggregation_is_played_and_left() -> None:
    agent = orl.ARLGen(ladder=river_ladder(0, 1, 3, 6))
    whole = orl.run(agent, RIVER, episodes=3000, seed=1, progress=False)
    first = orl.run(agent, RIVER, episodes=7, seed=1, progress=False)  # in the middle of a phase of the finite class
    rest = orl.run(agent, RIVER, episodes=2993, progress=False, continue_from=first)
    assert whole.regret.tobytes() == rest.regret.tobytes()
    phases = whole.phases.to_pylist()
    assert phases[0]["label"] == "F_1"
    assert phases[-1]["chosen"] == 3


def test_the_contract_is_kept_with_the_guard() -> None:
    check_selector(orl.ARLGen(ladder=river_ladder(1, 3, 6), guard=True), RIVER.mdp, episodes=30)


def test_the_papers_threshold_is_that_of_the_formula() -> None:
    agent = orl.ARLGen(ladder=river_ladder(1, 3, 6), rule="paper")
    for row in orl.run(agent, RIVER, episodes=126, progress=False).phases.to_pylist()[1:]:
        i = row["epoch"]
        assert row["threshold"] == pytest.approx(row["statistics"][-1] + np.sqrt(i) / 2 ** (i / 2))


def test_a_truth_outside_the_largest_class_is_reported() -> None:
    outside = orl.ARLGen(ladder=river_ladder(1))
    assert orl.run(outside, RIVER, episodes=4000, progress=False).phases["outside"].to_pylist()[-1]


def rejections(runs: int, **options: Any) -> tuple[int, int]:
    """Count runs that left the class of the truth, and those that said that it is outside F_M."""
    agent = orl.ARLGen(ladder=memory_ladder(), delta=0.1, test="epoch", **options)
    left = outside = 0
    for seed in range(runs):
        phases = orl.run(agent, WALK, episodes=254, seed=seed, progress=False).phases
        left += max(phases["chosen"].to_pylist()) > 2
        outside += any(phases["outside"].to_pylist())
    return left, outside


def test_the_right_class_is_rejected_in_at_most_delta_of_runs() -> None:
    # delta = 0.1; the probability of more than this many under that rate is below 1e-4.
    most = binom.ppf(1 - 1e-4, 30, 0.1)
    left, outside = rejections(30)
    assert left <= most
    assert outside <= most


def test_negative_control_a_tiny_threshold_rejects_the_right_class() -> None:
    assert rejections(12, slack=0.05)[0] > binom.ppf(1 - 1e-4, 12, 0.1)


def test_the_preflight_of_an_aggregation_ladder() -> None:
    ladder = river_ladder(1, 3, 6)
    report = orl.preflight(ladder, RIVER.mdp.known, episodes=3000)
    assert report.classes == ["1 blocks", "3 blocks", "6 blocks"]
    assert len(report.rejection) == 2
    assert "3 blocks" in str(report)
    assert report.selector().guard == (report.remedy == "guard")
    # The rung is in fact left within a few times what was predicted for a typical truth.
    phases = orl.run(orl.ARLGen(ladder=ladder), RIVER, episodes=3000, seed=1, progress=False).phases.to_pylist()
    assert phases[-1]["since"] <= 30 * report.rejection[0]


def test_a_class_that_sees_nothing_is_blind() -> None:
    """Action 0 leads nowhere and pays a little; what action 1 does is not seen by a class that says it is worthless."""
    moves = np.array([[[0, -1], [0, 1]], [[0, -1], [0, 1]]])
    worthless = orl.FiniteFamily([[[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]]])
    ladder: Any = orl.Ladder([worthless, AggregationFamily(partition=[0, 1], moves=moves)])
    mdp = orl.FiniteMDP(
        transition=[[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]], reward=[[0.1, 0.0], [0.0, 1.0]], horizon=6
    )
    report = orl.preflight(ladder, mdp.known, episodes=500)
    agent = report.selector()
    assert report.blind
    assert agent.guard
    stuck = orl.run(orl.ARLGen(ladder=ladder), mdp, episodes=500, progress=False)
    saved = orl.run(agent, mdp, episodes=500, progress=False)
    assert stuck.phases["chosen"].to_pylist()[-1] == 1  # for ever: regret is linear
    assert saved.phases["chosen"].to_pylist()[-1] == 2
    assert saved.total_regret < 0.5 * stuck.total_regret
