"""UCRL-VTR-LIN with unknown rewards and one kernel per step, in plain NumPy: every plan from all rows, by definition.

Nothing is kept between plans but the transitions and rewards seen. Range-weighted rows, the sharp radius, lambda = 1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from occamrl import seeding
from occamrl.learners.rewards import RewardsLinear, RewardsPerPair
from occamrl.protocols import Floats
from tests.cases import environment_uniforms, reward_uniform


class Step(NamedTuple):
    """What one step showed."""

    h: int
    s: int
    a: int
    s2: int
    reward: float
    values: Floats  # [S] V_{h+1} of the plan in play


def walk(
    policy: Any, values: Floats, transition: Floats, reward: Floats, *, seed: int, episode: int, coin: bool
) -> list[Step]:
    """Return the steps of an episode that starts in state 0, drawn with the simulator's own uniform numbers."""
    horizon = policy.shape[0]
    uniforms = environment_uniforms(seed, episode + 1, horizon)[episode]
    s, steps = 0, []
    for h in range(horizon):
        a = int(policy[h, s])
        kernel = transition[h] if transition.ndim == 4 else transition
        s2 = int(np.searchsorted(np.cumsum(kernel[s, a]), uniforms[h + 1], side="right"))
        mean = float(reward[s, a])
        heard = float(reward_uniform(seeding.key(seed, "environment"), episode, h) < mean) if coin else mean
        steps.append(Step(h, s, a, s2, heard, values[h + 1].copy()))
        s = s2
    return steps


def optimistic_rewards(rewards: Any, steps: list[Step], shape: tuple[int, int], horizon: int, delta: float) -> Floats:
    """Return the rewards [H, S, A] that a plan counts on."""
    copies = horizon if rewards.per_step else 1
    found = np.empty((horizon, *shape))
    for h in range(horizon):
        heard = [step for step in steps if copies == 1 or step.h == h]
        if isinstance(rewards, RewardsLinear):
            found[h] = _by_features(rewards, heard, delta * rewards.share / copies)
        else:
            level = delta * rewards.share / (copies * shape[0] * shape[1])
            for s, a in np.ndindex(shape):
                sample = np.array([step.reward for step in heard if (step.s, step.a) == (s, a)])
                found[h, s, a] = _of_pair(rewards, sample, level)
    return found


def _of_pair(rewards: RewardsPerPair, sample: Floats, delta: float) -> float:
    n = sample.size
    if n == 0:
        return 0.5 + 0.5 * rewards.scale

    def hoeffding(delta: float) -> float:
        return math.sqrt((n + 1) / 4 * (math.log(n + 1) + 2 * math.log(1 / delta))) / n

    width = hoeffding(delta)
    if rewards.bound == "bernstein":
        width = hoeffding(delta / 2)
        if n > 1:
            each = math.log(2 * n * (n - 1) / (delta / 2))
            width = min(width, math.sqrt(2 * sample.var(ddof=1) * each / n) + 7 * each / (3 * (n - 1)))
    return min(1.0, float(sample.mean()) + rewards.scale * width)


def _by_features(rewards: RewardsLinear, heard: list[Step], delta: float) -> Floats:
    psi, lam = np.asarray(rewards.features), rewards.regularization
    p = psi.shape[-1]
    rows = np.array([psi[step.s, step.a] for step in heard]).reshape(-1, p)
    sigma = lam * np.eye(p) + rows.T @ rows
    omega = np.linalg.solve(sigma, rows.T @ np.array([step.reward for step in heard]))
    growth = float(np.linalg.slogdet(sigma / lam)[1]) + 2 * math.log(1 / delta)
    width = rewards.scale * math.sqrt(growth / 4 + lam * rewards.norm_bound**2)
    norms = np.sqrt(np.einsum("sap,pq,saq->sa", psi, np.linalg.inv(sigma), psi))
    return np.asarray(np.clip(psi @ omega + width * norms, 0.0, 1.0))


def plan(
    phi: Floats, reward: Floats, steps: list[Step], horizon: int, *, norm_bound: float, delta: float, per_step: bool
) -> Floats:
    """Return the optimistic values [H + 1, S] (M11) for rewards [H, S, A]; ``delta`` is the kernel's."""
    states, actions, _, d = phi.shape
    level = delta / (horizon - 1) if per_step else delta
    values = np.zeros((horizon + 1, states))
    for h in reversed(range(horizon)):
        sigma, xy = np.eye(d), np.zeros(d)
        for step in steps:
            if step.h < horizon - 1 and (step.h == h or not per_step):
                middle, spread = _centre(step.values, phi[step.s, step.a])
                if spread > 0.0:
                    x = phi[step.s, step.a].T @ ((step.values - middle) / spread)
                    sigma += np.outer(x, x)
                    xy += (step.values[step.s2] - middle) / spread * x
        theta, inverse = np.linalg.solve(sigma, xy), np.linalg.inv(sigma)
        width = math.sqrt((float(np.linalg.slogdet(sigma)[1]) + 2 * math.log(1 / level)) / 4 + norm_bound**2)
        q = np.empty((states, actions))
        for s, a in np.ndindex(states, actions):
            middle, spread = _centre(values[h + 1], phi[s, a])
            estimate = 0.0
            if spread > 0.0:
                x = phi[s, a].T @ ((values[h + 1] - middle) / spread)
                estimate = float(np.clip(x @ theta + width * math.sqrt(x @ inverse @ x), -0.5, 0.5))
            q[s, a] = reward[h, s, a] + middle + spread * estimate
        values[h] = np.clip(q.max(axis=1), 0.0, horizon - h)
    return values


def _centre(values: Floats, phi: Floats) -> tuple[float, float]:
    """Return the mid-range and the range of a target over what the features can produce."""
    possible = values[(phi != 0.0).any(axis=1)]
    low, high = float(possible.min()), float(possible.max())
    return (0.5 * (low + high), high - low) if high > low else (low, 0.0)
