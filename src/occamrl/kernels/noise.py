"""Rewards drawn around their means, by address like every other random number of an episode.

The noise is a NamedTuple in the truth, and its type decides at compile time what is drawn: rewards without noise cost
nothing. The number that decides the reward of step h depends on the environment's key, the episode and h alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from occamrl.contracts import Floats, NoNoise
from occamrl.kernels.compile import hot, implements
from occamrl.kernels.philox import philox

_APART = np.uint64(0xD1B54A32D192ED03)  # sets the stream of rewards apart from that of transitions
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_UNIT = 1.0 / 4294967296.0  # 2^-32


class CoinFlips(NamedTuple):
    """A reward is 1 with its mean as probability, else 0."""


class Atoms(NamedTuple):
    """A reward is one of Q equally likely values."""

    values: Floats  # [O, Q] by outcome; the mean of a row is the outcome's mean reward


@hot
def reward_uniform(key: np.uint64, episode: int, h: int) -> float:
    """Return the number in [0, 1), of 32 bits, that decides the reward of a step."""
    apart = key ^ _APART
    low, high = np.uint64(episode) & _LOW, np.uint64(episode) >> _HALF
    word, _, _, _ = philox(apart & _LOW, apart >> _HALF, np.uint64(h), np.uint64(0), low, high)
    return np.float64(word) * _UNIT


def realised(noise: Any, o: int, mean: float, key: np.uint64, episode: int, h: int) -> float:
    """Return the reward of outcome ``o``, whose mean is ``mean``."""
    raise TypeError(f"no noise of type {type(noise).__name__}")


@implements(realised, NoNoise)
def realised_mean(noise: NoNoise, o: int, mean: float, key: np.uint64, episode: int, h: int) -> float:
    """``realised`` without noise."""
    return mean


@implements(realised, CoinFlips)
def realised_flip(noise: CoinFlips, o: int, mean: float, key: np.uint64, episode: int, h: int) -> float:
    """``realised`` by a coin."""
    return 1.0 if reward_uniform(key, episode, h) < mean else 0.0


@implements(realised, Atoms)
def realised_atom(noise: Atoms, o: int, mean: float, key: np.uint64, episode: int, h: int) -> float:
    """``realised`` by one of the outcome's atoms."""
    return float(noise.values[o, int(reward_uniform(key, episode, h) * noise.values.shape[1])])


@hot
def draw_reward(noise: Any, o: int, mean: float, key: np.uint64, episode: int, h: int) -> float:
    """Return the reward that the fused loop draws, for those who play step by step."""
    return realised(noise, o, mean, key, episode, h)
