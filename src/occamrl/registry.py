"""Registries without registration: a class is found by its name, in one of three places.

**A folder of this package.** A class is found because its file lies there. Folders are imported when they are asked
for, not before, so that nothing here imports upwards.

**An installed package** that declares entry points in the groups ``occamrl.learners``, ``occamrl.problems``,
``occamrl.selectors`` and ``occamrl.rules``. Their names are read from metadata, which runs no code; a class is imported
when somebody asks for it by its name, and no other class is. A class of this package keeps its name.

**A module that the user named** (``--import``, ``imports=``), as ``module:Class``. Text alone, such as a spec, never
causes an import.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from occamrl.errors import InvalidInput, ParameterError, UnknownName, raise_all
from occamrl.protocols import EpisodeLearner, Learner, Problem, Rule, RuledBases, Selector


class WithExamples(Protocol):
    """What is asked of a class in the folder of families: small instances for the contract checks."""

    @classmethod
    def examples(cls) -> Any:
        """Return small instances."""


KINDS: dict[str, tuple[str, tuple[type, ...]]] = {  # folder, and what a class there must be
    "problems": ("occamrl.problems", (Problem,)),
    "families": ("occamrl.models", (WithExamples,)),
    "learners": ("occamrl.learners", (Learner, EpisodeLearner)),
    "selectors": ("occamrl.selectors", (Selector,)),
    "arenas": ("occamrl.selectors", (RuledBases,)),
    "rules": ("occamrl.rules", (Rule,)),
}
_imported: set[str] = set()  # modules whose classes may be called "module:Class"


def _members(protocol: type) -> set[str]:
    """Return the public names that a protocol asks for."""
    bases = [base for base in protocol.__mro__ if base is not Protocol and getattr(base, "_is_protocol", False)]
    return {name for base in bases for name in vars(base) if not name.startswith("_")}


def satisfies(candidate: type, protocol: type) -> bool:
    """Say whether a class derives from a protocol or has all of its members.

    ``issubclass`` would do, but refuses protocols with properties.
    """
    return protocol in candidate.__mro__ or all(hasattr(candidate, name) for name in _members(protocol))


def discover(package: str, *protocols: type) -> dict[str, type[Any]]:
    """Return, by name, the public classes defined in a package's public modules that satisfy one of some protocols."""
    found: dict[str, type[Any]] = {}
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package}.{info.name}")
        for name, value in vars(module).items():
            if not inspect.isclass(value) or value.__module__ != module.__name__ or name.startswith("_"):
                continue
            fits = any(satisfies(value, protocol) for protocol in protocols)
            if fits and not inspect.isabstract(value) and not getattr(value, "_is_protocol", False):
                found[name] = value
    return dict(sorted(found.items()))


@cache
def own(kind: str) -> Mapping[str, type[Any]]:
    """Return the classes of this package of one of the :data:`KINDS`, by name; the folder is scanned once."""
    folder, protocols = KINDS[kind]
    return MappingProxyType(discover(folder, *protocols))


problems = partial(own, "problems")
families = partial(own, "families")  # of kernels, and feature maps
learners = partial(own, "learners")  # compiled or in plain NumPy
selectors = partial(own, "selectors")
rules = partial(own, "rules")


class Installed(NamedTuple):
    """A class that installed packages declare; it is imported when it is asked for."""

    points: tuple[Any, ...]  # entry points; of the standard library, or of a package that takes its place

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


@cache
def _declared(kind: str, folders: tuple[str, ...]) -> dict[str, Installed]:
    points = list(entry_points(group=f"occamrl.{kind}"))
    names = sorted({point.name for point in points})
    return {name: Installed(tuple(point for point in points if point.name == name)) for name in names}


def installed(kind: str) -> Mapping[str, Installed]:
    """Return what installed packages declare for a kind of class, by name; folders are read once."""
    return MappingProxyType(_declared(kind, tuple(sys.path)))


def named(*kinds: str) -> dict[str, Any]:
    """Return all that can be called by name: classes of this package, and entry points that are not loaded."""
    found: dict[str, Any] = {}
    for kind in kinds:
        found |= {name: point for name, point in installed(kind).items() if name not in found}
        found |= own(kind)
    return found


class Modules(NamedTuple):
    """Modules that the user named, and the folders where they were found, for other processes."""

    names: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


NO_MODULES = Modules()


