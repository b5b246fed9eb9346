"""Defaults of the selectors: what acting keeps, where episodes begin, how delta is divided."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

import occamrl as orl
from occamrl.evidence.lists import ListEvidence
from occamrl.evidence.starts import acting_level, begin_starts, count_starts, law_of_next
from occamrl.protocols import Flow
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
