"""Agents by their names, for one problem, and what symbolic values stand for.

Agents need what only the problem knows. Their parameters take symbolic values for it, such as
``norm_bound = "true"``; `docs/experiments.md` lists them. Nothing of the truth is handed out unless
a parameter asks for it by name: ``"true"``, ``"support"``, ``oracle``. The references of a selector
are named like agents: ``oracle``, ``largest``, ``smallest`` and ``class`` (with ``m``), each the
plain learner that a selector would be if it knew, or did not look.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from occamrl import registry
from occamrl.errors import Fault, InvalidInput, ParameterError, UnknownName, require_choice
from occamrl.models.families import AggregationFamily, FiniteFamily, LinearFamily
from occamrl.models.features import FeatureMap
from occamrl.models.ladder import Ladder
from occamrl.problems import named
from occamrl.problems.mdp import as_mdp
from occamrl.running.identity import identity, identity_of_problem
from occamrl.selectors.references import largest, on_class, oracle, smallest

AGENTS = ("learners", "selectors", "paper")
REFERENCES = ("oracle", "largest", "smallest", "class")
_MODELS = {kind.__name__: kind for kind in (FiniteFamily, LinearFamily, AggregationFamily, Ladder)}
_OF_PYDANTIC = re.compile(
    r"^((Input|String|List|Dictionary) should (be|have)|Value error,) "
)  # how its messages begin

Value = Any  # what TOML can hold, or what it stands for
Parameters = dict[str, Value]
Kind = Callable[..., Value]  # a class, or a function that builds
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Named(BaseModel):
    """Something by its name."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[Name, AfterValidator(registry.canonical)]
    parameters: Parameters = {}


def by_name(value: Value) -> Value:
    """Return an entry as a table: a name stands for one without parameters."""
    if isinstance(value, str):
        return {"name": value}
    # An object that has a label or a sweep stands in the place of its name.
    if isinstance(value, dict) and isinstance(value.get("name"), dict):
        return {**value, **value["name"]}
    return value


# Faults -------------------------------------------------------------------------------------------


def fault_of(error: ErrorDetails, key: str, known: Iterable[str]) -> Fault:
    """Return an error of pydantic's under a key such as ``agent[1].parameters.delta``."""
    for step in error["loc"]:
        key += f"[{step}]" if isinstance(step, int) else f".{step}"
    key = key.removeprefix(".")
    if error["type"] == "missing":
        return Fault(key, "nothing", "a value: it is required")
    if error["type"] == "extra_forbidden":
        near = UnknownName("key", got=error["loc"][-1], known=known).expected
        return Fault(key, "an unknown key", str(near))
    return Fault(key, f"{error['input']!r:.100}", _OF_PYDANTIC.sub("", error["msg"]))


@contextmanager
def noting(faults: list[Fault], key: str) -> Iterator[None]:
    """Take note of an error under the key where the user wrote it, instead of raising it."""
    try:
        yield
    except ValidationError as error:
        faults += [fault_of(details, key, Named.model_fields) for details in error.errors()]
    except InvalidInput as error:
        where = error.where
        if not where.startswith(key):
            where = f"{key}.{where}"
        faults.append(Fault(where, f"{error.got}", str(error.expected)))
    except Exception as error:  # whatever a class makes of values that it does not expect
        got = f"{type(error).__name__}: {error}"
        faults.append(Fault(key, got, "values of valid kinds and sizes"))


def misnamed(name: str, parameters: Parameters, key: str) -> list[Fault]:
    """Find an agent, or parameters of one, that do not exist; no problem is needed for that."""
    faults: list[Fault] = []
    with noting(faults, key):
        if name in REFERENCES:
            kind = registry.find("parameters.selector", parameters.get("selector"), *AGENTS)
            parameters = without_reference(parameters)
        else:
            kind = registry.find("name", name, *AGENTS)
        faults += unknown_parameters(kind, parameters, f"{key}.parameters")
    return faults


def without_reference(parameters: Parameters) -> Parameters:
    """Return those parameters of a reference that are the selector's."""
    return {name: value for name, value in parameters.items() if name not in ("selector", "m")}


def unknown_parameters(kind: Kind, names: Iterable[str], key: str) -> list[Fault]:
    """Find names that are no parameters of a class."""
    known = parameters_of(kind)
    faults = []
    for name in names:
        if name not in known:
            near = UnknownName(name, got=name, known=known).expected
            faults.append(Fault(f"{key}.{name}", "an unknown parameter", str(near)))
    return faults


def parameters_of(kind: Kind) -> dict[str, inspect.Parameter]:
    """Return the parameters of a class by name."""
    named = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            named[name] = parameter
    return named


# Problems and agents ------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def make_problem(name: str, parameters: str) -> Value:
    """Return a problem, its parameters given as JSON; cells that follow each other share it."""
    problem = named.make_problem(name, **json.loads(parameters))
    as_mdp(problem)
    return problem


