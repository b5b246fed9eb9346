"""Preflight of a ladder of finite classes (M26): blind pairs by trying kernels.

See :mod:`occamrl.confidence.preflight`.
"""

from __future__ import annotations

import math

import numpy as np

from occamrl.confidence.preflight_policies import much, policy_value, stake, visits
from occamrl.confidence.preflight_report import BlindPair, Preflight, Search
from occamrl.contracts import Floats, Ints, Known, Outcomes
from occamrl.families.finite import FiniteFamily
from occamrl.families.ladder import Ladder
from occamrl.families.off_grid import level
from occamrl.kernels.bellman import optimal_policy
from occamrl.kernels.compile import compiled
from occamrl.kernels.features import fill_target
from occamrl.seeding import stream

# A class is rejected once its nearest kernel is 2.91 log(|F_M|/delta) away (M15). On a cover with the term E of
# off_grid: by M21, (1 - c/2) L(P*, P) > (1/c + 1/2) log(2|F_M|/delta) + 2 E with c = 0.83, where the first is 2.91.
_REJECTION = 2.91
_OFF_GRID = 2.0 / (1.0 - 0.83 / 2.0)


def finite_preflight(ladder: Ladder, known: Known, search: Search) -> Preflight:
    """Try kernels P of each class against kernels Q outside it."""
    episodes, delta, start, truths, members, least_loss, seed = search
    family, draw = ladder.family, stream(seed, "preflight")
    values, outcomes = family.optimal_values(known), family.features.attach(known).outcomes
    base, noise = known.base_reward.flatten(), math.log(family.size / level(ladder.grid, delta))
    rows = known.horizon if outcomes.bonus.any() else known.horizon - 1
    hidden = 0.5 * ladder.grid**2 * rows  # what the term grows by in an episode
    needed = _REJECTION * noise + (_OFF_GRID * 0.5 * math.log(2.0 / delta) if ladder.grid else 0.0)
    samples = [(_sample(draw, 0, n, members), _sample(draw, n, family.size, truths)) for n in ladder.sizes[:-1]]
    if least_loss is None:
        tries = sorted({int(q) for _, outside in samples for q in outside})
        least_loss = much(stake(outcomes, _kernels(family, [q])[0], base, values[q], start) for q in tries)
    blind: list[BlindPair] = []
    typical: list[float] = []
    tried = 0
    for m, (inside, outside) in enumerate(samples, start=1):
        rivals, others = _kernels(family, inside), _kernels(family, outside)
        times = []
        for i, p in enumerate(inside):
            policy = optimal_policy(outcomes, rivals[i], base, values[p])
            for q, truth in zip(outside, others, strict=True):
                loss = float(values[q, 0, start]) - policy_value(outcomes, truth, base, policy, start)
                reach = visits(outcomes, truth, policy, start)
                distances = _distances(outcomes, truth, rivals, policy, values[p], reach)
                rate = float(distances.min())
                clear = rate - _OFF_GRID * hidden
                time = needed / clear if clear > 1e-12 else math.inf
                times.append(time)
                tried += 1
                if loss > least_loss and time > episodes and distances[i] <= rate + 1e-12:
                    blind.append(BlindPair(m, int(p), int(q), int(ladder.level[q]) + 1, loss, time))
        typical.append(float(np.median(times)))
    return Preflight(
        ladder.sizes,
        episodes,
        delta,
        tried,
        blind,
        typical,
        remedy="safe" if blind else "none",
        grid=ladder.grid,
        grid_episodes=0.5 * noise / hidden if hidden > 0.0 else math.inf,
    )


def _sample(draw: np.random.Generator, first: int, last: int, most: int) -> Ints:
    if last - first <= most:
        return np.arange(first, last)
    return np.sort(first + draw.choice(last - first, most, replace=False))


def _kernels(family: FiniteFamily, members: Ints | list[int]) -> Floats:
    """Return some members, each as a kernel [1, O]: [n, 1, O]."""
    return np.ascontiguousarray(family.take(np.asarray(members)).probabilities().T[:, None])


@compiled
def _distances(
    outcomes: Outcomes, truth: Floats, rivals: Floats, policy: Ints, values: Floats, reach: Floats
) -> Floats:
    """Return, per rival [n, 1, O], the expected sum over an episode of ((P - P*) V)^2 / R^2 (M2 on weighted rows, M23).

    Episodes follow ``policy`` under the truth [1, O] and are in s at step h with probability ``reach``; the targets are
    the ``values`` the policy was planned with.
    """
    horizon, states = policy.shape
    actions = (outcomes.start.size - 1) // states
    target = np.empty(np.diff(outcomes.start).max())
    total = np.zeros(rivals.shape[0])
    for h in range(horizon):
        for s in range(states):
            if reach[h, s] == 0.0:
                continue
            sa = s * actions + policy[h, s]
            first, last = outcomes.start[sa], outcomes.start[sa + 1]
            low, high = fill_target(outcomes, sa, values[h + 1], target)
            if high <= low:
                continue
            for i in range(rivals.shape[0]):
                gap = 0.0
                for o in range(first, last):
                    gap += (rivals[i, 0, o] - truth[0, o]) * target[o - first]
                total[i] += reach[h, s] * (gap / (high - low)) ** 2
    return total
