from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from occamrl.errors import InvalidInput
from occamrl.logs.log import (
    COLUMNS,
    Log,
    LogError,
    episode_columns,
    joined,
    read_log,
    simulate_log,
    write_parquet,
)
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


@pytest.mark.parametrize(
    ("column", "row", "value"),
    [
        ("episode", 3, -1),  # negative
        ("step", 1, 2),  # counts 0, 2
        ("step", 3, 1),  # does not begin with 0
        ("state", 2, 1),  # not where the step before ended
        ("action", 1, -2),
        ("reward", 4, np.nan),
        ("reward", 0, np.inf),
    ],
)
def test_the_first_wrong_row_is_named(column: str, row: int, value: Any) -> None:
    wrong = columns()
    wrong[column][row] = value
    with pytest.raises(LogError) as caught:
        Log.of_columns(wrong)
    assert (caught.value.field, caught.value.index) == (column, (row,))


def test_episodes_must_not_come_back() -> None:
    wrong = columns()
    wrong["episode"] = np.array([4, 4, 4, 0, 0])
    with pytest.raises(LogError, match=r"episode\[3\]: got 0, expected .*above 4"):
        Log.of_columns(wrong)


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_nothing_follows_an_end(flag: str) -> None:
    wrong = columns()
    wrong[flag][1] = True
    with pytest.raises(LogError, match=rf"{flag}\[1\]"):
        Log.of_columns(wrong)


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_the_wrong_kind_or_length_are_refused(name: str) -> None:
    for bad in (np.array(["a"] * 5), columns()[name][:-1], columns()[name].reshape(5, 1)):
        with pytest.raises(LogError):
            Log.of_columns(columns() | {name: bad})
    with pytest.raises(LogError, match="no such column"):
        Log.of_columns({key: value for key, value in columns().items() if key != name})


def test_parquet_keeps_every_bit_and_small_types_are_read(tmp_path: Path) -> None:
    log = simulate_log(cases.mixture(0).mdp, episodes=20, seed=1)
    write_parquet(log, tmp_path / "log.parquet")
    again = read_log(tmp_path / "log.parquet")
    assert all((again.columns()[name] == column).all() for name, column in log.columns().items())
    small = {name: column.astype(np.int8) if column.dtype == np.int64 else column for name, column in columns().items()}
    pq.write_table(pa.table(small | {"note": ["x"] * 5}), tmp_path / "small.parquet")
    assert read_log(tmp_path / "small.parquet").next_state.tolist() == [1, 2, 0, 2, 2]


def test_files_that_are_no_logs_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    for content in (b"", b"PAR1 and then something else PAR1", b"\x80\x04pickle"):
        path.write_bytes(content)
        with pytest.raises(LogError, match="Parquet"):
            read_log(path)
    with pytest.raises(LogError, match="Parquet"):
        read_log(tmp_path / "nowhere.parquet")
    pq.write_table(pa.table({"episode": [0]}), path)
    with pytest.raises(LogError, match="step: got no such column"):
        read_log(path)
    names = [*columns(), "state"]
    pq.write_table(pa.table([pa.array(columns()[name]) for name in names], names=names), path)
    with pytest.raises(LogError, match="state: got 2 columns of that name"):
        read_log(path)
    pq.write_table(pa.table(columns() | {"reward": [0.0, None, 1.0, 0.0, 0.25]}), path)
    with pytest.raises(LogError, match=r"reward\[1\]: got null"):
        read_log(path)


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
