"""Finite spaces as integers 0 ... n-1, and back.

Discrete (with an offset), MultiDiscrete, MultiBinary, and Tuples and Dicts of these are counted in mixed radix, the
last part running fastest. A Box is finite only through a :class:`Discretiser`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from occamrl.errors import InvalidInput, ParameterError, SpaceError, as_array, require_integer, require_kind

LARGEST = 2**31  # states or actions


class Codec(ABC):
    """How the points of a space are numbered: a point has digits, the last running fastest."""

    @property
    @abstractmethod
    def radix(self) -> tuple[int, ...]:
        """How many values each digit has."""

    @abstractmethod
    def digits(self, value: Any) -> list[int]:
        """Return the digits of a point; SpaceError if it is not in the space."""

    @abstractmethod
    def point(self, digits: list[int]) -> Any:
        """Return the point of some digits, as the environment wants it (of a cell: its middle)."""

    @property
    def size(self) -> int:
        """The number n of points (or cells)."""
        return math.prod(self.radix)

    def encode(self, value: Any) -> int:
        """Return the number of a point; SpaceError if it is not in the space."""
        return int(np.ravel_multi_index(self.digits(value), self.radix))

    def decode(self, index: int) -> Any:
        """Return the point of a number."""
        return self.point([int(digit) for digit in np.unravel_index(index, self.radix)])

    def to_plain(self) -> dict[str, Any]:
        """Return the codec as plain data; :func:`codec_from_plain` reads it."""
        return {"kind": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]  # all codecs are dataclasses


@dataclass(frozen=True)
class Integers(Codec):
    """Discrete, MultiDiscrete and MultiBinary: an integer, or an array of them, each with its own start and count."""

    shape: tuple[int, ...]  # () for an integer
    counts: tuple[int, ...]
    starts: tuple[int, ...]
    dtype: str = "int64"

    @property
    def radix(self) -> tuple[int, ...]:
        """The counts."""
        return self.counts

    def digits(self, value: Any) -> list[int]:
        """Return the entries, counted from their starts."""
        array = _array(value, "biu" if self.shape else "iu")
        if array.shape == self.shape:
            digits = [int(entry) - start for entry, start in zip(array.ravel(), self.starts, strict=True)]
            if all(0 <= digit < count for digit, count in zip(digits, self.counts, strict=True)):
                return digits
        expected = f"integers of shape {self.shape} from {list(self.starts)}, {list(self.counts)} values each"
        if not self.shape:
            expected = f"an integer in {self.starts[0]} ... {self.starts[0] + self.counts[0] - 1}"
        raise _outside(value, expected)

    def point(self, digits: list[int]) -> Any:
        """Return the integer or the array."""
        entries = [digit + start for digit, start in zip(digits, self.starts, strict=True)]
        return np.array(entries, dtype=self.dtype).reshape(self.shape) if self.shape else entries[0]


@dataclass(frozen=True)
class Product(Codec):
    """Tuple and Dict: several parts; ``keys`` are those of a Dict, in its order."""

    parts: tuple[Codec, ...]
    keys: tuple[str, ...] | None = None

    @property
    def radix(self) -> tuple[int, ...]:
        """The sizes of the parts."""
        return tuple(part.size for part in self.parts)

    def digits(self, value: Any) -> list[int]:
        """Return the parts' numbers."""
        try:
            values = tuple(value) if self.keys is None else tuple(value[key] for key in self.keys)
            if len(values) != len(self.parts) or len(value) != len(self.parts):
                raise TypeError
        except (TypeError, LookupError):
            raise _outside(value, f"{len(self.parts)} parts" + (f" {self.keys}" if self.keys else "")) from None
        return [part.encode(each) for part, each in zip(self.parts, values, strict=True)]

    def point(self, digits: list[int]) -> Any:
        """Return the tuple or dict of the parts."""
        values = [part.decode(digit) for part, digit in zip(self.parts, digits, strict=True)]
        return tuple(values) if self.keys is None else dict(zip(self.keys, values, strict=True))

    def to_plain(self) -> dict[str, Any]:
        """Return the codec as plain data."""
        return {"kind": "Product", "parts": [part.to_plain() for part in self.parts], "keys": self.keys}


