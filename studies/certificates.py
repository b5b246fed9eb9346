"""Certificates: the promises of docs/mathematics.md, measured beside versions broken on purpose.

    python -m studies.certificates              the table, 1,000 runs of most promises (minutes)
    python -m studies.certificates --quick      the same with a tenth of the runs
    python -m studies.certificates --only optimism

A promise is a function of (broken, seed) that returns one sample. Rates of failures are compared
with a bound by Clopper-Pearson intervals of level 99.8 %, so that a promise that is kept is refuted
by chance once in a thousand times at most. The control must be refuted by the same test: otherwise
the test proves nothing.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from scipy.stats import beta, t

import occamrl as orl
from occamrl.addresses import generator
from occamrl.arrays import Floats
from occamrl.errors import Stopped
from occamrl.evidence import value
from occamrl.evidence.lists import ListEvidence
from occamrl.experiments.pool import Listener, Pool, processors
from occamrl.paper.ucrl_vtr import UCRLVTR
from occamrl.problems.classic import RiverSwim
from occamrl.problems.mixtures import ReferenceMixture
from occamrl.protocols import State
from occamrl.running.flow import simulate
from studies.figures import table

VERDICT = {True: "holds", False: "REFUTED"}
CONTROL = {True: "NOT refuted", False: "refuted"}  # which a control should be
EPISODES = 40
LEVEL = 0.998
MEMBERS = (0, 3, 5, 2, 6, 1)  # of near_truth: the kernels of the steps


def sharp_level(broken: bool) -> float:
    """Return delta of a sharp set; broken: without its slack, log(1/delta) being about 0."""
    return 0.999 if broken else 0.05


def width_factor(broken: bool) -> float:
    """Return the factor of a width; broken: a twentieth."""
    return 0.05 if broken else 1.0


class Promise(NamedTuple):
    """What is promised, where it is stated, and how it is measured."""

    section: str
    text: str
    source: str
    bound: float  # of the rate of failures; of "near", the published figure
    runs: int
    control: str
    sample: Callable[[bool, int], float]
    near: bool = False  # a figure that the runs must reach, instead of a rate


class Moment(NamedTuple):
    """An episode before it is learned from."""

    state: State  # that it was planned with
    pessimistic: bool  # whether its plan was below the optimum


def moments(agent: orl.Learner, mdp: orl.FiniteMDP, seed: int) -> Iterator[Moment]:
    """Play episode by episode; the state is as it was when the episode was planned."""
    state = agent.begin(mdp.known)
    for k in range(EPISODES):
        plan = agent.plan(mdp.known, state, generator(seed, "agent", k))
        flow = simulate(mdp, plan.policy, 1, generator(seed, "environment", k))
        start = int(flow.state[flow.step == 0][0])
        pessimistic = False
        if plan.values is not None:
            pessimistic = bool(plan.values[0, start] < mdp.optimal_values[0, start] - 1e-9)
        yield Moment(state, pessimistic)
        agent.learn(mdp.known, state, plan, flow)


# Confidence sets, and optimism while they hold the truth ------------------------------------------


class Case(NamedTuple):
    """A learner that plans before every episode, its problem, and whether a set holds the truth."""

    agent: orl.Learner
    mdp: orl.FiniteMDP
    covers: Callable[[State], bool]

    def lost(self, seed: int) -> bool:
        """Return whether the truth was outside before some episode."""
        played = moments(self.agent, self.mdp, seed)
        return any(not self.covers(moment.state) for moment in played)

    def pessimistic(self, seed: int, broken: bool) -> bool:
        """Return whether some plan was below the optimum although the set held the truth.

        Broken: whatever the set held.
        """
        for moment in moments(self.agent, self.mdp, seed):
            if moment.pessimistic and (broken or self.covers(moment.state)):
                return True
        return False


@cache
def near_truth() -> tuple[Floats, Floats]:
    """Return eight kernels, and rewards; the first is the truth, and at times looks wrong."""
    draw = np.random.default_rng([2, 8])
    kernels = draw.dirichlet(np.ones(3), size=(8, 3, 2))
    return 0.7 * kernels[0] + 0.3 * kernels, draw.random((3, 2))


class SmallBall(UCRLVTR):
    """The paper's ball with a 50,000th of its radius."""

    def beta(self, horizon: int, episodes: int = 0) -> float:
        """Return too small a radius."""
        return 2e-5 * super().beta(horizon, episodes)


