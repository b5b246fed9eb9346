"""Defaults of the selectors: what acting keeps, where episodes begin, how delta is divided."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

import occamrl as orl
from occamrl.evidence.lists import ListEvidence
from occamrl.evidence.starts import acting_level, begin_starts, count_starts, law_of_next
from occamrl.evidence.value_evidence import ListValueEvidence
from occamrl.protocols import Flow, Plan
from tests.cases import CASES

CASE = CASES["stationary"]
KNOWN = CASE.mdp.known


def test_the_levels_of_acting_add_up_to_what_is_proved() -> None:
    for episodes in (2, 10, 1_000):
        total = sum(acting_level(0.05, k) for k in range(episodes))
        assert total <= 2.0 * 0.05 * math.sqrt(episodes)


def test_what_acting_excluded_comes_back_and_verdicts_do_not_change() -> None:
    evidence = ListEvidence(CASE.ladder, KNOWN, 0.05)
    result = orl.run(orl.Occam(ladder=CASE.ladder), CASE.mdp, episodes=60, progress=False)
    state = result.state["evidence"]
    behind = evidence.log_mixture(state) - evidence.scores(state)[: CASE.ladder.family.size]
    excluded = np.flatnonzero((behind > math.log(1.0 / 0.05)) & np.isfinite(behind))
    assert excluded.size
    member = int(excluded[behind[excluded].argmin()])
    back = 0.05**2 * math.exp(2.0 * behind[member])
    assert not evidence.alive(state, 0.05 / math.sqrt(0.99 * back))[member]
    assert evidence.alive(state, 0.05 / math.sqrt(1.01 * back))[member]
    assert not evidence.alive(state)[member]


def test_where_a_chain_of_episodes_ended_is_told_by_its_counts() -> None:
    draw = np.random.default_rng(0)
    known = replace(KNOWN, continuing=True)
    compared = 0
    for _ in range(200):
        counted = begin_starts(known)
        place = int(draw.integers(3))
        for _ in range(4):
            rows = []
            episodes = int(draw.integers(1, 6))
            for _ in range(episodes):
                for step in range(3):
                    following = int(draw.integers(3))
                    rows.append((step, place, 0, following))
                    place = following
            steps, states, actions, ends = np.array(rows).T
            ones = np.ones(len(rows), np.int64)
            rewards = np.zeros(len(rows))
            count_starts(counted, Flow(steps, states, actions, ends, rewards, ones, episodes))
            # a first block that ends where it began leaves nothing to tell it by
            if counted["next_start"] >= 0:
                compared += 1
                assert law_of_next(known, counted)[place] == 1.0
    assert compared > 500


@pytest.mark.parametrize("delta", [0.5, 0.01])
def test_rewards_and_their_learner_share_one_delta(delta: float) -> None:
    learner = orl.UCRLVTR(family=CASE.ladder.family, delta=delta)
    agent = orl.RewardsPerPair(agent=learner, delta=0.05, share=0.4)
    assert isinstance(agent.agent, orl.UCRLVTR)
    assert agent.agent.delta == min(delta, 0.6 * 0.05)


def test_both_failures_of_arl_gen_together_are_as_rare_as_delta() -> None:
    agent = orl.ARLGen(ladder=CASE.ladder, delta=0.5)
    evidence = agent.evidence(KNOWN)
    runs = 60
    failures = 0
    for seed in range(runs):
        result = orl.run(agent, CASE.mdp, episodes=300, seed=seed, progress=False)
        judgement = evidence.judge(result.state["evidence"])
        failures += judgement.misspecified or not judgement.alive[1]
    assert binomtest(failures, runs, 0.5, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize(
    ("options", "guarantee"),
    [
        ({}, "valid"),
        ({"scope": "smallest"}, "valid if separable"),
        ({"acting": "sampling"}, "on average over its prior"),
        ({"acting": "sampling", "scope": "smallest"}, "none"),
        ({"acting": "fit"}, "none"),
    ],
)
def test_a_guarantee_is_what_is_proved(options: dict[str, Any], guarantee: str) -> None:
    assert orl.Occam(ladder=CASE.ladder, **options).guarantee == guarantee


# Attacks ------------------------------------------------------------------------------------------

ROUNDS = 30  # episodes of an attack, which looks after every one
VALUES = np.array([[0.5, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])  # as noisy as can be


def coin(chance: float) -> orl.FiniteMDP:
    """Return a coin: from state 0 to state 1, which pays, or to state 2."""
    transition = np.zeros((3, 1, 3))
    transition[0, 0] = [0.0, chance, 1.0 - chance]
    transition[1:, 0, 1:] = np.eye(2)
    return orl.FiniteMDP(transition=transition, reward=[[0.0], [1.0], [0.0]], horizon=2)


FAIR = coin(0.5)
KERNELS = np.array([coin(chance).kernel() for chance in (0.5, 0.8, 0.2)])
COINS = orl.FiniteFamily(KERNELS)


def tosses(seed: int, chance_of_reward: float = 0.0) -> Iterator[Flow]:
    """Yield episodes of one toss of the fair coin, and a reward."""
    draw = np.random.default_rng([seed, 35])
    for _ in range(ROUNDS):
        side = 1 + int(draw.random() < 0.5)
        reward = np.array([float(draw.random() < chance_of_reward), float(side == 1)])
        path = np.array([0, side])
        ones = np.ones(2, np.int64)
        yield Flow(np.arange(2), path, np.zeros(2, np.int64), np.full(2, side), reward, ones, 1)


def failures_of_classes(half: float, runs: int) -> int:
    """Count runs in which the right class falls, or all are called wrong, at some time."""
    ladder = orl.Ladder([orl.FiniteFamily(KERNELS[:1]), COINS])
    failures = 0
    for seed in range(runs):
        evidence = ListValueEvidence(ladder, FAIR.known, 0.5)
        evidence.half = half
        state = evidence.begin()
        for flow in tosses(seed):
            evidence.add(state, replace(flow, values=VALUES))
            judgement = evidence.judge(state)
            if judgement.outside or not judgement.alive[0]:
                failures += 1
                break
    return failures


def test_no_time_to_look_makes_arl_gen_fail_more_often_than_delta() -> None:
    assert binomtest(failures_of_classes(0.25, 200), 200, 0.5, alternative="greater").pvalue > 1e-3
    # the control: two events, each with a level of one, which promises nothing
    assert binomtest(failures_of_classes(1.0, 60), 60, 0.5, alternative="greater").pvalue < 1e-3


def failures_of_plans(agent: orl.RewardsPerPair, runs: int) -> int:
    """Count runs in which a bound on a reward is too low, or the truth leaves the set."""
    assert isinstance(agent.agent, orl.UCRLVTR)
    known = FAIR.known
    plan = Plan(policy=np.zeros((2, 3), np.int64), values=VALUES, episodes=1)
    means = np.array([0.1, 1.0, 0.0])
    failures = 0
    for seed in range(runs):
        state = agent.begin(known)
        for flow in tosses(seed, means[0]):
            agent.learn(known, state, plan, flow)
            inside = agent.agent.confidence_set(state["agent"])[0, 0]
            if not inside or (agent.upper_bounds(state) < means).any():
                failures += 1
                break
    return failures


def test_no_time_to_look_makes_learned_rewards_fail_more_often_than_delta() -> None:
    agent = orl.RewardsPerPair(agent=orl.UCRLVTR(family=COINS, delta=0.5), delta=0.5)
    assert binomtest(failures_of_plans(agent, 200), 200, 0.5, alternative="greater").pvalue > 1e-3
    # the controls: narrow bounds on rewards, and a set of a level that promises nothing
    narrow = replace(agent, scale=0.1)
    assert binomtest(failures_of_plans(narrow, 60), 60, 0.5, alternative="greater").pvalue < 1e-3
    object.__setattr__(agent, "agent", orl.UCRLVTR(family=COINS, delta=0.999))
    assert binomtest(failures_of_plans(agent, 60), 60, 0.5, alternative="greater").pvalue < 1e-3
