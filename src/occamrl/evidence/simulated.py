r"""Evidence against simulators that can only be run: exchangeability with fresh draws (B8).

**The test.** At a real step $(s,a) \to y$ let $x_1, \dots, x_N$ be fresh draws of a member at
$(s,a)$, and $w \ge 0$ a score fixed before $y$ and the $x_i$ are seen. If the member is the truth,

.. math:: e = \frac{(N+1)\,w(y)}{w(y) + \sum_i w(x_i)}, \qquad E[e \mid \text{past}] = 1,

since $y$ and the $x_i$ are exchangeable and their $N+1$ values of $e$ add up to $N+1$. The product
over steps of $.01 + .99\,e$ is a test martingale. Two of them, one with $w$ and one with $w^{0.3}$,
have half of the capital each, and a member is rejected for ever when the capital reaches
$1/\delta$ (Ville); a class, when all its members are.

**The score** is a bet, $w = q/p$. $p$ is the member's own law at $(s,a)$
(:mod:`occamrl.evidence.simulator_laws`), fitted to a *second* batch of its draws. $q$ mixes such
fits of the other members, by weight, with the laws of its own errors
(:mod:`occamrl.evidence.simulator_errors`), each in proportion to how well it has predicted so far.
All members are fitted with common random numbers, so that errors of the fits cancel in $q/p$. The
draws that are ranked have numbers of their own: members may use up random numbers differently, so
that no part of one stream is free of what another member was fitted to. A bad score costs power,
never validity.

**Weights** of members are Bayes' with the fits for likelihoods: synthetic, for acting and for $q$,
without guarantee.

**Cost.** Of many members a window of :data:`AWAKE` is awake at a step: the :data:`TOP` heaviest,
which make $q$, and the others in turn, fixed before the step. Those asleep bet nothing, and are
taken to predict as the mixture does, so that their weight stays (as of sleeping experts); those
rejected sleep for ever. Of a log, members are run for blocks of up to :data:`LONGEST` steps.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, TypedDict

import numpy as np

from occamrl.evidence.simulator_errors import (
    LAWS,
    PRIOR,
    ErrorFeatures,
    ErrorForecast,
    ErrorRows,
    shift_of,
)
from occamrl.evidence.simulator_laws import LARGEST_ERROR, Laws, fit_laws
from occamrl.evidence.simulator_worlds import SimulatedWorld, SimulatorWorlds
from occamrl.protocols import (
    ErrorMisfit,
    Floats,
    Ints,
    Judgement,
    Misfit,
    ParameterRange,
    Planner,
    Simulator,
    System,
    Transition,
)

AWAKE = 32  # members that are tested at a step, at most
TOP = 8  # members that make q
LONGEST = 32  # steps of a block
SHOWN = 1000  # steps of the last episode that are kept
HELD_BACK = 0.01  # of every bet, and of the parts of q that is shared evenly
TEMPERED = 0.3  # the exponent of the second score
FAR = 1e12  # beyond which a number is as good as infinite
SURE = 4.0  # standard errors from which on a misfit is named
WIDER = 0.3  # of the log of the width of the noise that fits to few draws may miss


class SimulatorList(Protocol):
    """What the evidence needs to know of a ladder of simulators."""

    names: tuple[str, ...]  # of the classes
    members: list[Simulator]
    level: Ints  # [M] the class that lists each member, from 0
    view: Callable[[Floats], Floats]  # coordinates [N, d] of states in which laws are fitted
    resolution: Floats  # [d] noise that is added to them
    error_features: ErrorFeatures
    draws: int  # N


class MemberRows(NamedTuple):
    """What is kept of M members; the arrays are written to."""

    level: Ints  # [M] the class of each, from 0
    capital: Floats  # [M, 2] log, of the two bets
    peak: Floats  # [M] the largest log capital so far
    rejected: Ints  # [M] after how many steps; -1 if it is not
    log_weight: Floats  # [M]
    mixture: Floats  # [M, 1 + LAWS] log weights in q of the other members and the laws of errors
    far: Floats  # [M, 1 + 2 d] draws far from the core: their number, sum and squares

    @classmethod
    def begin(cls, level: Ints, log_weight: Floats, views: int) -> MemberRows:
        """Return the rows of members before any data."""
        members = level.size
        return cls(
            level=level.copy(),
            capital=np.full((members, 2), math.log(0.5)),
            peak=np.zeros(members),
            rejected=np.full(members, -1),
            log_weight=log_weight,
            mixture=np.full((members, 1 + LAWS), -math.log(1 + LAWS)),
            far=np.zeros((members, 1 + 2 * views)),
        )

    @property
    def alive(self) -> Ints:
        """The members that are not rejected."""
        return np.flatnonzero(self.rejected < 0)

    @property
    def ranking(self) -> Ints:
        """The members that are alive, or all where none is, heaviest first."""
        candidates = self.alive
        if not candidates.size:
            candidates = np.arange(self.level.size)
        return candidates[np.argsort(-self.log_weight[candidates], kind="stable")]

    def heaviest(self, m: int) -> int:
        """Return the heaviest member of class m, from 0, of those alive if any is."""
        inside = self.level <= m
        alive = inside & (self.rejected < 0)
        candidates = alive if alive.any() else inside
        return int(np.where(candidates, self.log_weight, -np.inf).argmax())


class SimulatedState(TypedDict):
    """What the evidence has learned."""

    steps: int
    members: MemberRows
    errors: ErrorRows
    history: list[list[float]]  # steps, and the evidence against each class by then
    last_episode: Floats  # [T, k + 3 n] see Predictions
    reward_gap: float  # the sum over steps of the distance of the reward from the system's


class Predictions(NamedTuple):
    """The T steps of the last episode, and what the heaviest member said of each."""

    features: Floats  # [T, k] of errors
    observed: Floats  # [T, n]
    mean: Floats  # [T, n]
    deviation: Floats  # [T, n]


@dataclass(kw_only=True, eq=False)
class SimulatedEvidence:
    """Weighs nested classes of simulators on real steps; see the module for the mathematics."""

    ladder: SimulatorList
    system: System
    delta: float
    planner: Planner  # for what policies are worth
    kind: str = "exchangeability"

    def begin(self) -> SimulatedState:
        """Return the state before any data; classes share the weight, and their members theirs."""
        ladder = self.ladder
        classes = len(ladder.names)
        views = ladder.resolution.size
        features = 1 + len(ladder.error_features.names)
        dimension = self.system.dimension
        sizes = np.bincount(ladder.level, minlength=classes)
        log_weight = -np.log(sizes[ladder.level] * classes)
        return {
            "steps": 0,
            "members": MemberRows.begin(ladder.level, log_weight, views),
            "errors": ErrorRows.begin(ladder.level.size, features, views, dimension),
            "history": [],
            "last_episode": np.zeros((0, features + 3 * dimension)),
            "reward_gap": 0.0,
        }

    # Weighing -------------------------------------------------------------------------------------

    def add(self, state: SimulatedState, data: Transition, /) -> None:
        """Weigh the classes on a real step, among draws that are fresh at its address."""
        self.add_steps(state, [data])

    def add_steps(self, state: SimulatedState, data: Sequence[Transition]) -> None:
        """Weigh the classes on real steps, one after the other.

        Simulators are run for a block of them in one call, longer as there are more steps.
        """
        done = 0
        while done < len(data):
            size = min(LONGEST, max(1, state["steps"] // LONGEST))
            self._add_block(state, data[done : done + size])
            done += size

    def _add_block(self, state: SimulatedState, block: Sequence[Transition]) -> None:
        """Weigh the members that are awake at its beginning on a block of steps."""
        ladder = self.ladder
        count = ladder.draws
        gaps = [self._reward_gap(transition) for transition in block]
        active, top = _awake(state)
        drawn = self._draw(active, block)
        outcomes, views = self._view(block, drawn)

        # The first batch is ranked, the second fitted: laws that had seen what they rank would
        # reject the truth.
        members = state["members"]
        errors = state["errors"]
        laws, far = fit_laws(
            views[:, :, count:], ladder.resolution, members.far[active], errors.awake[active]
        )
        states = ladder.view(np.array([transition.state for transition in block]))
        actions = np.array([transition.action for transition in block])
        features = ladder.error_features.of(states, actions)
        mean = drawn[:, :, count:].mean(axis=2)
        deviation = drawn[:, 0, count:].std(axis=1)
        members.far[active] = far
        for step, transition in enumerate(block):
            outcome = np.broadcast_to(outcomes[step], (active.size, 1, outcomes.shape[1]))
            points = np.concatenate([outcome, views[step, :, :count]], axis=1)
            scores = score(state, active, top, laws[step], points, features[step])
            state["steps"] += 1
            errors.awake[active] += 1
            self._settle(state, active, scores.log_bets)
            _renew_weights(members, active, top, scores)
            z = laws[step].errors(points[:, :1])[:, 0]
            r = np.clip(transition.next_state - mean[step], -FAR, FAR)
            scores.forecast.learn(np.clip(z, -LARGEST_ERROR, LARGEST_ERROR), r)
            state["reward_gap"] += gaps[step]
            said = [features[step], transition.next_state, mean[step, 0], deviation[step]]
            before = state["last_episode"][-SHOWN:]
            if transition.step == 0:
                before = before[:0]
            state["last_episode"] = np.vstack([before, np.concatenate(said)])
            self._record_history(state)

    def _reward_gap(self, transition: Transition) -> float:
        """Return the distance of the reward that came from the system's."""
        state, action, reward, next_state = transition[:4]
        if reward is None:
            return 0.0
        due = float(self.system.reward(state[None], action[None], next_state[None])[0])
        return abs(reward - due)

    def _draw(self, active: Ints, block: Sequence[Transition]) -> Floats:
        """Return fresh draws of the members that are awake [T, m, 2 N, n]: two batches."""
        simulators = self.ladder.members
        count = self.ladder.draws
        states = np.repeat([transition.state for transition in block], count, axis=0)
        actions = np.repeat([transition.action for transition in block], count, axis=0)
        batches = []
        for purpose in ("ranked", "fits"):
            batch = []
            for member in active:
                # Each member has the same numbers, so that errors of the fits cancel in q/p.
                rng = block[0].address.generator(purpose)
                draws = simulators[member](states, actions, rng)
                batch.append(np.reshape(draws, (len(block), count, -1)))
            batches.append(np.stack(batch, axis=1))
        drawn: Floats = np.nan_to_num(np.concatenate(batches, axis=2), nan=FAR)
        return np.clip(drawn, -FAR, FAR)

    def _view(self, block: Sequence[Transition], drawn: Floats) -> tuple[Floats, Floats]:
        """Return outcomes [T, d] and draws [T, m, 2 N, d] in coordinates of the view.

        Noise of the size of the resolution is added, so that deterministic simulators have a law.
        """
        resolution = self.ladder.resolution
        steps, members, count, dimension = drawn.shape
        rng = block[0].address.generator("resolution")
        noise = resolution * rng.normal(size=(steps, count + 1, resolution.size))
        outcomes = np.array([transition.next_state for transition in block])
        views = self.ladder.view(np.concatenate([outcomes, drawn.reshape(-1, dimension)]))
        drawn_views = views[steps:].reshape(steps, members, count, -1)
        return views[:steps] + noise[:, 0], drawn_views + noise[:, None, 1:]

    def _settle(self, state: SimulatedState, active: Ints, log_bets: Floats) -> None:
        """Pay the bets of the members that were awake, and reject whose capital is 1/delta."""
        members = state["members"]
        members.capital[active] += log_bets
        capital = log_sum(members.capital[active], axis=1)
        members.peak[active] = np.maximum(members.peak[active], capital)
        broken = (capital >= math.log(1 / self.delta)) & (members.rejected[active] < 0)
        members.rejected[active[broken]] = state["steps"]

    def _record_history(self, state: SimulatedState) -> None:
        """Keep the evidence against each class: every step at first, later some of them."""
        steps = state["steps"]
        history = state["history"]
        judgement = self.judge(state)
        if history and history[-1][0] == steps:
            history.pop()
        if steps <= 100 or steps % (steps // 50) == 0 or steps in judgement.rejected_after:
            history.append([float(steps), *judgement.against.tolist()])

    # What it says ---------------------------------------------------------------------------------

    def judge(self, state: SimulatedState) -> Judgement:
        """Return the largest capital against the best member of each class, and who is alive."""
        members = state["members"]
        against = []
        alive = []
        rejected_after: list[int | None] = []
        for m in range(len(self.ladder.names)):
            inside = members.level <= m
            rejected = members.rejected[inside]
            against.append(float(members.peak[inside].min()))
            alive.append(int((rejected < 0).sum()))
            rejected_after.append(None if alive[-1] else int(rejected.max()))
        return Judgement(
            against=np.array(against),
            alive=tuple(alive),
            rejected_after=tuple(rejected_after),
            log_mixture=0.0,
        )

    def parameters(self, state: SimulatedState, m: int) -> dict[str, ParameterRange]:
        """Return the numeric keywords of the heaviest member of class m, from 0.

        Their ranges are over the members of the class that are alive.
        """
        members = state["members"]
        simulators = self.ladder.members
        alive = members.alive[members.level[members.alive] <= m]
        others = [numeric_keywords(simulators[member]) for member in alive]
        intervals = {}
        for name, value in numeric_keywords(simulators[members.heaviest(m)]).items():
            values = [value, *(keywords[name] for keywords in others if name in keywords)]
            intervals[name] = ParameterRange(value, ((min(values), max(values)),))
        return intervals

    def describe(self, state: SimulatedState, m: int) -> str:
        """Return the heaviest member of class m, from 0, in words."""
        return label_of(self.ladder.members[state["members"].heaviest(m)])

    def misfits(self, state: SimulatedState, m: int) -> list[Misfit]:
        """Return how the errors of the heaviest member of class m, from 0, are not as it says."""
        if not state["steps"]:
            return []
        member = state["members"].heaviest(m)
        features = self.ladder.error_features
        shift = shift_of(state["errors"], member)
        clearest = shift.clearest
        strength = shift.strength[clearest]
        if strength.max() < SURE:
            return _noise_misfits(state["errors"], member, features)
        which = np.flatnonzero(strength > 0.8 * strength.max())
        mean = shift.effects[0, which]
        effect = shift.effects[clearest, which]
        misfit = ErrorMisfit(
            coordinates=tuple(self.system.coordinates[i] for i in which),
            feature="",
            at_high=tuple(mean.tolist()),
            at_low=tuple(mean.tolist()),
            deviations=float(np.abs(effect / shift.noise[which]).max()),
        )
        if clearest > 0:
            misfit = misfit._replace(
                feature=features.names[clearest - 1],
                at_high=tuple((mean + effect).tolist()),
                at_low=tuple((mean - effect).tolist()),
                unbounded=clearest <= features.views,
            )
        return [misfit]

    def predictions(self, state: SimulatedState) -> Predictions:
        """Return the last episode, and what the heaviest member said of each step before it."""
        n = self.system.dimension
        parts = np.split(state["last_episode"], [-3 * n, -2 * n, -n], axis=1)
        return Predictions(*parts)

    def worlds(self, state: SimulatedState) -> SimulatorWorlds:
        """Return the simulators that are alive; where none is, the heaviest one."""
        members = state["members"]
        ranking = members.ranking
        weight = np.exp(members.log_weight)
        weight /= weight[ranking].sum()
        worlds = []
        for simulator, share in zip(self.ladder.members, weight.tolist(), strict=True):
            worlds.append(SimulatedWorld(label_of(simulator), share, simulator))
        heaviest = {}
        for m, name in enumerate(self.ladder.names):
            heaviest[name] = worlds[members.heaviest(m)]
        possible = [worlds[member] for member in ranking]
        if not members.alive.size:
            possible = possible[:1]
        return SimulatorWorlds(self.system, self.planner, possible, heaviest)


# The score ----------------------------------------------------------------------------------------


class Scores(NamedTuple):
    """What m members are judged by at a step."""

    log_bets: Floats  # [m, 2] the logarithms of .01 + .99 e
    log_density: Floats  # [m] of the outcome, by the member's own law
    log_parts: Floats  # [1 + LAWS, m] of the outcome, by what q is made of
    forecast: ErrorForecast


def score(
    state: SimulatedState, active: Ints, top: int, laws: Laws, points: Floats, phi: Floats
) -> Scores:
    """Score the outcome and the ranked draws, points [m, N + 1, d], by w = q/p of each member.

    The first ``top`` of the members that are awake make q. Nothing here knows which of the points
    is the outcome, but for the bets, which are its.
    """
    members = state["members"]
    z = laws.errors(points)  # [m, N + 1, d] under each member's own law
    log_p = laws.log_density(z)
    # The rivals: the other members among the heaviest, by weight.
    best = laws.first(top)
    others = best.log_density(best.errors(points[:, None]))  # [m, top, N + 1]
    weight = np.tile(members.log_weight[active[:top]], (active.size, 1))
    weight[active[:, None] == active[:top]] = -np.inf
    alone = ~np.isfinite(weight).any(axis=1)
    total = np.where(alone, 0.0, log_sum(weight, axis=1))
    rivals = log_sum(others + weight[:, :, None], axis=1) - total[:, None]
    # The laws of the member's errors move its core; what is far stays.
    forecast = ErrorForecast(state["errors"], active, phi)
    shifted = laws.with_broad_part(forecast.log_density(z) - laws.log_det[:, None], z)
    parts = np.concatenate([rivals[None], shifted])  # [1 + LAWS, m, N + 1]
    log_q = log_sum(members.mixture[active].T[:, :, None] + parts, axis=0)
    log_w = log_q - log_p
    log_bets = np.stack([bet(log_w), bet(TEMPERED * log_w)], axis=1)
    return Scores(log_bets, log_p[:, 0], parts[:, :, 0], forecast)


def bet(log_w: Floats) -> Floats:
    """Return log(.01 + .99 e) of log scores [..., N + 1], those of the outcome first."""
    largest = log_w.max(axis=-1, keepdims=True)
    share = np.exp(log_w - np.where(np.isfinite(largest), largest, 0.0))
    total = share.sum(axis=-1)
    # 0/0 = 1: where all scores are zero, nothing is bet.
    e = np.divide(share[..., 0] * log_w.shape[-1], total, out=np.ones_like(total), where=total > 0)
    log_bet: Floats = np.log(HELD_BACK + (1 - HELD_BACK) * e)
    return log_bet


def log_sum(values: Floats, axis: int) -> Floats:
    """Return the log of the sum of exponentials."""
    largest = values.max(axis=axis, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        total: Floats = np.log(np.exp(values - largest).sum(axis=axis)) + largest.squeeze(axis)
    return total


def _awake(state: SimulatedState) -> tuple[Ints, int]:
    """Return the members that are run at the next step, and how many of them, the first, make q.

    That is a matter of the past alone, as the test demands.
    """
    members = state["members"]
    order = members.ranking
    heaviest = order[:TOP]
    others = np.sort(order[TOP:])
    if not members.alive.size:
        # Misspecified: only those that fit best are run, to learn their errors.
        others = others[:0]
    window = min(AWAKE - TOP, others.size)
    turn = (state["steps"] * window + np.arange(window)) % max(1, others.size)
    return np.concatenate([heaviest, others[turn]]), heaviest.size


def _renew_weights(members: MemberRows, active: Ints, top: int, scores: Scores) -> None:
    """Write how well each member, and each part of its q, predicted the outcome to the weights."""
    prior = members.log_weight[active[:top]]
    mixture = log_sum(prior - log_sum(prior, axis=0) + scores.log_density[:top], axis=0)
    members.log_weight[active] += scores.log_density - mixture
    members.log_weight[:] -= log_sum(members.log_weight, axis=0)
    posterior = members.mixture[active].T + scores.log_parts
    share = np.exp(posterior - log_sum(posterior, axis=0))
    # Some weight is shared evenly, so that no part of q dies out.
    share = (1 - HELD_BACK) * share + HELD_BACK / len(share)
    members.mixture[active] = np.log(share).T


def _noise_misfits(errors: ErrorRows, member: int, features: ErrorFeatures) -> list[Misfit]:
    """Return the coordinate of the view in which noise is least as wide as a member says."""
    count = PRIOR + errors.awake[member]
    widths = np.sqrt(errors.squares[member, 1] / count)
    coordinate = int(np.abs(np.log(widths)).argmax())
    width = float(widths[coordinate])
    if abs(math.log(width)) < max(WIDER, SURE / math.sqrt(2 * count)):
        return []
    name = features.names[coordinate]
    return [ErrorMisfit((name,), "", (0.0,), (0.0,), deviations=0.0, wider=width)]


# Simulators by name and parameters ----------------------------------------------------------------


def label_of(member: Simulator) -> str:
    """Return a simulator in words: its name, and the arguments that a partial fixes."""
    if isinstance(member, partial):
        fixed = [repr(value) for value in member.args]
        fixed += [f"{name}={value!r}" for name, value in member.keywords.items()]
        return f"{label_of(member.func)}({', '.join(fixed)})"
    # A function has a name; an object that can be called has that of its class.
    return str(getattr(member, "__name__", type(member).__name__))


def numeric_keywords(member: Simulator) -> dict[str, float]:
    """Return the numbers that a partial fixes, by keyword."""
    keywords = {}
    if isinstance(member, partial):
        for name, value in member.keywords.items():
            if isinstance(value, numbers.Real) and not isinstance(value, bool):
                keywords[name] = float(value)
    return keywords
