"""Lists of kernels: losses, likelihoods, mixtures, confidence sets, UCRL-VTR, ARL-GEN, Occam, PSRL, supports."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import binomtest

from occamrl import bellman, paper
from occamrl.analysis.supports import Counts, ValueRows, compatible, supports
from occamrl.errors import ParameterError
from occamrl.evidence import counts, hulls, value
from occamrl.evidence.lists import Members
from occamrl.learners.occam import Occam
from occamrl.learners.psrl import PSRL
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.families import AggregationFamily, CoverFamily, FiniteFamily, LinearFamily
from occamrl.models.features import FeatureMap
from occamrl.models.ladder import Ladder
from occamrl.models.simulators import Simulators
from occamrl.paper import theorems
from occamrl.problems.lakes import PatchyIce
from occamrl.problems.mdp import FiniteMDP
from occamrl.problems.mixtures import ReferenceLadder
from occamrl.protocols import Flow, Known, Outcomes
from occamrl.running.flow import simulate
from occamrl.running.run import run
from occamrl.selectors.arl_gen import ARLGen

S, A, H = 3, 2, 4


def random_kernels(count: int, seed: int = 0, states: int = S) -> Any:
    return np.random.default_rng(seed).dirichlet(np.ones(states), size=(count, states, A))


def random_mdp(
    kernel: Any, *, on_transitions: bool = False, seed: int = 1, horizon: int = H, **more: Any
) -> FiniteMDP:
    states = kernel.shape[-1]
    shape = (states, A, states) if on_transitions else (states, A)
    reward = np.random.default_rng(seed).random(shape)
    return FiniteMDP(transition=kernel, reward=reward, horizon=horizon, **more)


def random_ladder(sizes: tuple[int, ...] = (1, 3, 6), seed: int = 0) -> Ladder:
    kernels = random_kernels(sizes[-1], seed)
    return Ladder([FiniteFamily(kernels[:n]) for n in sizes])


def blocks(agent: Any, mdp: FiniteMDP, episodes: int, seed: int = 0) -> Any:
    """Play, and yield the state before every block, its plan and its flow."""
    state, k = agent.begin(mdp.known), 0
    while k < episodes:
        plan = agent.plan(mdp.known, state, np.random.default_rng([seed, k, 0]))
        flow = simulate(
            mdp, plan.policy, min(plan.episodes, episodes - k), np.random.default_rng([seed, k, 1])
        )
        yield state, plan, flow
        agent.learn(mdp.known, state, plan, flow)
        k += flow.episodes


def steps_of(flow: Flow) -> list[tuple[int, int, int, int]]:
    columns = (flow.step, flow.state, flow.action, flow.next_state, flow.count)
    return [(h, s, a, s2) for h, s, a, s2, n in zip(*columns, strict=True) for _ in range(n)]


# Losses and likelihoods ---------------------------------------------------------------------------


def begin_state(outcomes: Outcomes, sizes: Sequence[int] = ()) -> Any:
    """Return counts, and hulls of the first members, before any data."""
    weights, score, fitted = hulls.begin_hulls(list(sizes))
    return {**counts.begin_counts(outcomes), "weights": weights, "score": score, "fitted": fitted}


def add_flow(state: Any, outcomes: Outcomes, known: Any, flow: Flow, kernels: Any = None) -> None:
    """Count a flow, and score hulls on it."""
    before = state["count"]
    pair = flow.state * known.actions + flow.action
    bonus = flow.bonus(known, outcomes)
    block = counts.count_outcomes(state, outcomes, pair, flow, bonus, known.states)
    if kernels is not None:
        hulls.score_hulls(state, outcomes, kernels, before, block)


@pytest.mark.parametrize("on_transitions", [False, True])
def test_losses_and_likelihoods_are_their_definitions(on_transitions: bool) -> None:
    kernels = random_kernels(5)
    mdp, family = random_mdp(kernels[1], on_transitions=on_transitions), FiniteFamily(kernels)
    agent, members = UCRLVTR(family=family), Members.of(family, mdp.known)
    reward = np.random.default_rng(1).random(
        (S, A, S)
    )  # that of the problem, where it is on transitions
    counted, losses, logs, seen = (
        begin_state(members.outcomes),
        np.zeros(5),
        np.zeros(5),
        np.zeros((S, A, S)),
    )
    for state, plan, flow in blocks(agent, mdp, 40):
        final = state
        add_flow(counted, members.outcomes, mdp.known, flow)
        for h, s, a, s2 in steps_of(flow):
            target = reward[s, a] * on_transitions + plan.values[h + 1]
            spread = target.max() - target.min()
            if spread > 0:
                losses += ((target[s2] - kernels[:, s, a] @ target) / spread) ** 2
            logs += np.log(kernels[:, s, a, s2])
            seen[s, a, s2] += 1
    total = np.maximum(seen.sum(axis=2, keepdims=True), 1)
    best = (seen * np.log(np.where(seen > 0, seen / total, 1.0))).sum()
    np.testing.assert_allclose(agent.losses(final)[0] + final["yy"][0], losses, rtol=1e-9)
    np.testing.assert_allclose(members.likelihoods(counted["count"]), logs - best, rtol=1e-9)


def test_counts_predict_a_block_as_its_outcomes_one_by_one() -> None:
    draw = np.random.default_rng(3)
    outcomes = Outcomes(np.array([0, 3, 5, 6]), np.array([0, 1, 2, 0, 2, 1]), np.zeros(6))
    sequence = draw.integers(0, 6, size=60)
    seen, log_q = np.zeros(6, np.int64), 0.0
    for t, o in enumerate(sequence):
        own = slice(outcomes.start[outcomes.pair[o]], outcomes.start[outcomes.pair[o] + 1])
        reserved = 0.01 / (t + 1.01)  # for a novel outcome
        log_q += math.log(
            (1 - reserved) * (seen[o] + 0.5) / (seen[own].sum() + 0.5 * (own.stop - own.start))
        )
        seen[o] += 1
    frequencies = float(seen @ counts.log_frequencies(seen, outcomes))
    assert counts.counted_evidence(seen, outcomes) == pytest.approx(log_q - frequencies, abs=1e-9)
    novel = log_q + math.log(0.01 / (60 + 1.01))
    assert counts.counted_evidence(seen, outcomes, 1.0) == pytest.approx(
        novel - frequencies, abs=1e-9
    )


def test_a_hull_is_scored_by_predictions_made_before_the_block() -> None:
    ladder = random_ladder((2, 4))
    mdp = random_mdp(random_kernels(4)[3])
    members, log_q = Members.of(ladder.family, mdp.known), np.zeros(2)
    state = begin_state(members.outcomes, [2, 4])
    for k in range(12):
        policy = np.random.default_rng(k).integers(0, A, size=(H, S))
        flow = simulate(mdp, policy, 3, np.random.default_rng([k, 1]))
        symbol = members.outcomes.index_of(
            flow.state * A + flow.action, flow.next_state, np.zeros(flow.step.size), S
        )
        for c, weights in enumerate(state["weights"]):
            log_q[c] += flow.count @ np.log(weights @ members.hull[: weights.size, symbol])
        add_flow(state, members.outcomes, mdp.known, flow, members.hull)
    frequencies = state["count"] @ counts.log_frequencies(state["count"], members.outcomes)
    np.testing.assert_allclose(state["score"], log_q - frequencies, atol=1e-9)
    assert all(abs(weights.sum() - 1) < 1e-12 for weights in state["weights"])


def test_evidence_keeps_its_digits_at_very_large_counts() -> None:
    eighths = np.array([[4, 3, 1], [2, 2, 4], [1, 6, 1]]) / 8
    kernels = np.stack(
        [np.stack([eighths, eighths[::-1]], axis=1), np.stack([eighths, eighths], axis=1)]
    )
    family = FiniteFamily(kernels)
    known = random_mdp(kernels[0]).known
    members = Members.of(family, known)
    for visits in (8, 8 * 10**15):
        count = np.round(visits * members.probability(slice(0, 1))[0]).astype(np.int64)
        found = members.likelihoods(count)
        entropy = kernels[0] * np.log(kernels[0] / kernels[1])
        assert found[0] == 0.0
        assert found[1] == pytest.approx(-visits * entropy.sum(), rel=1e-12)
        degrees = S * A * (S - 1)  # each costs about (1/2) log N
        expected = -0.5 * degrees * math.log(visits)
        assert abs(counts.counted_evidence(count, members.outcomes) - expected) < 8.0


def hull_data(n: int, seed: int) -> tuple[hulls.Seen, Any]:
    draw = np.random.default_rng(seed)
    kernels = draw.dirichlet(np.ones(4), size=(n, 3)).reshape(n, 12)
    outcomes = Outcomes(np.arange(4) * 4, np.tile(np.arange(4), 3), np.zeros(12))
    truth = draw.dirichlet(np.ones(4), size=3)
    count = np.concatenate([draw.multinomial(50, row) for row in truth])
    return hulls.seen_by(count, outcomes, kernels), draw


@pytest.mark.parametrize("seed", range(4))
def test_mixtures_against_a_general_optimiser(seed: int) -> None:
    data, draw = hull_data(5, seed)

    def loss(weights: Any) -> float:
        return -float(data.count @ (np.log(weights @ data.kernels) - data.frequency))

    simplex: Any = {
        "bounds": [(0.0, 1.0)] * 5,
        "constraints": {"type": "eq", "fun": lambda weights: weights.sum() - 1},
    }
    starts = draw.dirichlet(np.ones(5), size=3)
    best = -min(minimize(loss, start, method="SLSQP", tol=1e-12, **simplex).fun for start in starts)
    even, last = np.full(5, 0.2), -math.inf
    for steps in (0, 1, 5, 30, 400):
        weights = hulls.hull_fit(data, even, steps, 0.0)
        found = hulls.hull_likelihood(data, weights)[0]
        assert last - 1e-9 <= found <= best + 1e-4  # EM never goes down
        assert hulls.hull_bound(data, weights) >= best - 1e-4  # whatever the weights
        last = found
    assert last == pytest.approx(best, abs=0.05)
    newton, bound, _ = hulls.hull_maximum(data, even)
    assert newton == pytest.approx(best, abs=2e-3)
    assert newton <= bound <= newton + 1e-3
    # the evidence of the hull is below the mean likelihood over the simplex, itself below the best
    flat = draw.dirichlet(np.ones(5), size=20_000)
    logs = (np.log(flat @ data.kernels) - data.frequency) @ data.count
    mean = float(logsumexp(logs)) - math.log(len(flat))
    assert hulls.hull_evidence(data, hulls.hull_maximum(data, even)[2]) <= mean + 0.2
    assert mean < best


def test_impossible_outcomes_are_impossible_for_ever_and_novel_ones_join_the_table() -> None:
    kernels = np.zeros((2, S, A, S))
    kernels[0, ..., 0], kernels[1, ..., 1] = 1.0, 1.0  # nobody goes to 2
    family, mdp = FiniteFamily(kernels), random_mdp(kernels.mean(axis=0))
    members = Members.of(family, mdp.known)
    state: Any = begin_state(members.outcomes, [2])
    add_flow(
        state,
        members.outcomes,
        mdp.known,
        Flow.of_episode([0, 0, 1], [0, 0], [0.0, 0.0]),
        members.hull,
    )
    assert (
        members.likelihoods(state["count"]) == -np.inf
    ).all()  # each makes one of the two impossible
    assert hulls.open_hulls(state, members.outcomes, members.hull, -100.0).all()
    add_flow(state, members.outcomes, mdp.known, Flow.of_episode([0, 2], [1], [0.0]), members.hull)
    assert not hulls.open_hulls(state, members.outcomes, members.hull, -1e9).any()
    outcomes, probability = hulls.draw_table(state, members.outcomes, np.random.default_rng(0))
    kernel = bellman.kernel_of(outcomes, probability, mdp.known).matrix
    np.testing.assert_allclose(kernel.sum(axis=1), 1.0)
    assert kernel[1, 2] > 0 and (kernel[np.arange(6) != 1, 2] == 0).all()  # noqa: PT018


def test_tabular_draws_are_dirichlet() -> None:
    outcomes = Outcomes(np.array([0, 3]), np.arange(3), np.zeros(3))
    state: Any = {"count": np.array([5, 0, 2]), "novel": np.zeros((0, 4))}
    draw = np.random.default_rng(0)
    drawn = np.array([hulls.draw_table(state, outcomes, draw)[1] for _ in range(4000)])
    alpha = np.array([5.5, 0.5, 2.5])
    mean = alpha / alpha.sum()
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.012)
    np.testing.assert_allclose(drawn.var(axis=0), mean * (1 - mean) / (alpha.sum() + 1), rtol=0.12)


# Confidence ---------------------------------------------------------------------------------------


def worst_scores(kind: str, runs: int) -> Any:
    """Return, of every run, by how much the score of the truth exceeded the mixture's, at worst, in nats."""
    ladder, found = random_ladder(), []
    mdp = random_mdp(random_kernels(6)[4])
    agent: Any = Occam(ladder=ladder, scope="all", replan=0.0)
    if kind == "value":
        agent = UCRLVTR(family=ladder.family, prior=ladder.prior, replan=0.0)
    for seed in range(runs):
        worst = 0.0
        for state, _, _ in blocks(agent, mdp, 12, seed):
            if kind == "value":
                losses = agent.losses(state)
                worst = max(
                    worst, 2 * losses[0, 4] - value.threshold(2 * losses[0], agent.log_prior, 1.0)
                )
            else:
                evidence = agent.evidence(mdp.known)
                scores = evidence.scores(state["evidence"])
                worst = max(worst, evidence.log_mixture(scores) - scores[4])
        found.append(worst)
    return np.array(found)


