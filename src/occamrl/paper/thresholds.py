"""The threshold of lemma 1, and the epoch in which it is small enough."""

from __future__ import annotations

import math

LAST_EPOCH = 2_000  # by which every threshold is below 1e-299


def threshold(epoch: int) -> float:
    """Return sqrt(i)/2^(i/2), by which T_m has to exceed T_M for class m to be rejected."""
    return math.sqrt(epoch) * math.pow(2.0, -0.5 * epoch)


def rejecting_epoch(excess: float) -> int | None:
    """Return the first epoch whose threshold a difference T_m - T_M exceeds; None: none does."""
    # there are no data before epoch 2, from which on the threshold falls
    for epoch in range(2, LAST_EPOCH):
        if threshold(epoch) < excess:
            return epoch
    return None
