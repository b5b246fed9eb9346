"""The spec of an experiment: one TOML file, checked as a whole, that expands to cells.

::

    name = "river"
    episodes = 10_000
    seeds = 5                      # 0, ..., 4; or a list
    thinning = 500                 # points kept of a curve; 0: every episode

    [[problem]]
    name = "RiverSwim"
    sweep = { states = [3, 4] }    # one problem for each; several lists: every combination

    [[agent]]
    name = "UCRLVTRLin"
    parameters = { features = "tabular", norm_bound = "sqrt(SA)" }

All errors of a file are reported at once: where, what was got, what was expected, the nearest valid name.

A cell is one problem, one agent, one seed. Its id is a hash of its content, so other cells never disturb it.

Agents need what only the problem knows. Their parameters take symbolic values for it, such as ``norm_bound = "true"``;
which ones follows from the field of the agent's dataclass, and `docs/experiments.md` lists them. The references of a
selector (:mod:`occamrl.selectors.references`) are named like agents.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import math
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from occamrl import registry, seeding
from occamrl.errors import (
    Fault,
    InvalidInput,
    OccamRLError,
    ParameterError,
    RecordError,
    SpecError,
    UnknownName,
    as_path,
    require_choice,
)
from occamrl.learners.rewards import rewards_of
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.protocols import Agent, Floats
from occamrl.running.storage import canonical, read_plain, sha256
from occamrl.selectors.references import REFERENCES, oracle

FORMAT = 1
LARGEST_SPEC = 2**20
MOST_CELLS = 100_000
MOST_EPISODES = 10**12
MOST_POINTS = 10**9  # of a curve
_OF_PARAMETERS = (OccamRLError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, MemoryError)


def agents() -> dict[str, Any]:
    """Return every learner, selector and reference of a selector, by name."""
    return registry.learners() | registry.selectors() | REFERENCES


def make_agent(name: str, parameters: dict[str, Any], problem: Any, episodes: int) -> Agent:
    """Return an agent for a problem, with the symbolic values among its parameters resolved."""
    kind: Any = registry.find("agent", name, agents())
    if kind in REFERENCES.values():
        return _reference(kind, dict(parameters), problem, episodes)
    known = inspect.signature(kind).parameters
    for given in parameters:
        require_choice(given, given, known)
    types = {each.name: str(each.type) for each in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
    made = dict(parameters)
    for each, about in known.items():
        if each in made or about.default is inspect.Parameter.empty:
            made[each] = _resolved(each, types.get(each, ""), made, problem, episodes)
    agent: Agent = kind(**made)
    return agent


def _reference(kind: Any, parameters: dict[str, Any], problem: Any, episodes: int) -> Agent:
    """Return a reference of the selector that ``parameters`` name and describe; an oracle knows the problem's truth."""
    name = parameters.pop("selector", None)
    if not isinstance(name, str):
        raise ParameterError("selector", got=repr(name), expected="the name of a selector")
    found = registry.find("selector", name, registry.selectors()).__name__
    selector: Any = make_agent(found, parameters, problem, episodes)
    if kind is not oracle:
        reference: Agent = kind(selector)
        return reference
    if hasattr(selector, "ladder"):
        truth = selector.ladder.class_of(problem.mdp)
        missing = "none of the ladder's classes holds the problem's kernel"
    else:
        truth = getattr(problem, "theta", None)
        missing = f"{type(problem).__name__} has no theta"
    if truth is None:
        raise ParameterError("selector", got=repr(name), expected=f"one whose answer is known: {missing}")
    knowing: Agent = oracle(selector, truth)
    return knowing


def _resolved(name: str, kind: str, made: dict[str, Any], problem: Any, episodes: int) -> Any:
    """Return what ``made[name]`` stands for; a required parameter that is missing gets its default."""
    value = made.get(name)
    if "FeatureMap" in kind:
        return _features(name, value, problem)
    if "FiniteMDP" in kind:
        require_choice(name, "problem" if value is None else value, ["problem"])
        return problem.mdp
    if "FiniteFamily" in kind:
        table = _table(name, {} if value is None else value, ("random", "seed"))
        return FiniteFamily(_kernels(problem, _count(name, table, "random", 7) + 1, _count(name, table, "seed", 0)))
    if "Ladder" in kind:
        return _ladder(name, value, problem)
    if kind == "Rewards":
        return rewards_of(value, name)
    if name not in made:
        raise ParameterError(name, got="nothing", expected="a value: it is required")
    if name == "norm_bound" and isinstance(value, str):
        return _norm(value, made.get("features"), problem)
    if name == "delta" and isinstance(value, str):
        if value.replace(" ", "") != "1/K":
            raise ParameterError(name, got=repr(value), expected='a number in (0, 1), or "1/K"')
        return 1.0 / episodes
    return value


