"""``relevant``: which columns of a log matter, how much of the past, and what can be done with it.

What each target needs is weighed by ``evidence/columns.py``, on the log in codes of
``logs/columns.py``. The *state* is what reward and end need, and what the next values of these
columns need, and so on. Plans on it are made and compared in ``logs/plans.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from occamrl.addresses import generator
from occamrl.answers.columns import columns_page, columns_sentences
from occamrl.answers.wording import Sentence, lines_of
from occamrl.arrays import Floats, Ints
from occamrl.errors import (
    NotAvailable,
    UnknownName,
    require_delta,
    require_integer,
    require_kind,
)
from occamrl.evidence.columns import Weighed, sets_checked, tells, weigh_columns
from occamrl.files import make_folder, write_whole
from occamrl.logs.columns import EPISODE_END, REWARD, Columns, read_columns
from occamrl.logs.log import Log, read_log
from occamrl.logs.plans import Plans
from occamrl.logs.table import END
from occamrl.models.families import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.models.tables import ENDED, TableRows, count_table, states_met
from occamrl.naming import Labels, Names, labels_of
from occamrl.policies import Policy
from occamrl.protocols import Known, Note, RewardMap

_MOST_LAGS = 1_000  # earlier rows that are looked at
_MOST_GAPS = 0.1  # the share of rows after gaps from which on no policy is recommended
_FEWEST_UNITS = 8  # with which policies are compared
_STRENGTHS = (1.0, 4.0, 16.0)  # counts by which tables of a ladder are smoothed
_MOST_ENTRIES = 2 * 10**6  # of the kernels of a ladder


class Difference(NamedTuple):
    """What one plan earned more than another, cross-fitted; an estimate and no guarantee."""

    value: float
    low: float  # 5 % of the bootstrap draws are below
    high: float  # 5 % are above
    spread: float  # their standard deviation


class States(NamedTuple):
    """The state of each row on some columns, and the next one."""

    state: Ints
    following: Ints  # ENDED where the episode did
    names: list[tuple[Hashable, ...]]


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
    checked: int  # "if at most so many columns matter"

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
                # a row before is the current one of a row before; the action is still to come
                first = 1 if candidate.kind == "action" else 0
                if candidate.kind != "part":
                    for lag in range(first, candidate.lag + 1):
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
            kinds = [self.columns.candidates[i].kind for i in weighed.likely]
            if "part" in kinds or weighed.timed:
                changed.append(name)
        return tuple(changed)

    @property
    def foretold(self) -> dict[str, str]:
        """The columns whose next value another column tells in every row, and that column."""
        foretold: dict[str, str] = {}
        for name, weighed in self.weighed.items():
            if weighed.told and len(weighed.likely) == 1 and name in self.columns.following:
                teller = self.columns.candidates[weighed.likely[0]]
                if teller.kind == "state" and not teller.lag and teller.origin != name:
                    foretold[name] = teller.name
        return foretold

    @property
    def twins(self) -> list[tuple[str, ...]]:
        """The pairs of columns of the log's state that tell each other in every row."""
        sizes: dict[int, int] = {}
        for i, candidate in enumerate(self.columns.candidates):
            if candidate.kind == "state" and not candidate.lag and not candidate.scattered:
                sizes[i] = candidate.occurring
        twins: list[tuple[str, ...]] = []
        for pair in itertools.combinations(sizes, 2):
            one, other = (self.columns.candidates[i].column for i in pair)
            # of as many values as the other, each tells one
            if sizes[pair[0]] == sizes[pair[1]] > 1 and tells(one, other):
                twins.append(self.names(pair))
        return twins

    @property
    def exogenous(self) -> tuple[str, ...]:
        """The columns of the state that actions do not seem to change.

        The log speaks against every action where their next values are asked for, and where those
        are that they seem to need.
        """
        candidates = self.columns.candidates
        actions = {i for i, c in enumerate(candidates) if c.kind == "action" and not c.lag}
        changed = {c.origin for c in candidates if c.kind == "action"}
        changed.update(self.foretold.values())  # which may be known only afterwards
        for name, weighed in self.weighed.items():
            if not actions <= set(weighed.unlikely):
                changed.add(name)
        size = 0
        while size < len(changed):
            size = len(changed)
            for name, weighed in self.weighed.items():
                if any(candidates[i].origin in changed for i in weighed.best):
                    changed.add(name)
        columns = dict.fromkeys(candidates[i].origin for i in self.chosen)
        return tuple(name for name in columns if name in self.weighed and name not in changed)

    # What can be done -----------------------------------------------------------------------------

    @cached_property
    def _compared(self) -> tuple[int, ...]:
        """The candidates of the state in which policies are compared: those chosen, and others.

        Without those that the log speaks against for every target and for what was done as well: a
        column that matters a little, and by which actions were chosen, makes a plan that overlooks
        it look better than it is.
        """
        candidates = self.columns.candidates
        unlikely = [set(weighed.unlikely) for weighed in self.weighed.values()]
        now = [i for i, c in enumerate(candidates) if c.kind == "state" and not c.lag]
        now = [i for i in now if not candidates[i].scattered]
        for i, action in enumerate(candidates):
            if action.kind == "action" and not action.lag:
                columns = [candidates[j].column for j in now]
                draw = generator(0, f"what was done {i}")
                done = weigh_columns(
                    action.column, columns, checked=1, delta=self.delta, targets=1, draw=draw
                )
                unlikely.append({now[j] for j in done.unlikely})
        excluded = set.intersection(*unlikely)
        return tuple(sorted({*self.chosen, *(i for i in now if i not in excluded)}))

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns on which policies are compared."""
        return self.names(self._compared)

    @cached_property
    def _states(self) -> States:
        """The rows on the state in which policies are compared."""
        candidates = self.columns.candidates
        where = {(c.origin, c.lag): i for i, c in enumerate(candidates)}
        goes_on = self.columns.steps.next_state != END
        rows = goes_on.size
        columns: list[Ints] = []
        for i in self._compared:
            candidate = candidates[i]
            if candidate.lag:
                following = candidates[where[candidate.origin, candidate.lag - 1]].column.codes
            else:
                following = self.columns.following[candidate.origin]
            columns.append(np.append(candidate.column.codes, following[goes_on]))
        if not columns:
            return States(np.zeros(rows, np.int64), np.where(goes_on, 0, ENDED), [()])
        kinds, number = np.unique(columns, axis=1, return_inverse=True)
        number = number.ravel()
        following = np.full(rows, ENDED)
        following[goes_on] = number[rows:]
        names: list[tuple[Hashable, ...]] = []
        for kind in kinds.T.tolist():
            parts = zip(self._compared, kind, strict=True)
            names.append(tuple(candidates[i].values[code] for i, code in parts))
        return States(number[:rows], following, names)

    def _grouped(self, chosen: Sequence[int]) -> tuple[Ints, list[tuple[Hashable, ...]]]:
        """Return what a policy on some candidates sees of each state that is compared."""
        places = [place for place, i in enumerate(self._compared) if i in chosen]
        return group_names(self._states.names, places)

    @cached_property
    def plans(self) -> Plans:
        """The rows that have a reward, on the state in which policies are compared."""
        paid = ~np.isnan(self.columns.steps.reward)
        if not paid.any():
            raise NotAvailable("the log has no rewards: name their column to compare policies")
        return Plans.of(
            self.columns.steps,
            paid,
            self._states.state,
            self._states.following,
            len(self._states.names),
            len(self.source.actions.codes),
        )

    @property
    def comparable(self) -> bool:
        """Whether the log has rewards, and units enough to compare policies."""
        return REWARD in self.columns.targets and self.plans.rows.units >= _FEWEST_UNITS

    @property
    def unpaid(self) -> int:
        """How many rows have no reward."""
        return int(np.isnan(self.columns.steps.reward).sum())

    @property
    def labels(self) -> Labels:
        """What the parts of the state, the action, a step and an episode are called."""
        return labels_of((), {**self.source.roles, "state": self.state}, len(self.state))

    @cached_property
    def _gains(self) -> Floats:
        return self.plans.gains(self._grouped(self.chosen)[0])

    @property
    def gain(self) -> Difference:
        """What plans made as :attr:`policy` is earn more per episode than was earned."""
        return self._difference(self._gains)

    def without(self, column: str) -> Difference:
        """Return what plans on the state earn more than plans on the state without a column.

        Both are made by one half of the log and compared on the other, in a table on the whole
        state, and the other way round.
        """
        every = self.names(range(len(self.columns.candidates)))
        if column not in every:
            raise UnknownName("column", got=column, known=every)
        others = [i for i in self.chosen if every[i] != column]
        return self._difference(self._gains - self.plans.gains(self._grouped(others)[0]))

    def _difference(self, draws: Floats) -> Difference:
        if self.plans.rows.units < _FEWEST_UNITS:
            raise NotAvailable("the log is too short to compare policies")
        low, high = np.quantile(draws[1:], [0.05, 0.95])
        return Difference(float(draws[0]), float(low), float(high), float(draws[1:].std()))

    @cached_property
    def _own_rows(self) -> tuple[TableRows, list[tuple[Hashable, ...]]]:
        """The rows that have a reward on the state that was chosen, and its names."""
        group, names = self._grouped(self.chosen)
        return self.plans.rows.merge(len(names), group), names

    @cached_property
    def policy(self) -> Policy:
        """A careful plan on the state, from the whole log; see :attr:`recommended`."""
        rows, _ = self._own_rows
        table = count_table(rows, np.ones(rows.units))
        actions = self.plans.plan(rows, np.ones(rows.units))[:, : rows.states]
        known = self.known
        ended = np.zeros((self.plans.horizon, known.states - rows.states), np.int64)
        reached = np.hstack([states_met(table, actions), ended > 0])
        return Policy(np.hstack([actions, ended]), known, reached, labels=self.labels)

    @property
    def recommended(self) -> bool:
        """Whether plans like :attr:`policy` beat today's: 95 % of the bootstrap draws say so.

        Never where something changed in the course of the log, where it shows no reward, or where
        one row in ten or more comes after a gap.
        """
        sound = self.comparable and not self.changed and not self.riddled
        return sound and self.gain.low > 0.0

    @property
    def gaps(self) -> float:
        """The share of rows that come after a gap; rows before one are not weighed."""
        for note in self.source.notes:
            if note.kind == "gaps_cut":
                return note.affected / max(1, note.of)
        return 0.0

    @property
    def riddled(self) -> bool:
        """Whether so many rows come after gaps that what is left need not be like the log."""
        return self.gaps >= _MOST_GAPS

    # What goes on ---------------------------------------------------------------------------------

    @cached_property
    def known(self) -> Known:
        """Sizes, names, and mean rewards of the log on the state that was chosen."""
        rows, parts = self._own_rows
        names = [_single(name) for name in parts]
        low, high = float(rows.reward.min()), float(rows.reward.max())
        unit = RewardMap(low, high if high > low else low + 1.0)
        table = count_table(rows, np.ones(rows.units))
        visits = table.visits.reshape(-1, rows.actions)[:-1]
        mean = np.where(visits > 0.0, table.kernel.reward.reshape(-1, rows.actions)[:-1], low)
        absorbing = [False] * len(names)
        initial = table.start[:-1]
        if (rows.next_state == ENDED).any():
            names.append("(ended)")
            absorbing.append(True)
            mean = np.vstack([mean, np.full(rows.actions, min(max(0.0, low), unit.high))])
            initial = np.append(initial, 0.0)
        return Known(
            len(names),
            rows.actions,
            self.plans.horizon,
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
        group, names = self._grouped(self.chosen)
        states = np.empty(len(names) + 1, object)  # ENDED picks the last
        for i, name in enumerate(names):
            states[i] = _single(name)
        actions = np.empty(len(self.source.actions.codes), object)
        actions[:] = list(self.source.actions.codes)
        following = self._states.following
        table = {
            "episode": steps.episode,
            "step": steps.step,
            "state": states[group[self._states.state]],
            "action": actions[steps.action],
            "reward": steps.reward,
            "next_state": states[np.where(following == ENDED, -1, group[following])],
            "terminated": steps.terminated,
        }
        log = read_log(table, split=True)
        log.source = f"{self.source.source}, {', '.join(self.state) or 'no column'}"
        # whoever judges models by it hears that they may have been made of it
        log.repairs.add("chosen_here", np.ones(log.rows, bool), steps.named, of=0)
        return log

    @cached_property
    def ladder(self) -> Ladder:
        """Smoothed tables on nested sets of columns, on which alone depends what comes next.

        Made of this log, so that the level of a test holds on other data than these.
        """
        rows, names = self._own_rows
        known = self.known
        if known.states**2 * known.actions * len(_STRENGTHS) > _MOST_ENTRIES:
            raise NotAvailable(f"tables of {known.states:,} states are too large for a ladder")
        following = np.where(rows.next_state == ENDED, known.states - 1, rows.next_state)
        everywhere = np.bincount(following, minlength=known.states) + 0.01
        everywhere = everywhere / everywhere.sum()
        stays = np.zeros((known.states - len(names), rows.actions, known.states))
        stays[:, :, -1] = 1.0
        families: list[FiniteFamily] = []
        kernels: list[Floats] = []
        titles: list[str] = []
        for length in range(len(self.chosen) + 1):
            group, groups = group_names(names, range(length))
            count = np.zeros((len(groups), rows.actions, known.states))
            np.add.at(count, (group[rows.state], rows.action, following), 1.0)
            for strength in _STRENGTHS:
                total = count.sum(axis=2, keepdims=True) + strength
                kernel = (count + strength * everywhere) / total
                kernels.append(np.concatenate([kernel[group], stays]))
            families.append(FiniteFamily(np.array(kernels)))
            titles.append(", ".join(self.state[:length]) or "no column")
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
        return "\n".join(lines_of(self.said))

    def page(self, path: str | Path) -> Path:
        """Write the answer as a page, whole or not at all; return its path."""
        place = Path(path)
        make_folder(place.parent)
        write_whole(place, columns_page(self).encode())
        return place


def group_names(
    names: Sequence[tuple[Hashable, ...]], places: Sequence[int]
) -> tuple[Ints, list[tuple[Hashable, ...]]]:
    """Return the group of each name by some of its parts, and what the groups are called."""
    numbers: dict[tuple[Hashable, ...], int] = {}
    group: list[int] = []
    for name in names:
        part = tuple(name[place] for place in places)
        group.append(numbers.setdefault(part, len(numbers)))
    return np.array(group), list(numbers)


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
    require_integer("lags", lags, 0, maximum=_MOST_LAGS)
    require_integer("bins", bins, 2)
    require_delta(delta)
    require_integer("maximum", maximum, 1)
    columns = read_columns(source, lags, bins)
    wanted = [name for name in (REWARD, EPISODE_END) if name in columns.targets]
    if targets is not None:
        require_kind("targets", targets, (list, tuple))
        wanted = list(targets)
    for name in wanted:
        if name not in columns.targets:
            raise UnknownName("targets", got=name, known=columns.targets)
    wanted = wanted or list(columns.targets)
    checked = sets_checked(len(columns.candidates), source.rows, maximum)
    weighed: dict[str, Weighed] = {}
    while wanted:
        name = wanted.pop(0)
        weighed[name] = _weigh(columns, name, delta, checked)
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
        checked=checked,
    )


def _weigh(columns: Columns, name: str, delta: float, checked: int) -> Weighed:
    """Weigh what one target needs."""
    target = columns.targets[name]
    rows: slice | Ints = slice(columns.first, None)  # without copies, where all are known
    if not target.rows[rows].all():
        rows = columns.first + np.flatnonzero(target.rows[rows])
    clocks = [i for i, candidate in enumerate(columns.candidates) if candidate.kind == "part"]
    return weigh_columns(
        target.column.take(rows),
        [candidate.column.take(rows) for candidate in columns.candidates],
        checked=checked,
        delta=delta,
        # each twice: whether a column of numbers is cut into bins is seen when the log ends
        targets=2 * len(columns.targets),
        draw=generator(0, f"shuffled {name}"),
        clocks=clocks,
    )
