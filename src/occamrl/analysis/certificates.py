r"""Certificates: what the theory promises, measured, each beside a version that is broken on purpose.

A certificate plays runs with numbered seeds and keeps two numbers of each, a value and the bound that it is promised to
respect. A claim turns these into a verdict:

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
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import beta as beta_law
from scipy.stats import t as student

from occamrl import paper, seeding
from occamrl._core import compile as compiling
from occamrl._core.arena import field
from occamrl._core.rows import COUNTERS, REWARD
from occamrl.analysis.complexity import (
    beta_infinite,
    eluder_dimension,
    linear_eluder_bound,
    predictions,
    regret_bound_dimension,
    regret_bound_finite,
    regret_bound_linear,
    regret_bound_norm,
    regret_bound_vtr,
    selection_epoch_dimension,
    selection_epoch_generic,
)
from occamrl.analysis.supports import Counts, likely_sets
from occamrl.errors import RecordError, require_choice
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
from occamrl.paper.ucrl_vtr import dense_kernels, optimal_values
from occamrl.problems.classic import RiverSwim, WideTree
from occamrl.problems.mdp import BernoulliRewards, FiniteMDP
from occamrl.problems.mixtures import SparseMixture
from occamrl.protocols import Episode, Floats, Ints, Known, Learner
from occamrl.running.files import make_folder, read_sealed, seal, there, write_whole
from occamrl.running.phases import CompiledPlayer, PhaseWalk
from occamrl.running.run import run
from occamrl.selectors.arl_gen import ARLGen
from occamrl.selectors.arl_lin import ARLLinDim, ARLLinNorm, lambda_grid, union_level
from occamrl.selectors.references import oracle

LEVEL = 1e-3  # at which a kept promise is refuted by chance, at most
MOST_CONTROLS = 400  # runs of a control: it fails often, so fewer are enough

Samples = list[tuple[float, float]]  # a value and its bound, for every run
Measure = Callable[[bool, range], Samples]


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


def clopper_pearson(count: int, trials: int) -> tuple[float, float]:
    """Return the exact interval of a probability at level 1 - 2 LEVEL from ``count`` events in ``trials``."""
    low = float(beta_law.ppf(LEVEL, count, trials - count + 1)) if count else 0.0
    high = float(beta_law.ppf(1.0 - LEVEL, count + 1, trials - count)) if count < trials else 1.0
    return low, high


def rate(samples: Samples) -> Finding:
    """Claim that a run fails with probability at most delta; samples are (failed, delta)."""
    failed, bound = int(sum(value for value, _ in samples)), samples[0][1]
    low, high = clopper_pearson(failed, len(samples))
    return Finding(f"{failed:,} of {len(samples):,} runs", failed / len(samples), low, high, bound, low <= bound)


def never(samples: Samples, what: str = "plans") -> Finding:
    """Claim that nothing is ever on the wrong side; samples are (how many are, how many there were)."""
    wrong, trials = (int(sum(column)) for column in zip(*samples, strict=True))
    low, high = clopper_pearson(wrong, max(1, trials))
    return Finding(f"{wrong:,} of {trials:,} {what}", wrong / max(1, trials), low, high, 0.0, wrong == 0)


def most(samples: Samples) -> Finding:
    """Claim that the value is at most the bound, in every run."""
    ratios = np.array([value / bound for value, bound in samples])
    value, bound = samples[int(ratios.argmax())]
    low, high = float(ratios.min()), float(ratios.max())
    return Finding(f"{value:,.4g} of {bound:,.4g}, at worst", high, low, high, 1.0, high <= 1.0)


def mean(samples: Samples) -> Finding:
    """Claim that the mean over runs is at most the bound."""
    (values, bounds), n = np.array(samples).T, len(samples)
    wide = float(student.ppf(1.0 - LEVEL, n - 1) * values.std(ddof=1) / math.sqrt(n)) if n > 1 else math.inf
    middle, bound = float(values.mean()), float(bounds.mean())
    return Finding(f"mean of {n} runs", middle, middle - wide, middle + wide, bound, middle - wide <= bound)


def near(samples: Samples) -> Finding:
    """Claim that the bound, a published figure of one run, known to 2 %, could be one more of these runs."""
    (values, bounds), n = np.array(samples).T, len(samples)
    wide = float(student.ppf(1.0 - LEVEL, n - 1) * values.std(ddof=1) * math.sqrt(1.0 + 1.0 / n))
    middle, figure = float(values.mean()), float(bounds[0])
    low, high = middle - wide, middle + wide
    holds = low - 0.02 * figure <= figure <= high + 0.02 * figure
    return Finding(f"one more of {n} runs", middle, low, high, figure, holds)


class Certificate(NamedTuple):
    """A promise, how it is measured, and a version that must be refuted.

    ``measure(broken, seeds)`` plays a run for each seed, of the control if ``broken``. ``runs`` are those of a full
    measurement, ``few`` those of a quick one.
    """

    name: str
    section: str
    statement: str
    source: str  # the paper's number, or that of docs/mathematics.md
    claim: Claim
    control: str
    runs: int
    few: int
    measure: Measure


CERTIFICATES: dict[str, Certificate] = {}


def promise(section: str, source: str, claim: Claim, runs: int, few: int, *, control: str) -> Callable[..., Measure]:
    """Return what enters a function in the list of certificates; its name and docstring say what it certifies."""

    def enter(measure: Measure, name: str = "", statement: str = "") -> Measure:
        called = name or str(getattr(measure, "__name__", "")).replace("_", "-")
        text = " ".join(str(measure.__doc__).split()).removeprefix("Certify that ").removesuffix(".")
        says = statement or text[0].upper() + text[1:]
        CERTIFICATES[called] = Certificate(called, section, says, source, claim, control, runs, few, measure)
        return measure

    return enter


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
SHARE = {"share": 0.9}  # most of delta for the rewards, which are then what can fail


def per_pair(bound: str, **options: Any) -> dict[str, Any]:
    """Return the option for rewards that are estimated per pair."""
    return {"rewards": RewardsPerPair(bound=bound, **options)}


class Covered(NamedTuple):
    """A confidence set: where it is stated, the learner that uses it, and how it is broken."""

    source: str
    what: str
    make: Callable[..., Case]
    options: dict[str, Any]
    broken: dict[str, Any]
    control: str = "a twentieth of the slack"


UNWEIGHTED = {"radius": "unweighted", "weights": "none"}
PAPER: dict[str, Any] = {"radius": "paper", "weights": "none"}
SMALL = {"scale": 0.05}
SETS = {
    "finite-paper": Covered(
        "M4, M6; appendix A.1", "the paper's ball of a finite family", finite_case,
        {"radius": "paper"}, {"scale": 2e-5}, "a 50,000th of beta",
    ),
    "finite-ball": Covered("M4, M7", "the ball with sharp constants", finite_case, {"radius": "unweighted"}, SMALL),
    "finite-sharp": Covered("M24", "the sharp set of a finite family", finite_case, {}, SMALL),
    "finite-prior": Covered(
        "M22, M24", "the sharp set with a prior against the truth", finite_case,
        {"prior": np.array([0.01, *[0.99 / 7] * 7])}, {"scale": 0.0}, "no slack",
    ),
    "ellipsoid-paper": Covered(
        "M10; section 3", "the paper's ellipsoid", linear_case, {**PAPER, "clip": "horizon"}, {"scale": 0.005},
        "a 200th of the radius",
    ),
    "ellipsoid-sharp": Covered("M11", "the sharp ellipsoid", linear_case, {}, SMALL, "a twentieth of the radius"),
    "ellipsoid-unweighted": Covered(
        "M11, second form", "the ellipsoid without weights", linear_case, UNWEIGHTED, SMALL, "a twentieth of the radius"
    ),
    "rewards-hoeffding": Covered(
        "section 4, rewards (a)", "Hoeffding's bounds of all mean rewards", linear_case, per_pair("hoeffding", **SHARE),
        per_pair("hoeffding", scale=0.05), "a twentieth of the width",
    ),
    "rewards-bernstein": Covered(
        "section 4, rewards (a)", "Bernstein's bounds of all mean rewards", linear_case, per_pair("bernstein", **SHARE),
        per_pair("bernstein", scale=0.05), "a twentieth of the width",
    ),
    "rewards-linear": Covered(
        "section 4, rewards (b)", "the bounds of all mean rewards by regression", linear_case,
        {"rewards": "linear", "linear": SHARE}, {"rewards": "linear", "linear": SMALL}, "a twentieth of the width",
    ),
    "per-step-linear": Covered(
        "M11, per step", "one ellipsoid per step", linear_case, {"kind": "per step"}, SMALL, "a twentieth of the radius"
    ),
    "per-step-finite": Covered("M24, per step", "one sharp set per step", finite_case, {"members": PER_STEP}, SMALL),
}  # fmt: skip


def set_case(name: str, broken: bool) -> Case:
    """Return the learner, problem and test behind a confidence set, or those of its control."""
    about = SETS[name]
    return about.make(**{**about.options, **(about.broken if broken else {})})


def _coverage(name: str, broken: bool, seeds: range) -> Samples:
    case = set_case(name, broken)
    return [(float(case.play(seed).left), case.learner.delta) for seed in seeds]


for _name, _about in SETS.items():
    _says = f"The truth stays in {_about.what} in all episodes with probability 1 - delta"
    _enter = promise(COVERAGE, _about.source, rate, 4000, 300, control=_about.control)
    _enter(partial(_coverage, _name), f"coverage-{_name}", _says)


def pooled_rows(agent: Any, mdp: FiniteMDP, seed: int, episodes: int = EPISODES) -> Iterator[LinearStatistics]:
    """Play a linear selector and yield the pooled rows after every episode."""
    walk, keys = PhaseWalk(agent, mdp.known), (seeding.key(seed, "environment"), seeding.key(seed, "agent"))
    regret, returns = np.empty(1), np.empty(1)
    for k in range(episodes):
        player: Any = walk.player
        plans, _ = player.simulate(mdp.truth, keys, k, regret, returns)
        yield player.learner.statistics(mdp.known, player.state)
        walk.advance(plans, returns, regret)


class _Letter(paper.UCRLVTR):
    """The letter of UCRL-VTR, with a note whether member 0 was ever outside."""

    def learn(self, known: Known, state: dict[str, Any], episode: Episode) -> None:
        """Learn, and look."""
        super().learn(known, state, episode)
        state["left"] = int(state.get("left", 0) or not self.confidence_set(known, state)[0])


class _SmallBall(_Letter):
    """The same with a millionth of beta."""

    def beta(self, horizon: int, k: int) -> float:
        """Return too little."""
        return 1e-6 * super().beta(horizon, k)


@promise(COVERAGE, "M6, infinite; appendix A.1", rate, 300, 40, control="a millionth of beta")
def coverage_infinite(broken: bool, seeds: range) -> Samples:
    """Certify that P* stays in the paper's ball of an infinite class, dyadic scales, with probability 1 - delta."""
    kernels, reward = near_truth()
    features = FeatureMap(np.moveaxis(kernels, 0, -1))
    infinite = LinearFamily(features=features, norm_bound=1.0)  # mixtures of the kernels, which are its members listed
    family, mdp = FiniteFamily(kernels), FiniteMDP(transition=kernels[0], reward=reward, horizon=6)
    learner = (_SmallBall if broken else _Letter)(family=family, infinite_class=infinite, delta=FINITE_DELTA)
    runs = (run(learner, mdp, episodes=EPISODES, seed=seed, progress=False) for seed in seeds)
    return [(float(result.state["left"]), FINITE_DELTA) for result in runs]


