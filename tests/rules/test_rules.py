"""Rules against loops of their own pseudo-code, and the errors that public code makes with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from occamrl import registry
from occamrl.checks import check_rule
from occamrl.errors import InvalidInput
from occamrl.protocols import Episode, Played, Replay
from occamrl.rules.balancing import D3RB, ECE, ED2RB, RegretBalancing
from occamrl.rules.bandits import EXP3P, UCB1
from occamrl.rules.corral import StochasticCORRAL, log_barrier_step

MEANS = (0.3, 0.55, 0.9)
M, DELTA = len(MEANS), 0.05
PATH = Episode(np.zeros(2, dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(1))
Told = tuple[int, float, float, bool]  # base, return, planned value, replay


def value(base: int, k: int) -> float:
    """Return what a base earns in episode k: 0 or 1 with its mean."""
    return float(np.random.default_rng([base, k]).random() < MEANS[base])


def play(rule: Any, episodes: int, earned: Callable[[int, int], float] = value) -> tuple[list[Told], dict[str, Any]]:
    """Play with made-up bases that plan for 0.2 more than they earn; return what happened, and the memory at last."""
    memory, told = rule.start(M), []
    for k in range(episodes):
        choice = rule.choose(memory, np.random.default_rng(k))
        replay = isinstance(choice, Replay)
        base = choice.base if isinstance(choice, Replay) else choice
        told.append((base, earned(base, k), math.nan if replay else MEANS[base] + 0.2, replay))
        rule.update(memory, base, Played(told[-1][1], told[-1][2], 0, PATH, replay))
    return told, memory


def pick(p: Any, k: int) -> int:
    """Draw an index with probabilities p by the number of episode k."""
    left = np.random.default_rng(k).random()
    for i in range(M - 1):
        left -= p[i]
        if left < 0:
            return i
    return M - 1


def bounds(u: list[float], n: list[int], c: float) -> tuple[list[float], list[float]]:
    """Return LCB and UCB."""
    w = [c * math.sqrt(math.log(M * max(1.0, math.log(x)) / DELTA) / x) if x else math.inf for x in n]
    means = [total / x if x else 0.0 for total, x in zip(u, n, strict=True)]
    return [m - x for m, x in zip(means, w, strict=True)], [m + x for m, x in zip(means, w, strict=True)]


def data_driven(kind: str, told: list[Told], c: float, d_min: float, flaw: str = "") -> list[int]:
    """Return the choices of D3RB or ED2RB, given what each of them earned in ``told`` or would have earned."""
    n, u, d, phi, chosen = [0] * M, [0.0] * M, [d_min] * M, [d_min] * M, []
    for k in range(len(told)):
        i = min(range(M), key=lambda j: phi[j])
        chosen.append(i)
        n[i] += 1
        u[i] += value(i, k)
        low, high = bounds(u, n, c)
        best = max(high if flaw == "UCB with UCB" else low)
        if kind == "D3RB":
            allowed = {"root twice": d[i] / n[i], "no root": d[i]}.get(flaw, d[i] / math.sqrt(n[i]))
            if high[i] + allowed < best:
                d[i] *= 2
            phi[i] = d[i] * math.sqrt(n[i])
        else:
            d[i] = max(d_min, math.sqrt(n[i]) * (best - high[i]))
            phi[i] = min(max(d[i] * math.sqrt(n[i]), phi[i]), 2 * phi[i])
    return chosen


@pytest.mark.parametrize(("kind", "rule"), [("D3RB", D3RB), ("ED2RB", ED2RB)])
@pytest.mark.parametrize(("c", "d_min"), [(1.0, 1.0), (0.3, 0.1)])
def test_data_driven_balancing_is_its_pseudo_code(kind: str, rule: Any, c: float, d_min: float) -> None:
    told, memory = play(rule(scale=c, coefficient=d_min), 600)
    assert [base for base, *_ in told] == data_driven(kind, told, c, d_min)
    assert memory["plays"].sum() == 600
    assert memory["totals"].sum() == sum(each[1] for each in told)


@pytest.mark.parametrize("flaw", ["root twice", "no root", "UCB with UCB"])
def test_errors_of_public_code_are_told_from_d3rb(flaw: str) -> None:
    """Negative controls."""
    told, _ = play(D3RB(scale=0.3, coefficient=0.1), 600)
    assert [base for base, *_ in told] != data_driven("D3RB", told, 0.3, 0.1, flaw)


@pytest.mark.parametrize("promised", [None, (0.5, 1.0, 4.0), (0.05, 5.0, 50.0)])
def test_regret_balancing_is_its_pseudo_code(promised: tuple[float, ...] | None) -> None:
    told, memory = play(RegretBalancing(promised=promised, scale=0.3), 800)
    n, u, planned, active = [0] * M, [0.0] * M, [0.0] * M, set(range(M))
    for base, x, plan, _ in told:
        bound = [planned[i] - u[i] if promised is None else promised[i] * math.sqrt(n[i]) for i in range(M)]
        assert base == min(active, key=lambda i: (n[i] > 0, bound[i], i))
        n[base], u[base], planned[base] = n[base] + 1, u[base] + x, planned[base] + plan
        low, high = bounds(u, n, 0.3)
        best, kept = max(low[i] for i in active), set()
        for i in active:
            total = planned[i] - u[i] if promised is None else promised[i] * math.sqrt(n[i])
            if not n[i] or high[i] + total / n[i] >= best:
                kept.add(i)
        active = kept or active
    assert set(np.flatnonzero(memory["active"])) == active
    assert 2 in active
    assert promised == (0.5, 1.0, 4.0) or 0 not in active  # a promise that is too good is refuted


def test_a_base_without_planned_values_gets_the_largest() -> None:
    rule = RegretBalancing()
    memory = rule.start(2)
    rule.update(memory, 1, Played(0.25, math.nan, 0, PATH, False))
    np.testing.assert_array_equal(rule.bounds(memory), [0.0, 0.75])
    assert rule.choose(memory, np.random.default_rng(0)) == 0


def test_ece_is_its_pseudo_code() -> None:
    promised = (0.2, 0.4, 0.8)
    told, memory = play(ECE(promised=promised, scale=0.2), 1_500)
    n, u, left, explored = [0] * M, [0.0] * M, [0, 1, 2], 0
    for k, (base, x, _, _) in enumerate(told):
        due = math.floor(math.fsum((j + 1) ** (-1 / 3) for j in range(k + 1)) + 1e-9)
        explores, explored = due > explored, due
        assert base == (left[np.random.default_rng(k).integers(len(left))] if explores else left[0])
        if explores:
            n[base], u[base] = n[base] + 1, u[base] + x
            low, high = bounds(u, n, 0.2)
            better = {
                i: any(j > i and n[i] and low[j] > high[i] + promised[i] / math.sqrt(n[i]) for j in left) for i in left
            }
            left = [i for i in left if not better[i]]
    assert np.flatnonzero(memory["active"]).tolist() == left == [2]
    assert memory["plays"].tolist() == n
    assert sum(n) == pytest.approx(1.5 * 1_500 ** (2 / 3), rel=0.05)  # the sum of k^(-1/3)


def test_exp3p_is_its_pseudo_code() -> None:
    K = 400
    told, memory = play(EXP3P(episodes=K, delta=0.1), K)
    gamma, eta = 1.05 * math.sqrt(M * math.log(M) / K), 0.95 * math.sqrt(math.log(M) / (K * M))
    beta, gains = math.sqrt(math.log(M / 0.1) / (K * M)), [0.0] * M
    for k, (base, x, _, _) in enumerate(told):
        weights = [math.exp(eta * g) for g in gains]
        p = [(1 - gamma) * w / sum(weights) + gamma / M for w in weights]
        assert base == pick(p, k)
        gains = [g + ((x if i == base else 0.0) + beta) / p[i] for i, g in enumerate(gains)]
    np.testing.assert_allclose(memory["gains"], gains, rtol=0, atol=1e-9 * max(gains))


def test_ucb1_is_its_pseudo_code() -> None:
    told, _ = play(UCB1(scale=0.5), 400)
    n, u = [0] * M, [0.0] * M
    for k, (base, x, _, _) in enumerate(told):
        index = [u[i] / n[i] + 0.5 * math.sqrt(2 * math.log(k) / n[i]) if n[i] else math.inf for i in range(M)]
        assert base == max(range(M), key=lambda i: (index[i], -i))
        n[base], u[base] = n[base] + 1, u[base] + x


# Stochastic CORRAL ----------------------------------------------------------------------------------------------------


def corral(rounds: int, scale: float, flaw: str = "") -> tuple[list[int], list[float], list[float]]:
    """Return who was drawn in every round, and p and rho at last."""
    gamma, eta = 1 / rounds, [scale * math.sqrt(M / rounds)] * M
    p, rho, chosen = [1 / M] * M, [2.0 * M] * M, []
    for t in range(rounds):
        q = [(1 - gamma) * each + gamma / M for each in p]
        i = pick(q, 2 * t)
        chosen.append(i)
        x = value(i, 2 * t + (flaw != "first of two"))
        loss = [0.0] * M
        loss[i] = (x if flaw == "gains as losses" else 1 - x) / (p[i] if flaw == "weights by p" else q[i])
        point = q if flaw == "descent on q" else p
        inverse = [1 / point[j] + eta[j] * loss[j] for j in range(M)]

        def total(nu: float, inverse: list[float] = inverse) -> float:
            return sum(1 / (inverse[j] - eta[j] * nu) for j in range(M)) - 1

        pole = min(inverse[j] / eta[j] for j in range(M))
        nu = brentq(total, 0.0, min(loss[i], pole * (1 - 1e-12)), xtol=1e-16, rtol=1e-15) if loss[i] else 0.0
        p = [1 / (inverse[j] - eta[j] * nu) for j in range(M)]
        q = [(1 - gamma) * each + gamma / M for each in p]
        for j in range(M):
            if 1 / q[j] > rho[j]:
                rho[j], eta[j] = 2 / q[j], eta[j] * math.exp(1 / math.log(rounds))
                rho[j] = math.floor(rho[j]) if flaw == "integer rho" else rho[j]
    return chosen, p, rho


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_stochastic_corral_is_its_pseudo_code(scale: float) -> None:
    told, memory = play(StochasticCORRAL(episodes=600, scale=scale), 600)
    assert [replay for *_, replay in told] == [False, True] * 300  # the second step is played
    assert [base for base, *_ in told[::2]] == [base for base, *_ in told[1::2]]  # by the base of the first
    chosen, p, rho = corral(300, scale)
    assert [base for base, *_ in told[::2]] == chosen
    np.testing.assert_allclose(memory["p"], p, rtol=0, atol=1e-9)
    np.testing.assert_allclose(memory["rho"], rho, rtol=1e-9)
    assert memory["eta"].max() > scale * math.sqrt(M / 300)  # rates have grown


@pytest.mark.parametrize("flaw", ["descent on q", "gains as losses", "first of two", "weights by p", "integer rho"])
def test_errors_of_public_code_are_told_from_stochastic_corral(flaw: str) -> None:
    """Negative controls."""
    _, memory = play(StochasticCORRAL(episodes=600, scale=10.0), 600)
    _, p, rho = corral(300, 10.0, flaw)
    assert np.abs(memory["rho" if flaw == "integer rho" else "p"] - (rho if flaw == "integer rho" else p)).max() > 1e-6


@pytest.mark.parametrize("loss", [0.0, 1e-9, 0.3, 40.0, 1e7])
@pytest.mark.parametrize("eta", [1e-3, 0.5, 300.0])
def test_a_step_of_mirror_descent_solves_its_equation(loss: float, eta: float) -> None:
    p = np.array([0.98, 0.015, 0.005])
    rates = eta * np.array([1.0, 2.0, 0.5])
    for base in range(3):
        after = log_barrier_step(p, rates, base, loss)
        assert (after > 0.0).all()
        assert after.sum() == pytest.approx(1.0, abs=1e-12)
        nu = (1.0 / p - 1.0 / after) / rates + loss * (np.arange(3) == base)  # the same for all
        assert np.ptp(nu) <= 1e-9 * max(1.0, 1.0 / (rates * p * p).min(), loss)


# All of them ----------------------------------------------------------------------------------------------------------

RULES = {
    "D3RB": D3RB(scale=0.3, coefficient=0.1),
    "ED2RB": ED2RB(scale=0.3, coefficient=0.1),
    "RegretBalancing": RegretBalancing(scale=0.3),
    "promised": RegretBalancing(promised=(0.2, 0.2, 0.2), scale=0.3),
    "ECE": ECE(promised=(0.2, 0.2, 0.2), scale=0.2),
    "EXP3P": EXP3P(episodes=1_500, scale=5.0),
    "UCB1": UCB1(scale=0.5),
    "StochasticCORRAL": StochasticCORRAL(episodes=1_500, scale=20.0),
}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_finds_the_best_of_three(name: str) -> None:
    """Bases earn their means for certain, so that nothing is left to chance but the rule's own draws."""
    told, _ = play(RULES[name], 1_500, lambda base, k: MEANS[base])
    late = [base for base, *_ in told[750:]]
    assert late.count(2) > 0.8 * len(late)


