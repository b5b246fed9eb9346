"""The same cells on a Dask cluster (extra ``dask``). Workers must see the experiment's directory under the same path.

A task plays one cell exactly as a local worker does, and its results are its files: nothing large travels. When a
worker dies, Dask gives its cell to another one, where it goes on from its checkpoint; a cell that has ended as many
workers as the scheduler allows (3 by default) without a checkpoint in between is given up. A task works under the token
of the directory's lock; when the lock is gone or taken by somebody else, the task stops at an episode boundary. When no
worker is there, this is said; when none has been heard of for some time, the experiment ends and can be resumed.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

from occamrl.errors import OccamRLError, ParameterError
from occamrl.experiments.execution import GRACE_SECONDS, Event, Events, Executor, Options, answer
from occamrl.experiments.records import RETRIES, Cell, Folder, FolderLock, holder_of, read_progress
from occamrl.registry import NO_MODULES, Modules

_CONNECT_SECONDS = 5
_PATIENCE_SECONDS = 5.0  # without workers, until it is said
_POLL_SECONDS = 0.1
_PROGRESS_SECONDS = 1.0
_GONE = "the Dask scheduler is gone; finished cells and checkpoints are in the folder"


def play_remotely(
    path: str, content: dict[str, Any], token: str, checkpoint_seconds: float, modules: tuple[tuple[str, ...], ...]
) -> Event:
    """Play a cell inside a Dask worker; return what became of it."""
    folder, cell = Folder(path), Cell.of(content)
    if not folder.exists():
        text = f"{path}: not visible to this Dask worker, which needs the folder under the same path"
        return {"event": "failed", "cell": cell.id, "text": text}

    def revoked() -> bool:
        holder = holder_of(folder.lock_file)
        return not folder.lock_file.exists() or (holder is not None and holder.get("token") != token)

    return answer(folder, cell, Modules(*modules), checkpoint_seconds, lambda news: None, revoked)


def require_listening(address: str) -> None:
    """Refuse an address that is none, or where nobody listens; Dask itself would try for long, and log."""
    found = re.fullmatch(r"(?:\w+://)?(\[[0-9a-fA-F:.%\w]+\]|[\w.-]+):(\d{1,5})/?", address)
    if found is None:
        raise _unreachable(address)
    try:
        socket.create_connection((found[1].strip("[]"), int(found[2])), _CONNECT_SECONDS).close()
    except (OSError, OverflowError, ValueError) as error:
        raise _unreachable(address, error) from error


def _unreachable(address: str, error: Exception | None = None) -> ParameterError:
    got = repr(address) if error is None else f"{address!r} ({error})"
    expected = "the address of a running Dask scheduler, such as tcp://host:8786"
    return ParameterError("scheduler", got=got, expected=expected)


class DaskExecutor(Executor):
    """Cells as tasks of a Dask scheduler."""

    def __init__(self, folder: Folder, lock: FolderLock, options: Options, modules: Modules = NO_MODULES) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise OccamRLError("Dask is not installed; install it with: pip install 'occamrl[dask]'") from error
        super().__init__(Folder(folder.path.resolve()), lock, options, modules)
        self.address = str(options.scheduler)
        try:
            self.client = Client(self.address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise _unreachable(self.address, error) from error
        self._abandoned = False

    def play(self, cells: Sequence[Cell]) -> Events:
        """Yield events until every cell is done, failed or stopped."""
        waiting = {self._submit(cell): cell for cell in cells}
        reported: dict[str, float] = {}
        look, heard, warned = 0.0, time.monotonic(), False
        try:
            while waiting:
                time.sleep(_POLL_SECONDS)
                if self.client.status != "running":
                    raise OccamRLError(_GONE)
                if time.monotonic() > look:
                    for event in self._progress(waiting.values(), reported):
                        heard = time.monotonic()
                        yield event
                    look = time.monotonic() + _PROGRESS_SECONDS
                    quiet = time.monotonic() - heard
                    workers = self._workers() if quiet > min(_PATIENCE_SECONDS, self.silence) else 1
                    if self._stopping is None and quiet > self.silence:
                        text = f"nothing heard for {quiet:.0f} s of the {workers} worker(s) of the Dask scheduler at "
                        raise OccamRLError(f"{text}{self.address}; finished cells and checkpoints are in the folder")
                    if not workers and not warned:
                        text = f"waiting for a worker: the Dask scheduler at {self.address} has none"
                        yield {"event": "warning", "text": f"{text}; this ends after {self.silence:.0f} s (--silence)"}
                    warned = not workers
                if self._stopping is not None:
                    yield from self._withdraw(waiting, since=self._stopping)
                for future in [future for future in waiting if future.done()]:
                    cell, heard = waiting.pop(future), time.monotonic()
                    event = self._outcome(future, cell)
                    if event["event"] == "retry":
                        waiting[self._submit(cell)] = cell
                    yield event
        finally:
            self.client.close()

    def _workers(self) -> int:
        """Return how many workers there are."""
        try:
            return len(self.client.nthreads())
        except OSError as error:
            raise OccamRLError(_GONE) from error

    def stop(self) -> None:
        """Take the tasks' permission away: those that run stop at an episode boundary. Asked again: wait for none."""
        self._abandoned = self._stopping is not None
        self._stopping = self._stopping or time.monotonic()
        self.lock.revoke()

    def _withdraw(self, waiting: dict[Any, Cell], since: float) -> Iterator[Event]:
        """Take back the cells that no worker has begun, and in the end those of workers that do not answer."""
        patient = not self._abandoned and time.monotonic() - since < GRACE_SECONDS
        at_work = {key for keys in self.client.processing().values() for key in keys} if patient else set()
        left = [future for future in waiting if not future.done() and future.key not in at_work]
        self.client.cancel(left)
        for future in left:
            text = "not begun" if patient else "its worker does not answer; it stops at its next episode boundary"
            yield {"event": "stopped", "cell": waiting.pop(future).id, "text": text}

    def _submit(self, cell: Cell) -> Any:
        seconds, modules = self.options.checkpoint_seconds, tuple(self.modules)  # nothing of this package's own travels
        arguments = (str(self.folder.path), cell.content, self.lock.token, seconds, modules)
        # A key of its own: Dask would hand out the remembered result of an equal task. Never pure, never retried by it.
        return self.client.submit(play_remotely, *arguments, key=f"occamrl-{cell.id}-{time.time_ns()}", pure=False)

    def _outcome(self, future: Any, cell: Cell) -> Event:
        if future.status == "finished":
            event: Event = future.result()
            return event
        error = future.exception() if future.status == "error" else None
        text = f"the task was {future.status}" if error is None else f"{type(error).__name__}: {error}"
        tries = RETRIES if type(error).__name__ == "KilledWorker" else 1  # then Dask has tried again by itself
        return self.lose(cell, text, tries)

    def _progress(self, cells: Any, reported: dict[str, float]) -> Iterator[Event]:
        """Read how far the running cells are from their files."""
        for cell in cells:
            progress = read_progress(self.folder.cells / cell.id)
            if progress is not None and progress["time"] != reported.get(cell.id):
                reported[cell.id] = progress["time"]
                yield {"event": "progress", "cell": cell.id, **progress}