@pytest.mark.parametrize("kind", ["value", "likelihood"])
def test_the_truth_stays_alive_at_all_times_with_probability_one_minus_delta(kind: str) -> None:
    worst = worst_scores(kind, 100)
    for delta in (0.05, 0.5):
        lost = int((worst > math.log(1 / delta)).sum())
        assert binomtest(lost, worst.size, delta, alternative="greater").pvalue > 1e-3
    without = int((worst > 0.0).sum())  # the control, which has no slack, must fail
    assert binomtest(without, worst.size, 0.05, alternative="greater").pvalue < 1e-6


def test_members_of_the_sharp_set_are_those_of_its_definition() -> None:
    ladder = random_ladder()
    agent, mdp = (
        UCRLVTR(family=ladder.family, prior=ladder.prior, delta=0.2),
        random_mdp(random_kernels(6)[2]),
    )
    *_, (state, _, _) = blocks(agent, mdp, 200)
    losses = agent.losses(state)[0]
    right = -0.5 * math.log((ladder.prior * np.exp(-2 * losses)).sum() / 0.2**-1)
    assert (agent.confidence_set(state)[0] == (losses <= right)).all()
    assert agent.confidence_set(state)[0].sum() < 6


def test_a_cover_keeps_the_point_nearest_to_a_truth_between_its_points() -> None:
    def kernel(parameters: Any) -> Any:
        up = float(parameters[0])
        return np.broadcast_to([1 - up, 0.0, up], (S, A, S))

    exact, cover = (
        CoverFamily(kernel, low=[0.2], high=[1.0], step=[0.2], reach=r) for r in (0.0, None)
    )
    mdp = random_mdp(kernel([0.5]))  # between .4 and .6
    kept = []
    for family in (exact, cover):
        agent = UCRLVTR(family=family)
        *_, (state, _, _) = blocks(agent, mdp, 200_000)
        kept.append(agent.confidence_set(state)[0])
    assert (
        kept[0].sum() <= 1
    )  # one of the two neighbours has gone, and the other stays for want of rivals
    assert kept[1][[1, 2]].all()
    assert not kept[1][[0, 4]].any()
    with pytest.raises(ParameterError, match="ARLGen"):
        Occam(ladder=Ladder([cover]))


