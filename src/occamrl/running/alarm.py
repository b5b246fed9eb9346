r"""An alarm for systems that change: Shiryaev and Roberts' statistic against the model in use.

At every step :math:`M \leftarrow (M + 1)\, e`, :math:`e = .01 + .99\, q(o)/p(o)`, where o is the outcome, p the law of
the model in use and q a law that follows what happened lately, both fixed before o is seen; an alarm is raised when
:math:`M \ge 1/\alpha`. If p is right and nothing changes, e has mean 1 at most, :math:`M_n - n` is a supermartingale,
and **the mean time to a false alarm is at least** :math:`1/\alpha` **steps**; within n steps there is one with
probability at most :math:`n\alpha`.

p is the largest probability that the best fits of the classes that are left give to o: e has mean 1
at most if any of them is right, so that a class that is too simple is no change. Where no class
fits, it is that of a table of counts. It is as it was when the plan in force was made; M begins
when that rests on 100 steps, and anew when another class or member of a list, or a fit to twice the
data, takes the place of what is in use. q mixes counts over about the last 50 visits of each pair
with the fits of the classes to these counts; the weights follow who predicts well. The change is
dated where the product of all e was smallest.

With a fit in the place of the truth the figure is approximate: an estimate of p errs by less than q
does.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from occamrl.errors import ParameterError, require_number
from occamrl.protocols import Floats, Known, Learner, Plan

WINDOW = 50.0  # visits of a pair that count
_FIRST = 100  # steps that the model in use rests on before it can be accused
_REFIT = 20  # steps between fits to what happened lately
_SHARE, _BLUR = (
    0.02,
    0.02,
)  # of the weights, and of the counts in each fit, that keep every law possible
_KEPT = 0.01  # of every bet
_TINY = 1e-12

Reference = tuple[list[int], Floats, int]


class Alarm(NamedTuple):
    """The system seems to have changed; print it."""

    since: int  # about which episode, from 1
    step: int  # about which step of it, from 1
    raised: tuple[int, int]  # the episode and the step of the alarm
    alpha: float

    def __str__(self) -> str:
        return (
            f"The system seems to have changed in about episode {self.since:,}, step {self.step}: what happened up to "
            f"episode {self.raised[0]:,}, step {self.raised[1]} speaks against the model in use. "
            'Next: agent.forget(since="the change"), or agent.dismiss() if you know better.'
        )


class Watch:
    """What raises alarms; its memory is a dict of plain data."""

    def __init__(self, algorithm: Learner, known: Known, alpha: float) -> None:
        self.alpha, self.known = require_number("alarm", alpha, 0.0, 1.0, open_low=True), known
        if not hasattr(algorithm, "evidence"):
            got = f"a rate for {type(algorithm).__name__}"
            raise ParameterError(
                "alarm",
                got=got,
                expected="None, or Occam: it needs the probability of what happened",
            )
        self.evidence: Any = algorithm.evidence(known)
        self.outcomes = self.evidence.outcomes

    def begin(self) -> dict[str, Any]:
        """Return the memory before any step."""
        size, experts = self.outcomes.next_state.size, 1 + self.evidence.ladder.classes
        return {
            "key": [],  # the model in use
            "steps": 0,
            "statistic": 0.0,
            "product": 0.0,  # logarithms, of all bets and where it was smallest
            "least": 0.0,
            "since": [1, 1],
            "count": np.zeros(size),  # of what happened lately
            "fits": np.zeros((experts - 1, size)),
            "weights": np.full(experts, 1.0 / experts),
            "alarm": [],
        }

    def reference(self, state: Any, plan: Plan) -> Reference:
        """Return what is in use: a key, laws of the outcomes [.., O], and the number of steps that they rest on."""
        state = state["evidence"]
        m, rested = int(plan.facts["chosen"]) - 1, int(state["count"].sum())
        if not plan.facts["misspecified"]:
            left = [i for i, some in enumerate(self.evidence.judge(state).alive) if some and i != m]
            laws = np.array([self.evidence.fitted(state, i) for i in (m, *left)])
            return [m, self.evidence.fit_number(state, m)], laws, rested
        visits = np.add.reduceat(state["count"], self.outcomes.start[:-1])
        sizes = np.diff(self.outcomes.start)
        law = (state["count"] + 0.5) / (visits + 0.5 * sizes)[self.outcomes.pair]
        return [-1, rested.bit_length()], law[None], rested

    def see(
        self,
        memory: dict[str, Any],
        reference: Reference,
        step: tuple[int, int, int, float],
        where: Any,
    ) -> None:
        """Take note of a step (s, a, s', reward); ``where`` are its episode and its number, from 1."""
        (key, law, rested), (row, o) = reference, self.evidence.outcome_of(*step)
        if row < 0:  # at rest
            return
        following = [where[0], where[1] + 1] if where[1] < self.known.horizon else [where[0] + 1, 1]
        if memory["key"] != key:
            memory |= {
                "key": key,
                "statistic": 0.0,
                "product": 0.0,
                "least": 0.0,
                "since": list(where),
            }
        own = slice(*self.outcomes.start[row : row + 2])
        count, p = memory["count"][own], law[:, own]
        counted = (count + 0.5) / (count.sum() + 0.5 * count.size)
        fits = memory["fits"][:, own] if memory["steps"] >= _REFIT else counted
        laws = np.vstack(
            [counted, (1.0 - _BLUR) * fits + _BLUR * counted * np.ones((len(memory["fits"]), 1))]
        )
        strange = 0.01 / (count.sum() + 1.0)  # of q, for what is not listed
        if o < 0:
            ratio = strange / max(1.0 - p.sum(axis=1).min(), _TINY)
        else:
            predicted = laws[:, o - own.start]
            q = memory["weights"] @ predicted
            ratio = (1.0 - strange) * q / max(p[:, o - own.start].max(), _TINY)
            memory["weights"] = (1.0 - _SHARE) * memory[
                "weights"
            ] * predicted / q + _SHARE / predicted.size
            memory["count"][own] *= 1.0 - 1.0 / WINDOW
            memory["count"][o] += 1.0
        if rested >= _FIRST:
            bet = _KEPT + (1.0 - _KEPT) * ratio
            memory["statistic"] = min((memory["statistic"] + 1.0) * bet, 1e300)
            memory["product"] += math.log(bet)
        if memory["product"] <= memory["least"]:
            memory["least"], memory["since"] = memory["product"], following
        memory["steps"] += 1
        if memory["steps"] % _REFIT == 0:
            for m in range(len(memory["fits"])):
                memory["fits"][m] = self.evidence.refitted(memory["count"], m)
        if memory["statistic"] >= 1.0 / self.alpha:
            memory["alarm"] = memory["alarm"] or [*memory["since"], *where]
            memory |= {"statistic": 0.0, "product": 0.0, "least": 0.0, "since": following}

    def alarm(self, memory: dict[str, Any]) -> Alarm | None:
        """Return the alarm that was raised and not dealt with, if any."""
        if not memory["alarm"]:
            return None
        since, step, *raised = memory["alarm"]
        return Alarm(since, step, (raised[0], raised[1]), self.alpha)
