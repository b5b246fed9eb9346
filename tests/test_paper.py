"""The paper's edition: learners against the compiled ones set to the paper, selectors from their definitions."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import occamrl as orl
from benchmarks import oracle
from benchmarks.oracle import cumulative_kernel, environment_uniforms
from occamrl.errors import InvalidInput
from occamrl.learners import radii
from occamrl.paper import UCRLVTR, ARLGen, ARLLinDim, ARLLinNorm, UCRLVTRLin
from occamrl.paper.arl_lin_norm import largest_norm
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Episode, EpisodeLearner, Floats
from occamrl.running.run import run
from tests.cases import Stack, mixture, stack


class PaperRun(NamedTuple):
    """What a run reports, episode by episode, and the state that it ended with."""

    regret: Floats  # [K]
    planned: Floats  # [K] V^k_1(s_1)
    state: dict[str, Any]
    history: list[dict[str, Any]]  # of each episode: the plain entries of the state that it was played with


def compare(paper: EpisodeLearner, compiled: Any, mdp: FiniteMDP, episodes: int, seed: int) -> PaperRun:
    """Play both with the same draws; regret must agree episode by episode, and plans that are not optimistic."""
    expected, found = run(compiled, mdp, episodes=episodes, seed=seed, progress=False), play(paper, mdp, episodes, seed)
    np.testing.assert_allclose(found.regret, expected.regret, rtol=0, atol=1e-9)
    pessimistic = int((found.planned < mdp.optimal_values[0].min() - 1e-9 * mdp.horizon).sum())
    assert pessimistic <= expected.pessimistic_episodes <= episodes
    return found


def play(learner: EpisodeLearner, mdp: FiniteMDP, episodes: int, seed: int) -> PaperRun:
    """Play whole episodes and evaluate every policy exactly."""
    uniforms = oracle.environment_uniforms(seed, episodes, mdp.horizon)
    regret, planned, history = np.zeros(episodes), np.zeros(episodes), []
    for k, moment in enumerate(oracle.play(learner, mdp.known, mdp.kernel(), mdp.initial_distribution, uniforms)):
        state, regret[k], planned[k] = moment.state, moment.regret, moment.planned_value
        history.append({name: value for name, value in state.items() if isinstance(value, (int, float, str))})
    return PaperRun(regret, planned, state, history)


DRAW = np.random.default_rng(0)
FINITE: dict[str, Any] = {"radius": "paper", "replan": 0}  # the compiled learners set to the paper
LINEAR: dict[str, Any] = {**FINITE, "weights": "none", "clip": "horizon", "regularization": 1.0}


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


def ladder(seed: int) -> tuple[orl.Ladder, list[Floats], FiniteMDP]:
    """Return three classes of kernels that differ much: even the paper's threshold leaves the first before long."""
    kernels = np.random.default_rng(seed).dirichlet(np.full(4, 0.15), size=(9, 4, 2))
    mdp = FiniteMDP(transition=kernels[8], reward=np.arange(8.0).reshape(4, 2) / 7, horizon=6)
    classes = [kernels[:n] for n in (1, 4, 9)]
    return orl.Ladder([orl.FiniteFamily(each) for each in classes]), classes, mdp


def episodes_of(learner: EpisodeLearner, mdp: FiniteMDP, state: dict[str, Any], uniforms: Floats) -> Iterator[Episode]:
    """Play episodes one by one without learning; the caller does."""
    starts, following = cumulative_kernel(mdp.initial_distribution), cumulative_kernel(mdp.kernel())
    for u in uniforms:
        states, actions = [int(np.searchsorted(starts, u[0], side="right"))], []
        policy, _ = learner.plan(mdp.known, state, states[0], np.random.default_rng(0))
        for h in range(mdp.horizon):
            actions.append(int(policy[h, states[-1]]))
            states.append(int(np.searchsorted(following[states[-1], actions[-1]], u[h + 1], side="right")))
        yield Episode(np.array(states), np.array(actions), mdp.known.base_reward[states[:-1], actions])