# Learners -----------------------------------------------------------------------------------------


def test_a_plan_lasts_a_tenth_of_what_its_member_has_played() -> None:
    ladder, mdp = random_ladder(), random_mdp(random_kernels(6)[2])
    occam = Occam(ladder=ladder)
    for agent in (UCRLVTR(family=ladder.family), ARLGen(ladder=ladder), occam):
        for state, plan, _ in blocks(agent, mdp, 1000):
            member = plan.diagnostics.get("member", plan.diagnostics.get("source"))
            played = dict(enumerate(state["plays"])) if agent is not occam else state["plays"]
            assert plan.episodes == max(1, int(0.1 * played.get(member, 0)))
        assert sum(played.values()) + plan.episodes >= 1000
    sampler = Occam(ladder=ladder, acting="sampling")
    assert all(
        plan.episodes <= max(1, 0.02 * state["evidence"]["episodes"])
        for state, plan, _ in blocks(sampler, mdp, 300)
    )
    assert all(plan.episodes == 1 for _, plan, _ in blocks(PSRL(), mdp, 30))


def linear_ladder() -> Ladder:
    features = FeatureMap(list(random_kernels(4)))
    return Ladder(
        [LinearFamily(features=features, norm_bound=1.0, coordinates=range(n)) for n in (1, 2, 4)]
    )


