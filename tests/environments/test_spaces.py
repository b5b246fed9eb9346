"""Finite spaces as integers and back; Boxes through cells, and what cells hide."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import occamrl as orl
from occamrl.envs.spaces import Discretiser, codec_from_plain, codec_of
from occamrl.errors import ParameterError, SpaceError
from tests.environments.misbehaving import MDP, Plant, learner

SIMPLE = st.one_of(
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 5), st.integers(-3, 3)),
    st.builds(
        lambda nvec, start: spaces.MultiDiscrete(nvec, start=[start] * len(nvec)),
        st.lists(st.integers(1, 3), min_size=1, max_size=3),
        st.integers(-2, 2),
    ),
    st.builds(spaces.MultiBinary, st.one_of(st.integers(1, 3), st.tuples(st.integers(1, 2), st.integers(1, 2)))),
)
FINITE = st.one_of(
    SIMPLE,
    st.builds(lambda parts: spaces.Tuple(parts), st.lists(SIMPLE, min_size=1, max_size=2)),
    st.builds(lambda a, b: spaces.Dict({"x": a, "y": b}), SIMPLE, SIMPLE),
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return bool(np.array_equal(one, other))


@given(FINITE)
def test_every_point_has_one_number_and_every_number_one_point(space: Any) -> None:
    codec = codec_of(space)
    points = [codec.decode(i) for i in range(codec.size)]
    assert [codec.encode(point) for point in points] == list(range(codec.size))
    assert all(space.contains(point) for point in points)
    space.seed(0)
    for _ in range(5):
        sample = space.sample()
        assert same(codec.decode(codec.encode(sample)), sample)
    assert codec_from_plain(codec.to_plain()) == codec


@pytest.mark.parametrize(
    ("space", "bad"),
    [
        (spaces.Discrete(3, start=5), [4, 8, 5.0, "5", True, None, [[5], [5, 6]]]),
        (spaces.MultiDiscrete([2, 3]), [[0, 3], [0], [[0, 1]], [-1, 0], [0.0, 1.0], 1]),
        (spaces.MultiBinary(2), [[0, 2], [0, 1, 1]]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)]), [(0,), (0, 3), (0, 1, 2), 0]),
        (spaces.Dict({"x": spaces.Discrete(2)}), [{"y": 0}, {"x": 2}, {"x": 0, "y": 0}, 0]),
    ],
)
def test_what_is_outside_a_space_is_refused(space: Any, bad: list[Any]) -> None:
    codec = codec_of(space)
    for value in bad:
        with pytest.raises(SpaceError):
            codec.encode(value)


def test_spaces_that_are_not_finite_are_refused() -> None:
    for space in (spaces.Box(0.0, 1.0), spaces.Text(3), spaces.Tuple([spaces.Box(0.0, 1.0)])):
        with pytest.raises(SpaceError):
            codec_of(space)
    with pytest.raises(SpaceError, match="at most"):
        codec_of(spaces.MultiBinary(40))
    with pytest.raises(SpaceError, match="only a Box"):
        codec_of(spaces.Discrete(2), Discretiser([[0.0, 1.0]]))
    with pytest.raises(ParameterError, match="a Discretiser"):
        codec_of(spaces.Discrete(2), cast(Any, 5))


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=2))
def test_a_point_lies_in_its_cell(point: list[float]) -> None:
    cells = Discretiser.uniform(spaces.Box(0.0, 1.0, (2,), dtype=np.float64), [4, 5])
    assert cells.size == 20
    row, column = divmod(cells.encode(point), 5)
    for x, cell, count in ((point[0], row, 4), (point[1], column, 5)):
        edges = np.linspace(0.0, 1.0, count + 1)
        assert edges[cell] <= x
        assert x < edges[cell + 1] or (x == 1.0 and cell == count - 1)
    assert cells.encode(cells.decode(5 * row + column)) == 5 * row + column
    assert codec_from_plain(cells.to_plain()).encode(point) == 5 * row + column


def test_edges_of_ones_own_may_reach_to_infinity() -> None:
    cells = Discretiser([[-np.inf, 0.0, np.inf], [0.0, 1.0, 3.0]])
    assert [cells.encode(point) for point in ([-9.0, 0.5], [-9.0, 1.0], [0.0, 0.5], [7.0, 3.0])] == [0, 1, 2, 3]
    with pytest.raises(SpaceError, match=r"\[0.0, 3.0\]"):
        cells.encode([0.0, 3.1])
    with pytest.raises(SpaceError):
        cells.encode([0.0, np.nan])


def test_bad_edges_are_refused() -> None:
    wrong: list[Any] = ["abc", [["a", "b"]], [3]]
    for edges in (*wrong, [], [[0.0]], [[0.0, 0.0]], [[1.0, 0.0]], [[0.0, np.nan, 1.0]]):
        with pytest.raises(ParameterError, match="edges"):
            Discretiser(edges)
    with pytest.raises(SpaceError, match=r"without bounds: .* in dimension 0"):
        Discretiser.uniform(spaces.Box(-np.inf, np.inf, (1,)), 3)
    with pytest.raises(SpaceError, match="shape"):
        codec_of(spaces.Box(0.0, 1.0, (2,)), Discretiser([[0.0, 1.0]]))


class Slide(Plant):
    """Plant, seen as a number in [0, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        s, info = super().reset(seed=seed)
        return np.array([(s + 0.5) / 4]), info

    def step(self, action: Any) -> Any:
        s, *rest = super().step(action)
        return np.array([(s + 0.5) / 4]), *rest


def test_learning_in_cells_is_learning_in_states_and_a_loaded_agent_brings_them_along(tmp_path: Path) -> None:
    cells = orl.Discretiser.uniform(Slide().observation_space, 4)
    orl.Agent(learner(), Slide(), known=MDP.known, discretiser=cells).learn(8).save(tmp_path / "a.npz")
    again = orl.Agent.load(tmp_path / "a.npz").learn(12, env=Slide())
    assert again.result is not None
    plain = orl.learn(learner(), Plant(), episodes=20, known=MDP.known)
    np.testing.assert_array_equal(again.result.returns, plain.returns)
    with pytest.raises(SpaceError, match="discretiser"):
        orl.learn(learner(), Slide(), episodes=5, known=MDP.known)
