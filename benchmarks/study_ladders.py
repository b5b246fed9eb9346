"""Selection on ladders, measured: what ARL-GEN finds, when, and whether that pays.

    python benchmarks/study_ladders.py [--seeds 10] [--figure docs/figures/selection-ladders.png] [part ...]

Parts: classes, false, ice, pricing, large, linear, pays. Regret is exact; all agents meet the same random numbers. The
paper's own rule is measured by ``study_paper.py --part ladder``.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom, binomtest

import occamrl as orl
from occamrl.problems.classic import RiverZones
from occamrl.problems.lakes import PatchyIce
from occamrl.problems.mixtures import MemoryWalk, SparseLadder, SparseMixture
from occamrl.problems.operations import Pricing
from occamrl.report.figures import compare
from occamrl.selectors.references import largest, oracle, smallest


@dataclass(frozen=True)
class Kept:
    """What the study needs of a result; a learner's state can be large."""

    total_regret: float
    episodes: Any
    cumulative_regret: Any
    phases: Any
    wall_time: float


Runs = dict[str, list[Any]]


def play(agents: dict[str, Any], problem: Any, episodes: int, seeds: int) -> Runs:
    """Run every agent on every seed."""
    runs: Runs = {}
    for name, agent in agents.items():
        runs[name] = []
        for seed in range(seeds):
            r = orl.run(agent, problem, episodes=episodes, seed=seed, progress=False)
            runs[name].append(Kept(r.total_regret, r.episodes, r.cumulative_regret, r.phases, r.wall_time))
    return runs


def usual(ladder: orl.Ladder, m: int) -> dict[str, Any]:
    """Return ARL-GEN and its reference points."""
    return {
        "ARL-GEN": orl.ARLGen(ladder=ladder),
        "safe": orl.ARLGen(ladder=ladder, safe=True),
        "guard": orl.ARLGen(ladder=ladder, guard=True),
        "oracle": oracle(ladder, m),
        "F_M": largest(ladder),
        "F_1": smallest(ladder),
    }


def table(runs: Runs, m: int, after: int = 1022) -> None:
    """Print regret, the share of seeds with the right class in all phases after some episodes, and when it came."""
    print(f"    {'agent':<18}{'regret':>9}{'worst':>9}{'right':>7}{'since (median, worst)':>24}{'us/episode':>12}")
    for name, results in runs.items():
        regret = [result.total_regret for result in results]
        right, since = "", ""
        if "chosen" in results[0].phases.column_names:
            fine, when = [], []
            for result in results:
                phases = result.phases
                start = np.cumsum([0, *phases["episodes"].to_pylist()])[:-1]
                chosen = np.array(phases["chosen"].to_pylist())
                fine.append(bool((chosen[start >= after] == m).all()))
                when.append(phases["since"].to_pylist()[-1])
            right, since = f"{np.mean(fine):.0%}", f"{np.median(when):.0f}, {max(when)}"
        pace = 1e6 * min(r.wall_time / r.episodes[-1] for r in results)
        print(f"    {name:<18}{np.mean(regret):>9.1f}{max(regret):>9.1f}{right:>7}{since:>24}{pace:>12.1f}", flush=True)


def classes(seeds: int) -> None:
    """Print the ladder of 1, 17, 129 and 577 kernels, for every m*."""
    for m in range(1, 5):
        problem = SparseLadder(nonzero=m - 1)
        ladder = orl.Ladder.of_problem(problem)
        print(f"  {ladder}, m* = {m}, K = 16,382")
        table(play(usual(ladder, m), problem, 2**14 - 2, seeds), m)


def large(seeds: int) -> None:
    """Print the pace and the memory with 107,283 kernels given by parameters."""
    for m in (1, 2, 5):
        problem = SparseLadder(dimension=22, most=4, nonzero=m - 1, persistence=0.0)
        tick = time.perf_counter()
        ladder = orl.Ladder.of_problem(problem)
        ladder.family.optimal_values(problem.mdp.known)
        print(f"  {ladder}, m* = {m}: built and solved in {time.perf_counter() - tick:.1f} s")
        agents = usual(ladder, m)
        for name in ("guard", "F_1"):
            del agents[name]
        table(play(agents, problem, 2**14 - 2, min(seeds, 3)), m)
        print(f"    most memory so far: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")


def false_rejection(runs: int = 400, delta: float = 0.05) -> None:
    """Print how often the class of the truth is rejected, with the test and without its slack log(1/delta)."""
    problem = SparseLadder(nonzero=1)
    ladder = orl.Ladder.of_problem(problem)
    cases = {
        "the test": orl.ARLGen(ladder=ladder, delta=delta),
        "without its slack": orl.ARLGen(ladder=ladder, delta=delta, scale=0.0),
    }
    for name, agent in cases.items():
        results = [orl.run(agent, problem, episodes=1022, seed=seed, progress=False) for seed in range(runs)]
        count = sum(max(result.phases["chosen"].to_pylist()) > 2 for result in results)
        p = binomtest(count, runs, delta, alternative="greater").pvalue
        verdict = "keeps delta" if count <= binom.ppf(0.999, runs, delta) else "FAILS"
        print(
            f"  {name:<28}{count:>4} of {runs} rejected F_m*, delta = {delta}: {verdict} (exact p = {p:.3g})",
            flush=True,
        )


