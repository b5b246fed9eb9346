"""An experiment from its spec to its records: the cells that are not finished are played, in any order.

Cells are played by worker processes under supervision. Workers are new Python processes that import this package and,
of the caller's, the modules that an experiment was given by name, so it makes no difference whether the caller is a
script, a notebook or a test. A worker that dies or falls silent costs its cell only: the cell goes on from its
checkpoint in another worker, a few times, then it is given up with the reason written down.
:mod:`occamrl.experiments.dask` plays the same cells on a cluster.

Results are the same bytes for any number of workers, any order, either executor, interrupted or not.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import platform
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from occamrl.errors import (
    CheckpointError,
    Interrupted,
    ParameterError,
    RecordError,
    Stopped,
    StorageError,
    require_integer,
    require_number,
)
from occamrl.experiments.display import Display
from occamrl.experiments.records import (
    PASSING,
    RETRIES,
    TOTALS,
    Cell,
    Folder,
    FolderLock,
    Records,
    describe_holder,
    load,
    tidy,
)
from occamrl.experiments.spec import Spec, read_source, read_spec, require_imports
from occamrl.experiments.tables import tables_of
from occamrl.problems.mdp import as_mdp
from occamrl.protocols import Agent, Phase
from occamrl.registry import NO_MODULES, Modules, import_modules
from occamrl.running.files import canonical, jsonable, make_folder, seal, sha256, there, write_whole
from occamrl.running.result import Result
from occamrl.running.run import CHUNK_SECONDS, Checkpoint, Chunk, Run, Simulator
from occamrl.running.storage import load as load_result

if TYPE_CHECKING:
    from occamrl.experiments.dask import DaskExecutor


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions of what computes."""
    found = {"occamrl": str(sys.modules["occamrl"].__version__), "python": platform.python_version()}
    return found | {name: metadata.version(name) for name in ("numpy", "numba", "scipy", "pyarrow")}


@lru_cache(maxsize=1)
def machine() -> dict[str, str]:
    """Return processor, linear algebra and platform."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        cpu = models[0] if models else cpu
    configuration: Any = np.show_config(mode="dicts")
    blas = configuration.get("Build Dependencies", {}).get("blas", {})
    name = f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
    return {"cpu": cpu, "blas": name, "platform": platform.platform()}


CHECKPOINT_SECONDS = 30.0
_PROGRESS_SECONDS = 1.0

SILENCE_SECONDS = 600.0  # a worker that says nothing for so long is taken to hang; compiling is silent too
GRACE_SECONDS = 30.0  # seconds between the request to stop and the end of patience
_LONGEST_REASON = 4000  # characters of a failure that are kept

Event = dict[str, Any]
Events = Generator[Event, None, None]
Listener = Callable[[Event], None]


def play_cell(
    folder: Folder,
    cell: Cell,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    say: Listener = lambda news: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Play a cell from its checkpoint to its end and write its records; return its manifest.

    Raises
    ------
    Stopped
        When ``stop()`` says so, at the next episode boundary, with a checkpoint written.
    StorageError
        When something cannot be written.
    """
    finished = folder.manifest(cell.id, cell.content)
    if finished is not None and finished["status"] == "done":  # by a worker that was killed before it could say so
        tidy(folder.cell(cell.id))
        return finished
    path = folder.open_cell(cell.id)
    problem, agent, resolved = cell.make()
    run = Run(agent, Simulator(as_mdp(problem)), cell.seed, earlier=_resume(folder, cell, problem, agent, say))
    checkpoint = Checkpoint(path / "checkpoint.npz", checkpoint_seconds, _tag(cell))
    written = 0.0  # when progress.json was

    def tell(phase: Phase, played: Chunk) -> bool:
        nonlocal written
        news = {
            "episodes": run.episodes,
            "total": cell.episodes,
            "regret": run.result().total_regret,
            "rate": run.rate,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "time": time.time(),
        }
        say({"event": "progress", "cell": cell.id, **news})
        if time.monotonic() - written >= _PROGRESS_SECONDS:
            write_whole(path / "progress.json", canonical(jsonable(news)).encode(), durable=False)
            written = time.monotonic()
        return not stop()

    if not stop() and run.episodes < cell.episodes:
        seconds = min(CHUNK_SECONDS, checkpoint_seconds / 2.0)
        with contextlib.suppress(Interrupted):
            run.play(cell.episodes - run.episodes, progress=False, checkpoint=checkpoint, after=tell, seconds=seconds)
    if run.episodes == cell.episodes:
        return record(folder, cell, run.result(), resolved)
    (path / "progress.json").unlink(missing_ok=True)
    if run.episodes:
        checkpoint.write(run.result())
    raise Stopped(f"stopped after episode {run.episodes:,}")


