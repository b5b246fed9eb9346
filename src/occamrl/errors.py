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
_MOST_NUMBERS = 2**30  # of an array
SMALLEST_DELTA = 1e-300  # its logarithm and its square root are still ordinary numbers


class OccamRLError(Exception):
    """Base class of the errors that this package raises.

    >>> import occamrl as orl
    >>> try:
    ...     orl.make_problem("river-swin")
    ... except orl.OccamRLError as error:
    ...     print(type(error).__name__)
    UnknownName
    """

    def __reduce__(self) -> tuple[object, ...]:
        """Pass between processes with all attributes; Python would keep the message alone."""
        make = copyreg.__newobj__  # type: ignore[attr-defined]  # typeshed lacks it
        return make, (type(self),), {"args": self.args, **vars(self)}


class InvalidInput(OccamRLError, ValueError):
    """A value given by the user cannot be used.

    >>> import occamrl as orl
    >>> try:
    ...     orl.make_problem("river-swim", states=1)
    ... except orl.InvalidInput as error:
    ...     print(error.field, error.got)
    states 1

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
        self.field = str(field)
        self.index = index
        self.got = got
        self.expected = expected
        super().__init__(f"{self.where}: got {got!s:.2000}, expected {expected}")

    @property
    def where(self) -> str:
        """The field and the index, as the message begins."""
        if self.index is None:
            return self.field
        return f"{self.field}[{', '.join(map(str, self.index))}]"


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
    """A ladder's classes are not nested.

    ``index`` holds the two and the member of the smaller one that shows it.
    """


class ParameterError(InvalidInput):
    """A parameter of an algorithm or problem is outside its range (delta, episodes, ...)."""


class CheckpointError(InvalidInput):
    """A checkpoint is damaged, belongs to another problem or agent, or cannot be written."""


class UnknownName(InvalidInput):
    """A name that no registry or option list knows; the nearest valid one is suggested."""

    def __init__(self, field: str, *, got: object, known: Iterable[str]) -> None:
        names = sorted(known)
        expected = ", ".join(map(repr, names)) or "nothing: there is none"
        if len(names) > 1:
            expected = f"one of {expected}"
        folded = {name.casefold(): name for name in names}
        near = difflib.get_close_matches(f"{got!s:.100}".casefold(), list(folded), n=1)
        self.suggestion: str | None = None
        if near:
            self.suggestion = folded[near[0]]
            expected += f"; did you mean {self.suggestion!r}?"
        super().__init__(field, got=repr(got), expected=expected)


class NotAvailable(OccamRLError):
    """A kind of ladder cannot tell this; the message says why, and what can."""


class ContractError(OccamRLError, AssertionError):
    """A learner, rule, problem or simulator breaks what :mod:`occamrl.checks` verifies."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C stopped a run, at an episode boundary; ``continue_from=stopped.result`` goes on.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> agent = orl.UniformRandom()
    >>> try:
    ...     result = orl.run(agent, problem, episodes=20)
    ... except orl.Interrupted as stopped:
    ...     left = 20 - stopped.result.total_episodes
    ...     result = orl.run(agent, problem, episodes=left, continue_from=stopped.result)
    >>> result.total_episodes
    20
    """

    def __init__(self, message: str, result: object) -> None:
        super().__init__(message)
        self.result = result


class EnvironmentFault(InvalidInput):
    """An environment cannot be used, or did what it may not.

    ``index`` is (episode, step), both from 0. In the middle of learning it carries the ``result``
    up to there: ``learn(..., continue_from=error.result)`` goes on.
    """

    result: Any = None  # an orl.Result, which is defined above this layer

    @property
    def where(self) -> str:
        """The field, the episode and the step in words."""
        words = ("episode", "step")  # or the episode alone
        parts = [f"{word} {i}" for word, i in zip(words, self.index or (), strict=False)]
        if not parts:
            return self.field
        return f"{self.field} in {', '.join(parts)} (from 0)"


class SpaceError(EnvironmentFault):
    """A space that is not finite, or an observation outside its space."""


class TableError(EnvironmentFault):
    """A table of outcomes that is missing, not the whole truth, or contradicted by a step."""


class Fault(NamedTuple):
    """One error in a spec."""

    key: str  # for instance agent[1].parameters.norm_bound
    got: str
    expected: str


class SpecError(InvalidInput):
    """A spec that cannot be run; ``faults`` lists all of its errors."""

    def __init__(self, path: str | Path, faults: Sequence[Fault]) -> None:
        self.path = str(path)
        self.faults = tuple(faults)
        first = faults[0]
        super().__init__(f"{path}: {first.key}", got=first.got, expected=first.expected)
        noun = "error" if len(faults) == 1 else "errors"
        lines = [f"{path}: {len(faults)} {noun}"]
        for key, got, expected in faults:
            lines.append(f"  {key}: got {got}, expected {expected}")
        self.args = ("\n".join(lines),)


class RecordError(InvalidInput):
    """A file of an experiment is damaged, missing, of another format, or not what it claims."""


class StorageError(OccamRLError):
    """A file could not be written: no room, no permission, a read-only folder."""

    def __init__(self, path: str | Path, error: OSError) -> None:
        reason = error.strerror or error
        super().__init__(f"{path}: cannot be written ({reason}); earlier results are intact")
        self.path = str(path)
        self.errno = error.errno


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
    field: str, value: object, low: float, high: float, *, open_low: bool = False
) -> float:
    """Return ``value`` as a float in [low, high], or in (low, high] if ``open_low``.

    An infinite end is never met.
    """
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        above = number > low if open_low else number >= low
        if math.isfinite(number) and above and number <= high:
            return number
    first = "(" if open_low or math.isinf(low) else "["
    last = ")" if math.isinf(high) else "]"
    raise ParameterError(
        field, got=repr(value), expected=f"a number in {first}{low:g}, {high:g}{last}"
    )


def require_delta(value: object) -> float:
    """Return a level of confidence delta: the smallest and the largest are the same everywhere."""
    return require_number("delta", value, SMALLEST_DELTA, 1.0)


def require_integer(
    field: str,
    value: object,
    least: int,
    error: type[InvalidInput] = ParameterError,
    index: tuple[int, ...] | None = None,
    maximum: int = _LARGEST_INTEGER,
) -> int:
    """Return ``value`` as an int in [least, maximum], or refuse it; a bool is no integer."""
    got: object = repr(value)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        if least <= int(value) <= maximum:
            return int(value)
        got = value
    expected = f"an integer in [{least}, {maximum}]"
    if maximum == _LARGEST_INTEGER:
        expected = f"an integer >= {least}"
    raise error(field, got=got, expected=expected, index=index)


def require_room(field: str, *sizes: int) -> None:
    """Refuse sizes whose array of numbers would take more than 8 GB, before it is made."""
    if math.prod(sizes) > _MOST_NUMBERS:
        got = " x ".join(f"{size:,}" for size in sizes)
        expected = (
            f"sizes whose product is at most {_MOST_NUMBERS:,}: fewer states or steps, or "
            "outcomes in a list (FiniteMDP(outcomes=...), orl.Model)"
        )
        raise ParameterError(field, got=got, expected=expected)


def require_integers(owner: object, **least: int) -> None:
    """Check several attributes of an object: each is an integer of at least the number given."""
    for name, lowest in least.items():
        require_integer(name, getattr(owner, name), lowest)


def require_sequences(
    owner: object, low: float, high: float, *names: str, open_low: bool = False
) -> None:
    """Check several attributes of an object: each is a tuple or list of numbers in [low, high]."""
    for name in names:
        values = getattr(owner, name)
        require_kind(name, values, (tuple, list))
        for number in values:
            require_number(name, number, low, high, open_low=open_low)


def require_kind(field: str, value: object, kind: type | tuple[type, ...]) -> None:
    """Refuse a value that is not of a class; of several the first is named."""
    if not isinstance(value, kind):
        name = kind[0].__name__ if isinstance(kind, tuple) else kind.__name__
        got = f"{type(value).__name__} {value!r:.60}"
        raise ParameterError(field, got=got, expected=f"a {name}(...)")


def require_undiscounted(known: Any) -> None:
    """Refuse a problem with a discount: of learners that have their own bounds on values."""
    if known.discount < 1.0:
        expected = (
            "1: this agent plans without a discount; "
            "Occam, PSRL and others that solve models take any"
        )
        raise ParameterError("discount", got=known.discount, expected=expected)


def require_rewards(known: Any, features: Any = None) -> None:
    """Refuse a problem whose rewards are not known; for features also other sizes, a discount."""
    if not known.rewards_known:
        expected = (
            "rewards that are known; wrap the agent: orl.RewardsPerPair(agent=...), "
            "or use QLearningUCB"
        )
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
    expected = "probabilities >= 0 that sum to 1"
    if total > 0.0 and least >= 0.0:
        expected += "; divide each row by its sum, in 64 bits"
    return expected


def as_array(
    field: str, value: object, expected: object = "an array", kinds: str = ""
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
    field: str, value: object, expected: object = "an array of real numbers"
) -> NDArray[np.float64]:
    """Return a new array of floats, or refuse what is ragged or not made of real numbers."""
    return as_array(field, value, expected, "biuf").astype("float64")


def as_flags(field: str, value: object, expected: object) -> NDArray[np.bool_]:
    """Return an array of true and false; numbers are true where they are not zero."""
    return as_array(field, value, expected, "biuf").astype("bool")


def as_integers(
    field: str, value: object, expected: object = "an array of integers"
) -> NDArray[np.int64]:
    """Return a new array of integers, or refuse what is ragged or not made of integers."""
    return as_array(field, value, expected, "iu").astype("int64")


def as_indices(field: str, value: object, size: int) -> NDArray[np.int64]:
    """Return different integers in [0, size) as an array, at least one."""
    expected = f"different integers in [0, {size}), at least one"
    chosen = as_integers(field, value, expected)
    inside = chosen.ndim == 1 and chosen.size and chosen.min() >= 0 and chosen.max() < size
    if not inside or len(set(chosen.tolist())) < chosen.size:
        raise ShapeError(field, got=f"{value!r:.200}", expected=expected)
    return chosen


def as_path(field: str, value: object) -> Path:
    """Return a path, or refuse what is none."""
    if not isinstance(value, (str, os.PathLike)):
        raise ParameterError(field, got=f"{value!r:.100}", expected="a path")
    path = Path(value)
    try:
        path.exists()
    except OSError as error:  # a name that is too long, or a folder that may not be looked into
        reason = error.strerror or error
        raise ParameterError(field, got=f"{value!r:.100} ({reason})", expected="a path") from None
    return path


def __dir__() -> list[str]:
    names = []
    for name, value in globals().items():
        if isinstance(value, type) and issubclass(value, BaseException):
            names.append(name)
    return sorted(names)
