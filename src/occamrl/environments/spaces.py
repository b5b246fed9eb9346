"""Finite spaces as integers 0 ... n-1, and back.

Discrete (with an offset), MultiDiscrete, MultiBinary, and Tuples and Dicts of these are counted in mixed radix, the
last part running fastest. A Box is finite only through a :class:`~occamrl.environments.discretiser.Discretiser`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from occamrl.environments.discretiser import Discretiser
from occamrl.environments.misbehaviour import SpaceError
from occamrl.errors import ParameterError

LARGEST = 2**31  # states or actions
_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


class Codec(Protocol):
    """How the points of a space are numbered."""

    @property
    def size(self) -> int:
        """The number n of points (or cells)."""

    def encode(self, value: Any) -> int:
        """Return the number of a point; SpaceError if it is not in the space."""

    def decode(self, index: int) -> Any:
        """Return the point of a number, as the environment wants it (of a cell: its middle)."""

    def to_plain(self) -> dict[str, Any]:
        """Return the codec as plain data; ``codec_from_plain`` reads it."""


@dataclass(frozen=True)
class Range:
    """Discrete: the integers start ... start + n - 1."""

    size: int
    start: int = 0

    def encode(self, value: Any) -> int:
        """Return value - start."""
        try:
            index = operator.index(value) - self.start
        except TypeError:
            if not (isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iu"):
                raise _outside(value, self._told) from None
            index = int(value) - self.start
        if isinstance(value, (bool, np.bool_)) or not 0 <= index < self.size:
            raise _outside(value, self._told)
        return index

    def decode(self, index: int) -> int:
        """Return start + index."""
        return self.start + index

    def to_plain(self) -> dict[str, Any]:
        """Return plain data."""
        return {"kind": "range", "size": self.size, "start": self.start}

    @property
    def _told(self) -> str:
        return f"an integer in {self.start} ... {self.start + self.size - 1}"


@dataclass(frozen=True)
class Digits:
    """MultiDiscrete and MultiBinary: an array of integers, each with its own start and count."""

    shape: tuple[int, ...]
    counts: tuple[int, ...]
    starts: tuple[int, ...]
    dtype: str = "int64"

    @property
    def size(self) -> int:
        """The product of the counts."""
        return math.prod(self.counts)

    def encode(self, value: Any) -> int:
        """Return the number whose digits the entries are."""
        array = np.asarray(value)
        if array.shape != self.shape or array.dtype.kind not in "biu":
            raise _outside(value, f"integers of shape {self.shape}")
        index = 0
        for entry, count, start in zip(array.ravel().tolist(), self.counts, self.starts, strict=True):
            digit = int(entry) - start
            if not 0 <= digit < count:
                raise _outside(value, f"entries from {list(self.starts)}, {list(self.counts)} values each")
            index = index * count + digit
        return index

    def decode(self, index: int) -> Any:
        """Return the array of the digits."""
        digits = []
        for count, start in zip(reversed(self.counts), reversed(self.starts), strict=True):
            index, digit = divmod(index, count)
            digits.append(digit + start)
        return np.array(digits[::-1], dtype=self.dtype).reshape(self.shape)

    def to_plain(self) -> dict[str, Any]:
        """Return plain data."""
        parts = {"shape": list(self.shape), "counts": list(self.counts), "starts": list(self.starts)}
        return {"kind": "digits", **parts, "dtype": self.dtype}


@dataclass(frozen=True)
class Product:
    """Tuple and Dict: several parts; ``keys`` are those of a Dict, in its order."""

    parts: tuple[Codec, ...]
    keys: tuple[str, ...] | None = None

    @property
    def size(self) -> int:
        """The product of the sizes."""
        return math.prod(part.size for part in self.parts)

    def encode(self, value: Any) -> int:
        """Return the number whose digits the parts' numbers are."""
        try:
            values = tuple(value) if self.keys is None else tuple(value[key] for key in self.keys)
            if len(values) != len(self.parts) or len(value) != len(self.parts):
                raise TypeError
        except (TypeError, LookupError):
            raise _outside(value, f"{len(self.parts)} parts" + (f" {self.keys}" if self.keys else "")) from None
        index = 0
        for part, each in zip(self.parts, values, strict=True):
            index = index * part.size + part.encode(each)
        return index

    def decode(self, index: int) -> Any:
        """Return the tuple or dict of the parts."""
        values = []
        for part in reversed(self.parts):
            index, digit = divmod(index, part.size)
            values.append(part.decode(digit))
        values.reverse()
        return tuple(values) if self.keys is None else dict(zip(self.keys, values, strict=True))

    def to_plain(self) -> dict[str, Any]:
        """Return plain data."""
        parts = [part.to_plain() for part in self.parts]
        return {"kind": "product", "parts": parts, "keys": None if self.keys is None else list(self.keys)}


