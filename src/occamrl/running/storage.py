"""Files: written whole or not at all, read with suspicion, and one format for the result of a run.

Content is written to a temporary file beside its place, which is synced and renamed. Reading follows no symbolic link,
takes in no more than a stated size, and parses JSON of bounded depth only. Sealed JSON carries a digest of itself.

A result (:func:`save`, :func:`load`) is an NPZ file of arrays and one JSON document: the checkpoint of a run or of a
cell, and a saved agent. The archive's comment is the SHA-256 of all bytes before it. Nothing is ever pickled. The
document refers to *trees* of plain data, NamedTuples and arrays, such as the state of a learner, and of algorithms and
their parts (features, families, ladders) by their parameters. Classes are looked up by name - in this package, or in a
module that the user has imported already - and must be what they claim to be; arrays are checked before compiled code
may see them.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import importlib
import io
import itertools
import json
import math
import os
import re
import stat
import sys
import uuid
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from occamrl._core.features import DenseFeatures, SparseFeatures, TabularFeatures
from occamrl.errors import (
    CheckpointError,
    MissingCheckpoint,
    RecordError,
    StorageError,
    as_path,
    require_integer,
    require_number,
)
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
from occamrl.running.phases import PhaseWalk, Recorder
from occamrl.running.result import EnvironmentInfo, Result

PARTIAL = ".partial"
_PARTIAL = re.compile(r"\..+\.\d+-[0-9a-f]{8}\.partial")  # as write_whole makes them, and nobody else's
LARGEST_JSON = 64 * 2**20
DEEPEST_JSON = 64
LARGEST_NUMBER = 1e300  # sums of larger ones overflow
_ESCAPED, _STRING, _BRACKET = re.compile(r"\\.", re.DOTALL), re.compile(r'"[^"]*"'), re.compile(r"[\[\]{}]")
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


def reach(point: str, path: Path) -> None:
    """Do nothing when ``path`` reaches a point of its life; tests put a function here that kills or raises."""


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file so that it is there whole or not at all; ``durable``: also after a power cut.

    A StorageError names the file and the system's reason; a file that was there before is as it was. What has the name
    and is no file (a pipe, a device, a folder) is left alone.
    """
    if not path.name:  # /, or .
        raise StorageError(path, IsADirectoryError(errno.EISDIR, "a folder, and no name for a file in it"))
    partial = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}{PARTIAL}")
    try:
        try:
            if path.exists() and not path.is_file():
                raise FileExistsError(errno.EEXIST, "something that is no file has this name")
            reach("open", path)
            with partial.open("xb") as file:
                half = len(content) // 2
                file.write(content[:half])
                reach("write", path)
                file.write(content[half:])
                file.flush()
                reach("fsync", path)
                if durable:
                    os.fsync(file.fileno())
            reach("rename", path)
            partial.replace(path)
            reach("renamed", path)
        finally:
            partial.unlink(missing_ok=True)
        if durable and os.name == "posix":  # the rename as well
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        raise StorageError(path, error) from error


def make_folder(path: Path) -> None:
    """Make a folder, and those it lies in, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(path, error) from error


def sweep(folder: Path) -> int:
    """Remove temporary files that a killed process left in a folder; return how many there were."""
    found = [Path(entry.path) for entry in os.scandir(folder) if _PARTIAL.fullmatch(entry.name)]
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def read_plain(path: Path | str, largest: int) -> bytes:
    """Return the content of a regular file, which is no symbolic link and no larger than ``largest`` bytes."""
    try:
        handle = os.open(path, _FLAGS)
    except FileNotFoundError:
        raise RecordError(path, got="no such file", expected="a file") from None
    except OSError as error:
        what = "a symbolic link" if Path(path).is_symlink() else str(error.strerror)
        raise RecordError(path, got=what, expected="a regular file that can be read") from error
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode):
        os.close(handle)
        raise RecordError(path, got="no regular file", expected="a regular file")
    with os.fdopen(handle, "rb") as file:
        if about.st_size > largest:
            raise RecordError(path, got=f"{about.st_size:,} bytes", expected=f"at most {largest:,}")
        content = file.read(about.st_size + 1)
    if len(content) > about.st_size:
        raise RecordError(path, got="a file that grows", expected=f"{about.st_size:,} bytes")
    return content


def there(path: Path | str) -> bool:
    """Say whether something has this name, a symbolic link that leads nowhere included."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise RecordError(path, got=str(error.strerror), expected="a file that can be read") from error
    return True


