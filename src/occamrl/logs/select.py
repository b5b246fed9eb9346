r"""``select``: which class of models logged episodes require.

The log is read as flows, each a tenth of the data before it, and the classes are judged after every
flow, as agents do: by *likelihood* as :class:`occamrl.Occam`, for lists of kernels one of which is
the truth; no reward is needed. Or by *value* rows as :class:`occamrl.ARLGen`, for covers and linear
classes, which is told of the flows as if it had played them: before a flow it plans a value
function from the flows before.

Predictions and values are fixed before the flow, and s and a before s'. Both tests therefore hold
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
from occamrl.control.ladder import SimulatorLadder
from occamrl.errors import ParameterError, require_choice, require_delta, require_kind
from occamrl.evidence import value
from occamrl.learners.occam import Occam
from occamrl.logs.continuous import select_simulators
from occamrl.logs.log import read_log
from occamrl.models.ladder import Ladder
from occamrl.models.model import ParametricLadder
from occamrl.protocols import Floats, Flow, Ints, Known
from occamrl.running.answer import Answer, LinearEvidence, MoreData, ValueEvidence
from occamrl.running.progress import Progress
from occamrl.selectors.arl_gen import ARLGen

_NOTHING = 1e-9  # a distance that is none


class _Likelihood:
    """A log as Occam judges it."""

    misspecified = False  # although members are left

    def __init__(self, ladder: Any, known: Known, delta: float) -> None:
        self.ladder, self.judge = (
            ladder,
            cast(Any, Occam(ladder=ladder, delta=delta).evidence(known)),
        )
        self.state = {**self.judge.begin(), "episodes": 0, "misspecified_since": 0}

    def learn(self, flow: Flow) -> None:
        self.judge.add(self.state, flow, -1)
        self.state["episodes"] += flow.episodes

    def distances(self, kernels: Ints, reference: int) -> Floats:
        """Return the relative entropies of the outcomes of one kernel to those of others, summed over the log."""
        members = self.judge.members
        visits = np.add.reduceat(self.state["count"], members.outcomes.start[:-1])[
            members.outcomes.pair
        ]
        found = members.likelihoods(
            visits * members.probability(slice(reference, reference + 1))[0]
        )
        return np.asarray(found[reference] - found[kernels])


class _Value:
    """A log as ARL-GEN judges it."""

    def __init__(self, ladder: Ladder, known: Known, delta: float) -> None:
        self.ladder, self.known, self.agent = ladder, known, ARLGen(ladder=ladder, delta=delta)
        self.judge = (ValueEvidence if ladder.finite else LinearEvidence)(self.agent, known)
        self.state = self.agent.begin(known)
        self.plan = self.agent.plan(known, self.state, generator(0, "select"))

    @property
    def misspecified(self) -> bool:
        return bool(self.plan.diagnostics["misspecified"])

    def learn(self, flow: Flow) -> None:
        self.agent.learn(self.known, self.state, self.plan, flow)
        self.plan = self.agent.plan(self.known, self.state, generator(0, "select"))

    def distances(self, kernels: Ints, reference: int) -> Floats:
        """Return twice the squared distances of the rows of one kernel from those of others, summed over the log."""
        theta, gram = self.ladder.family.theta, self.state["gram"][0]
        return 2.0 * value.losses(theta[kernels] - theta[reference], gram, np.zeros(gram.shape[:2]))


def more_data(test: _Likelihood | _Value, answer: Answer) -> MoreData | None:
    """Return what would settle the question between the class chosen and what is left outside it; None if none is."""
    size, most = answer.ladder.sizes[answer.chosen - 1], -answer.judgement.least
    score = -answer.judgement.scores[: answer.ladder.sizes[-1]]
    alive = np.flatnonzero(np.isfinite(score) & (score <= most))
    inside, outside = alive[alive < size], alive[alive >= size]
    if not inside.size or not outside.size:
        return None
    best, rival = (int(kernels[np.argmin(score[kernels])]) for kernels in (inside, outside))

    def wait(distances: Floats, reference: int) -> Floats:
        missing = max(most - float(score[reference]), 0.0)
        needed = ((math.sqrt(2.0) + math.sqrt(2.0 + 4.0 * missing)) / 2.0) ** 2
        with np.errstate(divide="ignore"):
            more = np.maximum(1.0, answer.episodes * (needed / np.maximum(distances, 0.0) - 1.0))
        return np.where(distances > _NOTHING, more, np.inf)

    times = wait(test.distances(outside, best), best)
    if_wrong = float(wait(test.distances(inside, rival), rival).max())
    return MoreData(float(np.median(times)), int(np.isinf(times).sum()), if_wrong)


def select(
    log: Any,
    ladder: Any,
    known: Known | None = None,
    *,
    delta: float = 0.05,
    evidence: str | None = None,
    progress: bool | None = None,
) -> Any:  # an Answer; of simulators, that of occamrl.control
    """Find out from logged episodes which model is needed, what to do, and what that is worth.

    >>> import occamrl as orl
    >>> from occamrl.logs.log import simulate_log
    >>> problem = orl.make_problem("patchy-ice")
    >>> log = simulate_log(problem.mdp, episodes=30)  # or a file
    >>> answer = orl.select(log, orl.Ladder.of_problem(problem), problem.mdp.known)  # print it
    >>> answer.model
    'one part'

    Parameters
    ----------
    log : Log, path, data frame or dataset
        What :func:`occamrl.read_log` takes.
    ladder : Ladder, ParametricLadder, SimulatorLadder, path or name
        A path or name is read (:func:`occamrl.read_ladder`) and brings what is known along, as a
        model does.
    known : Known, optional
        ``mdp.known`` of the problem, in the unit of the log. Value rows need it, and so do the
        policy and its worth; the likelihood does only where outcomes with one next state are told
        apart by rewards.
    delta : float
        The smallest class that holds the true kernel is rejected with probability at most delta,
        over all tests.
    evidence : "likelihood" | "value", optional
        By default value rows for covers and linear classes, the likelihood for others. Choose value
        rows where a zero of the models may be wrong.
    progress : bool, optional
        Show progress on standard error; by default only when it takes longer than a second.
    """
    if isinstance(ladder, SimulatorLadder):
        return select_simulators(log, ladder, delta=delta, progress=progress)
    if isinstance(ladder, (str, Path)):
        from occamrl.envs.ladder_file import read_ladder

        ladder = read_ladder(ladder)
    spec, ladder = ladder, getattr(ladder, "ladder", ladder)
    if callable(ladder):  # a model, whose method it is
        raise ParameterError(
            "ladder", got=repr(spec), expected="model.ladder({...}): classes by their parameters"
        )
    require_kind("ladder", ladder, (Ladder, ParametricLadder))
    require_delta(delta)
    real = isinstance(ladder, ParametricLadder)
    exact = real or (ladder.finite and ladder.family.reach == 0.0)
    evidence = evidence or ("likelihood" if exact else "value")
    require_choice("evidence", evidence, ("likelihood", "value"))
    if evidence == "likelihood" and not exact:
        expected = '"value": the truth is no member of a cover, and linear classes are no lists'
        raise ParameterError("evidence", got=repr(evidence), expected=expected)
    if evidence == "value" and real:
        expected = (
            '"likelihood"; or a list, model.family({...}): real parameters have no value rows'
        )
        raise ParameterError("evidence", got=repr(evidence), expected=expected)
    source = read_log(log)
    if known is None and real:
        known = ladder.model.known
    elif known is None:
        sizes = Known.of_sizes(
            states=ladder.features.states, actions=ladder.features.actions, horizon=source.longest
        )
        known = getattr(spec, "known", sizes)
    require_kind("known", known, Known)
    if evidence == "value" and not known.rewards_known:
        raise ParameterError(
            "known", got="sizes alone", expected="mdp.known: horizon and rewards, to plan values"
        )
    outcomes = ladder.model.layout if real else ladder.features.attach(known)
    test = (_Likelihood if evidence == "likelihood" else _Value)(ladder, known, delta)
    bar = Progress("select", source.episodes, progress)
    chosen = np.zeros((known.states, known.actions))
    history, read, since, starts = (
        list[list[float]](),
        0,
        dict[int, int](),
        np.zeros(known.states, np.int64),
    )
    for flow in source.flows(known, outcomes, getattr(spec, "rewards", None)):
        test.learn(flow)
        np.add.at(chosen, (flow.state, flow.action), flow.count)
        begins = flow.step == 0
        np.add.at(starts, flow.state[begins], flow.count[begins])
        read += flow.episodes
        history.append([read, *test.judge.judge(test.state).against.tolist()])
        over = (
            m
            for m, against in enumerate(history[-1][1:], start=1)
            if against > math.log(1.0 / delta)
        )
        since = {m: since.get(m, read) for m in over}
        bar.update(read)
    bar.close()
    answer = Answer(
        ladder=ladder,
        known=known,
        delta=delta,
        episodes=source.episodes,
        steps=source.rows,
        evidence=evidence,
        judge=test.judge,
        state=test.state,
        starts=starts,
        since=since,
        source=source.source,
        history=history,
        misfit=test.misspecified,
        actions_seen=chosen,
    )
    if not answer.misspecified and not real and ladder.finite and answer.chosen < ladder.classes:
        return replace(answer, more=more_data(test, answer))
    return answer
