"""From plain data to problems and agents: the symbolic values among parameters are resolved.

Agents need what only the problem knows. Their parameters take symbolic values for it, such as ``norm_bound = "true"``;
which ones follows from the kind of the parameter, and `docs/experiments.md` lists them. Nothing of the truth is handed
out unless a parameter asks for it by name: ``"true"``, ``"support"``, ``with_truth``, ``oracle``.

The references of a selector are named like agents: ``oracle``, ``largest``, ``smallest`` and ``class`` (with ``m``),
with the selector's name and parameters. Each is the plain learner that a selector would be if it knew, or did not look.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from occamrl import registry
from occamrl.errors import Fault, InvalidInput, ParameterError, UnknownName, require_choice, require_integer
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.families import AggregationFamily, FiniteFamily, LinearFamily
from occamrl.models.features import FeatureMap
from occamrl.models.ladder import Ladder
from occamrl.problems.mdp import as_mdp, stream
from occamrl.protocols import Floats

AGENTS = ("learners", "selectors", "paper")
REFERENCES = ("oracle", "largest", "smallest", "class")
_MODELS = {each.__name__: each for each in (FiniteFamily, LinearFamily, AggregationFamily, Ladder)}
_MOST_KERNELS = 10**6
_MOST_LISTED = 1_000  # entries of an array that a record lists


@lru_cache(maxsize=4)
def make_problem(name: str, parameters: str) -> Any:
    """Return a problem, its parameters given as JSON; cells of one problem that follow each other share it."""
    problem = registry.make_problem(name, **json.loads(parameters))
    as_mdp(problem)
    return problem


@contextmanager
def noting(faults: list[Fault], key: str) -> Iterator[None]:
    """Take note of an error under the key where the user wrote what is wrong, instead of raising it."""
    try:
        yield
    except InvalidInput as error:
        where = error.where if error.where.startswith(key) else f"{key}.{error.where}"
        faults.append(Fault(where, f"{error.got!s:.2000}", str(error.expected)))
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, MemoryError) as error:
        faults.append(Fault(key, f"{type(error).__name__}: {error}", "values of valid kinds and sizes"))


class Resolver:
    """Builds agents for one problem; what is wrong with their parameters is collected in ``faults``."""

    def __init__(self, problem: Any, episodes: int) -> None:
        self.problem, self.episodes, self.mdp = problem, episodes, as_mdp(problem)
        self.faults: list[Fault] = []

    def agent(self, name: str, parameters: dict[str, Any], key: str = "parameters") -> Any:
        """Return an agent by its name; None if something is wrong."""
        if name not in REFERENCES:
            return self.build(registry.find("agent", name, *AGENTS), parameters, key)
        rest = {each: value for each, value in parameters.items() if each not in ("selector", "m")}
        with noting(self.faults, f"{key}.selector"):
            selector = self.build(registry.find(f"{key}.selector", parameters.get("selector"), *AGENTS), rest, key)
            return None if selector is None else self._reference(name, selector, parameters.get("m"))
        return None

    def build(self, kind: Any, parameters: dict[str, Any], key: str) -> Any:
        """Return ``kind`` with these parameters; None if something is wrong."""
        before, made = len(self.faults), dict[str, Any]()
        every = inspect.signature(kind).parameters.items()
        known = {name: each for name, each in every if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}
        for name in parameters:
            if name not in known:
                expected = UnknownName(name, got=name, known=known).expected
                self.faults.append(Fault(f"{key}.{name}", "an unknown parameter", str(expected)))
        for name, about in known.items():
            if name in parameters or about.default is about.empty:
                with noting(self.faults, f"{key}.{name}"):
                    value = self._value(f"{key}.{name}", name, str(about.annotation), parameters.get(name), made)
                    if value is None and about.default is about.empty:
                        raise ParameterError(f"{key}.{name}", got="nothing", expected="a value: it is required")
                    made[name] = value
        if len(self.faults) == before:
            with noting(self.faults, key):
                return kind(**made)
        return None

    def _value(self, key: str, name: str, kind: str, value: Any, made: dict[str, Any]) -> Any:
        """Return what a value stands for, given what was made of the parameters before it; None: left out."""
        if "FeatureMap" in kind:
            return self._features(key, value)
        if "FiniteMDP" in kind:
            require_choice(key, "problem" if value is None else value, ["problem"])
            return self.mdp
        if "Ladder" in kind:
            return self._ladder(key, value)
        if "Family" in kind and value is not None:
            return self._family(key, value)
        if name == "bases":
            return [self._named(f"{key}[{i}]", each, *AGENTS) for i, each in enumerate(value)]
        if name in ("rule", "agent"):
            return self._named(key, value, *(["rules"] if name == "rule" else AGENTS))
        if name == "norm_bound" and isinstance(value, str):
            return self._norm(key, value, made.get("features"))
        if name == "delta" and isinstance(value, str):
            require_choice(key, value.replace(" ", ""), ["1/K"])
            return 1.0 / self.episodes
        return value

    def _named(self, key: str, value: Any, *kinds: str) -> Any:
        """Return what a name, or a table with name and parameters, stands for: of some kinds, or a model."""

        def made(*, name: str, parameters: dict[str, Any] | None = None) -> Any:
            if kinds == AGENTS and name in REFERENCES:
                return self.agent(name, parameters or {}, f"{key}.parameters")
            if kinds:
                found = registry.find(f"{key}.name", name, *kinds)
            else:
                own = registry.canonical_name(f"{key}.name", name, _MODELS)
                found = _MODELS.get(own) or registry._of_module(f"{key}.name", own)
            return self.build(found, parameters or {}, f"{key}.parameters")

        return self.build(made, {"name": value} if isinstance(value, str) else value, key)

    def _features(self, key: str, value: Any) -> Any:
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
        if value == "support":
            return features.restrict(np.flatnonzero(self.problem.theta).tolist())

        def restricted(*, restrict: list[int]) -> FeatureMap:
            return features.restrict(restrict)

        return features if value == "problem" else self.build(restricted, value, key)

    def _norm(self, key: str, text: str, features: Any) -> float:
        found = re.fullmatch(r"(?:([0-9.e+-]+)\*)?(true|sqrt\(SA\))", text.replace(" ", ""))
        if found is None:
            raise ParameterError(key, got=repr(text), expected='a number, "true", "sqrt(SA)" or "4 * true"')
        factor, theta = float(found.group(1) or 1.0), getattr(self.problem, "theta", None)
        if found.group(2) == "sqrt(SA)":
            return factor * math.sqrt(self.mdp.states * self.mdp.actions)
        if isinstance(features, FeatureMap) and features.groups > 1:  # one-hot: theta is the kernel
            theta = self._kernel()
        if theta is None:
            expected = f"a number: {type(self.problem).__name__} has no theta"
            raise ParameterError(key, got=repr(text), expected=expected)
        return factor * float(np.linalg.norm(theta))

    def _kernel(self) -> Floats:
        if not self.mdp.stationary:
            raise ParameterError("problem", got="a kernel that changes with the step", expected="a stationary one")
        return self.mdp.kernel()

    def _kernels(self, count: int, seed: int, position: int | None) -> Floats:
        """Return ``count`` kernels: the problem's own at a position, if any, the others drawn uniformly."""
        truth, count = self._kernel(), require_integer("count", count, 1, most=_MOST_KERNELS)
        kernels = stream(seed, "spec", "kernels").dirichlet(np.ones(truth.shape[2]), size=(count, *truth.shape[:2]))
        if position is not None:
            kernels[position] = truth
        return kernels

    def _family(self, key: str, value: Any) -> Any:
        if value == "problem":
            return Ladder.of_problem(self.problem).family

        def drawn(*, random: int, with_truth: bool, seed: int = 0) -> FiniteFamily:
            return FiniteFamily(self._kernels(random + with_truth, seed, 0 if with_truth else None))

        return self._named(key, value) if isinstance(value, str) or "name" in value else self.build(drawn, value, key)

    def _ladder(self, key: str, value: Any) -> Any:
        if value in (None, "problem"):
            if not hasattr(self.problem, "hypotheses") and not hasattr(self.problem, "ladder"):
                got = f"{type(self.problem).__name__}, which brings none"
                raise ParameterError(key, got=got, expected="{ sizes = [2, 8], true = 2 }, or classes of yours by name")
            return Ladder.of_problem(self.problem)

        def listed(*, classes: list[Any]) -> Ladder:
            return Ladder([self._named(f"{key}.classes[{m}]", each) for m, each in enumerate(classes)])

        def drawn(*, sizes: list[int], true: int, seed: int = 0) -> Ladder:
            joins = require_integer("true", true, 0, most=len(sizes))
            position = None if joins == 0 else [0, *sizes][joins - 1]  # in class 1 the first, else the first new one
            kernels = self._kernels(sizes[-1], seed, position)
            return Ladder([FiniteFamily(kernels[:size]) for size in sizes])

        if isinstance(value, str) or "name" in value:
            return self._named(key, value)
        return self.build(listed if "classes" in value else drawn, value, key)

    def _reference(self, name: str, selector: Any, m: int | None) -> Any:
        """Return the learner that a selector would be on one class: the true one, the largest, ..."""
        where, ladder = type(self.problem).__name__, getattr(selector, "ladder", None)
        if ladder is not None:
            m = {"oracle": ladder.class_of(self.mdp), "largest": ladder.classes, "smallest": 1}.get(name, m)
            if m is None:
                expected = "a ladder that holds the problem's kernel; of a class its number m"
                raise ParameterError("ladder", got=f"{name!r} on {where}", expected=expected)
            family = ladder.family_of(m)
            if family.finite:
                return _learner(UCRLVTR, selector, family=family)
            return _learner(UCRLVTRLin, selector, features=family.own_features, norm_bound=family.norm_bound)
        if name == "largest":
            return _learner(UCRLVTRLin, selector)
        theta = getattr(self.problem, "theta", None)
        if name != "oracle" or theta is None:
            expected = "a selector with a ladder, or a problem with theta"
            raise ParameterError("name", got=f"{name!r} of a {type(selector).__name__} on {where}", expected=expected)
        own = {"norm_bound": float(np.linalg.norm(theta))} if selector.finds_norm else {}
        if getattr(selector, "finds_support", True):
            own["features"] = selector.features.restrict(np.flatnonzero(theta).tolist())
        return _learner(UCRLVTRLin, selector, **own)


