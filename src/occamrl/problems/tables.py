"""Tables of outcomes, as Gymnasium's ``env.unwrapped.P``, turned into a listing.

Such a table holds, for each state and action, a list of tuples ``(probability, next_state, reward)`` or
``(probability, next_state, reward, terminated)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from occamrl.errors import ParameterError, ProbabilityError, RewardError, ShapeError
from occamrl.problems.checks import require_integer
from occamrl.problems.listing import Listing, merge

Table = Mapping[int, Any] | Sequence[Any]  # table[s][a] = [(probability, next_state, reward[, terminated]), ...]


class ReadTable(NamedTuple):
    """A table as a listing; ``listed`` counts the states before one was added for the end of an episode."""

    states: int
    actions: int
    listed: int
    listing: Listing


def _rows(table: Any, index: tuple[int, ...], expected: int | None = None) -> list[Any]:
    """Return the entries of a mapping with keys 0, 1, ... or of a sequence."""
    what = "entries for 0, 1, ..., as a mapping or a sequence"
    if isinstance(table, Mapping):
        if set(table) != set(range(len(table))):
            raise ShapeError("outcomes", got=f"keys {sorted(map(str, table))[:5]}", expected=what, index=index or None)
        table = [table[key] for key in range(len(table))]
    if not isinstance(table, Sequence) or isinstance(table, str) or not table:
        raise ShapeError("outcomes", got=f"a {type(table).__name__}", expected=what, index=index or None)
    if expected is not None and len(table) != expected:
        raise ShapeError("outcomes", got=f"{len(table)} actions", expected=f"{expected}, as in state 0", index=index)
    return list(table)


def _entry(entry: Any, index: tuple[int, ...], states: int) -> tuple[float, int, float, bool]:
    """Return one outcome, with its numbers checked one by one."""
    try:
        probability, next_state, reward = (float(entry[0]), entry[1], float(entry[2]))
        terminated = bool(entry[3]) if len(entry) > 3 else False
    except (TypeError, ValueError, LookupError):
        expected = "(probability, next_state, reward[, terminated])"
        raise ShapeError("outcomes", got=repr(entry), expected=expected, index=index) from None
    if not (math.isfinite(probability) and probability >= 0.0):
        raise ProbabilityError("outcomes", got=probability, expected="a probability >= 0", index=index)
    try:
        target = require_integer("next_state", next_state, 0, ShapeError)
    except ShapeError:
        target = states
    if target >= states:
        raise ShapeError("outcomes", got=f"next state {next_state!r}", expected=f"one of 0..{states - 1}", index=index)
    return probability, target, reward, terminated


def _range(reward_range: tuple[float, float] | None) -> tuple[float, float]:
    low, high = (0.0, 1.0) if reward_range is None else (float(end) for end in reward_range)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ParameterError("reward_range", got=reward_range, expected="(low, high) with low < high")
    return low, high


def read_table(table: Table, *, end_episodes: bool, reward_range: tuple[float, float] | None) -> ReadTable:
    """Read a table of outcomes.

    Parameters
    ----------
    end_episodes
        Honour the flag ``terminated``: such an outcome leads to a state where nothing more is earned. Where its own
        target is not of that kind (under every action it stays, with reward 0), a state S is added and led to.
    reward_range
        (low, high): replace each reward r by (r - low) / (high - low), and so the 0 earned after the end. Every policy
        earns H steps' worth of rewards, so the order of policies is kept, and regret is divided by high - low.
    """
    low, high = _range(reward_range)
    rows = _rows(table, ())
    states = listed = len(rows)
    actions = len(_rows(rows[0], (0,)))
    pairs: list[int] = []
    entries: list[tuple[float, int, float, bool]] = []
    for s, row in enumerate(rows):
        for a, outcomes in enumerate(_rows(row, (s,), actions)):
            for i, entry in enumerate(_rows(outcomes, (s, a))):
                pairs.append(s * actions + a)
                entries.append(_entry(entry, (s, a, i), states))
                if not low <= entries[-1][2] <= high:
                    raise RewardError(
                        "outcomes", got=entries[-1][2], expected=f"a reward in [{low:g}, {high:g}]", index=(s, a, i)
                    )
    pair = np.array(pairs, np.int64)
    columns = list(zip(*entries, strict=True))
    probability, reward = np.array(columns[0]), np.array(columns[2])
    next_state = np.array(columns[1], np.int64)
    if end_episodes:
        stirs = np.zeros(states, bool)
        stirs[pair[(probability > 0.0) & ((next_state != pair // actions) | (reward != 0.0))] // actions] = True
        ends = np.array(columns[3], bool) & stirs[next_state]
        if ends.any():
            if not low <= 0.0 <= high:
                raise ParameterError("reward_range", got=reward_range, expected="0 in it, earned after the end")
            next_state[ends] = states
            pair = np.concatenate([pair, states * actions + np.arange(actions)])
            next_state = np.concatenate([next_state, np.full(actions, states)])
            probability = np.concatenate([probability, np.ones(actions)])
            reward = np.concatenate([reward, np.zeros(actions)])
            states += 1
    reward = (reward - low) / (high - low)
    return ReadTable(states, actions, listed, merge(Listing(pair, next_state, probability[np.newaxis], reward)))
