"""The support rules (M16, M18): the stepwise search against all subsets, and what it must not depend on."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from occamrl.confidence.support import detection_limits, log_choices, penalised_loss, sharp_support, thresholded
from occamrl.contracts import Floats


def rows(draw: np.random.Generator, d: int, count: int, nonzero: int) -> tuple[Floats, Floats, Floats]:
    """Return Sigma, xy and the truth of a regression with correlated rows and noise of range one."""
    x = 0.4 * draw.normal(size=(count, d)) @ (np.eye(d) + 0.3 * draw.normal(size=(d, d)))
    theta = np.zeros(d)
    theta[draw.choice(d, nonzero, replace=False)] = draw.choice((-1.0, 1.0), nonzero) * draw.uniform(0.3, 1.0, nonzero)
    y = x @ theta + draw.uniform(-0.5, 0.5, count)
    return np.eye(d) + x.T @ x, x.T @ y, theta


def test_the_search_finds_the_best_of_all_sets(test_seed: int) -> None:
    draw = np.random.default_rng(test_seed)
    missed = 0
    for count in (0, 3, 10, 30, 100, 300) * 8:
        sigma, xy, _ = rows(draw, 8, count, 3)
        found = sharp_support(sigma, xy, regularization=1.0, last=range(8))
        everything = (s for m in range(1, 9) for s in itertools.combinations(range(8), m))
        best = min(penalised_loss(sigma, xy, s, regularization=1.0, unit=1.0) for s in everything)
        missed += penalised_loss(sigma, xy, found, regularization=1.0, unit=1.0) > best + 1e-9
    assert missed <= 2  # a stepwise search may stop short; on 48 problems of this kind it hardly ever does


def test_with_many_rows_it_is_the_truth_wherever_it_begins(test_seed: int) -> None:
    sigma, xy, theta = rows(np.random.default_rng(test_seed), 30, 20_000, 4)
    for last in ((), range(30), range(10), [29]):
        assert sharp_support(sigma, xy, regularization=1.0, last=last) == np.flatnonzero(theta).tolist()


def test_without_rows_it_takes_everything() -> None:
    """No set fits better than another, and the whole one is the cheapest to name: C(d, d) = 1."""
    assert sharp_support(np.eye(5), np.zeros(5), regularization=1.0) == [0, 1, 2, 3, 4]


def test_it_is_never_empty() -> None:
    sigma = np.eye(3) * 1e6
    assert sharp_support(sigma, np.zeros(3), regularization=1.0, last=[1])


def test_scaling_targets_and_their_range_changes_nothing(test_seed: int) -> None:
    sigma, xy, _ = rows(np.random.default_rng(test_seed), 12, 60, 3)
    assert sharp_support(sigma, xy, regularization=1.0) == sharp_support(sigma, 5.0 * xy, regularization=1.0, unit=5.0)


def test_a_coordinate_is_taken_in_exactly_from_its_detection_limit_on() -> None:
    sigma = np.diag([50.0, 20.0, 80.0])
    limits = detection_limits(sigma, [0], regularization=1.0, unit=1.0)
    assert limits[0] == 0.0
    for factor, expected in ((0.999, [0]), (1.001, [0, 1])):
        xy = np.array([50.0, factor * limits[1] * 20.0, 0.0])
        one, two = (penalised_loss(sigma, xy, s, regularization=1.0, unit=1.0) for s in ([0], [0, 1]))
        assert (two < one) == (expected == [0, 1])


def test_thresholds_and_counts() -> None:
    assert thresholded(np.array([0.5, -0.5, 0.49, 0.0]), 0.5) == [0, 1]  # "at least", in either direction
    assert log_choices(4, 2) == pytest.approx(np.log(5 * 6))
    assert sum(np.exp(-log_choices(6, m)) * c for m, c in enumerate((1, 6, 15, 20, 15, 6, 1))) == pytest.approx(1.0)
