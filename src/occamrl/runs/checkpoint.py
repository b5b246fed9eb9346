"""A checkpoint is one file: the state of a run at an episode boundary, from which it goes on to the same bits.

NPZ (with a CRC per array, never pickled objects) holding arrays and one JSON document, written to a temporary file,
synced and renamed, so that a reader sees the old checkpoint or the new one and nothing in between.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from occamrl.contracts import Agent, Problem
from occamrl.errors import CheckpointError
from occamrl.problems.finite_mdp import FiniteMDP, as_mdp
from occamrl.runs.identity import fingerprint
from occamrl.runs.phases import PhaseWalk
from occamrl.runs.recording import Recorder
from occamrl.runs.result import Result
from occamrl.runs.trees import Arrays, put_together, take_apart

FORMAT = 1
_DOCUMENT = "document"


def save_checkpoint(result: Result, path: str | Path) -> None:
    """Write everything needed to go on from ``result``."""
    arrays: Arrays = {}
    tree = {"walk": result.walk.to_tree(), "recorder": result.recorder.to_tree()}
    document = {
        "format": FORMAT,
        "problem": result.mdp.fingerprint,
        "agent": fingerprint(result.agent),
        "label": result.label,
        "seed": result.seed,
        "plans": result.plans,
        "pessimistic_episodes": result.pessimistic_episodes,
        "wall_time": result.wall_time,
        "tree": take_apart(tree, arrays),
    }
    arrays[_DOCUMENT] = np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # the stub takes the names for its own options
    write_whole(Path(path), buffer.getvalue())


def load_checkpoint(agent: Agent, mdp: FiniteMDP | Problem, path: str | Path) -> Result:
    """Return the result up to the checkpoint; go on with ``run(agent, mdp, episodes=..., continue_from=result)``."""
    path = Path(path)
    arrays = _read(path)
    try:
        document: dict[str, Any] = json.loads(arrays.pop(_DOCUMENT).tobytes())
        if document["format"] != FORMAT:
            raise CheckpointError(str(path), got=f"format {document['format']}", expected=f"format {FORMAT}")
        tree = put_together(document["tree"], arrays)
        problem = as_mdp(mdp)
        expectations = (("problem", problem.fingerprint), ("agent", fingerprint(agent)))
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


def _read(path: Path) -> Arrays:
    """Return the arrays of an NPZ file; damage of any kind is reported by the file's name."""
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise CheckpointError(str(path), got="a single array", expected="an NPZ file")
        with archive:
            return {name: archive[name] for name in archive.files}
    except (FileNotFoundError, CheckpointError):
        raise
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zipfile.LargeZipFile, MemoryError) as error:
        raise CheckpointError(str(path), got=f"{type(error).__name__}: {error}", expected="a whole NPZ file") from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    if os.name == "posix":  # the rename itself is only durable once the folder is synced
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
