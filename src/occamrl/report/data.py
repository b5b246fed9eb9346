"""What a report shows, computed once from the records of an experiment and drawn elsewhere.

Records that differ only in their seed are a group. Each seed is one observation: nothing inside a
run counts as a repetition. Intervals are bootstrap intervals of a mean over seeds, as
:func:`occamrl.compare` has them; their draws are fixed, so a report that is written again is the
same. With ten seeds a nominal 95 % interval covers about 90 %.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import stats

from occamrl.answers.answer import stretch_begin
from occamrl.answers.figures import Curve, curve_of, episodes_of
from occamrl.experiments.league import league
from occamrl.experiments.pair_tests import pair_tests
from occamrl.experiments.records import Record, Records, kept_of
from occamrl.intervals import interval
from occamrl.naming import printable_name
from occamrl.protocols import Floats, Ints

COLUMNS = 48  # of a picture of decisions
_MOST_PAIRS = 10  # of agents whose tests are told one by one
MOST_ROWS = 64  # coordinates that it shows
REFERENCES = ("oracle", "largest", "smallest")
DECISIONS: dict[str, tuple[str, tuple[type, ...]]] = {  # the fact of a phase that holds them
    "features": ("chosen", (list,)),
    "class": ("chosen", (int,)),
    "norm": ("norm_bound", (int, float)),
    "base": ("base", (int,)),
}

Phase: TypeAlias = dict[str, Any]  # a stretch of equal decisions, as a record has it
Choice: TypeAlias = int | float | list[int]


class Summary(NamedTuple):
    """One number per seed in short."""

    mean: float
    interval: tuple[float, float] | None  # of the mean; none for too few seeds
    median: float
    middle_half: float  # the mean of the middle half, "IQM"


class Difference(NamedTuple):
    """Agent minus baseline, seed by seed: negative differences of regret favour the agent."""

    pairs: int
    size: Summary
    less: int  # seeds in which the agent's number is smaller
    more: int
    unpaired: list[int]  # seeds that one of them lacks: they are left out


class Settled(NamedTuple):
    """What was decided in the end."""

    episode: float  # from which on nothing changed, by the median over seeds
    words: str  # such as "settles on class 2 in 3 of 5 seeds"


class Decisions(NamedTuple):
    """The decisions of an agent at n episodes: shares of seeds, or bounds on a norm."""

    kind: str  # one of DECISIONS
    episode: Ints  # [n]
    bounds: Floats = np.zeros(0)  # [3, n]: the median, the smallest and the largest of all seeds
    labels: Sequence[str] = ()  # of what can be in play
    share: Floats = np.zeros(0)  # [labels, n], of the seeds in which it was in play
    hidden: int = 0  # what else was in play
    settled: Settled | None = None


class Sweep(NamedTuple):
    """Regret against a parameter on a problem."""

    parameter: str
    where: str
    lines: list[tuple[str, dict[float, Summary]]]  # names, and the regret at each value


@dataclass(frozen=True, eq=False)
class Group:
    """The records of one agent on one problem, by increasing seed."""

    problem: str
    agent: str
    records: Sequence[Record]

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order of the records."""
        return [record["seed"] for record in self.records]

    @property
    def kind(self) -> str:
        """The class of the agent, or its role: "largest", "oracle"."""
        return str(self.records[0]["agent"]["name"])

    @property
    def spoken(self) -> str:
        """The agent, as a sentence says it."""
        return printable_name(self.agent)

    def curves(self) -> tuple[Ints, Floats]:
        """Return episodes, up to the last one that all have, and the regret of each record."""
        runs = [kept_of(record) for record in self.records]
        episode = episodes_of(min(run.total_episodes for run in runs))
        return episode, np.array([run.regret_at(episode) for run in runs])

    def values(self, name: str) -> Floats:
        """Return a number of each record."""
        fields: list[Mapping[str, Any]] = list(self.records)
        return np.array([float(record[name]) for record in fields])

    def by_seed(self, name: str) -> dict[int, float]:
        """Return a number of each record by its seed."""
        return dict(zip(self.seeds, self.values(name).tolist(), strict=True))


class AgentResults(NamedTuple):
    """What is shown of one agent on one problem."""

    group: Group
    curve: Curve
    regret: Summary
    slope: Summary | None  # of log regret; none where no seed has one
    difference: Difference | None  # from the baseline; none without a seed in common
    decisions: Decisions | None


