"""Algorithms as plain data and arrays, so that a file can hold one without pickle.

What can be written: learners and selectors that are dataclasses, with parameters that are plain data, arrays, feature
maps, families, ladders and ways to estimate rewards. When one is read, its class is looked up by name - in this
package, or in a module that the user has imported already - and must be a learner or selector; arrays are checked
before compiled code may see them.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import sys
from typing import Any

import numpy as np

from occamrl.contracts import Ints, Learner, Outcomes, Selector
from occamrl.errors import CheckpointError
from occamrl.families.aggregation import AggregationFamily
from occamrl.families.feature_layouts import shared_blocks
from occamrl.families.features import FeatureMap
from occamrl.families.finite import FiniteFamily
from occamrl.families.ladder import Ladder
from occamrl.families.linear import LinearFamily
from occamrl.families.linear_ladder import LinearLadder
from occamrl.kernels.features import DenseFeatures, SparseFeatures, TabularFeatures
from occamrl.learners.rewards import RewardsLinear, RewardsPerPair
from occamrl.registry import satisfies
from occamrl.runs.trees import Arrays, put_together, take_apart

_LAYOUTS: dict[str, type[Any]] = {kind.__name__: kind for kind in (DenseFeatures, SparseFeatures, TabularFeatures)}


class NotPortable(CheckpointError):
    """An algorithm with a part that cannot be written without pickle."""


def algorithm_to_tree(value: Any, arrays: Arrays) -> Any:
    """Return an algorithm, or a parameter of one, as JSON data; its arrays are put into ``arrays``."""
    match value:
        case FeatureMap():
            layout = {"kind": type(value.layout).__name__, "parts": [_tree(part, arrays) for part in value.layout]}
            sizes = {"states": value.states, "actions": value.actions, "dimension": value.dimension}
            shared = value.blocks.of if value.shares_blocks else None
            return {"features": layout, **sizes, "rewards": _tree(value.rewards, arrays), "of": _tree(shared, arrays)}
        case FiniteFamily():
            about = {"theta": _tree(value.theta, arrays), "reach": value.reach}
            return {"family": algorithm_to_tree(value.features, arrays), **about}
        case Ladder():
            about = {"level": _tree(value.level, arrays), "reach": value.reach}
            return {"ladder": algorithm_to_tree(value.family, arrays), **about}
        case LinearFamily():
            about = {"norm_bound": value.norm_bound, "basis": _tree(value.basis, arrays)}
            return {"linear": algorithm_to_tree(value.features, arrays), **about}
        case AggregationFamily():
            return {"aggregation": _tree(value.partition, arrays), "moves": _tree(value.moves, arrays)}
        case LinearLadder():
            return {"linear ladder": [algorithm_to_tree(rung, arrays) for rung in value.rungs]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [each.name for each in dataclasses.fields(value) if each.init]
        parts = {name: algorithm_to_tree(getattr(value, name), arrays) for name in fields}
        return {"algorithm": f"{type(value).__module__}:{type(value).__qualname__}", "fields": parts}
    return {"plain": _tree(value, arrays)}


def _tree(value: Any, arrays: Arrays) -> Any:
    try:
        return take_apart(value, arrays)
    except CheckpointError as error:
        raise NotPortable("algorithm", got=error.got, expected="parameters that are plain data or arrays") from error


def algorithm_from_tree(tree: Any, arrays: Arrays) -> Any:
    """Return the algorithm of a tree, every part made anew and checked."""
    match tree:
        case {"features": {"kind": str(kind), "parts": list(parts)}, "states": int(s), "actions": int(a)}:
            layout = _LAYOUTS[kind](*(put_together(part, arrays) for part in parts))
            rewards = put_together(tree["rewards"], arrays)
            of = put_together(tree["of"], arrays)
            require_sound_features(layout, s, a, tree["dimension"], rewards, of)
            shared = None if of is None else shared_blocks(of, np.diff(layout.outcomes.start))
            return FeatureMap._make(layout, s, a, tree["dimension"], rewards, shared)
        case {"family": family, "theta": theta}:
            parameters = np.asarray(put_together(theta, arrays))
            listed = FiniteFamily(parameters=parameters.T, features=algorithm_from_tree(family, arrays))
            listed.reach = _reach(tree.get("reach", 0.0))
            return listed
        case {"ladder": family, "level": level}:
            return _ladder(algorithm_from_tree(family, arrays), put_together(level, arrays), tree.get("reach"))
        case {"linear": features, "norm_bound": float(norm_bound), "basis": basis}:
            matrix = put_together(basis, arrays)
            made = LinearFamily(features=algorithm_from_tree(features, arrays), norm_bound=norm_bound, basis=matrix)
            made.basis = matrix  # it was orthonormal already: to the bit
            return made
        case {"aggregation": partition, "moves": moves}:
            return AggregationFamily(partition=put_together(partition, arrays), moves=put_together(moves, arrays))
        case {"linear ladder": list(rungs)}:
            return LinearLadder([algorithm_from_tree(rung, arrays) for rung in rungs])
        case {"algorithm": str(name), "fields": dict(fields)}:
            return _class(name)(**{key: algorithm_from_tree(part, arrays) for key, part in fields.items()})
        case {"plain": plain}:
            return put_together(plain, arrays)
    raise CheckpointError("algorithm", got="an entry of no known kind", expected="an algorithm written by this package")


def _reach(value: Any) -> float:
    if not (isinstance(value, float) and 0.0 <= value < math.inf):
        raise CheckpointError("reach", got=value, expected="a finite number >= 0")
    return value


def _ladder(family: FiniteFamily, level: Any, reach: Any) -> Ladder:
    sound = isinstance(level, np.ndarray) and level.dtype == np.int64 and level.shape == (family.size,)
    if not (sound and level[0] == 0 and set(np.diff(level).tolist()) <= {0, 1}):
        raise CheckpointError("ladder", got="levels that are not 0, ..., M - 1 in order", expected="a ladder's levels")
    made: Ladder = object.__new__(Ladder)
    made._set(family, level)
    if reach is not None:
        if not isinstance(reach, list) or len(reach) != made.classes:
            raise CheckpointError("reach", got=reach, expected=f"a list of {made.classes} numbers")
        made.reach = [_reach(value) for value in reach]
    return made


def _class(name: str) -> Any:
    module, _, qualified = name.partition(":")
    if module.startswith("occamrl."):
        found: Any = importlib.import_module(module)
    elif module in sys.modules:
        found = sys.modules[module]
    else:
        raise CheckpointError("algorithm", got=f"one of {module}", expected="a module that is imported already")
    for part in qualified.split("."):
        found = getattr(found, part, None)
    if found in (RewardsPerPair, RewardsLinear):
        return found
    sound = isinstance(found, type) and dataclasses.is_dataclass(found)
    if not sound or not (satisfies(found, Learner) or satisfies(found, Selector)):
        raise CheckpointError("algorithm", got=name, expected="the name of a learner or selector")
    return found


def require_sound_features(
    layout: Any, states: int, actions: int, dimension: int, rewards: Any, of: Any = None
) -> None:
    """Refuse arrays that compiled code would read beyond their ends."""
    try:
        outcomes = Outcomes(*layout.outcomes)
        size, pairs = outcomes.next_state.size, states * actions
        fine = _starts(outcomes.start, pairs, size, least=1) and _indices(outcomes.next_state, size, states)
        fine = fine and _floats(outcomes.bonus, (size,)) and (rewards is None or _floats(rewards, (size,)))
        if isinstance(layout, DenseFeatures):
            fine = fine and _floats(layout.phi, (size, dimension))
        elif isinstance(layout, SparseFeatures):
            entries = layout.entry.size
            fine = fine and _starts(layout.start, pairs, entries, least=0) and _floats(layout.entry, (entries,))
            fine = fine and _indices(layout.coordinate, entries, dimension)
            room = np.repeat(np.diff(outcomes.start), np.diff(layout.start))
            fine = fine and layout.outcome.dtype == np.int64 and layout.outcome.shape == (entries,)
            fine = fine and bool((layout.outcome >= 0).all() and (layout.outcome < room).all())
        elif of is None:
            fine = fine and dimension == size
        else:
            sizes = np.diff(outcomes.start)
            fine = fine and _indices(of, pairs, pairs) and bool((np.unique(of) == np.arange(of.max() + 1)).all())
            if fine:
                size_of_block = shared_blocks(of, sizes).size
                fine = bool((size_of_block[of] == sizes).all()) and dimension == int(size_of_block.sum())
    except (AttributeError, TypeError, ValueError):
        fine = False
    if not fine:
        raise CheckpointError("features", got="arrays that do not fit together", expected="a feature map's arrays")


def _starts(array: Ints, count: int, end: int, *, least: int) -> bool:
    if array.dtype != np.int64 or array.shape != (count + 1,):
        return False
    return bool(array[0] == 0 and array[-1] == end and (np.diff(array) >= least).all())


def _indices(array: Ints, size: int, bound: int) -> bool:
    return array.dtype == np.int64 and array.shape == (size,) and bool((array >= 0).all() and (array < bound).all())


def _floats(array: Any, shape: tuple[int, ...]) -> bool:
    return array.dtype == np.float64 and array.shape == shape and bool(np.isfinite(array).all())
