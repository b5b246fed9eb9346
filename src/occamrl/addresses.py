"""Random numbers have addresses: what is drawn at one does not depend on what was drawn before.

An address is (seed, purpose, place): which replicate, what the numbers are for, and where in the
run, such as the first episode of a block. So a run that goes on from an earlier one equals an
uninterrupted one, to the bit, and no file has to hold the state of a generator.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np


def generator(seed: int, purpose: str, place: int = 0) -> np.random.Generator:
    """Return the generator at an address: a counter-based one, whose key is the address.

    >>> from occamrl.addresses import generator
    >>> first = generator(1, "agent", 10).random()
    >>> bool(first == generator(1, "agent", 10).random())
    True
    """
    digest = hashlib.blake2b(f"{seed} {purpose}".encode(), digest_size=8).digest()
    key = np.array([int.from_bytes(digest, "little"), place], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def stream(seed: int, *path: int | str) -> np.random.Generator:
    """Return the generator from which problems and simulated logs draw their parameters.

    The numbers of a problem are part of what it is: recorded regrets and fingerprints refer to
    them. So these keep the construction that they were first drawn with, where an address is a path
    of any length; everything else uses :func:`generator`.
    """
    words = []
    for step in path:
        # The type is part of the address, so that 1 and "1" are two.
        kind = "str" if isinstance(step, str) else "int"
        digest = hashlib.sha256(f"{kind}:{step}".encode()).digest()
        words.append(int.from_bytes(digest[:8], "little"))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int(seed), spawn_key=words)))


class Address(NamedTuple):
    """Where in a run random numbers are for; what they are for is still open."""

    seed: int
    place: int

    def generator(self, purpose: str) -> np.random.Generator:
        """Return the generator for a purpose at this place."""
        return generator(self.seed, purpose, self.place)
