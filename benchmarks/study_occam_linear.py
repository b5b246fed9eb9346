"""Linear classes by likelihood: mixtures of simulators, and signed features of which few matter.

For docs/occam.md (:mod:`benchmarks.figures`): means over seeds with 95% bootstrap intervals, delta = 0.05.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import occamrl as orl
from benchmarks.figures import Size, interval, regrets, table
from benchmarks.simulator_cases import CASES, PAIR, Case
from occamrl.problems.mixtures import ReferenceMixture, SparseMixture
from occamrl.protocols import Agent


def found(case: Case, agent: orl.OccamMixture, episodes: int, seeds: int) -> tuple[str, str, str]:
    """Return regret, since when the true pair is the only smallest compatible set, and how often it is compatible."""
    marks = [*(2**i for i in range(3, 30) if 2**i < episodes), episodes]
    regret, since, covered = [], [], 0
    for seed in range(seeds):
        result, first = orl.run(agent, case.mdp, episodes=1, seed=seed, progress=False), None
        for mark in marks:
            more = mark - result.total_episodes
            result = orl.run(agent, case.mdp, episodes=more, progress=False, continue_from=result)
            smallest = agent.facts(case.mdp.known, result.state)["smallest"]
            first = None if smallest != [list(PAIR)] else first or mark
            covered += min(map(len, smallest)) < len(PAIR) or list(PAIR) in smallest
        regret.append(result.total_regret)
        since.append(first)
    times = [each for each in since if each is not None]
    named = f"{len(times)}/{seeds}" + (f": {np.median(times):.0f}, {max(times)}" if times else "")
    return interval(regret), named, f"{covered}/{seeds * len(marks)}"


def mixtures(size: Size) -> str:
    """Measure regret on mixtures of two of twelve simulators, and when likelihood names the pair."""
    episodes, seeds, rows = size.episodes(4_000), size.seeds(10), []
    for name, make in CASES.items():
        case = make()
        features, pair = orl.Simulators(case.kernels).features, orl.FeatureMap([case.kernels[j] for j in PAIR])
        others: list[Agent] = [
            orl.OccamMixture(features=pair),
            orl.UCRLVTRLin(features=features, norm_bound=1.0),
            orl.ARLLin(features=features, norm_bound=1.0),
        ]
        regret, named, covered = found(case, orl.OccamMixture(features=features), episodes, seeds)
        rest = [interval(regrets(agent, case.mdp, episodes, seeds)) for agent in others]
        rows.append((name, regret, *rest, named, covered))
    header = (
        "twelve simulators, K = 4,000, 10 seeds",
        "OccamMixture",
        "OccamMixture on the pair (oracle)",
        "UCRL-VTR-LIN",
        "ARL-LIN",
    )
    return table((*header, "pair named: seeds, since (median, latest)", "pair compatible: reports"), rows)


def with_oracles(cases: dict[str, list[Any]], size: Size, head: str) -> str:
    """Return regret with signed features of which few matter, one run for each problem; a row for each case."""
    rows = []
    for name, problems in list(cases.items())[: 1 if size.tiny else None]:
        regret: dict[str, list[float]] = {}
        for seed, problem in enumerate(problems):
            features, bound = orl.FeatureMap(problem.phi), float(np.linalg.norm(problem.theta))
            support = features.restrict(np.flatnonzero(problem.theta).tolist())
            agents: dict[str, Agent] = {
                "OccamLin": orl.OccamLin(features=features),
                "OccamLin on the support (oracle)": orl.OccamLin(features=support),
                "ARL-LIN": orl.ARLLin(features=features, norm_bound=bound),
                "UCRL-VTR-LIN on the support (oracle)": orl.UCRLVTRLin(features=support, norm_bound=bound),
            }
            for label, agent in agents.items():
                result = orl.run(agent, problem, episodes=size.episodes(20_000), seed=seed, progress=False)
                regret.setdefault(label, []).append(result.total_regret)
        rows.append((name, *map(interval, regret.values())))
    return table((head, *regret), rows)


def sparse(dimension: int, count: int, first_seed: int) -> list[Any]:
    """Return instances with four coordinates that are not zero."""
    return [SparseMixture(dimension=dimension, nonzero=4, seed=first_seed + i) for i in range(count)]


def signed(size: Size) -> str:
    """Measure regret with 16 signed features, of which few matter."""
    cases = {
        "the reference mixture, 5 seeds": [ReferenceMixture()] * size.seeds(5),
        "4 non-zero, 5 instances": sparse(16, size.seeds(5), 7000),
    }
    return with_oracles(cases, size, "16 features, K = 20,000")


def many(size: Size) -> str:
    """Measure the same with 64 and 256 features."""
    cases = {
        "64 features, 5 instances": sparse(64, size.seeds(5), 8000),
        "256 features, 3 instances": sparse(256, size.seeds(3), 9000),
    }
    return with_oracles(cases, size, "4 non-zero, K = 20,000")
