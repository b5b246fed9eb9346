r"""Occam: selection by likelihood among nested lists of kernels (L1 to L7).

ARL-GEN's evidence is a squared loss on V(s'), and all that V does not see is lost to it. Occam's evidence is the
likelihood of the outcomes themselves: every class is weighed against the others and against two rivals that need no
model, in one mixture of predictions. Classes are refused sooner, and a truth that lies between the members, or outside
all of them, is noticed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from occamrl._core.arena import field, model_of, resumed
from occamrl._core.rows import COUNTERS, EPISODES, MOST
from occamrl.learners import posterior
from occamrl.learners.posterior import LikelihoodLearner, LikelihoodParameters, PosteriorModel, PosteriorState
from occamrl.learners.ucrl_vtr import example_ladder
from occamrl.protocols import Floats, Ints, Known, Phase, PhaseOutcome, Selector, require_parts
from occamrl.selectors.references import own_parameters

_MOST_NUMBERS = 2**22  # probabilities at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class Occam(LikelihoodParameters, Selector):
    """Play the smallest class of a ladder that the likelihood does not refuse; notice a truth outside all of them.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("patchy-ice")
    >>> agent = orl.Occam(ladder=orl.Ladder.of_problem(problem))
    >>> result = orl.run(agent, problem, episodes=30)
    >>> result.verdict["chosen"], result.verdict["outside"]
    (1, False)

    Parameters
    ----------
    ladder : Ladder
        Nested lists of kernels F_1 < ... < F_M.
    delta : float
        The true kernel, if it is a member, stays alive at all times with probability 1 - delta (L2); with probability
        at most delta ``outside`` is reported although it is one.
    acting : "optimism" | "sampling"
        Play the member alive with the largest value, or draw a member, a mixture of members or a table of
        probabilities by posterior weight. Sampling has a guarantee on average over the prior alone.
    scope : "smallest" | "all"
        Play members of the smallest class that has one alive, or of all classes. "all" needs no separability: choose
        it when :func:`occamrl.preflight` finds blind pairs.
    replan : float
        The evidence is updated when the data have grown by this factor; 0: before every episode.
    rewards, kernel
        Unknown rewards, and one kernel per step, as in :class:`UCRLVTR`.

    Notes
    -----
    ``result.phases`` has one row per phase of 2^i episodes: the class ``chosen`` and ``since`` when it is in play, what
    is ``playing`` (a class, the hull of one, or "tabular"), how many members of each class are ``alive``, the
    ``statistics`` of the classes (Z less the log-likelihood of the best member, in nats: the evidence against the
    class) and the ``threshold`` log(1/delta) above which a class is refused, whether the truth is ``outside`` all of
    them, ``outside_since`` when, the ``misfit`` (by how much F_M is above the threshold), and how many outcomes were
    ``unlisted``, that is, impossible in every member. Draws from hulls (L7) are measured, not proved.
    """

    given = ("order",)

    @cached_property
    def _learner(self) -> LikelihoodLearner:
        return LikelihoodLearner(**own_parameters(self, LikelihoodLearner))

    @property
    def guarantee(self) -> str:
        """What is proved of its regret."""
        if self.acting == "sampling":
            return "on average over its prior"
        return "valid" if self.scope == "all" else "valid if separable"

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data."""
        return {"epoch": 1, "state": self._learner.begin(known)}

    def resume(self, known: Known, memory: dict[str, Any]) -> None:
        """Refuse a memory, as from a file, that no run could have left."""
        require_parts("memory", memory, {"epoch": (1, 62), "state": PosteriorState})
        learner = self._learner
        memory["state"] = resumed(learner, known, model_of(learner, known), learner.begin(known), memory["state"])

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Go on, for twice as many episodes as before."""
        i, state = memory["epoch"], memory.pop("state")
        facts = self._facts(model_of(self._learner, known), state)
        return Phase(self._learner, state, 2**i, epoch=i, label=str(facts["playing"]), facts=facts)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Keep the learner's state, the outcomes that wait entered."""
        memory["epoch"] += 1
        posterior.enter_outcomes(model_of(self._learner, known), outcome.state)
        memory["state"] = outcome.state

    def _facts(self, model: PosteriorModel, state: PosteriorState) -> dict[str, Any]:
        """Return what was found."""
        counters = field(state, COUNTERS)
        outside, chosen, playing = bool(counters[posterior.OUTSIDE]), int(counters[posterior.CLASS]) + 1, ""
        if outside:
            source = int(field(state, posterior.LEFT)[0])
            hull = None if source == posterior.TABULAR else self._learner.hulls[-3 - source] + 1
            chosen, playing = hull or self.ladder.classes, f"hull of F_{hull}" if hull else "tabular"
        alive, against = self._classes(model, state)
        return {
            "chosen": chosen,
            "playing": playing or f"F_{chosen}",
            "alive": alive.tolist(),
            "statistics": [_plain(each) for each in against],
            "threshold": model.slack,
            "outside": outside,
            "outside_since": int(counters[posterior.OUTSIDE_SINCE]) if outside else None,
            "misfit": _plain(float(against[-1]) - model.slack) if counters[EPISODES] else None,
            "unlisted": int(counters[posterior.UNLISTED_ROWS]),
            "since": max(1, int(counters[posterior.CLASS_SINCE])),
        }

    def _classes(self, model: PosteriorModel, state: PosteriorState) -> tuple[Ints, Floats]:
        """Return how many members of every class are alive, and Z - l(P) of its best, the largest over the steps."""
        counters, level, reach = field(state, COUNTERS), np.asarray(self.ladder.level), 0.5 * model.reach
        members, z = field(state, posterior.MEMBERS)[: counters[posterior.ALIVE]], field(state, posterior.EVIDENCE)
        found = field(state, posterior.WITHIN if reach else posterior.LIKELIHOOD)[:, : members.size]
        found = np.full_like(found, -np.inf) if counters[posterior.UNLISTED_ROWS] else found
        there = (found >= np.maximum(z - model.slack, -MOST)[:, None]).all(axis=0) | (z.size == 1)
        alive = np.bincount(level[members[there]], minlength=self.ladder.classes).cumsum()
        best = np.full((self.ladder.classes, z.size), -np.inf)
        np.maximum.at(best, level[members], found.T)
        if z.size == 1 and not counters[posterior.UNLISTED_ROWS]:  # of classes that are refused, from the counts
            count, dead = field(state, posterior.COUNT)[0], np.flatnonzero(alive[level] == 0)
            seen = np.flatnonzero(count)
            parts = [field(model, number) for number in (posterior.ENTRY, posterior.COORDINATE, posterior.ROW)]
            features = sp.csr_matrix(tuple(parts), shape=(count.size, len(model.theta)))[seen]
            for some in np.array_split(dead, 1 + dead.size * seen.size // _MOST_NUMBERS):
                with np.errstate(divide="ignore"):
                    logs = np.log(np.minimum(np.maximum(features @ model.theta[:, some], 0.0) + reach, 1.0))
                np.maximum.at(best[:, 0], level[some], count[seen] @ logs)
        return alive, np.asarray((z[:, None] - np.maximum.accumulate(best).T).max(axis=0))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Selector]:
        """Small instances on a problem, for the contract checks."""
        ladder = example_ladder(mdp)
        return [cls(ladder=ladder), cls(ladder=ladder, acting="sampling", scope="all", replan=0.0)]


def _plain(value: float) -> float | None:
    """Return a number as it is written down; None for what is not finite."""
    return float(value) if math.isfinite(value) else None
