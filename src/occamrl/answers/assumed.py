"""What was done to the data, and what is assumed of them, as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occamrl.answers.wording import Sentence, count_of
from occamrl.protocols import Note

if TYPE_CHECKING:
    from occamrl.answers.answer import Answer

# What was done to some rows or episodes, and the condition under which the guarantee holds. Kinds
# without an entry are facts of the data to which nothing was done.
_DONE = {
    "gaps_cut": (
        "{rows} come after a gap, where episodes were cut, as nobody knows what happened in it",
        "rows are missing for reasons that have nothing to do with what happened",
    ),
    "gaps_joined": (
        "{rows} come after a gap, which was taken for no time at all",
        "nothing happened in between",
    ),
    "sorted": ("{rows} were put in order", ""),
    "next_state_filled": (
        "{rows} have the next state from the row after them",
        "no row in between is missing or there twice",
    ),
    "no_next_state": (
        "{rows} without a next state were left out",
        "the next state is not missing because of what it was",
    ),
    "unlisted": (
        "{rows} were left out, as their state or action is missing or not in your models",
        "",
    ),
    "unlisted_next": (
        "{rows} were left out, as their next state or reward is not in your models",
        "",
    ),
    "impossible": (
        "{rows} are transitions that all of your models call impossible: correct them if they are "
        "errors, allow them in your models if not",
        "",
    ),
    "undone": ("Taken back: {rows}", "they were not taken back because of what followed"),
    "skipped": (
        "{rows} passed unseen",
        "that has nothing to do with what happened in them",
    ),
    "forgotten": (
        "What was learned was forgotten {rows}, and each start has a delta of its own",
        "the starting point was not chosen by looking at the data",
    ),
    "forgotten_alarm": (
        "What was learned was forgotten {rows}, but for steps that an alarm had chosen because "
        "they speak against the model in use; each start has a delta of its own",
        "",
    ),
    "impossible_dropped": (
        "{rows} were left out, as all of your models call them impossible",
        "",
    ),
    "rewards_missing": ("{rows} have no reward: those of your models were taken", ""),
    "rewards_replaced": (
        "{rows} have rewards that contradict those of your models, which were taken",
        "",
    ),
    "rewards_models": (
        "{rows} have rewards that contradict those of your models, which were taken, as you asked",
        "",
    ),
    "truncated": ("{rows} ended before the horizon", ""),
    "split": ("{rows} were cut from longer episodes at the horizon", ""),
    "first_step": (
        "The first rows of {rows} were taken for step 1, on which chances depend",
        "no row is missing before them, which a column step would show",
    ),
    "steps_counted": (
        "The steps of {rows}, on which chances depend, were counted by rows",
        "no row is missing, which a column step or time would show",
    ),
    "chosen_here": (
        "The columns of the state were chosen by these {rows}, and tables made of them fit them "
        "too well",
        "",
    ),
}


# Of one row.
_SINGULAR = {
    "{rows} were": "{rows} was",
    "{rows} have": "{rows} has",
    "{rows} come": "{rows} comes",
    "rows of {rows}": "row of {rows}",
    "them, and": "it, and",
    "their state": "its state",
    "their next": "its next",
    "after them": "after it",
    "call them": "call it",
}


def data_sentences(answer: Answer) -> list[Sentence]:
    """Say what was done to the data before they were weighed, and what that does to guarantees."""
    texts = []
    for note in answer.notes:
        # That next states are those of next rows is news only where rows may be missing.
        usual = note.kind == "next_state_filled" and note.guarantee == "kept"
        if note.kind in _DONE and not usual:
            texts.append(note_sentence(note))
    return [Sentence("assumed", text) for text in texts]


def note_sentence(note: Note) -> str:
    """Say what was done to rows or episodes: to how many, to which first, with what effect."""
    done, condition = _DONE[note.kind]
    rows = count_of(note.affected, note.unit)
    if note.of:
        rows = f"{note.affected:,} of {count_of(note.of, note.unit)}"
    if note.affected == 1:
        for several, one in _SINGULAR.items():
            done = done.replace(several, one)
    example = f" (first: {note.example})" if note.example else ""
    effect = {
        "kept": "",
        "conditional": f"; the guarantee holds if {condition}",
        "void": "; nothing is guaranteed after that",
    }
    return f"{done.format(rows=rows)}{example}{effect[note.guarantee]}."
