r"""A kernel estimated from a simulator that can only be called, and how wrong the estimate can be.

With N draws at (s, a) and the frequencies :math:`\hat p`, the total variation distance to the true law is, with
probability 1 - delta,

.. math:: \sup_B |\hat p(B) - p(B)| \le \sum_{s'} \sqrt{\hat p(s')/N} + 3\sqrt{\log(2/\delta)/(2N)}

(Cohen, Kontorovich and Wolfer, "Learning discrete distributions with infinite support", NeurIPS 2020): the first term
is twice the empirical Rademacher complexity of all events, :math:`\frac1{N}\sum_{s'} E|\sum_{i: s_i = s'} \sigma_i|`,
at most its standard deviation form; the second is McDiarmid's inequality, twice. It holds for all events at once,
which is what is needed: value functions are planned with the estimate, so they are not independent of it. It does not
need to know how many states can follow, and is small where few do.

A range-weighted target (W - c)/R lies in [-1/2, 1/2], so its mean under the estimate is wrong by at most that distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from occamrl.contracts import Floats
from occamrl.errors import ParameterError, ProbabilityError
from occamrl.problems.checks import require_integer
from occamrl.seeding import Step, stream

Simulate = Callable[[int, int, np.random.Generator], int]  # simulate(s, a, rng) -> s'

_MOST_DRAWS = 10**9


def estimate_kernel(
    simulate: Simulate, *, states: int, actions: int, draws: int, seed: int, path: tuple[Step, ...] = ()
) -> Any:
    """Return the frequencies of ``draws`` calls at every (s, a), as a sparse matrix (S*A, S).

    Each (s, a) has a generator of its own, found by its address: the estimate does not depend on any order.
    """
    pairs = states * actions
    if draws * pairs > _MOST_DRAWS:
        raise ParameterError("draws", got=draws, expected=f"at most {_MOST_DRAWS // pairs:,} for {pairs:,} pairs")
    counts = sp.lil_array((pairs, states))
    for pair in range(pairs):
        s, a = divmod(pair, actions)
        rng = stream(seed, "simulator", *path, s, a)
        try:
            drawn = [simulate(s, a, rng) for _ in range(draws)]
        except Exception as error:  # of the user's function, which may raise anything
            got = f"{type(error).__name__}: {error}"
            raise ProbabilityError("simulate", index=(s, a), got=got, expected="a next state") from error
        found = np.bincount([_next(each, s, a, states) for each in drawn], minlength=states)
        for s2 in np.flatnonzero(found):
            counts[pair, s2] = found[s2] / draws
    return sp.csr_array(counts)


def _next(value: Any, s: int, a: int, states: int) -> int:
    try:
        s2 = require_integer("next state", value, 0)
    except ParameterError:
        s2 = states
    if s2 >= states:
        expected = f"a next state in 0..{states - 1}"
        raise ProbabilityError("simulate", index=(s, a), got=repr(value), expected=expected)
    return s2


def variation_errors(estimate: Any, draws: int, delta: float) -> Floats:
    """Return a bound on the total variation error of every row of an estimate; each holds with probability 1 - delta.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> round(float(variation_errors(sp.csr_array([[0.5, 0.5]]), 10_000, 0.1)[0]), 4)  # sqrt(2/N) + 3 sqrt(log 20/2N)
    0.0509
    """
    roots = np.asarray(np.sqrt(estimate).sum(axis=1), dtype=np.float64).ravel()
    bound: Floats = roots / math.sqrt(draws) + 3.0 * math.sqrt(math.log(2.0 / delta) / (2.0 * draws))
    return np.minimum(bound, 1.0)
