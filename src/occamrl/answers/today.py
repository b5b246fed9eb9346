r"""What a log says of the policy that made it: what it earns, without an estimate of its rules.

In a world P the regret of an episode is the sum of what its actions lost,

.. math:: G_k(P) = \sum_h \gamma^h \big(V^*_h(s_{kh}) - Q^*_h(s_{kh}, a_{kh})\big) \ge 0 .

If P is the truth, its mean is V* minus what the policy earns that played episode k, whatever that
policy looked at: step, state, or all that came before. So the mean over the log estimates what
today's policy loses, and a policy :math:`\pi` gains :math:`\bar G(P) - (V^*_P - V^\pi_P)` over it,
world by world. Neither luck in transitions nor an estimate of the policy comes into that, only
which states and actions the episodes happened to have.

**Its error.** Flows of a log are batches of :math:`n_b` episodes; with what a batch adds to the
mean in excess of its share, :math:`z_b`, the variance is :math:`\frac{n}{B - 1} \sum_b z_b^2 / n_b`
and Student's t with B - 1 degrees of freedom gives a range. It is at least as wide as if a share
:math:`\log(2/\delta)/n` of the episodes, which n episodes may well not show, lost nothing or as
much as can be lost. Like every use of Student's t, that is not exact.

Where episodes are cut short, each step has the mean over those that came to it.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from occamrl import bellman
from occamrl.arrays import Bools, Floats, Ints
from occamrl.evidence.worlds import FiniteWorld
from occamrl.protocols import Flow, Interval, Known

_SHRUNK = 1.0  # visits of a state by which frequencies at a step are drawn to those of all steps
_NEVER_TRIED = 1e-9  # the share of actions that a log does not show
_ALWAYS = 1.0 - 1e-9  # a probability that counts as one


class Rows(NamedTuple):
    """What was counted in the flows of a log, a row for each kind of step in each flow."""

    batch: Ints  # the number of the flow, from 0
    step: Ints
    state: Ints
    action: Ints
    next_state: Ints
    episodes: Ints  # how many had such a step


class Today:
    """What was played in a log, flow by flow."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.episodes: list[int] = []  # of each flow
        self.earned: list[float] = []  # by all episodes of a flow, in the learner's unit
        self._rows: list[Rows] = []

    def add(self, flow: Flow) -> None:
        """Take note of a flow."""
        batch = np.full(flow.step.size, len(self.episodes))
        rows = Rows(batch, flow.step, flow.state, flow.action, flow.next_state, flow.count)
        self._rows.append(rows)
        self.episodes.append(flow.episodes)
        weight = flow.count * self.known.discount**flow.step
        self.earned.append(float(weight @ self.known.amount(flow.reward, 1)))

    @cached_property
    def rows(self) -> Rows:
        """All that was counted."""
        columns = [np.concatenate(column) for column in zip(*self._rows, strict=True)]
        return Rows(*columns)

    @cached_property
    def pairs(self) -> Floats:
        """How often each action was chosen in each state [S, A]."""
        pairs = np.zeros((self.known.states, self.known.actions))
        np.add.at(pairs, (self.rows.state, self.rows.action), self.rows.episodes)
        return pairs

    @cached_property
    def pairs_by_step(self) -> Floats:
        """How often each action was chosen at each step in each state [H, S, A]."""
        pairs = np.zeros((self.known.horizon, self.known.states, self.known.actions))
        np.add.at(pairs, (self.rows.step, self.rows.state, self.rows.action), self.rows.episodes)
        return pairs

    @cached_property
    def frequencies(self) -> Floats:
        """An estimate of the policy [H, S, A], step by step.

        Where a step was seldom seen in a state, it is drawn to the frequencies of all steps.
        """
        known = self.known
        share = np.where(known.allowed, _NEVER_TRIED, 0.0) + self.pairs
        pooled = share / share.sum(axis=1, keepdims=True)
        counts = self.pairs_by_step + _SHRUNK * pooled
        return np.asarray(counts / counts.sum(axis=2, keepdims=True))

    def regret(self, world: FiniteWorld, delta: float) -> Interval:
        """Return what an episode of today's policy loses in a world, in the user's unit.

        The range holds it with a probability of about 1 - delta, if the world is the truth.
        """
        known = self.known
        scale = known.unit.scale
        mean, error = self._mean(self._gaps(world), delta)
        unseen = math.log(2.0 / delta) / sum(self.episodes)
        largest = max(self._largest_regret(world), mean)
        low = mean - max(error, unseen * mean)
        high = min(mean + max(error, unseen * (largest - mean)), largest)
        if not self._present.sum(axis=0).all():
            # what is lost at steps that no episode came to is not known
            high = largest
        return Interval(scale * mean, scale * max(low, 0.0), scale * high)

    def _gaps(self, world: FiniteWorld) -> Floats:
        """Return what each row loses in a world: V* minus Q*, discounted."""
        known = self.known
        values, _ = bellman.solve(world.kernels, known.states, known.horizon)
        gaps = np.zeros(self.rows.step.size)
        for h in np.unique(self.rows.step).tolist():
            at_step = self.rows.step == h
            states = self.rows.state[at_step]
            kernel = bellman.at_step(world.kernels, h)
            q = bellman.lookahead(kernel, values[h + 1])[states, self.rows.action[at_step]]
            gaps[at_step] = known.discount**h * (values[h][states] - q)
        return gaps

    @property
    def mean_return(self) -> float | None:
        """What an episode of the log earned; None where that is not known."""
        total = sum(self.earned)
        return total / sum(self.episodes) if self._whole and math.isfinite(total) else None

    @property
    def _whole(self) -> bool:
        """Whether all episodes have the length of the horizon, or came to rest before."""
        return bool((self._present == np.array(self.episodes)[:, None]).all())

    def earned_range(self, delta: float, largest: float) -> Interval | None:
        """Return what an episode of the log earned, with its error; None where it is not known.

        The range holds the mean of what is played today with a probability of about 1 - delta, if
        nothing earns more than ``largest`` on average.
        """
        mean = self.mean_return
        batches = len(self.episodes)
        if mean is None or batches == 1:
            return None
        sizes = np.array(self.episodes, dtype=np.float64)
        excess = np.array(self.earned) - sizes * mean
        variance = float((excess**2 / sizes).sum()) / (batches - 1)
        quantile = float(student.ppf(1.0 - delta / 2.0, batches - 1))
        error = quantile * math.sqrt(variance / sizes.sum())
        # n episodes may well not show what happens in a share log(2/delta)/n of them
        unseen = math.log(2.0 / delta) / sizes.sum()
        low = mean - max(error, unseen * (mean - float(self.known.amount(0.0))))
        high = mean + max(error, unseen * (largest - mean))
        return Interval(mean, low, high)

    def luck(self, world: FiniteWorld, best: float, delta: float) -> Interval:
        """Return what an episode of the log earned in excess of what a world says of it.

        ``best`` is what the optimal policy earns in the world. The range holds 0 with a probability
        of about 1 - delta, if the world is the truth.
        """
        share = self.rows.episodes * self._gaps(world)
        batches = len(self.episodes)
        lost = self.known.unit.scale * np.bincount(self.rows.batch, share, batches)
        sizes = np.array(self.episodes, dtype=np.float64)
        excess = np.array(self.earned) + lost - sizes * best
        mean = float(excess.sum() / sizes.sum())
        if batches == 1:
            return Interval(mean, -math.inf, math.inf)
        variance = float(((excess - sizes * mean) ** 2 / sizes).sum()) / (batches - 1)
        quantile = float(student.ppf(1.0 - delta / 2.0, batches - 1))
        error = quantile * math.sqrt(variance / sizes.sum())
        return Interval(mean, mean - error, mean + error)

    def _mean(self, gaps: Floats, delta: float) -> tuple[float, float]:
        """Return the mean over episodes of what rows add up to, and its error."""
        present = self._present
        total = present.sum(axis=0)
        share = self.rows.episodes * gaps / total[self.rows.step]
        by_step = np.bincount(self.rows.step, share, self.known.horizon)
        batches = len(self.episodes)
        weight = present / np.maximum(total, 1)
        excess = np.bincount(self.rows.batch, share, batches) - weight @ by_step
        if batches == 1:
            return float(share.sum()), math.inf
        sizes = np.array(self.episodes, dtype=np.float64)
        variance = sizes.sum() / (batches - 1) * float((excess**2 / sizes).sum())
        quantile = float(student.ppf(1.0 - delta / 2.0, batches - 1))
        return float(share.sum()), quantile * math.sqrt(variance)

    @cached_property
    def _present(self) -> Ints:
        """How many episodes of each flow are there at each step, or at rest before it [B, H]."""
        rows = self.rows
        present = np.zeros((len(self.episodes), self.known.horizon), np.int64)
        np.add.at(present, (rows.batch, rows.step), rows.episodes)
        # those that came to rest are there at all steps that follow
        resting = self._absorbing[rows.next_state] & ~self._absorbing[rows.state]
        ended = np.zeros_like(present)
        np.add.at(ended, (rows.batch[resting], rows.step[resting]), rows.episodes[resting])
        sizes = np.array(self.episodes)[:, None]
        rested = np.cumsum(ended, axis=1) - ended
        return np.asarray(np.minimum(present + rested, sizes))

    @cached_property
    def _absorbing(self) -> Bools:
        """The states [S] that no row leaves."""
        if self.known.absorbing.any():
            return self.known.absorbing
        left = np.zeros(self.known.states, bool)
        left[self.rows.state[self.rows.next_state != self.rows.state]] = True
        at_rest = ~left
        # an episode that goes on in a state without leaving it has rows there
        at_rest[self.rows.state] = False
        return np.asarray(at_rest)

    def _largest_regret(self, world: FiniteWorld) -> float:
        """Return what the worst policy loses in a world, in the learner's unit."""
        sizes = self.known.states, self.known.horizon
        best = bellman.solve(world.kernels, *sizes)[0][0]
        worst = -bellman.solve(bellman.turned(world.kernels), *sizes)[0][0]
        starts = self.rows.state[self.rows.step == 0]
        weight = self.rows.episodes[self.rows.step == 0]
        return float(weight @ (best - worst)[starts] / weight.sum())
