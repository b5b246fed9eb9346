r"""Certificates: what the theory promises, measured, each beside a version that is broken on purpose.

A certificate plays runs with numbered seeds and yields two numbers of each, a value and the bound that it is promised
to respect. A claim turns these into a verdict:

==============  =====================================================  ===============================================
claim           promise                                                interval, verdict
==============  =====================================================  ===============================================
:func:`rate`    a run fails with probability at most delta             Clopper and Pearson; its lower end <= delta
:func:`never`   no plan and no run is ever on the wrong side           Clopper and Pearson; not one
:func:`most`    the value is at most the bound in every run            smallest and largest ratio; the largest <= 1
:func:`mean`    the mean is at most the bound                          Student's t; its lower end <= bound
:func:`near`    a published figure, known to 2 %, is one more run      Student's t, for one more run; it is inside
==============  =====================================================  ===============================================

All intervals have the level 1 - 2 * 0.001, so a promise that is kept is refuted by chance once in a thousand times at
most. The *control* is judged by the same claim and must be refuted: otherwise the certificate would prove nothing.

Measurements are kept one file per certificate, with a hash of the sources they were made with; a certificate that was
measured with these sources and as many runs is not measured again.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest
from scipy.stats import t as student

from occamrl import paper, seeding
from occamrl._core import compile as compiling
from occamrl._core.arena import field
from occamrl._core.rows import COUNTERS, REWARD
from occamrl.analysis.complexity import (
    Setting,
    eluder_dimension,
    linear_eluder_bound,
    predictions,
    regret_bound_dimension,
    regret_bound_generic,
    regret_bound_linear,
    regret_bound_norm,
    regret_bound_vtr,
    selection_epoch_dimension,
    selection_epoch_generic,
)
from occamrl.analysis.supports import Counts
from occamrl.errors import OccamRLError, RecordError, require_choice
from occamrl.experiments.execution import environment
from occamrl.experiments.records import FolderLock
from occamrl.learners import posterior
from occamrl.learners.baselines import UniformRandom
from occamrl.learners.posterior import LikelihoodLearner
from occamrl.learners.radii import ELLIPSOIDS, ellipsoid_width, largest_norm
from occamrl.learners.rewards import RewardsLinear, RewardsPerPair
from occamrl.learners.ucrl_vtr import ALIVE, UCRLVTR
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.models.linear import LinearFamily
from occamrl.paper.ucrl_vtr import beta_infinite, dense_kernels, optimal_values
from occamrl.problems.classic import RiverSwim, WideTree
from occamrl.problems.mdp import BernoulliRewards, FiniteMDP
from occamrl.problems.mixtures import SparseMixture
from occamrl.protocols import Episode, Floats, Ints, Known, Learner
from occamrl.running.files import make_folder, read_sealed, seal, there, write_whole
from occamrl.running.phases import CompiledPlayer, PhaseWalk
from occamrl.running.result import Result, html_table
from occamrl.running.run import run
from occamrl.selectors.arl_gen import ARLGen
from occamrl.selectors.arl_lin import ARLLinDim, ARLLinNorm, lambda_grid, union_level
from occamrl.selectors.references import oracle

LEVEL = 1e-3  # at which a kept promise is refuted by chance, at most
MOST_CONTROLS = 400  # runs of a control: it fails often, so fewer are enough

Samples = list[tuple[float, float]]  # a value and its bound, for every run
Runs = Iterator[tuple[float, float]]  # the same, while they are played
Measure = Callable[..., Runs]


# ------------------------------------------------------------------------------------------------------------- claims


class Finding(NamedTuple):
    """What the samples of a certificate come to."""

    text: str
    value: float
    low: float  # of the interval
    high: float
    bound: float
    holds: bool


Claim = Callable[[Samples], Finding]


def rate(samples: Samples) -> Finding:
    """Claim that a run fails with probability at most delta; samples are (failed, delta)."""
    failed, bound = int(sum(value for value, _ in samples)), samples[0][1]
    low, high = map(float, binomtest(failed, len(samples)).proportion_ci(1.0 - 2.0 * LEVEL))
    return Finding(f"{failed:,} of {len(samples):,} runs", failed / len(samples), low, high, bound, low <= bound)


def never(samples: Samples, what: str = "plans") -> Finding:
    """Claim that nothing is ever on the wrong side; samples are (how many are, how many there were)."""
    wrong, trials = (int(sum(column)) for column in zip(*samples, strict=True))
    low, high = map(float, binomtest(wrong, trials).proportion_ci(1.0 - 2.0 * LEVEL))
    return Finding(f"{wrong:,} of {trials:,} {what}", wrong / trials, low, high, 0.0, wrong == 0)


def most(samples: Samples) -> Finding:
    """Claim that the value is at most the bound, in every run."""
    ratios = np.array([value / bound for value, bound in samples])
    value, bound = samples[int(ratios.argmax())]
    low, high = float(ratios.min()), float(ratios.max())
    return Finding(f"{value:,.4g} of {bound:,.4g}, at worst", high, low, high, 1.0, high <= 1.0)


def _student(samples: Samples, more: float) -> tuple[float, float, float]:
    """Return the mean, and its interval or, with ``more`` = 1, that of one more run."""
    values, n = np.array([value for value, _ in samples]), len(samples)
    middle, spread = float(values.mean()), float(values.std(ddof=1))
    wide = float(student.ppf(1.0 - LEVEL, n - 1)) * spread * math.sqrt(more + 1.0 / n)
    return middle, middle - wide, middle + wide


def mean(samples: Samples) -> Finding:
    """Claim that the mean over runs is at most the bound."""
    (middle, low, high), bound = _student(samples, 0.0), samples[0][1]
    return Finding(f"mean of {len(samples)} runs", middle, low, high, bound, low <= bound)


def near(samples: Samples) -> Finding:
    """Claim that the bound, a published figure of one run, known to 2 %, could be one more of these runs."""
    (middle, low, high), figure = _student(samples, 1.0), samples[0][1]
    holds = low - 0.02 * figure <= figure <= high + 0.02 * figure
    return Finding(f"one more of {len(samples)} runs", middle, low, high, figure, holds)


class Certificate(NamedTuple):
    """A promise, how it is measured, and a version that must be refuted."""

    name: str
    statement: str
    measure: Measure
    section: str
    source: str  # the paper's number, or that of docs/mathematics.md
    claim: Claim
    runs: int  # of a full measurement
    few: int  # of a quick one
    control: str


CERTIFICATES: dict[str, Certificate] = {}


def promise(*about: Any, name: str = "{}", who: str = "", **options: Any) -> Callable[[Measure], Measure]:
    """Return what enters a function, called with ``options``, in the list of certificates.

    Its name, put into ``name``, is that of the certificate, and its docstring, with ``who`` put in, the statement.
    ``about`` are the other fields, from ``section`` on.
    """

    def enter(measure: Measure) -> Measure:
        called = name.format(str(getattr(measure, "__name__", "")).replace("_", "-"))
        statement = " ".join(str(measure.__doc__).split()).removeprefix("Certify that ").removesuffix(".")
        statement = statement[0].upper() + statement[1:].replace("{}", who)
        CERTIFICATES[called] = Certificate(called, statement, partial(measure, **options), *about)
        return measure

    return enter


def played(agent: Any, mdp: Any, episodes: int, seed: int) -> Result:
    """Return a run without a progress bar."""
    return run(agent, mdp, episodes=episodes, seed=seed, progress=False)


# -------------------------------------------------------------------------------------------------- confidence sets
COVERAGE = "Confidence sets"
EPISODES = 40
DELTA = 0.3  # of ellipsoids: large, so that the promise is a tight one
FINITE_DELTA = 0.05  # of families: a small family loses its truth seldom even when it may


class Player(CompiledPlayer):
    """The compiled loop on a state at hand, a few episodes at a time, without the cost of ``run``."""

    def __init__(self, learner: Learner, mdp: FiniteMDP, seed: int, state: Any = None) -> None:
        super().__init__(learner, mdp.known, learner.begin(mdp.known) if state is None else state)
        self.truth, self.episode = mdp.truth, 0
        self.keys = (seeding.key(seed, "environment"), seeding.key(seed, "agent"))

    def play(self, episodes: int = 1) -> Played:
        """Go on for some episodes."""
        regret, returns = np.empty(episodes), np.empty(episodes)
        plans, pessimistic = self.simulate(self.truth, self.keys, self.episode, regret, returns)
        self.episode += episodes
        return Played(plans, pessimistic, regret, returns)


class Played(NamedTuple):
    """What the compiled loop reports."""

    plans: int
    pessimistic: int
    regret: Floats
    returns: Floats


class Coverage(NamedTuple):
    """What a run comes to."""

    left: bool  # the truth was outside before some episode
    pessimistic_when_covered: int  # plans
    pessimistic: int


class Case(NamedTuple):
    """A learner that plans before every episode, its problem, and the test whether a state's set holds the truth."""

    learner: Any
    mdp: FiniteMDP
    covers: Callable[[Player], bool]

    def play(self, seed: int, episodes: int = EPISODES) -> Coverage:
        """Look at the set that each episode was planned with."""
        player, left, broken, pessimistic = Player(self.learner, self.mdp, seed), False, 0, 0
        for _ in range(episodes):
            short = player.play().pessimistic
            inside = self.covers(player)
            left |= not inside
            pessimistic += short
            broken += short if inside else 0
        return Coverage(left, broken, pessimistic)


