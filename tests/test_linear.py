"""Linear kernels: regression, ellipsoids, lazy planning, selection of supports and norms, likelihood of mixtures."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binom, chi2

from occamrl.analysis.supports import supports
from occamrl.errors import FeatureError, ParameterError
from occamrl.evidence import likelihood, value
from occamrl.learners.linear_rivals import Greedy, LinPSRL, UCRLVTRPlus
from occamrl.learners.occam_lin import OccamLin, OccamMixture, expand
from occamrl.learners.ucrl_vtr_lin import Pace, UCRLVTRLin, path_sums
from occamrl.models.features import FeatureMap
from occamrl.paper import arl_lin_dim, arl_lin_norm, ucrl_vtr_lin
from occamrl.problems.mdp import FiniteMDP
from occamrl.problems.mixtures import SparseMixture
from occamrl.protocols import Floats, Flow, Known, Plan
from occamrl.running.flow import simulate
from occamrl.running.run import run
from occamrl.selectors.arl_lin import ARLLin, ARLLinDim, ARLLinNorm, penalised_loss, sharp_support

Seen = Callable[[Plan, dict[str, Any], Flow], None]


def play(
    agent: Any, mdp: FiniteMDP, episodes: int, seed: int = 0, seen: Seen | None = None
) -> tuple[float, Any]:
    """Play, and return the regret and the last state; ``seen`` is told of every block before it is learned from."""
    state, k, regret = agent.begin(mdp.known), 0, 0.0
    while k < episodes:
        plan = agent.plan(mdp.known, state, np.random.default_rng([seed, k, 0]))
        n = min(plan.episodes, episodes - k)
        flow = simulate(mdp, plan.policy, n, np.random.default_rng([seed, k, 1]))
        begins = flow.step == 0
        starts = np.bincount(flow.state[begins], flow.count[begins], mdp.states)
        regret += float(starts @ (mdp.optimal_values[0] - mdp.evaluate(plan.policy)[0]))
        if seen is not None:
            seen(plan, state, flow)
        agent.learn(mdp.known, state, plan, flow)
        k += n
    return regret, state


def small_mixture(
    seed: int = 0, on_transitions: bool = False
) -> tuple[FiniteMDP, FeatureMap, Floats]:
    """Return a mixture of three random kernels with partly impossible outcomes, its features and theta*."""
    draw, theta = np.random.default_rng(seed), np.array([0.6, 0.3, 0.1])
    kernels = draw.dirichlet(np.ones(4), size=(3, 4, 2))
    kernels[:, :2, :, 3] = 0.0  # nobody goes from the first two states to the last
    kernels /= kernels.sum(axis=3, keepdims=True)
    reward = draw.random((4, 2, 4) if on_transitions else (4, 2))
    mdp = FiniteMDP(transition=np.tensordot(theta, kernels, 1), reward=reward, horizon=4)
    return mdp, FeatureMap(list(kernels)), theta


def some_flow(mdp: FiniteMDP, episodes: int = 40, seed: int = 0) -> Flow:
    """Return what uniformly random actions count."""
    policy = np.full((mdp.horizon, mdp.states, mdp.actions), 1.0 / mdp.actions)
    return simulate(mdp, policy, episodes, np.random.default_rng(seed))


def some_values(mdp: FiniteMDP, seed: int = 0) -> Floats:
    values = np.random.default_rng(seed).random((mdp.horizon + 1, mdp.states)) * mdp.horizon
    values[-1] = 0.0
    return values


# Rows and sums ------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_transitions", [False, True])
@pytest.mark.parametrize("tabular", [False, True])
def test_rows_have_range_one_and_predict_the_mean(on_transitions: bool, tabular: bool) -> None:
    mdp, features, theta = small_mixture(on_transitions=on_transitions)
    truth = theta[None]
    if tabular:
        features = FeatureMap.tabular(states=4, actions=2, support=mdp.kernel() > 0.0)
        truth = np.zeros((features.groups, features.width))
        outcomes = features.outcomes
        truth.ravel()[features.flat_index] = mdp.kernel().reshape(8, 4)[
            outcomes.pair, outcomes.next_state
        ]
    values = some_values(mdp)[1]
    x, middle, spread = value.rows(features, mdp.known, values)
    outcomes, kernel = features.attach(mdp.known), mdp.kernel().reshape(8, 4)
    for pair in range(8):
        at = slice(outcomes.start[pair], outcomes.start[pair + 1])
        target = outcomes.bonus[at] + values[outcomes.next_state[at]]
        y = (target - middle[pair]) / spread[pair]
        assert y.min() == pytest.approx(-0.5)
        assert y.max() == pytest.approx(0.5)
        assert x[pair] @ truth[features.group[pair]] == pytest.approx(
            kernel[pair, outcomes.next_state[at]] @ y
        )
    flat = value.rows(features, mdp.known, np.ones(4))
    assert on_transitions or not flat.x.any()


@pytest.mark.parametrize("on_transitions", [False, True])
def test_sums_are_those_of_an_explicit_regression(on_transitions: bool) -> None:
    mdp, features, _ = small_mixture(on_transitions=on_transitions)
    values, flow, known = some_values(mdp), some_flow(mdp), mdp.known
    statistics = value.begin(features)
    value.add(statistics, features, known, values, flow)
    design, targets = [], []
    for h, s, a, following, reward, n in zip(
        flow.step, flow.state, flow.action, flow.next_state, flow.reward, flow.count, strict=True
    ):
        x, middle, spread = (part[s * 2 + a] for part in value.rows(features, known, values[h + 1]))
        bonus = reward - known.base_reward[s, a] if on_transitions else 0.0
        y = (values[h + 1, following] + bonus - middle) / spread if spread > 0.0 else 0.0
        assert abs(y) <= 0.5 + 1e-9
        design += [x] * n
        targets += [y] * n
    X, Y = np.array(design), np.array(targets)
    assert np.allclose(statistics["gram"][0, 0], X.T @ X)
    assert np.allclose(statistics["xy"][0, 0], X.T @ Y)
    assert statistics["yy"][0] == pytest.approx(Y @ Y)
    several = np.random.default_rng(1).random((5, 1, 3))
    expected = [((Y - X @ each[0]) ** 2).sum() - Y @ Y for each in several]
    assert np.allclose(value.losses(several, statistics["gram"][0], statistics["xy"][0]), expected)
    found = value.ridge(statistics["gram"], statistics["xy"], 0.7)
    sigma = X.T @ X + 0.7 * np.eye(3)
    assert np.allclose(found.theta[0, 0], np.linalg.solve(sigma, X.T @ Y))
    assert np.allclose(found.root[0, 0] @ found.root[0, 0].T, np.linalg.inv(sigma))
    assert found.logdet[0, 0] == pytest.approx(np.linalg.slogdet(sigma / 0.7)[1])


def test_the_sharp_set_is_its_inequality() -> None:
    score, prior = np.array([3.0, 0.5, math.inf, 9.0]), np.array([0.1, 0.2, 0.3, 0.4])
    right = -math.log(sum(w * math.exp(-x) for w, x in zip(prior, score, strict=True))) + math.log(
        1.0 / 0.05
    )
    assert value.threshold(score, np.log(prior), 0.05) == pytest.approx(right)


# Planning -----------------------------------------------------------------------------------------


def explicit_plan(
    agent: UCRLVTRLin, features: FeatureMap, known: Known, rows: list[Any]
) -> tuple[Floats, Floats]:
    """Plan by the formulas, coordinate by coordinate, for ``rows`` (step, x, y) in d dimensions."""
    H, S, A, d, lam = known.horizon, known.states, known.actions, features.dimension, agent.lam
    steps, outcomes, phi = (
        H if agent.kernel == "per_step" else 1,
        features.attach(known),
        np.asarray(features.matrix),
    )
    values, policy = np.zeros((H + 1, S)), np.zeros((H, S))
    for h in reversed(range(H)):
        own = [(x, y) for step, x, y in rows if steps == 1 or step == h]
        sigma = lam * np.eye(d) + sum((np.outer(x, x) for x, _ in own), np.zeros((d, d)))
        theta = np.linalg.solve(sigma, sum((y * x for x, y in own), np.zeros(d)))
        beta = 0.25 * (np.linalg.slogdet(sigma / lam)[1] + 2.0 * math.log(steps / agent.delta))
        width = agent.scale * math.sqrt(beta + lam * agent.norm_bound**2)
        q = np.zeros((S, A))
        for s, a in itertools.product(range(S), range(A)):
            listed = range(outcomes.start[s * A + a], outcomes.start[s * A + a + 1])
            w = np.array(
                [outcomes.bonus[o] + values[h + 1, outcomes.next_state[o]] for o in listed]
            )
            middle, spread = (w.min() + w.max()) / 2.0, w.max() - w.min()
            x = (w - middle) @ phi[list(listed)] / spread if spread > 0.0 else np.zeros(d)
            guess = x @ theta + width * math.sqrt(x @ np.linalg.solve(sigma, x))
            q[s, a] = known.base_reward[s, a] + middle + spread * min(max(guess, -0.5), 0.5)
        policy[h], values[h] = q.argmax(axis=1), np.clip(q.max(axis=1), 0.0, H - h)
    return values, policy


@pytest.mark.parametrize("kernel", ["stationary", "per_step"])
@pytest.mark.parametrize("on_transitions", [False, True])
def test_plans_follow_the_formulas(kernel: Any, on_transitions: bool) -> None:
    mdp, features, _ = small_mixture(on_transitions=on_transitions)
    agent = UCRLVTRLin(features=features, norm_bound=1.0, scale=0.3, replan=0.0, kernel=kernel)
    state, known = agent.begin(mdp.known), mdp.known
    rows: list[Any] = []
    for k in range(6):
        plan = agent.plan(known, state, np.random.default_rng(0))
        assert plan.episodes == 1
        values, policy = explicit_plan(agent, features, known, rows)
        assert np.allclose(np.asarray(plan.values), values)
        assert (plan.policy == policy).all()
        flow = some_flow(mdp, 3, seed=k)  # somebody else acts
        agent.learn(known, state, plan, flow)
        counted = value.counted(features, known, np.asarray(plan.values), flow)
        for h, x, n, total in zip(
            counted.step, counted.x, counted.count, counted.total, strict=True
        ):
            rows += [(h, x, total / n)] * int(n)


def test_one_kernel_per_step_is_as_many_regressions() -> None:
    mdp, features, _ = small_mixture()
    flow, values = some_flow(mdp), some_values(mdp)
    together = value.begin(features, mdp.horizon)
    value.add(together, features, mdp.known, values, flow)
    for h in range(mdp.horizon):
        at, alone = flow.step == h, value.begin(features)
        names = ("step", "state", "action", "next_state", "reward", "count")
        alone_flow = replace(flow, **{name: getattr(flow, name)[at] for name in names})
        value.add(alone, features, mdp.known, values, alone_flow)
        for name in ("gram", "xy", "yy"):
            assert np.allclose(together[name][h], alone[name][0])


def test_groups_equal_the_same_map_written_densely() -> None:
    mdp, _, _ = small_mixture()
    support = mdp.kernel() > 0.0
    groups = FeatureMap.tabular(states=4, actions=2, support=support)
    cells = np.argwhere(support)
    phi = np.zeros((4, 2, 4, len(cells)))
    for j, (s, a, following) in enumerate(cells):
        phi[s, a, following, j] = 1.0
    dense = FeatureMap(phi)
    csr = FeatureMap.of_matrix(dense.outcomes, sp.csr_array(dense.matrix), 4)
    learners = [
        UCRLVTRLin(features=each, norm_bound=2.0, scale=0.2) for each in (groups, dense, csr)
    ]
    states = [learner.begin(mdp.known) for learner in learners]
    for k in range(8):
        plans = [
            x.plan(mdp.known, state, np.random.default_rng(0))
            for x, state in zip(learners, states, strict=True)
        ]
        flow = some_flow(mdp, 5, seed=k)
        for learner, state, plan in zip(learners, states, plans, strict=True):
            assert np.allclose(np.asarray(plan.values), np.asarray(plans[0].values))
            assert plan.carry.longest == pytest.approx(plans[0].carry.longest)
            assert np.allclose(plan.carry.logdet, plans[0].carry.logdet)
            learner.learn(mdp.known, state, plan, flow)


@pytest.mark.parametrize("kernel", ["stationary", "per_step"])
def test_a_plan_that_is_not_hurried_never_lets_the_determinant_grow_too_much(kernel: Any) -> None:
    mdp, features, _ = small_mixture()
    agent, steps = (
        UCRLVTRLin(features=features, norm_bound=1.0, kernel=kernel),
        4 if kernel == "per_step" else 1,
    )
    before, long = None, 0
    state = agent.begin(mdp.known)
    for k in range(150):
        state["pace"] = Pace(np.zeros(steps))
        plan = agent.plan(mdp.known, state, np.random.default_rng(0))
        logdet = plan.carry.logdet
        if before is not None:
            assert (logdet - before).max() <= math.log(1.2) + 1e-9
        before = logdet if plan.episodes > 1 else None
        long += plan.episodes > 1
        agent.learn(
            mdp.known,
            state,
            plan,
            simulate(mdp, plan.policy, plan.episodes, np.random.default_rng(k)),
        )
    assert long > 50


def test_plans_grow_with_the_logarithm_of_episodes() -> None:
    mdp, features, _ = small_mixture()
    agent, made = UCRLVTRLin(features=features, norm_bound=1.0, replan=1.0), []
    _, state = play(agent, mdp, 10**12, seen=lambda plan, *_: made.append(plan.episodes))
    logdet = value.ridge(state["gram"], state["xy"], 1.0).logdet.sum()
    assert sum(made) >= 10**12
    assert len(made) <= 20 + 2.0 * logdet / math.log(2.0)


def test_ellipsoids_hold_the_truth_and_plans_are_optimistic() -> None:
    delta, runs, missed, control, pessimistic = 0.5, 30, 0, 0, 0
    for seed in range(runs):
        mdp, features, theta = small_mixture(seed)
        agent = UCRLVTRLin(
            features=features, norm_bound=float(np.linalg.norm(theta)), delta=delta, replan=1.0
        )
        worst = [0.0]

        def look(
            plan: Plan,
            state: dict[str, Any],
            flow: Flow,
            theta: Any = theta,
            mdp: Any = mdp,
            worst: Any = worst,
        ) -> None:
            nonlocal pessimistic
            found = value.ridge(state["gram"][0, 0], state["xy"][0, 0], 1.0)
            sigma, away = state["gram"][0, 0] + np.eye(3), theta - found.theta
            beta = value.squared_radius(found.logdet, delta, 1.0, float(np.linalg.norm(theta)))
            worst[0] = max(worst[0], float(away @ sigma @ away) / float(beta))
            inside = away @ sigma @ away <= beta
            pessimistic += bool(inside and (plan.values[0] < mdp.optimal_values[0] - 1e-9).any())  # type: ignore[index]

        play(agent, mdp, 300, seed, look)
        missed, control = missed + (worst[0] > 1.0), control + (worst[0] > 0.05**2)
    assert pessimistic == 0
    assert binom.sf(missed - 1, runs, delta) > 1e-3
    assert (
        binom.sf(control - 1, runs, delta) < 1e-6
    )  # an ellipsoid of a twentieth of the radius is not valid


def test_rewards_on_transitions_are_learned_from() -> None:
    mdp, features, _ = small_mixture(on_transitions=True)
    agent = UCRLVTRLin(features=features, norm_bound=1.0)
    short, long = (play(agent, mdp, episodes)[0] for episodes in (2_000, 200_000))
    assert long <= 10.0 * short  # a hundred times the episodes: no more than the square root of it
    with pytest.raises(ParameterError, match="wrap the agent"):
        agent.begin(Known.of_sizes(states=4, actions=2, horizon=4))


def test_greedy_and_the_paper_agree_when_data_are_plenty() -> None:
    mdp, features, _ = small_mixture()
    papers = ucrl_vtr_lin.UCRLVTRLin(features=features, norm_bound=1.0, paper_constant=1e-12)
    plans = []
    for agent in (Greedy(features=features), papers):
        state = agent.begin(mdp.known)
        agent.learn(mdp.known, state, _plan_for(agent, mdp, state), some_flow(mdp, 10**8))
        plans.append(agent.plan(mdp.known, state, np.random.default_rng(0)))
    for plan in plans:
        assert np.allclose(np.asarray(plan.values), mdp.optimal_values, atol=1e-2)
    assert (plans[0].policy == plans[1].policy).all()


def _plan_for(agent: Any, mdp: FiniteMDP, state: Any) -> Plan:
    """Return the agent's plan with other values, that show every direction."""
    own: Plan = agent.plan(mdp.known, state, np.random.default_rng(0))
    return replace(own, values=some_values(mdp))


