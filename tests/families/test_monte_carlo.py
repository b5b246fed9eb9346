from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binom

from occamrl.errors import InvalidInput
from occamrl.models.simulators import estimate_kernel, variation_errors

DELTA, DRAWS = 0.2, 60


def failures(seed: int, share: float, runs: int = 400) -> int:
    """Estimates, of laws over two to thirty states, farther from the truth than a share of the bound."""
    count = 0
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        law = rng.dirichlet(np.full(int(rng.integers(2, 31)), 0.5))
        estimate = rng.multinomial(DRAWS, law) / DRAWS
        distance = 0.5 * np.abs(estimate - law).sum()
        count += distance > share * variation_errors(sp.csr_array(estimate[None]), DRAWS, DELTA)[0]
    return count


def test_the_error_bound_holds_and_a_tenth_of_it_does_not(test_seed: int) -> None:
    most = int(binom.isf(1e-5, 400, DELTA))
    assert failures(test_seed, 1.0) <= most
    assert failures(test_seed, 0.1) > most


def step(s: int, a: int, rng: np.random.Generator) -> int:
    return min(2, s + (rng.random() < (0.25, 0.75)[a]))


def test_an_estimate_is_made_of_frequencies_at_addresses() -> None:
    size: dict[str, Any] = {"states": 3, "actions": 2, "draws": 4_000}
    estimate = estimate_kernel(step, **size, seed=1).toarray().reshape(3, 2, 3)
    assert estimate.sum(axis=2) == pytest.approx(np.ones((3, 2)))
    assert estimate[0, :, 1] == pytest.approx([0.25, 0.75], abs=5 * np.sqrt(0.1875 / 4_000))
    assert (estimate[2, :, 2] == 1.0).all()
    again, other = (estimate_kernel(step, **size, seed=seed).toarray().reshape(3, 2, 3) for seed in (1, 2))
    assert (estimate == again).all()
    assert (estimate != other).any()


@pytest.mark.parametrize("value", [3, -1, 0.5, None, True, "0"])
def test_what_is_no_state_is_refused_with_its_pair(value: object) -> None:
    def simulate(s: int, a: int, rng: np.random.Generator) -> int:
        return value if (s, a) == (1, 1) else 0  # type: ignore[return-value]  # wrong on purpose

    with pytest.raises(InvalidInput, match=r"simulate\[1, 1\]"):
        estimate_kernel(simulate, states=3, actions=2, draws=2, seed=0)


def test_more_draws_than_a_life_has_are_refused() -> None:
    with pytest.raises(InvalidInput, match="draws"):
        estimate_kernel(step, states=3, actions=2, draws=10**9, seed=0)
