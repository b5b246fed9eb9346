r"""``select``: which class of models logged episodes require.

The log is read as flows, each a tenth of the data before it, and the classes are weighed after
every flow by the evidence of their ladder, as agents do: by *likelihood* as :class:`occamrl.Occam`,
for lists of kernels one of which is the truth and for real parameters; no reward is needed. Or by
*value* rows as :class:`occamrl.ARLGen`, for covers and linear classes: before a flow that plans a
value function from the flows before, as if it had played them. Or by *exchangeability* with the
draws of simulators, step by step.

Predictions and values are fixed before the flow, and s and a before s'. The tests therefore hold
for all times at once, whoever chose the actions, as long as that was without looking ahead: with
probability 1 - delta the smallest class that holds the true kernel is never rejected.

**Evidence against a class** is the smallest, over its kernels, of the log of how much better the
mixture explains the data; by value rows twice the loss in excess of the mixture's. The class is
rejected while it exceeds log(1/delta).

**More data.** If Q is true, the evidence against P grows by d on average per log like this one (the
relative entropy of their outcomes, or twice the squared distance of their rows), with a standard
deviation of about sqrt(2 d). P is rejected once d - sqrt(2 d) exceeds what is missing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from occamrl.addresses import generator
from occamrl.answers.answer import Answer, MoreData
from occamrl.answers.today import Today
from occamrl.arrays import Floats
from occamrl.control.dynamics import Dynamics
from occamrl.control.ladder import SimulatorLadder
from occamrl.envs.ladder_file import LadderSpec, read_ladder
from occamrl.errors import (
    ParameterError,
    require_choice,
    require_delta,
    require_kind,
    require_number,
)
from occamrl.evidence.lists import ListEvidence
from occamrl.evidence.tolerant import LARGEST, TolerantEvidence, tolerant_evidence
from occamrl.evidence.value_evidence import ListValueEvidence
from occamrl.logs.continuous import select_continuous
from occamrl.logs.log import Log, read_log
from occamrl.models.ladder import Ladder
from occamrl.models.model import Model, ParametricLadder
from occamrl.progress import Progress
from occamrl.protocols import Evidence, Flow, Known, Outcomes, State
from occamrl.selectors.arl_gen import ARLGen

_NOTHING = 1e-9  # a distance that is none


def select(
    log: Any,
    ladder: Any,
    known: Known | None = None,
    *,
    delta: float = 0.05,
    tolerance: float = 0.0,
    evidence: str | None = None,
    progress: bool | None = None,
) -> Any:  # an Answer
    """Find out from logged episodes which model is needed, what to do, and what that is worth.

    >>> import occamrl as orl
    >>> from occamrl.logs.log import simulate_log
    >>> problem = orl.make_problem("patchy-ice")
    >>> log = simulate_log(problem.mdp, episodes=30)  # or a file
    >>> ladder = orl.Ladder.of_problem(problem)
    >>> answer = orl.select(log, ladder, problem.mdp.known)  # print it
    >>> answer.model
    'one part'

    Parameters
    ----------
    log : Log, path, data frame or dataset
        What :func:`occamrl.read_log` takes.
    ladder : Ladder, ParametricLadder, SimulatorLadder, Dynamics, path or name
        A path or name is read (:func:`occamrl.read_ladder`) and brings what is known along, as a
        model does.
    known : Known, optional
        ``mdp.known`` of the problem, in the unit of the log. Value rows need it, and so do the
        policy and its worth; the likelihood does only where outcomes with one next state are told
        apart by rewards.
    delta : float
        The smallest class that holds the true kernel is rejected with probability at most delta,
        over all tests.
    tolerance : float
        By how much the chances of what follows may differ from a model's at every step, in total
        variation: .02 forgives 2 points. Ranges and tests then hold for truths that change or
        depend on the past within it. For lists and real parameters, by likelihood; a cover takes
        one of at least half its reach.
    evidence : "likelihood" | "value", optional
        By default value rows for covers and linear classes, the likelihood for others. Choose value
        rows where a zero of the models may be wrong.
    progress : bool, optional
        Show progress on standard error; by default only when it takes longer than a second.
    """
    require_delta(delta)
    require_number("tolerance", tolerance, 0.0, LARGEST)
    if isinstance(ladder, (SimulatorLadder, Dynamics)):
        if tolerance:
            expected = "0: bets against continuous models forgive no share of their chances"
            raise ParameterError("tolerance", got=tolerance, expected=expected)
        return select_continuous(log, ladder, delta=delta, progress=progress)
    rewards = None
    if isinstance(ladder, (str, Path)):
        ladder = read_ladder(ladder)
    if isinstance(ladder, LadderSpec):
        rewards = ladder.rewards
        known = ladder.known if known is None else known
        ladder = ladder.ladder
    _require_ladder(ladder)
    kind = _require_evidence(ladder, evidence, tolerance)
    source = read_log(log)
    known = _known_of(ladder, source) if known is None else known
    require_kind("known", known, Known)
    if kind == "value" and not known.rewards_known:
        expected = "mdp.known: horizon and rewards, to plan values"
        raise ParameterError("known", got="sizes alone", expected=expected)
    weigher: Evidence | None = None
    if kind == "likelihood":
        weigher = tolerant_evidence(ladder, known, delta, tolerance)
    reading = Reading(ladder, known, delta, weigher)
    bar = Progress("select", source.episodes, progress)
    for flow in source.flows(known, _outcomes_of(ladder, known), rewards):
        reading.add(flow)
        bar.update(reading.episodes)
    bar.close()
    return replace(reading.answer(source), progress=progress)


def _require_ladder(ladder: object) -> None:
    if isinstance(ladder, Model):
        expected = "model.ladder({...}): classes by their parameters"
        raise ParameterError("ladder", got=repr(ladder), expected=expected)
    require_kind("ladder", ladder, (Ladder, ParametricLadder))


def _require_evidence(
    ladder: Ladder | ParametricLadder, evidence: str | None, tolerance: float
) -> str:
    """Return by what classes are judged; refuse what a ladder has not."""
    real = isinstance(ladder, ParametricLadder)
    # the members of a cover are within its reach of every truth, and total variation is half that
    exact = real or (
        isinstance(ladder, Ladder) and ladder.finite and 0.5 * ladder.reach[-1] <= tolerance
    )
    if tolerance and not exact:
        expected = "0: linear classes have no members to forgive"
        if isinstance(ladder, Ladder) and ladder.finite:
            expected = f"at least {0.5 * ladder.reach[-1]:.3g}, half the reach of the cover"
        raise ParameterError("tolerance", got=tolerance, expected=expected)
    if tolerance and evidence == "value":
        raise ParameterError("tolerance", got=tolerance, expected='0, or evidence="likelihood"')
    if evidence is None:
        return "likelihood" if exact else "value"
    require_choice("evidence", evidence, ("likelihood", "value"))
    if evidence == "likelihood" and not exact:
        expected = '"value": the truth is no member of a cover, and linear classes are no lists'
        raise ParameterError("evidence", got=repr(evidence), expected=expected)
    if evidence == "value" and real:
        expected = (
            '"likelihood"; or a list, model.family({...}): real parameters have no value rows'
        )
        raise ParameterError("evidence", got=repr(evidence), expected=expected)
    return evidence


def _known_of(ladder: Ladder | ParametricLadder, log: Log) -> Known:
    """Return what a ladder knows by itself: all of a model, the sizes alone of others."""
    if isinstance(ladder, ParametricLadder):
        return ladder.model.known
    features = ladder.features
    return Known.of_sizes(states=features.states, actions=features.actions, horizon=log.longest)


def _outcomes_of(ladder: Ladder | ParametricLadder, known: Known) -> Outcomes:
    """Return what the models list, by which rows of a log are read."""
    if isinstance(ladder, ParametricLadder):
        return ladder.model.layout
    return ladder.features.attach(known)


class Reading:
    """A log as it is read: the evidence, when classes fell, and what was done."""

    def __init__(
        self,
        ladder: Ladder | ParametricLadder,
        known: Known,
        delta: float,
        weigher: Evidence | None,
    ) -> None:
        self.ladder = ladder
        self.known = known
        self.episodes = 0
        self.log = Today(known)
        self.history: list[list[float]] = []
        # value rows need targets that were fixed before: those that ARL-GEN would plan for
        self._planner: ARLGen | None = None
        if weigher is None:
            assert isinstance(ladder, Ladder)  # noqa: S101  # real parameters have no value rows
            self._planner = ARLGen(ladder=ladder, delta=delta)
            self._learned = self._planner.begin(known)
            weigher = self._planner.evidence(known)
        self.evidence: Evidence = weigher
        self.state: State = self._learned["evidence"] if self._planner else weigher.begin()

    def add(self, flow: Flow) -> None:
        """Weigh the classes on a flow, with what was fixed before it."""
        if self._planner is None:
            self.evidence.add(self.state, flow)
        else:
            plan = self._planner.plan(self.known, self._learned, generator(0, "select"))
            self._planner.learn(self.known, self._learned, plan, flow)
        self.log.add(flow)
        self.episodes += flow.episodes
        judgement = self.evidence.judge(self.state)
        self.history.append([self.episodes, *judgement.against.tolist()])

    def answer(self, log: Log) -> Answer:
        """Return what the log says."""
        answer = Answer(
            ladder=self.ladder,
            known=self.known,
            weigher=self.evidence,
            state=self.state,
            episodes=log.episodes,
            steps=log.rows,
            source=log.source,
            history=self.history,
            log=self.log,
            columns=log.called,
            notes=log.notes,
        )
        richer = answer.chosen < len(self.ladder.names)
        if answer.misspecified or not richer or not isinstance(self.ladder, Ladder):
            return answer
        if not self.ladder.finite or answer.tolerance:
            return answer
        return replace(answer, more=self._more_data(answer))

    def _more_data(self, answer: Answer) -> MoreData | None:
        """Return what would settle the question between the class chosen and what is outside it.

        None if nothing outside is alive.
        """
        assert isinstance(self.ladder, Ladder)  # noqa: S101  # a list
        size = self.ladder.sizes[answer.chosen - 1]
        weigher = self.evidence
        if isinstance(weigher, TolerantEvidence):
            weigher = weigher.exact
        evidence = cast(ListEvidence | ListValueEvidence, weigher)
        scores, least = evidence.member_scores(self.state)
        alive = np.flatnonzero(np.isfinite(scores) & (scores >= least))
        inside = alive[alive < size]
        outside = alive[alive >= size]
        if not inside.size or not outside.size:
            return None
        best = int(inside[np.argmax(scores[inside])])
        rival = int(outside[np.argmax(scores[outside])])

        def wait(distances: Floats, reference: int) -> Floats:
            missing = max(float(scores[reference]) - least, 0.0)
            needed = ((math.sqrt(2.0) + math.sqrt(2.0 + 4.0 * missing)) / 2.0) ** 2
            with np.errstate(divide="ignore"):
                logs = needed / np.maximum(distances, 0.0) - 1.0
            episodes = np.maximum(1.0, answer.episodes * logs)
            return np.where(distances > _NOTHING, episodes, np.inf)

        waits = wait(evidence.distances(self.state, outside, best), best)
        until_wrong = wait(evidence.distances(self.state, inside, rival), rival)
        return MoreData(
            float(np.median(waits)), int(np.isinf(waits).sum()), float(until_wrong.max())
        )
