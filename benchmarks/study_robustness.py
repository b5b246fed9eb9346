"""How experiments bear kills, damage, full disks and many cells: the full studies, with figures.

python benchmarks/study_robustness.py kills --count 200
python benchmarks/study_robustness.py damage --count 1000
python benchmarks/study_robustness.py storage
python benchmarks/study_robustness.py many --cells 1000
python benchmarks/study_robustness.py read --cells 10000

The test-suite runs the same functions on a smaller scale.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.faults import sitecustomize as faults
from occamrl import cli
from occamrl.errors import InvalidInput, Stopped, StorageError
from occamrl.experiments import execution
from occamrl.experiments.execution import Experiment, play_cell, record
from occamrl.experiments.records import Cell, Folder, check_cell, load, verify
from occamrl.running.files import PARTIAL
from occamrl.running.result import Result
from occamrl.running.run import run
from occamrl.seeding import stream

SPEC = """
name = "robust"
episodes = {episodes}
seeds = {seeds}
thinning = 100
[[problem]]
name = "RiverSwim"
parameters = {{ states = 3 }}
[[agent]]
name = "UniformRandom"
[[agent]]
name = "Optimal"
"""
COMMAND = [sys.executable, "-P", "-m", "occamrl"]
QUICK = 0.02  # seconds between checkpoints
CHECKPOINTS = "cells/*/checkpoint.npz"


def write_spec(folder: Path, *, episodes: int, seeds: int) -> Path:
    """Write a spec of 2 x seeds cells."""
    path = folder / "robust.toml"
    path.write_text(SPEC.format(episodes=episodes, seeds=seeds))
    return path


def tables(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every table, and the totals of every manifest."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob("cells/*/*.parquet"))}
    keys = ("total_regret", "total_return", "plans", "pessimistic_episodes", "files")
    for manifest in load(folder).cells:
        found[manifest["cell"]] = json.dumps([manifest[key] for key in keys], sort_keys=True).encode()
    return found


def strays(folder: Path) -> list[str]:
    """Return every file that does not belong to a finished experiment."""
    wanted = {"experiment.json", "spec.toml", "manifest.json", "curve.parquet", "phases.parquet"}
    return [str(path) for path in folder.rglob("*") if path.is_file() and path.name not in wanted]


# ------------------------------------------------------------------------------------------------------------- kills
class Killer:
    """Starts runs and kills them or their workers until a number of kills is reached.

    Nine runs in ten, and their workers, are forks of this process where Python would be started anew: importing takes
    longer than the cells do, and nothing is written meanwhile, so that most kills would miss the writes.
    """

    def __init__(self, spec: Path, work: Path, seed: int, workers: int) -> None:
        self.spec, self.work, self.draw, self.workers = spec, work, stream(seed, "kills"), workers
        self.kills: Counter[str] = Counter()
        self.runs = self.folders = 0
        self.pace = 0.0  # seconds that a whole run takes

    def study(self, count: int) -> None:
        """Kill ``count`` times; compare every folder, once it is finished, with cells that nobody killed."""
        reference = tables(_whole(self.work, Experiment.from_toml(self.spec)))  # forks find everything compiled
        whole = self.work / "by workers"
        if not self.attempt(whole, more=False) or tables(whole) != reference:
            raise AssertionError("a run that nobody killed differs, or did not finish")
        while self.kills.total() < count:
            folder = self.work / f"killed-{self.folders}"
            self.folders += 1
            finished = False
            while not finished:
                finished = self.attempt(folder, more=self.kills.total() < count)
            left = strays(folder)
            if left or tables(folder) != reference or Folder(folder).quarantine.exists():
                raise AssertionError(f"{folder} differs after kills, or has strays: {left}")
            sys.stderr.write(f"{self.folders} folders identical after {self.kills.total()} kills {dict(self.kills)}\n")

    def attempt(self, folder: Path, *, more: bool, mode: str = "", patient: bool = False) -> bool:
        """Run once, with a kill somewhere if ``more`` are wanted; return whether the experiment finished.

        ``patient``: each kill waits for a new checkpoint; the parent of a worker that dies of a fault is killed, too.
        """
        environment = {**os.environ}
        fork = self.runs % 10 < 9 and not patient
        if more and not mode:
            mode = str(self.draw.choice(("fault", "parent", "all", "worker")))
        once = self.work / f"once-{self.runs}"
        if mode == "fault":
            point, name = (str(self.draw.choice(each)) for each in (faults.POINTS, ("*.npz", "*.parquet", "*.json")))
            where = "rename *.npz kill 2" if patient else f"{point} {name} kill {self.draw.integers(1, 7)}"
            environment |= faults.environment(f"{where} {once}")
        self.runs += 1
        arguments = ["run", str(self.spec), "--out", str(folder), "--workers", str(self.workers)]
        arguments += ["--checkpoint-every", str(QUICK), "--json"]
        began = time.monotonic()
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(  # noqa: S603  # our own command line
                [*COMMAND, *arguments],
                stdout=output,
                stderr=subprocess.DEVNULL,
                env=environment,
                preexec_fn=_become(_command, arguments, environment) if fork else None,  # this process has no threads
            )
            if patient:
                self._kill_at_work(process, output, mode, folder, once)
            elif mode in ("parent", "all", "worker"):
                self._kill_later(process, output, mode)
            code = process.wait()
        if mode == "" and (fork or not self.pace):
            self.pace = time.monotonic() - began
        if once.exists():
            self.kills["fault"] += 1
        return code == 0

    def _kill_later(self, process: subprocess.Popen[bytes], output: Any, mode: str) -> None:
        deadline = time.monotonic() + self.draw.uniform(0.0, 1.2 * self.pace)
        workers: list[int] = []
        while time.monotonic() < deadline or (mode == "worker" and not workers):
            if process.poll() is not None:
                return
            time.sleep(0.02)
            workers = _workers(output)
        self._kill(process, workers, mode)

    def _kill_at_work(self, process: subprocess.Popen[bytes], output: Any, mode: str, folder: Path, once: Path) -> None:
        began = time.time()
        while process.poll() is None:
            workers, new = _workers(output), [path for path in folder.glob(CHECKPOINTS) if _written(path) > began]
            if workers and new and (mode != "fault" or once.exists()):
                self._kill(process, workers, "parent" if mode == "fault" else mode)
                return
            time.sleep(0.005)

    def _kill(self, process: subprocess.Popen[bytes], workers: list[int], mode: str) -> None:
        victims = {"parent": [process.pid], "all": [process.pid, *workers], "worker": workers[-1:]}[mode]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
                self.kills[mode] += 1
            except ProcessLookupError:
                pass


def _become(
    play: Callable[[], None], arguments: Sequence[str], environment: dict[str, str], kept: Sequence[int] = ()
) -> Callable[[], None]:
    """Return what a fork does instead of starting Python: ``play``, with these arguments, variables and open files."""

    def become() -> None:
        try:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for handle in {int(each.name) for each in Path("/proc/self/fd").iterdir()} - {0, 1, 2, nowhere, *kept}:
                os.dup2(nowhere, handle, inheritable=False)  # closed, and its number not taken: objects here hold it
            os.environ.clear()
            os.environ.update(environment)
            faults.obey()
            sys.stdin = os.fdopen(0, closefd=False)
            sys.stdout, sys.stderr = (os.fdopen(each, "w", closefd=False) for each in (1, 2))
            sys.argv = ["occamrl", *arguments]
            play()
        except SystemExit as end:
            os._exit(int(end.code or 0))
        os._exit(0)

    return become


def _command() -> None:
    """Be the command line, whose workers are forks as well."""

    def start(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        handles = options["pass_fds"] = [os.dup(each) for each in options["pass_fds"]]  # a fork loses filelock's own
        become = _become(execution.work, command[4:], options["env"], handles)
        process = subprocess.Popen(command, preexec_fn=become, **options)  # noqa: S603  # our own command
        for each in handles:
            os.close(each)
        return process

    setattr(execution, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": start}))  # noqa: B010
    cli.main()


def _written(path: Path) -> float:
    """Return when a file was written; 0 if it is gone."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _workers(output: Any) -> list[int]:
    """Return the ids of the worker processes that a run has announced."""
    text = os.pread(output.fileno(), 10**7, 0).decode(errors="replace")
    pids = []
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("event") == "begin":
            pids.append(int(event["pid"]))
    return list(dict.fromkeys(pids))


