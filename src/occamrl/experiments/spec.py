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

All faults of a file are reported at once: where, what was got, what was expected, the nearest valid name. What names
and parameters stand for is the matter of :mod:`occamrl.experiments.resolution`.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from occamrl import registry
from occamrl.errors import Fault, ParameterError, SpecError, UnknownName, as_path
from occamrl.experiments.records import Cell, Variant
from occamrl.experiments.resolution import AGENTS, REFERENCES, Resolver, make_problem, noting
from occamrl.protocols import MOST_EPISODES
from occamrl.running.identity import identity
from occamrl.running.storage import canonical

MOST_CELLS = 100_000


def _seeds(value: Any) -> Any:
    """Return the seeds 0, ..., n - 1 for a number n."""
    return list(range(value)) if type(value) is int and 1 <= value <= MOST_CELLS else value


def _by_name(value: Any) -> Any:
    """Return a table for what is given by its name alone."""
    return {"name": value} if isinstance(value, str) else value


def _said(value: Any) -> str:
    """Return a swept value as a label has it; of a table with a name, that and its parameters."""
    if not isinstance(value, dict) or "name" not in value:
        return str(value)
    inside = value.get("parameters", {}).items()
    return f"{value['name']}({', '.join(f'{key}={each}' for key, each in inside)})"


