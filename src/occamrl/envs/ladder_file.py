"""A ladder of models as a TOML file, for the command line: ``read_ladder(path)``.

Either the ladder that a problem brings along (``problem``, ``parameters``), or ``[[rungs]]`` from the smallest class to
the largest. Each lists what it *adds* to the rungs before it, so that classes are nested as they stand::

    horizon = 30
    reward = "reward.npz"                 # an array [S, A] or [S, A, S']; not with environments
    [[rungs]]
    name = "dry"
    kernels = ["dry.npz", "rain.npz:heavy"]         # [S, A, S'] or [n, S, A, S']; file:array where a file holds several

or ``environments`` and ``mixtures`` of them in place of ``kernels``; ``docs/environments.md`` describes all keys. Files
are looked for beside the TOML file and never unpickled. Environments must be registered already: an id that would
import a module ("module:id") is refused.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from occamrl.envs.wrapper import make_environment, rewards_of_problem
from occamrl.errors import (
    InvalidInput,
    ParameterError,
    UnknownName,
    as_path,
    as_toml,
    require_choice,
    require_integer,
    require_memory,
)
from occamrl.learners.rewards import Rewards, require_rewards, rewards_of
from occamrl.learners.ucrl_vtr_lin import KERNELS
from occamrl.models.features import FeatureMap, read_problems
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.models.simulators import grid_reach
from occamrl.problems.mdp import FiniteMDP, RewardMap, as_mdp, reward_map
from occamrl.problems.tables import require_whole_truth, smallest_range, table_of
from occamrl.protocols import Floats, Known
from occamrl.registry import make_problem


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LadderSpec:
    """A ladder with what is needed to play or test it."""

    ladder: Ladder
    known: Known  # sizes, horizon and rewards
    # The known rewards are the environment's own, mapped by this.
    rewards: RewardMap = dataclasses.field(default_factory=RewardMap)
    estimate: Rewards = "known"  # how an agent comes to know the rewards
    kernel: str = "stationary"

    def __post_init__(self) -> None:
        require_rewards(self.estimate)
        require_choice("kernel", self.kernel, KERNELS)
        if not isinstance(self.estimate, str):
            object.__setattr__(self, "known", self.known.without_rewards)

    @property
    def options(self) -> dict[str, Any]:
        """What an agent on the ladder is given beside it: ``rewards`` and ``kernel``."""
        return {"rewards": self.estimate, "kernel": self.kernel}

    @property
    def names(self) -> tuple[str, ...]:
        """What the classes are called."""
        return self.ladder.names

    @property
    def horizon(self) -> int:
        """H."""
        return self.known.horizon


def ladder_of_problem(problem: Any) -> LadderSpec:
    """Return the ladder that a problem brings along: ``phi``, ``hypotheses`` and ``sizes``."""
    ladder, known = Ladder.of_problem(problem), as_mdp(problem).known
    return LadderSpec(ladder=ladder, known=known, rewards=rewards_of_problem(problem))


LADDERS = Path(__file__).resolve().parent.parent / "ladders"  # those that come with the package
LARGEST = 2**20
LARGEST_ARRAY = 2**30
_KEYS = ("problem", "parameters", "horizon", "reward", "reward_range", "rungs", "rewards", "kernel")
_RUNG_KEYS = ("name", "kernels", "environments", "mixtures")
_MOST_MIXTURES = 100_000
_MOST_PARTS = 1_000  # of a mixture
_OF_THE_SYSTEM = (MemoryError, RuntimeError)  # links in a circle, among others


class LadderSpecError(InvalidInput):
    """A ladder's TOML file, or a file it names, cannot be used."""


