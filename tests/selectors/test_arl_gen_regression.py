"""ARL-GEN where the largest class is linear or an aggregation, with lists of kernels below it or not."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binom

import occamrl as orl
from occamrl.analysis.certificates import near_truth
from occamrl.checks import check_selector
from occamrl.errors import InvalidInput
from occamrl.learners.rewards import reward_statistics
from occamrl.problems.classic import RiverZones
from occamrl.problems.mdp import BernoulliRewards
from occamrl.problems.mixtures import SparseMixture
from occamrl.selectors.arl_gen import RegressionEvidence
from tests.cases import mixture, stack

SPARSE = SparseMixture(states=4, actions=2, horizon=4, dimension=4, nonzero=2, seed=0)
SPARSE_FEATURES = orl.FeatureMap([sp.csr_array(each.reshape(8, 4)) for each in np.moveaxis(SPARSE.phi, -1, 0)])
RIVER = RiverZones(states=6, horizon=12, zones=3, left_reward=0.03, seed=4)
CASE = mixture(4)
WEIGHTS = np.array([[0.8, 0.2, 0.0], [0.2, 0.8, 0.0], [0.2, 0.8, 0.0], [0.8, 0.2, 0.0]])  # by step


@cache
def coordinate_ladder() -> orl.Ladder:
    order = [*SPARSE.support, *(j for j in range(4) if j not in SPARSE.support)]
    rungs = [orl.LinearFamily(features=SPARSE_FEATURES, norm_bound=1.2, coordinates=order[:r]) for r in (1, 2, 4)]
    return orl.Ladder(rungs)


@cache
def river_ladder(*zones: int) -> orl.Ladder:
    """The classes of 1, 3 and 6 zones; 0 stands for two kernels of one zone."""
    classes: dict[int, Any] = {
        number: orl.AggregationFamily(partition=RIVER.partition(number), moves=RIVER.moves) for number in (1, 3, 6)
    }
    laws = ((0.1, 0.4, 0.5), (0.0, 0.5, 0.5))
    classes[0] = orl.FiniteFamily([classes[1].kernel(np.array([1.0, *law])) for law in laws])
    return orl.Ladder([classes[number] for number in zones])


@cache
def mixture_ladder() -> orl.Ladder:
    rungs = [orl.LinearFamily(features=CASE.features, norm_bound=1.2, coordinates=range(n)) for n in (1, 2, 3)]
    return orl.Ladder(rungs)


@cache
def kernels_below_mixtures() -> orl.Ladder:
    """Two kernels below all mixtures of three."""
    kernels = [CASE.phi @ w for w in np.eye(3)[:2]]
    return orl.Ladder([orl.FiniteFamily(kernels), orl.LinearFamily(features=CASE.features, norm_bound=1.2)])


def changing(weights: Any) -> orl.FiniteMDP:
    """Return a problem with another mixture of the kernels at every step, and coins as rewards."""
    transition = np.stack([CASE.phi @ w for w in np.asarray(weights)])
    return orl.FiniteMDP(transition=transition, reward=CASE.reward, horizon=4, reward_noise=BernoulliRewards())


def phases_of(agent: Any, problem: Any, episodes: int, seed: int = 0) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = orl.run(
        agent, problem, episodes=episodes, seed=seed, progress=False
    ).phases.to_pylist()
    return rows


def test_the_right_coordinates_are_found() -> None:
    phases = phases_of(orl.ARLGen(ladder=coordinate_ladder()), SPARSE, 8190)
    assert (phases[0]["chosen"], phases[-1]["chosen"]) == (1, 2)
    first, second, third = phases[-1]["statistics"]
    assert first > phases[-1]["threshold"] >= second >= third


@pytest.mark.parametrize("guard", [False, True])
def test_the_right_partition_is_found(guard: bool) -> None:
    assert river_ladder(1, 3, 6).class_of(RIVER.mdp) == 2
    phases = phases_of(orl.ARLGen(ladder=river_ladder(1, 3, 6), guard=guard), RIVER, 3000, seed=1)
    assert (phases[0]["chosen"], phases[-1]["chosen"]) == (1, 2)
    assert not any(row["outside"] for row in phases)
    audits = sum(row["episodes"] for row in phases if "audit" in row["label"])
    assert 0 < audits <= np.sqrt(3000) if guard else audits == 0


def test_audits_are_no_epochs() -> None:
    """An epoch ends with a phase of the class chosen: with a guard none begins on fewer data, and delta is the same.

    The control counts the audits: epochs then run ahead of the data.
    """
    plain, guarded = (
        phases_of(orl.ARLGen(ladder=coordinate_ladder(), guard=guard), SPARSE, 2000) for guard in (False, True)
    )
    audits = np.cumsum([0] + ["audit" in row["label"] for row in guarded])[:-1]
    begins = [0, *np.cumsum([row["episodes"] for row in guarded])]
    assert audits[-1] > 10
    assert [row["epoch"] for row in guarded] == [1 + i - audit for i, audit in enumerate(audits)]
    data = dict(zip((row["epoch"] for row in plain), [0, *np.cumsum([row["episodes"] for row in plain])], strict=False))
    assert all(begin >= data[row["epoch"]] for row, begin in zip(guarded, begins, strict=False))
    counted = [row["epoch"] + audit for row, audit in zip(guarded, audits, strict=True)]
    assert any(begin < data[epoch] for epoch, begin in zip(counted, begins, strict=False) if epoch in data)
    evidence = orl.ARLGen(ladder=coordinate_ladder(), guard=True)._evidence
    assert isinstance(evidence, RegressionEvidence)
    assert {learner.delta for learner in evidence._learners} == {0.05}


def test_a_truth_outside_the_largest_class_is_reported() -> None:
    assert phases_of(orl.ARLGen(ladder=river_ladder(1)), RIVER, 4000)[-1]["outside"]


@pytest.mark.parametrize("kind", ["linear", "aggregation", "cover below tabular"])
def test_while_a_list_of_kernels_is_in_play_the_regret_is_that_of_ucrl_vtr_on_it(kind: str) -> None:
    """The truth is in class 1; a phase ends in the middle of a lazy plan, which the next one goes on with."""
    case = stack(3, members=5)
    small: Any = case.family
    large: Any = orl.AggregationFamily.tabular(states=3, actions=2)
    if kind == "linear":
        large = orl.LinearFamily(features=orl.FeatureMap(list(case.kernels)), norm_bound=2.0)
    elif kind == "cover below tabular":

        def kernel(p: Any) -> Any:
            return (1 - p[0]) * case.kernels[0] + p[0] * case.kernels[1]

        small = orl.CoverFamily(kernel, low=[0.0], high=[1.0], step=0.25)
    agent = orl.ARLGen(ladder=orl.Ladder([small, large]))
    result = orl.run(agent, case.mdp, episodes=1000, progress=False)
    assert set(result.phases["chosen"].to_pylist()) == {1}
    assert result.phases.num_rows > 20
    alone = orl.run(orl.UCRLVTR(family=small, replan=0.2), case.mdp, episodes=1000, progress=False)
    np.testing.assert_array_equal(result.regret, alone.regret)
    assert alone.regret[-500:].sum() <= 0.1 * 500 * (
        case.mdp.optimal_value - case.mdp.evaluate(np.zeros((4, 3), int))[0, 0]
    )


def test_a_list_of_kernels_below_an_aggregation_is_left_and_a_run_resumed_inside_it_is_the_same() -> None:
    agent = orl.ARLGen(ladder=river_ladder(0, 1, 3, 6))
    whole = orl.run(agent, RIVER, episodes=3000, seed=1, progress=False)
    first = orl.run(agent, RIVER, episodes=7, seed=1, progress=False)  # in the middle of a phase of the list
    rest = orl.run(agent, RIVER, episodes=2993, progress=False, continue_from=first)
    assert whole.regret.tobytes() == rest.regret.tobytes()
    assert whole.phases["label"][0].as_py() == "F_1"
    assert whole.phases["chosen"][-1].as_py() == 3


CONTRACTS: dict[str, Any] = {
    "linear": lambda: (orl.ARLGen(ladder=coordinate_ladder(), replan=0.0), SPARSE.mdp),
    "aggregation, guard": lambda: (orl.ARLGen(ladder=river_ladder(1, 3, 6), guard=True), RIVER.mdp),
    "a list below, from class 1 to 2": lambda: (
        orl.ARLGen(
            ladder=kernels_below_mixtures(),
            kernel="per_step",
            rewards=orl.RewardsPerPair(scale=0.1),
            scale=0.05,
            guard=True,
        ),
        changing(WEIGHTS),
    ),
}


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_contract_is_kept(name: str) -> None:
    agent, mdp = CONTRACTS[name]()
    check_selector(agent, mdp, episodes=120 if "list" in name else 20)
    if "list" in name:  # what is carried over from class to class was continued and resumed as well
        assert {"F_1", "F_2"} <= {row["label"] for row in phases_of(agent, mdp, 120)}


def test_one_step_leaves_nothing_to_learn() -> None:
    mdp = orl.FiniteMDP(transition=SPARSE.mdp.kernel(), reward=np.arange(8.0).reshape(4, 2) / 8, horizon=1)
    agent = orl.ARLGen(ladder=coordinate_ladder())
    assert {row["chosen"] for row in phases_of(agent, mdp, 14)} == {1}


def test_losses_are_those_of_least_squares() -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(50, 4)), draw.normal(size=50)
    gram, xy, basis = x.T @ x, x.T @ y, draw.normal(size=(4, 2))
    free = orl.Ladder([orl.LinearFamily(features=SPARSE_FEATURES, norm_bound=100.0, basis=basis)])
    residual = np.linalg.lstsq(x @ basis, y, rcond=None)[1][0]
    assert free.smallest_loss(1, gram.ravel(), xy) + y @ y == pytest.approx(residual)
    short = orl.Ladder([orl.LinearFamily(features=SPARSE_FEATURES, norm_bound=0.05)])
    angles = draw.normal(size=(200_000, 4))
    ball = 0.05 * angles / np.linalg.norm(angles, axis=1, keepdims=True)
    brute = (np.einsum("ni,ij,nj->n", ball, gram, ball) - 2 * ball @ xy).min()
    assert short.smallest_loss(1, gram.ravel(), xy) <= brute + 1e-12
    assert short.smallest_loss(1, gram.ravel(), xy) == pytest.approx(brute, rel=1e-2)


def test_bad_linear_classes_and_options_are_refused() -> None:
    for features, basis in ((SPARSE_FEATURES, np.eye(3)), (orl.FeatureMap.tabular(states=4, actions=2), None)):
        with pytest.raises(InvalidInput):
            orl.LinearFamily(features=features, norm_bound=1.0, basis=basis)
    for wrong in ({"safe": True}, {"test_growth": 0.0}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            orl.ARLGen(ladder=coordinate_ladder(), **wrong)


# -------------------------------------------------------------------------- unknown rewards and one kernel per step


@pytest.mark.parametrize("rewards", ["known", orl.RewardsPerPair()])
def test_a_linear_ladder_finds_the_class_that_holds_the_kernels_of_all_steps(rewards: Any) -> None:
    agent = orl.ARLGen(ladder=mixture_ladder(), kernel="per_step", rewards=rewards)
    for weights, expected in ((WEIGHTS, 2), ([[1.0, 0.0, 0.0]] * 4, 1)):
        phases = phases_of(agent, changing(weights), 20_000)
        assert (phases[0]["chosen"], phases[-1]["chosen"]) == (1, expected)
        assert not any(row["outside"] for row in phases)


@pytest.mark.parametrize("kernel", ["stationary", "per_step"])
def test_a_list_below_a_linear_class_is_kept_if_it_holds_the_truth_and_left_if_not(kernel: Any) -> None:
    agent = orl.ARLGen(ladder=kernels_below_mixtures(), kernel=kernel, rewards=orl.RewardsPerPair())
    turns = np.eye(3)[[0, 1, 1, 0]] if kernel == "per_step" else np.eye(3)[[1, 1, 1, 1]]
    between = WEIGHTS if kernel == "per_step" else np.array([[0.5, 0.5, 0.0]] * 4)
    for weights, expected in ((turns, 1), (between, 2)):
        result = orl.run(agent, changing(weights), episodes=6_000, progress=False)
        found = result.phases["chosen"].to_pylist()
        assert found[0] == 1
        assert found[-1] == max(found) == expected
        observed = reward_statistics(result.state)
        assert observed is not None
        assert observed.visits.sum() == 4 * 6_000  # rewards are observed in every phase, and kept


def test_the_support_is_that_of_all_steps() -> None:
    agent = orl.ARLLinDim(features=CASE.features, norm_bound=1.2, kernel="per_step")
    for weights, expected in ((WEIGHTS, [0, 1]), ([[1.0, 0.0, 0.0]] * 4, [0])):
        assert phases_of(agent, changing(weights), 20_000)[-1]["active"] == expected


def test_the_norm_bound_shrinks_to_one_that_holds_at_every_step() -> None:
    """The last step gives no rows; its parameter, which no plan looks at, must not keep the bound where it was.

    From one initial state the first step sees two pairs (s, a) only, which say little about three coordinates.
    """
    mdp = changing(WEIGHTS)
    spread = orl.FiniteMDP(transition=mdp.kernel(), reward=CASE.reward, horizon=4, initial_state=np.full(4, 0.25))
    agent = orl.ARLLinNorm(features=CASE.features, norm_bound=50.0, kernel="per_step")
    moved, slow = ([row["norm_bound"] for row in phases_of(agent, each, 20_000)] for each in (spread, mdp))
    assert moved[0] == slow[0] == 50.0
    assert np.linalg.norm(WEIGHTS, axis=1).max() <= moved[-1] < 10.0
    assert slow[-1] > 2.0 * moved[-1]


# ----------------------------------------------------------------------------------------------- false rejections
# If the true class is rejected with probability at most delta, the exact test at level 0.001 fails with a probability
# of at most 0.1 %. Without slack it must fail, in fewer runs. What the optimistic rewards are does not matter to the
# tests, so their widths are small here: with large ones values are alike for long, and such rows reject nobody.
RUNS, LEVEL, DELTA = 200, 1e-3, 0.01


def p_value(kind: str, seed: int, runs: int, **variant: Any) -> float:
    """Return the probability of as many runs, or more, that ever chose above the true class, the second of three."""
    options: dict[str, Any] = {"rewards": orl.RewardsPerPair(scale=0.1, share=0.1), "kernel": "per_step", "replan": 0.1}
    if kind == "linear":
        classes, mdp = mixture_ladder(), changing(WEIGHTS)
    else:
        kernels, reward = near_truth()
        members: list[list[int]] = [[7], [7, 0, 3], list(range(8))]
        classes = orl.Ladder([orl.FiniteFamily(kernels[each]) for each in members])
        transition, noise = kernels[[0, 3, 0, 3, 0, 3]], BernoulliRewards()
        mdp = orl.FiniteMDP(transition=transition, reward=reward, horizon=6, reward_noise=noise)
        if kind == "list, plain":
            mdp, options = orl.FiniteMDP(transition=kernels[0], reward=reward, horizon=6), {}
    agent = orl.ARLGen(ladder=classes, delta=DELTA, **options, **variant)
    rejected = 0
    for i in range(runs):
        phases = phases_of(agent, mdp, 62, RUNS * seed + i)
        rejected += max(row["chosen"] for row in phases) > 2 or any(row["outside"] for row in phases)
    return float(binom.sf(rejected - 1, runs, DELTA))


@pytest.mark.parametrize("kind", ["list", "list, plain", "linear"])
def test_the_true_class_is_rejected_in_at_most_delta_of_runs(kind: str, test_seed: int) -> None:
    runs, control = (RUNS, 40) if "list" in kind else (20, 8)
    assert p_value(kind, test_seed, runs) >= LEVEL
    assert p_value(kind, test_seed, control, scale=0.0) < LEVEL
