"""An experiment from its spec to its records: plan the cells, play those that are not finished, in any order."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occamrl.errors import ParameterError, require_number
from occamrl.runs.cells import Cell, expand
from occamrl.runs.display import quiet
from occamrl.runs.executors import SILENCE_SECONDS, Event, Executor, LocalPool
from occamrl.runs.failures import RecordError, StorageError
from occamrl.runs.files import make_folder
from occamrl.runs.folder import Folder
from occamrl.runs.locks import FolderLock, describe
from occamrl.runs.player import CHECKPOINT_SECONDS, Settings, record_failure
from occamrl.runs.records import Records, load
from occamrl.runs.spec import Spec, parse, read_source

Listener = Callable[[Event], None]


def _silent(event: Event) -> None:
    """Show nothing."""


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
    whose workers see the same folder.
    """

    workers: int | None = None
    scheduler: str | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    silence_seconds: float = SILENCE_SECONDS

    def __post_init__(self) -> None:
        if self.workers is not None and (type(self.workers) is not int or self.workers < 1):
            raise ParameterError("workers", got=self.workers, expected="a whole number >= 1")
        for name in ("checkpoint_seconds", "silence_seconds"):
            require_number(name, getattr(self, name), 0.0, math.inf, open_low=True)

    @property
    def pool_size(self) -> int:
        """The number of worker processes."""
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.workers or available


@dataclass(frozen=True, eq=False)
class Experiment:
    """A checked spec and its cells.

    Examples
    --------
    >>> experiment = Experiment.from_toml("ayoub-riverswim")
    >>> len(experiment.cells)
    90
    """

    path: str
    source: bytes
    data: dict[str, Any]
    spec: Spec
    cells: tuple[Cell, ...]

    @classmethod
    def from_toml(cls, spec: str | Path) -> Experiment:
        """Return the experiment of a TOML file, or of a shipped spec called by its name.

        Raises
        ------
        SpecError
            With everything that is wrong with it.
        """
        path, source = read_source(spec)
        data, checked = parse(source, path)
        return cls(path, source, data, checked, tuple(expand(checked, path)))

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
        on_event: Listener = lambda event: None,
    ) -> Records:
        """Run the cells that are not finished in ``out`` and return all records.

        Progress goes to standard error: a live table on a terminal, elsewhere (in a notebook) a line about all cells
        every few seconds; ``progress`` False: nothing. Ctrl-C stops at an episode boundary and raises
        KeyboardInterrupt; calling again goes on from there. Cells that fail do not stop the others and are listed in
        ``failed`` of the records.
        """
        options = Options(workers=workers, scheduler=scheduler, checkpoint_seconds=checkpoint_seconds)
        with nullcontext(_silent) if progress is False else quiet() as display:

            def listen(event: Event) -> None:
                display(event)
                on_event(event)

            tally = execute(Folder(out), options, listen, self)
        if tally.stopped:
            raise KeyboardInterrupt(f"stopped; run again to go on: {tally.done + tally.earlier} cells are finished")
        return load(out)

    def settle(self, folder: Folder) -> None:
        """Write the experiment into a folder, unless that holds cells which this spec does not have."""
        if folder.exists():
            ours = {cell.id for cell in self.cells}
            others = [cell for cell in folder.experiment()["cells"] if cell not in ours]
            if others:
                got = f"an experiment with {len(others)} cell(s) that the spec {self.path} does not have"
                raise RecordError(folder.path, got=got, expected="a new folder, or a spec that keeps these cells")
        folder.create(self.name, self.data, self.source, list(self.cells))


def execute(folder: Folder, options: Options, listen: Listener, experiment: Experiment | None = None) -> Tally:
    """Run an experiment's unfinished cells; without ``experiment``, those of the folder (``resume``)."""
    if experiment is None:
        folder.experiment()
    else:
        make_folder(folder.path)
        folder.require_unclaimed(experiment.source)
    with FolderLock(folder.lock_file) as lock:
        if lock.recovered is not None:
            listen({"event": "warning", "text": f"the lock of {describe(lock.recovered)} was left behind; recovered"})
        folder.clean()
        if experiment is not None:
            experiment.settle(folder)
        todo, finished = _sort(folder)
        listen({"event": "plan", "cells": len(todo) + finished, "todo": len(todo), "finished": finished})
        if not todo:
            return Tally(done=0, earlier=finished, failed=(), stopped=False)
        executor = _executor(folder, options, lock)
        with _interruptions(executor):
            return _follow(folder, executor, todo, finished, listen)


def _sort(folder: Folder) -> tuple[list[Cell], int]:
    """Return the cells to play, and how many are finished. Cells that failed are tried again."""
    todo = []
    planned = folder.planned()
    for cell in planned:
        try:
            manifest = folder.manifest(cell.id)
        except RecordError as error:
            raise error.with_advice() from error
        if manifest is None or manifest["status"] != "done":
            if manifest is not None:
                try:
                    (folder.cell(cell.id) / "manifest.json").unlink()
                except OSError as error:
                    raise StorageError(folder.cell(cell.id), error) from error
            todo.append(cell)
    return todo, len(planned) - len(todo)


def _executor(folder: Folder, options: Options, lock: FolderLock) -> Executor:
    settings = Settings(checkpoint_seconds=options.checkpoint_seconds)
    if options.scheduler is not None:
        from occamrl.runs.dask_executor import DaskExecutor

        return DaskExecutor(folder, options.scheduler, settings, lock)
    return LocalPool(folder, options.pool_size, settings, lock.handle, options.silence_seconds)


def _follow(folder: Folder, executor: Executor, todo: list[Cell], finished: int, listen: Listener) -> Tally:
    """Hand on what happens, write down failures, and stop everything when nothing can be written."""
    cells = {cell.id: cell for cell in todo}
    done, failed, trouble = 0, [], None
    for event in executor.play(todo):
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
            case "storage":
                if trouble is None:
                    trouble = StorageError(event["path"], OSError(event["errno"], os.strerror(event["errno"])))
                    executor.stop()
        listen(event if cell is None else {**event, **named(cell)})
    if trouble is not None:
        raise trouble
    return Tally(done=done, earlier=finished, failed=tuple(failed), stopped=done + len(failed) < len(todo))


def named(cell: Cell) -> dict[str, Any]:
    """Return what an event says about its cell."""
    return {"problem": cell.problem["label"], "agent": cell.agent["label"], "seed": cell.seed, "total": cell.episodes}


@contextmanager
def _interruptions(executor: Executor) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into a request to stop (in the main thread, the only one that gets signals)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(*_: object) -> None:
        executor.stop()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
