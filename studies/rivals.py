"""Rival learners alone, and the league tables of selectors against rules that choose among bases.

For docs/baselines.md (:mod:`studies.figures`). Published constants, and round factors of them where
a row says so; none was tuned. The league plays seeds 200 to 209.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import occamrl as orl
from occamrl.problems.lakes import PatchyIce
from occamrl.problems.mixtures import SparseLadder, SparseMixture
from occamrl.problems.operations import Pricing
from studies.figures import Runs, Size, interval, number, play, regrets, table
from studies.ladders import on_class
from studies.linear import Case


def compare(agents: dict[str, tuple[str, Any]], episodes: int, size: Size) -> str:
    """Return the regret of agents on RiverSwim with five states."""
    problem, rows = orl.make_problem("river-swim", states=5), []
    played = play(size, {name: agent for name, (_, agent) in agents.items()}, problem, episodes, 3)
    for name, runs in played.items():
        late = sum(one.pessimistic for one in runs) / (size.episodes(episodes) * len(runs))
        rows.append((name, agents[name][0], interval(regrets(runs)), f"{100.0 * late:.0f} %"))
    return table((f"K = {episodes:,}, 3 seeds", "guarantee", "regret", "pessimistic plans"), rows)


def river_swim(size: Size) -> str:
    """Measure tabular learners: published constants, and round factors of them."""
    K, features = 10_000, orl.FeatureMap.tabular(states=5, actions=2)
    linear: dict[str, Any] = {"features": features, "norm_bound": math.sqrt(10.0)}
    agents: dict[str, tuple[str, Any]] = {
        "UniformRandom": ("none", orl.UniformRandom()),
        "UCBVI, Hoeffding": ("valid", orl.UCBVI(episodes=K, bonus="hoeffding")),
        "UCBVI, Hoeffding, scale 0.01": (
            "scaled",
            orl.UCBVI(episodes=K, bonus="hoeffding", scale=0.01),
        ),
        "UCBVI, Bernstein": ("valid", orl.UCBVI(episodes=K)),
        "UCBVI, Bernstein, scale 0.1": ("scaled", orl.UCBVI(episodes=K, scale=0.1)),
        "QLearningUCB": ("valid, c left open", orl.QLearningUCB(episodes=K)),
        "QLearningUCB, scale 0.01": ("scaled", orl.QLearningUCB(episodes=K, scale=0.01)),
        "RLSVI": ("of its form per step", orl.RLSVI()),
        "RLSVI, scale 0.01": ("scaled", orl.RLSVI(scale=0.01)),
        "UCRLVTRLin": ("valid", orl.UCRLVTRLin(**linear)),
        "UCRLVTRLin, scale 0.1": ("scaled", orl.UCRLVTRLin(**linear, scale=0.1)),
        "PSRL": ("on average over its prior", orl.PSRL()),
        "Greedy": ("none", orl.Greedy(features=features)),
    }
    return compare(agents, K, size)


def linear_river_swim(size: Size) -> str:
    """Measure learners of linear kernels on one-hot features."""
    features = orl.FeatureMap.tabular(states=5, actions=2)
    agents: dict[str, tuple[str, Any]] = {
        "UniformRandom": ("none", orl.UniformRandom()),
        "UCRLVTRPlus": (
            "of its form per step",
            orl.UCRLVTRPlus(features=features, norm_bound=math.sqrt(10.0)),
        ),
        "UCRLVTRLin": ("valid", orl.UCRLVTRLin(features=features, norm_bound=math.sqrt(10.0))),
    }
    return compare(agents, 1_000, size)


# The league ---------------------------------------------------------------------------------------


def rules(episodes: int, promised: Sequence[float]) -> dict[str, Any]:
    """Return the rules with published constants."""
    return {
        "RegretBalancing": orl.RegretBalancing(),
        "UCB1": orl.UCB1(),
        "D3RB": orl.D3RB(),
        "ED2RB": orl.ED2RB(),
        "StochasticCORRAL": orl.StochasticCORRAL(episodes=episodes),
        "ECE": orl.ECE(promised=tuple(promised)),
    }


def league(
    size: Size, cast: dict[str, Any], problem: Any, episodes: int, right: int | list[int] | None
) -> str:
    """Return the league table; the first rows, references, in their order, the others by regret."""
    played: Runs = play(size, cast, problem, episodes, 10, first_seed=200)
    references = [name for name in cast if name in ("oracle", "largest class", "smallest class")]
    others = sorted(
        (name for name in cast if name not in references),
        key=lambda name: regrets(played[name]).mean(),
    )
    rows = []
    for name in [*references, *others]:
        runs, agent = played[name], cast[name]
        parts = agent.rule if isinstance(agent, orl.Arena) else agent
        stated = str(getattr(parts, "guarantee", "none"))
        if getattr(parts, "scale", 1.0) != 1.0:
            stated = "constants scaled"
        worst, tail = regrets(runs).max(), float(np.mean([one.tail for one in runs]))
        share = 100.0 * sum(one.pessimistic for one in runs) / (size.episodes(episodes) * len(runs))
        found = "" if name in references or right is None else on_right(agent, runs, right)
        row = (
            name,
            stated,
            interval(regrets(runs)),
            number(worst),
            f"{tail:.2g}" if tail > 1e-9 else "0",
        )
        rows.append((*row, found, f"{share:.0f} %"))
    header = (
        f"K = {episodes:,}, seeds 200 to 209",
        "guarantee",
        "regret",
        "worst seed",
        "regret per episode, last 10 %",
    )
    return table((*header, "right class", "pessimistic"), rows)


def on_right(agent: Any, runs: Any, right: int | list[int]) -> str:
    """Return the share of episodes that the right class played; empty where no class is imposed."""
    if isinstance(agent, orl.Arena):
        bases: list[Any] = list(agent.bases)
        at = (
            right - 1
            if isinstance(right, int)
            else [base.features.dimension for base in bases].index(len(right))
        )
        plays = np.sum([one.phases[-1]["plays"] for one in runs], axis=0)
        share = plays[at] / max(1, plays.sum())
    elif isinstance(agent, orl.ARLLinDim) or getattr(agent, "scope", "all") == "smallest":
        rows = [row for one in runs for row in one.phases]
        share = sum(row["episodes"] for row in rows if row["chosen"] == right) / sum(
            row["episodes"] for row in rows
        )
    else:
        return ""
    return f"{100.0 * share:.0f} %"


def ladder_league(
    size: Size, problem: Any, episodes: int, promised: Sequence[float], most: float | None
) -> str:
    """Return the league table of a ladder."""
    ladder = orl.Ladder.of_problem(problem)
    m = ladder.class_of(problem.mdp)
    bases = [on_class(ladder, c) for c in range(1, ladder.classes + 1)]
    cast: dict[str, Any] = {} if m is None else {"oracle": bases[m - 1]}
    cast |= {
        "largest class": bases[-1],
        "smallest class": bases[0],
        "ARL-GEN": orl.ARLGen(ladder=ladder),
        "ARL-GEN, all classes": orl.ARLGen(ladder=ladder, scope="all"),
        "Occam": orl.Occam(ladder=ladder),
        "Occam, all classes": orl.Occam(ladder=ladder, scope="all"),
        "Occam, sampling": orl.Occam(ladder=ladder, acting="sampling", scope="all"),
        "PSRL on the largest class": orl.PSRL(ladder=ladder),
    }
    for name, rule in rules(episodes, promised).items():
        cast[name] = orl.Arena(bases=bases, rule=rule, largest_return=most)
    return league(size, cast, problem, episodes, m)


def ice(size: Size) -> str:
    """Play patchy ice."""
    return ladder_league(
        size, PatchyIce(slip=(0.1, 0.0, 0.1, 0.0)), 4094, (2.02, 2.28, 2.72, 3.43), 1.0
    )


def ladder(size: Size) -> str:
    """Play the sparse ladder."""
    return ladder_league(size, SparseLadder(), 4094, (1.73, 2.41, 2.8, 3.06), None)


def pricing(size: Size) -> str:
    """Play pricing, whose classes are not separable."""
    problem = Pricing(**Pricing.small[0]) if size.tiny else Pricing()
    return ladder_league(size, problem, 2046, (2.48, 2.74, 2.85, 3.75), 8.0)


def misspecified(size: Size) -> str:
    """Play ice that no class describes."""
    return ladder_league(size, PatchyIce(slip=(0.2,)), 4094, (2.02, 2.28, 2.72, 3.43), 1.0)


def mixture(size: Size) -> str:
    """Play the sparse mixture; the rules choose among nested sets of directions, one of which is the right one."""
    case = Case(SparseMixture())
    sets = ([0], [0, 5, 15], [0, 1, 2, 5, 15], [0, 1, 2, 3, 4, 5, 6, 7, 15], list(range(16)))
    bases = [
        orl.UCRLVTRLin(features=case.features.restrict(each), norm_bound=case.norm) for each in sets
    ]
    cast: dict[str, Any] = {
        "oracle": case.agents["oracle"],
        "largest class": case.agents["all coordinates"],
        "smallest class": bases[0],
        "ARL-LIN (dim)": case.agents["ARL-LIN(dim)"],
    }
    cast |= {
        name: orl.Arena(bases=bases, rule=rule)
        for name, rule in rules(4000, (1.0, 3.0, 5.0, 9.0, 16.0)).items()
    }
    return league(size, cast, case.problem, 4000, case.support)


def riverswim(size: Size) -> str:
    """Play RiverSwim: learners of the field, and rules over UCRL-VTR-LIN with three radii."""
    K, features = 4000, orl.FeatureMap.tabular(states=5, actions=2)
    linear: dict[str, Any] = {"features": features, "norm_bound": math.sqrt(10.0)}
    bases = [orl.UCRLVTRLin(**linear, scale=scale) for scale in (0.01, 0.1, 1.0)]
    cast: dict[str, Any] = {
        "PSRL": orl.PSRL(),
        "Greedy": orl.Greedy(features=features),
    }
    for scale in (1.0, 0.1, 0.01):
        cast[f"UCRL-VTR-LIN, scale {scale}"] = orl.UCRLVTRLin(**linear, scale=scale)
        cast[f"UCBVI-BF, scale {scale}"] = orl.UCBVI(episodes=K, scale=scale)
        cast[f"Q-UCB-H, scale {scale}"] = orl.QLearningUCB(episodes=K, scale=scale)
        cast[f"RLSVI, scale {scale}"] = orl.RLSVI(scale=scale)
    cast |= {
        name: orl.Arena(bases=bases, rule=rule) for name, rule in rules(K, (1.0, 4.0, 16.0)).items()
    }
    return league(size, cast, orl.make_problem("river-swim", states=5), K, None)
