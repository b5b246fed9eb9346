"""An environment as a learner sees it: states, actions and steps are integers, rewards lie in [0, 1].

``reset`` and ``step`` are Gymnasium's; ``translate`` says what a step means to a learner. Termination leads to a state
where nothing more is earned: the environment's own if the model has the end there, otherwise one that is added,
the last. Truncation is no termination: it only cuts an episode short. Rewards that are known are held against what is
known of them. Rewards that are not known, or scatter around what is known, have to lie in the stated range; each is
passed on as it came. Every kind of transition is checked once, then looked up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import wrappers

from occamrl.envs.spaces import Discretiser, codec_of
from occamrl.errors import (
    EnvironmentReward,
    HorizonError,
    InvalidInput,
    ParameterError,
    ShapeError,
    TableError,
    require_integer,
)
from occamrl.models.features import pair_of_outcome
from occamrl.problems.mdp import FiniteMDP
from occamrl.problems.mdp import RewardMap as RewardMap
from occamrl.problems.mdp import reward_map as reward_map
from occamrl.problems.tables import has_table, layers, name_of, require_harmless_wrappers, table_of
from occamrl.protocols import Floats, Known, Outcomes

ROUNDING = 1e-6  # how far a reward may be from the known one, in the learner's unit: it may come in 32 bits
_MOST_REMEMBERED = 2**18
_RANDOM = "; for random rewards, use an agent with rewards=RewardsPerPair() and known=Known.of_sizes(...)"
_ONE_MORE = "`known` with one state more, for the end of an episode"


def make_environment(
    field: str, name: str, options: dict[str, Any], error: type[InvalidInput] = ParameterError
) -> gym.Env[Any, Any]:
    """Return a registered environment; whatever goes wrong is an ``error`` of ``field``."""
    try:
        return gym.make(name, **options)
    except gym.error.Error as fault:
        expected = "a registered environment (--import names a module that registers it)"
        raise error(field, got=f"{name}: {fault}", expected=expected) from fault
    except Exception as fault:  # of someone else's constructor, which may raise anything
        got = f"{type(fault).__name__}: {fault}, from {name} with {options}"
        raise error(field, got=got, expected="options that the environment takes") from fault


def rewards_of_problem(problem: object) -> RewardMap:
    """Return the map of a problem's own unit (money, minutes), if it has one, onto [0, 1]."""
    unit = getattr(problem, "unit", None)
    return unit if isinstance(unit, RewardMap) else RewardMap()


class Transition(NamedTuple):
    """One step, as the learner sees it."""

    next_state: int
    bonus: float  # the known reward of this outcome less base_reward[s, a]; 0 where rewards are not known
    reward: float  # what came, in [0, 1]


