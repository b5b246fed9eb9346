"""A worker process: takes cells from standard input, one JSON line each, and answers on standard output.

``python -m occamrl.experiments.worker DIR SETTINGS`` is started by :mod:`occamrl.experiments.execution` with one thread of linear
algebra. When its input ends, by intent or because its parent is gone, it stops at an episode boundary.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import traceback
from typing import Any, TextIO

from occamrl.errors import RecordError, Stopped, StorageError
from occamrl.experiments.execution import Settings, Stop, play_cell
from occamrl.experiments.records import Folder
from occamrl.experiments.spec import Cell

Queue = queue.SimpleQueue[str | None]


def main(arguments: list[str]) -> int:
    """Work until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anybody prints is not an answer
    folder, settings = Folder(arguments[0]), Settings(**json.loads(arguments[1]))
    stop = Stop()
    stop.on_signals()
    lines: Queue = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin, lines, stop), daemon=True).start()

    def say(news: dict[str, Any]) -> None:
        try:
            answers.write(json.dumps(news) + "\n")
            answers.flush()
        except (BrokenPipeError, ValueError):  # nobody listens any more
            stop.request()

    while not stop.requested():
        line = _next(lines, stop)
        if line is None:
            break
        say(answer(folder, Cell.of(json.loads(line)), say, stop, settings))
    return 0


def answer(folder: Folder, cell: Cell, say: Any, stop: Stop, settings: Settings) -> dict[str, Any]:
    """Play a cell; return what became of it."""
    try:
        manifest = play_cell(folder, cell, say, stop, settings)
    except Stopped as stopped:
        return {"event": "stopped", "cell": cell.id, "text": str(stopped)}
    except StorageError as error:
        _not_running(folder, cell)
        return {"event": "storage", "cell": cell.id, "path": error.path, "errno": error.errno, "text": str(error)}
    except Exception as error:  # a cell that fails, for whatever reason, must not take the worker along
        _not_running(folder, cell)
        lines = traceback.format_exception(error)
        return {"event": "failed", "cell": cell.id, "text": f"{type(error).__name__}: {error}", "trace": "".join(lines)}
    keys = ("total_regret", "wall_time", "episodes")
    return {"event": "done", "cell": cell.id, **{key: manifest[key] for key in keys}}


def _not_running(folder: Folder, cell: Cell) -> None:
    with contextlib.suppress(OSError, RecordError):
        (folder.cell(cell.id) / "progress.json").unlink(missing_ok=True)


def _read(source: TextIO, lines: Queue, stop: Stop) -> None:
    """Hand lines on; when they end, stop the cell in play as Ctrl-C would."""
    for line in source:
        lines.put(line)
    stop.request()
    lines.put(None)
    signal.raise_signal(signal.SIGINT)


def _next(lines: Queue, stop: Stop) -> str | None:
    """Wait for a line, awake to signals."""
    while not stop.requested():
        try:
            return lines.get(timeout=0.5)
        except queue.Empty:
            continue
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
