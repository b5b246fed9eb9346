"""Learning in a Gymnasium environment: real episodes under the plan in force, one after another.

Every reset is given a seed found at the address (seed, episode), so that no environment has to be stored. A block may
be left at any episode boundary; the run finishes it first when it goes on, so that two calls of n episodes equal one of
2n, to the bit. After termination the rest of the horizon is spent in a state where nothing is earned.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from occamrl.envs.wrapper import Discretiser, FiniteEnvironment, require_finite
from occamrl.errors import (
    EnvironmentFault,
    Interrupted,
    ParameterError,
    as_path,
    require_integer,
    require_kind,
)
from occamrl.protocols import MOST_EPISODES, Floats, Flow, Known, Learner, Plan
from occamrl.running.result import Result
from occamrl.running.run import Block, Run, generator

REPLAYED = frozenset(2**j - 1 for j in range(7))  # which of the first episodes are played twice
AT_A_TIME = 1.0  # seconds of playing, after which a run may tell of its progress and write a checkpoint


class EpisodeReport(NamedTuple):
    """One episode, in the environment's own unit."""

    episode: int  # from 1
    realised_return: float
    regret: float | None  # exact; None where the truth is not known
    steps: int  # until the end
    facts: Mapping[str, Any]  # what was decided for the plan in force


class Callback:
    """Code of the user's that follows an agent while it learns; by default it does nothing."""

    def on_start(self, about: Mapping[str, Any]) -> None:
        """Learning begins; ``about`` names the agent, the environment, the seed and the horizon."""

    def on_episode(self, report: EpisodeReport) -> bool | None:
        """Take note of an episode; return False to stop."""

    def on_end(self, result: Result) -> None:
        """Learning is over, finished or stopped."""


def notify(callbacks: Sequence[Any], event: str, about: Any) -> bool:
    """Tell callbacks of an event (start, episode, end), functions of episodes alone; return whether to go on."""
    methods = [getattr(each, f"on_{event}", each if event == "episode" else None) for each in callbacks]
    answers = [method(about) for method in methods if method is not None]
    return not any(answer is False for answer in answers)


class EnvironmentSource:
    """An environment as a source of episodes; the arguments are those of :func:`learn`."""

    def __init__(
        self, finite: FiniteEnvironment, *, allow_truncation: bool = False, replay: bool = True, callbacks: Any = ()
    ) -> None:
        self.finite, self.environment, self.known = finite, finite.info, finite.known
        self.allow_truncation, self.replay, self.callbacks = allow_truncation, replay, callbacks
        known, table = self.known, self.known.transition_rewards  # a run goes on where these are the same
        facts = known.states, known.actions, known.horizon, known.rewards_known, *finite.rewards, finite.info.exact
        arrays = (known.base_reward, *(() if table is None else table))
        content = repr(facts).encode() + b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
        self.problem = hashlib.sha256(content).hexdigest()
        self.go_on = True  # as far as the callbacks are concerned
        self.fault: BaseException | None = None
        self._policy: Any = None
        self._lost: Floats = np.full(known.states, np.nan)  # regret of an episode under this policy, by its start
        self._first: int | None = None

    def play(self, plan: Plan, first: int, episodes: int, seed: int, stop: Callable[[], bool]) -> Block:
        """Play real episodes until something goes wrong, ``stop`` says so, or it is time for a pause."""
        mdp, pause = self.finite.mdp, time.monotonic() + AT_A_TIME
        self._first = first if self._first is None else self._first
        if mdp is not None and not np.array_equal(self._policy, plan.policy):
            self._policy, values = plan.policy, mdp.evaluate(plan.policy)[0]
            self._lost = np.maximum(mdp.optimal_values[0] - values, 0.0) * self.finite.rewards.scale
        flows: list[Flow] = []
        regret, returns, pessimistic = [], [], 0
        self.fault = None
        while len(flows) < episodes and self.fault is None and self.go_on and not stop():
            if flows and time.monotonic() > pause:
                break
            episode = Episode(self, plan, seed, first + len(flows))
            try:
                episode.play()
            except (Exception, KeyboardInterrupt) as error:  # raised again when these episodes are accounted for
                self.fault = error
            if not episode.states:  # it did not begin
                break
            start = episode.states[0]
            flows.append(Flow.of_episode(episode.states, episode.actions, episode.rewards))
            regret.append(float(self._lost[start]))
            returns.append(episode.earned)
            if mdp is not None and plan.values is not None:
                pessimistic += bool(plan.values[0, start] < mdp.optimal_values[0, start] - 1e-9 * mdp.horizon)
            lost = None if mdp is None else regret[-1]
            report = EpisodeReport(first + len(flows), episode.earned, lost, episode.steps, plan.facts)
            try:
                self.go_on = notify(self.callbacks, "episode", report)
            except (Exception, KeyboardInterrupt) as error:  # of a callback
                self.fault = self.fault or error
        flow = Flow.joined(flows) if flows else replace(Flow.of_episode([0], [], []), episodes=0)
        ones = np.ones(len(flows), np.int64)
        return Block(flow, ones, np.array(regret), np.array(returns), pessimistic, self.fault)


