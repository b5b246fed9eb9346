"""Simulators that are estimated, or mixed with weights between the points of a grid: what is promised holds."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import occamrl as orl
from occamrl._core.arena import field
from occamrl._core.rows import COUNTERS
from occamrl.errors import ProbabilityError
from occamrl.learners.ucrl_vtr import ALIVE, MEMBERS
from occamrl.models.family import weighted
from occamrl.models.simulators import Simulators, grid_reach
from occamrl.protocols import Floats

DELTA, RUNS, EPISODES, HORIZON = 0.05, 20, 1_000, 20
RARE, GAP, DRAWS = 2e-4, 1e-6, 500  # not drawn for nine estimates of ten, met in six runs of seven


def drawing(kernel: Floats) -> Any:
    """Return a simulator of a kernel that can only be called."""
    ends = kernel.cumsum(axis=2)
    return lambda s, a, rng: int(np.searchsorted(ends[s, a][:-1], rng.random(), side="right"))


def only_drawn(sims: Simulators) -> Simulators:
    """Break the simulators on purpose: what was not drawn cannot happen."""
    sims._support = np.zeros((0, 0), dtype=bool)
    return sims


def rare(first: float) -> Floats:
    """From state 0 to 1 or 2, worth nearly the same, or seldom to 3; from there back."""
    kernel = np.zeros((4, 1, 4))
    kernel[0, 0, 1:] = first, 1 - first - RARE, RARE
    kernel[1:, 0, 0] = 1.0
    return kernel


RARE_PROBLEM = orl.FiniteMDP(transition=rare(0.7), reward=[[0.0], [0.4], [0.4 + GAP], [1.0]], horizon=HORIZON)


def rare_simulators(seed: int) -> Simulators:
    return Simulators([drawing(rare(0.7)), drawing(rare(0.3))], states=4, actions=1, draws=DRAWS, seed=seed)


def test_outcomes_are_what_the_support_allows_whether_drawn_or_not() -> None:
    kernel, support = rare(0.7), rare(0.7) > 0
    for possible, count in ((None, 16), (support, 6)):
        sims = Simulators([drawing(kernel), kernel], draws=10, support=possible)
        assert sims.features.kernel([1.0, 0.0])[0, 0, 3] == 0.0  # not drawn
        assert sims.features.layout.outcomes.next_state.size == count
    assert Simulators([kernel]).features.layout.outcomes.next_state.size == 6  # an exact kernel needs no more
    support[0, 0, 1] = False
    with pytest.raises(ProbabilityError, match="support"):
        Simulators([drawing(kernel)], states=4, actions=1, draws=10, support=support)


@given(seed=st.integers(0, 10**6), states=st.integers(2, 6))
def test_the_mean_of_a_row_is_off_by_the_total_variation_at_most(seed: int, states: int) -> None:
    """For any values, also where states were not drawn; dense and sparse features agree."""
    draw = np.random.default_rng(seed)
    truth = draw.dirichlet(np.full(states, 0.2), size=(2, states, 1))
    sims = Simulators([drawing(kernel) for kernel in truth], states=states, actions=1, draws=5, seed=seed)
    share, values = draw.dirichlet(np.ones(2)), draw.choice([0.0, 1e-6, 1.0], size=states)
    known = orl.FiniteMDP(transition=truth[0], reward=np.zeros((states, 1)), horizon=2).known
    x, middle, spread = weighted(sims.features, known, np.arange(states), values)
    for s in np.flatnonzero(spread > 0.0):
        mean = share @ truth[:, s, 0] @ (values - middle[s]) / spread[s]
        each = [np.abs(sims.features.kernel(np.eye(2)[j])[s, 0] - truth[j, s, 0]).sum() / 2 for j in range(2)]
        assert abs(x[s] @ share - mean) <= share @ each + 1e-9
    assert (spread > 0.0).all() == (np.ptp(values) > 0.0)  # every state may follow


def false_alarms(break_: bool) -> tuple[int, int]:
    """Return in how many runs the true simulator is called incompatible, by a mixture and by a ladder."""
    lost = rejected = 0
    for seed in range(RUNS):
        sims = only_drawn(rare_simulators(seed)) if break_ else rare_simulators(seed)
        arguments = sims.widen_mixture(episodes=EPISODES, horizon=HORIZON, delta=DELTA)
        agent = orl.UCRLVTRLin(features=sims.features, **arguments)
        result = orl.run(agent, RARE_PROBLEM, episodes=EPISODES, seed=seed, progress=False)
        lost += ("1",) not in [each.members for each in orl.supports(result, sims, delta=DELTA).sets]
        selector = orl.ARLGen(ladder=sims.ladder(most=2, grid=10, delta=DELTA / 2), delta=DELTA / 2)
        phases = orl.run(selector, RARE_PROBLEM, episodes=EPISODES, seed=seed, progress=False).phases
        rejected += max(phases["chosen"].to_pylist()) > 1 or phases["outside"].to_pylist()[-1]
    return lost, rejected


def test_a_rare_state_that_was_not_drawn_does_not_exclude_the_truth() -> None:
    """Both counts pass the limit with probability 1e-5 at most; with ranges over the states drawn they must."""
    limit = binom.ppf(1 - 1e-5, RUNS, DELTA)
    assert max(false_alarms(False)) <= limit
    assert min(false_alarms(True)) > limit


@given(seed=st.integers(0, 10**6), m=st.integers(1, 4), grid=st.integers(4, 7))
def test_no_mixture_is_farther_from_the_grid_than_its_reach(seed: int, m: int, grid: int) -> None:
    """By a look at all points of the grid."""
    draw = np.random.default_rng(seed)
    kernels = draw.dirichlet(np.ones(3), size=(4, 3, 2))
    features = Simulators(list(kernels)).features
    weights = draw.dirichlet(np.full(m, 2.0))
    points = [np.array(p) / grid for p in itertools.product(range(grid + 1), repeat=m) if sum(p) == grid]
    gaps = [np.abs(np.tensordot(weights - point, kernels[:m], 1)).sum(axis=2).max() for point in points]
    assert min(gaps) <= grid_reach(features, m, grid) + 1e-12


def test_the_reach_is_attained_halfway_and_carries_the_estimates() -> None:
    kernels = np.zeros((2, 2, 1, 2))
    kernels[0, :, 0, 0] = kernels[1, :, 0, 1] = 1.0  # at a distance of 2
    assert Simulators(list(kernels)).ladder(grid=10).reach == pytest.approx([0.0, 0.1])  # .55 and .45: |.05 - -.05|
    assert Simulators(list(kernels)).ladder(grid=10, reach=0.0).reach == [0.0, 0.0]
    sims = Simulators([kernels[0], drawing(kernels[1])], draws=10_000)
    error = sims.error(0.01)
    assert sims.ladder(grid=10, delta=0.01).reach == pytest.approx([2 * error, 2 * error + 0.1])


def swim(up: float) -> Floats:
    kernel = np.zeros((3, 2, 3))
    kernel[[0, 1, 2], 0, [0, 0, 1]] = 1.0
    for s in range(3):
        kernel[s, 1, min(s + 1, 2)] += up
        kernel[s, 1, max(s - 1, 0)] += 1.0 - up
    return kernel


@pytest.mark.parametrize("seed", range(3))
def test_the_members_nearest_to_a_mixture_between_grid_points_stay(seed: int) -> None:
    """Half and half does better than .55 and .45, so plans are optimistic while it stays; without the reach it goes."""
    sims, reward = Simulators([swim(0.1), swim(0.9)]), [[0.05, 0.0], [0.0, 0.0], [0.0, 1.0]]
    mdp = orl.FiniteMDP(transition=sims.features.kernel([0.55, 0.45]), reward=reward, horizon=HORIZON)
    for reach in (None, 0.0):
        ladder = sims.ladder(most=2, grid=10, reach=reach)
        result = orl.run(orl.ARLGen(ladder=ladder, safe=True), mdp, episodes=8_190, seed=seed, progress=False)
        left = field(result.state, MEMBERS)[: int(field(result.state, COUNTERS)[ALIVE])]
        nearest = np.flatnonzero(np.abs(ladder.family.theta[0] - 0.55) < 0.06)
        assert set(nearest.tolist()).issubset(left.tolist()) is (reach is None)
        if reach is None:
            assert result.pessimistic_episodes == 0
            assert not any(result.phases["outside"].to_pylist())