SMALL_MIXTURE = SparseMixture(states=5, actions=2, horizon=4, dimension=5, nonzero=2, persistence=0.5)


@promise(COVERAGE, "M17", rate, 1500, 60, control="a twentieth of the radius")
def coverage_supports(broken: bool, seeds: range) -> Samples:
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

    return [(float(any(map(outside, pooled_rows(agent, problem.mdp, seed)))), DELTA) for seed in seeds]


@promise(COVERAGE, "M19, lambda grid", rate, 1500, 60, control="a twentieth of the noise term")
def coverage_lambda_grid(broken: bool, seeds: range) -> Samples:
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

    return [(float(any(map(outside, pooled_rows(agent, problem.mdp, seed)))), DELTA) for seed in seeds]


@promise(COVERAGE, "L2", rate, 4000, 300, control="no slack")
def coverage_likelihood(broken: bool, seeds: range) -> Samples:
    """Certify that the likelihood never strikes off the true kernel, with probability 1 - delta."""
    ladder, mdp = near_ladder()
    learner = LikelihoodLearner(ladder=ladder, delta=1.0 if broken else FINITE_DELTA, scope="all", replan=0.0)
    truth = int(np.flatnonzero((mdp.kernel().ravel() == ladder.family.probabilities().T).all(axis=1))[0])

    def alive(player: Player) -> bool:
        player.play()
        left = field(player.state, COUNTERS)[posterior.ALIVE]
        return truth in field(player.state, posterior.MEMBERS)[:left]

    players = (Player(learner, mdp, seed) for seed in seeds)
    return [(float(not all(alive(player) for _ in range(EPISODES))), FINITE_DELTA) for player in players]


