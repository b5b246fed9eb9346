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

import contextlib
import copy
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
from functools import cache, cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field, ValidationError

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
    raise_all,
    require_choice,
)
from occamrl.experiments.cells import Cell, Count, Seed, Strict, Thinning, Variant
from occamrl.learners.rewards import rewards_of
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Agent, Floats, RuledBases
from occamrl.running.files import canonical, read_plain
from occamrl.selectors.references import REFERENCES, on_class, oracle

LARGEST_SPEC = 2**20
MOST_CELLS = 100_000
_MOST_LISTED = 100  # entries of a parameter that a manifest tells one by one
_OF_PARAMETERS = (OccamRLError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, MemoryError)


AGENTS = ("learners", "selectors", "arenas")


def agents() -> dict[str, Any]:
    """Return what an agent may be called: learners, selectors (of installed packages too) and references."""
    return registry.named(*AGENTS) | REFERENCES


def make_agent(name: str, parameters: dict[str, Any], problem: Any, episodes: int) -> Agent:
    """Return an agent for a problem, with the symbolic values among its parameters resolved."""
    agent: Agent = Resolution(problem, episodes).agent(name, parameters)[0]
    return agent


def claims(agent: Any) -> dict[str, Any]:
    """Return what is proved of an agent and what it is told beforehand, as its class states it.

    The attributes are ``guarantee`` and ``told``; of an arena those of its rule. Where a ``scale`` is not 1, what was
    proved for the published constants is not claimed.
    """
    ruled = isinstance(agent, RuledBases)
    parts = [agent.rule, *agent.bases] if ruled else [agent]
    stated = str(getattr(parts[0], "guarantee", "not stated"))
    if stated not in ("none", "not stated") and any(getattr(each, "scale", 1.0) != 1.0 for each in parts):
        stated = "constants scaled"
    return {"guarantee": stated, "told": list(getattr(parts[0], "told", ()))}


Told = tuple[Any, dict[str, Any]]  # an object, and its parameters in plain words