def _features(name: str, value: Any, problem: Any) -> FeatureMap:
    mdp, own = problem.mdp, getattr(problem, "phi", None)
    if value is None:
        value = "tabular" if own is None else "problem"
    if value == "tabular":
        return FeatureMap.tabular(states=mdp.states, actions=mdp.actions)
    if not isinstance(value, dict):
        require_choice(name, value, ("problem", "tabular", "support"))
    if own is None:
        raise ParameterError(name, got=repr(value), expected=f'"tabular": {type(problem).__name__} has no features')
    if value == "problem":
        return FeatureMap(own)
    if value == "support":
        return FeatureMap(own).restrict(np.flatnonzero(problem.theta).tolist())
    chosen = _table(name, value, ("restrict",)).get("restrict")
    if not isinstance(chosen, list) or not chosen:
        raise ParameterError(f"{name}.restrict", got=repr(chosen), expected="a list of coordinates")
    return FeatureMap(own).restrict(chosen)


def _norm(text: str, features: Any, problem: Any) -> float:
    found = re.fullmatch(r"(?:\s*([0-9.eE+-]+)\s*\*)?\s*(true|sqrt\(SA\))\s*", text)
    if found is None:
        raise ParameterError("norm_bound", got=repr(text), expected='a number, "true", "sqrt(SA)" or "4 * true"')
    factor = float(found.group(1) or 1.0)
    if found.group(2) == "sqrt(SA)":
        return factor * float(np.sqrt(problem.mdp.states * problem.mdp.actions))
    if isinstance(features, FeatureMap) and features.is_tabular:
        return factor * float(np.linalg.norm(_kernel(problem)))
    theta = getattr(problem, "theta", None)
    if theta is None:
        raise ParameterError("norm_bound", got=repr(text), expected=f"a number: {type(problem).__name__} has no theta")
    return factor * float(np.linalg.norm(theta))


def _kernel(problem: Any) -> Floats:
    """Return the problem's kernel [S, A, S], from its outcomes."""
    mdp = problem.mdp
    if mdp.truth.probability.shape[0] != 1:
        raise ParameterError("problem", got="a kernel that changes with the step", expected="a stationary one")
    start, next_state, _ = mdp.truth.outcomes
    dense = np.zeros((mdp.states * mdp.actions, mdp.states))
    pair = np.repeat(np.arange(mdp.states * mdp.actions), np.diff(start))
    np.add.at(dense, (pair, next_state), mdp.truth.probability[0])
    return dense.reshape(mdp.states, mdp.actions, mdp.states)


def _kernels(problem: Any, count: int, seed: int, first: int = 0) -> Floats:
    """Return ``count`` kernels: the problem's own at position ``first``, the others drawn uniformly."""
    truth = _kernel(problem)
    draw = seeding.stream(seed, "spec", "kernels")
    kernels = draw.dirichlet(np.ones(truth.shape[2]), size=(count, *truth.shape[:2]))
    kernels[first] = truth
    return kernels


def _ladder(name: str, value: Any, problem: Any) -> Ladder:
    own = hasattr(problem, "hypotheses")
    if value == "problem" or (value is None and own):
        if not own:
            expected = f"a table with sizes, true, seed: {type(problem).__name__} brings no ladder along"
            raise ParameterError(name, got=repr(value), expected=expected)
        return Ladder.of_problem(problem)
    table = _table(name, {} if value is None else value, ("sizes", "true", "seed"))
    sizes = table.get("sizes", [2, 8, 32])
    good = isinstance(sizes, list) and all(type(size) is int and 0 < size <= 10**6 for size in sizes)
    if not good or not sizes or sizes != sorted(set(sizes)):
        raise ParameterError(f"{name}.sizes", got=sizes, expected="increasing whole numbers")
    joins = _count(name, table, "true", 1)
    if not 1 <= joins <= len(sizes):
        raise ParameterError(f"{name}.true", got=joins, expected=f"a class from 1 to {len(sizes)}")
    first = 0 if joins == 1 else sizes[joins - 2]
    kernels = _kernels(problem, sizes[-1], _count(name, table, "seed", 0), first)
    return Ladder([FiniteFamily(kernels[:size]) for size in sizes])


