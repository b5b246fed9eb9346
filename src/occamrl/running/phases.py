"""What a run keeps between episodes: the phase that its agent is in, and a record of every episode.

A selector hands out phases; a learner by itself is an agent with one endless phase. :class:`PhaseWalk` says who plays
now and for how many more episodes. :class:`Recorder` keeps all episodes at first, then log-spaced ones, with exact
totals throughout. Which episodes are kept is a fixed sequence that does not depend on how long a run will be or how it
is cut into pieces, so a run continued later has the same curve as one that was never interrupted.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from occamrl.errors import CheckpointError, ContractError, ParameterError, require_integer
from occamrl.protocols import (
    Agent,
    EpisodeLearner,
    Field,
    Floats,
    Ints,
    Known,
    Learner,
    Phase,
    PhaseOutcome,
    RuledBases,
    Selector,
)
from occamrl.running.players import CompiledPlayer, PlainPlayer, player

KEEP_ALL_UNTIL = 1_000_000
POINTS_PER_DECADE = 1_000
MOST_ROWS = 1_000  # of one phase, in which bases take turns


def kept_episodes(first: int, last: int, keep_all_until: int = KEEP_ALL_UNTIL) -> Ints:
    """Return the numbers (from 1) of the kept episodes in [first, last]."""
    every = np.arange(first, min(last, keep_all_until) + 1, dtype=np.int64)
    if last <= keep_all_until:
        return every
    low = max(first, keep_all_until + 1)
    j = np.arange(np.floor(POINTS_PER_DECADE * np.log10(low)) - 1, np.ceil(POINTS_PER_DECADE * np.log10(last)) + 2)
    marks = np.unique(np.floor(10.0 ** (j / POINTS_PER_DECADE)).astype(np.int64))
    return np.concatenate([every, marks[(marks >= low) & (marks <= last)]])


def running_total(before: float, values: Floats) -> float:
    """Return ``before`` plus all values, added one after another: the same bits however they are cut into chunks."""
    return float(np.cumsum(np.concatenate([[before], values]))[-1])


class Recorder:
    """Collects curves chunk by chunk; sums run one episode after another, so chunks do not matter to the last bit."""

    def __init__(self, keep_all_until: int = KEEP_ALL_UNTIL) -> None:
        self.keep_all_until, self.episodes = keep_all_until, 0
        self.total_regret = self.total_return = 0.0
        self._last = (0.0, 0.0)  # regret and realised return of the last episode
        self._kept = 0
        self._numbers = np.zeros(0, dtype=np.int64)
        self._curves = np.zeros((3, 0))  # regret, cumulative regret, realised return

    def add(self, regret: Floats, returns: Floats) -> None:
        """Take in the next episodes."""
        if not regret.size:
            return
        first = self.episodes + 1
        self.episodes += regret.size
        cumulative = np.cumsum(np.concatenate([[self.total_regret], regret]))[1:]
        self.total_regret = float(cumulative[-1])
        self.total_return = running_total(self.total_return, returns)
        self._last = (float(regret[-1]), float(returns[-1]))
        kept = kept_episodes(first, self.episodes, self.keep_all_until)
        size = self._kept + kept.size
        if size > self._numbers.size:  # make room, doubling, so that many short chunks cost no more than a few long
            more = max(size, 2 * self._numbers.size) - self._kept
            self._numbers = np.append(self._numbers[: self._kept], np.zeros(more, dtype=np.int64))
            self._curves = np.append(self._curves[:, : self._kept], np.zeros((3, more)), axis=1)
        into = slice(self._kept, size)
        self._numbers[into] = kept
        for row, curve in enumerate((regret, cumulative, returns)):
            self._curves[row, into] = curve[kept - first]
        self._kept = size

    def curves(self) -> tuple[Ints, Floats, Floats, Floats]:
        """Return (episode numbers, regret, cumulative regret, realised returns), ending with the last episode."""
        numbers, curves = self._numbers[: self._kept], self._curves[:, : self._kept]
        if self.episodes and (not numbers.size or numbers[-1] != self.episodes):
            last = [[self._last[0]], [self.total_regret], [self._last[1]]]
            numbers, curves = np.append(numbers, self.episodes), np.concatenate([curves, last], axis=1)
        return numbers.copy(), curves[0].copy(), curves[1].copy(), curves[2].copy()

    def to_tree(self) -> dict[str, Any]:
        """Return everything as plain data and arrays."""
        return {
            "keep_all_until": self.keep_all_until,
            "episodes": self.episodes,
            "total_regret": self.total_regret,
            "total_return": self.total_return,
            "last": list(self._last),
            "numbers": self._numbers[: self._kept].copy(),
            "curves": self._curves[:, : self._kept].copy(),
        }

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> Recorder:
        """Return the recorder of a tree."""
        numbers, curves = tree["numbers"], tree["curves"]
        for name in ("keep_all_until", "episodes"):
            require_integer(f"recorder.{name}", tree[name], 0)
        if any(type(number) is not float for number in (tree["total_regret"], tree["total_return"], *tree["last"])):
            raise CheckpointError("recorder", got="totals of another kind", expected="numbers")
        Field("numbers", np.shape(numbers), 1, tree["episodes"]).require(numbers, "recorder")
        Field("curves", (3, numbers.size), 0.0, 0.0).require_kind(np.ascontiguousarray(curves), "recorder")
        if numbers.ndim != 1 or (np.diff(numbers) <= 0).any():
            raise CheckpointError("recorder.numbers", got="another order", expected="increasing numbers of episodes")
        if not all(np.isfinite(curve).all() or np.isnan(curve).all() for curve in curves):  # where no truth is known
            raise CheckpointError("recorder.curves", got="numbers that are not finite", expected="finite ones")
        made = cls(tree["keep_all_until"])
        made.episodes, made._last = tree["episodes"], (tree["last"][0], tree["last"][1])
        made.total_regret, made.total_return = tree["total_regret"], tree["total_return"]
        made._numbers, made._curves, made._kept = numbers, curves, numbers.size
        return made


def _require_rows(rows: Any) -> None:
    """Refuse a table of phases that no walk has."""
    for i, row in enumerate(rows if isinstance(rows, list) and rows else [None]):
        for name, start in _MEASURED.items():
            value: Any = row.get(name) if isinstance(row, dict) else None
            if type(value) is not type(start) or abs(value) > 2**53 or (type(start) is int and value < 0):
                raise CheckpointError(f"rows[{i}].{name}", got=str(value)[:80], expected=f"a number like {start}")
        plays = row.get("plays") if isinstance(row, dict) else None
        if plays is not None and not (isinstance(plays, list) and all(type(n) is int and n >= 0 for n in plays)):
            raise CheckpointError(f"rows[{i}].plays", got=str(plays)[:80], expected="how often each base played")


_MEASURED: dict[str, Any] = {"episodes": 0, "regret": 0.0, "plans": 0, "realised_return": 0.0}
_TURNS = ("base", "plays")  # of phases in which bases take turns: the one that played, from 1; plays of each


class _Alone(Selector):
    """A learner that plays by itself."""

    def __init__(self, learner: Learner | EpisodeLearner | RuledBases) -> None:
        self.learner = learner

    def start(self, known: Known) -> dict[str, Any]:
        return {}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        return Phase(self.learner, self.learner.begin(known), label=type(self.learner).__name__)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        raise ContractError("an endless phase does not end")


def plain(value: Any, name: str) -> Any:
    """Return a fact as plain data, which can be compared, put into a table and written as JSON."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(part, name) for part in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ContractError(f"the fact {name!r} is a {type(value).__name__}; numbers, strings, lists and arrays are facts")


