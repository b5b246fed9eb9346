"""An environment as a learner sees it: states, actions and steps are integers, rewards lie in [0, 1].

``reset`` and ``step`` are Gymnasium's. Termination leads to a state where nothing more is earned: the environment's own
if the model has the end there, otherwise one that is added, the last. Truncation is no termination: it only cuts an
episode short. Every kind of transition is translated and checked once, then looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import wrappers

from occamrl.contracts import Floats, Known
from occamrl.environments.discretiser import Discretiser
from occamrl.environments.misbehaviour import EnvironmentReward, TableError
from occamrl.environments.spaces import codec_of
from occamrl.environments.tables import (
    RewardMap,
    has_table,
    require_harmless_wrappers,
    reward_map,
    rewards_of_problem,
    table_of,
)
from occamrl.errors import HorizonError, ParameterError, ShapeError
from occamrl.problems.checks import require_integer
from occamrl.problems.finite_mdp import FiniteMDP

ROUNDING = 1e-9  # how far a reward may be from the known one, in the learner's unit
_MOST_REMEMBERED = 2**18


class Transition(NamedTuple):
    """One step, as the learner sees it."""

    next_state: int
    bonus: float  # reward less base_reward[s, a], in [0, 1]


class FiniteEnvironment:
    """A Gymnasium environment with finite spaces, as integers.

    Parameters
    ----------
    env : gymnasium.Env
    known : Known, optional
        What the learner knows: sizes, horizon and rewards (``mdp.known``, ``LadderSpec.known``). By default read from
        the environment's table. It must cover every outcome that some model of the learner thinks possible.
    horizon : int, optional
        H; by default that of ``known``, otherwise the environment's time limit.
    reward_range : (low, high), optional
        Mapped onto [0, 1] for the learner. By default the smallest that holds the table's rewards and 0; without a
        table (0, 1).
    discretiser, action_discretiser : Discretiser, optional
        For Box spaces.

    Attributes
    ----------
    mdp : FiniteMDP or None
        The truth, where the environment exposes it: exact regret can then be told.
    why_not : str
        Why it is not, if so.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        known: Known | None = None,
        horizon: int | None = None,
        reward_range: Sequence[float] | None = None,
        discretiser: Discretiser | None = None,
        action_discretiser: Discretiser | None = None,
    ) -> None:
        if not isinstance(env, gym.Env):
            raise ParameterError("env", got=type(env).__name__, expected="a Gymnasium environment")
        if known is not None and not isinstance(known, Known):
            raise ParameterError("known", got=type(known).__name__, expected="what a learner knows: `mdp.known`")
        self.env = env
        self.name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        self.observation = codec_of(env.observation_space, discretiser)
        self.action = codec_of(env.action_space, action_discretiser)
        steps = self._horizon(known, horizon)
        self.mdp, self.why_not = None, ""
        self.rewards = reward_map(reward_range)
        try:
            truth, self.rewards = self._truth(steps, reward_range)
            self.mdp = truth
            self.known: Known = truth.known if known is None else known
        except TableError as error:
            if known is None:
                raise
            self.known, self.why_not = known, str(error)
        self._require_sizes()
        self.end = self.observation.size if self.known.states > self.observation.size else -1
        self.resting = self._resting_states()
        self._remembered: dict[tuple[int, int, Any, float, bool], Transition] = {}
        self._left: set[int] = set()  # states that a step was made from
        self._ended: set[int] = set()  # states of the environment's own where an episode ended

    def _horizon(self, known: Known | None, horizon: int | None) -> int:
        limits = [layer._max_episode_steps for layer in _layers(self.env) if isinstance(layer, wrappers.TimeLimit)]
        if known is not None:
            if horizon is not None and horizon != known.horizon:
                raise HorizonError("horizon", got=horizon, expected=f"{known.horizon}, that of `known`")
            horizon = known.horizon
        own = getattr(self.env.unwrapped, "mdp", None)
        if horizon is None and isinstance(own, FiniteMDP):
            horizon = own.horizon
        if horizon is None:
            if not limits:
                raise HorizonError("horizon", got=None, expected="a number of steps: the environment has no time limit")
            horizon = min(limits)
        require_integer("horizon", horizon, 1, HorizonError)
        if limits and min(limits) < horizon:
            expected = f"at most the time limit {min(limits)}, or gymnasium.make(..., max_episode_steps={horizon})"
            raise HorizonError("horizon", got=horizon, expected=expected)
        return int(horizon)

    def _truth(self, horizon: int, reward_range: Sequence[float] | None) -> tuple[FiniteMDP, RewardMap]:
        own = getattr(self.env.unwrapped, "mdp", None)
        if isinstance(own, FiniteMDP) and not has_table(self.env):
            require_harmless_wrappers(self.env)
            if own.horizon != horizon:
                raise HorizonError("horizon", got=horizon, expected=f"{own.horizon}, the problem's own")
            return own, rewards_of_problem(getattr(self.env.unwrapped, "problem", None))
        table = table_of(self.env, horizon=horizon, reward_range=reward_range)
        return table.mdp, table.rewards

    def _require_sizes(self) -> None:
        n = self.observation.size
        if self.known.states not in (n, n + 1):
            got = f"{self.known.states} states for {n} observations"
            raise ShapeError("known", got=got, expected="as many, or one more for the end of an episode")
        if self.known.actions != self.action.size:
            raise ShapeError("known", got=f"{self.known.actions} actions", expected=f"{self.action.size}")
        if self.mdp is not None and self.mdp.states != self.known.states:
            got = f"{self.known.states} states, but the table needs {self.mdp.states}"
            raise ShapeError("known", got=got, expected="as many: one more than observations if an end is added")

    def _resting_states(self) -> frozenset[int]:
        """States of the environment itself where, by the known rewards, nothing more is earned, whatever is done.

        None where there is no table but a state for the end: then every termination leads there.
        """
        if self.mdp is None and self.end >= 0:
            return frozenset()
        zero = self.rewards.to_unit(0.0)
        quiet = np.abs(self.known.base_reward - zero).max(axis=1) <= ROUNDING
        table = self.known.transition_rewards
        if table is not None:
            pair = np.repeat(np.arange(table.start.size - 1), np.diff(table.start))
            quiet[np.unique(pair[table.bonus > ROUNDING] // self.known.actions)] = False
        if self.mdp is not None:
            outcomes = self.mdp.truth.outcomes
            state = np.repeat(np.arange(outcomes.start.size - 1), np.diff(outcomes.start)) // self.known.actions
            quiet[np.unique(state[outcomes.next_state != state])] = False
        return frozenset(np.flatnonzero(quiet[: self.observation.size]).tolist())

    def reset(self, seed: int) -> int:
        """Begin an episode and return its state."""
        observation, _ = self.env.reset(seed=seed)
        return self.observation.encode(observation)

    def translate(self, s: int, a: int, observation: Any, reward: float, terminated: bool) -> Transition:
        """Return what the learner is told of a step that ``env.step`` reported; ``reward`` is in its own unit."""
        key = (s, a, observation, reward, terminated)
        try:
            found = self._remembered.get(key)
        except TypeError:  # an array: no key
            key = (s, a, self.observation.encode(observation), reward, terminated)
            found = self._remembered.get(key)
        if found is None:
            found = self._translate(s, a, self.observation.encode(observation), reward, terminated)
            if len(self._remembered) >= _MOST_REMEMBERED:  # rewards of a continuum
                self._remembered.clear()
            self._remembered[key] = found
        return found

    def _translate(self, s: int, a: int, s2: int, reward: float, terminated: bool) -> Transition:
        low, high = self.rewards
        if not low <= reward <= high:  # not a number is neither
            raise EnvironmentReward("reward", got=reward, expected=f"a number in [{low:g}, {high:g}]")
        self._left.add(s)
        if terminated and s2 in self.resting:
            self._ended.add(s2)
        if self.mdp is None and not self._left.isdisjoint(self._ended):
            state = min(self._left & self._ended)
            got = f"state {state}, where an episode ended and another one went on"
            raise TableError(self.name, got=got, expected="`known` with one state more, for the end of an episode")
        if terminated and s2 not in self.resting:
            if self.end < 0:
                got = f"an episode that ended in state {s2}, where by the known rewards more can be earned"
                raise TableError(self.name, got=got, expected="`known` with one state more, for the end of an episode")
            s2 = self.end
        bonus = self._known_bonus(s, a, s2, self.rewards.to_unit(reward))
        self._require_possible(s, a, s2, bonus)
        return Transition(s2, bonus)

    def _known_bonus(self, s: int, a: int, s2: int, mapped: float) -> float:
        """Return the bonus as the known rewards have it, so that rounding does not become a target."""
        base = float(self.known.base_reward[s, a])
        table = self.known.transition_rewards
        if table is None:
            if abs(mapped - base) > ROUNDING:
                got, expected = (self.rewards.total(each, 1) for each in (mapped, base))
                raise EnvironmentReward("reward", got=got, expected=f"{expected:g}, the known reward of ({s}, {a})")
            return 0.0
        at = slice(table.start[s * self.known.actions + a], table.start[s * self.known.actions + a + 1])
        listed = table.bonus[at][table.next_state[at] == s2]
        if listed.size == 0:  # no model knows this outcome: what was seen is what it pays
            return mapped - base
        nearest = float(listed[np.abs(listed - (mapped - base)).argmin()])
        if abs(nearest - (mapped - base)) > ROUNDING:
            known = [round(self.rewards.total(base + float(each), 1), 9) for each in listed]
            got = self.rewards.total(mapped, 1)
            raise EnvironmentReward("reward", got=got, expected=f"one of {known}, those known of ({s}, {a}, {s2})")
        return nearest

    def _require_possible(self, s: int, a: int, s2: int, bonus: float) -> None:
        """Refuse what the environment's own table excludes."""
        if self.mdp is None:
            return
        truth = self.mdp.truth
        pair = s * self.known.actions + a
        at = slice(truth.outcomes.start[pair], truth.outcomes.start[pair + 1])
        reward = truth.base_reward[pair] + truth.outcomes.bonus[at]
        seen = float(self.known.base_reward[s, a]) + bonus
        if not ((truth.outcomes.next_state[at] == s2) & (np.abs(reward - seen) <= ROUNDING)).any():
            got = f"state {s2} with reward {self.rewards.total(seen, 1):g} after ({s}, {a})"
            raise TableError(self.name, got=got, expected="an outcome of the environment's own table")

    @property
    def base_reward(self) -> Floats:
        """base_reward as a flat array [S*A]."""
        return np.ascontiguousarray(self.known.base_reward).reshape(-1)

    def __repr__(self) -> str:
        regret = "exact regret" if self.mdp is not None else "no table"
        return (
            f"FiniteEnvironment({self.name}, states={self.known.states}, actions={self.known.actions}, "
            f"horizon={self.known.horizon}, rewards in [{self.rewards.low:g}, {self.rewards.high:g}], {regret})"
        )


def _layers(env: Any) -> list[Any]:
    """Return the wrappers of an environment, from outside to inside."""
    found = []
    while isinstance(env, gym.Wrapper):
        found.append(env)
        env = env.env
    return found


def require_finite(env: Any, **about: Any) -> FiniteEnvironment:
    """Return a FiniteEnvironment as it is, or one made from a Gymnasium environment."""
    if not isinstance(env, FiniteEnvironment):
        return FiniteEnvironment(env, **about)
    for name, value in about.items():
        if value is not None:
            raise ParameterError(name, got=value, expected="none: the FiniteEnvironment has its own")
    return env
