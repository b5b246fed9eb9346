"""Logs: steps that somebody else has played, as tables hold them, given as flows.

A :class:`Log` makes whole episodes of the batches of a :class:`Table`: labels of any kind become
codes, rows are put in order, next states are filled in. What a label means is decided when a
problem is given: :meth:`Log.flows` looks it up among the names of states and actions
(``logs/repairs.py``).

Only counts of a block are kept, so that a file may be larger than memory; rows that have to be
sorted are held, about 40 bytes each. The order of episodes matters: a policy that learned from
earlier ones has drawn on their outcomes, and the tests take outcomes in the order in which they
came. Sorted episodes come by when they begin, then by name.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from occamrl.addresses import stream
from occamrl.answers.wording import count_of
from occamrl.arrays import Bools, Floats, Ints
from occamrl.errors import (
    ParameterError,
    UnknownName,
    require_choice,
    require_integer,
    require_kind,
    require_number,
)
from occamrl.logs import table as cells
from occamrl.logs.clock import LATE, step_numbers
from occamrl.logs.repairs import Matching, Repairs, Steps
from occamrl.logs.table import (
    END,
    MISSING,
    Array,
    Columns,
    Episodes,
    Labels,
    LogError,
    Table,
    open_table,
    refuse,
)
from occamrl.problems.mdp import FiniteMDP, RewardMap, as_mdp
from occamrl.protocols import Flow, Known, Note, Outcomes, Problem, System, Transition
from occamrl.running.flow import simulate

GROWTH = 0.1  # of the data from one flow to the next
_LABELS = ("episode", "state", "action", "next_state")
_ROLES = (*_LABELS, "reward", "terminated", "truncated", "step", "time")
_SAID = {
    "sorted": "rows were put in order",
    "gaps_cut": "rows come after a gap, where episodes were cut",
    "gaps_joined": "rows come after a gap, which was taken for no time",
    "next_state_filled": "next states came from the next row",
    "no_next_state": "rows without a next state were dropped",
    "unlisted": "rows with a state or action that is missing or not in the models were dropped",
    "unlisted_next": "rows with a next state or reward that is not in the models were dropped",
    "impossible": "rows are transitions that all models call impossible",
    "impossible_dropped": "rows that all models call impossible were dropped",
    "rewards_missing": "rewards are missing; those of the models were taken",
    "rewards_replaced": "rewards were not near the one that the models list, which was taken",
    "rewards_models": "rewards were not near the one that the models list, which was taken",
    "ended": "episodes ended",
    "truncated": "episodes were truncated before the horizon",
    "split": "pieces of the length of the horizon were cut from longer episodes",
}

# What is counted, and what that does to the level of the tests.
_NOTED: dict[str, tuple[str, Literal["kept", "conditional", "void"]]] = {
    "sorted": ("row", "kept"),
    "gaps_cut": ("row", "conditional"),
    "gaps_joined": ("row", "conditional"),
    "next_state_filled": ("row", "conditional"),
    "no_next_state": ("row", "conditional"),
    "unlisted": ("row", "kept"),
    "unlisted_next": ("row", "void"),
    "impossible": ("row", "kept"),
    "impossible_dropped": ("row", "void"),
    "rewards_missing": ("row", "kept"),
    "rewards_replaced": ("row", "kept"),
    "rewards_models": ("row", "kept"),
    "ended": ("episode", "kept"),
    "truncated": ("episode", "kept"),
    "split": ("piece", "kept"),
    "first_step": ("episode", "conditional"),
    "steps_counted": ("episode", "conditional"),
    "chosen_here": ("step", "void"),
}
# What models say of a log, and other models otherwise.
OF_MODELS = (
    "unlisted",
    "unlisted_next",
    "impossible",
    "impossible_dropped",
    "rewards_missing",
    "rewards_replaced",
    "rewards_models",
    "truncated",
    "split",
    "first_step",
    "steps_counted",
)

Rows: TypeAlias = dict[str, Array]  # by role; "row" is the number of each row in the table
Roles: TypeAlias = Mapping[str, Sequence[str]]  # the columns of each


class _Disorder(LogError):
    """Rows that would have to be sorted."""


class Choices(NamedTuple):
    """What to do with rows that are not as they might be; see :func:`read_log`."""

    tolerance: float | None = None
    unlisted: str = "error"
    split: bool = False
    gaps: str = "cut"
    every: str | float | None = None
    rewards: str = "check"


class Log:
    """Episodes, one row per step: what :func:`read_log` returns.

    ``rows`` and ``episodes`` are how many steps and episodes it has, ``longest`` the length of the
    longest; ``report`` counts what was dropped or mended, and ``print(log)`` says it.
    """

    def __init__(
        self,
        table: Table,
        roles: Roles,
        order_by: str | None,
        choices: Choices,
    ) -> None:
        self.source = table.source
        self.choices = choices
        self.repairs = Repairs()
        self.coded = False  # whether labels are numbers of the models, and rewards in [0, 1]
        self.states = Labels()
        self.actions = Labels()
        self.roles = roles
        self.table = table
        self.order_by = order_by
        # Whoever names a clock wants to hear that it is none; what orders rows need not be one.
        self._strict = choices.every is not None or (order_by is None and "time" in roles)
        if order_by is None and "time" in roles:
            (self.order_by,) = roles["time"]
        self.first_step: int | None = None  # 0 or 1, as the log counts
        self.clocked = "step" in roles  # whether it shows where rows are missing
        self._starts: Floats = np.zeros(0)  # of episodes, in steps, if a clock tells it
        self._sorted: Rows | None = None
        self.met = Episodes()  # of rows as they come
        self.rows = 0
        self.episodes = 0
        self.longest = 0

    def check(self) -> None:
        """Read all of it once, sorted where that is needed."""
        if self.order_by is not None:
            self._sorted = self._sort()
        try:
            self.count()
        except _Disorder:
            if "step" not in self.roles or self._sorted is not None:
                raise
            self._sorted = self._sort()
            self.count()
        self.require_rows()

    def count(self) -> None:
        """Read all of it once, as it comes."""
        repairs = Repairs()
        self.rows = 0
        self.episodes = 0
        for block in self.blocks(repairs):
            self.rows += block.step.size
            self.episodes += block.begin.size - 1
            self.longest = max(self.longest, int(block.step.max(initial=-1)) + 1)
        self.repairs.update(repairs)

    def require_rows(self) -> None:
        """Refuse a log without a step."""
        if not self.rows:
            expected = (
                "at least one row with a state, an action and a next state, "
                "in its own or in the next row"
            )
            raise LogError("rows", got="no step", expected=expected)

    @property
    def report(self) -> dict[str, int]:
        """How many rows, or episodes, were dropped or mended, by what was done."""
        return self.repairs.counts

    @property
    def notes(self) -> tuple[Note, ...]:
        """The same, with an example, and what it does to guarantees."""
        notes = []
        for kind, count in self.report.items():
            unit, guarantee = _NOTED[kind]
            if kind == "next_state_filled" and self.clocked:
                guarantee = "kept"  # no row is missing in between
            of = self.repairs.totals[kind]
            example = "; ".join(self.repairs.examples[kind])
            notes.append(Note(kind, count, of, unit, example, guarantee))
        return tuple(notes)

    # Reading rows ---------------------------------------------------------------------------------

    def _pieces(self) -> Iterator[Rows]:
        """Yield rows in codes, some at a time: as they come, or sorted ones from memory."""
        if self._sorted is None:
            self.met = Episodes()
            yield from self._read(self.met)
            return
        for first in range(0, self._sorted["row"].size, cells.BLOCK):
            rows = slice(first, first + cells.BLOCK)
            yield {name: column[rows].copy() for name, column in self._sorted.items()}

    def _read(self, episodes: Episodes) -> Iterator[Rows]:
        """Yield rows in codes, as they come."""
        wanted = dict.fromkeys(chain.from_iterable(self.roles.values()))
        if self.order_by is not None:
            wanted[self.order_by] = None
        first = self.table.first_row
        for batch in self.table.batches(list(wanted)):
            size = len(batch[self.roles["state"][0]])
            if not size:
                continue
            rows: Rows = {"row": np.arange(first, first + size), "episode": np.zeros(size, int)}
            for role in self.roles:
                if role != "time":
                    rows[role] = self._read_role(role, batch, first, episodes)
            missing = rows["episode"] == MISSING
            refuse(self.field("episode"), missing, None, "a label in every row", first)
            if self.order_by is not None:
                rows["order"] = cells.read_order(self.order_by, batch[self.order_by], first)
            yield rows
            first += size

    def _read_role(self, role: str, batch: Columns, first: int, episodes: Episodes) -> Array:
        """Return a role of some rows: codes of labels, numbers or flags."""
        names = self.roles[role]
        if role == "episode":
            return episodes.encode(names, batch, first)
        if role in _LABELS:
            labels = self.actions if role == "action" else self.states
            # Half of the memory: there are no more labels than that.
            return labels.encode(names, batch, first).astype(np.int32)
        (name,) = names
        if role == "reward":
            return cells.read_numbers(name, batch[name], first, "a number, or nothing")
        if role == "step":
            expected = "a whole number >= 0"
            steps = cells.read_numbers(name, batch[name], first, expected)
            whole = (steps >= 0) & (steps == np.floor(steps))
            refuse(name, ~whole, steps, expected, first)
            return steps
        return cells.read_flags(name, batch[name], first)

    def _sort(self) -> Rows:
        """Return all rows in order: episodes by their first row, then by name."""
        episodes = Episodes()
        pieces = list(self._read(episodes))
        if not pieces:
            return {"row": np.zeros(0, np.int64)}
        rows: Rows = {}
        for name in list(pieces[0]):  # one after another, since they may be large
            rows[name] = cells.joined(name, [piece.pop(name) for piece in pieces])
        key = rows["step"] if self.order_by is None else rows.pop("order")

        ranks = np.zeros(1, np.int64)
        if "episode" in self.roles:
            ranks = episodes.ranks()
        start = np.full(ranks.size, key.max(), key.dtype)
        np.minimum.at(start, rows["episode"], key)
        position = np.empty_like(ranks)
        position[np.lexsort((ranks, start))] = np.arange(ranks.size)
        rows["episode"] = position[rows["episode"]]

        order = np.lexsort((key, rows["episode"]))
        if (np.diff(order) < 0).any():
            self.repairs.add("sorted", np.full(order.size, True), lambda i: f"row {order[i]}")
        for name in rows:
            rows[name] = rows[name][order]
        key = key[order]
        self._refuse_same(rows, key)
        if "step" in rows:
            self.first_step = int(rows["step"].min() == 1)
        if self.order_by is not None and "step" not in self.roles:
            field = str(self.order_by)
            every = self.choices.every
            clocked = step_numbers(
                field, key, rows["episode"], rows["row"], every, strict=self._strict
            )
            if clocked is not None:
                self.clocked = True
                rows["step"] = clocked.step
                self._starts = clocked.start
        return rows

    def _refuse_same(self, rows: Rows, key: Array) -> None:
        """Refuse two rows of an episode at one time; say whether one repeats the other."""
        same = np.append(False, (key[1:] == key[:-1]) & (np.diff(rows["episode"]) == 0))
        if not same.any():
            return
        i = int(np.argmax(same))
        told = [name for name in rows if name not in ("row", "episode")]
        repeats = all(_equal(rows[name][i], rows[name][i - 1]) for name in told)
        expected = (
            f"one row of an episode at a time, but row {rows['row'][i - 1]} has the same: "
            "a finer order, or more columns that name the episode, if units run in parallel"
        )
        if repeats:
            expected = (
                f"each row once: row {rows['row'][i - 1]} says the same; leave such rows out, "
                "in pandas by drop_duplicates()"
            )
        refuse(self.order_by or self.field("step"), same, key, expected, rows["row"])

    @property
    def called(self) -> dict[str, Sequence[str]]:
        """The columns of each role that the user named; "step" is what orders rows."""
        columns: dict[str, Sequence[str]] = {}
        for role, names in self.roles.items():
            columns[role] = tuple(map(str, names))
        if self.order_by is not None:
            columns["step"] = (str(self.order_by),)
        return columns

    def field(self, role: str) -> str:
        """Return the columns of a role, as errors name them."""
        if role == "next_state" and role not in self.roles:
            role = "state"  # of the next row
        return ", ".join(map(str, self.roles.get(role, (role,))))

    # Whole episodes -------------------------------------------------------------------------------

    def blocks(self, repairs: Repairs | None = None) -> Iterator[Steps]:
        """Yield whole episodes in codes, about 100,000 rows in each block.

        ``repairs`` counts what was mended.
        """
        counted = Repairs() if repairs is None else repairs
        held: list[Rows] = []
        last = -1  # the episode of the last row of the block before
        ended = 0
        for piece in self._pieces():
            if "episode" not in self.roles:
                ended += self._number_episodes(piece, ended)
            held.append(piece)
            size = sum(rows["row"].size for rows in held)
            if size < cells.BLOCK or held[0]["episode"][0] == piece["episode"][-1]:
                continue
            rows = self._joined(held, last)
            last = int(rows["episode"][-1])
            whole = int(np.argmax(rows["episode"] == last))  # the last one may go on
            yield self._steps({name: column[:whole] for name, column in rows.items()}, counted)
            held = [{name: column[whole:] for name, column in rows.items()}]
        if held:
            yield self._steps(self._joined(held, last), counted)

    def _number_episodes(self, rows: Rows, first: int) -> int:
        """Give the episodes of one sequence, which rows end, their numbers; return how many end."""
        ends = np.zeros(rows["row"].size, bool)
        for role in ("terminated", "truncated"):
            if role in rows:
                ends |= rows[role]
        rows["episode"] += first + np.append(0, np.cumsum(ends)[:-1])
        return int(ends.sum())

    def _joined(self, pieces: Sequence[Rows], last: int) -> Rows:
        """Return pieces as one; refuse an episode that comes back after others."""
        rows = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        episode = rows["episode"]
        back = np.diff(episode, prepend=last) < 0
        expected = (
            "the rows of an episode together; or name what orders them: order_by=, or a column step"
        )
        refuse(self.field("episode"), back, episode, expected, rows["row"], _Disorder)
        return rows

    def _steps(self, rows: Rows, repairs: Repairs) -> Steps:
        """Return whole episodes with the next state of each row; refuse what is no chain."""
        number = rows["row"]
        size = number.size
        new = np.append(True, np.diff(rows["episode"]) != 0)
        last = np.append(new[1:], True)
        step, gap = self._step_numbers(rows, new, repairs)
        before_gap = np.append(gap[1:] & ~new[1:], False)
        terminated = rows.get("terminated", np.zeros(size, bool))
        for role in ("terminated", "truncated"):
            flag = rows.get(role, terminated)
            expected = (
                "true on the last row of an episode only; "
                "without an episode column rows are cut there"
            )
            refuse(self.field(role), flag & ~last, flag, expected, number)

        state = rows["state"].astype(np.int64)
        action = rows["action"].astype(np.int64)
        told = rows.get("next_state", np.full(size, MISSING)).astype(np.int64)
        next_state = np.where((told == MISSING) & terminated, END, told)
        if "next_state" not in self.roles:
            # What is on the other side of a gap did not follow.
            following = np.where(before_gap, MISSING, np.append(state[1:], MISSING))
            next_state = np.where(last, next_state, following)
        kept = next_state != MISSING
        if self.choices.unlisted == "error":
            for role, codes in (("state", state), ("action", action)):
                expected = 'a label in every row; unlisted="drop" leaves such rows out'
                refuse(self.field(role), kept & (codes == MISSING), None, expected, number)
        follows = ~new & ~gap & (state != MISSING) & (np.roll(next_state, 1) != MISSING)
        broken = follows & (state != np.roll(next_state, 1))
        if broken.any():
            expected = (
                f"the {self.field('next_state')} of the row before; if rows are missing, name what "
                "counts them (a column step or time), if units run in parallel, what tells them "
                "apart"
            )
            refuse(self.field("state"), broken, self.states.decode(state), expected, number)
        filled = kept & (told == MISSING) & (next_state >= 0)
        reward = rows.get("reward", np.full(size, math.nan))
        episode = rows["episode"]
        steps = Steps(episode, step, state, action, next_state, reward, terminated, number)
        repairs.add("no_next_state", ~kept, steps.named)
        repairs.add("next_state_filled", filled, steps.named)
        repairs.add("ended", terminated, steps.named, int(new.sum()))
        return steps.where(kept)

    def _step_numbers(self, rows: Rows, new: Bools, repairs: Repairs) -> tuple[Ints, Bools]:
        """Return the number of each row in its episode, from 0, and which come after a gap."""
        number = rows["row"]
        begin = np.flatnonzero(new)
        due = np.arange(number.size) - np.repeat(begin, np.diff(np.append(begin, number.size)))
        if "step" not in rows:
            return due, np.zeros(number.size, bool)
        step = rows["step"].astype(np.int64)
        field = str(self.order_by)
        if "step" in self.roles:
            field = self.field("step")
            step = step - self._counted_from(step)
            expected = (
                "steps that count up from 0 or from 1 in every episode; "
                "name a column that only orders rows in order_by="
            )
            back = (step < 0) | (~new & (np.diff(step, prepend=0) <= 0))
            refuse(field, back, rows["step"], expected, number, _Disorder)
        passed = np.where(new, step + 1, np.diff(step, prepend=0))
        gap = passed > 1

        def example(i: int) -> str:
            if new[i]:
                return f"row {number[i]}, which is step {step[i] + 1} of its episode"
            return f"row {number[i]}, {passed[i]} steps after row {number[i - 1]}"

        if self.choices.gaps == "error" and gap.any():
            i = int(np.argmax(gap))
            expected = 'no row to be missing; gaps="cut" uses what is there'
            raise LogError(field, index=(int(number[i]),), got=example(i), expected=expected)
        if self.choices.gaps == "join":
            repairs.add("gaps_joined", gap, example)
            return due, np.zeros(number.size, bool)
        repairs.add("gaps_cut", gap, example)
        return step, gap

    def require_one_beat(self, horizon: int) -> None:
        """Refuse a clock by which the first rows of episodes are not all at the same step.

        So it is where most episodes begin at one time and some later, and where pieces of a horizon
        are cut from episodes that begin at different times of it.
        """
        if self._starts.size < 2:
            return
        apart = np.abs(self._starts - np.sort(self._starts)[self._starts.size // 2])
        most = 2 * np.count_nonzero(apart <= LATE) >= apart.size
        if self.choices.split and self.longest > horizon:
            later = np.mod(apart, horizon)
            apart = np.minimum(later, horizon - later)
        elif not most:
            return
        if apart.max() <= LATE:
            return
        steps = round(float(apart.max()))
        expected = (
            "episodes that begin at the same step, as the chances of the models depend on it; or a "
            "column that counts steps from 0 or 1, columns={'step': ...}"
        )
        got = f"episodes that begin {count_of(steps, 'step')} apart"
        raise LogError(str(self.order_by), got=got, expected=expected)

    def _counted_from(self, step: Ints) -> int:
        """Return whether a column counts steps from 0 or from 1, as its first rows show."""
        if self.first_step is None:
            self.first_step = int(step.min() == 1)
        return self.first_step

    # What a log is used for -----------------------------------------------------------------------

    def flows(
        self, known: Known, outcomes: Outcomes | None = None, rewards: RewardMap | None = None
    ) -> Iterator[Flow]:
        """Yield its episodes as flows that a learner of ``known`` can learn from.

        Each is a tenth of those before. States and actions are looked up in ``known.names``;
        without names they are the integers from 0. Rewards are those that ``known`` lists for what
        happened: the log's own are looked at to tell outcomes with one next state apart, and are
        NaN where they are missing and not known. ``outcomes`` is what the models allow
        (``features.attach(known)``), ``rewards`` or ``known.unit`` the unit of the log.
        """
        self.repairs.drop(OF_MODELS)
        matching = Matching(self, known, outcomes, rewards)
        yield from cut_flows(map(matching.match, self.blocks()), flow_ends())

    def transitions(self, system: System) -> Iterator[Transition]:
        """Return its steps as a controller of a continuous system can learn from them."""
        from occamrl.logs.continuous import transitions_of  # which needs this module

        return transitions_of(self, system)

    def columns(self) -> dict[str, Array]:
        """Return all of it in memory, by column; episodes are numbered from 0."""
        parts = zip(*self.blocks(), strict=True)
        columns = {
            name: np.concatenate(part) for name, part in zip(Steps._fields, parts, strict=True)
        }
        del columns["row"]
        columns["state"] = self.states.decode(columns["state"])
        columns["action"] = self.actions.decode(columns["action"])
        columns["next_state"] = self.states.decode(columns["next_state"])
        return columns

    def __repr__(self) -> str:
        sizes = f"{count_of(self.episodes, 'episode')}, {count_of(self.rows, 'step')}"
        return f"Log({self.source}: {sizes})"

    def __str__(self) -> str:
        sizes = f"{count_of(self.episodes, 'episode')}, {count_of(self.rows, 'step')}"
        parts = [f"{self.source}: {sizes}"]
        for name, words in _SAID.items():
            if self.report.get(name):
                parts.append(f"{self.report[name]:,} {words}")
        return "; ".join(parts)


# Flows --------------------------------------------------------------------------------------------


def flow_ends() -> Iterator[int]:
    """Yield after how many episodes flows end."""
    done = 0
    while True:
        done += max(1, math.ceil(done * GROWTH))
        yield done


def cut_flows(blocks: Iterable[Steps], ends: Iterable[int]) -> Iterator[Flow]:
    """Yield what was counted up to some numbers of episodes, and what is left."""
    due = iter(ends)
    end: float = next(due, math.inf)
    done = 0
    parts: list[Flow] = []
    for block in blocks:
        episodes = block.begin.size - 1
        first = 0
        while first < episodes:
            last = int(min(episodes, first + end - done))
            parts.append(block.flow(first, last))
            done += last - first
            first = last
            if done == end:
                yield Flow.joined(parts)
                parts = []
                end = next(due, math.inf)
    if parts:
        yield Flow.joined(parts)


# Reading ------------------------------------------------------------------------------------------


def _roles_of(
    columns: Mapping[str, str | Sequence[str] | None] | None, names: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the columns of each role that a table has."""
    require_kind("columns", columns or {}, Mapping)
    asked = dict(columns or {})
    for key, value in asked.items():
        require_choice("columns", key, (*_ROLES, "ended"))
        named = isinstance(value, Hashable) and value in names
        if value is not None and not named and not isinstance(value, (str, list, tuple)):
            expected = "the name of a column, or a list of them"
            raise ParameterError(f"columns[{key!r}]", got=repr(value), expected=expected)
    if "ended" in asked or ("terminated" not in names and "ended" in names):
        asked.setdefault("terminated", asked.pop("ended", "ended"))
    roles: dict[str, tuple[str, ...]] = {}
    for role in _ROLES:
        value = asked.get(role, role if role in names else None)
        if value is None:
            _require_optional(role, role in asked, names)
            continue
        # A name need not be a string: the columns of a data frame may be numbers.
        single = isinstance(value, str) or value in names
        parts = (cast(str, value),) if single else tuple(value)
        if not parts or (len(parts) > 1 and role not in _LABELS):
            expected = "the name of one column"
            raise ParameterError(f"columns[{role!r}]", got=repr(value), expected=expected)
        for part in parts:
            if part not in names:
                raise UnknownName(f"columns[{role!r}]", got=part, known=map(str, names))
        roles[role] = parts
    if "time" in roles and "time" not in asked and "step" in roles:
        del roles["time"]  # steps count already
    if "next_state" in roles and len(roles["next_state"]) != len(roles["state"]):
        expected = (
            f"as many columns as the state has, {len(roles['state'])}; "
            "or None, for those of the next row"
        )
        got = repr(roles["next_state"])
        raise ParameterError("columns['next_state']", got=got, expected=expected)
    return roles