def import_modules(names: Sequence[str], folders: Iterable[str] = (), field: str = "imports") -> Modules:
    """Import modules that the user named; also from ``folders``, after all others."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)
    found: dict[str, None] = {}
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


def canonical_name(field: str, name: object, known: Mapping[str, Any]) -> str:
    """Return the key of ``known`` that is meant, ignoring case, ``-`` and ``_``; otherwise suggest the nearest.

    ``module:Class`` stands for itself.
    """
    if isinstance(name, str) and ":" in name:
        return name
    folded = {_fold(each): each for each in known}
    if _fold(name) not in folded:
        raise UnknownName(field, got=name, known=known)
    return folded[_fold(name)]


def find(field: str, name: object, known: Mapping[str, Any], *kinds: str) -> Any:
    """Return the class called ``name``: of ``known``, or ``module:Class`` of a module that the user named.

    Classes from elsewhere must be of one of ``kinds``; where there are none, whatever can be called will do.
    """
    name = canonical_name(field, name, known)
    if ":" in name:
        found, where = _of_module(field, name), name
    elif not isinstance(found := known[name], Installed):
        return found
    else:
        found, where = found.load(field, name), f"{name} of {found.source}"
    protocols = [protocol for kind in kinds for protocol in KINDS[kind][1]]
    fits = not protocols or (inspect.isclass(found) and any(satisfies(found, protocol) for protocol in protocols))
    if not callable(found) or not fits:
        wanted = " or ".join(sorted({", ".join(sorted(_members(protocol))) for protocol in protocols}))
        raise ParameterError(field, got=where, expected=f"a class with {wanted}" if wanted else "a class")
    return found


def _of_module(field: str, name: str) -> Any:
    """Return what ``module:name`` is, if the user named the module and the thing is the module's or its package's."""
    module, _, attribute = name.partition(":")
    if module not in _imported:
        expected = f'a class of a module that is named with --import {module} and import = ["{module}"] in the spec'
        raise ParameterError(field, got=repr(name), expected=f"{expected} (in Python: imports=[{module!r}])")
    public = vars(sys.modules[module])
    theirs = {
        each: value
        for each, value in public.items()
        if not each.startswith("_") and str(getattr(value, "__module__", "")).split(".")[0] == module.split(".")[0]
    }
    if attribute not in theirs:
        raise UnknownName(field, got=name, known=[f"{module}:{each}" for each in theirs])
    return theirs[attribute]


def construct(kind: Any, parameters: dict[str, Any], errors: list[InvalidInput]) -> Any:
    """Return ``kind(**parameters)``; what is wrong with the parameters is added to ``errors``, not only the first.

    Parameters that are refused are left out, so that the others are looked at as well, and so that what comes back can
    stand for the object that was meant. None where nothing could be made.
    """
    known, given = inspect.signature(kind).parameters, dict(parameters)
    while True:
        try:
            return kind(**given)
        except InvalidInput as error:
            name = re.split(r"\W", error.field, maxsplit=1)[0]
            if name in given or not errors:
                errors.append(error)
            if name not in given or known[name].default is inspect.Parameter.empty:
                return None
            del given[name]


def build_problem(name: str, parameters: dict[str, Any], errors: list[InvalidInput]) -> Any:
    """Return the problem of that name, or one without the parameters that were refused: see :func:`construct`."""
    kind = find("problem", name, named("problems"), "problems")
    known = [*inspect.signature(kind).parameters, "reward_noise"]
    unknown = [each for each in parameters if each not in known]
    errors += [UnknownName(f"{kind.__name__} parameter", got=each, known=known) for each in unknown]
    rest = {each: value for each, value in parameters.items() if each in known}
    noise = rest.pop("reward_noise", None)
    made = construct(kind, rest, errors)
    if noise is None or made is None:
        return made
    try:
        return importlib.import_module("occamrl.problems.mdp").NoisyProblem(made, noise)
    except InvalidInput as error:
        errors.append(error)
        return made


def make_problem(name: str, **parameters: Any) -> Any:
    """Return the problem called ``name`` with these parameters.

    >>> import occamrl as orl
    >>> orl.make_problem("river-swim", states=5).mdp.horizon
    20

    ``reward_noise``, of any problem, lets rewards scatter around their means: see :mod:`occamrl.problems.mdp`.
    """
    errors: list[InvalidInput] = []
    problem = build_problem(name, parameters, errors)
    raise_all(errors)
    return problem
