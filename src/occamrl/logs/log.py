"""A log of episodes, checked row by row; from Parquet files and Minari datasets.

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
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import ArrayLike, NDArray

from occamrl.envs.wrapper import RewardMap
from occamrl.errors import InvalidInput, OccamRLError, ShapeError, as_path, require_integer
from occamrl.models.features import pair_of_outcome
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Floats, Ints, Known, Outcomes
from occamrl.seeding import stream

MOST_ROWS = 100_000_000
_ROWS_A_BYTE = 1000  # more than any log compresses to
_ROUNDING = 1e-6  # how far a reward may be from the known one, in the unit of [0, 1]
_FLAGS = ("terminated", "truncated")
_STORED = ("state", "action", "reward", "next_state", "terminated", "truncated")
COLUMNS = ("episode", "step", *_STORED)
_KINDS = {"reward": ("iuf", "numbers"), **dict.fromkeys(_FLAGS, ("b", "true or false"))}  # the others: whole numbers

Flags = NDArray[np.bool_]


class LogError(InvalidInput):
    """A log cannot be used; ``field`` is the column, ``index`` the row, counted from 0."""


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

    def head(self, episodes: int) -> Log:
        """Return the first episodes."""
        begin = self.begin[: episodes + 1]
        part = slice(0, int(begin[-1]))
        columns = {name: getattr(self, name)[part] for name in _STORED}
        return Log(**columns, begin=begin, source=self.source)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name, as they are stored."""
        episode = np.repeat(np.arange(self.episodes), np.diff(self.begin))
        return {"episode": episode, "step": self.step, **{name: getattr(self, name) for name in _STORED}}

    @classmethod
    def of_columns(cls, columns: Mapping[str, Any], *, source: str = "log") -> Log:
        """Return the log of these columns (see :data:`COLUMNS`), or refuse the first row that is wrong (LogError)."""
        arrays = {name: _array(columns, name) for name in COLUMNS}
        sizes = {array.size for array in arrays.values()}
        if len(sizes) != 1 or 0 in sizes:
            raise LogError("rows", got=f"columns of {sorted(sizes)} rows", expected="as many in each, at least one")
        if max(sizes) > MOST_ROWS:
            raise LogError("rows", got=f"{max(sizes):,}", expected=f"at most {MOST_ROWS:,}")
        new = np.concatenate([[True], np.diff(arrays["episode"]) != 0])
        begin = np.append(np.flatnonzero(new), new.size)
        _require_order(arrays, new)
        return cls(**{name: arrays[name] for name in _STORED}, begin=begin, source=source)


def _array(columns: Mapping[str, Any], name: str) -> NDArray[Any]:
    """Return one column as integers, floats or flags."""
    if not isinstance(columns, Mapping) or name not in columns:
        raise LogError(name, got="no such column", expected=f"the columns {', '.join(COLUMNS)}")
    array = np.asarray(columns[name])
    kinds, expected = _KINDS.get(name, ("iu", "whole numbers"))
    if array.ndim != 1 or (array.dtype.kind not in kinds and array.size):
        raise LogError(name, got=f"{array.dtype}{list(array.shape)}", expected=f"a column of {expected}")
    if name in _FLAGS:
        return array.astype(bool)
    if name == "reward":
        floats = array.astype(np.float64)
        refuse_first(name, ~np.isfinite(floats), array, "a finite number")
        return floats
    whole = array.astype(np.int64)
    refuse_first(name, (whole < 0) | (whole > 2**62), array, "a whole number >= 0")
    return whole


def refuse_first(name: str, bad: Flags, values: NDArray[Any], expected: str | Callable[[int], str]) -> None:
    """Refuse the first row that is marked; ``expected`` may depend on the row."""
    if bad.any():
        row = int(np.argmax(bad))
        raise LogError(
            name, index=(row,), got=values[row], expected=expected if isinstance(expected, str) else expected(row)
        )


