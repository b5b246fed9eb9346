"""Unknown rewards and one kernel per step: what they cost where they are not needed, and what it costs without them.

For docs/extensions.md (:mod:`benchmarks.figures`): means over 10 seeds with 95% bootstrap intervals; ratios are of
means, seeds drawn in pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import occamrl as orl
from benchmarks.figures import Size, interval, number, ratio, regrets, runs, table
from occamrl.problems.mdp import BernoulliRewards, BetaRewards
from occamrl.problems.mixtures import SparseMixture
from occamrl.protocols import Agent, Floats

BERNOULLI = BernoulliRewards()  # whoever knows the means has the same regret with and without it
OPTIONS: dict[str, dict[str, Any]] = {
    "neither": {},
    "unknown rewards, per pair": {"rewards": orl.RewardsPerPair()},
    "one kernel per step": {"kernel": "per_step"},
    "both": {"rewards": orl.RewardsPerPair(), "kernel": "per_step"},
}


def measured(agent: Agent, mdp: orl.FiniteMDP, size: Size, episodes: int = 100_000) -> Floats:
    """Return the regret of each seed."""
    return regrets(agent, mdp, size.episodes(episodes), size.seeds(10))


def noisy(problem: SparseMixture, noise: Any = BERNOULLI) -> orl.FiniteMDP:
    """Return the problem with random rewards."""
    mdp = problem.mdp
    return orl.FiniteMDP(
        transition=mdp.kernel(),
        reward=mdp.known.base_reward,
        horizon=mdp.horizon,
        initial_state=mdp.initial_distribution,
        reward_noise=noise,
    )


def rewards(size: Size) -> str:
    """Measure known rewards against each estimate, with much noise, little and none."""
    problem = SparseMixture(seed=0)
    features, reward = orl.FeatureMap(problem.phi), problem.mdp.known.base_reward
    psi = np.concatenate([reward[..., None], np.random.default_rng(0).normal(size=(*reward.shape, 3))], axis=-1)
    estimates: dict[str, Any] = {
        "known": "known",
        "per pair, Hoeffding": orl.RewardsPerPair(bound="hoeffding"),
        "per pair, Bernstein": orl.RewardsPerPair(),
        "linear, p = 4": orl.RewardsLinear(features=psi, norm_bound=1.0),
    }
    noises = {"Bernoulli": BERNOULLI, "Beta, concentration 50": BetaRewards(concentration=50.0), "no noise": None}
    cells: dict[str, list[str]] = {name: [] for name in estimates}
    for noise in noises.values():
        mdp, known = noisy(problem, noise), None
        for name, estimate in estimates.items():
            found = measured(orl.UCRLVTRLin(features=features, norm_bound=1.3, rewards=estimate), mdp, size)
            cells[name].append(interval(found) + ("" if known is None else f", ratio {ratio(found, known)}"))
            known = found if known is None else known
    return table(("rewards; K = 100,000, 10 seeds", *noises), [(name, *found) for name, found in cells.items()])


def steps(size: Size) -> str:
    """Measure one kernel per step on stationary problems of growing horizon, after 10,000 and 100,000 episodes."""
    rows, marks = [], np.array([size.episodes(10_000), size.episodes(100_000)])
    for horizon in (3, 6, 12, 24):
        problem, after = SparseMixture(seed=0, horizon=horizon), []
        for kernel in ("stationary", "per_step"):
            agent = orl.UCRLVTRLin(features=orl.FeatureMap(problem.phi), norm_bound=1.3, kernel=kernel)
            found = runs(agent, problem, int(marks[-1]), size.seeds(10))
            after.append(np.array([result.cumulative_regret[marks - 1] for result in found]).T)
        plain, each = after
        means = (", ".join(number(float(found.mean())) for found in both) for both in after)
        rows.append((horizon, *means, *map(ratio, each, plain), f"{np.sqrt(horizon):.2f}"))
    header = ("H; after 10,000 and 100,000 episodes, 10 seeds", "stationary", "per step", "ratio after 10,000")
    return table((*header, "ratio after 100,000", "sqrt(H)"), rows)


def moving_mixture(seed: int) -> tuple[orl.FiniteMDP, orl.FeatureMap]:
    """Return a mixture of four kernels, each step near another one of them, and its features."""
    rng = np.random.default_rng(seed)
    states, actions, horizon = 8, 3, 6
    kernels = rng.dirichlet(0.3 * np.ones(states), size=(4, states, actions))
    phi = np.ascontiguousarray(np.moveaxis(kernels, 0, -1))
    weights = np.array([0.85 * np.eye(4)[h % 4] + 0.15 / 4 for h in range(horizon)])
    reward = rng.random((states, actions)) ** 3
    transition = np.stack([phi @ w for w in weights])
    mdp = orl.FiniteMDP(transition=transition, reward=reward, horizon=horizon, reward_noise=BERNOULLI)
    return mdp, orl.FeatureMap(phi)


def changing(size: Size) -> str:
    """Measure both learners where the kernel changes with the step."""
    rows = []
    for seed in range(3):
        mdp, features = moving_mixture(seed)
        agents = (orl.UCRLVTRLin(features=features, norm_bound=1.0, kernel=k) for k in ("stationary", "per_step"))
        rows.append((seed, *(interval(measured(agent, mdp, size)) for agent in agents)))
    return table(("instance; K = 100,000, 10 seeds", "stationary", "per step"), rows)


def selectors(size: Size) -> str:
    """Measure ARL-LIN(dim) and (norm) with unknown rewards and with one kernel per step."""
    problem = SparseMixture(seed=0)
    features, mdp, rows = orl.FeatureMap(problem.phi), noisy(problem), []
    for name, options in OPTIONS.items():
        agents: dict[str, Agent] = {
            "all 16 features, b = 1.3": orl.UCRLVTRLin(features=features, norm_bound=1.3, **options),
            "ARL-LIN(dim)": orl.ARLLinDim(features=features, norm_bound=1.3, **options),
            "ARL-LIN(norm), b = 100": orl.ARLLinNorm(features=features, norm_bound=100.0, **options),
        }
        rows.append((name, *(interval(measured(agent, mdp, size)) for agent in agents.values())))
    return table(("K = 100,000, 10 seeds", *agents), rows)


def families(size: Size) -> str:
    """Measure UCRL-VTR on a family of kernels, and ARL-GEN on a ladder of it."""
    rng = np.random.default_rng(0)
    kernels = rng.dirichlet(0.5 * np.ones(5), size=(60, 5, 3))
    reward, rows = rng.random((5, 3)), []
    ladder = orl.Ladder([orl.FiniteFamily(kernels[:count]) for count in (1, 6, 20, 60)])
    stationary = orl.FiniteMDP(transition=kernels[4], reward=reward, horizon=6, reward_noise=BERNOULLI)
    moving = orl.FiniteMDP(transition=kernels[[4, 2, 5, 3, 1, 4]], reward=reward, horizon=6, reward_noise=BERNOULLI)
    for name, options in OPTIONS.items():
        agents = (
            orl.UCRLVTR(family=ladder.family, replan=0.1, **options),
            orl.ARLGen(ladder=ladder, replan=0.1, **options),
        )
        found = (measured(agent, mdp, size, 20_000) for mdp in (stationary, moving) for agent in agents)
        rows.append((name, *map(interval, found)))
    header = ("K = 20,000, 10 seeds", "one kernel: all 60", "ARL-GEN", "kernels that change: all 60", "ARL-GEN")
    return table(header, rows)
