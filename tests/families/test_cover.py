"""Covers of parametric classes: grids, nesting, fineness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl.errors import InvalidInput, NestingError
from occamrl.models.finite import CoverFamily


def kernel(p: Any) -> Any:
    slip, drift = p
    return np.array([[[1 - slip, slip], [slip, 1 - slip]], [[drift, 1 - drift], [1 - drift, drift]]])


def test_the_grid_and_its_fineness() -> None:
    family = CoverFamily(kernel, low=[0.0, 0.1], high=[0.4, 0.3], step=[0.2, 0.1])
    assert family.size == 9
    np.testing.assert_allclose(family.parameters[4], [0.2, 0.2])
    np.testing.assert_allclose(family.kernel(4), kernel([0.2, 0.2]))
    assert family.reach == pytest.approx(0.3)  # half of 2 * 0.2 and half of 2 * 0.1, one for each parameter
    assert CoverFamily(kernel, low=[0.0, 0.1], high=[0.4, 0.3], step=[0.2, 0.1], reach=0.0).reach == 0.0


def test_boxes_are_nested_when_their_grids_are() -> None:
    small = CoverFamily(kernel, low=[0.0, 0.2], high=[0.0, 0.2], step=0.1)
    middle = CoverFamily(kernel, low=[0.0, 0.2], high=[0.5, 0.2], step=0.1)
    large = CoverFamily(kernel, low=[0.0, 0.0], high=[0.5, 0.5], step=0.1)
    assert orl.Ladder([small, middle, large]).sizes == [1, 6, 36]
    with pytest.raises(NestingError):
        orl.Ladder([middle, CoverFamily(kernel, low=[0.0, 0.0], high=[0.4, 0.5], step=0.1)])


@pytest.mark.parametrize(
    ("low", "high", "step"),
    [
        ([0.0], [0.1, 0.2], 0.1),
        ([0.5, 0.0], [0.1, 0.2], 0.1),
        ([0.0, 0.0], [1.0, 1.0], 0.0),
        ([0.0], [1.0], 1e-9),
        ([0.0, 0.05], [0.2, 0.2], 0.1),  # an end between two points
        ([0.05, 0.0], [0.05, 0.2], 0.1),
    ],
)
def test_bad_boxes_are_refused(low: list[float], high: list[float], step: float) -> None:
    with pytest.raises(InvalidInput):
        CoverFamily(kernel, low=low, high=high, step=step)


@pytest.mark.parametrize("reach", [-0.1, np.nan, 2.5, "wide"])
def test_a_bad_reach_is_refused(reach: Any) -> None:
    with pytest.raises(InvalidInput):
        CoverFamily(kernel, low=[0.0, 0.0], high=[0.2, 0.2], step=0.1, reach=reach)
