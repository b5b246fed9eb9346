"""Files: written whole or not at all, and read with suspicion.

Content is written to a temporary file beside its place, which is synced and renamed. Reading follows no symbolic link,
takes in no more than a stated size, and parses JSON of bounded depth only. Sealed JSON carries a digest of itself. So
does a *document*: an NPZ file of arrays and one JSON text, whose archive has as its comment the SHA-256 of all bytes
before it. Nothing is ever pickled.

What is in a file is not known here: nothing is imported that computes.
"""

from __future__ import annotations

import errno
import hashlib
import io
import itertools
import json
import math
import os
import re
import stat
import uuid
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occamrl.errors import CheckpointError, MissingCheckpoint, RecordError, StorageError

if TYPE_CHECKING:
    import numpy as np

PARTIAL = ".partial"
_PARTIAL = re.compile(r"\..+\.\d+-[0-9a-f]{8}\.partial")  # as write_whole makes them, and nobody else's
LARGEST_JSON = 64 * 2**20
DEEPEST_JSON = 64
LARGEST_NUMBER = 1e300  # sums of larger ones overflow
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
FORMAT = 6
LARGEST = 16 * 2**30
_DOCUMENT = "document"
_BAD_ZIP = (zipfile.BadZipFile, zipfile.LargeZipFile)
_DAMAGE = (OSError, ValueError, EOFError, LookupError, MemoryError, RuntimeError, SyntaxError, *_BAD_ZIP)
_DIGEST = 64  # hexadecimal digits, at the end of the file


def reach(point: str, path: Path) -> None:
    """Do nothing when ``path`` reaches a point of its life; tests put a function here that kills or raises."""


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file so that it is there whole or not at all; ``durable``: also after a power cut.

    A StorageError names the file and the system's reason; a file that was there before is as it was. What has the name
    and is no file (a pipe, a device, a folder) is left alone.
    """
    if not path.name:  # /, or .
        raise StorageError(path, IsADirectoryError(errno.EISDIR, "it is a folder; name a file in it"))
    partial = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}{PARTIAL}")
    try:
        try:
            if path.exists() and not path.is_file():
                raise FileExistsError(errno.EEXIST, "it exists and is not a regular file")
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
        if durable and os.name == "posix":  # the rename as well
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        raise StorageError(path, error) from error


def make_folder(path: Path) -> None:
    """Make a folder, and those it lies in, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(path, error) from error


def sweep(folder: Path) -> int:
    """Remove temporary files that a killed process left in a folder; return how many there were."""
    found = [Path(entry.path) for entry in os.scandir(folder) if _PARTIAL.fullmatch(entry.name)]
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def read_plain(path: Path | str, largest: int) -> bytes:
    """Return the content of a regular file, which is no symbolic link and no larger than ``largest`` bytes."""
    try:
        handle = os.open(path, _FLAGS)
    except FileNotFoundError:
        raise RecordError(path, got="no such file", expected="a file") from None
    except OSError as error:
        what = "a symbolic link" if Path(path).is_symlink() else str(error.strerror)
        raise RecordError(path, got=what, expected="a regular file that can be read") from error
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise RecordError(path, got="no regular file", expected="a regular file")
        if about.st_size > largest:
            raise RecordError(path, got=f"{about.st_size:,} bytes", expected=f"at most {largest:,}")
        parts, left = [], about.st_size + 1
        while left > 1 and (part := os.read(handle, left)):  # the system gives 2 GiB at once
            parts.append(part)
            left -= len(part)
    finally:
        os.close(handle)
    content = b"".join(parts)
    if len(content) > about.st_size:
        raise RecordError(path, got="a file that grows", expected=f"{about.st_size:,} bytes")
    return content


def there(path: Path | str) -> bool:
    """Say whether something has this name, a symbolic link that leads nowhere included."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise RecordError(path, got=str(error.strerror), expected="a file that can be read") from error
    return True


def real_folder(path: Path) -> bool:
    """Say whether ``path`` is a folder itself, not a symbolic link to one."""
    return path.is_dir() and not path.is_symlink()


def parse_json(content: bytes, path: str | Path) -> Any:
    """Return the data of a JSON text of bounded depth."""
    try:
        data = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RecordError(path, got=f"{type(error).__name__}: {error}", expected="JSON") from error
    level, depth = [data], 0
    while content.count(b"[") + content.count(b"{") > DEEPEST_JSON and level:
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, (dict, list))]
        level, depth = list(itertools.chain.from_iterable(inner)), depth + 1
        if depth > DEEPEST_JSON and inner:
            raise RecordError(path, got="JSON that is nested deep", expected=f"at most {DEEPEST_JSON} levels")
    return data


def read_json(path: Path, largest: int = LARGEST_JSON) -> Any:
    """Return the data of a JSON file."""
    return parse_json(read_plain(path, largest), path)


def jsonable(value: Any) -> Any:
    """Return plain data that every JSON reader takes: NaN becomes null, infinities strings, the unknown its repr."""
    if isinstance(value, dict):
        return {str(key): jsonable(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "dtype") and hasattr(value, "tolist") and not isinstance(value, type):  # of NumPy
        return jsonable(value.tolist())
    return repr(value)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical(data: Any) -> str:
    """Return the one JSON text of plain data: sorted keys, no white space, no NaN."""
    return _CANONICAL.encode(data)


def seal(document: dict[str, Any]) -> bytes:
    """Return a JSON document as a file's content: the SHA-256 of its canonical text, then that text."""
    text = canonical(document).encode()
    return b'{"digest":"%s",%s\n' % (sha256(text).encode(), text[1:])


