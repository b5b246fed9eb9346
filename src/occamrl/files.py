"""Files that are there whole or not at all, and folders that others may have touched.

**Whole.** A file is written under a temporary name, synced and renamed, and then its folder is
synced: a power cut leaves the old file or the new one, and once ``write`` has returned, the new
one. Every writer of this package goes through :meth:`Entry.write`.

**Of its own.** An :class:`Entry` is looked up in its folder while that is open, must be a regular
file, and is no link unless links are allowed. A folder of results may come from somebody else: with
``links=False`` nothing outside it is read, written, moved or deleted, whatever lies in it. (On
Windows, which has no descriptors of folders, names are looked at before they are used.)
"""

from __future__ import annotations

import errno
import os
import stat
import tomllib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from occamrl.errors import RecordError, StorageError

PARTIAL = ".partial"  # how the names of files end that are being written
_BY_DESCRIPTOR = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")  # not on Windows
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # opening a FIFO waits for nobody
_BINARY = getattr(os, "O_BINARY", 0)
# Some network file systems cannot sync a folder; what they do at a power cut is theirs.
_NOT_SYNCED = (errno.EINVAL, errno.ENOTSUP)
_READ_AT_ONCE = 2**20
_LARGEST_TOML = 2**24  # bytes


class NotOwnFile(OSError):
    """A link, a folder, a pipe or a device where a regular file is expected, or too large a one."""


