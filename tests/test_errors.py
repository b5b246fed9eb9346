"""The validators of single arguments: what passes, what is refused, and what the message says."""

from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import occamrl as orl
from occamrl import errors
from occamrl.envs.spaces import codec_of
from occamrl.errors import HorizonError, InvalidInput, InvalidInputs, ParameterError, ShapeError, UnknownName
from occamrl.problems.mdp import as_mdp

GOOD = [
    (errors.require_integer("n", np.int64(3), 3), 3),
    (errors.require_number("x", np.float32(0.5), 0.0, 1.0), 0.5),
    (errors.require_number("x", 1, 0.0, math.inf), 1.0),
    (errors.require_range("ends", [0, np.float64(2.0)]), (0.0, 2.0)),
    (errors.as_floats("x", [[True], [2]]).tolist(), [[1.0], [2.0]]),
]

BAD: list[tuple[Any, type[InvalidInput], str]] = [
    *[
        (lambda bad=bad: errors.require_integer("n", bad, 1, index=(2,)), ParameterError, r"n\[2\]: .* integer >= 1")
        for bad in (0, 1.0, True, np.True_, None, "1", np.float64(1.0))
    ],
    (lambda: errors.require_integer("n", 0, 1, HorizonError), HorizonError, "n: got 0"),
    *[
        (lambda bad=bad: errors.require_number("x", bad, 0.0, 1.0), ParameterError, r"x: got .* a number in \[0, 1\]")
        for bad in (-0.1, 1.1, math.nan, math.inf, 10**400, True, "0.5", None)
    ],
    (lambda: errors.require_number("x", 0.0, 0.0, math.inf, open_low=True), ParameterError, r"\(0, inf\)"),
    (
        lambda: errors.require_choice("x", "cofee", ("coffee", "tea")),
        UnknownName,
        r"x: got 'cofee', expected one of 'coffee', 'tea'; did you mean 'coffee'\?$",
    ),
    (
        lambda: orl.run(orl.UniformRandom(), gym.make("FrozenLake-v1"), episodes=1),  # type: ignore[arg-type]
        ParameterError,
        r"^mdp: got .*; for a Gymnasium environment, call occamrl\.learn\(agent, env, episodes=\.\.\.\)$",
    ),
    (
        lambda: orl.Ladder.of_problem(orl.make_problem("river-swim")),
        ParameterError,
        r"^problem: got RiverSwim, without hypotheses, expected .* or your own Ladder\(\[F_1, \.\.\.\]\)$",
    ),
    (lambda: as_mdp(3), ParameterError, "a problem that has one$"),
    (lambda: errors.raise_all([ParameterError("x", got=1, expected=2)]), ParameterError, "^x: got 1, expected 2$"),
    (
        lambda: errors.raise_all([ParameterError(name, got=1, expected=2) for name in "xy"]),
        InvalidInputs,
        "^x: got 1, expected 2\ny: got 1, expected 2$",
    ),
    (lambda: errors.require_choice("x", 7, ("coffee", "tea")), UnknownName, "one of 'coffee', 'tea'"),
    *[
        (lambda bad=bad: errors.require_range("ends", bad), ParameterError, "ends: .*low < high")
        for bad in ((1.0, 1.0), (1.0, 0.0), (0.0, math.nan), (0.0, math.inf), (0.0,), "ab", None, 3)
    ],
    *[
        (lambda bad=bad: errors.as_floats("x", bad), ShapeError, "x: got .* an array of real numbers")
        for bad in ([[1.0], [1.0, 2.0]], "text", [1j], [None], object())
    ],
]