# Selection ----------------------------------------------------------------------------------------


def test_penalised_losses_and_the_search_against_all_sets() -> None:
    d, exact = 7, 0
    sets = [list(each) for m in range(1, d + 1) for each in itertools.combinations(range(d), m)]
    for seed in range(20):
        draw = np.random.default_rng(seed)
        x = draw.normal(size=(60, d)) @ draw.normal(size=(d, d)) * 0.3
        y = 0.4 * x[:, 1] - 0.3 * x[:, 4] + 0.3 * draw.normal(size=60)
        sigma, xy = x.T @ x + 0.5 * np.eye(d), x.T @ y
        losses = [penalised_loss(sigma, xy, 0.5, chosen) for chosen in sets]
        chosen = sharp_support(sigma, xy, 0.5, last=[0])
        mine = penalised_loss(sigma, xy, 0.5, chosen)
        exact += mine <= min(losses) + 1e-9
        assert mine <= losses[-1] + 1e-9  # never worse than all coordinates
    at = [1, 4]
    theta = np.linalg.solve(x[:, at].T @ x[:, at] + 0.5 * np.eye(2), x[:, at].T @ y)
    ridge = ((y - x[:, at] @ theta) ** 2).sum() + 0.5 * theta @ theta - y @ y
    logdet = np.linalg.slogdet(np.eye(2) + x[:, at].T @ x[:, at] / 0.5)[1]
    price = math.log((d + 1) * math.comb(d, 2))
    assert penalised_loss(sigma, xy, 0.5, at) == pytest.approx(
        ridge + 0.25 * (logdet + 2.0 * price)
    )
    assert exact >= 19


