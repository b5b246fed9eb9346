r"""UCBVI: optimistic value iteration on counts (Azar, Osband and Munos, ICML 2017, arXiv 1703.05449).

N(s, a) counts visits and P^ is the law of the outcomes seen at (s, a), for all steps together. Before every episode,
for h = H, ..., 1 with V_{H+1} = 0 and W(o) = bonus(o) + V_{h+1}(next state of o),

.. math:: Q_h(s, a) \leftarrow \min\{Q_h(s, a), H, r(s, a) + \hat P W(s, a) + b_h(s, a)\}, \quad
    V_h(s) = \max_a Q_h(s, a),

where Q = H at pairs that were never visited. With L = ln(5 S A T/delta), T = K H and N'_h(s) counting how often s was
the state at step h, the bonuses are

.. math:: b = 7 H L/\sqrt N \quad (Hoeffding), \qquad
    b = \sqrt{\frac{8 L\,Var_{\hat P}(W)}{N}} + \frac{14 H L}{3 N} + \sqrt{\frac 8N \sum_{o} \hat P(o)
    \min\Big\{\frac{100^2 H^3 S^2 A L^2}{N'_{h+1}(s')}, H^2\Big\}} \quad (Bernstein).

The bonus of every (h, s, a) follows the counts of the moment. Algorithms 1 to 4 of the paper; the constants of the
Bernstein bonus also stand in public implementations, those of the Hoeffding bonus were not compared. Rewards are known;
those that depend on the outcome, which the paper does not have, are part of W.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from occamrl._core.compile import hot_inline, implements
from occamrl._core.features import outcome_of
from occamrl._core.loop import CHANGED, PLANNED, Path, follows_policy, learn, plan, planned_value
from occamrl._core.rng import next_uniform
from occamrl.errors import ParameterError, require_choice, require_integers, require_number, require_numbers
from occamrl.protocols import Field, Floats, Ints, Known, Learner, Outcomes

MOST_EPISODES = 2**40
BONUSES = ("hoeffding", "bernstein")


def tabular_outcomes(known: Known) -> Outcomes:
    """Return what may follow every (s, a): the outcomes that the known rewards list, or every state."""
    if not known.rewards_known:
        raise ParameterError("rewards", got="unknown rewards", expected="known ones; see QLearningUCB or UCRLVTRLin")
    if known.transition_rewards is not None:
        parts: list[Any] = [np.require(part, requirements=["C", "W"]) for part in known.transition_rewards]
        return Outcomes(*parts)
    pairs, states = known.states * known.actions, known.states
    start = np.arange(pairs + 1, dtype=np.int64) * states
    return Outcomes(start, np.tile(np.arange(states, dtype=np.int64), pairs), np.zeros(pairs * states))


def table_fields(known: Known) -> list[Field]:
    """Return the fields of a policy and of a stream of random numbers."""
    ends = np.iinfo(np.int64)
    return [
        Field("policy", (known.horizon, known.states), 0, known.actions - 1),
        Field("stream", (3,), ends.min, ends.max),
    ]


def plays_table(kind: type) -> None:
    """Give states of class ``kind`` the usual ``write_policy`` and ``planned_value``: ``policy`` and ``values[0]``."""

    def first_value(model: Any, state: Any, s: int) -> float:
        return float(state.values[0, s])

    follows_policy(kind)
    implements(planned_value, kind, argument=1)(first_value)


@hot_inline
def begin_stream(stream: Ints, key: np.uint64, episode: int) -> None:
    """Set a stream of random numbers to the address (key, episode)."""
    stream[0], stream[1], stream[2] = np.int64(key), episode, 0


@hot_inline
def best_action(q: Floats, first: int, actions: int, stream: Ints) -> int:
    """Return the best of the actions whose values begin at ``first``; among several, each is as likely as another.

    Where values are cut at H, nearly all are equal at first. The smallest action would then be played again and again.
    """
    best, ties = 0, 1
    for a in range(1, actions):
        if q[first + a] > q[first + best]:
            best, ties = a, 1
        elif q[first + a] == q[first + best]:
            ties += 1
            best = a if next_uniform(stream) * ties < 1.0 else best
    return best


@hot_inline
def take_best(h: int, q: Floats, policy: Ints, stream: Ints) -> int:
    """Write the best actions of a step, given its Q [S*A], to ``policy[h]``; return CHANGED if one was another."""
    states = policy.shape[1]
    actions, news = q.size // states, 0
    for s in range(states):
        a = best_action(q, s * actions, actions, stream)
        if policy[h, s] != a:
            policy[h, s] = a
            news = CHANGED
    return news


class UCBVIModel(NamedTuple):
    """Outcomes, rewards and constants."""

    outcomes: Outcomes
    base_reward: Floats  # [S*A]
    log_term: float  # L
    scale: float
    bernstein: bool


class UCBVIState(NamedTuple):
    """Counts, and the plan in play."""

    counts: Ints  # [O] how often each outcome was seen
    visits: Ints  # [H + 1, S] N'
    upper: Floats  # [H, S*A] Q
    values: Floats  # [H + 1, S] V
    policy: Ints  # [H, S]
    stream: Ints  # [3]


plays_table(UCBVIState)


@dataclass(frozen=True, kw_only=True, eq=False)
class UCBVI(Learner):
    r"""Upper confidence bound value iteration for tabular problems; see the module for its formulas.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.UCBVI(episodes=50, scale=0.1), problem, episodes=50)

    Proved: with probability 1 - delta, regret :math:`\tilde O(H\sqrt{SAT})` with the Hoeffding bonus (UCBVI-CH) and
    :math:`\tilde O(\sqrt{HSAT})` with that of Bernstein (UCBVI-BF), for T large enough, if ``scale`` is 1, rewards are
    known and one kernel serves all steps. It is given K. Actions whose values are equal are drawn at random.

    Parameters
    ----------
    episodes : int
        K, of which the bonus needs the logarithm.
    bonus : "bernstein" | "hoeffding"
    delta : float
    scale : float
        Factor of the bonus; below one there is no guarantee.
    """

    guarantee = "valid"
    given = ("K",)

    episodes: int
    bonus: str = "bernstein"
    delta: float = 0.05
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_integers(self, episodes=1)
        require_choice("bonus", self.bonus, BONUSES)
        require_number("delta", self.delta, 0.0, 1.0, open_low=True)
        require_numbers(self, 0.0, 1e6, "scale")

    def model(self, known: Known) -> UCBVIModel:
        """Return the constants of the compiled functions."""
        pairs = known.states * known.actions
        log_term = math.log(5.0 * pairs * self.episodes * known.horizon / self.delta)
        reward = np.require(known.base_reward.ravel(), requirements="W")
        bernstein = self.bonus == "bernstein"
        return UCBVIModel(tabular_outcomes(known), reward, log_term, float(self.scale), bernstein)

    def fields(self, known: Known, state: Any = None) -> list[Field]:
        """Return what the arrays of a state hold."""
        H, S, most = known.horizon, known.states, MOST_EPISODES * known.horizon
        return [
            Field("counts", (tabular_outcomes(known).next_state.size,), 0, most),
            Field("visits", (H + 1, S), 0, most),
            Field("upper", (H, S * known.actions), -1.0, float(H), float(H)),
            Field("values", (H + 1, S), -1.0, float(H)),
            *table_fields(known),
        ]

    def begin(self, known: Known) -> UCBVIState:
        """Return a fresh state."""
        return UCBVIState(*(each.make() for each in self.fields(known)))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Small instances on a problem, for the contract checks."""
        return [cls(episodes=200, scale=0.01), cls(episodes=200, bonus="hoeffding", scale=0.1)]


