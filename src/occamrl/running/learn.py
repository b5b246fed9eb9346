"""Learning in a Gymnasium environment: real episodes under the plan in force.

One after another; or, in a vector environment, several side by side, which is exact, because a plan
is fixed for its block.

Every reset is given a seed found at the address (seed, episode), so that no environment has to be
stored. A block may be left at any episode boundary; the run finishes it first when it goes on, so
that two calls of n episodes equal one of 2n, to the bit. After termination the rest of the horizon
is spent in a state where nothing is earned. Controllers are played by
:mod:`occamrl.running.continuous`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from occamrl.addresses import generator
from occamrl.arrays import Bools
from occamrl.envs.wrapper import Discretiser, FiniteEnvironment, require_finite
from occamrl.errors import (
    EnvironmentFault,
    ParameterError,
    SpaceError,
    as_path,
    require_integer,
)
from occamrl.protocols import (
    MOST_EPISODES,
    Controller,
    Floats,
    Flow,
    Known,
    Learner,
    Plan,
    System,
)
from occamrl.running.callbacks import Callback as Callback
from occamrl.running.callbacks import Callbacks
from occamrl.running.callbacks import EpisodeReport as EpisodeReport
from occamrl.running.continuous import (
    ContinuousEnvironment,
    ControlRun,
    is_controller,
    system_of,
)
from occamrl.running.flow import drawn
from occamrl.running.identity import identity
from occamrl.running.result import Result, known_by_ladder
from occamrl.running.run import Block, Run, RunLoop, Source, joined, plan_parts

REPLAYED = frozenset(2**j - 1 for j in range(7))  # which of the first episodes are played twice
AT_A_TIME = 1.0  # seconds of playing, after which a run may tell of progress and be saved


def learn(
    agent: Learner | Controller,
    env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any] | FiniteEnvironment,
    *,
    episodes: int,
    seed: int | None = None,
    known: Known | System | None = None,
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
    agent : Learner or Controller
        A controller such as OccamControl learns on a Box as it is, and takes none of ``horizon``,
        ``reward_range`` and ``discretiser``.
    env : gymnasium.Env, VectorEnv or FiniteEnvironment
        With finite spaces, or a ``discretiser`` for its Box. In ``gymnasium.make_vec(...)`` a
        learner's episodes are played side by side; the result is the same.
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
    followers = Callbacks(callbacks)
    path = None if checkpoint is None else as_path("checkpoint", checkpoint)
    target = require_integer("episodes", episodes, 1, maximum=MOST_EPISODES)
    earlier = continue_from
    if path is not None and path.exists():
        if continue_from is not None:
            raise ParameterError(
                "checkpoint",
                got=f"{path}, which exists",
                expected="a new file, if continue_from is given",
            )
        earlier = Result.load(path, agent)
        target -= earlier.total_episodes

    finite_only = {"horizon": horizon, "reward_range": reward_range, "discretiser": discretiser}
    run: RunLoop
    if is_controller(agent):
        for name, value in finite_only.items():
            if value is not None:
                raise ParameterError(
                    name, got=value, expected="nothing: spaces are taken as they are"
                )
        system = system_of(agent, known)
        environment = ContinuousEnvironment(env, system)
        run = ControlRun(agent, environment, system, followers, seed, earlier)
    else:
        # A model of the learner's brings what is known, unless the environment has it.
        if known is None and not isinstance(env, FiniteEnvironment):
            known = known_by_ladder(agent)
        source = EnvironmentSource(
            require_finite(env, known=known, **finite_only),
            allow_truncation=allow_truncation,
            replay=replay,
            callbacks=followers,
        )
        run = Run(agent, source, seed, earlier)
    if target > 0:
        _play(run, target, followers, path, checkpoint_seconds, progress)
    return run.result


def _play(
    run: RunLoop,
    episodes: int,
    callbacks: Callbacks,
    path: Path | None,
    checkpoint_seconds: float,
    progress: bool | None,
) -> None:
    """Play episodes; save what was learned now and then, at the end, and if anything goes wrong."""
    result = run.result
    callbacks.start(
        {
            "agent": result.label,
            "environment": result.environment.name,
            "seed": result.seed,
            "horizon": result.known.horizon,
        }
    )
    saved = time.monotonic()

    def after_block(result: Result) -> bool:
        nonlocal saved
        if path is not None and time.monotonic() >= saved + checkpoint_seconds:
            result.save(path)
            saved = time.monotonic()
        return callbacks.go_on

    try:
        run.play(episodes, progress=progress, after=after_block)
    except EnvironmentFault as error:
        error.result = run.result
        raise
    finally:
        # An agent that failed in mid-update has learned half of a block: that is not saved.
        if path is not None and run.whole:
            run.result.save(path)
        callbacks.end(run.result)


@dataclass
class Episode:
    """What was seen of an episode; a step that is refused leaves no trace."""

    number: int
    states: list[int] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)  # in [0, 1]
    earned: float = 0.0  # in the environment's unit
    steps: int = 0  # until the end
    ended: bool = False
    truncated: bool = False
    uniforms: Floats | None = None  # by which actions are drawn, where the policy is random
    fault: BaseException | None = None  # raised when the episode is accounted for


class EnvironmentSource(Source):
    """An environment as a source of episodes; the arguments are those of :func:`learn`."""

    def __init__(
        self,
        finite: FiniteEnvironment,
        *,
        allow_truncation: bool = False,
        replay: bool = True,
        callbacks: Callbacks | None = None,
    ) -> None:
        self.finite = finite
        self.environment = finite.info
        self.known = finite.known
        self.mdp = finite.mdp
        self.allow_truncation = allow_truncation
        self.replay = replay
        self.callbacks = callbacks or Callbacks(None)
        # A run goes on where these are equal.
        content = finite.info.exact, identity(replace(finite.known, names=None))
        self.problem = hashlib.sha256(repr(content).encode()).hexdigest()
        self._first: int | None = None  # episode of this call

    def play(
        self,
        plan: Plan,
        first: int,
        episodes: int,
        seed: int,
        stop: Callable[[], bool],
        at: int | None = None,
    ) -> Block:
        """Play real episodes until something goes wrong, ``stop`` says so, or a pause is due."""
        parts, part_of_start = plan_parts(plan, self.known)
        judged: dict[int, tuple[Floats, Bools]] = {}
        if self._first is None:
            self._first = first
        flows: list[dict[int, Flow]] = []
        regret: list[float] = []
        returns: list[float] = []
        pessimistic = 0
        fault: BaseException | None = None
        for episode in self._episodes(plan, first, first + episodes, seed, stop):
            fault = episode.fault
            if not episode.states:  # it did not begin
                break
            start = episode.states[0]
            part = int(part_of_start[start])
            if part not in judged:
                judged[part] = self.judge(parts[part])
            lost, below = judged[part]
            flows.append({part: Flow.of_episode(episode.states, episode.actions, episode.rewards)})
            regret.append(float(lost[start]))
            returns.append(episode.earned)
            pessimistic += int(below[start])
            report = EpisodeReport(
                episode=episode.number + 1,
                realised_return=episode.earned,
                regret=None if self.mdp is None else regret[-1],
                steps=episode.steps,
                facts=plan.facts,
            )
            try:
                self.callbacks.episode(report)
            except (Exception, KeyboardInterrupt) as error:  # of a callback
                fault = fault or error
            if fault is not None or not self.callbacks.go_on:
                break
        ones = np.ones(len(flows), np.int64)
        return Block(joined(*flows), ones, np.array(regret), np.array(returns), pessimistic, fault)

    def _episodes(
        self, plan: Plan, first: int, end: int, seed: int, stop: Callable[[], bool]
    ) -> Iterator[Episode]:
        """Yield episodes ``first`` to ``end`` - 1 in order, played side by side in all lanes.

        Fewer where a fault, a pause or ``stop`` comes before. A lane for which no episode is left
        plays on, because all lanes step together, and nobody looks at it.
        """
        pause = time.monotonic() + AT_A_TIME
        begun = first  # episodes before this one have begun
        due = first  # and before this one they were yielded
        open_episodes: dict[int, Episode] = {}  # by lane
        finished: dict[int, Episode] = {}
        while due < end:
            if stop() or (begun > first and time.monotonic() > pause):
                end = min(end, begun)
                if due == end:
                    return
            idle = [lane for lane in range(self.finite.lanes.count) if lane not in open_episodes]
            for lane in idle:
                open_episodes[lane] = Episode(begun)
                begun += 1
            try:
                self._begin(plan, seed, {lane: open_episodes[lane] for lane in idle})
                self._step(plan, open_episodes)
            except (Exception, KeyboardInterrupt) as error:  # of someone else's environment
                # which of several it was cannot be told: it ends the first, and all after it
                earliest = min(open_episodes.values(), key=lambda episode: episode.number)
                earliest.fault = error
            for lane, episode in list(open_episodes.items()):
                if not self._is_over(episode):
                    continue
                del open_episodes[lane]
                if episode.number >= end:
                    continue
                self._close(plan, episode, seed)
                finished[episode.number] = episode
                if episode.fault is not None:
                    end = min(end, episode.number + 1)
            while due < end and due in finished:
                yield finished.pop(due)
                due += 1

    def _begin(self, plan: Plan, seed: int, episodes: dict[int, Episode]) -> None:
        """Begin episodes in their lanes."""
        if not episodes:
            return
        seeds = {lane: _reset_seed(seed, episode.number) for lane, episode in episodes.items()}
        observations = self.finite.lanes.reset(seeds)
        for lane, episode in episodes.items():
            try:
                episode.states.append(self.finite.observation.encode(observations[lane]))
            except SpaceError as error:
                episode.fault = error
                continue
            if plan.part(episode.states[0]).policy.ndim == 3:
                draw = generator(seed, "actions", episode.number)
                episode.uniforms = draw.random(self.known.horizon)

    def _step(self, plan: Plan, episodes: dict[int, Episode]) -> None:
        """Do one step in all lanes, as the plan says."""
        begun = {lane: episode for lane, episode in episodes.items() if episode.fault is None}
        if not begun:
            return
        numbers = {lane: _planned(plan, episode) for lane, episode in begun.items()}
        actions = {lane: self.finite.action.decode(a) for lane, a in numbers.items()}
        for lane in episodes.keys() - begun.keys():
            actions[lane] = next(iter(actions.values()))  # nobody looks at it
        responses = self.finite.lanes.step(actions)
        for lane, episode in begun.items():
            try:
                step = self.finite.read(episode.states[-1], numbers[lane], responses[lane])
            except Exception as error:  # what the environment may not do
                episode.fault = error
                continue
            episode.ended = step.terminated
            episode.truncated = step.truncated and not step.terminated
            episode.earned += step.earned * self.known.discount**episode.steps
            episode.steps += 1
            episode.states.append(step.next_state)
            episode.actions.append(numbers[lane])
            episode.rewards.append(step.reward)

    def _is_over(self, episode: Episode) -> bool:
        """Say whether nothing more can be seen of an episode."""
        ended = episode.ended or episode.truncated or episode.steps == self.known.horizon
        return ended or episode.fault is not None

    def _close(self, plan: Plan, episode: Episode, seed: int) -> None:
        """Fill an episode up to the horizon, and look whether it can be learned from."""
        if episode.fault is None:
            self._rest(plan, episode)
            try:
                self._require_whole(episode)
                if self.replay and (episode.number == self._first or episode.number in REPLAYED):
                    self._play_again(_reset_seed(seed, episode.number), episode)
            except (Exception, KeyboardInterrupt) as error:  # of someone else's environment
                episode.fault = error
        if isinstance(episode.fault, Exception):
            episode.fault = self._with_place(episode.fault, episode)

    def _rest(self, plan: Plan, episode: Episode) -> None:
        """Spend what is left of the horizon after the end in the state where it ended."""
        while episode.ended and len(episode.actions) < self.known.horizon:
            action = _planned(plan, episode)
            episode.rewards.append(self.finite.at_rest(episode.states[-1], action))
            episode.actions.append(action)
            episode.states.append(episode.states[-1])

    def _require_whole(self, episode: Episode) -> None:
        """Refuse an episode that was truncated before the horizon, unless that is allowed."""
        horizon = self.known.horizon
        if episode.steps < horizon and not episode.ended and not self.allow_truncation:
            raise EnvironmentFault(
                self.environment.name,
                index=(episode.number, episode.steps - 1),
                got=f"an episode truncated after {episode.steps} steps",
                expected=f"{horizon} steps or termination; allow_truncation=True learns from such "
                "episodes",
            )

    def _play_again(self, reset_seed: int, episode: Episode) -> None:
        """Refuse an environment in which the same seed and actions lead elsewhere."""
        path = episode.states[: episode.steps + 1]
        again = [self.finite.reset(reset_seed)]
        total = 0.0
        while again == path[: len(again)] and len(again) < len(path):
            index = len(again) - 1
            step = self.finite.step(again[-1], episode.actions[index])
            again.append(step.next_state)
            total += step.earned * self.known.discount**index
        if again != path or total != episode.earned:
            raise EnvironmentFault(
                self.environment.name,
                index=(episode.number,),
                got=f"states {path[:8]} and, again, {again[:8]}; returns {episode.earned:g} and "
                f"{total:g}",
                expected="the same episode from the same reset seed and actions; "
                "replay=False learns all the same",
            )

    def _with_place(self, error: Exception, episode: Episode) -> EnvironmentFault:
        """Return an error as one that names the episode and the step."""
        if isinstance(error, EnvironmentFault) and error.index is not None:
            return error
        index: tuple[int, ...] = (episode.number,)
        if episode.states:
            index = (episode.number, len(episode.actions))
        if isinstance(error, EnvironmentFault):
            fault = type(error)(error.field, index=index, got=error.got, expected=error.expected)
        else:
            got = f"{type(error).__name__}: {error}"
            name = self.environment.name
            fault = EnvironmentFault(name, index=index, got=got, expected="a step without error")
        fault.__cause__ = error
        return fault


def _reset_seed(seed: int, number: int) -> int:
    """Return the seed of an episode's reset, wherever and whenever it is played."""
    return int(generator(seed, "reset", number).integers(2**31))


def _planned(plan: Plan, episode: Episode) -> int:
    """Return what a plan does at the next step of an episode."""
    step = len(episode.actions)
    law = plan.part(episode.states[0]).policy[step, episode.states[-1]]
    if episode.uniforms is None:
        return int(law)
    return drawn(law.cumsum(), episode.uniforms[step])
