"""Everything learned in an environment as one file: NPZ and JSON with a digest, never pickled.

The file holds the algorithm itself where it can be written as plain data and arrays (:mod:`occamrl.runs.portable`), so
that it can be loaded with nothing else at hand; otherwise the same algorithm has to be given again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from occamrl.contracts import Agent, Known, Outcomes
from occamrl.environments.finite import FiniteEnvironment
from occamrl.environments.spaces import codec_from_plain
from occamrl.environments.tables import reward_map
from occamrl.errors import CheckpointError, ParameterError
from occamrl.runs.checkpoint import FORMAT, read_document, write_document
from occamrl.runs.identity import fingerprint
from occamrl.runs.learned import Learned, Place
from occamrl.runs.phases import PhaseWalk
from occamrl.runs.portable import NotPortable, algorithm_from_tree, algorithm_to_tree
from occamrl.runs.recording import Recorder
from occamrl.runs.trees import Arrays, put_together, take_apart

KIND = "learned"


def save_learned(result: Learned, path: str | Path) -> None:
    """Write a result, whole or not at all; :func:`load_learned` reads it."""
    arrays: Arrays = {}
    try:
        algorithm = algorithm_to_tree(result.agent, arrays)
    except NotPortable:
        algorithm, arrays = None, {}
    place = result.place
    tree = {"walk": result.walk.to_tree(), "recorder": result.recorder.to_tree()}
    document = {
        "format": FORMAT,
        "kind": KIND,
        "algorithm": algorithm,
        "agent": fingerprint(result.agent),
        "label": result.label,
        "environment": place.name,
        "known": take_apart(known_to_tree(place.known), arrays),
        "rewards": list(place.rewards),
        "observation": place.observation.to_plain(),
        "action": place.action.to_plain(),
        "exact": place.exact,
        "why_not": place.why_not,
        "seed": result.seed,
        "steps": result.steps,
        "cut_short": list(result.cut_short),
        "plans": result.plans,
        "wall_time": result.wall_time,
        "tree": take_apart(tree, arrays),
    }
    write_document(Path(path), document, arrays)


def load_learned(path: str | Path, agent: Agent | None = None) -> Learned:
    """Return what was learned; ``agent`` takes the place of the algorithm in the file and must be the same.

    Raises
    ------
    CheckpointError
        Naming the file: truncated, changed, pickled, of another kind, or of another agent. Nothing in it is executed.
    """
    path = Path(path)
    document, arrays = read_document(path)
    if document.get("kind") != KIND:
        raise CheckpointError(str(path), got="a file of another kind", expected="one written by save")
    try:
        if agent is not None and fingerprint(agent) != document["agent"]:
            raise CheckpointError(
                f"{path}: agent", got=f"one of another {document['label']}", expected=repr(agent)[:80]
            )
        algorithm = agent if agent is not None else _algorithm(document, arrays, path)
        place = Place(
            name=str(document["environment"]),
            known=known_from_tree(put_together(document["known"], arrays)),
            rewards=reward_map(document["rewards"]),
            observation=codec_from_plain(document["observation"]),
            action=codec_from_plain(document["action"]),
            exact=bool(document["exact"]),
            why_not=str(document["why_not"]),
        )
        tree = put_together(document["tree"], arrays)
        for name in ("played", "plans", "returned"):
            if type(tree["walk"][name]) not in (int, float):
                raise CheckpointError(f"{path}: {name}", got=tree["walk"][name], expected="a number")
        return Learned(
            label=str(document["label"]),
            place=place,
            seed=int(document["seed"]),
            steps=int(document["steps"]),
            cut_short=tuple(int(episode) for episode in document["cut_short"]),
            plans=int(document["plans"]),
            wall_time=float(document["wall_time"]),
            agent=algorithm,
            walk=PhaseWalk.from_tree(algorithm, place.known, tree["walk"]),
            recorder=Recorder.from_tree(tree["recorder"]),
        )
    except (LookupError, TypeError, ValueError, AttributeError, ImportError, RecursionError) as error:
        if isinstance(error, CheckpointError) and str(path) in str(error):
            raise
        raise CheckpointError(str(path), got=f"{type(error).__name__}: {error}", expected="what save wrote") from error


def _algorithm(document: dict[str, Any], arrays: Arrays, path: Path) -> Agent:
    if document["algorithm"] is None:
        got = f"a {document['label']} with parameters that no file can hold"
        raise CheckpointError(str(path), got=got, expected="the same algorithm, given to load")
    made: Agent = algorithm_from_tree(document["algorithm"], arrays)
    return made


def require_continues(earlier: Learned, agent: Agent, environment: FiniteEnvironment, seed: int | None) -> None:
    """Refuse to go on with another agent, seed or kind of environment: the result would be of neither."""
    if not isinstance(earlier, Learned):
        raise ParameterError("continue_from", got=type(earlier).__name__, expected="the result of learn")
    if agent is not earlier.agent and fingerprint(agent) != fingerprint(earlier.agent):
        raise ParameterError(
            "continue_from", got=f"a run of another {earlier.label}", expected=f"one of {agent!r}"[:200]
        )
    if seed is not None and seed != earlier.seed:
        raise ParameterError("seed", got=seed, expected=f"{earlier.seed}, that of the earlier run")
    if known_fingerprint(environment.known) != known_fingerprint(earlier.place.known):
        got = f"{environment!r}"
        raise ParameterError(
            "env", got=got, expected=f"an environment with the sizes and rewards of {earlier.place.name}"
        )
    if environment.rewards != earlier.place.rewards:
        raise ParameterError("reward_range", got=tuple(environment.rewards), expected=tuple(earlier.place.rewards))
    if (environment.mdp is not None) != earlier.place.exact:
        got = "one that exposes its table" if environment.mdp is not None else "one without a table"
        raise ParameterError("env", got=got, expected="exact regret for all episodes, or for none")


def known_to_tree(known: Known) -> dict[str, Any]:
    """Return what an agent knows as a tree."""
    rewards = known.transition_rewards
    return {
        "sizes": [known.states, known.actions, known.horizon],
        "base_reward": known.base_reward,
        "transition_rewards": None if rewards is None else Outcomes(*rewards),
        "rewards_known": known.rewards_known,
    }


def known_from_tree(tree: Any) -> Known:
    """Return what an agent knows, checked."""
    (states, actions, horizon), base, rewards = tree["sizes"], tree["base_reward"], tree["transition_rewards"]
    if base.shape != (states, actions) or base.dtype != np.float64 or horizon < 1:
        raise CheckpointError("known", got=f"rewards of shape {base.shape}", expected=f"[{states}, {actions}]")
    if rewards is not None:
        size = rewards.next_state.size
        fine = rewards.start.shape == (states * actions + 1,) and rewards.bonus.shape == (size,)
        fine = fine and bool((rewards.next_state >= 0).all() and (rewards.next_state < states).all())
        if not (fine and rewards.start[0] == 0 and rewards.start[-1] == size and (np.diff(rewards.start) >= 0).all()):
            raise CheckpointError("known", got="rewards that do not fit together", expected="a table of rewards")
    told = tree.get("rewards_known", True)  # files from before rewards could be unknown
    if not isinstance(told, bool):
        raise CheckpointError("known", got=f"rewards_known {told!r}", expected="true or false")
    return Known(states, actions, horizon, base, rewards, told)


def known_fingerprint(known: Known) -> str:
    """Return a hash of sizes and rewards."""
    return fingerprint(known_to_tree(known))
