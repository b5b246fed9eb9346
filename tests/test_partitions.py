"""Folders of Parquet files that are counted file by file: the same log, whoever counts it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import occamrl as orl
from occamrl.experiments.pool import Event, follow
from occamrl.logs import partitions
from occamrl.logs.log import Log, simulate_log
from occamrl.logs.table import LogError

PROBLEM = orl.make_problem("patchy-ice")
KNOWN = PROBLEM.mdp.known
LADDER = orl.Ladder.of_problem(PROBLEM)


def table(episodes: int = 30) -> pa.Table:
    return pa.table(dict(simulate_log(PROBLEM.mdp, episodes=episodes).columns()))


def write_folder(folder: Path, whole: pa.Table, cuts: Sequence[int]) -> Path:
    """Write the rows of a table as files, cut at some rows."""
    folder.mkdir()
    for i, (first, end) in enumerate(zip([0, *cuts], [*cuts, whole.num_rows], strict=True)):
        pq.write_table(whole.slice(first, end - first), folder / f"part-{i:03d}.parquet")
    return folder


def same(one: Log, two: Log) -> None:
    """Compare two logs, and what models say of them."""
    assert (one.rows, one.episodes, one.longest) == (two.rows, two.episodes, two.longest)
    assert one.notes == two.notes
    for name, column in one.columns().items():
        np.testing.assert_array_equal(two.columns()[name], column)
    same_flows(one.flows(KNOWN), two.flows(KNOWN))
    assert one.notes == two.notes


def same_flows(one: Iterable[orl.Flow], two: Iterable[orl.Flow]) -> None:
    for ours, theirs in zip(one, two, strict=True):
        assert ours.episodes == theirs.episodes
        for column, other in zip(ours.columns, theirs.columns, strict=True):
            np.testing.assert_array_equal(column, other)


CUTS = [(), (16, 160), (7, 7, 100, 233), (5, 80)]


@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_files_counted_one_by_one_are_the_log_in_one_piece(
    cuts: Sequence[int], tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "log", table(), cuts)
    one = orl.read_log(folder)
    apart = orl.read_log(folder, keep=tmp_path / "kept")
    same(one, apart)
    if len(cuts) == 4:
        ours = orl.select(apart, LADDER.only(1), KNOWN, progress=False)
        assert ours.history == orl.select(one, LADDER.only(1), KNOWN, progress=False).history


def spoiled(whole: pa.Table, name: Callable[[int], Any]) -> pa.Table:
    """Name the episodes; begin steps at 1, with gaps and without next states; spoil two states."""
    episode = whole["episode"].to_numpy()
    step = np.arange(episode.size) - np.searchsorted(episode, episode) + 1
    kept = np.flatnonzero(np.random.default_rng(3).random(episode.size) < 0.95)
    states = whole["state"].to_pylist()
    states[47] = states[200] = 99
    columns = {
        "episode": [name(int(e)) for e in episode],
        "step": step,
        "state": states,
        "action": whole["action"].to_numpy(),
        "reward": whole["reward"].to_numpy() + 0.5 * (np.arange(episode.size) % 200 == 150),
    }
    return pa.table(columns).take(kept)


def test_repairs_of_files_are_those_of_the_log_in_one_piece(tmp_path: Path) -> None:
    names: list[Callable[[int], Any]] = [lambda e: f"month {e}", lambda e: e]
    for i, name in enumerate(names):
        folder = write_folder(tmp_path / f"log {i}", spoiled(table(), name), (40, 103, 150))
        options: dict[str, Any] = {"unlisted": "drop"}
        apart = orl.read_log(folder, **options, keep=tmp_path / "kept")
        assert {"gaps_cut", "next_state_filled", "no_next_state"} <= set(apart.report)
        same(orl.read_log(folder, **options), apart)
        # rows were left out, and with them flows end elsewhere than episodes that were counted say
        assert apart.report["unlisted_next"]


def test_episodes_that_models_cut_end_flows_where_they_do_in_one_piece(tmp_path: Path) -> None:
    whole = table()
    names = pa.array(np.arange(whole.num_rows) // (3 * KNOWN.horizon))
    state = np.append(whole["state"].to_numpy()[:-1], 0)
    columns = {"episode": names, "state": state, "action": whole["action"]}
    long = pa.table(columns)
    folder = write_folder(tmp_path / "log", long, (90, 200))
    options: dict[str, Any] = {"split": True, "unlisted": "drop"}
    log = orl.read_log(folder, **options, keep=tmp_path / "kept")
    assert sum(flow.episodes for flow in log.flows(KNOWN)) > log.episodes
    same_flows(log.flows(KNOWN), orl.read_log(folder, **options).flows(KNOWN))


def test_what_is_refused_in_one_piece_is_refused_file_by_file(tmp_path: Path) -> None:
    whole = table().to_pydict()
    whole["state"][300] = None
    folder = write_folder(tmp_path / "log", pa.table(whole), (100, 290, 400))
    with pytest.raises(LogError) as one:
        orl.read_log(folder)
    with pytest.raises(LogError) as apart:
        orl.read_log(folder, keep=tmp_path / "kept")
    assert (one.value.field, one.value.index) == ("state", (300,))
    assert (apart.value.field, apart.value.index) == ("state", (300,))
    whole = table().to_pydict()
    for row in range(0, 1_800, 50):
        whole["reward"][row] -= 10.0  # no file has as many as 1 % of all rows, and together they do
    folder = write_folder(tmp_path / "other", pa.table(whole), (600, 1_200))
    with pytest.raises(LogError) as one:
        list(orl.read_log(folder).flows(KNOWN))
    log = orl.read_log(folder, keep=tmp_path / "kept")
    with pytest.raises(LogError) as apart:
        list(log.flows(KNOWN))
    assert str(one.value) == str(apart.value)


def test_an_episode_that_goes_through_a_file_or_comes_back_is_refused(tmp_path: Path) -> None:
    one = pa.table({"episode": [0] * 9 + [1] * 3, "state": [0] * 12, "action": [0] * 12})
    folder = write_folder(tmp_path / "log", one, (3, 6))
    with pytest.raises(LogError, match=r"part-001.*in one piece"):
        orl.read_log(folder, keep=tmp_path / "kept")
    for names in ([0, 1, 0], ["a", "b", "a"], [0, 1, 0.0]):
        parts = [pa.table({"episode": [e] * 4, "state": [0] * 4, "action": [0] * 4}) for e in names]
        again = tmp_path / f"again {names}"
        again.mkdir()
        for i, part in enumerate(parts):
            pq.write_table(part, again / f"{i}.parquet")
        with pytest.raises(LogError, match=r"0\.parquet.*comes back"):
            orl.read_log(again, keep=tmp_path / "kept")


@pytest.mark.parametrize(
    "options",
    [{"columns": {"episode": None}}, {"order_by": "next_state"}, {"client": "x", "workers": 2}],
    ids=str,
)
def test_what_cannot_be_counted_apart_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "log", table(4), (16,))
    with pytest.raises(orl.InvalidInput):
        orl.read_log(folder, **{"workers": 2, **options})
    with pytest.raises(orl.InvalidInput, match="keep"):
        orl.read_log(table(4), keep=tmp_path / "kept")


# Interrupted and killed ---------------------------------------------------------------------------


def test_a_worker_that_is_killed_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "log", table(), (103,))
    killed: list[int] = []
    events: list[str] = []

    def listening(*given: Any) -> bool:
        label, unit, pool, tasks, progress, take = given

        def hear(number: int, event: Event) -> None:
            events.append(event["event"])
            if event["event"] == "begin" and not killed:
                killed.append(event["pid"])
                os.kill(event["pid"], signal.SIGKILL)
            take(number, event)

        return follow(label, unit, pool, tasks, progress, hear)

    monkeypatch.setattr(partitions, "follow", listening)
    log = orl.read_log(folder, workers=2, progress=False)
    assert "retry" in events
    assert isinstance(log, partitions.FolderLog)
    log.workers = 1  # the rest would do the same in new processes
    same(orl.read_log(folder), log)


def test_what_was_counted_before_ctrl_c_is_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "log", table(), (103, 233, 300))
    kept = tmp_path / "kept"
    played: list[int] = []

    def pressing(*given: Any) -> bool:
        label, unit, pool, tasks, progress, take = given
        played.append(len(tasks))

        def hear(number: int, event: Event) -> None:
            take(number, event)
            if len(played) == 1 and event["event"] == "done":
                signal.raise_signal(signal.SIGINT)

        return follow(label, unit, pool, tasks, progress, hear)

    monkeypatch.setattr(partitions, "follow", pressing)
    with pytest.raises(KeyboardInterrupt, match="1 of 4 files"):
        orl.read_log(folder, keep=kept, progress=False)
    same(orl.read_log(folder), orl.read_log(folder, keep=kept, progress=False))
    assert played == [4, 3, 4]
    orl.read_log(folder, keep=kept, progress=False)
    assert played == [4, 3, 4]  # nothing was left to count
    # a file that was written anew is counted anew, and so are its neighbours, which look into it
    os.utime(folder / "part-003.parquet", (0, 0))
    orl.read_log(folder, keep=kept, progress=False)
    assert played == [4, 3, 4, 2]


def test_a_file_that_changes_between_reading_and_counting_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "log", table(4), (16,))
    log = orl.read_log(folder, keep=tmp_path / "kept")
    os.utime(folder / "part-000.parquet", (0, 0))
    with pytest.raises(LogError, match="read the log anew"):
        next(log.flows(KNOWN))


def test_a_dask_cluster_counts_the_same(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    folder = write_folder(tmp_path / "log", table(), (103, 233))
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 1}
    with distributed.LocalCluster(**options, dashboard_address=None) as cluster:
        log = orl.read_log(folder, client=cluster.scheduler_address, progress=False)
        same(orl.read_log(folder), log)
