from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

import occamrl as orl
from occamrl.answers.answer import Answer
from occamrl.evidence.tolerance import (
    Table,
    evidence_rates,
    huber_ratio,
    least_gains,
    least_mean,
    least_values,
    robust_policy,
)
from occamrl.logs.log import simulate_log
from occamrl.protocols import Floats, Outcomes
from occamrl.running.alarm import Watch
from studies.tolerance import loses

LAWS = st.lists(st.integers(0, 6), min_size=2, max_size=5)


def law_of(weights: list[int]) -> Floats:
    weights = weights if sum(weights) else [1] * len(weights)
    return np.array(weights, float) / sum(weights)


def largest_mean(p: Floats, e: Floats, tolerance: float) -> float:
    """Return the largest mean of e over laws near p, by moving mass from the least e on."""
    mass = p.copy()
    best = int(e.argmax())
    left = tolerance
    for i in np.argsort(e):
        moved = min(left, mass[i])
        mass[i] -= moved
        mass[best] += moved
        left -= moved
    return float(mass @ e)


@settings(max_examples=300, deadline=None)
@given(LAWS, LAWS, st.sampled_from([0.001, 0.02, 0.1, 0.3, 0.7]))
def test_the_ratio_is_an_e_value_of_a_law_in_the_ball(
    one: list[int], two: list[int], tolerance: float
) -> None:
    size = min(len(one), len(two))
    q = law_of(one[:size])
    p = law_of(two[:size])
    e = huber_ratio(q, p, tolerance)
    # an e-value against every law of the ball,
    possible = np.where(np.isfinite(e), e, 0.0)
    assert largest_mean(p, possible, tolerance) <= 1.0 + 1e-9
    # and the largest: q over a law that lies in the ball
    nearest = np.divide(q, e, out=np.zeros(size), where=e > 0.0)
    outside = (q == 0.0) & (p > 0.0)
    assert nearest.sum() <= 1.0 + 1e-9
    assert 0.5 * np.abs(nearest - p)[~outside].sum() <= tolerance + 1e-9


def test_without_a_tolerance_it_is_the_ratio_of_likelihoods() -> None:
    q = np.array([0.5, 0.3, 0.2])
    p = np.array([0.2, 0.8, 0.0])
    np.testing.assert_allclose(huber_ratio(q, p, 0.0), [2.5, 0.375, np.inf])


@settings(max_examples=200, deadline=None)
@given(LAWS, st.sampled_from([0.0, 0.05, 0.4, 1.0]), st.randoms(use_true_random=False))
def test_the_least_mean_is_that_of_moving_mass_to_the_least(
    weights: list[int], tolerance: float, random: object
) -> None:
    p = law_of(weights)
    target = np.array([hash((i, w)) % 7 - 3.0 for i, w in enumerate(weights)])
    listed = np.ones(p.size, bool)
    least = least_mean(p[None], target[None], listed[None], tolerance)[0]
    assert least == pytest.approx(-largest_mean(p, -target, tolerance))


def small_table(draw: np.random.Generator, states: int = 3, actions: int = 2) -> Table:
    laws = draw.dirichlet(np.ones(states), size=states * actions)
    next_state = np.tile(np.arange(states), (states * actions, 1))
    bonus = draw.random((states * actions, states))
    listed = np.ones(bonus.shape, bool)
    rewards = draw.random(states * actions)
    return Table(laws[None, None], next_state[None], bonus[None], listed[None], rewards, 1.0)


def returns(table: Table, laws: Floats, policy: np.ndarray, horizon: int) -> Floats:
    """Return the values [S] of a policy [H, S], or shares [H, S, A], in a kernel that is fixed."""
    states = int(table.next_state.max()) + 1
    values = np.zeros(states)
    for h in reversed(range(horizon)):
        target = table.bonus[0] + values[table.next_state[0]]
        q = (table.reward + (laws * target).sum(axis=1)).reshape(states, -1)
        if policy.ndim == 2:
            values = q[np.arange(states), policy[h]]
        else:
            values = (q * policy[h]).sum(axis=1)
    return values


