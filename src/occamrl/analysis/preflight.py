r"""Preflight of a ladder, before any data (M26): whether its classes can be told apart by playing them.

A *blind pair* is a kernel P of a class and a kernel Q outside it such that P's optimal policy earns much less under Q
than Q's own, while the rows it produces there would take more than a given number of episodes to reject the class. Then
a small class that is wrong can confirm itself: its policy never goes where it is wrong. The remedy is optimism over all
kernels that are left, with the prior (the safe variant of M25); where the largest class is linear, audits (the guard).

Kernels P of each class are tried against kernels Q outside it. After how many episodes of P's policy under Q is the
class rejected?

*Finite classes.* Once the nearest kernel of the class is (3/2 + sqrt 2) log(\|F_M\|/delta) away (M15). The distance
grows in an episode by the expected sum of ((P - Q) V)^2 / R^2 over its rows (M2, M23). On a cover with the term E of
:mod:`occamrl.models.finite`: by M21, (1 - c/2) L(P*, P) > (1/c + 1/2) log(2\|F_M\|/delta) + 2 E with c = 2 sqrt 2 - 2,
where (1/c + 1/2)/(1 - c/2) = 3/2 + sqrt 2.

*A linear class or an aggregation on top.* The expected rows of an episode have the Gram matrix G = E sum x x^T in the
largest class. The distance of class m from Q is then a least-squares problem, min over F_m of
(theta - theta_Q)^T G (theta - theta_Q), and class m is rejected after about n episodes where n times this distance
passes (1/4)(logdet(I + n G) + 2 log(1/delta)) (M15 with lambda = 1).

*By likelihood* (:class:`occamrl.Occam`, on finite classes). Once the evidence against every kernel of the class is
log(1/w) + log(1/delta), w the weight of Q (L2): it grows in an episode by the expected sum of the relative entropy of
Q's outcomes to those of the nearest kernel.

These are estimates: what is summed up differs from its expectation, and a test may reject before it must.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq

from occamrl._core.bellman import optimal_policy, optimal_values
from occamrl._core.compile import compiled
from occamrl.errors import ParameterError, require_choice, require_integer, require_kind, require_number
from occamrl.models.family import packed, sparse_rows
from occamrl.models.features import FeatureMap
from occamrl.models.finite import level
from occamrl.models.ladder import Ladder
from occamrl.protocols import Floats, Ints, Known, Outcomes
from occamrl.running.result import counted
from occamrl.seeding import stream
from occamrl.selectors.arl_gen import ARLGen
from occamrl.selectors.occam import Occam

_SHARE = 0.01  # of what is at stake: losing less is not much
_REJECTION = 1.5 + math.sqrt(2.0)
_OFF_GRID = 2.0 + math.sqrt(2.0)  # 2/(1 - c/2)
_REMEDIES = {
    "all": 'optimism over all kernels that are left (scope="all")',
    "safe": "optimism over all kernels that are left (safe=True)",
    "guard": "play the largest class in about sqrt(k) of k episodes (guard=True)",
}


@dataclass(frozen=True)
class BlindPair:
    """A kernel that would confirm itself although another is the truth."""

    rung: int  # the class of the first kernel, from 1
    member: int  # P, as a member of a finite ladder's family; otherwise counted among those drawn from its class
    truth: int  # Q, likewise
    truth_class: int
    loss_per_episode: float  # how much less P's policy earns under Q than Q's own
    episodes_to_reject: float  # until the rows of P's policy reject every kernel of the class


@dataclass(frozen=True)
class Preflight:
    """What was found; ``print`` it before a run, then play ``selector()``."""

    ladder: Ladder
    classes: list[str]  # how large each is
    episodes: int
    delta: float
    pairs_tried: int
    blind: list[BlindPair]
    rejection: list[float]  # median episodes to reject F_m when the truth is outside it
    remedy: str = "none"  # where there are blind pairs "safe", "guard" if the largest class is not finite, or "all"
    grid: float = 0.0  # how far a kernel of the box may be from the nearest point of a cover
    grid_episodes: float = math.inf  # after which the grid's term in the test outweighs that of the noise
    evidence: str = "value"

    @property
    def worst_loss(self) -> float:
        """The most that a blind pair loses per episode."""
        return max((pair.loss_per_episode for pair in self.blind), default=0.0)

    @property
    def safe(self) -> bool:
        """Whether ARL-GEN should be optimistic over all kernels that are left."""
        return self.remedy == "safe"

    def selector(self, **parameters: Any) -> Any:
        """Return the selector on the ladder, with the remedy where there are blind pairs and other ``parameters``.

        ARL-GEN, or Occam where the evidence is the likelihood.
        """
        given: dict[str, Any] = {"ladder": self.ladder, "delta": self.delta, **parameters}
        if self.evidence == "likelihood":
            return Occam(**{"scope": "all" if self.remedy == "all" else "smallest", **given})
        return ARLGen(**{**({} if self.remedy == "none" else {self.remedy: True}), **given})

    def __str__(self) -> str:
        lines = [f"Ladder of {' < '.join(self.classes)}, {self.episodes:,} episodes, delta {self.delta:g}"]
        names = self.ladder.names
        for name, episodes in zip(names, self.rejection, strict=False):  # of all classes but the largest
            when = "never rejected by" if math.isinf(episodes) else f"rejected after about {episodes:,.0f} episodes of"
            lines.append(f"  {name!r}, if wrong, is {when} its own policy")
        if not self.blind:
            lines.append(f"  no blind pairs among {self.pairs_tried:,} tried: plain selection is enough")
        else:
            worst = max(self.blind, key=lambda pair: pair.loss_per_episode)
            time = worst.episodes_to_reject
            lines += [
                f"  {counted(len(self.blind), 'blind pair')} among {self.pairs_tried:,} tried: "
                "a wrong class can confirm itself.",
                f"  Worst: kernel {worst.member} of {names[worst.rung - 1]!r} under kernel {worst.truth} of "
                f"{names[worst.truth_class - 1]!r} loses {worst.loss_per_episode:.3g} an episode, "
                + ("and it is never noticed" if math.isinf(time) else f"unnoticed for {time:,.0f} episodes"),
                f"  remedy: {_REMEDIES[self.remedy]}",
            ]
        if self.grid > 0.0:
            fine = "fine enough" if self.grid_episodes > self.episodes else "too coarse for this run"
            after = f"after about {self.grid_episodes:,.0f} episodes that, not noise, limits what can be told apart"
            lines.append(f"  grid: kernels up to {self.grid:.3g} from the nearest point; {after}: {fine}")
        return "\n".join(lines)


def preflight(
    ladder: Ladder,
    known: Known,
    *,
    episodes: int,
    delta: float = 0.05,
    start: int = 0,
    truths: int | None = None,
    members: int | None = None,
    least_loss: float | None = None,
    evidence: str = "value",
) -> Preflight:
    """Look for blind pairs, predict how long each class takes to be rejected, and judge the grid of covers (M26).

    >>> import occamrl as orl
    >>> problem = orl.make_problem("patchy-ice")
    >>> report = orl.preflight(orl.Ladder.of_problem(problem), problem.mdp.known, episodes=500)  # print it
    >>> agent = report.selector()

    Parameters
    ----------
    ladder : Ladder
    known : Known
        ``mdp.known`` of the problem: sizes and rewards.
    episodes : int
        The length of the run. A pair is blind when rejecting the class takes longer.
    delta : float
    start : int
        The initial state.
    truths, members : int, optional
        How many kernels outside and inside each class to try, drawn at random where there are more; 64 of a finite
        class, 6 of one that is not.
    least_loss : float, optional
        What counts as much, per episode; by default 1% of what is at stake: the most that the best policy earns above
        the worst, over the kernels tried as truths. Adding a constant to all rewards does not change it.
    evidence : "value" | "likelihood"
        By what classes are to be rejected: value rows for :class:`ARLGen`, the likelihood for :class:`Occam`, on lists
        of kernels.
    """
    require_integer("episodes", episodes, 1)
    require_choice("evidence", evidence, ("value", "likelihood"))
    require_kind("ladder", ladder, Ladder)
    require_kind("known", known, Known)
    if not known.rewards_known:
        raise ParameterError("known", got="sizes alone", expected="rewards too: policies are compared by them")
    require_number("delta", delta, 1e-100, 1.0)
    require_integer("start", start, 0, most=known.states - 1)
    require_integer("truths", 1 if truths is None else truths, 1)
    require_integer("members", 1 if members is None else members, 1)
    require_number("least_loss", 0.0 if least_loss is None else least_loss, 0.0, np.inf)
    if evidence == "likelihood" and not ladder.finite:
        raise ParameterError("evidence", got=evidence, expected='"value" where the largest class is not a list')
    draw, base = stream(0, "preflight"), known.base_reward.flatten()
    few, make = (64, _finite_trials) if ladder.finite else (6, _linear_trials)
    trials = make(ladder, known, draw, truths or few, members or few, delta)
    if evidence == "likelihood":
        trials = _by_likelihood(ladder, known, trials, delta)
    outcomes = trials.features.attach(known).outcomes
    if least_loss is None:
        stakes = (stake(outcomes, each.kernel, base, each.values, start) for each in trials.truths)
        least_loss = _SHARE * max(stakes, default=0.0)
    blind: list[BlindPair] = []
    typical: list[float] = []
    tried = 0
    for m, (inside, outside) in enumerate(zip(trials.inside, trials.outside, strict=True), start=1):
        times = []
        for i, member in enumerate(inside):
            policy = optimal_policy(outcomes, member.kernel, base, member.values)
            pairs = np.arange(known.states) * known.actions + policy  # [H, S]
            rejection = trials.rejection(m, i, pairs)
            for truth in outside:
                reach = visits(outcomes, truth.kernel, policy, start)
                loss = float(truth.values[0, start] - (reach * truth.reward[pairs]).sum())
                time, own = rejection(truth, reach.ravel())
                times.append(time)
                if loss > least_loss and time > episodes and own > episodes:
                    blind.append(BlindPair(m, member.number, truth.number, truth.rung, loss, time))
        typical.append(float(np.median(times)) if times else math.inf)
        tried += len(times)
    return Preflight(
        ladder=ladder,
        classes=trials.classes,
        episodes=episodes,
        delta=delta,
        pairs_tried=tried,
        blind=blind,
        rejection=typical,
        remedy=trials.remedy if blind else "none",
        grid=trials.grid,
        grid_episodes=trials.grid_episodes,
        evidence=evidence,
    )


class _Tried(NamedTuple):
    """A kernel that is tried."""

    number: int
    rung: int  # the first class that holds it
    kernel: Floats  # [1, O]
    values: Floats  # [H + 1, S], optimal
    theta: Floats  # [d] over the features of the largest class
    reward: Floats  # [S*A], expected


def _tried(number: int, rung: int, features: FeatureMap, known: Known, theta: Floats) -> _Tried:
    outcomes, base = features.attach(known).outcomes, known.base_reward.flatten()
    kernel = np.ascontiguousarray(features.probabilities(theta))
    values = optimal_values(outcomes, kernel[None], base, known.states, known.horizon)
    reward = base + np.add.reduceat(kernel * outcomes.bonus, outcomes.start[:-1])
    return _Tried(number, rung, kernel[None], values, theta, reward)


# From a truth, and the probabilities [H*S] of being in s at step h under it, to the episodes after which a class, and
# one kernel of it alone, are contradicted.
Rejection = Callable[[_Tried, Floats], tuple[float, float]]


class _Trials(NamedTuple):
    """The kernels of a ladder that are tried, and how long it takes to tell them apart."""

    features: FeatureMap  # of the largest class
    truths: list[_Tried]  # those by which stakes are judged
    inside: list[list[_Tried]]  # of each class but the largest
    outside: list[list[_Tried]]  # likewise: the truths that are tried against it
    rejection: Callable[[int, int, Ints], Rejection]  # of class m, a kernel inside and the pairs [H, S] of its policy
    classes: list[str]
    remedy: str
    grid: float = 0.0
    grid_episodes: float = math.inf


def _finite_trials(
    ladder: Ladder, known: Known, draw: np.random.Generator, truths: int, members: int, delta: float
) -> _Trials:
    """Try members of finite classes. A class is as near to a truth as the nearest of its kernels that are tried."""
    family, grid, sizes = ladder.family, ladder.family.reach, ladder.sizes
    outcomes = family.features.attach(known).outcomes
    noise = math.log(family.size / level(grid, delta))
    hidden = 0.5 * grid**2 * (known.horizon if outcomes.bonus.any() else known.horizon - 1)  # E grows by in an episode
    needed = _REJECTION * noise + (_OFF_GRID * 0.5 * math.log(2.0 / delta) if grid else 0.0)

    def sample(first: int, last: int, most: int) -> list[_Tried]:
        numbers = np.arange(first, last)
        if last - first > most:
            numbers = np.sort(first + draw.choice(last - first, most, replace=False))
        rungs, thetas = ladder.level[numbers] + 1, family.theta[:, numbers].T
        each = zip(numbers.tolist(), rungs.tolist(), thetas, strict=True)
        return [_tried(number, rung, family.features, known, theta) for number, rung, theta in each]

    samples = [(sample(0, n, members), sample(n, family.size, truths)) for n in sizes[:-1]]
    inside, outside = [one for one, _ in samples], [other for _, other in samples]

    def rejection(m: int, i: int, pairs: Ints) -> Rejection:
        rows = rows_of(family.features, known, pairs, inside[m - 1][i].values)
        means = rows @ np.stack([each.theta for each in inside[m - 1]], axis=1)  # [H*S, n]

        def against(truth: _Tried, reach: Floats) -> tuple[float, float]:
            distances = reach @ (means - (rows @ truth.theta)[:, None]) ** 2
            nearest = float(distances.min())
            rate = nearest - _OFF_GRID * hidden
            return needed / rate if rate > 1e-12 else math.inf, math.inf if distances[i] <= nearest + 1e-12 else 0.0

        return against

    different = list({each.number: each for some in outside for each in some}.values())
    classes = [*map(str, sizes[:-1]), f"{sizes[-1]} kernels"]
    grid_episodes = 0.5 * noise / hidden if hidden > 0.0 else math.inf
    return _Trials(family.features, different, inside, outside, rejection, classes, "safe", grid, grid_episodes)


def _by_likelihood(ladder: Ladder, known: Known, trials: _Trials, delta: float) -> _Trials:
    """Return the same trials, told apart by likelihood (L2)."""
    prior, share = ladder.prior, 1.0 / (ladder.classes + 1.0)
    start = trials.features.attach(known).outcomes.start

    def rejection(m: int, i: int, pairs: Ints) -> Rejection:
        kernels = np.concatenate([each.kernel for each in trials.inside[m - 1]])

        def against(truth: _Tried, reach: Floats) -> tuple[float, float]:
            true = truth.kernel[0]
            with np.errstate(divide="ignore", invalid="ignore"):
                terms = np.where(true > 0.0, true * np.log(true / kernels), 0.0)  # infinite where P has a zero
                entropy = np.add.reduceat(terms, start[:-1], axis=1)[:, pairs.ravel()]
                rates = np.where(reach > 0.0, reach * entropy, 0.0).sum(axis=1)
            nearest = float(rates.min())
            needed = math.log(1.0 / ((1.0 - share) * prior[truth.number])) + math.log(1.0 / delta)
            own = math.inf if rates[i] <= nearest + 1e-12 else 0.0
            return needed / nearest if nearest > 1e-12 else math.inf, own

        return against

    return trials._replace(rejection=rejection, remedy="all", grid=0.0, grid_episodes=math.inf)


def _linear_trials(
    ladder: Ladder, known: Known, draw: np.random.Generator, truths: int, members: int, delta: float
) -> _Trials:
    """Try kernels drawn from each class, as parameters of the largest, against kernels drawn from the larger ones."""
    features, classes = ladder.features, ladder.classes
    drawn: list[list[_Tried]] = []
    for m in range(1, classes + 1):
        drawn.append([])
        for member in ladder.rung(m).members(draw, max(truths, members)):
            theta = ladder.rung(classes).member_of(ladder.rung(m).kernel(member))
            if theta is not None:
                drawn[-1].append(_tried(len(drawn[-1]), m, features, known, theta))
    inside = [each[:members] for each in drawn[:-1]]
    outside = [
        [truth for larger in drawn[m:] for truth in larger[: max(1, truths // (classes - m))]]
        for m in range(1, classes)
    ]

    def rejection(m: int, i: int, pairs: Ints) -> Rejection:
        member = inside[m - 1][i]
        x = rows_of(features, known, pairs, member.values).toarray()

        def against(truth: _Tried, reach: Floats) -> tuple[float, float]:
            gram = (x.T * reach) @ x
            least = ladder.smallest_loss(m, packed(features.blocks, gram), gram @ truth.theta)
            of_class = least + float(truth.theta @ gram @ truth.theta)
            gap, eigen = member.theta - truth.theta, np.maximum(np.linalg.eigvalsh(gram), 0.0)
            return _episodes(of_class, eigen, delta), _episodes(float(gap @ gram @ gap), eigen, delta)

        return against

    larger = [each for some in drawn[1:] for each in some]
    return _Trials(features, larger, inside, outside, rejection, [rung.extent for rung in ladder.rungs], "guard")


def _episodes(rate: float, eigen: Floats, delta: float) -> float:
    """Return the smallest n with n rate >= (1/4)(logdet(I + n G) + 2 log(1/delta))."""
    if rate <= 1e-12:
        return math.inf

    def margin(n: float) -> float:
        return float(n * rate - 0.25 * (np.log1p(n * eigen).sum() + 2.0 * math.log(1.0 / delta)))

    high = 1.0
    while margin(high) < 0.0:
        high *= 2.0
    return float(brentq(margin, 0.0, high))


def stake(outcomes: Outcomes, kernel: Floats, base: Floats, values: Floats, start: int) -> float:
    """Return how much more the best policy earns than the worst under a kernel [1, O] with optimal ``values``.

    Whatever is added to all rewards cancels out, so that costs turned into rewards count as what they are.
    """
    horizon, states = values.shape[0] - 1, values.shape[1]
    mirrored = outcomes._replace(bonus=-outcomes.bonus)
    return float(values[0, start] + optimal_values(mirrored, kernel, -base, states, horizon)[0, start])


def rows_of(features: FeatureMap, known: Known, pairs: Ints, values: Floats) -> Any:
    """Return the range-weighted regressors [H*S, d] of (s, a) in ``pairs`` [H, S], with values [H + 1, S] (M23)."""
    return sp.vstack([sparse_rows(features, known, pairs[h], values[h + 1]).x for h in range(known.horizon)]).tocsr()


@compiled
def visits(outcomes: Outcomes, kernel: Floats, policy: Ints, start: int) -> Floats:
    """Return the probability of being in s at step h [H, S] under a policy and a kernel [1, O]."""
    horizon, states = policy.shape
    actions = (outcomes.start.size - 1) // states
    found = np.zeros((horizon, states))
    found[0, start] = 1.0
    for h in range(horizon - 1):
        for s in range(states):
            if found[h, s] != 0.0:
                sa = s * actions + policy[h, s]
                for o in range(outcomes.start[sa], outcomes.start[sa + 1]):
                    found[h + 1, outcomes.next_state[o]] += found[h, s] * kernel[0, o]
    return found
