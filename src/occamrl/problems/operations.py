"""Practical problems: a function of what can happen, with parameters that are not known.

At (s, a) something happens, and what it does to the state and the account is known; unknown are
probabilities. Four problems are models with real parameters (:class:`occamrl.Model`): the truth is
one point of a box, and a class is a choice of the parameters that are free. In the fifth, pricing,
classes are lists of demand curves. Rewards have a unit of their own (money, minutes).
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import betainc, pdtr

from occamrl.errors import ParameterError, require_integers, require_number, require_sequences
from occamrl.models.model import Model, ParametricLadder
from occamrl.naming import Names
from occamrl.problems.mdp import FiniteMDP, Listing, Small
from occamrl.problems.mixtures import NestedClasses
from occamrl.protocols import Floats, RewardMap

State = Hashable
Outcome = tuple[float, State, float]  # probability, next state, amount
Bounds = Mapping[str, tuple[float, float]]

_CACHED_LAWS = 256  # of one demand each; a fit asks for the same law at every pair in turn


@dataclass(frozen=True, kw_only=True)
class PracticalProblem(ABC):
    """A problem from practice: a model at its true parameters, and nested classes of the model.

    A subclass says what can happen (``outcomes``) under parameters that have the bounds ``box``,
    has a field for the true value of each, and says which are ``free`` in each class.
    """

    horizon: int

    outcomes: ClassVar[Callable[..., Iterable[Outcome]]]  # (state, action, *, parameters)
    probabilities: ClassVar[Callable[..., Floats] | None] = None  # of many pairs; saves calls

    unit_name: ClassVar[str] = "EUR"
    small: ClassVar[Small]  # the parameters of small instances
    needing: ClassVar[Small]  # of one problem per class whose truth needs that class, none below
    box: ClassVar[Bounds]
    free: ClassVar[Mapping[str, Sequence[str]]]

    def __post_init__(self) -> None:
        # A truth outside its box would be in no class.
        for name, (low, high) in self.box.items():
            require_number(name, getattr(self, name), low, high)

    @property
    @abstractmethod
    def start(self) -> State:
        """The state in which episodes begin."""

    @property
    @abstractmethod
    def actions(self) -> Sequence[Hashable]:
        """What can be done in every state."""

    @classmethod
    def truths(cls) -> Sequence[Self]:
        """Return one problem per class whose truth needs that class and none below."""
        return [cls(**parameters) for parameters in cls.needing]

    @cached_property
    def ladder(self) -> ParametricLadder:
        """Nested classes with real parameters; ``ladder.model`` is the system with these."""
        model = Model(
            self.outcomes,
            start=self.start,
            actions=self.actions,
            horizon=self.horizon,
            parameters=self.box,
            unit=self.unit_name,
            probabilities=self.probabilities,
        )
        return model.ladder(self.free)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The model at the true parameters."""
        truth = {name: getattr(self, name) for name in self.box}
        return self.ladder.model.mdp(**truth)


def poisson(mean: float, shelf: int) -> Floats:
    """Return a day's Poisson demand as a shelf sees it: P(D = 0), ..., P(D >= shelf)."""
    return np.diff(np.concatenate([[0.0], pdtr(np.arange(shelf), mean), [1.0]]))


def negative_binomial(mean: float, size: float, shelf: int) -> Floats:
    """Return the law with variance mean + mean^2/size; size = infinity would be Poisson."""
    below = betainc(size, np.arange(1.0, shelf + 1.0), size / (size + mean))
    return np.diff(np.concatenate([[0.0], below, [1.0]]))


@lru_cache(maxsize=_CACHED_LAWS)
def erratic(mean: float, empty: float, spread: float, shelf: int) -> tuple[float, ...]:
    """Return the law with a share of empty days, and mean + spread mean^2 as variance else."""
    if spread < 1e-9:
        # the limit of the negative binomial, whose size 1/spread would overflow
        law = (1.0 - empty) * poisson(mean, shelf)
    else:
        law = (1.0 - empty) * negative_binomial(mean, 1.0 / spread, shelf)
    law[0] += empty
    return tuple(law.tolist())