def _learner(kind: Any, selector: Any, **own: Any) -> Any:
    """Return a learner with its own parameters, and those that it shares with a selector unless these are None."""
    shared = {each.name: getattr(selector, each.name, None) for each in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in (shared | own).items() if value is not None})


def about(agent: Any, problem: Any) -> dict[str, Any]:
    """Return an agent's parameters in plain data, what is proved of it, and what is true of the problem."""
    fields = dataclasses.fields(agent) if dataclasses.is_dataclass(agent) else ()
    found: dict[str, Any] = plain({each.name: getattr(agent, each.name) for each in fields})
    parts = [agent.rule, *agent.bases] if hasattr(agent, "rule") and hasattr(agent, "bases") else [agent]
    stated = str(getattr(parts[0], "guarantee", "not stated"))
    if stated not in ("none", "not stated") and any(getattr(each, "scale", 1.0) != 1.0 for each in parts):
        stated = "constants scaled"  # what was proved for the published constants is not claimed
    found |= {"guarantee": stated, "given": list(getattr(parts[0], "given", ()))}
    ladder, theta = getattr(agent, "ladder", None), getattr(problem, "theta", None)
    if isinstance(ladder, Ladder):
        found |= {"classes": list(ladder.names), "true_class": ladder.class_of(as_mdp(problem))}
    if theta is not None and getattr(getattr(agent, "features", None), "dimension", 0) == np.size(theta):
        found["true_support"] = np.flatnonzero(theta).tolist()
    return found


def plain(value: Any) -> Any:
    """Return data that every JSON reader takes: NaN is null, infinities are texts, a large array its shape."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray) and value.size > _MOST_LISTED:
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)[:1_000]
