"""Classes of dynamics whose parameters are fitted: libraries of terms, grey boxes, rivals.

Every class says where the state goes on average: libraries and rivals give the *change* s' - s, a
grey box the next state. States are arrays [N, n], the exogenous coordinates last; actions [N, m].
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from occamrl.errors import ParameterError, require_integer, require_range
from occamrl.protocols import Floats, Ints

_MOST_TERMS = 400  # of a library


class Scaling(NamedTuple):
    """The centre and the spread of states and actions [d] in the first steps, fixed from then."""

    center: Floats
    spread: Floats

    def of(self, states: Floats, actions: Floats) -> Floats:
        """Return states and actions in standard units [N, d]."""
        return (np.concatenate([states, actions], axis=1) - self.center) / self.spread


@dataclass(frozen=True)
class Polynomial:
    """Changes that are polynomials of state and action.

    >>> import occamrl as orl
    >>> orl.Polynomial(2, trig=["angle"]).degree
    2

    Parameters
    ----------
    degree : int
    trig : sequence of str
        Coordinates that are angles: they enter by their sine and cosine.
    """

    degree: int
    trig: Sequence[str] = ()

    def __post_init__(self) -> None:
        require_integer("degree", self.degree, 0)

    def exponents(self, names: Sequence[str]) -> Ints:
        """Return the exponents of the inputs in every term [k, inputs], the constant first."""
        for name in self.trig:
            if name not in names:
                raise ParameterError("trig", got=repr(name), expected=f"one of {', '.join(names)}")
        powers = _exponents(len(names) + len(self.trig), self.degree)
        if len(powers) > _MOST_TERMS:
            expected = f"at most {_MOST_TERMS} terms: a smaller degree, or orl.Terms"
            raise ParameterError("degree", got=f"{len(powers)} terms", expected=expected)
        return powers

    def features(
        self, states: Floats, actions: Floats, names: Sequence[str], scaling: Scaling
    ) -> Floats:
        """Return the terms [N, k]."""
        scaled = scaling.of(states, actions)
        raw = np.concatenate([states, actions], axis=1)
        inputs = []
        for column, name in enumerate(names):
            if name in self.trig:
                inputs += [np.sin(raw[:, column]), np.cos(raw[:, column])]
            else:
                inputs.append(scaled[:, column])
        powers = self.exponents(names)
        terms = np.ones((len(states), len(powers)))
        for column, values in enumerate(inputs):
            for exponent in range(1, self.degree + 1):
                terms[:, powers[:, column] >= exponent] *= values[:, None]
        return terms


@lru_cache(maxsize=64)
def _exponents(inputs: int, degree: int) -> Ints:
    """Return the exponents of all monomials up to a degree [k, inputs]."""
    rows = []
    for total in range(degree + 1):
        for chosen in itertools.combinations_with_replacement(range(inputs), total):
            rows.append(np.bincount(np.array(chosen, int), minlength=inputs))
    return np.array(rows)


class Terms:
    """Changes that are sums of terms that you give, with weights that are fitted.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> swing = orl.Terms({"gravity": lambda s, a: np.sin(s[:, 0]), "push": lambda s, a: a[:, 0]})
    >>> swing.names
    ('gravity', 'push')

    Each is a function ``term(states [N, n], actions [N, m]) -> [N]``; list a constant if you want
    one. Without names they are those of the functions.
    """

    def __init__(self, terms: Any) -> None:
        if not isinstance(terms, Mapping):
            if not isinstance(terms, Sequence) or isinstance(terms, str):
                expected = "a list of functions, or a dict from names to functions"
                raise ParameterError("terms", got=f"{terms!r:.80}", expected=expected)
            named = {}
            for number, term in enumerate(terms, start=1):
                name = str(getattr(term, "__name__", "<"))  # objects that can be called have none
                named[f"term {number}" if name.startswith("<") else name] = term
            terms = named
        if not terms or not all(map(callable, terms.values())):
            expected = "functions term(states, actions) -> [N]"
            raise ParameterError("terms", got=f"{terms!r:.80}", expected=expected)
        self.terms: dict[str, Callable[[Floats, Floats], Floats]] = dict(terms)

    @property
    def names(self) -> tuple[str, ...]:
        """What the terms are called [k]."""
        return tuple(self.terms)

    def features(
        self, states: Floats, actions: Floats, names: Sequence[str], scaling: Scaling
    ) -> Floats:
        """Return the terms [N, k]."""
        columns = []
        for name, term in self.terms.items():
            values = np.asarray(term(states, actions), float)
            if values.shape != (len(states),):
                got = f"{list(values.shape)} for {len(states)} rows"
                raise ParameterError(f"terms[{name!r}]", got=got, expected="one number a row: [N]")
            columns.append(values)
        return np.stack(columns, axis=1)


class GreyBox:
    """A function of yours with physical parameters that are fitted in a box.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> def cart(states, actions, *, mass=1.0):
    ...     speed = states[:, 1] + 0.05 * actions[:, 0] / mass
    ...     return np.stack([states[:, 0] + 0.05 * speed, speed], axis=1)
    >>> orl.GreyBox(cart, mass=(0.5, 3)).box
    {'mass': (0.5, 3.0)}

    ``function(states [N, n], actions [N, m], **parameters)`` returns the mean of the next state;
    those that are not in the box keep their defaults.
    """

    def __init__(self, function: Callable[..., Any], **box: tuple[float, float]) -> None:
        if not callable(function):
            expected = "a function of states, actions and parameters"
            raise ParameterError("function", got=f"{function!r:.80}", expected=expected)
        self.function = function
        self.box = {name: require_range(name, ends) for name, ends in box.items()}

    def next_states(self, states: Floats, actions: Floats, values: Floats, n: int) -> Floats:
        """Return the mean of the next states [N, n] under values of the parameters [p]."""
        keywords = dict(zip(self.box, values.tolist(), strict=True))
        with np.errstate(all="ignore"):
            following = np.asarray(self.function(states, actions, **keywords), float)
        if following.shape != (len(states), n):
            got = f"{list(following.shape)} for {len(states)} rows"
            name = str(getattr(self.function, "__name__", type(self.function).__name__))
            raise ParameterError(name, got=got, expected=f"the mean of the next state: [N, {n}]")
        return following


class Regressor(Protocol):
    """What is fitted and predicts, as scikit-learn has it."""

    def fit(self, inputs: Floats, targets: Floats, /) -> Any:
        """Fit to inputs [N, d] and targets [N, n]."""

    def predict(self, inputs: Floats, /) -> Any:
        """Return predictions [N, n], or [N] where n is 1."""


class Rival:
    """A network, a forest or a Gaussian process, which is fitted and compared, but never ruled out.

    ``factory()`` returns an object with ``fit(inputs, targets)`` and ``predict(inputs)``, as
    scikit-learn's regressors have; inputs are states and actions, targets changes, both in standard
    units. It is fitted again whenever the data have doubled.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> class Nearest:
    ...     def fit(self, inputs, targets):
    ...         self.inputs, self.targets = inputs, targets
    ...     def predict(self, inputs):
    ...         distance = ((inputs[:, None] - self.inputs) ** 2).sum(axis=2)
    ...         return self.targets[distance.argmin(axis=1)]
    >>> rival = orl.Rival(Nearest)
    """

    def __init__(self, factory: Callable[[], Regressor]) -> None:
        if not callable(factory):
            expected = "a class, or a function that returns an object with fit and predict"
            raise ParameterError("factory", got=f"{factory!r:.80}", expected=expected)
        self.factory = factory


Library = Polynomial | Terms
DynamicsClass = Polynomial | Terms | GreyBox | Rival
