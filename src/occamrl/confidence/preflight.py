"""Preflight of a ladder, before any data (M26): whether its classes can be told apart by playing them.

A *blind pair* is a kernel P of a class and a kernel Q outside it such that P's optimal policy earns much less under Q
than Q's own, while the rows it produces there would take more than a given number of episodes to reject the class. Then
a small class that is wrong can confirm itself: its policy never goes where it is wrong. The remedy is optimism over all
kernels that are left, with the prior (the safe variant of M25).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from occamrl.contracts import Floats, Known, Outcomes
from occamrl.errors import ParameterError
from occamrl.families.ladder import Ladder
from occamrl.kernels.bellman import backup, optimal_policy
from occamrl.kernels.compile import compiled
from occamrl.kernels.features import fill_target
from occamrl.seeding import stream

REJECTION = 2.91  # a class is rejected once its nearest kernel is this many times log(|F_M|/delta) away (M15)


@dataclass(frozen=True)
class BlindPair:
    """A kernel that would confirm itself although another is the truth."""

    rung: int  # the class of the first kernel, from 1
    member: int  # P, as a member of the ladder's family
    truth: int  # Q, likewise
    truth_class: int
    loss_per_episode: float  # how much less P's policy earns under Q than Q's own
    episodes_to_reject: float  # until the rows of P's policy reject every kernel of the class


@dataclass(frozen=True)
class Preflight:
    """What was found; ``print`` it before a run."""

    sizes: list[int]
    episodes: int
    delta: float
    pairs_tried: int
    blind: list[BlindPair]
    worst_loss: float  # per episode, over the blind pairs
    rejection: list[float] = field(default_factory=list)  # median episodes to reject F_m when the truth is outside it
    remedy: str = "none"  # "safe" where there are blind pairs

    @property
    def safe(self) -> bool:
        """Whether ARL-GEN should be optimistic over all kernels that are left."""
        return self.remedy == "safe"

    def __str__(self) -> str:
        lines = [
            f"Ladder of {' < '.join(map(str, self.sizes))} kernels, {self.episodes:,} episodes, delta {self.delta:g}"
        ]
        for m, episodes in enumerate(self.rejection, start=1):
            lines.append(f"  class {m}, if wrong, is rejected after about {_text(episodes)} episodes of its own policy")
        if not self.blind:
            lines.append(f"  no blind pairs among {self.pairs_tried:,} tried: selection at any time will do")
        else:
            worst = max(self.blind, key=lambda pair: pair.loss_per_episode)
            lines.append(
                f"  {len(self.blind):,} blind pairs among {self.pairs_tried:,} tried: a wrong class can confirm itself."
            )
            lines.append(
                f"  Worst: kernel {worst.member} of class {worst.rung} under kernel {worst.truth} of class "
                f"{worst.truth_class} loses {worst.loss_per_episode:.3g} an episode, unnoticed for "
                f"{_text(worst.episodes_to_reject)} episodes"
            )
            lines.append("  remedy: optimism over all kernels that are left (safe=True)")
        return "\n".join(lines)


def _text(episodes: float) -> str:
    return "infinitely many" if math.isinf(episodes) else f"{episodes:,.0f}"


def preflight(
    ladder: Ladder,
    known: Known,
    *,
    episodes: int,
    delta: float = 0.05,
    start: int = 0,
    truths: int = 64,
    members: int = 64,
    least_loss: float | None = None,
    seed: int = 0,
) -> Preflight:
    """Look for blind pairs and predict how long each class takes to be rejected (M26).

    Parameters
    ----------
    ladder : Ladder
    known : Known
        ``mdp.known`` of the problem: sizes and rewards.
    episodes : int
        The length of the run. A pair is blind when rejecting the class takes longer.
    delta : float
    start : int
        The initial state.
    truths, members : int
        How many kernels outside and inside each class to try; drawn at random where there are more.
    least_loss : float, optional
        What counts as much, per episode; by default 1% of the largest optimal value.
    seed : int
        Of these draws.
    """
    if not isinstance(ladder, Ladder):
        raise ParameterError("ladder", got=type(ladder).__name__, expected="a Ladder")
    family, draw = ladder.family, stream(seed, "preflight")
    values, outcomes = family.optimal_values(known), family.features.attach(known).outcomes
    base, needed = known.base_reward.flatten(), REJECTION * math.log(family.size / delta)
    much = 0.01 * float(values[:, 0, start].max()) if least_loss is None else least_loss
    blind: list[BlindPair] = []
    typical: list[float] = []
    tried = 0
    for m in range(1, ladder.classes):
        inside, size = _sample(draw, 0, ladder.sizes[m - 1], members), ladder.sizes[m - 1]
        outside = _sample(draw, size, family.size, truths)
        # Of the class, the kernels nearest to being believed count: all of it if it is small.
        rivals = _kernels(family, inside)
        times = []
        for p in inside:
            policy = optimal_policy(outcomes, _kernels(family, np.array([p])), base, values[p])
            for q in outside:
                truth = _kernels(family, np.array([q]))
                loss = float(values[q, 0, start]) - float(_value(outcomes, truth[0], base, policy, start))
                distances = _distances(outcomes, truth[0], rivals, policy, values[p], start)
                rate = float(distances.min())
                time = needed / rate if rate > 1e-12 else math.inf
                times.append(time)
                tried += 1
                if loss > much and time > episodes and distances[np.flatnonzero(inside == p)[0]] <= rate + 1e-12:
                    blind.append(BlindPair(m, int(p), int(q), int(ladder.level[q]) + 1, loss, time))
        typical.append(float(np.median(times)))
    worst = max((pair.loss_per_episode for pair in blind), default=0.0)
    remedy = "safe" if blind else "none"
    return Preflight(ladder.sizes, episodes, delta, tried, blind, worst, typical, remedy)


def _sample(draw: np.random.Generator, first: int, last: int, most: int) -> Any:
    if last - first <= most:
        return np.arange(first, last)
    return np.sort(first + draw.choice(last - first, most, replace=False))


def _kernels(family: Any, members: Any) -> Floats:
    return np.ascontiguousarray(family.take(members).probabilities().T)


@compiled
def _value(outcomes: Outcomes, kernel: Floats, base: Floats, policy: Any, start: int) -> float:
    """Return V^pi_1(start) under a kernel [O]."""
    horizon, states = policy.shape
    actions = base.size // states
    values = np.zeros((horizon + 1, states))
    for h in range(horizon - 1, -1, -1):
        for s in range(states):
            values[h, s] = backup(outcomes, kernel, base, s * actions + policy[h, s], values[h + 1])
    return values[0, start]  # type: ignore[no-any-return]


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
