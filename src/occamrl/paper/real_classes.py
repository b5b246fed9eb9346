r"""Classes with real parameters, as UCRL-VTR to the letter needs them.

A class is a box with a kernel at each of its points. Over infinite classes the paper's radius has a
covering number (appendix A.1), and its minima and maxima run over a continuum. Here

- **covering numbers** come from Lipschitz constants: if the kernel moves by at most :math:`L_i`
  per unit of parameter i, in sup over (s, a) of sum over s', a grid of cells with sides
  :math:`2\alpha/(p L_i)` covers a box of p parameters with sides :math:`w_i` at scale alpha,

  .. math:: \log N(\alpha) \le \sum_i \log\lceil w_i p L_i/(2\alpha) \rceil .

  The constants are given, or measured by differences at the points of a cloud, which is no proof;
- **minima and maxima** are searched: over a cloud of 256 spread points, and from the best of them
  by steps along each parameter that are halved when none helps. Steps end on a lattice of 2^-12 of
  the sides, so that kernels that were needed once are needed again.

Rows of regression are kept by target V and pair (s, a): counts and sums of y say all about them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypedDict

import numpy as np

from occamrl.arrays import Bools, Floats, Ints
from occamrl.errors import ParameterError, UnknownName, require_kind, require_number
from occamrl.models.features import PerProblem
from occamrl.models.model import ParametricLadder
from occamrl.protocols import Flow, Known

_CLOUD = 256  # spread points
_STARTS = 3  # of the cloud, from which a search goes on
_LATTICE = 2**12  # steps of a side
_FIRST_STEP = 2**8
_DIFFERENCE = 1e-4  # of a side, for Lipschitz constants
_TOGETHER = 2**24  # numbers that are worked on at once

Point = tuple[int, ...]  # on the lattice, 0 to 4096 for each parameter


class RealState(TypedDict):
    """The rows, by target and pair."""

    episodes: int  # k
    targets: Floats  # [v, S] the distinct V
    target: Ints  # [u] of each kind of row
    pair: Ints  # [u] s*A + a
    count: Floats  # [u]
    total: Floats  # [u] sums of y
    squares: float  # the sum of y^2 of all rows


class Solved(NamedTuple):
    """A member: its kernel, its optimal values and policy."""

    kernel: Floats  # [S*A, S]
    values: Floats  # [H + 1, S]
    policy: Ints  # [H, S]


@dataclass(frozen=True, eq=False)
class RealClass:
    """The last class of a ladder with real parameters.

    >>> import occamrl as orl
    >>> def coin(state, action, *, heads):
    ...     yield heads, 1, float(state), False
    ...     yield 1 - heads, 0, float(state), False
    >>> model = orl.Model(coin, start=0, actions=[0], horizon=3, parameters={"heads": (0.2, 0.8)})
    >>> real = orl.paper.real_classes.RealClass(model.ladder({"coin": ["heads"]}))
    >>> round(real.lipschitz["heads"], 6), round(real.log_covering_number(0.1), 6)
    (2.0, 1.791759)
    """

    ladder: ParametricLadder
    given: Mapping[str, float] | None = None  # Lipschitz constants by parameter

    def __post_init__(self) -> None:
        if self.ladder.model.by_step:
            raise ParameterError(
                "ladder",
                got="a model whose chances depend on the step",
                expected="one kernel for all steps, as in the paper; Occam takes such models",
            )
        if self.given is not None:
            require_kind("lipschitz", self.given, Mapping)
        for name, constant in (self.given or {}).items():
            if name not in self.free:
                raise UnknownName("lipschitz", got=name, known=self.free)
            require_number(f"lipschitz[{name!r}]", constant, 0.0, math.inf)

    @property
    def free(self) -> tuple[str, ...]:
        """The parameters of the class."""
        return self.ladder.free[-1]

    @cached_property
    def sides(self) -> tuple[Floats, Floats]:
        """The lower ends and the lengths of the box."""
        ends = np.array([self.ladder.model.box[name] for name in self.free]).reshape(-1, 2)
        return ends[:, 0], ends[:, 1] - ends[:, 0]

    def parameters(self, point: Point) -> dict[str, float]:
        """Return the parameters at a point of the lattice, fixed ones included."""
        low, width = self.sides
        values = (low + width * np.array(point) / _LATTICE).tolist()
        return {**self.ladder.model.defaults, **dict(zip(self.free, values, strict=True))}

    def kernel_at(self, parameters: Mapping[str, float]) -> Floats:
        """Return the kernel [S*A, S] at some parameters."""
        model = self.ladder.model
        states = len(model.states)
        actions = len(model.actions)
        number = np.array([s * actions + a for s, a in model.pairs])
        # what is at rest, or not allowed, stays
        kernel = np.repeat(np.eye(states), actions, axis=0)
        kernel[number] = 0.0
        probability = model.probability(dict(parameters))
        np.add.at(kernel, (number[model.row], model.next_state), probability)
        kernel[number, model.elsewhere] += np.maximum(0.0, 1.0 - kernel[number].sum(axis=1))
        return kernel

    # Covering numbers -----------------------------------------------------------------------------

    @cached_property
    def lipschitz(self) -> dict[str, float]:
        """How fast the kernel moves by each parameter: as given, or as measured at the cloud."""
        constants = dict(self.given or {})
        missing = [name for name in self.free if name not in constants]
        constants |= dict.fromkeys(missing, 0.0)
        width = dict(zip(self.free, self.sides[1].tolist(), strict=True))
        for point in self.cloud if missing else []:
            parameters = self.parameters(point)
            for name in missing:
                low, high = self.ladder.model.box[name]
                step = _DIFFERENCE * width[name]
                ends = (max(low, parameters[name] - step), min(high, parameters[name] + step))
                one, other = (self.kernel_at({**parameters, name: value}) for value in ends)
                moved = float(np.abs(one - other).sum(axis=1).max())
                constants[name] = max(constants[name], moved / (ends[1] - ends[0]))
        return constants

    @property
    def measured(self) -> list[str]:
        """The parameters whose Lipschitz constants are measured, not given."""
        return [name for name in self.free if name not in (self.given or {})]

    def log_covering_number(self, alpha: float) -> float:
        """Return the bound on log N(F, alpha) of the top of this file."""
        total = 0.0
        for name, width in zip(self.free, self.sides[1].tolist(), strict=True):
            cells = width * len(self.free) * self.lipschitz[name] / (2.0 * alpha)
            # 3.0000000000000004 cells are 3
            total += math.log(max(1, math.ceil(cells * (1.0 - 1e-12))))
        return total

    # Search ---------------------------------------------------------------------------------------

    @cached_property
    def cloud(self) -> list[Point]:
        """Points spread over the box, its corners and its middle among them, on the lattice."""
        p = len(self.free)
        if p == 0:
            return [()]
        draw = np.random.default_rng(0)
        # a Latin hypercube: every parameter has evenly spread values
        columns = []
        for _ in range(p):
            columns.append(draw.permutation(np.linspace(0, _LATTICE, _CLOUD).astype(np.int64)))
        corners = [tuple(c * _LATTICE for c in np.unravel_index(i, (2,) * p)) for i in range(2**p)]
        points = [*corners, (_LATTICE // 2,) * p, *map(tuple, np.stack(columns, axis=1).tolist())]
        return list(dict.fromkeys(tuple(int(c) for c in point) for point in points))

    @cached_property
    def _solved(self) -> PerProblem:
        """By problem, the members that were needed."""
        return PerProblem()

    @cached_property
    def _kernels(self) -> dict[Point, Floats]:
        return {}

    def kernel(self, point: Point) -> Floats:
        """Return the kernel at a point of the lattice."""
        if point not in self._kernels:
            self._kernels[point] = self.kernel_at(self.parameters(point))
        return self._kernels[point]

    def solved(self, known: Known, point: Point) -> Solved:
        """Return the member at a point of the lattice."""
        if known not in self._solved:
            self._solved[known] = {}
        members: dict[Point, Solved] = self._solved[known]
        if point not in members:
            members[point] = solve(self.kernel(point), known)
        return members[point]

    def search(
        self, score: Callable[[list[Point]], Floats], starts: list[Point]
    ) -> tuple[Point, float]:
        """Return the point with the largest score that is found, and the score."""
        scores = score(starts)
        order = np.argsort(-scores, kind="stable")[:_STARTS]
        best = starts[int(order[0])]
        largest = float(scores[order[0]])
        for start in order.tolist():
            point, found = self._climb(score, starts[start], float(scores[start]))
            if found > largest:
                best = point
                largest = found
        return best, largest

    def _climb(
        self, score: Callable[[list[Point]], Floats], point: Point, current: float
    ) -> tuple[Point, float]:
        """Step along one parameter after the other as long as that helps."""
        step = _FIRST_STEP
        while step >= 1 and point:
            neighbours = []
            for i, value in enumerate(point):
                for moved in (value - step, value + step):
                    clipped = min(_LATTICE, max(0, moved))
                    neighbours.append((*point[:i], clipped, *point[i + 1 :]))
            scores = score(neighbours)
            best = int(scores.argmax())
            if scores[best] > current:
                point = neighbours[best]
                current = float(scores[best])
            else:
                step //= 2
        return point, current

    # Regression -----------------------------------------------------------------------------------

    def begin(self, known: Known) -> RealState:
        """Return the state before any data."""
        shape = (known.states, known.actions)
        model = self.ladder.model
        if shape != (len(model.states), len(model.actions)):
            expected = (
                f"that of the model, {len(model.states)} states, {len(model.actions)} actions"
            )
            raise ParameterError("problem", got=f"{shape[0]} states", expected=expected)
        return {
            "episodes": 0,
            "targets": np.zeros((0, known.states)),
            "target": np.zeros(0, np.int64),
            "pair": np.zeros(0, np.int64),
            "count": np.zeros(0),
            "total": np.zeros(0),
            "squares": 0.0,
        }

    def predictions(self, state: RealState, points: list[Point]) -> Floats:
        """Return z = (P V)(s, a) of some members at every kind of row [n, u]."""
        z = np.empty((len(points), state["count"].size))
        together = max(1, _TOGETHER // max(1, state["count"].size * state["targets"].shape[1]))
        targets = state["targets"][state["target"]]  # [u, S]
        for first in range(0, len(points), together):
            some = points[first : first + together]
            rows = np.stack([self.kernel(point)[state["pair"]] for point in some])
            z[first : first + together] = np.einsum("nus,us->nu", rows, targets)
        return z

    def losses(self, state: RealState, points: list[Point]) -> Floats:
        """Return L_k(P) of some members."""
        z = self.predictions(state, points)
        return np.asarray(state["squares"] - 2.0 * z @ state["total"] + z**2 @ state["count"])

    def estimate(self, state: RealState) -> tuple[Point, float]:
        """Return the member of least loss that is found, and its loss."""
        point, score = self.search(lambda points: -self.losses(state, points), self.cloud)
        return point, -score

    def inside(self, state: RealState, center: Floats, radius: float, points: list[Point]) -> Bools:
        """Return which members are within the radius of an estimate, given its predictions."""
        gaps = self.predictions(state, points) - center
        return np.asarray(gaps**2 @ state["count"] <= radius)

    def optimistic(
        self, known: Known, state: RealState, estimate: Point, radius: float, start: int
    ) -> Point:
        """Return the member of B_k with the largest value of a start that is found."""
        center = self.predictions(state, [estimate])[0]

        def score(points: list[Point]) -> Floats:
            values = np.array([self.solved(known, point).values[0, start] for point in points])
            return np.where(self.inside(state, center, radius, points), values, -np.inf)

        # the estimate is always inside
        return self.search(score, [estimate, *self.cloud])[0]


def solve(kernel: Floats, known: Known) -> Solved:
    """Return a member by backward induction; steps count from 0."""
    H = known.horizon
    values = np.zeros((H + 1, known.states))
    policy = np.zeros((H, known.states), dtype=np.int64)
    for h in reversed(range(H)):
        q = known.base_reward + (kernel @ values[h + 1]).reshape(known.states, -1)
        values[h] = q.max(axis=1)
        policy[h] = q.argmax(axis=1)
    return Solved(kernel, values, policy)


def add_rows(state: RealState, values: Floats, known: Known, flow: Flow) -> None:
    """Enter the rows of a block whose value functions are V [H + 1, S]."""
    following = values[flow.step + 1]  # [rows, S]
    y = following[np.arange(flow.step.size), flow.next_state]
    targets, number = np.unique(
        np.concatenate([state["targets"], following]), axis=0, return_inverse=True
    )
    number = number.ravel()
    before = len(state["targets"])
    pairs = known.actions * flow.state + flow.action
    keys = np.concatenate([number[:before][state["target"]], number[before:]])
    keys = keys * (known.states * known.actions) + np.concatenate([state["pair"], pairs])
    kinds, kind = np.unique(keys, return_inverse=True)
    counts = np.concatenate([state["count"], flow.count.astype(np.float64)])
    totals = np.concatenate([state["total"], flow.count * y])
    state["targets"] = targets
    state["target"] = kinds // (known.states * known.actions)
    state["pair"] = kinds % (known.states * known.actions)
    state["count"] = np.asarray(np.bincount(kind.ravel(), counts, kinds.size), dtype=np.float64)
    state["total"] = np.asarray(np.bincount(kind.ravel(), totals, kinds.size), dtype=np.float64)
    state["squares"] += float(flow.count @ y**2)
    state["episodes"] += flow.episodes