@cache
def paper_ball(broken: bool) -> Case:
    """Return the paper's UCRL-VTR on kernels that are hard to tell apart."""
    kernels, reward = near_truth()
    mdp = orl.FiniteMDP(transition=kernels[0], reward=reward, horizon=6)
    kind = SmallBall if broken else orl.paper.UCRLVTR
    agent = kind(family=orl.FiniteFamily(kernels))
    return Case(agent, mdp, lambda state: bool(agent.confidence_set(mdp.known, state)[0]))


@cache
def sharp_set(broken: bool, prior_against: bool = False) -> Case:
    """Return UCRL-VTR on the same kernels, with an even prior or one against the truth."""
    kernels, reward = near_truth()
    prior = np.full(8, 1 / 8)
    if prior_against:
        prior = np.array([0.01, *[0.99 / 7] * 7])
    agent = orl.UCRLVTR(
        family=orl.FiniteFamily(kernels),
        delta=sharp_level(broken),
        prior=prior,
        replan=0.0,
    )
    mdp = orl.FiniteMDP(transition=kernels[0], reward=reward, horizon=6)
    return Case(agent, mdp, lambda state: bool(agent.confidence_set(state)[0, 0]))


@cache
def sharp_sets_per_step(broken: bool) -> Case:
    """Return the same where every step has another kernel of the list."""
    kernels, reward = near_truth()
    agent = orl.UCRLVTR(
        family=orl.FiniteFamily(kernels),
        delta=sharp_level(broken),
        kernel="per_step",
        replan=0.0,
    )
    mdp = orl.FiniteMDP(transition=kernels[list(MEMBERS)], reward=reward, horizon=6)

    def covers(state: State) -> bool:
        inside = agent.confidence_set(state)
        return bool(inside[range(len(MEMBERS)), list(MEMBERS)].all())

    return Case(agent, mdp, covers)


class Mixture(NamedTuple):
    """Features of three kernels, weights of the truth, and rewards."""

    phi: Floats  # [S, A, S, 3]
    theta: Floats  # [3]
    reward: Floats  # [S, A]

    @property
    def features(self) -> orl.FeatureMap:
        """The features."""
        return orl.FeatureMap(self.phi)


@cache
def mixture() -> Mixture:
    """Return a mixture with 4 states and 2 actions."""
    draw = np.random.default_rng([1, 7])
    kernels = draw.dirichlet(np.ones(4), size=(3, 4, 2))
    phi = np.ascontiguousarray(np.moveaxis(kernels, 0, -1))
    return Mixture(phi, draw.dirichlet(np.ones(3)), draw.random((4, 2)))


def mixture_mdp(noise: Literal["bernoulli"] | None = None) -> orl.FiniteMDP:
    """Return the mixture as a problem, with two starts."""
    phi, theta, reward = mixture()
    return orl.FiniteMDP(
        transition=phi @ theta,
        reward=reward,
        horizon=4,
        initial_state=[0.5, 0.0, 0.0, 0.5],
        reward_noise=noise,
    )


@cache
def paper_ellipsoid(broken: bool) -> Case:
    """Return the paper's UCRL-VTR-LIN on the mixture, delta = 0.3."""
    _, theta, _ = mixture()
    agent = orl.paper.UCRLVTRLin(
        features=mixture().features,
        norm_bound=float(np.linalg.norm(theta)),
        delta=0.3,
        paper_constant=2.5e-5 if broken else 1.0,
    )

    def covers(state: State) -> bool:
        error = agent.estimate(state) - theta
        return bool(error @ state["sigma"] @ error <= agent.width(4, 1, state) ** 2)

    return Case(agent, mixture_mdp(), covers)