class Episode:
    """One episode: what was seen of it so far. A step that is refused leaves no trace."""

    def __init__(self, source: EnvironmentSource, plan: Plan, seed: int, number: int) -> None:
        self.source, self.plan, self.seed, self.number = source, plan, seed, number
        self.states: list[int] = []
        self.actions: list[int] = []
        self.rewards: list[float] = []  # in [0, 1]
        self.earned, self.steps = 0.0, 0  # in the environment's unit, and until the end

    def play(self) -> None:
        """Reset, follow the plan to the horizon, and now and then check that the seed is followed."""
        source, finite, horizon = self.source, self.source.finite, self.source.known.horizon
        random = self._at("actions").random(horizon) if self.plan.policy.ndim == 3 else None
        ended = truncated = False
        with self._their_code(with_step=False):
            self.states.append(finite.reset(int(self._at("reset").integers(2**31))))
        with self._their_code():
            while len(self.actions) < horizon and not truncated:
                h, s = len(self.actions), self.states[-1]
                if random is None:
                    a = int(self.plan.policy[h, s])
                else:
                    law = self.plan.policy[h, s].cumsum()
                    a = int(np.searchsorted(law, random[h] * law[-1], side="right"))
                if ended:
                    after, reward = s, finite.at_rest(s, a)
                else:
                    after, reward, earned, ended, truncated = finite.step(s, a)
                    truncated = truncated and not ended
                    self.earned, self.steps = self.earned + earned, h + 1
                self.states.append(after)
                self.actions.append(a)
                self.rewards.append(reward)
        if self.steps < horizon and not ended and not source.allow_truncation:
            got, expected = f"an episode truncated after {self.steps} steps", f"{horizon} steps or termination"
            expected += "; allow_truncation=True learns from such episodes"
            raise EnvironmentFault(
                self.source.environment.name, index=(self.number, self.steps - 1), got=got, expected=expected
            )
        if source.replay and (self.number == source._first or self.number in REPLAYED):
            self._play_again()

    def _play_again(self) -> None:
        """Play the same seed and actions once more; refuse an environment that differs."""
        path, finite, total = self.states[: self.steps + 1], self.source.finite, 0.0
        with self._their_code(with_step=False):
            again = [finite.reset(int(self._at("reset").integers(2**31)))]
            while again == path[: len(again)] and len(again) < len(path):
                step = finite.step(again[-1], self.actions[len(again) - 1])
                again.append(step.next_state)
                total += step.earned
        if again != path or total != self.earned:
            got = f"states {path[:8]} and, again, {again[:8]}; returns {self.earned:g} and {total:g}"
            expected = "the same episode from the same reset seed and actions; replay=False learns all the same"
            raise EnvironmentFault(self.source.environment.name, index=(self.number,), got=got, expected=expected)

    def _at(self, purpose: str) -> np.random.Generator:
        return generator(self.seed, purpose, self.number)

    @contextmanager
    def _their_code(self, with_step: bool = True) -> Iterator[None]:
        """Run code of someone else's environment; an error is told with the episode and the step."""
        try:
            yield
        except Exception as error:  # which may be anything
            index = (self.number, len(self.actions)) if with_step else (self.number,)
            if isinstance(error, EnvironmentFault):
                raise type(error)(error.field, got=error.got, expected=error.expected, index=index) from error
            got = f"{type(error).__name__}: {error}"
            raise EnvironmentFault(
                self.source.environment.name, index=index, got=got, expected="a step without error"
            ) from error


