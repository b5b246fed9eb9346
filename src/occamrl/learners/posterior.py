r"""Learning by likelihood: members, mixtures and single counts weighed by how well they predicted (L1 to L7).

**Statistic.** Counts c of the outcomes (s, a, s', reward) seen, for each of T steps (T = 1: one kernel for all). Of a
member l(P) = sum_o c_o log P(o).

**Evidence** (L2). Z = log[(1 - w0) sum_P w(P) e^l(P) + (w0/E) sum_e e^Q_e], w0 = 1/(M + 1), over the members of a
ladder with the prior of M25 and E *rivals*: Krichevsky and Trofimov's counts (L4), and the hull of every class of 2 to
200 members, whose weights are fitted to the past by EM and kept until the data have grown by 2 % (L5). P is alive while
l(P) >= Z - log(1/delta). Leaving terms out lowers Z, so the truth stays alive: members that have died are left out of
the sum and not kept current. They are looked at again at doubling times, pair by pair: for every (s, a)
sum_g c_g log(P(g) N/c_g) <= 0 over groups g of outcomes with the same features, so a member is put aside again as soon
as a partial sum is too small.

**Acting.** By optimism: the member with the largest value at the start, among those alive in the smallest class that
has one, or among all (M5). By sampling: a member, a hull or the tabular class is drawn by its weight in Z, and a kernel
from it. A hull is drawn from by EM on counts replaced by Gamma(c_o, 1) (L7), the tabular class by Gamma(c_o + 1/2, 1):
Dirichlet. When nobody is alive the truth is *outside* the ladder; then draws are made from the smallest hull that L6
does not refuse, or else from the tabular class. An outcome that no member allows is counted apart; only the tabular
class can hold it.

**Covers.** A truth within ``reach`` of P0 has P*(o) <= P0(o) + reach/2, so P0 is alive while
sum_o c_o log min(1, P0(o) + reach/2) >= Z - log(1/delta).

**One kernel per step**: sets, rivals and Z for each step, at level delta/T; nobody is put aside. Optimism then takes
the largest expectation over the set of each step at every (s, a) by itself, as UCRL-VTR does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from occamrl._core.arena import field, fmat, fresh_state, fvec, imat, ivec, lay_out, named, part
from occamrl._core.compile import entry, hot, implements
from occamrl._core.features import outcome_of
from occamrl._core.loop import CHANGED, PLANNED, Path, copy_table, learn, plan
from occamrl._core.rng import fill_uniforms, next_gamma
from occamrl._core.rows import (
    COUNTERS,
    EPISODES,
    MOST,
    MOST_ROWS,
    PLAN_COUNTERS,
    PLAN_FIELDS,
    POLICY,
    REWARD,
    REWARDS_DUE,
    VALUES,
    PlanState,
    follows_plan,
    plan_fields,
    require_agreement,
    require_rows,
)
from occamrl.errors import ParameterError, require_choice, require_number
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
from occamrl.learners.ucrl_vtr import example_ladder, merge_members, sum_of_exponentials
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.models.likelihood import LARGEST_HULL, hull_bound, hull_fit, kt_evidence, ladder_log_weights, mixed_at
from occamrl.protocols import Acting, Field, Floats, Ints, Kernel, Known, Learner, Outcomes, Scope

_JEFFREYS = 0.5  # for each outcome, the prior behind KT (L4)
_GROWTH = 1.02  # of the data until a hull is fitted again
_FIRST_LOOK = 64  # episodes before members that died are looked at again for the first time
_FIT_STEPS, _DRAW_STEPS = 3, 20  # of EM
_CHUNK, _NEAR = 256, 2**15  # most members at a time, and most of their parameters, so that these stay near
_FACTORS, _SMALL = 32, 1e-290  # probabilities in one product; below this it may have lost digits
_MOST_UNLISTED = 1024  # outcomes that no member allows
_MOST_TABLED = 2**24  # probabilities of members that are kept
_APART = np.uint64(0x9C6E6A6F6E7A1B35)  # sets draws of kernels apart from other numbers of an episode
NOBODY, TABULAR = -1, -2  # in play: nothing yet; a draw from the tabular class; -3 - m: one from hull m

# Counters, after those of _core.rows
(
    ALIVE,  # members that are left
    CURRENT,  # of these the first that may be played: those of the class in play, or all
    CLASS,  # in play, from 0
    CLASS_SINCE,
    PLAYED,  # the member in play, or what a kernel was drawn from
    LAST_START,
    EPISODES_AT_PLAN,
    NEXT_LOOK,
    UNLISTED_SIZE,
    UNLISTED_ROWS,
    OUTSIDE,  # whether nobody is alive
    OUTSIDE_SINCE,
) = range(PLAN_COUNTERS, PLAN_COUNTERS + 12)

# Fields of the model, after REWARD, PSI and REWARD_WORK
(
    START,  # [S*A + 1] int, where the outcomes of (s, a) begin
    NEXT,  # [O] int, next states
    BONUS,  # [O]
    ROW,  # [O + 1] int, where the features of an outcome begin
    COORDINATE,  # [E] int
    ENTRY,  # [E]
    LOG_WEIGHT,  # [n + E] log of the weights of members and rivals in Z; the rivals are hulls, then KT
    LEVEL,  # [n] int, the first class that holds a member, from 0
    HULL_SIZE,  # [C] int, members of each class with a hull
    HULL,  # [O, W] probabilities of the members of the largest such class
    KERNEL,  # [T, O + unlisted] the kernel that is being solved; scratch, as what follows
    CANDIDATES,  # [n] int
    SUMS,  # [n + E] of candidates; multiples of the terms of Z
    WEIGHTS,  # [2*W] of a hull that is being drawn from, and a gradient
    FLOAT_COUNTS,  # [O]
    STREAM,  # [3] int, where the numbers of draws come from
    UNIFORMS,  # [T + 1, rounded up to an even number]
    CHUNK,  # [2, chunk] probabilities of some members, and products of them
    NEAR,  # [d, chunk] coordinates of theta of these members
    NEAR_OF,  # [d + 1] int, for which chunk each was brought near; the number of the chunk
    WAITING,  # [T*O] int, outcomes that are not in the likelihoods yet
    TWINS,  # [2, O] int, the first outcome of (s, a) with the same features; how many it has, 0 for the others
) = range(3, 25)

# Fields of the state, after those of _core.rows
(
    MEMBERS,  # [n] int, members by position, in their order; the first counters[ALIVE] count
    LIKELIHOOD,  # [T, n] l(P) by position
    WITHIN,  # [T, n] for covers: the largest l within reach of P; else [T, 0]
    COUNT,  # [T, O] int, outcomes
    ENTERED,  # [T, O] int, those in the likelihoods
    HULL_WEIGHT,  # [T*C, W]
    RIVALS,  # [T, E] log of the probability that each hull (L5), then KT (L4), gave to all rows
    HULL_ROWS,  # [T, C] int, rows when the weights were fitted
    UNLISTED_HEAD,  # [T, S*A] int, the first unlisted outcome of (s, a), -1: none
    UNLISTED,  # [3, X] int, of each unlisted outcome: the following one, next state, count
    UNLISTED_BONUS,  # [X]
    CUMULATIVE,  # [T, n + E] running sums of the weights in Z, for sampling; else [T, 0]
    FIRST_VALUES,  # [n, S] V_1 of the members alive, by position, where rewards are estimated; else [0, S]
    EVIDENCE,  # [T] Z, when it was last computed
    LEFT,  # [T] int, what kernels are drawn from where nobody is alive: TABULAR, or -3 - c for hull c
    COUNTED_ON,  # [R, S*A] the rewards of the last plan; R = 0 where they are known
) = range(PLAN_FIELDS, PLAN_FIELDS + 16)


class SolvedBeforehand(NamedTuple):
    """Rewards are known and one kernel serves all steps, so that values are solved once; nothing else is compiled."""


class SolvedWithPlans(NamedTuple):
    """Rewards are estimated, or every step has a kernel of its own."""


class PosteriorModel(NamedTuple):
    """What the compiled functions read, and their scratch memory."""

    floats: Floats
    ints: Ints
    theta: Floats  # [d, n] what the probabilities of members are sums of
    values: Floats  # [S, n] V_1 of every member, where they are solved beforehand
    rewards: Any  # RewardModel
    known_rewards: bool
    actions: int
    horizon: int
    solved: Any  # SolvedBeforehand | SolvedWithPlans
    restrict: bool  # play the smallest class that has a member alive
    sampling: bool
    slack: float  # log(1/delta)
    reach: float
    replan: float
    concentration: float  # of the Dirichlet prior of the tabular class, for each outcome


class PosteriorState(PlanState):
    """Counts of outcomes, the likelihoods of the members alive, the rivals, and the plan in play."""

    __slots__ = ()

    count = named(COUNT)


@dataclass(frozen=True, kw_only=True, eq=False)
class LikelihoodParameters:
    """What :class:`occamrl.selectors.occam.Occam` and its learner are given."""

    ladder: Ladder
    delta: float = 0.05
    acting: Acting = "optimism"
    scope: Scope = "smallest"
    replan: float = 0.02
    rewards: Rewards = "known"
    kernel: Kernel = "stationary"

    def __post_init__(self) -> None:
        require_rewards(self.rewards)
        require_choice("acting", self.acting, ("optimism", "sampling"))
        require_choice("scope", self.scope, ("smallest", "all"))
        require_choice("kernel", self.kernel, ("stationary", "per_step"))
        if not isinstance(self.ladder, Ladder) or not self.ladder.finite:
            raise ParameterError("ladder", got=repr(self.ladder), expected="a Ladder of lists of kernels")
        require_number("delta", self.delta, 1e-100, 1.0)
        require_number("replan", self.replan, 0.0, 1e100)


class LikelihoodLearner(LikelihoodParameters, Learner):
    """Play by optimism or by sampling among the members of a ladder that the likelihood does not refuse."""

    @property
    def hulls(self) -> list[int]:
        """The classes, from 0, whose hulls are rivals: those of 2 to 200 members."""
        return [m for m, size in enumerate(self.ladder.sizes) if 2 <= size <= LARGEST_HULL]

    @property
    def log_weights(self) -> Floats:
        """Logarithms of the weights of members, hulls and KT in Z (L2)."""
        return ladder_log_weights(self.ladder.prior, self.ladder.classes, len(self.hulls) + 1)

    def steps(self, known: Known) -> int:
        """Return T: 1, or H with one kernel per step."""
        return known.horizon if self.kernel == "per_step" else 1

    def model(self, known: Known) -> PosteriorModel:
        """Return the constants of the compiled functions."""
        known = seen_by(self.rewards, known)
        family, steps, hulls = self.ladder.family, self.steps(known), self.hulls
        outcomes, matrix = distinct_outcomes(family.features, known)
        rewards, reward_fields = rewards_model(self.rewards, known, float(self.delta))
        count, widest = outcomes.next_state.size, max([self.ladder.sizes[m] for m in hulls], default=0)
        solved = isinstance(self.rewards, str) and steps == 1
        whole, unlisted, theta, twins = np.int64, _unlisted(known), family.theta, twin_outcomes(outcomes, matrix)
        groups, of = np.unique(twins[0], return_inverse=True)
        if groups.size * family.size <= _MOST_TABLED:  # probabilities themselves, so that nothing is left to add up
            theta, matrix = matrix[groups] @ theta, sp.csr_matrix((np.ones(count), of.ravel(), np.arange(count + 1)))
        d = len(theta)
        chunk = max(8, min(_CHUNK, _NEAR // d))
        made = [
            *reward_fields,
            *outcomes,
            matrix.indptr.astype(whole),
            matrix.indices.astype(whole),
            matrix.data.astype(np.float64),
            self.log_weights,
            np.asarray(self.ladder.level, dtype=whole),
            np.array([self.ladder.sizes[m] for m in hulls], dtype=whole),
            np.ascontiguousarray(matrix @ theta[:, :widest]),
            np.zeros((steps, count + unlisted)),
            np.zeros(family.size, whole),
            np.zeros(self.log_weights.size),
            np.zeros(2 * max(1, widest)),
            np.zeros(count),
            np.zeros(3, whole),
            np.zeros(steps + 1 + (steps + 1) % 2),
            np.zeros((2, chunk)),
            np.zeros((d, chunk)),
            np.zeros(d + 1, whole),
            np.zeros(steps * count, whole),
            twins,
        ]
        values = family.optimal_values(known)[:, 0].T if solved else np.zeros((known.states, 1))
        level = float(self.delta) * kernel_share(self.rewards) / steps
        model: PosteriorModel = lay_out(
            PosteriorModel,
            made,
            theta=np.require(theta, requirements=["C", "W"]),
            values=np.array(values, order="C"),
            rewards=rewards,
            known_rewards=isinstance(self.rewards, str),
            actions=known.actions,
            horizon=known.horizon,
            solved=SolvedBeforehand() if solved else SolvedWithPlans(),
            restrict=self.scope == "smallest",
            sampling=self.acting == "sampling",
            slack=math.log(1.0 / level),
            reach=float(family.reach),
            replan=float(self.replan),
            concentration=_JEFFREYS,
        )
        return model

    def fields(self, known: Known, state: Any = None) -> list[Field]:
        """Return what the arrays of a state hold."""
        n, steps, sizes, hulls = self.ladder.family.size, self.steps(known), self.ladder.sizes, self.hulls
        outcomes, _ = distinct_outcomes(self.ladder.family.features, seen_by(self.rewards, known))
        count, pairs, unlisted = outcomes.next_state.size, known.states * known.actions, _unlisted(known)
        rivals, widest = len(hulls) + 1, max([sizes[m] for m in hulls], default=0)
        first = sizes[0] if self.scope == "smallest" and steps == 1 else n
        estimated = not isinstance(self.rewards, str) and steps == 1 and self.acting == "optimism"
        even = [1.0 / sizes[m] * (np.arange(widest) < sizes[m]) for m in hulls] * steps
        counters = {
            "alive": (0, n, n),
            "current": (0, n, first),
            "class": (0, self.ladder.classes - 1, 0),
            "class_since": (0, MOST_ROWS, 0),
            "played": (-2 - len(hulls), n - 1, NOBODY),
            "last_start": (-1, known.states - 1, -1),
            "episodes_at_plan": (0, MOST_ROWS, 0),
            "next_look": (0, MOST_ROWS, _FIRST_LOOK),
            "unlisted_size": (0, unlisted, 0),
            "unlisted_rows": (0, MOST_ROWS, 0),
            "outside": (0, 1, 0),
            "outside_since": (0, MOST_ROWS, 0),
        }
        return [
            *plan_fields(known, reward_rows(self.rewards, known), counters),
            Field("members", (n,), 0, n - 1, np.arange(n)),
            Field("likelihood", (steps, n), -np.inf, 1e-6),
            Field("within", (steps, n if self.ladder.family.reach > 0.0 else 0), -np.inf, 1e-6),
            Field("count", (steps, count), 0, MOST_ROWS),
            Field("entered", (steps, count), 0, MOST_ROWS),
            Field(
                "hull_weight", (steps * len(hulls), widest), 0.0, 1.0, np.reshape(even, (steps * len(hulls), widest))
            ),
            Field("rivals", (steps, rivals), -np.inf, 1e-6),
            Field("hull_rows", (steps, len(hulls)), 0, MOST_ROWS * known.horizon),
            Field("unlisted_head", (steps, pairs), -1, unlisted - 1, -1),
            Field("unlisted", (3, unlisted), [[-1], [0], [0]], [[unlisted - 1], [known.states - 1], [MOST_ROWS]]),
            Field("unlisted_bonus", (unlisted,), -1.0, 1.0),
            Field("cumulative", (steps, n + rivals if self.acting == "sampling" else 0), 0.0, n + rivals + 1.0),
            Field("first_values", (n if estimated else 0, known.states), -1.0, known.horizon + 2.0),
            Field("evidence", (steps,), -np.inf, 1e-6),
            Field("left", (steps,), -2 - len(hulls), TABULAR, TABULAR),
            Field("counted_on", (reward_rows(self.rewards, known), pairs), 0.0, 1.0),
        ]

    def resume(self, model: PosteriorModel, fresh: Any, state: Any) -> None:
        """Refuse a state whose fields contradict each other."""
        require_rows(state)
        counters, members = field(state, COUNTERS), field(state, MEMBERS)
        alive, count, entered = int(counters[ALIVE]), field(state, COUNT), field(state, ENTERED)
        unlisted = field(state, UNLISTED)[:, : counters[UNLISTED_SIZE]]
        every = np.concatenate([field(state, UNLISTED_HEAD).ravel(), unlisted[0]])
        faults = {
            "counters.current": counters[CURRENT] > alive,
            "counters.episodes_at_plan": counters[EPISODES_AT_PLAN] > counters[EPISODES],
            "members": (np.diff(members[:alive]) <= 0).any() or (len(count) > 1 and alive < members.size),
            "entered": (entered > count).any(),
            "unlisted_head": not np.array_equal(np.sort(every[every >= 0]), np.arange(unlisted.shape[1])),
            "unlisted": (unlisted[0] >= np.arange(unlisted.shape[1])).any(),  # each leads to an earlier one
            "cumulative": (np.diff(field(state, CUMULATIVE), axis=1) < 0.0).any(),
            "counters.outside": len(count) == 1 and bool(counters[OUTSIDE]) != (alive == 0),
        }
        require_agreement(faults)

    def begin(self, known: Known) -> PosteriorState:
        """Return a fresh state."""
        state: PosteriorState = fresh_state(PosteriorState, self.fields(known))
        return state

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Small instances on a problem, for the contract checks."""
        ladder = example_ladder(mdp)
        return [cls(ladder=ladder), cls(ladder=ladder, acting="sampling", scope="all", replan=0.0)]


