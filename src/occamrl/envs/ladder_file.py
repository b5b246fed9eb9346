"""A ladder of models as a TOML file: ``read_ladder(path)``.

Either the ladder that a problem brings along (``problem``, ``parameters``), or ``[[classes]]`` from
the smallest to the largest. Each lists what it *adds* to those before it, so that classes are
nested as they stand::

    horizon = 30
    reward = "reward.npz"                 # an array [S, A] or [S, A, S']; without it not known
    [[classes]]
    name = "dry"
    kernels = ["dry.npz", "rain.npz"]     # of one array each, [S, A, S'] or [n, S, A, S']

or ``environments`` and ``mixtures`` of them in place of ``kernels``; ``docs/environments.md``
describes all keys. Files are looked for beside the TOML file and never unpickled; an id of an
environment imports no module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from occamrl.envs.lanes import Environment
from occamrl.envs.wrapper import make_environment
from occamrl.errors import (
    ParameterError,
    UnknownName,
    as_floats,
    as_path,
    require_choice,
    require_integer,
)
from occamrl.files import read_toml
from occamrl.models.families import FiniteFamily
from occamrl.models.features import FeatureMap
from occamrl.models.ladder import Ladder
from occamrl.models.simulators import grid_reach, mixtures
from occamrl.problems.lakes import mdp_from_env, smallest_range
from occamrl.problems.mdp import FiniteMDP, RewardMap, as_mdp, reward_map
from occamrl.problems.named import make_problem
from occamrl.protocols import UNIT, Floats, Known, Problem

LADDERS = Path(__file__).resolve().parent.parent / "ladders"  # those that come with the package
_KEYS = ("problem", "parameters", "horizon", "reward", "reward_range", "classes")
_KINDS = {"kernels", "environments", "mixtures"}
_MOST_PARTS = 1_000  # of a mixture


@dataclass(frozen=True, kw_only=True, eq=False)
class LadderSpec:
    """A ladder with what is needed to play or test it."""

    ladder: Ladder
    known: Known  # sizes, horizon and rewards
    rewards: RewardMap = UNIT  # maps the environment's own rewards to those that are known

    @property
    def names(self) -> tuple[str, ...]:
        """What the classes are called."""
        return self.ladder.names


def shipped_ladders() -> list[str]:
    """Return the names of the ladders that come with the package."""
    return sorted(path.stem for path in LADDERS.glob("*.toml"))


def ladder_of_problem(problem: Problem | FiniteMDP) -> LadderSpec:
    """Return the ladder that a problem brings along."""
    known = as_mdp(problem).known
    return LadderSpec(ladder=Ladder.of_problem(problem), known=known, rewards=known.unit)


def read_ladder(path: str | Path, *, horizon: int | None = None) -> LadderSpec:
    """Read a ladder that comes with the package, by its name, or one in a TOML file.

    ``horizon`` replaces the file's. A ParameterError says what is wrong with the file, and where.

    >>> import occamrl as orl
    >>> spec = orl.read_ladder("cliff-walking")
    >>> spec.ladder.names
    ('dry', 'slippery', 'anything between')
    """
    if str(path) in shipped_ladders():  # before it is a path: ./taxi is no name
        file = LADDERS / f"{path}.toml"
    else:
        file = as_path("ladder", path)
    try:
        data = read_toml(file)
    except (OSError, ValueError) as error:
        near = UnknownName("ladder", got=file, known=shipped_ladders()).expected
        raise ParameterError(
            file, got=error, expected=f"a TOML file, or a shipped ladder, {near}"
        ) from error
    for key in data:
        require_choice(f"{file}: key", key, _KEYS)
    if ("problem" in data) == ("classes" in data):
        raise ParameterError(file, got="both or neither", expected="`problem`, or [[classes]]")
    if horizon is not None:
        data["horizon"] = horizon
    if "problem" in data:
        return _read_problem(file, data)
    kind, names = _check_classes(file, data)
    if kind == "kernels":
        return _read_kernels(file, data, names)
    return _read_environments(file, data, names)


def _fault(file: Path, key: str, got: object, expected: object) -> ParameterError:
    return ParameterError(f"{file}: {key}", got=got, expected=expected)


def _listed(value: Any) -> list[Any]:
    """Return a list; one thing may stand for a list of one."""
    return value if isinstance(value, list) else [value]


def _read_problem(file: Path, data: dict[str, Any]) -> LadderSpec:
    """Return the ladder of a problem that is named."""
    parameters = data.get("parameters", {})
    if {"reward", "reward_range"} & set(data) or not isinstance(parameters, dict):
        raise _fault(
            file, "problem", sorted(data), "a table of parameters, and the problem's own rewards"
        )
    if "horizon" in data:
        parameters["horizon"] = data["horizon"]
    return ladder_of_problem(make_problem(data["problem"], **parameters))


def _check_classes(file: Path, data: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return what the classes list, kernels or environments, and what they are called."""
    require_integer(f"{file}: horizon", data.get("horizon"), 1)
    classes = data["classes"]
    tables = isinstance(classes, list) and all(isinstance(entry, dict) for entry in classes)
    if not tables or not classes:
        raise _fault(file, "classes", repr(classes), "at least one table [[classes]]")
    names = []
    kinds = set()
    for m, entry in enumerate(classes, start=1):
        names.append(str(entry.pop("name", f"F_{m}")))
        if len(entry) != 1 or not set(entry) <= _KINDS or not all(entry.values()):
            raise _fault(
                file,
                f"classes[{m}]",
                sorted(entry),
                "one of `kernels`, `environments` and `mixtures`",
            )
        kinds |= set(entry)
    if ("kernels" in kinds and len(kinds) > 1) or kinds == {"mixtures"}:
        raise _fault(
            file, "classes", "kernels and environments", "kernels, or environments, in all"
        )
    return "kernels" if "kernels" in kinds else "environments", tuple(names)


