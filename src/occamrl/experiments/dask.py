"""The same tasks on a Dask cluster (extra ``dask``).

Workers must see the folder of the results under the same path. A task is called exactly as by a
local worker, and its results are its files: nothing large travels. When a worker dies, Dask gives
its task to another one, where a cell goes on from its checkpoint. Tasks stop at a block boundary
when the lock of the folder is no longer that of the process that submitted them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from occamrl.errors import OccamRLError, ParameterError
from occamrl.experiments.pool import Arguments, Event, Events, call
from occamrl.experiments.records import holder_file
from occamrl.progress import ctrl_c
from occamrl.registry import import_modules

if TYPE_CHECKING:
    from distributed import Client, Future

_CONNECT_SECONDS = 5
_POLL_SECONDS = 0.1


def play_remotely(
    function: str,
    task: Arguments,
    modules: Sequence[str],
    paths: list[str],
    folder: str,
    holder: str,
) -> Event:
    """Play a task inside a Dask worker; return what became of it."""
    lock = holder_file(Path(folder))
    if not lock.exists():
        text = "not visible to this Dask worker, which needs it under the same path"
        return {"event": "failed", "text": f"{folder}: {text}"}
    sys.path.extend(path for path in paths if path not in sys.path)
    import_modules(modules)
    return call(function, task, lambda news: None, lambda: lock.read().decode() != holder)


class DaskPool:
    """Tasks for a Dask scheduler; the same events as of the pool of processes.

    ``scheduler`` is its address, or a client of it; ``folder`` is locked, and has the results.
    """

    def __init__(
        self, function: str, scheduler: str | Client, folder: Path, modules: Sequence[str]
    ) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise OccamRLError(
                "Dask is not installed; install it with: pip install 'occamrl[dask]'"
            ) from error
        self.function = function
        self.folder = folder
        self.modules = list(modules)
        address = scheduler
        if isinstance(scheduler, Client):
            address = scheduler.scheduler.address  # a client of its own, which is closed
        try:
            self.client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, TypeError, ValueError) as error:
            raise ParameterError(
                "scheduler",
                got=f"{address!r} ({error})",
                expected="the address of a running Dask scheduler, such as tcp://host:8786",
            ) from error

    def play(self, tasks: Sequence[Arguments]) -> Events:
        """Yield (number of the task, event) until all are done, failed or stopped."""
        lock = holder_file(self.folder)
        waiting = self._submit(tasks, lock.read().decode())
        try:
            with ctrl_c() as pressed:
                while waiting:
                    time.sleep(_POLL_SECONDS)
                    if pressed.is_set():
                        # Tasks stop at a block boundary, those to come at once.
                        lock.write(b"stopping")
                    for future in list(waiting):
                        if future.done():
                            yield waiting.pop(future), outcome(future)
                    if self.client.status != "running":
                        raise OccamRLError(
                            "the Dask scheduler is gone; what is finished is in "
                            f"{self.folder}, and can be gone on with"
                        )
        finally:
            self.client.close()

    def _submit(self, tasks: Sequence[Arguments], holder: str) -> dict[Future, int]:
        """Submit all tasks; return their numbers."""
        paths = [str(Path(path).resolve()) for path in sys.path]
        numbers = {}
        for number, task in enumerate(tasks):
            future = self.client.submit(
                play_remotely,
                self.function,
                list(task),
                self.modules,
                paths,
                str(self.folder),
                holder,
                # Under a key of its own: Dask remembers the result of an equal task.
                key=f"occamrl-{number}-{time.time_ns()}",
                pure=False,
            )
            numbers[future] = number
        return numbers


def outcome(future: Future) -> Event:
    """Return what became of a task that has ended."""
    if future.status == "finished":
        event: Event = future.result()
        return event
    text = future.status
    if text == "error":
        text = f"error: {future.exception()!r}"
    return {"event": "failed", "text": text}