def test_least_values_and_gains_hold_for_worlds_within_the_tolerance() -> None:
    draw = np.random.default_rng(0)
    tightest = np.inf
    for _ in range(60):
        table = small_table(draw)
        policy = draw.integers(2, size=(4, 3))
        today = draw.dirichlet(np.ones(2), size=(4, 3))
        tolerance = float(draw.choice([0.01, 0.1, 0.3]))
        low = least_values(table, policy, tolerance, 1.0)[0, 0]
        high = -least_values(table, policy, tolerance, -1.0)[0, 0]
        gain_low = least_gains(table, policy, today, tolerance, 1.0)[0]
        gain_high = -least_gains(table, policy, today, tolerance, -1.0)[0]
        for _ in range(40):
            # extreme worlds: all of the mass that may move goes from one outcome to another
            laws = table.laws[0, 0].copy()
            for row in laws:
                source, goal = draw.permutation(3)[:2]
                moved = min(tolerance, row[source])
                row[source] -= moved
                row[goal] += moved
            worth = returns(table, laws, policy, 4)
            assert (low - 1e-9 <= worth).all()
            assert (worth <= high + 1e-9).all()
            gain = worth - returns(table, laws, today, 4)
            assert (gain_low - 1e-9 <= gain).all()
            assert (gain <= gain_high + 1e-9).all()
            tightest = min(tightest, float((gain - gain_low).min()))
        np.testing.assert_allclose(
            least_values(table, policy, 0.0, 1.0)[0, 0], returns(table, table.laws[0, 0], policy, 4)
        )
        np.testing.assert_allclose(
            least_gains(table, policy, today, 0.0, 1.0)[0],
            returns(table, table.laws[0, 0], policy, 4)
            - returns(table, table.laws[0, 0], today, 4),
        )
    assert tightest < 0.05  # the bound is come near to


def test_the_robust_policy_has_the_best_worst_case() -> None:
    draw = np.random.default_rng(1)
    for _ in range(10):
        table = small_table(draw)
        robust = robust_policy(table, 3, 2, 0.2)
        best = least_values(table, robust, 0.2, 1.0)[0, 0]
        for choice in itertools.product(range(2), repeat=6):
            policy = np.array(choice).reshape(2, 3)
            assert (least_values(table, policy, 0.2, 1.0)[0, 0] <= best + 1e-9).all()


# Answers ------------------------------------------------------------------------------------------

KERNELS = np.random.default_rng(3).dirichlet(np.full(4, 0.7), size=(3, 4, 2))


def shifted(kernel: Floats, tolerance: float, seed: int = 0) -> Floats:
    """Return a kernel every row of which is off by a tolerance, as far as its mass allows."""
    draw = np.random.default_rng(seed)
    off = kernel.copy()
    for row in off.reshape(-1, kernel.shape[-1]):
        source = int(row.argmax())
        goal = int((source + draw.integers(1, row.size)) % row.size)
        moved = min(tolerance, row[source])
        row[source] -= moved
        row[goal] += moved
    return off


def problem_of(kernel: Floats) -> orl.FiniteMDP:
    reward = np.array([[0.0, 0.1], [0.3, 0.2], [0.6, 0.5], [1.0, 0.9]])
    return orl.FiniteMDP(transition=kernel, reward=reward, horizon=6)


def answered(kernel: Floats, episodes: int, seed: int = 0, **options: Any) -> Answer:
    mdp = problem_of(kernel)
    ladder = orl.Ladder([orl.FiniteFamily(KERNELS[:1]), orl.FiniteFamily(KERNELS)])
    log = simulate_log(mdp, episodes=episodes, seed=seed)
    answer: Answer = orl.select(log, ladder, mdp.known, progress=False, **options)
    return answer


def distance(kernel: Floats, member: Floats) -> float:
    return float(0.5 * np.abs(kernel - member).sum(axis=-1).max())


