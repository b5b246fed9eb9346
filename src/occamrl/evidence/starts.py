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
    next_start: int  # of a continuing problem, where the last episode ended; -1: unknown


def begin_starts(known: Known) -> StartState:
    """Return the counts before any data."""
    return {"episodes": 0, "starts": np.zeros(known.states, np.int64), "next_start": -1}


def count_starts(state: StartState, flow: Flow) -> None:
    """Count the episodes of a block, and their first states."""
    begins = flow.step == 0
    np.add.at(state["starts"], flow.state[begins], flow.count[begins])
    state["episodes"] += flow.episodes
    state["next_start"] = _last_end(flow, state["starts"].size, state["next_start"])


def _last_end(flow: Flow, states: int, first: int) -> int:
    """Return where the last episode of a block ended, if each began where the one before ended.

    Every end but the last is a start, so the ends minus the starts leave the last end minus the
    first start, and nothing where these are equal. -1: that cannot be told.
    """
    begins = flow.step == 0
    ends = flow.step == flow.step.max(initial=0)
    surplus = np.bincount(flow.next_state[ends], flow.count[ends], states)
    surplus -= np.bincount(flow.state[begins], flow.count[begins], states)
    if surplus.any():
        chained = surplus.sum() == 0.0 and np.abs(surplus).sum() == 2.0
        return int(surplus.argmax()) if chained else -1
    return first


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


def law_of_next(known: Known, state: StartState) -> Floats:
    """Return the law of the first state of the next episode [S], for which plans are optimistic.

    Where episodes continue each other that state is known once one has ended.
    """
    if known.continuing and state["next_start"] >= 0:
        law = np.zeros(known.states)
        law[state["next_start"]] = 1.0
        return law
    return law_of_starts(known, state["starts"])


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
