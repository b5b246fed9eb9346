"""Rounding over ten million rows: sums and factorisations stay what exact arithmetic gives, up to a stated error."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occamrl import seeding
from occamrl._core import regression
from occamrl._core.arena import field
from occamrl._core.rows import CELLS, FIRST, TOUCHED
from occamrl.learners.ucrl_vtr_lin import LOGDET, UPDATES, UCRLVTRLin, enter_rows, refresh
from occamrl.models.features import FeatureMap
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats
from occamrl.registry import make_problem
from occamrl.running.phases import CompiledPlayer
from occamrl.running.run import run
from tests.cases import Steps, from_python, mixture

Exact = np.longdouble


def test_ten_million_rows_in_a_hundred_thousand_additions_stay_within_1e_11() -> None:
    """Rows are entered under thousands of plans and compared with sums in extended precision over exact counts."""
    case = mixture(0, horizon=6, dimension=4, full_support=True)
    learner = UCRLVTRLin(features=case.features, norm_bound=1.0)
    model, state = learner.model(case.mdp.known), learner.begin(case.mdp.known)
    rng = np.random.default_rng(0)
    phi = case.phi.astype(Exact)
    sigma, xy, rows = np.eye(4, dtype=Exact), np.zeros(4, dtype=Exact), 0
    for _ in range(5_000):
        values = rng.uniform(0.0, 6.0, size=(7, 4))
        policy = rng.integers(2, size=(6, 4))
        counts = rng.integers(1, 200, size=(5, 4))
        after = rng.integers(4, size=(5, 4))
        state.values[:], state.policy[:] = values, policy
        state.visits[:5] = counts
        field(state, FIRST)[:5] = np.take_along_axis(values[1:6], after, axis=1)  # all rows of a cell end in one state
        field(state, CELLS)[:20] = np.arange(20)
        state.counters[TOUCHED] = 20
        enter_rows(model, state)
        rows += int(counts.sum())
        exact = values[1:6].astype(Exact)
        high, low = exact.max(axis=1), exact.min(axis=1)
        target = (exact - ((high + low) / 2)[:, None]) / (high - low)[:, None]
        x = np.einsum("ht,hstd->hsd", target, phi[np.arange(4), policy[:5]]).reshape(20, 4)
        y = np.take_along_axis(target, after, axis=1).ravel() * counts.ravel()
        sigma += (x * counts.reshape(20, 1)).T @ x
        xy += y @ x
    assert rows >= 9_900_000
    assert np.abs(state.sigma.reshape(4, 4) - sigma).max() <= 1e-11 * np.abs(sigma).max()
    assert np.abs(state.xy - xy).max() <= 1e-11 * np.sqrt(rows) * np.abs(sigma).max() ** 0.5
    theta = refine(sigma.astype(np.float64), sigma, xy)
    np.testing.assert_allclose(state.theta, theta.astype(np.float64), rtol=0, atol=1e-9)
    factor = state.factor.reshape(4, 4).astype(Exact)
    assert np.abs(factor @ factor.T @ sigma - np.eye(4)).max() <= 1e-9
    assert state.growth[0, LOGDET] == pytest.approx(float(logdet(sigma)), abs=1e-9)


def refine(rough: Floats, sigma: Any, xy: Any) -> Any:
    """Solve in extended precision: an inverse in double precision and three steps of refinement."""
    inverse = np.linalg.inv(rough).astype(Exact)
    theta = inverse @ xy
    for _ in range(3):
        theta = theta + inverse @ (xy - sigma @ theta)
    return theta


def logdet(sigma: Any) -> Any:
    """Return the log-determinant by elimination in extended precision."""
    work, total = sigma.copy(), Exact(0.0)
    for k in range(len(work)):
        total += np.log(work[k, k])
        work[k + 1 :] -= np.outer(work[k + 1 :, k] / work[k, k], work[k])
    return total


@pytest.mark.parametrize("weights", ["range", "none"])
def test_after_a_run_of_ten_million_rows_the_estimate_is_that_of_a_fresh_factorisation(weights: Any) -> None:
    case = mixture(0, horizon=11, dimension=4)
    learner = UCRLVTRLin(features=case.features, norm_bound=1.0, weights=weights)
    result = run(learner, case.mdp, episodes=1_000_000, progress=False)
    state = learner.begin(case.mdp.known, learner.statistics(case.mdp.known, result.state))
    sigma, xy = state.sigma.reshape(4, 4).astype(Exact), state.xy.astype(Exact)
    unit = 1.0 if weights == "range" else 11.0
    assert np.trace(sigma) <= 4 + 10**7 * unit**2  # as many rows as steps, each at most of norm U
    assert np.trace(sigma) >= 10**5
    theta = refine(state.sigma.reshape(4, 4), sigma, xy)
    np.testing.assert_allclose(state.theta, theta.astype(np.float64), rtol=0, atol=1e-8)
    assert state.growth[0, LOGDET] == pytest.approx(float(logdet(sigma)), abs=1e-9)
    assert np.abs(theta.astype(np.float64) - case.theta).max() < 0.5  # and it has learned
    assert result.pessimistic_episodes == 0


invert_factor, solve = from_python(regression.invert_factor), from_python(regression.solve)
refactor = from_python(regression.refactor)


def factorise(sigma: Floats, xy: Floats, factor: Floats, theta: Floats) -> float:
    """Write W with Sigma^-1 = W W^T, and Sigma^-1 xy; return logdet Sigma."""
    work = np.zeros(sigma.shape)
    logdet: float = invert_factor(sigma, 0.0, factor, work)
    solve(factor, xy, theta, work.ravel())
    return logdet


@pytest.mark.parametrize("n", [1, 2, 5, 16, 33])
def test_a_factorisation_is_one_over_a_wide_range_of_scales(n: int) -> None:
    """W W^T = Sigma^-1, logdet and solution of a matrix with condition number 1e8."""
    rng = np.random.default_rng(n)
    basis = np.linalg.qr(rng.normal(size=(n, n)))[0]
    sigma = basis @ np.diag(np.geomspace(1.0, 1e8, n)) @ basis.T
    sigma = (sigma + sigma.T) / 2
    factor, theta = np.zeros((n, n)), np.zeros(n)
    found = factorise(sigma, sigma @ np.ones(n), factor, theta)
    assert found == pytest.approx(float(np.linalg.slogdet(sigma)[1]), rel=1e-9, abs=1e-9)
    assert np.array_equal(factor, np.triu(factor))
    np.testing.assert_allclose(factor @ factor.T @ sigma, np.eye(n), rtol=0, atol=1e-6)
    np.testing.assert_allclose(theta, np.ones(n), rtol=0, atol=1e-6)


def test_a_matrix_with_a_value_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not a number"):
        factorise(np.array([[1.0, np.nan], [np.nan, 1.0]]), np.zeros(2), np.zeros((2, 2)), np.zeros(2))


def bound_at(sigma: Floats, xy: Floats, z: Floats, lam: float, norm_bound: float, rows: int) -> tuple[float, float]:
    """Return <z, theta_k> and sqrt(beta) ||z|| (M11, delta = 0.05), as the learner computes them."""
    n = xy.size
    factor, theta = np.zeros((n, n)), np.zeros(n)
    logdet, raised = refactor(sigma, xy, factor, theta, np.zeros(n * n), lam, rows)
    beta = 0.25 * (logdet + 2.0 * np.log(20.0)) + (lam + raised) * norm_bound**2
    width = np.sqrt(beta) * (regression.CARE if raised > 0.0 else 1.0)
    return float(z @ theta), float(width * np.linalg.norm(factor.T @ z))


@pytest.mark.parametrize("lam", [1e-30, 1e-16, 1e-8, 1.0])
def test_a_direction_lost_to_rounding_stays_unknown(lam: float) -> None:
    """Of theta* = b (1, -1)/sqrt(2), b = lambda^-1/2, rows (1, 1) tell nothing: <(1, -1), theta*> is sqrt(2) b.

    With lambda in the sum, the bias of the ellipsoid alone, sqrt(lambda) b ||(1, -1)|| = sqrt(2) b, allows for that.
    The control is a pivot that is cut at what rounding leaves of the largest diagonal entry, 2 * 2^-52 * 10^5: at
    lambda = 1e-16 and below it leaves less than a thousandth.
    """
    rows, norm_bound = 10**5, 1.0 / np.sqrt(lam)
    sigma = lam * np.eye(2) + rows * np.ones((2, 2))
    mean, width = bound_at(sigma, np.zeros(2), np.array([1.0, -1.0]), lam, norm_bound, 1)
    assert abs(mean) + width >= np.sqrt(2.0) * norm_bound
    level = np.sqrt(0.25 * (np.log1p(2.0 * rows / lam) + 2.0 * np.log(20.0)) + 1.0)
    cut = level / np.sqrt(max(lam, 2.0 * 2.0**-52 * rows))
    assert (cut < 1e-2 * norm_bound) == (lam <= 1e-16)
    mean, width = bound_at(sigma, np.full(2, 0.5 * rows), np.array([1.0, 1.0]), lam, norm_bound, 1)
    assert lam == 1e-30 or mean == pytest.approx(0.5, rel=1e-4)
    assert mean + width >= 0.5


@pytest.mark.parametrize("part", [2.0**-7, 2.0**-9, 2.0**-11])
def test_lambda_is_raised_where_rounding_may_be_a_thousandth_of_the_matrix(part: float) -> None:
    """Rows (1, 1): tr(D Sigma^-1) is rows/lambda, nearly, and e = n (N + 2n) 2^-53 with n = 2 and N = 1 (M11)."""
    rows, error = 10**5, 2.0 * 5.0 * 2.0**-53
    lam = error * rows / part
    sigma, factor = lam * np.eye(2) + rows * np.ones((2, 2)), np.zeros((2, 2))
    raised = refactor(sigma, np.zeros(2), factor, np.zeros(2), np.zeros(4), lam, 1)[1]
    assert raised == (pytest.approx(2.0**6 * error * rows, rel=1e-9) if part >= 2.0**-10 else 0.0)
    along = np.array([1.0, -1.0])
    assert np.linalg.norm(factor.T @ along) ** 2 == pytest.approx(2.0 / (lam + raised), rel=2.0**-6)
    xy = lam * along * 2.0**-10 / np.sqrt(2.0 * rows * error * part)  # of a theta with part e theta^T D theta = 2^-20
    raised = [refactor(sigma, size * xy, factor, np.zeros(2), np.zeros(4), lam, 1)[1] for size in (0.5, 1.0)]
    assert [each > 0.0 for each in raised] == [part >= 2.0**-10, True]


@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.floats(0.0, 12.0), st.floats(-12.0, 0.0))
def test_rows_without_noise_leave_the_truth_inside(seed: int, n: int, apart: float, near: float) -> None:
    """y = <x, theta*> for rows of any scale in each coordinate and nearly in one plane, added one at a time.

    The difference to the estimate is computed exactly, in the directions of the axes, of the rows and between rows.
    """
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.uniform(-apart, 0.0, n)
    base = rng.normal(size=n)
    x = (base + 10.0**near * rng.normal(size=(3, n))) * scales
    truth = rng.normal(size=n) / scales
    if rng.random() < 0.5:  # what the rows have in common says nothing of it
        truth -= (truth @ x[0]) / (x[0] @ x[0]) * x[0]
    truth *= 0.5 / np.abs(x @ truth).max()
    norm_bound = float(np.linalg.norm(truth)) * (1.0 + 2.0**-50)
    lam = float(rng.choice([n / (4.0 * norm_bound**2), 1.0, 1e-12]))
    exact = [Fraction(part) for part in truth]
    y = [float(sum(Fraction(a) * b for a, b in zip(row, exact, strict=True))) for row in x]
    counts = rng.choice([0, 1, 30, 10_000], size=3)
    terms = np.repeat(x[:, :, None] * x[:, None, :], counts, axis=0)
    sigma = np.cumsum(np.concatenate([lam * np.eye(n)[None], terms]), axis=0)[-1]  # one after the other
    xy = np.cumsum(np.concatenate([np.zeros((1, n)), np.repeat(x * np.array(y)[:, None], counts, axis=0)]), axis=0)[-1]
    for z in (*np.eye(n), *x, x[0] - x[1], x[0] - x[2]):
        mean, width = bound_at(sigma, xy, z, lam, norm_bound, int(counts.sum()))
        value = float(sum(Fraction(a) * b for a, b in zip(z, exact, strict=True)))
        assert abs(value - mean) <= width * (1.0 + regression.ROUNDED)


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-8, 1e-10])
def test_a_small_feature_beside_large_ones_stays_unknown_until_it_is_seen(scale: float) -> None:
    """One feature of three is small and its weight large: lambda = d/(4 b^2) is lost beside the rows of the others.

    With pivots cut at the rounding of the largest diagonal entry, 76,041 and 53,975 of 200,000 episodes were played by
    plans that are not optimistic, at scales 1e-8 and 1e-10.
    """
    case = mixture(0, full_support=True)
    scales = np.array([scale, 1.0, 1.0])
    norm_bound = float(np.linalg.norm(case.theta / scales))
    features = FeatureMap(case.phi * scales)
    learner = UCRLVTRLin(features=features, norm_bound=norm_bound, regularization="scaled")
    result = run(learner, case.mdp, episodes=200_000, progress=False)
    assert result.pessimistic_episodes == 0
    assert result.total_regret < 20.0


def twin_problem(seed: int) -> tuple[FeatureMap, FiniteMDP, float]:
    """Return a mixture in which states 1 and 2 are mirror images: their values are equal, up to the order of a sum."""
    n, actions, dimension = 6, 2, 3
    rng = np.random.default_rng(seed)
    first = rng.uniform(0.2, 0.8, (actions, dimension))
    law, pay = rng.dirichlet(np.ones(n), (actions, dimension)), rng.random((n, actions))
    order = rng.permutation(n)
    phi, reward = np.zeros((3 + 2 * n, actions, 3 + 2 * n, dimension)), np.zeros((3 + 2 * n, actions))
    phi[0, :, 1], phi[0, :, 2] = first, 1.0 - first
    for i in range(n):
        phi[1, :, 3 + i] = phi[2, :, 3 + n + order[i]] = law[:, :, i]
        reward[3 + i] = reward[3 + n + order[i]] = pay[i]
    phi[3:, :, 0] = 1.0
    reward[0] = 0.3 * rng.random(actions)
    reward[1] = reward[2] = 0.3 * rng.random(actions)
    theta = rng.dirichlet(np.ones(dimension))
    return FeatureMap(phi), FiniteMDP(transition=phi @ theta, reward=reward, horizon=6), float(np.linalg.norm(theta))


def test_values_that_differ_by_rounding_alone_do_not_become_data() -> None:
    """Range weights divide by the range of a target, be it one unit in the last place.

    At seed 2, sums of targets over many episodes, rounded before they were centred, gave an estimate of norm 25 for a
    parameter of norm 0.7, and a sixth of the plans was not optimistic (delta is 0.05).
    """
    features, mdp, bound = twin_problem(2)
    result = run(UCRLVTRLin(features=features, norm_bound=bound), mdp, episodes=200_000, seed=2, progress=False)
    assert result.pessimistic_episodes == 0
    assert np.linalg.norm(result.state.theta) < 2.0


@pytest.mark.parametrize("units", [1, 3, 10**6])
def test_targets_close_together_are_summed_exactly(units: int) -> None:
    """Two next states, whose values differ by a few units in the last place, met 3,000 times."""
    mdp = FiniteMDP(transition=np.full((2, 1, 2), 0.5), reward=np.zeros((2, 1)), horizon=2)
    learner = UCRLVTRLin(features=FeatureMap.tabular(states=2, actions=1), norm_bound=1.0, replan=1e9)
    interaction = Steps(learner, mdp.known)
    low = 7.3
    high = low + units * np.spacing(low)
    middle, spread = 0.5 * (low + high), high - low
    rng = np.random.default_rng(0)
    seen = [0, 0]
    for _ in range(3_000):
        interaction.begin(0)
        interaction.walk.state.values[1] = (low, high)
        after = int(rng.random() < 0.3)
        seen[after] += 1
        interaction.record(after)
        interaction.record(0)
    xy = learner.statistics(mdp.known, interaction.walk.state).xy[:2]  # of the block of (0, 0)
    x = [Fraction(low - middle) / Fraction(spread), Fraction(high - middle) / Fraction(spread)]
    y = sum(count * part for count, part in zip(seen, x, strict=True))
    np.testing.assert_allclose(xy, [float(y * part) for part in x], rtol=1e-9)


update_factor = from_python(regression.update_factor)


@pytest.mark.parametrize("size", [1, 2, 33, 80])
def test_as_many_updates_as_coordinates_leave_the_factor_that_is_made_anew(size: int) -> None:
    """W W^T Sigma = I and logdet, after rows of very different weight and length."""
    rng = np.random.default_rng(size)
    sigma, factor, work = np.eye(size), np.eye(size), np.zeros(max(3 * size, size * size))
    logdet = 0.0
    for _ in range(size):
        x, weight = rng.normal(size=size) * 10.0 ** rng.uniform(-3, 1), float(rng.integers(1, 1000))
        sigma += weight * np.outer(x, x)
        logdet += update_factor(factor, weight, x, work)
    assert np.array_equal(factor, np.triu(factor))
    inverse, rounding = np.linalg.inv(sigma), 2.0**-52 * size * np.linalg.cond(sigma)
    assert rounding < 1e-5
    np.testing.assert_allclose(factor @ factor.T, inverse, rtol=0, atol=rounding * np.abs(inverse).max())
    assert logdet == pytest.approx(np.linalg.slogdet(sigma)[1], abs=1e-9)


def test_a_learner_of_many_coordinates_updates_its_factor() -> None:
    """Forty coordinates and five rows an episode: the factor is that of Sigma, the regret that of factors made anew."""
    problem = make_problem("sparse-mixture", dimension=40, nonzero=3, seed=1)
    learner = UCRLVTRLin(features=FeatureMap(problem.phi), norm_bound=2.0, replan=0.0)
    result = run(learner, problem, episodes=150)
    state = result.walk.player.state
    assert 0 < field(state, UPDATES)[0] < 40
    factor, sigma = state.factor.reshape(40, 40), state.sigma.reshape(40, 40)
    np.testing.assert_allclose(factor @ factor.T @ sigma, np.eye(40), rtol=0, atol=1e-9)
    np.testing.assert_allclose(state.theta, np.linalg.solve(sigma, state.xy), rtol=0, atol=1e-9)
    np.testing.assert_allclose(result.regret, run_anew(learner, problem, 150), rtol=0, atol=1e-9)


def run_anew(learner: UCRLVTRLin, problem: Any, episodes: int) -> Any:
    """Return the regret of episodes played one by one, the factor made anew from Sigma before each."""
    known, truth = problem.mdp.known, problem.mdp.truth
    state, regret = learner.begin(known), np.zeros(episodes)
    model = learner.model(known)
    for k in range(episodes):
        refresh(model, state, True)
        one = CompiledPlayer(learner, known, state)
        one.simulate(truth, (seeding.key(0, "environment"), seeding.key(0, "agent")), k, regret[k : k + 1], np.zeros(1))
    return regret