def in_ellipsoids(agent: orl.UCRLVTRLin, thetas: Floats) -> Callable[[State], bool]:
    """Return whether the ellipsoids of all steps [T] hold the truth of each [T, d]."""

    def covers(state: State) -> bool:
        fit = value.ridge(state["gram"], state["xy"], agent.lam)
        errors = fit.theta[:, 0] - thetas
        sigma = state["gram"][:, 0] + agent.lam * np.eye(3)
        distance = np.einsum("ti,tij,tj->t", errors, sigma, errors)
        logdet = fit.logdet.sum(axis=1)
        level = agent.delta / len(thetas)
        radii = value.squared_radius(logdet, level, agent.lam, agent.norm_bound)
        return bool((distance <= agent.scale**2 * radii).all())

    return covers


@cache
def sharp_ellipsoid(broken: bool) -> Case:
    """Return UCRL-VTR-LIN on the mixture, delta = 0.3."""
    theta = mixture().theta
    agent = orl.UCRLVTRLin(
        features=mixture().features,
        norm_bound=float(np.linalg.norm(theta)),
        delta=0.3,
        scale=width_factor(broken),
        replan=0.0,
    )
    return Case(agent, mixture_mdp(), in_ellipsoids(agent, theta[None]))


@cache
def ellipsoids_per_step(broken: bool) -> Case:
    """Return the same where every step has other weights."""
    phi, _, reward = mixture()
    thetas = np.random.default_rng(2).dirichlet(np.ones(3), size=4)
    agent = orl.UCRLVTRLin(
        features=mixture().features,
        norm_bound=float(np.linalg.norm(thetas, axis=1).max()),
        delta=0.3,
        scale=width_factor(broken),
        replan=0.0,
        kernel="per_step",
    )
    transition = np.stack([phi @ theta for theta in thetas])
    mdp = orl.FiniteMDP(transition=transition, reward=reward, horizon=4)
    return Case(agent, mdp, in_ellipsoids(agent, thetas))


@cache
def unknown_rewards(broken: bool, bound: Literal["hoeffding", "bernstein"]) -> Case:
    """Return UCRL-VTR-LIN on the mixture, with rewards of 0 or 1 that it has to estimate."""
    _, theta, reward = mixture()
    # of delta = 0.3, nine tenths pay for the rewards
    planner = orl.UCRLVTRLin(
        features=mixture().features,
        norm_bound=float(np.linalg.norm(theta)),
        delta=0.03,
        replan=0.0,
    )
    scale = width_factor(broken)
    agent = orl.RewardsPerPair(agent=planner, delta=0.3, share=0.9, scale=scale, bound=bound)

    def covers(state: State) -> bool:
        upper = np.minimum(agent.upper_bounds(state), 1.0)
        return bool((upper >= reward.ravel() - 1e-12).all())

    return Case(agent, mixture_mdp("bernoulli"), covers)


class ConfidenceSet(NamedTuple):
    """A set that holds the truth with probability 1 - delta."""

    text: str
    source: str
    delta: float
    control: str
    case: Callable[[bool], Case]  # of broken or not

    def coverage(self) -> Promise:
        """Return the promise that the truth stays in the set."""
        stays = f"The truth stays in {self.text} in all of {EPISODES} episodes"
        return Promise(
            section="Confidence sets",
            text=f"{stays} with probability 1 - delta",
            source=self.source,
            bound=self.delta,
            runs=1_000,
            control=self.control,
            sample=lambda broken, seed: self.case(broken).lost(seed),
        )

    def optimism(self) -> Promise:
        """Return the promise that plans are optimistic."""
        return Promise(
            section="Optimism",
            text=f"No plan is below the optimum while {self.text} holds the truth",
            source="M5, M9",
            bound=0.0,
            runs=400,
            control="whether the set of the control holds it or not",
            sample=lambda broken, seed: self.case(broken).pessimistic(seed, broken),
        )


