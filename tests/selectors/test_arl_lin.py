"""ARL-LIN(dim), ARL-LIN(norm) and ARL-LIN: schedules, pooled rows, supports, norm bounds, and their limits."""

from __future__ import annotations

import dataclasses
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from occamrl.analysis.diagnosis import diagnose
from occamrl.errors import CheckpointError, OccamRLError, ParameterError
from occamrl.learners.radii import largest_norm
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
from occamrl.logs.select import planned_values
from occamrl.models.features import FeatureMap
from occamrl.problems.mdp import FiniteMDP
from occamrl.problems.mixtures import SparseMixture
from occamrl.protocols import Floats, Known, PhaseOutcome
from occamrl.running.phases import PhaseWalk
from occamrl.running.result import Result
from occamrl.running.run import run
from occamrl.selectors.arl_lin import ARLLin, ARLLinDim, ARLLinNorm, lambda_grid, refine, smallest_norm, union_level
from occamrl.selectors.references import largest, oracle
from tests.cases import drawn, environment_uniforms

PROBLEM = SparseMixture(states=8, actions=3, horizon=5, dimension=8, nonzero=3, gamma=0.5, seed=0)
FEATURES, NORM, KNOWN = FeatureMap(PROBLEM.phi), float(np.linalg.norm(PROBLEM.theta)), PROBLEM.mdp.known
SELECTORS = (ARLLinDim, ARLLinNorm, ARLLin)


def showing(theta: Floats, weight: float) -> LinearStatistics:
    """Return rows that show ``theta``, every coordinate alike."""
    return LinearStatistics((weight * np.eye(theta.size)).ravel(), weight * theta, 10)


@pytest.mark.parametrize(
    ("changes", "exploitation", "estimation", "why"),
    [
        ({}, [4, 8, 16], [2, 3, 3], "doubling, and 2 * 1.05^i rounded up"),
        ({"growth": 4.0, "estimation_growth": 3.0}, [4, 16, 64], [2, 6, 18], "both are free"),
        ({"initial_episodes": 17, "growth": 36, "estimation_growth": 6}, [17, 612, 22_032], [5, 30, 180], "the paper"),
    ],
)
def test_lengths(changes: dict[str, Any], exploitation: list[int], estimation: list[int], why: str) -> None:
    selector = ARLLinDim(features=FEATURES, norm_bound=NORM, **changes)
    assert [selector.exploitation_length(i) for i in range(3)] == exploitation, why
    assert [selector.estimation_length(i) for i in range(3)] == estimation, why
    even = ARLLinDim(features=FEATURES, norm_bound=NORM, estimation_growth=1.0)
    stretched = [even.estimation_length(10, by) for by in (1, 2, 8, 1000)]
    assert stretched == [2, 4, 16, 64]  # never beyond the root of the epoch


def rows_from_scratch(selector: ARLLinDim, episodes: int, seed: int) -> tuple[Result, LinearStatistics]:
    """Play episode by episode; return the last result and a regression that takes in one row at a time."""
    ended: list[Any] = []

    class Watched(ARLLinDim):
        def finish_phase(self, known: Any, memory: dict[str, Any], phase: Any, outcome: PhaseOutcome) -> None:
            ended.append(outcome.state)
            super().finish_phase(known, memory, phase, outcome)

    watched = Watched(**{each.name: getattr(selector, each.name) for each in dataclasses.fields(selector)})
    mdp, d = PROBLEM.mdp, FEATURES.dimension
    gram, xy = np.zeros((d, d)), np.zeros(d)
    uniforms = environment_uniforms(seed, episodes, mdp.horizon)
    result: Result | None = None
    for episode in range(episodes):
        phases = len(ended)
        result = run(watched, mdp, episodes=1, seed=seed, continue_from=result, progress=False)
        played = ended[-1] if len(ended) > phases else result.state  # with the plan of this episode
        s = int(np.searchsorted(mdp.truth.initial_cumulative[0], uniforms[episode, 0], side="right"))
        for h in range(mdp.horizon - 1):
            a, v = int(played.policy[h, s]), played.values[h + 1]
            s2, _ = drawn(mdp, s, a, uniforms[episode, h + 1])
            if np.ptp(v) > 0.0:
                scaled = (v - 0.5 * (v.min() + v.max())) / np.ptp(v)
                x = scaled @ PROBLEM.phi[s, a]
                gram += np.outer(x, x)
                xy += scaled[s2] * x
            s = s2
    assert result is not None
    return result, LinearStatistics(gram.ravel(), xy, episodes)