def few_kills(work: Path) -> dict[str, int]:
    """Kill one run in every way, each time in the middle of a cell; raise if its folder differs in the end."""
    spec, folder = write_spec(work, episodes=500_000, seeds=1), work / "killed"
    reference = tables(_whole(work, Experiment.from_toml(spec)))
    killer = Killer(spec, work, 0, workers=1)
    for mode in ("fault", "all", "worker"):
        if killer.attempt(folder, more=True, mode=mode, patient=True) != (mode == "worker"):
            raise AssertionError(f"{mode}: the run ended as it should not")
    if strays(folder) or tables(folder) != reference or Folder(folder).quarantine.exists():
        raise AssertionError(f"{folder} differs after kills, or has strays: {strays(folder)}")
    return dict(killer.kills)


def _whole(work: Path, experiment: Experiment) -> Path:
    """Play all cells in this process; return the folder."""
    folder = Folder(work / "whole")
    folder.path.mkdir()
    experiment.write(folder)
    for cell in experiment.cells:
        play_cell(folder, cell, QUICK)
    return folder.path


def kill_study(work: Path, count: int, *, episodes: int = 60_000, seeds: int = 3, seed: int = 0) -> dict[str, Any]:
    """Kill runs of one experiment until ``count`` kills are done; raise if anything differs."""
    spec = write_spec(work, episodes=episodes, seeds=seeds)
    killer = Killer(spec, work, seed, workers=2)
    began = time.monotonic()
    killer.study(count)
    facts = {"kills": killer.kills.total(), "by kind": dict(killer.kills), "processes": killer.runs}
    return {**facts, "folders, all identical": killer.folders, "seconds": round(time.monotonic() - began)}


