from __future__ import annotations

import csv
import itertools
import math
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from occamrl import errors
from occamrl.errors import InvalidInput, ParameterError, StorageError
from occamrl.logs.log import (
    COLUMNS,
    Log,
    LogError,
    StoredLog,
    episode_columns,
    joined,
    read_log,
    simulate_log,
    write_parquet,
)
from occamrl.problems.mdp import FiniteMDP
from tests import cases


def columns() -> dict[str, Any]:
    """Two episodes of three and two steps."""
    return {
        "episode": np.array([0, 0, 0, 4, 4]),
        "step": np.array([0, 1, 2, 0, 1]),
        "state": np.array([0, 1, 2, 0, 2]),
        "action": np.array([1, 0, 1, 1, 0]),
        "reward": np.array([0.0, 0.5, 1.0, 0.0, 0.25]),
        "next_state": np.array([1, 2, 0, 2, 2]),
        "terminated": np.array([False, False, True, False, False]),
        "truncated": np.array([False, False, False, False, True]),
    }


def test_a_log_knows_its_episodes() -> None:
    log = Log.of_columns(columns())
    assert (log.episodes, log.rows) == (2, 5)
    assert log.step.tolist() == [0, 1, 2, 0, 1]
    assert log.head(1).columns()["reward"].tolist() == [0.0, 0.5, 1.0]


WRONG: list[tuple[str, int, Any]] = [
    ("episode", 3, -1),  # negative
    ("step", 1, 2),  # counts 0, 2
    ("step", 3, 1),  # does not begin with 0
    ("state", 2, 1),  # not where the step before ended
    ("action", 1, -2),
    ("reward", 4, math.nan),
    ("reward", 0, math.inf),
    ("terminated", 1, True),  # though the episode goes on
    ("truncated", 1, True),
    ("state", 2, 1.5),  # and values of another kind
    ("step", 4, None),
    ("action", 3, "left"),
    ("reward", 1, "0,5"),
    ("truncated", 4, "yes"),
]


