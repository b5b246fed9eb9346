"""From the test of a ladder's classes to a verdict, and to how much more data would settle what is open."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from occamrl.contracts import Ints
from occamrl.families.ladder import Ladder
from occamrl.learners.finite_report import unexplained
from occamrl.logs.replay import Replay
from occamrl.logs.rows import distances

DECIDED = "decided"  # every kernel that is left lies in the class chosen, and every smaller class is rejected
AT_LEAST = "at least"  # every smaller class is rejected; larger ones are not excluded
NOT_ENOUGH = "not enough data"  # nothing is rejected, nothing larger is excluded
OUTSIDE = "outside"  # no class explains the data

_NOTHING = 1e-9  # a squared distance that is none


@dataclass(frozen=True)
class MoreData:
    """Episodes that would be needed on top, at the rate at which the log tells models apart; infinite: never."""

    half: float  # to exclude half of the kernels that are left outside the class chosen, if that is the right one
    all: float  # ... all of them that such a log can exclude
    never: int  # how many of them no such log can tell from the best kernel of the class chosen
    if_wrong: float  # to reject the class chosen, if the best kernel outside it is the truth


def distance_needed(allowance: float) -> float:
    """Return the squared distance of a wrong kernel at which it is likely to be rejected.

    Its loss exceeds the truth's by the distance d on average, with a standard deviation of at most sqrt(d) (M21's noise
    of range 1): d - sqrt(d) >= allowance.
    """
    return ((1.0 + math.sqrt(1.0 + 4.0 * max(allowance, 0.0))) / 2.0) ** 2


def chosen_class(replay: Replay) -> int:
    """Return the smallest class that is not rejected, from 1; the largest where all are."""
    standing = [m for m, at in enumerate(replay.rejected_at, start=1) if at is None]
    return standing[0] if standing else len(replay.rejected_at)


def more_data(replay: Replay, ladder: Ladder, chosen: int, episodes: int, pairs: int) -> MoreData | None:
    """Return what would settle the question between the class chosen and the kernels left outside it; None if none."""
    size = ladder.sizes[chosen - 1]
    inside, outside = _left(replay, 0, size), _left(replay, size, ladder.family.size)
    if not outside.size or not inside.size or replay.table is None or replay.model is None:
        return None
    best, rival = (int(kernels[np.argmin(replay.loss[kernels])]) for kernels in (inside, outside))

    def left(distance: float, reference: int) -> float:
        needed = distance_needed(replay.bound - float(replay.loss[reference]))
        return max(1.0, episodes * (needed / distance - 1.0)) if distance > _NOTHING else math.inf

    gaps = distances(replay.model, replay.table, pairs, outside, best)
    times = np.array([left(float(gap), best) for gap in gaps])
    seen = times[np.isfinite(times)]
    back = float(distances(replay.model, replay.table, pairs, inside, rival).min())
    return MoreData(
        half=float(np.median(times)),
        all=float(seen.max()) if seen.size else math.inf,
        never=int(np.isinf(times).sum()),
        if_wrong=left(back, rival),
    )


def _left(replay: Replay, first: int, last: int) -> Ints:
    return first + np.flatnonzero(replay.alive[first:last])


def is_outside(replay: Replay, delta: float) -> bool:
    """Say whether the data show that no class of the ladder holds the truth."""
    if replay.outside or all(at is not None for at in replay.rejected_at):
        return True
    return replay.table is not None and unexplained(replay.table, float(replay.losses[-1]), delta) > 0.0


def judge(chosen: int, more: MoreData | None, *, finite: bool, classes: int, name: str) -> tuple[str, str]:
    """Return the verdict on a ladder that holds the truth, and the reason in words."""
    if chosen == classes or (finite and more is None):
        smaller = "Every smaller class is rejected" if chosen > 1 else "It is the smallest"
        enough = ", and every kernel outside it" if chosen < classes else ""
        return DECIDED, f"The model needed is class {chosen} ({name}). {smaller}{enough}."
    if finite and more is not None:
        open_ones = _open(more)
    else:
        open_ones = (
            "A larger linear class holds this one, so data can never exclude it; they can only fail to ask for it."
        )
    if chosen > 1:
        return AT_LEAST, f"Class {chosen} ({name}) or a larger one: every smaller class is rejected. {open_ones}"
    return NOT_ENOUGH, f"Class 1 ({name}) is not contradicted, and nothing larger is excluded. {open_ones}"


def _open(more: MoreData) -> str:
    parts = []
    if math.isfinite(more.half):
        text = f"If it is right, about {_count(more.half)} more such episodes exclude half of what is left outside it"
        parts.append(text + (f", {_count(more.all)} all that they can." if more.all > more.half else "."))
    if more.never:
        parts.append(
            f"{more.never:,} kernels outside it predict the same at every step of such a log: it needs others."
        )
    if math.isfinite(more.if_wrong):
        parts.append(f"If the best kernel outside it is the truth, about {_count(more.if_wrong)} more reject it.")
    return " ".join(parts)


def _count(episodes: float) -> str:
    return f"{float(f'{episodes:.2g}'):,.0f}"
