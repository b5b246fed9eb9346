"""What a person at the terminal sees of a long job, and how Ctrl-C reaches it."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

FIRST_AFTER = 1.0  # seconds until a job says anything, unless it is asked to
TERMINAL_EVERY = 0.2  # seconds between two messages on a terminal,
PLAIN_EVERY = 10.0  # and elsewhere
_CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Tells how far a job is: one line that renews itself on a terminal, plain lines elsewhere.

    ``show`` None: only jobs that take longer than a second say anything. By hand, because a bar of
    rich would come on top of the plain lines, which files and pipes need, and not in their place.
    """

    def __init__(self, label: str, total: int, show: bool | None, unit: str = "episodes") -> None:
        self.label = label
        self.total = total
        self.show = show
        self.unit = unit
        self.done = 0
        self.terminal = sys.stderr.isatty()
        self._spoken = False
        self._began = time.perf_counter()
        self._due = self._began
        # Nobody wants to read that a job of a moment is done.
        if not show:
            self._due += FIRST_AFTER

    def update(self, done: int) -> None:
        """Say where the job is, if it is time to."""
        self.done = done
        now = time.perf_counter()
        if self.show is False or now < self._due:
            return
        self._spoken = True
        remaining = (self.total - done) * (now - self._began) / max(done, 1)
        text = f" ({100 * done / self.total:.0f}%), {remaining:,.0f} s left"
        if self.terminal:
            self._due = now + TERMINAL_EVERY
            self._print(text, end="")
        else:
            self._due = now + PLAIN_EVERY
            self._print(text)

    def close(self) -> None:
        """Say how far the job came, if anything was said before."""
        if self._spoken:
            self._print(f" in {time.perf_counter() - self._began:,.0f} s")

    def _print(self, text: str, end: str = "\n") -> None:
        line = f"{self.label}: {self.done:,} of {self.total:,} {self.unit}{text}"
        if self.terminal:
            line = _CLEAR_LINE + line
        print(line, end=end, file=sys.stderr, flush=True)


@contextmanager
def ctrl_c() -> Iterator[threading.Event]:
    """Turn Ctrl-C into a flag while a job is in progress; a second one interrupts it at once."""
    pressed = threading.Event()
    # Signals go to the main thread; in another one the flag is never set.
    if threading.current_thread() is not threading.main_thread():
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
