"""Episodes in a real environment, one at a time: played, learned from and accounted for.

Whatever the environment does, an episode is closed before an error leaves: the transitions that were seen before it are
learned, nothing else is, and the next episode can begin.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from occamrl import seeding
from occamrl.contracts import Agent, Ints
from occamrl.environments.finite import FiniteEnvironment
from occamrl.environments.misbehaviour import EnvironmentFailure, EnvironmentFault, EpisodeCutShort, SeedIgnored
from occamrl.kernels.episodes import CHANGED, PLANNED
from occamrl.problems.checks import require_integer
from occamrl.runs.learned import Learned, Place
from occamrl.runs.phases import PhaseWalk
from occamrl.runs.recording import Recorder
from occamrl.runs.stepping import close_episode, open_episode, value_of_policy

ROOM = 64  # episodes reserved at a time
BLOCK = 256  # reset seeds drawn at a time
KEEP_ALL = 2**62  # the curves of real environments are never so long that they would have to be thinned
_REPLAYED = frozenset(2**j - 1 for j in range(7))  # which of the first episodes are played twice
_MOST_DECODED = 4096


class Episode(NamedTuple):
    """An episode that was played."""

    planned: bool
    regret: float  # in the learner's unit; NaN where the truth is not known
    mapped: float  # realised return in the learner's unit, steps after the end included
    realised: float  # realised return in the environment's unit
    steps: int
    fault: BaseException | None  # what cut it short


class Session:
    """An agent at work in an environment."""

    def __init__(self, agent: Agent, environment: FiniteEnvironment, seed: int, earlier: Learned | None = None) -> None:
        self.agent, self.environment, self.seed = agent, environment, require_integer("seed", seed, 0)
        known = environment.known
        self.key = seeding.key(seed, "agent")
        if earlier is None:
            self.walk, self.recorder = PhaseWalk(agent, known), Recorder(KEEP_ALL)
            self.plans, self.steps, self.before = 0, 0, 0.0
            self.cut_short: list[int] = []
        else:
            self.walk, self.recorder = earlier.walk.fork(), earlier.recorder.fork()
            self.plans, self.steps, self.before = earlier.plans, earlier.steps, earlier.wall_time
            self.cut_short = list(earlier.cut_short)
        self.episode = self.recorder.episodes  # finished ones
        self.began = time.perf_counter()
        self._truth = None if environment.mdp is None else environment.mdp.truth
        self._actions = np.zeros((known.horizon, known.states), dtype=np.int64)
        self._path = np.zeros(known.horizon + 1, dtype=np.int64)
        self._bonus, self._reward = np.zeros(known.horizon), np.zeros(known.horizon)
        self._achieved = np.zeros((2, known.states))
        self._at_rest = environment.translate.at_rest
        size = environment.action.size
        self._decoded = [environment.action.decode(a) for a in range(size)] if size <= _MOST_DECODED else None
        self._block, self._seeds = -1, np.zeros(0, dtype=np.int64)
        self._evaluated = False
        self.waiting = False  # for the environment
        self._noted_later = 0  # episodes that advance() has not been told of

    def reset_seed(self, episode: int) -> int:
        """Return the seed that an episode's reset is given: an address, so that no environment needs to be stored."""
        block, place = divmod(episode, BLOCK)
        if block != self._block:
            self._block = block
            self._seeds = seeding.stream(self.seed, "environment", "reset", block).integers(2**31, size=BLOCK)
        return int(self._seeds[place])

    def play(self, *, allow_truncation: bool) -> Episode:
        """Play the next episode and learn from it; call :meth:`advance` when some were played."""
        k, walk = self.episode, self.walk
        start = self._reset(k)
        if k % ROOM == 0 or walk.played + self._noted_later == 0:  # the same times, however a run is cut
            walk.reserve(ROOM)
        news = open_episode(walk.model, walk.state, start, self.key, k, self._actions)
        regret = self._regret(start, bool(news & CHANGED))
        steps, realised, ended, fault = self._steps(start, allow_truncation)
        rows = self._at_rest, self._path, self._bonus, self._reward, self._actions
        mapped = close_episode(walk.model, walk.state, *rows, steps, ended)
        self.episode += 1
        self._noted_later += 1
        self.steps += steps
        if not ended and steps < self._bonus.size:
            self.cut_short.append(self.episode)
        return Episode(bool(news & PLANNED), regret, float(mapped), realised, steps, fault)

    def _reset(self, episode: int) -> int:
        self.waiting = True
        try:
            return self.environment.reset(self.reset_seed(episode))
        except EnvironmentFault as error:
            raise located(error, (episode,)) from error
        except Exception as error:  # of someone else's environment, which may raise anything
            raise failure(error, self.environment.name, (episode,)) from error
        finally:
            self.waiting = False

    def _steps(self, s: int, allow_truncation: bool) -> tuple[int, float, bool, BaseException | None]:
        """Step through an episode; return the number of steps, the sum of rewards, whether it ended, what cut it short.

        Only what passed every check is entered: a step that is refused leaves no trace.
        """
        environment, actions, path = self.environment, self._actions, self._path
        step, translate, decoded, decode = (
            environment.env.step,
            environment.translate,
            self._decoded,
            environment.action.decode,
        )
        horizon, k = actions.shape[0], self.episode
        realised, h, self.waiting = 0.0, 0, True
        path[0] = s
        try:
            while h < horizon:
                a = actions.item(h, s)
                observation, reward, terminated, truncated, _ = step(decode(a) if decoded is None else decoded[a])
                reward = float(reward)
                s, self._bonus[h], self._reward[h] = translate(s, a, observation, reward, bool(terminated))
                h += 1
                path[h] = s
                realised += reward
                if terminated:
                    return h, realised, True, None
                if truncated and h < horizon:
                    short = EpisodeCutShort(
                        environment.name,
                        index=(k, h - 1),
                        got=f"an episode truncated after {h} steps",
                        expected=f"{horizon} steps or termination; allow_truncation=True learns from such episodes",
                    )
                    return h, realised, False, None if allow_truncation else short
        except EnvironmentFault as error:
            return h, realised, False, located(error, (k, h))
        except KeyboardInterrupt as error:  # a second Ctrl-C: the environment may hang
            return h, realised, False, error
        except Exception as error:  # of someone else's environment, which may raise anything
            return h, realised, False, failure(error, environment.name, (k, h))
        finally:
            self.waiting = False
        return h, realised, False, None

    def _regret(self, start: int, changed: bool) -> float:
        if self._truth is None:
            return float("nan")
        if changed or not self._evaluated:
            value_of_policy(self.walk.model, self.walk.state, self._truth, self._achieved)
            self._evaluated = True
        return float(self._truth.optimal_values[0, start] - self._achieved[0, start])

    def replay(self, steps: int, realised: float) -> None:
        """Play the last episode once more, with the same seed and actions; refuse an environment that differs."""
        k, environment = self.episode - 1, self.environment
        path: Ints = self._path[: steps + 1]
        again, total = [self._reset(k)], 0.0
        try:
            self.waiting = True
            for h in range(steps):
                a = int(self._actions[h, path[h]])
                observation, reward, terminated, _, _ = environment.env.step(environment.action.decode(a))
                total += float(reward)
                again.append(environment.translate(int(path[h]), a, observation, float(reward), bool(terminated))[0])
                if again[-1] != path[h + 1]:
                    break
        except Exception as error:  # of someone else's environment, which may raise anything
            raise failure(error, environment.name, (k,)) from error
        finally:
            self.waiting = False
        if again != path.tolist() or total != realised:
            got = f"states {path.tolist()[:8]} and, again, {again[:8]}; returns {realised:g} and {total:g}"
            expected = "the same episode from the same reset seed and actions; replay=False learns all the same"
            raise SeedIgnored(environment.name, index=(k,), got=got, expected=expected)

    def wants_replay(self, first: int) -> bool:
        """Say whether the episode just played is one that is played twice: the first of a call, and 1, 2, 4, 8, ..."""
        return self.episode - 1 == first or self.episode - 1 in _REPLAYED

    def advance(self, played: list[Episode]) -> None:
        """Take note of episodes played since the last call, all of one phase."""
        if not played:
            return
        self._noted_later = 0
        regret = np.array([each.regret for each in played])
        plans = sum(each.planned for each in played)
        self.recorder.add(regret, np.array([each.realised for each in played]))
        self.plans += plans
        phase = self.walk.phase
        self.walk.advance(plans, np.array([each.mapped for each in played]), regret)
        self._evaluated = self._evaluated and self.walk.phase is phase

    def result(self) -> Learned:
        """Return everything up to here."""
        environment = self.environment
        place = Place(
            name=environment.name,
            known=environment.known,
            rewards=environment.rewards,
            observation=environment.observation,
            action=environment.action,
            exact=environment.mdp is not None,
            why_not=environment.why_not,
        )
        return Learned(
            label=type(self.agent).__name__,
            place=place,
            seed=self.seed,
            steps=self.steps,
            cut_short=tuple(self.cut_short),
            plans=self.plans,
            wall_time=self.before + time.perf_counter() - self.began,
            agent=self.agent,
            walk=self.walk,
            recorder=self.recorder,
        )


def located(error: EnvironmentFault, index: tuple[int, ...]) -> EnvironmentFault:
    """Return an error with the episode and step in which it happened."""
    return type(error)(error.field, got=error.got, expected=error.expected, index=index)


def failure(error: Exception, name: str, index: tuple[int, ...]) -> EnvironmentFailure:
    """Return the error for an exception of the environment's own, with that as its cause."""
    made = EnvironmentFailure(
        name, index=index, got=f"{type(error).__name__}: {error}", expected="a step without error"
    )
    made.__cause__ = error
    return made
