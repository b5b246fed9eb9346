"""A log of episodes, checked row by row.

One row per step: episode, step, state, action, reward, next_state, terminated, truncated. Rows are in the order in
which they were collected: episodes one after the other, the steps 0, 1, 2, ... of each in a row. What is asked of the
order is not pedantry: a policy that learned from earlier episodes has drawn on their outcomes, and the argument behind
the test takes outcomes in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamrl.contracts import Floats, Ints
from occamrl.errors import InvalidInput

MOST_ROWS = 100_000_000
_WHOLE = ("episode", "step", "state", "action", "next_state")
_FLAGS = ("terminated", "truncated")
_STORED = ("state", "action", "reward", "next_state", "terminated", "truncated")
COLUMNS = ("episode", "step", *_STORED)

Flags = NDArray[np.bool_]


class LogError(InvalidInput):
    """A log cannot be used; ``field`` is the column, ``index`` the row, counted from 0."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Log:
    """Episodes, one row per step; use :meth:`of_columns`, which checks them.

    ``begin`` says at which row each episode begins, and where the last one ends.
    """

    state: Ints  # [n]
    action: Ints  # [n]
    reward: Floats  # [n] in the unit of whoever collected it
    next_state: Ints  # [n]
    terminated: Flags  # [n]
    truncated: Flags  # [n]
    begin: Ints  # [K + 1]
    source: str = "log"

    @property
    def episodes(self) -> int:
        """The number K of episodes."""
        return self.begin.size - 1

    @property
    def rows(self) -> int:
        """The number n of steps."""
        return int(self.state.size)

    @property
    def step(self) -> Ints:
        """The number of each step in its episode, from 0."""
        return np.arange(self.rows) - np.repeat(self.begin[:-1], np.diff(self.begin))

    def head(self, episodes: int) -> Log:
        """Return the first episodes."""
        begin = self.begin[: episodes + 1]
        part = slice(0, int(begin[-1]))
        columns = {name: getattr(self, name)[part] for name in _STORED}
        return Log(**columns, begin=begin, source=self.source)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name, as they are stored."""
        episode = np.repeat(np.arange(self.episodes), np.diff(self.begin))
        return {"episode": episode, "step": self.step, **{name: getattr(self, name) for name in _STORED}}

    @classmethod
    def of_columns(cls, columns: Mapping[str, Any], *, source: str = "log") -> Log:
        """Return the log of these columns (see :data:`COLUMNS`), after checking every row.

        Raises
        ------
        LogError
            With the column and the first row that is wrong.
        """
        arrays = {name: _array(columns, name) for name in COLUMNS}
        sizes = {array.size for array in arrays.values()}
        if len(sizes) != 1 or 0 in sizes:
            raise LogError("rows", got=f"columns of {sorted(sizes)} rows", expected="as many in each, at least one")
        if max(sizes) > MOST_ROWS:
            raise LogError("rows", got=f"{max(sizes):,}", expected=f"at most {MOST_ROWS:,}")
        episode, step = arrays["episode"], arrays["step"]
        new = np.concatenate([[True], np.diff(episode) != 0])
        begin = np.append(np.flatnonzero(new), episode.size)
        _require_order(episode, step, new)
        _require_chain(arrays, new)
        return cls(**{name: arrays[name] for name in _STORED}, begin=begin, source=source)


def _array(columns: Mapping[str, Any], name: str) -> NDArray[Any]:
    """Return one column as integers, floats or flags."""
    if name not in columns:
        raise LogError(name, got="no such column", expected=f"the columns {', '.join(COLUMNS)}")
    array = np.asarray(columns[name])
    kind, expected = array.dtype.kind, "whole numbers" if name in _WHOLE else "numbers"
    if name in _FLAGS:
        expected = "true or false"
    allowed = "iu" if name in _WHOLE else "b" if name in _FLAGS else "iuf"
    if array.ndim != 1 or (kind not in allowed and array.size):
        raise LogError(name, got=f"{array.dtype}{list(array.shape)}", expected=f"a column of {expected}")
    if name in _FLAGS:
        return array.astype(bool)
    if name in _WHOLE:
        whole = array.astype(np.int64)
        refuse_first(name, (whole < 0) | (whole > 2**62), array, "a whole number >= 0")
        return whole
    floats = array.astype(np.float64)
    refuse_first(name, ~np.isfinite(floats), array, "a finite number")
    return floats


def refuse_first(name: str, bad: Flags, values: NDArray[Any], expected: object) -> None:
    """Refuse the first row that is marked."""
    if bad.any():
        row = int(np.argmax(bad))
        raise LogError(name, index=(row,), got=values[row], expected=expected)


def _require_order(episode: Ints, step: Ints, new: Flags) -> None:
    """Refuse episodes that come back, and steps that do not count 0, 1, 2, ..."""
    first = episode[new]
    again = np.concatenate([[False], first[1:] < first[:-1]])
    if again.any():
        row = int(np.flatnonzero(new)[np.argmax(again)])
        expected = f"episodes in the order in which they were collected, above {episode[row - 1]}"
        raise LogError("episode", index=(row,), got=int(episode[row]), expected=expected)
    due = np.where(new, 0, np.concatenate([[0], step[:-1] + 1]))
    wrong = step != due
    if wrong.any():
        row = int(np.argmax(wrong))
        raise LogError("step", index=(row,), got=int(step[row]), expected=f"{due[row]}: steps count 0, 1, 2, ...")


def _require_chain(arrays: Mapping[str, NDArray[Any]], new: Flags) -> None:
    """Refuse a step that does not begin where the one before ended, or that comes after the end of its episode."""
    inside = ~new[1:]
    torn = inside & (arrays["next_state"][:-1] != arrays["state"][1:])
    if torn.any():
        row = int(np.argmax(torn)) + 1
        expected = f"{arrays['next_state'][row - 1]}, the next_state of row {row - 1}"
        raise LogError("state", index=(row,), got=int(arrays["state"][row]), expected=expected)
    for name in _FLAGS:
        late = inside & arrays[name][:-1]
        if late.any():
            row = int(np.argmax(late)) + 1
            raise LogError(name, index=(row - 1,), got="true, with a step after it", expected="true on last steps only")
