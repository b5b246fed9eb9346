"""Models whose chances depend on the step: what is missed, and what a wrong clock would miss.

    python -m studies.figures --part steps:kept        400 runs of a third of a second each

A call centre of six hours. Its rate of calls, how much busier it is until some hour, and that hour
are drawn; in every other run no hour is busier. Actions are random, and the classes are judged
after 5, 10, 20, ... 640 days. The control is the trap of a log without a column step: of
every second day the first three rows are lost, and the first row that is left counts as step 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

import occamrl as orl
from occamrl.evidence.parametric import ParametricEvidence
from occamrl.models.model import ParametricLadder
from occamrl.protocols import Flow
from occamrl.running.flow import simulate
from studies.figures import Size, each, table

HOURS, LOST, LONGEST = 6, 3, 3
DAYS = (5, 10, 20, 40, 80, 160, 320, 640)
DELTAS = (0.05, 0.5)
BOUNDS = {"calls": (0.05, 0.5), "more": (-0.05, 0.45), "until": (0.5, 5.5)}
DRAWN = {**BOUNDS, "more": (0.2, 0.45), "until": (1.0, 5.0)}


def centre(
    queue: int, staff: int, *, step: int, calls: float, more: float = 0.0, until: float = 3.0
) -> Iterator[tuple[float, int, float]]:
    """Yield what may follow an hour: a call or none."""
    arrival = calls + more * (step <= until)
    left = max(queue - staff, 0)
    yield 1.0 - arrival, left, -queue - 0.5 * staff
    yield arrival, min(left + 1, LONGEST), -queue - 0.5 * staff


def model() -> orl.Model:
    """Return the centre; days begin with any queue."""
    start = dict.fromkeys(range(LONGEST + 1), 1.0 / (LONGEST + 1))
    return orl.Model(centre, start=start, actions=[0, 1], horizon=HOURS, parameters=BOUNDS)


def ladder() -> ParametricLadder:
    """Return two classes: all hours are alike, or some are busier."""
    return model().ladder({"alike": ["calls"], "busier": ["calls", "more", "until"]})


def late(flow: Flow) -> Flow:
    """Return days that lost their first rows, the first one left counted as step 1."""
    rest = flow.take(flow.step >= LOST)
    return replace(rest, step=rest.step - LOST)


def missed(delta: float, seed: int, wrong_clock: bool) -> tuple[bool, bool]:
    """Return whether the true class is ruled out, and whether a range misses its parameter."""
    classes = ladder()
    draw = np.random.default_rng(seed)
    truth = {name: float(draw.uniform(low, high)) for name, (low, high) in DRAWN.items()}
    true_class = seed % 2
    if not true_class:
        truth |= {"more": 0.0, "until": 3.0}
    system = classes.model.mdp(**truth)
    random = np.full((HOURS, system.states, 2), 0.5)
    evidence = ParametricEvidence(classes, classes.model.known, delta)
    state = evidence.begin()
    ruled_out = False
    played = 0
    for days in DAYS:
        half = (days - played) // 2
        second = simulate(system, random, half, draw)
        first = simulate(system, random, days - played - half, draw)
        evidence.add(state, Flow.joined([first, late(second) if wrong_clock else second]))
        ruled_out |= not evidence.judge(state).alive[true_class]
        played = days
    outside = False
    for name, found in evidence.parameters(state, true_class).items():
        outside |= not any(low <= truth[name] <= high for low, high in found.pieces)
    return ruled_out, outside


def kept(size: Size) -> str:
    """Count what is missed, and what is with a wrong clock."""
    runs = size.seeds(100)
    rows = []
    for wrong_clock in (False, True):
        cells = ["half of the days three steps late" if wrong_clock else "as they are"]
        for delta in DELTAS:

            def job(seed: int, delta: float = delta, late: bool = wrong_clock) -> tuple[bool, bool]:
                return missed(delta, seed, late)

            results = np.array(each(size, runs, job, f"{cells[0]}, delta {delta:g}"))
            cells += [str(int(count)) for count in results.sum(axis=0)]
        rows.append(cells)
    header = [
        f"steps, {runs} logs",
        "class out, .05",
        "range misses",
        "class out, .5",
        "range misses",
    ]
    return table(header, rows)
