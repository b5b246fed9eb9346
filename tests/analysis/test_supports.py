"""Which sets of simulators explain the data: the sets against an optimiser, their promise, and the report."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import binom

from benchmarks.simulator_cases import PAIR, currents, river, uniform_currents
from occamrl.analysis.supports import (
    REGULARIZATION,
    Counts,
    Supports,
    ValueRows,
    dependences,
    directions,
    possible_rows,
    supports,
)
from occamrl.errors import InvalidInput, OccamRLError
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.logs.log import simulate_log
from occamrl.logs.select import LIKELIHOOD, VALUE
from occamrl.models.simulators import Simulators
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats
from occamrl.running.run import run
from tests import cases

DELTA = 0.1


def members_of(mask: int) -> tuple[int, ...]:
    return tuple(j for j in range(mask.bit_length()) if mask >> j & 1)


def rows(rng: np.random.Generator, n: int, d: int, theta: Floats) -> tuple[Floats, Floats]:
    """Predictions of d simulators in [-1/2, 1/2], nearly collinear, and targets +-1/2 with the mixture's mean."""
    x = np.clip(rng.uniform(-0.3, 0.3, (n, 1)) + rng.uniform(-0.2, 0.2, (n, d)), -0.5, 0.5)
    return x, np.where(rng.random(n) < x @ theta + 0.5, 0.5, -0.5)


def evidence_of(x: Floats, y: Floats, bias: float = 0.0) -> ValueRows:
    return ValueRows(x.T @ x, x.T @ y, bias)


def least_on_simplex(x: Floats, y: Floats) -> float:
    """The smallest loss (less sum y^2) over mixtures, by a general optimiser from every corner and the middle."""
    d = x.shape[1]

    def loss(theta: Floats) -> float:
        return float(((y - x @ theta) ** 2).sum() - (y**2).sum())

    one: Any = {"type": "eq", "fun": lambda theta: theta.sum() - 1.0, "jac": lambda theta: np.ones(theta.size)}
    about: dict[str, Any] = {"bounds": [(0.0, 1.0)] * d, "constraints": one, "method": "SLSQP"}
    about |= {"jac": lambda theta: -2.0 * x.T @ (y - x @ theta), "options": {"ftol": 1e-12, "maxiter": 500}}
    found = [minimize(loss, start, **about).fun for start in (*np.eye(d), np.full(d, 1.0 / d))]
    return float(min(found))


