r"""``select``: which class of models logged episodes require.

The log is read as flows, each a tenth of the data before it, and the classes are judged after every flow, as agents do:
by *likelihood* as :class:`occamrl.Occam`, for lists of kernels one of which is the truth; no reward is needed. Or by
*value* rows as :class:`occamrl.ARLGen`, for covers and linear classes, which is told of the flows as if it had played
them: before a flow it plans a value function from the flows before.

Predictions and values are fixed before the flow, and s and a before s'. Both tests therefore hold for all times at
once, whoever chose the actions, as long as that was without looking ahead: with probability 1 - delta the smallest
class that holds the true kernel is never rejected.

**Evidence against a class** is the smallest, over its kernels, of the log of how much better the mixture explains the
data; by value rows twice the loss in excess of the mixture's. The class is rejected while it exceeds log(1/delta).

**More data.** If Q is true, the evidence against P grows by d on average per log like this one (the relative entropy of
their outcomes, or twice the squared distance of their rows), with a standard deviation of about sqrt(2 d). P is
rejected once d - sqrt(2 d) exceeds what is missing.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from occamrl.control.answer import Answer, select_simulators
from occamrl.control.ladder import SimulatorLadder
from occamrl.errors import ParameterError, require_choice, require_kind, require_number
from occamrl.evidence import likelihood, value
from occamrl.evidence.likelihood import Members
from occamrl.learners.occam import Occam
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.logs.log import read_log
from occamrl.models.ladder import Ladder
from occamrl.protocols import Floats, Flow, Ints, Known
from occamrl.running.result import table_of_rows
from occamrl.running.run import Progress, generator
from occamrl.running.verdict import Verdict, count, ordinal
from occamrl.selectors.arl_gen import ARLGen

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

DECIDED = "decided"  # every kernel that is left lies in the class chosen, and every smaller class is rejected
AT_LEAST = "at least"  # every smaller class is rejected; larger ones are not excluded
NOT_ENOUGH = "not enough data"  # nothing is rejected, nothing larger is excluded
OUTSIDE = "misspecified"  # no class explains the data
_NOTHING = 1e-9  # a distance that is none


@dataclass(frozen=True)
class MoreData:
    """How many more episodes would be needed, at the rate at which the log tells kernels apart; infinite: never."""

    half: float  # to exclude half of the kernels that are left outside the class chosen, if that is the right one
    never: int  # how many of them no such log can tell from the best kernel of the class chosen
    if_wrong: float  # to reject the class chosen, if the best kernel outside it is the truth


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """The answer of :func:`select`: print it, ``plot()`` the evidence over time, or take the ``table``."""

    names: tuple[str, ...]
    sizes: list[int]  # kernels of each class, or parameters
    left: list[int] | None  # kernels of each class that are not rejected; None for linear classes
    chosen: int  # the smallest class that is not rejected, from 1; the largest where all are
    status: str  # "decided" | "at least" | "not enough data" | "misspecified"
    sentences: tuple[str, ...]
    more: MoreData | None
    history: list[list[float]]  # episodes read, and the evidence against each class by then
    threshold: float  # above which a class is rejected: log(1/delta)
    delta: float
    evidence: str  # "likelihood" | "value"
    source: str
    episodes: int
    steps: int
    pairs_met: int  # of all (s, a)
    pairs: int

    @property
    def verdict(self) -> Verdict:
        """The answer as a run gives it: facts by name, and sentences."""
        facts = {"chosen": self.chosen, "status": self.status, "misspecified": self.status == OUTSIDE}
        facts |= {"names": list(self.names), "statistics": self.history[-1][1:], "threshold": self.threshold}
        found = Verdict(facts | {"alive": self.left})
        found.sentences = self.sentences
        return found

    def rejected_after(self, m: int) -> int | None:
        """Return since how many episodes class m has been rejected; None if it is not."""
        when = None
        for episodes, *against in reversed(self.history):
            if not against[m - 1] > self.threshold:
                break
            when = int(episodes)
        return when

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of :attr:`table`, as dictionaries."""
        left = [None] * len(self.names) if self.left is None else self.left
        numbers = range(1, len(self.names) + 1)
        since = [self.rejected_after(m) for m in numbers]
        columns = zip(numbers, self.names, self.sizes, left, self.history[-1][1:], since, strict=True)
        names = ("class", "name", "size", "left", "evidence_against", "rejected_after")
        return [dict(zip(names, row, strict=True)) for row in columns]

    @property
    def table(self) -> pa.Table:
        """A row for each class: its size, how many kernels are left, the evidence against it, since when it is out."""
        return table_of_rows(self.rows)

    def as_data(self) -> dict[str, Any]:
        """Return plain data, as JSON takes it; infinite numbers become None."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)), parse_constant=lambda _: None)
        return plain

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the evidence against each class as the log was read, on the current axes unless some are given."""
        import matplotlib.pyplot as plt

        axes = plt.gca() if axes is None else axes
        table = np.array(self.history)
        top = 3.0 * max(self.threshold, float(table[:, 1:].max(where=np.isfinite(table[:, 1:]), initial=0.0)))
        for m, name in enumerate(self.names, start=1):
            axes.plot(table[:, 0], np.clip(table[:, m], -self.threshold, top), label=name)
        axes.axhline(self.threshold, color="black", linestyle="--", linewidth=1.0, label="rejected above")
        axes.set(xscale="log", xlabel="episodes read", ylabel="evidence against the class")
        axes.set_yscale("symlog", linthresh=2.0 * self.threshold)
        axes.legend(fontsize="small")
        return axes

    def __str__(self) -> str:
        met = f"{self.pairs_met} of {self.pairs} state-action pairs met"
        lines = [f"{self.source}: {self.episodes:,} episodes, {self.steps:,} steps, {met}; delta {self.delta:g}"]
        width = max(len(name) for name in self.names)
        for row in self.rows:
            mark = "->" if row["class"] == self.chosen and self.status != OUTSIDE else "  "
            fate = "not rejected" if row["rejected_after"] is None else f"rejected after {row['rejected_after']:,}"
            left = "" if row["left"] is None else f", {row['left']:,} of {row['size']:,} kernels left"
            against = f"evidence against it {row['evidence_against']:8.2f}"
            lines.append(f"{mark} {row['class']}. {row['name']:<{width}}  {against}  {fate}{left}")
        lines.append(f"   rejected above {self.threshold:.2f}, by {self.evidence}")
        return "\n".join([*lines, *self.sentences])


