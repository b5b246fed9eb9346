r"""PSRL: posterior sampling (Osband, Russo and Van Roy, NeurIPS 2013).

    draw a kernel from the posterior, play its optimal policy, count what happened

**Tabular.** The prior of each row P(.|s, a) is a Dirichlet distribution with one parameter for all outcomes, so the
posterior is one as well: Dirichlet(alpha + c). A kernel is drawn before every episode. Playing a draw for longer, say
for 2 % of all episodes, saves planning and loses the exploration that rare draws are.

**Lists.** The posterior of a member is proportional to w(P) exp(l(P)), l its log-likelihood
(:mod:`occamrl.evidence.likelihood`), w even or the prior of a ladder. Here a draw lasts 2 % of all episodes, which
cost no regret where it was measured; ``replan=0`` draws before every episode. Once all members make impossible what was
seen, draws are tabular.

The regret is bounded on average over the prior; there is no guarantee for a single truth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl import bellman
from occamrl.errors import ParameterError, require_kind, require_number
from occamrl.evidence import likelihood
from occamrl.evidence.likelihood import JEFFREYS, Members
from occamrl.learners.tabular import tabular_outcomes
from occamrl.learners.ucrl_vtr_lin import require_rewards
from occamrl.models.families import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.protocols import Floats, Flow, Known, Learner, Outcomes, Plan


@dataclass(frozen=True, kw_only=True, eq=False)
class PSRL(Learner):
    """Posterior sampling: draw a kernel from the posterior, and play its optimal policy.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.PSRL(), problem, episodes=50)

    Parameters
    ----------
    family : FiniteFamily, optional
        The kernels drawn from, each as likely as any other before any data. By default every kernel: rows are drawn
        from Dirichlet distributions.
    ladder : Ladder, optional
        Instead of a family: nested lists of kernels, with the prior that gives every class the same weight.
    concentration : float
        Of the Dirichlet distributions, for each outcome before any data. 1 is uniform over all rows.
    replan : float
        A draw of a member lasts this share of all episodes. 0: draw before every episode.

    Notes
    -----
    State: the evidence of :func:`occamrl.evidence.likelihood.begin`, and ``episodes``.
    """

    guarantee = "on average over its prior"
    given = ("a prior",)

    family: FiniteFamily | None = None
    ladder: Ladder | None = None
    concentration: float = JEFFREYS
    replan: float = 0.02

    def __post_init__(self) -> None:
        require_number("concentration", self.concentration, 0.05, 1e6)  # of less, draws could underflow
        require_number("replan", self.replan, 0.0, 1e100)
        if self.family is not None:
            require_kind("family", self.family, FiniteFamily)
        if self.ladder is not None:
            require_kind("ladder", self.ladder, Ladder)
            if self.family is not None or not self.ladder.finite:
                got = "a family beside it" if self.family is not None else repr(self.ladder)
                raise ParameterError("ladder", got=got, expected="a Ladder of lists of kernels alone")

    def _members(self, known: Known) -> Members | None:
        """Return the members drawn from; None for the tabular class."""
        family = self.family if self.ladder is None else self.ladder.family
        return None if family is None else Members.of(family, known)

    def _outcomes(self, known: Known) -> Outcomes:
        """Return the outcomes that are counted."""
        members = self._members(known)
        return tabular_outcomes(known) if members is None else members.outcomes

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the state before any data."""
        require_rewards(known)
        return {**likelihood.begin(self._outcomes(known)), "episodes": 0}

    def log_posterior(self, known: Known, state: dict[str, Any]) -> Floats:
        """Return the logarithms of the weights of the members, up to a constant; none for the tabular class."""
        members = self._members(known)
        if members is None or len(state["novel"]):
            return np.full(0, -np.inf)
        prior = np.log(self.ladder.prior) if self.ladder is not None else -math.log(members.size)
        return np.asarray(members.likelihoods(state["count"]) + prior)

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Draw a kernel and solve it."""
        weight, episodes = self.log_posterior(known, state), 1
        family = self.family if self.ladder is None else self.ladder.family
        if family is not None and np.isfinite(weight).any():
            member = int((weight + draw.gumbel(size=weight.size)).argmax())
            kernel, episodes = family.kernel_of(member, known), max(1, int(self.replan * state["episodes"]))
        else:
            drawn = likelihood.draw_table(state, self._outcomes(known), draw, self.concentration)
            kernel = bellman.kernel_of(*drawn, known.base_reward, known.states)
        values, policy = bellman.solve([kernel], known.states, known.horizon)
        return Plan(policy=policy, values=values, episodes=episodes)

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Count the outcomes of the block."""
        likelihood.add(state, self._outcomes(known), known, flow)
        state["episodes"] += flow.episodes
