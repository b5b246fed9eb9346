"""What the user calls states and actions: from a name to its number and back, and into words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from occamrl.errors import ParameterError

_LISTED = 12  # names that a message lists
LONGEST = 80  # characters of a name in a sentence
# What a spreadsheet takes for a formula, and such a text that is marked as a text already.
_FORMULA = r"'*[=+\-@\t\r\n]"
FORMULA_MARK = f"^'({_FORMULA})"  # what it then begins with


class Names(NamedTuple):
    """What the user calls the states and actions."""

    states: tuple[Hashable, ...]
    actions: tuple[Hashable, ...]
    absorbing: tuple[bool, ...] = ()  # in which states nothing more happens


class Labels(NamedTuple):
    """What the user calls the parts of a state, an action, a step and an episode."""

    state: tuple[str, ...] = ()  # empty: no name is known
    action: str = ""
    step: str = "step"
    episode: str = "episode"


# what says nothing, as the name of an argument or a column
_PLAIN = ("state", "action", "s", "a", "x", "u", "obs", "observation", "next_state", "_")
# units of time, and what else an episode or a step may be called in a sentence
_SPANS = (
    "second", "minute", "hour", "shift", "morning", "evening", "night", "day", "week", "month",
    "quarter", "season", "year", "round", "turn", "game", "match", "trip", "session", "visit",
)  # fmt: skip


def labels_of(
    arguments: Sequence[str], columns: Mapping[str, Sequence[object]], parts: int
) -> Labels:
    """Return what things are called, by the arguments of a model and the columns of a log.

    Arguments are those of states and actions; an argument or a column that is called state, or s,
    says nothing. ``parts`` is how many parts a state has. Steps and episodes have the name of
    their column if that is a span of time, or a game.

    >>> from occamrl.naming import labels_of
    >>> columns = {"episode": ["month"], "state": ["pieces"], "action": ["ordered"]}
    >>> labels_of(("stock", "order"), columns, 1)
    Labels(state=('stock',), action='order', step='step', episode='month')
    """
    state: tuple[str, ...] = tuple(map(printable_name, columns.get("state", ())))
    action = "".join(map(printable_name, columns.get("action", ())[:1]))
    if arguments and parts == 1 and arguments[0] not in _PLAIN:
        state = (arguments[0],)
    if arguments and arguments[1] not in _PLAIN:
        action = arguments[1]
    if len(state) != parts or not set(state).isdisjoint(_PLAIN):
        state = ()
    spans = []
    for role, plain in (("step", "step"), ("episode", "episode")):
        name = "".join(map(str, columns.get(role, ())))
        spans.append(name if name in _SPANS else plain)
    return Labels(state, "" if action in _PLAIN else action, spans[0], spans[1])


def numbers_of(names: Sequence[Hashable]) -> dict[Hashable, int]:
    """Return the number of each name; of equal names the first."""
    numbers: dict[Hashable, int] = {}
    for number, name in enumerate(names):
        numbers.setdefault(name, number)
    return numbers


def number_of(field: str, name: object, names: Mapping[Hashable, int] | None, size: int) -> int:
    """Return the number of a name, or refuse it with those that are near.

    Without ``names`` the numbers from 0 to ``size`` - 1 are names of themselves.
    """
    if names is None:
        if isinstance(name, (int, np.integer)) and 0 <= name < size:
            return int(name)
        raise unknown_name(field, name, range(size))
    if not isinstance(name, Hashable):
        raise unknown_name(field, name, list(names))
    try:
        number = names.get(name)
    except TypeError:  # a tuple that holds a list
        number = None
    if number is None:
        raise unknown_name(field, name, list(names))
    return number


def unknown_name(field: str, name: object, known: Sequence[Hashable]) -> ParameterError:
    """Return the error about a name that is not known."""
    listed = ", ".join(repr(other) for other in known[:_LISTED])
    if len(known) > _LISTED:
        listed += ", ..."
    near = difflib.get_close_matches(str(name), [str(other) for other in known], n=1)
    hint = ""
    if near:
        hint = f"; did you mean {near[0]}?"
    return ParameterError(field, got=repr(name), expected=f"one of {listed}{hint}")


def join_runs(names: Sequence[Hashable]) -> str:
    """Return names as text; whole numbers are sorted, and runs of them joined: "0 to 4, 7"."""
    whole = [name for name in names if type(name) is int]
    if len(whole) < len(names):
        return ", ".join(map(printable_name, names))
    runs: list[list[int]] = []
    for number in sorted(whole):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = []
    for first, last in runs:
        texts.append(str(first) if first == last else f"{first} to {last}")
    return ", ".join(texts)


def describe_states(names: Sequence[Hashable], labels: Sequence[str] = ()) -> str:
    """Return some states in words, runs of whole numbers joined.

    ``labels`` are what the parts of a state are called.

    >>> from occamrl.naming import describe_states
    >>> describe_states([0, 1, 2, 3, 4, 7])
    '0 to 4, 7'
    >>> days = [("Mon", 0), ("Mon", 1), ("Tue", 2), ("Thu", 0), ("Thu", 1)]
    >>> describe_states(days)
    'Mon, Thu: 0 to 1; Tue: 2'
    >>> describe_states(days, ("day", "stock"))
    'day is Mon, Thu and stock is 0 to 1; day is Tue and stock is 2'
    >>> describe_states([(0, 1), (0, 2), (3, 1), (4, 1)])
    '(0, 1 to 2); (3 to 4, 1)'
    """
    part = _running_part(names)
    if part is None:
        text = join_runs(names)
        return f"{labels[0]} is {text}" if len(labels) == 1 else text
    # states that differ in the part that runs on alone are one group
    groups: dict[tuple[Hashable, ...], list[Hashable]] = {}
    for name in names:
        assert isinstance(name, tuple)  # noqa: S101  # as _running_part found
        others = (*name[:part], *name[part + 1 :])
        groups.setdefault(others, []).append(name[part])
    # groups with equal runs are named together
    fronts: dict[str, list[Hashable]] = {}
    for others, running in groups.items():
        front = others[0] if len(others) == 1 else spoken(others)
        fronts.setdefault(join_runs(running), []).append(front)
    begin = ""
    middle = ": "
    if len(labels) > 1 and len(labels) == len(next(iter(groups))) + 1:
        others_called = [*labels[:part], *labels[part + 1 :]]
        called = f"({', '.join(others_called)})"
        if len(others_called) == 1:
            called = others_called[0]
        begin = f"{called} is "
        middle = f" and {labels[part]} is "
    texts = []
    for text, grouped in fronts.items():
        if not labels and all(type(front) is int for front in grouped):
            # "0: 1 to 2" would be read as a time
            texts += [f"({run}, {text})" for run in join_runs(grouped).split(", ")]
        else:
            texts.append(f"{begin}{join_runs(grouped)}{middle}{text}")
    return "; ".join(texts)


def _running_part(names: Sequence[Hashable]) -> int | None:
    """Return which part of names that are tuples of one length runs on: the last whole number."""
    lengths = {len(name) if isinstance(name, tuple) else 0 for name in names}
    if len(lengths) != 1 or 0 in lengths:
        return None
    (length,) = lengths
    for part in reversed(range(length)):
        if all(isinstance(name, tuple) and type(name[part]) is int for name in names):
            return part
    return length - 1


def spoken(name: Hashable) -> str:
    """Return what the user calls a state or an action, as a sentence says it."""
    if isinstance(name, tuple):
        return f"({', '.join(map(printable_name, name))})"
    return printable_name(name)


def quoted(name: object) -> str:
    """Return a name in quotes, as a sentence says it; a long one is shortened."""
    return repr(_shortened(name, LONGEST)) if isinstance(name, str) else repr(name)


# Names come from specs, logs and records, which may come from strangers: as text they steer no
# terminal, end no line, and can be written in UTF-8.


def printable(text: object, longest: int | None = None) -> str:
    r"""Return a text in which everything that is no sign or space is written as an escape.

    Of one longer than ``longest`` characters the beginning and the end are left.

    >>> from occamrl.naming import printable
    >>> printable("\x1b[2Jred\ud800"), printable("a" * 5_000 + "z", longest=8)
    ('\\x1b[2Jred\\ud800', 'aaaaa…az')
    """
    signs = str(text)
    if not signs.isprintable():
        signs = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in signs)
    return _shortened(signs, longest)


def printable_name(name: object) -> str:
    """Return a name as a sentence says it."""
    return printable(name, LONGEST)


def _shortened(text: str, longest: int | None) -> str:
    if longest is None or len(text) <= longest:
        return text
    end = longest // 4
    return f"{text[: longest - end - 1]}…{text[-end:]}"


def csv_cell(cell: object) -> object:
    """Return a cell of a CSV file; a text that a spreadsheet would run is marked as a text.

    The apostrophe in front of it is taken away where a CSV file is read.

    >>> from occamrl.naming import csv_cell
    >>> csv_cell("=1+1"), csv_cell("'=1+1"), csv_cell(-1.5), csv_cell("don't")
    ("'=1+1", "''=1+1", -1.5, "don't")
    """
    if not isinstance(cell, str):
        return cell
    text = cell.encode("utf-8", "backslashreplace").decode()  # half a pair of a surrogate
    return f"'{text}" if re.match(_FORMULA, text) else text
