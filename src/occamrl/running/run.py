"""``run``: play an agent on a problem and account for every episode.

The compiled loop plays chunks of episodes; between chunks there is time for progress, for Ctrl-C, and for selectors to
change the phase. Chunks change nothing: random numbers belong to episodes, sums run in order.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import gymnasium as gym
import numpy as np

from occamrl import seeding
from occamrl.envs.spaces import Discretiser
from occamrl.envs.wrapper import FiniteEnvironment, require_finite
from occamrl.errors import EnvironmentFault, Interrupted, ParameterError, require_integer
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Agent, Known, Problem
from occamrl.running.callbacks import Callbacks, EpisodeReport
from occamrl.running.environments import Episode, Session
from occamrl.running.phases import KEEP_ALL_UNTIL, PhaseWalk, Recorder
from occamrl.running.result import Learned, Result
from occamrl.running.storage import fingerprint, load_learned, require_continues, save_learned

# ----------------------------------------------------------------------------------------------------
# Ctrl-C as a flag: a run stops at the next place where nothing is half done.


@contextmanager
def ctrl_c(*, may_raise: Callable[[], bool] | None = None) -> Iterator[threading.Event]:
    """Turn Ctrl-C into a flag while a run is in progress (in the main thread, the only one that gets signals).

    A second Ctrl-C raises KeyboardInterrupt at once, if ``may_raise`` says so: for other people's code, which may hang.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def press(*_: object) -> None:
        if pressed.is_set() and may_raise is not None and may_raise():
            raise KeyboardInterrupt
        pressed.set()

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


# ----------------------------------------------------------------------------------------------------
# Progress of a long job: one line that renews itself on a terminal, plain lines elsewhere.


FIRST_AFTER = 1.0  # seconds: short jobs stay silent
PLAIN_EVERY = 10.0
TERMINAL_EVERY = 0.2


class Progress:
    """Tells how far a run is. ``show`` None: only jobs that take longer than a second say anything."""

    def __init__(
        self, label: str, total: int, show: bool | None, stream: TextIO | None = None, measure: str = "regret"
    ) -> None:
        self.label = label
        self.total = total
        self.show = show
        self.measure = measure
        self.stream = stream if stream is not None else sys.stderr
        self.began = time.perf_counter()
        self.due = self.began + (0.0 if show else FIRST_AFTER)
        self.terminal = self.stream.isatty()
        self.base: int | None = None
        self.said = False

    def update(self, done: int, value: float | None = None) -> None:
        """Say where the job is, if it is time to; a job without a measure does not tell one."""
        now = time.perf_counter()
        if self.base is None:  # the first piece may include compilation: it says nothing about the pace
            self.base, self.began = done, now
            return
        if self.show is False or now < self.due:
            return
        self.due = now + (TERMINAL_EVERY if self.terminal else PLAIN_EVERY)
        rate = (done - self.base) / max(now - self.began, 1e-9)
        left = (self.total - done) / max(rate, 1e-9)
        self._write(
            f"{self.label}: {done:,} of {self.total:,} episodes ({100 * done / self.total:.0f}%), "
            f"{'' if value is None else f'{self.measure} {value:,.1f}, '}{rate:,.0f} episodes/s, {left:.0f} s left"
        )

    def close(self) -> None:
        """End the line, if one was begun."""
        if self.said and self.terminal:
            self.stream.write("\n")
            self.stream.flush()

    def _write(self, line: str) -> None:
        self.said = True
        self.stream.write(f"\r\x1b[K{line}" if self.terminal else line + "\n")
        self.stream.flush()


# ----------------------------------------------------------------------------------------------------
# ``learn``: an agent in a real environment, with the functions of the fused loop.


