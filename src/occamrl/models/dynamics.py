"""Classes of dynamics whose parameters are fitted: libraries of terms, grey boxes, rivals.

Every class says where the state goes on average: libraries and rivals give the *change* s' - s, a
grey box the next state. States are arrays [N, n], the exogenous coordinates last; actions [N, m].
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from occamrl.errors import ParameterError, require_integer, require_number, require_range
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
        named = _parameters(function)
        anything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in named.values())
        for name in box:
            if named and name not in named and not anything:
                expected = (
                    f"a parameter of the function: {', '.join([*named][2:]) or 'it has none'}"
                )
                raise ParameterError("box", got=repr(name), expected=expected)
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


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function; none where Python does not know them."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # of some functions that are not written in Python
        return {}


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


def holds(richer: DynamicsClass, simpler: DynamicsClass) -> bool:
    """Return whether the forms of two classes show that one holds the other."""
    if isinstance(richer, Polynomial) and isinstance(simpler, Polynomial):
        return richer.degree >= simpler.degree and set(richer.trig) == set(simpler.trig)
    if isinstance(richer, Terms) and isinstance(simpler, Terms):
        return all(term in richer.terms.values() for term in simpler.terms.values())
    if not isinstance(richer, GreyBox) or not isinstance(simpler, GreyBox):
        return False
    if richer.function != simpler.function or not set(simpler.box) <= set(richer.box):
        return False
    parameters = _parameters(richer.function)
    for name, (low, high) in richer.box.items():
        default = parameters[name].default if name in parameters else None
        ends = simpler.box.get(name, (default, default))
        if not all(isinstance(end, (int, float)) and low <= end <= high for end in ends):
            return False
    return True


def unchanged(exogenous: Floats) -> Floats:
    """Return exogenous coordinates as they are: the forecast by default."""
    return exogenous


@dataclass(frozen=True, eq=False)
class DynamicsClasses:
    """Classes of dynamics, simplest first, and the names of coordinates: see Dynamics."""

    classes_by_name: Mapping[str, DynamicsClass]
    state: Sequence[str] = field(kw_only=True)
    action: Sequence[str] = field(kw_only=True)
    tolerance: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    exogenous: Sequence[str] = field(default=(), kw_only=True)
    forecast: Callable[[Floats], Floats] = field(default=unchanged, kw_only=True)
    # Rivals that were fitted, by class and digest of the data.
    fitted: dict[tuple[int, str], Regressor] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not isinstance(self.classes_by_name, Mapping) or not self.classes_by_name:
            expected = "a dict: names, and Polynomial, Terms, GreyBox or Rival"
            raise ParameterError("classes", got=f"{self.classes_by_name!r:.80}", expected=expected)
        for name, kind in self.classes_by_name.items():
            if not isinstance(kind, (Polynomial, Terms, GreyBox, Rival)):
                expected = "orl.Polynomial, orl.Terms, orl.GreyBox or orl.Rival"
                got = f"{kind!r:.80}"
                raise ParameterError(f"classes[{name!r}]", got=got, expected=expected)
        for column in ("state", "action", "exogenous"):
            names = getattr(self, column)  # one of the fields above
            if isinstance(names, str):
                raise ParameterError(column, got=repr(names), expected=f"a list: [{names!r}]")
            object.__setattr__(self, column, tuple(names))
        if not self.state or len(set(self.inputs)) < len(self.inputs):
            expected = "different names, at least one"
            raise ParameterError("state", got=list(self.inputs), expected=expected)
        for name, size in self.tolerance.items():
            if name not in self.state:
                expected = f"one of {', '.join(self.state)}"
                raise ParameterError("tolerance", got=repr(name), expected=expected)
            require_number(f"tolerance[{name!r}]", size, 0.0, np.inf, open_low=True)
        for kind in self.classes:
            if isinstance(kind, Polynomial):
                kind.exponents(self.inputs)

    def __repr__(self) -> str:
        return f"Dynamics({' < '.join(self.names)})"

    @property
    def names(self) -> tuple[str, ...]:
        """What the classes are called."""
        return tuple(self.classes_by_name)

    @property
    def classes(self) -> tuple[DynamicsClass, ...]:
        """The classes, simplest first."""
        return tuple(self.classes_by_name.values())

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of states, what is exogenous, and actions [d]."""
        return (*self.state, *self.exogenous, *self.action)

    @property
    def angles(self) -> tuple[str, ...]:
        """Coordinates that some class treats as angles."""
        names: list[str] = []
        for kind in self.classes:
            if isinstance(kind, Polynomial):
                names.extend(kind.trig)
        return tuple(names)

    @property
    def apart(self) -> tuple[str, str] | None:
        """The first class, and the one after it, that may not hold it; rivals aside."""
        left = [name for name, kind in self.classes_by_name.items() if not isinstance(kind, Rival)]
        for simpler, richer in itertools.pairwise(left):
            if not holds(self.classes_by_name[richer], self.classes_by_name[simpler]):
                return simpler, richer
        return None

    @property
    def nested(self) -> bool:
        """Whether every class holds the one before it, as far as forms show; rivals aside."""
        return self.apart is None

    @property
    def sizes(self) -> list[int | None]:
        """How many parameters each class has; None for rivals."""
        sizes: list[int | None] = []
        for kind in self.classes:
            if isinstance(kind, Polynomial):
                sizes.append(len(kind.exponents(self.inputs)) * len(self.state))
            elif isinstance(kind, Terms):
                sizes.append(len(kind.names) * len(self.state))
            elif isinstance(kind, GreyBox):
                sizes.append(len(kind.box))
            else:
                sizes.append(None)
        return sizes

    @property
    def box(self) -> Mapping[str, tuple[float, float]]:
        """The bounds of the parameters of grey boxes, by name; the widest where they differ."""
        box: dict[str, tuple[float, float]] = {}
        for kind in self.classes:
            if isinstance(kind, GreyBox):
                for name, (low, high) in kind.box.items():
                    before = box.get(name, (low, high))
                    box[name] = min(low, before[0]), max(high, before[1])
        return box
