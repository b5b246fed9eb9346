"""Selectors as people write them: phases with pooled data, a choice anew every episode; facts, rows, resuming."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from occamrl.checks import check_selector, episode_by_episode
from occamrl.errors import ContractError
from occamrl.learners.baselines import Optimal, UniformRandom
from occamrl.learners.ucbvi import UCBVI
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import EpisodeLearner, Known, Learner, Phase, PhaseOutcome, RuledBases, Selector
from occamrl.rules.bandits import UCB1
from occamrl.running.result import Result
from occamrl.running.run import run
from occamrl.selectors.arena import Arena
from tests.cases import bits, stack


@dataclass(frozen=True, kw_only=True, eq=False)
class Widening(Selector):
    """Phases that double; each learner goes on from what all earlier ones have seen, with a smaller delta."""

    features: FeatureMap
    first: int = 8

    def _learner(self, epoch: int) -> UCRLVTRLin:
        return UCRLVTRLin(features=self.features, norm_bound=2.0, delta=0.1 / 2**epoch, scale=0.3)

    def start(self, known: Known) -> dict[str, Any]:
        return {"epoch": 0, "pooled": None, "state": None, "estimate": None, "told": []}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        epoch = memory["epoch"]
        learner = self._learner(epoch)
        if memory["state"] is None:
            state = learner.begin(known, memory["pooled"])
            memory["state"], memory["estimate"] = state, state.theta[:2].copy()
        facts = {"delta": learner.delta, "estimate": memory["estimate"]}
        return Phase(learner, memory["state"], episodes=self.first * 2**epoch, epoch=epoch, label="widen", facts=facts)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        memory["pooled"] = self._learner(memory["epoch"]).statistics(known, outcome.state)
        memory["told"].append([outcome.episodes, outcome.plans, outcome.total_return])
        memory["state"] = None
        memory["epoch"] += 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Leader(Selector):
    """Follow the base with the best mean return, after a few episodes of each; bases keep their states."""

    bases: tuple[Learner | EpisodeLearner | RuledBases, ...]
    trial: int = 3

    def start(self, known: Known) -> dict[str, Any]:
        states = [base.begin(known) for base in self.bases]
        return {"states": states, "played": [0] * len(states), "returned": [0.0] * len(states), "chosen": []}

    def _choose(self, memory: dict[str, Any]) -> int:
        for i, played in enumerate(memory["played"]):
            if played < self.trial:
                return i
        means = np.array(memory["returned"]) / np.array(memory["played"])
        return int(means.argmax())

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        i = self._choose(memory)
        return Phase(self.bases[i], memory["states"][i], episodes=1, label=f"base {i}", facts={"chosen": i + 1})

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        i = self._choose(memory)
        memory["states"][i] = outcome.state
        memory["played"][i] += outcome.episodes
        memory["returned"][i] += outcome.total_return
        memory["chosen"].append(i)


CASE = stack(2, states=3, initial_state=[0.5, 0.25, 0.25])
MDP = CASE.mdp
ONE_HOT = FeatureMap.tabular(states=3, actions=2)


def widening() -> Widening:
    return Widening(features=ONE_HOT)


def leader() -> Leader:
    return Leader(
        bases=(
            UniformRandom(),
            UCRLVTRLin(features=ONE_HOT, norm_bound=2.0),
            UCRLVTR(family=FiniteFamily(CASE.kernels)),
        )
    )


def pieces(agent: Selector, *sizes: int, mdp: FiniteMDP = MDP) -> Result:
    result = None
    for size in sizes:
        result = run(agent, mdp, episodes=size, seed=5, progress=False, continue_from=result)
    assert result is not None
    return result


@pytest.mark.parametrize("make", [widening, leader])
def test_selectors_keep_the_contract_and_pieces_leave_the_same_memory(make: Any) -> None:
    check_selector(make(), MDP, episodes=45, seed=2)
    whole, cut = pieces(make(), 100), pieces(make(), 1, 6, 1, 30, 62)
    assert bits(cut.walk.memory) == bits(whole.walk.memory)
    assert cut.phases.to_pylist() == whole.phases.to_pylist()
    assert bits(episode_by_episode(make(), MDP, 100, 5).walk.memory) == bits(whole.walk.memory)


def test_phases_double_and_each_learner_goes_on_from_all_data_before_it() -> None:
    result = pieces(widening(), 100)
    rows = result.phases.to_pylist()
    assert [row["episodes"] for row in rows] == [8, 16, 32, 44]
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3]
    assert [row["delta"] for row in rows] == [0.1, 0.05, 0.025, 0.0125]
    assert rows[0]["estimate"] == [0.0, 0.0]
    assert rows[1]["estimate"] != rows[2]["estimate"]
    assert sum(row["regret"] for row in rows) == pytest.approx(result.total_regret)
    assert sum(row["plans"] for row in rows) == result.plans
    assert sum(row["realised_return"] for row in rows) == pytest.approx(result.total_return)
    statistics = result.walk.memory["pooled"]
    assert statistics.episodes == 8 + 16 + 32
    learner = widening()._learner(3)
    fresh = learner.begin(MDP.known, statistics)
    np.testing.assert_allclose(rows[3]["estimate"], fresh.theta[:2], rtol=0, atol=1e-12)
    assert result.state.counters[0] == 100  # the last learner counts the pooled episodes, too


def test_a_selector_is_told_returns_and_plans_never_the_regret() -> None:
    result = pieces(widening(), 60)
    told = result.walk.memory["told"]
    edges = np.cumsum([0, 8, 16, 32])
    for (episodes, plans, returned), first, last in zip(told, edges, edges[1:], strict=False):
        assert episodes == last - first
        assert plans >= 1
        assert returned == np.cumsum(result.returns[first:last])[-1]
    assert set(PhaseOutcome.__dataclass_fields__) == {"episodes", "plans", "total_return", "state"}


def test_a_choice_anew_every_episode_is_told_its_return() -> None:
    agent = leader()
    result = pieces(agent, 80)
    memory = result.walk.memory
    assert memory["chosen"][:9] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert sum(memory["played"]) == len(memory["chosen"]) == 80
    returned = [0.0, 0.0, 0.0]
    for chosen, value in zip(memory["chosen"], result.returns, strict=True):
        returned[chosen] += value
    assert memory["returned"] == returned
    best = int(np.argmax(np.array(returned) / memory["played"]))
    assert memory["chosen"][-1] == best
    rows = result.phases.to_pylist()
    assert [row["chosen"] for row in rows[:3]] == [1, 2, 3]
    assert all(row["episodes"] == 3 for row in rows[:2])  # consecutive phases with the same facts are one row
    assert len(rows) < 80
    assert sum(row["episodes"] for row in rows) == 80
    # A base is as it would be had it played its episodes alone: it has its own state and nobody else's.
    assert [state.counters[0] for state in memory["states"][1:]] == memory["played"][1:]


class Repeated(Selector):
    """Phases of some learners in turn, with facts from a list."""

    def __init__(self, facts: list[dict[str, Any]], episodes: int = 2, *learners: Any) -> None:
        self.facts, self.episodes, self.learners = facts, episodes, learners or (UniformRandom(),)

    def start(self, known: Known) -> dict[str, Any]:
        return {"i": 0, "told": []}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        learner = self.learners[memory["i"] % len(self.learners)]
        facts = self.facts[memory["i"] % len(self.facts)]
        return Phase(learner, learner.begin(known), episodes=self.episodes, label="again", facts=facts)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        memory["i"] += 1
        memory["told"].append(outcome.total_return)


def test_rows_are_joined_when_epoch_label_and_facts_are_the_same() -> None:
    active = {"active": np.array([0, 2]), "threshold": np.float64(0.5)}
    joined = pieces(Repeated([active]), 10).phases.to_pylist()
    assert [(row["active"], row["threshold"], row["episodes"]) for row in joined] == [([0, 2], 0.5, 10)]
    changing = pieces(Repeated([active, {**active, "active": np.array([0, 1])}]), 10).phases.to_pylist()
    assert [row["active"] for row in changing] == [[0, 2], [0, 1]] * 2 + [[0, 2]]
    fewer = pieces(Repeated([{"chosen": 1}, {}]), 8).phases.to_pylist()
    assert [row["chosen"] for row in fewer] == [1, None, 1, None]


def test_a_phase_needs_an_episode() -> None:
    with pytest.raises(ContractError, match="phase 'again' has 0 episodes"):
        run(Repeated([{}], episodes=0), MDP, episodes=3)


def test_regret_of_a_phase_is_that_of_who_played() -> None:
    facts = [{"player": "random"}, {"player": "optimal"}]
    result = pieces(Repeated(facts, 5, UniformRandom(), Optimal(mdp=MDP)), 20)
    rows = result.phases.to_pylist()
    assert [row["player"] for row in rows] == ["random", "optimal"] * 2
    assert [row["regret"] for row in rows[1::2]] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert rows[0]["regret"] == pytest.approx(result.regret[:5].sum())
    assert rows[2]["regret"] > 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Anew(Selector):
    """Begin anew every five episodes: in the arrays of the state that was played, or in others."""

    in_place: bool
    base: Any

    def start(self, known: Known) -> dict[str, Any]:
        return {"state": self.base.begin(known), "epoch": 0}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        return Phase(self.base, memory["state"], episodes=5, epoch=memory["epoch"])

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        fresh = self.base.begin(known)
        if not self.in_place:
            memory["state"] = fresh
        elif isinstance(fresh, dict):
            memory["state"].update(fresh)
        else:
            for ours, theirs in zip(memory["state"], fresh, strict=True):
                ours[...] = theirs
        memory["epoch"] += 1


@pytest.mark.parametrize("arena", [False, True])
def test_a_state_that_is_written_to_between_phases_is_looked_at_again(arena: bool) -> None:
    """What the state says is played, not the table of the phase before: see the second action, which is better."""
    mdp = FiniteMDP(transition=np.ones((1, 2, 1)), reward=np.array([[0.1, 0.9]]), horizon=1)
    base: Any = UCBVI(episodes=100, scale=0.001)
    base = Arena(bases=[base, base], rule=UCB1()) if arena else base
    others, same = (
        run(Anew(in_place=each, base=base), mdp, episodes=60, seed=3, progress=False) for each in (False, True)
    )
    np.testing.assert_array_equal(same.regret, others.regret)
    assert others.regret.any()
    half = run(same.agent, mdp, episodes=33, seed=3, progress=False)
    rest = run(same.agent, mdp, episodes=27, progress=False, continue_from=half)
    np.testing.assert_array_equal(rest.regret, same.regret)
