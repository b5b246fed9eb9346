r"""Tabular baselines: PSRL, UCBVI, RLSVI and optimistic Q-learning; the optimal policy and random actions.

All keep tables. With c_o the count of outcome o at (s, a), n = N(s, a) visits and W(o) = bonus(o) +
V_{h+1}(s'), where the bonus is the part of a known reward that depends on the outcome:

**PSRL**, posterior sampling (Osband, Russo and Van Roy, NeurIPS 2013): draw a kernel from the
posterior, play its optimal policy, count what happened. The prior of each row P(.|s, a) is a
Dirichlet distribution with one parameter for all outcomes, so the posterior is one as well:
Dirichlet(alpha + c). A kernel is drawn before every episode: to play a draw for longer saves
planning and loses the exploration that rare draws are. On *lists* of kernels the posterior of a
member is proportional to w(P) exp(l(P)), l its log-likelihood (:mod:`occamrl.evidence.likelihood`),
w the prior of a ladder. There a draw lasts 2 % of all episodes, which cost no regret where it was
measured. Once every member rules out what was seen, draws are tabular.

**UCBVI** (Azar, Osband and Munos, ICML 2017, arXiv 1703.05449). With L = ln(5 S A T/delta), T = K
H,

.. math:: Q_h(s, a) \leftarrow \min\{Q_h(s, a), H, r(s, a) + \hat P W(s, a) + b_h(s, a)\}, \ Q = H \text{ if } n = 0,

    b = 7 H L/\sqrt n \ \text{(Hoeffding)}, \qquad
    b = \sqrt{\frac{8 L\,\mathrm{Var}_{\hat P}(W)}{n}} + \frac{14 H L}{3 n} + \sqrt{\frac 8n \sum_o \hat P(o)
    \min\Big\{\frac{100^2 H^3 S^2 A L^2}{N'_{h+1}(s')}, H^2\Big\}} \ \text{(Bernstein)},

N'_h(s) counting how often s was the state at step h.

**RLSVI** (Russo, NeurIPS 2019, arXiv 1906.02870v3). With :math:`\beta_k = \frac12 S H^3 \ln(2 H S A
k)`,

.. math:: Q_h(s, a) = r(s, a) + \frac{1}{n + 1}\sum_o c_o W(o) + \xi_h(s, a), \ \xi_h(s, a) \sim N(0, \beta_k/(n+1)).

**Q-learning with upper confidence bounds** (Jin, Allen-Zhu, Bubeck and Jordan, NeurIPS 2018, arXiv 1807.03765v1; its
algorithm 1, UCB-Hoeffding, as recalled). At the t-th visit of (s, a) at step h, with iota = ln(S A T/delta),

.. math:: Q_h(s, a) \leftarrow (1 - \alpha_t) Q_h(s, a) + \alpha_t(r + V_{h+1}(s') + c\sqrt{H^3\iota/t}), \quad
    \alpha_t = \frac{H + 1}{H + t}, \quad V_h(s) = \min\{H, \max_a Q_h(s, a)\}.

Actions whose values are equal are drawn at random: where values are cut at H nearly all are equal
at first, and the smallest action would be played again and again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from occamrl import bellman
from occamrl.errors import (
    ParameterError,
    ShapeError,
    require_choice,
    require_delta,
    require_integer,
    require_number,
    require_rewards,
    require_undiscounted,
)
from occamrl.evidence import likelihood
from occamrl.evidence.likelihood import JEFFREYS, Members
from occamrl.models.ladder import Ladder
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import MOST_EPISODES, Floats, Flow, Ints, Known, Learner, Outcomes, Plan


def tabular_outcomes(known: Known) -> Outcomes:
    """Return what may follow every (s, a): the outcomes that the known rewards list, or every state."""
    require_rewards(known)
    if known.transition_rewards is not None:
        return known.transition_rewards
    pairs, states = known.states * known.actions, known.states
    start = np.arange(pairs + 1) * states
    return Outcomes(start, np.tile(np.arange(states), pairs), np.zeros(pairs * states))


def best_actions(q: Floats, draw: np.random.Generator) -> Ints:
    """Return the best actions over the last axis, ties at random."""
    return np.asarray((draw.random(q.shape) * (q == q.max(axis=-1, keepdims=True))).argmax(axis=-1))


def largest(known: Known) -> Floats:
    """Return the largest value H of every allowed action [H, S, A]; minus infinity of the others."""
    return np.tile(np.where(known.allowed, float(known.horizon), -np.inf), (known.horizon, 1, 1))


# Baselines that learn nothing ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class UniformRandom(Learner):
    """Draw every allowed action uniformly; regret is that of the random policy, exactly.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.UniformRandom(), problem, episodes=50)
    """

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the empty state."""
        return {}

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Return the uniform policy, forever."""
        law = known.allowed / known.allowed.sum(axis=1, keepdims=True)
        return Plan(policy=np.tile(law, (known.horizon, 1, 1)), episodes=MOST_EPISODES)

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Learn nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Optimal(Learner):
    """Follow the optimal policy of ``mdp``; its regret is zero.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.Optimal(mdp=problem.mdp), problem, episodes=50)
    >>> result.total_regret
    0.0
    """

    mdp: FiniteMDP

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the empty state."""
        own, given = ((each.horizon, each.states, each.actions) for each in (self.mdp, known))
        if own != given:
            raise ShapeError("mdp", got=f"H, S, A = {own}", expected=f"the problem's {given}")
        return {}

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Return the optimal policy, forever."""
        return Plan(
            policy=self.mdp.optimal_policy, episodes=MOST_EPISODES, values=self.mdp.optimal_values
        )

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Learn nothing."""


