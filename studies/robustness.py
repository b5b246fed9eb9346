"""How experiments and results bear kills, damage and full disks.

    python -m studies.robustness kill --count 200      kills an experiment, goes on, and compares
    python -m studies.robustness damage --count 1000   flips bits of files and cuts them
    python -m studies.robustness storage               60 faults of the disk
    python -m studies.robustness interrupt             presses Ctrl-C at random moments
    python -m studies.robustness calls --count 6000    random calls, see studies/calls.py

A folder that was killed equals one that nobody killed, damaged files are refused by their names,
and every fault of the disk is reported and gone with another try. Each study raises at the first
promise that is not kept, and prints what was done otherwise. The tests run the same functions on a
smaller scale. Kills need fork.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fnmatch
import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from multiprocessing.context import ForkProcess
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import occamrl as orl
from occamrl.errors import InvalidInput, OccamRLError, Stopped, StorageError
from occamrl.experiments import checkpoints
from occamrl.experiments.execution import Experiment, machine, play_cell
from occamrl.experiments.records import Cell, Folder, load, verify
from occamrl.files import PARTIAL
from occamrl.progress import Progress
from studies.calls import calls

SPEC = """
name = "robust"
episodes = {episodes}
seeds = 2
thinning = 100
[[problem]]
name = "RiverSwim"
parameters = {{ states = 3 }}
[[agent]]
name = "PSRL"
parameters = {{ replan = 0.0 }}
[[agent]]
name = "UniformRandom"
"""
STARTED = 0.15  # seconds until Python runs the command's first lines, on a machine that is not busy
LOADED = 2.0  # and in which it has begun to play
QUICK = 0.02  # seconds between checkpoints
SAME = (  # what a record must have in common with that of an experiment that nobody killed
    "cell",
    "total_regret",
    "total_return",
    "plans",
    "pessimistic_episodes",
    "curve",
    "phases",
    "status",
)
Facts = dict[str, Any]  # what a study prints


def experiment_in(work: Path, episodes: int) -> Experiment:
    """Return an experiment of four cells."""
    path = work / "robust.toml"
    path.write_text(SPEC.format(episodes=episodes))
    return Experiment.from_toml(path)


def content(folder: Path) -> str:
    """Return what an experiment found, times and machine left out."""
    kept = []
    for record in load(folder).cells:
        kept.append({key: value for key, value in record.items() if key in SAME})
    return json.dumps(kept)


def strays(folder: Path) -> list[str]:
    """Return every file that does not belong to a finished experiment."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    locks = ("lock", ".lock")
    return [str(path) for path in files if path.name not in locks and path.suffix != ".json"]


# Kills -------------------------------------------------------------------------------------------


def _run(experiment: Experiment, folder: Path, workers: int, pids: SimpleQueue[int]) -> None:
    """Be a process that plays an experiment, and announces its workers."""

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "begin" and "pid" in event:
            pids.put(event["pid"])

    os.setpgid(0, 0)
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # until this process ends
    checkpoints.CHECKPOINT_SECONDS = QUICK  # of this process
    experiment.run(folder, workers=workers, progress=False, listen=listen)


def _kill_some(
    process: ForkProcess, team: list[int], draw: np.random.Generator, kills: Counter[str]
) -> None:
    """Kill a process, or some of its workers, if there are any, and count it."""
    kind = "parent"
    if team:
        kind = str(draw.choice(("parent", "all", "worker")))
    if process.pid is None or not process.is_alive():
        return
    victims = {"parent": [process.pid], "all": [process.pid, *team], "worker": team[-1:]}[kind]
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            kills[kind] += 1


def kill(work: Path, count: int, episodes: int = 600, seed: int = 0) -> Facts:
    """Kill ``count`` times, at random moments; each folder, in the end, is as without kills.

    Every tenth run has two workers, processes of their own: then a worker is killed, or the parent,
    or all of them.
    """
    experiment = experiment_in(work, episodes)
    draw = np.random.default_rng(seed)
    fork = multiprocessing.get_context("fork")
    whole = work / "whole"
    began = time.monotonic()
    experiment.run(whole, workers=1, progress=False)
    longest = 1.1 * (time.monotonic() - began)
    reference = content(whole)
    kills = Counter[str]()
    folders = 0
    runs = 0
    bar = Progress("kills", count, None, "kills")
    while kills.total() < count:
        folder = work / f"killed-{folders}"
        finished = False
        while not finished:
            runs += 1
            workers = 1
            if runs % 10 == 0:
                workers = 2
            pids: SimpleQueue[int] = fork.SimpleQueue()
            process = fork.Process(target=_run, args=(experiment, folder, workers, pids))
            process.start()
            if kills.total() < count:
                # Workers take about a second to begin.
                time.sleep(float(draw.uniform(0.0, longest + workers - 1)))
                team = []
                while not pids.empty():
                    team.append(pids.get())
                _kill_some(process, team, draw, kills)
            process.join()
            finished = process.exitcode == 0
            bar.update(min(kills.total(), count))
        folders += 1
        if content(folder) != reference or strays(folder) or verify(folder):
            raise AssertionError(f"{folder} differs after kills, or has strays: {strays(folder)}")
    bar.close()
    return {
        "kills": kills.total(),
        "by kind": dict(kills),
        "runs": runs,
        "folders, all as without kills": folders,
    }


