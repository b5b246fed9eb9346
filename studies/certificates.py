"""Certificates: the promises of docs/mathematics.md, measured, each beside a version that is broken on purpose.

    python -m studies.certificates              the table, 1,000 runs of most promises (some
    minutes) python -m studies.certificates --quick      the same with a tenth of the runs python -m
    studies.certificates --only optimism

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
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import beta, t

import occamrl as orl
from occamrl.addresses import generator
from occamrl.errors import Stopped
from occamrl.evidence import value
from occamrl.experiments.pool import Pool, processors
from occamrl.paper.ucrl_vtr import UCRLVTR
from occamrl.problems.classic import RiverSwim
from occamrl.problems.mixtures import ReferenceMixture
from occamrl.running.flow import simulate
from studies.figures import table

EPISODES, LEVEL = 40, 0.998
MEMBERS = (0, 3, 5, 2, 6, 1)  # of near_truth: the kernels of the steps


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


PROMISES: dict[str, Promise] = {}


def promise(name: str, *about: Any, near: bool = False) -> Callable[[Any], Any]:
    """Enter a function among the promises."""

    def enter(sample: Any) -> Any:
        PROMISES[name] = Promise._make((*about, sample, near))
        return sample

    return enter


class Moment(NamedTuple):
    """An episode: the state that it was planned with, and whether its plan was below the optimum."""

    state: Any
    pessimistic: bool


def moments(agent: Any, mdp: Any, seed: int, episodes: int = EPISODES) -> Iterator[Moment]:
    """Play episode by episode; the state is as it was when the episode was planned."""
    known, best, state = mdp.known, mdp.optimal_values[0], agent.begin(mdp.known)
    for k in range(episodes):
        plan = agent.plan(known, state, generator(seed, "agent", k))
        flow = simulate(mdp, plan.policy, 1, generator(seed, "environment", k))
        start = int(flow.state[flow.step == 0][0])
        yield Moment(state, plan.values is not None and plan.values[0, start] < best[start] - 1e-9)
        agent.learn(known, state, plan, flow)


# Confidence sets, and optimism while they hold the truth ------------------------------------------


class Case(NamedTuple):
    """A learner that plans before every episode, its problem, and whether the set of a state holds the truth."""

    agent: Any
    mdp: Any
    covers: Callable[[Any], bool]

    def lost(self, seed: int) -> bool:
        """Say whether the truth was outside before some episode."""
        return not all(self.covers(each.state) for each in moments(self.agent, self.mdp, seed))

    def pessimistic(self, seed: int, broken: bool) -> bool:
        """Say whether some plan was below the optimum although the set held the truth; broken: whatever it held."""
        played = moments(self.agent, self.mdp, seed)
        return any(each.pessimistic and (broken or self.covers(each.state)) for each in played)


@cache
def near_truth() -> tuple[Any, Any]:
    """Return eight kernels of which the data speak against the first, the truth, now and then; and rewards."""
    draw = np.random.default_rng([2, 8])
    kernels = draw.dirichlet(np.ones(3), size=(8, 3, 2))
    return 0.7 * kernels[0] + 0.3 * kernels, draw.random((3, 2))


@cache
def finite(kind: str, broken: bool) -> Case:
    """Return UCRL-VTR on kernels that are hard to tell apart."""
    kernels, reward = near_truth()
    truths = MEMBERS if kind == "per step" else (0,)
    transition = kernels[list(truths)] if kind == "per step" else kernels[0]
    mdp = orl.FiniteMDP(transition=transition, reward=reward, horizon=6)
    family, delta = orl.FiniteFamily(kernels), 0.999 if broken else 0.05
    if kind == "paper":
        agent: Any = (SmallBall if broken else orl.paper.UCRLVTR)(family=family)
        return Case(agent, mdp, lambda state: bool(agent.confidence_set(mdp.known, state)[0]))
    more: dict[str, Any] = {"kernel": "per_step"} if kind == "per step" else {}
    if kind == "prior":
        more["prior"] = np.array([0.01, *[0.99 / 7] * 7])
    sharp = orl.UCRLVTR(family=family, delta=delta, replan=0.0, **more)
    return Case(
        sharp,
        mdp,
        lambda state: bool(sharp.confidence_set(state)[range(len(truths)), list(truths)].all()),
    )


class SmallBall(UCRLVTR):
    """The paper's ball with a 50,000th of its radius."""

    def beta(self, horizon: int) -> float:
        """Return too small a radius."""
        return 2e-5 * super().beta(horizon)


