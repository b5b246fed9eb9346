"""Models that are off by at most a tolerance: what is ruled out, and how seldom falsely.

    python -m studies.tolerance validity --runs 200     truths just inside; controls
    python -m studies.tolerance power --runs 40         episodes until members outside fall
    python -m studies.tolerance off-by --runs 40        the proved bound beside the exact distance
    python -m studies.tolerance closed-form             the ratio beside a convex solver

Kernels are drawn at random: four states, two actions, six steps, actions at random. The truth is
within the tolerance of the first member at every step: *fixed*; *alternating* between two laws from
block to block; *hidden*, one of two laws for a whole episode; *adversarial*, moving the mass that
may move from the outcome with the least e-value to the one with the largest.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import cast

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, minimize
from scipy.stats import binomtest

import occamrl as orl
from occamrl.arrays import Floats
from occamrl.evidence.tolerance import huber_ratio
from occamrl.evidence.tolerant import Exact, TolerantEvidence
from occamrl.protocols import Known, State
from occamrl.running.flow import simulate

STATES, ACTIONS, HORIZON = 4, 2, 6
BLOCK = 5  # episodes that are weighed together
TOLERANCE = 0.05
KINDS = ("fixed", "alternating", "hidden", "adversarial")


def kernels_near(draw: np.random.Generator, members: int) -> Floats:
    """Return random kernels [n, S, A, S]."""
    return np.asarray(draw.dirichlet(np.full(STATES, 0.7), size=(members, STATES, ACTIONS)))


def moved(law: Floats, score: Floats, tolerance: float) -> Floats:
    """Return a kernel with mass moved to where a score is largest from where it is least."""
    shifted = law.copy()
    for s in range(STATES):
        for a in range(ACTIONS):
            order = np.argsort(score[s, a])
            best = order[-1]
            remaining = tolerance
            for outcome in order[:-1]:
                amount = min(remaining, shifted[s, a, outcome])
                shifted[s, a, outcome] -= amount
                shifted[s, a, best] += amount
                remaining -= amount
    return shifted


class Truth:
    """What happens: within the tolerance of a member at every step."""

    def __init__(self, kind: str, member: Floats, tolerance: float, draw: np.random.Generator):
        self.kind = kind
        self.member = member
        self.tolerance = tolerance
        self.draw = draw
        scores = draw.random((2, *member.shape))
        self.laws = [moved(member, score, tolerance) for score in scores]

    def laws_of_block(self, number: int, evidence: TolerantEvidence, state: State) -> list[Floats]:
        """Return the kernels of the episodes of a block [BLOCK]."""
        if self.kind == "fixed":
            return [self.laws[0]] * BLOCK
        if self.kind == "alternating":
            return [self.laws[number % 2]] * BLOCK
        if self.kind == "hidden":
            return [self.laws[int(self.draw.integers(2))] for _ in range(BLOCK)]
        law = np.full(self.member.shape, 1.0 / STATES)
        first = 0
        for row in state["bet_row"].tolist():
            s, a = divmod(row, ACTIONS)
            law[s, a] = state["bet_law"][first : first + STATES]
            first += STATES + 1
        return [
            moved(self.member, huber_ratio(law, self.member, self.tolerance), self.tolerance)
        ] * BLOCK


def known_of() -> Known:
    """Return what is known of the problems: no rewards."""
    return Known.of_sizes(states=STATES, actions=ACTIONS, horizon=HORIZON)


def looks(
    evidence: TolerantEvidence, truth: Truth, blocks: int, draw: np.random.Generator
) -> Iterator[tuple[int, State]]:
    """Feed blocks of a truth to the evidence; yield episodes and state now and then."""
    state = evidence.begin()
    policy = np.full((HORIZON, STATES, ACTIONS), 1.0 / ACTIONS)
    reward = np.zeros((STATES, ACTIONS))
    times = set(np.unique(np.geomspace(1, blocks, 12).astype(int)).tolist())
    for block in range(1, blocks + 1):
        for law in truth.laws_of_block(block, evidence, state):
            mdp = orl.FiniteMDP(transition=law, reward=reward, horizon=HORIZON)
            evidence.add(state, simulate(mdp, policy, 1, draw))
        if block in times:
            yield block * BLOCK, state


def evidence_about(members: Floats, delta: float) -> TolerantEvidence:
    """Return the evidence about a list of kernels."""
    ladder = orl.Ladder([orl.FiniteFamily(members)])
    return TolerantEvidence(cast(Exact, ladder.evidence(known_of(), delta)), 0.0)


def first_fall(
    evidence: TolerantEvidence,
    truth: Truth,
    blocks: int,
    draw: np.random.Generator,
    forgiven: float,
) -> int | None:
    """Return after how many episodes the first member is ruled out; None if it is not."""
    for episodes, state in looks(evidence, truth, blocks, draw):
        if evidence.weigh(state, forgiven).against[0] > evidence.threshold:
            return episodes
    return None


def false_rejections(
    kind: str, members: int, delta: float, runs: int, forgiven: float = TOLERANCE
) -> int:
    """Return in how many runs the member near the truth was ruled out at some time."""
    count = 0
    for seed in range(runs):
        draw = np.random.default_rng((seed, members))
        kernels = kernels_near(draw, members)
        truth = Truth(kind, kernels[0], TOLERANCE, draw)
        fall = first_fall(evidence_about(kernels, delta), truth, 60, draw, forgiven)
        count += fall is not None
    return count


def validity(runs: int) -> None:
    """Count false rejections, and those of controls that forgive less than the truth needs."""
    print(
        f"| truth within {TOLERANCE} | members | at .05 | p | at .5 | p | control, .05 forgiven 0 |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for kind in KINDS:
        for members in (5, 50):
            row = []
            for delta in (0.05, 0.5):
                count = false_rejections(kind, members, delta, runs)
                p = binomtest(count, runs, delta, alternative="greater").pvalue
                row += [f"{count} of {runs}", f"{p:.2g}"]
            control = false_rejections(kind, members, 0.05, max(runs // 5, 10), forgiven=0.0)
            row.append(f"{control} of {max(runs // 5, 10)}")
            print(f"| {kind} | {members} | {' | '.join(row)} |", flush=True)


def power(runs: int) -> None:
    """Print after how many episodes a member falls that is off by several times the tolerance."""
    print("| off by | tolerance 0 | tolerance .02 |")
    print("| --- | --- | --- |")
    for factor in (2, 3, 5):
        texts = []
        for forgiven in (0.0, 0.02):
            episodes = []
            for seed in range(runs):
                draw = np.random.default_rng(seed)
                member = kernels_near(draw, 1)
                truth = Truth("fixed", member[0], factor * 0.02, draw)
                fall = first_fall(evidence_about(member, 0.05), truth, 200, draw, forgiven)
                episodes.append(fall or 10**6)
            median = float(np.median(episodes))
            text = f"{median:,.0f}" if median < 10**6 else "not in 1,000"
            texts.append(f"{text} ({sum(one < 10**6 for one in episodes)} of {runs} fell)")
        print(f"| {factor} x .02 | {texts[0]} | {texts[1]} |", flush=True)


def off_by(runs: int) -> None:
    """Print the proved lower bound and the estimate beside the exact distance."""
    exceeded = 0
    print("| steps | exact distance | proved more than (median) | estimate (median) |")
    print("| --- | --- | --- | --- |")
    for blocks in (33, 333):
        bounds = []
        estimates = []
        for seed in range(runs):
            draw = np.random.default_rng(seed)
            member = kernels_near(draw, 1)
            evidence = evidence_about(member, 0.05)
            truth = Truth("fixed", member[0], 0.1, draw)
            distance = 0.5 * np.abs(truth.laws[0] - member[0]).sum(axis=2)
            kept = [state for _, state in looks(evidence, truth, blocks, draw)]
            wrong = evidence.off_by(kept[-1])
            bounds.append(wrong.more_than)
            estimates.append(wrong.estimate)
            exceeded += wrong.more_than > distance.max() + 1e-12
        print(
            f"| {blocks * BLOCK * HORIZON:,} | {distance.max():.3f} | {np.median(bounds):.4f} | "
            f"{np.median(estimates):.4f} |",
            flush=True,
        )
    print(f"\nThe bound exceeded the exact distance in {exceeded} of {2 * runs} runs.")


def closed_form(cases: int = 1_000) -> None:
    """Compare the ratio with a convex solver on random laws with zeros."""
    draw = np.random.default_rng(0)
    largest_gap = 0.0
    largest_mean = 0.0
    for _ in range(cases):
        size = int(draw.integers(2, 6))
        p, q = draw.dirichlet(np.full(size, 0.7), size=2)
        p = np.where(draw.random(size) < 0.2, 0.0, p)
        p = p / p.sum() if p.sum() else np.full(size, 1.0 / size)
        tolerance = float(draw.choice([0.01, 0.05, 0.2]))
        ratio = huber_ratio(q, p, tolerance)
        ours = float(q @ np.log(q / ratio))

        # the ball as linear constraints: p + up - down, sums of up and down at most the tolerance
        def loss(parts: Floats, q: Floats = q, p: Floats = p, size: int = size) -> float:
            law = p + parts[:size] - parts[size:]
            return -float(q @ np.log(np.maximum(law, 1e-12)))

        solved = minimize(
            loss,
            np.concatenate([np.full(size, tolerance / size), tolerance * p]),
            bounds=Bounds(np.zeros(2 * size), np.append(np.ones(size), p)),
            constraints=[
                LinearConstraint(np.repeat([1.0, 0.0], size), 0.0, tolerance),
                LinearConstraint(np.repeat([1.0, -1.0], size), 0.0, 0.0),
            ],
            method="SLSQP",
            options={"maxiter": 400, "ftol": 1e-12},
        )
        largest_gap = max(largest_gap, -solved.fun - ours)
        # the largest mean of e over the ball moves mass from the least e on
        mass = p.copy()
        remaining = tolerance
        for outcome in np.argsort(ratio)[:-1]:
            amount = min(remaining, mass[outcome])
            mass[outcome] -= amount
            mass[np.argmax(ratio)] += amount
            remaining -= amount
        largest_mean = max(largest_mean, float(mass @ ratio))
    print(f"{cases} cases: a solver finds at most {largest_gap:.1e} nats more")
    print(f"the largest mean of e over the ball, at most: {largest_mean:.12f}")


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("validity", "power", "off-by", "closed-form"))
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    began = time.perf_counter()
    if options.part == "closed-form":
        closed_form()
    else:
        {"validity": validity, "power": power, "off-by": off_by}[options.part](options.runs)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
