"""From plain data to problems and agents: the symbolic values among parameters are resolved.

Agents need what only the problem knows. Their parameters take symbolic values for it, such as ``norm_bound = "true"``;
which ones follows from the field of the agent's dataclass, and `docs/experiments.md` lists them. The references of a
selector (:mod:`occamrl.selectors.references`) are named like agents. Nothing of the truth is handed out unless a
parameter asks for it by name.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np

from occamrl import registry, seeding
from occamrl.errors import InvalidInput, ParameterError, UnknownName, raise_all, require_choice, require_integer
from occamrl.experiments.records import Cell
from occamrl.experiments.spec import AGENTS, Entry
from occamrl.learners.rewards import rewards_of
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.problems.mdp import as_mdp
from occamrl.protocols import Agent, Floats, RuledBases
from occamrl.selectors.references import REFERENCES, on_class, oracle

_MOST_LISTED = 100  # entries of a parameter that a manifest lists one by one
_LARGEST = 10**6  # kernels of a family, or a seed
_WITH_TRUTH = "{ random = 7, with_truth = true }: the true kernel among random ones"
_WITH_TRUE = "{ sizes = [2, 8, 32], true = 2 }: random kernels, the true one in class 2"
_BY_NAME = ': { name = "module:Class", parameters = { ... } }'

Described = tuple[Any, Any]  # an object, and how a manifest describes it in plain data


def known_agents() -> dict[str, Any]:
    """Return what an agent may be called: learners, selectors (of installed packages too) and references."""
    return registry.named(*AGENTS) | REFERENCES


def parameters_of(kind: Any) -> dict[str, bool]:
    """Return the names of the parameters of a class, and whether each is required."""
    named = inspect.signature(kind).parameters.values()
    plain = [each for each in named if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return {each.name: each.default is each.empty for each in plain}


@lru_cache(maxsize=4)
def make_problem(name: str, parameters: str) -> Any:
    """Return a problem, its parameters given as JSON; cells of one problem that follow each other share it."""
    return registry.make_problem(name, **json.loads(parameters))


def make_cell(cell: Cell) -> tuple[Any, Agent, dict[str, Any]]:
    """Return (problem, agent, the agent's parameters as resolved, in plain data), ready to run."""
    problem = make_problem(cell.problem.name, json.dumps(cell.problem.parameters))
    agent, about = Resolution(problem, cell.episodes).agent(cell.agent.name, cell.agent.parameters)
    ladder, theta = getattr(agent, "ladder", None), getattr(problem, "theta", None)
    if isinstance(ladder, Ladder):  # a report names the classes and marks the true one
        about["classes"] = list(ladder.names)[:_MOST_LISTED]
        about["true_class"] = ladder.class_of(as_mdp(problem))
    if theta is not None and getattr(getattr(agent, "features", None), "dimension", 0) == np.size(theta):
        about["true_support"] = np.flatnonzero(theta).tolist()[:_MOST_LISTED]
    return problem, agent, about | claims(agent)


def claims(agent: Any) -> dict[str, Any]:
    """Return what is proved of an agent and what it is given beforehand, as its class states it.

    The attributes are ``guarantee`` and ``given``; of an arena those of its rule. Where a ``scale`` is not 1, what was
    proved for the published constants is not claimed.
    """
    parts = [agent.rule, *agent.bases] if isinstance(agent, RuledBases) else [agent]
    stated = str(getattr(parts[0], "guarantee", "not stated"))
    if stated not in ("none", "not stated") and any(getattr(each, "scale", 1.0) != 1.0 for each in parts):
        stated = "constants scaled"
    return {"guarantee": stated, "given": list(getattr(parts[0], "given", ()))}


class Resolution:
    """Builds agents, rules and models for one problem, with the symbolic values among their parameters resolved."""

    def __init__(self, problem: Any, episodes: int) -> None:
        self.problem, self.episodes = problem, episodes
        self.named = cache(registry.named)  # the metadata of installed packages are read once

    @cached_property
    def own_ladder(self) -> Ladder:
        """The ladder that the problem brings along: one for all bases and agents."""
        return Ladder.of_problem(self.problem)

    def agent(self, name: str, parameters: dict[str, Any]) -> Described:
        """Return an agent, and its parameters in plain data."""
        kind = registry.find("agent", name, self.named(*AGENTS) | REFERENCES, *AGENTS)
        return self._reference(kind, dict(parameters)) if kind in REFERENCES.values() else self._build(kind, parameters)

    def _build(self, kind: Any, parameters: dict[str, Any]) -> Described:
        """Return ``kind`` with these parameters; everything that is wrong with them is reported together."""
        known, types = parameters_of(kind), {}
        if dataclasses.is_dataclass(kind):
            types = {each.name: str(each.type) for each in dataclasses.fields(kind)}
        errors: list[InvalidInput] = [
            UnknownName(given, got=given, known=known) for given in parameters if given not in known
        ]
        made: dict[str, Any] = {}
        about: dict[str, Any] = {}
        for each, required in known.items():
            if each in parameters or required:
                with _gathered(errors):
                    made[each], about[each] = self._resolved(each, types.get(each, ""), parameters, made)
        whole = all(each in made for each, required in known.items() if required)
        built = registry.construct(kind, made, errors) if whole else None
        raise_all(errors)
        return built, {each: about.get(each) or _plain(getattr(built, each, None)) for each in types or known}

    def _reference(self, kind: Any, parameters: dict[str, Any]) -> Described:
        """Return a reference of the selector that ``parameters`` name and describe; an oracle knows the truth."""
        name, problem = parameters.pop("selector", None), self.problem
        if not isinstance(name, str):
            raise ParameterError("selector", got=repr(name), expected="the name of a selector")
        found = registry.find("selector", name, self.named("selectors"), "selectors")
        m = parameters.pop("m", None) if kind is on_class else None
        selector, about = self._build(found, parameters)
        about = {"selector": found.__name__, **about}
        if kind is on_class:
            return on_class(selector, m, {}), {**about, "m": m}
        if kind is not oracle:
            return kind(selector), about
        if hasattr(selector, "ladder"):
            truth = selector.ladder.class_of(problem.mdp)
            right, knows, missing = truth, f"class {truth}", "none of the ladder's classes holds the problem's kernel"
        else:
            truth = getattr(problem, "theta", None)
            right = None if truth is None else np.flatnonzero(truth).tolist()
            knows, missing = "the problem's theta", f"{type(problem).__name__} has no theta"
        if truth is None:
            raise ParameterError("selector", got=repr(name), expected=f"one whose answer is known: {missing}")
        return oracle(selector, truth), {**about, "knows": knows, "right": right}

    def _resolved(self, name: str, kind: str, given: dict[str, Any], made: dict[str, Any]) -> Described:
        """Return what ``given[name]`` stands for and how to describe it; some that are required may be left out."""
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
            refused = "features" in given and "features" not in made  # these come first, and were reported
            return 1.0 if refused else _norm(value, made.get("features"), problem), None
        if name == "delta" and isinstance(value, str):
            if value.replace(" ", "") != "1/K":
                raise ParameterError(name, got=repr(value), expected='a number in (0, 1), or "1/K"')
            return 1.0 / self.episodes, None
        return value, None

    def _named(self, field: str, value: Any, *kinds: str) -> Described:
        """Return what a name, or a table with name and parameters, stands for."""
        entry = Entry.of(field, value)
        if entry.sweep:
            expected = f"none here: sweep over {field} itself, with a list of tables"
            raise ParameterError(f"{field}.sweep", got="a sweep", expected=expected)
        known = self.named(*kinds or ("families",))
        found = registry.find(f"{field}.name", entry.name, known, *kinds)
        with _within(f"{field}.parameters."):
            built, about = self._build(found, entry.parameters)
        return built, {"name": registry.canonical_name(field, entry.name, known), **about}

    def _bases(self, value: Any) -> Described:
        """Return the agents of a list of tables; a table with a sweep stands for several."""
        if not isinstance(value, list) or not value:
            raise ParameterError("bases", got=repr(value), expected="a list of agents: [{ name = ... }, ...]")
        errors: list[InvalidInput] = []
        made: list[Described] = []
        for number, each in enumerate(value):
            entry = Entry.of(f"bases[{number}]", each)
            for _, parameters in entry.variants():
                with _gathered(errors):
                    registry.find(f"bases[{number}].name", entry.name, self.named(*AGENTS) | REFERENCES, *AGENTS)
                    with _within(f"bases[{number}].parameters."):
                        base, about = self.agent(entry.name, parameters)
                        made.append((base, {"name": entry.name, **about}))
        raise_all(errors)
        return [base for base, _ in made], [about for _, about in made]

    def _family(self, name: str, value: Any) -> Described:
        if value == "problem":
            family = self.own_ladder.family
            return family, f"the problem's own: {family!r}"
        if _by_name(value):
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
        return FiniteFamily(kernels), f"{'the true kernel and ' * truth}{count} random kernels (seed {seed})"

    def _ladder(self, name: str, value: Any) -> Described:
        problem, own = self.problem, hasattr(self.problem, "hypotheses")
        if own and value in (None, "problem"):
            return self.own_ladder, f"the problem's own: {self.own_ladder!r}"
        if value in (None, "problem"):
            got = f"{'nothing' if value is None else repr(value)}, and {type(problem).__name__} brings no ladder along"
            expected = f"{_WITH_TRUE}, or rungs of yours: {{ rungs = [{{ name = ..., parameters = ... }}, ...] }}"
            raise ParameterError(name, got=got, expected=expected)
        if _by_name(value):
            return self._named(name, value)
        if isinstance(value, dict) and "rungs" in value:
            listed = _table(name, value, ("rungs",))["rungs"]
            if not isinstance(listed, list) or not listed:
                raise ParameterError(f"{name}.rungs", got=repr(listed), expected=f"a list of classes{_BY_NAME}")
            rungs = [self._named(f"{name}.rungs[{m}]", rung) for m, rung in enumerate(listed)]
            return Ladder([rung for rung, _ in rungs]), [about for _, about in rungs]
        table = _table(name, value, ("sizes", "true", "seed"))
        sizes = table.get("sizes", [2, 8, 32])
        good = isinstance(sizes, list) and all(type(size) is int and 0 < size <= _LARGEST for size in sizes)
        if not good or not sizes or sizes != sorted(set(sizes)):
            raise ParameterError(f"{name}.sizes", got=sizes, expected="increasing whole numbers")
        joins = table.get("true")
        if type(joins) is not int or not 0 <= joins <= len(sizes):
            expected = f"the class, from 1 to {len(sizes)}, that the true kernel joins; 0: none of them"
            raise ParameterError(f"{name}.true", got="nothing" if joins is None else repr(joins), expected=expected)
        first = None if joins == 0 else 0 if joins == 1 else sizes[joins - 2]
        seed = _count(name, table, "seed", 0)
        kernels = _kernels(problem, sizes[-1], seed, first)
        where = f"in class {joins}" if joins else "in no class"
        about = f"classes of {' < '.join(map(str, sizes))} random kernels (seed {seed}), the true kernel {where}"
        return Ladder([FiniteFamily(kernels[:size]) for size in sizes]), about


def _by_name(value: Any) -> bool:
    """Say whether a class is called by its name."""
    return isinstance(value, str) or (isinstance(value, dict) and "name" in value)


def _features(name: str, value: Any, problem: Any) -> tuple[FeatureMap, str]:
    """Return the features that a symbolic value stands for, and how to describe them."""
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


def _table(name: str, value: Any, keys: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ParameterError(name, got=repr(value), expected=f"a table with {', '.join(keys)}")
    for key in value:
        require_choice(f"{name}.{key}", key, keys)
    return value


def _count(name: str, table: dict[str, Any], key: str, default: int) -> int:
    return require_integer(f"{name}.{key}", table.get(key, default), 0, most=_LARGEST)


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


@contextmanager
def _gathered(errors: list[InvalidInput]) -> Iterator[None]:
    """Add an error to the others instead of raising it."""
    try:
        yield
    except InvalidInput as error:
        errors += getattr(error, "errors", [error])


@contextmanager
def _within(prefix: str) -> Iterator[None]:
    """Report errors under the key of the table in which they are."""
    try:
        yield
    except InvalidInput as error:
        each = getattr(error, "errors", [error])
        raise_all([ParameterError(f"{prefix}{one.field}", got=one.got, expected=one.expected) for one in each])
