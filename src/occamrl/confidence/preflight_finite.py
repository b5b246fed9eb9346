"""Preflight of a ladder of finite classes (M26): blind pairs by trying kernels.

See :mod:`occamrl.confidence.preflight`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from occamrl.confidence.preflight_report import BlindPair, Preflight, Search
from occamrl.contracts import Floats, Known, Outcomes
from occamrl.families.ladder import Ladder
from occamrl.families.off_grid import level
from occamrl.kernels.bellman import backup, optimal_policy, optimal_values
from occamrl.kernels.compile import compiled
from occamrl.kernels.features import fill_target
from occamrl.seeding import stream

SHARE = 0.01  # of what is at stake: losing less is not much
# A class is rejected once its nearest kernel is 2.91 log(|F_M|/delta) away (M15). On a cover with the term E of
# off_grid: by M21, (1 - c/2) L(P*, P) > (1/c + 1/2) log(2|F_M|/delta) + 2 E with c = 0.83, where the first is 2.91.
REJECTION = 2.91
_OFF_GRID = 2.0 / (1.0 - 0.83 / 2.0)


def finite_preflight(ladder: Ladder, known: Known, search: Search) -> Preflight:
    """Try kernels P of each class against kernels Q outside it."""
    episodes, delta, start, truths, members, least_loss, seed = search
    family, draw = ladder.family, stream(seed, "preflight")
    values, outcomes = family.optimal_values(known), family.features.attach(known).outcomes
    base, noise = known.base_reward.flatten(), math.log(family.size / level(ladder.grid, delta))
    rows = known.horizon if outcomes.bonus.any() else known.horizon - 1
    hidden = 0.5 * ladder.grid**2 * rows  # what the term grows by in an episode
    needed = REJECTION * noise + (_OFF_GRID * 0.5 * math.log(2.0 / delta) if ladder.grid else 0.0)
    samples = [(_sample(draw, 0, n, members), _sample(draw, n, family.size, truths)) for n in ladder.sizes[:-1]]
    much = least_loss
    if much is None:
        tries = sorted({int(q) for _, outside in samples for q in outside})
        stakes = [stake(outcomes, _kernels(family, np.array([q])), base, values[q], start) for q in tries]
        much = SHARE * max(stakes, default=0.0)
    blind: list[BlindPair] = []
    typical: list[float] = []
    tried = 0
    for m, (inside, outside) in enumerate(samples, start=1):
        # Of the class, the kernels nearest to being believed count: all of it if it is small.
        rivals = _kernels(family, inside)
        times = []
        for p in inside:
            policy = optimal_policy(outcomes, _kernels(family, np.array([p])), base, values[p])
            for q in outside:
                truth = _kernels(family, np.array([q]))
                loss = float(values[q, 0, start]) - float(policy_value(outcomes, truth[0], base, policy, start))
                distances = _distances(outcomes, truth[0], rivals, policy, values[p], start)
                rate = float(distances.min())
                clear = rate - _OFF_GRID * hidden
                time = needed / clear if clear > 1e-12 else math.inf
                times.append(time)
                tried += 1
                if loss > much and time > episodes and distances[np.flatnonzero(inside == p)[0]] <= rate + 1e-12:
                    blind.append(BlindPair(m, int(p), int(q), int(ladder.level[q]) + 1, loss, time))
        typical.append(float(np.median(times)))
    worst = max((pair.loss_per_episode for pair in blind), default=0.0)
    remedy = "safe" if blind else "none"
    grid_episodes = 0.5 * noise / hidden if hidden > 0.0 else math.inf
    return Preflight(
        ladder.sizes,
        episodes,
        delta,
        tried,
        blind,
        worst,
        typical,
        remedy,
        grid=ladder.grid,
        grid_episodes=grid_episodes,
    )


def stake(outcomes: Outcomes, kernel: Floats, base: Floats, values: Floats, start: int) -> float:
    """Return how much more the best policy earns than the worst under a kernel [1, O] with optimal ``values``.

    Whatever is added to all rewards cancels out, so that costs turned into rewards count as what they are.
    """
    horizon, states = values.shape[0] - 1, values.shape[1]
    mirrored = outcomes._replace(bonus=-outcomes.bonus)
    return float(values[0, start] + optimal_values(mirrored, kernel, -base, states, horizon)[0, start])


def _sample(draw: np.random.Generator, first: int, last: int, most: int) -> Any:
    if last - first <= most:
        return np.arange(first, last)
    return np.sort(first + draw.choice(last - first, most, replace=False))


def _kernels(family: Any, members: Any) -> Floats:
    return np.ascontiguousarray(family.take(members).probabilities().T)


@compiled
def policy_value(outcomes: Outcomes, kernel: Floats, base: Floats, policy: Any, start: int) -> float:
    """Return V^pi_1(start) under a kernel [O]."""
    horizon, states = policy.shape
    actions = base.size // states
    values = np.zeros((horizon + 1, states))
    for h in range(horizon - 1, -1, -1):
        for s in range(states):
            values[h, s] = backup(outcomes, kernel, base, s * actions + policy[h, s], values[h + 1])
    return float(values[0, start])


@compiled
def _distances(outcomes: Outcomes, truth: Floats, rivals: Floats, policy: Any, values: Floats, start: int) -> Floats:
    """Return, per rival [n, O], the expected sum over an episode of ((P - P*) V)^2 / R^2 (M2 on weighted rows, M23).

    Episodes follow ``policy`` under the truth; the targets are the ``values`` the policy was planned with.
    """
    horizon, states = policy.shape
    actions = (outcomes.start.size - 1) // states
    target = np.empty(np.diff(outcomes.start).max())
    reach, after = np.zeros(states), np.zeros(states)
    reach[start] = 1.0
    total = np.zeros(rivals.shape[0])
    for h in range(horizon):
        after[:] = 0.0
        for s in range(states):
            if reach[s] == 0.0:
                continue
            sa = s * actions + policy[h, s]
            first, last = outcomes.start[sa], outcomes.start[sa + 1]
            low, high = fill_target(outcomes, sa, values[h + 1], target)
            for o in range(first, last):
                after[outcomes.next_state[o]] += reach[s] * truth[o]
            if high <= low:
                continue
            for i in range(rivals.shape[0]):
                gap = 0.0
                for o in range(first, last):
                    gap += (rivals[i, o] - truth[o]) * target[o - first]
                total[i] += reach[s] * (gap / (high - low)) ** 2
        reach[:] = after
    return total
