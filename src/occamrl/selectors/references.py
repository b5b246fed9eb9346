"""What selectors are compared with: the plain learner that a selector would be if it knew, or did not look.

``oracle`` knows the class, the support or the norm; ``largest`` plays the whole class, ``smallest``
the first one.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from occamrl.errors import ParameterError
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.model import ParametricLadder
from occamrl.problems.mdp import as_mdp
from occamrl.protocols import Learner


def oracle(selector: Learner, problem: Any) -> Learner:
    """Return the learner that a selector would be if it knew the truth: the class, or the support and the norm.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-ladder")
    >>> selector = orl.ARLGen(ladder=orl.Ladder.of_problem(problem))
    >>> orl.oracle(selector, problem).family.size, orl.largest(selector).family.size
    (129, 577)
    """
    ladder, theta = getattr(selector, "ladder", None), getattr(problem, "theta", None)
    if ladder is not None:
        m = ladder.class_of(as_mdp(problem))
        if m is None:
            got, expected = (
                f"no class that contains {type(problem).__name__}",
                "one that contains the problem's kernel",
            )
            raise ParameterError("ladder", got=got, expected=expected)
        return on_class(selector, m)
    if theta is None or not hasattr(selector, "features"):
        got = f"a {type(selector).__name__} on {type(problem).__name__}"
        raise ParameterError(
            "oracle", got=got, expected="a selector with a ladder, or a problem with theta"
        )
    own: dict[str, Any] = {}
    if getattr(selector, "norm", True):
        own["norm_bound"] = float(np.linalg.norm(theta))
    if getattr(selector, "dimension", True):
        own["features"] = selector.features.restrict(np.flatnonzero(theta).tolist())
    return _learner(UCRLVTRLin, selector, **own)


def largest(selector: Learner) -> Learner:
    """Return the learner that a selector would be without selection: on the largest class, or on all features."""
    ladder = getattr(selector, "ladder", None)
    if ladder is None and not hasattr(selector, "norm_bound"):
        expected = "a selector with a ladder, or with features and a norm bound"
        raise ParameterError("selector", got=f"a {type(selector).__name__}", expected=expected)
    return _learner(UCRLVTRLin, selector) if ladder is None else on_class(selector, ladder.classes)


def smallest(selector: Learner) -> Learner:
    """Return the learner on the smallest class of a selector's ladder."""
    return on_class(selector, 1)


def on_class(selector: Learner, m: Any) -> Learner:
    """Return the learner on class m of a selector's ladder, m = 1 ... M."""
    ladder: Any = getattr(selector, "ladder", None)
    if ladder is None:
        raise ParameterError(
            "selector", got=f"a {type(selector).__name__}", expected="a selector with a ladder"
        )
    if isinstance(ladder, ParametricLadder):
        return dataclasses.replace(selector, ladder=ladder.only(m))  # type: ignore[type-var]  # selectors are dataclasses
    family = ladder.family_of(m)
    if family.finite:
        return _learner(UCRLVTR, selector, family=family)
    return _learner(
        UCRLVTRLin, selector, features=family.own_features, norm_bound=family.norm_bound
    )


def _learner(kind: Any, selector: Any, **own: Any) -> Learner:
    """Return a learner with its own parameters, and those that it shares with a selector unless these are None."""
    shared = {each.name: getattr(selector, each.name, None) for each in dataclasses.fields(kind)}
    made: Learner = kind(
        **{name: value for name, value in (shared | own).items() if value is not None}
    )
    return made