@dataclass(frozen=True, kw_only=True)
class ShelfProblem(PracticalProblem):
    """Order in the evening for the next morning; what does not fit is not delivered.

    What is not there is not sold: a customer who finds the shelf empty is lost, and unseen. The
    account of a day is margin times sales, less holding for what is left in the evening, less the
    fixed cost if something was ordered; goods left at the end are taken back at cost. Orders are in
    units.
    """

    shelf: int  # the largest stock
    order_step: int  # orders are multiples of this many units
    margin: float  # EUR per unit sold
    holding: float  # EUR per unit and night
    fixed: float  # EUR per order

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integers(self, shelf=1, order_step=1)
        if self.order_step > self.shelf:
            raise ParameterError(
                "order_step", got=self.order_step, expected=f"at most the shelf, {self.shelf}"
            )

    @property
    def actions(self) -> Sequence[int]:
        """Units ordered."""
        return range(0, self.shelf + 1, self.order_step)

    def day(self, stock: int, order: int, demand: Sequence[float]) -> Iterable[Outcome]:
        """Yield what can happen on a day whose demand has this law [shelf + 1]."""
        filled = min(stock + order, self.shelf)
        fixed = self.fixed * (order > 0)
        for wanted, chance in enumerate(demand):
            remaining = max(filled - wanted, 0)
            sales = self.margin * (filled - remaining)
            yield chance, remaining, sales - self.holding * remaining - fixed


@dataclass(frozen=True, kw_only=True)
class LostSales(ShelfProblem):
    """A shelf of one product; only sales are seen, never the demand.

    The state is the stock in the evening. Some days are empty, and on the others the demand has the
    variance mean + spread mean^2: Poisson, or negative binomial.
    """

    mean: float = 6.0
    empty: float = 0.0
    spread: float = 0.0
    shelf: int = 15
    order_step: int = 5
    horizon: int = 28
    margin: float = 4.0
    holding: float = 0.5
    fixed: float = 6.0

    small: ClassVar[Small] = (
        {"shelf": 5, "horizon": 4},
        {"shelf": 5, "horizon": 3, "order_step": 2, "fixed": 0.5, "spread": 1.0},
    )
    needing: ClassVar[Small] = ({}, {"empty": 0.3}, {"empty": 0.1, "spread": 1.0})
    box: ClassVar[Bounds] = {"mean": (0.5, 12.0), "empty": (0.0, 0.6), "spread": (0.0, 2.0)}
    free: ClassVar[Mapping[str, Sequence[str]]] = {
        "Poisson": ["mean"],
        "empty days": ["mean", "empty"],
        "erratic": ["mean", "empty", "spread"],
    }

    @property
    def start(self) -> int:
        """An empty shelf."""
        return 0

    def outcomes(
        self, stock: int, order: int, *, mean: float, empty: float = 0.0, spread: float = 0.0
    ) -> Iterable[Outcome]:
        """Yield what can happen in a day."""
        return self.day(stock, order, erratic(mean, empty, spread, self.shelf))

    def probabilities(
        self, pairs: Sequence[object], *, mean: float, empty: float = 0.0, spread: float = 0.0
    ) -> Floats:
        """Return the probabilities of the outcomes of many pairs: all days are alike."""
        return np.tile(erratic(mean, empty, spread, self.shelf), len(pairs))


DAYS = 7  # Monday is 0
WeekPair = tuple[tuple[int, int], int]  # (weekday, stock), order
SATURDAY = 5
SUNDAY = 6


