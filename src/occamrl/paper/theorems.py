r"""Complexity measures and the theorems' right-hand sides, every constant written out.

The paper's proofs with the constants kept give these bounds on the regret, term by term, and the
epochs from which a selector is right. Where the paper's own statement cannot be proved they say
what holds instead.

=========  ==========================================  ==========================
any class  :func:`regret_bound_generic`,               theorem 1, lemma 1
           :func:`selection_epoch_generic`
linear     :func:`regret_bound_linear`                 Jia et al. 2020
dimension  :func:`regret_bound_dimension`,             theorem 2, lemmas 3 to 5
           :func:`selection_epoch_dimension`,
           :func:`initial_episodes_dimension` (k_0)
norm       :func:`regret_bound_norm`,                  theorem 3, lemma 6
           :func:`selection_epoch_norm`,
           :func:`initial_episodes_norm` (k_1)
=========  ==========================================  ==========================

Covering numbers are the families' own: ``family.log_covering_number(alpha)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from occamrl.arrays import Floats
from occamrl.errors import ParameterError, require_delta, require_number
from occamrl.models.families import FiniteFamily
from occamrl.paper.ucrl_vtr import dense_kernels, optimal_values
from occamrl.protocols import Known

MOST_POINTS = 20  # for the exact search
_SAME = 1e-12  # a difference that is rounding


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a theorem is about: H, K and delta; for linear classes also what follows these."""

    horizon: int  # H
    episodes: int  # K; 10^60 is a number of episodes of which to ask
    delta: float  # of the confidence sets; noise takes it once more
    dimension: int = 1  # d
    norm_bound: float = 1.0  # b
    # g >= ||phi_V(s, a)|| for all V in [0, H], which the paper assumes to be 1
    feature_bound: float | None = None
    # rho: in every episode E[sum_h x_h x_h^T | past] >= rho H I
    excitation: float | None = None
    initial_episodes: int = 1  # k_0, or k_1 of ARL-LIN(norm)
    growth: float = 36.0  # of exploitation from epoch to epoch; the paper's remark names 4
    estimation_growth: float = 6.0  # of estimation; 2 in the remark
    threshold: float = 0.5  # the base of the thresholds; 0.9 in the remark

    def __post_init__(self) -> None:
        require_delta(self.delta)
        require_number("episodes", self.episodes, 1.0, math.inf)
        for name in ("feature_bound", "excitation"):
            value = vars(self)[name]
            if value is not None:
                require_number(name, value, 0.0, math.inf, open_low=True)
        require_number("growth", self.growth, 1.0, math.inf, open_low=True)
        require_number("estimation_growth", self.estimation_growth, 1.0, math.inf, open_low=True)
        require_number("threshold", self.threshold, 0.0, 1.0, open_low=True)

    @property
    def g(self) -> float:
        """The bound on the features, which is asked for."""
        if self.feature_bound is None:
            expected = "a bound on ||phi_V(s, a)||, such as occamrl.paper.feature_bound(...).upper"
            raise ParameterError("feature_bound", got=None, expected=expected)
        return self.feature_bound

    @property
    def rho(self) -> float:
        """The excitation, which is asked for."""
        if self.excitation is None:
            expected = "rho of lemma 3, an assumption; occamrl.paper.excitation measures it"
            raise ParameterError("excitation", got=None, expected=expected)
        return self.excitation

    @property
    def noise(self) -> float:
        """H sqrt(2 K H log(1/delta)): bounds the martingale part, with probability 1 - delta."""
        rows = 2.0 * self.episodes * self.horizon
        return self.horizon * math.sqrt(rows * math.log(1.0 / self.delta))

    def beta(self, episodes: int) -> float:
        """Return b^2 + H^2 d log(kH) log^2(k^2 H/delta) after k ``episodes``; k = 0 counts as 1."""
        H = self.horizon
        d = self.dimension
        k = max(1, episodes)
        logs = H**2 * d * math.log(k * H) * math.log(k**2 * H / self.delta) ** 2
        return self.norm_bound**2 + logs