_PIECE, _PIECE_SECONDS = 256, 0.2  # episodes, or seconds, between two times that notes are taken


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
    continue_from: Learned | None = None,
) -> Learned:
    """Let an agent learn in a Gymnasium environment.

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
    continue_from : Learned, optional
        Go on from an earlier result; both together equal one uninterrupted call, to the bit.

    Raises
    ------
    EnvironmentFault
        The environment misbehaved; the error's ``result`` holds what was learned before, and so does ``checkpoint``.
    Interrupted
        Ctrl-C, at an episode boundary (a second one does not wait for it), with the ``result`` so far.
    """
    about = {"known": known, "horizon": horizon, "reward_range": reward_range, "discretiser": discretiser}
    environment = require_finite(env, **about)
    require_integer("episodes", episodes, 1)
    path = None if checkpoint is None else Path(checkpoint)
    earlier, target = continue_from, episodes
    if path is not None and path.exists():
        if continue_from is not None:
            raise ParameterError("checkpoint", got=f"{path}, which exists", expected="no continue_from beside it")
        earlier = load_learned(path, agent)
        target = episodes - earlier.total_episodes
    if earlier is not None:
        require_continues(earlier, agent, environment, seed)
        seed = earlier.seed
    session = Session(agent, environment, 0 if seed is None else seed, earlier)
    if target <= 0:
        return session.result()
    save = _Saver(session, path, checkpoint_every)
    told = Callbacks(callbacks)
    told.start({"agent": type(agent).__name__, "agent_fingerprint": fingerprint(agent), **_described(session)})
    try:
        _play(session, target, allow_truncation, replay, told, save, progress)
    except EnvironmentFault as error:
        error.result = session.result()
        raise
    finally:
        save(at_once=True)
        told.end(session.result())
    return session.result()


def _play(
    session: Session,
    episodes: int,
    allow_truncation: bool,
    replay: bool,
    told: Callbacks,
    save: _Saver,
    progress: bool | None,
) -> None:
    first, end = session.episode, session.episode + episodes
    environment = session.environment
    bar = Progress(type(session.agent).__name__, episodes, progress, measure="realised return")
    with ctrl_c(may_raise=lambda: session.waiting) as pressed:
        while session.episode < end:
            size = min(1 if told else _PIECE, end - session.episode, session.walk.remaining or _PIECE)
            label, facts = session.walk.phase.label, session.walk.phase.facts
            played: list[Episode] = []
            fault: BaseException | None = None
            due = time.monotonic() + _PIECE_SECONDS
            try:
                while len(played) < size and fault is None and not pressed.is_set() and time.monotonic() < due:
                    played.append(session.play(allow_truncation=allow_truncation))
                    fault = played[-1].fault
                    if replay and fault is None and session.wants_replay(first):
                        session.replay(played[-1].steps, played[-1].realised)
            except KeyboardInterrupt as error:
                fault = error
            finally:
                session.advance(played)
            go_on = True
            for number, each in enumerate(played, start=session.episode - len(played) + 1):
                regret = each.regret * environment.rewards.scale if environment.mdp is not None else None
                if told:
                    go_on = told.episode(EpisodeReport(number, each.realised, regret, each.steps, label, facts))
            if isinstance(fault, EnvironmentFault):
                raise fault
            if pressed.is_set() or fault is not None:
                bar.close()
                raise Interrupted(f"stopped after episode {session.episode:,} of {end:,}", session.result())
            save()
            bar.update(session.episode - first, session.recorder.total_return)
            if not go_on:
                break
    bar.close()


class _Saver:
    """Saves what was learned, now and then."""

    def __init__(self, session: Session, path: Path | None, every: float) -> None:
        self.session, self.path, self.every = session, path, every
        self.last = time.monotonic()

    def __call__(self, *, at_once: bool = False) -> None:
        if self.path is not None and (at_once or time.monotonic() - self.last >= self.every):
            save_learned(self.session.result(), self.path)
            self.last = time.monotonic()


def _described(session: Session) -> dict[str, Any]:
    environment = session.environment
    return {"environment": environment.name, "seed": session.seed, "horizon": environment.known.horizon}


# ----------------------------------------------------------------------------------------------------
# ``run``: play an agent on a problem and account for every episode.


