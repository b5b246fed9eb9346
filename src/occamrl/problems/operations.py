"""Practical problems: a function of what can happen, and nested classes of the laws of these events.

At (s, a) something happens, and what it does to the state and the account is known. Unknown are
probabilities. Each problem comes with two ladders. *Lists*: the kernel is affine in some numbers
(the probability of each demand, say), a class is a list of their values, and 100,000 models take no
more memory than these. *Real parameters* (:attr:`PracticalProblem.model`): the same function with a
few parameters that are fitted. Rewards have a unit of their own (money, minutes).
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import betainc, pdtr

from occamrl.errors import ParameterError, require_choice, require_integers, require_sequences
from occamrl.models.model import Model, ParametricLadder
from occamrl.naming import Names
from occamrl.problems.mdp import FiniteMDP, Listing, RewardMap, Small, read_only
from occamrl.protocols import Floats

Happens = Iterable[tuple[Any, Any, float]]  # probability, next state, amount


class NestedClasses(ABC):
    """A problem that says what each class adds to those before it; ``Ladder.of_problem`` makes the ladder."""

    small: ClassVar[Small]  # the parameters of small instances

    @property
    @abstractmethod
    def theta(self) -> Floats:
        """theta* [d]."""

    @abstractmethod
    def classes(self) -> Sequence[Floats]:
        """Return the parameters [n, d] that each class adds to those before it; repetitions are dropped."""

    @cached_property
    def _ordered(self) -> tuple[Floats, list[int]]:
        added = self.classes()
        stacked = np.concatenate(added)
        _, first = np.unique(
            np.round(stacked, 12), axis=0, return_index=True
        )  # those that agree to 12 digits are one
        kept, ends = np.sort(first), np.cumsum([len(part) for part in added])
        return read_only(stacked[kept]), [int(size) for size in np.searchsorted(kept, ends)]

    @property
    def hypotheses(self) -> Floats:
        """All parameters [n, d], each once, by the first class that contains them."""
        return self._ordered[0]

    @property
    def sizes(self) -> list[int]:
        """|F_1|, ..., |F_M|."""
        return self._ordered[1]


def poisson(mean: float, shelf: int) -> Floats:
    """Return a day's Poisson demand as a shelf sees it: P(D = 0), ..., P(D = shelf - 1), P(D >= shelf)."""
    return np.diff(np.concatenate([[0.0], pdtr(np.arange(shelf), mean), [1.0]]))


def negative_binomial(mean: float, size: float, shelf: int) -> Floats:
    """Return the negative binomial law with variance mean + mean^2/size; size = infinity would be Poisson."""
    return np.diff(
        np.concatenate(
            [[0.0], betainc(size, np.arange(1.0, shelf + 1.0), size / (size + mean)), [1.0]]
        )
    )


def erratic(mean: float, empty: float, spread: float, shelf: int) -> Floats:
    """Return the law with a share of empty days, and variance mean + spread mean^2 on the others."""
    law = (1.0 - empty) * (
        poisson(mean, shelf) if spread < 1e-9 else negative_binomial(mean, 1.0 / spread, shelf)
    )
    law[0] += empty
    return law


def two_kinds_of_day(quiet: float, busy: float, share: float, shelf: int) -> Floats:
    """Return a mixture of two Poisson laws; ``share`` of the days are busy."""
    return (1.0 - share) * poisson(quiet, shelf) + share * poisson(busy, shelf)


def on_a_grid(levels: Sequence[int], parts: int, shelf: int) -> Floats:
    """Return every law on ``levels`` whose probabilities are multiples of 1/parts, [n, shelf + 1]."""
    bars = itertools.combinations(range(parts + len(levels) - 1), len(levels) - 1)
    cuts = np.array([(-1, *bar, parts + len(levels) - 1) for bar in bars])
    laws = np.zeros((len(cuts), shelf + 1))
    laws[:, list(levels)] = (np.diff(cuts, axis=1) - 1) / parts
    return laws