@promise(COVERAGE, "L6, L8", rate, 400, 40, control="no slack")
def coverage_simulators(broken: bool, seeds: range) -> Samples:
    """Certify that the true set of simulators is compatible by likelihood after 2, 4, ..., 512 rows, all at once."""
    kernels = near_truth()[0][:4].reshape(4, 6, 3)  # [simulator, (s, a), s']
    true, samples = 0.5 * (kernels[0] + kernels[1]), []
    for seed in seeds:
        draw, seen, lost = np.random.default_rng([3, seed]), np.zeros(19), False
        for t in range(1, 513):
            pair = draw.integers(6)
            seen[3 * pair + draw.choice(3, p=true[pair])] += 1.0
            if t & (t - 1) == 0 and t > 1 and not lost:
                counts = Counts(seen, np.arange(0, 19, 3), kernels.reshape(4, 18).T)
                found = likely_sets(counts, delta=1.0 if broken else FINITE_DELTA).minimal
                lost = not any(set(each) <= {0, 1} for each in found)
        samples.append((float(lost), FINITE_DELTA))
    return samples


# ----------------------------------------------------------------------------------------------------------- optimism
OPTIMISM = "Optimism"
GROUPS = {
    "finite": ("M5", ("finite-paper", "finite-ball", "finite-sharp", "per-step-finite")),
    "linear": ("M9, M11", ("ellipsoid-paper", "ellipsoid-sharp", "ellipsoid-unweighted", "per-step-linear")),
    "rewards": ("M9, rewards", ("rewards-hoeffding", "rewards-bernstein", "rewards-linear")),
}


def _optimism(names: Sequence[str], broken: bool, seeds: range) -> Samples:
    samples = []
    for case in [set_case(name, broken) for name in names]:
        for seed in seeds:
            played = case.play(seed)
            samples.append((float(played.pessimistic if broken else played.pessimistic_when_covered), float(EPISODES)))
    return samples


for _name, (_source, _sets) in GROUPS.items():
    _says = f"No plan is below the optimum while the set holds the truth ({_name})"
    _enter = promise(OPTIMISM, _source, never, 400, 25, control="the sets of the coverage controls")
    _enter(partial(_optimism, _sets), f"optimism-{_name}", _says)


# --------------------------------------------------------------------------------------------------------- potentials
POTENTIALS = "Elliptical potential and eluder sum"


class _Potential(paper.UCRLVTRLin):
    """The letter of UCRL-VTR-LIN, with the sum of min(1, ||x_t||^2 in the inverse of Sigma_{t-1})."""

    def learn(self, known: Known, state: dict[str, Any], episode: Episode) -> None:
        inverse, values = np.linalg.inv(state["sigma"]), state["values"]
        for h in range(len(episode.actions)):
            x = self.phi[episode.states[h], episode.actions[h]] @ values[h + 1]
            y = inverse @ x
            state["potential"] = state.get("potential", 0.0) + min(1.0, float(x @ y))
            inverse -= np.outer(y, y) / (1.0 + x @ y)
        super().learn(known, state, episode)


@promise(POTENTIALS, "Jia et al. 2020; lemma behind theorems 2 and 3", most, 20, 3, control="a quarter of the bound")
def elliptical_potential(broken: bool, seeds: range) -> Samples:
    """Certify that the sum of min(1, ||x_t||^2 in the inverse of Sigma_{t-1}) is at most 2 logdet(Sigma)."""
    case, samples = linear_case(), []
    learner = _Potential(features=case.learner.features, norm_bound=case.learner.norm_bound)
    for seed in seeds:
        state = run(learner, case.mdp, episodes=2_000, seed=seed, progress=False).state
        bound = 2.0 * float(np.linalg.slogdet(state["sigma"])[1])
        samples.append((state["potential"], bound / 4.0 if broken else bound))
    return samples


class _Widths(paper.UCRLVTR):
    """The letter of UCRL-VTR, with the sum of the widths of its confidence sets along the rows."""

    def learn(self, known: Known, state: dict[str, Any], episode: Episode) -> None:
        inside, values = self.confidence_set(known, state), optimal_values(self.family, known)[0][state["member"]]
        for h in range(len(episode.actions)):
            s, a = episode.states[h], episode.actions[h]
            predicted = dense_kernels(self.family)[inside, s, a] @ values[h + 1]
            state["widths"] = state.get("widths", 0.0) + float(np.ptp(predicted))
        super().learn(known, state, episode)


