r"""UCRL-VTR: optimism over a finite family of kernels (Ayoub et al. 2020; Ghosh et al. 2022, section 3).

**Losses.** Per kernel P only its loss L(P) is kept (up to a constant common to all). The rows at (s, a) add a quadratic
form of the parameters of P there, sum (N z^2 - 2 y z) = <theta, G theta> - 2 <b, theta>, whatever plans they came from:
in blocks of few coordinates, rows are added up first, and then entered for all kernels whose losses are kept current.
In large blocks rows are entered one by one. While a plan stays in play, (P V)(s, a) for all P is a column computed at
the first visit of a cell, so an episode costs O(H n).

**Sharp set** (M24): B = {P : L(P) <= t}, t = -(U^2/2) log sum_P w(P) exp(-2 L(P)/U^2) + (U^2/2) log(1/delta).
Kernels that leave it are dropped from the sum as well, which only raises the threshold, so the set stays valid. At
doubling times all dropped kernels are looked at again: with m the mean target of a cell of N rows, L(P) is a sum over
cells of N (z - m)^2 plus a constant, so a kernel is put aside as soon as a partial sum passes the threshold; where
losses are quadratic forms, one of each block serves all rows.

**Classes** (M25): the class in play is the smallest that still meets B. Kernels stand in a list of positions; the first
CURRENT of them belong to the class in play and their losses are current. Those after them, up to ALIVE, belong to
larger classes: their losses lag behind by the rows in PENDING until :func:`catch_up` enters these all at once. Between
tests the sum runs over the kernels of the class in play alone; leaving terms out raises the threshold, so P* stays in
the set - but a class whose own kernels make up the whole sum is never left without a kernel. A test brings the losses
of all kernels that are left up to date and takes the sum over all of them; only then can a class be rejected. Tests
come when the data have grown by a given factor, so a wrong class is kept at most that much longer than with a test
before every episode.

**Ball** (M4): B = {P : L(P, Phat) <= beta}; nothing is dropped, and distances are rebuilt from the counted rows when
Phat changes.

**Covers**: the truth may lie between two members. Then t has the term E of :func:`occamrl.models.finite.off_grid`, and
beta is replaced by (sqrt(beta + 2 E) + U reach sqrt(n)/2)^2: with P0 the member nearest to the truth, L(Phat) <= L(P0)
<= L(P*) + E enters M21 with c = 1 and gives L(P*, Phat) <= beta + 2 E, and P0 is within U reach/2 of P* on every row.

**Values** V*_{P,h} depend on P alone where rewards are known and one kernel serves all steps; they are solved once per
family and problem. Rows are then counted by (member in play, h, s), a :class:`FiniteState`. With unknown rewards or one
kernel per step values are solved with each plan, a :class:`PlannedState`: the losses of all members are kept, for each
of T steps (T = 1: one kernel for all), nobody is dropped, and B_t is read off them at level delta/T. One kernel for all
steps: every member of B is solved for the rewards that the plan counts on, and the one with the largest value at the
start is played (M5). One per step: (P_1, ..., P_H) is any choice from B_1 x ... x B_H, of which there are too many to
list; the plan takes the largest expectation at every (s, a) by itself,

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

from occamrl._core.arena import field, fields, fmat, fresh_state, fvec, imat, ivec, lay_out, named, part, square
from occamrl._core.compile import compiled, entry, hot, hot_inline, implements
from occamrl._core.features import fill_target
from occamrl._core.loop import CHANGED, PLANNED, Path, learn, plan
from occamrl._core.regression import Blocks, add_row
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
from occamrl.protocols import Field, Floats, Ints, Kernel, Known, Learner, Outcomes, Weights

_COLUMN_NUMBERS = 2**23  # at most 64 MiB of cached columns
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)  # of the hash table of rows
EMPTY = -1
FIRST_LOOK = 64  # episodes before dropped kernels are looked at again for the first time
NEVER = 2**62
_FORM_COST = 32  # multiplications a row for which losses are computed as quadratic forms, at most
_FORM_MEMBERS = 4096  # of a family for which that pays, at least
_TAYLOR = tuple(1.0 / math.factorial(i) for i in range(9))
_CHUNK = 256  # kernels at a time, so that what is computed with stays in the nearest cache
NOBODY = -1  # no member in play
_LEAST_SLOTS = 256  # of the table of rows
_MOST_LOSS = 1e100  # more than any run has; its square is a number

# Counters, after those of _core.rows
(
    ALIVE,  # kernels that are left
    MEMBER,  # in play
    BEST,  # the position of the least-squares estimate (ball only)
    LAST_START,
    EPISODES_AT_PLAN,
    NEXT_LOOK,
    COLUMNS,  # columns in use
    CURRENT,  # kernels of the class in play
    CLASS,  # in play, from 0
    CLASS_SINCE,
    NEXT_TEST,
    PENDING,  # cells whose rows larger classes still lack
    IMPOSSIBLE,  # rows with a target that no kernel can produce
    GUARDED,  # whether the plan in play is one of the guard
    USED,  # keys in the table of rows
) = range(PLAN_COUNTERS, PLAN_COUNTERS + 15)

# Fields of the model, after those of _core.rows
(
    ROW_START,  # [S*A] int, first coordinate of (s, a)
    BLOCK_SIZE,  # [S*A] int, number of coordinates of (s, a)
    LOG_PRIOR,  # [n]
    LEVEL,  # [n] int, the first class of a ladder that holds the member, from 0; all 0 without a ladder
    KERNELS,  # [n + 1] int, scratch, as what follows
    SUMS,  # [n + 1]
    Z,  # [n + 1]
    OPTIMISM,  # [n + 1] V*_{P,1}(s) of all members, and s
    FORM,  # [sum of m^2 + m + 1] of each block of m coordinates: sum x x^T, sum y x, the number of rows
    FORM_START,  # [S*A] int, where those of (s, a) begin; empty where losses are no quadratic forms
    FORM_PAIRS,  # [B + 1] int, how many blocks have rows in FORM, and an (s, a) of each
    FORM_WORK,  # [2 + largest block, _CHUNK]
) = range(MODEL_FIELDS, MODEL_FIELDS + 12)

# Fields of the state, after those of _core.rows
(
    MEMBERS,  # [n] int, members by position; the first counters[ALIVE] count
    LOSS,  # [T, n] L(P) less sum y^2, by position; infinite once dropped
    DISTANCE,  # [n] L(P, Phat) by position (ball only; else empty)
    INSIDE,  # [T, n] int, whether P was in the set when it was last updated (not for the sharp set that drops)
    ROWS,  # [T] int, number of rows in the losses
    SUM_OF_SQUARES,  # [T] sum of y^2 over them: what the losses leave out
    SLOT,  # [H, S] int, column of a cell, -1: none yet
    COLUMN,  # [C, n] (P V - c)/R at a cell, by position; the last one is scratch
    TABLE_SLOT,  # [capacity] int, the entry of a hashed key, EMPTY where free; a power of two, at most half used
    TABLE_KEY,  # [capacity / 2] int, (member, h, s) as one number
    TABLE_VISITS,  # [capacity / 2] int
    TABLE_SUM,  # [capacity / 2] sum of targets
    PENDING_CELL,  # [C] int, keys of the rows that the losses of larger classes still lack
    PENDING_VISITS,  # [C] int
    PENDING_SUM,  # [C]
    PENDING_AT,  # [H, S] int, where the rows of the member in play are, -1: nowhere yet
    SOLVED,  # [n*(H + 1), S] V*_{P,h} of the members in the set; empty where values are solved beforehand
    GREEDY,  # [n*H, S] int, the actions that go with them: the rewards they were solved for are not kept
) = range(STATE_FIELDS, STATE_FIELDS + 18)
FINITE_FIELDS = STATE_FIELDS + 18


class NoForms(NamedTuple):
    """Losses are computed row by row; nothing else is compiled."""


class QuadraticForms(NamedTuple):
    """Losses are computed as quadratic forms, block by block."""


class FiniteModel(NamedTuple):
    """What the compiled functions read, and their scratch memory."""

    floats: Floats
    ints: Ints
    theta: Floats  # [d, n]
    values: Floats  # [n*(H + 1), S] V*_{P,h}, where they are solved beforehand
    record: Any  # NoRecord | Record
    forms: Any  # NoForms | QuadraticForms
    rewards: Any  # RewardModel
    known_rewards: bool
    actions: int
    horizon: int
    rows: int  # steps that give a row
    counted: bool  # values are solved beforehand, and rows counted by member
    restrict: bool  # play the smallest class that the data do not contradict (M25)
    test: float  # a test of the classes is due when the data have grown by the factor 1 + test
    guard: bool  # play the largest class when the number of the episode is a square
    weighted: bool
    ball: bool
    unit: float  # U, the range of a target
    slack: float  # beta of the ball, or (U^2/2) log(1/delta)
    reach: float  # how far the truth may be from its nearest member; 0 but for covers
    delta: float
    stretch: float  # U^2 times the factor on the slack
    replan: float


class FiniteState(PlanState):
    """Losses of the kernels that are left, the member in play, and the rows seen."""

    __slots__ = ()

    members = named(MEMBERS)
    loss = named(LOSS)
    inside = named(INSIDE)
    distance = named(DISTANCE)
    table_key = named(TABLE_KEY)
    table_visits = named(TABLE_VISITS)
    table_sum = named(TABLE_SUM)

    def arrays(self) -> list[Any]:
        """Return all that counts: not the spare room of the table, which depends on how a run was cut into pieces."""
        parts, used = fields(self, FINITE_FIELDS), int(self.counters[USED])
        table = (TABLE_KEY, TABLE_VISITS, TABLE_SUM)
        return [part[:used] if i in table else part for i, part in enumerate(parts) if i != TABLE_SLOT]


class PlannedState(PlanState):
    """Losses of all members at each step, the plan in play, and the rows seen under it."""

    __slots__ = ()

    members = named(MEMBERS)
    loss = named(LOSS)
    inside = named(INSIDE)


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTR(Learner):
    """Play the most optimistic kernel that the data do not contradict (M1-M7, M24).

    Parameters
    ----------
    family : FiniteFamily
    delta : float
        The true kernel stays in the confidence set at all times with probability 1 - delta. Of a cover: the member
        nearest to it does, by the term of :func:`occamrl.models.finite.off_grid`.
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
    record : FeatureMap, optional
        Record the rows in the coordinates of these features too, for a test of the class that they span (ARL-GEN).
    rewards : "known", RewardsPerPair or RewardsLinear
        Rewards that are not known are estimated (:mod:`occamrl.learners.rewards`), for a share of delta.
    kernel : "stationary" | "per_step"
        One member for all steps, or one for each, with losses and a set of its own at an even part of delta. This and
        unknown rewards need the sharp set.
    """

    guarantee = "valid"
    told = ("the class",)

    family: FiniteFamily
    delta: float = 0.05
    radius: Literal["sharp", "unweighted", "paper"] = "sharp"
    weights: Weights = "range"
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
        require_choice("weights", self.weights, ("range", "none"))
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

    def steps(self, known: Known) -> int:
        """Return T: 1, or H with one kernel per step."""
        return known.horizon if self.kernel == "per_step" else 1

    def forms(self, known: Known) -> bool:
        """Whether losses are quadratic forms: in blocks of few coordinates, fewer than there are members."""
        blocks, rows = self.family.features.blocks, max(1, known.horizon - 1)
        m = int(blocks.size.max())
        cheap = (
            max(m + 1, _FORM_MEMBERS) <= self.family.size
            and m * (m + 3) * min(rows, blocks.size.size) <= 2 * _FORM_COST * rows
        )
        return self.counted and self.radius == "sharp" and cheap

    def model(self, known: Known) -> FiniteModel:
        """Return the constants of the compiled functions."""
        known = seen_by(self.rewards, known)
        features, size = self.family.features, self.family.size
        blocks, bonus = features.blocks, features.attach(known).outcomes.bonus
        rows = known.horizon if bonus.any() else known.horizon - 1
        weighted, delta = self.weights == "range", float(self.delta)
        values = np.zeros((1, known.states))
        if self.counted:
            solved = self.family.optimal_values(known)
            unit = 1.0 if weighted else largest_range(features.attach(known).outcomes, solved)
            values = solved.reshape(-1, known.states)
        else:
            unit = 1.0 if weighted else float(rows)
            delta *= kernel_share(self.rewards) / (max(1, rows) if self.kernel == "per_step" else 1)
        left = level(self.family.reach, delta)
        if self.radius == "sharp":
            slack = 0.5 * unit**2 * float(np.log(1.0 / left))
        else:
            slack = squared_distance_radius(
                self.radius, size=size, delta=left, horizon=known.horizon, unit=unit, weighted=weighted
            )
        prior = np.full(size, 1.0 / size) if self.prior is None else np.asarray(self.prior, dtype=np.float64)
        rewards, reward_fields = rewards_model(self.rewards, known, float(self.delta))
        made = [
            *reward_fields,
            *model_fields(features, features, self.record, known, self.steps(known)),
            blocks.vector_start[blocks.of],
            blocks.size[blocks.of],
            np.log(prior),
            np.zeros(size, dtype=np.int64),
            np.zeros(size + 1, dtype=np.int64),
            np.zeros(size + 1),
            np.zeros(size + 1),
            np.full(size + 1, -1.0),
            *_form_fields(blocks, self.forms(known)),
        ]
        model: FiniteModel = lay_out(
            FiniteModel,
            made,
            theta=np.require(self.family.theta, requirements=["C", "W"]),
            values=np.require(values, requirements=["C", "W"]),
            record=NoRecord() if self.record is None else Record(self.steps(known)),
            forms=QuadraticForms() if self.forms(known) else NoForms(),
            rewards=rewards,
            known_rewards=isinstance(self.rewards, str),
            actions=known.actions,
            horizon=known.horizon,
            rows=rows,
            counted=self.counted,
            restrict=False,
            test=np.inf,
            guard=False,
            weighted=weighted,
            ball=self.radius != "sharp",
            unit=unit,
            slack=self.scale * slack,
            reach=float(self.family.reach),
            delta=delta,
            stretch=float(self.scale * unit**2),
            replan=float(self.replan),
        )
        return model

    def fields(self, known: Known, state: Any = None) -> list[Field]:
        """Return what the arrays of a state hold; its table of rows is as large as that of ``state``."""
        return self._fields(known, state, pending=1, classes=1)

    def _fields(self, known: Known, state: Any, pending: int, classes: int) -> list[Field]:
        """Return the fields, with room for ``pending`` cells of rows that larger classes may lack."""
        n, steps, table = self.family.size, self.steps(known), (known.horizon, known.states)
        ball, counted, solved = self.radius != "sharp", self.counted, not self.counted and steps == 1
        cells, keys = known.horizon * known.states, n * known.horizon * known.states
        kept = min(cells, max(known.horizon, _COLUMN_NUMBERS // n)) if counted and not self.forms(known) else 0
        columns = 1 + kept
        slots = (_LEAST_SLOTS if state is None else _slots_of(state)) if counted else 2
        counters = {
            "alive": (1, n, n),
            "member": (NOBODY, n - 1, NOBODY),
            "best": (0, n - 1, 0),
            "last_start": (-1, known.states - 1, -1),
            "episodes_at_plan": (0, MOST_ROWS, 0),
            "next_look": (0, NEVER, FIRST_LOOK),
            "columns": (0, columns - 1, 0),
            "current": (1, n, n),
            "class": (0, classes - 1, 0),
            "class_since": (0, MOST_ROWS, 0),
            "next_test": (-(2**63), NEVER, NEVER),
            "pending": (0, pending, 0),
            "impossible": (0, MOST_ROWS, 0),
            "guarded": (0, 1, 0),
            "used": (0, slots // 2, 0),
        }
        everybody = 0 if ball else 1
        return [
            *plan_fields(known, reward_rows(self.rewards, known), counters),
            *record_fields(self.record, steps, known.states * known.actions),
            Field("members", (n,), 0, n - 1, np.arange(n)),
            Field("loss", (steps, n), -_MOST_LOSS, np.inf if counted else _MOST_LOSS),
            Field("distance", (n if ball else 0,), 0.0, _MOST_LOSS),
            Field("inside", (steps, n if ball or not counted else 0), 0, 1, everybody),
            Field("rows", (steps,), 0, cells * MOST_ROWS),
            Field("sum_of_squares", (steps,), 0.0, _MOST_LOSS),
            Field("slot", table, -1, columns - 2, -1),
            Field("column", (columns, n), -MOST, MOST),
            Field("table_slot", (slots,), EMPTY, max(0, slots // 2 - 1), EMPTY),
            Field("table_key", (slots // 2,), 0, keys - 1),
            Field("table_visits", (slots // 2,), 0, MOST_ROWS),
            Field("table_sum", (slots // 2,), -_MOST_LOSS, _MOST_LOSS),
            Field("pending_cell", (pending,), 0, keys - 1),
            Field("pending_visits", (pending,), 0, MOST_ROWS),
            Field("pending_sum", (pending,), -_MOST_LOSS, _MOST_LOSS),
            Field("pending_at", table, -1, pending - 1, -1),
            Field("solved", (n * (known.horizon + 1) if solved else 0, known.states), -1.0, known.horizon + 2.0),
            Field("greedy", (n * known.horizon if solved else 0, known.states), 0, known.actions - 1),
        ]

    def begin(self, known: Known) -> FiniteState | PlannedState:
        """Return a fresh state."""
        kind = FiniteState if self.counted else PlannedState
        state: FiniteState | PlannedState = fresh_state(kind, self.fields(known))
        return state

    def reserve(self, state: Any, episodes: int) -> Any:
        """Return a state whose table of rows has room for ``episodes`` more episodes."""
        if not self.counted:
            return state
        policy, slots = field(state, POLICY), field(state, TABLE_SLOT)
        used, capacity = int(field(state, COUNTERS)[USED]), slots.size
        keys = used + min((episodes + 1) * policy.shape[0], policy.size * self.family.size)
        while 2 * keys > capacity:
            capacity *= 8 if capacity < 2**15 else 2  # growing copies the whole state: not often while that is cheap
        return state if capacity == slots.size else _with_capacity(state, capacity)

    def resume(self, model: FiniteModel, fresh: Any, state: Any) -> None:
        """Refuse a state whose fields contradict each other; the table's slots, columns and plan follow from others."""
        require_rows(state)
        counters = field(state, COUNTERS)
        alive, current, used, pending = (int(counters[i]) for i in (ALIVE, CURRENT, USED, PENDING))
        loss, members, best = field(state, LOSS)[0], field(state, MEMBERS), int(counters[BEST])
        at, cells, keys = field(state, PENDING_AT), field(state, PENDING_CELL), field(state, TABLE_KEY)
        sums, slots = [field(state, i) for i in (TABLE_VISITS, TABLE_SUM)], field(state, SLOT)
        begun, ball = bool(counters[EPISODES]), field(state, DISTANCE).size > 0
        inside = field(state, INSIDE)[0, :current] == 1 if ball and begun else loss[:current] < np.inf
        mine = (counters[MEMBER] * at.shape[0] + np.arange(at.shape[0])[:, None]) * at.shape[1] + np.arange(at.shape[1])
        faults = {
            "counters.current": current > alive,
            "counters.member": self.counted and begun != (counters[MEMBER] != NOBODY),
            "counters.episodes_at_plan": counters[EPISODES_AT_PLAN] > counters[EPISODES],
            "members": np.unique(members[:alive]).size < alive or (not self.counted and alive < members.size),
            "inside" if ball and begun else "loss": not inside.any(),
            "distance": ball and field(state, DISTANCE)[best] != 0.0,
            "slot": not np.array_equal(np.sort(slots[slots >= 0]), np.arange(counters[COLUMNS])),
            "table_key": np.unique(keys[:used]).size < used,
            "table_visits": (sums[0][:used] < 1).any() or sums[0][used:].any(),
            "table_sum": sums[1][used:].any(),
            "rows": self.counted and int(sums[0].sum()) != int(field(state, ROWS)[0]),
            "pending_visits": (field(state, PENDING_VISITS)[:pending] < 1).any(),
            "pending_at": (at >= pending).any() or (cells[at[at >= 0]] != mine[at >= 0]).any(),
            "solved": field(state, SOLVED)[model.horizon :: model.horizon + 1].any(),
        }
        require_agreement(faults)
        if self.counted:
            field(state, TABLE_SLOT)[:] = EMPTY
            rehash(field(state, TABLE_SLOT), keys, used)
            if begun:
                places, columns = (at.copy(), slots.copy()), counters[COLUMNS]
                take_up(model, state, slots.copy())
                at[:], slots[:] = places
                counters[COLUMNS] = columns

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


