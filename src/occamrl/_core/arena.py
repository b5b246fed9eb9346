"""All arrays of a learner in two pieces of memory, one of numbers and one of integers.

Compile time grows with the number of arrays that compiled functions pass to each other, so a state or a model is a
NamedTuple that begins with two flat arrays, ``floats`` and ``ints``. A *field* is a vector or a matrix inside one of
them; where it lies and what shape it has stands at the head of ``ints``, four integers a field. Compiled code takes a
view of a field by its number (:func:`fvec`, :func:`fmat`, :func:`ivec`, :func:`imat`), which costs a few loads; Python
takes the same view by :func:`field`. A large array that is handed to :func:`lay_out` stays where it is: its field then
lies outside, at the distance that stands at the head. A copy of what was laid out, made by ``copy`` or ``pickle``, has
copies of these arrays and distances of its own.
"""

from __future__ import annotations

import copyreg
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, finalize

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

from occamrl.errors import ShapeError
from occamrl.protocols import Field, Floats, Ints, Known, Learner

_numba: Any = arrayobj  # Numba has no types
_code: Any = cgutils
_LINE = 8  # numbers of a cache line
_HEAD = 4  # integers a field: offset, rows, columns, and 4 * (outside) + 2 * (holds integers) + dimensions - 1
_LARGE = 2**20  # numbers of a field that is not copied


class Arena(NamedTuple):
    """The arrays of a state; those of a model may have other parts after them."""

    floats: Floats
    ints: Ints


def lay_out(kind: type[Any], fields: Sequence[Any], **others: Any) -> Any:
    """Return a ``kind`` whose arena holds copies of the arrays ``fields``; ``others`` are its other parts.

    Every field begins on a cache line of its own: vector instructions that cross lines take twice as long. Arrays of a
    million numbers are not copied, and live as long as the arena.
    """
    outside = [array.size >= _LARGE and array.flags.c_contiguous for array in fields]
    shapes = [(0,) if apart else array.shape for array, apart in zip(fields, outside, strict=True)]
    head, size = _head([(shape, array.dtype.kind == "i") for array, shape in zip(fields, shapes, strict=True)], _LINE)
    made = kind(_on_a_line(size[False], np.float64), _on_a_line(size[True], np.int64), **others)
    made.ints[: head.size] = head
    for number, array in enumerate(fields):
        if not outside[number]:
            field(made, number)[...] = array
    copyreg.pickle(kind, _taken_apart)
    return _with_outside(made, {number: array for number, array in enumerate(fields) if outside[number]})


_OUTSIDE: dict[int, dict[int, Any]] = {}  # the arrays that lie outside, by the id of the floats of an arena


def _with_outside(made: Any, outside: dict[int, Any]) -> Any:
    """Return an arena with these arrays as its fields of these numbers, alive as long as its floats."""
    for number, array in outside.items():
        home = made.ints if array.dtype.kind == "i" else made.floats
        offset = (array.ctypes.data - home.ctypes.data) // array.itemsize
        (_, rows, columns, what), _ = _head([(array.shape, array.dtype.kind == "i")])
        made.ints[_HEAD * number : _HEAD * (number + 1)] = (offset, rows, columns, 4 + what)
    if outside and id(made.floats) not in _OUTSIDE:  # a shallow copy shares its arrays
        _OUTSIDE[id(made.floats)] = outside
        finalize(made.floats, _OUTSIDE.pop, id(made.floats))
    return made


def _taken_apart(made: Any) -> tuple[Any, ...]:
    """Return how ``copy`` and ``pickle`` make an arena anew: distances hold for no copy."""
    return _put_together, (type(made), tuple(made), _OUTSIDE.get(id(made.floats), {}))


def _put_together(kind: type[Any], parts: tuple[Any, ...], outside: dict[int, Any]) -> Any:
    return _with_outside(kind(*parts), outside)