def real_folder(path: Path) -> bool:
    """Say whether ``path`` is a folder itself, not a symbolic link to one."""
    return path.is_dir() and not path.is_symlink()


def parse_json(content: bytes, path: str | Path) -> Any:
    """Return the data of a JSON text of bounded depth."""
    try:
        text = content.decode("utf-8")
        if text.count("[") + text.count("{") > DEEPEST_JSON:
            brackets = _BRACKET.findall(_STRING.sub("", _ESCAPED.sub("", text)))
            deepest = max(itertools.accumulate(1 if mark in "[{" else -1 for mark in brackets), default=0)
            if deepest > DEEPEST_JSON:
                raise RecordError(path, got=f"JSON nested {deepest} deep", expected=f"at most {DEEPEST_JSON}")
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, RecordError):
            raise
        raise RecordError(path, got=f"{type(error).__name__}: {error}", expected="JSON") from error


def read_json(path: Path, largest: int = LARGEST_JSON) -> Any:
    """Return the data of a JSON file."""
    return parse_json(read_plain(path, largest), path)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical(data: Any) -> str:
    """Return the one JSON text of plain data: sorted keys, no white space, no NaN."""
    return _CANONICAL.encode(data)


def seal(document: dict[str, Any]) -> bytes:
    """Return a JSON document as a file's content: the SHA-256 of its canonical text, then that text."""
    text = canonical(document).encode()
    return b'{"digest":"%s",%s\n' % (sha256(text).encode(), text[1:])


def read_sealed(path: Path | str, largest: int = LARGEST_JSON) -> dict[str, Any]:
    """Return a sealed document; a byte that is not as it was written is an error."""
    content = read_plain(path, largest)
    document = parse_json(content, path)
    if not isinstance(document, dict):
        raise RecordError(path, got=type(document).__name__, expected="a JSON object")
    digest = str(document.pop("digest", None))
    head = f'{{"digest":"{digest}",'.encode()
    whole = content.startswith(head) and sha256(b"{" + content[len(head) : -1]) == digest and content[-1:] == b"\n"
    if not whole and content.startswith(b"{\n"):  # as earlier versions wrote it
        try:
            told = {**document, "digest": sha256(canonical(document).encode())}
            whole = content == json.dumps(told, sort_keys=True, indent=1, allow_nan=False).encode() + b"\n"
        except (ValueError, TypeError, RecursionError):
            whole = False
    if not whole:
        got = f"content that does not match its digest {digest[:12]!r}"
        raise RecordError(path, got=got, expected="a file as it was written")
    return document


