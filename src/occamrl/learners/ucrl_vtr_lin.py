"""UCRL-VTR-LIN: optimism over an ellipsoid for linear kernels (Jia et al. 2020; Ghosh et al. 2022, section 4).

P(o | s, a) = <phi(s, a, o), theta*>. The rows seen so far give Sigma and theta_k (M8); a plan takes, backwards in h,

    Q_h(s, a) = r(s, a) + <x, theta_k> + sqrt(beta) ||x||_{Sigma^-1},   x = phi_{V_{h+1}}(s, a)             (M9, M11)

with the width sqrt(beta) of :mod:`occamrl.learners.radii`. With range weights (M23) a row is ((V - c)/R), and the
estimate is cut to the half range on either side of c.

Lazy replanning (M12) waits until logdet Sigma has grown by log(1 + c). Because logdet(I + M) <= trace M, the sum of
||x||^2 in the inverse of the last factorised Sigma tells for free when that cannot have happened yet. Where some
coordinates D plan, the criterion looks at the [D, D] block, because the argument behind M12 is about the ellipsoid that
the plan in play was made with.

A learner may plan with some coordinates D only and still enter its rows in all of them (M17): Sigma and xy are then
those of all coordinates, while factor, theta, logdet and every plan belong to the [D, D] block. One kernel per step is
the same regression T = H times, with statistics and a radius of its own: block b of step t is block ``t B + b``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numba import prange

from occamrl._core.arena import field, fmat, fresh_state, fvec, imat, ivec, lay_out, model_of, named, part, square
from occamrl._core.compile import PIECES, Threads, entry, hot, hot_inline, implements, otherwise, threaded, threads_for
from occamrl._core.features import DenseFeatures, TabularFeatures, extremes, feature_vector, fill_target, outcome_of
from occamrl._core.loop import CHANGED, PLANNED, Path, learn, plan
from occamrl._core.regression import (
    CARE,
    FEW_ROWS,
    LARGE_BLOCK,
    MOST_COORDINATES,
    Blocks,
    add_row,
    dot,
    predict_rows,
    predict_shared,
    predict_tabular,
    refactor,
    solve,
    squared_norm,
    stacked,
    turn_blocks,
    update_factor,
)
from occamrl._core.rows import (
    CELLS,
    COUNTERS,
    EPISODES,
    FEATURES,
    FIRST,
    GRAM,
    MODEL_FIELDS,
    MOST,
    MOST_ROWS,
    PLAN_COUNTERS,
    PLANS,
    POLICY,
    RECORD,
    REWARD,
    REWARDS_DUE,
    SQUARES,
    STATE_FIELDS,
    TARGET,
    TOTAL,
    TOUCHED,
    VALUES,
    VISITS,
    FeatureView,
    NoRecord,
    PlanState,
    Record,
    X,
    count_rows,
    features_of,
    follows_plan,
    model_fields,
    plan_fields,
    record_fields,
    record_rows,
    require_rows,
    row_of,
    take_cell,
    weigh,
)
from occamrl.errors import (
    ParameterError,
    ShapeError,
    as_indices,
    require_choice,
    require_integer,
    require_kind,
    require_number,
    require_numbers,
    require_sequences,
)
from occamrl.learners.radii import ELLIPSOIDS, ellipsoid_width
from occamrl.learners.rewards import (
    Rewards,
    RewardStatistics,
    continue_rewards,
    kernel_share,
    observe_rewards,
    optimistic_rewards,
    require_observed,
    require_rewards,
    reward_rows,
    reward_statistics,
    rewards_model,
    seen_by,
)
from occamrl.models.features import FeatureMap
from occamrl.protocols import Field, Floats, Ints, Kernel, Known, Learner, Outcomes, Radius, Weights

SMALLEST, LARGEST = 1e-100, 1e100  # parameters between these keep every formula finite
SMALLEST_LEVEL = 1e-300  # of delta, which enters by its logarithm
_CHUNK = 64  # pairs that are predicted at once, whatever their outcomes
KERNELS = ("stationary", "per_step")
MOST_OUTCOMES = 2**20  # that are counted
MOST_CANDIDATES = 20  # simulators of which outcomes are counted: their sets can be told apart by likelihood (L8)

# Fields of the model, after those of _core.rows
(
    WORK,  # [largest block squared]
    BLOCK,  # [|D|^2 + |D|] the [D, D] block of Sigma and the [D] block of xy; empty when all coordinates plan
    PAIRS,  # [6, S*A] <x, theta>, ||x||^2 in Sigma^-1, c, R, Q, and a sum
    TURNED,  # [n*d or n*n, S*A] phi, or the factors of a tabular map, transposed; empty without a batch
    TURNED_X,  # [d or n, S*A] the rows x, or theta of a tabular map, transposed; of a chunk of pairs without a batch
    TARGETS,  # target functions of a chunk of pairs
    DIRTY,  # [T*B] int, NEW_ROWS where the factor has taken in all rows of a block, ANEW where it has not
    OF,  # [S*A] int, the block of (s, a)
    VECTOR,  # [T*B + 1] int, where the vectors of the blocks that plan begin
    MATRIX,  # [T*B + 1] int, where their matrices begin
    ACTIVE,  # [|D|] int, the coordinates that plan; empty: every one
) = range(MODEL_FIELDS, MODEL_FIELDS + 11)
MEAN, NORM, MIDDLE, SPREAD, Q, SUM = range(6)  # rows of PAIRS
CLEAN, NEW_ROWS, ANEW = range(3)  # values of DIRTY

# Fields of the state, after those of _core.rows
(
    SIGMA,  # [T * blocks' matrices] lambda I + sum x x^T of the rows entered; of all coordinates
    XY,  # [T*d] sum y x, of all coordinates
    FACTOR,  # [T * blocks' matrices] W with Sigma^-1 = W W^T, of the coordinates that plan
    THETA,  # [T*d] Sigma^-1 xy, of the coordinates that plan
    LOGDETS,  # [2, T*B] logdet(Sigma_b / lambda), and by how much lambda had to be raised
    GROWTH,  # [T, 4] sum of ROW_NORM since rows were entered; total logdet then; at the last plan; largest raise
    ROW_NORM,  # [H, S] ||x||^2 in Sigma^-1 of the cells touched since rows were entered
    UPDATES,  # [T*B] int, rows that the factor of a block has taken in since it was made
    SEEN,  # [O + 1] int, how often each outcome of a few simulators was seen, and what is none; or empty
) = range(STATE_FIELDS, STATE_FIELDS + 9)
TRACE, LOGDET, LOGDET_AT_PLAN, RAISED = range(4)  # columns of GROWTH
ADDED = PLAN_COUNTERS  # counter: additions to Sigma, at most


class NoBatch(NamedTuple):
    """Every (s, a) is predicted by itself."""


class SharedBlock(NamedTuple):
    """All (s, a) share one target function and one block of coordinates, and are predicted at once."""


class BlockPerPair(NamedTuple):
    """All (s, a) share one target function, with one-hot coordinates of their own, and are predicted at once."""


class LinearModel(NamedTuple):
    """What the compiled functions read, and their scratch memory."""

    floats: Floats
    ints: Ints
    record: Any  # NoRecord | Record
    rewards: Any  # RewardModel
    known_rewards: bool
    actions: int
    horizon: int
    rows: int  # steps that give a row: H - 1, or H when rewards come on transitions (M20)
    steps: int  # T: 1, or H with one kernel per step
    dimension: int
    batch: Any  # NoBatch | Threads | SharedBlock | BlockPerPair
    radius: int
    weighted: bool
    unit: float  # U, the range of a target
    delta: float
    norm_bound: float
    regularization: float
    paper_constant: float
    scale: float
    slack: float  # what the log-determinant of the noise event exceeds that of Sigma by, at most
    estimate_weight: float  # what ||theta||^2 weighs in the radius: lambda of the noise event less that of Sigma
    replan: float
    enough: float  # log(1 + replan)
    clip_at_horizon: bool  # the paper's clip at H instead of H - h + 1


class LinearState(PlanState):
    """Statistics, the plan in play, and the rows seen under it."""

    __slots__ = ()

    sigma = named(SIGMA)
    xy = named(XY)
    factor = named(FACTOR)
    theta = named(THETA)
    growth = named(GROWTH)


class LinearStatistics(NamedTuple):
    """What was learned, apart from any plan: enough for another learner to go on from (M17)."""

    gram: Floats  # [T * blocks' matrices] sum x x^T, without lambda I
    xy: Floats  # [T*d] sum y x
    episodes: int
    steps: int = 1  # T: 1, or H with one kernel per step
    rewards: RewardStatistics | None = None  # what was observed of rewards that are estimated
    additions: int | None = None  # of which the sums were made; None: at most one a row
    seen: Ints | None = None  # [O + 1] how often each outcome was seen, and what is none of them, where it is counted

    def restrict(self, coordinates: Sequence[int]) -> LinearStatistics:
        """Return the [D, D] and [D] blocks of every step, for one dense block of coordinates."""
        d = self.xy.size // self.steps
        if self.gram.size != self.steps * d * d:
            raise ShapeError("statistics", got="several blocks", expected="one dense block to restrict")
        chosen = np.asarray(coordinates, dtype=np.int64)
        block = self.gram.reshape(-1, d, d)[:, chosen[:, None], chosen]
        xy = self.xy.reshape(-1, d)[:, chosen].ravel()
        return self._replace(gram=np.ascontiguousarray(block).ravel(), xy=xy, seen=None)

    def by_step(self) -> list[LinearStatistics]:
        """Return the statistics of each step as those of a regression of its own."""
        grams, vectors = np.split(self.gram, self.steps), np.split(self.xy, self.steps)
        return [LinearStatistics(gram, xy, self.episodes) for gram, xy in zip(grams, vectors, strict=True)]


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTRLin(Learner):
    """Act greedily on values planned optimistically over the confidence ellipsoid of theta* (M8-M12).

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.UCRLVTRLin(features=orl.FeatureMap(problem.phi), norm_bound=1.3)
    >>> result = orl.run(agent, problem, episodes=50)

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
    record : FeatureMap, optional
        Record the rows in the coordinates of these features too, for a test of the class that they span (ARL-GEN).
    rewards : "known", RewardsPerPair or RewardsLinear
        Rewards that are not known are estimated (:mod:`occamrl.learners.rewards`), for a share of delta.
    kernel : "stationary" | "per_step"
        One parameter for all steps, or one for each with statistics and an ellipsoid of its own; ``norm_bound`` bounds
        every one of them, and delta is divided evenly among the steps that give rows.
    """

    guarantee = "valid"
    given = ("a norm bound",)

    features: FeatureMap
    norm_bound: float
    delta: float = 0.05
    radius: Radius = "sharp"
    weights: Weights = "range"
    replan: float = 0.2
    regularization: float | str = 1.0
    scale: float = 1.0
    paper_constant: float = 1.0
    clip: Literal["step", "horizon"] | None = None
    active: Sequence[int] | None = None
    event: tuple[float, float] | None = None
    record: FeatureMap | None = None
    rewards: Rewards = "known"
    kernel: Kernel = "stationary"

    def __post_init__(self) -> None:
        require_kind("features", self.features, FeatureMap)
        require_choice("radius", self.radius, ELLIPSOIDS)
        require_choice("weights", self.weights, ("range", "none"))
        require_choice("kernel", self.kernel, KERNELS)
        require_rewards(self.rewards)
        if self.clip is not None:
            require_choice("clip", self.clip, ("step", "horizon"))
        require_number("delta", self.delta, SMALLEST_LEVEL, 1.0)
        if isinstance(self.regularization, str):
            require_choice("regularization", self.regularization, ("scaled",))
        else:
            require_number("regularization", self.regularization, SMALLEST, LARGEST)
        require_numbers(self, SMALLEST, LARGEST, "norm_bound", "paper_constant")
        require_numbers(self, 0.0, LARGEST, "replan", "scale")
        if self.paper_constant != 1.0 and self.radius != "paper":
            raise ParameterError("paper_constant", got=self.paper_constant, expected='1, or radius="paper"')
        if self.active is not None:
            if self.features.is_tabular:
                raise ParameterError("active", got="a tabular map", expected="a dense or sparse one to restrict")
            as_indices("active", self.active, self.features.dimension)
        if self.event is not None:
            require_sequences(self, -math.inf, math.inf, "event")
            if self.radius != "sharp" or len(self.event) != 2 or self.event[0] < self.lam:
                raise ParameterError("event", got=self.event, expected="the sharp radius, and a lambda' >= lambda")

    @cached_property
    def planned(self) -> FeatureMap:
        """The features that plans are made with: those of the active coordinates."""
        return self.features if self.active is None else self.features.restrict(self.active)

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
        planned, steps = self.planned, self.steps(known)
        layout, blocks = planned.attach(known), stacked(planned.blocks, steps)
        outcomes, largest = layout.outcomes, int(blocks.size.max())
        most = int(np.diff(outcomes.start).max())
        rows = known.horizon if outcomes.bonus.any() else known.horizon - 1
        at_horizon = (self.clip or ("horizon" if self.radius == "ayoub" else "step")) == "horizon"
        # Values cut at H instead of H - h + 1 have targets of range up to H (and a bonus of up to 1).
        plain_range = rows + 1 if at_horizon else rows
        batch, turned, turned_x = _batch_of(planned, outcomes)
        active = np.zeros(0, dtype=np.int64) if self.active is None else np.asarray(self.active, dtype=np.int64)
        rewards, reward_fields = rewards_model(self.rewards, known, float(self.delta))
        pairs = known.states * known.actions
        fields = [
            *reward_fields,
            *model_fields(planned, self.features, self.record, known, steps),
            np.zeros(largest * largest),
            np.zeros(active.size * active.size + active.size),
            np.zeros((6, pairs)),
            turned,
            turned_x,
            np.zeros(turned_x.size + turned_x.size // largest * most if isinstance(batch, (NoBatch, Threads)) else 0),
            np.zeros(blocks.size.size, dtype=np.int64),
            blocks.of,
            blocks.vector_start,
            blocks.matrix_start,
            active,
        ]
        made: LinearModel = lay_out(
            LinearModel,
            fields,
            record=NoRecord() if self.record is None else Record(steps),
            rewards=rewards,
            known_rewards=isinstance(self.rewards, str),
            actions=known.actions,
            horizon=known.horizon,
            rows=rows,
            steps=steps,
            dimension=planned.dimension,
            batch=batch,
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
            enough=math.log1p(self.replan),
            clip_at_horizon=at_horizon,
        )
        return made

    def fields(self, known: Known, state: Any = None) -> list[Field]:
        """Return what the arrays of a state hold."""
        steps, table = self.steps(known), (known.horizon, known.states)
        every, planned = stacked(self.features.blocks, steps), stacked(self.planned.blocks, steps)
        sizes = {
            "sigma": (int(every.matrix_start[-1]),),
            "xy": (int(every.vector_start[-1]),),
            "factor": (int(planned.matrix_start[-1]),),
            "theta": (int(planned.vector_start[-1]),),
            "logdets": (2, planned.size.size),
            "growth": (steps, 4),
        }
        return [
            *plan_fields(known, reward_rows(self.rewards, known), {"added": (0, 2**62, 0)}),
            *record_fields(self.record, steps, known.states * known.actions),
            *(Field(name, shape, -MOST, MOST) for name, shape in sizes.items()),
            Field("row_norm", table, 0.0, MOST),
            Field("updates", (planned.size.size,), 0, MOST_ROWS),
            Field("seen", (self._counted,), 0, MOST_ROWS),
        ]

    def begin(self, known: Known, statistics: LinearStatistics | None = None) -> LinearState:
        """Return a fresh state, or one that continues from statistics gathered elsewhere."""
        if statistics is not None:
            self.require_statistics(known, statistics)
        return self.go_on(known, statistics)

    def go_on(self, known: Known, statistics: LinearStatistics | None) -> LinearState:
        """Return the state of :meth:`begin`, from statistics that are known to be sound."""
        steps = self.steps(known)
        state: LinearState = fresh_state(LinearState, self.fields(known))
        field(state, SIGMA)[:] = self._ridge(steps)
        if statistics is not None:
            field(state, SIGMA)[:] += statistics.gram
            field(state, XY)[:] = statistics.xy
            rows = statistics.episodes * known.horizon
            field(state, COUNTERS)[EPISODES] = statistics.episodes
            field(state, COUNTERS)[ADDED] = rows if statistics.additions is None else statistics.additions
            continue_rewards(state, statistics.rewards)
            if statistics.seen is not None and self._counted:
                field(state, SEEN)[:] = statistics.seen
            try:
                refresh(model_of(self, known), state, True)
            except ValueError as error:
                raise ParameterError("statistics.gram", got=str(error), expected="a sum of x x^T") from error
        else:  # Sigma = lambda I
            field(state, FACTOR)[:] = self._diagonal(stacked(self.planned.blocks, steps), 1.0 / math.sqrt(self.lam))
        return state

    @property
    def _counted(self) -> int:
        """How many kinds of outcomes are counted; 0 where they say nothing beyond the rows."""
        outcomes = self.features.layout.outcomes.next_state.size
        few = self.features.dimension <= MOST_CANDIDATES and outcomes <= MOST_OUTCOMES
        plain = self.active is None and self.kernel == "stationary" and isinstance(self.rewards, str)
        return outcomes + 1 if few and plain and self.features.of_kernels else 0

    def require_statistics(self, known: Known, statistics: Any) -> None:
        """Refuse statistics of other features, and such as no rows have."""
        require_kind("statistics", statistics, LinearStatistics)
        steps, rewards = self.steps(known), reward_rows(self.rewards, known)
        blocks = stacked(self.features.blocks, steps)
        Field("gram", (int(blocks.matrix_start[-1]),), -MOST, MOST).require(statistics.gram, "statistics")
        Field("xy", (int(blocks.vector_start[-1]),), -MOST, MOST).require(statistics.xy, "statistics")
        require_integer("statistics.episodes", statistics.episodes, 0, most=MOST_ROWS)
        if statistics.additions is not None:
            require_integer("statistics.additions", statistics.additions, 0)
        if statistics.steps != steps:
            raise ParameterError("statistics.steps", got=statistics.steps, expected=steps)
        require_gram("statistics.gram", blocks, statistics.gram)
        squares = np.zeros(statistics.xy.size)  # sum x_j^2
        for begin, at, n in zip(blocks.matrix_start, blocks.vector_start, blocks.size, strict=False):
            squares[at : at + n] = statistics.gram[begin : begin + n * n : n + 1]
        rounding = 1e-6 * (self.lam + float(np.abs(squares).max(initial=0.0)))
        rows = statistics.episodes * known.horizon  # with targets of at most H: |sum y x_j|^2 <= sum y^2 sum x_j^2
        limit = known.horizon * np.sqrt(rows * (np.maximum(squares, 0.0) + rounding))
        Field("xy", statistics.xy.shape, -limit, limit).require(statistics.xy, "statistics")
        if statistics.seen is not None and self._counted:
            Field("seen", (self._counted,), 0, MOST_ROWS).require(statistics.seen, "statistics")
        if rewards and statistics.rewards is not None:
            require_observed(statistics.rewards, (rewards, known.states * known.actions))

    def resume(self, model: LinearModel, fresh: LinearState, state: LinearState) -> None:
        """Refuse a state whose fields contradict each other."""
        require_rows(state)
        require_gram("state.sigma", stacked(self.features.blocks, model.steps), field(state, SIGMA), self.lam)

    def _ridge(self, steps: int) -> Floats:
        """Return Sigma before any data, lambda I, of all blocks."""
        return self._diagonal(stacked(self.features.blocks, steps), self.lam)

    def _diagonal(self, blocks: Blocks, value: float) -> Floats:
        """Return packed blocks that are ``value`` times the identity."""
        packed = np.zeros(int(blocks.matrix_start[-1]))
        for n in np.unique(blocks.size):
            begins = blocks.matrix_start[:-1][blocks.size == n]
            packed[begins[:, None] + np.arange(n) * (n + 1)] = value
        return packed

    def statistics(self, known: Known, state: LinearState) -> LinearStatistics:
        """Return the rows seen so far as statistics; rows that wait for a plan are entered first."""
        state = copy.deepcopy(state)  # asking must not change what follows
        enter_rows(model_of(self, known), state)
        steps = self.steps(known)
        gram = field(state, SIGMA) - self._ridge(steps)
        episodes, added = (int(field(state, COUNTERS)[which]) for which in (EPISODES, ADDED))
        seen = field(state, SEEN).copy() if self._counted else None
        return LinearStatistics(gram, field(state, XY).copy(), episodes, steps, reward_statistics(state), added, seen)

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


def require_gram(name: str, blocks: Blocks, gram: Floats, least: float = 0.0) -> None:
    """Refuse packed matrices that no rows have: lambda I + sum x x^T is symmetric, with eigenvalues of at least lambda.

    ``least`` is lambda; rounding is forgiven. Without it the matrix is a difference, whose rounding is that of a lambda
    that is not known here, and only its symmetry is looked at.
    """
    for n in np.unique(blocks.size):
        begins = blocks.matrix_start[:-1][blocks.size == n]
        each = gram[begins[:, None] + np.arange(n * n)].reshape(-1, n, n)
        lost = 1e-7 * np.abs(each).max(axis=(1, 2))
        uneven = np.abs(each - each.transpose(0, 2, 1)).max(axis=(1, 2)) > lost
        if uneven.any() or (least > 0.0 and (np.linalg.eigvalsh(each)[:, 0] < least - lost).any()):
            expected = "a symmetric one" + f" with eigenvalues of at least {least:g}" * (least > 0.0)
            raise ParameterError(name, got="another matrix", expected=expected)


def _batch_of(features: FeatureMap, outcomes: Outcomes) -> tuple[Any, Floats, Floats]:
    """Return how all (s, a) can be predicted at once, and the transposed arrays for it: few coordinates are needed.

    Only ``phi`` holds data; the rest is scratch that is filled at every plan.
    """
    pairs = outcomes.start.size - 1
    count = outcomes.next_state.size // pairs
    one_block = features.blocks.size.size == 1
    d = features.dimension
    nothing: tuple[Any, Floats, Floats] = NoBatch(), np.zeros((0, 1)), np.zeros((0, 1))
    if one_block:
        threads = threads_for(outcomes.next_state.size)
        batch, pieces = (threads, PIECES) if isinstance(threads, Threads) else (NoBatch(), 1)
        nothing = batch, np.zeros((0, 1)), np.zeros((pieces * d, min(_CHUNK, pairs)))
    if (np.diff(outcomes.start) != count).any() or outcomes.bonus.any():
        return nothing
    table = outcomes.next_state.reshape(pairs, count)
    if (table != table[0]).any():
        return nothing
    if isinstance(features.layout, DenseFeatures) and d <= MOST_COORDINATES:
        turned = features.layout.phi.reshape(pairs, count, d).transpose(1, 2, 0).reshape(count * d, pairs)
        return SharedBlock(), np.ascontiguousarray(turned), np.zeros((d, pairs))
    own_block = features.blocks.size.size == pairs
    if isinstance(features.layout, TabularFeatures) and own_block and count <= MOST_COORDINATES:
        return BlockPerPair(), np.zeros((count * count, pairs)), np.zeros((count, pairs))
    return nothing


# Compiled -------------------------------------------------------------------------------------------------------------


@hot
def refactor_block(model: LinearModel, state: LinearState, b: int) -> None:
    """Factorise one block of Sigma afresh, or the [D, D] block of step ``b`` where only some coordinates plan."""
    active, vectors, matrices = ivec(model, ACTIVE), ivec(model, VECTOR), ivec(model, MATRIX)
    n = vectors[b + 1] - vectors[b]
    sigma, xy = fvec(state, SIGMA), fvec(state, XY)
    matrix, right = square(sigma, matrices[b], n), part(xy, vectors[b], n)
    if active.size > 0:
        d, block = xy.size // model.steps, fvec(model, BLOCK)
        matrix, right = square(block, 0, n), part(block, n * n, n)
        for i in range(n):
            right[i] = xy[b * d + active[i]]
            for j in range(n):
                matrix[i, j] = sigma[b * d * d + active[i] * d + active[j]]
    factor, theta = square(fvec(state, FACTOR), matrices[b], n), part(fvec(state, THETA), vectors[b], n)
    work, logdets, added = fvec(model, WORK), fmat(state, LOGDETS), ivec(state, COUNTERS)[ADDED]
    logdets[0, b], logdets[1, b] = refactor(matrix, right, factor, theta, work, model.regularization, added)
    ivec(state, UPDATES)[b] = 0


@hot
def sum_logdets(steps: int, logdets: Floats, growth: Floats) -> None:
    """Take note of logdet(Sigma / lambda) of every step, and by how much lambda was raised."""
    blocks = logdets.shape[1] // steps
    for t in range(steps):
        growth[t, LOGDET] = growth[t, RAISED] = 0.0
        for b in range(t * blocks, (t + 1) * blocks):
            growth[t, LOGDET] += logdets[0, b]
            growth[t, RAISED] = max(growth[t, RAISED], logdets[1, b])


@hot
def absorb(model: LinearModel, state: LinearState) -> None:
    """Enter the rows seen since the last plan into Sigma and xy, and factorise what they changed.

    A few rows in a large block update its factor (O(n^2) each), at most n of them before it is made anew (O(n^3)).
    """
    counters, policy, values = ivec(state, COUNTERS), imat(state, POLICY), fmat(state, VALUES)
    dirty, of, cells = ivec(model, DIRTY), ivec(model, OF), ivec(state, CELLS)
    vectors, matrices, sigma = ivec(model, VECTOR), ivec(model, MATRIX), fvec(state, SIGMA)
    target, x, xy = fvec(model, TARGET), fvec(model, X), fvec(state, XY)
    per_step = (vectors.size - 1) // model.steps
    restricted, d = ivec(model, ACTIVE).size > 0, xy.size // model.steps
    visits, firsts = imat(state, VISITS), fmat(state, FIRST)
    totals, sums = fmat(state, TOTAL), fmat(state, SQUARES)
    features = features_of(model, RECORD if restricted else FEATURES)
    factors, logdets, updates, work = fvec(state, FACTOR), fmat(state, LOGDETS), ivec(state, UPDATES), fvec(model, WORK)
    few = 0 if restricted else FEW_ROWS * counters[TOUCHED]
    for i in range(counters[TOUCHED]):
        h, s, count, total, squares = take_cell(visits, totals, sums, cells[i])
        first, sa = firsts[h, s], s * model.actions + policy[h, s]
        record_rows(model.record, model, state, h, sa, count, first, total, squares)
        middle, spread = row_of(features, model.weighted, values[h + 1], sa, target, x)
        if spread <= 0.0:
            continue
        t = h % model.steps
        b = t * per_step + of[sa]
        n = vectors[b + 1] - vectors[b]
        y = (total + count * (first - middle)) / spread
        matrix, right = square(sigma, matrices[b], n), part(xy, vectors[b], n)
        if restricted:
            matrix, right = square(sigma, t * d * d, d), part(xy, t * d, d)
        add_row(matrix, count, x)
        for j in range(right.size):
            right[j] += y * x[j]
        if 0 < few <= n and n > LARGE_BLOCK and updates[b] < n and dirty[b] != ANEW:
            logdets[0, b] += update_factor(square(factors, matrices[b], n), count, x, work)
            updates[b] += 1
            dirty[b] = NEW_ROWS
        else:
            dirty[b] = ANEW
    counters[ADDED] += counters[TOUCHED]
    for i in range(counters[TOUCHED]):
        h, s = divmod(cells[i], policy.shape[1])
        b = (h % model.steps) * per_step + of[s * model.actions + policy[h, s]]
        if dirty[b] == ANEW:
            refactor_block(model, state, b)
        elif dirty[b] == NEW_ROWS:
            n = vectors[b + 1] - vectors[b]
            theta = part(fvec(state, THETA), vectors[b], n)
            solve(square(factors, matrices[b], n), part(xy, vectors[b], n), theta, work)
        dirty[b] = CLEAN
    counters[TOUCHED] = 0
    growth = fmat(state, GROWTH)
    for t in range(model.steps):
        growth[t, TRACE] = 0.0
    sum_logdets(model.steps, fmat(state, LOGDETS), growth)


@entry
def refresh(model: LinearModel, state: LinearState, anew: bool) -> None:
    """Enter the rows that wait for the next plan; ``anew``: then factorise every block, whatever rows it has."""
    absorb(model, state)
    if anew:
        for b in range(ivec(model, VECTOR).size - 1):
            refactor_block(model, state, b)
        sum_logdets(model.steps, fmat(state, LOGDETS), fmat(state, GROWTH))


def enter_rows(model: LinearModel, state: LinearState) -> None:
    """Enter the rows that wait for the next plan."""
    refresh(model, state, False)


def prepare(batch: Any, model: LinearModel, state: LinearState, t: int) -> None:
    """Copy what :func:`predict` needs at step ``t`` of a plan; nothing unless the batch says so."""
    raise TypeError(f"no batch of type {type(batch).__name__}")


@otherwise(prepare)
def prepare_nothing(batch: Any, model: LinearModel, state: LinearState, t: int) -> None:
    """``prepare`` where there is nothing to copy."""


@implements(prepare, BlockPerPair)
def turn_all(batch: BlockPerPair, model: LinearModel, state: LinearState, t: int) -> None:
    """``prepare`` the factors and estimates of all (s, a), transposed."""
    factors, thetas = fvec(state, FACTOR), fvec(state, THETA)
    n, d = factors.size // model.steps, thetas.size // model.steps
    turn_blocks(part(factors, t * n, n), part(thetas, t * d, d), fmat(model, TURNED), fmat(model, TURNED_X))


def predict(batch: Any, model: LinearModel, state: LinearState, t: int, values: Floats) -> None:
    """Write <x, theta>, ||x||^2 and (c, R) of every (s, a), for the values of the next step, into PAIRS."""
    raise TypeError(f"no batch of type {type(batch).__name__}")


@hot
def predict_piece(
    features: FeatureView,
    rewarded: bool,
    weighted: bool,
    values: Floats,
    factor: Floats,
    theta: Floats,
    scratch: Floats,
    rows: Floats,
    pairs: Floats,
    first: int,
    last: int,
) -> None:
    """Predict the pairs from ``first`` to ``last``, which share one block of coordinates, a chunk of them at a time.

    ``rows`` [d, chunk] and ``scratch`` [the outcomes of a chunk, and d] are not to be used by anyone else meanwhile;
    ``rewarded`` says whether any outcome has a bonus.
    """
    (start, after, bonus), (d, chunk) = features.outcomes, rows.shape
    x = part(scratch, scratch.size - d, d)
    for begin in range(first, last, chunk):
        size, o = min(chunk, last - begin), start[begin]
        for i in range(start[begin + size] - o):  # values far apart: all at once, so that none waits for another
            scratch[i] = values[np.uint64(after[o + i])]
        if rewarded:
            for i in range(start[begin + size] - o):
                scratch[i] += bonus[o + i]
        for i in range(size):
            sa, count = begin + i, start[begin + i + 1] - start[begin + i]
            target = part(scratch, start[sa] - o, count)
            low, high = extremes(target)
            middle, spread = weigh(weighted, low, high, target, count)
            if spread > 0.0:
                feature_vector(features.kind, d, start, features.places, features.entries, sa, target, x)
            pairs[MIDDLE, sa] = middle
            pairs[SPREAD, sa] = spread
            for j in range(d):
                rows[j, i] = x[j] if spread > 0.0 else 0.0
        mean, norm = part(pairs[MEAN], begin, size), part(pairs[NORM], begin, size)
        predict_rows(rows, part(pairs[SUM], begin, size), factor, theta, mean, norm)


@implements(predict, NoBatch)
def predict_each(batch: NoBatch, model: LinearModel, state: LinearState, t: int, values: Floats) -> None:
    """``predict`` pair by pair, or the rows of a chunk of pairs at once where all share one block of coordinates."""
    pairs, target, x = fmat(model, PAIRS), fvec(model, TARGET), fvec(model, X)
    vectors, matrices, of = ivec(model, VECTOR), ivec(model, MATRIX), ivec(model, OF)
    first, features = t * ((vectors.size - 1) // model.steps), features_of(model, FEATURES)
    thetas, factors, work = fvec(state, THETA), fvec(state, FACTOR), fvec(model, WORK)
    rows = fmat(model, TURNED_X)
    d = rows.shape[0]
    if d > 0:
        factor, theta = square(factors, matrices[first], d), part(thetas, vectors[first], d)
        scratch, rewarded = fvec(model, TARGETS), model.rows == model.horizon
        predict_piece(features, rewarded, model.weighted, values, factor, theta, scratch, rows, pairs, 0, of.size)
        return
    for sa in range(of.size):
        pairs[MIDDLE, sa], pairs[SPREAD, sa] = row_of(features, model.weighted, values, sa, target, x)
        pairs[MEAN, sa] = 0.0
        pairs[NORM, sa] = 0.0
        if pairs[SPREAD, sa] > 0.0:
            b = first + of[sa]
            n = vectors[b + 1] - vectors[b]
            pairs[MEAN, sa] = dot(x, part(thetas, vectors[b], n), n)
            pairs[NORM, sa] = squared_norm(square(factors, matrices[b], n), x, work)


@threaded
def predict_pieces(
    kind: int,
    d: int,
    start: Ints,
    after: Ints,
    bonus: Floats,
    places: Ints,
    entries: Floats,
    rewarded: bool,
    weighted: bool,
    values: Floats,
    factor: Floats,
    theta: Floats,
    scratch: Floats,
    rows: Floats,
    pairs: Floats,
) -> None:
    """Predict all pairs, each piece of them with its own scratch memory: the same numbers by any number of threads."""
    size, each = start.size - 1, scratch.size // PIECES
    for p in prange(PIECES):
        features = FeatureView(kind, d, Outcomes(start, after, bonus), places, entries)
        own, mine = part(scratch, p * each, each), rows[p * d : (p + 1) * d]
        first, last = size * p // PIECES, size * (p + 1) // PIECES
        predict_piece(features, rewarded, weighted, values, factor, theta, own, mine, pairs, first, last)


@implements(predict, Threads)
def predict_in_threads(batch: Threads, model: LinearModel, state: LinearState, t: int, values: Floats) -> None:
    """``predict`` as without a batch, with several threads."""
    kind, d, (start, after, bonus), places, entries = features_of(model, FEATURES)
    factor, theta = square(fvec(state, FACTOR), t * d * d, d), part(fvec(state, THETA), t * d, d)
    scratch, rows, pairs = fvec(model, TARGETS), fmat(model, TURNED_X), fmat(model, PAIRS)
    rewarded, weighted = model.rows == model.horizon, model.weighted
    predict_pieces(
        kind, d, start, after, bonus, places, entries, rewarded, weighted, values, factor, theta, scratch, rows, pairs
    )


@hot
def shared_target(model: LinearModel, values: Floats) -> bool:
    """Write the target function that all (s, a) share, and its (c, R); say whether it varies at all."""
    pairs, target, outcomes = fmat(model, PAIRS), fvec(model, TARGET), features_of(model, FEATURES).outcomes
    low, high = fill_target(outcomes, 0, values, target)
    middle, spread = weigh(model.weighted, low, high, target, outcomes.start[1])
    for sa in range(pairs.shape[1]):
        pairs[MIDDLE, sa] = middle
        pairs[SPREAD, sa] = spread
    if spread <= 0.0:
        for sa in range(pairs.shape[1]):
            pairs[MEAN, sa] = 0.0
            pairs[NORM, sa] = 0.0
    return spread > 0.0


@implements(predict, SharedBlock)
def predict_one_block(batch: SharedBlock, model: LinearModel, state: LinearState, t: int, values: Floats) -> None:
    """``predict`` all pairs at once, from one block of coordinates."""
    if shared_target(model, values):
        pairs, n = fmat(model, PAIRS), fmat(model, TURNED_X).shape[0]
        factor, theta = square(fvec(state, FACTOR), t * n * n, n), part(fvec(state, THETA), t * n, n)
        turned, x, target = fmat(model, TURNED), fmat(model, TURNED_X), fvec(model, TARGET)
        predict_shared(turned, x, pairs[SUM], factor, theta, target, pairs[MEAN], pairs[NORM])


@implements(predict, BlockPerPair)
def predict_own_blocks(batch: BlockPerPair, model: LinearModel, state: LinearState, t: int, values: Floats) -> None:
    """``predict`` all pairs at once, each from its own block."""
    if shared_target(model, values):
        pairs, target = fmat(model, PAIRS), fvec(model, TARGET)
        predict_tabular(fmat(model, TURNED), fmat(model, TURNED_X), pairs[SUM], target, pairs[MEAN], pairs[NORM])


@hot
def optimistic_values(model: LinearModel, state: LinearState) -> bool:
    """Plan by M9 (or M11 with range weights); return whether any action changed."""
    values, policy, pairs = fmat(state, VALUES), imat(state, POLICY), fmat(model, PAIRS)
    reward, growth, thetas = fmat(model, REWARD), fmat(state, GROWTH), fvec(state, THETA)
    mean, norm, middle, spread, q = pairs[MEAN], pairs[NORM], pairs[MIDDLE], pairs[SPREAD], pairs[Q]
    horizon, states = policy.shape
    actions, changed, bias = model.actions, False, 0.0
    of_vectors = thetas.size // model.steps
    optimistic_rewards(model.rewards, model, state)
    for h in range(horizon - 1, -1, -1):
        t = h % model.steps
        if h == horizon - 1 or model.steps > 1:
            theta = part(thetas, t * of_vectors, of_vectors)
            bias = model.estimate_weight * dot(theta, theta, of_vectors)
            bias += growth[t, RAISED] * model.norm_bound**2
            prepare(model.batch, model, state, t)
        width = ellipsoid_width(
            model.radius,
            model.weighted,
            model.unit,
            horizon,
            h,
            ivec(state, COUNTERS)[EPISODES],
            model.dimension,
            growth[t, LOGDET] + model.slack,
            model.delta,
            model.regularization,
            model.norm_bound,
            model.paper_constant,
        )
        width = model.scale * (width if bias == 0.0 else math.sqrt(width * width + bias))
        width = width * CARE if growth[t, RAISED] > 0.0 else width
        ceiling = float(horizon) if model.clip_at_horizon else float(horizon - h)
        predict(model.batch, model, state, t, values[h + 1])
        counted_on = reward[h % reward.shape[0]]
        if model.weighted:
            for sa in range(q.size):
                estimate = mean[sa] + width * math.sqrt(norm[sa])
                estimate = -0.5 if estimate < -0.5 else estimate
                estimate = 0.5 if estimate > 0.5 else estimate
                q[sa] = counted_on[sa] + middle[sa] + spread[sa] * estimate
        else:
            for sa in range(q.size):
                q[sa] = counted_on[sa] + mean[sa] + width * math.sqrt(norm[sa])
        for s in range(states):
            choice = 0
            best = q[s * actions]
            for a in range(1, actions):
                if q[s * actions + a] > best:
                    best = q[s * actions + a]
                    choice = a
            values[h, s] = min(max(best, 0.0), ceiling)
            if policy[h, s] != choice:
                policy[h, s] = choice
                changed = True
    return changed


@hot_inline
def may_be_due(model: LinearModel, state: LinearState) -> bool:
    """Say whether logdet Sigma of some step can have grown by log(1 + c) since the last plan (M12)."""
    enough, growth = model.enough, fmat(state, GROWTH)
    for t in range(model.steps):
        if not growth[t, LOGDET] + growth[t, TRACE] < growth[t, LOGDET_AT_PLAN] + enough:
            return True
    return False


@hot
def make_plan(model: LinearModel, state: LinearState, lazily: bool) -> int:
    """Enter the rows and plan; ``lazily``: only if a log-determinant has grown enough."""
    counters, growth = ivec(state, COUNTERS), fmat(state, GROWTH)
    absorb(model, state)  # sets the traces to zero: what was possible is now known
    if lazily and not may_be_due(model, state):
        counters[EPISODES] += 1
        return 0
    changed = optimistic_values(model, state)
    first = counters[PLANS] == 0
    counters[EPISODES] += 1
    counters[PLANS] += 1
    for t in range(model.steps):
        growth[t, LOGDET_AT_PLAN] = growth[t, LOGDET]
    return PLANNED | CHANGED if changed or first else PLANNED


@implements(plan, LinearState, argument=1)
def plan_linear(model: LinearModel, state: LinearState, start: int, key: np.uint64, episode: int) -> int:
    """Replan every time, or when a log-determinant (M12) or the rewards observed have grown enough."""
    counters = ivec(state, COUNTERS)
    lazily = counters[PLANS] > 0 and model.replan > 0.0 and counters[REWARDS_DUE] == 0
    if lazily and not may_be_due(model, state):
        counters[EPISODES] += 1
        return 0
    return make_plan(model, state, lazily)


@hot
def row_norm(model: LinearModel, state: LinearState, h: int, s: int) -> float:
    """Return ||x||^2 in the inverse of the last factorised Sigma, zero for a row that carries nothing."""
    sa = s * model.actions + imat(state, POLICY)[h, s]
    x = fvec(model, X)
    features, values = features_of(model, FEATURES), fmat(state, VALUES)[h + 1]
    _, spread = row_of(features, model.weighted, values, sa, fvec(model, TARGET), x)
    if spread <= 0.0:
        return 0.0
    vectors, matrices = ivec(model, VECTOR), ivec(model, MATRIX)
    b = (h % model.steps) * ((vectors.size - 1) // model.steps) + ivec(model, OF)[sa]
    factor = square(fvec(state, FACTOR), matrices[b], vectors[b + 1] - vectors[b])
    return squared_norm(factor, x, fvec(model, WORK))


@hot
def count_outcomes(model: LinearModel, path: Path, steps: int, seen: Ints) -> None:
    """Count which outcome each transition was; the last count is of those that are none."""
    outcomes = features_of(model, FEATURES).outcomes
    for h in range(steps):
        sa = path.states[h] * model.actions + path.actions[h]
        seen[outcome_of(outcomes, sa, path.states[h + 1], path.bonus[h], False)] += 1


@implements(learn, LinearState, argument=1)
def learn_linear(model: LinearModel, state: LinearState, path: Path, steps: int) -> None:
    """Count the rows of an episode, and how much they may have added to the log-determinants."""
    counters = ivec(state, COUNTERS)
    before, rows = counters[TOUCHED], min(steps, model.rows)
    observe_rewards(model.rewards, state, path, steps, model.actions, 1.0 + model.replan)
    count_rows(state, path, rows, model.known_rewards, fvec(state, GRAM).size > 0)
    if ivec(state, SEEN).size > 0:
        count_outcomes(model, path, steps, ivec(state, SEEN))
    if model.replan > 0.0:
        norms, growth, cells = fmat(state, ROW_NORM), fmat(state, GROWTH), ivec(state, CELLS)
        for i in range(before, counters[TOUCHED]):
            h, s = divmod(cells[i], norms.shape[1])
            norms[h, s] = row_norm(model, state, h, s)
        if model.steps == 1:
            trace = growth[0, TRACE]
            for h in range(rows):
                trace += norms[h, np.uint64(path.states[h])]
            growth[0, TRACE] = trace
        else:
            for h in range(rows):
                growth[h, TRACE] += norms[h, path.states[h]]


follows_plan(LinearState)
