"""Registries without registration: a class is found by its name, in one of three places.

A folder of this package, which is imported when it is asked for. An installed package that declares
entry points in the groups ``occamrl.problems``, ``occamrl.learners``, ``occamrl.selectors`` and
``occamrl.rules``: names are read from metadata, and a class is imported when somebody asks for it
by name. A module that the user named (``--import``, ``imports=``), as ``module:Class``. Text alone,
such as a spec, never causes an import.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from occamrl.errors import ParameterError, UnknownName
from occamrl.protocols import Learner, Problem, Rule

Value = TypeVar("Value")

KINDS: dict[str, tuple[str, type]] = {  # the folder, and what a class there must be
    "problems": ("occamrl.problems", Problem),
    "learners": ("occamrl.learners", Learner),
    "selectors": ("occamrl.selectors", Learner),
    "paper": ("occamrl.paper", Learner),  # their names begin with "paper."
    "rules": ("occamrl.selectors", Rule),
}
_imported: set[str] = set()  # modules whose classes may be called "module:Class"


def _members(protocol: type) -> list[str]:
    return sorted(name for name in vars(protocol) if not name.startswith("_"))


def satisfies(candidate: type, protocol: type) -> bool:
    """Say whether a class has all members of a protocol."""
    # issubclass() refuses protocols that have properties.
    return all(hasattr(candidate, name) for name in _members(protocol))


def discover(package: str, protocol: type) -> dict[str, type[Any]]:
    """Return the public classes of a package's public modules that satisfy a protocol, by name."""
    classes: dict[str, type[Any]] = {}
    # By name, as what lies in the folder is not known before: so this file can lie below all.
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package}.{info.name}")
        for name, value in vars(module).items():
            if not inspect.isclass(value) or value.__module__ != module.__name__:
                continue
            public = not name.startswith("_") and not inspect.isabstract(value)
            if public and satisfies(value, protocol):
                classes[name] = value
    return dict(sorted(classes.items()))


@cache
def own(kind: str) -> Mapping[str, type[Any]]:
    """Return this package's classes of one of the :data:`KINDS`, by name, found once."""
    classes = discover(*KINDS[kind])
    if kind == "paper":
        return {f"paper.{name}": value for name, value in classes.items()}
    return classes


def named(*kinds: str) -> dict[str, type[Any] | EntryPoint]:
    """Return all that can be called by name: our classes, and entry points that are not loaded."""
    known: dict[str, type[Any] | EntryPoint] = {}
    for kind in kinds:
        known |= {point.name: point for point in entry_points(group=f"occamrl.{kind}")}
    for kind in kinds:
        known |= own(kind)  # a class of this package keeps its name
    return known


def source_of(point: EntryPoint) -> str:
    """Return the distribution of an entry point, with its version."""
    if point.dist is None:
        return point.value
    return f"{point.dist.name} {point.dist.version}"


def import_modules(names: Iterable[str], field: str = "imports") -> None:
    """Import modules that the user named; their classes may then be called ``module:Class``."""
    importlib.invalidate_caches()  # a module may have been written just now
    for name in names:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            got = f"{name!r}: {type(error).__name__}: {error}"
            raise ParameterError(
                field,
                got=got,
                expected="a module that can be imported from the current folder or from PYTHONPATH",
            ) from error
        _imported.add(name)


def _folded(name: object) -> str:
    return re.sub("[-_]", "", str(name)).casefold()


def canonical(name: str) -> str:
    """Return how a name is spelled: ``psrl`` is ``PSRL``; names that are not known stay as is."""
    for known in named(*KINDS):
        if _folded(known) == _folded(name):
            return known
    return name


def lookup(field: str, name: object, known: Mapping[str, Value]) -> Value | Any:
    """Return what is meant, ignoring case, ``-`` and ``_``; or what ``module:name`` is."""
    if isinstance(name, str) and ":" in name:
        return _of_module(field, name)
    for spelled, value in known.items():
        if _folded(spelled) == _folded(name):
            return value
    raise UnknownName(field, got=name, known=known)


def find(field: str, name: object, *kinds: str) -> Any:
    """Return the class called ``name`` of some kinds, or ``module:Class`` of a user's module."""
    candidate = lookup(field, name, named(*kinds))
    where = str(name)
    if isinstance(candidate, EntryPoint):
        where = f"{name} of {source_of(candidate)}"
        try:
            candidate = candidate.load()
        except (Exception, SystemExit) as error:  # whatever the package's code raises
            got = f"{where}: {type(error).__name__}: {error}"
            raise ParameterError(
                field, got=got, expected="a package that can be imported"
            ) from error
    protocols = {KINDS[kind][1] for kind in kinds}
    for protocol in protocols:
        if inspect.isclass(candidate) and satisfies(candidate, protocol):
            return candidate
    wanted = " or ".join(sorted(", ".join(_members(protocol)) for protocol in protocols))
    raise ParameterError(field, got=where, expected=f"a class with {wanted}")


def _of_module(field: str, name: str) -> object:
    """Return what ``module:name`` is, if the user named the module and it is no import of it."""
    module = name.partition(":")[0]
    if module not in _imported:
        expected = (
            f"a class of a module that the user names: --import {module} "
            f"(in Python: imports=[{module!r}])"
        )
        raise ParameterError(field, got=repr(name), expected=expected)
    package = module.split(".")[0]
    theirs = {}
    for key, value in vars(sys.modules[module]).items():
        home = str(getattr(value, "__module__", ""))  # of whatever the module holds
        if not key.startswith("_") and home.split(".")[0] == package:
            theirs[f"{module}:{key}"] = value
    if name not in theirs:
        raise UnknownName(field, got=name, known=theirs)
    return theirs[name]
