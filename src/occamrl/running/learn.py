"""Learning in a Gymnasium environment: real episodes under the plan in force, one after another.

Every reset is given a seed found at the address (seed, episode), so that no environment has to be
stored. A block may be left at any episode boundary; the run finishes it first when it goes on, so
that two calls of n episodes equal one of 2n, to the bit. After termination the rest of the horizon
is spent in a state where nothing is earned.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, overload

import gymnasium as gym
import numpy as np

from occamrl.addresses import generator
from occamrl.envs.wrapper import Discretiser, FiniteEnvironment, require_finite
from occamrl.errors import (
    EnvironmentFault,
    Interrupted,
    ParameterError,
    as_path,
    require_integer,
)
from occamrl.protocols import MOST_EPISODES, Flow, Known, Learner, Plan
from occamrl.running.flow import drawn
from occamrl.running.identity import identity
from occamrl.running.result import Result
from occamrl.running.run import Block, Run, Source, joined, plan_parts

REPLAYED = frozenset(2**j - 1 for j in range(7))  # which of the first episodes are played twice
AT_A_TIME = (
    1.0  # seconds of playing, after which a run may tell of its progress and write a checkpoint
)


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
    methods = [
        getattr(each, f"on_{event}", each if event == "episode" else None) for each in callbacks
    ]
    answers = [method(about) for method in methods if method is not None]
    return not any(answer is False for answer in answers)


@dataclass
class Episode:
    """What was seen of an episode; a step that is refused leaves no trace."""

    number: int
    states: list[int] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)  # in [0, 1]
    earned: float = 0.0  # in the environment's unit
    steps: int = 0  # until the end


class EnvironmentSource(Source):
    """An environment as a source of episodes; the arguments are those of :func:`learn`."""

    def __init__(
        self,
        finite: FiniteEnvironment,
        *,
        allow_truncation: bool = False,
        replay: bool = True,
        callbacks: Any = (),
    ) -> None:
        self.finite, self.environment, self.known, self.mdp = (
            finite,
            finite.info,
            finite.known,
            finite.mdp,
        )
        self.allow_truncation, self.replay, self.callbacks = allow_truncation, replay, callbacks
        same = (
            finite.info.exact,
            identity(replace(finite.known, names=None)),
        )  # a run goes on where these are equal
        self.problem = hashlib.sha256(repr(same).encode()).hexdigest()
        self.go_on = True  # as far as the callbacks are concerned
        self.fault: BaseException | None = None
        self._first: int | None = None

    def play(
        self,
        plan: Plan,
        first: int,
        episodes: int,
        seed: int,
        stop: Callable[[], bool],
        at: int | None = None,
    ) -> Block:
        """Play real episodes until something goes wrong, ``stop`` says so, or it is time for a pause."""
        pause, (parts, which) = time.monotonic() + AT_A_TIME, plan_parts(plan, self.known)
        judged: dict[int, Any] = {}
        self._first = first if self._first is None else self._first
        flows: list[dict[int, Flow]] = []
        regret, returns, pessimistic = [], [], 0
        self.fault = None
        while len(flows) < episodes and self.fault is None and self.go_on and not stop():
            if flows and time.monotonic() > pause:
                break
            episode = Episode(first + len(flows))
            try:
                self._follow(plan, seed, episode)
            except (
                KeyboardInterrupt
            ) as error:  # faults are raised again when these episodes are accounted for
                self.fault = error
            except Exception as error:  # of someone else's environment, which may raise anything
                self.fault = self._told(error, episode)
            if not episode.states:  # it did not begin
                break
            start = episode.states[0]
            i = int(which[start])
            flows.append({i: Flow.of_episode(episode.states, episode.actions, episode.rewards)})
            if i not in judged:
                judged[i] = self.judge(parts[i])
            regret.append(float(judged[i][0][start]))
            returns.append(episode.earned)
            pessimistic += int(judged[i][1][start])
            known_regret = None if self.mdp is None else regret[-1]
            report = EpisodeReport(
                episode.number + 1, episode.earned, known_regret, episode.steps, plan.facts
            )
            try:
                self.go_on = notify(self.callbacks, "episode", report)
            except (Exception, KeyboardInterrupt) as error:  # of a callback
                self.fault = self.fault or error
        ones = np.ones(len(flows), np.int64)
        return Block(
            joined(*flows), ones, np.array(regret), np.array(returns), pessimistic, self.fault
        )

    def _follow(self, plan: Plan, seed: int, episode: Episode) -> None:
        """Reset, follow the plan to the horizon, and now and then check that the seed is followed."""
        finite, horizon, number = self.finite, self.known.horizon, episode.number
        first = int(generator(seed, "reset", number).integers(2**31))
        ended = truncated = False
        episode.states.append(finite.reset(first))
        policy = plan.part(episode.states[0]).policy
        random = generator(seed, "actions", number).random(horizon) if policy.ndim == 3 else None
        while len(episode.actions) < horizon and not truncated:
            h, s = len(episode.actions), episode.states[-1]
            a = int(policy[h, s]) if random is None else drawn(policy[h, s].cumsum(), random[h])
            if ended:
                after, reward = s, finite.at_rest(s, a)
            else:
                after, reward, earned, ended, truncated = finite.step(s, a)
                truncated = truncated and not ended
                episode.earned, episode.steps = (
                    episode.earned + earned * self.known.discount**h,
                    h + 1,
                )
            episode.states.append(after)
            episode.actions.append(a)
            episode.rewards.append(reward)
        name, steps = self.environment.name, episode.steps
        if steps < horizon and not ended and not self.allow_truncation:
            expected = (
                f"{horizon} steps or termination; allow_truncation=True learns from such episodes"
            )
            got = f"an episode truncated after {steps} steps"
            raise EnvironmentFault(name, index=(number, steps - 1), got=got, expected=expected)
        if self.replay and (
            number == self._first or number in REPLAYED
        ):  # the same seed and actions once more
            path, again, total = episode.states[: steps + 1], [finite.reset(first)], 0.0
            while again == path[: len(again)] and len(again) < len(path):
                step = finite.step(again[-1], episode.actions[len(again) - 1])
                again.append(step.next_state)
                total += step.earned * self.known.discount ** (len(again) - 2)
            if again != path or total != episode.earned:
                got = f"states {path[:8]} and, again, {again[:8]}; returns {episode.earned:g} and {total:g}"
                expected = "the same episode from the same reset seed and actions; replay=False learns all the same"
                raise EnvironmentFault(name, index=(number,), got=got, expected=expected)

    def _told(self, error: Exception, episode: Episode) -> EnvironmentFault:
        """Return an error as one that names the episode and the step."""
        index = (episode.number, len(episode.actions)) if episode.states else (episode.number,)
        got = (
            error.got if isinstance(error, EnvironmentFault) else f"{type(error).__name__}: {error}"
        )
        if not isinstance(error, EnvironmentFault):
            told = EnvironmentFault(
                self.environment.name, index=index, got=got, expected="a step without error"
            )
        elif error.index is None:
            told = type(error)(error.field, index=index, got=got, expected=error.expected)
        else:
            return error
        told.__cause__ = error
        return told


def known_by_model(algorithm: Any) -> Known | None:
    """Return what is known of the system that the ladder of an algorithm models; None without a model."""
    found: Known | None = getattr(
        getattr(getattr(algorithm, "ladder", None), "model", None), "known", None
    )
    return found


R_co = TypeVar("R_co", covariant=True)


class LearnsItself(Protocol[R_co]):
    """An agent that has its own way to learn in an environment, as :class:`occamrl.OccamControl`."""

    def learn_in(self, env: Any, **options: Any) -> R_co:
        """Return what came of it."""


@overload
def learn(agent: Learner, env: gym.Env[Any, Any] | FiniteEnvironment, **options: Any) -> Result: ...
@overload
def learn(agent: LearnsItself[R_co], env: gym.Env[Any, Any], **options: Any) -> R_co: ...
def learn(  # type: ignore[misc]  # the options of both are spelled out here
    agent: Any,
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
    continue_from: Any = None,
) -> Any:
    """Let an agent learn in a Gymnasium environment.

    >>> import gymnasium as gym
    >>> import occamrl as orl
    >>> spec = orl.read_ladder("frozen-lake-4x4")
    >>> agent = orl.ARLGen(ladder=spec.ladder)
    >>> result = orl.learn(agent, gym.make("FrozenLake-v1"), episodes=20, known=spec.known)
    >>> answer = str(result.verdict)

    Parameters
    ----------
    agent : Learner or OccamControl
        The latter learns on a Box as it is, takes none of ``known`` to ``discretiser``, and the
        result is the agent that has learned.
    env : gymnasium.Env or FiniteEnvironment
        With finite spaces, or a ``discretiser`` for its Box.
    episodes : int
        How many to play, beside those of ``continue_from``; with a ``checkpoint`` that exists, how
        many in all.
    seed : int, optional
        Every reset is given a seed found at the address (seed, episode); 0 by default.
    known, horizon, reward_range, discretiser
        See :class:`~occamrl.envs.wrapper.FiniteEnvironment`.
    allow_truncation : bool
        Learn from episodes that are truncated before the horizon (the steps seen) instead of
        raising EnvironmentFault.
    replay : bool
        Play a few episodes twice, without learning, to see whether the environment follows its
        seed.
    callbacks : Callback, function of an EpisodeReport, or several
    checkpoint : path, optional
        Save there every ``checkpoint_seconds``, at the end, and when something goes wrong; go on
        from there.
    progress : bool, optional
        Show progress; by default when it takes longer than a second.
    continue_from : Result, optional
        Go on from an earlier result; both together equal one uninterrupted call, to the bit.

    An EnvironmentFault, and Interrupted for Ctrl-C, have the ``result`` so far.
    """
    if not isinstance(agent, Learner) and hasattr(
        agent, "learn_in"
    ):  # with simulators, on spaces as they are
        finite_only = known, horizon, reward_range, discretiser
        names = "known", "horizon", "reward_range", "discretiser"
        given = {
            name: each for name, each in zip(names, finite_only, strict=True) if each is not None
        }
        files = {
            "checkpoint": checkpoint,
            "checkpoint_seconds": checkpoint_seconds,
            "continue_from": continue_from,
        }
        about = {"seed": seed, "callbacks": callbacks, "progress": progress}
        return agent.learn_in(env, episodes=episodes, **about, **files, **given)
    if known is None and not isinstance(env, FiniteEnvironment):
        known = known_by_model(agent)
    finite = require_finite(
        env, known=known, horizon=horizon, reward_range=reward_range, discretiser=discretiser
    )
    earlier, path = continue_from, None if checkpoint is None else as_path("checkpoint", checkpoint)
    target = require_integer("episodes", episodes, 1, maximum=MOST_EPISODES)
    if path is not None and path.exists():
        if continue_from is not None:
            raise ParameterError(
                "checkpoint", got=f"{path}, which exists", expected="no continue_from beside it"
            )
        earlier = Result.load(path, agent)
        target -= earlier.total_episodes
    listeners = (
        list(callbacks)
        if isinstance(callbacks, Iterable)
        else []
        if callbacks is None
        else [callbacks]
    )
    for each in listeners:
        if not callable(getattr(each, "on_episode", each)):
            raise ParameterError("callbacks", got=repr(each), expected="a Callback or a function")
    source = EnvironmentSource(
        finite, allow_truncation=allow_truncation, replay=replay, callbacks=listeners
    )
    under_way = Run(agent, source, seed, earlier)
    if target <= 0:
        return under_way.result
    about = {
        "agent": under_way.result.label,
        "environment": finite.info.name,
        "seed": under_way.result.seed,
    }
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
        consistent = error is source.fault or isinstance(
            error, Interrupted
        )  # else the agent failed, in mid-update
        if isinstance(error, EnvironmentFault):
            error.result = under_way.result
        raise
    finally:
        if path is not None and consistent:
            under_way.result.save(path)
        notify(listeners, "end", under_way.result)
    return under_way.result