SETS = {
    "finite-paper": ConfidenceSet(
        "the paper's ball of a finite family", "M4, M6", 0.05, "a 50,000th of beta", paper_ball
    ),
    "finite-sharp": ConfidenceSet(
        "the sharp set of a finite family", "M24", 0.05, "no slack", sharp_set
    ),
    "finite-prior": ConfidenceSet(
        "the sharp set, its prior against the truth",
        "M22, M24",
        0.05,
        "no slack",
        lambda broken: sharp_set(broken, prior_against=True),
    ),
    "finite-per-step": ConfidenceSet(
        "one sharp set per step", "M24, per step", 0.05, "no slack", sharp_sets_per_step
    ),
    "ellipsoid-paper": ConfidenceSet(
        "the paper's ellipsoid", "M10", 0.3, "a 200th of the radius", paper_ellipsoid
    ),
    "ellipsoid-sharp": ConfidenceSet(
        "the sharp ellipsoid", "M11", 0.3, "a twentieth of the width", sharp_ellipsoid
    ),
    "ellipsoid-per-step": ConfidenceSet(
        "one ellipsoid per step", "M11", 0.3, "a twentieth of the width", ellipsoids_per_step
    ),
    "rewards-hoeffding": ConfidenceSet(
        "Hoeffding's bounds of rewards",
        "rewards",
        0.3,
        "a twentieth",
        lambda broken: unknown_rewards(broken, "hoeffding"),
    ),
    "rewards-bernstein": ConfidenceSet(
        "Bernstein's bounds of rewards",
        "rewards",
        0.3,
        "a twentieth",
        lambda broken: unknown_rewards(broken, "bernstein"),
    ),
}


# Selection ----------------------------------------------------------------------------------------


@cache
def near_ladder() -> tuple[orl.Ladder, orl.FiniteMDP]:
    """Return a ladder of kernels that are hard to tell apart, m* = 2, and its problem."""
    kernels, reward = near_truth()
    classes = ([7], [7, 0, 3], list(range(8)))
    ladder = orl.Ladder([orl.FiniteFamily(kernels[members]) for members in classes])
    return ladder, orl.FiniteMDP(transition=kernels[0], reward=reward, horizon=6)


@cache
def blind() -> tuple[orl.Ladder, orl.FiniteMDP]:
    """Return a ladder whose smallest class is wrong only where its own policy never goes."""
    kernels = np.zeros((2, 3, 2, 3))
    # action 0 waits in state 0; states 1 and 2 are ends
    kernels[:, 0, 0, 0] = 1.0
    kernels[:, 1, :, 1] = 1.0
    kernels[:, 2, :, 2] = 1.0
    # action 1 leads to the good end with probability .1, or .9
    kernels[:, 0, 1, 1] = [0.1, 0.9]
    kernels[:, 0, 1, 2] = [0.9, 0.1]
    reward = np.array([[0.5, 0.5], [1.0, 1.0], [0.0, 0.0]])
    ladder = orl.Ladder([orl.FiniteFamily(kernels[:1]), orl.FiniteFamily(kernels)])
    return ladder, orl.FiniteMDP(transition=kernels[1], reward=reward, horizon=4)


def likelihood_lost(broken: bool, seed: int) -> bool:
    """Return whether the truth is not alive before some episode."""
    ladder, mdp = near_ladder()
    agent = orl.Occam(ladder=ladder, delta=sharp_level(broken), replan=0.0)
    same = np.isclose(ladder.family.probability(), mdp.kernel().ravel()).all(axis=1)
    truth = int(np.flatnonzero(same)[0])
    evidence = agent.evidence(mdp.known)
    assert isinstance(evidence, ListEvidence)  # noqa: S101  # of a ladder of lists
    for moment in moments(agent, mdp, seed):
        if not evidence.alive(moment.state["evidence"])[truth]:
            return True
    return False


def false_rejection(broken: bool, seed: int) -> bool:
    """Return whether the true class was left."""
    ladder, mdp = near_ladder()
    agent = orl.ARLGen(ladder=ladder, delta=sharp_level(broken))
    result = orl.run(agent, mdp, episodes=254, seed=seed, progress=False)
    return any(row["chosen"] > 2 for row in result.phase_rows)


def no_separability(broken: bool, seed: int) -> bool:
    """Return whether F_1 was left, or the play was optimal in the end."""
    ladder, mdp = blind()
    agent = orl.ARLGen(ladder=ladder, scope="all" if broken else "smallest")
    result = orl.run(agent, mdp, episodes=4_094, seed=seed, progress=False)
    return bool(result.phase_rows[-1]["chosen"] > 1 or result.regret[-1] < 1e-9)


