"""Running experiments: the same bytes from any number of workers, workers that die or hang, Ctrl-C, locks."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import occamrl
from benchmarks.faults.sitecustomize import environment
from occamrl.errors import FolderInUse, OccamRLError, ParameterError, RecordError, Stopped
from occamrl.experiments import execution
from occamrl.experiments.execution import (
    Executor,
    Experiment,
    LocalPool,
    Options,
    execute,
    play_cell,
    record_failure,
)
from occamrl.experiments.records import RETRIES, Folder, FolderLock, load, status, verify
from tests.experiments.common import (
    COMMAND,
    QUICK,
    SMALL,
    Event,
    Killer,
    after,
    command,
    play,
    play_in_pieces,
    slow,
    write,
)

LONG = 100_000


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


SCRIPT = 'import occamrl as orl; print(len(orl.Experiment.from_toml("spec.toml").run("two", workers=2).cells))'


def test_two_workers_or_none_give_the_same_bytes(tmp_path: Path) -> None:
    """Two for a script, which needs no guard."""
    experiment = Experiment.from_toml(write(tmp_path))
    environment = {**os.environ, "PYTHONPATH": str(Path(occamrl.__file__).parents[1])}
    answer = subprocess.run(
        [COMMAND[0], "-"], input=SCRIPT, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert (answer.stdout, answer.returncode) == ("4\n", 0), answer.stderr
    play(experiment, tmp_path / "none")
    assert contents(tmp_path / "two") == contents(tmp_path / "none")
    assert len(contents(tmp_path / "two")) == 8


def test_records_are_tidy(tmp_path: Path) -> None:
    folder = play(Experiment.from_toml(write(tmp_path)), tmp_path / "out")
    records = load(folder.path)
    assert records.name == "small"
    assert records.spec["episodes"] == 500
    about = ["cell", "problem", "agent", "seed"]
    assert records.curves.column_names == [*about, "episode", "regret", "cumulative_regret", "realised_return"]
    rest = ["phase", "epoch", "label", "episodes", "regret", "plans", "realised_return", "facts"]
    assert records.phases.column_names == about + rest
    one = pq.read_table(folder.cell(records.cells[0]["cell"]) / "curve.parquet").to_pydict()
    assert one["episode"][0] == 1
    assert one["episode"][-1] == 500
    assert len(one["episode"]) <= 20
    assert one["cumulative_regret"][-1] == records.cells[0]["total_regret"]
    for manifest, row in zip(records.cells, records.phases.to_pylist(), strict=True):
        assert row["episodes"] == 500
        assert row["regret"] == pytest.approx(manifest["total_regret"])
        assert json.loads(row["facts"]) == {}


def test_cells_can_be_added_and_finished_ones_stay(tmp_path: Path) -> None:
    out = tmp_path / "out"
    play(Experiment.from_toml(write(tmp_path)), out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*/*/*") if path.is_file()}
    play(Experiment.from_toml(write(tmp_path, SMALL.replace("seeds = 2", "seeds = 3"))), out)
    assert len(load(out).cells) == 6
    assert {path: path.stat().st_mtime_ns for path in before} == before
    with pytest.raises(RecordError, match="that the spec"):
        play(Experiment.from_toml(write(tmp_path, SMALL.replace("seeds = 2", "seeds = 1"))), out)


def prepared(folder: Folder, spec: Path) -> Experiment:
    """Return an experiment whose directory is there and whose cells are not played."""
    experiment = Experiment.from_toml(spec)
    folder.path.mkdir()
    experiment.write(folder)
    return experiment


def test_a_stopped_selector_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Phases, estimated rewards and one kernel per step, through the files of a cell."""
    text = slow(6_000).replace("seeds = 2", "seeds = 1").replace("3 }", '3, reward_noise = "beta" }')
    options = 'ladder = { sizes = [2, 4], true = 1 }, kernel = "per_step", replan = 0.1, rewards.per_pair = "bernstein"'
    text = text.partition("[[agent]]")[0] + f'[[agent]]\nname = "ARLGen"\nparameters = {{ {options} }}\n'
    experiment = Experiment.from_toml(write(tmp_path, text))
    whole = play(experiment, tmp_path / "whole")
    folder = play_in_pieces(experiment, tmp_path / "out", (1, 2))
    assert contents(folder.path) == contents(whole.path)
    assert not list(folder.path.rglob("*.npz"))
    assert load(whole.path).cells[0]["total_regret"] > 0.0