def _require_order(arrays: Mapping[str, NDArray[Any]], new: Flags) -> None:
    """Refuse episodes that come back, steps that do not count 0, 1, 2, ..., and steps that are not a chain."""
    before = {name: np.concatenate([arrays[name][:1], arrays[name][:-1]]) for name in COLUMNS}  # the row before
    due = np.where(new, 0, before["step"] + 1)

    def later(row: int) -> str:
        return f"episodes in the order in which they were collected, above {before['episode'][row]}"

    def joined(row: int) -> str:
        return f"{before['next_state'][row]}, the next_state of row {row - 1}"

    refuse_first("episode", arrays["episode"] < before["episode"], arrays["episode"], later)
    refuse_first("step", arrays["step"] != due, arrays["step"], lambda row: f"{due[row]}: steps count 0, 1, 2, ...")
    refuse_first("state", ~new & (arrays["state"] != before["next_state"]), arrays["state"], joined)
    goes_on = np.append(~new[1:], False)
    for name in _FLAGS:
        refuse_first(name, goes_on & arrays[name], arrays[name], "true on the last step of an episode only")


def read_parquet(path: str | Path) -> Log:
    """Return the log in a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = as_path("log", path)
    if path.exists() and not path.is_file():
        raise LogError(str(path), got="no regular file", expected="a Parquet file")
    try:
        with path.open("rb") as stream:
            file = pq.ParquetFile(stream)
            most = min(MOST_ROWS, _ROWS_A_BYTE * (1000 + path.stat().st_size))
            if file.metadata.num_rows > most:
                raise LogError(str(path), got=f"{file.metadata.num_rows:,} rows", expected=f"at most {most:,}")
            for name in COLUMNS:
                count = file.schema_arrow.names.count(name)
                if count != 1:
                    got = f"{count} columns of that name" if count else "no such column"
                    raise LogError(name, got=got, expected=f"the columns {', '.join(COLUMNS)}")
                kind = str(file.schema_arrow.field(name).type)
                if not kind.removeprefix("u").startswith(("int", "float", "double", "halffloat", "bool")):
                    raise LogError(name, got=kind[:80], expected="numbers, or true and false")
            table = file.read(columns=list(COLUMNS))
    except (OSError, pa.ArrowException, MemoryError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LogError(str(path), got=reason, expected="a Parquet file") from error
    for name in COLUMNS:
        if table[name].null_count:
            row = table[name].to_pylist().index(None)
            raise LogError(name, index=(row,), got="null", expected="a value in every row")
    return Log.of_columns({name: table[name].to_numpy() for name in COLUMNS}, source=str(path))


def write_parquet(log: Log, path: str | Path) -> None:
    """Write a log to a Parquet file; a file of that name is replaced only once the new one is whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        pq.write_table(pa.table(log.columns()), partial, compression="zstd")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_minari(name: str) -> Log:
    """Return the log in a Minari dataset (https://minari.farama.org) that is on this machine, by its id.

    It needs the extra ``occamrl[minari]``. Observations and actions must be Discrete; a start other than 0 is taken
    off, so that both count from 0.
    """
    try:
        import minari
    except ModuleNotFoundError as error:
        raise OccamRLError("reading Minari datasets needs the extra occamrl[minari]") from error
    try:
        dataset = minari.load_dataset(name)
    except (FileNotFoundError, ValueError, KeyError, OSError) as error:
        raise LogError("dataset", got=f"{name!r}: {error}", expected="the id of a local Minari dataset") from error
    if dataset.total_steps > MOST_ROWS:
        raise LogError("dataset", got=f"{dataset.total_steps:,} steps", expected=f"at most {MOST_ROWS:,}")
    spaces = {"observation_space": dataset.observation_space, "action_space": dataset.action_space}
    for kind, space in spaces.items():
        if not isinstance(space, Discrete):
            raise LogError(kind, got=space, expected="a Discrete space")
    first = (int(space.start) for space in spaces.values())
    return log_of_episodes(dataset.iterate_episodes(), *first, source=f"minari:{name}")


