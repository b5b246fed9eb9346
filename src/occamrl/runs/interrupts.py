"""Ctrl-C as a flag: a run stops at the next place where nothing is half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ctrl_c(*, may_raise: Callable[[], bool] | None = None) -> Iterator[threading.Event]:
    """Turn Ctrl-C into a flag while a run is in progress (in the main thread, the only one that gets signals).

    A second Ctrl-C raises KeyboardInterrupt at once, if ``may_raise`` says so: for other people's code, which may hang.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def press(*_: object) -> None:
        if pressed.is_set() and may_raise is not None and may_raise():
            raise KeyboardInterrupt
        pressed.set()

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
