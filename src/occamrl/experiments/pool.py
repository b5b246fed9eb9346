"""One pool of processes for everything that plays many runs: experiments, comparisons and studies.

A task is a function ``module:name`` called with plain data. Workers are new Python processes, or
this one where there is one worker, always with one thread of linear algebra: results are the same
bits for any number of workers, in any order, interrupted or not. A worker that dies or falls silent
costs its task only: it is tried again, and a run goes on from its checkpoint. Ctrl-C stops tasks at
a block boundary, with a checkpoint, and after about a second without one.

The pool is written by hand. That of ``concurrent.futures`` runs a user's script anew in every
worker, so that one without ``if __name__ == "__main__"`` fails, and a dead worker breaks all of it;
loky's needs the same watching, killing and reporting around it, and saves a tenth of this file.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Any, Literal, Protocol, Required, TypedDict, cast

import scipy.linalg  # noqa: F401  # loads SciPy's BLAS: only what is loaded can be limited
from threadpoolctl import threadpool_limits

from occamrl.errors import OccamRLError, Stopped, StorageError, require_integer
from occamrl.progress import Progress, ctrl_c
from occamrl.registry import import_modules

SILENCE_SECONDS = 600.0  # a worker that says nothing for so long is taken to hang
GRACE_SECONDS = 1.0  # from Ctrl-C to the end of workers that do not stop by themselves
PROGRESS_SECONDS = 0.5  # between two reports of progress of one worker
RETRIES = 3  # of a task whose worker was lost
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}


class Event(TypedDict, total=False):
    """What a task or the pool reports."""

    event: Required[
        Literal["begin", "progress", "done", "failed", "retry", "stopped", "storage", "lost"]
    ]
    text: str  # what happened, in words
    trace: str  # of what failed
    result: Any  # of what is done: whatever the task returned, in plain data
    pid: int  # of the worker that begins
    episodes: int  # of a run in progress: how many it has played,
    total: int  # of how many
    path: str  # what could not be written,
    errno: int | None  # and why


Arguments = Sequence[Any]  # plain data
Listener = Callable[[Event], None]
Events = Generator[tuple[int, Event]]  # with the number of the task
NOT_BEGUN: Event = {"event": "stopped", "text": "not begun"}


class TaskPool(Protocol):
    """What plays tasks: this file's pool, or Dask."""

    def play(self, tasks: Sequence[Arguments]) -> Events:
        """Yield (number of the task, event) until all are done, failed or stopped."""


def call(function: str, arguments: Arguments, say: Listener, stop: Callable[[], bool]) -> Event:
    """Call a task; return what became of it: done, with its result, failed, stopped or storage."""
    module, _, name = function.partition(":")
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            task = getattr(importlib.import_module(module), name)
            return {"event": "done", "result": task(*arguments, say=say, stop=stop)}
    except Stopped as stopped:
        return {"event": "stopped", "text": str(stopped)}
    except StorageError as error:
        return {"event": "storage", "path": error.path, "errno": error.errno, "text": str(error)}
    except Exception as error:
        # A task that fails, for whatever reason, must not take the worker along.
        text = str(error)
        if not isinstance(error, OccamRLError):
            text = f"{type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))
        return {"event": "failed", "text": text, "trace": trace}


# In a worker --------------------------------------------------------------------------------------


