"""One way to compile, with a cache on disk that is never stale and cannot hurt.

Numba's cache looks only at the file of the cached function: change a function that it calls, in another file, and the
old machine code is used. The cache folder is therefore named after a hash of every source that can reach compiled code:
the files that import this one, and whatever they import in turn. A change of the report does not compile the learners
again. Code for a learner that lives elsewhere depends on its file as well.

``OCCAMRL_CACHE_DIR`` moves the cache; by default it lies in the user's cache folder. What is kept there is code, so a
folder that other users can write is not used. A file that is missing, cut short or damaged is compiled anew.

Left to itself, Numba optimises every function and makes machine code of it, with all that it calls, although the same
is done again for each of its callers. Functions that only compiled code calls are therefore only linked into those that
Python calls, which are optimised, turned into machine code and kept on disk: a first result takes half as long.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import os
import pickle
import re
import shutil
import stat
import sys
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numba
from numba.core import codegen, compiler, event, serialize
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
        return Path(chosen).absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "occamrl" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "occamrl"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "occamrl"


_FOLDER = re.compile(r"numba-[\w.+]+(-[0-9a-f]{16}){1,2}")
_KEPT = 8  # folders of other sources, those used last
_LEFT_BEHIND_SECONDS = 3600.0  # after so long, a file that is not whole is of a process that was killed


def _prune(folder: Path) -> None:
    """Mark a folder as used; remove what killed processes left in it, and the folders of sources long gone."""
    os.utime(folder)
    now = folder.stat().st_mtime
    for path in folder.glob("*.partial"):
        if now - path.stat().st_mtime > _LEFT_BEHIND_SECONDS:
            path.unlink()
    others = [each for each in folder.parent.iterdir() if _FOLDER.fullmatch(each.name) and each != folder]
    for each in sorted(others, key=lambda each: each.lstat().st_mtime, reverse=True)[_KEPT:]:
        shutil.rmtree(each, ignore_errors=True)  # a process that uses it compiles anew


def _others_can_write(folder: Path) -> bool:
    """Say whether another user, root apart, could put code into a folder, or another folder in its place."""
    if os.name != "posix":
        return False
    for path in (folder, folder.parent):
        about = path.stat()
        shared = about.st_mode & 0o022 and (path == folder or not about.st_mode & stat.S_ISVTX)
        if shared or (path == folder and about.st_uid not in (0, os.geteuid())):
            return True
    return any(path.stat().st_mode & 0o1002 == 0o002 for path in folder.parent.parents)


def cache_folder() -> Path | None:
    """Return the folder for compiled code of exactly these sources; None: there is none that can be used."""
    with suppress(OSError, RuntimeError):  # no permission, a file in its place, no home
        folder = _user_cache() / f"numba-{numba.__version__}-{sources_hash()}"
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _others_can_write(folder):
            with suppress(OSError):  # of a folder that can be read, but not written
                _prune(folder)
            return folder
        text = f"{folder}: this cache of compiled code is not used, because other users can write to it; every process "
        warnings.warn(
            text + "compiles anew. Remove the permission, or set OCCAMRL_CACHE_DIR to another folder",
            RuntimeWarning,
            stacklevel=2,
        )
    return None


_CACHE = cache_folder()


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


GETTING_CODE = "occamrl:code"  # an event as Numba's own are: a function is compiled, or loaded from disk
_events: Any = event
_types: Any = numba.types  # Numba has no types
_dumps: Any = serialize.dumps
_Code: Any = compiler.CompileResult
_IMPLEMENTED: dict[Any, set[type]] = {}  # by generic function: the kinds that have a version of it
_OUTSIDE: dict[Any, dict[str, bytes]] = {}  # by NamedTuple: the files outside this package that implement it


def _file_outside(function: Any) -> dict[str, bytes]:
    """Return the name and content of the file of a function, unless it belongs to this package."""
    path = Path(function.__code__.co_filename)
    if path.resolve().is_relative_to(PACKAGE):
        return {}
    return {str(path): path.read_bytes() if path.exists() else uuid.uuid4().bytes}  # of a notebook: never the same


def _classes(kinds: Iterable[Any]) -> Iterator[type]:
    """Yield the NamedTuples of these Numba types, whose names do not tell those of two modules apart."""
    for kind in kinds:
        if (found := getattr(kind, "instance_class", None)) is not None:
            yield found
        yield from _classes(getattr(kind, "types", ()))


def _digest(path: Path, content: bytes) -> bytes:
    """Return the SHA-256 of an entry: of its name too, since the code of another function is none of this one."""
    return hashlib.sha256(path.name.encode() + b"\0" + content).digest()


class _Cache:
    """The machine code of one function on disk: a file for each signature, the SHA-256 of its name and content first.

    Whatever goes wrong with a file is a miss: the function is compiled. (Numba's own index of signatures is shared by
    all processes, which can lose each other's entries, and its errors are everybody's.)
    """

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        self._function, self._options, self._files = function, options, _file_outside(function)

    def _path(self, signature: Any, target: Any) -> Path:
        """Return where the code for a signature lies."""
        function, classes = self._function, list(_classes(signature))
        names = [f"{kind.__module__}:{kind.__qualname__}" for kind in classes]
        files = sorted({*self._files.items(), *(item for kind in classes for item in _OUTSIDE.get(kind, {}).items())})
        closure = [cell.cell_contents for cell in function.__closure__ or ()]
        code = function.__code__  # marshal.dumps of it is not always the same: it tells how often parts are referred to
        about = [function.__module__, function.__qualname__, code.co_firstlineno, code.co_code, _dumps(closure)]
        about += [sorted(self._options.items())]
        about += [str(signature), names, files, sys.version, target.magic_tuple(), vars(numba.config)["BOUNDSCHECK"]]
        digest = hashlib.sha256(repr(about).encode()).hexdigest()
        return cast(Path, _CACHE) / f"{function.__name__}-{digest[:32]}.code"

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the code for a signature, None if there is none."""
        context.refresh()
        with suppress(Exception):  # unpickling raises errors of every kind
            path = self._path(signature, context.codegen())
            content = path.read_bytes() if path.is_file() else b""  # a pipe would never end
            if _digest(path, content[32:]) == content[:32]:
                reduced = pickle.loads(content[32:])  # noqa: S301  # only this user and root could write it
                return _Code._rebuild(context, *reduced)
        return None

    def save_overload(self, signature: Any, code: Any) -> None:
        """Keep the code for a signature."""
        if code.lifted or code.library.has_dynamic_globals:  # it holds addresses of this process
            return
        with suppress(Exception):  # a full disk, say
            content = _dumps(code._reduce())
            path = self._path(signature, code.codegen)
            partial = path.with_suffix(f".{uuid.uuid4().hex[:16]}.partial")
            try:
                partial.write_bytes(_digest(path, content) + content)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)

    @property
    def cache_path(self) -> str:
        """The folder."""
        return str(_CACHE)

    def flush(self) -> None:
        """Do nothing: the folder's name changes with the sources."""


