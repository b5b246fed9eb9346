"""Learning by likelihood against a loop in plain Python, its draws against their laws, and what it promises."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, binomtest, gamma, kstest

import occamrl as orl
from occamrl._core.arena import field, forget_models
from occamrl._core.rng import next_gamma
from occamrl._core.rows import COUNTERS
from occamrl.errors import ParameterError
from occamrl.learners.posterior import (
    ALIVE,
    COUNT,
    EVIDENCE,
    LIKELIHOOD,
    MEMBERS,
    RIVALS,
    UNLISTED_ROWS,
    LikelihoodLearner,
    distinct_outcomes,
    twin_outcomes,
)
from occamrl.models.finite import CoverFamily
from occamrl.models.likelihood import member_likelihoods
from occamrl.problems.mixtures import SparseLadder
from occamrl.protocols import Floats, Known
from occamrl.running.phases import CompiledPlayer

STATES, ACTIONS, HORIZON = 3, 2, 4


def problem(kernel: Floats) -> orl.FiniteMDP:
    reward = np.array([[0.1, 0.0], [0.3, 0.5], [1.0, 0.2]])
    return orl.FiniteMDP(transition=kernel, reward=reward, horizon=HORIZON)


def kernels(count: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).dirichlet(np.full(STATES, 2.0), size=(count, STATES, ACTIONS))


def ladder(stack: Floats, sizes: tuple[int, ...] = (1, 4, 9)) -> orl.Ladder:
    return orl.Ladder([orl.FiniteFamily(stack[:size]) for size in sizes])


class Replay:
    """L2, L4 and L5 by hand: one outcome after another, everything from the list of all outcomes so far."""

    def __init__(self, stack: Floats, sizes: tuple[int, ...], prior: Floats, delta: float) -> None:
        self.stack, self.prior, self.delta = stack, prior, delta
        self.hulls = [(size, np.full(size, 1.0 / size), 0) for size in sizes if size >= 2]
        self.evidence = np.zeros(len(self.hulls) + 1)
        self.seen: list[tuple[int, int, int]] = []
        self.share = 1.0 / (len(sizes) + 1.0)
        self.alive = set(range(len(stack)))

    def enter(self, episode: list[tuple[int, int, int]]) -> None:
        for s, a, s2 in episode:
            counts = [sum(row == (s, a, other) for row in self.seen) for other in range(STATES)]
            self.evidence[-1] += math.log((counts[s2] + 0.5) / (sum(counts) + 0.5 * STATES))
            for e, (size, weights, _) in enumerate(self.hulls):
                self.evidence[e] += math.log(weights @ self.stack[:size, s, a, s2])
            self.seen.append((s, a, s2))
        for e, (size, weights, rows) in enumerate(self.hulls):
            if len(self.seen) >= 1.02 * rows and len(self.seen) > rows:
                for _ in range(3):
                    g = np.zeros(size)
                    for s, a, s2 in self.seen:
                        p = self.stack[:size, s, a, s2]
                        g += p / (weights @ p)
                    weights = weights * g + 1.0 / size
                    weights = weights / weights.sum()
                self.hulls[e] = (size, weights, len(self.seen))

    def weigh(self) -> tuple[Floats, float]:
        likelihood = np.array([sum(math.log(p[row]) for row in self.seen) for p in self.stack])
        left = sorted(self.alive)
        members = (1.0 - self.share) * self.prior[left] * np.exp(likelihood[left])
        rivals = self.share / len(self.evidence) * np.exp(self.evidence)
        z = math.log(members.sum() + rivals.sum())
        self.alive = {i for i in left if likelihood[i] >= z - math.log(1.0 / self.delta)}
        return likelihood, z


def test_the_evidence_is_that_of_a_loop_by_hand() -> None:
    stack, sizes, delta = kernels(9), (1, 4, 9), 0.3
    rungs = ladder(stack, sizes)
    mdp = problem(0.7 * stack[5] + 0.3 * stack[2])
    learner = LikelihoodLearner(ladder=rungs, delta=delta, replan=0.0)
    replay, died = Replay(stack, sizes, rungs.prior, delta), 0
    walk: list[tuple[int, int, int]] = []
    for episodes in range(1, 40):  # the state after k episodes holds the evidence of k - 1
        result = orl.run(learner, mdp, episodes=episodes, seed=3, progress=False)
        state, counters = result.state, field(result.state, COUNTERS)
        likelihood, z = replay.weigh()
        left = field(state, MEMBERS)[: counters[ALIVE]]
        assert sorted(replay.alive) == left.tolist()
        assert field(state, EVIDENCE)[0] == pytest.approx(z, abs=1e-9)
        assert field(state, LIKELIHOOD)[0, : left.size] == pytest.approx(likelihood[left], abs=1e-9)
        assert field(state, RIVALS)[0] == pytest.approx(replay.evidence, abs=1e-9)
        after = _outcomes(learner, mdp.known, state)
        new = [row for row in after for _ in range(after[row] - walk.count(row))]
        walk += new
        replay.enter(new)
        died = max(died, 9 - left.size)
    assert died >= 4  # the comparison is worth something


def _outcomes(learner: LikelihoodLearner, known: Known, state: Any) -> dict[tuple[int, int, int], int]:
    outcomes, _ = distinct_outcomes(learner.ladder.family.features, known)
    pair = np.repeat(np.arange(STATES * ACTIONS), np.diff(outcomes.start))
    rows = zip(pair, outcomes.next_state, state.count[0], strict=True)
    return {(int(sa) // ACTIONS, int(sa) % ACTIONS, int(s2)): int(c) for sa, s2, c in rows}


def test_looking_again_finds_whom_the_counts_allow() -> None:
    """Next states in one half are twins here; members that died come back at episode 64 and at no other time."""
    truth = SparseLadder(nonzero=2, seed=300)
    rungs, known = orl.Ladder.of_problem(truth), truth.mdp.known
    learner = LikelihoodLearner(ladder=rungs, delta=0.9, replan=0.0)
    outcomes, matrix = distinct_outcomes(rungs.family.features, known)
    probabilities = matrix @ rungs.family.theta
    first, size = twin_outcomes(outcomes, matrix)
    assert np.array_equal(probabilities, probabilities[first])
    assert size.sum() == size.size > 2 * np.count_nonzero(size)
    back = 0
    for seed in range(4):
        before, after = (orl.run(learner, truth, episodes=k, seed=seed, progress=False).state for k in (64, 65))
        counts = field(before, COUNT)[0].astype(float)
        likelihood, bound = member_likelihoods(counts, probabilities), field(after, EVIDENCE)[0] + math.log(0.9)
        left = field(after, MEMBERS)[: field(after, COUNTERS)[ALIVE]]
        assert np.array_equal(left, np.flatnonzero(likelihood >= bound))
        assert field(after, LIKELIHOOD)[0, : left.size] == pytest.approx(likelihood[left], abs=1e-9)
        back += np.setdiff1d(left, field(before, MEMBERS)[: field(before, COUNTERS)[ALIVE]]).size
    assert back > 0  # otherwise nothing was found


def test_products_that_underflow_are_taken_apart() -> None:
    """In an episode the truth takes nine steps, each of probability 1e-60 or 2e-60 in the members."""
    truth, small = np.zeros((9, 1, 9)), np.array([1e-60, 2e-60])
    truth[np.arange(9), 0, np.minimum(np.arange(9) + 1, 8)] = 1.0
    stack = small[:, None, None, None] * truth
    stack[..., 0] += 1.0
    mdp = orl.FiniteMDP(transition=truth, reward=np.zeros((9, 1)), horizon=9)
    state = orl.run(orl.PSRL(family=orl.FiniteFamily(stack)), mdp, episodes=4, seed=0, progress=False).state
    assert np.prod(np.full(9, small[1])) == 0.0
    assert field(state, COUNTERS)[ALIVE] == 1  # 2e-60 is 3 * 9 * log 2 nats ahead
    assert field(state, LIKELIHOOD)[0, 0] == pytest.approx(3 * 9 * math.log(small[1]), rel=1e-12)


def test_draws_of_gamma_have_their_law() -> None:
    for number, shape in enumerate((0.5, 1.0, 3.5, 40.0)):
        stream = np.array([number, 7, 0], dtype=np.int64)
        found = kstest([next_gamma(stream, shape) for _ in range(4000)], gamma(shape).cdf)
        assert found.pvalue > 1e-4  # a right law is refused once in 10^4
        assert kstest([next_gamma(stream, shape) for _ in range(4000)], gamma(1.15 * shape).cdf).pvalue < 1e-4


def test_the_truth_stays_alive_with_its_probability_and_a_wrong_level_is_noticed() -> None:
    """400 runs of 60 episodes; nobody is looked at again before episode 64, so the end tells of all times."""
    stack = kernels(9, seed=2)
    mdp, rungs = problem(stack[3]), ladder(stack)

    def lost(delta: float, runs: int = 400) -> int:
        learner = LikelihoodLearner(ladder=rungs, delta=delta, replan=0.0)
        missing = 0
        for seed in range(runs):
            state = orl.run(learner, mdp, episodes=60, seed=seed, progress=False).state
            missing += 3 not in field(state, MEMBERS)[: field(state, COUNTERS)[ALIVE]]
        return missing

    for delta in (0.05, 0.5):
        assert binomtest(lost(delta), 400, delta, alternative="greater").pvalue > 1e-3
    assert binomtest(lost(1.0), 400, 0.5, alternative="greater").pvalue < 1e-3  # no slack: the control


def test_a_truth_between_members_is_outside_and_played_by_the_hull() -> None:
    stack = kernels(4, seed=5)
    rungs = orl.Ladder([orl.FiniteFamily(stack[:1]), orl.FiniteFamily(stack[:2]), orl.FiniteFamily(stack)])
    mdp = problem(0.5 * stack[0] + 0.5 * stack[1])
    result = orl.run(orl.Occam(ladder=rungs), mdp, episodes=2000, seed=0, progress=False)
    facts = result.phases.to_pylist()[-1]
    assert facts["outside"]
    assert facts["playing"] == "hull of F_2"
    assert facts["outside_since"] < 1000
    assert result.regret[-500:].mean() < 0.02


@pytest.mark.parametrize("acting", ["optimism", "sampling"])
def test_an_outcome_that_no_member_allows_is_counted_and_learned(acting: Any) -> None:
    """State 2 pays, and every member says that only action 0 leads there; truly only action 1 does."""
    wrong = np.zeros((2, STATES, ACTIONS, STATES))
    wrong[:, :, 0] = [[0.9, 0.0, 0.1]] * STATES
    wrong[:, :, 1] = [[0.5, 0.5, 0.0]] * STATES
    wrong[1, :, 1] = [[0.4, 0.6, 0.0]] * STATES
    truth = wrong[0].copy()
    truth[:, 0], truth[:, 1] = [0.5, 0.5, 0.0], [0.1, 0.0, 0.9]
    mdp = orl.FiniteMDP(transition=truth, reward=np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]), horizon=HORIZON)
    rungs = orl.Ladder([orl.FiniteFamily(wrong[:1]), orl.FiniteFamily(wrong)])
    result = orl.run(orl.Occam(ladder=rungs, acting=acting), mdp, episodes=600, seed=0, progress=False)
    assert field(result.state, COUNTERS)[UNLISTED_ROWS] > 0
    assert result.phases.to_pylist()[-1]["playing"] == "tabular"
    assert result.regret[-200:].mean() < 0.05 * result.regret[0]


@pytest.mark.parametrize("rewards", ["known", orl.RewardsPerPair()])
@pytest.mark.parametrize("kernel", ["stationary", "per_step"])
@pytest.mark.parametrize("scope", ["smallest", "all"])
def test_plans_are_optimistic_while_the_truth_is_alive(rewards: Any, kernel: Any, scope: Any) -> None:
    stack = kernels(9, seed=2)
    agent = orl.Occam(ladder=ladder(stack, (1, 9)) if scope == "all" else ladder(stack[:4], (4,)), scope=scope,
                      rewards=rewards, kernel=kernel)  # fmt: skip
    result = orl.run(agent, problem(stack[3]), episodes=300, seed=1, progress=False)
    assert not any(row["outside"] for row in result.phases.to_pylist())
    assert result.pessimistic_episodes == 0


@pytest.mark.parametrize("acting", ["optimism", "sampling"])
def test_a_run_that_draws_kernels_for_estimated_rewards_goes_on_in_another_process(acting: Any) -> None:
    """Outside the ladder every episode solves a new kernel, for the rewards of the last plan."""
    agent = orl.Occam(ladder=ladder(kernels(4), (1, 4)), acting=acting, rewards=orl.RewardsPerPair(), replan=0.5)
    mdp = problem(kernels(1, seed=8)[0])
    whole = orl.run(agent, mdp, episodes=400, seed=0, progress=False)
    assert whole.phases["outside"][-1].as_py()
    first = orl.run(agent, mdp, episodes=300, seed=0, progress=False)
    forget_models()
    rest = orl.run(agent, mdp, episodes=100, progress=False, continue_from=first)
    assert whole.regret.tobytes() == rest.regret.tobytes()


def test_a_truth_between_the_points_of_a_cover_is_not_outside() -> None:
    def kernel(p: Floats) -> Floats:
        law = np.array([1.0 - p[0], 0.5 * p[0], 0.5 * p[0]])
        return np.stack([np.stack([law, law[::-1]])] * STATES)

    cover = CoverFamily(kernel, low=[0.2], high=[0.8], step=0.2)
    mdp = problem(kernel(np.array([0.5])))
    facts = {}
    for name, family in (("cover", cover), ("list", orl.FiniteFamily(np.stack([kernel(x) for x in cover.parameters])))):
        agent = orl.Occam(ladder=orl.Ladder([family]))
        facts[name] = orl.run(agent, mdp, episodes=1000, seed=0, progress=False).phases.to_pylist()[-1]
    assert not facts["cover"]["outside"]
    assert facts["list"]["outside"]  # the control: without its reach it is noticed


def test_posterior_sampling_finds_the_truth_and_a_table() -> None:
    stack = kernels(9, seed=2)
    for agent in (orl.PSRL(family=orl.FiniteFamily(stack)), orl.PSRL()):
        runs = [orl.run(agent, problem(stack[3]), episodes=1500, seed=seed, progress=False).regret for seed in range(8)]
        assert np.mean(runs, axis=0)[-300:].mean() < 0.1 * np.mean(runs, axis=0)[:30].mean()


@pytest.mark.parametrize("concentration", [0.2, 0.5, 3.0])
def test_rows_are_drawn_from_the_dirichlet_prior(concentration: float) -> None:
    """Before any data P(1|0, a) has the law Beta(c, c); by Kolmogorov and Smirnov at level 1e-5, 4 c as control."""
    reward = np.array([[0.0], [1.0]])  # of two steps from state 0, so the planned value is P(1|0, a)
    mdp = orl.FiniteMDP(transition=np.full((2, 1, 2), 0.5), reward=reward, horizon=2)
    learner = orl.PSRL(concentration=concentration)
    player = CompiledPlayer(learner, mdp.known, learner.begin(mdp.known))
    draws = []
    for episode in range(2000):
        player.open(0, np.uint64(1), episode, player.table)
        draws.append(player.planned_value)
    assert kstest(draws, beta(concentration, concentration).cdf).pvalue > 1e-5
    assert kstest(draws, beta(4.0 * concentration, 4.0 * concentration).cdf).pvalue < 1e-5


def test_a_family_has_no_dirichlet_prior() -> None:
    with pytest.raises(ParameterError, match="concentration"):
        orl.PSRL(family=orl.FiniteFamily(kernels(2)), concentration=1.0)
