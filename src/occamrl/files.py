"""Files that are there whole or not at all, and the folders they lie in."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from occamrl.errors import StorageError


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all; what was there stays until then."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.partial")
    try:
        try:
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(path, error) from error


def make_folder(path: Path) -> None:
    """Make a folder, and those it lies in, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(path, error) from error