@pytest.mark.parametrize("degenerate", [False, True])
def test_the_largest_norm_against_the_boundary(degenerate: bool) -> None:
    draw = np.random.default_rng(0)
    for _ in range(5):
        root = draw.normal(size=(2, 2))
        sigma, center, beta = (
            root @ root.T + 0.1 * np.eye(2),
            draw.normal(size=2),
            float(draw.random() * 3.0),
        )
        if degenerate:  # no part along the longest axis
            center = np.linalg.eigh(sigma)[1][:, 1] * 0.01
        angle = np.linspace(0.0, 2.0 * math.pi, 200_001)
        circle = math.sqrt(beta) * np.stack([np.cos(angle), np.sin(angle)])
        boundary = center[:, None] + np.linalg.solve(np.linalg.cholesky(sigma).T, circle)
        expected = np.linalg.norm(boundary, axis=0).max()
        eigenvalues, axes = np.linalg.eigh(sigma)
        assert value.largest_norm(eigenvalues, axes.T @ center, beta) == pytest.approx(
            expected, rel=1e-6
        )
        assert arl_lin_norm.largest_norm(center, sigma, beta) == pytest.approx(expected, rel=1e-6)
    assert value.largest_norm(np.array([1.0, 4.0]), np.zeros(2), 9.0) == pytest.approx(3.0)
    assert value.largest_norm(np.ones(2), np.array([3.0, 4.0]), 0.0) == pytest.approx(5.0)