def rewards_covered(learner: Any, mdp: FiniteMDP, player: Player) -> bool:
    """Say whether no mean reward is above the one that the plan counts on."""
    known = isinstance(learner.rewards, str)
    return known or not (field(player.model, REWARD) < mdp.truth.base_reward - 1e-12).any()


def linear_case(kind: str = "dense", **options: Any) -> Case:
    """Return UCRL-VTR-LIN on a mixture of three kernels and the ellipsoids of theta*, one per step that has its own."""
    draw = np.random.default_rng([1, 7])
    kernels = draw.dirichlet(np.ones(4), size=(3, 4, 2))
    phi = np.ascontiguousarray(np.moveaxis(kernels, 0, -1))
    thetas, reward = draw.dirichlet(np.ones(3))[np.newaxis], draw.random((4, 2))
    features, horizon = FeatureMap(phi), 4
    more: dict[str, Any] = {"initial_state": [0.5, 0.0, 0.0, 0.5]}
    if kind == "per step":
        thetas = np.random.default_rng(2).dirichlet(np.ones(3), size=4)
        options["kernel"] = "per_step"
    if "rewards" in options or kind == "per step":
        more = {"reward_noise": BernoulliRewards()}
        if options.get("rewards") == "linear":
            psi = np.concatenate([reward[..., None], np.random.default_rng(0).normal(size=(4, 2, 2))], axis=-1)
            options["rewards"] = RewardsLinear(features=psi, norm_bound=1.0, **options.pop("linear"))
    transition: Any = np.stack([phi @ theta for theta in thetas]) if kind == "per step" else phi @ thetas[0]
    if kind == "one-hot":
        features, thetas = FeatureMap.tabular(states=4, actions=2), transition.reshape(1, -1)
    elif kind == "transition rewards":
        reward, more = np.random.default_rng(3).random((4, 2, 4)), {}
    mdp = FiniteMDP(transition=transition, reward=reward, horizon=horizon, **more)
    bound = float(np.linalg.norm(thetas, axis=1).max())
    learner = UCRLVTRLin(features=features, norm_bound=bound, delta=DELTA, replan=0.0, **options)
    return Case(learner, mdp, lambda player: in_ellipsoids(learner, mdp, thetas, player))


def in_ellipsoids(learner: UCRLVTRLin, mdp: FiniteMDP, thetas: Floats, player: Player) -> bool:
    """Say whether every theta*_h [T, d] is in its ellipsoid (M9 to M11), and every mean reward below its bound."""
    if not rewards_covered(learner, mdp, player):
        return False
    model, state, blocks, k = player.model, player.state, learner.features.blocks, player.episode - 1
    sigmas, estimates = np.split(state.sigma, len(thetas)), np.split(state.theta, len(thetas))
    for theta, sigma, estimate in zip(thetas, sigmas, estimates, strict=True):
        error, distance, logdet = estimate - theta, 0.0, -theta.size * math.log(learner.lam)
        for b, n in enumerate(blocks.size):
            matrix = sigma[blocks.matrix_start[b] : blocks.matrix_start[b + 1]].reshape(n, n)
            part = error[blocks.vector_start[b] : blocks.vector_start[b + 1]]
            distance += float(part @ matrix @ part)
            logdet += float(np.linalg.slogdet(matrix)[1])
        kind, weighted, level = ELLIPSOIDS[learner.radius], learner.weights == "range", learner.level(mdp.known)
        target = (kind, weighted, model.unit, mdp.horizon, 0, k, theta.size, logdet, level)
        width = ellipsoid_width(*target, learner.lam, learner.norm_bound, learner.paper_constant)
        if distance > float(learner.scale * width) ** 2:
            return False
    return True


def near_truth() -> tuple[Floats, Floats]:
    """Return eight kernels of which the data speak against the first, the truth, now and then; and rewards."""
    draw = np.random.default_rng([2, 8])
    kernels = draw.dirichlet(np.ones(3), size=(8, 3, 2))
    return 0.7 * kernels[0] + 0.3 * kernels, draw.random((3, 2))


def finite_case(members: Sequence[int] = (0,), **options: Any) -> Case:
    """Return UCRL-VTR on kernels that are hard to tell apart; several ``members`` are the true kernels of the steps."""
    kernels, reward = near_truth()
    noise: dict[str, Any] = {"reward_noise": BernoulliRewards()} if "rewards" in options or len(members) > 1 else {}
    if len(members) > 1:
        options["kernel"] = "per_step"
    transition: Any = kernels[list(members)] if len(members) > 1 else kernels[members[0]]
    mdp = FiniteMDP(transition=transition, reward=reward, horizon=6, **noise)
    learner = UCRLVTR(family=FiniteFamily(kernels), delta=FINITE_DELTA, **options)

    def covers(player: Player) -> bool:
        if not rewards_covered(learner, mdp, player):
            return False
        if len(members) > 1 or not learner.counted:
            return all(player.state.inside[t, member] == 1 for t, member in enumerate(members))
        return members[0] in losses_inside(player.state)

    return Case(learner, mdp, covers)


def losses_inside(state: Any) -> dict[int, float]:
    """Return the loss of every member in the confidence set of the plan in play, up to a common constant."""
    left = int(state.counters[ALIVE])
    inside = state.inside[0, :left] == 1 if state.inside.size else np.isfinite(state.loss[0, :left])
    pairs = zip(state.members[:left], state.loss[0, :left], inside, strict=True)
    return {int(member): float(loss) for member, loss, holds in pairs if holds}


PER_STEP = (0, 3, 5, 2, 6, 1)  # members of near_truth
SHARE = 0.9  # most of delta for the rewards, which are then what can fail


class Covered(NamedTuple):
    """A confidence set: where it is stated, the learner that uses it, and how it is broken."""

    source: str
    what: str
    make: Callable[..., Case]
    options: dict[str, Any]
    broken: dict[str, Any] = {"scale": 0.05}  # noqa: RUF012  # never changed
    control: str = "a twentieth of the width"


