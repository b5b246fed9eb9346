"""Episodes in a real environment, one at a time: played, learned from and accounted for.

Whatever the environment does, an episode is closed before an error leaves: the transitions that were seen before it are
learned, nothing else is, and the next episode can begin.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from occamrl import seeding
from occamrl._core.compile import hot
from occamrl._core.loop import (
    CHANGED,
    PLANNED,
    act,
    close_episode,
    hear,
    observe,
    open_episode,
    plan,
    planned_value,
    value_of_policy,
)
from occamrl.envs.wrapper import FiniteEnvironment
from occamrl.errors import (
    EnvironmentFailure,
    EnvironmentFault,
    EpisodeCutShort,
    OccamRLError,
    ParameterError,
    RewardError,
    SeedIgnored,
    require_integer,
)
from occamrl.protocols import Agent, Ints, Known
from occamrl.running.phases import PhaseWalk, Recorder
from occamrl.running.result import Learned, Place

# ----------------------------------------------------------------------------------------------------
# Step by step: the functions of the fused loop, driven from Python.
#
# For environments that are not tables (and for tests: given the same transitions, the states agree with the fused loop's
# to the bit).


_ROOM = 64  # episodes reserved at a time
ROUNDING = 1e-6  # how far a reward may be from the known one


@hot
def _plan(model: Any, state: Any, start: int, key: np.uint64, episode: int) -> int:
    return plan(model, state, start, key, episode)


@hot
def _act(model: Any, state: Any, h: int, s: int) -> int:
    return act(model, state, h, s)


@hot
def _observe(model: Any, state: Any, h: int, s: int, a: int, bonus: float, s2: int) -> None:
    observe(model, state, h, s, a, bonus, s2)


@hot
def _hear(model: Any, state: Any, h: int, s: int, a: int, reward: float) -> None:
    hear(model, state, h, s, a, reward)


@hot
def _planned_value(model: Any, state: Any, s: int) -> float:
    return planned_value(model, state, s)


class Interaction:
    """An agent at work on an environment that someone else steps.

    Call ``begin(state)``, then ``act()`` and ``record(reward, next_state)`` H times, then ``begin`` again. An episode
    that ends early is closed by ``begin`` as well: steps that were not taken give no rows. An environment whose rewards
    are not known is given as ``Known.of_sizes(...)``, to an agent that estimates them.
    """

    def __init__(self, agent: Agent, known: Known, *, seed: int = 0) -> None:
        if not isinstance(known, Known):
            raise ParameterError("known", got=type(known).__name__, expected="what mdp.known gives")
        self.known = known
        self.walk = PhaseWalk(agent, known)
        self.agent_key = seeding.key(seed, "agent")
        self.episode = 0  # finished ones
        self._step: int | None = None  # of the episode under way
        self._state = 0
        self._plans = 0
        self._returned = 0.0

    def begin(self, state: int) -> None:
        """Begin an episode in ``state``."""
        if self._step is not None:
            self.end()
        if self.episode % _ROOM == 0 or self.walk.played == 0:
            self.walk.reserve(_ROOM)
        self._state = self._valid(state)
        news = _plan(self.walk.model, self.walk.state, self._state, self.agent_key, self.episode)
        self._plans = int(bool(news & PLANNED))
        self._step = 0
        self._returned = 0.0

    def act(self) -> int:
        """Return the action for the current state."""
        return int(_act(self.walk.model, self.walk.state, self._open_step(), self._state))

    def record(self, reward: float, next_state: int) -> None:
        """Learn from the transition that followed the agent's action."""
        h = self._open_step()
        number = isinstance(reward, (int, float, np.integer, np.floating)) and not isinstance(reward, bool)
        if not (number and np.isfinite(reward) and 0.0 <= reward <= 1.0):
            raise RewardError("reward", index=(self.episode, h), got=repr(reward), expected="a number in [0, 1]")
        base = float(self.known.base_reward[self._state, self.act()])
        bonus = float(reward) - base
        if not self.known.rewards_known:
            bonus = 0.0
        elif self.known.transition_rewards is None:
            if abs(bonus) > ROUNDING:
                at = (self.episode, h)
                raise RewardError("reward", index=at, got=reward, expected=f"{base}, the known reward of (s, a)")
            bonus = 0.0  # rounding in an environment's own sum must not become a target
        self.record_bonus(bonus, next_state, reward=float(reward))

    def record_bonus(self, bonus: float, next_state: int, *, reward: float | None = None) -> None:
        """Learn from a transition whose mean reward is base_reward[s, a] + bonus; ``reward`` came, if not that one."""
        h, a, s2 = self._open_step(), self.act(), self._valid(next_state)
        mean = float(self.known.base_reward[self._state, a]) + bonus
        came = mean if reward is None else reward
        if not all(-ROUNDING <= each <= 1.0 + ROUNDING for each in (mean, came)):
            raise RewardError("bonus", index=(self.episode, h), got=bonus, expected="one that leaves rewards in [0, 1]")
        _hear(self.walk.model, self.walk.state, h, self._state, a, came)
        _observe(self.walk.model, self.walk.state, h, self._state, a, bonus, s2)
        self._returned += came
        self._state = s2
        self._step = h + 1
        if self._step == self.known.horizon:
            self.end()

    def end(self) -> None:
        """Close the episode under way."""
        if self._step is None:
            return
        self._step = None
        self.episode += 1
        self.walk.advance(self._plans, np.array([self._returned]), np.array([np.nan]))

    def planned_value(self, state: int) -> float:
        """Return the value the agent planned for, from ``state`` at the first step."""
        return float(_planned_value(self.walk.model, self.walk.state, self._valid(state)))

    def _open_step(self) -> int:
        if self._step is None:
            raise OccamRLError("no episode is under way; call begin(state) first")
        return self._step

    def _valid(self, state: int) -> int:
        if isinstance(state, bool) or not isinstance(state, (int, np.integer)) or not 0 <= state < self.known.states:
            raise ParameterError("state", got=repr(state), expected=f"an integer in [0, {self.known.states})")
        return int(state)


# ----------------------------------------------------------------------------------------------------
# Episodes in a real environment, one at a time: played, learned from and accounted for.


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