@promise(POTENTIALS, "appendix A.1; Russo and Van Roy 2013", most, 20, 3, control="eluder dimension 0")
def eluder_sum(broken: bool, seeds: range) -> Samples:
    """Certify that the widths of the sets along the rows add up to at most 1 + H^2 d + 4 sqrt(beta d K H), d exact."""
    kernels = np.random.default_rng(5).dirichlet(np.ones(2), size=(3, 2, 2))
    mdp = FiniteMDP(transition=kernels[0], reward=np.array([[0.0, 0.1], [0.9, 1.0]]), horizon=3)
    family, episodes = FiniteFamily(kernels), 2_000
    eluder = 0 if broken else eluder_dimension(predictions(family, mdp.known), 1.0 / (episodes * 3))
    learner, samples = _Widths(family=family), []
    for seed in seeds:
        state = run(learner, mdp, episodes=episodes, seed=seed, progress=False).state
        bound = regret_bound_vtr(
            horizon=3, episodes=episodes, delta=0.05, radius=learner.beta(3, episodes), eluder=eluder
        )
        samples.append((state["widths"], bound["eluder"]))
    return samples


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


def mixture() -> tuple[SparseMixture, FeatureMap, dict[str, Any]]:
    """Return the sparse mixture of the linear certificates, and what their theorems want to know about it."""
    problem = SparseMixture(states=8, actions=3, horizon=5, dimension=8, nonzero=3, gamma=0.5, persistence=0.5, seed=0)
    longest = problem.horizon * float(np.linalg.norm(np.abs(problem.phi).sum(axis=2), axis=-1).max())
    return problem, FeatureMap(problem.phi), {"horizon": 5, "delta": 0.05, "dimension": 8, "feature_bound": longest}


def excitation(gram: Floats, episodes: int, horizon: int) -> float:
    """Return lambda_min(sum x x^T)/(kH) of plain rows, which stands for rho of lemma 3."""
    d = math.isqrt(gram.size)
    return float(np.linalg.eigvalsh(gram.reshape(d, d))[0]) / (episodes * horizon)


@lru_cache(maxsize=1)
def measured_excitation() -> float:
    """Return rho_min of the mixture, from plain rows of the paper's learner."""
    problem, features, _ = mixture()
    learner = UCRLVTRLin(features=features, norm_bound=float(np.linalg.norm(problem.theta)), **PAPER_LINEAR)
    known = problem.mdp.known
    rows = learner.statistics(known, run(learner, problem, episodes=20_000, seed=0, progress=False).state)
    return excitation(rows.gram, 20_000, known.horizon)


def theorem(name: str) -> Theorem:
    """Return a learner or a selector and its theorem."""
    if name == "infinite":
        case = linear_case()
        bound, longest = case.learner.norm_bound, 4.0 * math.sqrt(3.0)  # ||phi_V|| for a mixture of three kernels
        family = LinearFamily(features=case.learner.features, norm_bound=bound)

        def infinite(k: int) -> float:
            radius = beta_infinite(family, horizon=4, episodes=k, delta=0.05)
            eluder = linear_eluder_bound(3, 1.0 / (4 * k), bound, longest)
            return regret_bound_vtr(horizon=4, episodes=k, delta=0.05, radius=radius, eluder=eluder)["total"]

        return Theorem(replace(case.learner, delta=0.05, replan=0.2), case.mdp, MANY, infinite)
    if name in ("finite", "finite-letter"):
        kernels = two_state_kernels([(0.2, 0.8), (0.9, 0.3), (0.85, 0.5)])
        mdp, members = FiniteMDP(transition=kernels[0], reward=PAY, horizon=3), FiniteFamily(kernels)
        beta = 8.0 * 9.0 * math.log(3 / 0.05)

        def finite(k: int) -> float:
            eluder = eluder_dimension(predictions(members, mdp.known), 1.0 / (3 * k))
            return regret_bound_vtr(horizon=3, episodes=k, delta=0.05, radius=beta, eluder=eluder)["total"]

        options: dict[str, Any] = {"radius": "paper"} if name == "finite-letter" else {}
        return Theorem(UCRLVTR(family=members, **options), mdp, MANY, finite)
    if name == "selection":
        ladder, mdp, separated = two_states(3)
        first = selection_epoch_generic(horizon=3, delta=0.05, separation=separated, entropy=math.log(ladder.sizes[-1]))

        def selected(k: int) -> float:
            return regret_bound_finite(
                horizon=3, episodes=k, delta=0.05, size=ladder.sizes[1], eluder=1.0, first_epoch=first
            )["total"]

        return Theorem(ARLGen(ladder=ladder), mdp, MANY, selected)
    problem, features, about = mixture()
    norm = float(np.linalg.norm(problem.theta))

    def linear(k: int) -> float:
        return regret_bound_linear(episodes=k, norm_bound=norm, **about)["total"]

    if name in ("linear", "linear-letter"):
        options = PAPER_LINEAR if name == "linear-letter" else {}
        agent = UCRLVTRLin(features=features, norm_bound=norm, **options)
        return Theorem(agent, problem.mdp, 10**5 if options else MORE, linear)
    rho = measured_excitation()
    if name == "dimension":

        def by_dimension(k: int) -> float:
            selecting = {**about, "norm_bound": norm, "initial_episodes": 16, "episodes": k}
            first = selection_epoch_dimension(smallest=0.5, excitation=rho, **selecting)
            return regret_bound_dimension(sparsity=3, first_epoch=first, **selecting)["total"]

        return Theorem(ARLLinDim(features=features, norm_bound=norm), problem.mdp, MORE, by_dimension, linear)
    norms = {**about, "norm_bound": 10.0, "true_norm": norm, "excitation": rho, "initial_episodes": 16}

    def by_norm(k: int) -> float:
        return regret_bound_norm(episodes=k, **norms)["total"]

    return Theorem(ARLLinNorm(features=features, norm_bound=10.0), problem.mdp, MORE, by_norm, linear)


