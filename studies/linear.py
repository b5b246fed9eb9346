"""Linear kernels: selection by dimension and norm, lazy plans, unknown rewards, kernels per step.

For docs/selection-linear.md and docs/learners.md (:mod:`studies.figures`): means over seeds with
95% bootstrap intervals, delta = 0.05, ``norm_bound`` = ||theta*|| unless b is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

import occamrl as orl
from occamrl.arrays import Floats
from occamrl.problems.mixtures import ReferenceMixture, SparseMixture
from studies.figures import (
    Panel,
    Played,
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

Cast = dict[str, orl.Learner]
Noise = Literal["bernoulli"] | None
DIM = "ARL-LIN(dim)"
WHOLE = "all coordinates"
ORACLE = "oracle"


@dataclass(frozen=True)
class Case:
    """A problem with its features and the truth."""

    problem: SparseMixture | ReferenceMixture

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
        support: list[int] = np.flatnonzero(self.problem.theta).tolist()
        return support

    @cached_property
    def agents(self) -> Cast:
        """The learner on all coordinates, that on the true support, and ARL-LIN(dim)."""
        support = self.features.restrict(self.support)
        return {
            WHOLE: orl.UCRLVTRLin(features=self.features, norm_bound=self.norm),
            ORACLE: orl.UCRLVTRLin(features=support, norm_bound=self.norm),
            DIM: orl.ARLLinDim(features=self.features, norm_bound=self.norm),
        }


def intervals(played: Mapping[str, list[Played]]) -> list[str]:
    """Return the mean regret of each agent with its interval."""
    return [interval(regrets(runs)) for runs in played.values()]


# Selection ----------------------------------------------------------------------------------------


def dimension(size: Size) -> str:
    """Measure selection by dimension on the reference mixture."""
    case = Case(ReferenceMixture())
    K = 300_000
    cast = dict(case.agents)
    for b in (10.0, 100.0):
        cast[f"ARL-LIN, b = {b:g}"] = orl.ARLLin(features=case.features, norm_bound=b)
    played = play(size, cast, case.problem, K, 10)
    rows = []
    for name, regret in zip(played, intervals(played), strict=True):
        shown = f"**{name}**" if name == DIM else name
        rows.append((shown, regret))
    lines = curves({name: played[name] for name in reversed(case.agents)}, size.episodes(K))
    picture(size, "selection-linear.png", [Panel("reference mixture", lines, logarithmic=True)])
    return table(("300,000 episodes, 10 seeds", "regret"), rows)


def fresh_instances(first_seed: int) -> Iterator[tuple[str, Case]]:
    """Yield 20 instances: gamma 0.2, 0.35, 0.5; 2 to 6 non-zero coordinates; d = 16, 32.

    Seeds from 100 on were used to choose the default schedule; those from 7000 on were not.
    """
    for i in range(20):
        gamma = (0.2, 0.35, 0.5)[i % 3]
        nonzero = 2 + i % 5
        d = (16, 32)[i // 2 % 2]
        problem = SparseMixture(gamma=gamma, nonzero=nonzero, dimension=d, seed=first_seed + i)
        yield f"gamma {gamma}, {nonzero} non-zero, d = {d}", Case(problem)


def instances(size: Size) -> str:
    """Measure how much of the gap to the oracle is closed on 20 instances, one run each."""
    cases = size.some(fresh_instances(7000))

    def job(i: int) -> float:
        case = cases[i][1]
        played = play(Size(size.tiny), case.agents, case.problem, 300_000, 1)
        whole = played[WHOLE][0].regret
        oracle = played[ORACLE][0].regret
        if whole <= oracle:
            return 100.0
        return 100.0 * (whole - played[DIM][0].regret) / (whole - oracle)

    closed = each(size, len(cases), job, "instances")
    least = int(np.argmin(closed))
    row = (
        f"{len(closed)}, problem seeds 7000 to 7019",
        interval(closed),
        f"{closed[least]:.1f} ({cases[least][0]})",
    )
    return table(("instances, K = 300,000, one run each", "gap closed in percent", "least"), [row])


def control(size: Size) -> str:
    """Measure the negative control: all coordinates matter, and the active set must stay whole."""
    rows = []
    for d in (6, 16):
        case = Case(SparseMixture(dimension=d, nonzero=d, seed=3))
        cast = {WHOLE: case.agents[WHOLE], DIM: case.agents[DIM]}
        played = play(size, cast, case.problem, 300_000, 10)
        whole = regrets(played[WHOLE])
        selector = regrets(played[DIM])
        cost = 100.0 * selector / np.maximum(whole, 1e-9) - 100.0
        dropped = 0
        for one in played[DIM]:
            dropped += sum(len(row["chosen"]) < d for row in one.phases)
        rows.append((d, interval(whole), interval(selector), interval(cost), dropped))
    header = (
        "d, all non-zero; K = 300,000, 10 seeds",
        WHOLE,
        DIM,
        "cost in percent",
        "phases that dropped a coordinate",
    )
    return table(header, rows)


def norm(size: Size) -> str:
    """Measure selection by norm on the reference mixture."""
    case = Case(ReferenceMixture())
    features = case.features
    rows: dict[str, list[str]] = {}
    for b in (case.norm, 10.0, 100.0):
        cast: Cast = {
            "lambda = 1: b kept": orl.UCRLVTRLin(features=features, norm_bound=b),
            "lambda = d/(4b²): b kept": orl.UCRLVTRLin(
                features=features, norm_bound=b, regularization="scaled"
            ),
            "**ARL-LIN(norm)**": orl.ARLLinNorm(features=features, norm_bound=b),
        }
        played = play(size, cast, case.problem, 200_000, 10)
        for name, regret in zip(played, intervals(played), strict=True):
            rows.setdefault(name, [name]).append(regret)
    oracle = f"b = {case.norm:.3g}, the norm (oracle)"
    return table(("K = 200,000, 10 seeds", oracle, "b = 10", "b = 100"), rows.values())


def scale(size: Size) -> str:
    """Measure how regret grows with d, at four non-zero coordinates."""
    rows: dict[str, list[str]] = {}
    for d in size.some((16, 64)):
        case = Case(SparseMixture(dimension=d, nonzero=4, seed=0))
        played = play(size, case.agents, case.problem, 20_000, 10, label=f"d = {d}")
        for name, regret in zip(played, intervals(played), strict=True):
            rows.setdefault(name, [name]).append(regret)
    header = ("4 non-zero coordinates, K = 20,000, 10 seeds", "d = 16", "d = 64")
    return table(header, rows.values())


class LockIn(NamedTuple):
    """How the active set of a run relates to the true support."""

    episode: int | None  # before the first epoch that has exactly the support; None: none has
    contained: bool  # from then on the support is within the set
    exact: bool  # at the end the set is the support
    wider: bool  # some set after that has a coordinate too many


def lock_in(run: Played, support: set[int]) -> LockIn:
    """Return when a run found the support, and what it did then."""
    phases = []
    for row in run.phases:
        if row["label"] == "exploitation" and row["epoch"] > 0:
            phases.append(row)
    sets = [set(row["chosen"]) for row in phases]
    exact = bool(sets) and sets[-1] == support
    if support not in sets:
        return LockIn(None, contained=False, exact=exact, wider=False)
    first = sets.index(support)
    later = sets[first:]
    return LockIn(
        phases[first]["first"] - 1,
        contained=all(support <= active for active in later),
        exact=exact,
        wider=any(active > support for active in later),
    )


def containment(size: Size) -> str:
    """Measure how often the support is active from the first epoch on that has exactly it."""
    label = "gamma 0.5, 5 non-zero, d = 16"
    cases = {
        "the reference mixture": Case(ReferenceMixture()),
        label: dict(fresh_instances(100))[label],
    }
    rows = []
    for name, case in cases.items():
        cast = {DIM: case.agents[DIM]}
        runs = play(size, cast, case.problem, 30_000, 200, label=name)[DIM]
        locks = [lock_in(one, set(case.support)) for one in runs]
        # a run that never found the support counts with all its episodes
        episodes = [lock.episode or size.episodes(30_000) for lock in locks]
        shares = 100 * np.mean([lock[1:] for lock in locks], axis=0)
        when = f"{np.median(episodes):,.0f}, {max(episodes):,}"
        rows.append((name, *map("{:.1f}%".format, shares), when))
    header = (
        "K = 30,000, 200 seeds",
        "support within the set from lock-in on",
        "exactly the support at the end",
        "a coordinate too many after lock-in",
        "lock-in at episode (median, latest)",
    )
    return table(header, rows)


def paper(size: Size) -> str:
    """Measure the paper's ARL-LIN(dim) to the letter, with its references."""
    case = Case(ReferenceMixture())
    support = case.features.restrict(case.support)
    cast: Cast = {
        WHOLE: orl.paper.UCRLVTRLin(features=case.features, norm_bound=case.norm),
        "the true support": orl.paper.UCRLVTRLin(features=support, norm_bound=case.norm),
        DIM: orl.paper.ARLLinDim(features=case.features, norm_bound=case.norm),
        "ARL-LIN(dim), thresholds 0.5^(i+1) of the box": orl.paper.ARLLinDim(
            features=case.features, norm_bound=case.norm, threshold_epoch="box"
        ),
    }
    rows = []
    for name, (one,) in play(size, cast, case.problem, 20_000, 1).items():
        sizes: dict[int, int] = {}
        for row in one.phases:
            if row.get("chosen") is not None:
                sizes.setdefault(row["epoch"], len(row["chosen"]))
        rows.append((name, number(one.regret), ", ".join(map(str, sizes.values()))))
    return table(("K = 20,000, one seed", "regret", "coordinates in play, epoch by epoch"), rows)