def test_a_checkpoint_of_other_versions_is_kept_and_used_when_they_are_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two versions take turns on a cell; each goes on where it was, and the result is that of the first alone."""
    spec, folder = write(tmp_path, slow(5_000)), Folder(tmp_path / "out")
    whole, first = play(Experiment.from_toml(spec), tmp_path / "whole"), prepared(folder, spec).cells[0]
    here, reached = execution.versions(), []
    for release, chunks in (("1", 3), ("2", 2), ("1", None)):
        monkeypatch.setattr(execution, "versions", lambda release=release: {**here, "numpy": release})
        heard: list[Event] = []
        if chunks is None:
            play_cell(folder, first, QUICK, heard.append)
        else:
            with pytest.raises(Stopped, match="stopped"):
                play_cell(folder, first, QUICK, heard.append, after(chunks))
        reached.append([news["text"] for news in heard if news["event"] == "warning"])
    assert not reached[0]
    assert "kept as checkpoint.npz.001.unused" in reached[1][0]
    assert "kept as checkpoint.npz.002.unused" in reached[2][0]
    assert "continues from checkpoint.npz.001.unused" in reached[2][1]
    one, other = (place.cell(first.id) / "curve.parquet" for place in (folder, whole))
    assert one.read_bytes() == other.read_bytes()


def test_verify_puts_damaged_cells_aside_and_they_can_be_run_again(tmp_path: Path) -> None:
    experiment = Experiment.from_toml(write(tmp_path))
    folder = play(experiment, tmp_path / "out")
    whole = contents(folder.path)
    cell = experiment.cells[1].id
    curve = folder.cell(cell) / "curve.parquet"
    curve.write_bytes(curve.read_bytes()[:-1] + b"x")
    with pytest.raises(RecordError, match=r"curve\.parquet"):
        load(folder.path)
    answer = command("verify", folder.path)
    assert answer.exit_code == 1
    assert str(curve) in answer.stdout
    assert "occamrl resume" in answer.stdout
    assert (folder.quarantine / f"{cell}.1" / "curve.parquet").exists()
    assert status(folder.path).missing == [cell]
    play(experiment, folder.path)
    assert verify(folder.path) == []
    assert {name: content for name, content in contents(folder.path).items() if "quarantine" not in name} == whole


# ----------------------------------------------------------------------------------------------------------- workers
def watched(tmp_path: Path, act: object, text: str) -> tuple[list[Event], Folder]:
    """Run to the end with one worker and call ``act(event)`` on each event."""
    heard: list[Event] = []
    folder = Folder(tmp_path / "out")

    def listen(event: Event) -> None:
        heard.append(event)
        act(event)  # type: ignore[operator]  # any callable

    options = Options(workers=1, checkpoint_seconds=0.05)
    assert not execute(folder, options, listen, Experiment.from_toml(write(tmp_path, text))).stopped
    return heard, folder


ONE = slow(10 * LONG).replace("seeds = 2", "seeds = 1").replace('[[agent]]\nname = "Optimal"', "")


def test_a_killed_worker_costs_its_cell_a_retry_from_the_checkpoint(tmp_path: Path) -> None:
    killer = Killer(LONG)

    def act(event: Event) -> None:
        if list((tmp_path / "out").glob("cells/*/checkpoint.npz")):
            killer(event)
        if event["event"] == "done":
            signal.raise_signal(signal.SIGINT)  # nothing is left to stop

    heard, folder = watched(tmp_path, act, ONE)
    (retry,) = (event for event in heard if event["event"] == "retry")
    assert "SIGKILL" in retry["text"]
    later = heard[heard.index(retry) :]
    assert next(event for event in later if event["event"] == "progress")["episodes"] > 1  # not anew
    assert len(load(folder.path).cells) == 1


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    """Let workers do something else: they need not import and compile where it is the supervision that is tested."""
    place = tmp_path / "shadow" / "occamrl" / "experiments"
    place.mkdir(parents=True)
    for package in (place, place.parent):
        (package / "__init__.py").touch()
    (place / "execution.py").write_text(work)
    paths = {**os.environ, "PYTHONPATH": str(tmp_path / "shadow")}
    monkeypatch.setattr("occamrl.experiments.execution.environment", lambda: paths)


TALKING = """
import json, os, sys, time
def work():
    for line in sys.stdin:
        for episodes in range(20):
            print(json.dumps({"event": "progress", "episodes": episodes, "pid": os.getpid()}), flush=True)
            time.sleep(0.01)
        print(json.dumps({"event": "done"}), flush=True)
