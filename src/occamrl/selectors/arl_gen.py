r"""ARL-GEN: selection among nested families of kernels at any time.

Ghosh et al. 2022, section 3, in sharp form::

    before every plan
        test the classes F_1 < ... < F_M on all rows so far
        play UCRL-VTR on the smallest class that is accepted

Rows are value-targeted and range-weighted (:mod:`occamrl.evidence.value`). The tests hold at all
times at once, so that testing often costs no confidence: with probability 1 - delta the smallest
class that contains the truth is never rejected.

How classes are tested, lists and linear ones, and how a truth outside all of them is noticed,
stands in :mod:`occamrl.evidence.value_evidence`.

**Acting.** On lists by UCRL-VTR over all of the sharp set, whatever the class, which needs no
separability; with ``scope="smallest"``, as in the paper, over its members in the smallest class. On
linear classes and aggregations by UCRL-VTR-LIN on their part of the sums. The sets for acting have
the level delta/sqrt(k) after k episodes (B13), verdicts delta. A plan lasts until the data have
grown by a tenth, or det Sigma by the factor 1 + c of lazy planning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypedDict

import numpy as np

from occamrl.arrays import Ints
from occamrl.errors import (
    ParameterError,
    require_choice,
    require_delta,
    require_kind,
    require_number,
)
from occamrl.evidence import value
from occamrl.evidence.starts import acting_level
from occamrl.evidence.value_evidence import (
    LAMBDA,
    ListValueEvidence,
    ValueEvidence,
    ValueState,
)
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import Pace, optimistic_values
from occamrl.models.ladder import Ladder
from occamrl.protocols import Flow, Judgement, Known, Learner, Plan

_GROWTH = 0.1  # of the data until linear classes are tested again


class ARLGenState(TypedDict):
    """What changes while ARL-GEN learns."""

    evidence: ValueState
    plays: Ints  # [m] episodes that each member of a list has played
    pace: Pace  # of lazy planning on linear classes
    chosen: int  # the class of the last plan, from 1
    since: int  # the first episode, from 1, of the stretch in which it is chosen


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLGen(Learner):
    """Play UCRL-VTR on the smallest class of a ladder that the data do not contradict.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("patchy-ice")
    >>> agent = orl.ARLGen(ladder=orl.Ladder.of_problem(problem))
    >>> result = orl.run(agent, problem, episodes=30)
    >>> result.verdict["chosen"]
    1

    Parameters
    ----------
    ladder : Ladder
        Nested classes F_1 < ... < F_M.
    delta : float
        The smallest class that contains the true kernel is rejected with probability at most delta,
        over all tests together.
    scope : "all" | "smallest", optional
        Be optimistic over the members that are left of all classes, the default on lists, where
        ``chosen`` is a report; or of the smallest class, the paper's choice and the only one on
        linear classes. The price of that: regret is linear where the policy of a wrong class never
        goes where the class is wrong (:func:`occamrl.preflight` looks for such pairs).
    replan : float, optional
        Of lists: a plan lasts this share of the episodes that its member has played, 0.1 by
        default. Of other classes: c of lazy planning, 0.2 by default. 0: plan before every episode.

    Notes
    -----
    Facts of a plan: the class ``chosen``, ``since`` when it is, and what is ``playing``.
    Diagnostics: the ``statistics`` T_m (the smallest mean loss of each class), the ``threshold`` up
    to which a class is accepted, how many members of each list are ``alive``, and whether the
    ladder is ``misspecified``, by a ``misfit`` above 0 (the loss that even F_M does not explain) or
    by transitions that F_M does not list (``novel``).
    """

    given = ("order",)

    ladder: Ladder
    delta: float = 0.05
    scope: Literal["smallest", "all"] | None = None
    replan: float | None = None

    def __post_init__(self) -> None:
        require_kind("ladder", self.ladder, Ladder)
        require_delta(self.delta)
        if self.scope is None:
            scope = "all" if self.ladder.finite else "smallest"
            object.__setattr__(self, "scope", scope)
        require_choice("scope", self.scope, ("smallest", "all"))
        if self.replan is not None:
            require_number("replan", self.replan, 0.0, 1e100)
        if self.scope == "all" and not self.ladder.finite:
            expected = '"smallest" where classes are not lists; "all" is to play the largest class'
            raise ParameterError("scope", got='"all"', expected=expected)

    @property
    def guarantee(self) -> str:
        """What is proved about its regret."""
        return "valid" if self.scope == "all" else "valid if separable"

    @cached_property
    def _base(self) -> UCRLVTR:
        """UCRL-VTR on the largest list, with the prior of the ladder."""
        replan = 0.1 if self.replan is None else self.replan
        return UCRLVTR(
            family=self.ladder.family, delta=self.delta, prior=self.ladder.prior, replan=replan
        )

    def evidence(self, known: Known) -> ValueEvidence:
        """Return what weighs the classes on a problem."""
        return self.ladder.value_evidence(known, self.delta)

    def begin(self, known: Known) -> ARLGenState:
        """Return the state before any data."""
        return {
            "evidence": self.evidence(known).begin(),
            "plays": np.zeros(self.ladder.sizes[-1], np.int64),
            "pace": Pace(np.zeros(1)),
            "chosen": 1,
            "since": 1,
        }

    def plan(self, known: Known, state: ARLGenState, draw: np.random.Generator) -> Plan:
        """Test the classes, and plan on the smallest that is accepted."""
        evidence = self.evidence(known)
        judgement = evidence.judge(state["evidence"])
        facts = self._facts(state, judgement.chosen)
        diagnostics = self._diagnostics(known, state, judgement)
        if isinstance(evidence, ListValueEvidence):
            playable = evidence.playable(state["evidence"])
            if self.scope == "smallest":
                playable &= self.ladder.level < judgement.chosen
            diagnostics["alive"] = list(judgement.alive)
            sums = {**state["evidence"], "plays": state["plays"]}
            return self._base.plan_among(
                known, sums, playable, facts=facts, diagnostics=diagnostics
            )
        return self._plan_linear(known, state, facts, diagnostics)

    def _plan_linear(
        self, known: Known, state: ARLGenState, facts: dict[str, Any], diagnostics: dict[str, Any]
    ) -> Plan:
        """Plan by UCRL-VTR-LIN on the part of the sums that belongs to the class chosen."""
        sums = state["evidence"]
        chosen = facts["chosen"]
        family = self.ladder.family_of(chosen)
        gram, xy = self.ladder.statistics(chosen, sums["gram"][0], sums["xy"][0])
        ellipsoid = value.ridge(gram[None], xy[None], LAMBDA)
        logdet = ellipsoid.logdet.sum(axis=1)
        level = acting_level(self.delta, sums["episodes"])
        radius = value.squared_radius(logdet, level, LAMBDA, family.norm_bound)
        optimistic = optimistic_values(family.own_features, known, ellipsoid, np.sqrt(radius))
        before = state["pace"] if chosen == state["chosen"] else Pace(logdet)
        pace = before.next(logdet, optimistic, 0.2 if self.replan is None else self.replan)
        return Plan(
            policy=optimistic.policy,
            values=optimistic.values,
            episodes=min(pace.episodes, max(1, int(_GROWTH * sums["episodes"]))),
            facts=facts,
            diagnostics=diagnostics,
            carry=pace,
        )

    def _facts(self, state: ARLGenState, chosen: int) -> dict[str, Any]:
        episodes = state["evidence"]["episodes"]
        since = episodes + 1
        if episodes and chosen == state["chosen"]:
            since = state["since"]
        return {"chosen": chosen, "playing": self.ladder.names[chosen - 1], "since": since}

    def _diagnostics(
        self, known: Known, state: ARLGenState, judgement: Judgement
    ) -> dict[str, Any]:
        """Return the statistics behind a decision: mean losses, that of y^2 included."""
        sums = state["evidence"]
        losses = self.evidence(known).losses(sums)
        rows = max(1, sums["episodes"] * known.horizon)
        squares = float(sums["yy"].sum())
        return {
            "names": list(self.ladder.names),
            "statistics": [float(loss + squares) / rows for loss in losses.least],
            "threshold": (losses.threshold + squares) / rows,
            "misfit": losses.misfit,
            "novel": judgement.novel,
            "misspecified": judgement.misspecified,
        }

    def learn(self, known: Known, state: ARLGenState, plan: Plan, flow: Flow) -> None:
        """Add the rows of the block, and keep what was decided before it."""
        self.evidence(known).add(state["evidence"], replace(flow, values=plan.values))
        if self.ladder.finite and "member" in plan.diagnostics:
            state["plays"][plan.diagnostics["member"]] += flow.episodes
        if not self.ladder.finite:
            state["pace"] = plan.carry._replace(episodes=flow.episodes)
        state["chosen"] = plan.facts["chosen"]
        state["since"] = plan.facts["since"]
