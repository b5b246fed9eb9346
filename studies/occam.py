"""Occam against ARL-GEN: regret where a class holds the truth, and where none does; coverage; linear classes.

For docs/occam.md (:mod:`studies.figures`). All agents meet the same seeds. Instances are fresh:
none of them was looked at while the algorithms were made, and these have no constant that was
tuned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest

import occamrl as orl
from occamrl.problems.lakes import FrozenLake, PatchyIce, walk
from occamrl.problems.mixtures import SparseLadder
from occamrl.problems.operations import Pricing
from studies.figures import Played, Size, each, interval, kept, play, regrets, table
from studies.ladders import AGENTS, preflight
from studies.simulators import CASES, PAIR

ICE = ((1 / 3,), (0.0, 0.1), (0.1, 0.0, 1 / 3, 0.1), (0.1, 0.0, 0.0, 0.1, 0.0, 1 / 3, 0.1, 0.0))
CAST: dict[str, Callable[[orl.Ladder, int], Any]] = {
    "optimism, smallest": lambda ladder, m: orl.Occam(ladder=ladder),
    "optimism, all": lambda ladder, m: orl.Occam(ladder=ladder, scope="all"),
    "sampling, smallest": lambda ladder, m: orl.Occam(ladder=ladder, acting="sampling"),
    "sampling, all": lambda ladder, m: orl.Occam(ladder=ladder, acting="sampling", scope="all"),
    **{name: AGENTS[name] for name in ("ARL-GEN", "oracle", "largest class")},
}


class Case(NamedTuple):
    """A problem, one for each seed, that a ladder holds."""

    name: str
    problem: Callable[[int], Any]
    m: int
    episodes: int


def cases() -> list[Case]:
    """Return sparse ladders, lakes of patchy ice and Gymnasium's lakes with other slips."""

    def sparse(m: int) -> Case:
        return Case(
            f"sparse ladder, m* = {m}",
            lambda seed: SparseLadder(nonzero=m - 1, seed=200 + seed),
            m,
            2000,
        )

    def ice(m: int) -> Case:
        return Case(f"ice, m* = {m}", lambda _: PatchyIce(slip=ICE[m - 1]), m, 400)

    def lake(name: str, slip: tuple[int, int], m: int) -> Case:
        return Case(
            f"FrozenLake {name}, slips {slip}",
            lambda _: FrozenLake(map_name=name, slip=slip),
            m,
            2000,
        )

    lakes = [lake("4x4", (6, 6), 2), lake("4x4", (9, 4), 3), lake("8x8", (6, 6), 2)]
    return [*map(sparse, range(1, 5)), *map(ice, range(1, 5)), *lakes]


def held(size: Size) -> str:
    """Measure ladders that hold the truth."""
    rows = []
    for case in size.some(cases()):

        def job(seed: int, case: Case = case) -> list[float]:
            problem = case.problem(seed)
            ladder, episodes = orl.Ladder.of_problem(problem), size.episodes(case.episodes)
            agents = [kind(ladder, case.m) for kind in CAST.values()]
            return [
                orl.run(a, problem, episodes=episodes, seed=seed, progress=False).total_regret
                for a in agents
            ]

        found = np.array(each(size, size.seeds(10), job, case.name))
        rows.append([f"{case.name}; K = {case.episodes:,}", *map(interval, found.T)])
    return table(["10 seeds", *CAST], rows)


def blind(size: Size) -> str:
    """Measure pricing, where a wrong small class confirms itself."""
    problem: Any = Pricing(**Pricing.small[0]) if size.tiny else Pricing()
    ladder = orl.Ladder.of_problem(problem)
    m = ladder.class_of(problem.mdp) or 0
    said = preflight(ladder, problem, 800, evidence="likelihood")
    cast = {
        name: kind(ladder, m)
        for name, kind in {**CAST, 'ARL-GEN, scope="all"': AGENTS['scope="all"']}.items()
    }
    row = [interval(regrets(runs)) for runs in play(size, cast, problem, 800, 5).values()]
    return said + "\n\n" + table(["K = 800, 5 seeds", *cast], [[f"pricing, m* = {m}", *row]])


