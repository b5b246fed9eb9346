r"""Evidence against simulators that can only be run: exchangeability with fresh draws (B8).

**The test.** At a real step $(s,a) \to y$ let $x_1, \dots, x_N$ be fresh draws of a member at
$(s,a)$, and $w \ge 0$ a score fixed before $y$ and the $x_i$ are seen. If the member is the truth,

.. math:: e = \frac{(N+1)\,w(y)}{w(y) + \sum_i w(x_i)}, \qquad E[e \mid \text{past}] = 1,

since $y$ and the $x_i$ are exchangeable and their $N+1$ values of $e$ add up to $N+1$. The product over steps of
$.01 + .99\,e$ is a test martingale. Two of them, one with $w$ and one with $w^{0.3}$, have half of the capital each,
and a member is rejected for ever when the capital reaches $1/\delta$ (Ville); a class, when all its members are.

**The score** is a bet, $w = q/p$. $p$ is the member's own law at $(s,a)$, fitted to a *second*
batch of its draws: a core, and a broad part for the share of draws far from it. $q$ mixes such fits
of the other members, by weight, with the laws of its own errors (:mod:`occamrl.control.errors`),
each in proportion to how well it has predicted so far. All members are fitted with common random
numbers, so that errors of the fits cancel in $q/p$. The draws that are ranked have numbers of their
own: members may use up random numbers differently, so that no part of one stream is free of what
another member was fitted to. A bad score costs power, never validity.

**Weights** of members are Bayes' with the fits for likelihoods: synthetic, for acting and for $q$,
without guarantee.

**Cost.** Of many members a window of :data:`AWAKE` is awake at a step: the :data:`TOP` heaviest,
which make $q$, and the others in turn, fixed before the step. Those asleep bet nothing, and are
taken to predict as the mixture does, so that their weight stays (as of sleeping experts); those
rejected sleep for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln
from scipy.stats import chi2

from occamrl.control import errors
from occamrl.control.errors import Predicted, student
from occamrl.control.ladder import FAR, Simulator, SimulatorLadder
from occamrl.protocols import Floats, Ints

AWAKE, TOP = 32, 8  # members that are tested at a step at most; those that make q
MIXED = 0.01  # of every bet that is held back, and of the laws of q that is shared evenly
TEMPERED = 0.3  # the exponent of the second score


class Laws(NamedTuple):
    """Laws of members at a step: a core, and a broad part for what lies far from it."""

    mean: Floats  # [m, d] of the core
    whiten: Floats  # [m, d, d] the inverse of L, LL' the covariance of the core
    log_det: Floats  # [m] of L
    far: Floats  # [m] the share that lies far away
    middle: Floats  # [m, d] of that share, as errors
    width: Floats  # [m, d]
    dof: float

    def errors(self, points: Floats) -> Floats:
        """Return L^{-1}(x - mean) of points [..., m, p, d]."""
        return (points - self.mean[:, None]) @ self.whiten.transpose(0, 2, 1)

    def core(self, z: Floats) -> Floats:
        """Return the log density of errors z [..., m, p, d] by the core, Student's law."""
        d, dof = z.shape[-1], self.dof
        constant = gammaln((dof + d) / 2) - gammaln(dof / 2) - 0.5 * d * math.log(dof * math.pi)
        found: Floats = constant - 0.5 * (dof + d) * np.log1p(
            np.einsum("...d,...d->...", z, z) / dof
        )
        return found - self.log_det[:, None]

    def with_far(self, core: Floats, z: Floats) -> Floats:
        """Return the log density of a core [..., m, p] and the broad part, at errors z [..., m, p, d]."""
        broad = student((z - self.middle[:, None]) / self.width[:, None], 3.0).sum(axis=-1)
        broad -= (np.log(self.width).sum(axis=1) + self.log_det)[:, None]
        found: Floats = np.logaddexp(
            core + np.log1p(-self.far)[:, None], broad + np.log(self.far)[:, None]
        )
        return found