def test_an_answer_goes_on_where_no_model_is_exactly_right() -> None:
    truth = shifted(KERNELS[0], 0.1)
    answer = answered(truth, 400)
    assert answer.misspecified
    exact = min(distance(truth, member) for member in KERNELS)
    assert 0.0 < answer.off_by.more_than <= exact
    assert answer.surviving is not None
    low, high = answer.range_at(0.1)[1:]
    assert low <= problem_of(truth).value(answer.policy) <= high
    assert np.isnan(answer.interval).all()
    forgiving = answered(truth, 400, tolerance=0.1)
    assert forgiving.model is not None
    assert forgiving.interval[0] <= problem_of(truth).value(forgiving.policy)


def test_a_truth_within_the_tolerance_is_ruled_out_as_rarely_as_promised() -> None:
    runs = 60
    false = {0.1: 0, 0.0: 0}
    above = 0
    for seed in range(runs):
        truth = shifted(KERNELS[0], 0.1, seed)
        answer = answered(truth, 150, seed, delta=0.5)
        evidence: Any = answer.weigher
        state = answer.state
        for forgiven in false:
            false[forgiven] += evidence.weigh(state, forgiven).against[0] > evidence.threshold
        above += evidence.off_by(state).more_than > distance(truth, KERNELS[0])
    assert binomtest(false[0.1], runs, 0.5, alternative="greater").pvalue > 1e-3
    assert binomtest(above, runs, 0.5, alternative="greater").pvalue > 1e-3
    assert binomtest(false[0.0], runs, 0.5, alternative="greater").pvalue < 1e-3  # the control


def test_covers_are_taken_with_a_tolerance_of_half_their_reach() -> None:
    def kernel(chance: Floats) -> Floats:
        rows = np.array([[chance[0], 1.0 - chance[0]], [0.5, 0.5]])
        return np.tile(rows[:, None], (1, 2, 1))

    cover = orl.CoverFamily(kernel, low=[0.1], high=[0.9], step=0.1)
    mdp = orl.FiniteMDP(transition=kernel(np.array([0.33])), reward=np.eye(2), horizon=4)
    ladder = orl.Ladder([cover])
    needed = 0.5 * ladder.reach[-1]
    with pytest.raises(orl.InvalidInput, match="tolerance"):
        orl.Occam(ladder=ladder, tolerance=0.9 * needed)
    result = orl.run(orl.Occam(ladder=ladder, tolerance=needed), mdp, episodes=60, progress=False)
    assert not result.answer.misspecified
    log = simulate_log(mdp, episodes=60)
    assert not orl.select(log, ladder, mdp.known, tolerance=needed).misspecified
    with pytest.raises(orl.InvalidInput, match="tolerance"):
        orl.select(log, ladder, mdp.known, tolerance=0.9 * needed)


def test_one_impossible_row_does_not_end_a_forgiving_answer() -> None:
    kernel = np.zeros((3, 2, 3))
    kernel[:, :, :2] = [0.7, 0.3]
    kernel[2, :, 2] = 1.0
    kernel[2, :, :2] = 0.0
    mdp = orl.FiniteMDP(transition=kernel, reward=np.zeros((3, 2)), horizon=3)
    ladder = orl.Ladder([orl.FiniteFamily(kernel[None])])
    columns = simulate_log(mdp, episodes=100).columns()
    columns["next_state"][-1] = 2  # which the model calls impossible
    known = mdp.known
    assert orl.select(columns, ladder, known).misspecified
    forgiving = orl.select(columns, ladder, known, tolerance=0.02)
    assert not forgiving.misspecified


