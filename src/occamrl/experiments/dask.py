"""The same cells on a Dask cluster (extra ``dask``). Workers must see the experiment's folder under the same path.

A task plays one cell exactly as a local worker does, and its results are its files: nothing large travels. When a
worker dies, Dask gives its cell to another one, where it goes on from its checkpoint. Tasks stop at a block boundary
when the lock of the folder is no longer that of the process that submitted them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from occamrl.errors import OccamRLError, ParameterError
from occamrl.experiments.pool import GRACE_SECONDS, Event, call, stoppable
from occamrl.experiments.records import Folder, holder_of
from occamrl.registry import Modules, import_modules

_CONNECT_SECONDS = 5
_POLL_SECONDS = 0.1


def play_remotely(function: str, task: Sequence[Any], modules: Sequence[Any], holder: Event) -> Event:
    """Play a cell inside a Dask worker; return what became of it."""
    folder = Folder(task[0])
    if not folder.experiment_file.exists():
        text = f"{folder.path}: not visible to this Dask worker, which needs the folder under the same path"
        return {"event": "failed", "text": text}
    import_modules(*modules)
    return call(function, task, lambda news: None, lambda: holder_of(folder.path / "lock") != holder)


class DaskPool:
    """Cells as tasks of a Dask scheduler; the same events as of :class:`occamrl.experiments.pool.Pool`."""

    def __init__(self, function: str, address: str, folder: Folder, modules: Modules, silence: float) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise OccamRLError("Dask is not installed; install it with: pip install 'occamrl[dask]'") from error
        self.function, self.folder, self.modules, self.silence = function, folder, modules, silence
        self.lock = folder.path / "lock"
        try:
            self.client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            expected = "the address of a running Dask scheduler, such as tcp://host:8786"
            raise ParameterError("scheduler", got=f"{address!r} ({error})", expected=expected) from error

    def play(self, tasks: Sequence[Sequence[Any]]) -> Iterator[tuple[int, Event]]:
        """Yield (number of the task, event) until all are done, failed or stopped."""
        holder, heard, since = holder_of(self.lock), time.monotonic(), None
        waiting: dict[Any, int] = {}
        for i, task in enumerate(tasks):
            arguments = (self.function, list(task), [list(part) for part in self.modules], holder)
            # A key of its own: Dask would hand out the remembered result of an equal task.
            future = self.client.submit(play_remotely, *arguments, key=f"occamrl-{i}-{time.time_ns()}", pure=False)
            waiting[future] = i
        try:
            with stoppable() as pressed:
                while waiting:
                    time.sleep(_POLL_SECONDS)
                    now = time.monotonic()
                    if pressed() and since is None:
                        since = now
                        self.lock.write_text("{}")  # tasks that run stop at a block boundary
                    done = [future for future in waiting if future.done()]
                    for future in done:
                        heard = now
                        yield waiting.pop(future), self._outcome(future)
                    if since is not None and now - since > GRACE_SECONDS:
                        self.client.cancel(list(waiting))
                        yield from ((i, {"event": "stopped", "text": "withdrawn"}) for i in waiting.values())
                        waiting.clear()
                    if self.client.status != "running" or (now - heard > self.silence and not self.client.nthreads()):
                        text = "the Dask scheduler is gone or has no worker; finished cells and checkpoints are in"
                        raise OccamRLError(f"{text} {self.folder.path}, and can be resumed")
        finally:
            self.client.close()

    def _outcome(self, future: Any) -> Event:
        if future.status == "finished":
            event: Event = future.result()
            return event
        error = future.exception() if future.status == "error" else future.status
        return {"event": "failed", "text": f"{type(error).__name__}: {error}"}
