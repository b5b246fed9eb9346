"""Typed errors: what was wrong, where, what was got, what was expected.

Every error that a user can cause derives from :class:`OccamRLError` (Ctrl-C is not an error). Errors about input carry
the four facts as attributes, so that a program can act on them, and put them into one sentence for a person.
"""

from __future__ import annotations

import difflib
import math
import numbers
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsIndex, cast

import numpy as np
from numpy.typing import NDArray

# ----------------------------------------------------------------------------------------------------
# Typed errors: what was wrong, where, what was got, what was expected.


class OccamRLError(Exception):
    """Base of every error raised on purpose by this package."""


class InvalidInput(OccamRLError, ValueError):
    """A value the user gave cannot be used.

    Parameters
    ----------
    field : str
        The name of the argument or array, as the user wrote it.
    got, expected : object
        What was found, and what would have been accepted.
    index : tuple of int, optional
        Where in the array, for instance ``(s, a, s')``.
    """

    def __init__(self, field: str, *, got: object, expected: object, index: tuple[int, ...] | None = None) -> None:
        self.field = field
        self.index = index
        self.got = got
        self.expected = expected
        where = field if index is None else f"{field}[{', '.join(str(i) for i in index)}]"
        super().__init__(f"{where}: got {got}, expected {expected}")


class ProbabilityError(InvalidInput):
    """A probability is negative, not a number, or a row of them does not sum to one."""


class RewardError(InvalidInput):
    """A reward is not a number or lies outside [0, 1]."""


class ShapeError(InvalidInput):
    """An array's shape or type disagrees with the others."""


class HorizonError(InvalidInput):
    """The number of steps of an episode is not a positive integer."""


class FeatureError(InvalidInput):
    """Features that cannot describe any transition kernel, or lack a reward they need."""


class FamilyError(InvalidInput):
    """A family of kernels is empty or has a member that is not a kernel."""


class NestingError(FamilyError):
    """A ladder's classes are not nested; ``rungs`` is the pair, ``member`` the one of the smaller that shows it."""

    def __init__(self, *, rungs: tuple[int, int], member: int | None, got: object, expected: object) -> None:
        self.rungs = rungs
        self.member = member
        super().__init__("rungs", index=rungs if member is None else (*rungs, member), got=got, expected=expected)


class ParameterError(InvalidInput):
    """A parameter of an algorithm or problem is outside its range (delta, norm_bound, replan, episodes, ...)."""


class CheckpointError(InvalidInput):
    """A checkpoint is damaged, belongs to another problem or agent, or cannot be written."""


class UnknownName(InvalidInput):
    """A name that no registry or option list knows; the nearest valid one is suggested."""

    def __init__(self, field: str, *, got: object, known: Iterable[str]) -> None:
        names = sorted(known)
        folded = {name.casefold(): name for name in names}
        near = difflib.get_close_matches(str(got).casefold(), list(folded), n=1, cutoff=0.4)
        self.suggestion = folded[near[0]] if near else None
        hint = f"did you mean {self.suggestion!r}? valid: " if self.suggestion else "one of "
        super().__init__(field, got=repr(got), expected=hint + ", ".join(repr(name) for name in names))


class ContractError(OccamRLError, AssertionError):
    """A learner, problem, family or selector breaks the contract that the checks verify."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run, taken at an episode boundary; ``result`` holds everything up to there.

    Like any KeyboardInterrupt it is no Exception, so that no handler for errors swallows it.
    Continue with ``run(agent, mdp, episodes=..., continue_from=error.result)``.
    """

    def __init__(self, message: str, result: object) -> None:
        super().__init__(message)
        self.result = result


