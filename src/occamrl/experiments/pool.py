"""One pool of processes for everything that plays many runs: experiments, comparisons and studies.

A task is a function ``module:name`` called with plain data. Workers are new Python processes, or
this one where there is one worker, always with one thread of linear algebra: results are the same
bits for any number of workers, in any order, interrupted or not. A worker that dies or falls silent
costs its task only: it is tried again, and a run goes on from its checkpoint. Ctrl-C stops tasks at
a block boundary, with a checkpoint, and after about a second without one.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import itertools
import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from occamrl.errors import CheckpointError, Interrupted, OccamRLError, Stopped, StorageError
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Learner
from occamrl.registry import import_modules
from occamrl.running.progress import Progress, ctrl_c
from occamrl.running.result import Result
from occamrl.running.run import Run, Simulator
from occamrl.running.storage import load, save

CHECKPOINT_SECONDS = 30.0
SILENCE_SECONDS = 600.0  # a worker that says nothing for so long is taken to hang
GRACE_SECONDS = 1.0  # from Ctrl-C to the end of workers that do not stop by themselves
RETRIES = 3  # of a task whose worker was lost
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)

Event = dict[str, Any]
Listener = Callable[[Event], None]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Hold the linear algebra of this process to one thread."""
    before: list[tuple[Any, int]] = []
    place = Path(np.__file__).parents[1]  # NumPy and SciPy each bring their own OpenBLAS
    for path in [*place.glob("*py.libs/*openblas*"), *place.glob("*py/.dylibs/*openblas*")]:
        library = ctypes.CDLL(str(path))
        for prefix, suffix in itertools.product(("scipy_", ""), ("64_", "")):
            get, put = (f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set"))
            if hasattr(library, get):
                before.append((getattr(library, put), getattr(library, get)()))
    for setter, _ in before:
        setter(1)
    try:
        yield
    finally:
        for setter, count in before:
            setter(count)


def earlier(path: Path, agent: Learner, mdp: FiniteMDP, seed: int, episodes: int) -> Result | None:
    """Return what a file holds of a run; None without a file. One of another run is refused and left in place."""
    if not path.exists():
        return None
    found = load(path, agent, mdp)
    if found.seed != seed or found.total_episodes > episodes:
        got = f"seed {found.seed}, {found.total_episodes:,} episodes"
        raise CheckpointError(
            str(path), got=got, expected=f"seed {seed}, at most {episodes:,}; or another folder"
        )
    return found


def play(
    agent: Learner,
    mdp: FiniteMDP,
    seed: int,
    episodes: int,
    path: Path,
    seconds: float,
    say: Listener,
    stop: Callable[[], bool],
) -> Result:
    """Play a run from its checkpoint in ``path``, if there is one, to its end, writing checkpoints on the way.

    When ``stop()`` says so, or on Ctrl-C, it ends with :class:`Stopped` at the next block boundary,
    after a checkpoint.
    """
    under_way = Run(agent, Simulator(mdp), seed, earlier(path, agent, mdp, seed, episodes))
    written = time.monotonic()

    def after(result: Result) -> bool:
        nonlocal written
        if time.monotonic() - written >= seconds and result.total_episodes < episodes:
            save(result, path)
            written = time.monotonic()
        say({"event": "progress", "episodes": result.total_episodes, "total": episodes})
        return not stop()

    left = episodes - under_way.result.total_episodes
    with contextlib.suppress(Interrupted):
        if left and not stop():
            under_way.play(left, progress=False, after=after)
    if under_way.result.total_episodes < episodes:
        if under_way.result.total_episodes:
            save(under_way.result, path)
        raise Stopped(f"stopped after episode {under_way.result.total_episodes:,}")
    return under_way.result


def call(function: str, arguments: Sequence[Any], say: Listener, stop: Callable[[], bool]) -> Event:
    """Call a task; return what became of it as an event: done (with its result), failed, stopped or storage."""
    module, _, name = function.partition(":")
    try:
        with one_thread():
            result = getattr(importlib.import_module(module), name)(*arguments, say=say, stop=stop)
        return {"event": "done", "result": result}
    except Stopped as stopped:
        return {"event": "stopped", "text": str(stopped)}
    except StorageError as error:
        return {"event": "storage", "path": error.path, "errno": error.errno, "text": str(error)}
    except (
        Exception
    ) as error:  # a task that fails, for whatever reason, must not take the worker along
        text = str(error) if isinstance(error, OccamRLError) else f"{type(error).__name__}: {error}"
        return {
            "event": "failed",
            "text": text,
            "trace": "".join(traceback.format_exception(error)),
        }


def work() -> None:
    """Be a worker: take tasks from standard input, one JSON line each; when it ends, stop at a block boundary."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anybody prints is not an answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    stopping, lines = threading.Event(), queue.SimpleQueue[str | None]()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        stopping.set()
        lines.put(None)

    said = 0.0

    def say(news: Event) -> None:
        nonlocal said
        if news["event"] == "progress" and time.monotonic() - said < 0.5:
            return
        said = time.monotonic()
        with contextlib.suppress(OSError):  # nobody listens any more
            answers.write(json.dumps(news) + "\n")
            answers.flush()

    threading.Thread(target=read, daemon=True).start()
    import_modules(sys.argv[2:])
    while (line := lines.get()) is not None:
        say(call(sys.argv[1], json.loads(line), say, stopping.is_set))


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    heard: float
    task: int | None = None

    def write(self, task: Sequence[Any] | None) -> None:
        """Send a task, or end the input; a worker that died is noticed by who hears its answers."""
        stream = cast(IO[bytes], self.process.stdin)
        with contextlib.suppress(OSError):
            if task is None:
                stream.close()
            else:
                stream.write(json.dumps(task).encode() + b"\n")
                stream.flush()


class Pool:
    """Worker processes for tasks of one function, ``module:name``, with plain arguments and results.

    One worker is this process itself. Others first import ``modules``, and keep the descriptors
    ``inherit`` open, which are locks.
    """

    def __init__(
        self, function: str, workers: int, modules: Sequence[str] = (), inherit: Sequence[int] = ()
    ) -> None:
        self.function, self.workers, self.modules, self.inherit = (
            function,
            workers,
            modules,
            inherit,
        )
        self._news: queue.SimpleQueue[tuple[_Worker, bytes | None]] = queue.SimpleQueue()
        self._team: set[_Worker] = set()

    def play(self, tasks: Sequence[Sequence[Any]]) -> Iterator[tuple[int, Event]]:
        """Yield (number of the task, event) until all are done, failed or stopped; Ctrl-C stops all of them."""
        with ctrl_c() as pressed:
            try:
                yield from (self._here if self.workers == 1 else self._in_processes)(
                    tasks, pressed.is_set
                )
            finally:
                for worker in self._team:
                    worker.write(None)
                for worker in self._team:
                    try:
                        worker.process.wait(GRACE_SECONDS)
                    except subprocess.TimeoutExpired:
                        worker.process.kill()
                        worker.process.wait()

    def _here(
        self, tasks: Sequence[Sequence[Any]], pressed: Callable[[], bool]
    ) -> Iterator[tuple[int, Event]]:
        event: Event = {}
        for i, task in enumerate(tasks):
            if pressed() or event.get("event") == "stopped":  # a run hears Ctrl-C itself
                event = {"event": "stopped", "text": "not begun"}
            else:
                yield i, {"event": "begin"}
                event = call(self.function, task, lambda news: None, pressed)
            yield i, event

    def _in_processes(
        self, tasks: Sequence[Sequence[Any]], pressed: Callable[[], bool]
    ) -> Iterator[tuple[int, Event]]:
        waiting, losses, since = deque(range(len(tasks))), [0] * len(tasks), math.inf
        while waiting or any(worker.task is not None for worker in self._team):
            now = time.monotonic()
            if pressed():
                since = min(since, now)
                yield from ((i, {"event": "stopped", "text": "not begun"}) for i in waiting)
                waiting.clear()
            for worker in self._team:
                if since < math.inf:
                    worker.write(None)
                if now - since > GRACE_SECONDS or (
                    worker.task is not None and now - worker.heard > SILENCE_SECONDS
                ):
                    worker.process.kill()
            while waiting and (idle := self._idle()) is not None:
                idle.task, idle.heard = waiting.popleft(), now
                idle.write(tasks[idle.task])
                yield idle.task, {"event": "begin", "pid": idle.process.pid}
            try:
                worker, line = self._news.get(timeout=0.1)
            except queue.Empty:
                continue
            worker.heard, number = time.monotonic(), worker.task
            if line is not None:
                with contextlib.suppress(
                    ValueError
                ):  # the last line of a worker that was killed while it spoke
                    event: Event = json.loads(line)
                    if event["event"] != "progress":
                        worker.task = None
                    if number is not None:
                        yield number, event
                continue
            self._team.discard(worker)
            worker.write(None)
            why = f"worker {worker.process.pid} ended with code {worker.process.wait()}"
            if number is None:
                continue
            losses[number] += 1
            if since < math.inf:
                yield number, {"event": "stopped", "text": why}
            elif losses[number] > RETRIES:
                yield (
                    number,
                    {"event": "failed", "text": f"{why}; given up after {RETRIES} retries"},
                )
            else:
                waiting.append(number)
                yield number, {"event": "retry", "text": why}

    def _idle(self) -> _Worker | None:
        """Return a worker without a task, started if there are too few; None if all are busy."""
        for worker in self._team:
            if worker.task is None:
                return worker
        if len(self._team) >= self.workers:
            return None
        home = str(Path(__file__).resolve().parents[2])
        paths = dict.fromkeys([home, *(str(Path(each).resolve()) for each in sys.path)])
        code = "from occamrl.experiments.pool import work; work()"
        process = subprocess.Popen(  # noqa: S603  # this package's own code
            [sys.executable, "-P", "-c", code, self.function, *self.modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)},
            pass_fds=self.inherit,
            start_new_session=True,  # Ctrl-C in a terminal goes to this process, which passes it on
        )
        worker = _Worker(process, time.monotonic())
        self._team.add(worker)

        def hear() -> None:
            with cast(IO[bytes], process.stdout) as lines:
                for line in lines:
                    self._news.put((worker, line))
            self._news.put((worker, None))

        threading.Thread(target=hear, daemon=True).start()
        return worker


def follow(
    label: str, unit: str, pool: Any, tasks: Sequence[Any], progress: bool | None, take: Any
) -> bool:
    """Play all tasks, show progress, and hand every event to ``take(number, event)``; say whether some were stopped."""
    bar, ended, stopped = Progress(label, max(len(tasks), 1), progress, unit), 0, False
    try:
        with contextlib.closing(pool.play(tasks)) as events:
            for i, event in events:
                take(i, event)
                if event["event"] == "storage":  # nothing can be written: the others stop as well
                    raise StorageError(
                        event["path"], OSError(event["errno"], os.strerror(event["errno"] or 0))
                    )
                ended += event["event"] in ("done", "failed")
                stopped |= event["event"] == "stopped"
                bar.update(ended)
    finally:
        bar.close()
    return stopped


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
