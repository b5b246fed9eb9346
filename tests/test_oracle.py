"""The NumPy oracle of the compiled learners by itself: loops, enumeration and least squares on a few states."""

from __future__ import annotations

import itertools
import math
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import oracle
from tests.cases import mixture

Floats = NDArray[np.float64]
STATES, ACTIONS, DIMENSION = 3, 2, 2


def run_linear(seed: int, *, horizon: int, episodes: int, uniforms: Floats, **options: Any) -> dict[str, Any]:
    """Run UCRL-VTR-LIN on a mixture from state 1."""
    case = mixture(seed, states=STATES, dimension=DIMENSION)
    settings: dict[str, Any] = {"norm_bound": 1.0, "delta": 0.05} | options
    problem = (case.phi, case.reward, case.transition, horizon, 1)
    return oracle.ucrl_vtr_lin(*problem, episodes=episodes, uniforms=uniforms, **settings)


def row(phi: Floats, state: int, action: int, values: Floats, following: int, weights: str) -> tuple[Floats, float]:
    """Return (x, y) of one regression row by loops over next states (M8, M23)."""
    reachable = [p for p in range(phi.shape[2]) if any(phi[state, action, p] != 0.0)]
    centre, spread = 0.0, 1.0
    if weights == "range":
        high, low = max(values[p] for p in reachable), min(values[p] for p in reachable)
        centre, spread = (high + low) / 2, high - low
    if spread == 0.0:
        return np.zeros(phi.shape[3]), 0.0
    x = np.zeros(phi.shape[3])
    for p in reachable:
        x += phi[state, action, p] * (values[p] - centre) / spread
    return x, (values[following] - centre) / spread


def draw(probabilities: Floats, uniform: float) -> int:
    """Return the first state of positive probability whose running sum exceeds ``uniform``."""
    total, last = 0.0, -1
    for state, probability in enumerate(probabilities):
        if probability > 0.0:
            total, last = total + probability, state
            if uniform < total:
                return state
    return last


def test_the_numbers_are_those_of_the_published_generator() -> None:
    """The known answer of Philox4x32-10 (Random123, kat_vectors) for a zero key and a zero counter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("occamrl.seeding.key", lambda *_: np.uint64(0))
        found = oracle.environment_uniforms(0, 1, 1)[0]
    words = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    expected = [((a >> 5) * 2**26 + (b >> 6)) / 2**53 for a, b in (words[:2], words[2:])]
    assert found.tolist() == expected


@pytest.mark.parametrize(("uniform", "following"), [(0.0, 1), (0.25, 2)])
def test_a_uniform_on_a_boundary_belongs_to_the_next_state(uniform: float, following: int) -> None:
    transition = np.tile([0.0, 0.25, 0.75], (3, 1, 1))
    reward = np.array([[0.1], [0.5], [0.9]])
    uniforms = np.array([[uniform, 0.0]])
    linear = oracle.ucrl_vtr_lin(
        transition[..., None], reward, transition, 2, 0, episodes=1, uniforms=uniforms, norm_bound=1.0, delta=0.1,
        weights="none",
    )  # fmt: skip
    x = 0.25 * 0.5 + 0.75 * 0.9
    assert linear["theta"] == pytest.approx(x * reward[following] / (1 + x**2))
    finite = oracle.ucrl_vtr(transition[None], reward, transition, 2, 0, episodes=1, uniforms=uniforms, delta=0.1)
    assert finite["losses"] == pytest.approx((following - 1.5 - (0.25 * -0.5 + 0.75 * 0.5)) ** 2)


@pytest.mark.parametrize("weights", ["range", "none"])
def test_horizon_two_by_hand(weights: Literal["range", "none"]) -> None:
    """Two steps from state 1: V_2 = max_a r, so that the first episode's plan and row are plain arithmetic."""
    phi, _, transition, reward, _ = mixture(5, states=STATES, dimension=DIMENSION)
    uniforms = np.array([[0.4, 0.0]])
    result = run_linear(5, horizon=2, episodes=1, uniforms=uniforms, weights=weights)
    v2 = reward.max(axis=1)
    assert np.array_equal(result["values"][1:], [v2, np.zeros(STATES)])
    sqrt_beta = math.sqrt(math.log(1 / 0.05) / 2 + 1.0)  # logdet = 0, U = 1 = H - 1, lambda b^2 = 1
    q = np.zeros((STATES, ACTIONS))
    for s, a in itertools.product(range(STATES), range(ACTIONS)):
        x, _ = row(phi, s, a, v2, 0, weights)
        reachable = [p for p in range(STATES) if transition[s, a, p] > 0.0]
        if weights == "range":
            high, low = v2[reachable].max(), v2[reachable].min()
            optimistic = min(0.5, max(-0.5, sqrt_beta * math.sqrt(x @ x)))  # theta = 0, Sigma = I
            q[s, a] = reward[s, a] + (high + low) / 2 + (high - low) * optimistic
        else:
            q[s, a] = reward[s, a] + sqrt_beta * math.sqrt(x @ x)
    assert result["values"][0] == pytest.approx(np.clip(q.max(axis=1), 0.0, 2.0), abs=1e-14)
    assert np.array_equal(result["policy"][0], q.argmax(axis=1))
    assert np.array_equal(result["policy"][1], reward.argmax(axis=1))
    action = int(q[1].argmax())
    x, y = row(phi, 1, action, v2, draw(transition[1, action], 0.4), weights)
    sigma = np.eye(DIMENSION) + np.outer(x, x)
    assert result["sigma"] == pytest.approx(sigma, abs=1e-14)
    assert result["theta"] == pytest.approx(np.linalg.inv(sigma) @ (y * x), abs=1e-14)
    assert result["logdet"] == pytest.approx(math.log(1 + x @ x), abs=1e-13)
    best = reward[1] + transition[1] @ v2
    assert result["regret"][0] == pytest.approx(best.max() - best[action], abs=1e-14)


