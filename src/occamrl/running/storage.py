"""One file for everything: arrays and JSON in a zip archive, written whole or not at all, read with suspicion.

A *document* is an NPZ file of plain arrays, one of which is a JSON text that refers to the others.
The archive's comment is the SHA-256 of all bytes before it. It is written under a temporary name,
synced and renamed. Nothing is ever pickled: a file holds data, never code. Classes are looked up by
name, in this package or in modules that are imported already, and must be learners, rules, families
or what these are made of.

A result (:func:`save`, :func:`load`) is a document: the checkpoint of a run or of a cell, and a
saved agent.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import sys
import uuid
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from occamrl.errors import CheckpointError, RecordError, StorageError, as_path
from occamrl.models.families import Family
from occamrl.models.features import PerProblem
from occamrl.models.ladder import Ladder
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Controller, Learner, Problem, Rule, System
from occamrl.registry import satisfies
from occamrl.running.identity import changes, identity, identity_of_problem, name_of, stored_fields
from occamrl.running.result import Blocks, Result, known_by_ladder

FORMAT = 8
_DIGEST = 64  # hexadecimal digits at the end of a document
Arrays = dict[str, Any]


def sha256(content: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all; what was there before stays until then."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.partial")
    try:
        try:
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(path, error) from error


def make_folder(path: Path) -> None:
    """Make a folder, and those it lies in, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(path, error) from error


def canonical(data: Any) -> bytes:
    """Return the one JSON text of plain data: sorted keys, no white space, no NaN."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def write_sealed(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON object together with the SHA-256 of its canonical text."""
    write_whole(path, canonical({**document, "digest": sha256(canonical(document))}) + b"\n")


def read_sealed(path: Path) -> dict[str, Any]:
    """Return a sealed JSON object; a byte that is not as it was written is an error that names the file."""
    try:
        content = path.read_bytes()
        document: dict[str, Any] = json.loads(content)
        sealed = canonical(document) + b"\n"
        if document.pop("digest") != sha256(canonical(document)) or content != sealed:
            raise ValueError("its digest does not match its content")
    except Exception as error:  # whatever a damaged file leads to
        got = f"{type(error).__name__}: {error}"
        raise RecordError(
            path, got=got, expected="a file as it was written; it is left in place"
        ) from error
    return document


def write_document(path: Path, document: dict[str, Any], arrays: Arrays) -> None:
    """Write a JSON document and the arrays that it refers to as one file with a digest of itself."""
    text = np.frombuffer(json.dumps({"format": FORMAT, **document}).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, document=text, **arrays)
    content = buffer.getvalue()[:-2] + _DIGEST.to_bytes(
        2, "little"
    )  # the length of the comment, which is empty so far
    write_whole(path, content + sha256(content).encode())


def read_document(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Return what :func:`write_document` wrote; anything else is refused by the file's name and left in place."""
    try:
        content = path.read_bytes()
        if sha256(content[:-_DIGEST]).encode() != content[-_DIGEST:]:
            raise ValueError("its digest does not match its content")
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        document: dict[str, Any] = json.loads(arrays.pop("document").tobytes())
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}; this version reads format {FORMAT}")
    except Exception as error:  # whatever a damaged or foreign file leads to, or none
        got, expected = (
            f"{type(error).__name__}: {error}",
            "a whole file written by save; it is left in place",
        )
        raise CheckpointError(path, got=got, expected=expected) from error
    return document, arrays