@pytest.mark.parametrize(
    ("seed", "epochs", "left"), [(0, 6, False), (1, 6, False), (2, 6, False), (4, 8, True), (11, 7, True)]
)
def test_arl_gen_from_its_definition(seed: int, epochs: int, left: bool) -> None:
    """Play every epoch with a fresh UCRL-VTR; collect all rows; recompute T_m, gamma_i and m_i from them (M13, M14)."""
    rungs, classes, mdp = ladder(seed)
    episodes, delta, H = 2 ** (epochs + 1) - 2, 0.1, mdp.horizon
    found = play(ARLGen(ladder=rungs, delta=delta), mdp, episodes, seed)
    uniforms, regret, at = environment_uniforms(seed, episodes, H), [], 0
    rows: list[tuple[int, int, Floats, float]] = []
    for i in range(1, epochs + 1):
        tau = 2**i - 2
        assert len(rows) == tau * H
        losses = [
            min(sum((y - float(kernel[s, a] @ V)) ** 2 for s, a, V, y in rows) for kernel in kernels)
            for kernels in classes
        ]
        statistics = [loss / (tau * H) if tau else 0.0 for loss in losses]
        gamma = statistics[-1] + math.sqrt(i) / 2 ** (i / 2)
        chosen = next(m for m, T in enumerate(statistics, start=1) if gamma >= T)
        assert found.history[at]["epoch"] == i
        assert found.history[at]["chosen"] == chosen
        assert found.history[at]["left"] == 2**i
        assert found.history[at]["threshold"] == pytest.approx(gamma, abs=1e-10)
        base = UCRLVTR(family=rungs.rung(chosen), delta=delta / 2**i)
        state = base.begin(mdp.known)
        for episode in episodes_of(base, mdp, state, uniforms[at : at + 2**i]):
            member = state["member"]
            kernel, V = rungs.rung(chosen).kernel(member), np.zeros((H + 1, mdp.states))
            for h in reversed(range(H)):
                V[h] = (mdp.known.base_reward + kernel @ V[h + 1]).max(axis=1)
            steps = zip(episode.states[:-1], episode.actions, episode.states[1:], strict=True)
            rows += [(int(s), int(a), V[h + 1], float(V[h + 1, after])) for h, (s, a, after) in enumerate(steps)]
            base.learn(mdp.known, state, episode)
            regret.append(V[0, 0])
        at += 2**i
    np.testing.assert_allclose(found.planned, regret, rtol=0, atol=1e-12)
    assert found.history[0]["chosen"] == 1  # no data in epoch 1
    assert ({entry["chosen"] for entry in found.history} > {1}) is left


@pytest.mark.parametrize(("seed", "rule"), [(3, "text"), (3, "box"), (0, "text"), (4, "text"), (2, "box")])
def test_arl_lin_dim_from_its_definition(seed: int, rule: str) -> None:
    """Play the phases with learners at hand: a restricted one from nothing, and one full one throughout (M16)."""
    case = mixture(seed, dimension=4, states=5, horizon=6)
    options: dict[str, Any] = {"norm_bound": 1.3, "paper_constant": 1e-4}
    selector = ARLLinDim(
        features=case.features, delta=0.1, initial_episodes=5, growth=4, estimation_growth=2, threshold=0.6,
        threshold_epoch=rule, **options,
    )  # fmt: skip
    lengths = [(5, 3), (20, 6), (80, 12), (320, 24)]  # 4^i 5, 2^i ceil(sqrt 5)
    episodes = sum(map(sum, lengths))
    found = play(selector, case.mdp, episodes, 1)
    uniforms, at, planned = environment_uniforms(1, episodes, case.mdp.horizon), 0, []
    full = UCRLVTRLin(features=case.features, delta=0.1, **options)
    estimating, theta = full.begin(case.mdp.known), np.ones(4)
    sets = []
    for i, (exploit, estimate) in enumerate(lengths):
        active = [j for j in range(4) if abs(theta[j]) >= 0.6 ** (i if rule == "text" else i + 1)]
        active = active or list(range(4))
        sets.append(tuple(active))
        fresh = UCRLVTRLin(features=case.features.restrict(active), delta=0.1 / 2**i, **options)
        for learner, state, length, phase in (
            (fresh, fresh.begin(case.mdp.known), exploit, "exploitation"),
            (full, estimating, estimate, "estimation"),
        ):
            entry = found.history[at]
            assert (entry["epoch"], entry["phase"], entry["left"]) == (i, phase, length)
            for episode in episodes_of(learner, case.mdp, state, uniforms[at : at + length]):
                planned.append(state["values"][0, episode.states[0]])
                learner.learn(case.mdp.known, state, episode)
            at += length
        theta = np.linalg.solve(estimating["sigma"], estimating["xy"])
    np.testing.assert_allclose(found.planned, planned, rtol=0, atol=1e-9)
    assert sets[0] == (0, 1, 2, 3)
    assert len(set(sets)) > 1
    np.testing.assert_allclose(found.state["estimate"], theta, rtol=0, atol=1e-9)


