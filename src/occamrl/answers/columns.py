"""Words, and the page, about which columns of a log matter.

*Proved* is said of what holds at level delta, *likely* of a Bayes factor and a placebo, *no sign*
of everything else; nothing is said to be useless.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from occamrl.answers.assumed import note_sentence
from occamrl.answers.html import element, paragraphs, render_page, table
from occamrl.answers.page import questions
from occamrl.answers.wording import (
    Kind,
    Sentence,
    capital,
    count_of,
    count_word,
    format_number,
    listed,
)

if TYPE_CHECKING:
    from occamrl.evidence.columns import Weighed
    from occamrl.logs.relevance import Difference, Relevance

QUESTIONS: dict[Kind, str] = {
    "which": "Which columns?",
    "what to do": "What to do?",
    "worth": "What is it worth?",
    "assumed": "What was assumed?",
}
_MOST_STATES = 60  # rows of a policy that a page shows


def columns_sentences(answer: Relevance) -> list[Sentence]:
    """Return the answer for a person to read."""
    texts: list[str] = []
    for name, weighed in answer.weighed.items():
        texts += _target(answer, name, weighed)
    texts += _past(answer)
    texts.append(_state(answer))
    if answer.exogenous:
        verb = "is" if len(answer.exogenous) == 1 else "are"
        texts.append(f"No sign that {_quoted(answer.exogenous)} {verb} changed by what is done.")
    sentences = [Sentence("which", text) for text in texts]
    sentences += _what_to_do(answer)
    sentences += [Sentence("assumed", text) for text in _assumed(answer)]
    return sentences


def columns_text(answer: Relevance) -> str:
    """Return the answer as it is printed."""
    lines = [capital(str(sentence)) for sentence in answer.said if sentence.kind != "assumed"]
    assumed = [sentence.text for sentence in answer.said if sentence.kind == "assumed"]
    return "\n".join([*lines, "What was assumed:", *(f"- {text}" for text in assumed)])


def _quoted(names: tuple[str, ...] | list[str]) -> str:
    return listed([f"'{name}'" for name in names])


def _words(name: str) -> str:
    """Return what a target is, in words."""
    return {"reward": "the reward", "end": "the end of an episode"}.get(name, f"the next '{name}'")


def _target(answer: Relevance, name: str, weighed: Weighed) -> list[str]:
    """Say what one target needs, and how sure that is."""
    target = _words(name)
    few = count_word(weighed.checked)
    columns = "column matters" if weighed.checked == 1 else "columns matter"
    texts: list[str] = []
    if not weighed.compatible:
        texts.append(
            f"Every set of at most {few} of these columns is excluded for {target} (at level "
            f"{answer.delta:g}): more of them matter, or something else does."
        )
    needed = answer.needed[name]
    if needed:
        texts.append(
            f"{capital(target)} needs {_quoted(needed)}: proved (at level {answer.delta:g}, at all "
            f"times, if at most {few} {columns})."
        )
    likely = answer.likely[name]
    if likely:
        texts.append(f"{capital(target)} is likely to need {_quoted(likely)}: not proved.")
    if weighed.timed:
        texts.append(
            f"{_quoted(answer.names(weighed.timed))} may stand for time alone: parts of the log "
            f"predict {target} about as well."
        )
    said = (*weighed.needed, *weighed.likely, *weighed.timed)
    open_ = [i for i in weighed.best if i not in said]
    if open_:
        texts.append(
            f"{_quoted(answer.names(open_))} {'helps' if len(open_) == 1 else 'help'} to predict "
            f"{target}; whether that is needed, or others would do, the log does not show."
        )
    without: list[str] = []
    earlier = ""
    mentioned = (*weighed.needed, *weighed.likely, *weighed.best)
    for i, candidate in enumerate(answer.columns.candidates):
        if i in mentioned:
            continue
        if candidate.lag:
            earlier = "any earlier row"
        elif candidate.kind != "part":
            without.append(candidate.name)
    if earlier and any(answer.columns.candidates[i].lag for i in mentioned):
        earlier = "other columns of earlier rows"
    nothing = _quoted(without) if without else ""
    if without and earlier:
        nothing += f", or {earlier}"
    if without or earlier:
        texts.append(
            f"No sign that {target} needs {nothing or earlier}; small effects cannot be excluded."
        )
    return texts


def _past(answer: Relevance) -> list[str]:
    """Say whether earlier rows, or the part of the log, matter."""
    texts: list[str] = []
    earlier: list[str] = []
    for name, weighed in answer.weighed.items():
        shown = (*weighed.needed, *weighed.likely)
        if any(answer.columns.candidates[i].lag for i in shown):
            earlier.append(_words(name))
    if earlier:
        texts.append(
            f"Earlier rows help to predict {listed(earlier)}: history matters, or a column is "
            "missing."
        )
    if not answer.lags:
        texts.append("Whether earlier rows help was not asked (lags=1 asks).")
    changed = [_words(name) for name in answer.changed]
    if changed:
        texts.append(
            f"The part of the log matters for {listed(changed)}: something changed in its course, "
            "which these columns do not show."
        )
    return texts


def _state(answer: Relevance) -> str:
    """Say of what the state is made."""
    begin = "that reward and end"
    first = next(iter(answer.weighed), "")
    if first not in ("reward", "end"):
        begin = "that these targets"
    if not answer.state:
        return f"No column of the state is among those {begin} seem to need."
    return (
        f"The state, those columns {begin} seem to need, and what these need in turn: "
        f"{_quoted(answer.state)}."
    )


# Policies -----------------------------------------------------------------------------------------


def _what_to_do(answer: Relevance) -> list[Sentence]:
    """Say what to do, and what it is worth: an estimate, and called one."""
    if not answer.comparable:
        text = "keep today's policy: the log is too short to compare it with another."
        if "reward" not in answer.columns.targets:
            text = "the log has no rewards, so that nothing is said of what to do."
        return [Sentence("what to do", text)]
    keep = "keep today's policy: the log cannot show that another is better."
    if answer.recommended:
        beat = "Plans like this one beat today's policy in at least 95 % of bootstrap draws."
        keep = f"{answer.policy.brief}. {beat}"
    elif answer.changed:
        keep = "keep today's policy: something changed, and plans from all of the log may be old."
    gain = answer.gain
    verb = "more" if gain.value >= 0.0 else "less"
    estimate = (
        f"Plans on this state, made on one half of the log and compared on the other, earned "
        f"{format_number(abs(gain.value))} {verb} than today's policy (5 % to 95 % of bootstrap "
        f"draws: {_span(gain)}): an estimate, no guarantee."
    )
    per = answer.labels.episode
    if answer.in_pieces:
        per = count_of(answer.horizon, "step")
    worth = f"The log itself earned {format_number(answer.earned)} per {per} on average."
    return [
        Sentence("what to do", keep),
        Sentence("worth", worth),
        Sentence("worth", estimate),
    ]


def _span(difference: Difference) -> str:
    return f"{format_number(difference.low)} to {format_number(difference.high)}"


# What was assumed ---------------------------------------------------------------------------------


def _assumed(answer: Relevance) -> list[str]:
    texts = [
        "What is proved holds if each target depends on few of these columns alone, by one law "
        "in all of the log; if actions were chosen by what had been seen, and rows come in the "
        "order of time; and if the values that occur are all that can.",
        "What is likely rests on a Bayes factor, on shuffled copies of columns and on parts of the "
        "log: no level is claimed. What a column does that is not in the log, nobody can tell.",
    ]
    for weighed in answer.weighed.values():
        if weighed.checked < answer.maximum and weighed.checked < len(answer.columns.candidates):
            texts.append(
                f"There are too many sets of {count_word(answer.maximum)} columns to check them "
                f"all: what is proved holds if at most {count_word(weighed.checked)} matter."
            )
            break
    cut = [c.name for c in answer.columns.candidates if c.cut and not c.lag]
    names = [f"'{name}'" for name in cut]
    if any(name == "reward" and target.cut for name, target in answer.columns.targets.items()):
        names.append("the reward")
    if names:
        verb = "is" if len(names) == 1 else "are"
        texts.append(
            f"{capital(listed(names))} {verb} cut into bins, about {answer.bins}, at quantiles of "
            f"the first {count_of(answer.columns.first, 'row')}, which are not weighed: what is "
            "said is said of bins, and what a bin hides may make other columns look needed."
        )
    if answer.comparable:
        texts.append(
            f"Policies are compared in tables counted on {_compared(answer)}. Today's policy is "
            "how often each action was taken in each state of these, and an action that was never "
            "tried in one counts as what was done there."
        )
    if answer.unpaid and "reward" in answer.columns.targets:
        texts.append(
            f"{answer.unpaid:,} of {count_of(answer.source.rows, 'row')} have no reward, and are "
            "left out where rewards are asked for; what is said of these holds if rewards are "
            "missing for reasons that have nothing to do with them."
        )
    for note in answer.notes:
        # that next states are those of next rows is news only where rows may be missing
        usual = note.kind == "next_state_filled" and note.guarantee == "kept"
        if note.kind != "ended" and not usual:
            texts.append(note_sentence(note))
    return texts


def _compared(answer: Relevance) -> str:
    """Return in which columns policies are compared: all that may still matter."""
    if not answer.compared:
        return "no column"
    return f"{_quoted(answer.compared)}, which may all matter still"


# The page -----------------------------------------------------------------------------------------


def columns_page(answer: Relevance) -> str:
    """Return the answer as a page."""
    asked: dict[str, list[str]] = {}
    for kind, question in QUESTIONS.items():
        texts = [capital(sentence.text) for sentence in answer.said if sentence.kind == kind]
        if texts:
            asked[question] = texts
    steps = f"{count_of(answer.source.episodes, 'episode')}, {count_of(answer.source.rows, 'step')}"
    head = f'<p class="note">{html.escape(f"{answer.source.source}: {steps}")}</p>'
    sections: dict[str, str] = {"Which columns": table(_table(answer))}
    if answer.comparable:
        sections["What columns are worth in decisions"] = _worths(answer)
        rows = answer.policy.rows
        more = ""
        if len(rows) > _MOST_STATES:
            more = f"The table has {len(rows):,} rows; all are in policy.to_csv(...)."
        title = "A policy that was planned"
        if answer.recommended:
            title = "The policy that is recommended"
        sections[title] = table(rows[:_MOST_STATES]) + paragraphs(more)
    title = "Which columns of the log matter"
    return render_page(title, sections, head + questions(asked))


def _table(answer: Relevance) -> list[dict[str, object]]:
    """Return what is said of every column, by target."""
    rows: list[dict[str, object]] = []
    for i, candidate in enumerate(answer.columns.candidates):
        row: dict[str, object] = {"column": candidate.name}
        for name, weighed in answer.weighed.items():
            status = "no sign"
            if i in weighed.needed:
                status = "proved"
            elif i in weighed.likely:
                status = "likely"
            elif i in weighed.best:
                status = "helps"
            row[_words(name)] = status
        rows.append(row)
    return rows


def _worths(answer: Relevance) -> str:
    """Return what plans lose without a column, cross-fitted."""
    rows: list[dict[str, object]] = []
    for name in answer.state:
        difference = answer.without(name)
        rows.append(
            {
                "without": name,
                "plans earn less by": format_number(difference.value),
                "5 % to 95 % of bootstrap draws": _span(difference),
                "spread": format_number(difference.spread),
            }
        )
    text = (
        "Plans on the state against plans on the state without a column, made on one half of the "
        "log and compared on the other: an estimate, no guarantee."
    )
    return paragraphs(text) + (table(rows) if rows else element("p", "There is no column."))