class Writer:
    """Turns trees of plain data, arrays, NamedTuples and algorithms into JSON, collecting arrays and objects."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self.objects: list[Any] = []  # each once, after those that it refers to
        self._seen: dict[
            int, tuple[int, Any]
        ] = {}  # the objects are kept alive, so that ids stay theirs

    def put(self, tree: Any) -> Any:
        """Return the JSON of a tree."""
        if tree is None or isinstance(tree, (bool, int, float, str)):
            return (
                tree.item() if isinstance(tree, np.generic) else tree
            )  # np.float64 is a float, and equals it
        if isinstance(tree, (np.ndarray, np.generic)) and tree.dtype.kind in "biufcSU":
            name = f"a{len(self.arrays)}"
            self.arrays[name] = np.asarray(tree)
            return {"array" if isinstance(tree, np.ndarray) else "scalar": name}
        if isinstance(tree, list):
            return [self.put(part) for part in tree]
        if type(tree) is tuple:
            return {"tuple": [self.put(part) for part in tree]}
        if isinstance(tree, dict):
            return {"dict": [[self.put(key), self.put(part)] for key, part in tree.items()]}
        if not may_be_stored(type(tree)):
            raise CheckpointError(
                "save", got=name_of(type(tree)), expected="arrays, plain data and algorithms"
            )
        if id(tree) not in self._seen:
            inside = {name: self.put(part) for name, part in stored_fields(tree).items()}
            self.objects.append({"kind": name_of(type(tree)), "parts": inside})
            self._seen[id(tree)] = len(self.objects) - 1, tree
        return {"object": self._seen[id(tree)][0]}


def may_be_stored(kind: Any) -> bool:
    """Say whether objects of a class may be part of a file: algorithms, and what they and their states are made of."""
    own = kind.__module__.startswith("occamrl.") and not issubclass(kind, BaseException)
    named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return (
        own
        or named
        or issubclass(kind, (Family, sp.csr_array))
        or satisfies(kind, Learner)
        or satisfies(kind, Rule)
    )


class Reader:
    """Makes trees anew from their JSON."""

    def __init__(self, arrays: Arrays, objects: list[Any]) -> None:
        self.arrays, self.objects = arrays, objects
        self._made: dict[int, Any] = {}

    def get(self, tree: Any) -> Any:
        """Return what a JSON tree stands for."""
        match tree:
            case list():
                return [self.get(part) for part in tree]
            case {"array": str(name)}:
                return self.arrays.pop(name)  # no two parts share their memory
            case {"scalar": str(name)}:
                return self.arrays.pop(name)[()]
            case {"tuple": list(parts)}:
                return tuple(self.get(part) for part in parts)
            case {"dict": list(parts)}:
                return {self.get(key): self.get(part) for key, part in parts}
            case {"object": int(number)}:
                if number not in self._made:
                    self._made[number] = self._object(**self.objects[number])
                return self._made[number]
            case None | bool() | int() | float() | str():
                return tree
        raise CheckpointError("tree", got=f"{tree!r:.80}", expected="what save writes")

    def found(self, name: str) -> Any:
        """Return the class called ``module:Class``, in this package or in a module that is imported already."""
        module, _, qualified = name.partition(":")
        found: Any = (
            importlib.import_module(module)
            if module.startswith("occamrl.")
            else sys.modules.get(module)
        )
        for part in qualified.split("."):
            found = getattr(found, part, None)
        if not isinstance(found, type):
            expected = (
                f"a class that is there: import {module} first, or give the same agent to load"
            )
            raise CheckpointError("class", got=name, expected=expected)
        return found

    def _object(self, kind: str, parts: dict[str, Any]) -> Any:
        found = self.found(kind)
        if not may_be_stored(found):
            raise CheckpointError("class", got=kind, expected="an algorithm, or a part of one")
        inside = {key: self.get(part) for key, part in parts.items()}
        if is_dataclass(found) or issubclass(found, (tuple, PerProblem)):
            return found(**inside)
        if issubclass(found, sp.csr_array):
            return found(
                (inside["data"], inside["indices"], inside["indptr"]), shape=inside["shape"]
            )
        if found is Ladder and "family" in inside:
            return Ladder.of_levels(**inside)
        made = found.__new__(found)
        vars(made).update(inside)
        return made


_COLUMNS: dict[str, Any] = {"episodes": np.int64, "regret": np.float64, "returns": np.float64}
_COLUMNS |= dict.fromkeys(("pessimistic", "plans", "phase"), np.int64)


def save(result: Result, path: str | Path) -> None:
    """Write everything needed to go on from ``result`` to one file, whole or not at all."""
    writer = Writer()
    try:
        agent: Any = writer.put(result.agent)
    except CheckpointError:  # it has a part that no file can hold: load needs the agent itself
        writer, agent = Writer(), None
    parts = {
        name: part
        for name, part in stored_fields(result).items()
        if name not in ("agent", "blocks")
    }
    # A model's names may be anything, and a system holds functions: the agent itself has them.
    if isinstance(result.known, System) or result.known is known_by_ladder(result.agent):
        parts["known"] = None
    columns = {
        name: np.array(getattr(result.blocks, name), dtype=kind) for name, kind in _COLUMNS.items()
    }
    document = {
        "identity": identity(result.agent),
        "agent": agent,
        "result": writer.put(parts),
        "blocks": writer.put({**columns, "phases": result.blocks.phases}),
        "objects": writer.objects,
    }
    write_document(as_path("path", path), document, writer.arrays)


def load(
    path: str | Path,
    agent: Learner | Controller | None = None,
    problem: FiniteMDP | Problem | None = None,
) -> Result:
    """Return the result in a file, to continue from or to look at.

    ``agent`` takes the place of the algorithm in the file and must be the same; it is needed where
    no file can hold it. ``problem`` must be the one that was simulated. A CheckpointError names the
    file if it is damaged, foreign, or of another agent or problem; it is left in place.
    """
    place, mdp = as_path("path", path), None if problem is None else as_mdp(problem)
    document, arrays = read_document(place)
    try:
        reader = Reader(arrays, document["objects"])
        parts, columns = reader.get(document["result"]), reader.get(document["blocks"])
        if mdp is not None and parts["problem"] != mdp.fingerprint:
            before = (
                mdp.known if parts["known"] is None else parts["known"]
            )  # the agent's model has it
            changed = changes(identity_of_problem(before), identity_of_problem(mdp.known))
            got = f"another one ({changed or 'problem.transition has other numbers'})"
            raise CheckpointError(
                "problem",
                got=got,
                expected="the problem that wrote the file; or another file or folder",
            )
        if agent is None and document["agent"] is None:
            got = f"a {parts['label']} with a part that no file can hold"
            raise CheckpointError("agent", got=got, expected="the same agent, given to load")
        played: Any = reader.get(document["agent"]) if agent is None else agent
        if changed := changes(document["identity"], identity(played)):
            expected = "the agent, and the code, that wrote the file; or another file or folder, or name of the agent"
            raise CheckpointError("agent", got=f"another one ({changed})", expected=expected)
        if parts["known"] is None:
            parts["known"] = known_by_ladder(played)
        blocks = Blocks(
            **{name: columns[name].tolist() for name in _COLUMNS}, phases=columns["phases"]
        )
        blocks.total_episodes = sum(blocks.episodes)
        return Result(**parts, agent=played, blocks=blocks)
    except CheckpointError as error:
        raise CheckpointError(
            place, got=f"{error.where}: {error.got}", expected=error.expected
        ) from None
    except Exception as error:  # whatever a foreign file leads to
        raise CheckpointError(
            place, got=f"{type(error).__name__}: {error}", expected="what save wrote"
        ) from error


def write_objects(path: Path, *objects: Any) -> list[str]:
    """Write algorithms and problems for another process; return the modules of their classes outside this package."""
    writer = Writer()
    document = {"tree": [writer.put(each) for each in objects], "objects": writer.objects}
    write_document(path, document, writer.arrays)
    modules = set()
    for kind in {
        each["kind"] for each in writer.objects if not each["kind"].startswith("occamrl.")
    }:
        module = kind.partition(":")[0]
        if (
            "<locals>" in kind
            or module == "__main__"
            or getattr(sys.modules[module], "__spec__", None) is None
        ):
            raise CheckpointError(
                "agent", got=kind, expected="a class of a module that another process can import"
            )
        modules.add(module)
    return sorted(modules)


def read_objects(path: Path) -> list[Any]:
    """Return what :func:`write_objects` wrote."""
    document, arrays = read_document(path)
    found: list[Any] = Reader(arrays, document["objects"]).get(document["tree"])
    return found
