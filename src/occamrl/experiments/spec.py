"""The spec of an experiment: one TOML file, checked as a whole, that expands to cells.

The faults of a file are reported together: where, what was got, what was expected, the nearest
valid name. Values that depend on a problem or on each other are looked at once the others are
right; :mod:`occamrl.experiments.resolver` says what they stand for.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from occamrl import registry
from occamrl.errors import Fault, SpecError, UnknownName
from occamrl.experiments.records import Cell, Part
from occamrl.experiments.resolver import (
    Name,
    Named,
    Parameters,
    Resolver,
    Value,
    by_name,
    fault_of,
    make_problem,
    misnamed,
    noting,
)
from occamrl.files import read_toml
from occamrl.protocols import MOST_EPISODES
from occamrl.running.identity import identity

SPECS = Path(__file__).parents[1] / "specs"  # that come with the package
_MOST_SEEDS = 100_000
_MOST_VARIANTS = 10_000  # of one entry with a sweep
_MOST_CELLS = 1_000_000
_UNKNOWN = "?"  # the name of an entry that is wrong
_INSTEAD: dict[str, Value] = {  # of what is wrong, so that the rest can be looked at
    "name": _UNKNOWN,
    "episodes": 1,
    "seeds": 1,
    "problem": [_UNKNOWN],
    "agent": [_UNKNOWN],
}


def _seeds(value: Value) -> Value:
    if type(value) is not int:
        return value
    if not 1 <= value <= _MOST_SEEDS:
        raise ValueError(f"a number of seeds from 1 to {_MOST_SEEDS:,}, or a list of seeds")
    return list(range(value))


Identities = dict[str, dict[str, str]]  # by "problem / agent": what both are, to compare with later
Count = Annotated[int, Field(ge=1, le=MOST_EPISODES, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**62, strict=True)]


def _countable(sweep: dict[str, list[Value]]) -> dict[str, list[Value]]:
    """Refuse a sweep with too many combinations before any of them is made."""
    count = math.prod(len(values) for values in sweep.values())
    if count > _MOST_VARIANTS:
        raise ValueError(f"at most {_MOST_VARIANTS:,} combinations; these are {count:,}")
    return sweep


class Entry(Named):
    """Something in variants: what every one has, and what is swept over."""

    label: str = ""
    sweep: Annotated[
        dict[str, Annotated[list[Value], Field(min_length=1)]], AfterValidator(_countable)
    ] = Field({})

    @property
    def count(self) -> int:
        """How many variants there are."""
        return math.prod(len(values) for values in self.sweep.values())

    def variants(self) -> Iterator[tuple[str, Parameters]]:
        """Yield (label, parameters) for every combination of the swept values."""
        for values in itertools.product(*self.sweep.values()):
            swept = dict(zip(self.sweep, values, strict=True))
            label = self.label or self.name
            unnamed = []  # values that the label has no place for
            for name, value in swept.items():
                text = value_text(value)
                if f"{{{name}}}" not in label:
                    unnamed.append(f"{name}={text}")
                label = label.replace(f"{{{name}}}", text)
            if unnamed:
                label += f" ({', '.join(unnamed)})"
            yield label, {**self.parameters, **swept}


def value_text(value: Value) -> str:
    """Return a swept value as a label shows it: of a table with a name, that and its parameters."""
    if not isinstance(value, dict) or "name" not in value:
        return str(value)
    parts = [f"{name}={part}" for name, part in value.get("parameters", {}).items()]
    return f"{value['name']}({', '.join(parts)})"


class ProblemEntry(Entry):
    """A problem; ``episodes`` overrides the experiment's."""

    episodes: Count | None = None