def read_ladder(
    path: str | Path, *, horizon: int | None = None, rewards: object = None, kernel: str | None = None
) -> LadderSpec:
    """Read a ladder from a TOML file; ``horizon``, ``rewards`` and ``kernel`` replace those of the file.

    >>> import occamrl as orl
    >>> spec = orl.read_ladder("cliff-walking")  # a shipped ladder, or a TOML file
    >>> names = spec.ladder.names

    Raises
    ------
    LadderSpecError
        What is wrong with the file, and where.
    """
    ours = str(path) in shipped_ladders()  # before it is a path: ./taxi is no name
    path = LADDERS / f"{path}.toml" if ours else as_path("ladder", path)
    try:
        if not path.is_file():
            path.lstat()  # raises where there is nothing
            raise LadderSpecError(str(path), got="no regular file", expected="a TOML file")
        if path.stat().st_size > LARGEST:
            raise LadderSpecError(str(path), got=f"{path.stat().st_size:,} bytes", expected=f"at most {LARGEST:,}")
        data = as_toml(str(path), path.read_bytes())
    except OSError as error:
        near = UnknownName("ladder", got=path, known=shipped_ladders()).expected
        expected = f"a TOML file, or a shipped ladder, {near}"
        raise LadderSpecError(str(path), got=error.strerror or error, expected=expected) from error
    except ParameterError as error:
        raise LadderSpecError(str(path), got=error.got, expected=error.expected) from error
    for key in data:
        require_choice(f"{path}: key", key, _KEYS)
    given = {"horizon": horizon, "rewards": rewards, "kernel": kernel}
    file = _File(path, data | {key: value for key, value in given.items() if value is not None})
    estimate = rewards_of(file.data.get("rewards", "known"), f"{path}: rewards", file.array)
    steps = file.data.get("kernel", "stationary")
    require_choice(f"{path}: kernel", steps, KERNELS)
    if ("problem" in data) == ("rungs" in data):
        raise LadderSpecError(str(path), got="both or neither", expected="`problem`, or [[rungs]]")
    spec = file.of_problem() if "problem" in data else file.of_rungs(estimated=not isinstance(estimate, str))
    return dataclasses.replace(spec, estimate=estimate, kernel=steps)


def shipped_ladders() -> list[str]:
    """Return the names of the ladders that come with the package."""
    return sorted(path.stem for path in LADDERS.glob("*.toml"))


