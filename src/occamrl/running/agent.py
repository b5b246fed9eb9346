"""``Agent``: an algorithm and what it has learned, in an environment or from what it is told step by step."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from occamrl.envs.wrapper import Discretiser, FiniteEnvironment, require_finite
from occamrl.errors import (
    CheckpointError,
    EnvironmentFault,
    Interrupted,
    OccamRLError,
    ParameterError,
    require_integer,
)
from occamrl.protocols import Flow, Ints, Known, Learner
from occamrl.running.alarm import Alarm
from occamrl.running.drive import Driver, Told
from occamrl.running.identity import changes, identity
from occamrl.running.learn import EnvironmentSource, learn
from occamrl.running.result import Blocks, Result
from occamrl.running.run import record_block


class Agent(Driver):
    """An algorithm together with what it has learned.

    >>> import occamrl as orl
    >>> def shop(stock, order, *, rate):
    ...     filled = min(stock + order, 4)
    ...     yield 1 - rate, filled, -0.1 * stock, False
    ...     yield rate, max(filled - 1, 0), 1.0 * (filled > 0) - 0.1 * stock, False
    >>> model = orl.Model(shop, start=2, actions=[0, 1], horizon=10, parameters={"rate": (0.1, 0.6)})
    >>> agent = orl.Agent(orl.Occam(ladder=model.ladder({"steady": ["rate"]})))
    >>> action = agent.act(2)
    >>> agent.observe(2, 1, reward=0.8, next_state=2)  # what was done, which need not be what it said

    In a Gymnasium environment it has the verbs of Stable-Baselines3: learn, predict, save, load.

    Parameters
    ----------
    algorithm : Learner
    env : gymnasium.Env or FiniteEnvironment, optional
        Where to learn by itself; also to be given to :meth:`learn`. ``horizon``, ``reward_range``
        and ``discretiser`` of :class:`~occamrl.envs.wrapper.FiniteEnvironment` may follow.
    known : Known, optional
        What is known of the system (``mdp.known``); by default that of the algorithm's model, or of
        the environment.
    seed : int
    alarm : float, optional
        Watch for changes, of Occam: a rate of false alarms. Its price: a false alarm every 1/alarm
        steps on average at most, as far as the model in use is right; some arithmetic a step, a fit
        of each class every 20 steps, and the last 20,000 steps in memory and in the file. 1e-3 sees
        a change a little later than 1e-2 does.
    """

    def __init__(
        self,
        algorithm: Learner,
        env: Any = None,
        *,
        known: Known | None = None,
        seed: int = 0,
        alarm: float | None = None,
        **about: Any,
    ) -> None:
        super().__init__(algorithm, known, seed, alarm)
        self._about = about if self._known is None else {"known": self._known, **about}
        if env is not None:
            self.set_env(env)
        if alarm is not None:
            self._drive.watch = self._watch.begin()

    # Other sources --------------------------------------------------------------------------------

    def learn_from(self, source: Any) -> Agent:
        """Learn from a log (:func:`occamrl.read_log`), a run's result or another agent, and return the agent.

        A log is entered flow by flow, with values that were fixed before each flow; an unfinished
        episode is truncated first. A result or an agent is of the same algorithm, or of Occam with
        the same ladder, and comes first.
        """
        if isinstance(source, (Agent, Result)):
            return self._take_over(source.result if isinstance(source, Agent) else source)
        if not hasattr(source, "flows"):
            expected = "orl.read_log(...), the Result of a run, or an Agent"
            raise ParameterError("source", got=type(source).__name__, expected=expected)
        if hasattr(self.algorithm, "rule"):
            expected = "an algorithm that learns from steps, such as Occam: a rule judges returns of its own choices"
            raise ParameterError(
                "source", got=f"a log for {type(self.algorithm).__name__}", expected=expected
            )
        before = self.result
        try:
            self.begin_episode()
            self._end_block()
            for flow in source.flows(self.known, self._outcomes):
                self._feed(flow)
        except Exception:  # of a row that cannot be: as if nothing had been read
            self._go_on(before)
            raise
        return self

    def _feed(self, flow: Flow) -> None:
        """Learn from a flow that somebody else played."""
        begun, plan = self._begun, self.plan
        if not begun.known.rewards_known and np.isnan(flow.reward).any():
            raise ParameterError(
                "log", got="steps without a reward", expected="rewards: this agent estimates them"
            )
        facts = dict(plan.facts) | ({"playing": "somebody else"} if "playing" in plan.facts else {})
        diagnostics = {name: each for name, each in plan.diagnostics.items() if name != "source"}
        told = replace(plan, facts=facts, diagnostics=diagnostics)
        self.algorithm.learn(begun.known, begun.state, told, flow)
        record_block(begun.blocks, told, self._block(flow), new=True)
        self._plan = self._shown = None

    def _take_over(self, other: Result) -> Agent:
        """Begin with what another has learned."""
        begun, own = self._begun, self.algorithm
        ladders = [identity(getattr(each, "ladder", None)) for each in (other.agent, own)]
        same = (
            type(other.agent) is type(own) and hasattr(own, "evidence") and ladders[0] == ladders[1]
        )
        if not same and (changed := changes(identity(other.agent), identity(own))):
            raise ParameterError(
                "source", got=f"another algorithm: {changed}", expected="the same one"
            )
        sizes = [
            (each.states, each.actions, each.horizon, each.names)
            for each in (other.known, begun.known)
        ]
        if sizes[0] != sizes[1]:
            got, expected = f"a problem of sizes {sizes[0][:3]}", f"{sizes[1][:3]}, as here"
            raise ParameterError("source", got=got, expected=expected)
        if begun.total_episodes or self.step:
            expected = "an agent that has learned nothing yet: first this, then logs and steps"
            raise ParameterError(
                "source",
                got=f"after {begun.total_episodes:,} episodes of its own",
                expected=expected,
            )
        state, blocks = copy.deepcopy((other.state, other.blocks))
        self._learned, self._plan, self._shown = (
            replace(begun, state=state, blocks=blocks),
            None,
            None,
        )
        return self

    # Change ---------------------------------------------------------------------------------------

    @property
    def alarm(self) -> Alarm | None:
        """The alarm that was raised and not dealt with; None without."""
        return None if self._drive.alarm is None else self._watch.alarm(self._drive.watch)

    def dismiss(self) -> None:
        """Take an alarm for a false one, and go on."""
        self._drive.watch["alarm"], self._shown = [], None

    def forget(self, since: str | int = "the change") -> Agent:
        """Start anew from the episodes since an alarm's change, or since an episode (from 1), and return the agent.

        At most the last 20,000 steps are there to start from; an open episode goes on. Needs
        ``alarm``.
        """
        drive, alarm = self._drive, self.alarm
        if drive.alarm is None:
            raise ParameterError(
                "alarm", got=None, expected="Agent(..., alarm=1e-3): steps are kept for that"
            )
        if since == "the change":
            if alarm is None:
                raise ParameterError(
                    "since", got=repr(since), expected="the number of an episode: there is no alarm"
                )
            since = alarm.since
        first = require_integer("since", since, 1, maximum=self._begun.total_episodes + 1)
        rows = drive.recent[drive.recent[:, 0] >= first]
        if alarm is not None and first == alarm.since:
            rows = rows[(rows[:, 0] > first) | (rows[:, 1] + 1 >= alarm.step)]
        begun = self._begun
        state = self.algorithm.begin(begun.known)
        self._learned = replace(begun, state=state, blocks=Blocks(), cut=None)
        drive.seen, self._plan, self._shown = {}, None, None
        for episode in np.unique(rows[:, 0]):
            step, s, a, s2 = rows[rows[:, 0] == episode, 1:5].astype(np.int64).T
            self._feed(
                Flow(step, s, a, s2, rows[rows[:, 0] == episode, 5], np.ones(s.size, np.int64), 1)
            )
        kept = np.searchsorted(np.unique(rows[:, 0]), rows[:, 0]) + 1
        drive.recent, drive.watch = np.column_stack([kept, rows[:, 1:]]), self._watch.begin()
        return self

    # In an environment ----------------------------------------------------------------------------

    def set_env(self, env: gym.Env[Any, Any] | FiniteEnvironment) -> None:
        """Set the environment; a later one must have the same sizes and rewards."""
        about = dict(self._about)
        if isinstance(env, FiniteEnvironment):
            about.pop("known", None)
        elif self._learned is not None and "known" not in about:
            info = self._learned.environment
            about.update(known=self._learned.known, reward_range=tuple(info.rewards))
            if isinstance(info.observation, Discretiser):
                about.setdefault("discretiser", info.observation)
        self._environment = require_finite(env, **about)

    def learn(self, episodes: int, env: Any = None, **options: Any) -> Agent:
        """Learn for more episodes and return the agent; two calls of n episodes equal one of 2n, bit for bit.

        ``options`` are those of :func:`occamrl.learn`: callbacks, checkpoint, progress, replay,
        allow_truncation. An error leaves the agent with what it had learned before. No alarm
        watches these episodes.
        """
        if env is not None:
            self.set_env(env)
        if self._environment is None:
            raise OccamRLError("no environment: give one to Agent, set_env or learn")
        if "continue_from" in options or "seed" in options:
            raise ParameterError(
                "learn", got="continue_from or seed", expected="neither: the agent has its own"
            )
        start: dict[str, Any] = {"seed": self.seed}
        if self._learned is not None:
            self.begin_episode()
            start = {"continue_from": self._in_environment(self.result, self._environment)}
        try:
            learned = learn(
                self.algorithm, self._environment, episodes=episodes, **start, **options
            )
        except (EnvironmentFault, Interrupted) as error:
            if isinstance(error.result, Result):
                self._go_on(error.result)
            raise
        self._go_on(learned)
        return self

    def _in_environment(self, result: Result, environment: FiniteEnvironment) -> Result:
        """Return what was told as something to go on from in an environment."""
        if not isinstance(result.environment, Told):
            return result
        sizes = [
            (k.states, k.actions, k.horizon, k.rewards_known)
            for k in (environment.known, result.known)
        ]
        if sizes[0] != sizes[1]:
            expected = f"states, actions, horizon and known rewards as learned: {sizes[1]}"
            raise ParameterError("env", got=sizes[0], expected=expected)
        source = EnvironmentSource(environment)
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
        h = (
            0
            if state is None or episode_start
            else require_integer("state", state, 0, maximum=self.known.horizon - 1)
        )
        return self._action_name(
            int(self.policy()[h, self._state_number("observation", observation)])
        ), h + 1

    def policy(self) -> Ints:
        """Return the actions [H, S] of the next episode; of one that is told, those of the plan in force."""
        if not isinstance(self._begun.environment, Told):
            return self.result.policy()
        policy = self.plan.part(self._begun.at).policy
        return np.asarray(policy if policy.ndim == 2 else policy.argmax(axis=2))

    # Files ----------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the algorithm and all it has learned to one file, without pickle."""
        self.result.save(path)

    @classmethod
    def load(
        cls,
        path: str | Path,
        algorithm: Learner | None = None,
        *,
        env: Any = None,
        alarm: float | None = None,
        **about: Any,
    ) -> Agent:
        """Return the agent in a file; pass ``env`` to continue learning there, ``alarm`` to watch from now on.

        ``algorithm`` must be the same, or the file is refused; it is needed where it has parts that
        no file can hold, such as the function of a model.
        """
        result = Result.load(path, algorithm)
        if result.environment is None:
            raise CheckpointError(
                str(path), got="a run in the simulator", expected="a file that an Agent saved"
            )
        made = cls(result.agent, seed=result.seed, **about)
        if isinstance(result.environment, Told) and made._known is not None:
            result = replace(result, known=made._known)  # itself, for which things are remembered
        made._go_on(result)
        if alarm is not None:
            made._drive.alarm = alarm
            made._drive.watch = made._watch.begin()
        if env is not None:
            made.set_env(env)
        return made

    def __repr__(self) -> str:
        return f"Agent({type(self.algorithm).__name__}, {self.result if self._learned else None!r})"
