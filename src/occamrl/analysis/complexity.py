r"""Complexity measures and the theorems' right-hand sides, every constant written out.

The paper states its regret theorems and selection lemmas up to constants. Section 10 of ``docs/mathematics.md`` follows
its proofs with the constants kept, and these functions are the results: bounds on the regret, term by term, and the
epochs from which a selector is right. Where the paper's own statement cannot be proved they say what holds instead.

=============  ==================================================================  ======================
finite         :func:`regret_bound_finite`, :func:`selection_epoch_generic`        theorem 1, lemma 1
infinite       :func:`regret_bound_infinite`, :func:`beta_infinite`                theorem 1, M6
linear         :func:`regret_bound_linear`                                         Jia et al. 2020
dimension      :func:`regret_bound_dimension`, :func:`selection_epoch_dimension`   theorem 2, lemmas 3 to 5
norm           :func:`regret_bound_norm`, :func:`selection_epoch_norm`             theorem 3, lemma 6
=============  ==================================================================  ======================

Covering numbers are the families' own: ``family.log_covering_number(alpha)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from occamrl.errors import ParameterError, require_number
from occamrl.models.family import Family
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.paper.ucrl_vtr import beta_infinite as beta_infinite  # M6; the letter uses it
from occamrl.paper.ucrl_vtr_lin import beta_linear
from occamrl.protocols import Floats, Known, Outcomes

_MOST_POINTS = 20  # for the exact search


def predictions(family: FiniteFamily, known: Known) -> Floats:
    """Return f(s, a, V) = (P V)(s, a) for every member, over all (s, a) and distinct V in {V*_{P,h}}: [n, points]."""
    outcomes = family.features.attach(known).outcomes
    values = family.optimal_values(known)[:, 1:].reshape(-1, known.states)
    distinct = np.unique(np.round(values, 12), axis=0)
    return np.ascontiguousarray(np.concatenate(_means(outcomes, family.probabilities(), distinct)).T)


def _means(outcomes: Outcomes, kernels: Floats, values: Floats) -> list[Floats]:
    """Return, for each V of ``values`` [k, S], (P V)(s, a) of every kernel, a column of [O, n]: k arrays [S*A, n]."""
    targets = ((outcomes.bonus + v[outcomes.next_state])[:, None] for v in values)
    return [np.add.reduceat(kernels * target, outcomes.start[:-1]) for target in targets]


def eluder_dimension(functions: Floats, scale: float) -> int:
    """Return the eluder dimension at ``scale`` by exhaustive search, for at most 20 distinct points.

    ``functions`` [n, points]. The longest sequence x_1, x_2, ... such that for some e >= scale each x_i has two members
    f, g with (f - g)(x_i) > e and sum over j < i of (f - g)^2(x_j) <= e^2. The sum does not depend on the order of
    earlier points, so sets are searched, and only the values of |f - g| matter as e.
    """
    gaps = _gaps(functions)
    if gaps.shape[1] > _MOST_POINTS:
        raise ParameterError("functions", got=f"{gaps.shape[1]} points", expected=f"at most {_MOST_POINTS}")
    return max((_longest(gaps, e) for e in np.unique(gaps[gaps > scale])), default=0)


def linear_eluder_bound(dimension: int, scale: float, norm_bound: float, feature_bound: float) -> float:
    """Return 3 d e/(e-1) log(3 + 3 (2 b g/scale)^2) + 1 (Russo and Van Roy 2013), |x| <= g and |theta| <= b."""
    ratio = 2.0 * norm_bound * feature_bound / scale
    return 3.0 * dimension * math.e / (math.e - 1.0) * math.log(3.0 + 3.0 * ratio**2) + 1.0


def separation(ladder: Ladder, known: Known, truth: int) -> tuple[float, float]:
    """Return the smallest and the mean of ((P - P*) V)^2(s, a), P the nearest of the largest class without the truth.

    Over all (s, a) and the value functions of the truth. The smallest is the paper's Delta, nearly always 0; the mean
    is what a test on many rows can use. Infinite when the truth is in the smallest class.
    """
    m = int(ladder.level[truth])
    if m == 0:
        return math.inf, math.inf
    outcomes, values = ladder.family.features.attach(known).outcomes, ladder.family.optimal_values(known)[truth, 1:]
    kernels = ladder.family.probabilities()
    gaps = kernels[:, : ladder.sizes[m - 1]] - kernels[:, truth : truth + 1]
    squares = np.stack(_means(outcomes, gaps, values)) ** 2
    return float(squares.min()), float(squares.mean(axis=(0, 1)).min())


def regret_bound_vtr(*, horizon: int, episodes: int, delta: float, radius: float, eluder: float) -> dict[str, float]:
    """Return the bound on the regret of UCRL-VTR in ``episodes`` K, which holds with probability 1 - 2 delta.

    1 + H^2 d + 4 sqrt(beta d K H) + H sqrt(2 K H log(1/delta)): ``eluder``, the sum of the widths, and ``noise``.

    Parameters
    ----------
    horizon, episodes, delta
        H, K and the level of the confidence sets; the noise takes delta once more.
    radius : float
        beta_K of M4; the radius may not fall with k.
    eluder : float
        d, the eluder dimension of (P V)(s, a) at scale 1/(KH).
    """
    H, K = horizon, episodes
    widths = 1.0 + H**2 * eluder + 4.0 * math.sqrt(radius * eluder * K * H)
    return _with_total({"eluder": widths, "noise": _noise(H, K, delta)})


def regret_bound_finite(
    *, horizon: int, episodes: int, delta: float, size: int, eluder: float, first_epoch: int
) -> dict[str, float]:
    """Return the right side of theorem 1 for finite classes.

    tau_{i*-1} H (``selection``) and :func:`regret_bound_vtr` for each epoch i >= i* of 2^i episodes at level delta/2^i
    on F_m*, with beta = 8 H^2 log(|F_m*|/delta_i). The last epoch ends with episode K. It holds with probability
    1 - 2 delta beside that of the selection.

    Parameters
    ----------
    size : int
        |F_m*|.
    eluder : float
        The eluder dimension of F_m* at scale 1/(KH).
    first_epoch : int
        i*, for instance :func:`selection_epoch_generic`. 1 for a learner that knows the class.
    """
    return _epochs(horizon, episodes, delta, eluder, first_epoch, lambda _, d: 8.0 * horizon**2 * math.log(size / d))


def regret_bound_infinite(
    *, horizon: int, episodes: int, delta: float, family: Family, eluder: float, first_epoch: int
) -> dict[str, float]:
    """Return the right side of theorem 1 for infinite classes: :func:`regret_bound_finite` with beta of M6.

    ``family`` is F_m*, whose covering numbers enter at dyadic scales.
    """

    def radius(k: int, level: float) -> float:
        return beta_infinite(family, horizon=horizon, episodes=k, delta=level)

    return _epochs(horizon, episodes, delta, eluder, first_epoch, radius)


def _epochs(
    horizon: int, episodes: int, delta: float, eluder: float, first_epoch: int, radius: Callable[[int, float], float]
) -> dict[str, float]:
    """Add up the epochs of ARL-GEN from ``first_epoch`` on; radius(k, level)."""
    require_number("delta", delta, 0.0, 1.0, open_low=True)
    played, i = min(episodes, 2**first_epoch - 2), first_epoch
    terms = {"selection": float(played * horizon), "eluder": 0.0, "noise": 0.0}
    while played < episodes:
        k, level = min(2**i, episodes - played), delta / 2**i
        base = regret_bound_vtr(horizon=horizon, episodes=k, delta=level, radius=radius(k, level), eluder=eluder)
        terms["eluder"] += base["eluder"]
        terms["noise"] += base["noise"]
        played, i = played + k, i + 1
    return _with_total(terms)


def selection_epoch_generic(
    *, horizon: int, delta: float, separation: float, entropy: float, cover_error: float = 0.0
) -> int:
    """Return i* of lemma 1: from this epoch on M14 chooses the right class, with probability 1 - 2 delta.

    The paper has 2^i >= C max(H^3 log K log(1/delta)/Delta^2, H (log |F_M| + log(1/delta))) with a C that its proof
    does not give, and no 1/Delta in the second term, which cannot be. What M21 proves (M14 a and b), with g = sqrt(i)/
    2^(i/2), tau = 2^i - 2 and R = H - 1 (for rewards r(s, a), not on transitions): the first i from which

        R^2 (l/2 + e)/(tau H) <= g,    Delta > 2 g + R^2 (2 l + 3 e)/(tau H),    l = log(|F_M|/delta).

    Parameters
    ----------
    separation : float
        Delta: a lower bound on L(P*, P)/(tau H) over the rows seen, for all P in the classes without the truth.
    entropy : float
        log |F_M|, or log N(F_M, alpha) for an infinite class.
    cover_error : float
        e = alpha T: 0 for finite classes, 1 for covers at the paper's scale 1/T (then for the epochs within T steps).
    """
    require_number("separation", separation, 0.0, math.inf, open_low=True)
    require_number("delta", delta, 0.0, 1.0, open_low=True)
    range_squared, log_size, i = (horizon - 1) ** 2 / horizon, entropy + math.log(1.0 / delta), 2
    while True:  # both conditions are monotone from i = 2 on
        slack, tau = math.sqrt(i) / 2 ** (i / 2), 2**i - 2
        kept = range_squared * (0.5 * log_size + cover_error) / tau <= slack
        if kept and separation > 2.0 * slack + range_squared * (2.0 * log_size + 3.0 * cover_error) / tau:
            return i
        i += 1


def regret_bound_linear(
    *,
    horizon: int,
    episodes: int,
    delta: float,
    dimension: int,
    norm_bound: float,
    feature_bound: float = 1.0,
) -> dict[str, float]:
    """Return the bound on the regret of UCRL-VTR-LIN with the radius M10, c = 1, for ``episodes`` K.

    2 sqrt(beta_K K H (U/log(1 + U)) d log(1 + KHg^2/d)) with U = H g^2 (``width``), and H sqrt(2 K H log(1/delta))
    (``noise``): the O(b d H^2 sqrt(K) log(KH) log(K^2 H/delta)) of Jia et al. 2020. With probability 1 - 2 delta.

    Parameters
    ----------
    dimension, norm_bound
        d and b.
    feature_bound : float
        g >= ||phi_V(s, a)|| for all V in [0, H]; the paper assumes 1. Refused where c = 1 is not proved (M10).
    """
    H, K, d, U = horizon, episodes, dimension, horizon * feature_bound**2
    noise = _noise(H, K, delta)  # checks them
    spare = d * math.log(H) * math.log(H / delta) ** 2 - (d * math.log1p(H) - 2.0 * math.log(delta)) / 4.0
    if feature_bound > 1.0 and 0.5 * d * math.log(feature_bound) > spare:
        most = math.exp(max(0.0, 2.0 * spare / d))
        raise ParameterError("feature_bound", got=feature_bound, expected=f"at most {most:.6g}, for M10 with c = 1")
    beta = beta_linear(horizon=H, episodes=K, delta=delta, dimension=d, norm_bound=norm_bound)
    potential = U / math.log1p(U) * d * math.log1p(K * U / d)
    return _with_total({"width": 2.0 * math.sqrt(beta * K * H * potential), "noise": noise})


def tau_min(
    *, horizon: int, episodes: int, delta: float, dimension: int, excitation: float, feature_bound: float = 1.0
) -> float:
    """Return tau_min(delta) of lemma 3: (16/rho^2 + 8/(3 rho)) log(2 d K H/delta).

    From this k to K, lambda_min(Sigma_k) >= 1 + rho k H/2 with probability 1 - delta. ``excitation`` is rho: in every
    episode E[sum_h x_h x_h^T | past] >= rho H I. (Assumption 2 of the paper asks for more, and cannot hold.) This is
    for ||phi_V|| <= 1; other features enter as rho/g^2, g the ``feature_bound``.
    """
    require_number("excitation", excitation, 0.0, math.inf, open_low=True)
    require_number("delta", delta, 0.0, 1.0, open_low=True)
    rho = excitation / feature_bound**2
    return (16.0 / rho**2 + 8.0 / (3.0 * rho)) * math.log(2.0 * dimension * episodes * horizon / delta)


def selection_epoch_dimension(
    *,
    horizon: int,
    episodes: int,
    delta: float,
    dimension: int,
    norm_bound: float,
    smallest: float,
    excitation: float,
    initial_episodes: int,
    feature_bound: float = 1.0,
) -> int:
    """Return i* of ARL-LIN(dim): from this epoch on the support is exact (M16), with probability 1 - 2 delta.

    After tau episodes of estimation, tau >= tau_min(delta), the error is at most e = sqrt(beta_tau/(1 + rho H tau/2)).
    All zeros are left out if e < 0.5^i, and all others kept if e + 0.5^i <= gamma: the first i from which both hold.
    With sqrt(k_0) >= tau_min(delta) + 8 beta_K(delta)/(rho H) that is max(1, ceil(log2(2/gamma))) at the latest; the
    paper has max(10, log2(1/gamma)). If no epoch within K ``episodes`` is promised, the number is one more than that of
    the last.

    Parameters
    ----------
    smallest : float
        gamma, the smallest non-zero |theta*_j|.
    excitation, feature_bound
        Of :func:`tau_min`.
    initial_episodes : int
        k_0; estimation takes 6^j ceil(sqrt(k_0)) episodes in epoch j.
    """
    require_number("smallest", smallest, 0.0, math.inf, open_low=True)
    H, d, b = horizon, dimension, norm_bound
    enough = tau_min(
        horizon=H, episodes=episodes, delta=delta, dimension=d, excitation=excitation, feature_bound=feature_bound
    )
    tau, first, i = 0, 0, 0
    while tau <= episodes:
        beta = beta_linear(horizon=H, episodes=tau, delta=delta, dimension=d, norm_bound=b)
        error = math.sqrt(beta / (1.0 + 0.5 * excitation * H * tau)) if tau >= enough else math.inf
        if not (error < 0.5**i and error + 0.5**i <= smallest):
            first = i + 1
        tau, i = tau + 6**i * _root(initial_episodes), i + 1
    return first


def regret_bound_dimension(
    *,
    horizon: int,
    episodes: int,
    delta: float,
    dimension: int,
    sparsity: int,
    norm_bound: float,
    initial_episodes: int,
    first_epoch: int,
    feature_bound: float = 1.0,
) -> dict[str, float]:
    """Return the right side of theorem 2, with every phase as long as it is within K ``episodes``.

    H for every episode of exploitation before epoch i* (``selection``), :func:`regret_bound_linear` in d* dimensions at
    level delta/2^i for each exploitation after it (``exploitation``), and once in d dimensions at level delta for all
    episodes of estimation (``estimation``). With probability 1 - 5 delta beside the 1 - 2 delta of the selection.
    """
    linear: dict[str, Any] = {"horizon": horizon, "norm_bound": norm_bound, "feature_bound": feature_bound}
    terms = {"selection": 0.0, "exploitation": 0.0, "estimation": 0.0}
    left, estimation, i = episodes, 0, 0
    while left:
        exploit = min(left, 36**i * initial_episodes)
        estimate = min(left - exploit, 6**i * _root(initial_episodes))
        if i < first_epoch:
            terms["selection"] += horizon * exploit
        else:
            phase = regret_bound_linear(episodes=exploit, delta=delta / 2**i, dimension=sparsity, **linear)
            terms["exploitation"] += phase["total"]
        left, estimation, i = left - exploit - estimate, estimation + estimate, i + 1
    if estimation:
        phase = regret_bound_linear(episodes=estimation, delta=delta, dimension=dimension, **linear)
        terms["estimation"] = phase["total"]
    return _with_total(terms)


def norm_bounds(
    *,
    horizon: int,
    episodes: int,
    delta: float,
    dimension: int,
    norm_bound: float,
    true_norm: float,
    excitation: float,
    initial_episodes: int,
    feature_bound: float = 1.0,
) -> list[float]:
    """Return upper bounds on b^(1), b^(2), ... of ARL-LIN(norm) for the epochs within K ``episodes``.

    b^(i+1) <= ||theta*|| + 2 sqrt(beta_{k_i}(delta_i; b^(i))/lambda), lambda = 1 + rho H k_i/2 from tau_min(delta_i) on
    and 1 before: the recursion of lemma 6 without its C_1, C_2, p and q. All hold with probability 1 - 4 delta.
    """
    bounds, k, level = [norm_bound], initial_episodes, delta
    while 2 * k - initial_episodes < episodes:  # played in all epochs so far
        beta = beta_linear(horizon=horizon, episodes=k, delta=level, dimension=dimension, norm_bound=bounds[-1])
        enough = tau_min(
            horizon=horizon, episodes=episodes, delta=level, dimension=dimension, excitation=excitation,
            feature_bound=feature_bound,
        )  # fmt: skip
        least = 1.0 + 0.5 * excitation * horizon * k if k >= enough else 1.0
        bounds.append(true_norm + 2.0 * math.sqrt(beta / least))
        k, level = 2 * k, level / 2.0
    return bounds


def selection_epoch_norm(*, excess: float, **parameters: Any) -> int:
    """Return the first epoch from which b^(i) <= ||theta*|| + ``excess``, one more than the last within K if none.

    ``parameters`` are those of :func:`norm_bounds`. The paper's b^(i) <= c_1 ||theta*|| + c_2 leaves both constants
    open; the excess falls like i^1.5/2^(i/2), not like i^1.5/2^i as lemma 6 has it.
    """
    bounds = norm_bounds(**parameters)
    return 1 + max((i for i, b in enumerate(bounds, start=1) if b > parameters["true_norm"] + excess), default=0)


def regret_bound_norm(**parameters: Any) -> dict[str, float]:
    """Return the right side of theorem 3, whose ``parameters`` are those of :func:`norm_bounds`.

    The sum over epochs of :func:`regret_bound_linear` with the bound b^(i) of :func:`norm_bounds` at level
    delta/2^(i-1); the last epoch ends with episode K. With probability 1 - 6 delta, as in the paper.
    """
    common = {name: parameters[name] for name in ("horizon", "dimension", "feature_bound") if name in parameters}
    left, k, level = parameters["episodes"], parameters["initial_episodes"], parameters["delta"]
    terms = {"width": 0.0, "noise": 0.0}
    for bound in norm_bounds(**parameters):
        epoch = regret_bound_linear(episodes=min(left, k), delta=level, norm_bound=bound, **common)
        terms = {name: terms[name] + epoch[name] for name in terms}
        left, k, level = left - k, 2 * k, level / 2.0
    return _with_total(terms)


def _noise(horizon: int, episodes: int, delta: float) -> float:
    """Return H sqrt(2 K H log(1/delta)), a bound on the martingale part of the regret with probability 1 - delta."""
    require_number("delta", delta, 0.0, 1.0, open_low=True)
    require_number("episodes", episodes, 1.0, math.inf)  # 10^60 is a number of episodes of which to ask
    return horizon * math.sqrt(2.0 * episodes * horizon * math.log(1.0 / delta))


def _root(episodes: int) -> int:
    """Return ceil(sqrt(k_0))."""
    return math.isqrt(episodes - 1) + 1


def _with_total(terms: dict[str, float]) -> dict[str, float]:
    return {**terms, "total": sum(terms.values())}


def _gaps(functions: Floats) -> Floats:
    """Return |f - g| for every pair of members, at the points where some differ, each point once."""
    first, second = np.triu_indices(len(functions), 1)
    gaps = np.unique(np.round(np.abs(functions[first] - functions[second]), 12), axis=0)
    gaps = np.unique(gaps, axis=1)
    return np.asarray(gaps[:, gaps.any(axis=0)])


def _longest(gaps: Floats, e: float) -> int:
    """Return the longest sequence for e just below the given number: gaps >= e after sums < e^2."""
    points = gaps.shape[1]
    layer, length = {0}, 0
    while layer:
        after: set[int] = set()
        for used in layer:
            chosen = [j for j in range(points) if used >> j & 1]
            free = (gaps[:, chosen] ** 2).sum(axis=1) < e * e
            able = (gaps[free] >= e).any(axis=0)
            after.update(used | 1 << j for j in range(points) if able[j] and not used >> j & 1)
        layer, length = after, length + 1
    return length - 1
