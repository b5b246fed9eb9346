"""Linear classes by likelihood against brute force: prequential products, integrals, all sets, and resumption."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binomtest, chisquare, multivariate_normal

import occamrl as orl
from occamrl.errors import FeatureError, InvalidInput, ParameterError
from occamrl.learners import occam_linear
from occamrl.learners.occam_linear import expand
from occamrl.problems.mixtures import SparseMixture
from occamrl.protocols import Episode, Floats
from occamrl.seeding import stream

DRAW = np.random.default_rng(0)
KERNELS = DRAW.dirichlet(np.full(3, 0.7), size=(4, 3, 2))  # [simulator, s, a, s']
REWARD = DRAW.random((3, 2))


def mixture(theta: list[float], horizon: int = 4) -> orl.FiniteMDP:
    return orl.FiniteMDP(transition=np.tensordot(theta, KERNELS, 1), reward=REWARD, horizon=horizon)


MDP = mixture([0.0, 0.6, 0.0, 0.4])
MIXTURE = orl.OccamMixture(features=orl.FeatureMap(list(KERNELS)))
ONLY_AT_THE_EDGE = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]])[:, None]  # p_0 has zeros ...
ONLY_AT_THE_EDGE[0, 0, :, 1] = -1.0, 1.0  # ... where a direction has none
SMALL = SparseMixture(states=4, actions=2, horizon=3, dimension=4, nonzero=2, seed=2)


def fitted(counts: Floats, members: list[int], weights: Floats) -> Floats:
    """Three steps of EM with 1/2 for every weight, written as loops over (s, a, s')."""
    for _ in range(3):
        more = np.full(len(members), 0.5)
        for cell in np.argwhere(counts > 0):
            parts = weights * np.array([KERNELS[(j, *cell)] for j in members])
            more += counts[tuple(cell)] * parts / parts.sum()
        weights = more / more.sum()
    return weights


def test_evidence_is_the_product_of_what_each_set_predicted() -> None:
    """L8: Q_D and Z from the episodes themselves, one outcome after another, with the weights of the last fit."""
    result = orl.run(MIXTURE, MDP, episodes=1, seed=5, progress=False)
    sets = [list(each) for k in (1, 2, 3, 4) for each in itertools.combinations(range(4), k)]
    weights = [np.full(len(each), 1.0 / len(each)) for each in sets]
    evidence, kt, counts, at_fit = np.zeros(len(sets)), 0.0, np.zeros((3, 2, 3)), 0.0
    for _ in range(80):
        after = orl.run(MIXTURE, MDP, episodes=1, progress=False, continue_from=result)
        # what came with the episode before: the counts of the two states differ by it
        came = result.state["counts"].reshape(3, 2, 3) - counts
        for cell in np.argwhere(came > 0):
            for _ in range(int(came[tuple(cell)])):
                s, a, _ = cell
                kt += math.log((counts[tuple(cell)] + 0.5) / (counts[s, a].sum() + 1.5))
                evidence += [
                    math.log(w @ [KERNELS[(j, *cell)] for j in each]) for w, each in zip(weights, sets, strict=True)
                ]
                counts[tuple(cell)] += 1.0
        if counts.sum() >= 1.02 * at_fit:
            at_fit = counts.sum()
            weights = [fitted(counts, each, w) for each, w in zip(sets, weights, strict=True)]
            assert [np.flatnonzero(each).tolist() for each in MIXTURE.sets] == sets
            for q, mine, each in zip(after.state["evidence"], evidence, sets, strict=True):
                assert q == -math.inf or q == pytest.approx(mine, abs=1e-8), each
            sizes = np.array([1.0 / (5.0 * math.comb(4, len(each))) for each in sets])
            z = logsumexp(np.append(evidence + np.log(sizes), kt - math.log(5.0)))
            assert MIXTURE.least(MDP.known, after.state) == pytest.approx(z + math.log(0.05), abs=1e-8)
        result = after
    assert at_fit > 300


def test_compatible_sets_are_those_with_a_mixture_above_the_threshold() -> None:
    result = orl.run(MIXTURE, MDP, episodes=60, seed=1, progress=False)
    state: dict[str, Any] = result.state
    MIXTURE.update(MDP.known, state)
    counts, least = state["counts"].reshape(3, 2, 3), MIXTURE.least(MDP.known, state)

    def best(members: tuple[int, ...]) -> float:
        grid = [w for w in itertools.product(np.linspace(0, 1, 401), repeat=len(members) - 1) if sum(w) <= 1.0]
        laws = (np.tensordot([*w, 1.0 - sum(w)], KERNELS[list(members)], 1) for w in grid)
        return max(float((counts * np.log(np.maximum(law, 1e-300))).sum()) for law in laws)

    singles = [[j] for j in range(4) if best((j,)) >= least]
    pairs = [list(each) for each in itertools.combinations(range(4), 2) if best(each) >= least]
    assert not singles
    assert [1, 3] in pairs
    found = MIXTURE.facts(MDP.known, state)
    assert found["smallest"] == pairs
    assert not found["outside"]
    assert "measured, not proved" in found["guarantee"]


def test_the_true_pair_stays_compatible(test_seed: int) -> None:
    """Coverage at delta = 1/2 in 40 runs, tested at 10^-5; a table fitted to what it predicts must fail."""
    agent = orl.OccamMixture(features=MIXTURE.features, delta=0.5)
    truth = agent._setting(MDP.known).columns @ [0.0, 0.6, 0.0, 0.4]
    reach, runs, lost, lost_by_hindsight = MDP.kernel().cumsum(axis=2), 40, 0, 0
    for run in range(runs):
        draw, state, s = stream(test_seed, "occam_linear", run), agent.begin(MDP.known), 0
        for _ in range(40):
            actions, states = draw.integers(2, size=10), [s]
            for a, u in zip(actions, draw.random(10), strict=True):
                states.append(min(2, int(np.searchsorted(reach[states[-1], a], u))))
            agent.learn(MDP.known, state, Episode(np.array(states), actions, np.zeros(10)))
            s = states[-1]
            if occam_linear._due(state):
                agent.update(MDP.known, state)
        smallest = agent.facts(MDP.known, state)["smallest"]
        lost += [1, 3] not in smallest and len(smallest[0]) > 1
        counts = state["counts"].reshape(6, 3)
        hindsight = counts * np.log(np.maximum(counts / counts.sum(axis=1, keepdims=True), 1e-300))
        lost_by_hindsight += float(hindsight.sum() - state["counts"] @ np.log(truth)) > math.log(2.0)
    assert binomtest(lost, runs, 0.5, alternative="greater").pvalue > 1e-5
    assert binomtest(lost_by_hindsight, runs, 0.5, alternative="greater").pvalue < 1e-5


def test_a_truth_that_is_no_mixture_is_noticed_and_played() -> None:
    outside = orl.FiniteMDP(transition=np.roll(KERNELS[0], 1, axis=2), reward=REWARD, horizon=4)
    result = orl.run(MIXTURE, outside, episodes=300, seed=0, progress=False)
    found = MIXTURE.facts(outside.known, result.state)
    assert found["outside"]
    assert found["smallest"] == []
    assert result.state["outside"]
    assert result.regret[-100:].mean() < 0.02


def test_an_outcome_that_no_simulator_allows_puts_the_truth_outside() -> None:
    kernels = [np.array([[[1.0, 0.0]], [[0.5, 0.5]]]), np.array([[[1.0, 0.0]], [[0.1, 0.9]]])]
    mdp = orl.FiniteMDP(transition=np.full((2, 1, 2), 0.5), reward=np.array([[0.0], [1.0]]), horizon=3)
    agent = orl.OccamMixture(features=orl.FeatureMap(kernels))
    found = agent.facts(mdp.known, orl.run(agent, mdp, episodes=20, seed=0, progress=False).state)
    assert found["outside"]
    assert found["unlisted"] > 0


def test_sets_are_limited_by_what_they_cost() -> None:
    def sizes(d: int) -> list[int]:
        kernels = np.random.default_rng(d).dirichlet(np.ones(2), size=(d, 2, 1))
        agent = orl.OccamMixture(features=orl.FeatureMap(list(kernels)))
        assert logsumexp(agent.log_weights) == pytest.approx(0.0, abs=1e-12)
        return [int(each) for each in np.unique(agent.sets.sum(axis=1))]

    assert [sizes(d) for d in (1, 2, 3, 40, 41, 94, 95)] == [
        [1], [1, 2], [1, 2, 3], [1, 2, 3, 40], [1, 2, 41], [1, 2, 94], [1, 95]
    ]  # fmt: skip  # one list per d


# ---------------------------------------------------------------------------------------------------- signed features


def agent_of(problem: SparseMixture, **options: Any) -> orl.OccamLin:
    return orl.OccamLin(features=orl.FeatureMap(problem.phi), **options)


def test_base_law_and_directions_span_all_kernels_of_the_features() -> None:
    agent = agent_of(SMALL)
    assert agent.base == pytest.approx([1.0, 0.0, 0.0, 0.0])
    assert agent.directions == pytest.approx(np.eye(4)[:, 1:])
    simulators = orl.OccamLin(features=orl.FeatureMap(list(KERNELS)), scale=2.0)
    assert simulators.base == pytest.approx(np.full(4, 0.25))
    assert simulators.directions.shape == (4, 3)
    assert simulators.directions.sum(axis=0) == pytest.approx(0.0, abs=1e-12)
    assert simulators.directions.T @ simulators.directions == pytest.approx(4.0 * np.eye(3))


@pytest.mark.parametrize("n", [1, 2])
def test_evidence_of_a_set_is_its_integral_over_the_prior(n: int) -> None:
    """L9 up to the Gaussian approximation, which is exact as N grows: log evidence ratios within .05."""
    draw = np.random.default_rng(n)
    base, directions = np.full(6, 1.0 / 6.0), draw.uniform(-0.1, 0.1, (6, n))
    directions -= directions.mean(axis=0)
    counts = draw.multinomial(40_000, base + directions @ draw.uniform(-0.3, 0.3, n)) + 0.5 * base
    eta, information, linear = expand(counts, base, directions, np.zeros(n))
    slope = directions.T @ (counts / (base + directions @ eta)) - eta
    assert slope @ np.linalg.solve(information + np.eye(n), slope) < 2e-8  # twice what is left to gain, in nats
    spread = 6.0 * np.sqrt(np.diag(np.linalg.inv(information + np.eye(n))))
    axes = [np.linspace(m - s, m + s, 301) for m, s in zip(eta, spread, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, n)
    cell = math.prod(axis[1] - axis[0] for axis in axes)
    prior = np.atleast_1d(multivariate_normal(np.zeros(n)).logpdf(points))
    whole = logsumexp(np.log(base + points @ directions.T) @ counts + prior) + math.log(cell)
    precision = information + np.eye(n)
    gaussian = 0.5 * linear @ np.linalg.solve(precision, linear) - 0.5 * np.linalg.slogdet(precision)[1]
    at_zero = counts @ np.log(base)
    # exact evidence of D against that of the empty set, and L9's; L9 expands at eta, so its empty set is an expansion
    expanded = counts @ np.log(base + directions @ eta) - linear @ eta + 0.5 * eta @ information @ eta
    assert whole == pytest.approx(expanded + gaussian, abs=0.05)
    assert abs(at_zero - expanded) < 0.1 * abs(whole - at_zero)


def log_posterior(agent: orl.OccamLin, state: dict[str, Any], active: tuple[int, ...]) -> float:
    at = list(active)
    precision, b = state["information"][np.ix_(at, at)] + np.eye(len(at)), state["linear"][at]
    n = state["linear"].size
    prior = -math.log(n + 1.0) - math.log(math.comb(n, len(at)))
    return prior + 0.5 * float(b @ np.linalg.solve(precision, b)) - 0.5 * float(np.linalg.slogdet(precision)[1])


def test_the_walk_draws_sets_by_their_weights(test_seed: int) -> None:
    """Odds of single flips to rounding; the sets after many walks against all eight weights, at level 10^-5."""
    agent = agent_of(SMALL)
    n, draw = 3, stream(test_seed, "occam_linear", "walk")
    root, sets = draw.normal(size=(n, n)), [each for k in range(4) for each in itertools.combinations(range(n), k)]
    state = {"information": root @ root.T, "linear": draw.normal(size=n), "active": np.zeros(n, dtype=np.int64)}
    logs = {each: log_posterior(agent, state, each) for each in sets}
    for each in sets:
        state["active"] = np.isin(np.arange(n), each).astype(np.int64)
        flips = [tuple(sorted(set(each) ^ {j})) for j in range(n)]
        assert agent.flip_odds(state) == pytest.approx([logs[other] - logs[each] for other in flips], abs=1e-9)
    seen = dict.fromkeys(sets, 0)
    for walk in range(3_200):
        agent.walk(state, draw)
        if walk % 4 == 3:  # nearly independent
            seen[tuple(np.flatnonzero(state["active"]).tolist())] += 1
    weights = np.exp(np.array(list(logs.values())) - logsumexp(list(logs.values())))
    assert chisquare(list(seen.values()), 800 * weights).pvalue > 1e-5


def test_few_coordinates_are_found_and_played() -> None:
    problem = SparseMixture(states=6, actions=3, horizon=5, dimension=12, nonzero=3, seed=4)
    agent = agent_of(problem)
    result = orl.run(agent, problem, episodes=1_500, seed=0, progress=False)
    found = agent.facts(problem.mdp.known, result.state)
    assert set(problem.support[1:]) <= set(found["coordinates"])
    assert len(found["coordinates"]) <= 4
    assert found["theta"] == pytest.approx(problem.theta, abs=0.25)
    assert found["guarantee"] == "measured, not proved"
    assert result.regret[-500:].mean() < 0.01 < result.regret[:20].mean()


# -------------------------------------------------------------------------------------------------------------- both


def test_next_states_with_several_rewards_are_told_apart() -> None:
    """Two tables that differ in the rewards of one next state alone: the second is found from rewards alone."""
    tables = [[[[(p, 0, 1.0), (1.0 - p, 0, 0.0)]]] for p in (0.2, 0.9)]
    first, second = (orl.FiniteMDP(outcomes=table, horizon=5) for table in tables)
    agent = orl.OccamMixture(features=orl.FeatureMap.of_simulators([first, second]))
    state = orl.run(agent, second, episodes=50, seed=0, progress=False).state
    assert state["counts"].sum() == 250
    assert state["unlisted"] == 0
    assert agent.facts(second.known, state)["smallest"] == [[1]]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: orl.OccamMixture(features=KERNELS), ParameterError),  # type: ignore[arg-type]  # the error is the test
        (lambda: orl.OccamMixture(features=MIXTURE.features, delta=0.0), ParameterError),
        (lambda: orl.OccamMixture(features=orl.FeatureMap(SMALL.phi)), FeatureError),
        (lambda: orl.OccamMixture(features=orl.FeatureMap.tabular(states=2, actions=1)), FeatureError),
        (lambda: orl.OccamLin(features=orl.FeatureMap(SMALL.phi), scale=-1.0), ParameterError),
        (lambda: orl.OccamLin(features=orl.FeatureMap(ONLY_AT_THE_EDGE)), FeatureError),
        (lambda: MIXTURE.begin(MDP.known.without_rewards), ParameterError),
    ],
)
def test_bad_input_is_refused(make: Any, error: type[InvalidInput]) -> None:
    with pytest.raises(error):
        make()
