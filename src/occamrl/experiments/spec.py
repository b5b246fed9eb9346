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

What the names and parameters stand for is the matter of :mod:`occamrl.experiments.resolution`, which is imported when
problems and agents are built: the form alone needs nothing that computes.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from occamrl import registry
from occamrl.errors import (
    Fault,
    InvalidInput,
    OccamRLError,
    ParameterError,
    RecordError,
    SpecError,
    UnknownName,
    as_path,
    as_toml,
    raise_all,
    require_choice,
    shown,
)
from occamrl.experiments.records import MOST_EPISODES, MOST_POINTS, MOST_SEEDS, Cell, Variant
from occamrl.running.files import canonical, read_plain

AGENTS = ("learners", "selectors", "arenas")  # the kinds of classes that an agent may be of
LARGEST_SPEC = 2**20
MOST_CELLS = 100_000
_OF_PARAMETERS = (OccamRLError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, MemoryError)


def _listed(value: Any) -> Any:
    """Return the seeds 0, ..., n - 1 for a number n; what is a list is checked as one."""
    if isinstance(value, list):
        return value
    if type(value) is not int or not 1 <= value <= MOST_CELLS:
        raise ValueError(f"a number from 1 to {MOST_CELLS:,}, or a list of seeds")
    return list(range(value))


