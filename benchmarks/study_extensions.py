"""Unknown rewards and one kernel per step, measured: what they cost where they are not needed, and what without them.

Regret does not depend on the machine. Every line is a mean over seeds with a 95% bootstrap interval; ratios are of
means, seeds drawn in pairs.

    python benchmarks/study_extensions.py                  all parts
    python benchmarks/study_extensions.py --part rewards   one of rewards, noise, steps, lengths, changing,
                                                           selectors, families
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import bootstrap

import occamrl as orl
from occamrl.problems.mdp import BernoulliRewards, BetaRewards
from occamrl.problems.mixtures import SparseMixture
from occamrl.protocols import Agent, Floats

SEEDS = 10
BERNOULLI = BernoulliRewards()  # whoever knows the means has the same regret with and without it


def regrets(agent: Agent, mdp: orl.FiniteMDP, episodes: int) -> Floats:
    """Return the regret of each seed."""
    return np.array([orl.run(agent, mdp, episodes=episodes, seed=k, progress=False).total_regret for k in range(SEEDS)])


def line(name: str, found: Floats, against: Floats | None = None) -> None:
    """Print a mean, and its ratio to another, with intervals."""
    low, high = bootstrap((found,), np.mean, rng=0).confidence_interval
    text = f"{name:58s} {found.mean():9.1f} [{low:.1f}, {high:.1f}]"
    if against is not None:
        ratio = bootstrap(
            (found, against), lambda x, y, axis: x.mean(axis) / y.mean(axis), paired=True, vectorized=True, rng=0
        ).confidence_interval
        text += f"   ratio {found.mean() / against.mean():.2f} [{ratio[0]:.2f}, {ratio[1]:.2f}]"
    print(text, flush=True)


def with_noise(problem: SparseMixture, noise: Any) -> orl.FiniteMDP:
    """Return the problem with random rewards."""
    mdp = problem.mdp
    return orl.FiniteMDP(
        transition=mdp.kernel(),
        reward=mdp.known.base_reward,
        horizon=mdp.horizon,
        initial_state=mdp.initial_distribution,
        reward_noise=noise,
    )


def rewards(noise: str = "Bernoulli", kind: Any = BERNOULLI) -> None:
    """Known rewards against each estimate, Bernoulli rewards."""
    problem = SparseMixture(seed=0)
    features = orl.FeatureMap(problem.phi)
    reward = problem.mdp.known.base_reward
    psi = np.concatenate([reward[..., None], np.random.default_rng(0).normal(size=(*reward.shape, 3))], axis=-1)
    estimates: dict[str, Any] = {
        "known": "known",
        "per pair, Hoeffding": orl.RewardsPerPair(bound="hoeffding"),
        "per pair, Bernstein": orl.RewardsPerPair(),
        "linear, p = 4": orl.RewardsLinear(features=psi, norm_bound=1.0),
    }
    mdp, known = with_noise(problem, kind), None
    for name, estimate in estimates.items():
        found = regrets(orl.UCRLVTRLin(features=features, norm_bound=1.3, rewards=estimate), mdp, 100_000)
        line(f"noise: {noise}; rewards: {name}", found, known)
        known = found if known is None else known


def noise() -> None:
    """Measure the same with less noise, and with none."""
    rewards("Beta, concentration 50", BetaRewards(concentration=50.0))
    rewards("none", None)


def steps() -> None:
    """One kernel per step on stationary problems of growing horizon."""
    for horizon in (3, 6, 12, 24):
        problem = SparseMixture(seed=0, horizon=horizon)
        features, mdp = orl.FeatureMap(problem.phi), with_noise(problem, BERNOULLI)
        plain, each = (
            regrets(orl.UCRLVTRLin(features=features, norm_bound=1.3, kernel=kernel), mdp, 100_000)
            for kernel in ("stationary", "per_step")
        )
        line(f"H = {horizon:2d} (root {np.sqrt(horizon):.2f}), stationary learner", plain)
        line(f"H = {horizon:2d}, one kernel per step", each, plain)


def lengths() -> None:
    """Measure the ratio of `steps` after 10^4, 10^5 and 10^6 episodes, and without the split of delta; 5 seeds."""
    for horizon in (3, 6, 12):
        problem = SparseMixture(seed=0, horizon=horizon)
        features, mdp = orl.FeatureMap(problem.phi), problem.mdp
        agents = {
            "stationary": orl.UCRLVTRLin(features=features, norm_bound=1.3),
            "per step": orl.UCRLVTRLin(features=features, norm_bound=1.3, kernel="per_step"),
            "per step, each at delta": orl.UCRLVTRLin(
                features=features, norm_bound=1.3, kernel="per_step", delta=0.05 * (horizon - 1)
            ),
        }
        after = {name: growth(agent, mdp) for name, agent in agents.items()}
        for length, column in enumerate(LENGTHS):
            for name, found in after.items():
                against = None if name == "stationary" else after["stationary"][length]
                line(f"H = {horizon:2d}, {column:9,d} episodes, {name}", found[length], against)


LENGTHS = (10_000, 100_000, 1_000_000)


def growth(agent: Agent, mdp: orl.FiniteMDP) -> Floats:
    """Return the regret after each of LENGTHS, for each of five seeds."""
    found = np.zeros((len(LENGTHS), 5))
    for seed in range(5):
        result: Any = None
        for i, length in enumerate(LENGTHS):
            more = length if result is None else length - LENGTHS[i - 1]
            start: dict[str, Any] = {"seed": seed} if result is None else {"continue_from": result}
            result = orl.run(agent, mdp, episodes=more, progress=False, **start)
            found[i, seed] = result.total_regret
    return found


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


def changing() -> None:
    """Both learners where the kernel changes with the step."""
    for seed in range(3):
        mdp, features = moving_mixture(seed)
        plain, each = (
            regrets(orl.UCRLVTRLin(features=features, norm_bound=1.0, kernel=kernel), mdp, 100_000)
            for kernel in ("stationary", "per_step")
        )
        line(f"instance {seed}, stationary learner", plain)
        line(f"instance {seed}, one kernel per step", each, plain)


def selectors() -> None:
    """ARL-LIN(dim) and (norm) with unknown rewards and with one kernel per step."""
    problem = SparseMixture(seed=0)
    features, mdp = orl.FeatureMap(problem.phi), with_noise(problem, BERNOULLI)
    for name, options in (
        ("neither", {}),
        ("unknown rewards", {"rewards": orl.RewardsPerPair()}),
        ("one kernel per step", {"kernel": "per_step"}),
        ("both", {"rewards": orl.RewardsPerPair(), "kernel": "per_step"}),
    ):
        full = regrets(orl.UCRLVTRLin(features=features, norm_bound=1.3, **options), mdp, 100_000)
        line(f"{name}: all 16 features", full)
        selector = orl.ARLLinDim(features=features, norm_bound=1.3, **options)
        line(f"{name}: ARL-LIN(dim)", regrets(selector, mdp, 100_000), full)
        norm = orl.ARLLinNorm(features=features, norm_bound=100.0, **options)
        line(f"{name}: ARL-LIN(norm), b = 100", regrets(norm, mdp, 100_000), full)


def families() -> None:
    """UCRL-VTR on a family of kernels, and ARL-GEN on a ladder of it."""
    rng = np.random.default_rng(0)
    kernels = rng.dirichlet(0.5 * np.ones(5), size=(60, 5, 3))
    reward = rng.random((5, 3))
    ladder = orl.Ladder([orl.FiniteFamily(kernels[:size]) for size in (1, 6, 20, 60)])
    stationary = orl.FiniteMDP(transition=kernels[4], reward=reward, horizon=6, reward_noise=BERNOULLI)
    moving = orl.FiniteMDP(transition=kernels[[4, 2, 5, 3, 1, 4]], reward=reward, horizon=6, reward_noise=BERNOULLI)
    for where, mdp in (("one kernel", stationary), ("kernels that change", moving)):
        base: Floats | None = None
        for name, options in (
            ("neither", {}),
            ("unknown rewards", {"rewards": orl.RewardsPerPair()}),
            ("one kernel per step", {"kernel": "per_step"}),
            ("both", {"rewards": orl.RewardsPerPair(), "kernel": "per_step"}),
        ):
            found = regrets(orl.UCRLVTR(family=ladder.family, replan=0.1, **options), mdp, 20_000)
            line(f"{where}; {name}: 60 kernels", found, base)
            base = found if base is None else base
            line(f"{where}; {name}: ARL-GEN", regrets(orl.ARLGen(ladder=ladder, replan=0.1, **options), mdp, 20_000))


PARTS: dict[str, Callable[[], None]] = {
    "rewards": rewards,
    "noise": noise,
    "steps": steps,
    "lengths": lengths,
    "changing": changing,
    "selectors": selectors,
    "families": families,
}


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append")
    for part in parser.parse_args().part or PARTS:
        print(f"\n{part}: {PARTS[part].__doc__}")
        PARTS[part]()


if __name__ == "__main__":
    main()
