"""Simulators: kernels however they are given, estimates with their errors, and mixtures off a grid."""

from __future__ import annotations

import itertools
import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import occamrl as orl
from occamrl._core.arena import field
from occamrl._core.rows import COUNTERS
from occamrl.errors import InvalidInput, ProbabilityError
from occamrl.learners.ucrl_vtr import ALIVE, MEMBERS
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.family import weighted
from occamrl.models.simulators import Simulators, estimate_kernel, grid_reach, variation_errors
from occamrl.problems.lakes import FrozenLake
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats
from tests import cases


def kernels(count: int = 3, states: int = 4) -> Any:
    return np.random.default_rng(2).dirichlet(np.ones(states), size=(count, states, 2))


def drawing(kernel: Floats) -> Any:
    """Return a simulator of a kernel that can only be called."""
    ends = kernel.cumsum(axis=2)
    return lambda s, a, rng: int(np.searchsorted(ends[s, a][:-1], rng.random(), side="right"))


def test_a_kernel_is_the_same_however_it_is_given() -> None:
    first, second, third = kernels()
    problem = FiniteMDP(transition=third, reward=np.full((4, 2), 0.5), horizon=3)
    sims = Simulators([first, sp.csr_array(second.reshape(8, 4)), problem], names=["a", "b", "c"])
    assert (sims.states, sims.actions, len(sims)) == (4, 2, 3)
    for j, kernel in enumerate((first, second, third)):
        assert sims.features.kernel(np.eye(3)[j]) == pytest.approx(kernel, abs=1e-15)
    assert sims.error(0.05) == 0.0
    assert sims.widen_mixture(episodes=10, horizon=3, delta=0.1)["delta"] == 0.1


def test_environments_with_tables_are_read_with_their_rewards() -> None:
    slippery, dry = (gym.make("FrozenLake-v1", is_slippery=flag) for flag in (True, False))
    sims = Simulators([dry, slippery])
    problem = FrozenLake(slip=(10, 10))
    layout = sims.features.attach(problem.mdp.known)  # every outcome of the table has a reward that is known
    assert layout.outcomes.bonus.max() == 1.0
    assert sims.features.kernel([0.0, 1.0]) == pytest.approx(problem.mdp.kernel(), abs=1e-9)


def test_a_function_is_estimated_and_its_error_shrinks_with_draws() -> None:
    exact = kernels(1)[0]
    few, many = (Simulators([exact, drawing(exact)], draws=draws, seed=3) for draws in (100, 1_600))
    assert few.estimated == (1,)
    distances = [0.5 * np.abs(sims.features.kernel([0.0, 1.0]) - exact).sum(axis=2).max() for sims in (few, many)]
    errors = [sims.error(0.01) for sims in (few, many)]
    assert all(distance <= error for distance, error in zip(distances, errors, strict=True))
    assert errors[1] == pytest.approx(errors[0] / 4.0, rel=0.2)  # like 1/sqrt(draws)


def test_the_widened_radius_is_the_formula() -> None:
    problem = cases.mixture(0, dimension=2)
    sims = Simulators([problem.transition, drawing(problem.transition)], draws=200)
    episodes, horizon, delta = 50, problem.mdp.horizon, 0.1
    learner = UCRLVTRLin(features=sims.features, **sims.widen_mixture(episodes=episodes, horizon=horizon, delta=delta))
    assert learner.event is not None
    c, bias = learner.scale**-2, episodes * horizon * sims.error(delta / 2.0) ** 2
    assert 0.0 < c < 1.0
    for logdet in (0.0, 7.0):  # beta = (1/c)((logdet + 2 log(2/delta))/4 + lambda b^2) + n e^2/(1 - c)
        noise = 0.25 * (logdet + 2.0 * math.log(2.0 / delta)) + 1.0
        model = learner.model(problem.mdp.known)
        beta = model.scale**2 * (0.25 * (logdet + model.slack + 2.0 * math.log(1.0 / model.delta)) + 1.0)
        assert beta == pytest.approx(noise / c + bias / (1.0 - c), rel=1e-9)


def test_the_ladder_holds_mixtures_of_one_then_two_simulators() -> None:
    sims = Simulators(kernels())
    ladder = sims.ladder(most=3, grid=4)
    assert ladder.sizes == [3, 3 + 3 * 3, 3 + 9 + 3]  # pairs in quarters; 2 + 1 + 1 quarters in three orders
    assert {tuple(sorted(column)) for column in ladder.family.theta.T[12:]} == {(0.25, 0.25, 0.5)}
    assert ladder.family.theta.sum(axis=0) == pytest.approx(np.ones(15))