@dataclass(frozen=True, kw_only=True)
class WeekdayInventory(ShelfProblem):
    """A shelf whose demand follows the week: Poisson with the mean of the day.

    The state is (weekday, stock in the morning before the delivery). Saturdays have ``weekend``
    times the mean of a working day, Sundays ``sunday`` times that of a Saturday.
    """

    mean: float = 6.0
    weekend: float = 1.0
    sunday: float = 1.0
    shelf: int = 15
    order_step: int = 3
    horizon: int = 28
    margin: float = 4.0
    holding: float = 1.0
    fixed: float = 3.0

    small: ClassVar[Small] = ({"mean": 1.0, "shelf": 2, "order_step": 1, "horizon": 4},)
    needing: ClassVar[Small] = (
        {},
        {"mean": 4.0, "weekend": 2.25},
        {"mean": 4.0, "weekend": 2.5, "sunday": 0.4},
    )
    box: ClassVar[Bounds] = {"mean": (1.0, 12.0), "weekend": (0.2, 3.0), "sunday": (0.2, 3.0)}
    free: ClassVar[Mapping[str, Sequence[str]]] = {
        "one mean": ["mean"],
        "weekend": ["mean", "weekend"],
        "Saturday, Sunday": ["mean", "weekend", "sunday"],
    }

    @property
    def start(self) -> tuple[int, int]:
        """Monday, with an empty shelf."""
        return (0, 0)

    def outcomes(
        self,
        state: tuple[int, int],
        order: int,
        *,
        mean: float,
        weekend: float = 1.0,
        sunday: float = 1.0,
    ) -> Iterable[Outcome]:
        """Yield what can happen in a day."""
        weekday, stock = state
        demand = self.demand(weekday, mean, weekend, sunday)
        for chance, remaining, earned in self.day(stock, order, demand):
            yield chance, ((weekday + 1) % DAYS, remaining), earned

    def probabilities(
        self, pairs: Sequence[WeekPair], *, mean: float, weekend: float = 1.0, sunday: float = 1.0
    ) -> Floats:
        """Return the probabilities of the outcomes of many pairs."""
        laws = np.array([self.demand(day, mean, weekend, sunday) for day in range(DAYS)])
        weekdays = [weekday for (weekday, _), _ in pairs]
        return laws[weekdays].ravel()

    def demand(self, weekday: int, mean: float, weekend: float, sunday: float) -> Sequence[float]:
        """Return the law of the demand of a day [shelf + 1]."""
        today = mean
        if weekday >= SATURDAY:
            today = mean * weekend
        if weekday == SUNDAY:
            today = mean * (weekend * sunday)
        return erratic(today, 0.0, 0.0, self.shelf)


PHASES = 3  # calm, busy, rush
CLOSED = "closed"
OPEN = "open"


