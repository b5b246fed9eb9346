"""Logs in Minari datasets (https://minari.farama.org), with the extra ``occamrl[minari]``.

Observations and actions must be Discrete; a start other than 0 is taken off, so that both count from 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from occamrl.errors import OccamRLError
from occamrl.logs.episodes import MOST_ROWS, Log, LogError


def read_minari(name: str) -> Log:
    """Return the log in a Minari dataset that is on this machine, by its id.

    Raises
    ------
    LogError
        No such dataset, spaces that are not Discrete, or an episode that is wrong.
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
    first = {kind: _start(kind, getattr(dataset, f"{kind}_space")) for kind in ("observation", "action")}
    return log_of_episodes(dataset.iterate_episodes(), first["observation"], first["action"], source=f"minari:{name}")


def _start(kind: str, space: Any) -> int:
    from gymnasium.spaces import Discrete

    if not isinstance(space, Discrete):
        raise LogError(f"{kind}_space", got=space, expected="a Discrete space")
    return int(space.start)


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
