"""Registries without registration: a class is found because its file lies in the right folder.

Folders are imported when they are asked for, not before, so that nothing here imports upwards.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any, Protocol

from occamrl.errors import UnknownName, require_choice
from occamrl.protocols import EpisodeLearner, Learner, Problem, Selector


class WithExamples(Protocol):
    """What is asked of a class in the folder of families: small instances for the contract checks."""

    @classmethod
    def examples(cls) -> Any:
        """Return small instances."""


def _is_protocol(candidate: type) -> bool:
    return bool(getattr(candidate, "_is_protocol", False))


def _members(protocol: type) -> set[str]:
    """Return the public names that a protocol asks for."""
    return {
        name
        for base in protocol.__mro__
        if base is not Protocol and _is_protocol(base)
        for name in vars(base)
        if not name.startswith("_")
    }


def satisfies(candidate: type, protocol: type) -> bool:
    """Say whether a class derives from a protocol or has all of its members.

    ``issubclass`` would do, but refuses protocols with properties.
    """
    return protocol in candidate.__mro__ or all(hasattr(candidate, name) for name in _members(protocol))


def discover(package: str, protocol: type) -> dict[str, type[Any]]:
    """Return, by name, the public classes defined in a package's modules that satisfy a protocol.

    Parameters
    ----------
    package
        For instance ``"occamrl.problems"``. Modules whose names begin with an underscore are passed over.
    protocol
        A :class:`typing.Protocol`.
    """
    found: dict[str, type[Any]] = {}
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package}.{info.name}")
        for name, value in vars(module).items():
            if not inspect.isclass(value) or value.__module__ != module.__name__ or name.startswith("_"):
                continue
            if satisfies(value, protocol) and not inspect.isabstract(value) and not _is_protocol(value):
                found[name] = value
    return dict(sorted(found.items()))


def problems() -> dict[str, type[Any]]:
    """Return every problem, by name."""
    return discover("occamrl.problems", Problem)


def learners() -> dict[str, type[Any]]:
    """Return every learner, compiled or in plain NumPy, by name."""
    return dict(sorted((discover("occamrl.learners", Learner) | discover("occamrl.learners", EpisodeLearner)).items()))


def selectors() -> dict[str, type[Any]]:
    """Return every selector, by name."""
    return discover("occamrl.selectors", Selector)


def families() -> dict[str, type[Any]]:
    """Return every family of kernels and feature map, by name."""
    return discover("occamrl.models", WithExamples)


def _fold(name: object) -> str:
    return str(name).casefold().replace("-", "").replace("_", "")


def find(kind: str, name: object, known: dict[str, type[Any]]) -> type[Any]:
    """Return the class called ``name``, ignoring case, ``-`` and ``_``; otherwise suggest the nearest name."""
    folded = {_fold(each): found for each, found in known.items()}
    if _fold(name) not in folded:
        raise UnknownName(kind, got=name, known=known)
    return folded[_fold(name)]


def make_problem(name: str, **parameters: Any) -> Any:
    """Return the problem called ``name`` with these parameters.

    ``reward_noise``, of any problem, lets rewards scatter around their means: see :mod:`occamrl.problems.mdp`.

    Examples
    --------
    >>> make_problem("river-swim", states=5).mdp.horizon
    20
    """
    kind = find("problem", name, problems())
    valid = [*inspect.signature(kind).parameters, "reward_noise"]
    for given in parameters:
        require_choice(f"{kind.__name__} parameter", given, valid)
    noise = parameters.pop("reward_noise", None)
    if noise is None:
        return kind(**parameters)
    return importlib.import_module("occamrl.problems.mdp").NoisyProblem(kind(**parameters), noise)