@cache
def linear(kind: str, broken: bool) -> Case:
    """Return UCRL-VTR-LIN on a mixture of three kernels, delta = 0.3."""
    draw = np.random.default_rng([1, 7])
    kernels = draw.dirichlet(np.ones(4), size=(3, 4, 2))
    phi = np.ascontiguousarray(np.moveaxis(kernels, 0, -1))
    thetas, reward = draw.dirichlet(np.ones(3))[None], draw.random((4, 2))
    more: dict[str, Any] = {"initial_state": [0.5, 0.0, 0.0, 0.5]}
    if kind == "per step":
        thetas, more = np.random.default_rng(2).dirichlet(np.ones(3), size=4), {}
    transition = (
        np.stack([phi @ theta for theta in thetas]) if kind == "per step" else phi @ thetas[0]
    )
    rewards = kind in ("hoeffding", "bernstein")
    mdp = orl.FiniteMDP(
        transition=transition,
        reward=reward,
        horizon=4,
        reward_noise="bernoulli" if rewards else None,
        **more,
    )
    bound, features = float(np.linalg.norm(thetas, axis=1).max()), orl.FeatureMap(phi)
    if kind == "paper":
        scale = 2.5e-5 if broken else 1.0
        paper: Any = orl.paper.UCRLVTRLin(
            features=features, norm_bound=bound, delta=0.3, paper_constant=scale
        )

        def in_ball(state: Any) -> bool:
            error = paper.estimate(state) - thetas[0]
            return bool(error @ state["sigma"] @ error <= paper.width(4, 1, state) ** 2)

        return Case(paper, mdp, in_ball)
    scale = 0.05 if broken and not rewards else 1.0
    kernel: Any = "per_step" if kind == "per step" else "stationary"
    delta = 0.03 if rewards else 0.3
    own: dict[str, Any] = {
        "features": features,
        "norm_bound": bound,
        "delta": delta,
        "scale": scale,
    }
    agent = orl.UCRLVTRLin(**own, replan=0.0, kernel=kernel)

    def in_ellipsoids(state: Any) -> bool:
        found = value.ridge(state["gram"], state["xy"], agent.lam)
        errors = found.theta[:, 0] - thetas
        sigma = state["gram"][:, 0] + agent.lam * np.eye(3)
        distance = np.einsum("ti,tij,tj->t", errors, sigma, errors)
        logdet = found.logdet.sum(axis=1)
        widths = value.squared_radius(
            logdet, agent.delta / len(thetas), agent.lam, agent.norm_bound
        )
        return bool((distance <= agent.scale**2 * widths).all())

    if not rewards:
        return Case(agent, mdp, in_ellipsoids)
    options: dict[str, Any] = {
        "agent": agent,
        "delta": 0.3,
        "share": 0.9,
        "scale": 0.05 if broken else 1.0,
    }
    outer = orl.RewardsPerPair(**options, bound="hoeffding" if kind == "hoeffding" else "bernstein")

    def below(state: Any) -> bool:
        upper = np.minimum(outer.upper_bounds(state), 1.0).ravel()
        return bool((upper >= reward.ravel() - 1e-12).all())

    return Case(outer, mdp, below)


