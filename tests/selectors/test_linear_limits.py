"""The linear selectors at their limits: contradicted classes, impossible bounds, degenerate features and schedules."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from occamrl.analysis.diagnosis import diagnose
from occamrl.errors import CheckpointError, ParameterError
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.problems.mdp import FiniteMDP
from occamrl.problems.mixtures import SparseMixture
from occamrl.protocols import Floats, Known
from occamrl.running.phases import PhaseWalk
from occamrl.running.run import run
from occamrl.selectors.arl_lin import ARLLin, ARLLinDim, ARLLinNorm, lambda_grid, refine, smallest_norm

PROBLEM = SparseMixture(states=8, actions=3, horizon=5, dimension=8, nonzero=3, gamma=0.5, seed=0)
FEATURES, NORM, KNOWN = FeatureMap(PROBLEM.phi), float(np.linalg.norm(PROBLEM.theta)), PROBLEM.mdp.known
SELECTORS = (ARLLinDim, ARLLinNorm, ARLLin)


def showing(theta: Floats, weight: float) -> LinearStatistics:
    """Return rows that show ``theta``, every coordinate alike."""
    return LinearStatistics((weight * np.eye(theta.size)).ravel(), weight * theta, 10)


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
            return {**super().start(known), "statistics": showing(np.full(8, 10.0), 1e4)}

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


def test_a_lambda_grid_without_a_least_norm() -> None:
    some = FEATURES.restrict([1, 2])  # their probabilities sum to zero: no theta is a kernel
    assert smallest_norm(some) == 0.0
    (only,) = lambda_grid(UCRLVTRLin(features=some, norm_bound=3.0, regularization="scaled"), 0.0)
    assert only.lam == pytest.approx(2 / 36)


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


def test_nothing_locks_in_where_nothing_is_left_out() -> None:
    whole = SparseMixture(states=8, actions=3, horizon=5, dimension=6, nonzero=6, gamma=0.5, seed=3)
    selector = ARLLinDim(features=FeatureMap(whole.phi), norm_bound=float(np.linalg.norm(whole.theta)))
    about = diagnose(run(selector, whole.mdp, episodes=2_000, seed=0))
    assert about.active == tuple(range(6))
    assert about.locks_in_at is None
    assert "lock" not in str(about)
    assert "every coordinate is active" in str(about)


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


@pytest.mark.parametrize("kind", SELECTORS)
def test_resuming_at_and_around_every_phase_boundary(kind: Any) -> None:
    selector = kind(features=FEATURES, norm_bound=2.0)
    whole = run(selector, PROBLEM.mdp, episodes=150, seed=3)
    ends = np.cumsum(whole.phases["episodes"].to_pylist()).tolist()
    for cut in sorted({end + by for end in ends for by in (-1, 0, 1) if 0 < end + by < 150}):
        part = run(selector, PROBLEM.mdp, episodes=cut, seed=3)
        rest = run(selector, PROBLEM.mdp, episodes=150 - cut, continue_from=part)
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


@pytest.mark.parametrize("kind", SELECTORS)
@pytest.mark.parametrize("name", list(odd_problems()))
def test_degenerate_problems_are_played(kind: Any, name: str) -> None:
    mdp, features = odd_problems()[name]
    result = run(kind(features=features, norm_bound=3.0), mdp, episodes=200, seed=0)
    assert np.isfinite(result.regret).all()
    assert all(np.isfinite(row["estimate"]).all() for row in result.phases.to_pylist())
    str(diagnose(result))


@pytest.mark.parametrize("kind", SELECTORS)
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
def test_extreme_parameters_are_played(kind: Any, changes: dict[str, Any]) -> None:
    result = run(kind(**{"features": FEATURES, "norm_bound": 2.0, **changes}), PROBLEM.mdp, episodes=60, seed=0)
    assert np.isfinite(result.regret).all()
    assert np.isfinite(result.phases["norm_bound"].to_pylist()).all()