def every_agent(ladder: Ladder) -> list[Any]:
    return [
        UCRLVTR(family=ladder.family),
        UCRLVTR(family=ladder.family, kernel="per_step"),
        ARLGen(ladder=ladder),
        ARLGen(ladder=ladder, scope="all"),
        ARLGen(ladder=linear_ladder()),
        Occam(ladder=ladder),
        Occam(ladder=ladder, acting="sampling", scope="all"),
        PSRL(),
        PSRL(ladder=Ladder([ladder.family])),
        PSRL(ladder=ladder),
    ]


@pytest.mark.parametrize(("start", "on_transitions"), [(0, True), ([0.2, 0.5, 0.3], False)])
def test_plans_are_pure_and_every_kind_of_problem_is_played(
    start: Any, on_transitions: bool
) -> None:
    mdp = random_mdp(random_kernels(6)[1], on_transitions=on_transitions, initial_state=start)
    for agent in every_agent(random_ladder()):
        regret, done = 0.0, 0
        for state, plan, flow in blocks(agent, mdp, 100):
            before = copy.deepcopy(state)
            again = agent.plan(mdp.known, state, np.random.default_rng([0, done, 0]))
            np.testing.assert_equal(state, before)
            np.testing.assert_array_equal(again.policy, plan.policy)
            lost = mdp.initial_distribution @ (mdp.optimal_values[0] - mdp.evaluate(plan.policy)[0])
            regret, done = regret + flow.episodes * float(lost), done + flow.episodes
        worst = mdp.optimal_value - min(
            float(mdp.initial_distribution @ mdp.evaluate(np.full((H, S), a))[0]) for a in range(A)
        )
        assert regret <= 0.5 * 100 * worst
        with pytest.raises(ParameterError):
            agent.begin(Known.of_sizes(states=S, actions=A, horizon=H))