SETS: dict[str, tuple[str, str, Callable[[str, bool], Case], str, float, str]] = {
    "finite-paper": (
        "the paper's ball of a finite family",
        "M4, M6",
        finite,
        "paper",
        0.05,
        "a 50,000th of beta",
    ),
    "finite-sharp": ("the sharp set of a finite family", "M24", finite, "sharp", 0.05, "no slack"),
    "finite-prior": (
        "the sharp set, its prior against the truth",
        "M22, M24",
        finite,
        "prior",
        0.05,
        "no slack",
    ),
    "finite-per-step": (
        "one sharp set per step",
        "M24, per step",
        finite,
        "per step",
        0.05,
        "no slack",
    ),
    "ellipsoid-paper": (
        "the paper's ellipsoid",
        "M10",
        linear,
        "paper",
        0.3,
        "a 200th of the radius",
    ),
    "ellipsoid-sharp": (
        "the sharp ellipsoid",
        "M11",
        linear,
        "sharp",
        0.3,
        "a twentieth of the width",
    ),
    "ellipsoid-per-step": (
        "one ellipsoid per step",
        "M11",
        linear,
        "per step",
        0.3,
        "a twentieth of the width",
    ),
    "rewards-hoeffding": (
        "Hoeffding's bounds of rewards",
        "rewards",
        linear,
        "hoeffding",
        0.3,
        "a twentieth",
    ),
    "rewards-bernstein": (
        "Bernstein's bounds of rewards",
        "rewards",
        linear,
        "bernstein",
        0.3,
        "a twentieth",
    ),
}
for _name, (_what, _source, _make, _kind, _bound, _control) in SETS.items():
    promise(
        f"coverage-{_name}",
        "Confidence sets",
        f"The truth stays in {_what} in all of {EPISODES} episodes with probability 1 - delta",
        _source,
        _bound,
        1_000,
        _control,
    )(lambda broken, seed, make=_make, kind=_kind: make(kind, broken).lost(seed))
    if _name in ("finite-sharp", "ellipsoid-sharp", "ellipsoid-per-step"):
        promise(
            f"optimism-{_name}",
            "Optimism",
            f"No plan is below the optimum while {_what} holds the truth",
            "M5, M9",
            0.0,
            400,
            "whether the set of the control holds it or not",
        )(lambda broken, seed, make=_make, kind=_kind: make(kind, broken).pessimistic(seed, broken))


@promise("coverage-likelihood", "Confidence sets", "The likelihood never strikes off the true kernel, with probability "
         "1 - delta", "L2", 0.05, 1_000, "no slack")  # fmt: skip
def likelihood(broken: bool, seed: int) -> bool:
    """Return whether the truth is not alive before some episode."""
    ladder, mdp = near_ladder()
    agent = orl.Occam(ladder=ladder, delta=0.999 if broken else 0.05, replan=0.0)
    truth = int(
        np.flatnonzero(np.isclose(ladder.family.probability(), mdp.kernel().ravel()).all(axis=1))[0]
    )
    by: Any = agent.evidence(mdp.known)
    return not all(by.alive(each.state["evidence"])[truth] for each in moments(agent, mdp, seed))


# Selection ----------------------------------------------------------------------------------------


@cache
def near_ladder() -> tuple[orl.Ladder, Any]:
    """Return a ladder of kernels that are hard to tell apart, m* = 2, and its problem."""
    kernels, reward = near_truth()
    classes: list[list[int]] = [[7], [7, 0, 3], list(range(8))]
    ladder = orl.Ladder([orl.FiniteFamily(kernels[members]) for members in classes])
    return ladder, orl.FiniteMDP(transition=kernels[0], reward=reward, horizon=6)


@cache
def blind() -> tuple[orl.Ladder, Any]:
    """Return a ladder whose smallest class is wrong only where its own policy never goes: no separability."""
    kernels = np.zeros((2, 3, 2, 3))
    kernels[:, 0, 0, 0] = kernels[:, 1, :, 1] = kernels[:, 2, :, 2] = 1.0
    kernels[:, 0, 1, 1], kernels[:, 0, 1, 2] = [0.1, 0.9], [0.9, 0.1]
    reward = np.array([[0.5, 0.5], [1.0, 1.0], [0.0, 0.0]])
    ladder = orl.Ladder([orl.FiniteFamily(kernels[:1]), orl.FiniteFamily(kernels)])
    return ladder, orl.FiniteMDP(transition=kernels[1], reward=reward, horizon=4)


