"""A ladder of models as a TOML file: ``read_ladder(path)``.

Either the ladder that a problem brings along (``problem``, ``parameters``), or ``[[classes]]`` from
the smallest to the largest. Each lists what it *adds* to those before it, so that classes are
nested as they stand::

    horizon = 30
    reward = "reward.npz"                 # an array [S, A] or [S, A, S']; without it the rewards are not known
    [[classes]]
    name = "dry"
    kernels = ["dry.npz", "rain.npz"]     # of one array each, [S, A, S'] or [n, S, A, S']

or ``environments`` and ``mixtures`` of them in place of ``kernels``; ``docs/environments.md``
describes all keys. Files are looked for beside the TOML file and never unpickled; an id of an
environment imports no module.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from occamrl.envs.wrapper import make_environment
from occamrl.errors import (
    ParameterError,
    UnknownName,
    as_floats,
    as_path,
    require_choice,
    require_integer,
)
from occamrl.models.families import FiniteFamily
from occamrl.models.features import FeatureMap
from occamrl.models.ladder import Ladder
from occamrl.models.simulators import grid_reach, mixtures
from occamrl.problems.lakes import mdp_from_env, smallest_range
from occamrl.problems.mdp import FiniteMDP, RewardMap, as_mdp, reward_map
from occamrl.problems.named import make_problem
from occamrl.protocols import UNIT, Floats, Known

LADDERS = Path(__file__).resolve().parent.parent / "ladders"  # those that come with the package
_KEYS = ("problem", "parameters", "horizon", "reward", "reward_range", "classes")
_KINDS = {"kernels", "environments", "mixtures"}


@dataclass(frozen=True, kw_only=True, eq=False)
class LadderSpec:
    """A ladder with what is needed to play or test it."""

    ladder: Any  # a Ladder; the command line also has ladders of real parameters
    known: Known  # sizes, horizon and rewards
    rewards: RewardMap = UNIT  # maps the environment's own rewards to those that are known

    @property
    def names(self) -> tuple[str, ...]:
        """What the classes are called."""
        return tuple(self.ladder.names)


def shipped_ladders() -> list[str]:
    """Return the names of the ladders that come with the package."""
    return sorted(path.stem for path in LADDERS.glob("*.toml"))


def ladder_of_problem(problem: Any) -> LadderSpec:
    """Return the ladder that a problem brings along."""
    known = as_mdp(problem).known
    return LadderSpec(
        ladder=Ladder.of_problem(problem), known=known, rewards=getattr(problem, "unit", known.unit)
    )


def read_ladder(path: str | Path, *, horizon: int | None = None) -> LadderSpec:
    """Read a ladder that comes with the package, by its name, or one in a TOML file; ``horizon`` replaces the file's.

    >>> import occamrl as orl
    >>> spec = orl.read_ladder("cliff-walking")
    >>> spec.ladder.names
    ('dry', 'slippery', 'anything between')

    A ParameterError says what is wrong with the file, and where.
    """
    ours = str(path) in shipped_ladders()  # before it is a path: ./taxi is no name
    path = LADDERS / f"{path}.toml" if ours else as_path("ladder", path)
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        near = UnknownName("ladder", got=path, known=shipped_ladders()).expected
        raise ParameterError(
            path, got=error, expected=f"a TOML file, or a shipped ladder, {near}"
        ) from error
    for key in data:
        require_choice(f"{path}: key", key, _KEYS)
    if ("problem" in data) == ("classes" in data):
        raise ParameterError(path, got="both or neither", expected="`problem`, or [[classes]]")
    file = _File(path, data if horizon is None else {**data, "horizon": horizon})
    return file.of_problem() if "problem" in data else file.of_classes()


class _File(NamedTuple):
    """What a TOML file says, on its way to a ladder."""

    path: Path
    data: dict[str, Any]

    def bad(self, key: str, got: object, expected: object) -> ParameterError:
        return ParameterError(f"{self.path}: {key}", got=got, expected=expected)

    def of_problem(self) -> LadderSpec:
        data, parameters = self.data, self.data.get("parameters", {})
        if {"reward", "reward_range"} & set(data) or not isinstance(parameters, dict):
            raise self.bad(
                "problem", sorted(data), "a table of parameters, and the problem's own rewards"
            )
        horizon = {"horizon": data["horizon"]} if "horizon" in data else {}
        return ladder_of_problem(make_problem(data["problem"], **{**parameters, **horizon}))

    def of_classes(self) -> LadderSpec:
        classes = self.data["classes"]
        require_integer(f"{self.path}: horizon", self.data.get("horizon"), 1)
        if (
            not isinstance(classes, list)
            or not classes
            or not all(isinstance(each, dict) for each in classes)
        ):
            raise self.bad("classes", repr(classes), "at least one table [[classes]]")
        kinds = set()
        for m, each in enumerate(classes, start=1):
            given = {*each} - {"name"}
            if len(given) != 1 or not given <= _KINDS or not all(each[kind] for kind in given):
                raise self.bad(
                    f"classes[{m}]",
                    sorted(given),
                    "one of `kernels`, `environments` and `mixtures`",
                )
            kinds |= given
        if ("kernels" in kinds and len(kinds) > 1) or kinds == {"mixtures"}:
            raise self.bad(
                "classes", "kernels and environments", "kernels, or environments, in all"
            )
        names = tuple(str(each.get("name", f"F_{m}")) for m, each in enumerate(classes, start=1))
        return self.of_kernels(names) if kinds == {"kernels"} else self.of_environments(names)

    def of_kernels(self, names: tuple[str, ...]) -> LadderSpec:
        stacks: list[Floats] = []
        for m, each in enumerate(self.data["classes"], start=1):
            files, place = each["kernels"], f"{self.path}: classes[{m}].kernels"
            parts = [
                self.array(file, place) for file in (files if isinstance(files, list) else [files])
            ]
            parts = [part[np.newaxis] if part.ndim == 3 else part for part in parts]
            for part in parts:
                size = (stacks[0] if stacks else parts[0]).shape[1:]
                if part.ndim != 4 or part.shape[1:] != size or not len(part):
                    raise ParameterError(
                        place, got=part.shape, expected=f"at least one [S, A, S] = {size}"
                    )
            stacks.append(np.concatenate(parts))
        rewards, horizon = reward_map(self.data.get("reward_range")), self.data["horizon"]
        states, actions = stacks[0].shape[1:3]
        known = Known.of_sizes(states=states, actions=actions, horizon=horizon)
        if "reward" in self.data:
            reward = self.array(self.data["reward"], f"{self.path}: reward")
            mdp = FiniteMDP(
                transition=stacks[0][0], reward=reward, horizon=horizon, reward_range=rewards
            )
            known = mdp.known
        level = np.repeat(np.arange(len(stacks)), [len(stack) for stack in stacks])
        ladder = Ladder.of_levels(FiniteFamily(np.concatenate(stacks)), level, names=names)
        return LadderSpec(ladder=ladder, known=known, rewards=rewards)

    def of_environments(self, names: tuple[str, ...]) -> LadderSpec:
        if "reward" in self.data:
            raise self.bad("reward", "a value", "none: environments have their own")
        environments: list[gym.Env[Any, Any]] = []
        weights: list[tuple[float, ...]] = []
        sizes, grids = (
            [],
            [],
        )  # of each class: members up to it; environments and parts that it mixes
        for m, each in enumerate(self.data["classes"], start=1):
            place = f"{self.path}: classes[{m}]"
            grids.append((1, 1))
            if "mixtures" in each:
                parts = require_integer(f"{place}.mixtures", each["mixtures"], 1, maximum=1_000)
                grids[-1] = (len(environments), parts)
                size = len(environments)
                known = {(*weight, *[0.0] * (size - len(weight))) for weight in weights}
                made = map(
                    tuple, mixtures(f"{place}.mixtures", *grids[-1], min(size, parts)).tolist()
                )
                weights.extend(weight for weight in made if weight not in known)
            entries = each.get("environments", [])
            for i, entry in enumerate(entries if isinstance(entries, list) else [entries]):
                weights.append((0.0,) * len(environments) + (1.0,))
                about = {"id": entry} if isinstance(entry, str) else entry
                if (
                    not isinstance(about, dict)
                    or not isinstance(about.get("id"), str)
                    or ":" in about["id"]
                ):
                    expected = "{ id = ..., options } of a registered environment"
                    raise self.bad(f"classes[{m}].environments[{i}]", repr(entry), expected)
                options = {key: option for key, option in about.items() if key != "id"}
                environments.append(
                    make_environment(f"{place}.environments[{i}]", about["id"], options)
                )
            sizes.append(len(weights))
        chosen = self.data.get("reward_range", smallest_range(environments))
        problems = [
            mdp_from_env(env, horizon=self.data["horizon"], reward_range=chosen)[0]
            for env in environments
        ]
        features = FeatureMap.of_simulators(problems)
        vectors = np.array(
            [[*weight, *[0.0] * (len(problems) - len(weight))] for weight in weights]
        )
        reach = np.maximum.accumulate(
            [grid_reach(features.restrict(range(n)), n, parts) for n, parts in grids]
        )
        family = FiniteFamily(parameters=vectors, features=features)
        level = np.repeat(np.arange(len(sizes)), np.diff(sizes, prepend=0))
        ladder = Ladder.of_levels(family, level, reach.tolist(), names)
        return LadderSpec(
            ladder=ladder, known=_known_of(problems, features), rewards=reward_map(chosen)
        )

    def array(self, file: object, field: str) -> Floats:
        """Return the array of an NPZ file beside this one; nothing is unpickled."""
        folder, expected = (
            self.path.parent.resolve(),
            "an NPZ file of one plain array, in the folder of the TOML file",
        )
        if not isinstance(file, str) or not (folder / file).resolve().is_relative_to(folder):
            raise ParameterError(field, got=repr(file), expected=expected)
        try:
            with np.load(folder / file, allow_pickle=False) as archive:
                (array,) = archive.values()
        except Exception as error:  # whatever a foreign file leads to
            raise ParameterError(field, got=f"{file}: {error}", expected=expected) from error
        return as_floats(field, array)


def _known_of(problems: Sequence[FiniteMDP], features: FeatureMap) -> Known:
    """Return what an agent may know when the truth is one of several problems: the rewards of all their outcomes."""
    first, outcomes = problems[0], features.outcomes
    if features.rewards is None:  # functions of (s, a)
        for mdp in problems:
            if not np.allclose(mdp.base_reward, first.base_reward, rtol=0.0, atol=1e-12):
                raise ParameterError(
                    "environments", got="different rewards", expected="the same r(s, a) in all"
                )
        return first.known
    base = np.minimum.reduceat(features.rewards, outcomes.start[:-1])
    listed = outcomes._replace(bonus=features.rewards - base[outcomes.pair])
    sizes = first.states, first.actions
    return Known(*sizes, first.horizon, base.reshape(sizes), listed, initial=first.known.initial)
