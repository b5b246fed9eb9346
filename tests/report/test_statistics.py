import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occamrl.protocols import Floats
from occamrl.report.data import bands, interquartile_mean, intervals, paired, reverse, slope, summarise
from occamrl.seeding import stream

SCORES = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 100.0])


def test_summary_of_numbers_worked_out_by_hand() -> None:
    (found,) = summarise([SCORES])
    assert found["mean"] == pytest.approx(16.0)  # 128 / 8
    assert found["median"] == pytest.approx(4.5)
    assert found["iqm"] == pytest.approx(4.5)  # (3 + 4 + 5 + 6) / 4: the outlier is outside the middle half
    assert found["interval"][0] < 16.0 < found["interval"][1]


@pytest.mark.parametrize("seeds", [1, 2])
def test_with_one_or_two_seeds_there_is_no_interval(seeds: int) -> None:
    (found,) = summarise([SCORES[:seeds]])
    assert found["mean"] == SCORES[:seeds].mean()
    assert found["interval"] is None
    assert found["iqm_interval"] is None
    assert bands(np.ones((4, seeds)), np.mean) is None


def test_seeds_that_agree_give_an_interval_without_width() -> None:
    (ends,) = intervals([np.full(5, 3.25)], np.mean)
    assert ends == (3.25, 3.25)


def test_intervals_are_found_again_by_their_address_and_do_not_depend_on_the_rows_beside_them() -> None:
    first = intervals([SCORES], np.mean, "here")
    assert intervals([SCORES, SCORES[:4]], np.mean, "here")[0] == first[0]
    assert intervals([SCORES[:4], SCORES[::-1].copy(), SCORES], np.mean, "here")[2] == first[0]
    assert intervals([SCORES], np.mean, "there") != first


def test_interval_of_a_large_normal_sample_is_that_of_the_normal_approximation(test_seed: int) -> None:
    values = stream(test_seed, "normal").normal(10.0, 2.0, 400)
    (ends,) = intervals([values], np.mean)
    assert ends is not None
    half = 1.96 * values.std() / math.sqrt(values.size)
    # 999 resamples place each end within about 5 % of half a width (one standard error); 25 % is five of them.
    assert ends[0] == pytest.approx(values.mean() - half, abs=0.25 * half)
    assert ends[1] == pytest.approx(values.mean() + half, abs=0.25 * half)


def _coverage(ends: Floats) -> float:
    return float(((ends[0] <= 0.0) & (ends[1] >= 0.0)).mean())


def test_intervals_cover_the_truth_as_often_as_the_bootstrap_promises(test_seed: int) -> None:
    """With 20 normal seeds a bootstrap interval of nominal 95 % covers about 93 %: it uses 1.96 s/sqrt(n), not t.

    P(|t_19| <= 1.96 sqrt(19/20)) = 0.9287. Over 2,000 samples the standard error is 0.6 %; the bounds are 5 of them
    away (error below 1e-6), plus 1 % for what 999 resamples and BCa's correction change.
    """
    values = stream(test_seed, "coverage").normal(size=(2_000, 20))
    ends = bands(values, np.mean)
    assert ends is not None
    assert 0.888 < _coverage(ends) < 0.969
    middle = ends.mean(axis=0)
    assert _coverage(middle + 0.5 * (ends - middle)) < 0.75  # a band half as wide is found out


def test_a_difference_is_taken_seed_by_seed_and_names_the_seeds_left_out() -> None:
    agent = {3: 10.0, 1: 5.0, 2: 7.0, 9: 1.0}
    baseline = {1: 6.0, 2: 9.0, 3: 13.0, 4: 0.0}
    (found,) = paired([(agent, baseline)])
    assert found is not None
    assert (found["pairs"], found["unpaired"]) == (3, [4, 9])
    assert found["mean"] == pytest.approx(-2.0)  # -1, -2, -3
    assert found["median"] == pytest.approx(-2.0)
    assert (found["less"], found["more"]) == (3, 0)
    assert -3.0 <= found["interval"][0] <= found["interval"][1] <= -1.0
    back = reverse(found)
    assert (back["mean"], back["less"], back["more"]) == (2.0, 0, 3)
    assert back["interval"] == [-found["interval"][1], -found["interval"][0]]
    assert paired([({1: 1.0}, {2: 1.0})]) == [None]


def test_common_random_numbers_sharpen_a_difference(test_seed: int) -> None:
    """Seeds of spread 10 shared by both agents, own noise of spread 0.1: the paired interval sees only the latter."""
    draw = stream(test_seed, "pairs")
    shared, seeds = draw.normal(0.0, 10.0, 12), range(12)
    agent = dict(zip(seeds, shared + 1.0 + draw.normal(0.0, 0.1, 12), strict=True))
    baseline = dict(zip(seeds, shared + draw.normal(0.0, 0.1, 12), strict=True))
    (found,) = paired([(agent, baseline)])
    (alone,) = intervals([np.array(list(agent.values()))], np.mean)
    assert found is not None
    assert alone is not None
    assert abs(found["mean"] - 1.0) < 0.3  # standard error 0.04: error below 1e-10
    assert 20.0 * (found["interval"][1] - found["interval"][0]) < alone[1] - alone[0]


@given(
    power=st.floats(0.1, 1.0),
    scale=st.floats(1e-3, 1e3),
    last=st.integers(200, 10**7),
    points=st.integers(12, 400),
)
def test_slope_of_a_power_is_the_power_however_the_curve_was_thinned(
    power: float, scale: float, last: int, points: int
) -> None:
    episodes = np.unique(np.geomspace(1, last, points).astype(np.int64))
    assert slope(episodes, scale * episodes.astype(np.float64) ** power) == pytest.approx(power, abs=1e-6)


def test_slope_is_that_of_the_last_tenfold_of_episodes() -> None:
    episodes = np.arange(1, 100_001)
    bent = np.where(episodes < 10_000, episodes / 100.0, np.sqrt(episodes))  # linear, then a square root
    assert slope(episodes, bent) == pytest.approx(0.5, abs=1e-6)


def test_a_curve_that_is_zero_has_no_slope() -> None:
    episodes = np.arange(1, 1_001)
    assert math.isnan(slope(episodes, np.zeros(1_000)))
    assert math.isnan(slope(episodes[:1], np.ones(1)))
    assert math.isnan(slope(episodes[:0], np.ones(0)))


def test_the_middle_half_of_one_two_and_four() -> None:
    assert interquartile_mean(np.array([5.0])) == 5.0
    assert interquartile_mean(np.array([1.0, 3.0])) == 2.0
    assert interquartile_mean(np.array([0.0, 1.0, 3.0, 50.0])) == 2.0
