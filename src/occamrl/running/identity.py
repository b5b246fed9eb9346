"""What an agent is, in words and digests: its class, its parameters and, of classes of others, their code.

Two agents are the same if these agree. A file keeps them, so that results of other code or
parameters are never taken for those of an agent, and so that an error can say what has changed.
"""

from __future__ import annotations

import hashlib
import numbers
import re
import sys
import types
from dataclasses import fields, is_dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from occamrl.control.ladder import SimulatorLadder
from occamrl.evidence.simulated import label_of
from occamrl.models.features import PerProblem
from occamrl.protocols import Known

_CODE = "the code of "
_ARRAY = re.compile(r"[a-z]+[0-9]+\[.*\] [0-9a-f]{16}$")  # as identities show one
_LONGEST = 80  # characters of a value that are kept; of longer ones a digest


def stored_fields(value: Any) -> dict[str, Any]:
    """Return what an object is made of: fields, or attributes that are not derived."""
    kind = type(value)
    if isinstance(value, PerProblem):  # a cache
        return {}
    if isinstance(value, sp.csr_array):
        return {name: getattr(value, name) for name in ("data", "indices", "indptr", "shape")}
    if isinstance(value, tuple):
        return dict(zip(value._fields, value, strict=True))  # type: ignore[attr-defined]  # a NamedTuple
    if is_dataclass(kind):
        return {each.name: getattr(value, each.name) for each in fields(kind) if each.init}
    if getattr(value, "finite", False) and hasattr(
        value, "level"
    ):  # a ladder of lists: each member once
        return {
            name: getattr(value, name) for name in ("family", "level", "reach", "names", "draws")
        }
    held = getattr(value, "__dict__", {})
    return {
        name: each
        for name, each in held.items()
        if not isinstance(getattr(kind, name, None), cached_property)
    }


def name_of(kind: Any) -> str:
    """Return ``module:Class``."""
    return f"{kind.__module__}:{kind.__qualname__}"


def identity(value: Any, name: str = "agent") -> dict[str, str]:
    """Return what makes an agent what it is: a text or digest for each parameter, by its path (``agent.delta``).

    >>> import occamrl as orl
    >>> from occamrl.running.identity import identity
    >>> identity(orl.UCB1(scale=0.5))["agent.scale"]
    '0.5'
    """
    if isinstance(value, SimulatorLadder):
        return {name: f"SimulatorLadder {_simulators(value)}"}
    known = getattr(value, "fingerprint", None)
    if isinstance(known, str):
        return {name: f"{type(value).__name__} {known[:16]}"}
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=repr)
    several = isinstance(value, (list, tuple))
    if all(
        each is None or isinstance(each, (numbers.Number, str))
        for each in (value if several else [value])
    ):
        text = repr(
            list(value) if several else value.item() if isinstance(value, np.generic) else value
        )
        return {
            name: text
            if len(text) <= _LONGEST
            else f"{text[: _LONGEST // 2]}... {_digest(text.encode())}"
        }
    if isinstance(value, np.ndarray):
        return {name: f"{value.dtype}{list(value.shape)} {_digest(value.tobytes())}"}
    if several:
        found, inside = (
            {name: f"{len(value)} entries"},
            {f"[{i}]": each for i, each in enumerate(value)},
        )
    elif isinstance(value, dict):
        found, inside = (
            {name: f"{len(value)} entries"},
            {f".{key}": value[key] for key in sorted(value, key=str)},
        )
    elif callable(value) and hasattr(value, "__qualname__"):
        return {name: name_of(value), **code_of(value)}
    else:
        kind = type(value)
        found, inside = (
            {name: name_of(kind)},
            {f".{key}": each for key, each in sorted(stored_fields(value).items())},
        )
        if _root(kind) not in ("occamrl", "builtins", "numpy", "scipy"):
            found |= code_of(kind)
    for key, each in inside.items():
        found |= identity(each, name + key)
    return found


def identity_of_problem(known: Known) -> dict[str, str]:
    """Return the same of what is known of a problem, in the words of those who made it."""
    words = {"problem.base_reward": "problem.reward", "problem.initial": "problem.initial_state"}
    return {words.get(key, key): text for key, text in identity(known, "problem").items()}