Count = Annotated[int, Field(ge=1, le=MOST_EPISODES, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=MOST_SEEDS, strict=True)]
Thinning = Annotated[int, Field(ge=0, le=MOST_POINTS, strict=True)]
Seeds = Annotated[list[Seed], Field(min_length=1, max_length=MOST_CELLS), BeforeValidator(_listed)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Label = Annotated[str, Field(max_length=200)]
Module = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", max_length=200)]


def _as_table(value: Any) -> Any:
    """Return a table for what is given by its name alone."""
    return {"name": value} if isinstance(value, str) else value


def _said(value: Any) -> str:
    """Return a swept value as a label has it; of a table with a name, that and its parameters."""
    if not isinstance(value, dict) or "name" not in value:
        return str(value)
    parameters = value.get("parameters")
    inside = parameters.items() if isinstance(parameters, dict) else ()
    return f"{value['name']}({', '.join(f'{key}={each}' for key, each in inside)})"


class Strict(BaseModel):
    """Plain data without other keys, which nobody changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Entry(Strict):
    """A problem or an agent: what every variant has, and what is swept over."""

    name: Name
    label: Label = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)

    @classmethod
    def of(cls, field: str, value: Any) -> Entry:
        """Return the entry that a name, or a table with name and parameters, stands for."""
        if value is None:
            raise ParameterError(field, got="nothing", expected="a name, or a table with name and parameters")
        try:
            return cls.model_validate(_as_table(value))
        except ValidationError as error:
            faults = [fault_of_form(each) for each in error.errors()]
            raise_all([ParameterError(f"{field}.{each.key}", got=each.got, expected=each.expected) for each in faults])
            raise  # there is at least one

    @property
    def fixed(self) -> dict[str, Any]:
        """The parameters that every variant has."""
        return self.parameters

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
                    label = label.replace(f"{{{key}}}", _said(value))
                else:
                    rest.append(f"{key}={_said(value)}")
            yield label + (f" ({', '.join(rest)})" if rest else ""), {**self.fixed, **swept}


_Entry = TypeVar("_Entry", bound=Entry)


class ProblemEntry(Entry):
    """A problem; ``episodes`` overrides the experiment's."""

    episodes: Count | None = None


class AgentEntry(Entry):
    """An agent; ``only`` limits it to problems of these names or labels.

    ``bases`` and ``rule``, of an agent that chooses among others, are parameters like any other in a cell.
    """

    only: list[Name] = Field(default_factory=list)
    bases: list[Annotated[Entry, BeforeValidator(_as_table)]] = Field(default_factory=list)
    rule: Annotated[Entry | None, BeforeValidator(_as_table)] = None

    @property
    def fixed(self) -> dict[str, Any]:
        """The parameters that every variant has."""
        bases = [base.model_dump(exclude_defaults=True) for base in self.bases]
        rule = None if self.rule is None else self.rule.model_dump(exclude_defaults=True)
        more = {"bases": bases, "rule": rule}
        return {**self.parameters, **{key: value for key, value in more.items() if value}}

    def plays(self, problem: ProblemEntry, label: str) -> bool:
        """Say whether the agent plays the problem's variant of this label."""
        return not self.only or not {problem.name, label}.isdisjoint(self.only)


class Spec(Strict):
    """A whole experiment."""

    name: Name
    imports: list[Module] = Field(default_factory=list, alias="import")  # modules whose classes it names
    episodes: Count
    seeds: Seeds
    tuning_seeds: Annotated[list[Seed], Field(max_length=MOST_CELLS)] = Field(default_factory=list)  # of swept agents
    thinning: Thinning = 1_000
    baseline: Label = ""  # the agent's label that a report compares with
    description: str = ""
    problem: Annotated[list[ProblemEntry], Field(min_length=1)]
    agent: Annotated[list[AgentEntry], Field(min_length=1)]

    @property
    def entries(self) -> tuple[tuple[str, Sequence[Entry]], ...]:
        """Problems and agents, with the keys under which they stand."""
        return ("problem", self.problem), ("agent", self.agent)

    def seeds_of(self, agent: AgentEntry) -> list[int]:
        """Return the seeds that an agent plays; on those for tuning only its parameters are compared, by a report."""
        return [*self.seeds, *self.tuning_seeds] if agent.sweep else self.seeds


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
        raise SpecError(spec, [Fault("file", "no such file", f"a TOML file, or one of {', '.join(names)}{hint}")])
    try:
        return str(path), read_plain(path.resolve(), LARGEST_SPEC)
    except RecordError as error:
        raise SpecError(path, [Fault("file", str(error.got), str(error.expected))]) from error


def read_spec(
    content: bytes, path: str | Path, imports: Sequence[str] = ()
) -> tuple[dict[str, Any], Spec, list[Cell], registry.Modules]:
    """Return the data of a spec, the spec, its cells, and the modules that it and the user (``imports``) name.

    Every problem and agent is built once, and all errors are reported at once: those of form, of names and of values.
    """
    try:
        data = as_toml("file", content)
    except ParameterError as error:
        raise SpecError(path, [Fault("file", str(error.got), str(error.expected))]) from error
    spec, faults = _formed(data)
    if spec is None:
        raise SpecError(path, faults)
    modules = registry.NO_MODULES
    more: list[Fault] = []
    try:
        modules = require_imports(path, spec.imports, imports)
    except SpecError as error:
        more += error.faults
    more += _repeated(spec)
    cells = _cells(spec, more, refused=set(spec.imports) - set(modules.names), incomplete=bool(faults))
    keys = [fault.key for fault in faults]  # what is at fault there was left out afterwards
    faults += [each for each in dict.fromkeys(more) if not any(_nested(each.key, key) for key in keys)]
    if faults:
        raise SpecError(path, faults)
    return data, spec, cells, modules


def _nested(one: str, other: str) -> bool:
    """Say whether one of two keys is the other or lies in its table."""
    longer, shorter = sorted((one, other), key=len, reverse=True)
    return longer == shorter or longer.startswith((f"{shorter}.", f"{shorter}["))


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


_PLACEHOLDERS: dict[str, Any] = {"name": "?", "episodes": 1_000, "seeds": 1}


def _formed(data: dict[str, Any]) -> tuple[Spec | None, list[Fault]]:
    """Return the spec and the faults of its form; without what is at fault, as far as a spec is left."""
    faults: list[Fault] = []
    try:
        spec = Spec.model_validate(data)
    except ValidationError as error:
        faults = [fault_of_form(each) for each in error.errors()]
        rest = copy.deepcopy(data)
        for each in error.errors():
            _leave_out(rest, each["loc"])
        try:
            spec = Spec.model_validate(rest)
        except ValidationError:
            return None, faults
    for kind, entries in spec.entries:  # what would not come to an end, before anything is expanded
        if (count := sum(entry.size for entry in entries)) > MOST_CELLS:
            return None, [*faults, Fault(f"{kind}.sweep", f"{count:,} combinations", f"at most {MOST_CELLS:,}")]
    return spec, faults


def _leave_out(data: dict[str, Any], location: tuple[Any, ...]) -> None:
    """Take what is at fault out of a spec; what it cannot do without gets a placeholder."""
    table, needed, key = data, _PLACEHOLDERS, location[0]
    if key in ("problem", "agent") and len(location) > 1:
        entries, number = data[key], location[1]
        if not isinstance(entries[number], dict):
            entries[number] = {}
        table, needed, key = entries[number], {"name": f"?{number}"}, location[2] if len(location) > 2 else "name"
    table.pop(key, None)
    if key in needed:
        table[key] = needed[key]


def fault_of_form(error: Any) -> Fault:
    """Return an error of pydantic's under a key such as ``agent[1].parameters.delta``."""
    location = error["loc"]
    key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).removeprefix(".")
    if error["type"] == "missing":
        return Fault(key, "nothing", "a value: it is required")
    if error["type"] == "extra_forbidden":
        models: dict[str, type[Strict]] = {"problem": ProblemEntry, "agent": AgentEntry}
        model = models.get(str(location[0]), Entry) if len(location) > 1 else Spec
        model = Entry if len(location) > 3 else model
        fields = [field.alias or name for name, field in model.model_fields.items()]
        return Fault(key, "an unknown key", _nearest(location[-1], fields))
    got = shown(error["input"])
    expected = re.sub(r"^((Input|String|List|Dictionary) should (be|have)|Value error,) ", "", error["msg"])
    return Fault(key, got if len(got) <= 100 else got[:100] + "...", expected)


def _nearest(name: object, known: Iterable[str]) -> str:
    """Return what to say instead of an unknown name."""
    return str(UnknownName("name", got=name, known=known).expected)


