"""The verdict of a run: what a selector would decide now, on what grounds, and sentences that a person can read."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from occamrl.errors import OccamRLError
from occamrl.protocols import System

if TYPE_CHECKING:
    from occamrl.running.result import Result

USE_IT = "Next: use it. If it is too simple, later data will show that."
_MOST_NAMED = 8  # things that a sentence lists
_ORDINALS = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
)
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Verdict(dict[str, Any]):
    """What a selector would decide now: its facts and diagnostics by name, and ``sentences`` that a person can read.

    ``print(verdict)`` prints the sentences. A selector that has reasons of its own puts them into
    the diagnostics of its plans, as ``because``.
    """

    sentences: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        return "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.sentences)


def verdict_of(result: Result) -> Verdict:
    """Return the verdict of a result."""
    found = Verdict()
    if isinstance(result.known, System):
        of_answer: Verdict = result.answer.verdict
        return of_answer
    if not result.total_episodes:
        found.sentences = ("No episode has been played yet.",)
        return found
    plan = result.next_plan
    found.update(plan.facts, **plan.diagnostics)
    rows = [
        row for row in result.phase_rows if row.get("label") != "estimation"
    ] or result.phase_rows
    if isinstance(found.get("chosen"), int):
        found["since"] = since(rows, "chosen", found["chosen"], result.total_episodes)
        ladder, wrong = getattr(result.agent, "ladder", None), found.get("misspecified", False)
        names: Any = found.get("names") or getattr(ladder, "names", ())
        sentences = (
            misspecified(result, found, names)
            if wrong
            else chosen_class(result, found, names, rows)
        )
    elif "chosen" in found:
        begin = since(rows, "chosen", found["chosen"], result.total_episodes)
        chosen, features = found["chosen"], getattr(result.agent, "features", None)
        if features is not None and isinstance(chosen, list):
            which = f"You need {len(chosen)} of {features.dimension} features: {listed([str(j) for j in chosen])}"
            because = (
                "The others are not proved to be zero, but too small to matter for the fit so far."
            )
            sentences = [
                f"{which} (in use {stretch(begin, result)}).",
                found.get("because", because),
            ]
        else:
            sentences = [f"{result.label} uses {chosen!r}, {stretch(begin, result)}."]
    elif "plays" in found and hasattr(result.agent, "bases"):
        sentences = turns(result, found["plays"])
    else:
        sentences = (
            [] if "norm_bound" in found else [f"{result.label} reports no choice among models."]
        )
    if "norm_bound" in found:
        sentences.append(norm(result, found))
    found.sentences = (*sentences, earned(result))
    return found


def since(rows: Sequence[dict[str, Any]], name: str, value: Any, episodes: int) -> int:
    """Return the first episode (from 1) of the latest stretch in which a fact had a value; the next one if none did."""
    begin = episodes + 1
    for row in reversed(rows):
        if row.get(name) != value:
            break
        begin = row["first"]
    return int(begin)


def stretch(begin: int, result: Result) -> str:
    """Return since when something has been in use."""
    episodes = result.total_episodes
    return (
        f"since episode {begin:,} of {episodes:,}"
        if begin <= episodes
        else "from the next episode on"
    )


def norm(result: Result, facts: dict[str, Any]) -> str:
    """Say what bounds the norm of the parameter: what was given, unless the data prove less."""
    bound, given = facts["norm_bound"], getattr(result.agent, "norm_bound", math.inf)
    because = (
        "by the data so far."
        if bound < given
        else "as was given: the data so far prove nothing better."
    )
    if "chosen" not in facts:
        because = facts.get("because", because)
    return f"The norm of the parameter is at most {min(bound, given):.4g}, {because}"


def chosen_class(
    result: Result, facts: dict[str, Any], names: Sequence[str], rows: Sequence[dict[str, Any]]
) -> list[str]:
    """Say which class of a ladder is needed, what was ruled out and when, and what to do next.

    Only ``statistics`` and a ``threshold`` say that smaller classes were ruled out; without them,
    say what is in use.
    """
    m = int(facts["chosen"])
    which = f"{names[m - 1]!r} ({place(m, len(names))})" if 1 <= m <= len(names) else f"class {m}"
    if not {"statistics", "threshold"} <= facts.keys():
        told = [str(facts["because"])] if "because" in facts else []
        return [f"{result.label} uses {which}, {stretch(facts['since'], result)}.", *told]
    sentences = [f"You need {which}."]
    if "because" in facts:
        sentences.append(facts["because"])
    elif m == 1 < len(names):
        sentences.append("It is the simplest, and nothing in the data speaks against it so far.")
    after: dict[int, list[str]] = {}
    for k, name in enumerate(
        names[: m - 1], start=1
    ):  # ruled out since the end of the last phase that used it
        used = [row["first"] + row["episodes"] - 1 for row in rows if row.get("chosen", 0) <= k]
        after.setdefault(max(used, default=0), []).append(repr(name))
    for when, group in sorted(after.items()):
        verb = "was" if len(group) == 1 else "were"
        sentences.append(f"{listed(group)} {verb} ruled out after {count_of(when, 'episode')}.")
    delta = getattr(result.agent, "delta", None)
    if m > 1 and "because" not in facts and delta is not None:
        sentences.append(
            f"A model class that contains the truth is ruled out with probability at most {delta:g}."
        )
    return [*sentences, *next_steps(result, USE_IT)]


def next_steps(result: Result, otherwise: str) -> list[str]:
    """Return what the answer says to do next; something else where a selector has no answer."""
    try:
        found: list[str] = result.answer.next_steps
    except OccamRLError:  # it has no ladder that an answer could be about
        return [otherwise]
    return found


def misspecified(result: Result, facts: dict[str, Any], names: Sequence[str]) -> list[str]:
    """Say that no class explains the data, and what is used meanwhile."""
    began = facts.get("misspecified_since")
    when = "" if began is None else f" (known since episode {began:,})"
    even = f": even {names[-1]!r} is ruled out" if names else ""
    return [
        f"None of your models fits the data{when}{even}.",
        f"Meanwhile the agent uses {facts.get('playing', 'what fits best')}.",
        *estimated(facts.get("draws", 0)),
        *next_steps(
            result,
            "Next: add a richer class, or look for a variable that is missing from the state.",
        ),
    ]


def estimated(draws: int) -> list[str]:
    """Say what it means that kernels are estimates."""
    if not draws:
        return []
    return [
        f"But your models are estimates from {draws:,} draws for each state and action; with more data than that, "
        "even the right one is ruled out. Make more draws, or test the simulators themselves (orl.OccamControl)."
    ]


def turns(result: Result, plays: Sequence[int]) -> list[str]:
    """Say how often each base of an arena played."""
    bases = result.agent.bases
    names = [f"base {i} ({type(base).__name__})" for i, base in enumerate(bases, start=1)]
    most = int(np.argmax(plays))
    counts = [f"{name} {n:,}" for name, n in zip(names, plays, strict=True)]
    rule = type(result.agent.rule).__name__
    return [
        f"{rule} chose one of {len(plays)} bases before every episode; {names[most]} played most often.",
        f"Episodes of each: {listed(counts)}.",
    ]


def earned(result: Result) -> str:
    """Return what the run earned lately, and its regret if that is known."""
    n, unit = max(1, result.total_episodes // 10), f" {result.known.unit_name}".rstrip()
    last = "The last episode earned" if n == 1 else f"The last {n:,} episodes earned"
    mean = (
        result.return_at(result.total_episodes) - result.return_at(result.total_episodes - n)
    ) / n
    text = f"{last} {mean:,.4g}{unit}{' each' * (n > 1)}"
    if (
        result.environment is not None and sum(result.blocks.episodes[-n:]) == n > 1
    ):  # each of them is a piece
        text += f" (standard error {np.std(result.blocks.returns[-n:], ddof=1) / math.sqrt(n):.2g})"
    if result.total_regret is None:
        return text + "; what the best policy would have earned is not known here."
    return (
        text
        + f"; over all {result.total_episodes:,} the regret is {result.total_regret:,.4g}{unit}."
    )


def ordinal(number: int) -> str:
    """Return a number as an ordinal, in words where that is usual."""
    return _ORDINALS[number - 1] if number <= len(_ORDINALS) else f"number {number}"


def count(number: int) -> str:
    """Return a number, in words where that is usual."""
    return _NUMBERS[number - 1] if number <= len(_NUMBERS) else str(number)


def count_of(number: int, noun: str) -> str:
    """Return "1 state", "2 states"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def place(number: int, of: int) -> str:
    """Return where a model stands among several."""
    return "the only model" if of == 1 else f"{ordinal(number)} of {count(of)} models"


def listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence, cut after a few."""
    if len(names) > _MOST_NAMED:
        return ", ".join(names[:_MOST_NAMED]) + f" and {len(names) - _MOST_NAMED} more"
    return (
        ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else "none"
    )


def format_number(number: float) -> str:
    """Return a number with four digits that count, never with an exponent where it can be avoided."""
    rounded = float(f"{number:.4g}") + 0.0
    return f"{rounded:,.0f}" if 1e3 <= abs(rounded) < 1e15 else f"{rounded:.4g}"


def said(name: Any) -> str:
    """Return what the user calls a state or an action, as a sentence says it."""
    return f"({', '.join(map(str, name))})" if isinstance(name, tuple) else str(name)


def times(nats: float) -> str:
    """Return how many times less likely that many nats are, in words where the number is long."""
    if nats > math.log(1e9):
        return "over a billion"
    return f"{math.exp(max(nats, 0.0)):,.3g}"
