"""Fingerprints of agents: equal for equal parameters, in any process.

A run may be continued only by the agent that began it; two objects with the same parameters are the same agent.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np


def fingerprint(agent: object) -> str:
    """Return a hash of an agent's class and of all its parameters."""
    digest = hashlib.sha256()
    _feed(digest, agent)
    return digest.hexdigest()


def _feed(digest: Any, value: object) -> None:
    kind = type(value)
    digest.update(f"<{kind.__module__}.{kind.__qualname__}>".encode())
    known = getattr(value, "fingerprint", None)
    if isinstance(known, str):
        digest.update(known.encode())
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            digest.update(f".{field.name}".encode())
            _feed(digest, getattr(value, field.name))
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            digest.update(f"[{key!r}]".encode())
            _feed(digest, value[key])
    elif isinstance(value, (list, tuple)):
        for part in value:
            _feed(digest, part)
    elif value is None or isinstance(value, (bool, int, float, str, np.generic)):
        digest.update(repr(value).encode())
    elif hasattr(value, "__dict__"):
        _feed(digest, {name: part for name, part in vars(value).items() if not name.startswith("_")})
