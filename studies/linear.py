"""Linear kernels: selection by dimension and by norm, lazy planning, unknown rewards, one kernel per step.

For docs/selection-linear.md and docs/learners.md (:mod:`studies.figures`): means over seeds with
95% bootstrap intervals, delta = 0.05, ``norm_bound`` = ||theta*|| unless b is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import occamrl as orl
from occamrl.problems.mixtures import ReferenceMixture, SparseMixture
from studies.figures import (
    Panel,
    Size,
    curves,
    each,
    interval,
    number,
    picture,
    play,
    ratio,
    regrets,
    table,
)


@dataclass(frozen=True)
class Case:
    """A problem with its features and the truth."""

    problem: Any

    @cached_property
    def features(self) -> orl.FeatureMap:
        """The features."""
        return orl.FeatureMap(self.problem.phi)

    @property
    def norm(self) -> float:
        """||theta*||."""
        return float(np.linalg.norm(self.problem.theta))

    @property
    def support(self) -> list[int]:
        """The coordinates that are not zero."""
        return [int(j) for j in np.flatnonzero(self.problem.theta)]

    @cached_property
    def agents(self) -> dict[str, Any]:
        """The learner on all coordinates, that on the true support, and ARL-LIN(dim)."""
        return {
            "all coordinates": orl.UCRLVTRLin(features=self.features, norm_bound=self.norm),
            "oracle": orl.UCRLVTRLin(
                features=self.features.restrict(self.support), norm_bound=self.norm
            ),
            "ARL-LIN(dim)": orl.ARLLinDim(features=self.features, norm_bound=self.norm),
        }


def dimension(size: Size) -> str:
    """Measure selection by dimension on the reference mixture."""
    case, K = Case(ReferenceMixture()), 300_000
    wide = {
        f"ARL-LIN, b = {b:g}": orl.ARLLin(features=case.features, norm_bound=b)
        for b in (10.0, 100.0)
    }
    played = play(size, {**case.agents, **wide}, case.problem, K, 10)
    rows = [
        (f"**{name}**" if "dim" in name else name, interval(regrets(runs)))
        for name, runs in played.items()
    ]
    shown = {name: played[name] for name in reversed(case.agents)}
    lines = curves(shown, size.episodes(K))
    picture(size, "selection-linear.png", [Panel("reference mixture", lines, logarithmic=True)])
    return table(("300,000 episodes, 10 seeds", "regret"), rows)


def fresh_instances(first_seed: int) -> Iterator[tuple[str, Case]]:
    """Yield 20 instances: gamma 0.2, 0.35, 0.5; 2 to 6 non-zero coordinates; d = 16, 32.

    Seeds from 100 on were used to choose the default schedule; those from 7000 on were not.
    """
    for i in range(20):
        gamma, nonzero, d = (0.2, 0.35, 0.5)[i % 3], 2 + i % 5, (16, 32)[i // 2 % 2]
        problem = SparseMixture(gamma=gamma, nonzero=nonzero, dimension=d, seed=first_seed + i)
        yield f"gamma {gamma}, {nonzero} non-zero, d = {d}", Case(problem)


def instances(size: Size) -> str:
    """Measure how much of the gap between all coordinates and the oracle is closed on 20 instances, one run each."""
    cases = size.some(fresh_instances(7000))

    def job(i: int) -> float:
        case = cases[i][1]
        runs = play(Size(size.tiny), case.agents, case.problem, 300_000, 1)
        full, best, found = (one[0].regret for one in runs.values())
        return 100.0 * (full - found) / (full - best) if full > best else 100.0

    closed = each(size, len(cases), job, "instances")
    least = int(np.argmin(closed))
    row = (
        f"{len(closed)}, problem seeds 7000 to 7019",
        interval(closed),
        f"{closed[least]:.1f} ({cases[least][0]})",
    )
    return table(("instances, K = 300,000, one run each", "gap closed in percent", "least"), [row])


def control(size: Size) -> str:
    """Measure the negative control: every coordinate is non-zero, and the active set must stay whole."""
    rows = []
    for d in (6, 16):
        case = Case(SparseMixture(dimension=d, nonzero=d, seed=3))
        cast = {name: agent for name, agent in case.agents.items() if name != "oracle"}
        full, found = play(size, cast, case.problem, 300_000, 10).values()
        cost = 100.0 * regrets(found) / np.maximum(regrets(full), 1e-9) - 100.0
        dropped = sum(len(row["chosen"]) < d for one in found for row in one.phases)
        rows.append((d, interval(regrets(full)), interval(regrets(found)), interval(cost), dropped))
    header = (
        "d, all non-zero; K = 300,000, 10 seeds",
        "all coordinates",
        "ARL-LIN(dim)",
        "cost in percent",
    )
    return table((*header, "phases that dropped a coordinate"), rows)


def norm(size: Size) -> str:
    """Measure selection by norm on the reference mixture."""
    case, cast = Case(ReferenceMixture()), dict[str, Any]()
    bounds: tuple[float, ...] = (case.norm, 10.0, 100.0)
    common: dict[str, Any] = {"features": case.features}
    for b in bounds:
        cast[f"lambda = 1: b kept|{b}"] = orl.UCRLVTRLin(**common, norm_bound=b)
        cast[f"lambda = d/(4b²): b kept|{b}"] = orl.UCRLVTRLin(
            **common, norm_bound=b, regularization="scaled"
        )
        cast[f"**ARL-LIN(norm)**|{b}"] = orl.ARLLinNorm(**common, norm_bound=b)
    played = play(size, cast, case.problem, 200_000, 10)
    names = dict.fromkeys(name.split("|")[0] for name in cast)
    rows = [(name, *(interval(regrets(played[f"{name}|{b}"])) for b in bounds)) for name in names]
    return table(
        ("K = 200,000, 10 seeds", f"b = {case.norm:.3g}, the norm (oracle)", "b = 10", "b = 100"),
        rows,
    )


def scale(size: Size) -> str:
    """Measure how regret grows with d, at four non-zero coordinates."""
    found: dict[str, list[str]] = {}
    for d in size.some((16, 64)):
        case = Case(SparseMixture(dimension=d, nonzero=4, seed=0))
        for name, runs in play(
            size, case.agents, case.problem, 20_000, 10, label=f"d = {d}"
        ).items():
            found.setdefault(name, []).append(interval(regrets(runs)))
    header = ("4 non-zero coordinates, K = 20,000, 10 seeds", "d = 16", "d = 64")
    return table(header, [(name, *cells) for name, cells in found.items()])


def containment(size: Size) -> str:
    """Measure how often the true support is active from the first epoch on that has exactly it."""
    rows, label = [], "gamma 0.5, 5 non-zero, d = 16"
    hard = next(case for name, case in fresh_instances(100) if name == label)
    for name, case in (("the reference mixture", Case(ReferenceMixture())), (label, hard)):
        true, kept_it, exact, more, locked = set(case.support), 0, 0, 0, []
        played = play(
            size, {name: case.agents["ARL-LIN(dim)"]}, case.problem, 30_000, 200, label=name
        )[name]
        for one in played:
            phases = [
                row for row in one.phases if row["label"] == "exploitation" and row["epoch"] > 0
            ]
            sets = [(row["first"] - 1, set(row["chosen"])) for row in phases]
            first = next((n for n, (_, active) in enumerate(sets) if active == true), len(sets))
            later = [active for _, active in sets[first:]]
            kept_it += bool(later) and all(true <= active for active in later)
            exact += bool(sets) and sets[-1][1] == true
            more += any(active > true for active in later)
            locked.append(sets[first][0] if later else size.episodes(30_000))
        shares = (f"{100 * count / len(played):.1f}%" for count in (kept_it, exact, more))
        rows.append((name, *shares, f"{np.median(locked):,.0f}, {max(locked):,}"))
    header = (
        "K = 30,000, 200 seeds",
        "support within the set from lock-in on",
        "exactly the support at the end",
    )
    return table(
        (*header, "a coordinate too many after lock-in", "lock-in at episode (median, latest)"),
        rows,
    )


def paper(size: Size) -> str:
    """Measure the paper's ARL-LIN(dim) to the letter, with its references."""
    case = Case(ReferenceMixture())
    selector: dict[str, Any] = {"features": case.features, "norm_bound": case.norm}
    cast: dict[str, Any] = {
        "all coordinates": orl.paper.UCRLVTRLin(**selector),
        "the true support": orl.paper.UCRLVTRLin(
            features=case.features.restrict(case.support), norm_bound=case.norm
        ),
        "ARL-LIN(dim)": orl.paper.ARLLinDim(**selector),
        "ARL-LIN(dim), thresholds 0.5^(i+1) of the box": orl.paper.ARLLinDim(
            **selector, threshold_epoch="box"
        ),
    }
    rows = []
    for name, (one,) in play(size, cast, case.problem, 20_000, 1).items():
        epochs = {
            row["epoch"]: len(row["chosen"])
            for row in reversed(one.phases)
            if row.get("chosen") is not None
        }
        rows.append((name, number(one.regret), ", ".join(str(epochs[i]) for i in sorted(epochs))))
    return table(("K = 20,000, one seed", "regret", "coordinates in play, epoch by epoch"), rows)


