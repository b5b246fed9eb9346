"""One file for everything: arrays and JSON in a zip archive, written whole, read with suspicion.

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
import math
import sys
import zipfile
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamrl.errors import CheckpointError, RecordError, as_path
from occamrl.files import Entry
from occamrl.models.families import Family
from occamrl.models.features import PerProblem
from occamrl.models.ladder import Ladder
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Controller, Learner, Problem, Rule, System
from occamrl.registry import satisfies
from occamrl.running.identity import changes, identity, identity_of_problem, name_of, stored_fields
from occamrl.running.result import Blocks, Result, known_by_ladder

FORMAT = 9
_DIGEST = 64  # hexadecimal digits at the end of a document
Json = Any  # what JSON can hold
Tree = Any  # plain data, arrays, NamedTuples and algorithms, inside of each other
Arrays = dict[str, NDArray[Any]]


def sha256(content: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


# Files --------------------------------------------------------------------------------------------


def canonical(data: Json) -> bytes:
    """Return the one JSON text of plain data: sorted keys, no white space, no NaN."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def write_sealed(file: Entry, document: dict[str, Json]) -> None:
    """Write a JSON object together with the SHA-256 of its canonical text."""
    file.write(canonical({**document, "digest": sha256(canonical(document))}) + b"\n")


def read_sealed(file: Entry) -> dict[str, Json]:
    """Return a sealed JSON object; a byte that is not as it was written is an error."""
    try:
        content = file.read()
        document: dict[str, Json] = json.loads(content)
        sealed = canonical(document) + b"\n"
        if document.pop("digest") != sha256(canonical(document)) or content != sealed:
            raise ValueError("its digest does not match its content")
    except Exception as error:  # whatever a damaged file leads to
        got = f"{type(error).__name__}: {error}"
        expected = "a file as it was written; it is left in place"
        raise RecordError(file.path, got=got, expected=expected) from error
    return document


def write_document(file: Entry, document: dict[str, Json], arrays: Arrays) -> None:
    """Write a JSON document and the arrays that it refers to, with a digest of the file itself."""
    text = json.dumps({"format": FORMAT, **document}).encode()
    buffer = io.BytesIO()
    arrays = {"document": np.frombuffer(text, dtype=np.uint8), **arrays}
    np.savez(buffer, allow_pickle=False, **arrays)
    # An archive ends with the length of its comment, which is empty so far, and the comment.
    content = buffer.getvalue()[:-2] + _DIGEST.to_bytes(2, "little")
    file.write(content + sha256(content).encode())


def read_document(file: Entry) -> tuple[dict[str, Json], Arrays]:
    """Return what :func:`write_document` wrote; anything else is refused by the file's name."""
    try:
        content = file.read()
        if sha256(content[:-_DIGEST]).encode() != content[-_DIGEST:]:
            raise ValueError("its digest does not match its content")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            arrays = {}
            for member in archive.infolist():
                arrays[member.filename.removesuffix(".npy")] = read_array(archive, member)
        document: dict[str, Json] = json.loads(arrays.pop("document").tobytes())
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}; this version reads format {FORMAT}")
    except Exception as error:  # whatever a damaged or foreign file leads to, or none
        got = f"{type(error).__name__}: {error}"
        expected = "a whole file written by save; it is left in place"
        raise CheckpointError(file.path, got=got, expected=expected) from error
    return document, arrays


