"""Rival learners against loops of their own pseudo-code, and the errors that public code makes with them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl import registry, seeding
from occamrl._core import rng
from occamrl.errors import InvalidInput
from occamrl.learners import ucbvi
from occamrl.learners.lin_psrl import LinPSRL, best_actions
from occamrl.learners.q_learning import QLearningUCB
from occamrl.learners.rlsvi import RLSVI
from occamrl.learners.ucbvi import UCBVI
from occamrl.learners.ucrl_vtr_plus import UCRLVTRPlus
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Episode, Floats, Ints
from occamrl.running.phases import CompiledPlayer
from tests.cases import drawn, environment_uniforms, from_python, stack

PROBLEMS = {
    "rewards of (s, a)": stack(0, initial_state=[0.2, 0.5, 0.3]).mdp,
    "rewards on transitions": FiniteMDP(
        transition=stack(1).kernels[0], reward=np.random.default_rng(1).random((3, 2, 3)), horizon=4
    ),
}
SEED = 3
Step = tuple[int, int, float, int]  # s, a, reward, s'


def bonuses(mdp: FiniteMDP) -> Floats:
    """Return bonus[s, a, s'], the part of the reward that depends on the outcome."""
    table, known = np.zeros((mdp.states, mdp.actions, mdp.states)), mdp.known.transition_rewards
    if known is None:
        return table
    for sa in range(mdp.states * mdp.actions):
        own = slice(known.start[sa], known.start[sa + 1])
        table[divmod(sa, mdp.actions)][known.next_state[own]] = known.bonus[own]
    return table


def follow(mdp: FiniteMDP, policy: Ints, uniforms: Floats) -> list[Step]:
    """Return the episode that the simulator draws with these numbers."""
    cumulative = mdp.truth.initial_cumulative[0]
    s, steps = int(np.searchsorted(cumulative, uniforms[0], side="right")), []
    for h in range(mdp.horizon):
        a = int(policy[h, s])
        after, reward = drawn(mdp, s, a, uniforms[h + 1])
        steps.append((s, a, reward, after))
        s = after
    return steps


def episodes(learner: Any, mdp: FiniteMDP, count: int) -> Iterator[tuple[Any, list[Step]]]:
    """Yield the state after each episode of a run, with the episode."""
    uniforms, result = environment_uniforms(SEED, count, mdp.horizon), None
    for k in range(count):
        seeded: dict[str, Any] = {"seed": SEED} if result is None else {"continue_from": result}
        result = orl.run(learner, mdp, episodes=1, progress=False, **seeded)
        yield result.state, follow(mdp, result.state.policy, uniforms[k])


def is_greedy(policy: Ints, q: Floats) -> bool:
    """Say whether the actions have the largest values, given Q [S, A]."""
    return bool((np.take_along_axis(q, policy[:, None], axis=1)[:, 0] >= q.max(axis=1) - 1e-9).all())


# UCBVI ----------------------------------------------------------------------------------------------------------------

FLAWS = ["root twice", "no root", "mean for mean of squares", "stale bonus"]


class Azar:
    """The tables of UCBVI's pseudo-code, with one of the errors of public code if one is named."""

    def __init__(self, learner: UCBVI, mdp: FiniteMDP, flaw: str = "") -> None:
        self.learner, self.mdp, self.flaw = learner, mdp, flaw
        S, A, H = mdp.states, mdp.actions, mdp.horizon
        self.n, self.visits, self.extra = np.zeros((S, A, S)), np.zeros((H + 2, S)), bonuses(mdp)
        self.q, self.stale = np.full((H, S, A), float(H)), np.zeros((H, S, A))
        self.before: set[tuple[int, int, int]] = set()

    def bonus(self, p: Floats, w: Floats, total: float, later: Floats) -> float:
        S, A, H = self.mdp.states, self.mdp.actions, self.mdp.horizon
        L = math.log(5 * S * A * self.learner.episodes * H / self.learner.delta)
        if self.learner.bonus == "hoeffding":
            return 7 * H * L / {"root twice": total, "no root": 1.0}.get(self.flaw, math.sqrt(total))
        spread = (p * w**2).sum() - (p * w).sum() ** (1 if self.flaw == "mean for mean of squares" else 2)
        late = [H**2 if x == 0 else min(100**2 * H**3 * S**2 * A * L**2 / x, H**2) for x in later]
        b = math.sqrt(8 * L * max(spread, 0.0) / total) + 14 * H * L / (3 * total)
        return b + math.sqrt(8 * sum(p * late) / total)

    def plan(self) -> Floats:
        S, A, H = self.mdp.states, self.mdp.actions, self.mdp.horizon
        values = np.zeros((H + 1, S))
        for h in reversed(range(H)):
            for s, a in itertools.product(range(S), range(A)):
                total = self.n[s, a].sum()
                if total > 0:
                    p, w = self.n[s, a] / total, self.extra[s, a] + values[h + 1]
                    if self.flaw != "stale bonus" or (h, s, a) in self.before or self.stale[h, s, a] == 0.0:
                        self.stale[h, s, a] = self.bonus(p, w, total, self.visits[h + 1])
                    mean = self.mdp.known.base_reward[s, a] + p @ w
                    self.q[h, s, a] = min(self.q[h, s, a], H, mean + self.learner.scale * self.stale[h, s, a])
            values[h] = self.q[h].max(axis=1)
        return values

    def count(self, path: list[Step]) -> None:
        self.before = {(h, s, a) for h, (s, a, _, _) in enumerate(path)}
        for h, (s, a, _, after) in enumerate(path):
            self.n[s, a, after] += 1
            self.visits[h + 1, after] += 1


def largest_gap(learner: UCBVI, mdp: FiniteMDP, flaw: str = "") -> float:
    """Return the largest difference between the learner's Q and that of the pseudo-code, over 40 episodes."""
    loop, gap = Azar(learner, mdp, flaw), 0.0
    for state, path in episodes(learner, mdp, 40):
        values = loop.plan()
        gap = max(gap, np.abs(loop.q.reshape(mdp.horizon, -1) - state.upper).max(), np.abs(values - state.values).max())
        if not flaw:
            assert all(is_greedy(state.policy[h], loop.q[h]) for h in range(mdp.horizon))
        loop.count(path)
    return gap


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("bonus", ["hoeffding", "bernstein"])
def test_ucbvi_is_its_pseudo_code(bonus: str, problem: str) -> None:
    learner = UCBVI(episodes=1_000, bonus=bonus, scale=0.01)
    assert largest_gap(learner, PROBLEMS[problem]) < 1e-9


@pytest.mark.parametrize("flaw", FLAWS)
def test_errors_of_public_code_are_told_from_ucbvi(flaw: str) -> None:
    """Negative controls: the comparison above fails for each of them."""
    bonus = "bernstein" if flaw == "mean for mean of squares" else "hoeffding"
    assert largest_gap(UCBVI(episodes=1_000, bonus=bonus, scale=0.01), PROBLEMS["rewards of (s, a)"], flaw) > 1e-3


def test_visits_of_the_next_step_matter_after_very_many_episodes() -> None:
    """The last term is sqrt(8 H^2/N) until some N' is beyond 100^2 H S^2 A L^2, here 2e8."""
    mdp, learner, draw = PROBLEMS["rewards of (s, a)"], UCBVI(episodes=1_000), np.random.default_rng(0)
    loop = Azar(learner, mdp)
    loop.n[:] = draw.integers(10**11, 10**12, size=loop.n.shape)
    loop.visits[:] = draw.integers(10**8, 10**10, size=loop.visits.shape)
    counts, visits = loop.n.astype(np.int64).ravel(), loop.visits[: mdp.horizon + 1].astype(np.int64)
    state = learner.begin(mdp.known)._replace(counts=counts, visits=visits)
    CompiledPlayer(learner, mdp.known, state).open(0, np.uint64(1), 0, np.zeros((4, 3), dtype=np.int64))
    right = loop.plan()
    np.testing.assert_allclose(state.values, right, rtol=0, atol=1e-9)
    loop.visits[:] = loop.visits.sum(axis=0)  # negative control: pooled over steps
    loop.q[:] = mdp.horizon
    assert np.abs(loop.plan() - right).max() > 1e-6


def page_learner() -> tuple[Any, str]:
    """Return UCBVI in plain NumPy as docs/your-own-algorithm.md has it, made to break ties as compiled code does."""
    page = (Path(__file__).parents[2] / "docs" / "your-own-algorithm.md").read_text()
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "class UCBVI" in block)
    names: dict[str, Any] = {"__name__": __name__}
    exec(code, names)  # noqa: S102  # a page of this repository
    stream = np.zeros(3, dtype=np.int64)

    def plan(self: Any, known: Any, state: Any, start: int, draw: np.random.Generator) -> Any:
        address: Any = draw.bit_generator.state["state"]
        stream[:] = address["key"].view(np.int64)[0], address["counter"][3], 0
        return names["UCBVI"].plan(self, known, state, start, draw)

    def best(self: Any, q: Floats, draw: np.random.Generator) -> list[int]:
        return [best_action(q.ravel(), s * q.shape[1], q.shape[1], stream) for s in range(len(q))]

    return type("Plain", (names["UCBVI"],), {"plan": plan, "best": best}), code