def require_choice(field: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a value that is not one of ``choices``, suggesting the nearest."""
    names = tuple(choices)
    if value not in names:
        raise UnknownName(field, got=value, known=names)


def require_number(field: str, value: object, low: float, high: float, *, open_low: bool = False) -> float:
    """Return ``value`` as a float in [low, high], or in (low, high] if ``open_low``; an infinite end is never met."""
    number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan
    if not (math.isfinite(number) and low <= number <= high) or (open_low and number == low):
        first = "(" if open_low or math.isinf(low) else "["
        last = ")" if math.isinf(high) else "]"
        raise ParameterError(field, got=repr(value), expected=f"a number in {first}{low:g}, {high:g}{last}")
    return number


# ----------------------------------------------------------------------------------------------------
# Checks of single arguments, shared by the problems.


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


def as_floats(field: str, value: Any) -> NDArray[np.float64]:
    """Return a dense array of floats, or refuse what is ragged or not made of real numbers."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise ShapeError(field, got="rows of different lengths", expected="a rectangular array") from None
    if array.dtype.kind not in "biuf":
        raise ShapeError(field, got=f"dtype {array.dtype}", expected="an array of real numbers")
    return array.astype(np.float64)


# ----------------------------------------------------------------------------------------------------
# Typed errors about environments: what they did, in which episode and step, and what was expected.
#
# An error raised in the middle of learning carries the ``result`` up to there, learned state included; go on with
# ``learn(agent, env, episodes=..., continue_from=error.result)``.


class EnvironmentFault(InvalidInput):
    """An environment cannot be used, or did what it may not; ``index`` is (episode, step), both from 0."""

    result: Any = None  # what was learned before, if the error came in the middle of learning


class SpaceError(EnvironmentFault):
    """A space that is not finite, or an observation outside its space."""


class TableError(EnvironmentFault):
    """A table of outcomes that is missing, not the whole truth, or contradicted by what the environment did."""


class EnvironmentReward(EnvironmentFault):
    """A reward that is not a number, is outside the stated range, or is not the known one."""


class EpisodeCutShort(EnvironmentFault):
    """An episode was truncated before the horizon: no termination, so what would have followed is unknown."""


class EnvironmentFailure(EnvironmentFault):
    """The environment raised an exception; it is the cause of this one."""


class SeedIgnored(EnvironmentFault):
    """The same seed and actions gave two different episodes."""


# ----------------------------------------------------------------------------------------------------
# Typed errors of experiments: what was wrong, in which file, what was got and what was expected.


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a spec."""

    key: str  # for instance agent[1].parameters.norm_bound
    got: str
    expected: str

    def __str__(self) -> str:
        return f"{self.key}: got {self.got}, expected {self.expected}"


class SpecError(InvalidInput):
    """A spec that cannot be run; ``faults`` lists everything wrong with it at once."""

    def __init__(self, path: str | Path, faults: Sequence[Fault]) -> None:
        self.path = str(path)
        self.faults = tuple(faults)
        first = self.faults[0]
        super().__init__(f"{path}: {first.key}", got=first.got, expected=first.expected)
        lines = [f"{path}: {len(self.faults)} error(s)", *(f"  {fault}" for fault in self.faults)]
        self.args = ("\n".join(lines),)


class RecordError(InvalidInput):
    """A file of an experiment's folder is damaged, missing, of another format, or not what it claims to be."""

    def __init__(self, path: str | Path, *, got: object, expected: object) -> None:
        self.path = str(path)
        super().__init__(str(path), got=got, expected=expected)

    def with_advice(self) -> RecordError:
        """Return the error with what to do about a damaged cell."""
        return RecordError(self.path, got=self.got, expected=f"{self.expected}; see `occamrl verify`")


class StorageError(OccamRLError, OSError):
    """A file could not be written: no room, no permission, a read-only folder."""

    def __init__(self, path: str | Path, error: OSError) -> None:
        super().__init__(f"{path}: cannot be written ({error.strerror or error}); earlier results are intact")
        self.path = str(path)
        self.errno = error.errno

    def __str__(self) -> str:  # OSError would print its own two arguments
        return str(self.args[0])


class FolderInUse(OccamRLError):
    """Another process works on the folder; the message says which."""


class Stopped(OccamRLError):
    """A cell was stopped at an episode boundary, on request; its checkpoint is written."""
