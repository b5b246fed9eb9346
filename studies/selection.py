"""What selection is worth, and what evidence is: told the class, selecting it, on the largest.

For docs/baselines.md (:mod:`studies.figures`). In every row the algorithm is the same: what differs
is only which classes it is given. Down a column the classes are the same, and what differs is the
evidence: the likelihood of outcomes (Occam), range-weighted value rows (ARL-GEN), or value rows
with the paper's radius and threshold (``orl.paper``). Seeds from 9000 on, which nothing was tuned
on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import occamrl as orl
from occamrl.problems.lakes import FrozenLake, PatchyIce
from occamrl.problems.mixtures import ReferenceLadder, SparseLadder, SparseMixture
from occamrl.problems.operations import Pricing
from occamrl.protocols import Problem
from studies.figures import Size, interval, play, ratio, regrets, table

FIRST_SEED = 9_000
SEEDS = 20
_LETTER = (
    1_000  # kernels up to which the algorithms to the letter are played, as they keep n^2 sums
)


class Case(NamedTuple):
    """A ladder of lists that holds the truth."""

    name: str
    problem: Any
    episodes: int


def cases() -> list[Case]:
    """Return six ladders that come with the package."""
    return [
        Case("sparse ladder", SparseLadder(), 2_000),
        Case("reference ladder", ReferenceLadder(nonzero=1), 2_000),
        Case("patchy ice", PatchyIce(slip=(0.1, 0.0)), 2_000),
        Case("lake 4x4", FrozenLake(slip=(6, 6)), 2_000),
        Case("lake 8x8", FrozenLake(map_name="8x8", slip=(6, 6)), 1_000),
        Case("pricing", Pricing(**Pricing.small[0]), 1_000),
    ]


HEAD = (
    "evidence",
    "told the class",
    "selecting, the smallest class left plays",
    "selecting, all that is left plays",
    "on the largest",
    "largest / selecting",
)


def line(
    size: Size, selector: orl.Learner, problem: Problem, episodes: int, label: str
) -> list[str]:
    """Return the regret of a selector and its references, and what selection is worth."""
    cast = {
        "told": orl.oracle(selector, problem),
        "smallest left": selector,
        "all left": selector,
        "largest": orl.largest(selector),
    }
    if isinstance(selector, (orl.Occam, orl.ARLGen)):
        cast["smallest left"] = replace(selector, scope="smallest")
    else:
        del cast["all left"]
    played = play(size, cast, problem, episodes, SEEDS, FIRST_SEED, label)
    lost = {name: regrets(runs) for name, runs in played.items()}
    default = lost.get("all left", lost["smallest left"])
    worth = ratio(lost["largest"], default) if default.any() else ""
    cells = {name: interval(values) for name, values in lost.items()}
    return [
        *(cells.get(name, "") for name in ("told", "smallest left", "all left", "largest")),
        worth,
    ]


def evidence(size: Size) -> str:
    """Measure six ladders by three kinds of evidence."""
    rows = []
    for case in size.some(cases()):
        ladder = orl.Ladder.of_problem(case.problem)
        m = ladder.class_of(case.problem.mdp)
        selectors: dict[str, orl.Learner] = {
            "likelihood, Occam": orl.Occam(ladder=ladder),
            "value rows, ARL-GEN": orl.ARLGen(ladder=ladder),
        }
        known = case.problem.mdp.known
        if ladder.sizes[-1] <= _LETTER and known.transition_rewards is None:
            selectors["value rows, to the letter"] = orl.paper.ARLGen(ladder=ladder)
        for name, selector in selectors.items():
            cells = line(size, selector, case.problem, case.episodes, f"{case.name}, {name}")
            title = f"{case.name}, class {m} of {ladder.classes}; K = {case.episodes:,}"
            rows.append([title, name, *cells])
    return table([f"{SEEDS} fresh seeds", *HEAD], rows)


def linear(size: Size) -> str:
    """Measure the linear selectors, sharp and to the letter."""
    problem = SparseMixture()
    features = orl.FeatureMap(problem.phi)
    norm = float(np.linalg.norm(problem.theta))
    make: dict[str, tuple[Callable[..., orl.Learner], float, int]] = {
        "support, ARL-LIN(dim)": (orl.ARLLinDim, norm, 20_000),
        "norm, ARL-LIN(norm), b = 100": (orl.ARLLinNorm, 100.0, 20_000),
        "support, to the letter": (orl.paper.ARLLinDim, norm, 500),
        "norm, to the letter, b = 100": (orl.paper.ARLLinNorm, 100.0, 500),
    }
    rows = []
    for name, (kind, bound, episodes) in size.some(make.items()):
        selector = kind(features=features, norm_bound=bound)
        title = f"sparse mixture; K = {episodes:,}"
        rows.append([title, name, *line(size, selector, problem, episodes, name)])
    return table([f"{SEEDS} fresh seeds", *HEAD], rows)
