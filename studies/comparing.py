"""Comparing many agents: how often equal ones are told apart, and real differences found.

For docs/experiments.md (:mod:`studies.figures`). Who looks after every seed stops at the first
claim. Synthetic regrets of a seed are exponential, with a part that all agents share.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import binomtest

import occamrl as orl
from occamrl.experiments.pair_tests import Method, pair_tests
from occamrl.protocols import Floats
from studies.figures import Size, each, table

LEVEL = 0.05
FIRST = 5  # seeds before the first look
MOST = 40
_RULES: tuple[tuple[str, Method, bool], ...] = (
    ("fixed, 40 seeds", "fixed", False),
    ("sequential, a look after every seed", "sequential", True),
    ("fixed, a look after every seed (wrong)", "fixed", True),
)


def first_claim(regret: Floats, method: Method, looking: bool) -> int | None:
    """Return after how many seeds some pair of agents [agents, seeds] is told apart."""
    last = regret.shape[1]
    for seeds in range(FIRST, last + 1) if looking else (last,):
        named = {f"{i}": dict(enumerate(row[:seeds])) for i, row in enumerate(regret.tolist())}
        if any(pair.differ for pair in pair_tests(named, LEVEL, method)):
            return seeds
    return None


def synthetic(i: int, agents: int, better: float = 0.0) -> Floats:
    """Return regrets [agents, seeds] of equal agents; the last may be better."""
    draw = np.random.default_rng([17, i])
    shared = draw.exponential(size=MOST)
    own = draw.exponential(size=(agents, MOST))
    own[-1] *= 1.0 - better
    return np.asarray(shared + own)


def played(size: Size, i: int) -> Floats:
    """Return regrets of three agents that are equal but for their seeds, on a small problem."""
    problem = orl.make_problem("river-swim", states=3, horizon=6)
    agent = orl.PSRL()
    rows = []
    for number in range(3):
        seeds = [1_000 * (3 * i + number) + seed for seed in range(size.seeds(12))]
        runs = [orl.run(agent, problem, episodes=10, seed=s, progress=False) for s in seeds]
        rows.append([run.total_regret for run in runs])
    return np.array(rows)


def errors(size: Size) -> str:
    """Count experiments in which some equal agents are told apart."""
    rows = []
    sources: dict[str, tuple[Any, int]] = {
        "two agents": (lambda i: synthetic(i, 2), 400),
        "five agents": (lambda i: synthetic(i, 5), 400),
        "three runs of PSRL, 12 seeds": (lambda i: played(size, i), 100),
    }
    for name, (make, count) in size.some(sources.items()):
        experiments = each(size, size.seeds(count), make, name)
        cells = []
        for _, method, looking in _RULES:
            wrong = sum(first_claim(one, method, looking) is not None for one in experiments)
            upper = binomtest(wrong, len(experiments)).proportion_ci(0.95).high
            cells.append(f"{wrong} of {len(experiments)} (at most {upper:.3f})")
        rows.append((name, *cells))
    return table((f"equal agents; false claims at {LEVEL}", *(rule[0] for rule in _RULES)), rows)


def power(size: Size) -> str:
    """Count experiments in which a real difference is found, and after how many seeds."""
    rows = []
    for better in size.some((0.3, 0.5, 0.7)):
        experiments = [synthetic(i, 2, better) for i in range(size.seeds(400))]
        cells = []
        for _, method, looking in _RULES[:2]:
            claims = [first_claim(one, method, looking) for one in experiments]
            found = [seeds for seeds in claims if seeds is not None]
            text = f"{len(found)} of {len(claims)}"
            if looking and found:
                text += f", after {np.median(found):.0f} seeds (median)"
            cells.append(text)
        rows.append((f"{100 * better:.0f} % of its own part", *cells))
    heads = [rule[0] for rule in _RULES[:2]]
    return table(("two agents, one loses less by", *heads), rows)
