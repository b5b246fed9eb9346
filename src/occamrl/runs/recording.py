"""What is kept of every episode: all of them at first, then log-spaced ones, with exact totals throughout.

Which episodes are kept is a fixed sequence that does not depend on how long a run will be or how it is cut into
pieces, so a run continued later has the same curve as one that was never interrupted.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from occamrl.contracts import Floats, Ints

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


class Recorder:
    """Collects curves chunk by chunk; sums run one episode after another, so chunks do not matter to the last bit."""

    _SCALARS = ("keep_all_until", "episodes", "total_regret", "total_return")

    def __init__(self, keep_all_until: int = KEEP_ALL_UNTIL) -> None:
        self.keep_all_until = keep_all_until
        self.episodes = 0
        self.total_regret = 0.0
        self.total_return = 0.0
        self._last = (0.0, 0.0)
        self._pieces: list[tuple[Ints, Floats, Floats, Floats]] = []

    def add(self, regret: Floats, returns: Floats) -> None:
        """Take in the next episodes."""
        if not regret.size:
            return
        first = self.episodes + 1
        self.episodes += regret.size
        cumulative = np.cumsum(np.concatenate([[self.total_regret], regret]))[1:]
        self.total_regret = float(cumulative[-1])
        self.total_return = float(np.cumsum(np.concatenate([[self.total_return], returns]))[-1])
        self._last = (float(regret[-1]), float(returns[-1]))
        kept = kept_episodes(first, self.episodes, self.keep_all_until)
        at = kept - first
        self._pieces.append((kept, regret[at], cumulative[at], returns[at]))

    def curves(self) -> tuple[Ints, Floats, Floats, Floats]:
        """Return (episode numbers, regret, cumulative regret, realised returns), ending with the last episode."""
        empty = (np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0), np.zeros(0))
        columns = zip(*(self._pieces or [empty]), strict=True)
        numbers, regret, cumulative, returns = (np.concatenate(column) for column in columns)
        self._pieces = [(numbers, regret, cumulative, returns)]
        if self.episodes and (not numbers.size or numbers[-1] != self.episodes):
            numbers = np.append(numbers, self.episodes)
            regret = np.append(regret, self._last[0])
            cumulative = np.append(cumulative, self.total_regret)
            returns = np.append(returns, self._last[1])
        return numbers, regret, cumulative, returns

    def to_tree(self) -> dict[str, Any]:
        """Return everything as plain data and arrays."""
        self.curves()  # joins the pieces
        scalars = {name: getattr(self, name) for name in self._SCALARS}
        return {**scalars, "last": list(self._last), "pieces": [list(piece) for piece in self._pieces]}

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> Recorder:
        """Return the recorder of a tree."""
        made = cls(tree["keep_all_until"])
        for name in cls._SCALARS:
            setattr(made, name, tree[name])
        made._last = (tree["last"][0], tree["last"][1])
        made._pieces = [(piece[0], piece[1], piece[2], piece[3]) for piece in tree["pieces"]]
        return made

    def fork(self) -> Recorder:
        """Return an independent copy."""
        twin = copy.copy(self)
        twin._pieces = list(self._pieces)
        return twin
