"""What an agent on a box has learned as one file: NPZ and JSON with a digest, never pickled.

Candidates and rewards are functions, which no file can hold, so the agent is made anew and given the file. What these
functions are at the anchors is in the fingerprint: a file of another agent is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from occamrl.errors import CheckpointError
from occamrl.runs.checkpoint import FORMAT, read_document, write_document
from occamrl.runs.identity import fingerprint
from occamrl.runs.learned_files import known_fingerprint
from occamrl.runs.phases import PhaseWalk
from occamrl.runs.trees import Arrays, put_together, take_apart

if TYPE_CHECKING:
    from occamrl.runs.anchored import Anchored

KIND = "anchored"


def identity(agent: Anchored) -> dict[str, str]:
    """Return what has to be the same in a file and in the agent that goes on from it."""
    grid = agent.grid
    box = [list(map(float, grid.low)), list(map(float, grid.high)), list(map(int, grid.points)), list(grid.periodic)]
    system = agent.system
    return {
        "agent": fingerprint(agent.agent),  # its features are the candidates at the anchors
        "known": known_fingerprint(agent.known),
        "box": fingerprint([box, agent.actions]),
        "integrals": fingerprint([float(system.error), agent.temperature, system.draws]),
        "seed": str(agent.seed),
    }


def save_anchored(agent: Anchored, path: str | Path) -> None:
    """Write everything needed to go on, whole or not at all; also in the middle of an episode."""
    arrays: Arrays = {}
    tree = {"walk": agent.walk.to_tree(), "episode": agent.position()}
    document = {"format": FORMAT, "kind": KIND, "identity": identity(agent), "tree": take_apart(tree, arrays)}
    write_document(Path(path), document, arrays)


def load_anchored(agent: Anchored, path: str | Path) -> None:
    """Bring an agent to where the file's was; it is untouched by a file that is refused."""
    path = Path(path)
    document, arrays = read_document(path)
    if document.get("kind") != KIND:
        raise CheckpointError(str(path), got="a file of another kind", expected="one written by Anchored.save")
    try:
        for name, mine in identity(agent).items():
            if document["identity"][name] != mine:
                expected = f"that of an agent with the same {name}"
                raise CheckpointError(f"{path}: {name}", got="a file of another agent", expected=expected)
        tree = put_together(document["tree"], arrays)
        position = {name: tree["episode"][name] for name in agent.position()}
        state, step = position["state"], position["step"]
        if not isinstance(state, np.ndarray) or state.shape != (1, agent.grid.dimensions):
            raise CheckpointError(f"{path}: state", got=np.shape(state), expected=(1, agent.grid.dimensions))
        position["state"] = agent.system.inside(state[0], "state")
        for name in ("episode", "plans", "planned", "step"):
            if type(position[name]) is not int and not (name == "step" and step is None):
                raise CheckpointError(f"{path}: {name}", got=position[name], expected="an integer")
        if step is not None and not 0 <= step < agent.horizon:
            raise CheckpointError(f"{path}: step", got=step, expected=f"0 to {agent.horizon - 1}")
        returns = position["returns"]
        if not isinstance(returns, np.ndarray) or returns.shape != (position["episode"],) or returns.dtype != float:
            raise CheckpointError(f"{path}: returns", got=np.shape(returns), expected=(position["episode"],))
        position["returned"] = float(position["returned"])
        walk = PhaseWalk.from_tree(agent.walk.selector, agent.known, tree["walk"])
    except (LookupError, TypeError, ValueError, AttributeError, ImportError, RecursionError) as error:
        if isinstance(error, CheckpointError) and str(path) in str(error):
            raise
        raise CheckpointError(str(path), got=f"{type(error).__name__}: {error}", expected="what save wrote") from error
    agent.go_on(walk, position)
