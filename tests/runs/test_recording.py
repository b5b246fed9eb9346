"""Which episodes are kept, and that totals are over all of them, in order, whatever the chunks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occamrl.learners.baselines import UniformRandom
from occamrl.problems.classic import RiverSwim
from occamrl.running.phases import KEEP_ALL_UNTIL, POINTS_PER_DECADE, Recorder, kept_episodes
from occamrl.running.run import Simulator, run

cuts = st.lists(st.integers(1, 4_000), min_size=1, max_size=8)


@given(pieces=cuts, start=st.integers(0, 10**9), keep=st.one_of(st.integers(0, 3_000), st.integers(10**8, 10**10)))
def test_the_kept_episodes_do_not_depend_on_the_chunks(pieces: list[int], start: int, keep: int) -> None:
    whole = kept_episodes(start + 1, start + sum(pieces), keep)
    first, parts = start + 1, []
    for piece in pieces:
        parts.append(kept_episodes(first, first + piece - 1, keep))
        first += piece
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert (np.diff(whole) > 0).all()
    assert ((whole > start) & (whole <= start + sum(pieces))).all()
    early = min(keep, start + sum(pieces))
    np.testing.assert_array_equal(whole[whole <= keep], np.arange(start + 1, early + 1))


def test_marks_are_dense_in_the_logarithm_and_few() -> None:
    """A thousand a decade: neighbours are within 0.24 % of each other, give or take one episode."""
    kept = kept_episodes(1, 10**10, 10**4)
    assert kept[0] == 1
    assert kept.size <= 10**4 + 6 * POINTS_PER_DECADE + 2
    late = kept[kept >= 10**4]
    assert (late[1:] <= np.ceil(late[:-1] * 10 ** (1.0 / POINTS_PER_DECADE)) + 1).all()
    assert set(10 ** np.arange(4, 11)) <= set(kept.tolist())


values = st.lists(st.floats(0, 50), min_size=1, max_size=200)


@given(regret=values, cuts=st.lists(st.integers(0, 200), max_size=6), keep=st.integers(0, 100))
def test_a_recorder_is_the_same_to_the_bit_however_it_is_fed(regret: list[float], cuts: list[int], keep: int) -> None:
    data, returns = np.array(regret), np.array(regret)[::-1] / 3
    whole, pieces = Recorder(keep), Recorder(keep)
    whole.add(data, returns)
    edges = [0, *sorted(min(cut, data.size) for cut in cuts), data.size]
    for a, b in itertools.pairwise(edges):
        pieces.add(data[a:b], returns[a:b])
        pieces = Recorder.from_tree(pieces.to_tree())
    for one, other in zip(whole.curves(), pieces.curves(), strict=True):
        assert one.tobytes() == other.tobytes()
    first, second = ((each.episodes, each.total_regret, each.total_return) for each in (whole, pieces))
    assert first == second
    numbers, kept, cumulative, _ = whole.curves()
    np.testing.assert_array_equal(kept, data[numbers - 1])
    np.testing.assert_array_equal(cumulative, np.cumsum(data)[numbers - 1])
    assert numbers[-1] == data.size
    assert whole.total_regret == np.cumsum(data)[-1]


def test_a_long_run_keeps_all_of_its_first_episodes_and_few_of_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = RiverSwim(states=2, horizon=1)
    every = run(UniformRandom(), problem, episodes=5_000, progress=False)
    monkeypatch.setattr(Simulator, "keep_all_until", 100)
    whole = run(UniformRandom(), problem, episodes=5_000, progress=False)
    half = run(UniformRandom(), problem, episodes=1_234, progress=False)
    rest = run(UniformRandom(), problem, episodes=5_000 - 1_234, progress=False, continue_from=half)
    assert every.episodes.size == 5_000 <= KEEP_ALL_UNTIL
    assert half.episodes[-1] == 1_234
    np.testing.assert_array_equal(rest.episodes, whole.episodes)
    np.testing.assert_array_equal(whole.cumulative_regret, every.cumulative_regret[whole.episodes - 1])
    assert whole.episodes.size < 2_000
    assert whole.total_regret == every.total_regret == every.regret.cumsum()[-1]