def predictions(family: FiniteFamily, known: Known) -> Floats:
    """Return f(s, a, V) = (P V)(s, a) for every member [n, points].

    Points are all (s, a) with all distinct V in {V*_{P,h}}.
    """
    values = optimal_values(family, known)[0][:, 1:].reshape(-1, known.states)
    # values that differ by rounding are one point
    distinct = np.unique(np.round(values, 12), axis=0)
    return np.asarray(dense_kernels(family) @ distinct.T).reshape(family.size, -1)


def points_of(functions: Floats) -> Floats:
    """Return |f - g| of all pairs [., points], at the distinct points where some members differ."""
    first, second = np.triu_indices(len(functions), 1)
    gaps: Floats = np.unique(np.round(np.abs(functions[first] - functions[second]), 12), axis=0)
    # equal points, and points where nobody differs, make no sequence longer
    gaps = np.unique(gaps, axis=1)
    return np.asarray(gaps[:, gaps.any(axis=0)])


def eluder_dimension(functions: Floats, scale: float) -> int:
    """Return the eluder dimension at ``scale`` by exhaustive search.

    ``functions`` [n, points], of at most 20 distinct points. It is the length of the longest
    sequence x_1, x_2, ... such that for some e >= scale each x_i has two members f, g with
    (f - g)(x_i) > e and sum over j < i of (f - g)^2(x_j) <= e^2. The sum does not depend on the
    order of earlier points, so sets are searched, and only the values of |f - g| matter as e.
    """
    return _eluder(functions, scale, [frozenset()])


def printed_eluder_dimension(functions: Floats, scale: float) -> int:
    """Return the eluder dimension as the paper prints it, with the condition from i = 2 on.

    Any point may come first, so that it is the standard one or one more: one more if members agree
    at some point, such as one with V = 0, for that costs the sums nothing.
    """
    points = points_of(functions).shape[1]
    starts: list[frozenset[int]] = [frozenset([j]) for j in range(points)]
    # a point where nobody differs is none of the others
    if (np.ptp(functions, axis=0) <= _SAME).any():
        starts.append(frozenset([-1]))
    return max(1, _eluder(functions, scale, starts))


def _eluder(functions: Floats, scale: float, starts: Sequence[frozenset[int]]) -> int:
    """Return the length of the longest sequence that begins with one of some sets of points."""
    gaps = points_of(functions)
    if gaps.shape[1] > MOST_POINTS:
        expected = f"at most {MOST_POINTS}; quantities.eluder has bounds"
        raise ParameterError("functions", got=f"{gaps.shape[1]} points", expected=expected)
    levels = np.unique(gaps[gaps > scale]).tolist()
    return max((_longest(gaps, e, starts) for e in levels), default=0)


def _longest(gaps: Floats, e: float, starts: Sequence[frozenset[int]]) -> int:
    """Return the longest sequence for e just below the given number: gaps >= e after sums < e^2."""
    layer = set(starts)  # the sets of points of all sequences of one length
    length = len(next(iter(starts)))
    while layer:
        longer: set[frozenset[int]] = set()
        for points in layer:
            seen = sorted(j for j in points if j >= 0)
            close = (gaps[:, seen] ** 2).sum(axis=1) < e * e
            apart = (gaps[close] >= e).any(axis=0)
            for j in np.flatnonzero(apart).tolist():
                if j not in points:
                    longer.add(points | {j})
        layer = longer
        length += 1
    return length - 1


def linear_eluder_bound(
    dimension: int, scale: float, norm_bound: float, feature_bound: float
) -> float:
    """Return 3 d e/(e-1) log(3 + 3 (2 b g/scale)^2) + 1, for |x| <= g and |theta| <= b.

    Russo and Van Roy 2013.
    """
    ratio = 2.0 * norm_bound * feature_bound / scale
    return 3.0 * dimension * math.e / (math.e - 1.0) * math.log(3.0 + 3.0 * ratio**2) + 1.0


