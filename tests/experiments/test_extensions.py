"""Unknown rewards, random rewards and one kernel per step in specs: words, faults, and cells that are killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from occamrl import registry
from occamrl.errors import InvalidInput, ParameterError, SpecError, UnknownName
from occamrl.experiments.execution import Experiment
from occamrl.experiments.records import load
from occamrl.experiments.spec import make_agent, make_problem
from occamrl.learners.rewards import RewardsLinear, RewardsPerPair
from occamrl.problems.mdp import BernoulliRewards, BetaRewards
from tests.experiments.common import Killer, play, play_in_pieces, write
from tests.experiments.test_running import contents, watched

SPEC = """
name = "extensions"
episodes = 6_000
seeds = 1
thinning = 20
[[problem]]
name = "SparseMixture"
parameters = { states = 4, actions = 2, horizon = 4, dimension = 3, nonzero = 2, reward_noise = "bernoulli" }
[[agent]]
name = "UCRLVTRLin"
parameters = { norm_bound = "true", rewards = { per_pair = "hoeffding" }, kernel = "per_step" }
[[agent]]
name = "ARLGen"
parameters = { ladder = { sizes = [2, 4] }, rewards = { per_pair = "bernstein", share = 0.4 }, replan = 0.1 }
sweep = { kernel = ["stationary", "per_step"] }
"""
MIXTURE: dict[str, Any] = {"states": 4, "actions": 2, "horizon": 4, "dimension": 3, "nonzero": 2}


def test_words_of_rewards() -> None:
    problem = registry.make_problem("SparseMixture", **MIXTURE)

    def made(rewards: Any) -> Any:
        return getattr(make_agent("UCRLVTRLin", {"norm_bound": 1.0, "rewards": rewards}, problem, 10), "rewards")  # noqa: B009  # an agent need not have it

    assert made("known") == "known"
    found = made({"per_pair": "hoeffding", "share": 0.25, "per_step": True})
    assert isinstance(found, RewardsPerPair)
    assert (found.bound, found.share, found.per_step) == ("hoeffding", 0.25, True)
    found = made({"linear": [[[1.0, 0.0], [0.0, 1.0]]] * 4, "norm_bound": 2.0})
    assert isinstance(found, RewardsLinear)
    assert getattr(found.features, "shape", None) == (4, 2, 2)


@pytest.mark.parametrize(
    ("rewards", "field", "expected"),
    [
        ("unknown", "rewards", "per_pair"),
        (3, "rewards", "per_pair"),
        ({}, "rewards", "one of the keys"),
        ({"per_pair": "bernstein", "linear": [[[1.0]]]}, "rewards", "one of the keys"),
        ({"per_pear": "bernstein"}, "rewards.per_pear", "did you mean 'per_pair'?"),
        ({"per_pair": "bernstien"}, "rewards.per_pair", "did you mean 'bernstein'?"),
        ({"per_pair": "bernstein", "shar": 0.5}, "rewards.shar", "did you mean 'share'?"),
        ({"per_pair": "bernstein", "share": 2.0}, "rewards.share", r"\(0, 1\)"),
        ({"linear": [[[1.0]]]}, "rewards.norm_bound", "a bound"),
        ({"linear": "psi.npz", "norm_bound": 1.0}, "rewards.linear", "nested lists"),
        ({"linear": [[1.0]], "norm_bound": 1.0}, "rewards.linear", r"\[S, A, p\]"),
        ({"linear": [[[1.0], "x"]], "norm_bound": 1.0}, "rewards.linear", r"\[S, A, p\]"),
    ],
)
def test_words_that_mean_nothing_are_refused_by_key(rewards: Any, field: str, expected: str) -> None:
    problem = registry.make_problem("SparseMixture", **MIXTURE)
    with pytest.raises(InvalidInput, match=expected) as caught:
        make_agent("UCRLVTRLin", {"norm_bound": 1.0, "rewards": rewards}, problem, 10)
    assert caught.value.field == field


def test_any_problem_takes_noise() -> None:
    for word, kind in (
        ("bernoulli", BernoulliRewards()),
        ("beta", BetaRewards()),
        ({"beta": 50.0, "atoms": 8}, BetaRewards(concentration=50.0, atoms=8)),
        (BernoulliRewards(), BernoulliRewards()),
    ):
        problem = make_problem("SparseMixture", {**MIXTURE, "reward_noise": word})
        assert problem.mdp.reward_noise == kind
        assert problem.phi.shape == (4, 2, 4, 3)  # the rest is the problem's own
        plain = registry.make_problem("SparseMixture", **MIXTURE)
        assert problem.mdp.with_reward_noise(None).fingerprint == plain.mdp.fingerprint != problem.mdp.fingerprint
    for wrong, field in (
        ({"beta": -1.0}, "reward_noise.beta"),
        ({"gamma": 1.0}, "reward_noise.gamma"),
        (3, "reward_noise"),
    ):
        with pytest.raises((ParameterError, UnknownName)) as caught:
            make_problem("SparseMixture", {**MIXTURE, "reward_noise": wrong})
        assert caught.value.field == field
    with pytest.raises(UnknownName, match="did you mean 'reward_noise'"):
        make_problem("SparseMixture", {**MIXTURE, "reward_nose": "bernoulli"})


def test_every_fault_is_told_at_once_under_its_key(tmp_path: Path) -> None:
    text = SPEC.replace('"bernoulli"', '"bernouli"').replace('"hoeffding"', '"hoefding"')
    text = text.replace('"stationary", "per_step"]', '"stationary", "per_stop"]')
    text += '[[problem]]\nname = "RiverSwim"\nparameters = { states = 3 }\n'
    with pytest.raises(SpecError) as caught:
        Experiment.from_toml(write(tmp_path, text))
    found = {fault.key: fault.expected for fault in caught.value.faults}
    assert "did you mean 'bernoulli'?" in found["problem[0].parameters.reward_noise"]
    assert "did you mean 'hoeffding'?" in found["agent[0].parameters.rewards.per_pair"]
    assert "did you mean 'per_step'?" in found["agent[1].sweep.kernel"]


def test_a_stopped_cell_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    experiment = Experiment.from_toml(write(tmp_path, SPEC))
    assert len(experiment.cells) == 3
    whole = play(experiment, tmp_path / "whole")
    folder = play_in_pieces(experiment, tmp_path / "out", (1, 2))
    assert contents(folder.path) == contents(whole.path)
    assert len({manifest["total_regret"] for manifest in load(whole.path).cells}) == 3  # three different agents
    assert all(manifest["total_regret"] > 0.0 for manifest in load(whole.path).cells)


def test_a_killed_worker_ends_in_the_same_bytes(tmp_path: Path) -> None:
    text = SPEC.replace("6_000", "40_000").partition('[[agent]]\nname = "ARLGen"')[0]
    kill = Killer(2_000)
    heard, folder = watched(tmp_path, kill, text)
    assert kill.killed
    assert any(event["event"] == "retry" for event in heard)
    play(Experiment.from_toml(write(tmp_path, text)), tmp_path / "whole")
    assert contents(folder.path) == contents(tmp_path / "whole")