def norm_too_small(broken: bool, seed: int) -> bool:
    """Return whether some norm bound was too small; broken: the norm of the estimate itself."""
    problem = ReferenceMixture()
    agent = orl.ARLLinNorm(features=orl.FeatureMap(problem.phi), norm_bound=20.0)
    result = orl.run(agent, problem, episodes=8_192, seed=seed, progress=False)
    norm = np.linalg.norm(problem.theta) - 1e-9
    # the first phase plays the bound that was given
    for row in result.phase_rows[1:]:
        bound = np.linalg.norm(row["estimate"]) if broken else row["norm_bound"]
        if bound < norm:
            return True
    return False


# Published figures --------------------------------------------------------------------------------


def wide_tree() -> orl.FiniteMDP:
    """Return the tree of Ayoub et al. 2020: 0 leads to 1 or 2, these to leaves; state 2 pays 1."""
    children = {0: (1, 2), 1: (3, 4), 2: (5, 6)}
    outcomes = []
    for s in range(7):
        reward = 1.0 if s == 2 else 0.0
        # leaves lead to themselves
        outcomes.append([[(1.0, child, reward)] for child in children.get(s, (s, s))])
    return orl.FiniteMDP(outcomes=outcomes, horizon=2)


PUBLISHED: dict[str, tuple[Callable[[], orl.FiniteMDP], float]] = {
    "RiverSwim, S = 3": (lambda: RiverSwim(states=3).mdp, 11_100.0),
    "RiverSwim, S = 5": (lambda: RiverSwim(states=5).mdp, 44_400.0),
    "WideTree": (wide_tree, 74.0),
}


def published(name: str, broken: bool, seed: int) -> float:
    """Return the realised regret of 10,000 episodes with the radius of Ayoub et al. 2020."""
    mdp = PUBLISHED[name][0]()
    K = 10_000
    features = orl.FeatureMap.tabular(states=mdp.states, actions=mdp.actions)
    bound = math.sqrt(mdp.states * mdp.actions)
    agent: orl.Learner = orl.paper.UCRLVTRLinAyoub(
        features=features, norm_bound=bound, delta=1.0 / K
    )
    if broken:
        agent = orl.UCRLVTRLin(features=features, norm_bound=bound, delta=1.0 / K, replan=0.0)
    result = orl.run(agent, mdp, episodes=K, seed=seed, progress=False)
    return K * mdp.optimal_value - result.total_return


def published_promise(name: str) -> Promise:
    """Return the promise that a published figure is reached."""
    reported = f"The realised regret of 10,000 episodes reported for {name}"
    return Promise(
        section="Published figures",
        text=f"{reported} is one of this learner's",
        source="Ayoub et al. 2020",
        bound=PUBLISHED[name][1],
        runs=10,
        control="the sharp learner",
        sample=lambda broken, seed: published(name, broken, seed),
        near=True,
    )


PROMISES: dict[str, Promise] = {
    **{f"coverage-{name}": confidence.coverage() for name, confidence in SETS.items()},
    "coverage-likelihood": Promise(
        section="Confidence sets",
        text="The likelihood never strikes off the true kernel, with probability 1 - delta",
        source="L2",
        bound=0.05,
        runs=1_000,
        control="no slack",
        sample=likelihood_lost,
    ),
    "optimism-finite-sharp": SETS["finite-sharp"].optimism(),
    "optimism-ellipsoid-sharp": SETS["ellipsoid-sharp"].optimism(),
    "optimism-ellipsoid-per-step": SETS["ellipsoid-per-step"].optimism(),
    "false-rejection": Promise(
        section="ARL-GEN",
        text="The true class is left in at most delta of runs",
        source="M25",
        bound=0.05,
        runs=1_000,
        control="no slack",
        sample=false_rejection,
    ),
    "no-separability": Promise(
        section="Where an assumption fails",
        text="Without separability F_1 is never rejected although it is wrong, and stays costly",
        source="assumption 1",
        bound=0.0,
        runs=50,
        control='optimism over all kernels that are left, `scope="all"`',
        sample=no_separability,
    ),
    "norm": Promise(
        section="ARL-LIN",
        text="No b^(i) is below the norm of theta*, in at least 1 - delta of runs",
        source="lemma 6; M19",
        bound=0.05,
        runs=200,
        control="the norm of the estimate itself",
        sample=norm_too_small,
    ),
    **{f"published-{name}": published_promise(name) for name in PUBLISHED},
}


