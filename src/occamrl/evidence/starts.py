"""Where episodes begin: counted, and as a law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from occamrl.arrays import Floats, Ints
from occamrl.protocols import Flow, Known


class StartState(TypedDict):
    """What is counted of the beginnings of episodes."""

    episodes: int
    starts: Ints  # [S]


def begin_starts(known: Known) -> StartState:
    """Return the counts before any data."""
    return {"episodes": 0, "starts": np.zeros(known.states, np.int64)}


def count_starts(state: StartState, flow: Flow) -> None:
    """Count the episodes of a block, and their first states."""
    begins = flow.step == 0
    np.add.at(state["starts"], flow.state[begins], flow.count[begins])
    state["episodes"] += flow.episodes


def law_of_starts(known: Known, starts: Ints) -> Floats:
    """Return the law of the first state [S].

    As known; as counted so far if it is unknown, or if episodes continue each other.
    """
    counted = bool(starts.any())
    if known.initial is not None and not (known.continuing and counted):
        return known.initial
    if counted:
        return np.asarray(starts / starts.sum())
    return np.full(starts.size, 1.0 / starts.size)


def acting_level(delta: float, episodes: int) -> float:
    """Return delta / sqrt(k), the level at which acting takes what is alive after k episodes.

    Verdicts stay at delta. What was excluded comes back as the level falls, so that an unlucky
    start is not for ever.
    """
    return delta / math.sqrt(max(episodes, 1))


class DatedState(StartState):
    """The same, and since when classes are ruled out."""

    rejected: Ints  # [M] after how many episodes; 0: it is not


def date_rejections(state: DatedState, alive: Sequence[int]) -> None:
    """Remember which classes are ruled out now; one that is alive again is not any more.

    It is called before a block is added, when the classes have just been judged to plan it.
    """
    for m, members in enumerate(alive):
        if members:
            state["rejected"][m] = 0
        elif not state["rejected"][m]:
            state["rejected"][m] = max(state["episodes"], 1)  # the first episode may be open


def rejected_after(state: DatedState, alive: Sequence[int]) -> tuple[int | None, ...]:
    """Return since how many episodes each class is ruled out; None: it is not."""
    dates: list[int | None] = []
    for m, members in enumerate(alive):
        if members:
            dates.append(None)
        else:
            dates.append(int(state["rejected"][m]) or max(state["episodes"], 1))
    return tuple(dates)
