"""Typed errors, and the checks of single arguments that raise them.

Every error that a user can cause derives from :class:`OccamRLError` (Ctrl-C is not an error). An
error about input carries what was wrong, where, what was got and what was expected as attributes,
and puts them into one sentence.
"""

from __future__ import annotations

import copyreg
import difflib
import math
import numbers
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_LARGEST_INTEGER = 2**62  # sums of two fit into 64 bits


class OccamRLError(Exception):
    """Base class of the errors that this package raises."""

    def __reduce__(self) -> Any:
        """Pass between processes with all attributes; Python would make it anew from its message alone."""
        return copyreg.__newobj__, (type(self),), {"args": self.args, **vars(self)}  # type: ignore[attr-defined]  # no stub


class InvalidInput(OccamRLError, ValueError):
    """A value given by the user cannot be used.

    ``field`` is the name of the argument as the user wrote it, ``index`` where in the array, for
    instance (s, a, s').
    """

    def __init__(
        self,
        field: str | Path,
        *,
        got: object,
        expected: object,
        index: tuple[int, ...] | None = None,
    ) -> None:
        self.field, self.index, self.got, self.expected = str(field), index, got, expected
        super().__init__(f"{self.where}: got {got!s:.2000}, expected {expected}")

    @property
    def where(self) -> str:
        """The field and the index, as the message begins."""
        return (
            self.field
            if self.index is None
            else f"{self.field}[{', '.join(str(i) for i in self.index)}]"
        )


class ProbabilityError(InvalidInput):
    """A probability is negative, not a number, or a row of them does not sum to one."""


class RewardError(InvalidInput):
    """A reward is not a number or lies outside [0, 1]."""


class ShapeError(InvalidInput):
    """An array's shape or type disagrees with the others."""


class FeatureError(InvalidInput):
    """Features that cannot describe any transition kernel, or lack a reward they need."""


class FamilyError(InvalidInput):
    """A family of kernels is empty or has a member that is not a kernel."""


class NestingError(FamilyError):
    """A ladder's classes are not nested; ``index`` holds the two and the member of the smaller one that shows it."""


class ParameterError(InvalidInput):
    """A parameter of an algorithm or problem is outside its range (delta, norm_bound, replan, episodes, ...)."""


class CheckpointError(InvalidInput):
    """A checkpoint is damaged, belongs to another problem or agent, or cannot be written."""


class UnknownName(InvalidInput):
    """A name that no registry or option list knows; the nearest valid one is suggested."""

    def __init__(self, field: str, *, got: object, known: Iterable[str]) -> None:
        names = sorted(known)
        folded = {name.casefold(): name for name in names}
        near = difflib.get_close_matches(f"{got!s:.100}".casefold(), list(folded), n=1)
        self.suggestion = folded[near[0]] if near else None
        hint = f"; did you mean {self.suggestion!r}?" if self.suggestion else ""
        listed = (
            "one of " * (len(names) > 1) + ", ".join(map(repr, names))
            if names
            else "nothing: there is none"
        )
        super().__init__(field, got=repr(got), expected=listed + hint)


class NotAvailable(OccamRLError):
    """A kind of ladder cannot tell this; the message says why, and what can."""


class ContractError(OccamRLError, AssertionError):
    """A learner, selector, rule, problem or simulator breaks the contract that :mod:`occamrl.checks` verifies."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C stopped a run, at an episode boundary; ``continue_from=stopped.result`` goes on from there."""

    def __init__(self, message: str, result: object) -> None:
        super().__init__(message)
        self.result = result


class EnvironmentFault(InvalidInput):
    """An environment cannot be used, or did what it may not; ``index`` is (episode, step), both from 0.

    In the middle of learning it carries the ``result`` up to there: ``learn(...,
    continue_from=error.result)`` goes on.
    """

    result: Any = None

    @property
    def where(self) -> str:
        """The field, the episode and the step in words."""
        at = [
            f"{word} {number}"
            for word, number in zip(("episode", "step"), self.index or (), strict=False)
        ]
        return f"{self.field} in {', '.join(at)} (from 0)" if at else self.field


