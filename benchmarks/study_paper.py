"""The paper's rules to the letter (:mod:`occamrl.paper`), with c = 1 of M10 and a plan before every episode.

For docs/selection-linear.md and docs/selection-ladders.md (:mod:`benchmarks.figures`). Plain NumPy takes half a
millisecond to a millisecond an episode, so there is one seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import occamrl as orl
from benchmarks import oracle
from benchmarks.figures import Size, number, table
from occamrl.problems.mixtures import ReferenceLadder, ReferenceMixture
from occamrl.protocols import EpisodeLearner


def play(learner: EpisodeLearner, mdp: Any, episodes: int, name: str) -> tuple[str, list[Any]]:
    """Return the regret, and what an entry of the state was at the beginning of each epoch."""
    uniforms = oracle.environment_uniforms(0, episodes, mdp.horizon)
    regret, epochs = 0.0, dict[int, Any]()
    for moment in oracle.play(learner, mdp.known, mdp.kernel(), mdp.initial_distribution, uniforms):
        regret += moment.regret
        epochs.setdefault(moment.state.get("epoch", 0), moment.state.get(name))
    return number(regret), list(epochs.values())


def dimension(size: Size) -> str:
    """Measure ARL-LIN(dim) with its references: all coordinates, and the true support."""
    problem = ReferenceMixture()
    features, bound = orl.FeatureMap(problem.phi), float(np.linalg.norm(problem.theta))
    known = features.restrict(np.flatnonzero(problem.theta).tolist())
    selector: dict[str, Any] = {"features": features, "norm_bound": bound}
    rows = []
    for label, learner in (
        ("all coordinates", orl.paper.UCRLVTRLin(features=features, norm_bound=bound)),
        ("the true support", orl.paper.UCRLVTRLin(features=known, norm_bound=bound)),
        ("ARL-LIN(dim)", orl.paper.ARLLinDim(**selector)),
        ("ARL-LIN(dim), thresholds 0.5^(i+1) of the box", orl.paper.ARLLinDim(**selector, threshold_epoch="box")),
    ):
        regret, active = play(learner, problem.mdp, size.episodes(20_000), "active")
        rows.append((label, regret, ", ".join(str(len(each)) for each in active if each is not None)))
    return table(("K = 20,000, one seed", "regret", "coordinates in play, epoch by epoch"), rows)


def norm(size: Size) -> str:
    """Measure ARL-LIN(norm) and the learner that keeps its bound."""
    problem = ReferenceMixture()
    features, rows = orl.FeatureMap(problem.phi), []
    for bound in (10.0, 100.0):
        kept = orl.paper.UCRLVTRLin(features=features, norm_bound=bound)
        rows.append((f"b = {bound:g}, kept", play(kept, problem.mdp, size.episodes(20_000), "norm_bound")[0], ""))
        selector = orl.paper.ARLLinNorm(features=features, norm_bound=bound, initial_episodes=100)
        regret, bounds = play(selector, problem.mdp, size.episodes(20_000), "norm_bound")
        rows.append((f"b = {bound:g}, ARL-LIN(norm)", regret, ", ".join(f"{each:.0f}" for each in bounds)))
    return table(("K = 20,000, one seed", "regret", "b^(i)"), rows)


def ladder(size: Size) -> str:
    """Measure which classes ARL-GEN plays, epoch by epoch."""
    rows = []
    for m in (2, 3, 4):
        problem = ReferenceLadder(nonzero=m - 1)
        selector = orl.paper.ARLGen(ladder=orl.Ladder.of_problem(problem))
        regret, chosen = play(selector, problem.mdp, size.episodes(2**14 - 2), "chosen")
        rows.append((m, regret, ", ".join(map(str, chosen))))
    return table(("m*; K = 16,382, one seed", "regret", "class in play, epoch by epoch"), rows)
