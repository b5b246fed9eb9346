r"""Which agents differ: paired tests that are safe for many agents, and for looking between seeds.

Agents that play the same seeds are compared seed by seed. If two agents are equal, their regrets of
a seed may change places, so that each difference :math:`D_s` is as likely as :math:`-D_s`.

**A fixed number of seeds.** The sign-flip test: how many of the :math:`2^n` choices of signs give a
mean of at least the size that was seen; exactly up to 14 seeds, and by 9,999 draws beyond.

**Adding seeds while looking.** Given the sizes :math:`|D_s|`, the signs are fair coins, on which
one can bet: with :math:`b_s = \lambda |D_s|/\text{median}(|D_1|, \dots, |D_s|)`, at most 3,

.. math:: E = \frac1{2J} \sum_{j} \sum_{\pm}
    \prod_s \frac{e^{\pm b_s \mathrm{sign} D_s}}{\cosh b_s}, \qquad
    \lambda_j \in \{\tfrac18, \tfrac14, \tfrac12, 1, 2\},

is a martingale, and 1/max E a p-value at every time, whenever one stops (Ville).

**Many pairs.** Holm's rule at level alpha over all pairs: all claims together are right with
probability 1 - alpha. As the p-values of the second kind hold at all times at once, so does that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from occamrl.addresses import generator
from occamrl.answers.tables import Row, frame_of, table_of_rows, text_table
from occamrl.answers.wording import count_of
from occamrl.arrays import Floats
from occamrl.errors import require_choice, require_number
from occamrl.naming import printable_name

Method = Literal["fixed", "sequential"]
_EXACT = 14  # seeds up to which all signs are tried
_DRAWS = 9_999
_ROUNDING = 1e-12
_BETS = (0.125, 0.25, 0.5, 1.0, 2.0)
_LARGEST_BET = 3.0


class Pair(NamedTuple):
    """Two agents on a problem; ``mean`` is the regret of the first less that of the second."""

    first: str
    second: str
    seeds: int
    mean: float
    p: float  # adjusted for the number of pairs
    differ: bool  # whether the test says that they differ


class PairTests(tuple[Pair, ...]):
    """The tests of all pairs. Print them, or take ``rows`` or ``to_pandas()``."""

    level: float
    method: Method

    @property
    def rows(self) -> list[Row]:
        """A row for each pair."""
        return [pair._asdict() for pair in self]

    def to_pandas(self) -> Any:
        """Return the rows as a data frame of pandas."""
        return frame_of(table_of_rows(self.rows))

    @property
    def equal(self) -> list[tuple[str, str]]:
        """The pairs that the tests do not tell apart."""
        return [(pair.first, pair.second) for pair in self if not pair.differ]

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the tests say, in words."""
        if not self:
            return ()
        how = "a fixed number of seeds" if self.method == "fixed" else "seeds added while looking"
        level = f"{self.level:g}"
        least = 2.0 ** (1 - max(pair.seeds for pair in self)) * len(self)
        said = [f"Paired sign-flip tests with Holm's correction at {level}, for {how}."]
        if self.method == "fixed" and least > self.level:
            seeds = count_of(max(pair.seeds for pair in self), "seed")
            tested = count_of(len(self), "pair")
            said.append(f"With {seeds} and {tested} no difference can pass them all: add seeds.")
        for pair in self:
            if pair.differ:
                less, more = (printable_name(pair.first), printable_name(pair.second))
                if pair.mean > 0.0:
                    less, more = more, less
                said.append(f"{less} has less regret than {more} (p = {pair.p:.2g}).")
        if self.equal:
            pairs = [" and ".join(map(printable_name, pair)) for pair in self.equal]
            names = "; ".join(pairs)
            said.append(f"Not told apart: {names}.")
        return tuple(said)

    def __str__(self) -> str:
        rows = []
        for pair in self:
            rows.append(
                {
                    "agents": f"{pair.first} - {pair.second}",
                    "seeds": pair.seeds,
                    "mean difference": pair.mean,
                    "p, adjusted": pair.p,
                    "differ": "yes" if pair.differ else "not shown",
                }
            )
        if not rows:
            return "one agent, and no pair to test"
        return "\n".join([text_table(rows), *self.sentences])

    __repr__ = __str__


def pair_tests(
    regret: Mapping[str, Mapping[int, float]], level: float = 0.05, method: Method = "fixed"
) -> PairTests:
    """Test all pairs of agents, given the regret of each by seed, in the order of the seeds."""
    require_number("level", level, 0.0, 1.0, open_low=True)
    require_choice("method", method, ("fixed", "sequential"))
    found = []
    for first, second in itertools.combinations(regret, 2):
        shared = [seed for seed in regret[first] if seed in regret[second]]
        gaps = np.array([regret[first][seed] - regret[second][seed] for seed in shared])
        p = 1.0
        if gaps.size:
            p = sign_flip(gaps) if method == "fixed" else 1.0 / largest_evidence(gaps)
        found.append((first, second, gaps, p))
    adjusted = holm([p for *_, p in found])
    pairs = []
    for (first, second, gaps, _), p in zip(found, adjusted, strict=True):
        mean = float(gaps.mean()) if gaps.size else 0.0
        pairs.append(Pair(first, second, gaps.size, mean, p, p <= level))
    tests = PairTests(pairs)
    tests.level = level
    tests.method = method
    return tests


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values that are adjusted by Holm's rule."""
    adjusted = [1.0] * len(p)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = largest
    return adjusted


def sign_flip(gaps: Floats) -> float:
    """Return the p-value of paired differences, two-sided."""
    n = gaps.size
    seen = abs(float(gaps.sum())) * (1.0 - _ROUNDING)
    if n <= _EXACT:
        signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        return float((np.abs(signs @ gaps) >= seen).mean())
    drawn = generator(0, "sign_flip").integers(0, 2, size=(_DRAWS, n)) * 2.0 - 1.0
    larger = int((np.abs(drawn @ gaps) >= seen).sum())
    return (1.0 + larger) / (1.0 + _DRAWS)


def evidence(gaps: Floats) -> Floats:
    """Return E after each of the differences [n], in their order."""
    sizes = np.abs(gaps)
    medians = np.array([np.median(sizes[: i + 1]) for i in range(gaps.size)])
    # where more than half of all are zero, a size that is not counts as the largest bet
    scaled = np.where(sizes > 0.0, np.inf, 0.0)
    np.divide(sizes, medians, out=scaled, where=medians > 0.0)
    terms = []
    for bet in _BETS:
        b = np.minimum(bet * scaled, _LARGEST_BET)
        for direction in (1.0, -1.0):
            # log of e^x / cosh x, without overflow
            x = direction * b * np.sign(gaps)
            terms.append(np.cumsum(math.log(2.0) - np.logaddexp(0.0, -2.0 * x)))
    return np.asarray(np.exp(np.logaddexp.reduce(terms, axis=0) - math.log(len(terms))))


def largest_evidence(gaps: Floats) -> float:
    """Return the largest E so far, at least 1."""
    return max(1.0, float(evidence(gaps).max()))