def reference() -> tuple[SparseMixture, FeatureMap]:
    problem = SparseMixture(states=6, actions=3, horizon=4, dimension=8, nonzero=3, seed=1)
    return problem, FeatureMap(problem.phi)


def test_the_support_is_found_and_pays() -> None:
    problem, features = reference()
    support = np.flatnonzero(problem.theta).tolist()
    selector = ARLLinDim(features=features, norm_bound=1.3)
    regret, state = play(selector, problem.mdp, 10_000)
    assert {*support[1:]} <= {*state["active"]} <= {*support}
    everything = play(UCRLVTRLin(features=features, norm_bound=1.3), problem.mdp, 10_000)[0]
    oracle = play(
        UCRLVTRLin(features=features.restrict(support), norm_bound=1.3), problem.mdp, 10_000
    )[0]
    assert oracle < regret < 0.7 * everything


def test_a_support_that_is_wrong_is_left_again() -> None:
    problem, features = reference()
    support, agent = (
        np.flatnonzero(problem.theta).tolist(),
        ARLLinDim(features=features, norm_bound=1.3),
    )
    _, state = play(agent, problem.mdp, 3_000)
    state["active"] = [j for j in range(8) if j not in support]
    while state["label"] == "exploitation" or state["left"] > 0:
        plan = agent.plan(problem.mdp.known, state, np.random.default_rng(0))
        draw = np.random.default_rng(state["left"])
        epoch = state["epoch"]
        agent.learn(
            problem.mdp.known, state, plan, simulate(problem.mdp, plan.policy, plan.episodes, draw)
        )
        if state["epoch"] > epoch:
            break
    assert {*support[1:]} <= {*state["active"]}