# ------------------------------------------------------------------------------------------------------------ damage
def sample_folder(work: Path) -> tuple[Path, Cell]:
    """Make a folder with finished cells and one that was stopped; return it with the cell of the checkpoint."""
    folder = work / "sample"
    experiment = Experiment.from_toml(write_spec(work, episodes=3_000, seeds=2))
    place = Folder(folder)
    folder.mkdir()
    experiment.write(place)
    *finished, last = experiment.cells
    for cell in finished:
        play_cell(place, cell, QUICK)
    pieces = iter((False, False, True))
    with contextlib.suppress(Stopped):
        play_cell(place, last, QUICK, stop=lambda: next(pieces))
    return folder, last


def damage_study(work: Path, count: int, seed: int = 0) -> dict[str, Any]:
    """Flip a bit or cut a file, ``count`` times; raise if it goes unnoticed or the error does not name the file."""
    folder, _ = sample_folder(work)
    place, draw = Folder(folder), stream(seed, "damage")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    cases: Counter[str] = Counter()
    for number in range(count):
        path = paths[number % len(paths)]
        before = path.read_bytes()
        cut = number % 5 == 4
        at = int(draw.integers(len(before)))
        path.write_bytes(
            before[:at] if cut else before[:at] + bytes([before[at] ^ (1 << int(draw.integers(8)))]) + before[at + 1 :]
        )
        noticed = _notice(place, path)
        path.write_bytes(before)
        if str(path) not in noticed:
            raise AssertionError(f"{path} damaged at {at} ({'cut' if cut else 'flip'}): {noticed or 'unnoticed'}")
        cases[f"{path.name}, {'cut' if cut else 'flip'}"] += 1
    if verify(folder, quarantine=False):
        raise AssertionError("the folder should be whole again")
    return {"cases": cases.total(), "noticed": cases.total(), "by file": dict(sorted(cases.items()))}


def _notice(place: Folder, path: Path) -> str:
    """Return the message about a damaged file: of its cell, and of all records unless it is a checkpoint."""
    if path.parent == place.path:
        try:
            return "".join(damage.problem for damage in verify(place.path, quarantine=False))
        except InvalidInput as error:
            return str(error)
    document = place.experiment()
    content = dict(zip(document.cells, document.contents, strict=True))[path.parent.name]
    wrong = check_cell(place, path.parent.name, content)
    if wrong is None or path.name == "checkpoint.npz":
        return str(wrong or "")
    try:
        load(place.path)
    except InvalidInput as error:
        return str(error)
    return ""


# ----------------------------------------------------------------------------------------------------------- storage
def storage_study(work: Path, points: tuple[str, ...] = faults.POINTS[:4]) -> dict[str, Any]:
    """Fail at every point of every write with three errors; raise unless it is reported, and fixed by another try."""
    spec = write_spec(work, episodes=3_000, seeds=1)
    experiment = Experiment.from_toml(spec)
    reference, cases = tables(_whole(work, experiment)), 0
    names = ("spec.toml", "experiment.json", "checkpoint.npz", "progress.json", "*.parquet", "manifest.json")
    for name in names:
        for point in points:
            for number in (errno.ENOSPC, errno.EACCES, errno.EROFS):
                folder = work / f"storage-{cases}"
                _fail_then_fix(folder, experiment, f"{point} {name} {errno.errorcode[number]} 1", number)
                if tables(folder) != reference or strays(folder):
                    raise AssertionError(f"{folder}: {point} {name} {number} left something behind")
                cases += 1
    return {"cases": cases, "reported and fixed": cases}


