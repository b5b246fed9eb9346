"""Named points in the life of a file at which a test can make the process die or the disk fail.

``OCCAMRL_FAULT="POINT NAME ACTION COUNT [ONCE]"`` acts when POINT (open, write, fsync, rename, renamed, or ``*``) is
reached for the COUNT-th time by a file whose name matches the pattern NAME. ACTION is ``kill`` (this process, by
SIGKILL) or the name of an errno such as ENOSPC; COUNT may end in ``+`` (then and ever after). With ONCE, the path of a
file, it acts only if that file is not there yet, and makes it: once over all processes. Without the variable, nothing
happens.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "OCCAMRL_FAULT"
POINTS = ("open", "write", "fsync", "rename", "renamed")

Hook = Callable[[str, Path], None]


def _hook_of(text: str) -> Hook | None:
    words = text.split()
    if len(words) not in (4, 5):
        return None
    point, pattern, action, count = words[:4]
    once = Path(words[4]) if len(words) == 5 else None
    left = int(count.removesuffix("+"))

    def hook(reached: str, path: Path) -> None:
        nonlocal left
        if point not in ("*", reached) or not fnmatch.fnmatch(path.name, pattern):
            return
        left -= 1
        if left == 0 or (left < 0 and count.endswith("+")):
            if once is not None:
                if once.exists():
                    return
                once.touch()
            if action == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            number = getattr(errno, action)
            raise OSError(number, os.strerror(number), str(path))

    return hook


_hook: Hook | None = _hook_of(os.environ.get(VARIABLE, ""))


@contextmanager
def injected(text: str) -> Iterator[None]:
    """Act as if the variable had this value, in this process."""
    global _hook
    before, _hook = _hook, _hook_of(text)
    try:
        yield
    finally:
        _hook = before


def reach(point: str, path: Path) -> None:
    """Say that ``point`` in the life of ``path`` is reached."""
    if _hook is not None:
        _hook(point, path)
