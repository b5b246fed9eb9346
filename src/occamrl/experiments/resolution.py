"""From plain data to problems and agents: the symbolic values among parameters are resolved.

Agents need what only the problem knows. Their parameters take symbolic values for it, such as ``norm_bound = "true"``;
which ones follows from the field of the agent's dataclass, and `docs/experiments.md` lists them. Nothing of the truth
is handed out unless a parameter asks for it by name: ``"true"``, ``"support"``, ``with_truth``, ``oracle``.

The references of a selector are named like agents: ``oracle``, ``largest``, ``smallest`` and ``class`` (with ``m``),
with the selector's name and parameters. Each is the plain learner that a selector would be if it knew, or did not look.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from occamrl import registry
from occamrl.errors import Fault, InvalidInput, ParameterError, UnknownName, require_choice, require_integer, shown
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.families import AggregationFamily, FiniteFamily, LinearFamily
from occamrl.models.features import FeatureMap
from occamrl.models.ladder import Ladder
from occamrl.problems.mdp import as_mdp, stream
from occamrl.protocols import Floats

AGENTS = ("learners", "selectors", "paper")
REFERENCES = ("oracle", "largest", "smallest", "class")
_MOST_LISTED = 100  # entries of a parameter that a record lists one by one
_LARGEST = 10**6  # kernels of a family, or a seed
_WRONG = (InvalidInput, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, MemoryError)


@lru_cache(maxsize=4)
def make_problem(name: str, parameters: str) -> Any:
    """Return a problem, its parameters given as JSON; cells of one problem that follow each other share it."""
    problem = registry.make_problem(name, **json.loads(parameters))
    as_mdp(problem)
    return problem


class Resolver:
    """Builds agents for one problem; what is wrong with their parameters is collected in ``faults``."""

    def __init__(self, problem: Any, episodes: int) -> None:
        self.problem, self.episodes, self.mdp = problem, episodes, as_mdp(problem)
        self.faults: list[Fault] = []

    @contextmanager
    def noting(self, key: str) -> Iterator[None]:
        """Take note of an error under the key where the user wrote what is wrong, instead of raising it."""
        try:
            yield
        except _WRONG as error:
            if isinstance(error, InvalidInput):
                where = error.where if error.where.startswith(key) else key
                self.faults.append(Fault(where, shown(error.got, str), str(error.expected)))
            else:
                self.faults.append(Fault(key, f"{type(error).__name__}: {error}", "values of valid kinds and sizes"))

    def agent(self, name: str, parameters: dict[str, Any], key: str = "parameters") -> Any:
        """Return an agent by its name; None if something is wrong."""
        if name in REFERENCES:
            with self.noting(f"{key}.selector"):
                return self._reference(name, dict(parameters), key)
            return None
        return self.build(registry.find("agent", name, *AGENTS), parameters, key)

    def build(self, kind: Any, parameters: dict[str, Any], key: str) -> Any:
        """Return ``kind`` with these parameters; None if something is wrong."""
        every, before = inspect.signature(kind).parameters, len(self.faults)
        known = {name: each for name, each in every.items() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}
        types = (
            {each.name: str(each.type) for each in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
        )
        for given in parameters:
            if given not in known:
                expected = UnknownName(given, got=given, known=known).expected
                self.faults.append(Fault(f"{key}.{given}", "an unknown parameter", str(expected)))
        made: dict[str, Any] = {}
        for each, about in known.items():
            if each in parameters or about.default is about.empty:
                with self.noting(f"{key}.{each}"):
                    made[each] = self.value(f"{key}.{each}", each, types.get(each, ""), parameters, made)
        if len(self.faults) > before:
            return None
        try:
            return kind(**made)
        except InvalidInput as error:
            self.faults.append(Fault(f"{key}.{error.where}", shown(error.got, str), str(error.expected)))
        except _WRONG as error:
            self.faults.append(Fault(key, f"{type(error).__name__}: {error}", "values of valid kinds and sizes"))
        return None

    def value(self, key: str, name: str, kind: str, given: dict[str, Any], made: dict[str, Any]) -> Any:
        """Return what ``given[name]`` stands for; some that are required may be left out."""
        value = given.get(name)
        if "FeatureMap" in kind:
            return self._features(key, value)
        if "FiniteMDP" in kind:
            require_choice(key, "problem" if value is None else value, ["problem"])
            return self.mdp
        if "Family" in kind:
            return self._family(key, value)
        if "Ladder" in kind:
            return self._ladder(key, value)
        if name == "bases":
            return self._bases(key, value)
        if name in ("rule", "agent"):
            return self._named(key, value, ("rules",) if name == "rule" else AGENTS)
        if name not in given:
            raise ParameterError(key, got="nothing", expected="a value: it is required")
        if name == "norm_bound" and isinstance(value, str):
            return self._norm(key, value, made.get("features"))
        if name == "delta" and isinstance(value, str):
            if value.replace(" ", "") != "1/K":
                raise ParameterError(key, got=repr(value), expected='a number in (0, 1), or "1/K"')
            return 1.0 / self.episodes
        return value

    def _named(self, key: str, value: Any, kinds: Sequence[str]) -> Any:
        """Return what a name, or a table with name and parameters, stands for."""
        table = _table(key, {"name": value} if isinstance(value, str) else value, ("name", "parameters"))
        name, parameters = table.get("name"), table.get("parameters", {})
        if kinds == AGENTS and name in REFERENCES:
            return self.agent(name, parameters, f"{key}.parameters")
        return self.build(registry.find(f"{key}.name", name, *kinds), parameters, f"{key}.parameters")

    def _bases(self, key: str, value: Any) -> list[Any]:
        """Return the agents of a list of tables; a table with a sweep stands for several."""
        from occamrl.experiments.spec import Entry

        if not isinstance(value, list) or not value:
            raise ParameterError(key, got=repr(value), expected="a list of agents: [{ name = ... }, ...]")
        made = []
        for i, each in enumerate(value):
            with self.noting(f"{key}[{i}]"):
                entry = Entry.model_validate({"name": each} if isinstance(each, str) else each)
                for _, parameters in entry.variants():
                    with self.noting(f"{key}[{i}].name"):
                        made.append(self.agent(entry.name, parameters, f"{key}[{i}].parameters"))
        return made

    def _features(self, key: str, value: Any) -> FeatureMap:
        own = getattr(self.problem, "phi", None)
        value = ("tabular" if own is None else "problem") if value is None else value
        if value == "tabular":
            return FeatureMap.tabular(states=self.mdp.states, actions=self.mdp.actions)
        if not isinstance(value, dict):
            require_choice(key, value, ("problem", "tabular", "support"))
        if own is None:
            expected = f'"tabular": {type(self.problem).__name__} has no features'
            raise ParameterError(key, got=repr(value), expected=expected)
        features = FeatureMap(own)
        if value == "problem":
            return features
        if value == "support":
            return features.restrict(np.flatnonzero(self.problem.theta).tolist())
        return features.restrict(_table(key, value, ("restrict",)).get("restrict", []))

    def _norm(self, key: str, text: str, features: Any) -> float:
        found = re.fullmatch(r"(?:\s*([0-9.eE+-]+)\s*\*)?\s*(true|sqrt\(SA\))\s*", text)
        if found is None:
            raise ParameterError(key, got=repr(text), expected='a number, "true", "sqrt(SA)" or "4 * true"')
        factor = float(found.group(1) or 1.0)
        if found.group(2) == "sqrt(SA)":
            return factor * float(np.sqrt(self.mdp.states * self.mdp.actions))
        if isinstance(features, FeatureMap) and features.groups > 1:  # one-hot: theta is the kernel
            return factor * float(np.linalg.norm(self._kernel(key)))
        theta = getattr(self.problem, "theta", None)
        if theta is None:
            expected = f"a number: {type(self.problem).__name__} has no theta"
            raise ParameterError(key, got=repr(text), expected=expected)
        return factor * float(np.linalg.norm(theta))

    def _kernel(self, key: str) -> Floats:
        if not self.mdp.stationary:
            raise ParameterError(key, got="a kernel that changes with the step", expected="a stationary problem")
        return self.mdp.kernel()

    def _kernels(self, key: str, count: int, seed: int, first: int | None) -> Floats:
        """Return ``count`` kernels: the problem's own at position ``first``, if any, the others drawn uniformly."""
        truth = self._kernel(key)
        kernels = stream(seed, "spec", "kernels").dirichlet(np.ones(truth.shape[2]), size=(count, *truth.shape[:2]))
        if first is not None:
            kernels[first] = truth
        return kernels

    def _family(self, key: str, value: Any) -> Any:
        if value == "problem":
            return Ladder.of_problem(self.problem).family
        if isinstance(value, str) or (isinstance(value, dict) and "name" in value):
            return self._model(key, value)
        if value is None:
            expected = '{ random = 7, with_truth = true }, "problem", or a class of yours by name'
            raise ParameterError(key, got="nothing", expected=expected)
        table = _table(key, value, ("random", "with_truth", "seed"))
        truth = table.get("with_truth")
        if not isinstance(truth, bool):
            raise ParameterError(f"{key}.with_truth", got=repr(truth), expected="true or false")
        count, seed = _count(key, table, "random", 7), _count(key, table, "seed", 0)
        return FiniteFamily(self._kernels(key, count + truth, seed, 0 if truth else None))

    def _ladder(self, key: str, value: Any) -> Any:
        if value in (None, "problem"):
            with_ladder = hasattr(self.problem, "hypotheses") or hasattr(self.problem, "ladder")
            if not with_ladder:
                expected = (
                    "{ sizes = [2, 8, 32], true = 2 }: random kernels, the true one in class 2; or classes of yours"
                )
                got = f"{'nothing' if value is None else repr(value)}, and {type(self.problem).__name__} brings none"
                raise ParameterError(key, got=got, expected=expected)
            return Ladder.of_problem(self.problem)
        if isinstance(value, str) or (isinstance(value, dict) and "name" in value):
            return self._model(key, value)
        if isinstance(value, dict) and "classes" in value:
            listed = _table(key, value, ("classes",))["classes"]
            return Ladder([self._model(f"{key}.classes[{m}]", each) for m, each in enumerate(listed)])
        table = _table(key, value, ("sizes", "true", "seed"))
        sizes, joins = table.get("sizes", [2, 8, 32]), table.get("true")
        good = isinstance(sizes, list) and all(type(size) is int and 0 < size <= _LARGEST for size in sizes)
        if not good or not sizes or sizes != sorted(set(sizes)):
            raise ParameterError(f"{key}.sizes", got=sizes, expected="increasing whole numbers")
        if type(joins) is not int or not 0 <= joins <= len(sizes):
            expected = f"the class, from 1 to {len(sizes)}, that the true kernel joins; 0: none of them"
            raise ParameterError(f"{key}.true", got="nothing" if joins is None else repr(joins), expected=expected)
        first = None if joins == 0 else 0 if joins == 1 else sizes[joins - 2]
        kernels = self._kernels(key, sizes[-1], _count(key, table, "seed", 0), first)
        return Ladder([FiniteFamily(kernels[:size]) for size in sizes])

    def _model(self, key: str, value: Any) -> Any:
        """Return a family or ladder by its name: one of this package, or ``module:Class``."""
        table = _table(key, {"name": value} if isinstance(value, str) else value, ("name", "parameters"))
        own = {each.__name__: each for each in (FiniteFamily, LinearFamily, AggregationFamily, Ladder)}
        name = registry.canonical_name(f"{key}.name", table.get("name"), own)
        kind = own.get(name) or registry._of_module(f"{key}.name", name)
        return self.build(kind, table.get("parameters", {}), f"{key}.parameters")

    def _reference(self, name: str, parameters: dict[str, Any], key: str) -> Any:
        kind = registry.find(f"{key}.selector", parameters.pop("selector", None), *AGENTS)
        m = parameters.pop("m", None) if name == "class" else None
        selector = self.build(kind, parameters, key)
        if selector is None:
            return None
        if hasattr(selector, "ladder"):
            ladder = selector.ladder
            if name == "oracle":
                m = ladder.class_of(self.mdp)
                if m is None:
                    got = f"{type(self.problem).__name__}, whose kernel is in no class"
                    raise ParameterError(
                        f"{key}.selector", got=got, expected="a ladder that holds the problem's kernel"
                    )
            m = {"largest": ladder.classes, "smallest": 1}.get(name, m)
            family = ladder.family_of(m)
            if family.finite:
                return _learner(UCRLVTR, selector, family=family)
            return _learner(UCRLVTRLin, selector, features=family.own_features, norm_bound=family.norm_bound)
        if name == "largest":
            return _learner(UCRLVTRLin, selector)
        theta = getattr(self.problem, "theta", None)
        if name != "oracle" or theta is None:
            got = f"{name!r} of a {kind.__name__} on {type(self.problem).__name__}"
            raise ParameterError(
                f"{key}.selector", got=got, expected="a selector with a ladder, or a problem with theta"
            )
        features, norm = selector.features, float(np.linalg.norm(theta))
        if getattr(selector, "finds_support", True):
            features = features.restrict(np.flatnonzero(theta).tolist())
        return _learner(UCRLVTRLin, selector, features=features, norm_bound=norm if selector.finds_norm else None)


