"""Selection on ladders: what ARL-GEN finds, when, and whether that pays.

For docs/selection-ladders.md (:mod:`benchmarks.figures`): mean regret, and the episode since which the class at the end
has been in play (median, latest). All agents meet the same random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

import occamrl as orl
from benchmarks.figures import Line, Panel, Size, number, picture, runs, table
from occamrl.problems.classic import RiverZones
from occamrl.problems.lakes import PatchyIce
from occamrl.problems.mixtures import MemoryWalk, ReferenceLadder, SparseLadder, SparseMixture
from occamrl.problems.operations import Pricing
from occamrl.selectors.references import largest, oracle, smallest


@dataclass(frozen=True)
class Kept:
    """What the studies need of a result; a learner's state can be large."""

    total_regret: float
    cumulative_regret: Any
    phases: Any


Runs = dict[str, list[Any]]


def play(cast: dict[str, Any], problem: Any, episodes: int, seeds: int) -> Runs:
    """Run every agent on every seed."""
    return {
        name: [Kept(r.total_regret, r.cumulative_regret, r.phases) for r in runs(agent, problem, episodes, seeds)]
        for name, agent in cast.items()
    }


def curves(played: Runs, scale: float = 1.0) -> dict[str, Line]:
    """Return cumulative regret as the lines of a panel, times ``scale``."""
    episodes = len(next(iter(played.values()))[0].cumulative_regret)
    at = np.unique(np.geomspace(1, episodes, 300).astype(int))
    return {
        name: (at, scale * np.array([result.cumulative_regret[at - 1] for result in results]))
        for name, results in played.items()
    }


AGENTS: dict[str, Callable[[orl.Ladder, int], Any]] = {
    "ARL-GEN": lambda ladder, m: orl.ARLGen(ladder=ladder),
    "safe": lambda ladder, m: orl.ARLGen(ladder=ladder, safe=True),
    "guard": lambda ladder, m: orl.ARLGen(ladder=ladder, guard=True),
    "oracle": oracle,
    "F_M": lambda ladder, m: largest(ladder),
    "F_1": lambda ladder, m: smallest(ladder),
}


def agents(ladder: orl.Ladder, m: int, *names: str) -> dict[str, Any]:
    """Return ARL-GEN and its reference points, those that are named or all."""
    return {name: AGENTS[name](ladder, m) for name in names or AGENTS}


def mean(results: Sequence[Any], scale: float = 1.0) -> str:
    """Return the mean regret, times ``scale``."""
    return number(scale * float(np.mean([result.total_regret for result in results])))


def found(results: Sequence[Any], m: int) -> str:
    """Return in how many runs class m was in play at the end, and since when in these (median, latest)."""
    last = [(r.phases["chosen"].to_pylist()[-1], r.phases["since"].to_pylist()[-1]) for r in results]
    since = [when for chosen, when in last if chosen == m]
    return f"{len(since)}/{len(last)}" + (f": {np.median(since):.0f}, {max(since)}" if since else "")


def preflight(ladder: orl.Ladder, problem: Any, episodes: int, **options: Any) -> str:
    """Return what the preflight says before any data, as an indented block."""
    start = int(np.flatnonzero(problem.mdp.initial_distribution)[0])
    report = orl.preflight(ladder, problem.mdp.known, episodes=episodes, start=start, **options)
    return "\n".join(f"    {line}" for line in str(report).splitlines())


SINCE = "class m* at the end: since (median, latest)"


def line(played: Runs, m: int, scale: float = 1.0) -> list[str]:
    """Return what the tables show of the runs on one problem; regret times ``scale``."""
    first, *others = played.values()
    return [mean(first, scale), found(first, m), *(mean(results, scale) for results in others)]


def header(played: Runs) -> list[str]:
    """Return the heads of the columns of :func:`line`."""
    first, *others = played
    return [first, SINCE, *others]


def classes(size: Size) -> str:
    """Measure the reference ladder of 1, 17, 129 and 577 kernels, for every m*."""
    rows, panels = [], []
    for m in range(1, 5):
        problem = ReferenceLadder(nonzero=m - 1)
        played = play(agents(orl.Ladder.of_problem(problem), m), problem, size.episodes(2**14 - 2), size.seeds(10))
        rows.append([m, *line(played, m)])
        shown = {name: results for name, results in played.items() if name != "guard"}
        panels.append(Panel(f"reference ladder, m* = {m}", curves(shown), beyond="F_1"))
    picture(size, "selection-ladders.png", panels)
    return table(["m*; K = 16,382, 10 seeds", *header(played)], rows)


def false_rejection(size: Size) -> str:
    """Measure how often the class of the truth is rejected, with the test and without its slack log(1/delta)."""
    problem, delta, rows = ReferenceLadder(nonzero=1), 0.05, []
    ladder, count = orl.Ladder.of_problem(problem), size.seeds(400)
    for name, scale in (("the test", 1.0), ("without its slack log(1/delta)", 0.0)):
        agent = orl.ARLGen(ladder=ladder, delta=delta, scale=scale)
        played = play({name: agent}, problem, size.episodes(1022), count)[name]
        rejected = sum(max(run.phases["chosen"].to_pylist()) > 2 for run in played)
        upper = binomtest(rejected, count).proportion_ci(0.95).high
        rows.append((name, f"{rejected} of {count}", f"{upper:.3f}"))
    return table(("m* = 2, K = 1,022, delta = 0.05", "runs that rejected F_2", "upper end of the 95% interval"), rows)


