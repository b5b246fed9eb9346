"""From words in a spec to objects: what ``features = "tabular"`` or ``norm_bound = "true"`` mean for a given problem.

Which words a parameter understands follows from the field of the agent's dataclass:

=====================  =================================================================================================
field                  words (a number stands for itself)
=====================  =================================================================================================
of type FeatureMap     "problem": the problem's own phi; "tabular": one-hot; "support": phi on the coordinates that
                       matter; { restrict = [0, 3] }: phi on these. By default "problem" if it has a phi, else "tabular"
norm_bound             "true": the norm of the parameter of these features; "sqrt(SA)"; "4 * true", "2 * sqrt(SA)"
delta                  "1/K"
of type FiniteMDP      "problem" (the default)
of type FiniteFamily   { random = n, seed = 0 }: the problem's kernel and n random ones
of type Ladder         "problem": the ladder that the problem brings along; { sizes = [2, 8, 32], true = 2, seed = 0 }:
                       nested finite families of random kernels, which the problem's kernel joins in class ``true``,
                       counted from 1. By default "problem" if it has one
m                      "true": the smallest class that holds the problem's kernel
of type Rewards        "known", { per_pair = "bernstein" }, { linear = [[[...]]], norm_bound = 1.0 }: see
                       :mod:`occamrl.learners.reward_words`
=====================  =================================================================================================
A problem's own parameters are as in Python; beside them any problem takes ``reward_noise = "bernoulli"``, ``"beta"`` or
``{ beta = 50.0 }`` (:mod:`occamrl.problems.noisy`).
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from occamrl import registry, seeding
from occamrl.contracts import Agent, Floats
from occamrl.errors import InvalidInput, OccamRLError, ParameterError, UnknownName
from occamrl.families.features import FeatureMap
from occamrl.families.finite import FiniteFamily
from occamrl.families.ladder import Ladder
from occamrl.learners.reward_words import rewards_of

_PRODUCT = re.compile(r"(?:\s*([0-9.eE+-]+)\s*\*)?\s*(true|sqrt\(SA\))\s*")
_FEATURES = ("problem", "tabular", "support")


def agents() -> dict[str, type[Any]]:
    """Return every learner and selector, by name."""
    return registry.learners() | registry.selectors()


def make_problem(name: str, parameters: dict[str, Any]) -> Any:
    """Return a problem by its name; whatever is wrong with the parameters is an InvalidInput."""
    return _call(lambda: registry.make_problem(name, **parameters), name)


def make_agent(name: str, parameters: dict[str, Any], problem: Any, episodes: int) -> Agent:
    """Return an agent for a problem, with the words among its parameters turned into what they stand for."""
    kind = registry.find("agent", name, agents())
    known = list(inspect.signature(kind).parameters)
    for given in parameters:
        if given not in known:
            raise UnknownName(given, got=given, known=known)
    types = (
        {field.name: str(field.type) for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
    )
    made = dict(parameters)
    for each in known:
        required = inspect.signature(kind).parameters[each].default is inspect.Parameter.empty
        if each not in made and not required:
            continue
        _resolve(each, types.get(each, ""), made, problem, episodes)
    made_agent: Agent = _call(lambda: kind(**made), kind.__name__)
    return made_agent


def _resolve(name: str, kind: str, made: dict[str, Any], problem: Any, episodes: int) -> None:
    """Replace ``made[name]`` by what it stands for; a required one that is missing gets its default word."""
    if "FeatureMap" in kind:
        made[name] = _features(name, made.get(name), problem)
    elif "FiniteMDP" in kind:
        if made.get(name, "problem") != "problem":
            raise UnknownName(name, got=made[name], known=["problem"])
        made[name] = problem.mdp
    elif "FiniteFamily" in kind:
        table = _table(name, made.get(name, {"random": 7}), ("random", "seed"))
        made[name] = FiniteFamily(_kernels(problem, _count(name, table, "random", 7) + 1, _seed(name, table)))
    elif "Ladder" in kind:
        made[name] = _ladder(name, made.get(name), problem)
    elif kind == "Rewards":
        made[name] = rewards_of(made[name], name)
    elif name not in made:
        raise ParameterError(name, got="nothing", expected="a value: it is required")
    elif name == "norm_bound" and isinstance(made[name], str):
        made[name] = _norm(made[name], made.get("features"), problem)
    elif name == "m" and isinstance(made[name], str):
        made[name] = _true_class(made[name], made.get("ladder"), problem)
    elif name == "delta" and isinstance(made[name], str):
        if made[name].replace(" ", "") != "1/K":
            raise ParameterError(name, got=repr(made[name]), expected='a number in (0, 1), or "1/K"')
        made[name] = 1.0 / episodes


def _features(name: str, word: Any, problem: Any) -> FeatureMap:
    mdp, own = problem.mdp, getattr(problem, "phi", None)
    if word is None:
        word = "tabular" if own is None else "problem"
    if word == "tabular":
        return FeatureMap.tabular(states=mdp.states, actions=mdp.actions)
    if word in _FEATURES or isinstance(word, dict):
        if own is None:
            raise ParameterError(name, got=repr(word), expected=f'"tabular": {type(problem).__name__} has no features')
        if word == "problem":
            return FeatureMap(own)
        if word == "support":
            return FeatureMap(own).restrict(np.flatnonzero(problem.theta).tolist())
        chosen = _table(name, word, ("restrict",)).get("restrict")
        if not isinstance(chosen, list) or not chosen:
            raise ParameterError(f"{name}.restrict", got=repr(chosen), expected="a list of coordinates")
        return FeatureMap(own).restrict(chosen)
    raise UnknownName(name, got=word, known=_FEATURES)


def _norm(text: str, features: Any, problem: Any) -> float:
    found = _PRODUCT.fullmatch(text)
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
    kernels = _kernels(problem, sizes[-1], _seed(name, table), first)
    return Ladder([FiniteFamily(kernels[:size]) for size in sizes])


def _true_class(word: str, ladder: Any, problem: Any) -> int:
    if word != "true" or not isinstance(ladder, Ladder):
        raise ParameterError("m", got=repr(word), expected='a class, from 1, or "true"')
    found: int | None = ladder.class_of(problem.mdp)
    if found is None:
        raise ParameterError("m", got=repr(word), expected="a class: none of the ladder holds the problem's kernel")
    return found


def _table(name: str, value: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ParameterError(name, got=repr(value), expected=f"a table with {', '.join(keys)}")
    for key in value:
        if key not in keys:
            raise UnknownName(f"{name}.{key}", got=key, known=keys)
    return value


def _count(name: str, table: dict[str, Any], key: str, default: int) -> int:
    value = table.get(key, default)
    if type(value) is not int or not 0 <= value <= 10**6:
        raise ParameterError(f"{name}.{key}", got=repr(value), expected="a whole number up to a million")
    return value


def _seed(name: str, table: dict[str, Any]) -> int:
    return _count(name, table, "seed", 0)


def _call(make: Callable[[], Any], name: str) -> Any:
    """Make something of a user's parameters: whatever goes wrong is the parameters' fault, and says so."""
    try:
        return make()
    except OccamRLError:
        raise
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, MemoryError) as error:
        raise InvalidInput(
            name, got=f"{type(error).__name__}: {error}", expected="parameters of valid kinds"
        ) from error