@contextmanager
def _getting_code() -> Iterator[None]:
    """Say when code is compiled, kept and loaded (Numba tells of compiling alone), and look for no garbage meanwhile.

    A compiler makes millions of objects that stay, and looks cost a tenth of it.
    """
    enabled = gc.isenabled()
    with _events.trigger_event(GETTING_CODE):
        gc.disable()
        try:
            yield
        finally:
            if enabled:
                gc.enable()
                gc.collect(0)  # it is due by now, and may take a second: part of the same


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
            if _CACHE is not None:
                made._cache = _Cache(function, options)
            made.compile = _getting_code()(made.compile)
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


_PRANGE = dict.fromkeys(("comprehension", "fusion", "inplace_binop", "numpy", "reduction", "setitem", "stencil"), False)


def threaded(function: Function) -> Function:
    """Compile a function of the inner loops whose loops over ``numba.prange`` are shared by threads."""
    return _compile(function, **_HOT, parallel={**_PRANGE, "prange": True})


_FORKED: list[bool] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _FORKED.append(True))


class OneThread(NamedTuple):
    """The pairs (s, a) are gone through by one thread."""


class Threads(NamedTuple):
    """Pieces of the pairs (s, a), of which there are very many, are shared by several threads."""


PIECES = 64  # for threads to share
_MANY_OUTCOMES = 2**24  # threads pay for the compiling


def may_use_threads() -> bool:
    """Say whether threads can be used: not in a fork, for which their libraries may end the process."""
    return not _FORKED


def threads_for(outcomes: int) -> OneThread | Threads:
    """Return who goes through so many outcomes; the type of the answer tells functions apart."""
    return Threads() if outcomes >= _MANY_OUTCOMES and may_use_threads() else OneThread()


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
        _OUTSIDE.setdefault(kind, {}).update(_file_outside(function))

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
