"""One way to compile, with a cache on disk that is never stale.

Numba's cache looks only at the file of the cached function: change a function that it calls, in another file, and the
old machine code is used. The cache folder is therefore named after a hash of every source that can reach compiled code:
the files that import this one, and whatever they import in turn. A change of the report does not compile the learners
again. Code compiled for a learner that lives elsewhere has a folder of its own, named after a hash of its file as well.

``OCCAMRL_CACHE_DIR`` moves the cache; by default it lies in the user's cache folder.

Left to itself, Numba optimises every function and makes machine code of it, with all that it calls, although the same
is done again for each of its callers. Functions that only compiled code calls are therefore only linked into those that
Python calls, which are optimised, turned into machine code and kept on disk: a first result takes half as long.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import codegen, compiler
from numba.core.caching import FunctionCache
from numba.core.registry import CPUDispatcher
from numba.extending import overload

Function = TypeVar("Function", bound=Callable[..., Any])

PACKAGE = Path(__file__).resolve().parent.parent


_IMPORT = re.compile(r"^\s*(?:from|import)\s+(occamrl[\w.]*)(?:\s+import\s+(\([^)]*\)|.*))?", re.MULTILINE)


def _imported(source: str) -> Iterator[str]:
    """Yield the paths, relative to the package, that a source may import from it."""
    for module, names in _IMPORT.findall(source):
        folder = "/".join(module.split(".")[1:])
        prefix = f"{folder}/" if folder else ""
        yield f"{folder}.py"
        if folder:  # the package's own __init__ only lists names: following it would lead everywhere
            yield f"{folder}/__init__.py"
        for name in re.findall(r"\w+", names):
            yield from (f"{prefix}{name}.py", f"{prefix}{name}/__init__.py")


def sources_hash(package: Path = PACKAGE, begin: str | None = None) -> str:
    """Return a hash of the names and contents of the sources below ``package`` that can reach compiled code.

    With ``begin``, a file below it, of what that file imports, and what this imports in turn.
    """
    sources = {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in package.rglob("*.py")}
    users = (name for name, text in sources.items() if __name__ in text)
    waiting = [begin] if begin else ["_core/compile.py", *users]
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in sources and name not in reached:
            reached.add(name)
            waiting.extend(_imported(sources[name]))
    digest = hashlib.sha256()
    for name in sorted(reached):
        digest.update(f"{name}\0{sources[name]}\0".encode())
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


class _NoAddresses:
    """The code generator of a linked library: there is no address where an environment could be kept."""

    def set_env(self, *arguments: Any) -> None:
        """Do nothing."""


class _LinkedLibrary(codegen.JITCodeLibrary):
    """The code of a function that only compiled functions call: neither optimised nor turned into machine code."""

    @property
    def codegen(self) -> _NoAddresses:
        """The generator of machine code, of which there is none."""
        return _NoAddresses()

    def finalize(self: Any) -> None:
        """Link what the function calls."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self: Any, name: str) -> int:
        """Return the null pointer."""
        self._ensure_finalized()
        return 0


_linked_library: Any = _LinkedLibrary  # Numba has no types


class _Linked(compiler.Compiler):
    """The compiler of functions that only compiled functions call."""

    def compile_extra(self: Any, function: Any) -> Any:
        """Compile a function into a library of its own."""
        if self.state.library is None:
            self.state.library = _linked_library(self.state.targetctx.codegen(), "linked")
        numbas: Any = super()
        return numbas.compile_extra(function)


_HOT: Any = {
    "_nrt": False,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "forceinline": False,  # otherwise inherited from the caller for whom a function is compiled first
    "pipeline_class": _Linked,
}
_SHORT: Any = {**_HOT, "forceinline": True}


_NumbaCache: Any = FunctionCache  # Numba has no types
_types: Any = numba.types
_IMPLEMENTED: dict[Any, set[type]] = {}  # by generic function: the kinds that have a version of it
_OUTSIDE: dict[Any, dict[str, bytes]] = {}  # by NamedTuple: the files outside this package that implement it


@contextmanager
def _cache_in(folder: str) -> Iterator[None]:
    """Let Numba look for a function's cache in ``folder``; other packages keep their own setting."""
    settings = vars(numba.config)
    before = settings["CACHE_DIR"]
    settings["CACHE_DIR"] = folder
    try:
        yield
    finally:
        settings["CACHE_DIR"] = before


