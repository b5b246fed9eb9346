"""How experiments and results bear kills, damage and full disks.

    python -m studies.robustness kill --count 200       kills an experiment, goes on, compares with
    one nobody killed python -m studies.robustness damage --count 1000    flips bits of files and
    cuts them: each is refused by its name python -m studies.robustness storage                72
    faults of the disk: each is reported, another try succeeds

Each raises at the first promise that is not kept, and prints what was done otherwise. The tests run
the same functions on a smaller scale. Kills need fork.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fnmatch
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import occamrl as orl
from occamrl.errors import InvalidInput, OccamRLError, Stopped, StorageError
from occamrl.experiments import pool
from occamrl.experiments.execution import Experiment, play_cell
from occamrl.experiments.records import Folder, load, verify
from occamrl.running.progress import Progress

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
QUICK = 0.02  # seconds between checkpoints
SAME = (
    "total_regret",
    "total_return",
    "plans",
    "pessimistic_episodes",
    "curve",
    "phases",
    "status",
)


def experiment_in(work: Path, episodes: int) -> Experiment:
    """Return an experiment of four cells."""
    path = work / "robust.toml"
    path.write_text(SPEC.format(episodes=episodes))
    return Experiment.from_toml(path)


def content(folder: Path) -> str:
    """Return what an experiment found, times and machine left out."""
    return json.dumps(
        [[record["cell"], *(record[key] for key in SAME)] for record in load(folder).cells]
    )


def strays(folder: Path) -> list[str]:
    """Return every file that does not belong to a finished experiment."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if path.name not in ("lock",) and path.suffix != ".json"]


# Kills --------------------------------------------------------------------------------------------


def _run(experiment: Experiment, folder: Path, workers: int, pids: Any) -> None:
    """Be a process that plays an experiment, and announces its workers."""

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "begin" and event.get("pid"):
            pids.put(event["pid"])

    os.setpgid(0, 0)
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # until this process ends
    pool.CHECKPOINT_SECONDS = QUICK  # of this process
    experiment.run(folder, workers=workers, progress=False, listen=listen)


def kill(work: Path, count: int, episodes: int = 600, seed: int = 0) -> dict[str, Any]:
    """Kill ``count`` times, at random moments; each folder, once it is finished, equals one that nobody killed.

    Every tenth run has two workers, processes of their own: then a worker is killed, or the parent,
    or all of them.
    """
    experiment, draw = experiment_in(work, episodes), np.random.default_rng(seed)
    fork = multiprocessing.get_context("fork")
    whole, began = work / "whole", time.monotonic()
    experiment.run(whole, workers=1, progress=False)
    pace, reference = time.monotonic() - began, content(whole)
    kills: Counter[str] = Counter()
    folders, runs, bar = 0, 0, Progress("kills", count, None, "kills")
    while kills.total() < count:
        folder, finished = work / f"killed-{folders}", False
        while not finished:
            pids, workers = fork.SimpleQueue(), 2 if runs % 10 == 9 else 1
            process = fork.Process(target=_run, args=(experiment, folder, workers, pids))
            process.start()
            runs += 1
            if kills.total() < count:
                time.sleep(float(draw.uniform(0.0, 1.1 * pace + (1.0 if workers > 1 else 0.0))))
                team = []
                while not pids.empty():
                    team.append(pids.get())
                who = str(draw.choice(("parent", "all", "worker"))) if team else "parent"
                victims = {
                    "parent": [process.pid],
                    "all": [process.pid, *team],
                    "worker": team[-1:],
                }[who]
                for pid in victims if process.is_alive() else ():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid or 0), signal.SIGKILL)
                        kills[who] += 1
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


# Damage -------------------------------------------------------------------------------------------