class _Likelihood:
    """A log as Occam judges it."""

    def __init__(self, ladder: Ladder, known: Known, delta: float) -> None:
        self.ladder, self.known, self.agent = ladder, known, Occam(ladder=ladder, delta=delta)
        self.members = Members.of(ladder.family, known)
        self.state = likelihood.begin(self.members.outcomes, list(self.agent.hulls.values()))
        self.state |= {"episodes": 0, "misspecified_since": 0}

    def learn(self, flow: Flow) -> None:
        likelihood.add(self.state, self.members.outcomes, self.known, flow, self.members.hull)
        self.state["episodes"] += flow.episodes

    def grounds(self) -> dict[str, Any]:
        """Return the grounds of a plan of Occam, with the evidence against each class."""
        found = self.agent.grounds(self.state, self.agent.judge(self.known, self.state))
        against = [math.inf if each is None else each for each in found["statistics"]]
        return {**found, "against": against, "chosen": next((m for m, n in enumerate(found["alive"], 1) if n), 0)}

    def scores(self) -> tuple[Floats, float]:
        """Return the score of every kernel, and the largest that is alive."""
        judged = self.agent.judge(self.known, self.state)
        return -judged.scores[: self.members.size], math.log(1.0 / self.agent.delta) - judged.z

    def distances(self, kernels: Ints, reference: int) -> Floats:
        """Return the relative entropies of the outcomes of one kernel to those of others, summed over the log."""
        start, pair = self.members.outcomes.start, self.members.outcomes.pair
        visits = np.add.reduceat(self.state["count"], start[:-1])[pair]
        found = self.members.likelihoods(visits * self.members.probability(slice(reference, reference + 1))[0])
        return np.asarray(found[reference] - found[kernels])