def _outside_files(kinds: Iterable[Any]) -> dict[str, bytes]:
    """Return the files outside this package on which code for arguments of these Numba types depends."""
    files: dict[str, bytes] = {}
    for kind in kinds:
        files |= _OUTSIDE.get(getattr(kind, "instance_class", None), {})
        files |= _outside_files(getattr(kind, "types", ()))
    return files


class _Cache:
    """The cache of one function, with a place apart for each learner from outside this package.

    The hash of our own sources knows nothing of a change in such a learner's file. And an index that mentions its class
    can only be read where that class can be imported, so it must not be the one that everybody reads.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._places: dict[str, Any] = {}

    def _place(self, signature: Iterable[Any]) -> Any:
        """Return Numba's cache for arguments of these types."""
        digest = hashlib.sha256()
        files = _outside_files(signature)
        for path, content in sorted(files.items()):
            digest.update(path.encode() + b"\0" + content + b"\0")
        folder = f"{_CACHE}-{digest.hexdigest()[:16]}" if files else _CACHE
        if folder not in self._places:
            with _cache_in(folder):
                self._places[folder] = _NumbaCache(self._function)
        return self._places[folder]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for a signature, None if there is none."""
        return self._place(sig).load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the code for a signature."""
        self._place(sig).save_overload(sig, data)

    @property
    def cache_path(self) -> str:
        """The folder for signatures of this package alone."""
        return str(self._place(()).cache_path)

    def flush(self) -> None:
        """Forget the code of this package's signatures, as ``recompile`` asks."""
        self._place(()).flush()


class _Internal(CPUDispatcher):
    """A function without a wrapper for calls from Python: there it runs as it is written."""

    def __call__(self, *arguments: Any) -> Any:
        return self.py_func(*arguments)


def _compile(function: Function, **options: Any) -> Function:
    made: Any = numba.njit(**options)(function)
    if options.get("no_cpython_wrapper"):
        made.__class__ = _Internal
    if hasattr(made, "enable_caching"):  # not with NUMBA_DISABLE_JIT
        if "pipeline_class" not in options:
            made._cache = _Cache(function)
        choose = made.get_call_template

        def without_literals(args: Any, kws: Any) -> Any:
            """Compile f(x, 1) as f(x, n): otherwise every constant argument would be a type of its own."""
            return choose(tuple(_types.unliteral(each) for each in args), kws)

        made.get_call_template = without_literals
    return cast(Function, made)


def entry(function: Function) -> Function:
    """Compile a function of the inner loops that Python calls; the others have no wrapper for that."""
    return _compile(function, _nrt=False, error_model="numpy", no_cfunc_wrapper=True)


def compiled(function: Function) -> Function:
    """Compile to machine code at the first call, strict IEEE arithmetic, cached on disk."""
    return _compile(function, error_model="numpy", no_cfunc_wrapper=True)


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


def _with_signature(choose: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``choose`` with the signature of the function it may choose: Numba compares the two."""
    vars(choose)["__signature__"] = inspect.signature(function)
    return choose


def implements(
    generic: Callable[..., Any], kind: type, argument: int = 0, *, inline: bool = True
) -> Callable[[Function], Function]:
    """Make the decorated function the version of ``generic`` for NamedTuples of class ``kind``.

    Inside compiled code, a call of ``generic`` becomes a call of the decorated function when the type of the argument
    at position ``argument`` is ``kind``. This is how one episode loop serves every learner. Versions may not allocate.

    They are spliced into the loop unless ``inline`` is False. Left to itself, LLVM does not, and an episode takes three
    (replanning) to eight times (lazy) as long.
    """

    def register(function: Function) -> Function:
        _IMPLEMENTED.setdefault(generic, set()).add(kind)
        path = Path(function.__code__.co_filename)
        if path.exists() and not path.resolve().is_relative_to(PACKAGE):
            _OUTSIDE.setdefault(kind, {})[str(path)] = path.read_bytes()

        def choose(*arguments: Any) -> Function | None:
            return function if getattr(arguments[argument], "instance_class", None) is kind else None

        overload(generic, jit_options=_SHORT if inline else _HOT)(_with_signature(choose, function))
        return function

    return register


def otherwise(generic: Callable[..., Any], argument: int = 0) -> Callable[[Function], Function]:
    """Make the decorated function the version of ``generic`` for every NamedTuple that has none of its own."""

    def register(function: Function) -> Function:
        def choose(*arguments: Any) -> Function | None:
            kind = getattr(arguments[argument], "instance_class", None)
            return None if kind in _IMPLEMENTED.get(generic, ()) else function

        overload(generic, jit_options=_SHORT)(_with_signature(choose, function))
        return function

    return register
