from __future__ import annotations

import numpy as np
import pytest

from benchmarks.simulator_cases import PAIR, currents, uniform_currents
from occamrl.analysis.supports import Supports, dependences, directions, possible_rows, supports
from occamrl.errors import InvalidInput
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
from occamrl.models.simulators import Simulators
from occamrl.problems.mdp import FiniteMDP
from occamrl.running.run import run
from tests import cases

TRUE = tuple(str(j + 1) for j in PAIR)


def report_of(kernels: list[np.ndarray], mdp: FiniteMDP, episodes: int, seed: int = 0) -> Supports:
    sims = Simulators(kernels)
    agent = UCRLVTRLin(features=sims.features, norm_bound=1.0)
    return supports(run(agent, mdp, episodes=episodes, seed=seed, progress=False), sims)


def test_the_pair_among_twelve_currents_is_named(test_seed: int) -> None:
    case = currents()
    early, late = (report_of(case.kernels, case.mdp, episodes, test_seed) for episodes in (64, 4_000))
    assert any(set(each.members) <= set(TRUE) for each in early.sets)  # compatible, among others
    assert early.next_exclusion is not None
    assert [each.members for each in late.sets] == [TRUE]
    assert late.necessary == TRUE
    assert late.sets[0].weights == pytest.approx([0.6, 0.4], abs=0.1)
    assert late.next_exclusion is None
    assert "4, 9 (in every set that explains the data)" in str(late)
    assert "one set remains" in str(late)
    assert late.table().num_rows == 1


def test_currents_of_rank_two_are_said_to_be_so() -> None:
    case = uniform_currents()
    report = report_of(case.kernels, case.mdp, 2_000)
    assert report.rank == 2
    assert report.directions.dependent == 10
    # .6 of strength 3/11 and .4 of 8/11 is 5/11: between the sixth simulator and itself, so one simulator is enough
    assert ("6",) in [each.members for each in report.sets]
    twins = [each for each in report.sets if each.kernel == report.sets[1].kernel]
    assert len(twins) > 10
    text = str(report)
    assert "have rank 2 (to 9 digits): of 11 differences only 1 can be learned, from any data" in text
    assert "fit with one and the same kernel, for ever" in text


def test_the_estimated_error_widens_what_is_compatible() -> None:
    case = currents()

    def simulate(s: int, a: int, rng: np.random.Generator) -> int:
        return int(rng.choice(8, p=case.kernels[PAIR[0]][s, a]))

    candidates = [simulate if j == PAIR[0] else kernel for j, kernel in enumerate(case.kernels)]
    sims = Simulators(candidates, draws=400)
    result = run(UCRLVTRLin(features=sims.features, norm_bound=1.0), case.mdp, episodes=500, seed=1, progress=False)
    carried, ignored = supports(result, sims), supports(result)
    assert carried.error == sims.error(0.025) > 0.0
    assert carried.allowance > ignored.allowance + 2.0 * 500 * 32 * carried.error**2
    assert any(set(each.members) <= set(TRUE) for each in carried.sets)
    assert "estimated" in str(carried)
    with pytest.raises(InvalidInput, match="weights"):  # weights below 0 would add the errors up
        supports(result, sims, weights="free")


def test_directions_are_counted_by_fate() -> None:
    # four simulators: the fourth is half of the first and half of the second; rows never tell the third
    stack = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.5, 0.5, 0.0]]).T
    rank, found = dependences(stack)
    assert rank == 3
    assert len(found) == 1
    assert stack[:, list(found[0].others)] @ found[0].weights == pytest.approx(stack[:, found[0].simulator])
    possible = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]) @ stack
    seen = 10.0 * possible[:1].T @ possible[:1]
    kinds = directions(seen, rank, possible, allowance=2.0)
    assert kinds == (1, 0, 1, 0, 1)  # resolved, weak, never excited, blind, dependent: three directions in all
    assert directions(0.01 * seen, rank, possible[:1], allowance=2.0) == (0, 1, 0, 1, 1)


def test_possible_rows_are_those_of_a_loop() -> None:
    problem = cases.mixture(5)
    values = np.random.default_rng(1).random((problem.mdp.horizon + 1, 4))
    values[-1] = 0.0
    rows = []
    support = (problem.phi != 0.0).any(axis=3)
    for h in range(problem.mdp.horizon):
        for s in range(4):
            for a in range(2):
                target = values[h + 1][support[s, a]]
                low, high = target.min(), target.max()
                if high > low:
                    weighted = (target - 0.5 * (low + high)) / (high - low)
                    rows.append(weighted @ problem.phi[s, a][support[s, a]])
    found = possible_rows(problem.features, problem.mdp.known, values)
    assert found == pytest.approx(np.array(rows), abs=1e-12)


def test_a_truth_beyond_the_simulators_leaves_no_mixture_but_free_weights() -> None:
    rng = np.random.default_rng(0)
    truth, even = rng.dirichlet(np.full(4, 0.3), size=(4, 2)), np.full((4, 2, 4), 0.25)
    kernels = [0.5 * truth + 0.5 * even, even]  # the truth is 2 of the first less 1 of the second
    mdp = FiniteMDP(transition=truth, reward=rng.random((4, 2)), horizon=10)
    agent = UCRLVTRLin(features=Simulators(kernels).features, norm_bound=3.0)
    result = run(agent, mdp, episodes=2_000, progress=False)
    proper, free = supports(result), supports(result, weights="free")
    assert not proper.sets
    assert "no mixture of these simulators explains the data" in str(proper)
    assert free.sets[0].weights == pytest.approx([2.0, -1.0], abs=0.2)


def test_what_is_no_run_on_simulators_is_refused() -> None:
    problem = cases.mixture(1)
    plain = UCRLVTRLin(features=problem.features, norm_bound=1.0, weights="none", radius="unweighted")
    result = run(plain, problem.mdp, episodes=3, progress=False)
    with pytest.raises(InvalidInput, match="range weights"):
        supports(result)
    statistics = LinearStatistics(np.eye(2).ravel(), np.zeros(2), 5)
    with pytest.raises(InvalidInput, match="statistics alone"):
        supports(statistics)
    with pytest.raises(InvalidInput, match="source"):
        supports("run")  # type: ignore[arg-type]  # wrong on purpose
    learned = run(UCRLVTRLin(features=problem.features, norm_bound=1.0), problem.mdp, episodes=3, progress=False)
    strangers = np.random.default_rng(0).dirichlet(
        np.ones(problem.mdp.states), size=(problem.features.dimension, problem.mdp.states, problem.mdp.actions)
    )
    with pytest.raises(InvalidInput, match="other kernels"):
        supports(learned, Simulators(list(strangers)))
