"""A log of episodes, checked row by row; from Parquet and CSV files, data frames and Minari datasets.

One row per step, without nulls, in the columns

=====================================  ================================================================================
episode, step, state, action,          any integer type; rows sorted by episode and step, steps counted from 0
next_state
reward                                 any integer or floating-point type
terminated, truncated                  bool
=====================================  ================================================================================

Rows are in the order in which they were collected: episodes one after the other, the steps 0, 1, 2, ... of each in a
row. The order matters: a policy that learned from earlier episodes has drawn on their outcomes, and the argument behind
the test takes outcomes in the order in which they came.

A log may be larger than memory: :class:`StoredLog` reads it in blocks of whole episodes. Where a block ends depends on
the log alone, not on how it is stored.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import io
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import ArrayLike, NDArray

from occamrl.envs.wrapper import RewardMap
from occamrl.errors import (
    InvalidInput,
    OccamRLError,
    ParameterError,
    ShapeError,
    as_array,
    as_path,
    require_integer,
    require_memory,
)
from occamrl.models.features import pair_of_outcome
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Floats, Ints, Known, Outcomes
from occamrl.running.files import write_whole
from occamrl.seeding import stream

MOST_ROWS = 100_000_000
BLOCK = 2**17  # rows at least in a block, but the last
_ROWS_A_BYTE = 1000  # more than any log compresses to
_ROUNDING = 1e-6  # how far a reward may be from the known one, in the unit of [0, 1]
_STORED = ("state", "action", "reward", "next_state", "terminated", "truncated")
COLUMNS = ("episode", "step", *_STORED)
_FLAGS = ("terminated", "truncated")
_KINDS = dict.fromkeys(COLUMNS, "a whole number >= 0")
_KINDS |= {"reward": "a finite number", **dict.fromkeys(_FLAGS, "true or false")}

_NUMBERS = (int, float, np.integer, np.floating, np.bool_)

Flags = NDArray[np.bool_]
Columns = Mapping[str, NDArray[Any]]


class LogError(InvalidInput):
    """A log cannot be used; ``field`` is the column, ``index`` the row, counted from 0."""

    @property
    def where(self) -> str:
        """The column and the row in words."""
        return self.field if self.index is None else f"{self.field} in row {self.index[0]} (from 0)"


@dataclass(frozen=True, kw_only=True, eq=False)
class Log:
    """Episodes, one row per step; use :meth:`of_columns`, which checks them.

    ``begin`` says at which row each episode begins, and where the last one ends.
    """

    state: Ints  # [n]
    action: Ints  # [n]
    reward: Floats  # [n] in the unit of whoever collected it
    next_state: Ints  # [n]
    terminated: Flags  # [n]
    truncated: Flags  # [n]
    begin: Ints  # [K + 1]
    source: str = "log"
    first: int = 0  # the number of its first row, where this is a block of a longer log

    @property
    def episodes(self) -> int:
        """The number K of episodes."""
        return self.begin.size - 1

    @property
    def rows(self) -> int:
        """The number n of steps."""
        return int(self.state.size)

    @property
    def step(self) -> Ints:
        """The number of each step in its episode, from 0."""
        return np.arange(self.rows) - np.repeat(self.begin[:-1], np.diff(self.begin))

    def part(self, first: int, last: int) -> Log:
        """Return the episodes from ``first`` up to ``last``."""
        begin = self.begin[first : last + 1]
        rows = slice(int(begin[0]), int(begin[-1]))
        columns = {name: getattr(self, name)[rows] for name in _STORED}
        return Log(**columns, begin=begin - begin[0], source=self.source, first=self.first + rows.start)

    def head(self, episodes: int) -> Log:
        """Return the first episodes."""
        return self.part(0, min(episodes, self.episodes))

    def blocks(self, skip: int = 0) -> Iterator[Log]:
        """Return the blocks of a log that is in memory, from row ``skip`` on, where one of them begins."""
        first = int(np.searchsorted(self.begin, skip))
        while first < self.episodes:
            last = min(int(np.searchsorted(self.begin, self.begin[first] + BLOCK)), self.episodes)
            yield self.part(first, last)
            first = last

    def fingerprint(self) -> str:
        """Return a hash of all rows."""
        digest = hashlib.sha256()
        for name in (*_STORED, "begin"):
            digest.update(np.ascontiguousarray(getattr(self, name)).tobytes())
        return digest.hexdigest()

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name, as they are stored."""
        episode = np.repeat(np.arange(self.episodes), np.diff(self.begin))
        return {"episode": episode, "step": self.step, **{name: getattr(self, name) for name in _STORED}}

    @classmethod
    def of_columns(cls, columns: Any, *, source: str = "log", first: int = 0) -> Log:
        """Return the log of these columns (see :data:`COLUMNS`), or refuse the first row that is wrong (LogError).

        ``columns`` is a mapping of arrays, or a data frame.
        """
        names = getattr(columns, "column_names", getattr(columns, "columns", columns))  # of Arrow, pandas, a mapping
        several = isinstance(names, Iterable) and getattr(names, "ndim", 1) > 0  # an array of one number is iterable
        _require_columns([name for name in names if isinstance(name, str)] if several else [])
        arrays = {name: _array(columns[name], name, first) for name in COLUMNS}
        sizes = {array.size for array in arrays.values()}
        if len(sizes) != 1 or 0 in sizes:
            raise LogError("rows", got=f"columns of {sorted(sizes)} rows", expected="as many in each, at least one")
        if max(sizes) > MOST_ROWS:
            raise LogError("rows", got=f"{max(sizes):,}", expected=f"at most {MOST_ROWS:,}")
        new = np.concatenate([[True], np.diff(arrays["episode"]) != 0])
        begin = np.append(np.flatnonzero(new), new.size)
        _require_order(arrays, new, first)
        return cls(**{name: arrays[name] for name in _STORED}, begin=begin, source=source, first=first)


