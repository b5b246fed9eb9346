"""Regret curves over seeds: read off on one grid of episodes, averaged, and given a band."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from occamrl.contracts import Floats, Ints
from occamrl.report.inputs import Curve, Group
from occamrl.report.statistics import bands

POINTS = 200  # of a curve on the page


class MeanCurve(NamedTuple):
    """Mean cumulative regret over seeds; ``band`` is the pointwise interval of the mean, None with too few seeds."""

    episodes: Ints
    mean: Floats
    band: Floats | None  # [2, points]
    smallest: Floats  # over seeds
    largest: Floats


def grid(last: int, points: int = POINTS) -> Ints:
    """Return about ``points`` episodes from 1 to ``last``, half of them spread evenly, half in the logarithm."""
    even = np.linspace(1, last, points // 2)
    early = np.geomspace(1, last, points - points // 2)
    return np.unique(np.concatenate([even, early]).round().astype(np.int64))


def at(curve: Curve, episodes: Ints) -> Floats:
    """Return cumulative regret at any episode, linear between those recorded and from zero before the first."""
    x = np.concatenate([[0], curve.episodes])
    values: Floats = np.interp(episodes, x, np.concatenate([[0.0], curve.regret]))
    return values


def mean_curve(group: Group, points: int = POINTS) -> MeanCurve | None:
    """Return the mean curve of a group; None without data. Runs of unequal length are cut at the shortest."""
    curves = [cell.curve for cell in group.cells if cell.curve.episodes.size]
    if not curves:
        return None
    episodes = grid(min(int(curve.episodes[-1]) for curve in curves), points)
    values = np.stack([at(curve, episodes) for curve in curves], axis=1)  # [points, seeds]
    band = bands(values, np.mean, group.problem, group.agent, "curve")
    return MeanCurve(episodes, values.mean(axis=1), band, values.min(axis=1), values.max(axis=1))