@dataclass(frozen=True, kw_only=True)
class QueueAdmission(PracticalProblem):
    """A help desk that may close its door; its phase - calm, busy, rush - is seen.

    Each minute the door is open or closed; at most one thing happens: a customer comes, or one is
    served. The state is (phase, customers in the house); phases follow each other in a circle. A
    rush has ``rush`` times the arrivals of a calm phase and ``slow`` times its services, a busy
    phase is halfway between. The account of a minute is ``worth`` for a customer let in, less one
    minute of waiting for everybody in the house: Naor's (1969) terms, with phases.
    """

    room: int = 12  # the most customers in the house; S = 3 (room + 1)
    horizon: int = 60  # minutes
    worth: float = 30.0  # how many minutes of waiting it is worth to serve a customer
    change: float = 0.05  # the probability per minute that the next phase begins; known
    arrival: float = 0.2  # per minute, of a calm phase
    service: float = 0.2
    rush: float = 1.0
    slow: float = 1.0

    unit_name: ClassVar[str] = "minutes of waiting"
    small: ClassVar[Small] = ({"room": 2, "horizon": 5},)
    needing: ClassVar[Small] = ({}, {"rush": 2.0}, {"rush": 2.0, "slow": 0.5})
    box: ClassVar[Bounds] = {
        "arrival": (0.02, 0.24),
        "service": (0.02, 0.24),
        "rush": (0.25, 2.0),
        "slow": (0.25, 2.0),
    }
    free: ClassVar[Mapping[str, Sequence[str]]] = {
        "the same": ["arrival", "service"],
        "arrivals by phase": ["arrival", "service", "rush"],
        "services too": ["arrival", "service", "rush", "slow"],
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integers(self, room=1)
        require_number("change", self.change, 0.0, 1.0)

    @property
    def start(self) -> tuple[int, int]:
        """A calm phase, and nobody in the house."""
        return (0, 0)

    @property
    def actions(self) -> Sequence[str]:
        """What is done with the door."""
        return (CLOSED, OPEN)

    def outcomes(
        self,
        state: tuple[int, int],
        door: str,
        *,
        arrival: float,
        service: float,
        rush: float = 1.0,
        slow: float = 1.0,
    ) -> Iterable[Outcome]:
        """Yield what can happen in a minute."""
        phase, customers = state
        # At a closed or full house nobody is seen to come, and nobody can be counted.
        comes = 0.0
        if door == OPEN and customers < self.room:
            comes = _in_phase(arrival, rush, phase)
        served = 0.0
        if customers:
            served = _in_phase(service, slow, phase)
        following = ((phase, 1.0 - self.change), ((phase + 1) % PHASES, self.change))
        for next_phase, chance in following:
            yield chance * (1.0 - comes - served), (next_phase, customers), -customers
            if customers < self.room:
                yield chance * comes, (next_phase, customers + 1), self.worth - customers
            if customers:
                yield chance * served, (next_phase, customers - 1), -customers


def _in_phase(rate: float, factor: float, phase: int) -> float:
    """Return a rate in a phase: itself if calm, ``factor`` times it in a rush, else halfway."""
    return (rate, rate * (0.5 + 0.5 * factor), rate * factor)[phase]


KEEP = "keep"
REPLACE = "replace"
_LARGEST_HAZARD = 0.95


@dataclass(frozen=True, kw_only=True)
class MachineReplacement(PracticalProblem):
    """Every month the machine is kept or replaced; one of age i fails with a hazard that may grow.

    The hazard is new + slope i + bend i^2, at most 0.95. A replacement takes no time: the month is
    run by a new machine, which may fail as well. After a failure the next month begins with a new
    one. From the age ``oldest`` on the hazard stays what it is.
    """

    oldest: int = 14  # the highest age that is told apart, in months; S = oldest + 1
    horizon: int = 36  # months
    planned: float = 2000.0  # EUR
    failure: float = 10000.0  # EUR
    new: float = 0.1
    slope: float = 0.0
    bend: float = 0.0

    small: ClassVar[Small] = ({"oldest": 2, "horizon": 6, "slope": 0.05},)
    needing: ClassVar[Small] = (
        {},
        {"new": 0.02, "slope": 0.03},
        {"new": 0.02, "slope": 0.0, "bend": 0.003},
    )
    box: ClassVar[Bounds] = {"new": (0.005, 0.4), "slope": (0.0, 0.05), "bend": (0.0, 0.004)}
    free: ClassVar[Mapping[str, Sequence[str]]] = {
        "constant": ["new"],
        "linear": ["new", "slope"],
        "curved": ["new", "slope", "bend"],
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integers(self, oldest=1)

    @property
    def start(self) -> int:
        """A new machine."""
        return 0

    @property
    def actions(self) -> Sequence[str]:
        """What is done with the machine."""
        return (KEEP, REPLACE)

    def outcomes(
        self, age: int, action: str, *, new: float, slope: float = 0.0, bend: float = 0.0
    ) -> Iterable[Outcome]:
        """Yield what can happen in a month."""
        paid = 0.0
        # A new machine runs this month, and may fail in it.
        if action == REPLACE:
            age = 0
            paid = self.planned
        hazard = min(new + slope * age + bend * age**2, _LARGEST_HAZARD)
        yield 1.0 - hazard, min(age + 1, self.oldest), -paid
        yield hazard, 0, -paid - self.failure


LEVELS = (0.05, 0.3, 0.6, 0.9)  # the probabilities of a sale that curves are made of


@dataclass(frozen=True, kw_only=True)
class Pricing(NestedClasses):
    """In each step a price is asked, and a unit sells with a probability that depends on it alone.

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

    @classmethod
    def truths(cls) -> Sequence[Self]:
        """Return one problem per class whose truth needs that class and none below."""
        return [cls(**parameters) for parameters in cls.needing]

    @property
    def names(self) -> Names:
        """What is left of the stock; the prices."""
        prices = [(a + 1) / self.prices for a in range(self.prices)]
        return Names(tuple(range(self.stock + 1)), tuple(prices))

    @property
    def theta(self) -> Floats:
        """theta* [1 + A]: 1, and the probability of a sale at each price."""
        return np.append(1.0, self.demand)

    @cached_property
    def phi(self) -> list[sp.csr_array]:
        """Sparse matrices (S*A, S): nothing is sold, and what a sale at each price changes."""
        states = self.stock + 1
        shape = (states * self.prices, states)
        stays = sp.csr_array(np.repeat(np.eye(states), self.prices, axis=0))
        parts = [stays]
        for a in range(self.prices):
            change = sp.lil_array(shape)
            for units in range(1, states):
                change[units * self.prices + a, units] = -1.0
                change[units * self.prices + a, units - 1] = 1.0
            parts.append(sp.csr_array(change))
        return parts

    def classes(self) -> Sequence[Floats]:
        """Return theta of the curves that each class adds."""
        price = np.arange(1, self.prices + 1) / self.prices
        rates = np.linspace(0.1, 12.0, 240)[:, None]
        exponential = np.exp(-rates * price)
        middles = np.linspace(-0.2, 1.4, 81)[:, None]
        slopes = np.clip(rates[:, None] * (price - middles), -50.0, 50.0)
        logit = 1.0 / (1.0 + np.exp(slopes)).reshape(-1, self.prices)
        # A falling curve is a choice of levels with repetition, from the highest on.
        descending = sorted(LEVELS, reverse=True)
        falling = itertools.combinations_with_replacement(descending, self.prices)
        every = itertools.product(LEVELS, repeat=self.prices)
        curves = [
            _rounded(exponential),
            _rounded(logit),
            np.array(list(falling)),
            np.array(list(every)),
        ]
        return [np.insert(added, 0, 1.0, axis=1) for added in curves]

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem, with its names and its unit; episodes begin with the full stock."""
        states = self.stock + 1
        pair = np.arange(states * self.prices)
        units, action = np.divmod(pair, self.prices)
        sells = units > 0
        chance = np.where(sells, np.array(self.demand)[action], 0.0)
        price = (action + 1) / self.prices
        listing = Listing(
            states=states,
            actions=self.prices,
            pair=np.concatenate([pair, pair[sells]]),
            next_state=np.concatenate([units, units[sells] - 1]),
            probability=np.concatenate([1.0 - chance, chance[sells]])[None],
            reward=np.concatenate([np.zeros(pair.size), price[sells]]),
        )
        initial = np.zeros(states)
        initial[self.stock] = 1.0
        return FiniteMDP.of_listing(
            listing,
            horizon=self.horizon,
            initial=initial,
            unit=RewardMap(0.0, 1.0),
            unit_name=self.unit_name,
            names=self.names,
        )


def _rounded(curves: Floats) -> Floats:
    """Return curves [n, A] at the nearest LEVELS, each once."""
    levels = np.array(LEVELS)
    return np.unique(levels[np.abs(curves[..., None] - levels).argmin(axis=-1)], axis=0)