THEOREMS = {
    "finite-letter": ("UCRL-VTR with the paper's ball", "theorem 1, m* known", 8, 3),
    "finite": ("UCRL-VTR with the sharp set", "theorem 1, m* known", 8, 2),
    "infinite": ("UCRL-VTR-LIN, as an infinite class", "theorem 1, infinite classes", 8, 2),
    "selection": ("ARL-GEN", "theorem 1", 8, 2),
    "linear-letter": ("UCRL-VTR-LIN with the paper's radius, every plan", "Jia et al. 2020", 8, 2),
    "linear": ("UCRL-VTR-LIN with the sharp radius", "Jia et al. 2020", 8, 2),
    "dimension": ("ARL-LIN(dim)", "theorem 2", 8, 2),
    "norm": ("ARL-LIN(norm)", "theorem 3", 8, 2),
}
_LETTERS = ("finite-letter", "linear-letter")


def far(name: str) -> int:
    """Return the power of 10 at which a theorem says more than HK; theorem 2 has i* of about 67 here."""
    return 110 if name == "dimension" else 60


def random_gap(mdp: FiniteMDP) -> float:
    """Return the exact regret of an episode of uniformly random actions, over 1,000 first states."""
    return float(run(UniformRandom(), mdp, episodes=1_000, seed=0, progress=False).total_regret) / 1_000.0


@lru_cache(maxsize=256)
def regret_curve(name: str, seed: int) -> tuple[Ints, Floats]:
    """Return 13 numbers of episodes from 10^3 on, the last being all, and the regret up to each of them."""
    agent, mdp, episodes, _, _ = theorem(name)
    result = run(agent, mdp, episodes=episodes, seed=seed, progress=False)
    points = np.geomspace(1e3, episodes, 13).astype(np.int64)
    return points, result.cumulative_regret[np.searchsorted(result.episodes, points)]


def _against_theorem(name: str, broken: bool, seeds: range) -> Samples:
    _, mdp, episodes, bound, _ = theorem(name)
    if broken:  # exact, so that it need not be played
        return [(random_gap(mdp) * 10.0 ** far(name), bound(10 ** far(name)))]
    return [(float(regret_curve(name, seed)[1][-1]), bound(episodes)) for seed in seeds]


def slope(points: Ints, values: Floats) -> float:
    """Return the slope of log(values) over log(points), where values are positive."""
    kept = values > 0.0
    return float(np.polyfit(np.log(points[kept]), np.log(values[kept]), 1)[0]) if kept.sum() > 1 else 0.0


def _slope(name: str, broken: bool, seeds: range) -> Samples:
    _, mdp, episodes, bound, rate = theorem(name)
    points = np.geomspace(1e3, episodes, 13).astype(np.int64)
    promised = slope(points, np.array([(rate or bound)(int(k)) for k in points]))
    if broken:
        return [(slope(points, random_gap(mdp) * points.astype(np.float64)), promised)] * 2
    return [(slope(*regret_curve(name, seed)), promised) for seed in seeds]


for _name, (_who, _source, _runs, _few) in THEOREMS.items():
    _says = f"The regret of {_who} is at most the right side of its theorem"
    _enter = promise(REGRET, _source, most, _runs, _few, control=f"random actions, 10^{far(_name)} episodes, exact")
    _enter(partial(_against_theorem, _name), f"regret-{_name}", _says)
    if _name not in _LETTERS:
        _last = "10^6" if _name in ("finite", "infinite", "selection") else "10^7"
        _says = f"The log-log slope of its regret over K = 10^3 to {_last} is at most the theorem's: {_who}"
        _enter = promise(REGRET, _source, mean, _runs, 4, control="random actions")
        _enter(partial(_slope, _name), f"slope-{_name}", _says)


# ------------------------------------------------------------------------------------------------------------ ARL-GEN
SELECTION = "ARL-GEN"


def two_states(classes: int) -> tuple[Ladder, FiniteMDP, float]:
    """Return a ladder, its problem, m* = 2, and the separation, which is the same on all rows of all policies.

    State 1 pays 1, state 0 nothing, and the next state does not depend on the present one: all value functions differ
    by 1 between the states. The kernel of F_1 is off by 0.5 at every pair, and prefers the wrong action. Every class
    above the second adds kernels.
    """
    kernels = two_state_kernels([(0.7, 0.3), (0.2, 0.8), *((0.2 - 0.1 / m, 0.8 - 0.4 / m) for m in range(1, classes))])
    ladder = Ladder([FiniteFamily(kernels[:m]) for m in range(1, classes + 1)])
    return ladder, FiniteMDP(transition=kernels[1], reward=PAY, horizon=3), 0.25 * 2.0 / 3.0


PAY = np.array([[0.0, 0.0], [1.0, 1.0]])  # of the two states


def two_state_kernels(laws: Sequence[tuple[float, float]]) -> Floats:
    """Return kernels under which either action leads to state 1 with a probability of its own."""
    kernels = np.zeros((len(laws), 2, 2, 2))
    kernels[..., 1] = np.array(laws)[:, np.newaxis, :]
    kernels[..., 0] = 1.0 - kernels[..., 1]
    return kernels


def blind() -> tuple[Ladder, FiniteMDP]:
    """Return a ladder whose smallest class is wrong only where its own policy never goes: no separability."""
    kernels = np.zeros((2, 3, 2, 3))
    kernels[:, 0, 0, 0] = kernels[:, 1, :, 1] = kernels[:, 2, :, 2] = 1.0
    kernels[:, 0, 1, 1], kernels[:, 0, 1, 2] = [0.1, 0.9], [0.9, 0.1]
    reward = np.array([[0.5, 0.5], [1.0, 1.0], [0.0, 0.0]])
    ladder = Ladder([FiniteFamily(kernels[:1]), FiniteFamily(kernels)])
    return ladder, FiniteMDP(transition=kernels[1], reward=reward, horizon=4)


class _NoSlack(paper.ARLGen):
    """The letter of ARL-GEN without its slack sqrt(i)/2^(i/2)."""

    def _begin_epoch(self, known: Known, state: dict[str, Any]) -> None:
        super()._begin_epoch(known, state)
        statistics = np.array(state["statistics"])
        state["chosen"] = 1 + int(np.argmax(statistics <= statistics[-1]))
        state["learner"] = self._base(state).begin(known)


