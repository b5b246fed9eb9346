"""An arena plays its bases one episode at a time as each would play alone; it replays, shares, resumes to the bit."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.stats import binomtest

import occamrl as orl
from occamrl import seeding
from occamrl.checks import check_learner, check_rule, check_selector
from occamrl.errors import CheckpointError, ContractError, ParameterError
from occamrl.protocols import Known, Played, Replay, Rule
from occamrl.running import phases
from occamrl.running.phases import Past, coarsened
from occamrl.running.run import Simulator, run
from tests.cases import bits
from tests.environments.misbehaving import MDP as PLANT
from tests.environments.misbehaving import Scripted
from tests.runs.test_episode_learner import CASE, UNIFORM, Bold, Follow
from tests.runs.test_selectors import Leader, leader

MDP = CASE.mdp


@dataclass(frozen=True, kw_only=True, eq=False)
class Mostly(Rule):
    """The base with the best mean return, now and then one at random; a ``replay`` after every third episode."""

    replay: bool = False
    replays = True

    def start(self, bases: int) -> dict[str, Any]:
        return {"plays": np.zeros(bases, dtype=np.int64), "totals": np.zeros(bases), "told": [], "last": None}

    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int | Replay:
        if self.replay and len(memory["told"]) % 3 == 2:
            return Replay(memory["last"])
        if draw.random() < 0.5:
            return int(draw.integers(memory["plays"].size))
        return int((memory["totals"] / np.maximum(memory["plays"], 1)).argmax())

    def update(self, memory: dict[str, Any], base: int, played: Played) -> None:
        memory["plays"][base] += 1
        memory["totals"][base] += played.value
        memory["told"].append([base, played.value, played.planned, played.start, played.replay])
        memory["last"] = base


@dataclass(frozen=True, kw_only=True, eq=False)
class InTurn(Rule):
    """One base after the other, ``each`` episodes at a time; or always the base ``only``."""

    each: int = 1
    only: int = -1

    def start(self, bases: int) -> dict[str, Any]:
        return {"bases": bases, "episodes": 0, "values": []}

    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int:
        return self.only if self.only >= 0 else memory["episodes"] // self.each % memory["bases"]

    def update(self, memory: dict[str, Any], base: int, played: Played) -> None:
        memory["episodes"] += 1
        memory["values"].append(played.value)


def lin(scale: float = 1.0) -> orl.UCRLVTRLin:
    return orl.UCRLVTRLin(features=CASE.features, norm_bound=1.0, scale=scale)


def played(arena: Any, episodes: int, mdp: Any = MDP, **options: Any) -> Any:
    return run(arena, mdp, episodes=episodes, seed=4, progress=False, **options)


@pytest.mark.parametrize("learner", [lin(), Follow(policy=UNIFORM[:, :, 0].astype(int), value=1.5)])
def test_an_arena_of_one_base_is_that_base(learner: Any) -> None:
    alone, arena = played(learner, 90), played(orl.Arena(bases=[learner], rule=InTurn()), 90)
    for name in ("regret", "returns"):
        assert getattr(alone, name).tobytes() == getattr(arena, name).tobytes()
    assert (alone.plans, alone.pessimistic_episodes) == (arena.plans, arena.pessimistic_episodes)
    np.testing.assert_allclose(np.array(arena.state["memory"]["values"]) * MDP.horizon, alone.returns, rtol=1e-15)


def test_a_base_learns_from_its_own_episodes_and_the_rule_is_told_what_happened() -> None:
    """By hand: a player for each base, which is opened and closed for the episodes that the rule gave it."""
    arena = orl.Arena(bases=[lin(), Bold(), lin(0.1)], rule=Mostly())
    result = played(arena, 60)
    told = result.state["memory"]["told"]
    assert result.state["plays"] == np.bincount([base for base, *_ in told], minlength=3).tolist()
    agent = seeding.key(4, "agent")
    walks = [phases.PhaseWalk(base, MDP.known) for base in arena.bases]
    keys = [phases._key_of_base(agent, i) for i in range(3)]
    assert len({*keys, agent}) == 4
    source = Simulator(MDP)
    source.begin(4, 0)
    for episode, (base, value, planned, start, replay) in enumerate(told):
        chunk = source.play(walks[base], keys[base], episode, 1, lambda: False)
        assert (chunk.regret[0], chunk.returns[0], replay) == (result.regret[episode], result.returns[episode], False)
        assert value == chunk.returns[0] / MDP.horizon
        assert planned >= value / 2
        assert MDP.initial_distribution[start] > 0
    for walk, state in zip(walks, result.state["bases"], strict=True):
        assert bits(walk.state) == bits(state)


BASES = (lin(), Bold(), orl.UniformRandom())
INNER = orl.Arena(bases=BASES, rule=Mostly(replay=True))
ARENAS = {
    "replays": INNER,
    "shared": orl.Arena(bases=BASES, rule=Mostly(replay=True), share=True, largest_return=3.999),
    "nested": orl.Arena(bases=[INNER, lin(0.1)], rule=Mostly(replay=True), share=True),
}


@pytest.mark.parametrize("name", ARENAS)
def test_an_arena_keeps_the_contract_of_a_learner(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "KEPT", 7)
    monkeypatch.setattr(phases, "MOST_ROWS", 8)
    check_learner(ARENAS[name], MDP, episodes=60)


def test_an_arena_plays_the_phases_of_a_selector() -> None:
    check_selector(Leader(bases=(INNER, Bold())), MDP, episodes=30)


@pytest.mark.parametrize("agent", [Bold(), INNER], ids=["plain", "arena"])
def test_a_file_holds_the_agent_itself_and_goes_on_to_the_bit(agent: Any, tmp_path: Path) -> None:
    whole = played(agent, 50)
    played(agent, 20).save(tmp_path / "half.npz")
    half = orl.Result.load(tmp_path / "half.npz")
    assert type(half.agent) is type(agent)
    rest = run(half.agent, MDP, episodes=30, progress=False, continue_from=half)
    assert bits(rest.state) == bits(whole.state)
    assert rest.phases.to_pylist() == whole.phases.to_pylist()
    assert (rest.plans, rest.pessimistic_episodes) == (whole.plans, whole.pessimistic_episodes)


def test_past_policies_from_a_file_are_checked() -> None:
    saved = played(INNER, 20).walk.to_tree()
    saved["state"]["past"][0]["tables"][0, 0, 0] = 2  # no such action: compiled code must not see it
    with pytest.raises(CheckpointError, match="past"):
        phases.PhaseWalk.from_tree(INNER, MDP.known, saved)


def test_an_environment_with_the_numbers_of_the_simulator_teaches_the_same() -> None:
    features = orl.FeatureMap.tabular(states=PLANT.states, actions=PLANT.actions)
    bases = [Bold(), orl.UCRLVTRLin(features=features, norm_bound=2.0), orl.UniformRandom()]
    for share in (False, True):
        arena = orl.Arena(bases=bases, rule=Mostly(replay=True), share=share)
        fused = run(arena, PLANT, episodes=50, seed=5, progress=False)
        stepped = orl.learn(arena, Scripted(5, 50), episodes=50, seed=5, replay=False)
        np.testing.assert_array_equal(stepped.regret, fused.regret)
        assert bits(stepped.state) == bits(fused.state)
        names = ("base", "plays", "episodes", "plans")
        rows = [[[row[name] for name in names] for row in each.phases.to_pylist()] for each in (stepped, fused)]
        assert rows[0] == rows[1]
    agent = orl.Agent(orl.Arena(bases=bases, rule=InTurn()), Scripted(5, 50), seed=5).learn(4, replay=False)
    assert agent.predict(0)[0] in (0, 1)


# ------------------------------------------------------------------------------------------------------------- sharing


def test_what_others_play_keeps_the_confidence_set_valid() -> None:
    """The truth is lost in at most delta of runs (exact test, error below 1e-4); with wrong actions, in 24 of 60."""
    stay = np.array([[[0.9, 0.1], [0.1, 0.9]]] * 2)
    mdp = orl.FiniteMDP(transition=stay, reward=np.array([[0.0, 0.0], [1.0, 1.0]]), horizon=4)
    learner = orl.UCRLVTR(family=orl.FiniteFamily(np.stack([stay, np.full((2, 2, 2), 0.5)])))
    arena = orl.Arena(bases=[orl.UniformRandom(), learner], rule=orl.UCB1(scale=5.0), share=True)
    lost = 0
    for seed in range(40):
        state = orl.run(arena, mdp, episodes=300, seed=seed, progress=False).state["bases"][1]
        alive = state.members[np.isfinite(state.loss[0])]
        lost += 0 not in alive
    assert binomtest(lost, 40, 0.05, alternative="greater").pvalue > 1e-4


def test_bases_that_share_learn_from_every_episode_whoever_plays() -> None:
    """Equal learners have equal states as long as they share; one that never plays knows what one alone would."""
    shared = played(orl.Arena(bases=[lin(), lin(), Bold()], rule=InTurn(only=1), share=True), 40)
    first, second, plain = shared.state["bases"]
    assert bits(first) == bits(second) == bits(played(lin(), 40).state)
    assert plain.episodes == 40
    assert plain.moves.sum() == 40 * MDP.horizon
    first, second, plain = played(orl.Arena(bases=[lin(), lin(), Bold()], rule=InTurn(only=1)), 40).state["bases"]
    assert bits(first) != bits(second)
    assert plain.episodes == 0


# ------------------------------------------------------------------------------------------------------------- replays


def test_a_replay_plays_a_past_policy_with_its_exact_regret_and_teaches_nothing() -> None:
    result = played(orl.Arena(bases=[lin(), Bold()], rule=Mostly(replay=True)), 90)
    told = result.state["memory"]["told"]
    replays = [k for k, (*_, replay) in enumerate(told) if replay]
    assert replays == list(range(2, 90, 3))
    assert result.state["bases"][1].episodes == sum(base == 1 and not replay for base, *_, replay in told)
    tables = [past["tables"].astype(np.int64) for past in result.state["past"]]
    for k in replays:
        base, _, planned, start, _ = told[k]
        assert np.isnan(planned)
        lost = [MDP.optimal_values[0, start] - MDP.evaluate(table)[0, start] for table in tables[base]]
        assert min(abs(result.regret[k] - each) for each in lost) < 1e-12
    assert np.unique(result.regret[replays].round(9)).size > 5  # of several policies
    past = result.state["past"][0]
    assert past["episodes"] == len(past["tables"]) == sum(base == 0 and not replay for base, *_, replay in told)


@dataclass(frozen=True, kw_only=True, eq=False)
class Switching(orl.EpisodeLearner):
    """Play one action everywhere, and the other one after every third episode that it has seen."""

    def begin(self, known: Known) -> dict[str, Any]:
        return {"seen": 0}

    def plan(self, known: Known, state: Any, start: int, draw: np.random.Generator) -> Any:
        return np.full((known.horizon, known.states), state["seen"] // 3 % 2)

    def learn(self, known: Known, state: Any, episode: Any) -> None:
        state["seen"] += 1


class Kept(InTurn):
    replays = True


def kept_actions(past: dict[str, Any]) -> list[int]:
    """Return the action of each table that was kept, in order."""
    return [int(table[0, 0]) for table in past["tables"]]


def test_the_policies_that_are_kept_are_those_that_were_played() -> None:
    """Also of a base that changed its mind while others played, and of an arena whose bases take turns."""
    bases = [Switching(), Switching()]
    shared = played(orl.Arena(bases=bases, rule=Kept(each=2), share=True), 24)
    for i, past in enumerate(shared.state["past"]):
        assert kept_actions(past) == [k // 3 % 2 for k in range(24) if k // 2 % 2 == i]
    fixed = [Follow(policy=np.full((4, 4), a)) for a in (0, 1)]
    nested = played(orl.Arena(bases=[orl.Arena(bases=fixed, rule=InTurn(each=3))], rule=Kept()), 12)
    assert kept_actions(nested.state["past"][0]) == [0, 0, 0, 1, 1, 1] * 2


def test_every_past_episode_is_replayed_with_the_same_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reservoir of 4 places and 12 episodes, each with a table of its own: uniform over all twelve."""
    monkeypatch.setattr(phases, "KEPT", 4)
    known, runs, counts = Known.of_sizes(states=1, actions=12, horizon=1), 2_000, Counter[int]()
    draw = np.random.default_rng(0)
    for _ in range(runs):
        past = Past(known)
        for episode in range(12):
            past.add(np.full((1, 1), episode), draw)
        counts[int(past.drawn(draw)[0, 0])] += 1
    # chi-square with 11 degrees of freedom exceeds 40 with probability 4e-5
    assert sum((counts[i] - runs / 12) ** 2 / (runs / 12) for i in range(12)) < 40.0
    assert len(past.tables) == 4


