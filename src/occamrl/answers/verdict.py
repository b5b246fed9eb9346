"""The verdict of a run: what a selector would decide now, its diagnostics, and sentences."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from occamrl.answers.answer import stretch_begin
from occamrl.answers.wording import count_of, lines_of, listed, position, which_model
from occamrl.errors import OccamRLError
from occamrl.naming import printable, printable_name, quoted
from occamrl.protocols import System

if TYPE_CHECKING:
    from occamrl.running.result import Result

Row = dict[str, Any]  # of the phases of a run


class Verdict(dict[str, Any]):
    """What a selector would decide now: facts and diagnostics by name, and ``sentences``.

    ``print(verdict)`` prints the sentences. A selector that has reasons of its own puts them into
    the diagnostics of its plans, as ``because``.
    """

    def __init__(self, facts: Mapping[str, Any], say: Callable[[Verdict], Iterable[str]]) -> None:
        super().__init__(facts)
        self._say = say

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The verdict for a person to read; ranges are searched for when it is asked for."""
        return tuple(printable(sentence) for sentence in self._say(self))

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        return "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.sentences)


def parameter_of(result: Result, name: str) -> Any:
    """Return a parameter of the agent; None where a learner, which may be a user's, has none."""
    return getattr(result.agent, name, None)


def agent_of(result: Result) -> str:
    """Return the label of the agent, as a sentence says it."""
    return printable_name(result.label)


def verdict_of(result: Result) -> Verdict:
    """Return the verdict of a result."""
    if isinstance(result.known, System):
        return controlled(result)
    if not result.total_episodes:
        return Verdict({}, lambda _: ["No episode has been played yet."])
    plan = result.next_plan
    facts = {**plan.facts, **plan.diagnostics}
    rows = [row for row in result.phase_rows if row.get("label") != "estimation"]
    rows = rows or result.phase_rows
    if isinstance(facts.get("chosen"), int):
        facts["since"] = stretch_begin(rows, "chosen", facts["chosen"], result.total_episodes)
    return Verdict(facts, lambda verdict: _said(result, verdict, rows))


def _said(result: Result, verdict: Verdict, rows: Sequence[Row]) -> list[str]:
    """Return the sentences of a verdict."""
    sentences = []
    if "chosen" in verdict:
        sentences = _what_was_chosen(result, verdict, rows)
    elif "plays" in verdict and parameter_of(result, "bases") is not None:
        sentences = turns(result, verdict["plays"])
    elif "norm_bound" not in verdict:
        sentences = [f"{agent_of(result)} reports no choice among models."]
    if "norm_bound" in verdict:
        sentences.append(norm_sentence(result, verdict))
    return [*sentences, earned(result)]


def controlled(result: Result) -> Verdict:
    """Return the verdict of a controller; it decides step by step, so there need be no episode."""
    try:
        answer = result.answer
    except OccamRLError:  # it selects nothing
        return Verdict({}, lambda _: [f"{agent_of(result)} reports no choice among models."])
    judgement = answer.judgement
    facts = {
        "names": list(answer.ladder.names),
        "chosen": judgement.chosen,
        "misspecified": judgement.misspecified,
        "statistics": judgement.against.tolist(),
        "threshold": answer.threshold,
        "alive": list(judgement.alive),
        "rejected_after": list(judgement.rejected_after),
        "status": answer.status,
        "member": answer.most_plausible,
        "parameters": {name: interval.value for name, interval in answer.parameters.items()},
    }
    return Verdict(facts, lambda _: lines_of(answer.said))


def _what_was_chosen(result: Result, verdict: Verdict, rows: Sequence[Row]) -> list[str]:
    """Say which class, set of features or other thing a selector has chosen."""
    chosen = verdict["chosen"]
    if isinstance(chosen, int):
        try:
            return answered(result, verdict)
        except OccamRLError:  # it has evidence of its own
            return chosen_class(result, verdict, class_names(result, verdict), rows)
    begin = stretch_begin(rows, "chosen", chosen, result.total_episodes)
    features = parameter_of(result, "features")
    if isinstance(chosen, list) and features is not None:
        return _chosen_features(result, verdict, features.dimension, begin)
    return [f"{agent_of(result)} uses {chosen!r}, {stretch(begin, result)}."]


def _chosen_features(result: Result, verdict: Verdict, dimension: int, begin: int) -> list[str]:
    """Say which features a linear selector uses."""
    chosen = verdict["chosen"]
    when = stretch(begin, result)
    if len(chosen) == dimension:
        every = f"{agent_of(result)} uses all {dimension} features, {when}"
        return [f"{every}: nothing shows so far that it can do without one."]
    named = listed([str(j) for j in chosen])
    which = f"{agent_of(result)} uses {len(chosen)} of {dimension} features, {named}, {when}."
    because = "The others are not proved to be zero, but too small to matter for the fit so far."
    return [which, verdict.get("because", because)]