def decided(phase: Phase) -> dict[str, Any]:
    """Return what a row of the table says about a phase before it is played."""
    row: dict[str, Any] = {"epoch": phase.epoch, "label": phase.label}
    for name, fact in phase.facts.items():
        if name in row or name in _MEASURED or name in _TURNS:
            raise ContractError(f"a fact of phase {phase.label!r} is called {name!r}, which is taken")
        row[name] = plain(fact, name)
    return row


def same(one: Any, other: Any) -> bool:
    """Return whether two facts agree: numbers up to the rounding that differs between machines, the rest exactly."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and bool(one == other)


def facts_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return what a row says about its phase, without what was measured."""
    return {key: fact for key, fact in row.items() if key not in _MEASURED and key not in _TURNS}


def coarsened(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return rows of the same facts, in which bases took turns, as at most ``most`` of them.

    Neighbours are merged, from the oldest on, where both together have at most w episodes, w being the smallest power
    of two that is enough: a row of one base that played for long stays as it is. A merged row has no ``base``.
    """
    width = 2
    while len(rows) > most:
        merged = [rows[0]]
        for row in rows[1:]:
            last = merged[-1]
            if last["episodes"] + row["episodes"] <= width:
                counts = {name: last[name] + row[name] for name in _MEASURED}
                plays = [one + other for one, other in zip(last["plays"], row["plays"], strict=True)]
                merged[-1] = {
                    **row,
                    **counts,
                    "base": row["base"] if row["base"] == last["base"] else None,
                    "plays": plays,
                }
            else:
                merged.append(row)
        rows, width = merged, 2 * width
    return rows


def as_selector(agent: Agent) -> Selector:
    """Return a selector for any agent."""
    if isinstance(agent, type):  # a class has all the methods that its instances have
        raise ParameterError("agent", got=f"the class {agent.__name__}", expected="an instance of it")
    if isinstance(agent, Selector):
        return agent
    if isinstance(agent, (Learner, EpisodeLearner, RuledBases)):
        return _Alone(agent)
    raise ParameterError("agent", got=type(agent).__name__, expected="a learner or a selector")


class PhaseWalk:
    """The phase in play, its learner's state, and one row of facts per phase that was played.

    Rows of consecutive phases with the same epoch, label and facts are joined, so that a selector which decides anew
    every episode does not make a table as long as the run. In a phase of an arena, every base that takes over from
    another one has a row, until there are too many (:func:`coarsened`).
    """

    def __init__(self, agent: Agent, known: Known) -> None:
        self.selector, self.known = as_selector(agent), known
        self.memory = self.selector.start(known)
        self.rows: list[dict[str, Any]] = []
        self._enter()

    def _enter(self) -> None:
        self.before = copy.deepcopy(self.memory)  # what the decision follows from: with it, a run can be resumed
        phase = self.selector.next_phase(self.known, self.memory)
        if phase.episodes is not None and phase.episodes < 1:
            raise ContractError(f"phase {phase.label!r} has {phase.episodes} episodes; at least one is needed")
        self._take(phase)
        row = decided(phase)
        if not self.rows or row != facts_of(self.rows[-1]):
            self._first = len(self.rows)  # the first row with these facts
            self.rows.append({**row, **_MEASURED})

    def _take(self, phase: Phase) -> None:
        self.phase, last = phase, getattr(self, "player", None)
        own = isinstance(last, (CompiledPlayer, PlainPlayer))  # an arena's player keeps parts of its state by itself
        if last is not None and own and last.learner is phase.learner and last.state is phase.state:
            last.look_again()
        else:
            self.player = player(phase.learner, self.known, phase.state)
        self.played, self.plans, self.returned = 0, 0, 0.0

    @property
    def state(self) -> Any:
        """The state of the learner in play."""
        return self.player.state

    @property
    def remaining(self) -> int | None:
        """Episodes left in this phase; None when it is endless."""
        return None if self.phase.episodes is None else self.phase.episodes - self.played

    def advance(self, plans: int, returns: Floats, regret: Floats) -> None:
        """Take note of episodes played in this phase, and enter the next phase when it is over."""
        turns = self.player.turns()
        if turns:
            self._take_turns(turns, returns, regret)
        else:
            row = self.rows[-1]
            row["episodes"] += returns.size
            row["plans"] += plans
            row["realised_return"] = running_total(row["realised_return"], returns)
            row["regret"] = running_total(row["regret"], regret)
        self.played += returns.size
        self.plans += plans
        self.returned = running_total(self.returned, returns)
        if self.remaining == 0:
            self.finish()

    def _take_turns(self, turns: list[tuple[int, int]], returns: Floats, regret: Floats) -> None:
        """Take note of episodes of several bases: a new row for each that takes over."""
        row, bases = self.rows[-1], len(self.phase.learner.bases)
        for (base, plans), value, loss in zip(turns, returns.tolist(), regret.tolist(), strict=False):
            if row["episodes"] and row["base"] != base + 1:
                row = {**facts_of(row), **_MEASURED}
                self.rows.append(row)
                if len(self.rows) - self._first > MOST_ROWS:
                    self.rows[self._first : -1] = coarsened(self.rows[self._first : -1], MOST_ROWS // 2)
            if not row["episodes"]:
                row["base"], row["plays"] = base + 1, [0] * bases
            row["episodes"] += 1
            row["plays"][base] += 1
            row["plans"] += plans
            row["realised_return"] += value
            row["regret"] += loss

    def finish(self) -> None:
        """Tell the selector how the phase went, and enter the next one."""
        outcome = PhaseOutcome(self.played, self.plans, self.returned, self.state)
        self.selector.finish_phase(self.known, self.memory, self.phase, outcome)
        self._enter()

    def fork(self) -> PhaseWalk:
        """Return an independent copy: what is played on it leaves this one as it is."""
        return PhaseWalk.from_tree(self.selector, self.known, copy.deepcopy(self.to_tree()))

    def to_tree(self) -> dict[str, Any]:
        """Return everything as plain data and arrays; the phase in play follows from the memory before it."""
        counts = {"played": self.played, "plans": self.plans, "returned": self.returned}
        return {"before": self.before, "state": self.state, "rows": self.rows, **counts}

    @classmethod
    def from_tree(cls, agent: Agent, known: Known, tree: dict[str, Any]) -> PhaseWalk:
        """Return the walk of a tree: the selector decides once more as it did, which gives the phase under way."""
        walk = cls.__new__(cls)
        walk.selector, walk.known = as_selector(agent), known
        walk.before, walk.rows = tree["before"], tree["rows"]
        _require_rows(walk.rows)
        check = getattr(walk.selector, "resume", None)  # before compiled code may see what a file holds
        if check is not None:
            check(known, walk.before)
        walk.memory = copy.deepcopy(walk.before)
        phase = walk.selector.next_phase(known, walk.memory)
        for name, fact in decided(phase).items():
            saved = walk.rows[-1].get(name) if walk.rows else None
            if not same(fact, saved):  # other sources or parameters than those that decided it: no row may mix both
                raise CheckpointError(f"rows[{len(walk.rows) - 1}].{name}", got=saved, expected=fact)
        walk._take(phase)
        most = math.inf if phase.episodes is None else phase.episodes
        for name, limit in (("played", most), ("plans", math.inf)):
            if type(tree[name]) is not int or not 0 <= tree[name] <= limit:
                raise CheckpointError(name, got=tree[name], expected=f"an integer from 0 to {limit}")
        walk.played, walk.plans, walk.returned = tree["played"], tree["plans"], float(tree["returned"])
        walk.player.resume(tree["state"])
        walk._first = len(walk.rows) - 1
        while walk._first and facts_of(walk.rows[walk._first - 1]) == facts_of(walk.rows[-1]):
            walk._first -= 1
        plays, bases = walk.rows[-1].get("plays"), getattr(phase.learner, "bases", ())
        if plays is not None and len(plays) != len(bases):
            raise CheckpointError("plays", got=plays, expected=f"those of {len(bases)} bases")
        return walk
