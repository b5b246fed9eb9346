"""Occam against ARL-GEN: where a class holds the truth, and where none does; coverage; mixtures.

For docs/occam.md (:mod:`studies.figures`). All agents meet the same seeds. Instances are fresh:
none of them was looked at while the algorithms were made, and these have no constant that was
tuned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from scipy.stats import binomtest

import occamrl as orl
from occamrl.arrays import Floats
from occamrl.evidence.lists import ListEvidence
from occamrl.problems.lakes import FrozenLake, PatchyIce, walk
from occamrl.problems.mixtures import SparseLadder
from occamrl.problems.operations import Pricing
from studies.figures import Played, Size, each, interval, kept, play, regrets, table
from studies.ladders import AGENTS, preflight
from studies.linear import Cast
from studies.simulators import CASES, PAIR

ICE = ((1 / 3,), (0.0, 0.1), (0.1, 0.0, 1 / 3, 0.1), (0.1, 0.0, 0.0, 0.1, 0.0, 1 / 3, 0.1, 0.0))
CAST: dict[str, Callable[[orl.Ladder, int], orl.Learner]] = {
    "optimism, smallest": lambda ladder, m: orl.Occam(ladder=ladder, scope="smallest"),
    "optimism, all": lambda ladder, m: orl.Occam(ladder=ladder, scope="all"),
    "sampling, smallest": lambda ladder, m: orl.Occam(
        ladder=ladder, acting="sampling", scope="smallest"
    ),
    "sampling, all": lambda ladder, m: orl.Occam(ladder=ladder, acting="sampling", scope="all"),
    "ARL-GEN": AGENTS["ARL-GEN"],
    "Occam, oracle": lambda ladder, m: orl.Occam(ladder=ladder.only(m)),
    "Occam, largest class": lambda ladder, m: orl.Occam(ladder=ladder.only(ladder.classes)),
}


class LadderProblem(Protocol):
    """A problem that a ladder can be made of."""

    @property
    def mdp(self) -> orl.FiniteMDP:
        """The problem as a FiniteMDP."""


class Case(NamedTuple):
    """A problem, one for each seed, that a ladder holds."""

    name: str
    problem: Callable[[int], LadderProblem]
    m: int
    episodes: int


def sparse_case(m: int) -> Case:
    """Return sparse ladders, another one for each seed."""
    name = f"sparse ladder, m* = {m}"
    return Case(name, lambda seed: SparseLadder(nonzero=m - 1, seed=200 + seed), m, 2000)


def ice_case(m: int) -> Case:
    """Return a lake of patchy ice."""
    return Case(f"ice, m* = {m}", lambda seed: PatchyIce(slip=ICE[m - 1]), m, 400)


def lake_case(name: str, slip: tuple[int, int], m: int) -> Case:
    """Return Gymnasium's lake with other slips."""
    text = f"FrozenLake {name}, slips {slip}"
    return Case(text, lambda seed: FrozenLake(map_name=name, slip=slip), m, 2000)


def cases() -> list[Case]:
    """Return sparse ladders, lakes of patchy ice and Gymnasium's lakes with other slips."""
    return [
        *map(sparse_case, range(1, 5)),
        *map(ice_case, range(1, 5)),
        lake_case("4x4", (6, 6), 2),
        lake_case("4x4", (9, 4), 3),
        lake_case("8x8", (6, 6), 2),
    ]


def held(size: Size) -> str:
    """Measure ladders that hold the truth."""
    rows = []
    for case in size.some(cases()):
        regret = np.array(each(size, size.seeds(10), held_job(size, case), case.name))
        rows.append([f"{case.name}; K = {case.episodes:,}", *map(interval, regret.T)])
    return table(["10 seeds", *CAST], rows)


def held_job(size: Size, case: Case) -> Callable[[int], list[float]]:
    """Return a job that plays every agent on the problem of a seed."""

    def job(seed: int) -> list[float]:
        problem = case.problem(seed)
        ladder = orl.Ladder.of_problem(problem)
        episodes = size.episodes(case.episodes)
        regret = []
        for make in CAST.values():
            agent = make(ladder, case.m)
            result = orl.run(agent, problem, episodes=episodes, seed=seed, progress=False)
            regret.append(result.total_regret)
        return regret

    return job


