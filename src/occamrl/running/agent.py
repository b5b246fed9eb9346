"""``Agent``: an algorithm and what it has learned, with the verbs of Stable-Baselines3: learn, predict, save, load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym

from occamrl.envs.wrapper import Discretiser, FiniteEnvironment, require_finite
from occamrl.errors import CheckpointError, EnvironmentFault, Interrupted, OccamRLError, ParameterError, require_integer
from occamrl.protocols import Ints, Learner
from occamrl.running.learn import EnvironmentSource, learn
from occamrl.running.result import Result
from occamrl.running.run import Run


class Agent:
    """An algorithm together with what it has learned in an environment.

    >>> import gymnasium as gym
    >>> import occamrl as orl
    >>> spec = orl.read_ladder("frozen-lake-4x4")
    >>> agent = orl.Agent(orl.ARLGen(ladder=spec.ladder), gym.make("FrozenLake-v1"), known=spec.known)
    >>> action, state = agent.learn(20).predict(0)

    The environment can also be given to :meth:`learn`; ``about`` are ``known``, ``horizon``, ``reward_range`` and
    ``discretiser`` of :class:`~occamrl.envs.wrapper.FiniteEnvironment`.
    """

    def __init__(self, algorithm: Learner, env: Any = None, *, seed: int = 0, **about: Any) -> None:
        self.algorithm, self.seed, self._about = algorithm, seed, about
        self._learned: Result | None = None
        self._environment: FiniteEnvironment | None = None
        if env is not None:
            self.set_env(env)

    @property
    def result(self) -> Result:
        """Everything learned so far, which may be nothing."""
        if self._learned is None:
            if self._environment is None:
                raise OccamRLError("nothing learned and no environment: give one to Agent or set_env")
            self._learned = Run(self.algorithm, EnvironmentSource(self._environment), self.seed).result
        return self._learned

    def set_env(self, env: gym.Env[Any, Any] | FiniteEnvironment) -> None:
        """Set the environment; a later one must have the same sizes and rewards."""
        about = dict(self._about)
        if self._learned is not None and not isinstance(env, FiniteEnvironment) and "known" not in about:
            info = self._learned.environment
            about.update(known=self._learned.known, reward_range=tuple(info.rewards))
            if isinstance(info.observation, Discretiser):
                about.setdefault("discretiser", info.observation)
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
        start = {"seed": self.seed} if self._learned is None else {"continue_from": self._learned}
        try:
            self._learned = learn(self.algorithm, self._environment, episodes=episodes, **start, **options)
        except (EnvironmentFault, Interrupted) as error:
            self._learned = error.result if isinstance(error.result, Result) else self._learned
            raise
        return self

    def predict(
        self, observation: Any, state: int | None = None, episode_start: bool = False, deterministic: bool = True
    ) -> tuple[Any, int]:
        """Return (action, state): what the policy now in force would do, without learning.

        With a finite horizon the best action depends on the step, which ``state`` carries: pass None (or
        ``episode_start`` True) at the beginning of an episode and what was returned after that, as with a recurrent
        policy. ``deterministic`` is accepted for the sake of the convention: of a random policy, the likeliest action
        is returned.
        """
        horizon, info = self.result.known.horizon, self.result.environment
        h = 0 if state is None or episode_start else require_integer("state", state, 0, most=horizon - 1)
        s = info.observation.encode(observation)
        return info.action.decode(int(self.policy()[h, s])), h + 1

    def policy(self) -> Ints:
        """Return the actions [H, S] of the next episode."""
        return self.result.policy()

    def save(self, path: str | Path) -> None:
        """Write the algorithm and all it has learned to one file, without pickle."""
        self.result.save(path)

    @classmethod
    def load(cls, path: str | Path, env: Any = None, *, algorithm: Learner | None = None, **about: Any) -> Agent:
        """Return the agent in a file; pass ``env`` to continue learning, nothing to predict.

        ``algorithm`` is needed only for one with parameters that no file can hold, and must be the same.
        """
        result = Result.load(path, algorithm)
        if result.environment is None:
            raise CheckpointError(str(path), got="a run in the simulator", expected="a file that an Agent saved")
        made = cls(result.agent, seed=result.seed, **about)
        made._learned = result
        if env is not None:
            made.set_env(env)
        return made

    def __repr__(self) -> str:
        return f"Agent({type(self.algorithm).__name__}, {self._learned!r})"
