"""Episodes from a Gymnasium environment, one at a time.

Whatever the environment does, an episode is closed before an error leaves: the transitions that were seen before it are
learned, nothing else is, and the next episode can begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from occamrl import seeding
from occamrl._core.loop import CHANGED, PLANNED
from occamrl.envs.wrapper import FiniteEnvironment
from occamrl.errors import EnvironmentFailure, EnvironmentFault, EpisodeCutShort, ParameterError, SeedIgnored
from occamrl.protocols import Floats
from occamrl.running.phases import PhaseWalk
from occamrl.running.players import ROOM
from occamrl.running.result import EnvironmentInfo, Result
from occamrl.running.storage import fingerprint

BLOCK = 256  # reset seeds drawn at a time
_REPLAYED = frozenset(2**j - 1 for j in range(7))  # which of the first episodes are played twice
_MOST_DECODED = 4096


class Chunk(NamedTuple):
    """Some episodes of one phase, as a source played them."""

    regret: Floats  # in the learner's unit; NaN where the truth is not known
    returns: Floats  # realised, in the environment's unit
    mapped: Floats  # realised, in the learner's unit, steps after the end of an episode included
    plans: int
    pessimistic: int
    steps: int
    cut_short: list[int]  # numbers, from 1, of episodes of which only a first part was seen
    fault: BaseException | None = None  # what ended them


class EnvironmentSource:
    """An environment as a source of episodes.

    Parameters
    ----------
    environment : FiniteEnvironment
    allow_truncation, replay : bool
        See :func:`occamrl.learn`.
    """

    measure = "realised return"
    keep_all_until = 2**62  # the curves of real environments are never so long that they would have to be thinned
    problem = ""

    def __init__(self, environment: FiniteEnvironment, *, allow_truncation: bool, replay: bool) -> None:
        self.environment, self.known, self.info = environment, environment.known, EnvironmentInfo.of(environment)
        self.allow_truncation, self.replay = allow_truncation, replay
        self.waiting = False  # for the environment
        self.start = 0 if environment.mdp is None else int(environment.mdp.initial_distribution.argmax())
        self._truth = None if environment.mdp is None else environment.mdp.truth
        horizon, states = self.known.horizon, self.known.states
        self._actions = np.zeros((horizon, states), dtype=np.int64)
        self._path = np.zeros(horizon + 1, dtype=np.int64)
        self._bonus, self._reward = np.zeros(horizon), np.zeros(horizon)
        self._at_rest = environment.translate.at_rest
        size, decode = environment.action.size, environment.action.decode
        self._decode = [decode(a) for a in range(size)].__getitem__ if size <= _MOST_DECODED else decode

    def require_continues(self, earlier: Result) -> None:
        """Refuse to go on in an environment of another kind: the result would be of neither."""
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

    def begin(self, seed: int, first: int) -> None:
        """Take note of the seed, and of the first episode of this call."""
        self._seed, self._first = seed, first
        self._block, self._seeds = -1, np.zeros(0, dtype=np.int64)
        self._phase: object = None  # of the policy whose value is at hand
        self._achieved = np.zeros(0)

    def play(self, walk: PhaseWalk, key: np.uint64, first: int, size: int, stop: Callable[[], bool]) -> Chunk:
        """Play up to ``size`` episodes of the phase in play, fewer when something goes wrong or ``stop`` says so."""
        regret, returns, mapped = np.empty(size), np.empty(size), np.empty(size)
        cut_short: list[int] = []
        fault: BaseException | None = None
        n = plans = steps = 0
        try:
            while n < size and fault is None and not stop():
                k = first + n
                start = self._reset(k)
                if self._truth is None:
                    self.start = start
                if k % ROOM == 0 or walk.played + n == 0:  # the same times, however a run is cut
                    walk.player.reserve(ROOM)
                news = walk.player.open(start, key, k, self._actions)
                regret[n] = self._regret(walk, start, bool(news & CHANGED))
                taken, returns[n], ended, fault = self._steps(k, start)
                rows = self._at_rest, self._path, self._bonus, self._reward, self._actions
                mapped[n] = walk.player.close(*rows, taken, ended)
                if not ended and taken < self.known.horizon:
                    cut_short.append(k + 1)
                n, plans, steps = n + 1, plans + bool(news & PLANNED), steps + taken
                if self.replay and fault is None and (k == self._first or k in _REPLAYED):
                    self._play_again(k, taken, float(returns[n - 1]))
        except (Exception, KeyboardInterrupt) as error:  # after these episodes are accounted for, it is raised again
            fault = error
        return Chunk(regret[:n], returns[:n], mapped[:n], plans, 0, steps, cut_short, fault)

    def _regret(self, walk: PhaseWalk, start: int, changed: bool) -> float:
        """Return the exact regret of the policy in play; NaN where the truth is not known."""
        truth = self._truth
        if truth is None:
            return float("nan")
        if changed or walk.phase is not self._phase:
            self._achieved, self._phase = walk.player.evaluate(truth), walk.phase
        return float(truth.optimal_values[0, start] - self._achieved[start])

    def _reset(self, episode: int) -> int:
        """Begin an episode with the seed at its address, so that no environment needs to be stored."""
        block, place = divmod(episode, BLOCK)
        if block != self._block:
            self._block = block
            self._seeds = seeding.stream(self._seed, "environment", "reset", block).integers(2**31, size=BLOCK)
        with self._their_code(lambda: (episode,)):
            return self.environment.reset(int(self._seeds[place]))

    def _steps(self, k: int, s: int) -> tuple[int, float, bool, BaseException | None]:
        """Step through an episode; return the number of steps, the sum of rewards, whether it ended, what cut it short.

        Only what passed every check is entered: a step that is refused leaves no trace.
        """
        step, translate, decode = self.environment.env.step, self.environment.translate, self._decode
        actions, path, horizon = self._actions, self._path, self.known.horizon
        realised, h = 0.0, 0
        path[0] = s
        try:
            with self._their_code(lambda: (k, h)):
                while h < horizon:
                    a = actions.item(h, s)
                    observation, reward, terminated, truncated, _ = step(decode(a))
                    reward = float(reward)
                    s, self._bonus[h], self._reward[h] = translate(s, a, observation, reward, bool(terminated))
                    h += 1
                    path[h] = s
                    realised += reward
                    if terminated:
                        return h, realised, True, None
                    if truncated and h < horizon:
                        short = EpisodeCutShort(
                            self.environment.name,
                            index=(k, h - 1),
                            got=f"an episode truncated after {h} steps",
                            expected=f"{horizon} steps or termination; allow_truncation=True learns from such episodes",
                        )
                        return h, realised, False, None if self.allow_truncation else short
        except (KeyboardInterrupt, EnvironmentFault) as error:  # a second Ctrl-C: the environment may hang
            return h, realised, False, error
        return h, realised, False, None

    def _play_again(self, k: int, steps: int, realised: float) -> None:
        """Play the last episode once more, with the same seed and actions; refuse an environment that differs."""
        environment, path = self.environment, self._path[: steps + 1].tolist()
        again, total = [self._reset(k)], 0.0
        with self._their_code(lambda: (k,)):
            for h in range(steps):
                a = int(self._actions[h, path[h]])
                observation, reward, terminated, _, _ = environment.env.step(environment.action.decode(a))
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
        except Exception as error:  # it may raise anything
            raise self._located(error, index()) from error
        finally:
            self.waiting = False

    def _located(self, error: Exception, index: tuple[int, ...]) -> EnvironmentFault:
        """Return the error for an exception in the environment, with the episode and step in which it happened."""
        if isinstance(error, EnvironmentFault):
            return type(error)(error.field, got=error.got, expected=error.expected, index=index)
        got = f"{type(error).__name__}: {error}"
        made = EnvironmentFailure(self.environment.name, index=index, got=got, expected="a step without error")
        made.__cause__ = error
        return made
