"""The same cells on a real Dask scheduler with two worker processes, one of which is killed on the way."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

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


class Cluster:
    """A scheduler, and as many workers as a test asks for."""

    def __init__(self, lab: Path) -> None:
        self.lab = lab
        self.scheduler, self.address = start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self.workers: list[subprocess.Popen[str]] = []

    def ask_for(self, count: int) -> list[subprocess.Popen[str]]:
        """Return so many workers: those that are there, with new ones or without some."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        for worker in self.workers[count:]:
            worker.kill()
            worker.wait()
        options = ("--nworkers", "1", "--nthreads", "1", "--no-nanny", "--no-dashboard")
        new = [start("worker", self.address, *options)[0] for _ in range(count - len(self.workers))]
        self.workers = self.workers[:count] + new
        return self.workers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests; its processes see a package that is installed before they start."""
    with pytest.MonkeyPatch.context() as here:
        lab = tmp_path_factory.mktemp("lab")
        write_lab(lab, here)
        found = Cluster(lab)
        yield found
        found.ask_for(0)
        found.scheduler.kill()
        found.scheduler.wait()


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
def test_classes_of_the_users_own_on_a_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = cluster.lab
    cluster.ask_for(2)
    with monkeypatch.context() as here:
        here.syspath_prepend(lab / "bench")  # where only this process looks
        experiment = Experiment.from_toml(write(lab, LAB_SPEC), imports=["bench_agents"])
    records = experiment.run(lab / "cluster", scheduler=cluster.address, progress=False)
    assert not records.failed
    assert records.curves.equals(load(play(experiment, lab / "here").path).curves)


def test_ctrl_c_stops_tasks_that_run_and_takes_back_the_others(tmp_path: Path, cluster: Cluster) -> None:
    cluster.ask_for(2)
    out, spec = tmp_path / "out", write(tmp_path, slow(5_000_000))
    words = [*COMMAND, "run", str(spec), "--out", str(out), "--scheduler", cluster.address, "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        deadline = time.monotonic() + 120
        while not list(out.glob("cells/*/progress.json")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert '"stopped": true' in said
    assert not (out / "lock").exists()
    deadline = time.monotonic() + 60  # a worker that was slow to answer writes its checkpoint after the parent has left
    while not list(out.glob("cells/*/checkpoint.npz")):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.filterwarnings("ignore")  # what Dask and its event loop leave open is not ours
def test_cells_on_a_cluster_of_which_a_worker_is_killed(tmp_path: Path, cluster: Cluster) -> None:
    address, workers = cluster.address, cluster.ask_for(2)
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
def test_without_workers_ctrl_c_or_silence_ends_it_and_it_is_said_what_is_awaited(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.ask_for(0)
    for name in ("_PATIENCE_SECONDS", "_PROGRESS_SECONDS"):
        monkeypatch.setattr(f"occamrl.experiments.dask.{name}", 0.1)
    awaited = f"waiting for a worker: the Dask scheduler at {cluster.address} has none"
    said: list[str] = []

    def press(event: dict[str, Any]) -> None:
        if event["event"] == "warning":
            said.append(event["text"])
            signal.raise_signal(signal.SIGINT)  # there is nobody who could stop

    out, spec = tmp_path / "out", write(tmp_path)
    assert execute(Folder(out), Options(scheduler=cluster.address), press, Experiment.from_toml(spec)).stopped
    assert awaited in said[0]
    answer = command("run", spec, "--out", out, "--scheduler", cluster.address, "--silence", 2)
    assert answer.exit_code == 1
    assert awaited in answer.stderr
    assert "nothing heard for" in answer.stderr
    assert not (out / "lock").exists()


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