def sha256(content: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


Arrays = dict[str, np.ndarray[Any, Any]]


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


def _parameters(value: Any) -> tuple[Any, dict[str, Any]]:
    """Return the class of an algorithm, or of a part of one, and what it is made of; (None, {}) for anything else."""
    match value:
        case FeatureMap():
            names = ("layout", "states", "actions", "dimension", "rewards")
            shared = None if value.shared is None else value.shared.of
            return FeatureMap, {**{name: getattr(value, name) for name in names}, "of": shared}
        case FiniteFamily():  # and a cover, once its kernels are computed
            return FiniteFamily, {"theta": value.theta, "features": value.features, "reach": value.reach}
        case LinearFamily():
            return LinearFamily, {name: getattr(value, name) for name in ("features", "norm_bound", "basis")}
        case AggregationFamily():
            return AggregationFamily, {"partition": value.partition, "moves": value.moves}
        case Ladder(finite=True):
            return Ladder, {name: getattr(value, name) for name in ("family", "level", "reach", "names")}
        case Ladder():
            return Ladder, {"rungs": list(value.rungs), "names": value.names}
    if not _is_algorithm(type(value)):
        return None, {}
    return type(value), {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.init}


def _is_algorithm(kind: Any) -> bool:
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        return False
    parts = (Known, RewardsPerPair, RewardsLinear)
    return kind in parts or any(satisfies(kind, each) for each in (Learner, EpisodeLearner, RuledBases, Rule, Selector))


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
            entries = layout.entry.size
            if not (_starts(layout.start, sizes.size, entries) and _floats(layout.entry, (entries,))):
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


def _starts(array: Ints, count: int, end: int) -> bool:
    if array.dtype != np.int64 or array.shape != (count + 1,):
        return False
    return bool(array[0] == 0 and array[-1] == end and (np.diff(array) >= 0).all())


def _indices(array: Ints, size: int, bound: int | Ints) -> bool:
    return array.dtype == np.int64 and array.shape == (size,) and bool((array >= 0).all() and (array < bound).all())


def _floats(array: Any, shape: tuple[int, ...]) -> bool:
    fine = isinstance(array, np.ndarray) and array.dtype == np.float64 and array.shape == shape
    return fine and bool((np.abs(array) <= LARGEST_FEATURE).all())


FORMAT = 5
_SMALL = 2**20  # numbers that are made without a second thought
LARGEST = 16 * 2**30
_DOCUMENT = "document"
_BAD_ZIP = (zipfile.BadZipFile, zipfile.LargeZipFile)
_DAMAGE = (OSError, ValueError, EOFError, LookupError, MemoryError, RuntimeError, SyntaxError, *_BAD_ZIP)
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
_DIGEST = 64  # hexadecimal digits, at the end of the file


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
    write_document(Path(path), document, arrays)


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


def write_document(path: Path, document: dict[str, Any], arrays: Arrays) -> None:
    """Write a JSON document and the arrays it refers to as one file with a digest of itself."""
    arrays[_DOCUMENT] = np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # the stub takes the names for its own options
    write_whole(path, _with_digest(buffer.getvalue()))


def read_document(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Return what :func:`write_document` wrote; anything else is refused by the file's name."""
    arrays = read_arrays(path)
    if _DOCUMENT not in arrays:
        raise CheckpointError(str(path), got=f"arrays {sorted(arrays)[:5]}", expected=f"one called {_DOCUMENT!r}")
    document = parse_json(arrays.pop(_DOCUMENT).tobytes(), path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        got = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise CheckpointError(str(path), got=f"format {got}", expected=f"format {FORMAT}")
    return document, arrays


def _with_digest(archive: bytes) -> bytes:
    """Return the archive with the digest of everything before it as its comment."""
    content = archive[:-2] + _DIGEST.to_bytes(2, "little")  # the last field is the length of the comment
    return content + hashlib.sha256(content).hexdigest().encode()


def read_arrays(path: Path) -> Arrays:
    """Return the arrays of a checkpoint; damage of any kind is reported by the file's name.

    Sizes are compared with the file's own before anything is allocated, and no object is ever unpickled.
    """
    if not path.exists():
        raise MissingCheckpoint(str(path), got="no such file", expected="a checkpoint")
    try:
        content = read_plain(path, LARGEST)
        if hashlib.sha256(content[:-_DIGEST]).hexdigest().encode() != content[-_DIGEST:]:
            raise ValueError("its digest does not match its content")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            return {info.filename.removesuffix(".npy"): _array(info, archive, len(content)) for info in entries}
    except _DAMAGE as error:
        got = error.got if isinstance(error, RecordError) else f"{type(error).__name__}: {error}"
        raise CheckpointError(str(path), got=got, expected="a whole checkpoint") from error


def _array(info: zipfile.ZipInfo, archive: zipfile.ZipFile, size: int) -> np.ndarray[Any, Any]:
    """Return an entry that is not compressed, has the size that it declares, and holds no Python objects."""
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.file_size > size:
        raise ValueError(f"{info.filename} declares {info.file_size:,} bytes in a file of {size:,}")
    with archive.open(info) as entry:
        version = np.lib.format.read_magic(entry)
        if version != (1, 0):
            raise ValueError(f"{info.filename} has NPY version {version}")
        shape, _, dtype = np.lib.format.read_array_header_1_0(entry)
        if dtype.hasobject:
            raise ValueError(f"{info.filename} holds Python objects")
        if math.prod(shape) * dtype.itemsize + entry.tell() != info.file_size:
            raise ValueError(f"{info.filename} declares an array of shape {shape}, {dtype}")
        entry.seek(0)
        return np.asarray(np.lib.format.read_array(entry, allow_pickle=False))
