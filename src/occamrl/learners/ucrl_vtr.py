r"""UCRL-VTR: optimism over a list of kernels (Ayoub et al. 2020; Ghosh et al. 2022, section 3).

    losses      L(P) = sum over range-weighted rows of (y - <x, theta_P>)^2
    sharp set   B = { P : 2 L(P) <= -log sum_P w(P) exp(-2 L(P)) + log(1/delta) }
    optimism    from the start s, play the P in B with the largest optimal value V*_P(s); of equals,
                the best fit

Rows and the set are those of :mod:`occamrl.evidence.value`: the true kernel stays in B at all times
with probability 1 - delta, so that no plan then promises less than the optimum. V*_P depends on P
alone and is solved once. All that is kept of the data is gram and xy: the losses of all kernels are
one product away, and no kernel is dropped for good.

**How long a plan lasts.** Any length that is fixed before the block leaves the set valid. A plan
lasts a tenth of the episodes that its member has played before, and at least one: what the data
contradict is played at most that share longer than with a plan before every episode. Where there
are several starts each has its part of the plan, and the block ends when the first part is expected
to have been played for so long.

**Covers.** The truth may lie between the members, its nearest one P0 within ``reach`` of it. L(P0)
then exceeds L(P*) by at most :func:`occamrl.models.families.off_grid`, which is added to the right
side at half of delta.

**One kernel per step**: losses and a set B_h for each step, at level delta/H. There are too many
choices from B_1 x ... x B_H to list; the plan takes the largest expectation at every (s, a) by
itself,

.. math:: Q_h(s, a) = r(s, a) + \max_{P \in B_h} (P W_{h+1})(s, a),

which is no smaller than what any choice gives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from occamrl import bellman
from occamrl.arrays import Bools, Floats, Ints
from occamrl.errors import (
    ParameterError,
    as_floats,
    require_choice,
    require_delta,
    require_kind,
    require_number,
    require_rewards,
)
from occamrl.evidence import value
from occamrl.evidence.starts import (
    StartState,
    begin_starts,
    count_starts,
    law_of_next,
    law_of_starts,
)
from occamrl.models.families import FiniteFamily
from occamrl.protocols import Flow, Known, Learner, Plan

_TOGETHER = 2**23  # numbers that are worked on at once
_EQUAL = 9  # digits to which values are compared
_OF_ALL = (
    0.2  # of the share of a member's plays: that of all episodes, where no single member plays
)


class UCRLVTRState(value.SumState, StartState):
    """The sums over rows, and counts; T is 1, or H with one kernel per step."""

    rows: Floats  # [T] how many rows carry something
    plays: Ints  # [m] episodes that each member has played


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTR(Learner):
    """Play the most optimistic kernel of a list that the data do not contradict.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> draw = np.random.default_rng(0)
    >>> kernels = draw.dirichlet(np.ones(3), size=(4, 3, 2))  # four kernels P[s, a, s']
    >>> mdp = orl.FiniteMDP(transition=kernels[2], reward=np.eye(3)[:, 1:], horizon=5)  # r[s, a]
    >>> result = orl.run(orl.UCRLVTR(family=orl.FiniteFamily(kernels)), mdp, episodes=50)

    Parameters
    ----------
    family : FiniteFamily
    delta : float
        The true kernel, or of a cover the member nearest to it, stays in the confidence set at all
        times with probability 1 - delta.
    prior : array [m], optional
        Weights of the members, with a sum of at most 1; even by default.
    kernel : "stationary" | "per_step"
        One member for all steps, or one for each.
    replan : float
        A plan lasts this share of the episodes that its member has played; with one kernel per
        step, a fifth of this share of all episodes. 0: plan before every episode.
    """

    guarantee = "valid"
    given = ("the class",)

    family: FiniteFamily
    delta: float = 0.05
    prior: Floats | None = None
    kernel: Literal["stationary", "per_step"] = "stationary"
    replan: float = 0.1

    def __post_init__(self) -> None:
        require_kind("family", self.family, FiniteFamily)
        require_delta(self.delta)
        require_choice("kernel", self.kernel, ("stationary", "per_step"))
        require_number("replan", self.replan, 0.0, 1e100)
        if self.prior is not None:
            weights = as_floats("prior", self.prior, (self.family.size,))
            if not (weights > 0.0).all() or weights.sum() > 1.0 + 1e-9:
                expected = "positive numbers with a sum of at most 1"
                raise ParameterError("prior", got="weights", expected=expected)

    @cached_property
    def log_prior(self) -> Floats:
        """The logarithms of the weights of the members."""
        if self.prior is None:
            return np.full(self.family.size, -math.log(self.family.size))
        return np.log(as_floats("prior", self.prior))

    def begin(self, known: Known) -> UCRLVTRState:
        """Return the state before any data."""
        require_rewards(known, self.family.features)
        steps = known.horizon if self.kernel == "per_step" else 1
        return {
            **value.begin(self.family.features, steps),
            **begin_starts(known),
            "rows": np.zeros(steps),
            "plays": np.zeros(self.family.size, np.int64),
        }

    def plan(self, known: Known, state: UCRLVTRState, draw: np.random.Generator) -> Plan:
        """Plan optimistically over the confidence set."""
        inside = self.confidence_set(state)
        diagnostics = {"alive": inside.sum(axis=1).tolist()}
        if self.kernel == "stationary":
            return self.plan_among(known, state, inside[0], {}, diagnostics)
        values, policy = self._solve_steps(known, inside)
        # no single member plays, so the share is one of all episodes
        episodes = max(1, int(_OF_ALL * self.replan * state["episodes"]))
        return Plan(policy=policy, values=values, episodes=episodes, diagnostics=diagnostics)

    def learn(self, known: Known, state: UCRLVTRState, plan: Plan, flow: Flow) -> None:
        """Add the rows of the block."""
        rows = value.add(state, self.family.features, known, plan.values, flow)
        # rows without range say nothing, and covers are not charged for them
        carries = rows.x.any(axis=1) | (rows.square > 0.0)
        np.add.at(state["rows"], rows.step % len(state["rows"]), rows.count * carries)
        count_starts(state, flow)
        if "member" in plan.diagnostics:
            state["plays"][plan.diagnostics["member"]] += flow.episodes

    def losses(self, state: value.SumState) -> Floats:
        """Return L(P), minus the sum of y^2, of every step and member [T, m]."""
        sums = zip(state["gram"], state["xy"], strict=True)
        return np.array([value.losses(self.family.theta, gram, xy) for gram, xy in sums])

    def thresholds(self, state: UCRLVTRState, losses: Floats) -> Floats:
        """Return the largest loss, minus the sum of y^2, in the sharp set of every step [T]."""
        # a union bound over the steps, where each has a set of its own
        delta = self.delta / len(losses)
        reach = self.family.reach
        thresholds = []
        for loss, rows in zip(losses, state["rows"], strict=True):
            thresholds.append(value.sharp_threshold(loss, self.log_prior, reach, rows, delta))
        return np.array(thresholds)

    def confidence_set(self, state: UCRLVTRState) -> Bools:
        """Return which members are in the sharp set of every step [T, m]; some always are."""
        losses = self.losses(state)
        return np.asarray(losses <= self.thresholds(state, losses)[:, None])

    def plan_among(
        self,
        known: Known,
        state: Any,
        inside: Bools,
        facts: Mapping[str, Any],
        diagnostics: Mapping[str, Any],
    ) -> Plan:
        """Plan for the member with the largest value among some [m], from each start.

        A first state that has not been seen plays what is best by the law of starts. The state is
        that of a selector where one chose the members: gram, xy, starts and plays are read.
        """
        law = law_of_starts(known, state["starts"])
        members = np.flatnonzero(inside)
        # the best fit comes first, because argmax takes the first of equal values
        members = members[np.argsort(self.losses(state)[0, members], kind="stable")]
        values = np.round(self.family.first_values(known, members), _EQUAL)  # [members, S]
        means = values @ law_of_next(known, state)
        best = int(members[np.round(means, _EQUAL).argmax()])
        whole = self._optimal(known, best, facts, diagnostics)
        # where the law of starts is unknown, only states that were seen have a part of their own
        begins = state["starts"] if known.initial is None else law
        possible = np.flatnonzero(begins)
        if possible.size <= 1:
            return replace(whole, episodes=self._episodes(state["plays"][best], 1.0))
        best_from = members[values[:, possible].argmax(axis=0)]  # [possible]
        played, part = np.unique(best_from, return_inverse=True)
        parts = [self._optimal(known, int(member), facts, diagnostics) for member in played]
        # the block ends when the first part is expected to have been played for long enough
        shares = np.asarray(np.bincount(part, law[possible]), dtype=np.float64)
        episodes = self._episodes(state["plays"][played], shares)
        starts = {int(s): parts[i] for s, i in zip(possible, part, strict=True)}
        return replace(whole, episodes=episodes, starts=starts)

    def _optimal(
        self, known: Known, member: int, facts: Mapping[str, Any], diagnostics: Mapping[str, Any]
    ) -> Plan:
        """Return the optimal policy of a member."""
        kernels = self.family.kernels_of(member, known)
        values, policy = bellman.solve(kernels, known.states, known.horizon)
        return Plan(
            policy=policy,
            values=values,
            facts=facts,
            diagnostics={"member": member, **diagnostics},
        )

    def _episodes(self, plays: Ints, share: Floats | float) -> int:
        """Return how long a plan lasts of which members that have played plays a share each."""
        if self.replan == 0.0:
            return 1
        planned = np.maximum(1.0, self.replan * plays)
        return max(1, int((planned / share).min()))

    def _solve_steps(self, known: Known, inside: Bools) -> tuple[Floats, Ints]:
        """Return values and policy of the largest expectation at every (h, s, a)."""
        H = known.horizon
        S = known.states
        outcomes = self.family.features.attach(known)
        together = max(1, _TOGETHER // outcomes.next_state.size)
        values = np.zeros((H + 1, S))
        policy = np.zeros((H, S), dtype=np.int64)
        for h in reversed(range(H)):
            target = outcomes.bonus + values[h + 1, outcomes.next_state]
            largest = np.full(S * known.actions, -np.inf)
            members = np.flatnonzero(inside[h])
            # some members at a time, so that memory does not grow with the list
            for first in range(0, members.size, together):
                weighted = self.family.probability(members[first : first + together]) * target
                means = np.add.reduceat(weighted, outcomes.start[:-1], axis=1)
                largest = np.maximum(largest, means.max(axis=0))
            q = known.base_reward + largest.reshape(S, -1)
            policy[h] = q.argmax(axis=1)
            values[h] = q.max(axis=1)
        return values, policy