def log_of_episodes(episodes: Any, first_state: int = 0, first_action: int = 0, *, source: str = "minari") -> Log:
    """Return the log of Minari's episodes, each with T + 1 observations and T of everything else."""
    parts: dict[str, list[Any]] = {}
    for k, episode in enumerate(episodes):
        seen, chosen = (np.asarray(each) for each in (episode.observations, episode.actions))
        steps = chosen.shape[0]
        if seen.ndim != 1 or chosen.ndim != 1 or seen.shape[0] != steps + 1:
            got = f"observations {seen.shape}, actions {chosen.shape}"
            raise LogError("episode", index=(k,), got=got, expected="T + 1 and T whole numbers")
        if not steps:
            continue
        states = seen.astype(np.int64) - first_state
        columns = {
            "episode": np.full(steps, k),
            "step": np.arange(steps),
            "state": states[:-1],
            "action": chosen.astype(np.int64) - first_action,
            "reward": np.asarray(episode.rewards, dtype=np.float64),
            "next_state": states[1:],
            "terminated": np.asarray(episode.terminations, dtype=bool),
            "truncated": np.asarray(episode.truncations, dtype=bool),
        }
        for name, column in columns.items():
            parts.setdefault(name, []).append(column)
    if not parts:
        raise LogError("episode", got="no step", expected="at least one")
    return Log.of_columns({name: np.concatenate(column) for name, column in parts.items()}, source=source)


def read_log(source: str | Path) -> Log:
    """Return the log in a Parquet file, or in the local Minari dataset ``minari:ID``.

    Raises
    ------
    LogError
        With the column and the first row that is wrong.
    """
    text = str(as_path("log", source))
    return read_minari(text.removeprefix("minari:")) if text.startswith("minari:") else read_parquet(text)


class Matched(NamedTuple):
    """The rows of a log, as the formulas need them."""

    h: Ints  # [n] step modulo H: an episode that is longer than the horizon goes on as if it began anew
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
        refuse_first(name, column >= limit, column, f"one of 0..{limit - 1}, as in the models")
    pair = log.state * known.actions + log.action
    target = _ends(log, known, outcomes)
    keys = pair_of_outcome(outcomes) * known.states + outcomes.next_state
    order = np.lexsort((outcomes.bonus, keys))
    wanted = pair * known.states + target
    low, high = (np.searchsorted(keys[order], wanted, side=side) for side in ("left", "right"))
    outcome = np.where(low < high, order[np.minimum(low, order.size - 1)], -1)
    base, unit = known.base_reward.ravel()[pair], (log.reward - rewards.low) / rewards.scale
    miss = np.abs(base + outcomes.bonus[outcome] - unit)
    for offset in range(
        1, int((high - low).max(initial=0))
    ):  # several rewards for one next state: the one that was paid
        other = order[np.minimum(low + offset, order.size - 1)]
        better = (low + offset < high) & (np.abs(base + outcomes.bonus[other] - unit) < miss)
        outcome = np.where(better, other, outcome)
        miss = np.abs(base + outcomes.bonus[outcome] - unit)

    def due(row: int) -> str:
        return f"{rewards.total(base[row] + outcomes.bonus[outcome[row]], 1):.6g}, which the models know"

    refuse_first("reward", (outcome >= 0) & (miss > _ROUNDING), log.reward, due)
    return Matched(log.step % known.horizon, pair, outcome, log.begin, log.state[log.begin[:-1]])


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
        refuse_first("terminated", moved, log.terminated, expected)
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
    pairs, happened = (states * problem.actions + taken).ravel(), outcomes.ravel()
    last = np.zeros((count, horizon), dtype=bool)
    last[:, -1] = True
    return Log(
        state=states.ravel(),
        action=taken.ravel(),
        reward=truth.base_reward[pairs] + truth.outcomes.bonus[happened],
        next_state=truth.outcomes.next_state[happened],
        terminated=np.zeros(count * horizon, dtype=bool),
        truncated=last.ravel(),
        begin=np.arange(count + 1) * horizon,
        source=f"simulated, seed {seed}",
    )


def _draw(cumulative: Floats, first: Ints, last: Ints, rng: np.random.Generator) -> Ints:
    """Return, for each range of running sums, the first index whose sum a uniform number is below."""
    u, at = rng.random(first.size), first.copy()
    for _ in range(int((last - first).max())):
        at = np.where((at < last - 1) & (u >= cumulative[np.minimum(at, cumulative.size - 1)]), at + 1, at)
    return at