@dataclass(frozen=True, kw_only=True, eq=False)
class NestedUCRLVTR(UCRLVTR):
    """Play F_m with m = min {m : F_m meets B}, B the sharp set over F_M with the prior of M25: ARL-GEN's own learner.

    Parameters
    ----------
    ladder : Ladder
        Of finite families; ``family`` and ``prior`` are its own.
    delta : float
        The true kernel stays in B at all times, hence its class is never rejected, with probability 1 - delta.
    weights, replan, scale, rewards, kernel
        As in :class:`UCRLVTR`. With unknown rewards or one kernel per step the classes are tested with every plan, and
        the first class is 1.
    test_growth : float
        The classes are tested when the data have grown by the factor 1 + test_growth; 0: before every episode.
    start_class : int
        The class to play before the first test, 1 or M; the first test comes after 1 episode, or 2 for M.
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
    start_class: int = 1
    safe: bool = False
    guard: bool = False

    def __post_init__(self) -> None:
        require_number("test_growth", self.test_growth, 0.0, 1e100)
        if not getattr(self.ladder, "finite", False):
            raise ParameterError("ladder", got=f"{self.ladder!r:.100}", expected="a Ladder of lists of kernels")
        object.__setattr__(self, "family", self.ladder.family)
        object.__setattr__(self, "prior", self.ladder.prior)
        super().__post_init__()
        if not self.counted and self.start_class != 1:
            expected = "1 with unknown rewards or one kernel per step"
            raise ParameterError("start_class", got=self.start_class, expected=expected)

    def model(self, known: Known) -> FiniteModel:
        """Return the constants of the compiled functions."""
        test = float(self.test_growth) if self.counted else np.inf
        made = super().model(known)._replace(restrict=not self.safe, test=test, guard=bool(self.guard))
        field(made, LEVEL)[:] = self.ladder.level
        return made

    def fields(self, known: Known, state: Any = None) -> list[Field]:
        """Return what the arrays of a state hold."""
        return self._fields(known, state, 2 * known.horizon * known.states, self.ladder.classes)

    def begin(self, known: Known) -> FiniteState | PlannedState:
        """Return a fresh state."""
        state = super().begin(known)
        if self.counted:
            state.counters[[CLASS, NEXT_TEST]] = self.start_class - 1, 1 if self.start_class == 1 else 2
            if not self.safe:
                state.counters[CURRENT] = self.ladder.sizes[self.start_class - 1]
        return state

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Small instances on a problem, for the contract checks."""
        ladder = example_ladder(mdp)
        return [cls(ladder=ladder), cls(ladder=ladder, start_class=3, test_growth=0.0, guard=True, replan=0.1)]


