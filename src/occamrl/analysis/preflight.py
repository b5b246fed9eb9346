r"""Preflight of a ladder, before any data: whether its classes can be told apart by playing them.

An *unidentifiable pair* is a kernel P of a class and a kernel Q outside it such that P's policy
earns much less under Q than Q's own, while what it sees there does not reject P within the run. A
small class that is wrong can then confirm itself for ever: its policy never goes where it is wrong.
The remedy is optimism over all kernels that are left.

Members P of each class are tried against kernels Q outside it. If Q is true and P's policy is
played, the evidence against a kernel grows by its *rate* d per episode; M26 of the mathematics has
the rates, and what n d - sqrt(2 n d) has to exceed. A class is rejected with the last of its
kernels.

Of classes with real parameters, truths are points inside the boxes of richer classes. The class
plays the best policy of its fit and fits what that policy shows: both are found in turns. What is
left of the relative entropy is the rate, and it has to exceed log((M + 1)/delta) + (p/2) log(1 +
steps), for the fits of the p parameters of the truth's class have to be learned, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from occamrl import bellman
from occamrl.addresses import stream
from occamrl.answers.wording import count_of, listed
from occamrl.errors import (
    ParameterError,
    require_choice,
    require_integer,
    require_kind,
    require_number,
)
from occamrl.evidence import likelihood, value
from occamrl.evidence.likelihood import Members
from occamrl.evidence.parametric import Counts, ParametricEvidence
from occamrl.evidence.starts import law_of_starts
from occamrl.learners.occam import Occam
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.families import level
from occamrl.models.ladder import Ladder
from occamrl.models.model import ParametricLadder, spread_points
from occamrl.protocols import MOST_EPISODES, Floats, Ints, Known
from occamrl.selectors.arl_gen import ARLGen

_SHARE = 0.01  # of what is at stake: losing less is not much
_NOTHING = 1e-12  # a rate that is rounding
_TURNS = 3  # of the policy and the fit of a class with real parameters


@dataclass(frozen=True)
class UnidentifiablePair:
    """A kernel that would confirm itself although another is the truth."""

    wrong_class: int  # of the first kernel, from 1
    member: int  # P: a member of the ladder's list, or counted among those drawn from its class
    truth_class: int
    truth: int  # Q, likewise
    loss_per_episode: (
        float  # how much less P's policy earns under Q than Q's own, in the unit of the rewards
    )
    episodes_to_reject: float  # until what P's policy sees rejects every kernel of the class
    parameters: str = ""  # of Q, where these are real; P is then the best fit


@dataclass(frozen=True, kw_only=True, eq=False)
class Preflight:
    """What was found; print it before a run, then play ``selector()``."""

    ladder: Ladder | ParametricLadder
    episodes: int
    delta: float
    evidence: str
    pairs_tried: int
    unidentifiable: list[UnidentifiablePair]
    rejection: list[
        float
    ]  # of each class but the largest: median episodes until it is rejected, if it is wrong
    grid_episodes: float = (
        math.inf
    )  # after which the cover radius, not noise, limits what can be told apart

    @property
    def remedy(self) -> str:
        """What ``selector()`` does about such pairs: "none", "all" (kernels that are left) or "largest" (class)."""
        if not self.unidentifiable:
            return "none"
        return "all" if self.evidence == "likelihood" or self.ladder.finite else "largest"

    def selector(self, **parameters: Any) -> Any:
        """Return the agent to play, with other ``parameters``: Occam or ARL-GEN by the evidence, or UCRL-VTR-LIN."""
        given: dict[str, Any] = {"delta": self.delta, **parameters}
        if self.remedy == "largest" and isinstance(self.ladder, Ladder):
            largest = self.ladder.families[-1]
            return UCRLVTRLin(
                **{"features": largest.own_features, "norm_bound": largest.norm_bound, **given}
            )
        given = {
            "ladder": self.ladder,
            "scope": "all" if self.unidentifiable else "smallest",
            **given,
        }
        return Occam(**given) if self.evidence == "likelihood" else ARLGen(**given)

    def __str__(self) -> str:
        names = self.ladder.names
        sizes = zip(names, self.ladder.sizes, strict=True)
        what = "model" if self.ladder.finite else "parameter"
        told = listed([f"{name!r} ({count_of(size, what)})" for name, size in sizes])
        lines = [
            f"{told}: {count_of(self.episodes, 'episode')}, judged by {self.evidence}, delta {self.delta:g}"
        ]
        for name, after in zip(names, self.rejection, strict=False):
            when = (
                "never" if math.isinf(after) else f"after about {count_of(round(after), 'episode')}"
            )
            lines.append(f"  {name!r}, if wrong, is rejected {when} by playing it")
        if not self.unidentifiable:
            lines.append(
                f"  no unidentifiable pairs among {self.pairs_tried:,} tried: plain selection is enough"
            )
        else:
            worst = max(self.unidentifiable, key=lambda pair: pair.loss_per_episode)
            after = worst.episodes_to_reject
            episodes = "" if math.isinf(after) else count_of(round(after), "episode")
            unseen = f"unnoticed for {episodes}" if episodes else "and is never noticed"
            pair = f"kernel {worst.member} of {names[worst.wrong_class - 1]!r} under kernel {worst.truth} of"
            if worst.parameters:
                pair = f"the fit of {names[worst.wrong_class - 1]!r} under {worst.parameters} of"
            what = (
                "optimism over all kernels that are left"
                if self.remedy == "all"
                else "play the largest class"
            )
            pair += f" {names[worst.truth_class - 1]!r} loses {worst.loss_per_episode:.3g} per episode, {unseen}"
            many = f"{len(self.unidentifiable):,} unidentifiable pairs among {self.pairs_tried:,} tried"
            lines.append(f"  {many}: a wrong class can confirm itself")
            lines += [f"  worst: {pair}", f"  remedy, in selector(): {what}"]
        if math.isfinite(self.grid_episodes):
            fine = (
                "fine enough" if self.grid_episodes > self.episodes else "too coarse for this run"
            )
            when = f"after about {count_of(round(self.grid_episodes), 'episode')}"
            lines.append(f"  grid: limits what can be told apart {when}: {fine}")
        return "\n".join(lines)


class Candidate(NamedTuple):
    """A kernel that is tried, solved."""

    number: int
    first: int  # the first class that holds it, from 1
    theta: Floats  # [G, n] over the features of the largest class
    probability: Floats  # [O]
    kernel: bellman.Kernel
    values: Floats  # [H + 1, S]
    policy: Ints  # [H, S]


def candidates(
    ladder: Ladder, known: Known, members: int, truths: int
) -> list[tuple[list[Any], list[Any]]]:
    """Return kernels inside and outside of each class but the largest, drawn at random where there are more."""
    draw, pairs = stream(0, "preflight"), list[tuple[list[Any], list[Any]]]()

    def solved(number: int, first: int, theta: Floats) -> Candidate:
        probability = np.maximum(ladder.features.probabilities(theta), 0.0)
        kernel = bellman.kernel_of(ladder.features.attach(known), probability, known)
        best = bellman.solve([kernel], known.states, known.horizon)
        return Candidate(number, first, theta, probability, kernel, *best)

    def some(first: int, last: int, most: int) -> list[Candidate]:
        chosen = np.arange(first, last)
        if chosen.size > most:
            chosen = np.sort(draw.choice(chosen, most, replace=False))
        return [solved(int(i), int(ladder.level[i]) + 1, ladder.family.theta[i]) for i in chosen]

    if ladder.finite:
        return [(some(0, n, members), some(n, ladder.sizes[-1], truths)) for n in ladder.sizes[:-1]]
    drawn: list[list[Candidate]] = []
    for m, family in enumerate(ladder.families, start=1):
        found = (
            ladder.families[-1].find(family.kernel(one))
            for one in family.members(draw, max(members, truths))
        )
        thetas = [ladder.features.as_theta(theta) for theta in found if theta is not None]
        drawn.append([solved(i, m, theta) for i, theta in enumerate(thetas)])
    for m in range(1, ladder.classes):
        each = math.ceil(truths / (ladder.classes - m))  # of every larger class
        pairs.append(
            (drawn[m - 1][:members], [one for larger in drawn[m:] for one in larger[:each]])
        )
    return pairs


def visits(kernel: bellman.Kernel, policy: Ints, start: Floats, discount: float = 1.0) -> Floats:
    """Return the probability of being in s at step h [H, S]."""
    found, every = np.zeros(policy.shape), np.arange(start.size)
    here, actions = start, kernel.reward.size // start.size
    for h, acts in enumerate(policy):
        found[h] = here
        here = np.asarray(here @ kernel.matrix[every * actions + acts]) / discount
    return found


def at_stake(kernel: bellman.Kernel, known: Known, start: Floats) -> float:
    """Return how much more the best policy earns than the worst."""
    negative = np.where(
        np.isfinite(kernel.reward), -kernel.reward, -np.inf
    )  # what is not allowed stays so
    both = (kernel, bellman.Kernel(kernel.matrix, negative))
    return float(
        sum(start @ bellman.solve([each], known.states, known.horizon)[0][0] for each in both)
    )


def episodes_until(rate: float, most: Callable[[float], float]) -> float:
    """Return the smallest n from which on n d - sqrt(2 n d) exceeds ``most(n)``; infinite if that is never."""

    def rejected(n: float) -> bool:
        return n * rate - math.sqrt(2.0 * n * rate) > most(n)

    if rate == math.inf:
        return 1.0
    if rate <= _NOTHING or not rejected(MOST_EPISODES):
        return math.inf
    low, high = 0.0, float(MOST_EPISODES)
    while high - low > 1e-6 * high:
        middle = math.sqrt(max(low, 1e-6) * high) if high > 4.0 * low else 0.5 * (low + high)
        low, high = (low, middle) if rejected(middle) else (middle, high)
    return high


class Rates:
    """How fast evidence grows against the kernels of each class, and what it has to exceed."""

    def __init__(self, ladder: Ladder, known: Known, delta: float, evidence: str) -> None:
        self.ladder, self.known, self.delta, self.radius = ladder, known, delta, ladder.reach[-1]
        self.by_likelihood, self.pairs = (
            evidence == "likelihood",
            np.arange(known.states) * known.actions,
        )
        if ladder.finite:
            self.log_prior = (
                likelihood.log_weights(ladder) if self.by_likelihood else np.log(ladder.prior)
            )
        if self.by_likelihood:
            members = Members.of(ladder.family, known)
            self.symbols = members.symbols
            with np.errstate(divide="ignore"):
                self.logs = np.log(
                    members.probability(slice(0, ladder.sizes[-2] if ladder.classes > 1 else 0))
                )

    def rows(self, plan: Candidate) -> Floats:
        """Return the rows x [H, S, n] of a plan."""
        each = (
            value.rows(self.ladder.features, self.known, following).x
            for following in plan.values[1:]
        )
        return np.array([x[self.pairs + acts] for x, acts in zip(each, plan.policy, strict=True)])

    def gram(self, plan: Candidate, rows: Floats, visited: Floats) -> Floats:
        """Return the expected sum of x x' in an episode [G, n, n]."""
        features = self.ladder.features
        found, group = (
            np.zeros((features.groups, *[features.width] * 2)),
            features.group[self.pairs + plan.policy],
        )
        for g in np.unique(group):
            found[g] = (rows[group == g] * visited[group == g][:, None]).T @ rows[group == g]
        return found

    def until(
        self, m: int, plan: Candidate, rows: Floats, truth: Candidate, visited: Floats
    ) -> tuple[float, float]:
        """Return the episodes until class m is rejected, and until the kernel that is played is.

        ``rows`` are those of the plan, and ``visited`` [H, S] how probable its states are under the
        truth.
        """
        ladder = self.ladder
        if not ladder.finite:
            gram = self.gram(plan, rows, visited)
            eigen = np.maximum(np.linalg.eigvalsh(gram), 0.0)
            xy, gap = (gram @ truth.theta[:, :, None])[:, :, 0], (plan.theta - truth.theta)[None]
            least = ladder.smallest_loss(m, gram, xy) + float((truth.theta * xy).sum())
            own = float(value.losses(gap, gram, np.zeros_like(xy))[0])

            def determinant(n: float) -> float:
                return 0.5 * float(np.log1p(n * eigen).sum()) + math.log(1.0 / self.delta)

            return episodes_until(2.0 * least, determinant), episodes_until(2.0 * own, determinant)
        size = ladder.sizes[m - 1]
        if self.by_likelihood:
            played = (self.pairs + plan.policy).ravel()
            visits = np.bincount(played, visited.ravel(), self.pairs.size * self.known.actions)
            law = self.symbols.join(truth.probability[None])[0]
            weight = visits[self.symbols.outcomes.pair] * law
            seen = weight > 0.0
            rates = float(weight[seen] @ np.log(law[seen])) - self.logs[:size, seen] @ weight[seen]
        else:
            gram = self.gram(plan, rows, visited)
            rates = 2.0 * value.losses(
                ladder.family.theta[:size] - truth.theta, gram, np.zeros(gram.shape[:2])
            )
        price = math.log(1.0 / level(self.radius, self.delta)) - float(self.log_prior[truth.number])
        price += math.log(2.0 / self.delta) if self.radius else 0.0

        def most(n: float) -> float:
            return price + n * self.known.horizon * self.radius**2

        return episodes_until(float(rates.min()), most), episodes_until(
            float(rates[plan.number]), most
        )


