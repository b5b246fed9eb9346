"""The contract of functions that a user hands in for a continuous system, and how it is checked.

A simulator is ``step(states [N, n], actions [N, m], rng) -> next_states [N, n]``: row i is a draw
of the state that follows row i, independent of the other rows. The test by exchangeability rests on
that: rows that share a draw reject the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from occamrl.addresses import generator
from occamrl.arrays import Bools
from occamrl.errors import InvalidInput, require_kind
from occamrl.protocols import Floats, Simulator

_ROWS = 64  # rows of a call
_CALLS = 16
_ROUNDING = 1e-9  # of the size of numbers, below which they are equal
_APART = 0.36  # distance of distribution functions that one law exceeds with p < 1e-6
_CALLED_AS = {
    "step": "step(states [N, n], actions [N, m], rng) -> next_states [N, n]",
    "reward": "reward(states [N, n], actions [N, m], next_states [N, n]) -> [N]",
    "view": "view(states [N, n]) -> [N, d]",
    "policy": "policy(states [N, n], step) -> actions [N, m]",
}


class SimulatorError(InvalidInput):
    """A simulator breaks its contract; the message says what to change."""


def call_checked(
    kind: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    shape: tuple[int | None, ...],
    name: str = "",
) -> Floats:
    """Return what a user's function returns: finite numbers of a shape, or else an error.

    ``kind`` is how it is called: "step", "reward", "view" or "policy". A size of None in ``shape``
    may be any.
    """
    name = name or kind
    expected = f"{_CALLED_AS[kind]}, for every N"
    try:
        values = np.asarray(function(*arguments))
    except Exception as error:  # of someone else's function, which may raise anything
        got = f"{type(error).__name__}: {error}"
        raise SimulatorError(name, got=got, expected=expected) from error
    if not _has_shape(values, shape) or values.dtype.kind not in "fiu":
        got = f"{values.dtype}{list(values.shape)} for {len(arguments[0])} rows"
        raise SimulatorError(name, got=got, expected=f"{expected}: one row for each row given")
    if not np.isfinite(values).all():
        finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        row = int(np.flatnonzero(~finite)[0])
        tables = [argument for argument in arguments if np.ndim(argument) == 2]
        got = f"{values[row]} for {', '.join(str(table[row]) for table in tables)}"
        raise SimulatorError(name, got=got, expected="finite numbers: clip what may overflow")
    return values.astype(np.float64)


def _has_shape(values: Floats, shape: tuple[int | None, ...]) -> bool:
    if values.ndim != len(shape):
        return False
    return all(size in (None, got) for size, got in zip(shape, values.shape, strict=True))


def step_checked(
    member: Simulator, states: Floats, actions: Floats, rng: np.random.Generator, name: str
) -> Floats:
    """Run a simulator once; refuse what breaks its form, or writes to what it was given."""
    for field, array in (("states", states), ("actions", actions)):
        require_kind(field, array, np.ndarray)
    states_before = states.copy()
    actions_before = actions.copy()
    next_states = call_checked("step", member, (states, actions, rng), states.shape, name)
    if not np.array_equal(states, states_before) or not np.array_equal(actions, actions_before):
        expected = "a new array: copy the states before writing"
        raise SimulatorError(name, got="its arguments changed", expected=expected)
    return next_states


def check_simulator(
    member: Simulator, states: Floats, actions: Floats, *, name: str = "simulator"
) -> None:
    """Check the contract of a simulator on some states [N, n] and actions [N, m].

    A SimulatorError says what to change.
    """

    def run(states: Floats, actions: Floats, call: int) -> Floats:
        return step_checked(member, states, actions, generator(call, "contract"), name)

    first = run(states, actions, 0)
    run(states[:1], actions[:1], 0)
    if not np.array_equal(first, run(states, actions, 0)):
        expected = "the same: draw from rng alone (not np.random), and keep nothing between calls"
        got = "other numbers from the same generator state"
        raise SimulatorError(name, got=got, expected=expected)
    # Near the start, and where the walk came to.
    for index in (0, len(states) // 2, len(states) - 1):
        _check_rows(run, states, actions, index, name)


def _check_rows(
    run: Callable[[Floats, Floats, int], Floats],
    states: Floats,
    actions: Floats,
    index: int,
    name: str,
) -> None:
    """Check that the rows of a call are independent draws of one law, at one of the states.

    Three samples are compared: rows of that state together, one by one, and beside other rows.
    """
    same_state = np.repeat(states[[index]], _ROWS, axis=0)
    same_action = np.repeat(actions[[index]], _ROWS, axis=0)
    together = np.stack([run(same_state, same_action, call) for call in range(1, _CALLS + 1)])
    one_by_one = []
    for call in range(_CALLS + 1, _CALLS + 1 + _ROWS):
        one_by_one.append(run(states[[index]], actions[[index]], call))
    mixed = np.tile([index, (index + len(states) // 2) % len(states)], _ROWS)
    beside = run(states[mixed], actions[mixed], 0)[::2]

    size = _ROUNDING * (1.0 + np.abs(together).max(axis=(0, 1)))
    within = together.var(axis=1, ddof=1).mean(axis=0)
    between = together.mean(axis=1).var(axis=0, ddof=1)
    random = np.sqrt(within + between) > size
    # The variance of means of rows, over what it is for independent rows.
    ratio = np.where(random, between * _ROWS / np.maximum(within, size**2), 1.0)
    moved = _other_law(together, beside, random, size)
    alone = _other_law(together, np.concatenate(one_by_one), random, size)

    fresh = "fresh draws a row: rng.normal(size=len(states)), not rng.normal()"
    independent = "independent rows: no antithetic or stratified draws"
    row_alone = "every row treated alone (axis=1, not the mean of all rows)"
    same_law = "the same law whether rows come one by one or together"
    faults = [
        (ratio > 8.0, "rows that share a draw", fresh),
        (ratio < 0.05, "rows that balance each other", independent),
        (moved, "a row that depends on the other rows", row_alone),
        (alone, "another law for one row", same_law),
    ]
    for broken, got, expected in faults:
        if broken.any():
            coordinate = int(broken.argmax())
            got = f"{got} of a call (coordinate {coordinate})"
            raise SimulatorError(name, got=got, expected=expected)


def _other_law(together: Floats, others: Floats, random: Bools, size: Floats) -> Bools:
    """Say in which coordinates [n] draws [calls, rows, n] and others [rows, n] are of two laws."""
    differs = np.abs(others - together[0]).max(axis=0) > 1e3 * size
    for k in np.flatnonzero(random):
        differs[k] = _distance(together[..., k].ravel(), others[:, k]) > _APART
    return np.asarray(differs)


def _distance(one: Floats, other: Floats) -> float:
    """Return the largest distance of two empirical distribution functions (Kolmogorov-Smirnov)."""
    points = np.concatenate([one, other])
    below_one = np.searchsorted(np.sort(one), points, side="right") / one.size
    below_other = np.searchsorted(np.sort(other), points, side="right") / other.size
    return float(np.abs(below_one - below_other).max())