def sample(work: Path) -> tuple[Path, Path]:
    """Return a folder with finished cells and one that was stopped, and a saved result."""
    experiment, folder = experiment_in(work, 200), work / "sample"
    *finished, last = experiment.cells
    Folder(folder).create(experiment.name, experiment.data, experiment.cells, experiment.code)
    for cell in finished:
        play_cell(str(folder), asdict(cell), QUICK)
    pieces = iter([False] * 3 + [True] * 10)
    cell = finished[0] if last.agent["name"] == "UniformRandom" else last
    for path in folder.glob(f"cells/{cell.id}.*"):
        path.unlink()
    with contextlib.suppress(Stopped):
        play_cell(str(folder), asdict(cell), QUICK, stop=lambda: next(pieces))
    problem, saved = orl.make_problem("river-swim", states=3), work / "result.npz"
    orl.run(orl.PSRL(), problem, episodes=50).save(saved)
    return folder, saved


def damage(work: Path, count: int, seed: int = 0) -> dict[str, Any]:
    """Flip a bit, cut a file or put noise into it, ``count`` times; raise if it goes unnoticed or the file is gone."""
    folder, saved = sample(work)
    draw, cases = np.random.default_rng(seed), Counter[str]()
    paths = [saved, *sorted(path for path in folder.rglob("*") if path.is_file())]
    before, bar = (
        {path: path.read_bytes() for path in paths},
        Progress("damage", count, None, "cases"),
    )
    for number in range(count):
        path, kind = (
            paths[number % len(paths)],
            ("flip", "flip", "flip", "cut", "noise")[number // len(paths) % 5],
        )
        data, at = bytearray(before[path]), int(draw.integers(len(before[path])))
        if kind == "flip":
            data[at] ^= 1 << int(draw.integers(8))
        elif kind == "cut":
            del data[at:]
        else:
            data[at : at + 20] = draw.bytes(20)
        path.write_bytes(data)
        said = _notice(folder, path)
        if path.read_bytes() != bytes(data):
            raise AssertionError(f"{path}: what is damaged was changed or deleted")
        if str(path) not in said:
            raise AssertionError(f"{path} damaged at {at} ({kind}): {said or 'unnoticed'}")
        cases[f"{path.suffix[1:]}, {kind}"] += 1
        path.write_bytes(before[path])
        bar.update(number + 1)
    bar.close()
    if verify(folder):
        raise AssertionError("the folder should be whole again")
    told = "cases, all refused by the file's name, nothing deleted"
    return {told: cases.total(), "by kind": dict(sorted(cases.items()))}


def _notice(folder: Path, path: Path) -> str:
    """Return the message about a damaged file."""
    try:
        if path.parent == folder.parent:
            orl.Result.load(path)
        else:
            return "".join(f"{found.path}: {found.problem}" for found in verify(folder))
    except InvalidInput as error:
        return str(error)
    return ""


# Storage ------------------------------------------------------------------------------------------


class _Full:
    """A file that cannot be written."""

    def __init__(self, file: Any, error: OSError) -> None:
        self.file, self.error = file, error

    def __enter__(self) -> _Full:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, data: Any) -> None:
        """Fail."""
        raise self.error


@contextlib.contextmanager
def fault(point: str, pattern: str, number: int, nth: int) -> Iterator[list[str]]:
    """Fail at a point (open, write, fsync, rename) of the nth file with such a name; yields where that happened."""
    error, seen, hit = OSError(number, os.strerror(number)), 0, list[str]()
    real_open, real_fsync, real_replace, current = Path.open, os.fsync, Path.replace, False

    def is_due(path: Path) -> bool:
        name = (
            path.name.rsplit(".", 2)[0].removeprefix(".")
            if path.suffix == ".partial"
            else path.name
        )
        return fnmatch.fnmatch(name, pattern)

    def opened(path: Path, mode: str = "r", *more: Any, **options: Any) -> Any:
        nonlocal seen, current
        current = False
        if mode[0] in "xw" and is_due(path):
            seen += 1
            current = seen == nth
        if current and point in ("open", "write"):
            hit.append(path.name)
            if point == "open":
                raise error
            return _Full(real_open(path, mode, *more, **options), error)
        return real_open(path, mode, *more, **options)

    def synced(handle: int) -> None:
        nonlocal current
        if current and point == "fsync":
            hit.append("fsync")
            current = False
            raise error
        real_fsync(handle)

    def replaced(path: Path, target: Path) -> Any:
        if current and point == "rename" and is_due(path):
            hit.append(path.name)
            raise error
        return real_replace(path, target)

    changes: list[tuple[Any, str, Any]] = [
        (Path, "open", opened),
        (os, "fsync", synced),
        (Path, "replace", replaced),
    ]
    for place, name, function in changes:
        setattr(place, name, function)
    try:
        yield hit
    finally:
        for (place, name, _), real in zip(
            changes, (real_open, real_fsync, real_replace), strict=True
        ):
            setattr(place, name, real)


