"""Clocks: from the times of rows to the numbers of their steps, which show where rows are missing.

A time is a number or a date, and a step lasts ``every``: as the user says, or the median difference
between two rows of an episode. Differences are rounded to whole steps, so that a clock may be late
by a quarter of one. Times that follow no clock (of transactions, say) tell nothing of what is
missing; neither does a number that counts the rows of several episodes at once.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from occamrl.arrays import Bools, Floats, Ints
from occamrl.errors import ParameterError, require_number
from occamrl.logs.table import Array, LogError

LATE = 0.25  # of a step, by which a row may come too late or too early
_NANOSECONDS = {
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
    "D": 86400 * 10**9,
    "W": 7 * 86400 * 10**9,
}
_MONTHS = {"M": 1, "Y": 12}
_PERIOD = re.compile(r"\s*(\d+(?:\.\d+)?)?\s*([A-Za-z]+)\s*")


class Period(NamedTuple):
    """How long a step lasts."""

    length: float  # in the unit of the times: nanoseconds of dates
    months: bool = False  # whether it is counted in months of the calendar


class Clocked(NamedTuple):
    """What a clock says of rows."""

    step: Ints  # of each row, from the first one of its episode
    start: Floats  # of each episode, in steps from an arbitrary time


def period_of(every: str | float) -> Period:
    """Return how long a step lasts, as the user says it: "1D", "15min", 0.05.

    >>> period_of("2W").length / period_of("1D").length, period_of("Y"), period_of(0.05).length
    (14.0, Period(length=12.0, months=True), 0.05)
    """
    units = ", ".join([*_NANOSECONDS, *_MONTHS])
    expected = f'a number, or of dates one with its unit ({units}), such as "1D"'
    if not isinstance(every, str):
        return Period(require_number("every", every, 0.0, np.inf, open_low=True))
    try:
        return Period(require_number("every", float(every), 0.0, np.inf, open_low=True))
    except ValueError as error:
        match = _PERIOD.fullmatch(every)
        if match is None or match[2] not in {*_NANOSECONDS, *_MONTHS} or match[1] == "0":
            raise ParameterError("every", got=repr(every), expected=expected) from error
    count = float(match[1] or 1)
    if match[2] in _MONTHS:
        return Period(count * _MONTHS[match[2]], months=True)
    return Period(count * _NANOSECONDS[match[2]])


def step_numbers(
    field: str, time: Array, episode: Ints, row: Ints, every: str | float | None, *, strict: bool
) -> Clocked | None:
    """Return the number of the step of each row in its episode, from 0; None without a clock.

    Rows are sorted by episode and time; ``row`` are their numbers in the table. Where rows follow
    no clock, a ``strict`` one refuses the first that does not.
    """
    period = None if every is None else period_of(every)
    times = _numbers(field, time, every, period)
    begins = np.append(True, np.diff(episode) != 0)
    passed = np.diff(times, prepend=times[0])
    within = ~begins
    if not within.any():
        length = 1.0 if period is None else period.length
        return Clocked(np.zeros(row.size, np.int64), times / length)
    if period is None:
        if _counts_rows(times, begins):
            return None
        period = Period(float(np.median(passed[within])))
    ratio = passed / period.length
    steps = np.rint(ratio)
    off = within & ((np.abs(ratio - steps) > LATE) | (steps < 1))
    if off.any():
        if not strict:
            return None
        _refuse(field, time, off, row, every, period)
    count = np.cumsum(np.where(begins, 0, steps)).astype(np.int64)
    first = np.flatnonzero(begins)
    step = count - np.repeat(count[first], np.diff(np.append(first, row.size)))
    return Clocked(np.asarray(step), times[first] / period.length)


def _numbers(field: str, time: Array, every: str | float | None, period: Period | None) -> Floats:
    """Return times as numbers from their least; refuse a period of another kind."""
    dates = time.dtype.kind == "M"
    if period is not None and dates != (isinstance(every, str) and not _is_number(every)):
        expected = "a number, as the times are" if not dates else '"1D" or the like, of dates'
        raise ParameterError("every", got=repr(every), expected=f"{expected} in {field}")
    if period is not None and period.months:
        months = time.astype("datetime64[M]")
        day = (time - months) / np.timedelta64(31, "D")
        return np.asarray(months.astype(np.int64) + day, np.float64)
    # Differences of nanoseconds since 1970 would lose digits as floats.
    return np.asarray((time - time.min()).astype(np.float64))


def _is_number(text: str) -> bool:
    return _PERIOD.fullmatch(text) is None


def _counts_rows(times: Floats, begins: Bools) -> bool:
    """Return whether times count the rows of several episodes that alternate.

    Then no two rows have the same one, though episodes overlap.
    """
    first = np.flatnonzero(begins)
    ends = np.maximum.accumulate(times[np.append(first[1:], times.size) - 1])
    overlap = bool((times[first[1:]] < ends[:-1]).any())
    return overlap and np.unique(times).size == times.size


def _refuse(
    field: str, time: Array, off: Bools, row: Ints, every: str | float | None, period: Period
) -> None:
    i = int(np.argmax(off))
    length = repr(every)
    if every is None:
        length = f"{period.length:g}"
        if time.dtype.kind == "M":
            length = str(np.timedelta64(int(period.length), "ns").astype("timedelta64[s]"))
        length += ", as between most rows"
    got = f"{time[i]}, {time[i] - time[i - 1]} after row {row[i - 1]}"
    if time.dtype.kind == "M":
        lag = np.timedelta64(time[i] - time[i - 1], "s")
        got = f"{np.datetime_as_string(time[i], 's')}, {lag} after row {row[i - 1]}"
    expected = (
        f"whole steps of {length}; name another length in every=, "
        "or only order rows by it: order_by= in place of columns={'time': ...}"
    )
    raise LogError(field, index=(int(row[i]),), got=got, expected=expected)
