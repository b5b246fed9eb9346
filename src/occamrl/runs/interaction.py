"""Step by step: the functions of the fused loop, driven from Python.

For environments that are not tables (and for tests: given the same transitions, the states agree with the fused loop's
to the bit).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from occamrl import seeding
from occamrl.contracts import Agent, Known
from occamrl.errors import OccamRLError, ParameterError, RewardError
from occamrl.kernels.compile import hot
from occamrl.kernels.episodes import PLANNED, act, hear, observe, plan, planned_value
from occamrl.runs.phases import PhaseWalk

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