# Damage ------------------------------------------------------------------------------------------


def stop_after(blocks: int) -> Callable[[], bool]:
    """Return a question that is answered with yes from the nth time on, once."""
    answers = iter([False] * blocks + [True])
    return lambda: next(answers, False)


def sample(work: Path) -> tuple[Path, Path]:
    """Return a folder with finished cells and one that was stopped, and a saved result."""
    experiment = experiment_in(work, 200)
    folder = work / "sample"
    Folder(folder).create(
        experiment.name, experiment.data, experiment.cells, experiment.code, machine()
    )
    stopped = next(cell for cell in experiment.cells if cell.agent["name"] == "PSRL")
    for cell in experiment.cells:
        if cell is not stopped:
            play_cell(str(folder), asdict(cell), QUICK)
    with contextlib.suppress(Stopped):
        play_cell(str(folder), asdict(stopped), QUICK, stop=stop_after(3))
    saved = work / "result.npz"
    orl.run(orl.PSRL(), orl.make_problem("river-swim", states=3), episodes=50).save(saved)
    return folder, saved


def damaged(content: bytes, kind: str, draw: np.random.Generator) -> bytes:
    """Return a content with a bit flipped, an end missing, or noise in it."""
    data = bytearray(content)
    index = int(draw.integers(len(data)))
    if kind == "flip":
        data[index] ^= 1 << int(draw.integers(8))
    elif kind == "cut":
        del data[index:]
    else:
        data[index : index + 20] = draw.bytes(20)
    return bytes(data)


