"""What a step of an environment means to a learner: the next state and the reward, in [0, 1], checked.

Termination leads to a state where nothing more is earned: the environment's own if the model has the end there,
otherwise one that is added, the last. Rewards that are known are held against what is known of them. Rewards that are
not known, or scatter around what is known, have to lie in the stated range; each is told as it came. Every kind of
transition is checked once, then looked up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from occamrl.contracts import Floats, Known
from occamrl.environments.misbehaviour import EnvironmentReward, TableError
from occamrl.environments.spaces import Codec
from occamrl.environments.tables import RewardMap
from occamrl.errors import ParameterError
from occamrl.problems.finite_mdp import FiniteMDP

ROUNDING = 1e-6  # how far a reward may be from the known one, in the learner's unit: it may come in 32 bits
_MOST_REMEMBERED = 2**18
_ONE_MORE = "`known` with one state more, for the end of an episode"


class Transition(NamedTuple):
    """One step, as the learner sees it."""

    next_state: int
    bonus: float  # the known reward of this outcome less base_reward[s, a]; 0 where rewards are not known
    reward: float  # what came, in [0, 1]


class Translation:
    """The transitions of one environment.

    Parameters
    ----------
    name
        Of the environment, for errors.
    observation
        Observations as integers.
    known
        What the learner knows.
    rewards
        The environment's own unit.
    mdp
        The truth, where it is known.
    """

    def __init__(
        self, name: str, observation: Codec, known: Known, rewards: RewardMap, mdp: FiniteMDP | None = None
    ) -> None:
        self.name, self.observation, self.known, self.rewards, self.mdp = name, observation, known, rewards, mdp
        self.end = observation.size if known.states > observation.size else -1
        self.scatter = not known.rewards_known or (mdp is not None and mdp.reward_noise is not None)
        if self.end >= 0 and not known.rewards_known and not rewards.low <= 0.0 <= rewards.high:
            raise ParameterError("reward_range", got=tuple(rewards), expected="0 in it, earned after the end")
        self.resting = self._resting_states()
        self._remembered: dict[tuple[int, int, Any, Any, bool], Transition] = {}
        self._left: set[int] = set()  # states that a step was made from
        self._ended: set[int] = set()  # states of the environment's own where an episode ended

    @property
    def at_rest(self) -> Floats:
        """What is earned in each (s, a) after the end of an episode, in [0, 1], as a flat array [S*A]."""
        if self.known.rewards_known:
            return np.ascontiguousarray(self.known.base_reward).reshape(-1)
        return np.full(self.known.states * self.known.actions, self.rewards.to_unit(0.0))

    def _resting_states(self) -> frozenset[int]:
        """States of the environment itself where, by the known rewards, nothing more is earned, whatever is done.

        None where there is no table but a state for the end: then every termination leads there. None either where
        neither a table nor rewards are known.
        """
        if self.mdp is None and (self.end >= 0 or not self.known.rewards_known):
            return frozenset()
        known = self.known if self.known.rewards_known or self.mdp is None else self.mdp.known
        zero = self.rewards.to_unit(0.0)
        quiet = np.abs(known.base_reward - zero).max(axis=1) <= ROUNDING
        table = known.transition_rewards
        if table is not None:
            pair = np.repeat(np.arange(table.start.size - 1), np.diff(table.start))
            quiet[np.unique(pair[table.bonus > ROUNDING] // known.actions)] = False
        if self.mdp is not None:
            outcomes = self.mdp.truth.outcomes
            state = np.repeat(np.arange(outcomes.start.size - 1), np.diff(outcomes.start)) // known.actions
            quiet[np.unique(state[outcomes.next_state != state])] = False
        return frozenset(np.flatnonzero(quiet[: self.observation.size]).tolist())

    def __call__(self, s: int, a: int, observation: Any, reward: float, terminated: bool) -> Transition:
        """Return what the learner is told of a step that ``env.step`` reported; ``reward`` is in its own unit."""
        came = self._in_range(reward) if self.scatter else 0.0
        kind = None if self.scatter else reward  # rewards that scatter are no part of what is remembered
        key = (s, a, observation, kind, terminated)
        try:
            found = self._remembered.get(key)
        except TypeError:  # an array: no key
            key = (s, a, self.observation.encode(observation), kind, terminated)
            found = self._remembered.get(key)
        if found is None:
            found = self._translate(s, a, self.observation.encode(observation), reward, terminated)
            if len(self._remembered) >= _MOST_REMEMBERED:  # rewards of a continuum
                self._remembered.clear()
            self._remembered[key] = found
        if not self.scatter:
            return found
        if self.mdp is not None and self.mdp.reward_noise is None:
            self._require_possible(s, a, found.next_state, came)
        return Transition(found.next_state, found.bonus, came)

    def _in_range(self, reward: float) -> float:
        """Return a reward in the learner's unit; rounding in an environment's own sum is no offence."""
        mapped = self.rewards.to_unit(reward)
        if not -ROUNDING <= mapped <= 1.0 + ROUNDING:  # not a number is neither
            low, high = self.rewards
            raise EnvironmentReward("reward", got=reward, expected=f"a number in [{low:g}, {high:g}]")
        return min(1.0, max(0.0, mapped))

    def _translate(self, s: int, a: int, s2: int, reward: float, terminated: bool) -> Transition:
        mapped = self._in_range(reward)
        s2 = self._arrive(s, s2, terminated)
        if self.scatter:
            self._require_possible(s, a, s2, None)
            return Transition(s2, self._expected_bonus(s, a, s2), mapped)
        bonus = self._known_bonus(s, a, s2, mapped)
        seen = float(self.known.base_reward[s, a]) + bonus
        self._require_possible(s, a, s2, seen)
        return Transition(s2, bonus, seen)

    def _arrive(self, s: int, s2: int, terminated: bool) -> int:
        """Return the state that a step led to: the one for the end if the episode ended elsewhere than at rest."""
        self._left.add(s)
        if terminated and s2 in self.resting:
            self._ended.add(s2)
        if self.mdp is None and not self._left.isdisjoint(self._ended):
            state = min(self._left & self._ended)
            got = f"state {state}, where an episode ended and another one went on"
            raise TableError(self.name, got=got, expected=_ONE_MORE)
        if terminated and s2 not in self.resting:
            if self.end < 0:
                why = "where by the known rewards more can be earned"
                why = why if self.known.rewards_known or self.mdp is not None else "and no rewards are known"
                raise TableError(self.name, got=f"an episode that ended in state {s2}, {why}", expected=_ONE_MORE)
            return self.end
        return s2

    def _listed(self, s: int, a: int, s2: int) -> Floats:
        """Return the bonuses that the known rewards list for (s, a, s')."""
        table = self.known.transition_rewards
        if table is None:
            return np.zeros(1)
        at = slice(table.start[s * self.known.actions + a], table.start[s * self.known.actions + a + 1])
        return np.asarray(table.bonus[at][table.next_state[at] == s2])

    def _expected_bonus(self, s: int, a: int, s2: int) -> float:
        """Return the bonus of rewards that scatter around known means; 0 where nothing is known of them."""
        listed = self._listed(s, a, s2)
        if np.ptp(listed) > ROUNDING:
            means = (listed + float(self.known.base_reward[s, a])).tolist()
            got = f"means {means} of ({s}, {a}, {s2}), and rewards that scatter around one of them"
            expected = "one mean; an agent that estimates the rewards needs none, with known=Known.of_sizes(...)"
            raise TableError(self.name, got=got, expected=expected)
        return float(listed[0])

    def _known_bonus(self, s: int, a: int, s2: int, mapped: float) -> float:
        """Return the bonus as the known rewards have it, so that rounding does not become a target."""
        base = float(self.known.base_reward[s, a])
        if self.known.transition_rewards is None:
            if abs(mapped - base) > ROUNDING:
                got, expected = (self.rewards.total(each, 1) for each in (mapped, base))
                raise EnvironmentReward("reward", got=got, expected=f"{expected:g}, the known reward of ({s}, {a})")
            return 0.0
        listed = self._listed(s, a, s2)
        if listed.size == 0:  # no model knows this outcome: what was seen is what it pays
            return mapped - base
        nearest = float(listed[np.abs(listed - (mapped - base)).argmin()])
        if abs(nearest - (mapped - base)) > ROUNDING:
            known = [round(self.rewards.total(base + float(each), 1), 9) for each in listed]
            got = self.rewards.total(mapped, 1)
            raise EnvironmentReward("reward", got=got, expected=f"one of {known}, those known of ({s}, {a}, {s2})")
        return nearest

    def _require_possible(self, s: int, a: int, s2: int, seen: float | None) -> None:
        """Refuse what the environment's own table excludes: a next state, or one with the reward that was seen."""
        if self.mdp is None:
            return
        truth = self.mdp.truth
        pair = s * self.known.actions + a
        at = slice(truth.outcomes.start[pair], truth.outcomes.start[pair + 1])
        possible = truth.outcomes.next_state[at] == s2
        if seen is not None:
            possible &= np.abs(truth.base_reward[pair] + truth.outcomes.bonus[at] - seen) <= ROUNDING
        if not possible.any():
            what = "" if seen is None else f" with reward {self.rewards.total(seen, 1):g}"
            got = f"state {s2}{what} after ({s}, {a})"
            raise TableError(self.name, got=got, expected="an outcome of the environment's own table")