def _require_columns(names: Sequence[Any]) -> None:
    """Refuse names among which one of a log's columns is missing or comes twice."""
    for name in COLUMNS:
        if names.count(name) != 1:
            got = f"{names.count(name)} columns of that name" if name in names else "no such column"
            expected = f"the columns {', '.join(COLUMNS)}, each once, among {', '.join(map(str, names))[:200]}"
            raise LogError(name, got=got, expected=expected)


def _array(column: Any, name: str, first: int) -> NDArray[Any]:
    """Return one column as integers, floats or flags; a row whose value is of another kind is refused."""
    array = as_array(name, column, "one value per row")
    if array.ndim != 1:
        raise LogError(name, got=f"an array {list(array.shape)}", expected="one value per row")
    if array.dtype.kind not in "biuf":  # objects or texts: each value by itself
        values = array.tolist()
        number = [isinstance(value, _NUMBERS) and -(2**62) <= value <= 2**62 for value in values]
        refuse_first(name, ~np.array(number, dtype=bool), [repr(value)[:80] for value in values], _KINDS[name], first)
        array = np.array(values)
    if name == "reward":
        bad = ~np.isfinite(array)
    elif name in _FLAGS:
        bad = (array != 0) & (array != 1)
    else:
        bad = ~((array >= 0) & (array <= 2**62) & (array == np.floor(array)))  # true where not a number
    refuse_first(name, bad, array, _KINDS[name], first)
    return array.astype(np.float64 if name == "reward" else bool if name in _FLAGS else np.int64)


def refuse_first(name: str, bad: Flags, values: Any, expected: str | Callable[[int], str], first: int = 0) -> None:
    """Refuse the first row that is marked; ``expected`` may depend on the row, ``first`` is the number of the first."""
    if bad.any():
        row = int(np.argmax(bad))
        wanted = expected if isinstance(expected, str) else expected(row)
        raise LogError(name, index=(first + row,), got=values[row], expected=wanted)


