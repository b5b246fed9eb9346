"""Radii: constant by constant against formulas in plain Python, and the largest norm on an ellipsoid (M19)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import oracle
from occamrl.errors import ParameterError
from occamrl.learners.radii import ELLIPSOIDS, ellipsoid_width, largest_norm, squared_distance_radius
from occamrl.protocols import Floats

positive = st.floats(1e-3, 1e3)
SETTINGS = st.fixed_dictionaries(
    {
        "weighted": st.booleans(),
        "horizon": st.integers(1, 50),
        "episodes": st.integers(0, 10**7),
        "dimension": st.integers(1, 100),
        "growth": st.floats(0.0, 1e4),  # logdet(Sigma / lambda)
        "delta": st.floats(1e-9, 1.0),
        "regularization": positive,
        "norm_bound": positive,
        "paper_constant": positive,
    }
)


def width(kind: str, h: int, *, weighted: bool, horizon: int, growth: float, **rest: Any) -> float:
    unit, counted = 1.0 if weighted else horizon - 1.0, (rest["episodes"], rest["dimension"], growth)
    given = [rest[name] for name in ("delta", "regularization", "norm_bound", "paper_constant")]
    return float(ellipsoid_width(ELLIPSOIDS[kind], weighted, unit, horizon, h, *counted, *given))


@pytest.mark.parametrize("kind", ELLIPSOIDS)
@given(settings=SETTINGS)
def test_every_width_is_its_formula(kind: Any, settings: dict[str, Any]) -> None:
    lam, d = settings["regularization"], settings["dimension"]
    expected = oracle.linear_radius(
        kind,
        "range" if settings["weighted"] else "none",
        horizon=settings["horizon"],
        dimension=d,
        norm_bound=settings["norm_bound"],
        delta=settings["delta"],
        lam=lam,
        logdet=settings["growth"] + d * math.log(lam),
        episodes=settings["episodes"],
        paper_constant=settings["paper_constant"],
    )
    found = [width(kind, h, **settings) for h in range(settings["horizon"])]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-6)


@given(settings=SETTINGS)
def test_the_sharp_width_is_at_most_the_self_normalised_one(settings: dict[str, Any]) -> None:
    """sqrt(a^2 + b^2) <= a + b: what is lost is the cross term."""
    assert width("sharp", 0, **settings) <= width("unweighted", 0, **settings) * (1 + 1e-12)


def test_a_width_by_hand() -> None:
    """H = 3, plain rows of range 2, logdet(Sigma/lambda) = 4, delta = e^-2, lambda = 1/4, b = 2."""
    settings: dict[str, Any] = {
        "weighted": False, "horizon": 3, "growth": 4.0, "episodes": 7, "dimension": 2, "delta": math.exp(-2.0),
        "regularization": 0.25, "norm_bound": 2.0, "paper_constant": 3.0,
    }  # fmt: skip
    assert width("sharp", 0, **settings) == pytest.approx(3.0)  # sqrt(4/4 (4 + 4) + 1)
    assert width("unweighted", 0, **settings) == pytest.approx(math.sqrt(8.0) + 1.0)
    plain = math.sqrt(4.0 + 4.0 + 2 * math.log(0.25))
    assert [width("ayoub", h, **settings) for h in range(3)] == pytest.approx([u / 2 * plain + 1.0 for u in (3, 2, 1)])
    noise = 9 * 2 * math.log(21.0) * math.log(49 * 3 * math.exp(2.0)) ** 2
    assert width("paper", 0, **settings) == pytest.approx(math.sqrt(3.0 * (4.0 + noise)))


@given(size=st.integers(1, 10**6), delta=st.floats(1e-9, 1.0), horizon=st.integers(1, 50), unit=st.floats(0.0, 50.0))
def test_balls_of_finite_families(size: int, delta: float, horizon: int, unit: float) -> None:
    """M6 is 8 H^2 log(n/delta), M7 2 U^2 log(n/delta); with weights the range is 1 in the place of H and U."""
    settings: dict[str, Any] = {"size": size, "delta": delta, "horizon": horizon}
    level = math.log(size / delta)
    radius = squared_distance_radius("paper", unit=unit, weighted=False, **settings)
    assert radius == pytest.approx(8 * horizon**2 * level)
    assert squared_distance_radius("paper", unit=unit, weighted=True, **settings) == pytest.approx(8 * level)
    assert squared_distance_radius("unweighted", unit=unit, weighted=False, **settings) == pytest.approx(
        2 * unit**2 * level
    )


def random_case(
    draw: np.random.Generator, d: int, condition: float, *, degenerate: bool
) -> tuple[Floats, Floats, float]:
    """Return an ellipsoid with eigenvalues from 1/sqrt(condition) to sqrt(condition), in random position."""
    axes = np.linalg.qr(draw.normal(size=(d, d)))[0]
    s = np.exp(np.linspace(-0.5, 0.5, d) * np.log(condition)) if d > 1 else np.ones(1)
    g = draw.normal(size=d)
    if degenerate:
        g[0] = 0.0
    sigma = (axes * s) @ axes.T
    return axes @ g, 0.5 * (sigma + sigma.T), float(draw.uniform(0.1, 10.0))


@pytest.mark.parametrize(
    ("center", "diagonal", "beta", "expected", "why"),
    [
        ([0.0, 0.0], [1.0, 4.0], 4.0, 2.0, "centred: the half-length of the long axis"),
        ([1.0, 0.0], [1.0, 4.0], 4.0, 3.0, "the centre lies on the long axis: both lengths add up"),
        ([3.0, 4.0], [1.0, 1.0], 4.0, 7.0, "a ball: straight on from the centre"),
        ([0.0, 1.0], [1.0, 4.0], 4.0, np.sqrt(4 - 4 / 9 + 16 / 9), "degenerate: the centre lies on the short axis"),
        ([0.0, 9.0], [1.0, 4.0], 4.0, 10.0, "far out on the short axis, its own end is the farthest"),
        ([-2.0], [4.0], 1.0, 2.5, "one dimension"),
        ([0.3, -0.4], [2.0, 5.0], 0.0, 0.5, "no radius: the centre alone"),
    ],
)
def test_closed_forms(center: list[float], diagonal: list[float], beta: float, expected: float, why: str) -> None:
    answer = largest_norm(np.array(center), np.diag(diagonal), beta)
    assert answer.norm == pytest.approx(expected, rel=1e-12), why
    offset = answer.point - np.array(center)
    assert offset @ np.diag(diagonal) @ offset == pytest.approx(beta, rel=1e-9, abs=1e-15)


def dual_bound(center: Floats, sigma: Floats, beta: float) -> float:
    """Return the least of mu beta + sum mu s g^2/(mu s - 1) over many mu >= 1/s_min, each of which bounds the norm."""
    s, axes = np.linalg.eigh(sigma)
    offset = np.geomspace(1e-16, 1e16, 20_001)  # mu s_min - 1
    bounds = (1.0 + offset) / s[0] * beta
    for each, along in zip(s, axes.T @ center, strict=True):
        bounds += (1.0 + offset) * each * along**2 / (each - s[0] + offset * each)
    return float(np.sqrt(bounds.min()))


@given(
    seed=st.integers(0, 2**32),
    d=st.sampled_from([1, 2, 3, 10, 50]),
    exponent=st.sampled_from([0, 2, 6, 12]),
    degenerate=st.booleans(),
)
def test_the_dual_certifies_it_and_random_search_does_not_beat_it(
    seed: int, d: int, exponent: int, degenerate: bool
) -> None:
    draw = np.random.default_rng(seed)
    center, sigma, beta = random_case(draw, d, 10.0**exponent, degenerate=degenerate)
    answer = largest_norm(center, sigma, beta)
    # A matrix of condition c fixes its smallest eigenvalue to c * eps only; no method can know it better.
    slack = 1e-9 + 50 * d * 10.0**exponent * np.finfo(float).eps
    offset = answer.point - center
    assert offset @ sigma @ offset <= beta * (1.0 + slack)  # primal: the point belongs to the ellipsoid
    assert np.linalg.norm(answer.point) == pytest.approx(answer.norm, rel=1e-9)
    certificate = dual_bound(center, sigma, beta)
    assert answer.norm <= certificate * (1.0 + slack)  # dual: nothing in it is larger
    assert certificate <= answer.norm * (1.0 + slack) + 1e-4 * answer.norm
    root = np.linalg.inv(np.linalg.cholesky(sigma)).T
    directions = draw.normal(size=(d, 500))
    points = center[:, None] + np.sqrt(beta) * root @ (directions / np.linalg.norm(directions, axis=0))
    assert np.linalg.norm(points, axis=0).max() <= answer.norm * (1.0 + slack)
    smallest = np.linalg.eigvalsh(sigma)[0]
    assert answer.norm <= np.linalg.norm(center) + np.sqrt(beta / smallest) * (1.0 + slack)  # the paper's bound


@pytest.mark.parametrize(("sigma", "beta"), [(np.diag([1.0, 0.0]), 1.0), (np.eye(2), -1.0), (np.eye(2), np.nan)])
def test_what_is_no_ellipsoid_is_refused(sigma: Floats, beta: float) -> None:
    with pytest.raises(ParameterError):
        largest_norm(np.ones(2), sigma, beta)
