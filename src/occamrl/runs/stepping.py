"""An episode of a real environment in two compiled calls, whatever its length.

A learner's policy is fixed before the episode (its value V^{pi_k} is evaluated then), and rows enter the statistics in
the order of the steps. So the actions of all (h, s) are written out when the episode begins, and all transitions are
observed when it is over: the same functions as in the fused loop, in the same order, without passing a learner's
arrays from Python to compiled code and back at every step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from occamrl.contracts import Floats, Ints, Truth
from occamrl.kernels.compile import hot
from occamrl.kernels.episodes import act, evaluate, hear, observe, plan


@hot
def open_episode(model: Any, state: Any, start: int, key: np.uint64, episode: int, actions: Ints) -> int:
    """Begin an episode in ``start`` and write its policy to ``actions`` [H, S]; return PLANNED | CHANGED bits."""
    news = plan(model, state, start, key, episode)
    for h in range(actions.shape[0]):
        for s in range(actions.shape[1]):
            actions[h, s] = act(model, state, h, s)
    return news


@hot
def close_episode(
    model: Any,
    state: Any,
    at_rest: Floats,
    path: Ints,
    bonus: Floats,
    reward: Floats,
    actions: Ints,
    steps: int,
    ended: bool,
) -> float:
    """Learn from the first ``steps`` transitions path[h] -> path[h + 1]; return the sum of rewards in [0, 1].

    After an episode that ``ended`` the end state is kept for the rest of the horizon, as the model has it, and earns
    ``at_rest`` [S*A].
    """
    total = 0.0
    s = path[0]
    for h in range(actions.shape[0] if ended else steps):
        a = actions[h, s]
        if h < steps:
            s2, extra, came = path[h + 1], bonus[h], reward[h]
        else:
            s2, extra, came = s, 0.0, at_rest[s * (at_rest.size // actions.shape[1]) + a]
        hear(model, state, h, s, a, came)
        observe(model, state, h, s, a, extra, s2)
        total += came
        s = s2
    return total


@hot
def value_of_policy(model: Any, state: Any, truth: Truth, out: Floats) -> None:
    """Write V^{pi_k}_1 of the policy in play to ``out[0]``; ``out`` is [2, S]."""
    evaluate(model, state, truth, out)
