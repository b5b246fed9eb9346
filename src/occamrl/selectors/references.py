"""What selectors are compared with: the learner that one would be if it knew, or did not look.

``oracle`` knows the class, the support or the norm; ``largest`` plays the whole class, ``smallest``
the first one.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, TypeGuard, cast, runtime_checkable

import numpy as np

from occamrl.errors import ParameterError
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.ladder import Ladder
from occamrl.models.model import ParametricLadder
from occamrl.problems.mdp import as_mdp
from occamrl.protocols import Learner


@runtime_checkable
class HasLadder(Protocol):
    """A selector of classes."""

    ladder: Any


@runtime_checkable
class HasTheta(Protocol):
    """A problem whose kernel is linear in features."""

    theta: Any


def oracle(selector: Learner, problem: Any) -> Learner:
    """Return the learner that a selector would be if it knew the class, or support and norm.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-ladder")
    >>> selector = orl.ARLGen(ladder=orl.Ladder.of_problem(problem))
    >>> orl.oracle(selector, problem).family.size, orl.largest(selector).family.size
    (129, 577)
    """
    if selects_class(selector):
        m = selector.ladder.class_of(as_mdp(problem))
        if m is None:
            got = f"no class that contains {type(problem).__name__}"
            expected = "one that contains the problem's kernel"
            raise ParameterError("ladder", got=got, expected=expected)
        return on_class(selector, m)
    options = shared_options(UCRLVTRLin, selector)
    if not isinstance(problem, HasTheta) or "features" not in options:
        got = f"a {type(selector).__name__} on {type(problem).__name__}"
        expected = "a selector with a ladder, or a problem with theta"
        raise ParameterError("oracle", got=got, expected=expected)
    # a selector that does not say what it finds is taken to find both
    finds = getattr(selector, "finds", ("support", "norm"))
    if "norm" in finds:
        options["norm_bound"] = float(np.linalg.norm(problem.theta))
    if "support" in finds:
        support = np.flatnonzero(problem.theta).tolist()
        options["features"] = options["features"].restrict(support)
    return UCRLVTRLin(**options)


def largest(selector: Learner) -> Learner:
    """Return the learner without selection: on the largest class, or on all features."""
    if selects_class(selector):
        return on_class(selector, selector.ladder.classes)
    options = shared_options(UCRLVTRLin, selector)
    if "norm_bound" not in options:
        expected = "a selector with a ladder, or with features and a norm bound"
        raise ParameterError("selector", got=f"a {type(selector).__name__}", expected=expected)
    return UCRLVTRLin(**options)


def smallest(selector: Learner) -> Learner:
    """Return the learner on the smallest class of a selector's ladder."""
    return on_class(selector, 1)


def on_class(selector: object, m: Any) -> Learner:
    """Return the learner on class m of a selector's ladder, m = 1 ... M, which checks it."""
    if not selects_class(selector):
        expected = "a selector with a ladder"
        raise ParameterError("selector", got=f"a {type(selector).__name__}", expected=expected)
    ladder: Ladder | ParametricLadder = selector.ladder
    if isinstance(ladder, ParametricLadder):
        # with real parameters the selector itself is the learner, on a ladder of one class
        alone: Learner = dataclasses.replace(cast(Any, selector), ladder=ladder.only(m))
        return alone
    family = ladder.family_of(m)
    if family.finite:
        return UCRLVTR(**{**shared_options(UCRLVTR, selector), "family": family})
    options = shared_options(UCRLVTRLin, selector)
    options |= {"features": family.own_features, "norm_bound": family.norm_bound}
    return UCRLVTRLin(**options)


def selects_class(selector: object) -> TypeGuard[HasLadder]:
    """Return whether a selector has a ladder."""
    return isinstance(selector, HasLadder) and selector.ladder is not None


def shared_options(kind: type[UCRLVTR | UCRLVTRLin], selector: object) -> dict[str, Any]:
    """Return the parameters of a learner that a selector has too, unless they are None."""
    options = {}
    for field in dataclasses.fields(kind):
        option = getattr(selector, field.name, None)
        if option is not None:
            options[field.name] = option
    return options