UNWEIGHTED = {"radius": "unweighted", "weights": "none"}
PAPER: dict[str, Any] = {"radius": "paper", "weights": "none"}
SETS = {
    "finite-paper": Covered(
        "M4, M6; appendix A.1", "the paper's ball of a finite family", finite_case,
        {"radius": "paper"}, {"scale": 2e-5}, "a 50,000th of beta",
    ),
    "finite-ball": Covered("M4, M7", "the ball with sharp constants", finite_case, {"radius": "unweighted"}),
    "finite-sharp": Covered("M24", "the sharp set of a finite family", finite_case, {}),
    "finite-prior": Covered(
        "M22, M24", "the sharp set with a prior against the truth", finite_case,
        {"prior": np.array([0.01, *[0.99 / 7] * 7])}, {"scale": 0.0}, "no slack",
    ),
    "ellipsoid-paper": Covered(
        "M10; section 3", "the paper's ellipsoid", linear_case, {**PAPER, "clip": "horizon"}, {"scale": 0.005},
        "a 200th of the radius",
    ),
    "ellipsoid-sharp": Covered("M11", "the sharp ellipsoid", linear_case, {}),
    "ellipsoid-unweighted": Covered("M11, second form", "the ellipsoid without weights", linear_case, UNWEIGHTED),
    "rewards-hoeffding": Covered(
        "section 4, rewards (a)", "Hoeffding's bounds of all mean rewards", linear_case,
        {"rewards": RewardsPerPair(bound="hoeffding", share=SHARE)},
        {"rewards": RewardsPerPair(bound="hoeffding", scale=0.05)},
    ),
    "rewards-bernstein": Covered(
        "section 4, rewards (a)", "Bernstein's bounds of all mean rewards", linear_case,
        {"rewards": RewardsPerPair(bound="bernstein", share=SHARE)},
        {"rewards": RewardsPerPair(bound="bernstein", scale=0.05)},
    ),
    "rewards-linear": Covered(
        "section 4, rewards (b)", "the bounds of all mean rewards by regression", linear_case,
        {"rewards": "linear", "linear": {"share": SHARE}}, {"rewards": "linear", "linear": {"scale": 0.05}},
    ),
    "per-step-linear": Covered("M11, per step", "one ellipsoid per step", linear_case, {"kind": "per step"}),
    "per-step-finite": Covered("M24, per step", "one sharp set per step", finite_case, {"members": PER_STEP}),
}  # fmt: skip


def set_case(name: str, broken: bool) -> Case:
    """Return the learner, problem and test behind a confidence set, or those of its control."""
    about = SETS[name]
    return about.make(**{**about.options, **(about.broken if broken else {})})


def coverage(of: str, broken: bool, seeds: range) -> Runs:
    """Certify that the truth stays in {} in all episodes with probability 1 - delta."""
    case = set_case(of, broken)
    for seed in seeds:
        yield case.play(seed).left, case.learner.delta


for _name, _set in SETS.items():
    promise(COVERAGE, _set.source, rate, 4000, 300, _set.control, name=f"{{}}-{_name}", who=_set.what, of=_name)(
        coverage
    )


def pooled_rows(agent: Any, mdp: FiniteMDP, seed: int) -> Iterator[LinearStatistics]:
    """Play a linear selector and yield the pooled rows after every episode."""
    walk, keys = PhaseWalk(agent, mdp.known), (seeding.key(seed, "environment"), seeding.key(seed, "agent"))
    regret, returns = np.empty(1), np.empty(1)
    for k in range(EPISODES):
        player: Any = walk.player
        plans, _ = player.simulate(mdp.truth, keys, k, regret, returns)
        yield player.learner.statistics(mdp.known, player.state)
        walk.advance(plans, returns, regret)


class _Letter(paper.UCRLVTR):
    """UCRL-VTR as the paper states it, with a note whether member 0 was ever outside."""

    def learn(self, known: Known, state: dict[str, Any], episode: Episode) -> None:
        """Learn, and look."""
        super().learn(known, state, episode)
        state["left"] = int(state.get("left", 0) or not self.confidence_set(known, state)[0])


class _SmallBall(_Letter):
    """The same with a millionth of beta."""

    def beta(self, horizon: int, k: int) -> float:
        """Return too little."""
        return 1e-6 * super().beta(horizon, k)


@promise(COVERAGE, "M6, infinite; appendix A.1", rate, 300, 40, "a millionth of beta")
def coverage_infinite(broken: bool, seeds: range) -> Runs:
    """Certify that P* stays in the paper's ball of an infinite class, dyadic scales, with probability 1 - delta."""
    kernels, reward = near_truth()
    features = FeatureMap(np.moveaxis(kernels, 0, -1))
    infinite = LinearFamily(features=features, norm_bound=1.0)  # mixtures of the kernels, which are its members listed
    family, mdp = FiniteFamily(kernels), FiniteMDP(transition=kernels[0], reward=reward, horizon=6)
    learner = (_SmallBall if broken else _Letter)(family=family, infinite_class=infinite, delta=FINITE_DELTA)
    for seed in seeds:
        yield played(learner, mdp, EPISODES, seed).state["left"], FINITE_DELTA


SMALL_MIXTURE = SparseMixture(states=5, actions=2, horizon=4, dimension=5, nonzero=2, persistence=0.5)


@promise(COVERAGE, "M17", rate, 1500, 60, "a twentieth of the radius")
def coverage_supports(broken: bool, seeds: range) -> Runs:
    """Certify that the ellipsoids of all sets that hold the support keep theta*, on pooled rows, all at once."""
    problem, scale = SMALL_MIXTURE, 0.05 if broken else 1.0
    d, norm = problem.dimension, float(np.linalg.norm(problem.theta))
    others = [j for j in range(d) if j not in problem.support]
    added = itertools.chain.from_iterable(itertools.combinations(others, n) for n in range(len(others) + 1))
    sets = [np.sort([*problem.support, *more]) for more in added]
    agent = ARLLinDim(features=FeatureMap(problem.phi), norm_bound=norm, delta=DELTA, scale=scale)

    def outside(rows: LinearStatistics) -> bool:
        sigma = rows.gram.reshape(d, d) + np.eye(d)
        for active in sets:
            block = sigma[np.ix_(active, active)]
            error = np.linalg.solve(block, rows.xy[active]) - problem.theta[active]
            noise = np.linalg.slogdet(block)[1] + 2.0 * math.log(1.0 / union_level(DELTA, d, active.size))
            if error @ block @ error > scale**2 * (0.25 * noise + norm**2):
                return True
        return False

    for seed in seeds:
        yield any(map(outside, pooled_rows(agent, problem.mdp, seed))), DELTA


@promise(COVERAGE, "M19, lambda grid", rate, 1500, 60, "a twentieth of the noise term")
def coverage_lambda_grid(broken: bool, seeds: range) -> Runs:
    """Certify that the ellipsoid of every lambda keeps theta* by the noise event of every other one of the grid."""
    problem, scale = SMALL_MIXTURE, 0.05 if broken else 1.0
    d, norm = problem.dimension, float(np.linalg.norm(problem.theta))
    agent = ARLLinNorm(features=FeatureMap(problem.phi), norm_bound=8.0, delta=DELTA)
    grid = lambda_grid(agent.base(), agent.start(problem.mdp.known)["least"])

    def outside(rows: LinearStatistics) -> bool:
        gram, fits = rows.gram.reshape(d, d), []
        for each in grid:
            sigma = gram + each.lam * np.eye(d)
            theta = np.linalg.solve(sigma, rows.xy)
            error = theta - problem.theta
            noise = np.linalg.slogdet(sigma / each.lam)[1] + 2.0 * math.log(1.0 / each.delta)
            fits.append((-rows.xy @ theta, error @ sigma @ error, 0.25 * scale * noise, each.lam))  # L less sum y^2
        least = min(loss + noise for loss, _, noise, _ in fits)
        return any(distance > least - loss + lam * norm**2 for loss, distance, _, lam in fits)

    for seed in seeds:
        yield any(map(outside, pooled_rows(agent, problem.mdp, seed))), DELTA