@pytest.mark.parametrize(
    ("candidates", "options"),
    [
        ([], {}),
        ([kernels(1)[0], kernels(1, 3)[0]], {}),
        ([lambda s, a, rng: 0], {}),
        ([kernels(1)[0], "rain"], {}),
        (list(kernels(2)), {"names": ["a", "a"]}),
        ([kernels(1)[0]], {"draws": 0}),
        ([gym.make("CartPole-v1")], {}),
        ([lambda s, a, rng: 0], {"states": 0, "actions": 1}),
        ([lambda s, a, rng: 1 // 0], {"states": 2, "actions": 1, "draws": 2}),
        ([sp.csr_array(np.eye(3)[:2])], {}),
        ([np.full((2, 2, 2), np.nan)], {}),
        ([lambda s, a, rng: 0], {"states": 2, "actions": 1, "draws": 2, "support": np.ones((2, 2))}),
        ([lambda s, a, rng: 0], {"states": 5_000, "actions": 1, "draws": 2}),  # 25 million transitions
    ],
)
def test_bad_candidates_are_refused(candidates: list[Any], options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Simulators(candidates, **options)


def test_ladders_and_runs_that_cannot_be_are_refused() -> None:
    sims = Simulators(kernels())
    for options in ({"most": 4}, {"most": 0}, {"most": 3, "grid": 2}, {"most": 3, "grid": 2_000}, {"reach": -0.1}):
        with pytest.raises(InvalidInput, match=next(reversed(options))):
            sims.ladder(**options)
    with pytest.raises(InvalidInput, match="episodes"):
        sims.widen_mixture(episodes=0, horizon=3)
    with pytest.raises(InvalidInput, match="draws"):
        estimate_kernel(step, states=3, actions=2, draws=10**9, seed=0)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("row", [[1.5, -0.5], [0.5, 0.6]])
def test_what_is_no_kernel_is_refused_with_its_place(row: list[float], sparse: bool) -> None:
    kernel = np.full((2, 3, 2), 0.5)
    kernel[1, 2] = row
    given: Any = sp.csr_array(kernel.reshape(6, 2)) if sparse else kernel
    with pytest.raises(ProbabilityError) as caught:
        Simulators([np.full((2, 3, 2), 0.5), given])
    assert caught.value.index == (1, 1, 2)


def failures(seed: int, share: float, delta: float, draws: int = 60, runs: int = 400) -> int:
    """Estimates, of laws over two to thirty states, farther from the truth than a share of the bound."""
    count = 0
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        law = rng.dirichlet(np.full(int(rng.integers(2, 31)), 0.5))
        estimate = rng.multinomial(draws, law) / draws
        distance = 0.5 * np.abs(estimate - law).sum()
        count += distance > share * variation_errors(sp.csr_array(estimate[None]), draws, delta)[0]
    return count


def test_the_error_bound_holds_and_a_tenth_of_it_does_not(test_seed: int) -> None:
    most = int(binom.isf(1e-5, 400, 0.2))
    assert failures(test_seed, 1.0, 0.2) <= most
    assert failures(test_seed, 0.1, 0.2) > most


def step(s: int, a: int, rng: np.random.Generator) -> int:
    return min(2, s + (rng.random() < (0.25, 0.75)[a]))


def test_an_estimate_is_made_of_frequencies_at_addresses() -> None:
    size: dict[str, Any] = {"states": 3, "actions": 2, "draws": 4_000}
    estimate = estimate_kernel(step, **size, seed=1).toarray().reshape(3, 2, 3)
    assert estimate.sum(axis=2) == pytest.approx(np.ones((3, 2)))
    assert estimate[0, :, 1] == pytest.approx([0.25, 0.75], abs=5 * np.sqrt(0.1875 / 4_000))
    assert (estimate[2, :, 2] == 1.0).all()
    again, other = (estimate_kernel(step, **size, seed=seed).toarray().reshape(3, 2, 3) for seed in (1, 2))
    assert (estimate == again).all()
    assert (estimate != other).any()


@pytest.mark.parametrize("value", [3, -1, 0.5, None])
def test_what_is_no_state_is_refused_with_its_pair(value: object) -> None:
    def simulate(s: int, a: int, rng: np.random.Generator) -> int:
        return value if (s, a) == (1, 1) else 0  # type: ignore[return-value]  # wrong on purpose

    with pytest.raises(InvalidInput, match=r"simulate\[1, 1\]"):
        estimate_kernel(simulate, states=3, actions=2, draws=2, seed=0)


DELTA, RUNS, EPISODES, HORIZON = 0.05, 20, 1_000, 20
RARE, GAP, DRAWS = 2e-4, 1e-6, 500  # not drawn for nine estimates of ten, met in six runs of seven


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
