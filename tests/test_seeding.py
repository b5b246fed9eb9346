"""Seeds are addresses: the same path leads to the same numbers, another path to others."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occamrl import seeding
from occamrl.errors import ParameterError

step = st.one_of(st.integers(-(10**6), 10**30), st.text(max_size=8))
path = st.lists(step, max_size=4).map(tuple)
root = st.integers(0, 2**100)


@given(first=st.tuples(root, path), second=st.tuples(root, path))
def test_an_address_is_always_the_same_generator_and_another_one_is_not(first: Any, second: Any) -> None:
    one, other = (seeding.stream(first[0], *first[1]) for _ in range(2))
    one.random(3)  # what is drawn from one does not move the other
    np.testing.assert_array_equal(seeding.stream(first[0], *first[1]).random(5), other.random(5))
    assert (seeding.key(first[0], *first[1]) == seeding.key(second[0], *second[1])) == (first == second)


def test_addresses_that_look_alike_are_told_apart() -> None:
    addresses: list[tuple[Any, ...]] = [
        (), ("",), ("", ""), (1,), ("1",), (11,), (1, 1), ("1", 1), ("a", "b"), ("ab",), ("b", "a"), ("int:1",), (0,),
    ]  # fmt: skip
    keys = [seeding.key(root, *address) for root in (0, 1, 2**32, 2**64) for address in addresses]
    assert len(set(keys)) == len(keys)


@given(number=st.integers(0, 2**31 - 1))
def test_a_numpy_integer_is_the_integer_it_is(number: int) -> None:
    for kind in (np.int32, np.int64, np.uint64):
        assert seeding.key(0, kind(number)) == seeding.key(0, number)  # type: ignore[arg-type]  # NumPy's integers too
        assert seeding.key(kind(number)) == seeding.key(number)  # type: ignore[arg-type]  # NumPy's integers too


def test_keys_are_the_same_in_every_process() -> None:
    code = "from occamrl import seeding; print(seeding.key(7, 'environment'), seeding.stream(7, 'x', 3).random())"
    run = [sys.executable, "-c", code]
    answers = {subprocess.run(run, capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert answers == {f"{seeding.key(7, 'environment')} {seeding.stream(7, 'x', 3).random()}\n"}


@pytest.mark.parametrize(("root", "step"), [(-1, "x"), (True, "x"), ("0", "x"), (0, 1.5), (0, True), (0, None)])
def test_bad_addresses(root: Any, step: Any) -> None:
    for function in (seeding.key, seeding.stream):
        with pytest.raises(ParameterError, match="seed path" if root == 0 else "an integer >= 0"):
            function(root, step)