# Posterior sampling -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class PSRL(Learner):
    """Posterior sampling: draw a kernel from the posterior, and play its optimal policy.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.PSRL(), problem, episodes=50)

    The regret is bounded on average over the prior; there is no guarantee for a single truth.

    Parameters
    ----------
    ladder : Ladder, optional
        Nested lists of kernels to draw from, with the prior that gives every class the same weight.
        By default every kernel: rows are drawn from Dirichlet distributions.
    concentration : float
        Of the Dirichlet distributions, for each outcome before any data. 1 is uniform over all
        rows.
    replan : float
        A draw of a member lasts this share of all episodes. 0: draw before every episode.
    """

    guarantee = "on average over its prior"
    given = ("a prior",)

    ladder: Ladder | None = None
    concentration: float = JEFFREYS
    replan: float = 0.02

    def __post_init__(self) -> None:
        require_number(
            "concentration", self.concentration, 0.05, 1e6
        )  # of less, draws could underflow
        require_number("replan", self.replan, 0.0, 1e100)
        if self.ladder is not None and not (isinstance(self.ladder, Ladder) and self.ladder.finite):
            raise ParameterError(
                "ladder", got=repr(self.ladder), expected="a Ladder of lists of kernels"
            )

    def _outcomes(self, known: Known) -> Outcomes:
        return (
            tabular_outcomes(known)
            if self.ladder is None
            else Members.of(self.ladder.family, known).outcomes
        )

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the state before any data: the evidence by likelihood, and the number of episodes."""
        require_rewards(known)
        return {**likelihood.begin(self._outcomes(known)), "episodes": 0}

    def log_posterior(self, known: Known, state: dict[str, Any]) -> Floats:
        """Return the logarithms of the weights of the members, up to a constant; none for the tabular class."""
        if self.ladder is None or len(state["novel"]):
            return np.full(0, -np.inf)
        likelihoods = Members.of(self.ladder.family, known).likelihoods(state["count"])
        return np.asarray(likelihoods + np.log(self.ladder.prior))

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Draw a kernel and solve it."""
        weight, episodes = self.log_posterior(known, state), 1
        if self.ladder is not None and np.isfinite(weight).any():
            member = int((weight + draw.gumbel(size=weight.size)).argmax())
            kernel, episodes = (
                self.ladder.family.kernel_of(member, known),
                max(1, int(self.replan * state["episodes"])),
            )
        else:
            drawn = likelihood.draw_table(state, self._outcomes(known), draw, self.concentration)
            kernel = bellman.kernel_of(*drawn, known)
        values, policy = bellman.solve([kernel], known.states, known.horizon)
        return Plan(policy=policy, values=values, episodes=episodes)

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Count the outcomes of the block."""
        likelihood.add(state, self._outcomes(known), known, flow)
        state["episodes"] += flow.episodes


# Plans before every episode -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class UCBVI(Learner):
    r"""Upper confidence bound value iteration; see the module for its formulas.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.UCBVI(episodes=50, scale=0.1), problem, episodes=50)

    Proved: with probability 1 - delta, regret :math:`\tilde O(H\sqrt{SAT})` with the Hoeffding bonus and
    :math:`\tilde O(\sqrt{HSAT})` with that of Bernstein, for T large enough, if ``scale`` is 1, rewards are known and
    one kernel serves all steps. It is given K.

    Parameters
    ----------
    episodes : int
        K, of which the bonus needs the logarithm.
    bonus : "bernstein" | "hoeffding"
    delta, scale : float
        ``scale`` is a factor of the bonus; below one there is no guarantee.
    """

    guarantee = "valid"
    given = ("K",)

    episodes: int
    bonus: Literal["bernstein", "hoeffding"] = "bernstein"
    delta: float = 0.05
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_integer("episodes", self.episodes, 1)
        require_choice("bonus", self.bonus, ("bernstein", "hoeffding"))
        require_delta(self.delta)
        require_number("scale", self.scale, 0.0, 1e6)

    def begin(self, known: Known) -> dict[str, Any]:
        """Return a fresh state: counts of outcomes, N', and the smallest upper bounds Q so far."""
        require_undiscounted(known)
        visits = np.zeros((known.horizon + 1, known.states), np.int64)
        return {
            **likelihood.begin(tabular_outcomes(known)),
            "visits": visits,
            "upper": largest(known),
        }

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Plan one episode, greedily on the upper bounds."""
        H, S, A = known.horizon, known.states, known.actions
        outcomes, count = tabular_outcomes(known), state["count"]
        start, after, pair = outcomes.start[:-1], outcomes.next_state, outcomes.pair
        n = np.add.reduceat(count, start)
        share = count / np.maximum(n, 1)[pair]
        L = math.log(5.0 * S * A * self.episodes * H / self.delta)
        large, root = 1e4 * H**3 * S**2 * A * L**2, np.sqrt(np.maximum(n, 1))
        q, values = state["upper"].copy(), np.zeros((H + 1, S))
        for h in reversed(range(H)):
            w = outcomes.bonus + values[h + 1, after]
            mean = np.add.reduceat(share * w, start)
            if self.bonus == "hoeffding":
                bonus = 7.0 * H * L / root
            else:
                variance = np.add.reduceat(share * (w - mean[pair]) ** 2, start)
                rare = np.minimum(large / np.maximum(state["visits"][h + 1, after], 1e-9), H**2)
                third = np.sqrt(8.0 * np.add.reduceat(share * rare, start)) / root
                bonus = np.sqrt(8.0 * L * variance) / root + 14.0 * H * L / (3.0 * root**2) + third
            found = np.where(n > 0, known.base_reward.ravel() + mean + self.scale * bonus, float(H))
            q[h] = np.minimum(q[h], found.reshape(S, A))
            values[h] = q[h].max(axis=1)
        return Plan(policy=best_actions(q, draw), values=values, carry=q)

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Count, and keep the upper bounds that the plan was made with: they never rise."""
        state["upper"][:] = plan.carry
        likelihood.add(state, tabular_outcomes(known), known, flow)
        np.add.at(state["visits"], (flow.step + 1, flow.next_state), flow.count)


