"""Occam against ARL-GEN: regret where a class holds the truth, and where none does; coverage; time.

For docs/occam.md (:mod:`benchmarks.figures`). All agents meet the same random numbers. Instances are fresh: none of
them was looked at while the algorithm was made, and it has no constant that was tuned.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from scipy.stats import binomtest

import occamrl as orl
from benchmarks.figures import Size, interval, number, regrets, runs, table
from benchmarks.study_ladders import AGENTS, preflight
from occamrl._core.arena import field
from occamrl._core.rows import COUNTERS
from occamrl.envs.wrapper import FiniteEnvironment
from occamrl.learners.posterior import ALIVE, MEMBERS, LikelihoodLearner
from occamrl.problems.lakes import FrozenLake, PatchyIce, walk
from occamrl.problems.mixtures import SparseLadder
from occamrl.problems.operations import Pricing

ICE = ((1 / 3,), (0.0, 0.1), (0.1, 0.0, 1 / 3, 0.1), (0.1, 0.0, 0.0, 0.1, 0.0, 1 / 3, 0.1, 0.0))
CAST: dict[str, Callable[[orl.Ladder, int], Any]] = {
    "optimism, smallest": lambda ladder, m: orl.Occam(ladder=ladder),
    "optimism, all": lambda ladder, m: orl.Occam(ladder=ladder, scope="all"),
    "sampling, smallest": lambda ladder, m: orl.Occam(ladder=ladder, acting="sampling"),
    "sampling, all": lambda ladder, m: orl.Occam(ladder=ladder, acting="sampling", scope="all"),
    **{name: AGENTS[name] for name in ("ARL-GEN", "oracle", "F_M")},
}


@dataclass(frozen=True)
class Case:
    """A problem, one for each seed, that a ladder holds."""

    name: str
    problem: Callable[[int], Any]
    m: int
    episodes: int


def _cases() -> list[Case]:
    def sparse(m: int) -> Case:
        return Case(f"sparse ladder, m* = {m}", lambda seed: SparseLadder(nonzero=m - 1, seed=200 + seed), m, 2000)

    def ice(m: int) -> Case:
        return Case(f"ice, m* = {m}", lambda _: PatchyIce(slip=ICE[m - 1]), m, 400)

    def lake(name: str, slip: tuple[int, int], m: int) -> Case:
        return Case(f"FrozenLake {name}, slips {slip}", lambda _: FrozenLake(map_name=name, slip=slip), m, 2000)

    lakes = [lake("4x4", (6, 6), 2), lake("4x4", (9, 4), 3), lake("8x8", (6, 6), 2)]
    return [*map(sparse, range(1, 5)), *map(ice, range(1, 5)), *lakes]


def held(size: Size) -> str:
    """Measure ladders that hold the truth."""
    rows = []
    for case in _cases()[: 1 if size.tiny else None]:
        problems = [case.problem(seed) for seed in range(size.seeds(10))]
        ladders, episodes = [orl.Ladder.of_problem(each) for each in problems], size.episodes(case.episodes)
        row = [f"{case.name}; K = {case.episodes:,}"]
        for kind in CAST.values():
            found = [
                orl.run(kind(ladder, case.m), problem, episodes=episodes, seed=seed, progress=False).total_regret
                for seed, (ladder, problem) in enumerate(zip(ladders, problems, strict=True))
            ]
            row.append(interval(found))
        rows.append(row)
    return table(["10 seeds", *CAST], rows)


def cliff(size: Size) -> str:
    """Measure Gymnasium's CliffWalking, in its own unit."""
    spec, row = orl.read_ladder("cliff-walking"), []
    env = FiniteEnvironment(
        gym.make("CliffWalking-v1", is_slippery=True), known=spec.known, reward_range=tuple(spec.rewards)
    )
    m = spec.ladder.class_of(env.mdp) or 0 if env.mdp is not None else 0
    for kind in CAST.values():
        agent = kind(spec.ladder, m)
        found = [
            orl.learn(agent, env, episodes=size.episodes(1000), seed=seed, progress=False).total_regret
            for seed in range(size.seeds(5))
        ]
        row.append(interval([float(each or 0.0) for each in found]))
    return table(["K = 1,000, 5 seeds", *CAST], [[f"slippery cliff, m* = {m}", *row]])


