"""Paired tests of many agents, against all signs, and what tables of comparisons say."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

import occamrl as orl
from occamrl.errors import ParameterError
from occamrl.experiments import pair_tests
from occamrl.report.data import build

GAPS = np.array([0.5, -0.2, 1.5, 0.7, 0.0, 0.9])


def test_the_sign_flip_test_counts_all_signs() -> None:
    larger = 0
    for signs in itertools.product((-1.0, 1.0), repeat=GAPS.size):
        larger += abs(np.dot(signs, GAPS)) >= abs(GAPS.sum()) - 1e-12
    assert pair_tests.sign_flip(GAPS) == larger / 2**GAPS.size
    assert pair_tests.sign_flip(np.zeros(5)) == 1.0
    # beyond the exact ones, drawn signs come near to the truth
    long = np.tile(GAPS, 4)
    normal = math.erfc(abs(long.sum()) / math.sqrt(2.0 * (long**2).sum()))
    assert pair_tests.sign_flip(long) == pytest.approx(normal, abs=0.02)


@pytest.mark.parametrize("sizes", [np.abs(GAPS), np.zeros(4), np.array([0.0, 0.0, 0.0, 2.0])])
def test_evidence_is_one_on_average_over_all_signs(sizes: Any) -> None:
    total = np.zeros(sizes.size)
    choices = list(itertools.product((-1.0, 1.0), repeat=sizes.size))
    for signs in choices:
        total += pair_tests.evidence(np.array(signs) * sizes)
    assert total / len(choices) == pytest.approx(np.ones(sizes.size))


def test_holm_rejects_what_all_larger_hypotheses_reject() -> None:
    draw = np.random.default_rng(0)
    for _ in range(50):
        p = (draw.random(4) ** 3).tolist()
        for level in (0.05, 0.3):
            adjusted = pair_tests.holm(p)
            for i in range(4):
                # the closed test: every set of hypotheses with i is rejected by Bonferroni
                sets = [
                    some
                    for size in range(1, 5)
                    for some in itertools.combinations(range(4), size)
                    if i in some
                ]
                closed = all(min(p[j] for j in some) * len(some) <= level for some in sets)
                assert (adjusted[i] <= level) == closed


@pytest.mark.parametrize("method", ["fixed", "sequential"])
def test_equal_agents_are_seldom_told_apart(method: Any) -> None:
    draw = np.random.default_rng(1)
    wrong = 0
    runs = 120
    for _ in range(runs):
        table = draw.exponential(size=(3, 20))
        claimed = False
        # one who looks after every seed takes the first claim; one who does not, the last
        for seeds in range(5, 21) if method == "sequential" else (20,):
            regret = {f"{i}": dict(enumerate(row[:seeds])) for i, row in enumerate(table)}
            tests = pair_tests.pair_tests(regret, 0.05, method)
            claimed |= any(pair.differ for pair in tests)
        wrong += claimed
    assert binomtest(wrong, runs, 0.05, alternative="greater").pvalue > 1e-3


def test_looking_between_seeds_spoils_the_fixed_test_and_not_the_sequential_one() -> None:
    """The negative control: the first claim of the fixed test while seeds are added."""
    draw = np.random.default_rng(2)
    wrong = 0
    runs = 100
    for _ in range(runs):
        gaps = draw.normal(size=60)
        wrong += any(pair_tests.sign_flip(gaps[:n]) <= 0.05 for n in range(5, 61, 5))
    assert binomtest(wrong, runs, 0.05, alternative="greater").pvalue < 1e-3


def test_a_real_difference_is_found_by_both() -> None:
    draw = np.random.default_rng(3)
    base = draw.exponential(size=40)
    regret = {
        "a": dict(enumerate(base)),
        "b": dict(enumerate(base + 0.5 + 0.2 * draw.normal(size=40))),
    }
    methods: tuple[pair_tests.Method, ...] = ("fixed", "sequential")
    for method in methods:
        tests = pair_tests.pair_tests(regret, 0.05, method)
        assert tests[0].differ
        assert "a has less regret than b" in str(tests)
    few = {name: {0: row[0], 1: row[1]} for name, row in regret.items()}
    assert "add seeds" in str(pair_tests.pair_tests(few))


@pytest.fixture(name="comparison", scope="module")
def _comparison() -> orl.Comparison:
    problem = orl.make_problem("river-swim", states=3)
    agents = {
        "uniform_1": orl.UniformRandom(),
        "PSRL": orl.PSRL(),
        "optimal": orl.Optimal(mdp=problem.mdp),
    }
    return orl.compare(agents, problem, episodes=30, seeds=8, workers=1)


def test_differences_are_a_table(comparison: orl.Comparison) -> None:
    found = comparison.differences("optimal")
    assert [row["agent"] for row in found] == ["uniform_1", "PSRL"]
    text = str(found)
    assert "uniform_1 - optimal" in text
    assert "{" not in text
    assert found.to_latex(digits=2).count(r" \\") == 3
    with pytest.raises(ParameterError, match="baseline"):
        comparison.differences("nobody")


def test_latex_has_the_digits_the_bold_face_and_the_episode(comparison: orl.Comparison) -> None:
    text = comparison.to_latex(digits=2, bold=True, at=10)
    regret = comparison.regret_at(10)
    assert r"\textbf{0}" in text
    assert f"{regret['PSRL'].mean():,.2g}" in text
    assert r"uniform\_1" in text
    assert comparison.to_latex() == comparison.to_latex(at=30)
    with pytest.raises(ParameterError, match="at"):
        comparison.to_latex(at=31)


def test_the_report_says_who_is_not_told_apart_and_which_class_is_wrong(tmp_path: Path) -> None:
    experiment = orl.Experiment(
        name="x",
        episodes=40,
        seeds=6,
        problem=["SparseLadder"],
        agent=[{"name": "paper.ARLGen"}, {"name": "Occam"}],
    )
    records = experiment.run(tmp_path, workers=1, progress=False)
    text = " ".join(build(records).problems[0].headline)
    # the letter does not leave class 1 so early, and class 3 has the truth
    assert "a wrong class: the truth is in class 3" in text
    assert "Holm" in text
    tests = records.tests()["SparseLadder"]
    assert tests.sentences[-1] in text
    assert {row["agent"] for row in records.differences()} == {"Occam"}


def test_results_of_the_letter_and_of_the_sharp_form_have_different_names() -> None:
    problem = orl.make_problem("sparse-ladder", states=4, actions=2, dimension=4)
    ladder = orl.Ladder.of_problem(problem)
    letter = orl.run(orl.paper.ARLGen(ladder=ladder), problem, episodes=2, progress=False)
    sharp = orl.run(orl.ARLGen(ladder=ladder), problem, episodes=2, progress=False)
    assert repr(letter).split(",")[0] != repr(sharp).split(",")[0]


def test_a_problem_of_ones_own_has_names_a_unit_and_a_discount() -> None:
    kernel = [[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.0, 1.0]]]
    given: dict[str, Any] = {"transition": kernel, "reward": [[0.1, 0.0], [1.0, 1.0]], "horizon": 3}
    mdp = orl.FiniteMDP(
        **given,
        name="two rooms",
        state_names=["left", "right"],
        action_names=["stay", "go"],
        unit="EUR",
        discount=0.5,
        continuing=True,
    )
    assert mdp.known.state_name(1) == "right"
    assert mdp.known.action_number("go") == 1
    assert mdp.known.unit_name == "EUR"
    # discounted: going at once and staying is 0 + 0.5 (0.5 + 0.5 * ...), written out
    values = np.zeros(2)
    for _ in range(3):
        q = np.array(given["reward"]) + 0.5 * np.array(kernel) @ values
        values = q.max(axis=1)
    assert mdp.optimal_values[0] == pytest.approx(values)
    assert mdp.known.continuing
    compared = orl.compare({"PSRL": orl.PSRL()}, mdp, episodes=5, seeds=1, workers=1)
    assert str(compared).startswith("two rooms")
    with pytest.raises(ParameterError, match="state_names"):
        orl.FiniteMDP(**given, state_names=["left"])
    with pytest.raises(ParameterError, match="discount"):
        orl.FiniteMDP(**given, discount=1.5)
    ended = orl.FiniteMDP(
        outcomes=[[[(1.0, 0, 0.5, True)]]], horizon=2, state_names=["only"], action_names=["go"]
    )
    assert ended.known.state_name(1) == "end"


def test_a_kernel_per_step_is_selected_with_the_step_in_the_state() -> None:
    """The recipe of docs/selection-ladders.md: a state is (step, place)."""

    def walk(state: tuple[int, int], right: int, *, early: float, late: float = 0.9) -> Any:
        step, place = state
        chance = early if step < 3 else late
        following = step + 1
        pays = float(place == 2)
        if following == 6:
            yield 1.0, state, pays, True
        elif right:
            yield chance, (following, min(place + 1, 2)), pays, False
            yield 1 - chance, (following, max(place - 1, 0)), pays, False
        else:
            yield 1.0, (following, max(place - 1, 0)), pays, False

    model = orl.Model(
        walk,
        start=(0, 0),
        actions=[0, 1],
        horizon=6,
        parameters={"early": (0.1, 0.9), "late": (0.1, 0.9)},
    )
    ladder = model.ladder({"late is .9": ["early"], "two kernels": ["early", "late"]})
    truth = model.mdp(early=0.8, late=0.3)
    assert ladder.class_of(truth) == 2
    result = orl.run(orl.Occam(ladder=ladder), truth, episodes=60, progress=False)
    assert result.verdict["chosen"] == 2
