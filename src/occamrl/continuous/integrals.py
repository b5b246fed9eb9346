"""The features of a linear kernel on a box: phi_V(s, a), one integral of V for each candidate, at any state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from occamrl.continuous.grid import Grid
from occamrl.continuous.transitions import Sampled, Transition, moved, require_inside
from occamrl.contracts import Floats


def integrals(
    models: Sequence[Transition],
    grid: Grid,
    values: Floats,
    state: Floats,
    action: Floats,
    rng: np.random.Generator | None = None,
) -> Floats:
    """Return the integrals of the interpolated V over the next state of each candidate [d]; all must stay inside.

    Parameters
    ----------
    models, grid
    values : array [S]
        V at the vertices.
    state : array [1, n]
    action : array [m]
    rng : Generator, optional
        For fresh draws of :class:`Sampled` models; by default these use their fixed ones.
    """
    points, weights = [], []
    for model in models:
        if rng is not None and isinstance(model, Sampled):
            many = np.repeat(state, model.draws, axis=0)
            points.append(moved(model.sample(many, action, rng), many))
            weights.append(np.full(model.draws, 1.0 / model.draws))
        else:
            atoms = list(model.atoms(state, action))
            points.append(np.concatenate([atom.points for atom in atoms]))
            weights.append(np.concatenate([atom.weight for atom in atoms]))
    every, weight = np.concatenate(points), np.concatenate(weights)
    outside = grid.outside(every) & (weight != 0.0)
    require_inside(every, outside, np.broadcast_to(state, every.shape), action, grid.described)
    found = grid.interpolate(values, grid.clip(every)) * weight
    starts = np.cumsum([0, *(part.size for part in weights[:-1])])
    return np.asarray(np.add.reduceat(found, starts))
