r"""Evidence by value rows: how well classes of kernels predict the values of next states.

Rows are value-targeted and range-weighted (:mod:`occamrl.evidence.value`); their targets are the
values that were fixed before a block, ``flow.values``. The tests hold at all times at once: with
probability 1 - delta the smallest class that contains the truth is never rejected.

**Lists of kernels.** With the prior w(P) = 1/(M |F_l minus F_{l-1}|) of members that first appear
in F_l, the sharp set B over F_M contains the true kernel. Class m is accepted iff F_m meets B. The
price of a class is log(M |F_m|), not log |F_M|.

**Linear classes and aggregations.** All rows are kept in the coordinates of F_M. Class m is
accepted iff

.. math:: \min_{F_m} L \le L_\lambda(\theta_M)
    + \tfrac14\big(\log\det(\Sigma_M/\lambda) + 2\log(1/\delta)\big) .

**A truth outside F_M.** F_M is tested like a class below it, against itself with a mean added for
every (s, a): with probability 1 - delta, L(P*) is at most what the sharp set of that larger class
allows, be P* in F_M or not. Where even the best of F_M has more, or a transition was seen that F_M
does not list, the ladder is *misspecified*.

**Two events, one delta.** Classes are tested at delta/2, and F_M at delta/2: with probability 1 -
delta neither the smallest class with the truth is rejected nor the ladder called misspecified.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import block_diag

from occamrl import bellman
from occamrl.arrays import Bools, Floats, Ints
from occamrl.errors import NotAvailable, require_rewards
from occamrl.evidence import value
from occamrl.evidence.lists import member_worlds
from occamrl.evidence.starts import (
    DatedState,
    acting_level,
    begin_starts,
    count_starts,
    date_rejections,
    law_of_starts,
    rejected_after,
)
from occamrl.evidence.worlds import FiniteWorlds
from occamrl.models.families import level, off_grid
from occamrl.protocols import Flow, Judgement, Known, Misfit, ParameterRange

if TYPE_CHECKING:
    from occamrl.models.ladder import Ladder

LAMBDA = 1.0  # of all regressions
_MOST_COORDINATES = 2_000  # of the regression that looks for a truth outside linear classes


class ValueState(DatedState, value.SumState):
    """What evidence by value rows keeps."""

    rows: Floats  # [1] how many rows carry something
    pairs: Floats  # [S*A, 2 + n] of every pair: the number of rows, their sums of y and of x
    novel: int  # transitions that F_M does not list


class Losses(NamedTuple):
    """How well classes predict, without the sum of y^2, which all have in common."""

    least: Floats  # [M] of the best member of each class
    threshold: float  # up to which a class is accepted
    misfit: float | None  # of F_M, above what noise explains; None: too many coordinates to tell
    members: Floats | None = None  # [m] of every member of a list


class ValueEvidence:
    """What the evidence for lists and for linear classes share: rows, sums and the verdict."""

    kind = "value"

    def __init__(self, ladder: Ladder, known: Known, delta: float) -> None:
        require_rewards(known, ladder.features)
        self.ladder = ladder
        self.known = known
        self.delta = delta
        self.half = 0.5 * delta  # for the classes; as much for a truth outside them
        self._judged: tuple[Floats, Losses] | None = None  # sums, and the losses for them

    def begin(self) -> ValueState:
        """Return the state before any data."""
        features = self.ladder.features
        pairs = self.known.states * self.known.actions
        return {
            **value.begin(features),
            **begin_starts(self.known),
            "rejected": np.zeros(self.ladder.classes, np.int64),
            "rows": np.zeros(1),
            "pairs": np.zeros((pairs, 2 + features.width)),
            "novel": 0,
        }

    def add(self, state: ValueState, flow: Flow) -> None:
        """Add the rows of a flow, whose ``values`` were fixed before it."""
        assert flow.values is not None  # noqa: S101  # whoever adds flows has planned them
        date_rejections(state, self.judge(state).alive)
        features = self.ladder.features
        pair = flow.state * self.known.actions + flow.action
        no_bonus = np.zeros(pair.size)
        outcomes = features.attach(self.known)
        index = outcomes.index_of(pair, flow.next_state, no_bonus, self.known.states, np.inf)
        state["novel"] += int(flow.count[index < 0].sum())
        # a new array of sums: losses are remembered for the old one
        state["gram"] = state["gram"].copy()
        rows = value.add(state, features, self.known, flow.values, flow)
        carries = rows.x.any(axis=1) | (rows.square > 0.0)  # rows without range say nothing
        state["rows"] += (rows.count * carries).sum()
        sums = np.column_stack([rows.count, rows.total, rows.count[:, None] * rows.x])
        np.add.at(state["pairs"], rows.pair[carries], sums[carries])
        count_starts(state, flow)

    def losses(self, state: ValueState) -> Losses:
        """Return the losses of the classes, and what they may be."""
        if self._judged is None or self._judged[0] is not state["gram"]:
            self._judged = (state["gram"], self._losses(state))
        return self._judged[1]

    def _losses(self, state: ValueState) -> Losses:
        raise NotImplementedError  # of lists, and of linear classes

    def _alive(self, state: ValueState, losses: Losses) -> tuple[int, ...]:
        raise NotImplementedError  # of lists, and of linear classes

    def worlds(self, state: ValueState) -> FiniteWorlds:
        """Return what the data leave possible."""
        raise NotImplementedError  # of lists, and of linear classes

    def judge(self, state: ValueState) -> Judgement:
        """Return twice the excess of the losses in the place of nats."""
        losses = self.losses(state)
        slack = math.log(1.0 / self.half)
        alive = self._alive(state, losses)
        return Judgement(
            against=2.0 * (losses.least - losses.threshold) + slack,
            alive=alive,
            rejected_after=rejected_after(state, alive),
            log_mixture=-2.0 * losses.threshold + slack,
            novel=state["novel"],
            outside=bool(state["novel"]) or (losses.misfit is not None and losses.misfit > 0.0),
        )

    def parameters(self, state: ValueState, m: int) -> dict[str, ParameterRange]:
        """Return nothing: members have no parameters that a user named."""
        return {}

    def describe(self, state: ValueState, m: int) -> str:
        """Return nothing: members have no names."""
        return ""

    def misfits(self, state: ValueState, m: int) -> list[Misfit]:
        """Return nothing: value rows do not count outcomes."""
        return []


class ListValueEvidence(ValueEvidence):
    """The evidence for nested lists of kernels on one problem, by value rows."""

    def member_losses(self, state: ValueState) -> Floats:
        """Return L(P) of every member [m], minus the sum of y^2."""
        losses = self.losses(state).members
        assert losses is not None  # noqa: S101  # of a list
        return losses

    def member_scores(self, state: ValueState) -> tuple[Floats, float]:
        """Return minus twice the losses of all members [m], and the least that one alive has."""
        return -2.0 * self.member_losses(state), -2.0 * self.losses(state).threshold

    def distances(self, state: ValueState, kernels: Ints, reference: int) -> Floats:
        """Return twice the squared distances of a member's rows from those of others.

        They are summed over what was seen: how much evidence such data bring if it is the truth.
        """
        theta = self.ladder.family.theta
        gram = state["gram"][0]
        gaps = theta[kernels] - theta[reference]
        return 2.0 * value.losses(gaps, gram, np.zeros(gram.shape[:2]))

    def _losses(self, state: ValueState) -> Losses:
        losses = value.losses(self.ladder.family.theta, state["gram"][0], state["xy"][0])
        threshold = self._threshold(state, losses, self.half)
        least = -self.ladder.largest(-losses)
        return Losses(least, threshold, self._misfit(state, losses), losses)

    def _misfit(self, state: ValueState, losses: Floats) -> float:
        """Return by how much the loss of the best kernel exceeds what noise explains.

        The alternatives are all kernels of F_M, with even weights, and a Gaussian mean of variance
        1/4 at every (s, a).
        """
        count = state["pairs"][:, 0]
        total = state["pairs"][:, 1]
        x = state["pairs"][:, 2:]
        family = self.ladder.family
        theta = family.theta[losses.argmin()][family.features.group]
        residual = total - (x * theta).sum(axis=1)
        price = 0.5 * math.log(family.size / level(family.reach, self.half))
        noise = price + 0.25 * np.log1p(count).sum()
        between = off_grid(family.reach, float(state["rows"][0]), self.half)
        return float((residual**2 / (count + 1.0)).sum() - noise - between)

    def _threshold(self, state: ValueState, losses: Floats, level: float) -> float:
        """Return the largest loss in the sharp set of a level."""
        prior = np.log(self.ladder.prior)
        rows = float(state["rows"][0])
        return value.sharp_threshold(losses, prior, self.ladder.family.reach, rows, level)

    def inside(self, state: ValueState) -> Bools:
        """Return which members are in the sharp set [m]; some always are."""
        return np.asarray(self.member_losses(state) <= self.losses(state).threshold)

    def playable(self, state: ValueState) -> Bools:
        """Return which members are in the set for acting [m], whose level falls (B13)."""
        losses = self.member_losses(state)
        level = acting_level(self.half, state["episodes"])
        return np.asarray(losses <= self._threshold(state, losses, level))

    def _alive(self, state: ValueState, losses: Losses) -> tuple[int, ...]:
        return tuple(self.ladder.count(self.inside(state)))

    def worlds(self, state: ValueState) -> FiniteWorlds:
        """Return the members of the sharp set."""
        losses = self.member_losses(state)
        inside = np.flatnonzero(self.inside(state))
        family = self.ladder.family

        def best_kernels(m: int) -> bellman.Kernels:
            best = np.where(self.ladder.level <= m, losses, np.inf).argmin()
            return family.kernels_of(int(best), self.known)

        law = law_of_starts(self.known, state["starts"])
        scores = -2.0 * losses[inside]
        return member_worlds(
            self.ladder, self.known, law, self.judge(state), inside, scores, best_kernels
        )


class LinearEvidence(ValueEvidence):
    """The evidence for nested linear classes or aggregations on one problem, by value rows."""

    def _losses(self, state: ValueState) -> Losses:
        gram = state["gram"][0]
        xy = state["xy"][0]
        classes = self.ladder.classes
        least = [self.ladder.smallest_loss(m, gram, xy) for m in range(1, classes + 1)]
        threshold = regression_bound(*self.ladder.statistics(classes, gram, xy), self.half)
        return Losses(np.array(least), threshold, self._misfit(state, float(least[-1])))

    def _misfit(self, state: ValueState, least: float) -> float | None:
        """Return the misfit against all coordinates and a mean at every (s, a)."""
        gram = state["gram"][0]
        xy = state["xy"][0]
        count = state["pairs"][:, 0]
        total = state["pairs"][:, 1]
        x = state["pairs"][:, 2:]
        if xy.size + count.size > _MOST_COORDINATES:
            return None
        # the coordinates of each (s, a), those of its group
        group = self.ladder.features.group
        columns = group[:, None] * xy.shape[1] + np.arange(xy.shape[1])
        across = np.zeros((count.size, xy.size))
        np.put_along_axis(across, columns, x, axis=1)
        whole = np.block([[block_diag(*gram), across.T], [across, np.diag(count)]])
        return least - regression_bound(whole[None], np.append(xy, total)[None], self.half)

    def _alive(self, state: ValueState, losses: Losses) -> tuple[int, ...]:
        """Return 1 from the smallest class that is accepted on; F_M is, where none is."""
        accepted = losses.least <= losses.threshold
        accepted[-1] = True
        first = int(accepted.argmax())
        return tuple(int(m >= first) for m in range(self.ladder.classes))

    def worlds(self, state: ValueState) -> FiniteWorlds:
        """Say that linear classes do not tell what is possible."""
        raise NotAvailable(
            "no worth and no policy: linear classes have no list of what is possible; "
            "cover them by a list (CoverFamily), or use orl.Model"
        )


def regression_bound(gram: Floats, xy: Floats, delta: float) -> float:
    """Return what L of the truth is at most, minus the sum of y^2.

    By a regression [G, n, n] that has the truth, and may be too large.
    """
    fit = value.ridge(gram, xy, LAMBDA)
    radius = value.squared_radius(fit.logdet.sum(), delta, LAMBDA, 0.0)
    return float(-(xy * fit.theta).sum() + radius)