def blind(size: Size) -> str:
    """Measure pricing, where a wrong small class confirms itself."""
    problem = Pricing()
    if size.tiny:
        problem = Pricing(**Pricing.small[0])
    ladder = orl.Ladder.of_problem(problem)
    m = ladder.class_of(problem.mdp) or 0
    report = preflight(ladder, problem, 800, evidence="likelihood")
    cast = {name: make(ladder, m) for name, make in CAST.items()}
    cast['ARL-GEN, scope="smallest"'] = orl.ARLGen(ladder=ladder, scope="smallest")
    row = [f"pricing, m* = {m}"]
    for runs in play(size, cast, problem, 800, 5).values():
        row.append(interval(regrets(runs)))
    return report + "\n\n" + table(["K = 800, 5 seeds", *cast], [row])


def outside_kernels(lake: PatchyIce) -> dict[str, Floats]:
    """Return kernels that are no member of the ladder of a lake with slips 0, .1 and 1/3."""
    ahead, left_turn, back, right_turn = (walk(lake.lake, turn) for turn in range(4))
    kernels = {}
    for q in (0.12, 0.15, 0.2, 0.3, 0.4):
        to_sides = q * (left_turn + right_turn)
        kernels[f"slip {q} to each side"] = (1 - 2 * q) * ahead + to_sides
    kernels["left .25, right .05"] = 0.7 * ahead + 0.25 * left_turn + 0.05 * right_turn
    # no member ever goes back
    wrong_zero = 0.95 * lake.mdp.kernel() + 0.05 * back
    kernels["a wrong zero: one step in 20 goes back"] = wrong_zero
    return kernels


def outside(size: Size) -> str:
    """Measure truths outside the ladder of patchy ice."""
    lake = PatchyIce(slip=(0.1,))
    ladder = orl.Ladder.of_problem(lake)
    cast: Cast = {
        "optimism": orl.Occam(ladder=ladder),
        "sampling, all": orl.Occam(ladder=ladder, acting="sampling", scope="all"),
        "ARL-GEN": orl.ARLGen(ladder=ladder),
    }
    rows = []
    for name, kernel in size.some(outside_kernels(lake).items()):
        mdp = orl.FiniteMDP(transition=kernel, reward=lake.reward, horizon=lake.horizon)
        played = play(size, cast, mdp, 4_000, 10, label=name)
        played |= play(size, {"PSRL, tabular": orl.PSRL()}, mdp, 4_000, 3, label=f"{name}, PSRL")
        row = [name]
        for agent, runs in played.items():
            tail = float(np.mean([one.tail for one in runs]))
            cell = f"{interval(regrets(runs))}; {tail:.1g}"
            if agent in ("optimism", "sampling, all"):
                cell += f"; {noticed(runs)}"
            row.append(cell)
        rows.append(row)
    head = (
        "K = 4,000, 10 seeds (PSRL 3): regret; per episode at the end; `misspecified` in, "
        "since (median, latest)"
    )
    return table([head, *played], rows)


def noticed(runs: list[Played]) -> str:
    """Return in how many runs the ladder was found misspecified, and since when in these."""
    since = []
    for one in runs:
        episode = one.phases[-1]["misspecified_since"]
        if episode:
            since.append(episode)
    text = f"{len(since)}/{len(runs)}"
    if since:
        text += f", {np.median(since):.0f}, {max(since)}"
    return text


def coverage(size: Size) -> str:
    """Measure how often the true kernel is not alive at some time in 60 episodes."""
    rows = []
    for delta in (0.05, 0.5):
        lost = each(size, size.seeds(400), coverage_job(size, delta), f"delta = {delta}")
        upper = binomtest(sum(lost), len(lost)).proportion_ci(0.95).high
        rows.append((delta, f"{sum(lost)} of {len(lost)}", f"{upper:.3f}"))
    return table(("delta", "runs that lose the truth", "upper end of the 95% interval"), rows)


