"""Rival learners alone, and the league tables of selectors against rules that choose among bases.

For docs/baselines.md (:mod:`studies.figures`). Published constants, and round factors of them where
a row says so; none was tuned. The league plays seeds 200 to 209.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

import occamrl as orl
from occamrl.problems.lakes import PatchyIce
from occamrl.problems.mixtures import SparseLadder, SparseMixture
from occamrl.problems.operations import Pricing
from occamrl.protocols import Problem, Rule
from studies.figures import Played, Size, interval, number, play, regrets, table
from studies.linear import DIM, ORACLE, WHOLE, Case, Cast

REFERENCES = (
    *("Occam, oracle", "Occam, largest class"),
    *("ARL-GEN, oracle", "ARL-GEN, largest class", "ARL-GEN, smallest class"),
    *("oracle", "largest class", "smallest class"),  # of linear selectors
)
SCALES = (1.0, 0.1, 0.01)


class Rival(NamedTuple):
    """A learner, and what is proved of it."""

    guarantee: str
    agent: orl.Learner


def compare(rivals: dict[str, Rival], episodes: int, size: Size) -> str:
    """Return the regret of agents on RiverSwim with five states."""
    problem = orl.make_problem("river-swim", states=5)
    cast = {name: rival.agent for name, rival in rivals.items()}
    rows = []
    for name, runs in play(size, cast, problem, episodes, 3).items():
        regret = interval(regrets(runs))
        rows.append((name, rivals[name].guarantee, regret, pessimistic(size, runs, episodes)))
    return table((f"K = {episodes:,}, 3 seeds", "guarantee", "regret", "pessimistic plans"), rows)


def pessimistic(size: Size, runs: list[Played], episodes: int) -> str:
    """Return the share of episodes whose plan promised less than the optimum."""
    total = sum(one.pessimistic for one in runs)
    return f"{100.0 * total / (size.episodes(episodes) * len(runs)):.0f} %"


def river_swim(size: Size) -> str:
    """Measure tabular learners: published constants, and round factors of them."""
    K = 10_000
    features = orl.FeatureMap.tabular(states=5, actions=2)
    bound = math.sqrt(10.0)
    rivals = {
        "UniformRandom": Rival("none", orl.UniformRandom()),
        "UCBVI, Hoeffding": Rival("valid", orl.UCBVI(episodes=K, bonus="hoeffding")),
        "UCBVI, Hoeffding, scale 0.01": Rival(
            "scaled", orl.UCBVI(episodes=K, bonus="hoeffding", scale=0.01)
        ),
        "UCBVI, Bernstein": Rival("valid", orl.UCBVI(episodes=K)),
        "UCBVI, Bernstein, scale 0.1": Rival("scaled", orl.UCBVI(episodes=K, scale=0.1)),
        "QLearningUCB": Rival("valid, c left open", orl.QLearningUCB(episodes=K)),
        "QLearningUCB, scale 0.01": Rival("scaled", orl.QLearningUCB(episodes=K, scale=0.01)),
        "RLSVI": Rival("of its form per step", orl.RLSVI()),
        "RLSVI, scale 0.01": Rival("scaled", orl.RLSVI(scale=0.01)),
        "UCRLVTRLin": Rival("valid", orl.UCRLVTRLin(features=features, norm_bound=bound)),
        "UCRLVTRLin, scale 0.1": Rival(
            "scaled", orl.UCRLVTRLin(features=features, norm_bound=bound, scale=0.1)
        ),
        "PSRL": Rival("on average over its prior", orl.PSRL()),
        "Greedy": Rival("none", orl.Greedy(features=features)),
    }
    return compare(rivals, K, size)


def linear_river_swim(size: Size) -> str:
    """Measure learners of linear kernels on one-hot features."""
    features = orl.FeatureMap.tabular(states=5, actions=2)
    bound = math.sqrt(10.0)
    plus = orl.UCRLVTRPlus(features=features, norm_bound=bound)
    rivals = {
        "UniformRandom": Rival("none", orl.UniformRandom()),
        "UCRLVTRPlus": Rival("of its form per step", plus),
        "UCRLVTRLin": Rival("valid", orl.UCRLVTRLin(features=features, norm_bound=bound)),
    }
    return compare(rivals, 1_000, size)


# The league ---------------------------------------------------------------------------------------


def rules(episodes: int, promised: tuple[float, ...]) -> dict[str, Rule]:
    """Return the rules with published constants."""
    return {
        "RegretBalancing": orl.RegretBalancing(),
        "UCB1": orl.UCB1(),
        "D3RB": orl.D3RB(),
        "ED2RB": orl.ED2RB(),
        "StochasticCORRAL": orl.StochasticCORRAL(episodes=episodes),
        "ECE": orl.ECE(promised=promised),
    }


def arenas(
    bases: list[orl.Learner],
    episodes: int,
    promised: tuple[float, ...],
    largest_return: float | None = None,
) -> Cast:
    """Return an arena of the bases under every rule."""
    cast: Cast = {}
    for name, rule in rules(episodes, promised).items():
        cast[name] = orl.Arena(bases=bases, rule=rule, largest_return=largest_return)
    return cast


def league(
    size: Size, cast: Cast, problem: Problem, episodes: int, right: int | list[int] | None
) -> str:
    """Return the league table: references first, in their order, the others by regret."""
    played = play(size, cast, problem, episodes, 10, first_seed=200)
    references = [name for name in cast if name in REFERENCES]
    others = [name for name in cast if name not in REFERENCES]
    others.sort(key=lambda name: regrets(played[name]).mean())
    rows = []
    for name in (*references, *others):
        runs = played[name]
        tail = float(np.mean([one.tail for one in runs]))
        share = ""
        if right is not None and name not in references:
            share = on_right(cast[name], runs, right)
        rows.append(
            (
                name,
                guarantee(cast[name]),
                interval(regrets(runs)),
                number(regrets(runs).max()),
                f"{tail if tail > 1e-9 else 0:.2g}",
                share,
                pessimistic(size, runs, episodes),
            )
        )
    header = (
        f"K = {episodes:,}, seeds 200 to 209",
        "guarantee",
        "regret",
        "worst seed",
        "regret per episode, last 10 %",
        "right class",
        "pessimistic",
    )
    return table(header, rows)


def guarantee(agent: orl.Learner) -> str:
    """Return what is proved of an agent, or of the rule of an arena."""
    parameters = agent.rule if isinstance(agent, orl.Arena) else agent
    # agents need not have either attribute
    if getattr(parameters, "scale", 1.0) != 1.0:
        return "constants scaled"
    return str(getattr(parameters, "guarantee", "none"))


def on_right(agent: orl.Learner, runs: list[Played], right: int | list[int]) -> str:
    """Return the share of episodes that the right class played; "" where none is imposed."""
    if isinstance(agent, orl.Arena):
        # the last phase has the plays of all before it
        plays = np.sum([one.phases[-1]["plays"] for one in runs], axis=0)
        share = plays[right_base(agent, right)] / max(1, plays.sum())
    elif isinstance(agent, orl.ARLLinDim) or imposes_class(agent):
        played = 0
        total = 0
        for one in runs:
            for row in one.phases:
                total += row["episodes"]
                if row["chosen"] == right:
                    played += row["episodes"]
        share = played / total
    else:
        return ""
    return f"{100.0 * share:.0f} %"


def imposes_class(agent: orl.Learner) -> bool:
    """Return whether an agent plays the smallest class that is left, and no other."""
    return isinstance(agent, (orl.ARLGen, orl.Occam)) and agent.scope == "smallest"


def right_base(arena: orl.Arena, right: int | list[int]) -> int:
    """Return the base of the right class, or with as many coordinates as the support."""
    if isinstance(right, int):
        return right - 1
    for i, base in enumerate(arena.bases):
        if isinstance(base, orl.UCRLVTRLin) and base.features.dimension == len(right):
            return i
    raise ValueError(f"no base with {len(right)} coordinates")


def ladder_league(
    size: Size,
    problem: SparseLadder | PatchyIce | Pricing,
    episodes: int,
    promised: tuple[float, ...],
    largest_return: float | None,
) -> str:
    """Return the league table of a ladder."""
    ladder = orl.Ladder.of_problem(problem)
    m = ladder.class_of(problem.mdp)
    bases: list[orl.Learner] = [orl.UCRLVTR(family=family) for family in ladder.families]
    gen = orl.ARLGen(ladder=ladder)
    occam = orl.Occam(ladder=ladder)
    cast: Cast = {}
    if m is not None:
        cast["Occam, oracle"] = orl.oracle(occam, problem)
        cast["ARL-GEN, oracle"] = orl.oracle(gen, problem)
    cast |= {
        "Occam, largest class": orl.largest(occam),
        "ARL-GEN, largest class": orl.largest(gen),
        "ARL-GEN, smallest class": orl.smallest(gen),
        "ARL-GEN": gen,
        "ARL-GEN, smallest left": orl.ARLGen(ladder=ladder, scope="smallest"),
        "Occam": occam,
        "Occam, smallest left": orl.Occam(ladder=ladder, scope="smallest"),
        "Occam, sampling": orl.Occam(ladder=ladder, acting="sampling"),
        "PSRL on the largest class": orl.PSRL(ladder=ladder),
    }
    cast |= arenas(bases, episodes, promised, largest_return)
    return league(size, cast, problem, episodes, m)


def ice(size: Size) -> str:
    """Play patchy ice."""
    problem = PatchyIce(slip=(0.1, 0.0, 0.1, 0.0))
    return ladder_league(size, problem, 4094, (2.02, 2.28, 2.72, 3.43), 1.0)


def ladder(size: Size) -> str:
    """Play the sparse ladder."""
    return ladder_league(size, SparseLadder(), 4094, (1.73, 2.41, 2.8, 3.06), None)


def pricing(size: Size) -> str:
    """Play pricing, whose classes are not separable."""
    problem = Pricing()
    if size.tiny:
        problem = Pricing(**Pricing.small[0])
    return ladder_league(size, problem, 2046, (2.48, 2.74, 2.85, 3.75), 8.0)


def misspecified(size: Size) -> str:
    """Play ice that no class describes."""
    problem = PatchyIce(slip=(0.2,))
    return ladder_league(size, problem, 4094, (2.02, 2.28, 2.72, 3.43), 1.0)


def mixture(size: Size) -> str:
    """Play the sparse mixture; the rules choose among nested sets of directions.

    One of them is the right one.
    """
    case = Case(SparseMixture())
    sets = ([0], [0, 5, 15], [0, 1, 2, 5, 15], [0, 1, 2, 3, 4, 5, 6, 7, 15], list(range(16)))
    bases: list[orl.Learner] = []
    for chosen in sets:
        features = case.features.restrict(chosen)
        bases.append(orl.UCRLVTRLin(features=features, norm_bound=case.norm))
    cast: Cast = {
        "oracle": case.agents[ORACLE],
        "largest class": case.agents[WHOLE],
        "smallest class": bases[0],
        "ARL-LIN (dim)": case.agents[DIM],
    }
    cast |= arenas(bases, 4000, (1.0, 3.0, 5.0, 9.0, 16.0))
    return league(size, cast, case.problem, 4000, case.support)


def riverswim(size: Size) -> str:
    """Play RiverSwim: learners of the field, and rules over UCRL-VTR-LIN with three radii."""
    K = 4000
    features = orl.FeatureMap.tabular(states=5, actions=2)
    bound = math.sqrt(10.0)
    cast: Cast = {"PSRL": orl.PSRL(), "Greedy": orl.Greedy(features=features)}
    bases: list[orl.Learner] = []
    for scale in SCALES:
        linear = orl.UCRLVTRLin(features=features, norm_bound=bound, scale=scale)
        # promises grow with the radius, so the bases do too
        bases.insert(0, linear)
        cast[f"UCRL-VTR-LIN, scale {scale}"] = linear
        cast[f"UCBVI-BF, scale {scale}"] = orl.UCBVI(episodes=K, scale=scale)
        cast[f"Q-UCB-H, scale {scale}"] = orl.QLearningUCB(episodes=K, scale=scale)
        cast[f"RLSVI, scale {scale}"] = orl.RLSVI(scale=scale)
    cast |= arenas(bases, K, (1.0, 4.0, 16.0))
    return league(size, cast, orl.make_problem("river-swim", states=5), K, None)