def blind(size: Size) -> str:
    """Measure pricing, where a wrong small class confirms itself."""
    problem: Any = Pricing.examples()[0] if size.tiny else Pricing()
    ladder, cast, row = orl.Ladder.of_problem(problem), {**CAST, "ARL-GEN, safe": AGENTS["safe"]}, []
    m = ladder.class_of(problem.mdp) or 0
    for kind in cast.values():
        row.append(interval(regrets(kind(ladder, m), problem, size.episodes(800), size.seeds(5))))
    said = preflight(ladder, problem, 800, evidence="likelihood")
    return said + "\n\n" + table(["K = 800, 5 seeds", *cast], [[f"pricing, m* = {m}", *row]])


def outside(size: Size) -> str:
    """Measure truths outside the ladder of patchy ice, whose members have slips 0, .1 and 1/3."""
    lake = PatchyIce(slip=(0.1,))
    ladder, episodes, rows = orl.Ladder.of_problem(lake), size.episodes(4000), []
    ahead, left, back, right = (walk(lake.lake, turn) for turn in range(4))
    kernels = {f"slip {q} to each side": (1 - 2 * q) * ahead + q * (left + right) for q in (0.12, 0.15, 0.2, 0.3, 0.4)}
    kernels["left .25, right .05"] = 0.7 * ahead + 0.25 * left + 0.05 * right
    kernels["a wrong zero: one step in 20 goes back"] = 0.95 * lake.mdp.kernel() + 0.05 * back
    agents: dict[str, Any] = {
        "optimism": orl.Occam(ladder=ladder),
        "sampling, all": orl.Occam(ladder=ladder, acting="sampling", scope="all"),
        "ARL-GEN": orl.ARLGen(ladder=ladder),
        "PSRL, tabular": orl.PSRL(),
    }
    for name, kernel in list(kernels.items())[: 1 if size.tiny else None]:
        mdp, row = orl.FiniteMDP(transition=kernel, reward=lake.reward, horizon=lake.horizon), [name]
        for agent in agents.values():
            found = list(runs(agent, mdp, episodes, size.seeds(3 if isinstance(agent, orl.PSRL) else 10)))
            tail = float(np.mean([result.regret[-episodes // 4 :].mean() for result in found]))
            text = f"{interval([result.total_regret for result in found])}; {tail:.1g}"
            if isinstance(agent, orl.Occam):
                when = [each for r in found if (each := r.phases.to_pylist()[-1]["outside_since"])]
                text += f"; {len(when)}/{len(found)}" + (f", {np.median(when):.0f}, {max(when)}" if when else "")
            row.append(text)
        rows.append(row)
    head = f"K = {episodes:,}, 10 seeds (PSRL 3): regret; per episode at the end; `outside` in, since (median, latest)"
    return table([head, *agents], rows)


def coverage(size: Size) -> str:
    """Measure how often the true kernel is not alive at some time in 60 episodes."""
    problem: Any = SparseLadder(nonzero=2, seed=300)
    ladder, count, rows = orl.Ladder.of_problem(problem), size.seeds(400), []
    truth = int(np.flatnonzero(np.isclose(ladder.family.theta.T, problem.theta).all(axis=1))[0])
    for delta in (0.05, 0.5):
        learner, lost = LikelihoodLearner(ladder=ladder, delta=delta, replan=0.0), 0
        for result in runs(learner, problem, size.episodes(60), count):
            lost += truth not in field(result.state, MEMBERS)[: field(result.state, COUNTERS)[ALIVE]]
        upper = binomtest(lost, count).proportion_ci(0.95).high
        rows.append((delta, f"{lost} of {count}", f"{upper:.3f}"))
    return table(("delta", "runs that lose the truth", "upper end of the 95% interval"), rows)


def speed(size: Size) -> str:
    """Measure microseconds of processor time an episode, the first hundred and later ones."""
    cases: dict[str, Any] = {
        "577": SparseLadder(nonzero=2, seed=300),
        "6,561": PatchyIce(slip=ICE[2]),
        "122,027": SparseLadder(nonzero=2, dimension=16, most=5, seed=300),
    }
    rows, late = [], size.episodes(20_000)
    for name, problem in list(cases.items())[: 1 if size.tiny else None]:
        ladder = orl.Ladder.of_problem(problem)
        for kind in ("optimism, smallest", "sampling, all", "ARL-GEN"):
            agent, times = CAST[kind](ladder, 1), []
            for episodes in (min(late, 100), 1, min(late, 100), late):  # the first compiles
                began = time.process_time()
                orl.run(agent, problem, episodes=episodes, seed=1, progress=False)
                times.append(time.process_time() - began)
            each = (times[2] - times[1]) / min(late, 100), (times[3] - times[2]) / max(1, late - 100)
            rows.append((name, kind, *(number(1e6 * seconds) for seconds in each)))
    return table(("kernels", "agent", "us an episode, up to 100", "from there to 20,000"), rows)