@given(st.integers(0, 10_000), st.integers(1, 4), st.booleans())
def test_every_set_has_the_loss_that_an_optimiser_finds(seed: int, d: int, repeated: bool) -> None:
    rng = np.random.default_rng(seed)
    x, y = rows(rng, 40, d, rng.dirichlet(np.ones(d)))
    if repeated and d > 1:
        x[:, -1] = 0.5 * x[:, 0] + 0.5 * x[:, d // 2]  # an exact dependence
    fits = evidence_of(x, y).solve()
    for mask in range(1, 2**d):
        members = list(members_of(mask))
        assert fits.least[mask] == pytest.approx(least_on_simplex(x[:, members], y), abs=1e-6)


def test_the_threshold_is_the_mixture_of_m22_by_numerical_integration() -> None:
    rng = np.random.default_rng(4)
    x, y = rows(rng, 30, 2, np.array([0.6, 0.4]))
    evidence = evidence_of(x, y)

    def loss(theta: Floats) -> float:
        return float(((y - x @ theta) ** 2).sum() - (y**2).sum())

    # one half for the size 1, shared by two simulators; one half for the pair, a Gaussian of variance 1/(4 lambda)
    # along (1, -1)/sqrt(2) around the middle
    def density(eta: float) -> float:
        prior = math.sqrt(2.0 * REGULARIZATION / math.pi) * math.exp(-2.0 * REGULARIZATION * eta**2)
        return prior * math.exp(-2.0 * loss(0.5 + np.array([1.0, -1.0]) * eta / math.sqrt(2.0)))

    pair = quad(density, -8.0, 8.0, limit=200)[0]
    mixture = 0.25 * math.exp(-2.0 * loss(np.array([1.0, 0.0]))) + 0.25 * math.exp(-2.0 * loss(np.array([0.0, 1.0])))
    expected = -0.5 * math.log(mixture + 0.5 * pair) + 0.5 * math.log(1.0 / DELTA)
    assert evidence.threshold(evidence.solve(), DELTA) == pytest.approx(expected, abs=1e-6)


def excluded(runs: int, seed: int, share: float) -> int:
    """Runs in which the true pair is ever above a share of what is allowed, looking after 100, 200, 300, 400 rows."""
    theta, count = np.array([0.6, 0.0, 0.4, 0.0]), 0
    for number in range(runs):
        x, y = rows(np.random.default_rng([seed, number]), 400, 4, theta)
        ever = False
        for n in range(100, 401, 100):
            evidence = evidence_of(x[:n], y[:n])
            fits = evidence.solve()
            best = float(fits.least.min())
            ever |= float(fits.least[0b101]) > best + share * (evidence.threshold(fits, DELTA) - best)
        count += ever
    return count


def test_the_true_pair_stays_compatible_and_a_tenth_of_the_allowance_fails(test_seed: int) -> None:
    runs = 200
    most = int(binom.isf(1e-5, runs, DELTA))  # a right threshold passes this but once in 100,000
    assert excluded(runs, test_seed, 1.0) <= most
    assert excluded(runs, test_seed, 0.1) > most


def test_bias_is_carried_and_without_it_the_truth_is_lost(test_seed: int) -> None:
    lost = {0.0: 0, 1.0: 0}
    runs, n, error, theta = 100, 6_000, 0.04, np.array([0.5, 0.5, 0.0])
    for number in range(runs):
        rng = np.random.default_rng([test_seed, number, 5])
        x, y = rows(rng, n, 3, theta)
        wrong = x + error * np.where(x[:, [2]] > x[:, [0]], 1.0, -1.0)  # the estimates lean towards the third
        for part in lost:
            evidence = evidence_of(wrong, y, part * n * error**2)
            fits = evidence.solve()
            lost[part] += float(fits.least[0b011]) > evidence.threshold(fits, DELTA)
    most = int(binom.isf(1e-5, runs, DELTA))
    assert lost[1.0] <= most
    assert lost[0.0] > most


def test_minimal_sets_are_those_without_compatible_subsets() -> None:
    rng = np.random.default_rng(8)
    x, y = rows(rng, 3_000, 6, np.array([0.0, 0.6, 0.0, 0.0, 0.4, 0.0]))
    evidence = evidence_of(x, y)
    found = evidence.compatible_sets(delta=DELTA)
    fits = evidence.solve()
    bound = evidence.threshold(fits, DELTA)
    by_hand = {
        members_of(mask)
        for mask in range(1, 64)
        if fits.least[mask] <= bound
        and not any(other != mask and other & mask == other and fits.least[other] <= bound for other in range(1, 64))
    }
    assert set(found.minimal) == by_hand
    assert [members for members in found.minimal if len(members) <= 2] == [(1, 4)]
    assert found.largest == 6
    assert evidence.weights((1, 4)) == pytest.approx([0.6, 0.4], abs=0.1)


def test_a_search_that_was_cut_says_so() -> None:
    rng = np.random.default_rng(9)
    x, y = rows(rng, 2_000, 20, np.eye(20)[2])
    found = evidence_of(x, y).compatible_sets()
    assert found.largest == 6  # of 20 there are 60,459 sets of up to 6, and 77,520 more of 7
    assert (2,) in found.minimal


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidInput, match="1 to 20"):
        ValueRows(np.eye(21), np.zeros(21)).compatible_sets()
    with pytest.raises(InvalidInput, match="gram"):
        ValueRows(np.eye(3), np.zeros(2)).compatible_sets()
    with pytest.raises(InvalidInput, match="delta"):
        ValueRows(np.eye(2), np.zeros(2)).compatible_sets(delta=0.0)


TRUE = tuple(str(j + 1) for j in PAIR)


def report_of(case: Any, episodes: int, seed: int = 0, evidence: str | None = VALUE) -> Supports:
    sims = Simulators(case.kernels)
    agent = UCRLVTRLin(features=sims.features, norm_bound=1.0)
    return supports(run(agent, case.mdp, episodes=episodes, seed=seed, progress=False), sims, evidence=evidence)