def _resume(folder: Folder, cell: Cell, problem: Any, agent: Agent, say: Listener) -> Result | None:
    """Return the result up to a checkpoint that can be used, if there is one; others are put aside, never deleted.

    One that was put aside is looked at again: by the versions that wrote it, it can be used.
    """
    path = folder.cell(cell.id) / "checkpoint.npz"
    for each in [path, *sorted(path.parent.glob(f"{path.name}.*.unused"))]:
        if not there(each):
            continue
        try:
            result = load_result(each, agent, problem, tag=_tag(cell))
            if result.seed != cell.seed or result.total_episodes > cell.episodes:
                raise CheckpointError(str(each), got="a checkpoint of another run", expected=f"one of cell {cell.id}")
        except (CheckpointError, FileNotFoundError) as error:
            if each != path:
                continue
            names = (path.with_name(f"{path.name}.{number:03}.unused") for number in itertools.count(1))
            aside = next(name for name in names if not there(name))
            try:
                path.replace(aside)
            except OSError as failure:
                raise StorageError(aside, failure) from failure
            text = f"{error}; the checkpoint is kept as {aside.name}"
            say({"event": "warning", "cell": cell.id, "text": text})
            continue
        if each != path:
            text = f"the cell continues from {each.name}, at episode {result.total_episodes:,}"
            say({"event": "warning", "cell": cell.id, "text": text})
        return result
    return None


def _tag(cell: Cell) -> str:
    """Return what a checkpoint must agree with: this cell, computed by these versions."""
    return canonical({"cell": cell.id, "versions": versions()})


def record(folder: Folder, cell: Cell, result: Result, resolved: dict[str, Any]) -> dict[str, Any]:
    """Write the tables, then the manifest, which makes the cell finished; then remove the checkpoint."""
    path, files = folder.cell(cell.id), {}
    for name, content in tables_of(cell, result).items():
        write_whole(path / name, content)
        files[name] = sha256(content)
    totals = {name: getattr(result, name) for name in TOTALS}
    outcome = {"status": "done", "resolved": jsonable(resolved), **totals, "files": files, "reason": None}
    return _conclude(path, cell, outcome, PASSING)


def record_failure(folder: Folder, cell: Cell, reason: str) -> dict[str, Any]:
    """Write down that a cell failed, and why; its checkpoint stays, for another try."""
    reason = reason if len(reason) <= _LONGEST_REASON else "... " + reason[4 - _LONGEST_REASON :]  # the error is last
    outcome = {"status": "failed", "files": {}, "reason": reason}
    return _conclude(folder.open_cell(cell.id), cell, outcome, ("progress.json",))


def _conclude(path: Path, cell: Cell, outcome: dict[str, Any], passing: Sequence[str]) -> dict[str, Any]:
    """Write the manifest of a cell and remove its ``passing`` files; return the manifest."""
    addresses = [[cell.seed, "environment"], [cell.seed, "agent"]]
    about = {"cell": cell.id, "seed_address": addresses, "versions": versions(), "machine": machine()}
    manifest = {**cell.content, **about, **outcome}
    write_whole(path / "manifest.json", seal(manifest))
    tidy(path, passing)
    return manifest