def _fail_then_fix(folder: Path, experiment: Experiment, fault: str, number: int) -> None:
    """Play with a fault in this process, then without."""
    place = Folder(folder)
    folder.mkdir()
    stop = iter([False] * 3 + [True] + [False] * 10**6)
    try:
        with faults.injected(fault):
            experiment.write(place)
            for cell in experiment.cells:
                try:
                    play_cell(place, cell, QUICK, stop=lambda: next(stop))
                except Stopped:
                    play_cell(place, cell, QUICK)
    except StorageError as error:
        if error.errno != number or not str(error):
            raise
    else:
        raise AssertionError(f"{fault}: nobody noticed")
    if any(path.name.endswith(PARTIAL) for path in folder.rglob("*")):
        raise AssertionError(f"{fault}: a temporary file is left")
    experiment.write(place)
    for cell in experiment.cells:
        play_cell(place, cell, QUICK)


# -------------------------------------------------------------------------------------------------------- many cells
def many_study(work: Path, cells: int, workers: int = 2) -> dict[str, Any]:
    """Run many small cells; return what each costs."""
    spec = write_spec(work, episodes=100, seeds=cells // 2)
    folder = work / "many"
    began = time.monotonic()
    Experiment.from_toml(spec).run(work / "warm", workers=workers) if cells <= 4 else None
    options = ["--out", str(folder), "--workers", str(workers)]
    process = subprocess.Popen([*COMMAND, "run", str(spec), *options], stderr=subprocess.DEVNULL)  # noqa: S603  # our own command line
    peak = 0
    while process.poll() is None:
        peak = max(peak, _memory(process.pid))
        time.sleep(0.05)
    spent = time.monotonic() - began
    facts: dict[str, Any] = {"cells": cells, "exit code": process.returncode, "seconds": round(spent, 1)}
    facts["ms per cell"] = round(1000 * spent / cells, 1)
    facts["files per cell"] = sum(1 for path in folder.glob("cells/*/*")) / cells
    facts["bytes per cell"] = round(sum(path.stat().st_size for path in folder.glob("cells/*/*")) / cells)
    facts["memory of the parent, MB"] = round(peak / 2**20)
    facts |= _reading(folder)
    began = time.monotonic()
    rows = load(folder).curves.num_rows
    facts["load, seconds"], facts["rows of the curves"] = round(time.monotonic() - began, 2), rows
    return facts


WIDE = """
name = "wide"
episodes = 2_000
seeds = {seeds}
thinning = 400
[[problem]]
name = "SparseMixture"
label = "d = {{dimension}}"
parameters = {{ states = 3, actions = 2, horizon = 3, nonzero = 2 }}
sweep = {{ dimension = [3, 4, 5, 6] }}
[[agent]]
name = "ARLLinDim"
parameters = {{ norm_bound = "true" }}
[[agent]]
name = "ARLLinNorm"
parameters = {{ norm_bound = 20.0 }}
[[agent]]
name = "Greedy"
[[agent]]
name = "UniformRandom"
[[agent]]
name = "Optimal"
"""


def read_study(work: Path, cells: int) -> dict[str, Any]:
    """Time the commands that read a folder of many cells, with the runs of a few seeds recorded for all seeds."""
    spec = work / "wide.toml"
    spec.write_text(WIDE.format(seeds=cells // 20))
    experiment, place = Experiment.from_toml(spec), Folder(work / "wide")
    place.path.mkdir()
    experiment.write(place)
    played: dict[Any, tuple[Result, dict[str, Any]]] = {}
    for cell in experiment.cells:
        who = cell.problem.label, cell.agent.label, cell.seed % 5
        if who not in played:
            problem, agent, resolved = cell.make()
            played[who] = run(agent, problem.mdp, episodes=cell.episodes, seed=cell.seed, progress=False), resolved
        place.open_cell(cell.id)
        record(place, cell, *played[who])
    facts: dict[str, Any] = {"cells": len(experiment.cells)}
    return facts | _reading(place.path)


def _reading(folder: Path) -> dict[str, Any]:
    """Return the processor time of the commands that read a folder, a new process each."""
    facts = {}
    for command in ("status", "verify", "report"):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*COMMAND, command, str(folder)], stdout=subprocess.DEVNULL, check=True)  # noqa: S603  # our own command line
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        facts[f"{command}, seconds of the processor"] = round(spent, 2)
    return facts


def _memory(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def main() -> None:
    """Run one study and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=("kills", "damage", "storage", "many", "read"))
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--cells", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="occamrl-") as text:
        work = Path(text)
        if options.study == "kills":
            facts = kill_study(work, options.count, seed=options.seed)
        elif options.study == "damage":
            facts = damage_study(work, options.count, options.seed)
        elif options.study == "storage":
            facts = storage_study(work)
        elif options.study == "many":
            facts = many_study(work, options.cells)
        else:
            facts = read_study(work, options.cells)
    for name, value in facts.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
