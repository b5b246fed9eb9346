"""Logs of continuous systems, and what they say of simulators that can only be run."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from occamrl.control.agent import OccamControl
from occamrl.control.answer import Answer
from occamrl.control.ladder import Choices, SimulatorLadder
from occamrl.errors import Interrupted, ShapeError, as_floats
from occamrl.logs.log import Log, read_log
from occamrl.logs.table import LogError, open_table, refuse
from occamrl.protocols import Floats
from occamrl.running.progress import Progress, ctrl_c

Episode = tuple[Floats, Floats, Floats]  # states [T, n], actions [T, m], next states [T, n]


def episodes_of(log: Any) -> list[Episode]:
    """Return a log, episode by episode.

    A log is what :func:`occamrl.read_log` returns, with the columns of the state, the action and, if there are any, of
    the next state; a file, data frame or mapping with columns ``episode``, ``state_0``, ``state_1``, ..., ``action_0``,
    ... (and ``next_state_0``, ...); a mapping with ``episode`` [T] and arrays ``states`` [T, n] and ``actions`` [T, m]
    (and ``next_states``); or a Minari dataset or a list of episodes with ``observations`` [T + 1, n] and ``actions``
    [T, m]. Without next states, the last row of an episode only says where it ended.
    """
    if hasattr(log, "iterate_episodes") or (
        isinstance(log, list) and all(hasattr(each, "actions") for each in log)
    ):
        found = []
        for each in log.iterate_episodes() if hasattr(log, "iterate_episodes") else log:
            path, actions = (
                matrix(name, getattr(each, name)) for name in ("observations", "actions")
            )
            found.append((path[:-1], actions[: len(path) - 1], path[1:]))
        return found
    if isinstance(log, Mapping) and {"states", "actions"} <= {*log}:
        arrays = {
            name: matrix(name, log[name])
            for name in ("states", "actions", "next_states")
            if name in log
        }
        log = {"episode": log.get("episode", np.zeros(len(arrays["states"]), int))}
        log |= {
            f"{name[:-1]}_{i}": column
            for name, array in arrays.items()
            for i, column in enumerate(array.T)
        }
    if not isinstance(log, Log):
        names = open_table(log).names
        roles: dict[str, list[str]] = {}
        for role in ("state", "action", "next_state"):
            numbered = [f"{role}_{i}" for i in range(len(names))]
            roles[role] = list(itertools.takewhile(names.__contains__, numbered))
        if not (roles["state"] and roles["action"]):
            expected = (
                "state_0, ..., action_0, ...; or name your own columns: orl.read_log(log, columns)"
            )
            raise LogError("log", got=f"columns {', '.join(map(str, names))}", expected=expected)
        log = read_log(
            log, {role: several or None for role, several in roles.items()} | {"episode": "episode"}
        )
    columns = log.columns()
    kept = [
        i for i, label in enumerate(columns["next_state"]) if label is not None
    ]  # where an episode ends, none is
    parts = [matrix(name, [*columns[name][kept]]) for name in ("state", "action", "next_state")]
    cuts = np.flatnonzero(np.diff(columns["episode"][kept])) + 1
    return list(zip(*(np.split(array, cuts) for array in parts), strict=True))


def matrix(name: str, value: Any) -> Floats:
    """Return numbers as [T, n]."""
    array = as_floats(name, value)
    return array.reshape(len(array), -1)


def select_simulators(
    log: Any,
    ladder: SimulatorLadder,
    *,
    delta: float = 0.05,
    seed: int = 0,
    progress: bool | None = None,
) -> Answer:
    """Test simulators on a log, without acting; :func:`occamrl.select` calls it.

    ``Interrupted``, which Ctrl-C raises, has the answer so far as its ``result``.
    """
    agent, episodes = OccamControl(ladder=ladder, delta=delta, seed=seed), episodes_of(log)
    sizes = agent.dimension, ladder.actions.dimension
    for states, actions, _ in episodes:
        if (states.shape[1], actions.shape[1]) != sizes:
            got = f"{states.shape[1]} coordinates of the state and {actions.shape[1]} of the action"
            raise ShapeError(
                "log", got=got, expected=f"{sizes[0]} and {sizes[1]}, as the simulators have"
            )
        if isinstance(ladder.actions, Choices):
            listed = (actions[:, None] == ladder.actions.values).all(axis=2).any(axis=1)
            expected = f"an action of the list {ladder.actions!r}, not its number"
            refuse("action", ~listed, actions, expected, 0)
    total = sum(len(states) for states, _, _ in episodes)
    bar = Progress("select", max(1, total), progress, "steps")
    with ctrl_c() as pressed:
        for episode in episodes:
            agent.begin_episode()
            for s, a, y in zip(*episode, strict=True):
                agent.observe(s, a, None, y)
                bar.update(done := agent.state["evidence"]["steps"])
                if pressed.is_set():
                    raise Interrupted(f"stopped after step {done:,} of {total:,}", Answer(agent))
    bar.close()
    return Answer(agent)