def damage(work: Path, count: int, seed: int = 0) -> Facts:
    """Damage files ``count`` times; raise if it goes unnoticed, or if the file is gone."""
    folder, saved = sample(work)
    draw = np.random.default_rng(seed)
    cases = Counter[str]()
    paths = [saved, *sorted(path for path in folder.rglob("*") if path.is_file())]
    paths = [path for path in paths if path.name != ".lock"]  # which is empty
    before = {path: path.read_bytes() for path in paths}
    bar = Progress("damage", count, None, "cases")
    kinds = ("flip", "flip", "flip", "cut", "noise")
    for number in range(count):
        path = paths[number % len(paths)]
        kind = kinds[number // len(paths) % len(kinds)]
        data = damaged(before[path], kind, draw)
        path.write_bytes(data)
        message = _notice(folder, path)
        if path.read_bytes() != data:
            raise AssertionError(f"{path}: what is damaged was changed or deleted")
        if str(path) not in message:
            raise AssertionError(f"{path} damaged ({kind}): {message or 'unnoticed'}")
        cases[f"{path.suffix[1:]}, {kind}"] += 1
        path.write_bytes(before[path])
        bar.update(number + 1)
    bar.close()
    if verify(folder):
        raise AssertionError("the folder should be whole again")
    by_kind = dict(sorted(cases.items()))
    return {
        "cases, all refused by the file's name, nothing deleted": cases.total(),
        "by kind": by_kind,
    }


def _notice(folder: Path, path: Path) -> str:
    """Return the message about a damaged file."""
    try:
        if path.parent == folder.parent:
            orl.Result.load(path)
        else:
            return "".join(f"{damage.path}: {damage.problem}" for damage in verify(folder))
    except InvalidInput as error:
        return str(error)
    return ""


# Storage -----------------------------------------------------------------------------------------


@dataclass
class Fault:
    """A disk that fails once: at a point of writing the nth file with such a name."""

    point: str  # open, write, fsync or rename
    pattern: str
    nth: int
    error: OSError
    hits: list[str] = field(default_factory=list)  # where it happened
    _seen: int = 0
    _writing: bool = False  # whether the file that is open is the one

    def _is_due(self, path: object) -> bool:
        name = str(path)
        if name.endswith(PARTIAL):  # .name.12-ab.partial is to become name
            name = name.rsplit(".", 2)[0].removeprefix(".")
        return fnmatch.fnmatch(name, self.pattern)

    def _fail(self, place: str) -> None:
        self.hits.append(place)
        self._writing = False
        raise self.error

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Take the place of the functions that write, in a block of code."""
        real_open = os.open
        real_fsync = os.fsync
        real_replace = os.replace

        def open_file(path: Any, flags: int, *options: Any, **named: Any) -> int:
            if flags & os.O_EXCL and str(path).endswith(PARTIAL):
                self._seen += self._is_due(path)
                self._writing = self._is_due(path) and self._seen == self.nth
            if self._writing and self.point == "open":
                self._fail(str(path))
            handle = real_open(path, flags, *options, **named)
            if self._writing and self.point == "write":
                os.close(handle)
                self._fail(str(path))
            return handle

        def fsync(handle: int) -> None:
            if self._writing and self.point == "fsync":
                self._fail("fsync")
            real_fsync(handle)

        def replace(path: Any, target: Any, **named: Any) -> None:
            if self._writing and self.point == "rename" and self._is_due(path):
                self._fail(str(path))
            real_replace(path, target, **named)

        with (
            mock.patch.object(os, "open", open_file),
            mock.patch.object(os, "fsync", fsync),
            mock.patch.object(os, "replace", replace),
        ):
            yield


def write_everything(
    experiment: Experiment, cell: Cell, result: orl.Result, folder: Path, saved: Path
) -> None:
    """Write a result, and an experiment with a cell that is stopped twice, after checkpoints."""
    result.save(saved)
    stored = Folder(folder)
    stored.create(experiment.name, experiment.data, experiment.cells, experiment.code, machine())
    for _ in range(2):
        with contextlib.suppress(Stopped):
            play_cell(str(folder), asdict(cell), 1e9, stop=stop_after(3))
    experiment.run(folder, workers=1, progress=False)


def storage(work: Path, count: int = 60) -> Facts:
    """Fail at every point of every write with three errors; each is reported, then gone."""
    experiment = experiment_in(work, 200)
    result = orl.run(orl.PSRL(), orl.make_problem("river-swim", states=3), episodes=50)
    whole = work / "whole"
    experiment.run(whole, workers=1, progress=False)
    reference = content(whole)
    cell = next(cell for cell in experiment.cells if cell.agent["name"] == "PSRL")
    record = f"{cell.id}.json"
    files = [("experiment.json", 1), ("*.npz", 1), ("*.npz", 2), (record, 1), ("saved", 1)]
    points = ("open", "write", "fsync", "rename")
    errors = (errno.ENOSPC, errno.EACCES, errno.EROFS)
    faults = list(itertools.product(files, points, errors))[:count]
    bar = Progress("storage", len(faults), None, "faults")
    for number, ((pattern, nth), point, code) in enumerate(faults):
        folder = work / f"storage-{number}"
        saved = work / f"result-{number}" / "saved"
        saved.parent.mkdir()
        fault = Fault(point, pattern, nth, OSError(code, os.strerror(code)))
        try:
            with fault.in_force():
                write_everything(experiment, cell, result, folder, saved)
            raise AssertionError(f"{point} {pattern}: nobody noticed, {fault.hits}")
        except StorageError as error:
            if error.errno != code or not str(error):
                raise AssertionError(f"{point} {pattern}: {error}") from error
        if list(folder.rglob("*.partial")):
            raise AssertionError(f"{point} {pattern}: a temporary file is left")
        write_everything(experiment, cell, result, folder, saved)
        if content(folder) != reference or strays(folder):
            raise AssertionError(f"{folder}: {point} {pattern} {code} left something behind")
        bar.update(number + 1)
    bar.close()
    return {"faults, all reported, and gone with another try": len(faults)}


# Ctrl-C ------------------------------------------------------------------------------------------


def interrupt(work: Path, count: int, seed: int = 0) -> Facts:
    """Press Ctrl-C at random moments of a command; it ends with code 130 and one line."""
    draw = np.random.default_rng(seed)
    # Shells let what they start in the background ignore Ctrl-C, and children take that over.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    experiment_in(work, 4_000_000)
    command = [sys.executable, "-m", "occamrl", "run", str(work / "robust.toml"), "--workers", "1"]
    codes = Counter[int]()
    bar = Progress("interrupt", count, None, "times")
    for number in range(count):
        folder = work / f"interrupted-{number}"
        process = subprocess.Popen(  # noqa: S603  # this package's own command
            [*command, "--folder", str(folder)], stderr=subprocess.PIPE, text=True
        )
        # Before it can listen Python itself answers, in its own words.
        time.sleep(STARTED + draw.random() * LOADED)
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
        codes[process.returncode] += 1
        if process.returncode != 130 or "Traceback" in said:
            raise AssertionError(f"code {process.returncode}: {said}")
        bar.update(number + 1)
    bar.close()
    return {"interrupts": count, "codes": dict(codes)}


def main() -> int:
    """Run one study and print what was done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=("kill", "damage", "storage", "interrupt", "calls"))
    parser.add_argument("--count", type=int, help="kills, cases or faults")
    options = parser.parse_args()
    studies: dict[str, tuple[Callable[[Path, int], Facts], int]] = {
        "kill": (kill, 200),
        "damage": (damage, 1_000),
        "storage": (storage, 60),
        "interrupt": (interrupt, 100),
        "calls": (calls, 6_000),
    }
    study, usual = studies[options.study]
    with tempfile.TemporaryDirectory(prefix="occamrl-") as work:
        try:
            facts = study(Path(work), options.count or usual)
        except (AssertionError, OccamRLError) as error:
            print(f"not kept: {error}")
            return 1
    for name, value in facts.items():
        print(f"{name}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