def test_pooled_statistics_are_the_regression_on_all_rows() -> None:
    result, expected = rows_from_scratch(ARLLinDim(features=FEATURES, norm_bound=NORM), 150, seed=2)
    learner = result.walk.phase.learner
    assert isinstance(learner, UCRLVTRLin)
    assert len({tuple(row["active"]) for row in result.phases.to_pylist()}) > 1  # a part and the whole have played
    pooled = learner.statistics(PROBLEM.mdp.known, result.state)
    assert pooled.episodes == 150
    np.testing.assert_allclose(pooled.gram, expected.gram, atol=1e-9)
    np.testing.assert_allclose(pooled.xy, expected.xy, atol=1e-9)


def test_a_restricted_plan_reads_its_blocks() -> None:
    """Planning with D on pooled rows equals planning with features restricted to D on the blocks of those rows."""
    full = UCRLVTRLin(features=FEATURES, norm_bound=NORM)
    rows = full.statistics(KNOWN, run(full, PROBLEM.mdp, episodes=200, seed=1).state)
    active = (0, 3, 5)
    wide = dataclasses.replace(full, active=active)
    narrow = dataclasses.replace(full, features=FEATURES.restrict(active))
    one, other = wide.begin(KNOWN, rows), narrow.begin(KNOWN, rows.restrict(active))
    for name in ("theta", "factor", "growth"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.xy.size == 8
    assert other.xy.size == 3


def test_a_dropped_coordinate_comes_back() -> None:
    """Rows that deny the truth are put in first; the run must act all the same, and unlearn them."""

    class Misled(ARLLinDim):
        def start(self, known: Any) -> dict[str, Any]:
            wrong = np.zeros(8)
            wrong[0] = 1.0
            return {**super().start(known), "epoch": 1, "statistics": showing(wrong, 15.0)}

    result = run(Misled(features=FEATURES, norm_bound=NORM), PROBLEM.mdp, episodes=6_000, seed=0)
    sets = [row["active"] for row in result.phases.to_pylist() if row["label"] == "exploitation"]
    assert sets[0] == [0]  # the true support was dropped
    assert set(PROBLEM.support) <= set(sets[-1])  # and is back
    assert result.regret[-1] < 0.01


def test_it_finds_the_support_and_beats_the_full_learner(test_seed: int) -> None:
    """Error rate: none in 200 seeds of this problem when the test was written."""
    selector = ARLLinDim(features=FEATURES, norm_bound=NORM)
    found = run(selector, PROBLEM.mdp, episodes=20_000, seed=test_seed)
    full = run(largest(selector), PROBLEM.mdp, episodes=20_000, seed=test_seed)
    best = run(oracle(selector, PROBLEM.theta), PROBLEM.mdp, episodes=20_000, seed=test_seed)
    assert found.phases["active"].to_pylist()[-2:][0 if len(found.phases) % 2 == 0 else 1] == PROBLEM.support.tolist()
    assert best.total_regret < found.total_regret < best.total_regret + 0.6 * (full.total_regret - best.total_regret)


def test_nothing_is_dropped_or_locks_in_where_everything_matters() -> None:
    """Negative control. The price is log(2)/2 in the squared radius, and a plan at the start of each phase."""
    problem = SparseMixture(states=8, actions=3, horizon=5, dimension=6, nonzero=6, gamma=0.5, seed=3)
    selector = ARLLinDim(features=FeatureMap(problem.phi), norm_bound=float(np.linalg.norm(problem.theta)))
    results = [run(selector, problem.mdp, episodes=20_000, seed=seed) for seed in range(5)]
    assert all(len(active) == 6 for result in results for active in result.phases["active"].to_pylist())
    full = sum(run(largest(selector), problem.mdp, episodes=20_000, seed=seed).total_regret for seed in range(5))
    assert sum(result.total_regret for result in results) < 1.25 * full
    about = diagnose(results[0])
    assert (about.active, about.locks_in_at) == (tuple(range(6)), None)
    assert "lock" not in str(about)
    assert "every coordinate is active" in str(about)


def test_levels_of_all_sets_that_can_fail_add_up_to_delta() -> None:
    """A set that misses a part of the support promises nothing; the others are counted one by one."""
    for d, s in ((1, 1), (2, 1), (5, 1), (5, 2), (5, 5), (8, 3)):
        sets = (size for size in range(s, d + 1) for _ in combinations(range(s, d), size - s))
        failing = sum(union_level(0.05, d, size) for size in sets)
        assert failing == pytest.approx(0.05 * (0.5 + 1.0 / (s + 1) - 1.0 / (d + 1)))
        assert failing <= 0.05
    assert union_level(0.05, 5000, 2500) > 0.0


def test_pooled_phases_play_at_those_levels() -> None:
    d = FEATURES.dimension
    result = run(ARLLinDim(features=FEATURES, norm_bound=NORM, delta=0.02), PROBLEM.mdp, episodes=3_000, seed=0)
    rows = result.phases.to_pylist()
    assert {len(row["active"]) for row in rows} >= {3, d}
    for row in rows:
        assert row["level"] == pytest.approx(union_level(0.02, d, len(row["active"])))
    assert union_level(0.02, d, d) == pytest.approx(0.01)  # the whole set is one event in either kind of phase


def test_bounds_stay_valid_and_shrink(test_seed: int) -> None:
    """Error rate: below delta = 0.05 by the theorem, and zero in 200 seeds when the test was written."""
    selector = ARLLinNorm(features=FEATURES, norm_bound=20.0)
    result = run(selector, PROBLEM.mdp, episodes=30_000, seed=test_seed)
    bounds = np.array(result.phases["norm_bound"].to_pylist())
    assert (bounds >= NORM).all()
    assert bounds[-1] < 3.0
    assert (np.diff(bounds) <= 0.0).all()
    assert result.pessimistic_episodes == 0
    lengths = result.phases["episodes"].to_pylist()
    assert lengths[:-1] == [16 * 2**i for i in range(len(lengths) - 1)]


def test_the_refined_bound_is_the_fixed_point_of_the_largest_norm_in_the_ellipsoid() -> None:
    """With one lambda, b = min(b, M19) until a round gains less than a thousandth."""
    learner = UCRLVTRLin(features=FEATURES, norm_bound=10.0)
    rows = learner.statistics(KNOWN, run(learner, PROBLEM.mdp, episodes=5_000, seed=0).state)
    sigma = rows.gram.reshape(8, 8) + np.eye(8)
    center = np.asarray(np.linalg.solve(sigma, rows.xy), dtype=np.float64)
    noise = 0.25 * (np.linalg.slogdet(sigma)[1] + 2.0 * np.log(1.0 / 0.05))
    bound, expected = 10.0, largest_norm(center, sigma, noise + 10.0**2).norm
    assert expected < 0.999 * bound
    while expected <= 0.999 * bound:
        bound, expected = expected, largest_norm(center, sigma, noise + expected**2).norm
    assert refine([learner], KNOWN, rows, 10.0, 0.0).learner.norm_bound == pytest.approx(bound, rel=1e-9)


def test_every_combination_of_the_lambda_grid_holds_the_truth() -> None:
    """The ellipsoid that plays, with the event of another lambda, computed from its definition."""
    base = UCRLVTRLin(features=FEATURES, norm_bound=50.0, regularization="scaled")
    learners = lambda_grid(base, smallest_norm(FEATURES))
    assert sum(learner.delta for learner in learners) == pytest.approx(base.delta)
    rows = base.statistics(KNOWN, run(base, PROBLEM.mdp, episodes=400, seed=0).state)
    chosen, contradicted = refine(learners, KNOWN, rows, 50.0, smallest_norm(FEATURES))
    assert not contradicted
    assert chosen.event is not None  # a case in which two lambdas are better than one
    larger, slack = chosen.event
    gram = rows.gram.reshape(8, 8)
    sigma, event = gram + chosen.lam * np.eye(8), gram + larger * np.eye(8)
    theta = np.linalg.solve(sigma, rows.xy)
    logdet = np.linalg.slogdet(sigma / chosen.lam)[1]
    assert slack == pytest.approx(np.linalg.slogdet(event / larger)[1] - logdet, rel=1e-9)
    beta = 0.25 * (logdet + slack + 2.0 * np.log(1.0 / chosen.delta))
    beta += chosen.lam * chosen.norm_bound**2 + (larger - chosen.lam) * theta @ theta
    away = PROBLEM.theta - theta
    assert away @ sigma @ away <= beta
    plain = dataclasses.replace(chosen, event=None)
    assert beta < 0.25 * (logdet + 2.0 * np.log(1.0 / plain.delta)) + plain.lam * plain.norm_bound**2
    # The compiled plan uses the same radius: the width of its bonus follows from it.
    narrow, wide = (planned_values(learner, KNOWN, rows, 0)[0, 0] for learner in (chosen, plain))
    assert narrow <= wide


def test_the_smallest_norm_of_a_kernel() -> None:
    assert smallest_norm(FEATURES) == pytest.approx(1.0)  # theta = (1, 0, ..., 0) is one; the others sum to zero
    two = FeatureMap(np.stack([FEATURES.kernel(PROBLEM.theta)] * 2, axis=-1))
    assert smallest_norm(two) == pytest.approx(np.sqrt(0.5))
    some = FEATURES.restrict([1, 2])  # their probabilities sum to zero: no theta is a kernel
    assert smallest_norm(some) == 0.0
    (only,) = lambda_grid(UCRLVTRLin(features=some, norm_bound=3.0, regularization="scaled"), 0.0)
    assert only.lam == pytest.approx(2 / 36)


def test_both_at_once(test_seed: int) -> None:
    selector = ARLLin(features=FEATURES, norm_bound=50.0)
    result = run(selector, PROBLEM.mdp, episodes=20_000, seed=test_seed)
    rows = result.phases.to_pylist()
    carried = [row["norm_bound"] for row in rows if row["label"] == "estimation"]
    assert carried == sorted(carried, reverse=True)
    assert min(carried) >= NORM
    assert [row["active"] for row in rows if row["label"] == "exploitation"][-1] == PROBLEM.support.tolist()
    full = run(largest(selector), PROBLEM.mdp, episodes=20_000, seed=test_seed)
    assert result.total_regret < 0.5 * full.total_regret


def test_diagnosis_reads_a_run() -> None:
    result = run(ARLLinDim(features=FEATURES, norm_bound=NORM), PROBLEM.mdp, episodes=5_000, seed=0)
    about = diagnose(result)
    assert about.active == tuple(PROBLEM.support.tolist())
    assert about.gamma == pytest.approx(0.5, abs=0.2)
    assert about.locks_in_at is not None
    assert about.locks_in_at <= 5_000
    assert "support" in str(about)
    norm = diagnose(run(ARLLinNorm(features=FEATURES, norm_bound=9.0), PROBLEM.mdp, episodes=5_000, seed=0))
    assert norm.active is None
    assert norm.norm_bounds[-1] < 9.0
    with pytest.raises(OccamRLError, match="result"):
        diagnose(run(UCRLVTRLin(features=FEATURES, norm_bound=1.0), PROBLEM.mdp, episodes=5))


def test_diagnosis_warns_when_a_direction_is_never_excited() -> None:
    """Two equal features: their difference is never seen, whatever is played."""
    phi = np.concatenate([PROBLEM.phi, PROBLEM.phi[..., 1:2]], axis=-1)
    features = FeatureMap(phi)
    about = diagnose(run(ARLLinDim(features=features, norm_bound=NORM), PROBLEM.mdp, episodes=2_000, seed=0))
    assert about.weakest in (1, 8)
    assert any("never excited" in warning for warning in about.warnings)


@pytest.mark.parametrize("kind", [ARLLinNorm, ARLLin])
def test_the_paper_s_radius_has_the_paper_s_regularization(kind: Any) -> None:
    assert kind(features=FEATURES, norm_bound=20.0, radius="paper", weights="none").base().lam == 1.0
    assert kind(features=FEATURES, norm_bound=20.0).base().lam == pytest.approx(8 / 1600)
    assert kind(features=FEATURES, norm_bound=20.0, regularization=0.3).base().lam == 0.3


def test_rows_that_leave_no_kernel_within_the_bound_are_reported() -> None:
    """Rows that show a theta of norm 28, where 2 was promised: beta is negative, no square root may be taken of it."""
    learners = lambda_grid(UCRLVTRLin(features=FEATURES, norm_bound=2.0, regularization="scaled"), 1.0)
    learner, contradicted = refine(learners, KNOWN, showing(np.full(8, 10.0), 1e4), 2.0, 1.0)
    assert (contradicted, learner.norm_bound, learner.event) == (True, 2.0, None)
    assert not refine(learners, KNOWN, showing(np.full(8, 0.5), 1e4), 2.0, 1.0).contradicted
    # A bound that shrinks below what every kernel needs is the same contradiction.
    assert refine(learners, KNOWN, showing(np.full(8, 0.1), 1e6), 2.0, 1.0).contradicted


@pytest.mark.parametrize("kind", [ARLLinNorm, ARLLin])
def test_a_contradicted_run_goes_on_and_says_so(kind: Any) -> None:
    class Misled(kind):  # type: ignore[misc]  # a parameter of the test
        def start(self, known: Known) -> dict[str, Any]:
            return {**super().start(known), "statistics": showing(np.full(8, 0.03), 1e6)}  # no kernel is so small

    result = run(Misled(features=FEATURES, norm_bound=2.0), PROBLEM.mdp, episodes=300, seed=0)
    rows = result.phases.to_pylist()
    assert all(row["contradicted"] and row["norm_bound"] == 2.0 for row in rows)
    assert any("contradict" in warning for warning in diagnose(result).warnings)
    honest = run(kind(features=FEATURES, norm_bound=2.0), PROBLEM.mdp, episodes=300, seed=0)
    assert not any(row["contradicted"] for row in honest.phases.to_pylist())


@pytest.mark.parametrize("kind", SELECTORS)
def test_a_bound_below_the_norm_of_every_kernel_is_refused(kind: Any) -> None:
    least = smallest_norm(FEATURES)
    with pytest.raises(ParameterError, match=r"norm_bound.*0\.99.*at least 1"):
        run(kind(features=FEATURES, norm_bound=0.99), PROBLEM.mdp, episodes=5)
    run(kind(features=FEATURES, norm_bound=least), PROBLEM.mdp, episodes=5)


def test_growth_is_that_of_the_rows_whatever_lambda_is() -> None:
    """Recomputed from the statistics at the end of each epoch; with lambda in it, the power is another."""
    selector = ARLLinNorm(features=FEATURES, norm_bound=5.0, regularization=3.0)
    result = run(selector, PROBLEM.mdp, episodes=4_000, seed=1)
    rows = result.phases.to_pylist()
    ends = np.cumsum([row["episodes"] for row in rows])
    seen, smallest, with_lambda = [], [], []
    for end, row in zip(ends[:-1], rows[1:], strict=True):
        gram = run(selector, PROBLEM.mdp, episodes=int(end), seed=1).walk.memory["statistics"].gram.reshape(8, 8)
        seen.append(row["seen"])
        smallest.append(np.linalg.eigvalsh(gram)[0])
        with_lambda.append(smallest[-1] + row["regularization"][0])
    later = slice(len(seen) // 2, None)
    expected, other = (np.polyfit(np.log(seen[later]), np.log(y[later]), 1)[0] for y in (smallest, with_lambda))
    assert diagnose(result).growth == pytest.approx(expected, rel=1e-4)
    assert abs(other - expected) > 1e-3


def test_norm_bounds_of_a_diagnosis_do_not_look_at_the_active_coordinates() -> None:
    result = run(ARLLin(features=FEATURES, norm_bound=50.0), PROBLEM.mdp, episodes=4_000, seed=0)
    played = result.phases["norm_bound"].to_pylist()
    assert played != sorted(played, reverse=True)  # what is played alternates
    bounds = diagnose(result).norm_bounds
    assert list(bounds) == sorted(bounds, reverse=True)


def test_a_checkpoint_whose_decision_is_made_otherwise_now_is_refused() -> None:
    selector = ARLLinDim(features=FEATURES, norm_bound=NORM)
    tree = run(selector, PROBLEM.mdp, episodes=400, seed=0).walk.to_tree()
    PhaseWalk.from_tree(selector, KNOWN, tree)
    for name, other in (("active", [0]), ("threshold", 9.0), ("epoch", 99), ("estimate", [0.0] * 8)):
        changed = {**tree, "rows": [*tree["rows"][:-1], {**tree["rows"][-1], name: other}]}
        with pytest.raises(CheckpointError, match=name):
            PhaseWalk.from_tree(selector, KNOWN, changed)
    with pytest.raises(CheckpointError, match="level"):
        PhaseWalk.from_tree(dataclasses.replace(selector, delta=0.04), KNOWN, tree)


@pytest.mark.parametrize("kind", [ARLLinNorm, ARLLin])
def test_resuming_at_and_around_every_phase_boundary(kind: Any) -> None:
    selector = kind(features=FEATURES, norm_bound=2.0)
    whole = run(selector, PROBLEM.mdp, episodes=70, seed=3)
    ends = np.cumsum(whole.phases["episodes"].to_pylist()).tolist()
    for cut in sorted({end + by for end in ends for by in (-1, 0, 1) if 0 < end + by < 70}):
        part = run(selector, PROBLEM.mdp, episodes=cut, seed=3)
        rest = run(selector, PROBLEM.mdp, episodes=70 - cut, continue_from=part)
        assert rest.regret.tobytes() == whole.regret.tobytes()
        for one, other in zip(whole.phases.to_pylist(), rest.phases.to_pylist(), strict=True):
            assert {**one, "seconds": 0.0} == {**other, "seconds": 0.0}


def odd_problems() -> dict[str, tuple[FiniteMDP, FeatureMap]]:
    """Return problems with something missing or doubled."""
    phi, mdp = PROBLEM.phi, PROBLEM.mdp
    single = FiniteMDP(transition=np.ones((1, 2, 1)), reward=np.array([[0.2, 0.7]]), horizon=3)
    return {
        "one feature": (mdp, FeatureMap((phi @ PROBLEM.theta)[..., None])),
        "doubled features": (mdp, FeatureMap(np.concatenate([phi, phi], axis=-1))),
        "a feature that is zero": (mdp, FeatureMap(np.concatenate([phi, 0.0 * phi[..., :1]], axis=-1))),
        "one state": (single, FeatureMap(np.ones((1, 2, 1, 2)))),
        "one step": (dataclasses.replace(PROBLEM, horizon=1).mdp, FEATURES),
    }


@pytest.mark.parametrize("name", list(odd_problems()))
def test_degenerate_problems_are_played(name: str) -> None:
    """ARL-LIN takes every path of the other two."""
    mdp, features = odd_problems()[name]
    result = run(ARLLin(features=features, norm_bound=3.0), mdp, episodes=200, seed=0)
    assert np.isfinite(result.regret).all()
    assert all(np.isfinite(row["estimate"]).all() for row in result.phases.to_pylist())
    str(diagnose(result))


@pytest.mark.parametrize(
    "changes",
    [
        {"delta": 1e-300},
        {"delta": 1.0},
        {"growth": 1.0, "initial_episodes": 1},
        {"growth": 1e200},
        {"norm_bound": 1e5},
        {"regularization": 1e-12},
        {"regularization": 1e12},
    ],
)
def test_extreme_parameters_are_played(changes: dict[str, Any]) -> None:
    result = run(ARLLin(**{"features": FEATURES, "norm_bound": 2.0, **changes}), PROBLEM.mdp, episodes=60, seed=0)
    assert np.isfinite(result.regret).all()
    assert np.isfinite(result.phases["norm_bound"].to_pylist()).all()
