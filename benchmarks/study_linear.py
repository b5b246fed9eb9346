"""Selection in linear kernel MDPs, measured: ARL-LIN(dim) and ARL-LIN(norm) against their references.

Regret does not depend on the machine; times do. Every line is a mean over seeds with a 95% bootstrap interval.

    python benchmarks/study_linear.py                     all parts
    python benchmarks/study_linear.py --part dimension    one of dimension, instances, containment, norm, scale, long,
                                                          control, lazy
    python benchmarks/study_linear.py --part scale --figure docs/figures/selection-linear.png
    python benchmarks/study_linear.py --instance file.npz another sparse mixture, with the arrays transition, reward,
                                                          phi, theta, horizon and initial_state
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import bootstrap

import occamrl as orl
from occamrl.problems.mixtures import SparseMixture
from occamrl.protocols import Agent, Floats
from occamrl.running.result import Result
from occamrl.selectors.references import largest, oracle

SEEDS = 10


@dataclass(frozen=True)
class Case:
    """A problem with its features and the truth."""

    mdp: orl.FiniteMDP
    features: orl.FeatureMap
    theta: Floats

    @property
    def norm(self) -> float:
        """||theta*||."""
        return float(np.linalg.norm(self.theta))

    @property
    def support(self) -> list[int]:
        """The coordinates that are not zero."""
        return np.flatnonzero(self.theta).tolist()


def generated(**parameters: Any) -> Case:
    """Return a sparse mixture of the project's own generator."""
    problem = SparseMixture(**parameters)
    return Case(problem.mdp, orl.FeatureMap(problem.phi), problem.theta)


def stored(path: Path) -> Case:
    """Return an instance from a file."""
    with np.load(path) as file:
        mdp = orl.FiniteMDP(
            transition=file["transition"],
            reward=file["reward"],
            horizon=int(file["horizon"]),
            initial_state=int(file["initial_state"]),
        )
        return Case(mdp, orl.FeatureMap(file["phi"]), file["theta"])


def play(agent: Agent, case: Case, episodes: int, seeds: int = SEEDS) -> list[Result]:
    """Play an agent with several seeds."""
    return [orl.run(agent, case.mdp, episodes=episodes, seed=seed, progress=False) for seed in range(seeds)]


def interval(values: Sequence[float] | Floats) -> str:
    """Return a mean with its bootstrap interval."""
    data = np.asarray(values, dtype=np.float64)
    if len(data) < 2 or np.ptp(data) == 0.0:
        return f"{data.mean():>10,.1f}"
    found = bootstrap((data,), np.mean, method="percentile", rng=np.random.default_rng(0)).confidence_interval
    return f"{data.mean():>10,.1f}  [{found.low:,.1f}, {found.high:,.1f}]"


def line(label: str, agent: Agent, case: Case, episodes: int, seeds: int = SEEDS) -> list[Result]:
    """Play an agent and print its line."""
    results = play(agent, case, episodes, seeds)
    pessimistic = sum(result.pessimistic_episodes for result in results)
    seconds = sum(result.wall_time for result in results) / len(results)
    note = f"   not optimistic: {pessimistic:,} episodes" if pessimistic else ""
    print(f"  {label:<44}{interval([r.total_regret for r in results]):<34}{seconds:>7.2f} s{note}", flush=True)
    return results


def dimension(case: Case) -> None:
    """Print the table of selection by dimension."""
    print("\nK = 300,000, lazy planning 0.2, delta = 0.05, norm_bound = ||theta*||")
    common: dict[str, Any] = {"features": case.features, "norm_bound": case.norm}
    plain: dict[str, Any] = {"norm_bound": case.norm, "weights": "none", "radius": "unweighted"}
    known = case.features.restrict(case.support)
    line("no weights: all coordinates", orl.UCRLVTRLin(features=case.features, **plain), case, 300_000)
    line("no weights: oracle", orl.UCRLVTRLin(features=known, **plain), case, 300_000)
    new = orl.ARLLinDim(**common)
    line("range weights: all coordinates", largest(new), case, 300_000)
    line("range weights: oracle", oracle(new, case.theta), case, 300_000)
    line("ARL-LIN(dim), the default", new, case, 300_000)
    line("ARL-LIN(dim), k_0 = 16", orl.ARLLinDim(**common, initial_episodes=16), case, 300_000)
    for bound in (10.0, 100.0):
        line(
            f"ARL-LIN, both at once, b = {bound:g}", orl.ARLLin(features=case.features, norm_bound=bound), case, 300_000
        )