def answer(folder: Folder, cell: Cell, modules: Modules, *how: Any) -> Event:
    """Play a cell, with the user's own modules at hand; return what became of it: done, failed, stopped or storage."""
    try:
        import_modules(*modules)
        manifest = play_cell(folder, cell, *how)
    except Stopped as stopped:
        return {"event": "stopped", "cell": cell.id, "text": str(stopped)}
    except Exception as error:  # a cell that fails, for whatever reason, must not take the worker along
        with contextlib.suppress(OSError, RecordError):
            (folder.cell(cell.id) / "progress.json").unlink(missing_ok=True)
        if isinstance(error, StorageError):
            return {"event": "storage", "cell": cell.id, "path": error.path, "errno": error.errno, "text": str(error)}
        trace = "".join(traceback.format_exception(error))
        return {"event": "failed", "cell": cell.id, "text": f"{type(error).__name__}: {error}", "trace": trace}
    keys = ("total_regret", "wall_time", "episodes")
    return {"event": "done", "cell": cell.id, **{key: manifest[key] for key in keys}}


def work() -> None:
    """Be a worker process: take cells from standard input, one JSON line each, and answer on standard output.

    The arguments are the directory, the seconds between checkpoints, and :class:`Modules` as JSON. When the input ends,
    by intent or because the parent is gone, the cell in play stops at an episode boundary.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anybody prints is not an answer
    folder, checkpoint_seconds, modules = Folder(sys.argv[1]), float(sys.argv[2]), Modules(*json.loads(sys.argv[3]))
    stopping = threading.Event()
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def end(*_: object) -> None:
        stopping.set()
        signal.raise_signal(signal.SIGINT)  # while episodes are played, the driver listens to this one itself

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        lines.put(None)
        end()

    def say(news: Event) -> None:
        try:
            answers.write(json.dumps(news) + "\n")
            answers.flush()
        except (BrokenPipeError, ValueError):  # nobody listens any more
            stopping.set()

    signal.signal(signal.SIGINT, lambda *_: stopping.set())
    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=read, daemon=True).start()
    while not stopping.is_set():
        try:
            line = lines.get(timeout=0.5)  # awake to signals
        except queue.Empty:
            continue
        if line is not None:
            say(answer(folder, Cell.of(json.loads(line)), modules, checkpoint_seconds, say, stopping.is_set))


def environment() -> dict[str, str]:
    """Return the environment of a worker: one thread of linear algebra, and this very package to import."""
    libraries = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA")
    threads = {**{f"{name}_NUM_THREADS": "1" for name in libraries}, "VECLIB_MAXIMUM_THREADS": "1"}
    home = str(Path(__file__).resolve().parents[2])
    paths = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


class Executor:
    """What plays the cells of a directory whose lock is held: worker processes, or the workers of a Dask cluster.

    Each kind has ``play(cells)``, which yields events until every cell is done, failed or stopped, and ``stop()``,
    which asks for an end at the next episode boundaries and, called a second time, waits for nobody.
    """

    def __init__(self, folder: Folder, lock: FolderLock, options: Options, modules: Modules = NO_MODULES) -> None:
        self.folder, self.lock, self.options, self.modules = folder, lock, options, modules
        self.silence = options.silence_seconds
        self._stopping: float | None = None  # when that was asked for
        self._losses: Counter[str] = Counter()
        self._checkpoints: dict[str, int] = {}  # by cell: the time of the one it had when its worker was lost

    def lose(self, cell: Cell, why: str, workers: int = 1) -> Event:
        """Return what becomes of a cell that lost its worker: retry, failed, or stopped if that was asked for.

        It is given up after :data:`RETRIES` losses without a new checkpoint. ``workers``: how many it has lost, if
        somebody else has tried again.
        """
        if self._stopping is not None:
            return {"event": "stopped", "cell": cell.id, "text": why}
        try:
            checkpoint = (self.folder.cells / cell.id / "checkpoint.npz").stat().st_mtime_ns
        except OSError:
            checkpoint = 0
        if checkpoint > self._checkpoints.get(cell.id, 0):
            del self._losses[cell.id]
        self._checkpoints[cell.id] = checkpoint
        self._losses[cell.id] += workers
        if self._losses[cell.id] > RETRIES:
            return {"event": "failed", "cell": cell.id, "text": f"{why}; given up after {RETRIES} retries"}
        return {"event": "retry", "cell": cell.id, "text": why, "try": self._losses[cell.id]}


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    heard: float
    cell: Cell | None = None
    hung: float = 0.0  # seconds of silence for which it was ended
    last_lines: deque[bytes] = field(default_factory=lambda: deque(maxlen=20))  # of its errors

    @property
    def input(self) -> IO[bytes]:
        return cast(IO[bytes], self.process.stdin)  # a pipe: see LocalPool._start

    def close_input(self) -> None:
        """End its input, which asks it to stop; the outputs are closed by the threads that read them, at their end."""
        with contextlib.suppress(OSError):
            self.input.close()

    def why_it_ended(self, code: int) -> str:
        who = f"worker {self.process.pid}"
        if self.hung:
            return f"{who} was silent for {self.hung:.0f} s and was ended"
        if code < 0:
            names = {each.value: each.name for each in signal.Signals}
            return f"{who} was killed by {names.get(-code, f'signal {-code}')}"
        last = self.last_lines[-1].decode(errors="replace").strip() if self.last_lines else ""
        return f"{who} ended with code {code}{': ' if last else ''}{last}"


class LocalPool(Executor):
    """Worker processes on this machine, which inherit the lock; one that says nothing for long is taken to hang."""

    def __init__(self, folder: Folder, lock: FolderLock, options: Options, modules: Modules = NO_MODULES) -> None:
        super().__init__(folder, lock, options, modules)
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.size = options.workers or available
        self._workers: set[_Worker] = set()
        self._news: queue.SimpleQueue[tuple[_Worker, bytes | None]] = queue.SimpleQueue()

    def play(self, cells: Sequence[Cell]) -> Events:
        """Yield events until every cell has one of done, failed, stopped, storage; closing it ends all work."""
        waiting, by_id = deque(cells), {cell.id: cell for cell in cells}
        try:
            while waiting or any(worker.cell for worker in self._workers):
                if self._stopping is not None:
                    yield from ({"event": "stopped", "cell": cell.id, "text": "not begun"} for cell in waiting)
                    waiting.clear()
                yield from self._assign(waiting)
                self._check_workers()
                try:
                    worker, line = self._news.get(timeout=0.2)
                except queue.Empty:
                    continue
                event = self._take(worker, line)
                if event is not None:
                    if event["event"] == "retry":
                        waiting.append(by_id[event["cell"]])
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
            worker = next((worker for worker in self._workers if worker.cell is None), None)
            if worker is None:
                if len(self._workers) >= self.size:
                    return
                worker = self._start()
            worker.cell = cell = waiting.popleft()
            yield {"event": "begin", "cell": cell.id, "pid": worker.process.pid}
            worker.heard = time.monotonic()
            with contextlib.suppress(OSError):  # it died; its reader will say so, and the cell is tried again
                worker.input.write(json.dumps(cell.content).encode() + b"\n")
                worker.input.flush()

    def _start(self) -> _Worker:
        code = "from occamrl.experiments.execution import work; work()"
        arguments = (str(self.folder.path), str(self.options.checkpoint_seconds), json.dumps(self.modules))
        process = subprocess.Popen(  # noqa: S603  # this package's own code
            [sys.executable, "-P", "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            pass_fds=[self.lock.handle],
            start_new_session=True,  # Ctrl-C in a terminal goes to this process, which passes it on
        )
        worker = _Worker(process, time.monotonic())
        self._workers.add(worker)

        def listen(stream: IO[bytes], take: Callable[[bytes], object]) -> None:
            with stream:
                for line in stream:
                    take(line)
            if stream is process.stdout:
                self._news.put((worker, None))

        for each in (
            (process.stdout, lambda line: self._news.put((worker, line))),
            (process.stderr, worker.last_lines.append),
        ):
            threading.Thread(target=listen, args=each, daemon=True).start()
        return worker

    def _check_workers(self) -> None:
        """End those that are silent, or that do not stop; ask the others to stop if it is time to."""
        now = time.monotonic()
        for worker in self._workers:
            silent = worker.cell is not None and now - worker.heard > self.silence
            if silent or (self._stopping is not None and now - self._stopping > GRACE_SECONDS):
                worker.hung = self.silence if silent else 0.0
                worker.process.kill()
            elif self._stopping is not None:
                worker.close_input()

    def _take(self, worker: _Worker, line: bytes | None) -> Event | None:
        """Turn a line from a worker, or its end, into an event."""
        worker.heard = time.monotonic()
        if line is None:
            self._workers.discard(worker)
            code = worker.process.wait()
            worker.close_input()
            if worker.cell is None:
                return None
            return self.lose(worker.cell, worker.why_it_ended(code))
        try:
            event: Event = json.loads(line)
        except ValueError:  # the last line of a worker that was killed while it spoke
            return None
        if event["event"] in ("done", "stopped", "storage", "failed"):
            worker.cell = None
        return event

    def _close(self) -> None:
        """End the workers: their input ends, and after a while they are made to."""
        for worker in self._workers:
            worker.close_input()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        self._workers.clear()


@dataclass(frozen=True)
class Tally:
    """What became of the cells of a run."""

    done: int
    earlier: int  # finished before this run
    failed: tuple[str, ...]
    stopped: bool


@dataclass(frozen=True)
class Options:
    """How to run; none of this changes a result.

    ``workers`` None: one for each processor that this process may use. ``scheduler``: the address of a Dask scheduler,
    whose workers, as many as it has, see the same directory. ``silence_seconds``: a worker without news for so long is
    ended; a scheduler whose workers are all without news is left.
    """

    workers: int | None = None
    scheduler: str | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    silence_seconds: float = SILENCE_SECONDS

    def __post_init__(self) -> None:
        if self.workers is not None:
            require_integer("workers", self.workers, 1)
            if self.scheduler is not None:
                raise ParameterError("workers", got=self.workers, expected="none: the Dask scheduler has its own")
        for name in ("checkpoint_seconds", "silence_seconds"):
            require_number(name, getattr(self, name), 0.0, math.inf, open_low=True)


@dataclass(frozen=True, eq=False)
class Experiment:
    """A checked spec and its cells.

    >>> import occamrl as orl
    >>> experiment = orl.Experiment.from_toml("ayoub-riverswim")  # a shipped spec, or a file
    >>> len(experiment.cells)
    90
    """

    path: str
    source: bytes
    data: dict[str, Any]
    spec: Spec
    cells: tuple[Cell, ...]
    modules: Modules = NO_MODULES

    @classmethod
    def from_toml(cls, spec: str | Path, *, imports: Sequence[str] = ()) -> Experiment:
        """Return the experiment of a TOML file, or of a shipped spec called by its name.

        ``imports`` are the modules that the spec lists under ``import``. They are imported because they are named here:
        a file alone is never a reason to run code.

        Raises
        ------
        SpecError
            With everything that is wrong with it.
        """
        path, source = read_source(spec)
        data, checked, cells, modules = read_spec(source, path, imports)
        return cls(path, source, data, checked, tuple(cells), modules)

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.spec.name

    def run(
        self,
        out: str | Path,
        *,
        workers: int | None = None,
        scheduler: str | None = None,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        progress: bool | None = None,
    ) -> Records:
        """Run the cells that are not finished in ``out`` and return all records.

        Progress goes to standard error: on a terminal a line that renews itself, elsewhere (in a notebook) one every
        few seconds; ``progress`` False: nothing. Ctrl-C stops at an episode boundary and raises
        KeyboardInterrupt; calling again goes on from there. Cells that fail do not stop the others and are listed in
        ``failed`` of the records.
        """
        options = Options(workers=workers, scheduler=scheduler, checkpoint_seconds=checkpoint_seconds)
        listener: Any = nullcontext(lambda event: None) if progress is False else Display(sys.stderr, brief=True)
        with listener as listen:
            tally = execute(Folder(out), options, listen, self)
        if tally.stopped:
            raise KeyboardInterrupt(f"stopped; run again to continue: {tally.done + tally.earlier} cells are finished")
        return load(out)

    def write(self, folder: Folder) -> None:
        """Write the experiment into a directory, unless that holds cells which this spec does not have."""
        if folder.exists():
            ours = {cell.id for cell in self.cells}
            if others := [cell for cell in folder.experiment().cells if cell not in ours]:
                got = f"an experiment with {len(others)} cell(s) that the spec {self.path} does not have"
                raise RecordError(folder.path, got=got, expected="a new folder, or a spec that keeps these cells")
        folder.create(self.name, self.data, self.source, list(self.cells))


def execute(
    folder: Folder,
    options: Options,
    listen: Listener,
    experiment: Experiment | None = None,
    imports: Sequence[str] = (),
) -> Tally:
    """Run an experiment's unfinished cells; without ``experiment``, those of the directory (``resume``).

    ``imports`` are, for those of a directory, the modules that its spec lists: see :meth:`Experiment.from_toml`.
    """
    if options.scheduler is not None:
        from occamrl.experiments.dask import require_listening

        require_listening(options.scheduler)
    if experiment is None:
        listed = folder.experiment().spec.get("import")
        names = [str(name) for name in listed] if isinstance(listed, list) else []
        modules = require_imports(folder.path / "spec.toml", names, imports)
    else:
        modules = experiment.modules
        make_folder(folder.path)
        folder.require_unclaimed(experiment.source)
    with _interruptions() as stops, FolderLock(folder.lock_file) as lock:
        if lock.recovered is not None:
            text = f"the lock of {describe_holder(lock.recovered)} was left behind; recovered"
            listen({"event": "warning", "text": text})
        if experiment is not None:
            experiment.write(folder)
        planned = folder.experiment().planned
        todo = folder.unfinished(planned)
        finished = len(planned) - len(todo)
        listen({"event": "plan", "cells": len(planned), "todo": len(todo), "finished": finished})
        if not todo:
            return Tally(done=0, earlier=finished, failed=(), stopped=False)
        executor: LocalPool | DaskExecutor
        if options.scheduler is None:
            executor = LocalPool(folder, lock, options, modules)
        else:
            from occamrl.experiments.dask import DaskExecutor

            executor = DaskExecutor(folder, lock, options, modules)
        stops(executor)
        return _follow(folder, executor, todo, finished, listen)


def _follow(
    folder: Folder, executor: LocalPool | DaskExecutor, todo: list[Cell], finished: int, listen: Listener
) -> Tally:
    """Hand on what happens, write down failures, and stop everything when nothing can be written."""
    cells = {cell.id: cell for cell in todo}
    done, failed = 0, []
    trouble: StorageError | None = None
    with closing(executor.play(todo)) as events:  # no worker outlives the lock
        for event in events:
            cell = cells.get(event.get("cell", ""))
            match event["event"]:
                case "done":
                    done += 1
                case "failed" if cell is not None:
                    try:
                        record_failure(folder, cell, event.get("trace") or event["text"])
                    except StorageError as error:
                        trouble = trouble or error
                        executor.stop()
                    failed.append(cell.id)
                case "storage" if trouble is None:
                    trouble = StorageError(event["path"], OSError(event["errno"], os.strerror(event["errno"])))
                    executor.stop()
            if cell is not None:
                event = {**event, **cell.names, "total": cell.episodes}
            listen(event)
    if trouble is not None:
        raise trouble
    return Tally(done=done, earlier=finished, failed=tuple(failed), stopped=done + len(failed) < len(todo))


@contextmanager
def _interruptions() -> Iterator[Callable[[Any], None]]:
    """Turn Ctrl-C and SIGTERM into a request to stop (in the main thread, the only one that gets signals).

    What is yielded takes the executor, once there is one; a request that came before is passed on to it then.
    """
    executors: list[Any] = []
    requests: list[int] = []

    def request(number: int, _: object) -> None:
        requests.append(number)
        for executor in executors:
            executor.stop()

    def stops(executor: Any) -> None:
        executors.append(executor)
        if requests:
            executor.stop()

    if threading.current_thread() is not threading.main_thread():
        yield stops
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, request) for number in numbers]
    try:
        yield stops
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