def outside(size: Size) -> str:
    """Measure truths outside the ladder of patchy ice, whose members have slips 0, .1 and 1/3."""
    lake = PatchyIce(slip=(0.1,))
    ladder, rows = orl.Ladder.of_problem(lake), []
    ahead, left, back, right = (walk(lake.lake, turn) for turn in range(4))
    kernels = {
        f"slip {q} to each side": (1 - 2 * q) * ahead + q * (left + right)
        for q in (0.12, 0.15, 0.2, 0.3, 0.4)
    }
    kernels["left .25, right .05"] = 0.7 * ahead + 0.25 * left + 0.05 * right
    kernels["a wrong zero: one step in 20 goes back"] = 0.95 * lake.mdp.kernel() + 0.05 * back
    cast: dict[str, Any] = {
        "optimism": orl.Occam(ladder=ladder),
        "sampling, all": orl.Occam(ladder=ladder, acting="sampling", scope="all"),
        "ARL-GEN": orl.ARLGen(ladder=ladder),
    }
    for name, kernel in size.some(kernels.items()):
        mdp, row = (
            orl.FiniteMDP(transition=kernel, reward=lake.reward, horizon=lake.horizon),
            [name],
        )
        played = play(size, cast, mdp, 4_000, 10, label=name)
        played |= play(size, {"PSRL, tabular": orl.PSRL()}, mdp, 4_000, 3, label=f"{name}, PSRL")
        for label, runs in played.items():
            tail = float(np.mean([one.tail for one in runs]))
            text = f"{interval(regrets(runs))}; {tail:.1g}"
            if label in ("optimism", "sampling, all"):
                when = [since for one in runs if (since := one.phases[-1]["misspecified_since"])]
                text += f"; {len(when)}/{len(runs)}" + (
                    f", {np.median(when):.0f}, {max(when)}" if when else ""
                )
            row.append(text)
        rows.append(row)
    head = "K = 4,000, 10 seeds (PSRL 3): regret; per episode at the end; `misspecified` in, since (median, latest)"
    return table([head, *played], rows)


def coverage(size: Size) -> str:
    """Measure how often the true kernel is not alive at some time in 60 episodes."""
    problem: Any = SparseLadder(nonzero=2, seed=300)
    ladder, known, rows = orl.Ladder.of_problem(problem), problem.mdp.known, []
    theta = ladder.family.theta.reshape(ladder.family.size, -1)
    truth = int(np.flatnonzero(np.isclose(theta, problem.theta).all(axis=1))[0])
    for delta in (0.05, 0.5):
        agent = orl.Occam(ladder=ladder, delta=delta, replan=0.0)

        def job(seed: int, agent: orl.Occam = agent) -> bool:
            """Say whether the truth was struck off after some episode."""
            by: Any = agent.evidence(known)
            result = None
            for _ in range(size.episodes(60)):
                result = orl.run(
                    agent, problem, episodes=1, seed=seed, progress=False, continue_from=result
                )
                if not by.alive(result.state["evidence"])[truth]:
                    return True
            return False

        found = each(size, size.seeds(400), job, f"delta = {delta}")
        upper = binomtest(sum(found), len(found)).proportion_ci(0.95).high
        rows.append((delta, f"{sum(found)} of {len(found)}", f"{upper:.3f}"))
    return table(("delta", "runs that lose the truth", "upper end of the 95% interval"), rows)


# Linear classes -----------------------------------------------------------------------------------


def found_pair(
    agent: orl.OccamMixture, mdp: Any, episodes: int, seed: int
) -> tuple[Played, int | None, list[bool]]:
    """Return a run, since when the true pair is the only smallest compatible set, and when it is compatible."""
    marks = [*(2**i for i in range(3, 30) if 2**i < episodes), episodes]
    result, first, covered = None, None, []
    for mark in marks:
        more = mark - (0 if result is None else result.total_episodes)
        result = orl.run(agent, mdp, episodes=more, seed=seed, progress=False, continue_from=result)
        smallest = [
            [int(name) - 1 for name in one.members] for one in orl.supports(result).smallest
        ]
        first = None if smallest != [list(PAIR)] else first or mark
        covered.append(
            bool(smallest) and (min(map(len, smallest)) < len(PAIR) or list(PAIR) in smallest)
        )
    if result is None:
        raise ValueError(f"no episodes: {episodes}")
    return kept(result), first, covered


def mixtures(size: Size) -> str:
    """Measure regret on mixtures of two of twelve simulators, and when likelihood names the pair."""
    rows, K = [], size.episodes(4_000)
    for name, make in size.some(CASES.items()):
        kernels, mdp = make()
        features, pair = (
            orl.Simulators(kernels).features,
            orl.FeatureMap([kernels[j] for j in PAIR]),
        )
        selector = orl.OccamMixture(features=features)
        runs = each(size, size.seeds(10), lambda i, a=selector, m=mdp: found_pair(a, m, K, i), name)  # type: ignore[misc]
        cast: dict[str, Any] = {
            "OccamMixture on the pair (oracle)": orl.OccamMixture(features=pair),
            "UCRL-VTR-LIN": orl.UCRLVTRLin(features=features, norm_bound=1.0),
            "ARL-LIN": orl.ARLLin(features=features, norm_bound=1.0),
        }
        rest = [
            interval(regrets(one)) for one in play(size, cast, mdp, 4_000, 10, label=name).values()
        ]
        times = [first for _, first, _ in runs if first is not None]
        named = f"{len(times)}/{len(runs)}" + (
            f": {np.median(times):.0f}, {max(times)}" if times else ""
        )
        reports = [each for _, _, covered in runs for each in covered]
        regret = interval([one.regret for one, _, _ in runs])
        rows.append((name, regret, *rest, named, f"{sum(reports)}/{len(reports)}"))
    header = ("twelve simulators, K = 4,000, 10 seeds", "OccamMixture", *cast)
    return table(
        (*header, "pair named: seeds, since (median, latest)", "pair compatible: reports"), rows
    )