def played_alone(
    by: ParametricEvidence, m: int, truth: Floats, start: Floats
) -> tuple[float, float, float]:
    """Return how fast evidence against class m (from 1) grows in an episode if it plays alone, steps, and its loss.

    ``truth`` are parameters as shares of the box. The class plays the best policy of its fit and
    fits what it sees.
    """
    known, free, theta = by.known, by.free[m - 1], by.default.copy()
    theta[free] = truth[free]
    law, kernel = by.probability(truth), by.kernel(truth)
    best = bellman.solve([kernel], known.states, known.horizon)[0][0]
    for _ in range(_TURNS):
        policy = bellman.solve([by.kernel(theta)], known.states, known.horizon)[1]
        seen = visits(kernel, policy, start, known.discount)
        row = by.model.row_of(np.arange(known.states), policy)  # [H, S], -1 at rest
        steps = np.bincount(row[row >= 0], seen[row >= 0], len(by.model.pairs))
        counts = steps[by.row] * law
        came = np.flatnonzero(counts > 0.0)
        data = Counts(
            np.flatnonzero(steps).tolist(),
            came,
            counts[came],
            np.log(law[came]),
            np.zeros(steps.size),
        )
        fit = by.fit(data, free, by.starts(theta, True))
        theta = fit.theta
    loss = start @ (best - bellman.evaluate([kernel], policy)[0])
    return max(-fit.likelihood - fit.slack, 0.0), float(steps.sum()), float(loss)