def _require_order(arrays: Columns, new: Flags, first: int) -> None:
    """Refuse episodes that come back, steps that do not count 0, 1, 2, ..., and steps that are not a chain."""
    before = {name: np.concatenate([arrays[name][:1], arrays[name][:-1]]) for name in COLUMNS}  # the row before
    due = np.where(new, 0, before["step"] + 1)

    def check(name: str, bad: Flags, expected: str | Callable[[int], str]) -> None:
        refuse_first(name, bad, arrays[name], expected, first)

    check("episode", arrays["episode"] < before["episode"], lambda row: _LATER.format(before["episode"][row]))
    check("step", arrays["step"] != due, lambda row: f"{due[row]}: steps count 0, 1, 2, ...")
    moved = ~new & (arrays["state"] != before["next_state"])
    check("state", moved, lambda row: f"{before['next_state'][row]}, the next_state of row {first + row - 1}")
    for name in _FLAGS:
        check(name, np.append(~new[1:], False) & arrays[name], "true on the last step of an episode only")


_LATER = "episodes in the order in which they were collected, above {}"


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file with the columns of a log."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as stream:
            file = pq.ParquetFile(stream)
            most = min(MOST_ROWS, _ROWS_A_BYTE * (1000 + path.stat().st_size))
            if file.metadata.num_rows > most:
                raise LogError(str(path), got=f"{file.metadata.num_rows:,} rows", expected=f"at most {most:,}")
            _require_columns(file.schema_arrow.names)
            for name in COLUMNS:  # texts may be far longer than the file
                kind = str(file.schema_arrow.field(name).type)
                if not kind.removeprefix("u").startswith(("int", "float", "double", "halffloat", "bool")):
                    raise LogError(name, got=f"{kind:.80} values", expected=f"{_KINDS[name]} in every row")
            yield file
    except (OSError, pa.ArrowException, MemoryError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LogError(str(path), got=reason, expected="a Parquet file, or one whose name ends in .csv") from error


def _parquet_batches(path: Path, skip: int) -> Iterator[Columns]:
    """Return the columns from row ``skip`` on, some rows at a time; row groups before it are not read."""
    with _parquet(path) as file:
        groups, first = list(range(file.metadata.num_row_groups)), 0
        while groups and first + file.metadata.row_group(groups[0]).num_rows <= skip:
            first += file.metadata.row_group(groups.pop(0)).num_rows
        yield from _arrays(file.iter_batches(BLOCK, row_groups=groups, columns=list(COLUMNS)), first, skip)


def _csv_batches(path: Path, skip: int) -> Iterator[Columns]:
    """Return the columns of a CSV file with a line of names, from row ``skip`` on, some rows at a time."""
    import pyarrow as pa

    reader: Any = importlib.import_module("pyarrow.csv")
    kinds = {name: pa.bool_() if name in _FLAGS else pa.int64() for name in COLUMNS} | {"reward": pa.float64()}
    options = reader.ConvertOptions(column_types=kinds, include_columns=list(COLUMNS), null_values=[""])
    _require_csv(path)
    try:
        with reader.open_csv(path, convert_options=options) as stream:
            yield from _arrays(stream, 0, skip)
    except (OSError, pa.ArrowException, MemoryError) as error:
        reason = getattr(error, "strerror", None) or str(error)[:200]
        raise _bad_cell(path) or LogError(str(path), got=reason, expected=_CSV) from error


_CSV = "a CSV file of a log"
_LONGEST_LINE = 2**20  # of CSV; Arrow reads none that is longer


def _require_csv(path: Path) -> None:
    """Refuse a file whose first line does not name the columns of a log."""
    try:
        _require_columns(next(_csv_rows(path), []))
    except (OSError, csv.Error) as error:
        raise LogError(str(path), got=getattr(error, "strerror", None) or error, expected=_CSV) from error


def _csv_rows(path: Path) -> Iterator[list[str]]:
    """Return the rows of a CSV file as texts, the names of its columns first."""

    def lines() -> Iterator[str]:
        while line := file.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE:
                raise csv.Error(f"a line of {_LONGEST_LINE:,} characters or more")
            yield line

    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        yield from (cells for cells in csv.reader(lines()) if cells)


def _bad_cell(path: Path) -> LogError | None:
    """Return the error of the first row of a CSV file that is too short or long, or has a value of another kind."""
    try:
        rows = _csv_rows(path)
        names = next(rows)
        for row, cells in enumerate(rows):
            if len(cells) != len(names):
                return LogError("values", index=(row,), got=len(cells), expected=f"{len(names)}, one for each column")
            for name in COLUMNS:
                text = cells[names.index(name)].strip()
                if not (_BOOLEAN if name in _FLAGS else _NUMBER if name == "reward" else _WHOLE).fullmatch(text):
                    return LogError(name, index=(row,), got=repr(text[:80]), expected=_KINDS[name])
    except (OSError, csv.Error):
        pass  # the error that led here says why
    return None


_WHOLE = re.compile(r"-?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
_BOOLEAN = re.compile(r"true|false|0|1", re.IGNORECASE)


def _arrays(batches: Iterable[Any], first: int, skip: int) -> Iterator[Columns]:
    """Return Arrow's batches as arrays, from row ``skip`` on; the first of all rows has the number ``first``."""
    for batch in batches:
        for name in COLUMNS:
            if batch.column(name).null_count:
                row = first + batch.column(name).to_pylist().index(None)
                raise LogError(name, index=(row,), got="nothing", expected=_KINDS[name])
        cut, first = max(0, skip - first), first + batch.num_rows
        if cut < batch.num_rows:
            yield {name: batch.column(name).to_numpy(zero_copy_only=False)[cut:] for name in COLUMNS}


def whole_episodes(batches: Iterable[Columns], source: str, first: int = 0) -> Iterator[Log]:
    """Return columns that come in pieces as blocks of whole episodes, checked; ``first`` is the number of a row."""
    pieces: list[Columns] = []
    last = -1  # the number of the last episode of the block before
    for batch in itertools.chain(batches, [None]):
        pieces += [] if batch is None else [batch]
        if batch is not None and sum(piece["episode"].size for piece in pieces) <= BLOCK:
            continue
        if batch is not None and pieces[0]["episode"][:1] == batch["episode"][-1:]:  # nothing ends here
            _require_room(pieces)
            continue
        if not pieces and first:
            return  # resumed after the last row
        left = joined(pieces)
        while left["episode"].size:
            new = np.flatnonzero(np.diff(left["episode"][BLOCK - 1 :]))  # rows before another episode begins
            if not new.size and batch is not None:
                break
            cut = BLOCK + int(new[0]) if new.size else left["episode"].size
            block = Log.of_columns({name: column[:cut] for name, column in left.items()}, source=source, first=first)
            refuse_first("episode", left["episode"][:1] <= last, left["episode"], _LATER.format(last), first)
            yield block
            last, first = left["episode"][cut - 1], first + cut
            left = {name: column[cut:] for name, column in left.items()}
        pieces = [left]


def joined(pieces: Sequence[Columns]) -> dict[str, NDArray[Any]]:
    """Return columns that come in pieces as one each."""
    if not pieces:
        raise LogError("rows", got="no step", expected="at least one")
    _require_room(pieces)
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in COLUMNS}


def _require_room(pieces: Sequence[Columns]) -> None:
    """Refuse rows that would not fit into memory while they are checked."""
    rows = sum(piece["episode"].size for piece in pieces)
    require_memory("rows", f"{rows:,} at a time", rows, 2 * len(COLUMNS))


def write_parquet(log: Log, path: str | Path) -> None:
    """Write a log to a Parquet file; a file of that name is replaced only once the new one is whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table(log.columns()), buffer, compression="zstd")
    write_whole(as_path("path", path), buffer.getvalue())


def _minari(name: str) -> Any:
    """Return a Minari dataset (https://minari.farama.org) on this machine; it needs the extra ``occamrl[minari]``."""
    try:
        import minari
    except ModuleNotFoundError as error:
        raise OccamRLError('reading Minari datasets needs Minari: pip install "minari[hdf5]"') from error
    try:
        dataset = minari.load_dataset(name)
    except (FileNotFoundError, ValueError, KeyError, OSError) as error:
        raise LogError("dataset", got=f"{name!r}: {error}", expected="the id of a local Minari dataset") from error
    if dataset.total_steps > MOST_ROWS:
        raise LogError("dataset", got=f"{dataset.total_steps:,} steps", expected=f"at most {MOST_ROWS:,}")
    for kind in ("observation_space", "action_space"):
        if not isinstance(getattr(dataset, kind), Discrete):
            raise LogError(kind, got=getattr(dataset, kind), expected="a Discrete space")
    return dataset


def _minari_batches(name: str, skip: int) -> Iterator[Columns]:
    """Return the columns of a Minari dataset, an episode at a time; a start other than 0 is taken off."""
    dataset: Any = _minari(name)
    first = int(dataset.observation_space.start), int(dataset.action_space.start)
    for columns in episode_columns(dataset.iterate_episodes(), *first):
        skip -= columns["step"].size
        if skip < 0:
            yield columns


def episode_columns(episodes: Any, first_state: int = 0, first_action: int = 0) -> Iterator[Columns]:
    """Return the columns of Minari's episodes, each with T + 1 observations and T of everything else."""
    for k, episode in enumerate(episodes):
        seen, chosen = (np.asarray(each) for each in (episode.observations, episode.actions))
        steps = chosen.shape[0]
        if seen.ndim != 1 or chosen.ndim != 1 or seen.shape[0] != steps + 1:
            got = f"observations {seen.shape}, actions {chosen.shape}"
            raise LogError(f"episode {k}", got=got, expected="T + 1 and T whole numbers")
        if not steps:
            continue
        states = seen.astype(np.int64) - first_state
        yield {
            "episode": np.full(steps, k),
            "step": np.arange(steps),
            "state": states[:-1],
            "action": chosen.astype(np.int64) - first_action,
            "reward": np.asarray(episode.rewards, dtype=np.float64),
            "next_state": states[1:],
            "terminated": np.asarray(episode.terminations, dtype=bool),
            "truncated": np.asarray(episode.truncations, dtype=bool),
        }


def _batches(source: str, skip: int = 0) -> Iterator[Columns]:
    """Return the columns of a Parquet or CSV file or of ``minari:ID``, some rows at a time."""
    if source.startswith("minari:"):
        return _minari_batches(source.removeprefix("minari:"), skip)
    path, is_csv = _file(source)
    return _csv_batches(path, skip) if is_csv else _parquet_batches(path, skip)


def _file(source: str) -> tuple[Path, bool]:
    """Return the path of a file and whether it is CSV; what is no regular file is refused."""
    path = Path(source)
    if not os.path.isfile(path):  # noqa: PTH113  # a name too long is not there, either
        got = "no regular file" if os.path.exists(path) else "no such file"  # noqa: PTH110  # as above
        raise LogError(source, got=got, expected="a Parquet or CSV file, or minari:ID")
    return path, path.suffix.lower() == ".csv"


def read_log(source: Any) -> Log:
    """Return the log in a Parquet or CSV file, in a data frame, or in the local Minari dataset ``minari:ID``.

    >>> import occamrl as orl
    >>> columns = {"episode": [0, 0], "step": [0, 1], "state": [0, 1], "action": [1, 0], "reward": [0.0, 1.0]}
    >>> columns |= {"next_state": [1, 2], "terminated": [0, 0], "truncated": [0, 1]}
    >>> orl.read_log(columns).episodes
    1

    Parameters
    ----------
    source : path, str, or data frame
        A file whose name ends in ``.csv`` is CSV with a line of names, every other one is Parquet. A data frame of
        pandas or Polars, or a mapping of arrays, has the columns of a log.

    Raises
    ------
    LogError
        With the column and the first row that is wrong.
    """
    if not isinstance(source, (str, bytes, Path)) and hasattr(source, "__getitem__"):
        return Log.of_columns(source)
    if not isinstance(source, (str, Path)):
        raise ParameterError("log", got=f"{source!r:.100}", expected="a path, a data frame or a mapping of arrays")
    text = str(as_path("log", source))
    return Log.of_columns(joined(list(_batches(text))), source=text)


@dataclass(frozen=True)
class StoredLog:
    """A log that is read as it is needed; ``source`` as for :func:`read_log`."""

    source: str

    def blocks(self, skip: int = 0) -> Iterator[Log]:
        """Return its blocks from row ``skip`` on, where one of them begins."""
        return whole_episodes(_batches(self.source, skip), self.source, skip)

    @property
    def rows(self) -> int:
        """The number of steps; of a CSV file, of lines."""
        if self.source.startswith("minari:"):
            return int(_minari(self.source.removeprefix("minari:")).total_steps)
        path, is_csv = _file(self.source)
        if not is_csv:
            with _parquet(path) as file:
                return int(file.metadata.num_rows)
        _require_csv(path)
        with path.open("rb") as lines:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: lines.read(2**20), b""))

    def fingerprint(self) -> str:
        """Return a hash of the file; of a dataset, its name."""
        if self.source.startswith("minari:"):
            return self.source
        with Path(self.source).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


