"""An arena: a rule chooses, before every episode, which of several base learners plays it.

    before an episode   the rule chooses a base, which plans; or a past policy of a base
    after it            the base learns from it (or all do), and the rule is told the return

An arena is a learner like any other: it runs wherever one runs, and can be a base of another arena.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from occamrl.errors import ParameterError, require_kind, require_number
from occamrl.protocols import Flow, Known, Learner, Plan, Played, Replay, Rule, State

MOST_POLICIES = 1_000  # of each base that are kept for replays

Policy = NDArray[Any]  # actions [H, S], or probabilities of actions [H, S, A]


class ArenaState(TypedDict):
    """What the rule and the bases remember."""

    memory: State  # of the rule
    bases: list[State]
    plays: list[int]  # episodes of each base, replays apart
    past: list[list[Policy]]  # of each base, for replays


class Turn(NamedTuple):
    """Who plays an episode."""

    base: int
    plans: dict[int, Plan] | None  # of the bases that learn from it; None: a replay
    slot: int  # of the past policies, should this one be kept


@dataclass(frozen=True, kw_only=True, eq=False)
class Arena(Learner):
    """Several base learners and a rule over them.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> greedy = orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2))
    >>> arena = orl.Arena(bases=[greedy, orl.UniformRandom()], rule=orl.UCB1())
    >>> result = orl.run(arena, problem, episodes=50)
    >>> plays = result.state["plays"]  # episodes of each base

    Parameters
    ----------
    bases : sequence of learners
        Learners, selectors or other arenas. Each keeps its own state, and learns from the episodes
        that it plays.
    rule : Rule
        Says before every episode which base plays it, and is told the return.
    share : bool
        Let every base learn from every episode. Confidence sets, counts and posteriors stay valid,
        because they allow any choice of (s, a) that does not look ahead. What is lost is a bound on
        the regret of a base by its own plays, on which rules rely that compare bases. Learners
        whose updates assume that they play their own policy must not share. Replays are shared with
        nobody.
    largest_return : float, optional
        The largest possible sum of rewards of an episode, which rules see returns divided by; by
        default the horizon.
    """

    bases: Sequence[Learner]
    rule: Rule
    share: bool = False
    largest_return: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.bases, Sequence) or not self.bases:
            raise ParameterError("bases", got=repr(self.bases)[:80], expected="a list of learners")
        object.__setattr__(self, "bases", tuple(self.bases))
        for i, base in enumerate(self.bases):
            if isinstance(base, type) or not isinstance(base, Learner):
                expected = "a learner, with begin, plan and learn"
                raise ParameterError("bases", got=repr(base)[:80], expected=expected, index=(i,))
        if isinstance(self.rule, type) or not isinstance(self.rule, Rule):
            expected = "a rule, with start, choose and update"
            raise ParameterError("rule", got=repr(self.rule)[:80], expected=expected)
        require_kind("share", self.share, bool)
        if self.largest_return is not None:
            require_number("largest_return", self.largest_return, 0.0, math.inf, open_low=True)

    def begin(self, known: Known) -> ArenaState:
        """Return a fresh state."""
        return {
            "memory": self.rule.start(len(self.bases)),
            "bases": [base.begin(known) for base in self.bases],
            "plays": [0] * len(self.bases),
            "past": [[] for _ in self.bases],
        }

    def plan(self, known: Known, state: ArenaState, draw: np.random.Generator) -> Plan:
        """Ask the rule for a base, and the base for a plan of one episode."""
        chosen = self.rule.choose(state["memory"], draw)
        plans: dict[int, Plan] | None = None
        if isinstance(chosen, Replay):
            base = chosen.base
            past = state["past"][base]
            plan = Plan(policy=past[int(draw.integers(len(past)))])
            facts = {"base": base + 1, "label": "replay"}
        else:
            base = int(chosen)
            asked = range(len(self.bases)) if self.share else [base]
            plans = {i: self.bases[i].plan(known, state["bases"][i], draw) for i in asked}
            plan = plans[base]
            facts = {"base": base + 1}
        # every past episode of a base is equally likely to be kept: a reservoir
        slot = int(draw.integers(max(1, state["plays"][base] + 1)))
        whole = Plan(
            policy=plan.policy,
            values=plan.values,
            facts=facts,
            diagnostics={"plays": list(state["plays"])},
            carry=Turn(base, plans, slot),
        )
        starts = {}
        for start, part in plan.starts.items():
            starts[start] = replace(whole, policy=part.policy, values=part.values)
        return replace(whole, starts=starts)

    def learn(self, known: Known, state: ArenaState, plan: Plan, flow: Flow) -> None:
        """Tell the base that played, or all of them, and the rule."""
        turn: Turn = plan.carry
        played = self._played(known, plan, flow)
        self.rule.update(state["memory"], turn.base, played)
        # a replay is there to measure a base; it is shared with nobody
        if turn.plans is None:
            return
        # a rule of the user's need not say that it replays nothing
        if getattr(self.rule, "replays", False):
            keep_policy(state["past"][turn.base], np.array(plan.policy), turn.slot)
        state["plays"][turn.base] += 1
        for i, planned in turn.plans.items():
            self.bases[i].learn(known, state["bases"][i], planned.part(played.start), flow)

    def _played(self, known: Known, plan: Plan, flow: Flow) -> Played:
        """Return an episode as the rule is told of it."""
        largest = float(known.horizon if self.largest_return is None else self.largest_return)
        start = int(flow.state[flow.step == 0][0])
        earned = float(flow.reward @ (flow.count * known.discount**flow.step))
        # rules assume returns in [0, 1], which a largest return that is too small would break
        value = min(1.0, max(0.0, earned / largest))
        replay = plan.carry.plans is None
        planned = math.nan
        if plan.values is not None and not replay:
            planned = float(plan.values[0, start]) / largest
        return Played(value, planned, start, flow, replay)


def keep_policy(past: list[Policy], policy: Policy, slot: int) -> None:
    """Keep a policy while there is room, and then in place of another if its slot says so."""
    if len(past) < MOST_POLICIES:
        past.append(policy)
    elif slot < MOST_POLICIES:
        past[slot] = policy
