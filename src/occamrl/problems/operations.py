"""Practical problems: events that move a known system, and nested classes of the laws of these events.

At (s, a) something happens, and what it does to the state and the account is known. Unknown are the probabilities: sums
of parameters theta_j, each times a known weight. So the kernel is linear in theta; a class of models is a list of
parameters, and the classes are nested. Rewards have a unit of their own (money, minutes).
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import betainc, pdtr

from occamrl.errors import ParameterError, require_choice, require_integers, require_sequences
from occamrl.problems.mdp import FiniteMDP, RewardMap, Small, read_only, reward_map
from occamrl.protocols import Floats


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
        _, first = np.unique(np.round(stacked, 12), axis=0, return_index=True)  # those that agree to 12 digits are one
        kept, ends = np.sort(first), np.cumsum([len(part) for part in added])
        return read_only(stacked[kept]), [int(size) for size in np.searchsorted(kept, ends)]

    @property
    def hypotheses(self) -> Floats:
        """All parameters [n, d], each once, by the first class that holds them."""
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
    return np.diff(np.concatenate([[0.0], betainc(size, np.arange(1.0, shelf + 1.0), size / (size + mean)), [1.0]]))


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


class Entry(NamedTuple):
    """P(next_state | state, action) has the term weight * theta[coordinate]; the move earns ``amount``."""

    state: int
    action: int
    next_state: int
    coordinate: int
    weight: float
    amount: float  # in the unit of the problem; a function of (state, action, next_state)


@dataclass(frozen=True, kw_only=True)
class PracticalProblem(NestedClasses):
    """A problem from practice with its ladder of plausible models.

    A subclass says what can happen (:meth:`entries`), which laws each class holds (:meth:`classes`) and which one is
    true (:attr:`theta`).
    """

    horizon: int

    unit_name: ClassVar[str] = "EUR"
    class_names: ClassVar[tuple[str, ...]]
    needing: ClassVar[Small]  # the parameters of one problem per class whose truth needs that class and none below
    start = 0  # the state in which episodes begin

    @abstractmethod
    def entries(self) -> Iterable[Entry]:
        """Return everything that can happen, at every state and action."""

    @classmethod
    def truths(cls) -> Sequence[Self]:
        """Return one problem per class whose truth needs that class and none below."""
        return [cls(**parameters) for parameters in cls.needing]

    @cached_property
    def _columns(self) -> tuple[Any, ...]:
        return tuple(np.array(column) for column in zip(*self.entries(), strict=True))

    def _sparse(self, values: Floats, chosen: Any = slice(None)) -> sp.csr_array:
        """Return a matrix (S*A, S) of values at the chosen entries, added up where a move comes twice."""
        states, actions = (int(column.max()) + 1 for column in self._columns[:2])  # each has an entry
        s, a, s2 = (column[chosen] for column in self._columns[:3])
        return sp.csr_array((values, (s * actions + a, s2)), shape=(states * actions, states))

    @cached_property
    def phi(self) -> list[sp.csr_array]:
        """One sparse matrix (S*A, S) per coordinate of theta."""
        *_, j, weight, _ = self._columns
        return [self._sparse(weight[j == each], j == each) for each in range(self.theta.size)]

    @cached_property
    def unit(self) -> RewardMap:
        """What rewards of 0 and 1 are worth, in ``unit_name``: the smallest and the largest amount."""
        return reward_map((self._columns[-1].min(), self._columns[-1].max()))

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem; a reward is what the move earns, mapped onto [0, 1]."""
        s, a, s2, j, weight, amount = self._columns
        kernel: Any = self._sparse(weight * self.theta[j])
        kernel.data = np.maximum(kernel.data, 0.0)  # 1 - 0.9 - 0.1
        _, first, move = np.unique(np.stack([s, a, s2]), axis=1, return_index=True, return_inverse=True)
        if (amount != amount[first][move]).any():
            raise ParameterError("entries", got="two amounts for one move", expected="one per (s, a, s')")
        reward = self._sparse(self.unit.to_unit(amount[first]), first)
        return FiniteMDP(transition=kernel, reward=reward, horizon=self.horizon, initial_state=self.start)