class Resolution:
    """Builds agents, rules and models for one problem, with the symbolic values among their parameters resolved."""

    def __init__(self, problem: Any, episodes: int) -> None:
        self.problem, self.episodes = problem, episodes
        self.named = cache(registry.named)  # the metadata of installed packages are read once

    @cached_property
    def own_ladder(self) -> Ladder:
        """The ladder that the problem brings along: one for all bases and agents."""
        return Ladder.of_problem(self.problem)

    def agent(self, name: str, parameters: dict[str, Any]) -> Told:
        """Return an agent, and its parameters in plain words."""
        kind = registry.find("agent", name, self.named(*AGENTS) | REFERENCES, *AGENTS)
        return self._reference(kind, dict(parameters)) if kind in REFERENCES.values() else self._build(kind, parameters)

    def _build(self, kind: Any, parameters: dict[str, Any]) -> Told:
        """Return ``kind`` with these parameters; what is wrong with them is told together."""
        known, types = _known(kind), {}
        if dataclasses.is_dataclass(kind):
            types = {each.name: str(each.type) for each in dataclasses.fields(kind)}
        errors: list[InvalidInput] = [
            UnknownName(given, got=given, known=known) for given in parameters if given not in known
        ]
        made: dict[str, Any] = {}
        words: dict[str, Any] = {}
        for each, required in known.items():
            if each in parameters or required:
                with _gathered(errors):
                    made[each], words[each] = self._resolved(each, types.get(each, ""), parameters, made)
        whole = all(each in made for each, required in known.items() if required)
        built = registry.construct(kind, made, errors) if whole else None
        raise_all(errors)
        return built, {each: words.get(each) or _plain(getattr(built, each, None)) for each in types or known}

    def _reference(self, kind: Any, parameters: dict[str, Any]) -> Told:
        """Return a reference of the selector that ``parameters`` name and describe; an oracle knows the truth."""
        name, problem = parameters.pop("selector", None), self.problem
        if not isinstance(name, str):
            raise ParameterError("selector", got=repr(name), expected="the name of a selector")
        found = registry.find("selector", name, self.named("selectors"), "selectors")
        m = parameters.pop("m", None) if kind is on_class else None
        selector, words = self._build(found, parameters)
        words = {"selector": found.__name__, **words}
        if kind is on_class:
            return on_class(selector, m, {}), {**words, "m": m}
        if kind is not oracle:
            return kind(selector), words
        if hasattr(selector, "ladder"):
            truth = selector.ladder.class_of(problem.mdp)
            right, knows, missing = truth, f"class {truth}", "none of the ladder's classes holds the problem's kernel"
        else:
            truth = getattr(problem, "theta", None)
            right = None if truth is None else np.flatnonzero(truth).tolist()
            knows, missing = "the problem's theta", f"{type(problem).__name__} has no theta"
        if truth is None:
            raise ParameterError("selector", got=repr(name), expected=f"one whose answer is known: {missing}")
        return oracle(selector, truth), {**words, "knows": knows, "right": right}

    def _resolved(self, name: str, kind: str, given: dict[str, Any], made: dict[str, Any]) -> tuple[Any, Any]:
        """Return what ``given[name]`` stands for and how to say it; some that are required may be left out."""
        value, problem = given.get(name), self.problem
        if "FeatureMap" in kind:
            return _features(name, value, problem)
        if "FiniteMDP" in kind:
            require_choice(name, "problem" if value is None else value, ["problem"])
            return problem.mdp, "the problem itself"
        if "Family" in kind:
            return self._family(name, value)
        if "Ladder" in kind:
            return self._ladder(name, value)
        if name == "bases":
            return self._bases(value)
        if name == "rule":
            return self._named(name, value, "rules")
        if kind == "Rewards":
            return rewards_of(value, name), None
        if name not in given:
            raise ParameterError(name, got="nothing", expected="a value: it is required")
        if name == "norm_bound" and isinstance(value, str):
            told = "features" in given and "features" not in made  # these come first
            return 1.0 if told else _norm(value, made.get("features"), problem), None
        if name == "delta" and isinstance(value, str):
            if value.replace(" ", "") != "1/K":
                raise ParameterError(name, got=repr(value), expected='a number in (0, 1), or "1/K"')
            return 1.0 / self.episodes, None
        return value, None

    def _named(self, field: str, value: Any, *kinds: str) -> tuple[Any, Any]:
        """Return what a name, or a table with name and parameters, stands for."""
        entry = _entry(field, value)
        if entry.sweep:
            expected = f"none here: sweep over {field} itself, with a list of tables"
            raise ParameterError(f"{field}.sweep", got="a sweep", expected=expected)
        known = self.named(*kinds or ("families",))
        found = registry.find(f"{field}.name", entry.name, known, *kinds)
        with _within(f"{field}.parameters."):
            built, words = self._build(found, entry.parameters)
        return built, {"name": registry.canonical_name(field, entry.name, known), **words}

    def _bases(self, value: Any) -> tuple[Any, Any]:
        """Return the agents of a list of tables; a table with a sweep stands for several."""
        if not isinstance(value, list) or not value:
            raise ParameterError("bases", got=repr(value), expected="a list of agents: [{ name = ... }, ...]")
        errors: list[InvalidInput] = []
        made: list[Told] = []
        for number, each in enumerate(value):
            entry = _entry(f"bases[{number}]", each)
            for _, parameters in entry.variants():
                with _gathered(errors):
                    registry.find(f"bases[{number}].name", entry.name, self.named(*AGENTS) | REFERENCES, *AGENTS)
                    with _within(f"bases[{number}].parameters."):
                        base, words = self.agent(entry.name, parameters)
                        made.append((base, {"name": entry.name, **words}))
        raise_all(errors)
        return [base for base, _ in made], [words for _, words in made]

    def _family(self, name: str, value: Any) -> tuple[Any, Any]:
        if isinstance(value, str) and value == "problem":
            family = self.own_ladder.family
            return family, f"the problem's own: {family!r}"
        if isinstance(value, str) or (isinstance(value, dict) and "name" in value):
            return self._named(name, value)
        if value is None:
            own = ', or "problem": the largest class of its ladder' if hasattr(self.problem, "hypotheses") else ""
            raise ParameterError(name, got="nothing", expected=f"{_WITH_TRUTH}{own}, or a class of yours{_BY_NAME}")
        table = _table(name, value, ("random", "with_truth", "seed"))
        truth = table.get("with_truth")
        if not isinstance(truth, bool):
            raise ParameterError(f"{name}.with_truth", got=repr(truth), expected=f"true or false, as in {_WITH_TRUTH}")
        count, seed = _count(name, table, "random", 7), _count(name, table, "seed", 0)
        kernels = _kernels(self.problem, count + truth, seed, 0 if truth else None)
        said = f"{'the true kernel and ' if truth else ''}{count} random kernels (seed {seed})"
        return FiniteFamily(kernels), said

    def _ladder(self, name: str, value: Any) -> tuple[Any, Any]:
        problem, own = self.problem, hasattr(self.problem, "hypotheses")
        if value == "problem" or (value is None and own):
            if not own:
                expected = f"{_WITH_TRUE}: {type(problem).__name__} brings no ladder along"
                raise ParameterError(name, got=repr(value), expected=expected)
            return self.own_ladder, f"the problem's own: {self.own_ladder!r}"
        if value is None:
            expected = f"{_WITH_TRUE}, or rungs of yours: {{ rungs = [{{ name = ..., parameters = ... }}, ...] }}"
            got = f"nothing, and {type(problem).__name__} brings no ladder along"
            raise ParameterError(name, got=got, expected=expected)
        if isinstance(value, str) or (isinstance(value, dict) and "name" in value):
            return self._named(name, value)
        if isinstance(value, dict) and "rungs" in value:
            listed = _table(name, value, ("rungs",))["rungs"]
            if not isinstance(listed, list) or not listed:
                raise ParameterError(f"{name}.rungs", got=repr(listed), expected=f"a list of classes{_BY_NAME}")
            rungs = [self._named(f"{name}.rungs[{m}]", rung) for m, rung in enumerate(listed)]
            return Ladder([rung for rung, _ in rungs]), [words for _, words in rungs]
        table = _table(name, value, ("sizes", "true", "seed"))
        sizes = table.get("sizes", [2, 8, 32])
        good = isinstance(sizes, list) and all(type(size) is int and 0 < size <= 10**6 for size in sizes)
        if not good or not sizes or sizes != sorted(set(sizes)):
            raise ParameterError(f"{name}.sizes", got=sizes, expected="increasing whole numbers")
        joins = table.get("true")
        if type(joins) is not int or not 0 <= joins <= len(sizes):
            expected = f"the class, from 1 to {len(sizes)}, that the true kernel joins; 0: none of them"
            raise ParameterError(f"{name}.true", got="nothing" if joins is None else repr(joins), expected=expected)
        first = None if joins == 0 else 0 if joins == 1 else sizes[joins - 2]
        seed = _count(name, table, "seed", 0)
        kernels = _kernels(problem, sizes[-1], seed, first)
        said = f"the true kernel in class {joins}" if joins else "the true kernel in no class"
        words = f"classes of {' < '.join(map(str, sizes))} random kernels (seed {seed}), {said}"
        return Ladder([FiniteFamily(kernels[:size]) for size in sizes]), words


