"""What an agent is, in words and digests: its class, its parameters, and the code of users.

Two agents are the same if these agree. A file keeps them, so that results of other code or
parameters are never taken for those of an agent, and so that an error can say what has changed.
"""

from __future__ import annotations

import hashlib
import numbers
import re
import sys
from dataclasses import fields, is_dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp

from occamrl.models.features import PerProblem
from occamrl.models.ladder import Ladder
from occamrl.protocols import Known

_CODE = "the code of "
_ARRAY = re.compile(r"[a-z]+[0-9]+\[.*\] [0-9a-f]{16}$")  # as identities show one
_LONGEST = 80  # characters of a value that are kept; of longer ones a digest
_MOST_CHANGES = 4  # that are told


def stored_fields(value: Any) -> dict[str, Any]:
    """Return what an object is made of, and can be made of again.

    Fields of dataclasses and NamedTuples; of other objects, attributes that are not derived.
    """
    kind = type(value)
    if isinstance(value, PerProblem):  # a cache
        return {}
    if isinstance(value, sp.csr_array):
        arrays = {"data": value.data, "indices": value.indices, "indptr": value.indptr}
        return {**arrays, "shape": value.shape}
    if isinstance(value, tuple):
        named: dict[str, Any] = value._asdict()  # type: ignore[attr-defined]  # a NamedTuple
        return named
    if is_dataclass(kind):
        return {field.name: getattr(value, field.name) for field in fields(kind) if field.init}
    if isinstance(value, Ladder) and value.finite:
        # Of a ladder of lists, each member once: its classes share them.
        members = {"family": value.family, "level": value.level, "reach": value.reach}
        return {**members, "names": value.names, "draws": value.draws}
    held = {}
    for name, part in getattr(value, "__dict__", {}).items():
        if not isinstance(getattr(kind, name, None), cached_property):
            held[name] = part
    return held


def name_of(kind: Any) -> str:
    """Return ``module:Class``."""
    return f"{kind.__module__}:{kind.__qualname__}"


# Identities ---------------------------------------------------------------------------------------


def identity(value: Any, name: str = "agent") -> dict[str, str]:
    """Return what makes an agent what it is.

    A text or digest for each parameter, by its path (``agent.delta``).

    >>> import occamrl as orl
    >>> from occamrl.running.identity import identity
    >>> identity(orl.UCB1(scale=0.5))["agent.scale"]
    '0.5'
    """
    fingerprint = getattr(value, "fingerprint", None)
    if isinstance(fingerprint, str):
        return {name: f"{type(value).__name__} {fingerprint[:16]}"}
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=repr)
    parts: dict[str, Any] = {}
    if isinstance(value, (list, tuple)):
        if all(is_plain(part) for part in value):
            return {name: shortened(repr(list(value)))}
        texts = {name: f"{len(value)} entries"}
        parts = {f"[{i}]": part for i, part in enumerate(value)}
    elif is_plain(value):
        return {name: shortened(repr(value.item() if isinstance(value, np.generic) else value))}
    elif isinstance(value, np.ndarray):
        return {name: f"{value.dtype}{list(value.shape)} {digest(value.tobytes())}"}
    elif isinstance(value, dict):
        texts = {name: f"{len(value)} entries"}
        parts = {f".{key}": value[key] for key in sorted(value, key=str)}
    elif callable(value) and hasattr(value, "__qualname__"):
        return {name: name_of(value), **code_of(value)}
    else:
        kind = type(value)
        texts = {name: name_of(kind)}
        parts = {f".{key}": part for key, part in sorted(stored_fields(value).items())}
        if package_of(kind) not in ("occamrl", "builtins", "numpy", "scipy"):
            texts |= code_of(kind)
    for key, part in parts.items():
        texts |= identity(part, name + key)
    return texts


def identity_of_problem(known: Known) -> dict[str, str]:
    """Return the same of what is known of a problem, in the words of those who made it."""
    words = {"problem.base_reward": "problem.reward", "problem.initial": "problem.initial_state"}
    return {words.get(key, key): text for key, text in identity(known, "problem").items()}


def changes(before: dict[str, str], now: dict[str, str]) -> str:
    """Return in words how two identities differ; empty if they do not."""
    changed = []
    for key in sorted({*before, *now}):
        old = before.get(key, "absent")
        new = now.get(key, "absent")
        if old == new:
            continue
        same_shape = _ARRAY.match(old) and old.rpartition(" ")[0] == new.rpartition(" ")[0]
        if key.startswith(_CODE):
            changed.append(f"{key} has changed")
        elif same_shape:
            changed.append(f"{key} has other numbers")
        else:
            changed.append(f"{key}: {old} before, {new} now")
    if len(changed) > _MOST_CHANGES:
        changed[_MOST_CHANGES:] = [f"and {len(changed) - _MOST_CHANGES} more"]
    return "; ".join(changed)