def example_ladder(mdp: Any) -> Ladder:
    """Return a ladder of three classes, the problem's kernel in the second."""
    kernel = mdp.kernel() if mdp.stationary else mdp.kernel()[0]
    others = np.random.default_rng(3).dirichlet(np.ones(mdp.states), size=(7, mdp.states, mdp.actions))
    stack = np.concatenate([others[:1], kernel[None], others[1:]])
    return Ladder([FiniteFamily(stack[:1]), FiniteFamily(stack[:3]), FiniteFamily(stack)])


def _form_fields(blocks: Blocks, forms: bool) -> list[Any]:
    """Return the fields FORM, FORM_START, FORM_PAIRS and FORM_WORK of a model."""
    if not forms:
        return [np.zeros(0), np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros((0, 0))]
    ends = np.cumsum(blocks.size * blocks.size + blocks.size + 1)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    pairs, work = np.zeros(ends.size + 1, np.int64), np.zeros((2 + int(blocks.size.max()), _CHUNK))
    return [np.zeros(int(ends[-1])), starts[blocks.of], pairs, work]


def _slots_of(state: Any) -> int:
    """Return the size of a state's table of rows, which is refused unless it can be that of one."""
    head = 4 * TABLE_SLOT + 2
    ints: Any = getattr(state, "ints", None)
    sound = isinstance(ints, np.ndarray) and ints.dtype == np.int64 and ints.ndim == 1 and ints.size > head
    slots = int(ints[head]) if sound else 0
    if not sound or not _LEAST_SLOTS <= slots <= ints.size or slots & (slots - 1):
        raise ParameterError(
            "state.table_slot", got=f"{slots} slots", expected=f"a power of two from {_LEAST_SLOTS} on"
        )
    return slots