_WITH_TRUTH = "{ random = 7, with_truth = true }: the true kernel among random ones"
_WITH_TRUE = "{ sizes = [2, 8, 32], true = 2 }: random kernels, the true one in class 2"
_BY_NAME = ': { name = "module:Class", parameters = { ... } }'


def _known(kind: Any) -> dict[str, bool]:
    """Return the names of the parameters of a class, and whether each is required."""
    named = inspect.signature(kind).parameters.values()
    plain = [each for each in named if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return {each.name: each.default is each.empty for each in plain}


@contextmanager
def _gathered(errors: list[InvalidInput]) -> Iterator[None]:
    """Add an error to the others instead of raising it."""
    try:
        yield
    except InvalidInput as error:
        errors += getattr(error, "errors", [error])


@contextmanager
def _within(prefix: str) -> Iterator[None]:
    """Tell errors under the key of the table in which they are."""
    try:
        yield
    except InvalidInput as error:
        each = getattr(error, "errors", [error])
        raise_all([ParameterError(f"{prefix}{one.field}", got=one.got, expected=one.expected) for one in each])


def _entry(field: str, value: Any) -> Entry:
    """Return a name, or a table with name and parameters, as an entry."""
    if value is None:
        raise ParameterError(field, got="nothing", expected="a name, or a table with name and parameters")
    try:
        return Entry.model_validate(_as_table(value))
    except ValidationError as error:
        faults = [fault_of_form(each) for each in error.errors()]
        raise_all([ParameterError(f"{field}.{each.key}", got=each.got, expected=each.expected) for each in faults])
        raise  # there is at least one


def _plain(value: Any) -> Any:
    """Return a parameter as plain data, as far as it is plain, else in words."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)) and len(value) <= _MOST_LISTED:
        return [_plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return repr(value)[:1_000]


def _features(name: str, value: Any, problem: Any) -> tuple[FeatureMap, str]:
    """Return the features that a symbolic value stands for, and how to say it."""
    mdp, own = problem.mdp, getattr(problem, "phi", None)
    if value is None:
        value = "tabular" if own is None else "problem"
    if value == "tabular":
        tabular = FeatureMap.tabular(states=mdp.states, actions=mdp.actions)
        return tabular, f"one-hot: {tabular!r}"
    if not isinstance(value, dict):
        require_choice(name, value, ("problem", "tabular", "support"))
    if own is None:
        raise ParameterError(name, got=repr(value), expected=f'"tabular": {type(problem).__name__} has no features')
    if value == "problem":
        return (whole := FeatureMap(own)), f"the problem's own: {whole!r}"
    if value == "support":
        support = np.flatnonzero(problem.theta).tolist()
        return FeatureMap(own).restrict(support), f"the problem's own, on the support of its theta: {support}"
    chosen = _table(name, value, ("restrict",)).get("restrict")
    if not isinstance(chosen, list) or not chosen:
        raise ParameterError(f"{name}.restrict", got=repr(chosen), expected="a list of coordinates")
    return FeatureMap(own).restrict(chosen), f"the problem's own, restricted to {chosen}"


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


def _kernels(problem: Any, count: int, seed: int, first: int | None) -> Floats:
    """Return ``count`` kernels: the problem's own at position ``first``, if any, the others drawn uniformly."""
    truth = _kernel(problem)
    draw = seeding.stream(seed, "spec", "kernels")
    kernels = draw.dirichlet(np.ones(truth.shape[2]), size=(count, *truth.shape[:2]))
    if first is not None:
        kernels[first] = truth
    return kernels


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


class Entry(Strict):
    """A problem or an agent: what every variant has, and what is swept over."""

    name: Name
    label: Label = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)

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
        raise SpecError(spec, [Fault("file", "nothing there", f"a TOML file, or one of {', '.join(names)}{hint}")])
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
        data = tomllib.loads(content.decode("utf-8-sig"))  # some editors begin a file with a mark of the encoding
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise SpecError(path, [Fault("file", f"{error}", "TOML in UTF-8")]) from error
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
    told = [fault.key for fault in faults]  # what is at fault there was left out afterwards
    faults += [each for each in dict.fromkeys(more) if not any(_nested(each.key, key) for key in told)]
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
    if len({*spec.seeds, *spec.tuning_seeds}) < len({*spec.seeds}) + len(spec.tuning_seeds):
        yield Fault("tuning_seeds", f"{spec.tuning_seeds}", "each seed once, and none that is shown")
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