# Kernels ------------------------------------------------------------------------------------------


def _read_kernels(file: Path, data: dict[str, Any], names: tuple[str, ...]) -> LadderSpec:
    """Return classes whose kernels are arrays in files."""
    kernels: list[Floats] = []  # [n, S, A, S] of each file
    level = []  # the class, from 0, that adds each kernel
    for m, entry in enumerate(data["classes"]):
        field = f"{file}: classes[{m + 1}].kernels"
        for name in _listed(entry["kernels"]):
            array = _array_in(file, name, field)
            if array.ndim == 3:
                array = array[np.newaxis]
            size = (kernels or [array])[0].shape[1:]
            if array.ndim != 4 or array.shape[1:] != size or not len(array):
                raise ParameterError(
                    field, got=array.shape, expected=f"at least one [S, A, S] = {size}"
                )
            kernels.append(array)
            level += [m] * len(array)
    family = FiniteFamily(np.concatenate(kernels))
    ladder = Ladder.of_levels(family, np.array(level), names=names)

    horizon = data["horizon"]
    rewards = reward_map(data.get("reward_range"))
    states, actions = kernels[0].shape[1:3]
    known = Known.of_sizes(states=states, actions=actions, horizon=horizon)
    if "reward" in data:
        reward = _array_in(file, data["reward"], f"{file}: reward")
        # What is known does not depend on the kernel: any of them will do.
        mdp = FiniteMDP(
            transition=kernels[0][0], reward=reward, horizon=horizon, reward_range=rewards
        )
        known = mdp.known
    return LadderSpec(ladder=ladder, known=known, rewards=rewards)


def _array_in(toml: Path, file: object, field: str) -> Floats:
    """Return the array of an NPZ file beside the TOML file; nothing is unpickled."""
    folder = toml.parent.resolve()
    expected = "an NPZ file of one plain array, in the folder of the TOML file"
    if not isinstance(file, str) or not (folder / file).resolve().is_relative_to(folder):
        raise ParameterError(field, got=repr(file), expected=expected)
    try:
        with np.load(folder / file, allow_pickle=False) as archive:
            (array,) = archive.values()
    except Exception as error:  # whatever a foreign file leads to
        raise ParameterError(field, got=f"{file}: {error}", expected=expected) from error
    return as_floats(field, array)


# Environments -------------------------------------------------------------------------------------