def _table(name: str, value: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ParameterError(name, got=repr(value), expected=f"a table with {', '.join(keys)}")
    for key in value:
        require_choice(f"{name}.{key}", key, keys)
    return value


def _count(name: str, table: dict[str, Any], key: str, default: int) -> int:
    value = table.get(key, default)
    if type(value) is not int or not 0 <= value <= 10**6:
        raise ParameterError(f"{name}.{key}", got=repr(value), expected="a whole number up to a million")
    return value


def _listed(value: Any) -> Any:
    """Return the seeds 0, ..., n - 1 for a number n; what is a list is checked as one."""
    if isinstance(value, list):
        return value
    if type(value) is not int or not 1 <= value <= MOST_CELLS:
        raise ValueError(f"a number from 1 to {MOST_CELLS:,}, or a list of seeds")
    return list(range(value))


Count = Annotated[int, Field(ge=1, le=MOST_EPISODES, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Seeds = Annotated[list[Seed], Field(min_length=1, max_length=MOST_CELLS), BeforeValidator(_listed)]
Thinning = Annotated[int, Field(ge=0, le=MOST_POINTS, strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Label = Annotated[str, Field(max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Entry(_Strict):
    """A problem or an agent: what every variant has, and what is swept over."""

    name: Name
    label: Label = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many variants there are."""
        return math.prod(map(len, self.sweep.values()))

    def variants(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (label, parameters) for every combination of the swept values."""
        for values in itertools.product(*self.sweep.values()):
            swept = dict(zip(self.sweep, values, strict=True))
            label, rest = self.label or self.name, []
            for key, value in swept.items():
                if f"{{{key}}}" in label:
                    label = label.replace(f"{{{key}}}", str(value))
                else:
                    rest.append(f"{key}={value}")
            yield label + (f" ({', '.join(rest)})" if rest else ""), {**self.parameters, **swept}


_Entry = TypeVar("_Entry", bound=Entry)


class ProblemEntry(Entry):
    """A problem; ``episodes`` overrides the experiment's."""

    episodes: Count | None = None


class AgentEntry(Entry):
    """An agent; ``only`` limits it to problems of these names or labels."""

    only: list[Name] = Field(default_factory=list)

    def plays(self, problem: ProblemEntry, label: str) -> bool:
        """Say whether the agent plays the problem's variant of this label."""
        return not self.only or not {problem.name, label}.isdisjoint(self.only)


class Spec(_Strict):
    """A whole experiment."""

    name: Name
    episodes: Count
    seeds: Seeds
    thinning: Thinning = 1_000
    baseline: Label = ""  # the agent's label that a report compares with
    description: str = ""
    problem: Annotated[list[ProblemEntry], Field(min_length=1)]
    agent: Annotated[list[AgentEntry], Field(min_length=1)]

    @property
    def entries(self) -> tuple[tuple[str, Sequence[Entry]], ...]:
        """Problems and agents, with the keys under which they stand."""
        return ("problem", self.problem), ("agent", self.agent)


def shipped() -> list[str]:
    """Return the names of the specs that come with the package."""
    folder = resources.files("occamrl").joinpath("specs")
    return sorted(each.name.removesuffix(".toml") for each in folder.iterdir() if each.name.endswith(".toml"))


def read_source(spec: str | Path) -> tuple[str, bytes]:
    """Return (where it is, content) of a spec file, or of a shipped spec called by its name.

    The name of a shipped spec is that spec, whatever lies in the current folder; ``./demo`` is a path.
    """
    names = shipped()
    if str(spec) in names:
        found = resources.files("occamrl").joinpath("specs", f"{spec}.toml")
        return str(found), found.read_bytes()
    path = as_path("spec", spec)
    if not os.path.isfile(path):  # noqa: PTH113  # a name too long is not there, either
        near = UnknownName("spec", got=spec, known=names).suggestion
        hint = f"; did you mean {near!r}?" if near else ""
        raise SpecError(spec, [Fault("file", "nothing there", f"a TOML file, or one of {', '.join(names)}{hint}")])
    try:
        return str(path), read_plain(path.resolve(), LARGEST_SPEC)
    except RecordError as error:
        raise SpecError(path, [Fault("file", str(error.got), str(error.expected))]) from error


def parse(content: bytes, path: str | Path) -> tuple[dict[str, Any], Spec]:
    """Return the TOML data and the spec, whose form is checked; :func:`expand` checks names and parameters."""
    try:
        data = tomllib.loads(content.decode("utf-8-sig"))  # some editors begin a file with a mark of the encoding
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise SpecError(path, [Fault("file", f"{error}", "TOML in UTF-8")]) from error
    try:
        spec = Spec.model_validate(data)
    except ValidationError as error:
        raise SpecError(path, [fault_of_form(each) for each in error.errors()]) from error
    for kind, entries in spec.entries:  # what would not come to an end, before anything is expanded
        if (count := sum(entry.size for entry in entries)) > MOST_CELLS:
            raise SpecError(path, [Fault(f"{kind}.sweep", f"{count:,} combinations", f"at most {MOST_CELLS:,}")])
    if faults := list(_repeated(spec)):
        raise SpecError(path, faults)
    return data, spec


def fault_of_form(error: Any) -> Fault:
    """Return an error of pydantic's under a key such as ``agent[1].parameters.delta``."""
    location = error["loc"]
    key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).removeprefix(".")
    if error["type"] == "missing":
        return Fault(key, "nothing", "a value: it is required")
    if error["type"] == "extra_forbidden":
        models: dict[str, type[_Strict]] = {"problem": ProblemEntry, "agent": AgentEntry}
        model = models.get(str(location[0]), Spec) if len(location) > 1 else Spec
        return Fault(key, "an unknown key", _nearest(location[-1], model.model_fields))
    try:
        got = repr(error["input"])
    except ValueError:  # Python does not write out a number of thousands of digits
        got = "a number of thousands of digits"
    expected = re.sub(r"^((Input|String|List|Dictionary) should (be|have)|Value error,) ", "", error["msg"])
    return Fault(key, got if len(got) <= 100 else got[:100] + "...", expected)


def _nearest(name: object, known: Iterable[str]) -> str:
    """Return what to say instead of an unknown name."""
    return str(UnknownName("name", got=name, known=known).expected)


def _repeated(spec: Spec) -> Iterator[Fault]:
    """Find what occurs twice or does nothing."""
    if len(set(spec.seeds)) < len(spec.seeds):
        yield Fault("seeds", f"{spec.seeds}", "each seed once")
    labels: dict[str, set[str]] = {"problem": set(), "agent": set()}
    for kind, entries in spec.entries:
        for number, entry in enumerate(entries):
            for key in sorted(set(entry.sweep) & set(entry.parameters)):
                yield Fault(f"{kind}[{number}].sweep.{key}", "also among parameters", "in one of the two")
            for label, _ in entry.variants():
                if label in labels[kind]:
                    yield Fault(f"{kind}[{number}].label", repr(label), "a label that no other entry has")
                labels[kind].add(label)
    names = labels["problem"] | {entry.name for entry in spec.problem}
    for number, agent in enumerate(spec.agent):
        for position, name in enumerate(agent.only):
            if name not in names:
                yield Fault(f"agent[{number}].only[{position}]", repr(name), _nearest(name, names))
    if spec.baseline and spec.baseline not in labels["agent"]:
        yield Fault("baseline", repr(spec.baseline), _nearest(spec.baseline, labels["agent"]))


class Variant(_Strict):
    """A problem or an agent of a cell, by its name."""

    name: str
    label: str
    parameters: dict[str, Any]


def id_of(content: dict[str, Any]) -> str:
    """Return the id of a cell with this content."""
    return sha256(canonical(content).encode())[:16]


class Cell(BaseModel):
    """What is run, in plain data."""

    model_config = ConfigDict(frozen=True)  # a manifest has more keys

    problem: Variant
    agent: Variant
    seed: Seed
    episodes: Count
    thinning: Thinning

    @property
    def content(self) -> dict[str, Any]:
        """Everything that makes the cell what it is."""
        return {"format": FORMAT, **self.model_dump(include=set(Cell.model_fields))}

    @cached_property
    def id(self) -> str:
        """Sixteen hexadecimal digits."""
        return id_of(self.content)

    @property
    def names(self) -> dict[str, Any]:
        """What a person calls the cell: the columns of its tables, beside its id."""
        return {"problem": self.problem.label, "agent": self.agent.label, "seed": self.seed}

    def make(self) -> tuple[Any, Agent]:
        """Return (problem, agent), ready to run."""
        problem = _problem(self.problem.name, json.dumps(self.problem.parameters))
        return problem, make_agent(self.agent.name, self.agent.parameters, problem, self.episodes)


@lru_cache(maxsize=4)
def _problem(name: str, parameters: str) -> Any:
    """Return a problem; cells of one problem that follow each other share it."""
    return registry.make_problem(name, **json.loads(parameters))


def expand(spec: Spec, path: str | Path) -> list[Cell]:
    """Return the cells of a spec, after building every problem and agent once; all errors are reported at once."""
    labels = [(problem, label) for problem in spec.problem for label, _ in problem.variants()]
    pairs = sum(agent.size * sum(agent.plays(*each) for each in labels) for agent in spec.agent)
    count = pairs * len(spec.seeds)
    if not 0 < count <= MOST_CELLS:  # before any of them is built
        raise SpecError(path, [Fault("cells", f"{count:,}", f"from 1 to {MOST_CELLS:,}")])
    faults: list[Fault] = []
    problems = list(_found("problem", spec.problem, registry.problems(), faults))
    players = list(_found("agent", spec.agent, agents(), faults))
    cells: list[Cell] = []
    for number, problem, kind in problems:
        episodes = problem.episodes or spec.episodes
        for label, parameters in problem.variants():
            with _collected(faults, f"problem[{number}]", problem.sweep):
                canonical(parameters)
                made = _problem(kind, json.dumps(parameters))
                _ = made.mdp  # built here, so that what is wrong with it shows now
                one = Variant(name=kind, label=label, parameters=parameters)
                for position, agent, name in players:
                    for who, options in agent.variants() if agent.plays(problem, label) else ():
                        with _collected(faults, f"agent[{position}]", agent.sweep):
                            canonical(options)
                            make_agent(name, options, made, episodes)
                            other = Variant(name=name, label=who, parameters=options)
                            rest: dict[str, Any] = {"episodes": episodes, "thinning": spec.thinning}
                            cells += [Cell(problem=one, agent=other, seed=seed, **rest) for seed in spec.seeds]
    if faults:
        raise SpecError(path, list(dict.fromkeys(faults)))
    return cells


def _found(
    key: str, entries: Sequence[_Entry], known: dict[str, type[Any]], faults: list[Fault]
) -> Iterator[tuple[int, _Entry, str]]:
    """Yield (position, entry, name of its class); entries of unknown names are faults."""
    for number, entry in enumerate(entries):
        try:
            yield number, entry, registry.find(f"{key}[{number}].name", entry.name, known).__name__
        except UnknownName as error:
            faults.append(Fault(error.field, str(error.got), str(error.expected)))


@contextmanager
def _collected(faults: list[Fault], key: str, sweep: dict[str, Any]) -> Iterator[None]:
    """Take note of what is wrong with a parameter, under the key where the user wrote it."""
    try:
        yield
    except InvalidInput as error:
        name = error.field.split()[0] if " " in error.field else error.field
        if isinstance(error, UnknownName) and error.field.endswith(" parameter"):
            name = str(error.got).strip("'")
        table = "sweep" if name.split(".")[0] in sweep else "parameters"
        faults.append(Fault(f"{key}.{table}.{name}", str(error.got), str(error.expected)))
    except _OF_PARAMETERS as error:
        expected = "values of valid kinds and sizes, none of them nan"
        faults.append(Fault(f"{key}.parameters", f"{type(error).__name__}: {error}", expected))
