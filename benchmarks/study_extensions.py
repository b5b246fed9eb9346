"""Unknown rewards and one kernel per step: what they cost where they are not needed, and what happens without them.

For docs/extensions.md (:mod:`benchmarks.figures`): means over 10 seeds, 100,000 episodes unless stated, with 95%
bootstrap intervals; ratios are of means, seeds drawn in pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import occamrl as orl
from benchmarks.figures import Size, interval, ratio, table
from occamrl.problems.mdp import BernoulliRewards, BetaRewards
from occamrl.problems.mixtures import ReferenceMixture, SparseMixture
from occamrl.protocols import Agent, Floats

BERNOULLI = BernoulliRewards()  # whoever knows the means has the same regret with and without it
OPTIONS: dict[str, dict[str, Any]] = {
    "neither": {},
    "unknown rewards, per pair": {"rewards": orl.RewardsPerPair()},
    "one kernel per step": {"kernel": "per_step"},
    "both": {"rewards": orl.RewardsPerPair(), "kernel": "per_step"},
}


def regrets(agent: Agent, mdp: orl.FiniteMDP, size: Size, episodes: int = 100_000) -> Floats:
    """Return the regret of each of ten seeds."""
    results = (
        orl.run(agent, mdp, episodes=size.episodes(episodes), seed=seed, progress=False)
        for seed in range(size.seeds(10))
    )
    return np.array([result.total_regret for result in results])


def with_noise(mdp: orl.FiniteMDP, noise: Any) -> orl.FiniteMDP:
    """Return a problem with random rewards; episodes start in state 0."""
    return orl.FiniteMDP(transition=mdp.kernel(), reward=mdp.known.base_reward, horizon=mdp.horizon, reward_noise=noise)


def rewards(size: Size) -> str:
    """Measure known rewards against each estimate, under three kinds of noise."""
    problem, rows = ReferenceMixture(), []
    features, reward = orl.FeatureMap(problem.phi), problem.mdp.known.base_reward
    psi = np.concatenate([reward[..., None], np.random.default_rng(0).normal(size=(*reward.shape, 3))], axis=-1)
    known = regrets(orl.UCRLVTRLin(features=features, norm_bound=1.3), problem.mdp, size)
    noises = (BERNOULLI, BetaRewards(concentration=50.0), None)
    rows.append(("known", *(interval(known) for _ in noises)))
    for name, estimate in (
        ("per pair, Hoeffding", orl.RewardsPerPair(bound="hoeffding")),
        ("per pair, Bernstein", orl.RewardsPerPair()),
        ("linear, p = 4", orl.RewardsLinear(features=psi, norm_bound=1.0)),
    ):
        agent = orl.UCRLVTRLin(features=features, norm_bound=1.3, rewards=estimate)
        each = [regrets(agent, with_noise(problem.mdp, noise), size) for noise in noises]
        rows.append((name, *(f"{interval(found)}, ratio {ratio(found, known)}" for found in each)))
    return table(("rewards", "Bernoulli", "Beta, concentration 50", "no noise"), rows)


def steps(size: Size) -> str:
    """Measure one kernel per step on stationary problems of growing horizon."""
    rows = []
    for horizon in (3, 6, 12, 24):
        problem = SparseMixture(seed=0, horizon=horizon)
        features = orl.FeatureMap(problem.phi)
        plain, each = (
            regrets(orl.UCRLVTRLin(features=features, norm_bound=1.3, kernel=kernel), problem.mdp, size)
            for kernel in ("stationary", "per_step")
        )
        rows.append((horizon, interval(plain), interval(each), ratio(each, plain), f"{np.sqrt(horizon):.2f}"))
    return table(("H", "stationary", "per step", "ratio", "sqrt(H)"), rows)


def lengths(size: Size) -> str:
    """Measure the ratio of `steps` over the number of episodes, and without the split of delta."""
    rows, marks = [], sorted({size.episodes(episodes) for episodes in (10_000, 100_000, 1_000_000)})
    for horizon in (3, 6, 12):
        problem = SparseMixture(seed=0, horizon=horizon)
        common: dict[str, Any] = {"features": orl.FeatureMap(problem.phi), "norm_bound": 1.3}
        plain, split, whole = (
            np.array(
                [
                    orl.run(agent, problem.mdp, episodes=marks[-1], seed=seed, progress=False).cumulative_regret
                    for seed in range(size.seeds(5))
                ]
            )
            for agent in (
                orl.UCRLVTRLin(**common),
                orl.UCRLVTRLin(**common, kernel="per_step"),
                orl.UCRLVTRLin(**common, kernel="per_step", delta=0.05 * (horizon - 1)),
            )
        )
        for k in marks:
            base, each, more = plain[:, k - 1], split[:, k - 1], whole[:, k - 1]
            rows.append((horizon, f"{k:,}", interval(base), interval(each), ratio(each, base), ratio(more, base)))
    header = ("H; 5 seeds", "episodes", "stationary", "per step", "ratio", "ratio, each step at delta")
    return table(header, rows)


def moving_mixture(seed: int) -> tuple[orl.FiniteMDP, orl.FeatureMap]:
    """Return a mixture of four kernels, each step near another one of them, and its features."""
    rng = np.random.default_rng(seed)
    states, actions, horizon = 8, 3, 6
    kernels = rng.dirichlet(0.3 * np.ones(states), size=(4, states, actions))
    phi = np.ascontiguousarray(np.moveaxis(kernels, 0, -1))
    weights = np.array([0.85 * np.eye(4)[h % 4] + 0.15 / 4 for h in range(horizon)])
    reward = rng.random((states, actions)) ** 3
    transition = np.stack([phi @ w for w in weights])
    return orl.FiniteMDP(transition=transition, reward=reward, horizon=horizon), orl.FeatureMap(phi)


def changing(size: Size) -> str:
    """Measure both learners where the kernel changes with the step."""
    rows = []
    for seed in range(3):
        mdp, features = moving_mixture(seed)
        each = (
            interval(regrets(orl.UCRLVTRLin(features=features, norm_bound=1.0, kernel=kernel), mdp, size))
            for kernel in ("stationary", "per_step")
        )
        rows.append((seed, *each))
    return table(("instance", "stationary", "per step"), rows)


def selectors(size: Size) -> str:
    """Measure ARL-LIN(dim) and ARL-LIN(norm) with unknown rewards and with one kernel per step."""
    problem, rows = ReferenceMixture(), []
    features, mdp = orl.FeatureMap(problem.phi), with_noise(problem.mdp, BERNOULLI)
    for name, options in OPTIONS.items():
        agents = (
            orl.UCRLVTRLin(features=features, norm_bound=1.3, **options),
            orl.ARLLinDim(features=features, norm_bound=1.3, **options),
            orl.ARLLinNorm(features=features, norm_bound=100.0, **options),
        )
        rows.append((name, *(interval(regrets(agent, mdp, size)) for agent in agents)))
    return table(("", "all 16 features, b = 1.3", "ARL-LIN(dim), b = 1.3", "ARL-LIN(norm), b = 100"), rows)


def families(size: Size) -> str:
    """Measure UCRL-VTR on a family of kernels, and ARL-GEN on a ladder of it."""
    rng = np.random.default_rng(0)
    kernels = rng.dirichlet(0.5 * np.ones(5), size=(60, 5, 3))
    reward = rng.random((5, 3))
    ladder = orl.Ladder([orl.FiniteFamily(kernels[:count]) for count in (1, 6, 20, 60)])
    stationary = orl.FiniteMDP(transition=kernels[4], reward=reward, horizon=6, reward_noise=BERNOULLI)
    moving = orl.FiniteMDP(transition=kernels[[4, 2, 5, 3, 1, 4]], reward=reward, horizon=6, reward_noise=BERNOULLI)
    rows = []
    for name, options in OPTIONS.items():
        agents = (
            orl.UCRLVTR(family=ladder.family, replan=0.1, **options),
            orl.ARLGen(ladder=ladder, replan=0.1, **options),
        )
        each = (interval(regrets(agent, mdp, size, 20_000)) for mdp in (stationary, moving) for agent in agents)
        rows.append((name, *each))
    header = ("20,000 episodes", "one kernel: all 60", "ARL-GEN", "kernels that change: all 60", "ARL-GEN")
    return table(header, rows)
