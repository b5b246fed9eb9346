r"""Occam: selection among nested classes of models by the likelihood of the outcomes themselves.

ARL-GEN judges by a squared loss on V(s'), and all that V does not see is lost to it. Occam weighs
everything that could explain the data in one mixture of predictions, Z, and rules out what explains
them too poorly:

    alive       P with l(P) >= Z - log(1/delta),   l(P) = sum over outcomes of c log P(o)
    class       the smallest that has a member alive

Classes are nested lists of kernels (:class:`occamrl.evidence.lists.ListEvidence`: Z has every
member, with the prior of the ladder, the mixtures of the members of small classes, and plain
counts), or models with real parameters (:class:`occamrl.evidence.parametric.ParametricEvidence`: Z
has the predictions of the best fits, and plain counts).

**Acting.** By *optimism*: play what is alive with the largest value, in all classes or in that one.
By *sampling*: draw what is played by its weight in Z. By the best *fit*: no guarantee, and often
good. What is alive for acting is so at the level delta/sqrt(k) after k episodes (B13), so that an
unlucky start is not for ever; classes are ruled out at delta.

**Misspecified.** If nothing is alive, the truth is in no class, except with probability delta. The
agent then plays draws from the smallest class whose mixtures still fit, or else tables that begin
with the nearest member, as if counts had shown it as precisely as it seems to be right, and learn
from what is counted; they also know the outcomes that are impossible under every member. Nothing is
proved of that; it is measured (``python -m studies.tolerance acting``).

**How long a plan lasts.** A member, a tenth of the episodes that it has played before; a draw, or
real parameters, 2 % of all episodes, and never more than have been played, so that there have been
log k draws or more after k episodes; a draw from the tabular class, while some member fits, one
episode, because rare draws are its exploration.

**Covers** are refused. To allow for a truth between the members, each probability would have to be
forgiven a share, which is linear in the number of outcomes: a wrong class would be kept for
thousands of episodes. Write the class as a model with real parameters (:class:`occamrl.Model`), or
judge it by value rows (ARL-GEN).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

import numpy as np

from occamrl import bellman
from occamrl.errors import (
    ParameterError,
    require_choice,
    require_delta,
    require_number,
    require_rewards,
)
from occamrl.evidence.starts import law_of_next
from occamrl.evidence.tolerant import LARGEST, tolerant_evidence
from occamrl.evidence.worlds import Acting, Choice, FiniteEvidence
from occamrl.models.ladder import Ladder
from occamrl.models.model import ParametricLadder
from occamrl.protocols import Flow, Judgement, Known, Learner, Plan, State

_OF_ALL = 0.2  # a draw lasts this part of what a member would that had played all episodes


class OccamState(TypedDict):
    """What changes while Occam learns."""

    evidence: State  # of the ladder's evidence
    plays: dict[int, int]  # episodes that each source has played
    chosen: int  # the class of the last plan, from 1
    since: int  # the first episode, from 1, of the stretch in which it is chosen
    misspecified_since: int  # the first episode, from 1, without a class that fits; 0: none


@dataclass(frozen=True, kw_only=True, eq=False)
class Occam(Learner):
    """Judge classes of models by likelihood while acting, and notice if none of them is right.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("patchy-ice")
    >>> agent = orl.Occam(ladder=orl.Ladder.of_problem(problem))
    >>> result = orl.run(agent, problem, episodes=30)
    >>> result.verdict["chosen"], result.verdict["misspecified"]
    (1, False)

    Parameters
    ----------
    ladder : Ladder or ParametricLadder
        Nested lists of kernels F_1 < ... < F_M; or ``model.ladder(...)``, classes with real
        parameters.
    delta : float
        With probability 1 - delta the smallest class that contains the truth is never ruled out,
        and ``misspecified`` is not reported if there is one.
    tolerance : float
        By how much the chances of what follows may differ from a model's at every step, in total
        variation. Verdicts forgive so much; while a member fits exactly, acting does not change.
        A cover takes a tolerance of at least half its reach.
    acting : "optimism" | "sampling" | "fit", optional
        By default optimism on lists, where it is proved, and sampling with real parameters, where
        optimism would be a search. The best fit has no guarantee.
    scope : "all" | "smallest"
        Play members of all classes, or of the smallest that has one alive, which is the paper's
        choice. Its price: regret is linear where the policy of a wrong class never goes where the
        class is wrong (:func:`occamrl.preflight` looks for such pairs).
    replan : float
        A plan lasts this share of the episodes that its member has played; a draw, a fifth of this
        share of all episodes. 0: plan before every episode.

    Notes
    -----
    Facts of a plan: the class ``chosen`` and ``since`` when it is, what is ``playing``, whether the
    ladder is ``misspecified``. Diagnostics: the ``statistics`` of the classes (the evidence against
    each, in nats: Z minus the likelihood of its best member; None: what was seen is impossible
    under the class) and the ``threshold`` log(1/delta) above which a class is ruled out, how many
    members of each are ``alive``, the classes whose ``hulls`` are not ruled out,
    ``misspecified_since`` when, how many outcomes were ``novel``, that is, impossible under every
    member, and the ``parameters`` of what is played, where these are real.
    """

    given = ("order",)

    ladder: Ladder | ParametricLadder
    delta: float = 0.05
    tolerance: float = 0.0
    acting: Acting | None = None
    scope: Literal["smallest", "all"] = "all"
    replan: float = 0.1

    def __post_init__(self) -> None:
        if self.acting is not None:
            require_choice("acting", self.acting, ("optimism", "sampling", "fit"))
        require_choice("scope", self.scope, ("smallest", "all"))
        require_delta(self.delta)
        require_number("replan", self.replan, 0.0, 1e100)
        require_number("tolerance", self.tolerance, 0.0, LARGEST)
        if isinstance(self.ladder, ParametricLadder):
            return
        if not isinstance(self.ladder, Ladder) or not self.ladder.finite:
            expected = "a Ladder of lists, or model.ladder(...); ARLGen takes linear classes"
            raise ParameterError("ladder", got=repr(self.ladder), expected=expected)
        if 0.5 * self.ladder.reach[-1] > self.tolerance:
            expected = (
                f"a tolerance of at least {0.5 * self.ladder.reach[-1]:.3g}; "
                "or orl.Model(...).ladder(...), ARLGen, CoverFamily(..., reach=0.0)"
            )
            raise ParameterError(
                "ladder", got="covers, which likelihood cannot judge", expected=expected
            )

    @property
    def guarantee(self) -> str:
        """What is proved about its regret."""
        if self.acts == "fit" or self.tolerance or isinstance(self.ladder, ParametricLadder):
            return "none"
        if self.acts == "sampling":
            # members of larger classes have weight 0 in the smallest: no prior is averaged over
            return "on average over its prior" if self.scope == "all" else "none"
        return "valid" if self.scope == "all" else "valid if separable"

    @property
    def acts(self) -> Acting:
        """How it acts: as ``acting`` says or, by default, as suits the ladder."""
        if self.acting is not None:
            return self.acting
        return "sampling" if isinstance(self.ladder, ParametricLadder) else "optimism"

    def evidence(self, known: Known) -> FiniteEvidence:
        """Return what weighs the classes on a problem."""
        if self.tolerance:
            return tolerant_evidence(self.ladder, known, self.delta, self.tolerance)
        return cast(FiniteEvidence, self.ladder.evidence(known, self.delta))

    def begin(self, known: Known) -> OccamState:
        """Return the state before any data."""
        require_rewards(known)
        return {
            "evidence": self.evidence(known).begin(),
            "plays": {},
            "chosen": 1,
            "since": 1,
            "misspecified_since": 0,
        }

    def plan(self, known: Known, state: OccamState, draw: np.random.Generator) -> Plan:
        """Judge the classes; choose or draw what is played."""
        evidence = self.evidence(known)
        weighed = state["evidence"]
        judgement = evidence.judge(weighed)
        chosen, playing = self._decide(judgement)
        classes = chosen if self.scope == "smallest" else self.ladder.classes
        law = law_of_next(known, weighed)
        choice = evidence.choose(weighed, judgement, classes, self.acts, law, draw)
        values, policy = bellman.solve(choice.kernels, known.states, known.horizon)
        return Plan(
            policy=policy,
            values=values,
            episodes=self._episodes(state, choice),
            facts={
                "chosen": chosen,
                "playing": playing,
                "misspecified": judgement.misspecified,
                "since": self._since(state, chosen),
            },
            diagnostics=self._diagnostics(state, judgement, choice),
        )

    def _decide(self, judgement: Judgement) -> tuple[int, str]:
        """Return the class chosen, from 1, and what is played, in words."""
        names = self.ladder.names
        if not judgement.misspecified:
            return judgement.chosen, names[judgement.chosen - 1]
        if judgement.blends:
            chosen = judgement.blends[0]
            return chosen, f"blends of the {names[chosen - 1]!r} models"
        return self.ladder.classes, "the nearest model, mended by what was counted"

    def _since(self, state: OccamState, chosen: int) -> int:
        """Return the first episode, from 1, of the stretch in which a class is chosen."""
        episodes: int = state["evidence"]["episodes"]
        if episodes and chosen == state["chosen"]:
            return state["since"]
        return episodes + 1

    def _episodes(self, state: OccamState, choice: Choice) -> int:
        """Return how long a plan lasts: see the top of this file."""
        played = 0.0
        if choice.lasts == "member":
            played = state["plays"].get(choice.source, 0)
        elif choice.lasts == "draw":
            episodes = state["evidence"]["episodes"]
            return max(1, int(min(self.replan * _OF_ALL, 1.0) * episodes))
        return max(1, int(self.replan * played))

    def _diagnostics(
        self, state: OccamState, judgement: Judgement, choice: Choice
    ) -> dict[str, Any]:
        """Return the statistics behind a decision."""
        statistics = [float(nats) if math.isfinite(nats) else None for nats in judgement.against]
        since = 0
        if judgement.misspecified:
            since = state["misspecified_since"] or state["evidence"]["episodes"] + 1
        diagnostics: dict[str, Any] = {
            "names": list(self.ladder.names),
            "statistics": statistics,
            "threshold": math.log(1.0 / self.delta),
            "alive": list(judgement.alive),
            "hulls": list(judgement.blends),
            "misspecified": judgement.misspecified,
            "misspecified_since": since or None,
            "novel": judgement.novel,
            "draws": self.ladder.draws,
            "source": choice.source,
        }
        if choice.parameters:
            diagnostics["parameters"] = dict(choice.parameters)
        return diagnostics

    def learn(self, known: Known, state: OccamState, plan: Plan, flow: Flow) -> None:
        """Add the block to the evidence, and keep what was decided before it."""
        self.evidence(known).add(state["evidence"], flow)
        source = plan.diagnostics.get("source")
        if source is not None:
            state["plays"][source] = state["plays"].get(source, 0) + flow.episodes
        state["chosen"] = plan.facts.get("chosen", 1)
        state["since"] = plan.facts.get("since", 1)
        state["misspecified_since"] = plan.diagnostics.get("misspecified_since") or 0
