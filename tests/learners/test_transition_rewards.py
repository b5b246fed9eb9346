"""Rewards on transitions (M20): targets W = bonus + V over outcomes, compared with loops written for this test.

The reward joins the target, Q has no separate reward but the part that no outcome changes, the last step gives a row
too, and the range of a plain target is H.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv

from benchmarks.oracle import estimate
from occamrl.analysis.certificates import losses_inside
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats, Ints
from occamrl.running.run import run
from tests.cases import drawn, environment_uniforms, member_in_play, one_by_one

S, A, H = 3, 2, 3
Outcome = tuple[int, float]  # next state, whole reward


class Table(NamedTuple):
    """Everything that can happen, by (s, a): outcomes and, for each, its vector of features."""

    outcomes: dict[tuple[int, int], list[Outcome]]
    phi: dict[tuple[int, int], Floats]  # [outcomes, d]

    def base(self, s: int, a: int) -> float:
        return min(reward for _, reward in self.outcomes[s, a])


class Row(NamedTuple):
    x: Floats
    target: Floats  # y by outcome
    centre: float
    spread: float


def row(table: Table, s: int, a: int, values: Floats, weighted: bool) -> Row:
    """Return the row of (s, a) before its outcome is known."""
    w = np.array([reward - table.base(s, a) + values[after] for after, reward in table.outcomes[s, a]])
    centre, spread = (w.max() + w.min()) / 2, w.max() - w.min()
    if not weighted:
        centre, spread = 0.0, 1.0
    target = (w - centre) / spread if spread > 0.0 else np.zeros(w.size)
    return Row(target @ table.phi[s, a], target, float(centre), float(spread))


class Plan(NamedTuple):
    values: Floats
    policy: Ints


def plan(table: Table, theta: Floats, sigma: Floats, root_beta: float, weighted: bool) -> Plan:
    """Return M11 (or M9 without weights) with W in the place of V."""
    values, policy = np.zeros((H + 1, S)), np.zeros((H, S), dtype=np.int64)
    inverse = np.linalg.inv(sigma)
    for h in reversed(range(H)):
        for s in range(S):
            q = []
            for a in range(A):
                x, _, centre, spread = row(table, s, a, values[h + 1], weighted)
                optimistic = float(x @ theta + root_beta * math.sqrt(x @ inverse @ x))
                if weighted:
                    optimistic = min(0.5, max(-0.5, optimistic))
                q.append(table.base(s, a) + centre + spread * optimistic)
            policy[h, s] = int(np.argmax(q))
            values[h, s] = np.clip(max(q), 0.0, H - h)
    return Plan(values, policy)


def index_of(table: Table, s: int, a: int, outcome: Outcome) -> int:
    gaps = [abs(after - outcome[0]) + abs(reward - outcome[1]) for after, reward in table.outcomes[s, a]]
    assert min(gaps) < 1e-9
    return int(np.argmin(gaps))


def compare(mdp: FiniteMDP, features: FeatureMap, table: Table, weights: str, episodes: int = 30) -> None:
    """Play by loops and by the package; compare every plan, every regret, and the last estimate."""
    d, delta, norm_bound, seed = features.dimension, 0.1, 1.2, 9
    weighted = weights == "range"
    options: dict[str, Any] = {"weights": weights, "replan": 0.0, "scale": 0.5 if weighted else 0.2}
    learner = UCRLVTRLin(features=features, norm_bound=norm_bound, delta=delta, **options)
    results = one_by_one(learner, mdp, episodes, seed)
    uniforms = environment_uniforms(seed, episodes, H)
    sigma, xy = np.eye(d), np.zeros(d)
    unit = 1.0 if weighted else float(H)
    for k, result in enumerate(results):
        logdet = float(np.linalg.slogdet(sigma)[1])
        root_beta = learner.scale * math.sqrt(unit**2 / 4 * (logdet + 2 * math.log(1 / delta)) + norm_bound**2)
        made = plan(table, estimate(sigma, xy), sigma, root_beta, weighted)
        np.testing.assert_allclose(result.state.values, made.values, rtol=0, atol=1e-9)
        np.testing.assert_array_equal(result.state.policy, made.policy)
        gap = mdp.optimal_values[0, 0] - mdp.evaluate(made.policy)[0, 0]
        assert result.regret[k] == pytest.approx(gap, abs=1e-9)
        s, total = 0, 0.0
        for h in range(H):  # the last step gives a row, too
            a = int(made.policy[h, s])
            outcome = drawn(mdp, s, a, uniforms[k, 1 + h])
            x, target, _, spread = row(table, s, a, made.values[h + 1], weighted)
            if spread > 0.0:
                sigma, xy = sigma + np.outer(x, x), xy + target[index_of(table, s, a, outcome)] * x
            s, total = outcome[0], total + outcome[1]
        assert result.returns[k] == pytest.approx(total, abs=1e-12)
    np.testing.assert_allclose(learner.statistics(mdp.known, results[-1].state).xy, xy, rtol=0, atol=1e-9)
    assert len({result.state.values.tobytes() for result in results}) > 5


def transition_problem(seed: int) -> tuple[FiniteMDP, Floats, Floats, Floats]:
    """Return a mixture of two kernels with rewards r[s, a, s'], its kernels, weights and rewards."""
    rng = np.random.default_rng([seed, 20])
    kernels, theta = rng.dirichlet(np.ones(S), size=(2, S, A)), np.array([0.3, 0.7])
    reward = rng.random((S, A, S))
    return FiniteMDP(transition=np.tensordot(theta, kernels, 1), reward=reward, horizon=H), kernels, theta, reward


def table_of(reward: Floats, phi: Floats) -> Table:
    """Return the table of rewards r[s, a, s'] with features phi[s, a, s', j]."""
    pairs = [(s, a) for s in range(S) for a in range(A)]
    outcomes = {(s, a): [(t, float(reward[s, a, t])) for t in range(S)] for s, a in pairs}
    return Table(outcomes, {(s, a): phi[s, a] for s, a in pairs})


@pytest.mark.parametrize("weights", ["range", "none"])
def test_dense_features(weights: str) -> None:
    mdp, kernels, _, reward = transition_problem(0)
    phi = np.moveaxis(kernels, 0, -1)
    compare(mdp, FeatureMap(phi), table_of(reward, phi), weights)


@pytest.mark.parametrize("weights", ["range", "none"])
def test_one_hot_features(weights: str) -> None:
    mdp, _, _, reward = transition_problem(1)
    phi = np.eye(S * A * S).reshape(S, A, S, S * A * S)
    compare(mdp, FeatureMap.tabular(states=S, actions=A), table_of(reward, phi), weights)


def outcome_tables(seed: int, simulators: int = 2) -> list[list[list[list[tuple[float, int, float]]]]]:
    """Return tables whose rewards are not fixed by (s, a, s'): each next state pays 0.25 or 0.75 in all of them."""
    rng = np.random.default_rng([seed, 21])
    outcomes = [(t, r) for t in range(S) for r in (0.25, 0.75)]

    def pair() -> list[tuple[float, int, float]]:
        law = rng.dirichlet(np.ones(2 * S))
        return [(float(p), t, r) for p, (t, r) in zip(law, outcomes, strict=True)]

    return [[[pair() for _ in range(A)] for _ in range(S)] for _ in range(simulators)]


def mixed_table(tables: Any, theta: Floats) -> Any:
    """Return the table of a mixture."""

    def outcome(s: int, a: int, i: int) -> tuple[float, int, float]:
        _, after, reward = tables[0][s][a][i]
        return float(theta @ [table[s][a][i][0] for table in tables]), after, reward

    return [[[outcome(s, a, i) for i in range(2 * S)] for a in range(A)] for s in range(S)]


@pytest.mark.parametrize("weights", ["range", "none"])
def test_outcomes_that_the_next_state_does_not_fix(weights: str) -> None:
    tables = outcome_tables(2)
    mdp = FiniteMDP(outcomes=mixed_table(tables, np.array([0.4, 0.6])), horizon=H)
    features = FeatureMap.of_simulators([FiniteMDP(outcomes=table, horizon=H) for table in tables])
    pairs = [(s, a) for s in range(S) for a in range(A)]
    table = Table(
        {(s, a): [(t, r) for _, t, r in tables[0][s][a]] for s, a in pairs},
        {(s, a): np.array([[each[s][a][i][0] for each in tables] for i in range(2 * S)]) for s, a in pairs},
    )
    compare(mdp, features, table, weights)


def test_the_comparison_can_fail() -> None:
    """Negative control: rewards of the reference that are off by a thousandth at one transition are noticed."""
    mdp, kernels, _, reward = transition_problem(0)
    phi = np.moveaxis(kernels, 0, -1)
    wrong = reward.copy()
    wrong[0, 0, 1] += 1e-3
    with pytest.raises(AssertionError):
        compare(mdp, FeatureMap(phi), table_of(wrong, phi), "range")


def test_a_finite_family_over_outcome_tables() -> None:
    """Members are the simulators; losses and sharp sets from rows over outcomes (s', r)."""
    tables, delta, seed, episodes = outcome_tables(3, simulators=5), 0.2, 4, 60
    simulators = [FiniteMDP(outcomes=table, horizon=H) for table in tables]
    mdp = simulators[0]
    family = FiniteFamily(parameters=np.eye(5), features=FeatureMap.of_simulators(simulators))
    values = np.array([simulator.optimal_values for simulator in simulators])
    np.testing.assert_allclose(family.optimal_values(mdp.known), values, rtol=0, atol=1e-12)
    results = one_by_one(UCRLVTR(family=family, delta=delta), mdp, episodes, seed)
    uniforms = environment_uniforms(seed, episodes, H)
    alive, losses = np.ones(5, dtype=bool), np.zeros(5)
    for k, result in enumerate(results):
        evidence = np.exp(-2 * (losses[alive] - losses[alive].min())).sum() / 5
        alive &= losses <= losses[alive].min() + (math.log(1 / delta) - math.log(evidence)) / 2
        member = int(np.where(alive, values[:, 0, 0], -np.inf).argmax())
        assert sorted(losses_inside(result.state)) == list(np.flatnonzero(alive))
        assert member_in_play(result.state) == member
        s = 0
        for h in range(H):
            a = int(simulators[member].optimal_policy[h, s])
            after, reward = drawn(mdp, s, a, uniforms[k, 1 + h])
            w = np.array([r + values[member, h + 1, t] for _, t, r in tables[0][s][a]])
            target = (w - (w.max() + w.min()) / 2) / np.ptp(w)
            z = np.array([[p for p, _, _ in table[s][a]] @ target for table in tables])
            i = next(i for i, (_, t, r) in enumerate(tables[0][s][a]) if t == after and abs(r - reward) < 1e-9)
            losses += (target[i] - z) ** 2
            s = after
    assert alive.sum() < 5


def test_slippery_cliff_walking_as_a_mixture_of_two_tables() -> None:
    tables = [CliffWalkingEnv(is_slippery=slippery).P for slippery in (False, True)]
    calm, slippery = (
        FiniteMDP(outcomes=table, horizon=30, initial_state=36, reward_range=(-100.0, 0.0)) for table in tables
    )
    features = FeatureMap.of_simulators([calm, slippery])
    result = run(UCRLVTRLin(features=features, norm_bound=1.0), slippery, episodes=300, progress=False)
    assert result.pessimistic_episodes == 0
    assert result.regret[-100:].sum() <= result.regret[:100].sum()
    np.testing.assert_allclose(result.state.theta, [0.0, 1.0], atol=0.15)


def test_simulators_with_rewards_on_pairs_are_the_features_of_their_kernels() -> None:
    """r(s, a) = 1/3 is no reward on transitions, and must not look like one for want of a digit."""
    rng = np.random.default_rng(0)
    kernels = rng.dirichlet(np.ones(S), size=(2, S, A))
    problems = [FiniteMDP(transition=kernel, reward=np.full((S, A), 1.0 / 3.0), horizon=H) for kernel in kernels]
    features = FeatureMap.of_simulators(problems)
    assert not features.attach(problems[0].known).outcomes.bonus.any()
    assert UCRLVTRLin(features=features, norm_bound=1.0).model(problems[0].known).rows == H - 1
