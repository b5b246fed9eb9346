"""The means that version 2 had, beside those of now: total regret of many configurations, twenty seeds each.

    python -m studies.recorded                   # plays them all and prints the table (about ten minutes)
    python -m studies.recorded --only Occam      # those whose name contains a text

``data/version-2.json`` has the regret of every seed of version 0.2.0, which drew other random numbers: means must agree
up to chance. A configuration differs where a Welch test and a rank test both say so at level 0.05 divided by the number
of configurations (Bonferroni); where nothing is random, by value.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import occamrl as orl

DATA = Path(__file__).with_name("data") / "version-2.json"
SAMPLING: Any = {"acting": "sampling"}
ALL: Any = {"scope": "all"}
BERNOULLI: Any = {"reward_noise": "bernoulli"}


def problem(name: str, **parameters: Any) -> Any:
    """Return a problem of the package."""
    return orl.make_problem(name, **parameters)


def ladder_of(problem: Any) -> orl.Ladder:
    """Return the ladder that a problem brings along."""
    return orl.Ladder.of_problem(problem)


def class_of(ladder: orl.Ladder, m: int) -> Any:
    """Return class m of a ladder, from 1; -1 is the last."""
    return ladder.family_of(ladder.classes if m < 0 else m)


def unknown(agent: Any, **more: Any) -> Any:
    """Return an agent that has to estimate the rewards, per (s, a)."""
    return orl.RewardsPerPair(agent=agent, **more)


# ---- problems ------------------------------------------------------------------------------------------------------


@cache
def river(states: Any = 5, **more: Any) -> Any:
    return problem("river-swim", states=states, **more)


@cache
def one_hot(states: Any = 5, actions: Any = 2) -> Any:
    return orl.FeatureMap.tabular(states=states, actions=actions)


@cache
def mixture(**more: Any) -> Any:
    return problem("sparse-mixture", seed=0, **more)


@cache
def mixture_noisy() -> Any:
    return mixture(**BERNOULLI)


@cache
def mixture_features() -> Any:
    return orl.FeatureMap(mixture().phi)


@cache
def random_kernels(count: Any = 60, states: Any = 5, actions: Any = 3, seed: Any = 3) -> Any:
    """Kernels of a list of models; index 0, 1, ... with rewards that random_mdp() uses."""
    return np.random.default_rng(seed).dirichlet(np.ones(states), size=(count, states, actions))


def random_ladder() -> Any:
    kernels = random_kernels()
    return orl.Ladder([orl.FiniteFamily(kernels[:n]) for n in (1, 6, 20, 60)])


def random_mdp(member: Any = 4, *, start: Any = 0, noise: Any = False, changing: Any = False) -> Any:
    kernels = random_kernels()
    reward = np.random.default_rng(4).random((5, 3))
    truth = np.stack([kernels[h % 6] for h in range(6)]) if changing else kernels[member]
    more: Any = BERNOULLI if noise else {}
    return orl.FiniteMDP(transition=truth, reward=reward, horizon=6, initial_state=start, **more)


def anywhere(states: Any) -> Any:
    return np.full(states, 1.0 / states)


def own_river(*, states: Any = 5, horizon: Any = 20, start: Any = 0, by_outcome: Any = False, **more: Any) -> Any:
    """RiverSwim from arrays; rewards on (s, a), or on transitions (s, a, s')."""
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
        reward[0, 0], reward[-1, 1] = 0.05, 1.0
    return orl.FiniteMDP(transition=P, reward=reward, horizon=horizon, initial_state=start, **more)


@cache
def simulators() -> Any:
    """Twelve rivers with a guess of the current in each of 8 states; docs/simulators.md."""
    rng = np.random.default_rng([0, 1])

    def guess() -> Any:
        up, down, P = rng.uniform(0.1, 0.6, 8), rng.uniform(0.05, 0.35, 8), np.zeros((8, 2, 8))
        for s in range(8):
            below, above = max(s - 1, 0), min(s + 1, 7)
            P[s, 0, below] = 1.0
            np.add.at(P[s, 1], [above, below, s], [up[s], down[s], 1 - up[s] - down[s]])
        return P

    return orl.Simulators([guess() for _ in range(12)])


def simulated_river() -> Any:
    reward = np.zeros((8, 2))
    reward[0, 0], reward[-1, 1] = 0.05, 1.0
    truth = simulators().features.kernel([0, 0, 0, 0.6, 0, 0, 0, 0, 0.4, 0, 0, 0])
    return orl.FiniteMDP(transition=truth, reward=reward, horizon=32)


def changing_mixture(*, noise: Any = False) -> Any:
    """A different mixture of three kernels at each of 5 steps; docs/extensions.md. Returns features and problem."""
    rng = np.random.default_rng(0)
    kernels = rng.dirichlet(np.ones(4), size=(3, 4, 2))
    weights = rng.dirichlet(np.ones(3), size=5)
    phi = np.moveaxis(kernels, 0, -1)
    more: Any = BERNOULLI if noise else {}
    transition = np.stack([phi @ w for w in weights])
    mdp = orl.FiniteMDP(transition=transition, reward=rng.random((4, 2)), horizon=5, **more)
    return orl.FeatureMap(phi), mdp


@cache
def ice(slip: Any = (0.1, 0.0)) -> Any:
    """Half of the lake, 2 < 4 < 16 < 256 models; docs/problems/patchy-ice.md."""
    return problem("patchy-ice", slip=slip, levels=(0.0, 0.1), horizon=30, rows=4)


@cache
def whole_ice(slip: Any = (0.1,)) -> Any:
    return problem("patchy-ice", slip=slip)


@cache
def lake(slip: Any = (6, 6)) -> Any:
    return problem("frozen-lake", map_name="4x4", slip=slip)


@cache
def gym_ladder(horizon: Any = 50) -> Any:
    """No slip < the same to both sides < any slip: 1, 11 and 231 models."""
    return orl.read_ladder("frozen-lake-4x4", horizon=horizon).ladder


def gym_lake(horizon: Any = 50) -> Any:
    """Gymnasium's own table, with the actions' slips of 1/3."""
    import gymnasium as gym

    environment: Any = gym.make("FrozenLake-v1", map_name="4x4").unwrapped
    return orl.FiniteMDP(outcomes=environment.P, horizon=horizon)


@cache
def desk() -> Any:
    return problem(
        "queue-admission",
        room=6,
        worth=30.0,
        arrivals=(0.1, 0.2, 0.4),
        services=(0.3, 0.3, 0.3),
        arrival_levels=(0.1, 0.2, 0.4),
        service_levels=(0.1, 0.3, 0.5),
    )


@cache
def shop() -> Any:
    return problem("lost-sales", demand="negative-binomial", shelf=10, horizon=14)


@cache
def fleet() -> Any:
    return problem("machine-replacement", hazard=(0.02,) * 8 + (0.4,) * 7)


@cache
def prices() -> Any:
    return problem("pricing", stock=5, prices=6, horizon=12, demand=(0.6, 0.6, 0.6, 0.3, 0.05, 0.05))


@cache
def week() -> Any:
    return problem(
        "weekday-inventory",
        means=(4.0,) * 5 + (9.0, 9.0),
        levels=(2.0, 4.0, 9.0),
        shelf=12,
        margin=4.0,
        holding=1.0,
        fixed=3.0,
    )


@cache
def pendulum() -> Any:
    return problem("pendulum", resolution=8, horizon=10)


@cache
def sparse_ladder(nonzero: Any = 2) -> Any:
    """1 < 17 < 129 < 577 kernels; two non-zero coordinates are class 3, three class 4."""
    return problem("sparse-ladder", nonzero=nonzero)


def zones_ladder() -> Any:
    """Aggregations of a river with 12 states, 4 zones; docs/selection-ladders.md."""
    zones = small_zones()
    classes = [orl.AggregationFamily(partition=zones.partition(n), moves=zones.moves) for n in (2, 4, 12)]
    return orl.Ladder(classes)


@cache
def small_zones() -> Any:
    return problem("river-zones", states=12, horizon=24, zones=4)


def line_kernel(parameters: Any) -> Any:
    """A telephone line: (p, q, how much q falls per caller) -> P[s, a, s']; docs/your-own-family.md."""
    p, q, fall = parameters
    P = np.zeros((7, 2, 7))
    for n in range(7):
        for is_open in (0, 1):
            up = p if is_open and n < 6 else 0.0
            down = q - fall * n if n else 0.0
            if n < 6:
                P[n, is_open, n + 1] = up
            if n:
                P[n, is_open, n - 1] = down
            P[n, is_open, n] += 1.0 - up - down
    return P


def line() -> Any:
    """Rewards on transitions, from -4 to 5 EUR mapped to [0, 1]."""
    amount = np.zeros((7, 2, 7))
    for n in range(7):
        amount[n] -= max(n - 2, 0)
        if n < 6:
            amount[n, 1, n + 1] += 5.0
    reward = (amount - amount.min()) / (amount.max() - amount.min())
    return orl.FiniteMDP(transition=line_kernel((0.3, 0.5, 0.05)), reward=reward, horizon=40)


def switch_kernel(p: Any) -> Any:
    """Two states; action 1 leads from the first to the second, which pays, with probability p."""
    return np.array([[[0.5, 0.5], [1.0 - p, p]], [[0.5, 0.5], [0.1, 0.9]]])


def switch_ladder() -> Any:
    """So far apart that the paper's own radius and threshold reject the wrong ones within 2,000 episodes."""
    kernels = np.stack([switch_kernel(p) for p in (1.0, 0.9, 0.5, 0.2, 0.05)])
    return orl.Ladder([orl.FiniteFamily(kernels[:n]) for n in (1, 2, 5)])


def switch() -> Any:
    return orl.FiniteMDP(transition=switch_kernel(0.05), reward=np.array([[0.0, 0.0], [1.0, 1.0]]), horizon=4)


# ---- agents --------------------------------------------------------------------------------------------------------


def lin(features: Any = None, norm_bound: Any = 1.3, **more: Any) -> Any:
    return orl.UCRLVTRLin(features=mixture_features() if features is None else features, norm_bound=norm_bound, **more)


def river_lin(**more: Any) -> Any:
    return lin(one_hot(), float(np.sqrt(10)), **more)


def gen(problem: Any, **more: Any) -> Any:
    return orl.ARLGen(ladder=ladder_of(problem), **more)


def occam(problem: Any, **more: Any) -> Any:
    return orl.Occam(ladder=ladder_of(problem), **more)


def arena(rule: Any) -> Any:
    """A rule over three bases on RiverSwim: PSRL, a scaled UCRL-VTR-LIN, random play."""
    return orl.Arena(bases=[orl.PSRL(), river_lin(scale=0.1), orl.UniformRandom()], rule=rule)


# ---- the table -----------------------------------------------------------------------------------------------------

CONFIGURATIONS: dict[str, Any] = {
    # linear learners
    "UCRLVTRLin river-swim one-hot": (2_000, lambda: (river_lin(), river())),
    "UCRLVTRLin sparse-mixture": (10_000, lambda: (lin(), mixture())),
    "UCRLVTRLin sparse-mixture unknown rewards": (
        5_000,
        lambda: (unknown(lin(delta=0.025)), mixture_noisy()),
    ),
    "UCRLVTRLin sparse-mixture per step": (5_000, lambda: (lin(kernel="per_step"), mixture())),
    "UCRLVTRLin changing mixture per step unknown rewards": (2_000, lambda: changing_both()),
    "UCRLVTRLin own river random start": (2_000, lambda: (river_lin(), own_river(start=anywhere(5)))),
    "UCRLVTRLin own river rewards on transitions": (2_000, lambda: (river_lin(), own_river(by_outcome=True))),
    "UCRLVTRLin simulators": (1_500, lambda: (lin(simulators().features, 1.0), simulated_river())),
    "Greedy river-swim": (2_000, lambda: (orl.Greedy(features=one_hot()), river())),
    "UniformRandom river-swim": (500, lambda: (orl.UniformRandom(), river())),
    # selection of features and norms
    "ARLLinDim sparse-mixture": (
        10_000,
        lambda: (orl.ARLLinDim(features=mixture_features(), norm_bound=1.3), mixture()),
    ),
    "ARLLinNorm sparse-mixture b=100": (
        10_000,
        lambda: (orl.ARLLinNorm(features=mixture_features(), norm_bound=100.0), mixture()),
    ),
    "ARLLin sparse-mixture b=100": (
        10_000,
        lambda: (orl.ARLLin(features=mixture_features(), norm_bound=100.0), mixture()),
    ),
    "ARLLinDim sparse-mixture unknown rewards": (
        5_000,
        lambda: (unknown(orl.ARLLinDim(features=mixture_features(), norm_bound=1.3, delta=0.025)), mixture_noisy()),
    ),
    # finite families
    "UCRLVTR random list": (5_000, lambda: (orl.UCRLVTR(family=orl.FiniteFamily(random_kernels())), random_mdp())),
    "UCRLVTR random list random start": (
        5_000,
        lambda: (orl.UCRLVTR(family=orl.FiniteFamily(random_kernels())), random_mdp(start=anywhere(5))),
    ),
    "UCRLVTR random list unknown rewards": (
        3_000,
        lambda: (unknown(orl.UCRLVTR(family=orl.FiniteFamily(random_kernels()), delta=0.025)), random_mdp(noise=True)),
    ),
    "UCRLVTR random list per step": (
        2_000,
        lambda: (orl.UCRLVTR(family=orl.FiniteFamily(random_kernels()), kernel="per_step"), random_mdp(changing=True)),
    ),
    # ladders: ARL-GEN
    "ARLGen sparse-ladder 2 nonzero": (2_000, lambda: (gen(sparse_ladder()), sparse_ladder())),
    "ARLGen sparse-ladder safe": (2_000, lambda: (gen(sparse_ladder(), **ALL), sparse_ladder())),
    "ARLGen ice m*=2": (1_000, lambda: (gen(ice()), ice())),
    "ARLGen queue-admission": (254, lambda: (gen(desk()), desk())),
    "ARLGen lost-sales": (510, lambda: (gen(shop()), shop())),
    "ARLGen machine-replacement": (254, lambda: (gen(fleet()), fleet())),
    "ARLGen pricing (blind)": (254, lambda: (gen(prices()), prices())),
    "ARLGen pricing safe": (254, lambda: (gen(prices(), **ALL), prices())),
    "ARLGen aggregations of zones": (1_000, lambda: (orl.ARLGen(ladder=zones_ladder()), small_zones())),
    "ARLGen random ladder unknown rewards": (
        3_000,
        lambda: (unknown(orl.ARLGen(ladder=random_ladder(), delta=0.025)), random_mdp(noise=True)),
    ),
    "ARLGen whole ice misspecified": (500, lambda: (gen(whole_ice()), whole_ice((0.2,)))),
    "ARLGen gymnasium FrozenLake table": (500, lambda: (orl.ARLGen(ladder=gym_ladder()), gym_lake())),
    # ladders: Occam
    "Occam sparse-ladder 2 nonzero": (2_000, lambda: (occam(sparse_ladder()), sparse_ladder())),
    "Occam sparse-ladder all": (2_000, lambda: (occam(sparse_ladder(), **ALL), sparse_ladder())),
    "Occam sparse-ladder sampling": (2_000, lambda: (occam(sparse_ladder(), **SAMPLING), sparse_ladder())),
    "Occam sparse-ladder sampling all": (2_000, lambda: (occam(sparse_ladder(), **SAMPLING, **ALL), sparse_ladder())),
    "Occam ice": (1_000, lambda: (occam(ice()), ice())),
    "Occam ice sampling all": (1_000, lambda: (occam(ice(), **SAMPLING, **ALL), ice())),
    "Occam whole ice m*=2": (400, lambda: (occam(whole_ice((0.1, 0.0))), whole_ice((0.1, 0.0)))),
    "Occam gymnasium FrozenLake table": (
        500,
        lambda: (orl.Occam(ladder=gym_ladder()), gym_lake()),
    ),
    "Occam queue-admission": (254, lambda: (occam(desk()), desk())),
    "Occam lost-sales sampling": (510, lambda: (occam(shop(), **SAMPLING), shop())),
    "Occam machine-replacement": (254, lambda: (occam(fleet()), fleet())),
    "Occam pricing all": (254, lambda: (occam(prices(), **ALL), prices())),
    "Occam weekday-inventory": (254, lambda: (occam(week()), week())),
    "Occam random ladder unknown rewards": (
        2_000,
        lambda: (unknown(orl.Occam(ladder=random_ladder(), delta=0.025)), random_mdp(noise=True)),
    ),
    "Occam random ladder random start": (
        2_000,
        lambda: (orl.Occam(ladder=random_ladder()), random_mdp(start=anywhere(5))),
    ),
    "Occam whole ice misspecified": (500, lambda: (occam(whole_ice()), whole_ice((0.2,)))),
    "Occam whole ice misspecified sampling all": (
        500,
        lambda: (occam(whole_ice(), **SAMPLING, **ALL), whole_ice((0.2,))),
    ),
    "OccamMixture simulators": (1_000, lambda: (orl.OccamMixture(features=simulators().features), simulated_river())),
    "OccamLin sparse-mixture": (2_000, lambda: (orl.OccamLin(features=mixture_features()), mixture())),
    # posterior sampling
    "PSRL Dirichlet river-swim": (2_000, lambda: (orl.PSRL(), river())),
    "PSRL Dirichlet own river rewards on transitions": (2_000, lambda: (orl.PSRL(), own_river(by_outcome=True))),
    "PSRL gymnasium FrozenLake table members": (
        500,
        lambda: (orl.PSRL(family=class_of(gym_ladder(), -1)), gym_lake()),
    ),
    "PSRL Dirichlet unknown rewards": (2_000, lambda: (unknown(orl.PSRL()), own_river(**BERNOULLI))),
    "PSRL ice members": (1_000, lambda: (orl.PSRL(family=class_of(ladder_of(ice()), -1)), ice())),
    "LinPSRL sparse-mixture": (500, lambda: (orl.LinPSRL(features=mixture_features()), mixture())),
    # other learners
    "UCBVI river-swim scale 0.1": (2_000, lambda: (orl.UCBVI(episodes=2_000, scale=0.1), river())),
    "RLSVI river-swim scale 0.01": (2_000, lambda: (orl.RLSVI(scale=0.01), river())),
    "QLearningUCB river-swim scale 0.01": (2_000, lambda: (orl.QLearningUCB(episodes=2_000, scale=0.01), river())),
    "UCRLVTRPlus sparse-mixture scale 0.003": (
        400,
        lambda: (orl.UCRLVTRPlus(features=mixture_features(), norm_bound=1.3, scale=0.003), mixture()),
    ),
    # rules over learners
    "Arena D3RB river-swim scaled": (1_000, lambda: (arena(orl.D3RB(scale=0.1, coefficient=0.03)), river())),
    "Arena ED2RB river-swim scaled": (1_000, lambda: (arena(orl.ED2RB(scale=0.1, coefficient=0.03)), river())),
    "Arena RegretBalancing river-swim": (1_000, lambda: (arena(orl.RegretBalancing()), river())),
    "Arena StochasticCORRAL river-swim": (1_000, lambda: (arena(orl.StochasticCORRAL(episodes=1_000)), river())),
    "Arena UCB1 river-swim": (1_000, lambda: (arena(orl.UCB1()), river())),
    "Arena ECE river-swim": (1_000, lambda: (arena(orl.ECE(promised=(0.1, 0.5, 1.0))), river())),
    # the paper to the letter
    "paper UCRLVTR switch": (2_000, lambda: (orl.paper.UCRLVTR(family=class_of(switch_ladder(), -1)), switch())),
    "paper ARLGen switch": (2_000, lambda: (orl.paper.ARLGen(ladder=switch_ladder()), switch())),
    "paper UCRLVTRLin sparse-mixture": (
        300,
        lambda: (orl.paper.UCRLVTRLin(features=mixture_features(), norm_bound=1.3), mixture()),
    ),
    "paper ARLLinDim sparse-mixture": (
        300,
        lambda: (orl.paper.ARLLinDim(features=mixture_features(), norm_bound=1.3), mixture()),
    ),
    "paper ARLLinNorm sparse-mixture b=10": (
        300,
        lambda: (orl.paper.ARLLinNorm(features=mixture_features(), norm_bound=10.0), mixture()),
    ),
}


def changing_both() -> Any:
    features, mdp = changing_mixture(noise=True)
    return unknown(lin(features, 1.0, delta=0.025, kernel="per_step")), mdp


def compare(old: list[float], new: list[float]) -> float:
    """Return the larger p-value of a Welch test and a rank test; of numbers that do not vary, 1 if equal."""
    if np.ptp(old) < 1e-9 and np.ptp(new) < 1e-9:
        return float(np.isclose(old[0], new[0], atol=1e-6))  # the file has six decimals
    welch = stats.ttest_ind(old, new, equal_var=False).pvalue
    return float(max(welch, stats.mannwhitneyu(old, new).pvalue))


def main() -> int:
    """Play, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="those whose name contains this")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the regret of every seed there, as JSON")
    chosen = parser.parse_args()
    before, found, worse = json.loads(DATA.read_text()), {}, []
    names = [name for name in CONFIGURATIONS if chosen.only in name]
    print(f"{'configuration':<56} {'K':>6} {'version 2':>20} {'now':>20} {'p':>8} {'s':>6}")
    for name in names:
        episodes, make = CONFIGURATIONS[name]
        began = time.process_time()
        agent, target = make()
        seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
        runs = [orl.run(agent, target, episodes=episodes, seed=seed, progress=False) for seed in seeds]
        found[name] = [float(result.total_regret) for result in runs]
        old = before[name]["regret"]
        p = compare(old, found[name])
        sides = [f"{np.mean(each):,.4g} +- {stats.sem(each):.2g}" for each in (old, found[name])]
        flag = ""
        if p < 0.05 / len(CONFIGURATIONS):
            flag = " worse" if np.mean(found[name]) > np.mean(old) else " better"
            worse += [name] if flag == " worse" else []
        spent = time.process_time() - began
        print(f"{name:<56} {episodes:>6,} {sides[0]:>20} {sides[1]:>20} {p:>8.2g} {spent:>6.1f}{flag}", flush=True)
        if chosen.out:
            chosen.out.write_text(json.dumps(found))
    print(f"{len(names)} configurations, {len(worse)} worse than chance explains", *worse, sep="\n  ")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
