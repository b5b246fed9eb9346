"""Logs that are larger than memory, calls that are stopped, and classes judged by likelihood."""

from __future__ import annotations

import copy
import math
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import fuzz_files
from occamrl.envs.ladder_file import LadderSpec
from occamrl.errors import CheckpointError, Interrupted, InvalidInput, ParameterError
from occamrl.logs import log as reading
from occamrl.logs.log import Log, LogError, StoredLog, read_log, simulate_log
from occamrl.logs.select import DECIDED, LIKELIHOOD, NOT_ENOUGH, OUTSIDE, VALUE, Replay, Selection, select, stretch_end
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.models.linear import LinearFamily
from occamrl.models.simulators import Simulators
from occamrl.problems.mdp import FiniteMDP
from occamrl.running.files import read_document, write_document
from tests import cases
from tests.logs.test_selection import small

HORIZON = 5


def linear() -> tuple[Ladder, FiniteMDP]:
    problem = cases.mixture(3, dimension=3, full_support=True, horizon=6)
    mdp = FiniteMDP(transition=problem.features.kernel([0.5, 0.5, 0.0]), reward=problem.reward, horizon=6)
    families = [LinearFamily(features=problem.features, norm_bound=1.5, coordinates=range(m)) for m in (1, 2, 3)]
    return Ladder(families), mdp


def stored(log: Log, path: Path, rows: int = 50) -> str:
    """Write a log in row groups of some rows, whatever its episodes are."""
    pq.write_table(pa.table(log.columns()), path, row_group_size=rows)
    return str(path)


def same(one: Selection, other: Selection) -> bool:
    """Say whether two answers agree to the bit, but for what their logs are called."""
    first, second = one.as_data(), other.as_data()
    for each in (first, first["other"] or {}, second, second["other"] or {}):
        each.pop("source", None)
    return first == second