def test_an_empty_support_is_replaced_by_everything() -> None:
    case = mixture(0)
    selector = ARLLinDim(features=case.features, norm_bound=1.3, initial_episodes=1, growth=1, estimation_growth=1)
    state = selector.begin(case.mdp.known)
    state["estimate"], state["epoch"] = np.zeros(3), 1
    selector._begin_epoch(case.mdp.known, state)
    assert state["active"].tolist() == [0, 1, 2]


def test_the_defaults_are_the_papers() -> None:
    dim = ARLLinDim(features=mixture(0).features, norm_bound=1.0)
    assert (dim.growth, dim.estimation_growth, dim.threshold) == (36, 6, 0.5)


@pytest.mark.parametrize(("seed", "estimate"), [(2, "maximum"), (2, "sum"), (0, "maximum"), (1, "maximum"), (3, "sum")])
def test_arl_lin_norm_from_its_definition(seed: int, estimate: str) -> None:
    case = mixture(seed)
    selector = ARLLinNorm(
        features=case.features, norm_bound=5.0, delta=0.1, paper_constant=1e-4, initial_episodes=7,
        norm_estimate=estimate,
    )  # fmt: skip
    episodes = 7 * 31
    found = play(selector, case.mdp, episodes, 4)
    uniforms, at, bound = environment_uniforms(4, episodes, case.mdp.horizon), 0, 5.0
    H, d = case.mdp.horizon, 3
    for i in range(1, 6):
        k = 7 * 2 ** (i - 1)
        assert (found.history[at]["epoch"], found.history[at]["left"]) == (i, k)
        assert found.history[at]["norm_bound"] == pytest.approx(bound, rel=1e-9)
        delta = 0.1 / 2 ** (i - 1)
        base = UCRLVTRLin(features=case.features, norm_bound=bound, delta=delta, paper_constant=1e-4)
        state = base.begin(case.mdp.known)
        for episode in episodes_of(base, case.mdp, state, uniforms[at : at + k]):
            base.learn(case.mdp.known, state, episode)
        beta = 1e-4 * (bound**2 + H**2 * d * math.log(k * H) * math.log(k**2 * H / delta) ** 2)
        theta = np.linalg.solve(state["sigma"], state["xy"])
        points = np.random.default_rng(0).normal(size=(20_000, d))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        root = np.linalg.cholesky(np.linalg.inv(state["sigma"]))
        sampled = float(np.linalg.norm(theta + math.sqrt(beta) * points @ root.T, axis=1).max())
        upper = float(np.linalg.norm(theta) + math.sqrt(beta / np.linalg.eigvalsh(state["sigma"])[0]))
        after = found.history[at + k]["norm_bound"] if at + k < episodes else found.state["norm_bound"]
        if estimate == "maximum":
            assert sampled - 1e-12 <= after <= min(upper, sampled * (1 + 1e-3))
        else:
            assert after == pytest.approx(upper, rel=1e-9)
        bound, at = after, at + k


