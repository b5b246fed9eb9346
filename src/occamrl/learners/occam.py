r"""Occam: selection among nested classes of models by the likelihood of the outcomes themselves.

ARL-GEN judges by a squared loss on V(s'), and all that V does not see is lost to it. Occam weighs
everything that could explain the data in one mixture of predictions, Z, and rules out what explains
them too poorly:

    alive       P with l(P) >= Z - log(1/delta),   l(P) = sum over outcomes of c log P(o)
    class       the smallest that has a member alive

Classes are nested lists of kernels (:class:`occamrl.evidence.likelihood.Lists`: Z has every member,
with the prior of the ladder, the mixtures of the members of small classes, and plain counts), or
models with real parameters (:class:`occamrl.evidence.parametric.Parametric`: Z has the predictions
of the best fits, and plain counts).

**Acting.** By *optimism*: play what is alive with the largest value, in that class or in all. By
*sampling*: draw what is played by its weight in Z. By the best *fit*: no guarantee, and often good.

**Misspecified.** If nothing is alive, the truth is in no class, except with probability delta. The
agent then plays draws from the smallest class whose mixtures still fit, or else from the tabular
class, which also knows the outcomes that are impossible under every member.

**How long a plan lasts.** A member, a tenth of the episodes that it has played before; a draw, or
real parameters, 2 % of all episodes; a draw from the tabular class, one episode, because rare draws
are its exploration.

**Covers** are refused. To allow for a truth between the members, each probability would have to be
forgiven a share, which is linear in the number of outcomes: a wrong class would be kept for
thousands of episodes. Write the class as a model with real parameters (:class:`occamrl.Model`), or
judge it by value rows (ARL-GEN).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from occamrl import bellman
from occamrl.errors import (
    ParameterError,
    require_choice,
    require_delta,
    require_number,
    require_rewards,
)
from occamrl.evidence.likelihood import Judgement, Lists
from occamrl.evidence.parametric import Parametric
from occamrl.learners.ucrl_vtr import count_starts, law_of_starts
from occamrl.models.ladder import Ladder
from occamrl.models.model import ParametricLadder
from occamrl.protocols import Flow, Known, Learner, Plan


@dataclass(frozen=True, kw_only=True, eq=False)
class Occam(Learner):
    """Play the smallest class of a ladder that the likelihood does not rule out; notice a truth outside all of them.

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
    acting : "optimism" | "sampling" | "fit"
        Sampling has a guarantee on average over the prior alone, the best fit has none.
    scope : "smallest" | "all"
        Play members of the smallest class that has one alive, or of all classes. "all" needs no
        separability: choose it when :func:`occamrl.preflight` finds unidentifiable pairs.
    replan : float
        A plan lasts this share of the episodes that its member has played; a draw, a fifth of this
        share of all episodes. 0: plan before every episode.

    Notes
    -----
    Facts of a plan: the class ``chosen`` and ``since`` when it is, what is ``playing``, whether the ladder is
    ``misspecified``. Grounds: the ``statistics`` of the classes (the evidence against each, in nats: Z minus the
    likelihood of its best member; None: what was seen is impossible under the class) and the ``threshold`` log(1/delta)
    above which a class is ruled out, how many members of each are ``alive``, the classes whose ``hulls`` are not ruled
    out, ``misspecified_since`` when, how many outcomes were ``novel``, that is, impossible under every member, and the
    ``parameters`` of what is played, where these are real.
    """

    given = ("order",)

    ladder: Ladder | ParametricLadder
    delta: float = 0.05
    acting: Literal["optimism", "sampling", "fit"] = "optimism"
    scope: Literal["smallest", "all"] = "smallest"
    replan: float = 0.1

    def __post_init__(self) -> None:
        require_choice("acting", self.acting, ("optimism", "sampling", "fit"))
        require_choice("scope", self.scope, ("smallest", "all"))
        require_delta(self.delta)
        require_number("replan", self.replan, 0.0, 1e100)
        if isinstance(self.ladder, ParametricLadder):
            return
        if not isinstance(self.ladder, Ladder) or not self.ladder.finite:
            expected = "a Ladder of lists, or model.ladder(...); ARLGen takes linear classes"
            raise ParameterError("ladder", got=repr(self.ladder), expected=expected)
        if self.ladder.family.reach > 0.0:
            expected = "orl.Model(...).ladder(...) for real parameters, ARLGen, or CoverFamily(..., reach=0.0)"
            raise ParameterError(
                "ladder", got="covers, which likelihood cannot judge", expected=expected
            )

    @property
    def guarantee(self) -> str:
        """What is proved of its regret."""
        if self.acting == "fit":
            return "none"
        if self.acting == "sampling":
            return "on average over its prior"
        if isinstance(self.ladder, ParametricLadder):
            return "selection valid, optimism searched"
        return "valid" if self.scope == "all" else "valid if separable"

    def evidence(self, known: Known) -> Any:  # Lists or Parametric
        """Return what weighs the classes on a problem."""
        return _evidence(self.ladder, known, self.delta)

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the state before any data: the evidence, the first states, and what was decided last."""
        require_rewards(known)
        about = {"episodes": 0, "starts": np.zeros(known.states, np.int64)}
        return {
            **self.evidence(known).begin(),
            **about,
            "chosen": 1,
            "since": 1,
            "misspecified_since": 0,
        }

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Judge the classes; choose or draw what is played."""
        evidence, names = self.evidence(known), self.ladder.names
        found = evidence.judge(state)
        misspecified = not any(found.left)
        if misspecified:
            chosen = found.blends[0] if found.blends else self.ladder.classes
            playing = (
                f"blends of the {names[chosen - 1]!r} models"
                if found.blends
                else "a table of what was counted"
            )
        else:
            chosen = next(m for m, left in enumerate(found.left, start=1) if left)
            playing = names[chosen - 1]
        most, law = (
            chosen if self.scope == "smallest" else self.ladder.classes,
            law_of_starts(known, state["starts"]),
        )
        choice = evidence.choose(state, found, most, self.acting, law, draw)
        values, policy = bellman.solve([choice.kernel], known.states, known.horizon)
        since = (
            state["since"]
            if state["episodes"] and chosen == state["chosen"]
            else state["episodes"] + 1
        )
        facts = {"chosen": chosen, "playing": playing, "misspecified": misspecified, "since": since}
        diagnostics = {**self.diagnostics(state, found), "source": choice.source, **choice.about}
        episodes = max(1, int(self.replan * choice.played))
        return Plan(
            policy=policy, values=values, episodes=episodes, facts=facts, diagnostics=diagnostics
        )

    def diagnostics(self, state: dict[str, Any], found: Judgement) -> dict[str, Any]:
        """Return on what grounds the classes were judged."""
        since = 0 if any(found.left) else state["misspecified_since"] or state["episodes"] + 1
        return {
            "names": list(self.ladder.names),
            "statistics": [float(each) if math.isfinite(each) else None for each in found.against],
            "threshold": math.log(1.0 / self.delta),
            "alive": found.left,
            "hulls": found.blends,
            "misspecified": bool(since),
            "misspecified_since": since or None,
            "novel": found.novel,
            "draws": getattr(self.ladder, "draws", 0),
        }

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Count the outcomes of the block, and keep what was decided before it."""
        count_starts(state, flow)
        self.evidence(known).add(state, flow, plan.diagnostics.get("source", -1))
        state["chosen"], state["since"] = plan.facts.get("chosen", 1), plan.facts.get("since", 1)
        state["misspecified_since"] = plan.diagnostics.get("misspecified_since") or 0


@lru_cache(maxsize=32)
def _evidence(ladder: Any, known: Known, delta: float) -> Lists | Parametric:
    """Return the evidence for a ladder on a problem; made once for both."""
    return (Parametric if isinstance(ladder, ParametricLadder) else Lists)(ladder, known, delta)
