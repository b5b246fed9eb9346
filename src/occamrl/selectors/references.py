"""What selectors are compared with: the same algorithm where there is nothing to select.

``oracle`` knows the class, the support or the norm; ``largest`` plays the whole class, ``smallest``
the first one. So that a difference from the selector is the effect of selection alone, each has the
parameters of the selector, and judges and acts as it does. What that is:

- a selector over a ladder, on the ladder of one class;
- a selector that plays a base algorithm on the class chosen, such as those of :mod:`occamrl.paper`,
  that base, which its method ``on_class`` or ``on_features`` makes;
- an arena, one of its bases.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, TypeGuard, cast, runtime_checkable

import numpy as np
import scipy.sparse as sp

from occamrl.errors import ParameterError, require_integer
from occamrl.models.families import LinearFamily
from occamrl.models.features import FeatureMap
from occamrl.models.ladder import Ladder
from occamrl.models.model import ParametricLadder
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Floats, Learner
from occamrl.selectors.arena import Arena

_LONGEST = 1e12  # a norm that bounds every theta
_ROUNDING = 1e-9  # of a theta that was solved for
_RELATIVE = 1e-9  # of the smallest singular value to the largest, below which columns are dependent


@runtime_checkable
class HasLadder(Protocol):
    """A selector of classes, or a learner on one."""

    ladder: Any


@runtime_checkable
class HasFamily(Protocol):
    """A learner on one family."""

    family: Any


@runtime_checkable
class PlaysClasses(Protocol):
    """A selector that says what it would be on one class."""

    def on_class(self, m: int) -> Learner:
        """Return it on class m, m = 1 ... M."""


@runtime_checkable
class PlaysFeatures(Protocol):
    """A selector of coordinates or norms that says what it would be without that."""

    features: FeatureMap

    def on_features(self, theta: Floats | None) -> Learner:
        """Return it where the parameter is known to have the support or norm of ``theta``.

        None: nothing is known, and nothing is selected.
        """


@runtime_checkable
class HasTheta(Protocol):
    """A problem whose kernel is linear in features."""

    theta: Any


def oracle(
    selector: Learner, problem: Any, *, theta: Any = None, class_: int | None = None
) -> Learner:
    """Return what a selector would be if it knew the class, or the support and norm.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-ladder")
    >>> selector = orl.ARLGen(ladder=orl.Ladder.of_problem(problem))
    >>> orl.oracle(selector, problem).ladder.sizes, orl.largest(selector).ladder.sizes
    ([129], [577])

    Parameters
    ----------
    selector : Learner
    problem : problem, or FiniteMDP
        The truth is looked up in its kernel, or is its ``theta``.
    theta : array [d], optional
        The parameter of the features, where the problem does not fix it.
    class_ : int, optional
        The class that is right, from 1, where that is to be given: the simplest that is good enough
        for a truth outside all of them, or the base of an arena.
    """
    if isinstance(selector, PlaysFeatures):
        return selector.on_features(_theta_of(selector.features, problem, theta))
    if class_ is not None:
        return on_class(selector, class_)
    mdp = as_mdp(problem)
    m = None
    if isinstance(selector, Arena):
        m = right_base(selector, mdp)
    elif selects_class(selector):
        m = selector.ladder.class_of(mdp)
    else:
        raise _no_selector(selector)
    if m is None:
        got = f"no class that contains {type(problem).__name__}"
        expected = "one that contains the problem's kernel, or class_="
        raise ParameterError("ladder", got=got, expected=expected)
    return on_class(selector, m)


def largest(selector: Learner) -> Learner:
    """Return a selector without selection: on the largest class, or on all features.

    >>> import occamrl as orl
    >>> ladder = orl.Ladder.of_problem(orl.make_problem("sparse-ladder"))
    >>> orl.largest(orl.Occam(ladder=ladder)).ladder.sizes
    [577]
    """
    if isinstance(selector, PlaysFeatures):
        return selector.on_features(None)
    if isinstance(selector, Arena):
        return selector.bases[-1]
    if not selects_class(selector):
        raise _no_selector(selector)
    return on_class(selector, selector.ladder.classes)


def smallest(selector: Learner) -> Learner:
    """Return a selector on the smallest class of its ladder.

    >>> import occamrl as orl
    >>> ladder = orl.Ladder.of_problem(orl.make_problem("sparse-ladder"))
    >>> orl.smallest(orl.Occam(ladder=ladder)).ladder.sizes
    [1]
    """
    return on_class(selector, 1)


def on_class(selector: object, m: Any) -> Learner:
    """Return a selector on class m of its ladder, m = 1 ... M, which is checked."""
    if isinstance(selector, Arena):
        return selector.bases[require_integer("m", m, 1, maximum=len(selector.bases)) - 1]
    if not selects_class(selector):
        raise _no_selector(selector)
    ladder: Ladder | ParametricLadder = selector.ladder
    number = require_integer("m", m, 1, maximum=ladder.classes)
    if isinstance(selector, PlaysClasses):
        return selector.on_class(number)
    if not dataclasses.is_dataclass(selector):
        expected = "a dataclass, or one with a method on_class(m)"
        raise ParameterError("selector", got=f"a {type(selector).__name__}", expected=expected)
    alone: Learner = dataclasses.replace(cast(Any, selector), ladder=ladder.only(number))
    return alone


def selects_class(selector: object) -> TypeGuard[HasLadder]:
    """Return whether a selector has a ladder."""
    return isinstance(selector, HasLadder) and selector.ladder is not None


def _no_selector(selector: object) -> ParameterError:
    expected = "a selector with a ladder, one with features and on_features, or an Arena"
    return ParameterError("selector", got=f"a {type(selector).__name__}", expected=expected)


def right_base(arena: Arena, mdp: FiniteMDP) -> int | None:
    """Return the first base, from 1, that plays a class with the problem's kernel."""
    for i, base in enumerate(arena.bases, start=1):
        ladder = None
        if isinstance(base, HasFamily):
            ladder = Ladder([base.family])
        elif selects_class(base):
            ladder = base.ladder
        if ladder is not None and ladder.class_of(mdp) is not None:
            return i
    return None