def test_optimism_by_steps_is_no_less_than_that_of_any_choice() -> None:
    kernels = random_kernels(3)
    mdp = random_mdp(np.stack([kernels[h % 3] for h in range(H)]))
    agent = UCRLVTR(family=FiniteFamily(kernels), kernel="per_step")
    for state, plan, _ in blocks(agent, mdp, 60):
        assert (plan.values[0] >= mdp.optimal_values[0] - 1e-9).all() or not agent.confidence_set(
            state
        ).all()
    reward = mdp.known.base_reward
    fresh = agent.plan(mdp.known, agent.begin(mdp.known), np.random.default_rng(0))
    values = np.zeros(S)
    for h in reversed(range(H)):
        values = (reward + (kernels @ values).max(axis=0)).max(axis=1)
        np.testing.assert_allclose(np.array(fresh.values)[h], values)


def test_posterior_weights_are_those_of_bayes() -> None:
    ladder, mdp = random_ladder(), random_mdp(random_kernels(6)[5])
    for agent, prior in (
        (PSRL(ladder=ladder), ladder.prior),
        (PSRL(ladder=Ladder([ladder.family])), np.full(6, 1 / 6)),
    ):
        posterior, kernels = prior.copy(), np.stack([ladder.family.kernel(i) for i in range(6)])
        for state, _, flow in blocks(agent, mdp, 12):
            weight = agent.log_posterior(mdp.known, state)
            np.testing.assert_allclose(
                np.exp(weight - logsumexp(weight)), posterior / posterior.sum(), rtol=1e-8
            )
            for _, s, a, s2 in steps_of(flow):
                posterior = posterior * kernels[:, s, a, s2]