@promise(COVERAGE, "L2", rate, 4000, 300, "no slack")
def coverage_likelihood(broken: bool, seeds: range) -> Runs:
    """Certify that the likelihood never strikes off the true kernel, with probability 1 - delta."""
    ladder, mdp = near_ladder()
    learner = LikelihoodLearner(ladder=ladder, delta=1.0 if broken else FINITE_DELTA, scope="all", replan=0.0)
    truth = int(np.flatnonzero((mdp.kernel().ravel() == ladder.family.probabilities().T).all(axis=1))[0])

    def covers(player: Player) -> bool:
        left = field(player.state, COUNTERS)[posterior.ALIVE]
        return truth in field(player.state, posterior.MEMBERS)[:left]

    case = Case(learner, mdp, covers)
    for seed in seeds:
        yield case.play(seed).left, FINITE_DELTA


@promise(COVERAGE, "L6, L8", rate, 400, 300, "no slack")
def coverage_simulators(broken: bool, seeds: range) -> Runs:
    """Certify that the true set of simulators is compatible by likelihood after 2, 4, ..., 512 rows, all at once."""
    kernels = near_truth()[0][:4].reshape(4, 6, 3)  # [simulator, (s, a), s']
    true, delta = 0.5 * (kernels[0] + kernels[1]), 1.0 if broken else FINITE_DELTA

    for seed in seeds:
        draw, seen, lost = np.random.default_rng([3, seed]), np.zeros(19), False
        for t in range(1, 513):
            pair = draw.integers(6)
            seen[3 * pair + draw.choice(3, p=true[pair])] += 1.0
            if t & (t - 1) == 0 and t > 1 and not lost:
                counts = Counts(seen, np.arange(0, 19, 3), kernels.reshape(4, 18).T)
                lost = not any(set(each) <= {0, 1} for each in counts.compatible_sets(delta=delta).minimal)
        yield lost, FINITE_DELTA


# ----------------------------------------------------------------------------------------------------------- optimism
OPTIMISM = "Optimism"
GROUPS = {
    "finite": ("M5", ("finite-paper", "finite-ball", "finite-sharp", "per-step-finite")),
    "linear": ("M9, M11", ("ellipsoid-paper", "ellipsoid-sharp", "ellipsoid-unweighted", "per-step-linear")),
    "rewards": ("M9, rewards", ("rewards-hoeffding", "rewards-bernstein", "rewards-linear")),
}


def optimism(of: str, broken: bool, seeds: range) -> Runs:
    """Certify that no plan is below the optimum while the set holds the truth ({})."""
    for case, seed in itertools.product([set_case(name, broken) for name in GROUPS[of][1]], seeds):
        played = case.play(seed)
        yield played.pessimistic if broken else played.pessimistic_when_covered, EPISODES


for _name, (_source, _) in GROUPS.items():
    _control = "the sets of the coverage controls"
    promise(OPTIMISM, _source, never, 400, 25, _control, name=f"{{}}-{_name}", who=_name, of=_name)(optimism)


# --------------------------------------------------------------------------------------------------------- potentials
POTENTIALS = "Elliptical potential and eluder sum"


class _Potential(paper.UCRLVTRLin):
    """UCRL-VTR-LIN as the paper states it, with the sum of min(1, ||x_t||^2 in the inverse of Sigma_{t-1})."""

    def learn(self, known: Known, state: dict[str, Any], episode: Episode) -> None:
        inverse, values = np.linalg.inv(state["sigma"]), state["values"]
        for h in range(len(episode.actions)):
            x = self.phi[episode.states[h], episode.actions[h]] @ values[h + 1]
            y = inverse @ x
            state["potential"] = state.get("potential", 0.0) + min(1.0, float(x @ y))
            inverse -= np.outer(y, y) / (1.0 + x @ y)
        super().learn(known, state, episode)


@promise(POTENTIALS, "Jia et al. 2020; lemma behind theorems 2 and 3", most, 20, 3, "a quarter of the bound")
def elliptical_potential(broken: bool, seeds: range) -> Runs:
    """Certify that the sum of min(1, ||x_t||^2 in the inverse of Sigma_{t-1}) is at most 2 logdet(Sigma)."""
    case = linear_case()
    learner = _Potential(features=case.learner.features, norm_bound=case.learner.norm_bound)

    for seed in seeds:
        state = played(learner, case.mdp, 2_000, seed).state
        yield state["potential"], (0.5 if broken else 2.0) * np.linalg.slogdet(state["sigma"])[1]


class _Widths(paper.UCRLVTR):
    """UCRL-VTR as the paper states it, with the sum of the widths of its confidence sets along the rows."""

    def learn(self, known: Known, state: dict[str, Any], episode: Episode) -> None:
        inside, values = self.confidence_set(known, state), optimal_values(self.family, known)[0][state["member"]]
        for h in range(len(episode.actions)):
            s, a = episode.states[h], episode.actions[h]
            predicted = dense_kernels(self.family)[inside, s, a] @ values[h + 1]
            state["widths"] = state.get("widths", 0.0) + float(np.ptp(predicted))
        super().learn(known, state, episode)


@promise(POTENTIALS, "appendix A.1; Russo and Van Roy 2013", most, 20, 3, "eluder dimension 0")
def eluder_sum(broken: bool, seeds: range) -> Runs:
    """Certify that the widths of the sets along the rows add up to at most 1 + H^2 d + 4 sqrt(beta d K H), d exact."""
    kernels = np.random.default_rng(5).dirichlet(np.ones(2), size=(3, 2, 2))
    mdp = FiniteMDP(transition=kernels[0], reward=np.array([[0.0, 0.1], [0.9, 1.0]]), horizon=3)
    family, setting = FiniteFamily(kernels), Setting(horizon=3, episodes=2_000, delta=0.05)
    eluder = 0 if broken else eluder_dimension(predictions(family, mdp.known), 1.0 / (setting.episodes * 3))
    learner = _Widths(family=family)
    bound = regret_bound_vtr(setting, radius=learner.beta(3, setting.episodes), eluder=eluder)["eluder"]
    for seed in seeds:
        yield played(learner, mdp, setting.episodes, seed).state["widths"], bound


# ------------------------------------------------------------------------------------------------------------- regret
REGRET = "Regret"
MANY, MORE = 10**6, 10**7  # episodes of finite and of linear runs
PAPER_LINEAR: dict[str, Any] = {**PAPER, "clip": "horizon", "replan": 0.0}


class Theorem(NamedTuple):
    """An agent, its problem, how far it is played, and the right side of its theorem after K episodes.

    ``rate`` is what the right side grows like once the right class is found, by default itself.
    """

    agent: Any
    mdp: FiniteMDP
    episodes: int
    bound: Callable[[int], float]
    rate: Callable[[int], float] | None = None


@cache
def mixture() -> tuple[SparseMixture, FeatureMap, Setting]:
    """Return the sparse mixture of the linear certificates, and what their theorems want to know about it."""
    problem = SparseMixture(states=8, actions=3, horizon=5, dimension=8, nonzero=3, gamma=0.5, persistence=0.5, seed=0)
    longest = problem.horizon * float(np.linalg.norm(np.abs(problem.phi).sum(axis=2), axis=-1).max())
    norm = float(np.linalg.norm(problem.theta))
    setting = Setting(
        horizon=5, episodes=1, delta=0.05, dimension=8, norm_bound=norm, feature_bound=longest, initial_episodes=16
    )
    return problem, FeatureMap(problem.phi), setting