@pytest.mark.parametrize("form", [ARLLin, ARLLinNorm])
def test_norm_bounds_fall_and_stay_valid(form: type[ARLLin]) -> None:
    problem, features = reference()
    norm, bounds, outside = float(np.linalg.norm(problem.theta)), [], []
    agent = form(features=features, norm_bound=100.0)

    def look(plan: Plan, state: dict[str, Any], flow: Flow) -> None:
        bounds.append(state["carried"])
        chosen = list(range(8))
        spectrum = value.Spectrum.of(state["gram"][0, 0], state["xy"][0, 0])
        lam, beta = agent.smallest_ellipsoid(spectrum, state["carried"])
        away = problem.theta - spectrum.ellipsoid(lam).theta
        outside.append(
            away @ (state["gram"][0, 0][np.ix_(chosen, chosen)] + lam * np.eye(8)) @ away > beta
        )

    play(agent, problem.mdp, 20_000, seen=look)
    assert not any(outside)
    assert min(bounds) >= norm
    assert (np.diff(bounds) <= 0.0).all()
    assert bounds[-1] < 10.0  # from 100


def test_combined_radii_are_differences_of_losses() -> None:
    mdp, features, _ = small_mixture()
    agent = ARLLinNorm(features=features, norm_bound=8.0)
    state = agent.begin(mdp.known)
    value.add(state, features, mdp.known, some_values(mdp), some_flow(mdp))
    gram, xy = state["gram"][0, 0], state["xy"][0, 0]
    lams, level = agent.grid(3)
    betas = agent.squared_radii(value.Spectrum.of(gram, xy), lams, level, 8.0)
    for (i, lam), (j, other) in itertools.product(enumerate(lams), repeat=2):
        best, logdet = {}, np.linalg.slogdet(np.eye(3) + gram / other)[1]
        for each in (lam, other):
            theta = np.linalg.solve(gram + each * np.eye(3), xy)
            best[each] = (
                value.losses(theta[None, None], gram[None], xy[None])[0] + each * theta @ theta
            )
        expected = best[other] - best[lam] + 0.25 * (logdet + 2.0 * level) + lam * 64.0
        assert betas[i, j] == pytest.approx(expected)


