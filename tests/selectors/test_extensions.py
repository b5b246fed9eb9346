"""Selectors with unknown rewards and one kernel per step: what they find, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import occamrl as orl
from occamrl.checks import check_selector
from occamrl.learners.rewards import reward_statistics
from occamrl.problems.mdp import BernoulliRewards
from tests.cases import mixture
from tests.confidence.test_coverage import near_truth

DELTA = 0.01
CASE = mixture(4)
WEIGHTS = np.array([[0.8, 0.2, 0.0], [0.2, 0.8, 0.0], [0.2, 0.8, 0.0], [0.8, 0.2, 0.0]])


def changing(weights: Any) -> orl.FiniteMDP:
    """Return a problem with another mixture of the kernels at every step."""
    transition = np.stack([CASE.phi @ w for w in np.asarray(weights)])
    return orl.FiniteMDP(transition=transition, reward=CASE.reward, horizon=4, reward_noise=BernoulliRewards())


def ladder() -> Any:
    rungs = [orl.LinearFamily(features=CASE.features, norm_bound=1.2, coordinates=range(n)) for n in (1, 2, 3)]
    return orl.Ladder(rungs)


@pytest.mark.parametrize("rewards", ["known", orl.RewardsPerPair()])
def test_a_linear_ladder_finds_the_class_that_holds_the_kernels_of_all_steps(rewards: Any) -> None:
    agent = orl.ARLGen(ladder=ladder(), kernel="per_step", rewards=rewards)
    for weights, expected in ((WEIGHTS, 2), ([[1.0, 0.0, 0.0]] * 4, 1)):
        phases = orl.run(agent, changing(weights), episodes=20_000, progress=False).phases.to_pylist()
        assert phases[0]["chosen"] == 1
        assert phases[-1]["chosen"] == expected
        assert not any(row["outside"] for row in phases)


def test_on_a_linear_ladder_with_two_steps_one_kernel_per_step_is_one_kernel_bit_for_bit() -> None:
    """Only the first step of two gives rows."""
    case = mixture(7, horizon=2)
    rungs = [orl.LinearFamily(features=case.features, norm_bound=1.5, coordinates=range(n)) for n in (1, 3)]
    plain, each, other = (
        orl.run(orl.ARLGen(ladder=orl.Ladder(rungs), **options), case.mdp, episodes=500, progress=False)
        for options in ({}, {"kernel": "per_step"}, {"kernel": "per_step", "delta": 0.01})
    )
    assert plain.regret.tobytes() == each.regret.tobytes()
    assert plain.phases["chosen"].to_pylist() == each.phases["chosen"].to_pylist()
    assert plain.phases["beta"].to_pylist() == each.phases["beta"].to_pylist()
    assert plain.phases["beta"].to_pylist() != other.phases["beta"].to_pylist()


def mixed() -> Any:
    """Return two kernels below all mixtures of three."""
    kernels = [CASE.phi @ w for w in np.eye(3)[:2]]
    return orl.Ladder([orl.FiniteFamily(kernels), orl.LinearFamily(features=CASE.features, norm_bound=1.2)])


@pytest.mark.parametrize("kernel", ["stationary", "per_step"])
def test_a_finite_class_below_a_linear_one_is_kept_if_it_holds_the_truth_and_left_if_not(kernel: str) -> None:
    agent = orl.ARLGen(ladder=mixed(), kernel=kernel, rewards=orl.RewardsPerPair())
    turns = np.eye(3)[[0, 1, 1, 0]] if kernel == "per_step" else np.eye(3)[[1, 1, 1, 1]]
    between = WEIGHTS if kernel == "per_step" else np.array([[0.5, 0.5, 0.0]] * 4)
    for weights, expected in ((turns, 1), (between, 2)):
        result = orl.run(agent, changing(weights), episodes=6_000, progress=False)
        chosen = result.phases["chosen"].to_pylist()
        assert chosen[0] == 1
        assert chosen[-1] == max(chosen) == expected
        observed = reward_statistics(result.state)
        assert observed is not None
        assert observed.visits.sum() == 4 * 6_000  # rewards are observed in every phase, and kept


def test_the_contract_is_kept_with_a_finite_class_below_a_linear_one() -> None:
    """From class 1 to class 2 within the run, so that what is carried over is continued and resumed as well."""
    agent = orl.ARLGen(ladder=mixed(), kernel="per_step", rewards=orl.RewardsPerPair(scale=0.1), scale=0.05, guard=True)
    mdp = changing(WEIGHTS)
    check_selector(agent, mdp, episodes=120)
    labels = orl.run(agent, mdp, episodes=120, progress=False).phases["label"].to_pylist()
    assert {"F_1", "F_2"} <= set(labels)


def test_the_support_is_that_of_all_steps() -> None:
    agent = orl.ARLLinDim(features=CASE.features, norm_bound=1.2, kernel="per_step")
    alone = [[1.0, 0.0, 0.0]] * 4
    for weights, expected in ((WEIGHTS, [0, 1]), (alone, [0])):
        phases = orl.run(agent, changing(weights), episodes=20_000, progress=False).phases.to_pylist()
        assert phases[-1]["active"] == expected


def test_the_norm_bound_shrinks_to_one_that_holds_at_every_step() -> None:
    """The last step gives no rows; its parameter, which no plan looks at, must not keep the bound where it was.

    From one initial state the first step sees two pairs (s, a) only, which say little about three coordinates.
    """
    mdp = changing(WEIGHTS)
    spread = orl.FiniteMDP(transition=mdp.kernel(), reward=CASE.reward, horizon=4, initial_state=np.full(4, 0.25))
    agent = orl.ARLLinNorm(features=CASE.features, norm_bound=50.0, kernel="per_step")
    spread_out, from_one = (orl.run(agent, each, episodes=20_000, progress=False) for each in (spread, mdp))
    assert np.isfinite(spread_out.state.values).all()
    moved, slow = (result.phases["norm_bound"].to_pylist() for result in (spread_out, from_one))
    assert moved[0] == slow[0] == 50.0
    assert np.linalg.norm(WEIGHTS, axis=1).max() <= moved[-1] < 10.0
    assert slow[-1] > 2.0 * moved[-1]


# ------------------------------------------------------------------------------------------------- false rejections
# 200 runs each. If the true class is rejected with probability at most delta, the exact test at level 0.001 fails with
# a probability of at most 0.1 %. With less slack it must fail, in fewer runs. What the optimistic rewards are
# does not matter to the tests, so their widths are small here: with large ones values are all alike for long, and
# rows that say nothing reject nobody.
RUNS, LEVEL = 200, 1e-3


def p_value(kind: str, seed: int, runs: int, **variant: Any) -> float:
    """Return the probability of as many runs, or more, that ever chose above the true class, the second of three."""
    if kind == "linear ladder":
        classes, mdp = ladder(), changing(WEIGHTS)
    else:
        case, noise = near_truth(), BernoulliRewards()
        members: list[list[int]] = [[7], [7, 0, 3], list(range(8))]
        classes = orl.Ladder([orl.FiniteFamily(case.kernels[each]) for each in members])
        transition = case.kernels[[0, 3, 0, 3, 0, 3]]
        mdp = orl.FiniteMDP(transition=transition, reward=case.reward, horizon=6, reward_noise=noise)
    options: dict[str, Any] = {"rewards": orl.RewardsPerPair(scale=0.1, share=0.1), "kernel": "per_step", "replan": 0.1}
    agent = orl.ARLGen(ladder=classes, delta=DELTA, test_growth=1.0, **options, **variant)
    results = (orl.run(agent, mdp, episodes=62, seed=RUNS * seed + i, progress=False) for i in range(runs))
    rejected = sum(max(result.phases["chosen"].to_pylist()) > 2 for result in results)
    return float(binom.sf(rejected - 1, runs, DELTA))


@pytest.mark.parametrize("kind", ["lists", "linear ladder"])
def test_the_true_class_is_rejected_in_at_most_delta_of_runs(kind: str, test_seed: int) -> None:
    assert p_value(kind, test_seed, RUNS) >= LEVEL


@pytest.mark.parametrize("kind", ["lists", "linear ladder"])
def test_negative_control_too_little_slack_rejects_the_true_class(kind: str, test_seed: int) -> None:
    """A twentieth; for lists of kernels none at all: the weights of the mixture (M25) make up for some of it."""
    scale = 0.0 if kind == "lists" else 0.05
    assert p_value(kind, test_seed, 40, scale=scale) < LEVEL
