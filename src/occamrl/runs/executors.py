"""The local executor: a pool of worker processes under supervision.

Workers are new Python processes that import this package and nothing of the caller's, so it makes no difference
whether the caller is a script, a notebook or a test. A worker that dies or falls silent costs its cell only: the cell
goes on from its checkpoint in another worker, a few times, then it is given up with the reason written down.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, cast

from occamrl.runs.cells import Cell
from occamrl.runs.folder import Folder
from occamrl.runs.machine import one_thread
from occamrl.runs.player import Settings

RETRIES = 3
SILENCE_SECONDS = 600.0  # a worker that says nothing for so long is taken to hang; compiling is silent too
GRACE_SECONDS = 30.0  # seconds between the request to stop and the end of patience

Event = dict[str, Any]


class Executor(Protocol):
    """Plays cells somewhere and tells what happens."""

    def play(self, cells: Sequence[Cell]) -> Iterator[Event]:
        """Yield events until every cell has one of done, failed, stopped, storage."""

    def stop(self) -> None:
        """Ask everything to stop at the next episode boundary."""


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    heard: float
    cell: Cell | None = None
    hung: bool = False
    asked: bool = False  # to stop
    last_words: deque[str] = field(default_factory=lambda: deque(maxlen=20))

    def ask_to_stop(self) -> None:
        self.asked = True
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)


class LocalPool:
    """Worker processes on this machine.

    Parameters
    ----------
    handle : int
        The folder's lock, which workers keep open.
    silence : float
        Seconds without a word after which a worker is taken to hang.
    """

    def __init__(
        self, folder: Folder, workers: int, settings: Settings, handle: int, silence: float = SILENCE_SECONDS
    ) -> None:
        self.folder = folder
        self.size = workers
        self.settings = settings
        self.handle = handle
        self.silence = silence
        self._workers: set[_Worker] = set()
        self._news: queue.SimpleQueue[tuple[_Worker, bytes | None]] = queue.SimpleQueue()
        self._stopping: float | None = None

    def play(self, cells: Sequence[Cell]) -> Iterator[Event]:
        """Yield events until every cell is done, failed or stopped."""
        waiting, tries = deque(cells), dict.fromkeys((cell.id for cell in cells), 0)
        try:
            while waiting or any(worker.cell for worker in self._workers):
                if self._stopping is not None:
                    yield from ({"event": "stopped", "cell": cell.id, "text": "not begun"} for cell in waiting)
                    waiting.clear()
                yield from self._assign(waiting)
                self._look_after_workers()
                try:
                    worker, line = self._news.get(timeout=0.2)
                except queue.Empty:
                    continue
                for event in self._take(worker, line, tries):
                    if event["event"] == "retry":
                        waiting.append(event.pop("again"))
                    yield event
        finally:
            self._close()

    def stop(self) -> None:
        """Have the workers asked to stop; asked a second time, end them."""
        if self._stopping is not None:
            for worker in self._workers:
                worker.process.kill()
            return
        self._stopping = time.monotonic()  # a signal can come anywhere, also while a worker is started: see play

    def _assign(self, waiting: deque[Cell]) -> Iterator[Event]:
        """Give waiting cells to idle workers, starting some if there are too few."""
        while waiting and self._stopping is None:
            idle = [worker for worker in self._workers if worker.cell is None]
            if not idle:
                if len(self._workers) >= self.size:
                    return
                idle = [self._start()]
            worker, cell = idle[0], waiting.popleft()
            worker.cell, worker.heard = cell, time.monotonic()
            yield {"event": "begin", "cell": cell.id, "pid": worker.process.pid}
            pipe = cast(IO[bytes], worker.process.stdin)  # asked for in _start
            with contextlib.suppress(OSError):  # it died; its reader will say so, and the cell is tried again
                pipe.write(json.dumps(cell.content).encode() + b"\n")
                pipe.flush()

    def _start(self) -> _Worker:
        process = subprocess.Popen(  # noqa: S603  # this package's own module
            [
                sys.executable,
                "-P",
                "-m",
                "occamrl.runs.worker",
                str(self.folder.path),
                json.dumps(asdict(self.settings)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            pass_fds=[self.handle],
            start_new_session=True,  # Ctrl-C in a terminal goes to this process, which passes it on
        )
        worker = _Worker(process, time.monotonic())
        self._workers.add(worker)
        for target, stream in ((self._listen, process.stdout), (self._keep, process.stderr)):
            threading.Thread(target=target, args=(worker, stream), daemon=True).start()
        return worker

    def _listen(self, worker: _Worker, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._news.put((worker, line))
        self._news.put((worker, None))

    def _keep(self, worker: _Worker, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                worker.last_words.append(line.decode(errors="replace"))

    def _look_after_workers(self) -> None:
        """End those that are silent, or that do not stop; ask the others to stop if it is time to."""
        now = time.monotonic()
        for worker in self._workers:
            silent = worker.cell is not None and now - worker.heard > self.silence
            if silent or (self._stopping is not None and now - self._stopping > GRACE_SECONDS):
                worker.hung = silent
                worker.process.kill()
            elif self._stopping is not None and not worker.asked:
                worker.ask_to_stop()

    def _take(self, worker: _Worker, line: bytes | None, tries: dict[str, int]) -> Iterator[Event]:
        """Turn a line from a worker, or its end, into events."""
        worker.heard = time.monotonic()
        if line is None:
            self._workers.discard(worker)
            code = worker.process.wait()
            _close_pipes(worker.process)
            if worker.cell is not None:
                yield self._lost(worker.cell, self._why(worker, code), tries)
            return
        try:
            event: Event = json.loads(line)
        except ValueError:  # the last line of a worker that was killed while it spoke
            return
        if event["event"] in ("done", "stopped", "storage", "failed"):
            worker.cell = None
        yield event

    def _lost(self, cell: Cell, why: str, tries: dict[str, int]) -> Event:
        tries[cell.id] += 1
        if self._stopping is not None:
            return {"event": "stopped", "cell": cell.id, "text": why}
        if tries[cell.id] > RETRIES:
            return {"event": "failed", "cell": cell.id, "text": f"{why}; given up after {RETRIES} retries"}
        return {"event": "retry", "cell": cell.id, "text": why, "try": tries[cell.id], "again": cell}

    def _why(self, worker: _Worker, code: int) -> str:
        if worker.hung:
            return f"worker {worker.process.pid} was silent for {self.silence:.0f} s and was ended"
        if code < 0:
            return f"worker {worker.process.pid} was killed by {_signal_name(-code)}"
        last = worker.last_words[-1].strip() if worker.last_words else ""
        return f"worker {worker.process.pid} ended with code {code}{': ' if last else ''}{last}"

    def _close(self) -> None:
        """End the workers: their input ends, and after a while they are made to."""
        for worker in self._workers:
            if worker.process.stdin is not None and not worker.process.stdin.closed:
                with contextlib.suppress(OSError):
                    worker.process.stdin.close()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            _close_pipes(worker.process)
        self._workers.clear()


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Close our end of the input; the outputs are closed by the threads that read them, at their end."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def environment() -> dict[str, str]:
    """Return the environment of a worker: one thread of linear algebra, and this very package to import."""
    home = str(Path(__file__).resolve().parents[2])
    paths = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, **one_thread(), "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