def test_wrong_parameters_of_selectors_are_refused() -> None:
    _, features = reference()
    with pytest.raises(ParameterError, match="norm_bound"):
        ARLLinNorm(features=features, norm_bound=0.1)
    with pytest.raises(ParameterError, match="groups"):
        ARLLinDim(features=FeatureMap.tabular(states=3, actions=2), norm_bound=2.0)
    with pytest.raises(ParameterError, match="growth"):
        ARLLin(features=features, norm_bound=2.0, growth=0.5)


# The paper ----------------------------------------------------------------------------------------


def test_the_papers_epochs_supports_and_bounds() -> None:
    mdp, features, _ = small_mixture()
    lengths: dict[Any, int] = {}

    def look(plan: Plan, state: dict[str, Any], flow: Flow) -> None:
        facts, diagnostics = plan.facts, plan.diagnostics
        key = facts["epoch"], facts.get("label")
        lengths[key] = lengths.get(key, 0) + flow.episodes
        if "chosen" in facts:
            above = [
                j
                for j, each in enumerate(diagnostics["statistics"])
                if each >= diagnostics["threshold"]
            ]
            assert facts["chosen"] == (above or [0, 1, 2])

    selector = arl_lin_dim.ARLLinDim(
        features=features, norm_bound=1.0, initial_episodes=1, growth=4, estimation_growth=2
    )
    play(selector, mdp, 30, seen=look)
    expected = {
        (0, "exploitation"): 1,
        (0, "estimation"): 1,
        (1, "exploitation"): 4,
        (1, "estimation"): 2,
    }
    assert lengths == expected | {
        (2, "exploitation"): 16,
        (2, "estimation"): 4,
        (3, "exploitation"): 2,
    }
    for estimate in ("maximum", "sum"):
        lengths.clear()
        norm = arl_lin_norm.ARLLinNorm(
            features=features, norm_bound=9.0, initial_episodes=4, norm_estimate=estimate
        )
        _, state = play(norm, mdp, 12, seen=look)
        assert lengths == {(1, None): 4, (2, None): 8}
        assert state["norm_bound"] > 9.0  # the letter lets it grow


@pytest.mark.parametrize("radius", ["paper", "ayoub"])
def test_the_papers_learner_is_optimistic(radius: str) -> None:
    mdp, features, _ = small_mixture()
    agent = ucrl_vtr_lin.UCRLVTRLin(features=features, norm_bound=1.0, radius=radius)

    def look(plan: Plan, state: dict[str, Any], flow: Flow) -> None:
        assert plan.values is not None
        assert (plan.values[0] >= mdp.optimal_values[0]).all()
        assert plan.episodes == 1

    play(agent, mdp, 40, seen=look)
    tabular = ucrl_vtr_lin.UCRLVTRLin(
        features=FeatureMap.tabular(states=4, actions=2), norm_bound=3.0, radius=radius
    )
    play(tabular, mdp, 5, seen=look)


# Likelihood ---------------------------------------------------------------------------------------


