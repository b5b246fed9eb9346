"""Writing files whole, and reading files that nobody vouches for.

A reader sees the old file or the new one, never part of one: content goes to a temporary file beside it, which is
synced and renamed. Reading follows no symbolic link, takes in no more than a stated size, and parses JSON of bounded
depth only. Sealed JSON carries a digest of itself in its one canonical form, so that any changed byte shows.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import uuid
from pathlib import Path
from typing import Any

from occamrl.runs.failures import RecordError, StorageError
from occamrl.runs.faults import reach

PARTIAL = ".partial"
_PARTIAL = re.compile(r"\..+\.\d+-[0-9a-f]{8}\.partial")  # as write_whole makes them, and nobody else's
LARGEST_JSON = 64 * 2**20
DEEPEST_JSON = 64
LARGEST_NUMBER = 1e300  # sums of larger ones overflow
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file so that it is there whole or not at all; ``durable``: also after a power cut.

    Raises
    ------
    StorageError
        Naming the file, with the system's reason; a file that was there before is as it was. What has the name and is
        no file (a pipe, a device, a folder) is left alone.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}{PARTIAL}")
    try:
        try:
            if path.exists() and not path.is_file():
                raise FileExistsError(errno.EEXIST, "something that is no file has this name")
            reach("open", path)
            with partial.open("xb") as file:
                half = len(content) // 2
                file.write(content[:half])
                reach("write", path)
                file.write(content[half:])
                file.flush()
                reach("fsync", path)
                if durable:
                    os.fsync(file.fileno())
            reach("rename", path)
            partial.replace(path)
            reach("renamed", path)
        finally:
            partial.unlink(missing_ok=True)
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        raise StorageError(path, error) from error


def make_folder(path: Path) -> None:
    """Make a folder, and those it lies in, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(path, error) from error


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder durable."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sweep(folder: Path) -> int:
    """Remove temporary files that a killed process left in a folder; return how many there were."""
    found = [Path(entry.path) for entry in os.scandir(folder) if _PARTIAL.fullmatch(entry.name)]
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def read_plain(path: Path, largest: int) -> bytes:
    """Return the content of a regular file, which is no symbolic link and no larger than ``largest`` bytes."""
    try:
        handle = os.open(path, _FLAGS)
    except FileNotFoundError:
        raise RecordError(path, got="no such file", expected="a file") from None
    except OSError as error:
        what = "a symbolic link" if path.is_symlink() else str(error.strerror)
        raise RecordError(path, got=what, expected="a regular file that can be read") from error
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode):
        os.close(handle)
        raise RecordError(path, got="no regular file", expected="a regular file")
    with os.fdopen(handle, "rb") as file:
        if about.st_size > largest:
            raise RecordError(path, got=f"{about.st_size:,} bytes", expected=f"at most {largest:,}")
        content = file.read(largest + 1)
    if len(content) > largest:
        raise RecordError(path, got="a file that grows", expected=f"at most {largest:,} bytes")
    return content


def there(path: Path) -> bool:
    """Say whether something has this name, a symbolic link that leads nowhere included."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise RecordError(path, got=str(error.strerror), expected="a file that can be read") from error
    return True


def real_folder(path: Path) -> bool:
    """Say whether ``path`` is a folder itself, not a symbolic link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def parse_json(content: bytes, path: str | Path) -> Any:
    """Return the data of a JSON text of bounded depth."""
    try:
        text = content.decode("utf-8")
        depth = deepest = 0
        for token in _TOKEN.finditer(text):
            mark = token.group()
            if mark in "[{":
                depth += 1
                deepest = max(deepest, depth)
            elif mark in "]}":
                depth -= 1
        if deepest > DEEPEST_JSON:
            raise RecordError(path, got=f"JSON nested {deepest} deep", expected=f"at most {DEEPEST_JSON}")
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, RecordError):
            raise
        raise RecordError(path, got=f"{type(error).__name__}: {error}", expected="JSON") from error


def read_json(path: Path, largest: int = LARGEST_JSON) -> Any:
    """Return the data of a JSON file."""
    return parse_json(read_plain(path, largest), path)


def canonical(data: Any) -> str:
    """Return the one JSON text of plain data: sorted keys, no white space, no NaN."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def seal(document: dict[str, Any]) -> bytes:
    """Return a JSON document as a file's content, with a digest of itself."""
    digest = hashlib.sha256(canonical(document).encode()).hexdigest()
    text = json.dumps({**document, "digest": digest}, sort_keys=True, indent=1, allow_nan=False)
    return text.encode() + b"\n"


def read_sealed(path: Path, largest: int = LARGEST_JSON) -> dict[str, Any]:
    """Return a sealed document; a byte that is not as it was written is an error."""
    content = read_plain(path, largest)
    document = parse_json(content, path)
    if not isinstance(document, dict):
        raise RecordError(path, got=type(document).__name__, expected="a JSON object")
    digest = document.pop("digest", None)
    try:
        whole = seal(document) == content
    except (ValueError, TypeError, RecursionError):
        whole = False
    if not whole:
        got = f"content that does not match its digest {str(digest)[:12]!r}"
        raise RecordError(path, got=got, expected="a file as it was written")
    return document


def sha256(content: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