def answered(result: Result, verdict: Verdict) -> list[str]:
    """Return what an answer says of the classes, and where the rest of it is."""
    answer = result.answer
    sentences = [sentence.text for sentence in which_model(answer)]
    if answer.misspecified:
        if verdict.get("misspecified_since") is not None:
            sentences.append(f"That is known since episode {verdict['misspecified_since']:,}.")
        sentences.append(f"Meanwhile the agent uses {verdict.get('playing', 'what fits best')}.")
        return [*sentences, *answer.next_steps]
    if answer.ladder.kind == "linear" or not result.finite.rewards_known:
        return [*sentences, *answer.next_steps]
    rest = "Next: print(result.answer) says what to do, what it is worth, and what was assumed."
    return [*sentences, rest]


def class_names(result: Result, facts: dict[str, Any]) -> Sequence[str]:
    """Return the names of classes that a selector reports, or those of its ladder."""
    if facts.get("names"):
        names: Sequence[str] = facts["names"]
        return names
    ladder = parameter_of(result, "ladder")
    return () if ladder is None else ladder.names


def stretch(begin: int, result: Result) -> str:
    """Return since when something has been in use."""
    if begin > result.total_episodes:
        return "from the next episode on"
    return f"since episode {begin:,} of {result.total_episodes:,}"


def norm_sentence(result: Result, facts: dict[str, Any]) -> str:
    """Say what bounds the norm of the parameter: what was given, unless the data prove less."""
    bound = facts["norm_bound"]
    given = parameter_of(result, "norm_bound")
    given = math.inf if given is None else given
    because = "as was given: the data so far prove nothing better."
    if bound < given:
        because = "by the data so far."
    if "chosen" not in facts:
        because = facts.get("because", because)
    return f"The norm of the parameter is at most {min(bound, given):.4g}, {because}"


def chosen_class(
    result: Result, facts: dict[str, Any], names: Sequence[str], rows: Sequence[Row]
) -> list[str]:
    """Say which class of a ladder a selector with a test of its own uses, and what it ruled out.

    Only ``statistics`` and a ``threshold`` say that smaller classes were ruled out; without them,
    say what is in use. What to do next is a diagnostic of its plans, ``next``.
    """
    m = int(facts["chosen"])
    which = f"class {m}"
    if 1 <= m <= len(names):
        which = f"{quoted(names[m - 1])} ({position(m, len(names))})"
    because = [str(facts["because"])] if "because" in facts else []
    sentences = [
        f"{agent_of(result)} uses {which}, {stretch(facts['since'], result)}.",
        *because,
    ]
    if not {"statistics", "threshold"} <= facts.keys():
        return sentences
    if facts.get("misspecified", False):
        return ["None of your models fits the data.", *sentences]
    if m == 1 < len(names):
        sentences.append("Its test has ruled nothing out so far; that alone does not say much.")
    sentences += _when_ruled_out(names[: m - 1], rows)
    if "next" in facts:
        sentences.append(f"Next: {facts['next']}")
    return sentences


def _when_ruled_out(names: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Say after how many episodes classes were ruled out: the last phase that used one ended."""
    by_date: dict[int, list[str]] = {}
    for m, name in enumerate(names, start=1):
        ends = []
        for row in rows:
            if row.get("chosen", 0) <= m:
                ends.append(row["first"] + row["episodes"] - 1)
        by_date.setdefault(max(ends, default=0), []).append(quoted(name))
    sentences = []
    for date, group in sorted(by_date.items()):
        verb = "was" if len(group) == 1 else "were"
        sentences.append(f"{listed(group)} {verb} ruled out after {count_of(date, 'episode')}.")
    return sentences


def turns(result: Result, plays: Sequence[int]) -> list[str]:
    """Say how often each base of an arena played."""
    names = []
    for number, base in enumerate(parameter_of(result, "bases"), start=1):
        names.append(f"base {number} ({type(base).__name__})")
    most_often = names[int(np.argmax(plays))]
    counts = [f"{name} {played:,}" for name, played in zip(names, plays, strict=True)]
    rule = type(parameter_of(result, "rule")).__name__
    choice = f"{rule} chose one of {len(plays)} bases before every episode"
    return [f"{choice}; {most_often} played most often.", f"Episodes of each: {listed(counts)}."]


def earned(result: Result) -> str:
    """Return what the run earned lately, and its regret if that is known."""
    episodes = result.total_episodes
    n = max(1, episodes // 10)
    unit = f" {printable_name(result.known.unit_name)}".rstrip()
    mean = (result.return_at(episodes) - result.return_at(episodes - n)) / n
    text = f"The last episode earned {mean:,.4g}{unit}"
    if n > 1:
        text = f"The last {n:,} episodes earned {mean:,.4g}{unit} each"
    # in an environment each of them is a piece of its own
    single = result.environment is not None and sum(result.blocks.episodes[-n:]) == n
    if single and n > 1:
        error = np.std(result.blocks.returns[-n:], ddof=1) / math.sqrt(n)
        text += f" (standard error {error:.2g})"
    if result.total_regret is None:
        return f"{text}; what the best policy would have earned is not known here."
    return f"{text}; over all {episodes:,} the regret is {result.total_regret:,.4g}{unit}."
