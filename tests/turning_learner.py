"""A learner in a file of its own outside the package: it turns from one action to the next with every plan.

Where it counts its plans decides whether it is sound: in its state, or hidden in the model, which no copy of the state
and no checkpoint includes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from occamrl._core.compile import implements
from occamrl._core.loop import CHANGED, PLANNED, Path, follows_policy, learn, plan, planned_value
from occamrl.protocols import Field, Ints, Known, Learner


class TurningModel(NamedTuple):
    actions: int
    hidden: bool
    memory: Ints  # [1] plans, where they should not be


class TurningState(NamedTuple):
    policy: Ints  # [H, S]
    counters: Ints  # [1] plans


follows_policy(TurningState)


@dataclass(frozen=True, kw_only=True, eq=False)
class Turning(Learner):
    hidden: bool = False

    def model(self, known: Known) -> TurningModel:
        return TurningModel(known.actions, self.hidden, np.zeros(1, dtype=np.int64))

    def fields(self, known: Known, state: Any = None) -> list[Field]:
        table = (known.horizon, known.states)
        return [Field("policy", table, 0, known.actions - 1), Field("counters", (1,), 0, 2**40)]

    def begin(self, known: Known) -> TurningState:
        return TurningState(*(each.make() for each in self.fields(known)))


@implements(plan, TurningState, argument=1)
def plan_turning(model: TurningModel, state: TurningState, start: int, key: np.uint64, episode: int) -> int:
    counter = model.memory if model.hidden else state.counters
    counter[0] += 1
    state.policy[:] = counter[0] % model.actions
    return PLANNED | CHANGED


@implements(learn, TurningState, argument=1)
def learn_nothing(model: TurningModel, state: TurningState, path: Path, steps: int) -> None:
    pass


@implements(planned_value, TurningState, argument=1)
def planned_value_turning(model: TurningModel, state: TurningState, s: int) -> float:
    return np.nan