def chosen(agent: Any, mdp: Any, episodes: int, seed: int) -> list[dict[str, Any]]:
    """Return the phases of a run."""
    return orl.run(agent, mdp, episodes=episodes, seed=seed, progress=False).phase_rows


@promise(
    "false-rejection",
    "ARL-GEN",
    "The true class is left in at most delta of runs",
    "M25",
    0.05,
    1_000,
    "no slack",
)
def false_rejection(broken: bool, seed: int) -> bool:
    """Return whether the true class was left."""
    ladder, mdp = near_ladder()
    agent = orl.ARLGen(ladder=ladder, delta=0.999 if broken else 0.05)
    return bool(max(row["chosen"] for row in chosen(agent, mdp, 254, seed)) > 2)


@promise("no-separability", "Where an assumption fails", "Without separability F_1 is never rejected although it is "
         "wrong, and stays costly", "assumption 1", 0.0, 50,
         'optimism over all kernels that are left, `scope="all"`')  # fmt: skip
def no_separability(broken: bool, seed: int) -> bool:
    """Return whether F_1 was left, or the play was optimal in the end."""
    ladder, mdp = blind()
    agent = orl.ARLGen(ladder=ladder, scope="all" if broken else "smallest")
    result = orl.run(agent, mdp, episodes=4_094, seed=seed, progress=False)
    return bool(result.phase_rows[-1]["chosen"] > 1 or result.regret[-1] < 1e-9)


@promise("norm", "ARL-LIN", "No b^(i) is below the norm of theta*, in at least 1 - delta of runs", "lemma 6; M19", 0.05,
         200, "the norm of the estimate itself")  # fmt: skip
def norm(broken: bool, seed: int) -> bool:
    """Return whether some bound was too small."""
    problem, features = reference()
    rows = chosen(orl.ARLLinNorm(features=features, norm_bound=20.0), problem, 8_192, seed)
    bounds = [np.linalg.norm(row["estimate"]) if broken else row["norm_bound"] for row in rows[1:]]
    return bool(min(bounds) < np.linalg.norm(problem.theta) - 1e-9)


@cache
def reference() -> tuple[Any, orl.FeatureMap]:
    """Return the reference mixture and its features."""
    problem = ReferenceMixture()
    return problem, orl.FeatureMap(problem.phi)


# Published figures --------------------------------------------------------------------------------


def wide_tree() -> orl.FiniteMDP:
    """Return the tree of Ayoub et al. 2020: state 0 leads to 1 or 2, these to leaves; being in state 2 pays 1."""
    rows = [
        [(1, 0.0), (2, 0.0)],
        [(3, 0.0), (4, 0.0)],
        [(5, 1.0), (6, 1.0)],
        *([(s, 0.0)] * 2 for s in range(3, 7)),
    ]
    return orl.FiniteMDP(outcomes=[[[(1.0, *each)] for each in row] for row in rows], horizon=2)


def published(broken: bool, seed: int, mdp: orl.FiniteMDP) -> float:
    """Return the realised regret of 10,000 episodes with the radius of Ayoub et al. 2020."""
    S, A, K = mdp.states, mdp.actions, 10_000
    common: dict[str, Any] = {"norm_bound": math.sqrt(S * A), "delta": 1.0 / K}
    features = orl.FeatureMap.tabular(states=S, actions=A)
    agent: Any = orl.paper.UCRLVTRLin(features=features, radius="ayoub", **common)
    if broken:
        agent = orl.UCRLVTRLin(features=features, replan=0.0, **common)
    return (
        K * mdp.optimal_value
        - orl.run(agent, mdp, episodes=K, seed=seed, progress=False).total_return
    )