class _Value:
    """A log as ARL-GEN judges it."""

    def __init__(self, ladder: Ladder, known: Known, delta: float) -> None:
        self.ladder, self.known, self.agent = ladder, known, ARLGen(ladder=ladder, delta=delta)
        self.state = self.agent.begin(known)
        self.plan = self.agent.plan(known, self.state, generator(0, "select"))

    def learn(self, flow: Flow) -> None:
        self.agent.learn(self.known, self.state, self.plan, flow)
        self.plan = self.agent.plan(self.known, self.state, generator(0, "select"))

    def grounds(self) -> dict[str, Any]:
        """Return the grounds of a plan of ARL-GEN, with the evidence against each class."""
        found = {**self.plan.facts, **self.plan.grounds}
        rows = max(1, self.state["episodes"] * self.known.horizon)
        excess = 2.0 * rows * (np.array(found["statistics"]) - found["threshold"])
        return {**found, "against": (excess + math.log(1.0 / self.agent.delta)).tolist(), "hulls": []}

    def scores(self) -> tuple[Floats, float]:
        """Return the score of every kernel, and the largest that is alive."""
        base = UCRLVTR(family=self.ladder.family, delta=self.agent.delta, prior=self.ladder.prior)
        losses = base.losses(self.state)
        return 2.0 * losses[0], 2.0 * float(base.thresholds(self.state, losses)[0])

    def distances(self, kernels: Ints, reference: int) -> Floats:
        """Return twice the squared distances of the rows of one kernel from those of others, summed over the log."""
        theta, gram = self.ladder.family.theta, self.state["gram"][0]
        return 2.0 * value.losses(theta[kernels] - theta[reference], gram, np.zeros(gram.shape[:2]))


def more_data(test: _Likelihood | _Value, chosen: int, episodes: int) -> MoreData | None:
    """Return what would settle the question between the class chosen and what is left outside it; None if none is."""
    (score, most), size = test.scores(), test.ladder.sizes[chosen - 1]
    alive = np.flatnonzero(np.isfinite(score) & (score <= most))
    inside, outside = alive[alive < size], alive[alive >= size]
    if not inside.size or not outside.size:
        return None
    best, rival = (int(kernels[np.argmin(score[kernels])]) for kernels in (inside, outside))

    def wait(distances: Floats, reference: int) -> Floats:
        missing = max(most - float(score[reference]), 0.0)
        needed = ((math.sqrt(2.0) + math.sqrt(2.0 + 4.0 * missing)) / 2.0) ** 2
        with np.errstate(divide="ignore"):
            more = np.maximum(1.0, episodes * (needed / np.maximum(distances, 0.0) - 1.0))
        return np.where(distances > _NOTHING, more, np.inf)

    times = wait(test.distances(outside, best), best)
    if_wrong = float(wait(test.distances(inside, rival), rival).max())
    return MoreData(float(np.median(times)), int(np.isinf(times).sum()), if_wrong)


def _sentences(ladder: Ladder, chosen: int, status: str, more: MoreData | None, facts: dict[str, Any]) -> list[str]:
    """Say which class is needed, what is left open, and what to do next."""
    if status == OUTSIDE:
        found = ["None of your models explains the data: the truth is in no class of the ladder."]
        if facts["novel"]:
            found.append(f"{facts['novel']:,} steps of the log are transitions that no model allows{facts['where']}.")
        if facts["hulls"]:
            name = ladder.names[facts["hulls"][0] - 1]
            found.append(f"Blends of the {name!r} models do: the truth lies between them.")
        return [*found, "Next: list finer values, add a richer class, or look for zeros that are wrong."]
    found = [f"You need {ladder.names[chosen - 1]!r} ({ordinal(chosen)} of {count(ladder.classes)} models)."]
    if status == NOT_ENOUGH:
        found = [f"{ladder.names[0]!r}, the simplest, is not contradicted, and nothing larger is excluded."]
    elif chosen > 1:
        found.append("Every smaller class is rejected.")
    if status == DECIDED and chosen < ladder.classes:
        found.append("Every kernel outside it is rejected as well.")
    elif status != DECIDED and not ladder.finite:
        found.append("A larger linear class holds this one: data can never exclude it, only fail to ask for it.")
    elif status != DECIDED:
        found.append("Larger classes are not excluded.")
    if more is None:
        return found
    if math.isfinite(more.half):
        found.append(f"If it is right, about {more.half:,.0f} more such episodes exclude half of what is left outside.")
    if more.never:
        found.append(f"{more.never:,} kernels outside it predict the same at every step: only other data can tell.")
    if math.isfinite(more.if_wrong):
        found.append(f"If the best kernel outside it is the truth, about {more.if_wrong:,.0f} more episodes reject it.")
    return found