def read_sealed(path: Path | str, largest: int = LARGEST_JSON) -> dict[str, Any]:
    """Return a sealed document; a byte that is not as it was written is an error."""
    content = read_plain(path, largest)
    document = parse_json(content, path)
    if not isinstance(document, dict):
        raise RecordError(path, got=type(document).__name__, expected="a JSON object")
    digest = str(document.pop("digest", None))
    head = f'{{"digest":"{digest}",'.encode()
    whole = content.startswith(head) and sha256(b"{" + content[len(head) : -1]) == digest and content[-1:] == b"\n"
    if not whole:
        got = f"content that does not match its digest {digest[:12]!r}"
        raise RecordError(path, got=got, expected="a file as it was written")
    return document


def sha256(content: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


Arrays = dict[str, "np.ndarray[Any, Any]"]


def write_document(path: Path, document: dict[str, Any], arrays: Arrays) -> None:
    """Write a JSON document and the arrays it refers to as one file with a digest of itself."""
    import numpy as np

    arrays[_DOCUMENT] = np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # the stub takes the names for its own options
    write_whole(path, _with_digest(buffer.getvalue()))


def read_document(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Return what :func:`write_document` wrote; anything else is refused by the file's name."""
    arrays = read_arrays(path)
    if _DOCUMENT not in arrays:
        raise CheckpointError(str(path), got=f"arrays {sorted(arrays)[:5]}", expected=f"one called {_DOCUMENT!r}")
    document = parse_json(arrays.pop(_DOCUMENT).tobytes(), path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        got = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise CheckpointError(str(path), got=f"format {got}", expected=f"format {FORMAT}")
    return document, arrays


def _with_digest(archive: bytes) -> bytes:
    """Return the archive with the digest of everything before it as its comment."""
    content = archive[:-2] + _DIGEST.to_bytes(2, "little")  # the last field is the length of the comment
    return content + sha256(content).encode()


def read_arrays(path: Path) -> Arrays:
    """Return the arrays of a checkpoint; damage of any kind is reported by the file's name.

    Sizes are compared with the file's own before anything is allocated, and no object is ever unpickled.
    """
    try:
        if not there(path):
            raise MissingCheckpoint(str(path), got="no such file", expected="a checkpoint")
        content = read_plain(path, LARGEST)
        if sha256(content[:-_DIGEST]).encode() != content[-_DIGEST:]:
            raise ValueError("its digest does not match its content")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            return {info.filename.removesuffix(".npy"): _array(info, archive, len(content)) for info in entries}
    except MissingCheckpoint:
        raise
    except _DAMAGE as error:
        got = error.got if isinstance(error, RecordError) else f"{type(error).__name__}: {error}"
        raise CheckpointError(str(path), got=got, expected="a whole checkpoint") from error


def _array(info: zipfile.ZipInfo, archive: zipfile.ZipFile, size: int) -> np.ndarray[Any, Any]:
    """Return an entry that is not compressed, has the size that it declares, and holds no Python objects."""
    import numpy as np

    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.file_size > size:
        raise ValueError(f"{info.filename} declares {info.file_size:,} bytes in a file of {size:,}")
    with archive.open(info) as entry:
        version = np.lib.format.read_magic(entry)
        if version != (1, 0):
            raise ValueError(f"{info.filename} has NPY version {version}")
        shape, _, dtype = np.lib.format.read_array_header_1_0(entry)
        if dtype.hasobject:
            raise ValueError(f"{info.filename} holds Python objects")
        if math.prod(shape) * dtype.itemsize + entry.tell() != info.file_size:
            raise ValueError(f"{info.filename} declares an array of shape {shape}, {dtype}")
        entry.seek(0)
        return np.asarray(np.lib.format.read_array(entry, allow_pickle=False))