@pytest.mark.parametrize("seed", range(5))
def test_the_largest_norm_is_the_one_that_is_certified(seed: int) -> None:
    """That of the product, which ``tests/learners/test_radii.py`` certifies by duality and by search."""
    rng = np.random.default_rng(seed)
    s = np.sort(rng.uniform(1.0, 9.0, size=4))
    axes = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    g = rng.normal(size=4)
    if seed == 4:
        g[0] = 0.0  # the degenerate case: nothing along the longest axis
        g *= 0.01
    ellipsoid = (axes @ g, axes @ np.diag(s) @ axes.T, 3.0)
    assert largest_norm(*ellipsoid) == pytest.approx(radii.largest_norm(*ellipsoid).norm, rel=1e-9)
    assert largest_norm(np.zeros(2), np.diag([2.0, 4.0]), 8.0) == pytest.approx(2.0, abs=1e-12)
    assert largest_norm(np.array([0.0, 3.0]), np.eye(2), 4.0) == pytest.approx(5.0, abs=1e-12)


def selectors() -> dict[str, tuple[Callable[[], EpisodeLearner], FiniteMDP]]:
    case, (rungs, _, mdp) = mixture(1), ladder(0)
    options: dict[str, Any] = {"features": case.features, "norm_bound": 1.3, "paper_constant": 1e-3}
    return {
        "ucrl_vtr": (lambda: UCRLVTR(family=rungs.rung(3)), mdp),
        "ucrl_vtr_lin": (lambda: UCRLVTRLin(**options), case.mdp),
        "arl_gen": (lambda: ARLGen(ladder=rungs), mdp),
        "arl_lin_dim": (lambda: ARLLinDim(**options, initial_episodes=2, growth=3, estimation_growth=2), case.mdp),
        "arl_lin_norm": (lambda: ARLLinNorm(**options, initial_episodes=4), case.mdp),
    }


def plain(value: Any) -> bool:
    """Say whether a state can be written to a checkpoint."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(entry) for key, entry in value.items())
    if isinstance(value, list):
        return all(plain(entry) for entry in value)
    return type(value) in (int, float, str) or (isinstance(value, np.ndarray) and value.dtype.kind in "fi")


@pytest.mark.parametrize("name", selectors())
def test_a_state_is_plain_data_and_enough_to_go_on_from(name: str) -> None:
    """A second object, given a copy of the state in the middle, goes on bit for bit."""
    make, mdp = selectors()[name]
    learner, uniforms = make(), environment_uniforms(0, 60, mdp.horizon)
    assert isinstance(learner, EpisodeLearner)
    state = learner.begin(mdp.known)
    for episode in episodes_of(learner, mdp, state, uniforms[:30]):
        learner.learn(mdp.known, state, episode)
        assert plain(state)
    other, kept = make(), copy.deepcopy(state)
    for one, two in ((learner, state), (other, kept)):
        for episode in episodes_of(one, mdp, two, uniforms[30:]):
            one.learn(mdp.known, two, episode)
    np.testing.assert_equal(kept, state)


@pytest.mark.parametrize("name", selectors())
def test_a_run_plays_the_letter_like_any_other_agent(name: str) -> None:
    """``orl.run`` in two pieces draws the same episodes and evaluates the same policies as the loop in NumPy."""
    make, mdp = selectors()[name]
    expected = play(make(), mdp, 60, 3)
    first = orl.run(make(), mdp, episodes=25, seed=3, progress=False)
    result = orl.run(make(), mdp, episodes=35, progress=False, continue_from=first)
    np.testing.assert_allclose(result.regret, expected.regret, rtol=0, atol=1e-12)
    best = mdp.optimal_values[0] @ mdp.initial_distribution
    assert result.pessimistic_episodes == (expected.planned < best - 1e-9 * mdp.horizon).sum()
