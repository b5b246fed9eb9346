"""Progress of a long job: one line that renews itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

FIRST_AFTER = 1.0  # seconds: short jobs stay silent
PLAIN_EVERY = 10.0
TERMINAL_EVERY = 0.2


class Progress:
    """Tells how far a run is. ``show`` None: only jobs that take longer than a second say anything."""

    def __init__(
        self, label: str, total: int, show: bool | None, stream: TextIO | None = None, measure: str = "regret"
    ) -> None:
        self.label = label
        self.total = total
        self.show = show
        self.measure = measure
        self.stream = stream if stream is not None else sys.stderr
        self.began = time.perf_counter()
        self.due = self.began + (0.0 if show else FIRST_AFTER)
        self.terminal = self.stream.isatty()
        self.base: int | None = None
        self.said = False

    def update(self, done: int, value: float | None = None) -> None:
        """Say where the job is, if it is time to; a job without a measure does not tell one."""
        now = time.perf_counter()
        if self.base is None:  # the first piece may include compilation: it says nothing about the pace
            self.base, self.began = done, now
            return
        if self.show is False or now < self.due:
            return
        self.due = now + (TERMINAL_EVERY if self.terminal else PLAIN_EVERY)
        rate = (done - self.base) / max(now - self.began, 1e-9)
        left = (self.total - done) / max(rate, 1e-9)
        self._write(
            f"{self.label}: {done:,} of {self.total:,} episodes ({100 * done / self.total:.0f}%), "
            f"{'' if value is None else f'{self.measure} {value:,.1f}, '}{rate:,.0f} episodes/s, {left:.0f} s left"
        )

    def close(self) -> None:
        """End the line, if one was begun."""
        if self.said and self.terminal:
            self.stream.write("\n")
            self.stream.flush()

    def _write(self, line: str) -> None:
        self.said = True
        self.stream.write(f"\r\x1b[K{line}" if self.terminal else line + "\n")
        self.stream.flush()
