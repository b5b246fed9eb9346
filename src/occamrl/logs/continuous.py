"""Logs of continuous systems, and what they say of simulators that can only be run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from occamrl.addresses import Address
from occamrl.answers.answer import Answer
from occamrl.control.dynamics import Dynamics
from occamrl.control.ladder import SimulatorLadder
from occamrl.control.system import Choices
from occamrl.errors import Interrupted, ParameterError, ShapeError, as_floats
from occamrl.logs.log import Log, read_log
from occamrl.logs.table import LogError, open_table, refuse
from occamrl.progress import Progress, ctrl_c
from occamrl.protocols import Floats, State, System, Transition

_ENDLESS = 10**9  # steps
_BLOCK = 128  # steps between looks at Ctrl-C


class ContinuousEpisode(NamedTuple):
    """T steps of a continuous system."""

    states: Floats  # [T, n]
    actions: Floats  # [T, m]
    next_states: Floats  # [T, n]


def transitions_of(log: Any, system: System, seed: int = 0) -> Iterator[Transition]:
    """Return the steps of a log, each with an address of its own: (seed, number of the step).

    See :func:`episodes_of` for what a log may be. It is read and checked whole before the first
    step: of the system's sizes, and of actions on its list. Episodes longer than the horizon are
    cut, since a planner counts steps to it.
    """
    episodes = episodes_of(log)
    for episode in episodes:
        _require_sizes(episode, system)
    return _steps(episodes, system.horizon, seed)


def _require_places(log: Log, ladder: Dynamics) -> None:
    """Refuse names of coordinates that are those of other columns of a log."""
    for role, names in (("state", (*ladder.state, *ladder.exogenous)), ("action", ladder.action)):
        columns = tuple(log.roles[role])
        for name, column in zip(names, columns, strict=False):
            if name != column and name in columns:
                expected = f"the order of the log's columns, {', '.join(columns)}"
                raise ParameterError(role, got=list(names), expected=expected)


def _require_sizes(episode: ContinuousEpisode, system: System) -> None:
    """Refuse an episode of other sizes, or with actions that are not on the system's list."""
    sizes = episode.states.shape[1], episode.actions.shape[1]
    if sizes != (system.dimension, system.actions.dimension):
        got = f"{sizes[0]} coordinates of the state and {sizes[1]} of the action"
        expected = f"{system.dimension} and {system.actions.dimension}, as the ladder has"
        raise ShapeError("log", got=got, expected=expected)
    if isinstance(system.actions, Choices):
        same = (episode.actions[:, None] == system.actions.values).all(axis=2)
        expected = f"an action of the list {system.actions!r}, not its number"
        refuse("action", ~same.any(axis=1), episode.actions, expected, 0)


def _steps(episodes: list[ContinuousEpisode], horizon: int, seed: int) -> Iterator[Transition]:
    number = 0
    for episode in episodes:
        last = len(episode.states) - 1
        for index, (state, action, next_state) in enumerate(zip(*episode, strict=True)):
            step = index % horizon
            ended = step == horizon - 1 or index == last
            address = Address(seed, number)
            yield Transition(state, action, None, next_state, ended, address, step)
            number += 1


def episodes_of(log: Any) -> list[ContinuousEpisode]:
    """Return a log, episode by episode.

    A log is what :func:`occamrl.read_log` returns, with the columns of the state, the action and,
    if there are any, of the next state; a file, data frame or mapping with columns ``episode``,
    ``state_0``, ``state_1``, ..., ``action_0``, ... (and ``next_state_0``, ...); a mapping with
    ``episode`` [T] and arrays ``states`` [T, n] and ``actions`` [T, m] (and ``next_states``); or a
    Minari dataset or a list of episodes with ``observations`` [T + 1, n] and ``actions`` [T, m].
    Without next states, the last row of an episode only says where it ended.
    """
    recorded = _recorded_episodes(log)
    if recorded is not None:
        return [_of_path(episode.observations, episode.actions) for episode in recorded]
    if isinstance(log, Mapping) and {"states", "actions"} <= {*log}:
        log = _numbered_columns(log)
    if not isinstance(log, Log):
        log = _read_numbered(log)
    columns = log.columns()
    # Where an episode ends there is no next state, and no step.
    rows = [row for row, label in enumerate(columns["next_state"]) if label is not None]
    # An episode is cut where rows are missing.
    other = np.diff(columns["episode"][rows]) != 0
    cuts = np.flatnonzero(other | (np.diff(columns["step"][rows]) != 1)) + 1
    parts = []
    for name in ("state", "action", "next_state"):
        parts.append(np.split(_matrix(name, [*columns[name][rows]]), cuts))
    return [ContinuousEpisode(*episode) for episode in zip(*parts, strict=True)]


