"""Logged data: after how many episodes ``select`` names the right class for good, by either kind of evidence.

For docs/logged-data.md (:mod:`benchmarks.figures`). Logs of a random policy; the same log for both.
"""

from __future__ import annotations

import numpy as np

import occamrl as orl
from benchmarks.figures import Size, table
from occamrl.envs.ladder_file import LadderSpec, ladder_of_problem
from occamrl.logs.log import simulate_log
from occamrl.logs.select import DECIDED, EVIDENCE
from occamrl.problems.lakes import FrozenLake
from occamrl.problems.mixtures import SparseLadder


def cases() -> dict[str, tuple[LadderSpec, orl.FiniteMDP, int]]:
    """Return ladders with the problem that made the log and its class."""
    found = {}
    for m, slip in enumerate(((0, 0), (10, 10), (3, 9)), start=1):
        lake = FrozenLake(slip=slip)
        found[f"FrozenLake 4x4, slips {slip} of 30"] = (ladder_of_problem(lake), lake.mdp, m)
    for nonzero in (1, 2):
        sparse = SparseLadder(nonzero=nonzero)
        found[f"sparse ladder, m* = {nonzero + 1}"] = (ladder_of_problem(sparse), sparse.mdp, nonzero + 1)
    return found


def evidence(size: Size) -> str:
    """Return after how many episodes of a log the right class is decided, and stays so."""
    marks = [2**i for i in range(2, 13) if 2**i <= size.episodes(4_096)]
    rows = []
    for name, (spec, mdp, right) in cases().items():
        since: dict[str, list[float]] = {kind: [] for kind in EVIDENCE}
        rejected = dict.fromkeys(EVIDENCE, 0)
        for seed in range(size.seeds(10)):
            log = simulate_log(mdp, episodes=marks[-1], seed=seed)
            for kind in EVIDENCE:
                first = np.inf
                for k in marks:
                    found = orl.select(log.head(k), spec, evidence=kind, progress=False)
                    first = min(first, k) if (found.chosen, found.verdict) == (right, DECIDED) else np.inf
                rejected[kind] += found.rungs[right - 1].rejected_after is not None
                since[kind].append(first)
        cells = [
            f"{np.median(since[kind]):,.0f} ({min(since[kind]):,.0f} to {max(since[kind]):,.0f})" for kind in EVIDENCE
        ]
        false = ", ".join(f"{rejected[kind]} of {size.seeds(10)}" for kind in EVIDENCE)
        rows.append((name, *cells, false))
    header = ("log", *(f"by {kind}, median (range)" for kind in EVIDENCE), "right class rejected")
    return table(header, [[str(cell).replace("inf", f"above {marks[-1]:,}") for cell in row] for row in rows])