def excitation(gram: Floats, episodes: int, horizon: int) -> float:
    """Return lambda_min(sum x x^T)/(kH) of plain rows, which stands for rho of lemma 3."""
    d = math.isqrt(gram.size)
    return float(np.linalg.eigvalsh(gram.reshape(d, d))[0]) / (episodes * horizon)


@cache
def excited() -> Setting:
    """Return the setting of the mixture with rho_min, from plain rows of the paper's learner."""
    problem, features, setting = mixture()
    learner = UCRLVTRLin(features=features, norm_bound=setting.norm_bound, **PAPER_LINEAR)
    rows = learner.statistics(problem.mdp.known, played(learner, problem, 20_000, 0).state)
    return replace(setting, excitation=excitation(rows.gram, 20_000, 5))


def theorem(name: str) -> Theorem:
    """Return a learner or a selector and its theorem."""
    problem, features, about = mixture()
    rate: Callable[[int], float] | None = None

    def linear(k: int) -> float:
        return regret_bound_linear(replace(about, episodes=k))["total"]

    def vtr(k: int, horizon: int, radius: float, eluder: float) -> float:
        setting = Setting(horizon=horizon, episodes=k, delta=0.05)
        return regret_bound_vtr(setting, radius=radius, eluder=eluder)["total"]

    if name == "infinite":
        case = linear_case()
        norm, longest = case.learner.norm_bound, 4.0 * math.sqrt(3.0)  # ||phi_V|| for a mixture of three kernels
        family = LinearFamily(features=case.learner.features, norm_bound=norm)

        def bound(k: int) -> float:
            radius = beta_infinite(family, horizon=4, episodes=k, delta=0.05)
            return vtr(k, 4, radius, linear_eluder_bound(3, 1.0 / (4 * k), norm, longest))

        return Theorem(replace(case.learner, delta=0.05, replan=0.2), case.mdp, MANY, bound)
    if name in ("finite", "finite-letter"):
        kernels = two_state_kernels([(0.2, 0.8), (0.9, 0.3), (0.85, 0.5)])
        mdp, members = FiniteMDP(transition=kernels[0], reward=PAY, horizon=3), FiniteFamily(kernels)

        def bound(k: int) -> float:
            eluder = eluder_dimension(predictions(members, mdp.known), 1.0 / (3 * k))
            return vtr(k, 3, 8.0 * 9.0 * math.log(3 / 0.05), eluder)

        return Theorem(UCRLVTR(family=members, radius="paper" if "letter" in name else "sharp"), mdp, MANY, bound)
    if name == "selection":
        ladder, mdp, first = two_states(3)

        def beta(k: int, delta: float) -> float:
            return 8.0 * 9.0 * math.log(ladder.sizes[1] / delta)

        def bound(k: int) -> float:
            setting = Setting(horizon=3, episodes=k, delta=0.05)
            return regret_bound_generic(setting, radius=beta, eluder=1.0, first_epoch=first)["total"]

        return Theorem(ARLGen(ladder=ladder), mdp, MANY, bound)
    agent: Any = UCRLVTRLin(features=features, norm_bound=about.norm_bound)
    bound = linear
    if name == "linear-letter":
        return Theorem(replace(agent, **PAPER_LINEAR), problem.mdp, 10**5, linear)
    if name == "dimension":
        agent, rate = ARLLinDim(features=features, norm_bound=about.norm_bound), linear

        def bound(k: int) -> float:
            at = replace(excited(), episodes=k)
            first = selection_epoch_dimension(at, smallest=0.5)
            return regret_bound_dimension(at, sparsity=3, first_epoch=first)["total"]

    elif name == "norm":
        agent, rate = ARLLinNorm(features=features, norm_bound=10.0), linear

        def bound(k: int) -> float:
            at = replace(excited(), episodes=k, norm_bound=10.0)
            return regret_bound_norm(at, true_norm=about.norm_bound)["total"]

    return Theorem(agent, problem.mdp, MORE, bound, rate)


THEOREMS = {
    "finite-letter": ("UCRL-VTR with the paper's ball", "theorem 1, m* known"),
    "finite": ("UCRL-VTR with the sharp set", "theorem 1, m* known"),
    "infinite": ("UCRL-VTR-LIN, as an infinite class", "theorem 1, infinite classes"),
    "selection": ("ARL-GEN", "theorem 1"),
    "linear-letter": ("UCRL-VTR-LIN with the paper's radius, every plan", "Jia et al. 2020"),
    "linear": ("UCRL-VTR-LIN with the sharp radius", "Jia et al. 2020"),
    "dimension": ("ARL-LIN(dim)", "theorem 2"),
    "norm": ("ARL-LIN(norm)", "theorem 3"),
}
_FAR = {name: 110 if name == "dimension" else 60 for name in THEOREMS}  # 10^far: a theorem says more than HK; i* ~ 67


def random_gap(mdp: FiniteMDP) -> float:
    """Return the exact regret of an episode of uniformly random actions, over 1,000 first states."""
    return float(played(UniformRandom(), mdp, 1_000, 0).total_regret or 0.0) / 1_000.0


def curve_points(episodes: int) -> Ints:
    """Return 13 numbers of episodes from 10^3 on, the last being all."""
    return np.geomspace(1e3, episodes, 13).astype(np.int64)


@cache
def regret_curve(name: str, seed: int) -> Floats:
    """Return the regret up to each of the points."""
    agent, mdp, episodes, _, _ = theorem(name)
    result = played(agent, mdp, episodes, seed)
    return np.asarray(result.cumulative_regret[np.searchsorted(result.episodes, curve_points(episodes))])


def slope(points: Ints, values: Floats) -> float:
    """Return the slope of log(values) over log(points), where values are positive."""
    kept = values > 0.0
    return float(np.polyfit(np.log(points[kept]), np.log(values[kept]), 1)[0]) if kept.sum() > 1 else 0.0


def regret(of: str, broken: bool, seeds: range) -> Runs:
    """Certify that the regret of {} is at most the right side of its theorem."""
    _, mdp, episodes, bound, _ = theorem(of)
    if broken:  # exact, so that it need not be played
        yield random_gap(mdp) * 10.0 ** _FAR[of], bound(10 ** _FAR[of])
    else:
        yield from ((regret_curve(of, seed)[-1], bound(episodes)) for seed in seeds)


def regret_slope(of: str, broken: bool, seeds: range) -> Runs:
    """Certify that the log-log slope of its regret over K = 10^3 to {}."""
    _, mdp, episodes, bound, grows = theorem(of)
    points = curve_points(episodes)
    promised = slope(points, np.array([(grows or bound)(int(k)) for k in points]))
    for seed in seeds:
        values = random_gap(mdp) * points.astype(np.float64) if broken else regret_curve(of, seed)
        yield slope(points, values), promised


for _name, (_who, _source) in THEOREMS.items():
    _control = f"random actions, 10^{_FAR[_name]} episodes, exact"
    promise(REGRET, _source, most, 8, 2, _control, name=f"{{}}-{_name}", who=_who, of=_name)(regret)
    if "letter" not in _name:
        _who = f"{'10^6' if _name in ('finite', 'infinite', 'selection') else '10^7'} is at most the theorem's: {_who}"
        promise(REGRET, _source, mean, 8, 4, "random actions", name=f"slope-{_name}", who=_who, of=_name)(regret_slope)


# ------------------------------------------------------------------------------------------------------------ ARL-GEN
SELECTION = "ARL-GEN"
PAY = np.array([[0.0, 0.0], [1.0, 1.0]])  # of two states