def make_cell(cell: Cell) -> tuple[Any, Agent, dict[str, Any]]:
    """Return (problem, agent, the agent's parameters as resolved, in plain words), ready to run."""
    problem = _problem(cell.problem.name, json.dumps(cell.problem.parameters))
    agent, words = Resolution(problem, cell.episodes).agent(cell.agent.name, cell.agent.parameters)
    ladder = getattr(agent, "ladder", None)
    if isinstance(ladder, Ladder):  # a report names the classes and marks the true one
        words = {
            **words,
            "classes": list(ladder.names)[:_MOST_LISTED],
            "true_class": ladder.class_of(as_mdp(problem)),
        }
    theta = getattr(problem, "theta", None)
    if theta is not None and getattr(getattr(agent, "features", None), "dimension", 0) == np.size(theta):
        words = {**words, "true_support": np.flatnonzero(theta).tolist()[:_MOST_LISTED]}
    return problem, agent, words | claims(agent)


@lru_cache(maxsize=4)
def _problem(name: str, parameters: str) -> Any:
    """Return a problem; cells of one problem that follow each other share it."""
    return registry.make_problem(name, **json.loads(parameters))


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
    problems = list(_found("problem", spec.problem, registry.named("problems"), ("problems",), faults, refused))
    players = list(_found("agent", spec.agent, agents(), AGENTS, faults, refused))
    cells: list[Cell] = []
    unseen = {position for position, _, _ in players}
    for number, problem, kind in problems:
        rest: dict[str, Any] = {"episodes": problem.episodes or spec.episodes, "thinning": spec.thinning}
        for label, parameters in problem.variants():
            made, whole = None, False
            with _collected(faults, f"problem[{number}].", problem):
                canonical(parameters)
                made = _problem(kind, json.dumps(parameters))
                _ = made.mdp  # built here, so that what is wrong with it shows now
                whole = True
            if made is None:
                with contextlib.suppress(*_OF_PARAMETERS):
                    made = registry.build_problem(kind, parameters, [])
                    _ = made.mdp
            if made is None or not isinstance(getattr(made, "mdp", None), FiniteMDP):
                continue
            one = Variant(name=kind, label=label, parameters=parameters)
            resolution = Resolution(made, rest["episodes"])
            for position, agent, name in players:
                for who, options in agent.variants() if agent.plays(problem, label) else ():
                    unseen.discard(position)
                    with _collected(faults, f"agent[{position}].", agent):
                        canonical(options)
                        resolution.agent(name, options)
                        other = Variant(name=name, label=who, parameters=options)
                        if whole:
                            cells += [
                                Cell(problem=one, agent=other, seed=seed, **rest) for seed in spec.seeds_of(agent)
                            ]
    for position, agent, name in players:  # those whose problems could not be built: their parameters' names
        if position in unseen and name not in REFERENCES:
            known = _known(registry.find("agent", name, agents(), *AGENTS))
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
    """Yield (position, entry, its canonical name); those that are not found are faults, unless that was told."""
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
