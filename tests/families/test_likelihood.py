"""Evidence by likelihood against products of probabilities, fine grids of weights, and its own coverage."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import binom

from occamrl.models.likelihood import (
    hull_bound,
    hull_evidence,
    hull_fit,
    hull_likelihood,
    hull_maximum,
    kt_evidence,
    ladder_log_weights,
    log_mixture,
    member_likelihoods,
)
from occamrl.protocols import Floats, Ints

START = np.array([0, 3, 5])  # two (s, a), with three and two outcomes


def kernels(rng: np.random.Generator, n: int) -> Floats:
    parts = [rng.dirichlet(np.ones(last - first), size=n).T for first, last in pairwise(START)]
    return np.ascontiguousarray(np.concatenate(parts))


def draw(rng: np.random.Generator, law: Floats, rows: int) -> Ints:
    """Outcomes, at either (s, a) by a rule that looks at the past."""
    found = np.zeros(rows, dtype=np.int64)
    for t in range(rows):
        pair = int(t > 0 and found[t - 1] in (0, 3))
        first, last = START[pair : pair + 2]
        found[t] = first + rng.choice(last - first, p=law[first:last] / law[first:last].sum())
    return found


def counts_of(outcomes: Ints) -> Floats:
    return np.bincount(outcomes, minlength=START[-1]).astype(np.float64)


def test_kt_is_the_product_of_its_predictions_in_any_order(test_seed: int) -> None:
    rng = np.random.default_rng(test_seed)
    outcomes = draw(rng, kernels(rng, 1)[:, 0], 40)
    for each in (outcomes, outcomes[::-1]):
        counts, product = np.zeros(START[-1]), 1.0
        for o in each:
            first, last = (START[0], START[1]) if o < START[1] else (START[1], START[2])
            product *= (counts[o] + 0.5) / (counts[first:last].sum() + 0.5 * (last - first))
            counts[o] += 1.0
        assert kt_evidence(counts, START) == pytest.approx(math.log(product), abs=1e-9)


def test_members_and_mixtures_are_products(test_seed: int) -> None:
    rng = np.random.default_rng(test_seed)
    each, weights, scratch = kernels(rng, 3), rng.dirichlet(np.ones(3)), np.zeros(3)
    each[0, 1] = 0.0  # impossible
    outcomes = draw(rng, each @ weights, 12)
    counts = counts_of(outcomes)
    with np.errstate(divide="ignore"):
        assert member_likelihoods(counts, each) == pytest.approx(np.log(np.prod(each[outcomes], axis=0)), abs=1e-9)
    expected = math.log(np.prod(each[outcomes] @ weights))
    assert hull_likelihood(counts, each, weights, scratch) == pytest.approx(expected, abs=1e-9)
    assert scratch @ weights == pytest.approx(counts.sum())
    step = np.array([1e-6, 0.0, 0.0])
    slope = hull_likelihood(counts, each, weights + step, np.zeros(3)) - hull_likelihood(counts, each, weights, scratch)
    assert scratch[0] == pytest.approx(slope / 1e-6, rel=1e-4)
    prior = np.array([0.5, 0.25, 0.25])
    logs = ladder_log_weights(prior, 2, 2)
    assert np.exp(logs) == pytest.approx([1 / 3, 1 / 6, 1 / 6, 1 / 6, 1 / 6])  # w0 = 1/(M + 1)
    evidence = np.array([-1e4, -math.inf, -1e4 - 1.0, -1e4, -math.inf])
    direct = math.log(1 / 3 + math.exp(-1.0) / 6 + 1 / 6)
    assert log_mixture(logs, evidence) == pytest.approx(direct - 1e4, abs=1e-9)
    assert log_mixture(logs, np.full(5, -math.inf)) == -math.inf


@pytest.mark.parametrize("rows", [5, 60, 3_000])
def test_the_best_mixture_is_that_of_a_fine_grid_and_no_mixture_exceeds_the_bound(rows: int, test_seed: int) -> None:
    rng = np.random.default_rng([test_seed, rows])
    each, scratch = kernels(rng, 3), np.zeros(3)
    counts = counts_of(draw(rng, each @ np.array([0.7, 0.3, 0.0]), rows))
    grid = np.arange(201) / 200.0
    points = np.array([(a, b, 1.0 - a - b) for a in grid for b in grid if a + b <= 1.0])
    with np.errstate(divide="ignore"):
        values = counts @ np.log(np.maximum(each @ points.T, 1e-300))
    for weights in (np.full(3, 1 / 3), rng.dirichlet(np.ones(3))):
        assert hull_bound(counts, each, weights, scratch) >= values.max() - 1e-9
        likelihood, bound = hull_maximum(counts, each, weights, tolerance=1e-6)
        assert likelihood >= values.max() - 1e-9
        assert bound - likelihood <= 1e-6
        integral = values.max() + math.log(np.mean(np.exp(values - values.max())))
        assert hull_evidence(counts, each, weights, scratch) <= integral + 0.05  # the grid's own error
        if rows < 1_000:
            assert hull_evidence(counts, each, weights, scratch) >= integral - 3.0
    em = np.full(3, 1 / 3)
    hull_fit(counts, each, em, 2_000, 0.0, scratch)
    assert hull_likelihood(counts, each, em, scratch) == pytest.approx(likelihood, abs=0.01)


@pytest.mark.parametrize("p", [0.5, 0.3, 0.1, 0.05])
def test_what_the_bound_on_the_integral_of_a_pair_costs(p: float) -> None:
    """1/2 + log(2 pi)/2 + log((p^2 + (1 - p)^2)/2)/2 to second order, from 0.73 up to 1.08 (L8)."""
    each = np.array([[0.7, 0.2], [0.2, 0.3], [0.1, 0.5]])
    counts = 1e6 * (each @ (p, 1.0 - p))
    grid = np.linspace(0.0, 1.0, 100_001)[:, None]
    likelihood = np.log(grid * each[:, 0] + (1.0 - grid) * each[:, 1]) @ counts
    integral = likelihood.max() + math.log(np.exp(likelihood - likelihood.max()).mean())
    found = hull_evidence(counts, each, np.array([p, 1.0 - p]), np.zeros(2))
    expected = 0.5 + 0.5 * math.log(2.0 * math.pi) + 0.5 * math.log((p**2 + (1.0 - p) ** 2) / 2.0)
    assert integral - found == pytest.approx(expected, abs=2e-3)
    assert 0.72 < expected < 1.08


def test_what_no_member_allows_refuses_a_hull_and_a_weight_of_zero_does_not() -> None:
    each, scratch = np.array([[0.5, 0.0], [0.5, 1.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), np.zeros(2)
    seen = np.array([1.0, 0.0, 0.0, 3.0, 0.0])
    assert hull_bound(seen, each, np.array([0.0, 1.0]), scratch) == math.inf
    assert math.isfinite(hull_bound(seen, each, np.array([0.1, 0.9]), scratch))
    assert hull_bound(np.ones(5), each, np.array([0.5, 0.5]), scratch) == -math.inf
    assert hull_evidence(np.ones(5), each, np.array([0.5, 0.5]), scratch) == -math.inf


def refusals(rng: np.random.Generator, delta: float, runs: int, peeking: bool) -> tuple[int, int]:
    """Runs of 60 rows in which, at some time, the true member is not alive (L2), and the true pair refused (L8).

    ``peeking``: the competitor is fitted on the row that it predicts.
    """
    lost = refused = 0
    for _ in range(runs):
        each = kernels(rng, 6)
        logs = ladder_log_weights(np.full(6, 1 / 6), 1, 2)
        mixed, hull, scratch = np.full(6, 1 / 6), 0.0, np.zeros(6)
        counts, alive = np.zeros(START[-1]), True
        for o in draw(rng, each[:, 2], 60):
            new = np.zeros(START[-1])
            new[o] = 1.0
            if peeking:
                mixed[:] = 1 / 6
                hull_fit(counts + 30.0 * new, each, mixed, 20, 1 / 6, scratch)
            hull += hull_likelihood(new, each, mixed, scratch)
            counts += new
            hull_fit(counts, each, mixed, 3, 1 / 6, scratch)
            members = member_likelihoods(counts, each)
            competitors = [kt_evidence(counts, START), hull]
            mixture = log_mixture(logs, np.concatenate([members, competitors]))
            alive = alive and bool(members[2] >= mixture - math.log(1.0 / delta))
        lost += not alive
        pair, best = np.ascontiguousarray(each[:, [2, 4]]), np.full(2, 0.5)
        _, bound = hull_maximum(counts, pair, best)
        sets = [np.ascontiguousarray(each[:, [i, j]]) for i in range(6) for j in range(i)]
        evidence = []
        for own in sets:
            weights = np.full(2, 0.5)
            hull_fit(counts, own, weights, 10, 0.0, scratch[:2])
            evidence.append(hull_evidence(counts, own, weights, scratch[:2]))
        refused += bound < log_mixture(np.full(15, -math.log(15.0)), np.array(evidence)) - math.log(1.0 / delta)
    return lost, refused


@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_the_truth_is_lost_no_more_often_than_delta_and_a_competitor_that_peeks_loses_it(
    delta: float, test_seed: int
) -> None:
    most = int(binom.isf(1e-5, 400, delta))  # a right test exceeds this once in 100,000
    lost, refused = refusals(np.random.default_rng([test_seed, 1]), delta, 400, peeking=False)
    assert lost <= most
    assert refused <= most
    peeked, _ = refusals(np.random.default_rng([test_seed, 2]), delta, 100, peeking=True)
    assert peeked > int(binom.isf(1e-5, 100, delta))
