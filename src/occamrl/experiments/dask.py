"""The same cells on a Dask cluster (extra ``dask``). Workers must see the experiment's folder under the same path.

A task plays one cell exactly as a local worker does, and its results are its files: nothing large
travels. When a worker dies, Dask gives its cell to another one, where it goes on from its
checkpoint. Tasks stop at a block boundary when the lock of the folder is no longer that of the
process that submitted them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from occamrl.errors import OccamRLError, ParameterError
from occamrl.experiments.pool import Event, call
from occamrl.experiments.records import Folder
from occamrl.registry import import_modules
from occamrl.running.progress import ctrl_c

_CONNECT_SECONDS = 5
_POLL_SECONDS = 0.1


def play_remotely(
    function: str, task: Sequence[Any], modules: Sequence[str], paths: list[str], holder: str
) -> Event:
    """Play a cell inside a Dask worker; return what became of it."""
    folder = Folder(task[0])
    if not folder.experiment_file.exists():
        text = f"{folder.path}: not visible to this Dask worker, which needs the folder under the same path"
        return {"event": "failed", "text": text}
    sys.path.extend(each for each in paths if each not in sys.path)
    import_modules(modules)
    return call(
        function, task, lambda news: None, lambda: (folder.path / "lock").read_text() != holder
    )


class DaskPool:
    """Cells as tasks of a Dask scheduler; the same events as of :class:`occamrl.experiments.pool.Pool`."""

    def __init__(self, function: str, address: str, folder: Folder, modules: Sequence[str]) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise OccamRLError(
                "Dask is not installed; install it with: pip install 'occamrl[dask]'"
            ) from error
        self.function, self.folder, self.modules = function, folder, modules
        try:
            self.client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            expected = "the address of a running Dask scheduler, such as tcp://host:8786"
            raise ParameterError(
                "scheduler", got=f"{address!r} ({error})", expected=expected
            ) from error

    def play(self, tasks: Sequence[Sequence[Any]]) -> Iterator[tuple[int, Event]]:
        """Yield (number of the task, event) until all are done, failed or stopped."""
        lock, waiting = self.folder.path / "lock", dict[Any, int]()
        common = (
            list(self.modules),
            [str(Path(each).resolve()) for each in sys.path],
            lock.read_text(),
        )
        for i, task in enumerate(
            tasks
        ):  # under a key of its own: Dask remembers the result of an equal task
            key = f"occamrl-{i}-{time.time_ns()}"
            waiting[
                self.client.submit(
                    play_remotely, self.function, list(task), *common, key=key, pure=False
                )
            ] = i
        try:
            with ctrl_c() as pressed:
                while waiting:
                    time.sleep(_POLL_SECONDS)
                    if pressed.is_set():
                        lock.write_text(
                            "stopping"
                        )  # tasks stop at a block boundary, those to come at once
                    for future in [each for each in waiting if each.done()]:
                        ended = future.status
                        why = f"{ended}: {future.exception()!r}" if ended == "error" else ended
                        event: Event = {"event": "failed", "text": why}
                        yield waiting.pop(future), future.result() if ended == "finished" else event
                    if self.client.status != "running":
                        text = "the Dask scheduler is gone; finished cells and checkpoints are in"
                        raise OccamRLError(f"{text} {self.folder.path}, and can be resumed")
        finally:
            self.client.close()