class SpaceError(EnvironmentFault):
    """A space that is not finite, or an observation outside its space."""


class TableError(EnvironmentFault):
    """A table of outcomes that is missing, not the whole truth, or contradicted by what the environment did."""


class Fault(NamedTuple):
    """One error in a spec."""

    key: str  # for instance agent[1].parameters.norm_bound
    got: str
    expected: str


class SpecError(InvalidInput):
    """A spec that cannot be run; ``faults`` lists all of its errors."""

    def __init__(self, path: str | Path, faults: Sequence[Fault]) -> None:
        self.path, self.faults = str(path), tuple(faults)
        super().__init__(f"{path}: {faults[0].key}", got=faults[0].got, expected=faults[0].expected)
        lines = [f"  {key}: got {got}, expected {expected}" for key, got, expected in faults]
        self.args = ("\n".join([f"{path}: {len(lines)} error{'s' * (len(lines) > 1)}", *lines]),)


class RecordError(InvalidInput):
    """A file of an experiment's folder is damaged, missing, of another format, or not what it claims to be."""


class StorageError(OccamRLError):
    """A file could not be written: no room, no permission, a read-only folder."""

    def __init__(self, path: str | Path, error: OSError) -> None:
        self.path, self.errno = str(path), error.errno
        super().__init__(
            f"{path}: cannot be written ({error.strerror or error}); earlier results are intact"
        )


class FolderInUse(OccamRLError):
    """Another process works on the folder; the message says which."""


class Stopped(OccamRLError):
    """A cell was stopped at an episode boundary, on request; its checkpoint is written."""


