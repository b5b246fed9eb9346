"""UCRL-VTR: optimism over a finite family of kernels (Ayoub et al. 2020; Ghosh et al. 2022, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl._core.compile import compiled
from occamrl._core.features import fill_target
from occamrl._core.rows import row_table, with_room
from occamrl.errors import ParameterError, ShapeError, require_choice, require_number
from occamrl.learners import finite as _compiled_functions  # noqa: F401  (registers plan, observe, ...)
from occamrl.learners._planned import is_planned, planned_model, planned_state
from occamrl.learners.finite_planned import PlannedState
from occamrl.learners.finite_rows import (
    ALIVE,
    COUNTERS,
    CURRENT,
    FIRST_LOOK,
    LAST_START,
    MEMBER,
    NEVER,
    NEXT_LOOK,
    NEXT_TEST,
    FiniteModel,
    FiniteState,
    Pending,
    Scratch,
)
from occamrl.learners.radii import FINITE_SETS, squared_distance_radius
from occamrl.learners.rewards import Rewards, require_rewards
from occamrl.models.finite import FiniteFamily, level
from occamrl.protocols import Floats, Known, Learner, Outcomes

_COLUMN_NUMBERS = 2**23  # at most 64 MiB of cached columns


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTR(Learner):
    """Play the most optimistic kernel that the data do not contradict (M1-M7, M24).

    Parameters
    ----------
    family : FiniteFamily
    delta : float
        The true kernel stays in the confidence set at all times with probability 1 - delta. Of a cover: the member
        nearest to it does, by the term of :mod:`occamrl.models.finite`.
    radius : "sharp" | "unweighted" | "paper"
        M24, M7 or M6; see :mod:`occamrl.learners.radii`.
    weights : "range" | "none"
        Scale every row by the range of its target (M23), or not.
    replan : float
        0: update the confidence set before every episode. c > 0: when the data have grown by the factor 1 + c.
    scale : float
        Multiplies the slack of the confidence set. Below 1 the guarantee is lost.
    prior : array [n], optional
        Weights of the members in M22, for the sharp set; uniform by default.
    rewards : "known", RewardsPerPair or RewardsLinear
        Rewards that are not known are estimated (:mod:`occamrl.learners.rewards`), for a share of delta.
    kernel : "stationary" | "per_step"
        One member for all steps, or one for each, with losses and a set of its own at an even part of delta. This and
        unknown rewards need the sharp set, and values are solved when a plan is due: see
        :mod:`occamrl.learners.finite_planned`.
    """

    family: FiniteFamily
    delta: float = 0.05
    radius: str = "sharp"
    weights: str = "range"
    replan: float = 0.0
    scale: float = 1.0
    prior: Floats | None = None
    rewards: Rewards = "known"
    kernel: str = "stationary"

    def __post_init__(self) -> None:
        require_rewards(self.rewards)
        require_choice("kernel", self.kernel, ("stationary", "per_step"))
        if self._planned and self.radius != "sharp":
            got = f"{self.radius!r} with unknown rewards or one kernel per step"
            raise ParameterError("radius", got=got, expected='"sharp"')
        require_choice("radius", self.radius, FINITE_SETS)
        require_choice("weights", self.weights, ("range", "none"))
        if not isinstance(self.family, FiniteFamily):
            raise ParameterError("family", got=type(self.family).__name__, expected="a FiniteFamily")
        require_number("delta", self.delta, 1e-100, 1.0)
        require_number("replan", self.replan, 0.0, 1e100)
        require_number("scale", self.scale, 0.0, 1e100)
        if self.prior is not None:
            weights = np.asarray(self.prior, dtype=np.float64)
            if weights.shape != (self.family.size,):
                raise ShapeError("prior", got=weights.shape, expected=(self.family.size,))
            if not (weights > 0.0).all() or weights.sum() > 1.0 + 1e-9:
                raise ParameterError("prior", got="weights", expected="positive numbers with a sum of at most 1")

    @property
    def _planned(self) -> bool:
        return is_planned(self.rewards, self.kernel)

    def model(self, known: Known) -> Any:
        """Return the constants of the compiled functions: a FiniteModel, or a PlannedModel if values change.

        A FiniteModel's value functions are solved once per family and problem.
        """
        if self._planned:
            return planned_model(
                self.family,
                known,
                delta=float(self.delta),
                weights=self.weights,
                replan=float(self.replan),
                scale=float(self.scale),
                rewards=self.rewards,
                kernel=self.kernel,
                prior=self.prior,
            )
        features = self.family.features
        layout = features.attach(known)
        values = self.family.optimal_values(known)
        blocks = features.blocks
        weighted = self.weights == "range"
        unit = 1.0 if weighted else largest_range(layout.outcomes, values)
        size = self.family.size
        delta = level(self.family.reach, self.delta)
        if self.radius == "sharp":
            slack = 0.5 * unit**2 * float(np.log(1.0 / delta))
        else:
            slack = squared_distance_radius(
                self.radius, size=size, delta=delta, horizon=known.horizon, unit=unit, weighted=weighted
            )
        prior = np.full(size, 1.0 / size) if self.prior is None else np.asarray(self.prior, dtype=np.float64)
        return FiniteModel(
            features=layout,
            row_start=blocks.vector_start[blocks.of],
            block_size=blocks.size[blocks.of],
            theta=self.family.theta,
            values=values,
            log_prior=np.log(prior),
            level=np.zeros(size, dtype=np.int64),
            restrict=False,
            test=np.inf,
            guard=False,
            base_reward=known.base_reward.flatten(),
            horizon=known.horizon,
            rows=known.horizon if layout.outcomes.bonus.any() else known.horizon - 1,
            weighted=weighted,
            ball=self.radius != "sharp",
            unit=unit,
            slack=self.scale * slack,
            reach=float(self.family.reach),
            delta=float(self.delta),
            stretch=float(self.scale * unit**2),
            replan=float(self.replan),
            scratch=Scratch(
                target=np.zeros(int(np.diff(layout.outcomes.start).max())),
                x=np.zeros(int(blocks.size.max())),
                kernels=np.zeros(size + 1, dtype=np.int64),
                sums=np.zeros(size + 1),
                z=np.zeros(size + 1),
            ),
        )

    def begin(self, known: Known) -> Any:
        """Return a fresh state: a FiniteState, or a PlannedState."""
        if self._planned:
            return planned_state(self.family, known, self.rewards, self.kernel)
        n, horizon, states = self.family.size, known.horizon, known.states
        cells = horizon * states
        counters = np.zeros(COUNTERS, dtype=np.int64)
        counters[[ALIVE, CURRENT]] = n
        counters[[MEMBER, LAST_START]] = -1
        counters[[NEXT_LOOK, NEXT_TEST]] = FIRST_LOOK, NEVER
        return FiniteState(
            alive=np.arange(n),
            loss=np.zeros(n),
            distance=np.zeros(n if self.radius != "sharp" else 0),
            inside=np.zeros(n if self.radius != "sharp" else 0, dtype=np.int64),
            policy=np.zeros((horizon, states), dtype=np.int64),
            visits=np.zeros((horizon, states), dtype=np.int64),
            first_target=np.zeros((horizon, states)),
            target_sum=np.zeros((horizon, states)),
            square_sum=np.zeros((horizon, states)),
            touched=np.zeros(cells, dtype=np.int64),
            slot=np.full((horizon, states), -1, dtype=np.int64),
            column=np.zeros((1 + min(cells, max(horizon, _COLUMN_NUMBERS // n)), n)),
            table=row_table(256),
            pending=pending_rows(1, 1, 1),
            squares=np.zeros(1),
            counters=counters,
        )

    def reserve(self, state: Any, episodes: int) -> Any:
        """Return a state whose table of rows has room for ``episodes`` more episodes."""
        if isinstance(state, PlannedState):
            return state
        horizon = state.policy.shape[0]
        distinct = state.policy.size * self.family.size
        return state._replace(table=with_room(state.table, min((episodes + 1) * horizon, distinct)))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Small instances on a problem, for the contract checks."""
        kernel = mdp.kernel() if mdp.stationary else mdp.kernel()[0]
        generator = np.random.default_rng(1)
        others = generator.dirichlet(np.ones(mdp.states), size=(5, mdp.states, mdp.actions))
        family = FiniteFamily(np.concatenate([kernel[None], others]))
        return [
            cls(family=family),
            cls(family=family, radius="paper", weights="none"),
            cls(family=family, radius="unweighted", weights="none", replan=0.2),
        ]


def pending_rows(capacity: int, horizon: int, states: int) -> Pending:
    """Return room for rows that larger classes of a ladder are still to see."""
    return Pending(
        cell=np.zeros(capacity, dtype=np.int64),
        visits=np.zeros(capacity, dtype=np.int64),
        target_sum=np.zeros(capacity),
        at=np.full((horizon, states), -1, dtype=np.int64),
    )


@compiled
def largest_range(outcomes: Outcomes, values: Floats) -> float:
    """Return R of M7: the largest range of a member's target function at any step and (s, a)."""
    target = np.empty(np.diff(outcomes.start).max())
    largest = 0.0
    for member in range(values.shape[0]):
        for h in range(1, values.shape[1]):
            for sa in range(outcomes.start.size - 1):
                low, high = fill_target(outcomes, sa, values[member, h], target)
                largest = max(largest, high - low)
    return largest