def read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Return an array of an archive; it takes no more memory than it has bytes in the file.

    Members are not compressed, and each has as many bytes as the shape in its header says.
    """
    if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
        raise ValueError(f"{member.filename} is compressed")
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"{member.filename} has the header of another version")
        shape, fortran_order, kind = np.lib.format.read_array_header_1_0(stream)
        content = stream.read()
    if kind.hasobject:
        raise ValueError(f"{member.filename} holds objects")
    if math.prod(shape) * kind.itemsize != len(content):
        raise ValueError(f"{member.filename} does not have the size that it says")
    order: Literal["C", "F"] = "F" if fortran_order else "C"
    return np.ndarray(shape, kind, content, order=order).copy(order=order)


# Objects ------------------------------------------------------------------------------------------


class Writer:
    """Turns trees into JSON, collecting arrays and objects."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self.objects: list[Json] = []  # each once, after those that it refers to
        self._numbers: dict[int, int] = {}  # of objects, by their ids
        self._alive: list[object] = []  # the objects, so that nobody else gets their ids

    def put(self, tree: Tree) -> Json:
        """Return the JSON of a tree."""
        if tree is None or isinstance(tree, (bool, int, float, str)):
            # np.float64 is a float, and equals it.
            return tree.item() if isinstance(tree, np.generic) else tree
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
            expected = "arrays, plain data and algorithms"
            raise CheckpointError("save", got=name_of(type(tree)), expected=expected)
        if id(tree) not in self._numbers:
            parts = {name: self.put(part) for name, part in stored_fields(tree).items()}
            self._numbers[id(tree)] = len(self.objects)
            self._alive.append(tree)
            self.objects.append({"kind": name_of(type(tree)), "parts": parts})
        return {"object": self._numbers[id(tree)]}


def may_be_stored(kind: type) -> bool:
    """Say whether objects of a class may be part of a file.

    Algorithms may, and what they and their states are made of.
    """
    if kind.__module__.startswith("occamrl."):
        return not issubclass(kind, BaseException)
    if issubclass(kind, tuple):
        return hasattr(kind, "_fields")  # a NamedTuple
    if issubclass(kind, (Family, sp.csr_array)):
        return True
    return satisfies(kind, Learner) or satisfies(kind, Rule)


class Reader:
    """Makes trees anew from their JSON."""

    def __init__(self, arrays: Arrays, objects: list[Json]) -> None:
        self.arrays = arrays
        self.objects = objects
        self._made: dict[int, Tree] = {}

    def get(self, tree: Json) -> Tree:
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

    def _object(self, kind: str, parts: dict[str, Json]) -> Tree:
        cls = stored_class(kind)
        fields = {name: self.get(part) for name, part in parts.items()}
        if is_dataclass(cls) or issubclass(cls, (tuple, PerProblem)):
            return cls(**fields)
        if issubclass(cls, sp.csr_array):
            arrays = (fields["data"], fields["indices"], fields["indptr"])
            return cls(arrays, shape=fields["shape"])
        if cls is Ladder and "family" in fields:
            return Ladder.of_levels(**fields)
        instance = object.__new__(cls)
        vars(instance).update(fields)
        return instance


def stored_class(name: str) -> type[Any]:
    """Return the class called ``module:Class``.

    In this package or in a module that is imported already: a file is no reason to run code.
    """
    module, _, qualified = name.partition(":")
    if module.startswith("occamrl."):
        importlib.import_module(module)
    part: object = sys.modules.get(module)
    for step in qualified.split("."):
        part = getattr(part, step, None)
    if not isinstance(part, type):
        expected = f"a class that is there: import {module} first, or give the same agent to load"
        raise CheckpointError("class", got=name, expected=expected)
    if not may_be_stored(part):
        raise CheckpointError("class", got=name, expected="an algorithm, or a part of one")
    return part


# Results ------------------------------------------------------------------------------------------

_ANOTHER = "or another file or folder"
_COLUMNS = {
    "episodes": np.int64,
    "regret": np.float64,
    "returns": np.float64,
    "pessimistic": np.int64,
    "plans": np.int64,
    "phase": np.int64,
}


def save(result: Result, path: str | Path) -> None:
    """Write everything needed to go on from ``result`` to one file, whole or not at all."""
    save_to(Entry.of(as_path("path", path)), result)


