"""Ways to know rewards as words and tables of a TOML file.

======================================  ================================================================================
``rewards =``                           means
======================================  ================================================================================
``"known"``                             they are
``{ per_pair = "bernstein" }``          :class:`RewardsPerPair` with this bound, or ``"hoeffding"``
``{ linear = psi, norm_bound = 1.0 }``  :class:`RewardsLinear`; psi is an array [S, A, p] of nested lists or, where
                                        files can be named, the name of one
======================================  ================================================================================

Beside ``per_pair`` or ``linear`` the other parameters of the class can be given: ``share``, ``per_step``, ``scale``,
``regularization``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from occamrl.contracts import Floats
from occamrl.errors import InvalidInput, ParameterError, ShapeError, UnknownName
from occamrl.learners.rewards import Rewards, RewardsLinear, RewardsPerPair, require_rewards

_KINDS: dict[str, tuple[type[Any], str]] = {
    "per_pair": (RewardsPerPair, "bound"),
    "linear": (RewardsLinear, "features"),
}


def rewards_of(value: Any, field: str = "rewards", read: Callable[[str, str], Floats] | None = None) -> Rewards:
    """Return what a word or a table stands for; errors name ``field`` and the key below it.

    ``read(file, field)`` returns the array of a file, where files can be named.
    """
    if not isinstance(value, dict):
        try:
            require_rewards(value)
        except UnknownName as error:
            expected = '"known", { per_pair = "bernstein" } or { linear = psi, norm_bound = b }'
            raise ParameterError(field, got=error.got, expected=expected) from error
        made: Rewards = value
        return made
    chosen = [kind for kind in _KINDS if kind in value]
    if len(chosen) != 1:
        known = {*_KINDS, *(name for kind in _KINDS for name in _parameters(kind))}
        for key in value:
            if key not in known:
                raise UnknownName(f"{field}.{key}", got=key, known=_KINDS)
        raise ParameterError(field, got=repr(value)[:80], expected="one of the keys " + " and ".join(_KINDS))
    kind, main = _KINDS[chosen[0]]
    rest = {key: part for key, part in value.items() if key != chosen[0]}
    for key in rest:
        if key not in _parameters(chosen[0]):
            raise UnknownName(f"{field}.{key}", got=key, known=[chosen[0], *_parameters(chosen[0])])
    first = value[chosen[0]]
    if chosen[0] == "linear":
        first = _features(first, f"{field}.linear", read)
    try:
        return kind(**{main: first}, **rest)  # type: ignore[no-any-return]  # of the two classes above
    except InvalidInput as error:
        name = chosen[0] if error.field == main else error.field
        raise ParameterError(f"{field}.{name}", index=error.index, got=error.got, expected=error.expected) from error
    except TypeError as error:
        raise ParameterError(f"{field}.norm_bound", got="nothing", expected="a bound on the norm of omega") from error


def _parameters(kind: str) -> list[str]:
    """Return the parameters of a class that have their own name in a table."""
    cls, main = _KINDS[kind]
    return [each.name for each in dataclasses.fields(cls) if each.name != main]


def _features(value: Any, field: str, read: Callable[[str, str], Floats] | None) -> Floats:
    if isinstance(value, str):
        if read is None:
            raise ParameterError(field, got=repr(value), expected="an array [S, A, p] of nested lists")
        return read(value, field)
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ShapeError(field, got=repr(value)[:60], expected="an array [S, A, p] of nested lists") from None