@dataclass(frozen=True, kw_only=True, eq=False)
class PSRL(Learner):
    """Posterior sampling: draw a kernel from the posterior before every episode, and play its optimal policy.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.PSRL(), problem, episodes=50)

    Osband, Russo and Van Roy 2013. Its regret is bounded on average over the prior; there is no guarantee for a single
    truth.

    Parameters
    ----------
    family : FiniteFamily, optional
        The kernels drawn from, each as likely as any other before any data. By default every kernel: rows are drawn
        from Dirichlet distributions.
    concentration : float
        Their parameter for each next state before any data, where there is no family. 1 is uniform over all rows.
    rewards, kernel
        As in :class:`UCRLVTR`; rewards that are estimated enter with their upper bounds, at level ``delta``.
    delta : float
    """

    guarantee = "on average over its prior"
    given = ("a prior",)

    family: FiniteFamily | None = None
    concentration: float = _JEFFREYS
    delta: float = 0.05
    rewards: Rewards = "known"
    kernel: Kernel = "stationary"

    def __post_init__(self) -> None:
        require_number("concentration", self.concentration, 0.05, 1e6)  # of less, draws could underflow
        if self.family is not None and self.concentration != _JEFFREYS:
            raise ParameterError("concentration", got=self.concentration, expected="no family beside it")
        if self.family is not None and not isinstance(self.family, FiniteFamily):
            raise ParameterError("family", got=type(self.family).__name__, expected="a FiniteFamily or None")
        self._learner(1, 1)  # checks the other parameters

    def _learner(self, states: int, actions: int) -> LikelihoodLearner:
        family = self.family or FiniteFamily(np.full((1, states, actions, states), 1.0 / states))
        ladder = Ladder.of_levels(family, np.zeros(family.size, np.int64), [family.reach])
        options: dict[str, Any] = {"acting": "sampling", "scope": "all", "replan": 0.0, "rewards": self.rewards}
        kind = _Members if self.family is not None else _Tables
        return kind(ladder=ladder, delta=self.delta, kernel=self.kernel, **options)

    def model(self, known: Known) -> PosteriorModel:
        """Return the constants of the compiled functions."""
        made = self._learner(known.states, known.actions).model(known)
        return made._replace(concentration=float(self.concentration))

    def fields(self, known: Known, state: Any = None) -> list[Field]:
        """Return what the arrays of a state hold."""
        return self._learner(known.states, known.actions).fields(known)

    def resume(self, model: PosteriorModel, fresh: Any, state: Any) -> None:
        """Refuse a state whose fields contradict each other."""
        self._learner(1, 1).resume(model, fresh, state)

    def begin(self, known: Known) -> PosteriorState:
        """Return a fresh state."""
        return self._learner(known.states, known.actions).begin(known)

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Small instances on a problem, for the contract checks."""
        return [cls(), cls(family=example_ladder(mdp).family)]


class _Members(LikelihoodLearner):
    """Members alone have weight."""

    @property
    def hulls(self) -> list[int]:
        """No hull is a rival."""
        return []

    @property
    def log_weights(self) -> Floats:
        """Even weights of members, none of KT."""
        n = self.ladder.family.size
        return np.concatenate([np.full(n, -math.log(n)), [-math.inf]])


class _Tables(_Members):
    """KT, that is, the tabular class alone has weight."""

    @property
    def log_weights(self) -> Floats:
        """All the weight to KT."""
        return np.array([-math.inf, 0.0])


def _unlisted(known: Known) -> int:
    return min(known.states * known.actions * known.states, _MOST_UNLISTED)


def distinct_outcomes(features: FeatureMap, known: Known) -> tuple[Outcomes, Any]:
    """Return the outcomes that can be told apart at every (s, a), and their features as a CSR matrix [O, d].

    Outcomes with the same next state and, where rewards are known, the same reward are one; their features add up.
    """
    outcomes = features.attach(known).outcomes
    pair = np.repeat(np.arange(outcomes.start.size - 1), np.diff(outcomes.start))
    keys = np.column_stack([pair, outcomes.next_state, np.round(outcomes.bonus, 9)])
    _, first, of = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    join = sp.csr_matrix((np.ones(of.size), (of.ravel(), np.arange(of.size))), shape=(first.size, of.size))
    start = np.searchsorted(pair[first], np.arange(outcomes.start.size))
    kept = Outcomes(start.astype(np.int64), outcomes.next_state[first], outcomes.bonus[first])
    return kept, sp.csr_matrix(join @ sp.csr_matrix(features.matrix))


def twin_outcomes(outcomes: Outcomes, matrix: Any) -> Ints:
    """Return TWINS: outcomes of one (s, a) with the same features are equally probable in every member."""
    pair = np.repeat(np.arange(outcomes.start.size - 1), np.diff(outcomes.start))
    mark = matrix @ np.random.default_rng(0).random(matrix.shape[1])  # equal where features are
    _, where, of = np.unique(np.column_stack([pair, mark]), axis=0, return_index=True, return_inverse=True)
    first, own = where[of.ravel()], np.arange(pair.size)
    first = np.where(abs(matrix - matrix[first]).sum(axis=1).A1 > 0.0, own, first)  # equal by chance
    return np.stack([first, np.bincount(first, minlength=pair.size)])


# Statistics -----------------------------------------------------------------------------------------------------------


@hot
def count_unlisted(state: PosteriorState, t: int, sa: int, after: int, bonus: float) -> None:
    """Count an outcome that no member allows, as long as there is room for others of its kind."""
    counters, head = ivec(state, COUNTERS), imat(state, UNLISTED_HEAD)
    unlisted, bonuses = imat(state, UNLISTED), fvec(state, UNLISTED_BONUS)
    counters[UNLISTED_ROWS] += 1
    at = head[t, sa]
    while at >= 0:
        if unlisted[1, at] == after and abs(bonuses[at] - bonus) <= 1e-6:
            unlisted[2, at] += 1
            return
        at = unlisted[0, at]
    at = counters[UNLISTED_SIZE]
    if at < bonuses.size:
        counters[UNLISTED_SIZE] += 1
        unlisted[0, at] = head[t, sa]
        unlisted[1, at] = after
        unlisted[2, at] = 1
        bonuses[at] = bonus
        head[t, sa] = at


@implements(learn, PosteriorState, argument=1)
def learn_outcomes(model: PosteriorModel, state: PosteriorState, path: Path, steps: int) -> None:
    """Count the outcomes and the rewards of an episode."""
    observe_rewards(model.rewards, state, path, steps, model.actions, 1.0 + model.replan)
    count, outcomes = imat(state, COUNT), Outcomes(ivec(model, START), ivec(model, NEXT), fvec(model, BONUS))
    for h in range(steps):
        t, sa = h % count.shape[0], path.states[h] * model.actions + path.actions[h]
        bonus = path.bonus[h] if model.known_rewards else 0.0
        o = outcome_of(outcomes, sa, path.states[h + 1], bonus, not model.known_rewards)
        if o < 0:
            count_unlisted(state, t, sa, path.states[h + 1], bonus)
        else:
            count[t, o] += 1


@hot
def probability(model: PosteriorModel, o: int, member: int) -> float:
    """Return P(o) of a member."""
    row, coordinate, entries = ivec(model, ROW), ivec(model, COORDINATE), fvec(model, ENTRY)
    p = 0.0
    for e in range(row[o], row[o + 1]):
        p += entries[e] * model.theta[coordinate[e], member]
    return max(p, 0.0)


@hot
def chunk_probabilities(model: PosteriorModel, members: Ints, first: int, n: int, o: int) -> None:
    """Write P(o), or a rounding below 0, of ``n`` members, those in a list from ``first`` on.

    Outcomes share coordinates, and to collect them from all over theta takes longer than to use them.
    """
    row, coordinate, entries = ivec(model, ROW), ivec(model, COORDINATE), fvec(model, ENTRY)
    out, near, near_of = part(fvec(model, CHUNK), 0, n), fmat(model, NEAR), ivec(model, NEAR_OF)
    for i in range(n):
        out[i] = 0.0
    for e in range(row[o], row[o + 1]):
        own, scale = part(fvec(model, NEAR), coordinate[e] * near.shape[1], n), entries[e]
        if near_of[coordinate[e]] != near_of[-1]:
            theta = model.theta[coordinate[e]]
            for i in range(n):
                own[i] = theta[np.uint64(members[first + i])]
            near_of[coordinate[e]] = near_of[-1]
        for i in range(n):
            out[i] += scale * own[i]


@hot
def list_waiting(model: PosteriorModel, state: PosteriorState) -> int:
    """List the outcomes that came since the likelihoods were updated, by t*O + o; return how many there are."""
    count, entered, waiting, size = imat(state, COUNT), imat(state, ENTERED), ivec(model, WAITING), 0
    for t in range(count.shape[0]):
        for o in range(count.shape[1]):
            if count[t, o] > entered[t, o]:
                waiting[size] = t * count.shape[1] + o
                size += 1
    return size


@hot
def add_likelihoods(model: PosteriorModel, state: PosteriorState, size: int) -> None:
    """Add the ``size`` outcomes that wait to the likelihoods of the members alive, some members at a time.

    Logarithms are taken of products of up to 32 probabilities; what came more often than that is alone in its product.
    """
    counters, count, entered = ivec(state, COUNTERS), imat(state, COUNT), imat(state, ENTERED)
    waiting, members, chunk = ivec(model, WAITING), ivec(state, MEMBERS), fmat(model, CHUNK)
    p, product, outcomes = chunk[0], chunk[1], count.shape[1]
    for first in range(0, counters[ALIVE], p.size):
        n, at = min(p.size, counters[ALIVE] - first), 0
        ivec(model, NEAR_OF)[-1] += 1
        while at < size:
            begin, t, factors, times = at, waiting[at] // outcomes, 0, 1
            likelihood, within = fmat(state, LIKELIHOOD)[t], fmat(state, WITHIN)[t]
            for i in range(n):
                product[i] = 1.0
            while at < size and waiting[at] // outcomes == t:
                o = waiting[at] % outcomes
                more = count[t, o] - entered[t, o]
                if factors > 0 and factors + more > _FACTORS:
                    break
                chunk_probabilities(model, members, first, n, o)
                if more > _FACTORS:
                    times = more
                for _ in range(more if times == 1 else 1):
                    for i in range(n):
                        product[i] *= max(p[i], 0.0)
                if model.reach > 0.0:
                    for i in range(n):
                        within[first + i] += more * math.log(min(1.0, max(p[i], 0.0) + 0.5 * model.reach))
                factors += more
                at += 1
            for i in range(n):
                if product[i] >= _SMALL:
                    likelihood[first + i] += times * math.log(product[i])
                else:
                    for j in range(begin, at):
                        o = waiting[j] % outcomes
                        own = math.log(probability(model, o, members[first + i]))
                        likelihood[first + i] += (count[t, o] - entered[t, o]) * own


@hot
def fill_counts(model: PosteriorModel, state: PosteriorState, t: int) -> int:
    """Write the counts of step ``t`` that are in the evidence as numbers; return their sum."""
    count, numbers, total = imat(state, ENTERED)[t], fvec(model, FLOAT_COUNTS), 0
    for o in range(count.size):
        numbers[o] = float(count[o])
        total += count[o]
    return total


@hot
def score_rivals(model: PosteriorModel, state: PosteriorState, size: int) -> None:
    """Score the predictions of hulls, whose weights were fixed before the outcomes that wait (L5), and of KT (L4)."""
    count, entered, waiting = imat(state, COUNT), imat(state, ENTERED), ivec(model, WAITING)
    rivals, sizes = fmat(state, RIVALS), ivec(model, HULL_SIZE)
    for i in range(size):
        t, o = divmod(waiting[i], count.shape[1])
        for c in range(sizes.size):
            weights = part(fmat(state, HULL_WEIGHT)[t * sizes.size + c], 0, sizes[c])
            rivals[t, c] += (count[t, o] - entered[t, o]) * math.log(max(mixed_at(weights, fmat(model, HULL), o), 0.0))
        entered[t, o] = count[t, o]
    for t in range(count.shape[0]):
        fill_counts(model, state, t)
        rivals[t, -1] = kt_evidence(fvec(model, FLOAT_COUNTS), ivec(model, START))


@hot
def fit_hulls(model: PosteriorModel, state: PosteriorState, t: int) -> None:
    """Fit the weights of the hulls whose data have grown by 2 % (L5)."""
    sizes, rows = ivec(model, HULL_SIZE), imat(state, HULL_ROWS)
    total = fill_counts(model, state, t)
    for c in range(sizes.size):
        if total >= _GROWTH * rows[t, c] and total > rows[t, c]:
            n, own = sizes[c], fmat(state, HULL_WEIGHT)[t * sizes.size + c]
            scratch = part(fvec(model, WEIGHTS), 0, n)
            hull_fit(fvec(model, FLOAT_COUNTS), fmat(model, HULL), part(own, 0, n), _FIT_STEPS, 1.0 / n, scratch)
            rows[t, c] = total


# Evidence -------------------------------------------------------------------------------------------------------------


@hot
def log_evidence(model: PosteriorModel, state: PosteriorState, t: int, n: int) -> float:
    """Return the least log likelihood of a member alive, Z - log(1/delta), by the first ``n`` positions and the rivals.

    Z is kept (L2); multiples of its terms are in SUMS.
    """
    members, likelihood, weight = ivec(state, MEMBERS), fmat(state, LIKELIHOOD)[t], fvec(model, LOG_WEIGHT)
    terms, size, top, rivals = fvec(model, SUMS), ivec(model, LEVEL).size, -math.inf, fmat(state, RIVALS)[t]
    for i in range(n):
        terms[i] = weight[members[i]] + likelihood[i]
        top = max(top, terms[i])
    for i in range(size, weight.size):  # the hulls in their order, then KT
        possible = ivec(state, COUNTERS)[UNLISTED_ROWS] == 0 or i == weight.size - 1
        terms[i] = weight[i] + rivals[i - size] if possible else -math.inf
        top = max(top, terms[i])
    shift = max(top, -MOST)  # finite, whatever happens
    for i in range(n):
        terms[i] = -terms[i]
    total = sum_of_exponentials(terms, n, -shift)
    for i in range(size, weight.size):
        terms[i] = math.exp(terms[i] - shift)
        total += terms[i]
    fvec(state, EVIDENCE)[t] = shift + math.log(total)
    return least_alive(model, state, t)


@hot
def least_alive(model: PosteriorModel, state: PosteriorState, t: int) -> float:
    """Return Z - log(1/delta); nobody who made the data impossible is alive."""
    return float(max(fvec(state, EVIDENCE)[t] - model.slack, -MOST))


@hot
def within_reach(model: PosteriorModel, state: PosteriorState, t: int, i: int) -> float:
    """Return l(P) of the member at a position; of a cover, the largest l within reach of it."""
    if ivec(state, COUNTERS)[UNLISTED_ROWS] > 0:
        return -math.inf
    return float(fmat(state, WITHIN)[t, i] if model.reach > 0.0 else fmat(state, LIKELIHOOD)[t, i])


@hot
def drop(model: PosteriorModel, state: PosteriorState) -> None:
    """Put those aside that are not alive, and close the gaps they leave."""
    counters, members, likelihood = ivec(state, COUNTERS), ivec(state, MEMBERS), fmat(state, LIKELIHOOD)[0]
    within, n, kept = fmat(state, WITHIN)[0], counters[ALIVE], 0
    bound = log_evidence(model, state, 0, n)
    for i in range(n):
        if within_reach(model, state, 0, i) >= bound:
            members[kept] = members[i]
            likelihood[kept] = likelihood[i]
            if model.reach > 0.0:
                within[kept] = within[i]
            kept += 1
    counters[ALIVE] = kept


@hot
def enter_class(state: PosteriorState, smallest: int, outside: bool) -> None:
    """Put a class into play; keep since when it is, and since when nobody is alive."""
    counters = ivec(state, COUNTERS)
    if outside and counters[OUTSIDE] == 0:
        counters[OUTSIDE_SINCE] = counters[EPISODES]
    counters[OUTSIDE] = 1 if outside else 0
    if smallest != counters[CLASS]:
        counters[CLASS] = smallest
        counters[CLASS_SINCE] = counters[EPISODES]


@hot
def add_excess(model: PosteriorModel, sa: int, rows: float, first: int, n: int, limit: float) -> int:
    """Add sum_g c_g log(P(o) |g| N/c_g), which is never positive, over the twins of (s, a) to the sums of candidates.

    Of the ``n`` from ``first`` on those whose sum is below ``limit`` are put aside; returns how many are left.
    """
    candidates, sums, p = ivec(model, CANDIDATES), fvec(model, SUMS), fmat(model, CHUNK)[0]
    start, count, kept = ivec(model, START), fvec(model, FLOAT_COUNTS), 0
    for o in range(start[sa], start[sa + 1]):
        if count[o] > 0.0:
            chunk_probabilities(model, candidates, first, n, o)
            scale = imat(model, TWINS)[1, o] * rows / count[o]
            for i in range(n):
                sums[first + i] += count[o] * math.log(max(p[i], 0.0) * scale)
    for i in range(n):
        if sums[first + i] >= limit:
            candidates[first + kept] = candidates[first + i]
            sums[first + kept] = sums[first + i]
            kept += 1
    if kept < n:
        ivec(model, NEAR_OF)[-1] += 1
    return kept


@hot
def join_twins(model: PosteriorModel, state: PosteriorState) -> float:
    """Write the counts of twins at the first of them; return sum_g c_g log(c_g/(|g| N)), which no member exceeds."""
    count, joined, twins = imat(state, ENTERED)[0], fvec(model, FLOAT_COUNTS), imat(model, TWINS)
    start, best = ivec(model, START), 0.0
    for o in range(count.size):
        joined[o] = 0.0
    for o in range(count.size):
        joined[twins[0, o]] += count[o]
    for sa in range(start.size - 1):
        rows = sum_of(joined, start[sa], start[sa + 1])
        for o in range(start[sa], start[sa + 1]):
            if joined[o] > 0.0:
                best += joined[o] * math.log(joined[o] / (twins[1, o] * rows))
    return best


@hot
def look_again(model: PosteriorModel, state: PosteriorState) -> None:
    """Let members back in whose likelihood of all outcomes is large enough."""
    counters, members, likelihood = ivec(state, COUNTERS), ivec(state, MEMBERS), fmat(state, LIKELIHOOD)[0]
    candidates, sums, alive, size = ivec(model, CANDIDATES), fvec(model, SUMS), counters[ALIVE], 0
    bound, best, at, back = log_evidence(model, state, 0, alive), join_twins(model, state), 0, 0
    count, start, chunk = fvec(model, FLOAT_COUNTS), ivec(model, START), fmat(model, CHUNK).shape[1]
    for member in range(candidates.size):  # the dead; both lists are in the order of the members
        if at < alive and members[at] == member:
            at += 1
        else:
            candidates[size] = member
            sums[size] = 0.0
            size += 1
    mean = sum_of(count, 0, count.size) / (start.size - 1)
    for first in range(0, size, chunk):
        n, most = min(chunk, size - first), math.inf
        ivec(model, NEAR_OF)[-1] += 1
        for least in (4.0 * mean, mean, 0.25 * mean, 1.0):  # heavy pairs first
            for sa in range(start.size - 1):
                rows = sum_of(count, start[sa], start[sa + 1])
                if n > 0 and least <= rows < most:
                    n = add_excess(model, sa, rows, first, n, bound - best)
            most = min(least, most)
        for i in range(n):
            candidates[back] = candidates[first + i]
            sums[back] = sums[first + i]
            back += 1
    merge_members(members, likelihood, alive, candidates, sums, back, best)
    counters[ALIVE] = alive + back


@hot
def sum_of(numbers: Floats, first: int, last: int) -> float:
    """Return the sum of some numbers."""
    total = 0.0
    for i in range(first, last):
        total += numbers[i]
    return total


@hot
def judge_members(model: PosteriorModel, state: PosteriorState) -> None:
    """Put members aside, look at the dead when it is time, and play the smallest class that has a member alive."""
    counters, members, level = ivec(state, COUNTERS), ivec(state, MEMBERS), ivec(model, LEVEL)
    drop(model, state)
    if counters[EPISODES_AT_PLAN] >= counters[NEXT_LOOK]:
        counters[NEXT_LOOK] = max(2 * counters[EPISODES_AT_PLAN], _FIRST_LOOK)
        if model.reach <= 0.0 and counters[UNLISTED_ROWS] == 0:
            look_again(model, state)
    n, current = counters[ALIVE], 0
    enter_class(state, level[members[0]] if n > 0 else counters[CLASS], n == 0)
    while current < n and (not model.restrict or level[members[current]] <= counters[CLASS]):
        current += 1
    counters[CURRENT] = current


def judge(solved: Any, model: PosteriorModel, state: PosteriorState) -> None:
    """Find who is alive, and the class in play."""
    raise TypeError(f"no values of type {type(solved).__name__}")


@implements(judge, SolvedBeforehand)
def judge_once(solved: SolvedBeforehand, model: PosteriorModel, state: PosteriorState) -> None:
    """``judge`` where one kernel serves all steps."""
    judge_members(model, state)


@implements(judge, SolvedWithPlans, inline=False)
def judge_steps(solved: SolvedWithPlans, model: PosteriorModel, state: PosteriorState) -> None:
    """``judge``; with a kernel per step, the class in play is the smallest with somebody alive at every step."""
    level, steps, smallest, outside = ivec(model, LEVEL), fmat(model, KERNEL).shape[0], 0, False
    if steps == 1:
        judge_members(model, state)
        return
    for t in range(steps):
        bound, first = log_evidence(model, state, t, level.size), level.size
        for i in range(level.size):
            if within_reach(model, state, t, i) >= bound:
                first = min(first, level[i])
        outside = outside or first == level.size
        smallest = max(smallest, first if first < level.size else 0)
    enter_class(state, smallest, outside)


@hot
def update(model: PosteriorModel, state: PosteriorState) -> None:
    """Enter the outcomes that wait into the evidence, judge by it, and prepare what is played."""
    size = list_waiting(model, state)
    add_likelihoods(model, state, size)
    score_rivals(model, state, size)
    judge(model.solved, model, state)
    for t in range(fmat(model, KERNEL).shape[0]):
        fit_hulls(model, state, t)
        if model.sampling:
            accumulate(model, state, t)
        if ivec(state, COUNTERS)[OUTSIDE] == 1:
            ivec(state, LEFT)[t] = smallest_hull(model, state, t)


@hot
def accumulate(model: PosteriorModel, state: PosteriorState, t: int) -> None:
    """Write running sums of the weights of members and rivals in Z, those of members that may not be drawn being 0."""
    counters, members, level = ivec(state, COUNTERS), ivec(state, MEMBERS), ivec(model, LEVEL)
    terms, out, total = fvec(model, SUMS), fmat(state, CUMULATIVE)[t], 0.0
    log_evidence(model, state, t, counters[CURRENT])
    for i in range(out.size):
        own = i < counters[CURRENT] and (not model.restrict or level[members[i]] <= counters[CLASS])
        if own or i >= level.size:
            total += terms[i]
        out[i] = total


# Acting ---------------------------------------------------------------------------------------------------------------


@hot
def draw_hull(model: PosteriorModel, state: PosteriorState, t: int, c: int) -> None:
    """Write a draw from a hull: EM on counts replaced by Gamma(c_o, 1) (L7)."""
    count, numbers, kernel = imat(state, COUNT)[t], fvec(model, FLOAT_COUNTS), fmat(model, KERNEL)[t]
    hull, n, stream = fmat(model, HULL), ivec(model, HULL_SIZE)[c], ivec(model, STREAM)
    weights, gradient = part(fvec(model, WEIGHTS), 0, n), part(fvec(model, WEIGHTS), n, n)
    own = fmat(state, HULL_WEIGHT)[t * ivec(model, HULL_SIZE).size + c]
    for o in range(count.size):
        numbers[o] = next_gamma(stream, float(count[o])) if count[o] > 0 else 0.0
    for i in range(n):
        weights[i] = 0.9 * own[i] + 0.1 / n
    hull_fit(numbers, hull, weights, _DRAW_STEPS, 0.0, gradient)
    for o in range(count.size):
        kernel[o] = mixed_at(weights, hull, o)


@hot
def draw_tables(model: PosteriorModel, state: PosteriorState, t: int) -> None:
    """Write a draw from the tabular class: Dirichlet rows, every outcome listed or seen alike before data."""
    count, start, kernel = imat(state, COUNT)[t], ivec(model, START), fmat(model, KERNEL)[t]
    head, unlisted, stream = imat(state, UNLISTED_HEAD)[t], imat(state, UNLISTED), ivec(model, STREAM)
    for sa in range(start.size - 1):
        total = 0.0
        for o in range(start[sa], start[sa + 1]):
            kernel[o] = next_gamma(stream, count[o] + model.concentration)
            total += kernel[o]
        at = head[sa]
        while at >= 0:
            kernel[count.size + at] = next_gamma(stream, unlisted[2, at] + model.concentration)
            total += kernel[count.size + at]
            at = unlisted[0, at]
        for o in range(start[sa], start[sa + 1]):
            kernel[o] /= total
        at = head[sa]
        while at >= 0:
            kernel[count.size + at] /= total
            at = unlisted[0, at]


@hot
def write_kernel(model: PosteriorModel, state: PosteriorState, t: int, source: int) -> None:
    """Write the kernel of a member, or one drawn from a hull or the tabular class."""
    kernel, outcomes = fmat(model, KERNEL)[t], ivec(model, NEXT).size
    for at in range(outcomes, kernel.size):
        kernel[at] = 0.0
    if source >= 0:
        for o in range(outcomes):
            kernel[o] = probability(model, o, source)
    elif source == TABULAR:
        draw_tables(model, state, t)
    else:
        draw_hull(model, state, t, -3 - source)


@hot
def expectation(model: PosteriorModel, state: PosteriorState, t: int, sa: int, values: Floats) -> float:
    """Return sum_o P(o) (bonus(o) + V(s')) of the kernel that is being solved."""
    start, next_state, bonus = ivec(model, START), ivec(model, NEXT), fvec(model, BONUS)
    kernel, unlisted = fmat(model, KERNEL)[t], imat(state, UNLISTED)
    total = 0.0
    for o in range(start[sa], start[sa + 1]):
        total += kernel[o] * (bonus[o] + values[np.uint64(next_state[o])])
    at = imat(state, UNLISTED_HEAD)[t, sa]
    while at >= 0:
        total += kernel[next_state.size + at] * (fvec(state, UNLISTED_BONUS)[at] + values[unlisted[1, at]])
        at = unlisted[0, at]
    return total


@hot
def solve(model: PosteriorModel, state: PosteriorState) -> None:
    """Write the values and the greedy policy of the kernel; optimism per step takes the largest expectations."""
    values, policy, steps = fmat(state, VALUES), imat(state, POLICY), fmat(model, KERNEL).shape[0]
    reward = fmat(model, REWARD) if model.known_rewards else fmat(state, COUNTED_ON)
    for h in range(model.horizon - 1, -1, -1):
        t, rewards = h % steps, reward[h % reward.shape[0]]
        choose_rows(model.solved, model, state, t, values[h + 1])
        for s in range(policy.shape[1]):
            top = -math.inf
            for a in range(model.actions):
                sa = s * model.actions + a
                q = rewards[sa] + expectation(model, state, t, sa, values[h + 1])
                if q > top:
                    top = q
                    policy[h, s] = a
            values[h, s] = top


def choose_rows(solved: Any, model: PosteriorModel, state: PosteriorState, t: int, values: Floats) -> None:
    """By optimism per step: write the kernel's rows of the member with the largest expectation at every (s, a)."""
    raise TypeError(f"no values of type {type(solved).__name__}")


@implements(choose_rows, SolvedBeforehand)
def choose_nothing(solved: Any, model: PosteriorModel, state: PosteriorState, t: int, values: Floats) -> None:
    """``choose_rows`` where one kernel serves all steps."""


@implements(choose_rows, SolvedWithPlans, inline=False)
def choose_largest(solved: Any, model: PosteriorModel, state: PosteriorState, t: int, values: Floats) -> None:
    """``choose_rows``, of the members alive at the step; where there is none, the kernel that was drawn stays."""
    start, next_state, bonus = ivec(model, START), ivec(model, NEXT), fvec(model, BONUS)
    kernel, n = fmat(model, KERNEL), ivec(model, LEVEL).size
    for sa in range(start.size - 1 if kernel.shape[0] > 1 and not model.sampling else 0):
        best, choice = -math.inf, NOBODY
        for i in range(n):
            if may_play(model, state, t, i):
                total = 0.0
                for o in range(start[sa], start[sa + 1]):
                    total += probability(model, o, i) * (bonus[o] + values[next_state[o]])
                if total > best:
                    best, choice = total, i
        for o in range(start[sa], start[sa + 1] if choice >= 0 else 0):
            kernel[t, o] = probability(model, o, choice)


@hot
def may_play(model: PosteriorModel, state: PosteriorState, t: int, i: int) -> bool:
    """Say whether optimism may count on a member at a step."""
    inside = within_reach(model, state, t, i) >= least_alive(model, state, t)
    return inside and (not model.restrict or ivec(model, LEVEL)[i] <= ivec(state, COUNTERS)[CLASS])


@hot
def most_optimistic(model: PosteriorModel, state: PosteriorState, start: int) -> int:
    """Return the member with the largest V_1(start) among those that may be played (M5), the first on ties."""
    members, first, top, choice = ivec(state, MEMBERS), fmat(state, FIRST_VALUES), -math.inf, NOBODY
    for i in range(ivec(state, COUNTERS)[CURRENT]):
        value = first[i, start] if first.shape[0] > 0 else model.values[start, members[i]]
        if value > top:
            top, choice = value, members[i]
    return choice


@hot
def smallest_hull(model: PosteriorModel, state: PosteriorState, t: int) -> int:
    """Return the smallest hull that L6 does not refuse, as -3 - c, or TABULAR; FLOAT_COUNTS are those of the step."""
    sizes, bound = ivec(model, HULL_SIZE), fvec(state, EVIDENCE)[t] - model.slack
    for c in range(sizes.size if ivec(state, COUNTERS)[UNLISTED_ROWS] == 0 else 0):
        own, scratch = part(fmat(state, HULL_WEIGHT)[t * sizes.size + c], 0, sizes[c]), fvec(model, WEIGHTS)
        if hull_bound(fvec(model, FLOAT_COUNTS), fmat(model, HULL), own, part(scratch, 0, sizes[c])) >= bound:
            return -3 - c
    return TABULAR


@hot
def drawn(model: PosteriorModel, state: PosteriorState, t: int, u: float) -> int:
    """Return what the posterior of a step draws: a member, TABULAR, or -3 - c for hull c."""
    sums, n, hulls = fmat(state, CUMULATIVE)[t], ivec(model, LEVEL).size, ivec(model, HULL_SIZE).size
    if not sums[-1] > 0.0:
        return TABULAR
    low, high = 0, sums.size - 1
    while low < high:
        middle = (low + high) // 2
        if u * sums[-1] < sums[middle]:
            high = middle
        else:
            low = middle + 1
    if low < n:
        return int(ivec(state, MEMBERS)[low])
    return TABULAR if low == n + hulls else -3 - (low - n)


def plan_anew(solved: Any, model: PosteriorModel, state: PosteriorState, due: bool) -> int:
    """Plan where values are solved with plans; return 1 for a plan, 0 if the one in play stays, -1: nothing is done."""
    raise TypeError(f"no values of type {type(solved).__name__}")


@implements(plan_anew, SolvedBeforehand)
def plan_nothing(solved: SolvedBeforehand, model: PosteriorModel, state: PosteriorState, due: bool) -> int:
    """``plan_anew`` where values are there."""
    return -1


@implements(plan_anew, SolvedWithPlans, inline=False)
def plan_with_rewards(solved: SolvedWithPlans, model: PosteriorModel, state: PosteriorState, due: bool) -> int:
    """``plan_anew`` for the rewards that the plan counts on; V_1 of every member that may be played, or all steps."""
    counters, members, first = ivec(state, COUNTERS), ivec(state, MEMBERS), fmat(state, FIRST_VALUES)
    steps, values = fmat(model, KERNEL).shape[0], fmat(state, VALUES)
    if due:
        optimistic_rewards(model.rewards, model, state)
        if not model.known_rewards:  # kernels are solved until the next plan, in other processes too
            copy_table(fmat(model, REWARD), fmat(state, COUNTED_ON))
        counters[REWARDS_DUE] = 0
        counters[PLAYED] = NOBODY
        for i in range(min(counters[CURRENT], first.shape[0])):
            write_kernel(model, state, 0, members[i])
            solve(model, state)
            for s in range(first.shape[1]):
                first[i, s] = values[0, s]
    if steps == 1:
        return -1
    if not (due or model.sampling or counters[OUTSIDE] == 1):
        return 0
    for t in range(steps):
        source = drawn(model, state, t, fvec(model, UNIFORMS)[t]) if model.sampling else source_of_step(model, state, t)
        write_kernel(model, state, t, source)
    solve(model, state)
    counters[PLAYED] = NOBODY
    return 1


@hot
def source_of_step(model: PosteriorModel, state: PosteriorState, t: int) -> int:
    """Return a member that optimism may count on at a step, or what is left where there is none."""
    for i in range(ivec(model, LEVEL).size):
        if may_play(model, state, t, i):
            return i
    return int(ivec(state, LEFT)[t])


@implements(plan, PosteriorState, argument=1)
def plan_posterior(model: PosteriorModel, state: PosteriorState, start: int, key: np.uint64, episode: int) -> int:
    """Update the evidence when it is due; choose or draw what is played."""
    counters, stream, episodes = ivec(state, COUNTERS), ivec(model, STREAM), ivec(state, COUNTERS)[EPISODES]
    counters[EPISODES] += 1
    due = episodes == 0 or episodes >= (1.0 + model.replan) * counters[EPISODES_AT_PLAN]
    due = due or counters[REWARDS_DUE] == 1
    if due:
        counters[EPISODES_AT_PLAN] = episodes
        update(model, state)
    elif counters[PLAYED] >= 0 and start == counters[LAST_START] and not model.sampling:
        return 0
    counters[LAST_START] = start
    stream[0], stream[1], stream[2] = np.int64(key ^ _APART), episode, 0
    fill_uniforms(key, episode, fvec(model, UNIFORMS))
    made = plan_anew(model.solved, model, state, due)
    if made >= 0:
        return made * (PLANNED | CHANGED if due else CHANGED)
    if model.sampling:
        source = drawn(model, state, 0, fvec(model, UNIFORMS)[0])
    elif counters[OUTSIDE] == 1:
        source = int(ivec(state, LEFT)[0])
    else:
        source = most_optimistic(model, state, start)
    if source >= 0 and source == counters[PLAYED]:
        return PLANNED if due else 0
    counters[PLAYED] = source
    write_kernel(model, state, 0, source)
    solve(model, state)
    return PLANNED | CHANGED if due else CHANGED


follows_plan(PosteriorState)


@entry
def enter_outcomes(model: PosteriorModel, state: PosteriorState) -> None:
    """Enter the outcomes that wait, between phases."""
    counters = ivec(state, COUNTERS)
    counters[EPISODES_AT_PLAN] = counters[EPISODES]
    update(model, state)
    if fmat(model, KERNEL).shape[0] > 1 or not model.known_rewards:
        counters[REWARDS_DUE] = 1  # values are solved with plans: the next episode begins with one