best_action = from_python(ucbvi.best_action)


def test_the_plain_ucbvi_of_the_page_is_the_compiled_one() -> None:
    mdp, (plain, code) = PROBLEMS["rewards of (s, a)"], page_learner()
    options: dict[str, Any] = {"episodes": 300, "scale": 0.01}
    assert len(code.splitlines()) <= 60
    compiled = orl.run(UCBVI(bonus="hoeffding", **options), mdp, episodes=300, seed=SEED, progress=False)
    same = orl.run(plain(**options), mdp, episodes=300, seed=SEED, progress=False)
    np.testing.assert_allclose(same.regret, compiled.regret, rtol=0, atol=1e-12)
    np.testing.assert_allclose(same.state["q"].reshape(4, -1), compiled.state.upper, rtol=0, atol=1e-9)
    assert same.pessimistic_episodes == compiled.pessimistic_episodes
    other = orl.run(plain(**options, delta=0.2), mdp, episodes=300, seed=SEED, progress=False)
    assert np.abs(other.state["q"] - same.state["q"]).max() > 1e-3  # negative control


# RLSVI and Q-learning -------------------------------------------------------------------------------------------------

next_normal = from_python(rng.next_normal)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("kernel", ["stationary", "per_step"])
def test_rlsvi_is_its_pseudo_code(kernel: Any, problem: str) -> None:
    mdp, learner = PROBLEMS[problem], RLSVI(scale=0.3, kernel=kernel)
    S, A, H, extra, gap_of_flaw = mdp.states, mdp.actions, mdp.horizon, bonuses(PROBLEMS[problem]), 0.0
    data: list[list[Step]] = [[] for _ in range(H)]
    for k, (state, path) in enumerate(episodes(learner, mdp, 30), 1):
        stream = np.array([np.int64(seeding.key(SEED, "agent")), k - 1, 0])
        beta = 0.5 * S * H**3 * math.log(2 * H * S * A * k)
        values = np.zeros((H + 1, S))
        for h in reversed(range(H)):
            q, flawed = np.zeros((S, A)), np.zeros((S, A))
            rows = data[h] if kernel == "per_step" else [row for rows in data for row in rows]
            for s in range(S):
                for a in range(A):
                    targets = [extra[s, a, after] + values[h + 1, after] for x, y, _, after in rows if (x, y) == (s, a)]
                    n, noise = len(targets), 0.3 * next_normal(stream)
                    mean = mdp.known.base_reward[s, a] + sum(targets) / (n + 1)
                    q[s, a] = mean + math.sqrt(beta / (n + 1)) * noise
                    flawed[s, a] = mean + math.sqrt(beta) / (n + 1) * noise
            values[h] = q.max(axis=1)
            gap_of_flaw = max(gap_of_flaw, np.abs(flawed.max(axis=1) - state.values[h]).max())
            assert is_greedy(state.policy[h], q)
        np.testing.assert_allclose(state.values, values, rtol=0, atol=1e-9)
        for h, step in enumerate(path):
            data[h].append(step)
    assert gap_of_flaw > 1e-3  # the root is taken once


