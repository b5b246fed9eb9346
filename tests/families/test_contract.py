"""The contract of families: what is broken on purpose is caught; covering numbers and eluder bounds by brute force."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl.analysis.complexity import eluder_dimension, family_eluder_bound, predictions
from occamrl.checks import check_family
from occamrl.errors import ContractError, FamilyError, ParameterError
from occamrl.models.linear import AggregationFamily, LinearFamily
from occamrl.protocols import Floats

BROKEN: dict[str, tuple[type[Any], str, Callable[..., Any], str]] = {
    "a loss that is too large": (AggregationFamily, "smallest_loss", lambda self, gram, xy: 1e3, "smaller loss"),
    "a loss that is too small": (LinearFamily, "smallest_loss", lambda self, gram, xy: -1e3, "least squares"),
    "a growing covering number": (AggregationFamily, "log_covering_number", lambda self, alpha: alpha, "covering"),
    "members elsewhere": (AggregationFamily, "contains", lambda self, kernel: False, "is contained"),
    "members that are no kernels": (LinearFamily, "members", lambda self, draw, n: [np.full(3, 5.0)], "is a kernel"),
    "no members": (LinearFamily, "members", lambda self, draw, n: [], "is a kernel"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_family_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, method, wrong, clause = BROKEN[name]
    monkeypatch.setattr(kind, method, wrong)
    with pytest.raises(ContractError, match=clause):
        check_family(kind.examples()[0])


def test_a_linear_class_without_a_kernel_says_so() -> None:
    kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(2, 3, 2))
    features = orl.FeatureMap([kernels[0], kernels[1] - kernels[0]])
    with pytest.raises(FamilyError, match="no kernel"):
        orl.LinearFamily(features=features, norm_bound=1.0, coordinates=[1]).check(np.random.default_rng(0))


def coin(p: Any) -> Floats:
    return np.array([[[1.0 - p, p]], [[1.0, 0.0]]])


def test_covering_numbers_are_no_smaller_than_the_smallest_cover() -> None:
    # One coin: sum |P - P'| = 2 |p - p'|, so an alpha-ball covers alpha of [0, 1] and ceil(1/alpha) are needed.
    family = AggregationFamily(partition=[0, 1], moves=[[[0, 1]], [[0, -1]]])
    for alpha in (0.05, 0.3, 0.5, 0.9):
        assert family.log_covering_number(alpha) >= math.log(math.ceil(1.0 / alpha - 1e-9))
    assert family.log_covering_number(1.0) == 0.0  # p = 1/2 is enough
    two = AggregationFamily(partition=[0, 1], actions=1)
    assert two.log_covering_number(0.1) == pytest.approx(2.0 * family.log_covering_number(0.1))
    # theta = (1, t) with |theta| <= b over "heads never" and "what p changes".
    linear = orl.LinearFamily(features=orl.FeatureMap([coin(0.0), coin(1.0) - coin(0.0)]), norm_bound=math.sqrt(2.0))
    for alpha in (0.05, 0.3, 0.5):
        assert linear.log_covering_number(alpha) >= math.log(math.ceil(1.0 / alpha - 1e-9))
        # |phi| of (0, 0): sqrt(2), of (0, 1): 1; two dimensions
        lipschitz = 1.0 + math.sqrt(2.0)
        assert linear.log_covering_number(alpha) == pytest.approx(
            2 * math.log1p(2 * math.sqrt(2.0) * lipschitz / alpha)
        )


def test_eluder_bounds_hold_for_small_families() -> None:
    kernels = np.random.default_rng(1).dirichlet(np.ones(2), size=(4, 2, 1))
    family = orl.FiniteFamily(kernels)
    mdp = orl.FiniteMDP(transition=kernels[0], reward=[[0.0], [1.0]], horizon=3)
    functions = predictions(family, mdp.known)[:, :12]
    assert 1 <= eluder_dimension(functions, 0.01) <= family_eluder_bound(family, 0.01) == 6.0
    # Independent points of indicators: the tabular class of S*A distributions over two states has dimension >= S*A.
    assert family_eluder_bound(AggregationFamily.tabular(states=2, actions=1), 0.1) >= 2
    assert family_eluder_bound(LinearFamily.examples()[0], 0.1) >= 3
    with pytest.raises(ParameterError):
        family_eluder_bound("family", 0.1)  # type: ignore[arg-type]  # wrong on purpose
