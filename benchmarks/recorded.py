"""The regret of every episode of many short runs, to compare two versions of the library.

``python -m benchmarks.recorded write FILE`` plays every configuration through the public interface and writes one array
for each; ``python -m benchmarks.recorded compare FILE`` plays them again and names those that differ, with the first
episode in which they do. A configuration whose names or options a version does not have is reported as absent. Called
by its path (``python .../benchmarks/recorded.py``), it plays whatever version ``PYTHONPATH`` leads to. Instances are
drawn here and not by the library, so that they are the same for every version.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import gymnasium as gym
import numpy as np
import scipy.sparse as sp

import occamrl as orl

EPISODES = 300
TOLERANCE = 1e-9
ABSENT = (AttributeError, ImportError, TypeError)  # what a missing name, module or option raises

S, A, H, D = 5, 2, 4, 4
RNG = np.random.default_rng(20)
KERNELS = RNG.dirichlet(np.full(S, 0.5), size=(D, S, A))  # D simulators of S states and A actions
PHI = np.moveaxis(KERNELS, 0, -1)
THETA = np.array([0.0, 0.6, 0.0, 0.4])
WEIGHTS = RNG.dirichlet(np.ones(D), size=H)  # a mixture for each step
REWARD = RNG.random((S, A))
START = np.array([0.5, 0.0, 0.5, 0.0, 0.0])
STARTS: dict[str, Any] = {"horizon": H, "initial_state": START}


def problem(kind: str = "pairs") -> Any:
    """Return a mixture of the kernels (rewards on pairs, noisy, on transitions; one for each step), or a member."""
    if kind == "per_step":
        return orl.FiniteMDP(transition=np.stack([PHI @ w for w in WEIGHTS]), reward=REWARD, **STARTS)
    if kind == "member":
        return orl.FiniteMDP(transition=KERNELS[1], reward=REWARD, **STARTS)
    if kind == "transitions":
        return orl.FiniteMDP(transition=PHI @ THETA, reward=PHI[..., 0], **STARTS)
    mdp = orl.FiniteMDP(transition=PHI @ THETA, reward=REWARD, **STARTS)
    return mdp if kind == "pairs" else mdp.with_reward_noise(bernoulli())


def bernoulli() -> Any:
    """Return Bernoulli rewards; the name was once among the public ones."""
    if hasattr(orl, "BernoulliRewards"):
        return orl.BernoulliRewards()
    from occamrl.problems.mdp import BernoulliRewards

    return BernoulliRewards()


def features(kind: str) -> Any:
    """Return the features of the mixtures, dense or sparse, or those of any kernel."""
    if kind == "tabular":
        return orl.FeatureMap.tabular(states=S, actions=A)
    if kind == "sparse":
        return orl.FeatureMap([sp.csr_array(kernel.reshape(S * A, S)) for kernel in KERNELS])
    return orl.FeatureMap(PHI)


def finite(n: int = D) -> Any:
    """Return the first kernels and the mixture of two as a family."""
    return orl.FiniteFamily(np.concatenate([KERNELS[:n], [PHI @ THETA]]) if n == D else KERNELS[:n])


def cover(most: float) -> Any:
    """Return mixtures of two kernels, up to a weight, on a grid that has the truth between its points."""
    return orl.CoverFamily(lambda p: (1 - p[0]) * KERNELS[1] + p[0] * KERNELS[3], low=[0.0], high=[most], step=0.125)


def linear(n: int) -> Any:
    """Return the mixtures of the first kernels."""
    return orl.LinearFamily(features=orl.FeatureMap(PHI), coordinates=range(n), norm_bound=1.0)


LADDERS: dict[str, Callable[[], Any]] = {  # the classes, or the ladder itself
    "finite": lambda: [finite(1), finite(2), finite()],
    "cover": lambda: [cover(0.25), cover(1.0)],
    "linear": lambda: [linear(1), linear(2), linear(D)],
    "aggregation": lambda: [
        orl.AggregationFamily(partition=[0, 0, 1, 1, 2], actions=A),
        orl.AggregationFamily.tabular(states=S, actions=A),
    ],
    "mixed": lambda: [finite(2), linear(D)],
    "simulators": lambda: orl.Simulators(list(KERNELS)).ladder(most=2, grid=4),
}


def play(name: str, kind: str = "pairs", **options: Any) -> Any:
    """Return the regret of every episode of an agent that is named; functions among its options make them."""
    made = {option: value() if callable(value) else value for option, value in options.items()}
    if "ladder" in made:
        found = LADDERS[made["ladder"]]()
        made["ladder"] = orl.Ladder(found) if isinstance(found, list) else found
    return orl.run(getattr(orl, name)(**made), problem(kind), episodes=EPISODES, seed=3, progress=False).regret


def frozen_lake(ladder: bool) -> Any:
    """Return the return of every episode on FrozenLake: ARL-GEN on its ladder, or single tables, rewards unknown."""
    spec, env = orl.read_ladder("frozen-lake-4x4", horizon=12), gym.make("FrozenLake-v1")
    if ladder:
        agent: Any = orl.ARLGen(ladder=spec.ladder)
        return orl.learn(agent, env, episodes=EPISODES, seed=3, known=spec.known, progress=False).returns
    tables, rewards = orl.FeatureMap.tabular(states=16, actions=4), orl.RewardsPerPair()
    agent = orl.UCRLVTRLin(features=tables, norm_bound=4.0, rewards=rewards)
    return orl.learn(agent, env, episodes=EPISODES, seed=3, horizon=12, progress=False).returns


WEIGHTED = ("range", "none")
KINDS = ("dense", "sparse", "tabular")
ON: dict[str, dict[str, Any]] = {kind: {"features": partial(features, kind), "norm_bound": 1.0} for kind in KINDS}
ON["tabular"]["norm_bound"] = math.sqrt(S * A * S)
REWARDS: dict[str, Callable[[], Any]] = {
    "per_pair": lambda: orl.RewardsPerPair(),
    "hoeffding": lambda: orl.RewardsPerPair(bound="hoeffding", per_step=True),
    "linear": lambda: orl.RewardsLinear(features=np.stack([REWARD, 1 - REWARD], axis=-1), norm_bound=1.0),
}
EXTENSIONS: list[tuple[str, str, dict[str, Any]]] = [  # name, kind of problem, options
    *((f"rewards={name}", "noisy", {"rewards": reward}) for name, reward in REWARDS.items()),
    ("per_step", "per_step", {"kernel": "per_step"}),
    ("both", "noisy", {"kernel": "per_step", "rewards": REWARDS["per_pair"]}),
    ("transitions", "transitions", {}),
]
LINEAR = ("UCRLVTRLin", "ARLLinDim", "ARLLinNorm", "ARLLin")
SWITCHES: list[dict[str, Any]] = [{}, {"safe": True}, {"guard": True}, {"scale": 0.02}, {"scale": 0.02, "guard": True}]


def configurations() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of every configuration and what plays it."""
    radii = ("sharp", "paper", "unweighted", "ayoub")
    for kind, radius, weight, replan in product(KINDS, radii, WEIGHTED, (0.0, 0.2)):
        chosen: Any = {"radius": radius, "weights": weight, "replan": replan}
        yield f"UCRLVTRLin {kind} {radius} {weight} {replan}", partial(play, "UCRLVTRLin", **ON[kind], **chosen)
    for (radius, weight), replan in product(zip(radii[:3], ("range", "none", "none"), strict=True), (0.0, 0.2)):
        chosen = {"radius": radius, "replan": replan}
        yield f"UCRLVTR {radius} {weight} {replan}", partial(play, "UCRLVTR", family=finite, **chosen)
    yield "UCRLVTR cover", partial(play, "UCRLVTR", family=partial(cover, 1.0))
    common: dict[str, dict[str, Any]] = {**dict.fromkeys(LINEAR, ON["dense"]), "UCRLVTR": {"family": finite}}
    for (name, given), (what, kind, options) in product(common.items(), EXTENSIONS):
        yield f"{name} {what}", partial(play, name, kind, **given, **options)
    for name, kind in product(LINEAR[1:], ("dense", "sparse")):
        yield f"{name} {kind}", partial(play, name, **ON[kind])
    for ladder, switch in product(LADDERS, SWITCHES):
        text = " ".join(f"{key}={value}" for key, value in switch.items()) or "defaults"
        yield f"ARLGen {ladder} {text}", partial(play, "ARLGen", ladder=ladder, **switch)
    for ladder, (what, kind, options) in product(("finite", "linear"), EXTENSIONS):
        yield f"ARLGen {ladder} {what}", partial(play, "ARLGen", kind, ladder=ladder, **options)
    yield "ARLGen finite member", partial(play, "ARLGen", "member", ladder="finite")
    for acting, scope in product(("optimism", "sampling"), ("smallest", "all")):
        yield f"Occam {acting} {scope}", partial(play, "Occam", ladder="finite", acting=acting, scope=scope)
    yield "Optimal", partial(play, "Optimal", mdp=problem)
    yield "Greedy", partial(play, "Greedy", features=partial(features, "dense"))
    for name in ("UniformRandom", "PSRL", "RLSVI"):
        yield name, partial(play, name)
    for name in ("UCBVI", "QLearningUCB"):
        yield name, partial(play, name, episodes=EPISODES)
    yield "learn ladder", partial(frozen_lake, True)
    yield "learn rewards", partial(frozen_lake, False)


