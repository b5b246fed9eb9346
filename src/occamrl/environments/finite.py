"""An environment as a learner sees it: states, actions and steps are integers, rewards lie in [0, 1].

``reset`` and ``step`` are Gymnasium's; what a step means is in :mod:`occamrl.environments.translation`. Truncation is
no termination: it only cuts an episode short.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
from gymnasium import wrappers

from occamrl.contracts import Known
from occamrl.environments.discretiser import Discretiser
from occamrl.environments.misbehaviour import TableError
from occamrl.environments.spaces import codec_of
from occamrl.environments.tables import (
    RewardMap,
    has_table,
    require_harmless_wrappers,
    reward_map,
    rewards_of_problem,
    table_of,
)
from occamrl.environments.translation import Translation
from occamrl.errors import HorizonError, ParameterError, ShapeError
from occamrl.problems.checks import require_integer
from occamrl.problems.finite_mdp import FiniteMDP


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
        The truth, where the environment exposes it: exact regret can then be told.
    why_not : str
        Why it is not, if so.
    translate : Translation
        From what ``env.step`` reports to what the learner is told.
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
        self.translate = Translation(self.name, self.observation, self.known, self.rewards, self.mdp)

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
