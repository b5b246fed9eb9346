"""The same cells on a real Dask scheduler with two worker processes, one of which is killed on the way."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from occamrl.experiments.execution import Experiment, Options, environment, execute
from occamrl.experiments.records import Folder, load, read_progress
from tests.experiments.common import COMMAND, LAB_SPEC, command, play, slow, write, write_lab

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'occamrl[dask]'")


def drain(stream: IO[str]) -> None:
    """Read to the end, so that the writer never waits for a reader."""
    with stream:
        for _ in stream:
            pass


def start(*words: str) -> tuple[subprocess.Popen[str], str]:
    """Start a Dask process; return it with the first address that it tells."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**environment(), "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "60s"},
    )
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(r"tcp://[0-9.]+:[1-9][0-9]*", line)
        if found and ("Scheduler at" in line or "Registered to" in line):
            threading.Thread(target=drain, args=(process.stderr,), daemon=True).start()
            return process, found.group()
    raise AssertionError(f"dask {words} ended with code {process.wait()}")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Before the cluster, whose processes see the installed package."""
    write_lab(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def cluster() -> Iterator[tuple[str, list[subprocess.Popen[str]]]]:
    scheduler, address = start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    options = ("--nworkers", "1", "--nthreads", "1", "--no-nanny", "--no-dashboard")
    workers = [start("worker", address, *options)[0] for _ in range(2)]
    yield address, workers
    for process in (*workers, scheduler):
        process.kill()
        process.wait()


def kill_one_at_work(folder: Folder, workers: list[subprocess.Popen[str]], over: threading.Event) -> None:
    """Kill the first worker that has left a checkpoint, in the middle of its cell: a cell has many of them."""
    while not over.wait(0.005):
        for path in folder.cells.glob("*/checkpoint.npz"):
            pid = (read_progress(path.parent) or {}).get("pid")
            for worker in workers:
                if worker.pid == pid:
                    worker.kill()
                    worker.wait()
                    return


@pytest.mark.filterwarnings("ignore")  # what Dask and its event loop leave open is not ours
def test_cells_on_a_cluster_of_which_a_worker_is_killed(
    tmp_path: Path, cluster: tuple[str, list[subprocess.Popen[str]]]
) -> None:
    address, workers = cluster
    experiment = Experiment.from_toml(write(tmp_path, slow(600_000)))
    folder, over = Folder(tmp_path / "out"), threading.Event()
    killer = threading.Thread(target=kill_one_at_work, args=(folder, workers, over))
    killer.start()
    try:
        tally = execute(folder, Options(scheduler=address, checkpoint_seconds=0.1), lambda event: None, experiment)
    finally:
        over.set()
        killer.join()
    assert sum(worker.poll() is not None for worker in workers) == 1
    assert (tally.done, tally.failed) == (4, ())
    whole = play(experiment, tmp_path / "whole")
    assert load(folder.path).curves.equals(load(whole.path).curves)
    for path in whole.path.rglob("*.parquet"):
        assert (folder.path / path.relative_to(whole.path)).read_bytes() == path.read_bytes()


@pytest.mark.filterwarnings("ignore")
def test_classes_of_the_users_own_on_a_cluster(
    lab: Path, cluster: tuple[str, list[subprocess.Popen[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as here:
        here.syspath_prepend(lab / "bench")  # where only this process looks
        experiment = Experiment.from_toml(write(lab, LAB_SPEC), imports=["bench_agents"])
    records = experiment.run(lab / "cluster", scheduler=cluster[0], progress=False)
    assert not records.failed
    assert records.curves.equals(load(play(experiment, lab / "here").path).curves)


def interrupted(out: Path, spec: Path, address: str, ready: Callable[[], bool]) -> tuple[int, str]:
    """Run on a cluster, press Ctrl-C when it is time, and return the exit code and what was said."""
    words = [*COMMAND, "run", str(spec), "--out", str(out), "--scheduler", address, "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        deadline = time.monotonic() + 120
        while not ready():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    return process.returncode, said


def test_ctrl_c_stops_tasks_that_run_and_takes_back_the_others(
    tmp_path: Path, cluster: tuple[str, list[subprocess.Popen[str]]]
) -> None:
    address, workers = cluster
    out, spec = tmp_path / "out", write(tmp_path, slow(5_000_000))
    code, said = interrupted(out, spec, address, lambda: bool(list(out.glob("cells/*/progress.json"))))
    assert code == 130
    assert '"stopped": true' in said
    assert not (out / "lock").exists()
    deadline = time.monotonic() + 60  # a worker that was slow to answer writes its checkpoint after the parent has left
    while not list(out.glob("cells/*/checkpoint.npz")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for worker in workers:  # without any worker there is nobody who could stop
        worker.kill()
        worker.wait()
    code, _ = interrupted(out, spec, address, (out / "lock").exists)
    assert code == 130


@pytest.mark.parametrize(
    "address", ["nowhere", "tcp://", "tcp://127.0.0.1:9", "127.0.0.1:99999", "", "tcp://\n:1", "http:/x:1"]
)
def test_a_scheduler_that_is_not_there_is_one_line(tmp_path: Path, address: str) -> None:
    began = time.monotonic()
    answer = command("run", write(tmp_path), "--out", tmp_path / "out", "--scheduler", address)
    assert (answer.exit_code, len(answer.stderr.splitlines())) == (2, 1)
    assert "scheduler: got" in answer.stderr
    assert time.monotonic() - began < 30
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore")
def test_without_workers_it_is_said_what_is_awaited_and_silence_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("occamrl.experiments.dask._PATIENCE_SECONDS", 0.5)
    scheduler, address = start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    try:
        answer = command("run", write(tmp_path), "--out", tmp_path / "out", "--scheduler", address, "--silence", 4)
    finally:
        scheduler.kill()
        scheduler.wait()
    assert answer.exit_code == 1
    assert f"waiting for a worker: the Dask scheduler at {address} has none" in answer.stderr
    assert "nothing heard for" in answer.stderr
    assert not (tmp_path / "out" / "lock").exists()
