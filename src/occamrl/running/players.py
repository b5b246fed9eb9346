"""A learner at play: the same few calls for a compiled learner and for one in plain NumPy.

A source of episodes is either the simulator, which needs ``simulate`` alone, or an environment that somebody else
steps, which needs ``open`` before an episode, ``close`` after it and ``evaluate`` where the truth is known.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from occamrl._core.arena import model_of, require_fields
from occamrl._core.bellman import all_policy_values, policy_values
from occamrl._core.loop import (
    CHANGED,
    PLANNED,
    close_episode,
    draw_episode,
    draw_first_state,
    holds_actions,
    open_episode,
    play,
    value_of_policy,
)
from occamrl.errors import ContractError
from occamrl.protocols import Episode, EpisodeLearner, Floats, Ints, Known, Learner, Truth

Keys = tuple[np.uint64, np.uint64]  # of the environment's draws and of the agent's


def scratch(known: Known) -> tuple[Floats, Floats]:
    """Return room for the uniform numbers of an episode and for two rows of values."""
    return np.zeros(known.horizon + 1 + (known.horizon + 1) % 2), np.zeros((2, known.states))


class CompiledPlayer:
    """A learner of compiled functions."""

    def __init__(self, learner: Learner, known: Known, state: Any) -> None:
        self.learner, self.state = learner, state
        self.model = model_of(learner, known)
        require_fields(state, learner.fields(known, state))
        self._uniforms, self._achieved = scratch(known)

    def reserve(self, episodes: int) -> None:
        """Make room in the state for that many episodes."""
        self.state = self.learner.reserve(self.state, episodes)

    def simulate(self, truth: Truth, keys: Keys, first: int, regret: Floats, returns: Floats) -> tuple[int, int]:
        """Play ``regret.size`` simulated episodes; return the numbers of plans and of pessimistic episodes."""
        self.reserve(regret.size)
        return play(self.model, self.state, truth, *keys, first, regret, returns, self._uniforms, self._achieved)

    def open(self, start: int, key: np.uint64, episode: int, actions: Ints) -> int:
        """Begin an episode in ``start`` and write its policy to ``actions`` [H, S]; return PLANNED | CHANGED bits."""
        self._actions = actions
        return open_episode(self.model, self.state, start, key, episode, actions)

    def close(
        self, at_rest: Floats, path: Ints, bonus: Floats, reward: Floats, actions: Ints, steps: int, ended: bool
    ) -> float:
        """Learn from the first ``steps`` steps, as :func:`close_episode` does; return the sum of rewards."""
        return close_episode(self.model, self.state, at_rest, path, bonus, reward, actions, steps, ended)

    def evaluate(self, truth: Truth) -> Any:
        """Return the value V^{pi_k}_1 [S] of the policy in play."""
        value_of_policy(self.model, self.state, truth, self._actions, self._achieved)
        return self._achieved[0]


class PlainPlayer:
    """A learner in plain NumPy: Python plans and learns, compiled code draws episodes and evaluates policies.

    ``plan`` is called before every episode, so every episode counts as a plan.
    """

    def __init__(self, learner: EpisodeLearner, known: Known, state: Any) -> None:
        self.learner, self.known, self.state = learner, known, state
        self.planned_value = math.nan
        self._policy: Any = None  # the policy in play, as it was returned
        self._checked = b""  # its bytes
        self._uniforms, self._achieved = scratch(known)
        self._key, self._bits = np.uint64(0), np.random.Philox(key=0)
        self._draw, self._address = np.random.Generator(self._bits), self._bits.state

    def reserve(self, episodes: int) -> None:
        """Do nothing: the state of a learner in plain NumPy grows by itself."""

    def simulate(self, truth: Truth, keys: Keys, first: int, regret: Floats, returns: Floats) -> tuple[int, int]:
        """Play ``regret.size`` simulated episodes; return the numbers of plans and of pessimistic episodes."""
        (environment_key, agent_key), horizon = keys, self.known.horizon
        actions = np.zeros((horizon, self.known.states), dtype=np.int64)
        best, achieved, bonus, pessimistic = truth.optimal_values[0].tolist(), [], np.zeros(horizon), 0
        for k in range(regret.size):
            episode = first + k
            start = draw_first_state(truth.initial_cumulative, environment_key, episode, self._uniforms)
            if self.open(start, agent_key, episode, actions) & CHANGED or k == 0:
                achieved = self.evaluate(truth).tolist()
            regret[k] = best[start] - achieved[start]
            pessimistic += self.planned_value < best[start] - 1e-9 * horizon
            path, taken = np.empty(horizon + 1, dtype=np.int64), np.empty(horizon, dtype=np.int64)
            rewards = np.empty(horizon)
            path[0] = start
            numbers = environment_key, episode, self._uniforms
            returns[k] = draw_episode(truth, *numbers, actions, path, taken, bonus, rewards)
            self._learn(Episode(path, taken, rewards))
        return regret.size, pessimistic

    def open(self, start: int, key: np.uint64, episode: int, actions: Ints) -> int:
        """Begin an episode in ``start`` and write its policy to ``actions`` [H, S]; return PLANNED | CHANGED bits."""
        if key != self._key:
            self._key = self._address["state"]["key"][0] = key
        self._address["state"]["counter"][3] = episode
        self._bits.state = self._address
        planned = self.learner.plan(self.known, self.state, start, self._draw)
        policy, value = planned if isinstance(planned, tuple) else (planned, math.nan)
        self.planned_value = float(value)
        policy = np.ascontiguousarray(policy)
        content = policy.tobytes()
        changed = content != self._checked or self._policy is None or policy.ndim != self._policy.ndim
        if changed:
            self._policy, self._checked = self._sound(policy).copy(), content
        if self._policy.ndim == 2:
            actions[...] = self._policy
        else:  # the action of every (h, s) is drawn beforehand; an episode visits each at most once
            passed = self._draw.random((*actions.shape, 1)) >= self._policy.cumsum(axis=2)[:, :, :-1]
            actions[...] = passed.sum(axis=2)
        return PLANNED | CHANGED if changed else PLANNED

    def _sound(self, policy: Any) -> Any:
        """Return a policy that compiled code may follow."""
        sizes = self.known.horizon, self.known.states, self.known.actions
        if policy.shape == sizes[:2] and policy.dtype.kind in "iu":
            policy = policy.astype(np.int64)
            if holds_actions(policy, self.known.actions):
                return policy
        elif policy.shape == sizes and policy.dtype.kind == "f":
            policy = policy.astype(np.float64)
            if (policy >= 0.0).all() and np.allclose(policy.sum(axis=2), 1.0, rtol=0.0, atol=1e-9):
                return policy
        raise ContractError(
            f"{type(self.learner).__name__}.plan returned {policy.dtype}{list(policy.shape)}; expected actions in "
            f"[0, {sizes[2]}) as integers {list(sizes[:2])}, or their probabilities {list(sizes)}"
        )

    def close(
        self, at_rest: Floats, path: Ints, bonus: Floats, reward: Floats, actions: Ints, steps: int, ended: bool
    ) -> float:
        """Learn from the first ``steps`` steps and, after an episode that ``ended``, from rest; return the sum."""
        s = int(path[steps])
        taken = [int(actions[h, path[h]]) for h in range(steps)]
        states, rewards = path[: steps + 1].tolist(), reward[:steps].tolist()
        for h in range(steps, self.known.horizon if ended else steps):
            taken.append(int(actions[h, s]))
            states.append(s)
            rewards.append(float(at_rest[s * self.known.actions + taken[-1]]))
        came = np.array(rewards, dtype=np.float64)
        self._learn(Episode(np.array(states, dtype=np.int64), np.array(taken, dtype=np.int64), came))
        return float(came.cumsum()[-1]) if came.size else 0.0

    def evaluate(self, truth: Truth) -> Any:
        """Return the value V^{pi_k}_1 [S] of the policy in play."""
        kernel = truth.outcomes, truth.probability, truth.base_reward
        if self._policy.ndim == 3:
            return all_policy_values(*kernel, self._policy)[0]
        policy_values(*kernel, self._policy, self._achieved)
        return self._achieved[0]

    def _learn(self, episode: Episode) -> None:
        after = self.learner.learn(self.known, self.state, episode)
        if after is not None:
            self.state = after


Player = CompiledPlayer | PlainPlayer


def player(learner: Learner | EpisodeLearner, known: Known, state: Any) -> Player:
    """Return the player of a learner, whichever kind it is."""
    if isinstance(learner, Learner):
        return CompiledPlayer(learner, known, state)
    return PlainPlayer(learner, known, state)
