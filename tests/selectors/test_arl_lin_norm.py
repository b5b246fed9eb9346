"""ARL-LIN(norm) and ARL-LIN: valid bounds, and combined radii."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from occamrl.analysis.diagnosis import diagnose
from occamrl.errors import OccamRLError
from occamrl.learners.radii import largest_norm
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.logs.select import planned_values
from occamrl.models.features import FeatureMap
from occamrl.problems.mixtures import SparseMixture
from occamrl.running.run import run
from occamrl.selectors.arl_lin import ARLLin, ARLLinDim, ARLLinNorm, lambda_grid, refine, smallest_norm
from occamrl.selectors.references import largest

PROBLEM = SparseMixture(states=8, actions=3, horizon=5, dimension=8, nonzero=3, gamma=0.5, seed=0)
FEATURES, NORM = FeatureMap(PROBLEM.phi), float(np.linalg.norm(PROBLEM.theta))


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
    known = PROBLEM.mdp.known
    learner = UCRLVTRLin(features=FEATURES, norm_bound=10.0)
    rows = learner.statistics(known, run(learner, PROBLEM.mdp, episodes=5_000, seed=0).state)
    sigma = rows.gram.reshape(8, 8) + np.eye(8)
    center = np.asarray(np.linalg.solve(sigma, rows.xy), dtype=np.float64)
    noise = 0.25 * (np.linalg.slogdet(sigma)[1] + 2.0 * np.log(1.0 / 0.05))
    bound, expected = 10.0, largest_norm(center, sigma, noise + 10.0**2).norm
    assert expected < 0.999 * bound
    while expected <= 0.999 * bound:
        bound, expected = expected, largest_norm(center, sigma, noise + expected**2).norm
    assert refine([learner], known, rows, 10.0, 0.0).learner.norm_bound == pytest.approx(bound, rel=1e-9)


def test_every_combination_of_the_lambda_grid_holds_the_truth() -> None:
    """The ellipsoid that plays, with the event of another lambda, computed from its definition."""
    known = PROBLEM.mdp.known
    base = UCRLVTRLin(features=FEATURES, norm_bound=50.0, regularization="scaled")
    learners = lambda_grid(base, smallest_norm(FEATURES))
    assert sum(learner.delta for learner in learners) == pytest.approx(base.delta)
    rows = base.statistics(known, run(base, PROBLEM.mdp, episodes=400, seed=0).state)
    chosen, contradicted = refine(learners, known, rows, 50.0, smallest_norm(FEATURES))
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
    narrow, wide = (planned_values(learner, known, rows, 0)[0, 0] for learner in (chosen, plain))
    assert narrow <= wide


def test_the_smallest_norm_of_a_kernel() -> None:
    assert smallest_norm(FEATURES) == pytest.approx(1.0)  # theta = (1, 0, ..., 0) is one; the others sum to zero
    two = FeatureMap(np.stack([FEATURES.kernel(PROBLEM.theta)] * 2, axis=-1))
    assert smallest_norm(two) == pytest.approx(np.sqrt(0.5))


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