@pytest.mark.parametrize("problem", PROBLEMS)
def test_q_learning_is_its_pseudo_code(problem: str) -> None:
    mdp, learner = PROBLEMS[problem], QLearningUCB(episodes=500, scale=0.02)
    S, A, H = mdp.states, mdp.actions, mdp.horizon
    iota, q, n = math.log(S * A * 500 * H / 0.05), np.full((H + 1, S, A), float(H)), np.zeros((H, S, A))
    q[H] = 0.0
    for state, path in episodes(learner, mdp, 60):
        assert all(is_greedy(state.policy[h], q[h]) for h in range(H))
        for h, (s, a, reward, after) in enumerate(path):
            n[h, s, a] += 1
            t = n[h, s, a]
            alpha, b = (H + 1) / (H + t), 0.02 * math.sqrt(H**3 * iota / t)
            q[h, s, a] = (1 - alpha) * q[h, s, a] + alpha * (reward + min(H, q[h + 1, after].max()) + b)
        np.testing.assert_allclose(state.upper, q[:H].reshape(H, -1), rtol=0, atol=1e-9)


def test_q_learning_needs_no_rewards_and_the_others_say_so() -> None:
    known = orl.Known.of_sizes(states=3, actions=2, horizon=4)
    assert QLearningUCB(episodes=9).begin(known).upper.shape == (4, 6)
    features = orl.FeatureMap.tabular(states=3, actions=2)
    others = (UCBVI(episodes=9), RLSVI(), LinPSRL(features=features), UCRLVTRPlus(features=features, norm_bound=1.0))
    for learner in others:
        with pytest.raises(InvalidInput, match="unknown rewards, expected known ones"):
            learner.begin(known)