def codec_of(space: spaces.Space[Any], discretiser: Discretiser | None = None) -> Codec:
    """Return how the points of a space are numbered.

    Raises
    ------
    SpaceError
        A space that is not finite, or a Box without a discretiser.
    """
    codec = _codec(space, discretiser)
    if not 1 <= codec.size <= LARGEST:
        raise SpaceError("space", got=f"{codec.size:,} points", expected=f"at most {LARGEST:,}")
    return codec


def _codec(space: spaces.Space[Any], discretiser: Discretiser | None) -> Codec:
    if isinstance(space, spaces.Box):
        if discretiser is None:
            raise SpaceError("space", got=f"{space}", expected="a finite space, or a Discretiser for the Box")
        discretiser.require_fits(space)
        return discretiser
    if discretiser is not None:
        raise SpaceError("discretiser", got=f"one for {space}", expected="none: only a Box needs one")
    match space:
        case spaces.Discrete():
            return Range(int(space.n), int(space.start))
        case spaces.MultiDiscrete():
            counts, starts = (tuple(int(n) for n in array.ravel()) for array in (space.nvec, space.start))
            return Digits(space.nvec.shape, counts, starts, np.dtype(space.dtype).name)
        case spaces.MultiBinary():
            shape = tuple(space.shape or ())
            bits = math.prod(shape)
            return Digits(shape, (2,) * bits, (0,) * bits, "int8")
        case spaces.Tuple():
            return Product(tuple(_codec(part, None) for part in space.spaces))
        case spaces.Dict():
            return Product(tuple(_codec(part, None) for part in space.spaces.values()), tuple(space.spaces))
    raise SpaceError(
        "space", got=f"{space}", expected="Discrete, MultiDiscrete, MultiBinary, or a Tuple or Dict of them"
    )


def codec_from_plain(data: Any) -> Codec:
    """Return the codec of plain data, checked."""
    match data:
        case {"kind": "range", "size": int(size), "start": int(start)} if size > 0:
            return Range(size, start)
        case {
            "kind": "digits",
            "shape": list(shape),
            "counts": list(counts),
            "starts": list(starts),
            "dtype": str(kind),
        } if (
            _integers([*shape, *counts, *starts])
            and math.prod(shape) == len(counts) == len(starts)
            and min(counts, default=1) > 0
            and kind in _DTYPES
        ):
            return Digits(tuple(shape), tuple(counts), tuple(starts), kind)
        case {"kind": "product", "parts": list(parts), "keys": keys} if keys is None or isinstance(keys, list):
            return Product(tuple(codec_from_plain(part) for part in parts), None if keys is None else tuple(keys))
        case {"kind": "cells", "edges": list(edges), "shape": list(shape)} if _integers(shape):
            return Discretiser(edges, shape=tuple(shape))
    raise ParameterError("space", got=repr(data)[:80], expected="a space as it was written")


def _integers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)


def _outside(value: Any, expected: str) -> SpaceError:
    return SpaceError("observation", got=repr(value)[:80], expected=expected)