def _require_optional(role: str, asked: bool, names: Sequence[str]) -> None:
    """Refuse that there is no column of a role that is needed."""
    if role in ("state", "action") or (role == "episode" and not asked):
        expected = f"its name, given under columns; there are {', '.join(map(str, names))}"
        if role == "episode":
            expected += "; None if the table is one sequence"
        raise LogError(role, got="no such column", expected=expected)


def read_log(
    source: Any,
    columns: Mapping[str, str | Sequence[str] | None] | None = None,
    *,
    order_by: str | None = None,
    every: str | float | None = None,
    gaps: str = "cut",
    tolerance: float | None = None,
    rewards: str = "check",
    unlisted: str = "error",
    split: bool = False,
    workers: int = 1,
    client: Any = None,
    keep: str | Path | None = None,
    progress: bool | None = None,
) -> Log:
    """Return the log in a file, a data frame or a dataset, whatever its columns are called.

    Every row is checked.

    >>> import occamrl as orl
    >>> days = {"store": ["A", "B", "A", "B"], "day": [1, 1, 2, 2], "stock": [4, 2, 3, 0]}
    >>> days["order"] = ["no", "yes", "no", "yes"]
    >>> columns = {"episode": "store", "state": "stock", "action": "order"}
    >>> log = orl.read_log(days, columns, order_by="day")
    >>> log
    Log(log: 2 episodes, 2 steps)
    >>> log.report["no_next_state"]  # print(log) says all that was dropped or mended
    2

    Parameters
    ----------
    source : path, data frame or dataset
        A file whose name ends in ``.csv`` is CSV with a line of names, any other one Parquet; a
        folder of Parquet files is one table, in the order of their names. Files are read in blocks,
        now and whenever they are used. ``minari:ID`` is a Minari dataset on
        this machine. Or a data frame of pandas or Polars, an Arrow table, a mapping of columns, a
        list of rows.
    columns : dict, optional
        The column of each role, several for a tuple: episode, state, action, next_state, reward,
        ended, truncated, step, time; by default the column of that name. ``next_state: None``: that
        of the next row. ``episode: None``: one sequence, which is cut where it ended.
    order_by : str, optional
        A column of numbers or dates. With it, or with a column ``step`` or ``time``, rows may come
        in any order.
    every : str or float, optional
        How long a step lasts, by the column ``time`` or ``order_by``: "1D", "15min", "1M" (of the
        calendar), 0.05. By default the median difference of two rows, if all are whole multiples.
    gaps : "cut" | "error" | "join"
        What to do where steps or times show that rows are missing: cut the episode, so that what
        happened in between is unknown; refuse the log; or take the next row for what came next,
        which is right where nothing happens in between, as at weekends.
    tolerance : float, optional
        How far a reward may be from one that the models list, in the unit of the log; by default
        0.001 of their range.
    rewards : "check" | "model"
        Refuse rewards that contradict those of the models in 1 % of the rows; or take the models'.
    unlisted : "error" | "drop"
        Refuse rows whose state, action or reward is missing or not in the models, or leave them
        out; "drop" also leaves out transitions that all models call impossible.
    split : bool
        Cut episodes that are longer than the horizon into pieces: right for systems that go on.
    workers : int
        Processes that count the files of a folder side by side; the log is the same for any number.
    client : distributed.Client or str, optional
        A Dask client, or the address of a scheduler, whose workers see the folder under the same
        path, instead of ``workers``.
    keep : path, optional
        A folder in which the counts of each file are kept: what was interrupted goes on from there,
        and files that have not changed are not checked again.
    progress : bool, optional
        Show how many files are counted; by default only when it takes longer than a second.
    """
    if isinstance(source, Log):
        if columns is not None or order_by is not None or every is not None:
            expected = "what it was read from, to read it with other columns"
            raise ParameterError("log", got=repr(source), expected=expected)
        return source
    require_choice("unlisted", unlisted, ("error", "drop"))
    require_choice("gaps", gaps, ("cut", "error", "join"))
    require_choice("rewards", rewards, ("check", "model"))
    if tolerance is not None:
        require_number("tolerance", tolerance, 0.0, math.inf)
    table = open_table(source)
    if order_by is not None and order_by not in table.names:
        raise UnknownName("order_by", got=order_by, known=map(str, table.names))
    roles = _roles_of(columns, table.names)
    if every is not None and order_by is None and "time" not in roles:
        expected = 'None, or the column that tells times: columns={"time": ...} or order_by='
        raise ParameterError("every", got=repr(every), expected=expected)
    choices = Choices(tolerance, unlisted, split, gaps, every, rewards)
    log = Log(table, roles, order_by, choices)
    if require_integer("workers", workers, 1) > 1 or client is not None or keep is not None:
        from occamrl.logs.partitions import FolderLog  # which needs this module

        log = FolderLog(source, log, workers, client, keep, progress)
    log.check()
    return log


def _equal(one: Any, two: Any) -> bool:
    """Return whether two cells say the same; both may be empty."""
    return bool(one == two or (one != one and two != two))


def simulate_log(mdp: FiniteMDP | Problem, *, episodes: int, seed: int = 0) -> Log:
    """Return a log of simulated episodes of full length, by a uniformly random policy."""
    problem = as_mdp(mdp)
    draw = stream(seed, "log")
    allowed = problem.known.allowed
    chances = np.tile(allowed / allowed.sum(axis=1, keepdims=True), (problem.horizon, 1, 1))
    require_integer("episodes", episodes, 1)
    flows = [simulate(problem, chances, 1, draw) for _ in range(episodes)]
    columns = {
        "episode": np.repeat(np.arange(episodes), problem.horizon),
        "state": np.concatenate([flow.state for flow in flows]),
        "action": np.concatenate([flow.action for flow in flows]),
        "next_state": np.concatenate([flow.next_state for flow in flows]),
        "reward": np.concatenate([flow.reward for flow in flows]),
    }
    log = read_log(columns)
    log.source = f"simulated, seed {seed}"
    log.coded = True
    return log
