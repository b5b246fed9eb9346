"""``Agent``: an algorithm and what it has learned, driven step by step or in an environment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from occamrl.envs.wrapper import Discretiser, FiniteEnvironment, require_finite
from occamrl.errors import (
    CheckpointError,
    EnvironmentFault,
    Interrupted,
    NotAvailable,
    OccamRLError,
    ParameterError,
    require_choice,
    require_integer,
    require_kind,
)
from occamrl.protocols import Controller, Ints, Known, Learner, Logged, Plan, Selector, System
from occamrl.running import continuous
from occamrl.running.alarm import Alarm
from occamrl.running.continuous import (
    ContinuousEnvironment,
    ContinuousInfo,
    ControllerDriver,
    is_controller,
    system_of,
)
from occamrl.running.drive import (
    THE_CHANGE,
    DrivenSource,
    DrivenSystem,
    LearnerDriver,
)
from occamrl.running.identity import changes, identity
from occamrl.running.learn import EnvironmentSource, learn
from occamrl.running.result import Result, known_by_ladder
from occamrl.running.run import Run


class Agent:
    """An algorithm together with what it has learned.

    >>> import occamrl as orl
    >>> def shop(stock, order, *, rate):
    ...     filled = min(stock + order, 4)
    ...     yield 1 - rate, filled, -0.1 * stock, False
    ...     yield rate, max(filled - 1, 0), 1.0 * (filled > 0) - 0.1 * stock, False
    >>> bounds = {"rate": (0.1, 0.6)}
    >>> model = orl.Model(shop, start=2, actions=[0, 1], horizon=10, parameters=bounds)
    >>> agent = orl.Agent(orl.Occam(ladder=model.ladder({"steady": ["rate"]})))
    >>> action = agent.act(2)
    >>> agent.observe(2, 1, reward=0.8, next_state=2)  # what was done, whatever it said

    In a Gymnasium environment it has the verbs of Stable-Baselines3: learn, predict, save, load.

    Parameters
    ----------
    algorithm : Learner or Controller
        A learner acts in finite states by name; a controller such as OccamControl in points of a
        continuous system.
    env : gymnasium.Env, VectorEnv or FiniteEnvironment, optional
        Where to learn by itself; also to be given to :meth:`learn`. ``horizon``, ``reward_range``
        and ``discretiser`` of :class:`~occamrl.envs.wrapper.FiniteEnvironment` may follow.
    known : Known or System, optional
        What is known of the system (``mdp.known``); by default that of the algorithm's models, or
        of the environment.
    seed : int
    alarm : float, optional
        Watch for changes, of Occam: a rate of false alarms. Its price: a false alarm every 1/alarm
        steps on average at most, as far as the model in use is right; some arithmetic a step, a fit
        of each class every 20 steps, and the last 20,000 steps in memory and in the file. 1e-3 sees
        a change a little later than 1e-2 does.
    """

    def __init__(
        self,
        algorithm: Learner | Controller,
        env: Any = None,
        *,
        known: Known | System | None = None,
        seed: int = 0,
        alarm: float | None = None,
        **about: Any,
    ) -> None:
        self.algorithm: Any = algorithm  # the user's, as it was handed in
        self.seed = seed
        self._known = known_by_ladder(algorithm) if known is None else known
        if self._known is not None:
            require_kind("known", self._known, (Known, System))
        self._about = about
        self._env: Any = None
        self._driver: LearnerDriver | ControllerDriver | None = None  # when first needed
        if env is not None:
            self.set_env(env)
        if alarm is not None:
            self._of_learner("alarm").watch(alarm)

    @property
    def _driving(self) -> LearnerDriver | ControllerDriver:
        """What drives the algorithm, from what it has learned."""
        if self._driver is None:
            self._driver = self._driver_of(self._nothing_learned())
        return self._driver

    def _driver_of(self, result: Result) -> LearnerDriver | ControllerDriver:
        if is_controller(self.algorithm):
            return ControllerDriver(self.algorithm, result)
        return LearnerDriver(self.algorithm, result)

    def _nothing_learned(self) -> Result:
        """Return the result before any data."""
        if is_controller(self.algorithm):
            system = system_of(self.algorithm, self._known)
            return continuous.begin(self.algorithm, system, self.seed, "what was observed")
        if isinstance(self._env, FiniteEnvironment):
            return Run(self.algorithm, EnvironmentSource(self._env), self.seed).result
        if isinstance(self._known, Known):
            return Run(self.algorithm, DrivenSource(self._known), self.seed).result
        raise ParameterError(
            "known",
            got="nothing learned and no environment",
            expected="known=mdp.known, a ladder of a model, or an environment: Agent(..., env) or "
            "set_env",
        )

    def _resume(self, result: Result) -> None:
        """Go on from a result."""
        if self._driver is None:
            self._driver = self._driver_of(result)
        else:
            self._driver.resume(result)

    def _of_learner(self, verb: str) -> LearnerDriver:
        """Return what drives a learner; a controller has no such verb."""
        if not isinstance(self._driving, LearnerDriver):
            raise NotAvailable(f"no {verb} of a controller: act and observe drive it")
        return self._driving

    # Driving --------------------------------------------------------------------------------------

    @property
    def known(self) -> Known | System:
        """What is known of the system."""
        return self._driving.known

    @property
    def result(self) -> Result:
        """Everything that was learned so far, which may be nothing.

        Steps of an open episode count when it ends; a controller learns from every step.
        """
        return self._driving.result

    @property
    def answer(self) -> Any:
        """Which model is needed, what to do and how much it earns, by all steps so far."""
        return self._driving.answer

    @property
    def step(self) -> int:
        """The number of steps in the open episode; at 0, the next step begins one."""
        return self._driving.step

    def act(self, state: Any) -> Any:
        """Return what to do in a state, in your names; the agent counts the steps of an episode."""
        return self._driving.act(state)

    def observe(
        self,
        state: Any,
        action: Any,
        reward: Any,
        next_state: Any,
        ended: bool = False,
        *,
        impossible: Literal["error", "count"] = "error",
    ) -> None:
        """Take note of a step: what was done, by whomever, and what followed.

        ``reward`` is in your unit, or None where it is known. An episode ends when it ``ended``,
        after H steps, or at :meth:`begin_episode`. What is refused leaves the agent as it was. A
        transition that all models call impossible is refused, as it would rule out every class;
        "count" takes it as it is.
        """
        driver = self._driving
        if isinstance(driver, LearnerDriver):
            require_choice("impossible", impossible, ("error", "count"))
            driver.observe(state, action, reward, next_state, ended, impossible=impossible)
        else:
            driver.observe(state, action, reward, next_state, ended)

    def undo(self) -> None:
        """Take back the last step that was observed; nothing else may have happened since."""
        self._of_learner("undo").undo()

    def skip(self, next_state: Any = None) -> None:
        """Let a step pass that nobody saw: the episode's clock goes on, nothing is learned.

        ``next_state`` is where it led, if that is known.
        """
        self._of_learner("skip").skip(next_state)

    def begin_episode(self) -> None:
        """Begin an episode; one that is unfinished is truncated, and the steps seen of it count."""
        self._driving.begin_episode()

    def learn_from(self, source: Any) -> Agent:
        """Learn from a log, a run's result or another agent, and return the agent.

        A log (:func:`occamrl.read_log`) is entered flow by flow, with values that were fixed before
        each flow; by a controller, step by step. An unfinished episode is truncated first. A result
        or an agent is of the same algorithm, or of Occam with the same ladder, and comes first.
        """
        if isinstance(source, Agent):
            return self.learn_from(source.result)
        if isinstance(source, Result):
            self._require_same(source)
            self._driving.take_over(source)
        elif isinstance(source, Logged):
            self._driving.read(source)
        else:
            raise ParameterError(
                "source",
                got=type(source).__name__,
                expected="orl.read_log(...), the Result of a run, or an Agent",
            )
        return self

    def _require_same(self, other: Result) -> None:
        """Refuse what another algorithm has learned, and anything after data of one's own."""
        own = self.algorithm
        theirs = other.agent
        # What evidence has learned depends on the ladder alone, not on how one acts.
        same_evidence = (
            isinstance(own, Selector)
            and isinstance(theirs, Selector)
            and type(own) is type(theirs)
            and identity(own.ladder) == identity(theirs.ladder)
        )
        changed = changes(identity(theirs), identity(own))
        if changed and not same_evidence:
            raise ParameterError(
                "source", got=f"another algorithm: {changed}", expected="the same algorithm"
            )
        if self.result.total_episodes or self.step:
            raise ParameterError(
                "source",
                got=f"after {self.result.total_episodes:,} episodes of its own",
                expected="an agent that has learned nothing yet: this first, then logs and steps",
            )

    # Change ---------------------------------------------------------------------------------------

    @property
    def alarm(self) -> Alarm | None:
        """The alarm that was raised and not yet dealt with; None if there is none."""
        if isinstance(self._driving, LearnerDriver):
            return self._driving.alarm
        return None

    def dismiss(self) -> None:
        """Treat an alarm as a false one, and go on."""
        self._of_learner("alarm").dismiss()

    def forget(self, since: str | int = THE_CHANGE) -> Agent:
        """Start anew from the episodes since an alarm's change, or since an episode (from 1).

        At most the last 20,000 steps are there to start from; an open episode goes on. Needs
        ``alarm``. Returns the agent. Each start has its delta: after k of them something is wrong
        somewhere with probability (k + 1) delta at most, if nobody looked at the data to choose
        ``since``. The steps since an alarm's change were chosen for speaking against the model in
        use, so that nothing is guaranteed of an answer that rests on them; it says so.
        """
        self._of_learner("alarm").forget(since)
        return self

    # In an environment ----------------------------------------------------------------------------

    def set_env(self, env: gym.Env[Any, Any] | FiniteEnvironment) -> None:
        """Set the environment; a later one must have the same sizes and rewards."""
        if is_controller(self.algorithm):
            ContinuousEnvironment(env, system_of(self.algorithm, self._known))
            self._env = env
            return
        about = dict(self._about)
        if isinstance(env, FiniteEnvironment):
            self._env = require_finite(env, **about)
            return
        if self._known is not None:
            about["known"] = self._known
        elif self._driver is not None:
            # What was learned elsewhere has to fit.
            result = self._driver.result
            about["known"] = result.known
            about["reward_range"] = tuple(result.environment.rewards)
            if isinstance(result.environment.observation, Discretiser):
                about.setdefault("discretiser", result.environment.observation)
        self._env = require_finite(env, **about)

    def learn(self, episodes: int, env: Any = None, **options: Any) -> Agent:
        """Learn for more episodes and return the agent.

        Two calls of n episodes equal one of 2n, bit for bit. ``options`` are those of
        :func:`occamrl.learn`: callbacks, checkpoint, progress, replay, allow_truncation. An error
        leaves the agent with what it had learned before. No alarm watches these episodes.
        """
        if env is not None:
            self.set_env(env)
        if self._env is None:
            raise OccamRLError("no environment: give one to Agent, set_env or learn")
        if "continue_from" in options or "seed" in options:
            raise ParameterError(
                "learn", got="continue_from or seed", expected="neither: the agent has its own"
            )
        if is_controller(self.algorithm):
            options["known"] = self._known
        if self._driver is None:
            options["seed"] = self.seed
        else:
            self.begin_episode()
            options["continue_from"] = self._in_environment(self.result)
        try:
            result = learn(self.algorithm, self._env, episodes=episodes, **options)
        except (EnvironmentFault, Interrupted) as error:
            if isinstance(error.result, Result):
                self._resume(error.result)
            raise
        self._resume(result)
        return self

    def _in_environment(self, result: Result) -> Result:
        """Return what was told as something to go on from in an environment."""
        if not isinstance(result.environment, DrivenSystem):
            return result
        source = EnvironmentSource(self._env)
        sizes = _sizes(source.known)
        learned = _sizes(result.finite)
        if sizes != learned:
            raise ParameterError(
                "env",
                got=sizes,
                expected=f"states, actions, horizon and known rewards as learned: {learned}",
            )
        return replace(
            result, known=source.known, problem=source.problem, environment=source.environment
        )

    def predict(
        self,
        observation: Any,
        state: int | None = None,
        episode_start: bool = False,
        deterministic: bool = True,
    ) -> tuple[Any, int]:
        """Return (action, state): what the policy now in force would do, without learning.

        ``state`` carries the step, as of a recurrent policy: None (or ``episode_start`` True)
        begins an episode, then pass on what was returned. ``deterministic`` has no effect: of a
        random policy, it is the likeliest action.
        """
        driver = self._of_learner("predict")
        step = 0
        if state is not None and not episode_start:
            step = require_integer("state", state, 0, maximum=driver.known.horizon - 1)
        s = driver.state_number("observation", observation)
        return driver.action_name(int(self.policy()[step, s])), step + 1

    @property
    def plan(self) -> Plan:
        """The plan that is in force."""
        return self._of_learner("plan").plan

    def policy(self) -> Ints:
        """Return the actions [H, S] of the next episode; of one that is told, those in force."""
        driver = self._of_learner("table of a policy")
        if not driver.driven:
            return driver.result.policy()
        policy = driver.plan.part(driver.result.at).policy
        return np.asarray(policy if policy.ndim == 2 else policy.argmax(axis=2))

    # Files ----------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the algorithm and all it has learned to one file, without pickle."""
        self.result.save(path)

    @classmethod
    def load(
        cls,
        path: str | Path,
        algorithm: Learner | Controller | None = None,
        *,
        env: Any = None,
        alarm: float | None = None,
        **about: Any,
    ) -> Agent:
        """Return the agent in a file.

        Pass ``env`` to continue learning there, ``alarm`` to watch from now on. ``algorithm`` must
        be the same, or the file is refused; it is needed where it has parts that no file can hold,
        such as the function of a model.
        """
        result = Result.load(path, algorithm)
        if result.environment is None:
            raise CheckpointError(
                str(path), got="a run in the simulator", expected="a file that an Agent saved"
            )
        agent = cls(result.agent, seed=result.seed, **about)
        driven = isinstance(result.environment, (DrivenSystem, ContinuousInfo))
        if driven and agent._known is not None:
            # Itself, not a copy: things are remembered for it.
            result = replace(result, known=agent._known)
        agent._resume(result)
        if alarm is not None:
            agent._of_learner("alarm").watch(alarm)
        if env is not None:
            agent.set_env(env)
        return agent

    def __repr__(self) -> str:
        learned = None if self._driver is None else self._driver.result
        return f"Agent({type(self.algorithm).__name__}, {learned!r})"


def _sizes(known: Known) -> tuple[int, int, int, bool]:
    return known.states, known.actions, known.horizon, known.rewards_known