@pytest.mark.parametrize("nonzero", range(4))
def test_the_right_class_of_the_reference_ladder_is_found(nonzero: int) -> None:
    problem = ReferenceLadder(nonzero=nonzero)
    ladder = Ladder.of_problem(problem)
    for agent, most in ((ARLGen(ladder=ladder), 90.0), (Occam(ladder=ladder), 60.0)):
        result = run(agent, problem, episodes=400, seed=5, progress=False)
        assert result.verdict["chosen"] == nonzero + 1
        assert not result.verdict["misspecified"]
        assert result.total_regret < most
    letter = run(paper.ARLGen(ladder=ladder), problem, episodes=40, progress=False)
    assert (
        letter.verdict["chosen"] == 1
    )  # the paper's threshold is far above what the noise requires


def test_linear_classes_and_aggregations_are_selected() -> None:
    mdp = random_mdp(random_kernels(4)[:2].mean(axis=0))
    result = run(ARLGen(ladder=linear_ladder()), mdp, episodes=20_000, progress=False)
    assert result.verdict["chosen"] == 2
    assert not result.verdict["misspecified"]
    law = np.random.default_rng(2).dirichlet(np.ones(4), size=(2, A))
    truth = law[[0, 0, 1, 1]]
    classes = [AggregationFamily(partition=p, actions=A) for p in ([0] * 4, [0, 0, 1, 1], range(4))]
    result = run(ARLGen(ladder=Ladder(classes)), random_mdp(truth), episodes=20_000, progress=False)
    assert result.verdict["chosen"] == 2
    assert not result.verdict["misspecified"]
    with pytest.raises(ParameterError):
        ARLGen(ladder=linear_ladder(), scope="all")


def test_truths_outside_a_ladder_are_noticed_and_mixtures_played() -> None:
    ice: dict[str, Any] = {"levels": (0.0, 0.1), "horizon": 30, "rows": 4}
    ladder = Ladder.of_problem(PatchyIce(slip=(0.1,), **ice))
    wrong = PatchyIce(slip=(0.2,), levels=(0.0, 0.1, 0.2), horizon=30, rows=4)
    right = PatchyIce(slip=(0.1,), **ice)
    between = FiniteMDP(
        transition=np.mean(
            [right.mdp.kernel(), PatchyIce(slip=(0.0,), **ice).mdp.kernel()], axis=0
        ),
        reward=right.reward,
        horizon=30,
    )
    for sampling in (False, True):
        agent = Occam(ladder=ladder, acting="sampling" if sampling else "optimism")
        found = run(agent, between, episodes=300, progress=False)
        assert found.verdict["misspecified"]
        assert found.verdict["misspecified_since"] < 150
        assert found.verdict["hulls"][0] == 1
        assert found.regret[-50:].mean() < 0.02
        assert not run(agent, right, episodes=100, progress=False).verdict["misspecified"]
    assert run(Occam(ladder=ladder), wrong, episodes=60, progress=False).verdict["misspecified"]
    assert run(ARLGen(ladder=ladder), wrong, episodes=2000, progress=False).verdict["misspecified"]
    assert not run(ARLGen(ladder=ladder), right, episodes=2000, progress=False).verdict[
        "misspecified"
    ]


# To the letter ------------------------------------------------------------------------------------


def test_the_letter_has_the_losses_and_distances_of_its_definitions() -> None:
    kernels = random_kernels(5)
    family, mdp = FiniteFamily(kernels), random_mdp(kernels[1])
    agent, losses, zs = paper.UCRLVTR(family=family), np.zeros(5), []
    for state, plan, flow in blocks(agent, mdp, 30):
        final = state
        for h, s, a, s2 in steps_of(flow):
            z = kernels[:, s, a] @ plan.values[h + 1]
            losses += (plan.values[h + 1, s2] - z) ** 2
            zs.append(z)
    np.testing.assert_allclose(agent.losses(final), losses)
    distances = ((np.array(zs) - np.array(zs)[:, [losses.argmin()]]) ** 2).sum(axis=0)
    wide = agent.beta(H)
    assert wide == 8 * H**2 * math.log(5 / 0.05)
    assert (agent.confidence_set(mdp.known, final) == (distances <= wide)).all()