def test_compatible_sets_hold_the_truth_and_become_small() -> None:
    draw, missed, runs, delta = np.random.default_rng(0), 0, 10, 0.3
    for seed in range(runs):
        kernels = draw.dirichlet(np.ones(3), size=(4, 3, 2))
        mdp = FiniteMDP(
            transition=0.6 * kernels[1] + 0.4 * kernels[3], reward=np.eye(3)[:, :2], horizon=5
        )
        agent, behind = OccamMixture(features=FeatureMap(list(kernels)), delta=delta), [-math.inf]

        def look(
            plan: Plan,
            state: Any,
            flow: Flow,
            agent: Any = agent,
            mdp: Any = mdp,
            behind: Any = behind,
        ) -> None:
            outcomes, columns = agent.setting(mdp.known)
            data = likelihood.seen_by(state["count"], outcomes, columns[[1, 3]])
            truth = likelihood.hull_likelihood(data, np.array([0.6, 0.4]))[0]
            behind[0] = max(behind[0], agent.least(agent.terms(mdp.known, state)) - truth)

        play(agent, mdp, 40, seed, look)
        missed += behind[0] > 0.0
    assert binom.sf(missed - 1, runs, delta) > 1e-3
    assert [one.members for one in supports(run(agent, mdp, episodes=3_000)).smallest] == [
        ("2", "4")
    ]
    outside = FiniteMDP(
        transition=draw.dirichlet(np.ones(3), size=(3, 2)), reward=np.eye(3)[:, :2], horizon=5
    )
    _, state = play(agent, outside, 1_000)
    assert agent.plan(outside.known, state, draw).facts == {"chosen": [], "misspecified": True}
    with pytest.raises(FeatureError, match="kernel in every coordinate"):
        OccamMixture(features=reference()[1])


def test_the_set_of_all_plays_on_when_it_predicts_worse_than_counts() -> None:
    kernels = np.random.default_rng(0).dirichlet(np.full(2, 3.0), size=(100, 2, 2))
    kernels[:2] = np.array([[0.97, 0.03], [0.9, 0.1]])[:, None, None]
    mdp = FiniteMDP(transition=kernels[:2].mean(axis=0), reward=np.eye(2), horizon=5)
    _, state = play(OccamMixture(features=FeatureMap(list(kernels))), mdp, 20_000)
    assert np.flatnonzero(np.isfinite(state["score"])).tolist() == [100]


def test_signed_features_by_likelihood() -> None:
    problem, features = reference()
    agent = OccamLin(features=features)
    regret, state = play(agent, problem.mdp, 20_000)
    support = np.flatnonzero(problem.theta)[1:]
    assert [j + 1 for j in np.flatnonzero(state["active"])] == support.tolist()
    assert (
        regret < 0.2 * play(UCRLVTRLin(features=features, norm_bound=1.3), problem.mdp, 20_000)[0]
    )

    base, directions = agent.law(problem.mdp.known)
    counts = state["count"] + 0.5 * base
    eta, information, linear = expand(counts, base, directions, np.zeros(7))
    p = base + directions @ eta
    assert np.allclose(directions.T @ (counts / p), eta, atol=1e-3)  # the gradient vanishes
    assert np.allclose(information, (directions * (counts / p**2)[:, None]).T @ directions)

    def log_weight(inside: Any) -> float:
        at = np.flatnonzero(inside)
        precision = information[np.ix_(at, at)] + np.eye(at.size)
        fit = (
            0.5 * linear[at] @ np.linalg.solve(precision, linear[at])
            - 0.5 * np.linalg.slogdet(precision)[1]
        )
        return float(fit - math.log(math.comb(7, at.size)))

    inside = np.array([True, False, True, False, False, True, False])
    odds = agent.flip_odds({"information": information, "linear": linear}, inside)
    for j in range(7):
        flipped = inside.copy()
        flipped[j] ^= True
        assert odds[j] == pytest.approx(
            log_weight(flipped) - log_weight(inside), rel=1e-6, abs=1e-6
        )


# Rivals and the protocol --------------------------------------------------------------------------


def test_posterior_draws_have_the_posterior_law() -> None:
    whole, features, theta = small_mixture()
    one = [
        features.kernel(unit)[:, :1] for unit in np.eye(3)
    ]  # with one action values are affine in theta
    mdp = FiniteMDP(
        transition=np.tensordot(theta, one, 1), reward=whole.known.base_reward[:, :1], horizon=2
    )
    features = FeatureMap(one)
    agent = LinPSRL(features=features, width=0.3)
    state = agent.begin(mdp.known)
    agent.learn(mdp.known, state, _plan_for(agent, mdp, state), some_flow(mdp, 400))
    plans = [agent.plan(mdp.known, state, np.random.default_rng(k)) for k in range(400)]
    drawn = np.array([plan.values[0, 0] for plan in plans])  # type: ignore[index]
    x, middle, spread = (
        part[0] for part in value.rows(features, mdp.known, mdp.known.base_reward[:, 0])
    )
    sigma = state["gram"][0, 0] + np.eye(3)
    mean = (
        middle
        + spread * x @ np.linalg.solve(sigma, state["xy"][0, 0])
        + mdp.known.base_reward[0, 0]
    )
    scatter = spread * 0.3 * math.sqrt(x @ np.linalg.solve(sigma, x))
    standard = (drawn - mean) / scatter
    assert abs(standard.mean()) < 4.0 / math.sqrt(400)
    assert chi2.sf((standard**2).sum(), 400) > 1e-3
    assert chi2.cdf((standard**2).sum(), 400) > 1e-3
    sure = LinPSRL(features=features, width=0.0).plan(mdp.known, state, np.random.default_rng(0))
    greedy = Greedy(features=features)
    fresh = greedy.begin(mdp.known) | {name: state[name] for name in ("gram", "xy", "yy")}
    certain = greedy.plan(mdp.known, fresh, np.random.default_rng(0))
    assert np.allclose(np.asarray(sure.values), np.asarray(certain.values), atol=1e-6)


