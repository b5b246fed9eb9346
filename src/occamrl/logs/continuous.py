"""Logs of continuous systems, and what they say of simulators that can only be run."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from occamrl.control.agent import OccamControl
from occamrl.control.answer import Answer
from occamrl.control.ladder import SimulatorLadder
from occamrl.errors import Interrupted, as_floats
from occamrl.logs.table import LogError, floats, refuse, table_of
from occamrl.protocols import Floats
from occamrl.running.run import Progress, ctrl_c

Episode = tuple[Floats, Floats, Floats]  # states [T, n], actions [T, m], next states [T, n]


def episodes_of(log: Any) -> list[Episode]:
    """Return a log, episode by episode, its steps in the order in which they were taken.

    A log is a file (CSV or Parquet), data frame or mapping with the columns ``episode``, ``state_0``, ``state_1``, ...,
    ``action_0``, ...; or a mapping with ``episode`` [T] and arrays ``states`` [T, n] and ``actions`` [T, m]. Without
    next states (``next_state_0``, ..., or ``next_states``) the last row of an episode only says where it ended, and its
    action is not used. Or it is a Minari dataset, or an iterable of episodes with ``observations`` [T + 1, n] and
    ``actions`` [T, m].
    """
    expected = "a file, data frame or mapping with episode, states and actions; or a Minari dataset"
    if isinstance(log, (str, Path)):
        log = read_columns(log)
    if not isinstance(log, Mapping) and not hasattr(log, "columns"):
        found = []
        try:
            episodes = list(log.iterate_episodes() if hasattr(log, "iterate_episodes") else log)
        except TypeError as error:
            raise LogError("log", got=type(log).__name__, expected=expected) from error
        for i, each in enumerate(episodes):
            if not hasattr(each, "observations") or not hasattr(each, "actions"):
                raise LogError("log", index=(i,), got=type(each).__name__, expected=expected)
            path, actions = matrix("observations", each.observations), matrix("actions", each.actions)
            found.append((path[:-1], actions[: len(path) - 1], path[1:]))
        return found
    names = list(getattr(log, "column_names", getattr(log, "columns", log)))
    columns: dict[str, Floats] = {}
    for name in ("states", "actions", "next_states"):
        numbered = itertools.takewhile(names.__contains__, (f"{name[:-1]}_{i}" for i in itertools.count()))
        if parts := [name] if name in names else list(numbered):
            columns[name] = np.concatenate([matrix(each, log[each]) for each in parts], axis=1)
    if not {"states", "actions"} <= {*columns} or "episode" not in names:
        raise LogError("log", got=f"columns {names}", expected="episode, states (or state_0, ...) and actions")
    states, actions, after = columns["states"], columns["actions"], columns.get("next_states")
    episode = np.asarray(log["episode"])
    for name, column in (*columns.items(), ("episode", episode)):
        if len(column) != len(states):
            raise LogError(name, got=f"{len(column)} rows", expected=f"{len(states)}, as states")
    cuts = np.flatnonzero(episode[1:] != episode[:-1]) + 1
    pieces = np.split(np.arange(len(states)), cuts)
    if after is None:
        return [(states[rows[:-1]], actions[rows[:-1]], states[rows[1:]]) for rows in pieces]
    return [(states[rows], actions[rows], after[rows]) for rows in pieces]


def matrix(name: str, value: Any) -> Floats:
    """Return numbers as [T, n]; refuse the first row that has something else."""
    array = as_floats(name, np.asarray(value))
    array = array.reshape(len(array), -1)
    refuse(name, ~np.isfinite(array).all(axis=1), array, "finite numbers", 0)
    return array


def read_columns(path: str | Path) -> dict[str, Any]:
    """Return the columns of a file: numbers, and episodes as they are named."""
    table, found = table_of(path), {}
    for name in table.names:
        parts, first = [], 0
        for batch in table.batches([name]) if name == "episode" or name.rsplit("_")[-1].isdigit() else ():
            column = batch[name]
            text = name == "episode"
            parts.append(np.array(column.to_pylist()) if text else floats(name, column, first, "a number"))
            first += len(column)
        if parts:
            found[name] = np.concatenate(parts)
    return found


def select_simulators(
    log: Any, ladder: SimulatorLadder, *, delta: float = 0.05, seed: int = 0, progress: bool | None = None
) -> Answer:
    """Test simulators on a log, without acting; :func:`occamrl.select` calls it.

    ``Interrupted``, which Ctrl-C raises, has the answer so far as its ``result``.
    """
    agent, episodes = OccamControl(ladder=ladder, delta=delta, seed=seed), episodes_of(log)
    total = sum(len(states) for states, _, _ in episodes)
    bar = Progress("select", max(1, total), progress, "steps")
    with ctrl_c() as pressed:
        for episode in episodes:
            agent.begin_episode()
            for s, a, y in zip(*episode, strict=True):
                agent.observe(s, a, 0.0, y)
                bar.update(done := agent.state["evidence"]["steps"])
                if pressed.is_set():
                    raise Interrupted(f"stopped after step {done:,} of {total:,}", Answer(agent))
    bar.close()
    return Answer(agent)
