r"""ARL-GEN: selection among nested families of kernels at any time (Ghosh et al. 2022, section 3, in sharp form).

    before every plan
        test the classes F_1 < ... < F_M on all rows so far
        play UCRL-VTR on the smallest class that is accepted

Rows are value-targeted and range-weighted (:mod:`occamrl.evidence.value`). The tests hold at all
times at once, so that testing often costs no confidence: with probability 1 - delta the smallest
class that contains the truth is never rejected.

**Lists of kernels.** With the prior w(P) = 1/(M |F_l minus F_{l-1}|) of members that first appear
in F_l, the sharp set B over F_M contains the true kernel. Class m is accepted iff F_m meets B. The
price of a class is log(M |F_m|), not log |F_M|. With ``scope="all"`` plans are optimistic over all
of B, whatever the class, and need no separability.

**Linear classes and aggregations.** All rows are kept in the coordinates of F_M. Class m is
accepted iff

.. math:: \min_{F_m} L \le L_\lambda(\theta_M) + \tfrac14\big(\log\det(\Sigma_M/\lambda) + 2\log(1/\delta)\big) ,

and played by UCRL-VTR-LIN on its part of the sums. A plan lasts until the data have grown by a tenth, or det Sigma by
the factor 1 + c of lazy planning.

**A truth outside F_M.** F_M is tested like a class below it, against itself with a mean added for
every (s, a): with probability 1 - delta, L(P*) is at most what the sharp set of that larger class
allows, be P* in F_M or not. Where even the best of F_M has more, or a transition was seen that F_M
does not list, the ladder is *misspecified*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy.linalg import block_diag

from occamrl.errors import (
    ParameterError,
    require_choice,
    require_delta,
    require_kind,
    require_number,
    require_rewards,
)
from occamrl.evidence import value
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import Pace, optimistic_values
from occamrl.models.families import level, off_grid
from occamrl.models.ladder import Ladder
from occamrl.protocols import Floats, Flow, Known, Learner, Plan

_LAMBDA = 1.0  # of all regressions
_GROWTH = 0.1  # of the data until linear classes are tested again
_MOST_COORDINATES = 2_000  # of the regression that looks for a truth outside linear classes


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLGen(Learner):
    """Play UCRL-VTR on the smallest class of a ladder that the data do not contradict.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("patchy-ice")
    >>> agent = orl.ARLGen(ladder=orl.Ladder.of_problem(problem))
    >>> result = orl.run(agent, problem, episodes=30)
    >>> result.verdict["chosen"]
    1

    Parameters
    ----------
    ladder : Ladder
        Nested classes F_1 < ... < F_M.
    delta : float
        The smallest class that contains the true kernel is rejected with probability at most delta,
        over all tests together.
    scope : "smallest" | "all"
        Of lists of kernels: be optimistic over the members of the smallest class that are left, or
        over those of all classes; ``chosen`` is then a report. "all" needs no separability: choose
        it when :func:`occamrl.preflight` finds unidentifiable pairs.
    replan : float, optional
        Of lists: a plan lasts this share of the episodes that its member has played, 0.1 by
        default. Of other classes: c of lazy planning, 0.2 by default. 0: plan before every episode.

    Notes
    -----
    Facts of a plan: the class ``chosen``, ``since`` when it is, and what is ``playing``. Grounds: the ``statistics``
    T_m (the smallest mean loss of each class), the ``threshold`` up to which a class is accepted, how many members of
    each list are ``alive``, and whether the ladder is ``misspecified``, by a ``misfit`` above 0 (the loss that even
    F_M does not explain) or by transitions that F_M does not list (``novel``).
    """

    given = ("order",)

    ladder: Ladder
    delta: float = 0.05
    scope: Literal["smallest", "all"] = "smallest"
    replan: float | None = None

    def __post_init__(self) -> None:
        require_kind("ladder", self.ladder, Ladder)
        require_delta(self.delta)
        require_choice("scope", self.scope, ("smallest", "all"))
        if self.replan is not None:
            require_number("replan", self.replan, 0.0, 1e100)
        if self.scope == "all" and not self.ladder.finite:
            expected = '"smallest" where classes are not lists; playing the largest class is the same as "all"'
            raise ParameterError("scope", got='"all"', expected=expected)

    @property
    def guarantee(self) -> str:
        """What is proved of its regret."""
        return "valid" if self.scope == "all" else "valid if separable"

    @cached_property
    def _base(self) -> UCRLVTR:
        """UCRL-VTR on the largest list, with the prior of the ladder."""
        replan = 0.1 if self.replan is None else self.replan
        return UCRLVTR(
            family=self.ladder.family, delta=self.delta, prior=self.ladder.prior, replan=replan
        )

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the state before any data; ``pairs``, of every (s, a): the number of rows, their sums of y and x."""
        features = self.ladder.features
        more = {"pairs": np.zeros((known.states * known.actions, 2 + features.width)), "novel": 0}
        more |= {"chosen": 1, "since": 1}
        if self.ladder.finite:
            return {**self._base.begin(known), **more}
        require_rewards(known, features)
        return {**value.begin(features), "episodes": 0, "pace": Pace(np.zeros(1)), **more}

    def plan(self, known: Known, state: Any, draw: np.random.Generator) -> Plan:
        """Test the classes, and plan on the smallest that is accepted: the first list that meets the sharp set."""
        if not self.ladder.finite:
            return self._plan_linear(known, state)
        first, base = self.ladder.level, self._base
        losses = base.losses(state)
        most = base.thresholds(state, losses)
        inside = losses[0] <= most[0]
        chosen = int(first[inside].min()) + 1
        least, misfit = -self.ladder.largest(-losses[0]), self._misfit_list(state, losses[0])
        diagnostics = {
            **self._diagnostics(known, state, least, float(most[0]), misfit),
            "alive": self.ladder.count(inside),
        }
        among = inside & (first < chosen) if self.scope == "smallest" else inside
        return base.plan_among(
            known, state, among, facts=self._facts(state, chosen), diagnostics=diagnostics
        )

    def _plan_linear(self, known: Known, state: dict[str, Any]) -> Plan:
        """Plan on the smallest linear class or aggregation whose loss the largest one does not undercut by too much."""
        gram, xy = state["gram"][0], state["xy"][0]
        classes = range(1, self.ladder.classes + 1)
        least = np.array([self.ladder.smallest_loss(m, gram, xy) for m in classes])
        most = _bound(*self.ladder.statistics(self.ladder.classes, gram, xy), self.delta)
        chosen = next((m for m in classes if least[m - 1] <= most), self.ladder.classes)
        family, own = self.ladder.family_of(chosen), self.ladder.statistics(chosen, gram, xy)
        ellipsoid = value.ridge(own[0][None], own[1][None], _LAMBDA)
        logdet = ellipsoid.logdet.sum(axis=1)
        width = np.sqrt(value.squared_radius(logdet, self.delta, _LAMBDA, family.norm_bound))
        found = optimistic_values(family.own_features, known, ellipsoid, width)
        before = state["pace"] if chosen == state["chosen"] else Pace(logdet)
        pace = before.next(logdet, found, 0.2 if self.replan is None else self.replan)
        return Plan(
            policy=found.policy,
            values=found.values,
            episodes=min(pace.episodes, max(1, int(_GROWTH * state["episodes"]))),
            facts=self._facts(state, chosen),
            diagnostics=self._diagnostics(
                known, state, least, most, self._misfit_linear(state, float(least[-1]))
            ),
            carry=pace,
        )

    def _facts(self, state: dict[str, Any], chosen: int) -> dict[str, Any]:
        since = (
            state["since"]
            if state["episodes"] and chosen == state["chosen"]
            else state["episodes"] + 1
        )
        return {"chosen": chosen, "playing": self.ladder.names[chosen - 1], "since": since}

    def _diagnostics(
        self, known: Known, state: dict[str, Any], least: Floats, most: float, misfit: float | None
    ) -> dict[str, Any]:
        """Return on what grounds; losses come without the sum of y^2."""
        rows, squares = max(1, state["episodes"] * known.horizon), float(state["yy"].sum())
        return {
            "names": list(self.ladder.names),
            "statistics": [float(each + squares) / rows for each in least],
            "threshold": (most + squares) / rows,
            "misfit": misfit,
            "novel": state["novel"],
            "misspecified": bool(state["novel"]) or (misfit is not None and misfit > 0.0),
        }

    def _misfit_list(self, state: dict[str, Any], losses: Floats) -> float:
        """Return by how much the loss of the best kernel exceeds what noise explains.

        The alternatives are all kernels of F_M, with even weights, and a Gaussian mean of variance
        1/4 at every (s, a).
        """
        count, total, x = state["pairs"][:, 0], state["pairs"][:, 1], state["pairs"][:, 2:]
        family = self.ladder.family
        left = total - (x * family.theta[losses.argmin()][family.features.group]).sum(axis=1)
        noise = (
            0.5 * math.log(family.size / level(family.reach, self.delta))
            + 0.25 * np.log1p(count).sum()
        )
        between = off_grid(family.reach, float(state["rows"][0]), self.delta)
        return float((left**2 / (count + 1.0)).sum() - noise - between)

    def _misfit_linear(self, state: dict[str, Any], least: float) -> float | None:
        """Return the same for linear classes: against all coordinates and a mean at every (s, a); None if too many."""
        gram, xy, group = state["gram"][0], state["xy"][0], self.ladder.features.group
        count, total, x = state["pairs"][:, 0], state["pairs"][:, 1], state["pairs"][:, 2:]
        if xy.size + count.size > _MOST_COORDINATES:
            return None
        rows = group[:, None] * xy.shape[1] + np.arange(
            xy.shape[1]
        )  # the coordinates of each (s, a)
        across = np.zeros((count.size, xy.size))
        np.put_along_axis(across, rows, x, axis=1)
        whole = np.block([[block_diag(*gram), across.T], [across, np.diag(count)]])
        return least - _bound(whole[None], np.append(xy, total)[None], self.delta)

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Add the rows of the block, and keep what was decided before it."""
        features = self.ladder.features
        outcomes, pair = features.attach(known), flow.state * known.actions + flow.action
        listed = outcomes.index_of(pair, flow.next_state, np.zeros(pair.size), known.states) >= 0
        state["novel"] += int(flow.count[~listed].sum())
        if self.ladder.finite:
            new = self._base.record_block(known, state, plan, flow)
        else:
            new = value.add(state, features, known, plan.values, flow)
            state["episodes"] += flow.episodes
            state["pace"] = plan.carry._replace(episodes=flow.episodes)
        told = new.x.any(axis=1) | (new.square > 0.0)  # rows without range say nothing
        sums = np.column_stack([new.count, new.total, new.count[:, None] * new.x])
        np.add.at(state["pairs"], new.pair[told], sums[told])
        state["chosen"], state["since"] = plan.facts["chosen"], plan.facts["since"]


def _bound(gram: Floats, xy: Floats, delta: float) -> float:
    """Return what L of the truth is at most, minus the sum of y^2, by a regression [G, n, n] that may be too large."""
    fit = value.ridge(gram, xy, _LAMBDA)
    return float(
        -(xy * fit.theta).sum() + value.squared_radius(fit.logdet.sum(), delta, _LAMBDA, 0.0)
    )