def two_state_kernels(laws: Sequence[tuple[float, float]]) -> Floats:
    """Return kernels under which either action leads to state 1 with a probability of its own."""
    kernels = np.zeros((len(laws), 2, 2, 2))
    kernels[..., 1] = np.array(laws)[:, np.newaxis, :]
    kernels[..., 0] = 1.0 - kernels[..., 1]
    return kernels


def two_states(classes: int) -> tuple[Ladder, FiniteMDP, int]:
    """Return a ladder, its problem, m* = 2, and i*; the separation is the same on all rows of all policies.

    State 1 pays 1, state 0 nothing, and the next state does not depend on the present one: all value functions differ
    by 1 between the states. The kernel of F_1 is off by 0.5 at every pair, and prefers the wrong action. Every class
    above the second adds kernels.
    """
    kernels = two_state_kernels([(0.7, 0.3), (0.2, 0.8), *((0.2 - 0.1 / m, 0.8 - 0.4 / m) for m in range(1, classes))])
    ladder = Ladder([FiniteFamily(kernels[:m]) for m in range(1, classes + 1)])
    entropy = math.log(ladder.sizes[-1])
    first = selection_epoch_generic(horizon=3, delta=0.05, separation=0.25 * 2.0 / 3.0, entropy=entropy)
    return ladder, FiniteMDP(transition=kernels[1], reward=PAY, horizon=3), first


def blind() -> tuple[Ladder, FiniteMDP]:
    """Return a ladder whose smallest class is wrong only where its own policy never goes: no separability."""
    kernels = np.zeros((2, 3, 2, 3))
    kernels[:, 0, 0, 0] = kernels[:, 1, :, 1] = kernels[:, 2, :, 2] = 1.0
    kernels[:, 0, 1, 1], kernels[:, 0, 1, 2] = [0.1, 0.9], [0.9, 0.1]
    reward = np.array([[0.5, 0.5], [1.0, 1.0], [0.0, 0.0]])
    ladder = Ladder([FiniteFamily(kernels[:1]), FiniteFamily(kernels)])
    return ladder, FiniteMDP(transition=kernels[1], reward=reward, horizon=4)


class _NoSlack(paper.ARLGen):
    """ARL-GEN as the paper states it, without its slack sqrt(i)/2^(i/2)."""

    def _begin_epoch(self, known: Known, state: dict[str, Any]) -> None:
        super()._begin_epoch(known, state)
        statistics = np.array(state["statistics"])
        state["chosen"] = 1 + int(np.argmax(statistics <= statistics[-1]))
        state["learner"] = self._base(state).begin(known)


def letter_classes(agent: paper.ARLGen, mdp: FiniteMDP, epochs: int, seed: int) -> list[int]:
    """Return the classes that the paper's ARL-GEN plays in epochs 1, 2, ..."""
    result, chosen = None, []
    for i in range(1, epochs + 1):
        more: dict[str, Any] = {"seed": seed} if result is None else {"continue_from": result}
        result = run(agent, mdp, episodes=2**i, progress=False, **more)
        chosen.append(int(result.state["chosen"]))
    return [1, *chosen[:-1]]


@cache
def near_ladder() -> tuple[Ladder, FiniteMDP]:
    """Return a ladder of kernels that are hard to tell apart, m* = 2, and its problem."""
    kernels, reward = near_truth()
    classes: list[list[int]] = [[7], [7, 0, 3], list(range(8))]
    ladder = Ladder([FiniteFamily(kernels[members]) for members in classes])
    return ladder, FiniteMDP(transition=kernels[0], reward=reward, horizon=6)


@promise(SELECTION, "M25", rate, 2000, 100, "no slack")
def false_rejection(broken: bool, seeds: range) -> Runs:
    """Certify that the true class is left in at most delta of runs."""
    ladder, mdp = near_ladder()
    agent = ARLGen(ladder=ladder, delta=0.01, scale=0.0 if broken else 1.0)
    for seed in seeds:
        yield max(played(agent, mdp, 254, seed).phases["chosen"].to_pylist()) > 2, agent.delta


@promise(SELECTION, "lemma 1; M14", rate, 100, 8, "no slack sqrt(i)/2^(i/2)")
def false_rejection_letter(broken: bool, seeds: range) -> Runs:
    """Certify that ARL-GEN, to the letter, leaves the true class in at most delta of runs from epoch 6 on (M14 a)."""
    ladder, mdp = near_ladder()
    agent = (_NoSlack if broken else paper.ARLGen)(ladder=ladder, delta=0.05)
    for seed in seeds:
        yield max(letter_classes(agent, mdp, 8, seed)[5:]) > 2, agent.delta


NOT_SEPARABLE = "a ladder that is not separable"


@promise(
    SELECTION, "lemma 1; M14 (b)", most, 10, 2, NOT_SEPARABLE, name="{}-letter", who=", to the letter,", letter=True
)
@promise(SELECTION, "lemma 1; M15, M25", most, 100, 10, NOT_SEPARABLE, letter=False)
def lock_in(letter: bool, broken: bool, seeds: range) -> Runs:
    """Certify that ARL-GEN{} plays the true class from epoch i* on."""
    ladder, mdp, bound = two_states(3)
    if broken:
        ladder, mdp = blind()
    for seed in seeds:
        if letter:
            chosen = letter_classes(paper.ARLGen(ladder=ladder), mdp, bound + 1, seed)
        else:
            chosen = played(ARLGen(ladder=ladder), mdp, 2 ** (bound + 2) - 2, seed).phases["chosen"].to_pylist()
        yield 1 + max((i for i, m in enumerate(chosen, start=1) if m != 2), default=0), bound


def selection_cost(classes: int, broken: bool, seeds: range) -> Runs:
    """Certify that selection among M = {} classes costs at most tau_(i*-1) H more than the oracle (K = 10^5)."""
    ladder, mdp, first = two_states(classes)
    agents = ARLGen(ladder=ladder, scale=1e9 if broken else 1.0), oracle(ARLGen(ladder=ladder), 2)
    for seed in seeds:
        ours, known = (float(played(agent, mdp, 10**5, seed).total_regret or 0.0) for agent in agents)
        yield ours - known, 3.0 * (2**first - 2)


for _m in (2, 4, 8):
    _enter = promise(
        SELECTION, "theorem 1", most, 20, 3, "a test that never rejects", name=f"{{}}-{_m}", who=str(_m), classes=_m
    )
    _enter(selection_cost)


# ------------------------------------------------------------------------------------------------------------ ARL-LIN
LINEAR = "ARL-LIN"
WEAK = "features that move 2 % of the probability instead of 90 %"


def support_runs(broken: bool, seeds: range) -> Iterator[tuple[bool, int]]:
    """Yield whether the true support was played last, and since which episode."""
    problem = replace(mixture()[0], contrast=0.02) if broken else mixture()[0]
    agent = ARLLinDim(features=FeatureMap(problem.phi), norm_bound=float(np.linalg.norm(problem.theta)))
    for seed in seeds:
        rows = played(agent, problem.mdp, 200_000, seed).phases.to_pylist()
        plays = [row for row in rows if row["label"] == "exploitation"]
        last = plays[-1]["active"]
        others = [row["seen"] + row["episodes"] for row in plays if row["active"] != last]
        yield last == problem.support.tolist(), max(others, default=0)


@promise(LINEAR, "theorem 2; M18", rate, 60, 8, WEAK)
def support(broken: bool, seeds: range) -> Runs:
    """Certify that ARL-LIN(dim) ends with exactly the support of theta* (that nothing is superfluous is not proved)."""
    return ((not right, 0.05) for right, _ in support_runs(broken, seeds))