def _theta_of(features: FeatureMap, problem: Any, theta: Any) -> Floats:
    """Return the parameter of a problem's kernel: as is given, its own, or the only one."""
    if theta is None and isinstance(problem, HasTheta):
        theta = problem.theta
    if theta is not None:
        vector = np.asarray(theta, dtype=np.float64)
        if vector.shape != (features.dimension,):
            expected = f"[{features.dimension}], a number for each coordinate of the features"
            raise ParameterError("theta", got=f"shape {vector.shape}", expected=expected)
        return vector
    return _only_theta(features, as_mdp(problem))


def _only_theta(features: FeatureMap, mdp: FiniteMDP) -> Floats:
    """Return the one theta with which features make the kernel of a problem."""
    expected = "a problem whose kernel one theta makes, or theta="
    if features.groups > 1 or not mdp.stationary:
        raise ParameterError(
            "theta", got="one-hot features, or a kernel per step", expected=expected
        )
    rows = (mdp.probability[0], mdp.outcomes.next_state, mdp.outcomes.start)
    kernel = sp.csr_array(rows, shape=(mdp.states * mdp.actions, mdp.states))
    found = LinearFamily(features=features, norm_bound=_LONGEST).find(kernel)
    if found is None:
        raise ParameterError("theta", got="a kernel that no theta makes", expected=expected)
    singular = np.linalg.svd(features.cells[1].toarray(), compute_uv=False)
    if singular[-1] <= _RELATIVE * singular[0] or singular.size < features.dimension:
        raise ParameterError("theta", got="features of which several theta fit", expected=expected)
    theta = np.asarray(found, dtype=np.float64)
    theta[np.abs(theta) <= _ROUNDING * np.abs(theta).max()] = 0.0
    return theta
