"""What a report is made of: groups and curves, statistics, and decisions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occamrl.protocols import Floats
from occamrl.report.data import (
    MOST_EPOCHS,
    MOST_ROWS,
    MOST_SEEDS,
    POINTS,
    Cell,
    Group,
    bands,
    decisions,
    describe,
    grid,
    groups,
    interquartile_mean,
    intervals,
    lock_in,
    mean_curve,
    paired,
    slope,
    summarise,
    walk,
)
from occamrl.seeding import stream
from tests.report.synthetic import KINDS, records


def test_cells_are_grouped_by_problem_and_agent_in_the_order_of_the_experiment() -> None:
    found = groups(records(seeds=3))
    assert [(group.problem, group.agent) for group in found] == [
        (problem, kind.label) for problem in ("Sparse mixture", "RiverSwim") for kind in KINDS
    ]
    assert all(group.seeds == [0, 1, 2] for group in found)


def test_the_order_of_cells_does_not_matter() -> None:
    made = records(seeds=3, episodes=500)
    shuffled = replace(made, cells=made.cells[::-1])
    ours = {(group.problem, group.agent): group for group in groups(shuffled)}
    for group in groups(made):
        other = ours[group.problem, group.agent]
        assert other.seeds == group.seeds
        assert [cell.phases for cell in other.cells] == [cell.phases for cell in group.cells]
        assert all((a.regret == b.regret).all() for a, b in zip(other.cells, group.cells, strict=True))


def test_the_mean_curve_is_the_mean_of_the_curves_and_lies_in_its_band(test_seed: int) -> None:
    regret = stream(test_seed, "regret").uniform(size=(5, 1_500)).cumsum(axis=1)
    cells = [Cell(seed, {}, np.arange(1, 1_501), row, []) for seed, row in enumerate(regret)]
    curve = mean_curve(Group("p", "a", cells))
    assert curve is not None
    assert np.allclose(curve["mean"], regret.mean(axis=0)[np.array(curve["episode"]) - 1])
    for less, more in itertools.pairwise(("smallest", "low", "mean", "high", "largest")):
        assert (np.array(curve[less]) <= np.array(curve[more])).all()


def test_runs_of_unequal_length_are_cut_at_the_shortest() -> None:
    def run(seed: int, last: int) -> Cell:
        episodes = np.arange(1, last + 1)
        return Cell(seed, {}, episodes, np.multiply(2.0, episodes, dtype=np.float64), [])

    curve = mean_curve(Group("p", "a", [run(0, 50), run(1, 80)]))
    assert curve is not None
    assert curve["episode"][-1] == 50
    assert np.allclose(curve["mean"], 2.0 * np.array(curve["episode"]))
    assert curve["low"] is None  # two seeds
    assert mean_curve(Group("p", "a", [])) is None


def test_a_grid_has_a_few_hundred_points_from_the_first_to_the_last_episode() -> None:
    for last in (1, 2, 99, 10**6):
        found = grid(last)
        assert (found[0], found[-1]) == (1, last)
        assert found.size <= POINTS
        assert (np.diff(found) > 0).all()


SCORES = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 100.0])


def test_summary_of_numbers_worked_out_by_hand() -> None:
    (found,) = summarise([SCORES])
    assert found["mean"] == pytest.approx(16.0)  # 128 / 8
    assert found["median"] == pytest.approx(4.5)
    assert found["iqm"] == pytest.approx(4.5)  # (3 + 4 + 5 + 6) / 4: the outlier is outside the middle half
    assert found["interval"][0] < 16.0 < found["interval"][1]


@pytest.mark.parametrize("seeds", [1, 2])
def test_with_one_or_two_seeds_there_is_no_interval(seeds: int) -> None:
    (found,) = summarise([SCORES[:seeds]])
    assert found["mean"] == SCORES[:seeds].mean()
    assert found["interval"] is None
    assert found["iqm_interval"] is None
    assert bands(np.ones((4, seeds)), np.mean) is None


def test_seeds_that_agree_give_an_interval_without_width() -> None:
    (ends,) = intervals([np.full(5, 3.25)], np.mean)
    assert ends == (3.25, 3.25)


def test_intervals_are_found_again_by_their_address_and_do_not_depend_on_the_rows_beside_them() -> None:
    first = intervals([SCORES], np.mean, "here")
    assert intervals([SCORES, SCORES[:4]], np.mean, "here")[0] == first[0]
    assert intervals([SCORES[:4], SCORES[::-1].copy(), SCORES], np.mean, "here")[2] == first[0]
    assert intervals([SCORES], np.mean, "there") != first


def test_interval_of_a_large_normal_sample_is_that_of_the_normal_approximation(test_seed: int) -> None:
    values = stream(test_seed, "normal").normal(10.0, 2.0, 400)
    (ends,) = intervals([values], np.mean)
    assert ends is not None
    half = 1.96 * values.std() / math.sqrt(values.size)
    # 999 resamples place each end within about 5 % of half a width (one standard error); 25 % is five of them.
    assert ends[0] == pytest.approx(values.mean() - half, abs=0.25 * half)
    assert ends[1] == pytest.approx(values.mean() + half, abs=0.25 * half)


def _coverage(ends: Floats) -> float:
    return float(((ends[0] <= 0.0) & (ends[1] >= 0.0)).mean())


def test_intervals_cover_the_truth_as_often_as_the_bootstrap_promises(test_seed: int) -> None:
    """With 20 normal seeds a bootstrap interval of nominal 95 % covers about 93 %: it uses 1.96 s/sqrt(n), not t.

    P(|t_19| <= 1.96 sqrt(19/20)) = 0.9287. Over 2,000 samples the standard error is 0.6 %; the bounds are 5 of them
    away (error below 1e-6), plus 1 % for what 999 resamples and BCa's correction change.
    """
    values = stream(test_seed, "coverage").normal(size=(2_000, 20))
    ends = bands(values, np.mean)
    assert ends is not None
    assert 0.888 < _coverage(ends) < 0.969
    middle = ends.mean(axis=0)
    assert _coverage(middle + 0.5 * (ends - middle)) < 0.75  # a band half as wide is found out


def test_means_by_sums_are_the_means_of_what_was_drawn() -> None:
    values = stream(0, "sums").gamma(0.5, size=(3, 9))  # skew, so that the jackknife's acceleration matters
    by_sums = bands(values, np.mean)
    one_by_one = bands(values, lambda drawn, axis: np.mean(drawn, axis=axis))
    assert by_sums is not None
    assert one_by_one is not None
    np.testing.assert_allclose(by_sums, one_by_one, rtol=1e-12)


def test_a_difference_is_taken_seed_by_seed_and_names_the_seeds_left_out() -> None:
    agent = {3: 10.0, 1: 5.0, 2: 7.0, 9: 1.0}
    baseline = {1: 6.0, 2: 9.0, 3: 13.0, 4: 0.0}
    (found,) = paired([(agent, baseline)])
    assert found is not None
    assert (found["pairs"], found["unpaired"]) == (3, [4, 9])
    assert found["mean"] == pytest.approx(-2.0)  # -1, -2, -3
    assert found["median"] == pytest.approx(-2.0)
    assert (found["less"], found["more"]) == (3, 0)
    assert -3.0 <= found["interval"][0] <= found["interval"][1] <= -1.0
    (back,) = paired([(baseline, agent)])
    assert back is not None
    assert (back["mean"], back["less"], back["more"]) == (2.0, 0, 3)
    assert paired([({1: 1.0}, {2: 1.0})]) == [None]


def test_common_random_numbers_sharpen_a_difference(test_seed: int) -> None:
    """Seeds of spread 10 shared by both agents, own noise of spread 0.1: the paired interval sees only the latter."""
    draw = stream(test_seed, "pairs")
    shared, seeds = draw.normal(0.0, 10.0, 12), range(12)
    agent = dict(zip(seeds, shared + 1.0 + draw.normal(0.0, 0.1, 12), strict=True))
    baseline = dict(zip(seeds, shared + draw.normal(0.0, 0.1, 12), strict=True))
    (found,) = paired([(agent, baseline)])
    (alone,) = intervals([np.array(list(agent.values()))], np.mean)
    assert found is not None
    assert alone is not None
    assert abs(found["mean"] - 1.0) < 0.3  # standard error 0.04: error below 1e-10
    assert 20.0 * (found["interval"][1] - found["interval"][0]) < alone[1] - alone[0]


@given(power=st.floats(0.1, 1.0), scale=st.floats(1e-3, 1e3), last=st.integers(200, 10**7), points=st.integers(12, 400))
def test_slope_of_a_power_is_the_power_however_the_curve_was_thinned(
    power: float, scale: float, last: int, points: int
) -> None:
    episodes = np.unique(np.geomspace(1, last, points).astype(np.int64))
    assert slope(episodes, scale * episodes.astype(np.float64) ** power) == pytest.approx(power, abs=1e-6)


def test_slope_is_that_of_the_last_tenfold_of_episodes() -> None:
    episodes = np.arange(1, 100_001)
    bent = np.where(episodes < 10_000, episodes / 100.0, np.sqrt(episodes))  # linear, then a square root
    assert slope(episodes, bent) == pytest.approx(0.5, abs=1e-6)


def test_a_curve_that_is_zero_has_no_slope() -> None:
    episodes = np.arange(1, 1_001)
    assert math.isnan(slope(episodes, np.zeros(1_000)))
    assert math.isnan(slope(episodes[:1], np.ones(1)))
    assert math.isnan(slope(episodes[:0], np.ones(0)))


def test_the_middle_half_of_one_two_and_four() -> None:
    assert interquartile_mean(np.array([5.0])) == 5.0
    assert interquartile_mean(np.array([1.0, 3.0])) == 2.0
    assert interquartile_mean(np.array([0.0, 1.0, 3.0, 50.0])) == 2.0


def cell(*facts: dict[str, Any], seed: int = 0, lengths: int = 10) -> Cell:
    rows = [
        {"epoch": i, "label": "epoch", "episodes": lengths, "facts": fact, "phase": i}
        for i, fact in enumerate(facts, 1)
    ]
    return Cell(seed, {}, np.empty(0, np.int64), np.empty(0), rows)


@pytest.mark.parametrize(
    ("chosen", "epoch", "episode", "unsettled"),
    [
        ([1, 1, 2, 2], 3, 21, 0),
        ([1, 2, 1, 2], 4, 31, 1),  # it came back to 2, but only just
        ([3, 3, 3], 1, 1, 0),
        ([2], 1, 1, 0),
        ([1, None, 2, None, 2], 3, 21, 0),  # phases that decide nothing are passed over
        *(([1, odd], 1, 1, 0) for odd in ("2", True, [1], float("inf"), {"a": 1})),  # no decisions
    ],
)
def test_lock_in_is_the_first_phase_of_the_last_unbroken_stretch(
    chosen: list[Any], epoch: int, episode: int, unsettled: int
) -> None:
    run = cell(*({"chosen": c} for c in chosen))
    found = lock_in(walk(run, "chosen"))
    assert (found.epoch, found.episode) == (epoch, episode)
    told = decisions(Group("p", "a", [run, cell({})]))
    assert told is not None
    assert (told["settled"]["unsettled"], told["settled"]["seeds"]) == (unsettled, 1)


def test_coordinates_are_a_set() -> None:
    found = lock_in(walk(cell({"active": [0, 1, 2]}, {"active": [2, 0]}, {"active": [0, 2]}), "active"))
    assert (found.epoch, found.decision) == (2, (0, 2))


def test_agents_without_decisions_have_none() -> None:
    assert decisions(Group("p", "a", [cell({}), cell({}, {"beta": 1.0})])) is None


def test_shares_are_over_the_seeds_that_reached_the_epoch() -> None:
    runs = [cell({"chosen": 1}, {"chosen": 2}, {"chosen": 2}, seed=0), cell({"chosen": 1}, {"chosen": 1}, seed=1)]
    found = decisions(Group("p", "a", runs))
    assert found is not None
    assert found["rows"] == [1, 2]
    assert found["share"] == [[1, 0.5, 0], [0, 0.5, 1]]
    assert found["reached"] == [2, 2, 1]
    assert found["choices"] == [[1, 2, 2], [1, 1, None]]
    assert found["settled"]["epoch"] == [1.5, 1, 2]  # seed 0 at epoch 2, seed 1 at epoch 1
    assert sorted(found["settled"]["final"]) == [["1", 1], ["2", 1]]


def test_the_statistic_is_the_median_over_seeds_and_empty_where_there_is_no_threshold() -> None:
    def facts(t: float, threshold: float | None) -> dict[str, Any]:
        return {"chosen": 1, "statistics": [t, 2 * t], "threshold": threshold}

    runs = [cell(facts(0.0, None), facts(t, 10 * t), seed=i) for i, t in enumerate([1.0, 2.0, 9.0])]
    found = decisions(Group("p", "a", runs))
    assert found is not None
    evidence = found["evidence"]
    assert evidence["names"] == [1, 2]
    assert evidence["lines"][1] == {"median": [None, 4], "low": [None, 2], "high": [None, 18]}
    assert evidence["threshold"]["median"] == [None, 20]


def test_an_estimate_counts_by_its_size() -> None:
    found = decisions(Group("p", "a", [cell({"active": [0], "estimate": [-0.5, 0.1], "threshold": 0.2})]))
    assert found is not None
    assert found["evidence"]["names"] == [0, 1]
    assert [line["median"] for line in found["evidence"]["lines"]] == [[0.5], [0.1]]


def test_norm_bounds_over_epochs() -> None:
    runs = [cell({"norm_bound": 2.0}, {"norm_bound": b}, seed=i) for i, b in enumerate([1.0, 1.5, 1.25])]
    found = decisions(Group("p", "a", runs))
    assert found is not None
    assert (found["median"], found["low"], found["high"]) == ([2, 1.25], [2, 1], [2, 1.5])
    assert found["settled"] is None


def test_very_many_epochs_coordinates_and_seeds_are_cut_and_counted() -> None:
    many = [cell(*({"active": list(range(200))} for _ in range(200)), seed=s) for s in range(MOST_SEEDS + 5)]
    found = decisions(Group("p", "a", many))
    assert found is not None
    assert len(found["epochs"]) == MOST_EPOCHS
    assert found["epochs_in_all"] == 200
    assert (found["epochs"][0], found["epochs"][-1]) == (1, 200)
    assert (len(found["rows"]), found["hidden"]) == (MOST_ROWS, 200 - MOST_ROWS)
    assert len(found["choices"]) == MOST_SEEDS


def played(agent: str, total: float, *facts: dict[str, Any], x: int = 1) -> Group:
    """Return a group of one run of 100 episodes; ``x`` is a parameter of its problem."""
    numbers = {"episodes": 100, "total_regret": total, "plans": 1, "pessimistic_episodes": 0, "wall_time": 1.0}
    about = {"agent": {"name": agent, "label": agent}, "problem": {"name": "P", "label": "p", "parameters": {"x": x}}}
    one = cell(*facts, lengths=100 // max(1, len(facts)))
    return Group(
        f"p, x = {x}",
        agent,
        [replace(one, manifest={**numbers, **about}, episodes=np.array([100]), regret=np.array([total]))],
    )


def test_the_headline_says_what_was_found_when_and_what_it_cost() -> None:
    facts = [
        {"active": active, "estimate": [1.0, 0.5, 0.0, 0.1], "threshold": 0.2} for active in ([0, 1, 2, 3], [0, 1])
    ]
    groups = [played("ARLLinDim", 20.0, *facts), played("largest", 220.0), played("oracle", 10.0)]
    (problem,) = describe(groups)["problems"]
    assert problem["headline"] == [
        "ARLLinDim keeps 2 of 4 features by episode 51 (median) and pays 20, 11 times less than the largest model, "
        "2 times that of the oracle."
    ]
    (worse,) = describe([played("ARLLinDim", 300.0, *facts), *groups[1:]])["problems"]  # honest when it did not pay
    assert "1.4 times that of the largest model" in worse["headline"][0]
    (plain,) = describe([played("Greedy", 5.0), played("Optimal", 0.0)])["problems"]
    assert plain["headline"] == ["Optimal has the least regret, 0 on average; next comes Greedy with 5."]


def test_regret_is_charted_against_every_number_that_is_swept_over() -> None:
    (chart,) = describe([played("Greedy", 2.0 * x, x=x) for x in (4, 1, 2)])["sweeps"]
    assert (chart["of"], chart["parameter"], chart["where"]) == ("problem", "x", "P")
    assert chart["lines"] == [{"name": "Greedy", "x": [1, 2, 4], "mean": [2, 4, 8], "low": None, "high": None}]


def test_classes_that_are_never_chosen_have_a_row() -> None:
    found = decisions(Group("p", "a", [cell({"chosen": 2, "statistics": [3.0, 1.0, 1.0], "threshold": 2.0})]))
    assert found is not None
    assert (found["rows"], found["share"]) == ([1, 2, 3], [[0], [1], [0]])


def test_made_up_selectors_settle_where_they_were_made_to() -> None:
    for group in groups(records(problems=["p"], kinds=KINDS[1:3], seeds=6)):
        found = decisions(group)
        assert found is not None
        assert found["settled"]["epoch"][1] == 4
        assert found["settled"]["final"][0] == [{"chosen": "2", "active": "{0, 1, 2}"}[found["kind"]], 6]
