"""Playing one cell: from its checkpoint, in pieces of about a second, to its records. Every executor calls this."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occamrl.contracts import Agent
from occamrl.errors import CheckpointError, Interrupted
from occamrl.runs.cells import Cell
from occamrl.runs.checkpoint import load_checkpoint, save_checkpoint
from occamrl.runs.failures import Stopped
from occamrl.runs.files import canonical, seal, sha256, sweep, write_whole
from occamrl.runs.folder import FORMAT, Folder, finish
from occamrl.runs.loop import run
from occamrl.runs.machine import machine, versions
from occamrl.runs.recording import KEEP_ALL_UNTIL
from occamrl.runs.result import Result
from occamrl.runs.tables import curve_table, jsonable, phases_table, to_parquet

CHECKPOINT_SECONDS = 30.0
_PIECE_SECONDS = 0.5
_FIRST_PIECE = 16
_PROGRESS_SECONDS = 1.0
_LEAST_SHARE = 20.0  # playing takes at least so many times as long as copying curves or writing checkpoints

Say = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Settings:
    """How cells are played; none of this changes a result."""

    checkpoint_seconds: float = CHECKPOINT_SECONDS

    @property
    def piece_seconds(self) -> float:
        """How long a piece may take: between pieces there is time for checkpoints and news."""
        return min(_PIECE_SECONDS, self.checkpoint_seconds / 2.0)


class Stop:
    """A request to stop at the next episode boundary: by a signal, a call, or the answer to a question."""

    def __init__(self, also: Callable[[], bool] = lambda: False) -> None:
        self._event = threading.Event()
        self._also = also

    def request(self, *_: object) -> None:
        """Ask to stop."""
        self._event.set()

    def requested(self) -> bool:
        """Say whether somebody asked."""
        return self._event.is_set() or self._also()

    def on_signals(self) -> None:
        """Stop on SIGINT and SIGTERM. While a piece is played, ``run`` listens to SIGINT itself."""
        signal.signal(signal.SIGINT, self.request)
        signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, *_: object) -> None:
        self.request()
        os.kill(os.getpid(), signal.SIGINT)


def play_cell(folder: Folder, cell: Cell, say: Say, stop: Stop, settings: Settings) -> dict[str, Any]:
    """Play a cell to its end and write its records; return its manifest.

    Raises
    ------
    Stopped
        On request, with a checkpoint written.
    StorageError
        When something cannot be written.
    """
    finished = folder.manifest(cell.id)
    if finished is not None and finished["status"] == "done":  # by a worker that was killed before it could say so
        finish(folder.cell(cell.id))
        return finished
    path = folder.open_cell(cell.id)
    problem, agent = cell.make()
    result = _resume(folder, cell, problem, agent, say)
    clock = _Clock(settings)
    piece, before = _FIRST_PIECE, 0.0 if result is None else result.wall_time
    while (done := result.total_episodes if result is not None else 0) < cell.episodes:
        if stop.requested():
            raise _stopped(cell, result, path)
        began = time.monotonic()
        try:
            result = run(
                agent,
                problem,
                episodes=min(piece, cell.episodes - done),
                seed=cell.seed,
                progress=False,
                keep_all_until=KEEP_ALL_UNTIL,
                continue_from=result,
            )
        except Interrupted as interruption:
            partial: Any = interruption.result
            raise _stopped(cell, partial, path) from None
        spent, played = time.monotonic() - began, result.wall_time - before
        clock.played(result.total_episodes - done, spent)
        if done:  # the first piece may include compilation
            goal = max(settings.piece_seconds, _LEAST_SHARE * (spent - played))
            piece = max(1, int(piece * min(2.0, max(0.5, goal / max(spent, 1e-9)))))
        before = result.wall_time
        _tell(folder, cell, result, say, clock)
        if result.total_episodes < cell.episodes and clock.checkpoint_due():
            save_checkpoint(result, path / "checkpoint.npz", tag=_tag(cell))
            clock.saved()
    assert result is not None  # noqa: S101  # a cell has at least one episode
    return _record(folder, cell, result)


class _Clock:
    """When to say something, when to write a checkpoint, and how fast it goes."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.due = time.monotonic() + settings.checkpoint_seconds
        self.began = 0.0
        self.told = 0.0
        self.episodes = 0
        self.seconds = 0.0
        self.pieces = 0

    def played(self, episodes: int, seconds: float) -> None:
        self.pieces += 1
        if self.pieces == 2:  # forget the one with the compilation
            self.episodes, self.seconds = 0, 0.0
        self.episodes += episodes
        self.seconds += seconds

    @property
    def rate(self) -> float:
        return self.episodes / max(self.seconds, 1e-9)

    def checkpoint_due(self) -> bool:
        self.began = time.monotonic()
        return self.began >= self.due

    def saved(self) -> None:
        now = time.monotonic()
        self.due = now + max(self.settings.checkpoint_seconds, _LEAST_SHARE * (now - self.began))

    def progress_due(self) -> bool:
        due = time.monotonic() - self.told >= _PROGRESS_SECONDS
        if due:
            self.told = time.monotonic()
        return due