def regret_bound_vtr(setting: Setting, *, radius: float, eluder: float) -> dict[str, float]:
    """Return the bound on the regret of UCRL-VTR, which holds with probability 1 - 2 delta.

    1 + H^2 d + 4 sqrt(beta d K H) (``eluder``, the sum of the widths) and the ``noise``, with beta
    = ``radius`` that of the last set, which may not fall with k, and d = ``eluder`` the eluder
    dimension of (P V)(s, a) at scale 1/(KH).
    """
    H = setting.horizon
    K = setting.episodes
    widths = 1.0 + H**2 * eluder + 4.0 * math.sqrt(radius * eluder * K * H)
    return _with_total({"eluder": widths, "noise": setting.noise})


def regret_bound_generic(
    setting: Setting, *, radius: Callable[[int, float], float], eluder: float, first_epoch: int
) -> dict[str, float]:
    """Return the right side of theorem 1.

    tau_{i*-1} H (``selection``) and :func:`regret_bound_vtr` for each epoch i >= i* =
    ``first_epoch`` of 2^i episodes at level delta/2^i on F_m*, the last of which ends with episode
    K. ``radius(k, delta)`` is beta of F_m* after k episodes. It holds with probability 1 - 2 delta
    beside that of the selection.
    """
    i = first_epoch
    played = min(setting.episodes, 2**first_epoch - 2)
    terms = {"selection": float(played * setting.horizon), "eluder": 0.0, "noise": 0.0}
    while played < setting.episodes:
        # the last epoch is cut short by K
        episodes = min(2**i, setting.episodes - played)
        epoch = replace(setting, episodes=episodes, delta=setting.delta / 2**i)
        base = regret_bound_vtr(epoch, radius=radius(epoch.episodes, epoch.delta), eluder=eluder)
        terms["eluder"] += base["eluder"]
        terms["noise"] += base["noise"]
        played += epoch.episodes
        i += 1
    return _with_total(terms)


def selection_epoch_generic(
    *, horizon: int, delta: float, separation: float, entropy: float, cover_error: float = 0.0
) -> int:
    """Return i* of lemma 1: from this epoch on the paper's test chooses the right class.

    With probability 1 - 2 delta. With g = sqrt(i)/2^(i/2), tau = 2^i - 2 and R = H - 1 (for rewards
    r(s, a), not on transitions): the first i from which

        R^2 (l/2 + e)/(tau H) <= g,    Delta > 2 g + R^2 (2 l + 3 e)/(tau H),

        l = log(|F_M|/delta),

    Delta = ``separation`` being a lower bound on L(P*, P)/(tau H) over the rows seen, for all P in
    the classes without the truth, ``entropy`` log |F_M| or log N(F_M, alpha), and e =
    ``cover_error`` alpha T: 0 for finite classes.
    """
    require_number("separation", separation, 0.0, math.inf, open_low=True)
    require_delta(delta)
    range_squared = (horizon - 1) ** 2 / horizon
    log_size = entropy + math.log(1.0 / delta)
    i = 2
    while True:  # both conditions are monotone from i = 2 on
        slack = math.sqrt(i) / 2 ** (i / 2)
        tau = 2**i - 2
        kept = range_squared * (0.5 * log_size + cover_error) / tau <= slack
        noise = range_squared * (2.0 * log_size + 3.0 * cover_error) / tau
        if kept and separation > 2.0 * slack + noise:
            return i
        i += 1


def regret_bound_linear(setting: Setting) -> dict[str, float]:
    """Return the bound on the regret of UCRL-VTR-LIN with the paper's radius, c = 1.

    With probability 1 - 2 delta: 2 sqrt(beta_K K H (U/log(1 + U)) d log(1 + KU/d)) with U = H g^2
    (``width``), and the ``noise``. A ``feature_bound`` for which c = 1 is not proved is refused.
    """
    H = setting.horizon
    K = setting.episodes
    d = setting.dimension
    g = setting.g
    log = math.log(H / setting.delta)
    # the radius with c = 1 must exceed the sharp one of M11, where g enters its log-determinant
    needed = (d * math.log1p(H) - 2.0 * math.log(setting.delta)) / 4.0
    spare = d * math.log(H) * log**2 - needed
    if g > 1.0 and 0.5 * d * math.log(g) > spare:
        bound = math.exp(max(0.0, 2.0 * spare / d))
        expected = f"at most {bound:.6g}, for the radius with c = 1"
        raise ParameterError("feature_bound", got=g, expected=expected)
    U = H * g**2
    potential = U / math.log1p(U) * d * math.log1p(K * U / d)
    width = 2.0 * math.sqrt(setting.beta(K) * K * H * potential)
    return _with_total({"width": width, "noise": setting.noise})


