"""``relevant``: which columns of a log matter, how much of the past, and what can be done with it.

The columns of the state, of the action and of earlier rows, and the part of the log that a row is
in, are candidates; the reward, the end of episodes and the next values of columns are targets
(``evidence/columns.py``). The *state* is what reward and end need, and what the next values of
these columns need, and so on.

**Bins.** A column of numbers with many values is cut at quantiles of the first rows, which are not
weighed: the ends of bins are then fixed before the rows that count. **Parts** of the log end at
rows 256, 512, 1024, ..., which needs no knowledge of how long it will be.

**Policies** are planned carefully in tables of counts on that state (``models/tables.py``).
*Cross-fitted*: one half of the units (episodes, or twenty pieces of a log that has few) makes the
policies, the other half a table in which they are compared, and then the other way round. The
spread is that of 200 draws of the units that compare, with replacement.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from occamrl.addresses import generator
from occamrl.answers.columns import columns_page, columns_sentences, columns_text
from occamrl.answers.wording import Sentence, format_number
from occamrl.arrays import Bools, Floats, Ints
from occamrl.errors import (
    NotAvailable,
    ParameterError,
    UnknownName,
    require_delta,
    require_integer,
    require_kind,
)
from occamrl.evidence.columns import Coded, Weighed, weigh_columns
from occamrl.files import make_folder, write_whole
from occamrl.logs.log import Log, read_log
from occamrl.logs.repairs import Steps
from occamrl.logs.table import END
from occamrl.models.families import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.models.tables import (
    ENDED,
    TableRows,
    actions_taken,
    careful_plan,
    count_table,
    states_met,
    worth_of,
)
from occamrl.naming import Labels, Names, labels_of
from occamrl.policies import Policy
from occamrl.protocols import Known, Note, RewardMap

PART = "part of the log"
REWARD = "reward"
EPISODE_END = "end"
_MOST_VALUES = 25  # of a column of numbers that is not cut into bins
_FIRST_PART = 256  # rows; every part is as long as all before it
_FIRST_ROWS = 20  # for each bin, which fix the ends of bins
_BOOTSTRAPS = 200
_PIECES = 20  # of a log that has fewer episodes
_LEAST = 8  # units below which policies are not compared
_LONGEST = 100  # steps that a plan looks ahead
_STRENGTHS = (1.0, 4.0, 16.0)  # counts by which tables of a ladder are smoothed
_MOST_ENTRIES = 2 * 10**6  # of the kernels of a ladder


class Candidate(NamedTuple):
    """A column that may matter."""

    name: str
    kind: Literal["state", "action", "part"]
    origin: str  # its column in the log
    lag: int  # how many rows before
    column: Coded
    values: Sequence[Hashable]  # what its codes stand for
    cut: bool  # whether it was cut into bins


class Target(NamedTuple):
    """What may need columns."""

    column: Coded
    rows: Bools  # on which it is known
    cut: bool


class Difference(NamedTuple):
    """What one policy earned more than another, cross-fitted; an estimate and no guarantee."""

    value: float
    low: float  # 5 % of the bootstrap draws are below
    high: float  # 5 % are above
    spread: float  # their standard deviation


class Numbered(NamedTuple):
    """The state of each row on some columns, and the next one."""

    state: Ints
    following: Ints  # ENDED where the episode did
    names: list[tuple[Hashable, ...]]


class Columns(NamedTuple):
    """A log as candidates and targets, in codes."""

    steps: Steps
    candidates: list[Candidate]
    following: dict[str, Ints]  # the next value of each state column; ENDED where there is none
    targets: dict[str, Target]
    first: int  # rows before are not weighed


# Reading ------------------------------------------------------------------------------------------


def _number_values(values: Sequence[Hashable]) -> bool:
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


def _cut(edges: Floats) -> list[str]:
    """Return the names of the bins between some edges."""
    texts = [format_number(float(edge)) for edge in edges]
    inner: list[str] = []
    for low, high in itertools.pairwise(texts):
        inner.append(low if low == high else f"{low} to {high}")
    return [f"below {texts[0]}", *inner, f"{texts[-1]} or more"]


def _part_of(labels: Sequence[Any], part: int, single: bool) -> tuple[Ints, list[Hashable]]:
    """Return one part of labels that may be tuples: its code in each, and what codes stand for."""
    values = [label if single else label[part] for label in labels]
    distinct = list(dict.fromkeys(values))
    if _number_values(distinct):
        distinct.sort()
    number = {value: code for code, value in enumerate(distinct)}
    return np.array([number[value] for value in values], np.int64), distinct


class _Reader:
    """A log as it becomes candidates and targets."""

    def __init__(self, log: Log, lags: int, bins: int) -> None:
        self.log = log
        self.bins = bins
        parts: list[Any] = [np.concatenate(part) for part in zip(*log.blocks(), strict=True)]
        self.steps = Steps(*parts)
        rows = self.steps.state.size
        self.training = _FIRST_ROWS * bins
        self.first = 0
        previous = np.arange(rows) - 1
        same = np.append(False, np.diff(self.steps.episode) == 0)
        same &= np.diff(self.steps.step, prepend=0) == 1
        self.previous = np.where(same, previous, -1)
        self.lags = lags

    def read(self) -> Columns:
        """Return all candidates and targets."""
        steps = self.steps
        current: list[Candidate] = []
        following: dict[str, Ints] = {}
        targets: dict[str, Target] = {}
        states = list(self.log.states.codes)
        names = list(map(str, self.log.roles["state"]))
        ended = steps.next_state == END
        for i, name in enumerate(names):
            codes, values = _part_of(states, i, len(names) == 1)
            codes, values, cut = self._binned(codes, values, steps.state)
            column = Coded(codes[steps.state], len(values))
            current.append(Candidate(name, "state", name, 0, column, values, cut))
            next_codes = np.where(ended, ENDED, codes[np.maximum(steps.next_state, 0)])
            following[name] = next_codes
            targets[name] = Target(Coded(next_codes, len(values)), ~ended, cut)
        actions = list(self.log.actions.codes)
        chosen = list(map(str, self.log.roles["action"]))
        for i, name in enumerate(chosen):
            codes, values = _part_of(actions, i, len(chosen) == 1)
            codes, values, cut = self._binned(codes, values, steps.action)
            column = Coded(codes[steps.action], len(values))
            current.append(Candidate(name, "action", name, 0, column, values, cut))
        self._require_names(names + chosen)
        candidates = [*current, *self._earlier(current), self._part()]
        paid = ~np.isnan(steps.reward)
        if paid.any():
            targets[REWARD] = self._reward(paid)
        if ended.any() and not ended.all():
            everywhere = np.ones(ended.size, bool)
            targets[EPISODE_END] = Target(Coded(ended.astype(np.int64), 2), everywhere, False)
        return Columns(steps, candidates, following, targets, self.first)

    def _require_names(self, names: Sequence[str]) -> None:
        for name in names:
            if name in (REWARD, EPISODE_END, PART):
                expected = "another name of that column: this one is what answers call a target"
                got = f"a state or action column {name!r}"
                raise ParameterError("log", got=got, expected=expected)

    def _binned(
        self, codes: Ints, values: list[Hashable], rows: Ints
    ) -> tuple[Ints, list[Hashable], bool]:
        """Return codes of labels as those of bins where there are many numbers."""
        if len(values) <= _MOST_VALUES or not _number_values(values):
            return codes, values, False
        numbers = np.array(values, np.float64)[codes]
        edges = self._edges(numbers[rows])
        return np.searchsorted(edges, numbers, side="right"), list(_cut(edges)), True

    def _edges(self, numbers: Floats) -> Floats:
        """Return where to cut: at quantiles of the first rows, whatever comes later."""
        first = np.flatnonzero(~np.isnan(numbers))[: self.training]
        self.first = max(self.first, int(first[-1]) + 1)
        begin = numbers[first]
        inner = np.quantile(begin, np.linspace(0.0, 1.0, self.bins + 1)[1:-1])
        edges, times = np.unique(inner, return_counts=True)
        # what many of the first rows have is a bin of its own
        edges = np.union1d(edges, np.nextafter(edges[times > 1], np.inf))
        edges = edges[edges > begin.min()]
        if not edges.size:
            edges = np.nextafter(begin[:1], np.inf)
        return edges

    def _reward(self, paid: Bools) -> Target:
        reward = self.steps.reward
        values = np.unique(reward[paid])
        if values.size <= _MOST_VALUES:
            return Target(Coded(np.searchsorted(values, reward), values.size), paid, False)
        edges = self._edges(reward)
        codes = np.searchsorted(edges, reward, side="right")
        return Target(Coded(codes, edges.size + 1), paid, True)

    def _earlier(self, current: Sequence[Candidate]) -> list[Candidate]:
        """Return the columns of earlier rows; a value of its own says that there is none."""
        earlier: list[Candidate] = []
        row = np.arange(self.previous.size)
        for lag in range(1, self.lags + 1):
            row = np.where(row >= 0, self.previous[row], -1)
            for origin in current:
                size = origin.column.size
                codes = np.where(row >= 0, origin.column.codes[row], size)
                before = "1 row before" if lag == 1 else f"{lag} rows before"
                candidate = origin._replace(
                    name=f"{origin.name}, {before}",
                    lag=lag,
                    column=Coded(codes, size + 1),
                    values=[*origin.values, "(none)"],
                )
                earlier.append(candidate)
        return earlier

    def _part(self) -> Candidate:
        row = np.arange(self.previous.size)
        codes = np.ceil(np.log2((row + 1) / _FIRST_PART)).clip(0).astype(np.int64)
        size = int(codes.max()) + 1
        return Candidate(PART, "part", PART, 0, Coded(codes, size), range(size), False)


# The answer ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Relevance:
    """Which columns matter: what :func:`relevant` returns; print it, or write it as a page."""

    source: Log
    columns: Columns
    weighed: Mapping[str, Weighed]  # by target
    lags: int
    bins: int
    delta: float
    maximum: int

    # Which columns --------------------------------------------------------------------------------

    def names(self, chosen: Sequence[int]) -> tuple[str, ...]:
        """Return the names of candidates."""
        return tuple(self.columns.candidates[i].name for i in chosen)

    @property
    def needed(self) -> dict[str, tuple[str, ...]]:
        """By target, the columns that are proved needed, if few matter."""
        return {name: self.names(weighed.needed) for name, weighed in self.weighed.items()}

    @property
    def likely(self) -> dict[str, tuple[str, ...]]:
        """By target, the columns that are likely to be needed and not proved."""
        likely: dict[str, tuple[str, ...]] = {}
        for name, weighed in self.weighed.items():
            likely[name] = self.names([i for i in weighed.likely if i not in weighed.needed])
        return likely

    @property
    def minimal(self) -> dict[str, list[tuple[str, ...]]]:
        """By target, the smallest sets of columns that the log does not exclude."""
        minimal: dict[str, list[tuple[str, ...]]] = {}
        for name, weighed in self.weighed.items():
            fewest = min(map(len, weighed.compatible), default=0)
            smallest = [chosen for chosen in weighed.compatible if len(chosen) == fewest]
            minimal[name] = [self.names(chosen) for chosen in smallest]
        return minimal

    @property
    def plausible(self) -> dict[str, tuple[str, ...]]:
        """By target, the set of columns that predicts best for its size."""
        return {name: self.names(weighed.best) for name, weighed in self.weighed.items()}

    @cached_property
    def chosen(self) -> tuple[int, ...]:
        """The candidates of which the state is made."""
        candidates = self.columns.candidates
        wanted: set[tuple[str, int]] = set()
        for weighed in self.weighed.values():
            for i in weighed.best:
                candidate = candidates[i]
                is_state = candidate.kind == "state"
                if is_state or (candidate.kind == "action" and candidate.lag):
                    # a row before is the current one of a row before
                    for lag in range(0 if is_state else 1, candidate.lag + 1):
                        wanted.add((candidate.origin, lag))
        return tuple(i for i, c in enumerate(candidates) if (c.origin, c.lag) in wanted)

    @property
    def state(self) -> tuple[str, ...]:
        """The columns that reward and end need, and what these need in turn."""
        return self.names(self.chosen)

    @property
    def changed(self) -> tuple[str, ...]:
        """The targets for which the part of the log, or a column that tells it, seems to matter."""
        changed: list[str] = []
        for name, weighed in self.weighed.items():
            kinds = [self.columns.candidates[i].kind for i in (*weighed.needed, *weighed.likely)]
            if "part" in kinds or weighed.timed:
                changed.append(name)
        return tuple(changed)

    @property
    def exogenous(self) -> tuple[str, ...]:
        """The columns of the state for which there is no sign that actions change them."""
        influenced = {c.origin for c in self.columns.candidates if c.kind == "action"}
        size = 0
        while size < len(influenced):
            size = len(influenced)
            for name, weighed in self.weighed.items():
                origins = {self.columns.candidates[i].origin for i in weighed.best}
                if origins & influenced:
                    influenced.add(name)
        columns = dict.fromkeys(self.columns.candidates[i].origin for i in self.chosen)
        return tuple(name for name in columns if name in self.weighed and name not in influenced)

    # What can be done -----------------------------------------------------------------------------

    @cached_property
    def horizon(self) -> int:
        """How many steps plans look ahead: as many as the longest episode has, at most 100."""
        return min(self.source.longest, _LONGEST)

    @cached_property
    def _compared(self) -> tuple[int, ...]:
        """The candidates of the state in which policies are compared: those chosen, and others.

        Without those that are unlikely to be needed for any target. Where little is known this is
        more than the state, so that a plan that overlooks a column is found out.
        """
        unlikely = [set(weighed.unlikely) for weighed in self.weighed.values()]
        excluded = set.intersection(*unlikely)
        compared: list[int] = []
        for i, c in enumerate(self.columns.candidates):
            is_open = c.kind == "state" and not c.lag and i not in excluded
            if i in self.chosen or is_open:
                compared.append(i)
        return tuple(compared)

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns on which policies are compared."""
        return self.names(self._compared)

    def _number(self, chosen: Sequence[int]) -> Numbered:
        """Return the state and the next state of each row on some candidates."""
        candidates = self.columns.candidates
        where = {(c.origin, c.lag): i for i, c in enumerate(candidates)}
        now: list[Ints] = []
        after: list[Ints] = []
        for i in chosen:
            c = candidates[i]
            now.append(c.column.codes)
            if c.lag:
                after.append(candidates[where[c.origin, c.lag - 1]].column.codes)
            else:
                after.append(self.columns.following[c.origin])
        ended = self.columns.steps.next_state == END
        rows = ended.size
        if not now:
            return Numbered(np.zeros(rows, np.int64), np.where(ended, ENDED, 0), [()])
        both = np.hstack([np.stack(now), np.stack(after)[:, ~ended]])
        kinds, inverse = np.unique(both, axis=1, return_inverse=True)
        number = inverse.ravel()
        following = np.full(rows, ENDED)
        following[~ended] = number[rows:]
        names: list[tuple[Hashable, ...]] = []
        for kind in kinds.T.tolist():
            parts = zip(chosen, kind, strict=True)
            names.append(tuple(candidates[i].values[code] for i, code in parts))
        return Numbered(number[:rows], following, names)

    @cached_property
    def _numbered(self) -> Numbered:
        """The rows on the state that was chosen."""
        return self._number(self.chosen)

    @cached_property
    def _finer(self) -> Numbered:
        """The rows on the state in which policies are compared."""
        return self._number(self._compared)

    def _group(self, chosen: Sequence[int]) -> Ints:
        """Return what a policy on some candidates sees of each state that is compared."""
        kept = [place for place, i in enumerate(self._compared) if i in chosen]
        names = [tuple(name[place] for place in kept) for name in self._finer.names]
        numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
        return np.array([numbers[name] for name in names])

    @cached_property
    def _rows(self) -> TableRows:
        """The rows that have a reward, in units that are drawn together."""
        steps = self.columns.steps
        paid = ~np.isnan(steps.reward)
        if not paid.any():
            raise NotAvailable("the log has no rewards: name their column to compare policies")
        state, following, names = self._finer
        episode = np.unique(steps.episode, return_inverse=True)[1]
        unit = episode
        units = int(episode.max()) + 1
        first = np.append(True, np.diff(episode) != 0)
        if self.in_pieces:
            units = min(_PIECES, state.size)
            unit = np.arange(state.size) * units // state.size
            first = np.ones(state.size, bool)
        return TableRows(
            unit[paid],
            state[paid],
            steps.action[paid],
            following[paid],
            steps.reward[paid],
            np.flatnonzero(first[paid]),
            len(names),
            len(self.source.actions.codes),
            units,
        )

    @cached_property
    def _own_rows(self) -> TableRows:
        """The same rows on the state that was chosen."""
        paid = ~np.isnan(self.columns.steps.reward)
        state, following, names = self._numbered
        return self._rows._replace(state=state[paid], next_state=following[paid], states=len(names))

    @property
    def in_pieces(self) -> bool:
        """Whether the log has few episodes, and counts as pieces of one."""
        return self.source.episodes < _PIECES

    @property
    def comparable(self) -> bool:
        """Whether the log has rewards, and units enough to compare policies."""
        return not bool(np.isnan(self.columns.steps.reward).all()) and self._rows.units >= _LEAST

    @property
    def unpaid(self) -> int:
        """How many rows have no reward."""
        return int(np.isnan(self.columns.steps.reward).sum())

    @property
    def labels(self) -> Labels:
        """What the parts of the state, the action, a step and an episode are called."""
        return labels_of((), {**self.source.roles, "state": self.state}, len(self.state))

    @cached_property
    def gain(self) -> Difference:
        """What policies planned as :attr:`policy` is earn more per episode than today's."""
        return self._difference(self._group(self.chosen), None)

    def without(self, column: str) -> Difference:
        """Return what plans on the state earn more than plans on the state without a column.

        Both are made by one half of the log and compared on the other, in a table on the whole
        state, and the other way round.
        """
        every = self.names(range(len(self.columns.candidates)))
        if column not in every:
            raise UnknownName("column", got=column, known=every)
        others = [i for i in self.chosen if every[i] != column]
        if len(others) == len(self.chosen):
            return Difference(0.0, 0.0, 0.0, 0.0)  # no policy looks at it
        return self._difference(self._group(self.chosen), self._group(others))

    def _plan(self, weight: Floats, group: Ints) -> Ints:
        """Return a policy [H, S+1] that looks at groups of states, from some units."""
        rows = self._rows
        groups = int(group.max()) + 1
        table = count_table(rows.merge(groups, group), weight)
        policy = careful_plan(table, self.horizon)
        return policy[:, np.append(group, groups)]

    def _difference(self, one: Ints, other: Ints | None) -> Difference:
        """Compare policies on two groupings of states; None: with what was done in the log."""
        rows = self._rows
        if rows.units < _LEAST:
            raise NotAvailable("the log is too short to compare policies")
        draw = generator(0, "columns")
        draws = np.zeros(_BOOTSTRAPS + 1)
        for fold in (0, 1):
            fits = np.arange(rows.units) % 2 == fold
            tests = np.flatnonzero(~fits)
            policy = self._plan(fits.astype(np.float64), one)
            rival = None if other is None else self._plan(fits.astype(np.float64), other)
            for b in range(_BOOTSTRAPS + 1):
                chosen = draw.choice(tests, tests.size) if b else tests
                weight = np.bincount(chosen, minlength=rows.units).astype(np.float64)
                table = count_table(rows, weight)
                against: Ints | Floats
                if rival is None:
                    taken = actions_taken(table)
                    against = np.broadcast_to(taken, (self.horizon, *taken.shape))
                else:
                    against = rival
                draws[b] += 0.5 * (worth_of(table, policy) - worth_of(table, against))
        low, high = np.quantile(draws[1:], [0.05, 0.95])
        return Difference(float(draws[0]), float(low), float(high), float(draws[1:].std()))

    @cached_property
    def earned(self) -> float:
        """What the log earned per episode, or, if it has few, in as many steps as a plan has."""
        steps: float = self.horizon
        if not self.in_pieces:
            steps = self.source.rows / self.source.episodes
        return float(self._rows.reward.mean()) * steps

    @cached_property
    def policy(self) -> Policy:
        """A careful plan on the state, from the whole log; see :attr:`recommended`."""
        rows = self._own_rows
        table = count_table(rows, np.ones(rows.units))
        actions = careful_plan(table, self.horizon)[:, : rows.states]
        if self.source.longest > _LONGEST:
            actions = np.repeat(actions[:1], self.horizon, axis=0)
        known = self.known
        ended = np.zeros((self.horizon, known.states - rows.states), np.int64)
        met = states_met(table, actions)
        return Policy(
            np.hstack([actions, ended]),
            known,
            np.hstack([met, ended > 0]),
            labels=self.labels,
        )

    @property
    def recommended(self) -> bool:
        """Whether plans like :attr:`policy` beat today's: 95 % of the bootstrap draws say so.

        Never where something changed in the course of the log, or where it shows no reward.
        """
        return self.comparable and not self.changed and self.gain.low > 0.0

    # What goes on ---------------------------------------------------------------------------------

    @cached_property
    def known(self) -> Known:
        """Sizes, names, and mean rewards of the log on the state that was chosen."""
        rows = self._own_rows
        names = [_single(name) for name in self._numbered.names]
        ends = bool((rows.next_state == ENDED).any())
        low, high = float(rows.reward.min()), float(rows.reward.max())
        unit = RewardMap(low, high if high > low else low + 1.0)
        table = count_table(rows, np.ones(rows.units))
        visits = table.visits.reshape(-1, rows.actions)[:-1]
        mean = np.where(visits > 0.0, table.kernel.reward.reshape(-1, rows.actions)[:-1], low)
        absorbing = [False] * len(names)
        initial = table.start[:-1]
        if ends:
            names.append("(ended)")
            absorbing.append(True)
            mean = np.vstack([mean, np.full(rows.actions, min(max(0.0, low), unit.high))])
            initial = np.append(initial, 0.0)
        return Known(
            len(names),
            rows.actions,
            self.horizon,
            unit.to_unit(mean),
            initial=initial,
            unit=unit,
            names=Names(tuple(names), tuple(self.source.actions.codes), tuple(absorbing)),
            random_rewards=True,
        )

    @cached_property
    def log(self) -> Log:
        """The log with the chosen state, bins and earlier rows included."""
        steps = self.columns.steps
        state, following, names = self._numbered
        states = np.empty(len(names) + 1, object)
        for i, name in enumerate(names):
            states[i] = _single(name)
        actions = np.empty(len(self.source.actions.codes), object)
        actions[:] = list(self.source.actions.codes)
        table = {
            "episode": steps.episode,
            "step": steps.step,
            "state": states[state],
            "action": actions[steps.action],
            "reward": steps.reward,
            "next_state": states[following],
            "terminated": steps.terminated,
        }
        log = read_log(table, split=True)
        log.source = f"{self.source.source}, {', '.join(self.state) or 'no column'}"
        # whoever judges models by it hears that they may have been made of it
        log.repairs.counts["chosen_here"] = log.rows
        log.repairs.totals["chosen_here"] = 0
        log.repairs.examples["chosen_here"] = []
        return log

    @cached_property
    def ladder(self) -> Ladder:
        """Smoothed tables on nested sets of columns, on which alone depends what comes next.

        Made of this log, so that the level of a test holds on other data than these.
        """
        rows = self._own_rows
        names = self._numbered.names
        known = self.known
        if known.states**2 * known.actions * len(_STRENGTHS) > _MOST_ENTRIES:
            raise NotAvailable(f"tables of {known.states:,} states are too large for a ladder")
        following = np.where(rows.next_state == ENDED, known.states - 1, rows.next_state)
        everywhere = np.bincount(following, minlength=known.states) + 0.01
        everywhere = everywhere / everywhere.sum()
        kernels: list[Floats] = []
        families: list[FiniteFamily] = []
        for length in range(len(self.chosen) + 1):
            keys = [name[:length] for name in names]
            numbers = {key: i for i, key in enumerate(dict.fromkeys(keys))}
            group = np.array([numbers[key] for key in keys])
            shape = (len(numbers), rows.actions, known.states)
            count = np.zeros(shape)
            np.add.at(count, (group[rows.state], rows.action, following), 1.0)
            for strength in _STRENGTHS:
                total = count.sum(axis=2, keepdims=True) + strength
                kernel = ((count + strength * everywhere) / total)[group]
                if known.states > len(names):
                    stays = np.zeros((1, rows.actions, known.states))
                    stays[:, :, -1] = 1.0
                    kernel = np.concatenate([kernel, stays])
                kernels.append(kernel)
            families.append(FiniteFamily(np.array(kernels)))
        titles = ["no column"]
        for length in range(1, len(self.chosen) + 1):
            titles.append(", ".join(self.state[:length]))
        return Ladder(families, names=titles)

    # Words ----------------------------------------------------------------------------------------

    @property
    def notes(self) -> tuple[Note, ...]:
        """What was done to the rows of the log, and what that does to guarantees."""
        return self.source.notes

    @cached_property
    def said(self) -> list[Sentence]:
        """The answer as sentences."""
        return columns_sentences(self)

    def __str__(self) -> str:
        return columns_text(self)

    def page(self, path: str | Path) -> Path:
        """Write the answer as a page, whole or not at all; return its path."""
        place = Path(path)
        make_folder(place.parent)
        write_whole(place, columns_page(self).encode())
        return place