def _on_a_line(size: int, dtype: Any) -> Any:
    """Return zeros that begin on a cache line."""
    room = np.zeros(size + _LINE, dtype=dtype)
    skip = -(room.ctypes.data // room.itemsize) % _LINE
    return room[skip : skip + size]


def fresh_state(kind: type[Any], fields: Sequence[Field]) -> Any:
    """Return a state before any data; memory that begins as zeros costs nothing until it is used."""
    head, size = _head([(each.shape, each.whole) for each in fields])
    made = kind(np.zeros(size[False]), np.zeros(size[True], dtype=np.int64))
    made.ints[: head.size] = head
    for number, each in enumerate(fields):
        if not isinstance(each.fill, int) or each.fill != 0:
            field(made, number)[...] = each.fill
    return made


def _head(layout: Sequence[tuple[tuple[int, ...], bool]], line: int = 1) -> tuple[Ints, dict[bool, int]]:
    """Return where fields of these shapes lie, given whether each holds integers; and the sizes of both arrays.

    Each begins at a multiple of ``line`` numbers.
    """
    head: list[int] = []
    size = {False: 0, True: _HEAD * len(layout)}
    for shape, whole in layout:
        rows, columns = shape if len(shape) == 2 else (1, *shape)
        size[whole] += -size[whole] % line
        head += (size[whole], rows, columns, 2 * whole + len(shape) - 1)
        size[whole] += rows * columns
    return np.array(head, dtype=np.int64), size


def field(arena: Any, number: int) -> Any:
    """Return a view of a field, as it was laid out."""
    offset, rows, columns, kind = arena.ints[_HEAD * number : _HEAD * (number + 1)].tolist()
    if kind & 4:
        return _OUTSIDE[id(arena.floats)][number]
    flat = (arena.ints if kind & 2 else arena.floats)[offset : offset + rows * columns]
    return flat.reshape(rows, columns) if kind & 1 else flat


def require_fields(state: Any, fields: Sequence[Field]) -> None:
    """Refuse a state that has other fields than these, or a number that a field may not hold."""
    if not isinstance(state, Arena):
        if not isinstance(state, tuple) or len(state) != len(fields):
            raise ShapeError("state", got=type(state).__name__, expected=f"a NamedTuple of {len(fields)} arrays")
        for array, each in zip(state, fields, strict=True):
            each.require(array)
        return
    head, size = _head([(each.shape, each.whole) for each in fields])
    Field("floats", (size[False],), 0.0, 0.0).require_kind(state.floats)
    Field("ints", (size[True],), 0, 0).require_kind(state.ints)
    if not np.array_equal(state.ints[: head.size], head):
        raise ShapeError("state", got="fields of another layout", expected="those of a fresh state")
    for number, each in enumerate(fields):
        each.require_values(field(state, number))


def resumed(learner: Learner, known: Known, model: Any, fresh: Any, saved: Any) -> Any:
    """Return a state as it was saved, checked, in the arrays of a fresh one, which a selector's memory may share."""
    if type(saved) is not type(fresh):
        raise ShapeError("state", got=type(saved).__name__, expected=type(fresh).__name__)
    require_fields(saved, learner.fields(known, saved))
    check = getattr(learner, "resume", None)
    if check is not None:
        check(model, fresh, saved)
    if any(ours.shape != theirs.shape for ours, theirs in zip(fresh, saved, strict=True)):
        return saved  # it has grown
    for ours, theirs in zip(fresh, saved, strict=True):
        ours[...] = theirs
    return fresh


_MODELS: WeakKeyDictionary[Any, tuple[Known, Any]] = WeakKeyDictionary()  # the last one of each learner


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_MODELS.clear)  # a model may be one for threads, which forks do not use


def model_of(learner: Any, known: Known) -> Any:
    """Return the model of a learner, made once: constants, and scratch memory that means nothing between two calls."""
    try:
        made = _MODELS.get(learner)
        if made is None or made[0] is not known:
            made = _MODELS[learner] = known, learner.model(known)
    except TypeError:  # a learner that has no hash, or to which there are no weak references
        return learner.model(known)
    return made[1]


def forget_models() -> None:
    """Make every model anew when it is asked for next, as another process would."""
    _MODELS.clear()


def named(number: int) -> Any:
    """Return the property of a state that is a view of one of its fields, for Python."""
    return property(lambda arena: field(arena, number))


def fields(arena: Any, count: int) -> list[Any]:
    """Return views of the first ``count`` fields."""
    return [field(arena, number) for number in range(count)]


