"""Making the arrays of :mod:`occamrl.learners.finite_planned`, for UCRL-VTR on a family and on a class of a ladder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.learners.finite_planned import COUNTERS, EVERYONE, MEMBER, PlannedModel, PlannedState
from occamrl.learners.rewards import Rewards, kernel_share, rewards_model, rewards_state, seen_by
from occamrl.models.finite import FiniteFamily
from occamrl.models.finite import level as level_left
from occamrl.models.ladder import Ladder
from occamrl.protocols import Floats, Ints, Known, Learner


def planned_model(
    family: FiniteFamily,
    known: Known,
    *,
    delta: float,
    weights: str,
    replan: float,
    scale: float,
    rewards: Rewards,
    kernel: str,
    prior: Floats | None = None,
    size: int | None = None,
    reach: float | None = None,
    level: Ints | None = None,
    restrict: bool = False,
    guard: bool = False,
) -> PlannedModel:
    """Return the constants of the compiled functions; the first ``size`` members, a cover of this reach, play."""
    known = seen_by(rewards, known)
    layout, blocks, n = family.features.attach(known), family.features.blocks, family.size
    rows = known.horizon if layout.outcomes.bonus.any() else known.horizon - 1
    unit = 1.0 if weights == "range" else float(rows)
    of_one = kernel_share(rewards) * delta / (max(1, rows) if kernel == "per_step" else 1)
    playing, off = n if size is None else size, family.reach if reach is None else reach
    weight = np.full(n, 1.0 / playing) if prior is None else np.asarray(prior, dtype=np.float64)
    return PlannedModel(
        features=layout,
        row_start=blocks.vector_start[blocks.of],
        block_size=blocks.size[blocks.of],
        theta=family.theta,
        log_prior=np.log(weight),
        level=np.zeros(n, dtype=np.int64) if level is None else level,
        size=playing,
        restrict=restrict,
        guard=guard,
        rewards=rewards_model(rewards, known, delta, replan),
        actions=known.actions,
        rows=rows,
        weighted=weights == "range",
        unit=unit,
        slack=scale * 0.5 * unit**2 * float(np.log(1.0 / level_left(off, of_one))),
        reach=float(off),
        delta=float(of_one),
        stretch=float(scale * unit**2),
        replan=float(replan),
        target=np.zeros(int(np.diff(layout.outcomes.start).max())),
        x=np.zeros(int(blocks.size.max())),
        z=np.zeros(n),
    )


def planned_state(family: FiniteFamily, known: Known, rewards: Rewards, kernel: str) -> PlannedState:
    """Return a fresh state."""
    n, horizon, states = family.size, known.horizon, known.states
    steps = horizon if kernel == "per_step" else 1
    counters = np.zeros(COUNTERS, dtype=np.int64)
    counters[MEMBER] = EVERYONE
    return PlannedState(
        loss=np.zeros((steps, n)),
        squares=np.zeros(steps),
        rows=np.zeros(steps, dtype=np.int64),
        inside=np.ones((steps, n), dtype=np.int64),
        solved=np.zeros((n if steps == 1 else 0, horizon + 1, states)),
        greedy=np.zeros((n if steps == 1 else 0, horizon, states), dtype=np.int64),
        values=np.zeros((horizon + 1, states)),
        policy=np.zeros((horizon, states), dtype=np.int64),
        visits=np.zeros((horizon, states), dtype=np.int64),
        first_target=np.zeros((horizon, states)),
        target_sum=np.zeros((horizon, states)),
        square_sum=np.zeros((horizon, states)),
        touched=np.zeros(horizon * states, dtype=np.int64),
        counters=counters,
        rewards=rewards_state(rewards, known),
    )


def is_planned(rewards: Rewards, kernel: str) -> bool:
    """Say whether values cannot be solved beforehand."""
    return not isinstance(rewards, str) or kernel == "per_step"


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedRung(Learner):
    """UCRL-VTR on class ``m`` of a ladder, which keeps the losses of all members for a test of the classes."""

    ladder: Ladder
    m: int
    delta: float
    weights: str
    replan: float
    scale: float
    rewards: Rewards
    kernel: str

    def model(self, known: Known) -> PlannedModel:
        """Return the constants of the compiled functions."""
        options: dict[str, Any] = {name: getattr(self, name) for name in ("delta", "weights", "replan", "scale")}
        options |= {"size": self.ladder.sizes[self.m - 1], "reach": self.ladder.reach[self.m - 1]}
        return planned_model(self.ladder.family, known, rewards=self.rewards, kernel=self.kernel, **options)

    def begin(self, known: Known) -> PlannedState:
        """Return a fresh state."""
        return planned_state(self.ladder.family, known, self.rewards, self.kernel)

    def reserve(self, state: PlannedState, episodes: int) -> PlannedState:
        """Return the state as it is: it never grows."""
        return state