def work() -> None:
    """Be a worker: play the tasks on standard input, a line of JSON each, until it ends.

    When it ends while a task is played, the pool wants to stop, or has been killed: the task stops
    at a block boundary, or after some grace with the process, so that nobody is left behind.
    """
    # Answers go where the parent reads; what a task prints is not one, and goes to its errors.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Ctrl-C is the parent's, which asks for a stop by ending the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stopping = threading.Event()
    lines = queue.SimpleQueue[str | None]()
    last_report = 0.0

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        stopping.set()
        lines.put(None)
        # The parent has killed a worker by then that does not stop; it may be dead itself.
        time.sleep(2.0 * GRACE_SECONDS)
        os._exit(1)

    def say(event: Event) -> None:
        nonlocal last_report
        # A block may take less time than a report of it.
        if event["event"] == "progress" and time.monotonic() - last_report < PROGRESS_SECONDS:
            return
        last_report = time.monotonic()
        # If nobody listens any more, the input has ended, too.
        with suppress(OSError):
            answers.write(json.dumps(event) + "\n")
            answers.flush()

    threading.Thread(target=read, daemon=True).start()
    import_modules(sys.argv[2:])
    while (line := lines.get()) is not None:
        say(call(sys.argv[1], json.loads(line), say, stopping.is_set))


# In the process that owns the pool ----------------------------------------------------------------


class Worker:
    """A process that plays one task at a time; what it says goes to ``news``."""

    def __init__(
        self, function: str, modules: Sequence[str], inherit: Sequence[int], news: News
    ) -> None:
        home = Path(__file__).resolve().parents[2]
        paths = [str(home), *(str(Path(path).resolve()) for path in sys.path)]
        code = "from occamrl.experiments.pool import work; work()"
        self.process = subprocess.Popen(  # noqa: S603  # this package's own code
            [sys.executable, "-P", "-c", code, function, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)},
            pass_fds=inherit,
            # Ctrl-C in a terminal goes to this process alone, which passes it on.
            start_new_session=True,
        )
        self.task: int | None = None  # the number of the task that it plays
        self.heard = time.monotonic()
        threading.Thread(target=self._hear, args=(news,), daemon=True).start()

    def _hear(self, news: News) -> None:
        """Pass on every line, in a thread, and at last that the process is gone."""
        # The last line of one that was killed while it spoke is no JSON.
        with cast(IO[bytes], self.process.stdout) as lines, suppress(ValueError):
            for line in lines:
                news.put((self, json.loads(line)))
        text = f"worker {self.process.pid} ended with code {self.process.wait()}"
        news.put((self, {"event": "lost", "text": text}))

    def begin(self, number: int, arguments: Arguments) -> None:
        """Send a task."""
        self.task = number
        self.heard = time.monotonic()
        stream = cast(IO[bytes], self.process.stdin)
        # That it died before it could read is heard by the thread.
        with suppress(OSError):
            stream.write(json.dumps(arguments).encode() + b"\n")
            stream.flush()

    def stop(self) -> None:
        """End the input, which tells the process to stop."""
        with suppress(OSError):
            cast(IO[bytes], self.process.stdin).close()


News = queue.SimpleQueue[tuple[Worker, Event]]


