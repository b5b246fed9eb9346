"""Logs: steps that somebody else has played, as tables hold them, given as flows.

A :class:`Log` makes whole episodes of the batches of a :class:`Table`: labels of any kind become
codes, rows are put in order, next states are filled in. What a label means is decided when a
problem is given: :meth:`Log.flows` looks it up among the names of states and actions.

Only counts of a block are kept, so that a file may be larger than memory; rows that have to be
sorted are held, about 40 bytes each. The order of episodes matters: a policy that learned from
earlier ones has drawn on their outcomes, and the tests take outcomes in the order in which they
came. Sorted episodes come by when they begin, then by name.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from occamrl.addresses import stream
from occamrl.answers.wording import count_of
from occamrl.errors import (
    ParameterError,
    UnknownName,
    require_choice,
    require_integer,
    require_number,
)
from occamrl.logs import table as cells
from occamrl.logs.table import END, MISSING, Episodes, Labels, LogError, Table, open_table, refuse
from occamrl.models.model import ELSEWHERE
from occamrl.problems.mdp import FiniteMDP, RewardMap, as_mdp
from occamrl.protocols import Floats, Flow, Ints, Known, Outcomes, System, Transition
from occamrl.running.flow import simulate

GROWTH = 0.1  # of the data from one flow to the next
_LABELS = ("episode", "state", "action", "next_state")
_ROLES = (*_LABELS, "reward", "terminated", "truncated", "step")
_DECIDES = 1e-3  # how far a reward may be from a listed one unless a tolerance is given, in the unit of [0, 1]
_SAID = {
    "sorted": "rows were put in order",
    "next_state_filled": "next states came from the next row",
    "no_next_state": "last rows without a next state were dropped",
    "unlisted": "rows with a state, action or reward that is missing or not in the models were dropped",
    "rewards_replaced": "rewards were not near the one that the models list, which was taken",
    "ended": "episodes ended",
    "truncated": "episodes were truncated before the horizon",
    "split": "pieces of the length of the horizon were cut from longer episodes",
}

Rows = dict[str, NDArray[Any]]  # by role
Roles = Mapping[str, Sequence[str]]  # the columns of each


class _Disorder(LogError):
    """Rows that would have to be sorted."""


class Steps(NamedTuple):
    """Whole episodes of a log, in codes."""

    episode: Ints
    step: Ints
    state: Ints
    action: Ints
    next_state: Ints
    reward: Floats  # NaN where it is missing
    terminated: NDArray[np.bool_]
    row: Ints  # the number of each row in the table

    def where(self, kept: NDArray[np.bool_]) -> Steps:
        """Return some of the rows."""
        columns: list[Any] = [column[kept] for column in self]
        return Steps(*columns)

    @property
    def begin(self) -> Ints:
        """The rows at which episodes begin, and where the last one ends."""
        return np.append(np.flatnonzero(np.diff(self.episode, prepend=-1)), self.episode.size)

    def flow(self, first: int = 0, last: int | None = None) -> Flow:
        """Return what was counted in the episodes from ``first`` up to ``last``."""
        begin = self.begin[first : None if last is None else last + 1]
        rows = slice(int(begin[0]), int(begin[-1]))
        what = (
            self.step[rows],
            self.state[rows],
            self.action[rows],
            self.next_state[rows],
            self.reward[rows],
        )
        return Flow.joined([Flow(*what, np.ones(what[0].size, np.int64), begin.size - 1)])


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
        tolerance: float | None,
        unlisted: str,
        split: bool,
    ) -> None:
        self.source, self.tolerance, self.unlisted, self.split = (
            table.source,
            tolerance,
            unlisted,
            split,
        )
        self.report: dict[str, int] = {}
        self.coded = (
            False  # whether states and actions are numbers of the models, and rewards in [0, 1]
        )
        self.states, self.actions = Labels(), Labels()
        self._table, self._roles, self._order_by = table, roles, order_by
        self._sorted: Rows | None = None
        try:
            if order_by is not None:
                self._sorted = self._sort()
            self._count()
        except _Disorder:
            if "step" not in roles or self._sorted is not None:
                raise
            self._sorted = self._sort()
            self._count()

    def _count(self) -> None:
        """Read all of it once."""
        self.rows = self.episodes = self.longest = 0
        counted = dict[str, int]()
        for block in self.blocks(counted):
            self.rows, self.episodes = (
                self.rows + block.step.size,
                self.episodes + block.begin.size - 1,
            )
            self.longest = max(self.longest, int(block.step.max(initial=-1)) + 1)
        if not self.rows:
            expected = "at least one row with a state, an action and a next state, in its own or in the next row"
            raise LogError("rows", got="no step", expected=expected)
        self.report |= counted

    def _pieces(self, episodes: Episodes) -> Iterator[Rows]:
        """Read it: rows in codes, as they come, or sorted ones from memory."""
        roles, first = self._roles, 0
        if self._sorted is not None:
            for first in range(0, self._sorted["row"].size, cells.BLOCK):
                yield {
                    name: column[first : first + cells.BLOCK].copy()
                    for name, column in self._sorted.items()
                }
            return
        wanted = dict.fromkeys(chain(*roles.values(), [self._order_by] if self._order_by else []))
        for batch in self._table.batches(list(wanted)):
            if not (size := len(batch[roles["state"][0]])):
                continue
            rows: Rows = {
                "row": np.arange(first, first + size),
                "episode": np.zeros(size, np.int64),
            }
            for role, names in roles.items():
                if role == "reward":
                    rows[role] = cells.floats(
                        names[0], batch[names[0]], first, "a number, or nothing"
                    )
                elif role in ("terminated", "truncated"):
                    rows[role] = cells.flags(names[0], batch[names[0]], first)
                elif role == "step":
                    rows[role] = cells.floats(
                        names[0], batch[names[0]], first, expected := "a whole number >= 0"
                    )
                    bad = ~((rows[role] >= 0) & (rows[role] == np.floor(rows[role])))
                    refuse(names[0], bad, rows[role], expected, first)
                else:
                    coder = (
                        episodes
                        if role == "episode"
                        else self.actions
                        if role == "action"
                        else self.states
                    )
                    rows[role] = coder.encode(names, batch, first).astype(
                        np.int64 if role == "episode" else np.int32
                    )
            refuse(
                self.field("episode"),
                rows["episode"] == MISSING,
                [None] * size,
                "a label in every row",
                first,
            )
            if self._order_by:
                rows["order"] = cells.ordered(self._order_by, batch[self._order_by], first)
            yield rows
            first += size

    def _sort(self) -> Rows:
        """Return all rows in order: episodes by their first row, then by name."""
        episodes = Episodes()
        pieces = list(self._pieces(episodes))
        if not pieces:
            return {"row": np.zeros(0, np.int64)}
        rows = {
            name: np.concatenate([piece.pop(name) for piece in pieces]) for name in list(pieces[0])
        }
        key = rows.pop("order") if self._order_by else rows["step"]
        ranks = episodes.ranks() if "episode" in self._roles else np.zeros(1, np.int64)
        start = np.full(ranks.size, key.max(), key.dtype)
        np.minimum.at(start, rows["episode"], key)
        place = np.empty_like(ranks)
        place[np.lexsort((ranks, start))] = np.arange(ranks.size)
        rows["episode"] = place[rows["episode"]]
        order = np.lexsort((key, rows["episode"]))
        _tell(self.report, sorted=np.full(order.size, (np.diff(order) < 0).any()))
        for name in rows:  # one after another, since they may be large
            rows[name] = rows[name][order]
        key = key[order]
        same = np.append(False, (np.diff(key) == 0) & (np.diff(rows["episode"]) == 0))
        expected = (
            "one row of an episode at a time: a finer order, or more columns that name the episode"
        )
        refuse(self._order_by or self.field("step"), same, key, expected, rows["row"])
        return rows

    def field(self, role: str) -> str:
        """Return the columns of a role, as errors name them."""
        filled = role == "next_state" and role not in self._roles
        return ", ".join(map(str, self._roles.get("state" if filled else role, (role,))))

    def blocks(self, report: dict[str, int] | None = None) -> Iterator[Steps]:
        """Read it: whole episodes in codes, about 100,000 rows in each block; ``report`` counts what was mended."""
        held, last, count, told = list[Rows](), -1, 0, {} if report is None else report
        for piece in chain(self._pieces(Episodes()), [None]):
            if (
                piece is not None and "episode" not in self._roles
            ):  # one sequence, cut after rows that end it
                none = np.zeros(piece["row"].size, bool)
                ends = piece.get("terminated", none) | piece.get("truncated", none)
                piece["episode"] += count + np.append(0, np.cumsum(ends)[:-1])
                count += int(ends.sum())
            held += [piece] if piece else []
            size = sum(each["row"].size for each in held)
            if not size or (
                piece and (size < cells.BLOCK or held[0]["episode"][0] == piece["episode"][-1])
            ):
                continue
            rows = {name: np.concatenate([each[name] for each in held]) for name in held[0]}
            episode = rows["episode"]
            later = "the rows of an episode together; or name what orders them: order_by=, or a column step"
            refuse(
                self.field("episode"),
                np.diff(episode, prepend=last) < 0,
                episode,
                later,
                rows["row"],
                _Disorder,
            )
            whole = (
                episode.size if piece is None else int(np.argmax(episode == episode[-1]))
            )  # the last one may go on
            if whole:
                yield self._steps({name: column[:whole] for name, column in rows.items()}, told)
            last, held = int(episode[-1]), [{name: column[whole:] for name, column in rows.items()}]

    def _steps(self, rows: Rows, report: dict[str, int]) -> Steps:
        """Return whole episodes with the next state of each row; refuse wrong steps, and states that are no chain."""
        number, state, size = rows["row"], rows["state"].astype(np.int64), rows["row"].size
        new = np.append(True, np.diff(rows["episode"]) != 0)
        last, begin = np.append(new[1:], True), np.flatnonzero(new)
        due = np.arange(size) - np.repeat(begin, np.diff(np.append(begin, size)))
        step = rows.get("step", due)
        expected = "0, 1, 2, ... in every episode; name a column that only orders rows in order_by="
        refuse(self.field("step"), step != due, step, expected, number, _Disorder)
        ended = rows.get("terminated", np.zeros(size, bool))
        expected = (
            "true on the last row of an episode only; without an episode column rows are cut there"
        )
        for role in ("terminated", "truncated"):
            flag = rows.get(role, ended)
            refuse(self.field(role), flag & ~last, flag, expected, number)
        given = rows.get("next_state", np.full(size, MISSING)).astype(np.int64)
        following = np.where(last, np.where(ended, END, MISSING), np.append(state[1:], MISSING))
        filled = np.where(given == MISSING, following, given)
        broken = ~new & (state != np.roll(filled, 1))
        expected = f"the {self.field('next_state')} of the row before"
        if broken.any():
            refuse(self.field("state"), broken, self.states.decoded(state), expected, number)
        kept = (
            filled != MISSING if self.unlisted == "error" else ~(last & (given == MISSING) & ~ended)
        )
        action, reward = (
            rows["action"].astype(np.int64),
            rows.get("reward", np.full(size, math.nan)),
        )
        if self.unlisted == "error":
            for role, codes in (("state", state), ("action", action)):
                bad, expected = (
                    kept & (codes == MISSING),
                    'a label in every row, or unlisted="drop"',
                )
                refuse(self.field(role), bad, [None] * size, expected, number)
        _tell(
            report,
            no_next_state=~kept,
            next_state_filled=kept & (given == MISSING) & (filled >= 0),
            ended=ended,
        )
        return Steps(rows["episode"], due, state, action, filled, reward, ended, number).where(kept)

    def flows(
        self, known: Known, outcomes: Outcomes | None = None, rewards: RewardMap | None = None
    ) -> Iterator[Flow]:
        """Return its episodes as flows that a learner of ``known`` can learn from; each is a tenth of those before.

        States and actions are looked up in ``known.names``; without names they are the integers
        from 0. Rewards are those that ``known`` lists for what happened: the log's own are looked
        at to tell outcomes with one next state apart, and are NaN where they are missing and not
        known. ``outcomes`` is what the models allow (``features.attach(known)``), ``rewards`` or
        ``known.unit`` the unit of the log.
        """
        done, parts = 0, list[Flow]()
        match = _Match(self, known, outcomes, rewards)
        for name in ("unlisted", "rewards_replaced", "truncated", "split"):
            self.report.pop(name, None)
        for codes in self.blocks():
            block = match.rewarded(match.cut(match.named(codes)))
            episodes, first = block.begin.size - 1, 0
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

    def transitions(self, system: System) -> Iterator[Transition]:
        """Return its steps as a controller of a continuous system can learn from them."""
        from occamrl.logs.continuous import transitions_of  # which needs this module

        return transitions_of(self, system)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return all of it in memory, by column; episodes are numbered from 0."""
        blocks = list(self.blocks())
        found = {
            name: np.concatenate([getattr(block, name) for block in blocks])
            for name in Steps._fields[:-1]
        }
        for name, labels in (
            ("state", self.states),
            ("action", self.actions),
            ("next_state", self.states),
        ):
            found[name] = labels.decoded(found[name])
        return found

    def __repr__(self) -> str:
        return f"Log({self.source}: {count_of(self.episodes, 'episode')}, {count_of(self.rows, 'step')})"

    def __str__(self) -> str:
        told = [
            f"{self.report[name]:,} {words}"
            for name, words in _SAID.items()
            if self.report.get(name)
        ]
        sizes = f"{count_of(self.episodes, 'episode')}, {count_of(self.rows, 'step')}"
        return "; ".join([f"{self.source}: {sizes}", *told])


