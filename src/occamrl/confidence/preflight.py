"""Preflight of a ladder, before any data (M26): whether its classes can be told apart by playing them.

A *blind pair* is a kernel P of a class and a kernel Q outside it such that P's optimal policy earns much less under Q
than Q's own, while the rows it produces there would take more than a given number of episodes to reject the class. Then
a small class that is wrong can confirm itself: its policy never goes where it is wrong. The remedy is optimism over all
kernels that are left, with the prior (the safe variant of M25); where the largest class is linear, audits (the guard).
"""

from __future__ import annotations

from occamrl.confidence.preflight_finite import finite_preflight
from occamrl.confidence.preflight_linear import linear_preflight
from occamrl.confidence.preflight_report import BlindPair, Preflight, Search
from occamrl.contracts import Known
from occamrl.errors import ParameterError
from occamrl.families.ladder import Ladder
from occamrl.families.linear_ladder import LinearLadder
from occamrl.problems.checks import require_integer

__all__ = ["BlindPair", "Preflight", "preflight"]


def preflight(
    ladder: Ladder | LinearLadder,
    known: Known,
    *,
    episodes: int,
    delta: float = 0.05,
    start: int = 0,
    truths: int | None = None,
    members: int | None = None,
    least_loss: float | None = None,
    seed: int = 0,
) -> Preflight:
    """Look for blind pairs, predict how long each class takes to be rejected, and judge the grid of covers (M26).

    Parameters
    ----------
    ladder : Ladder or LinearLadder
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
    seed : int
        Of these draws.
    """
    require_integer("episodes", episodes, 1)
    if not isinstance(ladder, (Ladder, LinearLadder)):
        raise ParameterError("ladder", got=type(ladder).__name__, expected="a Ladder or LinearLadder")
    if not known.rewards_known:
        raise ParameterError("known", got="sizes alone", expected="rewards too: policies are compared by them")
    few = 6 if isinstance(ladder, LinearLadder) else 64
    search = Search(episodes, delta, start, truths or few, members or few, least_loss, seed)
    if isinstance(ladder, LinearLadder):
        return linear_preflight(ladder, known, search)
    return finite_preflight(ladder, known, search)
