import itertools
from dataclasses import replace

import numpy as np

from occamrl.report.data import POINTS, Cell, Group, grid, groups, mean_curve
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