def _real(
    ladder: ParametricLadder,
    known: Known,
    episodes: int,
    delta: float,
    truths: int,
    least_loss: float | None,
) -> Preflight:
    """Try truths inside the boxes of richer classes against each class with real parameters."""
    by, start = (
        ParametricEvidence(ladder, known, delta),
        law_of_starts(known, np.zeros(known.states, np.int64)),
    )
    found, typical, tried = list[UnidentifiablePair](), list[float](), 0
    for m in range(1, ladder.classes):
        times = []
        for richer, number in (
            (m2, i) for m2 in range(m + 1, ladder.classes + 1) for i in range(truths)
        ):
            truth, free = by.default.copy(), by.free[richer - 1]
            truth[free] = spread_points(len(free), truths)[number]
            rate, steps, loss = played_alone(by, m, truth, start)
            price, half = math.log((ladder.classes + 1) / delta), 0.5 * len(free)

            def most(
                n: float, price: float = price, half: float = half, steps: float = steps
            ) -> float:
                return price + half * math.log1p(n * steps)

            times.append(max(1.0, episodes_until(rate, most)))
            least = (
                _SHARE * at_stake(by.kernel(truth), known, start)
                if least_loss is None
                else least_loss
            )
            if loss > least and times[-1] > episodes:
                point = by.point(truth)
                named = ", ".join(f"{name} = {point[name]:.3g}" for name in ladder.free[richer - 1])
                amount = known.unit.scale * loss
                found.append(UnidentifiablePair(m, -1, richer, number, amount, times[-1], named))
        typical.append(float(np.median(times)))
        tried += len(times)
    about: dict[str, Any] = {"pairs_tried": tried, "unidentifiable": found, "rejection": typical}
    return Preflight(ladder=ladder, episodes=episodes, delta=delta, evidence="likelihood", **about)


