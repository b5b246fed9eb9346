from typing import Any

import numpy as np
import pytest

from occamrl.report.data import MOST_EPOCHS, MOST_ROWS, MOST_SEEDS, Cell, Group, decisions, groups, lock_in, walk
from tests.report.synthetic import KINDS, records


def cell(*facts: dict[str, Any], seed: int = 0, lengths: int = 10) -> Cell:
    rows = [{"epoch": i, "episodes": lengths, "facts": fact, "phase": i} for i, fact in enumerate(facts, 1)]
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
    runs = [
        cell({"chosen": 1}, {"chosen": 2}, {"chosen": 2}, seed=0),
        cell({"chosen": 1}, {"chosen": 1}, seed=1),
    ]
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


def test_made_up_selectors_settle_where_they_were_made_to() -> None:
    for group in groups(records(problems=["p"], kinds=KINDS[1:3], seeds=6)):
        found = decisions(group)
        assert found is not None
        assert found["settled"]["epoch"][1] == 4
        assert found["settled"]["final"][0] == [{"chosen": "2", "active": "{0, 1, 2}"}[found["kind"]], 6]
