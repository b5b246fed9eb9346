"""Words, and the page, about which columns of a log matter.

*Proved* is said of what holds at level delta, *likely* of a Bayes factor and a placebo, *no sign*
of what the factor speaks against, and nothing is said to be useless.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from occamrl.answers.assumed import note_sentence
from occamrl.answers.html import element, paragraphs, render_page, table
from occamrl.answers.page import questions
from occamrl.answers.wording import (
    Kind,
    Sentence,
    by_question,
    capital,
    count_of,
    count_word,
    format_number,
    listed,
)
from occamrl.naming import quoted

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
_TARGETS = {"reward": "the reward", "end": "the end of an episode"}


def columns_sentences(answer: Relevance) -> list[Sentence]:
    """Return the answer for a person to read."""
    texts: list[str] = []
    for name, weighed in answer.weighed.items():
        texts += _target(answer, name, weighed)
    if any(answer.needed.values()):
        texts.append(
            f"What is called proved is wrong with probability at most {answer.delta:g}, all of it "
            f"together and whenever you look, if at most {_columns_matter(answer)} for each."
        )
    texts += [*_scattered(answer), *_past(answer), _state(answer)]
    if answer.exogenous:
        verb = "is" if len(answer.exogenous) == 1 else "are"
        texts.append(f"No sign that {_quoted(answer.exogenous)} {verb} changed by what is done.")
    sentences = [Sentence("which", text) for text in texts]
    sentences += _what_to_do(answer)
    sentences += [Sentence("assumed", text) for text in _assumed(answer)]
    return [sentence.printable() for sentence in sentences]


def _quoted(names: Sequence[str]) -> str:
    return listed([quoted(name) for name in names])


def _words(name: str) -> str:
    """Return what a target is, in words."""
    return _TARGETS.get(name, f"the next {quoted(name)}")


def _columns_matter(answer: Relevance) -> str:
    """Return how many columns may matter where something is proved, in words."""
    if answer.checked == 1:
        return "one column matters"
    return f"{count_word(answer.checked)} columns matter"


# Which columns ------------------------------------------------------------------------------------


def _target(answer: Relevance, name: str, weighed: Weighed) -> list[str]:
    """Say what one target needs, and how sure that is."""
    target = _words(name)
    texts: list[str] = []
    if not weighed.compatible and len(weighed.likely) <= answer.checked:
        texts.append(
            f"Every set of at most {count_word(answer.checked)} of these columns is excluded for "
            f"{target} (at level {answer.delta:g}): more of them matter, something else does, or "
            "its law changed."
        )
    if weighed.needed:
        texts.append(f"{capital(target)} needs {_quoted(answer.needed[name])}: proved.")
    # of the part of the log, which is no column, more is said below
    kinds = {candidate.name: candidate.kind for candidate in answer.columns.candidates}
    likely = [column for column in answer.likely[name] if kinds[column] != "part"]
    if likely:
        texts.append(f"{capital(target)} is likely to need {_quoted(likely)}: not proved.")
    if len(likely) > answer.checked:
        texts.append(
            f"These are more than {count_word(answer.checked)}, and a proof takes for granted "
            "that no more matter (maximum= sets how many may)."
        )
    if weighed.timed:
        texts.append(
            f"{_quoted(answer.names(weighed.timed))} may stand for time alone: parts of the log "
            f"predict {target} about as well."
        )
    if name in answer.foretold:
        texts.append(
            f"{quoted(answer.foretold[name])} alone tells {target} in every row: leave it out if "
            "it is known only afterwards."
        )
    return [*texts, *_not_needed(answer, target, weighed)]


def _not_needed(answer: Relevance, target: str, weighed: Weighed) -> list[str]:
    """Say of which columns the log does not show that a target needs them."""
    said = (*weighed.likely, *weighed.timed)
    helping = [i for i in weighed.best if i not in said]
    texts: list[str] = []
    if helping:
        texts.append(
            f"{_quoted(answer.names(helping))} {'helps' if len(helping) == 1 else 'help'} to "
            f"predict {target}; whether that is needed, or others would do, the log does not show."
        )
    unlikely: list[str] = []
    undecided: list[str] = []
    earlier: list[int] = []
    for i, candidate in enumerate(answer.columns.candidates):
        if candidate.scattered or candidate.kind == "part" or i in (*said, *weighed.best):
            continue
        if candidate.lag:
            earlier.append(i)
        elif i in weighed.unlikely:
            unlikely.append(quoted(candidate.name))
        else:
            undecided.append(quoted(candidate.name))
    if earlier:
        other = any(answer.columns.candidates[i].lag for i in (*said, *weighed.best))
        words = "other columns of earlier rows" if other else "earlier rows"
        (unlikely if set(earlier) <= set(weighed.unlikely) else undecided).append(words)
    if unlikely:
        texts.append(
            f"No sign that {target} needs {listed(unlikely, 'or')}; small effects cannot be "
            "excluded."
        )
    if undecided:
        texts.append(
            f"For {target} the log speaks neither for nor against {listed(undecided, 'or')}."
        )
    return texts


def _scattered(answer: Relevance) -> list[str]:
    """Say of which columns nothing can be said, since they say too much or the same."""
    texts: list[str] = []
    rows = count_of(answer.columns.steps.state.size, "row")
    for candidate in answer.columns.candidates:
        if candidate.scattered and not candidate.lag:
            texts.append(
                f"{quoted(candidate.name)} has {candidate.occurring:,} values in {rows}, too "
                "many to tell whether it matters; while it is among the columns little is proved "
                "of others. Leave it out."
            )
    for pair in answer.twins:
        texts.append(
            f"{_quoted(pair)} tell each other in every row, so that neither is shown to be needed: "
            "leave one of them out."
        )
    return texts


def _past(answer: Relevance) -> list[str]:
    """Say whether earlier rows, or the part of the log, matter."""
    texts: list[str] = []
    earlier: list[str] = []
    for name, weighed in answer.weighed.items():
        if any(answer.columns.candidates[i].lag for i in weighed.likely):
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
            "which these columns do not show, so that nothing is called proved of that."
        )
    return texts


def _state(answer: Relevance) -> str:
    """Say of what the state is made."""
    begin = "that reward and end"
    first = next(iter(answer.weighed), "")
    if first not in _TARGETS:
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
    gain = answer.gain
    todo = "keep today's policy: the log cannot show that another is better."
    if answer.changed:
        todo = "keep today's policy: something changed, and plans from all of the log may be old."
    elif answer.riddled:
        todo = (
            "keep today's policy: too many rows come after gaps, and rows before gaps are left out."
        )
    elif gain.high < 0.0:
        todo = "keep today's policy: plans made from the log did worse."
    elif answer.recommended:
        todo = (
            f"{answer.policy.brief}. Plans made like this one beat today's policy in at least 95 % "
            "of bootstrap draws."
        )
    per = answer.labels.episode
    if answer.plans.in_pieces:
        per = count_of(answer.plans.horizon, "step")
    counted = ""
    if not {"no_next_state", "unlisted"}.isdisjoint(answer.source.report):
        counted = ", without the rows that were left out"
    worth = (
        f"The log itself earned {format_number(answer.plans.earned)} per {per} on average{counted}."
    )
    estimate = (
        "Plans on this state, made on one half of the log and compared on the other, would have "
        f"earned {_more(gain.value)} (5 % to 95 % of bootstrap draws: {_span_in_words(gain)}): an "
        "estimate, no guarantee."
    )
    return [Sentence("what to do", todo), Sentence("worth", worth), Sentence("worth", estimate)]


def _more(gain: float) -> str:
    """Return a gain in words, so that no sign is needed: "5.69 less"."""
    if gain < 0.0:
        return f"{format_number(-gain)} less"
    return f"{format_number(gain)} more"


def _span(difference: Difference) -> str:
    return f"{format_number(difference.low)} to {format_number(difference.high)}"


def _span_in_words(difference: Difference) -> str:
    """Return the range of a gain; "less" and "more" stand at both ends where these differ."""
    if difference.low < 0.0 <= difference.high:
        return f"{_more(difference.low)} to {_more(difference.high)}"
    nearer, further = sorted((abs(difference.low), abs(difference.high)))
    return f"{format_number(nearer)} to {_more(math.copysign(further, difference.low))}"


# What was assumed ---------------------------------------------------------------------------------


def _assumed(answer: Relevance) -> list[str]:
    texts = [
        "What is proved holds if each target depends on these columns alone, by one law in all of "
        "the log, and if actions were chosen by what came before in the order of the log: earlier "
        "rows of the episode, and episodes that stand before it.",
        "What is likely rests on a Bayes factor, on shuffled copies of columns and on parts of the "
        "log: no level is claimed. What a column does that is not in the log, nobody can tell.",
    ]
    if answer.riddled:
        texts.append(
            "Rows before gaps are left out, and with them whatever happens only there, say on the "
            "day before a shop is closed. If nothing happens in gaps, read the log with "
            'gaps="join".'
        )
    if answer.checked < min(answer.maximum, len(answer.columns.candidates)):
        texts.append(
            f"There are too many sets of {count_word(answer.maximum)} columns to check them all: "
            f"what is proved holds if at most {_columns_matter(answer)}."
        )
    cut = [quoted(c.name) for c in answer.columns.candidates if c.cut and not c.lag]
    if "reward" in answer.columns.targets and answer.columns.targets["reward"].cut:
        cut.append("the reward")
    if cut:
        texts.append(
            f"{capital(listed(cut))} {'is' if len(cut) == 1 else 'are'} cut into bins, about "
            f"{answer.bins}, at quantiles of the first {count_of(answer.columns.first, 'row')}, "
            "which are not weighed: what is said is said of bins, and what a bin hides may make "
            "other columns look needed."
        )
    if answer.comparable:
        compared = "no column"
        if answer.compared:
            compared = f"{_quoted(answer.compared)}, which may matter or have decided what was done"
        texts.append(
            "A plan can be followed only if the columns of the state are known before the action "
            f"is chosen. Plans are compared in tables counted on {compared}; an action that was "
            "never tried in a state of these counts as what was done there."
        )
        if answer.unpaid:
            rows = count_of(answer.columns.steps.state.size, "row")
            texts.append(
                f"{answer.unpaid:,} of {rows} have no reward, and are left out where rewards are "
                "asked for; what is said of these holds if rewards are missing for reasons that "
                "have nothing to do with them."
            )
    for note in answer.notes:
        # that next states are those of next rows is news only where rows may be missing
        usual = note.kind == "next_state_filled" and note.guarantee == "kept"
        if note.kind != "ended" and not usual:
            texts.append(note_sentence(note))
    return texts


# The page -----------------------------------------------------------------------------------------


def columns_page(answer: Relevance) -> str:
    """Return the answer as a page."""
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
    asked = questions(by_question(answer.said, QUESTIONS))
    return render_page("Which columns of the log matter", sections, head + asked)


def _table(answer: Relevance) -> list[dict[str, object]]:
    """Return what is said of every column, by target."""
    rows: list[dict[str, object]] = []
    for i, candidate in enumerate(answer.columns.candidates):
        row: dict[str, object] = {"column": candidate.name}
        for name, weighed in answer.weighed.items():
            groups = {
                "proved": weighed.needed,
                "likely": weighed.likely,
                "time alone?": weighed.timed,
                "helps": weighed.best,
                "no sign": weighed.unlikely,
            }
            named = [status for status, group in groups.items() if i in group]
            row[_words(name)] = [*named, "not shown"][0]
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