class AgentEntry(Entry):
    """An agent; ``only`` limits it to problems of these names or labels.

    ``bases`` and ``rule`` are parameters too.
    """

    only: list[Name] = Field([])
    bases: list[Annotated[Entry, BeforeValidator(by_name)]] = Field([])
    rule: Annotated[Named | None, BeforeValidator(by_name)] = None

    def model_post_init(self, context: object) -> None:
        """Put bases and rule among the parameters; a base with a sweep stands for several."""
        if self.bases:
            bases = []
            for base in self.bases:
                for _, parameters in base.variants():
                    bases.append({"name": base.name, "parameters": parameters})
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
    problem: Annotated[list[Annotated[ProblemEntry, BeforeValidator(by_name)]], Field(min_length=1)]
    agent: Annotated[list[Annotated[AgentEntry, BeforeValidator(by_name)]], Field(min_length=1)]


# Reading ------------------------------------------------------------------------------------------


def shipped() -> list[str]:
    """Return the names of the specs that come with the package."""
    return sorted(file.name.removesuffix(".toml") for file in SPECS.iterdir())


def read_spec(spec: str | Path) -> dict[str, Value]:
    """Return the data of a spec file, or of a shipped spec called by its name.

    ``./demo`` is a path.
    """
    path = Path(spec)
    if str(spec) in shipped():
        path = SPECS / f"{spec}.toml"
    try:
        return read_toml(path)
    except OSError as error:
        near = UnknownName("spec", got=spec, known=shipped()).expected
        got = error.strerror or f"{error}"
        raise SpecError(spec, [Fault("file", got, f"a TOML file, or {near}")]) from error
    except ValueError as error:
        raise SpecError(spec, [Fault("file", f"{error}", "TOML")]) from error


def as_data(spec: dict[str, Value]) -> tuple[dict[str, Value], list[str]]:
    """Return a spec as plain data, and the modules of the user's classes in it.

    Classes stand for their names; problems, agents and rules for their names and those parameters
    that were set.
    """
    modules: set[str] = set()

    def entry(thing: object) -> Value:
        kind = thing if isinstance(thing, type) else type(thing)
        name = name_of_class(kind)
        if not name or not (kind is thing or is_dataclass(thing)):
            raise TypeError(f"{thing!r:.80}")
        if ":" in name:
            modules.add(kind.__module__)
        if kind is thing:
            return name
        parameters = {}
        for field in fields(kind):
            value = getattr(thing, field.name)
            if field.init and value is not field.default:
                parameters[field.name] = value
        return {"name": name, "parameters": parameters}

    try:
        return json.loads(json.dumps(spec, default=entry, allow_nan=False)), sorted(modules)
    except (ValueError, TypeError) as error:
        expected = (
            "plain data, or a class in a module or an object of one made of these; "
            "orl.compare takes any agent"
        )
        raise SpecError("spec", [Fault("spec", f"{error}", expected)]) from error


def name_of_class(kind: type) -> str:
    """Return how a spec calls a class: by the package's name for it, or as ``module:Class``.

    Nothing if no spec can call it.
    """
    for kinds in registry.KINDS:
        for name, value in registry.own(kinds).items():
            if value is kind:
                return name
    if kind.__module__.split(".")[0] in ("builtins", "numpy", "occamrl", "__main__"):
        return ""
    return f"{kind.__module__}:{kind.__qualname__}"


# Checking -----------------------------------------------------------------------------------------