class _Grid(NamedTuple):
    """What a class mixes: so many environments, in steps of 1/parts."""

    environments: int
    parts: int


def _read_environments(file: Path, data: dict[str, Any], names: tuple[str, ...]) -> LadderSpec:
    """Return classes that add environments, or mixtures of those before them."""
    if "reward" in data:
        raise _fault(file, "reward", "a value", "none: environments have their own")
    environments: list[Environment] = []
    weights: list[tuple[float, ...]] = []  # of each member, on the environments up to there
    level: list[int] = []  # the class, from 0, that adds each member
    grids = []
    for m, entry in enumerate(data["classes"]):
        key = f"classes[{m + 1}]"
        grid = _Grid(1, 1)
        if "mixtures" in entry:
            field = f"{file}: {key}.mixtures"
            parts = require_integer(field, entry["mixtures"], 1, maximum=_MOST_PARTS)
            grid = _Grid(len(environments), parts)
            weights += _new_mixtures(field, grid, weights)
        for i, described in enumerate(_listed(entry.get("environments", []))):
            weights.append((*[0.0] * len(environments), 1.0))
            environments.append(_environment(file, f"{key}.environments[{i}]", described))
        grids.append(grid)
        level += [m] * (len(weights) - len(level))

    chosen = data.get("reward_range", smallest_range(environments))
    problems = []
    for env in environments:
        problems.append(mdp_from_env(env, horizon=data["horizon"], reward_range=chosen)[0])
    features = FeatureMap.of_simulators(problems)
    vectors = np.array([_padded(weight, len(problems)) for weight in weights])
    family = FiniteFamily(parameters=vectors, features=features)
    # How far a member can be from what the class stands for: all mixtures, not those on the grid.
    reach = []
    for grid in grids:
        mixed = features.restrict(range(grid.environments))
        reach.append(grid_reach(mixed, grid.environments, grid.parts))
    widest = np.maximum.accumulate(reach).tolist()
    ladder = Ladder.of_levels(family, np.array(level), widest, names)
    known = _known_of(problems, features)
    return LadderSpec(ladder=ladder, known=known, rewards=reward_map(chosen))


def _padded(weight: Sequence[float], size: int) -> tuple[float, ...]:
    """Return weights on environments, 0 on those that came later."""
    return (*weight, *[0.0] * (size - len(weight)))


def _new_mixtures(
    field: str, grid: _Grid, weights: Sequence[Sequence[float]]
) -> list[tuple[float, ...]]:
    """Return the mixtures on a grid that are no members yet."""
    present = {_padded(weight, grid.environments) for weight in weights}
    most = min(grid.environments, grid.parts)
    rows = mixtures(field, grid.environments, grid.parts, most).tolist()
    return [tuple(row) for row in rows if tuple(row) not in present]


def _environment(file: Path, key: str, described: object) -> Environment:
    """Return a registered environment: an id, or a table with an id and options."""
    options = {"id": described}
    if isinstance(described, dict):
        options = dict(described)
    name = options.pop("id", None)
    if not isinstance(name, str) or ":" in name:  # what follows a module would import it
        raise _fault(
            file, key, repr(described), "{ id = ..., options } of a registered environment"
        )
    return make_environment(f"{file}: {key}", name, options)


def _known_of(problems: Sequence[FiniteMDP], features: FeatureMap) -> Known:
    """Return what an agent may know if the truth is one of several problems, or a mixture.

    That is the rewards of all their outcomes.
    """
    first = problems[0]
    outcomes = features.outcomes
    if features.rewards is None:  # functions of (s, a)
        for mdp in problems:
            if not np.allclose(mdp.base_reward, first.base_reward, rtol=0.0, atol=1e-12):
                raise ParameterError(
                    "environments", got="different rewards", expected="the same r(s, a) in all"
                )
        return first.known
    base = np.minimum.reduceat(features.rewards, outcomes.start[:-1])
    return Known(
        first.states,
        first.actions,
        first.horizon,
        base.reshape(first.states, first.actions),
        outcomes._replace(bonus=features.rewards - base[outcomes.pair]),
        initial=first.known.initial,
    )