def letter_classes(agent: paper.ARLGen, mdp: FiniteMDP, epochs: int, seed: int) -> list[int]:
    """Return the classes that the letter plays in epochs 1, 2, ..."""
    result, chosen = None, []
    for i in range(1, epochs + 1):
        more: dict[str, Any] = {"seed": seed} if result is None else {"continue_from": result}
        result = run(agent, mdp, episodes=2**i, progress=False, **more)
        chosen.append(int(result.state["chosen"]))
    return [1, *chosen[:-1]]


@lru_cache(maxsize=1)
def near_ladder() -> tuple[Ladder, FiniteMDP]:
    """Return a ladder of kernels that are hard to tell apart, m* = 2, and its problem."""
    kernels, reward = near_truth()
    classes: list[list[int]] = [[7], [7, 0, 3], list(range(8))]
    ladder = Ladder([FiniteFamily(kernels[members]) for members in classes])
    return ladder, FiniteMDP(transition=kernels[0], reward=reward, horizon=6)


@promise(SELECTION, "M25", rate, 2000, 100, control="no slack")
def false_rejection(broken: bool, seeds: range) -> Samples:
    """Certify that the true class is left in at most delta of runs."""
    ladder, mdp = near_ladder()
    agent, samples = ARLGen(ladder=ladder, delta=0.01, scale=0.0 if broken else 1.0), []
    for seed in seeds:
        rows = run(agent, mdp, episodes=254, seed=seed, progress=False).phases.to_pylist()
        samples.append((float(max(row["chosen"] for row in rows) > 2), agent.delta))
    return samples


@promise(SELECTION, "lemma 1; M14", rate, 100, 8, control="no slack sqrt(i)/2^(i/2)")
def false_rejection_letter(broken: bool, seeds: range) -> Samples:
    """Certify that the letter leaves the true class in at most delta of runs from epoch 6 on, where M14 (a) holds."""
    ladder, mdp = near_ladder()
    agent = (_NoSlack if broken else paper.ARLGen)(ladder=ladder, delta=0.05)
    return [(float(max(letter_classes(agent, mdp, 8, seed)[5:]) > 2), agent.delta) for seed in seeds]


def lock_in(classes: Sequence[int], right: int) -> int:
    """Return the epoch from which on the right class was played; one more than the last if it never was."""
    wrong = [i for i, m in enumerate(classes, start=1) if m != right]
    return 1 + (wrong[-1] if wrong else 0)


def _lock_in(letter: bool, broken: bool, seeds: range) -> Samples:
    ladder, mdp, separated = two_states(3)
    bound = selection_epoch_generic(horizon=3, delta=0.05, separation=separated, entropy=math.log(ladder.sizes[-1]))
    if broken:
        ladder, mdp = blind()
    agent: Any = paper.ARLGen(ladder=ladder) if letter else ARLGen(ladder=ladder)
    samples = []
    for seed in seeds:
        if letter:
            chosen = letter_classes(agent, mdp, bound + 1, seed)
        else:
            phases = run(agent, mdp, episodes=2 ** (bound + 2) - 2, seed=seed, progress=False).phases
            chosen = phases["chosen"].to_pylist()
        samples.append((float(lock_in(chosen, 2)), float(bound)))
    return samples


for _letter, _runs, _few in ((True, 10, 2), (False, 100, 10)):
    _says = f"ARL-GEN{', to the letter,' if _letter else ''} plays the true class from epoch i* on"
    _name = "lock-in-letter" if _letter else "lock-in"
    _source = "lemma 1; M14 (b)" if _letter else "lemma 1; M15, M25"
    _enter = promise(SELECTION, _source, most, _runs, _few, control="a ladder that is not separable")
    _enter(partial(_lock_in, _letter), _name, _says)


def _cost(classes: int, broken: bool, seeds: range) -> Samples:
    ladder, mdp, separated = two_states(classes)
    first = selection_epoch_generic(horizon=3, delta=0.05, separation=separated, entropy=math.log(ladder.sizes[-1]))
    agent, samples = ARLGen(ladder=ladder, scale=1e9 if broken else 1.0), []
    for seed in seeds:
        ours, known = (
            run(each, mdp, episodes=10**5, seed=seed, progress=False).total_regret
            for each in (agent, oracle(ARLGen(ladder=ladder), 2))
        )
        samples.append((float(ours - known), 3.0 * (2**first - 2)))
    return samples


for _classes in (2, 4, 8):
    _says = f"Selection among M = {_classes} classes costs at most tau_(i*-1) H more than the oracle (K = 10^5)"
    _enter = promise(SELECTION, "theorem 1", most, 20, 3, control="a test that never rejects")
    _enter(partial(_cost, _classes), f"selection-cost-{_classes}", _says)


# ------------------------------------------------------------------------------------------------------------ ARL-LIN
LINEAR = "ARL-LIN"


def support_runs(broken: bool, seeds: range) -> Iterator[tuple[list[int], list[int], int]]:
    """Yield the support that was played last, the true one, and the episode since which it has not changed."""
    problem, _, _ = mixture()
    problem = replace(problem, contrast=0.02) if broken else problem
    agent = ARLLinDim(features=FeatureMap(problem.phi), norm_bound=float(np.linalg.norm(problem.theta)))
    for seed in seeds:
        rows = run(agent, problem.mdp, episodes=200_000, seed=seed, progress=False).phases.to_pylist()
        plays = [row for row in rows if row["label"] == "exploitation"]
        last, settled = plays[-1]["active"], 0
        for row in plays:
            settled = row["seen"] + row["episodes"] if row["active"] != last else settled
        yield last, problem.support.tolist(), settled


WEAK = "features that move 2 % of the probability instead of 90 %"


