"""Philox4x32-10 by its known answers, and the uniform numbers made of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occamrl import seeding
from occamrl._core import loop, rng
from tests.cases import fill_uniforms, from_python

philox, draw = from_python(rng.philox), from_python(loop.draw)

# From the file kat_vectors of Random123 (Salmon, Moraes, Dror and Shaw): counter, key, result.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN, ids=["zeros", "ones", "pi"])
def test_known_answers(counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]) -> None:
    words = philox(*(np.uint64(word) for word in (*key, *counter)))
    assert tuple(int(word) for word in words) == expected


def philox_by_hand(key: tuple[int, int], counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 in Python's integers."""
    (k0, k1), (c0, c1, c2, c3), mask = key, counter, 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & mask, (p0 >> 32) ^ c3 ^ k1, p0 & mask
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return c0, c1, c2, c3


@given(key=st.integers(0, 2**64 - 1), episode=st.integers(0, 2**62), blocks=st.integers(1, 4))
def test_uniforms_are_53_bits_at_counter_block_and_episode(key: int, episode: int, blocks: int) -> None:
    numbers = np.zeros(2 * blocks)
    fill_uniforms(np.uint64(key), episode, numbers)
    for block in range(blocks):
        words = philox_by_hand((key & 0xFFFFFFFF, key >> 32), (block, 0, episode & 0xFFFFFFFF, episode >> 32))
        for i in range(2):
            high, low = words[2 * i] >> 5, words[2 * i + 1] >> 6
            assert numbers[2 * block + i] == (high * 2**26 + low) / 2**53
    assert ((numbers >= 0.0) & (numbers < 1.0)).all()


def test_environment_and_agent_draw_from_different_streams() -> None:
    one, other = np.zeros(8), np.zeros(8)
    fill_uniforms(seeding.key(0, "environment"), 0, one)
    fill_uniforms(seeding.key(0, "agent"), 0, other)
    assert not np.intersect1d(one, other).size


@given(data=st.data(), size=st.integers(1, 60))
def test_drawing_takes_the_first_running_sum_above_the_number(data: st.DataObject, size: int) -> None:
    """By definition, with outcomes of probability zero among them, in a window of a longer array."""
    weights = np.array(data.draw(st.lists(st.integers(0, 5), min_size=size, max_size=size)), float)
    weights[data.draw(st.integers(0, size - 1))] += 1.0
    sums = np.cumsum(weights) / weights.sum()
    sums[np.flatnonzero(weights)[-1] :] = 1.0
    before = data.draw(st.integers(0, 3))
    row = np.concatenate([np.full(before, 0.123), sums, [0.5]])[np.newaxis]
    u = data.draw(st.one_of(st.floats(0.0, 1.0, exclude_max=True), st.sampled_from([*sums[sums < 1.0], 0.0])))
    found = draw(row, 0, before, before + size, u)
    assert found - before == next(i for i in range(size) if u < sums[i])
    assert weights[found - before] > 0.0
