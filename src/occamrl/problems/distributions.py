"""Initial states and policies as people write them, turned into distributions."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamrl.contracts import Floats
from occamrl.errors import ParameterError, ProbabilityError, ShapeError
from occamrl.problems.checks import as_floats, require_integer
from occamrl.problems.listing import TOLERANCE


def initial_distribution(initial_state: Any, listed: int, states: int) -> Floats:
    """Return the distribution of s_1 over all states, given a state or a distribution over the first ``listed``."""
    distribution = np.zeros(states)
    if np.ndim(initial_state) == 0:
        s = require_integer("initial_state", initial_state, 0)
        if s >= listed:
            raise ParameterError("initial_state", got=s, expected=f"a state in 0..{listed - 1}")
        distribution[s] = 1.0
        return distribution
    given = as_floats("initial_state", initial_state)
    if given.shape != (listed,):
        raise ShapeError("initial_state", got=f"shape {given.shape}", expected=f"a state, or probabilities ({listed},)")
    bad = ~(np.isfinite(given) & (given >= 0.0))
    if bad.any():
        s = int(bad.argmax())
        raise ProbabilityError("initial_state", got=float(given[s]), expected="a probability >= 0", index=(s,))
    total = float(given.sum())
    if abs(total - 1.0) > TOLERANCE:
        raise ProbabilityError("initial_state", got=f"a sum of {total:.12g}", expected="probabilities that sum to 1")
    distribution[:listed] = given
    return distribution


def mixed_policy(policy: Any, horizon: int, states: int, actions: int) -> Floats:
    """Return probabilities of actions [H, S, A], given those or the actions themselves [H, S]."""
    raw = np.asarray(policy)
    if raw.shape == (horizon, states) and raw.dtype.kind in "iu":
        wrong = np.argwhere((raw < 0) | (raw >= actions))
        if wrong.size:
            h, s = (int(i) for i in wrong[0])
            raise ParameterError("policy", got=int(raw[h, s]), expected=f"an action in 0..{actions - 1}", index=(h, s))
        certain: Floats = np.zeros((horizon, states, actions))
        np.put_along_axis(certain, raw[..., np.newaxis].astype(np.int64), 1.0, axis=2)
        return certain
    if raw.shape != (horizon, states, actions):
        got = f"shape {raw.shape} of dtype {raw.dtype}"
        expected = f"integers {(horizon, states)} or probabilities {(horizon, states, actions)}"
        raise ShapeError("policy", got=got, expected=expected)
    mixed = as_floats("policy", raw)
    wrong = np.argwhere(~((mixed >= 0.0).all(axis=2) & (np.abs(mixed.sum(axis=2) - 1.0) <= TOLERANCE)))
    if wrong.size:
        h, s = (int(i) for i in wrong[0])
        raise ProbabilityError("policy", got=mixed[h, s], expected="a distribution over actions", index=(h, s))
    return mixed