def check(
    data: dict[str, Value], path: str | Path, imports: Sequence[str]
) -> tuple[list[Cell], Identities]:
    """Return the cells of a spec, and what they consist of.

    Every problem and agent is built once.
    """
    spec, faults = _validated(data)
    missing = [name for name in spec.imports if name not in imports]
    if missing:
        named = " ".join(f"--import {name}" for name in missing)
        expected = (
            f"{named} on the command line too (in Python: imports={missing}): "
            "a file alone imports nothing"
        )
        faults.append(Fault("import", ", ".join(missing), expected))
    with noting(faults, ""):
        registry.import_modules(imports, "import")
    faults += _inconsistent(spec)
    cells: list[Cell] = []
    identities: Identities = {}
    runs = sum(entry.count for entry in spec.problem) * sum(entry.count for entry in spec.agent)
    count = runs * (len(spec.seeds) + len(spec.tuning_seeds))
    if count > _MOST_CELLS:
        got = f"up to {count:,} runs of a problem, an agent and a seed"
        raise SpecError(path, [*faults, Fault("spec", got, f"at most {_MOST_CELLS:,}")])
    for number, entry in enumerate(spec.problem):
        episodes = entry.episodes or spec.episodes
        for label, parameters in entry.variants():
            problem = None
            if entry.name != _UNKNOWN:
                with noting(faults, f"problem[{number}]"):
                    problem = make_problem(entry.name, json.dumps(parameters))
            for i, agent in enumerate(spec.agent):
                limited = agent.only and {entry.name, label}.isdisjoint(agent.only)
                if agent.name == _UNKNOWN or limited:
                    continue
                seeds = [*spec.seeds]
                if agent.sweep:
                    seeds += spec.tuning_seeds
                for who, options in agent.variants():
                    if problem is None:
                        # Names can be checked without it.
                        faults += misnamed(agent.name, options, f"agent[{i}]")
                        continue
                    resolver = Resolver(problem, episodes)
                    built = resolver.agent(agent.name, options, f"agent[{i}].parameters")
                    faults += resolver.faults
                    identities[f"{label} / {who}"] = {
                        **resolver.identity_of_problem(),
                        **identity(built),
                    }
                    what = Part(name=entry.name, label=label, parameters=parameters)
                    whom = Part(name=agent.name, label=who, parameters=options)
                    cells += [Cell(what, whom, seed, episodes, spec.thinning) for seed in seeds]
    if faults:
        raise SpecError(path, list(dict.fromkeys(faults)))
    return cells, identities


def _validated(data: dict[str, Value]) -> tuple[Spec, list[Fault]]:
    """Return a spec, and what is wrong with its form.

    What is wrong is left out, so that the rest can be looked at.
    """
    of_spec = [field.alias or name for name, field in Spec.model_fields.items()]
    of_entries = [*ProblemEntry.model_fields, *AgentEntry.model_fields]
    faults: list[Fault] = []
    # Pydantic stops at what it cannot read, so it is asked again without that.
    while True:
        try:
            return Spec.model_validate(data), faults
        except ValidationError as invalid:
            data = dict(data)
            for error in invalid.errors():
                first, *inside = error["loc"]
                faults.append(fault_of(error, "", of_entries if inside else of_spec))
                key = str(first)
                if key in ("problem", "agent") and inside:
                    data[key] = [*data[key]]
                    data[key][inside[0]] = {"name": _UNKNOWN}
                elif key in _INSTEAD:
                    data[key] = _INSTEAD[key]
                else:
                    data.pop(key, None)


def _inconsistent(spec: Spec) -> Iterator[Fault]:
    """Find what occurs twice, and labels that nothing has."""
    seeds = [*spec.seeds, *spec.tuning_seeds]
    if len(set(seeds)) < len(seeds):
        yield Fault("seeds", f"{seeds!r:.100}", "each seed once, those of tuning_seeds included")
    problems = count_labels(spec.problem)
    agents = count_labels(spec.agent)
    for key, labels in (("problem", problems), ("agent", agents)):
        for label, count in labels.items():
            if count > 1 and label != _UNKNOWN:
                yield Fault(f"{key}.label", f"{label!r} twice", "a label that no other entry has")
    # A label that is looked for may be that of an entry that is wrong.
    if any(entry.name == _UNKNOWN for entry in (*spec.problem, *spec.agent)):
        return
    names = {*problems, *(entry.name for entry in spec.problem)}
    for i, agent in enumerate(spec.agent):
        for j, only in enumerate(agent.only):
            if only not in names:
                yield _no_label(f"agent[{i}].only[{j}]", only, names)
    if spec.baseline and spec.baseline not in agents:
        yield _no_label("baseline", spec.baseline, agents)


def count_labels(entries: Sequence[Entry]) -> Counter[str]:
    """Return how often each label occurs."""
    counts = Counter[str]()
    for entry in entries:
        counts.update(label for label, _ in entry.variants())
    return counts


def _no_label(key: str, label: str, known: Iterable[str]) -> Fault:
    return Fault(key, repr(label), str(UnknownName(key, got=label, known=known).expected))