class ProblemResults(NamedTuple):
    """What is shown of one problem."""

    name: str
    headline: list[str]
    agents: list[AgentResults]


class Report(NamedTuple):
    """All that the report of an experiment shows."""

    records: Records
    agents: list[str]
    baseline: str
    problems: list[ProblemResults]
    sweeps: list[Sweep]
    league: list[dict[str, Any]]
    versions: dict[str, Counter[str]]  # in how many cells each was found


def groups_of(records: Iterable[Record]) -> list[Group]:
    """Return the groups, in the order in which the records name problems and agents."""
    members: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        names = (record["problem"]["label"], record["agent"]["label"])
        members.setdefault(names, []).append(record)
    groups = []
    for (problem, agent), group in members.items():
        groups.append(Group(problem, agent, sorted(group, key=lambda record: record["seed"])))
    return groups


# Numbers ------------------------------------------------------------------------------------------


def summarise(values: Floats) -> Summary:
    """Return one number per seed in short."""
    middle_half = float(stats.trim_mean(values, 0.25))
    return Summary(float(values.mean()), interval(values), float(np.median(values)), middle_half)


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """Return the differences of two agents' numbers over the seeds that both have, if any."""
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        return None
    row = np.array([ours[seed] - theirs[seed] for seed in shared])
    less = int((row < 0).sum())
    more = int((row > 0).sum())
    return Difference(row.size, summarise(row), less, more, sorted(ours.keys() ^ theirs.keys()))


def slope(episodes: Ints, cumulative_regret: Floats) -> float:
    """Return the slope of log regret against log episode over the last tenfold of a run.

    Least squares on log-spaced points, read off the curve by interpolation in logarithms. A curve
    that is zero somewhere in that part, or shorter than a doubling, has no slope: nan.
    """
    inside = episodes >= max(episodes[-1] / 10.0, 1.0)
    if inside.sum() < 2 or not (cumulative_regret[inside] > 0.0).all():
        return math.nan
    log_episode = np.log(episodes[inside])
    log_regret = np.log(cumulative_regret[inside])
    if log_episode[-1] - log_episode[0] < math.log(2.0):
        return math.nan
    x = np.linspace(log_episode[0], log_episode[-1], 33)
    coefficients = np.polyfit(x, np.interp(x, log_episode, log_regret), 1)
    return round(float(coefficients[0]), 9) + 0.0  # no -0


def agent_results(group: Group, baseline: Group | None) -> AgentResults:
    """Return what is shown of one agent on one problem."""
    episode, lines = group.curves()
    slopes = np.array([slope(episode, line) for line in lines])
    slopes = slopes[np.isfinite(slopes)]  # seeds without a slope are left out
    difference = None
    if baseline is not None and baseline is not group:
        difference = paired(group.by_seed("total_regret"), baseline.by_seed("total_regret"))
    return AgentResults(
        group=group,
        curve=curve_of(episode, lines),
        regret=summarise(group.values("total_regret")),
        slope=summarise(slopes) if slopes.size else None,
        difference=difference,
        decisions=decisions(group),
    )


# Decisions ----------------------------------------------------------------------------------------


