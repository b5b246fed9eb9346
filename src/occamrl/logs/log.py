"""Logs: episodes that somebody else has played, checked row by row, given as flows.

A log has one row per step, in the order in which the steps were collected:

====================================  ==================================================================================
episode                               whole numbers that never decrease; the rows of an episode are together
step                                  0, 1, 2, ... in every episode; may be missing
state, action, next_state             whole numbers from 0; ``next_state`` is the ``state`` of the next row
reward                                a number, in its original unit; may be missing, as a whole or in some rows
terminated                            true or false, true at most on the last row of an episode; may be missing
====================================  ==================================================================================

Other columns are ignored. The order of episodes matters: a policy that learned from earlier ones has drawn on their
outcomes, and the tests take outcomes in the order in which they came.

A file is read as it is needed, in blocks of whole episodes of which only counts are kept, so that it may be larger than
memory.
"""

from __future__ import annotations

import csv
import importlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from occamrl.errors import InvalidInput, OccamRLError, ParameterError, as_array, require_integer
from occamrl.problems.mdp import FiniteMDP, RewardMap, as_mdp, stream
from occamrl.protocols import Floats, Flow, Ints, Known, Outcomes
from occamrl.running.flow import walk

GROWTH = 0.1  # of the data from one flow to the next
BLOCK = 2**17  # rows that are read at once
_NEEDED = ("episode", "state", "action", "next_state")
_KINDS = dict.fromkeys((*_NEEDED, "step"), "a whole number >= 0")
_KINDS |= {"reward": "a number, or nothing", "terminated": "true or false"}
_DECIDES = 1e-3  # how far a reward may be from the known one where it tells outcomes apart, in the unit of [0, 1]

Columns = Mapping[str, NDArray[Any]]


class LogError(InvalidInput):
    """A log cannot be used; ``field`` is the column, ``index`` the row, counted from 0."""

    @property
    def where(self) -> str:
        """The column and the row in words."""
        return self.field if self.index is None else f"{self.field} in row {self.index[0]} (from 0)"


class Steps(NamedTuple):
    """Whole episodes of a log."""

    episode: Ints
    step: Ints
    state: Ints
    action: Ints
    next_state: Ints
    reward: Floats  # NaN where it is missing
    terminated: NDArray[np.bool_]
    first: int  # the number of its first row in the log

    @property
    def begin(self) -> Ints:
        """The rows at which episodes begin, and where the last one ends."""
        return np.append(np.flatnonzero(np.diff(self.episode, prepend=-1)), self.episode.size)

    def flow(self, first: int = 0, last: int | None = None) -> Flow:
        """Return what was counted in the episodes from ``first`` up to ``last``."""
        begin = self.begin[first : None if last is None else last + 1]
        rows = slice(int(begin[0]), int(begin[-1]))
        what = self.step[rows], self.state[rows], self.action[rows], self.next_state[rows], self.reward[rows]
        return Flow.joined([Flow(*what, np.ones(what[0].size, np.int64), begin.size - 1)])


def _refuse(name: str, bad: Any, values: Any, expected: str, first: int) -> None:
    """Refuse the first row that is marked; ``first`` is the number of the first row at hand."""
    for row in np.flatnonzero(bad)[:1].tolist():
        raise LogError(name, index=(first + row,), got=values[row], expected=expected)


def _numbers(name: str, column: Any, first: int) -> NDArray[Any]:
    """Return a column as numbers; a value of another kind is refused."""
    array = as_array(name, column, "one value per row")
    if array.ndim != 1:
        raise LogError(name, got=f"an array {list(array.shape)}", expected="one value per row")
    if array.dtype.kind not in "biuf":  # objects or texts: each value by itself
        values = array.tolist()
        missing = [value is None or type(value).__name__ == "NAType" for value in values]
        numbers = [isinstance(value, (int, float, np.number, np.bool_)) for value in values]
        _refuse(name, ~(np.array(numbers, bool) | missing), [f"{value!r:.80}" for value in values], _KINDS[name], first)
        array = np.array([math.nan if gone else float(value) for gone, value in zip(missing, values, strict=True)])
    with np.errstate(invalid="ignore"):
        if name == "reward":
            bad = np.isinf(array)
        elif name == "terminated":
            bad = (array != 0) & (array != 1)
        else:
            bad = ~((array >= 0) & (array <= 2**53) & (array == np.floor(array)))  # true where it is not a number
    _refuse(name, bad, array, _KINDS[name], first)
    return array.astype(np.float64 if name == "reward" else bool if name == "terminated" else np.int64)