@dataclass(frozen=True, kw_only=True)
class ShelfProblem(PracticalProblem):
    """Order in the evening for the next morning; what does not fit is not delivered, what is not there is not sold.

    A customer who finds the shelf empty is lost, and unseen. The account of a day is margin times sales, less holding
    for what is left in the evening, less the fixed cost if something was ordered; goods left at the end are taken back
    at cost.
    """

    shelf: int  # the largest stock
    order_step: int  # orders are multiples of this many units
    margin: float  # EUR per unit sold
    holding: float  # EUR per unit and night
    fixed: float  # EUR per order

    def __post_init__(self) -> None:
        require_integers(self, shelf=1, order_step=1)
        if self.order_step > self.shelf:
            raise ParameterError("order_step", got=self.order_step, expected=f"at most the shelf, {self.shelf}")

    def orders(self) -> Iterable[tuple[int, int, int]]:
        """Yield stock in the evening, order in steps, and stock after its delivery, for all stocks and orders."""
        for stock, order in itertools.product(range(self.shelf + 1), range(self.shelf // self.order_step + 1)):
            yield stock, order, min(stock + order * self.order_step, self.shelf)

    def earned(self, filled: int, left: int, order: int) -> float:
        """Return the account of a day that begins with ``filled`` units and ends with ``left``."""
        return self.margin * (filled - left) - self.holding * left - self.fixed * (order > 0)


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

    class_names: ClassVar[tuple[str, ...]] = ("Poisson", "+ negative binomial", "+ two kinds of day", "+ any on a grid")
    small: ClassVar[Small] = (
        {"shelf": 5, "horizon": 4},
        {"shelf": 5, "horizon": 3, "order_step": 2, "fixed": 0.5, "demand": "other"},
    )
    needing: ClassVar[Small] = tuple({"demand": demand} for demand in DEMANDS)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("demand", self.demand, DEMANDS)
        if self.shelf % 5:
            raise ParameterError("shelf", got=self.shelf, expected="a multiple of 5")

    def entries(self) -> Iterable[Entry]:
        """Return what a demand of d units does; coordinate d of theta is its probability."""
        for stock, order, filled in self.orders():
            for demand in range(self.shelf + 1):
                left = max(filled - demand, 0)
                yield Entry(stock, order, left, demand, 1.0, self.earned(filled, left, order))

    def classes(self) -> Sequence[Floats]:
        """Return the laws of the demand that each class adds."""
        shelf = self.shelf
        first = [poisson(mean, shelf) for mean in _MEANS]
        second = [negative_binomial(mean, size, shelf) for mean in _MEANS for size in _SIZES]
        third = [two_kinds_of_day(q, b, w, shelf) for q in _QUIET for b in _BUSY for w in _SHARES]
        return [*map(np.array, (first, second, third)), on_a_grid(range(0, shelf + 1, shelf // 5), _PARTS, shelf)]

    @property
    def theta(self) -> Floats:
        """The true law of the demand [shelf + 1]."""
        shelf, other = self.shelf, np.zeros(self.shelf + 1)
        other[[0, shelf // 5, 4 * shelf // 5]] = 0.25, 0.375, 0.375
        first = (poisson(6.0, shelf), negative_binomial(6.0, 1.0, shelf), two_kinds_of_day(0.5, 8.0, 0.5, shelf))
        return dict(zip(DEMANDS, (*first, other), strict=True))[self.demand]


DAYS = 7  # Monday is 0
_PATTERNS = ((0,) * 7, (0, 0, 0, 0, 0, 1, 1), (0, 0, 0, 0, 0, 1, 2), (3, 0, 0, 0, 4, 1, 2))  # by class: means of days


@dataclass(frozen=True, kw_only=True)
class WeekdayInventory(ShelfProblem):
    """A shelf whose demand follows the week: Poisson with the mean of the day.

    The state is (weekday, stock in the morning before the delivery), numbered weekday * (shelf + 1) + stock.
    """

    means: tuple[float, ...] = (6.0,) * DAYS  # the true ones, Monday first, out of levels
    levels: tuple[float, ...] = (2.0, 4.0, 6.0, 9.0, 12.0)  # the means that hypotheses may have
    shelf: int = 15
    order_step: int = 3
    horizon: int = 28
    margin: float = 4.0
    holding: float = 1.0
    fixed: float = 3.0

    class_names: ClassVar[tuple[str, ...]] = ("one mean", "weekend", "Saturday, Sunday", "Monday, Friday too")
    small: ClassVar[Small] = ({"means": (1.0,) * 7, "levels": (1.0, 2.0), "shelf": 2, "order_step": 1, "horizon": 4},)
    needing: ClassVar[Small] = (
        {},
        {"means": (4.0, 4.0, 4.0, 4.0, 4.0, 9.0, 9.0)},
        {"means": (4.0, 4.0, 4.0, 4.0, 4.0, 12.0, 2.0)},
        {"means": (2.0, 4.0, 4.0, 4.0, 9.0, 12.0, 2.0)},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sequences(self, 0.0, np.inf, "levels", "means", open_low=True)
        if len(self.means) != DAYS or not set(self.means) <= set(self.levels):
            raise ParameterError("means", got=self.means, expected=f"{DAYS} numbers out of {self.levels}")

    def entries(self) -> Iterable[Entry]:
        """Return what each demand does; coordinate day * L + i of theta says that the day has the mean levels[i]."""
        size, laws = self.shelf + 1, [poisson(mean, self.shelf) for mean in self.levels]
        for day, (stock, order, filled) in itertools.product(range(DAYS), self.orders()):
            for left, (i, law) in itertools.product(range(filled + 1), enumerate(laws)):
                after = (day + 1) % DAYS * size + left
                chance = law[filled - left] if left else law[filled:].sum()
                amount = self.earned(filled, left, order)
                yield Entry(day * size + stock, order, after, day * len(laws) + i, chance, amount)

    def parameters(self, means: Iterable[float]) -> Floats:
        """Return theta of seven means."""
        return np.concatenate([np.equal(self.levels, mean).astype(np.float64) for mean in means])

    def classes(self) -> Sequence[Floats]:
        """Return the weeks that each class adds."""
        made = []
        for pattern in _PATTERNS:
            free = itertools.product(self.levels, repeat=max(pattern) + 1)
            made.append(np.array([self.parameters(choice[i] for i in pattern) for choice in free]))
        return made

    @property
    def theta(self) -> Floats:
        """theta* [7 L]: ones at the true means."""
        return self.parameters(self.means)


PHASES = 3
CLOSED, OPEN = 0, 1


@dataclass(frozen=True, kw_only=True)
class QueueAdmission(PracticalProblem):
    """A help desk that may close its door; its phase - calm, busy, rush - is seen.

    Each minute the door is open or closed; at most one thing happens: a customer comes, or one is served. The state is
    (phase, customers in the house), numbered phase * (room + 1) + customers; phases follow each other in a circle. The
    account of a minute is ``worth`` for a customer let in, less one minute of waiting for everybody in the house:
    Naor's (1969) terms, with phases.
    """

    room: int = 12  # the most customers in the house; S = 3 (room + 1)
    horizon: int = 60  # minutes
    worth: float = 30.0  # how many minutes of waiting it is worth to serve a customer
    change: float = 0.05  # the probability per minute that the next phase begins; known
    arrivals: tuple[float, ...] = (0.3,) * PHASES  # true probabilities per minute that a customer comes, by phase
    services: tuple[float, ...] = (0.3,) * PHASES  # that a service ends
    arrival_levels: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4)  # those that hypotheses may have
    service_levels: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5)

    unit_name: ClassVar[str] = "minutes of waiting"
    class_names: ClassVar[tuple[str, ...]] = ("the same in all phases", "arrivals by phase", "services by phase too")
    small: ClassVar[Small] = ({"room": 2, "horizon": 5},)
    needing: ClassVar[Small] = (
        {},
        {"arrivals": (0.1, 0.2, 0.4)},
        {"arrivals": (0.1, 0.2, 0.4), "services": (0.2, 0.3, 0.1)},
    )

    def __post_init__(self) -> None:
        require_integers(self, room=1)
        require_sequences(self, 0.0, 1.0, "arrivals", "services", "arrival_levels", "service_levels")
        for name, levels in (("arrivals", self.arrival_levels), ("services", self.service_levels)):
            given = getattr(self, name)
            if len(given) != PHASES or not set(given) <= set(levels):
                raise ParameterError(name, got=given, expected=f"{PHASES} numbers out of {levels}")
        if max(self.arrival_levels) + max(self.service_levels) > 1.0:
            raise ParameterError("service_levels", got=self.service_levels, expected="at most 1 with every arrival")

    def entries(self) -> Iterable[Entry]:
        """Return what can happen; theta = (1, arrivals by phase, services by phase)."""
        size = self.room + 1
        for phase, customers, door in itertools.product(range(PHASES), range(size), (CLOSED, OPEN)):
            comes = door == OPEN and customers < self.room
            for step, chance in ((0, 1.0 - self.change), (1, self.change)):
                base = (phase + step) % PHASES * size
                pair = (phase * size + customers, door)
                yield Entry(*pair, base + customers, 0, chance, -customers)
                if comes:
                    yield Entry(*pair, base + customers, 1 + phase, -chance, -customers)
                    yield Entry(*pair, base + customers + 1, 1 + phase, chance, self.worth - customers)
                if customers:
                    yield Entry(*pair, base + customers, 1 + PHASES + phase, -chance, -customers)
                    yield Entry(*pair, base + customers - 1, 1 + PHASES + phase, chance, -customers)

    def classes(self) -> Sequence[Floats]:
        """Return the rates that each class adds."""
        levels = (self.arrival_levels, self.service_levels)
        same_arrivals, same_services = ([(level,) * PHASES for level in each] for each in levels)
        arrivals, services = (list(itertools.product(each, repeat=PHASES)) for each in levels)
        pairs = ((same_arrivals, same_services), (arrivals, same_services), (arrivals, services))
        return [np.array([[1.0, *a, *s] for a, s in itertools.product(*each)]) for each in pairs]

    @property
    def theta(self) -> Floats:
        """theta* [7]."""
        return np.array([1.0, *self.arrivals, *self.services])


KEEP, REPLACE = 0, 1
_FIRST = (0.02, 0.05, 0.1, 0.2, 0.3)  # hazards of a new machine
_SLOPES = (0.005, 0.01, 0.02, 0.03, 0.04)  # by which they grow per month, in the linear class
_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.4)  # of the monotone class
_LONGEST = 0.95


@dataclass(frozen=True, kw_only=True)
class MachineReplacement(PracticalProblem):
    """Every month the machine is kept or replaced; a kept one of age i fails with the hazard p_i.

    A replacement takes no time: the month is run by a new machine, which may fail as well. After a failure the next
    month begins with a new one. From the age ``oldest`` on the hazard stays what it is.
    """

    oldest: int = 14  # the highest age that is told apart, in months; S = oldest + 1
    stretch: int = 2  # in the monotone class the hazard may rise every so many months; divides oldest
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

    def __post_init__(self) -> None:
        require_integers(self, oldest=1, stretch=1)
        if self.oldest % self.stretch:
            raise ParameterError("stretch", got=self.stretch, expected=f"a divisor of oldest = {self.oldest}")
        require_sequences(self, 0.0, 1.0, "hazard")
        if len(self.hazard) != self.oldest + 1:
            raise ParameterError("hazard", got=f"{len(self.hazard)} numbers", expected=self.oldest + 1)

    def entries(self) -> Iterable[Entry]:
        """Return what can happen; theta = (1, hazards by age)."""
        for age, action in itertools.product(range(self.oldest + 1), (KEEP, REPLACE)):
            runs, paid = (age, 0.0) if action == KEEP else (0, self.planned)
            older = min(runs + 1, self.oldest)
            yield Entry(age, action, older, 0, 1.0, -paid)
            yield Entry(age, action, older, 1 + runs, -1.0, -paid)
            yield Entry(age, action, 0, 1 + runs, 1.0, -paid - self.failure)

    def classes(self) -> Sequence[Floats]:
        """Return the hazards that each class adds."""
        age = np.arange(self.oldest + 1)
        constant = [np.full(age.size, p) for p in _FIRST]
        linear = [np.minimum(p + slope * age, _LONGEST) for p in _FIRST for slope in _SLOPES]
        pieces = self.oldest // self.stretch
        rising = itertools.combinations_with_replacement(_LEVELS, pieces)
        steps = [np.array(levels)[np.minimum(age // self.stretch, pieces - 1)] for levels in rising]
        return [np.array([[1.0, *hazard] for hazard in each]) for each in (constant, linear, steps)]

    @property
    def theta(self) -> Floats:
        """theta* [1 + S]."""
        return np.array([1.0, *self.hazard])


LEVELS = (0.05, 0.3, 0.6, 0.9)  # the probabilities of a sale that curves are made of


@dataclass(frozen=True, kw_only=True)
class Pricing(PracticalProblem):
    """Each step a price is asked, and one unit is sold at it with a probability that depends on the price alone.

    Prices are 1/A, 2/A, ..., 1, and a sale earns the price; the state is what is left of the stock. Classes of demand
    curves over the prices: exponential < logit < falling < any, rounded to LEVELS. The default is falling but not
    logit: an exponential curve agrees with it at the prices it recommends, and earns 0.77 less per episode for ever.
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
            raise ParameterError("demand", got=self.demand, expected=f"{self.prices} numbers out of {LEVELS}")

    @property
    def start(self) -> int:  # type: ignore[override]  # a constant in the base class, here it depends on the stock
        """The full stock."""
        return self.stock

    def entries(self) -> Iterable[Entry]:
        """Return what can happen; theta = (1, probability of a sale at each price)."""
        for s, a in itertools.product(range(self.stock + 1), range(self.prices)):
            yield Entry(s, a, s, 0, 1.0, 0.0)
            if s > 0:
                yield Entry(s, a, s, 1 + a, -1.0, 0.0)
                yield Entry(s, a, s - 1, 1 + a, 1.0, (a + 1) / self.prices)

    def classes(self) -> Sequence[Floats]:
        """Return the curves that each class adds."""
        price = np.arange(1, self.prices + 1) / self.prices
        grid = np.linspace(0.1, 12.0, 240)
        exponential = np.exp(-grid[:, None] * price)
        middle = np.linspace(-0.2, 1.4, 81)
        logit = 1.0 / (1.0 + np.exp(np.clip(grid[:, None, None] * (price - middle[:, None]), -50.0, 50.0)))
        falling = list(itertools.combinations_with_replacement(sorted(LEVELS, reverse=True), self.prices))
        every = list(itertools.product(LEVELS, repeat=self.prices))
        levels, rounded = np.array(LEVELS), []
        for curves in (exponential, logit.reshape(-1, self.prices)):
            rounded.append(np.unique(levels[np.abs(curves[..., None] - levels).argmin(axis=-1)], axis=0))
        return [np.insert(curves, 0, 1.0, axis=1) for curves in (*rounded, np.array(falling), np.array(every))]

    @property
    def theta(self) -> Floats:
        """theta* [1 + A]."""
        return np.concatenate([[1.0], self.demand])