@hot_inline
def optimistic(model: UCBVIModel, counts: Ints, after: Ints, values: Floats, sa: int, horizon: int) -> float:
    """Return r + P^ W + b, given N' ``after`` [S] and V ``values`` [S] of the next step; H if (s, a) is new."""
    outcomes, ceiling = model.outcomes, float(horizon)
    first, last = outcomes.start[sa], outcomes.start[sa + 1]
    total, mean = 0, 0.0
    for o in range(first, last):
        total += counts[o]
        mean += counts[o] * (outcomes.bonus[o] + values[outcomes.next_state[o]])
    if total == 0:
        return ceiling
    n, states, length = float(total), values.size, model.log_term
    mean /= n
    if not model.bernstein:
        return float(model.base_reward[sa] + mean + model.scale * 7.0 * ceiling * length / math.sqrt(n))
    actions = model.base_reward.size // states
    large = 1e4 * ceiling**3 * float(states) ** 2 * actions * length**2
    variance, correction = 0.0, 0.0
    for o in range(first, last):
        if counts[o] > 0:
            share, s = counts[o] / n, outcomes.next_state[o]
            variance += share * (outcomes.bonus[o] + values[s] - mean) ** 2
            correction += share * (min(large / after[s], ceiling**2) if after[s] > 0 else ceiling**2)
    bonus = math.sqrt(8.0 * length * variance / n) + 14.0 * ceiling * length / (3.0 * n)
    return float(model.base_reward[sa] + mean + model.scale * (bonus + math.sqrt(8.0 * correction / n)))


@implements(plan, UCBVIState, argument=1)
def plan_ucbvi(model: UCBVIModel, state: UCBVIState, start: int, key: np.uint64, episode: int) -> int:
    """Plan before every episode."""
    horizon, states = state.policy.shape
    actions = model.base_reward.size // states
    begin_stream(state.stream, key, episode)
    news = PLANNED
    for h in range(horizon - 1, -1, -1):
        q = state.upper[h]
        for sa in range(model.base_reward.size):
            found = optimistic(model, state.counts, state.visits[h + 1], state.values[h + 1], sa, horizon)
            q[sa] = min(q[sa], found)
        news |= take_best(h, q, state.policy, state.stream)
        for s in range(states):
            state.values[h, s] = q[s * actions + state.policy[h, s]]
    return news


@implements(learn, UCBVIState, argument=1)
def learn_ucbvi(model: UCBVIModel, state: UCBVIState, path: Path, steps: int) -> None:
    """Count."""
    actions = model.base_reward.size // state.values.shape[1]
    for h in range(steps):
        sa, after = path.states[h] * actions + path.actions[h], path.states[h + 1]
        o = outcome_of(model.outcomes, sa, after, path.bonus[h], False)
        if o >= 0:
            state.counts[o] += 1
            state.visits[h + 1, after] += 1