@promise(LINEAR, "theorem 2; M18", rate, 60, 8, control=WEAK)
def support(broken: bool, seeds: range) -> Samples:
    """Certify that ARL-LIN(dim) ends with exactly the support of theta* (that nothing is superfluous is not proved)."""
    return [(float(found != true), 0.05) for found, true, _ in support_runs(broken, seeds)]


@promise(LINEAR, "theorem 2; M16, M18", most, 20, 3, control=WEAK)
def support_epoch(broken: bool, seeds: range) -> Samples:
    """Certify that ARL-LIN(dim) plays the support before epoch i* of the paper's schedule begins, in episodes."""
    problem, _, about = mixture()
    norm, forever = float(np.linalg.norm(problem.theta)), 36**90
    seen: dict[str, Any] = {"excitation": measured_excitation(), "initial_episodes": 16, "episodes": forever}
    first = selection_epoch_dimension(**about, **seen, norm_bound=norm, smallest=0.5)
    begins = sum(16 * 36**j + 4 * 6**j for j in range(first))
    runs = support_runs(broken, seeds)
    return [(float(max(1, settled) if found == true else forever), float(begins)) for found, true, settled in runs]


@promise(LINEAR, "lemma 6; M19", rate, 300, 20, control="the norm of the estimate itself")
def norm_valid(broken: bool, seeds: range) -> Samples:
    """Certify that no b^(i) is below the norm of theta*, in at least 1 - delta of runs."""
    problem, features, _ = mixture()
    norm, agent, samples = float(np.linalg.norm(problem.theta)), ARLLinNorm(features=features, norm_bound=20.0), []
    for seed in seeds:
        rows = run(agent, problem, episodes=16 * 2**9, seed=seed, progress=False).phases.to_pylist()
        bounds = [np.linalg.norm(row["estimate"]) if broken else row["norm_bound"] for row in rows[1:]]
        samples.append((float(min(bounds) < norm - 1e-9), agent.delta))
    return samples


def norm_excess(seed: int, epochs: int, *, letter: bool) -> Floats:
    """Return b^(i) - ||theta*|| for i = 2, 3, ..."""
    problem, features, _ = mixture()
    known, norm, bound = problem.mdp.known, float(np.linalg.norm(problem.theta)), 20.0
    if not letter:
        agent, episodes = ARLLinNorm(features=features, norm_bound=bound), 16 * (2 ** (epochs - 1) - 1) + 1
        bounds = run(agent, problem, episodes=episodes, seed=seed, progress=False).phases["norm_bound"].to_pylist()
        return np.array(bounds[1:]) - norm
    found = []
    for i in range(1, epochs):
        learner = UCRLVTRLin(features=features, norm_bound=bound, delta=0.05 / 2 ** (i - 1), **PAPER_LINEAR)
        k = 16 * 2 ** (i - 1)
        state = run(learner, problem, episodes=k, seed=1000 * seed + i, progress=False).state
        rows, H, d = learner.statistics(known, state), known.horizon, features.dimension
        sigma = rows.gram.reshape(d, d) + np.eye(d)
        beta = bound**2 + H**2 * d * math.log(k * H) * math.log(k**2 * H / learner.delta) ** 2  # M10
        bound = largest_norm(np.asarray(np.linalg.solve(sigma, rows.xy)), sigma, beta).norm
        found.append(bound - norm)
    return np.array(found)


def _norm_rate(letter: bool, broken: bool, seeds: range) -> Samples:
    epochs = np.arange(8, 16 if letter else 18)
    promised = float(np.polyfit(epochs, 1.5 * np.log2(epochs) - epochs * (1.0 if broken else 0.5), 1)[0])
    samples = []
    for seed in seeds:
        excess = norm_excess(seed, int(epochs[-1]), letter=letter)[epochs - 2]
        samples.append((float(np.polyfit(epochs, np.log2(excess), 1)[0]), promised))
    return samples


for _letter in (True, False):
    _says = f"b^(i) - ||theta*|| falls like i^1.5 2^(-i/2), log2 per epoch{', to the letter' if _letter else ''}"
    _name = "norm-rate-letter" if _letter else "norm-rate"
    _enter = promise(LINEAR, "lemma 6, corrected", mean, 6, 4, control="the paper's i^1.5 2^(-i)")
    _enter(partial(_norm_rate, _letter), _name, _says)


# -------------------------------------------------------------------------------------------------- published figures
PUBLISHED = "Published figures"
FIGURES = {
    "river-swim-3": (RiverSwim(states=3, variant="ayoub"), 11_100.0, "RiverSwim, S = 3"),
    "river-swim-5": (RiverSwim(states=5, variant="ayoub"), 44_400.0, "RiverSwim, S = 5"),
    "wide-tree": (WideTree(leaves=4), 74.0, "WideTree"),
}


def _published(problem: Any, figure: float, broken: bool, seeds: range) -> Samples:
    S, A, episodes = problem.mdp.states, problem.mdp.actions, 10_000
    learner = UCRLVTRLin(
        features=FeatureMap.tabular(states=S, actions=A),
        norm_bound=math.sqrt(S * A),
        delta=1.0 / episodes,
        radius="sharp" if broken else "ayoub",
        weights="range" if broken else "none",
        replan=0.0,
    )
    samples = []
    for seed in seeds:
        result = run(learner, problem, episodes=episodes, seed=seed, progress=False)
        samples.append((episodes * problem.mdp.optimal_value - result.total_return, figure))
    return samples


for _name, (_problem, _figure, _label) in FIGURES.items():
    _says = f"The realised regret of 10,000 episodes reported for {_label} is one of this learner's"
    _enter = promise(PUBLISHED, "Ayoub et al. 2020", near, 20, 5, control="the sharp learner")
    _enter(partial(_published, _problem, _figure), f"published-{_name}", _says)


OTHER = partial(never, what="other values")