Count = Annotated[int, Field(ge=1, le=MOST_EPISODES, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**62, strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Label = Annotated[str, Field(max_length=200)]


class Strict(BaseModel):
    """Plain data without other keys, which nobody changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Named(Strict):
    """Something by its name."""

    name: Name
    parameters: dict[str, Any] = Field(default_factory=dict)


class Entry(Named):
    """Something in variants: what every one has, and what is swept over."""

    label: Label = ""
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)

    @property
    def fixed(self) -> dict[str, Any]:
        """The parameters that every variant has."""
        return self.parameters

    def variants(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (label, parameters) for every combination of the swept values."""
        for values in itertools.product(*self.sweep.values()):
            swept = dict(zip(self.sweep, values, strict=True))
            label = self.label or self.name
            rest = [f"{key}={_said(value)}" for key, value in swept.items() if f"{{{key}}}" not in label]
            for key, value in swept.items():
                label = label.replace(f"{{{key}}}", _said(value))
            yield label + (f" ({', '.join(rest)})" if rest else ""), {**self.fixed, **swept}


class ProblemEntry(Entry):
    """A problem; ``episodes`` overrides the experiment's."""

    episodes: Count | None = None


class AgentEntry(Entry):
    """An agent; ``only`` limits it to problems of these names or labels. ``bases`` and ``rule`` are parameters too."""

    only: list[Name] = Field(default_factory=list)
    bases: list[Annotated[Entry, BeforeValidator(_by_name)]] = Field(default_factory=list)
    rule: Annotated[Named | None, BeforeValidator(_by_name)] = None

    @property
    def fixed(self) -> dict[str, Any]:
        """The parameters that every variant has; a base with a sweep stands for several."""
        found = dict(self.parameters)
        if self.bases:
            every = [(base.name, parameters) for base in self.bases for _, parameters in base.variants()]
            found["bases"] = [{"name": name, "parameters": parameters} for name, parameters in every]
        if self.rule is not None:
            found["rule"] = self.rule.model_dump()
        return found

    def plays(self, problem: ProblemEntry, label: str) -> bool:
        """Say whether the agent plays the problem's variant of this label."""
        return not self.only or not {problem.name, label}.isdisjoint(self.only)


class Spec(Strict):
    """A whole experiment."""

    name: Name
    imports: list[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]] = Field([], alias="import")
    episodes: Count
    seeds: Annotated[list[Seed], Field(min_length=1, max_length=MOST_CELLS), BeforeValidator(_seeds)]
    tuning_seeds: list[Seed] = Field(default_factory=list)  # of swept agents: constants are compared on these
    thinning: Annotated[int, Field(ge=0, strict=True)] = 1_000
    baseline: Label = ""  # the agent's label that a report compares with
    description: str = ""
    problem: Annotated[list[Annotated[ProblemEntry, BeforeValidator(_by_name)]], Field(min_length=1)]
    agent: Annotated[list[Annotated[AgentEntry, BeforeValidator(_by_name)]], Field(min_length=1)]

    def seeds_of(self, agent: AgentEntry) -> list[int]:
        """Return the seeds that an agent plays; on those for tuning only its constants are compared, by a report."""
        return [*self.seeds, *self.tuning_seeds] if agent.sweep else self.seeds


class Checked(NamedTuple):
    """A spec without faults."""

    spec: Spec
    cells: list[Cell]
    code: dict[str, dict[str, str]]  # by "problem / agent": what both are, for later comparison
    modules: registry.Modules


def shipped() -> list[str]:
    """Return the names of the specs that come with the package."""
    folder = resources.files("occamrl").joinpath("specs")
    return sorted(each.name.removesuffix(".toml") for each in folder.iterdir()) if folder.is_dir() else []


def read_source(spec: str | Path) -> tuple[str, bytes]:
    """Return (where it is, content) of a spec file, or of a shipped spec called by its name (``./demo`` is a path)."""
    names = shipped()
    if str(spec) in names:
        found = resources.files("occamrl").joinpath("specs", f"{spec}.toml")
        return str(found), found.read_bytes()
    path = as_path("spec", spec)
    if not path.is_file():
        near = UnknownName("spec", got=spec, known=names).expected
        raise SpecError(spec, [Fault("file", "no such file", f"a TOML file, or {near}")])
    return str(path), path.read_bytes()


def parse_toml(content: bytes, path: str | Path) -> dict[str, Any]:
    """Return the data of a spec."""
    try:
        data = tomllib.loads(content.decode("utf-8-sig"))
        canonical(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise SpecError(path, [Fault("file", f"{error}", "TOML of numbers, texts, lists and tables")]) from error
    return data


def check(data: dict[str, Any], path: str | Path, imports: Sequence[str] = ()) -> Checked:
    """Return a spec, its cells and what they consist of; every problem and agent is built once.

    All faults are reported at once: those of form (by pydantic), of names and of values.
    """
    try:
        spec = Spec.model_validate(data)
    except ValidationError as error:
        raise SpecError(path, [fault_of(each) for each in error.errors()]) from error
    modules = require_imports(path, spec.imports, imports)
    count = sum(math.prod(map(len, agent.sweep.values())) * len(spec.seeds_of(agent)) for agent in spec.agent)
    count *= sum(math.prod(map(len, problem.sweep.values())) for problem in spec.problem)
    if count > MOST_CELLS:  # before any of them is built
        raise SpecError(path, [Fault("cells", f"{count:,}", f"at most {MOST_CELLS:,}")])
    faults = list(_repeated(spec))
    cells, code = _expand(spec, faults)
    if faults:
        raise SpecError(path, list(dict.fromkeys(faults)))
    return Checked(spec, cells, code, modules)


def require_imports(path: str | Path, listed: Sequence[str], given: Sequence[str]) -> registry.Modules:
    """Import the modules that both a spec and the user name; refuse what only one of them does."""
    if missing := [name for name in listed if name not in given]:
        options = " ".join(f"--import {name}" for name in missing)
        expected = f"{options} on the command line too (in Python: imports={missing}): a file alone imports nothing"
        raise SpecError(path, [Fault("import", ", ".join(missing), expected)])
    if idle := [name for name in given if name not in listed]:
        raise SpecError(path, [Fault("--import", ", ".join(idle), f"modules that the spec lists: import = {idle}")])
    try:
        return registry.import_modules(listed)
    except ParameterError as error:
        raise SpecError(path, [Fault("import", str(error.got), str(error.expected))]) from error


def fault_of(error: Any) -> Fault:
    """Return an error of pydantic's under a key such as ``agent[1].parameters.delta``."""
    location = error["loc"]
    key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).removeprefix(".")
    if error["type"] == "missing":
        return Fault(key, "nothing", "a value: it is required")
    if error["type"] == "extra_forbidden":
        models: list[type[BaseModel]] = [Spec] if len(location) == 1 else [ProblemEntry, AgentEntry]
        names = [each.alias or name for model in models for name, each in model.model_fields.items()]
        return Fault(key, "an unknown key", str(UnknownName("key", got=location[-1], known=names).expected))
    expected = re.sub(r"^((Input|String|List|Dictionary) should (be|have)|Value error,) ", "", error["msg"])
    return Fault(key, f"{error['input']!r:.100}", expected)


def _repeated(spec: Spec) -> Iterator[Fault]:
    """Find what occurs twice or does nothing."""
    every = [*spec.seeds, *spec.tuning_seeds]
    if len(set(every)) < len(every):
        yield Fault("tuning_seeds" if spec.tuning_seeds else "seeds", f"{every!r:.100}", "each seed once")
    if spec.tuning_seeds and not any(agent.sweep for agent in spec.agent):
        yield Fault("tuning_seeds", f"{spec.tuning_seeds}", "none: only swept agents play them, and no agent is swept")
    labels: dict[str, set[str]] = {"problem": set(), "agent": set()}
    for kind, known in labels.items():
        for number, entry in enumerate(getattr(spec, kind)):
            for key in sorted(set(entry.sweep) & set(entry.fixed)):
                yield Fault(f"{kind}[{number}].sweep.{key}", "also among parameters", "in one of the two")
            for label, _ in entry.variants():
                if label in known:
                    yield Fault(f"{kind}[{number}].label", repr(label), "a label that no other entry has")
                known.add(label)
    names = labels["problem"] | {entry.name for entry in spec.problem}
    wanted = [(f"agent[{i}].only[{j}]", each, names) for i, a in enumerate(spec.agent) for j, each in enumerate(a.only)]
    wanted += [("baseline", spec.baseline, labels["agent"])] if spec.baseline else []
    for key, name, valid in wanted:
        if name not in valid:
            yield Fault(key, repr(name), str(UnknownName(key, got=name, known=valid).expected))


def _expand(spec: Spec, faults: list[Fault]) -> tuple[list[Cell], dict[str, dict[str, str]]]:
    """Return the cells of a spec and what they consist of, building every problem and agent once."""

    def found(key: str, name: str, *kinds: str) -> str:
        with noting(faults, key):
            if name in REFERENCES and kinds == AGENTS:
                return name
            registry.find(key, name, *kinds)
            return registry.canonical_name(key, name, registry.named(*kinds))
        return ""

    names = [found(f"agent[{i}].name", agent.name, *AGENTS) for i, agent in enumerate(spec.agent)]
    cells: list[Cell] = []
    code: dict[str, dict[str, str]] = {}
    for number, problem in enumerate(spec.problem):
        kind, episodes = found(f"problem[{number}].name", problem.name, "problems"), problem.episodes or spec.episodes
        for label, parameters in problem.variants() if kind else ():
            made = None
            with noting(faults, f"problem[{number}].parameters"):
                made = make_problem(kind, json.dumps(parameters))
            for i, (agent, name) in enumerate(zip(spec.agent, names, strict=True)):
                playing = made is not None and name and agent.plays(problem, label)
                for who, options in agent.variants() if playing else ():
                    resolver = Resolver(made, episodes)
                    built = resolver.agent(name, options)
                    faults += [each._replace(key=f"agent[{i}].{each.key}") for each in resolver.faults]
                    if not resolver.faults:
                        code[f"{label} / {who}"] = {"problem": resolver.mdp.fingerprint[:16], **identity(built)}
                        one, two = Variant(kind, label, parameters), Variant(name, who, options)
                        cells += [Cell(one, two, seed, episodes, spec.thinning) for seed in spec.seeds_of(agent)]
    return cells, code