class Entry(NamedTuple):
    """A file in a folder, there or not."""

    folder: Path
    name: str
    links: bool = True  # whether it, and the folder, may be links to others

    @classmethod
    def of(cls, path: Path) -> Entry:
        """Return the file that a user calls by its path, which may be a link."""
        return cls(path.parent, path.name)

    @classmethod
    def inside(cls, path: Path) -> Entry:
        """Return a file in a folder of results, where nothing may be a link."""
        return cls(path.parent, path.name, links=False)

    @property
    def path(self) -> Path:
        """Where it is, for messages."""
        return self.folder / self.name

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        """Say whether anything has its name."""
        try:
            with opened(self.folder, links=self.links) as folder:
                os.stat(_in(folder, self.path), dir_fd=folder, follow_symlinks=self.links)
        except FileNotFoundError:
            return False
        return True

    def read(self, maximum: int | None = None) -> bytes:
        """Return its content; refuse what is no regular file, or larger than ``maximum`` bytes."""
        flags = os.O_RDONLY | _AT_ONCE | _BINARY
        if not self.links:
            flags |= _NO_LINK
        with opened(self.folder, links=self.links) as folder:
            self._refuse_link(folder)
            handle = os.open(_in(folder, self.path), flags, dir_fd=folder)
        with os.fdopen(handle, "rb") as file:
            require_regular(os.fstat(handle))
            pieces = []
            total = 0
            # The size is counted as it comes: a file may grow, and some say 0 of themselves.
            while piece := file.read(_READ_AT_ONCE):
                total += len(piece)
                if maximum is not None and total > maximum:
                    raise NotOwnFile(errno.EFBIG, f"more than {maximum:,} bytes")
                pieces.append(piece)
        return b"".join(pieces)

    def write(self, content: bytes) -> None:
        """Write it whole or not at all; what was there stays until then."""
        partial = self.folder / f".{self.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}{PARTIAL}"
        try:
            with opened(self.folder, links=self.links) as folder:
                self._refuse_link(folder)
                try:
                    _write_synced(folder, partial, content)
                    new, old = _in(folder, partial), _in(folder, self.path)
                    os.replace(new, old, src_dir_fd=folder, dst_dir_fd=folder)
                    sync(folder)
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(_in(folder, partial), dir_fd=folder)
        except OSError as error:
            raise StorageError(self.path, error) from error

    def remove(self) -> None:
        """Remove it if it is there; of a link that itself."""
        try:
            with opened(self.folder, links=self.links) as folder:
                os.unlink(_in(folder, self.path), dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(self.path, error) from error

    def move(self, target: Entry) -> None:
        """Give it another name, in another folder; of a link that itself."""
        try:
            with (
                opened(self.folder, links=self.links) as source,
                opened(target.folder, links=target.links) as goal,
            ):
                new = _in(goal, target.path)
                os.replace(_in(source, self.path), new, src_dir_fd=source, dst_dir_fd=goal)
                sync(goal)
                sync(source)
        except OSError as error:
            raise StorageError(self.path, error) from error

    @contextmanager
    def locked_file(self) -> Iterator[int]:
        """Yield the descriptor of the file, made if it is not there, for a lock on it."""
        flags = os.O_RDWR | os.O_CREAT | _NO_LINK | _AT_ONCE
        try:
            with opened(self.folder, links=self.links) as folder:
                self._refuse_link(folder)
                handle = os.open(_in(folder, self.path), flags, 0o666, dir_fd=folder)
        except OSError as error:
            raise StorageError(self.path, error) from error
        try:
            require_regular(os.fstat(handle))
            yield handle
        finally:
            os.close(handle)

    def _refuse_link(self, folder: int | None) -> None:
        """Refuse what is there and is no regular file, before it is opened or replaced.

        Where links are allowed it is what they lead to: a device is never replaced by a file.
        """
        with suppress(FileNotFoundError):
            name = _in(folder, self.path)
            require_regular(os.stat(name, dir_fd=folder, follow_symlinks=self.links))


def require_regular(status: os.stat_result) -> None:
    """Refuse what is no regular file."""
    kinds = {
        stat.S_IFLNK: "a link",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
    }
    kind = kinds.get(stat.S_IFMT(status.st_mode))
    if kind is not None:
        raise NotOwnFile(errno.EINVAL, f"{kind}, where a regular file is expected")


@contextmanager
def opened(path: Path, *, links: bool) -> Iterator[int | None]:
    """Open a folder, which may be a link or not; None where folders have no descriptors."""
    if not links:
        _require_folder(path)
    if not _BY_DESCRIPTOR:
        yield None
        return
    flags = os.O_RDONLY | os.O_DIRECTORY
    if not links:
        flags |= _NO_LINK  # whoever puts a link there in between is refused as well
    handle = os.open(path, flags)
    try:
        yield handle
    finally:
        os.close(handle)


def _require_folder(path: Path) -> None:
    """Refuse a link, or what is no folder, by its name."""
    if path.is_symlink():
        raise RecordError(path, got="a link", expected="a folder of its own, or none")
    if path.exists() and not path.is_dir():
        raise RecordError(path, got="no folder", expected="a folder, or none")


def names_in(path: Path, *, links: bool) -> list[str]:
    """Return the names in a folder, sorted; none if it is not there."""
    try:
        with (
            opened(path, links=links) as folder,
            os.scandir(path if folder is None else folder) as entries,
        ):
            return sorted(entry.name for entry in entries)
    except FileNotFoundError:
        return []


def sync(folder: int | None) -> None:
    """Make sure that the names in a folder outlast a power cut."""
    if folder is None:  # on Windows, which keeps a journal of them
        return
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _NOT_SYNCED:
            raise


def _in(folder: int | None, path: Path) -> str:
    """Return how a file is called in its folder while that is open."""
    return str(path) if folder is None else path.name


def _write_synced(folder: int | None, path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY
    handle = os.open(_in(folder, path), flags, 0o666, dir_fd=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(handle)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file of the user's so that it is there whole or not at all."""
    Entry.of(path).write(content)


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a TOML file says; a ValueError if it is no TOML, or nested without end."""
    text = Entry.of(path).read(_LARGEST_TOML).decode("utf-8-sig")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("tables or lists inside each other, too deeply") from error


def make_folder(path: Path) -> None:
    """Make a folder, and those it lies in, unless it is there; their names are synced."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        for folder in reversed(missing):
            with opened(folder.parent, links=True) as parent:
                sync(parent)
    except OSError as error:
        raise StorageError(path, error) from error
