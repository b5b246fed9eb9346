"""``learn_on_box``: an agent on a box in a real environment, whose observations are points and not numbers of states.

Whatever the environment does, an episode is closed before an error leaves: the transitions seen before it are learned,
nothing else is, and the next episode can begin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from occamrl import seeding
from occamrl.contracts import Floats
from occamrl.environments.misbehaviour import EnvironmentFault, EnvironmentReward, EpisodeCutShort, SpaceError
from occamrl.environments.tables import reward_map
from occamrl.errors import Interrupted, ParameterError
from occamrl.problems.checks import require_integer
from occamrl.runs.anchored import Anchored
from occamrl.runs.interaction import ROUNDING
from occamrl.runs.interrupts import ctrl_c
from occamrl.runs.progress import Progress
from occamrl.runs.session import failure, located


def learn_on_box(
    agent: Anchored,
    env: gym.Env[Any, Any],
    *,
    episodes: int,
    seed: int | None = None,
    state_of: Callable[[Any], ArrayLike] | None = None,
    reward_range: Sequence[float] | None = None,
    allow_truncation: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = 30.0,
    progress: bool | None = None,
) -> Anchored:
    """Let an agent learn in an environment whose states are points of its box; it learns in place and is returned.

    Parameters
    ----------
    agent : Anchored
    env : gymnasium.Env
        With a Box of observations, and as actions a Box (given the agent's own) or Discrete (given their numbers).
    episodes : int
        How many more to play. With a ``checkpoint`` that exists: until there are this many in all, so that a command
        that was stopped is simply given again.
    seed : int, optional
        Every reset is given a seed found at the address (seed, episode); that of the agent by default.
    state_of : callable, optional
        Turns an observation into a state [n], such as ``lambda o: (np.arctan2(o[1], o[0]), o[2])`` for Pendulum-v1.
    reward_range : (low, high), optional
        Of the environment, mapped onto [0, 1]; the result must be the reward that the agent knows.
    allow_truncation : bool
        Learn from episodes that end before the horizon (the steps seen) instead of raising EpisodeCutShort.
    checkpoint : path, optional
        Save there every ``checkpoint_every`` seconds, at the end, and when something goes wrong; go on from there.
    progress : bool, optional
        Show progress; by default when it takes longer than a second.

    Raises
    ------
    EnvironmentFault
        The environment misbehaved, with episode and step; the agent, which is also the error's ``result``, has learned
        what came before, and so has the ``checkpoint``.
    Interrupted
        Ctrl-C, at an episode boundary (a second one does not wait for it).
    """
    if not isinstance(agent, Anchored):
        raise ParameterError("agent", got=type(agent).__name__, expected="an Anchored")
    require_integer("episodes", episodes, 1)
    player = _Player(agent, env, agent.seed if seed is None else seed, state_of, reward_range)
    path, left = None if checkpoint is None else Path(checkpoint), episodes
    if path is not None and path.exists():
        agent.load(path)
        left = episodes - agent.episode
    first, end, saved = agent.episode, agent.episode + left, time.monotonic()
    bar = Progress(type(agent.agent).__name__, left, progress, measure="realised return")
    try:
        with ctrl_c(may_raise=lambda: player.waiting) as pressed:
            while agent.episode < end:
                player.play(allow_truncation)
                if pressed.is_set():
                    raise Interrupted(f"stopped after episode {agent.episode:,} of {end:,}", agent)
                if path is not None and time.monotonic() - saved >= checkpoint_every:
                    agent.save(path)
                    saved = time.monotonic()
                bar.update(agent.episode - first, player.realised)
    except EnvironmentFault as error:
        error.result = agent
        raise
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(f"stopped in episode {agent.episode:,} of {end:,}", agent) from None
    finally:
        bar.close()
        if path is not None and left > 0:
            agent.save(path)
    return agent


class _Failed(Exception):
    """An exception of the environment's own."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause
        super().__init__(str(cause))


class _Player:
    """Plays one episode after the other."""

    def __init__(
        self,
        agent: Anchored,
        env: gym.Env[Any, Any],
        seed: int,
        state_of: Callable[[Any], ArrayLike] | None,
        reward_range: Sequence[float] | None,
    ) -> None:
        if not isinstance(env, gym.Env):
            raise ParameterError("env", got=type(env).__name__, expected="a Gymnasium environment")
        self.agent, self.env, self.seed, self.state_of = agent, env, require_integer("seed", seed, 0), state_of
        self.name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        self.rewards = reward_map(reward_range)
        self.waiting = False  # for the environment
        self.realised = 0.0  # the sum of all rewards, in the environment's unit
        if state_of is not None and not callable(state_of):
            raise ParameterError("state_of", got=type(state_of).__name__, expected="a function of an observation")
        if state_of is None and not isinstance(env.observation_space, spaces.Box):
            raise SpaceError("observation_space", got=f"{env.observation_space}", expected="a Box, or state_of")
        self.actions = self._actions(env.action_space)
        self.rounding = self._rounding(env.observation_space.dtype)

    def _actions(self, space: Any) -> list[Any]:
        """Return the agent's actions as the environment wants them."""
        mine = self.agent.actions
        if isinstance(space, spaces.Discrete):
            if space.n != len(mine):
                raise SpaceError("action_space", got=f"{space}", expected=f"{len(mine)} actions, as the agent has")
            return [int(space.start) + a for a in range(len(mine))]
        if not isinstance(space, spaces.Box) or int(np.prod(space.shape)) != mine.shape[1]:
            raise SpaceError("action_space", got=f"{space}", expected=f"Discrete or a Box of {mine.shape[1]} numbers")
        found = [action.astype(space.dtype).reshape(space.shape) for action in mine]
        for a, action in enumerate(found):
            same = np.allclose(action.ravel(), mine[a], rtol=1e-3, atol=1e-6)  # integers would be other actions
            if not (same and space.contains(action)):
                raise SpaceError("actions", index=(a,), got=mine[a].tolist(), expected=f"an action of {space}")
        return found

    def _rounding(self, dtype: Any) -> Floats:
        """Return how far outside its box a state on the edge may lie when written in the environment's numbers [n]."""
        largest = np.maximum(np.abs(self.agent.grid.low), np.abs(self.agent.grid.high))
        coarse = dtype is not None and np.issubdtype(dtype, np.floating)
        return np.asarray((np.finfo(dtype).eps if coarse else 0.0) * largest)

    def play(self, allow_truncation: bool) -> None:
        """Play the next episode; whatever happens, it is closed afterwards."""
        agent, k, h = self.agent, self.agent.episode, 0
        reset = int(seeding.stream(self.seed, "environment", "reset", "box", k).integers(2**31))
        try:
            agent.begin(self._state(self._ask(partial(self.env.reset, seed=reset))[0]))
            while h < agent.horizon:
                step = partial(self.env.step, self.actions[agent.act()])
                observation, reward, terminated, truncated, _ = self._ask(step)
                self._require_known(reward)
                agent.record(self._state(observation))
                self.realised += float(reward)
                h += 1
                if (terminated or truncated) and h < agent.horizon:
                    got, expected = f"an episode of {h} steps", f"{agent.horizon} steps, or allow_truncation=True"
                    if not allow_truncation:
                        raise EpisodeCutShort(self.name, got=got, expected=expected)
                    break
        except EnvironmentFault as error:
            raise located(error, (k, h)) from error.__cause__
        except _Failed as error:
            raise failure(error.cause, self.name, (k, h)) from error.cause
        finally:
            agent.end()

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Return what the environment answers; whatever it raises is its own."""
        self.waiting = True
        try:
            return question()
        except Exception as error:  # of someone else's environment, which may raise anything
            raise _Failed(error) from error
        finally:
            self.waiting = False

    def _state(self, observation: Any) -> Floats:
        grid = self.agent.grid
        point = observation if self.state_of is None else self.state_of(observation)
        try:
            state = np.asarray(point, dtype=np.float64).ravel()
        except (TypeError, ValueError):
            state = np.zeros(0)
        if state.shape == (grid.dimensions,):
            nearest = grid.clip(state[None])[0]
            if (np.abs(nearest - state) <= self.rounding).all():
                state = nearest
        if state.shape != (grid.dimensions,) or grid.outside(state[None]).any():
            raise SpaceError("observation", got=repr(point), expected=grid.described)
        return state

    def _require_known(self, reward: Any) -> None:
        known = self.agent.reward_in_play
        try:
            mapped = self.rewards.to_unit(float(reward))
        except (TypeError, ValueError):
            mapped = np.nan
        if not -ROUNDING <= mapped <= 1.0 + ROUNDING:
            expected = f"a number in [{self.rewards.low:g}, {self.rewards.high:g}]"
            raise EnvironmentReward("reward", got=repr(reward), expected=expected)
        if abs(mapped - known) > ROUNDING:
            expected = f"{known * self.rewards.scale + self.rewards.low:.6g}, the reward that the agent knows"
            raise EnvironmentReward("reward", got=repr(reward), expected=expected)