def is_plain(value: object) -> bool:
    """Say whether a value is a number, a text or nothing."""
    return value is None or isinstance(value, (numbers.Number, str))


def shortened(text: str) -> str:
    """Return a text, of a long one the beginning and a digest."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST // 2]}... {digest(text.encode())}"


def digest(content: bytes) -> str:
    """Return sixteen hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()[:16]


# The code of users --------------------------------------------------------------------------------


def code_of(thing: Any) -> dict[str, str]:
    """Return digests, by file, of the code of a class or function and of what it uses.

    Of what lies outside of installed packages. The compiled code is looked at: what is in force,
    wherever it came from; comments do not count.
    """
    reader = CodeReader(package_of(thing))
    reader.read(thing)
    digests = {}
    for file, texts in reader.texts.items():
        digests[f"{_CODE}{name_of(thing)} ({file})"] = digest("\n".join(texts).encode())
    return digests


class CodeReader:
    """Collects the code of a class or function, and of all that it uses, as texts by file."""

    def __init__(self, home: str) -> None:
        self.home = home  # the package of the first one
        self.texts: dict[str, list[str]] = {}
        self._waiting: list[tuple[Any, str]] = []  # what is used, and the file that uses it
        self._seen: set[object] = set()

    def read(self, thing: Any) -> None:
        """Read a class or function, and all that it uses."""
        self._waiting.append((thing, ""))
        while self._waiting:
            part, user = self._waiting.pop()
            for wrapped in ("__func__", "fget", "func"):  # class methods, properties, cached ones
                part = getattr(part, wrapped, part)
            if isinstance(part, np.ndarray):
                self.texts.setdefault(user, []).append(repr(part.tolist()))
            elif isinstance(part, (bool, int, float, str, tuple)):
                self.texts.setdefault(user, []).append(repr(part))
            elif isinstance(part, type) and self._is_new(part):
                self._read_class(part, file_of(part.__module__))
            elif isinstance(part, FunctionType) and self._is_new(part):
                self._read_function(part, file_of(part.__module__))

    def _is_new(self, thing: object) -> bool:
        """Say whether something is the user's and has not been read, and take note of it."""
        if thing in self._seen or not self._is_theirs(thing):
            return False
        self._seen.add(thing)
        return True

    def _is_theirs(self, thing: object) -> bool:
        """Say whether something is the user's: not Python's, nor this package's, nor installed."""
        package = package_of(thing)
        if package == self.home:
            return True
        if package in ("occamrl", *sys.stdlib_module_names):
            return False
        path = getattr(sys.modules.get(package), "__file__", "site-packages")
        return "site-packages" not in str(path)

    def _read_class(self, kind: type, file: str) -> None:
        making = ("__init__", "__post_init__", "__new__")
        names = []
        for name in sorted(vars(kind)):
            # Others that begin so are what Python and abc add to every class.
            if name in making or not name.startswith(("__", "_abc", "_is_")):
                names.append(name)
        self.texts.setdefault(file, []).append(f"{kind.__qualname__}{names}")
        members = [vars(kind)[name] for name in names]
        self._waiting += [(part, file) for part in (*members, *kind.__bases__)]

    def _read_function(self, function: FunctionType, file: str) -> None:
        texts = self.texts.setdefault(file, [])
        codes = [function.__code__]
        names: list[str] = []
        for code in codes:  # grows by the functions inside
            constants = []
            for constant in code.co_consts:
                if isinstance(constant, CodeType):
                    codes.append(constant)
                elif isinstance(constant, frozenset):
                    constants.append(sorted(constant, key=repr))  # in an order of their own
                else:
                    constants.append(constant)
            texts.append(repr((code.co_code, code.co_names, code.co_varnames, constants)))
            names += code.co_names
        used = [function.__globals__.get(name) for name in names]
        modules = [part for part in used if isinstance(part, ModuleType) and self._is_theirs(part)]
        used += function.__defaults__ or ()
        used += [cell.cell_contents for cell in function.__closure__ or ()]
        self._waiting += [(part, file) for part in used]
        for module in modules:
            home = file_of(module.__name__)
            self._waiting += [(vars(module).get(name), home) for name in names]


def file_of(module: str) -> str:
    """Return the name of the file of a module."""
    return Path(getattr(sys.modules.get(module), "__file__", None) or module).name


def package_of(thing: object) -> str:
    """Return the package that a class, function or module belongs to."""
    name = getattr(thing, "__module__", getattr(thing, "__name__", None))
    return str(name).partition(".")[0]