# Measuring ----------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """What was measured of a promise."""

    text: str
    holds: bool


def measure(
    name: str,
    broken: bool,
    runs: int,
    *,
    say: Listener = lambda news: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[float]:
    """Return the samples of a promise; a task of the package's pool."""
    samples = []
    for seed in range(runs):
        if stop():
            raise Stopped(f"{name}: stopped after {seed} of {runs} runs")
        samples.append(float(PROMISES[name].sample(broken, seed)))
        say({"event": "progress"})
    return samples


def judged(promise: Promise, samples: Sequence[float]) -> Verdict:
    """Return what was measured in words, and whether it is compatible with the promise."""
    data = np.array(samples)
    if promise.near:
        return judged_figure(promise.bound, data)
    n = data.size
    failed = int(data.sum())
    low = 0.0
    high = 1.0
    if failed > 0:
        low = float(beta.ppf((1 - LEVEL) / 2, failed, n - failed + 1))
    if failed < n:
        high = float(beta.ppf((1 + LEVEL) / 2, failed + 1, n - failed))
    return Verdict(f"{failed:,} of {n:,} runs [{low:.3g}, {high:.3g}]", low <= promise.bound)


def judged_figure(figure: float, data: Floats) -> Verdict:
    """Return whether a published figure lies in the interval for one more run."""
    n = data.size
    mean = float(data.mean())
    deviation = data.std(ddof=min(1, n - 1))
    width = float(t.ppf(0.5 + LEVEL / 2, max(n - 1, 1)) * deviation * math.sqrt(1 + 1 / n))
    # published figures are rounded
    width = max(width, 0.02 * mean)
    low = mean - width
    high = mean + width
    return Verdict(f"{mean:,.0f} [{low:,.0f}, {high:,.0f}], {n} runs", low <= figure <= high)


def measure_all(names: list[str], quick: bool, workers: int) -> dict[tuple[str, bool], list[float]]:
    """Return the samples of promises and of their controls, measured side by side."""
    tasks: list[tuple[str, bool, int]] = []
    for name in names:
        runs = PROMISES[name].runs
        if quick:
            runs = max(4, runs // 10)
        tasks.append((name, False, runs))
        tasks.append((name, True, min(runs, 100)))
    samples: dict[tuple[str, bool], list[float]] = {}
    for i, event in Pool("studies.certificates:measure", workers).play(tasks):
        name, broken, _ = tasks[i]
        if event["event"] == "done":
            samples[name, broken] = event["result"]
            control = ", control" if broken else ""
            sys.stderr.write(f"{len(samples)} of {len(tasks)}: {name}{control}\n")
        elif event["event"] in ("failed", "stopped"):
            raise SystemExit(f"{name}: {event.get('trace', event['text'])}")
    return samples


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return how many promises are not kept, or have a control that passes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="those whose name contains this")
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--workers", type=int, default=processors())
    options = parser.parse_args(arguments)
    names = [name for name in PROMISES if options.only in name]
    samples = measure_all(names, options.quick, options.workers)
    wrong = 0
    sections: dict[str, list[tuple[str, ...]]] = {}
    for name in names:
        promise = PROMISES[name]
        verdict = judged(promise, samples[name, False])
        control = judged(promise, samples[name, True])
        if control.holds or not verdict.holds:
            wrong += 1
        row = (
            promise.text,
            promise.source,
            verdict.text,
            f"{promise.bound:,g}",
            VERDICT[verdict.holds],
            f"{promise.control}: {control.text}, {CONTROL[control.holds]}",
        )
        sections.setdefault(promise.section, []).append(row)
    header = ("promise", "source", "failures, interval", "bound", "verdict", "control")
    for section, rows in sections.items():
        print(f"## {section}\n\n{table(header, rows)}\n")
    print(f"{len(names) - wrong} of {len(names)} promises hold and have their control refuted.")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
