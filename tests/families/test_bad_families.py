"""Each mistake in features or families has its own error: type, field, place, and what would have been right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from occamrl.errors import FamilyError, FeatureError, InvalidInput, ShapeError
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.problems.mdp import FiniteMDP

S, A = 3, 2
UNIFORM: Any = np.full((S, A, S), 1.0 / S)
OTHER = np.full((4, A, 4), 0.25)


def changed(index: tuple[int, ...], value: Any, array: Any = UNIFORM) -> Any:
    copy = np.array(array)
    copy[index] = value
    return copy


def flat(kernel: Any) -> Any:
    return sp.csr_array(np.reshape(kernel, (-1, kernel.shape[-1])))


def with_member(index: tuple[int, ...], value: Any) -> FiniteFamily:
    return FiniteFamily([UNIFORM, changed(index, value)])


def tabular(**options: Any) -> FeatureMap:
    return FeatureMap.tabular(**{"states": S, "actions": A, **options})


MAP: Any = FeatureMap([UNIFORM])
HEAVY = UNIFORM * np.array([1.0, 2.0])[None, :, None]  # sums that no theta makes one
NO_WAY_OUT = changed((1, 1), 0.0, np.ones((S, A, S)))
SIMULATORS = [FiniteMDP(transition=P, reward=np.zeros(P.shape[:2]), horizon=2) for P in (UNIFORM, OTHER)]
BY_STEP = FiniteMDP(transition=np.stack([UNIFORM] * 2), reward=np.zeros((S, A)), horizon=2)

BAD: list[tuple[type[InvalidInput], str, Callable[[], Any]]] = [
    (ShapeError, r"^phi.*\[S, A, S, d\]", lambda: FeatureMap(UNIFORM)),
    (ShapeError, "^phi.*list of kernels", lambda: FeatureMap(np.ones((S, A, S, 0)))),
    (ShapeError, r"^phi\[1\]:.*expected \(3, 2, 3\)", lambda: FeatureMap([UNIFORM, OTHER])),
    (ShapeError, r"^phi\[1\]:.*got \(8, 4\), expected \(6, 3\)", lambda: FeatureMap([flat(UNIFORM), flat(OTHER)])),
    (ShapeError, r"^phi\[0\]:.*\(S\*A, S\)", lambda: FeatureMap([sp.csr_array(np.ones((4, 3)))])),
    (FeatureError, r"^phi\[2, 1, 0, 0\]:.*finite", lambda: FeatureMap([changed((2, 1, 0), np.nan)])),
    (FeatureError, r"^phi\[1\]:.*finite", lambda: FeatureMap([flat(UNIFORM), flat(changed((0, 1, 2), np.nan))])),
    (FeatureError, r"^phi\[2\]:.*no next", lambda: FeatureMap([changed((1, 0), 0.0)])),
    (FeatureError, "^phi.*sum to one", lambda: FeatureMap([HEAVY])),
    (FeatureError, "^phi.*no theta makes all", lambda: FeatureMap(np.tile([[2.0], [-1.0]], (2, 1, 1, 1)))),
    (ShapeError, r"^coordinates.*\[0, 1\)", lambda: MAP.restrict([1])),
    (ShapeError, "^coordinates.*different integers", lambda: MAP.restrict([0, 0])),
    (FeatureError, "^coordinates.*dense or", lambda: tabular().restrict([0])),
    (ShapeError, "^states: .*>= 1", lambda: tabular(states=0)),
    (ShapeError, r"^support.*expected \(3, 2, 3\)", lambda: tabular(support=np.ones((S, A)))),
    (FeatureError, r"^support\[3\]:.*at least one", lambda: tabular(support=NO_WAY_OUT)),
    (ShapeError, r"^theta.*\(1,\)", lambda: MAP.kernel([1.0, 2.0])),
    (FeatureError, "^simulators.*at least one", lambda: FeatureMap.of_simulators([])),
    (ShapeError, r"^simulators\[1\]:.*S=3, A=2", lambda: FeatureMap.of_simulators(SIMULATORS)),
    (ShapeError, r"^simulators\[0\]:.*one kernel", lambda: FeatureMap.of_simulators([BY_STEP])),
    (FamilyError, "^kernels.*at least one member", lambda: FiniteFamily([])),
    (ShapeError, r"^kernels.*\[n, S, A, S\]", lambda: FiniteFamily(UNIFORM)),
    (ShapeError, r"^kernels\[1\]:.*\(3, 2, 3\)", lambda: FiniteFamily([UNIFORM, OTHER])),
    (FamilyError, r"^kernels\[1, 2, 1\]:.*sum to 0.9", lambda: with_member((2, 1, 0), 1 / 3 - 0.1)),
    (FamilyError, r"^kernels\[1, 0, 1\]:.*a probability of -0.5", lambda: with_member((0, 1), [1.5, -0.5, 0.0])),
    (FamilyError, r"^kernels\[1, 1, 0\]:.*not a finite number", lambda: with_member((1, 0, 1), np.nan)),
    (FamilyError, "^kernels.*with features", lambda: FiniteFamily(parameters=[[1.0]])),
    (FamilyError, "^features.*a FeatureMap", lambda: FiniteFamily(parameters=[[1.0]], features=UNIFORM)),
    (ShapeError, r"^parameters.*\[n, 1\]", lambda: FiniteFamily(parameters=np.ones((4, 2)), features=MAP)),
    (FamilyError, "^parameters.*no member", lambda: FiniteFamily(parameters=np.ones((0, 1)), features=MAP)),
    (FamilyError, r"^parameters\[1, 0, 0\]:.*0.9", lambda: FiniteFamily(parameters=[[1.0], [0.9]], features=MAP)),
]


@pytest.mark.parametrize(("error", "message", "make"), BAD)
def test_bad_input(error: type[InvalidInput], message: str, make: Callable[[], Any]) -> None:
    with pytest.raises(error, match=message) as caught:
        make()
    assert type(caught.value) is error
    assert ", expected " in str(caught.value)


@pytest.mark.parametrize("sparse", [False, True])
def test_signed_features_that_do_describe_a_kernel_are_accepted(sparse: bool) -> None:
    """phi_0 = (2, -1) at one pair alone is no kernel; with phi_1 = (-1, 1) beside it theta = (1, 1) makes one."""
    columns = [np.array([[2.0, -1.0], [0.5, 0.5]]), np.array([[-1.0, 1.0], [0.0, 0.0]])]
    phi: Any = [sp.csr_array(each) for each in columns] if sparse else [each.reshape(2, 1, 2) for each in columns]
    features = FeatureMap(phi)
    np.testing.assert_allclose(features.kernel([1.0, 1.0])[:, 0], [[1.0, 0.0], [0.5, 0.5]])


def test_rewards_that_the_problem_does_not_know_are_asked_for() -> None:
    """On a table of outcomes, features may only lead where the table says what it pays, and says it once."""
    table = [[[(1.0, 0, 0.5)]], [[(0.5, 0, 0.0), (0.5, 0, 1.0)]]]
    known = FiniteMDP(outcomes=table, horizon=2).known
    with pytest.raises(FeatureError, match="no known reward") as caught:
        FeatureMap.tabular(states=2, actions=1).attach(known)
    assert (caught.value.field, caught.value.index) == ("features", (0, 0, 1))
    support = [[[True, False]], [[True, False]]]
    with pytest.raises(FeatureError, match="several rewards") as caught:
        FeatureMap.tabular(states=2, actions=1, support=support).attach(known)
    assert caught.value.index == (1, 0, 0)