@dataclass(frozen=True, kw_only=True, eq=False)
class RLSVI(Learner):
    r"""Randomised least-squares value iteration; see the module for its formulas.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.RLSVI(scale=0.01), problem, episodes=50)

    Proved, with counts of each step by itself and ``scale`` 1: expected regret
    :math:`\tilde O(H^3 S^{3/2}\sqrt{AK})` in the worst case. Here one kernel serves all steps, its counts are pooled,
    and rewards are known. It is given nothing. ``scale`` is a factor of the standard deviation of the noise.
    """

    guarantee = "valid for counts per step"
    given = ()

    scale: float = 1.0

    def __post_init__(self) -> None:
        require_number("scale", self.scale, 0.0, 1e6)

    def begin(self, known: Known) -> dict[str, Any]:
        """Return a fresh state: counts of outcomes, and of episodes."""
        require_undiscounted(known)
        return {**likelihood.begin(tabular_outcomes(known)), "episodes": 0}

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Plan one episode on values that are drawn."""
        H, S, A = known.horizon, known.states, known.actions
        outcomes, count = tabular_outcomes(known), state["count"]
        start, n = outcomes.start[:-1], np.add.reduceat(count, outcomes.start[:-1]) + 1.0
        deviation = self.scale * np.sqrt(
            0.5 * S * H**3 * math.log(2.0 * H * S * A * (state["episodes"] + 1)) / n
        )
        policy, values = np.zeros((H, S), dtype=np.int64), np.zeros((H + 1, S))
        for h in reversed(range(H)):
            w = outcomes.bonus + values[h + 1, outcomes.next_state]
            noise = deviation * draw.standard_normal(S * A)
            q = (known.base_reward.ravel() + np.add.reduceat(count * w, start) / n + noise).reshape(
                S, A
            )
            policy[h], values[h] = q.argmax(axis=1), q.max(axis=1)
        return Plan(policy=policy, values=values)

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Count."""
        likelihood.add(state, tabular_outcomes(known), known, flow)
        state["episodes"] += flow.episodes


