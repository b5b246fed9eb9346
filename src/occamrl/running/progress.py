"""What a person at the terminal sees of a long job, and how Ctrl-C reaches it."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

FIRST_AFTER, TERMINAL_EVERY, PLAIN_EVERY = 1.0, 0.2, 10.0  # seconds until and between messages


class Progress:
    """Tells how far a job is: one line that renews itself on a terminal, plain lines elsewhere.

    ``show`` None: only jobs that take longer than a second say anything.
    """

    def __init__(self, label: str, total: int, show: bool | None, unit: str = "episodes") -> None:
        self.label, self.total, self.show, self.unit = label, total, show, unit
        self.began, self.done, self.told = time.perf_counter(), 0, False
        self.due = self.began + (0.0 if show else FIRST_AFTER)
        self.terminal = sys.stderr.isatty()

    def update(self, done: int) -> None:
        """Say where the job is, if it is time to."""
        now, self.done = time.perf_counter(), done
        if self.show is False or now < self.due:
            return
        self.due, self.told = now + (TERMINAL_EVERY if self.terminal else PLAIN_EVERY), True
        left = (self.total - done) * (now - self.began) / max(done, 1)
        self._print(
            f" ({100 * done / self.total:.0f}%), {left:,.0f} s left", "" if self.terminal else "\n"
        )

    def close(self) -> None:
        """Say how far the job came, if anything was said before."""
        if self.told:
            self._print(f" in {time.perf_counter() - self.began:,.0f} s", "\n")

    def _print(self, more: str, end: str) -> None:
        line = f"{self.label}: {self.done:,} of {self.total:,} {self.unit}{more}"
        print("\r\x1b[K" * self.terminal + line, end=end, file=sys.stderr, flush=True)


@contextmanager
def ctrl_c() -> Iterator[threading.Event]:
    """Turn Ctrl-C into a flag while a run is in progress; a second one raises KeyboardInterrupt at once."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # which alone receives signals
        yield pressed
        return

    def press(*_: object) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
