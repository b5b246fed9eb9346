"""Uniform numbers by address: Philox4x32-10, a function of a key and a counter with no state to keep.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

The counter is (block, 0, episode), so the numbers of an episode depend on the key and the episode alone: not on the
learner, on how a run was cut into pieces, or on what came before.
"""

from __future__ import annotations

import math

import numpy as np

from occamrl._core.compile import entry, hot, hot_inline
from occamrl.protocols import Floats, Ints, Noise

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_FIVE = np.uint64(5)
_SIX = np.uint64(6)
_SHIFT_26 = 67108864.0
_UNIT = 1.0 / 9007199254740992.0  # 2^-53


@hot
def philox(
    key_0: np.uint64, key_1: np.uint64, c0: np.uint64, c1: np.uint64, c2: np.uint64, c3: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Return the four 32-bit words (in uint64) of Philox4x32-10 for a key and a counter of 32-bit words."""
    for _ in range(10):
        product_0 = _MULTIPLIER_0 * c0
        product_1 = _MULTIPLIER_1 * c2
        c0 = (product_1 >> _HALF) ^ c1 ^ key_0
        c1 = product_1 & _LOW
        c2 = (product_0 >> _HALF) ^ c3 ^ key_1
        c3 = product_0 & _LOW
        key_0 = (key_0 + _WEYL_0) & _LOW
        key_1 = (key_1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


@entry
def fill_uniforms(key: np.uint64, episode: int, out: Floats) -> None:
    """Fill ``out``, of even size, with the uniform numbers in [0, 1) of an episode, 53 bits each."""
    key_0 = key & _LOW
    key_1 = key >> _HALF
    low = np.uint64(episode) & _LOW
    high = np.uint64(episode) >> _HALF
    for block in range(out.size // 2):
        w0, w1, w2, w3 = philox(key_0, key_1, np.uint64(block), np.uint64(0), low, high)
        out[2 * block] = (np.float64(w0 >> _FIVE) * _SHIFT_26 + np.float64(w1 >> _SIX)) * _UNIT
        out[2 * block + 1] = (np.float64(w2 >> _FIVE) * _SHIFT_26 + np.float64(w3 >> _SIX)) * _UNIT


# ----------------------------------------------------------------------------------------------------
# A stream of numbers at the address (key, episode), for draws whose number is not known beforehand.


@hot
def next_uniform(stream: Ints) -> float:
    """Return the next number in (0, 1) of ``stream`` [3]: key, episode, how many were drawn."""
    key, episode = np.uint64(stream[0]), np.uint64(stream[1])
    block = np.uint64(stream[2])
    stream[2] += 1
    w0, w1, _, _ = philox(key & _LOW, key >> _HALF, block & _LOW, block >> _HALF, episode & _LOW, episode >> _HALF)
    return (np.float64(w0 >> _FIVE) * _SHIFT_26 + np.float64(w1 >> _SIX) + 0.5) * _UNIT


@hot
def next_normal(stream: Ints) -> float:
    """Return a standard normal number (Box and Muller 1958)."""
    radius = math.sqrt(-2.0 * math.log(next_uniform(stream)))
    return radius * math.cos(2.0 * math.pi * next_uniform(stream))


@entry
def next_gamma(stream: Ints, shape: float) -> float:
    """Return a number with law Gamma(shape, 1), shape > 0 (Marsaglia and Tsang 2000)."""
    d = (shape if shape >= 1.0 else shape + 1.0) - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = next_normal(stream)
        v = (1.0 + c * x) ** 3
        if v > 0.0 and math.log(next_uniform(stream)) < 0.5 * x * x + d - d * v + d * math.log(v):
            break
    return d * v if shape >= 1.0 else d * v * next_uniform(stream) ** (1.0 / shape)


# ----------------------------------------------------------------------------------------------------
# Rewards drawn around their means, by address like every other random number of an episode.
#
# The number that decides the reward of step h depends on the environment's key, the episode and h alone.


_APART = np.uint64(0xD1B54A32D192ED03)  # sets the stream of rewards apart from that of transitions
_UNIT_NOISE = 1.0 / 4294967296.0  # 2^-32


MEANS = 0  # a reward is its mean
COINS = 1  # 1 with its mean as probability, else 0
VALUES = 2  # one of Q equally likely values


@hot
def reward_uniform(key: np.uint64, episode: int, h: int) -> float:
    """Return the number in [0, 1), of 32 bits, that decides the reward of a step."""
    apart = key ^ _APART
    low, high = np.uint64(episode) & _LOW, np.uint64(episode) >> _HALF
    word, _, _, _ = philox(apart & _LOW, apart >> _HALF, np.uint64(h), np.uint64(0), low, high)
    return np.float64(word) * _UNIT_NOISE


@hot
def reward_at(noise: Noise, o: int, mean: float, uniform: float) -> float:
    """Return the random reward of outcome ``o``, whose mean is ``mean``, that a number in [0, 1) decides."""
    if noise.kind == COINS:
        return 1.0 if uniform < mean else 0.0
    return float(noise.values[o, int(uniform * noise.values.shape[1])])


@hot_inline
def realised(noise: Noise, o: int, mean: float, key: np.uint64, episode: int, h: int) -> float:
    """Return the reward of outcome ``o``, whose mean is ``mean``."""
    if noise.kind == MEANS:
        return mean
    return reward_at(noise, o, mean, reward_uniform(key, episode, h))


@entry
def draw_reward(noise: Noise, o: int, mean: float, key: np.uint64, episode: int, h: int) -> float:
    """Return the reward that the fused loop draws, for those who play step by step."""
    return realised(noise, o, mean, key, episode, h)
