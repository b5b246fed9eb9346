"""Finite spaces as integers 0 ... n-1, and back.

Discrete (with an offset), MultiDiscrete, MultiBinary, and Tuples and Dicts of these are counted in mixed radix, the
last part running fastest. A Box is finite only through a :class:`Discretiser`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from occamrl.errors import (
    InvalidInput,
    ParameterError,
    SpaceError,
    as_floats,
    as_integers,
    require_integer,
    require_kind,
)
from occamrl.protocols import Floats

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
        whole = np.asarray(None if isinstance(value, (list, tuple)) else value)  # lists may be ragged
        if whole.ndim or whole.dtype.kind not in "iu" or not 0 <= int(whole) - self.start < self.size:
            raise _outside(value, f"an integer in {self.start} ... {self.start + self.size - 1}")
        return int(whole) - self.start

    def decode(self, index: int) -> int:
        """Return start + index."""
        return self.start + index

    def to_plain(self) -> dict[str, Any]:
        """Return plain data."""
        return {"kind": "range", "size": self.size, "start": self.start}


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
        digits = [int(entry) - start for entry, start in zip(array.ravel(), self.starts, strict=True)]
        if not all(0 <= digit < count for digit, count in zip(digits, self.counts, strict=True)):
            raise _outside(value, f"entries from {list(self.starts)}, {list(self.counts)} values each")
        return _number(digits, self.counts)

    def decode(self, index: int) -> Any:
        """Return the array of the digits."""
        entries = [digit + start for digit, start in zip(_digits(index, self.counts), self.starts, strict=True)]
        return np.array(entries, dtype=self.dtype).reshape(self.shape)

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
        digits = [part.encode(each) for part, each in zip(self.parts, values, strict=True)]
        return _number(digits, [part.size for part in self.parts])

    def decode(self, index: int) -> Any:
        """Return the tuple or dict of the parts."""
        digits = _digits(index, [part.size for part in self.parts])
        values = [part.decode(digit) for part, digit in zip(self.parts, digits, strict=True)]
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
    codec: Codec
    if discretiser is not None:
        require_kind("discretiser", discretiser, Discretiser)
        discretiser.require_fits(space)
    match space:
        case spaces.Box() if discretiser is not None:
            codec = discretiser
        case spaces.Discrete():
            codec = Range(int(space.n), int(space.start))
        case spaces.MultiDiscrete():
            counts, starts = (tuple(int(n) for n in array.ravel()) for array in (space.nvec, space.start))
            codec = Digits(space.nvec.shape, counts, starts, np.dtype(space.dtype).name)
        case spaces.MultiBinary():
            shape = tuple(space.shape or ())
            codec = Digits(shape, (2,) * math.prod(shape), (0,) * math.prod(shape), "int8")
        case spaces.Tuple():
            codec = Product(tuple(codec_of(part) for part in space.spaces))
        case spaces.Dict():
            codec = Product(tuple(codec_of(part) for part in space.spaces.values()), tuple(space.spaces))
        case _:
            expected = "Discrete, MultiDiscrete, MultiBinary, a Tuple or Dict of them; a Box needs a discretiser"
            raise SpaceError("space", got=f"{space}", expected=expected)
    if not 1 <= codec.size <= LARGEST:
        raise SpaceError("space", got=f"{codec.size:,} points", expected=f"at most {LARGEST:,}")
    return codec


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


def _number(digits: Sequence[int], counts: Sequence[int]) -> int:
    """Return the number with these digits in the mixed radix of ``counts``, the last running fastest."""
    index = 0
    for digit, count in zip(digits, counts, strict=True):
        index = index * count + digit
    return index


def _digits(index: int, counts: Sequence[int]) -> list[int]:
    digits = []
    for count in reversed(counts):
        index, digit = divmod(index, count)
        digits.append(digit)
    return digits[::-1]


def _integers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)


def _floats(values: Any) -> Floats:
    """Return numbers as an array, an empty one for what is none."""
    try:
        return as_floats("values", values)
    except InvalidInput:
        return np.zeros(0)


def _outside(value: Any, expected: str) -> SpaceError:
    return SpaceError("observation", got=repr(value)[:80], expected=expected)


@dataclass(frozen=True, eq=False)
class Discretiser:
    """A Box cut into cells between edges, in every dimension; the last dimension varies fastest.

    Inside a cell all points are treated alike. That is exact if what follows depends on the cell alone; where it also
    depends on the place in the cell, no kernel on cells describes the environment.

    Parameters
    ----------
    edges : sequence of sequences of numbers
        For each dimension the m + 1 increasing edges of m cells. A point on an edge belongs to the cell above it, one
        on the last edge to the last cell. The first and last may be infinite.
    shape : tuple of int, optional
        Of the Box; by default one-dimensional.
    """

    edges: Sequence[Sequence[float]]
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.edges, (list, tuple, np.ndarray)) or getattr(self.edges, "ndim", 2) != 2:
            raise ParameterError("edges", got=f"{self.edges!r:.80}", expected="a list of edges for each dimension")
        shape = () if self.shape is None else as_integers("shape", self.shape)
        if len(self.edges) == 0 or (self.shape is not None and int(np.prod(shape)) != len(self.edges)):
            raise ParameterError("edges", got=f"{len(self.edges)} dimensions", expected=f"those of shape {self.shape}")
        for i, row in enumerate(self.edges):
            array = _floats(row)
            if array.ndim != 1 or array.size < 2 or not (np.diff(array) > 0.0).all():  # false where not a number
                raise ParameterError("edges", index=(i,), got=row, expected="two or more increasing numbers")

    @classmethod
    def uniform(cls, space: spaces.Space[Any], cells: int | Sequence[int]) -> Discretiser:
        """Return equal cells over a bounded Box, ``cells`` in each dimension."""
        if not isinstance(space, spaces.Box):
            raise SpaceError("space", got=f"{space}", expected="a Box")
        low, high = (np.asarray(end, dtype=np.float64).ravel() for end in (space.low, space.high))
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            i = int(np.argmax(~(np.isfinite(low) & np.isfinite(high))))
            got = f"a Box without bounds: [{low[i]}, {high[i]}] in dimension {i}"
            raise SpaceError("space", got=got, expected="finite bounds, or Discretiser(edges) with your own")
        counts = [cells] * low.size if isinstance(cells, int) else list(cells)
        if len(counts) != low.size:
            raise ParameterError("cells", got=f"{len(counts)} numbers", expected=f"{low.size}, one per dimension")
        edges = [
            np.linspace(a, b, require_integer("cells", n, 1) + 1).tolist()
            for a, b, n in zip(low, high, counts, strict=True)
        ]
        return cls(edges, shape=tuple(space.shape))

    @cached_property
    def _inner(self) -> list[Floats]:
        return [np.asarray(row, dtype=np.float64)[1:-1] for row in self.edges]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The number of cells in each dimension."""
        return tuple(len(row) - 1 for row in self.edges)

    @cached_property
    def size(self) -> int:
        """The number of cells."""
        return int(np.prod([float(count) for count in self.counts]))

    def require_fits(self, space: spaces.Space[Any]) -> None:
        """Refuse what is no Box, or one of another shape."""
        if not isinstance(space, spaces.Box):
            raise SpaceError("discretiser", got=f"one for {space}", expected="none: only a Box needs one")
        expected = self.shape if self.shape is not None else (len(self.edges),)
        if tuple(space.shape) != expected:
            raise SpaceError("discretiser", got=f"a Box of shape {space.shape}", expected=f"shape {expected}")

    def encode(self, value: Any) -> int:
        """Return the cell of a point."""
        point = _floats(value).ravel()
        if point.size != len(self.edges):
            raise SpaceError("observation", got=repr(value)[:80], expected=f"{len(self.edges)} numbers")
        cells = []
        for x, row, inner in zip(point.tolist(), self.edges, self._inner, strict=True):
            if not row[0] <= x <= row[-1]:
                raise SpaceError("observation", got=x, expected=f"a number in [{row[0]}, {row[-1]}]")
            cells.append(int(np.searchsorted(inner, x, side="right")))
        return _number(cells, self.counts)

    def decode(self, index: int) -> Any:
        """Return the middle of a cell (its finite edge, where the other is infinite)."""
        require_integer("index", index, 0, most=self.size - 1)
        middle = []
        for row, cell in zip(self.edges, _digits(index, self.counts), strict=True):
            low, high = float(row[cell]), float(row[cell + 1])
            middle.append(0.5 * (low + high) if np.isfinite(low + high) else high if np.isfinite(high) else low)
        return np.array(middle, dtype=np.float32).reshape(self.shape or (len(self.edges),))

    def to_plain(self) -> dict[str, Any]:
        """Return plain data."""
        edges = [[float(edge) for edge in row] for row in self.edges]
        return {"kind": "cells", "edges": edges, "shape": list(self.shape or (len(self.edges),))}
