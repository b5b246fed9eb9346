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
from importlib.metadata import entry_points
from typing import Any

from occamrl.errors import ParameterError, UnknownName
from occamrl.protocols import Learner, Problem, Rule

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
    """Say whether a class has all members of a protocol; ``issubclass`` refuses protocols with properties."""
    return all(hasattr(candidate, name) for name in _members(protocol))


def discover(package: str, protocol: type) -> dict[str, type[Any]]:
    """Return, by name, the public classes defined in a package's public modules that satisfy a protocol."""
    found: dict[str, type[Any]] = {}
    public = [each.name for each in pkgutil.iter_modules(importlib.import_module(package).__path__)]
    for module in [
        importlib.import_module(f"{package}.{name}") for name in public if not name.startswith("_")
    ]:
        for name, value in vars(module).items():
            own = (
                inspect.isclass(value)
                and value.__module__ == module.__name__
                and not name.startswith("_")
            )
            if own and not inspect.isabstract(value) and satisfies(value, protocol):
                found[name] = value
    return dict(sorted(found.items()))


@cache
def own(kind: str) -> Mapping[str, type[Any]]:
    """Return the classes of this package of one of the :data:`KINDS`, by name; the folder is scanned once."""
    prefix = "paper." if kind == "paper" else ""
    return {prefix + name: value for name, value in discover(*KINDS[kind]).items()}


def named(*kinds: str) -> dict[str, Any]:
    """Return all that can be called by name: classes of this package, and entry points that are not loaded."""
    declared = {
        point.name: point for kind in kinds for point in entry_points(group=f"occamrl.{kind}")
    }
    return declared | {name: value for kind in kinds for name, value in own(kind).items()}


def source_of(point: Any) -> str:
    """Return the distribution of an entry point, with its version."""
    return f"{point.dist.name} {point.dist.version}"


def import_modules(names: Iterable[str], field: str = "imports") -> None:
    """Import modules that the user named; their classes may then be called ``module:Class``."""
    importlib.invalidate_caches()  # a module may have been written just now
    for name in names:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            got = f"{name!r}: {type(error).__name__}: {error}"
            expected = "a module that can be imported from the current folder or from PYTHONPATH"
            raise ParameterError(field, got=got, expected=expected) from error
        _imported.add(name)


def _folded(name: object) -> str:
    return re.sub("[-_]", "", str(name)).casefold()


def canonical(name: str) -> str:
    """Return how a name is spelled: ``psrl`` is ``PSRL``, ``river-swim`` is ``RiverSwim``; others are left as is."""
    return next((each for each in named(*KINDS) if _folded(each) == _folded(name)), name)


def lookup(field: str, name: object, known: Mapping[str, Any]) -> Any:
    """Return the one of ``known`` that is meant, ignoring case, ``-`` and ``_``; or what ``module:name`` is."""
    if isinstance(name, str) and ":" in name:
        return _of_module(field, name)
    for each, value in known.items():
        if _folded(each) == _folded(name):
            return value
    raise UnknownName(field, got=name, known=known)


def find(field: str, name: object, *kinds: str) -> Any:
    """Return the class called ``name`` of some kinds, or ``module:Class`` of a module that the user named."""
    found, where = lookup(field, name, named(*kinds)), str(name)
    if not inspect.isclass(found) and hasattr(found, "dist"):
        where = f"{name} of {source_of(found)}"
        try:
            found = found.load()
        except (Exception, SystemExit) as error:  # whatever the package's code raises
            got = f"{where}: {type(error).__name__}: {error}"
            raise ParameterError(
                field, got=got, expected="a package that can be imported"
            ) from error
    protocols = {KINDS[kind][1] for kind in kinds}
    if not inspect.isclass(found) or not any(satisfies(found, protocol) for protocol in protocols):
        wanted = " or ".join(sorted(", ".join(_members(protocol)) for protocol in protocols))
        raise ParameterError(field, got=where, expected=f"a class with {wanted}")
    return found


def _of_module(field: str, name: str) -> Any:
    """Return what ``module:name`` is, if the user named the module and the thing is the module's or its package's."""
    module = name.partition(":")[0]
    if module not in _imported:
        expected = f"a class of a module that the user names: --import {module} (in Python: imports=[{module!r}])"
        raise ParameterError(field, got=repr(name), expected=expected)
    theirs = {}
    for each, value in vars(sys.modules[module]).items():
        home = str(getattr(value, "__module__", ""))
        if not each.startswith("_") and home.split(".")[0] == module.split(".")[0]:
            theirs[f"{module}:{each}"] = value
    if name not in theirs:
        raise UnknownName(field, got=name, known=theirs)
    return theirs[name]


def make_problem(name: str, **parameters: Any) -> Any:
    """Return the problem called ``name``; with ``reward_noise="bernoulli"`` rewards are random with these means.

    >>> import occamrl as orl
    >>> orl.make_problem("river-swim", states=5).mdp.horizon
    20
    """
    kind = find("name", name, "problems")
    known = [*inspect.signature(kind).parameters, "reward_noise"]
    for each in parameters:
        if each not in known:
            raise UnknownName(f"parameters.{each}", got=each, known=known)
    noise = parameters.pop("reward_noise", None)
    problem = kind(**parameters)
    return (
        problem
        if noise is None
        else importlib.import_module("occamrl.problems.mdp").NoisyProblem(problem, noise)
    )
