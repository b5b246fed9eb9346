"""Points in the life of a file at which a study makes the process die or the disk fail.

``OCCAMRL_FAULT="POINT NAME ACTION COUNT [ONCE]"`` acts when POINT (open, write, fsync, rename, renamed, or ``*``) is
reached for the COUNT-th time by a file whose name matches the pattern NAME. ACTION is ``kill`` (this process, by
SIGKILL) or the name of an errno such as ENOSPC; COUNT may end in ``+`` (then and ever after). With ONCE, the path of
a file, it acts only if that file is not there yet, and makes it: once over all processes.

Python imports a module of this name when it starts, so every process with this folder in PYTHONPATH obeys the variable.
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


def hook(text: str) -> Callable[[str, Path], None]:
    """Return what takes the place of ``occamrl.running.files.reach``."""
    point, pattern, action, count, *once = text.split()
    left = int(count.removesuffix("+"))

    def reach(reached: str, path: Path) -> None:
        nonlocal left
        if point not in ("*", reached) or not fnmatch.fnmatch(path.name, pattern):
            return
        left -= 1
        if left == 0 or (left < 0 and count.endswith("+")):
            for each in map(Path, once):
                if each.exists():
                    return
                each.touch()
            if action == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            number = getattr(errno, action)
            raise OSError(number, os.strerror(number), str(path))

    return reach


@contextmanager
def injected(text: str) -> Iterator[None]:
    """Act as if the variable had this value, in this process."""
    from occamrl.running import files

    before = files.reach
    setattr(files, "reach", hook(text))  # noqa: B010  # a function is no variable to a type checker
    try:
        yield
    finally:
        setattr(files, "reach", before)  # noqa: B010


def environment(text: str) -> dict[str, str]:
    """Return the variables of a process that obeys a fault."""
    paths = [str(Path(__file__).parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {VARIABLE: text, "PYTHONPATH": os.pathsep.join(paths)}


def obey() -> None:
    """Do as the variable says, from now on."""
    if VARIABLE in os.environ:
        from occamrl.running import files

        setattr(files, "reach", hook(os.environ[VARIABLE]))  # noqa: B010  # as above


obey()
