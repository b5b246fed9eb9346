"""Registries without registration: a class is found by its name, in one of three places.

A folder of this package, which is imported when it is asked for. An installed package that declares entry points in the
groups ``occamrl.problems``, ``occamrl.learners``, ``occamrl.selectors`` and ``occamrl.rules``: names are read from
metadata, and a class is imported when somebody asks for it by name. A module that the user named (``--import``,
``imports=``), as ``module:Class``. Text alone, such as a spec, never causes an import.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

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
    """Return the public names that a protocol asks for."""
    return sorted(name for name in vars(protocol) if not name.startswith("_"))


def satisfies(candidate: type, protocol: type) -> bool:
    """Say whether a class has all members of a protocol; ``issubclass`` refuses protocols with properties."""
    return all(hasattr(candidate, name) for name in _members(protocol))


def discover(package: str, protocol: type) -> dict[str, type[Any]]:
    """Return, by name, the public classes defined in a package's public modules that satisfy a protocol."""
    found: dict[str, type[Any]] = {}
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package}.{info.name}")
        for name, value in vars(module).items():
            own = inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_")
            whole = own and not inspect.isabstract(value) and not getattr(value, "_is_protocol", False)
            if whole and satisfies(value, protocol):
                found[name] = value
    return dict(sorted(found.items()))


@cache
def own(kind: str) -> Mapping[str, type[Any]]:
    """Return the classes of this package of one of the :data:`KINDS`, by name; the folder is scanned once."""
    prefix = "paper." if kind == "paper" else ""
    return MappingProxyType({prefix + name: value for name, value in discover(*KINDS[kind]).items()})


class Installed(NamedTuple):
    """A class that installed packages declare; it is imported when it is asked for."""

    points: tuple[Any, ...]  # entry points: more than one where several packages use the same name

    @property
    def source(self) -> str:
        """The distribution that it comes from, with its version; all of them, if there are several."""
        return " and ".join(sorted(f"{point.dist.name} {point.dist.version}" for point in self.points))

    def load(self, field: str, name: str) -> Any:
        """Return the class."""
        if len(self.points) > 1:
            expected = f"one package that brings {name}; name its class as module:Class instead"
            raise ParameterError(field, got=self.source, expected=expected)
        try:
            return self.points[0].load()
        except (Exception, SystemExit) as error:  # whatever the package's code raises
            got = f"{name} of {self.source}: {type(error).__name__}: {error}"
            raise ParameterError(field, got=got, expected="a package that can be imported") from error


def installed(kind: str) -> dict[str, Installed]:
    """Return what installed packages declare for a kind of class, by name."""
    points = list(entry_points(group=f"occamrl.{kind}"))
    names = sorted({point.name for point in points})
    return {name: Installed(tuple(point for point in points if point.name == name)) for name in names}


def named(*kinds: str) -> dict[str, Any]:
    """Return all that can be called by name: classes of this package, and entry points that are not loaded."""
    declared = {name: point for kind in kinds for name, point in installed(kind).items()}
    return declared | {name: value for kind in kinds for name, value in own(kind).items()}


class Modules(NamedTuple):
    """Modules that the user named, and the folders where they were found, for other processes."""

    names: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


def import_modules(names: Sequence[str], folders: Iterable[str] = (), field: str = "imports") -> Modules:
    """Import modules that the user named; also from ``folders``, after all others."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)
    found: dict[str, None] = {}
    importlib.invalidate_caches()  # a module may have been written just now
    for name in names:
        try:
            module = importlib.import_module(name)
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            got = f"{name!r}: {type(error).__name__}: {error}"
            expected = "a module that can be imported from the current folder or from PYTHONPATH"
            raise ParameterError(field, got=got, expected=expected) from error
        _imported.add(name)
        if module.__spec__ is not None and module.__spec__.origin is not None:
            place = Path(module.__spec__.origin).resolve()
            found[str(place.parents[name.count(".") + hasattr(module, "__path__")])] = None
    return Modules(tuple(names), tuple(found))


def _fold(name: object) -> str:
    return str(name).casefold().replace("-", "").replace("_", "")


def canonical_name(field: str, name: object, known: Iterable[str]) -> str:
    """Return the one of ``known`` that is meant, ignoring case, ``-`` and ``_``; ``module:Class`` stands for itself."""
    if isinstance(name, str) and ":" in name:
        return name
    folded = {_fold(each): each for each in known}
    if _fold(name) in folded:
        return folded[_fold(name)]
    raise UnknownName(field, got=name, known=folded.values())


def find(field: str, name: object, *kinds: str) -> Any:
    """Return the class called ``name`` of some kinds, or ``module:Class`` of a module that the user named."""
    known = named(*kinds)
    text = canonical_name(field, name, known)
    if ":" in text:
        found, where = _of_module(field, text), text
    elif isinstance(found := known[text], Installed):
        found, where = found.load(field, text), f"{text} of {found.source}"
    else:
        return found
    protocols = {KINDS[kind][1] for kind in kinds}
    if not inspect.isclass(found) or not any(satisfies(found, protocol) for protocol in protocols):
        wanted = " or ".join(sorted(", ".join(_members(protocol)) for protocol in protocols))
        raise ParameterError(field, got=where, expected=f"a class with {wanted}")
    return found


def _of_module(field: str, name: str) -> Any:
    """Return what ``module:name`` is, if the user named the module and the thing is the module's or its package's."""
    module = name.partition(":")[0]
    if module not in _imported:
        expected = f'a class of a module that is named with --import {module} and import = ["{module}"] in the spec'
        raise ParameterError(field, got=repr(name), expected=f"{expected} (in Python: imports=[{module!r}])")
    theirs, package = dict[str, Any](), module.split(".")[0]
    for each, value in vars(sys.modules[module]).items():
        if not each.startswith("_") and str(getattr(value, "__module__", "")).split(".")[0] == package:
            theirs[f"{module}:{each}"] = value
    if name not in theirs:
        raise UnknownName(field, got=name, known=theirs)
    return theirs[name]


def make_problem(name: str, **parameters: Any) -> Any:
    """Return the problem called ``name`` with these parameters.

    >>> import occamrl as orl
    >>> orl.make_problem("river-swim", states=5).mdp.horizon
    20

    ``reward_noise="bernoulli"``, of any problem, lets rewards scatter around their means.
    """
    kind = find("problem", name, "problems")
    known = [*inspect.signature(kind).parameters, "reward_noise"]
    for each in parameters:
        if each not in known:
            raise UnknownName(f"{kind.__name__} parameter", got=each, known=known)
    noise = parameters.pop("reward_noise", None)
    problem = kind(**parameters)
    return problem if noise is None else importlib.import_module("occamrl.problems.mdp").NoisyProblem(problem, noise)
