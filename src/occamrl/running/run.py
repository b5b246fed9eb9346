"""Playing: one driver for ``run``, for ``learn`` and for the cells of an experiment.

The driver takes episodes from a source - the compiled simulator or a Gymnasium environment - in chunks of about a tenth
of a second. Between chunks there is time for progress, Ctrl-C, checkpoints and callbacks, and selectors change the
phase. Chunks change nothing: random numbers belong to episodes, sums run in order.
"""

from __future__ import annotations

import copy
import math
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import gymnasium as gym
import numpy as np
from numba.core import event

from occamrl import seeding
from occamrl._core.compile import GETTING_CODE
from occamrl._core.loop import draw_episode, draw_first_state
from occamrl.envs.spaces import Discretiser
from occamrl.envs.wrapper import FiniteEnvironment, require_finite
from occamrl.errors import (
    EnvironmentFailure,
    EnvironmentFault,
    EpisodeCutShort,
    Interrupted,
    ParameterError,
    SeedIgnored,
    as_path,
    explains_calls,
    require_integer,
    require_number,
    shown,
)
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Agent, Floats, Known, Phase, Problem
from occamrl.running.files import there
from occamrl.running.phases import CompiledPlayer, PhaseWalk, Seen, empty_uniforms
from occamrl.running.result import KEEP_ALL_UNTIL, EnvironmentInfo, Recorder, Result
from occamrl.running.storage import fingerprint, load, save

_EVENTS: Any = event  # Numba has no types
_COMPILING = "numba:compile"

CHUNK_SECONDS = 0.1
LARGEST_CHUNK = 2**16

FIRST_AFTER = 1.0  # seconds: short jobs stay silent
PLAIN_EVERY = 10.0
TERMINAL_EVERY = 0.2
LEAST_SHARE = 20.0  # playing takes at least so many times as long as writing checkpoints
BLOCK = 256  # reset seeds drawn at a time
ROOM = 64  # episodes reserved at a time, where they are played one by one
_REPLAYED = frozenset(2**j - 1 for j in range(7))  # which of the first episodes are played twice
_MOST_DECODED = 4096
COUNTS = ("plans", "pessimistic_episodes", "steps", "cut_short")  # of a result, summed up chunk by chunk


