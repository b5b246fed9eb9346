"""A checkpoint is one file: the state of a run at an episode boundary, from which it goes on to the same bits.

NPZ (never pickled objects) holding arrays and one JSON document, written to a temporary file, synced and renamed, so
that a reader sees the old checkpoint or the new one and nothing in between. The archive's comment is the SHA-256 of all
bytes before it: any changed byte is found, and NumPy reads the file as it reads any other.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from occamrl.contracts import Agent, Problem
from occamrl.errors import CheckpointError
from occamrl.problems.finite_mdp import FiniteMDP, as_mdp
from occamrl.runs.failures import RecordError
from occamrl.runs.files import parse_json, read_plain, write_whole
from occamrl.runs.identity import fingerprint
from occamrl.runs.phases import PhaseWalk
from occamrl.runs.recording import Recorder
from occamrl.runs.result import Result
from occamrl.runs.trees import Arrays, put_together, take_apart

FORMAT = 1
LARGEST = 16 * 2**30
_DOCUMENT = "document"
_DIGEST = 64  # hexadecimal digits, at the end of the file


def save_checkpoint(result: Result, path: str | Path, *, tag: str = "") -> None:
    """Write everything needed to go on from ``result``; ``tag`` says what it belongs to, beyond agent and problem."""
    arrays: Arrays = {}
    tree = {"walk": result.walk.to_tree(), "recorder": result.recorder.to_tree()}
    document = {
        "format": FORMAT,
        "problem": result.mdp.fingerprint,
        "agent": fingerprint(result.agent),
        "label": result.label,
        "tag": tag,
        "seed": result.seed,
        "plans": result.plans,
        "pessimistic_episodes": result.pessimistic_episodes,
        "wall_time": result.wall_time,
        "tree": take_apart(tree, arrays),
    }
    write_document(Path(path), document, arrays)


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


def load_checkpoint(agent: Agent, mdp: FiniteMDP | Problem, path: str | Path, *, tag: str = "") -> Result:
    """Return the result up to the checkpoint; go on with ``run(agent, mdp, episodes=..., continue_from=result)``."""
    path, problem = Path(path), as_mdp(mdp)
    try:
        document, arrays = read_document(path)
        tree = put_together(document["tree"], arrays)
        expectations = (("problem", problem.fingerprint), ("agent", fingerprint(agent)), ("tag", tag))
        for field, expected in expectations:
            if document[field] != expected:
                raise CheckpointError(f"{path}: {field}", got=document[field], expected=expected)
        recorder = Recorder.from_tree(tree["recorder"])
        walk = PhaseWalk.from_tree(agent, problem.known, tree["walk"])
        return Result.of(
            recorder,
            walk,
            agent=agent,
            mdp=problem,
            plans=int(document["plans"]),
            pessimistic_episodes=int(document["pessimistic_episodes"]),
            wall_time=float(document["wall_time"]),
            seed=int(document["seed"]),
            label=str(document["label"]),
        )
    except (LookupError, TypeError, ValueError, AttributeError, ImportError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(str(path), got=f"{type(error).__name__}: {error}", expected="a checkpoint") from error


def _with_digest(archive: bytes) -> bytes:
    """Return the archive with the digest of everything before it as its comment."""
    content = archive[:-2] + _DIGEST.to_bytes(2, "little")  # the last field is the length of the comment
    return content + hashlib.sha256(content).hexdigest().encode()


def read_arrays(path: Path) -> Arrays:
    """Return the arrays of a checkpoint; damage of any kind is reported by the file's name.

    Sizes are compared with the file's own before anything is allocated, and no object is ever unpickled.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such checkpoint")
    try:
        content = read_plain(path, LARGEST)
        if hashlib.sha256(content[:-_DIGEST]).hexdigest().encode() != content[-_DIGEST:]:
            raise ValueError("its digest does not match its content")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for info in archive.infolist():
                _require_honest(info, archive, len(content))
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (RecordError, OSError, ValueError, EOFError, LookupError, zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        got = error.got if isinstance(error, RecordError) else f"{type(error).__name__}: {error}"
        raise CheckpointError(str(path), got=got, expected="a whole checkpoint") from error
    except (MemoryError, NotImplementedError, RuntimeError, SyntaxError) as error:
        raise CheckpointError(str(path), got=f"{type(error).__name__}: {error}", expected="a checkpoint") from error


def _require_honest(info: zipfile.ZipInfo, archive: zipfile.ZipFile, size: int) -> None:
    """Refuse an entry that is compressed, larger than the file, of another size than it declares, or of objects."""
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