def test_the_pair_among_twelve_currents_is_named(test_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = currents()
    early, late = (report_of(case, episodes, test_seed) for episodes in (64, 4_000))
    assert any(set(each.members) <= set(TRUE) for each in early.sets)  # compatible, among others
    assert early.next_exclusion is not None
    assert [each.members for each in late.sets] == [TRUE]
    assert late.necessary == TRUE
    assert late.sets[0].weights == pytest.approx([0.6, 0.4], abs=0.1)
    assert late.next_exclusion is None
    assert "4, 9 (in every set that explains the data)" in str(late)
    assert "one set remains" in str(late)
    assert late.table().num_rows == 1
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(OccamRLError, match="pip install pandas"):
        late.to_pandas()


def test_by_likelihood_the_pair_is_named_much_earlier_and_value_rows_are_told_of(test_seed: int) -> None:
    case = currents()
    report = report_of(case, 150, test_seed, None)
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
    """Every step, the last of an episode too; the last count is of what no simulator allows."""
    case = currents()
    narrow = Simulators([river(np.ones(8), np.zeros(8))])  # nothing keeps one from swimming up
    for sims, listed in ((Simulators(case.kernels), True), (narrow, False)):
        learner, known = UCRLVTRLin(features=sims.features, norm_bound=1.0), case.mdp.known
        rows = learner.statistics(known, run(learner, case.mdp, episodes=40, seed=1, progress=False).state)
        again = learner.statistics(known, learner.begin(known, rows))
        assert rows.seen is not None
        assert again.seen is not None
        assert rows.seen.sum() == 40 * known.horizon
        assert (rows.seen[-1] == 0) == listed
        assert (again.seen == rows.seen).all()


def test_minimal_sets_are_those_whose_best_mixture_is_likely_enough(test_seed: int) -> None:
    """Against every set of five simulators, with weights by many steps of EM."""
    rng = np.random.default_rng(test_seed)
    start = np.arange(0, 31, 3)  # ten (s, a) with three outcomes each
    kernels = np.ascontiguousarray(rng.dirichlet(np.ones(3), size=(5, 10)).reshape(5, 30).T)
    law = kernels @ np.array([0.0, 0.6, 0.0, 0.4, 0.0])
    for rows in (3, 30, 400):
        counts = np.concatenate([rng.multinomial(rows, law[s : s + 3]) for s in start[:-1]]).astype(float)
        found = Counts(np.append(counts, 0.0), start, kernels).compatible_sets(delta=0.05)
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
    assert not Counts(np.append(counts, 1.0), start, kernels).compatible_sets().minimal  # what no simulator allows


def test_currents_of_rank_two_are_said_to_be_so() -> None:
    case = uniform_currents()
    report = report_of(case, 2_000)
    assert report.rank == 2
    assert report.directions.dependent == 10
    # .6 of strength 3/11 and .4 of 8/11 is 5/11: between the sixth simulator and itself, so one simulator is enough
    assert ("6",) in [each.members for each in report.sets]
    twins = [each for each in report.sets if each.kernel == report.sets[1].kernel]
    assert len(twins) > 10
    text = str(report)
    assert "have rank 2 (to 9 digits): of 11 differences only 1 can be learned, from any data" in text
    assert "give the same kernel, so no data can separate them" in text


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


def test_a_truth_beyond_the_simulators_leaves_no_mixture() -> None:
    rng = np.random.default_rng(0)
    truth, even = rng.dirichlet(np.full(4, 0.3), size=(4, 2)), np.full((4, 2, 4), 0.25)
    kernels = [0.5 * truth + 0.5 * even, even]  # the truth is 2 of the first less 1 of the second
    mdp = FiniteMDP(transition=truth, reward=rng.random((4, 2)), horizon=10)
    for evidence in (VALUE, LIKELIHOOD):
        found = supports(simulate_log(mdp, episodes=2_000), Simulators(kernels), known=mdp.known, evidence=evidence)
        assert not found.sets
        assert "no mixture of these simulators explains the data" in str(found)


def test_what_is_no_run_on_simulators_is_refused() -> None:
    problem = cases.mixture(1)
    plain = UCRLVTRLin(features=problem.features, norm_bound=1.0, weights="none", radius="unweighted")
    bad: list[tuple[Any, str]] = [
        (run(plain, problem.mdp, episodes=3, progress=False), "range weights"),
        (simulate_log(problem.mdp, episodes=2), "a log alone"),
        ("run", "source"),
    ]
    for source, message in bad:
        with pytest.raises(InvalidInput, match=message):
            supports(source)
    learned = run(UCRLVTRLin(features=problem.features, norm_bound=1.0), problem.mdp, episodes=3, progress=False)
    strangers = np.random.default_rng(0).dirichlet(
        np.ones(problem.mdp.states), size=(problem.features.dimension, problem.mdp.states, problem.mdp.actions)
    )
    with pytest.raises(InvalidInput, match="other kernels"):
        supports(learned, Simulators(list(strangers)))