@dataclass(frozen=True)
class Discretiser(Codec):
    """A Box cut into cells between edges, in every dimension; the last dimension runs fastest.

    >>> import gymnasium as gym
    >>> import occamrl as orl
    >>> cells = orl.Discretiser.uniform(gym.spaces.Box(-1.0, 1.0, shape=(2,)), [10, 10])
    >>> cells.encode([0.05, -0.3]), cells.size
    (53, 100)

    Inside a cell all points are treated alike, which is exact if what follows depends on the cell alone.

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
        shape = (len(self.edges),) if self.shape is None else tuple(int(n) for n in self.shape)
        if len(self.edges) == 0 or math.prod(shape) != len(self.edges):
            raise ParameterError("edges", got=f"{len(self.edges)} dimensions", expected=f"those of shape {self.shape}")
        for i, row in enumerate(self.edges):
            array = _array(row, "biuf")
            if array.ndim != 1 or array.size < 2 or not (array[1:] > array[:-1]).all():  # false where not a number
                raise ParameterError("edges", index=(i,), got=row, expected="two or more increasing numbers")
        object.__setattr__(self, "edges", tuple(tuple(float(edge) for edge in row) for row in self.edges))
        object.__setattr__(self, "shape", shape)

    @classmethod
    def uniform(cls, space: spaces.Space[Any], cells: int | Sequence[int]) -> Discretiser:
        """Return equal cells over a bounded Box, ``cells`` in each dimension."""
        if not isinstance(space, spaces.Box):
            raise SpaceError("space", got=f"{space}", expected="a Box")
        low, high = (np.asarray(end, dtype=np.float64).ravel() for end in (space.low, space.high))
        for i in np.flatnonzero(~(np.isfinite(low) & np.isfinite(high)))[:1]:
            got = f"a Box without bounds: [{low[i]}, {high[i]}] in dimension {i}"
            raise SpaceError("space", got=got, expected="finite bounds, or Discretiser(edges) with your own")
        counts = [cells] * low.size if isinstance(cells, int) else list(cells)
        if len(counts) != low.size:
            raise ParameterError("cells", got=f"{len(counts)} numbers", expected=f"{low.size}, one per dimension")
        many = [require_integer("cells", count, 1) + 1 for count in counts]
        return cls([np.linspace(*ends).tolist() for ends in zip(low, high, many, strict=True)], shape=space.shape)

    @property
    def radix(self) -> tuple[int, ...]:
        """The number of cells in each dimension."""
        return tuple(len(row) - 1 for row in self.edges)

    def digits(self, value: Any) -> list[int]:
        """Return the cell of a point in every dimension."""
        point = _array(value, "biuf").ravel()
        if point.size != len(self.edges):
            raise _outside(value, f"{len(self.edges)} numbers")
        for x, row in zip(point.tolist(), self.edges, strict=True):
            if not row[0] <= x <= row[-1]:
                raise _outside(x, f"a number in [{row[0]}, {row[-1]}]")
        return [int(np.searchsorted(row[1:-1], x, side="right")) for x, row in zip(point, self.edges, strict=True)]

    def point(self, digits: list[int]) -> Any:
        """Return the middle of a cell (its finite edge, where the other is infinite)."""
        middle = []
        for row, cell in zip(self.edges, digits, strict=True):
            low, high = row[cell], row[cell + 1]
            middle.append(0.5 * (low + high) if np.isfinite(low + high) else high if np.isfinite(high) else low)
        return np.array(middle, dtype=np.float32).reshape(self.shape or ())


def codec_of(space: spaces.Space[Any], discretiser: Discretiser | None = None) -> Codec:
    """Return how the points of a space are numbered; SpaceError if it is not finite, or a Box without a discretiser."""
    codec: Codec
    if discretiser is not None:
        require_kind("discretiser", discretiser, Discretiser)
        if not isinstance(space, spaces.Box) or space.shape != discretiser.shape:
            raise SpaceError("discretiser", got=f"one for {space}", expected=f"only a Box of shape {discretiser.shape}")
    match space:
        case spaces.Box() if discretiser is not None:
            codec = discretiser
        case spaces.Discrete():
            codec = Integers((), (int(space.n),), (int(space.start),))
        case spaces.MultiDiscrete():
            counts, starts = (tuple(int(n) for n in array.ravel()) for array in (space.nvec, space.start))
            codec = Integers(space.nvec.shape, counts, starts, np.dtype(space.dtype).name)
        case spaces.MultiBinary():
            entries = math.prod(space.shape)
            codec = Integers(space.shape, (2,) * entries, (0,) * entries, "int8")
        case spaces.Tuple():
            codec = Product(tuple(codec_of(part) for part in space.spaces))
        case spaces.Dict():
            codec = Product(tuple(codec_of(part) for part in space.spaces.values()), tuple(space.spaces))
        case _:
            expected = "Discrete, MultiDiscrete, MultiBinary, a Tuple or Dict of them"
            if isinstance(space, spaces.Box):
                expected += "; a Box needs discretiser=Discretiser.uniform(space, cells), or cells of your own"
            raise SpaceError("space", got=f"{space}", expected=expected)
    if not 1 <= codec.size <= LARGEST:
        raise SpaceError("space", got=f"{codec.size:,} points", expected=f"at most {LARGEST:,}")
    return codec


def codec_from_plain(data: Any) -> Codec:
    """Return the codec that :meth:`Codec.to_plain` wrote, perhaps with lists for tuples."""
    match data:
        case {"kind": "Integers", "shape": shape, "counts": counts, "starts": starts, "dtype": str(dtype)}:
            shape, counts, starts = (tuple(int(n) for n in part) for part in (shape, counts, starts))
            return Integers(shape, counts, starts, np.dtype(dtype).name)
        case {"kind": "Product", "parts": parts, "keys": keys}:
            return Product(tuple(codec_from_plain(part) for part in parts), None if keys is None else tuple(keys))
        case {"kind": "Discretiser", "edges": edges, "shape": shape}:
            return Discretiser(edges, shape)
    raise ParameterError("space", got=repr(data)[:80], expected="a space as it was written")


def _array(value: Any, kinds: str) -> NDArray[Any]:
    """Return numbers of these kinds as an array; an empty one for what is none."""
    try:
        return as_array("value", value, kinds=kinds)
    except InvalidInput:
        return np.zeros(0)


def _outside(value: Any, expected: str) -> SpaceError:
    return SpaceError("observation", got=repr(value)[:80], expected=expected)
