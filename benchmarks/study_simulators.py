"""Which of twelve simulators matter, by value rows and by likelihood; and a ladder whose grid misses the truth.

For docs/simulators.md (:mod:`benchmarks.figures`).
"""

from __future__ import annotations

import numpy as np

import occamrl as orl
from benchmarks.figures import Size, number, regrets, runs, table
from benchmarks.simulator_cases import CASES, PAIR, river
from occamrl.analysis.supports import Supports

LENGTHS = {"batch queue": 131_072}  # where value rows need more episodes than elsewhere


def named(report: Supports) -> bool:
    """Say whether the true pair is the only smallest set that is left."""
    return [each.members for each in report.smallest] == [tuple(str(j + 1) for j in PAIR)]


def compatible(report: Supports) -> bool:
    """Say whether the true pair is compatible: it contains one of the minimal sets."""
    pair = {str(j + 1) for j in PAIR}
    return any(set(each.members) <= pair for each in report.sets)


def evidence(size: Size) -> str:
    """Measure regret, and when the true pair is the only smallest set by either evidence, of the same runs."""
    rows, seeds = [], size.seeds(10)
    for name, make in CASES.items():
        case, episodes = make(), size.episodes(LENGTHS.get(name, 4_096))
        marks = [2**i for i in range(2, 18) if 2**i <= episodes]
        sims, pair = orl.Simulators(case.kernels), orl.FeatureMap([case.kernels[j] for j in PAIR])
        oracle = regrets(orl.UCRLVTRLin(features=pair, norm_bound=1.0), case.mdp, marks[-1], seeds)
        agent, everything = orl.UCRLVTRLin(features=sims.features, norm_bound=1.0), []
        since: dict[str, list[int | None]] = {"value": [None] * seeds, "likelihood": [None] * seeds}
        held = dict.fromkeys(since, 0)
        left: dict[str, list[int]] = {kind: [] for kind in since}
        for seed in range(seeds):
            result = None
            for k in marks:
                more = k - (0 if result is None else result.total_episodes)
                result = orl.run(agent, case.mdp, episodes=more, seed=seed, progress=False, continue_from=result)
                for kind, first in since.items():
                    report = orl.supports(result, sims, evidence=kind)
                    held[kind] += compatible(report)
                    first[seed] = (first[seed] or k) if named(report) else None
                    if k == marks[-1]:
                        left[kind].append(len(report.smallest))
            everything.append(result.total_regret if result is not None else 0.0)
        costs = f"{number(float(oracle.mean()))}, {number(float(np.mean(everything)))}"
        for kind, first in since.items():
            found = sorted(k for k in first if k is not None)
            when = f"{len(found)} of {seeds}, since {found[0]:,} to {found[-1]:,}" if found else f"0 of {seeds}"
            reports = f"{held[kind]} of {seeds * len(marks)}"
            rows.append(
                (f"{name}, {marks[-1]:,}", costs, kind, reports, when, f"{min(left[kind])} to {max(left[kind])}")
            )
    header = ("case, episodes", "regret: the pair alone, all twelve", "evidence", "pair compatible")
    return table((*header, "it is the only smallest set", "smallest sets left"), rows)


def between(size: Size) -> str:
    """Measure a ladder of mixtures in tenths where the truth has other weights, with the reach and without."""
    sims, rows = orl.Simulators([river(np.full(3, up), np.full(3, 1.0 - up)) for up in (0.1, 0.9)]), []
    for weight in (0.55, 0.57):
        truth = sims.features.kernel([weight, 1.0 - weight])
        mdp = orl.FiniteMDP(transition=truth, reward=[[0.05, 0.0], [0.0, 0.0], [0.0, 1.0]], horizon=20)
        for reach in (None, 0.0):
            agent = orl.ARLGen(ladder=sims.ladder(most=2, grid=10, reach=reach), safe=True)
            played = list(runs(agent, mdp, size.episodes(8_190), size.seeds(3)))
            missed = ", ".join(f"{result.pessimistic_episodes:,}" for result in played)
            outside = sum(any(result.phases["outside"].to_pylist()) for result in played)
            name = f"{weight} and {1 - weight:.2f}, " + ("`reach=0`" if reach is not None else "by default")
            rows.append((name, missed, f"{outside} of {len(played)}"))
    return table(("weights; K = 8,190", "episodes whose plan was not optimistic, by seed", "called `outside`"), rows)