for _name, _mdp, _figure in (
    ("RiverSwim, S = 3", RiverSwim(states=3).mdp, 11_100.0),
    ("RiverSwim, S = 5", RiverSwim(states=5).mdp, 44_400.0),
    ("WideTree", wide_tree(), 74.0),
):
    promise(
        f"published-{_name}",
        "Published figures",
        f"The realised regret of 10,000 episodes reported for {_name} is one of this learner's",
        "Ayoub et al. 2020",
        _figure,
        10,
        "the sharp learner",
        near=True,
    )(lambda broken, seed, mdp=_mdp: published(broken, seed, mdp))


# Measuring ----------------------------------------------------------------------------------------


def measure(
    name: str, broken: bool, runs: int, *, say: Any = lambda news: None, stop: Any = None
) -> list[float]:
    """Return the samples of a promise; a task of the package's pool."""
    found = []
    for seed in range(runs):
        if stop is not None and stop():
            raise Stopped(f"{name}: stopped after {seed} of {runs} runs")
        found.append(float(PROMISES[name].sample(broken, seed)))
        say({"event": "progress"})
    return found


def judged(about: Promise, samples: Sequence[float]) -> tuple[str, bool]:
    """Return what was measured in words, and whether it is compatible with the promise."""
    n, data = len(samples), np.array(samples)
    if about.near:  # an interval for one more run
        mean = float(data.mean())
        more = float(
            t.ppf(0.5 + LEVEL / 2, max(n - 1, 1))
            * data.std(ddof=1 if n > 1 else 0)
            * math.sqrt(1 + 1 / n)
        )
        more = max(more, 0.02 * mean)
        low, high = mean - more, mean + more
        return f"{mean:,.0f} [{low:,.0f}, {high:,.0f}], {n} runs", low <= about.bound <= high
    failed = int(data.sum())
    low = float(beta.ppf((1 - LEVEL) / 2, failed, n - failed + 1)) if failed else 0.0
    high = float(beta.ppf((1 + LEVEL) / 2, failed + 1, n - failed)) if failed < n else 1.0
    return f"{failed:,} of {n:,} runs [{low:.3g}, {high:.3g}]", low <= about.bound


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return how many promises are not kept, or have a control that is not refuted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="those whose name contains this")
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--workers", type=int, default=processors())
    given = parser.parse_args(arguments)
    names = [name for name in PROMISES if given.only in name]
    tasks: list[tuple[str, bool, int]] = []
    for name in names:
        runs = max(4, PROMISES[name].runs // (10 if given.quick else 1))
        tasks += [(name, False, runs), (name, True, min(runs, 100))]
    samples: dict[tuple[str, bool], list[float]] = {}
    for i, event in Pool("studies.certificates:measure", given.workers).play(tasks):
        name, broken, _ = tasks[i]
        if event["event"] == "done":
            samples[name, broken] = event["result"]
            sys.stderr.write(
                f"{len(samples)} of {len(tasks)}: {name}{', control' if broken else ''}\n"
            )
        elif event["event"] in ("failed", "stopped"):
            sys.stderr.write(f"{name}: {event.get('trace', event['text'])}\n")
            return 1
    wrong, text = 0, []
    for section in dict.fromkeys(PROMISES[name].section for name in names):
        rows = []
        for name in (name for name in names if PROMISES[name].section == section):
            about = PROMISES[name]
            (said, holds), (control, passes) = (
                judged(about, samples[name, broken]) for broken in (False, True)
            )
            wrong += not holds or passes
            verdict = f"{about.control}: {control}, {'NOT refuted' if passes else 'refuted'}"
            rows.append(
                (
                    about.text,
                    about.source,
                    said,
                    f"{about.bound:,g}",
                    "holds" if holds else "REFUTED",
                    verdict,
                )
            )
        header = ("promise", "source", "failures, interval", "bound", "verdict", "control")
        text.append(f"## {section}\n\n" + table(header, rows))
    print("\n\n".join(text))
    print(f"\n{len(names) - wrong} of {len(names)} promises hold and have their control refuted.")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