class Matched(NamedTuple):
    """The rows of a log, as the formulas need them."""

    h: Ints  # [n] whose V_{h + 1} a value row may ask for: step modulo H - 1, so that the last step says something too
    pair: Ints  # [n] s*A + a
    outcome: Ints  # [n] index into the outcomes of the models; -1: no model allows it
    begin: Ints  # [K + 1] first row of each episode
    start: Ints  # [K] its initial state


def match_rows(log: Log, known: Known, outcomes: Outcomes, rewards: RewardMap) -> Matched:
    """Find every row of a log among the outcomes of the models.

    A transition that no model allows is marked, not refused: it says that the truth is outside the ladder.

    Raises
    ------
    LogError
        A state or action that does not exist, a reward that is not the known one, an end where the models have none.
    """
    for name, limit in (("state", known.states), ("action", known.actions), ("next_state", known.states)):
        column = getattr(log, name)
        refuse_first(name, column >= limit, column, f"one of 0..{limit - 1}, as in the models", log.first)
    pair = log.state * known.actions + log.action
    target = _ends(log, known, outcomes)
    keys = pair_of_outcome(outcomes) * known.states + outcomes.next_state
    order = np.lexsort((outcomes.bonus, keys))
    wanted = pair * known.states + target
    low, high = (np.searchsorted(keys[order], wanted, side=side) for side in ("left", "right"))
    outcome = np.where(low < high, order[np.minimum(low, order.size - 1)], -1)
    base, unit = known.base_reward.ravel()[pair], (log.reward - rewards.low) / rewards.scale
    miss = np.abs(base + outcomes.bonus[outcome] - unit)
    several = int((high - low).max(initial=0))  # rewards for one next state: the one that was paid
    for offset in range(1, several):
        other = order[np.minimum(low + offset, order.size - 1)]
        better = (low + offset < high) & (np.abs(base + outcomes.bonus[other] - unit) < miss)
        outcome = np.where(better, other, outcome)
        miss = np.abs(base + outcomes.bonus[outcome] - unit)

    def due(row: int) -> str:
        return f"{rewards.total(base[row] + outcomes.bonus[outcome[row]], 1):.6g}, which the models know"

    refuse_first("reward", (outcome >= 0) & (miss > _ROUNDING), log.reward, due, log.first)
    return Matched(log.step % max(1, known.horizon - 1), pair, outcome, log.begin, log.state[log.begin[:-1]])


