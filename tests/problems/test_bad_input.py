"""Each mistake has its own error, which names the field, the place, what was found and what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from occamrl.errors import (
    HorizonError,
    InvalidInput,
    ParameterError,
    ProbabilityError,
    RewardError,
    ShapeError,
    UnknownName,
)
from occamrl.problems.boxes import Pendulum
from occamrl.problems.classic import DeepSea, HardLinearMixture, RandomMDP, RiverSwim, RiverZones, WideTree
from occamrl.problems.mdp import FiniteMDP
from occamrl.problems.mixtures import MemoryWalk, ReferenceLadder, SparseMixture
from occamrl.problems.operations import LostSales, MachineReplacement, QueueAdmission, WeekdayInventory

S, A, H = 3, 2, 2
UNIFORM = np.full((S, A, S), 1.0 / S)
HALF = np.full((S, A), 0.5)


def changed(array: Any, index: tuple[int, ...], value: float) -> Any:
    copy = np.array(array, float)
    copy[index] = value
    return copy


def sparse(array: Any) -> Any:
    return scipy.sparse.csr_array(np.reshape(array, (S * A, S)))


def with_part(matrix: Any, part: str, value: Any) -> Any:
    setattr(matrix, part, value)
    return matrix


def lists(part: str, first: list[Any]) -> Any:
    """A matrix of lists whose first row of indices, or of numbers, is another."""
    matrix = scipy.sparse.lil_array(np.reshape(UNIFORM, (S * A, S)))
    getattr(matrix, part)[0] = first
    return matrix


PER_STEP = np.stack([UNIFORM] * H)
BY_MOVE = np.full((S, A, S), 0.5)
NEGATIVE = changed(changed(UNIFORM, (0, 1, 2), -1 / 3), (0, 1, 0), 1.0)
NAN_AT_A_STEP = changed(PER_STEP, (1, 2, 0, 1), np.nan)

BAD = {
    "row just off": ({"transition": changed(UNIFORM, (1, 0, 2), 1 / 3 + 2e-9)}, ProbabilityError, "transition", (1, 0)),
    "row at a step": ({"transition": changed(PER_STEP, (1, 2, 1, 0), 0.5)}, ProbabilityError, "transition", (1, 2, 1)),
    "sparse row": ({"transition": sparse(changed(UNIFORM, (2, 1, 0), 0.0))}, ProbabilityError, "transition", (2, 1)),
    "negative, sums to 1": ({"transition": NEGATIVE}, ProbabilityError, "transition", (0, 1, 2)),
    "NaN at a step": ({"transition": NAN_AT_A_STEP}, ProbabilityError, "transition", (1, 2, 0, 1)),
    "not square": ({"transition": np.full((S, A, 2), 0.5)}, ShapeError, "transition", None),
    "one step too many": ({"transition": np.stack([UNIFORM] * (H + 1))}, ShapeError, "transition", None),
    "no states": ({"transition": np.zeros((0, A, 0))}, ShapeError, "transition", None),
    "sparse float16": (
        {"transition": with_part(sparse(UNIFORM), "data", np.full(S * A * S, 1.0 / S, np.float16))},
        ShapeError,
        "transition",
        None,
    ),
    "lists of two sizes": ({"transition": lists("rows", [0])}, ShapeError, "transition", None),
    "lists of words": ({"transition": lists("data", ["a", "b", "c"])}, ShapeError, "transition", None),
    "sparse complex": ({"transition": sparse(UNIFORM.astype(complex))}, ShapeError, "transition", None),
    "sparse shape": ({"transition": scipy.sparse.csr_array(np.ones((4, 3)) / 3)}, ShapeError, "transition", None),
    "sparse and dense": ({"transition": [sparse(UNIFORM), UNIFORM]}, ShapeError, "transition", None),
    "no transition": ({"transition": None}, ParameterError, "transition", None),
    "reward above 1": ({"reward": changed(HALF, (2, 1), 1.0 + 1e-9)}, RewardError, "reward", (2, 1)),
    "reward NaN": ({"reward": changed(HALF, (0, 0), np.nan)}, RewardError, "reward", (0, 0)),
    "reward of a transition": ({"reward": changed(BY_MOVE, (1, 1, 2), 2.0)}, RewardError, "reward", (1, 1, 2)),
    "sparse reward": ({"reward": sparse(changed(BY_MOVE, (1, 0, 2), -2.0))}, RewardError, "reward", (1, 0, 2)),
    "reward shape": ({"reward": np.full((A, S), 0.5)}, ShapeError, "reward", None),
    "no reward": ({"reward": None}, ParameterError, "reward", None),
    "horizon 0": ({"horizon": 0}, HorizonError, "horizon", None),
    "initial state too large": ({"initial_state": S}, ParameterError, "initial_state", None),
    "initial negative": ({"initial_state": [0.5, -0.5, 1.0]}, ProbabilityError, "initial_state", (1,)),
    "initial sum": ({"initial_state": [0.5, 0.4, 0.0]}, ProbabilityError, "initial_state", None),
    "absorbing": ({"absorbing": [S]}, ParameterError, "absorbing", None),
    "out of its range": ({"reward_range": (0.6, 2.0)}, RewardError, "reward", (0, 0)),
    "both statements": ({"outcomes": [[[(1.0, 0, 0.0)]]]}, ParameterError, "outcomes", None),
}


@pytest.mark.parametrize("name", BAD)
def test_arrays(name: str) -> None:
    change, error, field, index = BAD[name]
    arguments: dict[str, Any] = {"transition": UNIFORM, "reward": HALF, "horizon": H}
    FiniteMDP(**arguments)
    check(error, field, index, **{**arguments, **change})


def check(error: type[InvalidInput], field: str, index: tuple[int, ...] | None, **arguments: Any) -> None:
    with pytest.raises(error) as caught:
        FiniteMDP(**arguments)
    assert type(caught.value) is error
    assert (caught.value.field, caught.value.index) == (field, index)
    assert "expected" in str(caught.value)


BAD_TABLES = {
    "row sums to 0.9": ([[[(0.9, 0, 0.0)]]], ProbabilityError, (0, 0)),
    "negative, sums to 1": ([[[(1.5, 0, 0.5), (-0.5, 0, 0.5)]]], ProbabilityError, (0, 0, 0)),
    "reward -1": ([[[(0.5, 0, 0.0), (0.5, 0, -1.0)]]], RewardError, (0, 0, 0)),
    "next state": ([[[(0.5, 0, 0.0), (0.5, 1, 0.0)]]], ShapeError, (0, 0, 1)),
    "pair only": ([[[(1.0, 0)]]], ShapeError, (0, 0, 0)),
    "actions differ": ([[[(1.0, 0, 0.0)]], [[(1.0, 0, 0.0)], [(1.0, 0, 0.0)]]], ShapeError, (1,)),
    "keys": ({0: {0: [(1.0, 0, 0.0)]}, 2: {0: [(1.0, 0, 0.0)]}}, ShapeError, None),
    "no outcome": ([[[]]], ShapeError, (0, 0)),
    "number": (3, ShapeError, None),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_tables(name: str) -> None:
    table, error, index = BAD_TABLES[name]
    check(error, "outcomes", index, outcomes=table, horizon=H)


def test_a_range_that_does_not_cover_the_rewards_is_refused() -> None:
    table = [[[(1.0, 0, -100.0)]]]
    check(RewardError, "outcomes", (0, 0, 0), outcomes=table, horizon=1, reward_range=(-10.0, 0.0))
    check(ParameterError, "reward_range", None, outcomes=table, horizon=1, reward_range=(0.0, -100.0))
    ends = [[[(1.0, 0, 2.0, True)]]]  # and then earns 0
    check(ParameterError, "reward_range", None, outcomes=ends, horizon=1, reward_range=(1.0, 3.0))


BAD_POLICIES = {
    "shape": (np.zeros((H, S + 1), int), ShapeError, None),
    "floats": (np.zeros((H, S)), ShapeError, None),
    "action": (changed(np.zeros((H, S)), (1, 2), A).astype(int), ParameterError, (1, 2)),
    "sum": (changed(np.full((H, S, A), 0.5), (1, 0, 0), 0.6), ProbabilityError, (1, 0)),
    "NaN": (changed(np.full((H, S, A), 0.5), (0, 2, 0), np.nan), ProbabilityError, (0, 2, 0)),
}


@pytest.mark.parametrize("name", BAD_POLICIES)
def test_policies(name: str) -> None:
    policy, error, index = BAD_POLICIES[name]
    mdp = FiniteMDP(transition=UNIFORM, reward=HALF, horizon=H)
    with pytest.raises(error) as caught:
        mdp.evaluate(policy)
    assert (caught.value.field, caught.value.index) == ("policy", index)


def test_a_message_says_where_what_and_what_instead() -> None:
    wrong: dict[str, dict[str, Any]] = {
        r"transition\[1, 0\]: got a row that sums to 1\.1, expected .* sum to 1": {
            "transition": changed(UNIFORM, (1, 0, 2), 1 / 3 + 0.1)
        },
        r"of P\[a, s, s'\], give np.moveaxis": {"transition": np.moveaxis(UNIFORM, 1, 0)},
        r"reward\[0, 0\]: got 5\.0, expected a reward in \[0, 1\]; reward_range=": {"reward": 10.0 * HALF},
    }
    for message, change in wrong.items():
        with pytest.raises(InvalidInput, match=message):
            FiniteMDP(**{"transition": UNIFORM, "reward": HALF, "horizon": H, **change})


def test_a_kernel_too_large_to_write_out_is_refused() -> None:
    mdp = FiniteMDP(transition=scipy.sparse.eye_array(20_000), reward=np.zeros((20_000, 1)), horizon=1)
    with pytest.raises(ParameterError):
        mdp.kernel()


BAD_PARAMETERS: list[tuple[Any, dict[str, Any], type[InvalidInput], str]] = [
    (RiverSwim, {"variant": "ayub"}, UnknownName, "variant"),
    (WideTree, {"leaves": 6}, ParameterError, "leaves"),
    (HardLinearMixture, {"dimension": 40}, ParameterError, "dimension"),
    (HardLinearMixture, {"episodes": 1}, ParameterError, "episodes"),
    (RandomMDP, {"horizon": 0}, HorizonError, "horizon"),
    (MemoryWalk, {"order": 3}, ParameterError, "order"),
    (RiverZones, {"zones": 5}, ParameterError, "zones"),
    (SparseMixture, {"nonzero": 17}, ParameterError, "nonzero"),
    (SparseMixture, {"norm": 1.0}, ParameterError, "norm"),
    (SparseMixture, {"nonzero": 2, "norm": 3.0}, ParameterError, "norm"),
    (SparseMixture, {"persistence": 1.0}, ParameterError, "persistence"),
    (LostSales, {"demand": "poison"}, UnknownName, "demand"),
    (LostSales, {"shelf": 7}, ParameterError, "shelf"),
    (LostSales, {"order_step": 16}, ParameterError, "order_step"),
    (WeekdayInventory, {"means": (5.0,) * 7}, ParameterError, "means"),
    (WeekdayInventory, {"levels": (6.0, 6.0)}, ParameterError, "levels"),
    (QueueAdmission, {"arrivals": (0.3, 0.3)}, ParameterError, "arrivals"),
    (QueueAdmission, {"arrival_levels": (0.3, 0.6)}, ParameterError, "service_levels"),
    (MachineReplacement, {"stretch": 4}, ParameterError, "stretch"),
    (MachineReplacement, {"hazard": (0.1, 0.2)}, ParameterError, "hazard"),
    (Pendulum, {"mixture": ((11, 1.0),)}, ParameterError, "mixture"),
    (Pendulum, {"mixture": ((1, 0.5),)}, ParameterError, "mixture"),
    (Pendulum, {"mixture": ((1, 0.5), (1, 0.5))}, ParameterError, "mixture"),
    (DeepSea, {"size": 0}, ParameterError, "size"),
    (ReferenceLadder, {"nonzero": 4}, ParameterError, "nonzero"),
]


@pytest.mark.parametrize(("kind", "parameters", "error", "field"), BAD_PARAMETERS)
def test_parameters_of_problems(kind: Any, parameters: dict[str, Any], error: Any, field: str) -> None:
    with pytest.raises(error) as caught:
        kind(**parameters)
    assert (type(caught.value), caught.value.field) == (error, field)
