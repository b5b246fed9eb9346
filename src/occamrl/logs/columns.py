"""A log in columns: what may matter, what may need it, and all of it in codes.

The columns of the state, of the action and of earlier rows, and the part of the log that a row is
in, are candidates; the reward, the end of episodes and the next values of columns are targets
(``evidence/columns.py``).

**Bins.** A column of numbers with many values is cut at quantiles of the first rows, which are not
weighed: the ends of bins are then fixed before the rows that count. **Parts** of the log end at
rows 256, 512, 1024, ..., which needs no knowledge of how long it will be.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from occamrl.answers.wording import format_number
from occamrl.arrays import Bools, Floats, Ints
from occamrl.errors import ParameterError
from occamrl.evidence.columns import Coded
from occamrl.logs.log import Log
from occamrl.logs.repairs import Steps
from occamrl.logs.table import END, Labels
from occamrl.models.tables import ENDED

PART = "part of the log"
REWARD = "reward"
EPISODE_END = "end"
_MOST_VALUES = 25  # of a column of numbers that is not cut into bins
_FIRST_PART = 256  # rows; every part is as long as all before it
_FIRST_ROWS = 20  # for each bin, which fix the ends of bins
_FEWEST_ROWS = 4  # for each value of a column of many: with fewer nothing can be said of it


class Candidate(NamedTuple):
    """A column that may matter."""

    name: str
    kind: Literal["state", "action", "part"]
    origin: str  # its column in the log
    lag: int  # how many rows before
    column: Coded
    values: Sequence[Hashable]  # what its codes stand for
    cut: bool = False  # whether it was cut into bins

    @property
    def occurring(self) -> int:
        """How many values it has in the rows that are weighed."""
        return int(np.count_nonzero(np.bincount(self.column.codes)))

    @property
    def scattered(self) -> bool:
        """Whether nearly every row has a value of its own, so that nothing can be said of it."""
        many = len(self.values) > _MOST_VALUES
        return many and len(self.values) * _FEWEST_ROWS > self.column.codes.size


class Target(NamedTuple):
    """What may need columns."""

    column: Coded
    rows: Bools  # on which it is known
    cut: bool = False


class Columns(NamedTuple):
    """A log as candidates and targets."""

    steps: Steps
    candidates: list[Candidate]
    following: dict[str, Ints]  # the next value of each state column; ENDED where there is none
    targets: dict[str, Target]
    first: int  # rows before are not weighed: they fixed the ends of bins


def read_columns(log: Log, lags: int, bins: int) -> Columns:
    """Return a log as candidates and targets."""
    steps = _labelled_steps(log)
    ended = steps.next_state == END
    current: list[Candidate] = []
    following: dict[str, Ints] = {}
    targets: dict[str, Target] = {}
    first = 0
    for i, name in enumerate(_names(log, "state")):
        part = _part_of(log.states, i, log.roles["state"], steps.state, bins)
        current.append(_candidate(name, "state", part, steps.state))
        following[name] = np.where(ended, ENDED, part.codes[np.maximum(steps.next_state, 0)])
        next_column = Coded(following[name], len(part.values))
        targets[name] = Target(next_column, ~ended, part.used > 0)
        first = max(first, part.used)
    for i, name in enumerate(_names(log, "action")):
        part = _part_of(log.actions, i, log.roles["action"], steps.action, bins)
        current.append(_candidate(name, "action", part, steps.action))
        first = max(first, part.used)
    paid = ~np.isnan(steps.reward)
    if paid.any():
        reward, used = _reward(steps.reward, paid, bins)
        targets[REWARD] = Target(reward, paid, used > 0)
        first = max(first, used)
    if ended.any() and not ended.all():
        targets[EPISODE_END] = Target(Coded(ended.astype(np.int64), 2), np.ones(ended.size, bool))
    candidates = [*current, *_earlier(current, steps, lags), _part_of_log(ended.size)]
    return Columns(steps, candidates, following, targets, first)


def _labelled_steps(log: Log) -> Steps:
    """Return all rows that have a state and an action; the others are counted as left out."""
    parts: list[Any] = [np.concatenate(part) for part in zip(*log.blocks(), strict=True)]
    steps = Steps(*parts)
    empty = (steps.state < 0) | (steps.action < 0)
    log.repairs.drop(["unlisted"])
    log.repairs.add("unlisted", empty, steps.named)
    steps = steps.where(~empty)
    if not steps.state.size:
        expected = "at least one row with a state, an action and a next state"
        raise ParameterError("log", got="empty cells in all of them", expected=expected)
    return steps


def _names(log: Log, role: str) -> list[str]:
    """Return the columns of a role; refuse names that answers use."""
    names = [str(name) for name in log.roles[role]]
    for name in names:
        if name in (REWARD, EPISODE_END, PART):
            expected = "another name of that column: this one is what answers call a target"
            raise ParameterError("log", got=f"a {role} column {name!r}", expected=expected)
    return names


# Columns ------------------------------------------------------------------------------------------


class LabelPart(NamedTuple):
    """One column of labels that may be tuples."""

    codes: Ints  # of each label
    values: list[Hashable]  # what codes stand for
    used: int  # rows that fixed the ends of bins; 0 where there are none


def _part_of(
    labels: Labels, place: int, columns: Sequence[str], rows: Ints, bins: int
) -> LabelPart:
    """Return one column of labels, cut into bins where it has many numbers."""
    cells: list[Any] = list(labels.codes)
    if len(columns) > 1:
        cells = [label[place] for label in cells]
    values = list(dict.fromkeys(cells))
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    if numbers and len(values) > _MOST_VALUES:
        every = np.array(cells, np.float64)
        edges, used = _edges(every[rows], bins)
        return LabelPart(np.searchsorted(edges, every, side="right"), _bin_names(edges), used)
    if numbers:
        values.sort()
    number = {value: code for code, value in enumerate(values)}
    return LabelPart(np.array([number[cell] for cell in cells], np.int64), values, 0)


def _candidate(
    name: str, kind: Literal["state", "action"], part: LabelPart, rows: Ints
) -> Candidate:
    column = Coded(part.codes[rows], len(part.values))
    return Candidate(name, kind, name, 0, column, part.values, part.used > 0)


def _reward(reward: Floats, paid: Bools, bins: int) -> tuple[Coded, int]:
    """Return the reward in codes, and how many rows fixed the ends of bins."""
    values = np.unique(reward[paid])
    if values.size <= _MOST_VALUES:
        return Coded(np.searchsorted(values, reward), values.size), 0
    edges, used = _edges(reward, bins)
    return Coded(np.searchsorted(edges, reward, side="right"), edges.size + 1), used


def _edges(numbers: Floats, bins: int) -> tuple[Floats, int]:
    """Return where to cut, at quantiles of first rows, and how many rows that takes."""
    first = np.flatnonzero(~np.isnan(numbers))[: _FIRST_ROWS * bins]
    begin = numbers[first]
    inner = np.quantile(begin, np.linspace(0.0, 1.0, bins + 1)[1:-1])
    edges, times = np.unique(inner, return_counts=True)
    # what many of the first rows have is a bin of its own
    edges = np.union1d(edges, np.nextafter(edges[times > 1], np.inf))
    edges = edges[edges > begin.min()]
    if not edges.size:
        edges = np.nextafter(begin[:1], np.inf)
    return edges, int(first[-1]) + 1


def _bin_names(edges: Floats) -> list[Hashable]:
    """Return the names of the bins between some edges."""
    texts = [format_number(float(edge)) for edge in edges]
    names: list[Hashable] = [f"below {texts[0]}"]
    for low, high in itertools.pairwise(texts):
        names.append(low if low == high else f"{low} to {high}")
    return [*names, f"{texts[-1]} or more"]


def _earlier(current: Sequence[Candidate], steps: Steps, lags: int) -> list[Candidate]:
    """Return the columns of earlier rows; a value of its own says that there is none."""
    row = np.arange(steps.state.size)
    follows = np.append(False, np.diff(steps.episode) == 0) & (np.diff(steps.step, prepend=0) == 1)
    previous = np.where(follows, row - 1, -1)
    earlier: list[Candidate] = []
    for lag in range(1, lags + 1):
        row = np.where(row >= 0, previous[row], -1)
        before = "1 row before" if lag == 1 else f"{lag} rows before"
        for origin in current:
            size = origin.column.size
            codes = np.where(row >= 0, origin.column.codes[row], size)
            candidate = origin._replace(
                name=f"{origin.name}, {before}",
                lag=lag,
                column=Coded(codes, size + 1),
                values=[*origin.values, "(none)"],
            )
            earlier.append(candidate)
    return earlier


def _part_of_log(rows: int) -> Candidate:
    """Return the part of the log that each row is in."""
    codes = np.ceil(np.log2((np.arange(rows) + 1) / _FIRST_PART)).clip(0).astype(np.int64)
    size = int(codes.max()) + 1
    return Candidate(PART, "part", PART, 0, Coded(codes, size), range(size))
