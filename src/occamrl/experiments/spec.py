"""The spec of an experiment: one TOML file, checked as a whole, that expands to cells.

Agents need what only the problem knows. Their parameters take symbolic values for it, such as
``norm_bound = "true"``; `docs/experiments.md` lists them. Nothing of the truth is handed out unless
a parameter asks for it by name: ``"true"``, ``"support"``, ``oracle``. The references of a selector
are named like agents: ``oracle``, ``largest``, ``smallest`` and ``class`` (with ``m``), each the
plain learner that a selector would be if it knew, or did not look.

The faults of a file are reported together: where, what was got, what was expected, the nearest
valid name. Values that depend on a problem or on each other are looked at once the others are
right.
"""

from __future__ import annotations

import inspect
import itertools
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from occamrl import registry
from occamrl.errors import (
    Fault,
    InvalidInput,
    ParameterError,
    SpecError,
    UnknownName,
    require_choice,
)
from occamrl.experiments.records import Cell
from occamrl.models.families import AggregationFamily, FiniteFamily, LinearFamily
from occamrl.models.features import FeatureMap
from occamrl.models.ladder import Ladder
from occamrl.problems import named
from occamrl.problems.mdp import as_mdp
from occamrl.protocols import MOST_EPISODES
from occamrl.running.identity import identity, identity_of_problem
from occamrl.selectors.references import largest, on_class, oracle, smallest

AGENTS = ("learners", "selectors", "paper")
REFERENCES = ("oracle", "largest", "smallest", "class")
_MODELS = {each.__name__: each for each in (FiniteFamily, LinearFamily, AggregationFamily, Ladder)}
_MOST_SEEDS = 100_000
_UNKNOWN = "?"  # the name of an entry that is wrong
_INSTEAD: dict[str, Any] = {
    "name": _UNKNOWN,
    "episodes": 1,
    "seeds": 1,
    "problem": [_UNKNOWN],
    "agent": [_UNKNOWN],
}


def _seeds(value: Any) -> Any:
    if type(value) is int and not 1 <= value <= _MOST_SEEDS:
        raise ValueError(f"a number of seeds from 1 to {_MOST_SEEDS:,}, or a list of seeds")
    return list(range(value)) if type(value) is int else value


def _by_name(value: Any) -> Any:
    if isinstance(value, dict) and isinstance(
        value.get("name"), dict
    ):  # an object that has a label or a sweep
        return {**value, **value["name"]}
    return {"name": value} if isinstance(value, str) else value


