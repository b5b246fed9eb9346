"""What an agent is, in words and digests: its class, its parameters and, of classes of others, their code.

Two agents are the same if these agree. A file keeps them, so that results of other code or parameters are never taken
for those of an agent, and so that an error can say what has changed.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import numbers
import sys
import types
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from occamrl.models.features import PerProblem

_LONGEST = 80  # characters of a value that are kept; of longer ones a digest


def parts_of(value: Any) -> dict[str, Any]:
    """Return what an object is made of: the fields of a dataclass, the state of others without what is derived."""
    kind = type(value)
    if is_dataclass(kind):
        return {each.name: getattr(value, each.name) for each in fields(kind) if each.init}
    if getattr(value, "finite", False) and hasattr(value, "level"):  # a ladder of lists: each member once
        return {name: getattr(value, name) for name in ("family", "level", "reach", "names")}
    if any("__getstate__" in vars(each) for each in kind.__mro__[:-1]):
        state: dict[str, Any] = value.__getstate__()
        return state
    derived = functools.cached_property
    held = getattr(value, "__dict__", {})
    return {name: each for name, each in held.items() if not isinstance(getattr(kind, name, None), derived)}


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
    known = getattr(value, "fingerprint", None)
    if isinstance(known, str):
        return {name: f"{type(value).__name__} {known[:16]}"}
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=repr)
    if value is None or isinstance(value, (bool, numbers.Number, str)):
        return {name: _short(repr(value.item() if isinstance(value, np.generic) else value))}
    if isinstance(value, np.ndarray):
        return {name: f"{value.dtype}{list(value.shape)} {_digest(np.ascontiguousarray(value).tobytes())}"}
    if isinstance(value, sp.csr_array):
        return identity([value.shape, value.data, value.indices, value.indptr], name)
    if isinstance(value, (list, tuple)):
        if all(each is None or isinstance(each, (bool, numbers.Number, str)) for each in value):
            return {name: _short(repr(list(value)))}
        found, inside = {name: f"{len(value)} entries"}, {f"[{i}]": each for i, each in enumerate(value)}
    elif isinstance(value, dict):
        found, inside = {name: f"{len(value)} entries"}, {f".{key}": value[key] for key in sorted(value, key=str)}
    elif callable(value) and hasattr(value, "__qualname__"):
        return {name: name_of(value), f"the code of {name_of(value)}": code_of(value)}
    else:
        kind = type(value)
        found, inside = {name: name_of(kind)}, {f".{key}": each for key, each in sorted(parts_of(value).items())}
        if _root(kind) not in ("occamrl", "builtins", "numpy", "scipy"):
            found[f"the code of {name_of(kind)}"] = code_of(kind)
    for key, each in inside.items():
        if not isinstance(each, PerProblem):  # a cache
            found |= identity(each, name + key)
    return found


def fingerprint(agent: Any) -> str:
    """Return a digest of an agent's class, parameters and code: equal for equal agents, in any process."""
    return hashlib.sha256(json.dumps(identity(agent), sort_keys=True).encode()).hexdigest()


def changes(before: dict[str, str], after: dict[str, str]) -> str:
    """Return in words how two identities differ; empty if they do not."""
    found = []
    for key in sorted({*before, *after}):
        old, new = before.get(key, "absent"), after.get(key, "absent")
        if old != new:
            found.append(f"{key} has changed" if key.startswith("the code of ") else f"{key}: {old} before, {new} now")
    return "; ".join(found[:4]) + (f"; and {len(found) - 4} more" if len(found) > 4 else "")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}... {_digest(text.encode())}"


def _root(thing: Any) -> str:
    return str(getattr(thing, "__module__", None)).partition(".")[0]


def code_of(thing: Any) -> str:
    """Return a digest of the code of a class or function, and of what it calls outside of installed packages.

    The compiled code is looked at: what is in force, wherever it came from; comments do not count.
    """
    digest, waiting, seen, home = hashlib.sha256(), [thing], set(), _root(thing)

    def theirs(each: Any) -> bool:
        root = _root(each) if not isinstance(each, types.ModuleType) else each.__name__.partition(".")[0]
        if root == home:
            return True
        place = str(getattr(sys.modules.get(root), "__file__", "site-packages"))
        return root not in ("occamrl", *sys.stdlib_module_names) and "site-packages" not in place

    while waiting:
        each = waiting.pop()
        for inner in ("__func__", "fget", "func"):  # methods of classes, properties, cached ones
            each = getattr(each, inner, each)
        each = inspect.unwrap(each) if callable(each) else each
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, type) and theirs(each):
            held = {key: part for key, part in vars(each).items() if not key.startswith(("__", "_abc", "_is_"))}
            made = [each.__dict__[key] for key in ("__init__", "__post_init__", "__new__") if key in each.__dict__]
            digest.update(f"{each.__qualname__}{sorted(held)}".encode())
            waiting += [held[key] for key in sorted(held)] + made + list(each.__bases__)
        elif isinstance(each, types.FunctionType) and theirs(each):
            names = _enter_code(digest, each.__code__)
            cells = [cell.cell_contents for cell in each.__closure__ or () if cell != types.CellType()]
            found = [each.__globals__.get(name) for name in names]
            modules = [module for module in found if isinstance(module, types.ModuleType) and theirs(module)]
            waiting += [*(each.__defaults__ or ()), *cells, *found]
            waiting += [getattr(module, name, None) for module in modules for name in names]
        elif isinstance(each, (bool, int, float, str, tuple)):
            digest.update(repr(each).encode())
        elif isinstance(each, np.ndarray):
            digest.update(each.tobytes())
    return digest.hexdigest()[:16]


def _enter_code(digest: Any, code: types.CodeType) -> list[str]:
    """Add compiled code to a digest; return the names that it uses, in order."""
    names = list(code.co_names)
    digest.update(code.co_code + repr((code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _enter_code(digest, constant)
        else:
            digest.update(repr(sorted(constant, key=repr) if isinstance(constant, frozenset) else constant).encode())
    return names
