r"""UCRL-VTR: optimism over a list of kernels (Ayoub et al. 2020; Ghosh et al. 2022, section 3).

    losses      L(P) = sum over rows of (y - <x, theta_P>)^2                       (range-weighted
    rows) sharp set   B = { P : 2 L(P) <= -log sum_P w(P) exp(-2 L(P)) + log(1/delta) } optimism
    from the start s, play the P in B with the largest optimal value V*_P(s); of equals, the best
    fit

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
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from occamrl import bellman
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
from occamrl.models.families import FiniteFamily, level, off_grid
from occamrl.protocols import Floats, Flow, Ints, Known, Learner, Plan

_TOGETHER = 2**23  # numbers that are worked on at once
_EQUAL = 9  # digits to which values are compared
_OF_ALL = 0.2  # times the share of a member's plays: the share of all episodes, where no single member plays

Inside = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTR(Learner):
    """Play the most optimistic kernel of a list that the data do not contradict.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 3, 2))  # four kernels P[s, a, s']
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
                raise ParameterError(
                    "prior", got="weights", expected="positive numbers with a sum of at most 1"
                )

    @cached_property
    def log_prior(self) -> Floats:
        """The logarithms of the weights of the members."""
        if self.prior is None:
            return np.full(self.family.size, -math.log(self.family.size))
        return np.log(as_floats("prior", self.prior))

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the state before any data: the sums over rows, and the counts of rows, episodes, starts and plays."""
        require_rewards(known, self.family.features)
        steps = known.horizon if self.kernel == "per_step" else 1
        counts = {
            "starts": np.zeros(known.states, np.int64),
            "plays": np.zeros(self.family.size, np.int64),
        }
        return {
            **value.begin(self.family.features, steps),
            "rows": np.zeros(steps),
            "episodes": 0,
            **counts,
        }

    def losses(self, state: dict[str, Any]) -> Floats:
        """Return L(P), minus the sum of y^2, of every step and member [T, m]."""
        sums = zip(state["gram"], state["xy"], strict=True)
        return np.array([value.losses(self.family.theta, gram, xy) for gram, xy in sums])

    def thresholds(self, state: dict[str, Any], losses: Floats) -> Floats:
        """Return the largest loss, minus the sum of y^2, in the sharp set of every step [T]."""
        delta, reach = self.delta / len(losses), self.family.reach
        sharp = [
            0.5 * value.threshold(2.0 * loss, self.log_prior, level(reach, delta))
            for loss in losses
        ]
        return np.array(sharp) + [off_grid(reach, rows, delta) for rows in state["rows"]]

    def confidence_set(self, state: dict[str, Any]) -> Inside:
        """Return which members are in the sharp set of every step [T, m]; some always are."""
        losses = self.losses(state)
        return np.asarray(losses <= self.thresholds(state, losses)[:, None])

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Plan optimistically over the confidence set."""
        inside = self.confidence_set(state)
        if self.kernel == "stationary":
            return self.plan_among(known, state, inside[0])
        values, policy = self._steps(known, inside)
        episodes = max(1, int(_OF_ALL * self.replan * state["episodes"]))
        return Plan(
            policy=policy,
            values=values,
            episodes=episodes,
            diagnostics={"alive": inside.sum(axis=1).tolist()},
        )

    def plan_among(self, known: Known, state: dict[str, Any], inside: Inside, **about: Any) -> Plan:
        """Plan for the member with the largest value among some [m]: from each start, and by the law of starts.

        ``about`` are facts and more diagnostics.
        """
        among, law = np.flatnonzero(inside), law_of_starts(known, state["starts"])
        among = among[
            np.argsort(self.losses(state)[0, among], kind="stable")
        ]  # of equal values the best fit is played
        first = np.round(self.family.first_values(known, among), _EQUAL)
        told = {"facts": {}, "diagnostics": {"alive": [among.size]}, **about}
        whole = self._optimal(known, int(among[np.round(first @ law, _EQUAL).argmax()]), **told)
        possible = np.flatnonzero(law if known.initial is not None else state["starts"])
        if possible.size <= 1:
            return replace(whole, episodes=self._lasts(state, whole.diagnostics["member"], 1.0))
        member, place = np.unique(among[first[:, possible].argmax(axis=0)], return_inverse=True)
        parts = [self._optimal(known, int(each), **told) for each in member]
        episodes = self._lasts(state, member, np.bincount(place, law[possible]))
        starts = {int(s): parts[i] for s, i in zip(possible, place, strict=True)}
        return replace(whole, episodes=episodes, starts=starts)

    def _optimal(
        self, known: Known, member: int, facts: dict[str, Any], diagnostics: dict[str, Any]
    ) -> Plan:
        values, policy = bellman.solve(
            [self.family.kernel_of(member, known)], known.states, known.horizon
        )
        return Plan(
            policy=policy, values=values, facts=facts, diagnostics={"member": member, **diagnostics}
        )

    def _lasts(self, state: dict[str, Any], member: Any, share: Any) -> int:
        """Return how many episodes a plan lasts of which each member is to play a share."""
        own = np.maximum(float(self.replan > 0.0), self.replan * state["plays"][member])
        return max(1, int((own / share).min()))

    def _steps(self, known: Known, inside: Inside) -> tuple[Floats, Ints]:
        """Return values and policy of the largest expectation at every (h, s, a)."""
        S, H, outcomes = known.states, known.horizon, self.family.features.attach(known)
        together = max(1, _TOGETHER // outcomes.next_state.size)
        values, policy = np.zeros((H + 1, S)), np.zeros((H, S), dtype=np.int64)
        for h in reversed(range(H)):
            target, best = (
                outcomes.bonus + values[h + 1, outcomes.next_state],
                np.full(S * known.actions, -np.inf),
            )
            members = np.flatnonzero(inside[h])
            for first in range(0, members.size, together):
                some = self.family.probability(members[first : first + together]) * target
                best = np.maximum(
                    best, np.add.reduceat(some, outcomes.start[:-1], axis=1).max(axis=0)
                )
            q = known.base_reward + best.reshape(S, -1)
            policy[h], values[h] = q.argmax(axis=1), q.max(axis=1)
        return values, policy

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Add the rows of the block."""
        self.enter(known, state, plan, flow)

    def enter(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> value.Counted:
        """Add the rows of the block, and return them."""
        new = value.add(state, self.family.features, known, plan.values, flow)
        np.add.at(
            state["rows"],
            new.step % len(state["rows"]),
            new.count * (new.x.any(axis=1) | (new.square > 0.0)),
        )
        count_starts(state, flow)
        if "member" in plan.diagnostics:
            state["plays"][plan.diagnostics["member"]] += flow.episodes
        return new


def law_of_starts(known: Known, starts: Ints) -> Floats:
    """Return the law of the first state: as known, or as counted so far if it is unknown or episodes continue."""
    if known.initial is not None and not (known.continuing and starts.any()):
        return known.initial
    return starts / starts.sum() if starts.any() else np.full(starts.size, 1.0 / starts.size)


def count_starts(state: dict[str, Any], flow: Flow) -> None:
    """Count the episodes of a block, and their first states."""
    begins = flow.step == 0
    np.add.at(state["starts"], flow.state[begins], flow.count[begins])
    state["episodes"] += flow.episodes