@promise(PUBLISHED, "Ayoub et al. 2020, section 6.3", OTHER, 3, 3, control="it pays .005, as in the authors' code")
def published_optimal_values(broken: bool, seeds: range) -> Samples:
    """Certify that RiverSwim whose first state pays .05 has the optimal values published for S = 3, 4, 5."""
    samples = []
    for states, value in ((3, "5.72"), (4, "5.66"), (5, "5.60")):
        river = RiverSwim(states=states, variant="ayoub").mdp
        reward = np.array(river.known.base_reward)
        reward[0, 0] = 0.005 if broken else 0.05
        mdp = FiniteMDP(transition=river.kernel(), reward=reward, horizon=river.horizon)
        samples.append((float(f"{mdp.optimal_value:.2f}" != value), 1.0))
    return samples


# ------------------------------------------------------------------------------------------- where an assumption fails
FAILS = "Where an assumption of the paper fails"


LEFT = partial(never, what="runs that left F_1 or were optimal in the end")


@promise(FAILS, "assumption 1; M25", LEFT, 50, 10, control="optimism over the whole set (safe)")
def no_separability(broken: bool, seeds: range) -> Samples:
    """Certify that without separability no test on played rows rejects F_1 although it is wrong: regret is linear."""
    ladder, mdp = blind()
    samples = []
    for seed in seeds:
        result = run(ARLGen(ladder=ladder, safe=broken), mdp, episodes=4_094, seed=seed, progress=False)
        samples.append((float(result.phases["chosen"][-1].as_py() > 1 or result.regret[-1] < 1e-9), 1.0))
    return samples


@promise(FAILS, "assumption 2", most, 10, 3, control="the same features without the doubled one")
def no_excitation(broken: bool, seeds: range) -> Samples:
    """Certify that where a direction is never excited lambda_min(sum x x^T)/(kH) stays 0 (below 10^-6)."""
    problem = mixture()[0]
    phi = problem.phi if broken else np.concatenate([problem.phi, problem.phi[..., -1:]], axis=-1)
    agent, samples = ARLLinNorm(features=FeatureMap(phi), norm_bound=20.0), []
    for seed in seeds:
        result = run(agent, problem, episodes=30_000, seed=seed, progress=False)
        rows = result.walk.memory["statistics"]
        samples.append((max(0.0, excitation(rows.gram, rows.episodes, 5)), 1e-6))
    return samples


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


def measure(name: str, runs: int) -> dict[str, Any]:
    """Measure a certificate and its control; return plain data."""
    began, about = time.process_time(), CERTIFICATES[name]
    claim, control = about.measure(False, range(runs)), about.measure(True, range(min(runs, MOST_CONTROLS)))
    plain = [[[float(number) for number in sample] for sample in samples] for samples in (claim, control)]
    seconds = round(time.process_time() - began, 3)
    return {"certificate": name, "runs": runs, "claim": plain[0], "control": plain[1], "seconds": seconds}


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
) -> list[Record]:
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
        Is told a line when a certificate has been measured.
    """
    for name in names:
        require_choice("certificate", name, tuple(CERTIFICATES))
    chosen = [about for about in CERTIFICATES.values() if not names or about.name in names]
    sources = compiling.sources_hash(begin="analysis/certificates.py")
    runs = {about.name: about.few if quick else about.runs for about in chosen}
    found: dict[str, Record] = {}

    def keep(data: dict[str, Any]) -> None:
        write_whole(folder / f"{data['certificate']}.json", seal({**data, "sources": sources}))
        take(data, "")

    def take(data: dict[str, Any], note: str) -> None:
        record = found[data["certificate"]] = _judge(data)
        finding = record.finding
        interval = f"{finding.text} [{finding.low:.4g}, {finding.high:.4g}], bound {finding.bound:.4g}"
        when = note or f"{record.seconds:.1f} s"
        say(f"[{len(found)}/{len(chosen)}] {record.certificate.name}: {record.verdict}; {interval} ({when})")

    make_folder(folder)
    with FolderLock(folder / "lock"):
        for name, count in runs.items():
            if (earlier := _earlier(folder / f"{name}.json", name, count, sources)) is not None:
                take(earlier, "measured before")
        waiting = [name for name in runs if name not in found]
        count = min(len(waiting), workers or os.cpu_count() or 1)
        if count <= 1:
            for name in waiting:
                keep(measure(name, runs[name]))
        else:
            with _processes(count) as pool:
                longest_first = reversed(waiting)  # the short ones, at the head of the list, fill the gaps at the end
                for done in as_completed([pool.submit(measure, name, runs[name]) for name in longest_first]):
                    keep(done.result())
    return [found[about.name] for about in chosen]


def _earlier(path: Path, name: str, runs: int, sources: str) -> dict[str, Any] | None:
    """Return an earlier measurement if it is one of this certificate, with as many runs and the same sources."""
    if not there(path):
        return None
    try:
        data = read_sealed(path)
    except RecordError:  # damaged: it is measured again
        return None
    same = (data.get("certificate"), data.get("runs"), data.get("sources")) == (name, runs, sources)
    return data if same else None


@contextmanager
def _processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Give worker processes with one thread of linear algebra each; they end at once when the block is left early."""
    before, kept = set(multiprocessing.active_children()), dict(os.environ)
    os.environ.update(environment())  # the processes inherit it
    deaf = (signal.SIGINT, signal.SIG_IGN)  # to Ctrl-C: the parent ends them
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), signal.signal, deaf)
    try:
        yield pool
        pool.shutdown()
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


def lines(records: Sequence[Record]) -> list[str]:
    """Return the table for a terminal: a section after the other, three lines for each certificate."""
    text, section = [], ""
    for record, row in zip(records, rows_of(records), strict=True):
        if record.certificate.section != section:
            section = record.certificate.section
            text += ["", section.upper()]
        name, statement, source, measured, interval, bound, verdict, control = row
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
    text, section = [_MARKDOWN.format(good=good, count=len(records), minutes=minutes)], ""
    for record, row in zip(records, rows_of(records), strict=True):
        if record.certificate.section != section:
            section = record.certificate.section
            text += [f"\n## {section}\n", f"| {' | '.join(_HEADINGS)} |", "| --- " * len(_HEADINGS) + "|"]
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
