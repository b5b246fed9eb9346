"""``Agent``: an algorithm and what it has learned, with the verbs of Stable-Baselines3: learn, predict, save, load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from occamrl import protocols as contracts
from occamrl.envs.spaces import Discretiser
from occamrl.envs.wrapper import FiniteEnvironment, require_finite
from occamrl.errors import CheckpointError, EnvironmentFault, Interrupted, OccamRLError, ParameterError
from occamrl.protocols import Ints
from occamrl.running.result import EnvironmentInfo, Result
from occamrl.running.run import EnvironmentSource, Run, learn
from occamrl.running.storage import load, save


class Agent:
    """An algorithm together with what it has learned in an environment.

    >>> import gymnasium as gym
    >>> import occamrl as orl
    >>> spec = orl.read_ladder("frozen-lake-4x4")
    >>> agent = orl.Agent(orl.ARLGen(ladder=spec.ladder), gym.make("FrozenLake-v1"), known=spec.known)
    >>> action, state = agent.learn(20).predict(0)

    Parameters
    ----------
    algorithm : learner or selector
    env : gymnasium.Env or FiniteEnvironment, optional
        Can also be given to :meth:`learn`.
    seed : int
    about
        ``known``, ``horizon``, ``reward_range``, ``discretiser`` of :class:`FiniteEnvironment`.
    """

    def __init__(self, algorithm: contracts.Agent, env: Any = None, *, seed: int = 0, **about: Any) -> None:
        self.algorithm, self.seed, self._about = algorithm, seed, about
        self.result: Result | None = None  # of everything learned so far
        self._environment: FiniteEnvironment | None = None
        self._policies: dict[int, Ints] = {}
        if env is not None:
            self.set_env(env)

    def set_env(self, env: gym.Env[Any, Any] | FiniteEnvironment) -> None:
        """Set the environment; a later one must have the same sizes and rewards."""
        about = dict(self._about)
        if self.result is not None and not isinstance(env, FiniteEnvironment) and "known" not in about:
            info = self._info()
            about.update(known=self.result.known, reward_range=tuple(info.rewards))
            for name, codec in (("discretiser", info.observation), ("action_discretiser", info.action)):
                if isinstance(codec, Discretiser):
                    about.setdefault(name, codec)
        self._environment = require_finite(env, **about)

    def learn(self, episodes: int, env: Any = None, **options: Any) -> Agent:
        """Learn for more episodes and return the agent; two calls of n episodes equal one of 2n, bit for bit.

        ``options`` are those of :func:`occamrl.learn`: callbacks, checkpoint, progress, replay, allow_truncation. An
        error leaves the agent with what it had learned before.
        """
        if env is not None:
            self.set_env(env)
        if self._environment is None:
            raise OccamRLError("no environment: give one to Agent, set_env or learn")
        if "continue_from" in options or "seed" in options:
            raise ParameterError("learn", got="continue_from or seed", expected="neither: the agent has its own")
        start = {"continue_from": self.result} if self.result is not None else {"seed": self.seed}
        self._policies.clear()
        try:
            self.result = learn(self.algorithm, self._environment, episodes=episodes, **start, **options)
        except (EnvironmentFault, Interrupted) as error:
            self.result = error.result if isinstance(error.result, Result) else self.result
            raise
        return self

    def predict(
        self, observation: Any, state: Any = None, episode_start: bool = False, deterministic: bool = True
    ) -> tuple[Any, Any]:
        """Return (action, state): what the policy now in play would do, without learning.

        The policy of a finite horizon depends on the step, and the plan on where the episode began. ``state`` carries
        both: pass None (or ``episode_start`` True) at the beginning of an episode and what was returned after that, as
        with a recurrent policy. ``deterministic`` is accepted for the sake of the convention.
        """
        info, known = self._info(), self._result().known
        s = info.observation.encode(observation)
        try:
            h, start = (0, s) if state is None or episode_start else (int(part) for part in state)
        except (TypeError, ValueError):
            h = start = -1
        if not 0 <= h < known.horizon or not 0 <= start < known.states:
            expected = f"None, or what predict returned, for one of the {known.horizon} steps of an episode"
            raise ParameterError("state", got=state, expected=expected)
        return info.action.decode(int(self.policy(start)[h, s])), np.array([h + 1, start])

    def policy(self, start: int) -> Ints:
        """Return the actions [H, S] of an episode that begins in state ``start``."""
        if start not in self._policies:
            self._policies[start] = self._result().policy(start)
        return self._policies[start]

    def _result(self) -> Result:
        """Return what was learned so far, which may be nothing."""
        if self.result is None:
            if self._environment is None:
                raise OccamRLError("nothing learned and no environment: give one to Agent or set_env")
            source = EnvironmentSource(self._environment, allow_truncation=False, replay=False)
            self.result = Run(self.algorithm, source, self.seed).result()
        return self.result

    def _info(self) -> EnvironmentInfo:
        info = self._result().environment
        if info is None:
            raise OccamRLError("this result is of a run in the simulator, which has no observations to act on")
        return info

    def save(self, path: str | Path) -> None:
        """Write the algorithm and all it has learned to one file, without pickle."""
        save(self._result(), path)

    @classmethod
    def load(
        cls, path: str | Path, env: Any = None, *, algorithm: contracts.Agent | None = None, **about: Any
    ) -> Agent:
        """Return the agent in a file; pass ``env`` to continue learning, nothing to predict.

        A file that is truncated, changed or holds pickled objects is refused by its name; nothing in it is executed.
        ``algorithm`` is needed only for one with parameters that no file can hold, and must be the same.
        """
        result = load(path, algorithm)
        if result.environment is None:
            raise CheckpointError(str(path), got="a run in the simulator", expected="a file that an Agent saved")
        made = cls(result.agent, seed=result.seed, **about)
        made.result = result
        if env is not None:
            made.set_env(env)
        return made

    def __repr__(self) -> str:
        return f"Agent({type(self.algorithm).__name__}, {self.result!r})"