@pytest.mark.parametrize("ladder", [small, linear])
def test_blocks_change_no_bit(ladder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models, mdp = ladder()
    log = simulate_log(mdp, episodes=97, seed=2)
    whole = select(log, models, mdp.known, progress=False)
    path = stored(log, tmp_path / "log.parquet")
    for block in (1, 7, 200):
        monkeypatch.setattr(reading, "BLOCK", block)
        pieces, blocks = list(log.blocks()), list(StoredLog(path).blocks())
        assert [piece.first for piece in pieces] == [piece.first for piece in blocks]
        assert sum(piece.rows for piece in blocks) == log.rows
        assert all(piece.rows >= block for piece in blocks[:-1])
        second = list(StoredLog(path).blocks(blocks[1].first))
        assert [piece.state.tolist() for piece in second] == [piece.state.tolist() for piece in blocks[1:]]
        assert same(select(log, models, mdp.known, progress=False), whole)
        assert same(select(path, models, mdp.known, progress=False), whole)
    assert read_log(path).fingerprint() == log.fingerprint()


@pytest.mark.parametrize("ladder", [small, linear])
def test_a_call_that_is_stopped_goes_on_to_the_same_bits(
    ladder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, mdp = ladder()
    log, take = simulate_log(mdp, episodes=97, seed=2), Replay.take
    path, checkpoint, taken = stored(log, tmp_path / "log.parquet"), tmp_path / "checkpoint", []
    whole = select(path, models, mdp.known, progress=False)
    monkeypatch.setattr(reading, "BLOCK", 64)

    def stopped(replay: Replay, block: Log) -> None:
        take(replay, block)
        taken.append(block.first)
        if len(taken) in (2, 4) or block.first + block.rows == log.rows:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Replay, "take", stopped)
    for _ in range(3):  # the last time after the last block
        with pytest.raises(Interrupted):
            select(path, models, mdp.known, checkpoint=checkpoint, progress=False)
    found = select(path, models, mdp.known, checkpoint=checkpoint, progress=False)
    assert same(found, whole)
    assert taken == sorted(set(taken))  # no block was read twice
    with pytest.raises(CheckpointError, match="another log"):
        select(log.head(90), models, mdp.known, checkpoint=checkpoint, progress=False)
    with pytest.raises(CheckpointError, match="another log"):
        select(path, models, mdp.known, delta=0.1, checkpoint=checkpoint, progress=False)
    document, arrays = read_document(checkpoint)
    parts, written = document["tree"]["dict"], checkpoint.read_bytes()
    for change in (
        {"told": parts["tested"]},  # a counter's name of another version
        {"tested": {"value": 10**9}},
        {"open": {"value": 0}},
        {"visits": {"array": "none"}},
        {"tests": {"list": [{"dict": {str(key): {"value": 0} for key in range(5)}}]}},
        None,  # damaged
    ):
        if change is None:
            checkpoint.write_bytes(written[:-1])
        else:
            write_document(checkpoint, document | {"tree": {"dict": parts | change}}, arrays)
        with pytest.raises(CheckpointError):
            select(path, models, mdp.known, checkpoint=checkpoint, progress=False)


def test_rows_of_later_blocks_are_named_by_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models, mdp = small()
    monkeypatch.setattr(reading, "BLOCK", 20)
    bad = [("reward", 41, 0.123), ("state", 63, 99), ("episode", 60, 3), ("reward", 57, math.nan), ("action", 70, None)]
    for name, row, value in bad:
        columns: dict[str, Any] = simulate_log(mdp, episodes=20, seed=1).columns()
        columns[name] = columns[name].tolist()
        columns[name][row : row + (HORIZON if name == "episode" else 1)] = [value] * (
            HORIZON if name == "episode" else 1
        )
        pq.write_table(pa.table(columns), tmp_path / "bad.parquet", row_group_size=33)
        with pytest.raises(LogError) as caught:
            select(tmp_path / "bad.parquet", models, mdp.known, progress=False)
        assert (caught.value.field, caught.value.index) == (name, (row,))


def test_likelihoods_are_those_of_a_loop_over_rows(test_seed: int) -> None:
    ladder, mdp = small(test_seed)
    log = simulate_log(mdp, episodes=30, seed=test_seed)
    replay = Replay(LadderSpec(ladder=ladder, known=mdp.known), 0.2, [LIKELIHOOD])
    replay.take(log)
    replay.answer("log")
    kernels = np.array([ladder.family.kernel(i) for i in range(6)])
    at = kernels[:, log.state, log.action, log.next_state]  # [6, rows]; every outcome is listed
    hulls, alive, end = {3: np.full(3, 1 / 3), 6: np.full(6, 1 / 6)}, np.ones(6, dtype=bool), 0
    logs, counting, counts, mixed = np.zeros(6), 0.0, np.zeros((3, 2, 3)), {3: 0.0, 6: 0.0}
    while end < 30:
        first, end = end, min(stretch_end(end), 30)
        rows = range(first * HORIZON, end * HORIZON)
        for t in rows:
            logs += np.log(at[:, t])
            here = counts[log.state[t], log.action[t]]
            counting += math.log((here[log.next_state[t]] + 0.5) / (here.sum() + 1.5))
            here[log.next_state[t]] += 1.0
            for n, weights in hulls.items():
                mixed[n] += math.log(weights @ at[:n, t])
        seen = slice(0, end * HORIZON)
        for n, weights in hulls.items():
            for _ in range(3):
                g = (at[:n, seen] / (weights @ at[:n, seen])).sum(axis=1)
                weights[:] = (weights * g + 1.0 / n) / (end * HORIZON + 1.0)
        members = 0.75 * ladder.prior @ np.exp(logs)
        mixture = math.log(members + 0.25 / 3.0 * sum(math.exp(q) for q in (counting, *mixed.values())))
        alive &= logs >= mixture - math.log(1.0 / 0.2)
    found = replay.tests[0]
    assert -found.loss == pytest.approx(logs, abs=1e-9)
    assert found.bound == pytest.approx(math.log(1.0 / 0.2) - mixture, abs=1e-9)
    assert (found.alive == alive).all()


def test_a_truth_between_the_kernels_is_outside_but_a_mixture(test_seed: int) -> None:
    ladder, mdp = small()
    kernels = [ladder.family.kernel(i) for i in range(6)]
    between = FiniteMDP(transition=0.5 * (kernels[0] + kernels[1]), reward=mdp.known.base_reward, horizon=HORIZON)
    found = select(simulate_log(between, episodes=4_000, seed=test_seed), ladder, mdp.known, progress=False)
    assert found.verdict == OUTSIDE
    assert "mixtures of class 2 do" in found.why
    far = FiniteMDP(transition=np.roll(kernels[0], 1, axis=2), reward=mdp.known.base_reward, horizon=HORIZON)
    found = select(simulate_log(far, episodes=400, seed=test_seed), ladder, mdp.known, progress=False)
    assert (found.evidence, found.verdict) == (LIKELIHOOD, OUTSIDE)
    assert "No mixture of its kernels explains them either" in found.why


def test_a_wrong_zero_is_fatal_to_the_likelihood_and_value_rows_are_reported_beside_it() -> None:
    _, mdp = small()
    truth = mdp.kernel().copy()
    truth[0, 0] = [0.59, 0.4, 0.01]
    model, other = truth.copy(), np.roll(truth, 1, axis=2)
    model[0, 0] = [0.6, 0.4, 0.0]
    real = FiniteMDP(transition=truth, reward=mdp.known.base_reward, horizon=HORIZON)
    ladder = Ladder([FiniteFamily([model]), FiniteFamily([model, other])])
    found = select(simulate_log(real, episodes=600, seed=3), ladder, mdp.known, progress=False)
    assert (found.evidence, found.verdict) == (LIKELIHOOD, OUTSIDE)
    assert found.other is not None
    assert (found.other.evidence, found.other.chosen) == (VALUE, 1)
    assert found.other.verdict == DECIDED
    assert "gives probability 0 to a transition" in found.difference
    assert found.as_data()["other"]["evidence"] == VALUE


def test_covers_and_linear_classes_keep_value_rows() -> None:
    problem = cases.mixture(3, dimension=3, full_support=True, horizon=6)
    mdp = FiniteMDP(transition=problem.features.kernel([0.5, 0.5, 0.0]), reward=problem.reward, horizon=6)
    sims = Simulators([problem.features.kernel(row) for row in np.eye(3)])
    log = simulate_log(mdp, episodes=50, seed=1)
    for ladder in (sims.ladder(most=2, grid=4), linear()[0]):
        assert select(log, ladder, mdp.known, progress=False).evidence == VALUE
        with pytest.raises(ParameterError, match="evidence"):
            select(log, ladder, mdp.known, evidence=LIKELIHOOD, progress=False)
    assert select(log, sims.ladder(most=2, grid=4, reach=0.0), mdp.known, progress=False).evidence == LIKELIHOOD
    with pytest.raises(InvalidInput, match="evidence"):
        select(log, sims.ladder(most=2, grid=4, reach=0.0), mdp.known, evidence="both")


@pytest.mark.parametrize("ladder", [small, linear])
def test_no_variant_of_a_checkpoint_hurts(
    ladder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test_seed: int
) -> None:
    """Changed in one place, with a valid digest: refused by an error of this package, or an answer."""
    models, mdp = ladder()
    path, checkpoint = stored(simulate_log(mdp, episodes=97, seed=2), tmp_path / "log.parquet"), tmp_path / "checkpoint"
    monkeypatch.setattr(reading, "BLOCK", 64)

    def stopped(replay: Replay, block: Log) -> None:
        take(replay, block)
        os.kill(os.getpid(), signal.SIGINT)

    take = Replay.take
    with monkeypatch.context() as patch:
        patch.setattr(Replay, "take", stopped)
        for _ in range(3):
            with pytest.raises(Interrupted):
                select(path, models, mdp.known, checkpoint=checkpoint, progress=False)
    document, arrays = read_document(checkpoint)
    draw, variants = np.random.default_rng(test_seed), []
    for field, changed in fuzz_files.altered(document | {"known": {}, "algorithm": {}}, arrays, [], draw):
        variants.append((field, copy.deepcopy(document), changed))

    def answers() -> Iterator[str]:
        for _, document, changed in variants:
            write_document(checkpoint, document, dict(changed))
            yield fuzz_files.guarded(
                lambda: str(select(path, models, mdp.known, checkpoint=checkpoint, progress=False).chosen)
            )

    variants = [variants[i] for i in draw.permutation(len(variants))[:120]]
    with warnings.catch_warnings(action="ignore"):
        found = fuzz_files.in_child(answers)
    outcomes = [(field, text) for (field, *_), text in zip(variants, found, strict=True)]
    assert not [each for each in outcomes if not each[1].startswith(("refused", "1", "2", "3"))]
    refused = {field for field, text in outcomes if text.startswith("refused")}
    assert len(refused) > 5


def test_a_log_of_one_step_that_says_nothing_has_an_answer() -> None:
    models, mdp = small()
    step = {name: [value] for name, value in simulate_log(mdp, episodes=1, seed=1).head(1).columns().items()}
    found = select({name: value[0][:1] for name, value in step.items()}, models, mdp.known, progress=False)
    assert (found.rows, found.verdict) == (1, NOT_ENOUGH)
    assert found.other is None
