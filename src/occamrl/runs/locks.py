"""One process works on a folder; another is told who.

The lock belongs to an open file, and worker processes inherit it: it is held until the last of them is gone, and the
system gives it back when they die, however they die. So a lock file left by a dead process is no lock, only a note.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

from occamrl.errors import OccamRLError
from occamrl.runs.failures import FolderInUse, RecordError, StorageError
from occamrl.runs.files import read_json

try:
    import fcntl
except ImportError:  # Windows: folders can be read there (list, status, report, watch), not worked on
    fcntl = None  # type: ignore[assignment]  # asked for where a lock is taken

_WAIT = 20.0  # seconds given to the workers of a dead process to notice and to end
_LARGEST = 10_000
_LATEST = 1e11  # the year 5138: a time beyond it is none


class FolderLock:
    """A context in which this process, and those it starts with :attr:`handle`, have the folder to themselves.

    ``recovered`` is what a dead process had written into the lock, if there was one.
    """

    def __init__(self, path: Path, wait: float = _WAIT) -> None:
        self.path = path
        self.wait = wait
        self.handle = -1
        self.token = uuid.uuid4().hex
        self.recovered: dict[str, Any] | None = None

    def __enter__(self) -> FolderLock:
        if fcntl is None:
            raise OccamRLError("this system has no file locks that processes inherit: run cells on Linux or macOS")
        deadline = time.monotonic() + self.wait
        while True:
            handle = self._open()
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = holder_of(self.path)
                os.close(handle)
                if holder is None or not is_gone(holder) or time.monotonic() > deadline:
                    raise FolderInUse(f"{self.path.parent}: in use by {describe(holder)}") from None
                time.sleep(0.05)
                continue
            if self._is_current(handle):
                self.handle = handle
                self.recovered = holder_of(self.path)
                try:
                    self._write(self.token)
                except OSError as error:
                    self.__exit__(None, None, None)
                    raise StorageError(self.path, error) from error
                return self
            os.close(handle)  # the holder removed the file between our opening and our locking it

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        os.close(self.handle)

    def revoke(self) -> None:
        """Tell those who work elsewhere under this lock's token to stop."""
        with contextlib.suppress(OSError):
            self._write("")

    def _open(self) -> int:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            handle = os.open(self.path, flags, 0o644)
        except OSError as error:
            raise StorageError(self.path, error) from error
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:  # it is going to be written over
            os.close(handle)
            raise RecordError(self.path, got="no file of its own", expected="a regular file with one name, or none")
        return handle

    def _is_current(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), self.path.stat())
        except FileNotFoundError:
            return False

    def _write(self, token: str) -> None:
        note = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time(), "token": token}
        text = json.dumps(note).encode()
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, text, 0)


def holder_of(path: Path) -> dict[str, Any] | None:
    """Return what the lock file says about its holder; None when it says nothing that can be read."""
    try:
        note = read_json(path, _LARGEST)
    except RecordError:
        return None
    return note if isinstance(note, dict) else None


def describe(holder: dict[str, Any] | None) -> str:
    """Return the holder in words."""
    if holder is None or type(holder.get("pid")) is not int:
        return "another process"
    since = holder.get("since")
    known = isinstance(since, (int, float)) and 0 <= since < _LATEST
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since)) if known else "?"
    return f"process {holder['pid']} on {str(holder.get('host'))[:100]!r}, since {began}"


def is_gone(holder: dict[str, Any]) -> bool:
    """Say whether the process of this ``pid`` on this ``host`` is known to have ended."""
    pid = holder.get("pid")
    if holder.get("host") != socket.gethostname() or not isinstance(pid, int) or not 0 < pid < 2**31:
        return False
    if os.name != "posix":  # there, the question itself would end the process
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