def _tell(report: dict[str, int], **marked: Any) -> None:
    """Count rows that are marked."""
    for name, rows in marked.items():
        if total := int(np.count_nonzero(rows)):
            report[name] = report.get(name, 0) + total


class _Match:
    """What takes blocks of a log to the states, actions and rewards of some models."""

    def __init__(
        self, log: Log, known: Known, outcomes: Outcomes | None, rewards: RewardMap | None
    ) -> None:
        names, sizes = (
            None if log.coded else known.names,
            {"state": known.states, "action": known.actions},
        )
        self.names = {
            role: getattr(names, role + "s", None) or range(size) for role, size in sizes.items()
        }
        self.labels = {"state": log.states, "action": log.actions}
        self.index = {role: self.labels[role].look_up(self.names[role]) for role in sizes}
        nothing = Outcomes(
            np.zeros(known.states * known.actions + 1, np.int64), np.zeros(0, np.int64), np.zeros(0)
        )
        self.log, self.known, self.outcomes = (
            log,
            known,
            outcomes or known.transition_rewards or nothing,
        )
        self.rewards = rewards or (RewardMap() if log.coded else RewardMap(*known.unit))
        self.tolerance = _DECIDES if log.tolerance is None else log.tolerance / self.rewards.scale
        origin = self.outcomes.pair // known.actions
        self.stirs = np.zeros(known.states, bool)  # states that can be left
        self.stirs[origin[self.outcomes.next_state != origin]] = True

    def named(self, block: Steps) -> Steps:
        """Look labels up; those that the models do not have are refused, or their rows dropped."""
        kept, found = np.ones(block.row.size, bool), dict[str, Any]()
        for role, kind in (("state", "state"), ("action", "action"), ("next_state", "state")):
            codes: Ints = getattr(block, role)
            found[role] = self.index[kind][codes]
            bad = found[role] == MISSING
            if role == "next_state":  # where an episode ends, its name does not matter
                found[role], bad = (
                    np.where(bad & block.terminated, END, found[role]),
                    bad & ~block.terminated,
                )
            if self.log.unlisted == "error" and bad.any():
                decoded = self.labels[kind].decoded(codes)
                label = decoded[int(np.argmax(bad))]
                refuse(self.log.field(role), bad, decoded, self._expected(kind, label), block.row)
            kept &= ~bad
        return self._drop(block._replace(**found), ~kept)

    def _expected(self, kind: str, label: Hashable) -> str:
        """Return the names of the models that are nearest to a label, and what to do."""
        names = self.names[kind]
        listed = f"one of 0 to {len(names) - 1}, as in the models"
        if not isinstance(names, range):
            names = [name for name in names if name != ELSEWHERE]
            due, got = (len(each) if isinstance(each, tuple) else 1 for each in (names[0], label))
            if due != got:
                shape = f"a tuple of {due}" if due > 1 else "one value"
                columns = f"{count_of(due, 'column')} in columns={{{kind!r}: ...}}"
                return f"{shape}, as the {kind}s of the models are: name {columns}"
            texts = [repr(name) for name in names[:10_000]]
            near = difflib.get_close_matches(repr(label), texts, n=3, cutoff=0.3) or texts[:3]
            listed = f"one of the {len(names)} {kind}s of the models, such as {', '.join(near)}"
        return f'{listed}; add it to the models, or leave such rows out with unlisted="drop"'

    def _drop(self, block: Steps, bad: NDArray[np.bool_]) -> Steps:
        _tell(self.log.report, unlisted=bad)
        return block.where(~bad) if bad.any() else block

    def cut(self, block: Steps) -> Steps:
        """Cut episodes that are longer than the horizon, or refuse them; count those that are shorter."""
        horizon, log = self.known.horizon, self.log
        piece, step = np.divmod(block.step, horizon)
        advice = f"at most {horizon} steps, from 0: a problem with horizon={log.longest}, or read_log(..., split=True)"
        if not log.split:
            refuse(log.field("step"), piece > 0, block.step, advice, block.row)
        new = (np.diff(block.episode, prepend=-1) != 0) | (np.diff(piece, prepend=0) != 0)
        last = np.append(new[1:], True)[: new.size]
        _tell(
            log.report,
            split=new & (piece > 0),
            truncated=last & ~block.terminated & (step < horizon - 1),
        )
        return block._replace(episode=np.cumsum(new) - 1, step=step)

    def rewarded(self, block: Steps) -> Steps:
        """Move ends into the last state, where the models end, and put the rewards of the models in place."""
        known, outcomes, log = self.known, self.outcomes, self.log
        ends = block.terminated & (
            (block.next_state == END) | self.stirs[np.maximum(block.next_state, 0)]
        )
        if self.stirs[-1]:
            expected = "no end where the models go on, or models whose last state is an end"
            refuse(log.field("terminated"), ends, block.terminated, expected, block.row)
        block = block._replace(next_state=np.where(ends, known.states - 1, block.next_state))
        pair = block.state * known.actions + block.action
        base, paid = known.base_reward.ravel()[pair], self.rewards.to_unit(block.reward)
        sought = (
            np.full(pair.size, -1e9),
            np.full(pair.size, 1e9),
            np.nan_to_num(paid - base),
        )  # below and above all
        low, high, found = (
            outcomes.index_of(pair, block.next_state, bonus, known.states) for bonus in sought
        )
        bonuses = np.append(outcomes.bonus, 0.0)  # 0 where an outcome is not listed
        listed, far = (
            base + bonuses[found],
            ~(np.abs(paid - base - bonuses[found]) <= self.tolerance),
        )
        vague = far & (bonuses[high] - bonuses[low] > _DECIDES)
        if log.unlisted == "error":
            expected = "one that the models list, as it tells outcomes apart here; if it is rounded, tolerance="
            if "reward" not in log._roles:
                expected = (
                    "a reward column, columns={'reward': ...}: rewards tell outcomes apart here"
                )
            refuse(log.field("reward"), vague, block.reward, expected, block.row)
        if known.rewards_known:
            _tell(log.report, rewards_replaced=far & ~vague & ~np.isnan(paid))
        fill = known.rewards_known | (np.isnan(paid) & (found >= 0) & outcomes.bonus.any())
        return self._drop(block._replace(reward=np.where(fill, listed, paid)), vague)


