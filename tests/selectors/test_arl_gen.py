"""ARL-GEN against brute force: losses, thresholds and the class chosen, recomputed from every row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from occamrl.learners.finite_rows import ALIVE, CLASS, EPISODES, MEMBER
from scipy.stats import binom

import occamrl as orl
from occamrl._core.loop import draw_outcome, draw_start
from occamrl._core.rng import fill_uniforms
from occamrl.checks import check_selector, episode_by_episode
from occamrl.errors import InvalidInput
from occamrl.problems.mixtures import SparseLadder
from occamrl.seeding import key
from tests.stepping import Steps

PROBLEM = SparseLadder(states=6, actions=2, horizon=4, dimension=5, most=2, nonzero=1, persistence=0.0, seed=3)


def ladder_and_kernels() -> tuple[orl.Ladder, Any]:
    ladder = orl.Ladder.of_problem(PROBLEM)
    return ladder, np.stack([ladder.family.kernel(i) for i in range(ladder.family.size)])


def brute_force(agent: Any, episodes: int, seed: int, weighted: bool) -> list[dict[str, Any]]:
    """Play step by step, keep every row, and recompute all losses before each episode."""
    ladder, kernels = ladder_and_kernels()
    mdp = PROBLEM.mdp
    values = ladder.family.optimal_values(mdp.known)
    truth, record = mdp.truth, []
    interaction = Steps(agent, mdp.known, seed=seed)
    rows: list[tuple[Any, float]] = []  # predictions of all kernels, target
    uniforms = np.zeros(mdp.horizon + 1 + (mdp.horizon + 1) % 2)
    for episode in range(episodes):
        fill_uniforms(key(seed, "environment"), episode, uniforms)
        s = int(draw_start(truth, uniforms[0]))
        interaction.begin(s)
        losses = sum(((y - z) ** 2 for z, y in rows), np.zeros(len(kernels)))
        state = interaction.walk.state
        member = int(state.counters[MEMBER])
        record.append({"losses": losses, "member": member, "state": state, "facts": dict(interaction.walk.rows[-1])})
        record[-1]["class"] = int(state.counters[CLASS])
        for h in range(mdp.horizon):
            a = interaction.act()
            o = draw_outcome(truth, h, s * mdp.actions + a, uniforms[h + 1])
            s2 = int(truth.outcomes.next_state[o])
            v = values[member, h + 1]
            if h < mdp.horizon - 1:
                middle, spread = ((v.min() + v.max()) / 2, np.ptp(v)) if weighted else (0.0, 1.0)
                rows.append(((kernels[:, s, a] @ v - middle) / spread, (v[s2] - middle) / spread))
            interaction.record(s2)
            s = s2
    return record


def test_the_anytime_class_is_that_of_brute_force_every_episode() -> None:
    ladder, _ = ladder_and_kernels()
    agent = orl.ARLGen(ladder=ladder, test_growth=0.0)
    values = ladder.family.optimal_values(PROBLEM.mdp.known)
    alive = np.ones(ladder.family.size, dtype=bool)
    changes = 0
    for entry in brute_force(agent, 200, seed=2, weighted=True):
        losses = entry["losses"]
        bound = -0.5 * np.log(np.sum(ladder.prior[alive] * np.exp(-2 * losses[alive]))) + 0.5 * np.log(1 / 0.05)
        alive &= losses <= bound  # dropped kernels leave the mixture as well
        if entry["state"].counters[EPISODES] - 1 in (64, 128):
            alive[entry["state"].alive[: entry["state"].counters[ALIVE]]] = True  # looked at again
        smallest = ladder.level[alive].min()
        assert entry["class"] == smallest
        inside = np.flatnonzero(alive & (ladder.level <= smallest))
        assert entry["member"] == inside[np.argmax(values[inside, 0, 0])]
        changes += smallest > 0
    assert changes > 0  # the smallest class is wrong here, and was left


@pytest.mark.parametrize(("rule", "data", "weighted"), [("paper", "fresh", False), ("sharp", "pooled", True)])
def test_statistics_and_classes_at_epochs_are_those_of_brute_force(rule: str, data: str, weighted: bool) -> None:
    ladder, _ = ladder_and_kernels()
    agent = orl.ARLGen(ladder=ladder, rule=rule, data=data, test="epoch")
    record = brute_force(agent, 62, seed=1, weighted=weighted)
    horizon = PROBLEM.horizon
    for i in range(2, 6):
        tau = 2**i - 2
        facts, losses = record[tau]["facts"], record[tau]["losses"]
        least = np.array([losses[:size].min() for size in ladder.sizes])
        assert facts["epoch"] == i
        np.testing.assert_allclose(facts["statistics"], least / (tau * horizon), rtol=1e-9)
        if rule == "paper":
            bound = least[-1] / (tau * horizon) + np.sqrt(i) / 2 ** (i / 2)
        else:
            bound = (least[-1] + 0.5 * np.log(ladder.family.size / 0.05)) / (tau * horizon)
        assert facts["threshold"] == pytest.approx(bound)
        assert facts["chosen"] == 1 + int(np.argmax(least / (tau * horizon) <= bound))


def test_facts_at_any_time_agree_with_all_rows() -> None:
    ladder, _ = ladder_and_kernels()
    record = brute_force(orl.ARLGen(ladder=ladder), 126, seed=0, weighted=True)
    for i in range(2, 7):
        tau = 2**i - 2
        facts, losses = record[tau]["facts"], record[tau]["losses"]
        least = np.array([losses[:size].min() for size in ladder.sizes])
        np.testing.assert_allclose(facts["statistics"], least / (tau * PROBLEM.horizon), rtol=1e-9)
        assert facts["chosen"] == 1 + int(np.argmax(np.array(facts["statistics"]) <= facts["threshold"]))
        if facts["chosen"] > 1:
            assert facts["separation"] > 0.0


def test_rare_tests_only_delay_the_choice() -> None:
    ladder, _ = ladder_and_kernels()
    often = orl.run(orl.ARLGen(ladder=ladder, test_growth=0.0), PROBLEM, episodes=1022, progress=False)
    rarely = orl.run(orl.ARLGen(ladder=ladder, test_growth=0.5), PROBLEM, episodes=1022, progress=False)
    assert often.phases["chosen"].to_pylist()[-1] == rarely.phases["chosen"].to_pylist()[-1] == 2
    assert rarely.phases["since"].to_pylist()[-1] <= 3 * often.phases["since"].to_pylist()[-1]


@pytest.mark.parametrize("number", range(6))
def test_every_variant_keeps_the_contract(number: int) -> None:
    mdp = PROBLEM.mdp
    check_selector(orl.ARLGen.examples(mdp)[number], mdp, episodes=70)


def test_continuing_in_the_middle_of_a_phase_gives_the_same_bits() -> None:
    ladder, _ = ladder_and_kernels()
    for agent in (orl.ARLGen(ladder=ladder), orl.ARLGen(ladder=ladder, rule="paper")):
        whole = orl.run(agent, PROBLEM, episodes=300, seed=5, progress=False)
        first = orl.run(agent, PROBLEM, episodes=101, seed=5, progress=False)
        rest = orl.run(agent, PROBLEM, episodes=199, progress=False, continue_from=first)
        assert whole.regret.tobytes() == rest.regret.tobytes()
        for fact in ("epoch", "chosen", "statistics", "threshold", "episodes", "plans"):
            assert whole.phases[fact].to_pylist() == rest.phases[fact].to_pylist()


def test_the_guard_plays_the_largest_class_on_squares() -> None:
    ladder, _ = ladder_and_kernels()
    record = brute_force(orl.ARLGen(ladder=ladder, guard=True), 40, seed=0, weighted=True)
    values = ladder.family.optimal_values(PROBLEM.mdp.known)[:, 0, 0]
    top = int(np.argmax(values))
    assert [record[k]["member"] for k in (0, 3)] == [top, top]
    assert record[1]["member"] < ladder.sizes[0]


def test_starting_at_the_largest_class() -> None:
    ladder, _ = ladder_and_kernels()
    for test in ("epoch", "anytime"):
        agent = orl.ARLGen(ladder=ladder, test=test, start_class=3)
        assert orl.run(agent, PROBLEM, episodes=6, progress=False).phases["chosen"].to_pylist() == [3, 1]


def rejections(runs: int, **variant: Any) -> int:
    """Count runs that ever left the class of the truth."""
    problem = SparseLadder(states=4, actions=2, horizon=4, dimension=4, most=2, nonzero=1, seed=1)
    agent = orl.ARLGen(ladder=orl.Ladder.of_problem(problem), delta=0.1, **variant)
    count = 0
    for seed in range(runs):
        phases = orl.run(agent, problem, episodes=510, seed=seed, progress=False).phases
        count += max(phases["chosen"].to_pylist()) > 2
    return count


def test_the_right_class_is_rejected_in_at_most_delta_of_runs() -> None:
    runs = 100
    # delta = 0.1; the probability of more than this many under that rate is below 1e-4.
    for test in ("anytime", "epoch"):
        assert rejections(runs, test=test) <= binom.ppf(1 - 1e-4, runs, 0.1)


def test_negative_control_a_tiny_threshold_rejects_the_right_class() -> None:
    assert rejections(40, test="epoch", slack=0.05) > binom.ppf(1 - 1e-4, 40, 0.1)


def test_a_truth_outside_the_ladder_is_reported() -> None:
    truth = np.random.default_rng(0).dirichlet(np.ones(3), size=(3, 2))
    others = np.random.default_rng(1).dirichlet(np.ones(3), size=(4, 3, 2))
    mdp = orl.FiniteMDP(transition=truth, reward=[[1.0, 0.9], [0.0, 0.1], [0.5, 0.4]], horizon=5)
    ladder = orl.Ladder([orl.FiniteFamily(others[:1]), orl.FiniteFamily(others)])
    for test in ("anytime", "epoch"):
        phases = orl.run(orl.ARLGen(ladder=ladder, test=test), mdp, episodes=4094, progress=False).phases
        assert phases["outside"].to_pylist()[-1]
    inside = orl.Ladder([orl.FiniteFamily(others[:1]), orl.FiniteFamily([*others, truth])])
    phases = orl.run(orl.ARLGen(ladder=inside), mdp, episodes=4094, progress=False).phases
    assert not any(phases["outside"].to_pylist())


@pytest.mark.parametrize(
    "wrong",
    [
        {"rule": "papr"},
        {"data": "old"},
        {"test": "never"},
        {"rule": "paper", "test": "anytime"},
        {"data": "fresh"},
        {"test": "epoch", "safe": True},
        {"start_class": 2},
        {"delta": 0.0},
        {"test_growth": -1.0},
        {"test_growth": "often"},
        {"slack": "much"},
        {"start_class": 1.0},
        {"start_class": True},
        {"safe": "yes"},
        {"delta": 1e-90, "test": "epoch", "data": "fresh"},  # delta / 2^i would leave the numbers allowed
        {"slack": float("nan")},
        {"radius": "paper"},
        {"weights": "some"},
    ],
)
def test_bad_parameters_are_refused(wrong: dict[str, Any]) -> None:
    ladder, _ = ladder_and_kernels()
    with pytest.raises(InvalidInput):
        orl.ARLGen(ladder=ladder, **wrong)
    with pytest.raises(InvalidInput):
        orl.ARLGen(ladder="ladder")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("test", ["anytime", "epoch"])
def test_what_no_kernel_allows_is_reported_as_outside(test: str) -> None:
    """Both kernels are deterministic, so that no row has a range; the truth moves elsewhere."""
    kernels = np.zeros((2, 3, 2, 3))
    kernels[0, :, 0, 0] = kernels[0, :, 1, 1] = kernels[1, :, 0, 0] = kernels[1, :, 1, 1] = 1.0
    kernels[1, 2, 1] = [0.0, 0.5, 0.5]
    truth = kernels[0].copy()
    ladder = orl.Ladder([orl.FiniteFamily(kernels[:1]), orl.FiniteFamily(kernels)])
    for move, outside in ((1, False), (2, True)):
        truth[0, 1] = np.eye(3)[move]
        mdp = orl.FiniteMDP(transition=truth, reward=[[0.0, 0.0], [0.5, 0.5], [1.0, 1.0]], horizon=4)
        result = orl.run(orl.ARLGen(ladder=ladder, test=test), mdp, episodes=14, progress=False)
        assert result.phases["outside"].to_pylist()[-1] is outside


@pytest.mark.parametrize("options", [{"rule": "paper"}, {"test": "epoch", "weights": "none"}])
def test_one_step_leaves_nothing_to_learn(options: dict[str, Any]) -> None:
    ladder, kernels = ladder_and_kernels()
    states, actions = kernels.shape[1:3]
    reward = np.random.default_rng(0).uniform(size=(states, actions))
    mdp = orl.FiniteMDP(transition=kernels[0], reward=reward, horizon=1)
    result = orl.run(orl.ARLGen(ladder=ladder, **options), mdp, episodes=30, progress=False)
    assert set(result.phases["chosen"].to_pylist()) == {1}
    assert not any(result.phases["outside"].to_pylist())
    assert result.total_regret == 0.0


def test_one_loop_and_one_episode_at_a_time_make_the_same_phases() -> None:
    ladder, _ = ladder_and_kernels()
    agent = orl.ARLGen(ladder=ladder, replan=0.3)
    fused = orl.run(agent, PROBLEM, episodes=90, seed=4, progress=False)
    walk = episode_by_episode(agent, PROBLEM.mdp, 90, 4)
    for one, other in zip(fused.walk.rows, walk.rows, strict=True):
        assert (one["chosen"], one["statistics"], one["since"]) == (
            other["chosen"],
            other["statistics"],
            other["since"],
        )
