"""Models with real parameters whose likelihoods have steps, modes and edges, and truths in them.

They use what all versions of the package have, so that :mod:`studies.before` can measure others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import occamrl as orl
from occamrl.problems.operations import erratic
from occamrl.protocols import Floats

Rows = Iterator[tuple[Any, ...]]


class Case(NamedTuple):
    """A model, a truth in it, and how long logs are."""

    model: Callable[[], orl.Model]
    point: dict[str, float]
    classes: dict[str, list[str]]
    episodes: int
    never: int = -1  # an action that the log never tries


def wear(age: int, action: str, *, tau: float = 10.0) -> Rows:
    """Yield how wear begins at an age."""
    fails = 0.1 if age < tau else 0.4
    if action == "replace":
        fails = 0.0
    yield fails, 0, -5.0
    yield (
        1.0 - fails,
        0 if action == "replace" else min(age + 1, 30),
        1.0 - 2.0 * (action == "replace"),
    )


def slow_queue(length: int, servers: int, *, above: float, slow: float = 0.3) -> Rows:
    """Yield a queue whose service slows above a length that is not known."""
    served = 0.45 * servers - slow * (length > above) * servers
    arrives = 0.5
    yield arrives * (1.0 - served), min(length + 1, 15), -0.1 * length - 0.3 * servers
    yield served * (1.0 - arrives), max(length - 1, 0), -0.1 * length - 0.3 * servers
    same = 1.0 - arrives * (1.0 - served) - served * (1.0 - arrives)
    yield same, length, -0.1 * length - 0.3 * servers


def season(day: int, action: int, *, level: float, period: float) -> Rows:
    """Yield a season of unknown length."""
    chance = level + 0.25 * math.sin(2.0 * math.pi * day / period) + 0.05 * action
    yield chance, (day + 1) % 60, 1.0 - 0.1 * action
    yield 1.0 - chance, (day + 2) % 60, -0.1 * action


def saturating(state: int, dose: int, *, rate: float) -> Rows:
    """Yield a chance of 1 - exp(-rate dose), for boxes far wider than what matters."""
    chance = 1.0 - math.exp(-rate * dose / 4.0)
    yield chance, 1 - state, 1.0 - 0.1 * dose
    yield 1.0 - chance, state, -0.1 * dose


def mirrored(state: int, action: int, *, x: float) -> Rows:
    """Yield a law of the distance of x from 1/2."""
    chance = 0.2 + abs(x - 0.5) - 0.1 * action
    yield chance, 1 - state, 1.0
    yield 1.0 - chance, state, 0.2 * action


def busy(length: int, action: int, *, arrives: float, served: float) -> Rows:
    """Yield a queue seen while it is busy: (l, m) is as likely as (1 - m, 1 - l)."""
    up = arrives * (1.0 - served)
    down = served * (1.0 - arrives)
    if length == 0:
        yield 1.0, 5, 0.0
        return
    yield up, min(length + 1, 10), -0.1 * length
    yield down, length - 1, 1.0 - 0.1 * length
    yield 1.0 - up - down, length, -0.1 * length


def bump(state: int, action: int, *, p: float) -> Rows:
    """Yield a worth of p (1 - p)."""
    chance = p * (1.0 - p) * (1.0 - 0.2 * action)
    yield chance, 1, 1.0
    yield 1.0 - chance, 0, 0.0


def hill(state: int, action: int, *, x: float, y: float) -> Rows:
    """Yield a worth that is largest inside a box of two parameters."""
    chance = 0.1 + 0.8 * math.exp(-20.0 * (x - 0.5) ** 2 - 20.0 * (y - 0.4) ** 2)
    yield chance, (state + 1) % 3, 1.0
    yield (1.0 - chance) * x, state, 0.0
    yield (1.0 - chance) * (1.0 - x), (state + 2) % 3, 0.0


def chances(state: int, action: int, **p: float) -> Rows:
    """Yield a chance for each of some states, that decides how it goes on."""
    chance = list(p.values())[state]
    yield chance, (state + 1) % len(p), 1.0 - 0.5 * action
    yield 1.0 - chance, (state + 2) % len(p), 0.0


def four(state: int, action: int, *, a: float, b: float, c: float, d: float) -> Rows:
    """Yield four chances."""
    yield from chances(state, action, a=a, b=b, c=c, d=d)


def six(
    state: int, action: int, *, a: float, b: float, c: float, d: float, e: float, f: float
) -> Rows:
    """Yield six chances."""
    yield from chances(state, action, a=a, b=b, c=c, d=d, e=e, f=f)


def shop(stock: int, order: int, *, mean: float, empty: float = 0.0) -> Rows:
    """Yield a shop like that of the README."""
    filled = min(stock + order, 12)
    for demand, probability in enumerate(erratic(mean, empty, 0.0, 12)):
        sold = min(filled, demand)
        yield probability, filled - sold, 4.0 * sold - 0.5 * (filled - sold) - 6.0 * (order > 0)


def made(
    function: Callable[..., Rows],
    box: Mapping[str, tuple[float, float]],
    actions: Sequence[Any],
    horizon: int,
    start: Any = 0,
) -> Callable[[], orl.Model]:
    """Return what makes a model."""

    def model() -> orl.Model:
        return orl.Model(
            function, start=start, actions=list(actions), horizon=horizon, parameters=dict(box)
        )

    return model


UNIT = (0.0, 1.0)
SHOP = made(shop, {"mean": (0.5, 8.0), "empty": (0.0, 0.6)}, [0, 2, 4, 6], 28, 4)
NESTED = {"steady": ["mean"], "with empty days": ["mean", "empty"]}
FOUR = dict.fromkeys("abcd", (0.05, 0.95))
SIX = dict.fromkeys("abcdef", (0.05, 0.95))
CASES = {
    "wear from an age on": Case(
        made(wear, {"tau": (1.0, 29.0)}, ["run", "replace"], 40), {"tau": 8.6}, {"": ["tau"]}, 12
    ),
    "queue slows above a length": Case(
        made(slow_queue, {"above": (0.0, 14.0), "slow": (0.0, 0.4)}, [1, 2], 40),
        {"above": 6.2, "slow": 0.3},
        {"where": ["above"], "and how much": ["above", "slow"]},
        12,
    ),
    "unknown period": Case(
        made(season, {"level": (0.26, 0.68), "period": (3.0, 30.0)}, [0, 1], 40),
        {"level": 0.4, "period": 11.3},
        {"": ["level", "period"]},
        20,
    ),
    "wide box": Case(
        made(saturating, {"rate": (0.0, 80.0)}, [0, 1, 2], 20), {"rate": 0.3}, {"": ["rate"]}, 20
    ),
    "box of 8,000": Case(
        made(saturating, {"rate": (0.0, 8_000.0)}, [0, 1, 2], 20), {"rate": 2.0}, {"": ["rate"]}, 20
    ),
    "mirrored modes": Case(made(mirrored, {"x": UNIT}, [0, 1], 20), {"x": 0.8}, {"": ["x"]}, 20),
    "queue seen while busy": Case(
        made(busy, {"arrives": (0.02, 0.98), "served": (0.02, 0.98)}, [0], 30, 5),
        {"arrives": 0.3, "served": 0.4},
        {"": ["arrives", "served"]},
        20,
    ),
    "worth p (1 - p)": Case(made(bump, {"p": UNIT}, [0, 1], 20), {"p": 0.5}, {"": ["p"]}, 5),
    "worth with a hill inside": Case(
        made(hill, {"x": UNIT, "y": UNIT}, [0], 20), {"x": 0.5, "y": 0.4}, {"": ["x", "y"]}, 3
    ),
    "truth at two edges": Case(
        made(four, dict.fromkeys("abcd", UNIT), [0, 1], 20),
        {"a": 0.0, "b": 1.0, "c": 0.5, "d": 0.2},
        {"": list("abcd")},
        10,
    ),
    "four parameters": Case(
        made(four, FOUR, [0, 1], 20),
        {"a": 0.3, "b": 0.7, "c": 0.5, "d": 0.9},
        {"": list("abcd")},
        20,
    ),
    "six parameters": Case(
        made(six, SIX, [0, 1], 20),
        {"a": 0.3, "b": 0.7, "c": 0.5, "d": 0.9, "e": 0.1, "f": 0.4},
        {"": list("abcdef")},
        20,
    ),
    "five rows": Case(
        made(four, FOUR, [0, 1], 5),
        {"a": 0.3, "b": 0.7, "c": 0.5, "d": 0.9},
        {"": list("abcd")},
        1,
    ),
    "shop, 2,000 rows": Case(SHOP, {"mean": 2.1, "empty": 0.28}, NESTED, 72),
    "shop, an action never tried": Case(SHOP, {"mean": 2.1, "empty": 0.28}, NESTED, 10, never=3),
}


def behaviour(name: str, allowed: Floats, horizon: int, never: int = -1) -> Floats:
    """Return a policy [H, S, A] that a log follows.

    ``random``; ``by step``, one action in the first half of an episode and another after it; ``one
    each``, always the same action in a state. An action is ``never`` tried if it is named.
    """
    actions = np.arange(allowed.shape[1])
    tried = actions[actions != never]
    states = np.arange(len(allowed))
    chances = np.zeros((horizon, *allowed.shape))
    if name == "random":
        chances[:, :, tried] = allowed[:, tried]
    elif name == "by step":
        half = horizon // 2
        chances[:half, :, tried[0]] = 1.0
        chances[half:, :, tried[-1]] = 1.0
    else:
        chances[:, states, tried[states % len(tried)]] = 1.0
    shares: Floats = chances / chances.sum(axis=2, keepdims=True)
    return shares
