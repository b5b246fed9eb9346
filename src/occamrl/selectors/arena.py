"""An arena: a rule chooses, before every episode, which of several base learners plays it.

An arena is a learner like any other: it runs wherever one runs, and can be a base of another arena.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.errors import ParameterError, require_kind, require_number
from occamrl.protocols import Flow, Known, Learner, Plan, Played, Replay, Rule

MOST_POLICIES = 1_000  # of each base that are kept for replays


@dataclass(frozen=True, kw_only=True, eq=False)
class Arena(Learner):
    """Several base learners and a rule over them.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> bases = [orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2)), orl.UniformRandom()]
    >>> result = orl.run(orl.Arena(bases=bases, rule=orl.UCB1()), problem, episodes=50)
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

    bases: Sequence[Any]
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
            raise ParameterError(
                "rule", got=repr(self.rule)[:80], expected="a rule, with start, choose and update"
            )
        require_kind("share", self.share, bool)
        if self.largest_return is not None:
            require_number("largest_return", self.largest_return, 0.0, math.inf, open_low=True)

    def begin(self, known: Known) -> dict[str, Any]:
        """Return a fresh state: the rule's memory, the states of the bases, plays of each, and past policies."""
        count = len(self.bases)
        states = [base.begin(known) for base in self.bases]
        return {
            "memory": self.rule.start(count),
            "bases": states,
            "plays": [0] * count,
            "past": [[] for _ in states],
        }

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Ask the rule for a base, and the base for a plan of one episode."""
        chosen = self.rule.choose(state["memory"], draw)
        if isinstance(chosen, Replay):
            past = state["past"][chosen.base]
            plan, plans, base = Plan(policy=past[int(draw.integers(len(past)))]), None, chosen.base
        else:
            base = int(chosen)
            asked = range(len(self.bases)) if self.share else [base]
            plans = {i: self.bases[i].plan(known, state["bases"][i], draw) for i in asked}
            plan = plans[base]
        facts = {"base": base + 1, "label": "replay"} if plans is None else {"base": base + 1}
        keep = int(
            draw.integers(max(1, state["plays"][base] + 1))
        )  # a place in the reservoir of past policies
        told: Any = {
            "facts": facts,
            "diagnostics": {"plays": list(state["plays"])},
            "carry": (base, plans, keep),
        }
        starts = {
            start: Plan(policy=part.policy, values=part.values, **told)
            for start, part in plan.starts.items()
        }
        return Plan(policy=plan.policy, values=plan.values, starts=starts, **told)

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Tell the base that played, or all of them, and the rule."""
        base, plans, keep = plan.carry
        largest = float(known.horizon if self.largest_return is None else self.largest_return)
        start = int(flow.state[flow.step == 0][0])
        planned = (
            math.nan
            if plan.values is None or plans is None
            else float(plan.values[0, start]) / largest
        )
        earned = float(flow.reward @ (flow.count * known.discount**flow.step))
        value = min(1.0, max(0.0, earned / largest))
        self.rule.update(state["memory"], base, Played(value, planned, start, flow, plans is None))
        if plans is None:
            return
        if getattr(
            self.rule, "replays", False
        ):  # every past episode of a base is equally likely to be kept
            past = state["past"][base]
            if len(past) < MOST_POLICIES:
                past.append(np.array(plan.policy))
            elif keep < MOST_POLICIES:
                past[keep] = np.array(plan.policy)
        state["plays"][base] += 1
        for i, own in plans.items():
            self.bases[i].learn(known, state["bases"][i], own.part(start), flow)
