"""Covers of parametric classes: grids, nesting, and a truth between the points, whose class a term keeps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import occamrl as orl
from occamrl._core.arena import field
from occamrl.analysis.certificates import losses_inside
from occamrl.errors import InvalidInput, NestingError
from occamrl.learners import ucrl_vtr
from occamrl.learners.ucrl_vtr import ROWS
from occamrl.models.finite import CoverFamily, off_grid
from occamrl.problems.mdp import BernoulliRewards
from occamrl.protocols import Floats
from occamrl.running.storage import put_together, take_apart


def slippery(p: Any) -> Any:
    slip, drift = p
    return np.array([[[1 - slip, slip], [slip, 1 - slip]], [[drift, 1 - drift], [1 - drift, drift]]])


def test_the_grid_and_its_fineness() -> None:
    family = CoverFamily(slippery, low=[0.0, 0.1], high=[0.4, 0.3], step=[0.2, 0.1])
    assert family.size == 9
    np.testing.assert_allclose(family.parameters[4], [0.2, 0.2])
    np.testing.assert_allclose(family.kernel(4), slippery([0.2, 0.2]))
    assert family.reach == pytest.approx(0.3)  # half of 2 * 0.2 and half of 2 * 0.1, one for each parameter


def test_boxes_are_nested_when_their_grids_are() -> None:
    small = CoverFamily(slippery, low=[0.0, 0.2], high=[0.0, 0.2], step=0.1)
    middle = CoverFamily(slippery, low=[0.0, 0.2], high=[0.5, 0.2], step=0.1)
    large = CoverFamily(slippery, low=[0.0, 0.0], high=[0.5, 0.5], step=0.1)
    assert orl.Ladder([small, middle, large]).sizes == [1, 6, 36]
    with pytest.raises(NestingError):
        orl.Ladder([middle, CoverFamily(slippery, low=[0.0, 0.0], high=[0.4, 0.5], step=0.1)])


@pytest.mark.parametrize(
    ("low", "high", "more"),
    [
        ([0.0], [0.1, 0.2], {}),
        ([0.0, 0.0], [1.0, 1.0], {"step": 0.0}),
        ([0.0], [1.0], {"step": 1e-9}),
        ([0.0, 0.05], [0.2, 0.2], {}),  # an end between two points
        ([0.0, 0.0], [0.2, 0.2], {"reach": 2.5}),
    ],
)
def test_bad_boxes_are_refused(low: list[float], high: list[float], more: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        CoverFamily(slippery, low=low, high=high, **{"step": 0.1, **more})


DELTA, RUNS, EPISODES, HORIZON = 0.1, 120, 510, 10


def kernel(p: Any) -> Floats:
    """Leave state 0 with probability p, state 1 with probability p + q; the action changes nothing."""
    leave, more = p
    return np.array([[[1 - leave, leave]], [[leave + more, 1 - leave - more]]])


def cover(most: float, reach: float | None = None) -> CoverFamily:
    return CoverFamily(kernel, low=[0.2, 0.0], high=[0.4, most], step=[0.2, 0.1], reach=reach)


def ladder(reach: float | None = None) -> Any:
    """Return q = 0 inside 0 <= q <= 0.6."""
    return orl.Ladder([cover(0.0, reach), cover(0.6, reach)])


def problem(*truth: float) -> orl.FiniteMDP:
    return orl.FiniteMDP(transition=kernel(truth), reward=[[0.0], [1.0]], horizon=HORIZON)


def rejections(agent: Any, mdp: orl.FiniteMDP | None = None, runs: int = RUNS, episodes: int = EPISODES) -> int:
    """Return in how many runs q = 0 is rejected, the truth halfway between two of its points."""
    mdp = problem(0.3, 0.0) if mdp is None else mdp
    results = [orl.run(agent, mdp, episodes=episodes, seed=i, progress=False) for i in range(runs)]
    return sum(max(result.phases["chosen"].to_pylist()) > 1 for result in results)


@given(mean=st.floats(-0.5, 0.5), gap=st.floats(-1.0, 1.0), share=st.floats(0.0, 1.0))
def test_the_term_is_a_supermartingale_and_a_bound(mean: float, gap: float, share: float) -> None:
    """With y = 1/2 or -1/2 and the mean given: exp(2 (L(P0) - L(P*)) - 4 d^2) has mean at most 1, and 2 |d| bounds."""
    up, d = mean + 0.5, float(np.clip(mean + gap, -0.5, 0.5)) - mean
    change = {y: (y - mean - d) ** 2 - (y - mean) ** 2 for y in (0.5, -0.5)}
    weight = up * math.exp(2 * change[0.5] - 4 * d * d) + (1 - up) * math.exp(2 * change[-0.5] - 4 * d * d)
    assert weight <= 1 + 1e-12
    inside = share - 0.5  # any outcome in the range, not the ends alone
    assert (inside - mean - d) ** 2 - (inside - mean) ** 2 <= 2 * abs(d) + 1e-12


def test_the_smaller_of_both_bounds_is_taken() -> None:
    assert off_grid(0.0, 1e6, DELTA) == 0.0
    assert off_grid(0.1, 0.0, DELTA) == 0.0
    assert off_grid(0.1, 5.0, DELTA) == pytest.approx(0.5)  # epsilon n
    assert off_grid(0.1, 1000.0, DELTA) == pytest.approx(5.0 + 0.5 * math.log(20.0))  # epsilon^2 n/2 and the noise


def test_a_truth_between_grid_points_loses_its_class_in_at_most_delta_of_runs() -> None:
    """And in more without the term, or with a tiny radius: the negative controls."""
    limit, of_few = (binom.ppf(1 - 1e-5, runs, DELTA) for runs in (RUNS, 40))
    assert rejections(orl.ARLGen(ladder=ladder(), delta=DELTA)) <= limit
    assert rejections(orl.ARLGen(ladder=ladder(reach=0.0), delta=DELTA), runs=40) > of_few
    assert rejections(orl.ARLGen(ladder=ladder(), delta=DELTA, scale=0.05), runs=40) > of_few


def test_what_lies_farther_than_the_grid_is_rejected_all_the_same() -> None:
    agent = orl.ARLGen(ladder=ladder(reach=0.1), delta=DELTA)
    result = orl.run(agent, problem(0.2, 0.6), episodes=4094, progress=False)
    assert result.phases["chosen"].to_pylist()[-1] == 2
    assert not any(result.phases["outside"].to_pylist())


def test_a_truth_between_grid_points_is_not_called_outside() -> None:
    for reach, outside in ((None, False), (0.0, True)):
        agent = orl.ARLGen(ladder=orl.Ladder([cover(0.0, reach)]), delta=DELTA)
        result = orl.run(agent, problem(0.3, 0.0), episodes=4094, progress=False)
        assert result.phases["outside"].to_pylist()[-1] is outside


def test_the_sharp_set_has_the_threshold_of_the_definition() -> None:
    """M22 at delta/2 and the term, over the kernels that are left."""
    family, mdp = cover(0.6), problem(0.3, 0.1)
    learner = orl.UCRLVTR(family=family, delta=DELTA)
    state = orl.run(learner, mdp, episodes=201, progress=False).state
    found = ucrl_vtr.test_now(learner.model(mdp.known), state)
    rows, left = int(field(state, ROWS)[0]), np.array(list(losses_inside(state).values()))
    assert rows == 201 * (HORIZON - 1)
    mixture = -0.5 * math.log(np.exp(-2 * (left - left.min())).sum() / family.size) + left.min()
    bound = mixture + 0.5 * math.log(2 / DELTA) + off_grid(family.reach, float(rows), DELTA)
    assert found == pytest.approx(bound, abs=1e-9)
    assert left.max() <= bound
    assert 0 < left.size < family.size


def test_the_ball_has_the_radius_of_the_definition() -> None:
    """M7 at delta/2, widened for the distance of the truth to its nearest member."""
    family, mdp = cover(0.6, reach=0.05), problem(0.3, 0.1)
    learner = orl.UCRLVTR(family=family, delta=DELTA, radius="unweighted")
    state = orl.run(learner, mdp, episodes=1201, progress=False).state
    rows, unit = float(field(state, ROWS)[0]), np.ptp(family.optimal_values(mdp.known)[:, 1:], axis=2).max()
    base = 2 * math.log(2 * family.size / DELTA) + 2 * off_grid(family.reach, rows, DELTA)
    radius = (unit * math.sqrt(base) + 0.5 * unit * family.reach * math.sqrt(rows)) ** 2
    np.testing.assert_array_equal(state.inside[0] == 1, state.distance <= radius)
    assert 0 < state.inside.sum() < family.size


def test_a_cover_keeps_its_reach_where_it_goes() -> None:
    made = orl.Ladder([cover(0.0), cover(0.6)])
    assert made.reach == pytest.approx([0.2, 0.3])
    assert [made.rung(m).reach for m in (1, 2)] == made.reach
    arrays: dict[str, Any] = {}
    again = put_together(take_apart(made, arrays), arrays)
    assert again.reach == made.reach
    assert again.rung(1).reach == made.reach[0]
    assert again.family.reach == made.reach[-1]
    assert cover(0.0).fingerprint != cover(0.0, reach=0.0).fingerprint


OPTIONS: dict[str, Any] = {"rewards": orl.RewardsPerPair(), "kernel": "per_step"}


@pytest.mark.parametrize("options", [{"rewards": orl.RewardsPerPair()}, OPTIONS])
def test_with_options_each_step_has_the_threshold_of_the_definition(options: dict[str, Any]) -> None:
    """M22 at half of the step's part of delta and the term for the rows of that step."""
    family, mdp = cover(0.6), problem(0.3, 0.1).with_reward_noise(BernoulliRewards())
    learner = orl.UCRLVTR(family=family, delta=DELTA, **options)
    state, model = orl.run(learner, mdp, episodes=201, progress=False).state, learner.model(mdp.known)
    seen, found, listed = field(state, ROWS), np.empty(len(state.loss)), np.empty(len(state.loss))
    ucrl_vtr.thresholds(model, state, found)
    ucrl_vtr.thresholds(model._replace(reach=0.0), state, listed)
    level = 0.5 * DELTA / (HORIZON - 1 if "kernel" in options else 1)
    assert (seen > 0).sum() == (HORIZON - 1 if "kernel" in options else 1)
    for losses, rows, bound in zip(state.loss, seen, found, strict=True):
        mixture = losses.min() - 0.5 * math.log(np.exp(-2 * (losses - losses.min())).mean())
        exact = mixture + 0.5 * math.log(2 / level) + off_grid(family.reach, float(rows), level)
        assert bound == pytest.approx(exact, abs=1e-9)
    assert (found[seen > 0] != found.min()).any() or "kernel" not in options
    assert (listed[seen > 0] < found[seen > 0]).all()


def rare(p: Any) -> Floats:
    """Between its points 0 and 1 state 0 may lead to state 2, as it does at neither of them."""
    often = 0.08 * p[0] * (1 - p[0])
    row = [0.5 + 0.1 * p[0] - often / 2, 0.5 - 0.1 * p[0] - often / 2, often]
    return np.array([[row], [[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]])


def test_outcomes_that_no_point_of_the_grid_allows_belong_to_the_range() -> None:
    """Targets (0, .01, 1) with a range of .01 would reach 99.5: each such row drives the nearest point from the set."""
    family = CoverFamily(rare, low=[0.0], high=[1.0], step=1.0, reach=0.1)
    mdp = orl.FiniteMDP(transition=rare([0.8]), reward=[[0.0], [0.01], [1.0]], horizon=2)
    learner = orl.UCRLVTR(family=family, delta=DELTA)
    result = orl.run(learner, mdp, episodes=2000, seed=0, progress=False)
    assert np.abs(rare([0.8]) - family.kernel(1)).sum(axis=2).max() < 0.1  # the nearest point is within reach
    assert 1 in losses_inside(result.state)
