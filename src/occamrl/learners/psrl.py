"""PSRL: posterior sampling (Osband, Russo and Van Roy, NeurIPS 2013).

    before every episode
        draw a kernel from the posterior
        play its optimal policy, and count what happened

The prior of each row P(.|s, a) is a Dirichlet distribution with one parameter alpha for all
outcomes, so the posterior is one as well: Dirichlet(alpha + c). A kernel is drawn before every
episode: to play a draw for longer saves planning and loses the exploration that rare draws are.

**On lists of kernels** the posterior of a member is proportional to w(P) exp(l(P)), l its
log-likelihood (:mod:`occamrl.evidence.counts`), w the prior of a ladder. There a draw lasts 2 %
of all episodes, which cost no regret where it was measured. Once every member rules out what was
seen, draws are tabular.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from occamrl import bellman
from occamrl.arrays import Floats
from occamrl.errors import ParameterError, require_number, require_rewards
from occamrl.evidence.counts import JEFFREYS, CountState, begin_counts
from occamrl.evidence.hulls import draw_table
from occamrl.evidence.lists import Members
from occamrl.learners.tabular import count_flow, tabular_outcomes
from occamrl.models.ladder import Ladder
from occamrl.protocols import Flow, Known, Learner, Outcomes, Plan


class PSRLState(CountState):
    """Counts of outcomes, and how many episodes were played."""

    episodes: int


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
        # with less than 0.05, draws could underflow
        require_number("concentration", self.concentration, 0.05, 1e6)
        require_number("replan", self.replan, 0.0, 1e100)
        if self.ladder is not None and not (isinstance(self.ladder, Ladder) and self.ladder.finite):
            expected = "a Ladder of lists of kernels"
            raise ParameterError("ladder", got=repr(self.ladder), expected=expected)

    def begin(self, known: Known) -> PSRLState:
        """Return the state before any data."""
        require_rewards(known)
        return {**begin_counts(self.outcomes(known)), "episodes": 0}

    def plan(self, known: Known, state: PSRLState, draw: np.random.Generator) -> Plan:
        """Draw a kernel and solve it."""
        weights = self.log_posterior(known, state)
        if self.ladder is not None and np.isfinite(weights).any():
            # the largest of log-weights with Gumbel noise has the law of the weights
            member = int((weights + draw.gumbel(size=weights.size)).argmax())
            kernels = self.ladder.family.kernels_of(member, known)
            episodes = max(1, int(self.replan * state["episodes"]))
        else:
            outcomes, law = draw_table(state, self.outcomes(known), draw, self.concentration)
            kernels = bellman.kernels_of(outcomes, law, known)
            episodes = 1
        values, policy = bellman.solve(kernels, known.states, known.horizon)
        return Plan(policy=policy, values=values, episodes=episodes)

    def learn(self, known: Known, state: PSRLState, plan: Plan, flow: Flow) -> None:
        """Count the outcomes of the block."""
        count_flow(state, self.outcomes(known), known, flow)
        state["episodes"] += flow.episodes

    def outcomes(self, known: Known) -> Outcomes:
        """Return the outcomes that are counted."""
        if self.ladder is None:
            return tabular_outcomes(known)
        return Members.of(self.ladder.family, known).outcomes

    def log_posterior(self, known: Known, state: PSRLState) -> Floats:
        """Return the log-weights of the members up to a constant; none for the tabular class."""
        if self.ladder is None or len(state["novel"]):
            return np.zeros(0)
        likelihoods = Members.of(self.ladder.family, known).likelihoods(state["count"])
        return np.asarray(likelihoods + np.log(self.ladder.prior))
