"""Ladders in TOML files: what is read, and what is refused by name."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import occamrl as orl
from occamrl import errors
from occamrl.envs.ladder_file import LadderSpec, LadderSpecError, shipped_ladders
from occamrl.problems.tables import table_of
from tests.environments.misbehaving import CASE, MDP

RUNGS = """
horizon = 6
reward = "reward.npz"
[[rungs]]
name = "one"
kernels = "one.npz"
[[rungs]]
name = "more"
kernels = ["more.npz:a", "more.npz:b"]
"""


MIXTURES = "horizon = 2\n[[rungs]]\nenvironments = ['FrozenLake-v1']\n[[rungs]]\nmixtures = 4"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.savez(tmp_path / "none.npz", CASE.kernels[:0])
    (tmp_path / "loop.npz").symlink_to("loop.npz")
    shape = (2**4, 2**10, 2**4, 2**10)  # 256 MB of small integers, 2 GB of numbers
    with zipfile.ZipFile(tmp_path / "small.npz", "w") as archive, archive.open("a.npy", "w") as entry:
        np.lib.format.write_array_header_1_0(entry, {"descr": "|i1", "fortran_order": False, "shape": shape})
    np.savez(tmp_path / "reward.npz", r=CASE.reward)
    np.savez(tmp_path / "one.npz", CASE.kernels[0])
    np.savez(tmp_path / "three.npz", np.full((3, 2, 3), 1.0 / 3.0))
    np.savez(tmp_path / "more.npz", a=CASE.kernels[1:4], b=CASE.kernels[4])
    return tmp_path


def read(folder: Path, text: str, **options: Any) -> LadderSpec:
    path = folder / "ladder.toml"
    path.write_text(text)
    return orl.read_ladder(path, **options)


def test_rungs_of_kernels_add_up(folder: Path) -> None:
    spec = read(folder, RUNGS)
    assert spec.names == ("one", "more")
    assert spec.ladder.sizes == [1, 5]
    assert spec.horizon == 6
    np.testing.assert_array_equal(spec.known.base_reward, CASE.reward)
    for i, kernel in enumerate(CASE.kernels):
        np.testing.assert_array_equal(spec.ladder.family.kernel(i), kernel)
    assert spec.ladder.class_of(MDP) == 1
    assert read(folder, RUNGS, horizon=3).horizon == 3


def test_rewards_in_another_unit_are_mapped(folder: Path) -> None:
    np.savez(folder / "reward.npz", r=10.0 * CASE.reward - 4.0)
    spec = read(folder, "reward_range = [-4.0, 6.0]\n" + RUNGS)
    np.testing.assert_allclose(spec.known.base_reward, CASE.reward, rtol=0, atol=1e-12)
    assert spec.rewards.scale == 10.0


def test_a_problem_brings_its_ladder(folder: Path) -> None:
    spec = read(folder, 'problem = "frozen-lake"\nparameters = { slip = [3, 3] }\n', horizon=12)
    assert spec.ladder.sizes == [1, 11, 231]
    assert spec.horizon == 12
    assert spec.names[1] == "the same to both sides"


@pytest.mark.parametrize("name", shipped_ladders())
def test_shipped_ladders_hold_gymnasiums_environments_in_the_right_class(name: str) -> None:
    spec = orl.read_ladder(name)
    pairs: dict[str, list[tuple[str, dict[str, Any], int]]] = {
        "frozen-lake-4x4": [("FrozenLake-v1", {}, 2), ("FrozenLake-v1", {"is_slippery": False}, 1)],
        "frozen-lake-8x8": [("FrozenLake-v1", {"map_name": "8x8", "success_rate": 0.8}, 2)],
        "cliff-walking": [("CliffWalking-v1", {"is_slippery": slip}, 1 + slip) for slip in (False, True)],
        "taxi": [("Taxi-v4", {}, 1), ("Taxi-v4", {"is_rainy": True, "rainy_probability": 0.9}, 3)],
    }
    for environment, options, right in pairs[name]:
        table = table_of(gym.make(environment, **options), horizon=spec.horizon, reward_range=tuple(spec.rewards))
        assert spec.ladder.class_of(table.mdp) == right


def test_mixtures_lie_between_environments(folder: Path) -> None:
    text = 'horizon = 5\n[[rungs]]\nenvironments = ["CliffWalking-v1", {id = "CliffWalking-v1", is_slippery = true}]\n'
    spec = read(folder, text + "[[rungs]]\nmixtures = 4\n")
    assert spec.ladder.sizes == [2, 5]
    members = [spec.ladder.family.kernel(i) for i in range(5)]
    weights = {
        round(float((members[i] - members[0])[0, 0].max() / (members[1] - members[0])[0, 0].max()), 9) for i in range(5)
    }
    assert weights == {0.0, 0.25, 0.5, 0.75, 1.0}
    apart = np.abs(members[1] - members[0]).sum(axis=2).max()
    assert spec.ladder.reach == pytest.approx([0.0, apart / 8])  # half a step of 1/4: a truth between two of them


BAD = [
    ("", "`problem`, or"),
    ("horizons = 3", "did you mean 'horizon'"),
    ('problem = "frozen-lak"', "did you mean 'FrozenLake'"),
    ('problem = "river-swim"', "brings a ladder along"),
    ('problem = "frozen-lake"\nreward = "r.npz"', "the problem has its own"),
    ("[[rungs]]\nkernels = 'one.npz'", "horizon"),
    ("horizon = 3\n[[rungs]]\nkernels = 'one.npz'", "reward: got nothing"),
    ("horizon = 3\n[[rungs]]\nname = 'x'", r"rungs\[1\]"),
    ("horizon = 3\n[[rungs]]\nkernel = 'one.npz'", "did you mean 'kernels'"),
    ("horizon = 3\nreward = 'reward.npz'\n[[rungs]]\nkernels = 'two.npz'", "two.npz"),
    ("horizon = 3\nreward = 'reward.npz'\n[[rungs]]\nkernels = 'more.npz'", "file:array"),
    ("horizon = 3\nreward = 'reward.npz'\n[[rungs]]\nkernels = 'more.npz:c'", "'c'"),
    ("horizon = 3\nreward = 'reward.npz'\n[[rungs]]\nkernels = 5", "the name of an NPZ file"),
    ("horizon = 3\nreward = 'reward.npz'\n[[rungs]]\nkernels = 'reward.npz'", r"\[S, A, S\]"),
    (RUNGS.replace('"more.npz:a", "more.npz:b"', '"three.npz"'), r"\[S, A, S\]"),
    ("horizon = 3\n[[rungs]]\nmixtures = 3", "in all"),
    ("horizon = 3\n[[rungs]]\nenvironments = ['os:Thing-v0']", "a registered environment"),
    (
        "horizon = 3\n[[rungs]]\nenvironments = [{id = 'FrozenLake-v1', slippery = true}]",
        r"environments\[0\]: .*slippery",
    ),
    ("horizon = 3\n[[rungs]]\nenvironments = ['Blackjack-v1']", "no table"),
    ("horizon = ", "TOML"),
    (RUNGS.replace("horizon = 6", f"horizon = {'9' * 5000}"), "TOML"),
    (RUNGS.replace("horizon = 6", f"horizon = 0x{'f' * 5000}"), "thousands of digits"),
    (f"{'.'.join('a' * 300_000)} = 1", "dots"),
    (f"reward_range = [0, {10**400}]" + RUNGS, "reward_range"),
    (RUNGS.replace("one.npz", "one\\u0000.npz"), "kernels: .*null"),
    (RUNGS.replace("one.npz", f"{'k' * 5000}.npz"), "kernels: .*too long"),
    (RUNGS.replace("one.npz", "loop.npz"), "kernels: .*loop"),
    (RUNGS.replace("one.npz", "none.npz"), "at least one"),
    (RUNGS.replace("one.npz", "small.npz"), "kernels: .*bytes"),
    (MIXTURES.replace("= 4", f"= {2**62}"), "mixtures: .*1000"),
    (MIXTURES.replace("= 4", "= 99_998"), "mixtures: .*1000"),
    ("horizon = 2\n[[rungs]]\nmixtures = 3\n[[rungs]]\nenvironments = ['FrozenLake-v1']", "no environment"),
    (f"problem = '{'x' * 900_000}'", r"problem: got 'x{1999}\.\.\."),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_what_is_wrong_is_named(folder: Path, text: str, message: str) -> None:
    with pytest.raises(orl.InvalidInput, match=message):
        read(folder, text)


def test_pickled_arrays_are_not_loaded(folder: Path) -> None:
    touched = folder / "touched"

    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (touched,))

    np.savez(folder / "reward.npz", r=np.array([Trap()], dtype=object))
    (folder / "one.npz").write_bytes(pickle.dumps(Trap()))
    for text in (RUNGS, RUNGS.replace("reward.npz", "one.npz")):
        with pytest.raises(LadderSpecError, match=r"\.npz"):
            read(folder, text)
    assert not touched.exists()


UNKNOWN = 'rewards = { per_pair = "hoeffding" }\nkernel = "per_step"\n' + RUNGS.replace('reward = "reward.npz"\n', "")


def test_rewards_may_be_unknown_and_each_step_have_its_kernel(folder: Path) -> None:
    spec = read(folder, UNKNOWN)
    rewards: Any = spec.options["rewards"]
    assert rewards.bound == "hoeffding"
    assert spec.options["kernel"] == "per_step"
    assert not spec.known.rewards_known
    assert (spec.known.states, spec.known.actions, spec.horizon) == (4, 2, 6)
    np.savez(folder / "psi.npz", CASE.reward[..., None])
    linear: Any = read(folder, RUNGS, rewards="known").options
    assert linear == {"rewards": "known", "kernel": "stationary"}
    text = UNKNOWN.replace('{ per_pair = "hoeffding" }', '{ linear = "psi.npz", norm_bound = 1.0 }')
    linear = read(folder, text, kernel="stationary").options
    assert linear["rewards"].features.shape == (4, 2, 1)
    assert linear["kernel"] == "stationary"
    lake = read(folder, 'problem = "frozen-lake"\nrewards = { per_pair = "bernstein" }\n', horizon=12)
    assert not lake.known.rewards_known  # a problem's own rewards are then nobody's to look at
    log: Any = None  # refused before it is looked at
    for refused, field in ((spec, "kernel"), (lake, "known")):
        with pytest.raises(orl.InvalidInput) as caught:
            orl.select(log, refused)
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (('"hoeffding"', '"hoefding"'), r"rewards.per_pair: .* did you mean 'hoeffding'"),
        (('"per_step"', '"each"'), r"kernel: got 'each'"),
        (("horizon = 6", 'horizon = 6\nreward = "reward.npz"'), r"reward: got a value, expected none: rewards are est"),
        (('{ per_pair = "hoeffding" }', '"known"'), r"reward: got nothing, expected an NPZ file .*, or `rewards`"),
        (('{ per_pair = "hoeffding" }', '{ linear = "no.npz", norm_bound = 1.0 }'), r"rewards.linear: got no.npz"),
    ],
)
def test_options_that_mean_nothing_are_refused_by_key(folder: Path, change: tuple[str, str], expected: str) -> None:
    with pytest.raises(orl.InvalidInput, match=expected):
        read(folder, UNKNOWN.replace(*change))


def test_arrays_of_a_ladder_are_bounded_together(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is small enough, all are not."""
    monkeypatch.setattr(errors, "memory", lambda: 2**27)
    np.savez_compressed(folder / "one.npz", np.full((2**4, 2**8, 2, 2**8), 2.0**-8))
    files = ", ".join(['"one.npz"'] * 40)
    with pytest.raises(orl.InvalidInput, match=r"rungs\[1\].kernels: got one.npz, expected less"):
        read(folder, f'horizon = 2\nreward = "reward.npz"\n[[rungs]]\nkernels = [{files}]\n')
