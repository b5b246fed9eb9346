"""Environments that expose their table, ``env.unwrapped.P`` of Gymnasium's toy text, as problems with a known optimum.

Such tables have traps. Successors are repeated (they are added up); a reward may depend on more than (s, a, s') (the
outcome lists of :mod:`occamrl.contracts` hold it, M20); a state that ends the episode need not be a self-loop (a state
is added, and the map of rewards onto [0, 1] includes the 0 that is earned there); the table may leave out what the
environment does (Taxi's fickle passenger); and a wrapper may change what the agent sees. The last two are refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium import wrappers

from occamrl.contracts import Floats, Known
from occamrl.environments.misbehaviour import TableError
from occamrl.errors import ParameterError
from occamrl.families.simulators import read_problems
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.problems.units import Unit

# Wrappers that leave observations, actions, rewards and ends alone, TimeLimit's truncation aside.
HARMLESS = (
    wrappers.OrderEnforcing,
    wrappers.PassiveEnvChecker,
    wrappers.TimeLimit,
    wrappers.RecordEpisodeStatistics,
    wrappers.HumanRendering,
    wrappers.RenderCollection,
)


Reward = TypeVar("Reward", float, Floats)


class RewardMap(NamedTuple):
    """The affine map (r - low) / (high - low) of an environment's rewards onto [0, 1]."""

    low: float = 0.0
    high: float = 1.0

    @property
    def scale(self) -> float:
        """What a difference of 1 in the learner's unit is in the environment's own."""
        return self.high - self.low

    def to_unit(self, reward: Reward) -> Reward:
        """Return a reward as the learner sees it."""
        return (reward - self.low) / (self.high - self.low)

    def total(self, mapped: float, steps: int) -> float:
        """Return the sum of the rewards of ``steps`` steps in the environment's unit from that in the learner's."""
        return mapped * self.scale + steps * self.low


def reward_map(reward_range: Sequence[float] | None) -> RewardMap:
    """Return the map of a stated range."""
    if reward_range is None:
        return RewardMap()
    try:
        low, high = (float(end) for end in reward_range)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ParameterError("reward_range", got=reward_range, expected="(low, high) with low < high")
    return RewardMap(low, high)


def rewards_of_problem(problem: object) -> RewardMap:
    """Return the map of a problem's own unit (money, minutes), if it has one, onto [0, 1]."""
    unit = getattr(problem, "unit", None)
    return RewardMap(unit.low, unit.high) if isinstance(unit, Unit) else RewardMap()


@dataclass(frozen=True, kw_only=True, eq=False)
class EnvironmentTable:
    """What an environment's table says, and how it is counted."""

    mdp: FiniteMDP
    rewards: RewardMap
    observations: int  # states of the environment itself; mdp.states is one more where an end had to be added


def has_table(env: gym.Env[Any, Any]) -> bool:
    """Say whether an environment exposes a table of outcomes."""
    table = getattr(env.unwrapped, "P", None)
    return isinstance(table, (dict, list, tuple)) and len(table) > 0


def table_of(env: gym.Env[Any, Any], *, horizon: int, reward_range: Sequence[float] | None = None) -> EnvironmentTable:
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
    mdp = FiniteMDP.from_outcomes(
        inner.P, horizon=horizon, initial_state=start, reward_range=(rewards.low, rewards.high)
    )
    return EnvironmentTable(mdp=mdp, rewards=rewards, observations=len(inner.P))


def require_whole_truth(env: gym.Env[Any, Any]) -> None:
    """Refuse an environment whose table is missing or is not all there is to it."""
    if not has_table(env):
        expected = "an environment that exposes one, or `known` (Known.of_sizes(...) if rewards are to be estimated)"
        raise TableError(_name(env), got="no table env.unwrapped.P", expected=expected)
    require_harmless_wrappers(env)
    if getattr(env.unwrapped, "fickle_passenger", False):
        got = "fickle_passenger=True: the passenger's change of mind is not in the table"
        raise TableError(_name(env), got=got, expected="fickle_passenger=False, or learning without exact regret")


def require_harmless_wrappers(env: gym.Env[Any, Any]) -> None:
    """Refuse wrappers that may change what is observed, done or earned."""
    layer: Any = env
    while isinstance(layer, gym.Wrapper):
        if not isinstance(layer, HARMLESS):
            got = f"the wrapper {type(layer).__name__}, which the table knows nothing of"
            raise TableError(_name(env), got=got, expected="no wrapper that changes observations, actions or rewards")
        layer = layer.env


def smallest_range(environments: Iterable[gym.Env[Any, Any]]) -> tuple[float, float]:
    """Return the smallest range of rewards that holds those of all tables, and the 0 earned after an episode's end."""
    low = high = 0.0
    for env in environments:
        unwrapped: Any = env.unwrapped
        table = unwrapped.P
        for row in table.values() if isinstance(table, dict) else table:
            for outcomes in row.values() if isinstance(row, dict) else row:
                for entry in outcomes:
                    low, high = min(low, float(entry[2])), max(high, float(entry[2]))
    return (low, high) if low < high else (0.0, 1.0)


def known_of_several(problems: Sequence[FiniteMDP]) -> Known:
    """Return what an agent may know when the truth is one of several problems: the rewards of all their outcomes."""
    entries, rewards = read_problems(problems)
    start = entries.outcomes.start
    base = np.minimum.reduceat(rewards, start[:-1])
    bonus = rewards - np.repeat(base, np.diff(start))
    return Known(
        states=entries.states,
        actions=entries.actions,
        horizon=problems[0].horizon,
        base_reward=base.reshape(entries.states, entries.actions),
        transition_rewards=entries.outcomes._replace(bonus=bonus) if bonus.any() else None,
    )


def _name(env: gym.Env[Any, Any]) -> str:
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__