def tau_min(setting: Setting) -> float:
    """Return tau_min(delta) of lemma 3: (16/rho^2 + 8/(3 rho)) log(2 d K H/delta).

    rho/g^2 is in place of rho. From this k to K, lambda_min(Sigma_k) >= 1 + rho k H/2 with
    probability 1 - delta.
    """
    rho = setting.rho / setting.g**2
    rows = setting.episodes * setting.horizon
    log = math.log(2.0 * setting.dimension * rows / setting.delta)
    return (16.0 / rho**2 + 8.0 / (3.0 * rho)) * log


def selection_epoch_dimension(setting: Setting, *, smallest: float) -> int:
    """Return i* of ARL-LIN(dim): from this epoch on the support is exact.

    With probability 1 - 2 delta. After tau >= tau_min(delta) episodes of estimation the error is at
    most e = sqrt(beta_tau/(1 + rho H tau/2)). All zeros are left out if e < t^i, and all others
    kept if e + t^i <= ``smallest``, the smallest non-zero |theta*_j|, t = ``threshold``: the first
    i from which both hold. If no epoch within K is promised, one more than the last.
    """
    require_number("smallest", smallest, 0.0, math.inf, open_low=True)
    enough = tau_min(setting)
    tau = 0
    first = 0
    i = 0
    while tau <= setting.episodes:
        least = 1.0 + 0.5 * setting.rho * setting.horizon * tau
        error = math.sqrt(setting.beta(tau) / least) if tau >= enough else math.inf
        level = setting.threshold**i
        # both must hold from an epoch on, so the last failure counts
        if not (error < level and error + level <= smallest):
            first = i + 1
        tau += _length(setting.estimation_growth, i, _root(setting.initial_episodes))
        i += 1
    return first


def initial_episodes_dimension(setting: Setting) -> float:
    """Return k_0 of lemma 5: (tau_min + 2 a beta_K/(rho H))^2 with a = 1/t^2, t = ``threshold``.

    With it the support is exact from epoch max(1, log(2/gamma)/log(1/t)) on, gamma the smallest
    non-zero |theta*_j|, with probability 1 - 2 delta. Estimation has to grow by a at least: by 4
    for t = 0.5, by 1.24 for 0.9.
    """
    a = setting.threshold**-2
    if setting.estimation_growth < a:
        expected = f"at least {a:.6g} for the threshold {setting.threshold:g}: no k_0 is enough"
        raise ParameterError("estimation_growth", got=setting.estimation_growth, expected=expected)
    beta = setting.beta(setting.episodes)
    root = tau_min(setting) + 2.0 * a * beta / (setting.rho * setting.horizon)
    return float(math.ceil(root) ** 2)


def regret_bound_dimension(
    setting: Setting, *, sparsity: int, first_epoch: int
) -> dict[str, float]:
    """Return the right side of theorem 2, with every phase as long as it is within K.

    H for every episode of exploitation before epoch i* (``selection``), :func:`regret_bound_linear`
    in d* dimensions at level delta/2^i for each exploitation after it (``exploitation``), and once
    in d dimensions at level delta for all episodes of estimation (``estimation``). With probability
    1 - 5 delta beside the 1 - 2 delta of the selection.
    """
    terms = {"selection": 0.0, "exploitation": 0.0, "estimation": 0.0}
    remaining = setting.episodes
    estimation = 0
    i = 0
    while remaining:
        exploit = min(remaining, _length(setting.growth, i, setting.initial_episodes))
        estimate = _length(setting.estimation_growth, i, _root(setting.initial_episodes))
        estimate = min(remaining - exploit, estimate)
        if i < first_epoch:
            terms["selection"] += setting.horizon * exploit
        else:
            level = setting.delta / 2**i
            phase = replace(setting, episodes=exploit, delta=level, dimension=sparsity)
            terms["exploitation"] += regret_bound_linear(phase)["total"]
        remaining -= exploit + estimate
        estimation += estimate
        i += 1
    if estimation:
        terms["estimation"] = regret_bound_linear(replace(setting, episodes=estimation))["total"]
    return _with_total(terms)