_CHUNK_SECONDS = 0.1
_LARGEST_CHUNK = 2**16


def run(
    agent: Agent,
    mdp: FiniteMDP | Problem,
    *,
    episodes: int,
    seed: int | None = None,
    progress: bool | None = None,
    keep_all_until: int = KEEP_ALL_UNTIL,
    continue_from: Result | None = None,
) -> Result:
    """Play ``agent`` on ``mdp`` for a number of episodes.

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
    keep_all_until : int
        Every episode's regret is kept up to this one, log-spaced ones after it.
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
    problem = as_mdp(mdp)
    if isinstance(episodes, bool) or not isinstance(episodes, (int, np.integer)) or episodes < 1:
        raise ParameterError("episodes", got=episodes, expected="an integer >= 1")
    if isinstance(keep_all_until, bool) or not isinstance(keep_all_until, (int, np.integer)) or keep_all_until < 0:
        raise ParameterError("keep_all_until", got=keep_all_until, expected="an integer >= 0")
    if continue_from is None:
        root = 0 if seed is None else seed
        environment_key, agent_key = seeding.key(root, "environment"), seeding.key(root, "agent")
        walk, recorder = PhaseWalk(agent, problem.known), Recorder(int(keep_all_until))
        plans, pessimistic, before = 0, 0, 0.0
    else:
        _require_same(continue_from, agent, problem, seed)
        root = continue_from.seed
        environment_key, agent_key = seeding.key(root, "environment"), seeding.key(root, "agent")
        walk, recorder = continue_from.walk.fork(), continue_from.recorder.fork()
        plans, pessimistic = continue_from.plans, continue_from.pessimistic_episodes
        before = continue_from.wall_time
    label = type(agent).__name__
    began = time.perf_counter()

    def result() -> Result:
        spent = before + time.perf_counter() - began
        about = {"wall_time": spent, "seed": int(root), "label": label, "agent": agent, "mdp": problem}
        return Result.of(recorder, walk, plans=plans, pessimistic_episodes=pessimistic, **about)

    truth = problem.truth
    end = recorder.episodes + int(episodes)
    bar = Progress(label, int(episodes), progress)
    chunk = 16
    with ctrl_c() as pressed:
        while recorder.episodes < end:
            size = min(chunk, end - recorder.episodes, walk.remaining or chunk)
            regret, returns = np.empty(size), np.empty(size)
            tick = time.perf_counter()
            made, short = walk.player.simulate(truth, environment_key, agent_key, recorder.episodes, regret, returns)
            spent = time.perf_counter() - tick
            if size == chunk and spent < _CHUNK_SECONDS:
                chunk = min(2 * chunk, _LARGEST_CHUNK)
            plans += made
            pessimistic += short
            recorder.add(regret, returns)
            walk.advance(made, returns, regret)
            bar.update(recorder.episodes - (end - int(episodes)), recorder.total_regret)
            if pressed.is_set():  # even after the last episode: somebody wants to stop what calls us
                bar.close()
                raise Interrupted(f"stopped after episode {recorder.episodes:,} of {end:,}", result())
    bar.close()
    return result()


def _require_same(earlier: Result, agent: Agent, problem: FiniteMDP, seed: int | None) -> None:
    """Refuse to continue a run with another agent, problem or seed: the result would be of neither."""
    if not isinstance(earlier, Result):
        raise ParameterError("continue_from", got=type(earlier).__name__, expected="the Result of an earlier run")
    if agent is not earlier.agent and fingerprint(agent) != fingerprint(earlier.agent):
        raise ParameterError("continue_from", got=f"a run of another {earlier.label}", expected=f"one of {agent!r}")
    if problem is not earlier.mdp and problem.fingerprint != earlier.mdp.fingerprint:
        raise ParameterError("continue_from", got=f"a run on {earlier.mdp!r}", expected=f"one on {problem!r}")
    if seed is not None and seed != earlier.seed:
        raise ParameterError("seed", got=seed, expected=f"{earlier.seed}, that of the earlier run")