def fresh_instances(first_seed: int = 7000) -> list[tuple[str, Case]]:
    """Return 20 instances: gamma 0.2, 0.35, 0.5; 2 to 6 non-zero coordinates; d = 16, 32.

    Seeds from 100 on were used to choose the default schedule; those from 7000 on were not looked at before.
    """
    cases = []
    for i in range(20):
        what = {"gamma": (0.2, 0.35, 0.5)[i % 3], "nonzero": 2 + i % 5, "dimension": (16, 32)[i // 2 % 2]}
        cases.append((str(what), generated(**what, seed=first_seed + i)))
    return cases


def instances(case: Case) -> None:
    """Print how much of the gap is closed on instances drawn afresh."""
    print("\n20 instances, K = 300,000: regret of all coordinates, the oracle, ARL-LIN(dim); gap closed")
    closed = []
    for label, each in fresh_instances():
        new = orl.ARLLinDim(features=each.features, norm_bound=each.norm)
        agents = (largest(new), oracle(new, each.theta), new)
        full, best, found = (np.mean([r.total_regret for r in play(agent, each, 300_000)]) for agent in agents)
        closed.append(float((full - found) / (full - best)))
        print(f"  {label:<52}{full:>9,.0f}{best:>8,.1f}{found:>8,.1f}{closed[-1]:>8.1%}", flush=True)
    print(f"  mean gap closed, in percent: {interval([100 * value for value in closed])}; least {min(closed):.1%}")


def containment(case: Case, seeds: int = 200) -> None:
    """Print how often the true support is active, over seeds and instances."""
    print(f"\nTrue support within the active set, {seeds} seeds, K = 30,000")
    for label, each in [("the instance", case), *fresh_instances(100)[2:12:3]]:
        new = orl.ARLLinDim(features=each.features, norm_bound=each.norm)
        true, kept, exact, more, locked = set(each.support), 0, 0, 0, []
        for result in play(new, each, 30_000, seeds):
            rows = result.phases.to_pylist()
            begins = np.cumsum([0] + [row["episodes"] for row in rows])
            sets = [
                (begin, set(row["active"]))
                for begin, row in zip(begins, rows, strict=False)
                if row["label"] == "exploitation" and row["epoch"] > 0
            ]
            first = next((n for n, (_, active) in enumerate(sets) if active == true), len(sets))
            later = [active for _, active in sets[first:]]
            kept += bool(later) and all(true <= active for active in later)
            exact += sets[-1][1] == true
            more += any(active > true for active in later)
            locked.append(int(sets[first][0]) if later else 30_000)
        print(
            f"  {label:<52} from lock-in on {kept / seeds:.1%}, exact at the end {exact / seeds:.1%}, "
            f"a coordinate too many after lock-in in {more / seeds:.1%}; lock-in at episode {np.median(locked):,.0f} "
            f"(median), {max(locked):,} (latest)",
            flush=True,
        )


def norm(case: Case) -> None:
    """Print the table of selection by norm, and the rate of b^(i)."""
    print(f"\nK = 200,000, ||theta*|| = {case.norm:.4g}")
    common: dict[str, Any] = {"features": case.features}
    plain: dict[str, Any] = {**common, "weights": "none", "radius": "unweighted"}
    line("no weights: oracle", orl.UCRLVTRLin(**plain, norm_bound=case.norm), case, 200_000)
    for bound in (10.0, 100.0):
        old = orl.ARLLinNorm(**plain, norm_bound=bound, regularization=1.0, initial_episodes=100)
        line(f"no weights, b = {bound:g}: largest", orl.UCRLVTRLin(**plain, norm_bound=bound), case, 200_000)
        line(f"no weights, b = {bound:g}: ARL-LIN(norm)", old, case, 200_000)
    known = line("oracle, lambda = 1", orl.UCRLVTRLin(**common, norm_bound=case.norm), case, 200_000)
    scaled: dict[str, Any] = {**common, "regularization": "scaled"}
    line("oracle, lambda = d/(4b^2)", orl.UCRLVTRLin(**scaled, norm_bound=case.norm), case, 200_000)
    base = np.mean([result.total_regret for result in known])
    for bound in (10.0, 100.0):
        line(f"b = {bound:g}: largest, lambda = 1", orl.UCRLVTRLin(**common, norm_bound=bound), case, 200_000)
        line(f"b = {bound:g}: largest, d/(4b^2)", orl.UCRLVTRLin(**scaled, norm_bound=bound), case, 200_000)
        found = line(f"b = {bound:g}: ARL-LIN(norm)", orl.ARLLinNorm(**common, norm_bound=bound), case, 200_000)
        ratio = np.mean([result.total_regret for result in found]) / base
        print(f"    {ratio:.3f} times the oracle (lambda = 1)")
        bounds = np.mean([result.phases["norm_bound"].to_pylist() for result in found], axis=0)
        print("    b^(i):", " ".join(f"{value:.3g}" for value in bounds))
        late = np.arange(len(bounds) - 6, len(bounds))
        ratio = (bounds - case.norm) / (np.arange(len(bounds)) + 1.0) ** 1.5 * 2.0 ** (0.5 * np.arange(len(bounds)))
        print("    (b^(i) - ||theta*||) / (i^1.5 2^(-i/2)):", " ".join(f"{value:.3g}" for value in ratio))
        slope = np.polyfit(late, np.log2((bounds[late] - case.norm) / (late + 1.0) ** 1.5), 1)[0]
        print(f"    over the last six epochs b^(i) - ||theta*|| falls like i^1.5 2^({slope:.2f} i); theory: -0.5")


def scale(case: Case, figure: Path | None = None) -> None:
    """Print how regret and time grow with d, at four non-zero coordinates; draw it on request."""
    print("\n4 non-zero coordinates, K = 20,000: regret and seconds")
    dimensions = (16, 64, 256)
    drawn: dict[str, list[Floats]] = {"all coordinates": [], "ARL-LIN(dim)": [], "oracle": []}
    for d in dimensions:
        each = generated(dimension=d, nonzero=4, gamma=0.5, seed=0)
        new = orl.ARLLinDim(features=each.features, norm_bound=each.norm)
        agents: tuple[Agent, ...] = (largest(new), new, oracle(new, each.theta))
        for label, agent in zip(drawn, agents, strict=True):
            heavy = d == 256 and label == "all coordinates"
            results = line(f"d = {d}: {label}", agent, each, 20_000, 2 if heavy else SEEDS)
            drawn[label].append(np.array([result.total_regret for result in results]))
    if figure is not None:
        draw_scale(dimensions, drawn, figure)


def draw_scale(dimensions: Sequence[int], drawn: Mapping[str, Sequence[Floats]], figure: Path) -> None:
    """Draw regret over d on logarithmic axes: means, and every seed as a dot."""
    plate, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for label, seeds in drawn.items():
        measured = dimensions[: len(seeds)]
        (mean,) = axes.plot(measured, [each.mean() for each in seeds], marker="o", label=label)
        for d, each in zip(measured, seeds, strict=True):
            axes.plot(np.full(each.size, d), each, ".", color=mean.get_color(), alpha=0.35, markersize=4)
    axes.set(
        xscale="log", yscale="log", xlabel="d, of which 4 coordinates matter", ylabel="regret after 20,000 episodes"
    )
    axes.set_xticks(dimensions, [str(d) for d in dimensions])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.parent.mkdir(parents=True, exist_ok=True)
    plate.savefig(figure, dpi=120)
    plt.close(plate)
    print(f"  figure: {figure}")


def long(case: Case) -> None:
    """Print time and memory of ten million episodes."""
    agent = orl.ARLLinDim(features=case.features, norm_bound=case.norm)
    orl.run(agent, case.mdp, episodes=100_000, progress=False)
    print("\nARL-LIN(dim), one core")
    for episodes in (1_000_000, 10_000_000):
        began = time.perf_counter()
        result = orl.run(agent, case.mdp, episodes=episodes, progress=False)
        seconds, peak = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"  {episodes:>12,} episodes: {seconds:6.1f} s, regret {result.total_regret:,.1f}, peak {peak:,.0f} MiB")


def control(case: Case) -> None:
    """Print the negative control: every coordinate is non-zero."""
    print("\nNothing to leave out, K = 300,000; the active set must stay whole")
    for d in (6, 16):
        each = generated(dimension=d, nonzero=d, gamma=0.5, seed=3)
        new = orl.ARLLinDim(features=each.features, norm_bound=each.norm)
        full = line(f"d = {d}: all coordinates", largest(new), each, 300_000)
        found = line(f"d = {d}: ARL-LIN(dim)", new, each, 300_000)
        ratios = [a.total_regret / b.total_regret for a, b in zip(found, full, strict=True)]
        dropped = sum(len(row["active"]) < d for result in found for row in result.phases.to_pylist())
        cost = interval([100 * ratio - 100 for ratio in ratios])
        print(f"    cost in percent: {cost}; phases that dropped one: {dropped}")
        print(f"    price in the squared radius: + log(2)/2 = {0.5 * np.log(2):.2f}")


def lazy(case: Case) -> None:
    """Print what lazy planning costs: regret with its standard error, and the number of plans."""
    print("\nUCRL-VTR-LIN on all coordinates, K = 20,000: regret, its standard error, plans")
    for replan in (0.0, 0.05, 0.2, 0.5, 1.0, 4.0):
        agent = orl.UCRLVTRLin(features=case.features, norm_bound=case.norm, replan=replan)
        results = play(agent, case, 20_000)
        regret, plans = [r.total_regret for r in results], [r.plans for r in results]
        error = np.std(regret, ddof=1) / np.sqrt(len(regret))
        print(f"  c = {replan:<6g}{np.mean(regret):>8,.0f} +- {error:<6.1f}{np.mean(plans):>10,.0f}", flush=True)


PARTS: dict[str, Callable[[Case], None]] = {
    "dimension": dimension,
    "instances": instances,
    "containment": containment,
    "norm": norm,
    "long": long,
    "control": control,
    "lazy": lazy,
}


def main() -> None:
    """Print the study, or one part of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--part", choices=[*PARTS, "scale"], action="append", help="only this part; may be given several times"
    )
    parser.add_argument("--instance", type=Path, help="an NPZ file to use as the instance of the tables")
    parser.add_argument("--figure", type=Path, help="where to draw regret over d (part scale)")
    given = parser.parse_args()
    parts: dict[str, Callable[[Case], None]] = {**PARTS, "scale": partial(scale, figure=given.figure)}
    case = generated(dimension=16, nonzero=3, gamma=0.5, seed=0) if given.instance is None else stored(given.instance)
    for name in given.part or parts:
        parts[name](case)


if __name__ == "__main__":
    main()
