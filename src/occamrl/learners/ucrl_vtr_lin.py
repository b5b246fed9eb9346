"""UCRL-VTR-LIN: optimism over an ellipsoid for linear kernels (Jia et al. 2020; Ghosh et al. 2022, section 4)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from occamrl._core.features import DenseFeatures, TabularFeatures
from occamrl._core.regression import MOST_COORDINATES, Batch, dense_batch, empty_batch, stacked, tabular_batch
from occamrl.errors import ParameterError, ShapeError, require_choice, require_number
from occamrl.learners import linear as _compiled_functions  # noqa: F401  (registers plan, observe, ...)
from occamrl.learners.linear_regression import absorb, linear_state, refactor
from occamrl.learners.linear_state import LinearModel, LinearState, Scratch
from occamrl.learners.radii import ELLIPSOIDS
from occamrl.learners.rewards import (
    RewardRows,
    Rewards,
    copy_rewards,
    kernel_share,
    require_rewards,
    rewards_model,
    rewards_state,
    seen_by,
)
from occamrl.models.features import FeatureMap
from occamrl.protocols import Floats, Ints, Known, Learner, Outcomes

SMALLEST, LARGEST = 1e-100, 1e100  # parameters between these keep every formula finite
SMALLEST_LEVEL = 1e-300  # of delta, which enters by its logarithm
KERNELS = ("stationary", "per_step")


class LinearStatistics(NamedTuple):
    """What was learned, apart from any plan: enough for another learner to go on from (M17)."""

    gram: Floats  # [T * blocks' matrices] sum x x^T, without lambda I
    xy: Floats  # [T*d] sum y x
    episodes: int
    steps: int = 1  # T: 1, or H with one kernel per step
    rewards: RewardRows | None = None  # what was heard of rewards that are estimated

    def restrict(self, coordinates: Sequence[int]) -> LinearStatistics:
        """Return the [D, D] and [D] blocks of every step, for one dense block of coordinates."""
        d = self.xy.size // self.steps
        if self.gram.size != self.steps * d * d:
            raise ShapeError("statistics", got="several blocks", expected="one dense block to restrict")
        chosen = np.asarray(coordinates, dtype=np.int64)
        block = self.gram.reshape(-1, d, d)[:, chosen[:, None], chosen]
        return self._replace(gram=np.ascontiguousarray(block).ravel(), xy=self.xy.reshape(-1, d)[:, chosen].ravel())

    def by_step(self) -> list[LinearStatistics]:
        """Return the statistics of each step as those of a regression of its own."""
        grams, vectors = np.split(self.gram, self.steps), np.split(self.xy, self.steps)
        return [LinearStatistics(gram, xy, self.episodes) for gram, xy in zip(grams, vectors, strict=True)]


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTRLin(Learner):
    """Act greedily on values planned optimistically over the confidence ellipsoid of theta* (M8-M12).

    Parameters
    ----------
    features : FeatureMap
    norm_bound : float
        A bound b on ||theta*||.
    delta : float
        The ellipsoid holds theta* at all times with probability 1 - delta (radius "sharp" and "unweighted").
    radius : "sharp" | "paper" | "unweighted" | "ayoub"
        See :mod:`occamrl.learners.radii`.
    weights : "range" | "none"
        Scale every row by the range of its target (M23), or not.
    replan : float
        0: plan before every episode. c > 0: when logdet Sigma has grown by log(1 + c) (M12).
    regularization : float or "scaled"
        lambda; "scaled" is d / (4 b^2), which lets b enter through a logarithm only (M11).
    scale : float
        Multiplies sqrt(beta). Below 1 the guarantee is lost.
    paper_constant : float
        The constant c of the paper's radius (M10).
    target_range : float, optional
        The range U of a target without weights; by default H - 1, one more with rewards on transitions, and one more
        where values are cut at H.
    clip : "step" | "horizon", optional
        Values at step h are cut at H - h + 1, or at H as the paper writes. By default "step", except for the radius
        "ayoub", whose published code cuts at H.
    active : sequence of int, optional
        Plan with these coordinates only, while rows still enter the statistics of all of them (M17); every coordinate
        by default. To forget the others altogether, restrict the features instead.
    event : (float, float), optional
        The sharp radius with the noise event of a larger lambda' instead of lambda: L(theta*) <= min { L(theta) +
        lambda' ||theta||^2 } + (1/4)(logdet(Sigma'/lambda') + 2 log(1/delta)), bounded from above at theta_k. It is
        (1/4)(logdet(Sigma/lambda) + slack + 2 log(1/delta)) + lambda b^2 + (lambda' - lambda) ||theta_k||^2. The pair
        is (lambda', slack), slack being at least the difference of the two log-determinants at any time.
    rewards : "known", RewardsPerPair or RewardsLinear
        Rewards that are not known are estimated (:mod:`occamrl.learners.rewards`), for a share of delta.
    kernel : "stationary" | "per_step"
        One parameter for all steps, or one for each with statistics and an ellipsoid of its own; ``norm_bound`` bounds
        every one of them, and delta is divided evenly among the steps that give rows.
    """

    features: FeatureMap
    norm_bound: float
    delta: float = 0.05
    radius: str = "sharp"
    weights: str = "range"
    replan: float = 0.2
    regularization: float | str = 1.0
    scale: float = 1.0
    paper_constant: float = 1.0
    target_range: float | None = None
    clip: str | None = None
    active: Sequence[int] | None = None
    event: tuple[float, float] | None = None
    rewards: Rewards = "known"
    kernel: str = "stationary"

    def __post_init__(self) -> None:
        require_linear_parameters(self)
        if self.active is not None:
            _require_active(self.features, self.active)
        if self.event is not None and (self.radius != "sharp" or not self.event[0] >= self.lam):
            raise ParameterError("event", got=self.event, expected="the sharp radius, and a lambda' >= lambda")

    @property
    def planned(self) -> FeatureMap:
        """The features that plans are made with: those of the active coordinates."""
        return self.features if self.active is None else self.features.restrict(self.active)

    def _active(self) -> Ints | None:
        return None if self.active is None else np.asarray(self.active, dtype=np.int64)

    @property
    def lam(self) -> float:
        """The regularisation lambda as a number."""
        if isinstance(self.regularization, str):
            return (self.features.dimension if self.active is None else len(self.active)) / (4.0 * self.norm_bound**2)
        return float(self.regularization)

    def steps(self, known: Known) -> int:
        """Return how many parameters there are: T = 1, or one per step."""
        return known.horizon if self.kernel == "per_step" else 1

    def level(self, known: Known) -> float:
        """Return the level of one ellipsoid: delta less what pays for rewards, divided among the steps with rows."""
        level = self.delta if isinstance(self.rewards, str) else kernel_share(self.rewards) * self.delta
        parts = 1 if self.kernel == "stationary" else max(1, self.steps_with_rows(known))
        return max(SMALLEST_LEVEL, float(level) / parts)

    def steps_with_rows(self, known: Known) -> int:
        """Return how many steps give a row: H - 1, or H when rewards come on transitions (M20)."""
        return known.horizon - (seen_by(self.rewards, known).transition_rewards is None)

    def model(self, known: Known) -> LinearModel:
        """Return the constants of the compiled functions."""
        known = seen_by(self.rewards, known)
        active, planned, steps = self._active(), self.planned, self.steps(known)
        layout, blocks = planned.attach(known), stacked(planned.blocks, steps)
        outcomes, largest = layout.outcomes, int(blocks.size.max())
        chosen = np.zeros(0, dtype=np.int64) if active is None else active
        rows = known.horizon if outcomes.bonus.any() else known.horizon - 1
        at_horizon = (self.clip or ("horizon" if self.radius == "ayoub" else "step")) == "horizon"
        # Values cut at H instead of H - h + 1 have targets of range up to H (and a bonus of up to 1).
        widest = rows + 1 if at_horizon else rows
        plain_range = widest if self.target_range is None else self.target_range
        pairs = known.states * known.actions
        return LinearModel(
            features=layout,
            blocks=blocks,
            row_features=self.features.attach(known),
            active=chosen,
            rewards=rewards_model(self.rewards, known, float(self.delta), float(self.replan)),
            actions=known.actions,
            horizon=known.horizon,
            rows=rows,
            steps=steps,
            dimension=planned.dimension,
            batch=batch_of(planned, outcomes),
            radius=ELLIPSOIDS[self.radius],
            weighted=self.weights == "range",
            unit=1.0 if self.weights == "range" else float(plain_range),
            delta=self.level(known),
            norm_bound=float(self.norm_bound),
            regularization=self.lam,
            paper_constant=float(self.paper_constant),
            scale=float(self.scale),
            slack=0.0 if self.event is None else float(self.event[1]),
            estimate_weight=0.0 if self.event is None else float(self.event[0]) - self.lam,
            replan=float(self.replan),
            clip_at_horizon=at_horizon,
            scratch=Scratch(
                target=np.zeros(int(np.diff(outcomes.start).max())),
                x=np.zeros(int(self.features.blocks.size.max())),
                work=np.zeros(largest * largest),
                block=np.zeros(chosen.size * chosen.size + chosen.size),
                dirty=np.zeros(blocks.size.size, dtype=np.int64),
                mean=np.zeros(pairs),
                norm=np.zeros(pairs),
                middle=np.zeros(pairs),
                spread=np.zeros(pairs),
                q=np.zeros(pairs),
            ),
        )

    def _fresh(self, known: Known) -> LinearState:
        rewards = rewards_state(self.rewards, known)
        return linear_state(self.features, known, self.lam, self._active(), steps=self.steps(known), rewards=rewards)

    def begin(self, known: Known, statistics: LinearStatistics | None = None) -> LinearState:
        """Return a fresh state, or one that continues from statistics gathered elsewhere."""
        state = self._fresh(known)
        if statistics is not None:
            if statistics.gram.size != state.sigma.size or statistics.xy.size != state.xy.size:
                got, expected = (f"{gram.size} and {xy.size} entries" for gram, xy in (statistics[:2], state[:2]))
                raise ShapeError("statistics", got=got, expected=expected)
            state.sigma[:] += statistics.gram
            state.xy[:] = statistics.xy
            state.counters[0] = statistics.episodes
            if statistics.rewards is not None and isinstance(state.rewards, RewardRows):
                copy_rewards(statistics.rewards, state.rewards)
            refactor(stacked(self.features.blocks, self.steps(known)), self.lam, state, self._active())
        return state

    def reserve(self, state: LinearState, episodes: int) -> LinearState:
        """Return the state as it is: it never grows."""
        return state

    def statistics(self, known: Known, state: LinearState) -> LinearStatistics:
        """Return the rows seen so far as statistics; rows that wait for a plan are entered first."""
        state = copy.deepcopy(state)  # asking must not change what follows
        absorb(self.model(known), state)
        heard = state.rewards if isinstance(state.rewards, RewardRows) else None
        gram = state.sigma - self._fresh(known).sigma
        return LinearStatistics(gram, state.xy, int(state.counters[0]), self.steps(known), heard)

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Small instances on a problem, for the contract checks."""
        features = FeatureMap.tabular(states=mdp.states, actions=mdp.actions)
        bound = float(np.sqrt(mdp.states * mdp.actions))
        return [
            cls(features=features, norm_bound=bound),
            cls(features=features, norm_bound=bound, radius="ayoub", weights="none", replan=0.0),
            cls(features=features, norm_bound=bound, radius="paper", weights="none", replan=0.0, clip="horizon"),
        ]


def batch_of(features: FeatureMap, outcomes: Outcomes) -> Batch:
    """Return the transposed arrays where every (s, a) has the same outcomes and few coordinates."""
    pairs = outcomes.start.size - 1
    count = outcomes.next_state.size // pairs
    if (np.diff(outcomes.start) != count).any() or outcomes.bonus.any():
        return empty_batch()
    table = outcomes.next_state.reshape(pairs, count)
    if (table != table[0]).any():
        return empty_batch()
    if isinstance(features.layout, DenseFeatures) and features.dimension <= MOST_COORDINATES:
        return dense_batch(features.layout.phi, pairs)
    own_block = features.blocks.size.size == pairs
    if isinstance(features.layout, TabularFeatures) and own_block and count <= MOST_COORDINATES:
        return tabular_batch(count, pairs)
    return empty_batch()


def _require_active(features: FeatureMap, active: Sequence[int]) -> None:
    """Refuse an empty list of coordinates, repeated ones, and a map that has no coordinates to choose from."""
    if features.is_tabular:
        raise ParameterError("active", got="a tabular map", expected="a dense or sparse one to restrict")
    if len(active) == 0 or len(set(active)) != len(active) or not all(0 <= j < features.dimension for j in active):
        raise ParameterError("active", got=list(active), expected=f"distinct integers in [0, {features.dimension})")


def require_linear_parameters(learner: Any) -> None:
    """Refuse parameters outside their range, by name."""
    require_choice("radius", learner.radius, ELLIPSOIDS)
    require_choice("weights", learner.weights, ("range", "none"))
    require_choice("kernel", learner.kernel, KERNELS)
    require_rewards(learner.rewards)
    if learner.clip is not None:
        require_choice("clip", learner.clip, ("step", "horizon"))
    if not isinstance(learner.features, FeatureMap):
        raise ParameterError("features", got=type(learner.features).__name__, expected="a FeatureMap")
    require_number("delta", learner.delta, SMALLEST_LEVEL, 1.0)
    if isinstance(learner.regularization, str):
        require_choice("regularization", learner.regularization, ("scaled",))
    else:
        require_number("regularization", learner.regularization, SMALLEST, LARGEST)
    require_number("norm_bound", learner.norm_bound, SMALLEST, LARGEST)
    require_number("paper_constant", learner.paper_constant, SMALLEST, LARGEST)
    require_number("replan", learner.replan, 0.0, LARGEST)
    require_number("scale", learner.scale, 0.0, LARGEST)
    if learner.target_range is not None:
        require_number("target_range", learner.target_range, SMALLEST, LARGEST)
        if learner.weights == "range":
            raise ParameterError("target_range", got=learner.target_range, expected='None with weights="range"')
