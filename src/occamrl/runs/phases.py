"""Walking through an agent's phases: who plays now, for how many more episodes, and what came of it.

A plain learner is an agent with one endless phase. The fused loop and the step-by-step interaction share this walk, so
that a selector behaves alike in both.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from occamrl.contracts import Agent, Floats, Known, Learner, Phase, PhaseOutcome, Selector
from occamrl.errors import CheckpointError, ContractError, ParameterError
from occamrl.kernels.row_table import RowTable, require_sound
from occamrl.runs.recording import running_total

_MEASURED: dict[str, Any] = {"episodes": 0, "regret": 0.0, "plans": 0, "realised_return": 0.0}


class _Alone(Selector):
    """A learner that plays by itself."""

    def __init__(self, learner: Learner) -> None:
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
        if name in row or name in _MEASURED:
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


def as_selector(agent: Agent) -> Selector:
    """Return a selector for any agent."""
    if isinstance(agent, type):  # a class has all the methods that its instances have
        raise ParameterError("agent", got=f"the class {agent.__name__}", expected="an instance of it")
    if isinstance(agent, Selector):
        return agent
    if isinstance(agent, Learner):
        return _Alone(agent)
    raise ParameterError("agent", got=type(agent).__name__, expected="a learner or a selector")


class PhaseWalk:
    """The phase in play, its learner's state, and one row of facts per phase that was played.

    Rows of consecutive phases with the same epoch, label and facts are joined, so that a selector which decides anew
    every episode does not make a table as long as the run.
    """

    def __init__(self, agent: Agent, known: Known) -> None:
        self.selector = as_selector(agent)
        self.known = known
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
        if self.rows and {key: fact for key, fact in self.rows[-1].items() if key not in _MEASURED} == row:
            return
        self.rows.append({**row, **_MEASURED})

    def _take(self, phase: Phase) -> None:
        self.phase = phase
        self.state = phase.state
        self.model = phase.learner.model(self.known)
        self.played = 0
        self.plans = 0
        self.returned = 0.0

    @property
    def remaining(self) -> int | None:
        """Episodes left in this phase; None when it is endless."""
        return None if self.phase.episodes is None else self.phase.episodes - self.played

    def reserve(self, episodes: int) -> None:
        """Make room in the learner's state for that many episodes."""
        self.state = self.phase.learner.reserve(self.state, episodes)

    def advance(self, plans: int, returns: Floats, regret: Floats) -> None:
        """Take note of episodes played in this phase, and enter the next phase when it is over."""
        self.note(plans, returns, regret)
        if self.remaining == 0:
            self.turn()

    def note(self, plans: int, returns: Floats, regret: Floats) -> None:
        """Take note of episodes played in this phase."""
        row = self.rows[-1]
        row["episodes"] += returns.size
        row["plans"] += plans
        row["realised_return"] = running_total(row["realised_return"], returns)
        row["regret"] = running_total(row["regret"], regret)
        self.played += returns.size
        self.plans += plans
        self.returned = running_total(self.returned, returns)

    def turn(self) -> None:
        """Finish the phase, which is over, and enter the next."""
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
        walk.state = _overwrite(walk.state, tree["state"])
        return walk


def _overwrite(state: Any, saved: Any, path: str = "state") -> Any:
    """Return ``saved``, in the arrays of ``state``, which the selector's memory may share.

    Compiled code trusts sizes, so a saved state must have those of a fresh one. Only a table of rows may have grown.
    """
    if type(state) is not type(saved):
        raise CheckpointError(path, got=type(saved).__name__, expected=type(state).__name__)
    if isinstance(state, np.ndarray):
        if state.shape != saved.shape or state.dtype != saved.dtype:
            got, expected = (f"{array.dtype}{list(array.shape)}" for array in (saved, state))
            raise CheckpointError(path, got=got, expected=expected)
        state[...] = saved
        return state
    if isinstance(state, RowTable):
        require_sound(saved, path)
        return saved
    pairs = zip(state._fields, state, saved, strict=True)
    return type(saved)(*(_overwrite(ours, theirs, f"{path}.{name}") for name, ours, theirs in pairs))