@promise(LINEAR, "theorem 2; M16, M18", most, 20, 3, WEAK)
def support_epoch(broken: bool, seeds: range) -> Runs:
    """Certify that ARL-LIN(dim) plays the support before epoch i* of the paper's schedule begins, in episodes."""
    forever = 36**90
    first = selection_epoch_dimension(replace(excited(), episodes=forever), smallest=0.5)
    begins = sum(16 * 36**j + 4 * 6**j for j in range(first))
    return ((max(1, since) if right else forever, begins) for right, since in support_runs(broken, seeds))


@promise(LINEAR, "lemma 6; M19", rate, 300, 20, "the norm of the estimate itself")
def norm_valid(broken: bool, seeds: range) -> Runs:
    """Certify that no b^(i) is below the norm of theta*, in at least 1 - delta of runs."""
    problem, features, setting = mixture()
    agent = ARLLinNorm(features=features, norm_bound=20.0)

    for seed in seeds:
        rows = played(agent, problem, 16 * 2**9, seed).phases.to_pylist()
        bounds = [np.linalg.norm(row["estimate"]) if broken else row["norm_bound"] for row in rows[1:]]
        yield float(min(bounds)) < setting.norm_bound - 1e-9, agent.delta


def norms(seed: int, epochs: int, *, letter: bool) -> list[float]:
    """Return b^(i) for i = 2, 3, ..."""
    problem, features, _ = mixture()
    known, bound = problem.mdp.known, 20.0
    if not letter:
        agent, episodes = ARLLinNorm(features=features, norm_bound=bound), 16 * (2 ** (epochs - 1) - 1) + 1
        return [float(b) for b in played(agent, problem, episodes, seed).phases["norm_bound"].to_pylist()[1:]]
    found = []
    for i in range(1, epochs):
        learner = UCRLVTRLin(features=features, norm_bound=bound, delta=0.05 / 2 ** (i - 1), **PAPER_LINEAR)
        k = 16 * 2 ** (i - 1)
        state = played(learner, problem, k, 1000 * seed + i).state
        rows, H, d = learner.statistics(known, state), known.horizon, features.dimension
        sigma = rows.gram.reshape(d, d) + np.eye(d)
        beta = bound**2 + H**2 * d * math.log(k * H) * math.log(k**2 * H / learner.delta) ** 2  # M10
        bound = largest_norm(np.asarray(np.linalg.solve(sigma, rows.xy)), sigma, beta).norm
        found.append(bound)
    return found


TWICE = "the paper's i^1.5 2^(-i)"


@promise(LINEAR, "lemma 6, corrected", mean, 6, 4, TWICE, name="{}-letter", who=", to the letter", letter=True)
@promise(LINEAR, "lemma 6, corrected", mean, 6, 4, TWICE, letter=False)
def norm_rate(letter: bool, broken: bool, seeds: range) -> Runs:
    """Certify that the excess b^(i) - ||theta*|| falls like i^1.5 2^(-i/2), log2 per epoch{}."""
    epochs = np.arange(8, 16 if letter else 18)
    promised = float(np.polyfit(epochs, 1.5 * np.log2(epochs) - epochs * (1.0 if broken else 0.5), 1)[0])
    for seed in seeds:
        excess = np.array(norms(seed, int(epochs[-1]), letter=letter))[epochs - 2] - mixture()[2].norm_bound
        yield float(np.polyfit(epochs, np.log2(excess), 1)[0]), promised


# -------------------------------------------------------------------------------------------------- published figures
PUBLISHED = "Published figures"


def published(problem: Any, figure: float, broken: bool, seeds: range) -> Runs:
    """Certify that the realised regret of 10,000 episodes reported for {} is one of this learner's."""
    S, A, K = problem.mdp.states, problem.mdp.actions, 10_000
    kind: dict[str, Any] = {} if broken else {"radius": "ayoub", "weights": "none"}
    features, norm = FeatureMap.tabular(states=S, actions=A), math.sqrt(S * A)
    learner = UCRLVTRLin(features=features, norm_bound=norm, delta=1.0 / K, replan=0.0, **kind)
    for seed in seeds:
        yield K * problem.mdp.optimal_value - played(learner, problem, K, seed).total_return, figure


for _name, _who, _problem, _figure in (
    ("river-swim-3", "RiverSwim, S = 3", RiverSwim(states=3, variant="ayoub"), 11_100.0),
    ("river-swim-5", "RiverSwim, S = 5", RiverSwim(states=5, variant="ayoub"), 44_400.0),
    ("wide-tree", "WideTree", WideTree(leaves=4), 74.0),
):
    _about: dict[str, Any] = {"name": f"{{}}-{_name}", "who": _who, "problem": _problem, "figure": _figure}
    promise(PUBLISHED, "Ayoub et al. 2020", near, 20, 5, "the sharp learner", **_about)(published)


OTHER = partial(never, what="other values")


@promise(PUBLISHED, "Ayoub et al. 2020, section 6.3", OTHER, 3, 3, "it pays .005, as in the authors' code")
def published_optimal_values(broken: bool, seeds: range) -> Runs:
    """Certify that RiverSwim whose first state pays .05 has the optimal values published for S = 3, 4, 5."""
    for states, value in ((3, "5.72"), (4, "5.66"), (5, "5.60")):
        river = RiverSwim(states=states, variant="ayoub").mdp
        reward = np.array(river.known.base_reward)
        reward[0, 0] = 0.005 if broken else 0.05
        mdp = FiniteMDP(transition=river.kernel(), reward=reward, horizon=river.horizon)
        yield f"{mdp.optimal_value:.2f}" != value, 1.0


# ------------------------------------------------------------------------------------------- where an assumption fails
FAILS = "Where an assumption of the paper fails"
LEFT = partial(never, what="runs that left F_1 or were optimal in the end")


@promise(FAILS, "assumption 1; M25", LEFT, 50, 10, "optimism over the whole set (safe)")
def no_separability(broken: bool, seeds: range) -> Runs:
    """Certify that without separability no test on played rows rejects F_1 although it is wrong: regret is linear."""
    ladder, mdp = blind()
    for seed in seeds:
        result = played(ARLGen(ladder=ladder, safe=broken), mdp, 4_094, seed)
        yield result.phases["chosen"][-1].as_py() > 1 or result.regret[-1] < 1e-9, 1.0


@promise(FAILS, "assumption 2", most, 10, 3, "the same features without the doubled one")
def no_excitation(broken: bool, seeds: range) -> Runs:
    """Certify that where a direction is never excited lambda_min(sum x x^T)/(kH) stays 0 (below 10^-6)."""
    problem = mixture()[0]
    phi = problem.phi if broken else np.concatenate([problem.phi, problem.phi[..., -1:]], axis=-1)
    agent = ARLLinNorm(features=FeatureMap(phi), norm_bound=20.0)
    for seed in seeds:
        rows = played(agent, problem, 30_000, seed).walk.memory["statistics"]
        yield max(0.0, excitation(rows.gram, rows.episodes, 5)), 1e-6


# ---------------------------------------------------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Record:
    """A certificate that was measured."""

    certificate: Certificate
    finding: Finding
    control: Finding
    runs: int
    seconds: float

    @property
    def good(self) -> bool:
        """Whether the promise stands and the control was refuted."""
        return self.finding.holds and not self.control.holds

    @property
    def verdict(self) -> str:
        """What became of it, in words."""
        if not self.finding.holds:
            return "REFUTED"
        return "holds" if self.good else "NOT SHOWN: the control is not refuted"


class Certificates(list[Record]):
    """Certificates that were measured, as a table in notebooks."""

    def _repr_html_(self) -> str:
        rows = [dict(zip(("name", *_HEADINGS), row, strict=True)) for row in rows_of(self)]
        return html_table(rows) if rows else "no certificates"


