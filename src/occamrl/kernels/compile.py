"""One way to compile, with a cache on disk that is never stale.

Numba's cache looks only at the file of the cached function: change a function that it calls, in another file, and the
old machine code is used. The cache folder is therefore named after a hash of all sources of this package.

``OCCAMRL_CACHE_DIR`` moves the cache; by default it lies in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.extending import overload

Function = TypeVar("Function", bound=Callable[..., Any])

PACKAGE = Path(__file__).resolve().parent.parent


def sources_hash(package: Path = PACKAGE) -> str:
    """Return a hash of the names and contents of every Python source below ``package``."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _user_cache() -> Path:
    if chosen := os.environ.get("OCCAMRL_CACHE_DIR"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "occamrl" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "occamrl"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "occamrl"


def cache_folder() -> Path:
    """Return the folder for compiled code of exactly these sources; a temporary one where the user's is read-only."""
    name = f"numba-{numba.__version__}-{sources_hash()}"
    folder = _user_cache() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="occamrl-")) / name


_CACHE = str(cache_folder())
_HOT: Any = {"_nrt": False, "error_model": "numpy"}
_SHORT: Any = {**_HOT, "forceinline": True}


def _compile(function: Function, **options: Any) -> Function:
    settings = vars(numba.config)
    before = settings["CACHE_DIR"]
    settings["CACHE_DIR"] = _CACHE  # read by Numba while it decorates; other packages keep their own setting
    try:
        return cast(Function, numba.njit(cache=True, **options)(function))
    finally:
        settings["CACHE_DIR"] = before


def compiled(function: Function) -> Function:
    """Compile to machine code at the first call, strict IEEE arithmetic, cached on disk."""
    return _compile(function, error_model="numpy")


def hot(function: Function) -> Function:
    """Compile a function of the inner loops, which may not allocate: scratch memory is passed in.

    Numba counts references to an array whenever it is taken out of a NamedTuple, with atomic instructions that cost
    more than the arithmetic here. Without allocation there is nothing to count, and the counting is left out.
    """
    return _compile(function, **_HOT)


def hot_inline(function: Function) -> Function:
    """Compile a short function of the inner loops into its callers.

    A NamedTuple of arrays is passed as hundreds of words, so the call itself can cost more than the function.
    """
    return _compile(function, **_SHORT)


def view(function: Function) -> Function:
    """Splice a function that returns a view of its arguments into hot code, where arrays cannot be returned."""
    return _compile(function, **_HOT, inline="always")


def implements(
    generic: Callable[..., Any], kind: type, argument: int = 0, *, inline: bool = False
) -> Callable[[Function], Function]:
    """Make the decorated function the version of ``generic`` for NamedTuples of class ``kind``.

    Inside compiled code, a call of ``generic`` becomes a call of the decorated function when the type of the argument
    at position ``argument`` is ``kind``. This is how one episode loop serves every learner. Versions may not allocate.
    """

    def register(function: Function) -> Function:
        def choose(*arguments: Any) -> Function | None:
            return function if getattr(arguments[argument], "instance_class", None) is kind else None

        choose.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # Numba compares the two
        overload(generic, jit_options=_SHORT if inline else _HOT)(choose)
        return function

    return register