def require_choice(field: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a value that is not one of ``choices``, suggesting the nearest."""
    names = tuple(choices)
    if not isinstance(value, str) or value not in names:
        raise UnknownName(field, got=value, known=names)


def require_number(
    field: str, value: Any, low: float, high: float, *, open_low: bool = False
) -> float:
    """Return ``value`` as a float in [low, high], or in (low, high] if ``open_low``; an infinite end is never met."""
    number = (
        float(value)
        if isinstance(value, numbers.Real) and not isinstance(value, bool)
        else math.nan
    )
    if not (math.isfinite(number) and low <= number <= high) or (open_low and number == low):
        first = "(" if open_low or math.isinf(low) else "["
        last = ")" if math.isinf(high) else "]"
        raise ParameterError(
            field, got=repr(value), expected=f"a number in {first}{low:g}, {high:g}{last}"
        )
    return number


def require_delta(value: Any) -> float:
    """Return a level of confidence delta: the smallest and the largest are the same everywhere."""
    return require_number("delta", value, 1e-300, 1.0)


def require_integer(
    field: str,
    value: Any,
    least: int,
    error: type[InvalidInput] = ParameterError,
    index: tuple[int, ...] | None = None,
    maximum: int = _LARGEST_INTEGER,
) -> int:
    """Return ``value`` as an int in [least, maximum], or refuse it; a bool is no integer."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or not least <= value <= maximum:
        expected = (
            f"an integer >= {least}"
            if maximum == _LARGEST_INTEGER
            else f"an integer in [{least}, {maximum}]"
        )
        raise error(field, got=value if whole else repr(value), expected=expected, index=index)
    return int(value)


def require_integers(owner: object, **least: int) -> None:
    """Check several attributes of an object: each is an integer of at least the number given."""
    for name, lowest in least.items():
        require_integer(name, getattr(owner, name), lowest)


def require_sequences(
    owner: object, low: float, high: float, *names: str, open_low: bool = False
) -> None:
    """Check several attributes of an object: each is a tuple or list of numbers as :func:`require_number` has them."""
    for name in names:
        require_kind(name, getattr(owner, name), (tuple, list))
        for number in getattr(owner, name):
            require_number(name, number, low, high, open_low=open_low)


def require_kind(field: str, value: object, kind: type[Any] | tuple[type[Any], ...]) -> None:
    """Refuse a value that is not of a class."""
    if not isinstance(value, kind):
        name = kind[0].__name__ if isinstance(kind, tuple) else kind.__name__
        raise ParameterError(
            field, got=f"{type(value).__name__} {value!r:.60}", expected=f"a {name}(...)"
        )


def require_undiscounted(known: Any) -> None:
    """Refuse a problem with a discount: of learners that have their own bounds on values."""
    if known.discount < 1.0:
        expected = "1: this agent plans without a discount; Occam, PSRL and others that solve models take any"
        raise ParameterError("discount", got=known.discount, expected=expected)


def require_rewards(known: Any, features: Any = None) -> None:
    """Refuse a problem whose rewards are not known; of learners with features also other sizes, and a discount."""
    if not known.rewards_known:
        expected = "rewards that are known; wrap the agent: orl.RewardsPerPair(agent=...), or use QLearningUCB"
        raise ParameterError("known.rewards_known", got=False, expected=expected)
    if features is not None:
        features.attach(known)
        require_undiscounted(known)


def require_range(field: str, ends: Any) -> tuple[float, float]:
    """Return (low, high), two finite numbers with low < high."""
    try:
        low, high = (float(end) for end in ends)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ParameterError(
            field, got=ends, expected="(low, high), finite numbers with low < high"
        )
    return low, high


def sum_to_one(total: float, least: float = 0.0) -> str:
    """Return what is expected of probabilities with this sum and minimum, and what to do."""
    advice = "; divide each row by its sum, in 64 bits" if total > 0.0 and least >= 0.0 else ""
    return f"probabilities >= 0 that sum to 1{advice}"


def as_array(
    field: str, value: Any, expected: object = "an array", kinds: str = ""
) -> NDArray[Any]:
    """Return an array of these kinds of numbers, and of the shape ``expected`` if that is one."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        raise ShapeError(field, got="rows of different lengths", expected=expected) from None
    if kinds and array.size and array.dtype.kind not in kinds:
        raise ShapeError(field, got=f"dtype {array.dtype}", expected=expected)
    if isinstance(expected, tuple) and array.shape != expected:
        raise ShapeError(field, got=array.shape, expected=expected)
    return array


def as_floats(
    field: str, value: Any, expected: object = "an array of real numbers"
) -> NDArray[np.float64]:
    """Return a new array of floats, or refuse what is ragged or not made of real numbers."""
    return as_array(field, value, expected, "biuf").astype("float64")


def as_flags(field: str, value: Any, expected: object) -> NDArray[np.bool_]:
    """Return an array of true and false; numbers are true where they are not zero."""
    return as_array(field, value, expected, "biuf").astype("bool")


def as_integers(
    field: str, value: Any, expected: object = "an array of integers"
) -> NDArray[np.int64]:
    """Return a new array of integers, or refuse what is ragged or not made of integers."""
    return as_array(field, value, expected, "iu").astype("int64")


def as_indices(field: str, value: Any, size: int) -> NDArray[np.int64]:
    """Return different integers in [0, size) as an array, at least one."""
    expected = f"different integers in [0, {size}), at least one"
    chosen = as_integers(field, value, expected)
    inside = chosen.ndim == 1 and chosen.size and chosen.min() >= 0 and chosen.max() < size
    if not inside or len(set(chosen.tolist())) < chosen.size:
        raise ShapeError(field, got=f"{value!r:.200}", expected=expected)
    return chosen


def as_path(field: str, value: Any) -> Path:
    """Return a path, or refuse what is none."""
    if not isinstance(value, (str, os.PathLike)):
        raise ParameterError(field, got=f"{value!r:.100}", expected="a path")
    return Path(value)


def __dir__() -> list[str]:
    return sorted(
        name
        for name, each in globals().items()
        if isinstance(each, type) and issubclass(each, BaseException)
    )
