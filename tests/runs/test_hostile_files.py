"""Files and arrays that lie: refused by the name of a field, before compiled code sees them or memory is taken."""

from __future__ import annotations

import os
import resource
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import occamrl as orl
from benchmarks import fuzz_files
from occamrl.envs.ladder_file import LadderSpecError
from occamrl.errors import CheckpointError, InvalidInput, ParameterError, RecordError, ShapeError
from occamrl.learners.ucrl_vtr_lin import LinearStatistics
from occamrl.logs.log import COLUMNS, LogError, read_log
from occamrl.protocols import Outcomes, Phase
from occamrl.running.files import parse_json, read_document, write_document
from occamrl.running.phases import PhaseWalk, player
from occamrl.running.storage import load, save

CASES = fuzz_files.cases()
AGENT, MDP = CASES["linear"]


ARENAS = {case for case in CASES if case.startswith("arena")}
# The command fuzzes all; those left out here have the fields of another, and code of their own to compile.
LEFT_OUT = {"greedy", "linear tabular", "finite rewards", "linear rewards", "ARLGen", *ARENAS} - {
    "arena StochasticCORRAL"
}


@pytest.mark.parametrize("case", sorted(set(CASES) - LEFT_OUT))
def test_no_variant_of_a_file_hurts(case: str, test_seed: int) -> None:
    """A few variants in one process; ``python -m benchmarks.fuzz_files`` tries all, each in one of its own."""
    table, bad = fuzz_files.fuzz(case, seed=test_seed, some=10)
    assert not bad
    found: Counter[str] = sum(table.values(), Counter())
    assert found[fuzz_files.REFUSED] > 0.3 * found.total() > 1


@pytest.mark.parametrize("case", sorted(set(CASES) - {"optimal", "uniform", "plain"} - ARENAS))
def test_the_table_of_fields_has_the_names_and_order_of_their_numbers(case: str) -> None:
    agent, mdp = CASES[case]
    learner = PhaseWalk(agent, mdp.known).phase.learner
    module = sys.modules[type(learner).__module__]
    for number, each in enumerate(learner.fields(mdp.known)):
        for name, at in ((each.name, number), *((entry, i) for i, entry in enumerate(each.entries))):
            assert getattr(module, name.upper(), at) == at


def test_a_checkpoint_is_read_in_little_memory(tmp_path: Path) -> None:
    """No more is asked for than the file has: 16 GiB, as once, are refused by the system."""
    path = tmp_path / "run.npz"
    save(orl.run(AGENT, MDP, episodes=20, progress=False), path)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    assert fuzz_files.MEMORY < 16 * 2**30

    def work() -> Iterator[str]:
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
        yield str(load(path, AGENT, MDP).total_episodes)

    assert fuzz_files.in_child(work) == ["20"]


def altered(tmp_path: Path, change: Any, case: str = "linear") -> Path:
    agent, mdp = CASES[case]
    path = tmp_path / "run.npz"
    save(orl.run(agent, mdp, episodes=10, progress=False), path)
    document, arrays = read_document(path)
    change(document, arrays)
    write_document(path, document, arrays)
    return path


@pytest.mark.parametrize(("horizon", "states"), [(10**9, 3), (2**62, 3), (0, 3), (3, 10**9)])
def test_sizes_that_a_file_claims_cost_nothing(tmp_path: Path, horizon: int, states: int) -> None:
    def claim(document: Any, arrays: Any) -> None:
        document["known"]["fields"]["horizon"]["value"] = horizon
        document["known"]["fields"]["states"]["value"] = states

    path, began = altered(tmp_path, claim), time.perf_counter()
    with pytest.raises(CheckpointError, match=r"run\.npz"):
        load(path)
    assert time.perf_counter() - began < 5.0


def test_no_two_parts_of_a_file_share_their_memory(tmp_path: Path) -> None:
    def share(document: Any, arrays: Any) -> None:
        document["tree"]["dict"]["recorder"]["dict"]["curves"] = document["tree"]["dict"]["walk"]["dict"]["state"][
            "parts"
        ][0]

    with pytest.raises(CheckpointError):
        load(altered(tmp_path, share), AGENT, MDP)


def test_json_is_scanned_in_linear_time() -> None:
    began = time.perf_counter()
    for text in (b'\\"' * 200_000, b'["' + b'\\"' * 200_000, b'"' * 400_001, b'"\\' * 200_000):
        with pytest.raises(RecordError):
            parse_json(text, "lying.json")
    assert time.perf_counter() - began < 10.0  # once 90 s for each
    assert parse_json(b'{"a\\"[": ["\\\\", 1]}', "fine.json") == {'a"[': ["\\", 1]}
    with pytest.raises(RecordError, match="deep"):
        parse_json(b'["\\"",' + b"[" * 100 + b"]" * 101, "deep.json")


