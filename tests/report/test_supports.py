from __future__ import annotations

import numpy as np
import pytest

from benchmarks.simulator_cases import PAIR, currents, river, uniform_currents
from occamrl.analysis.supports import (
    LIKELIHOOD,
    VALUE,
    Counts,
    Supports,
    dependences,
    directions,
    likely_sets,
    possible_rows,
    supports,
)
from occamrl.errors import InvalidInput
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
from occamrl.models.simulators import Simulators
from occamrl.problems.mdp import FiniteMDP
from occamrl.running.run import run
from tests import cases

TRUE = tuple(str(j + 1) for j in PAIR)


def report_of(
    kernels: list[np.ndarray], mdp: FiniteMDP, episodes: int, seed: int = 0, evidence: str | None = VALUE
) -> Supports:
    sims = Simulators(kernels)
    agent = UCRLVTRLin(features=sims.features, norm_bound=1.0)
    return supports(run(agent, mdp, episodes=episodes, seed=seed, progress=False), sims, evidence=evidence)


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


def test_by_likelihood_the_pair_is_named_much_earlier_and_value_rows_are_told_of(test_seed: int) -> None:
    case = currents()
    report = report_of(case.kernels, case.mdp, 150, test_seed, None)
    assert report.evidence == LIKELIHOOD
    assert [each.members for each in report.smallest] == [TRUE]
    assert report.sets[0].weights == pytest.approx([0.6, 0.4], abs=0.2)
    assert report.other is not None
    assert report.other.evidence == VALUE
    assert len(report.other.sets) > 1
    text = str(report)
    assert "log likelihood" in text
    assert "value rows    leave" in text
    assert "see outcomes only through planned values" in text


def test_outcomes_are_counted_as_they_were_played() -> None:
    case = currents()
    sims = Simulators(case.kernels)
    learner = UCRLVTRLin(features=sims.features, norm_bound=1.0)
    result = run(learner, case.mdp, episodes=40, seed=1, progress=False)
    known = case.mdp.known
    rows = learner.statistics(known, result.state)
    assert rows.seen is not None
    assert rows.seen.sum() == 40 * known.horizon
    assert rows.seen[-1] == 0
    outcomes = sims.features.attach(known).outcomes
    start = outcomes.start[1]  # state 0, to the right
    assert rows.seen[start : outcomes.start[2]].sum() > 0
    again = learner.statistics(known, learner.begin(known, rows))
    assert again.seen is not None
    assert (again.seen == rows.seen).all()
    narrow = Simulators([river(np.ones(8), np.zeros(8))])  # nothing keeps one from swimming up
    lost = UCRLVTRLin(features=narrow.features, norm_bound=1.0)
    seen = lost.statistics(known, run(lost, case.mdp, episodes=40, seed=1, progress=False).state).seen
    assert seen is not None
    assert seen[-1] > 0
    assert seen.sum() == 40 * known.horizon


def test_minimal_sets_are_those_whose_best_mixture_is_likely_enough(test_seed: int) -> None:
    """Against every set of five simulators, with weights by many steps of EM."""
    rng = np.random.default_rng(test_seed)
    start = np.arange(0, 31, 3)  # ten (s, a) with three outcomes each
    kernels = np.ascontiguousarray(rng.dirichlet(np.ones(3), size=(5, 10)).reshape(5, 30).T)
    law = kernels @ np.array([0.0, 0.6, 0.0, 0.4, 0.0])
    for rows in (3, 30, 400):
        counts = np.concatenate([rng.multinomial(rows, law[s : s + 3]) for s in start[:-1]]).astype(float)
        found = likely_sets(Counts(np.append(counts, 0.0), start, kernels), delta=0.05)
        best = {}
        for mask in range(1, 32):
            own = kernels[:, [j for j in range(5) if mask >> j & 1]]
            w = np.full(own.shape[1], 1.0 / own.shape[1])
            for _ in range(3_000):
                w = w * (own.T @ (counts / (own @ w))) / counts.sum()
            best[mask] = float(counts @ np.log(own @ w))
        least = max(best.values()) - found.allowance
        inside = {mask for mask, value in best.items() if value >= least}
        minimal = {mask for mask in inside if not any(other != mask and other & mask == other for other in inside)}
        assert {sum(1 << j for j in members) for members in found.minimal} == minimal
        if rows == 400:
            assert found.minimal == [(1, 3)]
    nothing = likely_sets(Counts(np.append(counts, 1.0), start, kernels), delta=0.05)  # what no simulator allows
    assert nothing.minimal == []


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
    carried, ignored = supports(result, sims), supports(result, evidence=VALUE)
    assert carried.error == sims.error(0.025) > 0.0
    assert carried.evidence == VALUE  # an estimate has zeros that the simulator has not
    assert carried.other is None
    with pytest.raises(InvalidInput, match="evidence"):
        supports(result, sims, evidence=LIKELIHOOD)
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