class Frame:
    """A data frame as far as a log needs one: columns by name, and their names."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data, self.columns = data, list(data)

    def __getitem__(self, name: str) -> Any:
        return np.array(self.data[name], dtype=object)


def write_csv(data: dict[str, Any], path: Path) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([data, *zip(*data.values(), strict=True)])
    return path


FORMS = [  # an array and a Parquet column have one type
    (form, *wrong)
    for form, wrong in itertools.product(("arrays", "data frame", "csv", "parquet"), WRONG)
    if form in ("data frame", "csv") or not (isinstance(wrong[2], str) or (form == "arrays" and wrong[2] is None))
]


@pytest.mark.parametrize(("form", "column", "row", "value"), FORMS)
def test_the_first_wrong_row_is_named(form: str, column: str, row: int, value: Any, tmp_path: Path) -> None:
    wrong = {name: list(values) for name, values in columns().items()}
    wrong[column][row] = value
    source: Any = Frame(wrong) if form == "data frame" else {name: np.array(each) for name, each in wrong.items()}
    if form == "csv":
        source = write_csv(wrong, tmp_path / "log.csv")
    if form == "parquet":
        pq.write_table(pa.table(wrong), tmp_path / "log.parquet")
        source = tmp_path / "log.parquet"
    with pytest.raises(LogError, match=rf"^{column} in row {row} \(from 0\): got .*, expected ") as caught:
        read_log(source)
    assert (caught.value.field, caught.value.index) == (column, (row,))
    assert not re.search("(?i)csv|arrow|conversion|dtype", str(caught.value))


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_that_are_missing_or_have_another_length_are_refused(name: str) -> None:
    for bad in (columns()[name][:-1], columns()[name].reshape(5, 1)):
        with pytest.raises(LogError):
            Log.of_columns(columns() | {name: bad})
    with pytest.raises(LogError, match=f"{name}: got no such column"):
        read_log({key: value for key, value in columns().items() if key != name})
    with pytest.raises(LogError, match=r"episode in row 3 .*: got 0, expected .*above 4"):
        Log.of_columns(columns() | {"episode": np.array([4, 4, 4, 0, 0])})


def test_every_form_of_a_log_is_read_as_it_is(tmp_path: Path) -> None:
    log = simulate_log(cases.mixture(0).mdp, episodes=20, seed=1)
    write_parquet(log, tmp_path / "log.parquet")
    small = {name: column.astype(np.int8) if column.dtype == np.int64 else column for name, column in columns().items()}
    pq.write_table(pa.table(small | {"note": ["x"] * 5}), tmp_path / "small.parquet")
    assert read_log(tmp_path / "small.parquet").next_state.tolist() == [1, 2, 0, 2, 2]
    given = {"note": ["a, b"] * log.rows, **{name: column.tolist() for name, column in log.columns().items()}}
    flags = {name: np.array(given[name]).astype(float) for name in ("state", "terminated")}  # as pandas may have them
    for source in (
        tmp_path / "log.parquet",
        write_csv(given, tmp_path / "log.CSV"),
        pa.table(given),
        Frame(given),
        given | flags,
    ):
        again = read_log(source)
        assert all((again.columns()[name] == column).all() for name, column in log.columns().items())
    path = write_csv(given, tmp_path / "log.csv")
    assert [each.rows for each in StoredLog(str(path)).blocks(40)] == [log.rows - 40]


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty.parquet": (b"", "a Parquet file"),
    "other.parquet": (b"PAR1 and then something else PAR1", "a Parquet file"),
    "pickle.parquet": (b"\x80\x04pickle", "a Parquet file"),
    "empty.csv": (b"", "episode: got no such column"),
    "other.csv": (b"episode;step\n0;0\n", "among episode;step"),
    "short.csv": (",".join(COLUMNS).encode() + b"\n0,0,0\n", r"values in row 0 .*: got 3, expected 8"),
    "names.csv": (",".join(COLUMNS).encode() + b"\n", "no step"),
    "wide.csv": (b'"' + b"x" * 200_000 + b'",step\n', "a CSV file of a log"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_files_that_are_no_logs_are_refused(name: str, tmp_path: Path) -> None:
    content, message = BAD_FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LogError, match=message):
        read_log(tmp_path / name)
    with pytest.raises(LogError, match="no such file"):
        read_log(tmp_path / f"nowhere-{name}")


def test_a_column_that_comes_twice_is_refused(tmp_path: Path) -> None:
    names = [*columns(), "state"]
    pq.write_table(pa.table([pa.array(columns()[name]) for name in names], names=names), tmp_path / "twice.parquet")
    with pytest.raises(LogError, match="state: got 2 columns of that name"):
        read_log(tmp_path / "twice.parquet")


def test_a_whole_file_that_is_cut_anywhere_is_refused(tmp_path: Path) -> None:
    write_parquet(Log.of_columns(columns()), tmp_path / "log.parquet")
    content = (tmp_path / "log.parquet").read_bytes()
    for size in range(0, len(content), 97):
        (tmp_path / "cut.parquet").write_bytes(content[:size])
        with pytest.raises(LogError):
            read_log(tmp_path / "cut.parquet")


def episode(states: Any, actions: Any, **about: Any) -> Any:
    steps = len(actions)
    usual = {"rewards": [0.5] * steps, "terminations": [False] * steps, "truncations": [False] * steps}
    return SimpleNamespace(observations=states, actions=actions, **(usual | about))


def test_minari_episodes_have_one_observation_more() -> None:
    two = [episode([5, 6, 7], [1, 2]), episode([5, 7], [2], terminations=[True])]
    log = Log.of_columns(joined(list(episode_columns(two, 5, 1))))
    assert log.state.tolist() == [0, 1, 0]
    assert log.next_state.tolist() == [1, 2, 2]
    assert log.action.tolist() == [0, 1, 1]
    assert log.terminated.tolist() == [False, False, True]
    for bad in ([episode([5, 6], [1, 2])], []):
        with pytest.raises(LogError):
            joined(list(episode_columns(bad)))


@pytest.mark.filterwarnings("ignore:`eval_env` is set to None")  # Minari's, on a dataset without an environment
@pytest.mark.filterwarnings("ignore:env_spec is None")  # likewise
def test_a_minari_dataset_is_read_from_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari, collector = (pytest.importorskip(name) for name in ("minari", "minari.data_collector"))
    from gymnasium.spaces import Box, Discrete

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    log = simulate_log(cases.mixture(0).mdp, episodes=3, seed=1)
    buffers = []
    for first, last in zip(log.begin[:-1], log.begin[1:], strict=True):
        seen = np.append(log.state[first:last], log.next_state[last - 1])
        flags = {"terminations": log.terminated[first:last], "truncations": log.truncated[first:last]}
        part = {"observations": seen + 3, "actions": log.action[first:last], "rewards": log.reward[first:last]}
        buffers.append(collector.EpisodeBuffer(**part, **flags))
    spaces = {"observation_space": Discrete(4, start=3), "action_space": Discrete(2)}
    about = {"author": "a", "author_email": "a@example.org", "code_permalink": "x"}
    about |= {"algorithm_name": "random", "description": "made up"}
    minari.create_dataset_from_buffers("toy/chain-v0", buffers, **spaces, **about)
    again = read_log("minari:toy/chain-v0")
    assert all((again.columns()[name] == column).all() for name, column in log.columns().items())
    with pytest.raises(InvalidInput, match="toy/none-v0"):
        read_log("minari:toy/none-v0")
    box = spaces | {"observation_space": Box(0.0, 9.0, (1,))}
    wide = [collector.EpisodeBuffer(**vars(episode(np.array([[0.0], [1.0]], dtype=np.float32), np.array([0]))))]
    minari.create_dataset_from_buffers("toy/box-v0", wide, **box, **about)
    with pytest.raises(LogError, match="observation_space"):
        read_log("minari:toy/box-v0")


def test_a_file_that_is_one_long_line_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.csv"
    with path.open("wb") as file:
        file.truncate(20 * 2**30)
    began = time.perf_counter()
    for work in (read_log, lambda each: StoredLog(str(each)).rows):
        with pytest.raises(LogError, match="characters"):
            work(path)
    path.write_bytes(",".join(COLUMNS).encode() + b"\n" + b"1" * 2**22)
    with pytest.raises(LogError, match=r"sparse\.csv"):
        read_log(path)
    assert time.perf_counter() - began < 5.0


def test_rows_that_do_not_fit_into_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One episode is one block, however long it is."""
    rows = 2 * 10**6
    columns = {name: np.zeros(rows, dtype=np.int8) for name in COLUMNS} | {"step": np.arange(rows)}
    flags = {name: np.zeros(rows, dtype=bool) for name in ("terminated", "truncated")}
    pq.write_table(pa.table(columns | flags), tmp_path / "long.parquet")
    assert [block.rows for block in StoredLog(str(tmp_path / "long.parquet")).blocks()] == [rows]
    monkeypatch.setattr(errors, "memory", lambda: 2**28)
    for work in (read_log, lambda each: list(StoredLog(str(each)).blocks())):
        with pytest.raises(InvalidInput, match=r"rows: got .* at a time, expected less"):
            work(tmp_path / "long.parquet")


@pytest.mark.parametrize("name", ["x" * 5000 + ".csv", "x" * 5000])
def test_a_name_that_is_too_long_is_no_file(name: str) -> None:
    with pytest.raises(LogError, match="no such file"):
        read_log(name)


def test_a_log_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    log = simulate_log(FiniteMDP(transition=np.ones((1, 1, 1)), reward=np.zeros((1, 1)), horizon=2), episodes=2)
    for place, error in ((tmp_path, StorageError), (tmp_path / "none" / "log", StorageError), (3, ParameterError)):
        with pytest.raises(error):
            write_parquet(log, place)  # type: ignore[arg-type]  # wrong on purpose
    write_parquet(log, tmp_path / "log")
    assert read_log(tmp_path / "log").fingerprint() == log.fingerprint()
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize("source", [np.array(1.0), np.zeros(3), {}, {"episode": 3}])
def test_what_has_no_columns_is_refused(source: Any) -> None:
    with pytest.raises(LogError, match="column"):
        read_log(source)
