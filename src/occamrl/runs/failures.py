"""Typed errors of experiments: what was wrong, in which file, what was got and what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from occamrl.errors import InvalidInput, OccamRLError


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
        lines = [f"{path}: {len(self.faults)} thing(s) to mend", *(f"  {fault}" for fault in self.faults)]
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