@overload
def select(log: Any, ladder: SimulatorLadder, *, delta: float = 0.05, progress: bool | None = None) -> Answer: ...
@overload
def select(log: Any, ladder: Any, known: Known | None = None, **options: Any) -> Selection: ...
def select(  # type: ignore[misc]  # the options are spelled out here
    log: Any,
    ladder: Any,
    known: Known | None = None,
    *,
    delta: float = 0.05,
    evidence: str | None = None,
    progress: bool | None = None,
) -> Selection | Answer:
    """Find the smallest class of models that explains logged episodes.

    >>> import occamrl as orl
    >>> from occamrl.logs.log import simulate_log
    >>> problem = orl.make_problem("patchy-ice")
    >>> log = simulate_log(problem.mdp, episodes=30)  # or a file
    >>> answer = orl.select(log, orl.Ladder.of_problem(problem))  # print it
    >>> answer.chosen
    1

    Parameters
    ----------
    log : Log, path, data frame or dataset
        What :func:`occamrl.read_log` takes.
    ladder : Ladder, path or name, or SimulatorLadder
        A path or name is read (:func:`occamrl.read_ladder`) and brings what is known along. Simulators that can only be
        run are tested on continuous states (:func:`occamrl.control.answer.transitions` says what such a log is).
    known : Known, optional
        ``mdp.known`` of the problem, in the unit of the log. Value rows need it; the likelihood does only where
        outcomes with one next state are told apart by rewards.
    delta : float
        The smallest class that holds the true kernel is rejected with probability at most delta, over all tests.
    evidence : "likelihood" | "value", optional
        By default value rows for covers and linear classes, the likelihood for other lists. Choose value rows where a
        zero of the models may be wrong.
    progress : bool, optional
        Show progress on standard error; by default only when it takes longer than a second.
    """
    if isinstance(ladder, SimulatorLadder):
        return select_simulators(log, ladder, delta=delta, progress=progress)
    if isinstance(ladder, (str, Path)):
        from occamrl.envs.ladder_file import read_ladder

        ladder = read_ladder(ladder)
    spec, ladder = ladder, getattr(ladder, "ladder", ladder)
    require_kind("ladder", ladder, Ladder)
    require_number("delta", delta, 1e-300, 1.0)
    exact = ladder.finite and ladder.family.reach == 0.0
    evidence = evidence or ("likelihood" if exact else "value")
    require_choice("evidence", evidence, ("likelihood", "value"))
    if evidence == "likelihood" and not exact:
        expected = '"value": the truth is no member of a cover, and linear classes are no lists'
        raise ParameterError("evidence", got=repr(evidence), expected=expected)
    if known is None:
        sizes = Known.of_sizes(states=ladder.features.states, actions=ladder.features.actions, horizon=1)
        known = getattr(spec, "known", sizes)
    require_kind("known", known, Known)
    if evidence == "value" and not known.rewards_known:
        raise ParameterError("known", got="sizes alone", expected="mdp.known: horizon and rewards, to plan values")
    source, outcomes = read_log(log), ladder.features.attach(known)
    test = (_Likelihood if evidence == "likelihood" else _Value)(ladder, known, delta)
    bar = Progress("select", source.episodes, progress)
    met, history, read, where = np.zeros(known.states * known.actions, bool), list[list[float]](), 0, ""
    for flow in source.flows(known, outcomes, getattr(spec, "rewards", None)):
        pair = flow.state * known.actions + flow.action
        unlisted = outcomes.locate(pair, flow.next_state, np.zeros(pair.size), known.states) < 0
        if unlisted.any() and not where:
            s, a, s2 = (int(column[unlisted][0]) for column in (flow.state, flow.action, flow.next_state))
            where = f", such as one from state {s} by action {a} to {s2}"
        test.learn(flow)
        met[pair], read = True, read + flow.episodes
        history.append([read, *test.grounds()["against"]])
        bar.update(read)
    bar.close()
    facts = test.grounds() | {"where": where}
    chosen, more = int(facts["chosen"]) or ladder.classes, None
    status = OUTSIDE if facts["misspecified"] else DECIDED
    if status == DECIDED and chosen < ladder.classes:
        more = more_data(test, chosen, read) if ladder.finite else None
        if more is not None or not ladder.finite:
            status = AT_LEAST if chosen > 1 else NOT_ENOUGH
    return Selection(
        names=ladder.names,
        sizes=ladder.sizes,
        left=facts.get("alive"),
        chosen=chosen,
        status=status,
        sentences=tuple(_sentences(ladder, chosen, status, more, facts)),
        more=more,
        history=history,
        threshold=math.log(1.0 / delta),
        delta=delta,
        evidence=evidence,
        source=source.source,
        episodes=source.episodes,
        steps=source.rows,
        pairs_met=int(met.sum()),
        pairs=met.size,
    )