def test_the_range_is_over_all_members_that_are_left() -> None:
    count, truth = 120, 57
    kernels = np.zeros((count, 3, 2, 3))
    kernels[:, 0, 0] = [0.5, 0.5, 0.0]
    kernels[:, 0, 1, 2] = 0.5 + 0.001 * np.arange(count)
    kernels[:, 0, 1, 0] = 1.0 - kernels[:, 0, 1, 2]
    kernels[:, 1, :, 1] = 1.0
    kernels[:, 2, :, 2] = 1.0
    kernels[truth, 1, :] = [0.0, 0.0, 1.0]  # where the log never is
    reward = np.array([[0.0, 0.0], [1.0, 1.0], [0.3, 0.3]])
    mdp = orl.FiniteMDP(transition=kernels[truth], reward=reward, horizon=5)
    ladder = orl.Ladder([orl.FiniteFamily(kernels)])
    draw = np.random.default_rng(0)
    rows = []
    for episode in range(20):
        state = 0
        for _ in range(5):
            following = int(draw.choice(3, p=kernels[truth, state, 1]))
            rows.append((episode, state, 1, following, reward[state, 1]))
            state = following
    names = ("episode", "state", "action", "next_state", "reward")
    columns = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
    answer = orl.select(columns, ladder, mdp.known, tolerance=0.02)
    low, high = answer.worlds.range_of(answer.worlds.rule(np.zeros((5, 3), int)))
    assert low <= mdp.value(np.zeros((5, 3), int)) <= high


def test_agents_with_a_tolerance_are_watched_too() -> None:
    mdp = problem_of(KERNELS[2])
    agent = orl.Occam(ladder=orl.Ladder([orl.FiniteFamily(KERNELS)]), tolerance=0.02)
    driven = orl.Agent(agent, known=mdp.known, alarm=0.05)
    action = driven.act(0)
    driven.observe(0, action, mdp.known.base_reward[0, action], 1)


def test_what_is_watched_is_an_e_value_of_all_laws_within_the_tolerance() -> None:
    mdp = problem_of(KERNELS[2])
    for tolerance in (0.0, 0.05):
        ladder = orl.Ladder([orl.FiniteFamily(KERNELS)])
        watch = Watch(orl.Occam(ladder=ladder, tolerance=tolerance), mdp.known)
        memory = watch.begin(0.05)
        draw = np.random.default_rng(0)
        for pair in draw.integers(8, size=40).tolist():  # lately one outcome came too often
            watch._ratio(memory, KERNELS[2].reshape(1, -1), pair, 4 * pair + 1)
        for pair, law in enumerate(KERNELS[2].reshape(-1, 4)):
            ratios = []
            for outcome in range(4):
                seen = copy.deepcopy(memory)
                ratios.append(
                    watch._ratio(seen, KERNELS[2].reshape(1, -1), pair, 4 * pair + outcome)
                )
            assert largest_mean(law, np.array(ratios), tolerance) <= 1.0 + 1e-9
            assert max(ratios) > 1.0


@settings(max_examples=50, deadline=None)
@given(LAWS, LAWS, st.sampled_from([0.0, 0.02, 0.1]))
def test_rates_of_evidence_are_the_mean_logarithm_of_what_bets_win(
    one: list[int], two: list[int], tolerance: float
) -> None:
    size = min(len(one), len(two))
    q = law_of(one[:size])
    p = law_of(two[:size]) * 0.9 + 0.1 / size
    outcomes = Outcomes(np.array([0, size]), np.arange(size), np.zeros(size))
    rate = evidence_rates(outcomes, np.array([3.0]), q, p[None], tolerance)[0]
    won = huber_ratio(q, p, tolerance)
    assert rate == pytest.approx(3.0 * float(q @ np.log(np.where(q > 0.0, won, 1.0))))
    assert rate >= -1e-12
    assert tolerance < 0.5 * np.abs(q - p).sum() or rate == pytest.approx(0.0, abs=1e-12)


def test_no_kernel_below_the_break_even_makes_the_recommendation_lose() -> None:
    tried = [found for found in map(loses, range(6)) if found is not None]
    assert len(tried) >= 4
    assert not any(below for below, _ in tried)
    assert all(above for _, above in tried)
