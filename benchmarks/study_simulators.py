"""Which of twelve simulators matter? Figures for docs/simulators.md: ``python -m benchmarks.study_simulators``.

:func:`evidence` compares value rows with the likelihood (:mod:`benchmarks.figures`).

The truth is .6 of simulator 4 and .4 of simulator 9. For every case and seed: regret of UCRL-VTR-LIN on the pair alone
(the oracle) and on all twelve, whether the true pair is compatible, and what the report says.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import occamrl as orl
from benchmarks.figures import Size, table
from benchmarks.simulator_cases import CASES, PAIR
from occamrl.analysis.supports import Supports


def named(report: Supports) -> bool:
    """Say whether the true pair is the only smallest set that is left."""
    return [each.members for each in report.smallest] == [tuple(str(j + 1) for j in PAIR)]


def compatible(report: Supports) -> bool:
    """Say whether the true pair is compatible: it contains one of the minimal sets."""
    pair = {str(j + 1) for j in PAIR}
    return any(set(each.members) <= pair for each in report.sets)


def evidence(size: Size) -> str:
    """Return when the true pair is the only smallest set, by value rows and by likelihood, of the same runs."""
    marks = [2**i for i in range(2, 13) if 2**i <= size.episodes(4_096)]
    rows = []
    for name, make in CASES.items():
        case, seeds = make(), size.seeds(10)
        sims = orl.Simulators(case.kernels)
        agent = orl.UCRLVTRLin(features=sims.features, norm_bound=1.0)
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
        for kind, first in since.items():
            found = sorted(k for k in first if k is not None)
            when = f"{len(found)} of {seeds}, since {found[0]:,} to {found[-1]:,}" if found else f"0 of {seeds}"
            reports = f"{held[kind]} of {seeds * len(marks)}"
            rows.append((name, kind, reports, when, f"{min(left[kind])} to {max(left[kind])}"))
    header = ("case", "evidence", "pair compatible", "it is the only smallest set", "smallest sets left")
    return table(header, rows)


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
                report = orl.supports(result, sims, evidence="value")
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
