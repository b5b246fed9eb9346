"""Unknown rewards and one kernel per step: every plan is that of plain NumPy from all rows, by definition.

The references keep nothing between plans but the transitions and rewards seen; range-weighted rows, the sharp radius,
lambda = 1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import occamrl as orl
from occamrl import seeding
from occamrl.analysis.certificates import Player
from occamrl.errors import InvalidInput, ParameterError
from occamrl.learners import rewards as rewards_module
from occamrl.learners.rewards import RewardsLinear, RewardsPerPair, RewardStatistics
from occamrl.learners.ucrl_vtr import UCRLVTR, NestedUCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.problems.mdp import BernoulliRewards, FiniteMDP
from occamrl.protocols import Floats, Ints, Known
from occamrl.running.phases import PhaseWalk
from occamrl.selectors.arl_gen import ARLGen
from tests.cases import Mixture, bits, environment_uniforms, from_python, mixture, reward_uniform, stack


class Step(NamedTuple):
    """What one step showed."""

    h: int
    s: int
    a: int
    s2: int
    reward: float
    values: Floats  # [S] V_{h+1} of the plan in play


def walk(
    policy: Any, values: Floats, transition: Floats, reward: Floats, *, seed: int, episode: int, coin: bool
) -> list[Step]:
    """Return the steps of an episode that starts in state 0, drawn with the simulator's own uniform numbers."""
    horizon = policy.shape[0]
    uniforms = environment_uniforms(seed, episode + 1, horizon)[episode]
    s, steps = 0, []
    for h in range(horizon):
        a = int(policy[h, s])
        kernel = transition[h] if transition.ndim == 4 else transition
        s2 = int(np.searchsorted(np.cumsum(kernel[s, a]), uniforms[h + 1], side="right"))
        mean = float(reward[s, a])
        heard = float(reward_uniform(seeding.key(seed, "environment"), episode, h) < mean) if coin else mean
        steps.append(Step(h, s, a, s2, heard, values[h + 1].copy()))
        s = s2
    return steps


def optimistic_rewards(rewards: Any, steps: list[Step], shape: tuple[int, int], horizon: int, delta: float) -> Floats:
    """Return the rewards [H, S, A] that a plan counts on."""
    copies = horizon if rewards.per_step else 1
    found = np.empty((horizon, *shape))
    for h in range(horizon):
        heard = [step for step in steps if copies == 1 or step.h == h]
        if isinstance(rewards, RewardsLinear):
            found[h] = _by_features(rewards, heard, delta * rewards.share / copies)
        else:
            level = delta * rewards.share / (copies * shape[0] * shape[1])
            for s, a in np.ndindex(shape):
                sample = np.array([step.reward for step in heard if (step.s, step.a) == (s, a)])
                found[h, s, a] = _of_pair(rewards, sample, level)
    return found


def _of_pair(rewards: RewardsPerPair, sample: Floats, delta: float) -> float:
    n = sample.size
    if n == 0:
        return 0.5 + 0.5 * rewards.scale

    def hoeffding(delta: float) -> float:
        return math.sqrt((n + 1) / 4 * (math.log(n + 1) + 2 * math.log(1 / delta))) / n

    width = hoeffding(delta)
    if rewards.bound == "bernstein":
        width = hoeffding(delta / 2)
        if n > 1:
            each = math.log(2 * n * (n - 1) / (delta / 2))
            width = min(width, math.sqrt(2 * sample.var(ddof=1) * each / n) + 7 * each / (3 * (n - 1)))
    return min(1.0, float(sample.mean()) + rewards.scale * width)


def _by_features(rewards: RewardsLinear, heard: list[Step], delta: float) -> Floats:
    psi, lam = np.asarray(rewards.features), rewards.regularization
    p = psi.shape[-1]
    rows = np.array([psi[step.s, step.a] for step in heard]).reshape(-1, p)
    sigma = lam * np.eye(p) + rows.T @ rows
    omega = np.linalg.solve(sigma, rows.T @ np.array([step.reward for step in heard]))
    growth = float(np.linalg.slogdet(sigma / lam)[1]) + 2 * math.log(1 / delta)
    width = rewards.scale * math.sqrt(growth / 4 + lam * rewards.norm_bound**2)
    norms = np.sqrt(np.einsum("sap,pq,saq->sa", psi, np.linalg.inv(sigma), psi))
    return np.asarray(np.clip(psi @ omega + width * norms, 0.0, 1.0))


