"""The means that version 2 had, beside those of now: total regret of many configurations.

    python -m studies.recorded                   plays them all, twenty seeds each: ten minutes
    python -m studies.recorded --only Occam      those whose name contains a text

``data/version-2.json`` has the regret of every seed of version 0.2.0, which drew other random
numbers: means must agree up to chance. A configuration differs where a Welch test and a rank test
both say so at level 0.05 divided by the number of configurations (Bonferroni); where nothing is
random, by value.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from scipy import stats

import occamrl as orl
from occamrl.protocols import Floats, Problem
from studies.ladders import river_ladder, swim

DATA = Path(__file__).with_name("data") / "version-2.json"
Options = Any  # of classes of the package, of all kinds
Played = tuple[orl.Learner, orl.FiniteMDP | Problem]  # who plays what
SAMPLING: Options = {"acting": "sampling"}
ALL: Options = {"scope": "all"}
BERNOULLI: Options = {"reward_noise": "bernoulli"}

# ---- problems ------------------------------------------------------------------------------------

PROBLEMS: dict[str, tuple[str, Options]] = {
    "river": ("river-swim", {"states": 5}),
    "mixture": ("sparse-mixture", {}),
    "noisy mixture": ("sparse-mixture", BERNOULLI),
    "sparse ladder": ("sparse-ladder", {}),  # 1 < 17 < 129 < 577 kernels, m* = 3
    "half ice": (
        "patchy-ice",
        {"slip": (0.1, 0.0), "levels": (0.0, 0.1), "horizon": 30, "rows": 4},
    ),
    "ice": ("patchy-ice", {}),
    "ice in halves": ("patchy-ice", {"slip": (0.1, 0.0)}),
    "ice outside": ("patchy-ice", {"slip": (0.2,)}),
    "prices": (
        "pricing",
        {"stock": 5, "prices": 6, "horizon": 12, "demand": (0.6, 0.6, 0.6, 0.3, 0.05, 0.05)},
    ),
}


@cache
def problem(name: str) -> Any:
    """Return a problem of the package."""
    kind, parameters = PROBLEMS[name]
    return orl.make_problem(kind, **parameters)


@cache
def one_hot() -> orl.FeatureMap:
    return orl.FeatureMap.tabular(states=5, actions=2)


@cache
def mixture_features() -> orl.FeatureMap:
    return orl.FeatureMap(problem("mixture").phi)


@cache
def random_kernels() -> Floats:
    return np.random.default_rng(3).dirichlet(np.ones(5), size=(60, 5, 3))


def random_ladder() -> orl.Ladder:
    kernels = random_kernels()
    return orl.Ladder([orl.FiniteFamily(kernels[:n]) for n in (1, 6, 20, 60)])


def random_mdp(members: int | range = 4, **options: Options) -> orl.FiniteMDP:
    reward = np.random.default_rng(4).random((5, 3))
    return orl.FiniteMDP(transition=random_kernels()[members], reward=reward, horizon=6, **options)


ANYWHERE: Options = {"initial_state": np.full(5, 0.2)}


def own_river(*, by_outcome: bool = False, **options: Options) -> orl.FiniteMDP:
    """RiverSwim from arrays; rewards on (s, a), or on transitions (s, a, s')."""
    states = 5
    P = np.zeros((states, 2, states))
    for s in range(states):
        P[s, 0, max(s - 1, 0)] = 1.0
        np.add.at(P[s, 1], [min(s + 1, states - 1), max(s - 1, 0), s], [0.35, 0.05, 0.6])
    if by_outcome:
        reward = np.zeros((states, 2, states))
        reward[0, 0, 0] = 0.05
        reward[states - 2, 1, states - 1] = 1.0  # for arriving
        reward[states - 1, 1, states - 1] = 0.9  # for staying
    else:
        reward = np.zeros((states, 2))
        reward[0, 0] = 0.05
        reward[-1, 1] = 1.0
    return orl.FiniteMDP(transition=P, reward=reward, horizon=20, **options)


@cache
def simulators() -> orl.Simulators:
    """Twelve rivers with a guess of the current in each of 8 states; docs/simulators.md."""
    rng = np.random.default_rng([0, 1])

    def guess() -> Floats:
        up = rng.uniform(0.1, 0.6, 8)
        down = rng.uniform(0.05, 0.35, 8)
        P = np.zeros((8, 2, 8))
        for s in range(8):
            below = max(s - 1, 0)
            above = min(s + 1, 7)
            P[s, 0, below] = 1.0
            np.add.at(P[s, 1], [above, below, s], [up[s], down[s], 1 - up[s] - down[s]])
        return P

    return orl.Simulators([guess() for _ in range(12)])


def simulated_river() -> orl.FiniteMDP:
    reward = np.zeros((8, 2))
    reward[0, 0] = 0.05
    reward[-1, 1] = 1.0
    truth = simulators().features.kernel([0, 0, 0, 0.6, 0, 0, 0, 0, 0.4, 0, 0, 0])
    return orl.FiniteMDP(transition=truth, reward=reward, horizon=32)


def changing_both() -> Played:
    """A different mixture of three kernels at each of 5 steps; docs/learners.md."""
    rng = np.random.default_rng(0)
    kernels = rng.dirichlet(np.ones(4), size=(3, 4, 2))
    weights = rng.dirichlet(np.ones(3), size=5)
    phi = np.moveaxis(kernels, 0, -1)
    transition = np.stack([phi @ w for w in weights])
    mdp = orl.FiniteMDP(transition=transition, reward=rng.random((4, 2)), horizon=5, **BERNOULLI)
    return unknown(lin(orl.FeatureMap(phi), 1.0, delta=0.025, kernel="per_step")), mdp


@cache
def gym_ladder() -> orl.Ladder:
    """No slip < the same to both sides < any slip: 1, 11 and 231 models."""
    ladder: orl.Ladder = orl.read_ladder("frozen-lake-4x4", horizon=50).ladder
    return ladder


def gym_lake() -> orl.FiniteMDP:
    """Gymnasium's own table, with the actions' slips of 1/3."""
    environment: Any = gym.make("FrozenLake-v1", map_name="4x4").unwrapped
    return orl.FiniteMDP(outcomes=environment.P, horizon=50)


def switch_kernel(p: float) -> Floats:
    """Two states; action 1 leads from the first to the second, which pays, with probability p."""
    return np.array([[[0.5, 0.5], [1.0 - p, p]], [[0.5, 0.5], [0.1, 0.9]]])


def switch_ladder() -> orl.Ladder:
    """So far apart that the paper's own radius and threshold reject the wrong ones in time."""
    kernels = np.stack([switch_kernel(p) for p in (1.0, 0.9, 0.5, 0.2, 0.05)])
    return orl.Ladder([orl.FiniteFamily(kernels[:n]) for n in (1, 2, 5)])


def switch() -> orl.FiniteMDP:
    return orl.FiniteMDP(
        transition=switch_kernel(0.05), reward=np.array([[0.0, 0.0], [1.0, 1.0]]), horizon=4
    )


# ---- agents --------------------------------------------------------------------------------------


def unknown(agent: orl.Learner) -> orl.Learner:
    """Return an agent that has to estimate the rewards, per (s, a)."""
    return orl.RewardsPerPair(agent=agent)


def lin(
    features: orl.FeatureMap | None = None,
    norm_bound: float = 1.3,
    kind: Callable[..., orl.Learner] = orl.UCRLVTRLin,
    **options: Options,
) -> orl.Learner:
    return kind(features=features or mixture_features(), norm_bound=norm_bound, **options)


def river_lin(**options: Options) -> orl.Learner:
    return lin(one_hot(), float(np.sqrt(10)), **options)


def listed(**options: Options) -> orl.Learner:
    return orl.UCRLVTR(family=orl.FiniteFamily(random_kernels()), **options)


def members(ladder: orl.Ladder) -> orl.Learner:
    return orl.PSRL(ladder=orl.Ladder([ladder.family_of(ladder.classes)]))


def selected(
    kind: Callable[..., orl.Learner], name: str, truth: str = "", **options: Options
) -> Played:
    """Return a selector on the ladder of a problem, and the problem or another truth."""
    return kind(ladder=orl.Ladder.of_problem(problem(name)), **options), problem(truth or name)


def gen(*names: str, **options: Options) -> Played:
    return selected(orl.ARLGen, *names, **options)


def occam(*names: str, **options: Options) -> Played:
    return selected(orl.Occam, *names, **options)


def mixed(**options: Options) -> Played:
    return lin(**options), problem("mixture")


def swum(agent: orl.Learner) -> Played:
    return agent, problem("river")


def arena(rule: orl.Rule) -> Played:
    """A rule over three bases on RiverSwim: PSRL, a scaled UCRL-VTR-LIN, random play."""
    return swum(orl.Arena(bases=[orl.PSRL(), river_lin(scale=0.1), orl.UniformRandom()], rule=rule))


# ---- the table -----------------------------------------------------------------------------------

CONFIGURATIONS: dict[str, tuple[int, Callable[[], Played]]] = {
    # linear learners
    "UCRLVTRLin river-swim one-hot": (2_000, lambda: swum(river_lin())),
    "UCRLVTRLin sparse-mixture": (10_000, lambda: mixed()),
    "UCRLVTRLin sparse-mixture unknown rewards": (
        5_000,
        lambda: (unknown(lin(delta=0.025)), problem("noisy mixture")),
    ),
    "UCRLVTRLin sparse-mixture per step": (5_000, lambda: mixed(kernel="per_step")),
    "UCRLVTRLin changing mixture per step unknown rewards": (2_000, lambda: changing_both()),
    "UCRLVTRLin own river random start": (2_000, lambda: (river_lin(), own_river(**ANYWHERE))),
    "UCRLVTRLin own river rewards on transitions": (
        2_000,
        lambda: (river_lin(), own_river(by_outcome=True)),
    ),
    "UCRLVTRLin simulators": (1_500, lambda: (lin(simulators().features, 1.0), simulated_river())),
    "Greedy river-swim": (2_000, lambda: swum(orl.Greedy(features=one_hot()))),
    "UniformRandom river-swim": (500, lambda: swum(orl.UniformRandom())),
    # selection of features and norms
    "ARLLinDim sparse-mixture": (10_000, lambda: mixed(kind=orl.ARLLinDim)),
    "ARLLinNorm sparse-mixture b=100": (
        10_000,
        lambda: mixed(kind=orl.ARLLinNorm, norm_bound=100.0),
    ),
    "ARLLin sparse-mixture b=100": (10_000, lambda: mixed(kind=orl.ARLLin, norm_bound=100.0)),
    "ARLLinDim sparse-mixture unknown rewards": (
        5_000,
        lambda: (unknown(lin(kind=orl.ARLLinDim, delta=0.025)), problem("noisy mixture")),
    ),
    # finite families
    "UCRLVTR random list": (5_000, lambda: (listed(), random_mdp())),
    "UCRLVTR random list random start": (5_000, lambda: (listed(), random_mdp(**ANYWHERE))),
    "UCRLVTR random list unknown rewards": (
        3_000,
        lambda: (unknown(listed(delta=0.025)), random_mdp(**BERNOULLI)),
    ),
    "UCRLVTR random list per step": (
        2_000,
        lambda: (listed(kernel="per_step"), random_mdp(range(6))),
    ),
    # ladders: ARL-GEN
    "ARLGen sparse-ladder 2 nonzero": (2_000, lambda: gen("sparse ladder")),
    "ARLGen sparse-ladder safe": (2_000, lambda: gen("sparse ladder", **ALL)),
    "ARLGen ice m*=2": (1_000, lambda: gen("half ice")),
    "ARLGen pricing (blind)": (254, lambda: gen("prices")),
    "ARLGen pricing safe": (254, lambda: gen("prices", **ALL)),
    "ARLGen aggregations of zones": (
        1_000,
        lambda: (orl.ARLGen(ladder=river_ladder(12, (2, 4, 12))), swim(12, 24, 4)),
    ),
    "ARLGen random ladder unknown rewards": (
        3_000,
        lambda: (unknown(orl.ARLGen(ladder=random_ladder(), delta=0.025)), random_mdp(**BERNOULLI)),
    ),
    "ARLGen whole ice misspecified": (500, lambda: gen("ice", "ice outside")),
    "ARLGen gymnasium FrozenLake table": (
        500,
        lambda: (orl.ARLGen(ladder=gym_ladder()), gym_lake()),
    ),
    # ladders: Occam
    "Occam sparse-ladder 2 nonzero": (2_000, lambda: occam("sparse ladder")),
    "Occam sparse-ladder all": (2_000, lambda: occam("sparse ladder", **ALL)),
    "Occam sparse-ladder sampling": (2_000, lambda: occam("sparse ladder", **SAMPLING)),
    "Occam sparse-ladder sampling all": (2_000, lambda: occam("sparse ladder", **SAMPLING, **ALL)),
    "Occam ice": (1_000, lambda: occam("half ice")),
    "Occam ice sampling all": (1_000, lambda: occam("half ice", **SAMPLING, **ALL)),
    "Occam whole ice m*=2": (400, lambda: occam("ice in halves")),
    "Occam gymnasium FrozenLake table": (500, lambda: (orl.Occam(ladder=gym_ladder()), gym_lake())),
    "Occam pricing all": (254, lambda: occam("prices", **ALL)),
    "Occam random ladder unknown rewards": (
        2_000,
        lambda: (unknown(orl.Occam(ladder=random_ladder(), delta=0.025)), random_mdp(**BERNOULLI)),
    ),
    "Occam random ladder random start": (
        2_000,
        lambda: (orl.Occam(ladder=random_ladder()), random_mdp(**ANYWHERE)),
    ),
    "Occam whole ice misspecified": (500, lambda: occam("ice", "ice outside")),
    "Occam whole ice misspecified sampling all": (
        500,
        lambda: occam("ice", "ice outside", **SAMPLING, **ALL),
    ),
    "OccamMixture simulators": (
        1_000,
        lambda: (orl.OccamMixture(features=simulators().features), simulated_river()),
    ),
    # posterior sampling
    "PSRL Dirichlet river-swim": (2_000, lambda: swum(orl.PSRL())),
    "PSRL Dirichlet own river rewards on transitions": (
        2_000,
        lambda: (orl.PSRL(), own_river(by_outcome=True)),
    ),
    "PSRL gymnasium FrozenLake table members": (500, lambda: (members(gym_ladder()), gym_lake())),
    "PSRL Dirichlet unknown rewards": (
        2_000,
        lambda: (unknown(orl.PSRL()), own_river(**BERNOULLI)),
    ),
    "PSRL ice members": (
        1_000,
        lambda: (members(orl.Ladder.of_problem(problem("half ice"))), problem("half ice")),
    ),
    # other learners
    "UCBVI river-swim scale 0.1": (2_000, lambda: swum(orl.UCBVI(episodes=2_000, scale=0.1))),
    "RLSVI river-swim scale 0.01": (2_000, lambda: swum(orl.RLSVI(scale=0.01))),
    "QLearningUCB river-swim scale 0.01": (
        2_000,
        lambda: swum(orl.QLearningUCB(episodes=2_000, scale=0.01)),
    ),
    "UCRLVTRPlus sparse-mixture scale 0.003": (
        400,
        lambda: mixed(kind=orl.UCRLVTRPlus, scale=0.003),
    ),
    # rules over learners
    "Arena D3RB river-swim scaled": (1_000, lambda: arena(orl.D3RB(scale=0.1, coefficient=0.03))),
    "Arena ED2RB river-swim scaled": (1_000, lambda: arena(orl.ED2RB(scale=0.1, coefficient=0.03))),
    "Arena RegretBalancing river-swim": (1_000, lambda: arena(orl.RegretBalancing())),
    "Arena StochasticCORRAL river-swim": (
        1_000,
        lambda: arena(orl.StochasticCORRAL(episodes=1_000)),
    ),
    "Arena UCB1 river-swim": (1_000, lambda: arena(orl.UCB1())),
    "Arena ECE river-swim": (1_000, lambda: arena(orl.ECE(promised=(0.1, 0.5, 1.0)))),
    # the paper to the letter
    "paper UCRLVTR switch": (
        2_000,
        lambda: (orl.paper.UCRLVTR(family=switch_ladder().family_of(3)), switch()),
    ),
    "paper ARLGen switch": (2_000, lambda: (orl.paper.ARLGen(ladder=switch_ladder()), switch())),
    "paper UCRLVTRLin sparse-mixture": (300, lambda: mixed(kind=orl.paper.UCRLVTRLin)),
    "paper ARLLinDim sparse-mixture": (300, lambda: mixed(kind=orl.paper.ARLLinDim)),
    "paper ARLLinNorm sparse-mixture b=10": (
        300,
        lambda: mixed(kind=orl.paper.ARLLinNorm, norm_bound=10.0),
    ),
}


def compare(old: list[float], new: list[float]) -> float:
    """Return the larger p-value of a Welch test and a rank test.

    Of numbers that do not vary, 1 if they are equal.
    """
    if np.ptp(old) < 1e-9 and np.ptp(new) < 1e-9:
        return float(np.isclose(old[0], new[0], atol=1e-6))  # the file has six decimals
    welch = stats.ttest_ind(old, new, equal_var=False).pvalue
    return float(max(welch, stats.mannwhitneyu(old, new).pvalue))


def regrets(name: str, seeds: range) -> list[float]:
    """Return the regret of a configuration with every seed, in the unit that version 2 had."""
    episodes, make = CONFIGURATIONS[name]
    agent, problem = make()
    totals = []
    for seed in seeds:
        result = orl.run(agent, problem, episodes=episodes, seed=seed, progress=False)
        totals.append(float(result.total_regret) / result.known.unit.scale)
    return totals


def mean_text(values: list[float]) -> str:
    """Return a mean with its standard error."""
    return f"{np.mean(values):,.4g} +- {stats.sem(values):.2g}"


def main() -> int:
    """Play, compare, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="those whose name contains this")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the regret of every seed there, as JSON")
    options = parser.parse_args()
    before = json.loads(DATA.read_text())
    names = [name for name in CONFIGURATIONS if options.only in name]
    now = {}
    worse = []
    print(f"{'configuration':<56} {'K':>6} {'version 2':>20} {'now':>20} {'p':>8} {'s':>6}")
    for name in names:
        began = time.process_time()
        new = regrets(name, range(options.first_seed, options.first_seed + options.seeds))
        old = before[name]["regret"]
        now[name] = new
        p = compare(old, new)
        verdict = ""
        if p < 0.05 / len(CONFIGURATIONS):
            verdict = " better"
            if np.mean(new) > np.mean(old):
                verdict = " worse"
                worse.append(name)
        figures = f"{mean_text(old):>20} {mean_text(new):>20} {p:>8.2g}"
        spent = time.process_time() - began
        print(
            f"{name:<56} {CONFIGURATIONS[name][0]:>6,} {figures} {spent:>6.1f}{verdict}", flush=True
        )
        if options.out:
            options.out.write_text(json.dumps(now))
    summary = f"{len(names)} configurations, {len(worse)} worse than chance explains"
    print(summary, *worse, sep="\n  ")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