def decisions(group: Group) -> Decisions | None:
    """Return the decisions of a group over episodes; None for agents that make none."""
    runs = []
    for record in group.records:
        runs.append([row for row in record["phases"] if row.get("label") != "estimation"])
    kind = _kind_of_decisions(runs)
    if kind is None or not all(runs):
        return None
    spread = np.geomspace(1, min(group.values("episodes")), COLUMNS).round()
    episode = np.unique(spread.astype(np.int64))
    choices = _choices_at(episode, runs, DECISIONS[kind][0])
    if kind == "norm":
        norms = [chosen or [math.nan] for chosen in choices]
        bounds = np.array([np.quantile(chosen, [0.5, 0.0, 1.0]) for chosen in norms]).T
        return Decisions(kind, episode, bounds)

    resolved = group.records[0].get("resolved") or {}
    if kind == "class" and len(resolved.get("classes") or []) == 1:
        return None
    names: dict[float, str] = {}
    true = resolved.get("true_support") or []
    if kind == "class":
        names = dict(enumerate(resolved.get("classes") or [], start=1))
        true = [resolved.get("true_class")]
    counts: list[Counter[float]] = []  # at each episode, by what was in play
    totals: Counter[float] = Counter()
    totals.update(dict.fromkeys(names, 0))  # a class that was never in play has a row, too
    for chosen in choices:
        several = [choice if isinstance(choice, list) else [choice] for choice in chosen]
        counts.append(Counter(chain.from_iterable(several)))
        totals.update(counts[-1])
    rows = sorted(row for row, _ in totals.most_common(MOST_ROWS))
    labels = {}
    for row in rows:
        label = names.get(row, str(row))
        labels[row] = (label if label in (f"F_{row}", str(row)) else f"{row} {label}")[:28]
    seeds = np.array([max(len(chosen), 1) for chosen in choices])
    return Decisions(
        kind=kind,
        episode=episode,
        labels=[f"{label} *" if row in true else label for row, label in labels.items()],
        share=np.array([[count[row] for count in counts] for row in rows]) / seeds,
        hidden=len(totals) - len(rows),
        settled=None if kind == "base" else _settled(runs, labels, len(counts[0]), true),
    )


def _kind_of_decisions(runs: Sequence[Sequence[Phase]]) -> str | None:
    """Return the first kind of decisions that some phase tells of."""
    for kind, (fact, types) in DECISIONS.items():
        if any(type(row.get(fact)) in types for row in chain(*runs)):
            return kind
    return None


def _choices_at(episode: Ints, runs: Sequence[Sequence[Phase]], fact: str) -> list[list[Choice]]:
    """Return, of each episode, what the seeds that had decided something had chosen."""
    choices: list[list[Choice]] = [[] for _ in episode]
    for rows in runs:
        begins = [row["first"] for row in rows]
        phases = np.searchsorted(begins, episode, side="right") - 1
        for chosen, phase in zip(choices, phases, strict=True):
            if phase >= 0 and rows[phase].get(fact) is not None:
                chosen.append(rows[phase][fact])
    return choices


def _settled(
    runs: Sequence[Sequence[Phase]],
    labels: Mapping[float, str],
    features: int,
    true: Sequence[Any],
) -> Settled:
    """Return what most runs chose in the end, since when, and whether it lacks the truth.

    They began with so many features.
    """
    locks = [stretch_begin(rows, "chosen", rows[-1]["chosen"], 0) for rows in runs]
    last = Counter(json.dumps(rows[-1]["chosen"]) for rows in runs)
    ((text, agree),) = last.most_common(1)
    final = json.loads(text)
    if isinstance(final, list):
        words = f"keeps {len(final)} of {max(features, len(final))} features"
    else:
        words = f"settles on class {labels.get(final, final)}"
    if agree < len(runs):
        words += f" in {agree} of {len(runs)} seeds"
    words += _wrong(final, true)
    return Settled(float(np.median(locks)), words)


def _wrong(final: Choice, true: Sequence[Any]) -> str:
    """Say what is wrong with a choice, where the truth is known."""
    if isinstance(final, list):
        lost = sorted(set(true) - set(final))
        return f", which lacks {len(lost)} of the {len(true)} that matter" if lost else ""
    if not true or true[0] is None:
        return ""
    right = int(true[0])
    if final < right:
        return f", a wrong class: the truth is in class {right}, not in this one"
    if final > right:
        return f", more than is needed: class {right} has the truth"
    return ""


# The report ---------------------------------------------------------------------------------------


def build(records: Records) -> Report:
    """Return what a report shows; differences open with the spec's baseline or the first agent."""
    tuning = set(records.spec.get("tuning_seeds", ()))  # constants are chosen on these: not shown
    groups = groups_of(record for record in records.cells if record["seed"] not in tuning)
    agents = list(dict.fromkeys(group.agent for group in groups))
    baseline = records.spec.get("baseline")
    if baseline not in agents:
        baseline = agents[0] if agents else ""
    problems: dict[str, list[Group]] = {}
    for group in groups:
        problems.setdefault(group.problem, []).append(group)
    rules = [rule_of(group.records[0]["agent"]["parameters"]) for group in groups]
    competing = bool(groups) and (bool(tuning) or any(rules))
    versions: dict[str, Counter[str]] = {}
    for record in records.cells:
        for name, text in {**record["versions"], "platform": record["platform"]}.items():
            versions.setdefault(name, Counter())[str(text)] += 1
    return Report(
        records=records,
        agents=agents,
        baseline=baseline,
        problems=[problem_results(name, some, baseline) for name, some in problems.items()],
        sweeps=sweeps(groups),
        league=league(records) if competing else [],
        versions=versions,
    )