"""


def test_a_hung_worker_is_ended_and_its_cell_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, TALKING)
    folder, killer, heard = Folder(tmp_path / "out"), Killer(2, signal.SIGSTOP), []
    experiment = prepared(folder, write(tmp_path, ONE))
    with FolderLock(folder.lock_file) as lock:
        pool = LocalPool(folder, lock, Options(workers=1))
        for event in pool.play(experiment.cells):
            heard.append(event)
            killer(event)
            again = any(each["event"] == "retry" for each in heard)
            pool.silence = 0.5 if killer.killed and not again else 600.0  # starting is silent, too
    assert next(event["text"] for event in heard if event["event"] == "retry").endswith("was ended")
    assert heard[-1]["event"] == "done"


def test_a_cell_that_always_kills_its_worker_fails_while_others_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One retry instead of several: how they are counted has a test of its own."""
    monkeypatch.setattr(execution, "RETRIES", 1)

    def act(event: Event) -> None:
        if event["event"] == "progress" and event.get("agent") == "UniformRandom":
            os.kill(event["pid"], signal.SIGKILL)

    text = slow(LONG).replace("seeds = 2", "seeds = 1")
    heard, folder = watched(tmp_path, act, text)
    assert sum(event["event"] == "retry" for event in heard) == 1
    records = load(folder.path)
    assert [manifest["agent"]["name"] for manifest in records.cells] == ["Optimal"]
    assert "SIGKILL" in records.failed[0]["reason"]
    answer = command("status", folder.path)
    assert "1 failed" in answer.stdout
    answer = command("resume", folder.path, "--json", "--workers", 1)
    assert answer.exit_code == 0
    end = {"event": "end", "finished": 2, "failed": 0, "stopped": False}
    assert json.loads(answer.stdout.splitlines()[-1]) == end
    assert not load(folder.path).failed