def fit(state: dict[str, Any], members: Ints, draws: Floats, resolution: Floats) -> Laws:
    """Return the laws of members by draws [m, N, d]; what lies far from their cores is remembered.

    The core is found as by a reweighted minimum covariance determinant: mean and covariance of the
    draws nearest to the median, then of all draws that are not far from these, as a Student law
    with N - d degrees of freedom. Draws far from the core (jumps) are rare, so that share, mean and
    width of theirs, in units of the core, are those of all steps so far.
    """
    _, n, d = draws.shape
    floor, dof = np.diag((0.1 * resolution) ** 2), float(max(n - d, 4))

    def moments(weight: Floats, factor: float) -> tuple[Floats, Floats, Floats]:
        total = weight.sum(axis=1)
        mean = np.einsum("mn,mnd->md", weight, draws) / total[:, None]
        around = draws - mean[:, None]
        covariance = (
            (around * weight[..., None]).transpose(0, 2, 1)
            @ around
            * (factor / (total - 1))[:, None, None]
        )
        diagonal = np.einsum("mii->mi", covariance)[:, None] * np.eye(d)
        shrink = np.maximum(0.0, 1 - (total - 1) / (2 * d))[:, None, None]  # where draws are few
        root = np.linalg.cholesky((1 - shrink) * covariance + (shrink + 1e-9) * diagonal + floor)
        whiten = np.linalg.inv(root)
        return mean, whiten, (draws - mean[:, None]) @ whiten.transpose(0, 2, 1)

    around = np.abs(draws - np.median(draws, axis=1, keepdims=True))
    scaled = around / (np.median(around, axis=1, keepdims=True) + 0.1 * resolution)
    half = (
        np.argsort(np.einsum("mnd,mnd->mn", scaled, scaled), axis=1, kind="stable").argsort(axis=1)
        < 0.6 * n
    )
    limit, narrowed = core_of(d)
    first = moments(half.astype(float), 1 / narrowed)[2]
    kept = half | (np.einsum("mnd,mnd->mn", first, first) < limit)
    mean, whiten, z = moments(kept.astype(float), 1 + 1 / n)
    z = np.clip(z, -1e6, 1e6) * ~kept[..., None]
    state["far"][members] += np.concatenate(
        [(~kept).sum(axis=1, keepdims=True), z.sum(axis=1), (z * z).sum(axis=1)], 1
    )
    count, sums, squares = np.split(state["far"][members], [1, 1 + d], axis=1)
    middle = sums / (count + 1)
    width = np.sqrt((squares + 9.0) / (count + 1) - middle**2)
    share = (count[:, 0] + 0.5) / (n * (1 + state["awake"][members]) + 1)
    return Laws(
        mean, whiten, -np.log(np.einsum("mii->mi", whiten)).sum(axis=1), share, middle, width, dof
    )


@cache
def core_of(d: int) -> tuple[float, float]:
    """Return which squared distance is far in d dimensions, and by how much .6 of the draws narrow a covariance."""
    return float(4 * chi2.ppf(0.975, d)), float(chi2.cdf(chi2.ppf(0.6, d), d + 2) / 0.6)


def bet(log_w: Floats) -> Floats:
    """Return log(.01 + .99 e) of log scores [..., N + 1], those of y first: e of B8."""
    largest = log_w.max(axis=-1, keepdims=True)
    share = np.exp(log_w - np.where(np.isfinite(largest), largest, 0.0))
    total = share.sum(axis=-1)
    e = np.divide(share[..., 0] * log_w.shape[-1], total, out=np.ones_like(total), where=total > 0)
    found: Floats = np.log(MIXED + (1 - MIXED) * e)
    return found


