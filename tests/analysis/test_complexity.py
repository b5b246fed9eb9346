"""Complexity measures against exhaustive search, and the theorems' right-hand sides by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl.analysis.complexity import (
    Setting,
    eluder_dimension,
    linear_eluder_bound,
    norm_epochs,
    regret_bound_dimension,
    regret_bound_generic,
    regret_bound_linear,
    regret_bound_norm,
    selection_epoch_dimension,
    selection_epoch_generic,
    selection_epoch_norm,
    tau_min,
)
from occamrl.errors import FamilyError, ParameterError
from occamrl.paper.ucrl_vtr import beta_infinite


def longest_by_permutations(functions: np.ndarray, scale: float) -> int:
    """Try every order of points and every e just below a gap."""
    pairs = list(itertools.combinations(functions, 2))
    gaps = sorted({abs(f[x] - g[x]) for f, g in pairs for x in range(functions.shape[1])} - {0.0})
    best = 0
    for e in (gap * (1 - 1e-9) for gap in gaps if gap > scale):
        for order in itertools.permutations(range(functions.shape[1])):
            for length in range(1, len(order) + 1):
                i = length - 1
                if not any(
                    abs(f[order[i]] - g[order[i]]) > e and sum((f[j] - g[j]) ** 2 for j in order[:i]) <= e * e
                    for f, g in pairs
                ):
                    break
                best = max(best, length)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_the_eluder_dimension_is_that_of_exhaustive_search(seed: int) -> None:
    functions = np.round(np.random.default_rng(seed).uniform(size=(4, 5)), 2)
    for scale in (0.01, 0.3):
        exact = eluder_dimension(functions, scale)
        assert exact == longest_by_permutations(functions, scale)


def test_indicators_have_the_eluder_dimension_of_their_number() -> None:
    assert eluder_dimension(np.vstack([np.zeros(6), np.eye(6)]), 0.1) == 6
    assert eluder_dimension(np.zeros((3, 4)), 0.1) == 0
    assert linear_eluder_bound(6, 0.1, 1.0, 1.0) > 6
    with pytest.raises(ParameterError):
        eluder_dimension(np.random.default_rng(0).uniform(size=(3, 30)), 0.1)


@pytest.mark.parametrize("seed", range(3))
def test_the_smallest_cover_of_few_members_is_found(seed: int) -> None:
    kernels = np.random.default_rng(seed).dirichlet(np.full(3, 0.4), size=(8, 3, 2))
    gaps = np.abs(kernels[:, None] - kernels[None]).sum(axis=-1).max(axis=(-2, -1))
    for alpha in (0.5, 1.0, 1.5, 1.9):
        sizes = [
            len(c)
            for n in range(1, 9)
            for c in itertools.combinations(range(8), n)
            if (gaps[list(c)].min(0) <= alpha).all()
        ]
        found = orl.FiniteFamily(kernels).log_covering_number(alpha)
        assert found == pytest.approx(math.log(min(sizes)))
        twice = orl.FiniteFamily(np.concatenate([kernels, kernels]))  # too many for the search
        assert found <= twice.log_covering_number(alpha) + 1e-12


def coin(p: float) -> np.ndarray:
    return np.array([[[1.0 - p, p]], [[1.0, 0.0]]])


def one_coin(p: Any) -> np.ndarray:
    return coin(p[0])


def test_a_linear_class_without_a_kernel_says_so() -> None:
    kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(2, 3, 2))
    features = orl.FeatureMap([kernels[0], kernels[1] - kernels[0]])
    with pytest.raises(FamilyError, match="no kernel"):
        orl.LinearFamily(features=features, norm_bound=1.0, coordinates=[1]).check(np.random.default_rng(0))


def test_covering_numbers_are_no_smaller_than_the_smallest_cover() -> None:
    # One coin: sum |P - P'| = 2 |p - p'|, so an alpha-ball covers alpha of [0, 1] and ceil(1/alpha) are needed.
    family = orl.AggregationFamily(partition=[0, 1], moves=[[[0, 1]], [[0, -1]]])
    for alpha in (0.05, 0.3, 0.5, 0.9):
        assert family.log_covering_number(alpha) >= math.log(math.ceil(1.0 / alpha - 1e-9))
    assert family.log_covering_number(1.0) == 0.0  # p = 1/2 is enough
    two = orl.AggregationFamily(partition=[0, 1], actions=1)
    assert two.log_covering_number(0.1) == pytest.approx(2.0 * family.log_covering_number(0.1))
    # theta = (1, t) with |theta| <= b over "heads never" and "what p changes".
    linear = orl.LinearFamily(features=orl.FeatureMap([coin(0.0), coin(1.0) - coin(0.0)]), norm_bound=math.sqrt(2.0))
    for alpha in (0.05, 0.3, 0.5):
        assert linear.log_covering_number(alpha) >= math.log(math.ceil(1.0 / alpha - 1e-9))
        # |phi| of (0, 0): sqrt(2), of (0, 1): 1; two dimensions
        lipschitz = 1.0 + math.sqrt(2.0)
        assert linear.log_covering_number(alpha) == pytest.approx(
            2 * math.log1p(2 * math.sqrt(2.0) * lipschitz / alpha)
        )


def test_a_cover_of_a_box_covers_what_lies_between_its_points() -> None:
    """Coins p in [1/4, 3/4]: an alpha-ball covers alpha of them, so that 1/(2 alpha) points are needed at least."""
    box: dict[str, Any] = {"low": [0.25], "high": [0.75], "step": 0.125}

    family = orl.CoverFamily(one_coin, **box)
    assert family.reach == 0.125
    for j in range(1, 12):
        assert math.log(2.0 ** (j - 1)) <= family.log_covering_number(0.5**j) <= math.log(2.0 ** max(j - 1, 2) + 1)
    given = orl.CoverFamily(one_coin, **box, reach=0.125)  # perhaps not affine: nothing is known of finer grids
    assert given.log_covering_number(0.05) == math.inf
    assert given.log_covering_number(0.5) == family.log_covering_number(0.5)
    assert orl.CoverFamily(one_coin, **box, reach=0.0).log_covering_number(0.05) == pytest.approx(math.log(5))


def test_the_finite_and_the_infinite_bound_by_hand() -> None:
    """K = 7: epoch 1 of 2 episodes is lost to the selection, epoch 2 has 4 and the last one is cut to 1."""
    setting = Setting(horizon=2, episodes=7, delta=0.1)

    def bound(radius: Callable[[int, float], float], first_epoch: int = 2) -> dict[str, float]:
        return regret_bound_generic(setting, radius=radius, eluder=2.0, first_epoch=first_epoch)

    finite = bound(lambda _, level: 8 * 4 * math.log(3 / level))
    beta = [8 * 4 * math.log(3 * 4 / 0.1), 8 * 4 * math.log(3 * 8 / 0.1)]
    assert finite["selection"] == 4.0
    assert finite["eluder"] == pytest.approx(
        2 * (1 + 4 * 2) + sum(4 * math.sqrt(b * 2 * k * 2) for b, k in zip(beta, (4, 1), strict=True))
    )
    assert finite["noise"] == pytest.approx(2 * math.sqrt(2 * 8 * math.log(40)) + 2 * math.sqrt(2 * 2 * math.log(80)))
    assert finite["total"] == pytest.approx(sum(v for k, v in finite.items() if k != "total"))
    coin = orl.AggregationFamily(partition=[0, 1], moves=[[[0, 1]], [[0, -1]]])
    infinite = bound(lambda k, level: beta_infinite(coin, horizon=2, episodes=k, delta=level))
    widths = 0.0
    for k, level, j in ((4, 0.1 / 4, 3), (1, 0.1 / 8, 1)):  # 2^-j <= 1/(kH)
        level /= (j + 1) * (j + 2)
        beta_k = 8 * 4 * (j * math.log(2) + math.log(2 / level))  # 2^j intervals cover the coin
        beta_k += 4 * 4 * (2 + math.sqrt(2 * math.log(4 * 2 * k * (2 * k + 1) / level)))
        widths += 1 + 4 * 2 + 4 * math.sqrt(beta_k * 2 * k * 2)
    assert infinite["eluder"] == pytest.approx(widths)
    assert bound(lambda *_: 1.0, first_epoch=9)["total"] == 14.0  # H in every episode


@pytest.mark.parametrize(
    ("delta", "gap", "size", "error"), [(0.1, 0.5, 7, 0.0), (0.01, 0.03, 577, 0.0), (0.1, 0.2, 9, 1.0)]
)
def test_the_epoch_of_the_generic_selection_by_trying_all(delta: float, gap: float, size: int, error: float) -> None:
    """M14 a and b in every later epoch, and not in the one before."""
    for H in (2, 5):
        found = selection_epoch_generic(
            horizon=H, delta=delta, separation=gap, entropy=math.log(size), cover_error=error
        )
        fine = []
        for i in range(2, 60):
            rows, square, log_size = (2**i - 2) * H, (H - 1) ** 2, math.log(size / delta)
            kept = math.sqrt(i / 2**i) >= square * (log_size / 2 + error) / rows
            left = gap / 2 - square * (log_size + 1.5 * error) / rows > math.sqrt(i / 2**i)
            fine.append(kept and left)
        assert all(fine[found - 2 :])
        assert not fine[found - 3]


def test_tau_min_is_where_the_matrix_freedman_inequality_reaches_its_level() -> None:
    """2 d exp(-(u^2/2)/(w^2 + R u/3)) = delta/(KH) at k = tau_min, with R = 2, w^2 = 2 k, u = rho k/2."""
    for rho in (0.03, 0.4):
        setting = Setting(horizon=5, episodes=1000, delta=0.05, dimension=7, excitation=rho)
        k = tau_min(setting)
        u = rho * k / 2
        assert 2 * 7 * math.exp(-0.5 * u**2 / (2 * k + 2 * u / 3)) == pytest.approx(0.05 / 5000)
        scaled = tau_min(replace(setting, excitation=9 * rho, feature_bound=3.0))
        assert scaled == pytest.approx(k)  # phi and Sigma in other units


def radius(H: int, k: int, delta: float, d: int, b: float) -> float:
    return b**2 + H**2 * d * math.log(k * H) * math.log(k**2 * H / delta) ** 2


SPARSE = Setting(horizon=3, episodes=10**9, delta=0.05, dimension=4, norm_bound=1.2, excitation=0.5)


def test_the_epoch_of_the_support_by_trying_all() -> None:
    H, K, delta, d, b, rho = 3, 10**9, 0.05, 4, 1.2, 0.5
    for k0, gamma in ((16, 0.4), (400, 0.3), (10**6, 0.01)):
        found = selection_epoch_dimension(replace(SPARSE, initial_episodes=k0), smallest=gamma)
        fine = []
        for i in range(1, 14):
            tau = sum(6**j for j in range(i)) * math.ceil(math.sqrt(k0))
            if tau > K:
                break
            error = math.sqrt(radius(H, tau, delta, d, b) / (1 + rho * H * tau / 2))
            fine.append(tau >= tau_min(SPARSE) and error < 0.5**i and gamma - error >= 0.5**i)
        assert all(fine[found - 1 :])
        assert not any(fine[found - 2 : found - 1])
    short = replace(SPARSE, episodes=100, initial_episodes=16)
    assert selection_epoch_dimension(short, smallest=0.4) == 3  # tau_2 = 28 is within 100 episodes, tau_3 = 172 is not


def test_the_papers_initial_length_locks_the_support_at_ten() -> None:
    """Lemma 5: sqrt(k_0) = tau_min + 2 C b^2 H d log(KH) log^2(K^2 H/delta)/(rho 0.25), C = 2; i 4^i <= (6^i - 1)/5."""
    assert [i for i in range(1, 40) if 5 * i * 4**i > 6**i - 1] == list(range(1, 10))
    H, K, delta, d, b, rho = 3, 10**40, 0.05, 4, 1.2, 0.5
    long = replace(SPARSE, episodes=K)
    paper = tau_min(long) + 4 * b**2 * H * d * math.log(K * H) * math.log(K**2 * H / delta) ** 2 / (rho * 0.25)
    ours = tau_min(long) + 8 * radius(H, K, delta, d, b) / (rho * H)  # no O(.): 4^i <= 4 (6^i - 1)/5
    for gamma, (root, first) in itertools.product((0.4, 2.0**-12, 2.0**-20), ((paper, 10), (ours, 1))):
        found = selection_epoch_dimension(replace(long, initial_episodes=math.ceil(root) ** 2), smallest=gamma)
        assert math.log2(1 / gamma) < found <= max(first, math.ceil(math.log2(2 / gamma)))  # the paper's is too early


def test_the_bound_of_the_dimension_by_hand() -> None:
    """k_0 = 3: 3 + 2, 108 + 12, 3888 + 72 episodes; the last estimation is cut to 5."""
    setting = Setting(horizon=2, episodes=4018, delta=0.1, dimension=6, norm_bound=1.5, initial_episodes=3)
    found = regret_bound_dimension(setting, sparsity=2, first_epoch=1)
    assert found["selection"] == 6.0
    phases = [
        regret_bound_linear(replace(setting, episodes=k, delta=0.1 / 2**i, dimension=2))
        for i, k in ((1, 108), (2, 3888))
    ]
    assert found["exploitation"] == pytest.approx(sum(phase["total"] for phase in phases))
    full = regret_bound_linear(replace(setting, episodes=2 + 12 + 5))
    assert found["estimation"] == pytest.approx(full["total"])
    assert found["total"] == pytest.approx(6.0 + found["exploitation"] + found["estimation"])


def test_the_norm_from_epoch_to_epoch_by_hand() -> None:
    H, delta, d, rho = 4, 0.05, 3, 0.6
    setting = Setting(
        horizon=H, episodes=7 * 10**5, delta=delta, dimension=d, norm_bound=50.0, excitation=rho,
        initial_episodes=100_000,
    )  # fmt: skip
    bounds, terms = [50.0], []
    for i in range(3):
        k, level = 2**i * 100_000, delta / 2**i
        phase = Setting(horizon=H, episodes=k, delta=level, dimension=d, norm_bound=bounds[-1])
        terms.append(regret_bound_linear(phase)["total"])
        bounds.append(1.2 + 2 * math.sqrt(radius(H, k, level, d, bounds[-1]) / (1 + rho * H * k / 2)))
    assert [epoch.norm_bound for epoch in norm_epochs(setting, true_norm=1.2)] == pytest.approx(bounds[:-1])
    assert regret_bound_norm(setting, true_norm=1.2)["total"] == pytest.approx(sum(terms))
    for excess, epoch in ((50.0, 1), (bounds[1] - 1.2, 2), (0.1, 4)):
        assert selection_epoch_norm(setting, true_norm=1.2, excess=excess) == epoch
    early = norm_epochs(replace(setting, initial_episodes=10, episodes=25), true_norm=1.2)  # Sigma >= I is all
    assert early[1].norm_bound == pytest.approx(1.2 + 2 * math.sqrt(radius(H, 10, delta, d, 50.0)))
    # The recursion of lemma 6 gives i^1.5/2^(i/2), slower than 2^(-i/2) by powers of i alone; the paper has i^1.5/2^i.
    later = norm_epochs(replace(setting, episodes=2**60), true_norm=1.2)
    excesses, at = np.array([epoch.norm_bound for epoch in later]) - 1.2, np.arange(20, len(later) - 1)
    ratio = math.sqrt(2.0) * excesses[at + 1] / excesses[at]
    assert (ratio > 1.0).all()
    assert (ratio < (1 + 1 / at) ** 1.5).all()


def test_bad_arguments_of_the_bounds_are_refused_by_name() -> None:
    setting = Setting(horizon=3, episodes=10, delta=0.1, dimension=2)
    assert regret_bound_linear(replace(setting, episodes=10**60))["total"] < 10**60  # where theorems say something
    bad: list[tuple[str, Callable[[], Any]]] = [
        ("delta", lambda: replace(setting, delta=0.0)),
        ("episodes", lambda: replace(setting, episodes=0)),
        ("excitation", lambda: replace(setting, excitation=0.0)),
        ("feature_bound", lambda: regret_bound_linear(replace(setting, delta=0.5, feature_bound=1000.0))),
        ("separation", lambda: selection_epoch_generic(horizon=3, delta=0.1, separation=0.0, entropy=1.0)),
        ("smallest", lambda: selection_epoch_dimension(setting, smallest=0.0)),
    ]
    for name, call in bad:
        with pytest.raises(ParameterError, match=name):
            call()
