"""Environments that expose their table, ``env.unwrapped.P`` of Gymnasium's toy text, as problems with a known optimum.

Such tables have traps. Successors are repeated (they are added up); a reward may depend on more than (s, a, s') (the
outcome lists of :mod:`occamrl.protocols` hold it, M20); a state that ends the episode need not be a self-loop (a state
is added, and the map of rewards onto [0, 1] includes the 0 that is earned there); the table may leave out what the
environment does (Taxi's fickle passenger); and a wrapper may change what the agent sees. The last two are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from occamrl.errors import TableError
from occamrl.problems.mdp import FiniteMDP, RewardMap, reward_map
from occamrl.protocols import Floats

# Wrappers that leave observations, actions, rewards and ends alone, TimeLimit's truncation aside.
HARMLESS = (
    "OrderEnforcing",
    "PassiveEnvChecker",
    "TimeLimit",
    "RecordEpisodeStatistics",
    "HumanRendering",
    "RenderCollection",
)


class EnvironmentTable(NamedTuple):
    """What an environment's table says; there is one state more than it lists where an end had to be added."""

    mdp: FiniteMDP
    rewards: RewardMap


def has_table(env: Any) -> bool:
    """Say whether an environment exposes a table of outcomes."""
    table = getattr(getattr(env, "unwrapped", None), "P", None)
    return isinstance(table, (dict, list, tuple)) and len(table) > 0


def table_of(env: Any, *, horizon: int, reward_range: Sequence[float] | None = None) -> EnvironmentTable:
    """Return an environment's table as a problem.

    Parameters
    ----------
    env
        With ``env.unwrapped.P`` and, unless episodes start in state 0, ``env.unwrapped.initial_state_distrib``.
    horizon
        H.
    reward_range
        (low, high) that is mapped onto [0, 1]; by default the smallest that holds all rewards and 0.

    Raises
    ------
    TableError
        No table, a wrapper that changes what the table says, or an environment that does more than its table.
    """
    require_whole_truth(env)
    inner: Any = env.unwrapped
    rewards = reward_map(smallest_range([env]) if reward_range is None else reward_range)
    distribution = getattr(inner, "initial_state_distrib", None)
    start: int | Floats = 0 if distribution is None else np.asarray(distribution, dtype=np.float64)
    mdp = FiniteMDP(outcomes=inner.P, horizon=horizon, initial_state=start, reward_range=rewards)
    return EnvironmentTable(mdp, rewards)


def require_whole_truth(env: Any) -> None:
    """Refuse an environment whose table is missing or is not all there is to it."""
    if not has_table(env):
        expected = "one, or known=...; to estimate rewards, known=Known.of_sizes(...) and rewards=RewardsPerPair()"
        raise TableError(name_of(env), got="no table env.unwrapped.P", expected=expected)
    require_harmless_wrappers(env)
    if getattr(env.unwrapped, "fickle_passenger", False):
        got = "fickle_passenger=True: the passenger's change of mind is not in the table"
        raise TableError(name_of(env), got=got, expected="fickle_passenger=False, or learning without exact regret")


def require_harmless_wrappers(env: Any) -> None:
    """Refuse wrappers that may change what is observed, done or earned."""
    from gymnasium import wrappers

    harmless = tuple(getattr(wrappers, name) for name in HARMLESS)
    for layer in layers(env):
        if not isinstance(layer, harmless):
            got = f"the wrapper {type(layer).__name__}, which the table does not describe"
            raise TableError(name_of(env), got=got, expected="no wrapper that changes observations, actions or rewards")


def smallest_range(environments: Iterable[Any]) -> tuple[float, float]:
    """Return the smallest range of rewards that holds those of all tables, and the 0 earned after an episode's end."""
    low = high = 0.0
    for env in environments:
        table = env.unwrapped.P
        for row in table.values() if isinstance(table, dict) else table:
            for outcomes in row.values() if isinstance(row, dict) else row:
                for entry in outcomes:
                    low, high = min(low, float(entry[2])), max(high, float(entry[2]))
    return (low, high) if low < high else (0.0, 1.0)


def layers(env: Any) -> Iterator[Any]:
    """Yield the wrappers of an environment, from outside to inside."""
    import gymnasium as gym  # slow to import, and imported already by who has an environment

    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def name_of(env: Any) -> str:
    """Return the name under which an environment is registered, or that of its class."""
    return str(env.spec.id) if env.spec is not None else type(env.unwrapped).__name__