def test_a_log_is_bounded_before_it_is_read(tmp_path: Path) -> None:
    text = pa.array(["x" * 10_000] * 1000)
    pq.write_table(pa.table({**dict.fromkeys(COLUMNS, text)}), tmp_path / "texts.parquet", compression="zstd")
    with pytest.raises(LogError, match="got string"):
        read_log(tmp_path / "texts.parquet")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LogError, match="no regular file"):
        read_log(tmp_path / "pipe")


def test_a_ladder_reads_files_beside_it_only_and_no_large_ones(tmp_path: Path) -> None:
    folder = tmp_path / "ladder"
    folder.mkdir()
    toml = folder / "ladder.toml"
    np.savez(tmp_path / "outside.npz", np.full((1, 2, 1, 2), 0.5))
    with (
        zipfile.ZipFile(folder / "large.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w") as entry,
    ):
        np.lib.format.write_array_header_1_0(
            entry, {"descr": "<f8", "fortran_order": False, "shape": (10**5, 10, 10, 100)}
        )
        entry.write(bytes(2**20))
    os.mkfifo(folder / "pipe.npz")
    os.mkfifo(folder / "pipe.toml")
    for name, reason in {
        "../outside.npz": "beside",
        str(tmp_path / "outside.npz"): "beside",
        "large.npz": "bytes",
        "pipe.npz": "regular",
        "/dev/zero": "beside",
    }.items():
        toml.write_text(f'horizon = 2\nreward = "r.npz"\n[[rungs]]\nkernels = "{name}"\n')
        with pytest.raises(LadderSpecError, match=reason):
            orl.read_ladder(toml)
    for device in (folder / "pipe.toml", Path("/dev/zero")):
        with pytest.raises(LadderSpecError, match="no regular file"):
            orl.read_ladder(device)


def test_what_an_agent_knows_is_checked() -> None:
    reward, start = np.zeros((2, 1)), np.array([0, 1, 2])
    known = {"states": 2, "actions": 1, "horizon": 3, "base_reward": reward}
    for change, error in (
        ({"horizon": 0}, ParameterError),
        ({"states": -1}, ParameterError),
        ({"base_reward": np.zeros((1, 2))}, ShapeError),
        ({"base_reward": np.zeros((2, 1), dtype=np.float32)}, ShapeError),
        ({"base_reward": np.full((2, 1), np.nan)}, ParameterError),
        ({"transition_rewards": Outcomes(start, np.array([0, 2]), np.zeros(2))}, ParameterError),
        ({"transition_rewards": Outcomes(start[::-1].copy(), np.array([0, 1]), np.zeros(2))}, ParameterError),
        ({"transition_rewards": Outcomes(start, np.array([0, 1]), np.zeros(3))}, ShapeError),
    ):
        with pytest.raises(error):
            orl.Known(**{**known, **change})  # type: ignore[arg-type]  # wrong on purpose


def test_a_state_that_a_selector_hands_out_is_checked() -> None:
    learner, known = AGENT, MDP.known
    changes: list[Any] = [
        lambda state: (1, 2),
        lambda state: state._replace(ints=state.ints[:-1]),
        lambda state: state._replace(floats=state.floats.astype(np.float32)),
        lambda state: state.policy.__setitem__((0, 0), 7),
        lambda state: state.counters.__setitem__(1, 2**40),
        lambda state: state.sigma.__setitem__(0, np.nan),
    ]
    for change in changes:
        state = learner.begin(known)
        with pytest.raises(InvalidInput, match="state"):
            player(learner, known, change(state) or state)
    assert Phase(learner, learner.begin(known)).state is not None


def test_statistics_are_checked() -> None:
    gram, xy = np.eye(3).ravel(), np.zeros(3)
    sound = LinearStatistics(gram, xy, 5)
    AGENT.begin(MDP.known, sound)
    for name, change in (
        ("gram", {"gram": gram[:-1]}),
        ("gram", {"gram": gram.astype(np.complex128)}),
        ("gram", {"gram": -gram}),
        ("gram", {"gram": np.arange(9.0)}),
        ("xy", {"xy": np.array([0.0, np.inf, 0.0])}),
        ("episodes", {"episodes": -1}),
        ("episodes", {"episodes": 2**62}),
        ("steps", {"steps": 3}),
    ):
        with pytest.raises(InvalidInput, match=f"statistics.{name}"):
            AGENT.begin(MDP.known, sound._replace(**change))


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.coo_array])
def test_sparse_indices_out_of_range_are_refused(kind: Any) -> None:
    matrix = kind(np.array([[0.5, 0.5], [0.0, 1.0]]))
    (matrix.coords[1] if kind is sp.coo_array else matrix.indices)[0] = 10**6
    with pytest.raises(InvalidInput):
        orl.FiniteMDP(transition=matrix, reward=np.zeros((2, 1)), horizon=2)
    with pytest.raises(InvalidInput):
        orl.FeatureMap([matrix])
