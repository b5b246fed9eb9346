"""The paper's rules to the letter (:mod:`occamrl.paper`), measured. Regret is exact.

    python benchmarks/study_paper.py --part dimension   ARL-LIN(dim) on the sparse mixture, against its references
    python benchmarks/study_paper.py --part norm        ARL-LIN(norm) for bounds of 10 and 100
    python benchmarks/study_paper.py --part ladder      the epoch from which on ARL-GEN plays the right class

Plain NumPy and a plan before every episode take half a millisecond to a millisecond an episode. ``--constant`` is c of
M10.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import occamrl as orl
from benchmarks import oracle
from occamrl.problems.mixtures import SparseLadder, SparseMixture
from occamrl.protocols import EpisodeLearner, Floats


def play(learner: EpisodeLearner, mdp: Any, episodes: int, seed: int, name: str) -> tuple[Floats, list[Any]]:
    """Return the regret of every episode, and what an entry of the state was at the beginning of each epoch."""
    uniforms = oracle.environment_uniforms(seed, episodes, mdp.horizon)
    regret, epochs = np.zeros(episodes), dict[int, Any]()
    for k, moment in enumerate(oracle.play(learner, mdp.known, mdp.kernel(), mdp.initial_distribution, uniforms)):
        regret[k] = moment.regret
        epochs.setdefault(moment.state.get("epoch", 0), moment.state.get(name))
    return regret, list(epochs.values())


def line(label: str, learner: EpisodeLearner, mdp: Any, episodes: int, seeds: int, name: str) -> None:
    """Play a learner with several seeds and print a line for each."""
    for seed in range(seeds):
        began = time.perf_counter()
        regret, decided = play(learner, mdp, episodes, seed, name)
        shown = [value.tolist() if isinstance(value, np.ndarray) else value for value in decided]
        seconds = time.perf_counter() - began
        print(f"  {label:<36} seed {seed}: {regret.sum():>12,.1f}  {name} {shown}  {seconds:.0f} s", flush=True)


def dimension(episodes: int, seeds: int, constant: float) -> None:
    """Print ARL-LIN(dim) with its references: all coordinates, and the true support."""
    problem = SparseMixture(seed=0)
    features, bound = orl.FeatureMap(problem.phi), float(np.linalg.norm(problem.theta))
    common: dict[str, Any] = {"norm_bound": bound, "paper_constant": constant}
    print(f"\n{problem}, K = {episodes:,}, c = {constant:g}, support {list(map(int, problem.support))}")
    known = orl.paper.UCRLVTRLin(features=features.restrict(list(problem.support)), **common)
    for label, learner in (
        ("all coordinates", orl.paper.UCRLVTRLin(features=features, **common)),
        ("the true support", known),
        ("ARL-LIN(dim)", orl.paper.ARLLinDim(features=features, **common)),
        ("ARL-LIN(dim), threshold of the box", orl.paper.ARLLinDim(features=features, threshold_epoch="box", **common)),
    ):
        line(label, learner, problem.mdp, episodes, seeds, "active")


def norm(episodes: int, seeds: int, constant: float) -> None:
    """Print ARL-LIN(norm) and the learner that keeps its bound."""
    problem = SparseMixture(seed=0)
    features = orl.FeatureMap(problem.phi)
    print(f"\n{problem}, K = {episodes:,}, c = {constant:g}, norm {np.linalg.norm(problem.theta):.4g}")
    for bound in (10.0, 100.0):
        common: dict[str, Any] = {"features": features, "norm_bound": bound, "paper_constant": constant}
        line(f"b = {bound:g}", orl.paper.UCRLVTRLin(**common), problem.mdp, episodes, seeds, "norm_bound")
        selector = orl.paper.ARLLinNorm(**common, initial_episodes=100)
        line(f"b = {bound:g}, ARL-LIN(norm)", selector, problem.mdp, episodes, seeds, "norm_bound")


def ladder(episodes: int, seeds: int, constant: float) -> None:
    """Print the classes that ARL-GEN plays, epoch by epoch."""
    for m in (2, 3, 4):
        problem = SparseLadder(nonzero=m - 1)
        selector = orl.paper.ARLGen(ladder=orl.Ladder.of_problem(problem))
        line(f"ARL-GEN, m* = {m}", selector, problem.mdp, episodes, seeds, "chosen")


PARTS: dict[str, tuple[Callable[[int, int, float], None], int]] = {
    "dimension": (dimension, 300_000),
    "norm": (norm, 200_000),
    "ladder": (ladder, 2**21 - 2),
}


def main() -> None:
    """Print the parts asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--episodes", type=int)
    parser.add_argument("--constant", type=float, default=1.0)
    options = parser.parse_args()
    for name in options.part or PARTS:
        part, episodes = PARTS[name]
        part(options.episodes or episodes, options.seeds, options.constant)


if __name__ == "__main__":
    main()
