r"""Confidence regions of real parameters, known by points inside: their intervals and extremes.

A region is :math:`\{\theta : \ell(\theta) \ge c\}` in a box; what is known of it are points inside,
in the middle and in all modes that were found. A ray from a point inside ends where bisection finds
the likelihood below c. Along :math:`\Sigma g`, :math:`\Sigma` the spread of the points and g the
slope of what is wanted, it ends where an ellipsoid would have its extreme; along g, where a
threshold has it.

**Intervals** are the hull of the points inside, out to the ends of rays. Between two neighbours
that are far apart in a coordinate the points nearest to each other are joined by segments. If all
of these leave the region, the modes are apart, and the interval is in pieces.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from occamrl.arrays import Floats, Ints
from occamrl.evidence.cloud import climb

_HALVINGS = 8  # of the stretch in which a ray leaves the region
_REACH = 2.0  # factor by which a ray grows until it is outside
_TURNS = 2  # in which rays start from where the last ones ended
_GAP = 0.02  # shares of the box between neighbours that are looked into
_JOINED = 3  # pairs of points across a gap that are joined
_BETWEEN = 5  # points of a segment that are looked at
_POINTS = 40  # of a class in which answers value a policy
_CLIMB = 10  # evaluations of a climb from an end of a ray for each free parameter, and once more
_INNER_CLIMB = 40  # the same from a point inside, where the extreme may be inside too
_SMALL = 1e-9
_OUTSIDE = 1e18  # larger than any worth


@dataclass(frozen=True, eq=False)
class Region:
    """The confidence region of a class."""

    points: Floats  # [n, p] inside, the most likely first; none if it is empty
    likelihoods: Floats  # [n]
    least: float  # the likelihood at its boundary
    free: Sequence[int]  # coordinates that vary
    likelihood: Callable[[Floats], float]  # of any point

    def inside(self, theta: Floats) -> bool:
        """Say whether a point is in the region."""
        return self.likelihood(theta) >= self.least

    # Rays -----------------------------------------------------------------------------------------

    def ray_end(self, start: Floats, direction: Floats) -> Floats:
        """Return where a ray from a point inside leaves the region; it goes on along the box.

        ``direction`` [p] is about as long as the region is wide there.
        """
        largest = float(np.abs(direction).max(initial=0.0))  # a model may have no parameters
        if largest < _SMALL:
            return start
        longest = 1.0 / largest  # by then the coordinate that moves most is at its edge
        near = 0.0
        far = min(1.0, longest)
        while self.inside(_moved(start, direction, far)):
            near = far
            if far >= longest:
                return _moved(start, direction, far)
            far = min(_REACH * far, longest)
        for _ in range(_HALVINGS):
            middle = 0.5 * (near + far)
            if self.inside(_moved(start, direction, middle)):
                near = middle
            else:
                far = middle
        return _moved(start, direction, near)

    def spread(self, points: Floats) -> Floats:
        """Return the covariance of some points [p, p]; a little everywhere."""
        centred = points - points.mean(axis=0)
        covariance: Floats = centred.T @ centred / len(points)
        covariance[self.free, self.free] += 1e-6 * float(np.trace(covariance)) + _SMALL**2
        return covariance

    def _directions(self, points: Floats, slope: Floats) -> list[Floats]:
        """Return directions in which something with a slope [p] grows, as long as points spread."""
        covariance = self.spread(points)
        along = covariance @ slope
        deviation = np.sqrt(max(float(slope @ along), _SMALL**2))
        norm = max(float(np.linalg.norm(slope)), _SMALL)
        return [2.0 * along / deviation, 2.0 * deviation * slope / norm**2]

    # Intervals ------------------------------------------------------------------------------------

    def pieces(self, j: int) -> tuple[tuple[float, float], ...]:
        """Return the interval of coordinate j, in pieces where modes are apart."""
        ends = []
        for group in self._groups(j):
            ends.append((self._end(group, j, -1.0), self._end(group, j, 1.0)))
        pieces = [ends[0]]
        for low, high in ends[1:]:
            if low <= pieces[-1][1]:
                pieces[-1] = (pieces[-1][0], max(high, pieces[-1][1]))
            else:
                pieces.append((low, high))
        return tuple(pieces)

    def _groups(self, j: int) -> list[Floats]:
        """Return the points by the pieces of coordinate j, from low to high."""
        points = self.points[np.argsort(self.points[:, j], kind="stable")]
        groups = []
        first = 0
        gaps = np.flatnonzero(np.diff(points[:, j]) > _GAP) + 1
        for gap in gaps.tolist():
            if not self._joined(points[first:gap], points[gap:]):
                groups.append(points[first:gap])
                first = gap
        groups.append(points[first:])
        return groups

    def _joined(self, below: Floats, above: Floats) -> bool:
        """Return whether a segment between two groups of points stays inside."""
        distance = np.abs(below[:, None] - above[None]).max(axis=2)
        order = np.argsort(distance, axis=None, kind="stable")[:_JOINED]
        shares = np.arange(1, _BETWEEN + 1) / (_BETWEEN + 1.0)
        for one, two in zip(*np.unravel_index(order, distance.shape), strict=True):
            steps = shares[:, None] * (above[two] - below[one])
            if all(self.inside(below[one] + step) for step in steps):
                return True
        return False

    def _end(self, group: Floats, j: int, sign: float) -> float:
        """Return how far coordinate j goes in a piece, below or above."""
        slope = np.zeros(group.shape[1])
        slope[j] = sign
        directions = self._directions(group, slope)
        outermost = group[int(np.argmax(sign * group[:, j]))]
        ends = [outermost, self.ray_end(group[0], directions[0])]
        for _ in range(_TURNS):
            outermost = max(ends, key=lambda theta: sign * float(theta[j]))
            ends = [outermost]
            ends += [self.ray_end(outermost, direction) for direction in directions]
        return float(max(ends, key=lambda theta: sign * float(theta[j]))[j])

    # Extremes -------------------------------------------------------------------------------------

    def some(self) -> Floats:
        """Return points that spread over the region: the outermost, and others by likelihood."""
        indices: list[int] = []
        for j in self.free:
            indices += [int(self.points[:, j].argmin()), int(self.points[:, j].argmax())]
        count = min(len(self.points), _POINTS)
        ranks: Ints = np.linspace(0, len(self.points) - 1, count).astype(np.int64)
        chosen: Floats = self.points[np.unique([*indices, *ranks])]
        return chosen

    def lowest(self, worths_at: Callable[[Floats], Floats]) -> Floats:
        """Return a point at which the worth of points [n, p] is least: a search.

        It begins at the best of some points, follows rays along the slope that fits their worths,
        and climbs from there.
        """
        points = self.some()
        heights = -worths_at(points)
        slope = np.zeros(points.shape[1])
        centred = points[:, self.free] - points[:, self.free].mean(axis=0)
        slope[self.free] = np.linalg.lstsq(centred, heights - heights.mean(), rcond=None)[0]

        def height(theta: Floats) -> float:
            if not self.inside(theta):
                return -_OUTSIDE
            return -float(worths_at(theta[None])[0])

        best = points[int(np.argmax(heights))]
        starts = [best]
        directions = self._directions(points, slope)
        for start, direction in itertools.product((points[0], best), directions):
            starts.append(self.ray_end(start, direction))
        highest = max(starts, key=height)
        evaluations = _CLIMB * (len(self.free) + 1)
        if highest is best:
            evaluations = _INNER_CLIMB * (len(self.free) + 1)
        return climb(height, highest, self.free, evaluations)


def _moved(start: Floats, direction: Floats, length: float) -> Floats:
    return np.clip(start + length * direction, 0.0, 1.0)