def _repeated(spec: Spec) -> Iterator[Fault]:
    """Find what occurs twice or does nothing."""
    if len(set(spec.seeds)) < len(spec.seeds):
        yield Fault("seeds", f"{spec.seeds}", "each seed once")
    if len({*spec.seeds, *spec.tuning_seeds}) < len({*spec.seeds}) + len(spec.tuning_seeds):
        yield Fault("tuning_seeds", f"{spec.tuning_seeds}", "each seed once, and none that is shown")
    if spec.tuning_seeds and not any(agent.sweep for agent in spec.agent):
        yield Fault("tuning_seeds", f"{spec.tuning_seeds}", "none: only swept agents play them, and no agent is swept")
    labels: dict[str, set[str]] = {"problem": set(), "agent": set()}
    for kind, entries in spec.entries:
        for number, entry in enumerate(entries):
            for key in sorted(set(entry.sweep) & set(entry.fixed)):
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


def _cells(spec: Spec, faults: list[Fault], *, refused: set[str], incomplete: bool) -> list[Cell]:
    """Return the cells of a spec, after building every problem and agent once; what is wrong is added to ``faults``.

    A problem with a parameter that is refused is looked at without it, so that its agents are looked at as well.
    """
    labels = [(problem, label) for problem in spec.problem for label, _ in problem.variants()]
    count = sum(
        agent.size * sum(agent.plays(*each) for each in labels) * len(spec.seeds_of(agent)) for agent in spec.agent
    )
    if count > MOST_CELLS or not (count or faults or incomplete):  # before any of them is built
        faults.append(Fault("cells", f"{count:,}", f"from 1 to {MOST_CELLS:,}"))
        return []
    from occamrl.experiments.resolution import Resolution, known_agents, make_problem, parameters_of
    from occamrl.problems.mdp import as_mdp
    from occamrl.selectors.references import REFERENCES

    names = known_agents()
    problems = list(_found("problem", spec.problem, registry.named("problems"), ("problems",), faults, refused))
    players = list(_found("agent", spec.agent, names, AGENTS, faults, refused))
    cells: list[Cell] = []
    unseen = {position for position, _, _ in players}
    for number, problem, kind in problems:
        episodes = problem.episodes or spec.episodes
        for label, parameters in problem.variants():
            mdp, whole = None, False
            with _collected(faults, f"problem[{number}].", problem):
                canonical(parameters)
                made = make_problem(kind, json.dumps(parameters))
                mdp, whole = as_mdp(made.mdp), True  # built here, so that what is wrong with it shows now
            if mdp is None:
                with contextlib.suppress(*_OF_PARAMETERS):
                    made = registry.build_problem(kind, parameters, [])
                    mdp = as_mdp(made.mdp)
            if mdp is None:
                continue
            one, resolution = Variant(kind, label, parameters), Resolution(made, episodes)
            for position, agent, name in players:
                for who, options in agent.variants() if agent.plays(problem, label) else ():
                    unseen.discard(position)
                    with _collected(faults, f"agent[{position}].", agent):
                        canonical(options)
                        resolution.agent(name, options)
                        seeds = spec.seeds_of(agent) if whole else []
                        cells += [
                            Cell(one, Variant(name, who, options), seed, episodes, spec.thinning) for seed in seeds
                        ]
    for position, agent, name in players:  # those whose problems could not be built: their parameters' names
        if position in unseen and name not in REFERENCES:
            known = parameters_of(registry.find("agent", name, names, *AGENTS))
            for given in {**agent.fixed, **agent.sweep}:
                with _collected(faults, f"agent[{position}].", agent):
                    require_choice(given, given, known)
    return cells


def _found(
    key: str,
    entries: Sequence[_Entry],
    known: dict[str, Any],
    kinds: Sequence[str],
    faults: list[Fault],
    refused: set[str],
) -> Iterator[tuple[int, _Entry, str]]:
    """Yield (position, entry, its canonical name); those that are not found are faults."""
    for number, entry in enumerate(entries):
        if entry.name.partition(":")[0] in refused:
            continue
        try:
            registry.find(f"{key}[{number}].name", entry.name, known, *kinds)
            yield number, entry, registry.canonical_name(key, entry.name, known)
        except InvalidInput as error:
            faults.append(Fault(error.field, str(error.got), str(error.expected)))


@contextmanager
def _collected(faults: list[Fault], key: str, entry: Entry) -> Iterator[None]:
    """Take note of what is wrong with a parameter, under the key where the user wrote it."""
    try:
        yield
    except InvalidInput as errors:
        for error in getattr(errors, "errors", [errors]):
            name = error.field.split()[0] if " " in error.field else error.field
            if isinstance(error, UnknownName) and error.field.endswith(" parameter"):
                name = str(error.got).strip("'")
            faults.append(Fault(f"{key}{_table_of(name, entry)}{name}", str(error.got), str(error.expected)))
    except _OF_PARAMETERS as error:
        expected = "values of valid kinds and sizes, none of them nan"
        faults.append(Fault(f"{key}parameters", f"{type(error).__name__}: {error}", expected))


def _table_of(name: str, entry: Entry) -> str:
    """Return the table of an entry in which a parameter stands."""
    head = re.split(r"\W", name, maxsplit=1)[0]
    if head in entry.sweep:
        return "sweep."
    return "" if head in ("bases", "rule") and head not in entry.parameters else "parameters."
