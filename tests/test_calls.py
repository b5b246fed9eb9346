"""What a user passes by mistake is refused by name; what would not fit into memory is refused before it is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from benchmarks.study_calls import apart, calls, random_call
from occamrl import errors
from occamrl.errors import InvalidInput, ParameterError, ProbabilityError, ShapeError
from tests.experiments.common import command


def test_random_calls_are_refused_by_name_or_accepted(tmp_path: Path, test_seed: int) -> None:
    """The study makes 5,000 of them."""
    known = calls(tmp_path)
    for number in range(8):
        name, arguments, changed = random_call(known, 10**9 + 10**6 * test_seed + number)
        what, error = apart(known[name][0], arguments, seconds=60.0)
        assert what in ("refused", "accepted", "long"), (
            f"{name}, {[(each, arguments[each]) for each in changed]}: {error}"
        )


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("RiverSwim", {"states": 10**6}),
        ("DeepSea", {"size": 10**9}),
        ("SparseMixture", {"states": 10**5}),
        ("LostSales", {"shelf": 10**6}),
        ("RiverSwim", {"states": 10**30}),
    ],
)
def test_a_table_larger_than_memory_is_refused_before_it_is_made(name: str, parameters: dict[str, int]) -> None:
    ((field, _),) = parameters.items()
    with pytest.raises(ParameterError) as caught:
        orl.make_problem(name, **parameters)
    assert caught.value.field == field


def test_a_horizon_larger_than_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match="GiB"):
        orl.FiniteMDP(transition=[[[1.0]]], reward=[[1.0]], horizon=10**12)
    monkeypatch.setattr(errors, "memory", lambda: 2**20)  # tables below 64 MiB are always made
    orl.FiniteMDP(transition=[[[1.0]]], reward=[[1.0]], horizon=10**6)
    with pytest.raises(ParameterError, match="horizon"):
        orl.FiniteMDP(transition=[[[1.0]]], reward=[[1.0]], horizon=10**7)


def test_a_ladder_with_a_horizon_of_no_sense_is_one_line(tmp_path: Path) -> None:
    answer = command("select", tmp_path / "log.parquet", "--ladder", "frozen-lake-4x4", "--horizon", 10**12)
    assert answer.exit_code == 2
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize("make", [lambda P: orl.FiniteMDP(transition=P, reward=np.ones((3, 1)), horizon=2),
                                  lambda P: orl.FiniteFamily(P[None])])  # fmt: skip
def test_kernels_of_32_bits_are_told_what_to_do(make: Any) -> None:
    kernel = np.full((3, 1, 3), 1.0 / 3.0)
    single = kernel.astype(np.float32)
    with pytest.raises(InvalidInput, match="divide each row by its sum in double precision"):
        make(single)
    double = single.astype(np.float64)
    make(double / double.sum(axis=-1, keepdims=True))
    with pytest.raises(InvalidInput) as caught:  # not a matter of rounding
        make(0.9 * kernel)
    assert "double" not in str(caught.value)
    assert isinstance(caught.value, (ProbabilityError, errors.FamilyError))


@pytest.mark.parametrize("coordinates", [[], [0, 0], [-1], [4], [0.5], 0, None, "a", [[0]], [2**63], np.zeros(2)])
def test_coordinates_that_are_none(coordinates: Any) -> None:
    features = orl.FeatureMap(orl.make_problem("SparseMixture", states=3, dimension=4, nonzero=2).phi)
    with pytest.raises(ShapeError, match="coordinates"):
        features.restrict(coordinates)
