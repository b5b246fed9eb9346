"""Seeds are addresses: every random number is found by where it is used, never by what was drawn before it.

``stream(root, "problem", 3)`` is always the same generator, in any process and any order of calls. Simulated episodes
use the counter-based generator of :mod:`occamrl._core.rng`, keyed by :func:`key`.
"""

from __future__ import annotations

import hashlib

import numpy as np

from occamrl.errors import ParameterError

Step = int | str


def _sequence(root: int, path: tuple[Step, ...]) -> np.random.SeedSequence:
    if isinstance(root, bool) or not isinstance(root, (int, np.integer)) or not 0 <= root < 2**128:
        raise ParameterError("seed", got=repr(root), expected="an integer >= 0 and below 2^128")
    root, words = int(root), []
    for step in path:
        if isinstance(step, bool) or not isinstance(step, (int, np.integer, str)):
            raise ParameterError("seed path", got=repr(step), expected="integers and strings")
        # Length and kind go into the hash, so that 1, "1" and two steps that concatenate alike stay different.
        text = f"str:{step}".encode() if isinstance(step, str) else f"int:{int(step)}".encode()
        words.append(int.from_bytes(hashlib.sha256(text).digest()[:8], "little"))
    return np.random.SeedSequence(root, spawn_key=tuple(words))


def stream(root: int, *path: Step) -> np.random.Generator:
    """Return the generator at the address ``root / path[0] / path[1] / ...``."""
    return np.random.Generator(np.random.PCG64(_sequence(root, path)))


def key(root: int, *path: Step) -> np.uint64:
    """Return the 64-bit key of the counter-based generator at an address."""
    return np.uint64(_sequence(root, path).generate_state(1, np.uint64)[0])