@dataclass(frozen=True, kw_only=True)
class PracticalProblem(NestedClasses):
    """A problem from practice with its ladder of plausible models.

    A subclass names states and actions and says what can happen (:meth:`outcomes`), which laws each
    class contains (:meth:`laws`) and which one is true (:attr:`law`). For real parameters it says
    what can happen with them (``happens``), and which are free in each class (``free``).
    """

    horizon: int

    unit_name: ClassVar[str] = "EUR"
    class_names: ClassVar[tuple[str, ...]]
    needing: ClassVar[
        Small
    ]  # the parameters of one problem per class whose truth needs that class and none below
    constant: ClassVar[bool] = (
        True  # whether probabilities have a part that no law changes; theta = (1, law) then
    )
    box: ClassVar[Mapping[str, tuple[float, float]]] = {}  # bounds of real parameters
    free: ClassVar[Mapping[str, Sequence[str]]] = {}  # those of each class

    @property
    @abstractmethod
    def names(self) -> Names:
        """Names of the states, in the first of which episodes begin unless ``start`` is another, and of the actions."""

    @property
    @abstractmethod
    def law(self) -> Floats:
        """The true law."""

    @abstractmethod
    def outcomes(self, state: Any, action: Any, law: Any) -> Happens:
        """Yield (probability, next state, amount); affine in the law, whose entries may be numbers or arrays."""

    @abstractmethod
    def laws(self) -> Sequence[Any]:
        """Return the laws [n, d] that each class adds to those before it."""

    @property
    def start(self) -> Any:
        """The state in which episodes begin."""
        return self.names.states[0]

    @classmethod
    def truths(cls) -> Sequence[Self]:
        """Return one problem per class whose truth needs that class and none below."""
        return [cls(**parameters) for parameters in cls.needing]

    @property
    def theta(self) -> Floats:
        """theta* [d]: the true law, after a 1 where there is a constant part."""
        return np.append(1.0, self.law) if self.constant else self.law

    def classes(self) -> Sequence[Floats]:
        """Return the parameters that each class adds."""
        return [
            np.insert(np.asarray(laws), 0, 1.0, axis=1) if self.constant else np.asarray(laws)
            for laws in self.laws()
        ]

    @cached_property
    def _moves(self) -> tuple[Any, ...]:
        """All that can happen: pair, next state, amount, and the probability if the law is 0, a unit vector, true."""
        d, number = self.law.size, {state: i for i, state in enumerate(self.names.states)}
        points = np.concatenate([np.zeros((1, d)), np.eye(d), self.law[None]]).T
        every = []
        for pair, at in enumerate(itertools.product(self.names.states, self.names.actions)):
            every += [
                (pair, number[s], float(paid), np.broadcast_to(p, d + 2))
                for p, s, paid in self.outcomes(*at, points)
            ]
        return tuple(np.array(column) for column in zip(*every, strict=True))

    @cached_property
    def phi(self) -> list[sp.csr_array]:
        """One sparse matrix (S*A, S) per coordinate of theta."""
        pair, after, _, chance = self._moves
        shape = (len(self.names.states) * len(self.names.actions), len(self.names.states))
        columns = np.concatenate([chance[:, :1], chance[:, 1:-1] - chance[:, :1]], axis=1).T[
            not self.constant :
        ]
        made = [sp.csr_array((column, (pair, after)), shape=shape) for column in columns]
        for matrix in made:
            matrix.eliminate_zeros()
        return made

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem, with its names and its unit."""
        pair, after, amount, chance = self._moves
        chance, initial = (
            np.maximum(chance[None, :, -1], 0.0),
            np.zeros(len(self.names.states)),
        )  # 1 - .9 - .1
        initial[self.names.states.index(self.start)] = 1.0
        listing = Listing(initial.size, len(self.names.actions), pair, after, chance, amount)
        unit = RewardMap(float(amount.min()), float(amount.max()))
        listing.validate(unit)
        about: dict[str, Any] = {"unit": unit, "unit_name": self.unit_name, "names": self.names}
        return FiniteMDP.of_listing(listing, horizon=self.horizon, initial=initial, **about)

    @cached_property
    def real_ladder(self) -> ParametricLadder:
        """Nested classes with real parameters; ``real_ladder.model`` is the same system with these."""
        about: dict[str, Any] = {
            "start": self.start,
            "actions": self.names.actions,
            "horizon": self.horizon,
        }
        if not self.free:
            expected = "a problem with real parameters: happens, box and free"
            raise ParameterError("real_ladder", got=type(self).__name__, expected=expected)
        happens: Any = getattr(self, "happens", None)
        return Model(happens, parameters=self.box, unit=self.unit_name, **about).ladder(self.free)


@dataclass(frozen=True, kw_only=True)
class ShelfProblem(PracticalProblem):
    """Order in the evening for the next morning; what does not fit is not delivered, what is not there is not sold.

    A customer who finds the shelf empty is lost, and unseen. The account of a day is margin times
    sales, less holding for what is left in the evening, less the fixed cost if something was
    ordered; goods left at the end are taken back at cost. Orders are in units.
    """

    shelf: int  # the largest stock
    order_step: int  # orders are multiples of this many units
    margin: float  # EUR per unit sold
    holding: float  # EUR per unit and night
    fixed: float  # EUR per order

    constant: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_integers(self, shelf=1, order_step=1)
        if self.order_step > self.shelf:
            raise ParameterError(
                "order_step", got=self.order_step, expected=f"at most the shelf, {self.shelf}"
            )

    def named(self, states: Iterable[Any]) -> Names:
        """Return the names of states, and those of the orders."""
        return Names(tuple(states), tuple(range(0, self.shelf + 1, self.order_step)))

    def day(self, stock: int, order: int, demand: Any) -> Happens:
        """Yield what can happen on a day whose demand has this law [shelf + 1]."""
        filled = min(stock + order, self.shelf)
        for wanted, chance in enumerate(demand):
            left = max(filled - wanted, 0)
            yield (
                chance,
                left,
                self.margin * (filled - left) - self.holding * left - self.fixed * (order > 0),
            )


DEMANDS = ("poisson", "negative-binomial", "bimodal", "other")
_MEANS = np.arange(2, 21) / 2.0  # 1, 1.5, ..., 10 units a day
_SIZES = (0.5, 1.0, 2.0, 4.0, 8.0)  # of the negative binomial: variance mean + mean^2/size
_QUIET, _BUSY, _SHARES = (0.5, 1.0, 2.0), (8.0, 10.0, 12.0), (0.25, 0.5, 0.75)
_PARTS = 8  # the laws of the last class have probabilities k/8


@dataclass(frozen=True, kw_only=True)
class LostSales(ShelfProblem):
    """A shelf of one product; only sales are seen, never the demand. The state is the stock in the evening."""

    shelf: int = 15  # a multiple of 5
    order_step: int = 5
    horizon: int = 28
    margin: float = 4.0
    holding: float = 0.5
    fixed: float = 6.0
    demand: str = "poisson"  # the true law, one for each class

    class_names: ClassVar[tuple[str, ...]] = (
        "Poisson",
        "+ negative binomial",
        "+ two kinds of day",
        "+ any on a grid",
    )
    small: ClassVar[Small] = (
        {"shelf": 5, "horizon": 4},
        {"shelf": 5, "horizon": 3, "order_step": 2, "fixed": 0.5, "demand": "other"},
    )
    needing: ClassVar[Small] = tuple({"demand": demand} for demand in DEMANDS)
    box = {"mean": (0.5, 12.0), "empty": (0.0, 0.6), "spread": (0.0, 2.0)}  # noqa: RUF012  # ClassVar in the base
    free = {"Poisson": ["mean"], "empty days": ["mean", "empty"], "erratic": list(box)}  # noqa: RUF012  # as above

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("demand", self.demand, DEMANDS)
        if self.shelf % 5:
            raise ParameterError("shelf", got=self.shelf, expected="a multiple of 5")

    @property
    def names(self) -> Names:
        """The stock in the evening; units ordered."""
        return self.named(range(self.shelf + 1))

    def outcomes(self, stock: int, order: int, law: Any) -> Happens:
        """Yield what can happen in a day; the law is that of the demand."""
        return self.day(stock, order, law)

    def happens(
        self, stock: int, order: int, *, mean: float, empty: float = 0.0, spread: float = 0.0
    ) -> Happens:
        """Yield what can happen in a day; some are empty, on the others the variance is mean + spread mean^2."""
        return self.day(stock, order, erratic(mean, empty, spread, self.shelf).tolist())

    def laws(self) -> Sequence[Any]:
        """Return the laws of the demand that each class adds."""
        shelf = self.shelf
        first = [poisson(mean, shelf) for mean in _MEANS]
        second = [negative_binomial(mean, size, shelf) for mean in _MEANS for size in _SIZES]
        third = [two_kinds_of_day(q, b, w, shelf) for q in _QUIET for b in _BUSY for w in _SHARES]
        return [first, second, third, on_a_grid(range(0, shelf + 1, shelf // 5), _PARTS, shelf)]

    @property
    def law(self) -> Floats:
        """The true law of the demand [shelf + 1]."""
        shelf, other = self.shelf, np.zeros(self.shelf + 1)
        other[[0, shelf // 5, 4 * shelf // 5]] = 0.25, 0.375, 0.375
        first = (
            poisson(6.0, shelf),
            negative_binomial(6.0, 1.0, shelf),
            two_kinds_of_day(0.5, 8.0, 0.5, shelf),
        )
        return dict(zip(DEMANDS, (*first, other), strict=True))[self.demand]


DAYS = 7  # Monday is 0
_PATTERNS = (
    (0,) * 7,
    (0, 0, 0, 0, 0, 1, 1),
    (0, 0, 0, 0, 0, 1, 2),
    (3, 0, 0, 0, 4, 1, 2),
)  # by class: means of days


@dataclass(frozen=True, kw_only=True)
class WeekdayInventory(ShelfProblem):
    """A shelf whose demand follows the week: Poisson with the mean of the day.

    The state is (weekday, stock in the morning before the delivery).
    """

    means: tuple[float, ...] = (6.0,) * DAYS  # the true ones, Monday first, out of levels
    levels: tuple[float, ...] = (2.0, 4.0, 6.0, 9.0, 12.0)  # the means that hypotheses may have
    shelf: int = 15
    order_step: int = 3
    horizon: int = 28
    margin: float = 4.0
    holding: float = 1.0
    fixed: float = 3.0

    class_names: ClassVar[tuple[str, ...]] = (
        "one mean",
        "weekend",
        "Saturday, Sunday",
        "Monday, Friday too",
    )
    small: ClassVar[Small] = (
        {"means": (1.0,) * 7, "levels": (1.0, 2.0), "shelf": 2, "order_step": 1, "horizon": 4},
    )
    needing: ClassVar[Small] = (
        {},
        {"means": (4.0, 4.0, 4.0, 4.0, 4.0, 9.0, 9.0)},
        {"means": (4.0, 4.0, 4.0, 4.0, 4.0, 12.0, 2.0)},
        {"means": (2.0, 4.0, 4.0, 4.0, 9.0, 12.0, 2.0)},
    )
    box = {"mean": (1.0, 12.0), "weekend": (0.2, 3.0), "sunday": (0.2, 3.0)}  # noqa: RUF012  # ClassVar in the base
    free = {"one mean": ["mean"], "weekend": ["mean", "weekend"], "Saturday, Sunday": list(box)}  # noqa: RUF012  # ClassVar in the base

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sequences(self, 0.0, np.inf, "levels", "means", open_low=True)
        if len(self.means) != DAYS or not set(self.means) <= set(self.levels):
            raise ParameterError(
                "means", got=self.means, expected=f"{DAYS} numbers out of {self.levels}"
            )

    @property
    def names(self) -> Names:
        """Weekday, and stock in the morning; units ordered."""
        return self.named(itertools.product(range(DAYS), range(self.shelf + 1)))

    def week(self, state: tuple[int, int], order: int, demand: Any) -> Happens:
        """Yield what can happen on a day whose demand has this law."""
        for chance, left, earned in self.day(state[1], order, demand):
            yield chance, ((state[0] + 1) % DAYS, left), earned

    @cached_property
    def _demand(self) -> Floats:
        return np.array([poisson(mean, self.shelf) for mean in self.levels])

    def outcomes(self, state: tuple[int, int], order: int, law: Any) -> Happens:
        """Yield what can happen in a day; number day * L + i of the law says that the day has the mean levels[i]."""
        first = state[0] * len(self.levels)
        return self.week(state, order, self._demand.T @ law[first : first + len(self.levels)])

    def happens(
        self, at: Any, order: int, *, mean: float, weekend: float = 1.0, sunday: float = 1.0
    ) -> Happens:
        """Yield what can happen in a day; Saturdays have ``weekend`` times the mean, Sundays ``sunday`` times that."""
        today = mean * (1.0 if at[0] < 5 else weekend if at[0] == 5 else weekend * sunday)
        return self.week(at, order, poisson(today, self.shelf).tolist())

    def weights(self, means: Iterable[float]) -> Floats:
        """Return the law of seven means."""
        return np.concatenate([np.equal(self.levels, mean).astype(np.float64) for mean in means])

    def laws(self) -> Sequence[Any]:
        """Return the weeks that each class adds."""
        made = []
        for pattern in _PATTERNS:
            free = itertools.product(self.levels, repeat=max(pattern) + 1)
            made.append([self.weights(choice[i] for i in pattern) for choice in free])
        return made

    @property
    def law(self) -> Floats:
        """Ones at the true means."""
        return self.weights(self.means)


PHASES = 3


@dataclass(frozen=True, kw_only=True)
class QueueAdmission(PracticalProblem):
    """A help desk that may close its door; its phase - calm, busy, rush - is seen.

    Each minute the door is open or closed; at most one thing happens: a customer comes, or one is
    served. The state is (phase, customers in the house); phases follow each other in a circle. The
    account of a minute is ``worth`` for a customer let in, less one minute of waiting for everybody
    in the house: Naor's (1969) terms, with phases.
    """

    room: int = 12  # the most customers in the house; S = 3 (room + 1)
    horizon: int = 60  # minutes
    worth: float = 30.0  # how many minutes of waiting it is worth to serve a customer
    change: float = 0.05  # the probability per minute that the next phase begins; known
    arrivals: tuple[float, ...] = (
        0.3,
    ) * PHASES  # true probabilities per minute that a customer comes, by phase
    services: tuple[float, ...] = (0.3,) * PHASES  # that a service ends
    arrival_levels: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4)  # those that hypotheses may have
    service_levels: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5)

    unit_name: ClassVar[str] = "minutes of waiting"
    class_names: ClassVar[tuple[str, ...]] = (
        "the same in all phases",
        "arrivals by phase",
        "services by phase too",
    )
    small: ClassVar[Small] = ({"room": 2, "horizon": 5},)
    needing: ClassVar[Small] = (
        {},
        {"arrivals": (0.1, 0.2, 0.4)},
        {"arrivals": (0.1, 0.2, 0.4), "services": (0.2, 0.3, 0.1)},
    )
    box: ClassVar[Mapping[str, tuple[float, float]]] = {
        "arrival": (0.02, 0.24),
        "service": (0.02, 0.24),
        "rush": (0.25, 2.0),
        "slow": (0.25, 2.0),
    }
    free: ClassVar[Mapping[str, Sequence[str]]] = {
        "the same": list(box)[:2],
        "arrivals by phase": list(box)[:3],
        "services too": list(box),
    }

    def __post_init__(self) -> None:
        require_integers(self, room=1)
        require_sequences(
            self, 0.0, 1.0, "arrivals", "services", "arrival_levels", "service_levels"
        )
        for name, levels in (("arrivals", self.arrival_levels), ("services", self.service_levels)):
            given = getattr(self, name)
            if len(given) != PHASES or not set(given) <= set(levels):
                raise ParameterError(name, got=given, expected=f"{PHASES} numbers out of {levels}")
        if max(self.arrival_levels) + max(self.service_levels) > 1.0:
            raise ParameterError(
                "service_levels", got=self.service_levels, expected="at most 1 with every arrival"
            )

    @property
    def names(self) -> Names:
        """Phase, and customers in the house; what is done with the door."""
        return Names(
            tuple(itertools.product(range(PHASES), range(self.room + 1))), ("closed", "open")
        )

    def outcomes(self, state: tuple[int, int], door: str, law: Any) -> Happens:
        """Yield what can happen in a minute; the law is (arrivals by phase, services by phase)."""
        phase, customers = state
        comes = law[phase] if door == "open" and customers < self.room else 0.0
        served = law[PHASES + phase] if customers else 0.0
        for after, chance in ((phase, 1.0 - self.change), ((phase + 1) % PHASES, self.change)):
            yield chance * (1.0 - comes - served), (after, customers), -customers
            if customers < self.room:
                yield chance * comes, (after, customers + 1), self.worth - customers
            if customers:
                yield chance * served, (after, customers - 1), -customers

    def happens(
        self,
        at: Any,
        door: str,
        *,
        arrival: float,
        service: float,
        rush: float = 1.0,
        slow: float = 1.0,
    ) -> Happens:
        """Yield what can happen in a minute; a rush has ``rush`` times the arrivals and ``slow`` times the services."""
        arrivals, services = (
            [p, p * (0.5 + 0.5 * x), p * x] for p, x in ((arrival, rush), (service, slow))
        )
        return self.outcomes(at, door, arrivals + services)

    def laws(self) -> Sequence[Any]:
        """Return the rates that each class adds."""
        levels = (self.arrival_levels, self.service_levels)
        same_arrivals, same_services = ([(level,) * PHASES for level in each] for each in levels)
        arrivals, services = (list(itertools.product(each, repeat=PHASES)) for each in levels)
        pairs = ((same_arrivals, same_services), (arrivals, same_services), (arrivals, services))
        return [[(*a, *s) for a, s in itertools.product(*each)] for each in pairs]

    @property
    def law(self) -> Floats:
        """The true rates [6]."""
        return np.array([*self.arrivals, *self.services])


_FIRST = (0.02, 0.05, 0.1, 0.2, 0.3)  # hazards of a new machine
_SLOPES = (0.005, 0.01, 0.02, 0.03, 0.04)  # by which they grow per month, in the linear class
_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.4)  # of the monotone class
_LONGEST = 0.95


@dataclass(frozen=True, kw_only=True)
class MachineReplacement(PracticalProblem):
    """Every month the machine is kept or replaced; a kept one of age i fails with the hazard p_i.

    A replacement takes no time: the month is run by a new machine, which may fail as well. After a
    failure the next month begins with a new one. From the age ``oldest`` on the hazard stays what
    it is.
    """

    oldest: int = 14  # the highest age that is told apart, in months; S = oldest + 1
    stretch: int = (
        2  # in the monotone class the hazard may rise every so many months; divides oldest
    )
    horizon: int = 36  # months
    planned: float = 2000.0  # EUR
    failure: float = 10000.0  # EUR
    hazard: tuple[float, ...] = (0.1,) * 15  # the true one, by age

    class_names: ClassVar[tuple[str, ...]] = ("constant", "linear", "monotone")
    small: ClassVar[Small] = ({"oldest": 2, "stretch": 1, "horizon": 6, "hazard": (0.1, 0.2, 0.4)},)
    needing: ClassVar[Small] = (
        {},
        {"hazard": tuple(0.02 + 0.03 * np.arange(15))},
        {"hazard": (0.02,) * 8 + (0.4,) * 7},
    )
    box = {"new": (0.005, 0.4), "slope": (0.0, 0.05), "bend": (0.0, 0.004)}  # noqa: RUF012  # ClassVar in the base
    free = {"constant": ["new"], "linear": ["new", "slope"], "curved": list(box)}  # noqa: RUF012  # ClassVar in the base

    def __post_init__(self) -> None:
        require_integers(self, oldest=1, stretch=1)
        if self.oldest % self.stretch:
            raise ParameterError(
                "stretch", got=self.stretch, expected=f"a divisor of oldest = {self.oldest}"
            )
        require_sequences(self, 0.0, 1.0, "hazard")
        if len(self.hazard) != self.oldest + 1:
            raise ParameterError(
                "hazard", got=f"{len(self.hazard)} numbers", expected=self.oldest + 1
            )

    @property
    def names(self) -> Names:
        """The age in months; what is done with the machine."""
        return Names(tuple(range(self.oldest + 1)), ("keep", "replace"))

    def outcomes(self, age: int, action: str, law: Any) -> Happens:
        """Yield what can happen in a month; the law is the hazard by age."""
        runs, paid = (age, 0.0) if action == "keep" else (0, self.planned)
        yield 1.0 - law[runs], min(runs + 1, self.oldest), -paid
        yield law[runs], 0, -paid - self.failure

    def happens(
        self, age: int, action: str, *, new: float, slope: float = 0.0, bend: float = 0.0
    ) -> Happens:
        """Yield what can happen in a month if the hazard is a parabola of the age."""
        ages = np.arange(self.oldest + 1)
        return self.outcomes(
            age, action, np.minimum(new + slope * ages + bend * ages**2, _LONGEST).tolist()
        )

    def laws(self) -> Sequence[Any]:
        """Return the hazards that each class adds."""
        age = np.arange(self.oldest + 1)
        constant = [np.full(age.size, p) for p in _FIRST]
        linear = [np.minimum(p + slope * age, _LONGEST) for p in _FIRST for slope in _SLOPES]
        pieces = self.oldest // self.stretch
        rising = itertools.combinations_with_replacement(_LEVELS, pieces)
        return [
            constant,
            linear,
            [np.array(each)[np.minimum(age // self.stretch, pieces - 1)] for each in rising],
        ]

    @property
    def law(self) -> Floats:
        """The true hazard."""
        return np.array(self.hazard)


LEVELS = (0.05, 0.3, 0.6, 0.9)  # the probabilities of a sale that curves are made of


@dataclass(frozen=True, kw_only=True)
class Pricing(PracticalProblem):
    """In each step a price is asked, and one unit sells with a probability that depends on the price alone.

    Prices are 1/A, 2/A, ..., 1, and a sale earns the price; the state is what is left of the stock.
    Classes of demand curves over the prices: exponential < logit < falling < any, rounded to
    LEVELS. The default is falling but not logit: an exponential curve agrees with it at the prices
    it recommends, and earns 0.77 less per episode forever.
    """

    stock: int = 8  # at the start; S = stock + 1
    prices: int = 8  # A
    horizon: int = 20
    demand: tuple[float, ...] = (0.9, 0.9, 0.9, 0.9, 0.3, 0.3, 0.05, 0.05)

    unit_name: ClassVar[str] = "highest prices"
    class_names: ClassVar[tuple[str, ...]] = ("exponential", "logit", "falling", "any")
    small: ClassVar[Small] = ({"stock": 2, "prices": 3, "horizon": 4, "demand": (0.9, 0.3, 0.3)},)
    needing: ClassVar[Small] = (
        {"demand": (0.9, 0.9, 0.6, 0.6, 0.6, 0.6, 0.3, 0.3)},
        {"demand": (0.9, 0.9, 0.9, 0.9, 0.9, 0.6, 0.3, 0.3)},
        {},
        {"demand": (0.3, 0.9, 0.9, 0.9, 0.3, 0.3, 0.05, 0.05)},
    )

    def __post_init__(self) -> None:
        require_integers(self, stock=1)
        require_sequences(self, 0.0, 1.0, "demand")
        if len(self.demand) != self.prices or not set(self.demand) <= set(LEVELS):
            raise ParameterError(
                "demand", got=self.demand, expected=f"{self.prices} numbers out of {LEVELS}"
            )

    @property
    def names(self) -> Names:
        """What is left of the stock; the prices."""
        return Names(
            tuple(range(self.stock + 1)), tuple((a + 1) / self.prices for a in range(self.prices))
        )

    @property
    def start(self) -> int:
        """The full stock."""
        return self.stock

    def outcomes(self, left: int, price: float, law: Any) -> Happens:
        """Yield what can happen in a step; the law is the probability of a sale at each price."""
        sale = law[round(price * self.prices) - 1] if left else 0.0
        yield 1.0 - sale, left, 0.0
        if left:
            yield sale, left - 1, price

    def laws(self) -> Sequence[Any]:
        """Return the curves that each class adds."""
        price = np.arange(1, self.prices + 1) / self.prices
        grid = np.linspace(0.1, 12.0, 240)
        exponential = np.exp(-grid[:, None] * price)
        middle = np.linspace(-0.2, 1.4, 81)
        logit = 1.0 / (
            1.0 + np.exp(np.clip(grid[:, None, None] * (price - middle[:, None]), -50.0, 50.0))
        )
        falling = list(
            itertools.combinations_with_replacement(sorted(LEVELS, reverse=True), self.prices)
        )
        every = list(itertools.product(LEVELS, repeat=self.prices))
        levels, rounded = np.array(LEVELS), []
        for curves in (exponential, logit.reshape(-1, self.prices)):
            rounded.append(
                np.unique(levels[np.abs(curves[..., None] - levels).argmin(axis=-1)], axis=0)
            )
        return [*rounded, falling, every]

    @property
    def law(self) -> Floats:
        """The true curve."""
        return np.array(self.demand)
