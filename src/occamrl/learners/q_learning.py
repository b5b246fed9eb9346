r"""Q-learning with upper confidence bounds (Jin, Allen-Zhu, Bubeck and Jordan, NeurIPS 2018, arXiv 1807.03765v1).

Its algorithm 1, UCB-Hoeffding, as recalled: the paper's own text was not at hand for a comparison.

Q_h(s, a) = H at first. At step h of an episode a_h is greedy; when it was taken at s_h for the t-th time at this step,

.. math:: Q_h(s_h, a_h) \leftarrow (1 - \alpha_t) Q_h(s_h, a_h) + \alpha_t\big(r_h + V_{h+1}(s_{h+1}) + b_t\big), \quad
    \alpha_t = \frac{H + 1}{H + t}, \quad b_t = c\sqrt{H^3\iota/t},

with V_h(s) = min{H, max_a Q_h(s, a)}, V_{H+1} = 0 and iota = ln(S A T/delta), T = K H.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from occamrl._core.compile import hot_inline, implements
from occamrl._core.loop import PLANNED, Path, follows_policy, learn, plan, planned_value
from occamrl.errors import require_integers, require_number, require_numbers
from occamrl.learners.ucbvi import MOST_EPISODES, begin_stream, table_fields, take_best
from occamrl.protocols import Field, Floats, Ints, Known, Learner


class QLearningModel(NamedTuple):
    """The bonus."""

    bonus: float  # b_1


class QLearningState(NamedTuple):
    """The table of values, and the policy in play."""

    upper: Floats  # [H, S*A] Q
    visits: Ints  # [H, S*A] t
    policy: Ints  # [H, S]
    stream: Ints  # [3]


follows_policy(QLearningState)


@dataclass(frozen=True, kw_only=True, eq=False)
class QLearningUCB(Learner):
    r"""Optimistic Q-learning with the Hoeffding bonus (UCB-H); see the module for its formulas.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.QLearningUCB(episodes=50, scale=0.01), problem, episodes=50)

    Proved: with probability 1 - delta, regret :math:`O(\sqrt{H^4 SAT\iota})` for an absolute constant c that the paper
    leaves open, also where every step has a kernel of its own. It keeps no model and takes rewards as they come, so
    that they need not be known. It is given K. Actions whose values are equal are drawn at random.

    Parameters
    ----------
    episodes : int
        K, of which the bonus needs the logarithm.
    delta : float
    scale : float
        c.
    """

    guarantee = "valid, c left open"
    given = ("K",)

    episodes: int
    delta: float = 0.05
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_integers(self, episodes=1)
        require_number("delta", self.delta, 0.0, 1.0, open_low=True)
        require_numbers(self, 0.0, 1e6, "scale")

    def model(self, known: Known) -> QLearningModel:
        """Return the constants of the compiled functions."""
        steps = known.states * known.actions * known.horizon
        iota = math.log(steps * self.episodes / self.delta)
        return QLearningModel(self.scale * math.sqrt(float(known.horizon) ** 3 * iota))

    def fields(self, known: Known, state: Any = None) -> list[Field]:
        """Return what the arrays of a state hold."""
        shape, first = (known.horizon, known.states * known.actions), float(known.horizon)
        return [
            Field("upper", shape, -1.0, first + self.model(known).bonus + 2.0, first),
            Field("visits", shape, 0, MOST_EPISODES),
            *table_fields(known),
        ]

    def begin(self, known: Known) -> QLearningState:
        """Return a fresh state."""
        return QLearningState(*(each.make() for each in self.fields(known)))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Small instances on a problem, for the contract checks."""
        return [cls(episodes=200, scale=0.01)]


@hot_inline
def value_of(upper: Floats, h: int, s: int, states: int) -> float:
    """Return V_h(s), h from 0."""
    horizon, actions = upper.shape[0], upper.shape[1] // states
    if h == horizon:
        return 0.0
    best = upper[h, s * actions]
    for a in range(1, actions):
        best = max(best, upper[h, s * actions + a])
    return float(min(best, float(horizon)))


@implements(plan, QLearningState, argument=1)
def plan_q_learning(model: QLearningModel, state: QLearningState, start: int, key: np.uint64, episode: int) -> int:
    """Read the greedy policy from the table."""
    begin_stream(state.stream, key, episode)
    news = PLANNED
    for h in range(state.policy.shape[0]):
        news |= take_best(h, state.upper[h], state.policy, state.stream)
    return news


@implements(learn, QLearningState, argument=1)
def learn_q_learning(model: QLearningModel, state: QLearningState, path: Path, steps: int) -> None:
    """Move the values of the pairs visited; V of the next step is the one from before this episode."""
    horizon, states = state.policy.shape
    actions = state.upper.shape[1] // states
    for h in range(steps):
        sa = path.states[h] * actions + path.actions[h]
        state.visits[h, sa] += 1
        t = float(state.visits[h, sa])
        rate = (horizon + 1.0) / (horizon + t)
        target = path.reward[h] + value_of(state.upper, h + 1, path.states[h + 1], states) + model.bonus / math.sqrt(t)
        state.upper[h, sa] += rate * (target - state.upper[h, sa])


@implements(planned_value, QLearningState, argument=1)
def planned_value_q_learning(model: QLearningModel, state: QLearningState, s: int) -> float:
    """V_1(s)."""
    return value_of(state.upper, 0, s, state.policy.shape[1])