@pytest.mark.parametrize("name", registry.rules())
def test_every_rule_keeps_the_contract(name: str) -> None:
    for rule in registry.rules()[name].examples(M):
        check_rule(rule, bases=M)


WRONG: list[tuple[Any, dict[str, Any]]] = [
    (D3RB, {"delta": 0.0}),
    (D3RB, {"scale": -1.0}),
    (ED2RB, {"coefficient": 0.0}),
    (RegretBalancing, {"power": 1.5}),
    (RegretBalancing, {"promised": (1.0, 0.0)}),
    (RegretBalancing, {"promised": 3.0}),
    (ECE, {"promised": None}),
    (EXP3P, {"episodes": 0}),
    (UCB1, {"scale": math.nan}),
    (StochasticCORRAL, {"episodes": 10.5}),
]


@pytest.mark.parametrize(("kind", "parameters"), WRONG)
def test_parameters_are_checked(kind: Any, parameters: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        kind(**parameters)
    assert caught.value.field in parameters


@pytest.mark.parametrize("rule", [RegretBalancing(promised=(1.0, 2.0)), ECE(promised=(1.0, 2.0))])
def test_promises_are_as_many_as_bases(rule: Any) -> None:
    with pytest.raises(InvalidInput, match="2 numbers, expected one for each of 3 bases"):
        rule.start(3)
