"""What a person at the terminal sees of a long job, and how Ctrl-C reaches it."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from occamrl.errors import require_kind
from occamrl.naming import printable_name

FIRST_AFTER = 1.0  # seconds until a job says anything, unless it is asked to
TERMINAL_EVERY = 0.2  # seconds between two messages on a terminal,
PLAIN_EVERY = 10.0  # and elsewhere
AGAIN_AFTER = 0.5  # seconds after which Ctrl-C is pressed again if nobody has heard it
_CLEAR_LINE = "\r\x1b[K"
_KEPT = 200  # points of the past by which the time left is estimated
_SLOWEST = 0.5  # the smallest power of time by which work is taken to grow,
_FASTEST = 50.0  # and the largest


class Progress:
    """Tells how far a job is: one line that renews itself on a terminal, plain lines elsewhere.

    ``show`` None: only jobs that take longer than a second say anything. ``total`` None: nobody
    knows how much there is to do. By hand, because a bar of rich would come on top of the plain
    lines, which files and pipes need, and not in their place.
    """

    def __init__(
        self, label: str, total: int | None, show: bool | None, unit: str = "episodes"
    ) -> None:
        if show is not None:
            require_kind("progress", show, bool)
        self.label = printable_name(label)
        self.total = total
        self.show = show
        self.unit = unit
        self.done = 0
        self.terminal = sys.stderr.isatty()
        self._spoken = False
        self._began = time.perf_counter()
        self._past: list[tuple[float, int]] = []
        self._due = self._began
        # Nobody wants to read that a job of a moment is done.
        if not show:
            self._due += FIRST_AFTER

    def update(self, done: int) -> None:
        """Say where the job is, if it is time to."""
        self.done = done
        # More than there was to do: nobody knows how much there is.
        if self.total is not None and done > self.total:
            self.total = None
        now = time.perf_counter()
        self._past.append((now - self._began, done))
        if len(self._past) > _KEPT:
            del self._past[1::2]
        if self.show is False or now < self._due:
            return
        self._spoken = True
        text = self._ahead()
        if self.terminal:
            self._due = now + TERMINAL_EVERY
            self._print(text, end="")
        else:
            self._due = now + PLAIN_EVERY
            self._print(text)

    def _ahead(self) -> str:
        """Return what share is done, and the time left."""
        if not self.total:
            return ""
        text = f" ({100 * self.done / self.total:.0f}%)"
        left = time_left(self._past, self.total)
        if left is None:
            return text
        return f"{text}, about {left:,.0f} s left"

    def close(self) -> None:
        """Say how far the job came, if anything was said before."""
        if self._spoken:
            self._print(f" in {time.perf_counter() - self._began:,.0f} s")

    def _print(self, text: str, end: str = "\n") -> None:
        count = f"{self.done:,}"
        if self.total is not None:
            count = f"{self.done:,} of {self.total:,}"
        line = f"{self.label}: {count} {self.unit}{text}"
        if self.terminal:
            line = _CLEAR_LINE + line
        print(line, end=end, file=sys.stderr, flush=True)


def time_left(past: Sequence[tuple[float, int]], total: int) -> float | None:
    """Return the seconds left of a job, from seconds so far and what was done by then.

    Work is taken to grow as a power of time, the one since half of the time: plans that become
    longer play ever more episodes in a second. None if too little is known.

    >>> from occamrl.progress import time_left
    >>> time_left([(5.0, 10), (10.0, 20)], 40)  # evenly
    10.0
    >>> time_left([(5.0, 100), (10.0, 400)], 1_600)  # as the square of time
    10.0
    """
    elapsed, done = past[-1]
    if not done or not elapsed > 0.0:
        return None
    earlier = [point for point in past if point[0] <= 0.5 * elapsed and point[1] > 0]
    if not earlier:
        return None
    before, done_before = earlier[-1]
    if not before > 0.0:
        return None
    power = math.log(done / done_before) / math.log(elapsed / before)
    power = min(max(power, _SLOWEST), _FASTEST)
    return float(elapsed * ((total / done) ** (1.0 / power) - 1.0))


@contextmanager
def insistent_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C until it is heard.

    What is raised while C calls back is lost: in the callbacks of imports, and where the libraries
    of linear algebra are counted. So the key is pressed again, for as long as this has not ended.
    """

    def interrupt(*_: object) -> None:
        if os.name == "posix":
            signal.setitimer(signal.ITIMER_REAL, AGAIN_AFTER)
        raise KeyboardInterrupt

    def press_again(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, interrupt)
    if os.name == "posix":
        signal.signal(signal.SIGALRM, press_again)
    try:
        yield
    finally:
        if os.name == "posix":
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGINT, before)


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