def learn(
    agent: Learner,
    env: gym.Env[Any, Any] | FiniteEnvironment,
    *,
    episodes: int,
    seed: int | None = None,
    known: Known | None = None,
    horizon: int | None = None,
    reward_range: Sequence[float] | None = None,
    discretiser: Discretiser | None = None,
    allow_truncation: bool = False,
    replay: bool = True,
    callbacks: Any = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    progress: bool | None = None,
    continue_from: Result | None = None,
) -> Result:
    """Let an agent learn in a Gymnasium environment.

    >>> import gymnasium as gym
    >>> import occamrl as orl
    >>> spec = orl.read_ladder("frozen-lake-4x4")
    >>> agent = orl.ARLGen(ladder=spec.ladder)
    >>> result = orl.learn(agent, gym.make("FrozenLake-v1"), episodes=20, known=spec.known)
    >>> answer = str(result.verdict)

    Parameters
    ----------
    agent : Learner
    env : gymnasium.Env or FiniteEnvironment
        With finite spaces, or a ``discretiser`` for its Box.
    episodes : int
        How many to play, beside those of ``continue_from``; with a ``checkpoint`` that exists, how many in all.
    seed : int, optional
        Every reset is given a seed found at the address (seed, episode); 0 by default.
    known, horizon, reward_range, discretiser
        See :class:`~occamrl.envs.wrapper.FiniteEnvironment`.
    allow_truncation : bool
        Learn from episodes that are truncated before the horizon (the steps seen) instead of raising EnvironmentFault.
    replay : bool
        Play a few episodes twice, without learning, to see whether the environment follows its seed.
    callbacks : Callback, function of an EpisodeReport, or several
    checkpoint : path, optional
        Save there every ``checkpoint_seconds``, at the end, and when something goes wrong; go on from there.
    progress : bool, optional
        Show progress; by default when it takes longer than a second.
    continue_from : Result, optional
        Go on from an earlier result; both together equal one uninterrupted call, to the bit.

    An EnvironmentFault, and Interrupted for Ctrl-C, have the ``result`` so far.
    """
    finite = require_finite(env, known=known, horizon=horizon, reward_range=reward_range, discretiser=discretiser)
    if continue_from is not None:
        require_kind("continue_from", continue_from, Result)
    earlier, path = continue_from, None if checkpoint is None else as_path("checkpoint", checkpoint)
    target = require_integer("episodes", episodes, 1, most=MOST_EPISODES)
    if path is not None and path.exists():
        if continue_from is not None:
            raise ParameterError("checkpoint", got=f"{path}, which exists", expected="no continue_from beside it")
        earlier = Result.load(path, agent)
        target -= earlier.total_episodes
    listeners = [] if callbacks is None else list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    for each in listeners:
        if not callable(getattr(each, "on_episode", each)):
            raise ParameterError("callbacks", got=repr(each), expected="a Callback or a function")
    source = EnvironmentSource(finite, allow_truncation=allow_truncation, replay=replay, callbacks=listeners)
    under_way = Run(agent, source, seed, earlier)
    if target <= 0:
        return under_way.result
    about = {"agent": under_way.result.label, "environment": finite.info.name, "seed": under_way.result.seed}
    notify(listeners, "start", {**about, "horizon": finite.known.horizon})
    saved = time.monotonic()

    def after(result: Result) -> bool:
        nonlocal saved
        if path is not None and time.monotonic() >= saved + checkpoint_seconds:
            result.save(path)
            saved = time.monotonic()
        return source.go_on

    consistent = True
    try:
        under_way.play(target, progress=progress, after=after)
    except BaseException as error:
        consistent = error is source.fault or isinstance(error, Interrupted)  # else the agent failed, in mid-update
        if isinstance(error, EnvironmentFault):
            error.result = under_way.result
        raise
    finally:
        if path is not None and consistent:
            under_way.result.save(path)
        notify(listeners, "end", under_way.result)
    return under_way.result
