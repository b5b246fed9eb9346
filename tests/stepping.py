"""Episodes with transitions of one's own choice: what an environment does, without an environment."""

from __future__ import annotations

import numpy as np

from occamrl import seeding
from occamrl.protocols import Agent, Known
from occamrl.running.phases import PhaseWalk


class Steps:
    """An agent, one transition at a time; it learns when its episode is over, or when the next one begins."""

    def __init__(self, agent: Agent, known: Known, *, seed: int = 0) -> None:
        self.known, self.walk, self.key = known, PhaseWalk(agent, known), seeding.key(seed, "agent")
        self.episode, self.h, self.plans = 0, 0, 0
        self.path = np.zeros(known.horizon + 1, dtype=np.int64)
        self.actions = np.zeros((known.horizon, known.states), dtype=np.int64)
        self.bonus, self.reward = np.zeros(known.horizon), np.zeros(known.horizon)

    def begin(self, state: int) -> None:
        if self.h:
            self.end()
        self.walk.player.reserve(1)
        self.plans = self.walk.player.open(state, self.key, self.episode, self.actions) & 1
        self.path[0] = state

    def act(self) -> int:
        return int(self.actions[self.h, self.path[self.h]])

    def record(self, next_state: int, *, bonus: float = 0.0, reward: float | None = None) -> None:
        base = float(self.known.base_reward[self.path[self.h], self.act()])
        self.bonus[self.h], self.reward[self.h] = bonus, base + bonus if reward is None else reward
        self.h += 1
        self.path[self.h] = next_state
        if self.h == self.known.horizon:
            self.end()

    def end(self) -> None:
        at_rest = np.zeros(self.known.states * self.known.actions)
        rows = at_rest, self.path, self.bonus, self.reward, self.actions
        total = self.walk.player.close(*rows, self.h, False)
        self.episode, self.h = self.episode + 1, 0
        self.walk.advance(self.plans, np.array([total]), np.array([np.nan]))