def linear_plan(
    phi: Floats, reward: Floats, steps: list[Step], horizon: int, *, norm_bound: float, delta: float, per_step: bool
) -> Floats:
    """Return the optimistic values [H + 1, S] (M11) for rewards [H, S, A]; ``delta`` is the kernel's."""
    states, actions, _, d = phi.shape
    level = delta / (horizon - 1) if per_step else delta
    values = np.zeros((horizon + 1, states))
    for h in reversed(range(horizon)):
        sigma, xy = np.eye(d), np.zeros(d)
        for step in steps:
            if step.h < horizon - 1 and (step.h == h or not per_step):
                middle, spread = _centre(step.values, phi[step.s, step.a])
                if spread > 0.0:
                    x = phi[step.s, step.a].T @ ((step.values - middle) / spread)
                    sigma += np.outer(x, x)
                    xy += (step.values[step.s2] - middle) / spread * x
        theta, inverse = np.linalg.solve(sigma, xy), np.linalg.inv(sigma)
        width = math.sqrt((float(np.linalg.slogdet(sigma)[1]) + 2 * math.log(1 / level)) / 4 + norm_bound**2)
        q = np.empty((states, actions))
        for s, a in np.ndindex(states, actions):
            middle, spread = _centre(values[h + 1], phi[s, a])
            estimate = 0.0
            if spread > 0.0:
                x = phi[s, a].T @ ((values[h + 1] - middle) / spread)
                estimate = float(np.clip(x @ theta + width * math.sqrt(x @ inverse @ x), -0.5, 0.5))
            q[s, a] = reward[h, s, a] + middle + spread * estimate
        values[h] = np.clip(q.max(axis=1), 0.0, horizon - h)
    return values


def _centre(values: Floats, phi: Floats) -> tuple[float, float]:
    """Return the mid-range and the range of a target over what the features can produce."""
    possible = values[(phi != 0.0).any(axis=1)]
    low, high = float(possible.min()), float(possible.max())
    return (0.5 * (low + high), high - low) if high > low else (low, 0.0)


CASE = mixture(4)
NOISY = FiniteMDP(transition=CASE.transition, reward=CASE.reward, horizon=4, reward_noise=BernoulliRewards())
PSI = np.random.default_rng(5).normal(size=(4, 2, 3))
REWARDS: dict[str, Any] = {
    "hoeffding": RewardsPerPair(bound="hoeffding", scale=0.3),
    "bernstein": RewardsPerPair(scale=0.1, share=0.3),
    "every step its own": RewardsPerPair(scale=0.1, per_step=True),
    "linear": RewardsLinear(features=PSI, norm_bound=1.5, regularization=0.5, scale=0.2),
    "linear, every step its own": RewardsLinear(features=PSI, norm_bound=1.5, scale=0.2, per_step=True),
}


def compare(case: Mixture, mdp: FiniteMDP, transition: Any, episodes: int = 25, **options: Any) -> None:
    """Play episode by episode; every plan is the one that NumPy makes from all that was seen before."""
    bound, delta, kernel = 1.2, 0.1, options.get("kernel", "stationary")
    assumed, rewards = options.pop("expected_kernel", kernel), options.pop("expected_rewards", options["rewards"])
    learner = UCRLVTRLin(features=case.features, norm_bound=bound, delta=delta, replan=0.0, **options)
    player, steps, horizon = Player(learner, mdp, seed=6), list[Step](), mdp.horizon
    for episode in range(episodes):
        reward = optimistic_rewards(rewards, steps, case.reward.shape, horizon, delta)
        level, per_step = delta * (1.0 - rewards.share), assumed == "per_step"
        expected = linear_plan(case.phi, reward, steps, horizon, norm_bound=bound, delta=level, per_step=per_step)
        player.play()
        np.testing.assert_allclose(player.state.values, expected, rtol=0, atol=1e-9)
        coin = mdp.reward_noise is not None
        policy, values = player.state.policy, player.state.values
        steps += walk(policy, values, transition, case.reward, seed=6, episode=episode, coin=coin)


@pytest.mark.parametrize("kernel", ["stationary", "per_step"])
@pytest.mark.parametrize("name", REWARDS)
def test_every_plan_is_that_of_plain_numpy(name: str, kernel: Any) -> None:
    compare(CASE, NOISY, CASE.transition, rewards=REWARDS[name], kernel=kernel)