class Pool:
    """Worker processes for tasks of one function, ``module:name``, of plain data.

    One worker is this process itself. Others first import ``modules``, and keep the descriptors
    ``inherit`` open, which are locks.
    """

    def __init__(
        self, function: str, workers: int, modules: Sequence[str] = (), inherit: Sequence[int] = ()
    ) -> None:
        self.function = function
        self.workers = workers
        self.modules = modules
        # Windows hands no descriptors on; there a lock is held by this process alone.
        self.inherit = inherit if os.name == "posix" else ()
        self._news: News = queue.SimpleQueue()
        self._team: set[Worker] = set()

    def play(self, tasks: Sequence[Arguments]) -> Events:
        """Yield (number of the task, event) until all are done, failed or stopped.

        Ctrl-C stops all of them.
        """
        with ctrl_c() as pressed:
            if self.workers == 1:
                yield from self._play_here(tasks, pressed.is_set)
                return
            try:
                yield from self._play_in_processes(tasks, pressed.is_set)
            finally:
                self._end()

    def _play_here(self, tasks: Sequence[Arguments], pressed: Callable[[], bool]) -> Events:
        stopped = False
        for number, arguments in enumerate(tasks):
            if stopped or pressed():
                yield number, NOT_BEGUN
                continue
            yield number, {"event": "begin"}
            event = call(self.function, arguments, lambda news: None, pressed)
            # A run hears Ctrl-C itself, so that ``pressed`` may not know of it.
            stopped = event["event"] == "stopped"
            yield number, event

    def _play_in_processes(self, tasks: Sequence[Arguments], pressed: Callable[[], bool]) -> Events:
        waiting = deque(range(len(tasks)))
        losses = Counter[int]()
        pressed_at: float | None = None
        while waiting or any(worker.task is not None for worker in self._team):
            if pressed_at is None and pressed():
                pressed_at = time.monotonic()
                for worker in self._team:
                    worker.stop()
                while waiting:
                    yield waiting.popleft(), NOT_BEGUN
            self._kill_hanging(pressed_at)
            while waiting and (idle := self._idle_worker()) is not None:
                number = waiting.popleft()
                idle.begin(number, tasks[number])
                yield number, {"event": "begin", "pid": idle.process.pid}
            try:
                worker, event = self._news.get(timeout=0.1)
            except queue.Empty:
                continue
            worker.heard = time.monotonic()
            # Without a task it was stopped after its last one.
            playing = worker.task
            if event["event"] != "progress":
                worker.task = None
            if event["event"] == "lost":
                self._team.discard(worker)
                worker.stop()
            if playing is None:
                continue
            if event["event"] == "lost":
                losses[playing] += 1
                event = fate(event["text"], losses[playing], stopping=pressed_at is not None)
            if event["event"] == "retry":
                waiting.append(playing)
            yield playing, event

    def _idle_worker(self) -> Worker | None:
        """Return a worker without a task, started if there are too few; None if all are busy."""
        for worker in self._team:
            if worker.task is None:
                return worker
        if len(self._team) >= self.workers:
            return None
        worker = Worker(self.function, self.modules, self.inherit, self._news)
        self._team.add(worker)
        return worker

    def _kill_hanging(self, pressed_at: float | None) -> None:
        """Kill workers that are silent, and after Ctrl-C those that do not stop."""
        now = time.monotonic()
        late = pressed_at is not None and now - pressed_at > GRACE_SECONDS
        for worker in self._team:
            if late or (worker.task is not None and now - worker.heard > SILENCE_SECONDS):
                worker.process.kill()

    def _end(self) -> None:
        """Stop all workers, by force after some grace."""
        for worker in self._team:
            worker.stop()
        for worker in self._team:
            try:
                worker.process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()


def fate(reason: str, losses: int, *, stopping: bool) -> Event:
    """Return what becomes of a task whose worker was lost for the nth time."""
    if stopping:
        return {"event": "stopped", "text": reason}
    if losses > RETRIES:
        return {"event": "failed", "text": f"{reason}; given up after {RETRIES} retries"}
    return {"event": "retry", "text": reason}


def follow(
    label: str,
    unit: str,
    pool: TaskPool,
    tasks: Sequence[Arguments],
    progress: bool | None,
    take: Callable[[int, Event], None],
) -> bool:
    """Play all tasks, show progress, and hand every event to ``take(number, event)``.

    Returns whether some tasks were stopped.
    """
    bar = Progress(label, max(len(tasks), 1), progress, unit)
    ended = 0
    stopped = False
    try:
        with closing(pool.play(tasks)) as events:
            for number, event in events:
                take(number, event)
                if event["event"] == "storage":
                    # The disk is full, say: others would fail one after the other.
                    cause = OSError(event["errno"], os.strerror(event["errno"] or 0))
                    raise StorageError(event["path"], cause)
                if event["event"] in ("done", "failed"):
                    ended += 1
                elif event["event"] == "stopped":
                    stopped = True
                bar.update(ended)
    finally:
        bar.close()
    return stopped


def require_workers(workers: int | None) -> int:
    """Return the number of processes: as many as there are processors by default."""
    if workers is None:
        return processors()
    return require_integer("workers", workers, 1)


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
