"""Trees of plain data and arrays, taken apart into arrays and JSON and put together again. No pickle.

A tree is made of dicts with string keys, lists, tuples, NamedTuples, arrays, strings, numbers, booleans and None: what
the memory of a selector and the state of a learner consist of.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from occamrl.errors import CheckpointError

Arrays = dict[str, np.ndarray[Any, Any]]


def take_apart(tree: Any, arrays: Arrays) -> Any:
    """Return the JSON skeleton of a tree; its arrays are put into ``arrays`` under numbers."""
    if isinstance(tree, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = tree
        return {"array": name}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        kind = type(tree)
        parts = [take_apart(part, arrays) for part in tree]
        return {"named": f"{kind.__module__}:{kind.__qualname__}", "parts": parts}
    if isinstance(tree, (list, tuple)):
        return {type(tree).__name__: [take_apart(part, arrays) for part in tree]}
    if isinstance(tree, dict):
        if not all(isinstance(key, str) for key in tree):
            raise CheckpointError("memory", got="keys that are not strings", expected="string keys")
        return {"dict": {key: take_apart(part, arrays) for key, part in tree.items()}}
    if isinstance(tree, np.generic):
        return take_apart(np.asarray(tree), arrays) | {"scalar": True}
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return {"value": tree}
    raise CheckpointError("memory", got=type(tree).__name__, expected="arrays, NamedTuples and plain data")


def put_together(skeleton: Any, arrays: Arrays) -> Any:
    """Return the tree of a skeleton. NamedTuple classes are looked up by name and must be what they claim to be."""
    match skeleton:
        case {"array": str(name), "scalar": True}:
            return arrays[name][()]
        case {"array": str(name)}:
            return arrays[name]
        case {"named": str(name), "parts": list(parts)}:
            return _class(name)(*(put_together(part, arrays) for part in parts))
        case {"list": list(parts)}:
            return [put_together(part, arrays) for part in parts]
        case {"tuple": list(parts)}:
            return tuple(put_together(part, arrays) for part in parts)
        case {"dict": dict(parts)}:
            return {key: put_together(part, arrays) for key, part in parts.items()}
        case {"value": value} if value is None or isinstance(value, (bool, int, float, str)):
            return value
    raise CheckpointError("checkpoint", got="an entry of no known kind", expected="a tree written by this package")


def _class(name: str) -> Any:
    """Return a NamedTuple class of this package, or of a module the user has imported already."""
    module, _, qualified = name.partition(":")
    if module in sys.modules:
        found: Any = sys.modules[module]
    elif module.startswith("occamrl."):
        found = importlib.import_module(module)
    else:
        raise CheckpointError("checkpoint", got=f"a state of {module}", expected="a module that is imported already")
    for part in qualified.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")):
        raise CheckpointError("checkpoint", got=name, expected="the name of a NamedTuple class")
    return found