def test_every_plan_on_a_kernel_that_changes_with_the_step() -> None:
    rng = np.random.default_rng(0)
    transition = np.stack([CASE.phi @ rng.dirichlet(np.ones(3)) for _ in range(4)])
    mdp = FiniteMDP(transition=transition, reward=CASE.reward, horizon=4, reward_noise=BernoulliRewards())
    rewards, wider = RewardsPerPair(scale=0.3), RewardsPerPair(scale=0.31)
    compare(CASE, mdp, transition, kernel="per_step", rewards=rewards)
    with pytest.raises(AssertionError):  # the comparison can tell one kernel per step from one for all
        compare(CASE, mdp, transition, expected_kernel="stationary", kernel="per_step", rewards=rewards)
    with pytest.raises(AssertionError):  # and one width from another
        compare(CASE, mdp, transition, expected_rewards=wider, kernel="per_step", rewards=rewards)


def results_of(mdp: FiniteMDP, features: FeatureMap, **options: Any) -> tuple[Any, ...]:
    result = orl.run(UCRLVTRLin(features=features, norm_bound=1.5, **options), mdp, episodes=300, progress=False)
    return result.regret.tobytes(), result.state.values.tobytes(), result.state.policy.tobytes(), result.plans


@pytest.mark.parametrize("replan", [0.0, 0.2])
def test_with_two_steps_one_kernel_per_step_is_one_kernel_bit_for_bit(replan: float) -> None:
    """Only the first step of two gives rows, so the statistics, their level and every plan are the same."""
    case = mixture(7, horizon=2, full_support=True)
    for features in (case.features, FeatureMap.tabular(states=4, actions=2)):
        plain = results_of(case.mdp, features, replan=replan)
        assert results_of(case.mdp, features, replan=replan, kernel="per_step") == plain
        assert results_of(case.mdp, features, replan=replan, kernel="per_step", delta=0.04) != plain


def test_noise_changes_returns_and_nothing_else_for_those_who_know_the_means() -> None:
    learner = UCRLVTRLin(features=CASE.features, norm_bound=1.0)
    plain, noisy = (orl.run(learner, mdp, episodes=300, progress=False) for mdp in (CASE.mdp, NOISY))
    assert plain.regret.tobytes() == noisy.regret.tobytes()
    assert plain.returns.tobytes() != noisy.returns.tobytes()
    assert set(np.unique(noisy.returns)) <= {0.0, 1.0, 2.0, 3.0, 4.0}


def test_statistics_carry_the_rewards_over() -> None:
    """A learner that goes on from statistics plans as the one that gathered them."""
    learner = UCRLVTRLin(
        features=CASE.features, norm_bound=1.0, rewards=RewardsPerPair(), kernel="per_step", replan=0.0
    )
    player = Player(learner, NOISY, seed=1)
    player.play(50)
    statistics = learner.statistics(NOISY.known, player.state)
    other = Player(learner, NOISY, seed=1, state=learner.begin(NOISY.known, statistics))
    other.episode = 50
    player.play()
    other.play()
    np.testing.assert_allclose(other.state.values, player.state.values, rtol=0, atol=1e-9)
    observed = learner.statistics(NOISY.known, other.state).rewards
    assert isinstance(observed, RewardStatistics)
    assert observed.visits.sum() == 51 * 4


def test_sizes_and_rewards_that_do_not_fit_are_refused() -> None:
    features = CASE.features
    for name, size in (("states", 0), ("states", 2.5), ("actions", True), ("horizon", "5"), ("horizon", 0)):
        with pytest.raises(ParameterError, match=name):
            Known.of_sizes(**{"states": 2, "actions": 2, "horizon": 2, name: size})  # type: ignore[arg-type]
    narrow = RewardsLinear(features=np.ones((3, 2, 1)), norm_bound=1.0)
    with pytest.raises(InvalidInput, match="features"):
        orl.run(UCRLVTRLin(features=features, norm_bound=1.0, rewards=narrow), CASE.mdp, episodes=1)
    with pytest.raises(InvalidInput, match="these rewards are not known"):
        PhaseWalk(UCRLVTRLin(features=features, norm_bound=1.0), CASE.mdp.known.without_rewards)


linear_rewards = from_python(rewards_module.linear_rewards)


def counted_on(rewards: RewardsLinear, visits: Ints, total: Floats) -> Floats:
    """Return the optimistic rewards of every action of one state, after rewards that were heard."""
    known = Known.of_sizes(states=1, actions=visits.size, horizon=1)
    model, psi = rewards.model(known, 0.05)
    out, p = np.zeros(visits.size), psi.shape[1]
    linear_rewards(model, psi, visits, total, out, np.zeros(3 * p * p + 2 * p))
    return out


