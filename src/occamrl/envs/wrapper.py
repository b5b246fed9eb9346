"""An environment as a learner sees it: states, actions and steps are integers, rewards lie in [0, 1].

Termination leads to a state where nothing more is earned: the environment's own if the model has the end there,
otherwise one that is added, the last. Known rewards are held against what is known of them; others have to lie in the
stated range. Where the environment exposes its transition law, regret is exact, and what the law excludes is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
from gymnasium import wrappers

from occamrl.envs.spaces import Codec, Discretiser, codec_from_plain, codec_of
from occamrl.errors import (
    CheckpointError,
    EnvironmentFault,
    InvalidInput,
    ParameterError,
    ShapeError,
    TableError,
    require_integer,
)
from occamrl.problems.lakes import has_table, require_harmless_wrappers, table_of
from occamrl.problems.mdp import FiniteMDP, RewardMap, reward_map
from occamrl.protocols import Floats, Known, Outcomes

ROUNDING = 1e-6  # how far a reward may be from the known one, in the learner's unit: it may come in 32 bits
_RANDOM = "; for random rewards, use RewardsPerPair(agent=...) and known=Known.of_sizes(...)"
_ONE_MORE = "`known` with one state more, for the end of an episode"


class Step(NamedTuple):
    """What the environment did in one step."""

    next_state: int
    reward: float  # in [0, 1]; a known one as it is known, so that rounding does not become a target
    earned: float  # in the environment's own unit
    terminated: bool
    truncated: bool


@dataclass(frozen=True)
class EnvironmentInfo:
    """The Gymnasium environment of a run: enough to go on, or to act, without the environment object."""

    name: str
    rewards: RewardMap
    observation: Codec
    action: Codec
    exact: bool  # whether the environment's truth was known, and regret with it
    why_not: str = ""

    def names(self, kind: str, size: int) -> list[str]:
        """Return what the ``size`` states or actions are called: the observations themselves; the end has a number."""
        codec = self.observation if kind == "states" else self.action
        return [str(codec.decode(i) if i < codec.size else i) for i in range(size)]

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        codecs = {"observation": self.observation.to_plain(), "action": self.action.to_plain()}
        return {**vars(self), **codecs, "rewards": list(self.rewards)}

    @classmethod
    def from_plain(cls, data: Any) -> EnvironmentInfo:
        """Return what :meth:`to_plain` wrote, checked."""
        try:
            codecs = {name: codec_from_plain(data[name]) for name in ("observation", "action")}
            return cls(**{**data, **codecs, "rewards": reward_map(data["rewards"])})
        except (TypeError, ValueError, LookupError) as error:
            raise CheckpointError("environment", got=error, expected="an environment as it was written") from error


class FiniteEnvironment:
    """A Gymnasium environment with finite spaces, as integers.

    Parameters
    ----------
    env : gymnasium.Env
    known : Known, optional
        What the learner knows: sizes, horizon and rewards (``mdp.known``, ``read_ladder(...).known``) of every outcome
        that some model of the learner thinks possible. By default read from the environment's table. For agents that
        estimate the rewards: ``Known.of_sizes(states=..., actions=..., horizon=...)``; rewards may then be random.
    horizon : int, optional
        H; by default that of ``known``, otherwise the environment's time limit.
    reward_range : (low, high), optional
        Mapped onto [0, 1] for the learner. By default the smallest that holds the table's rewards and 0; without a
        table (0, 1).
    discretiser, action_discretiser : Discretiser, optional
        For Box spaces.

    Where the environment exposes the truth, it is ``mdp``, and regret is exact; else ``info.why_not`` is the reason.
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
        self.observation = codec_of(env.observation_space, discretiser)
        self.action = codec_of(env.action_space, action_discretiser)
        steps = self._horizon(known, horizon)
        self.mdp: FiniteMDP | None = None
        self.rewards, why_not = reward_map(reward_range), ""
        try:
            own = getattr(env.unwrapped, "mdp", None)
            if isinstance(own, FiniteMDP) and not has_table(env):  # a problem of this package
                require_harmless_wrappers(env)
                if own.horizon != steps:
                    raise ParameterError("horizon", got=steps, expected=f"{own.horizon}, the problem's own")
                self.mdp, self.rewards = own, getattr(env.unwrapped, "rewards", self.rewards)
            else:
                self.mdp, self.rewards = table_of(env, horizon=steps, reward_range=reward_range)
        except TableError as error:
            if known is None:
                raise
            why_not = str(error)
        truth = None if self.mdp is None else self.mdp.known
        given = truth if known is None else replace(known, initial=None if truth is None else truth.initial)
        self.known = cast(Known, given)  # one of the two is there
        self._require_sizes()
        self.end = self.observation.size if self.known.states > self.observation.size else -1
        self.scatter = not self.known.rewards_known or (self.mdp is not None and self.mdp.reward_noise is not None)
        if self.end >= 0 and not self.known.rewards_known and not self.rewards.low <= 0.0 <= self.rewards.high:
            raise ParameterError("reward_range", got=tuple(self.rewards), expected="0 in it, earned after the end")
        name = str(env.spec.id) if env.spec is not None else type(env.unwrapped).__name__
        self.info = EnvironmentInfo(name, self.rewards, self.observation, self.action, self.mdp is not None, why_not)
        self.resting = self._resting_states()
        self._left: set[int] = set()  # states that a step was made from
        self._ended: set[int] = set()  # states of the environment's own where an episode ended

    def _horizon(self, known: Known | None, horizon: int | None) -> int:
        limits, layer = [], self.env
        while isinstance(layer, gym.Wrapper):
            limits += [layer._max_episode_steps] if isinstance(layer, wrappers.TimeLimit) else []
            layer = layer.env
        own = getattr(self.env.unwrapped, "mdp", None)
        if known is not None:
            if horizon not in (None, known.horizon):
                raise ParameterError("horizon", got=horizon, expected=f"{known.horizon}, that of `known`")
            horizon = known.horizon
        elif horizon is None:
            horizon = own.horizon if isinstance(own, FiniteMDP) else min(limits, default=None)
        if horizon is None:
            raise ParameterError("horizon", got=None, expected="horizon=H, or known=...: there is no time limit")
        if limits and min(limits) < require_integer("horizon", horizon, 1):
            expected = f"at most the time limit {min(limits)}, or gymnasium.make(..., max_episode_steps={horizon})"
            raise ParameterError("horizon", got=horizon, expected=expected)
        return require_integer("horizon", horizon, 1)

    def _require_sizes(self) -> None:
        n, known = self.observation.size, self.known
        if known.states not in (n, n + 1):
            got = f"{known.states} states for {n} observations"
            raise ShapeError("known", got=got, expected="as many, or one more for the end of an episode")
        if known.actions != self.action.size:
            raise ShapeError("known", got=f"{known.actions} actions", expected=f"{self.action.size}")
        if self.mdp is not None and self.mdp.states != known.states:
            got = f"{known.states} states, but the table needs {self.mdp.states}"
            raise ShapeError("known", got=got, expected="as many: one more than observations if an end is added")

    def _resting_states(self) -> frozenset[int]:
        """States of the environment itself where, by the known rewards, nothing more is earned, whatever is done.

        None where there is no table but a state for the end, to which every termination then leads.
        """
        if self.mdp is None and (self.end >= 0 or not self.known.rewards_known):
            return frozenset()
        known = self.known if self.known.rewards_known or self.mdp is None else self.mdp.known
        quiet = np.abs(known.base_reward - self.rewards.to_unit(0.0)).max(axis=1) <= ROUNDING
        if known.transition_rewards is not None:
            table = known.transition_rewards
            quiet[table.pair[table.bonus > ROUNDING] // known.actions] = False
        if self.mdp is not None:
            state = self.mdp.outcomes.pair // known.actions
            quiet[state[self.mdp.outcomes.next_state != state]] = False
        return frozenset(np.flatnonzero(quiet[: self.observation.size]).tolist())

    def reset(self, seed: int) -> int:
        """Begin an episode and return its state."""
        observation, _ = self.env.reset(seed=seed)
        return self.observation.encode(observation)

    def step(self, s: int, a: int) -> Step:
        """Do a in s and return what followed; what the environment may not do is an EnvironmentFault."""
        observation, reward, terminated, truncated, _ = self.env.step(self.action.decode(a))
        earned, s2 = float(reward), self.observation.encode(observation)
        mapped = self.rewards.to_unit(earned)
        if not -ROUNDING <= mapped <= 1.0 + ROUNDING:  # not a number is neither
            low, high = self.rewards
            hint = "; reward_range=(low, high) states another range" * math.isfinite(earned)
            raise EnvironmentFault("reward", got=earned, expected=f"a number in [{low:g}, {high:g}]{hint}")
        after, mapped = self._checked(s, a, s2, min(1.0, max(0.0, mapped)), bool(terminated))
        return Step(after, mapped, earned, bool(terminated), bool(truncated))

    def at_rest(self, s: int, a: int) -> float:
        """Return what is earned in a state after the end of an episode, in [0, 1]."""
        return float(self.known.base_reward[s, a]) if self.known.rewards_known else self.rewards.to_unit(0.0)

    def _checked(self, s: int, a: int, s2: int, mapped: float, terminated: bool) -> tuple[int, float]:
        """Return the next state and the reward of a kind of transition, or refuse it."""
        s2 = self._arrive(s, s2, terminated)
        if not self.scatter:
            base = float(self.known.base_reward[s, a])
            listed = self._bonuses(self.known.transition_rewards, s, a, s2)
            if listed.size:  # otherwise no model knows this outcome: what was seen is what it pays
                nearest = base + float(listed[np.abs(base + listed - mapped).argmin()])
                if abs(nearest - mapped) > ROUNDING:
                    each = " or ".join(f"{self.rewards.total(base + bonus, 1):.9g}" for bonus in listed.tolist())
                    expected = f"{each}, the known reward of ({s}, {a}, {s2}){_RANDOM}"
                    raise EnvironmentFault("reward", got=self.rewards.total(mapped, 1), expected=expected)
                mapped = nearest
        if self.mdp is not None:
            rewards = self.mdp.base_reward[s * self.known.actions + a] + self._bonuses(self.mdp.outcomes, s, a, s2)
            if not (rewards.size if self.mdp.reward_noise else (np.abs(rewards - mapped) <= ROUNDING).any()):
                got = f"state {s2} with reward {self.rewards.total(mapped, 1):g} after ({s}, {a})"
                raise TableError(self.info.name, got=got, expected="an outcome of the environment's own table")
        return s2, mapped

    def _arrive(self, s: int, s2: int, terminated: bool) -> int:
        """Return the state that a step led to: the one for the end if the episode ended elsewhere than at rest."""
        self._left.add(s)
        if terminated and s2 in self.resting:
            self._ended.add(s2)
        if self.mdp is None and not self._left.isdisjoint(self._ended):
            got = f"state {min(self._left & self._ended)}, where an episode ended and another one went on"
            raise TableError(self.info.name, got=got, expected=_ONE_MORE)
        if not terminated or s2 in self.resting:
            return s2
        if self.end < 0:
            got = f"an episode that ended in state {s2}, where more may be earned as far as is known"
            raise TableError(self.info.name, got=got, expected=_ONE_MORE)
        return self.end

    def _bonuses(self, table: Outcomes | None, s: int, a: int, s2: int) -> Floats:
        """Return the bonuses that outcomes list for (s, a, s'); 0 where rewards depend on (s, a) alone."""
        if table is None:
            return np.zeros(1)
        at = slice(*table.start[s * self.known.actions + a :][:2])
        return np.asarray(table.bonus[at][table.next_state[at] == s2])

    def __repr__(self) -> str:
        sizes = f"states={self.known.states}, actions={self.known.actions}, horizon={self.known.horizon}"
        return f"FiniteEnvironment({self.info.name}, {sizes}, {'exact regret' if self.mdp else 'no table'})"


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


def require_finite(env: Any, **about: Any) -> FiniteEnvironment:
    """Return a FiniteEnvironment as it is, or one made from a Gymnasium environment."""
    if not isinstance(env, FiniteEnvironment):
        return FiniteEnvironment(env, **about)
    for name, value in about.items():
        if value is not None:
            raise ParameterError(name, got=value, expected="none: the FiniteEnvironment has its own")
    return env