@pytest.mark.parametrize(("found", "expected"), GOOD)
def test_what_passes_is_converted(found: object, expected: object) -> None:
    assert found == expected


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_what_is_refused_is_named(call: Any, error: type[InvalidInput], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert type(caught.value) is error


def test_attributes_of_an_object_are_checked_by_name() -> None:
    class Given:
        horizon, states, share = 0, 2, 1.5

    errors.require_integers(Given(), states=2)
    with pytest.raises(HorizonError, match="horizon"):
        errors.require_integers(Given(), states=1, horizon=1)
    with pytest.raises(ParameterError, match="share"):
        errors.require_numbers(Given(), 0.0, 1.0, "share")


ARRAY: Any = np.ones((9, 9, 9, 9))
UNIFORM, SURE = np.full((2, 1, 2), 0.5), np.eye(2)[:, None]
FAMILY = orl.FiniteFamily(UNIFORM[None])
LEARNER: Any = orl.UCRLVTR(family=FAMILY)
MDP = orl.FiniteMDP(transition=UNIFORM, reward=np.ones((2, 1)), horizon=2)
WRONG_CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
    (
        orl.FiniteMDP,
        (1, 2, 3),
        {},
        r"^FiniteMDP: got 3 .*, expected all by name: FiniteMDP\(transition=..., reward=..., h",
    ),
    (
        orl.UCRLVTR,
        (FAMILY,),
        {},
        r"^UCRLVTR: got 1 argument without a name, expected all by name: UCRLVTR\(family=...\)$",
    ),
    (orl.run, (LEARNER, MDP, 9), {}, r"^run: got 3 .* those after mdp by name: run\(agent, mdp, episodes=...\)$"),
    (orl.run, (LEARNER, MDP), {}, r"^episodes: got nothing, expected a value: run\(agent, mdp, episodes=...\)$"),
    (
        orl.learn,
        (LEARNER,),
        {"episodes": 3},
        r"^env: got nothing, expected a value: learn\(agent, env, episodes=...\)$",
    ),
    (
        orl.run,
        (LEARNER, MDP),
        {"agent": LEARNER, "episodes": 3},
        r"^run: got an argument twice, expected run\(agent, mdp",
    ),
    (orl.Agent, (), {}, r"^algorithm: got nothing, expected a value: Agent\(algorithm\)$"),
    (orl.UCRLVTR, (), {"famly": FAMILY}, r"^famly: got an argument that UCRLVTR does not have, .* mean 'family'\?$"),
]


@pytest.mark.parametrize(("function", "arguments", "named", "message"), WRONG_CALLS)
def test_a_wrong_call_says_how_to_call(function: Any, arguments: Any, named: Any, message: str) -> None:
    with pytest.raises(errors.CallError, match=message) as caught:
        function(*arguments, **named)
    assert isinstance(caught.value, TypeError)


def test_an_error_inside_a_function_is_none_of_its_call() -> None:
    @errors.explains_calls
    def broken(number: int) -> int:
        return number + None  # type: ignore[operator]  # wrong on purpose

    with pytest.raises(TypeError, match="unsupported operand") as caught:
        broken(1)
    assert not isinstance(caught.value, errors.CallError)


NEXT_STEPS: list[tuple[Any, str]] = [
    (lambda: orl.FiniteMDP(transition=UNIFORM, reward=np.ones((1, 2)), horizon=2), r"of r\[a, s\], give r.T$"),
    (
        lambda: orl.FiniteMDP(transition=UNIFORM, reward=np.full((2, 1), 9.0), horizon=2),
        r"reward_range=\(low, high\) maps",
    ),
    (lambda: orl.FiniteMDP(transition=UNIFORM, reward=np.full((2, 1), np.nan), horizon=2), r"nan, .* in \[0, 1\]$"),
    (lambda: orl.FiniteMDP(transition=8 * UNIFORM, reward=np.ones((2, 1)), horizon=2), "divide each row by its sum$"),
    (lambda: orl.FiniteFamily(UNIFORM), r"for a single kernel, FiniteFamily\(\[kernel\]\)"),
    (lambda: orl.Ladder([FAMILY, orl.FiniteFamily(SURE[None])]), "list its members, or coordinates, in the larger one"),
    (lambda: orl.UCRLVTRLin(features=ARRAY, norm_bound=1.0), r"got ndarray, expected a FeatureMap\("),
    (lambda: codec_of(gym.spaces.Box(0.0, 1.0)), r"a Box needs discretiser=Discretiser.uniform\(space, cells\)"),
]


@pytest.mark.parametrize(("call", "message"), NEXT_STEPS)
def test_the_next_step_is_named(call: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        call()


@pytest.mark.parametrize(
    "error",
    [
        ParameterError("n", got=0, expected="more", index=(2,)),
        UnknownName("x", got="cofee", known=["coffee"]),
        InvalidInputs([ParameterError("n", got=0, expected="more"), ShapeError("a", got=1, expected=2)]),
        errors.NestingError(rungs=(0, 1), member=2, got=0, expected=1),
        errors.EnvironmentFailure("step", got="nothing", expected="something", index=(3, 4)),
        errors.MissingCheckpoint("file", got="none", expected="one"),
        errors.SpecError("spec.toml", [errors.Fault("agent", "none", "one")]),
        errors.RecordError("manifest.json", got="none", expected="one"),
        errors.StorageError("file", OSError(28, "no space")),
        errors.ContractError("broken"),
    ],
)
def test_errors_pass_between_processes_as_they_are(error: errors.OccamRLError) -> None:
    passed = copy.copy(error)  # by __reduce__, as processes do
    assert type(passed) is type(error)
    assert str(passed) == str(error)
    assert {name: str(value) for name, value in vars(passed).items()} == {
        name: str(value) for name, value in vars(error).items()
    }
    assert getattr(passed, "errno", None) == getattr(error, "errno", None)