Code = dict[str, dict[str, str]]  # by "problem / agent": what both are, for later comparison
Count = Annotated[int, Field(ge=1, le=MOST_EPISODES, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**62, strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Named(BaseModel):
    """Something by its name."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[Name, AfterValidator(registry.canonical)]
    parameters: dict[str, Any] = {}


class Entry(Named):
    """Something in variants: what every one has, and what is swept over."""

    label: str = ""
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}

    def variants(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (label, parameters) for every combination of the swept values."""
        for values in itertools.product(*self.sweep.values()):
            label, rest, swept = (
                self.label or self.name,
                [],
                dict(zip(self.sweep, values, strict=True)),
            )
            for key, value in swept.items():
                text = str(value)
                if isinstance(value, dict) and "name" in value:
                    inside = value.get("parameters", {}).items()
                    text = (
                        f"{value['name']}({', '.join(f'{name}={each}' for name, each in inside)})"
                    )
                rest += [] if f"{{{key}}}" in label else [f"{key}={text}"]
                label = label.replace(f"{{{key}}}", text)
            yield label + (f" ({', '.join(rest)})" if rest else ""), {**self.parameters, **swept}


class ProblemEntry(Entry):
    """A problem; ``episodes`` overrides the experiment's."""

    episodes: Count | None = None


class AgentEntry(Entry):
    """An agent; ``only`` limits it to problems of these names or labels. ``bases`` and ``rule`` are parameters too."""

    only: list[Name] = []
    bases: list[Annotated[Entry, BeforeValidator(_by_name)]] = []
    rule: Annotated[Named | None, BeforeValidator(_by_name)] = None

    def model_post_init(self, context: Any) -> None:
        """Put bases and rule among the parameters; a base with a sweep stands for several."""
        if self.bases:
            every = [
                (base.name, parameters) for base in self.bases for _, parameters in base.variants()
            ]
            bases = [{"name": name, "parameters": parameters} for name, parameters in every]
            self.parameters = {**self.parameters, "bases": bases}
        if self.rule is not None:
            self.parameters = {**self.parameters, "rule": self.rule.model_dump()}


class Spec(BaseModel):
    """A whole experiment."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    imports: list[str] = Field([], alias="import")
    episodes: Count
    seeds: Annotated[
        list[Seed], Field(min_length=1, max_length=_MOST_SEEDS), BeforeValidator(_seeds)
    ]
    tuning_seeds: list[Seed] = []  # of swept agents: constants are compared on these
    thinning: Annotated[int, Field(ge=0, strict=True)] = 1_000
    baseline: str = ""  # the agent's label that a report compares with
    description: str = ""
    problem: Annotated[
        list[Annotated[ProblemEntry, BeforeValidator(_by_name)]], Field(min_length=1)
    ]
    agent: Annotated[list[Annotated[AgentEntry, BeforeValidator(_by_name)]], Field(min_length=1)]


def shipped() -> list[str]:
    """Return the names of the specs that come with the package."""
    return sorted(
        each.name.removesuffix(".toml")
        for each in resources.files("occamrl").joinpath("specs").iterdir()
    )


def read_spec(spec: str | Path) -> dict[str, Any]:
    """Return the data of a spec file, or of a shipped spec called by its name (``./demo`` is a path)."""
    own = resources.files("occamrl").joinpath("specs", f"{spec}.toml")
    path = own if str(spec) in shipped() else Path(spec)
    if not path.is_file():
        near = UnknownName("spec", got=spec, known=shipped()).expected
        raise SpecError(spec, [Fault("file", "no such file", f"a TOML file, or {near}")])
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except ValueError as error:
        raise SpecError(spec, [Fault("file", f"{error}", "TOML")]) from error


def fault_of(error: Any, prefix: str = "") -> Fault:
    """Return an error of pydantic's under a key such as ``agent[1].parameters.delta``."""
    location = error["loc"]
    key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    key = f"{prefix}{key}".removeprefix(".")
    if error["type"] == "missing":
        return Fault(key, "nothing", "a value: it is required")
    if error["type"] == "extra_forbidden":
        models: list[type[BaseModel]] = (
            [ProblemEntry, AgentEntry] if prefix or len(location) > 1 else [Spec]
        )
        names = [
            each.alias or name for model in models for name, each in model.model_fields.items()
        ]
        return Fault(
            key, "an unknown key", str(UnknownName("key", got=location[-1], known=names).expected)
        )
    expected = re.sub(
        r"^((Input|String|List|Dictionary) should (be|have)|Value error,) ", "", error["msg"]
    )
    return Fault(key, f"{error['input']!r:.100}", expected)


@contextmanager
def noting(faults: list[Fault], key: str) -> Iterator[None]:
    """Take note of an error under the key where the user wrote what is wrong, instead of raising it."""
    try:
        yield
    except ValidationError as error:
        faults += [fault_of(each, key) for each in error.errors()]
    except InvalidInput as error:
        where = error.where if error.where.startswith(key) else f"{key}.{error.where}"
        faults.append(Fault(where, f"{error.got}", str(error.expected)))
    except Exception as error:  # whatever a class makes of values that it does not expect
        faults.append(
            Fault(key, f"{type(error).__name__}: {error}", "values of valid kinds and sizes")
        )


def as_data(spec: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a spec as plain data, and the modules of the user's classes in it.

    Classes stand for their names; problems, agents and rules for their names and those parameters
    that were set.
    """
    modules: set[str] = set()

    def entry(thing: Any) -> Any:
        kind = thing if isinstance(thing, type) else type(thing)
        name = next(
            (
                name
                for each in registry.KINDS
                for name, own in registry.own(each).items()
                if own is kind
            ),
            "",
        )
        if not name and kind.__module__.split(".")[0] not in (
            "builtins",
            "numpy",
            "occamrl",
            "__main__",
        ):
            name = f"{kind.__module__}:{kind.__qualname__}"
            modules.add(kind.__module__)
        if not name or not (kind is thing or is_dataclass(thing)):
            raise TypeError(f"{thing!r:.80}")
        if kind is thing:
            return name
        own = {
            each.name: (getattr(thing, each.name), each.default)
            for each in fields(thing)
            if each.init
        }
        return {
            "name": name,
            "parameters": {key: value for key, (value, usual) in own.items() if value is not usual},
        }

    try:
        return json.loads(json.dumps(spec, default=entry, allow_nan=False)), sorted(modules)
    except (ValueError, TypeError) as error:
        expected = "plain data, or a class in a module or an object of one made of these; orl.compare takes any agent"
        raise SpecError("spec", [Fault("spec", f"{error}", expected)]) from error


def check(
    data: dict[str, Any], path: str | Path, imports: Sequence[str]
) -> tuple[list[Cell], Code]:
    """Return the cells of a spec, and what they consist of; every problem and agent is built once."""
    spec, faults = _validated(data)
    if missing := [name for name in spec.imports if name not in imports]:
        named = " ".join(f"--import {name}" for name in missing)
        expected = f"{named} on the command line too (in Python: imports={missing}): a file alone imports nothing"
        faults.append(Fault("import", ", ".join(missing), expected))
    with noting(faults, ""):
        registry.import_modules(imports, "import")
    faults += _inconsistent(spec)
    cells: list[Cell] = []
    code: Code = {}
    for number, problem in enumerate(spec.problem):
        episodes = problem.episodes or spec.episodes
        for label, parameters in problem.variants():
            made = None
            if problem.name != _UNKNOWN:
                with noting(faults, f"problem[{number}]"):
                    made = make_problem(problem.name, json.dumps(parameters))
            for i, agent in enumerate(spec.agent):
                if agent.name == _UNKNOWN or (
                    agent.only and {problem.name, label}.isdisjoint(agent.only)
                ):
                    continue
                for who, options in agent.variants():
                    if made is None:  # names can be checked without a problem
                        faults += misnamed(agent.name, options, f"agent[{i}]")
                        continue
                    resolver = Resolver(made, episodes)
                    built = resolver.agent(agent.name, options, f"agent[{i}].parameters")
                    faults += resolver.faults
                    code[f"{label} / {who}"] = {**resolver.about, **identity(built)}
                    one = {"name": problem.name, "label": label, "parameters": parameters}
                    two = {"name": agent.name, "label": who, "parameters": options}
                    seeds = [*spec.seeds, *spec.tuning_seeds] if agent.sweep else spec.seeds
                    cells += [Cell(one, two, seed, episodes, spec.thinning) for seed in seeds]
    if faults:
        raise SpecError(path, list(dict.fromkeys(faults)))
    return cells, code


def _validated(data: dict[str, Any]) -> tuple[Spec, list[Fault]]:
    """Return a spec, and what is wrong with its form; what is wrong is left out, so that the rest can be looked at."""
    faults: list[Fault] = []
    while True:
        try:
            return Spec.model_validate(data), faults
        except ValidationError as error:
            faults += [fault_of(each) for each in error.errors()]
            data = dict(data)
            for first, *rest in (each["loc"] for each in error.errors()):
                if first in ("problem", "agent") and rest:
                    data[first] = [*data[first]]
                    data[first][rest[0]] = {"name": _UNKNOWN}
                elif first in _INSTEAD:
                    data[first] = _INSTEAD[first]
                else:
                    data.pop(str(first))


def misnamed(name: str, parameters: dict[str, Any], key: str) -> list[Fault]:
    """Find an agent, or parameters of one, that do not exist."""
    faults: list[Fault] = []
    with noting(faults, key):
        who = parameters.get("selector") if name in REFERENCES else name
        found = registry.find("name" if who == name else "parameters.selector", who, *AGENTS)
        given = {
            each for each in parameters if name not in REFERENCES or each not in ("selector", "m")
        }
        faults += unknown(found, given, f"{key}.parameters")
    return faults


def unknown(kind: Any, given: Iterable[str], key: str) -> list[Fault]:
    """Find names that are no parameters of a class."""
    known = parameters_of(kind)
    wrong = [
        (name, str(UnknownName(name, got=name, known=known).expected))
        for name in given
        if name not in known
    ]
    return [Fault(f"{key}.{name}", "an unknown parameter", expected) for name, expected in wrong]


def parameters_of(kind: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of a class by name."""
    every = inspect.signature(kind).parameters.items()
    return {
        name: each
        for name, each in every
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    }


def _inconsistent(spec: Spec) -> Iterator[Fault]:
    """Find what occurs twice, and labels that nothing has."""
    every = [*spec.seeds, *spec.tuning_seeds]
    if len(set(every)) < len(every):
        yield Fault("seeds", f"{every!r:.100}", "each seed once, those of tuning_seeds included")
    whole = all(entry.name != _UNKNOWN for entry in (*spec.problem, *spec.agent))
    problems = Counter(label for entry in spec.problem for label, _ in entry.variants())
    agents = Counter(label for entry in spec.agent for label, _ in entry.variants())
    for key, labels in (("problem", problems), ("agent", agents)):
        for label in [label for label, count in labels.items() if count > 1 and label != _UNKNOWN]:
            yield Fault(f"{key}.label", f"{label!r} twice", "a label that no other entry has")
    names = {*problems, *(entry.name for entry in spec.problem)}
    wanted = [
        (f"agent[{i}].only[{j}]", each, names)
        for i, a in enumerate(spec.agent)
        for j, each in enumerate(a.only)
    ]
    wanted += [("baseline", spec.baseline, set(agents))] if spec.baseline else []
    for key, name, valid in wanted:
        if whole and name not in valid:
            yield Fault(key, repr(name), str(UnknownName(key, got=name, known=valid).expected))


@lru_cache(maxsize=4)
def make_problem(name: str, parameters: str) -> Any:
    """Return a problem, its parameters given as JSON; cells of one problem that follow each other share it."""
    problem = named.make_problem(name, **json.loads(parameters))
    as_mdp(problem)
    return problem


class Resolver:
    """Builds agents for one problem; what is wrong with their parameters is collected in ``faults``."""

    def __init__(self, problem: Any, episodes: int) -> None:
        self.problem, self.episodes, self.mdp, self.title = (
            problem,
            episodes,
            as_mdp(problem),
            type(problem).__name__,
        )
        self.faults: list[Fault] = []
        self.table: dict[
            str, Callable[..., Any]
        ] = {  # what values stand for, by a parameter's annotation or name
            "FeatureMap": self._features,
            "FiniteMDP": lambda key, value, made: self.mdp,
            "Ladder": self._ladder,
            "Family": self._family,
            "bases": self._bases,
            "rule": partial(self._named, kinds=("rules",)),
            "agent": partial(self._named, kinds=AGENTS),
            "norm_bound": self._norm,
            "delta": self._delta,
        }

    @property
    def about(self) -> dict[str, str]:
        """What makes the problem what it is."""
        parts = (self.mdp.probability, self.mdp.outcomes.start, self.mdp.outcomes.next_state)
        kernel = identity(
            np.concatenate([np.ravel(part).astype(float) for part in parts]), "problem.transition"
        )
        return {
            **identity_of_problem(self.mdp.known),
            **kernel,
            "problem.reward_noise": f"{self.mdp.reward_noise}",
        }

    def agent(self, name: str, parameters: dict[str, Any], key: str = "parameters") -> Any:
        """Return an agent by its name; None if something is wrong."""
        with noting(self.faults, key.removesuffix("parameters").removesuffix(".")):
            if name not in REFERENCES:
                return self.build(registry.find("name", name, *AGENTS), parameters, key)
            rest = {
                each: value for each, value in parameters.items() if each not in ("selector", "m")
            }
            found = registry.find("parameters.selector", parameters.get("selector"), *AGENTS)
            selector = self.build(found, rest, key)
            if selector is None:
                return None
            if name == "oracle":
                return oracle(selector, self.problem)
            made = {"largest": largest, "smallest": smallest}
            return made[name](selector) if name in made else on_class(selector, parameters.get("m"))
        return None

    def build(self, kind: Any, parameters: dict[str, Any], key: str) -> Any:
        """Return ``kind`` with these parameters; None if something is wrong."""
        before, made = len(self.faults), dict[str, Any]()
        self.faults += unknown(kind, parameters, key)
        for name, about in parameters_of(kind).items():
            if name in parameters or about.default is about.empty:
                with noting(self.faults, f"{key}.{name}"):
                    value, kind_of = (
                        parameters.get(name),
                        getattr(about.annotation, "__name__", str(about.annotation)),
                    )
                    rule = next(
                        (
                            self.table[each]
                            for each in self.table
                            if each == name or each in kind_of
                        ),
                        None,
                    )
                    made[name] = value if rule is None else rule(f"{key}.{name}", value, made)
                    if made[name] is None and about.default is about.empty:
                        raise ParameterError(
                            f"{key}.{name}", got="nothing", expected="a value: it is required"
                        )
        if len(self.faults) == before:
            with noting(self.faults, key):
                return kind(**made)
        return None

    def _named(self, key: str, value: Any, made: Any = None, kinds: tuple[str, ...] = ()) -> Any:
        """Return what a name, or a table with name and parameters, stands for: of some kinds, or a model."""
        entry, inside = Named.model_validate(_by_name(value)), f"{key}.parameters"
        if kinds == AGENTS:
            return self.agent(entry.name, entry.parameters, inside)
        where = f"{key}.name"
        found = (
            registry.find(where, entry.name, *kinds)
            if kinds
            else registry.lookup(where, entry.name, _MODELS)
        )
        return self.build(found, entry.parameters, inside)

    def _bases(self, key: str, value: Any, made: Any) -> Any:
        return [self._named(f"{key}[{i}]", each, kinds=AGENTS) for i, each in enumerate(value)]

    def _delta(self, key: str, value: Any, made: Any) -> Any:
        if isinstance(value, str):
            require_choice(key, value.replace(" ", ""), ["1/K"])
            return 1.0 / self.episodes
        return value

    def _norm(self, key: str, value: Any, made: Any) -> Any:
        if not isinstance(value, str):
            return value
        found = re.fullmatch(r"(?:([0-9.e+-]+)\*)?(true|sqrt\(SA\))", value.replace(" ", ""))
        if found is None:
            raise ParameterError(
                key, got=repr(value), expected='a number, "true", "sqrt(SA)" or "4 * true"'
            )
        factor, theta, features = (
            float(found[1] or 1.0),
            getattr(self.problem, "theta", None),
            made.get("features"),
        )
        if found[2] == "sqrt(SA)":
            return factor * math.sqrt(self.mdp.states * self.mdp.actions)
        if isinstance(features, FeatureMap) and features.groups > 1:  # one-hot: theta is the kernel
            theta = self.mdp.kernel() if self.mdp.stationary else None
        if theta is None:
            raise ParameterError(
                key, got=repr(value), expected=f"a number: {self.title} has no theta"
            )
        return factor * float(np.linalg.norm(theta))

    def _features(self, key: str, value: Any, made: Any) -> Any:
        own = getattr(self.problem, "phi", None)
        if value == "tabular" or (value is None and own is None):
            return FeatureMap.tabular(states=self.mdp.states, actions=self.mdp.actions)
        if isinstance(value, str):
            require_choice(key, value, ("problem", "tabular", "support"))
        if own is None:
            raise ParameterError(
                key, got=repr(value), expected=f'"tabular": {self.title} has no features'
            )
        features = FeatureMap(own)
        if value == "support":
            return features.restrict(np.flatnonzero(self.problem.theta).tolist())

        def restricted(*, restrict: list[int]) -> FeatureMap:
            return features.restrict(restrict)

        return self.build(restricted, value, key) if isinstance(value, dict) else features

    def _family(self, key: str, value: Any, made: Any) -> Any:
        if value is None:
            return None
        return (
            Ladder.of_problem(self.problem).family
            if value == "problem"
            else self._named(key, value)
        )

    def _ladder(self, key: str, value: Any, made: Any) -> Any:
        def listed(*, classes: list[Any]) -> Ladder:
            return Ladder(
                [self._named(f"{key}.classes[{m}]", each) for m, each in enumerate(classes)]
            )

        if value in (None, "problem"):
            return Ladder.of_problem(self.problem)
        return (
            self._named(key, value)
            if isinstance(value, str) or "name" in value
            else self.build(listed, value, key)
        )