# Reading ------------------------------------------------------------------------------------------


def _roles_of(
    columns: Mapping[str, Any] | None, names: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the columns of each role that a table has."""
    asked, roles = dict(columns or {}), dict[str, tuple[str, ...]]()
    for key in asked:
        require_choice("columns", key, (*_ROLES, "ended"))
    if "ended" in asked or ("terminated" not in names and "ended" in names):
        asked.setdefault("terminated", asked.pop("ended", "ended"))
    for role in _ROLES:
        value = asked.get(role, role if role in names else None)
        if value is None:
            if role in ("state", "action") or (role == "episode" and role not in asked):
                expected = f"its name, given under columns; there are {', '.join(map(str, names))}"
                expected += "; None if the table is one sequence" * (role == "episode")
                raise LogError(role, got="no such column", expected=expected)
            continue
        parts = (value,) if isinstance(value, str) or value in names else tuple(value)
        if not parts or (len(parts) > 1 and role not in _LABELS):
            raise ParameterError(
                f"columns[{role!r}]", got=repr(value), expected="the name of one column"
            )
        for part in parts:
            if part not in names:
                raise UnknownName(f"columns[{role!r}]", got=part, known=map(str, names))
        roles[role] = parts
    if "next_state" in roles and len(roles["next_state"]) != len(roles["state"]):
        expected = f"as many columns as the state has, {len(roles['state'])}; or None, for those of the next row"
        raise ParameterError(
            "columns['next_state']", got=repr(roles["next_state"]), expected=expected
        )
    return roles


def read_log(
    source: Any,
    columns: Mapping[str, str | Sequence[str] | None] | None = None,
    *,
    order_by: str | None = None,
    tolerance: float | None = None,
    unlisted: str = "error",
    split: bool = False,
) -> Log:
    """Return the log in a file, a data frame or a dataset, whatever its columns are called; every row is checked.

    >>> import occamrl as orl
    >>> days = {"store": ["A", "B", "A", "B"], "day": [1, 1, 2, 2], "stock": [4, 2, 3, 0], "order": ["no", "yes"] * 2}
    >>> log = orl.read_log(days, {"episode": "store", "state": "stock", "action": "order"}, order_by="day")
    >>> log
    Log(log: 2 episodes, 2 steps)
    >>> log.report["no_next_state"]  # print(log) says all that was dropped or mended
    2

    Parameters
    ----------
    source : path, data frame or dataset
        A file whose name ends in ``.csv`` is CSV with a line of names, any other one Parquet; files
        are read in blocks, now and whenever they are used. ``minari:ID`` is a Minari dataset on
        this machine. Or a data frame of pandas or Polars, an Arrow table, a mapping of columns, a
        list of rows.
    columns : dict, optional
        The column of each role, several for a tuple: episode, state, action, next_state, reward,
        ended, truncated, step; by default the column of that name. ``next_state: None``: that of
        the next row. ``episode: None``: one sequence, which is cut where it ended.
    order_by : str, optional
        A column of numbers or dates. With it, or with a column ``step``, rows may come in any
        order.
    tolerance : float, optional
        How far a reward may be from one that the models list, in the unit of the log; by default
        0.001 of their range.
    unlisted : "error" | "drop"
        What to do with rows whose state, action or reward is missing or not in the models.
    split : bool
        Cut episodes that are longer than the horizon into pieces: right for systems that go on.
    """
    if isinstance(source, Log):
        if columns is not None or order_by is not None:
            expected = "what it was read from, to read it with other columns"
            raise ParameterError("log", got=repr(source), expected=expected)
        return source
    require_choice("unlisted", unlisted, ("error", "drop"))
    if tolerance is not None:
        require_number("tolerance", tolerance, 0.0, math.inf)
    table = open_table(source)
    if order_by is not None and order_by not in table.names:
        raise UnknownName("order_by", got=order_by, known=map(str, table.names))
    return Log(table, _roles_of(columns, table.names), order_by, tolerance, unlisted, split)


def simulate_log(mdp: FiniteMDP, *, episodes: int, seed: int = 0) -> Log:
    """Return a log of simulated episodes of full length, by a uniformly random policy."""
    problem, draw = as_mdp(mdp), stream(seed, "log")
    allowed = problem.known.allowed / problem.known.allowed.sum(axis=1, keepdims=True)
    chances = np.tile(allowed, (problem.horizon, 1, 1))
    flows = [
        simulate(problem, chances, 1, draw) for _ in range(require_integer("episodes", episodes, 1))
    ]
    names = ("state", "action", "next_state", "reward")
    columns = {name: np.concatenate([getattr(flow, name) for flow in flows]) for name in names}
    columns["episode"] = np.repeat(np.arange(episodes), problem.horizon)
    log = read_log(columns)
    log.source = f"simulated, seed {seed}"
    log.coded = True
    return log
