"""Checks of single arguments, shared by the problems."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex, cast

import numpy as np

from occamrl.contracts import Floats
from occamrl.errors import InvalidInput, ParameterError, ShapeError


def require_integer(field: str, value: object, least: int, error: type[InvalidInput] = ParameterError) -> int:
    """Return ``value`` as an int, or refuse what is not an integer (a bool is not) or is below ``least``."""
    expected = f"an integer >= {least}"
    if isinstance(value, (bool, np.bool_)):
        raise error(field, got=repr(value), expected=expected)
    try:
        number = operator.index(cast(SupportsIndex, value))  # what is no integer raises
    except TypeError:
        raise error(field, got=repr(value), expected=expected) from None
    if number < least:
        raise error(field, got=number, expected=expected)
    return number


def as_floats(field: str, value: Any) -> Floats:
    """Return a dense array of floats, or refuse what is ragged or not made of real numbers."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise ShapeError(field, got="rows of different lengths", expected="a rectangular array") from None
    if array.dtype.kind not in "biuf":
        raise ShapeError(field, got=f"dtype {array.dtype}", expected="an array of real numbers")
    return array.astype(np.float64)