def changes(before: dict[str, str], after: dict[str, str]) -> str:
    """Return in words how two identities differ; empty if they do not."""
    found = []
    for key in sorted({*before, *after}):
        old, new = before.get(key, "absent"), after.get(key, "absent")
        if old != new and key.startswith(_CODE):
            found.append(f"{key} has changed")
        elif old != new:
            other = _ARRAY.match(old) and old.rpartition(" ")[0] == new.rpartition(" ")[0]
            found.append(f"{key} has other numbers" if other else f"{key}: {old} before, {new} now")
    return "; ".join(found[:4]) + (f"; and {len(found) - 4} more" if len(found) > 4 else "")


def _simulators(ladder: SimulatorLadder) -> str:
    """Return a digest of names, sizes, parameters and code of simulators."""
    parts: list[Any] = [ladder.names, ladder.sizes, ladder.horizon, ladder.draws]
    parts += [ladder.resolution.tolist(), ladder.actions]
    for function in (*ladder.members, ladder.reward, ladder.view):
        inner: Any = function
        label = ""
        if isinstance(function, partial):
            inner = function.func
            label = label_of(function)
        # An object that can be called is its class and what it holds; so is a method's.
        owner = getattr(inner, "__self__", None)
        kind = inner
        if not hasattr(inner, "__qualname__"):
            owner = inner
            kind = type(inner)
        held = None
        if owner is not None and not isinstance(owner, types.ModuleType):
            held = identity(owner)
        parts.append((name_of(kind), code_of(kind), held, label))
    return _digest(repr(parts).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _file(module: str) -> str:
    return Path(getattr(sys.modules.get(module), "__file__", None) or module).name


def _root(thing: Any) -> str:
    return str(getattr(thing, "__module__", getattr(thing, "__name__", None))).partition(".")[0]


def code_of(thing: Any) -> dict[str, str]:
    """Return digests of the code of a class or function, and of what it uses outside of installed packages, by file.

    The compiled code is looked at: what is in force, wherever it came from; comments do not count.
    """
    content: dict[str, list[str]] = {}
    waiting, seen, home = [(thing, "")], set(), _root(thing)  # with the file that uses it

    def theirs(each: Any) -> bool:
        root = _root(each)
        place = str(getattr(sys.modules.get(root), "__file__", "site-packages"))
        return root == home or not (
            root in ("occamrl", *sys.stdlib_module_names) or "site-packages" in place
        )

    while waiting:
        each, file = waiting.pop()
        for inner in ("__func__", "fget", "func"):  # methods of classes, properties, cached ones
            each = getattr(each, inner, each)
        if isinstance(each, (bool, int, float, str, tuple, np.ndarray)):
            content.setdefault(file, []).append(
                repr(each.tolist() if isinstance(each, np.ndarray) else each)
            )
        elif isinstance(each, (type, types.FunctionType)) and theirs(each) and each not in seen:
            seen.add(each)
            file = _file(each.__module__)
            here = content.setdefault(file, [])
            if isinstance(each, type):
                made = ("__init__", "__post_init__", "__new__")
                names = sorted(
                    name
                    for name in vars(each)
                    if name in made or not name.startswith(("__", "_abc", "_is_"))
                )
                here.append(f"{each.__qualname__}{names}")
                waiting += [
                    (part, file)
                    for part in (*(vars(each)[name] for name in names), *each.__bases__)
                ]
                continue
            codes, names = [each.__code__], []
            for code in codes:  # grows by the functions inside
                codes += [part for part in code.co_consts if isinstance(part, types.CodeType)]
                plain = [part for part in code.co_consts if not isinstance(part, types.CodeType)]
                plain = [
                    sorted(part, key=repr) if isinstance(part, frozenset) else part
                    for part in plain
                ]
                here.append(repr((code.co_code, code.co_names, code.co_varnames, plain)))
                names += code.co_names
            used = [each.__globals__.get(name) for name in names]
            modules = [
                module for module in used if isinstance(module, types.ModuleType) and theirs(module)
            ]
            used += [
                *(each.__defaults__ or ()),
                *(cell.cell_contents for cell in each.__closure__ or ()),
            ]
            waiting += [(part, file) for part in used]
            waiting += [
                (vars(module).get(name), _file(module.__name__))
                for module in modules
                for name in names
            ]
    told = {file: _digest("\n".join(texts).encode()) for file, texts in content.items()}
    return {f"{_CODE}{name_of(thing)} ({file})": digest for file, digest in told.items()}
