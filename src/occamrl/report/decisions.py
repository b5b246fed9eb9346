"""What a selector decided, over epochs and seeds: classes, coordinates, norm bounds, and the statistics behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from occamrl.report.inputs import Cell
from occamrl.report.numbers import is_number

CHOICES = ("chosen", "active", "norm_bound")  # in this order the first one a phase has is its decision


class LockIn(NamedTuple):
    """When a run made up its mind."""

    epoch: int  # of the first phase from which the decision no longer changes
    episode: int  # the first episode (from 1) of that phase
    changed_last: bool  # the last decision differs from the one before: it may not be settled
    decision: Any


@dataclass(frozen=True)
class Step:
    """One decision of one run: the last phase of an epoch that has it."""

    epoch: int
    episode: int  # the first episode (from 1) of that phase
    facts: Mapping[str, Any]


def choice_of(cells: Sequence[Cell]) -> str | None:
    """Return which kind of decision the phases of these cells carry; None if none."""
    for name in CHOICES:
        if any(plain_choice(name, phase["facts"].get(name)) is not None for cell in cells for phase in cell.phases):
            return name
    return None


def plain_choice(name: str, value: Any) -> Any:
    """Return a decision as it is compared and shown: an int, a sorted tuple of ints, or a float; None if it is none."""
    if name == "active":
        if not isinstance(value, list) or not all(type(j) is int and 0 <= j < 2**53 for j in value):
            return None
        return tuple(sorted(value))
    if not is_number(value):
        return None
    return int(value) if name == "chosen" else float(value)


def _walk(cell: Cell, name: str) -> list[tuple[int, int, Any]]:
    """Return (epoch, first episode, decision) of every phase that has a decision."""
    begin, found = 1, []
    for phase in cell.phases:
        decision = plain_choice(name, phase["facts"].get(name))
        if decision is not None:
            found.append((int(phase["epoch"]), begin, decision))
        begin += int(phase["episodes"])
    return found


def lock_in(cell: Cell, name: str) -> LockIn | None:
    """Return the first phase from which the decision no longer changes; None for a run without decisions."""
    walk = _walk(cell, name)
    if not walk:
        return None
    first = len(walk) - 1
    while first > 0 and walk[first - 1][2] == walk[-1][2]:
        first -= 1
    epoch, episode, decision = walk[first]
    return LockIn(epoch, episode, changed_last=first > 0 and first == len(walk) - 1, decision=decision)


def steps(cell: Cell, name: str) -> dict[int, Step]:
    """Return the last decision of each epoch, by epoch."""
    begin, found = 1, {}
    for phase in cell.phases:
        epoch = int(phase["epoch"])
        if plain_choice(name, phase["facts"].get(name)) is not None:
            found[epoch] = Step(epoch, begin, phase["facts"])
        begin += int(phase["episodes"])
    return found