class _File:
    """What a TOML file says, on its way to a ladder."""

    def __init__(self, path: Path, data: dict[str, Any]) -> None:
        self.path, self.data = path, data
        self.bytes = 0  # of the arrays read so far

    def bad(self, key: str, got: object, expected: object) -> LadderSpecError:
        return LadderSpecError(f"{self.path}: {key}", got=got, expected=expected)

    def of_problem(self) -> LadderSpec:
        data, parameters = self.data, self.data.get("parameters", {})
        for key in {"reward", "reward_range"} & set(data):
            raise self.bad(key, "a value", "none: the problem has its own")
        if not isinstance(parameters, dict):
            raise self.bad("parameters", repr(parameters), "a table")
        plain = {key: tuple(value) if isinstance(value, list) else value for key, value in parameters.items()}
        if "horizon" in data:
            plain["horizon"] = data["horizon"]
        return ladder_of_problem(make_problem(data["problem"], **plain))

    def of_rungs(self, *, estimated: bool) -> LadderSpec:
        rungs, horizon = self.data["rungs"], self.data.get("horizon")
        if horizon is None:
            raise self.bad("horizon", "nothing", "the number of steps of an episode")
        require_integer(f"{self.path}: horizon", horizon, 1)
        if not isinstance(rungs, list) or not rungs or not all(isinstance(rung, dict) for rung in rungs):
            raise self.bad("rungs", repr(rungs), "at least one table [[rungs]]")
        kinds = set()
        for m, rung in enumerate(rungs, start=1):
            for key in rung:
                require_choice(f"{self.path}: rungs[{m}] key", key, _RUNG_KEYS)
            given = [kind for kind in _RUNG_KEYS[1:] if kind in rung]
            if len(given) != 1 or not rung[given[0]]:
                raise self.bad(f"rungs[{m}]", given or "nothing", "one of `kernels`, `environments` and `mixtures`")
            kinds.add(given[0])
        if ("kernels" in kinds and len(kinds) > 1) or kinds == {"mixtures"}:
            raise self.bad("rungs", "kernels and environments", "kernels, or environments, in all")
        names = tuple(str(rung.get("name", f"F_{m}")) for m, rung in enumerate(rungs, start=1))
        return self.of_kernels(names, estimated) if kinds == {"kernels"} else self.of_environments(names)

    def of_kernels(self, names: tuple[str, ...], estimated: bool) -> LadderSpec:
        if ("reward" in self.data) == estimated:
            wanted = "an NPZ file with r[s, a] or r[s, a, s'], or `rewards`"
            raise self.bad(
                "reward", *(("a value", "none: rewards are estimated") if estimated else ("nothing", wanted))
            )
        stacks: list[Floats] = []
        for m, rung in enumerate(self.data["rungs"], start=1):
            files, field = rung["kernels"], f"{self.path}: rungs[{m}].kernels"
            parts = [self.array(file, field) for file in (files if isinstance(files, list) else [files])]
            parts = [part[np.newaxis] if part.ndim == 3 else part for part in parts]
            for part in parts:
                size = (stacks[0] if stacks else parts[0]).shape[1:]
                if part.ndim != 4 or part.shape[1:] != size or not len(part):
                    got = f"{len(part)} kernels {list(part.shape[1:])}"
                    raise LadderSpecError(field, got=got, expected=f"at least one [S, A, S] = {size}")
            stacks.append(np.concatenate(parts))
        given = reward_map(self.data.get("reward_range"))
        reward = np.full(stacks[0].shape[1:3], given.low)  # stands for nothing where rewards are estimated
        if not estimated:
            reward = self.array(self.data["reward"], f"{self.path}: reward")
        horizon = self.data["horizon"]
        mdp = FiniteMDP(transition=stacks[0][0], reward=reward, horizon=horizon, reward_range=given)
        whole, sizes = FiniteFamily(np.concatenate(stacks)), np.cumsum([len(stack) for stack in stacks]).tolist()
        ladder = Ladder.of_prefixes(whole.theta.T, whole.features, sizes, names=names)
        return LadderSpec(ladder=ladder, known=mdp.known, rewards=given)

    def of_environments(self, names: tuple[str, ...]) -> LadderSpec:
        if "reward" in self.data:
            raise self.bad("reward", "a value", "none: environments have their own")
        environments: list[gym.Env[Any, Any]] = []
        weights: list[tuple[float, ...]] = []
        sizes, grids = [], []
        for m, rung in enumerate(self.data["rungs"], start=1):
            grids.append((1, 1))
            if "mixtures" in rung:
                field = f"{self.path}: rungs[{m}].mixtures"
                parts = require_integer(field, rung["mixtures"], 1, most=_MOST_PARTS)
                if not environments:
                    raise LadderSpecError(field, got="no environment before it", expected="at least one to mix")
                grids[-1] = (len(environments), parts)
                weights.extend(_mixtures(field, *grids[-1], weights))
            entries = rung.get("environments", [])
            for i, entry in enumerate(entries if isinstance(entries, list) else [entries]):
                weights.append((0.0,) * len(environments) + (1.0,))
                environments.append(_make(f"{self.path}: rungs[{m}].environments[{i}]", entry))
            sizes.append(len(weights))
        for env in environments:
            require_whole_truth(env)
        chosen = self.data.get("reward_range", smallest_range(environments))
        problems = [table_of(env, horizon=self.data["horizon"], reward_range=chosen).mdp for env in environments]
        # Members are compared over outcomes (s', reward) (M20): rewards may depend on more than (s, a, s').
        features = FeatureMap.of_simulators(problems)
        vectors = np.array([[*weight, *[0.0] * (len(problems) - len(weight))] for weight in weights])
        reach = np.maximum.accumulate([grid_reach(features.restrict(range(n)), n, grid) for n, grid in grids])
        ladder = Ladder.of_prefixes(vectors, features, sizes, reach.tolist(), names)
        return LadderSpec(ladder=ladder, known=_known_of_several(problems), rewards=reward_map(chosen))

    def array(self, where: object, field: str) -> Floats:
        """Return an array of an NPZ file beside this one, ``file`` or ``file:array``; nothing is unpickled."""
        if not isinstance(where, str):
            raise LadderSpecError(field, got=repr(where), expected="the name of an NPZ file")
        file, _, name = where.partition(":")
        try:
            folder = self.path.parent.resolve()
            path = (folder / file).resolve()
            if not path.is_relative_to(folder) or (path.exists() and not path.is_file()):
                expected = "a regular file beside the TOML file, or in a folder there"
                raise LadderSpecError(field, got=file, expected=expected)
            with np.load(path, allow_pickle=False) as arrays, zipfile.ZipFile(path) as archive:
                names = list(arrays.files)
                if not name and len(names) != 1:
                    raise LadderSpecError(field, got=f"{file} with {names}", expected="one array, or file:array")
                if name:
                    require_choice(field, name, names)
                name = name or names[0]
                with archive.open(f"{name}.npy") as head:
                    np.lib.format.read_magic(head)
                    shape, _, dtype = np.lib.format.read_array_header_1_0(head)
                size = max(math.prod(shape) * max(dtype.itemsize, 8), archive.getinfo(f"{name}.npy").file_size)
                if size > LARGEST_ARRAY:
                    raise LadderSpecError(field, got=f"{file}: {size:,} bytes", expected=f"at most {LARGEST_ARRAY:,}")
                self.bytes += size  # all arrays are joined to one, and that to a family
                require_memory(field, file, 2, self.bytes // 8)
                array = np.asarray(arrays[name])
        except InvalidInput:
            raise
        except (OSError, ValueError, EOFError, KeyError, TypeError, *_OF_THE_SYSTEM, zipfile.BadZipFile) as error:
            got = f"{file:.200}: {getattr(error, 'strerror', None) or error}"
            raise LadderSpecError(field, got=got, expected="an NPZ file of plain arrays") from error
        if array.dtype.kind not in "biuf" or array.ndim not in (2, 3, 4):
            got = f"{file}: {array.dtype}{list(array.shape)}"
            raise LadderSpecError(field, got=got, expected="an array of numbers")
        return array.astype(np.float64)


def _mixtures(field: str, size: int, parts: int, known: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Return the mixtures of ``size`` members with weights that are multiples of 1/parts, less those already known."""
    if math.comb(parts + size - 1, parts) > _MOST_MIXTURES:
        got = f"{parts} parts of {size} environments"
        raise LadderSpecError(field, got=got, expected=f"at most {_MOST_MIXTURES:,} mixtures")
    seen = {tuple(weight) + (0.0,) * (size - len(weight)) for weight in known}
    counts = itertools.combinations_with_replacement(range(size), parts)
    grid = [tuple(chosen.count(i) / parts for i in range(size)) for chosen in counts]
    return [weight for weight in grid if weight not in seen]


def _known_of_several(problems: Sequence[FiniteMDP]) -> Known:
    """Return what an agent may know when the truth is one of several problems: the rewards of all their outcomes."""
    outcomes, _, rewards = read_problems(problems)
    sizes = (problems[0].states, problems[0].actions)
    base = np.minimum.reduceat(rewards, outcomes.start[:-1])
    bonus = rewards - np.repeat(base, np.diff(outcomes.start))
    listed = outcomes._replace(bonus=bonus) if bonus.any() else None
    return Known(*sizes, problems[0].horizon, base.reshape(sizes), listed)


def _make(field: str, entry: Any) -> gym.Env[Any, Any]:
    about: dict[str, Any] = {"id": entry} if isinstance(entry, str) else dict(entry) if isinstance(entry, dict) else {}
    name = about.pop("id", None)
    if not isinstance(name, str) or ":" in name:
        raise LadderSpecError(field, got=repr(entry), expected="{ id = ..., options } of a registered environment")
    return make_environment(field, name, about, LadderSpecError)