def _steps(rows: Mapping[str, NDArray[Any]], first: int, last_episode: int) -> Steps:
    """Return whole episodes; refuse those that come back, wrong steps, and states that are no chain."""
    new = np.diff(rows["episode"], prepend=last_episode) != 0
    later = "episodes in the order in which they were collected, each in one piece"
    falls = rows["episode"] < np.append(last_episode, rows["episode"][:-1])
    falls[0] |= rows["episode"][0] == last_episode
    _refuse("episode", falls, rows["episode"], later, first)
    begin = np.flatnonzero(new)
    due = np.arange(new.size) - np.repeat(begin, np.diff(np.append(begin, new.size)))
    step = rows.get("step", due)
    _refuse("step", step != due, step, "0, 1, 2, ... in every episode", first)
    moved = ~new & (rows["state"] != np.roll(rows["next_state"], 1))
    _refuse("state", moved, rows["state"], "the next_state of the row before", first)
    terminated = rows.get("terminated", np.zeros(new.size, bool))
    ends = np.append(~new[1:], False) & terminated
    _refuse("terminated", ends, terminated, "true on the last step of an episode only", first)
    reward = rows.get("reward", np.full(new.size, math.nan))
    columns = (rows["episode"], due, rows["state"], rows["action"], rows["next_state"], reward, terminated)
    return Steps(*columns, first)