@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.floats(0.0, 12.0), st.floats(-6.0, 2.0))
def test_rewards_without_noise_are_never_underestimated(seed: int, p: int, large: float, lam: float) -> None:
    """Every mean heard is <psi, omega> itself, so the ellipsoid holds omega, whatever the sizes of the features.

    The large features are nearly orthogonal to omega: from them one learns nothing of the others.
    """
    rng = np.random.default_rng(seed)
    omega = rng.normal(size=p)
    omega -= omega.mean()
    omega *= rng.uniform(0.5, 1.0) / np.abs(omega).max()
    omega += 0.5 / (p * 10.0**large)
    psi = np.concatenate([np.full((2, p), 10.0**large), np.eye(p)])[None]
    psi[0, 1] *= 0.5
    mean = (psi @ omega).ravel()
    psi[0, mean < 0.0] *= -1.0
    mean = np.abs(mean)
    rewards = RewardsLinear(features=psi, norm_bound=float(np.linalg.norm(omega)), regularization=10.0**lam)
    visits = np.concatenate([rng.choice([1, 100, 10**6], size=2), rng.choice([0, 0, 1, 10], size=p)])
    reward = counted_on(rewards, visits, visits * mean)
    assert (reward >= np.minimum(mean, 1.0) - 1e-6).all()
    assert (reward <= 1.0).all()


def test_of_features_that_differ_by_nine_orders_the_small_one_stays_unknown() -> None:
    """omega = (-.9, .9) up to 1e-9 gives rewards .5 and .9; after hearing the first only, .9 must stay possible."""
    rewards = RewardsLinear(features=[[[1e9, 1e9], [0.0, 1.0]]], norm_bound=1.3)
    assert counted_on(rewards, np.array([100, 0]), np.array([50.0, 0.0]))[1] >= 0.9


@pytest.mark.parametrize("share", [1e-300, 1.0 - 1e-15])
def test_the_smallest_levels_leave_numbers(share: float) -> None:
    """Neither part of a tiny delta becomes a zero whose logarithm is infinite: infinity times no uncertainty is NaN."""
    rewards = RewardsLinear(features=np.zeros((4, 2, 1)), norm_bound=1.0, share=share)
    learner = UCRLVTRLin(features=CASE.features, norm_bound=1.0, delta=1e-300, rewards=rewards)
    state = orl.run(learner, NOISY, episodes=3, progress=False).walk.state
    assert np.isfinite(state.values).all()
    assert learner.level(NOISY.known) >= 1e-300


STACK = stack(3, members=6)
DELTA = 0.2


def finite_plan(steps: list[Step], reward: Floats, kernels: Floats, *, delta: float, per_step: bool) -> Floats:
    """Return the optimistic values [H + 1, S] from all rows, by definition (range weights, uniform prior)."""
    n, states = kernels.shape[:2]
    horizon = reward.shape[0]
    inside = np.ones((horizon, n), dtype=bool)
    for h in range(horizon):
        losses = np.zeros(n)
        for step in steps:
            spread = np.ptp(step.values)
            if step.h < horizon - 1 and (step.h == h or not per_step) and spread > 0.0:
                target = (step.values - 0.5 * (step.values.max() + step.values.min())) / spread
                losses += (target[step.s2] - kernels[:, step.s, step.a] @ target) ** 2
        level = delta / (horizon - 1) if per_step else delta
        inside[h] = losses <= 0.5 * (math.log(1 / level) - math.log(np.exp(-2 * losses).mean()))

    def backwards(choose: Any) -> Floats:
        values = np.zeros((horizon + 1, states))
        for h in reversed(range(horizon)):
            values[h] = (reward[h] + choose(h, kernels @ values[h + 1])).max(axis=1)
        return values

    if per_step:
        return backwards(lambda h, expected: expected[inside[h]].max(axis=0))
    solved = [backwards(lambda h, expected, i=i: expected[i]) for i in range(n) if inside[0, i]]
    return max(solved, key=lambda values: float(values[0, 0]))


