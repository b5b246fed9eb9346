"""The letter's UCRL-VTR and UCRL-VTR-LIN against the compiled learners with the paper's options, and by brute force."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from benchmarks.oracle import cumulative_kernel
from occamrl.errors import InvalidInput
from occamrl.paper import UCRLVTR, UCRLVTRLin
from occamrl.paper.ucrl_vtr import optimal_values
from occamrl.protocols import Episode, Floats
from tests.cases import Stack, mixture, stack
from tests.paper.compiled import FINITE, LINEAR
from tests.paper.loop import compare, play

DRAW = np.random.default_rng(0)


class Recording:
    """A learner that keeps every episode and the values it was planned with."""

    def __init__(self, learner: Any) -> None:
        self.learner, self.episodes, self.values, self.policies = learner, [], [], []  # type: ignore[var-annotated]
        self.begin = learner.begin

    def plan(self, known: Any, state: dict[str, Any], start: int, draw: np.random.Generator) -> Any:
        found = self.learner.plan(known, state, start, draw)
        self.policies.append(found[0].copy())
        self.values.append(
            state["values"].copy()
            if "values" in state
            else optimal_values(self.learner.family, known)[0][state["member"]]
        )
        return found

    def learn(self, known: Any, state: dict[str, Any], episode: Episode) -> None:
        self.episodes.append(episode)
        self.learner.learn(known, state, episode)

    def rows(self) -> list[tuple[int, int, Floats, float]]:
        """Return every (s, a, V, y)."""
        return [
            (int(s), int(a), V[h + 1], float(V[h + 1, after]))
            for episode, V in zip(self.episodes, self.values, strict=True)
            for h, (s, a, after) in enumerate(
                zip(episode.states[:-1], episode.actions, episode.states[1:], strict=True)
            )
        ]


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


def test_confidence_sets_from_rows_by_loops() -> None:
    """Replay a run row by row and rebuild every loss, distance and set from its definition (M1 to M6)."""
    case, rng = far_apart(5, members=5), np.random.default_rng(5)
    learner = UCRLVTR(family=case.family, delta=0.05)
    values, _ = optimal_values(case.family, case.mdp.known)
    state, H = learner.begin(case.mdp.known), case.mdp.horizon
    recording = Recording(learner)
    beta, sizes, following = 8 * H**2 * math.log(5 / 0.05), set(), cumulative_kernel(case.kernels[0])
    for k in range(3000):
        if k % 300 == 0:
            rows = recording.rows()
            z = [[float(kernel[s, a] @ V) for kernel in case.kernels] for s, a, V, _ in rows]
            losses = [sum((y - zt[m]) ** 2 for (*_, y), zt in zip(rows, z, strict=True)) for m in range(5)]
            best = min(range(5), key=losses.__getitem__)
            inside = [sum((zt[m] - zt[best]) ** 2 for zt in z) <= beta for m in range(5)]
            assert list(learner.confidence_set(case.mdp.known, state)) == inside
            np.testing.assert_allclose(state["losses"], losses, rtol=0, atol=1e-8)
            member = max((m for m in range(5) if inside[m]), key=lambda m: (values[m, 0, 0], -m))
            sizes.add(sum(inside))
        policy, promised = recording.plan(case.mdp.known, state, 0, rng)
        if k % 300 == 0:
            assert state["member"] == member
            assert promised == values[member, 0, 0]
        states, actions = [0], []
        for h in range(H):
            actions.append(int(policy[h, states[-1]]))
            states.append(int(np.searchsorted(following[states[-1], actions[-1]], rng.random(), side="right")))
        recording.learn(case.mdp.known, state, Episode(np.array(states), np.array(actions), np.zeros(H)))
    assert len(sizes) > 1  # the data have excluded somebody


def test_the_estimate_is_least_squares_on_the_stacked_rows() -> None:
    """M8, lambda = 1 entering as d more rows; M9 and M10 for the last plan, by loops."""
    case = mixture(7)
    learner = UCRLVTRLin(features=case.features, norm_bound=1.2, delta=0.1, paper_constant=0.01)
    recording = Recording(learner)
    run = play(recording, case.mdp, 25, 3)
    d, H = case.phi.shape[-1], case.mdp.horizon
    rows = recording.rows()
    design = np.vstack([np.eye(d), [V @ case.phi[s, a] for s, a, V, _ in rows]])
    response = np.concatenate([np.zeros(d), [y for *_, y in rows]])
    np.testing.assert_allclose(run.state["sigma"], design.T @ design, rtol=0, atol=1e-10)
    np.testing.assert_allclose(learner.estimate(run.state), np.linalg.lstsq(design, response)[0], rtol=0, atol=1e-10)

    policy, promised = learner.plan(case.mdp.known, run.state, 0, DRAW)
    theta, inverse = np.linalg.lstsq(design, response)[0], np.linalg.inv(design.T @ design)
    width = math.sqrt(0.01 * (1.2**2 + H**2 * d * math.log(25 * H) * math.log(25**2 * H / 0.1) ** 2))
    V = np.zeros(case.mdp.states)
    for h in reversed(range(H)):
        q = np.zeros((case.mdp.states, case.mdp.actions))
        for s, a in itertools.product(range(case.mdp.states), range(case.mdp.actions)):
            x = sum(V[t] * case.phi[s, a, t] for t in range(case.mdp.states))
            q[s, a] = case.reward[s, a] + x @ theta + width * math.sqrt(x @ inverse @ x)
        assert np.array_equal(policy[h], q.argmax(axis=1))
        V = np.minimum(q.max(axis=1), H)
    assert promised == pytest.approx(V[0], abs=1e-9)


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
    bad: list[tuple[str, Any]] = [
        ("delta", lambda: UCRLVTR(family=family.family, delta=0.0)),
        ("family", lambda: UCRLVTR(family=[family.kernels])),  # type: ignore[arg-type]
        ("infinite_class", lambda: UCRLVTR(family=family.family, infinite_class=3)),  # type: ignore[arg-type]
        ("cover_scales", lambda: UCRLVTR(family=family.family, cover_scales="dyadik")),
        ("norm_bound", lambda: UCRLVTRLin(features=case.features, norm_bound=-1.0)),
        ("paper_constant", lambda: UCRLVTRLin(features=case.features, norm_bound=1.0, paper_constant=0.0)),
        ("features", lambda: UCRLVTRLin(features=case.phi, norm_bound=1.0)),  # type: ignore[arg-type]
    ]
    for name, make in bad:
        with pytest.raises(InvalidInput, match=name):
            make()