def lazy(size: Size) -> str:
    """Measure what lazy planning costs: regret and the number of plans."""
    case, names = Case(ReferenceMixture()), {0.0: "0 (every episode)", 0.2: "0.2 (default)"}
    common: dict[str, Any] = {"features": case.features, "norm_bound": case.norm}
    cast = {
        names.get(c, f"{c:g}"): orl.UCRLVTRLin(**common, replan=c)
        for c in (0.0, 0.05, 0.2, 0.5, 1.0, 4.0)
    }
    played = play(size, cast, case.problem, 20_000, 10)
    rows = [
        (name, interval(regrets(runs)), number(float(np.mean([one.plans for one in runs]))))
        for name, runs in played.items()
    ]
    return table(("c; K = 20,000, 10 seeds", "regret", "plans"), rows)


# Extensions ---------------------------------------------------------------------------------------


def noisy(problem: SparseMixture, noise: Any = "bernoulli") -> orl.FiniteMDP:
    """Return the problem with random rewards."""
    mdp = problem.mdp
    return orl.FiniteMDP(
        transition=mdp.kernel(),
        reward=mdp.known.base_reward,
        horizon=mdp.horizon,
        initial_state=mdp.initial_distribution,
        reward_noise=noise,
    )


def rewards(size: Size) -> str:
    """Measure known rewards against each estimate, with much noise and none."""
    problem = SparseMixture(seed=0)
    features = orl.FeatureMap(problem.phi)

    def agent(delta: float) -> orl.UCRLVTRLin:
        return orl.UCRLVTRLin(features=features, norm_bound=1.3, delta=delta)

    cast: dict[str, Any] = {
        "known": agent(0.05),
        "per pair, Hoeffding": orl.RewardsPerPair(agent=agent(0.025), bound="hoeffding"),
        "per pair, Bernstein": orl.RewardsPerPair(agent=agent(0.025)),
    }
    cells: dict[str, list[str]] = {name: [] for name in cast}
    for noise in ("bernoulli", None):
        played = play(
            size, cast, noisy(problem, noise), 100_000, 10, label=f"rewards, noise {noise}"
        )
        for name, runs in played.items():
            more = (
                ""
                if name == "known"
                else f", ratio {ratio(regrets(runs), regrets(played['known']))}"
            )
            cells[name].append(interval(regrets(runs)) + more)
    header = ("rewards; K = 100,000, 10 seeds", "Bernoulli", "no noise")
    return table(header, [(name, *found) for name, found in cells.items()])