class Log:
    """Episodes, one row per step: what :func:`read_log` returns, with ``source``, ``rows`` and ``episodes``."""

    def __init__(self, batches: Callable[[], Iterable[Columns]], source: str = "log") -> None:
        self._batches, self.source, self.rows, self.episodes = batches, source, 0, 0
        for block in self.blocks():
            self.rows, self.episodes = self.rows + block.step.size, self.episodes + block.begin.size - 1

    def blocks(self) -> Iterator[Steps]:
        """Read it: whole episodes, of about 100,000 rows in each block."""
        first, last_episode, held, pieces = 0, -1, 0, list[Columns]()
        for batch in chain(self._batches(), [None]):
            if batch is not None:
                pieces.append({name: _numbers(name, batch[name], first + held) for name in _KINDS if name in batch})
                sizes = {name: column.size for name, column in pieces[-1].items()}
                if len(set(sizes.values())) > 1:
                    raise LogError("rows", got=f"columns of lengths {sizes}", expected="one value per row in each")
                held += sizes["episode"]
            if not held or (batch is not None and held < BLOCK):
                continue
            rows = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
            episode = rows["episode"]
            whole = held if batch is None else int(np.argmax(episode == episode[-1]))  # the last one may go on
            if whole:
                yield _steps({name: column[:whole] for name, column in rows.items()}, first, last_episode)
                first, held, last_episode = first + whole, held - whole, int(episode[whole - 1])
            pieces = [{name: column[whole:] for name, column in rows.items()}]
        if not first:
            raise LogError("rows", got="no step", expected="at least one")

    def flows(self, known: Known, outcomes: Outcomes, rewards: RewardMap | None = None) -> Iterator[Flow]:
        """Return its episodes as flows that a learner of ``known`` can learn from; each is a tenth of those before.

        Steps beyond the horizon count from 0 again. Rewards are those that ``known`` lists for what happened: the
        log's own are looked at only where one next state may come with several. ``outcomes`` is what the models allow
        (``features.attach(known)``), ``rewards`` leads from the unit of the log to that of ``known``.
        """
        done, parts = 0, list[Flow]()
        for block in self.blocks():
            block, first = _matched(block, known, outcomes, rewards or RewardMap()), 0
            episodes = block.begin.size - 1
            while first < episodes:
                held, due = sum(part.episodes for part in parts), max(1, math.ceil(done * GROWTH))
                last = min(episodes, first + due - held)
                parts.append(block.flow(first, last))
                first, held = last, held + last - first
                if held == due:
                    yield Flow.joined(parts)
                    done, parts = done + due, []
        if parts:
            yield Flow.joined(parts)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return all of it in memory, by column."""
        blocks = list(self.blocks())
        return {name: np.concatenate([getattr(block, name) for block in blocks]) for name in Steps._fields[:-1]}

    def __repr__(self) -> str:
        return f"Log({self.source}: {self.episodes:,} episodes, {self.rows:,} steps)"


def _matched(block: Steps, known: Known, outcomes: Outcomes, rewards: RewardMap) -> Steps:
    """Return a block in the terms of some models; a state, action or end that they do not have is refused."""
    for name, limit in (("state", known.states), ("action", known.actions), ("next_state", known.states)):
        column = getattr(block, name)
        _refuse(name, column >= limit, column, f"one of 0 to {limit - 1}, as in the models", block.first)
    pair, next_state = block.state * known.actions + block.action, block.next_state
    stirs = np.zeros(known.states, bool)  # states that can be left
    stirs[(outcomes.pair // known.actions)[outcomes.next_state != outcomes.pair // known.actions]] = True
    ends = block.terminated & stirs[next_state]
    if stirs[-1]:
        expected = "no termination where the models go on, or models whose last state is an end"
        _refuse("terminated", ends, block.terminated, expected, block.first)
    next_state = np.where(ends, known.states - 1, next_state)
    base, paid = known.base_reward.ravel()[pair], (block.reward - rewards.low) / rewards.scale
    sought = (np.full(pair.size, -1e9), np.full(pair.size, 1e9), np.nan_to_num(paid - base))  # below and above all
    low, high, found = (outcomes.locate(pair, next_state, bonus, known.states) for bonus in sought)
    bonus = outcomes.bonus[found]
    several = (found >= 0) & (outcomes.bonus[high] - outcomes.bonus[low] > _DECIDES)
    wrong = several & ~(np.abs(paid - base - bonus) <= _DECIDES)
    expected = "one that the models know: it tells outcomes apart here"
    _refuse("reward", wrong, block.reward, expected, block.first)
    given = base + np.where(found >= 0, bonus, 0.0) if known.rewards_known else paid
    return block._replace(step=block.step % known.horizon, next_state=next_state, reward=np.nan_to_num(given))


# Sources --------------------------------------------------------------------------------------------------------------


def _require_columns(names: Iterable[Any]) -> list[str]:
    """Return the columns of a log among some names; refuse names that lack one."""
    given = list(names)
    for name in _NEEDED:
        if name not in given:
            raise LogError(name, got="no such column", expected=f"the columns {', '.join(_NEEDED)}")
    return [name for name in _KINDS if name in given]


def _parquet(path: Path) -> Iterator[Columns]:
    """Read a Parquet file, some rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        names = _require_columns(file.schema_arrow.names)
        for batch in file.iter_batches(BLOCK, columns=names):
            yield {name: batch.column(name).to_numpy(zero_copy_only=False) for name in names}
    except (OSError, pa.ArrowException) as error:
        raise LogError(str(path), got=error, expected="a Parquet file, or one whose name ends in .csv") from error


def _csv(path: Path) -> Iterator[Columns]:
    """Read a CSV file with a line of names, some rows at a time."""
    import pyarrow as pa

    reader: Any = importlib.import_module("pyarrow.csv")
    header: list[str] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = [name.strip() for name in next(csv.reader(file), [])]
        names = _require_columns(header)
        kinds = dict.fromkeys(names, pa.int64()) | {"reward": pa.float64(), "terminated": pa.bool_()}
        options = reader.ConvertOptions(column_types=kinds, include_columns=names, null_values=["", "nan", "NaN"])
        one_by_one = reader.ReadOptions(use_threads=False, column_names=header, skip_rows=1)  # errors name the row
        with reader.open_csv(path, read_options=one_by_one, convert_options=options) as stream:
            for batch in stream:
                yield {name: batch.column(name).to_numpy(zero_copy_only=False) for name in names}
    except (OSError, csv.Error, UnicodeDecodeError, pa.ArrowException) as error:
        column, row = (re.search(f"{what} #([0-9]+)", str(error)) for what in ("column", "Row"))
        name = header[int(column[1])] if column else str(path) if row is None else "values"
        index = None if row is None else (int(row[1]) - 2,)
        expected = _KINDS.get(name, "a CSV file of a log")
        raise LogError(name, index=index, got=f"{error!s:.200}", expected=expected) from error