# Extensions ---------------------------------------------------------------------------------------


def lazy(size: Size) -> str:
    """Measure what lazy planning costs: regret and the number of plans."""
    case = Case(ReferenceMixture())
    names = {
        "0 (every episode)": 0.0,
        "0.05": 0.05,
        "0.2 (default)": 0.2,
        "0.5": 0.5,
        "1": 1.0,
        "4": 4.0,
    }
    cast = {}
    for name, c in names.items():
        cast[name] = orl.UCRLVTRLin(features=case.features, norm_bound=case.norm, replan=c)
    rows = []
    for name, runs in play(size, cast, case.problem, 20_000, 10).items():
        plans = float(np.mean([one.plans for one in runs]))
        rows.append((name, interval(regrets(runs)), number(plans)))
    return table(("c; K = 20,000, 10 seeds", "regret", "plans"), rows)


def noisy(problem: SparseMixture, noise: Noise = "bernoulli") -> orl.FiniteMDP:
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
    # half of delta pays for the rewards
    half = orl.UCRLVTRLin(features=features, norm_bound=1.3, delta=0.025)
    cast: Cast = {
        "known": orl.UCRLVTRLin(features=features, norm_bound=1.3),
        "per pair, Hoeffding": orl.RewardsPerPair(agent=half, bound="hoeffding"),
        "per pair, Bernstein": orl.RewardsPerPair(agent=half),
    }
    noises: tuple[Noise, ...] = ("bernoulli", None)
    rows = {name: [name] for name in cast}
    for noise in noises:
        mdp = noisy(problem, noise)
        played = play(size, cast, mdp, 100_000, 10, label=f"rewards, noise {noise}")
        known = regrets(played["known"])
        for name, runs in played.items():
            cell = interval(regrets(runs))
            if name != "known":
                cell += f", ratio {ratio(regrets(runs), known)}"
            rows[name].append(cell)
    return table(("rewards; K = 100,000, 10 seeds", "Bernoulli", "no noise"), rows.values())


