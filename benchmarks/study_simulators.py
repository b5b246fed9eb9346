"""Which of twelve simulators matter? For docs/simulators.md (:mod:`benchmarks.figures`).

The truth is .6 of simulator 4 and .4 of simulator 9. For every case and seed: regret of UCRL-VTR-LIN on the pair alone
(the oracle) and on all twelve, whether the true pair is compatible, and whether it is the only smallest set.
"""

from __future__ import annotations

import occamrl as orl
from benchmarks.figures import Size, interval, table
from benchmarks.simulator_cases import CASES, PAIR
from occamrl.analysis.supports import Supports


def named(report: Supports) -> bool:
    """Say whether the true pair is the only smallest set that is left."""
    return [each.members for each in report.smallest] == [tuple(str(j + 1) for j in PAIR)]


def compatible(report: Supports) -> bool:
    """Say whether the true pair is compatible: it contains one of the minimal sets."""
    pair = {str(j + 1) for j in PAIR}
    return any(set(each.members) <= pair for each in report.sets)


def cases(size: Size) -> str:
    """Measure every case; reports are made after 16, 32, ... episodes and at the end."""
    rows, seeds = [], size.seeds(10)
    for name, make in CASES.items():
        case, full = make(), 2**17 if name == "batch queue" else 4_000
        episodes, sims = size.episodes(full), orl.Simulators(case.kernels)
        marks = [*(2**i for i in range(4, 30) if 2**i < episodes), episodes]
        oracle = orl.UCRLVTRLin(features=orl.FeatureMap([case.kernels[j] for j in PAIR]), norm_bound=1.0)
        agent = orl.UCRLVTRLin(features=sims.features, norm_bound=1.0)
        best, all_twelve, covered, since, left = [], [], 0, [], []
        for seed in range(seeds):
            best.append(orl.run(oracle, case.mdp, episodes=episodes, seed=seed, progress=False).total_regret)
            result, first = orl.run(agent, case.mdp, episodes=1, seed=seed, progress=False), 0
            for k in marks:
                more = k - result.total_episodes
                result = orl.run(agent, case.mdp, episodes=more, seed=seed, progress=False, continue_from=result)
                report = orl.supports(result, sims)
                covered += compatible(report)
                first = (first or k) if named(report) else 0
            all_twelve.append(result.total_regret)
            since += [first] if first else []
            left.append(len(report.sets))
        alone = f"{len(since)} of {seeds} seeds" + (f", since {min(since):,} to {max(since):,}" if since else "")
        counts = f"{covered} of {seeds * len(marks)} reports"
        row = (name, f"{full:,}", interval(best), interval(all_twelve), counts, alone, f"{min(left)} to {max(left)}")
        rows.append(row)
    header = ("10 seeds", "episodes", "oracle (the pair alone)", "all twelve", "true pair compatible")
    return table((*header, "it is the only smallest set", "minimal sets left"), rows)