def log_sum(values: Floats, axis: int) -> Floats:
    """Return the log of the sum of exponentials."""
    largest = values.max(axis=axis, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        found: Floats = np.log(np.exp(values - largest).sum(axis=axis)) + largest.squeeze(axis)
    return found


def rows_of(
    level: Ints, log_weight: Floats, features: int, seen: int, states: int
) -> dict[str, Any]:
    """Return what is kept of members before any data: ``seen`` coordinates of the view, ``states`` of the state."""
    members = level.size
    return {
        "level": level.copy(),
        "capital": np.full((members, 2), math.log(0.5)),  # log, of the two bets
        "peak": np.zeros(members),  # the largest log capital so far
        "rejected": np.full(members, -1),  # after how many steps; -1 if it is not
        "log_weight": log_weight,
        "laws": np.full(
            (members, 1 + errors.LAWS), -math.log(1 + errors.LAWS)
        ),  # log weights of what q is made of
        "far": np.zeros(
            (members, 1 + 2 * seen)
        ),  # draws far from the core: their number, sum and squares
        **errors.begin(members, features, seen, states),
    }


def begin(ladder: SimulatorLadder, dimension: int) -> dict[str, Any]:
    """Return the evidence before any data; all that changes is in here."""
    classes, seen = len(ladder.names), ladder.resolution.size
    sizes, features = (
        np.bincount(ladder.level, minlength=classes),
        1 + seen + ladder.actions.dimension,
    )
    log_weight = -np.log(sizes[ladder.level] * classes)
    return {"steps": 0, **rows_of(ladder.level, log_weight, features, seen, dimension)}


def enlarge(state: dict[str, Any], level: int, log_weight: float) -> None:
    """Add a member in mid-run: it begins with capital 1."""
    sizes = state["gram"].shape[1], state["absolute"].shape[1], state["noise"].shape[1]
    for name, value in rows_of(np.array([level]), np.array([log_weight]), *sizes).items():
        state[name] = np.concatenate([state[name], value])


def alive(state: dict[str, Any]) -> Ints:
    """Return the members that are not rejected."""
    return np.flatnonzero(state["rejected"] < 0)


def ranking(state: dict[str, Any]) -> Ints:
    """Return the members by weight, heaviest first: those that are not rejected, or all where all are."""
    left = alive(state)
    left = left if left.size else np.arange(state["level"].size)
    return left[np.argsort(-state["log_weight"][left], kind="stable")]


def awake(state: dict[str, Any]) -> tuple[Ints, int]:
    """Return the members that are run at the next step, and how many, the first, make q; a matter of the past."""
    order = ranking(state)
    top, others = order[:TOP], np.sort(order[TOP:])
    if not alive(
        state
    ).size:  # misspecified: only those that fit best are run, to learn their errors
        others = others[:0]
    window = min(AWAKE - TOP, others.size)
    turn = (state["steps"] * window + np.arange(window)) % max(1, others.size)
    return np.concatenate([top, others[turn]]), top.size


def observe(
    state: dict[str, Any],
    ladder: SimulatorLadder,
    members: Sequence[Simulator],
    transition: tuple[Floats, Floats, Floats],
    address: Callable[[str], np.random.Generator],
    delta: float,
) -> Floats:
    """Take note of one real step; return its features, what came, and its mean and scale by the heaviest member.

    ``address`` gives fresh generators by purpose.
    """
    s, a, y = transition
    n, (active, top) = ladder.draws, awake(state)
    states, actions = np.repeat(s[None], n, axis=0), np.repeat(a[None], n, axis=0)
    batches = [
        [members[i](states, actions, address(purpose)) for i in active]
        for purpose in ("ranked", "fits")
    ]
    drawn = np.clip(np.nan_to_num(np.concatenate(batches, axis=1), nan=FAR), -FAR, FAR)
    noise = ladder.resolution * address("resolution").normal(
        size=(2 * n + 1, ladder.resolution.size)
    )
    seen = ladder.view(np.concatenate([y[None], drawn.reshape(-1, s.size)]))
    outcome, views = seen[0] + noise[0], seen[1:].reshape(active.size, 2 * n, -1) + noise[1:]
    laws = fit(
        state, active, views[:, n:], ladder.resolution
    )  # by the second batch; the first is ranked
    points = np.concatenate(
        [np.broadcast_to(outcome, (active.size, 1, outcome.size)), views[:, :n]], axis=1
    )
    phi = errors.features(ladder, ladder.view(s[None])[0], a)
    log_e, log_p, predicted = score(state, active, top, laws, points, phi)
    # the capital of the bets, and who is rejected
    state["steps"] += 1
    state["awake"][active] += 1
    state["capital"][active] += log_e
    capital = log_sum(state["capital"][active], axis=1)
    state["peak"][active] = np.maximum(state["peak"][active], capital)
    fallen = active[(capital >= math.log(1 / delta)) & (state["rejected"][active] < 0)]
    state["rejected"][fallen] = state["steps"]
    # weights, and what is learned of the errors
    prior = state["log_weight"][active[:top]]
    mixture = log_sum(prior - log_sum(prior, axis=0) + log_p[:top], axis=0)
    state["log_weight"][active] += log_p - mixture
    state["log_weight"] -= log_sum(state["log_weight"], axis=0)
    middle = drawn[:, n:].mean(axis=1)
    z = np.clip(laws.errors(points[:, :1])[:, 0], -1e6, 1e6)
    predicted.learn(z, np.clip(y - middle, -FAR, FAR))
    return np.concatenate([phi, y, middle[0], drawn[0, n:].std(axis=0)])


def score(
    state: dict[str, Any], active: Ints, top: int, laws: Laws, points: Floats, phi: Floats
) -> tuple[Floats, Floats, Predicted]:
    """Return the two log bets of each member [m, 2], its log density of the outcome [m], and what errors it expects.

    Weights of what q is made of are renewed afterwards, by how well each part predicted the
    outcome.
    """
    z = laws.errors(points)  # [m, N + 1, d] under each member's own law
    log_p = laws.with_far(laws.core(z), z)
    best = laws._replace(**{name: getattr(laws, name)[:top] for name in laws._fields[:-1]})
    there = best.errors(points[:, None])
    others = best.with_far(best.core(there), there)  # [m, top, N + 1]
    weight = np.tile(state["log_weight"][active[:top]], (active.size, 1))
    weight[active[:, None] == active[:top]] = -np.inf  # the other members
    alone = ~np.isfinite(weight).any(axis=1)
    rivals = (
        log_sum(others + weight[:, :, None], axis=1)
        - np.where(alone, 0.0, log_sum(weight, axis=1))[:, None]
    )
    predicted = Predicted(state, active, phi)
    own = predicted.log_density(z) - laws.log_det[:, None]
    own = laws.with_far(own, z)  # the core has errors; what is far stays
    parts = np.concatenate([rivals[None], own])  # [laws, m, N + 1]
    mixed = state["laws"][active].T
    log_w = log_sum(mixed[:, :, None] + parts, axis=0) - log_p
    log_e = np.stack([bet(log_w), bet(TEMPERED * log_w)], axis=1)
    after = mixed + parts[:, :, 0]
    share = (1 - MIXED) * np.exp(after - log_sum(after, axis=0)) + MIXED / len(parts)
    state["laws"][active] = np.log(share).T
    return log_e, log_p[:, 0], predicted


def classes(state: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the facts about classes: evidence against each, members left, since when rejected, which is needed."""
    level, rejected = state["level"], state["rejected"]
    left = [int(((level <= m) & (rejected < 0)).sum()) for m in range(len(names))]
    since = [None if n else int(rejected[level <= m].max()) for m, n in enumerate(left)]
    against = [float(state["peak"][level <= m].min()) for m in range(len(names))]
    chosen = next((m for m, n in enumerate(left, start=1) if n), 0)
    return {
        "names": list(names),
        "chosen": chosen or len(names),
        "misspecified": chosen == 0,
        "statistics": against,
        "alive": left,
        "rejected_after": since,
    }