def test_the_letter_and_the_sharp_learner_agree_without_data_and_with_very_many() -> None:
    kernels = random_kernels(5)
    family, mdp = FiniteFamily(kernels), random_mdp(kernels[1])
    letter, sharp, draw = (
        paper.UCRLVTR(family=family),
        UCRLVTR(family=family),
        np.random.default_rng(0),
    )
    states = letter.begin(mdp.known), sharp.begin(mdp.known)
    plans = letter.plan(mdp.known, states[0], draw), sharp.plan(mdp.known, states[1], draw)
    np.testing.assert_array_equal(plans[0].policy, plans[1].policy)
    np.testing.assert_allclose(np.array(plans[0].values), np.array(plans[1].values))
    everywhere = np.full((H, S, A), 1 / A)
    flow = simulate(mdp, everywhere, 10**7, draw)
    for agent, state, plan in zip((letter, sharp), states, plans, strict=True):
        agent.learn(mdp.known, state, plan, flow)
        np.testing.assert_allclose(
            np.array(agent.plan(mdp.known, state, draw).values), mdp.optimal_values
        )
    assert letter.confidence_set(mdp.known, states[0]).sum() == 1
    assert sharp.confidence_set(states[1])[0].sum() == 1


def test_epochs_of_the_letter() -> None:
    ladder, mdp = random_ladder(), random_mdp(random_kernels(6)[4])
    agent = paper.ARLGen(ladder=ladder)
    kernels, losses = random_kernels(6), np.zeros(6)
    for k, (_, plan, flow) in enumerate(blocks(agent, mdp, 62)):
        i = int(math.log2(k + 2))
        assert plan.facts["epoch"] == i
        if k == 2**i - 2 and k:
            means = np.array([losses[:n].min() for n in (1, 3, 6)]) / (k * H)
            np.testing.assert_allclose(plan.diagnostics["statistics"], means)
            assert plan.diagnostics["threshold"] == pytest.approx(
                means[-1] + math.sqrt(i) / 2 ** (i / 2)
            )
            assert plan.facts["chosen"] == 1 + int(
                np.argmax(means <= plan.diagnostics["threshold"])
            )
        for h, s, a, s2 in steps_of(flow):
            losses += (plan.values[h + 1, s2] - kernels[:, s, a] @ plan.values[h + 1]) ** 2


def test_right_hand_sides_of_theorems() -> None:
    assert theorems.eluder_dimension(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), 0.5) == 2
    assert (
        theorems.eluder_dimension(np.array([[0.0, 0.0], [1.0, 1.0]]), 0.5) == 1
    )  # one point tells all
    assert theorems.eluder_dimension(np.zeros((3, 4)), 0.1) == 0
    mdp, family = random_mdp(random_kernels(3)[0], horizon=3), FiniteFamily(random_kernels(3))
    setting = theorems.Setting(horizon=3, episodes=200, delta=0.05)
    beta = paper.UCRLVTR(family=family).beta(3)
    bound = theorems.regret_bound_vtr(setting, radius=beta, eluder=2)
    assert bound["total"] == pytest.approx(
        1 + 18 + 4 * math.sqrt(beta * 2 * 600) + 3 * math.sqrt(1200 * math.log(20))
    )
    assert (
        run(paper.UCRLVTR(family=family), mdp, episodes=200, progress=False).total_regret
        < bound["total"]
    )
    generic = theorems.regret_bound_generic(
        setting, radius=lambda k, d: beta, eluder=2, first_epoch=3
    )
    assert generic["selection"] == 6 * 3
    epochs = [
        theorems.selection_epoch_generic(horizon=3, delta=0.05, separation=gap, entropy=2.0)
        for gap in (0.5, 0.1, 0.02)
    ]
    assert epochs == sorted(set(epochs))
    linear = theorems.Setting(
        horizon=3, episodes=10**6, delta=0.05, dimension=8, initial_episodes=16, norm_bound=4.0
    )
    few = theorems.regret_bound_dimension(linear, sparsity=2, first_epoch=0)
    assert (
        few["total"] < theorems.regret_bound_dimension(linear, sparsity=8, first_epoch=0)["total"]
    )
    bounds = [each.norm_bound for each in theorems.norm_epochs(linear, true_norm=1.0)]
    assert bounds[0] == 4.0
    assert bounds[-1] < bounds[-2]
    assert theorems.tau_min(linear) > 0
    assert theorems.selection_epoch_dimension(linear, smallest=0.5) >= 1


