"""What a policy earns under a kernel, where it goes, and what is at stake: for the preflight of a ladder (M26)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from occamrl.contracts import Floats, Ints, Outcomes
from occamrl.kernels.bellman import optimal_values, policy_values
from occamrl.kernels.compile import compiled

_SHARE = 0.01  # of what is at stake: losing less is not much


def stake(outcomes: Outcomes, kernel: Floats, base: Floats, values: Floats, start: int) -> float:
    """Return how much more the best policy earns than the worst under a kernel [1, O] with optimal ``values``.

    Whatever is added to all rewards cancels out, so that costs turned into rewards count as what they are.
    """
    horizon, states = values.shape[0] - 1, values.shape[1]
    mirrored = outcomes._replace(bonus=-outcomes.bonus)
    return float(values[0, start] + optimal_values(mirrored, kernel, -base, states, horizon)[0, start])


def much(stakes: Iterable[float]) -> float:
    """Return what counts as much to lose per episode, given what is at stake under the truths tried."""
    return _SHARE * max(stakes, default=0.0)


def policy_value(outcomes: Outcomes, kernel: Floats, base: Floats, policy: Ints, start: int) -> float:
    """Return V^pi_1(start) of a policy [H, S] under a kernel [1, O]."""
    values = np.zeros((2, policy.shape[1]))
    policy_values(outcomes, kernel, base, policy, values)
    return float(values[0, start])


@compiled
def visits(outcomes: Outcomes, kernel: Floats, policy: Ints, start: int) -> Floats:
    """Return the probability of being in s at step h [H, S] under a policy and a kernel [1, O]."""
    horizon, states = policy.shape
    actions = (outcomes.start.size - 1) // states
    found = np.zeros((horizon, states))
    found[0, start] = 1.0
    for h in range(horizon - 1):
        for s in range(states):
            if found[h, s] != 0.0:
                sa = s * actions + policy[h, s]
                for o in range(outcomes.start[sa], outcomes.start[sa + 1]):
                    found[h + 1, outcomes.next_state[o]] += found[h, s] * kernel[0, o]
    return found