def steps(size: Size) -> str:
    """Measure one kernel per step on stationary problems, after 10,000 and 100,000 episodes."""
    marks = np.array([size.episodes(10_000), size.episodes(100_000)])
    rows = []
    for horizon in size.some((3, 6, 12, 24)):
        problem = SparseMixture(seed=0, horizon=horizon)
        features = orl.FeatureMap(problem.phi)
        plain = regrets_at(size, orl.UCRLVTRLin(features=features, norm_bound=1.3), problem, marks)
        stepwise = regrets_at(
            size,
            orl.UCRLVTRLin(features=features, norm_bound=1.3, kernel="per_step"),
            problem,
            marks,
        )
        rows.append(
            (
                horizon,
                ", ".join(map(number, plain.mean(axis=1))),
                ", ".join(map(number, stepwise.mean(axis=1))),
                ratio(stepwise[0], plain[0]),
                ratio(stepwise[1], plain[1]),
                f"{np.sqrt(horizon):.2f}",
            )
        )
    header = (
        "H; after 10,000 and 100,000 episodes, 10 seeds",
        "stationary",
        "per step",
        "ratio after 10,000",
        "ratio after 100,000",
        "sqrt(H)",
    )
    return table(header, rows)


def regrets_at(size: Size, agent: orl.Learner, problem: SparseMixture, marks: Floats) -> Floats:
    """Return the regret of ten runs at some episodes [marks, seeds]."""

    def job(seed: int) -> Floats:
        result = orl.run(agent, problem, episodes=int(marks[-1]), seed=seed, progress=False)
        return np.asarray(result.regret_at(marks))

    return np.array(each(size, size.seeds(10), job, f"H = {problem.horizon}")).T