@contextmanager
def ctrl_c(may_raise: Callable[[], bool]) -> Iterator[threading.Event]:
    """Turn Ctrl-C into a flag while a run is in progress (in the main thread, the only one that gets signals).

    A second Ctrl-C raises KeyboardInterrupt at once, if ``may_raise`` says so: for other people's code, which may hang.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def press(*_: object) -> None:
        if pressed.is_set() and may_raise():
            raise KeyboardInterrupt
        pressed.set()

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


class Progress:
    """Tells how far a job is: one line that renews itself on a terminal, plain lines elsewhere.

    ``show`` None: only jobs that take longer than a second say anything. Compilation is reported as
    such; like loading what was compiled before, it counts in no rate. Neither does the first piece.
    """

    def __init__(
        self,
        label: str,
        total: int,
        show: bool | None,
        stream: TextIO | None = None,
        measure: str = "regret",
        unit: str = "episodes",
    ) -> None:
        self.label, self.total, self.show, self.measure, self.unit = label, total, show, measure, unit
        self.stream = stream if stream is not None else sys.stderr
        self.terminal = self.stream.isatty()
        self.began = time.perf_counter()
        self.due = self.began + (0.0 if show else FIRST_AFTER)
        self.rate = self.compiled = 0.0  # episodes per second; seconds spent on compiling and loading
        self._base: tuple[int, float] | None = None  # episodes and clock when the rate began
        self._said = self._said_compiling = False
        self._compiling, self._compile_began = 0, 0.0
        for kind in (_COMPILING, GETTING_CODE):
            _EVENTS.register(kind, self)

    def notify(self, event: Any) -> None:
        """Take note that a function begins or ends to be compiled or loaded, perhaps inside another one."""
        now = time.perf_counter()
        if event.is_start:
            if not self._compiling:
                self._compile_began = now
            self._compiling += 1
            due = event.kind == _COMPILING and self.show is not False and now >= self.due
            if due and (self.terminal or not self._said_compiling):
                self._said_compiling = True
                self._write(f"{self.label}: compiling, once on this machine ({now - self.began:.0f} s)")
        elif self._compiling:
            self._compiling -= 1
            if not self._compiling:
                self.compiled += now - self._compile_began

    def clock(self) -> float:
        """Return the time in seconds, those of compiling and loading left out."""
        return time.perf_counter() - self.compiled

    def update(self, done: int, value: float | None = None) -> None:
        """Say where the job is, if it is time to; a job without a measure does not tell one."""
        now = time.perf_counter()
        if self._base is None:
            self._base = done, self.clock()
            return
        self.rate = (done - self._base[0]) / max(self.clock() - self._base[1], 1e-9)
        if self.show is False or now < self.due:
            return
        self.due = now + (TERMINAL_EVERY if self.terminal else PLAIN_EVERY)
        left = (self.total - done) / max(self.rate, 1e-9)
        told = "" if value is None else f"{self.measure} {value:,.1f}, "
        self._write(
            f"{self.label}: {done:,} of {self.total:,} {self.unit} ({100 * done / self.total:.0f}%), {told}"
            f"{self.rate:,.{0 if self.rate >= 10.0 else 2}f} {self.unit}/s, {left:.0f} s left"
        )

    def close(self) -> None:
        """End the line, if one was begun."""
        for kind in (_COMPILING, GETTING_CODE):
            _EVENTS.unregister(kind, self)
        if self._said and self.terminal:
            self.stream.write("\n")
            self.stream.flush()

    def _write(self, line: str) -> None:
        self._said = True
        self.stream.write(f"\r\x1b[K{line}" if self.terminal else line + "\n")
        self.stream.flush()


_EVENTS.Listener.register(Progress)


class Chunk(NamedTuple):
    """Some episodes of one phase, as a source played them."""

    regret: Floats  # in the learner's unit; NaN where the truth is not known
    returns: Floats  # realised, in the environment's unit
    mapped: Floats  # realised, in the learner's unit, steps after the end of an episode included
    plans: int
    pessimistic: int
    steps: int
    turns: Sequence[tuple[int, bool]] = ()  # where bases take turns, the one that played and whether it planned
    cut_short: Sequence[int] = ()  # numbers, from 1, of episodes of which only a first part was seen
    fault: Exception | None = None  # what ended them


class _GivenUp(Exception):
    """A second Ctrl-C, while an environment was waited for."""


class Source(ABC):
    """Where episodes come from: it begins them and follows a policy; players plan and learn."""

    measure: str  # what progress tells
    keep_all_until: int
    problem = ""  # fingerprint, of a simulated one
    info: EnvironmentInfo | None = None

    def __init__(self, known: Known, mdp: FiniteMDP | None, at_rest: Floats) -> None:
        self.known, self._truth = known, None if mdp is None else mdp.truth
        self.start = 0 if mdp is None else int(mdp.initial_distribution.argmax())
        self.waiting = False  # for somebody else's code, which may hang
        horizon, at_rest = known.horizon, np.ascontiguousarray(at_rest)
        self._path, self._actions = np.zeros(horizon + 1, dtype=np.int64), np.zeros((horizon, known.states), np.int64)
        self._bonus, self._reward, self._at_rest = np.zeros(horizon), np.zeros(horizon), at_rest
        self._taken = np.zeros(horizon, dtype=np.int64)

    @abstractmethod
    def require_continues(self, earlier: Result) -> None:
        """Refuse to go on from a result of another kind: the new one would be of neither."""

    def begin(self, seed: int, first: int) -> None:
        """Take note of the seed, and of the first episode of this call."""
        self._seed, self._first = seed, first

    @abstractmethod
    def reset(self, episode: int) -> int:
        """Begin an episode and return its first state."""

    @abstractmethod
    def follow(self, episode: int, start: int) -> tuple[int, float, bool, Exception | None]:
        """Follow the policy; return the number of steps, the realised return, whether it ended, what cut it short."""

    def play(self, walk: PhaseWalk, key: np.uint64, first: int, size: int, stop: Callable[[], bool]) -> Chunk:
        """Play up to ``size`` episodes of the phase in play, fewer when something goes wrong or ``stop`` says so."""
        regret, returns, mapped = np.full(size, np.nan), np.empty(size), np.empty(size)
        turns, cut_short = [], []
        fault: Exception | None = None
        n = plans = pessimistic = steps = 0
        player, truth, horizon = walk.player, self._truth, self.known.horizon
        rows = self._at_rest, self._path, self._bonus, self._reward, self._actions
        try:
            while n < size and fault is None and not stop():
                k = first + n
                start = self.reset(k)
                if k % ROOM == 0 or walk.played + n == 0:  # the same times, however a run is cut
                    player.reserve(ROOM)
                planned = player.open(start, key, k, self._actions)
                if truth is None:
                    self.start = start
                else:
                    best = truth.optimal_values.item(0, start)
                    regret[n] = best - player.value(truth, start)
                    pessimistic += bool(player.planned_value < best - 1e-9 * horizon)
                taken, returns[n], ended, fault = self.follow(k, start)
                mapped[n] = player.close(Seen(*rows, taken, ended, self._taken))
                if not ended and taken < horizon:
                    cut_short.append(k + 1)
                if player.base >= 0:
                    turns.append((player.base, planned))
                n, plans, steps = n + 1, plans + planned, steps + taken
        except Exception as error:  # after these episodes are accounted for, it is raised again
            fault = error
        played = regret[:n], returns[:n], mapped[:n]
        return Chunk(*played, plans, pessimistic, steps, turns, cut_short, fault)


class Simulator(Source):
    """A FiniteMDP as a source of episodes, with exact regret."""

    measure = "regret"
    keep_all_until = KEEP_ALL_UNTIL

    def __init__(self, mdp: FiniteMDP) -> None:
        super().__init__(mdp.known, mdp, np.zeros(mdp.states * mdp.actions))
        self.mdp, self.problem = mdp, mdp.fingerprint
        self._uniforms = empty_uniforms(mdp.horizon)

    def require_continues(self, earlier: Result) -> None:
        """Refuse to go on with another problem."""
        if earlier.environment is not None:
            raise ParameterError("continue_from", got="a result of learn", expected="the Result of an earlier run")
        if earlier.problem != self.problem:
            raise ParameterError("continue_from", got="a run on another problem", expected=f"one on {self.mdp!r}")

    def begin(self, seed: int, first: int) -> None:
        """Take note of the seed."""
        super().begin(seed, first)
        self._key = seeding.key(seed, "environment")

    def reset(self, episode: int) -> int:
        """Draw the first state."""
        initial = self.mdp.truth.initial_cumulative
        self._path[0] = start = draw_first_state(initial, self._key, episode, self._uniforms)
        return start

    def follow(self, episode: int, start: int) -> tuple[int, float, bool, Exception | None]:
        """Draw the episode as compiled code does."""
        into = self._actions, self._path, self._taken, self._bonus, self._reward
        total = draw_episode(self.mdp.truth, self._key, episode, self._uniforms, *into)
        return self.known.horizon, total, False, None

    def play(self, walk: PhaseWalk, key: np.uint64, first: int, size: int, stop: Callable[[], bool]) -> Chunk:
        """Play ``size`` episodes of the phase in play; of a compiled learner, in one call."""
        if isinstance(walk.player, CompiledPlayer):
            regret, returns = np.empty(size), np.empty(size)
            plans, short = walk.player.simulate(self.mdp.truth, (self._key, key), first, regret, returns)
            return Chunk(regret, returns, returns, plans, short, size * self.known.horizon)
        self.waiting = True  # for a learner in plain Python
        try:
            return super().play(walk, key, first, size, stop)
        finally:
            self.waiting = False


class EnvironmentSource(Source):
    """An environment as a source of episodes.

    Parameters
    ----------
    environment : FiniteEnvironment
    allow_truncation, replay : bool
        See :func:`occamrl.learn`.
    """

    measure = "realised return"
    keep_all_until = 2**62  # the curves of real environments are never so long that they would have to be thinned

    def __init__(self, environment: FiniteEnvironment, *, allow_truncation: bool, replay: bool) -> None:
        super().__init__(environment.known, environment.mdp, environment.at_rest)
        self.environment, self.info = environment, EnvironmentInfo.of(environment)
        self.allow_truncation, self.replay = allow_truncation, replay
        size, decode = environment.action.size, environment.action.decode
        self._decode = [decode(a) for a in range(size)].__getitem__ if size <= _MOST_DECODED else decode

    def require_continues(self, earlier: Result) -> None:
        """Refuse to go on in an environment of another kind."""
        environment, before = self.environment, earlier.environment
        if before is None:
            raise ParameterError("continue_from", got="a run in the simulator", expected="the result of learn")
        if fingerprint(self.known) != fingerprint(earlier.known):
            expected = f"an environment with the sizes and rewards of {before.name}"
            raise ParameterError("env", got=f"{environment!r}", expected=expected)
        if environment.rewards != before.rewards:
            raise ParameterError("reward_range", got=tuple(environment.rewards), expected=tuple(before.rewards))
        if (environment.mdp is not None) != before.exact:
            got = "one that exposes its table" if environment.mdp is not None else "one without a table"
            raise ParameterError("env", got=got, expected="exact regret for all episodes, or for none")

    def reset(self, episode: int) -> int:
        """Begin an episode with the seed at its address, so that no environment needs to be stored."""
        block, place = divmod(episode, BLOCK)
        seeds = _reset_seeds(self._seed, block)
        with self._their_code(lambda: (episode,)):
            return self.environment.reset(int(seeds[place]))

    def follow(self, episode: int, start: int) -> tuple[int, float, bool, Exception | None]:
        """Step through an episode, and now and then a second time.

        Only what passed every check is entered: a step that is refused leaves no trace.
        """
        step, translate, decode = self.environment.env.step, self.environment.translate, self._decode
        actions, path, horizon = self._actions, self._path, self.known.horizon
        realised, h, s, ended, truncated = 0.0, 0, start, False, False
        fault: Exception | None = None
        path[0] = s
        try:
            with self._their_code(lambda: (episode, h)):
                while h < horizon and not ended and not truncated:
                    a = self._taken[h] = actions.item(h, s)
                    observation, reward, terminated, truncated, _ = step(decode(a))
                    reward = float(reward)
                    s, self._bonus[h], self._reward[h] = translate(s, a, observation, reward, bool(terminated))
                    h += 1
                    path[h] = s
                    realised, ended = realised + reward, bool(terminated)
            if not ended and h < horizon and not self.allow_truncation:
                got, expected = f"an episode truncated after {h} steps", f"{horizon} steps or termination"
                expected += "; allow_truncation=True learns from such episodes"
                fault = EpisodeCutShort(self.environment.name, index=(episode, h - 1), got=got, expected=expected)
            elif self.replay and (episode == self._first or episode in _REPLAYED):
                self._play_again(episode, h, realised)
        except (EnvironmentFault, _GivenUp) as error:
            fault = error
        return h, realised, ended, fault

    def _play_again(self, k: int, steps: int, realised: float) -> None:
        """Play the last episode once more, with the same seed and actions; refuse an environment that differs."""
        environment, path = self.environment, self._path[: steps + 1].tolist()
        again, total = [self.reset(k)], 0.0
        with self._their_code(lambda: (k,)):
            for h in range(steps):
                a = int(self._actions[h, path[h]])
                observation, reward, terminated, _, _ = environment.env.step(self._decode(a))
                total += float(reward)
                again.append(environment.translate(path[h], a, observation, float(reward), bool(terminated))[0])
                if again[-1] != path[h + 1]:
                    break
        if again != path or total != realised:
            got = f"states {path[:8]} and, again, {again[:8]}; returns {realised:g} and {total:g}"
            expected = "the same episode from the same reset seed and actions; replay=False learns all the same"
            raise SeedIgnored(environment.name, index=(k,), got=got, expected=expected)

    @contextmanager
    def _their_code(self, index: Callable[[], tuple[int, ...]]) -> Iterator[None]:
        """Run code of someone else's environment, which may hang; an error is told with the episode and step."""
        self.waiting = True
        try:
            yield
        except KeyboardInterrupt as error:
            raise _GivenUp from error
        except EnvironmentFault as error:
            raise type(error)(error.field, got=error.got, expected=error.expected, index=index()) from error
        except Exception as error:  # the environment's own code may raise anything
            got = f"{type(error).__name__}: {error}"
            expected = "a step without error"
            raise EnvironmentFailure(self.environment.name, index=index(), got=got, expected=expected) from error
        finally:
            self.waiting = False