def storage(work: Path, count: int = 72) -> dict[str, Any]:
    """Fail at every point of every write with three errors; each is reported, and another try succeeds."""
    experiment, problem = experiment_in(work, 200), orl.make_problem("river-swim", states=3)
    result, whole, cases = orl.run(orl.PSRL(), problem, episodes=50), work / "whole", 0
    experiment.run(whole, workers=1, progress=False)
    reference, bar = content(whole), Progress("storage", count, None, "faults")
    cell = next(cell for cell in experiment.cells if cell.agent["name"] == "PSRL")
    files = [
        ("experiment.json", 1),
        ("*.npz", 1),
        ("*.npz", 2),
        (f"{cell.id}.json", 1),
        ("saved", 1),
    ]
    for pattern, nth in files:
        for point in ("open", "write", "fsync", "rename"):
            for number in (errno.ENOSPC, errno.EACCES, errno.EROFS):
                if cases == count:
                    break
                folder, saved = work / f"storage-{cases}", work / f"result-{cases}" / "saved"
                saved.parent.mkdir()

                def attempt(folder: Path = folder, saved: Path = saved) -> None:
                    result.save(saved)
                    place, stops = Folder(folder), iter([False] * 3 + [True])
                    place.create(
                        experiment.name, experiment.data, experiment.cells, experiment.code
                    )
                    for _ in range(2):  # twice stopped, which writes a checkpoint each time
                        with contextlib.suppress(Stopped):
                            play_cell(
                                str(folder),
                                asdict(cell),
                                1e9,
                                stop=lambda stops=stops: next(stops, False),  # type: ignore[misc]
                            )
                        stops = iter([False] * 3 + [True])
                    experiment.run(folder, workers=1, progress=False)

                try:
                    with fault(point, pattern, number, nth) as hit:
                        attempt()
                    raise AssertionError(f"{point} {pattern}: nobody noticed, {hit}")
                except StorageError as error:
                    if error.errno != number or not str(error):
                        raise AssertionError(f"{point} {pattern}: {error}") from error
                if list(folder.rglob("*.partial")):
                    raise AssertionError(f"{point} {pattern}: a temporary file is left")
                attempt()
                if content(folder) != reference or strays(folder):
                    raise AssertionError(
                        f"{folder}: {point} {pattern} {number} left something behind"
                    )
                cases += 1
                bar.update(cases)
    bar.close()
    return {"faults, all reported, and gone with another try": cases}


def main() -> int:
    """Run one study and print what was done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=("kill", "damage", "storage"))
    parser.add_argument("--count", type=int, help="kills, cases or faults")
    given = parser.parse_args()
    study, usual = {"kill": (kill, 200), "damage": (damage, 1_000), "storage": (storage, 72)}[
        given.study
    ]
    with tempfile.TemporaryDirectory(prefix="occamrl-") as work:
        try:
            facts = study(Path(work), given.count or usual)  # type: ignore[operator]
        except (AssertionError, OccamRLError) as error:
            print(f"not kept: {error}")
            return 1
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