def problem_results(name: str, groups: Sequence[Group], baseline: str) -> ProblemResults:
    """Return what is shown of one problem."""
    reference = next((group for group in groups if group.agent == baseline), None)
    results = [agent_results(group, reference) for group in groups]
    return ProblemResults(name, headline(results), results)


def headline(results: Sequence[AgentResults]) -> list[str]:
    """Return what came out on a problem: of each selector, or else who had the least regret."""
    beside = ""
    for one in results:
        role = {"largest": "largest class", "oracle": "oracle"}.get(one.group.kind)
        if role is not None:
            beside += f", that of the {role} {one.regret.mean:,.4g}"
    sentences = []
    for one in results:
        settled = one.decisions.settled if one.decisions is not None else None
        if settled is not None and one.group.kind not in REFERENCES:
            sentences.append(
                f"{one.group.spoken} {settled.words} by episode {settled.episode:,.6g} (median); "
                f"its regret is {one.regret.mean:,.4g}{beside}."
            )
    if sentences:
        return [*sentences, *tested(results)]
    first, *others = sorted(results, key=lambda one: one.regret.mean)
    sentence = f"{first.group.spoken} has the least regret, {first.regret.mean:,.4g} on average"
    if others:
        sentence += f"; next comes {others[0].group.spoken} with {others[0].regret.mean:,.4g}"
    return [sentence + ".", *tested(results)]


def tested(results: Sequence[AgentResults]) -> list[str]:
    """Return which agents differ, by paired tests that are right together; none for one agent."""
    regret = {one.group.agent: one.group.by_seed("total_regret") for one in results}
    tests = pair_tests(regret)
    sentences = list(tests.sentences)
    # of many pairs, how many
    if len(tests) > _MOST_PAIRS:
        differ = len(tests) - len(tests.equal)
        sentences = [*sentences[:1], f"{differ} of {len(tests)} pairs are told apart."]
    return sentences


# Sweeps -------------------------------------------------------------------------------------------


def rule_of(parameters: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return name and parameters of the rule among the parameters of an agent, if there is one."""
    rule = parameters.get("rule")
    return {"name": rule} if isinstance(rule, str) else rule


def sweeps(groups: Sequence[Group]) -> list[Sweep]:
    """Return mean regret against every number that a spec sweeps over.

    The points of a line differ in that parameter only.
    """
    lines: dict[tuple[str, ...], dict[float, Group]] = {}
    for group in groups:
        for kind in ("problem", "agent"):
            for line, value in _points_of(group, kind):
                lines.setdefault(line, {})[value] = group
    charts: dict[tuple[str, str], Sweep] = {}
    for (parameter, where, name, *_), points in lines.items():
        if len(points) > 1:
            chart = charts.setdefault((parameter, where), Sweep(parameter, where, []))
            regret = {x: summarise(points[x].values("total_regret")) for x in sorted(points)}
            chart.lines.append((name, regret))
    return list(charts.values())


def _points_of(group: Group, kind: str) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield, of each number among the parameters of a problem or agent, its line and its value.

    A line is the parameter, where it is drawn, its name, and what its points have in common.
    """
    record = group.records[0]
    part = record["problem"] if kind == "problem" else record["agent"]
    parameters = dict(part["parameters"])
    if (rule := rule_of(parameters)) is not None:
        parameters |= {**rule.get("parameters", {}), "rule": rule["name"]}
    # Values of a problem's parameter are different problems, of which the kind alone is common.
    where = record["problem"]["name"]
    name = record["agent"]["label"]
    if kind == "agent":
        where = record["problem"]["label"]
        name = str(parameters.get("rule", record["agent"]["name"]))
    for parameter, value in parameters.items():
        if type(value) in (int, float) and math.isfinite(value):
            others = {key: other for key, other in parameters.items() if key != parameter}
            common = json.dumps(others, sort_keys=True)
            yield (parameter, where, name, kind, common), float(value)
