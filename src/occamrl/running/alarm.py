r"""An alarm for systems that change: Shiryaev and Roberts' statistic against the model in use.

At every step :math:`M \leftarrow (M + 1)\, e`, :math:`e = .01 + .99\, q(o)/p(o)`, where o is the
outcome, p the law of the model in use and q a law that follows what happened lately, both fixed
before o is seen; an alarm is raised when :math:`M \ge 1/\alpha`. If p is right and nothing changes,
e has mean 1 at most, :math:`M_n - n` is a supermartingale, and **the mean time to a false alarm is
at least** :math:`1/\alpha` **steps**; within n steps there is one with probability at most
:math:`n\alpha`.

p is the largest probability that the best fits of the classes that are alive give to o: e has mean
1 at most if any of them is right, so that a class that is too simple is no change. Where no class
fits, it is that of a table of counts. It is as it was when the plan in force was made; M begins
when that rests on 100 steps, and anew when another class or member of a list, or a fit to twice the
data, takes the place of what is in use. q mixes counts over about the last 50 visits of each pair
with the fits of the classes to these counts; the weights follow who predicts well. The change is
dated where the product of all e was smallest.

With a fit in the place of the truth the figure is approximate: an estimate of p errs by less than q
does. Where the agent has a tolerance, q/p becomes Huber's ratio
(:mod:`occamrl.evidence.tolerance`), and what changes within the tolerance is no change.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypedDict, cast

import numpy as np

from occamrl.answers.wording import points
from occamrl.errors import ParameterError, require_number
from occamrl.evidence.tolerance import huber_ratio, with_remainder
from occamrl.evidence.worlds import CountedEvidence
from occamrl.learners.occam import Occam
from occamrl.protocols import Floats, Flow, Known, Learner, Plan, State

KEPT = 20_000  # steps that are kept, to start anew from
WINDOW = 50.0  # visits of a pair that count
_FIRST = 100  # steps that the model in use rests on before it can be accused
_REFIT = 20  # steps between fits to what happened lately
_SHARED = 0.02  # of the weights, so that no law dies out
_BLUR = 0.02  # of the counts in each fit, so that every outcome stays possible
_HELD_BACK = 0.01  # of every bet
_UNLISTED = 0.01  # visits that q gives to outcomes that are not listed
_TINY = 1e-12
_TABLE = -1  # the class of a table of counts


class Alarm(NamedTuple):
    """The system seems to have changed; print it."""

    since: int  # about which episode, from 1
    step: int  # about which step of it, from 1
    raised: tuple[int, int]  # the episode and the step of the alarm
    alpha: float
    tolerance: float = 0.0  # by which the model in use may be off

    def __str__(self) -> str:
        forgiven = ""
        if self.tolerance:
            forgiven = f", even if every step may be off by {points(self.tolerance)}"
        return (
            f"The system seems to have changed in about episode {self.since:,}, step {self.step}: "
            f"what happened up to episode {self.raised[0]:,}, step {self.raised[1]} speaks against "
            f'the model in use{forgiven}. Next: agent.forget(since="the change"), or '
            "agent.dismiss() if you know better."
        )


class Reference(NamedTuple):
    """What is in use, and accused of no longer being right."""

    key: list[int]  # the class, and which member or fit of it; another one begins anew
    laws: Floats  # [laws, O] of the outcomes; the largest counts
    rests_on: int  # steps


class WatchState(TypedDict):
    """What a watch remembers between two steps."""

    alpha: float  # the rate of false alarms a step
    key: list[int]  # of the reference
    steps: int
    statistic: float  # M
    product: float  # the logarithm of all bets
    least: float  # the smallest product so far
    since: list[int]  # the episode and the step after which it was smallest
    count: Floats  # [O] of what happened lately
    fits: Floats  # [classes, O] to these counts
    weights: Floats  # [1 + classes] of the counts and the fits in q
    alarm: list[int]  # since when, and when it was raised; empty: none
    recent: Floats  # [steps, 6] episode, step, s, a, s' and reward of the last ones


class Watch:
    """What raises alarms about the model that Occam uses."""

    def __init__(self, algorithm: Learner, known: Known) -> None:
        if not isinstance(algorithm, Occam):
            raise ParameterError(
                "alarm",
                got=f"a rate for {type(algorithm).__name__}",
                expected="None, or Occam: it needs the probability of what happened",
            )
        # Occam judges by counts of outcomes; other evidence gives these no probability.
        self.evidence = cast(CountedEvidence, algorithm.evidence(known))
        self.outcomes = self.evidence.outcomes
        self.classes = algorithm.ladder.classes
        self.tolerance = algorithm.tolerance
        self.horizon = known.horizon

    def begin(self, alpha: float) -> WatchState:
        """Return the memory before any step."""
        size = self.outcomes.next_state.size
        return {
            "alpha": require_number("alarm", alpha, 0.0, 1.0, open_low=True),
            "key": [],
            "steps": 0,
            "statistic": 0.0,
            "product": 0.0,
            "least": 0.0,
            "since": [1, 1],
            "count": np.zeros(size),
            "fits": np.zeros((self.classes, size)),
            "weights": np.full(1 + self.classes, 1.0 / (1 + self.classes)),
            "alarm": [],
            "recent": np.zeros((0, 6)),
        }

    def reference(self, state: State, plan: Plan) -> Reference:
        """Return what is in use: fits of the classes that are alive, or a table of counts."""
        counted = state["evidence"]
        rests_on = int(counted["count"].sum())
        if plan.facts["misspecified"]:
            visits = np.add.reduceat(counted["count"], self.outcomes.start[:-1])
            listed = 0.5 * np.diff(self.outcomes.start)
            law = (counted["count"] + 0.5) / (visits + listed)[self.outcomes.pair]
            return Reference([_TABLE, rests_on.bit_length()], law[None], rests_on)
        chosen = int(plan.facts["chosen"]) - 1
        classes = [chosen]
        for m, alive in enumerate(self.evidence.judge(counted).alive):
            if alive and m != chosen:
                classes.append(m)
        laws = np.array([self.evidence.fitted(counted, m) for m in classes])
        return Reference([chosen, self.evidence.fit_number(counted, chosen)], laws, rests_on)

    def see(
        self,
        memory: WatchState,
        reference: Reference,
        transition: tuple[int, int, int, float],
        when: tuple[int, int],
    ) -> None:
        """Take note of a step (s, a, s', reward); ``when`` is its episode and number, from 1."""
        episode, step = when
        pair, outcome = self.evidence.outcome_of(step - 1, *transition)
        if pair < 0:  # nothing happens in an absorbing state
            return
        following = [episode, step + 1] if step < self.horizon else [episode + 1, 1]
        if memory["key"] != reference.key:
            memory["key"] = reference.key
            _restart(memory, [episode, step])
        ratio = self._ratio(memory, reference.laws, pair, outcome)
        if reference.rests_on >= _FIRST:
            e = _HELD_BACK + (1.0 - _HELD_BACK) * ratio
            memory["statistic"] = min((memory["statistic"] + 1.0) * e, 1e300)
            memory["product"] += math.log(e)
        if memory["product"] <= memory["least"]:
            memory["least"] = memory["product"]
            memory["since"] = following
        memory["steps"] += 1
        if memory["steps"] % _REFIT == 0:
            for m in range(self.classes):
                memory["fits"][m] = self.evidence.refitted(memory["count"], m)
        if memory["statistic"] >= 1.0 / memory["alpha"]:
            memory["alarm"] = memory["alarm"] or [*memory["since"], episode, step]
            _restart(memory, following)

    def _ratio(self, memory: WatchState, laws: Floats, pair: int, outcome: int) -> float:
        """Return q(o)/p(o) of an outcome, -1 if it is not listed, and count it among the latest."""
        listed = slice(*self.outcomes.start[pair : pair + 2])
        count = memory["count"][listed]
        # q leaves room for what is not listed, less and less of it.
        strange = _UNLISTED / (count.sum() + 1.0)
        counted = (count + 0.5) / (count.sum() + 0.5 * count.size)
        fits = memory["fits"][:, listed]
        if memory["steps"] < _REFIT:
            fits = np.tile(counted, (self.classes, 1))
        recent = np.vstack([counted, (1.0 - _BLUR) * fits + _BLUR * counted])
        law = np.append((1.0 - strange) * (memory["weights"] @ recent), strange)
        place = outcome - listed.start if outcome >= 0 else -1
        in_use = np.maximum(with_remainder(laws[:, listed]), _TINY)
        # the least of any that may be right
        ratio = huber_ratio(law, in_use, self.tolerance)[:, place].min()
        if outcome >= 0:
            predicted = recent[:, place]
            posterior = memory["weights"] * predicted / (memory["weights"] @ predicted)
            memory["weights"] = (1.0 - _SHARED) * posterior + _SHARED / predicted.size
            memory["count"][listed] *= 1.0 - 1.0 / WINDOW
            memory["count"][outcome] += 1.0
        return float(ratio)

    def alarm(self, memory: WatchState) -> Alarm | None:
        """Return the alarm that was raised and not dealt with, if any."""
        if not memory["alarm"]:
            return None
        since, step, *raised = memory["alarm"]
        return Alarm(since, step, (raised[0], raised[1]), memory["alpha"], self.tolerance)


def _restart(memory: WatchState, since: list[int]) -> None:
    """Begin the statistic anew."""
    memory["statistic"] = 0.0
    memory["product"] = 0.0
    memory["least"] = 0.0
    memory["since"] = since


def keep_steps(memory: WatchState, episode: int, flow: Flow) -> None:
    """Keep the steps of an episode that ended, to start anew from."""
    number = np.full(flow.step.size, episode)
    columns = [number, flow.step, flow.state, flow.action, flow.next_state, flow.reward]
    memory["recent"] = np.vstack([memory["recent"], np.column_stack(columns)])[-KEPT:]


def kept_flow(memory: WatchState, episode: int) -> Flow:
    """Return the steps that were kept of an episode."""
    rows = memory["recent"][memory["recent"][:, 0] == episode]
    step, state, action, next_state = rows[:, 1:5].astype(np.int64).T
    count = np.ones(len(rows), np.int64)
    return Flow(step, state, action, next_state, rows[:, 5], count, episodes=1)
