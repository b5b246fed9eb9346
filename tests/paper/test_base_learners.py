"""The letter's UCRL-VTR and UCRL-VTR-LIN against the compiled learners with the paper's options.

``tests/test_oracle.py`` compares the oracle that is made of them with loops over all rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl.errors import InvalidInput
from occamrl.paper import UCRLVTR, UCRLVTRLin
from tests.cases import Stack, mixture, stack
from tests.paper.loop import compare, play

DRAW = np.random.default_rng(0)
FINITE: dict[str, Any] = {"radius": "paper", "weights": "none", "replan": 0}  # the compiled learners set to the paper
LINEAR: dict[str, Any] = {**FINITE, "clip": "horizon", "regularization": 1.0}


def far_apart(seed: int, *, members: int) -> Stack:
    """Return kernels that differ so much that even the paper's ball excludes some of them soon."""
    kernels = np.random.default_rng(seed).dirichlet(np.full(3, 0.2), size=(members, 3, 2))
    reward, initial = np.array([[0.0, 0.1], [0.3, 0.2], [1.0, 0.9]]), [0.5, 0.3, 0.2]
    mdp = orl.FiniteMDP(transition=kernels[0], reward=reward, horizon=3, initial_state=initial)
    return Stack(kernels, reward, mdp)


@pytest.mark.parametrize("seed", range(5))
def test_ucrl_vtr_is_the_compiled_one_set_to_the_paper(seed: int) -> None:
    case = far_apart(seed, members=12)
    learner = UCRLVTR(family=case.family, delta=0.1)
    compiled = orl.UCRLVTR(family=case.family, delta=0.1, **FINITE)
    found = compare(learner, compiled, case.mdp, 3000, seed)
    assert not learner.confidence_set(case.mdp.known, found.state).all()  # the data have excluded somebody
    assert len({entry["member"] for entry in found.history}) > 1


@pytest.mark.parametrize(("seed", "constant"), [(0, 1.0), (1, 1e-3), (2, 1e-5), (3, 1e-4), (4, 1.0)])
def test_ucrl_vtr_lin_is_the_compiled_one_set_to_the_paper(seed: int, constant: float) -> None:
    case = mixture(seed, initial_state=[0.4, 0.3, 0.2, 0.1])
    shared: dict[str, Any] = {
        "features": case.features, "norm_bound": 1.3, "delta": 0.1, "paper_constant": constant,
    }  # fmt: skip
    compare(UCRLVTRLin(**shared), orl.UCRLVTRLin(**shared, **LINEAR), case.mdp, 300, seed)


def test_another_clip_is_told_apart_from_the_papers() -> None:
    """Negative control: the comparison above is able to fail."""
    case = mixture(1)
    shared: dict[str, Any] = {"features": case.features, "norm_bound": 1.3, "paper_constant": 1e-3}
    with pytest.raises(AssertionError):
        compare(UCRLVTRLin(**shared), orl.UCRLVTRLin(**shared, **{**LINEAR, "clip": "step"}), case.mdp, 300, 1)


def test_values_are_cut_at_the_horizon_alone() -> None:
    case = mixture(4)
    learner = UCRLVTRLin(features=case.features, norm_bound=1.3, paper_constant=100.0)
    state = learner.begin(case.mdp.known)
    learner.plan(case.mdp.known, state, 0, DRAW)
    assert np.array_equal(state["values"][:3].max(axis=1), [4.0, 4.0, 4.0])  # H at every step but the last
    state["xy"] = np.full(3, -50.0)  # an estimate of (-50, -50, -50), which no kernel has
    UCRLVTRLin(features=case.features, norm_bound=1e-3, paper_constant=1e-9).plan(case.mdp.known, state, 0, DRAW)
    assert state["values"].min() < 0.0


def test_plans_are_optimistic_while_the_truth_is_covered() -> None:
    for seed in range(4):
        case = mixture(seed)
        learner = UCRLVTRLin(features=case.features, norm_bound=case.norm, delta=0.1)
        assert (play(learner, case.mdp, 60, seed).planned >= case.mdp.optimal_values[0, 0] - 1e-10).all()
        family = stack(seed)
        run = play(UCRLVTR(family=family.family), family.mdp, 200, seed)
        assert (run.planned >= family.mdp.optimal_values[0, 0] - 1e-12).all()


def test_without_a_radius_some_plan_is_not_optimistic() -> None:
    """Negative control: the check above is able to fail."""
    case = mixture(0)
    learner = UCRLVTRLin(features=case.features, norm_bound=1e-6, paper_constant=1e-12)
    assert (play(learner, case.mdp, 60, 0).planned < case.mdp.optimal_values[0, 0] - 1e-3).any()


def test_the_radius_of_an_infinite_family() -> None:
    """M6: one cover per episode as the paper writes it, or dyadic scales whose levels add up to delta."""
    case = stack(0)
    whole = orl.AggregationFamily.tabular(states=3, actions=2)
    shared: dict[str, Any] = {"family": case.family, "delta": 0.1, "infinite_class": whole}
    letter, proved = UCRLVTR(**shared, cover_scales="per_episode"), UCRLVTR(**shared)
    H, k = 4, 10
    expected = 8 * H**2 * (whole.log_covering_number(1 / 40) + math.log(2 / 0.1))
    expected += 4 * H**2 * (2 + math.sqrt(2 * math.log(4 * 40 * 41 / 0.1)))
    assert letter.beta(H, k) == pytest.approx(expected)
    level = 0.1 / (7 * 8)  # 2^-6 is the largest power that does not exceed 1/40
    expected = 8 * H**2 * (whole.log_covering_number(1 / 64) + math.log(2 / level))
    expected += 4 * H**2 * (2 + math.sqrt(2 * math.log(4 * 40 * 41 / level)))
    assert proved.beta(H, k) == pytest.approx(expected)
    assert sum(1 / ((j + 1) * (j + 2)) for j in range(100_000)) == pytest.approx(1.0, abs=1e-4)
    assert proved.beta(H, 0) == proved.beta(H, 1)
    assert (play(proved, case.mdp, 20, 0).planned >= case.mdp.optimal_values[0, 0] - 1e-12).all()


def test_what_is_outside_the_papers_setting_is_refused() -> None:
    case, family = mixture(0), stack(0)
    reward = np.broadcast_to(0.5 * np.eye(4)[:, None], (4, 2, 4))
    on_transitions = orl.FiniteMDP(transition=case.transition, reward=reward, horizon=3)
    learner = UCRLVTRLin(features=case.features, norm_bound=1.0)
    with pytest.raises(InvalidInput, match="rewards on transitions"):
        learner.begin(on_transitions.known)
    with pytest.raises(InvalidInput, match="unknown rewards"):
        learner.begin(case.mdp.known.without_rewards)
    with pytest.raises(InvalidInput, match="S=3, A=2"):
        UCRLVTR(family=family.family).begin(case.mdp.known)
