"""Logged rows as outcomes of the models: which entry of the outcome lists each row is (M20)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from occamrl.contracts import Floats, Ints, Known, Outcomes
from occamrl.environments.tables import RewardMap
from occamrl.families.simulators import pair_of_outcome
from occamrl.logs.episodes import Log, LogError, refuse_first

_ROUNDING = 1e-6  # how far a reward may be from the known one, in the unit of [0, 1]


class Matched(NamedTuple):
    """The rows of a log, as the formulas need them."""

    h: Ints  # [n] step modulo H: an episode that is longer than the horizon goes on as if it began anew
    pair: Ints  # [n] s*A + a
    outcome: Ints  # [n] index into the outcomes of the models; -1: no model allows it
    begin: Ints  # [K + 1] first row of each episode
    start: Ints  # [K] its initial state

    def head(self, episodes: int) -> Matched:
        """Return the first episodes."""
        rows = int(self.begin[episodes])
        return Matched(
            self.h[:rows], self.pair[:rows], self.outcome[:rows], self.begin[: episodes + 1], self.start[:episodes]
        )


def match_rows(
    log: Log, known: Known, outcomes: Outcomes, rewards: RewardMap, *, check_rewards: bool = True
) -> Matched:
    """Find every row of a log among the outcomes of the models.

    A transition that no model allows is marked, not refused: it says that the truth is outside the ladder.

    Raises
    ------
    LogError
        A state or action that does not exist, a reward that is not the known one, an end where the models have none.
    """
    for name, limit in (("state", known.states), ("action", known.actions), ("next_state", known.states)):
        column = getattr(log, name)
        refuse_first(name, column >= limit, column, f"one of 0..{limit - 1}, as in the models")
    pair = log.state * known.actions + log.action
    target = _ends(log, known, outcomes)
    keys = pair_of_outcome(outcomes) * known.states + outcomes.next_state
    order = np.lexsort((outcomes.bonus, keys))
    wanted = pair * known.states + target
    low, high = (np.searchsorted(keys[order], wanted, side=side) for side in ("left", "right"))
    outcome = np.where(low < high, order[np.minimum(low, order.size - 1)], -1)
    base, unit = known.base_reward.ravel()[pair], (log.reward - rewards.low) / rewards.scale
    if check_rewards or (high - low > 1).any():
        miss = np.abs(base + outcomes.bonus[outcome] - unit)
        for offset in range(1, int((high - low).max())):  # several rewards for one next state: the one that was paid
            other = order[np.minimum(low + offset, order.size - 1)]
            better = (low + offset < high) & (np.abs(base + outcomes.bonus[other] - unit) < miss)
            outcome = np.where(better, other, outcome)
            miss = np.abs(base + outcomes.bonus[outcome] - unit)
        _require_rewards(log, (outcome >= 0) & (miss > _ROUNDING), base + outcomes.bonus[outcome], rewards)
    return Matched(log.step % known.horizon, pair, outcome, log.begin, log.state[log.begin[:-1]])


def _require_rewards(log: Log, bad: Any, due: Floats, rewards: RewardMap) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        expected = f"{rewards.low + rewards.scale * due[row]:.6g}, which the models know"
        raise LogError("reward", index=(row,), got=log.reward[row], expected=expected)


def _ends(log: Log, known: Known, outcomes: Outcomes) -> Ints:
    """Return the next states, a termination in a state that goes on being replaced by the models' end.

    Tables of Gymnasium whose last states are no self-loops have a state added, the last, where episodes end.
    """
    if not log.terminated.any():
        return log.next_state
    owner = pair_of_outcome(outcomes) // known.actions
    stirs = np.zeros(known.states, dtype=bool)
    stirs[owner[outcomes.next_state != owner]] = True
    moved = log.terminated & stirs[log.next_state]
    if moved.any() and stirs[-1]:
        row = int(np.argmax(moved))
        got = f"true in state {log.next_state[row]}, where no model ends"
        raise LogError("terminated", index=(row,), got=got, expected="truncated, or models with an end")
    return np.where(moved, known.states - 1, log.next_state)