def ice(size: Size) -> str:
    """Measure patchy ice, where selection pays."""
    rows = []
    for name, slip in (
        (".1 everywhere", (0.1,)),
        (".1 left, 0 right", (0.1, 0.0)),
        ("0, .1, .1, 1/3 in four strips", (0.0, 0.1, 0.1, 1 / 3)),
        ("a slip for every column", (0.0, 0.1, 0.1, 0.0, 1 / 3, 0.1, 0.1, 0.0)),
    )[: 1 if size.tiny else None]:
        problem = PatchyIce(slip=slip)
        ladder = orl.Ladder.of_problem(problem)
        m = ladder.class_of(problem.mdp) or 0
        played = play(agents(ladder, m), problem, size.episodes(2**13 - 2), size.seeds(5))
        rows.append([name, m, *line(played, m)])
    return table(["slip; K = 8,190, 5 seeds", "m*", *header(played)], rows)


def pricing(size: Size) -> str:
    """Measure the pricing ladder, where a wrong small class confirms itself."""
    problem = Pricing.examples()[0] if size.tiny else Pricing()  # else 65,536 kernels
    ladder = orl.Ladder.of_problem(problem)
    m = ladder.class_of(problem.mdp) or 0
    played = play(agents(ladder, m), problem, size.episodes(2**12 - 2), size.seeds(5))
    return (
        preflight(ladder, problem, 2**12 - 2)
        + "\n\n"
        + table(["m*; K = 4,094, 5 seeds", *header(played)], [[m, *line(played, m)]])
    )


def pays(size: Size) -> str:
    """Measure regret across separation, size and length."""
    rows, episodes = [], size.episodes(2**14 - 2)
    for contrast in (0.3, 0.6, 0.95):
        for most, m in ((1, 2), (3, 2), (3, 1)):
            problem = SparseLadder(nonzero=m - 1, most=most, contrast=contrast, persistence=0.0)
            ladder = orl.Ladder.of_problem(problem)
            played = play(agents(ladder, m, "ARL-GEN", "oracle", "F_M"), problem, episodes, size.seeds(5))
            early = min(1022, episodes) - 1
            each = (
                f"{number(float(np.mean([r.cumulative_regret[early] for r in results])))}, {mean(results)}"
                for results in played.values()
            )
            rows.append((contrast, ladder.family.size, m, *each))
    return table(("contrast; 5 seeds; after 1,022 and 16,382 episodes", "kernels", "m*", *played), rows)


def coordinates() -> tuple[Any, Any, int]:
    """Return the ladder of the first 1 ... 9 coordinates of a sparse mixture, the truth at 3."""
    mixture = SparseMixture(states=12, actions=3, horizon=10, dimension=9, nonzero=3, gamma=0.5, seed=0)
    features, bound = orl.FeatureMap(mixture.phi), float(np.linalg.norm(mixture.theta))
    order = [*mixture.support, *(j for j in range(9) if j not in mixture.support)]
    rungs = [orl.LinearFamily(features=features, norm_bound=bound, coordinates=order[:r]) for r in range(1, 10)]
    return orl.Ladder(rungs), mixture, 2**14 - 2


def river(left_reward: float) -> tuple[Any, Any, int]:
    """Return the river of 24 states seen through 2, 4, 8 and 24 blocks, the truth at 8."""
    problem = RiverZones(left_reward=left_reward)
    rungs = [orl.AggregationFamily(partition=problem.partition(n), moves=problem.moves) for n in (2, 4, 8, 24)]
    return orl.Ladder(rungs), problem, 2**12 - 2


def memory() -> tuple[Any, Any, int]:
    """Return the orders of memory 0, 1 and 2, the truth at 1."""
    problem = MemoryWalk()
    rungs = [orl.AggregationFamily(partition=problem.partition(k), moves=problem.moves) for k in range(3)]
    return orl.Ladder(rungs), problem, 2**12 - 2


def linear(size: Size) -> str:
    """Measure linear ladders: coordinates, aggregations of a river, orders of memory."""
    rows, panels = [], []
    for title, (ladder, problem, episodes), seeds in (
        ("coordinates 1 ... 9", coordinates(), 10),
        ("order of memory", memory(), 5),
        ("river, home pays .005", river(0.005), 5),
        ("river, home pays .03", river(0.03), 2),
    ):
        m = ladder.class_of(problem.mdp) or 0
        cast = agents(ladder, m, "ARL-GEN", "guard", "oracle", "F_M", "F_1")
        played = play(cast, problem, size.episodes(episodes), size.seeds(seeds))
        rows.append([title, f"{episodes:,}", seeds, m, *line(played, m)])
        panels.append(Panel(f"{title}, m* = {m}", curves(played), beyond="F_1"))
    picture(size, "selection-ladders-linear.png", panels)
    return table(["ladder", "K", "seeds", "m*", *header(played)], rows)