def measure(name: str, runs: int) -> dict[str, Any]:
    """Measure a certificate and its control; return plain data."""
    began, about = time.process_time(), CERTIFICATES[name]
    played = (
        about.measure(broken=each, seeds=range(min(runs, MOST_CONTROLS) if each else runs)) for each in (False, True)
    )
    claim, control = ([(float(value), float(bound)) for value, bound in samples] for samples in played)
    seconds = round(time.process_time() - began, 3)
    return {"certificate": name, "runs": runs, "claim": claim, "control": control, "seconds": seconds}


def _judge(data: dict[str, Any]) -> Record:
    about = CERTIFICATES[data["certificate"]]
    judged = [about.claim([(value, bound) for value, bound in data[key]]) for key in ("claim", "control")]
    return Record(about, judged[0], judged[1], data["runs"], data["seconds"])


def certify(
    folder: Path,
    names: Sequence[str] = (),
    *,
    quick: bool = False,
    workers: int | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Certificates:
    """Measure certificates, all by default, in worker processes; return them in the order of the list.

    Parameters
    ----------
    folder : Path
        Made if it is missing. Certificates that were measured there with these sources are not measured again.
    names : sequence of str
        Some certificates only.
    quick : bool
        Fewer runs.
    workers : int, optional
        One per processor by default; 1 measures in this process.
    say : callable
        Is called with a line when a certificate has been measured.
    """
    for name in names:
        require_choice("certificate", name, tuple(CERTIFICATES))
    chosen = [name for name in CERTIFICATES if not names or name in names]
    runs = {name: CERTIFICATES[name].few if quick else CERTIFICATES[name].runs for name in chosen}
    sources = compiling.sources_hash(begin="analysis/certificates.py")
    found: dict[str, Record] = {}

    def take(data: dict[str, Any], note: str = "") -> None:
        record = found[data["certificate"]] = _judge(data)
        finding = record.finding
        interval = f"{finding.text} [{finding.low:.4g}, {finding.high:.4g}], bound {finding.bound:.4g}"
        when = note or f"{record.seconds:.1f} s"
        say(f"[{len(found)}/{len(chosen)}] {record.certificate.name}: {record.verdict}; {interval} ({when})")

    make_folder(folder)
    with FolderLock(folder / "lock"):
        for name in chosen:
            if (earlier := _earlier(folder / f"{name}.json", name, runs[name], sources)) is not None:
                take(earlier, "measured before")
        waiting = {name: runs[name] for name in chosen if name not in found}
        for data in _measured(waiting, min(len(waiting), workers or os.cpu_count() or 1)):
            write_whole(folder / f"{data['certificate']}.json", seal({**data, "sources": sources}))
            take(data)
    return Certificates(found[name] for name in chosen)


def _earlier(path: Path, name: str, runs: int, sources: str) -> dict[str, Any] | None:
    """Return an earlier measurement if it is one of this certificate, with as many runs and the same sources."""
    if not there(path):
        return None
    try:
        data = read_sealed(path)
        if (data.get("certificate"), data.get("runs"), data.get("sources")) != (name, runs, sources):
            return None
        numbers = itertools.chain([_judge(data).seconds], *data["claim"], *data["control"])
        return data if all(math.isfinite(each) for each in numbers) else None
    except (RecordError, LookupError, TypeError, ValueError, ArithmeticError):  # damaged: it is measured again
        return None


def _measured(runs: dict[str, int], workers: int) -> Iterator[dict[str, Any]]:
    """Measure certificates in worker processes, or here if one is enough; yield each when it is done.

    A process has one thread of linear algebra, and all end at once when this is left early.
    """
    if workers <= 1:
        yield from itertools.starmap(measure, runs.items())
        return
    before, kept = set(multiprocessing.active_children()), dict(os.environ)
    os.environ.update(environment())  # the processes inherit it
    deaf = (signal.SIGINT, signal.SIG_IGN)  # to Ctrl-C: the parent ends them
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), signal.signal, deaf)
    try:
        longest_first = reversed(runs.items())  # the short ones, at the head of the list, fill the gaps at the end
        for done in as_completed([pool.submit(measure, *each) for each in longest_first]):
            yield done.result()
        pool.shutdown()
    except BrokenProcessPool as error:
        advice = "perhaps for want of memory; what was measured before is kept"
        raise OccamRLError(f"certify: a process was killed, {advice}") from error
    finally:
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        os.environ.clear()
        os.environ.update(kept)


# ------------------------------------------------------------------------------------------------------------- tables


def rows_of(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """Return the table: name, statement, source, measured, interval, bound, verdict, control."""
    rows: list[tuple[str, ...]] = []
    for record in records:
        about, found, broken = record.certificate, record.finding, record.control
        interval = f"{number(found.value)} [{number(found.low)}, {number(found.high)}]"
        control = f"{about.control}: {broken.text}, {number(broken.value)}"
        control += " refuted" if not broken.holds else " NOT refuted"
        rows.append((about.name, about.statement, about.source, found.text, interval, number(found.bound),
                     record.verdict, control))  # fmt: skip
    return rows


def number(value: float) -> str:
    """Return a number with as many digits as a table needs."""
    return f"{value:.3g}" if abs(value) < 1e3 or abs(value) >= 1e9 else f"{value:,.0f}"


def as_data(records: Sequence[Record]) -> dict[str, Any]:
    """Return everything for a program."""
    return {
        record.certificate.name: {
            "verdict": record.verdict,
            "good": record.good,
            "runs": record.runs,
            "seconds": record.seconds,
            "measured": record.finding._asdict(),
            "control": record.control._asdict(),
        }
        for record in records
    }


def by_section(records: Sequence[Record]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Yield the sections with the rows of their tables."""
    for section, group in itertools.groupby(records, lambda record: record.certificate.section):
        yield section, rows_of(list(group))


def lines(records: Sequence[Record]) -> list[str]:
    """Return the table for a terminal: a section after the other, three lines for each certificate."""
    text = []
    for section, rows in by_section(records):
        text += ["", section.upper()]
        for name, statement, source, measured, interval, bound, verdict, control in rows:
            text += [
                f"  {verdict:8} {statement} ({source})",
                f"           {measured}: {interval}, bound {bound}   [{name}]",
                f"           control, {control}",
            ]
    good = sum(record.good for record in records)
    return [*text, "", f"{good} of {len(records)} promises hold, and their controls are refuted."]


def markdown(records: Sequence[Record]) -> str:
    """Return docs/certificates.md."""
    good, minutes = sum(record.good for record in records), sum(record.seconds for record in records) / 60.0
    text = [_MARKDOWN.format(good=good, count=len(records), minutes=minutes)]
    for section, rows in by_section(records):
        text += [f"\n## {section}\n", f"| {' | '.join(_HEADINGS)} |", "| --- " * len(_HEADINGS) + "|"]
        for row in rows:
            _, *rest = (cell.replace("|", "\\|").replace("*", "\\*") for cell in row)
            text.append(f"| {' | '.join(rest)} |")
    return "\n".join(text) + "\n"


_HEADINGS = ("promise", "source", "measured", "value, interval", "bound", "verdict", "control")
_MARKDOWN = """# Certificates

Written by `occamrl certify --write docs/certificates.md`: every promise of [the mathematics](mathematics.md), measured,
each beside a version that is broken on purpose and must be refuted by the same test. {good} of {count} promises hold
and have their control refuted; this took {minutes:.0f} minutes of processor time. Intervals have the level 99.8 %, so
that a promise that is kept is refuted by chance once in a thousand times at most. `occamrl certify --quick` measures
the same with fewer runs. For the RiverSwim of Ayoub et al. 2020 with S = 4 no figure of the regret was available: the
paper has a curve, and the authors' notebooks keep the plot of S = 5 alone. The optimal values that it states for S = 3,
4 and 5 are those of a first state that pays .05; in the authors' code it pays .005, which is what is played here. The
two differ by less than half a percent of the regrets below.
"""