def _ends(log: Log, known: Known, outcomes: Outcomes) -> Ints:
    """Return the next states, a termination in a state that goes on being replaced by the models' end.

    Tables of Gymnasium whose last states are no self-loops have a state added, the last, where episodes end.
    """
    if not log.terminated.any():
        return log.next_state
    owner = pair_of_outcome(outcomes) // known.actions
    stirs = np.zeros(known.states, dtype=bool)
    stirs[owner[outcomes.next_state != owner]] = True
    moved = log.terminated & stirs[log.next_state]
    if stirs[-1]:
        expected = "no termination where no model ends: truncated, or models with an end"
        refuse_first("terminated", moved, log.terminated, expected, log.first)
    return np.where(moved, known.states - 1, log.next_state)


def simulate_log(mdp: FiniteMDP, *, episodes: int, seed: int = 0, policy: ArrayLike | None = None) -> Log:
    """Return a log of episodes of full length.

    Parameters
    ----------
    mdp : FiniteMDP, or a problem that has one
    episodes, seed : int
    policy : array [H, S, A], optional
        Probabilities of actions; uniformly random by default.
    """
    problem = as_mdp(mdp)
    count, horizon, rng = require_integer("episodes", episodes, 1), problem.horizon, stream(seed, "log")
    sizes = (horizon, problem.states, problem.actions)
    chances = np.full(sizes, 1.0 / problem.actions) if policy is None else np.asarray(policy, dtype=np.float64)
    if chances.shape != sizes:
        raise ShapeError("policy", got=chances.shape, expected=f"[H, S, A] = {sizes}")
    truth = problem.truth
    states, taken, outcomes = (np.zeros((count, horizon), dtype=np.int64) for _ in range(3))
    now = _draw(truth.initial_cumulative[0], np.zeros(count, np.int64), np.full(count, problem.states), rng)
    for h in range(horizon):
        states[:, h] = now
        whole = np.cumsum(chances[h], axis=1)
        taken[:, h] = np.minimum((rng.random(count)[:, None] >= whole[now]).sum(axis=1), problem.actions - 1)
        pair = now * problem.actions + taken[:, h]
        cumulative = truth.cumulative[h % truth.cumulative.shape[0]]
        outcomes[:, h] = _draw(cumulative, truth.outcomes.start[pair], truth.outcomes.start[pair + 1], rng)
        now = truth.outcomes.next_state[outcomes[:, h]]
    happened = outcomes.ravel()
    columns = {
        "episode": np.repeat(np.arange(count), horizon),
        "step": np.tile(np.arange(horizon), count),
        "state": states.ravel(),
        "action": taken.ravel(),
        "reward": truth.base_reward[(states * problem.actions + taken).ravel()] + truth.outcomes.bonus[happened],
        "next_state": truth.outcomes.next_state[happened],
        "terminated": np.zeros(count * horizon, dtype=bool),
        "truncated": np.tile(np.arange(horizon) == horizon - 1, count),
    }
    return Log.of_columns(columns, source=f"simulated, seed {seed}")


def _draw(cumulative: Floats, first: Ints, last: Ints, rng: np.random.Generator) -> Ints:
    """Return, for each range of running sums, the first index whose sum a uniform number is below."""
    u, at = rng.random(first.size), first.copy()
    for _ in range(int((last - first).max())):
        at = np.where((at < last - 1) & (u >= cumulative[np.minimum(at, cumulative.size - 1)]), at + 1, at)
    return at
