"""Which of twelve simulators matter? Figures for docs/simulators.md: ``python -m benchmarks.study_simulators``.

The truth is .6 of simulator 4 and .4 of simulator 9. For every case and seed: regret of UCRL-VTR-LIN on the pair alone
(the oracle) and on all twelve, whether the true pair is compatible, and what the report says.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import occamrl as orl
from benchmarks.simulator_cases import CASES, PAIR
from occamrl.analysis.supports import Supports


def named(report: Supports) -> bool:
    """Say whether the true pair is the only smallest set that is left."""
    return [each.members for each in report.smallest] == [tuple(str(j + 1) for j in PAIR)]


def compatible(report: Supports) -> bool:
    """Say whether the true pair is compatible: it contains one of the minimal sets."""
    pair = {str(j + 1) for j in PAIR}
    return any(set(each.members) <= pair for each in report.sets)


def main() -> None:
    """Print the table and one report per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=4_000)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    shown = []
    marks = [*(2**i for i in range(4, 30) if 2**i < options.episodes), options.episodes]
    print("case | oracle | all twelve | pair compatible | the only smallest set | since | sets left")
    for name, make in CASES.items():
        if options.only not in name:
            continue
        case = make()
        sims = orl.Simulators(case.kernels)
        pair = orl.FeatureMap([case.kernels[j] for j in PAIR])
        best, all_twelve, covered, alone, since, left = [], [], 0, 0, [], []
        for seed in range(options.seeds):
            sys.stderr.write(f"{name}: seed {seed}\n")
            agent = orl.UCRLVTRLin(features=pair, norm_bound=1.0)
            run = orl.run(agent, case.mdp, episodes=options.episodes, seed=seed, progress=False)
            best.append(run.total_regret)
            agent = orl.UCRLVTRLin(features=sims.features, norm_bound=1.0)
            result, first = orl.run(agent, case.mdp, episodes=1, seed=seed, progress=False), None
            for k in marks:
                left_over = k - result.total_episodes
                result = orl.run(agent, case.mdp, episodes=left_over, seed=seed, progress=False, continue_from=result)
                report = orl.supports(result, sims)
                covered += compatible(report)
                first = k if first is None and named(report) else first if named(report) else None
            all_twelve.append(result.total_regret)
            alone += named(report)
            since.append(first)
            left.append(len(report.sets))
        times = sorted(k for k in since if k is not None)
        print(
            f"{name} | {np.mean(best):.1f} | {np.mean(all_twelve):.1f}"
            f" | {covered} of {options.seeds * len(marks)} reports"
            f" | {alone} of {options.seeds} | {times} | {min(left)} to {max(left)}",
            flush=True,
        )
        shown.append((name, report))
    for name, report in shown:
        print(f"\n{name}\n{report}")


if __name__ == "__main__":
    main()
