"""Radii, constant by constant: against the formulas written out in plain Python, and in their order of size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import oracle
from occamrl.learners.radii import ELLIPSOIDS, ellipsoid_width, squared_distance_radius

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