def moving_mixture(seed: int) -> tuple[orl.FiniteMDP, orl.FeatureMap]:
    """Return a mixture of four kernels, each step near another one of them, and its features."""
    rng = np.random.default_rng(seed)
    states = 8
    horizon = 6
    kernels = rng.dirichlet(0.3 * np.ones(states), size=(4, states, 3))
    phi = np.ascontiguousarray(np.moveaxis(kernels, 0, -1))
    reward = rng.random((states, 3)) ** 3
    transition = []
    for h in range(horizon):
        weights = 0.85 * np.eye(4)[h % 4] + 0.15 / 4
        transition.append(phi @ weights)
    mdp = orl.FiniteMDP(
        transition=np.stack(transition), reward=reward, horizon=horizon, reward_noise="bernoulli"
    )
    return mdp, orl.FeatureMap(phi)


def changing(size: Size) -> str:
    """Measure both learners where the kernel changes with the step."""
    rows = []
    for seed in size.some(range(3)):
        mdp, features = moving_mixture(seed)
        cast: Cast = {
            "stationary": orl.UCRLVTRLin(features=features, norm_bound=1.0),
            "per step": orl.UCRLVTRLin(features=features, norm_bound=1.0, kernel="per_step"),
        }
        rows.append((seed, *intervals(play(size, cast, mdp, 100_000, 10))))
    return table(("instance; K = 100,000, 10 seeds", "stationary", "per step"), rows)


def selectors(size: Size) -> str:
    """Measure ARL-LIN(dim) and (norm) with known and with unknown rewards."""
    problem = SparseMixture(seed=0)

    def cast(delta: float) -> Cast:
        features = orl.FeatureMap(problem.phi)
        return {
            "all 16 features, b = 1.3": orl.UCRLVTRLin(
                features=features, norm_bound=1.3, delta=delta
            ),
            DIM: orl.ARLLinDim(features=features, norm_bound=1.3, delta=delta),
            "ARL-LIN(norm), b = 100": orl.ARLLinNorm(
                features=features, norm_bound=100.0, delta=delta
            ),
        }

    known = cast(0.05)
    # half of delta pays for the rewards
    unknown = {name: orl.RewardsPerPair(agent=agent) for name, agent in cast(0.025).items()}
    rows = []
    for name, agents in (("known rewards", known), ("unknown rewards, per pair", unknown)):
        played = play(size, agents, noisy(problem), 100_000, 10, label=name)
        rows.append((name, *intervals(played)))
    return table(("K = 100,000, 10 seeds", *known), rows)


def families(size: Size) -> str:
    """Measure UCRL-VTR on a family of kernels, and ARL-GEN on a ladder of it."""
    rng = np.random.default_rng(0)
    kernels = rng.dirichlet(0.5 * np.ones(5), size=(60, 5, 3))
    reward = rng.random((5, 3))
    ladder = orl.Ladder([orl.FiniteFamily(kernels[:count]) for count in (1, 6, 20, 60)])

    def problem(transition: Floats) -> orl.FiniteMDP:
        return orl.FiniteMDP(
            transition=transition, reward=reward, horizon=6, reward_noise="bernoulli"
        )

    stationary = problem(kernels[4])
    moving = problem(kernels[[4, 2, 5, 3, 1, 4]])
    whole = orl.UCRLVTR(family=ladder.family)
    selector = orl.ARLGen(ladder=ladder)
    agents: dict[str, tuple[orl.Learner, orl.Learner | None]] = {
        "neither": (whole, selector),
        "unknown rewards, per pair": (
            orl.RewardsPerPair(agent=whole),
            orl.RewardsPerPair(agent=selector),
        ),
        # selectors assume one kernel for all steps
        "one kernel per step": (orl.UCRLVTR(family=ladder.family, kernel="per_step"), None),
    }
    rows = []
    for name, pair in agents.items():
        row = [name]
        for mdp in (stationary, moving):
            for agent in pair:
                cell = ""
                if agent is not None:
                    cell = interval(regrets(play(size, {name: agent}, mdp, 20_000, 10)[name]))
                row.append(cell)
        rows.append(row)
    header = (
        "K = 20,000, 10 seeds",
        "one kernel: all 60",
        "ARL-GEN",
        "kernels that change: all 60",
        "ARL-GEN",
    )
    return table(header, rows)