# Which simulators matter --------------------------------------------------------------------------


def minimal(compatible: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    return {each for each in compatible if not any(set(other) < set(each) for other in compatible)}


def test_compatible_sets_by_value_are_all_that_meet_the_sharp_set() -> None:
    draw = np.random.default_rng(4)
    x = draw.uniform(-0.4, 0.4, size=(4_000, 4))
    mean = x @ [0.5, 0.5, 0.0, 0.0]
    y = np.where(
        draw.random(4_000) < mean + 0.5, 0.5, -0.5
    )  # as noisy as targets of range one can be
    rows = ValueRows(x.T @ x, x.T @ y)
    found, allowance, _ = compatible(rows, 0.05)
    every = [each for m in range(1, 5) for each in combinations(range(4), m)]

    def least(members: tuple[int, ...]) -> float:
        index = list(members)
        gram, xy = rows.gram[np.ix_(index, index)], rows.xy[index]

        def loss(w: Any) -> float:
            return float(w @ gram @ w - 2 * xy @ w)

        rule: Any = {"type": "eq", "fun": lambda w: w.sum() - 1}
        start = np.full(len(index), 1 / len(index))
        return float(
            minimize(loss, start, bounds=[(0, 1)] * len(index), constraints=[rule], tol=1e-12).fun
        )

    losses = {each: least(each) for each in every}
    limit = min(losses.values()) + allowance
    assert set(found) == minimal({each for each, loss in losses.items() if loss <= limit})
    assert list(found) == [(0, 1)]


def test_compatible_sets_by_likelihood_are_all_that_are_likely_enough() -> None:
    kernels = random_kernels(4)
    features = FeatureMap(list(kernels))
    mdp = random_mdp(0.5 * kernels[0] + 0.5 * kernels[1])
    symbols = counts.symbols_of(features, mdp.known)
    state = begin_state(symbols.outcomes)
    flow = simulate(mdp, np.full((H, S, A), 1 / A), 200, np.random.default_rng(0))
    add_flow(state, symbols.outcomes, mdp.known, flow)
    seen = Counts(state, symbols.outcomes, symbols.join(np.asarray(features.matrix).T))
    found, allowance, _ = compatible(seen, 0.05)
    every = [each for m in range(1, 5) for each in combinations(range(4), m)]
    best = {each: seen.fit(each)[0] for each in every}
    least = max(best.values()) - allowance
    assert set(found) == minimal({each for each, score in best.items() if score >= least})
    assert any(set(each) <= {0, 1} for each in found)
    assert (2,) not in found


def test_the_simulators_that_matter_are_named() -> None:
    kernels = random_kernels(4)
    simulators = Simulators(list(kernels), names=["a", "b", "c", "d"])
    mdp = random_mdp(0.5 * kernels[0] + 0.5 * kernels[1])
    agent = UCRLVTRLin(features=simulators.features, norm_bound=1.0)
    result = run(agent, mdp, episodes=100_000, progress=False)
    report = supports(result, simulators)
    assert report.evidence == "value"
    assert any(set(each.members) <= {"a", "b"} for each in report.sets)
    assert report.rank == 4
    assert "a" in str(report)
    assert report.table.num_rows == len(report.sets)
    refused: list[dict[str, Any]] = [{"evidence": "likelihood"}, {"delta": 0.0}]
    for wrong in refused:
        with pytest.raises(ParameterError):
            supports(result, simulators, **wrong)
    with pytest.raises(ParameterError, match="other kernels"):
        supports(result, Simulators(list(random_kernels(4, seed=9))))