def recorded() -> dict[str, Any]:
    """Play every configuration that this version has."""
    arrays = {}
    for name, run in configurations():
        try:
            arrays[name] = np.asarray(run())
        except ABSENT as error:
            print(f"absent: {name}: {error}")
        except orl.OccamRLError as error:
            print(f"refused: {name}: {error}")
    return arrays


def compare(before: Any, now: dict[str, Any]) -> int:
    """Print which configurations differ and from which episode on; return how many."""
    different = 0
    for name in sorted(set(before) & set(now)):
        old, new = before[name], now[name]
        apart = ~np.isclose(old, new, rtol=0.0, atol=TOLERANCE, equal_nan=True) if old.shape == new.shape else [True]
        if np.any(apart):
            different += 1
            print(f"different: {name}: from episode {int(np.argmax(apart))} on, {old.sum():.6g} and {new.sum():.6g}")
    for name in sorted(set(before) ^ set(now)):
        print(f"only {'before' if name in before else 'now'}: {name}")
    print(f"{len(set(before) & set(now))} configurations in both, {different} different")
    return different


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["write", "compare"])
    parser.add_argument("file")
    options = parser.parse_args()
    if options.what == "compare":
        with np.load(options.file) as stored:
            sys.exit(compare(dict(stored), recorded()) > 0)
    arrays = recorded()
    np.savez_compressed(options.file, **arrays)
    print(f"{len(arrays)} configurations of {EPISODES} episodes in {options.file}")