def _learner(kind: Any, selector: Any, **own: Any) -> Any:
    """Return a learner with the parameters that it shares with a selector, unless these are None."""
    names = [each.name for each in dataclasses.fields(kind)]
    shared = {name: getattr(selector, name, None) for name in names} | {
        name: value for name, value in own.items() if value is not None
    }
    return kind(**{name: value for name, value in shared.items() if value is not None})


def about(agent: Any, problem: Any) -> dict[str, Any]:
    """Return an agent's parameters in plain data, what is proved of it, and what is true of the problem."""
    fields = dataclasses.fields(agent) if dataclasses.is_dataclass(agent) else ()
    named = {each.name: getattr(agent, each.name) for each in fields}
    found = {name: _plain(value) for name, value in named.items()}
    parts = [agent.rule, *agent.bases] if hasattr(agent, "rule") and hasattr(agent, "bases") else [agent]
    stated = str(getattr(parts[0], "guarantee", "not stated"))
    if stated not in ("none", "not stated") and any(getattr(each, "scale", 1.0) != 1.0 for each in parts):
        stated = "constants scaled"  # what was proved for the published constants is not claimed
    found |= {"guarantee": stated, "given": list(getattr(parts[0], "given", ()))}
    ladder, theta = getattr(agent, "ladder", None), getattr(problem, "theta", None)
    if isinstance(ladder, Ladder):
        found |= {"classes": list(ladder.names)[:_MOST_LISTED], "true_class": ladder.class_of(as_mdp(problem))}
    if theta is not None and getattr(getattr(agent, "features", None), "dimension", 0) == np.size(theta):
        found["true_support"] = np.flatnonzero(theta).tolist()[:_MOST_LISTED]
    return found


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and np.isfinite(value)):
        return value
    if isinstance(value, (list, tuple)) and len(value) <= _MOST_LISTED:
        return [_plain(each) for each in value]
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else repr(value)[:1_000]


def _table(key: str, value: Any, keys: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ParameterError(key, got=repr(value), expected=f"a table with {', '.join(keys)}")
    for each in value:
        require_choice(f"{key}.{each}", each, keys)
    return value


def _count(key: str, table: dict[str, Any], name: str, default: int) -> int:
    return require_integer(f"{key}.{name}", table.get(name, default), 0, most=_LARGEST)
