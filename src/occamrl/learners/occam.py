r"""Occam: selection among nested lists of kernels by the likelihood of the outcomes themselves.

ARL-GEN judges by a squared loss on V(s'), and all that V does not see is lost to it. Occam weighs everything that could
explain the data in one mixture of predictions, Z (:mod:`occamrl.evidence.likelihood`): every member of the ladder with
its prior, the mixtures of the members of each small class (its *hull*), and plain counts.

    members     l(P) = sum over outcomes of c log P(o)
    alive       P with l(P) >= Z - log(1/delta)
    class       the smallest that has a member alive

**Acting.** By *optimism*: play the member alive with the largest value, of that class or of all. By *sampling*: draw a
member alive, a hull or the counts by weight in Z, then a kernel from it, and play its optimal policy.

**Misspecified.** If nobody is alive, the truth is no member, but for a probability of delta. Optimism then goes on
with draws from the smallest hull that is not refused, or else from the tabular class, which also knows the outcomes
that every member calls impossible; sampling is left with these anyway.

**How long a plan lasts.** A member, a tenth of the episodes that it has played before; a draw, 2 % of all episodes; a
draw from the tabular class, one episode, because rare draws are its exploration.

**Covers** are refused. A truth between the members is forgiven a share of each probability there, which is linear in
the number of outcomes, and a wrong class would be kept for thousands of episodes. Value rows can do it: ARL-GEN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from occamrl import bellman
from occamrl.errors import ParameterError, require_choice, require_number, require_rewards
from occamrl.evidence import likelihood
from occamrl.evidence.likelihood import Members
from occamrl.learners.ucrl_vtr import count_starts, first_values, law_of_starts
from occamrl.models.ladder import Ladder
from occamrl.protocols import Floats, Flow, Known, Learner, Plan

_DRAWS = 0.2  # times the share of a member's plays: the share of all episodes that a draw lasts


class Judgement(NamedTuple):
    """What the evidence says of the members of a ladder."""

    scores: Floats  # [m + E] of members, hulls and counts
    z: float
    alive: NDArray[np.bool_]  # [m]
    hulls: list[int]  # classes, from 1, whose hull is not refused


@dataclass(frozen=True, kw_only=True, eq=False)
class Occam(Learner):
    """Play the smallest class of a ladder that the likelihood does not refuse, and notice a truth outside all of them.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("patchy-ice")
    >>> agent = orl.Occam(ladder=orl.Ladder.of_problem(problem))
    >>> result = orl.run(agent, problem, episodes=30)
    >>> result.verdict["chosen"], result.verdict["misspecified"]
    (1, False)

    Parameters
    ----------
    ladder : Ladder
        Nested lists of kernels F_1 < ... < F_M.
    delta : float
        The true kernel, if it is a member, stays alive at all times with probability 1 - delta; with probability at
        most delta ``misspecified`` is reported although it is one.
    acting : "optimism" | "sampling"
        Sampling has a guarantee on average over the prior alone.
    scope : "smallest" | "all"
        Play members of the smallest class that has one alive, or of all classes. "all" needs no separability: choose
        it when :func:`occamrl.preflight` finds unidentifiable pairs.
    replan : float
        A plan lasts this share of the episodes that its member has played; a draw, a fifth of this share of all
        episodes. 0: plan before every episode.

    Notes
    -----
    Facts of a plan: the class ``chosen`` and ``since`` when it is, what is ``playing``, whether the ladder is
    ``misspecified``. Grounds: the ``statistics`` of the classes (Z less the likelihood of the best member, in nats: the
    evidence against the class; None: it makes impossible what was seen) and the ``threshold`` log(1/delta) above which
    a class is refused, how many members of each are ``alive``, the classes whose ``hulls`` are not refused,
    ``misspecified_since`` when, and how many outcomes were ``novel``, that is, impossible in every member.
    """

    given = ("order",)

    ladder: Ladder
    delta: float = 0.05
    acting: Literal["optimism", "sampling"] = "optimism"
    scope: Literal["smallest", "all"] = "smallest"
    replan: float = 0.1

    def __post_init__(self) -> None:
        require_choice("acting", self.acting, ("optimism", "sampling"))
        require_choice("scope", self.scope, ("smallest", "all"))
        require_number("delta", self.delta, 1e-300, 1.0)
        require_number("replan", self.replan, 0.0, 1e100)
        if not isinstance(self.ladder, Ladder) or not self.ladder.finite:
            raise ParameterError("ladder", got=repr(self.ladder), expected="a Ladder of lists of kernels")
        if self.ladder.family.reach > 0.0:
            expected = "no cover radius: CoverFamily(..., reach=0.0) if the truth is a grid point, else use ARLGen"
            raise ParameterError("ladder", got="classes that are covers", expected=expected)

    @property
    def guarantee(self) -> str:
        """What is proved of its regret."""
        if self.acting == "sampling":
            return "on average over its prior"
        return "valid" if self.scope == "all" else "valid if separable"

    @cached_property
    def hulls(self) -> dict[int, int]:
        """The classes, from 1, whose hulls compete, and how many members they have."""
        return likelihood.hull_sizes(self.ladder)

    @cached_property
    def log_weights(self) -> Floats:
        """The logarithms of the weights in Z: of the members, of the hulls, of the counts."""
        return likelihood.log_weights(self.ladder)

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the state before any data: the evidence, the plays of members, and what was decided last."""
        require_rewards(known)
        members = Members.of(self.ladder.family, known)
        evidence = likelihood.begin(members.outcomes, list(self.hulls.values()))
        counts = {"starts": np.zeros(known.states, np.int64), "plays": np.zeros(members.size, np.int64)}
        return {**evidence, "episodes": 0, **counts, "chosen": 1, "since": 1, "misspecified_since": 0}

    def judge(self, known: Known, state: dict[str, Any]) -> Judgement:
        """Weigh members, hulls and counts."""
        members = Members.of(self.ladder.family, known)
        scores = likelihood.scores(state, members)
        most = math.log(1.0 / self.delta) - float(logsumexp(self.log_weights + scores))  # log(1/delta) - Z
        hulls = likelihood.open_hulls(state, members, -most)
        left = [m for m, still in zip(self.hulls, hulls, strict=True) if still]
        return Judgement(scores, math.log(1.0 / self.delta) - most, -scores[: members.size] <= most, left)

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Judge the classes; choose or draw what is played."""
        found, level, names = self.judge(known, state), self.ladder.level, self.ladder.names
        misspecified = not found.alive.any()
        if misspecified:
            chosen = found.hulls[0] if found.hulls else self.ladder.classes
            playing = f"blends of the {names[chosen - 1]!r} models" if found.hulls else "a table of what was counted"
        else:
            chosen = int(level[found.alive].min()) + 1
            playing = names[chosen - 1]
        may_play = found.alive & (level < chosen) if self.scope == "smallest" else found.alive
        source = self._source(known, state, found, may_play, draw)
        kernel = self._kernel(known, state, source, draw)
        values, policy = bellman.solve([kernel], known.states, known.horizon)
        episodes = 1
        if source < self.log_weights.size - 1:  # not the tabular class
            drawn = self.acting == "sampling" or source >= level.size
            played = _DRAWS * state["episodes"] if drawn else state["plays"][source]
            episodes = max(1, int(self.replan * played))
        since = state["since"] if state["episodes"] and chosen == state["chosen"] else state["episodes"] + 1
        facts = {"chosen": chosen, "playing": playing, "misspecified": misspecified, "since": since}
        grounds = {**self.grounds(state, found), "source": source}
        return Plan(policy=policy, values=values, episodes=episodes, facts=facts, grounds=grounds)

    def _source(
        self, known: Known, state: dict[str, Any], found: Judgement, may_play: Any, draw: np.random.Generator
    ) -> int:
        """Return the number of what is played: of a member, then of the hulls, then of the counts."""
        size, classes = may_play.size, list(self.hulls)
        if self.acting == "sampling":
            weight = self.log_weights + found.scores
            weight[:size][~may_play] = -np.inf
            return int((weight + draw.gumbel(size=weight.size)).argmax())
        if may_play.any():
            among = np.flatnonzero(may_play)
            first = first_values(self.ladder.family, known, among) @ law_of_starts(known, state["starts"])
            return int(among[first.argmax()])
        return int(size) + (classes.index(found.hulls[0]) if found.hulls else len(classes))

    def _kernel(self, known: Known, state: dict[str, Any], source: int, draw: np.random.Generator) -> bellman.Kernel:
        """Return the kernel of a member, or one drawn from a hull or from the tabular class."""
        members = Members.of(self.ladder.family, known)
        if source < members.size:
            return self.ladder.family.kernel_of(source, known)
        if source < members.size + len(self.hulls):
            outcomes, probability = members.outcomes, likelihood.draw_hull(state, members, source - members.size, draw)
        else:
            outcomes, probability = likelihood.draw_table(state, members.outcomes, draw)
        return bellman.kernel_of(outcomes, probability, known)

    def grounds(self, state: dict[str, Any], found: Judgement) -> dict[str, Any]:
        """Return on what grounds the classes were judged."""
        classes, level = self.ladder.classes, self.ladder.level
        best = np.full(classes, -np.inf)
        np.maximum.at(best, level, found.scores[: level.size])
        against = found.z - np.maximum.accumulate(best)
        since = 0 if found.alive.any() else state["misspecified_since"] or state["episodes"] + 1
        return {
            "names": list(self.ladder.names),
            "statistics": [float(each) if math.isfinite(each) else None for each in against],
            "threshold": math.log(1.0 / self.delta),
            "alive": np.bincount(level[found.alive], minlength=classes).cumsum().tolist(),
            "hulls": found.hulls,
            "misspecified": bool(since),
            "misspecified_since": since or None,
            "novel": int(state["novel"][:, 2].sum()),
        }

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Count the outcomes of the block, and keep what was decided before it."""
        members = Members.of(self.ladder.family, known)
        likelihood.add(state, members.outcomes, known, flow, members.hull)
        count_starts(state, flow)
        if plan.grounds.get("source", members.size) < members.size:
            state["plays"][plan.grounds["source"]] += flow.episodes
        state["chosen"], state["since"] = plan.facts.get("chosen", 1), plan.facts.get("since", 1)
        state["misspecified_since"] = plan.grounds.get("misspecified_since") or 0