def _resume(folder: Folder, cell: Cell, problem: Any, agent: Agent, say: Say) -> Result | None:
    """Return the result up to the checkpoint, if there is one that can be used."""
    path = folder.cell(cell.id) / "checkpoint.npz"
    if not path.exists() and not path.is_symlink():
        return None
    try:
        result = load_checkpoint(agent, problem, path, tag=_tag(cell))
        if result.seed != cell.seed or result.total_episodes > cell.episodes:
            raise CheckpointError(str(path), got="a checkpoint of another run", expected=f"one of cell {cell.id}")
    except (CheckpointError, FileNotFoundError) as error:
        say({"event": "warning", "cell": cell.id, "text": f"{error}; the cell starts anew"})
        path.unlink(missing_ok=True)
        return None
    return result


def _stopped(cell: Cell, result: Result | None, path: Path) -> Stopped:
    (path / "progress.json").unlink(missing_ok=True)
    if result is None:
        return Stopped("stopped before the first episode")
    save_checkpoint(result, path / "checkpoint.npz", tag=_tag(cell))
    return Stopped(f"stopped after episode {result.total_episodes:,}")


def _tag(cell: Cell) -> str:
    """Return what a checkpoint must agree with: this cell, computed by these versions."""
    return canonical({"cell": cell.id, "versions": versions()})


def _tell(folder: Folder, cell: Cell, result: Result, say: Say, clock: _Clock) -> None:
    news = {
        "episodes": result.total_episodes,
        "total": cell.episodes,
        "regret": result.total_regret,
        "rate": clock.rate,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "time": time.time(),
    }
    say({"event": "progress", "cell": cell.id, **news})
    if clock.progress_due():
        write_whole(folder.cell(cell.id) / "progress.json", canonical(jsonable(news)).encode(), durable=False)


def _record(folder: Folder, cell: Cell, result: Result) -> dict[str, Any]:
    """Write the tables, then the manifest, which makes the cell finished; then remove the checkpoint."""
    path = folder.cell(cell.id)
    tables = {"curve.parquet": curve_table(cell, result), "phases.parquet": phases_table(cell, result)}
    files = {}
    for name, table in tables.items():
        content = to_parquet(table)
        write_whole(path / name, content)
        files[name] = sha256(content)
    manifest = {
        **about(cell),
        "status": "done",
        "total_regret": result.total_regret,
        "total_return": result.total_return,
        "plans": result.plans,
        "pessimistic_episodes": result.pessimistic_episodes,
        "wall_time": result.wall_time,
        "files": files,
        "reason": None,
    }
    write_whole(path / "manifest.json", seal(manifest))
    finish(path)
    return manifest


def record_failure(folder: Folder, cell: Cell, reason: str) -> dict[str, Any]:
    """Write down that a cell failed, and why; its checkpoint stays, for another try."""
    manifest = {**about(cell), "status": "failed", "files": {}, "reason": reason[:4000]}
    path = folder.open_cell(cell.id)
    write_whole(path / "manifest.json", seal(manifest))
    (path / "progress.json").unlink(missing_ok=True)
    sweep(path)
    return manifest


def about(cell: Cell) -> dict[str, Any]:
    """Return what a manifest says about a cell whatever became of it."""
    return {
        **cell.content,
        "format": FORMAT,
        "cell": cell.id,
        "seed_address": [[cell.seed, "environment"], [cell.seed, "agent"]],
        "versions": versions(),
        "machine": machine(),
    }
