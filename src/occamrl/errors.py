"""Typed errors: what was wrong, where, what was got, what was expected.

Every error that a user can cause derives from :class:`OccamRLError` (Ctrl-C is not an error). Errors about input carry
the four facts as attributes, so that a program can act on them, and put them into one sentence for a person.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable


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
