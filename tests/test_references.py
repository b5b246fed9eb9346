"""References are the selector itself where there is nothing to select."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl import registry
from occamrl.errors import ParameterError
from occamrl.protocols import Learner

LISTS = orl.make_problem("sparse-ladder", states=4, actions=2, horizon=4)
MIXTURE = orl.make_problem("sparse-mixture", seed=0, states=4, dimension=6, nonzero=2)
FEATURES = orl.FeatureMap(MIXTURE.phi)
NORM = float(np.linalg.norm(MIXTURE.theta))


def queue(length: int, serve: int, *, arrive: float, leave: float = 0.5) -> Any:
    """Yield what can happen to a queue of up to three customers."""
    ends = leave if serve else 0.1
    up = min(length + 1, 3)
    down = max(length - 1, 0)
    yield arrive * (1 - ends), up, -length / 3, False
    yield ends * (1 - arrive), down, -length / 3, False
    yield arrive * ends + (1 - arrive) * (1 - ends), length, -length / 3, False


QUEUE = orl.Model(
    queue,
    start=0,
    actions=[0, 1],
    horizon=4,
    parameters={"arrive": (0.1, 0.9), "leave": (0.2, 0.8)},
)
REAL = QUEUE.ladder({"arrivals": ["arrive"], "both": ["arrive", "leave"]})
LADDER = orl.Ladder.of_problem(LISTS)
SIMULATORS = orl.FeatureMap(list(np.random.default_rng(0).dirichlet(np.ones(3), (5, 3, 2))))
LINEAR = orl.Ladder(
    [
        orl.LinearFamily(features=FEATURES, norm_bound=1.0),
        orl.LinearFamily(features=FEATURES, norm_bound=2.0),
    ]
)

# the selector, what it is where there is nothing to select, and the parameters that fix the class
CASES: dict[str, tuple[Learner, type, set[str]]] = {
    "Occam": (orl.Occam(ladder=LADDER, delta=0.01, scope="smallest"), orl.Occam, {"ladder"}),
    "Occam, reals": (orl.Occam(ladder=REAL, delta=0.2, replan=0.3), orl.Occam, {"ladder"}),
    "ARLGen": (orl.ARLGen(ladder=LADDER, delta=0.01, replan=0.2), orl.ARLGen, {"ladder"}),
    "ARLGen, linear": (orl.ARLGen(ladder=LINEAR, delta=0.01), orl.ARLGen, {"ladder"}),
    "paper.ARLGen": (
        orl.paper.ARLGen(ladder=LADDER, delta=0.01),
        orl.paper.UCRLVTR,
        {"family", "ladder"},
    ),
    "OccamMixture": (
        orl.OccamMixture(features=SIMULATORS, delta=0.01),
        orl.OccamMixture,
        {"features", "largest_set"},
    ),
    "ARLLinDim": (
        orl.ARLLinDim(features=FEATURES, norm_bound=3.0, scale=0.5, replan=0.1),
        orl.UCRLVTRLin,
        {"features", "regularization"},
    ),
    "ARLLinNorm": (
        orl.ARLLinNorm(features=FEATURES, norm_bound=3.0, scale=0.5, delta=0.01),
        orl.UCRLVTRLin,
        {"norm_bound", "regularization"},
    ),
    "ARLLin": (
        orl.ARLLin(features=FEATURES, norm_bound=3.0, scale=0.5, replan=0.1),
        orl.UCRLVTRLin,
        {"features", "norm_bound", "regularization"},
    ),
    "paper.ARLLinDim": (
        orl.paper.ARLLinDim(features=FEATURES, norm_bound=3.0, paper_constant=0.5),
        orl.paper.UCRLVTRLin,
        {"features"},
    ),
    "paper.ARLLinNorm": (
        orl.paper.ARLLinNorm(features=FEATURES, norm_bound=3.0, paper_constant=0.5),
        orl.paper.UCRLVTRLin,
        {"norm_bound"},
    ),
    "Arena": (
        orl.Arena(
            bases=[orl.UCRLVTR(family=LADDER.family_of(m), delta=0.01) for m in (1, 2, 3, 4)],
            rule=orl.UCB1(),
        ),
        orl.UCRLVTR,
        {"family"},
    ),
}


def test_every_selector_of_the_package_is_among_the_cases() -> None:
    selectors = set(registry.own("selectors")) | set(registry.own("paper"))
    selectors -= {
        "paper.UCRLVTR",
        "paper.UCRLVTRLin",
        "paper.UCRLVTRLinAyoub",
        "UCRLVTR",
        "UCRLVTRLin",
    }
    named = {case.split(",")[0] for case in CASES} | {case.split(".")[-1] for case in CASES}
    assert selectors <= named, selectors - named


@pytest.mark.parametrize("case", CASES)
def test_references_have_the_type_and_the_parameters_of_the_selector(case: str) -> None:
    selector, kind, fixed = CASES[case]
    references = [orl.largest(selector)]
    if case not in ("Occam, reals", "ARLGen, linear", "OccamMixture"):
        problem: Any = MIXTURE if "Lin" in case else LISTS
        references.append(orl.oracle(selector, problem))
    if "Lin" not in case and case != "OccamMixture":
        references.append(orl.smallest(selector))
    own = {field.name for field in dataclasses.fields(selector)}  # type: ignore[arg-type]
    for reference in references:
        assert type(reference) is kind
        shared = {field.name for field in dataclasses.fields(reference)} & own - fixed  # type: ignore[arg-type]
        for name in shared:
            assert vars(reference)[name] == vars(selector)[name], name
        assert shared or case == "Arena"


def test_the_oracle_has_the_class_the_support_and_the_norm_of_the_truth() -> None:
    right = LADDER.class_of(LISTS.mdp)
    assert right is not None
    for case in ("Occam", "ARLGen"):
        reference: Any = orl.oracle(CASES[case][0], LISTS)
        assert reference.ladder.sizes == [LADDER.sizes[right - 1]]
        assert reference.ladder.names == (LADDER.names[right - 1],)
    for case in ("paper.ARLGen", "Arena"):
        reference = orl.oracle(CASES[case][0], LISTS)
        assert reference.family.size == LADDER.sizes[right - 1]
    expected: dict[str, tuple[int, float]] = {
        "ARLLin": (2, NORM),
        "ARLLinDim": (2, 3.0),
        "ARLLinNorm": (6, NORM),
        "paper.ARLLinDim": (2, 3.0),
        "paper.ARLLinNorm": (6, NORM),
    }
    for case, (dimension, bound) in expected.items():
        # from the problem, from its kernel alone, and as is given
        ways: list[Callable[[Learner], Learner]] = [
            lambda selector: orl.oracle(selector, MIXTURE),
            lambda selector: orl.oracle(selector, MIXTURE.mdp, theta=MIXTURE.theta),
        ]
        for way in ways:
            reference = way(CASES[case][0])
            assert reference.features.dimension == dimension
            assert reference.norm_bound == pytest.approx(bound)


def test_the_truth_is_read_off_the_kernel_where_one_theta_makes_it() -> None:
    kernels = np.random.default_rng(1).dirichlet(np.ones(3), (3, 3, 2))
    truth = 0.25 * kernels[0] + 0.75 * kernels[2]
    mdp = orl.FiniteMDP(transition=truth, reward=np.eye(3)[:, :2], horizon=3)
    selector = orl.OccamMixture(features=orl.FeatureMap(list(kernels)))
    reference: Any = orl.oracle(selector, mdp)
    assert reference.features.dimension == 2
    assert np.allclose(reference.features.kernel(np.array([[0.25, 0.75]])), truth)
    assert reference.sets.tolist() == [[True, True]]
    twice = orl.OccamMixture(features=orl.FeatureMap([kernels[0], kernels[0], kernels[2]]))
    with pytest.raises(ParameterError, match="several theta"):
        orl.oracle(twice, mdp)
    with pytest.raises(ParameterError, match="no theta"):
        orl.oracle(orl.OccamMixture(features=orl.FeatureMap(list(kernels[:2]))), mdp)


def test_what_cannot_be_looked_up_can_be_given_and_is_asked_for() -> None:
    mdp = orl.FiniteMDP(transition=np.full((4, 2, 4), 0.25), reward=np.zeros((4, 2)), horizon=4)
    selector = CASES["Occam"][0]
    with pytest.raises(ParameterError, match="class_="):
        orl.oracle(selector, mdp)
    reference: Any = orl.oracle(selector, mdp, class_=2)
    assert reference.ladder.sizes == [LADDER.sizes[1]]
    with pytest.raises(ParameterError, match="theta"):
        orl.oracle(CASES["ARLLin"][0], MIXTURE, theta=np.ones(5))
    with pytest.raises(ParameterError, match="with a ladder"):
        orl.smallest(orl.PSRL())
    with pytest.raises(ParameterError, match="got 9"):
        orl.oracle(selector, mdp, class_=9)


@pytest.mark.parametrize("case", ["Occam", "ARLGen", "paper.ARLGen", "ARLLin", "OccamMixture"])
def test_references_play(case: str) -> None:
    selector = CASES[case][0]
    problem: Any = MIXTURE if case == "ARLLin" else LISTS
    if case == "OccamMixture":
        kernel = np.full((3, 2, 3), 1 / 3)
        problem = orl.FiniteMDP(transition=kernel, reward=np.eye(3)[:, :2], horizon=3)
    result = orl.run(orl.largest(selector), problem, episodes=5, progress=False)
    assert result.total_episodes == 5
