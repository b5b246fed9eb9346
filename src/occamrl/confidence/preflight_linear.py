"""Preflight of a ladder whose largest class is linear or an aggregation (M26): kernels are drawn from each class.

For a kernel P of class m and a truth Q, the expected rows of an episode of P's optimal policy under Q have the Gram
matrix G = E sum x x^T in the largest class. The distance of class m from Q is then a least-squares problem,
min over F_m of (theta - theta_Q)^T G (theta - theta_Q), and class m is rejected after about n episodes where n times
this distance passes (1/4)(logdet(I + n G) + 2 log(1/delta)) (M15 with lambda = 1).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from occamrl.confidence.preflight_policies import much, policy_value, stake, visits
from occamrl.confidence.preflight_report import BlindPair, Preflight, Search
from occamrl.contracts import Floats, Known
from occamrl.families.linear_ladder import LinearLadder, describe
from occamrl.families.regression import weighted
from occamrl.kernels.bellman import optimal_policy, optimal_values
from occamrl.seeding import stream


def linear_preflight(ladder: LinearLadder, known: Known, search: Search) -> Preflight:
    """Try kernels drawn from each class against kernels drawn from the larger ones.

    A pair is blind if, besides, the kernel itself would not be contradicted in that many episodes. ``member`` and
    ``truth`` of a blind pair count the kernels drawn from their classes.
    """
    episodes, delta, start, truths, members, least_loss, seed = search
    draw, outcomes = stream(seed, "preflight"), ladder.features.attach(known).outcomes
    base = known.base_reward.flatten()
    drawn = [_parameters(ladder, m, draw, max(truths, members)) for m in range(1, ladder.classes + 1)]

    def solved(theta: Floats) -> tuple[Floats, Floats]:
        kernel = np.ascontiguousarray(ladder.features.probabilities(theta))[None]
        return kernel, optimal_values(outcomes, kernel, base, known.states, known.horizon)

    if least_loss is None:
        every = (solved(theta) for parameters in drawn[1:] for theta in parameters)
        least_loss = much(stake(outcomes, kernel, base, values, start) for kernel, values in every)
    blind: list[BlindPair] = []
    typical, tried = [], 0
    for m in range(1, ladder.classes):
        times = []
        for i, theta in enumerate(drawn[m - 1][:members]):
            kernel, values = solved(theta)
            policy = optimal_policy(outcomes, kernel, base, values)
            x = _rows(ladder, known, policy, values)
            for m2 in range(m + 1, ladder.classes + 1):
                for j, other in enumerate(drawn[m2 - 1][: max(1, truths // (ladder.classes - m))]):
                    truth, best = solved(other)
                    loss = float(best[0, start]) - policy_value(outcomes, truth, base, policy, start)
                    gram = (x.T * visits(outcomes, truth, policy, start).ravel()) @ x
                    time, own = _rejection(ladder, m, gram, theta - other, other, delta)
                    times.append(time)
                    tried += 1
                    if loss > least_loss and time > episodes and own > episodes:
                        blind.append(BlindPair(m, i, j, m2, loss, time))
        typical.append(float(np.median(times)) if times else math.inf)
    return Preflight(
        [len(each) for each in drawn],
        episodes,
        delta,
        tried,
        blind,
        typical,
        remedy="guard" if blind else "none",
        classes=[describe(rung) for rung in ladder.rungs],
    )


def _parameters(ladder: LinearLadder, m: int, draw: np.random.Generator, count: int) -> list[Floats]:
    """Return kernels of a class as parameters of the largest."""
    rung, found = ladder.rung(m), []
    for member in rung.members(draw, count):
        theta = ladder.rungs[-1].member_of(rung.kernel(member))
        if theta is not None:
            found.append(theta)
    return found


def _rows(ladder: LinearLadder, known: Known, policy: Any, values: Floats) -> Floats:
    """Return the range-weighted row x of every (h, s) under a plan [H*S, d]."""
    pairs = np.arange(known.states) * known.actions + policy  # [H, S]
    return np.concatenate([weighted(ladder.features, known, pairs[h], values[h + 1]).x for h in range(known.horizon)])


def _rejection(
    ladder: LinearLadder, m: int, gram: Floats, gap: Floats, truth: Floats, delta: float
) -> tuple[float, float]:
    """Return after how many episodes the class, and the kernel in play alone, are contradicted."""
    blocks = ladder.features.blocks
    parts = [slice(int(a), int(a + n)) for a, n in zip(blocks.vector_start[:-1], blocks.size, strict=True)]
    packed = np.concatenate([gram[part, part].ravel() for part in parts])
    of_class = ladder.smallest_loss(m, packed, gram @ truth) + float(truth @ gram @ truth)
    eigen = np.maximum(np.linalg.eigvalsh(gram), 0.0)
    return _episodes(of_class, eigen, delta), _episodes(float(gap @ gram @ gap), eigen, delta)


def _episodes(rate: float, eigen: Floats, delta: float) -> float:
    """Return the smallest n with n rate >= (1/4)(logdet(I + n G) + 2 log(1/delta))."""
    if rate <= 1e-12:
        return math.inf
    low, high = 0.0, 1.0

    def enough(n: float) -> bool:
        return bool(n * rate >= 0.25 * (np.log1p(n * eigen).sum() + 2.0 * math.log(1.0 / delta)))

    while not enough(high):
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
