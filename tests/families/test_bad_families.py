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


def tabular(**options: Any) -> FeatureMap:
    return FeatureMap.tabular(**{"states": S, "actions": A, **options})


MAP: Any = FeatureMap([UNIFORM])

BAD: dict[str, tuple[Callable[[], Any], type[InvalidInput], str]] = {
    "phi of three axes": (lambda: FeatureMap(UNIFORM), ShapeError, r"^phi.*\[S, A, S, d\]"),
    "phi that is not square": (lambda: FeatureMap(np.ones((S, A, 2, 1))), ShapeError, r"^phi.*\[S, A, S, d\]"),
    "phi without coordinates": (lambda: FeatureMap(np.ones((S, A, S, 0))), ShapeError, "^phi.*list of kernels"),
    "no kernel at all": (lambda: FeatureMap([]), ShapeError, "^phi.*list of kernels"),
    "kernels of two shapes": (lambda: FeatureMap([UNIFORM, OTHER]), ShapeError, r"^phi\[1\]:.*expected \(3, 2, 3\)"),
    "sparse kernels of two shapes": (
        lambda: FeatureMap([flat(UNIFORM), flat(OTHER)]),
        ShapeError,
        r"^phi\[1\]:.*got \(8, 4\), expected \(6, 3\)",
    ),
    "a sparse kernel of the wrong shape": (
        lambda: FeatureMap([sp.csr_array(np.ones((4, 3)))]),
        ShapeError,
        r"^phi\[0\]:.*\(S\*A, S\)",
    ),
    "a sparse kernel without states": (lambda: FeatureMap([sp.csr_array((4, 0))]), ShapeError, r"^phi\[0\]:.*S"),
    "NaN in phi": (lambda: FeatureMap([changed((2, 1, 0), np.nan)]), FeatureError, r"^phi\[2, 1, 0, 0\]:.*finite"),
    "infinity in phi": (lambda: FeatureMap([changed((0, 1, 2), np.inf)]), FeatureError, r"^phi\[0, 1, 2, 0\]:.*finite"),
    "NaN in a sparse kernel": (
        lambda: FeatureMap([flat(UNIFORM), flat(changed((0, 1, 2), np.nan))]),
        FeatureError,
        r"^phi\[1\]:.*finite",
    ),
    "a pair that leads nowhere": (lambda: FeatureMap([changed((1, 0), 0.0)]), FeatureError, r"^phi\[2\]:.*no next"),
    "sums that no theta makes one": (
        lambda: FeatureMap([UNIFORM * np.array([1.0, 2.0])[None, :, None]]),
        FeatureError,
        "^phi.*sum to one",
    ),
    "the same, sparse": (
        lambda: FeatureMap([flat(UNIFORM * np.array([1.0, 2.0])[None, :, None])]),
        FeatureError,
        "^phi.*sum to one",
    ),
    "negative for every theta": (
        lambda: FeatureMap(np.tile([[2.0], [-1.0]], (2, 1, 1, 1))),
        FeatureError,
        "^phi.*no theta makes all probabilities >= 0",
    ),
    "the same, sparse and signed": (
        lambda: FeatureMap([sp.csr_array([[2.0, -1.0], [2.0, -1.0]]), sp.csr_array([[-1.0, 1.0], [1.0, -1.0]])]),
        FeatureError,
        "^phi.*no theta makes all probabilities >= 0",
    ),
    "a coordinate too large": (lambda: MAP.restrict([1]), ShapeError, r"^coordinates.*\[0, 1\)"),
    "a negative coordinate": (lambda: MAP.restrict([-1]), ShapeError, r"^coordinates.*\[0, 1\)"),
    "a coordinate twice": (lambda: MAP.restrict([0, 0]), ShapeError, "^coordinates.*different integers"),
    "half a coordinate": (lambda: MAP.restrict([0.5]), ShapeError, "^coordinates.*integers"),
    "restricting a one-hot map": (lambda: tabular().restrict([0]), FeatureError, "^coordinates.*dense or"),
    "no states": (lambda: tabular(states=0), ShapeError, "^states: .*>= 1"),
    "a support of another shape": (
        lambda: tabular(support=np.ones((S, A))),
        ShapeError,
        r"^support.*expected \(3, 2, 3\)",
    ),
    "a support without a way out": (
        lambda: tabular(support=changed((1, 1), 0.0, np.ones((S, A, S)))),
        FeatureError,
        r"^support\[3\]:.*at least one",
    ),
    "theta of another size": (lambda: MAP.kernel([1.0, 2.0]), ShapeError, r"^theta.*\(1,\)"),
    "no simulator": (lambda: FeatureMap.of_simulators([]), FeatureError, "^simulators.*at least one"),
    "simulators of two sizes": (
        lambda: FeatureMap.of_simulators(
            [FiniteMDP(transition=P, reward=np.zeros(P.shape[:2]), horizon=2) for P in (UNIFORM, OTHER)]
        ),
        ShapeError,
        r"^simulators\[1\]:.*S=3, A=2",
    ),
    "a simulator with a kernel per step": (
        lambda: FeatureMap.of_simulators(
            [FiniteMDP(transition=np.stack([UNIFORM] * 2), reward=np.zeros((S, A)), horizon=2)]
        ),
        ShapeError,
        r"^simulators\[0\]:.*one kernel",
    ),
    "an empty family": (lambda: FiniteFamily([]), FamilyError, "^kernels.*at least one member"),
    "an empty stack": (lambda: FiniteFamily(np.zeros((0, S, A, S))), FamilyError, "^kernels.*at least one"),
    "a kernel instead of a stack": (lambda: FiniteFamily(UNIFORM), ShapeError, r"^kernels.*\[n, S, A, S\]"),
    "members of two shapes": (lambda: FiniteFamily([UNIFORM, OTHER]), ShapeError, r"^kernels\[1\]:.*\(3, 2, 3\)"),
    "a member that sums to 0.9": (
        lambda: FiniteFamily([UNIFORM, changed((2, 1, 0), 1 / 3 - 0.1)]),
        FamilyError,
        r"^kernels\[1, 2, 1\]:.*sum to 0.9",
    ),
    "a negative member": (
        lambda: FiniteFamily([UNIFORM, changed((0, 1), np.array([1.5, -0.5, 0.0]))]),
        FamilyError,
        r"^kernels\[1, 0, 1\]:.*a probability of -0.5",
    ),
    "a member with NaN": (
        lambda: FiniteFamily([UNIFORM, changed((1, 0, 1), np.nan)]),
        FamilyError,
        r"^kernels\[1, 1, 0\]:.*not a finite number",
    ),
    "kernels and parameters": (
        lambda: FiniteFamily([UNIFORM], parameters=[[1.0]], features=MAP),
        FamilyError,
        "^kernels.*parameters with features",
    ),
    "neither": (lambda: FiniteFamily(), FamilyError, "^kernels.*parameters with features"),
    "parameters alone": (lambda: FiniteFamily(parameters=[[1.0]]), FamilyError, "^kernels.*with features"),
    "features that are none": (
        lambda: FiniteFamily(parameters=[[1.0]], features=UNIFORM),
        FamilyError,
        "^features.*a FeatureMap",
    ),
    "parameters of another dimension": (
        lambda: FiniteFamily(parameters=np.ones((4, 2)), features=MAP),
        ShapeError,
        r"^parameters.*\[n, 1\]",
    ),
    "no parameters": (
        lambda: FiniteFamily(parameters=np.ones((0, 1)), features=MAP),
        FamilyError,
        "^parameters.*no member",
    ),
    "parameters that give no kernel": (
        lambda: FiniteFamily(parameters=[[1.0], [0.9]], features=MAP),
        FamilyError,
        r"^parameters\[1, 0, 0\]:.*sum to 0.9",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    make, error, message = BAD[name]
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


def test_features_of_another_problem_are_refused() -> None:
    known = FiniteMDP(transition=OTHER, reward=np.zeros((4, A)), horizon=2).known
    with pytest.raises(ShapeError, match="the problem's S=4, A=2") as caught:
        MAP.attach(known)
    assert caught.value.field == "features"
    with pytest.raises(ShapeError):
        FiniteFamily([UNIFORM]).optimal_values(known)