# Ties -----------------------------------------------------------------------------------------------------------------


def test_ties_are_broken_at_random_by_seed_and_episode(test_seed: int) -> None:
    """Published constants cut all values at H for long: without chance, action 0 would be played throughout."""
    mdp = PROBLEMS["rewards of (s, a)"]
    for learner in (UCBVI(episodes=1_000), QLearningUCB(episodes=1_000)):
        first, again, other = (orl.run(learner, mdp, episodes=1, seed=seed, progress=False) for seed in (5, 5, 6))
        assert (first.state.policy == again.state.policy).all()
        assert (first.state.policy != other.state.policy).any()
    taken = [orl.run(UCBVI(episodes=99), mdp, episodes=1, seed=1_000 * test_seed + i).state.policy for i in range(200)]
    # 2,400 actions, each 1 with probability 1/2: further off than 0.06 with probability 2 exp(-17) (Hoeffding).
    assert np.mean(taken) == pytest.approx(0.5, abs=0.06)


def test_best_actions_draws_among_the_best_only(test_seed: int) -> None:
    draw = np.random.default_rng([test_seed, 11])
    q = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0]])
    taken = np.array([best_actions(q, draw) for _ in range(2_000)])
    assert (taken[:, 1] == 1).all()
    assert taken[:, 0].max() == 1
    assert taken[:, 0].mean() == pytest.approx(0.5, abs=0.1)  # but with probability 2 exp(-40)