@pytest.mark.parametrize("weights", ["range", "none"])
@pytest.mark.parametrize("replan", [0.0, 0.3, 1e9])
def test_the_estimate_is_least_squares_on_the_stacked_rows(weights: str, replan: float) -> None:
    """Rows are rebuilt episode by episode from the plan that a run cut there reports; lambda enters as d more rows."""
    phi, _, transition, *_ = mixture(7, states=STATES, dimension=DIMENSION)
    horizon, episodes, lam = 4, 12, 0.7
    uniforms = np.random.default_rng(1).random((episodes, horizon))
    options: dict[str, Any] = {"weights": weights, "replan": replan, "lam": lam}
    design, response = [*(math.sqrt(lam) * np.eye(DIMENSION))], [0.0] * DIMENSION
    for k in range(1, episodes + 1):
        result = run_linear(7, horizon=horizon, episodes=k, uniforms=uniforms[:k], **options)
        state = 1
        for h in range(horizon - 1):
            action = int(result["policy"][h, state])
            following = draw(transition[state, action], uniforms[k - 1, h])
            x, y = row(phi, state, action, result["values"][h + 1], following, weights)
            design.append(x)
            response.append(y)
            state = following
        stacked = np.array(design)
        assert result["theta"] == pytest.approx(np.linalg.lstsq(stacked, np.array(response))[0], abs=1e-10)
        assert result["sigma"] == pytest.approx(stacked.T @ stacked, abs=1e-12)
    assert result["plans"] == {0.0: episodes, 1e9: 1}.get(replan, result["plans"])


def test_the_set_always_holds_the_best_fitting_member_and_obeys_the_prior() -> None:
    losses = np.array([3.0, 1.0, 1.0, 9.0])
    uniform = np.full(4, -math.log(4.0))
    assert oracle.prior_set(losses, uniform, 1.0, 0.0)[1]
    inside = oracle.prior_set(losses, uniform, 1.0, math.log(20.0))
    bound = (math.log(20.0) - math.log(np.exp(-2 * losses).mean())) / 2
    assert np.array_equal(inside, losses <= bound)
    assert np.array_equal(inside, [False, True, True, False])
    doubtful = np.log([1e-9, 1e-9, 1e-9, 1.0 - 3e-9])  # little faith in all but the worst member: a wider set
    assert oracle.prior_set(losses, doubtful, 1.0, math.log(20.0))[:3].all()