def _recorded_episodes(log: Any) -> Any:
    """Return the episodes of a Minari dataset, or of a list like them; None of other logs."""
    if hasattr(log, "iterate_episodes"):  # Minari is not one of the packages that this one needs
        return log.iterate_episodes()
    if isinstance(log, list) and all(hasattr(episode, "actions") for episode in log):
        return log
    return None


def _of_path(observations: Any, actions: Any) -> ContinuousEpisode:
    path = _matrix("observations", observations)
    chosen = _matrix("actions", actions)
    return ContinuousEpisode(path[:-1], chosen[: len(path) - 1], path[1:])


def _numbered_columns(log: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping of arrays as one of columns ``state_0``, ..., ``action_0``, ..."""
    columns: dict[str, Any] = {}
    for name in ("states", "actions", "next_states"):
        if name in log:
            for index, column in enumerate(_matrix(name, log[name]).T):
                columns[f"{name[:-1]}_{index}"] = column
    rows = len(columns["state_0"])
    return {"episode": log.get("episode", np.zeros(rows, int)), **columns}


def _read_numbered(log: Any) -> Log:
    """Read a table whose columns are ``state_0``, ..., ``action_0``, ..."""
    names = open_table(log).names
    columns: dict[str, Any] = {"episode": "episode"}
    for role in ("state", "action", "next_state"):
        numbered: list[str] = []
        while f"{role}_{len(numbered)}" in names:
            numbered.append(f"{role}_{len(numbered)}")
        columns[role] = numbered or None
    if columns["state"] is None or columns["action"] is None:
        expected = (
            "state_0, ..., action_0, ...; or name your own columns: orl.read_log(log, columns)"
        )
        raise LogError("log", got=f"columns {', '.join(map(str, names))}", expected=expected)
    return read_log(log, columns)


def _matrix(name: str, value: Any) -> Floats:
    """Return numbers as [T, n]."""
    array = as_floats(name, value)
    return array.reshape(len(array), -1)


def select_continuous(
    log: Any,
    ladder: SimulatorLadder | Dynamics,
    *,
    delta: float = 0.05,
    seed: int = 0,
    progress: bool | None = None,
) -> Answer:
    """Weigh classes of a continuous system on a log; :func:`occamrl.select` calls it.

    ``Interrupted``, which Ctrl-C raises, has the answer so far as its ``result``.
    """
    system = ladder.known
    if isinstance(log, Log) and isinstance(ladder, Dynamics):
        _require_places(log, ladder)
    evidence = ladder.evidence(system, delta)
    state: State = evidence.begin()
    # An episode of a log may be longer than one of the task.
    transitions = list(transitions_of(log, replace(system, horizon=_ENDLESS), seed))
    ends = np.cumsum([transition.ended for transition in transitions])
    notes = log.notes if isinstance(log, Log) else ()
    earning = isinstance(ladder, SimulatorLadder) or ladder.task is not None

    def answer() -> Answer:
        episodes = int(ends[state["steps"] - 1]) if state["steps"] else 0
        return Answer(
            ladder=ladder,
            known=system,
            weigher=evidence,
            state=state,
            episodes=episodes,
            steps=state["steps"],
            source="the log",
            history=state["history"],
            returns=_returns(system, transitions, episodes) if earning else (),
            notes=notes,
            progress=progress,
        )

    total = len(transitions)
    bar = Progress("select", max(1, total), progress, "steps")
    with ctrl_c() as pressed:
        for first in range(0, total, _BLOCK):
            evidence.add_steps(state, transitions[first : first + _BLOCK])
            bar.update(state["steps"])
            if pressed.is_set():
                text = f"stopped after step {state['steps']:,} of {total:,}"
                raise Interrupted(text, answer())
    bar.close()
    return answer()


def _returns(system: System, transitions: list[Transition], episodes: int) -> list[float]:
    """Return what the first episodes of a log earned, by the system's reward."""
    returns: list[float] = []
    earned = 0.0
    for state, action, _, following, ended, *_ in transitions:
        if len(returns) == episodes:
            break
        earned += float(system.reward(state[None], action[None], following[None])[0])
        if ended:
            returns.append(earned)
            earned = 0.0
    return returns