# Linear kernels -------------------------------------------------------------------------------------------------------


def dense(mdp: FiniteMDP, seed: int) -> Floats:
    """Return features phi[s, a, s', j] with some kernel on the outcomes of a problem."""
    return np.moveaxis(np.random.default_rng(seed).dirichlet(np.ones(3), size=(4, 3, 2)), 0, -1)


def played(mdp: FiniteMDP, path: list[Step]) -> Episode:
    states = [step[0] for step in path] + [path[-1][3]]
    parts = np.array(states), np.array([step[1] for step in path]), np.array([step[2] for step in path])
    return Episode(*parts)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_lin_psrl_is_its_pseudo_code(problem: str) -> None:
    mdp, phi = PROBLEMS[problem], dense(PROBLEMS[problem], 2)
    learner = LinPSRL(features=orl.FeatureMap(phi), width=0.7, regularization=2.0)
    known, extra = mdp.known, bonuses(mdp)
    state, uniforms = learner.begin(known), environment_uniforms(SEED, 25, mdp.horizon)
    sigma, xy = 2.0 * np.eye(4), np.zeros(4)
    for k in range(25):
        policy, value = learner.plan(known, state, 0, np.random.default_rng(k))
        # a sample is told by its whitened residual, which the same generator draws first
        normal, lower = np.random.default_rng(k).standard_normal(4), np.linalg.cholesky(sigma)
        theta = np.linalg.solve(sigma, xy) + 0.7 * np.linalg.solve(lower.T, normal)
        values = np.zeros((mdp.horizon + 1, 3))
        for h in reversed(range(mdp.horizon)):
            q = np.zeros((3, 2))
            for s in range(3):
                for a in range(2):
                    w = extra[s, a] + values[h + 1]
                    c = (w.max() + w.min()) / 2
                    mean = c + sum((w[x] - c) * phi[s, a, x] @ theta for x in range(3))
                    q[s, a] = known.base_reward[s, a] + min(max(mean, w.min()), w.max())
            values[h] = q.max(axis=1)
            assert is_greedy(policy[h], q)
        np.testing.assert_allclose(state["values"], values, rtol=0, atol=1e-9)
        assert value == state["values"][0, 0]
        path = follow(mdp, policy, uniforms[k])
        learner.learn(known, state, played(mdp, path))
        for h, (s, a, _, after) in enumerate(path):
            w = extra[s, a] + values[h + 1]
            c, spread = (w.max() + w.min()) / 2, w.max() - w.min()
            if spread > 0:
                x = sum((w[i] - c) / spread * phi[s, a, i] for i in range(3))
                sigma, xy = sigma + np.outer(x, x), xy + (w[after] - c) / spread * x


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("kernel", ["stationary", "per_step"])
def test_ucrl_vtr_plus_is_its_pseudo_code(kernel: Any, problem: str) -> None:
    mdp, phi, B, d = PROBLEMS[problem], dense(PROBLEMS[problem], 2), 1.5, 4
    H, known, extra, scale = mdp.horizon, mdp.known, bonuses(mdp), 0.002
    learner = UCRLVTRPlus(features=orl.FeatureMap(phi), norm_bound=B, scale=scale, kernel=kernel)
    state, uniforms = learner.begin(known), environment_uniforms(SEED, 25, H)
    T, lam = (H if kernel == "per_step" else 1), 1 / B**2
    hat, tilde = [lam * np.eye(d) for _ in range(T)], [lam * np.eye(d) for _ in range(T)]
    b_hat, b_tilde = np.zeros((T, d)), np.zeros((T, d))
    smallest = H**2 / d
    weights = []
    for k in range(1, 26):
        rows = k if T == H else k * H
        log = math.log(4 * rows**2 * T / 0.05)
        last = 4 * math.sqrt(d) * log + math.sqrt(lam) * B
        beta_hat = scale * (8 * math.sqrt(d * math.log(1 + rows / lam) * log) + last)
        beta_check = scale * (8 * d * math.sqrt(math.log(1 + rows / lam) * log) + last)
        root = math.sqrt(d * H**4 * math.log(1 + rows * H**4 / (d * lam)) * log)
        beta_tilde = scale * (8 * root + 4 * H**2 * log + math.sqrt(lam) * B)
        theta = [np.linalg.solve(hat[t], b_hat[t]) for t in range(T)]
        theta_2 = [np.linalg.solve(tilde[t], b_tilde[t]) for t in range(T)]
        policy, _ = learner.plan(known, state, 0, np.random.default_rng(k))
        values = np.zeros((H + 1, 3))
        for h in reversed(range(H)):
            q = np.zeros((3, 2))
            for s in range(3):
                for a in range(2):
                    x = (extra[s, a] + values[h + 1]) @ phi[s, a]
                    norm = math.sqrt(x @ np.linalg.solve(hat[h % T], x))
                    q[s, a] = min(H, max(0.0, known.base_reward[s, a] + x @ theta[h % T] + beta_hat * norm))
            values[h] = q.max(axis=1)
            assert is_greedy(policy[h], q)
        np.testing.assert_allclose(state["values"], values, rtol=0, atol=1e-9)
        path = follow(mdp, policy, uniforms[k - 1])
        learner.learn(known, state, played(mdp, path))
        gains = []
        for h, (s, a, _, after) in enumerate(path):
            w, t = extra[s, a] + values[h + 1], h % T
            x, z = w @ phi[s, a], w**2 @ phi[s, a]
            variance = min(H**2, max(0.0, z @ theta_2[t])) - min(H, max(0.0, x @ theta[t])) ** 2
            error = min(H**2, 2 * H * beta_check * math.sqrt(x @ np.linalg.solve(hat[t], x)))
            error += min(H**2, beta_tilde * math.sqrt(z @ np.linalg.solve(tilde[t], z)))
            weights.append(max(smallest, variance + error))
            gains.append((t, x, z, w[after], weights[-1]))
        for t, x, z, y, weight in gains:
            hat[t], tilde[t] = hat[t] + np.outer(x, x) / weight, tilde[t] + np.outer(z, z)
            b_hat[t], b_tilde[t] = b_hat[t] + y * x / weight, b_tilde[t] + y**2 * z
        np.testing.assert_allclose(state["precision"], np.stack([hat, tilde], axis=1), rtol=0, atol=1e-9)
        np.testing.assert_allclose(state["targets"], np.stack([b_hat, b_tilde], axis=1), rtol=0, atol=1e-9)
    assert min(weights) == smallest < max(weights)  # both cases were met


# Parameters -----------------------------------------------------------------------------------------------------------

FEATURES = orl.FeatureMap.tabular(states=3, actions=2)
RIGHT: dict[Any, dict[str, Any]] = {
    UCBVI: {"episodes": 9},
    QLearningUCB: {"episodes": 9},
    RLSVI: {},
    LinPSRL: {"features": FEATURES},
    UCRLVTRPlus: {"features": FEATURES, "norm_bound": 1.0},
}
WRONG: list[tuple[Any, str, Any]] = [
    (UCBVI, "bonus", "bernstien"),
    (QLearningUCB, "episodes", 2.5),
    (RLSVI, "kernel", "weekly"),
    (LinPSRL, "features", None),
    (UCRLVTRPlus, "norm_bound", 0.0),
]


@pytest.mark.parametrize(("kind", "name", "value"), WRONG)
def test_parameters_are_checked(kind: Any, name: str, value: Any) -> None:
    assert registry.learners()[kind.__name__] is kind
    kind(**RIGHT[kind])
    with pytest.raises(InvalidInput) as caught:
        kind(**RIGHT[kind] | {name: value})
    assert caught.value.field == name
