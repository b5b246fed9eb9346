"""ARL-GEN on lists of kernels against brute force: losses, thresholds and classes, recomputed from every row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl.analysis.certificates import losses_inside
from occamrl.checks import check_selector
from occamrl.learners.ucrl_vtr import CLASS, example_ladder
from occamrl.problems.mixtures import SparseLadder
from occamrl.protocols import Acting
from tests.cases import Steps, drawn, environment_uniforms, member_in_play, stack

PROBLEM = SparseLadder(states=6, actions=2, horizon=4, dimension=5, most=2, nonzero=1, persistence=0.0, seed=3)
LADDER = orl.Ladder.of_problem(PROBLEM)
KERNELS = np.stack([LADDER.family.kernel(i) for i in range(LADDER.family.size)])


def brute_force(agent: Any, episodes: int, seed: int) -> list[dict[str, Any]]:
    """Play step by step, keep every row (range weights), and recompute all losses before each episode."""
    mdp, record = PROBLEM.mdp, []
    values, uniforms = LADDER.family.optimal_values(mdp.known), environment_uniforms(seed, episodes, mdp.horizon)
    interaction, losses = Steps(agent, mdp.known, seed=seed), np.zeros(len(KERNELS))
    for u in uniforms:
        s = int(np.searchsorted(mdp.truth.initial_cumulative[0], u[0], side="right"))
        interaction.begin(s)
        state, facts = interaction.walk.state, dict(interaction.walk.rows[-1])
        member, number = member_in_play(state), int(state.counters[CLASS])
        left = set(losses_inside(state))
        record.append({"losses": losses.copy(), "member": member, "class": number, "left": left, "facts": facts})
        for h in range(mdp.horizon):
            a = interaction.act()
            s2, _ = drawn(mdp, s, a, u[h + 1])
            v = values[member, h + 1]
            if h < mdp.horizon - 1:
                losses += ((v[s2] - KERNELS[:, s, a] @ v) / np.ptp(v)) ** 2
            interaction.record(s2)
            s = s2
    return record


def test_the_class_is_that_of_brute_force_every_episode() -> None:
    values = LADDER.family.optimal_values(PROBLEM.mdp.known)
    alive = np.ones(LADDER.family.size, dtype=bool)
    changes = 0
    for k, entry in enumerate(brute_force(orl.ARLGen(ladder=LADDER, test_growth=0.0), 200, seed=2)):
        losses = entry["losses"]
        bound = -0.5 * np.log(np.sum(LADDER.prior[alive] * np.exp(-2 * losses[alive]))) + 0.5 * np.log(1 / 0.05)
        alive &= losses <= bound  # dropped kernels leave the mixture as well
        if k in (64, 128):
            alive[list(entry["left"])] = True  # looked at again
        smallest = LADDER.level[alive].min()
        assert entry["class"] == smallest
        inside = np.flatnonzero(alive & (LADDER.level <= smallest))
        assert entry["member"] == inside[np.argmax(values[inside, 0, 0])]
        changes += smallest > 0
    assert changes > 0  # the smallest class is wrong here, and was left


def test_facts_agree_with_all_rows() -> None:
    record = brute_force(orl.ARLGen(ladder=LADDER), 126, seed=0)
    for i in range(2, 7):
        tau = 2**i - 2
        facts, losses = record[tau]["facts"], record[tau]["losses"]
        least = np.array([losses[:size].min() for size in LADDER.sizes])
        assert facts["epoch"] == i
        np.testing.assert_allclose(facts["statistics"], least / (tau * PROBLEM.horizon), rtol=1e-9)
        assert facts["chosen"] == 1 + int(np.argmax(np.array(facts["statistics"]) <= facts["threshold"]))
        if facts["chosen"] > 1:
            assert facts["separation"] > 0.0


def phases(problem: Any, episodes: int, **options: Any) -> list[dict[str, Any]]:
    agent = orl.ARLGen(**{"ladder": LADDER, **options})
    rows: list[dict[str, Any]] = orl.run(agent, problem, episodes=episodes, progress=False).phases.to_pylist()
    return rows


def test_rare_tests_only_delay_the_choice() -> None:
    often, rarely = (phases(PROBLEM, 1022, test_growth=growth) for growth in (0.0, 0.5))
    assert often[-1]["chosen"] == rarely[-1]["chosen"] == 2
    assert rarely[-1]["since"] <= 3 * often[-1]["since"]


ACTINGS: tuple[Acting, ...] = ("optimism", "sampling")
RANDOM_START = stack(0, initial_state=[0.2, 0.5, 0.3]).mdp
ESTIMATED: dict[str, Any] = {"ladder": example_ladder(RANDOM_START), "rewards": orl.RewardsPerPair()}
VARIANTS = [
    *orl.ARLGen.examples(RANDOM_START),
    *orl.Occam.examples(RANDOM_START),
    *(orl.Occam(acting=acting, **ESTIMATED) for acting in ACTINGS),
]


@pytest.mark.parametrize("number", range(len(VARIANTS)))
def test_every_variant_keeps_the_contract(number: int) -> None:
    check_selector(VARIANTS[number], RANDOM_START, episodes=70)


def test_the_guard_plays_the_largest_class_on_squares() -> None:
    record = brute_force(orl.ARLGen(ladder=LADDER, guard=True), 40, seed=0)
    top = int(np.argmax(LADDER.family.optimal_values(PROBLEM.mdp.known)[:, 0, 0]))
    assert [record[k]["member"] for k in (0, 3)] == [top, top]
    assert record[1]["member"] < LADDER.sizes[0]


def test_a_truth_outside_the_ladder_is_reported() -> None:
    truth = np.random.default_rng(0).dirichlet(np.ones(3), size=(3, 2))
    others = np.random.default_rng(1).dirichlet(np.ones(3), size=(4, 3, 2))
    mdp = orl.FiniteMDP(transition=truth, reward=[[1.0, 0.9], [0.0, 0.1], [0.5, 0.4]], horizon=5)
    for largest, outside in ((others, True), (np.concatenate([others, truth[None]]), False)):
        ladder = orl.Ladder([orl.FiniteFamily(others[:1]), orl.FiniteFamily(largest)])
        found = [row["outside"] for row in phases(mdp, 4094, ladder=ladder)]
        assert found[-1] is any(found) is outside


def test_what_no_kernel_allows_is_reported_as_outside() -> None:
    """Both kernels are deterministic, so that no row has a range; the truth moves elsewhere."""
    kernels = np.zeros((2, 3, 2, 3))
    kernels[0, :, 0, 0] = kernels[0, :, 1, 1] = kernels[1, :, 0, 0] = kernels[1, :, 1, 1] = 1.0
    kernels[1, 2, 1] = [0.0, 0.5, 0.5]
    truth = kernels[0].copy()
    ladder = orl.Ladder([orl.FiniteFamily(kernels[:1]), orl.FiniteFamily(kernels)])
    for move, outside in ((1, False), (2, True)):
        truth[0, 1] = np.eye(3)[move]
        mdp = orl.FiniteMDP(transition=truth, reward=[[0.0, 0.0], [0.5, 0.5], [1.0, 1.0]], horizon=4)
        assert phases(mdp, 14, ladder=ladder)[-1]["outside"] is outside


def test_one_step_leaves_nothing_to_learn() -> None:
    reward = np.random.default_rng(0).uniform(size=KERNELS.shape[1:3])
    mdp = orl.FiniteMDP(transition=KERNELS[0], reward=reward, horizon=1)
    result = orl.run(orl.ARLGen(ladder=LADDER), mdp, episodes=30, progress=False)
    assert set(result.phases["chosen"].to_pylist()) == {1}
    assert not any(result.phases["outside"].to_pylist())
    assert result.total_regret == 0.0