def steps(size: Size) -> str:
    """Measure one kernel per step on stationary problems of growing horizon, after 10,000 and 100,000 episodes."""
    rows, marks = [], np.array([size.episodes(10_000), size.episodes(100_000)])
    for horizon in size.some((3, 6, 12, 24)):
        problem, count = SparseMixture(seed=0, horizon=horizon), size.seeds(10)
        kernels: Any = ("stationary", "per_step")
        agents = [
            orl.UCRLVTRLin(features=orl.FeatureMap(problem.phi), norm_bound=1.3, kernel=k)
            for k in kernels
        ]

        def job(i: int, agents: Any = agents, problem: Any = problem, count: int = count) -> Any:
            agent, seed = agents[i // count], i % count
            return orl.run(
                agent, problem, episodes=int(marks[-1]), seed=seed, progress=False
            ).regret_at(marks)

        plain, stepwise = (
            np.array(each(size, 2 * count, job, f"H = {horizon}"))
            .reshape(2, count, 2)
            .transpose(0, 2, 1)
        )
        means = (
            ", ".join(number(float(found.mean())) for found in both) for both in (plain, stepwise)
        )
        rows.append((horizon, *means, *map(ratio, stepwise, plain), f"{np.sqrt(horizon):.2f}"))
    header = (
        "H; after 10,000 and 100,000 episodes, 10 seeds",
        "stationary",
        "per step",
        "ratio after 10,000",
    )
    return table((*header, "ratio after 100,000", "sqrt(H)"), rows)


def moving_mixture(seed: int) -> tuple[orl.FiniteMDP, orl.FeatureMap]:
    """Return a mixture of four kernels, each step near another one of them, and its features."""
    rng = np.random.default_rng(seed)
    states, actions, horizon = 8, 3, 6
    kernels = rng.dirichlet(0.3 * np.ones(states), size=(4, states, actions))
    phi = np.ascontiguousarray(np.moveaxis(kernels, 0, -1))
    weights = np.array([0.85 * np.eye(4)[h % 4] + 0.15 / 4 for h in range(horizon)])
    reward = rng.random((states, actions)) ** 3
    transition = np.stack([phi @ w for w in weights])
    mdp = orl.FiniteMDP(
        transition=transition, reward=reward, horizon=horizon, reward_noise="bernoulli"
    )
    return mdp, orl.FeatureMap(phi)


def changing(size: Size) -> str:
    """Measure both learners where the kernel changes with the step."""
    rows, kernels = [], {"stationary": "stationary", "per step": "per_step"}
    for seed in size.some(range(3)):
        mdp, features = moving_mixture(seed)
        cast = {
            name: orl.UCRLVTRLin(features=features, norm_bound=1.0, kernel=k)  # type: ignore[arg-type]
            for name, k in kernels.items()
        }
        rows.append(
            (
                seed,
                *(interval(regrets(runs)) for runs in play(size, cast, mdp, 100_000, 10).values()),
            )
        )
    return table(("instance; K = 100,000, 10 seeds", *kernels), rows)


def selectors(size: Size) -> str:
    """Measure ARL-LIN(dim) and (norm) with known and with unknown rewards."""
    problem = SparseMixture(seed=0)
    features, rows = orl.FeatureMap(problem.phi), []
    for name, delta in (("known rewards", 0.05), ("unknown rewards, per pair", 0.025)):
        common: dict[str, Any] = {"features": features, "delta": delta}
        cast: dict[str, Any] = {
            "all 16 features, b = 1.3": orl.UCRLVTRLin(**common, norm_bound=1.3),
            "ARL-LIN(dim)": orl.ARLLinDim(**common, norm_bound=1.3),
            "ARL-LIN(norm), b = 100": orl.ARLLinNorm(**common, norm_bound=100.0),
        }
        if delta < 0.05:
            cast = {label: orl.RewardsPerPair(agent=agent) for label, agent in cast.items()}
        played = play(size, cast, noisy(problem), 100_000, 10, label=name)
        rows.append((name, *(interval(regrets(runs)) for runs in played.values())))
    return table(("K = 100,000, 10 seeds", *cast), rows)


def families(size: Size) -> str:
    """Measure UCRL-VTR on a family of kernels, and ARL-GEN on a ladder of it."""
    rng = np.random.default_rng(0)
    kernels = rng.dirichlet(0.5 * np.ones(5), size=(60, 5, 3))
    reward, rows = rng.random((5, 3)), []
    ladder = orl.Ladder([orl.FiniteFamily(kernels[:count]) for count in (1, 6, 20, 60)])
    fixed = {"reward": reward, "horizon": 6, "reward_noise": "bernoulli"}
    stationary = orl.FiniteMDP(transition=kernels[4], **fixed)  # type: ignore[arg-type]
    moving = orl.FiniteMDP(transition=kernels[[4, 2, 5, 3, 1, 4]], **fixed)  # type: ignore[arg-type]
    whole, selector = orl.UCRLVTR(family=ladder.family), orl.ARLGen(ladder=ladder)
    steps = orl.UCRLVTR(family=ladder.family, kernel="per_step")
    cases = {
        "neither": (
            (stationary, whole),
            (stationary, selector),
            (moving, whole),
            (moving, selector),
        ),
        "unknown rewards, per pair": tuple(
            (mdp, orl.RewardsPerPair(agent=agent))
            for mdp in (stationary, moving)
            for agent in (whole, selector)
        ),
        "one kernel per step": ((stationary, steps), None, (moving, steps), None),
    }
    for name, cells in cases.items():
        row: list[str] = [name]
        for cell in cells:
            played = {} if cell is None else play(size, {name: cell[1]}, cell[0], 20_000, 10)
            row.append(interval(regrets(played[name])) if played else "")
        rows.append(row)
    header = (
        "K = 20,000, 10 seeds",
        "one kernel: all 60",
        "ARL-GEN",
        "kernels that change: all 60",
        "ARL-GEN",
    )
    return table(header, rows)