def coverage_job(size: Size, delta: float) -> Callable[[int], bool]:
    """Return a job that says whether the truth was struck off after some episode."""
    problem = SparseLadder(nonzero=2, seed=300)
    ladder = orl.Ladder.of_problem(problem)
    theta = ladder.family.theta.reshape(ladder.family.size, -1)
    truth = int(np.flatnonzero(np.isclose(theta, problem.theta).all(axis=1))[0])
    agent = orl.Occam(ladder=ladder, delta=delta, replan=0.0)

    def job(seed: int) -> bool:
        evidence = agent.evidence(problem.mdp.known)
        assert isinstance(evidence, ListEvidence)  # noqa: S101  # of a ladder of lists
        result = None
        # one episode at a time, because the truth may come back to life
        for _ in range(size.episodes(60)):
            result = orl.run(
                agent, problem, episodes=1, seed=seed, progress=False, continue_from=result
            )
            if not evidence.alive(result.state["evidence"])[truth]:
                return True
        return False

    return job


# Mixtures of simulators ---------------------------------------------------------------------------


class PairRun(NamedTuple):
    """A run on a mixture of two simulators, and what likelihood said of the pair."""

    played: Played
    since: int | None  # the episode since which the true pair is the only smallest compatible set
    covered: list[bool]  # at every report: whether the pair is compatible, as far as is reported


def run_pair(agent: orl.OccamMixture, mdp: orl.FiniteMDP, episodes: int, seed: int) -> PairRun:
    """Play, and ask for a report after 8, 16, 32, ... episodes."""
    pair = list(PAIR)
    result = orl.run(agent, mdp, episodes=min(8, episodes), seed=seed, progress=False)
    since = None
    covered = []
    while True:
        smallest = []
        for one in orl.supports(result).smallest:
            smallest.append([int(name) - 1 for name in one.members])
        if smallest != [pair]:
            since = None
        elif since is None:
            since = result.total_episodes
        # sets that are smaller than the pair are reported before it
        smaller = any(len(members) < len(pair) for members in smallest)
        covered.append(smaller or pair in smallest)
        remaining = episodes - result.total_episodes
        if remaining == 0:
            return PairRun(kept(result), since, covered)
        result = orl.run(
            agent,
            mdp,
            episodes=min(result.total_episodes, remaining),
            seed=seed,
            progress=False,
            continue_from=result,
        )


def mixtures(size: Size) -> str:
    """Measure regret on mixtures of two of twelve simulators, and when the pair is named."""
    K = size.episodes(4_000)
    rows = []
    for name, make in size.some(CASES.items()):
        kernels, mdp = make()
        features = orl.Simulators(kernels).features
        pair = orl.FeatureMap([kernels[j] for j in PAIR])
        cast: Cast = {
            "OccamMixture on the pair (oracle)": orl.OccamMixture(features=pair),
            "UCRL-VTR-LIN": orl.UCRLVTRLin(features=features, norm_bound=1.0),
            "ARL-LIN": orl.ARLLin(features=features, norm_bound=1.0),
        }
        runs = each(size, size.seeds(10), pair_job(features, mdp, K), name)
        row = [name, interval([one.played.regret for one in runs])]
        for others in play(size, cast, mdp, 4_000, 10, label=name).values():
            row.append(interval(regrets(others)))
        rows.append([*row, *pair_reports(runs)])
    header = (
        "twelve simulators, K = 4,000, 10 seeds",
        "OccamMixture",
        *cast,
        "pair named: seeds, since (median, latest)",
        "pair compatible: reports",
    )
    return table(header, rows)


def pair_job(
    features: orl.FeatureMap, mdp: orl.FiniteMDP, episodes: int
) -> Callable[[int], PairRun]:
    """Return a job that plays OccamMixture with a seed."""
    agent = orl.OccamMixture(features=features)
    return lambda seed: run_pair(agent, mdp, episodes, seed)


def pair_reports(runs: list[PairRun]) -> tuple[str, str]:
    """Return how often the pair was named and since when, and how many reports allow for it."""
    since = [one.since for one in runs if one.since is not None]
    named = f"{len(since)}/{len(runs)}"
    if since:
        named += f": {np.median(since):.0f}, {max(since)}"
    covered = sum(sum(one.covered) for one in runs)
    reports = sum(len(one.covered) for one in runs)
    return named, f"{covered}/{reports}"