def save_to(file: Entry, result: Result) -> None:
    """Write a result to a file in a folder."""
    writer = Writer()
    try:
        agent = writer.put(result.agent)
    except CheckpointError:  # it has a part that no file can hold: load needs the agent itself
        writer = Writer()
        agent = None
    fields = stored_fields(result)
    del fields["agent"]
    blocks = vars(fields.pop("blocks"))
    # A model's names may be anything, and a system holds functions: the agent itself has them.
    if isinstance(result.known, System) or result.known is known_by_ladder(result.agent):
        fields["known"] = None
    columns: dict[str, Tree] = {}
    for name, kind in _COLUMNS.items():
        columns[name] = np.array(blocks[name], dtype=kind)
    columns["phases"] = blocks["phases"]
    document = {
        "identity": identity(result.agent),
        "agent": agent,
        "result": writer.put(fields),
        "blocks": writer.put(columns),
        "objects": writer.objects,
    }
    write_document(file, document, writer.arrays)


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
    mdp = None if problem is None else as_mdp(problem)
    return load_from(Entry.of(as_path("path", path)), agent, mdp)


def load_from(
    file: Entry, agent: Learner | Controller | None = None, mdp: FiniteMDP | None = None
) -> Result:
    """Return the result in a file of a folder."""
    document, arrays = read_document(file)
    try:
        return _result_of(document, arrays, agent, mdp)
    except CheckpointError as error:
        got = f"{error.where}: {error.got}"
        raise CheckpointError(file.path, got=got, expected=error.expected) from None
    except Exception as error:  # whatever a foreign file leads to
        got = f"{type(error).__name__}: {error}"
        raise CheckpointError(file.path, got=got, expected="what save wrote") from error


def _result_of(
    document: dict[str, Json],
    arrays: Arrays,
    agent: Learner | Controller | None,
    mdp: FiniteMDP | None,
) -> Result:
    reader = Reader(arrays, document["objects"])
    fields = reader.get(document["result"])
    columns = reader.get(document["blocks"])
    if mdp is not None and fields["problem"] != mdp.fingerprint:
        now = identity_of_problem(mdp.known)
        changed = ""
        if fields["known"] is not None:
            changed = changes(identity_of_problem(fields["known"]), now)
        got = f"another one ({changed or 'problem.transition has other numbers'})"
        expected = f"the problem that wrote the file; {_ANOTHER}"
        raise CheckpointError("problem", got=got, expected=expected)
    if agent is None:
        if document["agent"] is None:
            got = f"a {fields['label']} with a part that no file can hold"
            raise CheckpointError("agent", got=got, expected="the same agent, given to load")
        agent = reader.get(document["agent"])
    changed = changes(document["identity"], identity(agent))
    if changed:
        expected = f"the agent, and the code, that wrote the file; {_ANOTHER}, or name of the agent"
        raise CheckpointError("agent", got=f"another one ({changed})", expected=expected)
    if fields["known"] is None:
        fields["known"] = known_by_ladder(agent)
    lists = {name: columns[name].tolist() for name in _COLUMNS}
    blocks = Blocks(**lists, phases=columns["phases"], total_episodes=sum(lists["episodes"]))
    return Result(**fields, agent=agent, blocks=blocks)


# Objects for another process ----------------------------------------------------------------------


def write_objects(file: Entry, *objects: Tree) -> list[str]:
    """Write algorithms and problems for another process.

    Returns the modules of their classes outside this package.
    """
    writer = Writer()
    document = {"tree": [writer.put(part) for part in objects], "objects": writer.objects}
    write_document(file, document, writer.arrays)
    modules = set()
    for stored in writer.objects:
        module, _, name = stored["kind"].partition(":")
        if module.startswith("occamrl."):
            continue
        spec = getattr(sys.modules[module], "__spec__", None)
        if "<locals>" in name or module == "__main__" or spec is None:
            expected = "a class of a module that another process can import"
            raise CheckpointError("agent", got=stored["kind"], expected=expected)
        modules.add(module)
    return sorted(modules)


def read_objects(file: Entry) -> list[Tree]:
    """Return what :func:`write_objects` wrote."""
    document, arrays = read_document(file)
    objects: list[Tree] = Reader(arrays, document["objects"]).get(document["tree"])
    return objects