def _minari(dataset: Any) -> Iterator[Columns]:
    """Read a Minari dataset with Discrete spaces, an episode at a time; a start other than 0 is taken off."""
    offsets = []
    for kind in ("observation_space", "action_space"):
        if not hasattr(space := getattr(dataset, kind), "n"):
            raise LogError(kind, got=space, expected="a Discrete space")
        offsets.append(int(getattr(space, "start", 0)))
    for k, episode in enumerate(dataset.iterate_episodes()):
        seen, chosen = np.asarray(episode.observations), np.asarray(episode.actions)
        if seen.ndim != 1 or chosen.ndim != 1 or seen.size != chosen.size + 1:
            got = f"observations {seen.shape}, actions {chosen.shape}"
            raise LogError(f"episode {k}", got=got, expected="T + 1 and T whole numbers")
        states = seen.astype(np.int64) - offsets[0]
        columns = {"state": states[:-1], "action": chosen.astype(np.int64) - offsets[1], "next_state": states[1:]}
        about = {"reward": np.asarray(episode.rewards), "terminated": np.asarray(episode.terminations)}
        yield {"episode": np.full(chosen.size, k), **columns, **about}


def read_log(source: Any) -> Log:
    """Return the log in a Parquet or CSV file, in a data frame, or in a Minari dataset; every row is checked.

    >>> import occamrl as orl
    >>> columns = {"episode": [0, 0], "state": [0, 1], "action": [1, 0], "next_state": [1, 2], "reward": [0.0, 1.0]}
    >>> orl.read_log(columns)
    Log(log: 1 episodes, 2 steps)

    A file whose name ends in ``.csv`` is CSV with a line of names, any other one Parquet; files are read in blocks,
    now and whenever they are used. ``minari:ID`` is a Minari dataset on this machine. A data frame of pandas or Polars,
    an Arrow table or a mapping of arrays has the columns of a log. A :class:`LogError` names the first wrong row.
    """
    if isinstance(source, Log):
        return source
    if isinstance(source, str) and source.startswith("minari:"):
        try:
            dataset = importlib.import_module("minari").load_dataset(source.removeprefix("minari:"))
        except ModuleNotFoundError as error:
            raise OccamRLError('reading Minari datasets needs Minari: pip install "minari[hdf5]"') from error
        except (ValueError, KeyError, OSError) as error:
            raise LogError("dataset", got=f"{source!r}: {error}", expected="a Minari dataset here") from error
        return Log(lambda: _minari(dataset), source)
    if hasattr(source, "iterate_episodes"):
        return Log(lambda: _minari(source), "minari")
    if isinstance(source, (str, Path)):
        path = Path(source)
        if not path.is_file():
            raise LogError(str(source), got="no such file", expected="a Parquet or CSV file, or minari:ID")
        return Log(lambda: _csv(path) if path.suffix.lower() == ".csv" else _parquet(path), str(source))
    if not hasattr(source, "__getitem__"):
        raise ParameterError("log", got=f"{source!r:.100}", expected="a path, a data frame or a mapping of arrays")
    names = getattr(source, "column_names", getattr(source, "columns", source))  # of Arrow, pandas, a mapping
    columns = {name: source[name] for name in _require_columns(names)}
    return Log(lambda: [columns])


def simulate_log(mdp: FiniteMDP, *, episodes: int, seed: int = 0) -> Log:
    """Return a log of simulated episodes of full length, by a uniformly random policy."""
    problem, draw = as_mdp(mdp), stream(seed, "log")
    chances = np.full((problem.horizon, problem.states, problem.actions), 1.0 / problem.actions)
    flows = [walk(problem, chances, draw) for _ in range(require_integer("episodes", episodes, 1))]
    names = ("state", "action", "next_state", "reward")
    columns = {name: np.concatenate([getattr(flow, name) for flow in flows]) for name in names}
    columns["episode"] = np.repeat(np.arange(episodes), problem.horizon)
    return Log(lambda: [columns], f"simulated, seed {seed}")
