"""A help desk that may close its door: admission to a queue whose phase - calm, busy, rush - is seen."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from occamrl.contracts import Floats
from occamrl.errors import HorizonError, ParameterError, require_number
from occamrl.problems.checks import require_integer
from occamrl.problems.practical import Entry, PracticalProblem

PHASES = 3
CLOSED, OPEN = 0, 1


@dataclass(frozen=True, kw_only=True)
class QueueAdmission(PracticalProblem):
    """Each minute the door is open or closed; at most one thing happens: a customer comes, or one is served.

    The state is (phase, customers in the house). Phases follow each other in a circle. Who comes while the door is
    closed is sent away and leaves no trace. The account of a minute is ``worth`` for a customer let in, less one minute
    of waiting for everybody in the house: Naor's (1969) terms, with phases.

    Parameters
    ----------
    room : int
        The most customers in the house; S = 3 (room + 1).
    horizon
        Minutes of an episode.
    worth : float
        How many minutes of waiting it is worth to serve a customer.
    change : float
        The probability per minute that the next phase begins; known.
    arrivals, services : tuples of 3 numbers
        True probabilities per minute that a customer comes, and that a service ends, by phase.
    arrival_levels, service_levels : tuples of numbers
        Those that hypotheses may have.
    """

    room: int = 12
    horizon: int = 60
    worth: float = 30.0
    change: float = 0.05
    arrivals: tuple[float, ...] = (0.3,) * PHASES
    services: tuple[float, ...] = (0.3,) * PHASES
    arrival_levels: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4)
    service_levels: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5)

    unit_name: ClassVar[str] = "minutes of waiting"
    rung_names: ClassVar[tuple[str, ...]] = ("the same in all phases", "arrivals by phase", "services by phase too")

    def __post_init__(self) -> None:
        require_integer("room", self.room, 1)
        require_integer("horizon", self.horizon, 1, HorizonError)
        require_number("worth", self.worth, 0.0, np.inf)
        require_number("change", self.change, 0.0, 1.0)
        for name, levels in (("arrivals", self.arrival_levels), ("services", self.service_levels)):
            given = getattr(self, name)
            for level in levels:
                require_number(f"{name[:-1]}_levels", level, 0.0, 1.0)
            if len(given) != PHASES or not set(given) <= set(levels):
                raise ParameterError(name, got=given, expected=f"{PHASES} numbers out of {levels}")
        if max(self.arrival_levels) + max(self.service_levels) > 1.0:
            raise ParameterError("service_levels", got=self.service_levels, expected="at most 1 with every arrival")

    @property
    def states(self) -> int:
        """Phase times customers: state = phase * (room + 1) + customers."""
        return PHASES * (self.room + 1)

    @property
    def actions(self) -> int:
        """Closed and open."""
        return 2

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
        alike = [np.tile(level, PHASES) for level in self.service_levels]
        by_phase = list(itertools.product(self.service_levels, repeat=PHASES))
        one_rate = [np.tile(level, PHASES) for level in self.arrival_levels]
        rates = list(itertools.product(self.arrival_levels, repeat=PHASES))
        pairs = (
            itertools.product(one_rate, alike),
            itertools.product(rates, alike),
            itertools.product(rates, by_phase),
        )
        return [np.array([[1.0, *arrivals, *services] for arrivals, services in each]) for each in pairs]

    @property
    def theta(self) -> Floats:
        """theta* [7]."""
        return np.array([1.0, *self.arrivals, *self.services])

    @classmethod
    def truths(cls) -> Sequence[Self]:
        """Return one problem per class."""
        return [
            cls(),
            cls(arrivals=(0.1, 0.2, 0.4)),
            cls(arrivals=(0.1, 0.2, 0.4), services=(0.2, 0.3, 0.1)),
        ]

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small instances, for the contract checks."""
        return [cls(room=2, horizon=5)]
