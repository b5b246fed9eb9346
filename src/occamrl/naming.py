"""What the user calls states and actions: from a name to its number and back, and into words."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from occamrl.errors import ParameterError

_LISTED = 12  # names that a message lists


class Names(NamedTuple):
    """What the user calls the states and actions."""

    states: tuple[Hashable, ...]
    actions: tuple[Hashable, ...]
    absorbing: tuple[bool, ...] = ()  # in which states nothing more happens


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
        return ", ".join(map(str, names))
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


def describe_states(names: Sequence[Hashable]) -> str:
    """Return some states in words, runs of whole numbers joined.

    >>> from occamrl.naming import describe_states
    >>> describe_states([0, 1, 2, 3, 4, 7])
    '0 to 4, 7'
    >>> describe_states([("Mon", 0), ("Mon", 1), ("Tue", 2), ("Thu", 0), ("Thu", 1)])
    'Mon, Thu: 0 to 1; Tue: 2'
    """
    part = _running_part(names)
    if part is None:
        return join_runs(names)
    # states that differ in the part that runs on alone are one group
    groups: dict[tuple[Hashable, ...], list[Hashable]] = {}
    for name in names:
        assert isinstance(name, tuple)  # noqa: S101  # as _running_part found
        others = (*name[:part], *name[part + 1 :])
        groups.setdefault(others, []).append(name[part])
    # groups with equal runs are named together
    fronts: dict[str, list[Hashable]] = {}
    for others, running in groups.items():
        front = others[0] if len(others) == 1 else f"({', '.join(map(str, others))})"
        fronts.setdefault(join_runs(running), []).append(front)
    return "; ".join(f"{join_runs(front)}: {text}" for text, front in fronts.items())


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
        return f"({', '.join(map(str, name))})"
    return str(name)
