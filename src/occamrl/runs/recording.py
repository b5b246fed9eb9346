"""What is kept of every episode: all of them at first, then log-spaced ones, with exact totals throughout.

Which episodes are kept is a fixed sequence that does not depend on how long a run will be or how it is cut into
pieces, so a run continued later has the same curve as one that was never interrupted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from occamrl.contracts import Floats, Ints
from occamrl.errors import CheckpointError

KEEP_ALL_UNTIL = 1_000_000
POINTS_PER_DECADE = 1_000


def kept_episodes(first: int, last: int, keep_all_until: int = KEEP_ALL_UNTIL) -> Ints:
    """Return the numbers (from 1) of the kept episodes in [first, last]."""
    every = np.arange(first, min(last, keep_all_until) + 1, dtype=np.int64)
    if last <= keep_all_until:
        return every
    low = max(first, keep_all_until + 1)
    j = np.arange(np.floor(POINTS_PER_DECADE * np.log10(low)) - 1, np.ceil(POINTS_PER_DECADE * np.log10(last)) + 2)
    marks = np.unique(np.floor(10.0 ** (j / POINTS_PER_DECADE)).astype(np.int64))
    return np.concatenate([every, marks[(marks >= low) & (marks <= last)]])


def running_total(before: float, values: Floats) -> float:
    """Return ``before`` plus all values, added one after another: the same bits however they are cut into chunks."""
    return float(np.cumsum(np.concatenate([[before], values]))[-1])


class Recorder:
    """Collects curves chunk by chunk; sums run one episode after another, so chunks do not matter to the last bit."""

    def __init__(self, keep_all_until: int = KEEP_ALL_UNTIL) -> None:
        self.keep_all_until = keep_all_until
        self.episodes = 0
        self.total_regret = 0.0
        self.total_return = 0.0
        self._last = (0.0, 0.0)
        self._kept = 0
        self._numbers = np.zeros(0, dtype=np.int64)
        self._curves = np.zeros((3, 0))  # regret, cumulative regret, realised return

    def add(self, regret: Floats, returns: Floats) -> None:
        """Take in the next episodes."""
        if not regret.size:
            return
        first = self.episodes + 1
        self.episodes += regret.size
        cumulative = np.cumsum(np.concatenate([[self.total_regret], regret]))[1:]
        self.total_regret = float(cumulative[-1])
        self.total_return = running_total(self.total_return, returns)
        self._last = (float(regret[-1]), float(returns[-1]))
        kept = kept_episodes(first, self.episodes, self.keep_all_until)
        self._grow(self._kept + kept.size)
        into = slice(self._kept, self._kept + kept.size)
        self._numbers[into] = kept
        for row, curve in enumerate((regret, cumulative, returns)):
            self._curves[row, into] = curve[kept - first]
        self._kept += kept.size

    def _grow(self, size: int) -> None:
        """Make room, doubling, so that many short chunks cost no more than a few long ones."""
        if size > self._numbers.size:
            capacity = max(size, 2 * self._numbers.size)
            numbers, curves = np.zeros(capacity, dtype=np.int64), np.zeros((3, capacity))
            numbers[: self._kept], curves[:, : self._kept] = (
                self._numbers[: self._kept],
                self._curves[:, : self._kept],
            )
            self._numbers, self._curves = numbers, curves

    def curves(self) -> tuple[Ints, Floats, Floats, Floats]:
        """Return (episode numbers, regret, cumulative regret, realised returns), ending with the last episode."""
        numbers, curves = self._numbers[: self._kept], self._curves[:, : self._kept]
        if self.episodes and (not numbers.size or numbers[-1] != self.episodes):
            last = [[self._last[0]], [self.total_regret], [self._last[1]]]
            numbers, curves = np.append(numbers, self.episodes), np.concatenate([curves, last], axis=1)
        return numbers.copy(), curves[0].copy(), curves[1].copy(), curves[2].copy()

    def to_tree(self) -> dict[str, Any]:
        """Return everything as plain data and arrays."""
        return {
            "keep_all_until": self.keep_all_until,
            "episodes": self.episodes,
            "total_regret": self.total_regret,
            "total_return": self.total_return,
            "last": list(self._last),
            "numbers": self._numbers[: self._kept].copy(),
            "curves": self._curves[:, : self._kept].copy(),
        }

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> Recorder:
        """Return the recorder of a tree."""
        numbers, curves = tree["numbers"], tree["curves"]
        sound = numbers.dtype == np.int64 and curves.dtype == np.float64 and curves.shape == (3, numbers.size)
        if not (sound and numbers.ndim == 1 and tree["episodes"] >= int(numbers[-1] if numbers.size else 0)):
            raise CheckpointError("recorder", got="curves that do not fit together", expected="a recorder's arrays")
        made = cls(tree["keep_all_until"])
        made.episodes, made.total_regret, made.total_return = (
            tree["episodes"],
            tree["total_regret"],
            tree["total_return"],
        )
        made._last = (tree["last"][0], tree["last"][1])
        made._numbers, made._curves = tree["numbers"], tree["curves"]
        made._kept = made._numbers.size
        return made

    def fork(self) -> Recorder:
        """Return an independent copy."""
        return Recorder.from_tree(self.to_tree())