@pytest.mark.parametrize("kernel", ["stationary", "per_step"])
@pytest.mark.parametrize("known", [True, False])
def test_every_plan_is_that_of_the_oracle(kernel: Any, known: bool) -> None:
    per_step = kernel == "per_step"
    if known and not per_step:
        pytest.skip("the plain learner")
    transition = STACK.kernels[[0, 2, 1, 0]] if per_step else STACK.kernels[0]
    mdp = FiniteMDP(transition=transition, reward=STACK.reward, horizon=4, reward_noise=BernoulliRewards())
    rewards: Any = "known" if known else RewardsPerPair(scale=0.2)
    learner = UCRLVTR(family=STACK.family, delta=DELTA, rewards=rewards, kernel=kernel)
    player, steps, dropped = Player(learner, mdp, seed=3), list[Step](), 0
    for episode in range(60):
        reward, level = np.broadcast_to(STACK.reward, (4, *STACK.reward.shape)), DELTA
        if not isinstance(rewards, str):
            reward = optimistic_rewards(rewards, steps, STACK.reward.shape, 4, DELTA)
            level = DELTA * (1.0 - rewards.share)
        expected = finite_plan(steps, reward, STACK.kernels, delta=level, per_step=per_step)
        player.play()
        np.testing.assert_allclose(player.state.values, expected, rtol=0, atol=1e-9)
        dropped += int((player.state.inside == 0).any())
        policy, values = player.state.policy, player.state.values
        steps += walk(policy, values, transition, STACK.reward, seed=3, episode=episode, coin=True)
    assert dropped > 0  # the data have excluded somebody


def ladder() -> Ladder:
    """Return three classes; members 0 and 2 are first held together by the second."""
    return Ladder([FiniteFamily(STACK.kernels[members]) for members in ([4], [4, 0, 2], [4, 0, 2, 1, 3, 5])])


@pytest.mark.parametrize("rewards", ["known", RewardsPerPair()])
def test_the_class_of_all_steps_together_is_found(rewards: Any) -> None:
    """Steps take turns between two kernels that only class 2 holds both of."""
    transition = STACK.kernels[[0, 2, 0, 2]]
    mdp = FiniteMDP(transition=transition, reward=STACK.reward, horizon=4, reward_noise=BernoulliRewards())
    agent = ARLGen(ladder=ladder(), rewards=rewards, kernel="per_step", replan=0.1)
    result = orl.run(agent, mdp, episodes=8190, progress=False)
    assert result.phases["chosen"].to_pylist()[-1] == 2
    assert result.phases["chosen"].to_pylist()[0] == 1
    assert max(result.phases["chosen"].to_pylist()) == 2
    wrong = ARLGen(ladder=ladder(), rewards=rewards, replan=0.1)  # one kernel: no member fits
    if rewards != "known":
        assert orl.run(wrong, mdp, episodes=8190, progress=False).total_regret > result.total_regret


def test_what_does_not_go_together() -> None:
    for radius in ("paper", "unweighted"):
        with pytest.raises(ParameterError, match="radius"):
            UCRLVTR(family=STACK.family, kernel="per_step", radius=radius)


def near_members() -> tuple[FiniteMDP, Floats]:
    """Return a problem with coins as rewards and four initial states, and kernels that hardly differ."""
    rng = np.random.default_rng(0)
    kernels = 0.93 * rng.dirichlet(np.ones(4), size=(4, 3)) + 0.07 * rng.dirichlet(np.full(4, 0.3), size=(5, 4, 3))
    options: Any = {"initial_state": np.full(4, 0.25), "reward_noise": BernoulliRewards()}
    return FiniteMDP(transition=kernels[2], reward=rng.random((4, 3)), horizon=5, **options), kernels


def test_a_plan_for_another_start_counts_on_the_rewards_it_was_solved_for() -> None:
    """A lazy plan outlives the arrays that it was made in: the next phase, and a resumed run, have new ones."""
    mdp, kernels = near_members()
    learner = UCRLVTR(family=FiniteFamily(kernels), rewards=RewardsPerPair(), replan=0.5)
    whole, pieces = orl.run(learner, mdp, episodes=400, progress=False), None
    for size in (18, 26, 39, 26, 13, 26, 26, 130, 96):
        pieces = orl.run(learner, mdp, episodes=size, progress=False, continue_from=pieces)
    assert pieces is not None
    np.testing.assert_array_equal(pieces.regret, whole.regret)
    assert bits(pieces.walk.state) == bits(whole.walk.state)
    assert len(np.unique(whole.regret[-100:])) > 4  # who is in play depends on where the episode begins
    ladder = Ladder([FiniteFamily(kernels[:2]), FiniteFamily(kernels)])
    options: Any = {"ladder": ladder, "delta": DELTA, "replan": 0.5, "rewards": RewardsPerPair()}
    phases = orl.run(ARLGen(**options), mdp, episodes=400, progress=False)
    alone = orl.run(NestedUCRLVTR(**options), mdp, episodes=400, progress=False)
    assert phases.phases.num_rows > 4
    np.testing.assert_array_equal(phases.regret, alone.regret)