def _with_capacity(state: FiniteState, capacity: int) -> FiniteState:
    """Return a state with a larger table of rows."""
    parts, table = fields(state, FINITE_FIELDS), (TABLE_KEY, TABLE_VISITS, TABLE_SUM)
    shapes = {TABLE_SLOT: (capacity,), **dict.fromkeys(table, (capacity // 2,))}
    every = [Field("", shapes.get(i, each.shape), each.dtype.type(0), 0) for i, each in enumerate(parts)]
    made: FiniteState = fresh_state(type(state), every)
    for number, each in enumerate(parts):
        if number != TABLE_SLOT:
            field(made, number)[: each.shape[0]] = each
    field(made, TABLE_SLOT)[:] = EMPTY
    rehash(field(made, TABLE_SLOT), field(made, TABLE_KEY), int(field(made, COUNTERS)[USED]))
    return made


@compiled
def largest_range(outcomes: Outcomes, values: Floats) -> float:
    """Return R of M7: the largest range of a member's target function at any step and (s, a)."""
    target = np.empty(outcomes.next_state.size)
    largest = 0.0
    for member in range(values.shape[0]):
        for h in range(1, values.shape[1]):
            for sa in range(outcomes.start.size - 1):
                low, high = fill_target(outcomes, sa, values[member, h], target)
                largest = max(largest, high - low)
    return largest


# Compiled -------------------------------------------------------------------------------------------------------------


@hot
def expected_targets(
    model: FiniteModel, features: FeatureView, values: Floats, sa: int, members: Ints, n: int, out: Floats
) -> tuple[float, float]:
    """Write z = ((P V)(s, a) - c)/R for the first ``n`` kernels of ``members``; return (c, R) (M23).

    With R = 0 the row carries nothing, and nothing is written.
    """
    x = fvec(model, X)
    middle, spread = row_of(features, model.weighted, values, sa, fvec(model, TARGET), x)
    if spread <= 0.0:
        return middle, 0.0
    begin, size = ivec(model, ROW_START)[sa], ivec(model, BLOCK_SIZE)[sa]
    for i in range(n):
        out[i] = 0.0
    first = members[0] if n > 0 else 0
    scattered = 0
    for i in range(n):
        scattered += members[i] != first + i
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
def add_key(
    counters: Ints, slot: Ints, keys: Ints, visits: Ints, sums: Floats, key: int, count: int, total: float
) -> None:
    """Count rows under a key: a hash table whose entries lie in the order in which their keys first came."""
    mask = slot.size - 1
    at = np.int64((np.uint64(key) * _MIX) >> _SHIFT) & mask
    while slot[at] != EMPTY and keys[slot[at]] != key:
        at = (at + 1) & mask
    entry_ = slot[at]
    if entry_ == EMPTY:
        entry_ = counters[USED]
        if entry_ == keys.size:
            raise MemoryError("the table of rows is full; reserve room before playing")
        slot[at] = entry_
        keys[entry_] = key
        counters[USED] += 1
    visits[entry_] += count
    sums[entry_] += total


@entry
def rehash(slot: Ints, keys: Ints, used: int) -> None:
    """Fill the slots of a larger table anew."""
    mask = slot.size - 1
    for entry_ in range(used):
        at = np.int64((np.uint64(keys[entry_]) * _MIX) >> _SHIFT) & mask
        while slot[at] != EMPTY:
            at = (at + 1) & mask
        slot[at] = entry_


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


@hot
def cell_of(state: Any, key: int) -> tuple[int, int, int]:
    """Return (member, h, s) of a key."""
    horizon, states = imat(state, POLICY).shape
    rest, s = divmod(key, states)
    member, h = divmod(rest, horizon)
    return member, h, s


@hot
def targets_of_key(model: FiniteModel, state: Any, key: int, members: Ints, n: int, out: Floats) -> None:
    """Write z of ``members`` for the rows under a key; their action is that of the member who played them."""
    member, h, s = cell_of(state, key)
    values = model.values[member * (model.horizon + 1) + h + 1]
    features = features_of(model, FEATURES)
    a, _ = greedy_action(model, features, fmat(model, REWARD)[0], values, member, s)
    expected_targets(model, features, values, s * model.actions + a, members, n, out)


def enter_form(forms: Any, model: FiniteModel, sa: int, count: int, y: float) -> None:
    """Enter rows x of (s, a), which stand in X, into the quadratic form of their block, where there are forms."""
    raise TypeError(f"no forms of type {type(forms).__name__}")


def add_forms(forms: Any, model: FiniteModel, members: Ints, n: int, out: Floats) -> None:
    """Add what the rows entered into the forms add to the losses of ``members``, and forget these rows."""
    raise TypeError(f"no forms of type {type(forms).__name__}")


@implements(enter_form, NoForms)
def enter_nothing(forms: NoForms, model: FiniteModel, sa: int, count: int, y: float) -> None:
    """``enter_form`` without forms."""


@implements(add_forms, NoForms)
def add_nothing(forms: NoForms, model: FiniteModel, members: Ints, n: int, out: Floats) -> None:
    """``add_forms`` without forms."""


@implements(enter_form, QuadraticForms, inline=False)
def enter_quadratic(forms: QuadraticForms, model: FiniteModel, sa: int, count: int, y: float) -> None:
    """``enter_form``; y is the sum of the targets of the rows.

    With z = <x, theta> a loss grows by the sum of count z^2 - 2 y z = <theta, (sum count x x^T) theta - 2 sum y x>.
    """
    m, pairs, x = ivec(model, BLOCK_SIZE)[sa], ivec(model, FORM_PAIRS), fvec(model, X)
    begin = ivec(model, FORM_START)[sa]
    right = part(fvec(model, FORM), begin + m * m, m + 1)
    add_row(square(fvec(model, FORM), begin, m), count, x)
    for j in range(m):
        right[j] += y * x[j]
    if right[m] == 0.0:
        pairs[0] += 1
        pairs[pairs[0]] = sa
    right[m] += count


@hot
def enter_key(model: FiniteModel, state: Any, key: int, count: int, y: float) -> None:
    """Enter the rows under a key into the quadratic form of their block."""
    member, h, s = cell_of(state, key)
    values = model.values[member * (model.horizon + 1) + h + 1]
    features = features_of(model, FEATURES)
    a, _ = greedy_action(model, features, fmat(model, REWARD)[0], values, member, s)
    sa = s * model.actions + a
    row_of(features, model.weighted, values, sa, fvec(model, TARGET), fvec(model, X))
    enter_form(model.forms, model, sa, count, y)


@implements(add_forms, QuadraticForms, inline=False)
def add_quadratic(forms: QuadraticForms, model: FiniteModel, members: Ints, n: int, out: Floats) -> None:
    """``add_forms``, a chunk of kernels at a time."""
    pairs, work = ivec(model, FORM_PAIRS), fmat(model, FORM_WORK)
    if pairs[0] == 0:
        return
    starts, sizes, begins = ivec(model, ROW_START), ivec(model, BLOCK_SIZE), ivec(model, FORM_START)
    total, partial = work[0], work[1]
    for first in range(0, n, _CHUNK):
        size = min(_CHUNK, n - first)
        for i in range(size):
            total[i] = 0.0
        begin, scattered = members[first], 0
        for i in range(size):
            scattered += members[first + i] != begin + i
        for p in range(1, pairs[0] + 1):
            sa = pairs[p]
            m = sizes[sa]
            form = square(fvec(model, FORM), begins[sa], m)
            right = part(fvec(model, FORM), begins[sa] + m * m, m)
            for j in range(m):
                row, theta = model.theta[starts[sa] + j], work[2 + j]
                if scattered:
                    for i in range(size):
                        theta[i] = row[np.uint64(members[first + i])]
                else:
                    near = part(row, begin, size)
                    for i in range(size):
                        theta[i] = near[i]
            for j in range(m):
                theta = work[2 + j]
                left = -2.0 * right[j]
                g = form[j, j]
                for i in range(size):
                    partial[i] = left + g * theta[i]
                k = j + 1
                while k + 3 < m:
                    g0, g1, g2, g3 = 2.0 * form[j, k], 2.0 * form[j, k + 1], 2.0 * form[j, k + 2], 2.0 * form[j, k + 3]
                    t0, t1, t2, t3 = work[2 + k], work[3 + k], work[4 + k], work[5 + k]
                    for i in range(size):
                        partial[i] += (g0 * t0[i] + g1 * t1[i]) + (g2 * t2[i] + g3 * t3[i])
                    k += 4
                while k < m:
                    g0, t0 = 2.0 * form[j, k], work[2 + k]
                    for i in range(size):
                        partial[i] += g0 * t0[i]
                    k += 1
                for i in range(size):
                    total[i] += theta[i] * partial[i]
        for i in range(size):
            out[first + i] += total[i]
    for p in range(1, pairs[0] + 1):
        m = sizes[pairs[p]]
        form = part(fvec(model, FORM), begins[pairs[p]], m * m + m + 1)
        form[:] = 0.0
    pairs[0] = 0


@hot
def catch_up(model: FiniteModel, state: Any) -> None:
    """Bring the losses of larger classes up to date."""
    counters, alive, z = ivec(state, COUNTERS), ivec(state, MEMBERS), fvec(model, Z)
    first, n = counters[CURRENT], counters[ALIVE]
    cells, visits, sums = ivec(state, PENDING_CELL), ivec(state, PENDING_VISITS), fvec(state, PENDING_SUM)
    loss, at = fmat(state, LOSS)[0], imat(state, PENDING_AT)
    members = alive[first:n]
    for i in range(counters[PENDING]):
        if ivec(model, FORM_START).size > 0:
            enter_key(model, state, cells[i], visits[i], sums[i])
        else:
            targets_of_key(model, state, cells[i], members, n - first, z)
            for j in range(n - first):
                loss[first + j] += z[j] * (visits[i] * z[j] - 2.0 * sums[i])
    add_forms(model.forms, model, members, n - first, loss[first:n])
    if counters[PENDING] > 0:
        at[:] = -1
        counters[PENDING] = 0


@hot
def put_off(model: FiniteModel, state: Any, key: int, h: int, s: int, count: int, y: float) -> None:
    """Keep rows for the losses of larger classes."""
    counters, places = ivec(state, COUNTERS), imat(state, PENDING_AT)
    cells, visits, sums = ivec(state, PENDING_CELL), ivec(state, PENDING_VISITS), fvec(state, PENDING_SUM)
    at = places[h, s]
    if at < 0:
        if counters[PENDING] == cells.size:
            add_forms(
                model.forms, model, ivec(state, MEMBERS), counters[CURRENT], fmat(state, LOSS)[0]
            )  # of the class in play
            catch_up(model, state)
        at = counters[PENDING]
        counters[PENDING] += 1
        cells[at] = key
        visits[at] = 0
        sums[at] = 0.0
        places[h, s] = at
    visits[at] += count
    sums[at] += y


@hot
def absorb(model: FiniteModel, state: Any) -> None:
    """Enter the rows that wait: L(P) grows by count z^2 - 2 z y, and sum y^2 that is common to all."""
    counters, policy, values = ivec(state, COUNTERS), imat(state, POLICY), fmat(state, VALUES)
    members, losses, slots, columns = ivec(state, MEMBERS), fmat(state, LOSS), imat(state, SLOT), fmat(state, COLUMN)
    visits, firsts, totals, sums = imat(state, VISITS), fmat(state, FIRST), fmat(state, TOTAL), fmat(state, SQUARES)
    slot_of, keys, counts = ivec(state, TABLE_SLOT), ivec(state, TABLE_KEY), ivec(state, TABLE_VISITS)
    table_sums, rows, norm = fvec(state, TABLE_SUM), ivec(state, ROWS), fvec(state, SUM_OF_SQUARES)
    features, target, cells = features_of(model, FEATURES), fvec(model, TARGET), ivec(state, CELLS)
    horizon, states = policy.shape
    n, member, steps, forms = counters[CURRENT], counters[MEMBER], losses.shape[0], ivec(model, FORM_START).size > 0
    for i in range(counters[TOUCHED]):
        h, s, count, total, squares = take_cell(visits, totals, sums, cells[i])
        first, sa = firsts[h, s], s * model.actions + policy[h, s]
        record_rows(model.record, model, state, h, sa, count, first, total, squares)
        slot = slots[h, s] if model.counted else -1
        if forms:
            middle, spread = row_of(features, model.weighted, values[h + 1], sa, target, fvec(model, X))
        elif slot >= 0:
            middle, spread = 0.0, 1.0
            if model.weighted:
                low, high = fill_target(features.outcomes, sa, values[h + 1], target)
                middle, spread = 0.5 * (low + high), high - low
        else:
            slot = columns.shape[0] - 1
            if model.counted and counters[COLUMNS] < slot:
                slot = counters[COLUMNS]
                counters[COLUMNS] += 1
                slots[h, s] = slot
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
        if forms:
            enter_form(model.forms, model, sa, count, y)
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
        if model.counted:
            key = (member * horizon + h) * states + s
            add_key(counters, slot_of, keys, counts, table_sums, key, count, y)
            if n < counters[ALIVE]:
                put_off(model, state, key, h, s, count, y)
    counters[TOUCHED] = 0
    if forms:
        add_forms(model.forms, model, members, n, losses[0])


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
        y = (1.0 / 64.0) * max(gap, -40.0)
        e = _TAYLOR[4] + y * (_TAYLOR[5] + y * (_TAYLOR[6] + y * (_TAYLOR[7] + y * _TAYLOR[8])))
        e = 1.0 + y * (1.0 + y * (_TAYLOR[2] + y * (_TAYLOR[3] + y * e)))
        e = e * e
        e = e * e
        e = e * e
        e = e * e
        e = e * e
        e = e * e
        x[i] = e if gap > -40.0 else 0.0
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
    """Return the right side of M22 over the first ``n`` positions (log-sum-exp around the best of them)."""
    log_prior = fvec(model, LOG_PRIOR)
    if model.unit <= 0.0:
        return np.inf
    rate, z = 2.0 / (model.unit * model.unit), fvec(model, Z)
    for i in range(n):
        z[i] = rate * loss[i] - log_prior[np.uint64(members[i])]
    least = least_of(z, n)
    total = sum_of_exponentials(z, n, least)  # leaving out what is small only raises the threshold
    between = model.stretch * off_grid(model.reach, float(rows), model.delta)
    return float((least - np.log(total)) / rate + model.slack + between)


# Values solved beforehand: kernels are dropped, and rows are counted by the member that played them -------------------


@hot
def compact(state: FiniteState) -> None:
    """Close the gaps that dropped kernels left; columns are computed anew when next needed."""
    counters, alive, loss = ivec(state, COUNTERS), ivec(state, MEMBERS), fmat(state, LOSS)[0]
    kept = current = 0
    for i in range(counters[ALIVE]):
        if i == counters[CURRENT]:
            current = kept
        if loss[i] < np.inf:
            alive[kept] = alive[i]
            loss[kept] = loss[i]
            kept += 1
    counters[CURRENT] = kept if counters[CURRENT] == counters[ALIVE] else current
    counters[ALIVE] = kept
    forget_columns(state)


@hot
def forget_columns(state: FiniteState) -> None:
    """Mark all columns as not computed."""
    counters, slots = ivec(state, COUNTERS), imat(state, SLOT)
    if counters[COLUMNS] > 0:
        slots[:] = -1
        counters[COLUMNS] = 0


@hot
def drop(model: FiniteModel, state: FiniteState, n: int) -> None:
    """Drop those of the first ``n`` positions whose loss passes the threshold (M24)."""
    loss = fmat(state, LOSS)[0]
    bound = threshold(model, loss, ivec(state, MEMBERS), n, ivec(state, ROWS)[0])
    bound = max(bound, least_of(loss, n))  # the best stays, whatever rounding says
    left = 0
    for i in range(n):
        if loss[i] > bound:
            loss[i] = np.inf
        elif loss[i] < np.inf:
            left += 1
    if 2 * left <= n:
        compact(state)


@hot
def choose_class(model: FiniteModel, state: FiniteState) -> None:
    """Put the smallest class into play that still has a kernel (M25); its kernels come first from now on."""
    compact(state)
    counters, alive, loss = ivec(state, COUNTERS), ivec(state, MEMBERS), fmat(state, LOSS)[0]
    level, kernels, sums = ivec(model, LEVEL), ivec(model, KERNELS), fvec(model, SUMS)
    n, smallest = counters[ALIVE], level[alive[0]]
    for i in range(1, n):
        smallest = min(smallest, level[alive[i]])
    if smallest != counters[CLASS]:
        counters[CLASS] = smallest
        counters[CLASS_SINCE] = counters[EPISODES]
    if not model.restrict:
        counters[CURRENT] = n
        return
    front, back = 0, 0
    for i in range(n):
        if level[alive[i]] <= smallest:
            alive[front] = alive[i]
            loss[front] = loss[i]
            front += 1
        else:
            kernels[back] = alive[i]
            sums[back] = loss[i]
            back += 1
    for i in range(back):
        alive[front + i] = kernels[i]
        loss[front + i] = sums[i]
    counters[CURRENT] = front


@hot
def test_classes(model: FiniteModel, state: FiniteState) -> None:
    """Bring all losses up to date, drop what the data contradict, and choose the class."""
    catch_up(model, state)
    drop(model, state, ivec(state, COUNTERS)[ALIVE])
    choose_class(model, state)


@hot
def sum_excess(model: FiniteModel, state: FiniteState, kernels: Ints, sums: Floats, size: int, limit: float) -> int:
    """Add N (z - m)^2 over all cells, heavy ones first; put kernels aside whose sum passes ``limit``.

    The first kernel always stays. Returns how many are left; they and their sums come first.
    """
    used, z = ivec(state, COUNTERS)[USED], fvec(model, Z)
    keys, visits, totals = ivec(state, TABLE_KEY), ivec(state, TABLE_VISITS), fvec(state, TABLE_SUM)
    if ivec(model, FORM_START).size > 0:
        squares = 0.0
        for position in range(used):
            enter_key(model, state, keys[position], visits[position], totals[position])
            squares += totals[position] * totals[position] / visits[position]
        for i in range(size):
            sums[i] += squares
        add_forms(model.forms, model, kernels, size, sums)
        kept = 1
        for i in range(1, size):
            if sums[i] <= limit:
                kernels[kept] = kernels[i]
                sums[kept] = sums[i]
                kept += 1
        return kept
    rows = 0
    for position in range(used):
        rows += visits[position]
    average = rows / max(1, used)
    least, most = 4.0 * average, np.inf
    for tier in range(4):
        if tier == 3:
            least = 0.0
        for position in range(used):
            count = visits[position]
            if not least <= count < most:
                continue
            mean = totals[position] / count
            targets_of_key(model, state, keys[position], kernels, size, z)
            sums[0] += count * ((z[0] - mean) * (z[0] - mean))
            kept = 1
            for i in range(1, size):
                total = sums[i] + count * ((z[i] - mean) * (z[i] - mean))
                if total <= limit:
                    kernels[kept] = kernels[i]
                    sums[kept] = total
                    kept += 1
            size = kept
        least, most = 0.25 * least, least
    return size


@hot
def look_again(model: FiniteModel, state: FiniteState) -> None:
    """Let dropped kernels back in whose loss over all rows is within the threshold. All losses must be current."""
    compact(state)
    counters, alive, loss = ivec(state, COUNTERS), ivec(state, MEMBERS), fmat(state, LOSS)[0]
    n, survivors = model.theta.shape[1], counters[ALIVE]
    if survivors == n:
        return
    bound = threshold(model, loss, alive, survivors, ivec(state, ROWS)[0])
    # A kernel that is left goes first: it turns the threshold into the unit of the sums of N (z - m)^2.
    kernels, sums = ivec(model, KERNELS), fvec(model, SUMS)
    kernels[0], sums[0] = alive[0], 0.0
    sum_excess(model, state, kernels, sums, 1, np.inf)
    limit = bound - loss[0] + sums[0]
    sums[:] = 0.0
    for i in range(survivors):
        sums[1 + alive[i]] = np.inf
    size = 1
    for kernel in range(n):
        if sums[1 + kernel] == 0.0:
            kernels[size] = kernel
            size += 1
    sums[:size] = 0.0
    size = sum_excess(model, state, kernels, sums, size, limit)
    for i in range(1, size):
        alive[survivors] = kernels[i]
        loss[survivors] = sums[i] - sums[0] + loss[0]
        survivors += 1
    counters[ALIVE] = survivors
    choose_class(model, state)


@hot
def update_ball(model: FiniteModel, state: FiniteState) -> None:
    """Enter the rows; find the least-squares estimate (M3), the distances to it, and who is within the ball (M4)."""
    absorb(model, state)
    counters, alive, loss = ivec(state, COUNTERS), ivec(state, MEMBERS), fmat(state, LOSS)[0]
    distance, inside, z, n = fvec(state, DISTANCE), ivec(state, INSIDE), fvec(model, Z), counters[ALIVE]
    best = 0
    for i in range(1, n):
        if loss[i] < loss[best]:
            best = i
    if best != counters[BEST]:  # L(P, Phat) of all kernels anew, from the counted rows
        counters[BEST] = best
        keys, visits = ivec(state, TABLE_KEY), ivec(state, TABLE_VISITS)
        distance[:] = 0.0
        for position in range(counters[USED]):
            targets_of_key(model, state, keys[position], alive, n, z)
            for i in range(n):
                gap = z[i] - z[best]
                distance[i] += visits[position] * gap * gap
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
    """Return the kernel with the largest V*_{P,1}(start) among the first ``n`` positions that are in the set (M5).

    The smallest index on ties.
    """
    alive, loss, inside = ivec(state, MEMBERS), fmat(state, LOSS)[0], ivec(state, INSIDE)
    optimism, everybody = fvec(model, OPTIMISM), model.theta.shape[1]
    if optimism[everybody] != start:  # once, and not before every episode: these values lie far apart
        optimism[everybody] = start
        for member in range(everybody):
            optimism[member] = model.values[member * (model.horizon + 1), start]
    top, choice = -np.inf, -1
    for i in range(n):
        if inside[i] == 1 if model.ball else loss[i] < np.inf:
            member = alive[i]
            value = optimism[member]
            if value > top or (value == top and member < choice):
                top, choice = value, member
    return choice


@hot
def put_into_play(model: FiniteModel, state: FiniteState) -> None:
    """Take the values and the greedy policy of the member in play."""
    member, values, policy = ivec(state, COUNTERS)[MEMBER], fmat(state, VALUES), imat(state, POLICY)
    rewards, features = fmat(model, REWARD)[0], features_of(model, FEATURES)
    forget_columns(state)
    imat(state, PENDING_AT)[:] = -1
    for h in range(model.horizon + 1):
        for s in range(policy.shape[1]):
            values[h, s] = model.values[member * (model.horizon + 1) + h, s]
    for h in range(model.horizon):
        for s in range(policy.shape[1]):
            policy[h, s], _ = greedy_action(model, features, rewards, values[h + 1], member, s)


@entry
def take_up(model: FiniteModel, state: FiniteState, slots: Ints) -> None:
    """Take the values and the policy of the member in play, and its columns, as after a state came from elsewhere."""
    put_into_play(model, state)
    values, policy, columns = fmat(state, VALUES), imat(state, POLICY), fmat(state, COLUMN)
    features, members, n = features_of(model, FEATURES), ivec(state, MEMBERS), ivec(state, COUNTERS)[CURRENT]
    for h in range(policy.shape[0]):
        for s in range(policy.shape[1]):
            if slots[h, s] >= 0:
                sa, column = s * model.actions + policy[h, s], columns[slots[h, s]]
                expected_targets(model, features, values[h + 1], sa, members, n, column)


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
    counters[LAST_START] = -1 if guard else start
    member = most_optimistic(model, state, counters[ALIVE] if guard else counters[CURRENT], start)
    if member == counters[MEMBER]:
        return PLANNED if due else 0
    absorb(model, state)
    counters[MEMBER] = member
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
def solve_member(model: FiniteModel, state: PlannedState, i: int) -> None:
    """Write V*_{P,h} of a member and its greedy actions, for the rewards that the plan counts on."""
    solved, greedy, reward = fmat(state, SOLVED), imat(state, GREEDY), fmat(model, REWARD)
    horizon, base, features = model.horizon, i * (model.horizon + 1), features_of(model, FEATURES)
    for h in range(horizon - 1, -1, -1):
        counted_on = reward[h % reward.shape[0]]
        for s in range(solved.shape[1]):
            a, q = greedy_action(model, features, counted_on, solved[base + h + 1], i, s)
            greedy[i * horizon + h, s] = a
            solved[base + h, s] = q


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


@hot
def solve_members(model: FiniteModel, state: PlannedState) -> None:
    """Solve every member that may be counted on, for the rewards that the plan counts on."""
    counters = ivec(state, COUNTERS)
    for i in range(counters[ALIVE]):
        if plays(model, state, 0, i, counters[GUARDED] == 1):
            solve_member(model, state, i)
    counters[MEMBER] = NOBODY


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
    model: FiniteModel, state: FiniteState, members: Ints, reference: Ints, loss: Floats, distance: Floats
) -> None:
    """Add L(P) less sum y^2, and L(P, reference), of ``members`` over the counted rows (M1, M2)."""
    keys, visits, totals = ivec(state, TABLE_KEY), ivec(state, TABLE_VISITS), fvec(state, TABLE_SUM)
    z, own, n, used = fvec(model, Z), fvec(model, SUMS), members.size, ivec(state, COUNTERS)[USED]
    if ivec(model, FORM_START).size > 0:
        for position in range(used):
            enter_key(model, state, keys[position], visits[position], totals[position])
        add_forms(model.forms, model, members, n, loss)
        squares = 0.0
        for position in range(used):  # the loss for the targets of the reference is the distance, up to a constant
            targets_of_key(model, state, keys[position], reference, 1, own)
            enter_key(model, state, keys[position], visits[position], visits[position] * own[0])
            squares += visits[position] * own[0] * own[0]
        add_forms(model.forms, model, members, n, distance)
        for i in range(n):
            distance[i] = max(0.0, distance[i] + squares)
        return
    for position in range(used):
        targets_of_key(model, state, keys[position], reference, 1, own)
        targets_of_key(model, state, keys[position], members, n, z)
        for i in range(n):
            loss[i] += z[i] * (visits[position] * z[i] - 2.0 * totals[position])
            distance[i] += visits[position] * (z[i] - own[0]) ** 2


@entry
def thresholds(model: FiniteModel, state: PlannedState, out: Floats) -> None:
    """Write the right side of M22 for every step, at least the smallest loss."""
    losses, n = fmat(state, LOSS), ivec(state, COUNTERS)[ALIVE]
    for t in range(out.size):
        bound = threshold(model, losses[t], ivec(state, MEMBERS), n, ivec(state, ROWS)[t])
        out[t] = max(bound, least_of(losses[t], n))