@pytest.mark.parametrize("episodes", [-1, 3, 2**54, 10**30, 4.0])
def test_past_episodes_of_a_file_are_as_many_as_can_be(episodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full reservoir does not tell how many there were; the next draw is out of so many."""
    monkeypatch.setattr(phases, "KEPT", 4)
    past, draw = Past(Known.of_sizes(states=1, actions=2, horizon=1)), np.random.default_rng(0)
    tables = np.ones((4, 1, 1), dtype=np.uint8)
    with pytest.raises(CheckpointError, match="past"):
        past.resume({"episodes": episodes, "tables": tables})
    past.resume({"episodes": 9, "tables": tables})
    past.add(np.zeros((1, 1), dtype=np.int64), draw)


# -------------------------------------------------------------------------------------------------- who played when


def test_rows_tell_who_played_when() -> None:
    result = played(orl.Arena(bases=[lin(), Bold()], rule=InTurn(each=7)), 40)
    rows = result.phases.to_pylist()
    assert [row["base"] for row in rows] == [1, 2, 1, 2, 1, 2]
    assert [row["episodes"] for row in rows] == [7, 7, 7, 7, 7, 5]
    assert [row["plays"] for row in rows[:2]] == [[7, 0], [0, 7]]
    ends = np.cumsum([row["episodes"] for row in rows])
    for row, end in zip(rows, ends, strict=True):
        own = slice(end - row["episodes"], end)
        assert row["regret"] == np.cumsum(result.regret[own])[-1]
        assert row["realised_return"] == np.cumsum(result.returns[own])[-1]
    assert sum(row["plans"] for row in rows) == result.plans


def test_a_long_table_is_coarsened_without_losing_an_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = orl.Arena(bases=[lin(), Bold()], rule=InTurn())
    fine = played(arena, 50).phases.to_pylist()
    monkeypatch.setattr(phases, "MOST_ROWS", 8)
    result = played(arena, 50)
    rows = result.phases.to_pylist()
    cut = played(arena, 19)
    cut = run(arena, MDP, episodes=31, progress=False, continue_from=cut)
    assert cut.phases.to_pylist() == rows
    assert len(rows) <= 8 < len(fine) == 50
    assert sum(row["episodes"] for row in rows) == 50
    assert np.sum([row["plays"] for row in rows], axis=0).tolist() == result.state["plays"] == [25, 25]
    assert sum(row["regret"] for row in rows) == pytest.approx(result.total_regret)
    assert {row["base"] for row in rows if row["episodes"] > 1} == {None}
    # rows of one base that played for long stay as they are
    measured = {"regret": 0.0, "plans": 0, "realised_return": 0.0}
    sizes = [1, 1, 100, 1, 1, 1, 1, 60, 1]
    merged = coarsened(
        [{"episodes": n, "base": i % 2 + 1, "plays": [n, 0], **measured} for i, n in enumerate(sizes)], 5
    )
    assert [row["episodes"] for row in merged] == [2, 100, 4, 60, 1]
    assert [row["base"] for row in merged] == [None, 1, None, 2, 1]


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bases": []}, "bases"),
        ({"bases": lin()}, "bases: .* a list of learners"),
        ({"bases": [lin(), leader()]}, r"bases.*selector Leader"),
        ({"bases": [lin(), orl.UCRLVTRLin]}, "bases"),
        ({"rule": Mostly}, "rule"),
        ({"rule": lin()}, "rule"),
        ({"share": 1}, "share"),
        ({"largest_return": 0.0}, "largest_return"),
    ],
)
def test_what_is_no_arena_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        orl.Arena(**{"bases": [lin()], "rule": Mostly(), **parameters})


@dataclass(frozen=True, kw_only=True, eq=False)
class Always(InTurn):
    """The same answer every time."""

    answer: Any

    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> Any:
        return self.answer


class Replaying(Always):
    replays = True


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Always(answer=2), r"expected a base in \[0, 2\)"),
        (Always(answer=-1), r"expected a base in \[0, 2\)"),
        (Always(answer=1.0), r"returned 1.0; expected a base in \[0, 2\)"),
        (Always(answer=None), r"returned None; expected a base in \[0, 2\)"),
        (Replaying(answer=Replay(2)), r"expected a base in \[0, 2\)"),
        (Always(answer=Replay(0)), "no Replay without replays = True"),
        (Replaying(answer=Replay(1)), "base 1, which has not played yet"),
    ],
)
def test_a_choice_that_cannot_be_played_is_refused(rule: Rule, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        played(orl.Arena(bases=[lin(), lin()], rule=rule), 3)


def test_a_return_above_the_largest_is_refused() -> None:
    with pytest.raises(ParameterError, match="largest_return"):
        played(orl.Arena(bases=[lin()], rule=InTurn(), largest_return=0.5), 30)


# ----------------------------------------------------------------------------------------------------- check_rule


@dataclass(frozen=True, kw_only=True, eq=False)
class Outside(InTurn):
    """Keeps something outside its memory."""

    kept: list[int] = field(default_factory=list)

    def update(self, memory: dict[str, Any], base: int, played: Played) -> None:
        self.kept.append(base)
        memory["episodes"] = len(self.kept)


class Writes(InTurn):
    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int:
        memory["values"].append(0.0)
        return 0


class Forgetful(InTurn):
    """Draws from a generator of its own."""

    own = itertools.count()

    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int:
        return next(self.own) % int(memory["bases"])


class Unstorable(InTurn):
    def start(self, bases: int) -> dict[str, Any]:
        return {**super().start(bases), "seen": {1, 2}}


class Identity(InTurn):
    """Acts on which object its memory is, not on what it holds."""

    started: ClassVar[list[Any]] = []

    def start(self, bases: int) -> dict[str, Any]:
        self.started.append(super().start(bases))
        return dict(self.started[-1])

    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int:
        return int(any(memory["values"] is each["values"] for each in self.started))


@pytest.mark.parametrize(
    ("rule", "clause"),
    [
        (Always(answer=3), "the choice is one of 3 bases"),
        (Always(answer=True), "the choice is one of 3 bases"),
        (Always(answer=Replay(0)), "a rule that replays says so"),
        (Replaying(answer=Replay(0)), "a replay is of a base that has played"),
        (Outside(), "a memory from a file learns the same"),
        (Writes(), "choose writes nothing"),
        (Forgetful(), "the same draw gives the same choice"),
        (Identity(), "a memory from a file makes the same choices"),
        (Unstorable(), "the memory is made of plain data and arrays"),
        (lin(), "a rule has start"),
    ],
)
def test_a_rule_that_is_broken_on_purpose_is_caught(rule: Any, clause: str) -> None:
    check_rule(Mostly(replay=True), episodes=40)
    with pytest.raises(ContractError, match=clause):
        check_rule(rule, episodes=40)
