"""One format for the result of a run: a document (:mod:`occamrl.running.files`) of arrays and plain data.

A result (:func:`save`, :func:`load`) is the checkpoint of a run or of a cell, and a saved agent. Its document refers to
*trees* of plain data, NamedTuples and arrays, such as the state of a learner, and of algorithms and their parts
(features, families, ladders) by their parameters. Classes are looked up by name - in this package, or in a module that
the user has imported already - and must be what they claim to be; arrays are checked before compiled code may see them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from occamrl._core.features import DenseFeatures, SparseFeatures, TabularFeatures
from occamrl.errors import CheckpointError, as_path, require_integer, require_number
from occamrl.learners.rewards import RewardsLinear, RewardsPerPair
from occamrl.models.features import LARGEST_FEATURE, FeatureMap, shared_blocks
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.models.linear import AggregationFamily, LinearFamily
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import (
    Agent,
    EpisodeLearner,
    Ints,
    Known,
    Learner,
    Problem,
    Rule,
    RuledBases,
    Selector,
    require_outcomes,
)
from occamrl.registry import satisfies
from occamrl.running.files import FORMAT, Arrays, read_document, write_document
from occamrl.running.phases import PhaseWalk
from occamrl.running.result import EnvironmentInfo, Recorder, Result


def take_apart(tree: Any, arrays: Arrays, whole: bool = True) -> Any:
    """Return the JSON skeleton of a tree; its arrays are put into ``arrays`` under numbers.

    What no file can hold is refused, or, unless ``whole``, described: by its fingerprint or by its fields.
    """

    def inner(part: Any) -> Any:
        return take_apart(part, arrays, whole)

    known = None if whole else getattr(tree, "fingerprint", None)
    if isinstance(known, str):
        return {"object": _name(type(tree)), "fingerprint": known}
    if isinstance(tree, np.ndarray):
        arrays[f"a{len(arrays)}"] = tree
        return {"array": f"a{len(arrays) - 1}"}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return {"named": _name(type(tree)), "parts": [inner(part) for part in tree]}
    if isinstance(tree, (list, tuple)):
        return {type(tree).__name__: [inner(part) for part in tree]}
    if isinstance(tree, dict):
        if whole and not all(isinstance(key, str) for key in tree):
            raise CheckpointError("memory", got="keys that are not strings", expected="string keys")
        return {"dict": {key if whole else repr(key): inner(part) for key, part in tree.items()}}
    if isinstance(tree, np.generic):
        return inner(np.asarray(tree)) | {"scalar": True}
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return {"value": tree}
    kind, parameters = _parameters(tree)
    if kind is None and whole:
        raise CheckpointError("memory", got=type(tree).__name__, expected="arrays, NamedTuples and plain data")
    if kind is None:
        kind, names = type(tree), getattr(tree, "__dataclass_fields__", getattr(tree, "__dict__", {}))
        parameters = {field: getattr(tree, field) for field in names if not field.startswith("_")}
    return {"object": _name(kind), "fields": {field: inner(part) for field, part in parameters.items()}}


def _name(kind: type[Any]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def fingerprint(agent: object) -> str:
    """Return a hash of an agent's class and of all its parameters."""
    arrays: Arrays = {}
    skeleton = take_apart(agent, arrays, whole=False)
    digest = hashlib.sha256(json.dumps(skeleton, sort_keys=True).encode())
    for array in arrays.values():
        digest.update(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def put_together(skeleton: Any, arrays: Arrays) -> Any:
    """Return the tree of a skeleton. NamedTuple classes are looked up by name and must be what they claim to be."""
    match skeleton:
        case {"array": str(name), "scalar": True}:
            return arrays.pop(name)[()]
        case {"array": str(name)}:
            return arrays.pop(name)  # no two parts share their memory
        case {"named": str(name), "parts": list(parts)}:
            kind = _found(name)
            if not (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")):
                raise CheckpointError("checkpoint", got=name, expected="the name of a NamedTuple class")
            return kind(*(put_together(part, arrays) for part in parts))
        case {"list": list(parts)}:
            return [put_together(part, arrays) for part in parts]
        case {"tuple": list(parts)}:
            return tuple(put_together(part, arrays) for part in parts)
        case {"dict": dict(parts)}:
            return {key: put_together(part, arrays) for key, part in parts.items()}
        case {"object": str(name), "fields": dict(fields)}:
            return _made(name, {key: put_together(part, arrays) for key, part in fields.items()})
        case {"value": value} if value is None or isinstance(value, (bool, int, float, str)):
            return value
    raise CheckpointError("checkpoint", got="an entry of no known kind", expected="a tree written by this package")


def _found(name: str) -> Any:
    """Return what is called ``module:qualified.name``, in this package or in a module that is imported already."""
    module, _, qualified = name.partition(":")
    if module in sys.modules:
        found: Any = sys.modules[module]
    elif module.startswith("occamrl."):
        found = importlib.import_module(module)
    else:
        raise CheckpointError("class", got=f"one of {module}", expected="one of a module that is imported already")
    for part in qualified.split("."):
        found = getattr(found, part, None)
    return found


_PARTS: dict[type[Any], tuple[str, ...]] = {
    FiniteFamily: ("theta", "features", "reach"),  # and a cover, once its kernels are computed
    LinearFamily: ("features", "norm_bound", "basis"),
    AggregationFamily: ("partition", "moves"),
}
_PROTOCOLS = (Learner, EpisodeLearner, RuledBases, Rule, Selector)


def _parameters(value: Any) -> tuple[Any, dict[str, Any]]:
    """Return the class of an algorithm, or of a part of one, and what it is made of; (None, {}) for anything else."""
    kind: Any = next((each for each in (FeatureMap, Ladder, *_PARTS) if isinstance(value, each)), type(value))
    if kind is FeatureMap:
        names = ("layout", "states", "actions", "dimension", "rewards")
        return kind, {**{name: getattr(value, name) for name in names}, "of": value.shared and value.shared.of}
    if kind is Ladder:
        parts = ("family", "level", "reach", "names") if value.finite else ("rungs", "names")
        return kind, {name: getattr(value, name) for name in parts}
    if kind in _PARTS:
        return kind, {name: getattr(value, name) for name in _PARTS[kind]}
    if not _is_algorithm(kind):
        return None, {}
    return kind, {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.init}


def _is_algorithm(kind: Any) -> bool:
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        return False
    return kind in (Known, RewardsPerPair, RewardsLinear) or any(satisfies(kind, each) for each in _PROTOCOLS)


def _made(name: str, parts: dict[str, Any]) -> Any:
    """Return the algorithm, or the part of one, that is made of these parts, checked."""
    kind = _found(name)
    if kind is FeatureMap:
        of, layout = parts["of"], parts["layout"]
        _require_sound_features(**parts)
        shared = None if of is None else shared_blocks(of, np.diff(layout.outcomes.start))
        return FeatureMap._make(layout, parts["states"], parts["dimension"], parts["rewards"], shared)
    if kind is FiniteFamily:
        if not _floats(parts["theta"], np.shape(parts["theta"])):
            raise CheckpointError("theta", got="other numbers", expected="finite ones of 64 bits")
        listed = FiniteFamily(parameters=parts["theta"].T, features=parts["features"])
        listed.reach = require_number("reach", parts["reach"], 0.0, math.inf)
        return listed
    if kind is Ladder and "family" in parts:
        return _ladder(**parts)
    if kind not in (Ladder, LinearFamily, AggregationFamily) and not _is_algorithm(kind):
        raise CheckpointError("algorithm", got=name, expected="the name of a learner or selector")
    made = kind(**parts)
    if kind is LinearFamily:
        basis = parts["basis"]
        if not _floats(basis, made.basis.shape) or not np.allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-9):
            raise CheckpointError("basis", got="other numbers", expected="orthonormal columns")
        made.basis = np.ascontiguousarray(basis)  # it was orthonormal already: to the bit
    return made


def _ladder(family: FiniteFamily, level: Any, reach: Any, names: Any) -> Ladder:
    sound = isinstance(level, np.ndarray) and level.dtype == np.int64 and level.shape == (family.size,)
    if not (sound and level[0] == 0 and set(np.diff(level).tolist()) <= {0, 1}):
        raise CheckpointError("ladder", got="levels that are not 0, ..., M - 1 in order", expected="a ladder's levels")
    if reach is not None and (not isinstance(reach, list) or len(reach) != int(level[-1]) + 1):
        raise CheckpointError("reach", got=reach, expected=f"a list of {int(level[-1]) + 1} numbers")
    checked = None if reach is None else [require_number("reach", value, 0.0, math.inf) for value in reach]
    return Ladder.of_levels(family, level, checked, names)


def _require_sound_features(layout: Any, states: int, actions: int, dimension: int, rewards: Any, of: Any) -> None:
    """Refuse arrays that compiled code would read beyond their ends."""
    try:
        outcomes = layout.outcomes
        size, sizes = outcomes.next_state.size, np.diff(outcomes.start)
        require_outcomes("outcomes", outcomes, states, actions)
        fine = bool((sizes > 0).all())
        fine = fine and (rewards is None or _floats(rewards, (size,))) and _sound_layout(layout, sizes, dimension, of)
    except (AttributeError, TypeError, ValueError):
        fine = False
    if not fine:
        raise CheckpointError("features", got="arrays that do not fit together", expected="a feature map's arrays")


def _sound_layout(layout: Any, sizes: Ints, dimension: int, of: Any) -> bool:
    """Say whether features fit outcomes, ``sizes`` [S*A] of them, that are sound."""
    match layout:
        case DenseFeatures():
            return _floats(layout.phi, (int(sizes.sum()), dimension))
        case SparseFeatures():
            entries, start = layout.entry.size, layout.start
            if not (_indices(start, sizes.size + 1, entries + 1) and _floats(layout.entry, (entries,))):
                return False
            if start[0] != 0 or start[-1] != entries or (np.diff(start) < 0).any():
                return False
            outcomes_there = np.repeat(sizes, np.diff(layout.start))
            return _indices(layout.coordinate, entries, dimension) and _indices(layout.outcome, entries, outcomes_there)
        case TabularFeatures() if of is None:
            return dimension == int(sizes.sum())
        case TabularFeatures():
            if not (_indices(of, sizes.size, sizes.size) and np.unique(of).size == of.max() + 1):
                return False
            blocks = shared_blocks(of, sizes).size
            return bool((blocks[of] == sizes).all()) and dimension == int(blocks.sum())
    return False


def _indices(array: Ints, size: int, bound: int | Ints) -> bool:
    return array.dtype == np.int64 and array.shape == (size,) and bool((array >= 0).all() and (array < bound).all())


def _floats(array: Any, shape: tuple[int, ...]) -> bool:
    fine = isinstance(array, np.ndarray) and array.dtype == np.float64 and array.shape == shape
    return fine and bool((np.abs(array) <= LARGEST_FEATURE).all())


_SMALL = 2**20  # numbers that are made without a second thought
_TOO_MUCH = (RecursionError, MemoryError)
_SCALARS: dict[str, type[Any]] = {
    "label": str,
    "problem": str,
    "seed": int,
    "plans": int,
    "pessimistic_episodes": int,
    "steps": int,
    "start": int,
    "wall_time": float,
}


def save(result: Result, path: str | Path, *, tag: str = "") -> None:
    """Write everything needed to go on from ``result``; ``tag`` says what it belongs to, beyond agent and problem."""
    arrays: Arrays = {}
    try:
        algorithm = take_apart(result.agent, arrays)
    except CheckpointError:  # it has a part that cannot be written without pickle
        algorithm, arrays = None, {}
    info = result.environment
    document = {
        "format": FORMAT,
        "tag": tag,
        **{name: getattr(result, name) for name in _SCALARS},
        "cut_short": list(result.cut_short),
        "environment": None if info is None else info.to_plain(),
        "agent": fingerprint(result.agent),
        "algorithm": algorithm,
        "known": take_apart(result.known, arrays),
        "tree": take_apart({"walk": result.walk.to_tree(), "recorder": result.recorder.to_tree()}, arrays),
    }
    write_document(as_path("path", path), document, arrays)


def load(
    path: str | Path, agent: Agent | None = None, mdp: FiniteMDP | Problem | None = None, *, tag: str = ""
) -> Result:
    """Return the result in a file, to continue from or to look at.

    Parameters
    ----------
    path : path
    agent : learner or selector, optional
        Takes the place of the algorithm in the file and must be the same. Needed where no file can hold it.
    mdp : FiniteMDP, or a problem that has one, optional
        Must be the problem that was simulated.
    tag : str
        Must be that of the file.

    Raises
    ------
    CheckpointError
        Naming the file: truncated, changed, pickled, or of another agent, problem or tag. Nothing in it is executed.
    FileNotFoundError
    """
    path, problem = as_path("path", path), None if mdp is None else as_mdp(mdp)
    try:
        document, arrays = read_document(path)
        if problem is not None and document["problem"] != problem.fingerprint:
            raise CheckpointError(f"{path}: problem", got=document["problem"], expected=problem.fingerprint)
        if agent is not None and document["agent"] != fingerprint(agent):
            got = f"one of another {document['label']}"
            raise CheckpointError(f"{path}: agent", got=got, expected=repr(agent)[:80])
        if document["tag"] != tag:
            raise CheckpointError(f"{path}: tag", got=document["tag"], expected=tag)
        if agent is None and document["algorithm"] is None:
            got = f"a {document['label']} with parameters that no file can hold"
            raise CheckpointError(str(path), got=got, expected="the same algorithm, given to load")
        algorithm = put_together(document["algorithm"], arrays) if agent is None else agent
        given = sum(array.size for array in arrays.values())
        known = put_together(document["known"], arrays) if problem is None else problem.known
        if problem is None and known.horizon * known.states > max(_SMALL, given):  # a state is at least that large
            got = f"{known.horizon:,} steps of {known.states:,} states"
            raise CheckpointError(f"{path}: known", got=got, expected=f"no more than {given:,} numbers have room for")
        require_integer(f"{path}: start", document["start"], 0, CheckpointError, most=known.states - 1)
        tree = put_together(document["tree"], arrays)
        info, played = document["environment"], sum(row["episodes"] for row in tree["walk"]["rows"])
        if tree["recorder"]["episodes"] != played:
            raise CheckpointError(f"{path}: recorder.episodes", got=tree["recorder"]["episodes"], expected=played)
        about = None if info is None else EnvironmentInfo.from_plain(info)
        if about is not None and (about.observation.size > known.states or about.action.size < known.actions):
            got = f"{about.observation.size:,} observations, {about.action.size:,} actions"
            raise CheckpointError(f"{path}: environment", got=got, expected="those of the problem that is known")
        return Result(
            **{name: kind(document[name]) for name, kind in _SCALARS.items()},
            cut_short=tuple(int(episode) for episode in document["cut_short"]),
            environment=about,
            agent=algorithm,
            walk=PhaseWalk.from_tree(algorithm, known, tree["walk"]),
            recorder=Recorder.from_tree(tree["recorder"]),
        )
    except (LookupError, TypeError, ValueError, AttributeError, ImportError, ArithmeticError, *_TOO_MUCH) as error:
        if isinstance(error, CheckpointError) and str(path) in str(error):
            raise
        raise CheckpointError(str(path), got=f"{type(error).__name__}: {error}", expected="what save wrote") from error