def _check(context: Any, builder: Any, offset: Any, count: Any, size: Any) -> None:
    """Raise IndexError where a view of ``count`` numbers leaves its array, in code that checks indices."""
    if context.enable_boundscheck:
        for end in (offset, builder.add(offset, count)):
            _code.do_boundscheck(context, builder, end, builder.add(size, size.type(1)))


def _viewer(whole: bool, dimensions: int) -> Any:
    """Return the function of compiled code that takes a view of a field."""
    part = 1 if whole else 0
    array = types.Array(types.int64 if whole else types.float64, dimensions, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arena, number = arguments
        kinds = signature.args[0].types
        ints = _numba.make_array(kinds[1])(context, builder, value=builder.extract_value(arena, 1))
        source = _numba.make_array(kinds[part])(context, builder, value=builder.extract_value(arena, part))
        number = context.cast(builder, number, signature.args[1], types.intp)
        begin = builder.mul(number, number.type(_HEAD))
        _check(context, builder, begin, begin.type(_HEAD), ints.nitems)
        head = [builder.load(builder.gep(ints.data, [builder.add(begin, begin.type(i))])) for i in range(_HEAD)]
        for load in head:  # what stands at the head never changes: loads can leave the loops that they are in
            load.set_metadata("invariant.load", builder.module.add_metadata([]))
        offset, rows, columns, kind = head
        inside = builder.icmp_signed("<", kind, kind.type(4))
        nothing = offset.type(0)
        begin, count = (builder.select(inside, each, nothing) for each in (offset, builder.mul(rows, columns)))
        _check(context, builder, begin, count, source.nitems)
        other = builder.and_(builder.xor(builder.lshr(kind, kind.type(1)), kind.type(int(whole))), kind.type(1))
        _check(context, builder, other, other.type(0), other.type(0))  # a field of the other array
        item = context.get_constant(types.intp, 8)
        made = _numba.make_array(array)(context, builder)
        stride = builder.mul(columns, item)
        _numba.populate_array(
            made,
            data=builder.gep(source.data, [offset]),
            shape=_code.pack_array(builder, [rows, columns] if dimensions == 2 else [builder.mul(rows, columns)]),
            strides=_code.pack_array(builder, [stride, item] if dimensions == 2 else [item]),
            itemsize=item,
            meminfo=None,
        )
        return made._getvalue()

    def view(typing_context: Any, arena: Any, number: Any) -> tuple[Any, Callable[..., Any]]:
        return array(arena, number), generate

    return intrinsic(view)


fvec: Any = _viewer(False, 1)  # numbers as a vector
fmat: Any = _viewer(False, 2)  # numbers as a matrix
ivec: Any = _viewer(True, 1)  # integers as a vector
imat: Any = _viewer(True, 2)  # integers as a matrix


def _piece(dimensions: int) -> Any:
    """Return the function of compiled code that takes a view inside a flat array, without a copy."""
    array = types.Array(types.float64, dimensions, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        flat, offset, n = arguments
        source = _numba.make_array(signature.args[0])(context, builder, value=flat)
        offset = context.cast(builder, offset, signature.args[1], types.intp)
        n = context.cast(builder, n, signature.args[2], types.intp)
        _check(context, builder, offset, builder.mul(n, n) if dimensions == 2 else n, source.nitems)
        item = context.get_constant(types.intp, 8)
        made = _numba.make_array(array)(context, builder)
        _numba.populate_array(
            made,
            data=builder.gep(source.data, [offset]),
            shape=_code.pack_array(builder, [n] * dimensions),
            strides=_code.pack_array(builder, [builder.mul(n, item), item] if dimensions == 2 else [item]),
            itemsize=item,
            meminfo=None,
        )
        return made._getvalue()

    def view(typing_context: Any, flat: Any, offset: Any, n: Any) -> tuple[Any, Callable[..., Any]]:
        return array(flat, offset, n), generate

    return intrinsic(view)


part: Any = _piece(1)  # part(flat, offset, n): n numbers from ``offset`` on
square: Any = _piece(2)  # square(flat, offset, n): an n-by-n matrix that begins at ``offset``


def _fused(typing_context: Any, a: Any, b: Any, c: Any) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


fma: Any = intrinsic(_fused)  # fma(a, b, c): a b + c rounded once, the same bits on every machine, in one instruction