def _single(name: tuple[Hashable, ...]) -> Hashable:
    """Return the name of a state: that of its only part, or a tuple."""
    return name[0] if len(name) == 1 else name


def relevant(
    log: Any,
    *,
    lags: int = 0,
    targets: Sequence[str] | None = None,
    bins: int = 6,
    delta: float = 0.05,
    maximum: int = 3,
) -> Relevance:
    """Find out which columns of a log matter, how much of the past, and what can be done.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> draw = np.random.default_rng(0)
    >>> days = {"stock": draw.integers(4, size=600), "moon": draw.integers(4, size=600)}
    >>> days["order"] = draw.integers(2, size=600)
    >>> days["profit"] = np.minimum(days["stock"], 2) - days["order"]
    >>> columns = {"episode": None, "state": ["stock", "moon"], "action": "order"}
    >>> log = orl.read_log(days, {**columns, "reward": "profit"})
    >>> answer = orl.relevant(log)  # print it
    >>> answer.needed["reward"], answer.state
    (('stock', 'order'), ('stock',))

    Parameters
    ----------
    log : Log, path, data frame or dataset
        What :func:`occamrl.read_log` takes. Columns of its state and action are candidates.
    lags : int
        How many earlier rows of an episode are candidates too.
    targets : sequence of str, optional
        What to begin with: "reward", "end", or names of state columns, which stand for their next
        values. By default reward and end. What these need becomes a target in turn.
    bins : int
        Into how many bins a column of numbers with more than 25 values is cut, at quantiles.
    delta : float
        With probability 1 - delta nothing is called needed that is not, if at most ``maximum``
        columns matter.
    maximum : int
        How many columns may matter for a target.
    """
    source = read_log(log)
    require_integer("lags", lags, 0)
    require_integer("bins", bins, 2)
    require_delta(delta)
    require_integer("maximum", maximum, 1)
    columns = _Reader(source, lags, bins).read()
    wanted = [name for name in (REWARD, EPISODE_END) if name in columns.targets]
    if targets is not None:
        require_kind("targets", targets, (list, tuple))
        wanted = list(targets)
    for name in wanted:
        if name not in columns.targets:
            raise UnknownName("targets", got=name, known=columns.targets)
    wanted = wanted or list(columns.targets)
    weighed: dict[str, Weighed] = {}
    while wanted:
        name = wanted.pop(0)
        weighed[name] = _weigh(columns, name, delta, maximum)
        for i in weighed[name].best:
            candidate = columns.candidates[i]
            if candidate.kind == "state" and candidate.origin not in (*weighed, *wanted):
                wanted.append(candidate.origin)
    return Relevance(
        source=source,
        columns=columns,
        weighed=weighed,
        lags=lags,
        bins=bins,
        delta=delta,
        maximum=maximum,
    )


def _weigh(columns: Columns, name: str, delta: float, maximum: int) -> Weighed:
    """Weigh what one target needs."""
    target = columns.targets[name]
    rows = target.rows.copy()
    rows[: columns.first] = False
    candidates: list[Coded] = []
    clocks: list[int] = []
    for i, candidate in enumerate(columns.candidates):
        if candidate.kind == "part":
            clocks.append(i)
        candidates.append(Coded(candidate.column.codes[rows], candidate.column.size))
    return weigh_columns(
        Coded(target.column.codes[rows], target.column.size),
        candidates,
        maximum=maximum,
        delta=delta,
        targets=len(columns.targets),
        draw=generator(0, f"shuffled {name}"),
        clocks=clocks,
    )