@lru_cache(maxsize=1)
def _reset_seeds(seed: int, block: int) -> Any:
    return seeding.stream(seed, "environment", "reset", block).integers(2**31, size=BLOCK)


class EpisodeReport(NamedTuple):
    """One episode, in the environment's own unit."""

    episode: int  # from 1
    realised_return: float
    regret: float | None  # exact; None where the truth is not known
    steps: int
    label: str  # of the phase
    facts: Mapping[str, Any]  # what was decided for the phase


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


class Checkpoint:
    """Writes what a run needs to go on to a file, every so many seconds, but at most for a small share of them."""

    def __init__(self, path: Path, every: float, tag: str = "") -> None:
        if every != math.inf:
            require_number("checkpoint_every", every, 0.0, math.inf)
        self.path, self.every, self.tag = path, every, tag
        self.due = time.monotonic() + self.every

    def write(self, result: Result) -> None:
        """Write the file now."""
        began = time.monotonic()
        save(result, self.path, tag=self.tag)
        now = time.monotonic()
        self.due = now + max(self.every, LEAST_SHARE * (now - began))


class Run:
    """A run in progress: an agent, a source of episodes, and what came of them so far.

    Parameters
    ----------
    agent : learner or selector
    source : Simulator or EnvironmentSource
    seed : int, optional
        0, or that of ``earlier``, by default.
    earlier : Result, optional
        Where to go on. It is copied, once, and stays as it is.
    """

    def __init__(self, agent: Agent, source: Source, seed: int | None = None, *, earlier: Result | None = None) -> None:
        self.source, self.rate = source, 0.0  # episodes per second
        if earlier is None:
            root = 0 if seed is None else seed
            self.agent_key, label = seeding.key(root, "agent"), type(agent).__name__
            walk, recorder = PhaseWalk(agent, source.known), Recorder(source.keep_all_until)
            earlier = Result(
                label=label, seed=int(root), problem=source.problem, agent=agent, walk=walk, recorder=recorder
            )
        else:
            if not isinstance(earlier, Result):
                raise ParameterError("continue_from", got=type(earlier).__name__, expected="an earlier Result")
            if agent is not earlier.agent and fingerprint(agent) != fingerprint(earlier.agent):
                got, expected = f"a run of another {earlier.label}", f"one of {agent!r}"[:200]
                raise ParameterError("continue_from", got=got, expected=expected)
            if seed is not None and seed != earlier.seed:
                raise ParameterError("seed", got=seed, expected=f"{earlier.seed}, that of the earlier run")
            source.require_continues(earlier)
            self.agent_key = seeding.key(earlier.seed, "agent")
            walk, recorder = earlier.walk.fork(), copy.deepcopy(earlier.recorder)
        self._result = replace(earlier, agent=agent, environment=source.info, walk=walk, recorder=recorder)
        self._counts: dict[str, Any] = {name: getattr(earlier, name) for name in (*COUNTS, "wall_time")}

    @property
    def episodes(self) -> int:
        """How many were played."""
        return self._result.total_episodes

    def result(self) -> Result:
        """Return everything up to here; a view that is final once the run is over."""
        return replace(self._result, start=self.source.start, **self._counts)

    def play(
        self,
        episodes: int,
        *,
        progress: bool | None = None,
        checkpoint: Checkpoint | None = None,
        after: Callable[[Phase, Chunk], bool] | None = None,
        seconds: float = CHUNK_SECONDS,
        largest: int = LARGEST_CHUNK,
    ) -> None:
        """Play that many more episodes, in chunks of about ``seconds`` and at most ``largest`` episodes.

        ``after`` is told the phase and the episodes of every chunk, and says whether to go on.

        Raises
        ------
        Interrupted
            Ctrl-C, even during the last chunk: somebody wants to stop what calls us.
        """
        source, first, end, chunk = self.source, self.episodes, self.episodes + episodes, 1
        walk, recorder = self._result.walk, self._result.recorder
        source.begin(self._result.seed, first)
        bar = Progress(self._result.label, episodes, progress, measure=source.measure)
        try:
            with ctrl_c(may_raise=lambda: source.waiting) as pressed:
                while self.episodes < end:
                    size = min(chunk, end - self.episodes, walk.remaining or chunk)
                    phase, began = walk.phase, bar.clock()
                    played = source.play(walk, self.agent_key, self.episodes, size, pressed.is_set)
                    self._record(played)  # this may begin a phase, and compile for it
                    spent = bar.clock() - began
                    self._counts["wall_time"] += spent
                    if size == chunk and spent < seconds:
                        chunk = min((8 if spent < seconds / 32.0 else 2) * chunk, largest)
                    elif spent > 4.0 * seconds:
                        chunk = max(1, chunk // 2)
                    go_on = after is None or after(phase, played)
                    if played.fault is not None and not isinstance(played.fault, _GivenUp):
                        raise played.fault
                    if pressed.is_set() or played.fault is not None:
                        raise Interrupted(f"stopped after episode {self.episodes:,} of {end:,}", self.result())
                    bar.update(self.episodes - first, recorder.totals[0 if source.info is None else 1])
                    self.rate = bar.rate
                    if not go_on:
                        break
                    if checkpoint is not None and self.episodes < end and time.monotonic() >= checkpoint.due:
                        checkpoint.write(self.result())
        finally:
            bar.close()

    def _record(self, played: Chunk) -> None:
        """Take in some episodes."""
        self._result.recorder.add(played.regret, played.returns)
        self._result.walk.advance(played.plans, played.mapped, played.regret, played.turns)
        more = played.plans, played.pessimistic, played.steps, tuple(played.cut_short)
        for name, part in zip(COUNTS, more, strict=True):
            self._counts[name] += part


@explains_calls
def run(
    agent: Agent,
    mdp: FiniteMDP | Problem,
    *,
    episodes: int,
    seed: int | None = None,
    progress: bool | None = None,
    continue_from: Result | None = None,
) -> Result:
    """Play ``agent`` on ``mdp`` for a number of episodes.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> agent = orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2))
    >>> result = orl.run(agent, problem, episodes=50, seed=0)
    >>> longer = orl.run(agent, problem, episodes=50, continue_from=result)

    Parameters
    ----------
    agent : learner or selector
    mdp : FiniteMDP, or a problem that has one
    episodes : int
        How many episodes to play (in addition to those of ``continue_from``).
    seed : int, optional
        The address of the environment's draws, 0 by default. Two agents with the same seed meet the same numbers.
    progress : bool, optional
        Show progress on standard error; by default only when the run takes longer than a second.
    continue_from : Result, optional
        Go on where an earlier run ended; the result covers both, and equals that of one uninterrupted run. The agent
        must have the same parameters, the mdp must be the same; the seed is taken from the earlier run.

    Returns
    -------
    Result

    Raises
    ------
    Interrupted
        On Ctrl-C, at an episode boundary, with everything so far in its ``result``.
    """
    source = Simulator(as_mdp(mdp))
    episodes = require_integer("episodes", episodes, 1)
    under_way = Run(agent, source, seed, earlier=continue_from)
    under_way.play(episodes, progress=progress)
    return under_way.result()


@explains_calls
def learn(
    agent: Agent,
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
    checkpoint_every: float = 30.0,
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
    agent : learner or selector
    env : gymnasium.Env or FiniteEnvironment
        With finite spaces, or a ``discretiser`` for its Box.
    episodes : int
        How many to play, in addition to those of ``continue_from``. With a ``checkpoint`` that exists: until there are
        this many in all, so that a command that was stopped is simply given again.
    seed : int, optional
        Every reset is given a seed found at the address (seed, episode); 0 by default.
    known, horizon, reward_range, discretiser
        See :class:`FiniteEnvironment`.
    allow_truncation : bool
        Learn from episodes that are truncated before the horizon (the steps seen) instead of raising EpisodeCutShort.
    replay : bool
        Play a few episodes twice, without learning, to see whether the environment follows its seed. Say False for what
        cannot be repeated, such as a plant.
    callbacks : Callback, function of an EpisodeReport, or several
    checkpoint : path, optional
        Save there every ``checkpoint_every`` seconds, at the end, and when something goes wrong; go on from there.
    progress : bool, optional
        Show progress; by default when it takes longer than a second.
    continue_from : Result, optional
        Go on from an earlier result; both together equal one uninterrupted call, to the bit.

    Raises
    ------
    EnvironmentFault
        The environment misbehaved; the error's ``result`` holds what was learned before, and so does ``checkpoint``.
    Interrupted
        Ctrl-C, at an episode boundary (a second one does not wait for it), with the ``result`` so far.
    """
    environment = require_finite(env, known=known, horizon=horizon, reward_range=reward_range, discretiser=discretiser)
    earlier, target = continue_from, require_integer("episodes", episodes, 1)
    saver = None if checkpoint is None else Checkpoint(as_path("checkpoint", checkpoint), checkpoint_every)
    if saver is not None and there(saver.path):
        if continue_from is not None:
            got = f"{saver.path}, which exists"
            raise ParameterError("checkpoint", got=got, expected="no continue_from beside it")
        earlier = load(saver.path, agent)
        target = episodes - earlier.total_episodes
    source = EnvironmentSource(environment, allow_truncation=allow_truncation, replay=replay)
    under_way = Run(agent, source, seed, earlier=earlier)
    if target <= 0:
        return under_way.result()
    listeners = [] if callbacks is None else list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    for i, each in enumerate(listeners):
        if not callable(getattr(each, "on_episode", each)):
            raise ParameterError("callbacks", got=shown(each), expected="a Callback or a function", index=(i,))
    about = {"agent": type(agent).__name__, "environment": environment.name, "seed": under_way.result().seed}
    notify(listeners, "start", {**about, "horizon": environment.known.horizon})

    def tell(phase: Phase, played: Chunk) -> bool:
        if not listeners or not played.regret.size:
            return True
        regret = float(played.regret[0]) * environment.rewards.scale if environment.mdp is not None else None
        number, realised = under_way.episodes, float(played.returns[0])
        report = EpisodeReport(number, realised, regret, played.steps, phase.label, phase.facts)
        return notify(listeners, "episode", report)

    try:
        largest = 1 if listeners else LARGEST_CHUNK
        under_way.play(target, progress=progress, checkpoint=saver, after=tell, largest=largest)
    except EnvironmentFault as error:
        error.result = under_way.result()
        raise
    finally:
        if saver is not None:
            saver.write(under_way.result())
        notify(listeners, "end", under_way.result())
    return under_way.result()