def norm_epochs(setting: Setting, *, true_norm: float) -> list[Setting]:
    """Return k_i, delta_i and a bound on b^(i) for the epochs i = 1, 2, ... of ARL-LIN(norm).

    b^(i+1) <= ||theta*|| + 2 sqrt(beta_{k_i}(delta_i; b^(i))/lambda), lambda = 1 + rho H k_i/2 from
    tau_min(delta_i) on and 1 before. All hold with probability 1 - 4 delta.
    """
    epochs = []
    remaining = setting.episodes
    k = setting.initial_episodes
    level = setting.delta
    bound = setting.norm_bound
    while remaining > 0:
        epoch = replace(setting, episodes=min(remaining, k), delta=level, norm_bound=bound)
        epochs.append(epoch)
        # before tau_min nothing is promised of the smallest eigenvalue but the regularisation
        least = 1.0
        if k >= tau_min(replace(setting, delta=level)):
            least += 0.5 * setting.rho * setting.horizon * k
        bound = true_norm + 2.0 * math.sqrt(epoch.beta(k) / least)
        remaining -= k
        k *= 2
        level /= 2.0
    return epochs


def selection_epoch_norm(setting: Setting, *, true_norm: float, excess: float) -> int:
    """Return the first epoch from which b^(i) <= ||theta*|| + ``excess``.

    If there is none within K, one more than the last.
    """
    last = 0
    for i, epoch in enumerate(norm_epochs(setting, true_norm=true_norm), start=1):
        if epoch.norm_bound > true_norm + excess:
            last = i
    return last + 1


def initial_episodes_norm(setting: Setting, *, true_norm: float, excess: float) -> float:
    """Return k_1 of lemma 6: the least power of 2 that keeps b^(i) <= ||theta*|| + ``excess``.

    From epoch 2 on, and with k_i >= tau_min(delta_i) in every epoch, so that lambda_min(Sigma) is
    what lemma 3 says. Infinite if no such k_1 is below K.
    """
    require_number("excess", excess, 0.0, math.inf, open_low=True)
    k = 1
    while k < setting.episodes:
        epochs = norm_epochs(replace(setting, initial_episodes=k), true_norm=true_norm)
        # the last epoch may be cut short by K
        whole = epochs[:-1] or epochs
        lengths = [k * 2**i for i in range(len(whole))]
        long_enough = all(
            length >= tau_min(replace(epoch, episodes=setting.episodes))
            for length, epoch in zip(lengths, whole, strict=True)
        )
        close = all(epoch.norm_bound <= true_norm + excess for epoch in epochs[1:])
        if long_enough and close:
            return float(k)
        k *= 2
    return math.inf


def regret_bound_norm(setting: Setting, *, true_norm: float) -> dict[str, float]:
    """Return the right side of theorem 3, over :func:`norm_epochs`.

    With probability 1 - 6 delta.
    """
    epochs = [regret_bound_linear(epoch) for epoch in norm_epochs(setting, true_norm=true_norm)]
    return {name: sum(epoch[name] for epoch in epochs) for name in ("width", "noise", "total")}


def _length(growth: float, i: int, first: int) -> int:
    """Return the episodes of phase i, exactly where the growth is a whole number."""
    if growth == int(growth):
        whole: int = int(growth) ** i * first
        return whole
    return math.ceil(growth**i * first)


def _root(episodes: int) -> int:
    return math.isqrt(episodes - 1) + 1  # ceil(sqrt(k_0))


def _with_total(terms: dict[str, float]) -> dict[str, float]:
    return {**terms, "total": sum(terms.values())}
