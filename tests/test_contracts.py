"""Everything that learns or chooses keeps its contract, also from a file at every block; what is broken is caught."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

import occamrl as orl
from occamrl import registry
from occamrl.addresses import generator
from occamrl.checks import check_learner, check_problem, check_rule
from occamrl.errors import ContractError
from occamrl.protocols import Flow, Known, Played, Replay
from occamrl.running.run import Simulator, learn_block, require_plan
from tests import cases


@pytest.mark.parametrize(("name", "problem"), cases.contract_cases())
def test_every_learner_keeps_the_contract(
    name: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    agent, mdp = cases.made(name, problem)
    report = check_learner(agent, mdp, episodes=10)
    assert type(agent).__name__ in str(report)
    assert str(report) in capsys.readouterr().out


@pytest.mark.parametrize("name", cases.LEARNERS | cases.PAPER)
def test_no_plan_chooses_what_is_not_allowed(name: str) -> None:
    """Also after a hundred episodes, and of rewards that are not known."""
    agent, mdp = cases.made(name, "some allowed")
    for known in (mdp.known, mdp.known.without_rewards):
        try:
            state = agent.begin(known)
        except orl.InvalidInput:
            assert not known.rewards_known
            continue
        source = Simulator(mdp)
        for k in range(0, 100, 10):
            plan = agent.plan(known, state, generator(0, "agent", k))
            require_plan(plan, known)
            learn_block(
                agent,
                known,
                state,
                plan,
                source.play(plan, k, min(10, plan.episodes), 0, lambda: False).flows,
            )


@pytest.mark.parametrize("name", ["paper.ARLGen", "paper.ARLLinDim", "paper.ARLLinNorm"])
def test_selectors_of_the_paper_say_what_they_chose_and_promise_no_more(name: str) -> None:
    agent, mdp = cases.made(name, "random starts")
    result = orl.run(agent, mdp, episodes=200, progress=False)
    rows, chosen = result.phase_rows, "norm_bound" if name.endswith("Norm") else "chosen"
    assert all(row[chosen] is not None and len(row["statistics"]) for row in rows)
    assert result.verdict["because"].split(" of ")[0] in str(result.verdict)
    if name.endswith("Norm"):  # what was given bounds the norm, whatever the ellipsoid says
        assert f"at most {min(agent.norm_bound, result.verdict['norm_bound']):.4g}" in str(
            result.verdict
        )
    assert "probability" not in str(
        result.verdict
    )  # the paper's test promises nothing after finitely many episodes


@pytest.mark.parametrize("members", [[0, 1, 0, 1], [2, 2, 2, 2], [1, 5, 0, 3]])
def test_a_class_holds_a_kernel_per_step_if_it_holds_every_one(members: list[int]) -> None:
    case = cases.case()
    kernels, reward = case.kernels[members], case.mdp.known.base_reward
    mdp = orl.FiniteMDP(transition=kernels, reward=reward, horizon=cases.HORIZON)
    assert case.ladder.class_of(mdp) == (1 if max(members) < 2 else 2)
    outside = orl.FiniteMDP(
        transition=kernels[[0] * 3 + [1]] * 0.5 + 0.5 / 3, reward=reward, horizon=cases.HORIZON
    )
    assert case.ladder.class_of(outside) is None


SOLVE_MODELS = {"Optimal", "UniformRandom", "Occam", "OccamMixture", "PSRL"}


@pytest.mark.parametrize("name", cases.LEARNERS | cases.PAPER)
def test_a_learner_takes_a_discount_or_says_who_does(name: str) -> None:
    """Those who solve models keep the contract; their plans are right, by brute force below."""
    case = cases.DISCOUNTED
    agent = (cases.LEARNERS | cases.PAPER)[name](case)
    if type(agent).__name__ in SOLVE_MODELS:
        check_learner(agent, case.mdp, episodes=10)
        plan = agent.plan(case.mdp.known, agent.begin(case.mdp.known), generator(0, "agent"))
        assert plan.values is None or plan.values[0].max() <= (1 - 0.8**cases.HORIZON) / (1 - 0.8)
    else:
        with pytest.raises(orl.InvalidInput, match=r"discount.*Occam, PSRL"):
            agent.begin(case.mdp.known)


def test_a_plan_with_an_action_that_is_not_allowed_is_refused_by_name() -> None:
    known = cases.SOME_ALLOWED.mdp.known
    for policy in (np.zeros((cases.HORIZON, 3), int), np.full((cases.HORIZON, 3, 2), 0.5)):
        with pytest.raises(
            orl.InvalidInput, match=r"'wait' in state 'middle'.*allowed there: \['go'\]"
        ):
            require_plan(orl.Plan(policy=policy), known)


def test_the_table_is_complete() -> None:
    """Every class that the registry finds is in the table of cases."""
    case = cases.CASES["stationary"]
    there = {type(make(case)) for make in (*cases.LEARNERS.values(), *cases.PAPER.values())}
    found = {
        each for kind in ("learners", "selectors", "paper") for each in registry.own(kind).values()
    }
    assert found - there == set()
    assert {type(rule) for rule in cases.RULES.values()} == set(registry.own("rules").values())


@pytest.mark.parametrize("name", cases.RULES)
def test_every_rule_keeps_the_contract(name: str) -> None:
    check_rule(cases.RULES[name])


@pytest.mark.parametrize("name", registry.own("problems"))
def test_every_problem_keeps_the_contract(name: str) -> None:
    kind = registry.own("problems")[name]
    for parameters in kind.small:
        check_problem(kind(**parameters))


# Negative controls --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Sound(orl.Learner):
    """Counts, and plays what it has played least; broken by those below."""

    hidden: list[int] = field(default_factory=list)

    def begin(self, known: Known) -> Any:
        return {"visits": np.zeros((known.states, known.actions)), "blocks": 0}

    def plan(self, known: Known, state: Any, draw: np.random.Generator) -> orl.Plan:
        tie = draw.random(state["visits"].shape)
        return orl.Plan(policy=self.policy(known, state["visits"] + tie), episodes=3)

    def policy(self, known: Known, cost: Any) -> Any:
        return np.tile(cost.argmin(axis=1), (known.horizon, 1))

    def learn(self, known: Known, state: Any, plan: orl.Plan, flow: Flow) -> None:
        np.add.at(state["visits"], (flow.state, flow.action), flow.count)
        state["blocks"] += 1


class RemembersElsewhere(Sound):
    def learn(self, known: Known, state: Any, plan: orl.Plan, flow: Flow) -> None:
        self.hidden.append(1)
        super().learn(known, state, plan, flow)

    def policy(self, known: Known, cost: Any) -> Any:
        return super().policy(known, cost if len(self.hidden) % 3 else -cost)


class OwnDice(Sound):
    def policy(self, known: Known, cost: Any) -> Any:
        return super().policy(known, np.random.default_rng().random(cost.shape))


class PlanWrites(Sound):
    def plan(self, known: Known, state: Any, draw: np.random.Generator) -> orl.Plan:
        state["blocks"] += 1
        return super().plan(known, state, draw)


class NoSuchAction(Sound):
    def policy(self, known: Known, cost: Any) -> Any:
        return super().policy(known, cost) + known.actions


class WrongValues(Sound):
    def plan(self, known: Known, state: Any, draw: np.random.Generator) -> orl.Plan:
        return orl.Plan(
            policy=super().plan(known, state, draw).policy, values=np.zeros(known.states)
        )


class SharedState(Sound):
    kept: dict[str, Any] = {}  # noqa: RUF012  # broken on purpose

    def begin(self, known: Known) -> Any:
        return self.kept.setdefault("state", super().begin(known))


class KeepsObjects(Sound):
    def begin(self, known: Known) -> Any:
        return {**super().begin(known), "dice": np.random.default_rng(0)}


class WritesFlow(Sound):
    def learn(self, known: Known, state: Any, plan: orl.Plan, flow: Flow) -> None:
        super().learn(known, state, plan, flow)
        flow.reward[:] = 0.0


class OnlyItsPlan(Sound):
    def learn(self, known: Known, state: Any, plan: orl.Plan, flow: Flow) -> None:
        if (flow.action != plan.policy[flow.step, flow.state]).any():
            raise ValueError("this is not what I planned")
        super().learn(known, state, plan, flow)


class OnlyWholePlans(Sound):
    def learn(self, known: Known, state: Any, plan: orl.Plan, flow: Flow) -> None:
        state["left"] = state.get("left", 0) + plan.episodes - flow.episodes
        super().learn(known, state, plan, flow)

    def plan(self, known: Known, state: Any, draw: np.random.Generator) -> orl.Plan:
        return orl.Plan(
            policy=super().plan(known, state, draw).policy,
            episodes=3 if state.get("left", 0) <= 0 else 0,
        )


BROKEN: dict[type[Any], str] = {
    RemembersElsewhere: "same state and draw|same plan|same bits",
    OwnDice: r"same state and draw.*plan\.policy|same bits",
    PlanWrites: r"writes nothing to the state \(episode 1: state\.blocks",
    NoSuchAction: "can be played.*integers from 0 to 1",
    WrongValues: r"plan\.values",
    SharedState: "begin returns the same state",
    KeepsObjects: r"state\.dice is Generator",
    WritesFlow: r"leaves plan and flow.*reward",
    OnlyItsPlan: "actions of others.*not what I planned",
    OnlyWholePlans: "flow of one episode",
}


def test_a_sound_learner_of_a_user_passes_and_its_class_is_refused() -> None:
    check_learner(Sound(), cases.CASES["random starts"].mdp, episodes=12)
    with pytest.raises(ContractError, match="a learner has"):
        check_learner(Sound, cases.CASES["random starts"].mdp)  # type: ignore[arg-type]  # a class


class Forgot(orl.Learner):
    """Has no plan of its own."""

    def begin(self, known: Known) -> Any:
        return {}

    def learn(self, known: Known, state: Any, plan: orl.Plan, flow: Flow) -> None:
        pass


def test_a_method_that_is_missing_is_named() -> None:
    mdp, kind = cases.CASES["random starts"].mdp, cast(Any, Forgot)
    with pytest.raises(ContractError, match=r"Forgot without \['plan'\]"):
        check_learner(kind(), mdp)
    with pytest.raises(orl.InvalidInput, match=r"Forgot without \['plan'\]"):
        orl.run(kind(), mdp, episodes=1)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_learner_is_caught(kind: type[Any]) -> None:
    with pytest.raises(ContractError, match=BROKEN[kind]):
        check_learner(kind(), cases.CASES["random starts"].mdp, episodes=12)


class TakesTurns(orl.Rule):
    """Sound; broken by those below."""

    def start(self, bases: int) -> dict[str, Any]:
        return {"bases": bases, "played": 0, "total": np.zeros(bases)}

    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int | Replay:
        return int(memory["played"] % memory["bases"])

    def update(self, memory: dict[str, Any], base: int, played: Played) -> None:
        memory["played"] += 1
        memory["total"][base] += played.value


class OutOfRange(TakesTurns):
    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int | Replay:
        return int(memory["bases"])


class ChoosingWrites(TakesTurns):
    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int | Replay:
        memory["played"] += 1
        return 0


class SecretReplay(TakesTurns):
    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int | Replay:
        return Replay(0)


class Objects(TakesTurns):
    def start(self, bases: int) -> dict[str, Any]:
        return {**super().start(bases), "dice": np.random.default_rng(0)}


class OwnRuleDice(TakesTurns):
    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int | Replay:
        return int(np.random.default_rng().integers(memory["bases"]))


@pytest.mark.parametrize(
    ("kind", "clause"),
    [
        (OutOfRange, "one of 3 bases"),
        (ChoosingWrites, r"writes nothing.*memory\.played"),
        (SecretReplay, "replays = True"),
        (Objects, r"memory\.dice is Generator"),
        (OwnRuleDice, "same draw gives the same choice|makes the same choices"),
    ],
)
def test_a_broken_rule_is_caught(kind: type[Any], clause: str) -> None:
    check_rule(TakesTurns())
    with pytest.raises(ContractError, match=clause):
        check_rule(kind())


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        (lambda values: np.concatenate([values[:1] - 0.01, values[1:]]), "attains"),
        (lambda values: values[:-1], r"\[H \+ 1, S\]"),
        (lambda values: values + 10.0, "lies in"),
    ],
)
def test_a_problem_that_lies_about_its_optimum_is_caught(change: Any, clause: str) -> None:
    class Given:
        mdp: Any = cases.case().mdp

    honest = Given.mdp.optimal_values
    vars(Given.mdp)["_solved"] = change(honest), Given.mdp.optimal_policy
    with pytest.raises(ContractError, match=clause):
        check_problem(Given())
