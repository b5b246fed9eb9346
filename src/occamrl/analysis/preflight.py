"""Preflight of a ladder, before any data (M26): whether its classes can be told apart by playing them.

A *blind pair* is a kernel P of a class and a kernel Q outside it such that P's optimal policy earns much less under Q
than Q's own, while the rows it produces there would take more than a given number of episodes to reject the class. Then
a small class that is wrong can confirm itself: its policy never goes where it is wrong. The remedy is optimism over all
kernels that are left, with the prior (the safe variant of M25); where the largest class is linear, audits (the guard).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from occamrl._core.bellman import optimal_policy, optimal_values, policy_values
from occamrl._core.compile import compiled
from occamrl._core.features import fill_target
from occamrl.errors import ParameterError, require_integer
from occamrl.models.family import weighted
from occamrl.models.finite import FiniteFamily, level
from occamrl.models.ladder import Ladder, LinearLadder, describe
from occamrl.protocols import Floats, Ints, Known, Outcomes
from occamrl.seeding import stream
from occamrl.selectors.arl_gen import ARLGen

# ----------------------------------------------------------------------------------------------------
# What a policy earns under a kernel, where it goes, and what is at stake: for the preflight of a ladder (M26).


_SHARE = 0.01  # of what is at stake: losing less is not much


def stake(outcomes: Outcomes, kernel: Floats, base: Floats, values: Floats, start: int) -> float:
    """Return how much more the best policy earns than the worst under a kernel [1, O] with optimal ``values``.

    Whatever is added to all rewards cancels out, so that costs turned into rewards count as what they are.
    """
    horizon, states = values.shape[0] - 1, values.shape[1]
    mirrored = outcomes._replace(bonus=-outcomes.bonus)
    return float(values[0, start] + optimal_values(mirrored, kernel, -base, states, horizon)[0, start])


def much(stakes: Iterable[float]) -> float:
    """Return what counts as much to lose per episode, given what is at stake under the truths tried."""
    return _SHARE * max(stakes, default=0.0)


def policy_value(outcomes: Outcomes, kernel: Floats, base: Floats, policy: Ints, start: int) -> float:
    """Return V^pi_1(start) of a policy [H, S] under a kernel [1, O]."""
    values = np.zeros((2, policy.shape[1]))
    policy_values(outcomes, kernel, base, policy, values)
    return float(values[0, start])


@compiled
def visits(outcomes: Outcomes, kernel: Floats, policy: Ints, start: int) -> Floats:
    """Return the probability of being in s at step h [H, S] under a policy and a kernel [1, O]."""
    horizon, states = policy.shape
    actions = (outcomes.start.size - 1) // states
    found = np.zeros((horizon, states))
    found[0, start] = 1.0
    for h in range(horizon - 1):
        for s in range(states):
            if found[h, s] != 0.0:
                sa = s * actions + policy[h, s]
                for o in range(outcomes.start[sa], outcomes.start[sa + 1]):
                    found[h + 1, outcomes.next_state[o]] += found[h, s] * kernel[0, o]
    return found


# ----------------------------------------------------------------------------------------------------
# What the preflight of a ladder found (M26), to be shown before a run.


_REMEDIES = {
    "safe": "optimism over all kernels that are left (safe=True)",
    "guard": "play the largest class in about sqrt(k) of k episodes (guard=True)",
}


class Search(NamedTuple):
    """What to look for, and how long; see :func:`occamrl.analysis.preflight.preflight`."""

    episodes: int
    delta: float
    start: int
    truths: int
    members: int
    least_loss: float | None
    seed: int


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
    rejection: list[float]  # median episodes to reject F_m when the truth is outside it
    remedy: str = "none"  # "safe" or, on a LinearLadder, "guard" where there are blind pairs
    classes: list[str] = field(default_factory=list)  # in words
    grid: float = 0.0  # how far a kernel of the box may be from the nearest point of a cover
    grid_episodes: float = math.inf  # after which the grid's term in the test outweighs that of the noise

    @property
    def worst_loss(self) -> float:
        """The most that a blind pair loses per episode."""
        return max((pair.loss_per_episode for pair in self.blind), default=0.0)

    @property
    def safe(self) -> bool:
        """Whether ARL-GEN should be optimistic over all kernels that are left."""
        return self.remedy == "safe"

    @property
    def options(self) -> dict[str, bool]:
        """The remedy as parameters of ARL-GEN."""
        return {} if self.remedy == "none" else {self.remedy: True}

    def __str__(self) -> str:
        sizes = " < ".join(self.classes) if self.classes else f"{' < '.join(map(str, self.sizes))} kernels"
        lines = [f"Ladder of {sizes}, {self.episodes:,} episodes, delta {self.delta:g}"]
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
            lines.append(f"  remedy: {_REMEDIES[self.remedy]}")
        if self.grid > 0.0:
            fine = "fine enough" if self.grid_episodes > self.episodes else "too coarse for this run"
            lines.append(
                f"  grid: kernels up to {self.grid:.3g} from the nearest point; after about "
                f"{_text(self.grid_episodes)} episodes that, not noise, limits what can be told apart: {fine}"
            )
        return "\n".join(lines)


def _text(episodes: float) -> str:
    return "infinitely many" if math.isinf(episodes) else f"{episodes:,.0f}"


# ----------------------------------------------------------------------------------------------------
# Preflight of a ladder of finite classes (M26): blind pairs by trying kernels.
#
# See :mod:`occamrl.analysis.preflight`.


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


# ----------------------------------------------------------------------------------------------------
# Preflight of a ladder whose largest class is linear or an aggregation (M26): kernels are drawn from each class.
#
# For a kernel P of class m and a truth Q, the expected rows of an episode of P's optimal policy under Q have the Gram
# matrix G = E sum x x^T in the largest class. The distance of class m from Q is then a least-squares problem,
# min over F_m of (theta - theta_Q)^T G (theta - theta_Q), and class m is rejected after about n episodes where n times
# this distance passes (1/4)(logdet(I + n G) + 2 log(1/delta)) (M15 with lambda = 1).


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


# ----------------------------------------------------------------------------------------------------
# Preflight of a ladder, before any data (M26): whether its classes can be told apart by playing them.


__all__ = ["BlindPair", "Preflight", "preflight"]


def preflight(
    ladder: Ladder | LinearLadder,
    known: Known,
    *,
    episodes: int,
    delta: float = 0.05,
    start: int = 0,
    truths: int | None = None,
    members: int | None = None,
    least_loss: float | None = None,
    seed: int = 0,
) -> Preflight:
    """Look for blind pairs, predict how long each class takes to be rejected, and judge the grid of covers (M26).

    Parameters
    ----------
    ladder : Ladder or LinearLadder
    known : Known
        ``mdp.known`` of the problem: sizes and rewards.
    episodes : int
        The length of the run. A pair is blind when rejecting the class takes longer.
    delta : float
    start : int
        The initial state.
    truths, members : int, optional
        How many kernels outside and inside each class to try, drawn at random where there are more; 64 of a finite
        class, 6 of one that is not.
    least_loss : float, optional
        What counts as much, per episode; by default 1% of what is at stake: the most that the best policy earns above
        the worst, over the kernels tried as truths. Adding a constant to all rewards does not change it.
    seed : int
        Of these draws.
    """
    require_integer("episodes", episodes, 1)
    if not isinstance(ladder, (Ladder, LinearLadder)):
        raise ParameterError("ladder", got=type(ladder).__name__, expected="a Ladder or LinearLadder")
    if not known.rewards_known:
        raise ParameterError("known", got="sizes alone", expected="rewards too: policies are compared by them")
    few = 6 if isinstance(ladder, LinearLadder) else 64
    search = Search(episodes, delta, start, truths or few, members or few, least_loss, seed)
    if isinstance(ladder, LinearLadder):
        return linear_preflight(ladder, known, search)
    return finite_preflight(ladder, known, search)


def after_preflight(
    ladder: Ladder | LinearLadder,
    known: Known,
    *,
    episodes: int,
    initial_state: int = 0,
    delta: float = 0.05,
    least_loss: float | None = None,
    **parameters: Any,
) -> tuple[ARLGen, Preflight]:
    """Return the agent with the remedy that the preflight chose (M26), and its report to be shown before the run.

    ``least_loss`` is what :func:`occamrl.preflight` counts as much to lose per episode, in rewards of [0, 1].
    ``parameters`` are those of the class; ``safe``, or on a LinearLadder ``guard``, is set where there are blind
    pairs.
    """
    about: dict[str, Any] = {"delta": delta, "start": initial_state, "least_loss": least_loss}
    report = preflight(ladder, known, episodes=episodes, **about)
    return ARLGen(ladder=ladder, delta=delta, **{**report.options, **parameters}), report