def ice(seeds: int) -> None:
    """Print patchy ice: where selection pays."""
    for slip in ((0.1,), (0.1, 0.0), (0.0, 0.1, 0.1, 1 / 3), (0.0, 0.1, 0.1, 0.0, 1 / 3, 0.1, 0.1, 0.0)):
        problem = PatchyIce(slip=slip)
        ladder = orl.Ladder.of_problem(problem)
        m = ladder.class_of(problem.mdp) or 0
        print(f"  slip {tuple(round(q, 2) for q in slip)}, m* = {m}, K = 8,190, V* = {problem.mdp.optimal_value:.3f}")
        table(play(usual(ladder, m), problem, 2**13 - 2, seeds), m)


def pricing(seeds: int) -> None:
    """Print the pricing ladder: where a wrong small class confirms itself."""
    problem = Pricing()
    ladder = orl.Ladder.of_problem(problem)
    m = ladder.class_of(problem.mdp) or 0
    report = orl.preflight(ladder, problem.mdp.known, episodes=2**12 - 2, start=problem.stock)
    print(report)
    print(f"  demand {problem.demand}, m* = {m}, K = 4,094")
    table(play(usual(ladder, m), problem, 2**12 - 2, seeds), m)


def pays(seeds: int, figure: Path | None) -> None:
    """Print and draw regret over that of the oracle, across separation, size and length."""
    print(f"  {'contrast':>8}{'|F_M|':>8}{'m*':>4}{'K':>8}{'ARL-GEN/oracle':>16}{'F_M/oracle':>12}{'oracle':>8}")
    panels: dict[str, Runs] = {}
    for contrast in (0.3, 0.6, 0.95):
        for most in (1, 3):
            for m in (1, 2):
                problem = SparseLadder(nonzero=m - 1, most=most, contrast=contrast, persistence=0.0)
                ladder = orl.Ladder.of_problem(problem)
                runs = play(
                    {
                        "ARL-GEN": orl.ARLGen(ladder=ladder),
                        "oracle": oracle(ladder, m),
                        "F_M": largest(ladder),
                    },
                    problem,
                    2**14 - 2,
                    seeds,
                )
                for episodes in (2**10 - 2, 2**14 - 2):
                    mean = {n: np.mean([r.cumulative_regret[episodes - 1] for r in rs]) for n, rs in runs.items()}
                    best = mean["oracle"] if mean["oracle"] > 0.05 else np.nan
                    ratio = [mean[name] / best for name in ("ARL-GEN", "F_M")]
                    print(
                        f"  {contrast:>8}{ladder.family.size:>8}{m:>4}{episodes:>8,}{ratio[0]:>16.2f}{ratio[1]:>12.2f}"
                        f"{mean['oracle']:>8.1f}   absolute: {mean['ARL-GEN']:.1f} and {mean['F_M']:.1f}",
                        flush=True,
                    )
                if most == 3 and contrast in (0.3, 0.95) and m == 2:
                    panels[f"sparse hypotheses, contrast {contrast}, m* = {m}"] = runs
    for slip, title in (((0.1,), "patchy ice, m* = 1"), ((0.1, 0.0), "patchy ice, m* = 2")):
        problem_ice = PatchyIce(slip=slip)
        ladder, m = orl.Ladder.of_problem(problem_ice), len(slip)
        agents = usual(ladder, m)
        panels[title] = play({n: agents[n] for n in ("ARL-GEN", "oracle", "F_M")}, problem_ice, 2**13 - 2, seeds)
    if figure is not None:
        draw(panels, figure)


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


def linear(seeds: int, figure: Path | None) -> None:
    """Print and draw linear ladders: coordinates, aggregations of a river, orders of memory."""
    panels: dict[str, Runs] = {}
    cases = {
        "coordinates 1 ... 9": coordinates(),
        "river of 24 states, 2 ... 24 blocks": river(0.005),
        "order of memory": memory(),
        "river, home pays 0.03": river(0.03),
    }
    for title, (ladder, problem, episodes) in cases.items():
        m = ladder.class_of(problem.mdp)
        print(f"  {title}: {ladder}, m* = {m}, K = {episodes:,}", flush=True)
        agents: dict[str, Any] = {
            "ARL-GEN": orl.ARLGen(ladder=ladder),
            "oracle": oracle(ladder, m),
            "F_M": largest(ladder),
            "F_1": smallest(ladder),
        }
        runs = play(agents, problem, episodes, seeds)
        table(runs, m)
        panels[f"{title}, m* = {m}"] = runs
        if figure is not None:  # after each, so that a run that is cut short leaves a figure
            draw(panels, figure.with_name("selection-ladders-linear.png"))


def draw(panels: dict[str, Runs], figure: Path) -> None:
    """Draw cumulative regret, one panel per problem."""
    figure.parent.mkdir(parents=True, exist_ok=True)
    drawn = compare(panels, logarithmic=True)
    for axes in drawn.axes:
        axes.set_ylim(bottom=0.0)
    drawn.savefig(figure, dpi=120)
    print(f"  figure: {figure}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args(arguments)
    parts: dict[str, Callable[[], None]] = {
        "classes": lambda: classes(options.seeds),
        "false": false_rejection,
        "ice": lambda: ice(options.seeds),
        "pricing": lambda: pricing(options.seeds),
        "large": lambda: large(options.seeds),
        "linear": lambda: linear(options.seeds, options.figure),
        "pays": lambda: pays(options.seeds, options.figure),
    }
    for name in options.parts or parts:
        print(f"\n{name}", flush=True)
        parts[name]()


if __name__ == "__main__":
    main()