class Resolver:
    """Builds agents for one problem; what is wrong with their parameters goes to ``faults``."""

    def __init__(self, problem: Value, episodes: int) -> None:
        self.problem = problem
        self.episodes = episodes
        self.mdp = as_mdp(problem)
        self.title = type(problem).__name__
        self.faults: list[Fault] = []

    def identity_of_problem(self) -> dict[str, str]:
        """Return what makes the problem what it is."""
        outcomes = self.mdp.outcomes
        parts = (self.mdp.probability, outcomes.start, outcomes.next_state)
        kernel = np.concatenate([np.ravel(part).astype(float) for part in parts])
        return {
            **identity_of_problem(self.mdp.known),
            **identity(kernel, "problem.transition"),
            "problem.reward_noise": f"{self.mdp.reward_noise}",
        }

    def agent(self, name: str, parameters: Parameters, key: str = "parameters") -> Value:
        """Return an agent by its name; None if something is wrong."""
        with noting(self.faults, key.removesuffix("parameters").removesuffix(".")):
            if name not in REFERENCES:
                return self.build(registry.find("name", name, *AGENTS), parameters, key)
            kind = registry.find("parameters.selector", parameters.get("selector"), *AGENTS)
            selector = self.build(kind, without_reference(parameters), key)
            if selector is None:
                return None
            if name == "oracle":
                return oracle(selector, self.problem)
            if name == "largest":
                return largest(selector)
            if name == "smallest":
                return smallest(selector)
            return on_class(selector, parameters.get("m"))
        return None

    def build(self, kind: Kind, parameters: Parameters, key: str) -> Value:
        """Return ``kind`` with these parameters; None if something is wrong."""
        faults_before = len(self.faults)
        self.faults += unknown_parameters(kind, parameters, key)
        built: Parameters = {}
        for name, parameter in parameters_of(kind).items():
            required = parameter.default is parameter.empty
            if not required and name not in parameters:
                continue
            inside = f"{key}.{name}"
            with noting(self.faults, inside):
                built[name] = self._value(parameter, parameters.get(name), inside, built)
                if built[name] is None and required:
                    raise ParameterError(inside, got="nothing", expected="a value: it is required")
        # A class that is given what is wrong would complain about it once more.
        if len(self.faults) == faults_before:
            with noting(self.faults, key):
                return kind(**built)
        return None

    def _value(
        self, parameter: inspect.Parameter, value: Value, key: str, built: Parameters
    ) -> Value:
        """Return what a value stands for, by the annotation or the name of its parameter."""
        name = parameter.name
        annotation = str(parameter.annotation)  # a class's has the name of the class in it
        if "FeatureMap" in annotation:
            return self._features(key, value)
        if "FiniteMDP" in annotation:
            return self.mdp
        # what takes a family may take a ladder of one class as well
        if "Family" in annotation:
            return self._family(key, value)
        if "Ladder" in annotation:
            return self._ladder(key, value)
        if name == "bases":
            return [self._named(f"{key}[{i}]", base, AGENTS) for i, base in enumerate(value)]
        if name == "agent":
            return self._named(key, value, AGENTS)
        if name == "rule":
            return self._named(key, value, ("rules",))
        if name == "norm_bound" and isinstance(value, str):
            return self._norm_bound(key, value, built.get("features"))
        if name == "delta" and isinstance(value, str):
            require_choice(key, value.replace(" ", ""), ["1/K"])
            return 1.0 / self.episodes
        return value

    def _named(self, key: str, value: Value, kinds: tuple[str, ...]) -> Value:
        """Return what a name, or a table with name and parameters, stands for.

        Of some kinds; of none, a family or a ladder.
        """
        entry = Named.model_validate(by_name(value))
        inside = f"{key}.parameters"
        if kinds == AGENTS:
            return self.agent(entry.name, entry.parameters, inside)
        if kinds:
            kind = registry.find(f"{key}.name", entry.name, *kinds)
        else:
            kind = registry.lookup(f"{key}.name", entry.name, _MODELS)
        return self.build(kind, entry.parameters, inside)

    def _norm_bound(self, key: str, value: str, features: object) -> float:
        parts = re.fullmatch(r"(?:([0-9.e+-]+)\*)?(true|sqrt\(SA\))", value.replace(" ", ""))
        if parts is None:
            raise ParameterError(
                key, got=repr(value), expected='a number, "true", "sqrt(SA)" or "4 * true"'
            )
        factor = float(parts[1] or 1.0)
        if parts[2] == "sqrt(SA)":
            return factor * math.sqrt(self.mdp.states * self.mdp.actions)
        theta = getattr(self.problem, "theta", None)
        if isinstance(features, FeatureMap) and features.groups > 1:
            # Of one-hot features theta is the kernel, if there is one for all steps.
            theta = None
            if self.mdp.stationary:
                theta = self.mdp.kernel()
        if theta is None:
            raise ParameterError(
                key, got=repr(value), expected=f"a number: {self.title} has no theta"
            )
        return factor * float(np.linalg.norm(theta))

    def _features(self, key: str, value: Value) -> FeatureMap | None:
        phi = getattr(self.problem, "phi", None)
        if value == "tabular" or (value is None and phi is None):
            return FeatureMap.tabular(states=self.mdp.states, actions=self.mdp.actions)
        if isinstance(value, str):
            require_choice(key, value, ("problem", "tabular", "support"))
        if phi is None:
            raise ParameterError(
                key, got=repr(value), expected=f'"tabular": {self.title} has no features'
            )
        features = FeatureMap(phi)
        if value == "support":
            return features.restrict(np.flatnonzero(self.problem.theta).tolist())
        if not isinstance(value, dict):
            return features

        def restricted(*, restrict: list[int]) -> FeatureMap:
            return features.restrict(restrict)

        built: FeatureMap | None = self.build(restricted, value, key)
        return built

    def _family(self, key: str, value: Value) -> Value:
        if value is None:
            return None
        if value == "problem":
            return Ladder.of_problem(self.problem).family
        return self._named(key, value, ())

    def _ladder(self, key: str, value: Value) -> Value:
        if value in (None, "problem"):
            return Ladder.of_problem(self.problem)
        if isinstance(value, str) or "name" in value:
            return self._named(key, value, ())

        def listed(*, classes: list[Value]) -> Ladder:
            families = [
                self._named(f"{key}.classes[{m}]", entry, ()) for m, entry in enumerate(classes)
            ]
            return Ladder(families)

        return self.build(listed, value, key)