def test_variance_weights_by_hand() -> None:
    mdp, features, _ = small_mixture()
    agent, known = UCRLVTRPlus(features=features, norm_bound=1.0, scale=0.01), mdp.known
    _, state = play(agent, mdp, 5)
    before, phi, H = copy.deepcopy(state), np.asarray(features.matrix), 4.0
    plan, flow = agent.plan(known, state, np.random.default_rng(0)), some_flow(mdp, 1)
    agent.learn(known, state, plan, flow)
    sigma, tilde = (before["sigma"][m, 0] + np.eye(3) for m in (0, 1))
    hat, square = (
        np.linalg.solve(sigma, before["xy"][0, 0]),
        np.linalg.solve(tilde, before["xy"][1, 0]),
    )
    _, check, squares = agent.radii(4, 6)
    expected = before["sigma"][0, 0].copy()
    for h, s, a in zip(flow.step, flow.state, flow.action, strict=True):
        at = slice(features.outcomes.start[s * 2 + a], features.outcomes.start[s * 2 + a + 1])
        w = plan.values[h + 1][features.outcomes.next_state[at]]  # type: ignore[index]
        x, z = w @ phi[at], w**2 @ phi[at]
        variance = min(max(z @ square, 0.0), H**2) - min(max(x @ hat, 0.0), H) ** 2
        error = min(H**2, 2.0 * H * check * math.sqrt(x @ np.linalg.solve(sigma, x)))
        error += min(H**2, squares * math.sqrt(z @ np.linalg.solve(tilde, z)))
        expected += np.outer(x, x) / max(H**2 / 3.0, variance + error)
    assert np.allclose(state["sigma"][0, 0], expected)


@pytest.mark.parametrize(
    "make", [UCRLVTRLin, ARLLin, ARLLinDim, ARLLinNorm, LinPSRL, UCRLVTRPlus, Greedy, OccamMixture]
)
def test_plans_write_nothing_and_depend_on_nothing_else(make: Any) -> None:
    mdp, features, _ = small_mixture(on_transitions=True)
    bound = {} if make in (LinPSRL, Greedy, OccamMixture) else {"norm_bound": 3.0}
    agent = make(features=features, **bound)
    _, state = play(agent, mdp, 30)
    before = copy.deepcopy(state)
    plans = [agent.plan(mdp.known, state, np.random.default_rng(7)) for _ in range(2)]
    assert (plans[0].policy == plans[1].policy).all()
    assert plans[0].episodes == plans[1].episodes
    for name, part in before.items():
        np.testing.assert_equal(state[name], part)


def test_sums_along_paths_are_those_of_all_paths() -> None:
    draw = np.random.default_rng(3)
    P = draw.dirichlet(np.ones(3), size=(3, 2))
    P[0, 0] = [0.0, 0.5, 0.5]
    mdp = FiniteMDP(transition=P, reward=np.zeros((3, 2)), horizon=3, initial_state=0)
    features = FeatureMap(
        P[..., None]
    )  # one feature: the estimate 2.0 is the kernel, once normalised
    policy, norms = draw.integers(2, size=(3, 3)), draw.random((3, 3))
    sums, chances = [], []
    for path in itertools.product(range(3), repeat=3):
        chance, s, total = 1.0, 0, 0.0
        for h, after in enumerate(path):
            total += norms[h, s]
            chance, s = chance * P[s, policy[h, s], after], after
        sums.append(total)
        chances.append(chance)
    worst, mean = path_sums(features, mdp.known, np.array([[2.0]]), policy, norms)
    assert worst == pytest.approx(
        max(total for total, chance in zip(sums, chances, strict=True) if chance > 0.0)
    )
    assert mean == pytest.approx(float(np.dot(sums, chances)))