class FiniteEnvironment:
    """A Gymnasium environment with finite spaces, as integers.

    Parameters
    ----------
    env : gymnasium.Env
    known : Known, optional
        What the learner knows: sizes, horizon and rewards (``mdp.known``, ``LadderSpec.known``). By default read from
        the environment's table. It must cover every outcome that some model of the learner thinks possible. For agents
        that estimate the rewards: ``Known.of_sizes(states=..., actions=..., horizon=...)``; rewards may then be random,
        and all that is asked of one is to lie in ``reward_range``.
    horizon : int, optional
        H; by default that of ``known``, otherwise the environment's time limit.
    reward_range : (low, high), optional
        Mapped onto [0, 1] for the learner. By default the smallest that holds the table's rewards and 0; without a
        table (0, 1). Rewards that are not known have to keep to it: state it.
    discretiser, action_discretiser : Discretiser, optional
        For Box spaces.

    Attributes
    ----------
    mdp : FiniteMDP or None
        The truth, where the environment exposes it: regret is then exact.
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
            expected = "a Gymnasium environment, gymnasium.make(...); for a problem or FiniteMDP, call occamrl.run"
            raise ParameterError("env", got=type(env).__name__, expected=expected)
        if known is not None and not isinstance(known, Known):
            raise ParameterError("known", got=type(known).__name__, expected="what a learner knows: `mdp.known`")
        self.env = env
        self.name = name_of(env)
        self.observation = codec_of(env.observation_space, discretiser)
        self.action = codec_of(env.action_space, action_discretiser)
        steps = self._horizon(known, horizon)
        self.mdp: FiniteMDP | None = None
        self.why_not = ""
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
        self.scatter = not self.known.rewards_known or (self.mdp is not None and self.mdp.reward_noise is not None)
        if self.end >= 0 and not self.known.rewards_known and not self.rewards.low <= 0.0 <= self.rewards.high:
            raise ParameterError("reward_range", got=tuple(self.rewards), expected="0 in it, earned after the end")
        self.resting = self._resting_states()
        self._remembered: dict[tuple[int, int, Any, Any, bool], Transition] = {}
        self._left: set[int] = set()  # states that a step was made from
        self._ended: set[int] = set()  # states of the environment's own where an episode ended

    def _horizon(self, known: Known | None, horizon: int | None) -> int:
        limits = [layer._max_episode_steps for layer in layers(self.env) if isinstance(layer, wrappers.TimeLimit)]
        own = getattr(self.env.unwrapped, "mdp", None)
        if known is not None:
            if horizon is not None and horizon != known.horizon:
                raise HorizonError("horizon", got=horizon, expected=f"{known.horizon}, that of `known`")
            horizon = known.horizon
        elif horizon is None and isinstance(own, FiniteMDP):
            horizon = own.horizon
        elif horizon is None and limits:
            horizon = min(limits)
        if horizon is None:
            raise HorizonError(
                "horizon", got=None, expected="horizon=H, or known=...: the environment has no time limit"
            )
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

    @property
    def at_rest(self) -> Floats:
        """What is earned in each (s, a) after the end of an episode, in [0, 1], as a flat array [S*A]."""
        if self.known.rewards_known:
            return self.known.base_reward.flatten()  # a copy: read-only arrays are another type to the compiler
        return np.full(self.known.states * self.known.actions, self.rewards.to_unit(0.0))

    def _resting_states(self) -> frozenset[int]:
        """States of the environment itself where, by the known rewards, nothing more is earned, whatever is done.

        None where there is no table but a state for the end: then every termination leads there. None either where
        neither a table nor rewards are known.
        """
        if self.mdp is None and (self.end >= 0 or not self.known.rewards_known):
            return frozenset()
        known = self.known if self.known.rewards_known or self.mdp is None else self.mdp.known
        zero = self.rewards.to_unit(0.0)
        quiet = np.abs(known.base_reward - zero).max(axis=1) <= ROUNDING
        table = known.transition_rewards
        if table is not None:
            quiet[pair_of_outcome(table)[table.bonus > ROUNDING] // known.actions] = False
        if self.mdp is not None:
            outcomes = self.mdp.truth.outcomes
            state = pair_of_outcome(outcomes) // known.actions
            quiet[state[outcomes.next_state != state]] = False
        return frozenset(np.flatnonzero(quiet[: self.observation.size]).tolist())

    def translate(self, s: int, a: int, observation: Any, reward: float, terminated: bool) -> Transition:
        """Return what the learner sees of a step that ``env.step`` reported; ``reward`` is in its own unit."""
        came = self._in_range(reward) if self.scatter else 0.0
        kind = None if self.scatter else reward  # rewards that scatter are no part of what is remembered
        key = (s, a, observation, kind, terminated)
        try:
            found = self._remembered.get(key)
        except TypeError:  # an array: no key
            key = (s, a, self.observation.encode(observation), kind, terminated)
            found = self._remembered.get(key)
        if found is None:
            found = self._translate(s, a, self.observation.encode(observation), reward, terminated)
            if len(self._remembered) >= _MOST_REMEMBERED:  # rewards of a continuum
                self._remembered.clear()
            self._remembered[key] = found
        if not self.scatter:
            return found
        if self.mdp is not None and self.mdp.reward_noise is None:
            self._require_possible(s, a, found.next_state, came)
        return Transition(found.next_state, found.bonus, came)

    def _in_range(self, reward: float) -> float:
        """Return a reward in the learner's unit; rounding in an environment's own sum is no offence."""
        mapped = self.rewards.to_unit(reward)
        if not -ROUNDING <= mapped <= 1.0 + ROUNDING:  # not a number is neither
            low, high = self.rewards
            hint = "; reward_range=(low, high) states another range" * math.isfinite(reward)
            raise EnvironmentReward("reward", got=reward, expected=f"a number in [{low:g}, {high:g}]{hint}")
        return min(1.0, max(0.0, mapped))

    def _translate(self, s: int, a: int, s2: int, reward: float, terminated: bool) -> Transition:
        mapped = self._in_range(reward)
        s2 = self._arrive(s, s2, terminated)
        if self.scatter:
            self._require_possible(s, a, s2, None)
            return Transition(s2, self._expected_bonus(s, a, s2), mapped)
        bonus = self._known_bonus(s, a, s2, mapped)
        seen = float(self.known.base_reward[s, a]) + bonus
        self._require_possible(s, a, s2, seen)
        return Transition(s2, bonus, seen)

    def _arrive(self, s: int, s2: int, terminated: bool) -> int:
        """Return the state that a step led to: the one for the end if the episode ended elsewhere than at rest."""
        self._left.add(s)
        if terminated and s2 in self.resting:
            self._ended.add(s2)
        if self.mdp is None and not self._left.isdisjoint(self._ended):
            state = min(self._left & self._ended)
            got = f"state {state}, where an episode ended and another one went on"
            raise TableError(self.name, got=got, expected=_ONE_MORE)
        if terminated and s2 not in self.resting:
            if self.end < 0:
                why = "where by the known rewards more can be earned"
                why = why if self.known.rewards_known or self.mdp is not None else "and no rewards are known"
                raise TableError(self.name, got=f"an episode that ended in state {s2}, {why}", expected=_ONE_MORE)
            return self.end
        return s2

    def _bonuses(self, table: Outcomes | None, s: int, a: int, s2: int) -> Floats:
        """Return the bonuses that outcomes list for (s, a, s'); 0 where rewards depend on (s, a) alone."""
        if table is None:
            return np.zeros(1)
        pair = s * self.known.actions + a
        at = slice(table.start[pair], table.start[pair + 1])
        return np.asarray(table.bonus[at][table.next_state[at] == s2])

    def _expected_bonus(self, s: int, a: int, s2: int) -> float:
        """Return the bonus of rewards that scatter around known means; 0 where nothing is known of them."""
        listed = self._bonuses(self.known.transition_rewards, s, a, s2)
        if np.ptp(listed) > ROUNDING:
            means = (listed + float(self.known.base_reward[s, a])).tolist()
            got = f"means {means} of ({s}, {a}, {s2}), and rewards that scatter around one of them"
            expected = "one mean; an agent that estimates the rewards needs none, with known=Known.of_sizes(...)"
            raise TableError(self.name, got=got, expected=expected)
        return float(listed[0])

    def _known_bonus(self, s: int, a: int, s2: int, mapped: float) -> float:
        """Return the bonus as the known rewards have it, so that rounding does not become a target."""
        base = float(self.known.base_reward[s, a])
        listed = self._bonuses(self.known.transition_rewards, s, a, s2)
        if listed.size == 0:  # no model knows this outcome: what was seen is what it pays
            return mapped - base
        nearest = float(listed[np.abs(listed - (mapped - base)).argmin()])
        if abs(nearest - (mapped - base)) > ROUNDING:
            known = " or ".join(f"{self.rewards.total(base + float(each), 1):.9g}" for each in listed)
            got, stated = self.rewards.total(mapped, 1), f"{known}, the known reward of ({s}, {a}, {s2})"
            raise EnvironmentReward("reward", got=got, expected=stated + _RANDOM)
        return nearest

    def _require_possible(self, s: int, a: int, s2: int, seen: float | None) -> None:
        """Refuse what the environment's own table excludes: a next state, or one with the reward that was seen."""
        if self.mdp is None:
            return
        truth = self.mdp.truth
        rewards = truth.base_reward[s * self.known.actions + a] + self._bonuses(truth.outcomes, s, a, s2)
        if not (rewards.size if seen is None else (np.abs(rewards - seen) <= ROUNDING).any()):
            what = "" if seen is None else f" with reward {self.rewards.total(seen, 1):g}"
            got = f"state {s2}{what} after ({s}, {a})"
            raise TableError(self.name, got=got, expected="an outcome of the environment's own table")

    def reset(self, seed: int) -> int:
        """Begin an episode and return its state."""
        observation, _ = self.env.reset(seed=seed)
        return self.observation.encode(observation)

    def __repr__(self) -> str:
        regret = "exact regret" if self.mdp is not None else "no table"
        return (
            f"FiniteEnvironment({self.name}, states={self.known.states}, actions={self.known.actions}, "
            f"horizon={self.known.horizon}, rewards in [{self.rewards.low:g}, {self.rewards.high:g}], {regret})"
        )


def require_finite(env: Any, **about: Any) -> FiniteEnvironment:
    """Return a FiniteEnvironment as it is, or one made from a Gymnasium environment."""
    if not isinstance(env, FiniteEnvironment):
        return FiniteEnvironment(env, **about)
    for name, value in about.items():
        if value is not None:
            raise ParameterError(name, got=value, expected="none: the FiniteEnvironment has its own")
    return env