@dataclass(frozen=True, kw_only=True, eq=False)
class QLearningUCB(Learner):
    r"""Optimistic Q-learning with the Hoeffding bonus (UCB-H); see the module for its formulas.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.QLearningUCB(episodes=50, scale=0.01), problem, episodes=50)

    Proved: with probability 1 - delta, regret :math:`O(\sqrt{H^4 SAT\iota})` for an absolute
    constant c that the paper leaves open, also where every step has a kernel of its own. It keeps
    no model and takes rewards as they come, so that they need not be known. It is given K as
    ``episodes``; ``scale`` is c.
    """

    guarantee = "valid, c left open"
    given = ("K",)

    episodes: int
    delta: float = 0.05
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_integer("episodes", self.episodes, 1)
        require_delta(self.delta)
        require_number("scale", self.scale, 0.0, 1e6)

    def begin(self, known: Known) -> dict[str, Any]:
        """Return a fresh state: the table Q, and how often each entry was visited."""
        require_undiscounted(known)
        upper = largest(known)
        return {"upper": upper, "visits": np.zeros(upper.shape, np.int64)}

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Plan one episode, greedily on the table."""
        values = np.zeros((known.horizon + 1, known.states))
        values[:-1] = np.minimum(state["upper"].max(axis=2), known.horizon)
        return Plan(policy=best_actions(state["upper"], draw), values=values)

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Move the entries visited; V of the next step is the one from before this block."""
        H, upper, visits, values = (
            known.horizon,
            state["upper"],
            state["visits"],
            np.asarray(plan.values),
        )
        iota = math.log(known.states * known.actions * H * self.episodes / self.delta)
        columns = (flow.step, flow.state, flow.action, flow.next_state, flow.reward, flow.count)
        for h, s, a, after, reward, times in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            for _ in range(times):  # one update for each visit
                visits[h, s, a] += 1
                t = int(visits[h, s, a])
                target = reward + values[h + 1, after] + self.scale * math.sqrt(H**3 * iota / t)
                upper[h, s, a] += (H + 1.0) / (H + t) * (target - upper[h, s, a])
