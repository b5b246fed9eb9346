r"""UCRL-VTR: optimism over a finite family of kernels (Ayoub et al. 2020; Ghosh et al. 2022, section 3).

**Losses.** Per kernel P only its loss L(P) is kept (up to a constant common to all). A row adds (z - y)^2 with z = <x,
theta>, theta the parameters of P, so all rows add a quadratic form,

    L(P) - sum y^2 = sum over blocks of <theta, G theta> - 2 <g, theta>,   G = sum x x^T,  g = sum y x:

G and g, kept in blocks of coordinates as the features are, say all about every kernel that rows can say. Where kernels
are fewer than the coordinates of a block, x is the vector of all their z, theta a unit vector, and there is one block.
There is one as well where few parameters move all kernels of a large family, so that few rows of theta make all others.
The losses of kernels in play are kept current. In blocks of few coordinates, the form of an episode's rows is computed
for all of them. Otherwise z is a column, computed at the first visit of a cell under a plan, so that an episode costs
O(H n); such rows join G and g when their plan goes.

**Sharp set** (M24): B = {P : L(P) <= t}, t = -(1/2) log sum_P w(P) exp(-2 L(P)) + (1/2) log(1/delta) for rows that are
weighted by their range (M23). Kernels that leave it are dropped from the sum as well, which only raises the threshold,
so the set stays valid. At doubling times all dropped kernels are looked at again.

**Classes** (M25): the class in play is the smallest that still meets B. Kernels stand in a list, in their order, which
is that of the classes; the first CURRENT belong to the class in play and their losses are current. Those after them, up
to ALIVE, belong to larger classes, and their losses are computed from G and g when a test needs them. Between tests the
sum runs over the kernels of the class in play alone; leaving terms out raises the threshold, so P* stays in the set -
but a class whose own kernels make up the whole sum is never left without a kernel. A test takes the sum over all
kernels that are left; only then can a class be rejected. Tests come when the data have grown by a given factor, so a
wrong class is kept at most that much longer than with a test before every episode.

**Ball** (M4), over plain rows: B = {P : L(P, Phat) <= beta}; nothing is dropped, and distances are computed from G when
Phat changes.

**Covers**: the truth may lie between two members. Then t has the term E of :func:`occamrl.models.finite.off_grid`, and
beta is replaced by (sqrt(beta + 2 E) + U reach sqrt(n)/2)^2, U being the largest range of a target: with P0 the member
nearest to the truth, L(Phat) <= L(P0) <= L(P*) + E enters M21 with c = 1 and gives L(P*, Phat) <= beta + 2 E, and P0 is
within U reach/2 of P* on every row.

**Values** V*_{P,h} depend on P alone where rewards are known and one kernel serves all steps; they are solved once per
family and problem, a :class:`FiniteState`. With unknown rewards or one kernel per step values are solved with each
plan, a :class:`PlannedState`: the losses of all members are kept, for each of T steps (T = 1: one kernel for all),
nobody is dropped, and B_t is read off them at level delta/T. One kernel for all steps: every member of B is solved for
the rewards that the plan counts on, and the one with the largest value at the start is played (M5). One per step:
(P_1, ..., P_H) is any choice from B_1 x ... x B_H, of which there are too many to list; the plan takes the largest
expectation at every (s, a) by itself,

    Q_h(s, a) = r(s, a) + max over P in B_h of (P V_{h+1})(s, a),

which is no smaller than what any choice gives. The class of a ladder that is in play is the smallest that meets every
B_t.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from occamrl._core.arena import field, fma, fmat, fresh_state, fvec, imat, ivec, lay_out, named, part, square
from occamrl._core.compile import entry, hot, hot_inline, implements
from occamrl._core.features import fill_target
from occamrl._core.loop import CHANGED, PLANNED, Path, learn, plan
from occamrl._core.regression import add_row
from occamrl._core.rows import (
    CELLS,
    COUNTERS,
    EPISODES,
    FEATURES,
    FIRST,
    MODEL_FIELDS,
    MOST,
    MOST_ROWS,
    PLAN_COUNTERS,
    POLICY,
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
    require_agreement,
    require_rows,
    row_of,
    take_cell,
)
from occamrl.errors import ParameterError, as_floats, require_choice, require_kind, require_number
from occamrl.learners.radii import FINITE_SETS, squared_distance_radius
from occamrl.learners.rewards import (
    Rewards,
    kernel_share,
    observe_rewards,
    optimistic_rewards,
    require_rewards,
    reward_rows,
    rewards_model,
    seen_by,
)
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily, level, off_grid
from occamrl.models.ladder import Ladder
from occamrl.protocols import Field, Floats, Ints, Kernel, Known, Learner, Outcomes

_COLUMN_NUMBERS = 2**23  # at most 64 MiB of cached columns
FIRST_LOOK = 64  # episodes before dropped kernels are looked at again for the first time
NEVER = 2**62
_FORM_COST = 32  # multiplications a row for which current losses are computed as quadratic forms, at most
_FORM_MEMBERS = 4096  # of a family for which that pays, at least
_TAYLOR = tuple(1.0 / math.factorial(i) for i in range(9))
_CHUNK = 128  # kernels at a time: what is computed with stays in the nearest cache, and neighbours have much in common
NOBODY = -1  # no member in play
_NEGLIGIBLE = 40.0  # terms of a sum below e^-40 of the largest are left out
_MOST_LOSS = 1e100  # more than any run has; its square is a number

# Counters, after those of _core.rows
(
    ALIVE,  # kernels that are left
    MEMBER,  # in play
    PLACE,  # its position, -1 where it has to be looked for
    BEST,  # the position of the least-squares estimate (ball only)
    LAST_START,
    EPISODES_AT_PLAN,
    NEXT_LOOK,
    CURRENT,  # kernels of the class in play
    CLASS,  # in play, from 0
    CLASS_SINCE,
    NEXT_TEST,
    IMPOSSIBLE,  # rows with a target that no kernel can produce
    GUARDED,  # whether the plan in play is one of the guard
) = range(PLAN_COUNTERS, PLAN_COUNTERS + 13)

# Fields of the model, after those of _core.rows
(
    ROW_START,  # [S*A] int, first coordinate of (s, a)
    BLOCK_SIZE,  # [S*A] int, number of coordinates of (s, a)
    LOG_PRIOR,  # [n]
    LEVEL,  # [n] int, the first class of a ladder that holds the member, from 0; all 0 without a ladder
    FORM_OF,  # [S*A] int, the block of (s, a) in a quadratic form
    FORM_BLOCKS,  # [B, 3] int, its first coordinate, their number m, and where its m^2 + m + 1 numbers begin
    COORDINATE,  # int, the row of ``own`` of each coordinate of the forms
    SAME,  # [rows of own, n/_CHUNK] int, up to which member a row is what it is at the first of a chunk
    SAME_PRIOR,  # [n/_CHUNK] int, the same of LOG_PRIOR
    KERNELS,  # [n] int, scratch, as what follows
    SUMS,  # [n]
    Z,  # [n], or a row in the coordinates of the forms
    OPTIMISM,  # [n + 1] V*_{P,1}(s) of all members, and s
    HIGHEST,  # [n/_CHUNK] the largest of a chunk of them
    FORM,  # a quadratic form, of each block: sum x x^T, sum y x, the number of rows
    LISTED,  # [B + 1] int, how many blocks of a form have rows, and which
    WORK,  # [largest block + 2, _CHUNK]
    VARYING,  # [2, largest block + 3] int, the coordinates of a block that vary in a chunk, and the rows they are in
    FOLDED,  # [largest block + 5, largest block + 3] their form, its linear terms, and the coordinates that do not vary
) = range(MODEL_FIELDS, MODEL_FIELDS + 19)

# Fields of the state, after those of _core.rows
(
    MEMBERS,  # [n] int, members by position, in their order; the first counters[ALIVE] count
    LOSS,  # [T, n] L(P) less sum y^2, by position; infinite once dropped
    DISTANCE,  # [n] L(P, Phat) by position (ball only; else empty)
    INSIDE,  # [T, n] int, whether P was in the set when it was last updated (not for the sharp set that drops)
    ROWS,  # [T] int, number of rows in the losses
    SUM_OF_SQUARES,  # [T] sum of y^2 over them: what the losses leave out
    HELD,  # [C] int, the cell h*S + s of each column, -1: none; cell i is in column i mod C
    COLUMN,  # [C + 1, n] (P V - c)/R at a cell, by position; the last one is scratch
    PLAN_VISITS,  # [H, S] int, rows of the plan in play that are in the losses and not yet in ENTERED
    PLAN_SUM,  # [H, S] sum of their targets
    ENTERED,  # the quadratic form of all other rows
    PAIRS,  # [S*A, 2 + largest block] of each (s, a): number of these rows, sum y, sum x
    SOLVED,  # [n*(H + 1), S] V*_{P,h} of the members in the set; empty where values are solved beforehand
    GREEDY,  # [n*H, S] int, the actions that go with them: the rewards they were solved for are not kept
) = range(STATE_FIELDS, STATE_FIELDS + 14)


class FiniteModel(NamedTuple):
    """What the compiled functions read, and their scratch memory."""

    floats: Floats
    ints: Ints
    theta: Floats  # [d, n]
    own: Floats  # what the coordinates of the quadratic forms are rows of: theta, or the unit vectors
    turn: Floats  # [d, m] from coordinates of the features to those of the one block of a form, where ``turned``
    values: Floats  # [n*(H + 1), S] V*_{P,h}, where they are solved beforehand
    record: Any  # NoRecord | Record
    rewards: Any  # RewardModel
    known_rewards: bool
    actions: int
    horizon: int
    rows: int  # steps that give a row
    counted: bool  # values are solved beforehand
    forms: bool  # current losses are computed as quadratic forms
    turned: bool  # the rows of quadratic forms have coordinates of their own
    restrict: bool  # play the smallest class that the data do not contradict (M25)
    test: float  # a test of the classes is due when the data have grown by the factor 1 + test
    guard: bool  # play the largest class when the number of the episode is a square
    weighted: bool  # rows are weighted by their range: for all sets but the ball
    ball: bool
    slack: float  # beta of the ball, or (1/2) log(1/delta)
    reach: float  # how far the truth may be from its nearest member; 0 but for covers
    delta: float
    stretch: float  # U^2 times the factor on the slack
    replan: float


class FiniteState(PlanState):
    """Losses of the kernels that are left, the member in play, and the rows seen."""

    __slots__ = ()

    members = named(MEMBERS)
    loss = named(LOSS)
    distance = named(DISTANCE)
    inside = named(INSIDE)


class PlannedState(FiniteState):
    """Losses of all members at each step, the plan in play, and the rows seen under it."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTR(Learner):
    """Play the most optimistic kernel that the data do not contradict (M1-M7, M24).

    >>> import numpy as np
    >>> import occamrl as orl
    >>> kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 3, 2))  # four kernels P[s, a, s']
    >>> mdp = orl.FiniteMDP(transition=kernels[2], reward=np.eye(3)[:, 1:], horizon=5)  # r[s, a]
    >>> result = orl.run(orl.UCRLVTR(family=orl.FiniteFamily(kernels)), mdp, episodes=50)

    Parameters
    ----------
    family : FiniteFamily
    delta : float
        The true kernel stays in the confidence set at all times with probability 1 - delta. Of a cover: the member
        nearest to it does, by the term of :func:`occamrl.models.finite.off_grid`.
    radius : "sharp" | "unweighted" | "paper"
        M24 on rows scaled by the range of their target (M23); M7 or M6 on plain rows. See
        :mod:`occamrl.learners.radii`.
    replan : float
        0: update the confidence set before every episode. c > 0: when the data have grown by the factor 1 + c.
    scale : float
        Multiplies the slack of the confidence set. Below 1 the guarantee is lost.
    prior : array [n], optional
        Weights of the members in M22, for the sharp set; uniform by default.
    record : FeatureMap, optional
        Record the rows in the coordinates of these features too, for a test of the class that they span (ARL-GEN).
    rewards : "known", RewardsPerPair or RewardsLinear
        Rewards that are not known are estimated (:mod:`occamrl.learners.rewards`), for a share of delta.
    kernel : "stationary" | "per_step"
        One member for all steps, or one for each, with losses and a set of its own at an even part of delta. This and
        unknown rewards need the sharp set.
    """

    guarantee = "valid"
    given = ("the class",)

    family: FiniteFamily
    delta: float = 0.05
    radius: Literal["sharp", "unweighted", "paper"] = "sharp"
    replan: float = 0.0
    scale: float = 1.0
    prior: Floats | None = None
    record: FeatureMap | None = None
    rewards: Rewards = "known"
    kernel: Kernel = "stationary"

    def __post_init__(self) -> None:
        require_rewards(self.rewards)
        require_choice("kernel", self.kernel, ("stationary", "per_step"))
        if not self.counted and self.radius != "sharp":
            got = f"{self.radius!r} with unknown rewards or one kernel per step"
            raise ParameterError("radius", got=got, expected='"sharp"')
        require_choice("radius", self.radius, FINITE_SETS)
        require_kind("family", self.family, FiniteFamily)
        require_number("delta", self.delta, 1e-100, 1.0)
        require_number("replan", self.replan, 0.0, 1e100)
        require_number("scale", self.scale, 0.0, 1e100)
        if self.prior is not None:
            weights = as_floats("prior", self.prior, (self.family.size,))
            if not (weights > 0.0).all() or weights.sum() > 1.0 + 1e-9:
                raise ParameterError("prior", got="weights", expected="positive numbers with a sum of at most 1")

    @property
    def counted(self) -> bool:
        """Whether values are solved beforehand: the rewards are known, and one kernel serves all steps."""
        return isinstance(self.rewards, str) and self.kernel == "stationary"

    @property
    def classes(self) -> int:
        """How many classes there are: 1 without a ladder."""
        return 1

    def steps(self, known: Known) -> int:
        """Return T: 1, or H with one kernel per step."""
        return known.horizon if self.kernel == "per_step" else 1

    def forms(self, known: Known) -> bool:
        """Whether current losses are quadratic forms: in blocks of few coordinates, fewer than there are members."""
        _, blocks, _, _, _ = self.form_blocks(known)
        rows, m = max(1, known.horizon - 1), int(blocks[:, 1].max())
        cheap = (
            max(m + 1, _FORM_MEMBERS) <= self.family.size
            and m * (m + 3) * min(rows, len(blocks)) <= 2 * _FORM_COST * rows
        )
        return self.counted and self.radius == "sharp" and cheap

    def form_blocks(self, known: Known) -> tuple[Ints, Ints, Ints, Floats | None, int]:
        """Return FORM_OF, FORM_BLOCKS and COORDINATE of a model, the matrix ``turn``, and how many numbers a form has.

        One block takes the place of those of the features where members are fewer than the coordinates of one: rows are
        z of all members. And where, in a large family, a few coordinates say all (kernels that few parameters move),
        and their form is cheaper than those of the blocks that an episode meets.
        """
        blocks, n = self.family.features.blocks, self.family.size
        of, first, size, m = blocks.of, blocks.vector_start[:-1], blocks.size, int(blocks.size.max())
        coordinate, turn = np.arange(int(blocks.vector_start[-1])), None
        if n < m:
            coordinate, turn = np.arange(n), self.family.theta
        elif n >= _FORM_MEMBERS and self.counted and self.radius == "sharp" and self.family.few_coordinates:
            few, others = self.family.few_coordinates
            if few.size * (few.size + 3) < m * (m + 3) * min(max(1, known.horizon - 1), size.size):
                coordinate, turn = few, others
        if turn is not None:
            of, first, size = np.zeros_like(of), np.zeros(1, np.int64), np.array([coordinate.size])
        ends = np.cumsum(size * size + size + 1)
        starts = ends - (size * size + size + 1)
        return of, np.stack([first, size, starts], axis=1), coordinate, turn, int(ends[-1])

    def model(self, known: Known) -> FiniteModel:
        """Return the constants of the compiled functions."""
        known = seen_by(self.rewards, known)
        features, size = self.family.features, self.family.size
        blocks, outcomes = features.blocks, features.attach(known).outcomes
        rows = known.horizon if outcomes.bonus.any() else known.horizon - 1
        delta, unit, values = float(self.delta), 1.0, np.zeros((1, known.states))
        if self.counted:
            values = self.family.optimal_values(known)
        else:
            delta *= kernel_share(self.rewards) / (max(1, rows) if self.kernel == "per_step" else 1)
        left = level(self.family.reach, delta)
        slack = 0.5 * math.log(1.0 / left)
        if self.radius != "sharp":
            unit = largest_range(outcomes, values)
            slack = squared_distance_radius(
                self.radius, size=size, delta=left, horizon=known.horizon, unit=unit, weighted=False
            )
        prior = np.full(size, 1.0 / size) if self.prior is None else np.asarray(self.prior, dtype=np.float64)
        rewards, reward_fields = rewards_model(self.rewards, known, float(self.delta))
        of, form_blocks, coordinate, turn, numbers = self.form_blocks(known)
        theta, most = np.require(self.family.theta, requirements=["C", "W"]), int(form_blocks[:, 1].max())
        own = np.eye(size) if turn is self.family.theta else theta
        made = [
            *reward_fields,
            *model_fields(features, features, self.record, known, self.steps(known)),
            blocks.vector_start[blocks.of],
            blocks.size[blocks.of],
            np.log(prior),
            np.zeros(size, dtype=np.int64),
            of,
            form_blocks,
            coordinate,
            same_until(own),
            same_until(np.log(prior)[None])[0],
            np.zeros(size, dtype=np.int64),
            np.zeros(size),
            np.zeros(most if self.counted else size),
            np.full(size + 1, -1.0),
            np.zeros(-(-size // _CHUNK)),
            np.zeros(numbers if self.counted else 0),
            np.zeros(len(form_blocks) + 1, dtype=np.int64),
            np.zeros((most + 2, _CHUNK)),
            np.zeros((2, most + 3), dtype=np.int64),
            np.zeros((most + 5, most + 3) if self.counted else (0, 0)),
        ]
        model: FiniteModel = lay_out(
            FiniteModel,
            made,
            theta=theta,
            own=own,
            turn=np.zeros((1, 1)) if turn is None else np.require(turn, requirements=["C", "W"]),
            values=np.require(values.reshape(-1, known.states), requirements=["C", "W"]),
            record=NoRecord() if self.record is None else Record(self.steps(known)),
            rewards=rewards,
            known_rewards=isinstance(self.rewards, str),
            actions=known.actions,
            horizon=known.horizon,
            rows=rows,
            counted=self.counted,
            forms=self.forms(known),
            turned=turn is not None,
            restrict=False,
            test=np.inf,
            guard=False,
            weighted=self.radius == "sharp",
            ball=self.radius != "sharp",
            slack=self.scale * slack,
            reach=float(self.family.reach),
            delta=delta,
            stretch=float(self.scale * unit**2),
            replan=float(self.replan),
        )
        return model

    def fields(self, known: Known, state: Any = None) -> list[Field]:
        """Return what the arrays of a state hold."""
        n, steps, table = self.family.size, self.steps(known), (known.horizon, known.states)
        ball, counted, solved = self.radius != "sharp", self.counted, not self.counted and steps == 1
        cells, pairs = known.horizon * known.states, known.states * known.actions
        columns = min(cells, max(known.horizon, _COLUMN_NUMBERS // n)) if counted and not self.forms(known) else 0
        _, blocks, _, _, numbers = self.form_blocks(known)
        counters = {
            "alive": (1, n, n),
            "member": (NOBODY, n - 1, NOBODY),
            "place": (-1, n - 1, -1),
            "best": (0, n - 1, 0),
            "last_start": (-1, known.states - 1, -1),
            "episodes_at_plan": (0, MOST_ROWS, 0),
            "next_look": (0, NEVER, FIRST_LOOK),
            "current": (1, n, n),
            "class": (0, self.classes - 1, 0),
            "class_since": (0, MOST_ROWS, 0),
            "next_test": (-(2**63), NEVER, NEVER),
            "impossible": (0, MOST_ROWS, 0),
            "guarded": (0, 1, 0),
        }
        everybody = 0 if ball else 1
        return [
            *plan_fields(known, reward_rows(self.rewards, known), counters),
            *record_fields(self.record, steps, pairs),
            Field("members", (n,), 0, n - 1, np.arange(n)),
            Field("loss", (steps, n), -_MOST_LOSS, np.inf if counted else _MOST_LOSS),
            Field("distance", (n if ball else 0,), 0.0, _MOST_LOSS),
            Field("inside", (steps, n if ball or not counted else 0), 0, 1, everybody),
            Field("rows", (steps,), 0, cells * MOST_ROWS),
            Field("sum_of_squares", (steps,), 0.0, _MOST_LOSS),
            Field("held", (columns,), -1, cells - 1, -1),
            Field("column", (columns + 1, n), -MOST, MOST),
            Field("plan_visits", table if counted else (0, 0), 0, MOST_ROWS),
            Field("plan_sum", table if counted else (0, 0), -_MOST_LOSS, _MOST_LOSS),
            Field("entered", (numbers if counted else 0,), -_MOST_LOSS, _MOST_LOSS),
            Field("pairs", (pairs if counted else 0, 2 + int(blocks[:, 1].max())), -_MOST_LOSS, _MOST_LOSS),
            Field("solved", (n * (known.horizon + 1) if solved else 0, known.states), -1.0, known.horizon + 2.0),
            Field("greedy", (n * known.horizon if solved else 0, known.states), 0, known.actions - 1),
        ]

    def begin(self, known: Known) -> FiniteState | PlannedState:
        """Return a fresh state."""
        kind = FiniteState if self.counted else PlannedState
        state: FiniteState | PlannedState = fresh_state(kind, self.fields(known))
        return state

    def resume(self, model: FiniteModel, fresh: Any, state: Any) -> None:
        """Refuse a state whose fields contradict each other; columns and the plan follow from others."""
        require_rows(state)
        counters, held, waiting = field(state, COUNTERS), field(state, HELD), field(state, PLAN_VISITS)
        alive, current, best, place = (int(counters[i]) for i in (ALIVE, CURRENT, BEST, PLACE))
        loss, members = field(state, LOSS)[0], field(state, MEMBERS)
        begun, ball = bool(counters[EPISODES]), field(state, DISTANCE).size > 0
        inside = field(state, INSIDE)[0, :current] == 1 if ball and begun else loss[:current] < np.inf
        blocks = field(model, FORM_BLOCKS)
        rows = field(state, ENTERED)[blocks[:, 2] + blocks[:, 1] * (blocks[:, 1] + 1)] if self.counted else np.zeros(0)
        faults = {
            "counters.current": current > alive,
            "counters.member": self.counted and begun != (counters[MEMBER] != NOBODY),
            "counters.place": place >= 0 and (place >= alive or members[place] != counters[MEMBER]),
            "counters.episodes_at_plan": counters[EPISODES_AT_PLAN] > counters[EPISODES],
            "members": (np.diff(members[:alive]) <= 0).any() or (not self.counted and alive < members.size),
            "inside" if ball and begun else "loss": not inside.any(),
            "distance": ball and field(state, DISTANCE)[best] != 0.0,
            "held": (held[held >= 0] % max(1, held.size) != np.flatnonzero(held >= 0)).any(),
            "plan_sum": field(state, PLAN_SUM)[waiting == 0].any(),
            "entered": (rows < 0.0).any(),
            "pairs": (field(state, PAIRS)[:, 0] < 0.0).any() or field(state, PAIRS)[:, 0].sum() != rows.sum(),
            "rows": self.counted and rows.sum() + waiting.sum() != field(state, ROWS)[0],
            "solved": field(state, SOLVED)[model.horizon :: model.horizon + 1].any(),
        }
        require_agreement(faults)
        if self.counted and begun:
            take_up(model, state)

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Small instances on a problem, for the contract checks."""
        kernel = mdp.kernel() if mdp.stationary else mdp.kernel()[0]
        generator = np.random.default_rng(1)
        others = generator.dirichlet(np.ones(mdp.states), size=(5, mdp.states, mdp.actions))
        family = FiniteFamily(np.concatenate([kernel[None], others]))
        return [
            cls(family=family),
            cls(family=family, radius="paper"),
            cls(family=family, radius="unweighted", replan=0.2),
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class NestedUCRLVTR(UCRLVTR):
    """Play F_m with m = min {m : F_m meets B}, B the sharp set over F_M with the prior of M25: ARL-GEN's own learner.

    Parameters
    ----------
    ladder : Ladder
        Of finite families; ``family`` and ``prior`` are its own.
    delta : float
        The true kernel stays in B at all times, hence its class is never rejected, with probability 1 - delta.
    replan, scale, rewards, kernel
        As in :class:`UCRLVTR`. With unknown rewards or one kernel per step the classes are tested with every plan.
    test_growth : float
        The classes are tested when the data have grown by the factor 1 + test_growth; 0: before every episode.
    safe : bool
        Be optimistic over all of B; the class is reported, not imposed. Needs no separability.
    guard : bool
        Be optimistic over all of B in the episodes 1, 4, 9, 16, ..., so that no class escapes the test for ever.
    """

    family: FiniteFamily = dataclasses.field(init=False)
    prior: Floats | None = dataclasses.field(init=False)
    radius: Literal["sharp", "unweighted", "paper"] = dataclasses.field(default="sharp", init=False)
    record: FeatureMap | None = dataclasses.field(default=None, init=False)
    ladder: Ladder
    test_growth: float = 0.1
    safe: bool = False
    guard: bool = False

    def __post_init__(self) -> None:
        require_number("test_growth", self.test_growth, 0.0, 1e100)
        if not getattr(self.ladder, "finite", False):
            raise ParameterError("ladder", got=f"{self.ladder!r:.100}", expected="a Ladder of lists of kernels")
        object.__setattr__(self, "family", self.ladder.family)
        object.__setattr__(self, "prior", self.ladder.prior)
        super().__post_init__()

    def model(self, known: Known) -> FiniteModel:
        """Return the constants of the compiled functions."""
        test = float(self.test_growth) if self.counted else np.inf
        made = super().model(known)._replace(restrict=not self.safe, test=test, guard=bool(self.guard))
        field(made, LEVEL)[:] = self.ladder.level
        return made

    @property
    def classes(self) -> int:
        """M."""
        return self.ladder.classes

    def begin(self, known: Known) -> FiniteState | PlannedState:
        """Return a fresh state."""
        state = super().begin(known)
        if self.counted:
            state.counters[NEXT_TEST] = 1
            if not self.safe:
                state.counters[CURRENT] = self.ladder.sizes[0]
        return state

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Small instances on a problem, for the contract checks."""
        ladder = example_ladder(mdp)
        return [cls(ladder=ladder), cls(ladder=ladder, test_growth=0.0, guard=True, replan=0.1)]


def example_ladder(mdp: Any) -> Ladder:
    """Return a ladder of three classes, the problem's kernel in the second."""
    kernel = mdp.kernel() if mdp.stationary else mdp.kernel()[0]
    others = np.random.default_rng(3).dirichlet(np.ones(mdp.states), size=(7, mdp.states, mdp.actions))
    stack = np.concatenate([others[:1], kernel[None], others[1:]])
    return Ladder([FiniteFamily(stack[:1]), FiniteFamily(stack[:3]), FiniteFamily(stack)])


def largest_range(outcomes: Outcomes, values: Floats) -> float:
    """Return R of M7: the largest range of a member's target function at any step and (s, a)."""
    begin, largest = outcomes.start[:-1], 0.0
    for solved in values:  # [H + 1, S] of a member
        targets = outcomes.bonus + solved[1:, outcomes.next_state]
        ranges = np.maximum.reduceat(targets, begin, axis=1) - np.minimum.reduceat(targets, begin, axis=1)
        largest = max(largest, float(ranges.max()))
    return largest


def same_until(rows: Floats) -> Ints:
    """Return, for every row and every chunk of its numbers, the last number up to which all equal the chunk's first."""
    starts, out = np.arange(0, rows.shape[1], _CHUNK), np.empty((len(rows), -(-rows.shape[1] // _CHUNK)), np.int64)
    for row, until in zip(rows, out, strict=True):
        ends = np.append(np.flatnonzero(row[1:] != row[:-1]), row.size - 1)
        until[:] = ends[np.searchsorted(ends, starts)]
    return out


# Compiled -------------------------------------------------------------------------------------------------------------


@hot
def expected_targets(
    model: FiniteModel, features: FeatureView, values: Floats, sa: int, members: Ints, n: int, out: Floats
) -> tuple[float, float]:
    """Write z = ((P V)(s, a) - c)/R for the first ``n`` kernels of ``members``, which increase; return (c, R) (M23).

    With R = 0 the row carries nothing, and nothing is written.
    """
    x = fvec(model, X)
    middle, spread = row_of(features, model.weighted, values, sa, fvec(model, TARGET), x)
    if spread <= 0.0:
        return middle, 0.0
    begin, size = ivec(model, ROW_START)[sa], ivec(model, BLOCK_SIZE)[sa]
    for i in range(n):
        out[i] = 0.0
    first, scattered = members[0], not are_neighbours(members, 0, n)
    for j in range(size):
        xj = x[j]
        row = model.theta[begin + j]
        if scattered:
            for i in range(n):
                out[i] += xj * row[np.uint64(members[i])]
        else:  # neighbours: what a class begins as, several times faster
            near = part(row, first, n)
            for i in range(n):
                out[i] += xj * near[i]
    return middle, spread


@hot
def greedy_action(
    model: FiniteModel, features: FeatureView, rewards: Floats, values: Floats, member: int, s: int
) -> tuple[int, float]:
    """Return the action that is optimal for a member, the smallest on ties, and Q*(s, a)."""
    target, x = fvec(model, TARGET), fvec(model, X)
    starts, sizes = ivec(model, ROW_START), ivec(model, BLOCK_SIZE)
    best, choice = -np.inf, 0
    for a in range(model.actions):
        sa = s * model.actions + a
        row_of(features, False, values, sa, target, x)
        q = rewards[sa] if model.counted else 0.0  # the order of a sum decides ties
        for j in range(sizes[sa]):
            q += x[j] * model.theta[starts[sa] + j, member]
        q = q if model.counted else rewards[sa] + q
        if q > best:
            best, choice = q, a
    return choice, best


# Quadratic forms ------------------------------------------------------------------------------------------------------


@hot
def turn_row(model: FiniteModel, sa: int, out: Floats) -> None:
    """Write the row X of (s, a) in the coordinates of the forms."""
    x, begin, m = fvec(model, X), ivec(model, ROW_START)[sa], model.turn.shape[1]
    for i in range(m):
        out[i] = 0.0
    for j in range(ivec(model, BLOCK_SIZE)[sa]):
        row = model.turn[begin + j]
        for i in range(m):
            out[i] += x[j] * row[i]


@hot
def enter_row(model: FiniteModel, state: Any, form: Floats, sa: int, count: int, y: float) -> None:
    """Enter ``count`` rows X at (s, a), the sum of whose targets is y, into a form; and count them for the pair.

    With z = <x, theta> a loss grows by count z^2 - 2 y z = <theta, (count x x^T) theta> - 2 <y x, theta>.
    """
    block, pair = imat(model, FORM_BLOCKS)[ivec(model, FORM_OF)[sa]], fmat(state, PAIRS)[sa]
    m, begin = block[1], block[2]
    x = fvec(model, X)
    if model.turned:
        x = fvec(model, Z)
        turn_row(model, sa, x)
    right = part(form, begin + m * m, m + 1)
    add_row(square(form, begin, m), count, x)
    right[m] += count
    pair[0] += count
    pair[1] += y
    for j in range(m):
        right[j] += y * x[j]
        pair[2 + j] += count * x[j]


@hot
def enter_plan(model: FiniteModel, state: FiniteState) -> None:
    """Enter the rows of the plan in play that are in the losses alone."""
    visits, sums, values = imat(state, PLAN_VISITS), fmat(state, PLAN_SUM), fmat(state, VALUES)
    policy, features, x = imat(state, POLICY), features_of(model, FEATURES), fvec(model, X)
    for h in range(visits.shape[0]):
        for s in range(visits.shape[1]):
            if visits[h, s] == 0:
                continue
            sa = s * model.actions + policy[h, s]
            row_of(features, model.weighted, values[h + 1], sa, fvec(model, TARGET), x)
            enter_row(model, state, fvec(state, ENTERED), sa, visits[h, s], sums[h, s])
            visits[h, s] = 0
            sums[h, s] = 0.0


@hot
def list_blocks(model: FiniteModel, form: Floats) -> None:
    """List the blocks of a form that have rows."""
    blocks, listed = imat(model, FORM_BLOCKS), ivec(model, LISTED)
    listed[0] = 0
    for b in range(blocks.shape[0]):
        m = blocks[b, 1]
        if form[blocks[b, 2] + m * m + m] > 0.0:
            listed[0] += 1
            listed[listed[0]] = b


@hot_inline
def are_neighbours(members: Ints, first: int, size: int) -> bool:
    """Say whether ``size`` members, which increase, have successive numbers from a position on."""
    return bool(members[first + size - 1] - members[first] == size - 1)


@hot_inline
def gather(numbers: Floats, members: Ints, first: int, size: int, out: Floats) -> None:
    """Write the numbers of ``size`` members from a position on."""
    for i in range(size):
        out[i] = numbers[np.uint64(members[first + i])]


@hot
def numbers_of(numbers: Floats, members: Ints, first: int, size: int, out: Floats) -> None:
    """Write the same, several times faster for neighbours."""
    if are_neighbours(members, first, size):
        near = part(numbers, members[first], size)
        for i in range(size):
            out[i] = near[i]
    else:
        gather(numbers, members, first, size, out)


@hot_inline
def fold(model: FiniteModel, matrix: Floats, right: Floats, start: int, low: int, high: int) -> tuple[int, float]:
    """List the coordinates of a block that vary between two members, and fold the others into their form.

    With c the part of theta that is the same and v the part that varies, <theta, G theta> - 2 <g, theta> is
    <v, G v> + <2 G c - 2 g, v> and a constant, which is returned with the number of coordinates that vary. Of G what
    counts in a sum over j <= k is written, and zeros up to a multiple of four.
    """
    coordinate, same, folded = ivec(model, COORDINATE), imat(model, SAME), fmat(model, FOLDED)
    m, count, constant, varying, rows = right.size, 0, 0.0, imat(model, VARYING)[0], imat(model, VARYING)[1]
    line, fixed = folded[folded.shape[0] - 2], folded[folded.shape[0] - 1]
    for j in range(m):
        row = coordinate[start + j]
        if same[row, low // _CHUNK] < high:
            varying[count] = j
            rows[count] = row
            fixed[j] = 0.0
            count += 1
        else:
            fixed[j] = model.own[row, low]
    for j in range(count):
        line[j] = -2.0 * right[varying[j]]
        for k in range(j + 1, count):
            folded[j, k] = 2.0 * matrix[varying[j], varying[k]]
        folded[j, j] = matrix[varying[j], varying[j]]
    for j in range(count, count + -count % 4):
        line[j] = 0.0
        rows[j] = rows[0]
        for k in range(j + 1):
            folded[k, j] = 0.0
    for c in range(m):
        value, product = fixed[c], -2.0 * right[c]
        if value != 0.0:
            for k in range(m):
                product += matrix[c, k] * fixed[k]
            constant += value * product
            for j in range(count):
                line[j] += 2.0 * value * matrix[c, varying[j]]
    return count, constant


@hot
def add_form(model: FiniteModel, form: Floats, members: Ints, n: int, out: Floats) -> None:
    """Add <theta, G theta> - 2 <g, theta> of the blocks listed, for the first ``n`` of ``members``, which increase.

    A chunk of kernels at a time, and four by four of the coordinates, whose products stay in registers. Coordinates
    that a whole chunk has in common - sparse parameters, grids, outcomes that are certain - are not even read. Where a
    chunk has gaps, but few, the kernels in between are computed too: that is faster than to collect parameters.
    """
    listed, blocks, work = ivec(model, LISTED), imat(model, FORM_BLOCKS), fmat(model, WORK)
    folded, rows = fmat(model, FOLDED), imat(model, VARYING)[1]
    line = folded[folded.shape[0] - 2]
    for first in range(0, n, _CHUNK):
        size, constant = min(_CHUNK, n - first), 0.0
        low, high = members[first], members[first + size - 1]
        near, width = high - low < 2 * _CHUNK, size
        total = part(out, first, size)
        if near and not are_neighbours(members, first, size):
            width = high - low + 1
            total = part(fvec(model, WORK), 0, width)
            for i in range(width):
                total[i] = 0.0
        for b in range(1, listed[0] + 1):
            start, m, at = blocks[listed[b], 0], blocks[listed[b], 1], blocks[listed[b], 2]
            m, more = fold(model, square(form, at, m), part(form, at + m * m, m), start, low, high)
            constant += more
            table, column = model.own, low
            if not near:
                table, column = work, 0
                for j in range(m):
                    gather(model.own[rows[j]], members, first, size, work[j])
                    rows[j] = j
                for j in range(m, m + -m % 4):
                    rows[j] = 0
            for j in range(0, m, 4):
                t0, t1 = part(table[rows[j]], column, width), part(table[rows[j + 1]], column, width)
                t2, t3 = part(table[rows[j + 2]], column, width), part(table[rows[j + 3]], column, width)
                l0, l1, l2, l3 = line[j], line[j + 1], line[j + 2], line[j + 3]
                a0, a1, a2, a3 = folded[j, j], folded[j, j + 1], folded[j, j + 2], folded[j, j + 3]
                b1, b2, b3 = folded[j + 1, j + 1], folded[j + 1, j + 2], folded[j + 1, j + 3]
                c2, c3, d3 = folded[j + 2, j + 2], folded[j + 2, j + 3], folded[j + 3, j + 3]
                for i in range(width):
                    w0, w1, w2, w3 = t0[i], t1[i], t2[i], t3[i]
                    one = fma(w0, fma(a0, w0, fma(a1, w1, fma(a2, w2, fma(a3, w3, l0)))), total[i])
                    one = fma(w2, fma(c2, w2, fma(c3, w3, l2)), one)
                    two = w1 * fma(b1, w1, fma(b2, w2, fma(b3, w3, l1)))
                    total[i] = one + fma(w3, fma(d3, w3, l3), two)
                for k in range(j + 4, m, 4):
                    a0, a1, a2, a3 = folded[j, k], folded[j, k + 1], folded[j, k + 2], folded[j, k + 3]
                    b0, b1, b2, b3 = folded[j + 1, k], folded[j + 1, k + 1], folded[j + 1, k + 2], folded[j + 1, k + 3]
                    c0, c1, c2, c3 = folded[j + 2, k], folded[j + 2, k + 1], folded[j + 2, k + 2], folded[j + 2, k + 3]
                    d0, d1, d2, d3 = folded[j + 3, k], folded[j + 3, k + 1], folded[j + 3, k + 2], folded[j + 3, k + 3]
                    u0, u1 = part(table[rows[k]], column, width), part(table[rows[k + 1]], column, width)
                    u2, u3 = part(table[rows[k + 2]], column, width), part(table[rows[k + 3]], column, width)
                    for i in range(width):
                        w0, w1, w2, w3 = u0[i], u1[i], u2[i], u3[i]
                        one = fma(t0[i], fma(a0, w0, fma(a1, w1, fma(a2, w2, a3 * w3))), total[i])
                        two = t1[i] * fma(b0, w0, fma(b1, w1, fma(b2, w2, b3 * w3)))
                        one = fma(t2[i], fma(c0, w0, fma(c1, w1, fma(c2, w2, c3 * w3))), one)
                        total[i] = one + fma(t3[i], fma(d0, w0, fma(d1, w1, fma(d2, w2, d3 * w3))), two)
        for i in range(size if width == size else 0):
            total[i] += constant
        for i in range(0 if width == size else size):
            out[first + i] += total[members[first + i] - low] + constant


@hot
def add_losses(model: FiniteModel, state: FiniteState, members: Ints, n: int, out: Floats) -> None:
    """Add L(P) less sum y^2 over all rows, for the first ``n`` of ``members``."""
    enter_plan(model, state)
    list_blocks(model, fvec(state, ENTERED))
    add_form(model, fvec(state, ENTERED), members, n, out)


@hot
def add_distances(
    model: FiniteModel, state: FiniteState, reference: int, members: Ints, n: int, distance: Floats
) -> None:
    """Add L(P, reference) over all rows: <theta, G theta> - 2 <G r, theta> + <r, G r>, r the reference's theta."""
    enter_plan(model, state)
    entered, form, blocks, constant = fvec(state, ENTERED), fvec(model, FORM), imat(model, FORM_BLOCKS), 0.0
    coordinate = ivec(model, COORDINATE)
    list_blocks(model, entered)
    for b in range(blocks.shape[0]):
        start, m, at = blocks[b, 0], blocks[b, 1], blocks[b, 2]
        for i in range(m * m):
            form[at + i] = entered[at + i]
        for j in range(m):
            right = 0.0
            for k in range(m):
                right += entered[at + j * m + k] * model.own[coordinate[start + k], reference]
            form[at + m * m + j] = right
            constant += right * model.own[coordinate[start + j], reference]
    add_form(model, form, members, n, distance)
    form[:] = 0.0
    for i in range(n):
        distance[i] = max(0.0, distance[i] + constant)


@hot
def absorb(model: FiniteModel, state: Any) -> None:
    """Enter the rows that wait: L(P) grows by count z^2 - 2 z y, and sum y^2 that is common to all."""
    counters, policy, values = ivec(state, COUNTERS), imat(state, POLICY), fmat(state, VALUES)
    members, losses, held, columns = ivec(state, MEMBERS), fmat(state, LOSS), ivec(state, HELD), fmat(state, COLUMN)
    visits, firsts, totals, sums = imat(state, VISITS), fmat(state, FIRST), fmat(state, TOTAL), fmat(state, SQUARES)
    plan_visits, plan_sums = imat(state, PLAN_VISITS), fmat(state, PLAN_SUM)
    rows, norm, form = ivec(state, ROWS), fvec(state, SUM_OF_SQUARES), fvec(model, FORM)
    features, target, cells = features_of(model, FEATURES), fvec(model, TARGET), ivec(state, CELLS)
    n, steps = counters[CURRENT], losses.shape[0]
    for i in range(counters[TOUCHED]):
        h, s, count, total, squares = take_cell(visits, totals, sums, cells[i])
        first, sa = firsts[h, s], s * model.actions + policy[h, s]
        record_rows(model.record, model, state, h, sa, count, first, total, squares)
        slot = cells[i] % held.size if held.size > 0 else 0
        if model.forms:
            middle, spread = row_of(features, model.weighted, values[h + 1], sa, target, fvec(model, X))
        elif held.size > 0 and held[slot] == cells[i]:
            middle, spread = 0.0, 1.0
            if model.weighted:
                low, high = fill_target(features.outcomes, sa, values[h + 1], target)
                middle, spread = 0.5 * (low + high), high - low
        else:
            if held.size > 0:
                held[slot] = cells[i]
            middle, spread = expected_targets(model, features, values[h + 1], sa, members, n, columns[slot])
        column = columns[slot]
        shift = first - middle
        squares += shift * (2.0 * total + count * shift)
        # beyond the range that the kernels allow, or off the one value where they allow no other
        if model.weighted and squares > count * (0.25 * spread * spread * (1.0 + 1e-9) + 1e-12):
            counters[IMPOSSIBLE] += count
        if spread <= 0.0:
            continue
        y = (total + count * shift) / spread
        t = h % steps
        loss = losses[t]
        if model.forms:
            enter_row(model, state, form, sa, count, y)
        else:
            for j in range(n):
                z = column[j]
                loss[j] += z * (count * z - 2.0 * y)
        if model.ball:
            distance, best = fvec(state, DISTANCE), counters[BEST]
            for j in range(n):
                gap = column[j] - column[best]
                distance[j] += count * gap * gap
        rows[t] += count
        norm[t] += squares / (spread * spread)
        if model.counted and not model.forms:
            plan_visits[h, s] += count
            plan_sums[h, s] += y
    if model.forms and counters[TOUCHED] > 0:
        list_blocks(model, form)
        add_form(model, form, members, n, losses[0])
        entered, listed, blocks = fvec(state, ENTERED), ivec(model, LISTED), imat(model, FORM_BLOCKS)
        for b in range(1, listed[0] + 1):
            m, at = blocks[listed[b], 1], blocks[listed[b], 2]
            for i in range(at, at + m * m + m + 1):
                entered[i] += form[i]
                form[i] = 0.0
    counters[TOUCHED] = 0


@hot
def least_of(numbers: Floats, n: int) -> float:
    """Return the smallest of the first ``n`` numbers, in four lanes that do not wait for each other."""
    a = b = c = d = np.inf
    for q in range(n // 4):
        i = 4 * q
        a = min(a, numbers[i])
        b = min(b, numbers[i + 1])
        c = min(c, numbers[i + 2])
        d = min(d, numbers[i + 3])
    for i in range(n - n % 4, n):
        a = min(a, numbers[i])
    return min(min(a, b), min(c, d))


@hot
def sum_of_exponentials(x: Floats, n: int, least: float) -> float:
    """Return the sum of exp(least - x) over the first ``n`` numbers x, without terms below e^-40; writes over them.

    exp(y/64)^64 by a Taylor polynomial is wrong by less than 10^-14 of the largest term. Unlike the library's function
    it has no branches, and several are computed at once.
    """
    for i in range(n):
        gap = least - x[i]
        y = (1.0 / 64.0) * max(gap, -_NEGLIGIBLE)
        e = fma(y, fma(y, fma(y, fma(y, _TAYLOR[8], _TAYLOR[7]), _TAYLOR[6]), _TAYLOR[5]), _TAYLOR[4])
        e = fma(y, fma(y, fma(y, fma(y, e, _TAYLOR[3]), _TAYLOR[2]), 1.0), 1.0)
        e = e * e
        e = e * e
        e = e * e
        e = e * e
        e = e * e
        e = e * e
        x[i] = e if gap > -_NEGLIGIBLE else 0.0
    a = b = c = d = 0.0
    for q in range(n // 4):  # lanes that do not wait for each other
        i = 4 * q
        a += x[i]
        b += x[i + 1]
        c += x[i + 2]
        d += x[i + 3]
    for i in range(n - n % 4, n):
        a += x[i]
    return (a + b) + (c + d)


@hot
def threshold(model: FiniteModel, loss: Floats, members: Ints, n: int, rows: int) -> float:
    """Return the right side of M22 over the first ``n`` positions, by a sum of exponentials around the best so far."""
    log_prior, same, z = fvec(model, LOG_PRIOR), ivec(model, SAME_PRIOR), fmat(model, WORK)[0]
    least, total = np.inf, 0.0
    for first in range(0, n, _CHUNK):
        size, own = min(_CHUNK, n - first), part(loss, first, min(_CHUNK, n - first))
        begin = members[first]
        if same[begin // _CHUNK] >= members[first + size - 1]:
            weight = log_prior[begin]
            for i in range(size):
                z[i] = 2.0 * own[i] - weight
        else:
            numbers_of(log_prior, members, first, size, z)
            for i in range(size):
                z[i] = 2.0 * own[i] - z[i]
        low = least_of(z, size)
        if low < least:
            total *= np.exp(low - least)
            least = low
        if low - least < _NEGLIGIBLE:  # leaving out what is small only raises the threshold
            total += sum_of_exponentials(z, size, least)
    between = model.stretch * off_grid(model.reach, float(rows), model.delta)
    return float(0.5 * (least - np.log(total)) + model.slack + between)


# Values solved beforehand: kernels are dropped ------------------------------------------------------------------------


@hot
def compact(state: FiniteState) -> None:
    """Close the gaps that dropped kernels left; columns are computed anew when next needed."""
    counters, alive, loss = ivec(state, COUNTERS), ivec(state, MEMBERS), fmat(state, LOSS)[0]
    ivec(state, HELD)[:] = -1
    n, gone, kept, current, place = counters[ALIVE], 0, 0, 0, -1
    for i in range(n):
        gone += loss[i] == np.inf
    if gone == 0:
        return
    for i in range(n):  # without branches, which are hard to foresee here
        if i == counters[CURRENT]:
            current = kept
        number, left = loss[i], loss[i] < np.inf
        if i == counters[PLACE] and left:
            place = kept
        alive[kept] = alive[i]
        loss[kept] = number
        kept += left
    counters[CURRENT] = kept if counters[CURRENT] == n else current
    counters[ALIVE] = kept
    counters[PLACE] = place


@hot
def drop(model: FiniteModel, state: FiniteState, n: int) -> None:
    """Drop those of the first ``n`` positions whose loss passes the threshold (M24)."""
    loss = fmat(state, LOSS)[0]
    bound = threshold(model, loss, ivec(state, MEMBERS), n, ivec(state, ROWS)[0])
    bound = max(bound, least_of(loss, n))  # the best stays, whatever rounding says
    left = 0
    for i in range(n):
        inside = loss[i] <= bound
        loss[i] = loss[i] if inside else np.inf
        left += inside
    if 2 * left <= n:
        compact(state)


@hot
def choose_class(model: FiniteModel, state: FiniteState) -> None:
    """Put the smallest class into play that still has a kernel (M25); its kernels come first."""
    compact(state)
    counters, alive, level = ivec(state, COUNTERS), ivec(state, MEMBERS), ivec(model, LEVEL)
    n, smallest = counters[ALIVE], level[alive[0]]  # members are in the order of their classes
    counters[PLACE] = -1
    if smallest != counters[CLASS]:
        counters[CLASS] = smallest
        counters[CLASS_SINCE] = counters[EPISODES]
    current = n
    while model.restrict and level[alive[current - 1]] > smallest:
        current -= 1
    counters[CURRENT] = current


@hot
def test_classes(model: FiniteModel, state: FiniteState) -> None:
    """Bring all losses up to date, drop what the data contradict, and choose the class."""
    counters, loss = ivec(state, COUNTERS), fmat(state, LOSS)[0]
    first, n = counters[CURRENT], counters[ALIVE]
    if first < n:
        loss[first:n] = 0.0
        add_losses(model, state, ivec(state, MEMBERS)[first:n], n - first, loss[first:n])
    drop(model, state, n)
    choose_class(model, state)


@hot
def merge_members(members: Ints, numbers: Floats, n: int, others: Ints, sums: Floats, back: int, more: float) -> None:
    """Bring ``back`` other members into a list of ``n``, both in order, each with its number, theirs and ``more``."""
    i, j = n - 1, back - 1
    for k in range(n + back - 1, -1, -1):  # from the end, where there is room
        if j < 0 or (i >= 0 and members[i] > others[j]):
            members[k] = members[i]
            numbers[k] = numbers[i]
            i -= 1
        else:
            members[k] = others[j]
            numbers[k] = sums[j] + more
            j -= 1


@hot
def look_again(model: FiniteModel, state: FiniteState) -> None:
    """Let dropped kernels back in whose loss over all rows is within the threshold. All losses must be current."""
    compact(state)
    counters, alive, loss = ivec(state, COUNTERS), ivec(state, MEMBERS), fmat(state, LOSS)[0]
    kernels, sums, n, survivors = ivec(model, KERNELS), fvec(model, SUMS), model.theta.shape[1], counters[ALIVE]
    if survivors == n:
        return
    bound = threshold(model, loss, alive, survivors, ivec(state, ROWS)[0])
    size, at, back = 0, 0, 0
    for kernel in range(n):  # those that are dropped; both lists increase
        if at < survivors and alive[at] == kernel:
            at += 1
        else:
            kernels[size] = kernel
            sums[size] = 0.0
            size += 1
    add_losses(model, state, kernels, size, sums)
    for i in range(size):
        kernels[back] = kernels[i]
        sums[back] = sums[i]
        back += sums[i] <= bound
    merge_members(alive, loss, survivors, kernels, sums, back, 0.0)
    counters[ALIVE] = survivors + back
    choose_class(model, state)


@hot
def update_ball(model: FiniteModel, state: FiniteState) -> None:
    """Enter the rows; find the least-squares estimate (M3), the distances to it, and who is within the ball (M4)."""
    absorb(model, state)
    counters, alive, loss = ivec(state, COUNTERS), ivec(state, MEMBERS), fmat(state, LOSS)[0]
    distance, inside, n = fvec(state, DISTANCE), ivec(state, INSIDE), counters[ALIVE]
    best = 0
    for i in range(1, n):
        if loss[i] < loss[best]:
            best = i
    if best != counters[BEST]:
        counters[BEST] = best
        distance[:] = 0.0
        add_distances(model, state, alive[best], alive, n, distance)
        distance[best] = 0.0
    radius = model.slack
    if model.reach > 0.0:
        rows = float(ivec(state, ROWS)[0])
        gap = 0.5 * model.reach * np.sqrt(model.stretch * rows)
        between = model.stretch * off_grid(model.reach, rows, model.delta)
        radius = (np.sqrt(model.slack + 2.0 * between) + gap) ** 2
    for i in range(n):
        inside[i] = distance[i] <= radius


@hot
def update_set(model: FiniteModel, state: FiniteState) -> None:
    """Enter the rows; drop what the data contradict; test the classes and look at dropped kernels when it is time."""
    counters = ivec(state, COUNTERS)
    episodes = counters[EPISODES_AT_PLAN]
    absorb(model, state)
    look = episodes >= counters[NEXT_LOOK]
    if not (look or episodes >= counters[NEXT_TEST]):
        drop(model, state, counters[CURRENT])
        return
    if model.test < np.inf:
        counters[NEXT_TEST] = max(episodes + 1, int(np.ceil(episodes * (1.0 + model.test))))
    test_classes(model, state)
    if look:
        counters[NEXT_LOOK] = max(2 * episodes, FIRST_LOOK)
        look_again(model, state)


@hot
def most_optimistic(model: FiniteModel, state: FiniteState, n: int, start: int) -> int:
    """Return where the kernel with the largest V*_{P,1}(start) is, of the first ``n`` positions, in the set (M5).

    The smallest index on ties. A set that only shrinks and keeps the kernel in play is not searched.
    """
    counters = ivec(state, COUNTERS)
    alive, loss, inside = ivec(state, MEMBERS), fmat(state, LOSS)[0], ivec(state, INSIDE)
    optimism, highest, everybody = fvec(model, OPTIMISM), fvec(model, HIGHEST), model.theta.shape[1]
    if optimism[everybody] != start:  # once, and not before every episode: these values lie far apart
        optimism[everybody] = start
        highest[:] = -np.inf
        for member in range(everybody):
            optimism[member] = model.values[member * (model.horizon + 1), start]
            highest[member // _CHUNK] = max(highest[member // _CHUNK], optimism[member])
    place = counters[PLACE]
    if not model.ball and start == counters[LAST_START] and place >= 0 and loss[place] < np.inf:
        return int(place)
    top, choice, z = -np.inf, -1, fmat(model, WORK)[0]
    for first in range(0, n, _CHUNK):
        size = min(_CHUNK, n - first)
        most = -np.inf
        for chunk in range(alive[first] // _CHUNK, alive[first + size - 1] // _CHUNK + 1):
            most = max(most, highest[chunk])
        if most < top:
            continue
        numbers_of(optimism, alive, first, size, z)
        for i in range(size):  # least_of is fast, and of those outside infinite
            outside = inside[first + i] == 0 if model.ball else loss[first + i] == np.inf
            z[i] = np.inf if outside else -z[i]
        high = -least_of(z, size)
        if high < top or high == -np.inf:
            continue
        for i in range(size):
            if -z[i] == high and (high > top or alive[first + i] < alive[choice]):
                top, choice = high, first + i
    return choice


@hot
def put_into_play(model: FiniteModel, state: FiniteState) -> None:
    """Take the values and the greedy policy of the member in play."""
    member, values, policy = ivec(state, COUNTERS)[MEMBER], fmat(state, VALUES), imat(state, POLICY)
    rewards, features = fmat(model, REWARD)[0], features_of(model, FEATURES)
    for h in range(model.horizon + 1):
        for s in range(policy.shape[1]):
            values[h, s] = model.values[member * (model.horizon + 1) + h, s]
    for h in range(model.horizon):
        for s in range(policy.shape[1]):
            policy[h, s], _ = greedy_action(model, features, rewards, values[h + 1], member, s)


@entry
def take_up(model: FiniteModel, state: FiniteState) -> None:
    """Take the values and the policy of the member in play, and its columns, as after a state came from elsewhere."""
    put_into_play(model, state)
    values, policy, columns, held = fmat(state, VALUES), imat(state, POLICY), fmat(state, COLUMN), ivec(state, HELD)
    features, members, n = features_of(model, FEATURES), ivec(state, MEMBERS), ivec(state, COUNTERS)[CURRENT]
    for slot in range(held.size):
        if held[slot] >= 0:
            h, s = divmod(held[slot], policy.shape[1])
            sa = s * model.actions + policy[h, s]
            expected_targets(model, features, values[h + 1], sa, members, n, columns[slot])


@hot_inline
def is_square(number: int) -> bool:
    """Say whether a number is a square: the episodes of the guard."""
    root = int(math.sqrt(number) + 0.5)
    return bool(root * root == number)


@implements(plan, FiniteState, argument=1)
def plan_finite(model: FiniteModel, state: FiniteState, start: int, key: np.uint64, episode: int) -> int:
    """Update the confidence set when it is due, then put its most optimistic member into play."""
    counters = ivec(state, COUNTERS)
    episodes = counters[EPISODES]
    counters[EPISODES] += 1
    due = episodes == 0 or episodes >= (1.0 + model.replan) * counters[EPISODES_AT_PLAN]
    guard = model.guard and is_square(episodes + 1)
    if due:
        counters[EPISODES_AT_PLAN] = episodes
        if model.ball:
            update_ball(model, state)
        else:
            update_set(model, state)
    elif start == counters[LAST_START] and not guard:
        return 0
    if guard:
        counters[LAST_START] = -1
    place = most_optimistic(model, state, counters[ALIVE] if guard else counters[CURRENT], start)
    counters[LAST_START] = -1 if guard else start
    counters[PLACE] = place
    member = ivec(state, MEMBERS)[place]
    if member == counters[MEMBER]:
        return PLANNED if due else 0
    absorb(model, state)
    enter_plan(model, state)
    counters[MEMBER] = member
    ivec(state, HELD)[:] = -1
    put_into_play(model, state)
    return PLANNED | CHANGED if due else CHANGED


# Values solved with each plan: unknown rewards, or one kernel per step ------------------------------------------------


@hot
def plays(model: FiniteModel, state: PlannedState, t: int, i: int, everybody: bool) -> bool:
    """Say whether a member of the set of step ``t`` may be counted on: those of the class in play."""
    inside = imat(state, INSIDE)[t, i] == 1
    return inside and (everybody or not model.restrict or ivec(model, LEVEL)[i] <= ivec(state, COUNTERS)[CLASS])


@hot
def update_sets(model: FiniteModel, state: PlannedState) -> None:
    """Find who is in the set of each step, and the smallest class that meets all of them (M25)."""
    counters, losses, inside, level = ivec(state, COUNTERS), fmat(state, LOSS), imat(state, INSIDE), ivec(model, LEVEL)
    members, n, smallest = ivec(state, MEMBERS), counters[ALIVE], 0
    for t in range(losses.shape[0]):
        bound = threshold(model, losses[t], members, n, ivec(state, ROWS)[t])
        bound = max(bound, least_of(losses[t], n))
        first = 2**62
        for i in range(n):
            inside[t, i] = 1 if losses[t, i] <= bound else 0
            if inside[t, i]:
                first = min(first, level[i])
        smallest = max(smallest, first)
    if smallest != counters[CLASS]:
        counters[CLASS] = smallest
        counters[CLASS_SINCE] = counters[EPISODES]


@hot
def solve_members(model: FiniteModel, state: PlannedState) -> None:
    """Write V*_{P,h} and the greedy actions of every member in play, for the rewards that the plan counts on."""
    counters, solved, greedy, reward = (
        ivec(state, COUNTERS),
        fmat(state, SOLVED),
        imat(state, GREEDY),
        fmat(model, REWARD),
    )
    horizon, features = model.horizon, features_of(model, FEATURES)
    for i in range(counters[ALIVE]):
        if not plays(model, state, 0, i, counters[GUARDED] == 1):
            continue
        base = i * (horizon + 1)
        for h in range(horizon - 1, -1, -1):
            counted_on = reward[h % reward.shape[0]]
            for s in range(solved.shape[1]):
                a, q = greedy_action(model, features, counted_on, solved[base + h + 1], i, s)
                greedy[i * horizon + h, s] = a
                solved[base + h, s] = q
    counters[MEMBER] = NOBODY


@hot
def choose_member(model: FiniteModel, state: PlannedState, start: int, everybody: bool) -> bool:
    """Put the member with the largest value at ``start`` into play (M5), the first on ties; say whether it is new."""
    counters, solved, greedy = ivec(state, COUNTERS), fmat(state, SOLVED), imat(state, GREEDY)
    values, policy, horizon = fmat(state, VALUES), imat(state, POLICY), model.horizon
    top, choice = -np.inf, 0
    for i in range(counters[ALIVE]):
        if plays(model, state, 0, i, everybody) and solved[i * (horizon + 1), start] > top:
            top, choice = solved[i * (horizon + 1), start], i
    if choice == counters[MEMBER]:
        return False
    absorb(model, state)
    counters[MEMBER] = choice
    for h in range(horizon):
        for s in range(policy.shape[1]):
            values[h, s] = solved[choice * (horizon + 1) + h, s]
            policy[h, s] = greedy[choice * horizon + h, s]
    return True


@hot
def plan_each_step(model: FiniteModel, state: PlannedState) -> None:
    """Plan backwards with the largest expectation over the set of each step, (s, a) by (s, a)."""
    counters, values, policy, z = ivec(state, COUNTERS), fmat(state, VALUES), imat(state, POLICY), fvec(model, Z)
    reward, x, target = fmat(model, REWARD), fvec(model, X), fvec(model, TARGET)
    starts, sizes, n = ivec(model, ROW_START), ivec(model, BLOCK_SIZE), counters[ALIVE]
    everybody, features = counters[GUARDED] == 1, features_of(model, FEATURES)
    for h in range(model.horizon - 1, -1, -1):
        counted_on = reward[h % reward.shape[0]]
        for s in range(policy.shape[1]):
            top = -np.inf
            for a in range(model.actions):
                sa = s * model.actions + a
                row_of(features, False, values[h + 1], sa, target, x)
                for i in range(n):
                    z[i] = 0.0
                for j in range(sizes[sa]):
                    row = model.theta[starts[sa] + j]
                    for i in range(n):
                        z[i] += x[j] * row[i]
                best = -np.inf
                for i in range(n):
                    if plays(model, state, h, i, everybody):
                        best = max(best, z[i])
                q = counted_on[sa] + best
                if q > top:
                    top = q
                    policy[h, s] = a
            values[h, s] = top


@implements(plan, PlannedState, argument=1)
def plan_planned(model: FiniteModel, state: PlannedState, start: int, key: np.uint64, episode: int) -> int:
    """Update the sets and plan when that is due; put the most optimistic member for ``start`` into play."""
    counters = ivec(state, COUNTERS)
    episodes = counters[EPISODES]
    counters[EPISODES] += 1
    guard = model.guard and is_square(episodes + 1)
    due = episodes == 0 or episodes >= (1.0 + model.replan) * counters[EPISODES_AT_PLAN] or counters[GUARDED] == 1
    due = due or guard or counters[REWARDS_DUE] == 1
    stationary = fmat(state, LOSS).shape[0] == 1
    if not due:
        return CHANGED if stationary and choose_member(model, state, start, False) else 0
    counters[EPISODES_AT_PLAN] = episodes
    counters[GUARDED] = 1 if guard else 0
    absorb(model, state)
    update_sets(model, state)
    optimistic_rewards(model.rewards, model, state)
    if stationary:
        solve_members(model, state)
        choose_member(model, state, start, guard)
    else:
        plan_each_step(model, state)
    return PLANNED | CHANGED


def _learn(model: FiniteModel, state: Any, path: Path, steps: int) -> None:
    """Count the rows and the rewards of an episode."""
    observe_rewards(model.rewards, state, path, steps, model.actions, 1.0 + model.replan)
    count_rows(state, path, min(steps, model.rows), model.known_rewards, True)


for _kind in (FiniteState, PlannedState):
    follows_plan(_kind)
    implements(learn, _kind, argument=1)(_learn)


# Asked between phases -------------------------------------------------------------------------------------------------


@entry
def test_now(model: FiniteModel, state: FiniteState) -> float:
    """Enter the rows that wait, test the classes for the next episode, and return the threshold (M22)."""
    counters = ivec(state, COUNTERS)
    before, episodes = counters[CLASS], counters[EPISODES]
    absorb(model, state)
    enter_plan(model, state)
    test_classes(model, state)
    if counters[CLASS] != before:
        counters[CLASS_SINCE] = episodes + 1
    counters[NEXT_TEST] = max(episodes + 1, int(np.ceil(episodes * (1.0 + model.test))))
    return threshold(model, fmat(state, LOSS)[0], ivec(state, MEMBERS), counters[ALIVE], ivec(state, ROWS)[0])


@entry
def enter_rows(model: FiniteModel, state: FiniteState | PlannedState) -> None:
    """Enter the rows that wait for the next plan."""
    absorb(model, state)


@entry
def losses_of(
    model: FiniteModel, state: FiniteState, members: Ints, reference: int, loss: Floats, distance: Floats
) -> None:
    """Add L(P) less sum y^2, and L(P, reference), of ``members`` over all rows (M1, M2)."""
    add_losses(model, state, members, members.size, loss)
    add_distances(model, state, reference, members, members.size, distance)


@entry
def thresholds(model: FiniteModel, state: PlannedState, out: Floats) -> None:
    """Write the right side of M22 for every step, at least the smallest loss."""
    losses, n = fmat(state, LOSS), ivec(state, COUNTERS)[ALIVE]
    for t in range(out.size):
        bound = threshold(model, losses[t], ivec(state, MEMBERS), n, ivec(state, ROWS)[t])
        out[t] = max(bound, least_of(losses[t], n))