def test_an_error_inside_a_cell_is_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path / "out")
    experiment = Experiment.from_toml(write(tmp_path, ONE))
    shadow = tmp_path / "shadow" / "numba"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text('raise ImportError("this numba is broken")')
    path = os.pathsep.join([str(shadow.parent), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setattr("occamrl.experiments.execution.environment", lambda: {**os.environ, "PYTHONPATH": path})
    monkeypatch.setattr(execution, "RETRIES", 0)
    tally = execute(folder, Options(workers=1), lambda event: None, experiment)
    assert len(tally.failed) == 1
    assert "this numba is broken" in load(folder.path).failed[0]["reason"]


def test_the_end_of_a_long_reason_is_kept(tmp_path: Path) -> None:
    """A traceback ends with its error."""
    experiment = Experiment.from_toml(write(tmp_path))
    folder = play(experiment, tmp_path / "out")
    reason = "Traceback\n" + "  a line of it\n" * 1_000 + "ValueError: this is why"
    kept = record_failure(folder, experiment.cells[0], reason)["reason"]
    assert kept.endswith("ValueError: this is why")
    assert len(kept) == 4_000
    assert load(folder.path).failed[0]["reason"] == kept


def test_lost_workers_are_forgiven_after_a_checkpoint(tmp_path: Path) -> None:
    experiment = Experiment.from_toml(write(tmp_path))
    folder, cell = Folder(tmp_path), experiment.cells[0]
    executor = Executor(folder, FolderLock(folder.lock_file), Options())

    def events(count: int) -> list[str]:
        return [executor.lose(cell, "killed")["event"] for _ in range(count)]

    assert events(RETRIES) == ["retry"] * RETRIES
    checkpoint = folder.cells / cell.id / "checkpoint.npz"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    assert events(RETRIES + 1) == ["retry"] * RETRIES + ["failed"]  # no other checkpoint since the first of these
    other = experiment.cells[1]
    assert executor.lose(other, "killed", workers=RETRIES + 1)["event"] == "failed"


# ------------------------------------------------------------------------------------------------------ command line
def begun(out: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a cell of a run is under way."""
    deadline = time.monotonic() + 120
    while not list(out.glob("cells/*/progress.json")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ctrl_c_stops_cleanly_and_another_run_finishes(tmp_path: Path) -> None:
    """The other with one worker, and from a thread, which gets no signals."""
    out, spec = tmp_path / "out", write(tmp_path, slow(1_000_000))
    words = [*COMMAND, "run", str(spec), "--out", str(out), "--workers", "2"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        begun(out, process)
        with pytest.raises(FolderInUse, match=f"process {process.pid} on {socket.gethostname()!r}"):
            execute(Folder(out), Options(), lambda event: None)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"occamrl resume {out}" in said
    assert not (out / "lock").exists()
    assert list(out.glob("cells/*/checkpoint.npz"))
    assert not list(out.rglob("*.partial"))
    experiment, found = Experiment.from_toml(spec), []
    thread = threading.Thread(target=lambda: found.append(experiment.run(out, workers=1)))
    thread.start()
    thread.join()
    (records,) = found
    assert [manifest["cell"] for manifest in records.cells] == [cell.id for cell in experiment.cells]
    whole = play(experiment, tmp_path / "whole")
    assert contents(out) == contents(whole.path)
    answer = command("resume", out, "--json")
    assert answer.exit_code == 0
    end = {"event": "end", "finished": 4, "failed": 0, "stopped": False}
    assert json.loads(answer.stdout.splitlines()[-1]) == end


def test_exit_codes_and_messages(tmp_path: Path) -> None:
    assert command("run", "nothing.toml", "--out", tmp_path / "x").exit_code == 2
    spec = write(tmp_path, SMALL.replace("UniformRandom", "Uniform\x7fRandom".replace("\x7f", "\\u001b")))
    bad = command("run", spec, "--out", tmp_path / "x")
    assert bad.exit_code == 2
    assert "agent[0].name" in bad.stderr
    assert "\x1b" not in bad.stderr
    assert command("status", tmp_path).exit_code == 1
    full = command(
        "run", write(tmp_path), "--out", tmp_path / "y", "--workers", 1, **environment("write *.parquet ENOSPC 3+")
    )
    assert full.exit_code == 1
    assert "No space left on device" in full.stderr
    play(Experiment.from_toml(tmp_path / "spec.toml"), tmp_path / "y")
    assert command("run", tmp_path / "spec.toml", "--out", tmp_path / "y").exit_code == 0
    assert len(json.loads(command("status", tmp_path / "y", "--json").stdout)["finished"]) == 4
    assert "ayoub-riverswim" in command("list").stdout


def test_status_tells_a_dead_process_from_one_at_work(tmp_path: Path) -> None:
    folder = play(Experiment.from_toml(write(tmp_path)), tmp_path / "out")
    cell = folder.cell(folder.experiment().cells[0])
    (cell / "manifest.json").unlink()
    news = {"episodes": 1, "total": 2, "regret": 0.0, "rate": 1.0, "time": time.time(), "host": socket.gethostname()}
    note = {"host": socket.gethostname(), "since": 0.0}
    for pid, running in ((os.getpid(), 1), (2**22 + 1, 0)):
        (cell / "progress.json").write_text(json.dumps({**news, "pid": pid}))
        folder.lock_file.write_text(json.dumps({**note, "pid": pid}))
        said = command("status", folder.path).stdout
        assert f"{running} running" in said
        assert ("which is gone" in said) == (not running)
    (cell / "progress.json").write_text(json.dumps({**news, "pid": 2**22 + 1, "host": "elsewhere"}))
    assert len(status(folder.path).running) == 1  # of another machine only the time tells


def test_a_damaged_copy_of_the_spec_is_renewed(tmp_path: Path) -> None:
    experiment = Experiment.from_toml(write(tmp_path))
    folder = play(experiment, tmp_path / "out")
    folder.spec_file.write_text("damaged")
    assert "renews it" in command("verify", folder.path).stdout
    play(experiment, folder.path)
    assert verify(folder.path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_cell_that_may_not_be_read(tmp_path: Path) -> None:
    folder = play(Experiment.from_toml(write(tmp_path)), tmp_path / "out")
    cell = folder.cell(folder.experiment().cells[0])
    cell.chmod(0)
    with pytest.raises(RecordError, match="Permission denied"):
        load(folder.path)
    cell.chmod(0o755)


WITHOUT = "import sys; sys.modules['fcntl'] = None; from occamrl.cli import main; main()"


def test_without_file_locks_folders_can_be_read_but_not_worked_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = play(Experiment.from_toml(write(tmp_path)), tmp_path / "out").path
    words = [COMMAND[0], "-c", WITHOUT, "resume", str(out)]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert answer.stderr.endswith("run cells on Linux or macOS\n")
    assert "Traceback" not in answer.stderr
    monkeypatch.setattr("filelock.has_fcntl", False)
    for words, code in ((["status"], 0), (["report"], 0), (["verify", "--no-quarantine"], 0), (["verify"], 1)):
        assert command(*words, out).exit_code == code


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*arguments: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(OccamRLError, match="file system has no locks"), FolderLock(tmp_path / "lock"):
        pass


EARLY = """
import signal, sys
from occamrl.__main__ import main
sys.argv = ["occamrl", "list"]
def press(*_): signal.raise_signal(signal.SIGINT)
signal.signal(signal.SIGALRM, press)
{when}
main()
"""
LATER = "signal.setitimer(signal.ITIMER_REAL, {})"
PARSING = "import typer.core; typer.core.TyperGroup.resolve_command = press"  # neither loading nor inside a command


@pytest.mark.parametrize("when", [LATER.format(0.02), LATER.format(0.1), LATER.format(0.3), PARSING])
def test_ctrl_c_in_the_first_moments_is_one_line(when: str) -> None:
    words = [COMMAND[0], "-c", EARLY.format(when=when)]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) in ((130, "stopped\n"), (0, ""))
    assert answer.returncode or when != PARSING


def test_a_report_needs_a_name(tmp_path: Path) -> None:
    folder = play(Experiment.from_toml(write(tmp_path)), tmp_path / "out")
    for out in ("/", "."):
        answer = command("report", folder.path, "--out", out)
        assert answer.exit_code == 1
        assert "name a file in it" in answer.stderr


# ------------------------------------------------------------------------------------------------------------- locks
def test_a_lock_tells_who_holds_it_and_is_recovered_when_stale(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FolderLock(path) as lock:
        assert lock.recovered is None
        with pytest.raises(FolderInUse, match=f"process {os.getpid()} on"), FolderLock(path):
            pass
    assert not path.exists()
    path.write_text(json.dumps({"pid": 2**22 + 1, "host": socket.gethostname(), "since": 0.0}))
    with FolderLock(path) as lock:
        assert lock.recovered is not None
        assert lock.recovered["pid"] == 2**22 + 1
    path.write_text("no JSON")
    with FolderLock(path):
        pass


KILLED = """
import os, subprocess, sys
from pathlib import Path
from occamrl.experiments.records import FolderLock
with FolderLock(Path(sys.argv[1])) as lock:
    subprocess.Popen(["cat"], pass_fds=[lock.handle])
    os.kill(os.getpid(), 9)
"""


def test_a_lock_outlives_a_killed_process_until_its_last_worker_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen([COMMAND[0], "-c", KILLED, str(path)], stdin=subprocess.PIPE) as holder:
        assert holder.wait() == -signal.SIGKILL
        named = rf"worker process [0-9]+, left by process {holder.pid} on .*, which is gone"
        with pytest.raises(FolderInUse, match=named), FolderLock(path, wait=0.0):
            pass
    with FolderLock(path, wait=60.0) as lock:
        assert lock.recovered is not None
        assert lock.recovered["pid"] == holder.pid


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 0},
        {"workers": True},
        {"checkpoint_seconds": 0.0},
        {"silence_seconds": float("nan")},
        {"workers": 2, "scheduler": "tcp://127.0.0.1:8786"},  # Dask has its own
    ],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        Options(**options)


def test_no_cell_is_begun_after_the_request_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while workers are being started: those that come later would not have heard it."""
    stand_in(tmp_path, monkeypatch, "import sys\ndef work(): sys.stdin.read()\n")
    folder = Folder(tmp_path / "out")
    experiment = prepared(folder, write(tmp_path, slow(100_000_000)))
    with FolderLock(folder.lock_file) as lock:
        pool = LocalPool(folder, lock, Options(workers=2, checkpoint_seconds=QUICK))
        events = []
        for event in pool.play(experiment.cells):
            events.append(event["event"])
            if event["event"] == "begin":
                pool.stop()
    assert events.count("begin") == 1
    assert events.count("stopped") == len(experiment.cells)


def test_ctrl_c_before_there_is_an_executor_is_not_lost(tmp_path: Path) -> None:
    """It was an exception wherever the signal came, also inside Dask, which may drop it."""

    def press(event: Event) -> None:
        events.append(event["event"])
        if event["event"] == "plan":
            signal.raise_signal(signal.SIGINT)

    events: list[str] = []
    experiment = Experiment.from_toml(write(tmp_path, slow(100_000_000)))
    tally = execute(Folder(tmp_path / "out"), Options(workers=2), press, experiment)
    assert tally.stopped
    assert events == ["plan"] + ["stopped"] * len(experiment.cells)
    assert not (tmp_path / "out" / "lock").exists()
