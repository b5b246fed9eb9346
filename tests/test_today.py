"""What a log says of the policy that made it: brute force, coverage on short logs, its control."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from occamrl.answers.today import Today
from occamrl.bellman import evaluate
from occamrl.evidence.worlds import FiniteWorld
from occamrl.logs.log import simulate_log
from occamrl.problems.mdp import RewardMap
from occamrl.protocols import Floats, Flow
from occamrl.running.flow import simulate
from tests import cases

RUNS, DELTA = 150, 0.1
CASE = cases.CASES["random starts"]
MDP = CASE.mdp
WORLD = FiniteWorld(MDP.kernels, 0, 0.0)


def by_step(seed: int, sure: bool) -> Floats:
    """Return a policy whose preferences change from step to step, drawn at random."""
    draw = np.random.default_rng([seed, 5])
    share = draw.dirichlet(np.full(MDP.known.actions, 0.1 if sure else 0.5), MDP.horizon)
    return np.repeat(share[:, None, :], MDP.known.states, axis=1)


def played(policy: Floats, episodes: int, seed: int) -> list[Flow]:
    """Return episodes by a policy, as flows that grow like those of a log."""
    draw = np.random.default_rng([seed, 6])
    flows = []
    done = 0
    while done < episodes:
        size = min(max(1, -(-done // 10)), episodes - done)
        flows.append(simulate(MDP, policy, size, draw))
        done += size
    return flows


def noted(flows: list[Flow]) -> Today:
    today = Today(MDP.known)
    for flow in flows:
        today.add(flow)
    return today


def lost(policy: Any) -> float:
    """Return what a policy loses in the truth."""
    return MDP.optimal_value - MDP.value(policy)


def test_the_mean_loss_is_that_of_the_episodes_by_brute_force() -> None:
    flows = played(by_step(0, False), 40, 0)
    values = evaluate(MDP.kernels, MDP.optimal_policy)
    total = 0.0
    for flow in flows:
        for h, s, a, count in zip(flow.step, flow.state, flow.action, flow.count, strict=True):
            ahead = MDP.kernels[0].matrix[s * MDP.known.actions + a] @ values[h + 1]
            q = MDP.known.base_reward[s, a] + ahead
            total += count * (values[h, s] - q)
    found = noted(flows).regret(WORLD, DELTA)
    assert found.value == pytest.approx(total / 40)
    assert 0.0 <= found.low <= found.value <= found.high


@pytest.mark.parametrize("episodes", [5, 12, 40])
@pytest.mark.parametrize("sure", [False, True])
def test_the_loss_of_a_policy_by_steps_is_covered_and_that_of_frequencies_is_not(
    episodes: int, sure: bool
) -> None:
    """Exact tests; the control pools all steps and takes frequencies for the policy itself."""
    missed = 0
    control = 0
    for seed in range(RUNS):
        policy = by_step(seed, sure)
        today = noted(played(policy, episodes, seed))
        found = today.regret(WORLD, DELTA)
        true = lost(policy)
        missed += not found.low - 1e-9 <= true <= found.high + 1e-9
        pairs = today.pairs + 1e-9
        pooled = np.tile(pairs / pairs.sum(axis=1, keepdims=True), (MDP.horizon, 1, 1))
        control += not np.isclose(lost(pooled), true, atol=0.01 * MDP.optimal_value)
    assert binomtest(missed, RUNS, DELTA, alternative="greater").pvalue > 0.01, missed
    assert binomtest(control, RUNS, DELTA, alternative="greater").pvalue < 1e-6, control


def test_what_a_log_earned_is_covered_by_the_truth_and_not_by_another_world() -> None:
    policy = by_step(1, False)
    missed = 0
    flagged = 0
    better = MDP.kernels[0]._replace(reward=MDP.kernels[0].reward + 0.2)
    for seed in range(RUNS):
        today = noted(played(policy, 40, seed))
        found = today.luck(WORLD, MDP.optimal_value, DELTA)
        missed += not found.low <= 0.0 <= found.high
        other = today.luck(FiniteWorld([better], 0, 0.0), MDP.optimal_value + 0.8, DELTA)
        flagged += not other.low <= 0.0 <= other.high
    assert binomtest(missed, RUNS, DELTA, alternative="greater").pvalue > 0.01, missed
    assert flagged == RUNS


def test_amounts_are_in_the_users_unit() -> None:
    today = Today(replace(MDP.known, unit=RewardMap(-50.0, 150.0)))
    plain = Today(MDP.known)
    for flow in simulate_log(MDP, episodes=20).flows(MDP.known):
        today.add(flow)
        plain.add(flow)
    one = plain.regret(WORLD, DELTA)
    assert today.regret(WORLD, DELTA) == pytest.approx([200.0 * number for number in one])
    assert plain.mean_return is not None
    assert today.mean_return == pytest.approx(200.0 * plain.mean_return - 4 * 50.0)