def preflight(
    ladder: Ladder | ParametricLadder,
    known: Known | None = None,
    *,
    episodes: int,
    delta: float = 0.05,
    evidence: Literal["value", "likelihood"] | None = None,
    truths: int | None = None,
    members: int | None = None,
    least_loss: float | None = None,
) -> Preflight:
    """Look for unidentifiable pairs, and predict how long each class takes to be rejected if it is wrong.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("patchy-ice")
    >>> ladder, known = orl.Ladder.of_problem(problem), problem.mdp.known
    >>> report = orl.preflight(ladder, known, episodes=500, truths=8, members=8)  # print it
    >>> agent = report.selector()

    Parameters
    ----------
    ladder : Ladder or ParametricLadder
    known : Known
        ``mdp.known`` of the problem; episodes start anywhere where it does not say. Models with
        real parameters know it themselves.
    episodes : int
    delta : float
    evidence : "value" | "likelihood", optional
        By what classes are to be rejected, as :class:`ARLGen` (the default) or as :class:`Occam`
        does, which alone judges real parameters.
    truths, members : int, optional
        The most kernels outside and inside each class to try; 64 of a list, 6 of a linear class. Of
        real parameters 6 truths in each richer class, and the best fit inside.
    least_loss : float, optional
        What counts as much, per episode, in the unit of the rewards; by default 1 % of the most
        that the best policy earns above the worst.
    """
    require_kind("ladder", ladder, (Ladder, ParametricLadder))
    if isinstance(ladder, ParametricLadder):
        known, evidence = ladder.model.known if known is None else known, evidence or "likelihood"
    require_kind("known", known, Known)
    assert known is not None  # noqa: S101  # for mypy
    require_integer("episodes", episodes, 1)
    require_number("delta", delta, 1e-300, 1.0)
    evidence = evidence or "value"
    require_choice("evidence", evidence, ("value", "likelihood"))
    few = 64 if ladder.finite else 6
    truths = require_integer("truths", few if truths is None else truths, 1)
    members = require_integer("members", few if members is None else members, 1)
    require_number("least_loss", 0.0 if least_loss is None else least_loss, 0.0, math.inf)
    if not known.rewards_known:
        raise ParameterError(
            "known", got="sizes alone", expected="rewards too: policies are compared by them"
        )
    if least_loss is not None:
        least_loss /= known.unit.scale
    if isinstance(ladder, ParametricLadder):
        if evidence == "value":
            raise ParameterError(
                "evidence",
                got='"value"',
                expected='"likelihood", or a list of models for value rows',
            )
        return _real(ladder, known, episodes, delta, truths, least_loss)
    if evidence == "likelihood":
        Occam(ladder=ladder)  # refuses what it cannot play
    start = law_of_starts(known, np.zeros(known.states, np.int64))
    pairs = candidates(ladder, known, members, truths)
    if least_loss is None:
        stakes = (at_stake(one.kernel, known, start) for _, outside in pairs for one in outside)
        least_loss = _SHARE * max(stakes, default=0.0)
    rates, typical, tried = Rates(ladder, known, delta, evidence), list[float](), 0
    unidentifiable: list[UnidentifiablePair] = []
    for m, (ours, theirs) in enumerate(pairs, start=1):
        times = []
        for plan in ours:
            rows = rates.rows(plan)
            for truth in theirs:
                loss = float(
                    start @ (truth.values[0] - bellman.evaluate([truth.kernel], plan.policy)[0])
                )
                of_class, own = rates.until(
                    m, plan, rows, truth, visits(truth.kernel, plan.policy, start, known.discount)
                )
                times.append(of_class)
                if loss > least_loss and own > episodes:
                    loss = known.unit.scale * loss
                    pair = UnidentifiablePair(
                        m, plan.number, truth.first, truth.number, loss, of_class
                    )
                    unidentifiable.append(pair)
        typical.append(float(np.median(times)) if times else math.inf)
        tried += len(times)
    grid = math.inf
    if rates.radius:  # until the cover radius outweighs the noise
        grid = math.log(ladder.family.size / delta) / (known.horizon * rates.radius**2)
    found: dict[str, Any] = {
        "pairs_tried": tried,
        "unidentifiable": unidentifiable,
        "rejection": typical,
    }
    return Preflight(
        ladder=ladder,
        episodes=episodes,
        delta=delta,
        evidence=evidence,
        grid_episodes=grid,
        **found,
    )
